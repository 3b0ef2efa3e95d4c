"""A task's data: loaded from its source, tokenised, and drawn in batches.

    task = load("pocket/sst2")                 # the embedded suite: no network, no files
    task = load("sst2")                        # the hub, at a pinned revision
    task = load("sst2", data_dir="DIR")        # local files: GLUE's layout, named columns, or `save_to_disk`
    task = load("tickets.csv")                 # a data set of one's own: a file, a folder, or hub:REPO
    encoded = encode(tokenizer, task.splits["train"], task.task, max_length)
    batches = Batches(encoded, tokenizer, 32, seed)        # batches[step]: a pure function of seed and step

Every source ends in the same `TaskData`; which one it was is recorded and never switched silently.

Shapes: B batch, L length (tokens, padding included), N examples of a split.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

import pocket
from common.errors import BadInput, warn
from common.kinds import Encoded, Rows, Split, Task
from common.tasks import (
    NO_COLUMNS,
    Columns,
    Source,
    TaskData,
    check_task,
    fingerprint_of,
    is_data_set,
    permutation,
    task_data,
    to_split,
)

# --- loading -------------------------------------------------------------------------------------------------

READY: dict[str, TaskData] = {}  # pocket tasks that were loaded before this process was forked


def load(
    name: str, data_dir: str | None = None, limit: int | None = None, tune: bool = False, columns: Columns = NO_COLUMNS
) -> TaskData:
    """Load a task from the source that `name` and `data_dir` say: pocket, hub or local.

    `limit` keeps the first N training examples (documents): of the pocket suite's own order, or of a drawn permutation
    for real data, whose files may be sorted. With `tune`, figures are reported on a split that results are never
    reported on: where that is a test split, on dev; otherwise on every tenth training example, which is held out.
    Raises BadInput with the file and line where there is one.
    """
    if name in READY and not (data_dir or columns.own or columns.outputs):
        ready = READY[name]
        return task_data(ready.task, ready.source, ready.origin, name, dict(ready.splits), limit, tune)
    task = check_task(name, data_dir, columns)
    source: Source = "local" if data_dir is not None else "hub" if name == task.name else "pocket"
    if is_data_set(name):
        from common import own

        return own.loaded(own.read(name, columns), limit, tune)
    if source == "pocket":  # the same for every seed of a run, the suite's own seed being 0
        rows = {split: Rows(pocket.generate(task.name, split), f"{name} {split}") for split in pocket.SPLITS[task.name]}
        origin = f"pocket v{pocket.VERSION}"
    else:
        from common import folders

        rows, origin = folders.open_task(task, data_dir)
    if columns.outputs is not None:
        from common import outputs

        outputs.join(rows, outputs.stored(columns))
    splits = {split: to_split(task, split, found) for split, found in rows.items()}
    return task_data(task, source, origin, name, splits, limit, tune)


def head(split: Split, count: int) -> Split:
    """Its first examples."""
    return split.rows(range(min(count, len(split))))


def prompted(data: TaskData, prompt: str) -> TaskData:
    """The task with a prompt in front of every text."""
    if not prompt:
        return data
    splits = {
        name: replace(split, texts=[tuple(f"{prompt} {text}" for text in row) for row in split.texts])
        for name, split in data.splits.items()
    }
    return replace(
        data, splits=splits, fingerprint=fingerprint_of(data.task, splits), origin=f"{data.origin}, prompt {prompt!r}"
    )


# --- tokenising and batching ---------------------------------------------------------------------------------


def encode(tokenizer: PreTrainedTokenizerBase, split: Split, task: Task, max_length: int) -> Encoded:
    """Tokenise a split, to at most `max_length` tokens, as the task's kind does: of a running text the examples are
    blocks, of documents windows. What was tokenised before, by a tokenizer like this one, is not tokenised again."""
    key = identity(tokenizer), tokenizer.padding_side, task.kind, max_length, task.target_length
    if key not in split.encoded:
        split.encoded[key] = task.kind.tokenise(tokenizer, split, task, max_length)
        warn_of_cuts(split.encoded[key], task.name, max_length)
    return split.encoded[key]


def warn_of_cuts(encoded: Encoded, name: str, max_length: int) -> None:
    if encoded.cut:
        share = f"{encoded.cut:,} of {len(encoded):,} texts ({encoded.cut / len(encoded):.1%})"
        warn(f"{name}: {share} have more than {max_length} tokens and lose their ends (see --max-length)")


def identity(tokenizer: Any) -> Any:
    """What decides a tokenizer's output: its words and rules, which features it gives, and in which language."""
    if not tokenizer.is_fast:
        return tokenizer
    tokenizer.backend_tokenizer.no_truncation()  # every call sets both anew
    tokenizer.backend_tokenizer.no_padding()
    said = ("model_input_names", "truncation_side", "special_tokens_map", "src_lang", "tgt_lang")
    return *(str(getattr(tokenizer, name, None)) for name in said), tokenizer.backend_tokenizer.to_str()


