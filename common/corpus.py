"""`--corpus`: which unlabelled texts it names (`corpora`), and how they are read. No heavy library."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import pocket
from common.errors import BadInput, refused
from common.hub import hub_commit
from common.tables import json_lines
from common.tasks import TaskData
from common.values import split_paths

NAMED = ("task", "pocket-short", "pocket-long")  # the corpora that need no file
SHORT = 20_000  # documents of pocket-short

# OSCAR's filters, with the figures of Brown et al. (2023), section 3.2, which says "harmful categories" and does not
# list them: these are the harmful ones of the UT1 block list, from which OSCAR's categories come.
LANGUAGE, PROBABILITY = "en", 0.8  # the language is known, with at least this probability
WARNINGS = {"tiny", "short_sentences", "noisy"}
HARMFUL_PERPLEXITY = 13.51  # of a model of harmful text: at or below it, a text is like its training text
HARMFUL = {
    *("adult", "agressif", "cryptojacking", "dangerous_material", "dating", "ddos", "drogue", "gambling", "hacking"),
    *("malware", "mixed_adult", "phishing", "sect", "stalkerware", "warez"),
}


# --- what --corpus names -------------------------------------------------------------------------------------


class Text(str):
    """A text that knows what its corpus is called, for models that are told the language of a text."""

    corpus = ""


def parts_of(said: str) -> tuple[str, str | None, str | None, str]:
    """Of [stream:][NAME[:COUNT]=]PLACE: "stream:" or "", NAME, ":COUNT", PLACE. A path that exists is a PLACE."""
    match = re.fullmatch(r"(stream:)?((?:([^=:,]*)(:[^=,]*)?=)?(.+))", said, re.DOTALL)
    stream, whole, name, count, place = match.groups() if match else (None, said, None, None, said)
    return (stream or "", None, None, whole) if os.path.exists(whole) else (stream or "", name, count, place)


class Corpus(NamedTuple):
    """One corpus of `--corpus`: a file, a data set of the hub (`place` is REPO:CONFIG), or one of NAMED."""

    name: str  # "" of a file that stands alone, which holds a passage a line
    place: str
    most: int | None  # so many of its texts are taken
    streamed: bool
    hub: bool

    @classmethod
    def parse(cls, said: str) -> Corpus:
        """[stream:][NAME[:COUNT]=]PLACE, or one of NAMED; `BadInput` for what cannot be. Reads no text."""
        stream, name, count, place = parts_of(said)
        hub = bool(stream) and place.startswith("hub:")
        if place in NAMED and not stream and name is None:
            return cls(place, "", None, False, False)
        if count and not (count[1:].isdecimal() and int(count[1:])):
            raise BadInput(f"--corpus {said}: {count[1:]!r} must be how many texts are taken, 1 or more")
        most = int(count[1:]) if count else None
        if hub:
            return cls(name or place, place.removeprefix("hub:"), most, True, True)
        return cls(name or "", place, most, bool(stream), False)

    @property
    def called(self) -> str:
        """A file by its name and a digest of its content, wherever it is; others as they are called."""
        name = f"{self.name}:{self.most}" if self.most else self.name
        if self.hub:
            return name if self.name == f"hub:{self.place}" else f"{name}=hub:{self.place}"
        if not self.place:
            return name
        with Path(self.place).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        return f"{name or Path(self.place).name}@{digest}"

    def texts(self, task: TaskData, dropped: Counter[str]) -> Iterator[Text]:
        """Its texts, from the first; counts in `dropped` why others are left out."""
        found: Iterable[str]
        if self.place:
            found = (text for where, record in self.records() for text in _text_of(record, where, dropped))
        elif self.name == "task":
            own = task.task.kind.corpus(task.splits["train"])
            found = dict.fromkeys(" ".join(text.split()) for text in own)
        elif self.name == "pocket-short":
            found = pocket.unlabelled(SHORT)
        else:
            rows = pocket.generate("hotpot", "train")
            found = [text.replace("\n", " ") for text in pocket.generate("ner", "train")["text"]]
            found += [f"{asked} {context}" for asked, context in zip(rows["question"], rows["context"], strict=True)]
        for found_text in islice(found, self.most):
            text = Text(found_text)
            text.corpus = self.place.rpartition(":")[2] if self.hub else self.name
            yield text

    def records(self) -> Iterator[tuple[str, Any]]:
        """What a file or a data set holds, and where. A .txt file holds a passage a line or, where it has a name,
        documents between blank lines."""
        if self.hub:
            yield from _hub_rows(self.place)
        elif _suffix(self.place) == ".jsonl":
            for number, record in json_lines(Path(self.place), _lines(Path(self.place))):
                yield f"{self.place} line {number}", record
        else:
            for filled, lines in groupby(map(str.strip, _lines(Path(self.place))), key=bool):
                if filled:
                    for text in ["\n".join(lines)] if self.name else lines:
                        yield self.place, {"text": text}


def corpora(spec: str | None) -> list[Corpus]:
    """What `--corpus` names, one or several with commas; `BadInput` for what cannot be. Reads no text.

        FILE               one passage a line; of a .jsonl file, the "text" of every line
        NAME=FILE,...      named corpora, mixed in a drawn order. In a .txt file blank lines separate documents; a line
                           of a .jsonl file holds a "text", or OSCAR's "content" and "metadata", which is filtered
        NAME:COUNT=FILE    likewise, the first COUNT of its texts that pass the filters
        pocket-short       likewise, of the pocket suite: 20,000 unlabelled documents
        pocket-long        likewise: the documents of ner and hotpot, without their labels
        task               likewise: the training texts of the task
        stream:FILE        as FILE, or NAME=FILE, read while it is learnt from: memory does not grow with it
        stream:hub:REPO    a text data set of the hub, likewise; stream:hub:REPO:CONFIG for a part of it. With OSCAR's
                           columns it is filtered as OSCAR is; stream:NAME:COUNT=hub:REPO:CONFIG takes COUNT texts
        several streams    a text of each in turn, until all have ended; other corpora may stand among them

    Files may be packed, `.gz` or `.zst`.
    """
    found = [Corpus.parse(text) for text in split_paths(spec or "", lambda said: parts_of(said)[-1])]
    if spec is not None and not found:
        raise BadInput(f"--corpus {spec!r}: names no text; give a file, or for example pocket-short,pocket-long")
    named = [corpus.name for corpus in found if corpus.name]
    if len(set(named)) < len(named):
        raise BadInput(f"--corpus {spec!r}: names a corpus twice")
    for corpus in found:
        place = corpus.place
        if corpus.hub or not place:
            continue
        if len(found) > 1 and not corpus.name:
            raise BadInput(f"--corpus {place!r}: must be NAME=FILE, or one of {', '.join(NAMED)}")
        if not Path(place).is_file():
            raise BadInput(
                f"--corpus {place}: no such file; give a FILE of one passage a line, NAME=FILE,..., stream:FILE,"
                f" stream:hub:REPO, or one or several of {', '.join(NAMED)}"
            )
        if _suffix(place) not in (".jsonl", ".txt"):
            raise BadInput(f"--corpus {place}: must be .txt or .jsonl, or either as .gz or .zst")
    return found


def named(spec: str) -> str:
    """`--corpus` as a result's settings hold it: two files of one name and other content are told apart."""
    return ",".join("stream:" * corpus.streamed + corpus.called for corpus in corpora(spec))


