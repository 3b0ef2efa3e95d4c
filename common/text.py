"""Unlabelled text, from which students are pre-trained: how it is batched, and a stage of it.

    texts = text.open_texts(args.corpus, task)                  # what --corpus names, see `open_texts`
    batches = texts.batches(tokenizer, max_length, 32, seed)    # an example is a text
    batches = texts.pieces(tokenizer, length, 32, seed)         # or: a piece of a text, all of which is used
    text.pretrain(run, name, text.Recipe(texts, ...), build, loss)   # a student: once for all runs that share it

Shapes: B batch, L length (tokens), V vocabulary, M masked tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from common import corpus, data, models, results
from common.errors import BadInput
from common.kinds import KINDS, Encoded, Kind, Split, Task
from common.kinds.texts import block_examples
from common.masking import Masked, load_masked_lm, train_head
from common.tasks import TaskData
from common.train import Loop, Stage

if TYPE_CHECKING:
    from datasets import IterableDataset

PASSAGES = 60_000  # of the pocket suite, where no corpus is named
HEAD = 4096  # texts of a stream that are held in memory
BUFFER = 4096  # texts from which a stream draws the next one
LOGITS = 2**30  # bytes of a part's float32 logits, where a loss lets a batch be taken in parts


# --- texts ----------------------------------------------------------------------------------------------------


def open_texts(spec: str | None, task: TaskData, passages: int | None = None,
               passes: Callable[[dict[str, Any]], bool] | None = None) -> Texts:  # fmt: skip
    """The unlabelled texts of `--corpus` (`corpora`), those of files and of the hub that pass `passes`.

    None: passages of the pocket suite for a pocket task, no more than `passages` and 60,000; the training texts of
    another task. Raises `BadInput` for what cannot be read.
    """
    names = corpus.corpora(spec)
    sizes: list[str] = []
    if spec is None:
        kind, most = task.task.kind, min(passages or PASSAGES, PASSAGES)
        texts = kind.unlabelled(most) if task.source == "pocket" else kind.corpus(task.splits["train"])
    elif set(names) <= set(corpus.NAMED):
        texts = []
        for name in sorted(names, key=lambda name: name == "task"):
            texts += (found := corpus.held(name, task))
            sizes.append(f"{name}:{len(found)}")
        Random(0).shuffle(texts)  # table 8's mixes
    else:
        stream = corpus.stream(spec, task, passes)
        texts = list(islice(corpus.texts_of(stream), HEAD + 1))
        if len(texts) > HEAD:
            return Texts(texts[:HEAD], "+".join(corpus.called(name, task) for name in names), stream)
    if not texts:
        raise BadInput(f"--corpus {spec}: no text is left; it is empty, or none passes the filter")
    digest = results.digest({"texts": texts})[:12]
    return Texts(texts, f"{'+'.join(sizes)}#{digest}" if sizes else digest)


@dataclass(frozen=True)
class Texts:
    """Unlabelled texts. `signature` says which they are.

    `head`: all of them, or the first 4,096 of a stream: from these come held-out texts, the frequencies of words, and
    what a new head of the teacher learns from. `stream`: all texts, where there are more.
    """

    head: list[str]
    signature: str
    stream: IterableDataset | None = None

    def hold_out(self, most: int) -> tuple[Texts, list[str]]:
        """The texts without the last `most` of their head (at most a tenth, at least one), and these."""
        if len(self.head) < 2:
            raise BadInput("--corpus: one text alone is too few to learn from and to hold one out; give more")
        count = min(most, max(1, len(self.head) // 10))
        return replace(self, head=self.head[:-count]), self.head[-count:]

    def batches(self, tokenizer: Any, max_length: int, batch_size: int, seed: int,
                written: bool = False) -> data.Batches | StreamBatches:  # fmt: skip
        """A training stream whose examples are texts, cut to `max_length` tokens, and with `written` also their labels;
        its `.encoded` is the head."""
        make = functools.partial(encode, tokenizer, max_length=max_length, written=written)
        encoded = make(self.head)
        data.warn_of_cuts(encoded, "text", max_length)
        if self.stream is None:
            return data.Batches(encoded, tokenizer, batch_size, seed)
        return StreamBatches(lambda: self.drawn(seed), make, tokenizer, batch_size, encoded, self)

    def pieces(self, tokenizer: Any, length: int, batch_size: int, seed: int,
               most: int | None = None) -> data.Batches | StreamBatches:  # fmt: skip
        """A training stream whose examples are pieces of texts (`pieces_of`); those of like length meet in a batch.
        `most`: from so many pieces on, no more of the head is tokenised."""
        encoded = as_examples(list(pieces_of(tokenizer, self.head, length, most)))
        if self.stream is None:
            return data.Batches(encoded, tokenizer, batch_size, seed, by_length=True)

        def start() -> Iterator[list[int]]:
            pieces, size, rng = pieces_of(tokenizer, self.drawn(seed), length), batch_size, Random(seed)
            while True:
                pool = sorted(islice(pieces, data.Batches.POOL * size), key=len)
                for at in rng.sample(range(0, len(pool), size), len(pool) // size):
                    yield from pool[at : at + size]

        return StreamBatches(start, as_examples, tokenizer, batch_size, encoded, self)

    def drawn(self, seed: int) -> Iterator[str]:
        """The texts of a stream after its head without end, epoch after epoch, drawn from a buffer."""
        assert self.stream is not None
        shuffled = self.stream.skip(HEAD).shuffle(seed=seed, buffer_size=BUFFER)
        for epoch in count():
            shuffled.set_epoch(epoch)
            yield from corpus.texts_of(shuffled)


class StreamBatches:
    """The training stream in place of `data.Batches` where the texts are streamed.

    `start` begins to give the texts again from the first, and `make` encodes some of them. A batch is a function of its
    step: a killed run goes on after passing over what came before. Every process makes the same batches. `encoded`: the
    head of the stream `texts`.
    """

    def __init__(self, start: Callable[[], Iterator[Any]], make: Callable[[list[Any]], Encoded], tokenizer: Any,
                 batch_size: int, encoded: Encoded, texts: Texts) -> None:  # fmt: skip
        self.start, self.make, self.tokenizer, self.batch_size = start, make, tokenizer, batch_size
        self.encoded, self.texts = encoded, texts
        self.items, self.step = start(), 0  # what comes next, and the step that it belongs to

    @functools.cached_property
    def steps_per_epoch(self) -> int:
        """Steps in which all texts are seen about once: the stream is read to its end, its characters are counted."""
        assert self.texts.stream is not None
        times = sum(map(len, corpus.texts_of(self.texts.stream))) / sum(map(len, self.texts.head))
        return math.ceil(times * len(self.encoded) / self.batch_size)

    def ids(self, step: int) -> list[str]:
        """The numbers of the batch's examples in the stream."""
        return [f"stream-{i}" for i in range(step * self.batch_size, (step + 1) * self.batch_size)]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `data.collate` makes it."""
        if step < self.step:
            self.items, self.step = self.start(), 0
        skip = (step - self.step) * self.batch_size
        self.step = step + 1
        encoded = self.make(list(islice(self.items, skip, skip + self.batch_size)))
        return data.collate(self.tokenizer, encoded, range(len(encoded)))


# --- texts and blocks as examples ----------------------------------------------------------------------------


def encode(tokenizer: Any, texts: list[str], max_length: int, written: bool = False) -> Encoded:
    """Unlabelled texts as examples of at most `max_length` tokens; labels are 0 or, `written`, the texts themselves."""
    ids = [f"text-{i}" for i in range(len(texts))]
    labels = list(texts) if written else [0] * len(texts)
    split = Split(ids, [(text,) for text in texts], labels)
    task = Task("text", KINDS["summarisation" if written else "classification"], ("text",), (), ())
    return in_own_language(task.kind.tokenise(tokenizer, split, task, max_length), texts, tokenizer)


def in_own_language(encoded: Encoded, texts: list[str], tokenizer: Any) -> Encoded:
    """mBART's code of a text's language, where its corpus is called as one of mC4, in the place of the task's."""
    codes = {name.partition("_")[0]: i for name, i in getattr(tokenizer, "lang_code_to_id", {}).items()}
    everyone, other_names = torch.tensor(list(codes.values())), {"en-multi": "en", "iw": "he"}
    for i, text in enumerate(texts if codes else []):
        name = getattr(text, "corpus", "")
        if (code := codes.get(other_names.get(name, name))) is not None:
            ids, labels = torch.tensor(encoded.features["input_ids"][i]), encoded.labels[i]
            encoded.features["input_ids"][i] = ids.masked_fill(torch.isin(ids, everyone), code).tolist()
            if labels.ndim:
                labels.masked_fill_(torch.isin(labels, everyone), code)
    return encoded


