"""A student as a graph for ONNX Runtime. Packed weights stay at 2 bits (8) on disk and in memory.

    onnx.save(model, tokenizer, Path("student.onnx"))

A packed linear is ONNX Runtime's operator MatMulNBits on the rounded input: whole numbers times whole numbers, whose
sums are exact in float32. So the logits are the packed model's, up to the rounding of what stands between the linears.
One bit takes two here, since that operator has no fewer. An embedding looks up bytes, and in a table of 256 rows their
codes.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from common import models
from common.errors import BadInput, first_line
from common.layers import packed
from common.results import replacing

BLOCK = 128  # columns that share a scale in MatMulNBits; here all scales are 1


class Linear(nn.Module):
    """`PackedLinear` in operators that ONNX Runtime has. It can be exported, and not be run."""

    weight: Tensor
    scales: Tensor

    def __init__(self, linear: packed.PackedLinear) -> None:
        super().__init__()
        self.linear, self.bits = linear, max(2, linear.bits)
        codes, zero = packed.unpack(linear.packed, linear.bits, linear.in_features), 2 ** (self.bits - 1)
        raised = F.pad(codes.int() + zero, (0, -linear.in_features % BLOCK), value=zero)
        shifts = torch.arange(0, 8, self.bits)
        parts = raised.view(linear.out_features, -1, BLOCK * self.bits // 8, 8 // self.bits)
        self.register_buffer("weight", (parts << shifts).sum(-1).to(torch.uint8))
        self.register_buffer("scales", torch.ones(parts.shape[:2]))

    def forward(self, x: Tensor) -> Tensor:
        given = self.linear
        N, K = given.out_features, given.in_features
        codes, scale = packed.activation_codes(x, given.clip)
        sums = torch.onnx.ops.symbolic(
            "com.microsoft::MatMulNBits", (codes, self.weight, self.scales),
            {"K": K, "N": N, "bits": self.bits, "block_size": BLOCK},
            dtype=codes.dtype, shape=(*codes.shape[:-1], N), version=1,
        )  # fmt: skip
        return packed.rescaled(sums, codes, scale, given.scale, given.bias, given.lora_U, given.lora_V)


class Embedding(nn.Module):
    """`PackedEmbedding` likewise."""

    def __init__(self, embedding: packed.PackedEmbedding) -> None:
        super().__init__()
        self.embedding = embedding
        every = torch.arange(256, dtype=torch.uint8)[:, None]
        self.register_buffer("table", packed.unpack(every, embedding.bits, 8 // embedding.bits).float())

    def forward(self, ids: Tensor) -> Tensor:
        given = self.embedding
        codes: Any = self.table[given.packed[ids].long()].flatten(-2)  # type: ignore[index]
        return codes[..., : given.embedding_dim] * given.scale[ids]


def save(model: PreTrainedModel, tokenizer: Any, path: Path) -> int:
    """Write the graph of a model, for any batch and length; return its bytes. Needs `onnx` and `onnxscript`; `BadInput`
    for what PyTorch cannot export.

    Its inputs are called as the tokenizer's outputs, of which those that the model does not read are no inputs; its
    output is `logits`.
    """
    model = copy.deepcopy(model).eval()
    model.config.use_cache = False  # of a decoder, whose keys and values would be outputs
    for name, module in list(model.named_modules()):
        if isinstance(module, packed.PackedLinear):
            model.set_submodule(name, Linear(module))
        elif isinstance(module, packed.PackedEmbedding):
            model.set_submodule(name, Embedding(module))
    made = tokenizer(["a text", "another, longer text"], padding=True, return_tensors="pt")
    batch = {name: made[name] for name in models.inputs_of(model, made)}
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with replacing(path) as partial:
        try:
            torch.onnx.export(
                model, kwargs=batch, f=str(partial), input_names=list(batch), output_names=["logits"],
                dynamic_shapes=dict.fromkeys(batch, free), dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip
        except Exception as error:  # the exporter has many ways to say it
            why = first_line(error.__cause__ or error)
            raise BadInput(f"{path}: PyTorch cannot export a {model.config.model_type} ({why})") from error
    return path.stat().st_size
