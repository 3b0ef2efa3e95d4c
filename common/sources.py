"""Where a task's data comes from: the pocket suite, the hub, or local files.

    found = open_data("pocket/sst2")                    # the embedded suite
    found = open_data("sst2")                           # the hub, at a pinned revision
    found = open_data("sst2", "DIR")                    # GLUE's layout, named columns, SQuAD, CoNLL, `save_to_disk`
    found = open_data("tickets.csv", columns=columns)   # a data set of one's own: what it holds is seen from it

A reader makes `Rows` of all columns that there are; then those that are the task's are taken.

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
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pocket
from common.errors import BadInput, refused, shown, some, warn
from common.kinds import KINDS, OWN, Kind, Rows, Task
from common.kinds.base import parts_of
from common.kinds.documents import TAG, hotpot_row, trivia_row
from common.kinds.sentences import number as as_number
from common.kinds.sentences import renamed
from common.outputs import Outputs, join, parse
from common.tasks import (
    NO_COLUMNS,
    SUFFIXES,
    TASKS,
    Columns,
    Source,
    check_name,
    data_files,
    files_of,
    find_files,
    folder_of,
    is_data_set,
    names_of,
    plain,
)
from common.values import TIMEOUT_SECONDS, expanded, split_paths

Pick = Callable[[Sequence[str], str], dict[str, str]]  # the columns that there are, and where -> our name: the column


class DataSet(NamedTuple):
    """A task, its rows by split, and where they are from."""

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
    return _own_data(name, columns).task


def open_data(name: str, data_dir: str | None = None, columns: Columns = NO_COLUMNS) -> DataSet:
    """The rows of a task, from the source that `name` and `data_dir` say. Raises BadInput, within seconds where the hub
    cannot be reached: then it names the commands that work without."""
    task = check_task(name, data_dir, columns)
    if is_data_set(name):
        return _own_data(name, columns)
    source: Source = "local" if data_dir is not None else "hub" if name == task.name else "pocket"
    if source == "pocket":  # the same for every seed of a run, the suite's own seed being 0
        rows = {split: Rows(pocket.generate(task.name, split), f"{name} {split}") for split in pocket.SPLITS[task.name]}
        origin = f"pocket v{pocket.VERSION}"
    else:
        if data_dir is not None:
            found, origin = _opened(find_files(task, data_dir))
        else:
            instead = f"`--task pocket/{task.pocket}` (built in) or `--task {name} --data-dir DIR` (your own files)"
            found, origin = _load(name, HUB[name], instead)
        stored = _splits(found, task.splits, task.splits, origin)
        rows = {split: _rows_of_task(task, split, one, f"{origin} {split}", source) for split, one in stored.items()}
    if columns.outputs is not None:
        join(rows, stored_outputs(columns))
    return DataSet(task, rows, source, origin)


def _splits(found: Mapping[str, Any], splits: Collection[str], needed: Collection[str], where: str) -> dict[str, Any]:
    """What is there of these splits: a DatasetDict may have "validation" where it is "dev" here."""
    for split in needed:
        if not set(found) & set(names_of(split)):
            theirs = split.replace("dev", "validation")
            raise BadInput(f"{where}: no {split} split; needs {theirs!r}, has {some(list(found))}")
    there = {split: next((name for name in names_of(split) if name in found), None) for split in splits}
    return {split: found[name] for split, name in there.items() if name is not None}


# --- the table of sources ------------------------------------------------------------------------------------

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
    revision: str | None
    rows: tuple[int, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def _translation(repo: str, config: str, revision: str, languages: str, *rows: int) -> HubSource:
    """A pair of languages, "en-ro": one column holds both sides of a sentence pair."""
    ours, theirs = languages.split("-")

    def sides(row: dict[str, Any]) -> dict[str, Any]:
        return {"source": row["source"][ours], "label": row["source"][theirs]}

    return HubSource(repo, config, revision, rows, {"source": "translation", "label": "translation"}, sides)


GLUE = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "qqp": (363846, 40430),
    "stsb": (5749, 1500),
    "mnli": (392702, 9815, 9832),
    "qnli": (104743, 5463),
    "rte": (2490, 277),
    "wnli": (635, 71),
}
_QUESTION = {"question": "question", "context": "context"}
HUB: dict[str, HubSource] = {
    name: HubSource("nyu-mll/glue", name, GLUE_REVISION, rows, {column: column for column in TASKS[name].columns})
    for name, rows in GLUE.items()
} | {
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
    "wmt16/en-ro": _translation("wmt/wmt16", "ro-en", "41d8a4013aa1489f28fea60ec0932af246086482", "en-ro",
                                610320, 1999, 1999),
    "wmt14/en-fr": _translation("wmt/wmt14", "fr-en", "b199e406369ec1b7634206d3ded5ba45de2fe696", "en-fr",
                                40836715, 3000, 3003),
    "iwslt2017/en-fr": _translation("IWSLT/iwslt2017", "iwslt2017-en-fr", CONVERTED, "en-fr", 232825, 890, 8597),
    # a row is a sentence, its words and tags in lists
    "conll2003": HubSource("lukasgarbas/conll-03", None, "1301e71165e0ddf97d086eaea193f8f4ecdd46e3",
                           (14041, 3250, 3453), {"text": "tokens", "label": "ner_tags"}),
}  # fmt: skip

_OFFICIAL: dict[str, dict[str, str]] = {  # header names of the official TSV files, where they are not the hub's
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    "qqp": {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    "stsb": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    "mnli": {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
}
_COLA_HEADER = ["source", "label", "mark", "sentence"]  # the official file has none
SPELT = {"mnli", "qnli", "rte"}  # GLUE's files, and its server, have these labels by name; integers are a mistake


def _columns_of_task(task: Task, labels: bool, header: Sequence[str], _where: str) -> dict[str, str]:
    """Canonical name -> the source's column: the canonical ones if all are there, else the official release's, those
    that are usual for the kind, or the hub's."""
    same = {name: name for name in task.columns}
    usual = task.kind.usual or same
    tables = [same, _OFFICIAL.get(task.name, usual), usual, HUB[task.name].columns if task.name in HUB else usual]
    if not labels:
        tables = [{ours: theirs for ours, theirs in table.items() if ours != "label"} for table in tables]
    return next((table for table in tables if set(table.values()) <= set(header)), tables[2])


