"""`--corpus`: which unlabelled texts it names, and how `datasets` reads them. No heavy library at the top."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pocket
from common.errors import BadInput, refused
from common.hub import hub_commit
from common.tasks import TaskData
from common.values import split_paths

if TYPE_CHECKING:
    from datasets import IterableDataset

NAMED = ("task", "pocket-short", "pocket-long")  # the corpora that need no file
ENDINGS = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
SHORT = 20_000  # documents of pocket-short


class Text(str):
    """A text that knows the part of a hub's data set it is of, for models that are told the language of a text."""

    corpus = ""


def corpora(spec: str | None) -> list[str]:
    """What `--corpus` names, one or several with commas; `BadInput` for what cannot be. Reads no text.

        FILE.txt            one passage a line
        FILE.jsonl          the "text" (or "content") of every line; either file also as .gz
        hub:REPO[:CONFIG]   a text data set of the hub, or a part of it
        task                the training texts of the task
        pocket-short        of the pocket suite: 20,000 unlabelled documents
        pocket-long         of the pocket suite: the documents of ner and hotpot, without their labels

    Several are mixed: in a drawn order where none is a file or of the hub, otherwise a text of each in turn.
    """
    names = split_paths(spec or "")
    if spec is not None and not names:
        raise BadInput(f"--corpus {spec!r}: names no text; give a file, or for example pocket-short,pocket-long")
    for name in names:
        if name in NAMED or name.startswith("hub:"):
            continue
        if not Path(name).is_file():
            others = ", ".join(("hub:REPO", *NAMED))
            raise BadInput(f"--corpus {name}: no such file; give one or several of FILE.txt, FILE.jsonl, {others}")
        if not name.endswith(ENDINGS):
            raise BadInput(f"--corpus {name}: must be {' or '.join(ENDINGS)}")
    return names


def called(name: str, task: TaskData | None = None) -> str:
    """A file by its name and a digest of its content, wherever it is; others as they are called. With a `task`, as the
    key of a stream holds it: the task's texts with its fingerprint, those of the hub with their commit."""
    if name.startswith("hub:"):
        return f"{name}@{(commit(name.split(':')[1]) or 'local')[:12]}" if task else name
    if name in NAMED:
        return f"{name}@{task.fingerprint}" if task and name == "task" else name
    with Path(name).open("rb") as file:
        return f"{Path(name).name}@{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"


def named(spec: str) -> str:
    """`--corpus` as a result's settings hold it: two files of one name and other content are told apart."""
    return ",".join(map(called, corpora(spec)))


def held(name: str, task: TaskData) -> list[str]:
    """The texts of one of NAMED."""
    if name == "task":
        own = task.task.kind.corpus(task.splits["train"])
        return list(dict.fromkeys(" ".join(text.split()) for text in own))
    if name == "pocket-short":
        return pocket.unlabelled(SHORT)
    rows = pocket.generate("hotpot", "train")
    found = [text.replace("\n", " ") for text in pocket.generate("ner", "train")["text"]]
    return found + [f"{asked} {context}" for asked, context in zip(rows["question"], rows["context"], strict=True)]


def stream(spec: str, task: TaskData, passes: Callable[[dict[str, Any]], bool] | None = None) -> IterableDataset:
    """The texts of all that `--corpus` names, one of each in turn until all have ended, as they are read: rows of a
    "text" and its "corpus". `passes`: whether a row of a file, or of the hub, is taken."""
    import datasets

    datasets.disable_progress_bars()
    parts = [_rows(name, task, passes) for name in corpora(spec)]
    if len(parts) == 1:
        return parts[0]
    return datasets.interleave_datasets(parts, stopping_strategy="all_exhausted_without_replacement")


def _rows(name: str, task: TaskData, passes: Callable[[dict[str, Any]], bool] | None) -> IterableDataset:
    """One corpus of a stream."""
    from datasets import Dataset, Features, Value, load_dataset

    columns = {"text": Value("string"), "corpus": Value("string")}
    if name in NAMED:
        texts = held(name, task)
        made = {"text": texts, "corpus": [name] * len(texts)}
        return Dataset.from_dict(made, Features(columns)).to_iterable_dataset()
    place = name.removeprefix("hub:") if name.startswith("hub:") else ""
    repo, _, config = place.partition(":")

    def row(record: dict[str, Any]) -> dict[str, str]:
        text = record.get("content", record.get("text"))  # OSCAR's, and everybody's
        if not isinstance(text, str):
            raise BadInput(f"--corpus {name}: a row without a text; each needs a 'text'")
        return {"text": text.strip().removeprefix("\ufeff"), "corpus": config}

    with refused(f"--corpus {name}: cannot be read"):  # no network, no such repository, no such part
        if place:
            found = load_dataset(repo, config or None, split="train", streaming=True, revision=commit(repo))
        else:
            kind = "text" if name.endswith((".txt", ".txt.gz")) else "json"
            found = load_dataset(kind, data_files=name, split="train", streaming=True)
        found = found if passes is None else found.filter(passes)
        return found.map(row).select_columns(list(columns)).cast(Features(columns)).filter(lambda one: one["text"])


def texts_of(rows: Iterable[dict[str, str]]) -> Iterator[Text]:
    """The texts of a stream; what goes wrong in its files is a `BadInput`."""
    with refused("--corpus: cannot be read"):
        for row in rows:
            text = Text(row["text"])
            text.corpus = row["corpus"]
            yield text


@functools.cache
def commit(repo: str) -> str | None:
    """The commit that the hub serves, the same in every epoch; of a folder on this machine, none."""
    if Path(repo).is_dir():
        return None
    with refused(f"--corpus hub:{repo}: not to be had from the hub"):
        return hub_commit(repo)
