"""Where a task's data comes from: the pocket suite, the hub, or local files. Every reader ends in `Rows`.

    rows, origin = pocket_rows(task)
    rows, origin = hub_rows(task)               # at a pinned revision
    rows, origin = local_rows(task, "DIR")      # GLUE's layout, named columns, SQuAD, CoNLL, plain text, `save_to_disk`
    found = open_data("tickets.csv", columns)   # a data set of one's own, whose kind and labels are seen from it

CSV, TSV and JSON lines are read here and not by `datasets`: its readers guess types (a text "1.0" or "null" becomes a
number or nothing), take quotation marks of the official TSV files for quotes, and do not say in which line a mistake
is. Parquet and `save_to_disk` folders, which carry their types, are left to it.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pocket
from common.errors import BadInput, first_line, shown, some, warn
from common.kinds import KINDS, OWN, Kind, Rows, Task
from common.kinds.documents import hotpot_row, trivia_row
from common.kinds.sentences import renamed
from common.outputs import Outputs, join, parse
from common.tasks import (
    NO_COLUMNS,
    SUFFIXES,
    TASKS,
    Columns,
    Source,
    check_name,
    files_of,
    find_files,
    is_data_set,
    names_of,
    plain,
)
from common.values import TIMEOUT_SECONDS


def pocket_rows(task: Task) -> tuple[dict[str, Rows], str]:
    """The splits of the embedded suite: the same for every seed of a run, the suite's own seed being 0."""
    rows = {}
    for split in pocket.SPLITS[task.name]:
        where = f"pocket/{task.name} {split}"
        rows[split] = Rows(dict(pocket.generate(task.name, split)), lambda i, where=where: f"{where} row {i}")  # type: ignore[misc]
    return rows, f"pocket v{str(pocket.VERSION).removeprefix('v')}"


# --- the hub -------------------------------------------------------------------------------------------------

# A commit that holds Parquet files, so that no loading script is run; likewise those in the table.
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
# The hub's own conversion of a repository that holds a loading script: a branch, which may move.
CONVERTED = "refs/convert/parquet"


@dataclass(frozen=True)
class HubSource:
    """Where a task lives on the hub: its splits are called there as here, but for "validation" in place of "dev".

    `rows`: the official number of each split, in the order of `Task.splits`. `columns`: canonical column -> the
    repository's. `convert`: a row of these columns, under their canonical names, -> what the task reads, where a column
    holds more than that.
    """

    repo: str
    config: str | None
    revision: str
    rows: tuple[int, ...]
    columns: dict[str, str]
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def _glue(name: str, *rows: int) -> HubSource:
    """A configuration of GLUE, whose columns have the canonical names."""
    return HubSource("nyu-mll/glue", name, GLUE_REVISION, rows, {column: column for column in TASKS[name].columns})


GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")


def _translation(repo: str, config: str, revision: str, name: str, *rows: int) -> HubSource:
    """A pair of languages, "wmt16/en-ro": one column holds both sides of a sentence pair."""
    ours, theirs = name.rpartition("/")[2].split("-")

    def sides(row: dict[str, Any]) -> dict[str, Any]:
        return {"source": row["source"][ours], "label": row["source"][theirs]}

    return HubSource(repo, config, revision, rows, {"source": "translation", "label": "translation"}, sides)


_QUESTION = {"question": "question", "context": "context"}