def _rows_of_task(task: Task, split: str, stored: Any, where: str, place: Source) -> Rows:
    """A split of a task of the table, of the hub or a folder, as the task reads it."""
    source = HUB.get(task.name)
    if source and place == "hub":
        rows = replace(_read(stored, where, lambda *_: source.columns, task), official=True)
    else:
        rows = _read(stored, where, functools.partial(_columns_of_task, task, True), task)
    if source and rows.official and len(rows) != (count := source.rows[task.splits.index(split)]):
        warn(f"{task.name} {split} has {len(rows)} rows; the official split has {count}")  # a subset is legitimate
    if source and source.convert and rows.chosen == source.columns:
        made: list[dict[str, Any]] = []
        try:
            for row in zip(*rows.columns.values(), strict=True):
                made.append(source.convert(dict(zip(rows.columns, row, strict=True))))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{rows.place(len(made))}: not as {source.repo} has it ({error!r})") from error
        rows = replace(rows, columns={name: [row[name] for row in made] for name in rows.columns})
    return task.kind.examples(rows)


def test_texts(task: Task, data_dir: str | None, splits: Collection[str]) -> dict[str, list[tuple[str, ...]]]:
    """The texts of GLUE's test splits, which have no labels, in the order of their indices; `BadInput` without them."""
    if data_dir is None:
        found, origin = _load(task.name, HUB[task.name], "--data-dir DIR with GLUE's test.tsv")
    else:
        found, origin = _opened(files_of(folder_of(task, data_dir), splits, splits))
    pick = functools.partial(_columns_of_task, task, False)
    stored = _splits(found, splits, splits, f"--write-test: {origin}")
    rows = {split: _read(one, f"{origin} {split}", pick, task) for split, one in stored.items()}
    return {split: [*zip(*(one.columns[field] for field in task.fields), strict=True)] for split, one in rows.items()}


# --- the hub -------------------------------------------------------------------------------------------------


def _load(task: str, source: HubSource, instead: str) -> tuple[Any, str]:
    """What `load_dataset` gives, and "repo@commit": without a revision the hub's newest. Without a connection the
    library's own cache is used, if it holds that very revision, or one of a branch. `instead`: what works without."""
    place = f"{source.repo}@{source.revision}" if source.revision else source.repo
    what = f"--task {task}: {place} could not be loaded from the hub or its cache"
    with refused(what, hint=f"; without a hub, use {instead}"):
        return _from_hub(source.repo, source.config, source.revision)


