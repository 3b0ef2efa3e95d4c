"""The table of tasks, and what a loaded one is.

    task = check_name("sst2", "DIR")     # every check that costs nothing
    task = check_task("tickets.csv")     # the same; a data set of one's own is read, to see what it holds

No heavy library is imported here.
"""

from __future__ import annotations

import csv
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import pocket
from common.errors import BadInput, shown
from common.kinds import SURROGATE, Rows, Split, Task
from common.values import expanded

Source = Literal["pocket", "hub", "local"]


@dataclass(frozen=True)
class Columns:
    """What is said of a data set of one's own; None, and no text: it is to be seen from the data."""

    text: tuple[str, ...] = ()
    label: str | None = None
    kind: str | None = None  # one of kinds.OWN
    metric: str | None = None  # the primary one
    outputs: str | None = None  # a file of a teacher's outputs
    teacher: str | None = None  # whose head names the classes where no label does
    label_map: str | None = None  # what outputs without names are called

    @property
    def own(self) -> tuple[Any, ...]:
        """What is said of a data set of one's own alone."""
        return tuple(filter(None, (self.text, self.label, self.kind, self.metric)))

    @property
    def unlabelled(self) -> bool:
        """Whether a teacher is named that may say what the classes are; the pocket suite's know none of one's own."""
        return bool(self.outputs or not re.fullmatch(r"(pocket(-\d+)?(:\d+)?)?", self.teacher or ""))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Columns:
        """What the arguments of a script say; a comma stands between the two columns of a pair, unless it is quoted."""
        said = csv.reader((settings.get("text") or "").splitlines(), skipinitialspace=True)
        text = tuple(part.strip() for row in said for part in row if part.strip())
        names = ("label", "kind", "metric", "teacher_outputs", "teacher", "label_map")
        return cls(text, *((settings.get(name) or "").strip() or None for name in names))


@dataclass(frozen=True)
class TaskData:
    """A loaded task. `fingerprint` is a hash of ids, texts and labels in their order."""

    name: str  # as the user typed it, "pocket/sst2" or "sst2"; of a data set of one's own, its name and its digest
    task: Task
    source: Source
    origin: str  # "pocket v1" | "repo@revision" | file names; with the limit, if there is one
    splits: dict[str, Split]  # "train" and the evaluation splits
    fingerprint: str
    reported: tuple[str, ...]  # the splits whose figures are reported
    columns: tuple[str, ...] = ()  # of the texts in a table of one's own, as it calls them

    @property
    def key(self) -> str:
        """What the cache calls it: its name, or of a data set of one's own, whose file may be renamed, its content."""
        return self.name if self.task.name in TASKS else self.fingerprint

    @property
    def labelled(self) -> Split:
        """The training examples that labels can teach."""
        train = self.splits["train"]
        return train.labelled if self.task.kind.single else train


# --- the table of tasks --------------------------------------------------------------------------------------

_DEV, _TEST = ("train", "dev"), ("train", "dev", "test")
_PAIR = ("sentence1", "sentence2")
_ENTAILS = ("entailment", "not_entailment")


def _glue(name: str, folder: str, fields: tuple[str, ...], labels: tuple[str, ...], *metrics: str, **more: Any) -> Task:
    kind = "classification" if labels else "regression"
    return Task(name, kind, fields, labels, metrics, **({"splits": _DEV, "folder": folder, "pocket": name} | more))


def _tags(name: str, types: str, **more: Any) -> Task:
    labels = ("O", *(f"{part}-{kind}" for kind in types.split() for part in "BI"))
    return Task(name, "token classification", ("text",), labels, ("entity_f1",), pocket="ner", **more)


def _of(kind: str, fields: tuple[str, ...], *metrics: str, **more: Any) -> functools.partial[Task]:
    """What the tasks of a kind share."""
    return functools.partial(Task, kind_or_name=kind, fields=fields, labels=(), metrics=metrics, **more)


