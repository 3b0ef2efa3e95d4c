"""Plots of figures and reports, as SVG or PNG files."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.stats import Interval

Line = tuple[Sequence[float], Sequence[float]]
Point = tuple[float, float, str]
Bar = tuple[str, Interval, str | None]  # a row of `arena`, and what it is called beside KD
INK = "#010203"  # stands for the colour of the page's text


def pyplot() -> Any:
    """matplotlib's, for files alone; it takes half a second to load."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """As SVG with the page's colours, or as PNG on white, of 128 colours: a quarter of the bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
        path.write_text(path.read_text(encoding="utf-8").replace(INK, "currentColor"), encoding="utf-8")
    else:
        from PIL import Image  # which matplotlib needs for PNG files, too

        figure.savefig(path, dpi=160)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(128)
        small.save(path, optimize=True)
    pyplot().close(figure)
    print(f"saved: {path}")


def heatmap(matrix: list[list[float]], path: Path, title: str, signed: bool = False) -> None:
    """A square matrix of layers, 0 in the upper left, each value in its cell: entries in [0, 1], or `signed`
    ones, in red above zero and in green below."""
    size = len(matrix)
    most = max(abs(value) for row in matrix for value in row) or 1.0
    shades = {"vmin": -most, "vmax": most, "cmap": "RdYlGn_r"} if signed else {"vmin": 0, "vmax": 1, "cmap": "viridis"}
    figure, axes = pyplot().subplots(figsize=(max(3.6, 0.45 * size + 0.9),) * 2, layout="constrained")
    image = axes.imshow(matrix, **shades)
    axes.set(title=title, xlabel="layer", ylabel="layer", xticks=range(size), yticks=range(size))
    if size > 15:
        figure.colorbar(image, shrink=0.8)
    for i, row in enumerate(matrix if size <= 15 else []):
        for j, value in enumerate(row):
            colour = "black" if signed or value > 0.6 else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    save(figure, path)


def lines(series: dict[str, Line], path: Path, title: str, x: str, y: str, marked: Sequence[float] = (),
          log: bool = False) -> None:  # fmt: skip
    """Named lines of (x, y) values; vertical marks at the x values of `marked`; `log`: both axes in powers of two."""
    figure, axes = pyplot().subplots(figsize=(4.4, 3.4), layout="constrained")  # read at a phone's width, too
    for name, (xs, ys) in series.items():
        axes.plot(xs, ys, marker="o" if len(xs) <= 50 else "", markersize=4, label=name)
    for position in marked:
        axes.axvline(position, color="grey", linestyle=":", linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    if not log:
        axes.locator_params(axis="x", integer=True)
    for which in (axes.xaxis, axes.yaxis) if log else ():
        getattr(axes, f"set_{which.axis_name}scale")("log", base=2)
        which.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    if len(series) > 4:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    elif len(series) > 1:
        axes.legend(fontsize=8)
    save(figure, path)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that none beats: none has a smaller x and a y as large. By rising x."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


@contextlib.contextmanager
def phone(path: Path, salt: str, height: float, *shape: int, **how: bool) -> Iterator[tuple[Any, Any]]:
    """(figure, axes) of a plot that is readable on a phone's width, and is saved at the end. In an SVG text has the
    colour of the page around it."""
    plt, width = pyplot(), 3.6
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "legend.labelcolor")
    style = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 8} | dict.fromkeys(colours, INK)
    with plt.rc_context(style):
        figure, axes = plt.subplots(*shape, figsize=(width, height), layout="constrained", **how)
        yield figure, axes
        save(figure, path)


MARKS = {
    "higher": ("^", "C2", "higher than vanilla KD"),
    "lower": ("v", "C3", "lower than vanilla KD"),
    "not distinguishable": ("o", "C0", "not told from vanilla KD"),
    None: ("s", "grey", None),  # KD itself, or nothing to compare with
}


