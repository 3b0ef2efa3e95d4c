"""Models whose weights are low-bit integers: packed in memory and on disk, multiplied as integers where that is fast.

    from common.layers import packed                                           # from here on the library reads them
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER).eval()  # of a run
    packed.keep(model)                                                         # faster, a byte a weight in memory

A weight of `bits` bits is codes times a scale. For every packed linear or embedding NAME, a file holds

    NAME.packed   uint8 (rows, ceil(columns bits / 8)): the codes of a row, the first in the lowest bits of its byte.
                  1 bit: 0 is -1, 1 is +1. 2 bits: code + 1, so 0, 1, 2 are -1, 0, +1. 8 bits: code + 128, of codes
                  from -127 to 127.
    NAME.scale    float32, () for a linear and (rows, 1) for an embedding: weight = codes * scale
    NAME.bias     as in the library; NAME.lora_U (rows, r) and NAME.lora_V (r, columns) with an adapter

and every other tensor under the library's name. The configuration's entry `quantization_config` lists bits, rank and
modules.

Why integers: a linear's input is rounded to 8 bits per token, so its product with the weight's codes is a sum of
integers. Below 2^24 such a sum is exact in float32 too, in any order: whichever kernel adds it up, of floats or of
integers, every bit of the result is the same. With codes of 1 and 2 bits it stays below, up to 132,000 columns. Of 8
bits, whose sums are larger, all processors take the float kernel.

Memory: what stays is the packed bytes. A forward pass unpacks one weight at a time, by a table from a byte to all of
its codes, into int8 that lives as long as its product does; `keep` holds these instead. Shapes: ... leading, n rows of
a batch, K columns (inputs), N rows (outputs).
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

LARGEST = 127  # code of 8 bits, of a weight or an activation
OFFSET = {2: 1, 8: 128}  # what makes a code positive
TINY = 1e-12  # the least scale: a tensor of zeros has codes 0 or +1, and no infinite quotient
METHOD = "packed"  # the library's name of the format, in `quantization_config`


# --- codes and bytes -----------------------------------------------------------------------------------------


def pack(codes: Tensor, bits: int) -> Tensor:
    """(N, K) integer codes -> uint8 (N, ceil(K bits / 8))."""
    per_byte = 8 // bits
    raised = codes > 0 if bits == 1 else codes + OFFSET[bits]
    raised = F.pad(raised.to(torch.uint8), (0, -codes.shape[1] % per_byte)).unflatten(1, (-1, per_byte))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (raised << shifts).sum(-1, dtype=torch.uint8)


@functools.cache
def _table(bits: int, device: torch.device) -> Tensor:
    """(256,): for every byte, its 8 / bits codes as int8, side by side in one integer of as many bytes."""
    fields = torch.arange(256)[:, None] >> torch.arange(0, 8, bits) & (2**bits - 1)
    codes = 2 * fields - 1 if bits == 1 else fields - OFFSET[bits]
    whole = {1: torch.int64, 2: torch.int32}[bits]
    return codes.to(torch.int8).view(whole).flatten().to(device)


def unpack(packed: Tensor, bits: int, columns: int) -> Tensor:
    """uint8 (N, bytes) -> int8 (N, columns) codes."""
    if bits == 8:
        return (packed ^ OFFSET[8]).view(torch.int8)  # code + 128 differs from the code's own byte in the highest bit
    codes = _table(bits, packed.device).index_select(0, packed.flatten().int()).view(torch.int8)
    return codes.view(len(packed), -1)[:, :columns].contiguous()


# --- the arithmetic, of training and of packed models ----------------------------------------------------------


def activation_codes(x: Tensor, clip: float | None = None) -> tuple[Tensor, Tensor]:
    """(..., K) -> float integers in [-127, 127] of that shape, and each token's scale (..., 1): x ~ codes scale."""
    if clip is not None:
        x = x.clamp(-clip, clip)
    x = x.to(torch.promote_types(x.dtype, torch.float32))  # in half precision a code may be 128, which int8 has not
    # per token: scale = max |x| / 127
    scale = (x.abs().amax(-1, keepdim=True) / LARGEST).clamp(min=TINY)
    return (x / scale).round_(), scale


Product = Callable[[Tensor], Tensor]  # float integers (n, K) -> their sums with the codes of a weight (n, N)


