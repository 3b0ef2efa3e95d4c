"""Data sets of one's own: `--task FILE`, FOLDER or hub:REPO, and lists in memory.

task = loaded(read("tickets.csv", columns), limit, tune)   # for `data.load`: what it holds is seen, and told in a line
task = from_lists(texts, labels)                          # the same, in memory
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from common import folders, hub, outputs, tables
from common.errors import BadInput, shown, some, tell, warn
from common.kinds import KINDS, OWN, Kind, Rows, Split, Task
from common.kinds.documents import LISTED, TAG
from common.kinds.names import nameless, renamed
from common.kinds.own import CLASSES, SCORES
from common.kinds.sentences import number as as_number
from common.tasks import SUFFIXES, TASKS, Columns, Source, TaskData, fingerprint_of, plain, task_data, to_split
from common.values import expanded


class DataSet(NamedTuple):
    """A task, its rows by split, and where they are from."""

    task: Task
    rows: dict[str, Rows]
    source: Source
    origin: str


def from_lists(
    texts: Sequence[Any],
    labels: Sequence[Any],
    name: str = "lists",
    kind: str | None = None,
    **others: tuple[Sequence[Any], Sequence[Any]],
) -> TaskData:
    """The task of texts, or tuples of two texts, and their labels in memory; further splits as `dev=(texts, labels)`.

    Without one a tenth is held out. Classes and checks are those of a file with the same content, and of this --kind.
    """
    rows = {}
    for split, both in {"train": (texts, labels), **others}.items():
        inputs, answers = (list(values.tolist() if hasattr(values, "tolist") else values) for values in both)
        answers = [_as_list(answer) for answer in answers]
        if not inputs or len(inputs) != len(answers):
            raise BadInput(f"{split}: {len(inputs)} texts and {len(answers)} labels; as many are needed, one or more")
        found = {"text": inputs}
        if isinstance(inputs[0], tuple):
            if not all(isinstance(one, tuple) and len(one) == 2 for one in inputs):
                raise BadInput(f"{split}: tuples must all be of two texts")
            names = (_asked(Columns(kind=kind)) or CLASSES).pair
            found = {name: list(side) for name, side in zip(names, zip(*inputs, strict=True), strict=True)}
        rows[split] = Rows(found | {"label": answers}, split)
    return loaded(described(name, rows, Columns(kind=kind)), None, False)


def _as_list(value: Any) -> Any:
    """An array, a tuple or a set as a list; anything else as it is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    value = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    return list(value) if isinstance(value, tuple) else value


def loaded(found: DataSet, limit: int | None, tune: bool) -> TaskData:
    """A data set of one's own, a tenth of train held out if there is no other split; what it holds is told in a line,
    and what is wrong with it in warnings. Its name ends with a digest of all splits: a name for every content."""
    task, origin = found.task, found.origin
    splits = {split: to_split(task, split, rows, own=True) for split, rows in found.rows.items()}
    if len(splits) == 1:
        splits = _hold_out(task, splits["train"])
        origin += f", a tenth of train held out as dev ({len(splits['dev']):,}, by their texts)"
    _tell(task, origin, found.rows["train"], splits)
    name = f"{task.name}-{fingerprint_of(task, splits)[:8]}"
    data = task_data(task, found.source, origin, name, splits, limit, tune)
    kind = task.kind.of_own(data.splits["train"])
    columns = tuple(found.rows["train"].chosen.get(field, field) for field in task.fields)
    return replace(data, task=replace(data.task, kind_or_name=kind), columns=columns)


