"""Tagging and span questions: windows, the way back to documents, metrics, local files, the hub, teachers."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import bert_config, error_line
from torch.nn.functional import cross_entropy
from transformers import (
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertTokenizer,
)

from common import data, hub, metrics, models, teacher, train, windows
from common.args import BadInput, CommonArgs
from common.data import TASKS, Split

CPU = torch.device("cpu")
REAL = Path(__file__).resolve().parents[2] / "shared" / "realdata"
NER, SQUAD = TASKS["ner"], TASKS["squad"]
WORDS = [
    *("the", "a", "boat", "saw", "big", "red", "paris", "vera", "london"),
    *("rose", "was", "in", "who", "?", ".", ",", "in", "park"),
]
PIECES = ["pa", "##ris", "##t", "lon", "##don"]


def pieces(side: str = "right") -> BertTokenizer:
    """A tokenizer that cuts some words: lond on, ros e."""
    vocab = [*models.SPECIAL_TOKENS, *dict.fromkeys([w for w in WORDS if w not in ("paris", "london")]), *PIECES]
    made = BertTokenizer(vocab={token: i for i, token in enumerate(vocab)}, model_max_length=512)
    made.padding_side = side
    return made


def tagged(count: int = 5, seed: int = 0, sentences: int = 9) -> Split:
    """Documents of random words and tags."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        rows = [rng.choices(WORDS, k=rng.randint(1, 8)) for _ in range(sentences)]
        texts.append(("\n".join(" ".join(row) for row in rows),))
        labels.append([rng.randrange(len(NER.labels)) for row in rows for _ in row])
    return Split([f"doc-{i}" for i in range(count)], texts, labels)


