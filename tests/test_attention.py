"""The four attentions against slow references and against the library's own; conversion, saving, padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from conftest import FAMILIES, word_tokenizer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    BigBirdConfig,
    BigBirdModel,
    LongformerConfig,
    LongformerModel,
    NystromformerConfig,
    NystromformerModel,
    RobertaConfig,
    RobertaModel,
)

from common.args import BadInput
from common.layers import attention as ea

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "initializer_range": 0.3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
B, H, D = 2, 3, 8


def qkv(L: int, seed: int = 0, batch: int = B, heads: int = H) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, heads, L, D, generator=generator).requires_grad_() for _ in range(3)]


def padded(L: int, *sizes: int) -> Tensor:
    return torch.arange(L) < torch.tensor(sizes)[:, None]


def dense(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """The definition: one query after the other over the keys it may see. `allowed` (B, H, L, keys) -> (B, L, H, d)."""
    rows = []
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                seen = allowed[b, h, i].nonzero()[:, 0]
                if not len(seen):
                    rows.append(query[b, h, i] * 0)
                    continue
                scores = (key[b, h, seen] @ query[b, h, i]) / query.shape[-1] ** 0.5
                rows.append(scores.softmax(0) @ value[b, h, seen])
    return torch.stack(rows).view(query.shape).transpose(1, 2)


def compare(found: Tensor, expected: Tensor, inputs: list[Tensor], mask: Tensor | None) -> None:
    """Outputs and gradients agree for all tokens that are not padding."""
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
    if mask is not None:
        weight = weight * mask[:, :, None, None]
    grads = [torch.autograd.grad((x * weight).sum(), inputs) for x in (found, expected)]
    torch.testing.assert_close(found * (weight != 0), expected * (weight != 0), atol=2e-5, rtol=1e-4)
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


# --- each attention against its definition ------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [None, (37, 21)])
@pytest.mark.parametrize("global_at", [([0], [0]), ([0, 1, 2], [5]), ([], [20]), ([], [])])
def test_longformer(sizes: tuple[int, int] | None, global_at: Any) -> None:
    L, w = 37, 4
    inputs = qkv(L)
    mask = None if sizes is None else padded(L, *sizes)
    is_global = torch.zeros(B, L, dtype=torch.bool)
    for b, at in enumerate(global_at):
        is_global[b, at] = True
    index, valid = ea.global_tokens(is_global, mask)
    found = ea.longformer(*inputs, mask, window=w, index=index, valid=valid)
    i = torch.arange(L)
    seen = ((i[:, None] - i).abs() <= w)[None] | is_global[:, None, :]
    allowed = (seen & (torch.ones(B, L, dtype=torch.bool) if mask is None else mask)[:, None, :])[:, None]
    expected = dense(*inputs, allowed.expand(B, H, L, L))
    compare(found, expected, inputs, mask)


@pytest.mark.parametrize("sizes", [None, (36, 29)])
def test_bigbird(sizes: tuple[int, int] | None) -> None:
    L, c = 36, 4
    inputs = qkv(L)
    mask = None if sizes is None else padded(L, *sizes)
    random = [ea.random_blocks(-(-size // c), H, 2, 5) for size in sizes or (L, L)]
    found = ea.bigbird(*inputs, mask, block=c, random=random)
    allowed = torch.zeros(B, H, L, L, dtype=torch.bool)
    for b, size in enumerate(sizes or (L, L)):
        last = (size - 1) // c
        for i in range(last + 1):
            for h in range(H):
                blocks = {0, last, i - 1, i, i + 1, *random[b][i, h].tolist()}
                blocks = set(range(last + 1)) if i in (0, last) else blocks
                for j in blocks & set(range(last + 1)):
                    allowed[b, h, i * c : (i + 1) * c, j * c : (j + 1) * c] = True
        allowed[b, :, :, size:] = False
    compare(found, dense(*inputs, allowed), inputs, mask)


def test_random_blocks() -> None:
    """Different in rows, heads and layers; never a neighbour, a global block, or the same one twice."""
    table = ea.random_blocks(20, 4, 3, 0)
    for i in range(20):
        for h in range(4):
            picked = table[i, h].tolist()
            assert len(set(picked)) == 3
            assert not {0, 19, i - 1, i, i + 1} & set(picked)
    assert not torch.equal(table, ea.random_blocks(20, 4, 3, 1))
    assert not torch.equal(table[:, 0], table[:, 1])
    assert len({tuple(table[i, 0].tolist()) for i in range(20)}) > 10


def sparse_by_hand(kind: str, key: Tensor, value: Tensor, valid: Tensor, f: int, h: int) -> list[tuple[Tensor, Tensor]]:
    """The sparse tokens of one block of one head (c, d), (c,): pairs of key and value; those of padding left out."""
    c = len(key)
    s = c // f
    if kind == "norm":
        norms = torch.where(valid, key.norm(dim=1), -1.0)
        picks = [[int(i)] for i in norms.argsort(descending=True)[:s]]
    elif kind == "stride":
        picks = [[i * f + h % f] for i in range(s)]
    elif kind == "block_stride":
        picks = [[(i + h * s) % c] for i in range(s)]
    elif kind == "pooling":
        picks = [list(range(i * f, (i + 1) * f)) for i in range(s)]
    else:
        directions = torch.randn(H, D, s // 2, generator=torch.Generator().manual_seed(0))[h]
        scores = F.normalize(key, dim=1) @ torch.cat([directions, -directions], 1)
        bucket = scores.argmax(1)
        picks = [[i for i in range(c) if bucket[i] == g] for g in range(s)]
    groups = [[i for i in pick if valid[i]] for pick in picks]
    return [(key[g].mean(0), value[g].mean(0)) for g in groups if g]


@pytest.mark.parametrize("kind", list(ea.SPARSITY))
def test_lsg(kind: str) -> None:
    """Global, sparse and local keys, one query after the other; the second text is padded."""
    L, c, f, S, G = 2 + 32, 4, 2, 4, 2
    query, key, value = inputs = qkv(L)
    mask = padded(L, L, L - 9)
    found = ea.lsg(query, key, value, mask, block=c, sparse_block=S, factor=f, sparsity=kind, global_count=G)
    rows = []
    n, s = (L - G) // c, c // f
    for b in range(B):
        for h in range(H):
            blocks = [slice(G + i * c, G + (i + 1) * c) for i in range(n)]
            sparse = [sparse_by_hand(kind, key[b, h, at], value[b, h, at], mask[b, at], f, h) for at in blocks]
            for t in range(L):
                pairs = [(key[b, h, j], value[b, h, j]) for j in range(G)]
                if t < G:
                    pairs = [(key[b, h, j], value[b, h, j]) for j in range(L) if mask[b, j]]
                else:
                    i = (t - G) // c
                    for j in (i - 1, i, i + 1):
                        if 0 <= j < n:
                            at = range(G + j * c, G + (j + 1) * c)
                            pairs += [(key[b, h, u], value[b, h, u]) for u in at if mask[b, u]]
                    for distance in range(2, 2 + S // s):
                        for j in (i - distance, i + distance):
                            pairs += sparse[j] if 0 <= j < n else []
                keys, values = (torch.stack(x) for x in zip(*pairs, strict=True))
                rows.append((keys @ query[b, h, t] / D**0.5).softmax(0) @ values)
    expected = torch.stack(rows).view(B, H, L, D).transpose(1, 2)
    compare(found, expected, inputs, mask)


@pytest.mark.parametrize("sizes", [None, (24, 17)])
def test_nystromformer(sizes: tuple[int, int] | None) -> None:
    """With many iterations: the three kernels with the exact pseudo-inverse, text by text without its padding."""
    L, M = 24, 4
    inputs = qkv(L)
    mask = None if sizes is None else padded(L, *sizes)
    found = ea.nystromformer(*inputs, mask, count=M, iterations=30)
    rows = []
    for b, size in enumerate(sizes or (L, L)):
        query, key, value = (x[b, :, :size] for x in inputs)
        segments = [[t for t in range(size) if t * M // size == m] for m in range(M)]
        q, k = (torch.stack([x[:, at].mean(1) for at in segments], 1) for x in (query, key))
        kernels = [(x @ y.mT / D**0.5).softmax(-1) for x, y in ((query, k), (q, k), (q, key))]
        out = kernels[0] @ torch.linalg.pinv(kernels[1]) @ kernels[2] @ value
        rows.append(F.pad(out, (0, 0, 0, L - size)))
    expected = torch.stack(rows).transpose(1, 2)
    found, expected = (x if mask is None else x * mask[:, :, None, None] for x in (found, expected))
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-2)


# --- against the library's models, on the same weights ------------------------------------------------------


def ids_of(L: int, *sizes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = padded(L, *sizes)
    return torch.randint(5, 60, (len(sizes), L), generator=generator).masked_fill(~mask, 1), mask.long()


def agree(ours: Any, theirs: Any, ids: Tensor, mask: Tensor, theirs_more: dict[str, Any] | None = None,
          more: dict[str, Any] | None = None, grads: bool = True) -> None:  # fmt: skip
    """Last hidden states and the gradients of all shared weights; tokens that are padding aside."""
    states = []
    for model, extra in ((ours, more), (theirs, theirs_more)):
        hidden = model(input_ids=ids, attention_mask=mask, **(extra or {})).last_hidden_state
        if grads:
            weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(4)) * mask[:, :, None]
            (hidden * weight).sum().backward()
        states.append(hidden * mask[:, :, None])
    assert float((states[0] - states[1]).detach().abs().max()) <= 1e-4
    assert float(states[0].detach().std()) > 0.1
    if grads:
        name = "encoder.layer.0.attention.self.query.weight"
        one, other = (dict(m.named_parameters())[name].grad for m in (ours, theirs))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@pytest.mark.parametrize("sizes", [(64, 64), (64, 43)])
@pytest.mark.parametrize("global_count", [1, 4])
def test_parity_with_longformer(sizes: tuple[int, int], global_count: int) -> None:
    torch.manual_seed(0)
    config = LongformerConfig(vocab_size=60, max_position_embeddings=66, attention_window=16, pad_token_id=1, **SMALL)
    theirs = LongformerModel(config).eval()
    ours = RobertaModel(
        RobertaConfig(vocab_size=60, max_position_embeddings=66, pad_token_id=1, type_vocab_size=2, **SMALL)
    ).eval()
    ea.convert(ours, "longformer", 64, window=8)
    weights = {
        key.replace("self.query_global", "self.efficient.query_global")
        .replace("self.key_global", "self.efficient.key_global")
        .replace("self.value_global", "self.efficient.value_global"): value
        for key, value in theirs.state_dict().items()
    }  # fmt: skip
    ours.load_state_dict(weights)
    ids, mask = ids_of(64, *sizes)
    is_global = torch.zeros_like(ids)
    is_global[:, :global_count] = 1
    more = {"global_attention_mask": is_global}
    agree(ours, theirs, ids, mask, more, more if global_count > 1 else None)
    key = "encoder.layer.0.attention.self.{}value_global.weight"
    one = dict(ours.named_parameters())[key.format("efficient.")].grad
    other = dict(theirs.named_parameters())[key.format("")].grad
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@pytest.mark.parametrize("sizes", [(96, 96), (96, 90)])
@pytest.mark.parametrize("training", [False, True])
def test_parity_with_bigbird(sizes: tuple[int, int], training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training on the library's own draws; in evaluation it looks at block 0 in place of every random block."""
    torch.manual_seed(0)
    L, c, r = 96, 4, 3
    n = L // c
    config = BigBirdConfig(vocab_size=60, max_position_embeddings=L, block_size=c, num_random_blocks=r, pad_token_id=1,
                           hidden_act="gelu", **SMALL)  # fmt: skip
    theirs = BigBirdModel(config).train(training)
    ours = BertModel(BertConfig(vocab_size=60, max_position_embeddings=L, pad_token_id=1, **SMALL)).train(training)
    ea.convert(ours, "bigbird", L, block=c, random=r)
    ours.load_state_dict({k.replace("pooler.", "pooler.dense."): v for k, v in theirs.state_dict().items()})
    tables = []
    for layer in range(2):
        attention = theirs.encoder.layer[layer].attention.self
        np.random.seed(layer)
        plan = attention._get_rand_attn_plan(L, c, r)
        drawn = attention._bigbird_block_rand_mask_with_head(L, L, c, c, 4, *plan)
        drawn = torch.tensor(np.stack(drawn), dtype=torch.long)  # (H, n - 2, r)
        tables.append(F.pad(drawn, (0, 0, 1, 1)).transpose(0, 1))
    monkeypatch.setattr(ea, "random_blocks", lambda n, heads, count, seed: tables[seed][:n])
    ids, mask = ids_of(L, *sizes)
    assert n * c == L
    # only where the last block of the second text is the last block of all do both see the same global blocks
    agree(ours, theirs, ids, mask) if sizes[1] > L - c else agree(ours, theirs, ids[:1], mask[:1])


