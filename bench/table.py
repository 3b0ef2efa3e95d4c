"""The tables of a matrix of runs, from its results alone.

    python -m bench table bench/arena.toml               # what `python -m bench run` left for this file, so far
    python -m bench table runs/quick runs/more           # or any folders with results, or files that --save has made
    python -m bench table bench/real.toml --markdown
    python -m bench table bench/arena.toml --save arena  # also keep them: bench/results/arena.json, and predictions

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

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import matrix, stats
from bench.cli import FOLDER, Parser
from bench.cli import markdown as markdown_table
from bench.records import Cell, folder_of, read, save
from bench.stats import Estimate, Interval, Sample
from common import evaluate, results, tasks
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}
SPAN = 0.08  # a standard deviation over seeds above this: they span a step
WANTED = 0.02  # the difference that a table should be able to tell
ALIKE = 0.01  # rows that differ by less are as good as each other
REPORTED = 12_800  # examples: of budgets with as many results the one next to it
NEAR = 0.9  # of the teacher's score: when a row has come near it

# --- figures -------------------------------------------------------------------------------------------------


def interval(values: Sequence[float]) -> Interval:
    """The mean of one task's seeds, and its 95% interval over seeds alone."""
    return stats.estimate([Sample(np.asarray(values))]).interval()


def verdict(found: Interval | Estimate) -> str:
    """A difference in points, its interval, and what it says."""
    found = found.interval() if isinstance(found, Estimate) else found
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f} (one seed)"
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}], {found.word}"


def difference(left: list[float], right: list[float]) -> str:
    """Left minus right in points, paired by seed, with its 95% interval over seeds, and what it says."""
    return verdict(interval([a - b for a, b in zip(left, right, strict=True)]))


def cell(values: Sequence[float]) -> str:
    """Fractions as percent: their mean ± standard deviation."""
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


# --- rows ----------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A student: a variant of a script, with its results by task and seed."""

    place: str  # the folder above the script's: the name of a row of the matrix
    method: str
    variant: str
    kind: str
    start: str
    teacher: str
    apart: str = ""  # the settings that tell it from a row which is alike in all of these
    records: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)
    label: str = ""
    moves: dict[tuple[str, int], np.ndarray | None] = field(default_factory=dict)

    @property
    def role(self) -> str | None:
        """`finetune-1bit` is the undistilled student of its kind, `kd-1bit` vanilla KD."""
        return ROLES.get(self.variant.split("-")[0])

    @property
    def full(self) -> str:
        """Its kind with full attention."""
        return re.sub(r", [a-z]+$", "", self.kind)

    @property
    def key(self) -> tuple[str, ...]:
        return self.place, self.method, self.variant, self.kind, self.start, self.teacher, self.apart

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return Path(self.place).name

    @property
    def path(self) -> str:
        """Its name in files about all rows."""
        return str(Path(self.place, self.method, self.variant, self.apart))

    def values(self, task: str) -> list[float]:
        return [record["primary"]["value"] for _, record in sorted(self.records.get(task, {}).items())]

    def all(self) -> list[dict[str, Any]]:
        return [record for seeds in self.records.values() for record in seeds.values()]

    def influence(self, task: str, seed: int) -> np.ndarray | None:
        """How each test item moves a score [N]; None if that was not kept."""
        if (task, seed) not in self.moves:
            cell = self.cells.get((task, seed))
            self.moves[task, seed] = cell.influence() if cell else None
        return self.moves[task, seed]

    @property
    def settings(self) -> dict[str, Any]:
        """Of its first result."""
        return self.all()[0]["settings"]

    def typical(self, part: str, name: str) -> float:
        """The median of a figure over all results of the row."""
        return statistics.median(record[part][name] for record in self.all())


class Grid(NamedTuple):
    """What is printed: a header and rows; a row of one cell is a heading."""

    header: list[str]
    rows: list[list[str]]