HUB: dict[str, HubSource] = {
    "cola": _glue("cola", 8551, 1043),
    "sst2": _glue("sst2", 67349, 872),
    "mrpc": _glue("mrpc", 3668, 408),
    "qqp": _glue("qqp", 363846, 40430),
    "stsb": _glue("stsb", 5749, 1500),
    "mnli": _glue("mnli", 392702, 9815, 9832),
    "qnli": _glue("qnli", 104743, 5463),
    "rte": _glue("rte", 2490, 277),
    "wnli": _glue("wnli", 635, 71),
    # a row is a line of the text
    "wikitext-2": HubSource("Salesforce/wikitext", "wikitext-2-raw-v1", "b08601e04326c79dfdd32d625aee71d232d685c3",
                            (36718, 3760, 4358), {"text": "text"}),
    "squad": HubSource("rajpurkar/squad", None, "7b6d24c440a36b6815f21b70d25016731768db1f",
                       (87599, 10570), _QUESTION | {"label": "answers", "id": "id"}),
    "hotpot_qa": HubSource("hotpotqa/hotpot_qa", "distractor", "1908d6afbbead072334abe2965f91bd2709910ab",
                           (90447, 7405), _QUESTION | {"label": "answer", "id": "id"}, hotpot_row),
    "trivia_qa": HubSource("mandarjoshi/trivia_qa", "rc.wikipedia", "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f",
                           (61888, 7993), {"question": "question", "context": "entity_pages", "label": "answer",
                                           "id": "question_id"}, trivia_row),
    "cnn_dailymail": HubSource("abisee/cnn_dailymail", "3.0.0", "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
                               (287113, 13368, 11490), {"document": "article", "label": "highlights", "id": "id"}),
    "xsum": HubSource("EdinburghNLP/xsum", "default", CONVERTED,
                      (204045, 11332, 11334), {"document": "document", "label": "summary", "id": "id"}),
    "wmt16/en-ro": _translation("wmt/wmt16", "ro-en", "41d8a4013aa1489f28fea60ec0932af246086482", "wmt16/en-ro",
                                610320, 1999, 1999),
    "wmt14/en-fr": _translation("wmt/wmt14", "fr-en", "b199e406369ec1b7634206d3ded5ba45de2fe696", "wmt14/en-fr",
                                40836715, 3000, 3003),
    "iwslt2017/en-fr": _translation("IWSLT/iwslt2017", "iwslt2017-en-fr", CONVERTED, "iwslt2017/en-fr",
                                    232825, 890, 8597),
    # a row is a sentence, its words and tags in lists
    "conll2003": HubSource("lukasgarbas/conll-03", None, "1301e71165e0ddf97d086eaea193f8f4ecdd46e3",
                           (14041, 3250, 3453), {"text": "tokens", "label": "ner_tags"}),
}  # fmt: skip


def hub_rows(task: Task) -> tuple[dict[str, Rows], str]:
    """The splits of the hub's repository at the pinned revision.

    Without a connection the library's own cache is used if it holds that very revision, or one of a branch. Raises
    BadInput, within seconds, if the data cannot be had, and names the commands that work without a hub.
    """
    source = HUB[task.name]
    instead = f"`--task pocket/{task.pocket}` (built in) or `--task {task.name} --data-dir DIR` (your own files)"
    found, revision = _load(task.name, source.repo, source.config, source.revision, instead)
    origin, rows = f"{source.repo}@{revision}", {}
    for split, stored in _splits(found, task.splits, task.splits, origin).items():
        made = _converted(_dataset_rows(stored, source.columns, f"{origin} {split}"), source)
        rows[split] = replace(made, blanks=True, official=True)
    return rows, origin


def _splits(found: Mapping[str, Any], splits: Sequence[str], needed: Sequence[str], where: str) -> dict[str, Any]:
    """What is there of these splits: a DatasetDict may have "validation" where it is "dev" here."""
    for split in needed:
        if not set(found) & set(names_of(split)):
            theirs = split.replace("dev", "validation")
            raise BadInput(f"{where}: no {split} split; needs {theirs!r}, has {some(list(found))}")
    return {split: found[name] for split in splits for name in names_of(split) if name in found}


def _load(task: str, repo: str, config: str | None, revision: str | None, instead: str) -> tuple[Any, str]:
    """What `load_dataset` gives, and its revision: the hub's newest, or else what the cache has, if none is asked for.

    After one quick question to the hub: the library alone retries for half a minute. `instead`: what works without it.
    """
    try:
        return _from_hub(repo, config, revision)
    except Exception as error:  # every way in which a hub can fail is one message to the user
        raise BadInput(
            f"--task {task}: {repo}{f'@{revision}' if revision else ''} could not be loaded from the hub or its cache"
            f" ({type(error).__name__}: {first_line(error)}); without a hub, use {instead}"
        ) from error


def _from_hub(repo: str, config: str | None, revision: str | None) -> tuple[Any, str]:
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    online = datasets.config.HF_HUB_OFFLINE
    try:
        commit = hub_commit(repo, revision)
    except Exception:
        datasets.config.HF_HUB_OFFLINE = True
        with contextlib.suppress(Exception):  # what the hub said is told
            found = datasets.load_dataset(repo, config, revision=revision)
            # the cache may settle for another revision of the same configuration: the folder's name tells
            files = [file["filename"] for split in found.values() for file in split.cache_files]
            there = set(re.findall(r"\b[0-9a-f]{40}\b", " ".join(files)))
            named = re.fullmatch("[0-9a-f]{40}", revision or "")  # a branch may be at any commit
            if len(there) == 1 and (not named or revision in there):
                return found, there.pop()
        raise
    finally:
        datasets.config.HF_HUB_OFFLINE = online
    return datasets.load_dataset(repo, config, revision=commit), commit


def hub_commit(repo: str, revision: str | None = None) -> str:
    """The commit that the hub serves as `revision` of a data set, by default the newest."""
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT_SECONDS).sha)


