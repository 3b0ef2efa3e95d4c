"""Evaluation of language models, tagged documents and questions, against slow computations and known scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from conftest import bert_config
from test_batches import NER, SQUAD, asked, gold, pieces, tagged
from transformers import BertForQuestionAnswering, BertForTokenClassification, GPT2Config, GPT2LMHeadModel

from common import data, evaluate, text_metrics
from common.errors import BadInput
from common.kinds import Split, Task
from common.kinds.texts import perplexity, token_stream
from common.tasks import TASKS, TaskData
from pocket.models import pocket_gpt2

# --- perplexity ----------------------------------------------------------------------------------------------


def gpt2(vocab: int = 50) -> GPT2LMHeadModel:
    """A random GPT-2 whose weights are large enough that predictions differ visibly."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocab, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


@torch.no_grad()
def direct(model: GPT2LMHeadModel, stream: torch.Tensor, max_length: int, stride: int) -> float:
    """The perplexity token by token, each from a forward pass of its own."""
    total, start = 0.0, 0
    for i in range(1, len(stream)):
        while i - start > max_length:  # the window is full: the next one lies a stride further
            start += stride
        assert i - start >= min(max_length - stride + 1, i)
        total -= float(model(stream[None, start:i]).logits[0, -1].double().log_softmax(-1)[stream[i]])
    return math.exp(total / (len(stream) - 1))


@pytest.mark.parametrize("count", [2, 8, 9, 17, 40])
@pytest.mark.parametrize("max_length", [8, 9, 64])
def test_perplexity_equals_a_direct_computation(count: int, max_length: int) -> None:
    model = gpt2().double()
    stream = torch.randint(0, 50, (count,), generator=torch.Generator().manual_seed(count))
    expected = direct(model, stream, max_length, max_length // 2)
    found = perplexity(model, stream, max_length)
    assert found == pytest.approx(expected, rel=1e-5)  # logits are summed as float32


def test_evaluation_is_the_perplexity_of_each_reported_split() -> None:
    _, tokenizer = pocket_gpt2("pocket")
    texts = [("the judge slept . nobody slept ?",), ("the judge praised the niece .",)]
    split = Split(["a", "b"], texts, [None] * 2)
    task = TaskData("pocket/lm", TASKS["lm"], "pocket", "", {"test": split}, "", ("test",))
    model = gpt2(len(tokenizer)).train()
    scores, speed, predictions = evaluate.evaluate(model, tokenizer, task, 8)
    stream = token_stream(tokenizer, task.splits["test"])
    assert scores == {"test": {"perplexity": perplexity(model, stream, 8)}}
    assert speed > 0
    assert predictions == {}
    assert model.training


# --- documents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "prediction", "truths", "exact", "f1"),
    [
        ("squad", "Denver Broncos", ["Denver Broncos", "The Broncos"], 1, 1),
        ("squad", "the  BRONCOS!", ["Broncos"], 1, 1),
        ("squad", "cat sat", ["the cat sat down"], 0, 0.8),  # 2 of 2 and 2 of 3
        ("squad", "a b b", ["b b b c"], 0, 2 / 3),  # "a" is an article; b twice
        ("squad", "anthem", ["an them"], 0, 0),  # articles are whole words
        ("squad", "", ["x"], 0, 0),
        ("squad", "the", ["a"], 1, 0),  # nothing is left of both: equal, and no word shared
        ("squad", "x", ["y", "x z"], 0, 2 / 3),
        ("squad", "yes no", ["yes"], 0, 2 / 3),
        ("squad", "Jean-Paul", ["Jean Paul"], 0, 0),
        ("hotpot_qa", "yes no", ["yes"], 0, 0),
        ("hotpot_qa", "Yes", ["yes"], 1, 1),
        ("hotpot_qa", "no", ["no doubt"], 0, 0),
        ("hotpot_qa", "no answer", ["noanswer"], 0, 0),
        ("hotpot_qa", "the old bridge", ["old bridge road"], 0, 0.8),
        ("trivia_qa", "Jean-Paul", ["Jean Paul"], 1, 1),
        ("trivia_qa", "yes no", ["yes"], 0, 2 / 3),
        ("trivia_qa", "O\u2019Brien", ["o brien"], 1, 1),
        ("trivia_qa", "snow_white", ["x", "Snow White!"], 1, 1),
        ("trivia_qa", "a\u00b4 `b\u2018", ["b"], 1, 1),  # what was an article is left out after punctuation
        ("own", "\u5317\u4eac\u3002", ["\u5317 \u4eac"], 1, 1),  # no blanks: each character is a word
        ("own", "\u5317\u4eac", ["\u5317\u4eac\u5e02"], 0, 4 / 5),
        ("own", "the caf\u00e9's", ["Caf\u00e9s"], 1, 1),  # as SQuAD's
        ("squad", "\u5317\u4eac", ["\u5317\u4eac\u5e02"], 0, 0),  # as the official program does
    ],
)
def test_answers_are_compared_as_their_own_programs_do(
    program: str, prediction: str, truths: list[str], exact: float, f1: float
) -> None:
    found = text_metrics.questions([prediction, "no"], [truths, ["none"]], program)
    assert found == pytest.approx({"answer_f1": f1 / 2, "exact_match": exact / 2})


