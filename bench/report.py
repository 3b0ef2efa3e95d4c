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
import re
from collections.abc import Callable
from pathlib import Path

from bench import figures, table
from bench.cli import Parser
from bench.cli import markdown as markdown_table
from bench.table import Grid, Row, Table
from common import results

RULES = results.ROOT / "bench" / "RULES.md"
DEFAULT = "runs/report"


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


# --- Markdown ------------------------------------------------------------------------------------------------


def made_with(found: Table) -> list[str]:
    """The machines, versions and commits of the results; several of one sort are all named."""
    environments = [record["environment"] for row in found.rows for record in row.all()]

    def distinct(values: list[str]) -> str:
        return ", ".join(sorted(set(values)))

    names = ("python", "torch", "transformers")
    return [
        "Device: " + distinct([f"{e['hardware']['device']}, {e['hardware']['threads']} threads" for e in environments]),
        *(f"{name}: " + distinct([e["versions"][name] for e in environments]) for name in names),
        "Commit: " + distinct([f"{(e['git']['commit'] or 'none')[:10]}{' and changes' if e['git']['dirty'] else ''}"
                               for e in environments]),
    ]  # fmt: skip


def signatures(found: Table) -> list[tuple[str, str]]:
    """(row and task, signature of its first seed): all seeds of a row have the same but for the seed."""
    rows = [row for members in found.kinds().values() for row in members]
    return [(f"{row.method} {row.variant}, {table.short(task)}", seeds[min(seeds)]["signature"])
            for row in rows for task, seeds in row.records.items()]  # fmt: skip


def markdown(found: Table, images: list[str]) -> str:
    parts = ["# Results", table.markdown(found)]
    parts += ["## Differences by task", markdown_table(*table.differences(found, by_task=True))]
    parts += [f"![{Path(name).stem}]({name})" for name in images]
    parts += ["## Made with", "\n".join(f"- {line}" for line in made_with(found))]
    parts += ["## Signatures", "\n".join(f"- {name}: `{text}`" for name, text in signatures(found))]
    rules = RULES.read_text(encoding="utf-8").strip()
    parts.append(re.sub(r"^#", "##", rules, flags=re.MULTILINE))
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
pre { white-space: pre-wrap; } code { overflow-wrap: anywhere; }
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
    svgs = "".join(f"<figure>{text[text.index('<svg') :]}</figure>" for text in drawings)
    missing = "".join(f"<li>{html.escape(line)}</li>" for line in found.missing)
    failed = f"<h2>Failed or missing</h2><ul>{missing}</ul>" if missing else ""
    signed = "".join(f"<li>{html.escape(n)}: <code>{html.escape(s)}</code></li>" for n, s in signatures(found))
    made = "".join(f"<li>{html.escape(line)}</li>" for line in made_with(found))
    rules = html.escape(RULES.read_text(encoding="utf-8"))
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
<p>{html.escape(table.how(found))}</p>
{failed}
<h2>Scores</h2>
{html_grid(table.scores(found))}
<h2>Differences, mean over tasks</h2>
{html_grid(table.differences(found))}
<details><summary>By task</summary>
{html_grid(table.differences(found, by_task=True))}
</details>
<h2>Score against size and time</h2>
<p>Each point is a row of the table; the line joins those that no other beats.</p>
<div class="plots">{svgs}</div>
<h2>The rules</h2>
<details><summary>of every table</summary><pre>{rules}</pre></details>
<h2>Made with</h2>
<ul>{made}</ul>
<h2>Signatures</h2>
<details><summary>{len(signatures(found))} signatures</summary><ul>{signed}</ul></details>
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