def _from_hub(repo: str, config: str | None, revision: str | None) -> tuple[Any, str]:
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    online = datasets.config.HF_HUB_OFFLINE
    try:
        commit = hub_commit(repo, revision)  # one quick question: the library alone retries for half a minute
    except Exception:
        datasets.config.HF_HUB_OFFLINE = True
        with contextlib.suppress(Exception):  # what the hub said is told
            found = datasets.load_dataset(repo, config, revision=revision)
            # the cache may settle for another revision of the same configuration: the folder's name tells
            files = [file["filename"] for split in found.values() for file in split.cache_files]
            there = set(re.findall(r"\b[0-9a-f]{40}\b", " ".join(files)))
            named = re.fullmatch("[0-9a-f]{40}", revision or "")  # a branch may be at any commit
            if len(there) == 1 and (not named or revision in there):
                return found, f"{repo}@{there.pop()}"
        raise
    finally:
        datasets.config.HF_HUB_OFFLINE = online
    return datasets.load_dataset(repo, config, revision=commit), f"{repo}@{commit}"


def hub_commit(repo: str, revision: str | None = None) -> str:
    """The commit that the hub serves as `revision` of a data set, by default the newest."""
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT_SECONDS).sha)


# --- local files ---------------------------------------------------------------------------------------------


def _opened(files: dict[str, Path]) -> tuple[Mapping[str, Any], str]:
    """What `find_files` found: the file or the `datasets.Dataset` of each split; and what results call it."""
    if not (folder := files.get("")):
        first, *_ = files.values()
        return files, f"{first.parent.resolve().name}: {', '.join(file.name for file in files.values())}"
    import datasets

    with refused(f"{folder}: save_to_disk folder cannot be read"):
        return datasets.load_from_disk(str(folder)), f"{folder.resolve().name} (save_to_disk)"


def _read(stored: Any, where: str, pick: Pick, task: Task | None = None) -> Rows:
    """The picked columns of one split, a `datasets.Dataset` or a file, whose suffix says how it is read, and of a data
    set of one's own (no task yet) also what is in it."""
    if not isinstance(stored, Path):
        rows = _dataset(stored, where)
    elif (suffix := plain(stored).suffix.lower()) == ".parquet":
        return _read_parquet(stored, pick)
    else:
        path, text = plain(stored), _decode(stored)
        for kind in [task.kind] if task else [TAGS, SPANS]:
            if (found := kind.parse(path, text, task.whole if task else None)) is not None:
                return found
        rows = _json(path, text) if suffix in (".jsonl", ".json") else _table(path, text, task.name if task else None)
    return rows.take(pick(list(rows.columns), rows.where))


def _dataset(data: Any, where: str) -> Rows:
    """A `datasets.Dataset`, of which only the columns that are taken are decoded."""
    titles = _titles(data.column_names, where)
    lists = {name: getattr(data.features[title], "feature", data.features[title]) for name, title in titles.items()}
    names = {name: feature.names for name, feature in lists.items() if getattr(feature, "names", None)}
    return Rows({name: data[title] for name, title in titles.items()}, where, names=names)


def _titles(columns: Sequence[str], where: str) -> dict[str, str]:
    """The names of columns without blanks around them -> as they stand there; of equals the first, which is said."""
    titles: dict[str, str] = {}
    for title in columns:
        if title.strip() in titles:
            warn(f"{where}: several columns are called {title.strip()!r}; the first of them is read")
        titles.setdefault(title.strip(), title)
    return titles


def _read_parquet(path: Path, pick: Pick) -> Rows:
    """The picked columns of a Parquet file, or of those of a pattern, and no others; class names that `datasets` stored
    in their schema are used."""
    import datasets
    import pyarrow.parquet

    # names and texts are decoded late; `datasets` has no type for some of Arrow's
    with refused(f"{path}: not a readable Parquet file", OSError, pyarrow.ArrowException, ValueError):
        parts = [path] if path.is_file() else sorted(path.parent.glob(path.name))
        titles = _titles(pyarrow.parquet.read_schema(parts[0]).names, str(path))
        chosen = pick(list(titles), str(path))
        Rows(dict.fromkeys(titles, ()), str(path)).take(chosen)  # they are there
        needed = {titles[part] for name in chosen.values() for part in parts_of(name, titles)}
        table = pyarrow.parquet.read_table(parts, columns=sorted(needed))
        return _read(datasets.Dataset(table), str(path), lambda *_: chosen)