def pieces_of(tokenizer: Any, texts: Iterable[str], length: int, most: int | None = None) -> Iterator[list[int]]:
    """Texts in pieces of at most `length` tokens, each between the tokenizer's special tokens; none of two texts.

    From `most` pieces on, no more texts are read. Raises `BadInput` for a tokenizer without [CLS] and [SEP].
    """
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BadInput(f"--teacher: {type(tokenizer).__name__} has no [CLS] and [SEP] to put around a piece of text")
    inside, count = length - 2, 0
    texts = iter(texts)
    while (most is None or count < most) and (part := list(islice(texts, 200))):
        for tokens in tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]:
            for at in range(0, len(tokens), inside):
                yield [tokenizer.cls_token_id, *tokens[at : at + inside], tokenizer.sep_token_id]
                count += 1


def as_examples(blocks: list[list[int]]) -> Encoded:
    return block_examples(blocks, torch.zeros(len(blocks), dtype=torch.long), Kind("text"))


# --- a student before the task -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """What a student learns from texts, and how: the key of what is made holds all of it."""

    texts: Texts
    lr: float
    batch_size: int
    length: int  # tokens of an example at most
    seed: int
    steps: int = 0  # or, where this is 0, epochs of the texts; 0 of both: nothing is trained
    epochs: int = 0
    pieces: bool = False  # an example is a piece of a text, none is lost; otherwise it is a text, which is cut off
    written: bool = False  # it is its own label, and an encoder-decoder teaches; otherwise words of it are masked:
    smoothing: float = 0.0  # the rare ones more readily
    everywhere: bool = False  # with labels at the others, too
    held_out: int = 0  # texts that are not learnt from
    optimizer: dict[str, Any] = field(default_factory=dict)  # options of the loop
    more: dict[str, Any] = field(default_factory=dict)  # what else decides: of the student, of the loss

    def key(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "more"}
        return fields | {"texts": self.texts.signature} | self.more

    def batches(self, tokenizer: Any) -> tuple[Any, list[dict[str, Tensor]]]:
        """The training stream, and batches of the held-out texts, of which every run masks the same words."""
        texts, held = self.texts.hold_out(self.held_out) if self.held_out else (self.texts, [])
        how, most = (tokenizer, self.length, self.batch_size, self.seed), self.steps * self.batch_size or None
        stream: Any = texts.pieces(*how, most) if self.pieces else texts.batches(*how, self.written)
        size = self.batch_size // self.optimizer.get("parts", 1)
        seen = encode(tokenizer, held, self.length, self.written) if held else None
        rows = [batch for _, batch in data.eval_batches(seen, tokenizer, size)] if seen else []
        if not self.written:
            stream = Masked(stream, tokenizer, self.smoothing, self.everywhere)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                rows = [stream.mask(batch) for batch in rows]
        return stream, rows