_language = _of("language modelling", ("text",), "perplexity")
_questions = _of("span QA", ("question", "context"), "answer_f1", "exact_match", splits=_DEV)
_translation = _of("translation", ("source",), "bleu", splits=_TEST, pocket="translate")
_summaries = _of("summarisation", ("document",), "rouge2", "rouge1", "rougeL", splits=_TEST, pocket="xsum")
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _glue("cola", "CoLA", ("sentence",), ("unacceptable", "acceptable"), "matthews"),
        _glue("sst2", "SST-2", ("sentence",), ("negative", "positive"), "accuracy"),
        _glue("mrpc", "MRPC", _PAIR, ("not_equivalent", "equivalent"), "f1", "accuracy"),
        _glue("qqp", "QQP", ("question1", "question2"), ("not_duplicate", "duplicate"), "f1", "accuracy"),
        _glue("stsb", "STS-B", _PAIR, (), "pearson", "spearman", score_range=(0.0, 5.0)),
        _glue("mnli", "MNLI", ("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), "accuracy",
              splits=("train", "dev_matched", "dev_mismatched")),
        _glue("qnli", "QNLI", ("question", "sentence"), _ENTAILS, "accuracy"),
        _glue("rte", "RTE", _PAIR, _ENTAILS, "accuracy"),
        _glue("wnli", "WNLI", _PAIR, ("not_entailment", "entailment"), "accuracy", pocket="rte"),
        Task("grammar", "classification", ("sentence",), ("unacceptable", "acceptable"), ("matthews",)),
        _language("lm"),
        _language("wikitext-2", splits=_TEST, folder="wikitext-2-raw", pocket="lm"),
        _tags("ner", "PER LOC ORG"),
        _questions("hotpot", splits=()),
        _questions("squad", folder="squad", pocket="squad"),
        _questions("squad-articles", folder="squad", pocket="squad", hub=False, whole=True),
        _questions("hotpot_qa", folder="hotpot", pocket="hotpot"),
        _questions("trivia_qa", folder="triviaqa", pocket="hotpot"),
        _tags("conll2003", "PER ORG LOC MISC", splits=_TEST, folder="conll2003"),
        _tags("conll2003-documents", "PER ORG LOC MISC", splits=_TEST, folder="conll2003", hub=False, whole=True),
        _tags("gonerd", "PER ORG LOC MISC", splits=_TEST, folder="gonerd", hub=False, whole=True),
        _translation("translate", splits=(), pocket=""),
        _translation("wmt16/en-ro", folder="wmt16_en_ro"),
        _translation("wmt14/en-fr", folder="wmt14_en_fr"),
        _translation("wmt13/en-es", folder="wmt13_en_es", hub=False),
        _translation("iwslt2017/en-fr", folder="iwslt2017_en_fr"),
        _translation("tatoeba/en-fr", folder="tatoeba_en_fr", hub=False),
        _translation("tatoeba/en-ro", folder="tatoeba_en_ro", hub=False),
        _summaries("cnn_dailymail", folder="cnn_dailymail"),
        _summaries("xsum", folder="xsum"),
        _summaries("aeslc", folder="aeslc", hub=False),
        _tags("litbank", "PER FAC LOC GPE VEH ORG", splits=_TEST, folder="litbank", hub=False, whole=True),
    )
}  # fmt: skip


NO_COLUMNS = Columns()
# What files of data are called, and a split of a task that its folder holds as a file without an ending
SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".json", ".parquet", ".conll", ".bio", ".raw", ".tokens", "")


def plain(path: Path) -> Path:
    """A file's name without the .gz of a compressed one."""
    return path.with_suffix("") if path.suffix == ".gz" else path


def is_data_set(name: str) -> bool:
    """Whether a name means a data set of one's own: hub:REPO, a file or a folder. The names in the table come first."""
    if name.startswith("hub:"):
        return True
    known = name in TASKS or name.startswith("pocket/")
    path = expanded(name)
    return bool(name) and not known and (path.exists() or plain(path).suffix in SUFFIXES[:-1] or name[0] in "./~")


def check_task(name: str, data_dir: str | None = None, columns: Columns = NO_COLUMNS) -> Task:
    """The task called `name`, after every check that needs no model. Raises BadInput. Reads no data but those of a data
    set of one's own, whose kind is seen from them."""
    if not is_data_set(name):
        if columns.own:
            raise BadInput(f"--text, --label, --kind, --metric: are for data sets of your own; {name} has its own")
        return check_name(name, data_dir)
    if data_dir is not None:
        raise BadInput(f"--data-dir {data_dir}: --task {name} says itself where its data are; leave it out")
    from common import own

    return own.read(name, columns).task


def check_name(name: str, data_dir: str | None = None) -> Task:
    """The task of the table called `name`, after every check that costs nothing: known task, folder and files in place.

    Raises BadInput. Reads no data.
    """
    known = [f"pocket/{task}" for task in pocket.SPLITS if task in TASKS] + [t for t in TASKS if TASKS[t].splits]
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise BadInput(f"--task {name}: unknown task, and no file or folder{hint} Known: {', '.join(known)}")
    task = TASKS[name.removeprefix("pocket/")]
    if data_dir is not None:
        if name != task.name:
            real = next((t.name for t in TASKS.values() if t.pocket == task.name and t.splits), task.name)
            raise BadInput(f"--data-dir {data_dir}: {name} is built in; for your files, --task {real}")
        from common import folders

        folders.find_files(task, data_dir)
    elif name == task.name and not task.hub:
        instead = f"`--data-dir DIR` (your files) or `--task pocket/{task.pocket}` (built in)"
        raise BadInput(f"--task {name}: no repository of the hub serves it; use {instead}")
    return task