def asked(count: int = 6, seed: int = 0, words: int = 60) -> Split:
    """Questions whose answer is a random stretch of words of a random context."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        context = rng.choices(WORDS, k=words)
        first = rng.randrange(words - 3)
        answer = " ".join(context[first : first + rng.randint(1, 3)])
        texts.append(("who was in paris ?", " ".join(context)))
        labels.append([(answer, len(" ".join(context[:first])) + (first > 0))])
    return Split([f"q-{i}" for i in range(count)], texts, labels)


def gold(encoded: data.Encoded) -> list[np.ndarray]:
    """Logits that say what the labels say."""
    rows = []
    for i, window in enumerate(encoded.windows or []):
        length, labels = encoded.lengths[i], encoded.labels[i].numpy()
        if window.places.ndim == 1:
            row = np.zeros((length, len(NER.labels)), dtype=np.float32)
            row[np.arange(length), np.maximum(labels[:length], 0)] = 1
        else:
            row = np.zeros((length, 2), dtype=np.float32)
            row[labels[0], 0] = row[labels[1], 1] = 1
        rows.append(row)
    return rows


# --- windows of tagged documents ---------------------------------------------------------------------------


def test_a_label_stands_on_the_first_token_of_its_word() -> None:
    split = Split(["d"], [("the london boat\nparis .",)], [[0, 1, 2, 3, 0]])
    made = data.encode(pieces(), split, NER, 32)
    tokens = pieces().convert_ids_to_tokens(made.features["input_ids"][0])
    assert tokens == ["[CLS]", "the", "lon", "##don", "boat", "pa", "##ris", ".", "[SEP]"]
    assert made.labels.tolist() == [[-100, 0, 1, -100, 2, 3, -100, 0, -100]]
    assert made.ids == ["d#0"]
    assert windows.words(split.texts[0][0]) == ["the", "london", "boat", "paris", "."]


@pytest.mark.parametrize("max_length", [3, 4, 7, 16, 500])
def test_every_word_is_labelled_once_and_comes_back(max_length: int) -> None:
    split = tagged()
    made = data.encode(pieces(), split, NER, max_length)
    assert max(made.lengths) <= max_length
    for document, labels in enumerate(split.labels):
        found = [
            (word, int(tag))
            for window, row in zip(made.windows or [], made.labels, strict=True)
            if window.document == document
            for word, tag in zip(window.places, row, strict=False)
            if word >= 0
        ]
        assert found == list(enumerate(labels))
    assert windows.tags(made, split, NER, gold(made)) == [[NER.labels[tag] for tag in row] for row in split.labels]


def test_a_word_in_two_windows_takes_the_tag_from_further_inside() -> None:
    split = Split(["d"], [("the a boat",)], [[0, 0, 0]])
    places = [np.array([-1, 0, 1, -1]), np.array([-1, 1, 2, -1])]
    found = data.Encoded(["d#0", "d#1"], {}, torch.zeros(2, 4), [4, 4], [windows.Window(0, p) for p in places])
    logits = [np.eye(len(NER.labels))[row] for row in ([0, 1, 2, 0], [0, 3, 4, 0])]
    # word 1 is one token from an end in both: the first window's tag stays
    assert windows.tags(found, split, NER, logits) == [[NER.labels[1], NER.labels[2], NER.labels[4]]]
    logits = [np.eye(len(NER.labels))[row] for row in ([0, 1, 2, 0], [0, 0, 3, 4, 0])]
    wider = windows.Window(0, np.array([-1, -1, 1, 2, -1]))
    found = data.Encoded(["d#0", "d#1"], {}, torch.zeros(2, 5), [4, 5], [windows.Window(0, places[0]), wider])
    assert windows.tags(found, split, NER, logits)[0][1] == NER.labels[3]


def test_a_word_without_tokens_is_no_entity() -> None:
    split = Split(["d"], [("boat \u200b paris",)], [[1, 2, 3]])
    made = data.encode(pieces(), split, NER, 16)
    assert windows.tags(made, split, NER, gold(made)) == [[NER.labels[1], "O", NER.labels[3]]]


def test_sentences_cut_the_tags() -> None:
    assert list(windows.by_sentence("a b\nc\nd e", ["1", "2", "3", "4", "5"])) == [["1", "2"], ["3"], ["4", "5"]]


# --- windows of questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_length", [24, 40, 500])
def test_answers_come_back_from_any_window(max_length: int) -> None:
    split = asked(20)
    made = data.encode(pieces(), split, SQUAD, max_length)
    assert max(made.lengths) <= max_length
    found = windows.answers(made, split, gold(made))
    assert found == [text for [(text, _)] in split.labels]


def test_windows_share_a_quarter_and_miss_nothing() -> None:
    split = asked(3, words=100)
    made = data.encode(pieces(), split, SQUAD, 40)
    for document in range(3):
        parts = [w.places[w.places[:, 0] >= 0] for w in made.windows or [] if w.document == document]
        assert len(parts) > 3
        for before, after in itertools.pairwise(parts):
            shared = {tuple(place) for place in before} & {tuple(place) for place in after}
            assert len(shared) == windows.overlap(SQUAD, 40) == 10
        text = split.texts[document][1]
        covered = {at for part in parts for start, end in part for at in range(start, end)}
        assert covered == {at for at, letter in enumerate(text) if letter != " "}


def test_a_window_without_the_answer_points_at_cls() -> None:
    split = asked(8, words=120)
    made = data.encode(pieces(), split, SQUAD, 32)
    whole = []
    for window, (first, last) in zip(made.windows or [], made.labels.tolist(), strict=True):
        ((answer, start),) = split.labels[window.document]
        inside = window.places[window.places[:, 0] >= 0]
        holds = inside[0, 0] <= start and inside[-1, 1] >= start + len(answer)
        whole.append(holds)
        if holds:
            text = split.texts[window.document][1]
            assert text[window.places[first, 0] : window.places[last, 1]] == answer
        else:
            assert (first, last) == (0, 0)
    assert any(whole)
    assert not all(whole)


def test_the_best_span_is_in_order_short_and_in_the_context() -> None:
    context = "the boat saw a big red boat in paris"
    split = Split(["q"], [("who ?", context)], [[("paris", 31)]])
    made = data.encode(pieces(), split, SQUAD, 64)
    places = made.windows[0].places  # type: ignore[index]
    row = np.full((made.lengths[0], 2), -9.0)
    row[0] = 99.0  # [CLS] is no answer
    row[1] = 99.0  # nor is the question
    first = int(np.flatnonzero(places[:, 0] >= 0)[0])
    row[first + 5, 0], row[first + 1, 1] = 8.0, 8.0  # the wrong way round
    row[first + 2, 0], row[first + 3, 1] = 3.0, 3.0
    assert windows.answers(made, split, [row]) == ["saw a"]


def test_long_questions_are_cut() -> None:
    split = Split(["q"], [("who " * 50 + "?", "the boat in paris")], [[("paris", 12)]])
    made = data.encode(pieces(), split, SQUAD, 24)
    assert made.lengths[0] == 3 + 6 + 5
    assert windows.answers(made, split, gold(made)) == ["paris"]


@pytest.mark.parametrize(("task", "length"), [(NER, 2), (SQUAD, 14)])
def test_too_short_a_window_is_refused(task: data.Task, length: int) -> None:
    with pytest.raises(BadInput, match=f"max length {length}"):
        data.encode(pieces(), tagged() if task is NER else asked(), task, length)


# --- batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_labels_go_where_the_padding_puts_the_tokens(side: str) -> None:
    tokenizer = pieces(side)
    tags = data.encode(tokenizer, tagged(), NER, 40)
    batch = data.collate(tokenizer, tags, [0, 1, 2, 3])
    assert batch["labels"].shape == batch["input_ids"].shape
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    for row, i in enumerate(range(4)):
        valid = batch["attention_mask"][row].bool()
        assert torch.equal(batch["labels"][row][valid], tags.labels[i][: tags.lengths[i]])
    spans = data.encode(tokenizer, asked(words=30), SQUAD, 44)
    order = sorted(range(len(spans)), key=lambda i: spans.lengths[i])
    batch = data.collate(tokenizer, spans, [order[0], order[-1]])
    for row, i in enumerate((order[0], order[-1])):
        own = spans.features["input_ids"][i]
        for found, true in zip(batch["labels"][row], spans.labels[i], strict=True):
            assert batch["input_ids"][row][found] == own[true]
    assert spans.lengths[order[0]] < spans.lengths[order[-1]]


def test_batches_of_like_length() -> None:
    made = data.encode(pieces(), tagged(160, sentences=3), NER, 64)
    tokenizer = pieces()
    plain, grouped = (data.Batches(made, tokenizer, 8, 0, by_length=flag) for flag in (False, True))

    def padding(batches: data.Batches) -> float:
        masks = [batches[step]["attention_mask"] for step in range(batches.steps_per_epoch)]
        return 1 - sum(float(m.sum()) for m in masks) / sum(m.numel() for m in masks)

    assert padding(grouped) < padding(plain) / 2
    epoch = [i for step in range(20) for i in grouped.indices(step)]
    assert sorted(epoch) == list(range(160))
    again = data.Batches(made, tokenizer, 8, 0, by_length=True)
    assert again.indices(13) == grouped.indices(13)
    assert [grouped.indices(step) for step in range(20)] != [grouped.indices(20 + step) for step in range(20)]
    longest = [max(made.lengths[i] for i in grouped.indices(step)) for step in range(20)]
    assert longest != sorted(longest)  # the batches themselves come in any order


def test_short_examples_come_first_and_long_ones_in_as_many_tokens() -> None:
    split = tagged(60, sentences=2)
    long = tagged(12, seed=1, sentences=40)
    both = Split([*split.ids, *(f"long-{i}" for i in range(12))], split.texts + long.texts, split.labels + long.labels)
    tokenizer = pieces()
    made = data.encode(tokenizer, both, NER, 400)
    stream = data.ShortFirst(made, tokenizer, 8, 0, steps=5, tokens=40)
    kinds = ["long" if stream.ids(step)[0].startswith("long") else "short" for step in range(17)]
    assert kinds == ["short"] * 8 + ["long"] + ["short"] * 3 + ["long"] + ["short"] * 3 + ["long"]
    sizes = {kind: {len(stream.ids(step)) for step in range(17) if kinds[step] == kind} for kind in ("short", "long")}
    assert sizes == {"short": {8}, "long": {max(1, 8 * 40 // max(made.lengths))}}
    for step in (0, 7, 8, 12, 16):
        batch, names = stream[step], stream.ids(step)
        rows = [made.ids.index(name) for name in names]
        assert torch.equal(batch["attention_mask"].sum(1), torch.tensor([made.lengths[i] for i in rows]))
        longest = batch["labels"].shape[1]
        assert torch.equal(batch["labels"], made.labels[rows][:, :longest])
    # every short one once, before any comes again
    seen = [name for step in (0, 1, 2, 3, 4, 5, 6) for name in stream.ids(step)]
    assert len(set(seen)) == len(seen)
    again = data.ShortFirst(made, tokenizer, 8, 0, steps=5, tokens=40)
    assert [again.ids(step) for step in range(17)] == [stream.ids(step) for step in range(17)]
    only = data.ShortFirst(made, tokenizer, 4, 0, steps=2, tokens=1)
    assert len(only.ids(0)) == 4


# --- metrics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "truths", "exact", "f1"),
    [
        ("Denver Broncos", ["Denver Broncos", "The Broncos"], 1, 1),
        ("the  BRONCOS!", ["Broncos"], 1, 1),
        ("cat sat", ["the cat sat down"], 0, 0.8),  # 2 of 2 and 2 of 3
        ("a b b", ["b b b c"], 0, 2 * (2 / 2) * (2 / 4) / (2 / 2 + 2 / 4)),  # "a" is an article; b twice
        ("1,000", ["1000"], 1, 1),
        ("anthem", ["an them"], 0, 0),  # articles are whole words
        ("", ["x"], 0, 0),
        ("the", ["a"], 1, 0),  # nothing is left of both: equal, and no word shared
        ("x", ["y", "x z"], 0, 2 / 3),
    ],
)
def test_answers_are_compared_as_squad_does(prediction: str, truths: list[str], exact: float, f1: float) -> None:
    assert metrics.exact_match(prediction, truths) == exact
    assert metrics.answer_f1(prediction, truths) == pytest.approx(f1)
    assert metrics.questions([prediction, "no"], [truths, ["yes"]]) == pytest.approx(
        {"answer_f1": f1 / 2, "exact_match": exact / 2}
    )


def test_no_questions_have_no_figure() -> None:
    with pytest.raises(ValueError, match="no questions"):
        metrics.questions([], [])


def test_entities_count_whole() -> None:
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    wrong_end = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "O"]]
    assert metrics.entities(true, true, ["PER", "LOC"]) == {"entity_f1": 1.0, "PER_f1": 1.0, "LOC_f1": 1.0}
    found = metrics.entities(wrong_end, true, ["PER", "LOC", "ORG", "MISC"])
    assert found == pytest.approx({"entity_f1": 2 / 3, "PER_f1": 0, "LOC_f1": 1, "ORG_f1": 1, "MISC_f1": 0})
    nothing = [["O"] * 4, ["O"] * 2]
    assert metrics.entities(nothing, true, ["PER"]) == {"entity_f1": 0.0, "PER_f1": 0.0}
    assert metrics.entities(nothing, nothing, ["PER"]) == {"entity_f1": 0.0, "PER_f1": 0.0}


def test_an_entity_ends_with_its_sentence() -> None:
    split = Split(["d"], [("vera\nrose",)], [[1, 0]])
    made = data.encode(pieces(), split, NER, 8)
    logits = np.eye(len(NER.labels))[[0, 1, 2, 0]]  # B-PER, then I-PER in the next sentence: two entities
    assert windows.score(made, split, NER, [logits])["entity_f1"] == pytest.approx(2 / 3)


# --- models and losses -------------------------------------------------------------------------------------


def documents(task: data.Task, **changes: Any) -> Any:
    cls = BertForTokenClassification if task.kind == "token classification" else BertForQuestionAnswering
    settings = {"num_labels": len(task.labels) or 2, "initializer_range": 0.3} | models.task_settings(task)
    torch.manual_seed(0)
    return cls(bert_config(2, 16, vocab=len(pieces()), **settings | changes))


@pytest.mark.parametrize(("task", "split"), [(NER, tagged()), (SQUAD, asked())], ids=["ner", "squad"])
def test_predictions_are_what_the_librarys_loss_compares(task: data.Task, split: Split) -> None:
    tokenizer, model = pieces(), documents(task).eval()
    made = data.encode(tokenizer, split, task, 32)
    alone = data.collate(tokenizer, made, [0])  # no padding, which the library's question head does not leave out
    batch = data.collate(tokenizer, made, [0, len(made) - 1])
    for part in (alone, batch) if task is NER else (alone,):
        output = model(**models.inputs_with_labels(part, task.kind))
        pairs = models.predictions(output, part, task.kind)
        loss = torch.stack([cross_entropy(logits, targets) for logits, targets in pairs]).mean()
        torch.testing.assert_close(loss, output.loss)
    for logits, targets in models.predictions(model(**_inputs(batch)), batch, task.kind):
        assert len(logits) == len(targets)
        if task is SQUAD:
            chances = logits.softmax(-1)
            assert (chances[batch["attention_mask"] == 0] == 0).all()


def _inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v for k, v in batch.items() if k != "labels"}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("task", "split"), [(NER, tagged()), (SQUAD, asked())], ids=["ner", "squad"])
def test_windows_are_predicted_without_their_padding(task: data.Task, split: Split, side: str) -> None:
    tokenizer, model = pieces(side), documents(task).train()
    if side == "left":  # BERT counts its positions from the left: all are made alike, so that padding shifts nothing
        model.bert.embeddings.position_embeddings.weight.data.zero_()
    made = data.encode(tokenizer, split, task, 32)
    found = train.predict_windows(model, made, tokenizer)
    assert model.training
    model.eval()
    for i, row in enumerate(found):
        assert len(row) == made.lengths[i]
        alone = model(**_inputs(data.collate(tokenizer, made, [i])))
        np.testing.assert_allclose(row, models.token_logits(alone)[0].detach().numpy(), atol=1e-5)


def test_heads_and_settings() -> None:
    for task, name in ((NER, "ForTokenClassification"), (SQUAD, "ForQuestionAnswering")):
        config = bert_config(2, 16, **{"num_labels": len(task.labels) or 2} | models.task_settings(task))
        model = models.build_student(config, task.kind, None)
        assert type(model).__name__.endswith(name)
        config.architectures = [type(model).__name__]
        assert models.has_head(config, task)
        assert not models.has_head(config, TASKS["sst2"])
    assert models.task_settings(NER)["id2label"][1] == "B-PER"


# --- local files -------------------------------------------------------------------------------------------

CONLL = (
    "-DOCSTART- -X- O O\n\nVera NNP I-NP B-PER\nsaw VBD I-VP O\nBig JJ I-NP B-LOC\nPark NN I-NP I-LOC\n\nin IN O O\n\n"
)
CONLL += "-DOCSTART- -X- O O\n\nRose NN I-NP I-ORG\n"


def conll(folder: Path, text: str = CONLL) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train.txt", "valid.txt", "test.txt"):
        (folder / name).write_text(text)
    return str(folder)


def test_conll_columns_become_documents(tmp_path: Path) -> None:
    loaded = data.load("conll2003", conll(tmp_path / "a"))
    split = loaded.splits["train"]
    assert split.texts == [("Vera saw Big Park\nin",), ("Rose",)]
    names = [[loaded.task.labels[tag] for tag in row] for row in split.labels]
    assert names == [["B-PER", "O", "B-LOC", "I-LOC", "O"], ["B-ORG"]]  # IOB1's I- begins an entity too
    assert loaded.reported == ("test",)
    assert set(loaded.splits) == {"train", "dev", "test"}


def test_without_docstart_every_sentence_is_an_example(tmp_path: Path) -> None:
    text = CONLL.replace("-DOCSTART- -X- O O\n\n", "")
    split = data.load("conll2003", conll(tmp_path / "a", text)).splits["dev"]
    assert split.texts == [("Vera saw Big Park",), ("in",), ("Rose",)]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_hubs_columns_in_files(suffix: str, tmp_path: Path) -> None:
    """GONERD's release, or any set that is tagged; integers of a Parquet file are named by its schema."""
    from datasets import ClassLabel, Dataset, Features, Sequence, Value

    names = ["O", "B-LOC", "I-LOC", "B-PER"]
    rows = [{"tokens": ["Vera", "in", "Riga"], "ner_tags": ["B-PER", "O", "B-LOC"]}]
    for part in ("train", "dev", "test"):
        path = tmp_path / f"{part}.{suffix}"
        if suffix == "jsonl":
            path.write_text("\n".join(json.dumps(row) for row in rows))
        else:
            tags = Sequence(ClassLabel(names=names))
            Dataset.from_list(rows, Features({"tokens": Sequence(Value("string")), "ner_tags": tags})).to_parquet(path)
    split = data.load("gonerd", str(tmp_path)).splits["dev"]
    assert split.texts == [("Vera in Riga",)]
    assert [TASKS["gonerd"].labels[tag] for tag in split.labels[0]] == ["B-PER", "O", "B-LOC"]