def product_with(codes: Tensor, often: bool = False) -> Product:
    """The product with int8 codes (N, K) whose sums are those of `F.linear`, by this processor's fastest kernel. One
    that is called `often` may take long to lay the weight out."""
    cpu = codes.device.type == "cpu"
    onednn = cpu and torch.backends.mkldnn.is_available()
    # `_int_mm` writes nothing where a single row or column has a stride that means nothing: weights of one column go to
    # the next kernels, and inputs are copied row by row
    if onednn and torch.cpu._is_vnni_supported() and codes.shape[1] > 1:
        return lambda x: torch._int_mm(x.to(torch.int8, memory_format=torch.contiguous_format), codes.T).float()
    if cpu and often and torch.backends.quantized.engine in ("x86", "fbgemm"):
        # FBGEMM adds pairs of products in 16 bits, which codes below 8 bits cannot fill
        with warnings.catch_warnings(action="ignore"):  # that the type of its weights will go, in a later torch
            laid_out = torch.ops.quantized.linear_prepack(torch._make_per_tensor_quantized_tensor(codes, 1.0, 0), None)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        return lambda x: multiply(x.float(), 1.0, 128, laid_out)
    if onednn and torch.cpu._is_avx2_supported():  # `_int_mm` has no kernel for these; laying out anew pays at once
        weight = torch.ops.onednn.qlinear_prepack(codes, None)
        one, zero = torch.ones(1), torch.zeros(1, dtype=torch.long)
        floats: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")  # no bias, no rounding
        # unsigned activations: of signed ones oneDNN halves the codes here, so that no pair overflows
        return lambda x: torch.ops.onednn.qlinear_pointwise((x + 128).to(torch.uint8), 1.0, 128, weight, one, zero,
                                                            *floats)  # fmt: skip
    return lambda x: F.linear(x, codes.to(x.dtype))


