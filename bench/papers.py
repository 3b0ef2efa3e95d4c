"""The papers' own tables: what each paper has, what ran here, and the difference.

    python -m bench papers mc3kd                         # every table of the paper
    python -m bench papers xtc --table C.9               # one of them
    python -m bench papers cmow --table VII              # sizes are counted now, no run is needed
    python -m bench papers cka --table 6 --commands      # the command of every row, with the hub's data and weights
    python -m bench papers mc3kd --table 1 --commands | sh               # a whole table, one row after the other
    python -m bench papers mc3kd --results runs,DIR      # where to look for result.json files

The figures stand in bench/published/METHOD.toml, as printed, and nowhere else. bench/published/schema.json describes
the layout: a row's labels are turned into a command by `words` and `run`, a column names the metric. The tables print
one line for each cell: paper, ours, difference, remark.

Which result is of which row: its method, its task (never a pocket task), its variant, and every argument that the
table's rows differ in, teacher and student included. A model of an earlier row, runs/..., is known by its content.
Whatever else is not as in the row's command (the budget, a subset of the data, local files, a learning rate, a corpus)
is named beside the figure: only a figure without such a remark is a reproduction. Of several such results those with
the fewest remarks count, and several seeds are averaged. A result that would be of two rows with different commands
fills neither. Results that match no row are listed below the tables.

A row that starts from another, runs/..., needs that one first.
"""

from __future__ import annotations

import glob
import json
import math
import re
import shlex
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench import matrix
from bench.cli import Parser, dashed
from bench.published import Paper, PrintedRow, PrintedTable, load, methods
from common import results
from common.args import BadInput, parse_model, read, split_paths
from common.tasks import TASKS

HEADER = ["", "column", "paper", "ours", "difference", ""]
WORDS = (0, 1, 5)  # its columns that hold no figures
MODELS = ("teacher", "init")
# Arguments whose value a script derives where they are left out; of the others the default is what is wanted
DERIVED = {"lr", "init", "student", "max_length", "reduce_share", "diffcat", "assistant", "pool", "beta", "tokens",
           "last"}  # fmt: skip

# --- what a row and a column mean ----------------------------------------------------------------------------


class Ref(NamedTuple):
    """Where a result holds a figure: `metrics` (of one split, or the mean over those reported) or, `#`, `analysis`."""

    task: str
    split: str | None
    name: str


class Spec(NamedTuple):
    """A column: the figures that its cells hold, one after the other or as their mean, or why there are none."""

    refs: tuple[Ref, ...]
    mean: bool = False
    reason: str | None = None


def spec(text: str) -> Spec:
    """`"mrpc:f1/accuracy"`, `"mean of A B C"` or `"! reason"`."""
    if text.startswith("! "):
        return Spec((), reason=text[2:])
    if text.startswith("mean of "):
        return Spec(tuple(ref for part in text.split()[2:] for ref in spec(part).refs), mean=True)
    task, figures = text.split(":")
    found = [figure.rpartition(".") for figure in figures.split("/")]
    return Spec(tuple(Ref(task, split or None, name) for split, _, name in found))


def filled(text: str, values: dict[str, str]) -> str:
    """A template with its {NAMES}; a name that no label has a value for is empty."""
    return text.format_map(defaultdict(str, values))


def pairs(words: Iterable[str]) -> dict[str, str]:
    """Options and their values, in turn, as a dictionary; of one that comes again the last value."""
    words = list(words)
    return dict(zip(words[::2], words[1::2], strict=True))


def local(task: str) -> bool:
    """Whether a task is read from files alone, as no repository of the hub serves it."""
    return task in TASKS and bool(TASKS[task].splits) and not TASKS[task].hub