def _dataset_rows(data: Any, columns: dict[str, str], where: str) -> Rows:
    """Rows of a `datasets.Dataset`; `columns` maps canonical names to the dataset's."""
    for theirs in columns.values():
        if not set(_parts(theirs, data.column_names)) <= set(data.column_names):
            raise BadInput(f"{where}: no column {theirs!r}, only {', '.join(data.column_names)}")
    names = None
    if columns.get("label") in data.column_names:  # what the integers of the feature, or those of its lists, are called
        feature = data.features[columns["label"]]
        names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    table = data.select_columns(
        list({name: 0 for theirs in columns.values() for name in _parts(theirs, data.column_names)})
    )
    found = _taken(columns, data.column_names, table.to_dict().__getitem__)
    return Rows(found, lambda i: f"{where} row {i}", columns, names, lines="label" not in columns, files=[where])


def _converted(rows: Rows, source: HubSource | None) -> Rows:
    """Rows with the hub's columns, wherever they were read, as the task reads them."""
    if source is None or source.convert is None or rows.chosen != source.columns or not len(rows):
        return rows
    made: list[dict[str, Any]] = []
    try:
        for row in zip(*rows.columns.values(), strict=True):
            made.append(source.convert(dict(zip(rows.columns, row, strict=True))))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{rows.place(len(made))}: not as {source.repo} has it ({error!r})") from error
    return replace(rows, columns=_by_column(made))


def _by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# --- local files ---------------------------------------------------------------------------------------------

