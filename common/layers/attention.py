"""Four efficient attentions for any encoder of the library: Longformer, BigBird, LSG, Nystromformer.

    from common.layers import attention
    attention.convert(model, "longformer", max_length=4096, window=256)   # in place; weights kept
    model(input_ids=ids, attention_mask=mask)                             # any length up to 4096
    model.save_pretrained(folder)
    attention.load(folder, AutoModelForSequenceClassification)            # to the same predictions
    attention.from_library(longformer)                                    # the library's own Longformer, BigBird, ...

Each attention is a module: its settings, what it adds to the weights, and a function of queries, keys, values and
padding mask. Padding stands behind a text and changes no result: everything that depends on a text's length depends on
its own. A test compares all four with methods/efficient_attention.py, where each is its paper's definition, and three
with the library's Longformer, BigBird and Nystromformer.

Shapes: B batch, H heads, L length, d width of a head, D of the model; c tokens of a block, n blocks; G global tokens,
M landmarks, s sparse tokens that stand for a block. A mask is (B, L), true for tokens and false for padding, or None
where nothing is padded. Every attention: (B, H, L, d) -> (B, L, H, d).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, PreTrainedModel
from transformers.utils import cached_file

from common.errors import BadInput

# --- blocks of queries, each over keys of its own ------------------------------------------------------------
#
# Longformer, BigBird and LSG differ in which keys a block of queries sees. These keys are copied into one tensor and
# go through the library's fused kernel, which never holds a matrix of scores. On CPUs the copies are made in parts:
# some 32 MB that are freed go back to the system, and to get them again takes as long as half of the attention; parts
# of this size stay.
PART = 2**20  # numbers that are copied at a time on CPUs


class Keys(NamedTuple):
    """Keys and values in N groups of g, and the groups that each of n blocks of queries sees."""

    key: Tensor  # (B, N, H, g, d)
    value: Tensor
    valid: Tensor  # (B, N, 1 or H, g): false for padding
    table: Tensor  # (1 or B, n, 1 or H, m): numbers of groups, -1 for none
    band: Tensor | None = None  # (c, m g): which query of a block sees which of these keys


def attend_blocks(query: Tensor, c: int, sources: list[Keys], scale: float | None, dropout: float) -> Tensor:
    """Each block of c queries attends to the keys that its rows of all tables name: (B, H, L, d) -> (B, L, H, d)."""
    q = blocks(query, c)
    B, n, H, _, d = q.shape
    count = sum(source.table.shape[-1] * source.key.shape[3] for source in sources)
    size = n if q.is_cuda else max(1, PART // (B * H * count * d))
    parts = [slice(start, start + size) for start in range(0, n, size)]
    out = [attend(q[:, part].flatten(0, 1), *seen(sources, part, B), scale, dropout) for part in parts]
    return torch.cat([x.unflatten(0, (B, -1)) for x in out], 1).transpose(2, 3).flatten(1, 2)[:, : query.shape[2]]


def seen(sources: list[Keys], part: slice, B: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the blocks of a part see: keys and values (B m, H, k, d), and which of them, (B m, 1 or H, 1 or c, k)."""
    keys, values, allowed = [], [], []
    for key, value, valid, table, band in sources:
        table = table[:, part].expand(B, -1, -1, -1)
        keys.append(gather(key, table))
        values.append(gather(value, table))
        named = (table >= 0).flatten(0, 1).repeat_interleave(key.shape[3], -1)
        visible = (gather(valid[..., None], table)[..., 0] & named)[:, :, None]
        allowed.append(visible if band is None else visible & band)
    if len(sources) == 1:  # of which `torch.cat` would make copies
        return keys[0], values[0], allowed[0]
    heads, rows = (max(x.shape[i] for x in allowed) for i in (1, 2))
    return torch.cat(keys, 2), torch.cat(values, 2), torch.cat([x.expand(-1, heads, rows, -1) for x in allowed], -1)


def attend(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float | None,
           dropout: float = 0.0) -> Tensor:  # fmt: skip
    """softmax(q k' scale) v by the fused kernel; `allowed` is a boolean mask that broadcasts to the scores.

    What is not allowed gets a large negative score instead of minus infinity: a query that may see nothing, which
    only padding can be, then gives a mean and not NaN.
    """
    bias = None
    if allowed is not None:
        bias = torch.zeros(allowed.shape, dtype=query.dtype, device=query.device)
        bias.masked_fill_(~allowed, torch.finfo(query.dtype).min / 2)
    return F.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale)


