"""The papers' own tables: what each paper has, what ran here, and the difference.

    python -m bench papers mc3kd                         # every table of the paper
    python -m bench papers xtc --table C.9               # one of them
    python -m bench papers cmow --table VII              # sizes are counted now, no run is needed
    python -m bench papers cka --table 6 --commands      # the command of every row, with the hub's data and weights
    python -m bench papers xtc --table C.5 --run "Skip-BERT6, 5e-5"      # run a row; --run alone: the whole table
    python -m bench papers mc3kd --table 1 --run --limit 500             # arguments of the script may follow
    python -m bench papers mc3kd --results runs,DIR      # where to look for result.json files

The figures stand in bench/published/METHOD.toml, as printed, and nowhere else; those of sizes in bench/sizes.py.
bench/published/schema.json describes the layout: a row's labels are turned into a command by `words` and `run`, a
column names the metric. The tables print one line for each cell: paper, ours, difference, remark.

Which result is of which row: its method, its task (never a pocket task), its variant, and every argument that the
table's rows differ in, teacher and student included. A model of an earlier row, runs/..., is known by its content.
Whatever else is not as in the row's command (the budget, a subset of the data, local files, a learning rate, a corpus)
is named beside the figure: only a figure without such a remark is a reproduction. Of several such results those with
the fewest remarks count, and several seeds are averaged. A result that would be of two rows with different commands
fills neither. Results that match no row are listed below the tables.

`--run` first says what the rows cost: steps, and examples through the student, of the official data. It goes on where
it was stopped; a row that starts from another, runs/..., needs that one first.
"""

from __future__ import annotations

import glob
import json
import math
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from bench import matrix
from bench.cli import Parser, dashed
from bench.records import kept_in, opened
from common import results
from common.args import BadInput, parse_model, read
from common.sources import HUB
from common.tasks import TASKS, check_name

FOLDER = results.ROOT / "bench" / "published"
DEFAULT_RESULTS = ("runs", str(results.ROOT / "bench" / "results"))
# A cell as printed: one or two numbers, or nothing
CELL = re.compile(r"-|[+-]?\d*\.?\d+%?(/[+-]?\d*\.?\d+)?")
HEADER = ["", "column", "paper", "ours", "difference", ""]
WORDS = (0, 1, 5)  # its columns that hold no figures
ABSENT = "not in this version"
MODELS = ("teacher", "init")
# Arguments whose value a script derives where they are left out; of the others the default is what is wanted
DERIVED = {"lr", "init", "student", "max_length", "reduce_share", "diffcat", "assistant", "pool"}
DERIVED |= {"beta", "tokens", "last"}


# --- the tables, as printed ----------------------------------------------------------------------------------


class Row(NamedTuple):
    labels: tuple[str, ...]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(label for label in self.labels if label != "-")