def pretrain(
    run: Any, name: str, recipe: Recipe, build: Callable[[PreTrainedModel], PreTrainedModel],
    loss: Callable[..., Tensor], source: str | None = None,
    watch: Callable[[Loop, Any, Any, list[dict[str, Tensor]]], None] | None = None,
) -> Stage:  # fmt: skip
    """The student of `build` after it has learnt what the recipe says by `loss(student, teacher, batch)`.

    It is made on first use and kept under `OUT/cache/<name>/`; each `Run` that takes it is charged for it in full.

    `source`: of the masked language model that teaches (default: the teacher before it was fine-tuned); a head that it
    lacks is trained first. `build` makes the student of it, or it into the student: then there is no teacher, None. A
    loss that is a module has modules of its own, which learn with the student. The loss of a batch is that of its
    parts, which are made so small that the logits of one have no more than `LOGITS` bytes, unless the recipe says how
    many there are. `watch` is called after every step with batches of the held-out texts.
    """
    args, teacher = run.args, run.teacher
    itself = recipe.written and not (source or teacher.pretrained)  # the teacher was not pre-trained
    source = source or teacher.pretrained or (teacher.signature if recipe.written else teacher.name)
    precision = {"precision": args.precision, "teacher_precision": args.teacher_precision}

    def make(stage: Stage) -> PreTrainedModel:
        from common.teacher import Teacher, frozen

        if itself:
            model, whole = teacher.model, True
        elif recipe.written:
            model, whole = models.load_model(source, models.load_config(source), run.task.task.kind, head=True), True
        else:
            model, whole = load_masked_lm(source)
        if not (recipe.steps or recipe.epochs):
            return build(model)
        batches, held_out = recipe.batches(teacher.tokenizer)
        if not whole:
            train_head(stage, model, teacher.tokenizer, batches.encoded)
        student = build(model)
        guide = None if student is model else Teacher(source, frozen(args, model), teacher.tokenizer, source)
        modules: dict[str, nn.Module] = {"student": student}
        modules |= dict(loss.named_children()) if isinstance(loss, nn.Module) else {}
        parts = -(-recipe.batch_size * recipe.length * model.config.vocab_size * 4 // LOGITS)
        with stage.loop(
            modules, batches, recipe.steps or recipe.epochs * batches.steps_per_epoch, recipe.lr,
            kind=run.task.task.kind if recipe.written else "masked LM", label=recipe.more.get("stage", name),
            name=name, **{"parts": max(args.accumulate, parts)} | recipe.optimizer,
        ) as loop:  # fmt: skip
            if watch is not None:
                loop.watch = functools.partial(watch, loop, student, guide, held_out)
            for batch in loop:
                loop.minimise(loss(student, guide, batch))
        stage.notes |= loop.notes
        return student

    return run.shared(name, recipe.key() | {"source": models.model_name(source)} | precision, make)
