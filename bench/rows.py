"""The rows of a matrix, from its results: what stands in one table, and what compares with what."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import stats
from bench.records import Cell, read_all
from bench.stats import Estimate, Interval, Sample
from common import results, tasks
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}
LINEAR, NO_TEACHER = "linear", "none"  # the script of bench/baselines/ that has no teacher, and what records call that
SPAN = 0.08  # a standard deviation over seeds above this: they differ too much
REPORTED = 12_800  # examples: of budgets with as many results the one next to it
ALIKE = 0.01  # rows that differ by less are as good as each other


def interval(values: Sequence[float]) -> Interval:
    """The mean of one task's seeds, and its 95% interval over seeds alone."""
    return stats.estimate([Sample(np.asarray(values))]).interval()


def cell(values: Iterable[float]) -> str:
    """Fractions as percent: their mean ± standard deviation."""
    values = list(values)
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


def short(task: str) -> str:
    return task.removeprefix("pocket/")


@dataclass
class Row:
    """A student: a variant of a script, with its results."""

    place: str  # the folder above the script's: the name of a row of the matrix
    method: str
    variant: str
    kind: str
    start: str
    teacher: str
    apart: str = ""  # the settings that tell it from a row which is alike in all of these
    cells: dict[str, dict[int, Cell]] = field(default_factory=dict)  # task -> seed -> result
    label: str = ""

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
        """Its name in files about all rows, which no other row has."""
        parts = self.place, self.method, self.variant, self.kind, self.start, Path(self.teacher).name, self.apart
        return "/".join(filter(None, parts))

    def records(self, task: str | None = None) -> list[dict[str, Any]]:
        """The results on a task, seed by seed; without a task, all."""
        found = self.cells if task is None else {task: dict(sorted(self.cells.get(task, {}).items()))}
        return [cell.record for seeds in found.values() for cell in seeds.values()]

    def values(self, task: str) -> list[float]:
        return [record["primary"]["value"] for record in self.records(task)]

    @property
    def settings(self) -> dict[str, Any]:
        """Of its first result."""
        return self.records()[0]["settings"]

    def typical(self, part: str, name: str) -> float:
        """The median of a figure over all results of the row."""
        return statistics.median(record[part][name] for record in self.records())


class Contrast(NamedTuple):
    """A weighted sum of rows: what it is, on each task by itself, its p value, corrected where it is one of several,
    and why it decides nothing, if it does. None where no task has seeds of all rows and no † cell."""

    found: Estimate | None
    tasks: dict[str, Interval]
    p: float
    what: str = ""
    why: str = ""

    @property
    def word(self) -> str:
        """What it is called: from the p value, and on which tasks by itself if not on all; "as good as" from the
        equivalence test. Tasks that contradict each other have no common answer."""
        if self.found is None or np.isnan(self.p):
            return (self.why or "no seed that all rows have") if self.found is None else "one seed"
        if self.disagree:
            return self.disagree
        told = ("higher" if self.found.mean > 0 else "lower") if self.p < 0.05 else "not distinguishable"
        named = {short(task): one for task, one in self.tasks.items()}
        partly = stats.only_on(named, 0.0, self.found.mean > 0) if self.p < 0.05 else ""
        return told + partly + f", as good as (within {100 * ALIKE:.0f} point)" * self.alike

    @property
    def disagree(self) -> str:
        """On which tasks it is higher and on which lower, each by its own interval; "" if not both."""
        higher, lower = (" and ".join(map(short, side)) for side in stats.sides(self.tasks))
        return f"the tasks disagree: higher on {higher}, lower on {lower}" if higher and lower else ""

    @property
    def alike(self) -> bool:
        """Within the margin by the mean, where no task by itself tells a difference beyond it."""
        far = any(abs(one.mean) > ALIKE and one.word in ("higher", "lower") for one in self.tasks.values())
        return self.found is not None and self.found.within(ALIKE) < 0.05 and not (self.disagree or far)

    @property
    def verdict(self) -> str:
        """The figures, and what they say, without a correction."""
        if self.interval is None:
            return "† decides nothing"
        return ", ".join(filter(None, [self.interval.text(), self.disagree or self.interval.word]))

    @property
    def interval(self) -> Interval | None:
        return None if self.found is None else self.found.interval()


