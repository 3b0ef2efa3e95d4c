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

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import FOLDER, Parser, matrix, stats
from bench.records import KEPT, Cell, Splits, folder_of, read_all, save
from bench.stats import Contrast, Estimate, Sample, has_contrasts, pairs, planned, short, spread
from common import evaluate, results, tasks
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}
LINEAR, NO_TEACHER = "linear", "none"  # the script of bench/baselines/ that has no teacher, and what records call that
SPAN = 0.08  # a standard deviation over seeds above this: they differ too much
NEAR = 0.9  # of the teacher's score: when a row has come near it
REPORTED = 12_800  # examples: of budgets with as many results the one next to it


def interval(values: Sequence[float]) -> Estimate:
    """The mean of one task's seeds, with an interval over seeds alone."""
    return stats.estimate([Sample(np.asarray(values))])


def cell(values: Iterable[float]) -> str:
    """Fractions as percent: their mean ± standard deviation."""
    values = list(values)
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


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


@dataclass
class Table:
    tasks: dict[str, dict[str, Any]]  # task -> one of its results: all share data, split and budget
    rows: list[Row]
    missing: list[str]  # cells that failed or were never run, and why
    ladder: dict[int, Table] = field(default_factory=dict)  # examples -> the table of that budget, where there are more

    def arena(self) -> list[Row]:
        """The largest group of rows that all compare with each other: of one kind and one start."""
        counts = Counter((row.kind, row.start) for row in self.rows)
        kind, start = max(sorted(counts), key=lambda group: counts[group])
        return [row for row in self.kinds()[kind] if row.start == start]

    def linear(self) -> list[Row]:
        """The linear models: from as many labelled rows as a student sees, then from all."""
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
        if len(known) < len(moves):
            return Sample(np.array(values))
        shaped = np.array(known).reshape(len(seeds), len(weights), -1)
        return Sample(np.array(values), np.einsum("swn,w->sn", shaped, by))

    def contrast(self, weights: Sequence[tuple[Row, float]], tasks_: Iterable[str]) -> Contrast:
        """A weighted sum of rows, mean over the tasks on which all have seeds and none has a † cell."""
        wanted = [task for task in tasks_ if not any(self.untrained(row, task) for row, _ in weights)]
        samples = {task: one for task in wanted if (one := self.sample(weights, task)) is not None}
        found = stats.estimate(list(samples.values())) if samples else None
        each = {task: stats.estimate([one]) for task, one in samples.items()}
        return Contrast(found, each, found.p if found else np.nan)

    def over(self, row: Row, other: Row | None, tasks_: Iterable[str]) -> Contrast:
        """A row minus another, say its `baseline`."""
        return self.contrast([(row, 1.0), (other, -1.0)], tasks_) if other else Contrast(None, {}, np.nan)

    def mean(self, row: Row) -> Estimate | None:
        """Over all tasks; None if a row lacks one."""
        samples = [self.sample([(row, 1.0)], task) for task in self.tasks]
        return None if any(sample is None for sample in samples) else stats.estimate(samples)  # type: ignore[arg-type]

    def untrained(self, row: Row, task: str) -> str | None:
        """Why a cell decides nothing (†): its seeds differ too much, or the task is not learnt yet, as is judged by the
        best budget of its ladder; without a ladder, by its teacher. Both count from guessing. Of metrics without an
        influence (tags, answers, texts, several labels) the seeds alone are judged."""
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

    def labelled(self, row: Row, there: float = math.inf) -> str:
        """How many labelled rows of train a row has seen, task by task: a network at most as many as its examples, and
        as a linear model's, or `there`, how many there are."""
        whole = {task: max((record["ledger"]["student_examples"] for other in self.linear()
                            for record in other.records(task)), default=there) for task in self.tasks}  # fmt: skip
        seen = {task: max(record["ledger"]["student_examples"] for record in row.records(task)) for task in row.cells}
        said = [f"{min(seen[task], whole[task]):,}" for task in self.tasks if task in seen]
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

    def inverse(splits: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        return {split: {"token_probability": 1 / values["perplexity"]} for split, values in splits.items()}

    metrics, teacher = inverse(record["metrics"]), record["teacher"]
    value = float(np.mean([values["token_probability"] for values in metrics.values()]))
    primary = record["primary"] | {"name": "token_probability", "value": value}
    teacher = teacher | {"metrics": inverse(teacher["metrics"])}
    return record | {"primary": primary, "metrics": metrics, "teacher": teacher}


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


# --- tables --------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """A header and rows, and the ways to print them; a row of one cell is a heading."""

    header: list[str]
    rows: list[list[str]]

    def columns(self, chosen: Collection[int]) -> Grid:
        """Some of its columns."""
        rows = [row if len(row) == 1 else [row[i] for i in chosen] for row in self.rows]
        return Grid([self.header[i] for i in chosen], rows)

    def markdown(self) -> str:
        width = len(self.header)
        full = [row if len(row) == width else [f"**{row[0]}**", *[""] * (width - 1)] for row in self.rows]
        first, *lines = ["| " + " | ".join(row) + " |" for row in (self.header, *full)]
        return "\n".join([first, "|---" * width + "|", *lines])

    def plain(self) -> str:
        """Aligned for a terminal: scores, and below them the columns from the first difference on."""
        width = len(self.header)
        at = next((i for i, name in enumerate(self.header) if name.startswith("over ")), width)
        parts = [range(at), [0, 1, *range(at, width)]][: 1 + (at < width)]
        return "\n\n".join(self.columns(part).block() for part in parts)

    def block(self) -> str:
        """A kind's heading on a line of its own, and no line that says nothing, nor a heading of none."""
        rows = [row for row in self.rows if len(row) == 1 or {*row[2:]} != {"-"}]
        rows = [row for row, after in zip(rows, [*rows[1:], [""]], strict=True) if len(row) > 1 or len(after) > 1]
        full = [[""] * len(self.header) if len(row) == 1 else row for row in rows]
        head, line, *body = results.columns(full, self.header).splitlines()
        shown = [f"[{row[0]}]" if len(row) == 1 else text for row, text in zip(rows, body, strict=True)]
        return "\n".join([head, line, *shown])


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


def mean_cell(found: Estimate | None) -> str:
    return "-" if found is None else found.text(".1f").removesuffix(" (one seed)")


def difference_cell(table: Table, row: Row) -> str:
    """Over vanilla KD; of KD over the undistilled student, which is said."""
    role = ROLES["finetune"] if row.role == ROLES["kd"] else ROLES["kd"]
    other = None if row.role == ROLES["finetune"] else table.baseline(row, role)
    if other is None:
        return "-"
    found = table.over(row, other, table.tasks)
    if found.found is None:
        return "†" if any(table.untrained(one, task) for one in (row, other) for task in table.tasks) else "-"
    part = f" (over {role})" * (row.role is not None)
    part += " (of full attention)" * (row.kind != other.kind == row.full)
    part += f" (mean of {len(found.tasks)} of {len(table.tasks)} tasks)" * (len(found.tasks) < len(table.tasks))
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
        found += [mean_cell(table.mean(row)), *[percent(area(table, row)) for _ in with_area]]
        asked = f"{row.typical('ledger', 'teacher_examples'):,.0f}"
        seen = [table.labelled(row) for _ in with_rows]
        return [*found, difference_cell(table, row), *seen, asked, row.method]

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
    scored: dict[tuple[str, str, float | None], set[str]] = {}
    for named, record in ((row.teacher, record) for row in table.rows for record in row.records()):
        if record["teacher"]["metrics"]:  # outputs in a file may have no score
            epochs = record["settings"].get("teacher_epochs")
            known = scored.setdefault((record["task"], named, epochs), set())
            known.add(f"{100 * teacher_score(record):.2f}")
    for (task, *_), values in scored.items():
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


def budget_of(names: Sequence[str]) -> int | None:
    """The budget that the files of matrices report, the first of several, where they agree on a number of examples."""
    files = [matrix.read_file(path) for name in names if (path := matrix.path_of(name)) is not None]
    said = {str((file.get("budgets") or [file.get("budget")])[0]) for file in files}
    return int(said.pop()) if len(said) == 1 and next(iter(said)).isdecimal() else None


# --- comparisons ---------------------------------------------------------------------------------------------


def contrasts(table: Table) -> Grid:
    lines = []
    for one in planned(table) + (planned(table, stats.LINEAR_OVER) if table.linear() else []):
        said = f"{one.word} ({one.why})" if one.why and one.found else one.word
        p = "-" if np.isnan(one.p) else "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
        figure = one.found.text() if one.found else "-"
        each = [one.tasks[task].text() if task in one.tasks else "-" for task in table.tasks]
        lines.append([one.what, figure, p, *each, said])
    return Grid(["contrast", "points", "p (Holm)", *map(short, table.tasks), "said"], lines)


def pair_table(table: Table) -> Grid:
    """The pairs of the arena. Bold: told apart; `=`: as good as; `~`: the tasks disagree."""
    rows = table.arena()
    found = pairs(table, rows, table.tasks)

    def shown(one: Contrast) -> str:
        if one.found is None:
            return "†"
        mark = "**" * (one.p < 0.05 and not one.disagree)
        return f"{mark}{100 * one.found.mean:+.1f}{mark}" + " =" * one.alike + " ~" * bool(one.disagree)

    lines = [[row.label, *("" if j <= i else shown(found[i, j]) for j in range(1, len(rows)))]
             for i, row in enumerate(rows[:-1])]  # fmt: skip
    return Grid(["minus", *(row.label for row in rows[1:])], lines)


def on_matched(table: Table) -> Table:
    """The table with the matched split alone of a task that reports several: mnli."""

    def alone(cell: Cell) -> Cell:
        record = cell.record
        split = next((name for name in record["metrics"] if name.endswith("_matched")), "")
        if not split:
            return cell

        def items() -> tuple[Splits, Splits]:
            found, labels = cell.items()
            return {name: values for name, values in found.items() if name == split}, labels

        value = record["metrics"][split][record["primary"]["name"]]
        return replace(cell, record=record | {"primary": record["primary"] | {"value": value}}, items=items)

    rows = [replace(row, cells={task: {seed: alone(cell) for seed, cell in cells.items()}
                                for task, cells in row.cells.items()}) for row in table.rows]  # fmt: skip
    return replace(table, rows=rows)


# --- the command ---------------------------------------------------------------------------------------------


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