def arena(bars: Sequence[Bar], marked: dict[str, float], path: Path, title: str, x: str) -> None:
    """A dot and a bar for each row, from above; `marked`: named vertical lines."""
    with phone(path, title, 1.1 + 0.22 * len(bars)) as (figure, axes):
        for (name, value), line in zip(marked.items(), ("--", ":"), strict=False):
            axes.axvline(value, color="grey", linestyle=line, linewidth=1, label=name, zorder=0)
        for y, (_, (mean, *ends), called) in enumerate(bars):
            shape, colour, _ = MARKS[called]
            axes.plot([100 * (mean if end is None else end) for end in ends], (y, y), color=colour, linewidth=1.5)
            axes.plot(100 * mean, y, shape, color=colour, markersize=5)
        axes.set_yticks(range(len(bars)), [label for label, *_ in bars])
        axes.set(xlabel=x, ylim=(len(bars) - 0.4, -0.6))
        used = {called for *_, called in bars}
        for shape, colour, said in (mark for called, mark in MARKS.items() if called in used):
            axes.plot([], [], shape, color=colour, markersize=5, linestyle="", label=said)
        figure.suptitle(title, fontsize=9)
        figure.get_layout_engine().set(w_pad=0.1)  # the last number of the axis would be cut
        axes.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def pareto(groups: dict[str, list[Point]], joined: set[str], path: Path, title: str, x: str, y: str) -> None:
    """Named groups of (x, y, label): less of x, on a logarithmic axis, and more of y is better. The frontier is a line
    through the groups in `joined`, whose points are full; the others' are hollow. Its points are labelled."""
    from matplotlib.ticker import LogLocator

    with phone(path, title, 3.4) as (figure, axes):
        for number, (name, points) in enumerate(groups.items()):
            colour = f"C{number % 10}"
            axes.scatter([p[0] for p in points], [p[1] for p in points], s=24, edgecolors=colour, label=name,
                         facecolors=colour if name in joined else "none")  # fmt: skip
        best = frontier([point for name, points in groups.items() if name in joined for point in points])
        axes.plot([p[0] for p in best], [p[1] for p in best], color="grey", linewidth=1, linestyle=":", zorder=0)
        axes.set(title=title, xlabel=x, ylabel=y, xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.08, y=0.12)
        low, high = axes.get_xlim()
        axes.set_xlim(low * (low / high) ** 0.3, high)  # room for labels
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", fontsize=7, frameon=False)
        figure.draw_without_rendering()  # from here on it is known where a point lies
        last = -math.inf
        for a, b, label in best:  # to the left and above, where there is no point, each above the one before
            height = 72 / figure.dpi * axes.transData.transform((a, b))[1]
            rise = max(4.0, last + 10 - height)
            axes.annotate(label, (a, b), (-4, rise), textcoords="offset points", ha="right", fontsize=7)
            last = height + rise


def panels(groups: dict[str, dict[str, Line]], path: Path, x: str, y: str,
           marked: dict[str, float] | None = None) -> bool:  # fmt: skip
    """Small multiples, two in a row: a panel of named lines for each group, all on one logarithmic x axis and one y
    axis; `marked`: of a panel a horizontal line. Whether there is any group."""
    if not groups:
        return False
    rows = (len(groups) + 1) // 2
    names = list(dict.fromkeys(name for lines in groups.values() for name in lines))
    styles = {name: (f"C{i % 10}", ("-", "--", ":")[i // 10 % 3]) for i, name in enumerate(names)}
    height = 1.5 * rows + 0.13 * len(names) + 0.4
    ticks = sorted({value for lines in groups.values() for xs, _ in lines.values() for value in xs})
    ticks = ticks[:: -(-len(ticks) // 6)]
    with phone(path, path.stem, height, rows, 2, sharex=True, sharey=True, squeeze=False) as (figure, axes):
        for axis, (title, lines) in zip(axes.flat, groups.items(), strict=False):
            for name, (xs, ys) in lines.items():
                colour, line = styles[name]
                axis.plot(xs, ys, color=colour, linestyle=line, linewidth=1, marker="o", markersize=2)
            if marked and title in marked:
                axis.axhline(marked[title], color="grey", linewidth=0.8, linestyle="-.")
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{t / 1000:g}k" if t >= 1000 else f"{t:g}" for t in ticks], rotation=45)
            axis.set_xticks([], minor=True)
            axis.set_title(title, fontsize=8)
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(groups) :]:
            axis.set_visible(False)
            axes[max(0, rows - 2), 1].tick_params(labelbottom=True)
        for name, (colour, line) in styles.items():
            axes.flat[0].plot([], [], color=colour, linestyle=line, label=name)
        if len(names) > 1:
            figure.legend(loc="outside lower center", ncols=3, fontsize=6, frameon=False)
        for axis in axes[-1]:
            axis.set_xlabel(x, fontsize=7)
        figure.supylabel(y, fontsize=8)
    return True