@dataclass
class Table:
    tasks: dict[str, dict[str, Any]]  # task -> one of its results: all share data, split and budget
    rows: list[Row]
    missing: list[str]  # cells that failed or were never run, and why
    ladder: dict[int, Table] = field(default_factory=dict)  # examples -> the table of that budget, where there are more

    def arena(self) -> list[Row]:
        """The largest group of rows that all compare with each other: of one kind and one start."""
        counts = Counter((row.kind, row.start) for row in self.rows)
        first = max(counts, key=lambda group: (counts[group], *(-ord(c) for c in "".join(group))))
        return [row for row in self.kinds()[first[0]] if row.start == first[1]]

    def kinds(self) -> dict[str, list[Row]]:
        """Rows by kind: the arena's first, then the largest students first. Within a kind start by start, the start
        with most rows first; baselines before methods, these by their means."""
        order = list(ROLES.values())
        counts = Counter((row.kind, row.start) for row in self.rows)
        most = max(counts.values())
        means = {id(row): self.plain_mean(row) for row in self.rows}

        def place(row: Row) -> tuple[Any, ...]:
            role = order.index(row.role) if row.role else len(order)
            return -counts[row.kind, row.start], row.start, role, -means[id(row)], row.place, row.variant

        kinds: dict[str, list[Row]] = {}
        for row in self.rows:
            kinds.setdefault(row.kind, []).append(row)

        def size(kind: str) -> tuple[Any, ...]:
            arena = max(counts[kind, row.start] for row in kinds[kind]) == most
            return not arena, -max(row.typical("student", "bytes") for row in kinds[kind]), kind

        return {kind: sorted(kinds[kind], key=place) for kind in sorted(kinds, key=size)}

    def plain_mean(self, row: Row) -> float:
        """The mean over tasks, by which rows are put in order; a row that lacks one comes last."""
        values = [row.values(task) for task in self.tasks]
        return float(np.mean([np.mean(some) for some in values])) if all(values) else -float("inf")

    def baseline(self, row: Row, role: str) -> Row | None:
        """The row of that role that a row is compared with: of its kind, start, teacher and batch size; of full
        attention if there is none with the row's. Of several the one whose settings differ least, so far as all have
        them; then one of its own place and script."""
        if row.role == role:
            return None
        rows = [r for r in self.rows if (r.role, r.start, r.teacher) == (role, row.start, row.teacher)]
        rows = [r for r in rows if r.kind in (row.kind, row.full)]
        rows = [r for r in rows if r.settings["batch_size"] == row.settings["batch_size"]]
        shared = set.intersection(*(set(r.settings) for r in (row, *rows))) - {"seed"}

        def distance(other: Row) -> tuple[Any, ...]:
            unlike = sum(other.settings[name] != row.settings[name] for name in shared)
            return other.kind != row.kind, unlike, other.place != row.place, other.method != row.method

        return min(rows, key=distance, default=None)

    def sample(self, weights: Sequence[tuple[Row, float]], task: str) -> Sample | None:
        """A weighted sum of rows on a task, by the seeds that all of them have; None without one."""
        seeds = sorted(set.intersection(*(set(row.records.get(task, {})) for row, _ in weights)))
        if not seeds:
            return None
        values = [sum(w * row.records[task][seed]["primary"]["value"] for row, w in weights) for seed in seeds]
        moves = [row.influence(task, seed) for seed in seeds for row, _ in weights]
        known = [move for move in moves if move is not None]
        if len(known) < len(moves) or len(seeds) < 2:
            return Sample(np.array(values))
        shaped = np.array(known).reshape(len(seeds), len(weights), -1)
        return Sample(np.array(values), np.einsum("swn,w->sn", shaped, [w for _, w in weights]))

    def contrast(
        self, weights: Sequence[tuple[Row, float]], tasks_: Iterable[str]
    ) -> tuple[Estimate, list[str]] | None:
        """A weighted sum of rows, mean over the tasks on which all have seeds and none has a † cell; and which these
        are. None if there is no such task."""
        samples = {task: self.sample(weights, task) for task in tasks_
                   if not any(self.untrained(row, task) for row, _ in weights)}  # fmt: skip
        found = {task: sample for task, sample in samples.items() if sample is not None}
        return (stats.estimate(list(found.values())), list(found)) if found else None

    def over(self, row: Row, other: Row, tasks_: Iterable[str]) -> tuple[Estimate, list[str]] | None:
        """A row minus another."""
        return self.contrast([(row, 1.0), (other, -1.0)], tasks_)

    def difference(self, row: Row, role: str, tasks_: Iterable[str]) -> tuple[Estimate, list[str]] | None:
        """A row over its baseline, and on which tasks; None without a baseline, or a seed that both have."""
        other = self.baseline(row, role)
        return self.over(row, other, tasks_) if other else None

    def mean(self, row: Row) -> Estimate | None:
        """Over all tasks; None if a row lacks one."""
        samples = [self.sample([(row, 1.0)], task) for task in self.tasks]
        return None if any(sample is None for sample in samples) else stats.estimate(samples)  # type: ignore[arg-type]

    def untrained(self, row: Row, task: str) -> str | None:
        """Why a cell decides nothing (†): its seeds span a step, or it stands before one. The latter is judged by the
        best budget of its ladder; without a ladder, by whether anything was learnt. Both count from guessing."""
        values = row.values(task)
        if len(values) > 1 and float(np.std(values, ddof=1)) > SPAN:
            return "seeds span a step"
        if not values or self.tasks[task]["primary"]["name"] not in stats.INFLUENCE:
            return None
        guess = guessing(self.tasks[task])
        reached = [float(np.mean(rung)) for rung in self.rungs(row, task).values() if rung] or [guess + 2 * 0.05]
        return "stands before its step" if np.mean(values) - guess < (max(reached) - guess) / 2 else None

    def rungs(self, row: Row, task: str) -> dict[int, list[float]]:
        """Budget -> the scores of a row on a task; {} without a ladder."""
        same = {amount: next((other for other in found.rows if other.key == row.key), None)
                for amount, found in self.ladder.items()}  # fmt: skip
        return {amount: other.values(task) if other else [] for amount, other in same.items()}

    def teachers(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Teacher -> task -> what the results record of it."""
        teachers: dict[str, dict[str, dict[str, Any]]] = {}
        for row in self.rows:
            for task, seeds in row.records.items():
                for record in seeds.values():
                    teachers.setdefault(row.teacher, {})[task] = record["teacher"]
        return teachers


# --- reading -------------------------------------------------------------------------------------------------


def kind_of(record: dict[str, Any]) -> str:
    settings, bits = record["settings"], record["settings"].get("bits", 32)
    few = f", {bits} bit{'s' if bits > 1 else ''}" if bits < 32 else ""
    converted = "convert" in record["student"]["init"]  # by a stage before the task
    return f"student {record['student']['shape']}{few}" + (f", {settings['attention']}" if converted else "")


def start_of(record: dict[str, Any]) -> str:
    """What a student started from, before all that its budget pays for: a stage before the task is the method's."""
    start = record["student"]["init"].split(" then ")[0]
    if start.startswith("pre-training"):
        return str(record["settings"].get("init", "random"))
    return "random" if start.startswith("general") else start


def guessing(record: dict[str, Any]) -> float:
    """The score of who says any class alike; 0 of a correlation."""
    known = tasks.TASKS.get(short(record["task"]))
    return 1 / len(known.labels) if record["primary"]["name"] == "accuracy" and known and known.labels else 0.0


def load(sources: Iterable[Path], budget: int | None = None) -> Table:
    """The table of the results under some folders and in some files, at one budget of their ladder. `BadInput` says
    what cannot stand in one table."""
    sources = list(dict.fromkeys(sources))
    read_from = [read(source) for source in sources]
    found = [one for some, _ in read_from for one in some]
    missing = [line for _, lacking in read_from for line in lacking]
    if not found:
        raise BadInput(f"{', '.join(map(str, sources))}: no result.json there")
    amounts: dict[str, Counter[int]] = {}  # of each task
    for one in found:
        amounts.setdefault(one.record["task"], Counter())[one.record["budget"]["amount"]] += 1
    if all(len(some) == 1 for some in amounts.values()):
        return level(found, missing)
    rungs = sorted(set.union(*(set(some) for some in amounts.values())))
    total = sum(amounts.values(), Counter[int]())
    at = budget if budget in rungs else max(rungs, key=lambda amount: (total[amount], -abs(amount - REPORTED), -amount))
    tables = {amount: level([one for one in found if one.record["budget"]["amount"] == amount], missing)
              for amount in rungs}  # fmt: skip
    for task, record in tables[at].tasks.items():
        others = [rung.tasks[task] for rung in tables.values() if task in rung.tasks]
        if wrong := next((one for one in others if apart(one) != apart(record)), None):
            raise BadInput(f"{task}: not comparable: {wrong['comparable']} and {record['comparable']}")
    tables[at].ladder = tables
    return tables[at]


def apart(record: dict[str, Any]) -> str:
    """What two results must share, but for the budget."""
    return re.sub(r"\|budget:[^|]*", "", record["comparable"])


def level(found: list[Cell], missing: list[str]) -> Table:
    """The table of results of one budget."""
    lengths: dict[str, set[int]] = {}  # teacher -> the lengths that it reads
    for one in found:
        lengths.setdefault(one.record["teacher"]["name"], set()).add(one.record["settings"].get("max_length"))
    groups: dict[tuple[str, str, str, str, str, str], list[Cell]] = {}
    tasks_: dict[str, Cell] = {}
    for one in found:
        record, where = one.record, one.where
        if record["primary"]["name"] == "perplexity":
            raise BadInput(f"{where}: a perplexity; it cannot be averaged with other metrics")
        first = tasks_.setdefault(record["task"], one)
        if record["comparable"] != first.record["comparable"]:
            raise BadInput(f"{where}: not comparable with {first.where}: {record['comparable']}, not"
                           f" {first.record['comparable']}")  # fmt: skip
        teacher = record["teacher"]["name"]
        if len(lengths[teacher]) > 1:
            teacher += f", {record['settings'].get('max_length')} tokens"
        key = (one.place, record["method"], record["variant"], kind_of(record), start_of(record), teacher)
        groups.setdefault(key, []).append(one)
    rows: dict[tuple[str, ...], Row] = {}
    for alike, cells in groups.items():
        names = unlike([one.record for one in cells])
        for one in cells:
            row = Row(*alike, ", ".join(f"{name} {settings_of(one.record).get(name)}" for name in names))
            row, at = rows.setdefault(row.key, row), (one.record["task"], one.record["seed"])
            if at in row.cells:
                raise BadInput(f"{one.where}: the same cell as {row.cells[at].where}")
            row.cells[at] = one
            row.records.setdefault(at[0], {})[at[1]] = one.record
    label(list(rows.values()))
    return Table({task: one.record for task, one in tasks_.items()}, list(rows.values()), missing)


def label(rows: list[Row]) -> None:
    """Give each row the name that tables show: its role; or its name in the matrix, if that row was named and is but
    one; or its variant."""
    for row in rows:
        others = [r for r in rows if r.place == row.place and r.variant != row.variant and r.role is None]
        named = Path(row.place).name not in ("", row.method) and not others
        row.label = ", ".join(filter(None, [row.role or (Path(row.place).name if named else row.variant), row.apart]))
        if len({other.teacher for other in rows}) > 1:
            row.label += f", teacher {Path(row.teacher).name}"
    same = Counter((row.label, row.kind, row.start) for row in rows)
    for row in [row for row in rows if same[row.label, row.kind, row.start] > 1]:
        row.label += f" ({Path(row.place).name or row.method})"


def settings_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a row's seeds share: all settings but the seed, and which teacher it was."""
    settings = {**record["settings"], "teacher": results.digest(record["teacher"]["signature"])[:6]}
    return {name: value for name, value in settings.items() if name != "seed"}


def unlike(records: list[dict[str, Any]]) -> list[str]:
    """The settings in which results of one task differ, where the seed is all that may: they are of several rows."""
    first = {record["task"]: settings_of(record) for record in reversed(records)}
    pairs = [(settings_of(record), first[record["task"]]) for record in records]
    return sorted({name for ours, one in pairs for name in ours | one if ours.get(name) != one.get(name)})


# --- printing ------------------------------------------------------------------------------------------------


def short(task: str) -> str:
    return task.removeprefix("pocket/")


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
        if not values:
            return "-"
        if np.mean(values) >= wanted:
            return f"at most {amount:,}" if before is None else f"{before:,} to {amount:,}"
        before = amount
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


# --- comparisons of the arena --------------------------------------------------------------------------------

# Rows of a loss on hidden states of all tokens beside KD's; the five contrasts that were planned before the runs
TOKENS = ("mse-kd", "cka-kd", "mc3kd", "cosine-kd", "lin-kd")
PLANNED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("KD over undistilled", ("kd",), "undistilled"),
    ("losses on all tokens' hidden states over KD", TOKENS, "kd"),
    ("CKA over CCC (cka-kd over mc3kd)", ("cka-kd",), "mc3kd"),
    ("CKA over squared error (cka-kd over mse-kd)", ("cka-kd",), "mse-kd"),
    ("CCC over squared error (mc3kd over mse-kd)", ("mc3kd",), "mse-kd"),
)


