"""One page about a matrix of runs: the arena as a plot and a table, the kinds, score against size and time.

    python -m bench report quick             # runs/report/index.html
    python -m bench report runs/quick runs/more --to DIR
    python -m bench report bench/results/arena.jsonl.gz # also of what `python -m bench table --save` has kept

index.html is one file without anything from elsewhere; its tables are sorted by a click on a column. Milliseconds are
those of `python -m bench profile`, where it was run for these results. `python -m bench figures arena` draws the first
plot alone, for a page elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from PIL import Image  # which matplotlib needs, too

from bench import Parser, reading, table
from bench.records import folder_of
from bench.table import ROLES, Grid, Table, load, short, teacher_score
from common import results

FOLDER, DEFAULT = results.ROOT / "bench", "runs/report"
Part = str | Markup | Grid  # a paragraph, a picture or a table of the page


# --- ways to draw, as PNG files -------------------------------------------------------------------------------

Point = tuple[float, float, str]


def save(figure: Figure, path: Path) -> None:
    """As PNG of 128 colours: a quarter of the bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(128)
    small.save(path, optimize=True)
    print(f"saved: {path}")


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that none beats: none has a smaller x and a y as large. By rising x."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


@contextlib.contextmanager
def phone(path: Path, height: float, *shape: int, **how: bool) -> Iterator[tuple[Any, Any]]:
    """(figure, axes) of a plot that is readable on a phone's width, and is saved at the end."""
    with matplotlib.rc_context({"font.size": 8}):
        figure: Any = Figure(figsize=(3.6, height), layout="constrained")
        yield figure, figure.subplots(*shape, **how)
        save(figure, path)


# --- plots of a matrix ----------------------------------------------------------------------------------------


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
    with phone(path, 1.1 + 0.22 * len(rows)) as (figure, axes):
        used = set()
        for y, row in enumerate(rows):
            mean: Any = found.mean(row)
            over = found.over(row, found.baseline(row, ROLES["kd"]), found.tasks).found
            shape, colour, _ = MARKS[over and over.word]
            used.add(over and over.word)
            axes.plot([100 * end for end in mean.interval()], (y, y), color=colour, linewidth=1.5)
            axes.plot(100 * mean.mean, y, shape, color=colour, markersize=5)
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
        if axes.get_legend_handles_labels()[1]:
            figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return True


def draw_ladder(found: Table, path: Path, only: Sequence[str] = ()) -> bool:
    """Score by budget: a panel for each task, two in a row, in it a line for each row of the arena, or for those called
    `only`, and one across at the teacher's score; whether there is a ladder."""
    rows = [row for row in found.arena() if not only or row.name in only]
    if not (rows and found.ladder):
        return False
    down, amounts = (len(found.tasks) + 1) // 2, list(found.ladder)
    height = 1.5 * down + 0.13 * len(rows) + 0.4
    with phone(path, height, down, 2, sharex=True, sharey=True, squeeze=False) as (figure, axes):
        for axis, (task, record) in zip(axes.flat, found.tasks.items(), strict=False):
            for number, row in enumerate(rows):
                rungs = {amount: 100 * fmean(values) for amount, values in found.rungs(row, task).items() if values}
                axis.plot(list(rungs), list(rungs.values()), f"C{number % 10}", label=row.label, linewidth=1,
                          linestyle=("-", "--", ":")[number // 10 % 3], marker="o", markersize=2)  # fmt: skip
            if record["teacher"]["metrics"]:
                axis.axhline(100 * teacher_score(record), color="grey", linewidth=0.8, linestyle="-.", label="teacher")
            axis.set_xscale("log")
            axis.set_xticks(amounts, [f"{amount / 1000:g}k" for amount in amounts], rotation=45)
            axis.set_xticks([], minor=True)
            axis.set_title(short(task), fontsize=8)
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(found.tasks) :]:
            axis.set_visible(False)
            axes[max(0, down - 2), 1].tick_params(labelbottom=True)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=6,
                      frameon=False)  # fmt: skip
        for axis in axes[-1]:
            axis.set_xlabel("examples", fontsize=7)
        figure.supylabel("score, %", fontsize=8)
    return True