def test_entities_count_whole() -> None:
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    wrong_end = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "O"]]
    assert text_metrics.entities(true, true, ["PER", "LOC"]) == {"entity_f1": 1.0, "PER_f1": 1.0, "LOC_f1": 1.0}
    found = text_metrics.entities(wrong_end, true, ["PER", "LOC", "ORG", "MISC"])
    assert found == pytest.approx({"entity_f1": 2 / 3, "PER_f1": 0, "LOC_f1": 1, "ORG_f1": 1, "MISC_f1": 0})
    nothing = [["O"] * 4, ["O"] * 2]
    assert text_metrics.entities(nothing, nothing, ["PER"]) == {"entity_f1": 0.0, "PER_f1": 0.0}


def test_an_entity_ends_with_its_sentence() -> None:
    split = Split(["d"], [("the vera\nrose",)], [[0, 1, 0]])
    made = data.encode(pieces(), split, NER, 8)
    logits = np.eye(len(NER.labels))[[0, 0, 1, 2, 0]]  # B-PER, then I-PER in the next sentence: two entities
    assert NER.kind.scores(NER, split, made, [logits])["entity_f1"] == pytest.approx(2 / 3)
    asked_of = asked()
    perfect = data.encode(pieces(), asked_of, SQUAD, 40)
    assert SQUAD.kind.scores(SQUAD, asked_of, perfect, gold(perfect)) == {"answer_f1": 1.0, "exact_match": 1.0}


CASES = pytest.mark.parametrize(("task", "split"), [(NER, tagged()), (SQUAD, asked())], ids=["ner", "squad"])


def model_of(task: Task) -> BertForTokenClassification | BertForQuestionAnswering:
    torch.manual_seed(0)
    cls = BertForTokenClassification if task is NER else BertForQuestionAnswering
    settings = {"num_labels": len(task.labels) or 2, "initializer_range": 0.3} | task.kind.settings(task)
    return cls(bert_config(2, 16, vocab=len(pieces()), **settings))


@CASES
def test_windows_are_predicted_without_their_padding(task: Task, split: Split) -> None:
    tokenizer, model = pieces(), model_of(task).train()
    made = data.encode(tokenizer, split, task, 32)
    found, _ = task.kind.predict(model, made, tokenizer, 32, evaluate.forward)
    assert model.training
    model.eval()
    for i, row in enumerate(found):
        batch = data.collate(tokenizer, made, [i])
        del batch["labels"]
        alone = task.kind.token_logits(model(**batch))[0]
        torch.testing.assert_close(torch.from_numpy(row), alone.detach(), atol=1e-4, rtol=1e-4)


@CASES
def test_windows_whose_outputs_are_not_finite_are_refused(task: Task, split: Split) -> None:
    """Weights may be finite and outputs not; a tag or an answer would be found in them all the same."""
    model, made = model_of(task), data.encode(pieces(), split, task, 32)
    for head in model.classifier if task is NER else model.qa_outputs, model.bert.encoder.layer[-1].output.LayerNorm:
        head.weight.data.fill_(3e38)
    with pytest.raises(BadInput, match=f"not finite, first for {made.ids[0]}"):
        task.kind.predict(model, made, pieces(), 32, evaluate.forward)