class Contrast(NamedTuple):
    """A comparison of a table: the difference, on which tasks, its p value corrected for the number of comparisons, and
    why it decides nothing, if it does."""

    what: str
    found: Estimate | None
    tasks: list[str]
    p: float
    why: str

    @property
    def word(self) -> str:
        """What it is called: from the corrected p value; "as good as" from the equivalence test."""
        if self.found is None or np.isnan(self.p):
            return self.why if self.found is None else "one seed"
        told = ("higher" if self.found.mean > 0 else "lower") if self.p < 0.05 else "not distinguishable"
        return told + f", as good as (within {100 * ALIKE:.0f} point)" * (self.found.within(ALIKE) < 0.05)


def planned(table: Table) -> list[Contrast]:
    """The contrasts that were planned, with Holm's correction for those five."""
    named = {row.name: row for row in table.arena()}
    made = []
    for what, left, right in PLANNED:
        rows = [named[name] for name in left if name in named]
        if not rows or right not in named:
            made.append(Contrast(what, None, [], np.nan, "no result yet"))
            continue
        weights = [*((row, 1 / len(rows)) for row in rows), (named[right], -1.0)]
        found, used = table.contrast(weights, table.tasks) or (None, [])
        marked = [
            f"{row.name} on {short(task)}" for row, _ in weights for task in table.tasks if table.untrained(row, task)
        ]
        why = f"decides nothing where a cell is †: {', '.join(marked)}" if marked else ""
        made.append(Contrast(what, found, used, np.nan if found is None else found.p, why))
    return corrected(made)


