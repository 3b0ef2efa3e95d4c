"""The tables of a matrix of runs, from its results alone.

    python -m bench table arena               # what `python -m bench run` left for this file, so far
    python -m bench table runs/quick runs/more           # or any folders with results, or files that --save has made
    python -m bench table arena --save arena  # also keep them: bench/results/arena.jsonl.gz, predictions

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
from bench.cli import FOLDER, Parser
from bench.contrasts import contrasts, has_contrasts, spread
from bench.grid import Grid
from bench.records import KEPT, folder_of, save
from bench.rows import ROLES, SPAN, Row, Table, load, short, teacher_score
from bench.stats import Interval
from common import evaluate
from common.args import BadInput

NEAR = 0.9  # of the teacher's score: when a row has come near it


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


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def mean_cell(found: Interval | None) -> str:
    return "-" if found is None else found.text(".1f").removesuffix(" (one seed)")


def difference_cell(table: Table, row: Row, wanted: Sequence[str]) -> str:
    """Over vanilla KD; of KD over the undistilled student, which is said."""
    role = ROLES["finetune"] if row.role == ROLES["kd"] else ROLES["kd"]
    other = None if row.role == ROLES["finetune"] else table.baseline(row, role)
    if other is None:
        return "-"
    found = table.over(row, other, wanted)
    if found.found is None:
        return "†" if any(table.untrained(one, task) for one in (row, other) for task in wanted) else "-"
    part = f" (over {role})" * (row.role is not None)
    part += " (of full attention)" * (row.kind != other.kind == row.full)
    part += f" (mean of {len(found.tasks)} of {len(wanted)} tasks)" * (len(found.tasks) < len(wanted))
    return found.verdict + part


def scores(table: Table, rows: list[Row] | None = None) -> Grid:
    """The teachers; each row's scores by task, their mean, the area under its ladder, what it is over vanilla KD, and
    what it asked of the teacher."""
    with_area = ["area"] * bool(table.ladder)
    with_rows = ["labelled rows"] * bool(table.linear())
    titles = [f"{short(task)} {evaluate.TITLES[r['primary']['name']]}" for task, r in table.tasks.items()]
    header = [*titles, "mean", *with_area, "over vanilla KD", *with_rows, "teacher examples", "script"]

    def cells(row: Row) -> list[str]:
        found = [table.scored(row, task) if row.values(task) else "-" for task in table.tasks]
        mean = table.mean(row)
        found += [mean_cell(mean and mean.interval()), *[percent(area(table, row)) for _ in with_area]]
        asked = f"{row.typical('ledger', 'teacher_examples'):,.0f}"
        seen = [table.labelled(row) for _ in with_rows]
        return [*found, difference_cell(table, row, list(table.tasks)), *seen, asked, row.method]

    found = grid(table, header, cells, rows)
    return Grid(found.header, [*teacher_lines(table, len(found.header)), *found.rows])


def teacher_lines(table: Table, width: int) -> list[list[str]]:
    lines = []
    for name, found_on in table.teachers().items():
        values = {task: teacher_score({"primary": table.tasks[task]["primary"], "teacher": found})
                  for task, found in found_on.items() if found["metrics"]}  # fmt: skip
        cells = [percent(values.get(task)) for task in table.tasks]
        mean = percent(float(np.mean(list(values.values()))) if len(values) == len(table.tasks) else None)
        first = next(iter(found_on.values()))
        size = f"{first['parameters'] / 1e6:.2f}M parameters, {first['bytes'] / 1e6:.2f} MB"
        line = [f"teacher {Path(name).name}", size, *cells, mean]
        lines.append([*line, *["-"] * (width - len(line))])
    return lines


def by_task(table: Table) -> Grid:
    """Each row over vanilla KD of its kind, task by task."""
    header = [f"over vanilla KD, {short(task)}" for task in table.tasks]
    return grid(table, header, lambda row: [difference_cell(table, row, [task]) for task in table.tasks])


def agrees(table: Table) -> bool:
    """Whether results say how far students agree with their teacher."""
    return any(record.get("agreement") for row in table.rows for record in row.records())


def fidelity(table: Table) -> Grid:
    """Agreement with the teacher, and log loss, by task: means over seeds."""

    def mean(row: Row, task: str, key: str) -> float | None:
        found = [value for record in row.records(task) for value in (record.get(key) or {}).values()]
        return float(np.mean(found)) if found else None

    def cells(row: Row) -> list[str]:
        found = []
        for task in table.tasks:
            loss = mean(row, task, "log_loss")
            found += [percent(mean(row, task, "agreement")), "-" if loss is None else f"{loss:.3f}"]
        return found

    header = [f"{short(task)}, {what}" for task in table.tasks for what in ("agreement", "log loss")]
    return grid(table, header, cells)


# --- the ladder ----------------------------------------------------------------------------------------------


def climb(table: Table, row: Row) -> list[float | None]:
    """The mean over tasks at each budget; None where a task is missing."""
    rungs = [table.rungs(row, task) for task in table.tasks]
    levels = [[some[amount] for some in rungs] for amount in table.ladder]
    return [float(np.mean([np.mean(values) for values in level])) if all(level) else None for level in levels]


def area(table: Table, row: Row) -> float | None:
    """The mean score over the ladder, by the trapezoid rule over the logarithm of the examples; None where a budget is
    missing."""
    means, x = climb(table, row), np.log2(list(table.ladder))
    return None if None in means else float(np.trapezoid(np.array(means, float), x) / (x[-1] - x[0]))


def near(table: Table, row: Row, task: str) -> str:
    """Between which budgets a row comes to `NEAR` of the teacher's score, if that is known."""
    if not table.tasks[task]["teacher"]["metrics"]:
        return "-"
    wanted, before = NEAR * teacher_score(table.tasks[task]), None
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
        means = []
        for found, mean in zip(table.ladder.values(), climb(table, row), strict=True):
            other = found.same(row)
            marked = other and any(found.untrained(other, task) for task in found.tasks)
            means.append(percent(mean) + " †" * bool(marked))
        return [*means, percent(area(table, row)), *(near(table, row, task) for task in table.tasks)]

    return grid(table, header, cells)