def _decode(path: Path) -> str:
    """The text of a file in UTF-8, or with a byte order mark in UTF-16, as Excel's "Unicode text" is."""
    with refused(f"{path}: cannot be read", OSError, EOFError, zlib.error):
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    try:
        utf16 = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        text = raw.decode("utf-16" if utf16 else "utf-8-sig")
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


def _table(path: Path, text: str, name: str | None) -> Rows:
    """CSV with the usual quoting; TSV of a task (its `name`) without any: a quotation mark is just text there, as it is
    in a TSV of one's own whose marks do not come in pairs."""
    suffix = path.suffix.lower()
    quoted = suffix == ".csv" or name is None
    separator = _separator(re.split("[\r\n]", text.lstrip(" \r\n"), maxsplit=1)[0], suffix) if quoted else "\t"
    if quoted and (separator == ",") != (suffix == ".csv") and separator != "\t":
        warn(f"{path}: its columns are separated by {separator!r}, and read so")
    rows = _cells(path, text, separator, quoted)
    header = [title.strip() for title in rows[0][1]]
    if headless := name == "cola" and not quoted and "sentence" not in header:
        header = _COLA_HEADER
    if twice := next((title for i, title in enumerate(header) if title and title in header[:i]), None):
        warn(f"{path}: several columns are called {twice!r}; the first of them is read")
    rows = rows[not headless :]
    released = not quoted and name in _OFFICIAL and set(_OFFICIAL[name].values()) <= set(header)
    if released and name in ("qqp", "mnli"):  # what is known to be wrong in the official files is left out
        if name == "qqp":
            what, good = "with too few or too many columns", [row for row in rows if len(row[1]) == len(header)]
        else:
            what, at = "without an agreed label", header.index("gold_label")
            good = [row for row in rows if row[1][at : at + 1] != ["-"]]
        if len(good) < len(rows):
            warn(f"{path}: {len(rows) - len(good)} rows {what} left out")
        rows = good
    for line, row in rows:
        if len(row) != len(header):
            raise BadInput(f"{path} line {line}: {len(row)} columns where {len(header)} are needed")
    # SST-2's official header is the hub's; the others are known by their further columns or none.
    official = not quoted and name in HUB and (headless or released or "index" in header or name == "sst2")
    columns = {title: [row[i] for _, row in rows] for title, i in zip(header, map(header.index, header), strict=True)}
    return Rows(
        columns,
        str(path),
        lambda i: f"{path} line {rows[i][0]}",
        official=official,
        integers=quoted or name not in SPELT,
    )


