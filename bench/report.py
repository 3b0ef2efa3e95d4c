"""One page about a matrix of runs: the arena as a plot and a table, the kinds, score against size and time.

    python -m bench report quick             # runs/report/index.html
    python -m bench report runs/quick runs/more --to DIR
    python -m bench report bench/results/arena.jsonl.gz # also of what `python -m bench table --save` has kept

index.html is one file without anything from elsewhere; its tables are sorted by a click on a column, and a row leads to
the cards of its runs where these lie in a folder. Milliseconds are those of `python -m bench profile`, where it was run
for these results. `python -m bench figures arena` draws the first plot alone, for a page elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2

from bench import Parser, reading, table
from bench.records import folder_of
from bench.table import ROLES, Table, load, short, teacher_score
from common import results

FOLDER, DEFAULT = results.ROOT / "bench", "runs/report"
FOLDED = ("Failed or missing", "By class", "Agreement", "Differences by task", "Made with", "The runs",
          "The rules")  # fmt: skip
Item = tuple[str, Any]  # a macro of report.html, and what it shows


# --- ways to draw, as SVG or PNG files ------------------------------------------------------------------------

Line = tuple[Sequence[float], Sequence[float]]
Point = tuple[float, float, str]
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
        if marked:
            axes.flat[0].plot([], [], color="grey", linestyle="-.", linewidth=0.8, label="teacher")
        if len(names) > 1:
            figure.legend(loc="outside lower center", ncols=3, fontsize=6, frameon=False)
        for axis in axes[-1]:
            axis.set_xlabel(x, fontsize=7)
        figure.supylabel(y, fontsize=8)
    return True


# --- plots of a matrix ----------------------------------------------------------------------------------------


def draw(found: Table, folders: list[Path], to: Path) -> dict[str, str]:
    """All plots as SVG files; file -> what it shows."""
    drawn = {}
    if draw_arena(found, to / "arena.svg"):
        drawn["arena.svg"] = (
            "Mean over tasks, with 95% intervals over seeds. Colour and shape say how a row differs from vanilla KD,"
            " paired by seed, which is sharper than whether two bars overlap."
        )
    if draw_ladder(found, to / "arena-ladder.svg"):
        drawn["arena-ladder.svg"] = "Score by budget; the line across is the teacher's."
    megabytes = {row.path: row.typical("student", "bytes") / 1e6 for row in found.rows}
    for name, axis, x in (("bytes", "MB on disk", megabytes), ("time", "ms, batch 1", profiled(folders))):
        if said := draw_frontier(found, x, to / f"frontier-{name}.svg", f"score against {name}", axis):
            drawn[f"frontier-{name}.svg"] = said
    return drawn


MARKS = {  # what a row is called beside vanilla KD -> shape, colour, legend
    "higher": ("^", "C2", "higher than vanilla KD"),
    "lower": ("v", "C3", "lower than vanilla KD"),
    "not distinguishable": ("o", "C0", "not told from vanilla KD"),
    None: ("s", "grey", None),  # KD itself, or nothing to compare with
}


def draw_arena(found: Table, path: Path, title: str = "") -> bool:
    """A dot and a bar for each row of the arena, from above, and a line at each baseline and at the teacher; whether
    there is a row. Without a `title` it is the student's kind."""
    rows = [row for row in found.arena() if found.mean(row) is not None]
    if not rows:
        return False
    with phone(path, rows[0].kind, 1.1 + 0.22 * len(rows)) as (figure, axes):
        used = set()
        for y, row in enumerate(rows):
            mean, *ends = found.mean(row).interval()  # type: ignore[union-attr]
            over = found.over(row, found.baseline(row, ROLES["kd"]), found.tasks).interval
            shape, colour, _ = MARKS[over and over.word]
            used.add(over and over.word)
            axes.plot([100 * (mean if end is None else end) for end in ends], (y, y), color=colour, linewidth=1.5)
            axes.plot(100 * mean, y, shape, color=colour, markersize=5)
        for role, line in zip(ROLES.values(), ("--", ":"), strict=True):
            if baseline := next((row for row in rows if row.role == role), None):
                value = 100 * found.mean(baseline).mean  # type: ignore[union-attr]
                axes.axvline(value, color="grey", linestyle=line, linewidth=1, label=baseline.label, zorder=0)
        if all(record["teacher"]["metrics"] for record in found.tasks.values()):
            value = 100 * fmean(map(teacher_score, found.tasks.values()))
            axes.axvline(value, color="grey", linestyle="-.", linewidth=1, label="teacher", zorder=0)
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
        axes.set(xlabel=f"mean of {', '.join(map(short, found.tasks))}, %", ylim=(len(rows) - 0.4, -0.6))
        for shape, colour, said in (mark for called, mark in MARKS.items() if called in used):
            axes.plot([], [], shape, color=colour, markersize=5, linestyle="", label=said)
        figure.suptitle(title or rows[0].kind, fontsize=9)
        figure.get_layout_engine().set(w_pad=0.1)  # the last number of the axis would be cut
        axes.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return True