@dataclass(frozen=True, eq=False)
class Line:
    """A row of a paper's table: what its labels say, its commands, and the results that are of it."""

    paper: Paper
    table: PrintedTable
    row: PrintedRow
    records: list[dict[str, Any]] = field(default_factory=list)  # of this paper's method

    @cached_property
    def said(self) -> list[str | dict[str, str]]:
        """What its labels stand for, each in the paper's words, then those that mean something together."""
        words, labels = self.paper.words, dict(zip(self.table.labels, self.row.labels, strict=True))
        said: list[str | dict[str, str]] = []
        for column, label in labels.items():
            if column in words and label not in words[column]:
                where = f"{self.paper.method}, table {self.table.name}"
                raise ValueError(f"{where}: no word for {column} {label!r}")
            word = words.get(column, {}).get(label, label)
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

    @property
    def columns(self) -> list[tuple[str, str, Spec]]:
        """(its name, the cell as printed, what it means) of each column that the row has a cell in."""
        cells = zip(self.table.columns, self.row.cells, strict=True)
        return [
            (name, cell, spec(filled(self.paper.columns[name], self.values))) for name, cell in cells if cell != "-"
        ]

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that it has figures of."""
        columns = [column for _, _, column in self.columns if not column.mean]
        return list(dict.fromkeys(ref.task for column in columns for ref in column.refs))

    @cache  # noqa: B019
    def options(self, task: str) -> tuple[dict[str, str], set[str]]:
        """Option -> value of its command for a task, where what stands later replaces what stands before; and the
        options that come from the labels: in these the rows of a table differ."""
        tasks = self.paper.per_task[self.table.per_task] if self.table.per_task else {}
        words = f"{self.paper.common} {self.table.run or ''} {tasks.get(task, '')}" + " --data-dir DIR" * local(task)
        said = self.values | {"task": task}
        found: dict[str, str] = {}
        labelled: set[str] = set()
        for option, value in pairs(shlex.split(words)).items():
            if "{" in value:  # a label may stand for a value and further options, or for none
                parts = [option, *shlex.split(filled(filled(value, said), said))]
                given = pairs(parts) if len(parts) > 1 else {}
                labelled |= set(given)
            else:
                given = {option: value}
            found |= given
        return found, labelled - set(shlex.split(" ".join(tasks.values())))

    def args(self, task: str) -> Any:
        return wanted_args(self.paper.method, ("--task", task, *chain(*self.options(task)[0].items())))

    @cached_property
    def commands(self) -> tuple[list[list[str]], str]:
        """(the command lines, one for all tasks of like arguments; why there is none)."""
        if self.reason is not None:
            return [], self.reason
        if self.teacher:
            return [], "the fine-tuned teacher: every run from it records its figures"
        lines: dict[tuple[str, ...], list[str]] = {}
        for task in self.tasks:
            lines.setdefault(tuple(chain(*self.options(task)[0].items())), []).append(task)
        script = ["python", f"methods/{self.paper.method}.py", "--task"]
        why = "" if self.tasks else "no column is of a task here"
        return [[*script, ",".join(tasks), *words] for words, tasks in lines.items()], why

    @cache  # noqa: B019
    def found(self, task: str) -> Found | None:
        """Its results on a task: those that deviate least from its command, of these the group with most seeds."""
        given, labelled = self.options(task)
        name, student = self.paper.called.get(task, task), given.get("--student")
        mine = [record for record in self.records if record["task"] == name and is_of(given.get("--teacher"), record)]
        if self.teacher:
            return newest_teacher(mine)
        decisive = {option.removeprefix("--").replace("-", "_") for option in labelled} | {"teacher", "student"}
        args = self.args(task) if mine else None
        groups: dict[str, tuple[list[str], dict[int, dict[str, Any]]]] = {}
        for record in sorted(mine, key=lambda record: record["finished"], reverse=True):
            if student not in (None, record["settings"]["student"]) or record["variant"] != self.variant(args):
                continue
            if (remarks := deviations(record, given, args, decisive)) is not None:
                settings = record["settings"] | {"seed": None}
                setting = [remarks, record["comparable"], record["teacher"]["signature"], settings]
                _, seeds = groups.setdefault(json.dumps(setting, sort_keys=True), (remarks, {}))
                seeds.setdefault(record["seed"], record)  # of one run kept in two folders, or made again, the newest
        found = [Found([*seeds.values()], remarks) for remarks, seeds in groups.values()]
        return min(found, key=lambda group: (len(group.remarks), -len(group.records)), default=None)

    def variant(self, args: Any) -> str:
        return filled(self.table.record, {"variant": args.variant} | self.values)


def lines_of(paper: Paper, table: PrintedTable, records: list[dict[str, Any]] | None = None) -> list[Line]:
    return [Line(paper, table, row, records or []) for row in table.rows]


@cache
def wanted_args(method: str, words: tuple[str, ...]) -> Any:
    """The arguments that a command stands for. The folder of an earlier row, under runs/, need not be there yet."""
    given = pairs(words)
    there = {name: "random" if word.startswith("runs/") else word for name, word in given.items()}
    if there.pop("--data-dir", None):  # nor are files of one's own: checked as the pocket task of their kind
        there["--task"] = f"pocket/{TASKS[there['--task']].pocket}"
    args = read(matrix.module_of(f"methods/{method}.py").Args, None, list(chain(*there.items())))
    for name in MODELS:
        if given.get(f"--{name}", "").startswith("runs/"):
            setattr(args, name, given[f"--{name}"])
    return args


def typed(words: list[str]) -> str:
    """A command as a shell takes it: the pattern of an earlier row's folder is the shell's to resolve."""
    return " ".join(word if word.startswith("runs/") else shlex.quote(word) for word in words)


# --- results -------------------------------------------------------------------------------------------------


def records_of(method: str, folders: Iterable[str]) -> list[dict[str, Any]]:
    """A method's results on real data, tuning runs left out; a damaged file is named on stderr and left out."""
    found: list[dict[str, Any]] = []
    for folder in map(Path, folders):
        for path in sorted(folder.rglob("result.json")):
            try:
                found.append(results.load(path))
            except BadInput as error:
                print(f"warning: {error}", file=sys.stderr)
    mine = [record for record in found if record["method"] == method and record["source"] != "pocket"]
    return [record for record in mine if not record["settings"].get("tune")]


