"""The tables of a matrix of runs, from its result.json files alone.

    python -m bench table bench/quick.toml              # what `python -m bench run` left for this file
    python -m bench table runs/quick runs/more          # or any folders with results
    python -m bench table bench/real.toml --markdown
    python -m bench table bench/real.toml --save real   # also keep the result.json files under bench/results/real

Rows stand under their student's kind: its shape, and its bits where they are fewer than 32. Scores are primary metrics
in percent, mean ± standard deviation over seeds. Differences are paired by seed with the undistilled student and with
vanilla KD of the same kind (of the same script where it has them); a 95% interval that holds zero is called "not
distinguishable". bench/RULES.md has the rules. Results that are not comparable are refused: other data, splits or
budgets; settings that differ between seeds; two results for one cell. Exit code 1: cells failed, or are missing.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench import matrix
from bench.cli import FOLDER, Parser
from bench.stats import Interval, cell, interval, paired, verdict
from common import data, metrics, results
from common.args import BadInput, fail

ROLES = {"finetune": "undistilled", "kd": "vanilla KD"}


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


class Difference(NamedTuple):
    """A row minus its baseline: by task, and over those tasks that both have."""

    by_task: dict[str, Interval]
    mean: Interval


class Grid(NamedTuple):
    """What is printed: a header and rows; a row of one cell is a heading."""

    header: list[str]
    rows: list[list[str]]


@dataclass
class Table:
    tasks: dict[str, str]  # task -> what its results share
    rows: list[Row]
    missing: list[str]  # cells that failed or were never run, and why

    def kinds(self) -> dict[str, list[Row]]:
        """Rows by kind, the largest students first; baselines before methods."""
        order = list(ROLES.values())
        found: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: -row.typical("student", "bytes")):
            found.setdefault(row.kind, []).append(row)
        return {
            kind: sorted(rows, key=lambda r: (order.index(r.role) if r.role else len(order), r.place, r.variant))
            for kind, rows in found.items()
        }

    def baseline(self, row: Row, role: str) -> Row | None:
        """The row of that role that a row is compared with: of its kind and teacher, of its own script if it can be."""
        if row.role == role:
            return None
        found = [r for r in self.rows if r.role == role and r.kind == row.kind and r.teacher == row.teacher]
        return min(found, key=lambda r: (r.place != row.place, r.method != row.method), default=None)

    def difference(self, row: Row, role: str) -> Difference | None:
        """Paired by seed; None without a baseline, or without a seed that both have."""
        if (other := self.baseline(row, role)) is None:
            return None
        samples = {}
        for task in self.tasks:
            ours, theirs = row.records.get(task, {}), other.records.get(task, {})
            if seeds := sorted(ours.keys() & theirs.keys()):
                value = [[side[seed]["primary"]["value"] for seed in seeds] for side in (ours, theirs)]
                samples[task] = paired(*value)
        if not samples:
            return None
        return Difference({task: interval(s) for task, s in samples.items()}, interval(*samples.values()))

    def mean(self, row: Row) -> Interval | None:
        """Over all tasks; None if a row lacks one."""
        samples = [row.values(task) for task in self.tasks]
        return interval(*samples) if all(samples) else None

    def teachers(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Teacher -> task -> what the results record of it."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for row in self.rows:
            for task, seeds in row.records.items():
                for record in seeds.values():
                    found.setdefault(row.teacher, {})[task] = record["teacher"]
        return found


# --- reading -------------------------------------------------------------------------------------------------


def kind_of(record: dict[str, Any]) -> str:
    bits = record["settings"].get("bits", 32)
    return f"student {record['student']['shape']}" + (f", {bits} bit{'s' if bits > 1 else ''}" if bits < 32 else "")


def load(folders: Iterable[Path]) -> Table:
    """The table of all results under some folders. `BadInput` says what cannot stand in one table."""
    rows: dict[tuple[str, ...], Row] = {}
    paths: dict[int, Path] = {}
    tasks: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder; `python -m bench run` makes it")
        missing += unfinished(folder)
        for path in sorted(folder.rglob("result.json")):
            record = results.load(path)
            if record["settings"].get("tune"):
                continue
            if record["primary"]["name"] == "perplexity":
                raise BadInput(f"{path}: a perplexity; it cannot be averaged with other metrics")
            first = tasks.setdefault(record["task"], record)
            if record["comparable"] != first["comparable"]:
                raise BadInput(
                    f"{path}: not comparable with {paths[id(first)]}: {record['comparable']}, not {first['comparable']}"
                )
            anything = next(iter(tasks.values()))
            if (ours := shown(record["budget"])) != (theirs := shown(anything["budget"])):
                raise BadInput(f"{path}: budget {ours}, but {theirs} in {paths[id(anything)]}")
            paths[id(record)] = path
            depth = len(Path(record["method"], record["task"], record["variant"], "seed", "result.json").parts)
            place = str(Path(*path.relative_to(folder).parts[:-depth]))
            key = (place, record["method"], record["variant"], kind_of(record), record["teacher"]["name"])
            seeds = rows.setdefault(key, Row(*key)).records.setdefault(record["task"], {})
            for other in seeds.values():
                if record["seed"] == other["seed"]:
                    raise BadInput(f"{path}: the same cell as {paths[id(other)]}")
                if differing := unlike(record, other):
                    raise BadInput(f"{path}: {differing} differs from {paths[id(other)]}, another seed of the same row")
            seeds[record["seed"]] = record
    if not rows:
        raise BadInput(f"{', '.join(map(str, folders))}: no result.json there")
    return Table({task: record["comparable"] for task, record in tasks.items()}, list(rows.values()), missing)


def shown(budget: dict[str, Any]) -> str:
    return f"{budget['amount']:,} {budget['kind']}"


def unlike(record: dict[str, Any], other: dict[str, Any]) -> str | None:
    """A setting in which two seeds of a row differ, where the seed is all that may."""
    ours, theirs = ({**r["settings"], "teacher": r["teacher"]["signature"]} for r in (record, other))
    return next((key for key in ours | theirs if key != "seed" and ours.get(key) != theirs.get(key)), None)


def unfinished(folder: Path) -> list[str]:
    """Of a matrix that was run into this folder: the commands without all results, and why."""

    def note(key: str) -> dict[str, Any]:
        path = folder / "jobs" / f"{key}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"status": "never run"}

    found = []
    for key in note_keys(folder):
        # of a command for several variants that failed, each was tried by itself
        parts = [f"{key}-{variant}" for variant in note(key).get("variants", [])]
        tried = [part for part in parts if note(part)["status"] != "never run"]
        for name in tried or [key]:
            if (status := note(name)["status"]) != "done" and note(key)["status"] != "done":
                found.append(f"{name}: {note(name).get('error', 'stopped' if status == 'running' else status)}")
    return found


def note_keys(folder: Path) -> list[str]:
    path = folder / "matrix.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


# --- printing ------------------------------------------------------------------------------------------------


def short(task: str) -> str:
    return task.removeprefix("pocket/")


def scores(table: Table) -> Grid:
    """Scores by task, their mean, sizes and times."""
    titles = [f"{short(task)} {metrics.TITLES[metrics.primary(data.task_of(task))]}" for task in table.tasks]
    header = ["student", *titles, "mean", "parameters", "MB", "train s", "script"]
    rows = []
    for name, tasks in table.teachers().items():
        values = []
        for task, teacher in tasks.items():
            scores = [split[metrics.primary(data.task_of(task))] for split in teacher["metrics"].values()]
            values.append(sum(scores) / len(scores))
        cells = dict(zip(tasks, (f"{100 * value:.1f}" for value in values), strict=True))
        mean = f"{100 * statistics.mean(values):.1f}" if len(values) == len(table.tasks) else "-"
        first = next(iter(tasks.values()))
        rows.append([f"teacher {Path(name).name}", *(cells.get(task, "-") for task in table.tasks), mean,
                     f"{first['parameters'] / 1e6:.2f}M", f"{first['bytes'] / 1e6:.2f}", "-", "-"])  # fmt: skip
    for kind, members in table.kinds().items():
        rows.append([kind])
        for row in members:
            cells = {task: cell(row.values(task)) for task in table.tasks if row.values(task)}
            rows.append([name_of(table, row), *(cells.get(task, "-") for task in table.tasks),
                         mean_cell(table.mean(row)), f"{row.typical('student', 'parameters') / 1e6:.2f}M",
                         f"{row.typical('student', 'bytes') / 1e6:.2f}",
                         f"{row.typical('ledger', 'seconds'):.0f}", row.method])  # fmt: skip
    return Grid(header, rows)


def name_of(table: Table, row: Row) -> str:
    several = len({other.teacher for other in table.rows}) > 1
    return row.label + (f" from {Path(row.teacher).name}" if several else "")


def mean_cell(found: Interval | None) -> str:
    if found is None:
        return "-"
    text = f"{100 * found.mean:.1f}"
    return (
        text if found.low is None or found.high is None else f"{text} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    )


def differences(table: Table, by_task: bool = False) -> Grid:
    """Each row over the undistilled student and over vanilla KD of its kind: over all tasks, or task by task."""
    roles = list(ROLES.values())
    tasks = list(table.tasks) if by_task else [None]
    titles = [f"over {role}" + (f", {short(task)}" if task else "") for role in roles for task in tasks]
    header = ["student", *titles, "script"]
    rows = []
    for kind, members in table.kinds().items():
        block = []
        for row in members:
            cells = []
            for role in roles:
                found = None if row.role == ROLES["finetune"] else table.difference(row, role)
                for task in tasks:
                    if found is None:
                        cells.append("-")
                    elif task is not None:
                        cells.append(verdict(found.by_task[task]) if task in found.by_task else "-")
                    else:
                        count = len(found.by_task)
                        part = "" if count == len(table.tasks) else f" ({count} of {len(table.tasks)} tasks)"
                        cells.append(verdict(found.mean) + part)
            if any(text != "-" for text in cells):
                block.append([name_of(table, row), *cells, row.method])
        if block:
            rows += [[kind], *block]
    return Grid(header, rows)


def how(table: Table) -> str:
    """What all rows share, in a paragraph."""
    records = [record for row in table.rows for record in row.all()]
    seeds = ", ".join(str(seed) for seed in sorted({record["seed"] for record in records}))
    teachers = ", ".join(Path(name).name for name in table.teachers())
    tasks = ", ".join(map(short, table.tasks))
    return (
        f"Tasks: {tasks}. Seeds: {seeds}. Budget: {shown(records[0]['budget'])} through each student."
        f" Teacher: {teachers}. Scores are in percent, mean ± standard deviation over seeds; means over tasks and"
        " differences with 95% intervals, differences in points and paired by seed."
    )


def plain(grid: Grid) -> str:
    """Aligned for a terminal; a heading on a line of its own."""
    blank = [""] * len(grid.header)
    rows = [row if len(row) > 1 else blank for row in grid.rows]
    lines = results.columns(rows, grid.header).splitlines()
    for number, row in enumerate(grid.rows):
        if len(row) == 1:
            lines[number + 2] = f"[{row[0]}]"
    return "\n".join(lines)


def markdown_grid(grid: Grid) -> str:
    lines = ["| " + " | ".join(grid.header) + " |", "|---" * len(grid.header) + "|"]
    for row in grid.rows:
        cells = [f"**{row[0]}**", *[""] * (len(grid.header) - 1)] if len(row) == 1 else row
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown(table: Table) -> str:
    parts = [how(table), markdown_grid(scores(table)), markdown_grid(differences(table))]
    if table.missing:
        parts.append("Failed or missing:\n\n" + "\n".join(f"- {line}" for line in table.missing))
    return "\n\n".join(parts)


def folder_of(name: str) -> Path:
    """The folder of a matrix's results, or a folder as it is."""
    return matrix.place_of(Path(name)) if name.endswith(".toml") else Path(name)


def copy_results(folders: Iterable[Path], to: Path) -> None:
    """Keep the result.json files alone, in the same folders."""
    for folder in folders:
        for path in folder.rglob("result.json"):
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def main(argv: list[str]) -> None:
    parser = Parser("table", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, or folders with results")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--save", metavar="NAME", help="keep the result.json files under bench/results/NAME")
    options = parser.parse_args(argv)
    try:
        folders = [folder_of(name) for name in options.results]
        table = load(folders)
    except BadInput as error:
        fail(error)
    if options.markdown:
        print(markdown(table))
    else:
        print(f"{how(table)}\n\n{plain(scores(table))}\n\n{plain(differences(table))}")
        for line in table.missing:
            print(f"failed or missing: {line}")
    if options.save:
        copy_results(folders, FOLDER / options.save)
    if table.missing:
        raise SystemExit(1)
