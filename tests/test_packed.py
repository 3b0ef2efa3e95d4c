"""The packed format: bytes by hand, every shape there and back, exact products, damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import bert_config, word_tokenizer
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

from common.args import BadInput
from common.layers import packed
from methods.xtc import pack, quantize


def random_codes(rows: int, columns: int, bits: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    if bits == 1:
        return torch.tensor(rng.choice([-1, 1], (rows, columns)))
    return torch.tensor(rng.integers(-packed.LARGEST[bits], packed.LARGEST[bits] + 1, (rows, columns)))


def test_bytes_by_hand() -> None:
    """The layout that the file's docstring documents."""
    signs = torch.tensor([[1, -1, -1, 1, 1, 1, -1, -1, 1]])
    assert packed.pack(signs, 1).tolist() == [[0b00111001, 0b00000001]]
    ternary = torch.tensor([[-1, 0, 1, 0, 1]])
    assert packed.pack(ternary, 2).tolist() == [[0b01100100, 0b00000010]]
    assert packed.pack(torch.tensor([[-7, 7, 0]]), 4).tolist() == [[0xF1, 0x08]]
    assert packed.pack(torch.tensor([[-127, 0, 127]]), 8).tolist() == [[1, 128, 255]]


@pytest.mark.parametrize("bits", packed.BITS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (2, 9), (7, 31), (4, 33), (1, 770)])
def test_there_and_back(bits: int, shape: tuple[int, int]) -> None:
    codes = random_codes(*shape, bits)
    small = packed.pack(codes, bits)
    assert small.dtype == torch.uint8
    assert small.shape == (shape[0], -(-shape[1] * bits // 8))
    found = packed.unpack(small, bits, shape[1])
    assert found.dtype == torch.int8
    assert (found == codes).all()


def test_float_codes_pack_alike() -> None:
    codes = random_codes(4, 13, 2)
    assert (packed.pack(codes.float(), 2) == packed.pack(codes, 2)).all()


@pytest.mark.parametrize("bits", packed.BITS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (33, 64, 24), (2, 1024, 3)])
def test_integer_and_float_products_are_the_same_exact_sums(bits: int, shape: tuple[int, int, int]) -> None:
    """Also where all terms add up: the largest sum that a linear can have."""
    M, K, N = shape
    x = torch.randint(-127, 128, (2, M, K)).float()
    codes = random_codes(N, K, bits).to(torch.int8)
    x[0, 0], codes[0] = 127, packed.LARGEST[bits]
    exact = torch.tensor(np.einsum("bmk,nk->bmn", x.double().numpy(), codes.double().numpy()))
    assert packed.is_exact(bits, K)
    assert exact.abs().max() < packed.EXACT
    assert (packed.integer_product(x, codes).double() == exact).all()
    assert (F.linear(x, codes.float()).double() == exact).all()


def test_where_exactness_ends() -> None:
    assert packed.is_exact(8, 1040)
    assert not packed.is_exact(8, 1041)
    assert packed.is_exact(4, 18_000)
    assert all(packed.is_exact(bits, 100_000) for bits in (1, 2))


def test_activations_by_definition() -> None:
    """Per token: scale max/127, codes round(x / scale); half to even as NumPy has it; zeros stay zeros."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 16)).astype(np.float32) * np.array([[[1e-3], [1.0], [50.0]]], dtype=np.float32)
    x[1, 0] = 0
    codes, scale = packed.activation_codes(torch.tensor(x))
    expected = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    np.testing.assert_allclose(scale[x.any(-1, keepdims=True)], expected[x.any(-1, keepdims=True)], rtol=1e-6)
    assert (codes[1, 0] == 0).all()
    assert codes.abs().max() == 127
    assert (codes == codes.round()).all()
    assert np.abs(codes.numpy() * scale.numpy() - x).max(-1).max() <= (expected / 2).max() * (1 + 1e-5)
    clipped, scale = packed.activation_codes(torch.tensor([[5.0, 1.0]]), clip=2.5)
    np.testing.assert_allclose((clipped * scale).numpy(), [[2.5, 1.0]], atol=0.01)


def test_an_embedding_unpacks_the_rows_it_looks_up() -> None:
    module = packed.PackedEmbedding(6, 11, 2)
    codes, scale = random_codes(6, 11, 2), torch.rand(6, 1)
    module.packed, module.scale = packed.pack(codes, 2), scale
    ids = torch.tensor([[5, 0, 0], [2, 3, 5]])
    assert (module(ids) == F.embedding(ids, codes * scale)).all()


# --- files -------------------------------------------------------------------------------------------------


def small_model(bits: int = 1, rank: int = 0) -> BertForSequenceClassification:
    torch.manual_seed(0)
    model = BertForSequenceClassification(bert_config(2, 48, vocab=31, initializer_range=0.3)).eval()
    quantize(model, bits, lora_rank=rank)
    for module in model.modules():
        if isinstance(module, nn.Linear) and rank and getattr(module, "lora_U", None) is not None:
            nn.init.normal_(module.lora_U)  # type: ignore[arg-type]
    return model


def inputs() -> dict[str, Tensor]:
    return dict(word_tokenizer()(["the film was good", "a"], padding=True, return_tensors="pt"))


@pytest.mark.parametrize(("bits", "rank"), [(1, 0), (2, 0), (4, 0), (8, 0), (1, 3)])
def test_a_file_and_a_folder_give_the_same_bits(bits: int, rank: int, tmp_path: Path) -> None:
    """Trained form, packed form, the library's folder, the single file: logits equal to the last bit."""
    model = small_model(bits, rank)
    with torch.no_grad():
        before = model(**inputs()).logits
    assert torch.equal(pack(model)(**inputs()).logits, before)
    model.save_pretrained(tmp_path / "folder")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder").eval()
    assert torch.equal(again(**inputs()).logits, before)
    size = packed.save(model, word_tokenizer(), tmp_path / "file")
    assert size == (tmp_path / "file").stat().st_size
    loaded, tokenizer = packed.load(tmp_path / "file")
    assert torch.equal(loaded(**inputs()).logits, before)
    assert tokenizer("the film").input_ids == word_tokenizer()("the film").input_ids
    assert not any(isinstance(m, nn.Linear) for m in loaded.bert.encoder.modules())


def test_what_a_file_holds(tmp_path: Path) -> None:
    """The documented names and types; no float copy of a packed weight; half precision for the rest if asked."""
    model = pack(small_model(1))
    whole = packed.save(model, word_tokenizer(), tmp_path / "whole")
    half = packed.save(model, word_tokenizer(), tmp_path / "half", half=True)
    assert half < whole
    with safe_open(tmp_path / "half", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    query = "bert.encoder.layer.0.attention.self.query"
    assert {n for n in tensors if n.startswith(query)} == {f"{query}.packed", f"{query}.scale", f"{query}.bias"}
    assert tensors[f"{query}.packed"].shape == (48, 6)
    assert tensors[f"{query}.scale"].dtype == torch.float32
    assert tensors[f"{query}.bias"].dtype == tensors["classifier.weight"].dtype == torch.float16
    assert tensors["bert.embeddings.word_embeddings.packed"].shape == (31, 6)
    loaded, _ = packed.load(tmp_path / "half")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    torch.testing.assert_close(loaded(**inputs()).logits, model(**inputs()).logits, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("damage", ["absent", "text", "cut", "other", "tokenizer"])
def test_other_files_are_refused_by_name(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "model.packed"
    packed.save(pack(small_model()), word_tokenizer(), path)
    if damage == "absent":
        path.unlink()
    elif damage == "text":
        path.write_text("no weights")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "other":
        small_model().save_pretrained(tmp_path)
        path = tmp_path / "model.safetensors"
    else:
        whole = path.read_bytes()
        place = whole.index(b"x\xda")  # the zlib stream
        path.write_bytes(whole[: place + 20] + bytes(40) + whole[place + 60 :])
    with pytest.raises(BadInput, match=path.name):
        packed.load(path)