@dataclass
class Table:
    tasks: dict[str, dict[str, Any]]  # task -> one of its results: all share data, split and budget
    rows: list[Row]
    missing: list[str]  # cells that failed or were never run, and why
    ladder: dict[int, Table] = field(default_factory=dict)  # examples -> the table of that budget, where there are more

    def arena(self) -> list[Row]:
        """The largest group of rows that all compare with each other: of one kind and one start."""
        counts = Counter((row.kind, row.start) for row in self.rows)
        kind, start = max(counts, key=lambda group: (counts[group], *(-ord(c) for c in "".join(group))))
        return [row for row in self.kinds()[kind] if row.start == start]

    def linear(self) -> list[Row]:
        """The linear models: from as many labelled rows as a student sees examples, then from all."""
        return sorted((row for row in self.rows if row.method == LINEAR), key=lambda row: row.variant)

    def kinds(self) -> dict[str, list[Row]]:
        """Rows by kind: the arena's first, then the largest students first. Within a kind start by start, the start
        with most rows first; baselines before methods, these by their means."""
        order = [*ROLES.values(), None]
        counts = Counter((row.kind, row.start) for row in self.rows)
        kinds: dict[str, list[Row]] = {}
        for row in self.rows:
            kinds.setdefault(row.kind, []).append(row)

        def mean(row: Row) -> float:  # a row that lacks a task comes last
            values = [row.values(task) for task in self.tasks]
            return float(np.mean([np.mean(some) for some in values])) if all(values) else -float("inf")

        def place(row: Row) -> tuple[Any, ...]:
            role = order.index(row.role)
            return -counts[row.kind, row.start], row.start, role, -mean(row), row.place, row.variant

        def size(kind: str) -> tuple[Any, ...]:
            arena = max(counts[kind, row.start] for row in kinds[kind]) == max(counts.values())
            return not arena, -max(row.typical("student", "bytes") for row in kinds[kind]), kind

        return {kind: sorted(kinds[kind], key=place) for kind in sorted(kinds, key=size)}

    def baseline(self, row: Row, role: str) -> Row | None:
        """The row of that role that a row is compared with: of its kind, start, teacher and batch size; of full
        attention if there is none with the row's. Of several the one whose settings differ least, so far as all have
        them; then one of its own place and script. A linear model's is the arena's."""
        if row.role == role:
            return None
        if row.method == LINEAR:
            return next((other for other in self.arena() if other.role == role), None)
        alike = role, row.start, row.teacher, row.settings["batch_size"]
        rows = [r for r in self.rows if (r.role, r.start, r.teacher, r.settings["batch_size"]) == alike
                and r.kind in (row.kind, row.full)]  # fmt: skip
        shared = set.intersection(*(set(r.settings) for r in (row, *rows))) - {"seed"}

        def distance(other: Row) -> tuple[Any, ...]:
            unlike = sum(other.settings[name] != row.settings[name] for name in shared)
            return other.kind != row.kind, unlike, other.place != row.place, other.method != row.method

        return min(rows, key=distance, default=None)

    def sample(self, weights: Sequence[tuple[Row, float]], task: str) -> Sample | None:
        """A weighted sum of rows on a task, by the seeds that all of them have; None without one."""
        cells = [row.cells.get(task, {}) for row, _ in weights]
        seeds = sorted(set.intersection(*map(set, cells)))
        if not seeds:
            return None
        by = [w for _, w in weights]
        scores = [[some[seed].record["primary"]["value"] for some in cells] for seed in seeds]
        values = [sum(w * score for w, score in zip(by, of_seed, strict=True)) for of_seed in scores]
        moves = [some[seed].influence for seed in seeds for some in cells]
        known = [move for move in moves if move is not None]
        if len(known) < len(moves) or len(seeds) < 2:
            return Sample(np.array(values))
        shaped = np.array(known).reshape(len(seeds), len(weights), -1)
        return Sample(np.array(values), np.einsum("swn,w->sn", shaped, by))

    def contrast(self, weights: Sequence[tuple[Row, float]], tasks_: Iterable[str]) -> Contrast:
        """A weighted sum of rows, mean over the tasks on which all have seeds and none has a † cell."""
        wanted = [task for task in tasks_ if not any(self.untrained(row, task) for row, _ in weights)]
        samples = {task: one for task in wanted if (one := self.sample(weights, task)) is not None}
        found = stats.estimate(list(samples.values())) if samples else None
        return Contrast(found, stats.by_task(samples), found.p if found else np.nan)

    def over(self, row: Row, other: Row | None, tasks_: Iterable[str]) -> Contrast:
        """A row minus another, say its `baseline`."""
        return self.contrast([(row, 1.0), (other, -1.0)], tasks_) if other else Contrast(None, {}, np.nan)

    def mean(self, row: Row) -> Estimate | None:
        """Over all tasks; None if a row lacks one."""
        samples = [self.sample([(row, 1.0)], task) for task in self.tasks]
        return None if any(sample is None for sample in samples) else stats.estimate(samples)  # type: ignore[arg-type]

    def untrained(self, row: Row, task: str) -> str | None:
        """Why a cell decides nothing (†): its seeds differ too much, or the task is not learnt yet, as is judged by the
        best budget of its ladder; without a ladder, by its teacher. Both count from guessing."""
        values = row.values(task)
        if len(values) > 1 and float(np.std(values, ddof=1)) > SPAN:
            return "seeds differ too much"
        if not values or self.tasks[task]["primary"]["name"] not in stats.INFLUENCE:
            return None
        guess = guessing(self.tasks[task])
        reached = [float(np.mean(rung)) for rung in self.rungs(row, task).values() if rung]
        if len(reached) > 1:
            least = (max(reached) - guess) / 2
        else:  # a teacher that is stored outputs may have no score
            record = self.tasks[task] if row.method == LINEAR else row.records(task)[0]
            least = (teacher_score(record) - guess) / 4 if record["teacher"]["metrics"] else 0.05
        return "not learnt yet" if np.mean(values) - guess < least else None

    def scored(self, row: Row, task: str) -> str:
        """A row's scores on a task, with the mark of a cell that decides nothing."""
        return cell(row.values(task)) + " †" * bool(self.untrained(row, task))

    def same(self, row: Row) -> Row | None:
        """A row of another budget's table in this one."""
        return next((other for other in self.rows if other.key == row.key), None)

    def rungs(self, row: Row, task: str) -> dict[int, list[float]]:
        """Budget -> the scores of a row on a task, of all the seeds that this table has; {} without a ladder."""
        found = {}
        for amount, table in self.ladder.items():
            other = table.same(row)
            values = other.values(task) if other else []
            found[amount] = values if len(values) >= len(row.values(task)) else []
        return found

    def teachers(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Teacher -> task -> what the results record of it."""
        teachers: dict[str, dict[str, dict[str, Any]]] = {}
        for row in self.rows:
            for record in row.records():
                teachers.setdefault(row.teacher, {})[record["task"]] = record["teacher"]
        return {name: found for name, found in teachers.items() if name != NO_TEACHER}

    def labelled(self, row: Row) -> str:
        """How many labelled rows of train a row has seen, task by task: a network at most as many as its examples."""
        whole = {task: max((record["ledger"]["student_examples"] for other in self.linear()
                            for record in other.records(task)), default=0) for task in self.tasks}  # fmt: skip
        seen = {task: max(record["ledger"]["student_examples"] for record in row.records(task)) for task in row.cells}
        said = [f"{min(seen[task], whole[task] or seen[task]):,}" for task in self.tasks if task in seen]
        return "/".join(said) if len(set(said)) > 1 else said[0]


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
    return "random" if start.startswith("general") else of_its_seed(start, record)


def of_its_seed(start: str, record: dict[str, Any]) -> str:
    """Without the seed, if it is another run of this very seed that a run goes on from: a row's seeds start alike."""
    return re.sub(rf"\bseed{record['seed']}@\w+", "its seed's run", start)


def guessing(record: dict[str, Any]) -> float:
    """The score of who says any class alike; of one's own data, of who says the largest class; 0 of a correlation."""
    if record["primary"]["name"] != "accuracy":
        return 0.0
    if (known := tasks.TASKS.get(short(record["task"]))) and known.labels:
        return 1 / len(known.labels)
    return min(split.get("majority", 0.0) for split in record["metrics"].values())


def teacher_score(record: dict[str, Any]) -> float:
    """Of the fine-tuned teacher of a result, by the same metric."""
    metric = record["primary"]["name"]
    return float(np.mean([split[metric] for split in record["teacher"]["metrics"].values()]))


def by_token(record: dict[str, Any]) -> dict[str, Any]:
    """A result with 1 / PPL, the geometric mean of its tokens' probabilities, in the place of a perplexity: a fraction
    of which more is better, as of all other scores. Other results are as they were."""
    if record["primary"]["name"] != "perplexity":
        return record
    metrics, own = (
        {split: {"token_probability": 1 / values["perplexity"]} for split, values in splits.items()}
        for splits in (record["metrics"], record["teacher"]["metrics"])
    )
    value = float(np.mean([values["token_probability"] for values in metrics.values()]))
    return record | {
        "primary": record["primary"] | {"name": "token_probability", "value": value},
        "metrics": metrics,
        "teacher": record["teacher"] | {"metrics": own},
    }


def load(sources: Iterable[Path], budget: int | None = None) -> Table:
    """The table of the results under some folders and in some files, at one budget of their ladder. `BadInput` says
    what cannot stand in one table."""
    sources = list(dict.fromkeys(sources))
    found, missing = read_all(sources)
    if not found:
        raise BadInput(f"{', '.join(map(str, sources))}: no result.json there")
    found = [replace(one, record=by_token(one.record)) for one in found]
    amounts: dict[int, list[Cell]] = {}
    for one in found:
        amounts.setdefault(one.record["budget"]["amount"], []).append(one)
    at_each = Counter(task for some in amounts.values() for task in {one.record["task"] for one in some})
    if max(at_each.values()) == 1:  # each task has one budget
        return level(found, missing)
    tables = {amount: level(amounts[amount], missing) for amount in sorted(amounts)}
    most = max(amounts, key=lambda amount: (len(amounts[amount]), -abs(amount - REPORTED), -amount))
    reported = tables[budget if budget in tables else most]
    for table in tables.values():
        table.ladder = tables
        for task in table.tasks.keys() & reported.tasks.keys():
            both = [one.tasks[task]["comparable"] for one in (table, reported)]
            if len({re.sub(r"\|budget:[^|]*", "", said) for said in both}) > 1:
                raise BadInput(f"{task}: not comparable: {' and '.join(both)}")
    return reported


def level(found: list[Cell], missing: list[str]) -> Table:
    """The table of results of one budget."""
    lengths: dict[str, set[int]] = {}  # teacher -> the lengths that it reads
    for one in found:
        lengths.setdefault(one.record["teacher"]["name"], set()).add(one.record["settings"].get("max_length"))
    groups: dict[tuple[str, str, str, str, str, str], list[Cell]] = {}
    tasks_: dict[str, Cell] = {}
    for one in sorted(found, key=lambda one: one.record["method"] == LINEAR):  # a task's first result has a teacher
        record = one.record
        first = tasks_.setdefault(record["task"], one)
        if record["comparable"] != first.record["comparable"]:
            raise BadInput(f"{one.where}: not comparable with {first.where}: {record['comparable']}, not"
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
            seeds = rows.setdefault(row.key, row).cells.setdefault(one.record["task"], {})
            seed = one.record["seed"]
            if seed in seeds:
                raise BadInput(f"{one.where}: the same cell as {seeds[seed].where}")
            seeds[seed] = one
    label(list(rows.values()))
    return Table({task: one.record for task, one in tasks_.items()}, list(rows.values()), missing)


def label(rows: list[Row]) -> None:
    """Give each row the name that tables show: its role; or its name in the matrix, if that row was named and is but
    one; or its variant."""
    for row in rows:
        others = [r for r in rows if r.place == row.place and r.variant != row.variant and r.role is None]
        named = row.name not in ("", row.method) and not others
        row.label = ", ".join(filter(None, [row.role or (row.name if named else row.variant), row.apart]))
        if len({other.teacher for other in rows} - {NO_TEACHER}) > 1 and row.method != LINEAR:
            row.label += f", teacher {Path(row.teacher).name}"
    same = Counter((row.label, row.kind, row.start) for row in rows)
    for row in [row for row in rows if same[row.label, row.kind, row.start] > 1]:
        row.label += f" ({row.name or row.method})"


def settings_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a row's seeds share: all settings but the seed, and which teacher it was."""
    settings = {**record["settings"], "teacher": results.digest(record["teacher"]["signature"])[:6]}
    settings["init"] = of_its_seed(settings.get("init", ""), record)
    return {name: value for name, value in settings.items() if name != "seed"}


def unlike(records: list[dict[str, Any]]) -> list[str]:
    """The settings in which results of one task differ, where the seed is all that may: they are of several rows."""
    first = {record["task"]: settings_of(record) for record in reversed(records)}
    pairs = [(settings_of(record), first[record["task"]]) for record in records]
    return sorted({name for ours, one in pairs for name in ours | one if ours.get(name) != one.get(name)})