def corrected(made: list[Contrast]) -> list[Contrast]:
    """With p values corrected for the number of those that are known."""
    known = [i for i, one in enumerate(made) if not np.isnan(one.p)]
    for i, p in zip(known, stats.holm([made[i].p for i in known]), strict=True):
        made[i] = made[i]._replace(p=p)
    return made


def has_contrasts(table: Table) -> bool:
    """Whether it has the rows of the first planned contrast."""
    return {"kd", "undistilled"} <= {row.name for row in table.arena()}


def contrasts(table: Table) -> Grid:
    lines = []
    for one in planned(table):
        figure = "-" if one.found is None else verdict(one.found).split("],")[0] + "]" * (one.found.freedom > 0)
        said = one.word if one.found is None else f"{one.word} ({one.why})" if one.why else one.word
        p = "-" if np.isnan(one.p) else "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
        lines.append([one.what, figure, p, f"{len(one.tasks)} of {len(table.tasks)}", said])
    return Grid(["planned", "points", "p (Holm)", "tasks", "said"], lines)


def pairs(table: Table, rows: Sequence[Row], wanted: Iterable[str]) -> dict[tuple[int, int], Contrast]:
    """Every row minus each that stands below it, with Holm's correction for their number: exploratory."""
    wanted, made = list(wanted), []
    for a, b in (which := list(itertools.combinations(range(len(rows)), 2))):
        found, used = table.over(rows[a], rows[b], wanted) or (None, [])
        made.append(Contrast("", found, used, np.nan if found is None else found.p, ""))
    return dict(zip(which, corrected(made), strict=True))


