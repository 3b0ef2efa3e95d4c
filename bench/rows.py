"""The rows of a matrix, from its results: what stands in one table, and what compares with what."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import stats
from bench.records import Cell, read_all
from bench.stats import Estimate, Interval, Sample
from common import results, tasks
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}
SPAN = 0.08  # a standard deviation over seeds above this: they span a step
REPORTED = 12_800  # examples: of budgets with as many results the one next to it

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
        """Budget -> the scores of a row on a task, of all the seeds that this table has; {} without a ladder."""
        same = {amount: next((other for other in found.rows if other.key == row.key), None)
                for amount, found in self.ladder.items()}  # fmt: skip
        values = {amount: other.values(task) if other else [] for amount, other in same.items()}
        return {amount: some if len(some) >= len(row.values(task)) else [] for amount, some in values.items()}

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
    found, missing = read_all(sources)
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


def short(task: str) -> str:
    return task.removeprefix("pocket/")