# --- what stands around them ---------------------------------------------------------------------------------


def remarks(table: Table) -> str:
    """What a table lacks, and tasks whose rows had teachers that are alike in their settings alone."""
    lines = [partial(table)] * bool(table.missing)
    scored: dict[tuple[str, str], set[str]] = {}
    for record in (record for row in table.rows for record in row.records()):
        if record["teacher"]["metrics"]:  # outputs in a file may have no score
            known = scored.setdefault((record["task"], record["teacher"]["signature"]), set())
            known.add(f"{100 * teacher_score(record):.2f}")
    for (task, _), values in scored.items():
        if len(values) > 1:
            lines.append(f"{short(task)}: its teacher was fine-tuned more than once, on unlike processors, to"
                         f" {' and '.join(sorted(values))}; its rows differ in that, too.")  # fmt: skip
    return " ".join(lines)


def partial(table: Table) -> str:
    """How much of a matrix is there: cells, and the seeds that all rows have."""
    every = [row for found in table.ladder.values() or [table] for row in found.rows]
    there = sum(len(row.records()) for row in every)
    seeds = [set(cells) for row in table.rows for cells in row.cells.values()]
    return (f"Partial: {there} of {there + len(table.missing)} cells are there; at this budget every row has,"
            f" of its tasks, {len(set.intersection(*seeds))} of {len(set.union(*seeds))} seeds.")  # fmt: skip


def how(table: Table) -> str:
    """What all rows share, in a paragraph."""
    seeds = ", ".join(map(str, sorted({record["seed"] for row in table.rows for record in row.records()})))
    teachers = ", ".join(Path(name).name for name in table.teachers())
    budgets = {t: f"{r['budget']['amount']:,} {r['budget']['kind']}" for t, r in table.tasks.items()}
    budget = ", ".join(f"{short(task)} {text}" for task, text in budgets.items())
    budget = budget if len(set(budgets.values())) > 1 else next(iter(budgets.values()))
    without = {task for row in table.rows for task, cells in row.cells.items()
               if any(cell.influence is None for cell in cells.values())}  # fmt: skip
    kept = [short(task) for task in table.tasks if task not in without]
    items = " and test items" if len(kept) == len(table.tasks) else f", and test items of {', '.join(kept)}"
    over = f"seeds{items}" if kept else "seeds alone"
    return " ".join(filter(None, [
        remarks(table),
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
        f"† Decides nothing. The seeds differ too much (standard deviation above {100 * SPAN:.0f} points), or the task"
        " is not learnt yet: above guessing the score is less than half of what the row's best budget reaches, or,"
        " with one budget, less than a quarter of the teacher's. Differences leave this task out."
    ) * marked


def missing(table: Table, most: int = 12) -> list[str]:
    """What is missing, one line a cell; of many the count."""
    lines = table.missing[:most]
    return [*lines, f"and {len(table.missing) - most} more"] if len(table.missing) > most else lines


def markdown(table: Table) -> str:
    lines = "\n".join(f"- {line}" for line in missing(table))
    parts = [how(table), scores(table).markdown(), footnote(table)]
    return "\n\n".join(filter(None, [*parts, f"Failed or missing:\n\n{lines}" * bool(lines)]))


def budget_of(names: Sequence[str]) -> int | None:
    """The budget that the files of matrices report, the first of several, where they agree on a number of examples."""
    files = [matrix.read_file(path) for name in names if (path := matrix.path_of(name)) is not None]
    said = {str((file.get("budgets") or [file.get("budget")])[0]) for file in files}
    return int(said.pop()) if len(said) == 1 and next(iter(said)).isdecimal() else None


def main(argv: list[str]) -> None:
    parser = Parser("table", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--budget", type=int, help="examples: which budget of a ladder (default: that of the file)")
    parser.add_argument(
        "--save", metavar="NAME", help="keep the results as bench/results/NAME.jsonl.gz, and predictions"
    )
    options = parser.parse_args(argv)
    sources = [folder_of(name) for name in options.results]
    table = load(sources, options.budget or budget_of(options.results))
    budgets = {task: record["budget"]["amount"] for task, record in table.tasks.items()}
    if options.budget not in (None, *(there := sorted({*budgets.values(), *table.ladder}))):
        raise BadInput(f"--budget {options.budget}: the results have {', '.join(map(str, there))} examples")
    parts = [how(table), scores(table).plain(), footnote(table)]
    parts += [ladder(table).plain()] if table.ladder else []
    parts += [fidelity(table).plain()] if agrees(table) else []
    parts += [contrasts(table).plain()] if has_contrasts(table) else []
    print("\n\n".join(filter(None, parts)))
    for line in missing(table):
        print(f"failed or missing: {line}")
    if options.save:
        without = save(sources, path := FOLDER / f"{options.save}{KEPT}", budgets)
        print(f"saved: {path}")
        if without:
            print(f"without predictions, as these or the labels are not there: {', '.join(sorted(without))}")
    if table.missing:
        raise SystemExit(1)
