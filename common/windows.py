"""Documents in windows: what tagging and span question answering need around a model, and the way back to text.

A document of more tokens than a model reads is cut into windows of `max_length` tokens; each is one example. Tags:
windows do not overlap. Questions: every window holds the question, and a quarter of it is what the one before it
ended with, so that hardly an answer is cut (`overlap`). Predictions are joined again for the whole document: a figure
is of documents and does not depend on how they were cut.

Shapes: L tokens of a window, special ones included; T tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from common.errors import BadInput
from common.tasks import Split, Task

IGNORED = -100  # the label of a token that is none to predict
BEST, LONGEST = 20, 30  # starts and ends that are paired, and tokens of an answer, as in the common SQuAD scripts
_CHUNK = 64  # documents per tokeniser call


class Window(NamedTuple):
    """Where a window's tokens stand in its document.

    `places`: of a tagged document, [L]: the word whose first token this is, or -1. Of a context, [L, 2]: the token's
    first character and the one after its last, or -1, -1 outside of the context.
    """

    document: int  # index into the split
    places: np.ndarray


def overlap(task: Task, max_length: int) -> int:
    """How many tokens a window shares with the one before it."""
    return max_length // 4 if task.kind == "span QA" else 0


def words(text: str) -> list[str]:
    """The words of a tagged document: what stands between blanks and line ends, which are ends of sentences."""
    return text.replace("\n", " ").split(" ")


def encode(
    tokenizer: PreTrainedTokenizerBase, split: Split, task: Task, max_length: int
) -> tuple[list[str], dict[str, list[list[int]]], Tensor, list[int], list[Window]]:
    """Windows of every document of a split, in order: ids, features, labels, lengths and places, as `data.Encoded`
    holds them.

    Labels: [N, L] tags padded with -100 (token classification; of a word only its first token has one), or [N, 2]
    first and last token of the answer (span QA; a window without it points at [CLS], as BERT's SQuAD recipe does).
    Raises BadInput if `max_length` leaves no room for text or the tokenizer cannot say where its tokens stand.
    """
    questions = task.kind == "span QA"
    least = tokenizer.num_special_tokens_to_add(pair=questions) + (12 if questions else 1)
    if max_length < least:
        raise BadInput(f"max length {max_length}: {task.name} needs at least {least} tokens")
    if not tokenizer.is_fast:
        raise BadInput(f"{type(tokenizer).__name__} does not say where its tokens stand; {task.name} needs that")
    ids: list[str] = []
    labels: list[list[int]] = []
    windows: list[Window] = []
    features: dict[str, list[list[int]]] = {}
    number = 0
    for document, made, k in _tokenised(tokenizer, split, questions, max_length, overlap(task, max_length)):
        tokens = made["input_ids"][k]
        inside = np.array([part == int(questions) for part in made.sequence_ids(k)])
        places = np.where(inside[:, None], np.array(made["offset_mapping"][k]).reshape(-1, 2), -1)
        if questions:
            labels.append(_answer(places, split.labels[document], tokens.index(_cls(tokenizer, tokens))))
        else:
            places = _first_tokens(split.texts[document][0], places)
            labels.append([split.labels[document][word] if word >= 0 else IGNORED for word in places])
        number = number + 1 if windows and windows[-1].document == document else 0
        windows.append(Window(document, places.astype(np.int32)))
        ids.append(f"{split.ids[document]}#{number}")
        for name, values in made.items():
            if name not in ("offset_mapping", "overflow_to_sample_mapping"):
                features.setdefault(name, []).append(values[k])
    lengths = [len(tokens) for tokens in features["input_ids"]]
    if not questions:
        labels = [row + [IGNORED] * (max(lengths) - len(row)) for row in labels]
    return ids, features, torch.tensor(labels), lengths, windows


def _tokenised(
    tokenizer: PreTrainedTokenizerBase, split: Split, questions: bool, max_length: int, shared: int
) -> Iterator[tuple[int, Any, int]]:
    """Every window of a split: its document's index, the tokeniser's output that holds it, and its row there."""
    settings: dict[str, Any] = {"max_length": max_length, "stride": shared, "return_overflowing_tokens": True}
    settings |= {"return_offsets_mapping": True, "truncation": "only_second" if questions else True}
    bar = tqdm(total=len(split), desc="tokenise", unit="doc", disable=None if len(split) >= 20 * _CHUNK else True)
    for start in range(0, len(split), _CHUNK):
        texts = [list(column) for column in zip(*split.texts[start : start + _CHUNK], strict=True)]
        if questions:
            texts[0] = [_shortened(tokenizer, question, max_length // 4) for question in texts[0]]
        else:
            texts[0] = [text.replace("\n", " ") for text in texts[0]]
        made = tokenizer(*texts, **settings)
        for k, row in enumerate(made["overflow_to_sample_mapping"]):
            yield start + row, made, k
        bar.update(len(texts[0]))
    bar.close()


def _shortened(tokenizer: PreTrainedTokenizerBase, question: str, most: int) -> str:
    """The question, its end cut off where it has more than so many tokens."""
    offsets = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return question if len(offsets) <= most else question[: offsets[most - 1][1]]


def _cls(tokenizer: PreTrainedTokenizerBase, tokens: list[int]) -> int:
    """The token that stands for the whole window: [CLS], or its first token where a family has none."""
    return tokenizer.cls_token_id if tokenizer.cls_token_id in tokens else tokens[0]


def _first_tokens(text: str, places: np.ndarray) -> np.ndarray:
    """[L, 2] places of tokens -> [L]: the word whose first token it is, or -1. Every word has at most one."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words(text)[:-1])])
    found = np.searchsorted(starts, places[:, 1] - 1, side="right") - 1  # of the token's last character
    # a token may begin with the blank before its word
    first = (places[:, 1] > 0) & (places[:, 0] <= starts[np.maximum(found, 0)])
    found = np.where(first, found, -1)
    again = np.zeros(len(found), dtype=bool)
    again[1:] = found[1:] == found[:-1]
    return np.where(again, -1, found)


def _answer(places: np.ndarray, answers: Sequence[tuple[str, int]], outside: int) -> list[int]:
    """First and last token of the first answer, if the window holds all of it; otherwise `outside` twice."""
    text, start = answers[0]
    end = start + len(text)
    context = np.flatnonzero(places[:, 0] >= 0)
    if not len(context) or start < 0 or places[context[0], 0] > start or places[context[-1], 1] < end:
        return [outside, outside]
    first = context[np.searchsorted(places[context, 1], start, side="right")]
    last = context[np.searchsorted(places[context, 0], end, side="left") - 1]
    return [int(first), int(last)]


# ----------------------------------------------------------------------------------- predictions to documents


def tags(windows: Sequence[Window], split: Split, task: Task, logits: Sequence[np.ndarray]) -> list[list[str]]:
    """One tag per word of every document, from the [L, T] logits of each window.

    A word in two windows takes the tag of the one where it stands further from an end; one that no window holds (it
    has no tokens) is "O".
    """
    found = [["O"] * len(words(text)) for (text,) in split.texts]
    depths = [np.full(len(row), -1) for row in found]
    for window, scores in zip(windows, logits, strict=True):
        best, length = scores.argmax(-1), len(scores)
        for at in np.flatnonzero(window.places >= 0):
            word, depth = window.places[at], min(at, length - 1 - at)
            if depth > depths[window.document][word]:
                depths[window.document][word] = depth
                found[window.document][word] = task.labels[best[at]]
    return found


def answers(windows: Sequence[Window], split: Split, logits: Sequence[np.ndarray]) -> list[str]:
    """The text of every question's answer, from the [L, 2] start and end logits of each window.

    The span of a context with the largest sum of its start and end logits, over all windows; "" if there is none.
    """
    found = [""] * len(split)
    scores = np.full(len(split), -np.inf)
    for window, both in zip(windows, logits, strict=True):
        context = np.flatnonzero(window.places[:, 0] >= 0)
        starts, ends = (context[np.argsort(-both[context, side], kind="stable")[:BEST]] for side in (0, 1))
        sums = both[starts, 0][:, None] + both[ends, 1]
        long = ends - starts[:, None]
        sums[(long < 0) | (long >= LONGEST)] = -np.inf
        if sums.size and sums.max() > scores[window.document]:
            first, last = np.unravel_index(sums.argmax(), sums.shape)
            scores[window.document] = sums.max()
            start, end = window.places[starts[first], 0], window.places[ends[last], 1]
            found[window.document] = split.texts[window.document][1][start:end].strip()
    return found


def by_sentence(text: str, row: Sequence[str]) -> Iterable[list[str]]:
    """The tags of a document's words, cut where its sentences end."""
    start = 0
    for sentence in text.split("\n"):
        count = len(sentence.split(" "))
        yield list(row[start : start + count])
        start += count


def entity_types(task: Task) -> list[str]:
    """PER, LOC, ...: the types of a task's tags, in their order."""
    return list(dict.fromkeys(tag[2:] for tag in task.labels if tag != "O"))