def pair_table(table: Table) -> Grid:
    """The pairs of the arena. Bold: told apart; `=`: as good as."""
    rows = table.arena()
    found = pairs(table, rows, table.tasks)

    def shown(one: Contrast) -> str:
        if one.found is None:
            return "†"
        mark = "**" * (one.p < 0.05)
        return f"{mark}{100 * one.found.mean:+.1f}{mark}" + " =" * (one.found.within(ALIKE) < 0.05)

    lines = [[row.label, *("" if j <= i else shown(found[i, j]) for j in range(1, len(rows)))]
             for i, row in enumerate(rows[:-1])]  # fmt: skip
    return Grid(["minus", *(row.label for row in rows[1:])], lines)


HIDDEN = ("pkd-skip", "lin", "cosine", "mse", "cka", "xtc-32bit", "minilm-kd", *TOKENS)


def resolution(table: Table) -> list[dict[str, Any]]:
    """What tasks can tell of the arena's losses on hidden states: for each task, and all, the pairs told apart (Holm),
    and S/N, the variance between the rows' means over the mean variance between a row's seeds; and the latter for a
    core-minute of training a row."""
    rows, found = [row for row in table.arena() if row.name in HIDDEN], []
    for name, wanted in ({short(task): [task] for task in table.tasks} | {"all": list(table.tasks)}).items():
        whole = [row for row in rows if all(len(row.values(task)) > 1 for task in wanted)]
        if len(whole) < 2:
            continue
        made = pairs(table, whole, wanted)
        samples = [stats.estimate([Sample(np.array(row.values(task))) for task in wanted]) for row in whole]
        seeds = float(np.mean([len(row.values(task)) for row in whole for task in wanted]))
        noise = float(np.mean([sample.seeds for sample in samples])) * seeds
        spent = [record["ledger"].get("seconds") for row in whole for t in wanted for record in row.records[t].values()]
        found.append({
            "tasks": name, "rows": len(whole), "seeds": seeds, "pairs": len(made),
            "told": sum(one.p < 0.05 for one in made.values()),
            "signal_to_noise": float(np.var([sample.mean for sample in samples], ddof=1)) / noise if noise else None,
            "core_minutes": None if None in spent else sum(spent) / 60 / len(whole) / seeds,
        })  # fmt: skip
    return found


