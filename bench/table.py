"""The tables of a matrix of runs, from its results alone.

    python -m bench table bench/quick.toml              # what `python -m bench run` left for this file
    python -m bench table runs/quick runs/more          # or any folders with results, or files that --save has written
    python -m bench table bench/real.toml --markdown
    python -m bench table bench/real.toml --save real   # also keep the results as bench/results/real.json

Of a folder that `bench run` has filled, the cells of its last matrix are read, not what else lies there; of any other
folder all results. Rows stand under their student's kind: its shape, its bits where they are fewer than 32, and its
attention where it is not full. The kind with most rows, the arena, comes first. Scores are primary metrics in percent,
mean ± standard deviation over seeds. Differences are paired by seed with the undistilled student and with vanilla KD of
the same kind, start, teacher and batch size, and of those the most alike in other settings; a 95% interval that holds
zero is called "not distinguishable". bench/RULES.md has the rules. Results that are not comparable are refused: other
data, splits or budgets; settings that differ between seeds; two results for one cell. Exit code 1: cells failed, or are
missing.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from bench.cli import FOLDER, Parser
from bench.cli import markdown as markdown_table
from bench.records import folder_of, read, save
from common import evaluate, results
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}
UNTRAINED = 0.08  # a standard deviation over seeds above this: some of them have not learnt the task
WANTED = 0.02  # the difference that a table should be able to tell
MOST_SEEDS = 1000

# --- statistics ----------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A mean and its 95% interval; None where there is one seed."""

    mean: float
    low: float | None
    high: float | None

    @property
    def word(self) -> str | None:
        """What a difference with this interval is called; None where there is one seed."""
        if self.low is None or self.high is None:
            return None
        return "not distinguishable" if self.low <= 0 <= self.high else "higher" if self.mean > 0 else "lower"


def interval(*samples: list[float]) -> Interval:
    """Mean over tasks of means over seeds, and its 95% interval: one sample of seeds for each task.

    Student's t, the variances of the tasks added up and their degrees of freedom as Welch and Satterthwaite have
    them. A bootstrap of three seeds would be far too sure of itself: its interval can be no wider than the three.
    """
    mean = float(np.mean([np.mean(values) for values in samples]))
    if any(len(values) < 2 for values in samples):
        return Interval(mean, None, None)
    shares = [float(np.var(values, ddof=1)) / len(values) for values in samples]
    if not sum(shares):
        return Interval(mean, mean, mean)
    freedom = sum(shares) ** 2 / sum(v**2 / (len(values) - 1) for v, values in zip(shares, samples, strict=True))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(shares)) / len(samples)
    return Interval(mean, mean - half, mean + half)


def seeds_to_tell(difference: float, *samples: list[float]) -> float | None:
    """Seeds with which `interval` would tell a difference of this size from zero in 80% of all cases.

    `samples`: paired differences, one sample of seeds for each task, from which the spread is estimated. The power of
    the two-sided t test, 95%. Infinite above `MOST_SEEDS`; None where the spread is unknown, since there is one seed.
    """
    if any(len(values) < 2 for values in samples):
        return None
    variances = [float(np.var(values, ddof=1)) for values in samples]
    if not sum(variances):
        return 2
    spread = math.sqrt(sum(variances)) / len(samples)
    independent = sum(variances) ** 2 / sum(v**2 for v in variances)  # tasks, as Welch and Satterthwaite count them
    for n in range(2, MOST_SEEDS + 1):
        freedom, shift = independent * (n - 1), abs(difference) * math.sqrt(n) / spread
        critical = float(stats.t.ppf(0.975, freedom))
        if shift > critical + 20 or float(stats.nct.sf(critical, freedom, shift)) >= 0.8:
            return n
    return math.inf


def verdict(found: Interval) -> str:
    """A difference in points, its interval, and what it says."""
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f} (one seed)"
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}], {found.word}"


def difference(left: list[float], right: list[float]) -> str:
    """Left minus right in points, paired by seed, with its 95% interval, and what it says."""
    return verdict(interval([a - b for a, b in zip(left, right, strict=True)]))