# --- files and data sets -------------------------------------------------------------------------------------


def _text_of(record: Any, where: str, dropped: Counter[str]) -> Iterator[str]:
    """The text of a record, if it passes: its "text", or OSCAR's "content", which the hub's calls "text" too."""
    record = record if isinstance(record, dict) else {}
    metadata = record.get("metadata") if "content" in record else record.get("meta")
    oscar = isinstance(metadata, dict) and ("content" in record or "identification" in metadata)
    text = record.get("content" if oscar and "content" in record else "text")
    if not isinstance(text, str):
        raise BadInput(f"{where}: needs a text, or OSCAR's content and metadata")
    with refused(f"{where}: its metadata are not OSCAR's", AttributeError, TypeError):
        reason = dropped_by(metadata) if oscar else None
    if reason is None and text.strip():
        yield text
    else:
        dropped[reason or "empty"] += 1


def dropped_by(metadata: dict[str, Any]) -> str | None:
    """The first filter that an OSCAR document does not pass, or None. What OSCAR does not say of it drops nothing but
    for its language, which has to be known."""
    language = metadata.get("identification") or {}
    if language.get("label") != LANGUAGE or not language.get("prob", 0.0) >= PROBABILITY:
        return "language"
    if WARNINGS & set(metadata.get("quality_warnings") or ()):
        return "quality"
    perplexity = metadata.get("harmful_pp")
    if perplexity is not None and perplexity <= HARMFUL_PERPLEXITY:
        return "harmful perplexity"
    if HARMFUL & set(metadata.get("categories") or ()):
        return "category"
    return None


def _suffix(path: str) -> str:
    """What a file's name ends with, the packing left out: .txt, .jsonl."""
    return Path(path.removesuffix(".gz").removesuffix(".zst")).suffix


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, packed or not, as they are read."""
    wrong = (OSError, EOFError, UnicodeDecodeError, zlib.error)
    with refused(f"{path}: cannot be read", *wrong), io.TextIOWrapper(_opened(path), encoding="utf-8-sig") as file:
        yield from file


def _opened(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix == ".zst":
        import pyarrow  # which notices where a file was cut off

        return pyarrow.input_stream(str(path), compression="zstd")
    return path.open("rb")


def _hub_rows(place: str) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset

    repo, _, config = place.partition(":")
    where = f"--corpus stream:hub:{repo}"
    with refused(f"{where}: cannot be streamed"):  # no network, no such repository, no such part
        for row in load_dataset(repo, config or None, split="train", streaming=True, revision=commit(repo)):
            yield where, row


@functools.cache
def commit(repo: str) -> str | None:
    """The commit that the hub serves, the same in every epoch; of a folder on this machine, none."""
    if Path(repo).is_dir():
        return None
    with refused(f"--corpus stream:hub:{repo}: not to be had from the hub"):
        return hub_commit(repo)
