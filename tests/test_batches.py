"""Tokenising, batches, and the windows of long documents."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from conftest import refused, word_tokenizer
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertTokenizer, PreTrainedTokenizerFast, XLNetTokenizer

from common import data
from common.kinds import Rows, Split, Task
from common.kinds.texts import token_stream
from common.tasks import TASKS
from pocket.curriculum import ShortFirst
from pocket.models import SPECIAL_TOKENS, pocket_gpt2

NER, SQUAD, SST2, RTE, LM = (TASKS[name] for name in ("ner", "squad", "sst2", "rte", "lm"))


def letters(side: str = "right", pad: str | None = "[PAD]", types: bool = True) -> Any:
    """A tokenizer of single letters: a is 4, b is 5."""
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghij"]
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=pad, padding_side=side, model_input_names=names)


def singles(lengths: list[int]) -> Split:
    ids = [f"x-{i}" for i in range(len(lengths))]
    return Split(ids, [(" ".join("a" * n),) for n in lengths], [i % 2 for i in range(len(lengths))])


def encoded(count: int) -> data.Encoded:
    return data.encode(letters(), singles([1 + i % 7 for i in range(count)]), SST2, 16)


# --- examples ------------------------------------------------------------------------------------------------


def test_pairs_are_padded_with_their_types() -> None:
    split = Split(["p", "q"], [("a b", "c"), ("d", "e")], [1, 0])
    made = data.encode(letters(), split, RTE, 16)
    batch = data.collate(letters(), made, [1, 0])
    assert batch["input_ids"].tolist() == [[1, 7, 2, 8, 2, 0], [1, 4, 5, 2, 6, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert batch["labels"].tolist() == [0, 1]
    assert data.collate(letters(), made, [1, 0], multiple=8)["input_ids"].shape == (2, 8)
    assert "token_type_ids" not in data.encode(letters(types=False), split, RTE, 16).features
    assert data.encode(letters(), Split(["p"], [("a", "b")], [2.5]), TASKS["stsb"], 16).labels.dtype == torch.float32


def test_padding_on_the_left() -> None:
    tokenizer = letters(side="left")
    tokenizer._pad_token_type_id = 3
    batch = data.collate(tokenizer, data.encode(tokenizer, singles([1, 3]), SST2, 16), [0, 1])
    assert batch["input_ids"].tolist() == [[0, 0, 1, 4, 2], [1, 4, 4, 4, 2]]
    assert batch["token_type_ids"].tolist() == [[3, 3, 0, 0, 0], [0] * 5]
    xlnet = XLNetTokenizer(vocab=[("<unk>", 0.0), ("▁a", -1.0)])
    batch = data.collate(xlnet, data.encode(xlnet, singles([1, 3]), SST2, 16), [0, 1])
    assert batch["input_ids"][0, :2].tolist() == [xlnet.pad_token_id] * 2
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1] * 5]


def test_the_longest_text_is_cut_first() -> None:
    split = Split(["p"], [("a a a a a a", "b b")], [0])
    assert data.encode(letters(), split, RTE, 8).features["input_ids"] == [[1, 4, 4, 4, 2, 5, 5, 2]]


def test_written_answers_are_cut_and_end_with_the_batch() -> None:
    split = Split(["p", "q"], [("a b",), ("c",)], ["a a a a a a a a a a", "b"])
    made = data.encode(letters(), split, TASKS["translate"], 8)
    assert made.labels.tolist() == [[1, 4, 4, 4, 4, 4, 4, 2], [1, 5, 2] + [-100] * 5]
    assert data.collate(letters(), made, [1])["labels"].tolist() == [[1, 5, 2]]
    assert set(made.features) == {"input_ids", "attention_mask"}


def test_a_corpus_is_cut_into_blocks() -> None:
    _, tokenizer = pocket_gpt2("pocket")
    texts = ["the judge slept .", "nobody slept ?", "the judge praised the niece ."]
    split = Split(list("abc"), [(text,) for text in texts], [None] * 3)
    stream = [i for text in texts for i in [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(text.split())]]
    assert token_stream(tokenizer, split).tolist() == stream
    made = data.encode(tokenizer, split, LM, 5)
    assert made.labels.flatten().tolist() == stream[:15]  # the remainder is left out
    tokenizer.pad_token = None  # nothing is padded
    batch = data.Batches(made, tokenizer, 2, 0)[0]
    assert torch.equal(batch["input_ids"], batch["labels"])
    assert len(made) == 3


# --- batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize(("count", "size"), [(23, 5), (20, 5), (3, 7), (1, 4), (160, 8)])
def test_batches_are_a_function_of_seed_and_step(count: int, size: int, by_length: bool) -> None:
    """Every epoch holds every example once, and every batch is full."""
    made, tokenizer = encoded(count), letters()
    one, two, other = (data.Batches(made, tokenizer, size, seed, by_length) for seed in (0, 0, 1))
    steps = range(6 * one.steps_per_epoch)
    drawn = [one.indices(step) for step in steps]
    assert [two.indices(step) for step in reversed(steps)] == drawn[::-1]
    assert count <= size or drawn != [other.indices(step) for step in steps]
    stream = list(itertools.chain(*drawn))
    epochs = [stream[start : start + count] for start in range(0, 6 * count, count)]
    assert {len(batch) for batch in drawn} == {size}
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert count <= size or len({tuple(epoch) for epoch in epochs}) > 1
    batch, ids = two[3], two.ids(3)
    assert batch["labels"].tolist() == made.labels[drawn[3]].tolist()
    assert batch["attention_mask"].sum(1).tolist() == [made.lengths[int(i.removeprefix("x-"))] for i in ids]


@pytest.mark.parametrize("count", [160, 163])
@pytest.mark.parametrize("epoch", [0, 2])
def test_batches_of_like_length_pad_less(count: int, epoch: int) -> None:
    """In later epochs too, whose first batch the epoch before may have begun."""
    plain, grouped = (data.Batches(encoded(count), letters(), 8, 0, by_length) for by_length in (False, True))

    def padding(batches: data.Batches) -> float:
        masks = [batches[step]["attention_mask"] for step in range(20 * epoch, 20 * epoch + 20)]
        return float(torch.cat([(mask == 0).flatten() for mask in masks]).float().mean())

    assert padding(grouped) < padding(plain) / 2
    longest = [max(grouped.encoded.lengths[i] for i in grouped.indices(step)) for step in range(20)]
    assert longest != sorted(longest)  # the batches themselves come in any order


def test_short_examples_first_then_long_ones_in_as_many_tokens() -> None:
    made = data.encode(letters(), singles([3] * 60 + [38] * 12), SST2, 64)
    batches = ShortFirst(made, letters(), 8, 0, steps=5, tokens=10)
    lengths = [int(batches[step]["attention_mask"].sum(1).max()) for step in range(17)]
    assert lengths == [5] * 8 + [40] + [5] * 3 + [40] + [5] * 3 + [40]
    assert {len(batches.ids(step)) for step in range(17) if lengths[step] == 40} == {8 * 10 // 40}
    first = [i for step in range(7) for i in batches.ids(step)]
    assert len(set(first)) == len(first)  # every short one once, before any comes again
    assert len(ShortFirst(made, letters(), 4, 0, steps=2, tokens=1).ids(0)) == 4  # if all are long


def test_evaluation_sees_every_example_once_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = encoded(23), []
    monkeypatch.setattr(data, "EVAL_TOKENS", 3 * max(made.lengths))
    for indices, batch in data.eval_batches(made, letters(), 5):
        assert len(indices) <= 3
        assert batch["labels"].tolist() == made.labels[indices].tolist()
        seen += indices
    assert sorted(seen) == list(range(23))
    assert [made.lengths[i] for i in seen] == sorted(made.lengths, reverse=True)


# --- windows -------------------------------------------------------------------------------------------------

WORDS = ["the", "a", "boat", "saw", "big", "red", "paris", "vera", "london", "rose", "was", "in", "who", "?", ".", ","]


def pieces(side: str = "right") -> BertTokenizer:
    """A tokenizer that cuts some words: lon ##don, pa ##ris."""
    words = [word for word in WORDS if word not in ("paris", "london")]
    vocab = [*SPECIAL_TOKENS, *words, "pa", "##ris", "lon", "##don"]
    made = BertTokenizer(vocab={token: i for i, token in enumerate(vocab)}, model_max_length=512)
    made.padding_side = side
    return made