def squad_json(folder: Path, **changes: Any) -> str:
    question = {"id": "q1", "question": "who ?", "answers": [{"text": "Vera", "answer_start": 4}]} | changes
    document = {"version": "1.1", "data": [{"paragraphs": [{"context": "saw Vera in Vera park", "qas": [question]}]}]}
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (folder / name).write_text(json.dumps(document))
    return str(folder)


def test_squad_json(tmp_path: Path) -> None:
    loaded = data.load("squad", squad_json(tmp_path / "a"))
    split = loaded.splits["train"]
    assert (split.ids, split.texts) == (["q1"], [("who ?", "saw Vera in Vera park")])
    assert split.labels == [[("Vera", 4)]]
    assert loaded.reported == ("dev",)
    several = [{"text": "Vera", "answer_start": 12}, {"text": "park", "answer_start": 17}]
    loaded = data.load("squad", squad_json(tmp_path / "b", answers=several))
    assert loaded.splits["dev"].labels == [[("Vera", 12), ("park", 17)]]


def test_answers_without_a_place_are_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    answers = [{"text": "Nobody"}, {"text": "park", "answer_start": 3}]
    loaded = data.load("trivia_qa", squad_json(tmp_path / "a", answers=answers))
    assert loaded.splits["dev"].labels == [[("park", 17), ("Nobody", -1)]]
    with pytest.raises(BadInput, match="no question of squad has its answer"):
        data.load("squad", squad_json(tmp_path / "b", answers=answers[:1]))
    assert "1 of 1 questions left out" in capsys.readouterr().err


