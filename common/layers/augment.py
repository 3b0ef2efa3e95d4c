"""TinyBERT's data augmentation: copies of the training texts in which words are replaced by words that fit.

    augment.add_copies(run, 20)

Each word is replaced with probability 0.4 by one of 15 candidates, drawn evenly: the masked LM's best words at
that place for a word that is one piece of the vocabulary, otherwise (or without a masked LM) its nearest
neighbours in a table of static embeddings, the model's own input embeddings. A pair gives `copies` with the
first text changed and `copies` with the second, the other text left as it is; a copy that is the text itself, or like
another, is left out. Labels are the original's: a teacher that reads the copies gives its own.

The candidates are the vocabulary's whole words of letters. Function words, negations among them, are kept
(scikit-learn's list), since replacing them turns labels over. Nothing is downloaded; the same seed gives the same
copies.
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from common import parallel
from common.errors import BadInput
from common.masking import load_masked_lm, logits_at
from common.tasks import Split
from common.train import Ledger

if TYPE_CHECKING:
    from common.run import Run

REPLACE, CANDIDATES = 0.4, 15
BATCH = 256
WORD = re.compile(r"[^\W\d_]+")


class Place(NamedTuple):
    """A word of a text: where it starts and ends."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


def add_copies(run: Run, copies: int) -> None:
    """Make a run's `examples` the task's training texts and up to so many changed copies of each; it is charged."""
    if run.teacher.stored:
        raise BadInput(f"--augment {copies}: teacher {run.teacher.name} is outputs alone, without new texts'")
    run.examples = with_copies(run, copies)


@parallel.by_main
def with_copies(run: Run, copies: int) -> Split:
    """These examples, on the run's clock: the masked LM that the teacher was is asked if it came with a head, its input
    embeddings otherwise."""
    args, teacher = run.args, run.teacher
    with run.ledger.clock():
        model, has_head = load_masked_lm(teacher.pretrained or teacher.name)
        model.to(parallel.device()).eval()  # type: ignore[arg-type]
        embeddings: Any = model.get_input_embeddings().weight.detach()  # type: ignore[union-attr, operator]
        return augment(
            run.task.splits["train"], teacher.tokenizer, embeddings, model if has_head else None, copies, args.seed,
            max_length=args.max_length, ledger=run.ledger,
        )  # fmt: skip


def augment(
    split: Split, tokenizer: Any, embeddings: Tensor, language_model: PreTrainedModel | None, copies: int, seed: int,
    replace: float = REPLACE, candidates: int = CANDIDATES, max_length: int = 128, ledger: Ledger | None = None,
) -> Split:  # fmt: skip
    """The split's examples and, after them, their copies, of which no two are the same: ids `<id>+<k>`, labels as they
    were.

    `embeddings` is (V, D), a row per token of `tokenizer`. `language_model` is asked once for every place that is to be
    replaced, and `ledger` counts these as teacher examples. The number of words of a text does not change.
    """
    # what each copy replaces: its example, field and number, and the places with a draw that picks the candidate
    plans: list[tuple[int, int, int, list[tuple[Place, float]]]] = []
    for example, (identity, texts) in enumerate(zip(split.ids, split.texts, strict=True)):
        rng = Random(f"{seed} {identity}")  # of nothing but seed and id: a shorter split has the same copies
        for field, original in enumerate(texts):
            places = [Place(original, *match.span()) for match in WORD.finditer(original) if replaceable(match[0])]
            for number in range(field * copies, (field + 1) * copies):
                drawn = [(place, rng.random()) for place in places if rng.random() < replace]
                plans.append((example, field, number, drawn))

    words = vocabulary_words(tokenizer)
    asked = dict.fromkeys(place for *_, drawn in plans for place, _ in drawn)
    choices: dict[Place, list[str]] = {}
    if language_model is not None:
        whole_words = [place for place in asked if place.word.lower() in words]
        choices = predicted(language_model, tokenizer, words, whole_words, candidates, max_length)
        if ledger is not None:
            ledger.teacher_examples += len(whole_words)
    others = sorted({place.word.lower() for place in asked if place not in choices})
    nearest = neighbours(tokenizer, words, embeddings, others, candidates)

    copied = Split(list(split.ids), list(split.texts), list(split.labels))
    seen = set(enumerate(split.texts))
    for example, field, number, drawn in plans:
        texts = split.texts[example]
        changed = texts[field]
        for place, draw in reversed(drawn):  # from the right, so that positions hold
            if fitting := choices.get(place) or nearest[place.word.lower()]:
                chosen = fitting[int(draw * len(fitting))]
                chosen = chosen.capitalize() if place.word[0].isupper() else chosen
                changed = changed[: place.start] + chosen + changed[place.end :]
        texts = (*texts[:field], changed, *texts[field + 1 :])
        if (example, texts) not in seen:
            seen.add((example, texts))
            copied.ids.append(f"{split.ids[example]}+{number}")
            copied.texts.append(texts)
            copied.labels.append(split.labels[example])
    return copied


