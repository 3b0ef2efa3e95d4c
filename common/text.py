"""Unlabelled text, from which students are pre-trained: where it comes from, how it is batched, what is masked.

    text.corpora(args.corpus)                                   # wrong arguments, before anything is read
    texts = text.open_texts(args.corpus, task)                  # what --corpus names, see `open_texts`
    batches = texts.batches(tokenizer, max_length, 32, seed)    # an example is a text
    batches = texts.pieces(tokenizer, length, 32, seed)         # or: a piece of a text, all of which is used
    batches = text.Masked(batches, tokenizer)                   # BERT's masking; labels are what was hidden
    text.train_head(stage, model, tokenizer, batches.encoded)   # a masked LM's head, where it did not come with it
    text.pretrain(run, name, text.Recipe(texts, ...), build, loss)   # a student: once for all runs that share it

Shapes: B batch, L length (tokens), V vocabulary, M masked tokens.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

import pocket
from common import data, models, parallel, results
from common.args import split_list
from common.errors import BadInput, refused
from common.kinds import KINDS, Encoded, Kind, Split, Task, block_examples
from common.losses import label_loss
from common.sources import hub_commit, json_lines
from common.tasks import TaskData
from common.teacher import Teacher, frozen
from common.train import Loop, Stage

NAMED = ("task", "pocket-short", "pocket-long")  # the corpora that need no file
PASSAGES = 60_000  # of the pocket suite, where no corpus is named
SHORT = 20_000  # documents of pocket-short
HEAD = 4096  # texts of a stream that are held in memory
BUFFER = 4096  # texts from which a stream draws the next one
SHARE = 0.15  # of the tokens, to be masked
LOGITS = 2**30  # bytes of a part's float32 logits, where a loss lets a batch be taken in parts
HEAD_STEPS, HEAD_BATCH, HEAD_LR = 300, 32, 1e-3  # a new head is one layer: it has little to learn

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
        match = re.fullmatch(r"(stream:)?(?:([^=:]*)(:[^=]*)?=)?(.+)", said, re.DOTALL)
        stream, name, count, place = match.groups() if match else ()
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
    """What `--corpus` names; `BadInput` for what cannot be. Reads no text."""
    found = [Corpus.parse(text) for text in split_list(spec or "")]
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


def open_texts(spec: str | None, task: TaskData, passages: int | None = None) -> Texts:
    """The unlabelled texts that `--corpus` names:

        None               passages of the pocket suite for a pocket task, no more than `passages` and 60,000; the
                           training texts of another task
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

    Files may be packed, `.gz` or `.zst`; `corpora` let the argument pass. Raises `BadInput` for what cannot be read,
    with the file and its line.
    """
    sizes: list[str] = []
    if spec is None:
        count = min(passages or PASSAGES, PASSAGES)
        kind = task.task.kind
        texts = kind.unlabelled(count) if task.source == "pocket" else kind.corpus(task.splits["train"])
    else:
        parts = corpora(spec)
        if any(part.streamed for part in parts):
            return _streamed(spec, parts, task)
        texts = []
        for part in sorted(parts, key=lambda part: part.name == "task"):
            dropped = Counter[str]()
            found = list(part.texts(task, dropped))
            if not found:
                why = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
                raise BadInput(f"--corpus {part.name or part.place}: no text is left ({why or 'it is empty'})")
            texts += found
            sizes += [f"{part.name}:{len(found)}"] if part.name else []
        if sizes:  # table 8's mixes
            Random(0).shuffle(texts)
    digest = results.digest({"texts": texts})[:12]
    return Texts(texts, f"{'+'.join(sizes)}#{digest}" if sizes else digest)


def _streamed(spec: str, parts: list[Corpus], task: TaskData) -> Texts:
    """A stream: its head, and how its texts are begun again. `BadInput` if the head is all of it."""

    def start() -> Iterator[str]:
        for texts in zip_longest(*(part.texts(task, Counter()) for part in parts)):
            yield from (text for text in texts if text is not None)

    signatures = [part.called if part.place or part.name != "task" else f"task@{task.fingerprint}" for part in parts]
    for i, part in enumerate(parts):
        if part.hub:
            signatures[i] += f"@{(_commit(part.place.partition(':')[0]) or 'local')[:12]}"
    head = list(islice(start(), HEAD + 1))
    if len(head) <= HEAD:
        raise BadInput(f"--corpus {spec}: {len(head)} texts are too few to be streamed; leave `stream:` out")
    return Texts(head[:HEAD], "+".join(signatures), start)


@dataclass(frozen=True)
class Texts:
    """Unlabelled texts. `signature` says which they are.

    `head`: all of them, or the first 4,096 of a stream: from these come held-out texts, the frequencies of words, and
    what a new head of the teacher learns from. `start`: begins to give all texts of a stream again.
    """

    head: list[str]
    signature: str
    start: Callable[[], Iterator[str]] | None = None

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
        if self.start is None:
            return data.Batches(encoded, tokenizer, batch_size, seed)
        return StreamBatches(lambda: self.drawn(seed), make, tokenizer, batch_size, encoded, self)

    def pieces(self, tokenizer: Any, length: int, batch_size: int, seed: int,
               most: int | None = None) -> data.Batches | StreamBatches:  # fmt: skip
        """A training stream whose examples are pieces of texts (`pieces_of`); those of like length meet in a batch.
        `most`: from so many pieces on, no more of the head is tokenised."""
        encoded = as_examples(list(pieces_of(tokenizer, self.head, length, most)))
        if self.start is None:
            return data.Batches(encoded, tokenizer, batch_size, seed, by_length=True)

        def start() -> Iterator[list[int]]:
            pieces, size, rng = pieces_of(tokenizer, self.drawn(seed), length), batch_size, Random(seed)
            while True:
                pool = sorted(islice(pieces, data.Batches.POOL * size), key=len)
                for at in rng.sample(range(0, len(pool), size), len(pool) // size):
                    yield from pool[at : at + size]

        return StreamBatches(start, as_examples, tokenizer, batch_size, encoded, self)

    def drawn(self, seed: int) -> Iterator[str]:
        """The texts of a stream after its head without end, epoch after epoch, drawn from a buffer.

        (An IterableDataset of `datasets` shuffles like this, but its state does not restore the buffer to the bit, and
        a killed run has to go on with the same texts.)
        """
        assert self.start is not None
        epoch = 0
        while True:
            rng, held = Random(f"{seed}/{epoch}"), list[str]()
            for text in islice(self.start(), HEAD, None):
                if len(held) < BUFFER:
                    held.append(text)
                    continue
                at = rng.randrange(BUFFER)
                held[at], text = text, held[at]
                yield text
            rng.shuffle(held)
            yield from held
            epoch += 1


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
        assert self.texts.start is not None
        times = sum(map(len, self.texts.start())) / sum(map(len, self.texts.head))
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


# --- corpora -------------------------------------------------------------------------------------------------


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
        for row in load_dataset(repo, config or None, split="train", streaming=True, revision=_commit(repo)):
            yield where, row


@functools.cache
def _commit(repo: str) -> str | None:
    """The commit that the hub serves, the same in every epoch; of a folder on this machine, none."""
    if Path(repo).is_dir():
        return None
    with refused(f"--corpus stream:hub:{repo}: not to be had from the hub"):
        return hub_commit(repo)


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


# --- masked language modelling -------------------------------------------------------------------------------


class Masked:
    """The batches of another training stream with BERT's masking: "labels" (B, L), -100 where nothing was masked.

    `smoothing`: how much more readily rare tokens are masked, by count^-smoothing in `batches.encoded`. With
    `everywhere`, labels also hold the tokens that were not masked: for a loss at every token that is not padding.
    What is masked is drawn from torch's global generator: a batch that is asked for twice differs.
    """

    def __init__(self, batches: data.Batches | StreamBatches, tokenizer: Any, smoothing: float = 0.0,
                 everywhere: bool = False) -> None:  # fmt: skip
        self.batches, self.tokenizer, self.everywhere = batches, tokenizer, everywhere
        self.encoded, self.ids = batches.encoded, batches.ids  # as they are
        # (V,): how readily each token is chosen; special ones never are
        tokens = torch.from_numpy(batches.encoded.flat["input_ids"])
        weights = torch.bincount(tokens, minlength=len(tokenizer)).clamp(min=1).double() ** -smoothing
        weights[tokenizer.all_special_ids] = 0
        self.weights = weights.float()

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0), masked."""
        return self.mask(self.batches[step])

    def mask(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Any batch of this tokenizer, masked: SHARE of its valid tokens are chosen, by `weights`."""
        ids, mask = batch["input_ids"].clone(), batch["attention_mask"]
        if self.tokenizer.mask_token_id is None:
            raise BadInput("--teacher: its tokenizer has no token for what is masked; rows without masked LMs work")
        chances = (self.weights[ids] * mask).flatten()
        count = min(math.ceil(SHARE * int(mask.sum())), int((chances > 0).sum()))
        chosen = torch.zeros_like(chances, dtype=torch.bool)
        if count:
            chosen[torch.multinomial(chances, count)] = True
        dice = torch.rand(ids.shape)
        words = (self.weights > 0).nonzero().flatten()
        other = words[torch.randint(len(words), ids.shape)]
        labels = hide(ids, chosen.view_as(ids), dice, other, self.tokenizer.mask_token_id)
        if self.everywhere:
            labels = torch.where(mask > 0, batch["input_ids"], -100)
        return batch | {"input_ids": ids, "labels": labels}


def hide(ids: Tensor, chosen: Tensor, dice: Tensor, other: Tensor, mask_token_id: int) -> Tensor:
    """Of the chosen (B, L) ids hide 80%, replace 10% by `other` and leave 10%, as `dice` in [0, 1) decide; in place.

    Returns labels (B, L), -100 where nothing is to be predicted.
    """
    labels = torch.where(chosen, ids, -100)
    ids[chosen & (dice < 0.8)] = mask_token_id
    replaced = chosen & (dice >= 0.9)
    ids[replaced] = other[replaced]
    return labels


def logits_at(model: PreTrainedModel, inputs: Mapping[str, Tensor], chosen: Tensor) -> Tensor:
    """(M, V): a masked language model's logits at the M chosen tokens of (B, L), and at no others: with a large
    vocabulary the output layer is most of the work."""

    def keep(_body: nn.Module, _inputs: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state[chosen][None]
        return out

    handle = model.base_model.register_forward_hook(keep)
    try:
        return model(**inputs).logits[0]
    finally:
        handle.remove()


def train_head(stage: Stage, model: PreTrainedModel, tokenizer: Any, encoded: Encoded) -> None:
    """Train what lies above the body of a masked language model whose file holds no head, on `encoded` texts.

    The body, and embeddings that are tied to its own, stay as they are. Charged as the teacher's examples.
    """
    head = nn.ModuleList(part for part in model.children() if part is not model.base_model)
    model.requires_grad_().base_model.requires_grad_(False)
    model.to(parallel.device()).eval()  # type: ignore[arg-type]
    batches = Masked(data.Batches(encoded, tokenizer, HEAD_BATCH, 0), tokenizer)
    with stage.loop({"head": head}, batches, HEAD_STEPS, HEAD_LR, name="head", label="masked-LM head") as loop:
        for batch in loop:
            masked = batch.labels >= 0
            loop.minimise(parallel.mean(label_loss(logits_at(model, batch.inputs, masked), batch.labels[masked])))
        spent = loop.ledger
        spent.teacher_examples += spent.student_examples
        spent.steps = spent.student_examples = spent.student_tokens = 0
    model.requires_grad_()


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
    first = (teacher.sources or [teacher])[0]  # of several
    source = source or teacher.pretrained or (first.signature if recipe.written else first.name)
    precision = {"precision": args.precision, "teacher_precision": args.teacher_precision}

    def make(stage: Stage) -> PreTrainedModel:
        if itself:
            model, whole = teacher.model, True
        elif recipe.written:
            model, whole = models.load_model(source, models.load_config(source), run.task.task.kind, head=True), True
        else:
            model, whole = models.load_masked_lm(source)
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
