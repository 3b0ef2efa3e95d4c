"""One page about a matrix of runs: tables, plots, the rules, the signatures, what failed.

    python -m bench report bench/quick.toml             # runs/report/RESULTS.md and runs/report/index.html
    python -m bench report runs/quick runs/more --to DIR

index.html is one file without anything from elsewhere; its tables are sorted by a click on a column. The time per
example is of `python -m bench profile` where it was run for these results, and otherwise as measured while they were
evaluated, each at its own time.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

from bench import figures, table
from bench.cli import Parser
from bench.cli import markdown as markdown_table
from bench.table import Grid, Row, Table
from common import results

RULES = results.ROOT / "bench" / "RULES.md"
DEFAULT = "runs/report"
FOLDED = ("Differences by task", "Signatures", "The rules")


# --- plots ---------------------------------------------------------------------------------------------------


def profiled(folders: list[Path]) -> dict[str, float]:
    """Path of a row -> milliseconds at batch 1, of `python -m bench profile`."""
    found: dict[str, float] = {}
    for path in (folder / "profile.json" for folder in folders):
        if path.is_file():
            report = json.loads(path.read_text(encoding="utf-8"))
            found |= {row["row"]: row["milliseconds"]["1"] for row in report["rows"]}
    return found


def draw(found: Table, folders: list[Path], to: Path) -> list[str]:
    """The plots of score against bytes and against time, as SVG files; their names."""
    means = {row.path: mean for row in found.rows if (mean := found.mean(row)) is not None}
    if not means:
        return []
    latency = profiled(folders)
    speed: tuple[str, Callable[[Row], float]]
    if means.keys() <= latency.keys():
        speed = "latency at batch 1, ms", lambda row: latency[row.path]
    else:
        speed = "ms per example, as evaluated", lambda row: 1000 / row.typical("student", "speed")
    plots: dict[str, tuple[str, str, Callable[[Row], float]]] = {
        "pareto-bytes.svg": ("score against size", "MB on disk", lambda row: row.typical("student", "bytes") / 1e6),
        "pareto-time.svg": ("score against time", *speed),
    }
    for name, (title, axis, x) in plots.items():
        groups = {
            kind: [(x(row), 100 * means[row.path].mean, row.label) for row in rows if row.path in means]
            for kind, rows in found.kinds().items()
        }
        groups = {kind: points for kind, points in groups.items() if points}
        figures.pareto(groups, to / name, title, axis, "mean score, %")
    return list(plots)


# --- what both pages hold ------------------------------------------------------------------------------------


def made_with(found: Table) -> list[str]:
    """The machines, versions and commits of the results; several of one sort are all named."""
    environments = [record["environment"] for row in found.rows for record in row.all()]
    named = {
        "Device": [f"{e['hardware']['device']}, {e['hardware']['threads']} threads" for e in environments],
        **{name: [e["versions"][name] for e in environments] for name in ("python", "torch", "transformers")},
        "Commit": [(e["git"]["commit"] or "none")[:10] + " and changes" * e["git"]["dirty"] for e in environments],
    }
    return [f"{name}: {', '.join(sorted(set(values)))}" for name, values in named.items()]


def signatures(found: Table) -> list[str]:
    """Of each row and task that of the first seed: the others differ in the seed alone."""
    rows = [row for members in found.kinds().values() for row in members]
    return [f"{row.method} {row.variant}, {table.short(task)}: {seeds[min(seeds)]['signature']}"
            for row in rows for task, seeds in row.records.items()]  # fmt: skip


def sections(found: Table) -> dict[str, Grid | list[str] | str]:
    """Heading -> a table, a list, or a text in Markdown."""
    parts: dict[str, Grid | list[str] | str] = {
        "How": table.how(found),
        "Scores": table.scores(found),
        "Differences, mean over tasks": table.differences(found),
        "Differences by task": table.differences(found, by_task=True),
        "Failed or missing": found.missing,
        "Made with": made_with(found),
        "Signatures": signatures(found),
        "The rules": RULES.read_text(encoding="utf-8").partition("\n")[2].strip(),
    }
    return {heading: part for heading, part in parts.items() if part}


def markdown(found: Table, images: list[str]) -> str:
    parts = ["# Results", *(f"![{Path(name).stem}]({name})" for name in images)]
    for heading, part in sections(found).items():
        text = markdown_table(*part) if isinstance(part, Grid) else part
        text = "\n".join(f"- {line}" for line in text) if isinstance(text, list) else text.replace("\n## ", "\n### ")
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


# --- HTML ----------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 76rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.higher { color: #2a9d4f; } .lower { color: #e0503f; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } .plots svg { max-width: 100%; height: auto; }
summary { font-size: 1.3em; margin: .8em 0 .3em; cursor: pointer; } li { overflow-wrap: anywhere; }
pre { font: inherit; white-space: pre-wrap; }
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
            cells.append(f"<td{mark}>{html.escape(text)}</td>")
        bodies[-1].append(f"<tr>{''.join(cells)}</tr>")
    text = "\n".join(f"<tbody>{''.join(body)}</tbody>" for body in bodies if body)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n{text}</table></div>'


def page(found: Table, drawings: list[str]) -> str:
    """The whole page. `drawings`: SVG texts."""
    parts = []
    for heading, part in sections(found).items():
        if isinstance(part, Grid):
            text = html_grid(part)
        elif isinstance(part, list):
            text = f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in part)}</ul>"
        else:
            text = f"<pre>{html.escape(part)}</pre>"
        parts.append(f"<details{' open' * (heading not in FOLDED)}><summary>{heading}</summary>{text}</details>")
    svgs = "".join(text[text.index("<svg") :] for text in drawings)
    content = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Five papers on distillation, one budget</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Five papers on distillation, one budget</h1>
{content}
<p>Each point is a row of the table; the line joins those that no other beats.</p>
<div class="plots">{svgs}</div>
<script>{SCRIPT}</script>
</body>
</html>
"""


def write(found: Table, folders: list[Path], to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    images = draw(found, folders, to)
    (to / "RESULTS.md").write_text(markdown(found, images), encoding="utf-8")
    drawings = [(to / name).read_text(encoding="utf-8") for name in images]
    (to / "index.html").write_text(page(found, drawings), encoding="utf-8")


def main(argv: list[str]) -> None:
    parser = Parser("report", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, or folders with results")
    parser.add_argument("--to", type=Path, default=Path(DEFAULT), help=f"folder to write (default: {DEFAULT})")
    options = parser.parse_args(argv)
    folders = [table.folder_of(name) for name in options.results]
    found = table.load(folders)
    write(found, folders, options.to)
    print(f"written: {options.to / 'RESULTS.md'}, {options.to / 'index.html'}")