def _hold_out(task: Task, train: Split) -> dict[str, Split]:
    """Train without a tenth of its texts, and these as dev: a text's hash decides, so that rows which are added later
    move no other, and equal texts stay together. Rows without a label are not held out where others have one.

    Every class keeps a text in train, and one of ten texts or more has one in dev, whatever the hashes are.
    """
    names = [hashlib.sha256(json.dumps(["held out", *_folded(texts)]).encode()).hexdigest() for texts in train.texts]
    rows = [i for i, label in enumerate(train.labels) if label is not None or not task.kind.single]
    rows = rows or list(range(len(train)))
    classes: dict[Any, set[str]] = {None: {names[i] for i in rows}}
    for i in rows:
        if task.kind.single and isinstance(train.labels[i], int):
            classes.setdefault(train.labels[i], set()).add(names[i])
    hashed = {name for name in classes[None] if int(name[:8], 16) < 0.1 * 16**8}
    held = hashed | {min(texts) for texts in classes.values() if len(texts) >= 10 and hashed.isdisjoint(texts)}
    held -= {max(texts) for texts in classes.values() if texts <= held}
    if not held:
        raise BadInput(f"{task.name}: no dev or test split, and {len(classes[None]):,} different texts of"
                       f" {max(1, len(classes) - 1):,} classes are too few to hold some out")  # fmt: skip
    dev = [i for i in rows if names[i] in held]
    if moved := sum(names[i] in held ^ hashed for i in rows):
        why = "every class needs a text in train and, if it has ten, one in dev; older students may know these rows"
        warn(f"dev: {moved:,} rows are held out, or not, against their texts' hash: {why}")
    if left := sum(name in held for name in names) - len(dev):
        warn(f"train: {left:,} rows without a label are left out: their texts are held out")
    return {"train": train.rows([i for i, name in enumerate(names) if name not in held]), "dev": train.rows(dev)}


def _folded(texts: Sequence[str]) -> tuple[str, ...]:
    """Texts without what differs between copies: case, blanks, forms of letters."""
    return tuple(" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)


def _tell(task: Task, origin: str, rows: Rows, splits: dict[str, Split]) -> None:
    """One line about what a data set holds, and warnings about what is odd in it."""
    what = task.kind.told(task, splits, rows)
    said: dict[tuple[str, ...], set[int]] = {}  # texts of train -> their classes
    for texts, label in zip(splits["train"].texts, splits["train"].labels, strict=True):
        said.setdefault(_folded(texts), set()).update([label] if isinstance(label, int) else ())
    if count := sum(len(labels) > 1 for labels in said.values()):
        warn(f"train: {count:,} of {len(said):,} different texts have several labels, each in another row")
    sides = {side for texts in said for side in texts}
    for name, split in splits.items():
        folded = [_folded(texts) for texts in split.texts] if name != "train" else []
        if count := sum(texts in said for texts in folded):
            warn(f"{name}: {count:,} of its {len(split):,} texts stand in train too; scores on them say little")
        if count := sum(texts not in said and not sides.isdisjoint(texts) for texts in folded):
            warn(f"{name}: {count:,} of its {len(split):,} pairs share one of their texts with train")
    alike: dict[str, list[str]] = {}
    for label in task.labels:
        alike.setdefault(_visible(label), []).append(ascii(label)[:40])
    for labels in [labels for labels in alike.values() if len(labels) > 1][:5]:
        warn(f"labels {some(labels, 5)} differ in case, the form of accents or invisible characters alone")
    columns = ", ".join(f"{ours} from {theirs!r}" for ours, theirs in rows.chosen.items() if ours != theirs)
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in splits.items())
    tell(f"{origin}: {what}; {sizes}{'; ' if columns else ''}{columns}")


