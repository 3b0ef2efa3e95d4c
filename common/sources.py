"""Where a task's data comes from: the pocket suite, the hub, or local files. Every reader ends in `Rows`.

    rows, origin = pocket_rows(task)
    rows, origin = hub_rows(task)               # at a pinned revision
    rows, origin = local_rows(task, "DIR")      # GLUE's layout, named columns, SQuAD, CoNLL, plain text, `save_to_disk`

CSV, TSV and JSON lines are read here and not by `datasets`: its readers guess types (a text "1.0" or "null" becomes a
number or nothing), take quotation marks of the official TSV files for quotes, and do not say in which line a mistake
is. Parquet and `save_to_disk` folders, which carry their types, are left to it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from common import pocket
from common.errors import BadInput, first_line, speaks
from common.tasks import GENERATED, TASKS, Task, find_files


@dataclass
class Rows:
    """One split as its source gives it, before any check: canonical columns of equal length."""

    columns: dict[str, list[Any]]  # the task's columns, and "id" if the source has unique ones
    place: Callable[[int], str]  # where row i stands: "dev.tsv line 7"
    names: Sequence[str] | None = None  # what the integers of "label" are called, if the source says so
    integers: bool = True  # without names: do integers mean the hub's ids?
    blanks: bool = False  # may one side of a pair be blank? (a few are, in the official data)
    official: bool = False  # a layout of the official release, whose size is known
    lines: bool = False  # rows are the lines of a running text, not its documents
    files: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def warn(line: str) -> None:
    if speaks():
        print(f"warning: {line}", file=sys.stderr)


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
# The hub's own conversion of a repository that holds a loading script; a branch, which may move.
CONVERTED = "refs/convert/parquet"
TIMEOUT_SECONDS = 10.0


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

    @property
    def origin(self) -> str:
        """The source in one word, as results record it: `repo@revision`."""
        return f"{self.repo}@{self.revision}"


def hotpot_row(row: dict[str, Any]) -> dict[str, Any]:
    """HotpotQA's paragraphs, titles first, as one context. "yes no" stands before them: two answers that no paragraph
    holds, which a model that marks spans can then give."""
    found = row["context"]
    if isinstance(found, dict):  # the hub's columns; the official file has pairs
        found = list(zip(found["title"], found["sentences"], strict=True))
    paragraphs = [f"{title}: {''.join(sentences).strip()}" for title, sentences in found]
    return row | {"context": "\n".join(["yes no", *paragraphs]), "label": {"text": [row["label"]]}}


def trivia_row(row: dict[str, Any]) -> dict[str, Any]:
    """TriviaQA's pages as one context; every alias is a true answer. Supervision is distant: no offsets."""
    pages = [text for text in row["context"]["wiki_context"] if text.strip()]
    aliases = list(dict.fromkeys([row["label"]["value"], *row["label"]["aliases"]]))
    return row | {"context": "\n".join(pages) or row["question"], "label": {"text": aliases}}


