"""Four efficient attentions for any encoder of the library: Longformer, BigBird, LSG, Nystromformer.

    from common import attention
    attention.convert(model, "longformer", max_length=4096, window=256)   # in place; weights kept
    model(input_ids=ids, attention_mask=mask)                             # any length up to 4096
    model.save_pretrained(folder)
    attention.load(folder, AutoModelForSequenceClassification)            # to the same predictions

Each attention is a function of queries, keys, values and the padding mask, registered with the library's attention
interface under its name, and a small module that holds its settings and what it adds to the weights. Padding changes
no result: everything that depends on a text's length depends on its own. They are tested against their definitions,
and against the library's own Longformer, BigBird and Nystromformer.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, PreTrainedModel

from common import models
from common.args import BadInput

# Shapes: B batch, H heads, L length, d width of a head, D of the model; c tokens of a block, n blocks, k blocks that a
# block of queries sees; G global tokens, M landmarks, s sparse tokens that stand for a block. A mask is (B, L), true
# for tokens and false for padding, or None where nothing is padded.


# --- attention in blocks -------------------------------------------------------------------------------------
#
# Longformer, BigBird and LSG differ in which keys a block of c queries sees. All three collect those keys into one
# tensor, (B n, H, keys, d), and hand it to the library's fused kernel, which never holds a matrix of scores. On CPUs
# the collecting is a copy of whole rows and costs a thirtieth of the attention, as long as the copies are small: memory
# of more than 32 MB goes back to the system after each use, and getting it again costs half as much as the attention.
PART = 2**22  # numbers that are collected at a time on CPUs


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


def attend_blocks(
    q: Tensor, keys: int, see: Callable[[slice], tuple[Tensor, Tensor, Tensor]], scale: float | None, dropout: float
) -> Tensor:
    """Blocks of queries (B, n, H, c, d), part by part: -> (B, n c, H, d). `see` gives the keys and values of a part's
    blocks, (B m, H, keys, d), and which of them are allowed."""
    B, n, H, _, d = q.shape
    m = n if q.is_cuda else max(1, PART // (B * H * keys * d))
    parts = [slice(start, start + m) for start in range(0, n, m)]
    found = [attend(q[:, part].flatten(0, 1), *see(part), scale, dropout).unflatten(0, (B, -1)) for part in parts]
    return torch.cat(found, 1).transpose(2, 3).flatten(1, 2)


def full(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, dropout: float) -> Tensor:
    """Every query sees every token: (B, H, L, d) -> (B, L, H, d)."""
    allowed = None if mask is None else mask[:, None, None, :]
    return attend(query, key, value, allowed, scale, dropout).transpose(1, 2)


def in_blocks(x: Tensor, c: int) -> Tensor:
    """(B, H, L, d) -> (B, n, H, c, d), with zeros behind the last token; a view where c divides L."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % c))
    return x.unflatten(2, (-1, c)).transpose(1, 2)


def mask_blocks(mask: Tensor, c: int) -> Tensor:
    """(B, L) -> (B, n, 1, c)."""
    return F.pad(mask, (0, -mask.shape[1] % c)).unflatten(1, (-1, c))[:, :, None]


def collect(x: Tensor, table: Tensor) -> Tensor:
    """The blocks that a table names: (B, n, H, c, d), (1 or B, m, 1 or H, k) -> (B m, H, k c, d)."""
    B, n, H, c, d = x.shape
    b, h = torch.arange(B, device=x.device), torch.arange(H, device=x.device)
    rows = (b[:, None, None, None] * n + table) * H + h[:, None]
    return x.reshape(B * n * H, c * d).index_select(0, rows.flatten()).view(-1, H, table.shape[-1] * c, d)


def collect_mask(allowed: Tensor, table: Tensor, exists: Tensor) -> Tensor:
    """Of (B, n, 1 or H, c) what a table names, and false where `exists` is: -> (B m, 1 or H, 1, k c)."""
    b = torch.arange(len(allowed), device=allowed.device)[:, None, None, None]
    h = torch.arange(allowed.shape[2], device=allowed.device)[:, None]
    found = allowed[b, table, h] & exists[..., None]  # (B, m, H, k, c)
    return found.flatten(3).flatten(0, 1)[:, :, None]