def tagged() -> Split:
    """Documents of random words and tags."""
    rng = random.Random(0)
    rows = [[rng.choices(WORDS, k=rng.randint(1, 8)) for _ in range(9)] for _ in range(5)]
    texts = [("\n".join(" ".join(sentence) for sentence in row),) for row in rows]
    labels = [[rng.randrange(len(NER.labels)) for _ in itertools.chain(*row)] for row in rows]
    return Split([f"doc-{i}" for i in range(5)], texts, labels)


def asked(count: int = 6, words: int = 60) -> Split:
    """Questions whose answer is a random stretch of words of a random context."""
    rng = random.Random(0)
    texts, labels = [], []
    for _ in range(count):
        context, first = rng.choices(WORDS, k=words), rng.randrange(words - 3)
        texts.append(("who was in paris ?", " ".join(context)))
        answer = " ".join(context[first : first + rng.randint(1, 3)])
        labels.append([(answer, len(" ".join(context[:first])) + (first > 0))])
    return Split([f"q-{i}" for i in range(count)], texts, labels)


def gold(made: data.Encoded) -> list[np.ndarray]:
    """Logits that say what the labels say."""
    rows = []
    for window, labels, length in zip(made.windows or [], made.labels.numpy(), made.lengths, strict=True):
        row = np.zeros((length, len(NER.labels) if window.places.ndim == 1 else 2), dtype=np.float32)
        if window.places.ndim == 1:
            row[np.arange(length), np.maximum(labels[:length], 0)] = 1
        else:
            row[labels[0], 0] = row[labels[1], 1] = 1
        rows.append(row)
    return rows


