"""The shipped pre-trained weights: they belong to this generator and this vocabulary, and they predict words."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from common import backbone, models, pocket

SHIPPED = {**models.POCKET, "pocket-long": models.POCKET_LONG_FOLDER}


@pytest.fixture(scope="module", params=SHIPPED.values(), ids=SHIPPED)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def note(folder: Path) -> dict:
    return json.loads((folder / "backbone.json").read_text(encoding="utf-8"))


def test_names_and_depths() -> None:
    """A pocket model's name says its depth, and the command of its note names it."""
    assert set(backbone.LAYERS.values()) == set(models.POCKET)
    for layers, name in backbone.LAYERS.items():
        assert models.load_config(models.source(name)).num_hidden_layers == layers


def test_weights_and_generator_belong_together(folder: Path, note: dict) -> None:
    assert int(note["generator_version"]) <= int(pocket.VERSION)
    assert note["vocabulary_hash"] == backbone.vocabulary_hash()
    assert note["weights_hash"] == models.file_digest(folder)


def test_the_tokenizer_in_the_folder_is_the_generators(folder: Path) -> None:
    saved, made = models.load_tokenizer(str(folder)), models.pocket_tokenizer()
    assert saved.get_vocab() == made.get_vocab()
    document = pocket.unlabelled(1)[0]
    assert saved(document)["input_ids"] == made(document)["input_ids"]
    assert saved.unk_token_id not in saved(document)["input_ids"]


def test_it_predicts_masked_words_of_text_it_has_not_seen(folder: Path, note: dict) -> None:
    """The note's figure, from the files: half precision costs nothing that can be seen."""
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    if folder == models.POCKET_LONG_FOLDER:
        documents = backbone.long_texts(models.pocket_tokenizer(), backbone.LONG_INPUTS // 20, seed=2)
        found = backbone.long_accuracy(model, models.pocket_tokenizer(), documents)
        assert found == pytest.approx(note["held_out_masked_accuracy"], abs=0.005)
        return
    held_out = [(text,) for text in pocket.unlabelled(backbone.DEV, seed=2)]
    found = backbone.accuracy(model, models.pocket_tokenizer(), held_out)
    assert found == pytest.approx(note["held_out_masked_accuracy"], abs=0.005)
    assert found > 0.4  # the most frequent word alone is right far less often


def test_masking() -> None:
    tokenizer = models.pocket_tokenizer()
    inputs = backbone.batch_of(tokenizer, [(text,) for text in pocket.unlabelled(300)])
    before = inputs["input_ids"].clone()
    labels = backbone.mask(inputs, tokenizer, torch.Generator().manual_seed(0))
    chosen, words = labels >= 0, before >= len(models.SPECIAL_TOKENS)
    assert not (chosen & ~words).any()  # never a special token or padding
    assert chosen.sum() / words.sum() == pytest.approx(backbone.MASKED, abs=0.02)
    assert torch.equal(labels[chosen], before[chosen])
    assert torch.equal(inputs["input_ids"][~chosen], before[~chosen])
    hidden = inputs["input_ids"][chosen] == tokenizer.mask_token_id
    assert hidden.float().mean() == pytest.approx(0.8, abs=0.03)
    kept = inputs["input_ids"][chosen] == before[chosen]
    assert kept.float().mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("layers", [4, 6])
def test_training_starts(layers: int, tmp_path: Path) -> None:
    """The command that made the weights still runs and writes the folder it says."""
    backbone.main(layers, steps=2, folder=tmp_path / "bert", inputs=50, documents=50)
    written = json.loads((tmp_path / "bert" / "backbone.json").read_text(encoding="utf-8"))
    assert written["weights_hash"] == models.file_digest(tmp_path / "bert")
    assert models.load_config(str(tmp_path / "bert")).num_hidden_layers == layers


def test_training_the_long_one_starts(tmp_path: Path) -> None:
    backbone.main_long(stages=((128, 1), (2048, 1)), folder=tmp_path / "bert", inputs=20)
    written = json.loads((tmp_path / "bert" / "backbone.json").read_text(encoding="utf-8"))
    assert (written["weights_hash"], written["steps"]) == (models.file_digest(tmp_path / "bert"), 2)
    assert models.load_config(str(tmp_path / "bert")).max_position_embeddings == models.POCKET_LONG


def test_a_sentence_stands_twice_or_the_document_as_it_is() -> None:
    documents = [[[10 * d + s] * 3 for s in range(5)] for d in range(1, 5)]
    rng, seen = random.Random(0), set()
    for _ in range(50):
        block = backbone.long_block(rng, documents, 60)
        counts = {count // 3 for count in Counter(block).values()}
        seen.add("twice" if all(count % 2 == 0 for count in counts) else "once")
    assert seen == {"twice", "once"}


def test_it_reads_a_word_off_the_other_copy_a_thousand_words_away() -> None:
    """A word that nothing beside it tells: hidden in one copy of a sentence, it is found if the other stands far away,
    and is not without the other."""
    tokenizer = models.pocket_tokenizer()
    model = BertForMaskedLM.from_pretrained(models.POCKET_LONG_FOLDER, dtype=torch.float32).eval()
    rng = random.Random(0)
    names, verbs = ("leon", "laura", "edgar", "diana", "felix"), ("thanked", "hated", "hired")
    fill = [f"{text} " for text in pocket.generate("hotpot", "train", 60, seed=3)["context"]]
    right = {True: 0, False: 0}
    for _ in range(20):
        name, told = rng.choice(names), f"the waiter {rng.choice(verbs)} {{}} in the garden on friday . "
        far = " ".join("".join(rng.sample(fill, 40)).split()[:1400])
        for copied in right:
            text = (told.format(name) if copied else "") + far + " . " + told.format("[MASK]")
            inputs = tokenizer(text, return_tensors="pt")
            at = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
            with torch.no_grad():
                best = model(**inputs).logits[0, at].argmax().item()
            right[copied] += best == tokenizer.convert_tokens_to_ids(name)
    assert right[True] >= 8, right
    assert right[False] <= 2, right


def test_stacking_repeats_the_layers_from_the_first_on() -> None:
    base, model = (BertForMaskedLM(backbone.config(50, layers)) for layers in (4, 6))
    backbone.stacked(model, base)
    for i, layer in enumerate(model.bert.encoder.layer):
        for name, weight in layer.named_parameters():
            assert torch.equal(weight, base.bert.encoder.layer[i % 4].get_parameter(name))
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, base.bert.embeddings.word_embeddings.weight)
