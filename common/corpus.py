"""Unlabelled text for distillation: OSCAR's filters (Brown et al., section 3.2), and mixes of named corpora (table 8).

    texts = mix("oscar=oscar/en_part_1.jsonl.gz,books=books.txt", limit=100_000, seed=0).texts
    texts = mix("pocket-short,pocket-long").texts              # built in

A corpus is NAME=FILE, or the name of a built-in one. Files: `.jsonl`, one object a line, with OSCAR 23.01's "content"
and "metadata", which the filters read, or with a "text" alone; `.txt`, whose blank lines separate documents. Either
may be packed, `.gz` or `.zst`.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from common import pocket
from common.args import BadInput, split_list
from common.local import json_lines

BUILT_IN = ("pocket-short", "pocket-long")
BUILT_IN_SIZE = 20_000  # documents of pocket-short


@dataclass(frozen=True)
class Filters:
    """Section 3.2's, with its figures. It says "harmful categories" and does not list them: these are the harmful ones
    of the UT1 block list, from which OSCAR's categories come."""

    language: str = "en"
    probability: float = 0.8  # of the language, at least
    warnings: frozenset[str] = frozenset({"tiny", "short_sentences", "noisy"})
    harmful_perplexity: float = 13.51  # of a model of harmful text: at or below it, a text is like its training text
    categories: frozenset[str] = frozenset(
        {
            *("adult", "agressif", "cryptojacking", "dangerous_material", "dating", "ddos", "drogue", "gambling"),
            *("hacking", "malware", "mixed_adult", "phishing", "sect", "stalkerware", "warez"),
        }
    )


SECTION_3_2 = Filters()


@dataclass(frozen=True)
class Mix:
    """Documents in a drawn order, which corpus each is from, and of every corpus what was kept and what was dropped."""

    texts: list[str]
    sources: list[str]
    kept: dict[str, int]
    dropped: dict[str, dict[str, int]]  # corpus -> filter -> documents

    @property
    def signature(self) -> str:
        """The mix in one word: names and sizes."""
        return "+".join(f"{name}:{count}" for name, count in self.kept.items())


def dropped_by(metadata: dict[str, Any], filters: Filters = SECTION_3_2) -> str | None:
    """The first filter that an OSCAR document does not pass, or None. What OSCAR does not say of it drops nothing but
    for its language, which has to be known."""
    language = metadata.get("identification") or {}
    if language.get("label") != filters.language or not language.get("prob", 0.0) >= filters.probability:
        return "language"
    if filters.warnings & set(metadata.get("quality_warnings") or ()):
        return "quality"
    perplexity = metadata.get("harmful_pp")
    if perplexity is not None and perplexity <= filters.harmful_perplexity:
        return "harmful perplexity"
    if filters.categories & set(metadata.get("categories") or ()):
        return "category"
    return None


def check(spec: str, argument: str = "--corpus") -> dict[str, Path | None]:
    """Corpus -> its file, None where it is built in. Reads nothing; raises BadInput for what cannot be read."""
    found: dict[str, Path | None] = {}
    for part in split_list(spec):
        name, equals, file = part.partition("=")
        if not equals and name not in BUILT_IN:
            raise BadInput(f"{argument} {part!r}: must be NAME=FILE, or one of {', '.join(BUILT_IN)}")
        if name in found:
            raise BadInput(f"{argument} {spec!r}: names {name} twice")
        if equals and not Path(file).is_file():
            raise BadInput(f"{argument} {part}: no such file")
        if equals and kind_of(Path(file)) not in (".jsonl", ".txt"):
            raise BadInput(f"{argument} {part}: must be .jsonl or .txt, or either as .gz or .zst")
        found[name] = Path(file) if equals else None
    if not found:
        raise BadInput(f"{argument} {spec!r}: names no corpus; for example {BUILT_IN[0]},{BUILT_IN[1]}")
    return found


def mix(spec: str, filters: Filters = SECTION_3_2, limit: int | None = None, seed: int = 0) -> Mix:
    """The documents of all corpora that `spec` names, in an order drawn with `seed`.

    `limit`: at most so many of each, drawn with the seed from the whole of it (reservoir sampling, so a file of any
    size is read in one pass and never held). Raises BadInput for a damaged line, or a corpus of which nothing is left.
    """
    texts: list[tuple[str, str]] = []
    kept: dict[str, int] = {}
    dropped: dict[str, dict[str, int]] = {}
    for name, path in check(spec).items():
        rng, reasons = Random(f"{name}/{seed}"), Counter[str]()
        chosen: list[str] = []
        for count, text in enumerate(documents(name, path, filters, reasons)):
            if limit is None or count < limit:
                chosen.append(text)
            elif (at := rng.randrange(count + 1)) < limit:
                chosen[at] = text
        if not chosen:
            why = ", ".join(f"{reason} {n}" for reason, n in reasons.items()) or "it is empty"
            raise BadInput(f"--corpus {name}: no document is left ({why})")
        texts += [(text, name) for text in chosen]
        kept[name], dropped[name] = len(chosen), dict(reasons)
    Random(seed).shuffle(texts)
    return Mix([text for text, _ in texts], [name for _, name in texts], kept, dropped)


def documents(name: str, path: Path | None, filters: Filters, reasons: Counter[str]) -> Iterator[str]:
    """The documents of one corpus that pass; counts in `reasons` why others do not."""
    if path is None:
        yield from _built_in(name)
        return
    if kind_of(path) == ".txt":
        paragraph: list[str] = []
        for line in lines(path):
            if line.strip():
                paragraph.append(line.strip())
            elif paragraph:
                yield "\n".join(paragraph)
                paragraph = []
        if paragraph:
            yield "\n".join(paragraph)
        return
    for number, record in json_lines(path, lines(path)):
        oscar = isinstance(record, dict) and isinstance(record.get("metadata"), dict)
        text = record.get("content" if oscar else "text") if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise BadInput(f"{path} line {number}: needs a text, or OSCAR's content and metadata")
        reason = dropped_by(record["metadata"], filters) if oscar else None
        if reason is None and not text.strip():
            reason = "empty"
        if reason is None:
            yield text
        else:
            reasons[reason] += 1


def kind_of(path: Path) -> str:
    """What a file's name ends with, the packing left out: .txt, .jsonl."""
    return Path(str(path).removesuffix(".gz").removesuffix(".zst")).suffix


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, packed or not, as they are read."""
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise BadInput(f"{path}: `pip install zstandard` is needed to read .zst") from None
        open_text = zstandard.open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            yield from file
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error


def _built_in(name: str) -> Iterator[str]:
    """pocket-short: the pocket suite's unlabelled documents. pocket-long: the inputs of the training documents of ner
    and hotpot, without their labels."""
    if name == "pocket-short":
        yield from pocket.unlabelled(BUILT_IN_SIZE)
        return
    yield from (text.replace("\n", " ") for text in pocket.generate("ner", "train")["text"])
    rows = pocket.generate("hotpot", "train")
    yield from (f"{question} {context}" for question, context in zip(rows["question"], rows["context"], strict=True))