def _glue(name: str, *rows: int) -> HubSource:
    """A configuration of GLUE, whose columns have the canonical names."""
    return HubSource("nyu-mll/glue", name, GLUE_REVISION, rows, {column: column for column in TASKS[name].columns})


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

    Without a connection the library's own cache is used if it holds that very revision. Raises BadInput, within
    seconds, if the data cannot be had, and names the commands that work without a hub.
    """
    source = HUB[task.name]
    try:
        found = _load(source)
    except Exception as error:  # every way in which a hub can fail is one message to the user
        reason = " ".join(str(error).split()).split(". ")[0] or "no reason given"
        raise BadInput(
            f"--task {task.name}: no --data-dir was given, and {source.origin} could not be loaded from the hub "
            f"or its cache ({type(error).__name__}: {reason[:160].rstrip('. ')}). Without a hub, use "
            f"`--task pocket/{task.pocket}` (built in) or `--task {task.name} --data-dir DIR` (your own files)"
        ) from error
    rows = {}
    for split in task.splits:
        theirs = split.replace("dev", "validation")
        if theirs not in found:
            raise BadInput(f"--task {task.name}: {source.origin} has no split {theirs!r}, only {', '.join(found)}")
        made = _dataset_rows(found[theirs], source.columns, f"{source.origin} {split}", source.convert)
        rows[split] = replace(made, blanks=True, official=True)
    return rows, source.origin


def _load(source: HubSource) -> Any:
    """`load_dataset`, after one quick question to the hub: the library alone retries for half a minute."""
    import datasets
    import huggingface_hub

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    load = partial(datasets.load_dataset, source.repo, source.config, revision=source.revision)
    online = datasets.config.HF_HUB_OFFLINE
    try:
        huggingface_hub.HfApi().dataset_info(source.repo, revision=source.revision, timeout=TIMEOUT_SECONDS)
    except Exception:
        datasets.config.HF_HUB_OFFLINE = True
        with contextlib.suppress(Exception):  # what the hub said is told
            found = load()
            # the cache may settle for another revision of the same configuration: the folder's name tells
            files = [file["filename"] for split in found.values() for file in split.cache_files]
            if files and all(source.revision in file for file in files):
                return found
        raise
    finally:
        datasets.config.HF_HUB_OFFLINE = online
    return load()


def _dataset_rows(
    data: Any,
    columns: dict[str, str],
    where: str,
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Rows:
    """Rows of a `datasets.Dataset`; `columns` maps canonical names to the dataset's, `convert` is the hub table's."""
    for theirs in columns.values():
        if theirs not in data.column_names:
            raise BadInput(f"{where}: no column {theirs!r}, only {', '.join(data.column_names)}")
    names = None
    if "label" in columns:  # what the integers of the feature, or those of its lists, are called
        feature = data.features[columns["label"]]
        names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    table = data.select_columns(list(dict.fromkeys(columns.values()))).to_dict()
    found = {ours: table[theirs] for ours, theirs in columns.items()}
    if convert is not None:
        found = _by_column([convert(dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True)])
    return Rows(found, lambda i: f"{where} row {i}", names, lines="label" not in columns, files=[where])


def _by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# --- local files ---------------------------------------------------------------------------------------------

_OFFICIAL_COLUMNS = {  # header names of the official release, where they are not the hub's
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    "qqp": {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    "stsb": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    "mnli": {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
}
_KINDS_COLUMNS = {  # and those that files of a kind usually have
    "token classification": {"text": "tokens", "label": "ner_tags"},
    "span QA": _QUESTION | {"label": "answers"},
    "translation": {"source": "source", "label": "target"},
    "summarisation": {"document": "document", "label": "summary"},
}
_COLA_HEADER = ["source", "label", "mark", "sentence"]  # the official file has none
_NAMES_ONLY = {"mnli", "qnli", "rte"}  # whose official files spell the labels out: integers there are a mistake


def local_rows(task: Task, data_dir: str) -> tuple[dict[str, Rows], str]:
    """The splits of a folder, and their file names. Test files of GLUE carry no labels and are not read."""
    files = find_files(task, data_dir)
    if "" in files:
        return _saved_rows(task, files[""])
    names = ", ".join(path.name for path in files.values())
    rows = {split: _read_file(task, path) for split, path in files.items()}
    return rows, f"{next(iter(files.values())).parent.name}: {names}"


def _saved_rows(task: Task, folder: Path) -> tuple[dict[str, Rows], str]:
    """The splits of a DatasetDict written by `save_to_disk`."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise BadInput(f"{folder}: save_to_disk folder cannot be read ({first_line(error)})") from error
    rows = {}
    for split in task.splits:
        theirs = split.replace("dev", "validation")
        name = next((name for name in (theirs, split) if name in saved), None)
        if name is None:
            raise BadInput(f"{folder}: no {split} split for {task.name}; needs {theirs!r}, has {', '.join(saved)}")
        where = f"{folder.name}/{name}"
        rows[split] = _dataset_rows(saved[name], _pick_columns(task, saved[name].column_names, where), where)
    return rows, f"{folder.name}: {', '.join(rows)} (save_to_disk)"