def test_a_label_stands_on_the_first_token_of_its_word() -> None:
    made = data.encode(pieces(), Split(["d"], [("the london boat\nparis .",)], [[0, 1, 2, 3, 0]]), NER, 32)
    tokens = pieces().convert_ids_to_tokens(made.features["input_ids"][0])
    assert tokens == ["[CLS]", "the", "lon", "##don", "boat", "pa", "##ris", ".", "[SEP]"]
    assert made.labels.tolist() == [[-100, 0, 1, -100, 2, 3, -100, 0, -100]]
    assert made.ids == ["d#0"]


@pytest.mark.parametrize("max_length", [3, 4, 7, 16, 500])
def test_tags_come_back_from_any_window(max_length: int) -> None:
    split = tagged()
    made = data.encode(pieces(), split, NER, max_length)
    assert max(made.lengths) <= max_length
    assert int((made.labels >= 0).sum()) == sum(map(len, split.labels))  # every word is labelled once
    found = NER.kind.tags(made.windows or [], split, NER, gold(made))
    assert found == [[NER.labels[tag] for tag in row] for row in split.labels]
    silent = Split(["d"], [("boat \u200b paris",)], [[1, 2, 3]])  # a word without tokens is no entity
    made = data.encode(pieces(), silent, NER, 16)
    assert NER.kind.tags(made.windows or [], silent, NER, gold(made)) == [[NER.labels[1], "O", NER.labels[3]]]