def blocks(x: Tensor, c: int) -> Tensor:
    """(B, H, L, d) -> (B, n, H, c, d), with zeros behind the last token; a view where c divides L."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % c)).unflatten(2, (-1, c)).transpose(1, 2)


def mask_blocks(mask: Tensor, c: int) -> Tensor:
    """(B, L) -> (B, n, 1, c)."""
    return F.pad(mask, (0, -mask.shape[1] % c)).unflatten(1, (-1, c))[:, :, None]


def gather(x: Tensor, table: Tensor) -> Tensor:
    """The groups that a table names, as copies of whole rows: (B, N, H, g, d), (B, n, H, m) -> (B n, H, m g, d). Where
    one of the two has one head and the other several, it serves them all; -1 in a table gives any group."""
    (B, N, _, g, d), (_, n, _, m), H = x.shape, table.shape, max(x.shape[2], table.shape[2])
    batch, head = torch.arange(B, device=x.device)[:, None, None, None], torch.arange(H, device=x.device)[:, None]
    rows = (batch * N + table.clamp(min=0)) * H + head
    x = x.expand(-1, -1, H, -1, -1).reshape(B * N * H, g * d)
    return x.index_select(0, rows.flatten()).view(B * n, H, m * g, d)


def near(n: int, offsets: Sequence[int], device: torch.device) -> Tensor:
    """The table of blocks at these distances, -1 beyond either end: (1, n, 1, m)."""
    table = torch.arange(n, device=device)[:, None] + torch.tensor(offsets, device=device)
    return torch.where((table >= 0) & (table < n), table, -1)[None, :, None]


def take(x: Tensor, index: Tensor) -> Tensor:
    """The tokens (B, G) of (B, H, L, d): (B, H, G, d)."""
    return x.gather(2, index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def place(out: Tensor, index: Tensor, valid: Tensor, rows: Tensor) -> Tensor:
    """(B, L, H, d) with the valid ones of (B, H, G, d) rows at their tokens, (B, G)."""
    b, g = valid.nonzero(as_tuple=True)
    return out.index_put((b, index[b, g]), rows[b, :, g].to(out.dtype))  # which autocast may have left in float32


def everything(mask: Tensor | None, x: Tensor) -> Tensor:
    """The mask, or one of x's (B, H, L, d) tokens without padding."""
    return torch.ones(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device) if mask is None else mask


def full_if_short(
    limit: int, sparse: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    scale: float | None, dropout: float,
) -> Tensor:  # fmt: skip
    """Full attention for the texts of at most `limit` tokens, where `sparse` would save nothing; `sparse` for others.

    Each text is judged by its own tokens, so that what it is padded to, or batched with, changes nothing.
    """
    size = everything(mask, query).sum(1)
    short, m = size <= limit, int(size.max())
    if not short.any():
        return sparse(query, key, value, mask, scale, dropout)
    if short.all():
        allowed = None if mask is None else mask[:, None, None, :m]
        out = attend(query[:, :, :m], key[:, :, :m], value[:, :, :m], allowed, scale, dropout).transpose(1, 2)
        return F.pad(out, (0, 0, 0, 0, 0, query.shape[2] - m))
    out = query.new_zeros(query.transpose(1, 2).shape)
    for rows in (short, ~short):
        chosen = [None if x is None else x[rows] for x in (query, key, value, mask)]
        part = full_if_short(limit, sparse, *chosen, scale, dropout)  # type: ignore[arg-type, call-arg]
        out = out.index_put((rows.nonzero()[:, 0],), part.to(out.dtype))
    return out


# --- Longformer: a sliding window and global tokens (Beltagy et al. 2020, section 3.1) -----------------------