@cache
def names_of(model: str) -> frozenset[str]:
    """What results call a model of a command: a hub id as it is; folders by path, or by their last part and content."""
    from common import models  # which imports torch

    if not model.startswith("runs/"):
        return frozenset([model])
    folders = glob.glob(model)
    return frozenset([*folders, *(models.model_name(folder) for folder in folders)])


def called_alike(wanted: str, found: str) -> bool:
    """Whether a result's model is a folder that is called as the hub's: it may be a copy, which is remarked on."""
    (base, layers), (other, others) = parse_model(wanted), parse_model(found)
    names = Path(base).name, re.sub(r"@[0-9a-f]{12}$", "", Path(other).name)
    return not wanted.startswith("runs/") and "/" in wanted and names[0] == names[1] and layers == others


def is_of(teacher: str | None, record: dict[str, Any]) -> bool:
    """Whether a result's teacher is that of a command."""
    found = record["teacher"]["name"]
    return teacher is None or found in names_of(teacher) or called_alike(teacher, found)


def corpora(spec: str | None) -> list[str]:
    """The corpora of `--corpus`, or of a result's setting: without files, commits and digests."""
    found = []
    for part in re.split(r"[,+]", spec or ""):
        name = re.sub(r"[@#][0-9a-z]+$", "", part).removeprefix("stream:").removeprefix("hub:")
        found.append(name if "=hub:" in name else name.partition("=")[0])
    return found


def same(name: str, wanted: Any, found: Any) -> bool:
    """Whether a result's setting is what a command says."""
    if name in MODELS and wanted is not None:
        return re.sub(r"(/[^/@]+)@[0-9a-f]{12}", r"\1", str(found)) in names_of(str(wanted))  # of the hub, any commit
    if name in ("corpus", "convert_corpus"):
        return corpora(wanted) == corpora(found)
    if isinstance(found, bool):
        return found == {"on": True, "off": False}.get(wanted, wanted)
    if isinstance(found, list):
        return ",".join(map(str, found)) == str(wanted)
    if isinstance(wanted, float) and isinstance(found, int | float):
        return math.isclose(wanted, found)
    return str(wanted) == str(found)


def deviations(record: dict[str, Any], given: dict[str, str], args: Any, decisive: set[str]) -> list[str] | None:
    """How a result differs from a command; None if it is not of that row.

    `given`: the command's options, `decisive`: those in which the rows of a table differ. What a command leaves to the
    script, which derives it, is no difference unless the result's own command has said it.
    """
    settings, found = record["settings"], []
    said = shlex.split(record.get("command", ""))
    if record["budget"]["kind"] != "paper":
        found.append(f"budget {record['budget']['name']}")
    if str(settings.get("limit")) != given.get("--limit", "None"):
        found.append(f"{settings['limit'] or 'all'} training examples")
    if record["source"] == "local" and "--data-dir" not in given:  # nobody has counted its rows against the official
        found.append("local files")
    for name, wanted in args.settings().items():
        own, option = settings.get(name), f"--{dashed(name)}"
        if name in ("budget", "limit") or name not in settings or (name == "seed" and "seed" not in decisive):
            continue
        if (name in DERIVED and option not in given and option not in said) or same(name, wanted, own):
            continue
        if name in decisive and not (name in MODELS and called_alike(str(wanted), str(own))):
            return None
        found.append(f"{dashed(name)} {own}")
    return found