def test_hotpot_json(tmp_path: Path) -> None:
    row = {"_id": "h1", "question": "where ?", "answer": "Riga", "context": [["Vera", ["Vera is", " from Riga."]]]}
    for name in ("hotpot_train_v1.1.json", "hotpot_dev_distractor_v1.json"):
        (tmp_path / name).write_text(json.dumps([row, row | {"_id": "h2", "answer": "yes"}]))
    split = data.load("hotpot_qa", str(tmp_path)).splits["train"]
    assert split.texts[0] == ("where ?", "yes no\nVera: Vera is from Riga.")
    assert split.labels == [[("Riga", 26)], [("yes", 0)]]


@pytest.mark.parametrize(
    ("make", "task", "says"),
    [
        (lambda folder: conll(folder, "Vera\n"), "conll2003", r"train.txt line 1: 'Vera' has no tag"),
        (lambda folder: conll(folder, "Vera B-CAT\n"), "conll2003", "tag 'B-CAT' is unknown; conll2003 has O, B-PER"),
        (lambda folder: conll(folder, "\n-DOCSTART- O\n"), "litbank", "no words with tags"),
        (lambda folder: squad_json(folder, answers=[]), "squad", "question q1: answers are .*one text or more"),
        (lambda folder: squad_json(folder, answers=3), "squad", "not SQuAD's layout"),
        (lambda folder: squad_json(folder, question=""), "squad", "question q1: question is empty"),
    ],
)
def test_bad_files_are_one_line(make: Callable[[Path], str], task: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says) as error:
        data.load(task, make(tmp_path / "a"))
    assert "\n" not in str(error.value)