def _pick_columns(task: Task, header: Sequence[str], where: str | Path) -> dict[str, str]:
    """Canonical name -> the file's column: the canonical ones if all are there, else the official release's."""
    needed = task.columns
    if all(name in header for name in needed):
        return {name: name for name in needed}
    other = _OFFICIAL_COLUMNS.get(task.name) or _KINDS_COLUMNS.get(task.kind)
    if other and all(name in header for name in other.values()):
        return other
    if other and task.kind in GENERATED:
        needed = tuple(other.values())
    missing = [name for name in needed if name not in header]
    raise BadInput(
        f"{where}: no column {missing[0]!r}; {task.name} needs {', '.join(needed)}, "
        f"the file has {', '.join(str(name)[:40] for name in header)}"
    )


def _read_file(task: Task, path: Path) -> Rows:
    """One split from a file; the suffix says how."""
    if path.suffix == ".parquet":
        return _read_parquet(task, path)
    try:
        raw = path.read_bytes()
        text = raw.decode().removeprefix("\ufeff")  # a byte order mark is accepted
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} line {line}: not UTF-8 (byte {error.start} of the file); save it as UTF-8") from error
    if not text.strip():
        raise BadInput(f"{path}: the file is empty")
    if task.kind == "span QA" and text.lstrip()[0] in "[{" and "\n{" not in text.strip():
        return _read_questions(path, text)
    if path.suffix in (".jsonl", ".json"):
        return _read_json(task, path, text)
    if task.kind == "token classification":
        return _read_conll(path, text)
    if task.kind == "language modelling":  # lines keep their ends: LF, whatever the file has
        lines = re.findall("[^\n]*\n|[^\n]+", text.replace("\r\n", "\n"))
        official = path.name.startswith("wiki.")
        return Rows({"text": lines}, lambda i: f"{path} line {i + 1}", official=official, lines=True, files=[str(path)])
    return _read_table(task, path, text)


def _read_table(task: Task, path: Path, text: str) -> Rows:
    """CSV with the usual quoting; TSV (and .txt) without any, so that a quotation mark is just text."""
    commas = path.suffix == ".csv"
    csv.field_size_limit(max(len(text), 131_072))  # a text of any length is cut later, in tokens
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, strict=True) if commas else csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if row:  # not a blank line
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise BadInput(f"{path} line {reader.line_num}: {error}; check the quotes and separators") from error

    header = [name.strip() for name in rows[0]]
    headless = task.name == "cola" and not commas and not {"sentence", "label"} <= set(header)
    if headless:
        header = _COLA_HEADER
    else:
        del rows[0], lines[0]
    columns = _pick_columns(task, header, path)
    # SST-2's official header is the hub's; the others are known by their further columns or none.
    known = headless or columns is _OFFICIAL_COLUMNS.get(task.name) or "index" in header or task.name == "sst2"
    official = known and not commas and task.name in HUB
    good = [i for i, row in enumerate(rows) if len(row) == len(header)]
    if len(good) < len(rows):
        # QQP's official files are known for rows cut short; nothing else is.
        if columns is not _OFFICIAL_COLUMNS["qqp"]:
            bad = next(i for i, row in enumerate(rows) if len(row) != len(header))
            raise BadInput(f"{path} line {lines[bad]}: {len(rows[bad])} columns where {len(header)} are needed")
        warn(f"{path}: {len(rows) - len(good)} rows with too few or too many columns left out")
    if official and task.name == "mnli":  # "-": the annotators did not agree
        agreed = [i for i in good if rows[i][header.index(columns["label"])] != "-"]
        if len(agreed) < len(good):
            warn(f"{path}: {len(good) - len(agreed)} rows without an agreed label left out")
        good = agreed
    found = {ours: [rows[i][header.index(theirs)] for i in good] for ours, theirs in columns.items()}
    return Rows(
        found,
        lambda i: f"{path} line {lines[good[i]]}",
        integers=commas or task.name not in _NAMES_ONLY,
        blanks=official,
        official=official,
        files=[str(path)],
    )


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