@dataclass
class Found:
    """The results that stand for a row on one task: seeds of one setting."""

    records: list[dict[str, Any]]
    remarks: list[str]

    def value(self, ref: Ref) -> float | None:
        """The figure, averaged over seeds, in percent but for perplexity."""
        values = []
        for record in self.records:
            if ref.name.startswith("#"):
                per_split = [record["analysis"].get(ref.name[1:])]
            else:
                per_split = [m.get(ref.name) for split, m in record["metrics"].items() if ref.split in (None, split)]
            if not per_split or None in per_split:
                return None
            values.append(fmean(per_split))
        return fmean(values) * (1 if ref.name == "perplexity" else 100)


def newest_teacher(records: list[dict[str, Any]]) -> Found | None:
    """What the newest result says of its fine-tuned teacher, in the place of a result."""
    if not records:
        return None
    newest = max(records, key=lambda record: record["finished"])
    limit = newest["settings"].get("limit")
    remarks = [f"{newest['settings'].get('teacher_epochs', 0):g} epochs here"]
    return Found([newest | newest["teacher"]], remarks + [f"{limit} training examples"] * bool(limit))


# --- printing ------------------------------------------------------------------------------------------------


def compared(cell: str, ours: list[float]) -> tuple[str, str]:
    """(ours, the difference) of a cell and its figures, with as many decimals as the paper has.

    Where the paper prints one figure of two, there is no difference: it does not say which; nor where it prints a
    change in percent.
    """
    printed = cell.split("/")
    places = [len(figure.partition(".")[2].rstrip("%")) for figure in printed]
    if len(printed) != len(ours) or "%" in cell:
        return "/".join(f"{value:.{places[0]}f}" for value in ours), "-"
    places = [max(1, n) for n in places]
    return (
        "/".join(f"{value:.{n}f}" for value, n in zip(ours, places, strict=True)),
        "/".join(f"{b - float(a):+z.{n}f}" for a, b, n in zip(printed, ours, places, strict=True)),
    )


def claimed_twice(lines: list[Line]) -> dict[int, set[str]]:
    """Result, by identity -> the rows that it would be of, where their commands differ."""
    rows: dict[int, dict[str, str]] = {}
    for line in (line for line in lines if line.reason is None and not line.teacher):
        for task in line.tasks:
            if (part := line.found(task)) is not None:
                command = json.dumps([task, line.options(task)[0] | {"--out-dir": ""}])
                for record in part.records:
                    rows.setdefault(id(record), {})[command] = str(line.row)
    return {record: set(commands.values()) for record, commands in rows.items() if len(commands) > 1}


def figures_of(line: Line, twice: dict[int, set[str]], used: set[int]) -> Iterator[list[str]]:
    """One line for each cell of a row; adds the results that it shows to `used`, by identity."""
    label, first = str(line.row), True
    for column, cell, meant in line.columns:
        ours, difference, remark = "-", "-", ""
        if line.reason is not None:  # holds for all its cells
            remark = line.reason if first else ""
        elif meant.reason is not None:
            remark = meant.reason
        else:
            shown = [(ref, part) for ref in meant.refs if (part := line.found(ref.task)) is not None]
            numbers = [value for ref, part in shown if (value := part.value(ref)) is not None]
            shared = [twice[id(record)] for _, part in shown for record in part.records if id(record) in twice]
            if len(numbers) < len(meant.refs):
                ours = "never run"
            elif shared:
                remark = f"a result that is also of {'; '.join(sorted(set.union(*shared) - {label}))}"
            else:
                used |= {id(record) for _, part in shown for record in part.records}
                ours, difference = compared(cell, [fmean(numbers)] if meant.mean else numbers)
                remark = remarks_of(line.table, [part for _, part in shown])
        yield [label if first else "", column, cell, ours, difference, remark]
        first = False