def test_local_tasks_need_files() -> None:
    with pytest.raises(BadInput, match=r"--task litbank .*--data-dir DIR.*pocket/ner"):
        data.check_name("litbank")
    with pytest.raises(BadInput, match="for your files, --task hotpot_qa"):
        data.check_name("pocket/hotpot", ".")


def test_real_documents() -> None:
    if not (REAL / "litbank").is_dir():
        pytest.skip("no real data beside the repository")
    loaded = data.load("litbank", str(REAL / "litbank"))
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 80, "dev": 10, "test": 10}
    lengths = [len(row) for split in loaded.splits.values() for row in split.labels]
    assert min(lengths) >= 1500
    assert max(lengths) <= 3500


# --- the hub -----------------------------------------------------------------------------------------------


def recorded(task: str) -> Any:
    """What the hub's repositories hold, as their cards record it: columns, features, one row a split."""
    from datasets import Dataset, DatasetDict, Features, Sequence, Value

    text, texts = Value("string"), Sequence(Value("string"))
    if task == "conll2003":
        features = {"tokens": texts, "ner_tags": texts, "chunk_tags": texts, "pos_tags": texts}
        row: dict[str, Any] = {
            "tokens": ["Vera", "slept"],
            "ner_tags": ["B-PER", "O"],
            "chunk_tags": [],
            "pos_tags": [],
        }
    elif task == "squad":
        answers = {"text": texts, "answer_start": Sequence(Value("int32"))}
        features = {"id": text, "title": text, "context": text, "question": text, "answers": answers}
        row = {"id": "s1", "title": "t", "context": "saw Vera", "question": "who ?"}
        row["answers"] = {"text": ["Vera"], "answer_start": [4]}
    elif task == "hotpot_qa":
        facts = {"title": texts, "sent_id": Sequence(Value("int32"))}
        context = {"title": texts, "sentences": Sequence(texts)}
        features = {"id": text, "question": text, "answer": text, "type": text, "level": text}
        features |= {"supporting_facts": facts, "context": context}
        row = {"id": "h1", "question": "where ?", "answer": "Riga", "type": "bridge", "level": "hard"}
        row |= {"supporting_facts": {"title": ["Vera"], "sent_id": [0]}}
        row |= {"context": {"title": ["Vera", "Rose"], "sentences": [["Vera is from Riga."], ["Rose", " sleeps."]]}}
    else:
        pages = {"doc_source": texts, "filename": texts, "title": texts, "wiki_context": texts}
        answer = {"aliases": texts, "value": text, "type": text}
        features = {"question": text, "question_id": text, "entity_pages": pages, "answer": answer}
        row = {"question": "where ?", "question_id": "t1"}
        row["entity_pages"] = {"doc_source": ["w"], "filename": ["f"], "title": ["V"], "wiki_context": ["In Riga."]}
        row["answer"] = {"aliases": ["Riga", "City of Riga"], "value": "Riga", "type": "w"}
    splits = hub.HUB[task].splits.values()
    return DatasetDict({name: Dataset.from_list([row], Features(features)) for name in splits})


