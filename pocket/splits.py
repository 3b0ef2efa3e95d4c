"""Which sentences belong to which split of the pocket suite."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple
from zlib import crc32

from pocket.grammar import ELSEWHERE, HOME, Genre

_OWNERS = ("train", "train", "train", "train", "dev", "dev", "test", "test")  # by the first three bits of the hash


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

    def owns(self, *sentences: str) -> bool:
        """Whether all these sentences belong to this split, by a hash that is the same on every machine; matched and
        mismatched splits share theirs."""
        owner = self.name.partition("_")[0]
        return all(_OWNERS[crc32(sentence.encode()) >> 29] == owner for sentence in sentences)

    def sentence(self, draw: Callable[[], str], tries: int | None = None) -> str:
        """The first drawn sentence that belongs to this split; "" if none of so many `tries` does."""
        numbers = count() if tries is None else range(tries)
        return next((sentence for _ in numbers if self.owns(sentence := draw())), "")
