"""A task's data: loaded from its source, tokenised, and drawn in batches.

    task = load("pocket/sst2")                 # the embedded suite: no network, no files
    task = load("sst2")                        # the hub, at a pinned revision
    task = load("sst2", data_dir="DIR")        # local files: GLUE's layout, named columns, or `save_to_disk`
    task = load("tickets.csv")                 # a data set of one's own: a file, a folder, or hub:REPO
    task = from_lists(texts, labels)           # the same, in memory
    encoded = encode(tokenizer, task.splits["train"], task.task, max_length)
    batches = Batches(encoded, tokenizer, 32, seed)        # batches[step]: a pure function of seed and step

Every source (common/sources.py) ends in the same `TaskData`; which one it was is recorded and never switched silently.

Shapes: B batch, L length (tokens, padding included), N examples of a split.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from common import outputs, parallel
from common.errors import BadInput, shown, some, tell, warn
from common.kinds import Encoded, Rows, Split, Task
from common.kinds.texts import SURROGATE
from common.sources import DataSet, described, open_data
from common.tasks import NO_COLUMNS, TASKS, Columns, TaskData, is_data_set

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
        return _made(ready, name, dict(ready.splits), limit, tune)
    found = open_data(name, data_dir, columns)
    if is_data_set(name):
        return _own(found, limit, tune)
    splits = {split: _to_split(found.task, split, rows) for split, rows in found.rows.items()}
    return _made(found, name, splits, limit, tune)


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
        if not inputs or len(inputs) != len(answers):
            raise BadInput(f"{split}: {len(inputs)} texts and {len(answers)} labels; as many are needed, one or more")
        found = {"text": inputs}
        if isinstance(inputs[0], tuple):
            if not all(isinstance(one, tuple) and len(one) == 2 for one in inputs):
                raise BadInput(f"{split}: tuples must all be of two texts")
            found = dict(zip(("text1", "text2"), map(list, zip(*inputs, strict=True)), strict=False))
        rows[split] = Rows(found | {"label": answers}, split)
    return _own(described(name, rows, Columns(kind=kind)), None, False)


def _own(found: DataSet, limit: int | None, tune: bool) -> TaskData:
    """A data set of one's own, a tenth of train held out if there is no other split; what it holds is told in a line,
    and what is wrong with it in warnings. Its name ends with a digest of all splits: a name for every content."""
    task, origin = found.task, found.origin
    splits = {split: _to_split(task, split, rows, own=True) for split, rows in found.rows.items()}
    if len(splits) == 1:
        splits = _hold_out(task, splits["train"])
        origin += f", a tenth of train held out as dev ({len(splits['dev']):,}, by their texts)"
    _tell(task, origin, found.rows["train"], splits)
    name = f"{task.name}-{_fingerprint(task, splits)[:8]}"
    made = _made(found._replace(origin=origin), name, splits, limit, tune)
    return replace(made, task=replace(made.task, kind_or_name=made.task.kind.of_own(made.splits["train"])))


def _made(found: DataSet | TaskData, name: str, splits: dict[str, Split], limit: int | None, tune: bool) -> TaskData:
    """What is read of the splits: `limit`, `tune` and what is reported, as `load` says."""
    task, origin = found.task, found.origin
    if limit is not None and limit < len(splits["train"]):
        order, how = list(range(limit)), f"first {limit} training examples"
        if found.source != "pocket":
            order = _permutation(len(splits["train"]), 0, 0)[:limit]
            how = f"{limit} training examples drawn with seed 0"
        splits["train"] = splits["train"].rows(order)
        origin += f", {how}"
    tests, dev = (tuple(split for split in splits if split.startswith(start)) for start in ("test", "dev"))
    reported = dev if tune else tests or dev
    if tune and not (tests and dev):
        train = splits["train"]
        known = [i for i, label in enumerate(train.labels) if label is not None]  # what a score can be made of
        order = known if task.kind.ordered and known else list(range(len(train)))
        if len(order) < 10:
            raise BadInput(f"--tune: {len(order)} training examples are too few to hold out a tenth of them")
        held_out = order[9::10]
        kept = sorted({*range(len(train))} - {*held_out})
        splits = {"train": train.rows(kept), "held_out": train.rows(held_out)}
        origin += ", a tenth of train held out"
        reported = ("held_out",)
    if task.kind.ordered:
        train, labelled = splits["train"], splits["train"].labelled
        if len(set(train.labels)) == 1 and len(labelled):
            only = task.labels[int(train.labels[0])] if task.labels else train.labels[0]
            raise BadInput(f"{name} ({origin}): all training labels are {only!r}; training needs at least two")
        if len(labelled) < len(train):
            origin += f", {len(labelled):,} of {len(train):,} training rows have labels"
        if not any(len(splits[split].labelled) for split in reported):
            task = replace(task, metrics=("agreement",))
            origin += f", {'+'.join(reported)} without labels: its score is agreement with the teacher"
    return TaskData(name, task, found.source, origin, splits, _fingerprint(task, splits), reported)


def _hold_out(task: Task, train: Split) -> dict[str, Split]:
    """Train without a tenth of its texts, and these as dev: a text's hash decides, so that rows which are added later
    move no other, and equal texts stay together. Rows without a label are not held out where others have one.

    Every class keeps a text in train, and one of ten texts or more has one in dev, whatever the hashes are.
    """
    names = []  # of the texts of each row
    for texts in train.texts:
        plain = [" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts]
        names.append(hashlib.sha256(json.dumps(["held out", *plain]).encode()).hexdigest())
    rows = [i for i, label in enumerate(train.labels) if label is not None or not task.kind.ordered]
    rows = rows or list(range(len(train)))
    classes: dict[Any, set[str]] = {None: {names[i] for i in rows}}
    for i in rows:
        if task.kind.ordered and isinstance(train.labels[i], int):
            classes.setdefault(train.labels[i], set()).add(names[i])
    hashed = {name for name in classes[None] if int(name[:8], 16) < 0.1 * 16**8}
    held = hashed | {min(texts) for texts in classes.values() if len(texts) >= 10 and hashed.isdisjoint(texts)}
    held -= {max(texts) for texts in classes.values() if texts <= held}
    if not held:
        raise BadInput(f"{task.name}: no dev or test split, and {len(classes[None]):,} different texts of"
                       f" {max(1, len(classes) - 1):,} classes are too few to hold some out")  # fmt: skip
    dev = [i for i in rows if names[i] in held]
    if moved := sum(names[i] in held ^ hashed for i in rows):
        why = "every class needs a text in train and, if it has ten, one in dev"
        warn(f"dev: {moved:,} rows are held out, or not, against their texts' hash: {why}")
    if left := sum(name in held for name in names) - len(dev):
        warn(f"train: {left:,} rows without a label are left out: their texts are held out")
    return {"train": train.rows([i for i, name in enumerate(names) if name not in held]), "dev": train.rows(dev)}


def _tell(task: Task, origin: str, rows: Rows, splits: dict[str, Split]) -> None:
    """One line about what a data set holds, and warnings about what is odd in it."""
    what = task.kind.told(task, splits, rows)
    known = set(splits["train"].texts)
    for name, split in splits.items():
        if name != "train" and (count := sum(text in known for text in split.texts)):
            warn(f"{name}: {count:,} of its {len(split):,} texts stand in train too; scores on them say little")
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
        data, splits=splits, fingerprint=_fingerprint(data.task, splits), origin=f"{data.origin}, prompt {prompt!r}"
    )


def _fingerprint(task: Task, splits: dict[str, Split]) -> str:
    """16 hexadecimal digits over every split's name, ids, texts and labels, in order, and the names of the labels where
    they are seen from the data."""
    digest = hashlib.sha256(b"" if TASKS.get(task.name) == task else json.dumps(task.labels).encode())
    for name, split in splits.items():
        digest.update(f"{name} {len(split)}\n".encode())
        for row in zip(split.ids, split.texts, split.labels, strict=True):
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


# --- from any source to a split ------------------------------------------------------------------------------


def _to_split(task: Task, name: str, rows: Rows, own: bool = False) -> Split:
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
        None if own and task.kind.ordered and rows.columns["label"][i] is None else task.kind.read(task, rows, i)
        for i in range(len(rows))
    ]
    # The position in the source: unique over the splits, and the way back to the row.
    ids = rows.columns.get("id") or [f"{name}-{i}" for i in range(len(rows))]
    split = Split(ids, texts, labels, outputs.logits(task, rows))
    return task.kind.taught(task, split, rows) if name == "train" else split


# --- tokenising and batching ---------------------------------------------------------------------------------


def encode(tokenizer: PreTrainedTokenizerBase, split: Split, task: Task, max_length: int) -> Encoded:
    """Tokenise a split, to at most `max_length` tokens, as the task's kind does: of a running text the examples are
    blocks, of documents windows. What was tokenised before, by a tokenizer like this one, is not tokenised again."""
    key = identity(tokenizer), task.kind, max_length, task.target_length
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
    """The batch of these examples: the tokeniser's outputs [B, L] (long) and "labels", [B], [B, L], [B, 2] or [B, M].

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
    batch["labels"] = encoded.kind.align(encoded.labels[chosen], lengths, L, tokenizer.padding_side)
    return batch


