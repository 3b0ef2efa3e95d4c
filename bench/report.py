"""One page about a matrix of runs: the arena as a plot and a table, the kinds, score against size and time.

    python -m bench report quick             # runs/report/index.html
    python -m bench report runs/quick runs/more --to DIR
    python -m bench report bench/results/arena.jsonl.gz # also of what `python -m bench table --save` has kept

index.html is one file without anything from elsewhere; its tables are sorted by a click on a column, and a row leads to
the cards of its runs where these lie in a folder. Milliseconds are those of `python -m bench profile`, where it was run
for these results. `python -m bench figures arena` draws the first plot alone, for a page elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
import numpy as np

from bench import contrasts, plots, table
from bench.cli import Parser, reading
from bench.records import folder_of
from bench.rows import ROLES, Table, load, short, teacher_score
from common import results

FOLDER, DEFAULT = results.ROOT / "bench", "runs/report"
FOLDED = ("Failed or missing", "Agreement", "Differences by task", "Learning curves", "Made with", "The runs",
          "The rules")  # fmt: skip
Item = tuple[str, Any]  # a macro of report.html, and what it shows


# --- plots ---------------------------------------------------------------------------------------------------


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
    if draw_curves(found, to / "curves.svg"):
        drawn["curves.svg"] = (
            "What each row of the arena minimised, by step, with its first seed. Rows add different terms: read how a"
            " line falls, not how high it lies."
        )
    megabytes = {row.path: row.typical("student", "bytes") / 1e6 for row in found.rows}
    for name, axis, x in (("bytes", "MB on disk", megabytes), ("time", "ms, batch 1", profiled(folders))):
        if said := draw_frontier(found, x, to / f"frontier-{name}.svg", f"score against {name}", axis):
            drawn[f"frontier-{name}.svg"] = said
    return drawn


def draw_arena(found: Table, path: Path) -> bool:
    """A bar for each row of the arena, as SVG or PNG; whether there is one."""
    rows, bars, marked = found.arena(), list[plots.Bar](), dict[str, float]()
    for row in rows:
        if (mean := found.mean(row)) is not None:
            over = found.over(row, found.baseline(row, ROLES["kd"]), found.tasks).interval
            bars.append((row.label, mean.interval(), over and over.word))
            if row.role:
                marked.setdefault(row.role, 100 * mean.mean)
    if bars:
        axis = f"mean score over {', '.join(map(short, found.tasks))}, %"
        plots.arena(bars, marked, path, rows[0].kind, axis)
    return bool(bars)


def draw_ladder(found: Table, path: Path) -> bool:
    """Score by budget, a panel for each task and a line for each row of the arena; whether there is a ladder."""
    groups: dict[str, dict[str, plots.Line]] = {}
    marked = {}
    for task, record in found.tasks.items():
        for row in found.arena():
            rungs = {amount: 100 * fmean(values) for amount, values in found.rungs(row, task).items() if values}
            if rungs:
                groups.setdefault(short(task), {})[row.label] = list(rungs), list(rungs.values())
        if record["teacher"]["metrics"]:
            marked[short(task)] = 100 * teacher_score(record)
    return plots.panels(groups, path, "examples", "score, %", marked)


def draw_curves(found: Table, path: Path) -> bool:
    """The loss by step in a run's log, a panel for each task; whether any run is there with its log."""
    groups: dict[str, dict[str, plots.Line]] = {}
    for row in found.arena():
        for task, seeds in row.cells.items():
            log, logged = seeds[min(seeds)].folder / "log.jsonl", list[tuple[int, float]]()
            for line in log.read_text("utf-8").splitlines() if log.is_file() else ():
                step, loss = (json.loads(line).get(key) for key in ("step", "loss"))
                if loss is not None:  # of the last stage, which counts from 1 again
                    logged = [*(logged if logged and step > logged[-1][0] else []), (step, loss)]
            if len(logged) > 1:
                parts = [np.mean(part, 0) for part in np.array_split(logged, min(10, len(logged)))]
                xs, ys = np.array(parts).T.tolist()
                groups.setdefault(short(task), {})[row.label] = xs, ys
    return plots.panels(groups, path, "step", "loss")


def by_rate(trials: list[dict[str, Any]]) -> dict[float, float]:
    """A row's mean scores, in percent, by learning rate, in order: of the weight that was tried at most of them."""
    lines: dict[str, dict[float, float]] = {}  # by what else was given: a weight is tried at one rate alone
    for trial in trials:
        if trial["mean"] is not None and "lr" in trial["point"]:
            others = {key: value for key, value in trial["point"].items() if key != "lr"}
            lines.setdefault(str(others), {})[trial["point"]["lr"]] = 100 * trial["mean"]
    return dict(sorted(max(lines.values(), key=len, default={}).items()))


def draw_trials(rows: dict[str, Any], names: list[str], path: Path) -> bool:
    """Mean score by learning rate in the trials of `python -m bench sweep`, a panel for each row; whether any was
    tried at several rates. A loss that forgives a bad rate is flat; one that teaches more is higher at its best."""
    groups: dict[str, dict[str, plots.Line]] = {}
    for name in (name for name in names if name in rows):
        if len(means := by_rate(rows[name]["trials"])) > 1:
            groups[name] = {"": (list(means), list(means.values()))}
    return plots.panels(groups, path, "learning rate", "mean score on dev, %")


def draw_frontier(found: Table, x: dict[str, float], path: Path, title: str, axis: str) -> str | None:
    """Score against what a student costs, through the rows of the arena's start; what the plot shows."""
    means = {row.path: mean.mean for row in found.rows if (mean := found.mean(row)) is not None and row.path in x}
    if len({f"{x[name]:.3g}" for name in means}) < 2:  # all alike: nothing to choose between
        return None
    start, groups, joined = found.arena()[0].start, dict[str, list[plots.Point]](), set()
    for kind, rows in found.kinds().items():
        for row in rows:
            if row.path in means:
                name = kind if row.start == start else f"{kind}, from {row.start}"
                groups.setdefault(name, []).append((x[row.path], 100 * means[row.path], row.label))
                joined |= {name} if row.start == start else set()
    plots.pareto(groups, joined, path, title, axis, "mean score, %")
    others = sorted({row.start for row in found.rows if row.path in means and row.start != start})
    hollow = (
        f" Hollow: students that started from something else ({', '.join(others)}): not compared." if others else ""
    )
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


def rules() -> list[Item]:
    """bench/RULES.md without its title: headings, and lists whose items are a line each."""
    _, *blocks = (FOLDER / "RULES.md").read_text(encoding="utf-8").strip().split("\n\n")
    return [("items", [line.removeprefix("- ") for line in block.splitlines()]) if block.startswith("- ")
            else ("heading", block.removeprefix("## ")) for block in blocks]  # fmt: skip


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
        "By budget": [("grid", table.ladder(found))] if found.ladder else [],
        "Agreement with the teacher, and log loss":
            [("grid", table.fidelity(found))] if table.agrees(found) else [],
        "Planned contrasts": [("grid", contrasts.contrasts(found))] if contrasts.has_contrasts(found) else [],
        "Differences by task": [("grid", table.by_task(found))],
        "Learning curves": figures("curves"),
        "Made with": [("items", made_with(found))],
        "The runs": [("runs", runs(found, to))],
        "The rules": rules(),
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