def _cells(path: Path, text: str, separator: str, quoted: bool) -> list[tuple[int, list[str]]]:
    """Every row that is not blank, with its line."""
    csv.field_size_limit(max(len(text), 131_072))  # a text of any length is cut later, in tokens
    how: dict[str, Any] = {"strict": True} if quoted else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, **how)
    rows, wrong = [], ""
    try:
        rows = [(reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip()]
    except csv.Error as error:
        wrong = f"{path} line {reader.line_num}: {error}; check the quotes and separators"
    if separator == "\t" and quoted:
        # two marks that are no pair, and all between them
        broken = (line for line, row in rows if any("\n" in cell and "\t" in cell for cell in row))
        if line := next(broken, None):
            wrong = f"{path} line {line}: a quotation mark closes a cell that began lines before"
        if wrong:
            warn(f"{wrong}; all its quotation marks are read as text")
            return _cells(path, text, separator, quoted=False)
    if wrong:
        raise BadInput(wrong)
    return rows


def json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """What the lines of a JSONL file hold, with their numbers; empty ones hold nothing."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        expected = "; one object a line is expected"
        with refused(f"{path} line {number}: not JSON", ValueError, RecursionError, hint=expected):
            record = json.loads(line)
        yield number, record


def _json(path: Path, text: str) -> Rows:
    """One JSON object a line, or one list of objects; what one of them lacks is null. A row that is a list, as
    pipelines give them, is the column "list"."""
    what, numbered = "line", json_lines(path, text.split("\n"))
    if path.suffix.lower() == ".json" and text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):  # several objects are none
            json.loads(text)
            raise BadInput(f"{path}: one object, as pandas writes columns, or rows in a field of it; a list of objects,"
                           ' or one a line is expected, as pandas writes with orient="records"')  # fmt: skip
    if text.lstrip().startswith("[") and "\n[" not in text.strip():
        expected = "; a list of objects, or one a line is expected"
        with refused(f"{path}: not JSON", ValueError, RecursionError, hint=expected):
            what, numbered = "row", enumerate(json.loads(text), 1)
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    for number, record in numbered:
        if isinstance(record, list) and (not rows or "list" in rows[0]):
            record = {"list": record}
        if not isinstance(record, dict):
            raise BadInput(f"{path} {what} {number}: {type(record).__name__}; one JSON object a line is expected")
        numbers.append(number)
        rows.append({name.strip(): value for name, value in record.items()})
    if not rows:
        raise BadInput(f"{path}: no rows; one JSON object a line is expected")
    names = dict.fromkeys(name for record in rows for name in record)
    columns = {name: [record.get(name) for record in rows] for name in names}
    return Rows(columns, str(path), lambda i: f"{path} {what} {numbers[i]}")


# --- a data set of one's own ---------------------------------------------------------------------------------


SPLITS = ("train", "dev", "test")
NO_TEXTS = ("label", "id", "row", "outputs")  # our names of the columns that are no texts
CLASSES, TAGS, SPANS = KINDS["classification"], KINDS["token classification"], KINDS["span QA"]


def _asked(columns: Columns) -> Kind | None:
    """The kind that `--kind` says."""
    if columns.kind not in (None, *OWN):
        raise BadInput(f"--kind {columns.kind}: must be one of {', '.join(OWN)}")
    return KINDS[OWN[columns.kind]] if columns.kind else None


def _own_data(name: str, columns: Columns) -> DataSet:
    """The data set behind hub:REPO[@REVISION][:CONFIG], a file, or a folder with a file for each split. What has not
    changed since is not read again."""
    _asked(columns)
    path = expanded(name)
    files = sorted(path.iterdir()) if path.is_dir() else [path]  # among them may be a link to what is gone
    files += [Path(columns.outputs)] if columns.outputs else []
    stamp = tuple((str(file.resolve()), file.stat().st_mtime_ns) for file in files if file.exists())
    return _read_own(name, columns, stamp)


@functools.lru_cache(maxsize=16)
def _read_own(name: str, columns: Columns, _stamp: tuple[tuple[str, int], ...]) -> DataSet:
    path = expanded(name)
    found: Mapping[str, Any] = {"train": path}  # a split's file, or its `datasets.Dataset`
    origin = title = path.resolve().name
    if name.startswith("hub:"):
        place, _, config = name.removeprefix("hub:").partition(":")
        title, _, revision = place.partition("@")
        source = HubSource(title, config or None, revision or None)
        found, origin = _load(name, source, "--task FILE or --task FOLDER")
    elif path.is_dir():
        found, origin = _opened(files_of(path, SPLITS, ("train",)))
    elif not path.is_file():
        raise BadInput(f"--task {name}: no such file or folder")
    elif plain(path).suffix.lower() not in SUFFIXES:
        kinds = ", ".join(filter(None, SUFFIXES))
        raise BadInput(f"--task {name}: must be a {kinds} file; save a spreadsheet as CSV, in UTF-8")
    rows: dict[str, Rows] = {}
    pick: Pick = functools.partial(_choose_columns, columns)
    splits = _splits(found, SPLITS, ("train",), f"--task {name}")
    unread = [split for split, one in found.items() if not any(one is read for read in splits.values())]
    if path.is_dir() and all(isinstance(file, Path) for file in splits.values()):
        read = {Path(file).name for file in (*splits.values(), columns.outputs or "")}
        unread = [file.name for file in data_files(path) if not any(fnmatch(file.name, one) for one in read)]
    if unread:
        warn(f"--task {name}: does not read {some(unread)}; splits are called train, dev (valid, validation) and test")
    for split, stored in splits.items():
        made = _read(stored, f"{origin} {split}", pick)
        label = rows["train"].chosen.get("label") if rows else None
        if label is not None and "label" not in made.columns:
            warn(f"{split} is left out: no column {label!r}, which train has, in {made.where}")
            continue
        made.columns.setdefault("label", [None] * len(made))
        parts = _by_split(split, made)
        if rows.keys() & parts.keys():
            raise BadInput(
                f"--task {name}: a column of train's file and another file both say what {split} is; leave one"
            )
        rows |= parts
        if split == "train" and "label" in made.chosen:
            pick = functools.partial(_same_columns, made.chosen)
    if columns.outputs is not None:
        join(rows, stored_outputs(columns))
    return described(plain(Path(title)).stem, rows, columns, "hub" if name.startswith("hub:") else "local", origin)


def _by_split(split: str, rows: Rows) -> dict[str, Rows]:
    """The rows of a table of which a column says what each is for. Other tables are this split."""
    if "split" not in rows.columns:
        return {split: rows}
    of_name = {name: split for split in SPLITS for name in names_of(split)}
    column = rows.chosen.pop("split")
    said = [of_name.get(str(value).strip().lower()) for value in rows.columns.pop("split")]
    if "train" not in said or None in said:
        where = rows.place(said.index(None)) if None in said else rows.where
        raise BadInput(f"{where}: its column {column!r} must say train, dev or test, and train of some rows; another"
                       " name for it, or a file for each split, would do")  # fmt: skip
    rows.columns["row"] = list(range(len(rows)))
    return {split: rows.keep([i for i, one in enumerate(said) if one == split]) for split in SPLITS if split in said}


def stored_outputs(columns: Columns) -> Outputs:
    """What `--teacher-outputs` names, with the names of `--label-map`."""
    path = Path(str(columns.outputs))
    found = parse(_read(path, str(path), lambda header, _: {name: name for name in header}))
    if columns.label_map is None:
        return found
    return replace(found, names=renamed(columns.label_map, found.names or tuple(map(str, range(len(found.values[0]))))))


def _choose_columns(columns: Columns, header: Sequence[str], where: str) -> dict[str, str]:
    """Canonical name -> the source's column, by `--text` and `--label`, or else the usual columns of tags or spans, or
    "text" or "sentence", and "label", of which one may be the only other column."""
    kind = _asked(columns) or CLASSES
    labels = parts_of(columns.label or "", header) if kind.several else [columns.label or ""]
    for option, name in [("--text", name) for name in columns.text] + [("--label", name) for name in labels if name]:
        if name not in header:
            hint = (
                "; a name with a comma stands in quotation marks, and several columns of 0 and 1 are read with --kind"
            )
            hint = f"{hint} labels" if any("," in one for one in (name, *header)) else ""
            raise BadInput(f"{where}: no column {name!r} for {option}; it has {some(header)}{hint}")
    usual = {name.lower(): name for name in reversed(header) if name and name not in (*columns.text, *labels)}
    beside: dict[str, str] = {name: usual.pop(name) for name in ("split", "id") if name in usual}
    if not columns.outputs:
        beside.pop("id", None)
    for layout in (TAGS.usual, SPANS.usual):
        if not (columns.text or columns.label) and {*layout.values()} <= usual.keys():
            return {ours: usual[theirs] for ours, theirs in layout.items()} | beside
    label = columns.label or usual.get("label", "")
    known = tuple(usual[name] for name in ("text", "sentence") if name in usual)
    texts = columns.text or (known if len(known) == 1 else ())
    left = tuple(name for name in usual.values() if name not in (*texts, label))
    if len(left) == 1 and not (texts and (label or columns.outputs)):
        texts, label = (texts, left[0]) if texts else (left, label)
    if not texts or not (label or columns.unlabelled):
        lacking = [name for name, value in (("texts", texts), ("labels", label)) if not value]
        raise BadInput(f"{where}: no column is known to hold the {' and the '.join(lacking)}; it has {some(header)}, by"
                       " its first line; say which by --text COLUMN[,COLUMN] and --label COLUMN")  # fmt: skip
    if len(texts) > 2 or len({*texts, label}) <= len(texts):
        raise BadInput(f"--text {','.join(texts)} --label {label}: must be one text or two, and another column")
    if label:
        beside["label"] = label
    return dict(zip(("text",) if len(texts) == 1 else kind.pair, texts, strict=True)) | beside


def _same_columns(chosen: dict[str, str], header: Sequence[str], _where: str) -> dict[str, str]:
    """The columns of train in another split, which may lack the label's and the id."""
    lacking = {name for name in ("label", "id") if not set(parts_of(chosen.get(name, ""), header)) <= set(header)}
    return {ours: theirs for ours, theirs in chosen.items() if ours not in lacking}


# --- what its labels are -------------------------------------------------------------------------------------


def described(
    name: str, rows: dict[str, Rows], columns: Columns, source: Source = "local", origin: str = "lists"
) -> DataSet:
    """What rows with the canonical columns (`text`, or `text1` and `text2`, or `question` and `context`; `label`) are
    a task of: what `--kind` says or their layout, else classes. Their labels become those that `data` reads for a task
    of the table."""
    kind = _asked(columns) or _layout(rows["train"])
    rows = _usable(rows, columns, kind)
    labelled = {split: found.labelled for split, found in rows.items()}
    known = rows if kind.several else {split: found for split, found in labelled.items() if len(found)}
    said = _output_names(rows, known, columns, kind)
    if not (known or said):
        lacking = f"no row has a label, and teacher {columns.teacher} no head that names classes"
        remedies = "--label COLUMN (of 0 and 1: A,B --kind labels), a fine-tuned teacher, or --teacher-outputs FILE"
        raise BadInput(f"{name}: {lacking}; give {remedies}")
    if not columns.kind and not known and len(said) == 1:
        kind = KINDS["regression"]
    _refuse_labels(known, kind, asked=columns.kind is not None, named=bool(said))
    if columns.kind == "texts" and columns.metric in KINDS["translation"].own_metrics:
        kind = KINDS["translation"]
    rows = rows if kind.ordered else known  # of others, only what has its tags or answer teaches
    for found in rows.values():
        labels = found.columns["label"]
        for i, value in enumerate(labels):
            try:
                labels[i] = None if value is None and kind.ordered else kind.cell(value)
            except ValueError as error:
                raise BadInput(f"{found.place(i)}: {error}") from error
    names = said if len(said) > 1 else ()
    if known:
        names = tuple(kind.label_names({split: found.labelled for split, found in rows.items()}))
        if kind.several and not names:
            raise BadInput(
                f"{name}: --kind {columns.kind}, and no row has a label; --label COLUMN names where they are"
            )
        if names and said and (rows["train"].outputs or set(names) <= set(said)):  # a column of outputs names its class
            names = said
    metrics = kind.own_metrics
    if columns.metric is not None:
        allowed = [*(metric for metric in metrics if metric != "majority"), *kind.more_metrics]
        if columns.metric not in allowed:
            raise BadInput(f"--metric {columns.metric}: {name} is {kind}, which has {', '.join(allowed)}")
        metrics = tuple(dict.fromkeys((columns.metric, *metrics)))
        origin += f", by {columns.metric}"
    # a number is an id only where nobody says what the classes are called, or they are called by numbers
    integers = not said or any(label.isdigit() for label in names)
    rows = {split: kind.examples(replace(found, integers=integers)) for split, found in rows.items()}
    fields = tuple(field for field in rows["train"].columns if field not in NO_TEXTS)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "data"
    return DataSet(Task(safe, kind, fields, names, metrics, splits=tuple(rows)), rows, source, origin)


def _layout(rows: Rows) -> Kind:
    """Spans where there is a context; tags where words stand in lists, the label's column is called as tags are, or
    every label is made of tags; else classes."""
    labels = [label for label in rows.columns["label"] if not _blank(label)]
    tags = [tag for label in labels for tag in (label if isinstance(label, list) else str(label).split())]
    tagged = bool(tags) and all(TAG.fullmatch(str(tag)) for tag in tags)
    tagged |= rows.chosen.get("label", "").lower() == TAGS.usual["label"]
    tagged |= any(isinstance(text, list) for text in rows.columns.get("text", ()))
    return SPANS if "context" in rows.columns else TAGS if tagged else CLASSES


def _refuse_labels(known: dict[str, Rows], kind: Kind, asked: bool, named: bool) -> None:
    """Refuse labels of a layout that is not read, and classes that may be another kind's, in a line that names the
    argument to give. `asked`: --kind says the kind; `named`: a teacher's outputs say the classes."""
    classes = kind is CLASSES and not asked
    others = "; --kind labels reads several labels of a text, --kind classes takes each list as a class"
    either = others if classes else ""
    for rows in known.values():
        for i, label in enumerate(rows.columns["label"]):
            written = isinstance(label, str)
            if written and asked and not (kind.windowed or kind.several):
                continue  # a class, or a text, that stands in brackets may be meant
            if re.match(r"\s*\[\s*[\[{]", str(label)):
                why = 'a list of answers, or spans of characters; answers are {"text": [...], "answer_start": [...]},'
                why += " tags a list, one for each word"
            elif written and not kind.several and re.fullmatch(r"\s*(\[.*\]|\{.*\})\s*", label, re.DOTALL):
                why = f"a list or dictionary as text; lists of tags, and answers, need JSON lines or Parquet{either}"
            elif classes and isinstance(label, (list, dict)):
                why = f"neither one class, nor a tag for each word; several references are not read{either}"
            else:
                continue
            raise BadInput(f"{rows.place(i)}: its label is {shown(label)}: {why}")
    if not known or named or not classes:
        return
    rows = next(iter(known.values()))  # train, where it has labels
    if rows.names:
        return
    values, texts = rows.columns["label"], rows.columns.get("text", ())
    numbers = [n for value in values if (n := as_number(value)) is not None]
    distinct, different = {*numbers}, len({*map(str, values)})
    few = all(n.is_integer() for n in distinct) and (len(distinct) <= 20 or distinct == {*range(len(distinct))})
    words = sum(len(str(text).split()) == 1 for text in texts)
    if 2 * len(numbers) > len(values) and not few:
        why = f"{len(distinct):,} different numbers; --kind scores reads scores"
    elif different > max(2, len(values) // 2):
        why = f"{different:,} different labels in {len(values):,} rows; --label names another column, --kind texts"
        why += " reads texts to be written"
    elif (called := rows.chosen.get("text", "")).lower() in ("tokens", "words"):
        why = f"column {called!r} holds no lists of words, which need JSON lines or Parquet; --text names another"
    elif words > 0.9 * len(texts) and sum(map(len, texts)) <= 12 * len(texts):
        why = "one word a row; tags need CoNLL's columns, or the words of a sentence in a list"
    else:
        return
    raise BadInput(f"{rows.place(0)}: {why}, --kind classes takes each label as a class")


def _output_names(rows: dict[str, Rows], known: dict[str, Rows], columns: Columns, kind: Kind) -> tuple[str, ...]:
    """What the teacher's outputs are called, where labels do not say it all: by its file, or by its head; one of
    scores, () if nobody says it."""
    stored = rows["train"].outputs
    if stored is not None:
        return stored.names or (() if known else tuple(map(str, range(len(stored.values[0])))))
    lacking = any(len(found) > len(known.get(split, ())) for split, found in rows.items())
    if not (columns.unlabelled and columns.teacher and lacking):
        return ()
    from common import models  # with torch, which few need so early

    config: Any = models.load_config(models.source(split_paths(columns.teacher)[0]))
    if columns.label_map:
        return renamed(columns.label_map, tuple(map(str, range(config.num_labels))))
    return kind.output_names(config)


def _blank(value: Any) -> bool:
    """Whether there is nothing in a cell, as files and their readers say it; SQuAD 2 by a dictionary of empty lists."""
    if isinstance(value, dict):
        return not any(value.values())
    return value is None or value != value or value == [] or not str(value).strip()


def _minus_one(value: Any) -> bool:
    """Whether a label, or each of several, is -1, as the labels of GLUE's test files are, which nobody knows."""
    cells = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return {as_number(cell) for cell in cells} == {-1}


def _usable(rows: dict[str, Rows], columns: Columns, kind: Kind) -> dict[str, Rows]:
    """The rows that can be learnt from or scored: without blank texts and, unless the kind has several, blank labels.

    Where a teacher's outputs may teach, the label is None instead: of rows of train, and of a split that has no label.
    """
    of_train = [value for value in rows["train"].columns["label"] if not _blank(value)]
    signed = not of_train or any((as_number(value) or 0) < 0 for value in of_train)  # -1 is a label as others
    kept: dict[str, Rows] = {}
    for split, found in rows.items():
        labels = found.columns["label"]
        fields = [column for name, column in found.columns.items() if name not in NO_TEXTS]
        minus = [_minus_one(value) for value in labels]
        unknown = "label" in found.names or (split != "train" and (all(minus) or not signed))
        lacks = {
            "text": [all(map(_blank, row)) for row in zip(*fields, strict=True)],
            "label": [(unknown and minus[i]) or (not kind.several and _blank(one)) for i, one in enumerate(labels)],
        }
        if columns.unlabelled and kind.ordered and (split == "train" or (not of_train and all(lacks["label"]))):
            labels[:] = [None if no else value for no, value in zip(lacks["label"], labels, strict=True)]
            lacks["label"] = [False] * len(found)
        for what, lacking in lacks.items():
            if count := sum(lacking):
                first = found.place(lacking.index(True))
                warn(f"{split}: {count:,} of {len(found):,} rows have no {what} and are left out; the first is {first}")
        for values in fields:  # one side of a pair may be blank: null is
            values[:] = ["" if not isinstance(value, str) and _blank(value) else value for value in values]
        order = [i for i in range(len(found)) if not (lacks["text"][i] or lacks["label"][i])]
        if order:
            kept[split] = found.keep(order)
        elif split == "train":
            raise BadInput(f"{found.where}: no row has both a text and a label")
    return kept
