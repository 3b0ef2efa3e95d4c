"""Local files: the official GLUE layout, CSV/TSV/JSONL/Parquet with named columns, plain text for language
modelling, SQuAD's JSON, CoNLL's columns, or a `save_to_disk` folder.

Every reader ends in `Rows`, one split as its source gives it; `common.data` checks them row by row.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.args import BadInput, speaks
from common.hub import HUB, hotpot_row

if TYPE_CHECKING:
    from common.data import Task


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


def dataset_rows(
    data: Any,
    columns: dict[str, str],
    where: str,
    blanks: bool = False,
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Rows:
    """Rows of a `datasets.Dataset`; `columns` maps canonical names to the dataset's, `convert` is the hub table's."""
    for theirs in columns.values():
        if theirs not in data.column_names:
            raise BadInput(f"{where}: no column {theirs!r}, only {', '.join(data.column_names)}")
    names = _class_names(data.features[columns["label"]]) if "label" in columns else None
    table = data.select_columns(list(dict.fromkeys(columns.values()))).to_dict()
    found = {ours: table[theirs] for ours, theirs in columns.items()}
    if convert is not None:
        found = _by_column([convert(row) for row in _by_row(found)])
    lines = "label" not in columns
    return Rows(found, lambda i: f"{where} row {i}", names, blanks=blanks, official=blanks, lines=lines, files=[where])


def _class_names(feature: Any) -> Sequence[str] | None:
    """What a feature's integers, or those of its lists, are called."""
    return getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)


