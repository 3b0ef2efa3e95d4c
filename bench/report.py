"""One page about a matrix of runs: the arena as a plot and a table, the kinds, score against size and time.

    python -m bench report bench/quick.toml             # runs/report/index.html
    python -m bench report runs/quick runs/more --to DIR
    python -m bench report bench/results/arena.json     # also of what `python -m bench table --save` has kept

index.html is one file without anything from elsewhere; its tables are sorted by a click on a column. Milliseconds are
those of `python -m bench profile`, where it was run for these results. `python -m bench figures arena` draws the first
plot alone, for a page elsewhere.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import plots, table
from bench.cli import Parser, reading
from bench.table import ROLES, Grid, Table
from common import results

RULES = results.ROOT / "bench" / "RULES.md"
DEFAULT = "runs/report"
FOLDED = ("Failed or missing", "Agreement", "Differences by task", "Made with", "Signatures", "The rules")


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
            over = found.difference(row, ROLES["kd"], found.tasks)
            ends = [None if end is None else 100 * end for end in mean.interval()]
            bars.append(
                plots.Bar(row.label, 100 * mean.mean, ends[1], ends[2], over[0].interval().word if over else None)
            )
            if row.role:
                marked.setdefault(row.role, 100 * mean.mean)
    if bars:
        axis = f"mean score over {', '.join(map(table.short, found.tasks))}, %"
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
                groups.setdefault(table.short(task), {})[row.label] = list(rungs), list(rungs.values())
        name = record["primary"]["name"]
        marked[table.short(task)] = 100 * fmean(split[name] for split in record["teacher"]["metrics"].values())
    if groups:
        plots.panels(groups, path, "examples", "score, %", marked)
    return bool(groups)


def draw_trials(rows: dict[str, Any], names: list[str], path: Path) -> bool:
    """Mean score by learning rate in the trials of `python -m bench sweep`, a panel for each row; whether any was
    tried at several rates. A loss that forgives a bad rate is flat; one that teaches more is higher at its best."""
    groups: dict[str, dict[str, plots.Line]] = {}
    for name in (name for name in names if name in rows):
        lines: dict[str, dict[float, float]] = {}  # by what else was given: a weight is tried at one rate alone
        for trial in rows[name]["trials"]:
            if trial["mean"] is not None and "lr" in trial["point"]:
                others = {key: value for key, value in trial["point"].items() if key != "lr"}
                lines.setdefault(str(others), {})[trial["point"]["lr"]] = 100 * trial["mean"]
        means = max(lines.values(), key=len, default={})
        if len(means) > 1:
            groups[name] = {"": (sorted(means), [means[rate] for rate in sorted(means)])}
    if groups:
        plots.panels(groups, path, "learning rate", "mean score on dev, %")
    return bool(groups)


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


def summary(found: Table) -> str:
    """What was compared, in a paragraph."""
    rows = found.arena()
    budgets = sorted({f"{r['budget']['amount']:,} {r['budget']['kind']}" for row in rows for r in row.all()})
    others = len(found.rows) - len(rows)
    more = f" {others} more rows of other kinds, or from another start, stand below." if others else ""
    return (
        f"The arena: {len(rows)} ways to train one {rows[0].kind} ({table.sizes(rows)}). Every student starts from"
        f" {rows[0].start} and sees {' or '.join(budgets)} of a task, in one order for a seed. The signatures below"
        f" name all settings.{more}"
    )


def made_with(found: Table) -> list[str]:
    """The machines, versions and commits of the results; several of one sort are all named."""
    environments = [record["environment"] for row in found.rows for record in row.all()]
    named = {
        "Device": [f"{e['hardware']['device']}, {e['hardware']['threads']} threads" for e in environments],
        **{name: [e["versions"][name] for e in environments] for name in ("python", "torch", "transformers")},
        "Commit": [
            (e["git"]["commit"] or "none")[:10] + " and changes" * bool(e["git"]["dirty"]) for e in environments
        ],
    }
    return [f"{name}: {', '.join(sorted(set(values)))}" for name, values in named.items()]


def signatures(found: Table) -> list[str]:
    """Of each row and task that of the first seed: the others differ in the seed alone."""
    rows = [row for members in found.kinds().values() for row in members]
    return [f"{row.method} {row.variant}, {table.short(task)}: {seeds[min(seeds)]['signature']}"
            for row in rows for task, seeds in row.records.items()]  # fmt: skip


# --- HTML ----------------------------------------------------------------------------------------------------

TITLE = "Distillation under one budget"

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 76rem; }
.scroll { overflow-x: auto; }
table { border-spacing: 0; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.higher { color: #2a9d4f; } .lower { color: #e0503f; }
figure { margin: 1rem 0; } figure svg { width: min(100%, 36rem); height: auto; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2, summary { font-size: 1.25rem; margin: 1.2em 0 .4em; }
summary { cursor: pointer; font-weight: bold; } .kind th { font-weight: bold; white-space: normal; }
@media (max-width: 40rem) {
  th, td { padding: .3rem .4rem; }
  :is(th, td):is(:first-child, :nth-child(2)) { white-space: normal; min-width: 5rem; }
  td:nth-child(2) { font-size: .75rem; }
}
"""

