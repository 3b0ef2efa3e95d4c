"""TinyBERT's data augmentation: copies of the training texts in which words are replaced by words that fit.

    split = augment.augment(split, tokenizer, augment.input_embeddings(model), model, copies=20, seed=0)

Each word is replaced with probability 0.4 by one of 15 candidates, drawn evenly: the masked LM's best words at
that place for a word that is one piece of the vocabulary, otherwise (or without a masked LM) its nearest
neighbours in a table of static embeddings, the model's own input embeddings. A pair gives `copies` with the
first text changed and `copies` with the second, the other text left as it is. Labels are the original's: a teacher
that reads the copies gives its own.

The candidates are the vocabulary's whole words of letters. Function words, negations among them, are kept
(scikit-learn's list), since replacing them turns labels over. Nothing is downloaded; the same seed gives the same
copies.
"""

from __future__ import annotations

import functools
import random
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from common import masked_lm, parallel, train
from common.data import Split, TaskData

REPLACE, CANDIDATES = 0.4, 15
BATCH = 256
_WORD = re.compile(r"[^\W\d_]+")

Place = tuple[str, int, int]  # a text, and where a word of it starts and ends


def augment(
    split: Split, tokenizer: Any, embeddings: Tensor, language_model: PreTrainedModel | None = None, copies: int = 20,
    seed: int = 0, replace: float = REPLACE, candidates: int = CANDIDATES, max_length: int = 128,
    ledger: train.Ledger | None = None,
) -> Split:  # fmt: skip
    """The split's examples and, after them, their copies: ids `<id>+<k>`, labels as they were.

    `embeddings` is (V, D), a row per token of `tokenizer`. `language_model` is asked once for every place that is to be
    replaced, and `ledger` counts these as teacher examples. The number of words of a text does not change.
    """
    words = vocabulary_words(tokenizer)
    plans: list[tuple[int, int, int, list[tuple[Place, float]]]] = []  # example, field, copy, (place, draw) pairs
    for example, (identity, texts) in enumerate(zip(split.ids, split.texts, strict=True)):
        # the dice of an example depend on nothing but the seed and its id: a shorter split has the same copies
        rng = random.Random(f"{seed} {identity}")
        for field, text in enumerate(texts):
            places = [(text, m.start(), m.end()) for m in _WORD.finditer(text) if replaceable(m[0])]
            for copy in range(copies):
                drawn = [(place, rng.random()) for place in places if rng.random() < replace]
                plans.append((example, field, field * copies + copy, drawn))
    asked = dict.fromkeys(place for *_, drawn in plans for place, _ in drawn)
    by_model = [p for p in asked if language_model is not None and p[0][p[1] : p[2]].lower() in words]
    choices = predicted(language_model, tokenizer, words, by_model, candidates, max_length) if language_model else {}
    if ledger is not None:
        ledger.teacher_examples += len(by_model)
    remaining = sorted({p[0][p[1] : p[2]].lower() for p in asked if p not in choices})
    near = neighbours(tokenizer, words, embeddings, remaining, candidates)

    ids, texts_out, labels = list(split.ids), list(split.texts), list(split.labels)
    for example, field, copy, drawn in plans:
        text = split.texts[example][field]
        for place, draw in reversed(drawn):  # from the right, so that positions hold
            word = text[place[1] : place[2]]
            found = choices.get(place) or near[word.lower()]
            if found:
                chosen = found[int(draw * len(found))]
                text = text[: place[1]] + (chosen.capitalize() if word[0].isupper() else chosen) + text[place[2] :]
        row = split.texts[example]
        ids.append(f"{split.ids[example]}+{copy}")
        texts_out.append((*row[:field], text, *row[field + 1 :]))
        labels.append(split.labels[example])
    return Split(ids, texts_out, labels)  # type: ignore[arg-type]


