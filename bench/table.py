"""The tables of a matrix of runs, from its results alone.

    python -m bench table bench/arena.toml               # what `python -m bench run` left for this file, so far
    python -m bench table runs/quick runs/more           # or any folders with results, or files that --save has made
    python -m bench table bench/real.toml --markdown
    python -m bench table bench/arena.toml --save arena  # also keep them: bench/results/arena.jsonl.gz, predictions

Of a folder that `bench run` has filled, the cells of its last matrix are read, not what else lies there; of any other
folder all results. Rows stand under their student's kind: its shape, its bits where they are fewer than 32, and its
attention where it is not full. The kind with most rows, the arena, comes first. Scores are primary metrics in percent,
mean ± standard deviation over seeds. Differences are paired by seed and test item, with vanilla KD of the same kind,
start, teacher and batch size, and of those the most alike in other settings. Several budgets are a ladder: tables are
of the reported one, the file's or --budget, or else that with most results. bench/RULES.md has the rules. Results that
are not comparable are refused: other data or splits; settings that differ between seeds; two results for one cell. Exit
code 1: cells failed, or are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import matrix
from bench.cli import Parser
from bench.cli import markdown as markdown_table
from bench.contrasts import contrasts, has_contrasts, spread
from bench.records import file_named, folder_of, save
from bench.rows import ROLES, SPAN, Grid, Row, Table, cell, load, short, verdict
from bench.stats import Estimate, Interval
from common import evaluate, results
from common.args import BadInput

NEAR = 0.9  # of the teacher's score: when a row has come near it

# --- printing ------------------------------------------------------------------------------------------------


def grid(table: Table, header: list[str], cells: Callable[[Row], list[str]], rows: list[Row] | None = None) -> Grid:
    """A line for each row, or for some, under its kind."""
    wanted, lines = {id(row) for row in (table.rows if rows is None else rows)}, list[list[str]]()
    for kind, members in table.kinds().items():
        if members := [row for row in members if id(row) in wanted]:
            lines.append([f"{kind}: {sizes(members)}"])
            lines += [[row.label, row.start, *cells(row)] for row in members]
    return Grid(["student", "starts from", *header], lines)


def sizes(rows: list[Row]) -> str:
    """Parameters and bytes of students, from the smallest to the largest."""
    said = []
    for name, digits, unit in (("parameters", 2, "M parameters"), ("bytes", 2, " MB")):
        ends = sorted({f"{row.typical('student', name) / 1e6:.{digits}f}" for row in rows}, key=float)
        said.append("-".join(dict.fromkeys((ends[0], ends[-1]))) + unit)
    return ", ".join(said)


def score_cells(table: Table, row: Row) -> list[str]:
    cells = [cell(values) + " †" * bool(table.untrained(row, task)) if (values := row.values(task)) else "-"
             for task in table.tasks]  # fmt: skip
    return [*cells, mean_cell(table.mean(row))]


def difference_cell(table: Table, row: Row, wanted: Sequence[str]) -> str:
    """Over vanilla KD; of KD over the undistilled student, which is said."""
    role = ROLES["finetune"] if row.role == ROLES["kd"] else ROLES["kd"]
    other = None if row.role == ROLES["finetune"] else table.baseline(row, role)
    if other is None:
        return "-"
    part = f" (over {role})" * (row.role is not None) + " (of full attention)" * (other.kind != row.kind)
    found = table.over(row, other, wanted)
    marked = [task for task in wanted if table.untrained(row, task) or table.untrained(other, task)]
    if found is None:
        return "†" if marked else "-"
    part += f" ({len(found[1])} of {len(wanted)} tasks)" if len(found[1]) < len(wanted) else ""
    return verdict(found[0]) + part


def titles(table: Table) -> list[str]:
    return [f"{short(task)} {evaluate.TITLES[r['primary']['name']]}" for task, r in table.tasks.items()]


def scores(table: Table, rows: list[Row] | None = None) -> Grid:
    """The teachers; each row's scores by task, their mean, the area under its ladder, what it is over vanilla KD, and
    what it asked of the teacher."""
    with_area = ["area"] * bool(table.ladder)
    header = [*titles(table), "mean", *with_area, "over vanilla KD", "teacher examples", "script"]
    found = grid(table, header, lambda row: [
        *score_cells(table, row), *[percent(area(table, row)) for _ in with_area],
        difference_cell(table, row, list(table.tasks)), f"{row.typical('ledger', 'teacher_examples'):,.0f}", row.method,
    ], rows)  # fmt: skip
    return Grid(found.header, [*teacher_lines(table, len(found.header)), *found.rows])


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def by_task(table: Table) -> Grid:
    """Each row over vanilla KD of its kind, task by task."""
    header = [f"over vanilla KD, {short(task)}" for task in table.tasks]
    return grid(table, header, lambda row: [difference_cell(table, row, [task]) for task in table.tasks])


# --- the ladder ----------------------------------------------------------------------------------------------


def area(table: Table, row: Row) -> float | None:
    """The mean score over the ladder, by the trapezoid rule over the logarithm of the examples, mean over tasks; None
    where a budget is missing."""
    rungs = [table.rungs(row, task) for task in table.tasks]
    if not all(all(some.values()) for some in rungs):
        return None
    x = np.log2(list(table.ladder))
    means = np.mean([[np.mean(values) for values in some.values()] for some in rungs], axis=0)
    return float(np.trapezoid(means, x) / (x[-1] - x[0]))


def near(table: Table, row: Row, task: str) -> str:
    """Between which budgets a row comes to `NEAR` of the teacher's score."""
    name, teacher = table.tasks[task]["primary"]["name"], table.tasks[task]["teacher"]
    wanted = NEAR * float(np.mean([split[name] for split in teacher["metrics"].values()]))
    before = None
    for amount, values in table.rungs(row, task).items():
        if values and np.mean(values) >= wanted:
            return f"at most {amount:,}" if before is None else f"{before:,} to {amount:,}"
        before = amount if values else before
    return "-" if before is None else f"more than {before:,}"