def neighbours(n: int, offsets: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """For each of n blocks those at these distances, and whether they exist: both (1, n, 1, k)."""
    table = torch.arange(n, device=device)[:, None] + torch.tensor(offsets, device=device)
    exists = (table >= 0) & (table < n)
    return table.clamp(0, n - 1)[None, :, None], exists[None, :, None]


def take(x: Tensor, index: Tensor) -> Tensor:
    """The tokens (B, G) of (B, H, L, d): (B, H, G, d)."""
    return x.gather(2, index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def place(out: Tensor, index: Tensor, valid: Tensor, rows: Tensor) -> Tensor:
    """(B, L, H, d) with the valid ones of (B, H, G, d) rows at their tokens, (B, G)."""
    b, g = valid.nonzero(as_tuple=True)
    return out.index_put((b, index[b, g]), rows[b, :, g].to(out.dtype))  # which autocast may have left in float32


def lengths(mask: Tensor) -> Tensor:
    """(B,): tokens up to the last that is not padding."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def short_in_full(
    limit: int, long: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor], query: Tensor, key: Tensor,
    value: Tensor, mask: Tensor | None, scale: float | None, dropout: float,
) -> Tensor:  # fmt: skip
    """Full attention for the examples of at most `limit` tokens, `long` for the others: (B, L, H, d).

    Each example is judged by its own tokens, so that what it is padded to, or batched with, changes nothing.
    """
    L = query.shape[2]
    size = torch.full((len(query),), L, device=query.device) if mask is None else lengths(mask)
    short = size <= limit
    if not short.any():
        return long(query, key, value, mask)
    m = int(size[short].max())
    q, k, v = (x[short, :, :m] for x in (query, key, value))
    found = F.pad(full(q, k, v, None if mask is None else mask[short, :m], scale, dropout), (0, 0, 0, 0, 0, L - m))
    if short.all():
        return found
    q, k, v = (x[~short] for x in (query, key, value))
    out = query.new_zeros(len(query), L, query.shape[1], query.shape[3])
    other = long(q, k, v, None if mask is None else mask[~short])
    for rows, part in ((short, found), (~short, other)):
        out = out.index_put((rows.nonzero()[:, 0],), part.to(out.dtype))
    return out


# --- Longformer: a sliding window and global tokens (Beltagy et al. 2020) ------------------------------------


def global_tokens(is_global: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of (B, L) the positions (B, G) of the global tokens, and which of them are some: rows with fewer have others."""
    is_global = is_global.bool() if mask is None else is_global.bool() & mask
    counts = is_global.sum(1)
    G = int(counts.max())
    index = is_global.int().argsort(dim=1, descending=True, stable=True)[:, :G]
    return index, torch.arange(G, device=index.device) < counts[:, None]


def longformer(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, window: int, index: Tensor, valid: Tensor,
    scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Token i sees tokens i - window to i + window and the global ones: (B, H, L, d) -> (B, L, H, d).

    `index`, `valid`: as `global_tokens` gives them. The rows of global tokens themselves are left to the caller, who
    may have other projections for them. A block of `window` queries lies within three blocks of keys.
    """
    B, H, L, d = query.shape
    window = min(window, L)  # the same tokens are seen, in smaller blocks
    if mask is None:
        mask = torch.ones(B, L, dtype=torch.bool, device=query.device)
    local = mask.scatter(1, index, mask.gather(1, index) & ~valid)  # a global key has its own column, once
    q = in_blocks(query, window)
    n = q.shape[1]
    table, exists = neighbours(n, (-1, 0, 1), query.device)
    i, j = torch.arange(window, device=query.device), torch.arange(3 * window, device=query.device)
    band = ((j - i[:, None]) >= 0) & ((j - i[:, None]) <= 2 * window)  # (c, 3c); key j is token j - window of the block
    k, v, own = in_blocks(key, window), in_blocks(value, window), mask_blocks(local, window)
    shared, G = [take(x, index)[:, None] for x in (key, value)], index.shape[1]

    def see(part: slice) -> tuple[Tensor, Tensor, Tensor]:
        near = table[:, part]
        m = near.shape[1]
        keys, values = (
            torch.cat([tokens.expand(B, m, H, G, d).flatten(0, 1), collect(x, near)], 2)
            for tokens, x in zip(shared, (k, v), strict=True)
        )
        everywhere = valid[:, None, None, None].expand(B, m, 1, window, G).flatten(0, 1)
        banded = collect_mask(own, near, exists[:, part]) & band  # (B m, 1, c, 3c)
        return keys, values, torch.cat([everywhere, banded], -1)

    return attend_blocks(q, G + 3 * window, see, scale, dropout)[:, :L]


class Longformer(nn.Module):
    """Window, global keys, and rows for the global tokens from projections of their own.

    Global are, unless the caller says otherwise (`global_attention_mask`), the `first` tokens.
    """

    query_global: nn.Linear
    key_global: nn.Linear
    value_global: nn.Linear

    def __init__(self, source: nn.Module, window: int = 256, first: int = 1, layer: int = 0) -> None:
        super().__init__()
        self.window, self.first = window, first
        for name, linear in zip(("query", "key", "value"), projections(source), strict=True):
            setattr(self, f"{name}_global", copy.deepcopy(linear))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None,
                dropout: float, hidden: Tensor, is_global: Tensor | None = None) -> Tensor:  # fmt: skip
        B, L = hidden.shape[:2]
        if is_global is None:
            is_global = (torch.arange(L, device=hidden.device) < self.first).expand(B, L)
        index, valid = global_tokens(is_global, mask)
        out = longformer(
            query, key, value, mask, window=self.window, index=index, valid=valid, scale=scale, dropout=dropout
        )
        return place(out, index, valid, self.global_rows(hidden, index, mask, query, scale, dropout))

    def global_rows(self, hidden: Tensor, index: Tensor, mask: Tensor | None, query: Tensor, scale: float | None,
                    dropout: float) -> Tensor:  # fmt: skip
        """Full attention of the global tokens: (B, L, D) hidden states -> (B, H, G, d).

        q' (W h + b) = (W'q)'h + q'b, whose last term softmax cancels, and the weighted mean of W h + b is W of the
        mean of h, plus b: the projections of all L tokens are never computed, only those of the G global ones.
        """
        B, _, D = hidden.shape
        H, d, G = query.shape[1], query.shape[3], index.shape[1]
        if not G:
            return query[:, :, :0]
        own = hidden.gather(1, index[:, :, None].expand(-1, -1, D))
        q = self.query_global(own).view(B, G, H, d) * (d**-0.5 if scale is None else scale)
        q = torch.einsum("bghd,hde->bghe", q, self.key_global.weight.view(H, d, D)).flatten(1, 2)  # (B, G H, D)
        scores = q @ hidden.mT
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min / 2)
        weights = F.dropout(scores.softmax(-1), dropout)
        mean = (weights @ hidden).view(B, G, H, D)
        rows = torch.einsum("bghe,hde->bhgd", mean, self.value_global.weight.view(H, d, D))
        return rows + self.value_global.bias.view(H, 1, d) * weights.sum(-1).view(B, G, H, 1).transpose(1, 2)


# --- BigBird: neighbouring, random and global blocks (Zaheer et al. 2020) ------------------------------------


@functools.lru_cache(maxsize=256)
def random_blocks(n: int, heads: int, count: int, seed: int) -> Tensor:
    """(n, heads, count): for each block, random others that are neither its neighbours nor global.

    A function of its arguments alone: the same in training, in evaluation and after loading.
    """
    draws = torch.rand(n, heads, n, generator=torch.Generator().manual_seed(seed))
    i, j = torch.arange(n)[:, None], torch.arange(n)
    seen = ((i - j).abs() <= 1) | (j == 0) | (j == n - 1)
    return draws.masked_fill(seen[:, None], -1.0).topk(count, dim=-1).indices


def bigbird(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, block: int, random: Sequence[Tensor],
    scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """A block sees itself, its neighbours, the first, the last and some random blocks; the first and the last, which
    see everything, are seen by all: (B, H, L, d) -> (B, L, H, d).

    `random`: for each example, (its blocks, H, r) block numbers. An example's last block is the last one in which it
    has tokens, so that padding moves nothing. Needs 3 blocks or more.
    """
    B, H, L, _ = query.shape
    q, device = in_blocks(query, block), query.device
    n = q.shape[1]
    if mask is None:
        mask = torch.ones(B, L, dtype=torch.bool, device=device)
    last = (lengths(mask)[:, None] - 1) // block  # (B, 1)
    i = torch.arange(n, device=device).expand(B, n)
    table = torch.stack([torch.zeros_like(i), i - 1, i, i + 1, last.expand(B, n)], -1)  # (B, n, 5)
    exists = torch.ones_like(table, dtype=torch.bool)
    exists[..., 1] = i > 1  # for the second block, block i - 1 is the first, which it sees anyway
    exists[..., 3] = i + 1 < last
    others = torch.stack([F.pad(r.to(device), (0, 0, 0, 0, 0, n - len(r))) for r in random])  # (B, n, H, r)
    table = torch.cat([table.clamp(0, n - 1)[:, :, None].expand(-1, -1, H, -1), others], -1)
    exists = torch.cat([exists[:, :, None].expand(-1, -1, H, -1), torch.ones_like(others, dtype=torch.bool)], -1)
    k, v, own = in_blocks(key, block), in_blocks(value, block), mask_blocks(mask, block).expand(-1, -1, H, -1)

    def see(part: slice) -> tuple[Tensor, Tensor, Tensor]:
        seen = table[:, part]
        return collect(k, seen), collect(v, seen), collect_mask(own, seen, exists[:, part])  # (B m, H, 1, (5 + r) c)

    out = attend_blocks(q, table.shape[-1] * block, see, scale, dropout)[:, :L]
    inside = torch.arange(block, device=device)
    edges = torch.cat([inside.expand(B, -1), last * block + inside], 1)  # (B, 2c), where the text may end earlier
    index = edges.clamp(max=L - 1)
    rows = attend(take(query, index), key, value, mask[:, None, None, :], scale, dropout)
    return place(out, index, edges < L, rows)


class BigBird(nn.Module):
    """Full attention up to (5 + 2 r) blocks of tokens, as in the library, and random blocks by layer and head."""

    def __init__(self, source: nn.Module, block: int = 64, random: int = 3, layer: int = 0) -> None:
        super().__init__()
        self.block, self.random, self.layer = block, random, layer

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None,
                dropout: float, **_: Any) -> Tensor:  # fmt: skip
        def sparse(q: Tensor, k: Tensor, v: Tensor, m: Tensor | None) -> Tensor:
            sizes = [q.shape[2]] * len(q) if m is None else lengths(m).tolist()
            random = [random_blocks(-(-L // self.block), q.shape[1], self.random, self.layer) for L in sizes]
            return bigbird(q, k, v, m, block=self.block, random=random, scale=scale, dropout=dropout)

        limit = (5 + 2 * self.random) * self.block
        return short_in_full(limit, sparse, query, key, value, mask, scale, dropout)


# --- LSG: local blocks, sparse tokens and global ones (Condevaux and Harispe 2023) ---------------------------

Sparse = tuple[Tensor, Tensor, Tensor]  # keys and values (B, n, H, s, d), and which of them exist (B, n, H, s)


def chosen(key: Tensor, value: Tensor, mask: Tensor, index: Tensor) -> Sparse:
    """The tokens of each block at (B, n, H, s)."""
    wide = index[..., None].expand(*index.shape, key.shape[-1])
    return key.gather(3, wide), value.gather(3, wide), mask.expand(-1, -1, index.shape[2], -1).gather(3, index)


def by_norm(key: Tensor, value: Tensor, mask: Tensor, s: int) -> Sparse:
    """The s keys of largest norm, per head."""
    norms = key.detach().norm(dim=-1).masked_fill(~mask, -1.0)
    return chosen(key, value, mask, norms.topk(s, dim=-1).indices)


def by_stride(key: Tensor, value: Tensor, mask: Tensor, s: int) -> Sparse:
    """Every f-th token; head h starts at token h mod f."""
    B, n, H, c, _ = key.shape
    f = c // s
    index = torch.arange(0, c, f, device=key.device) + torch.arange(H, device=key.device)[:, None] % f
    return chosen(key, value, mask, index.expand(B, n, H, s))


def by_block_stride(key: Tensor, value: Tensor, mask: Tensor, s: int) -> Sparse:
    """s tokens in a row; head h takes the h-th such run, starting anew where the block ends."""
    B, n, H, c, _ = key.shape
    index = (torch.arange(s, device=key.device) + s * torch.arange(H, device=key.device)[:, None]) % c
    return chosen(key, value, mask, index.expand(B, n, H, s))


def grouped(key: Tensor, value: Tensor, mask: Tensor, group: Tensor, s: int) -> Sparse:
    """Means over the valid tokens of each of s groups; `group` (B, n, H, c) says which is whose."""
    weight = F.one_hot(group, s).to(key.dtype) * mask[..., None]  # (B, n, H, c, s)
    count = weight.sum(3)
    weight = (weight / count.clamp(min=1)[..., None, :]).mT
    return weight @ key, weight @ value, count > 0


def by_pooling(key: Tensor, value: Tensor, mask: Tensor, s: int) -> Sparse:
    """Means of f neighbours."""
    B, n, H, c, _ = key.shape
    return grouped(key, value, mask, (torch.arange(c, device=key.device) // (c // s)).expand(B, n, H, c), s)


def by_lsh(key: Tensor, value: Tensor, mask: Tensor, s: int) -> Sparse:
    """Means of tokens whose keys share a hash: the nearest of s/2 random directions and their opposites, per head."""
    H, d = key.shape[2], key.shape[4]
    directions = torch.randn(H, d, s // 2, generator=torch.Generator().manual_seed(0)).to(key)
    sides = F.normalize(key.detach(), dim=-1) @ directions
    return grouped(key, value, mask, torch.cat([sides, -sides], -1).argmax(-1), s)


SPARSITY: dict[str, Callable[[Tensor, Tensor, Tensor, int], Sparse]] = {
    "norm": by_norm,
    "pooling": by_pooling,
    "stride": by_stride,
    "block_stride": by_block_stride,
    "lsh": by_lsh,
}


def lsg(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, block: int, sparse_block: int, factor: int,
    sparsity: str, global_count: int, scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """The first `global_count` tokens see and are seen by all. A block of the others sees itself, its neighbours,
    and beyond them, on each side, `sparse_block` tokens that stand for `factor` times as many: -> (B, L, H, d).
    """
    B, H, L, d = query.shape
    G, s, device = global_count, block // factor, query.device
    if mask is None:
        mask = torch.ones(B, L, dtype=torch.bool, device=device)
    first = attend(query[:, :, :G], key, value, mask[:, None, None, :], scale, dropout).transpose(1, 2)
    q, k, v = (in_blocks(x[:, :, G:], block) for x in (query, key, value))
    own = mask_blocks(mask[:, G:], block)
    n = q.shape[1]
    near, near_exists = neighbours(n, (-1, 0, 1), device)
    reach = sparse_block // s
    offsets = [*range(-1 - reach, -1), *range(2, 2 + reach)]
    far, far_exists = neighbours(n, offsets, device)
    sparse_key, sparse_value, sparse_mask = SPARSITY[sparsity](k, v, own, s)

    def see(part: slice) -> tuple[Tensor, Tensor, Tensor]:
        m = near[:, part].shape[1]
        keys, values = (
            torch.cat([tokens[:, None, :, :G].expand(B, m, H, G, d).flatten(0, 1), collect(sparse, far[:, part]),
                       collect(x, near[:, part])], 2)
            for x, sparse, tokens in ((k, sparse_key, key), (v, sparse_value, value))
        )  # fmt: skip
        allowed = [
            mask[:, None, None, None, :G].expand(B, m, H, 1, G).flatten(0, 1),
            collect_mask(sparse_mask, far[:, part], far_exists[:, part]),
            collect_mask(own, near[:, part], near_exists[:, part]).expand(-1, H, -1, -1),
        ]
        return keys, values, torch.cat(allowed, -1)

    out = attend_blocks(q, G + far.shape[-1] * s + near.shape[-1] * block, see, scale, dropout)
    return torch.cat([first, out[:, : L - G]], 1)


class Lsg(nn.Module):
    """Full attention up to two blocks; the global tokens are put before the text by `convert`."""

    def __init__(self, source: nn.Module, block: int = 128, sparse_block: int = 128, factor: int = 2,
                 sparsity: str = "norm", global_count: int = 1, layer: int = 0) -> None:  # fmt: skip
        super().__init__()
        self.limit = 2 * block + global_count
        self.sparse = functools.partial(
            lsg, block=block, sparse_block=sparse_block, factor=factor, sparsity=sparsity, global_count=global_count
        )

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None,
                dropout: float, **_: Any) -> Tensor:  # fmt: skip
        sparse = functools.partial(self.sparse, scale=scale, dropout=dropout)
        return short_in_full(self.limit, sparse, query, key, value, mask, scale, dropout)


# --- Nystromformer: landmarks (Xiong et al. 2021) ------------------------------------------------------------


def pseudo_inverse(K: Tensor, iterations: int) -> Tensor:
    """Moore-Penrose inverse of (B, H, M, M) softmax matrices by the paper's iteration of third order."""
    I = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    # Z_0 = K' / (||K||_1 ||K||_inf); the rows of a softmax matrix sum to 1. The largest column sum over an example's
    # heads, where the library takes it over the batch: an example then depends on no other
    Z = K.mT / K.sum(-2).amax((-2, -1))[:, None, None, None]
    for _ in range(iterations):
        # Z <- 1/4 Z (13 I - K Z (15 I - K Z (7 I - K Z)))
        KZ = K @ Z
        Z = 0.25 * Z @ (13 * I - KZ @ (15 * I - KZ @ (7 * I - KZ)))
    return Z


def landmarks(x: Tensor, mask: Tensor | None, M: int) -> Tensor:
    """Means of M segments of each text, whose tokens alone count: (B, H, L, d) -> (B, H, M, d). Needs M tokens."""
    B, _, L, _ = x.shape
    if mask is None and L % M == 0:
        return x.unflatten(2, (M, L // M)).mean(3)
    if mask is None:
        mask = torch.ones(B, L, dtype=torch.bool, device=x.device)
    rank = mask.cumsum(1) - 1
    segment = (rank * M // mask.sum(1, keepdim=True)).clamp(min=0)
    weight = F.one_hot(segment, M).to(x.dtype) * mask[..., None]  # (B, L, M)
    return (weight / weight.sum(1, keepdim=True)).mT[:, None] @ x


def nystromformer(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, count: int, iterations: int,
    scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """softmax(Q K~') softmax(Q~ K~')^+ softmax(Q~ K') V, with the landmarks Q~ and K~: (B, H, L, d) -> (B, L, H, d).

    From right to left, so that both long kernels are attentions of the fused kind, and no (L, M) matrix is held.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    q, k = landmarks(query, mask, count), landmarks(key, mask, count)
    inverse = pseudo_inverse((q @ k.mT * scale).softmax(-1), iterations)
    allowed = None if mask is None else mask[:, None, None, :]
    summary = inverse @ attend(q, key, value, allowed, scale, dropout)  # (B, H, M, d)
    return attend(query, k, summary, None, scale, dropout).transpose(1, 2)


class Nystromformer(nn.Module):
    """Landmarks, and a convolution of the values along the text, one filter a head."""

    def __init__(self, source: nn.Module, landmarks: int = 64, iterations: int = 6, kernel: int = 65,
                 layer: int = 0) -> None:  # fmt: skip
        super().__init__()
        self.landmarks, self.iterations = landmarks, iterations
        H = heads(source)
        self.conv = nn.Conv2d(H, H, (kernel, 1), padding=(kernel // 2, 0), bias=False, groups=H)
        nn.init.zeros_(self.conv.weight)  # a converted model starts from its own attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None,
                dropout: float, **_: Any) -> Tensor:  # fmt: skip
        long = functools.partial(
            nystromformer, count=self.landmarks, iterations=self.iterations, scale=scale, dropout=dropout
        )
        out = short_in_full(self.landmarks, long, query, key, value, mask, scale, dropout)
        seen = value if mask is None else value * mask[:, None, :, None]
        return out + self.conv(seen).transpose(1, 2)


# --- converting a model --------------------------------------------------------------------------------------

ATTENTIONS = {"longformer": Longformer, "bigbird": BigBird, "lsg": Lsg, "nystromformer": Nystromformer}
PROJECTIONS = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj"))


def efficient_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, hidden: Tensor | None = None,
    global_attention_mask: Tensor | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The library's attention interface: (B, H, L, d) -> (B, L, H, d), and no matrix of weights."""
    out = module.efficient(  # type: ignore[operator]
        query,
        key,
        value,
        attention_mask,
        scale=scaling,
        dropout=dropout,
        hidden=hidden,
        is_global=global_attention_mask,
    )
    return out, None


def padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """The library's mask interface: (B, L) as it is, and None where nothing is padded."""
    return None if attention_mask is None or bool(attention_mask.all()) else attention_mask.bool()


for _name in ATTENTIONS:
    AttentionInterface.register(_name, efficient_attention)
    AttentionMaskInterface.register(_name, padding_mask)


def projections(module: nn.Module) -> list[nn.Linear]:
    """The linear layers that make queries, keys and values, by any of the names that the library's encoders use."""
    for names in PROJECTIONS:
        if all(hasattr(module, name) for name in names):
            return [getattr(module, name) for name in names]
    return []


def heads(module: nn.Module) -> int:
    return projections(module)[0].out_features // int(module.attention_head_size)  # type: ignore[arg-type]


def self_attentions(model: PreTrainedModel) -> list[nn.Module]:
    return [module for module in model.base_model.modules() if projections(module)]


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
    embeddings = getattr(model.base_model, "embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    if not (model._can_set_attn_implementation() and self_attentions(model) and isinstance(positions, nn.Embedding)):
        raise BadInput(
            f"--attention {attention}: {config.model_type} has no exchangeable attention with learned positions;"
            " BERT, RoBERTa, ELECTRA and their like would work"
        )
    if hasattr(config, "efficient_attention"):
        raise BadInput(f"--attention {attention}: the model is a {config.efficient_attention['name']} already")
    first = first_position(positions)
    if positions.num_embeddings < first + max_length:
        models.lengthen(model, first + max_length, kept=first)
    config.efficient_attention = {"name": attention, **settings}
    install(model)
    if attention == "lsg":
        start_globals(model, tokenizer)


def first_position(positions: nn.Embedding) -> int:
    """RoBERTa counts positions from the one after its padding's."""
    return 0 if positions.padding_idx is None else positions.padding_idx + 1


GLOBAL_EMBEDDINGS = 512  # LSG's table, of which the first ones are used


@torch.no_grad()
def start_globals(model: PreTrainedModel, tokenizer: Any) -> None:
    """LSG's global embedding g: the mask token at a position of its own, far from the others; the first, the start
    token at the first position."""
    if tokenizer is None or tokenizer.mask_token_id is None or tokenizer.cls_token_id is None:
        raise BadInput("--attention lsg: its global tokens start from [CLS] and [MASK], which this tokenizer lacks")
    embeddings: Any = model.base_model.embeddings
    positions, words = embeddings.position_embeddings, embeddings.word_embeddings.weight
    usable = positions.weight[first_position(positions) :]
    stride = max(1, len(usable) // GLOBAL_EMBEDDINGS)
    rows = torch.arange(GLOBAL_EMBEDDINGS, device=words.device) * stride % len(usable)
    weight = usable[rows] + words[tokenizer.mask_token_id]
    weight[0] = usable[0] + words[tokenizer.cls_token_id]
    embeddings.LayerNorm.global_embeddings.weight.copy_(weight)


def install(model: PreTrainedModel) -> None:
    """Put the modules and hooks that `config.efficient_attention` asks for into a model; weights are not touched."""
    settings = dict(model.config.efficient_attention)
    name, question = settings.pop("name"), settings.pop("question", None)
    base: Any = model.base_model
    embedding = base.get_input_embeddings().weight
    for layer, module in enumerate(self_attentions(model)):
        module.efficient = ATTENTIONS[name](module, layer=layer, **settings).to(embedding)
        if name == "longformer":
            module.register_forward_pre_hook(pass_hidden, with_kwargs=True)
    model.set_attn_implementation(name)
    if question is not None:
        base.register_forward_pre_hook(mark_question, with_kwargs=True)
    if name == "lsg":
        norm = base.embeddings.LayerNorm
        norm.global_embeddings = nn.Embedding(GLOBAL_EMBEDDINGS, embedding.shape[1]).to(embedding)
        norm.global_count = base.global_count = settings.get("global_count", 1)
        norm.register_forward_pre_hook(prepend_globals)
        base.register_forward_pre_hook(widen_mask, with_kwargs=True)
        base.register_forward_hook(strip_globals)


def pass_hidden(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Hand an attention module's input on to the attention function, which needs it for Longformer's global rows."""
    return args, kwargs | {"hidden": args[0] if args else kwargs["hidden_states"]}


def mark_question(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make all tokens up to the first separator global, if the caller has not said which are."""
    ids = args[0] if args else kwargs["input_ids"]
    ends = ids == base.config.efficient_attention["question"]
    return args, {"global_attention_mask": ends.cumsum(1) - ends.long() == 0} | kwargs


def widen_mask(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """LSG: the global tokens are never padding."""
    mask = args[1] if len(args) > 1 else kwargs.get("attention_mask")
    if mask is None:
        return args, kwargs
    wide = F.pad(mask, (base.global_count, 0), value=1)
    return (args[0], wide, *args[2:]) if len(args) > 1 else args, kwargs if len(args) > 1 else kwargs | {
        "attention_mask": wide
    }


def prepend_globals(norm: Any, args: tuple[Tensor]) -> tuple[Tensor]:
    """LSG: global tokens before the (B, L, D) embeddings of the text."""
    own = norm.global_embeddings.weight[: norm.global_count]
    return (torch.cat([own.expand(len(args[0]), -1, -1), args[0]], 1),)


def strip_globals(base: Any, _: tuple[Any, ...], output: Any) -> Any:
    """LSG: without the global tokens again; what the first of them has gathered stands for the text's first token."""

    def strip(hidden: Tensor) -> Tensor:
        return torch.cat([hidden[:, :1], hidden[:, base.global_count + 1 :]], 1)

    output.last_hidden_state = strip(output.last_hidden_state)
    if output.get("hidden_states") is not None:
        output.hidden_states = tuple(strip(hidden) for hidden in output.hidden_states)
    return output


def is_converted(model: PreTrainedModel) -> bool:
    return hasattr(model.config, "efficient_attention")


def is_longformer(model: PreTrainedModel) -> bool:
    return is_converted(model) and model.config.efficient_attention["name"] == "longformer"


def copy_globals(model: PreTrainedModel) -> None:
    """Longformer's global projections become copies of the others again."""
    for module in self_attentions(model):
        for name, linear in zip(("query", "key", "value"), projections(module), strict=True):
            getattr(module.efficient, f"{name}_global").load_state_dict(linear.state_dict())


def load(folder: str | Path, head: Any) -> PreTrainedModel:
    """A converted model that `save_pretrained` has written; `head` is a class of the library such as AutoModel."""
    model = head.from_config(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    install(model)
    weights = load_file(Path(folder) / "model.safetensors")
    lost, unknown = model.load_state_dict(weights, strict=False)
    tied = set(model.all_tied_weights_keys)
    if unknown or set(lost) - tied:
        raise BadInput(
            f"{folder}: {len(lost)} weights are missing, {len(unknown)} unknown: no converted {head.__name__}"
        )
    model.tie_weights()
    return model.eval()
