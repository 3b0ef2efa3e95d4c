"""Packed low-bit files: bytes by hand, exact products, damage, graphs; augmentation: what is replaced, and by what."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import NEGATIVE, NEUTRAL, POSITIVE, bert_config, sentence, tiny_bert, word_tokenizer
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, BertForMaskedLM, BertForSequenceClassification
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from common import models
from common.layers import augment, onnx, packed
from common.tasks import Split
from common.train import Ledger
from methods.xtc import quantize
from pocket.models import SPECIAL_TOKENS

# --- packed: codes and products ------------------------------------------------------------------------------

LARGEST = {1: 1, 2: 1, 8: packed.LARGEST}


def codes_of(rows: int, columns: int, bits: int) -> Tensor:
    low = LARGEST[bits]
    found = torch.randint(-low, low + 1, (rows, columns), generator=torch.Generator().manual_seed(bits))
    return torch.where(found > 0, 1, -1) if bits == 1 else found


def test_bytes_by_hand() -> None:
    """The layout that the file's docstring documents."""
    for bits, codes, expected in (
        (1, [1, -1, -1, 1, 1, 1, -1, -1, 1], [0b00111001, 0b00000001]),
        (2, [-1, 0, 1, 0, 1], [0b01100100, 0b00000010]),
        (8, [-127, 0, 127], [1, 128, 255]),
    ):
        assert packed.pack(torch.tensor([codes]), bits).tolist() == [expected]
        assert packed.pack(torch.tensor([codes]).float(), bits).tolist() == [expected]


