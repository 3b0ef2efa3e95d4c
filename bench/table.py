"""The tables of a matrix of runs, from its result.json files alone.

    python -m bench table bench/quick.toml              # what `python -m bench run` left for this file
    python -m bench table runs/quick runs/more          # or any folders with results
    python -m bench table bench/real.toml --markdown
    python -m bench table bench/real.toml --save real   # also keep the result.json files under bench/results/real

Of a folder that `bench run` has filled, the cells of its last matrix are read, not what else lies there; of any other
folder all results. Rows stand under their student's kind: its shape, and its bits where they are fewer than 32. Scores
are primary metrics in percent, mean ± standard deviation over seeds. Differences are paired by seed with the
undistilled student and with vanilla KD of the same kind (of the same script where it has them); a 95% interval that
holds zero is called "not distinguishable". bench/RULES.md has the rules. Results that are not comparable are refused:
other data, splits or budgets; settings that differ between seeds; two results for one cell. Exit code 1: cells failed,
or are missing.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from bench import run
from bench.cli import FOLDER, Parser
from bench.cli import markdown as markdown_table
from common import evaluate, results
from common.args import BadInput

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}

# --- statistics ----------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A mean and its 95% interval; None where there is one seed."""

    mean: float
    low: float | None
    high: float | None


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


def verdict(found: Interval) -> str:
    """A difference in points, its interval, and what it says."""
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f} (one seed)"
    word = "not distinguishable" if found.low <= 0 <= found.high else "higher" if found.mean > 0 else "lower"
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}], {word}"


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
    teacher: str
    records: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def role(self) -> str | None:
        """`finetune-1bit` is the undistilled student of its kind, `kd-1bit` vanilla KD."""
        return ROLES.get(self.variant.split("-")[0])

    @property
    def path(self) -> str:
        """Its name in files about all rows."""
        return str(Path(self.place, self.method, self.variant))

    @property
    def label(self) -> str:
        return self.role or self.variant

    def values(self, task: str) -> list[float]:
        return [record["primary"]["value"] for _, record in sorted(self.records.get(task, {}).items())]

    def all(self) -> list[dict[str, Any]]:
        return [record for seeds in self.records.values() for record in seeds.values()]

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

    def kinds(self) -> dict[str, list[Row]]:
        """Rows by kind, the largest students first; baselines before methods."""
        order = list(ROLES.values())
        kinds: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: -row.typical("student", "bytes")):
            kinds.setdefault(row.kind, []).append(row)
        return {
            kind: sorted(rows, key=lambda r: (order.index(r.role) if r.role else len(order), r.place, r.variant))
            for kind, rows in kinds.items()
        }

    def baseline(self, row: Row, role: str) -> Row | None:
        """The row of that role that a row is compared with: of its kind and teacher, of its own script if it can be."""
        if row.role == role:
            return None
        rows = [r for r in self.rows if r.role == role and r.kind == row.kind and r.teacher == row.teacher]
        return min(rows, key=lambda r: (r.place != row.place, r.method != row.method), default=None)

    def difference(self, row: Row, role: str, tasks: Iterable[str]) -> tuple[Interval, int] | None:
        """A row minus its baseline, paired by seed, over those of the tasks that both have, and how many these are;
        None without a baseline, or without a seed that both have."""
        if (other := self.baseline(row, role)) is None:
            return None
        samples = []
        for task in tasks:
            ours, theirs = row.records.get(task, {}), other.records.get(task, {})
            if seeds := sorted(ours.keys() & theirs.keys()):
                samples.append([ours[s]["primary"]["value"] - theirs[s]["primary"]["value"] for s in seeds])
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
    bits = record["settings"].get("bits", 32)
    return f"student {record['student']['shape']}" + (f", {bits} bit{'s' if bits > 1 else ''}" if bits < 32 else "")