@pytest.mark.parametrize("max_length", [24, 32, 40, 500])
def test_answers_come_back_from_any_window(max_length: int) -> None:
    """Windows share a quarter and miss nothing; one without the answer points at [CLS]."""
    split = asked(20, words=100)
    made = data.encode(pieces(), split, SQUAD, max_length)
    assert max(made.lengths) <= max_length
    assert SQUAD.kind.answers(made.windows or [], split, gold(made)) == [text for [(text, _)] in split.labels]
    for document, ((_, context), [(answer, start)]) in enumerate(zip(split.texts, split.labels, strict=True)):
        parts = [w.places[w.places[:, 0] >= 0] for w in made.windows or [] if w.document == document]
        covered = {at for part in parts for first, end in part for at in range(first, end)}
        assert covered == {at for at, letter in enumerate(context) if letter != " "}
        for one, two in itertools.pairwise(parts):
            assert len({tuple(place) for place in one} & {tuple(place) for place in two}) == max_length // 4
        spans = [row for row, w in zip(made.labels.tolist(), made.windows or [], strict=True) if w.document == document]
        for part, span in zip(parts, spans, strict=True):
            holds = part[0, 0] <= start and part[-1, 1] >= start + len(answer)
            assert (span != [0, 0]) == holds


def test_the_best_span_is_in_order_short_and_in_the_context() -> None:
    split = Split(["q"], [("who " * 50 + "?", "the boat saw a big red boat in paris")], [[("paris", 31)]])
    made = data.encode(pieces(), split, SQUAD, 48)  # the question is cut to a quarter
    places = (made.windows or [])[0].places
    first = int(np.flatnonzero(places[:, 0] >= 0)[0])
    assert first == 2 + 12
    row = np.full((made.lengths[0], 2), -9.0)
    row[:2] = 99.0  # [CLS] and the question hold no answer
    row[first + 5, 0], row[first + 1, 1] = 8.0, 8.0  # the wrong way round
    row[first + 2, 0], row[first + 3, 1] = 3.0, 3.0
    assert SQUAD.kind.answers(made.windows or [], split, [row]) == ["saw a"]


@pytest.mark.parametrize(("task", "split", "length"), [(NER, tagged(), 2), (SQUAD, asked(), 14)], ids=["ner", "squad"])
def test_too_short_a_window_is_refused(task: Task, split: Split, length: int) -> None:
    refused(lambda: data.encode(pieces(), split, task, length), f"max length {length}")
    refused(lambda: data.encode(pieces("left"), split, task, 40), "pads in front; ")


def test_labels_go_where_the_tokens_are() -> None:
    tokenizer = pieces()
    tags, spans = data.encode(tokenizer, tagged(), NER, 40), data.encode(tokenizer, asked(words=30), SQUAD, 44)
    batch = data.collate(tokenizer, tags, [0, len(tags) - 1])
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    for row, i in enumerate((0, len(tags) - 1)):
        assert torch.equal(batch["labels"][row][batch["attention_mask"][row].bool()], tags.labels[i][: tags.lengths[i]])
    order = sorted(range(len(spans)), key=lambda i: spans.lengths[i])
    assert spans.lengths[order[0]] < spans.lengths[order[-1]]
    batch = data.collate(tokenizer, spans, [order[0], order[-1]])
    for row, i in enumerate((order[0], order[-1])):
        for found, true in zip(batch["labels"][row], spans.labels[i], strict=True):
            assert batch["input_ids"][row][found] == spans.features["input_ids"][i][true]


def test_an_answer_without_offsets_is_wherever_it_stands() -> None:
    """In every window that holds one of its places the first of these is to be found; in the others nothing is."""
    task, tokenizer = TASKS["trivia_qa"], word_tokenizer()
    context = " ".join(["the", "film", "was"] * 3 + ["good"] + ["a", "story"] * 9 + ["good", "cast"])
    rows = Rows({"question": ["the film"], "context": [context], "label": [{"text": ["good", "bad"]}]}, "")
    answers = task.kind.read(task, rows, 0)
    assert answers == [("good", 39), ("good", context.rindex("good")), ("bad", -1)]
    encoded = data.encode(tokenizer, Split(["0"], [("the film", context)], [answers]), task, 16)
    good = tokenizer.convert_tokens_to_ids("good")
    for tokens, (first, last) in zip(encoded.features["input_ids"], encoded.labels.tolist(), strict=True):
        assert first == last == (tokens.index(good) if good in tokens else 0)
