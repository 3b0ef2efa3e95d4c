"""The papers' own tables: the figures as printed, and the command of every row.

    python -m bench papers mc3kd                         # every table of the paper
    python -m bench papers xtc --table C.9               # one of them
    python -m bench papers cka --table 6 --commands      # the command of every row, with the hub's data and weights
    python -m bench papers mc3kd --table 1 --commands | sh               # a whole table, one row after the other

The figures stand in bench/published/METHOD.toml, as printed, and nowhere else:

    common      arguments of every command of the paper
    columns     a column -> the tasks that its figures are of: "TASK:METRIC", "TASK:SPLIT.METRIC", "TASK:#ANALYSIS";
                "mean of" and several; "! reason" where no run has it
    words       a column of labels -> a label -> what it stands for in a table's `run`: one text for {COLUMN}, several
                by name, "! reason" where nothing runs, "= teacher" for the fine-tuned teacher. A key of several
                columns, "A | B", adds to what they say apart, and replaces it
    per_task    name -> task -> arguments of its commands alone
    tables      name, what (it holds), labels, columns, run (arguments of a row's command; without it nothing runs),
                per_task, remarks, rows: a line each, its labels and its cells between "|", "-" where the paper has
                none
    sizes       tables of sizes, likewise

A row that starts from another, runs/..., needs that one first.
"""

from __future__ import annotations

import shlex
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import NamedTuple

from bench import Parser
from common import results
from common.args import BadInput
from common.tasks import TASKS

FOLDER = results.ROOT / "bench" / "published"


class PrintedRow(NamedTuple):
    labels: tuple[str, ...]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(label for label in self.labels if label != "-")


@dataclass(frozen=True)
class PrintedTable:
    name: str
    what: str
    labels: list[str]
    columns: list[str]
    rows: list[PrintedRow]
    run: str | None = None
    per_task: str | None = None
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Paper:
    method: str
    paper: str
    columns: dict[str, str]
    words: dict[str, dict[str, str | dict[str, str]]]
    tables: list[PrintedTable]
    sizes: list[PrintedTable]
    common: str = ""
    remarks: list[str] = field(default_factory=list)
    per_task: dict[str, dict[str, str]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [table.name for table in self.tables + self.sizes]


def methods() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != "claims")


@cache
def load(method: str) -> Paper:
    """A paper's file; a key that is unknown or lacking is a `TypeError`."""
    raw = tomllib.loads((FOLDER / f"{method}.toml").read_text(encoding="utf-8"))
    for table in raw["tables"] + raw.setdefault("sizes", []):
        width = len(table["labels"])
        lines = [tuple(map(str.strip, line.split("|"))) for line in table["rows"].strip().splitlines()]
        table["rows"] = [PrintedRow(parts[:width], parts[width:]) for parts in lines]
    made = {kind: [PrintedTable(**table) for table in raw[kind]] for kind in ("tables", "sizes")}
    return Paper(method=method, **raw | made)


# --- what a row means ----------------------------------------------------------------------------------------


def filled(text: str, values: dict[str, str]) -> str:
    """A template with its {NAMES}; a name that no label has a value for is empty."""
    return text.format_map(defaultdict(str, values))


def pairs(words: Iterable[str]) -> dict[str, str]:
    """Options and their values, in turn, as a dictionary; of one that comes again the last value."""
    words = list(words)
    return dict(zip(words[::2], words[1::2], strict=True))