def load(folders: Iterable[Path]) -> Table:
    """The table of the results under some folders. `BadInput` says what cannot stand in one table."""
    records: dict[Path, tuple[Path, dict[str, Any]]] = {}  # path -> its folder, and the result
    missing: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder; `python -m bench run` makes it")
        paths, lacking = cells_of(folder)
        missing += lacking
        records |= {path: (folder, results.load(path)) for path in paths}
    records = {path: pair for path, pair in records.items() if not pair[1]["settings"].get("tune")}
    if not records:
        raise BadInput(f"{', '.join(map(str, folders))}: no result.json there")
    lengths: dict[str, set[int]] = {}  # teacher -> the lengths that it reads
    for _, record in records.values():
        lengths.setdefault(record["teacher"]["name"], set()).add(record["settings"].get("max_length"))
    rows: dict[tuple[str, ...], Row] = {}
    tasks: dict[str, dict[str, Any]] = {}
    paths_of: dict[int, Path] = {}
    for path, (folder, record) in records.items():
        if record["primary"]["name"] == "perplexity":
            raise BadInput(f"{path}: a perplexity; it cannot be averaged with other metrics")
        first = tasks.setdefault(record["task"], record)
        if record["comparable"] != first["comparable"]:
            other = paths_of[id(first)]
            raise BadInput(f"{path}: not comparable with {other}: {record['comparable']}, not {first['comparable']}")
        paths_of[id(record)] = path
        depth = len(Path(record["method"], record["task"], record["variant"], "seed", "result.json").parts)
        place = str(Path(*path.relative_to(folder).parts[:-depth]))
        teacher = record["teacher"]["name"]
        if len(lengths[teacher]) > 1:
            teacher += f", {record['settings'].get('max_length')} tokens"
        key = (place, record["method"], record["variant"], kind_of(record), teacher)
        seeds = rows.setdefault(key, Row(*key)).records.setdefault(record["task"], {})
        for seed in seeds.values():
            if record["seed"] == seed["seed"]:
                raise BadInput(f"{path}: the same cell as {paths_of[id(seed)]}")
            if differing := unlike(record, seed):
                raise BadInput(f"{path}: {differing} differs from {paths_of[id(seed)]}, another seed of the same row")
        seeds[record["seed"]] = record
    return Table(tasks, list(rows.values()), missing)


def unlike(record: dict[str, Any], other: dict[str, Any]) -> str | None:
    """A setting in which two seeds of a row differ, where the seed is all that may."""
    ours, theirs = ({**r["settings"], "teacher": r["teacher"]["signature"]} for r in (record, other))
    return next((key for key in ours | theirs if key != "seed" and ours.get(key) != theirs.get(key)), None)


def cells_of(folder: Path) -> tuple[list[Path], list[str]]:
    """(results, what is missing and why) of the matrix that was run into a folder; of another folder all results."""
    if not (folder / "matrix.json").is_file():
        return sorted(folder.rglob("result.json")), []

    def note(key: str) -> dict[str, Any]:
        path = folder / "jobs" / f"{key}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"status": "never run"}

    paths, missing = [], []
    for key in json.loads((folder / "matrix.json").read_text(encoding="utf-8")):
        # of a command for several variants that failed, each was tried by itself
        parts = [f"{key}-{variant}" for variant in note(key).get("variants", [])]
        tried = [] if note(key)["status"] == "done" else [p for p in parts if note(p)["status"] != "never run"]
        for name in tried or [key]:
            if (status := note(name)["status"]) == "done":
                paths += [folder / path for path in note(name)["results"]]
            else:
                missing.append(f"{name}: {note(name).get('error', 'stopped' if status == 'running' else status)}")
    return sorted(path for path in set(paths) if path.is_file()), missing


def folder_of(name: str) -> Path:
    """The folder of a matrix's results, or a folder as it is."""
    return results.ROOT / run.out_of(Path(name)) if name.endswith(".toml") else Path(name)


# --- printing ------------------------------------------------------------------------------------------------


def short(task: str) -> str:
    return task.removeprefix("pocket/")