class PackedLinear(nn.Module):
    """y = (codes of x . codes of W) (scale of x * scale of W) + adapter + bias, from packed codes. Inference only."""

    packed: Tensor
    scale: Tensor

    def __init__(self, inputs: int, outputs: int, bits: int, bias: bool, rank: int, clip: float | None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bits, self.clip = inputs, outputs, bits, clip
        self.register_buffer("packed", torch.zeros(outputs, -(-inputs * bits // 8), dtype=torch.uint8))
        self.register_buffer("scale", torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(outputs), requires_grad=False) if bias else None
        self.lora_U = nn.Parameter(torch.zeros(outputs, rank), requires_grad=False) if rank else None
        self.lora_V = nn.Parameter(torch.zeros(rank, inputs), requires_grad=False) if rank else None
        self.kept: Product | None = None  # by `keep`

    def product(self, often: bool = False) -> Product:
        """With the weight's codes, which are unpacked here."""
        codes = unpack(self.packed, self.bits, self.in_features)
        # of 8 bits long sums are not exact in floats: they are floats everywhere, so that all processors agree
        return product_with(codes, often) if self.bits < 8 else lambda x: F.linear(x, codes.to(x.dtype))

    def forward(self, x: Tensor) -> Tensor:
        x, scale = activation_codes(x, self.clip)
        sums = (self.kept or self.product())(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
        y = rescaled(sums, x, scale, self.scale, self.bias, self.lora_U, self.lora_V)
        return y.to(self.scale.dtype)  # of a model in half precision

    def _load_from_state_dict(self, *args: Any) -> None:
        """Other codes, which have to be laid out anew."""
        super()._load_from_state_dict(*args)
        self.kept = self.product(often=True) if self.kept else None

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: `keep` lays the codes out for one processor, so a copy does that again."""
        return self.__dict__ | {"kept": self.kept is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.kept = self.product(often=True) if state["kept"] else None


def rescaled(sums: Tensor, x: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None, U: Tensor | None,
             V: Tensor | None) -> Tensor:  # fmt: skip
    """Sums (..., N) of codes as the linear's output: both scales, the adapter on the rounded input, the bias."""
    y = sums * (scale * weight_scale)
    if U is not None and V is not None:
        y = y + F.linear(F.linear(x * scale, V.to(x.dtype)), U.to(x.dtype))
    return y if bias is None else y + bias


class PackedEmbedding(nn.Module):
    """Rows of codes, each with a scale of its own; a batch unpacks the rows that it looks up."""

    packed: Tensor
    scale: Tensor

    def __init__(self, rows: int, columns: int, bits: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.bits = rows, columns, bits
        self.register_buffer("packed", torch.zeros(rows, -(-columns * bits // 8), dtype=torch.uint8))
        self.register_buffer("scale", torch.zeros(rows, 1))

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.flatten()
        rows = unpack(self.packed[flat], self.bits, self.embedding_dim) * self.scale[flat]
        return rows.unflatten(0, ids.shape)


# --- the library's side: configuration and loading ---------------------------------------------------------------


@register_quantization_config(METHOD)
class PackedConfig(QuantizationConfigMixin):
    """`modules` are the dotted names of the linears and embeddings that are packed."""

    def __init__(self, bits: int, modules: Iterable[str], lora_rank: int = 0, clip: float | None = None,
                 quant_method: str = METHOD) -> None:  # fmt: skip
        self.quant_method = quant_method  # type: ignore[assignment]
        self.bits, self.modules, self.lora_rank, self.clip = bits, sorted(modules), lora_rank, clip


@register_quantizer(METHOD)
class PackedQuantizer(HfQuantizer):
    """Puts packed modules in the place of the library's before a file's weights are loaded."""

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: Any) -> PreTrainedModel:
        config: Any = self.quantization_config
        for name in config.modules:
            model.set_submodule(name, empty(model.get_submodule(name), config.bits, config.lora_rank, config.clip))
            # a family may draw a child's first weights in its parent's place: ModernBERT's those of its linear layers
            parent: Any = model.get_submodule(name.rpartition(".")[0])
            if not [*parent.parameters(recurse=False), *parent.buffers(recurse=False)]:
                parent._is_hf_initialized = True
        return model

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def empty(module: nn.Module, bits: int, rank: int = 0, clip: float | None = None) -> PackedLinear | PackedEmbedding:
    """The packed counterpart of a linear or an embedding, without its weights, on the same device."""
    with module.weight.device:  # type: ignore[union-attr]
        if isinstance(module, nn.Embedding):
            return PackedEmbedding(module.num_embeddings, module.embedding_dim, bits)
        assert isinstance(module, nn.Linear)
        return PackedLinear(module.in_features, module.out_features, bits, module.bias is not None, rank, clip)


@torch.no_grad()
def pack_model(model: PreTrainedModel) -> PreTrainedModel:
    """Put packed modules in the place of those that XTC's `Quantizer` parametrises, in place: the same logits, to the
    last bit."""
    names = [name for name, module in model.named_modules() if parametrize.is_parametrized(module, "weight")]
    if not names:
        return model
    rank = 0
    for name in names:
        module: Any = model.get_submodule(name)
        quantizer, W = module.parametrizations.weight[0], module.parametrizations.weight.original
        floats = dict(module.named_parameters(recurse=False))  # bias, lora_U, lora_V
        rank = max(rank, len(floats.get("lora_V", ())))
        codes, scale = quantizer.codes(W)
        small = empty(module, quantizer.bits, rank, quantizer.clip)
        small.load_state_dict({"packed": pack(codes, quantizer.bits), "scale": scale, **floats})
        model.set_submodule(name, small)
    model.config.quantization_config = PackedConfig(quantizer.bits, names, rank, quantizer.clip).to_dict()
    return model


def unpacked(model: PreTrainedModel) -> PreTrainedModel:
    """The library's float32 model with the weights that a packed one stands for; its activations are not rounded."""
    config, weights = copy.deepcopy(model.config), model.state_dict()
    del config.quantization_config
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear | PackedEmbedding):
            columns = module.in_features if isinstance(module, PackedLinear) else module.embedding_dim
            codes = unpack(weights.pop(f"{name}.packed"), module.bits, columns)
            weights[f"{name}.weight"] = codes * weights.pop(f"{name}.scale")
    plain = type(model)(config)
    plain.load_state_dict(weights)
    return plain


def keep(model: PreTrainedModel) -> PreTrainedModel:
    """From now on hold the codes of every packed linear unpacked, a byte each, as this processor multiplies them: more
    memory, and less time; the same bits come out. Returns the model, which has to stay on its device."""
    for module in model.modules():
        if isinstance(module, PackedLinear):
            module.kept = module.product(often=True)
    return model