# Rows of one kind stay together: each kind is a body of its own.
SCRIPT = """
const value = cell => { const t = cell.textContent.trim(), n = parseFloat(t); return Number.isNaN(n) ? t : n; };
document.querySelectorAll("thead th").forEach(th => th.querySelector("button").addEventListener("click", () => {
  const column = th.cellIndex, table = th.closest("table");
  const up = th.getAttribute("aria-sort") === "descending";
  table.querySelectorAll("thead th").forEach(other => other.removeAttribute("aria-sort"));
  th.setAttribute("aria-sort", up ? "ascending" : "descending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter(row => !row.classList.contains("kind"));
    const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "string" ? -1 : 1;
    rows.sort((a, b) => (up ? 1 : -1) * order(value(a.cells[column]), value(b.cells[column])));
    body.append(...rows);
  }
}));
"""


def html_grid(grid: Grid) -> str:
    """A table whose columns sort; a body for each kind."""
    head = "".join(f'<th scope="col"><button>{html.escape(name)}</button></th>' for name in grid.header)
    bodies: list[list[str]] = [[]]
    for row in grid.rows:
        if len(row) == 1:
            heading = f'<th scope="rowgroup" colspan="{len(grid.header)}">{html.escape(row[0])}</th>'
            bodies.append([f'<tr class="kind">{heading}</tr>'])
            continue
        cells = []
        for text in row:
            said = text.split(" (")[0].rsplit(", ", 1)[-1]
            mark = f' class="{said}"' if said in ("higher", "lower") else ""
            shown = html.escape(text).replace("], ", "]<br>")  # the verdict below its figures
            cells.append(f"<td{mark}>{shown}</td>")
        bodies[-1].append(f"<tr>{''.join(cells)}</tr>")
    text = "\n".join(f"<tbody>{''.join(body)}</tbody>" for body in bodies if body)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n{text}</table></div>'


def html_list(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def html_text(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def rules() -> str:
    """bench/RULES.md without its title: headings, and lists whose items are a line each."""
    _, *blocks = RULES.read_text(encoding="utf-8").strip().split("\n\n")
    return "\n".join(
        html_list([line.removeprefix("- ") for line in block.splitlines()]) if block.startswith("- ")
        else f"<h3>{html.escape(block.removeprefix('## '))}</h3>"
        for block in blocks
    )  # fmt: skip


def sections(found: Table, drawn: dict[str, str], to: Path) -> dict[str, list[str]]:
    """Heading -> its parts; the plots are in `to`."""

    def plots(start: str) -> list[str]:
        parts = []
        for name, said in drawn.items():
            if name.startswith(start):
                svg = (to / name).read_text(encoding="utf-8")
                parts += [f"<figure>{svg[svg.index('<svg') :]}</figure>", html_text(said)]
        return parts

    arena = {id(row) for row in found.arena()}
    others = [row for row in found.rows if id(row) not in arena]
    footnote = table.footnote(found)
    parts = {
        "The arena": [html_text(summary(found)), *plots("arena"), html_grid(table.scores(found, found.arena())),
                      *[html_text(footnote)] * bool(footnote), html_text(table.how(found))],
        f"Failed or missing: {len(found.missing)}": [html_list(table.missing(found, 100))] if found.missing else [],
        "The kinds": [html_grid(table.scores(found, others))] if others else [],
        "Score against cost": plots("frontier"),
        "By budget": [html_grid(table.ladder(found))] if found.ladder else [],
        "Agreement with the teacher, and log loss": [html_grid(table.fidelity(found))] if table.agrees(found) else [],
        "Planned contrasts": [html_grid(table.contrasts(found))] if table.has_contrasts(found) else [],
        "Differences by task": [html_grid(table.by_task(found))],
        "Made with": [html_list(made_with(found))],
        "Signatures": [html_list(signatures(found))],
        "The rules": [rules()],
    }  # fmt: skip
    return {heading: items for heading, items in parts.items() if items}


def page(found: Table, drawn: dict[str, str], to: Path) -> str:
    """The whole page; its plots are in `to`."""
    content = []
    for heading, items in sections(found, drawn, to).items():
        text = "\n".join(items)
        folded = f"<details><summary>{heading}</summary>\n{text}</details>"
        content.append(folded if heading.startswith(FOLDED) else f"<section><h2>{heading}</h2>\n{text}</section>")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{TITLE}</h1>
{"".join(content)}
<script>{SCRIPT}</script>
</body>
</html>
"""


def write(found: Table, folders: list[Path], to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    drawn = draw(found, folders, to)
    (to / "index.html").write_text(page(found, drawn, to), encoding="utf-8")


def main(argv: list[str]) -> None:
    parser = Parser("report", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--to", type=Path, default=Path(DEFAULT), help=f"folder to write (default: {DEFAULT})")
    options = parser.parse_args(argv)
    folders = [table.folder_of(name) for name in options.results]
    found = table.load(folders)
    write(found, folders, options.to)
    print(f"written: {options.to / 'index.html'}")