def scores(table: Table) -> Grid:
    """Scores by task, their mean, sizes and times."""
    names = {task: record["primary"]["name"] for task, record in table.tasks.items()}
    titles = [f"{short(task)} {evaluate.TITLES[name]}" for task, name in names.items()]
    header = ["student", *titles, "mean", "parameters", "MB", "train s", "script"]
    rows = []
    for name, tasks in table.teachers().items():
        values = {t: np.mean([split[names[t]] for split in found["metrics"].values()]) for t, found in tasks.items()}
        cells = [f"{100 * values[task]:.1f}" if task in values else "-" for task in table.tasks]
        mean = f"{100 * np.mean(list(values.values())):.1f}" if len(values) == len(table.tasks) else "-"
        first = next(iter(tasks.values()))
        rows.append([f"teacher {Path(name).name}", *cells, mean, f"{first['parameters'] / 1e6:.2f}M",
                     f"{first['bytes'] / 1e6:.2f}", "-", "-"])  # fmt: skip
    for kind, members in table.kinds().items():
        rows.append([kind])
        for row in members:
            cells = [cell(row.values(task)) if row.values(task) else "-" for task in table.tasks]
            rows.append([name_of(table, row), *cells, mean_cell(table.mean(row)),
                         f"{row.typical('student', 'parameters') / 1e6:.2f}M",
                         f"{row.typical('student', 'bytes') / 1e6:.2f}",
                         f"{row.typical('ledger', 'seconds'):.0f}", row.method])  # fmt: skip
    return Grid(header, rows)


def name_of(table: Table, row: Row) -> str:
    several = len({other.teacher for other in table.rows}) > 1
    return row.label + (f" from {Path(row.teacher).name}" if several else "")


def mean_cell(found: Interval | None) -> str:
    if found is None:
        return "-"
    ends = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.mean:.1f}{ends}"


def differences(table: Table, by_task: bool = False) -> Grid:
    """Each row over the undistilled student and over vanilla KD of its kind: over all tasks, or task by task."""
    roles = list(ROLES.values())
    groups = [[task] for task in table.tasks] if by_task else [list(table.tasks)]
    titles = [f"over {role}" + (f", {short(tasks[0])}" if by_task else "") for role in roles for tasks in groups]
    rows = []
    for kind, members in table.kinds().items():
        block = []
        for row in members:
            cells = []
            for role, tasks in itertools.product(roles, groups):
                found = None if row.role == ROLES["finetune"] else table.difference(row, role, tasks)
                part = f" ({found[1]} of {len(tasks)} tasks)" if found and found[1] < len(tasks) else ""
                cells.append(verdict(found[0]) + part if found else "-")
            if any(text != "-" for text in cells):
                block.append([name_of(table, row), *cells, row.method])
        rows += [[kind], *block] if block else []
    return Grid(["student", *titles, "script"], rows)


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
        " differences with 95% intervals, differences in points and paired by seed."
    )


def plain(grid: Grid) -> str:
    """Aligned for a terminal; a heading on a line of its own."""
    blank = [""] * len(grid.header)
    lines = results.columns([row if len(row) > 1 else blank for row in grid.rows], grid.header).splitlines()
    for number, row in enumerate(grid.rows):
        if len(row) == 1:
            lines[number + 2] = f"[{row[0]}]"
    return "\n".join(lines)


def markdown(table: Table) -> str:
    parts = [how(table), markdown_table(*scores(table)), markdown_table(*differences(table))]
    if table.missing:
        parts.append("Failed or missing:\n\n" + "\n".join(f"- {line}" for line in table.missing))
    return "\n\n".join(parts)


def main(argv: list[str]) -> None:
    parser = Parser("table", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, or folders with results")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--save", metavar="NAME", help="keep the result.json files under bench/results/NAME")
    options = parser.parse_args(argv)
    folders = [folder_of(name) for name in options.results]
    table = load(folders)
    if options.markdown:
        print(markdown(table))
    else:
        print(f"{how(table)}\n\n{plain(scores(table))}\n\n{plain(differences(table))}")
        for line in table.missing:
            print(f"failed or missing: {line}")
    for folder in folders if options.save else ():
        for path in cells_of(folder)[0]:
            target = FOLDER / options.save / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if table.missing:
        raise SystemExit(1)