def _visible(name: str) -> str:
    """A name without case, and with its accents in one form and no invisible character."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(c for c in folded if unicodedata.category(c) != "Cf").split())


# --- reading it ------------------------------------------------------------------------------------------------

SPLITS = ("train", "dev", "test")
NO_TEXTS = ("label", "id", "outputs")  # our names of the columns that are no texts
TAGS, SPANS = KINDS["token classification"], KINDS["span QA"]


def _asked(columns: Columns) -> Kind | None:
    """The kind that `--kind` says."""
    if columns.kind not in (None, *OWN):
        raise BadInput(f"--kind {columns.kind}: must be one of {', '.join(OWN)}")
    if columns.kind is None:
        return None
    return {"classes": CLASSES, "scores": SCORES}.get(columns.kind) or KINDS[OWN[columns.kind]]


def read(name: str, columns: Columns) -> DataSet:
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
        source = hub.HubSource(title, config or None, revision or None)
        found, origin = hub.load(name, source, "--task FILE or --task FOLDER")
    elif path.is_dir():
        found, origin = tables.opened(folders.files_of(path, SPLITS, ("train",)))
    elif not path.is_file():
        raise BadInput(f"--task {name}: no such file or folder")
    elif plain(path).suffix.lower() not in SUFFIXES:
        kinds = ", ".join(filter(None, SUFFIXES))
        raise BadInput(f"--task {name}: must be a {kinds} file; save a spreadsheet as CSV, in UTF-8")
    rows: dict[str, Rows] = {}
    pick: tables.Pick = functools.partial(_choose_columns, columns)
    splits = folders.splits_of(found, SPLITS, ("train",), f"--task {name}")
    unread = [split for split, one in found.items() if not any(one is read for read in splits.values())]
    if path.is_dir() and all(isinstance(file, Path) for file in splits.values()):
        read = {Path(file).name for file in (*splits.values(), columns.outputs or "")}
        unread = folders.others_than(path, read)
    if unread:
        warn(f"--task {name}: does not read {some(unread)}; splits are called train, dev (valid, validation) and test")
    for split, stored in splits.items():
        made = tables.read(stored, f"{origin} {split}", pick)
        label = rows["train"].chosen.get("label") if rows else None
        if label is not None and "label" not in made.columns:
            warn(f"{split} is left out: no column {label!r}, which train has, in {made.where}")
            continue
        made.columns.setdefault("label", [None] * len(made))
        parts = _by_split(split, made)
        if rows.keys() & parts.keys():
            raise BadInput(f"--task {name}: a column of train's file and a file both say what {split} is; leave one")
        rows |= parts
        if split == "train" and "label" in made.chosen:
            pick = functools.partial(_same_columns, made.chosen)
    if columns.outputs is not None:
        outputs.join(rows, outputs.stored(columns))
    return described(plain(Path(title)).stem, rows, columns, "hub" if name.startswith("hub:") else "local", origin)


def _by_split(split: str, rows: Rows) -> dict[str, Rows]:
    """The rows of a table of which a column says what each is for. Other tables are this split."""
    if "split" not in rows.columns:
        return {split: rows}
    of_name = {name: split for split in SPLITS for name in folders.names_of(split)}
    column = rows.chosen.pop("split")
    said = [of_name.get(str(value).strip().lower()) for value in rows.columns.pop("split")]
    if "train" not in said or None in said:
        where = rows.place(said.index(None)) if None in said else rows.where
        raise BadInput(f"{where}: its column {column!r} must say train, dev or test, and train of some rows; another"
                       " name for it, or a file for each split, would do")  # fmt: skip
    return {split: rows.keep([i for i, one in enumerate(said) if one == split]) for split in SPLITS if split in said}


def _choose_columns(columns: Columns, header: Sequence[str], where: str) -> dict[str, str]:
    """Canonical name -> the source's column, by `--text` and `--label`, or else the usual columns of tags or spans, or
    "text" or "sentence", and "label", of which one may be the only other column."""
    kind = _asked(columns) or CLASSES
    labels = tables.parts_of(columns.label or "", header) if kind.several else [columns.label or ""]
    for option, name in [("--text", name) for name in columns.text] + [("--label", name) for name in labels if name]:
        if name not in header:
            hint = "; a name with a comma stands in quotation marks; columns of 0 and 1 are read with --kind labels"
            hint = hint if any("," in one for one in (name, *header)) else ""
            raise BadInput(f"{where}: no column {name!r} for {option}; it has {some(header)}{hint}")
    usual = {name.lower(): name for name in reversed(header) if name and name not in (*columns.text, *labels)}
    beside: dict[str, str] = {name: usual.pop(name) for name in ("split", "id") if name in usual}
    if not columns.outputs:
        beside.pop("id", None)

    def read_of(chosen: dict[str, str]) -> dict[str, str]:
        known = {"", "id", *(part for name in chosen.values() for part in tables.parts_of(name, header))}
        if unread := [name for name in header if name not in known]:
            tell(f"{where}: does not read {some(unread)}")
        return chosen

    for layout in (TAGS.usual, SPANS.usual):
        if not (columns.text or columns.label) and {*layout.values()} <= usual.keys():
            return read_of({ours: usual[theirs] for ours, theirs in layout.items()} | beside)
    label = columns.label or usual.get("label", "")
    known = tuple(usual[name] for name in ("text", "sentence") if name in usual)
    texts = columns.text or (known if len(known) == 1 else ())
    if columns.kind == "spans" and "answer_start" in usual:
        raise BadInput(f"{where}: its column 'answer_start' would go unread; an answer is one object of SQuAD's, with"
                       " \"text\" and \"answer_start\", in JSON lines or Parquet")  # fmt: skip
    left = tuple(name for name in usual.values() if name not in (*texts, label))
    if len(left) == 1 and not (texts and (label or columns.outputs)):
        texts, label = (texts, left[0]) if texts else (left, label)
    if not texts or not (label or columns.unlabelled):
        lacking = [name for name, value in (("texts", texts), ("labels", label)) if not value]
        hint = "; files of CoNLL's columns are called .conll" * (len(header) == 1)
        raise BadInput(f"{where}: no column is known to hold the {' and the '.join(lacking)}; it has {some(header)}, by"
                       f" its first line; say which by --text COLUMN[,COLUMN] and --label COLUMN{hint}")  # fmt: skip
    if len(texts) > 2 or len({*texts, label}) <= len(texts):
        raise BadInput(f"--text {','.join(texts)} --label {label}: must be one text or two, and another column")
    if label:
        beside["label"] = label
    return read_of(dict(zip(("text",) if len(texts) == 1 else kind.pair, texts, strict=True)) | beside)


def _same_columns(chosen: dict[str, str], header: Sequence[str], _where: str) -> dict[str, str]:
    """The columns of train in another split, which may lack the label's and the id."""
    lacking = {
        name for name in ("label", "id") if not set(tables.parts_of(chosen.get(name, ""), header)) <= set(header)
    }
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
        kind = SCORES
    if not columns.kind and kind is CLASSES:
        _refuse_doubt(known, named=bool(said))
    if kind is SCORES:
        _refuse_thousands(known)
    if columns.kind == "texts" and columns.metric in KINDS["translation"].own_metrics:
        kind = KINDS["translation"]
    rows = rows if kind.single else known  # of others, only what has its tags or answer teaches
    for found in rows.values():
        labels = found.columns["label"]
        for i, value in enumerate(labels):
            try:
                labels[i] = None if value is None and kind.single else kind.cell(value)
            except ValueError as error:
                raise BadInput(f"{found.place(i)}: {error}") from error
    names = said if len(said) > 1 else ()
    if known:
        names = tuple(kind.label_names({split: found.labelled for split, found in rows.items()}))
        if kind.several and not names:
            raise BadInput(f"{name}: --kind labels, and no row has a label; --label COLUMN names where they are")
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
    if safe in TASKS:  # what has such a name is taken for that task
        safe = f"own-{safe}"
    return DataSet(Task(safe, kind, fields, names, metrics, splits=tuple(rows)), rows, source, origin)