_OFFICIAL_COLUMNS = {  # header names of the official release, where they are not the hub's
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    "qqp": {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    "stsb": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    "mnli": {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
}
# What is known to be wrong in rows of official files, which are left out; anything else is a mistake
_WRONG: dict[str, tuple[str, Callable[[list[str], list[str]], bool]]] = {
    "qqp": ("with too few or too many columns", lambda header, row: len(row) != len(header)),
    "mnli": ("without an agreed label", lambda header, row: ("gold_label", "-") in zip(header, row, strict=False)),
}
_COLA_HEADER = ["source", "label", "mark", "sentence"]  # the official file has none
_NAMES_ONLY = {"mnli", "qnli", "rte"}  # whose official files spell the labels out: integers there are a mistake


def local_rows(task: Task, data_dir: str) -> tuple[dict[str, Rows], str]:
    """The splits of a folder, and their file names. Test files of GLUE carry no labels and are not read."""
    found, origin = _opened(find_files(task, data_dir))
    rows = {}
    for split, stored in _splits(found, task.splits, task.splits, origin).items():
        made = _read(stored, f"{origin} {split}", functools.partial(_pick_columns, task), task)
        rows[split] = _converted(made, HUB.get(task.name))
    return rows, origin


def _opened(files: dict[str, Path]) -> tuple[Mapping[str, Any], str]:
    """What `find_files` found: the file or the `datasets.Dataset` of each split; and what results call it."""
    if not (folder := files.get("")):
        return files, f"{files['train'].parent.resolve().name}: {', '.join(file.name for file in files.values())}"
    import datasets

    try:
        return datasets.load_from_disk(str(folder)), f"{folder.resolve().name} (save_to_disk)"
    except Exception as error:
        raise BadInput(f"{folder}: save_to_disk folder cannot be read ({first_line(error)})") from error


Pick = Callable[[Sequence[str], str | Path], dict[str, str]]  # header, where it stands -> our name: the file's column


def _pick_columns(task: Task, header: Sequence[str], where: str | Path) -> dict[str, str]:
    """Canonical name -> the file's column: the canonical ones if all are there, else the official release's, or the
    hub's."""
    needed = task.columns
    other = _OFFICIAL_COLUMNS.get(task.name) or task.kind.usual
    for columns in ({name: name for name in needed}, other, HUB[task.name].columns if task.name in HUB else None):
        if columns and all(name in header for name in columns.values()):
            return columns
    if task.kind.written:
        needed = tuple(other.values())
    missing = [name for name in needed if name not in header]
    raise BadInput(f"{where}: no column {missing[0]!r}; {task.name} needs {', '.join(needed)}, the file has"
                   f" {some(header)}")  # fmt: skip


def _read(stored: Any, where: str, pick: Pick, task: Task | None = None) -> Rows:
    """One split, a `datasets.Dataset` or a file, whose suffix says how it is read, and of a data set of one's own (no
    task yet) also what is in it."""
    if not isinstance(stored, Path):
        stored = stored.rename_columns({name: name.strip() for name in stored.column_names})
        return _dataset_rows(stored, pick(stored.column_names, where), where)
    path, suffix = plain(stored), plain(stored).suffix.lower()
    if suffix == ".parquet":
        return _read_parquet(stored, pick)
    text = _decode(stored)
    kind = task.kind if task else next((kind for kind in KINDS.values() if kind.recognises(text)), None)
    if kind and (rows := kind.parse(path, text, task.whole if task else None)) is not None:
        return rows
    if suffix in (".jsonl", ".json"):
        return _read_json(path, text, pick)
    return _read_table(path, text, pick, task.name if task else None)


def _parts(name: str, header: Collection[str]) -> list[str]:
    """The columns that a name means: one, or of several labels "a,b,c"."""
    return [name] if name in header or "," not in name else [part.strip() for part in name.split(",")]


def _taken(
    columns: dict[str, str], header: Collection[str], column: Callable[[str], list[Any]]
) -> dict[str, list[Any]]:
    """These columns under our names; a cell of several columns holds each of them by its name."""
    taken = {}
    for ours, theirs in columns.items():
        parts = _parts(theirs, header)
        cells = [column(part) for part in parts]
        one = parts == [theirs]
        taken[ours] = (
            list(cells[0]) if one else [dict(zip(parts, row, strict=True)) for row in zip(*cells, strict=True)]
        )
    return taken


def _decode(path: Path) -> str:
    """The text of a file in UTF-8, or with a byte order mark in UTF-16, as Excel's "Unicode text" is."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        utf16 = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        text = raw.decode("utf-16" if utf16 else "utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or first_line(error)
        raise BadInput(f"{path}: cannot be read ({said})") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} line {line}: not UTF-8 (byte {error.start} of the file); save it as UTF-8") from error
    if "\0" in text[:2]:
        raise BadInput(f"{path}: binary, or UTF-16 without a mark; save it as UTF-8")
    if not text.strip():
        raise BadInput(f"{path}: the file is empty")
    return text


def _separator(header: str, suffix: str) -> str:
    """What separates the columns: of comma, tab, semicolon and bar the one that makes most of the header; of equals
    the one that the suffix says."""
    usual = "," if suffix == ".csv" else "\t"
    return max(usual + ",;\t|", key=lambda one: len(next(csv.reader([header], delimiter=one))))


def _read_table(path: Path, text: str, pick: Pick, name: str | None) -> Rows:
    """CSV with the usual quoting; TSV of a task (its `name`) without any: a quotation mark is just text there, as it is
    in a TSV of one's own whose marks do not come in pairs."""
    csv.field_size_limit(max(len(text), 131_072))  # a text of any length is cut later, in tokens
    suffix = path.suffix.lower()
    quoted = suffix == ".csv" or name is None
    separator = _separator(re.split("[\r\n]", text.lstrip(" \r\n"), maxsplit=1)[0], suffix) if quoted else "\t"

    def numbered(**quotes: Any) -> list[tuple[int, list[str]]]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, **quotes)
        try:
            return [(reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip()]  # no blank lines
        except csv.Error as error:
            raise BadInput(f"{path} line {reader.line_num}: {error}; check the quotes and separators") from error

    try:
        rows = numbered(strict=True) if quoted else numbered(quoting=csv.QUOTE_NONE)
        for line, row in rows if separator == "\t" else ():  # two marks that are no pair, and all between them
            if any("\n" in cell and "\t" in cell for cell in row):
                raise BadInput(f"{path} line {line}: a quotation mark closes a cell that began lines before")
    except BadInput as error:
        if separator != "\t":
            raise
        warn(f"{error}; all its quotation marks are read as text")
        rows = numbered(quoting=csv.QUOTE_NONE)
    header = [title.strip() for title in rows[0][1]]
    if headless := name == "cola" and not quoted and not {"sentence", "label"} <= set(header):
        header = _COLA_HEADER
    rows = rows[not headless :]
    columns = pick(header, path)
    if quoted and (separator == ",") != (suffix == ".csv") and separator != "\t":
        warn(f"{path}: its columns are separated by {separator!r}, and read so")
    # SST-2's official header is the hub's; the others are known by their further columns or none.
    official = not quoted and name in HUB and (
        headless or columns is _OFFICIAL_COLUMNS.get(name) or "index" in header or name == "sst2"
    )  # fmt: skip
    if columns is _OFFICIAL_COLUMNS.get(name or ""):
        what, is_wrong = _WRONG.get(str(name), ("", lambda *_: False))
        good = [(line, row) for line, row in rows if not is_wrong(header, row)]
        if len(good) < len(rows):
            warn(f"{path}: {len(rows) - len(good)} rows {what} left out")
        rows = good
    for line, row in rows:
        if len(row) != len(header):
            raise BadInput(f"{path} line {line}: {len(row)} columns where {len(header)} are needed")
    return Rows(
        _taken(columns, header, lambda name: [row[header.index(name)] for _, row in rows]),
        lambda i: f"{path} line {rows[i][0]}", columns, integers=quoted or name not in _NAMES_ONLY,
        blanks=official, official=official, files=[str(path)],
    )  # fmt: skip


def json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """What the lines of a JSONL file hold, with their numbers; empty ones hold nothing."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} line {number}: not JSON ({error}); one object a line is expected") from error
        yield number, record


def _read_json(path: Path, text: str, pick: Pick) -> Rows:
    """One JSON object a line, or one list of objects."""
    what, numbered = "line", json_lines(path, text.split("\n"))
    if text.lstrip().startswith("["):
        try:
            what, numbered = "row", enumerate(json.loads(text), 1)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}: not JSON ({error}); a list of objects, or one a line is expected") from error
    columns: dict[str, str] = {}
    rows = []
    for number, record in numbered:
        where = f"{path} {what} {number}"
        if not isinstance(record, dict):
            raise BadInput(f"{where}: {type(record).__name__}; one JSON object a line is expected")
        record = {name.strip(): value for name, value in record.items()}
        columns = columns or pick(list(record), where)
        needed = [name for theirs in columns.values() for name in _parts(theirs, record)]
        if lacking := [name for name in needed if name not in record]:
            raise BadInput(f"{where}: no {lacking[0]!r}; every row needs {', '.join(needed)}")
        rows.append((where, record))
    if not rows:
        raise BadInput(f"{path}: no rows; one JSON object a line is expected")
    found = _taken(columns, rows[0][1], lambda name: [record[name] for _, record in rows])
    return Rows(found, lambda i: rows[i][0], columns, files=[str(path)])


def _read_parquet(path: Path, pick: Pick) -> Rows:
    """A Parquet file, or those of a pattern; class names that `datasets` stored in their schema are used."""
    import datasets
    import pyarrow.parquet

    try:
        parts = path if path.is_file() else sorted(path.parent.glob(path.name))
        table = datasets.Dataset(pyarrow.parquet.read_table(parts))
        return _read(table, str(path), pick)
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:  # names and texts are decoded late
        raise BadInput(f"{path}: not a readable Parquet file ({first_line(error)})") from error


# --- a data set of one's own ---------------------------------------------------------------------------------


class DataSet(NamedTuple):
    """The task that a data set of one's own was seen to be, its rows by split, and where they are from."""

    task: Task
    rows: dict[str, Rows]
    source: Source
    origin: str


def check_task(name: str, data_dir: str | None = None, columns: Columns = NO_COLUMNS) -> Task:
    """The task called `name`, after every check that needs no model. Raises BadInput. Reads no data but those of a data
    set of one's own, whose kind is seen from them."""
    if not is_data_set(name):
        if columns.own:
            raise BadInput(f"--text, --label, --kind, --metric: are for data sets of your own; {name} has its own")
        return check_name(name, data_dir)
    if data_dir is not None:
        raise BadInput(f"--data-dir {data_dir}: --task {name} says itself where its data are; leave it out")
    return open_data(name, columns).task


def open_data(name: str, columns: Columns) -> DataSet:
    """The data set behind hub:REPO[@REVISION][:CONFIG], a file, or a folder with a file for each split.

    Rows without a text or a label are left out, and their number is told. Raises BadInput. What has not changed since
    is not read again.
    """
    path = Path(name).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path]  # among them may be a link to what is gone
    files += [Path(columns.outputs)] if columns.outputs else []
    stamp = tuple((str(file.resolve()), file.stat().st_mtime_ns) for file in files if file.exists())
    return _open(name, columns, stamp)


SPLITS = ("train", "dev", "test")


@functools.lru_cache(maxsize=16)
def _open(name: str, columns: Columns, _stamp: tuple[tuple[str, int], ...]) -> DataSet:
    path = Path(name).expanduser()
    found: Mapping[str, Any] = {"train": path}  # a split's file, or its `datasets.Dataset`
    source: Source = "local"
    origin = title = path.resolve().name
    if name.startswith("hub:"):
        repo, _, config = name.removeprefix("hub:").partition(":")
        repo, _, asked = repo.partition("@")
        found, revision = _load(name, repo, config or None, asked or None, "--task FILE or --task FOLDER")
        source, origin, title = "hub", f"{repo}@{revision}", repo
    elif path.is_dir():
        found, origin = _opened(files_of(path, SPLITS, ("train",)))
    elif not path.is_file():
        raise BadInput(f"--task {name}: no such file or folder")
    elif plain(path).suffix.lower() not in SUFFIXES:
        kinds = ", ".join(filter(None, SUFFIXES))
        raise BadInput(f"--task {name}: must be a {kinds} file; save a spreadsheet as CSV, in UTF-8")
    rows: dict[str, Rows] = {}
    pick: Pick = functools.partial(_choose_columns, columns)
    for split, stored in _splits(found, SPLITS, ("train",), f"--task {name}").items():
        made = _read(stored, f"{origin} {split}", pick)
        label = rows["train"].chosen.get("label") if rows else None
        if label is not None and "label" not in made.columns:
            warn(f"{split} is left out: no column {label!r}, which train has, in {made.files[0]}")
            continue
        made = replace(made, columns=made.columns | {"label": made.columns.get("label", [None] * len(made))})
        rows |= _by_split(split, made)
        if split == "train" and "label" in made.chosen:
            pick = functools.partial(_same_columns, made.chosen)
    if columns.outputs is not None:
        join(rows, stored_outputs(columns))
    return described(plain(Path(title)).stem, rows, columns, source, origin)


def _by_split(split: str, rows: Rows) -> dict[str, Rows]:
    """The rows of a table of which a column says what each is for. Other tables are this split."""
    if "split" not in rows.columns:
        return {split: rows}
    of_name = {name: split for split in SPLITS for name in names_of(split)}
    column = rows.chosen.pop("split")
    said = [of_name.get(str(value).strip().lower()) for value in rows.columns.pop("split")]
    if "train" not in said or None in said:
        where = rows.place(said.index(None)) if None in said else rows.files[0]
        raise BadInput(f"{where}: its column {column!r} must say train, dev or test, and train of some rows; another"
                       " name for it, or a file for each split, would do")  # fmt: skip
    rows.columns["row"] = list(range(len(rows)))
    return {split: rows.keep([i for i, one in enumerate(said) if one == split]) for split in SPLITS if split in said}


def stored_outputs(columns: Columns) -> Outputs:
    """What `--teacher-outputs` names, with the names of `--label-map`."""
    path = Path(str(columns.outputs))
    found = _stored_outputs(path, path.stat().st_mtime_ns)
    if columns.label_map is None:
        return found
    return replace(found, names=renamed(columns.label_map, found.names or tuple(map(str, range(len(found.values[0]))))))


@functools.lru_cache(maxsize=4)
def _stored_outputs(path: Path, _stamp: int) -> Outputs:
    return parse(_read(path, str(path), lambda header, _: {name: name for name in header}))


def described(
    name: str, rows: dict[str, Rows], columns: Columns, source: Source = "local", origin: str = "lists"
) -> DataSet:
    """What rows with the canonical columns (`text`, or `text1` and `text2`, or `question` and `context`; `label`) are
    a task of. Their labels become those that `data` reads for a task of the table."""
    asked = OWN[columns.kind] if columns.kind else None
    rows, known = _with_and_without_labels(rows, columns, asked)
    said = _output_names(rows, known, columns, asked)
    if not (known or said):
        raise BadInput(f"{name}: no row has a label, and teacher {columns.teacher} no head that names classes; give a"
                       " fine-tuned one, or --teacher-outputs FILE")  # fmt: skip
    kind = asked or _seen_kind(known, said)
    if columns.metric not in (None, *kind.own_metrics):  # of two kinds that are called alike, the one that has it
        kind = next((one for one in KINDS.values() if one.own == kind.own and columns.metric in one.own_metrics), kind)
    known = _with_cells(kind, known)
    rows = _with_cells(kind, rows) if kind.ordered else known  # of others, only what has its tags or answer teaches
    labels = _label_names(kind, known, said, stored=rows["train"].outputs is not None)
    # a number is an id only where nobody says what the classes are called, or they are called by numbers
    integers = not said or any(label.isdigit() for label in labels)
    rows = {split: replace(found, names=None, integers=integers) for split, found in rows.items()}
    metrics = kind.own_metrics
    if columns.metric is not None:
        allowed = [*(metric for metric in metrics if metric != "majority"), *kind.more_metrics]
        if columns.metric not in allowed:
            raise BadInput(f"--metric {columns.metric}: {name} is {kind}, which has {', '.join(allowed)}")
        metrics = (columns.metric, *(metric for metric in metrics if metric != columns.metric))
        origin += f", by {columns.metric}"
    fields = tuple(field for field in rows["train"].columns if field not in NO_TEXTS)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "data"
    return DataSet(Task(safe, kind, fields, labels, metrics, splits=tuple(rows)), rows, source, origin)


def _with_and_without_labels(
    rows: dict[str, Rows], columns: Columns, asked: Kind | None
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """The rows that can be learnt from or scored; and of each split that has any, those with a label."""
    several = asked is not None and asked.several
    unlabelled = columns.unlabelled and (asked is None or asked.ordered)
    none = unlabelled and all(map(_blank, rows["train"].columns["label"]))
    cleaned = {split: _without_blanks(split, found, several, unlabelled if split == "train" else none)
               for split, found in rows.items()}  # fmt: skip
    rows = {split: found for split, found in cleaned.items() if found is not None}
    known = {split: found.keep([i for i, value in enumerate(found.columns["label"]) if several or value is not None])
             for split, found in rows.items()}  # fmt: skip
    return rows, {split: found for split, found in known.items() if len(found)}


def _output_names(
    rows: dict[str, Rows], known: dict[str, Rows], columns: Columns, asked: Kind | None
) -> tuple[str, ...]:
    """What the teacher's outputs are called, where labels do not say it all: by its file, or by its head; one of
    scores, () if nobody says it."""
    stored = rows["train"].outputs
    unnamed = asked is not None and not asked.taught_by_labels  # vectors
    if stored is not None:
        numbered = tuple(map(str, range(len(stored.values[0])))) if unnamed or not known else ()
        return stored.names or numbered
    lacking = any(len(found) > len(known.get(split, ())) for split, found in rows.items())
    if not (columns.unlabelled and columns.teacher and (lacking or unnamed)):
        return ()
    from common import models  # with torch, which few need so early

    config: Any = models.load_config(models.source(columns.teacher.split(",")[0].strip()))
    if columns.label_map:
        return renamed(columns.label_map, tuple(map(str, range(config.num_labels))))
    return (asked or KINDS["classification"]).output_names(config)


def _with_cells(kind: Kind, rows: dict[str, Rows]) -> dict[str, Rows]:
    """The labels as the kind takes them."""
    made = {}
    for split, found in rows.items():
        values = [None if value is None and kind.ordered else kind.cell(value, found.names)
                  for value in found.columns["label"]]  # fmt: skip
        made[split] = replace(found, columns=found.columns | {"label": values})
    return made


def _label_names(kind: Kind, known: dict[str, Rows], said: tuple[str, ...], stored: bool) -> tuple[str, ...]:
    """Task.labels: those that there are or, where a teacher's outputs are their names, all of these."""
    if not kind.taught_by_labels:
        return said
    if not known:
        return said if len(said) > 1 else ()
    labels = tuple(kind.label_names(known))
    # a column of outputs names its class
    return said if labels and said and (stored or set(labels) <= set(said)) else labels


NO_TEXTS = ("label", "id", "row", "outputs")  # our names of the columns that are no texts

# Names of columns, as data sets have them; the first that is there is taken
_LABELS = ("label", "labels", "ner_tags", "tags", "answers", "category", "class", "intent", "score", "target",
           "summary")  # fmt: skip
_TEXTS = (
    *(("question", "context"), ("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2")),
    *((name,) for name in ("tokens", "words", "text", "sentence", "document", "source", "body", "content")),
)


def _choose_columns(columns: Columns, header: Sequence[str], where: str | Path) -> dict[str, str]:
    """Canonical name -> the source's column, by `--text` and `--label`, by their usual names, or the other of two."""
    several = columns.kind is not None and OWN[columns.kind].several
    labels = _parts(columns.label, header) if columns.label and several else [columns.label]
    for option, name in [("--text", name) for name in columns.text] + [("--label", name) for name in labels]:
        if name is not None and name not in header:
            hint = "; a name with a comma stands in quotation marks" if any("," in other for other in header) else ""
            if option == "--label" and "," in name:
                hint += "; several columns of 0 and 1 are read with --kind labels"
            raise BadInput(f"{where}: no column {name!r} for {option}; it has {some(header)}{hint}")
    usual = {name.strip().lower(): name for name in reversed(header) if name not in columns.text}
    label = columns.label or next((usual[name] for name in _LABELS if name in usual), "")
    id = next((name for name in header if name.lower() == "id" and name not in (label, *columns.text)), "")
    left = [name for name in header if name not in (label, id)]
    usual = {name: column for name, column in usual.items() if column != label}
    known = (tuple(usual[name] for name in names) for names in _TEXTS if usual.keys() >= set(names))
    texts = columns.text or next(known, tuple(left) if label and len(left) == 1 else ())
    if not label and texts and len(header) == 2 and not columns.outputs:
        label = next((name for name in left if name not in texts), "")
    if not texts and columns.unlabelled and len(header) == 1:
        texts = (header[0],)
    if not texts or not (label or columns.unlabelled):
        lacking = [name for name, value in (("texts", texts), ("labels", label)) if not value]
        raise BadInput(f"{where}: no column is known to hold the {' and the '.join(lacking)}; it has {some(header)};"
                       " say which by --text COLUMN[,COLUMN] and --label COLUMN")  # fmt: skip
    if len(texts) > 2 or len({*texts, label}) <= len(texts):
        raise BadInput(f"--text {','.join(texts)} --label {label}: must be one text or two, and another column")
    pairs = [kind.pair for kind in KINDS.values() if columns.kind == kind.own or label.lower() in kind.called]
    if columns.kind and len(texts) == 1 and not OWN[columns.kind].taught_by_labels:
        label = ""  # it would say nothing of one text
    names = ("text",) if len(texts) == 1 else pairs[0] if pairs else Kind.pair
    beside = {"label": label, "id": id if columns.outputs else ""}
    if usual.get("split", label) not in (label, *texts):
        beside["split"] = usual["split"]
    return dict(zip(names, texts, strict=True)) | {ours: theirs for ours, theirs in beside.items() if theirs}


def _same_columns(chosen: dict[str, str], header: Sequence[str], where: str | Path) -> dict[str, str]:
    """The columns of train in another split, which may lack the label's: then the texts' alone."""
    labelled = set(_parts(chosen["label"], header)) <= set(header)
    there = {ours: theirs for ours, theirs in chosen.items()
             if (labelled if ours == "label" else ours != "id" or theirs in header)}  # fmt: skip
    if lacking := [theirs for theirs in there.values() if not set(_parts(theirs, header)) <= set(header)]:
        raise BadInput(f"{where}: no column {lacking[0]!r}, which train has; it has {some(header)}")
    return there


# --- what its labels are -------------------------------------------------------------------------------------


def _blank(value: Any) -> bool:
    """Whether there is nothing in a cell, as files and their readers say it."""
    return value is None or value != value or value in ([], {}) or not str(value).strip()


def _without_blanks(split: str, rows: Rows, several: bool, unlabelled: bool) -> Rows | None:
    """The rows that have a text and a label; None for a split, other than train, that has no labels at all.

    Where it may be `unlabelled` the label is None instead, in train also of some rows."""
    fields = [column for name, column in rows.columns.items() if name not in NO_TEXTS]
    lacks = {
        "text": [all(map(_blank, row)) for row in zip(*fields, strict=True)],
        "label": [not several and (_blank(v) or (rows.names is not None and v == -1)) for v in rows.columns["label"]],
    }
    if unlabelled and (split == "train" or all(lacks["label"])):
        labels = [None if no else value for no, value in zip(lacks["label"], rows.columns["label"], strict=True)]
        rows, lacks["label"] = replace(rows, columns=rows.columns | {"label": labels}), [False] * len(rows)
    for what, lacking in lacks.items():
        if count := sum(lacking):
            first = rows.place(lacking.index(True))
            warn(f"{split}: {count:,} of {len(rows):,} rows have no {what} and are left out; the first is {first}")
    kept = [i for i, lacking in enumerate(zip(*lacks.values(), strict=True)) if not any(lacking)]
    for values in fields:  # one side of a pair may be blank: null is
        values[:] = ["" if not isinstance(value, str) and _blank(value) else value for value in values]
    if not kept and split == "train":
        raise BadInput(f"{rows.files[0] if rows.files else split}: no row has both a text and a label")
    return replace(rows.keep(kept), blanks=len(fields) > 1) if kept else None


def _seen_kind(known: dict[str, Rows], said: tuple[str, ...]) -> Kind:
    """What the labels of a data set are; without any, what a teacher's outputs are."""
    if not known:
        return KINDS["regression" if len(said) == 1 else "classification"]
    rows = known.get("train") or next(iter(known.values()))
    values, texts = rows.columns["label"], next(iter(rows.columns.values()))
    mixed = not all(isinstance(value, dict) for value in values)
    for i, value in enumerate(values if mixed else ()):
        words = texts[i] if isinstance(texts[i], list) else str(texts[i]).split()
        if isinstance(value, dict) or (isinstance(value, list) and len(value) != len(words)):
            raise BadInput(f"{rows.place(i)}: its label is {str(value)[:60]}; several labels of one text are not learnt"
                           " without --kind labels; give that, one each, or a tag for each word")  # fmt: skip
    for kind in KINDS.values():
        if kind.seen(rows):
            return kind
    different = len(set(map(str, values)))
    raise BadInput(f"{rows.place(0)}: {different:,} different labels in {len(values):,} rows ({shown(values[0])}, ...)"
                   f" are no classes; --label names the right column, or --kind {', '.join(OWN)} says what they"
                   " are")  # fmt: skip