def cell(values: list[float]) -> str:
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
    def path(self) -> str:
        """Its name in files about all rows."""
        return str(Path(self.place, self.method, self.variant, self.apart))

    def values(self, task: str) -> list[float]:
        return [record["primary"]["value"] for _, record in sorted(self.records.get(task, {}).items())]

    def all(self) -> list[dict[str, Any]]:
        return [record for seeds in self.records.values() for record in seeds.values()]

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
        means = {id(row): mean.mean if (mean := self.mean(row)) else -math.inf for row in self.rows}

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

    def pairs(self, row: Row, role: str, tasks: Iterable[str]) -> list[list[float]]:
        """A row minus its baseline, as `paired` has it; empty without a baseline."""
        other = self.baseline(row, role)
        return self.paired(row, other, tasks) if other else []

    def paired(self, row: Row, other: Row, tasks: Iterable[str]) -> list[list[float]]:
        """A row minus another, paired by seed: one sample for each task on which both have a seed."""
        samples = []
        for task in tasks:
            ours, theirs = row.records.get(task, {}), other.records.get(task, {})
            if seeds := sorted(ours.keys() & theirs.keys()):
                samples.append([ours[s]["primary"]["value"] - theirs[s]["primary"]["value"] for s in seeds])
        return samples

    def difference(self, row: Row, role: str, tasks: Iterable[str]) -> tuple[Interval, int] | None:
        """A row over its baseline, and on how many tasks; None without a baseline, or a seed that both have."""
        samples = self.pairs(row, role, tasks)
        return (interval(*samples), len(samples)) if samples else None

    def mean(self, row: Row) -> Interval | None:
        """Over all tasks; None if a row lacks one."""
        samples = [row.values(task) for task in self.tasks]
        return interval(*samples) if all(samples) else None

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


def load(sources: Iterable[Path]) -> Table:
    """The table of the results under some folders and in some files. `BadInput` says what cannot stand in one table."""
    sources = list(dict.fromkeys(sources))
    read_from = [read(source) for source in sources]
    found = [one for some, _ in read_from for one in some]
    missing = [line for _, lacking in read_from for line in lacking]
    if not found:
        raise BadInput(f"{', '.join(map(str, sources))}: no result.json there")
    lengths: dict[str, set[int]] = {}  # teacher -> the lengths that it reads
    for _, _, record in found:
        lengths.setdefault(record["teacher"]["name"], set()).add(record["settings"].get("max_length"))
    cells: dict[tuple[str, str, str, str, str, str], list[dict[str, Any]]] = {}
    tasks: dict[str, dict[str, Any]] = {}
    where_is: dict[int, str] = {}
    for place, where, record in found:
        if record["primary"]["name"] == "perplexity":
            raise BadInput(f"{where}: a perplexity; it cannot be averaged with other metrics")
        first = tasks.setdefault(record["task"], record)
        if record["comparable"] != first["comparable"]:
            other = where_is[id(first)]
            raise BadInput(f"{where}: not comparable with {other}: {record['comparable']}, not {first['comparable']}")
        where_is[id(record)] = where
        teacher = record["teacher"]["name"]
        if len(lengths[teacher]) > 1:
            teacher += f", {record['settings'].get('max_length')} tokens"
        key = (place, record["method"], record["variant"], kind_of(record), start_of(record), teacher)
        cells.setdefault(key, []).append(record)
    rows: dict[tuple[str, ...], Row] = {}
    for alike, records in cells.items():
        names = unlike(records)
        for record in records:
            row = Row(*alike, ", ".join(f"{name} {settings_of(record).get(name)}" for name in names))
            seeds = rows.setdefault((*alike, row.apart), row).records.setdefault(record["task"], {})
            if (one := seeds.setdefault(record["seed"], record)) is not record:
                raise BadInput(f"{where_is[id(record)]}: the same cell as {where_is[id(one)]}")
    label(list(rows.values()))
    return Table(tasks, list(rows.values()), missing)


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
    cells = [cell(values) + " †" * untrained(values) if (values := row.values(task)) else "-" for task in table.tasks]
    return [*cells, mean_cell(table.mean(row))]


def untrained(values: list[float]) -> bool:
    return len(values) > 1 and float(np.std(values, ddof=1)) > UNTRAINED


def difference_cells(table: Table, row: Row, groups: list[list[str]]) -> list[str]:
    """Over each role, over each group of tasks."""
    cells = []
    for role, tasks in itertools.product(ROLES.values(), groups):
        found = None if row.role == ROLES["finetune"] else table.difference(row, role, tasks)
        other = table.baseline(row, role)
        part = " (of full attention)" if other and other.kind != row.kind else ""
        part += f" ({found[1]} of {len(tasks)} tasks)" if found and found[1] < len(tasks) else ""
        cells.append(verdict(found[0]) + part if found else "-")
    return cells


def power_cell(table: Table, row: Row) -> str:
    """Seeds that would tell a difference of `WANTED` from KD, or from the undistilled student where there is no KD."""
    roles = (ROLES["kd"], ROLES["finetune"]) if row.role != ROLES["finetune"] else ()
    samples = next(filter(None, (table.pairs(row, role, table.tasks) for role in roles)), None)
    count = seeds_to_tell(WANTED, *samples) if samples else None
    return "-" if count is None else f"> {MOST_SEEDS}" if math.isinf(count) else f"{count:.0f}"


POWER = f"seeds for {100 * WANTED:.0f} points"