@pytest.mark.parametrize("bits", LARGEST)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (2, 9), (4, 33), (1, 770)])
def test_there_and_back(bits: int, shape: tuple[int, int]) -> None:
    small = packed.pack(codes_of(*shape, bits), bits)
    assert (small.dtype, *small.shape) == (torch.uint8, shape[0], -(-shape[1] * bits // 8))
    found = packed.unpack(small, bits, shape[1])
    assert found.dtype == torch.int8
    assert (found == codes_of(*shape, bits)).all()


@pytest.mark.parametrize("often", [False, True])
@pytest.mark.parametrize("bits", LARGEST)
@pytest.mark.parametrize("kernel", ["vnni", "avx2", "floats"])
def test_products_are_exact_sums_of_integers(
    kernel: str, bits: int, often: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every kernel, also where all terms add up, of single rows and columns, and of inputs that lie by column."""
    if kernel == "avx2" and not torch.cpu._is_avx2_supported():
        pytest.skip("a processor without AVX2")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: kernel == "vnni")
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: kernel == "avx2")
    for M, K, N in (*itertools.product((1, 2, 5), repeat=3), (33, 64, 24), (2, 1024, 3)):
        x, codes = torch.randint(-127, 128, (M, K)).float(), codes_of(N, K, bits).to(torch.int8)
        x[0], codes[0] = 127, LARGEST[bits]
        exact = torch.tensor(np.einsum("mk,nk->mn", x.double().numpy(), codes.double().numpy()))
        if bits < 8:  # the others' pairs overflow on processors without VNNI
            product = packed.product_with(codes, often)
            assert (product(x).double() == exact).all()
            assert (product(x.T.clone(memory_format=torch.contiguous_format).T).double() == exact).all()
        assert (F.linear(x, codes.float()).double() == exact).all()


def test_activations_by_definition() -> None:
    """Per token: scale max / 127, codes round(x / scale); zeros stay zeros; clipped first where that is asked."""
    x = torch.randn(2, 3, 16) * torch.tensor([[[1e-3], [1.0], [50.0]]])
    x[1, 0] = 0
    codes, scale = packed.activation_codes(x)
    torch.testing.assert_close(scale[0], x[0].abs().amax(-1, keepdim=True) / 127)
    assert (codes[1, 0] == 0).all()
    assert (codes == codes.round()).all()
    assert ((codes * scale - x).abs() <= scale / 2 * (1 + 1e-4)).all()
    half, _ = packed.activation_codes(torch.randn(1000, 8, dtype=torch.bfloat16))
    assert half.abs().max() == 127  # int8 has no 128
    codes, scale = packed.activation_codes(torch.tensor([[5.0, 1.0]]), clip=2.5)
    torch.testing.assert_close(codes * scale, torch.tensor([[2.5, 1.0]]), atol=0.01, rtol=0)


# --- packed: files -------------------------------------------------------------------------------------------


def small_model(bits: int = 1, rank: int = 0) -> BertForSequenceClassification:
    model = tiny_bert(2, 48).eval()
    quantize(model, bits, lora_rank=rank)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_U"):
            nn.init.normal_(parameter)
    return model


def logits_of(model: Any) -> Tensor:
    with torch.no_grad():
        return model(**word_tokenizer()(["the film was good", "a"], padding=True, return_tensors="pt")).logits


@pytest.mark.parametrize(("bits", "rank"), [(1, 0), (2, 0), (8, 0), (1, 3)])
def test_a_folder_gives_the_same_bits(bits: int, rank: int, tmp_path: Path) -> None:
    """Trained form, packed form, the library's folder: logits equal to the last bit. A file holds the documented names
    and types, and no float copy of a packed weight."""
    model = small_model(bits, rank)
    before = logits_of(model)
    assert torch.equal(logits_of(packed.pack_model(model)), before)
    models.save(model, word_tokenizer(), tmp_path / "folder", "")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder").eval()
    assert torch.equal(logits_of(again), before)
    assert torch.equal(logits_of(packed.keep(again)), before)
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder").eval()
    changed = {name: value.flip(0) if name.endswith("packed") else value for name, value in again.state_dict().items()}
    for one in (again, other):
        one.load_state_dict(changed)
    assert torch.equal(logits_of(again), logits_of(other))  # codes that were laid out are laid out anew
    assert not torch.equal(logits_of(again), before)
    # the library alone would load a BERT without these weights
    assert json.loads((tmp_path / "folder" / "config.json").read_text())["model_type"] not in CONFIG_MAPPING_NAMES
    with safe_open(tmp_path / "folder" / "model.safetensors", "pt") as file:
        query = "bert.encoder.layer.0.attention.self.query"
        held = {n.removeprefix(query): file.get_tensor(n) for n in file.keys() if n.startswith(query)}  # noqa: SIM118
    assert held.keys() - {".lora_U", ".lora_V"} == {".packed", ".scale", ".bias"}
    assert held[".packed"].shape == (48, 6 * bits)
    assert (held[".scale"].dtype, held[".packed"].dtype) == (torch.float32, torch.uint8)


@pytest.mark.parametrize("kernel", ["vnni", "avx2", "floats"])
@pytest.mark.parametrize(("bits", "rank"), [(1, 0), (8, 0), (2, 3)])
def test_copies_and_other_precisions(bits: int, rank: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy and a pickle have the bits of a model, kept or not; bfloat16 rounds and float64 does not."""
    if kernel == "avx2" and not torch.cpu._is_avx2_supported():
        pytest.skip("a processor without AVX2")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: kernel == "vnni")
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: kernel == "avx2")
    model = packed.pack_model(small_model(bits, rank))
    before = logits_of(model)
    for keep in (False, True):
        model = packed.keep(model) if keep else model
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            kept = [module.kept for module in again.modules() if isinstance(module, packed.PackedLinear)]
            assert [one is not None for one in kept] == [keep] * len(kept)
            assert torch.equal(logits_of(again), before)
        half, double = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).double()
        assert (logits_of(half).dtype, logits_of(double).dtype) == (torch.bfloat16, torch.float64)
        torch.testing.assert_close(logits_of(half).float(), before, atol=0.1, rtol=0.1)
        torch.testing.assert_close(logits_of(double).float(), before, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("bits", [1, 2])
def test_a_packed_model_as_a_graph(bits: int, tmp_path: Path) -> None:
    """Its logits are the packed model's, for any batch and length, but for inputs that lie between two codes: which one
    float32 takes there is not the same in two programs. So they are nearer to them than those of floats are."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = tiny_bert(2, 160)  # columns that fill no block
    quantize(model, bits)
    packed.pack_model(model).eval()
    tokenizer, plain = word_tokenizer(), packed.unpacked(model).eval()
    bytes_written = onnx.save(model, tokenizer, tmp_path / "student.onnx")
    assert bytes_written == (tmp_path / "student.onnx").stat().st_size
    session = runtime.InferenceSession(tmp_path / "student.onnx", providers=["CPUExecutionProvider"])
    for texts in (["the film"], ["the film", "a dull and cold story with bad music in it", "great"]):
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        (found,) = session.run(["logits"], {name: values.numpy() for name, values in batch.items()})
        with torch.no_grad():
            wanted, floats = model(**batch).logits, plain(**batch).logits
        assert (torch.from_numpy(found) - wanted).abs().max() < (floats - wanted).abs().max() < wanted.abs().max()
    assert packed.PackedLinear in map(type, model.modules())  # the model is left as it was


# --- augmentation --------------------------------------------------------------------------------------------

WORDS = {word for word in (*POSITIVE, *NEGATIVE, *NEUTRAL) if augment.replaceable(word)}


def lm() -> BertForMaskedLM:
    torch.manual_seed(0)
    return BertForMaskedLM(bert_config(2, 16, initializer_range=0.3)).eval()


def split(pairs: bool = False, rows: int = 40) -> Split:
    rng = random.Random(0)
    texts: Any = [tuple(sentence(rng, (NEGATIVE, POSITIVE)[i % 2]) for _ in range(1 + pairs)) for i in range(rows)]
    return Split([f"train-{i}" for i in range(rows)], texts, [i % 2 for i in range(rows)])


def make(given: Split, model: Any = None, **changes: Any) -> Split:
    table = lm().get_input_embeddings().weight.detach()  # type: ignore[union-attr, operator]
    settings: dict[str, Any] = {"copies": 3, "seed": 0, "candidates": 4} | changes
    return augment.augment(given, word_tokenizer(), table, model, **settings)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_copies_keep_labels_lengths_and_function_words(pairs: bool, by_model: bool) -> None:
    """One text of a pair changes, word by word, with the stated probability; the same seed gives the same copies, and
    a shorter split its own."""
    given, model = split(pairs), lm() if by_model else None
    found = make(given, model)
    assert (found.ids[:40], found.texts[:40], found.labels[:40]) == (given.ids, given.texts, given.labels)
    assert len(set(found.ids)) == len(found.texts) == len(found.labels) > 40 * (1 + 2 * (1 + pairs))
    copies = [(identity.split("+")[0], texts) for identity, texts in zip(found.ids, found.texts, strict=True)]
    assert len(set(copies)) == len(copies)  # no copy twice, and none that is the text itself
    changed = []
    for identity, texts, label in zip(found.ids[40:], found.texts[40:], found.labels[40:], strict=True):
        origin, number = given.ids.index(identity.split("+")[0]), int(identity.split("+")[1])
        assert label == given.labels[origin]
        for field, (text, before) in enumerate(zip(texts, given.texts[origin], strict=True)):
            words = list(zip(text.split(), before.split(), strict=True))
            assert all(new == old or (field == number // 3 and {new, old} <= WORDS) for new, old in words)
            changed += [new != old for new, old in words if field == number // 3 and old in WORDS]
    asked = 3 * sum(word in WORDS for texts in given.texts for text in texts for word in text.split())
    assert sum(changed) / asked == pytest.approx(augment.REPLACE, abs=0.07)  # a copy left out has mostly no change
    assert make(given, model) == found
    assert make(given, model, seed=1).texts != found.texts
    few = make(Split(given.ids[:5], given.texts[:5], given.labels[:5]), model)
    assert few.texts[5:] == found.texts[40 : 40 + len(few.texts) - 5]


def test_the_masked_lm_chooses_what_fits_its_place() -> None:
    """Candidates are the model's best words at the masked place, by a loop over one text."""
    model, tokenizer, ledger = lm(), word_tokenizer(), Ledger()
    given = Split(["a"], [("the film was good",)], [1])
    found = make(given, model, replace=1.0, candidates=2, copies=20, ledger=ledger)
    words = augment.vocabulary_words(tokenizer)
    assert set(words) == WORDS
    with torch.no_grad():
        logits = model(**tokenizer("the film was [MASK]", return_tensors="pt")).logits[0, 4]
    best = sorted((w for w in words if w != "good"), key=lambda w: -logits[words[w]].item())[:2]
    assert {text.split()[3] for (text,) in found.texts[1:]} == set(best)
    assert ledger.teacher_examples == 2  # "film" and "good", asked once each


def test_words_of_several_pieces_take_the_neighbours_of_their_mean() -> None:
    """By cosine, nearest first, and never themselves; the text around a word, and its capital, stay."""
    vocab = {w: i for i, w in enumerate([*SPECIAL_TOKENS, "un", "##happy", "glad", "sorry", "fine", "!"])}
    tokenizer, table = type(word_tokenizer())(vocab=vocab), torch.eye(len(vocab))
    table[vocab["sorry"]] = 3 * (table[vocab["un"]] + table[vocab["##happy"]])
    found = augment.augment(Split(["a"], [("Unhappy!  (glad)",)], [1]), tokenizer, table, None, 1, 0, 1.0, 1)
    assert found.texts[1][0].startswith("Sorry!  (")
    assert found.texts[1][0].endswith(")")
    table[vocab["fine"]] = -table[vocab["glad"]]
    words = augment.vocabulary_words(tokenizer)
    nearest = augment.neighbours(tokenizer, words, table, ["glad"], len(words))["glad"]
    assert nearest[-1] == "fine"
    assert "glad" not in nearest
    assert len(make(Split(["a"], [("zzz",)], [1])).texts) > 1  # a word that nobody knows has neighbours too