def places(encoded: Encoded, indices: Sequence[int], L: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Where in `encoded.flat` the tokens of a batch stand, [B, L], and which of its L columns are padding, [B, L]."""
    lengths = np.array([encoded.lengths[i] for i in indices])[:, None]
    # column c of a row holds token number `at` of its example
    at = np.arange(L) - (L - lengths if side == "left" else 0)
    padding = (at < 0) | (at >= lengths)
    return np.where(padding, 0, encoded.ends[list(indices)][:, None] - lengths + at), padding


def _permutation(size: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in one epoch: a pure function of its arguments."""
    return np.random.default_rng([seed, epoch]).permutation(size).tolist()


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
        order = _permutation(len(self.encoded), self.seed, epoch)
        if not self.by_length:
            return order
        N, B = len(order), self.batch_size
        pools = [order[start : start + self.POOL * B] for start in range(0, N, self.POOL * B)]
        by_length = [i for pool in pools for i in sorted(pool, key=lambda i: self.encoded.lengths[i])]
        lead = min(N, -epoch * N % B)  # these fill up the batch that the epoch before has begun
        batches = [by_length[start : start + B] for start in range(lead, N, B)]
        whole = (N - lead) // B  # a short last batch stays last, or it would shift those after it
        drawn = [*_permutation(whole, self.seed + 1, epoch), *range(whole, len(batches))]
        return [*by_length[:lead], *(i for at in drawn for i in batches[at])]


class ShortFirst:
    """A training stream whose first `steps` batches hold `batch_size` examples of at most `tokens` tokens; after that
    every fourth holds longer ones, fewer of them: as many as make `batch_size` x `tokens` tokens, or one a process.

    As when BERT was pre-trained, most steps are cheap ones. For the pocket suite's documents, which are made short and
    long for it: looking something up is learnt from short texts in a fraction of the time. If all examples are short,
    or all long, they are mixed. The short examples of real documents are the ends of long ones.
    """

    EVERY = 4

    def __init__(
        self, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, seed: int, steps: int,
        tokens: int = 420,
    ) -> None:  # fmt: skip
        short = [i for i, length in enumerate(encoded.lengths) if length <= tokens]
        long = [i for i, length in enumerate(encoded.lengths) if length > tokens]
        fewer = max(parallel.processes(), batch_size * tokens // max(encoded.lengths))
        self.steps = steps
        self.first, self.rest = (
            Batches(encoded.select(chosen or either), tokenizer, size, seed, by_length=True)
            for chosen, either, size in ((short, long, batch_size), (long, short, fewer))
        )

    def _at(self, step: int) -> tuple[Batches, int]:
        later = max(0, step - self.steps)
        if later % self.EVERY == self.EVERY - 1:
            return self.rest, later // self.EVERY
        return self.first, step - later // self.EVERY

    def ids(self, step: int) -> list[str]:
        """The ids of the examples of batch `step`."""
        batches, at = self._at(step)
        return batches.ids(at)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `collate` makes it."""
        batches, at = self._at(step)
        return batches[at]


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