def _by_row(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# The official release: folder, and header names where they are not the hub's.
_FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "qqp": "QQP",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wikitext-2": "wikitext-2-raw",
    "squad": "squad",
    "hotpot_qa": "hotpot",
    "trivia_qa": "triviaqa",
    "conll2003": "conll2003",
    "gonerd": "gonerd",
    "litbank": "litbank",
    "cnn_dailymail": "cnn_dailymail",
    "xsum": "xsum",
    "aeslc": "aeslc",
    "wmt16/en-ro": "wmt16_en_ro",
    "wmt14/en-fr": "wmt14_en_fr",
    "wmt13/en-es": "wmt13_en_es",
    "iwslt2017/en-fr": "iwslt2017_en_fr",
    "tatoeba/en-fr": "tatoeba_en_fr",
    "tatoeba/en-ro": "tatoeba_en_ro",
}
# Of tasks that no repository of the hub serves.
_LOCAL_SPLITS = dict.fromkeys(
    ("gonerd", "litbank", "aeslc", "wmt13/en-es", "tatoeba/en-fr", "tatoeba/en-ro"), ("train", "dev", "test")
)
_ANSWERS = {"translation": "target", "summarisation": "summary"}  # what files call the text to be written
LOCAL = tuple(_LOCAL_SPLITS)
_OFFICIAL_COLUMNS = {
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    "qqp": {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    "stsb": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    "mnli": {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
    **{name: {"text": "tokens", "label": "ner_tags"} for name in ("conll2003", "gonerd", "litbank")},
    **{
        name: {"question": "question", "context": "context", "label": "answers"}
        for name in ("squad", "hotpot_qa", "trivia_qa")
    },
}
_COLA_HEADER = ["source", "label", "mark", "sentence"]  # the official file has none
_NAMES_ONLY = {
    "mnli",
    "qnli",
    "rte",
}  # whose official files spell the labels out: integers there are a mistake
_STEMS = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
_SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
_TEXT_STEMS = {
    "train": ("wiki.train", "train"),
    "dev": ("wiki.valid", "valid", "validation", "dev"),
    "test": ("wiki.test", "test"),
}
_TEXT_SUFFIXES = (".raw", ".tokens", ".txt")
_TAG_STEMS = {
    "train": ("train", "eng.train"),
    "dev": ("dev", "valid", "validation", "testa", "eng.testa"),
    "test": ("test", "testb", "eng.testb"),
}
_TAG_SUFFIXES = (".txt", ".conll", ".bio", "", ".jsonl", ".parquet")
_SPAN_STEMS = {  # the official names of SQuAD and HotpotQA
    "train": ("train-v1.1", "train", "hotpot_train_v1.1"),
    "dev": ("dev-v1.1", "dev", "validation", "hotpot_dev_distractor_v1"),
}
_LAYOUTS = {  # of the kinds that have one of their own: stems, suffixes
    "language modelling": (_TEXT_STEMS, _TEXT_SUFFIXES),
    "token classification": (_TAG_STEMS, _TAG_SUFFIXES),
    "span QA": (_SPAN_STEMS, (".json", ".jsonl", ".parquet")),
}


def find_files(task: Task, data_dir: str) -> dict[str, Path]:
    """Split -> file for one task, or {"": folder} for a folder of `save_to_disk`. Reads nothing."""
    root = Path(data_dir).expanduser()
    if not root.is_dir():
        raise BadInput(f"--data-dir {data_dir}: {'not a folder' if root.exists() else 'no such folder'}")
    candidates = [root / _FOLDERS[task.name], root / task.name, root]
    folder = next(path for path in candidates if path.is_dir())
    if (folder / "dataset_dict.json").is_file():
        return {"": folder}
    if (folder / "state.json").is_file():
        raise BadInput(f"{folder}: one split written by save_to_disk; save a DatasetDict with train and validation")
    if task.name == "mrpc" and not _find(folder, "train") and (folder / "msr_paraphrase_train.txt").is_file():
        return _msr_files(folder)
    names, suffixes = _LAYOUTS.get(task.kind, (_STEMS, _SUFFIXES))
    files = {}
    for split in _splits(task):
        stem, _, suffix = split.partition("_")
        stems = [f"{stem}_{suffix}".rstrip("_") for stem in names[stem]]
        found = [path for stem in stems for path in _find(folder, stem, suffixes)]
        if not found:
            wanted = f"{' or '.join(stem + suffixes[0] for stem in stems)} (or {' '.join(suffixes[1:])})"
            wanted += f", there or in {_FOLDERS[task.name]}/" if folder == root else ""
            raise BadInput(
                f"--data-dir {folder}: no {split} split for {task.name}; needs {wanted}; "
                f"has {', '.join(sorted(path.name for path in folder.iterdir())[:8]) or 'no files'}"
            )
        if len(found) > 1:
            raise BadInput(f"{folder}: {found[0].name} and {found[1].name} both hold the {split} split; leave one")
        files[split] = found[0]
    return files


def _splits(task: Task) -> dict[str, str]:
    """Our split -> what the hub calls it."""
    return {split: split for split in _LOCAL_SPLITS[task.name]} if task.name in LOCAL else HUB[task.name].splits


def _find(folder: Path, stem: str, suffixes: Sequence[str] = _SUFFIXES) -> list[Path]:
    """The files that may hold a split, the one-file Parquet name of a hub repository included."""
    named = [path for suffix in suffixes if (path := folder / f"{stem}{suffix}").is_file()]
    return named + sorted(folder.glob(f"{stem}-*-of-*.parquet"))


def _msr_files(folder: Path) -> dict[str, Path]:
    """MRPC as first published: train and test, and, in GLUE, the ids of the training pairs that are dev.

    With the ids this is GLUE's train and dev. Without them the corpus's own test split, whose labels are
    public, is what is reported.
    """
    files = {"train": folder / "msr_paraphrase_train.txt"}
    ids = [path for name in ("dev_ids.tsv", "mrpc_dev_ids.tsv") if (path := folder / name).is_file()]
    test = folder / "msr_paraphrase_test.txt"
    if ids:
        files["dev ids"] = ids[0]
    elif test.is_file():
        files["test"] = test
    else:
        raise BadInput(
            f"{folder}: no dev split for mrpc; needs dev_ids.tsv or {test.name} beside {files['train'].name}"
        )
    return files


def read_local(task: Task, data_dir: str) -> tuple[dict[str, Rows], str]:
    """The splits of a folder, and their file names. Test files of GLUE carry no labels and are not read."""
    files = find_files(task, data_dir)
    if "" in files:
        return _saved_rows(task, files[""])
    names = ", ".join(path.name for path in files.values())
    ids = files.pop("dev ids", None)
    rows = {split: _read_file(task, path) for split, path in files.items()}
    if ids is not None:
        rows = _split_by_ids(rows["train"], ids)
    return rows, f"{next(iter(files.values())).parent.name}: {names}"


def _saved_rows(task: Task, folder: Path) -> tuple[dict[str, Rows], str]:
    """The splits of a DatasetDict written by `save_to_disk`."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise BadInput(
            f"{folder}: save_to_disk folder cannot be read ({' '.join(str(error).split())[:160]})"
        ) from error
    rows = {}
    for ours, theirs in _splits(task).items():
        name = next((name for name in (theirs, ours) if name in saved), None)
        if name is None:
            raise BadInput(f"{folder}: no {ours} split for {task.name}; needs {theirs!r}, has {', '.join(saved)}")
        where = f"{folder.name}/{name}"
        rows[ours] = dataset_rows(saved[name], _pick_columns(task, saved[name].column_names, where), where)
    return rows, f"{folder.name}: {', '.join(rows)} (save_to_disk)"


def _pick_columns(task: Task, header: Sequence[str], where: str | Path) -> dict[str, str]:
    """Canonical name -> the file's column: the hub's names if all are there, else the official release's."""
    needed = task.columns
    if all(name in header for name in needed):
        return {name: name for name in needed}
    if task.kind in _ANSWERS:
        needed = (*task.fields, _ANSWERS[task.kind])
        if all(name in header for name in needed):
            return dict(zip(task.columns, needed, strict=True))
    official = _OFFICIAL_COLUMNS.get(task.name)
    if official and all(name in header for name in official.values()):
        return official
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
        return _read_questions(task, path, text)
    if path.suffix in (".jsonl", ".json"):
        return _read_json(task, path, text)
    if task.kind == "token classification":
        return _read_conll(task, path, text)
    return _read_lines(path, text) if task.kind == "language modelling" else _read_table(task, path, text)


def _read_lines(path: Path, text: str) -> Rows:
    """Running text, whose lines keep their ends: LF, whatever the file has."""
    lines = text.replace("\r\n", "\n").split("\n")
    rows = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    official = path.name.startswith("wiki.")
    return Rows({"text": rows}, lambda i: f"{path} line {i + 1}", official=official, lines=True, files=[str(path)])


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
    official = known and not commas
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
    if "#1 ID" in header and "#2 ID" in header:  # what MRPC's list of dev pairs refers to
        first, second = header.index("#1 ID"), header.index("#2 ID")
        found["pair"] = ["\t".join((rows[i][first], rows[i][second])) for i in good]
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


def _read_questions(task: Task, path: Path, text: str) -> Rows:
    """One JSON document: SQuAD's (articles, paragraphs, questions), or HotpotQA's list of questions."""
    try:
        found = json.loads(text)
        if isinstance(found, list):
            rows = [hotpot_row({"id": r["_id"], "question": r["question"], "context": r["context"],
                                "label": r["answer"]}) for r in found]  # fmt: skip
        else:
            rows = [
                {"id": str(qa["id"]), "question": qa["question"], "context": paragraph["context"],
                 "label": {name: [answer.get(name) for answer in qa["answers"]] for name in ("text", "answer_start")}}
                for article in found["data"] for paragraph in article["paragraphs"] for qa in paragraph["qas"]
            ]  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error}); SQuAD's layout is expected") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path}: not SQuAD's layout (no {error}); data, paragraphs, context, qas are expected"
        ) from error
    if not rows:
        raise BadInput(f"{path}: no questions")
    return Rows(_by_column(rows), lambda i: f"{path} question {rows[i]['id']}", official=True, files=[str(path)])


