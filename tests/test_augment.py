"""TinyBERT's augmentation: what is replaced, by what, and what stays; the masked LM it asks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import NEGATIVE, NEUTRAL, POSITIVE, bert_config, sentence, word_tokenizer
from transformers import AutoConfig, AutoModelForMaskedLM, BertForMaskedLM, BertModel

from common import data, masked_lm, models, train
from common.args import BadInput
from common.layers import augment

WORDS = {word for word in (*POSITIVE, *NEGATIVE, *NEUTRAL) if augment.replaceable(word)}


def lm(seed: int = 0) -> BertForMaskedLM:
    torch.manual_seed(seed)
    return BertForMaskedLM(bert_config(2, 16, initializer_range=0.3)).eval()


def split(pairs: bool = False, rows: int = 40) -> data.Split:
    rng = random.Random(0)
    texts: list[Any] = [
        tuple(sentence(rng, (NEGATIVE, POSITIVE)[i % 2]) for _ in range(1 + pairs)) for i in range(rows)
    ]
    return data.Split([f"train-{i}" for i in range(rows)], texts, [i % 2 for i in range(rows)])


def make(given: data.Split, model: Any = None, **changes: Any) -> data.Split:
    settings: dict[str, Any] = {"copies": 3, "seed": 0, "candidates": 4} | changes
    return augment.augment(given, word_tokenizer(), augment.input_embeddings(lm()), model, **settings)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_copies_keep_labels_lengths_and_function_words(pairs: bool, by_model: bool) -> None:
    given = split(pairs)
    found = make(given, lm() if by_model else None)
    count = len(given) * (1 + 3 * (2 if pairs else 1))
    assert len(found) == len(set(found.ids)) == len(found.texts) == len(found.labels) == count
    assert (found.ids[:40], found.texts[:40], found.labels[:40]) == (given.ids, given.texts, given.labels)
    row = {identity: i for i, identity in enumerate(given.ids)}
    changed, total = 0, 0
    for identity, texts, label in zip(found.ids[40:], found.texts[40:], found.labels[40:], strict=True):
        origin = row[identity.split("+")[0]]
        assert label == given.labels[origin]
        assert sum(a != b for a, b in zip(texts, given.texts[origin], strict=True)) <= 1  # one text of a pair
        for text, before in zip(texts, given.texts[origin], strict=True):
            assert len(text.split()) == len(before.split())
            for new, old in zip(text.split(), before.split(), strict=True):
                assert new == old or (old in WORDS and new in WORDS)
        field = int(identity.split("+")[1]) // 3
        words = zip(texts[field].split(), given.texts[origin][field].split(), strict=True)
        pairs_of = [(new, old) for new, old in words if old in WORDS]
        changed += sum(new != old for new, old in pairs_of)
        total += len(pairs_of)
    assert changed / total == pytest.approx(augment.REPLACE, abs=0.07)


def test_the_same_seed_gives_the_same_copies_and_a_prefix_its_own() -> None:
    given = split()
    assert make(given) == make(given)
    assert make(given).texts != make(given, seed=1).texts
    few = make(data.Split(given.ids[:5], given.texts[:5], given.labels[:5]))
    assert few.texts[5:] == make(given).texts[40 : 40 + 15]


def test_the_masked_lm_chooses_what_fits_its_place() -> None:
    """Candidates are the model's best words at the masked place, by a loop over one text."""
    model, tokenizer = lm(), word_tokenizer()
    given = data.Split(["a"], [("the film was good",)], [1])
    ledger = train.Ledger()
    found = make(given, model, replace=1.0, candidates=2, copies=20, ledger=ledger)
    words = augment.vocabulary_words(tokenizer)
    assert set(words) == WORDS
    inputs = tokenizer("the film was [MASK]", return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0, 4]
    best = sorted((w for w in words if w != "good"), key=lambda w: -logits[words[w]].item())[:2]
    assert {text.split()[3] for (text,) in found.texts[1:]} == set(best)
    assert ledger.teacher_examples == 2  # "film" and "good", asked once each


def test_static_embeddings_give_nearest_neighbours() -> None:
    tokenizer = word_tokenizer()
    words = augment.vocabulary_words(tokenizer)
    table = torch.randn(31, 8, generator=torch.Generator().manual_seed(0))
    table[words["great"]] = 2 * table[words["good"]]
    table[words["bad"]] = -table[words["good"]]
    found = augment.neighbours(tokenizer, words, table, ["good"], len(words))["good"]
    assert found[0] == "great"
    assert found[-1] == "bad"
    assert "good" not in found


def test_words_that_are_several_pieces_and_words_unknown_to_the_tokenizer() -> None:
    """A word of pieces takes the neighbours of their mean; text around it, and its capital, stay."""
    vocab = {w: i for i, w in enumerate([*models.SPECIAL_TOKENS, "un", "##happy", "glad", "sorry", "fine", "!"])}
    tokenizer = type(word_tokenizer())(vocab=vocab)
    table = torch.eye(len(vocab))
    table[vocab["sorry"]] = table[vocab["un"]] + table[vocab["##happy"]]
    given = data.Split(["a"], [("Unhappy!  (glad)",)], [1])
    found = augment.augment(given, tokenizer, table, None, copies=1, seed=0, replace=1.0, candidates=1)
    assert found.texts[1][0].startswith("Sorry!  (")
    assert found.texts[1][0].endswith(")")
    assert len(make(data.Split(["a"], [("zzz",)], [1])).texts) == 4