def ladder(table: Table) -> Grid:
    """The mean over tasks at each budget, the area under it, and the examples to `NEAR` of the teacher."""
    header = [*(f"{amount:,}" for amount in table.ladder), "area",
              *(f"examples to {100 * NEAR:.0f}% of the teacher, {short(task)}" for task in table.tasks)]  # fmt: skip

    def cells(row: Row) -> list[str]:
        rungs = [table.rungs(row, task) for task in table.tasks]
        means = [np.mean([np.mean(some[amount]) for some in rungs]) if all(some[amount] for some in rungs) else None
                 for amount in table.ladder]  # fmt: skip
        return [*(percent(mean and float(mean)) for mean in means), percent(area(table, row)),
                *(near(table, row, task) for task in table.tasks)]  # fmt: skip

    return grid(table, header, cells)


def agrees(table: Table) -> bool:
    """Whether results say how far students agree with their teacher."""
    return any(record.get("agreement") for row in table.rows for record in row.all())


def fidelity(table: Table) -> Grid:
    """Agreement with the teacher, and log loss, by task: means over seeds."""

    def mean(row: Row, task: str, key: str) -> float | None:
        found = [v for record in row.records.get(task, {}).values() for v in (record.get(key) or {}).values()]
        return float(np.mean(found)) if found else None

    def cells(row: Row) -> list[str]:
        losses = [mean(row, task, "log_loss") for task in table.tasks]
        shown = ["-" if loss is None else f"{loss:.3f}" for loss in losses]
        agreements = [percent(mean(row, task, "agreement")) for task in table.tasks]
        return [text for both in zip(agreements, shown, strict=True) for text in both]

    header = [f"{short(task)}, {what}" for task in table.tasks for what in ("agreement", "log loss")]
    return grid(table, header, cells)


# --- the page ------------------------------------------------------------------------------------------------


def teacher_lines(table: Table, width: int) -> list[list[str]]:
    names, lines = {task: record["primary"]["name"] for task, record in table.tasks.items()}, []
    for name, found_on in table.teachers().items():
        values = {t: np.mean([split[names[t]] for split in found["metrics"].values()])
                  for t, found in found_on.items() if found["metrics"]}  # fmt: skip
        cells = [f"{100 * values[task]:.1f}" if task in values else "-" for task in table.tasks]
        mean = f"{100 * np.mean(list(values.values())):.1f}" if len(values) == len(table.tasks) else "-"
        first = next(iter(found_on.values()))
        size = f"{first['parameters'] / 1e6:.2f}M parameters, {first['bytes'] / 1e6:.2f} MB"
        line = [f"teacher {Path(name).name}", size, *cells, mean]
        lines.append([*line, *["-"] * (width - len(line))])
    return lines


def mean_cell(found: Interval | Estimate | None) -> str:
    if found is None:
        return "-"
    found = found.interval() if isinstance(found, Estimate) else found
    ends = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.mean:.1f}{ends}"


def partial(table: Table) -> str:
    """How much of a matrix is there, where some is missing: cells, and the seeds that all rows have."""
    if not table.missing:
        return ""
    there = sum(len(row.cells) for found in table.ladder.values() or [table] for row in found.rows)
    seeds = [set(row.records.get(task, {})) for row in table.rows for task in table.tasks]
    every, whole = set.union(*seeds), set.intersection(*seeds)
    return (f"Partial: {there} of {there + len(table.missing)} cells are there; at this budget every row has"
            f" {len(whole)} of {len(every)} seeds.")  # fmt: skip