@dataclass(frozen=True, eq=False)
class Line:
    """A row of a paper's table: what its labels say, and its commands."""

    paper: Paper
    table: PrintedTable
    row: PrintedRow

    @cached_property
    def said(self) -> list[str | dict[str, str]]:
        """What its labels stand for, each in the paper's words, then those that mean something together."""
        words, labels = self.paper.words, dict(zip(self.table.labels, self.row.labels, strict=True))
        said: list[str | dict[str, str]] = []
        for column, label in labels.items():
            word = words[column][label] if column in words else label
            said.append({column: word} if isinstance(word, str) and word[:2] not in ("! ", "= ") else word)
        for columns in (columns for columns in words if " | " in columns):
            together = " | ".join(labels.get(part, "") for part in columns.split(" | "))
            said += [words[columns][together]] if together in words[columns] else []
        return said

    @cached_property
    def values(self) -> dict[str, str]:
        """What its labels put into templates."""
        return {name: value for word in self.said if isinstance(word, dict) for name, value in word.items()}

    @property
    def teacher(self) -> bool:
        return "= teacher" in self.said

    @cached_property
    def reason(self) -> str | None:
        """Why nothing runs, if it is so."""
        reasons = [word[2:] for word in self.said if isinstance(word, str) and word.startswith("! ")]
        return next(iter(reasons), None if self.table.run is not None or self.teacher else "nothing to run")

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that it has figures of."""
        there = [name for name, cell in zip(self.table.columns, self.row.cells, strict=True) if cell != "-"]
        columns = [filled(self.paper.columns[name], self.values) for name in there]
        runs = [column for column in columns if not column.startswith(("! ", "mean of "))]
        return list(dict.fromkeys(column.partition(":")[0] for column in runs))

    def options(self, task: str) -> dict[str, str]:
        """Option -> value of its command for a task; what stands later replaces what stands before."""
        tasks = self.paper.per_task[self.table.per_task] if self.table.per_task else {}
        local = task in TASKS and bool(TASKS[task].splits) and not TASKS[task].hub  # none of the hub serves it
        words = f"{self.paper.common} {self.table.run or ''} {tasks.get(task, '')}" + " --data-dir DIR" * local
        said = self.values | {"task": task}
        found: dict[str, str] = {}
        for option, value in pairs(shlex.split(words)).items():
            if "{" in value:  # a label may stand for a value and further options, or for none
                parts = [option, *shlex.split(filled(filled(value, said), said))]
                found |= pairs(parts) if len(parts) > 1 else {}
            else:
                found[option] = value
        return found

    @cached_property
    def commands(self) -> tuple[list[list[str]], str]:
        """(the command lines, one for all tasks of like arguments; why there is none)."""
        if self.reason is not None:
            return [], self.reason
        if self.teacher:
            return [], "the fine-tuned teacher: every run from it records its figures"
        lines: dict[tuple[str, ...], list[str]] = {}
        for task in self.tasks:
            lines.setdefault(tuple(chain(*self.options(task).items())), []).append(task)
        found = []
        for words, tasks in lines.items():
            script = f"bench/baselines/{pairs(words)['--variant']}.py"  # that of a rival, of another paper
            if not (results.ROOT / script).is_file():
                script = f"methods/{self.paper.method}.py"
            found.append(["python", script, "--task", ",".join(tasks), *words])
        return found, "" if found else "no column is of a task here"


def lines_of(paper: Paper, table: PrintedTable) -> list[Line]:
    return [Line(paper, table, row) for row in table.rows]


def typed(words: list[str]) -> str:
    """A command as a shell takes it: the pattern of an earlier row's folder is the shell's to resolve."""
    return " ".join(word if word.startswith("runs/") else shlex.quote(word) for word in words)


# --- printing ------------------------------------------------------------------------------------------------


def wrapped(remark: str) -> str:
    return textwrap.fill(remark, 110, initial_indent="- ", subsequent_indent="  ")


def table_text(table: PrintedTable, reasons: list[str]) -> str:
    """A table as printed; `reasons`: why a row has no command, the last column."""
    names = [*table.labels, *table.columns, ""]
    rows = [[*row.labels, *row.cells, why] for row, why in zip(table.rows, reasons, strict=True)]
    text = results.columns(rows, names, (*range(len(table.labels)), len(names) - 1))
    return "\n".join([f"Table {table.name}. {table.what}", text, *map(wrapped, table.remarks)])


def commands_text(paper: Paper, table: PrintedTable) -> str:
    said = [f"# Table {table.name}. {table.what}"]
    for line in lines_of(paper, table):
        found, why = line.commands
        said += [f"# {line.row}" + (f": {why}" if why else ""), *map(typed, found)]
    return "\n".join([*said, *(f"# Note: {remark}" for remark in table.remarks)])


def main(argv: list[str]) -> None:
    parser = Parser("papers", __doc__)
    parser.add_argument("method", choices=methods(), help="whose paper")
    parser.add_argument("--table", metavar="NAME", help="one table alone, as the paper numbers it")
    parser.add_argument("--commands", action="store_true", help="print the command of every row instead")
    asked = parser.parse_args(argv)
    paper = load(asked.method)
    if asked.table is not None and asked.table not in paper.names():
        raise BadInput(f"--table {asked.table}: {asked.method} has {', '.join(paper.names())}")
    tables = [table for table in paper.tables if asked.table in (None, table.name)]
    if asked.commands:
        texts = [commands_text(paper, table) for table in tables]
    else:
        texts = [table_text(table, [line.reason or "" for line in lines_of(paper, table)]) for table in tables]
        sizes = [table for table in paper.sizes if asked.table in (None, table.name)]
        texts += [table_text(table, [""] * len(table.rows)) for table in sizes]
    mark = "# " * asked.commands  # of what a shell leaves alone
    remarks = "\n".join(mark + line for remark in paper.remarks for line in wrapped(remark).splitlines())
    print("\n\n".join([mark + paper.paper, *texts, *[remarks] * bool(tables and remarks)]))