@pytest.mark.parametrize("batch", [1, 2])
def test_parity_with_nystromformer(batch: int) -> None:
    """Unpadded: the library averages padding into its landmarks."""
    torch.manual_seed(0)
    L, M = 64, 8
    small = SMALL | {"initializer_range": 0.1}
    config = NystromformerConfig(vocab_size=60, max_position_embeddings=L, num_landmarks=M, segment_means_seq_len=L,
                                 conv_kernel_size=9, hidden_act="gelu", layer_norm_eps=1e-12, **small)  # fmt: skip
    theirs = NystromformerModel(config).eval()
    ours = BertModel(BertConfig(vocab_size=60, max_position_embeddings=L + 2, **small), add_pooling_layer=False).eval()
    ea.convert(ours, "nystromformer", L + 2, landmarks=M, kernel=9)
    weights = {k.replace("self.conv", "self.efficient.conv"): v for k, v in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    ids, mask = ids_of(L, *[L] * batch)
    more = {"position_ids": torch.arange(2, L + 2)[None]}
    # the library starts its iteration from the largest sum over the batch, so that texts depend on each other
    for b in range(batch):
        agree(ours, theirs, ids[b : b + 1], mask[b : b + 1], None, more)
    together = ours(input_ids=ids, attention_mask=mask, **more).last_hidden_state
    alone = [ours(input_ids=ids[b : b + 1], **more).last_hidden_state for b in range(batch)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


# --- conversion ---------------------------------------------------------------------------------------------

TINY = {
    "longformer": {"window": 4},
    "bigbird": {"block": 4, "random": 2},
    "lsg": {"block": 4, "sparse_block": 4, "global_count": 2},
    "nystromformer": {"landmarks": 4, "kernel": 5},
}
ENCODERS = ("bert", "roberta", "electra", "albert", "distilbert", "xlm-roberta", "camembert")


def encoder(family: str, head: Any = AutoModel, **changes: Any) -> Any:
    settings = FAMILIES.get(family, FAMILIES["roberta"]) | {"vocab_size": 31, "pad_token_id": 0} | changes
    if family in ("roberta", "xlm-roberta", "camembert"):
        settings["max_position_embeddings"] = 17  # 16 and the padding's
    elif family != "xlnet":
        settings["max_position_embeddings"] = 16
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model = head.from_config(config)
    for parameter in model.parameters():  # large enough that layers and tokens differ visibly
        parameter.data.mul_(4.0 if parameter.ndim > 1 else 1.0)
    return model.eval()


def converted(attention: str, family: str = "bert", head: Any = AutoModel, length: int = 64, **changes: Any) -> Any:
    model = encoder(family, head, **changes)
    ea.convert(model, attention, length, word_tokenizer(), **TINY[attention])
    return model.eval()


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("attention", list(ea.ATTENTIONS))
def test_any_encoder_becomes_long(attention: str, family: str) -> None:
    """Four times the positions, all weights kept, and a text that is longer than the model was."""
    before = encoder(family).state_dict()
    model = converted(attention, family)
    after = model.state_dict()
    for name, weight in before.items():
        kept = after[name][: len(weight)] if "position_embeddings" in name else after[name]
        assert torch.equal(kept, weight), name
    rows = after["embeddings.position_embeddings.weight"]
    first = len(rows) - 64
    assert torch.equal(rows[first:].view(4, 16, -1), rows[first : first + 16].expand(4, -1, -1))
    ids = torch.randint(5, 31, (2, 64))
    out = model(input_ids=ids, output_hidden_states=True)
    assert out.last_hidden_state.shape == (2, 64, 32)
    assert all(hidden.shape[1] == 64 for hidden in out.hidden_states)
    assert torch.isfinite(out.last_hidden_state).all()


@pytest.mark.parametrize("attention", list(ea.ATTENTIONS))
def test_padding_changes_nothing(attention: str) -> None:
    """A text alone, padded, and beside a longer one, in outputs and gradients; short texts and long ones."""
    model = converted(attention)
    torch.manual_seed(1)
    texts = [torch.randint(5, 31, (L,)) for L in (64, 50, 31, 13, 3)]

    def run(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        model.zero_grad()
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = torch.randn(64, 32, generator=torch.Generator().manual_seed(2))[: len(hidden[0])]
        (hidden[0] * weight * mask[0, :, None]).sum().backward()
        return hidden[0], model.get_input_embeddings().weight.grad.clone()

    for text in texts:
        L = len(text)
        alone, grad = run(text[None], torch.ones(1, L, dtype=torch.long))
        for other in (text[:2], texts[0]):
            ids = torch.zeros(2, 64, dtype=torch.long)
            mask = torch.zeros(2, 64, dtype=torch.long)
            for row, words in enumerate((text, other)):
                ids[row, : len(words)], mask[row, : len(words)] = words, 1
            together, other_grad = run(ids, mask)
            torch.testing.assert_close(together[:L], alone, atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(other_grad, grad, atol=1e-4 * float(grad.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("attention", list(ea.ATTENTIONS))
def test_in_bf16(attention: str) -> None:
    """Under autocast, with a short text, a long one and a padded one: nearly the same outputs, and gradients."""
    model = converted(attention)
    mask = padded(64, 64, 10, 51).long()
    ids = torch.randint(5, 31, (3, 64), generator=torch.Generator().manual_seed(1)) * mask
    whole = model(input_ids=ids, attention_mask=mask).last_hidden_state
    with torch.autocast("cpu", torch.bfloat16):
        half = model(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.nn.functional.cosine_similarity(whole[mask.bool()], half[mask.bool()].float(), -1).min() > 0.95
    half.float().pow(2).sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("attention", ["bigbird", "lsg", "nystromformer"])
def test_short_texts_get_full_attention(attention: str) -> None:
    """Up to the length below which sparse attention saves nothing, as the base model answers; LSG has globals."""
    if attention == "lsg":
        query, key, value = inputs = qkv(10)
        module = ea.Lsg(torch.nn.Identity(), block=4, sparse_block=4, global_count=2)
        found = module(*inputs, None, scale=None, dropout=0.0)
        torch.testing.assert_close(found, F.scaled_dot_product_attention(query, key, value).transpose(1, 2))
        return
    ids = torch.randint(5, 31, (2, 4))
    model, base = converted(attention), encoder("bert")
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, base(input_ids=ids).last_hidden_state)


@pytest.mark.parametrize("attention", ["longformer", "bigbird", "lsg"])
def test_keys_that_are_collected_in_parts(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of queries at once, some, or one of each text: the same output and the same gradients."""
    model, ids, mask = converted(attention), torch.randint(5, 31, (3, 64)), torch.ones(3, 64, dtype=torch.long)
    mask[1, 50:], mask[2, 20:] = 0, 0
    weights = [p for p in model.parameters() if p.requires_grad]
    calls: list[int] = []
    monkeypatch.setattr(ea, "attend", lambda *args, own=ea.attend: calls.append(len(args[0])) or own(*args))
    found, largest = [], []
    for part in (ea.PART, 2**13, 1):
        monkeypatch.setattr(ea, "PART", part)
        calls.clear()
        out = model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]
        found.append([out, *torch.autograd.grad(out.square().sum(), weights, allow_unused=True)])
        largest.append(max(calls))
    assert largest[0] > largest[1] > largest[2]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-5)


def test_a_wide_window_is_full_attention() -> None:
    """Longformer with a window as long as the text and global projections that are copies: the base model."""
    ids, mask = torch.randint(5, 31, (2, 16)), padded(16, 16, 11).long()
    model, base = encoder("bert"), encoder("bert")
    ea.convert(model, "longformer", 16, window=16)
    for b, size in ((0, 16), (1, 11)):
        found, expected = (m(input_ids=ids, attention_mask=mask).last_hidden_state[b, :size] for m in (model, base))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_questions_are_global() -> None:
    """With `question`, every token up to the first separator: as if the caller had named them."""
    named, marked = encoder("bert"), encoder("bert")
    ea.convert(named, "longformer", 64, window=4)
    ea.convert(marked, "longformer", 64, window=4, question=3)
    ids = torch.randint(5, 31, (2, 40))
    ids[0, 6], ids[1, 9] = 3, 3
    is_global = torch.arange(40) <= torch.tensor([[6], [9]])
    first = named(input_ids=ids).last_hidden_state
    expected = named(input_ids=ids, global_attention_mask=is_global).last_hidden_state
    torch.testing.assert_close(marked(input_ids=ids).last_hidden_state, expected)
    assert not torch.allclose(first, expected, atol=1e-3)


@pytest.mark.parametrize("attention", list(ea.ATTENTIONS))
def test_saved_and_loaded(attention: str, tmp_path: Path) -> None:
    model = converted(attention, head=AutoModelForSequenceClassification)
    model.save_pretrained(tmp_path)
    again = ea.load(tmp_path, AutoModelForSequenceClassification)
    ids = torch.randint(5, 31, (2, 60))
    assert torch.equal(model(input_ids=ids).logits, again(input_ids=ids).logits)


def test_all_weights_learn() -> None:
    """Also those that conversion adds."""
    for attention in ea.ATTENTIONS:
        model = converted(attention).train()
        model(input_ids=torch.randint(5, 31, (2, 64))).last_hidden_state.square().sum().backward()
        added = {n: p for n, p in model.named_parameters() if "efficient" in n or "global" in n}
        for name, parameter in added.items():
            if name.endswith("key_global.bias"):
                continue  # softmax cancels it
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_dropout_has_the_right_mean() -> None:
    """The global rows never compute the values that are dropped: their mean over many draws is that without."""
    torch.manual_seed(0)
    model = converted("longformer", hidden_dropout_prob=0.0)
    module = ea.self_attentions(model)[0]
    hidden, index = torch.randn(1, 12, 32), torch.tensor([[0, 3]])
    query = torch.zeros(1, 4, 12, 8)
    with torch.no_grad():
        expected = module.efficient.global_rows(hidden, index, None, query, None, 0.0)
        draws = [module.efficient.global_rows(hidden, index, None, query, None, 0.3) for _ in range(3000)]
    spread = torch.stack(draws).std(0) / 3000**0.5
    assert float(((torch.stack(draws).mean(0) - expected) / spread).abs().max()) < 5


@pytest.mark.parametrize(
    ("family", "attention", "words"),
    [
        ("bert", "linformer", "must be one of longformer, bigbird, lsg, nystromformer"),
        ("xlnet", "longformer", "xlnet has no exchangeable attention"),
        ("deberta", "bigbird", "deberta has no exchangeable attention"),
    ],
)
def test_what_cannot_be_converted(family: str, attention: str, words: str) -> None:
    model = encoder(family)
    with pytest.raises(BadInput, match=words):
        ea.convert(model, attention, 64)


def test_a_converted_model_is_not_converted_again() -> None:
    model = converted("bigbird")
    with pytest.raises(BadInput, match="is a bigbird already"):
        ea.convert(model, "longformer", 64)
