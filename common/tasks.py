"""The table of tasks, what a loaded one is, and the names of its files.

    task = check_name("sst2", "DIR")     # every check that costs nothing; of a data set of one's own: common/sources.py

No heavy library is imported here.
"""

from __future__ import annotations

import csv
import difflib
import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pocket
from common.errors import BadInput
from common.kinds import Split, Task
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

    @property
    def key(self) -> str:
        """What the cache calls it: its name, or of a data set of one's own, whose file may be renamed, its content."""
        return self.name if self.task.name in TASKS else self.fingerprint

    @property
    def labelled(self) -> Split:
        """The training examples that labels can teach."""
        train = self.splits["train"]
        return train.labelled if self.task.kind.ordered else train


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


def is_data_set(name: str) -> bool:
    """Whether a name means a data set of one's own: hub:REPO, a file or a folder. The names in the table come first."""
    if name.startswith("hub:"):
        return True
    known = name in TASKS or name.startswith("pocket/")
    path = expanded(name)
    return bool(name) and not known and (path.exists() or plain(path).suffix in SUFFIXES[:-1] or name[0] in "./~")


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
        find_files(task, data_dir)
    elif name == task.name and not task.hub:
        instead = f"`--data-dir DIR` (your files) or `--task pocket/{task.pocket}` (built in)"
        raise BadInput(f"--task {name}: no repository of the hub serves it; use {instead}")
    return task


# --- the names of its files ----------------------------------------------------------------------------------

# What a split's file, or the split itself, is called: here, at home, and in the official releases
_NAMES = {
    "train": ("train", "train-v1.1", "hotpot_train_v1.1", "wiki.train", "eng.train"),
    "dev": ("dev", "validation", "valid", "val", "dev-v1.1", "hotpot_dev_distractor_v1", "wiki.valid", "testa",
            "eng.testa"),
    "test": ("test", "wiki.test", "testb", "eng.testb"),
}  # fmt: skip
SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".json", ".parquet", ".conll", ".bio", ".raw", ".tokens", "")


def plain(path: Path) -> Path:
    """A file's name without the .gz of a compressed one."""
    return path.with_suffix("") if path.suffix == ".gz" else path


def names_of(split: str) -> list[str]:
    """What a split can be called: "dev_matched" is also "validation_matched"."""
    stem, _, half = split.partition("_")
    return [f"{name}_{half}".rstrip("_") for name in _NAMES[stem]]


def folder_of(task: Task, data_dir: str) -> Path:
    """The task's folder in DIR, or DIR itself."""
    root = expanded(data_dir)
    if not root.is_dir():
        raise BadInput(f"--data-dir {data_dir}: {'not a folder' if root.exists() else 'no such folder'}")
    return next(path for path in (root / task.folder, root / task.name, root) if path.is_dir())


def find_files(task: Task, data_dir: str) -> dict[str, Path]:
    """Split -> file, or {"": folder} for a folder of `save_to_disk`. Reads nothing. Raises BadInput."""
    return files_of(folder_of(task, data_dir), task.splits, task.splits)


def files_of(folder: Path, splits: Collection[str], needed: Collection[str]) -> dict[str, Path]:
    """The files of a folder's splits, likewise; of those that are `needed`, none may be missing."""
    if (folder / "dataset_dict.json").is_file():
        return {"": folder}
    if (folder / "state.json").is_file():
        raise BadInput(f"{folder}: one split written by save_to_disk; save a DatasetDict with train and validation")
    files = {split: file for split in splits if (file := find_split(folder, split))}
    if lacking := [split for split in needed if split not in files]:
        names = " or ".join(name for name in names_of(lacking[0])[:2] if "." not in name)
        has = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "no files"
        raise BadInput(f"{folder}: no {lacking[0]} split; needs {names} with {', '.join(filter(None, SUFFIXES))};"
                       f" has {has}")  # fmt: skip
    return files


def data_files(folder: Path) -> list[Path]:
    """The files of a folder that may hold data."""
    return [path for path in sorted(folder.iterdir()) if plain(path).suffix in SUFFIXES[:-1] and path.is_file()]


def find_split(folder: Path, split: str) -> Path | None:
    """The one file of a split, or the pattern of the names of its parts; None if there is none."""
    names = names_of(split)
    found = [
        path
        for name in names
        for end in (*SUFFIXES, *(f"{end}.gz" for end in SUFFIXES[:5]))
        if (path := folder / f"{name}{end}").is_file()
    ]
    part = re.compile(rf"({'|'.join(names)})-\d+-of-(\d+)[-\w]*\.parquet")  # as on the hub, some with a hash
    parts = Counter(match.group(1, 2) for path in folder.iterdir() if (match := part.fullmatch(path.name)))
    for (name, total), count in parts.items():
        pattern = f"{name}-*-of-{total}*.parquet"
        if count != int(total):
            raise BadInput(f"{folder}: {count} of the {int(total)} files {pattern}; all of them are needed")
        found.append(folder / pattern if count > 1 else next(folder.glob(pattern)))
    if len(found) > 1:
        raise BadInput(f"{folder}: {found[0].name} and {found[1].name} both hold the {split} split; leave one")
    return found[0] if found else None