class Longformer(nn.Module):
    """Token i sees tokens i - w to i + w and the global tokens; these see everything, by projections of their own.

    Global are, unless `is_global` (B, L) says otherwise, the `first` tokens. `hidden` (B, L, D) is the layer's input.
    """

    def __init__(self, source: nn.Module, layer: int = 0, window: int = 256, first: int = 1) -> None:
        super().__init__()
        self.window, self.first = window, first
        self.query_global, self.key_global, self.value_global = map(copy.deepcopy, projections(source))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None,
                dropout: float, hidden: Tensor, is_global: Tensor | None = None) -> Tensor:  # fmt: skip
        (B, H, L, d), D = query.shape, hidden.shape[2]
        w, mask = min(self.window, L), everything(mask, query)
        if is_global is None:
            is_global = (torch.arange(L, device=query.device) < self.first).expand(B, L)
        is_global = is_global.bool() & mask
        # where the global tokens stand, (B, G); a text that has fewer than others has some that are not valid
        G = int(is_global.sum(1).max())
        index = is_global.int().argsort(dim=1, descending=True, stable=True)[:, :G]
        valid = is_global.gather(1, index)

        # softmax(Q_s K_s' / sqrt(d)) V_s: a block of w queries lies within three blocks of keys, of which query i sees
        # 2 w + 1; a global key has a column of its own, and is seen once
        n = -(-L // w)
        i, j = torch.arange(w, device=query.device)[:, None], torch.arange(3 * w, device=query.device)
        band, everywhere = (j >= i) & (j <= i + 2 * w), torch.zeros(1, n, 1, 1, dtype=torch.long, device=query.device)
        sources = [
            Keys(take(key, index)[:, None], take(value, index)[:, None], valid[:, None, None], everywhere),
            Keys(blocks(key, w), blocks(value, w), mask_blocks(mask & ~is_global, w),
                 near(n, (-1, 0, 1), query.device), band),
        ]  # fmt: skip
        out = attend_blocks(query, w, sources, scale, dropout)

        # softmax(Q_g K_g' / sqrt(d)) V_g for the G rows of the global tokens. With K_g = X W' + b, q'(W x + b) is
        # (W'q)'x and a constant that softmax cancels; and the mean of V_g's rows W x + b is W of the mean of x, and b:
        # all L tokens are never projected
        own = hidden.gather(1, index[:, :, None].expand(-1, -1, D))
        q = self.query_global(own).view(B, G, H, d) * (d**-0.5 if scale is None else scale)
        q = torch.einsum("bghd,hde->bghe", q, self.key_global.weight.view(H, d, D)).flatten(1, 2)  # (B, G H, D)
        scores = (q @ hidden.mT).masked_fill(~mask[:, None], torch.finfo(q.dtype).min / 2)
        weights = F.dropout(scores.softmax(-1), dropout)
        mean = (weights @ hidden).view(B, G, H, D)
        rows = torch.einsum("bghe,hde->bhgd", mean, self.value_global.weight.view(H, d, D))
        rows = rows + self.value_global.bias.view(H, 1, d) * weights.sum(-1).view(B, G, H, 1).transpose(1, 2)
        return place(out, index, valid, rows)


# --- BigBird: neighbouring, random and global blocks (Zaheer et al. 2020, section 2 and appendix D) ----------


class BigBird(nn.Module):
    """A block sees itself, its neighbours, the first, the last and `random` others, by layer and head; the first and
    the last see everything. Texts of up to 5 + 2 random blocks get full attention, as in the library.

    The last block is the last in which a text has tokens, whatever it is padded to.
    """

    def __init__(self, source: nn.Module, layer: int = 0, block: int = 64, random: int = 3) -> None:
        super().__init__()
        self.block, self.random = block, random
        self.layer_idx = layer  # which `models.keep_layers` counts anew, as loading does

    def forward(self, *inputs: Any, **_: Any) -> Tensor:
        return full_if_short((5 + 2 * self.random) * self.block, self.sparse, *inputs)

    def sparse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None,
               dropout: float) -> Tensor:  # fmt: skip
        (B, H, L, _), c, device = query.shape, self.block, query.device
        mask = everything(mask, query)
        n = -(-L // c)
        last = ((mask.sum(1) - 1) // c)[:, None]  # (B, 1)
        # the first block, i - 1, i, i + 1 and the last, each named once: (B, n, 5)
        i = torch.arange(n, device=device).expand(B, n)
        before, after = torch.where(i > 1, i - 1, -1), torch.where(i + 1 < last, i + 1, -1)
        table = torch.stack([torch.zeros_like(i), before, i, after, last.expand(B, n)], -1)
        # and the random ones, drawn among a text's own blocks: (B, n, H, r)
        drawn = [random_blocks(1 + end, H, self.random, self.layer_idx).to(device) for end in last[:, 0].tolist()]
        others = torch.stack([F.pad(numbers, (0, 0, 0, 0, 0, n - len(numbers))) for numbers in drawn])
        table = torch.cat([table[:, :, None].expand(-1, -1, H, -1), others], -1)
        source = Keys(blocks(key, c), blocks(value, c), mask_blocks(mask, c), table)
        out = attend_blocks(query, c, [source], scale, dropout)

        # the rows of the first and the last block, which see everything
        inside = torch.arange(c, device=device)
        edges = torch.cat([inside.expand(B, -1), last * c + inside], 1)  # (B, 2 c), where the text may end earlier
        index = edges.clamp(max=L - 1)
        rows = attend(take(query, index), key, value, mask[:, None, None], scale, dropout)
        return place(out, index, edges < L, rows)


@functools.lru_cache(maxsize=256)
def random_blocks(n: int, heads: int, count: int, seed: int) -> Tensor:
    """(n, heads, count): for each block, random others that are neither its neighbours nor global.

    A function of its arguments alone: the same in training, in evaluation and after loading.
    """
    draws = torch.rand(n, heads, n, generator=torch.Generator().manual_seed(seed))
    i, j = torch.arange(n)[:, None], torch.arange(n)
    seen = ((i - j).abs() <= 1) | (j == 0) | (j == n - 1)
    return draws.masked_fill(seen[:, None], -1.0).topk(count, dim=-1).indices


# --- LSG: local blocks, sparse tokens and global ones (Condevaux and Harispe 2023, section 3) ----------------


class Lsg(nn.Module):
    """A block sees itself, its neighbours, `global_count` global tokens and, beyond the neighbours on each side,
    `sparse_block` tokens that stand for `factor` times as many: by default half of each of two blocks. Global tokens,
    which `convert` puts before the text, see everything. Texts of up to two blocks get full attention.
    """

    def __init__(self, source: nn.Module, layer: int = 0, block: int = 128, sparse_block: int = 128, factor: int = 2,
                 global_count: int = 1) -> None:  # fmt: skip
        super().__init__()
        self.block, self.sparse_block, self.factor, self.global_count = block, sparse_block, factor, global_count

    def forward(self, *inputs: Any, **_: Any) -> Tensor:
        return full_if_short(2 * self.block + self.global_count, self.sparse, *inputs)

    def sparse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None,
               dropout: float) -> Tensor:  # fmt: skip
        G, c, s, device = self.global_count, self.block, self.block // self.factor, query.device
        mask = everything(mask, query)
        first = attend(query[:, :, :G], key, value, mask[:, None, None], scale, dropout).transpose(1, 2)
        k, v, valid = blocks(key[:, :, G:], c), blocks(value[:, :, G:], c), mask_blocks(mask[:, G:], c)
        n, reach = k.shape[1], self.sparse_block // s
        beyond = [*range(-1 - reach, -1), *range(2, 2 + reach)]
        everywhere = torch.zeros(1, n, 1, 1, dtype=torch.long, device=device)
        sources = [
            Keys(key[:, None, :, :G], value[:, None, :, :G], mask[:, None, None, :G], everywhere),
            Keys(*sparse_tokens(k, v, valid, s), near(n, beyond, device)),
            Keys(k, v, valid, near(n, (-1, 0, 1), device)),
        ]
        return torch.cat([first, attend_blocks(query[:, :, G:], c, sources, scale, dropout)], 1)


def sparse_tokens(key: Tensor, value: Tensor, valid: Tensor, s: int) -> tuple[Tensor, Tensor, Tensor]:
    """s tokens that stand for each block of (B, n, H, c, d) keys and values, those whose keys have the largest norm;
    and which of them exist, (B, n, H, s)."""
    index = key.detach().norm(dim=-1).masked_fill(~valid, -1.0).topk(s, dim=-1).indices
    wide = index[..., None].expand(-1, -1, -1, -1, key.shape[-1])
    return key.gather(3, wide), value.gather(3, wide), valid.expand(-1, -1, key.shape[2], -1).gather(3, index)


# --- Nystromformer: landmarks (Xiong et al. 2021, sections 3.2 and 3.3) --------------------------------------


class Nystromformer(nn.Module):
    """softmax(Q K~') softmax(Q~ K~')^+ softmax(Q~ K') V with M landmarks Q~ and K~, and a convolution of the values
    along the text, one filter a head. Texts of at most M tokens get full attention in its place."""

    def __init__(self, source: nn.Module, layer: int = 0, landmarks: int = 64, iterations: int = 6,
                 kernel: int = 65) -> None:  # fmt: skip
        super().__init__()
        self.landmarks, self.iterations = landmarks, iterations
        H = projections(source)[0].out_features // int(source.attention_head_size)  # type: ignore[arg-type]
        self.conv = nn.Conv2d(H, H, (kernel, 1), padding=(kernel // 2, 0), bias=False, groups=H)
        nn.init.zeros_(self.conv.weight)  # a converted model starts from its own attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *more: Any, **_: Any) -> Tensor:
        out = full_if_short(self.landmarks, self.sparse, query, key, value, mask, *more)
        tokens = value if mask is None else value * mask[:, None, :, None]
        return out + self.conv(tokens).transpose(1, 2)

    def sparse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None,
               dropout: float) -> Tensor:  # fmt: skip
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        q, k = segment_means(query, mask, self.landmarks), segment_means(key, mask, self.landmarks)
        inverse = pseudo_inverse((q @ k.mT * scale).softmax(-1), self.iterations)
        # from right to left: both long kernels are attentions of the fused kind, and no (L, M) matrix is held
        allowed = None if mask is None else mask[:, None, None]
        summary = inverse @ attend(q, key, value, allowed, scale, dropout)  # (B, H, M, d)
        return attend(query, k, summary, None, scale, dropout).transpose(1, 2)


def segment_means(x: Tensor, mask: Tensor | None, M: int) -> Tensor:
    """The landmarks: means of M segments of each text, of M tokens or more: (B, H, L, d) -> (B, H, M, d)."""
    L = x.shape[2]
    if mask is None and L % M == 0:
        return x.unflatten(2, (M, L // M)).mean(3)
    mask = everything(mask, x)
    segment = ((mask.cumsum(1) - 1) * M // mask.sum(1, keepdim=True)).clamp(min=0)
    weight = F.one_hot(segment, M).to(x.dtype) * mask[..., None]  # (B, L, M)
    return (weight / weight.sum(1, keepdim=True)).mT[:, None] @ x


def pseudo_inverse(K: Tensor, iterations: int) -> Tensor:
    """Moore-Penrose inverse of (B, H, M, M) softmax matrices by the paper's iteration of third order."""
    I = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    # Z_0 = K' / (||K||_1 ||K||_inf); the rows of a softmax matrix sum to 1. The largest column sum over a text's
    # heads, where the library takes it over the batch: a text then depends on no other
    Z = K.mT / K.sum(-2).amax((-2, -1))[:, None, None, None]
    for _ in range(iterations):
        # Z <- 1/4 Z (13 I - K Z (15 I - K Z (7 I - K Z)))
        KZ = K @ Z
        Z = 0.25 * Z @ (13 * I - KZ @ (15 * I - KZ @ (7 * I - KZ)))
    return Z


# --- in the place of a model's own attention -----------------------------------------------------------------

ATTENTIONS = {"longformer": Longformer, "bigbird": BigBird, "lsg": Lsg, "nystromformer": Nystromformer}
PROJECTIONS = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj"))
GLOBAL_EMBEDDINGS = 512  # LSG's table, of which the first ones are used


def efficient_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, hidden: Tensor | None = None,
    global_attention_mask: Tensor | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The library's attention interface: (B, H, L, d) -> (B, L, H, d), and no matrix of weights."""
    if attention_mask is not None:  # LSG's global tokens stand before the text, and are never padding
        attention_mask = F.pad(attention_mask, (query.shape[2] - attention_mask.shape[1], 0), value=True)
    extra = {"hidden": hidden, "is_global": global_attention_mask}
    return module.efficient(query, key, value, attention_mask, scaling, dropout, **extra), None  # type: ignore[operator]


def padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """The library's mask interface: (B, L) as it is, and None where nothing is padded."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    mask = attention_mask.bool()
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise BadInput("--teacher: its tokenizer pads in front; efficient attentions need padding behind the text")
    return mask


for _name in ATTENTIONS:
    AttentionInterface.register(_name, efficient_attention)
    AttentionMaskInterface.register(_name, padding_mask)


def projections(module: nn.Module) -> list[nn.Linear]:
    """The linear layers that make queries, keys and values, by any of the names that the library's encoders use."""
    for names in PROJECTIONS:
        if all(hasattr(module, name) for name in names):
            return [getattr(module, name) for name in names]
    return []


def self_attentions(model: PreTrainedModel) -> list[nn.Module]:
    return [module for module in model.base_model.modules() if projections(module)]


def kind_of(config: Any) -> str | None:
    """The attention of a converted model, or of one of the library's long ones; None: full attention."""
    if config.model_type in LIBRARY:
        return LIBRARY[config.model_type][0]
    return getattr(config, "efficient_attention", {}).get("name")


def convert(model: PreTrainedModel, attention: str, max_length: int, tokenizer: Any = None, **settings: Any) -> None:
    """Turn an encoder into a long one, in place: its weights stay, its positions are repeated where it has fewer than
    `max_length`.

    `attention` is a key of ATTENTIONS, `settings` are arguments of its class. Any encoder of the library will do that
    uses its attention interface and learned absolute positions (BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT, ...);
    `BadInput` for the others. Longformer's global projections start as copies of the others, Nystromformer's
    convolution at zero; LSG needs the tokenizer, for the ids of the tokens that its global ones start from.
    """
    config = model.config
    if attention not in ATTENTIONS:
        raise BadInput(f"--attention {attention!r}: must be one of {', '.join(ATTENTIONS)}")
    if kind := kind_of(config):
        raise BadInput(f"--attention {attention}: the model is a {kind} already")
    embeddings = getattr(model.base_model, "embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    if not (model._can_set_attn_implementation() and self_attentions(model) and isinstance(positions, nn.Embedding)):
        why = "has no exchangeable attention with learned positions; BERT, RoBERTa, ELECTRA and their like would work"
        raise BadInput(f"--attention {attention}: {config.model_type} {why}")
    first = 0 if positions.padding_idx is None else positions.padding_idx + 1  # where RoBERTa counts from
    usable = positions.weight[first:]
    if len(usable) < max_length:
        lengthen(model, first + max_length, first)
    config.efficient_attention = {"name": attention, **settings}
    install(model)
    if attention == "lsg":
        start_globals(model, tokenizer, usable)


@torch.no_grad()
def lengthen(model: PreTrainedModel, rows: int, kept: int) -> None:
    """Give a model a table of so many positions, in place: those after the first `kept` are repeated."""
    embeddings: Any = model.base_model.embeddings
    old = embeddings.position_embeddings
    usable = old.weight[kept:]
    weight = torch.cat([old.weight[:kept], usable.repeat(-(-rows // len(usable)), 1)])[:rows]
    embeddings.position_embeddings = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=old.padding_idx)
    made = {"position_ids": torch.arange(rows)[None], "token_type_ids": torch.zeros(1, rows, dtype=torch.long)}
    for name in made.keys() & dict(embeddings.named_buffers()).keys():
        embeddings.register_buffer(name, made[name].to(weight.device), persistent=False)
    model.config.max_position_embeddings = rows


def install(model: PreTrainedModel) -> None:
    """Put the modules and hooks that `config.efficient_attention` asks for into a model; weights are not touched."""
    settings = dict(model.config.efficient_attention)
    name, question = settings.pop("name"), settings.pop("question", None)
    base: Any = model.base_model
    embedding = base.get_input_embeddings().weight
    for layer, module in enumerate(self_attentions(model)):
        module.efficient = ATTENTIONS[name](module, layer, **settings).to(embedding)
        if name == "longformer":
            module.register_forward_pre_hook(pass_hidden, with_kwargs=True)
    for module in base.modules():
        if hasattr(module, "feed_forward_chunk"):
            module.feed_forward_chunk = functools.partial(in_parts, module.feed_forward_chunk)
    model.set_attn_implementation(name)
    if question is not None:
        base.register_forward_pre_hook(mark_question, with_kwargs=True)
    if name == "lsg":
        norm = base.embeddings.LayerNorm
        norm.global_embeddings = nn.Embedding(GLOBAL_EMBEDDINGS, embedding.shape[1]).to(embedding)
        norm.global_count = base.global_count = settings.get("global_count", 1)
        norm.register_forward_pre_hook(prepend_globals)
        base.register_forward_hook(strip_globals)


def in_parts(feed_forward: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """A feed-forward layer over (B, L, D), on CPUs in parts, as keys are copied (see PART)."""
    if hidden.is_cuda:
        return feed_forward(hidden)
    size = max(1, PART // (4 * len(hidden) * hidden.shape[2]))
    return torch.cat([feed_forward(part) for part in hidden.split(size, 1)], 1)


def read(source: str | Path, head: Any, config: Any = None) -> tuple[PreTrainedModel, list[str]]:
    """A converted model of a folder or the hub below a head of any kind, and the weights that its file lacks for it;
    `head` is a class of the library such as AutoModel."""
    model = head.from_config(config or AutoConfig.from_pretrained(source, trust_remote_code=False))
    install(model)
    own = model.state_dict()
    weights = load_file(str(cached_file(str(source), "model.safetensors")))
    kept = {key: weight for key, weight in weights.items() if key in own and weight.shape == own[key].shape}
    lost = model.load_state_dict(kept, strict=False).missing_keys
    model.tie_weights()
    return model.eval(), sorted(set(lost) - set(model.all_tied_weights_keys))


def load(folder: str | Path, head: Any) -> PreTrainedModel:
    """A converted model that `save_pretrained` has written, with its head."""
    model, lost = read(folder, head)
    if lost:
        raise BadInput(f"{folder}: {len(lost)} weights are missing, the first {lost[0]}: no converted {head.__name__}")
    return model


# The library's own long models: what they are here, and what their configurations say
LIBRARY: dict[str, tuple[str, str, Callable[[Any], dict[str, Any]]]] = {
    "longformer": ("longformer", "Roberta", lambda config: {"window": config.attention_window[0] // 2}),
    "big_bird": (
        "bigbird", "Bert", lambda config: {"block": config.block_size, "random": config.num_random_blocks}),
    "nystromformer": (
        "nystromformer", "Bert",
        lambda config: {"landmarks": config.num_landmarks, "kernel": config.conv_kernel_size or 1}),
}  # fmt: skip


@torch.no_grad()
def from_library(model: PreTrainedModel) -> PreTrainedModel:
    """The library's Longformer, BigBird or Nystromformer, alone or with a masked-LM head, as a converted RoBERTa or
    BERT of the same weights; every other model as it is."""
    theirs: Any = model.config
    if theirs.model_type not in LIBRARY:
        return model
    name, family, settings = LIBRARY[theirs.model_type]
    windows = getattr(theirs, "attention_window", [])
    if len(set(windows)) > 1 or getattr(theirs, "rescale_embeddings", False):
        raise BadInput(f"--teacher: {theirs.model_type} with layers or embeddings of its own kind is not read here")
    config: Any = getattr(transformers, f"{family}Config")()
    for key in config.to_dict().keys() & theirs.to_dict().keys() - {"model_type", "architectures", "dtype"}:
        setattr(config, key, getattr(theirs, key))
    config.efficient_attention = {"name": name, **settings(theirs)}
    own = type(model).__name__.replace(type(model.base_model).__name__.removesuffix("Model"), family)
    ours = getattr(transformers, own)(config).to(model.dtype)
    install(ours)
    weights = {}
    for key, weight in model.state_dict().items():
        key = key.replace(f"{model.base_model_prefix}.", f"{ours.base_model_prefix}.", 1)
        for part in ("query_global", "key_global", "value_global", "conv"):
            key = key.replace(f"self.{part}", f"self.efficient.{part}")
        if name == "bigbird":
            key = key.replace("pooler.", "pooler.dense.")
        if name == "nystromformer" and "position_embeddings" in key:
            weight = weight[2:]  # its first position is the third row
        weights[key] = weight
    lost, unknown = ours.load_state_dict(weights, strict=False)
    if wrong := [key for key in (*lost, *unknown) if "pooler" not in key]:
        raise BadInput(f"--teacher: {own} does not fit this {theirs.model_type}, the first weight is {wrong[0]}")
    ours.tie_weights()
    return ours.train(model.training)


# Longformer's global tokens

Call = tuple[tuple[Any, ...], dict[str, Any]]


def pass_hidden(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Hand an attention module's input on to the attention, which needs it for the rows of the global tokens."""
    return args, kwargs | {"hidden": args[0] if args else kwargs["hidden_states"]}


def mark_question(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Make all tokens up to the first separator global, if the caller has not said which are."""
    kwargs = dict(zip(inspect.signature(base.forward).parameters, args, strict=False)) | kwargs  # all by their names
    ends = kwargs["input_ids"] == base.config.efficient_attention["question"]
    return (), {"global_attention_mask": ends.cumsum(1) - ends.long() == 0} | kwargs


def copy_globals(model: PreTrainedModel) -> None:
    """Longformer's global projections become copies of the others again."""
    for module in self_attentions(model):
        for name, linear in zip(("query", "key", "value"), projections(module), strict=True):
            getattr(module.efficient, f"{name}_global").load_state_dict(linear.state_dict())


# LSG's global tokens


@torch.no_grad()
def start_globals(model: PreTrainedModel, tokenizer: Any, positions: Tensor) -> None:
    """Global embedding g is the mask token at a position of its own, in the authors' order: 0, 64, 128, ..., 1, 65, ...
    of the first 512; the first is the start token. Of longer tables every few positions are taken; a shorter one is
    gone through again. `positions` (n, D) are those before any was repeated."""
    if tokenizer is None or tokenizer.mask_token_id is None or tokenizer.cls_token_id is None:
        raise BadInput("--attention lsg: its global tokens start from [CLS] and [MASK], which this tokenizer lacks")
    embeddings: Any = model.base_model.embeddings
    words = embeddings.word_embeddings.weight
    step = max(1, len(positions) // GLOBAL_EMBEDDINGS)
    table = positions[::step][:GLOBAL_EMBEDDINGS]
    apart = max(1, min(64 // step, len(table) // 8))
    table = torch.cat([table[i::apart] for i in range(apart)])
    weight = table.repeat(math.ceil(GLOBAL_EMBEDDINGS / len(table)), 1)[:GLOBAL_EMBEDDINGS]
    weight = torch.cat([weight[:1] + words[tokenizer.cls_token_id], weight[1:] + words[tokenizer.mask_token_id]])
    embeddings.LayerNorm.global_embeddings.weight.copy_(weight)


def prepend_globals(norm: Any, args: tuple[Tensor]) -> tuple[Tensor]:
    """Global tokens before the (B, L, D) embeddings of the text."""
    tokens = norm.global_embeddings.weight[: norm.global_count]
    return (torch.cat([tokens.expand(len(args[0]), -1, -1), args[0]], 1),)


def strip_globals(base: Any, _: tuple[Any, ...], output: Any) -> Any:
    """Without the global tokens again; what the first of them has gathered stands for the text's first token."""

    def strip(hidden: Tensor) -> Tensor:
        return torch.cat([hidden[:, :1], hidden[:, base.global_count + 1 :]], 1)

    output.last_hidden_state = strip(output.last_hidden_state)
    if output.get("hidden_states") is not None:
        output.hidden_states = tuple(strip(hidden) for hidden in output.hidden_states)
    return output


# --- what an attention reads, and its scores ---------------------------------------------------------------------

# Families whose attention reads a layer's input as it is
READS_INPUT = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")


def attention_inputs(model: PreTrainedModel, output: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a layer, numbered from 1, each (B, L, D) with its heads side by side.

    They are computed from the layer's input, `output.hidden_states[layer - 1]`, so that a teacher's outputs may come
    from disk. `BadInput` for a layer that is not there, and for families that normalise the input first, or keep their
    projections elsewhere.
    """
    family = model.config.model_type
    if family not in READS_INPUT:
        works = ", ".join(READS_INPUT)
        raise BadInput(f"--teacher: queries and keys of a {family} cannot be had; one of {works} works")
    modules = self_attentions(model)
    if not 1 <= layer <= len(modules):
        raise BadInput(f"queries and keys of layer {layer}: the model's layers are 1 to {len(modules)}")
    hidden = output.hidden_states[layer - 1].to(model.dtype)
    Q, K, V = (project(hidden) for project in projections(modules[layer - 1]))
    return Q, K, V


class AttentionScores(TorchFunctionMode):
    """Keeps the (B, h, L, L) attention scores that a model gives to softmax, layer by layer, while it is entered.

    The library hands out the maps after the softmax, if at all. Every family's eager attention calls this one function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.softmax and args[0].ndim == 4:
            self.layers.append(args[0])
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def eager(*models: PreTrainedModel) -> Iterator[None]:
    """While this lasts, attention whose scores `AttentionScores` can see."""
    usual = [model.config._attn_implementation for model in models]
    try:
        for model in models:
            model.set_attn_implementation("eager")
        yield
    finally:
        for model, name in zip(models, usual, strict=True):
            model.set_attn_implementation(name)