def replaceable(word: str) -> bool:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # which takes a second to load

    return len(word) > 1 and word.lower() not in ENGLISH_STOP_WORDS


def vocabulary_words(tokenizer: Any) -> dict[str, int]:
    """Lower-case word -> id, of the tokens that are a whole word by themselves, wherever it stands in a text."""
    tokens = ((tokenizer.convert_tokens_to_string([t]).strip(), i) for t, i in tokenizer.get_vocab().items())
    special = set(tokenizer.all_special_ids)
    rows = sorted((word, i) for word, i in tokens if i not in special and WORD.fullmatch(word) and replaceable(word))
    pieces = tokenizer([" " + word for word, _ in rows], add_special_tokens=False)["input_ids"] if rows else []
    words: dict[str, int] = {}
    for (word, i), ids in zip(rows, pieces, strict=True):
        if ids == [i]:
            words.setdefault(word.lower(), i)
    return words


@torch.no_grad()
def predicted(
    model: PreTrainedModel, tokenizer: Any, words: dict[str, int], places: list[Place], count: int, max_length: int
) -> dict[Place, list[str]]:
    """The `count` words that the masked LM finds most likely at each place, the word itself left out.

    A place that `max_length` cuts off has no entry, nor has one of a text that holds a mask itself.
    """
    device = next(model.parameters()).device
    names, columns = list(words), torch.tensor(list(words.values()), device=device)
    best: dict[Place, list[str]] = {}
    places = [place for place in places if tokenizer.mask_token not in place.text]
    order = sorted(places, key=lambda place: (-len(place.text), place))  # texts of like length: little padding
    bar = parallel.progress(len(order), "augmenting")
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        texts = [f"{original[:start]}{tokenizer.mask_token}{original[end:]}" for original, start, end in batch]
        inputs = tokenizer(texts, truncation=True, max_length=max_length, padding=True, return_tensors="pt").to(device)
        masked = inputs["input_ids"] == tokenizer.mask_token_id
        rows = masked.nonzero()[:, 0].tolist()
        logits = logits_at(model, inputs, masked)[:, columns]
        for row, indices in zip(rows, logits.topk(min(count + 1, len(names)), dim=-1).indices.tolist(), strict=True):
            best[batch[row]] = [names[i] for i in indices if names[i] != batch[row].word.lower()][:count]
        bar.update(len(batch))
    bar.close()
    return best


def neighbours(
    tokenizer: Any, words: dict[str, int], embeddings: Tensor, wanted: list[str], count: int
) -> dict[str, list[str]]:
    """The `count` vocabulary words nearest to each wanted word by cosine; a word of several pieces is their mean."""
    if not wanted or not words:
        return {word: [] for word in wanted}
    names, embeddings = list(words), embeddings.float().cpu()
    table = F.normalize(embeddings[list(words.values())], dim=-1)
    pieces = tokenizer([" " + word for word in wanted], add_special_tokens=False)["input_ids"]
    nearest = {}
    for word, ids in zip(wanted, pieces, strict=True):
        similarity = table @ F.normalize(embeddings[ids].mean(0), dim=0)
        best = similarity.topk(min(count + 1, len(names))).indices.tolist()
        nearest[word] = [names[i] for i in best if names[i] != word][:count]
    return nearest