def draw_ladder(found: Table, path: Path, only: Sequence[str] = ()) -> bool:
    """Score by budget, a panel for each task and a line for each row of the arena, or for those called `only`; whether
    there is a ladder."""
    groups: dict[str, dict[str, Line]] = {}
    marked = {}
    for task, record in found.tasks.items():
        for row in (row for row in found.arena() if not only or row.name in only):
            rungs = {amount: 100 * fmean(values) for amount, values in found.rungs(row, task).items() if values}
            if rungs:
                groups.setdefault(short(task), {})[row.label] = list(rungs), list(rungs.values())
        if record["teacher"]["metrics"]:
            marked[short(task)] = 100 * teacher_score(record)
    return panels(groups, path, "examples", "score, %", marked)


def draw_frontier(found: Table, x: dict[str, float], path: Path, title: str, axis: str) -> str | None:
    """Mean score against what a student costs, on a logarithmic axis; what the plot shows. Points of the arena's start
    are full, and the frontier is a line through them, with labels; those of other starts are hollow."""
    from matplotlib.ticker import LogLocator

    means = {row.path: 100 * mean.mean for row in found.rows if (mean := found.mean(row)) and row.path in x}
    if len({f"{x[name]:.3g}" for name in means}) < 2:  # all alike: nothing to choose between
        return None
    start, points, best = found.arena()[0].start, dict[str, list[Point]](), list[Point]()
    for kind, rows in found.kinds().items():
        for row in (row for row in rows if row.path in means):
            name = kind if row.start == start else f"{kind}, from {row.start}"
            points.setdefault(name, []).append((x[row.path], means[row.path], row.label))
            best += [points[name][-1]] if row.start == start else []
    best = frontier(best)
    with phone(path, title, 3.4) as (figure, axes):
        for number, (name, some) in enumerate(points.items()):
            colour = f"C{number % 10}"
            xs, ys, _ = zip(*some, strict=True)
            axes.scatter(xs, ys, s=24, edgecolors=colour, label=name,
                         facecolors="none" if ", from " in name else colour)  # fmt: skip
        axes.plot([p[0] for p in best], [p[1] for p in best], color="grey", linewidth=1, linestyle=":", zorder=0)
        axes.set(title=title, xlabel=axis, ylabel="mean score, %", xscale="log")
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
    others = ", ".join(sorted({row.start for row in found.rows if row.path in means and row.start != start}))
    hollow = f" Hollow: students that started from something else ({others}): not compared." * bool(others)
    return f"The line joins rows that no other beats, of those that started from {start}.{hollow}"


def profiled(folders: list[Path]) -> dict[str, float]:
    """Path of a row -> milliseconds at batch 1, of `python -m bench profile`."""
    found: dict[str, float] = {}
    for path in (folder / "profile.json" for folder in folders):
        if path.is_file():
            with reading(path, "what `python -m bench profile` writes") as text:
                found |= {row["row"]: row["milliseconds"]["1"] for row in json.loads(text)["rows"]}
    return found


# --- what it says --------------------------------------------------------------------------------------------


def made_with(found: Table) -> list[str]:
    """The machines, versions and commits of the results; several of one sort are all named."""
    environments = [record["environment"] for row in found.rows for record in row.records()]
    named = {
        "Device": [f"{e['hardware']['device']}, {e['hardware']['threads']} threads" for e in environments],
        **{name: [e["versions"][name] for e in environments] for name in ("python", "torch", "transformers")},
        "Commit": [
            (e["git"]["commit"] or "none")[:10] + " and changes" * bool(e["git"]["dirty"]) for e in environments
        ],
    }
    return [f"{name}: {', '.join(sorted(set(values)))}" for name, values in named.items()]


# --- the page: what the macros of report.html show -----------------------------------------------------------


