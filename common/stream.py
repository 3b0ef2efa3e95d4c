"""Unlabelled text that is read while it is learnt from: memory does not grow with it.

    --corpus stream:news.txt          one passage a line; also .jsonl with a "text", either as .gz or .zst
    --corpus stream:hub:REPO          a text data set of the hub, through `datasets`; stream:hub:REPO:CONFIG for a part

The first `HEAD` texts are held: from them come the held-out passages, the frequencies of words, and what a new head of
the teacher learns from. All others pass through a buffer, from which they are drawn with a seed, in epochs without an
end. A batch is a function of seed and step: a run goes on at its place after passing over what came before, untokenised
where batches are made of whole texts, and every process makes the same batches, of which it learns from its own rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from common import corpus
from common.args import BadInput, first_line

if TYPE_CHECKING:
    from torch import Tensor

    from common.data import Encoded

PREFIX, HUB = "stream:", "hub:"
HEAD = 4096  # texts
BUFFER = 4096  # texts


def check(spec: str | None, argument: str = "--corpus") -> None:
    """Raise `BadInput` for a file that cannot be streamed or, without the prefix, is not there. Reads nothing."""
    if spec is None or spec.startswith(PREFIX + HUB):
        return
    path = Path(spec.removeprefix(PREFIX))
    if not path.is_file():
        raise BadInput(f"{argument} {spec}: no such file; it must be text with one passage a line")
    if spec.startswith(PREFIX) and corpus.kind_of(path) not in (".txt", ".jsonl"):
        raise BadInput(f"{argument} {spec}: must be .txt or .jsonl, or either as .gz or .zst, or {PREFIX}{HUB}REPO")


def of(spec: str | None, budget: str) -> Stream | None:
    """The stream that `--corpus` names, if it does; `BadInput` where a budget is counted in epochs of it."""
    if spec is None or not spec.startswith(PREFIX):
        return None
    if budget == "paper":
        raise BadInput(f"--corpus {spec}: has no known length, and --budget paper counts epochs; give a number")
    return Stream(spec)


@dataclass(frozen=True)
class Stream:
    """The texts behind `--corpus stream:...`."""

    spec: str

    @property
    def source(self) -> str:
        return self.spec.removeprefix(PREFIX)

    def signature(self) -> str:
        """What the texts are: a digest of the file, or the hub's revision."""
        if self.source.startswith(HUB):
            return f"{self.source}@{_revision(self.source.removeprefix(HUB).partition(':')[0])}"
        with Path(self.source).open("rb") as file:
            return f"{Path(self.source).name}@{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"

    def texts(self) -> Iterator[str]:
        """All of them, once, in their order. Raises `BadInput` with the file and line where there is one."""
        if self.source.startswith(HUB):
            yield from _hub(self.source.removeprefix(HUB))
            return
        path = Path(self.source)
        if corpus.kind_of(path) == ".jsonl":
            yield from corpus.documents(path.name, path, corpus.SECTION_3_2, Counter())
        else:
            yield from (line.strip() for line in corpus.lines(path) if line.strip())

    def head(self) -> list[str]:
        """The first `HEAD` texts. `BadInput` if there are no others, which a stream is for."""
        found = list(islice(self.texts(), HEAD + 1))
        if len(found) <= HEAD:
            raise BadInput(f"--corpus {self.spec}: {len(found)} texts are too few to be streamed, more than {HEAD} are"
                           f" needed; --corpus {self.source} reads them at once")  # fmt: skip
        return found[:HEAD]

    def drawn(self, seed: int) -> Iterator[str]:
        """The texts after the head without end, epoch after epoch, each in the order of a buffer that is drawn from."""
        epoch = 0
        while True:
            rng, held = Random(f"{seed}/{epoch}"), list[str]()
            for text in islice(self.texts(), HEAD, None):
                if len(held) < BUFFER:
                    held.append(text)
                    continue
                at = rng.randrange(BUFFER)
                held[at], text = text, held[at]
                yield text
            rng.shuffle(held)
            yield from held
            epoch += 1


class _Place:
    """A place in what `start` begins to give again from the first: `size` of it for every step."""

    def __init__(self, start: Callable[[], Iterator[Any]], size: int) -> None:
        self.start, self.size = start, size
        self.at = 0  # the step whose items come next
        self.left = start()

    def items(self, step: int) -> list[Any]:
        if step < self.at:
            self.left, self.at = self.start(), 0
        skip = (step - self.at) * self.size
        self.at = step + 1
        return list(islice(self.left, skip, skip + self.size))


class Batches:
    """The training stream in place of `data.Batches`: batches of `batch_size` examples that `encode` makes of texts.

    `texts` starts the texts again from the first. `encode` gives the examples of some texts; with `packed`, of tokens
    that go on from one batch's texts to the next one's, the examples are blocks (`packed_blocks`).
    """

    def __init__(self, texts: Callable[[], Iterator[str]], tokenizer: Any, encode: Callable[[list[str]], Encoded],
                 batch_size: int) -> None:  # fmt: skip
        self.place = _Place(texts, batch_size)
        self.tokenizer, self.encode, self.batch_size = tokenizer, encode, batch_size

    def ids(self, step: int) -> list[str]:
        return [f"text-{HEAD + i}" for i in range(step * self.batch_size, (step + 1) * self.batch_size)]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        from common import data

        encoded = self.encode(self.place.items(step))
        return data.collate(self.tokenizer, encoded, range(len(encoded)))


def blocks(texts: Iterable[str], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """`masked_lm.packed`'s blocks of `length` tokens, special ones included, one after the other."""
    inside, held = length - 2, list[int]()
    for text in texts:
        held += [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id]
        while len(held) >= inside:
            yield [tokenizer.cls_token_id, *held[:inside], tokenizer.sep_token_id]
            del held[:inside]


class Blocks:
    """The training stream of packed blocks, likewise; to go on at a step, what came before is tokenised again."""

    def __init__(self, texts: Callable[[], Iterator[str]], tokenizer: Any, length: int, batch_size: int) -> None:
        self.place = _Place(lambda: blocks(texts(), tokenizer, length), batch_size)
        self.batch_size = batch_size

    def ids(self, step: int) -> list[str]:
        return [f"block-{i}" for i in range(step * self.batch_size, (step + 1) * self.batch_size)]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        import torch

        ids = torch.tensor(self.place.items(step))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.zeros(len(ids)).long()}


def _hub(name: str) -> Iterator[str]:
    from datasets import load_dataset

    repo, _, config = name.partition(":")
    try:
        rows = load_dataset(repo, config or None, split="train", streaming=True)
        for row in rows:
            text = row.get("text") or row.get("content")
            if not isinstance(text, str):
                raise BadInput(f"--corpus {PREFIX}{HUB}{name}: needs a column text, and has {', '.join(row)}")
            if text.strip():
                yield text
    except BadInput:
        raise
    except Exception as error:  # of a dozen kinds: no network, no such repository, no such part
        raise BadInput(f"--corpus {PREFIX}{HUB}{name}: cannot be streamed ({first_line(error)})") from error


def _revision(repo: str) -> str:
    """The commit that the hub serves; of a folder on this machine, none."""
    if Path(repo).is_dir():
        return "local"
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(repo).sha)[:12]
    except Exception as error:
        raise BadInput(f"--corpus {PREFIX}{HUB}{repo}: not to be had from the hub ({type(error).__name__})") from error