# --- from any source to a loaded task --------------------------------------------------------------------------


def task_data(task: Task, source: Source, origin: str, name: str, splits: dict[str, Split], limit: int | None,
              tune: bool) -> TaskData:  # fmt: skip
    """What is read of the splits: `limit`, `tune` and what is reported, as `load` says."""
    if limit is not None and limit < len(splits["train"]):
        order, how = list(range(limit)), f"first {limit} training examples"
        if source != "pocket":
            order = permutation(len(splits["train"]), 0, 0)[:limit]
            how = f"{limit} training examples drawn with seed 0"
        splits["train"] = splits["train"].rows(order)
        origin += f", {how}"
    tests, dev = (tuple(split for split in splits if split.startswith(start)) for start in ("test", "dev"))
    reported = dev if tune else tests or dev
    if tune and not (tests and dev):
        train = splits["train"]
        known = [i for i, label in enumerate(train.labels) if label is not None]  # what a score can be made of
        order = known if task.kind.single and known else list(range(len(train)))
        if len(order) < 10:
            raise BadInput(f"--tune: {len(order)} training examples are too few to hold out a tenth of them")
        held_out = order[9::10]
        kept = sorted({*range(len(train))} - {*held_out})
        splits = {"train": train.rows(kept), "held_out": train.rows(held_out)}
        origin += ", a tenth of train held out"
        reported = ("held_out",)
    if task.kind.single:
        train, labelled = splits["train"], splits["train"].labelled
        if len(set(train.labels)) == 1 and len(labelled):
            only = task.labels[int(train.labels[0])] if task.labels else train.labels[0]
            raise BadInput(f"{name} ({origin}): all training labels are {only!r}; training needs at least two")
        if len(labelled) < len(train):
            origin += f", {len(labelled):,} of {len(train):,} training rows have labels"
        if not any(len(splits[split].labelled) for split in reported):
            task = replace(task, metrics=("agreement",))
            origin += f", {'+'.join(reported)} without labels: its score is agreement with the teacher"
    return TaskData(name, task, source, origin, splits, fingerprint_of(task, splits), reported)


def to_split(task: Task, name: str, rows: Rows, own: bool = False) -> Split:
    """Check every row and turn labels into indices or scores. Raises BadInput at the first bad row. `own`: a label may
    be None."""
    if not len(rows):
        raise BadInput(f"{rows.where}: no rows; the {name} split needs at least one")
    texts = list(zip(*(rows.columns[text] for text in task.fields), strict=True))
    for i, row in enumerate(texts):
        for text, value in zip(task.fields, row, strict=True):
            if not isinstance(value, str) or SURROGATE.search(value):
                kind = "text without a lone surrogate" if isinstance(value, str) else "text"
                raise BadInput(f"{rows.place(i)}: {text} is {shown(value)}; it must be {kind}")
            if not value.strip() and not ((own or rows.official) and any(str(other).strip() for other in row)):
                raise BadInput(f"{rows.place(i)}: {text} is empty; every example needs its text")
    labels = [
        None if own and task.kind.single and rows.columns["label"][i] is None else task.kind.read(task, rows, i)
        for i in range(len(rows))
    ]
    # The position in the source: unique over the splits, and the way back to the row.
    ids = rows.columns.get("id") or [f"{name}-{i}" for i in range(len(rows))]
    split = Split(ids, texts, labels, rows.outputs and rows.outputs.logits(task, rows.columns["outputs"]))
    return task.kind.taught(task, split, rows) if name == "train" else split


def fingerprint_of(task: Task, splits: dict[str, Split]) -> str:
    """16 hexadecimal digits over every split's name, ids, texts and labels, in order, and the names of the labels where
    they are seen from the data."""
    digest = hashlib.sha256(b"" if TASKS.get(task.name) == task else json.dumps(task.labels).encode())
    for name, split in splits.items():
        digest.update(f"{name} {len(split)}\n".encode())
        for row in zip(split.ids, split.texts, split.labels, strict=True):
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


def permutation(size: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in one epoch: a pure function of its arguments."""
    return np.random.default_rng([seed, epoch]).permutation(size).tolist()