def remarks_of(table: PrintedTable, shown: list[Found]) -> str:
    """What keeps a figure from being a reproduction, and how many seeds it is the mean of."""
    remarks = list(dict.fromkeys(remark for part in shown for remark in part.remarks))
    if table.split:
        splits = {split for part in shown for record in part.records for split in record["metrics"]}
        remarks.append(f"{'+'.join(sorted(splits))}, the paper: {table.split}")
    seeds = {len(part.records) for part in shown}
    return "; ".join(remarks + [f"{count} seeds" for count in seeds if count > 1])


def table_text(paper: Paper, table: PrintedTable, records: list[dict[str, Any]], used: set[int]) -> str:
    lines = lines_of(paper, table, records)
    twice = claimed_twice(lines)
    text = results.columns([cells for line in lines for cells in figures_of(line, twice, used)], HEADER, WORDS)
    return "\n".join([f"Table {table.name}. {table.what}", text, *map(wrapped, table.remarks)])


def wrapped(remark: str) -> str:
    return textwrap.fill(remark, 110, initial_indent="- ", subsequent_indent="  ")


def sizes_text(paper: Paper, table: PrintedTable) -> str:
    """A table of sizes, which are counted now."""
    from bench import sizes  # which imports torch

    lines, last = list[list[str]](), ""
    for cell in (cell for cell in sizes.cells(paper.method) if cell.table == table.name):
        apart = cell.found - float(cell.printed.replace(",", ""))
        difference = f"{apart:+,.0f}" if isinstance(cell.found, int) else f"{apart:+z.2f}"
        row, last = "" if cell.row == last else cell.row, cell.row
        lines.append([row, cell.column, cell.printed, cell.text, difference, cell.remark])
    return f"Table {table.name}. {table.what}\n{results.columns(lines, HEADER, WORDS)}"


def commands_text(paper: Paper, table: PrintedTable) -> str:
    said = [f"# Table {table.name}. {table.what}"]
    for line in lines_of(paper, table):
        found, why = line.commands
        said += [f"# {line.row}" + (f": {why}" if why else ""), *map(typed, found)]
    return "\n".join([*said, *(f"# Note: {remark}" for remark in table.remarks)])


def others_text(records: list[dict[str, Any]], used: set[int]) -> str:
    """The results that no row shows, a line each."""
    lines = [
        f"  {record['task']} {record['variant']}, student {record['student']['shape']} of {record['teacher']['name']},"
        f" budget {record['budget']['name']}, seed {record['seed']}: "
        + ", ".join(f"{split} {results.percent(metrics)}" for split, metrics in record["metrics"].items())
        for record in records
        if id(record) not in used
    ]
    return "\n".join(["Results on real data that are of no row above:", *lines]) if lines else ""


def main(argv: list[str]) -> None:
    parser = Parser("papers", __doc__)
    parser.add_argument("method", choices=methods(), help="whose paper")
    parser.add_argument("--table", metavar="NAME", help="one table alone, as the paper numbers it")
    parser.add_argument("--commands", action="store_true", help="print the command of every row instead")
    where = "folders with result.json files (default: runs)"
    parser.add_argument("--results", metavar="DIR,...", help=where)
    asked = parser.parse_args(argv)
    paper = load(asked.method)
    if asked.table is not None and asked.table not in paper.names():
        raise BadInput(f"--table {asked.table}: {asked.method} has {', '.join(paper.names())}")
    places = ["runs"] if asked.results is None else split_paths(asked.results) or [asked.results]
    for folder in places if asked.results is not None else ():
        if not folder or not Path(folder).is_dir():
            raise BadInput(f"--results {folder!r}: no such folder")
    tables, counted = ([table for table in some if asked.table in (None, table.name)]
                       for some in (paper.tables, paper.sizes))  # fmt: skip
    if asked.commands:
        texts = [commands_text(paper, table) for table in tables]
        count = f"python -m bench sizes {asked.method}"
        texts += [f"# Table {table.name}. {table.what}\n{count}" for table in counted]
    else:
        records = records_of(asked.method, places)
        used: set[int] = set()
        texts = [table_text(paper, table, records, used) for table in tables]
        texts += [sizes_text(paper, table) for table in counted]
        texts += [others_text(records, used)] if asked.table is None else []
    mark = "# " * asked.commands  # of what a shell leaves alone
    remarks = "\n".join(mark + line for remark in paper.remarks for line in wrapped(remark).splitlines())
    print("\n\n".join([mark + paper.paper, *filter(None, texts), *[remarks] * bool(tables and remarks)]))