def collate(
    tokenizer: PreTrainedTokenizerBase, encoded: Encoded, indices: Sequence[int], multiple: int = 1
) -> dict[str, Tensor]:
    """The batch of these examples: the tokeniser's outputs [B, L] (long) and "labels", [B, ...], as the kind says.

    L is the longest of the batch or, where there is padding at all, the next multiple of `multiple`; the tokeniser
    decides the side and the ids of the padding.
    """
    chosen = list(indices)
    lengths = [encoded.lengths[i] for i in chosen]
    L = max(lengths)
    if min(lengths) < L:
        if tokenizer.pad_token_id is None:
            raise BadInput(f"{type(tokenizer).__name__} has no padding token (pad_token) to fill batches with")
        L = max(L, min(-(-L // multiple) * multiple, tokenizer.model_max_length))
    positions, padding = places(encoded, chosen, L, tokenizer.padding_side)
    pads = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
    batch = {}
    for name, flat in encoded.flat.items():
        rows = flat[positions].astype(np.int64)
        rows[padding] = pads.get(name) or 0
        batch[name] = torch.from_numpy(rows)
    batch["labels"] = encoded.kind.align(encoded.labels[chosen], L)
    return batch


def places(encoded: Encoded, indices: Sequence[int], L: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Where in `encoded.flat` the tokens of a batch stand, [B, L], and which of its L columns are padding, [B, L]."""
    lengths = np.array([encoded.lengths[i] for i in indices])[:, None]
    # column c of a row holds token number `at` of its example
    at = np.arange(L) - (L - lengths if side == "left" else 0)
    padding = (at < 0) | (at >= lengths)
    return np.where(padding, 0, encoded.ends[list(indices)][:, None] - lengths + at), padding


class Batches:
    """The training stream, a pure function of (seed, step), so that resuming needs no state but the step.

    Epochs are seeded permutations laid end to end; every batch is full, so a batch may straddle two epochs.
    The stream has no end: the budget stops it. `by_length` draws the batches of an epoch from pools of 50 batches that
    are sorted by length, and then in any order, so that examples of one length meet and little is padding. `multiple`
    is `collate`'s.
    """

    POOL = 50

    def __init__(
        self, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, seed: int,
        by_length: bool = False, multiple: int = 1,
    ) -> None:  # fmt: skip
        self.encoded, self.tokenizer, self.batch_size, self.seed = encoded, tokenizer, batch_size, seed
        self.by_length, self.multiple = by_length, multiple
        self._epoch = functools.lru_cache(maxsize=2)(self._order)  # a batch seldom straddles more

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every example has been seen once (the last of them may reach into the next epoch)."""
        return math.ceil(len(self.encoded) / self.batch_size)

    def indices(self, step: int) -> list[int]:
        """The examples of batch `step` (from 0): for messages, and for caches by example."""
        size = len(self.encoded)
        first = step * self.batch_size
        return [self._epoch(at // size)[at % size] for at in range(first, first + self.batch_size)]

    def ids(self, step: int) -> list[str]:
        """The ids of the examples of batch `step`."""
        return [self.encoded.ids[i] for i in self.indices(step)]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `collate` makes it."""
        return collate(self.tokenizer, self.encoded, self.indices(step), self.multiple)

    def _order(self, epoch: int) -> list[int]:
        """The examples in the order of one epoch."""
        order = permutation(len(self.encoded), self.seed, epoch)
        if not self.by_length:
            return order
        N, B = len(order), self.batch_size
        pools = [order[start : start + self.POOL * B] for start in range(0, N, self.POOL * B)]
        by_length = [i for pool in pools for i in sorted(pool, key=lambda i: self.encoded.lengths[i])]
        lead = min(N, -epoch * N % B)  # these fill up the batch that the epoch before has begun
        batches = [by_length[start : start + B] for start in range(lead, N, B)]
        whole = (N - lead) // B  # a short last batch stays last, or it would shift those after it
        drawn = [*permutation(whole, self.seed + 1, epoch), *range(whole, len(batches))]
        return [*by_length[:lead], *(i for at in drawn for i in batches[at])]


EVAL_TOKENS = 16_384


def eval_batches(
    encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Every example's index exactly once, longest first (little padding, and memory runs out at once or never), with
    their batch: of at most `EVAL_TOKENS` tokens, padding included, or one example."""
    batch_size = max(1, min(batch_size, EVAL_TOKENS // max(encoded.lengths, default=1)))
    order = sorted(range(len(encoded)), key=lambda i: -encoded.lengths[i])
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        yield indices, collate(tokenizer, encoded, indices)