def how(table: Table) -> str:
    """What all rows share, in a paragraph."""
    seeds = ", ".join(map(str, sorted({record["seed"] for row in table.rows for record in row.all()})))
    teachers = ", ".join(Path(name).name for name in table.teachers())
    budgets = {t: f"{r['budget']['amount']:,} {r['budget']['kind']}" for t, r in table.tasks.items()}
    budget = ", ".join(f"{short(task)} {text}" for task, text in budgets.items())
    budget = budget if len(set(budgets.values())) > 1 else next(iter(budgets.values()))
    counted = [row.influence(*next(iter(row.cells))) is not None for row in table.rows]
    over = "seeds and test items" if all(counted) else "seeds alone" if not any(counted) else "seeds, and items if kept"
    return " ".join(filter(None, [
        partial(table),
        f"Tasks: {', '.join(map(short, table.tasks))}. Seeds: {seeds}. Budget: {budget} through each student."
        f" Teacher: {teachers}. Scores are in percent, mean ± standard deviation over seeds; means over tasks and"
        f" differences with 95% intervals over {over}, differences in points and paired, with the student of the same"
        " kind and start.",
        spread(table),
    ]))  # fmt: skip


def footnote(table: Table) -> str:
    """What the mark at a score means, if there is one."""
    marked = any(table.untrained(row, task) for row in table.rows for task in table.tasks)
    return (
        f"† The seeds span a step (standard deviation above {100 * SPAN:.0f} points), or the cell stands before one:"
        " above guessing it has less than half of what its best budget reaches, or next to nothing. It decides nothing:"
        " differences are over the other tasks."
    ) * marked


def plain(grid: Grid) -> str:
    """Aligned for a terminal: scores, and below them the columns from the first difference on."""
    at = next((i for i, name in enumerate(grid.header) if name.startswith("over ")), len(grid.header))
    parts = [range(at), [0, 1, *range(at, len(grid.header))]][: 1 + (at < len(grid.header))]
    return "\n\n".join(block(grid, part) for part in parts)


def block(grid: Grid, columns: Sequence[int]) -> str:
    """Some columns, aligned; a kind's heading on a line of its own, and no line that says nothing."""
    rows = [row if len(row) == 1 else [row[i] for i in columns] for row in grid.rows]
    rows = [row for row in rows if len(row) == 1 or {*row[2:]} != {"-"}]
    blank = [""] * len(columns)
    header = [grid.header[i] for i in columns]
    lines = results.columns([blank if len(row) == 1 else row for row in rows], header).splitlines()
    return "\n".join(
        lines[:2] + [f"[{row[0]}]" if len(row) == 1 else line for row, line in zip(rows, lines[2:], strict=True)]
    )


def missing(table: Table, most: int = 12) -> list[str]:
    """What is missing, one line a cell; of many the count."""
    lines = table.missing[:most]
    return [*lines, f"and {len(table.missing) - most} more"] if len(table.missing) > most else lines


def markdown(table: Table) -> str:
    parts = [how(table), markdown_table(*scores(table)), footnote(table)]
    if table.missing:
        parts.append("Failed or missing:\n\n" + "\n".join(f"- {line}" for line in missing(table)))
    return "\n\n".join(filter(None, parts))


def budget_of(names: Sequence[str]) -> int | None:
    """The budget that the files of matrices report, the first of several, where they agree on a number of examples."""
    files = [matrix.read_file(Path(name)) for name in names if name.endswith(".toml")]
    said = {str((file.get("budgets") or [file.get("budget")])[0]) for file in files}
    return int(said.pop()) if len(said) == 1 and next(iter(said)).isdecimal() else None


def main(argv: list[str]) -> None:
    parser = Parser("table", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--budget", type=int, help="examples: which budget of a ladder (default: that of the file)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "--save", metavar="NAME", help="keep the results as bench/results/NAME.jsonl.gz, and predictions"
    )
    options = parser.parse_args(argv)
    sources = [folder_of(name) for name in options.results]
    table = load(sources, options.budget or budget_of(options.results))
    if options.budget not in (None, *(record["budget"]["amount"] for record in table.tasks.values())):
        raise BadInput(f"--budget {options.budget}: the results have {', '.join(map(str, table.ladder))} examples")
    if options.markdown:
        print(markdown(table))
    else:
        parts = [how(table), plain(scores(table)), footnote(table)]
        parts += [plain(ladder(table))] if table.ladder else []
        parts += [plain(contrasts(table))] if has_contrasts(table) else []
        print("\n\n".join(filter(None, parts)))
        for line in missing(table):
            print(f"failed or missing: {line}")
    if options.save:
        path = file_named(options.save)
        save(sources, path, {t: r["budget"]["amount"] for t, r in table.tasks.items()})
        print(f"saved: {path}")
    if table.missing:
        raise SystemExit(1)