def _layout(rows: Rows) -> Kind:
    """Spans where there is a context; tags where words stand in lists, the label's column is called as tags are, or
    every label is made of tags; else classes."""
    if "context" in rows.columns:
        return SPANS
    labels = [label for label in rows.columns["label"] if not _blank(label)]
    tags = [tag for label in labels for tag in (label if isinstance(label, list) else str(label).split())]
    tagged = bool(tags) and all(TAG.fullmatch(str(tag)) for tag in tags)
    tagged |= rows.chosen.get("label", "").lower() == TAGS.usual["label"]
    both = zip(rows.columns.get("text", ()), rows.columns["label"], strict=False)
    tagged |= any(isinstance(text, list) and isinstance(label, list) for text, label in both)
    return TAGS if tagged else CLASSES


def _refuse_doubt(known: dict[str, Rows], named: bool) -> None:
    """Refuse classes that may be another kind's labels, in a line that names the argument to give. `named`: a teacher's
    outputs say the classes."""
    for rows in known.values():
        for i, label in enumerate(rows.columns["label"]):
            if LISTED.fullmatch(str(label)) or re.fullmatch(r"\(.*,.*\)|[01](\s*[,;]\s*[01])+", str(label)):
                why = "--kind labels reads several labels of a text, --kind classes takes each list as a class; tags"
                why += " and answers need JSON lines or Parquet; spans of characters, several references are not read"
                raise BadInput(f"{rows.place(i)}: its label is {shown(label)}; {why}")
    rows = next(iter(known.values()), Rows({}, ""))  # train, where it has labels
    if not known or named or rows.names:
        return
    values, texts = rows.columns["label"], [str(text) for text in rows.columns.get("text", ())]
    numbers = [n for value in values if (n := as_number(value)) is not None]
    distinct, different = {*numbers}, len({*map(str, values)})
    few = all(n.is_integer() for n in distinct) and (len(distinct) <= 20 or distinct == {*range(len(distinct))})
    words = sum(len(text.split()) == 1 for text in texts) > 0.9 * len(texts) and sum(map(len, texts)) <= 12 * len(texts)
    if 2 * len(numbers) > len(values) and not few:
        why = f"{len(distinct):,} different numbers; --kind scores reads scores"
    elif different > max(2, len(values) // 2):
        why = f"{different:,} different labels in {len(values):,} rows; --label names another column, --kind texts"
        why += " reads texts to be written"
    elif texts and (words or rows.chosen.get("text", "").lower() in ("tokens", "words")):
        why = "a word, or words as text; tags need CoNLL's columns, or lists of words in JSON lines or Parquet; --text"
        why += " names another column"
    else:
        return
    raise BadInput(f"{rows.place(0)}: {why}, --kind classes takes each label as a class")


def _refuse_thousands(known: dict[str, Rows]) -> None:
    """Refuse scores that have a dot before three digits or none at all: 1.250 beside 950 may be 1250."""
    cells = ((rows, i, value) for rows in known.values() for i, value in enumerate(rows.columns["label"]))
    said = [(rows, i, value.strip()) for rows, i, value in cells if isinstance(value, str)]
    dotted = [one for one in said if "." in one[-1]]
    if 0 < len(dotted) < len(said) and all(re.fullmatch(r"-?[1-9]\d{0,2}\.\d{3}", value) for *_, value in dotted):
        rows, i, value = dotted[0]
        raise BadInput(f"{rows.place(i)}: score {value!r} may mean thousands, as others have no dot; leave it out")


def _output_names(rows: dict[str, Rows], known: dict[str, Rows], columns: Columns, kind: Kind) -> tuple[str, ...]:
    """What the teacher's outputs are called, where labels do not say it all: by its file, or by its head; one of
    scores, () if nobody says it."""
    stored = rows["train"].outputs
    if stored is not None:
        return () if known and nameless(stored.names) else stored.names
    lacking = any(len(found) > len(known.get(split, ())) for split, found in rows.items())
    if not (columns.unlabelled and columns.teacher and lacking):
        return ()
    from common import models  # with torch, which few need so early

    config: Any = models.load_config(models.source(columns.teacher))
    if columns.label_map:
        return renamed(columns.label_map, tuple(map(str, range(config.num_labels))))
    headed = any(part in name for part in kind.architectures for name in config.architectures or [])
    if not (headed and (kind.single or kind.several)):
        return ()
    names = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    return () if len(names) > 1 and nameless(names) else names


NULLS = {"NULL", "null", "NaN", "nan", "NA", "N/A", "n/a", "#N/A", "None", "\\N"}  # nothing, as programs write it


def _blank(value: Any) -> bool:
    """Whether there is nothing in a cell, as files and their readers say it; SQuAD 2 by a dictionary of empty lists."""
    if isinstance(value, dict):
        return not any(value.values())
    return value is None or str(value) == "<NA>" or value != value or value == [] or not str(value).strip()


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
        if columns.unlabelled and kind.single and (split == "train" or (not of_train and all(lacks["label"]))):
            labels[:] = [None if no else value for no, value in zip(lacks["label"], labels, strict=True)]
            lacks["label"] = [False] * len(found)
        for what, lacking in lacks.items():
            if count := sum(lacking):
                first = found.place(lacking.index(True))
                warn(f"{split}: {count:,} of {len(found):,} rows have no {what} and are left out; the first is {first}")
        for what, cells in (("text", fields), ("label", [labels])):
            if odd := [i for i, row in enumerate(zip(*cells, strict=True)) if not NULLS.isdisjoint(map(str, row))]:
                has = f"{len(odd):,} rows have NULL, nan or the like as {what}, which is read as a word"
                warn(f"{split}: {has}; the first is {found.place(odd[0])}")
        for values in fields:  # one side of a pair may be blank: null is
            values[:] = ["" if not isinstance(value, str) and _blank(value) else value for value in values]
        order = [i for i in range(len(found)) if not (lacks["text"][i] or lacks["label"][i])]
        if order:
            kept[split] = found.keep(order)
        elif not len(found) and split != "train":
            warn(f"{split} is left out: no row is in {found.where}")
        elif split == "train":
            raise BadInput(f"{found.where}: no row has both a text and a label")
    return kept