def spread(table: Table) -> str:
    """Seeds with which a difference of `WANTED` between two rows of the arena would be told, its variances pooled over
    all rows over vanilla KD; "" without one."""
    rows = [row for row in table.arena() if row.role is None]
    pooled = []
    for task in table.tasks:
        used = [sample for row in rows if (kd := table.baseline(row, ROLES["kd"])) and not table.untrained(row, task)
                and not table.untrained(kd, task) and (sample := table.sample([(row, 1.0), (kd, -1.0)], task))
                and len(sample.values) > 1]  # fmt: skip
        if not used:
            return ""
        deviation = float(np.mean([np.var(sample.values, ddof=1) for sample in used])) ** 0.5
        items = float(np.mean([0.0 if s.influence is None else stats.item_part(s.influence) for s in used])) ** 0.5
        pooled.append((deviation, items))
    count = stats.seeds_for(WANTED, *zip(*pooled, strict=True))
    seeds = "no number of" if np.isinf(count) else f"{count:.0f}"
    return (
        f"At this table's spread, pooled over its rows, a difference of {100 * WANTED:.0f} points from vanilla KD is"
        f" told in four cases of five with {seeds} seeds."
    )


# --- the page ------------------------------------------------------------------------------------------------


def teacher_lines(table: Table, width: int) -> list[list[str]]:
    names, lines = {task: record["primary"]["name"] for task, record in table.tasks.items()}, []
    for name, found_on in table.teachers().items():
        values = {t: np.mean([split[names[t]] for split in found["metrics"].values()]) for t, found in found_on.items()}
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
    parser.add_argument("--save", metavar="NAME", help="keep the results as bench/results/NAME.json, and predictions")
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
        save(sources, FOLDER / f"{options.save}.json", {t: r["budget"]["amount"] for t, r in table.tasks.items()})
        print(f"saved: {FOLDER / options.save}.json")
    if table.missing:
        raise SystemExit(1)