@parallel.by_main
def with_copies(
    task: TaskData, tokenizer: Any, source: str, copies: int, seed: int, max_length: int, ledger: train.Ledger,
    device: torch.device,
) -> Split:  # fmt: skip
    """The training texts of a task and `copies` changed ones of each, on the ledger's clock.

    `source` is a hub id or a folder: its masked LM is asked if it came with a head, and its input embeddings otherwise.
    """
    with ledger.clock():
        model, whole = masked_lm.load(source)
        model.to(device).eval()  # type: ignore[arg-type]
        return augment(
            task.splits["train"], tokenizer, input_embeddings(model), model if whole else None, copies, seed,
            max_length=max_length, ledger=ledger,
        )  # fmt: skip


def input_embeddings(model: PreTrainedModel) -> Tensor:
    """(V, D): a model's static word embeddings, for `augment`."""
    return model.get_input_embeddings().weight.detach()  # type: ignore[union-attr, operator, return-value]


@functools.cache
def stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS


def replaceable(word: str) -> bool:
    return len(word) > 1 and word.lower() not in stop_words()


def vocabulary_words(tokenizer: Any) -> dict[str, int]:
    """Lower-case word -> id, of the tokens that are a whole word by themselves, wherever it stands in a text."""
    special = set(tokenizer.all_special_ids)
    found: dict[str, int] = {}
    rows = [(tokenizer.convert_tokens_to_string([token]).strip(), i) for token, i in tokenizer.get_vocab().items()]
    rows = sorted((word, i) for word, i in rows if i not in special and _WORD.fullmatch(word) and len(word) > 1)
    pieces = tokenizer([" " + word for word, _ in rows], add_special_tokens=False)["input_ids"] if rows else []
    for (word, i), ids in zip(rows, pieces, strict=True):
        if ids == [i] and word.lower() not in stop_words():
            found.setdefault(word.lower(), i)
    return found


@torch.no_grad()
def predicted(
    model: PreTrainedModel, tokenizer: Any, words: dict[str, int], places: list[Place], count: int, max_length: int
) -> dict[Place, list[str]]:
    """The `count` words that the masked LM finds most likely at each place, the word itself left out.

    A place that `max_length` cuts off has no entry.
    """
    device = next(model.parameters()).device
    names, columns = list(words), torch.tensor(list(words.values()), device=device)
    found: dict[Place, list[str]] = {}
    order = sorted(places, key=lambda place: (-len(place[0]), place))  # texts of like length: little padding
    bar = train.progress(len(order), "augmenting")
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        texts = [f"{text[:first]}{tokenizer.mask_token}{text[last:]}" for text, first, last in chosen]
        inputs = tokenizer(texts, truncation=True, max_length=max_length, padding=True, return_tensors="pt").to(device)
        asked = inputs["input_ids"] == tokenizer.mask_token_id
        rows = asked.nonzero()[:, 0]
        logits = masked_lm.logits_at(model, inputs, asked)[:, columns]
        best = logits.topk(min(count + 1, len(names)), dim=-1).indices.tolist()
        for row, indices in zip(rows.tolist(), best, strict=True):
            text, first, last = chosen[row]
            own = text[first:last].lower()
            found[chosen[row]] = [names[i] for i in indices if names[i] != own][:count]
        bar.update(len(chosen))
    bar.close()
    return found


def neighbours(
    tokenizer: Any, words: dict[str, int], embeddings: Tensor, wanted: list[str], count: int
) -> dict[str, list[str]]:
    """The `count` vocabulary words nearest to each wanted word by cosine; a word of several pieces is their mean."""
    if not wanted or not words:
        return {word: [] for word in wanted}
    names = list(words)
    table = F.normalize(embeddings[torch.tensor(list(words.values()))].float().cpu(), dim=-1)
    pieces = tokenizer([" " + word for word in wanted], add_special_tokens=False)["input_ids"]
    found = {}
    for word, ids in zip(wanted, pieces, strict=True):
        query = embeddings[torch.tensor(ids, dtype=torch.long)].float().cpu().mean(0)
        best = (table @ F.normalize(query, dim=0)).topk(min(count + 1, len(names))).indices.tolist()
        found[word] = [names[i] for i in best if names[i] != word][:count]
    return found
