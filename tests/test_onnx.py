"""Packed students as graphs of ONNX Runtime, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import tiny_bert, word_tokenizer

from common.layers import onnx, packed
from methods import xtc


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_packed_model_as_a_graph(bits: int, tmp_path: Path) -> None:
    """Its logits are the packed model's, for any batch and length, but for inputs that lie between two codes: which one
    float32 takes there is not the same in two programs. So they are nearer to them than those of floats are."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = tiny_bert(2, 160)  # columns that fill no block
    xtc.quantize(model, bits)
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