def titles(table: Table) -> list[str]:
    return [f"{short(task)} {evaluate.TITLES[r['primary']['name']]}" for task, r in table.tasks.items()]


def scores(table: Table, rows: list[Row] | None = None) -> Grid:
    """The teachers; each row's scores by task, their mean, differences, and what it asked of the teacher."""
    over = [f"over {role}" for role in ROLES.values()]
    found = grid(table, [*titles(table), "mean", *over, POWER, "teacher examples", "script"], lambda row: [
        *score_cells(table, row), *difference_cells(table, row, [list(table.tasks)]), power_cell(table, row),
        f"{row.typical('ledger', 'teacher_examples'):,.0f}", row.method,
    ], rows)  # fmt: skip
    return Grid(found.header, [*teacher_lines(table, len(found.header)), *found.rows])


def by_task(table: Table) -> Grid:
    """Each row over the undistilled student and over vanilla KD of its kind, task by task."""
    header = [f"over {role}, {short(task)}" for role, task in itertools.product(ROLES.values(), table.tasks)]
    return grid(table, header, lambda row: difference_cells(table, row, [[task] for task in table.tasks]))


def teacher_lines(table: Table, width: int) -> list[list[str]]:
    names, lines = {task: record["primary"]["name"] for task, record in table.tasks.items()}, []
    for name, tasks in table.teachers().items():
        values = {t: np.mean([split[names[t]] for split in found["metrics"].values()]) for t, found in tasks.items()}
        cells = [f"{100 * values[task]:.1f}" if task in values else "-" for task in table.tasks]
        mean = f"{100 * np.mean(list(values.values())):.1f}" if len(values) == len(table.tasks) else "-"
        first = next(iter(tasks.values()))
        size = f"{first['parameters'] / 1e6:.2f}M parameters, {first['bytes'] / 1e6:.2f} MB"
        line = [f"teacher {Path(name).name}", size, *cells, mean]
        lines.append([*line, *["-"] * (width - len(line))])
    return lines


def mean_cell(found: Interval | None) -> str:
    if found is None:
        return "-"
    ends = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.mean:.1f}{ends}"


def how(table: Table) -> str:
    """What all rows share, in a paragraph."""
    seeds = ", ".join(map(str, sorted({record["seed"] for row in table.rows for record in row.all()})))
    teachers = ", ".join(Path(name).name for name in table.teachers())
    budgets = {t: f"{r['budget']['amount']:,} {r['budget']['kind']}" for t, r in table.tasks.items()}
    budget = ", ".join(f"{short(task)} {text}" for task, text in budgets.items())
    budget = budget if len(set(budgets.values())) > 1 else next(iter(budgets.values()))
    return (
        f"Tasks: {', '.join(map(short, table.tasks))}. Seeds: {seeds}. Budget: {budget} through each student."
        f" Teacher: {teachers}. Scores are in percent, mean ± standard deviation over seeds; means over tasks and"
        " differences with 95% intervals, differences in points and paired by seed with the student of the same kind"
        f" and start. The last but two columns: with how many seeds a difference of {100 * WANTED:.0f} points from"
        " vanilla KD (of KD: from the undistilled student) would be told in four cases of five."
    )


def footnote(table: Table) -> str:
    """What the mark at a score means, if there is one."""
    marked = any(untrained(row.values(task)) for row in table.rows for task in table.tasks)
    return (
        f"† The standard deviation over seeds is above {100 * UNTRAINED:.0f} points: some seeds have not learnt the"
        " task. Such a cell was not trained long enough to compare."
    ) * marked


def plain(grid: Grid) -> str:
    """Aligned for a terminal: scores, and below them the columns from the first difference on."""
    at = next(i for i, name in enumerate(grid.header) if name.startswith("over "))
    return f"{block(grid, range(at))}\n\n{block(grid, [0, 1, *range(at, len(grid.header))])}"


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


def markdown(table: Table) -> str:
    parts = [how(table), markdown_table(*scores(table)), footnote(table)]
    if table.missing:
        parts.append("Failed or missing:\n\n" + "\n".join(f"- {line}" for line in table.missing))
    return "\n\n".join(filter(None, parts))


def main(argv: list[str]) -> None:
    parser = Parser("table", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, folders with results, or files of --save")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--save", metavar="NAME", help="keep the results as bench/results/NAME.json")
    options = parser.parse_args(argv)
    sources = [folder_of(name) for name in options.results]
    table = load(sources)
    if options.markdown:
        print(markdown(table))
    else:
        print("\n\n".join(filter(None, [how(table), plain(scores(table)), footnote(table)])))
        for line in table.missing:
            print(f"failed or missing: {line}")
    if options.save:
        save(sources, FOLDER / f"{options.save}.json")
        print(f"saved: {FOLDER / options.save}.json")
    if table.missing:
        raise SystemExit(1)