@pytest.mark.parametrize(
    ("task", "texts", "label"),
    [
        ("conll2003", ("Vera slept",), [1, 0]),
        ("squad", ("who ?", "saw Vera"), [("Vera", 4)]),
        ("hotpot_qa", ("where ?", "yes no\nVera: Vera is from Riga.\nRose: Rose sleeps."), [("Riga", 26)]),
        ("trivia_qa", ("where ?", "In Riga."), [("Riga", 3), ("City of Riga", -1)]),
    ],
)
def test_hub_rows(task: str, texts: tuple, label: list, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    calls = []

    def load_dataset(repo: str, config: str | None, revision: str) -> Any:
        calls.append((repo, config, revision))
        return recorded(task)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **kwargs: None)
    loaded = data.load(task)
    source = hub.HUB[task]
    assert calls == [(source.repo, source.config, source.revision)]
    assert len(source.revision) == 40
    assert loaded.splits["dev"].texts == [texts]
    assert loaded.splits["dev"].labels == [label]
    assert loaded.reported == (("test",) if task == "conll2003" else ("dev",))


# --- a teacher, and methods that cannot ---------------------------------------------------------------------


@pytest.mark.parametrize(("name", "floor"), [("litbank", 0.9), ("squad", 0.9)])
def test_a_teacher_learns_and_is_cached(name: str, floor: float, tmp_path: Path) -> None:
    """A tiny model on a task that a word decides: "paris" is a place, and the answer to every question."""
    rng = random.Random(0)
    folder = tmp_path / "data"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        rows = [rng.sample([word for word in WORDS if word not in ("paris", "london")], 6) for _ in range(200)]
        for row in rows:
            row[rng.randrange(6)] = "paris"
        if name == "litbank":
            lines = [f"{w} {'B-GPE' if w == 'paris' else 'O'}" for row in rows for w in ["-DOCSTART-", *row]]
            (folder / f"{part}.txt").write_text("\n".join(lines).replace("-DOCSTART- O", "\n-DOCSTART- O\n"))
        elif part != "test":
            lines = [
                json.dumps({"question": "who ?", "context": (text := " ".join(row)),
                            "label": {"text": ["paris"], "answer_start": [text.index("paris")]}}) for row in rows
            ]  # fmt: skip
            (folder / f"{part}.jsonl").write_text("\n".join(lines))
    base = tmp_path / "bert"
    models.save(documents(NER, max_position_embeddings=64).bert, pieces(), base, "")
    task = data.load(name, str(folder))
    args = CommonArgs(task=name, data_dir=str(folder), out_dir=str(tmp_path / "out"), max_length=32, batch_size=16,
                      teacher_epochs=6, teacher_lr=5e-3)  # fmt: skip
    args.check()
    made = teacher.get_teacher(args, str(base), task, CPU)
    primary = metrics.primary(task.task)
    assert made.metrics[task.reported[0]][primary] > floor
    again = teacher.get_teacher(args, str(base), task, CPU)
    assert (again.signature, again.metrics) == (made.signature, made.metrics)
    # the finished folder is a model with the task's head: taken as it is, in the task's order of tags
    folder_of = next((tmp_path / "out" / "cache" / "teachers").glob("*/model.safetensors")).parent
    given = teacher.get_teacher(args, str(folder_of), task, CPU)
    assert given.metrics[task.reported[0]] == pytest.approx(made.metrics[task.reported[0]])


def test_a_method_refuses_kinds_that_it_cannot_do(tmp_path: Path, inside: Callable[..., tuple[int, str, str]]) -> None:
    for task, kind in (("pocket/ner", "token classification"), ("pocket/hotpot", "span QA")):
        code, _, err = inside("--task", task, "--out-dir", tmp_path)
        assert code == 2
        assert f"--task {task}: is {kind}; this method does classification" in error_line(err)
    assert not any(tmp_path.iterdir())
