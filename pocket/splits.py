"""Which sentences belong to which split of the pocket suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple
from zlib import crc32

from pocket.grammar import ELSEWHERE, HOME, Genre

_OWNERS = ("train", "train", "train", "train", "dev", "dev", "test", "test")  # by the first three bits of the hash


def _owner(sentence: str) -> str:
    """The split of a sentence, by a hash that is the same on every machine."""
    return _OWNERS[crc32(sentence.encode()) >> 29]


def in_split(sentences: Iterable[str], split: str) -> bool:
    """Whether all these sentences belong to the split; matched and mismatched ones share theirs."""
    owner = split.partition("_")[0]
    return all(_owner(sentence) == owner for sentence in sentences)


class Split(NamedTuple):
    """A split of a task, drawn from one seed."""

    task: str
    name: str
    seed: int

    @property
    def stream(self) -> str:
        """The name of its stream of random numbers."""
        return f"{self.task}/{self.name}/{self.seed}"

    @property
    def genre(self) -> Genre:
        return ELSEWHERE if self.name.endswith("_mismatched") else HOME

    def owns(self, sentence: str) -> bool:
        """Whether a sentence belongs to this split."""
        return _owner(sentence) == self.name.partition("_")[0]

    def sentence(self, draw: Callable[[], str], tries: int | None = None) -> str:
        """The first drawn sentence that belongs to this split; "" if none of so many `tries` does."""
        numbers = count() if tries is None else range(tries)
        return next((sentence for _ in numbers if self.owns(sentence := draw())), "")