def test_masking() -> None:
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    encoded = data.encode(tokenizer, masked_lm.passages([t for (t,) in split(rows=400).texts]), masked_lm.TEXT, 16)
    weights = masked_lm.token_weights(encoded, tokenizer, 0.7)
    counts = torch.bincount(torch.tensor([i for row in encoded.features["input_ids"] for i in row]), minlength=31)
    assert (weights[tokenizer.all_special_ids] == 0).all()
    words = weights > 0
    torch.testing.assert_close(weights[words], counts[words].clamp(min=1).float() ** -0.7)
    hidden, replaced, left, total = 0, 0, 0, 0
    for step in range(12):
        batch = data.collate(tokenizer, encoded, list(range(32 * step, 32 * step + 32)))
        before, mask = batch["input_ids"].clone(), batch["attention_mask"]
        labels = masked_lm.mask_tokens(batch["input_ids"], mask, weights, tokenizer)
        chosen = labels >= 0
        assert int(chosen.sum()) == -(-15 * int(mask.sum()) // 100)
        assert torch.equal(labels[chosen], before[chosen])
        assert torch.equal(batch["input_ids"][~chosen], before[~chosen])
        assert mask[chosen].all()
        assert (before[chosen] > 4).all()
        after = batch["input_ids"][chosen]
        hidden += int((after == tokenizer.mask_token_id).sum())
        left += int((after == before[chosen]).sum())
        replaced += int(((after != before[chosen]) & (after != tokenizer.mask_token_id)).sum())
        total += int(chosen.sum())
    assert hidden / total == pytest.approx(0.8, abs=0.06)
    assert replaced / total == pytest.approx(0.1, abs=0.05)
    assert left / total == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "albert", "mpnet"])
def test_logits_at_chosen_tokens_are_those_of_all(family: str) -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if family == "distilbert":
        shape = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    if family in ("electra", "albert"):
        shape["embedding_size"] = 8
    model = AutoModelForMaskedLM.from_config(
        AutoConfig.for_model(family, vocab_size=40, pad_token_id=1, **shape)
    ).eval()
    ids, chosen = torch.randint(5, 40, (3, 7)), torch.rand(3, 7) < 0.4
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [1] * 3 + [0] * 4])
    weights = list(model.parameters())

    def gradients(logits: torch.Tensor) -> list[Any]:
        return list(torch.autograd.grad(logits.square().sum(), weights, allow_unused=True))

    whole = model(input_ids=ids, attention_mask=mask).logits[chosen]
    found = masked_lm.logits_at(model, {"input_ids": ids, "attention_mask": mask}, chosen)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(gradients(found), gradients(whole))
    assert model(input_ids=ids).logits.shape == (3, 7, 40)  # the next pass is as before


def test_a_masked_lm_without_a_head_is_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body and the embeddings stay as they are; what lies between them and the logits learns."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    body = BertModel(bert_config(1, 16, initializer_range=0.3), add_pooling_layer=False)
    models.save(body, tokenizer, tmp_path / "body", "")
    models.save(lm(), tokenizer, tmp_path / "whole", "")
    assert masked_lm.load(str(tmp_path / "whole"))[1]
    model, whole = masked_lm.load(str(tmp_path / "body"))
    assert not whole
    before = {name: p.clone() for name, p in model.base_model.named_parameters()}
    encoded = data.encode(tokenizer, masked_lm.passages([t for (t,) in split(rows=200).texts]), masked_lm.TEXT, 16)

    def loss() -> float:
        torch.manual_seed(1)
        batch = data.collate(tokenizer, encoded, list(range(100)))
        weights = masked_lm.token_weights(encoded, tokenizer, 0.0)
        labels = masked_lm.mask_tokens(batch["input_ids"], batch["attention_mask"], weights, tokenizer)
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return float(torch.nn.functional.cross_entropy(logits[labels >= 0], labels[labels >= 0]))

    monkeypatch.setitem(masked_lm.HEAD_RECIPE, "steps", 60)
    monkeypatch.setitem(masked_lm.HEAD_RECIPE, "lr", 1e-2)
    ledger, start = train.Ledger(), loss()
    masked_lm.train_head(model.eval(), tokenizer, encoded, ledger)
    assert loss() < start - 0.3
    assert ledger.teacher_examples == 60 * 32
    assert ledger.student_examples == 0
    for name, parameter in model.base_model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_family_without_masked_lm_is_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2Model

    GPT2Model(GPT2Config(vocab_size=31, n_embd=16, n_layer=1, n_head=1)).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="masked language model"):
        masked_lm.load(str(tmp_path))