@dataclass(frozen=True)
class Table:
    """A table of a paper; `bench/published/schema.json` describes the fields."""

    name: str
    what: str
    labels: list[str]
    columns: list[str]
    rows: list[Row]
    run: str | None = None
    record: str = "{variant}"
    per_task: str | None = None
    split: str | None = None
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Paper:
    """All tables of one paper."""

    method: str
    paper: str
    columns: dict[str, str]
    words: dict[str, dict[str, str | dict[str, str]]]
    tables: list[Table]
    common: str = ""
    remarks: list[str] = field(default_factory=list)
    per_task: dict[str, dict[str, str]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [table.name for table in self.tables] + list(self.sizes)


def methods() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(method: str) -> Paper:
    """Read and check bench/published/METHOD.toml. Raises ValueError where it does not keep the layout."""
    raw = tomllib.loads((FOLDER / f"{method}.toml").read_text(encoding="utf-8"))
    jsonschema.validate(raw, json.loads((FOLDER / "schema.json").read_text(encoding="utf-8")))
    tables = []
    for table in raw.pop("tables"):
        width, rows = len(table["labels"]), []
        for line in table["rows"].strip().splitlines():
            parts = tuple(part.strip() for part in line.split("|"))
            row = Row(parts[:width], parts[width:])
            if len(row.cells) != len(table["columns"]):
                raise ValueError(f"{method}, table {table['name']}, {row}: {len(row.cells)} cells")
            if wrong := [cell for cell in row.cells if not CELL.fullmatch(cell)]:
                raise ValueError(f"{method}, table {table['name']}, {row}: {wrong[0]!r} is no figure")
            rows.append(row)
        tables.append(Table(**table | {"rows": rows}))
    return Paper(method=method, tables=tables, **raw)


# --- what a row and a column mean ----------------------------------------------------------------------------


class Meaning(NamedTuple):
    """What a row's labels say: the reason why nothing runs, or whether it is the teacher; and their values."""

    reason: str | None
    teacher: bool
    values: dict[str, str]


def meaning(paper: Paper, table: Table, row: Row) -> Meaning:
    """Look every label up in the paper's words, then the labels that mean something together."""
    said: dict[str, str | dict[str, str]] = {}
    labels = dict(zip(table.labels, row.labels, strict=True))
    for column, label in labels.items():
        if column in paper.words and label not in paper.words[column]:
            raise ValueError(f"{paper.method}, table {table.name}: no word for {column} {label!r}")
        said[column] = paper.words.get(column, {}).get(label, label)
    for columns, words in paper.words.items():
        parts = columns.split(" | ")
        together = " | ".join(labels.get(part, "") for part in parts)
        if len(parts) > 1 and together in words:
            said[columns] = words[together]
    reason, teacher = None, False
    values: dict[str, str] = {}
    for column, word in said.items():
        if isinstance(word, dict):
            values |= word
        elif word.startswith("! "):
            reason = reason or word[2:]
        elif word == "= teacher":
            teacher = True
        else:
            values[column] = word
    if table.run is None and not teacher:
        reason = reason or "nothing to run"
    return Meaning(reason, teacher, values)


class Ref(NamedTuple):
    """Where a result holds a figure: `metrics` (of one split, or the mean over those reported) or, `#`, `analysis`."""

    task: str
    split: str | None
    name: str


@dataclass(frozen=True)
class Spec:
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


# --- commands ------------------------------------------------------------------------------------------------


def options(paper: Paper, table: Table, values: dict[str, str], task: str) -> tuple[dict[str, str], set[str]]:
    """Option -> value of a row's command for a task, where what stands later replaces what stands before; and the
    options that come from the row's labels: in these the rows of a table differ."""
    tasks = paper.per_task[table.per_task] if table.per_task else {}
    words, said = shlex.split(f"{paper.common} {table.run or ''} {tasks.get(task, '')}"), values | {"task": task}
    words += ["--data-dir", "DIR"] if local(task) else []
    found: dict[str, str] = {}
    labelled: set[str] = set()
    for option, value in dict(zip(words[::2], words[1::2], strict=True)).items():
        # a label may stand for a value and further options
        parts = [option, *(shlex.split(filled(filled(value, said), said)) if "{" in value else [value])]
        if len(parts) > 1:
            found |= dict(zip(parts[::2], parts[1::2], strict=True))
            labelled |= set(parts[::2]) if "{" in value else set()
    return found, labelled - set(shlex.split(" ".join(tasks.values())))


@cache
def missing(task: str) -> str | None:
    """Why no command can be given for a task: this version does not have it."""
    try:
        if not local(task):
            check_name(task)
    except BadInput:
        return f"{task}: {ABSENT}"
    return None


def local(task: str) -> bool:
    """Whether a task is read from files alone, as no repository of the hub serves it."""
    return task in TASKS and bool(TASKS[task].splits) and not TASKS[task].hub


def tasks_of(paper: Paper, table: Table, row: Row, values: dict[str, str]) -> list[str]:
    """The tasks that a row has figures of."""
    found: dict[str, None] = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        column_spec = spec(filled(paper.columns[column], values))
        if cell != "-" and not column_spec.mean:
            found |= dict.fromkeys(ref.task for ref in column_spec.refs)
    return list(found)


def commands(paper: Paper, table: Table, row: Row) -> tuple[list[list[str]], str]:
    """(the command lines of a row, one for all tasks of like arguments; why there is none, or not for all tasks)."""
    reason, teacher, values = meaning(paper, table, row)
    if reason is not None:
        return [], reason
    if teacher:
        return [], "the fine-tuned teacher: every run from it records its figures"
    lines: dict[tuple[str, ...], list[str]] = {}
    tasks = tasks_of(paper, table, row, values)
    for task in tasks:
        if missing(task) is None:
            words = tuple(chain(*options(paper, table, values, task)[0].items()))
            lines.setdefault(words, []).append(task)
    script = ["python", f"methods/{paper.method}.py", "--task"]
    why = "; ".join(filter(None, map(missing, tasks))) if tasks else "no column is of a task here"
    return [[*script, ",".join(tasks), *words] for words, tasks in lines.items()], why


def typed(words: list[str]) -> str:
    """A command as a shell takes it: the pattern of an earlier row's folder is the shell's to resolve."""
    return " ".join(word if word.startswith("runs/") else shlex.quote(word) for word in words)


# --- results -------------------------------------------------------------------------------------------------


def records_of(method: str, folders: Iterable[str]) -> list[dict[str, Any]]:
    """A method's results on real data, tuning runs left out; a damaged file is named on stderr and left out."""
    found: list[dict[str, Any]] = []
    for folder in folders:
        for path in (*sorted(Path(folder).rglob("result.json")), *kept_in(Path(folder))):
            try:
                found += [results.load(path)] if path.name == "result.json" else opened(path)[0]
            except BadInput as error:
                print(f"warning: {error}", file=sys.stderr)
    mine = [record for record in found if record["method"] == method and record["source"] != "pocket"]
    return [record for record in mine if not record["settings"].get("tune")]


def folders_of(pattern: str) -> list[str]:
    """What a path of a command, which may be a pattern, stands for here."""
    return sorted(glob.glob(pattern))


@cache
def names_of(model: str) -> frozenset[str]:
    """What results call a model of a command: a hub id as it is; folders by path, or by their last part and content."""
    from common import models

    if not model.startswith("runs/"):
        return frozenset([model])
    folders = folders_of(model)
    return frozenset([*folders, *(models.model_name(folder) for folder in folders)])


def called_alike(wanted: str, found: str) -> bool:
    """Whether a result's model is a folder that is called as the hub's: it may be a copy, which is remarked on."""
    (base, layers), (other, others) = parse_model(wanted), parse_model(found)
    names = Path(base).name, re.sub(r"@[0-9a-f]{12}$", "", Path(other).name)
    return not wanted.startswith("runs/") and "/" in wanted and names[0] == names[1] and layers == others


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
        return str(found) in names_of(str(wanted))
    if name in ("corpus", "convert_corpus"):
        return corpora(wanted) == corpora(found)
    if isinstance(found, bool):
        return found == {"on": True, "off": False}.get(wanted, wanted)
    if isinstance(found, list):
        return ",".join(map(str, found)) == str(wanted)
    if isinstance(wanted, float) and isinstance(found, int | float):
        return math.isclose(wanted, found)
    return str(wanted) == str(found)


@cache
def wanted_args(method: str, words: tuple[str, ...]) -> Any:
    """The arguments that a command stands for. The folder of an earlier row, under runs/, need not be there yet."""
    options = dict(zip(words[::2], words[1::2], strict=True))
    there = {name: "random" if word.startswith("runs/") else word for name, word in options.items()}
    if there.pop("--data-dir", None):  # nor are files of one's own: checked as the pocket task of their kind
        there["--task"] = f"pocket/{TASKS[there['--task']].pocket}"
    args = read(matrix.module_of(f"methods/{method}.py").Args, None, list(chain(*there.items())))
    for name in ("init", "teacher"):
        if (given := options.get(f"--{name}", "")).startswith("runs/"):
            setattr(args, name, given)
    return args


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
        if name in DERIVED and option not in given and option not in said:
            continue
        if same(name, wanted, own):
            continue
        if name in decisive and not (name in MODELS and called_alike(str(wanted), str(own))):
            return None
        found.append(f"{dashed(name)} {own}")
    return found


class Found(NamedTuple):
    """The results that stand for a row on one task: seeds of one setting."""

    records: list[dict[str, Any]]
    remarks: list[str]
    teacher: bool

    def value(self, ref: Ref) -> float | None:
        """The figure, averaged over seeds, in percent but for perplexity."""
        values = []
        for record in self.records:
            side = record["teacher"] if self.teacher else record
            if ref.name.startswith("#"):
                per_split = [side["analysis"].get(ref.name[1:])]
            else:
                per_split = [m.get(ref.name) for split, m in side["metrics"].items() if ref.split in (None, split)]
            if not per_split or None in per_split:
                return None
            values.append(sum(per_split) / len(per_split))
        scale = 1 if ref.name == "perplexity" else 100
        return scale * sum(values) / len(values)


def is_of(wanted: str | None, found: str) -> bool:
    return wanted is None or same("teacher", wanted, found) or called_alike(wanted, found)


def find(paper: Paper, table: Table, said: Meaning, task: str, records: list[dict[str, Any]]) -> Found | None:
    """The results of a row on a task: those that deviate least from its command, of these the group with most seeds."""
    given, labelled = options(paper, table, said.values, task)
    mine = [
        record
        for record in records
        if record["task"] == paper.called.get(task, task)
        and is_of(given.get("--teacher"), record["teacher"]["name"])
        and (said.teacher or given.get("--student") in (None, record["settings"]["student"]))
    ]
    if not mine or missing(task) is not None:
        return None
    if said.teacher:
        newest = max(mine, key=lambda record: record["finished"])
        remark = f"{newest['settings'].get('teacher_epochs', 0):g} epochs here"
        limit = newest["settings"].get("limit")
        return Found([newest], [remark, *([f"{limit} training examples"] if limit else [])], True)
    args = wanted_args(paper.method, ("--task", task, *chain(*given.items())))
    decisive = {"teacher", "student", *(option.removeprefix("--").replace("-", "_") for option in labelled)}
    variant = filled(table.record, {"variant": args.variant} | said.values)
    groups: dict[str, Found] = {}
    seen: set[tuple[str, int]] = set()
    for record in sorted(mine, key=lambda record: record["finished"], reverse=True):
        remarks = deviations(record, given, args, decisive) if record["variant"] == variant else None
        if remarks is None:
            continue
        settings = {k: v for k, v in record["settings"].items() if k != "seed"}
        setting = [remarks, record["comparable"], record["teacher"]["signature"], settings]
        key = json.dumps(setting, sort_keys=True)
        if (key, record["seed"]) not in seen:  # of one run kept in two folders, or made again, the newest
            seen.add((key, record["seed"]))
            groups.setdefault(key, Found([], remarks, False)).records.append(record)
    return min(groups.values(), key=lambda group: (len(group.remarks), -len(group.records)), default=None)


# --- printing ------------------------------------------------------------------------------------------------


def decimals(figure: str) -> int:
    return len(figure.partition(".")[2].rstrip("%"))


def signed(value: float, places: int) -> str:
    """With its sign; what rounds to zero is +0."""
    return f"{round(value, places) + 0.0:+.{places}f}"


def compared(cell: str, ours: list[float]) -> tuple[str, str]:
    """(ours, the difference) of a cell and its figures, with as many decimals as the paper has.

    Where the paper prints one figure of two, there is no difference: it does not say which; nor where it prints a
    change in percent.
    """
    printed = cell.split("/")
    if len(printed) != len(ours) or "%" in cell:
        return "/".join(f"{value:.{decimals(printed[0])}f}" for value in ours), "-"
    places = [max(1, decimals(figure)) for figure in printed]
    return (
        "/".join(f"{value:.{n}f}" for value, n in zip(ours, places, strict=True)),
        "/".join(signed(b - float(a), n) for a, b, n in zip(printed, ours, places, strict=True)),
    )


def claimed_twice(paper: Paper, table: Table, records: list[dict[str, Any]]) -> dict[int, set[str]]:
    """Result, by identity -> the rows that it would be of, where their commands differ."""
    rows: dict[int, dict[str, str]] = {}
    for row in table.rows:
        said = meaning(paper, table, row)
        for task in tasks_of(paper, table, row, said.values) if said.reason is None and not said.teacher else ():
            if (part := find(paper, table, said, task, records)) is not None:
                given, _ = options(paper, table, said.values, task)
                command = json.dumps([task, given | {"--out-dir": ""}])
                for record in part.records:
                    rows.setdefault(id(record), {})[command] = str(row)
    return {record: set(commands.values()) for record, commands in rows.items() if len(commands) > 1}


def row_lines(
    paper: Paper, table: Table, row: Row, records: list[dict[str, Any]], used: set[int], twice: dict[int, set[str]]
) -> Iterator[list[str]]:
    """One line for each figure of a row; adds the results that it shows to `used`, by identity."""
    said = meaning(paper, table, row)
    find_once = cache(lambda task: find(paper, table, said, task, records))
    label = str(row)
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell == "-":
            continue
        column_spec = spec(filled(paper.columns[column], said.values))
        ours, difference, remark = "-", "-", ""
        if said.reason is not None:  # holds for all its cells
            remark = said.reason if label else ""
        elif reason := column_spec.reason or next(filter(None, (missing(ref.task) for ref in column_spec.refs)), None):
            remark = reason
        else:
            shown = [part for ref in column_spec.refs if (part := find_once(ref.task)) is not None]
            values = [part.value(ref) for part, ref in zip(shown, column_spec.refs, strict=False)]
            numbers = [value for value in values if value is not None]
            doubtful = [twice[id(record)] for part in shown for record in part.records if id(record) in twice]
            if len(numbers) < len(column_spec.refs):
                ours = "never run"
            elif doubtful:
                remark = f"a result that is also of {'; '.join(sorted(set.union(*doubtful) - {str(row)}))}"
            else:
                used |= {id(record) for part in shown if not part.teacher for record in part.records}
                numbers = [sum(numbers) / len(numbers)] if column_spec.mean else numbers
                ours, difference = compared(cell, numbers)
                remark = remarks_of(table, shown)
        yield [label, column, cell, ours, difference, remark]
        label = ""


def remarks_of(table: Table, shown: list[Found]) -> str:
    """What keeps a figure from being a reproduction, and how many seeds it is the mean of."""
    remarks = list(dict.fromkeys(remark for part in shown for remark in part.remarks))
    splits = {split for part in shown for record in part.records for split in record["metrics"]}
    if table.split:
        remarks.append(f"{'+'.join(sorted(splits))}, the paper: {table.split}")
    seeds = {len(part.records) for part in shown if not part.teacher}
    return "; ".join(remarks + [f"{count} seeds" for count in seeds if count > 1])


def table_text(paper: Paper, table: Table, records: list[dict[str, Any]], used: set[int]) -> str:
    twice = claimed_twice(paper, table, records)
    lines = [line for row in table.rows for line in row_lines(paper, table, row, records, used, twice)]
    text = results.columns(lines, HEADER, WORDS)
    return "\n".join([f"Table {table.name}. {table.what}", text, *map(wrapped, table.remarks)])


def wrapped(remark: str) -> str:
    return textwrap.fill(remark, 110, initial_indent="- ", subsequent_indent="  ")


def sizes_text(paper: Paper, name: str) -> str:
    """A table of sizes, which are counted now (bench/sizes.py)."""
    from bench import sizes

    lines, last = list[list[str]](), ""
    for cell in sizes.CELLS[paper.method]():
        if cell.table == name:
            whole, difference = isinstance(cell.found, int), "-"
            if cell.printed != "-":
                apart = cell.found - float(cell.printed.replace(",", ""))
                difference = f"{apart:+,.0f}" if whole else signed(apart, 2)
            row = "" if cell.row == last else cell.row
            lines.append([row, cell.column, cell.printed, sizes.shown(cell), difference, cell.remark])
            last = cell.row
    return f"Table {name}. {paper.sizes[name]}\n{results.columns(lines, HEADER, WORDS)}"


def commands_text(paper: Paper, table: Table) -> str:
    lines = [f"Table {table.name}. {table.what}"]
    for row in table.rows:
        found, why = commands(paper, table, row)
        lines += [f"# {row}" + (f": {why}" if why else ""), *map(typed, found)]
    return "\n".join([*lines, *(f"# Note: {remark}" for remark in table.remarks)])


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


# --- running rows --------------------------------------------------------------------------------------------


def steps_of(paper: Paper, task: str, args: Any) -> int | None:
    """Optimiser steps on the task with `--budget paper`, of the official data; None if nobody has counted them."""
    if task not in HUB or not HUB[task].rows:
        return None
    epochs = matrix.module_of(f"methods/{paper.method}.py").PAPER_EPOCHS
    copies = (getattr(args, "paper_copies", 0) or getattr(args, "augment", 0)) * len(TASKS[task].fields)
    if paper.method == "xtc":
        epochs = epochs[args.paper_budget][copies > 0]
    elif isinstance(epochs, dict):
        epochs = epochs.get(task, 5)
    rows = min(HUB[task].rows[0], args.limit or math.inf)
    return round(epochs * (1 + copies) * math.ceil(rows / args.batch_size))


def runnable(words: list[str]) -> list[str]:
    """A command with its patterns resolved. `BadInput` where an earlier row's folder is not there, or not the only."""
    found = []
    for word in words:
        if word.startswith("runs/") and "*" in word:
            there = folders_of(word)
            if len(there) != 1:
                raise BadInput(f"{word}: {len(there)} folders are called so, one is needed; it is an earlier row's")
            word = there[0]
        found.append(word)
    return found


def run_rows(paper: Paper, tables: list[Table], row_name: str, more: list[str]) -> bool:
    """Run the rows that are called so, all for "", after a line on the cost of each command; `more` goes to each.
    Whether all went well."""
    wanted = " ".join(row_name.split()).lower()
    chosen = [(table, row) for table in tables for row in table.rows if wanted in ("", str(row).lower())]
    if not chosen:
        rows = "; ".join(str(row) for table in tables for row in table.rows if commands(paper, table, row)[0])
        raise BadInput(f"--run {row_name!r}: no row is called so; there are {rows[:600]}")
    lines: dict[tuple[str, ...], None] = {}
    for table, row in chosen:
        found, why = commands(paper, table, row)
        print(f"# Table {table.name}, {row}" + (f": {why}" if why else ""))
        for words in found:
            lines[*words, *more] = None
            print(typed(words))
            plain = dict(zip(words[2::2], words[3::2], strict=True))
            for task in plain.pop("--task").split(","):
                args = wanted_args(paper.method, ("--task", task, *chain(*plain.items())))
                steps = steps_of(paper, task, args)
                examples = (steps or 0) * args.batch_size
                print(f"#   {task}: " + (f"{steps:,} steps, {examples:,} examples" if steps else "never counted"))
    if not lines:
        raise BadInput(f"--run {row_name!r}: nothing to run, as said above")
    sys.stdout.flush()
    failed = Counter[str]()
    for line in lines:
        try:
            words = runnable([sys.executable, str(results.ROOT / line[1]), *line[2:], "--resume"])
        except BadInput as error:
            print(f"error: {error}", file=sys.stderr)
            failed[shlex.join(line)] += 1
            continue
        failed[shlex.join(line)] += subprocess.run(words).returncode != 0
    for command in +failed:
        print(f"failed: {command}", file=sys.stderr)
    return not +failed


def main(argv: list[str]) -> None:
    parser = Parser("papers", __doc__)
    parser.add_argument("method", choices=methods(), help="whose paper")
    parser.add_argument("--table", metavar="NAME", help="one table alone, as the paper numbers it")
    parser.add_argument("--commands", action="store_true", help="print the command of every row instead")
    parser.add_argument("--run", metavar="ROW", nargs="?", const="", help="run a row, as the tables call it; without"
                        " ROW all of --table; what follows and is not known here goes to the script")  # fmt: skip
    parser.add_argument(
        "--results", metavar="DIR,...", help="folders with result.json files (default: runs and bench/results)"
    )
    asked, more = parser.parse_known_args(argv)
    if more and asked.run is None:
        raise BadInput(f"{more[0]}: no such argument; --run hands arguments on to the script")
    if asked.run == "" and asked.table is None:
        raise BadInput("--run: of which row? Give one, or --table for all of a table's")
    paper = load(asked.method)
    if asked.table is not None and asked.table not in paper.names():
        raise BadInput(f"--table {asked.table}: {asked.method} has {', '.join(paper.names())}")
    folders = DEFAULT_RESULTS if asked.results is None else asked.results.split(",")
    for folder in folders if asked.results is not None else ():
        if not folder or not Path(folder).is_dir():
            raise BadInput(f"--results {folder!r}: no such folder")
    tables = [table for table in paper.tables if asked.table in (None, table.name)]
    sizes = [name for name in paper.sizes if asked.table in (None, name)]
    used: set[int] = set()
    well = asked.run is None or run_rows(paper, tables, asked.run, more)
    if asked.commands:
        texts = [commands_text(paper, table) for table in tables]
        texts += [f"Table {name}. {paper.sizes[name]}\npython -m bench sizes {asked.method}" for name in sizes]
    else:
        records = records_of(asked.method, folders)
        texts = [table_text(paper, table, records, used) for table in tables]
        texts += [sizes_text(paper, name) for name in sizes]
        if asked.table is None:
            texts.append(others_text(records, used))
    texts += ["\n".join(map(wrapped, paper.remarks))] if tables else []
    print("\n\n".join([paper.paper, *(text for text in texts if text)]))
    if not well:
        raise SystemExit(1)