def _read_conll(task: Task, path: Path, text: str) -> Rows:
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
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        columns = _pick_columns(task, table.column_names, path)
        names = None
        if "label" in columns and b"huggingface" in (table.schema.metadata or {}):
            import datasets

            names = _class_names(datasets.Features.from_arrow_schema(table.schema)[columns["label"]])
        found = {ours: table.column(theirs).to_pylist() for ours, theirs in columns.items()}
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:  # names and texts are decoded late
        raise BadInput(f"{path}: not a readable Parquet file ({' '.join(str(error).split())[:160]})") from error
    return Rows(found, lambda i: f"{path} row {i}", names, lines="label" not in columns, files=[str(path)])


def _split_by_ids(rows: Rows, ids: Path) -> dict[str, Rows]:
    """MRPC's published training pairs, parted into GLUE's train and dev by the list of dev pairs."""
    listed = {line.strip() for line in ids.read_text(encoding="utf-8-sig").splitlines()}
    parts: dict[str, list[int]] = {"train": [], "dev": []}
    for i, pair in enumerate(rows.columns["pair"]):
        parts["dev" if pair in listed else "train"].append(i)
    if not parts["dev"]:
        raise BadInput(
            f"{ids}: none of its pairs of ids is in {rows.files[0]}; two tab-separated ids a line are needed"
        )
    return {
        split: Rows(
            {name: [values[i] for i in chosen] for name, values in rows.columns.items()},
            lambda i, chosen=chosen: rows.place(chosen[i]),  # type: ignore[misc]
            integers=rows.integers,
            blanks=rows.blanks,
            official=rows.official,
            files=rows.files,
        )
        for split, chosen in parts.items()
    }