def _read_json(task: Task, path: Path, text: str) -> Rows:
    """One JSON object a line."""
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, record in json_lines(path, text.split("\n")):
        if not isinstance(record, dict):
            raise BadInput(f"{path} line {number}: {type(record).__name__}; one JSON object a line is expected")
        records.append(record)
        lines.append(number)
    columns = _pick_columns(task, list(records[0]), f"{path} line {lines[0]}")
    for record, number in zip(records, lines, strict=True):
        for name in columns.values():
            if name not in record:
                raise BadInput(f"{path} line {number}: no {name!r}; {task.name} needs {', '.join(columns.values())}")
    found = {ours: [record[theirs] for record in records] for ours, theirs in columns.items()}
    return Rows(found, lambda i: f"{path} line {lines[i]}", files=[str(path)])


def _read_questions(path: Path, text: str) -> Rows:
    """One JSON document: SQuAD's (articles, paragraphs, questions), or HotpotQA's list of questions."""
    try:
        found = json.loads(text)
        if isinstance(found, list):
            rows = [hotpot_row({"id": row["_id"], "label": row["answer"], **{key: row[key] for key in _QUESTION}})
                    for row in found]  # fmt: skip
        else:
            rows = [
                {"id": str(asked["id"]), "question": asked["question"], "context": paragraph["context"],
                 "label": {key: [answer.get(key) for answer in asked["answers"]] for key in ("text", "answer_start")}}
                for article in found["data"] for paragraph in article["paragraphs"] for asked in paragraph["qas"]
            ]  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error}); SQuAD's layout is expected") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not SQuAD's layout (no {error}); data, paragraphs, qas are expected") from error
    if not rows:
        raise BadInput(f"{path}: no questions")
    return Rows(_by_column(rows), lambda i: f"{path} question {rows[i]['id']}", official=True, files=[str(path)])


def _read_conll(path: Path, text: str) -> Rows:
    """CoNLL's columns, a word first and its tag last; a blank line ends a sentence, "-DOCSTART-" starts a document.

    A file with such lines has documents as examples, otherwise every sentence is one. An I- tag that follows no tag of
    its type begins an entity (the IOB1 scheme of the original files), and becomes a B-.
    """
    documents: list[list[list[tuple[str, str]]]] = []  # of sentences of words with their tags
    starts: list[int] = []
    whole = "-DOCSTART-" in text
    new = True
    sentence: list[tuple[str, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        fields = line.split()
        marker = bool(fields) and fields[0] == "-DOCSTART-"
        if fields and not marker:
            if len(fields) < 2:
                raise BadInput(f"{path} line {number}: {line.strip()!r} has no tag; a word and its tag are needed")
            if new:
                documents.append([])
                starts.append(number)
                new = False
            sentence.append((fields[0], fields[-1]))
            continue
        if sentence:
            documents[-1].append(sentence)
            sentence = []
        new = new or marker or not whole
    if not documents:
        raise BadInput(f"{path}: no words with tags")
    texts = ["\n".join(" ".join(word for word, _ in row) for row in document) for document in documents]
    tags = [[tag for row in document for tag in _begun([tag for _, tag in row])] for document in documents]
    return Rows({"text": texts, "label": tags}, lambda i: f"{path} line {starts[i]}", files=[str(path)])


def _begun(tags: list[str]) -> list[str]:
    """A sentence's tags in which every entity begins with a B-."""
    before = ["O", *tags]
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and last[2:] != tag[2:] else tag
        for last, tag in zip(before, tags, strict=False)
    ]


def _read_parquet(task: Task, path: Path) -> Rows:
    """A Parquet file; class names that `datasets` stored in its schema are used."""
    import datasets
    import pyarrow.parquet

    try:
        table = datasets.Dataset(pyarrow.parquet.read_table(path))
        return _dataset_rows(table, _pick_columns(task, table.column_names, path), str(path))
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:  # names and texts are decoded late
        raise BadInput(f"{path}: not a readable Parquet file ({first_line(error)})") from error