def draw_frontier(found: Table, x: dict[str, float], path: Path, title: str, axis: str) -> str | None:
    """Mean score against what a student costs, on a logarithmic axis; what the plot shows. Points of the arena's start
    are full, and the frontier is a line through them, with labels; those of other starts are hollow."""
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
    with phone(path, 3.4) as (figure, axes):
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


# --- the page -------------------------------------------------------------------------------------------------


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


def by_class(found: Table) -> Grid:
    """Each class's precision, recall and F1 in percent, and what it was taken for: means over seeds, of results on data
    of one's own."""
    lines = []
    for row in (row for members in found.kinds().values() for row in members):
        of_split = defaultdict[str, list[dict[str, Any]]](list)
        macro_f1 = defaultdict[str, list[float]](list)
        for record in row.records():
            for split, classes in record["analysis"].get("by_class", {}).items():
                heading = f"{row.label}, {short(record['task'])} {split}"
                of_split[heading].append(classes)
                macro_f1[heading].append(record["metrics"][split].get("macro_f1", math.nan))
        for heading, seeds in of_split.items():
            lines.append([heading, "", "", "", f"macro {table.percent(fmean(macro_f1[heading]))}"])
            for name, first in seeds[0].items():
                each = [classes[name] for classes in seeds]
                figures = [table.percent(fmean(one[key] for one in each)) for key in ("precision", "recall", "f1")]
                wrong = Counter[str]()
                for other, count in (pair for one in each for pair in one["answered"].items()):
                    wrong[other] += count / len(each) * (other != name)
                taken = ", ".join(f"{other} {count:.3g}" for other, count in wrong.most_common() if count)
                lines.append([name, f"{first['count']:,}", *figures, taken or "-"])
    return Grid(["class", "rows", "precision", "recall", "F1", "taken for"], lines)


def picture(path: Path) -> Markup:
    return Markup(f'<img alt="" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">')


def sections(found: Table, folders: list[Path], to: Path) -> dict[str, Sequence[Part]]:
    """Heading -> its parts; the plots are drawn into `to`."""
    arena: list[Part] = [table.how(found)]
    if draw_arena(found, to / "arena.png"):
        arena += [
            picture(to / "arena.png"),
            "Mean over tasks, with its 95% interval. Colour and shape say how a row differs from vanilla KD, paired,"
            " which is sharper than whether two bars overlap.",
        ]
    if draw_ladder(found, to / "ladder.png"):
        arena += [picture(to / "ladder.png"), "Score by budget; the line across is the teacher's."]
    arena += [table.scores(found, found.arena()), table.footnote(found)]
    costs: list[Part] = []
    megabytes = {row.path: row.typical("student", "bytes") / 1e6 for row in found.rows}
    for name, axis, x in (("bytes", "MB on disk", megabytes), ("time", "ms, batch 1", profiled(folders))):
        path = to / f"frontier-{name}.png"
        if said := draw_frontier(found, x, path, f"score against {name}", axis):
            costs += [picture(path), said]
    names = {id(row) for row in found.arena()}
    others = [row for row in found.rows if id(row) not in names]
    return {
        "The arena": arena,
        f"Failed or missing: {len(found.missing)}": table.missing(found, 100),
        "The kinds": [table.scores(found, others)] if others else [],
        "Score against cost": costs,
        "By class": [classes] if (classes := by_class(found)).rows else [],
        "By budget": [table.ladder(found)] if found.ladder else [],
        "Agreement with the teacher, and log loss": [table.fidelity(found)] if table.agrees(found) else [],
        "Planned contrasts": [table.contrasts(found)] if table.has_contrasts(found) else [],
        "Made with": made_with(found),
    }


def write(found: Table, folders: list[Path], to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True)
    text = pages.get_template("report.html").render(sections=sections(found, folders, to))
    (to / "index.html").write_text(text, encoding="utf-8")


def main(argv: list[str]) -> None:
    parser = Parser("report", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--to", type=Path, default=Path(DEFAULT), help=f"folder to write (default: {DEFAULT})")
    options = parser.parse_args(argv)
    folders = [folder_of(name) for name in options.results]
    write(load(folders, table.budget_of(options.results)), folders, options.to)
    print(f"written: {options.to / 'index.html'}")