def by_class(found: Table) -> table.Grid:
    """Each class's precision, recall and F1 in percent, and what it was taken for: means over seeds, of results on data
    of one's own."""
    lines = []
    for row in (row for members in found.kinds().values() for row in members):
        of_split: dict[str, list[dict[str, Any]]] = {}
        for record in row.records():
            for split, classes in record["analysis"].get("by_class", {}).items():
                of_split.setdefault(f"{row.label}, {short(record['task'])} {split}", []).append(classes)
        for heading, seeds in of_split.items():
            lines.append([heading])
            for name, first in seeds[0].items():
                each = [classes[name] for classes in seeds]
                figures = [table.percent(fmean(one[key] for one in each)) for key in ("precision", "recall", "f1")]
                wrong = Counter[str]()
                for other, count in (pair for one in each for pair in one["answered"].items()):
                    wrong[other] += count / len(each) * (other != name)
                taken = ", ".join(f"{other} {count:.3g}" for other, count in wrong.most_common() if count)
                lines.append([name, f"{first['count']:,}", *figures, taken or "-"])
    return table.Grid(["class", "rows", "precision", "recall", "F1", "taken for"], lines)


def runs(found: Table, to: Path) -> list[dict[str, Any]]:
    """Every row's runs, task by task: their cards, seen from the page, and a signature; the other seeds differ in the
    seed alone."""
    items = []
    for row in (row for members in found.kinds().values() for row in members):
        tasks = []
        for task, seeds in row.cells.items():
            places = {seed: seeds[seed].folder for seed in sorted(seeds)}
            cards = {seed: Path(os.path.relpath(place / "README.md", to)).as_posix()
                     if (place / "log.jsonl").is_file() else None for seed, place in places.items()}  # fmt: skip
            tasks.append((short(task), cards, seeds[min(seeds)].record["signature"]))
        items.append({"row": row, "tasks": tasks})
    return items


def rules() -> list[str]:
    """The twelve of bench/RULES.md."""
    return re.findall(r"^\d+\. (.*)", (FOLDER / "RULES.md").read_text(encoding="utf-8"), re.MULTILINE)


def sections(found: Table, drawn: dict[str, str], to: Path) -> dict[str, list[Item]]:
    """Heading -> its parts; the plots are in `to`."""

    def figures(start: str) -> list[Item]:
        chosen = {name: said for name, said in drawn.items() if name.startswith(start)}
        svgs = [(to / name).read_text(encoding="utf-8") for name in chosen]
        return [part for svg, said in zip(svgs, chosen.values(), strict=True)
                for part in (("figure", svg[svg.index("<svg") :]), ("text", said))]  # fmt: skip

    arena = {id(row) for row in found.arena()}
    others = [row for row in found.rows if id(row) not in arena]
    footnote = table.footnote(found)
    return {
        "The arena": [("text", table.how(found)), *figures("arena"), ("grid", table.scores(found, found.arena())),
                      *[("text", footnote)] * bool(footnote)],
        f"Failed or missing: {len(found.missing)}": [("items", table.missing(found, 100))] * bool(found.missing),
        "The kinds": [("grid", table.scores(found, others))] if others else [],
        "Score against cost": figures("frontier"),
        "By class": [("grid", classes)] if (classes := by_class(found)).rows else [],
        "By budget": [("grid", table.ladder(found))] if found.ladder else [],
        "Agreement with the teacher, and log loss":
            [("grid", table.fidelity(found))] if table.agrees(found) else [],
        "Planned contrasts": [("grid", table.contrasts(found))] if table.has_contrasts(found) else [],
        "Differences by task": [("grid", table.by_task(found))],
        "Made with": [("items", made_with(found))],
        "The runs": [("runs", runs(found, to))],
        "The rules": [("items", rules())],
    }  # fmt: skip


def colour(text: str) -> str:
    """The classes of a cell: a verdict stands below its figures, and has its colour."""
    said = text.split(" (")[0].rsplit(", ", 1)[-1]
    return " ".join(["said"] * ("], " in text) + [said] * (said in ("higher", "lower")))


def write(found: Table, folders: list[Path], to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    drawn = draw(found, folders, to)
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True)
    pages.filters |= {"colour": colour, "lines": lambda text: re.split(r"(?<=\]), ", text)}
    labels = [row.label for members in found.kinds().values() for row in members]
    links = {label: f"#row-{labels.index(label)}" for label in labels}
    template, parts = pages.get_template("report.html"), sections(found, drawn, to)
    (to / "index.html").write_text(template.render(sections=parts, folded=FOLDED, links=links), encoding="utf-8")


def main(argv: list[str]) -> None:
    parser = Parser("report", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--to", type=Path, default=Path(DEFAULT), help=f"folder to write (default: {DEFAULT})")
    options = parser.parse_args(argv)
    folders = [folder_of(name) for name in options.results]
    write(load(folders, table.budget_of(options.results)), folders, options.to)
    print(f"written: {options.to / 'index.html'}")
