"""The plots: a heatmap of a matrix, lines over a common axis, histograms of values, points and their frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def pyplot() -> Any:
    """matplotlib's; it takes half a second to load, which only those who plot should wait for."""
    import matplotlib

    matplotlib.use("Agg")  # files only; no window system is needed
    from matplotlib import pyplot

    return pyplot


def heatmap(matrix: list[list[float]], path: Path, title: str, axis: str) -> None:
    """A square matrix with entries in [0, 1], row and column 0 in the upper left, each value in its cell."""
    plt, size = pyplot(), len(matrix)
    figure, axes = plt.subplots(figsize=(max(3.6, 0.45 * size + 1.6),) * 2, layout="constrained")
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    axes.set(title=title, xlabel=axis, ylabel=axis, xticks=range(size), yticks=range(size))
    if size <= 15:
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                colour = "black" if value > 0.6 else "white"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, shrink=0.8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


Line = tuple[Sequence[float], Sequence[float]]


def lines(series: dict[str, Line], path: Path, title: str, x: str, y: str, marked: Sequence[float] = (),
          right: dict[str, Line] | None = None, log: bool = False) -> None:  # fmt: skip
    """Named lines of (x, y) values; vertical marks at the x values of `marked`; `right`: one line on its own axis;
    `log`: both axes in powers of two."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for name, (xs, ys) in series.items():
        axes.plot(xs, ys, marker="o" if len(xs) <= 50 else "", markersize=4, label=name)
    for position in marked:
        axes.axvline(position, color="grey", linestyle=":", linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for which in (axes.xaxis, axes.yaxis):
            which.set_major_formatter("{x:g}")
    else:
        axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    if len(series) > 1:
        axes.legend()
    for name, (xs, ys) in (right or {}).items():
        other = axes.twinx()
        other.plot(xs, ys, marker="s", markersize=4, linestyle="--", color="C1")
        other.set_ylabel(f"{name} (dashed)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def histograms(series: dict[str, np.ndarray], path: Path, title: str, x: str) -> None:
    """The density of each named set of values over one axis, its outermost thousandth on either side left out."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    ends = [np.quantile(values, (0.001, 0.999)) for values in series.values()]
    bins = list(np.linspace(min(low for low, _ in ends), max(high for _, high in ends), 121))
    for name, values in series.items():
        axes.hist(values, bins=bins, density=True, histtype="step", label=name)
    axes.set(title=title, xlabel=x, ylabel="density")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


Point = tuple[float, float, str]
INK = "#010203"  # stands for the colour of the page's text


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that none beats: none has a smaller x and a y as large. By rising x."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


def pareto(groups: dict[str, list[Point]], path: Path, title: str, x: str, y: str) -> None:
    """Named groups of (x, y, label): less of x, on a logarithmic axis, and more of y is better. The frontier is a line,
    and its points are labelled. An SVG whose text has the colour of the page around it."""
    from matplotlib.ticker import LogLocator

    plt = pyplot()
    style = {"svg.fonttype": "none", "svg.hashsalt": title, "text.color": INK, "axes.labelcolor": INK}
    style |= {"axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "legend.labelcolor": INK}
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(5.0, 3.8), layout="constrained")
        for number, (name, points) in enumerate(groups.items()):
            axes.scatter([p[0] for p in points], [p[1] for p in points], s=28, color=f"C{number % 10}", label=name)
        best = frontier([point for points in groups.values() for point in points])
        axes.plot([p[0] for p in best], [p[1] for p in best], color="grey", linewidth=1, linestyle=":", zorder=0)
        axes.set(title=title, xlabel=x, ylabel=y, xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.08, y=0.12)
        low, high = axes.get_xlim()
        axes.set_xlim(low * (low / high) ** 0.3, high)  # room for labels
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        figure.draw_without_rendering()  # from here on it is known where a point lies
        last = -math.inf
        for a, b, label in best:  # to the left and above, where there is no point, each above the one before
            height = 72 / figure.dpi * axes.transData.transform((a, b))[1]
            rise = max(4.0, last + 10 - height)
            axes.annotate(label, (a, b), (-4, rise), textcoords="offset points", ha="right", fontsize=8)
            last = height + rise
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    path.write_text(path.read_text(encoding="utf-8").replace(INK, "currentColor"), encoding="utf-8")
