"""The four attentions against their definitions in float64 and the library's own; conversion, padding, saving."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from conftest import FAMILIES, draw, word_tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from common import models
from common.layers import attention
from methods import efficient_attention as paper

B, H, D = 2, 3, 8
FOUR = list(attention.ATTENTIONS)
close = torch.testing.assert_close


class Source(nn.Module):
    """What an attention is put into: a self-attention with its projections."""

    attention_head_size = D

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.query, self.key, self.value = (nn.Linear(H * D, H * D) for _ in range(3))


def inputs(L: int) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (x.requires_grad_() for x in draw(3, B, H, L, D))
    return query, key, value


def padded(L: int, *sizes: int) -> Tensor:
    return torch.arange(L) < torch.tensor(sizes)[:, None]


def text_by_text(sizes: Sequence[int], of: Sequence[Tensor], textbook: Callable[..., Tensor]) -> Tensor:
    """A textbook attention of each text without its padding: (B, L, H, d). `textbook` gets a text's number and its
    (H, size, d) queries, keys and values."""
    L, rows = of[0].shape[2], []
    for b, size in enumerate(sizes):
        out = textbook(b, *(x[b, :, :size] for x in of))
        rows.append(F.pad(out, (0, 0, 0, L - size)))
    return torch.stack(rows).transpose(1, 2)


def agree(found: Tensor, expected: Tensor, of: Sequence[Tensor], mask: Tensor, within: float = 1e-10) -> None:
    """Values and gradients, for all tokens that are not padding."""
    generator = torch.Generator().manual_seed(9)
    weight = torch.randn(expected.shape, generator=generator, dtype=torch.float64) * mask[:, :, None, None]
    close(found * weight, expected * weight, atol=within, rtol=within)
    gradients = [torch.autograd.grad((x * weight).sum(), of) for x in (found, expected)]
    close(*gradients, atol=within, rtol=within)


# --- each attention against its definition ------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(37, 37), (37, 21)])
@pytest.mark.parametrize("global_at", [([0], [0]), ([0, 1, 2], [5]), ([], [20]), ([], [])])
def test_longformer(sizes: tuple[int, int], global_at: Any) -> None:
    """A window and global tokens; the rows of these by projections of their own."""
    L, w = 37, 4
    module, given, mask = attention.Longformer(Source(), window=w).double(), inputs(L), padded(L, *sizes)
    hidden = torch.randn(B, L, H * D, dtype=torch.float64, requires_grad=True)
    is_global = torch.zeros(B, L, dtype=torch.bool)
    for b, at in enumerate(global_at):
        is_global[b, at] = True
    found = module(*given, None if mask.all() else mask, None, 0.0, hidden=hidden, is_global=is_global)
    linears = (module.query_global, module.key_global, module.value_global)
    own = [linear(hidden).view(B, L, H, D).transpose(1, 2) for linear in linears]

    def textbook(b: int, *of: Tensor) -> Tensor:
        size = of[0].shape[1]
        query, key, value = (x[b, :, :size] for x in own)
        return paper.longformer(*of, (query, key, value), w, is_global[b, :size])

    agree(found, text_by_text(sizes, given, textbook), [*given, hidden], mask)


@pytest.mark.parametrize("sizes", [(36, 36), (36, 29)])
def test_bigbird(sizes: tuple[int, int]) -> None:
    L, c, r = 36, 4, 1
    given, mask = inputs(L), padded(L, *sizes)
    found = attention.BigBird(Source(), layer=5, block=c, random=r)(*given, None if mask.all() else mask, None, 0.0)

    def textbook(_: int, *of: Tensor) -> Tensor:
        return paper.bigbird(*of, c, attention.random_blocks(-(-of[0].shape[1] // c), H, r, 5))

    agree(found, text_by_text(sizes, given, textbook), given, mask)


def test_random_blocks() -> None:
    """Different in rows, heads and layers; never a neighbour, a global block, or the same one twice."""
    table = attention.random_blocks(20, 4, 3, 0)
    for i in range(20):
        for picked in table[i].tolist():
            assert len(set(picked) - {0, 19, i - 1, i, i + 1}) == 3
    assert not torch.equal(table, attention.random_blocks(20, 4, 3, 1))
    assert not torch.equal(table[:, 0], table[:, 1])


@pytest.mark.parametrize("sizes", [(34, 34), (34, 25)])
def test_lsg(sizes: tuple[int, int]) -> None:
    L, c, s, S, G = 2 + 32, 4, 2, 4, 2
    given, mask = inputs(L), padded(L, *sizes)
    module = attention.Lsg(Source(), block=c, sparse_block=S, factor=c // s, global_count=G)
    found = module(*given, None if mask.all() else mask, None, 0.0)
    expected = text_by_text(sizes, given, lambda _, *of: paper.lsg(*of, c, s, S // s, G))
    agree(found, expected, given, mask)


@pytest.mark.parametrize("sizes", [(24, 24), (24, 17)])
def test_nystromformer(sizes: tuple[int, int]) -> None:
    """With the paper's iterations the textbook's; with many the exact pseudo-inverse; and the convolution."""
    L, M = 24, 4
    given, mask = inputs(L), padded(L, *sizes)
    for iterations, inverse in ((6, paper.pseudo_inverse), (40, lambda A, _: torch.linalg.pinv(A))):
        module = attention.Nystromformer(Source(), landmarks=M, iterations=iterations, kernel=5).double()
        filters = nn.init.normal_(module.conv.weight)[:, 0, :, 0].repeat_interleave(D, 0)[:, None]  # (H d, 1, 5)

        def textbook(_: int, *of: Tensor, inverse: Any = inverse, filters: Tensor = filters) -> Tensor:
            size = of[0].shape[1]
            with patch.object(paper, "pseudo_inverse", inverse):
                out = paper.nystromformer(*of, M)
            near = F.conv1d(of[2].mT.reshape(1, H * D, size), filters, padding=2, groups=H * D)
            return out + near.view(H, D, size).mT

        found = module(*given, None if mask.all() else mask, None, 0.0)
        agree(found, text_by_text(sizes, given, textbook), given, mask, within=1e-6)


# --- against the library's models, on the same weights ------------------------------------------------------

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "initializer_range": 0.1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "vocab_size": 60,
         "pad_token_id": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-12}  # fmt: skip
LIBRARY: dict[str, dict[str, Any]] = {
    "longformer": {"attention_window": 16, "max_position_embeddings": 98},
    "big_bird": {"block_size": 4, "max_position_embeddings": 96},
    "nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 96, "conv_kernel_size": 9,
                      "max_position_embeddings": 96},
}  # fmt: skip


def of_the_library(family: str, head: Any = AutoModelForMaskedLM, **changes: Any) -> Any:
    torch.manual_seed(0)
    return head.from_config(AutoConfig.for_model(family, **(SMALL | LIBRARY[family] | changes)))


@pytest.mark.parametrize(
    ("family", "sizes"), [("longformer", (96, 67)), ("big_bird", (96, 94)), ("nystromformer", (96,))]
)
def test_as_the_library(family: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states, words and a gradient of whole models in float64. BigBird on the library's own draws, and where the
    last blocks of all texts are the same; Nystromformer without padding, which the library averages into its
    landmarks."""
    L, theirs = 96, of_the_library(family).double()
    ours = attention.from_library(theirs)
    if family == "big_bird":
        tables = []
        for layer in range(2):
            own = theirs.bert.encoder.layer[layer].attention.self
            np.random.seed(layer)
            drawn = own._bigbird_block_rand_mask_with_head(L, L, 4, 4, 4, *own._get_rand_attn_plan(L, 4, 3))
            tables.append(F.pad(torch.tensor(np.stack(drawn)), (0, 0, 1, 1)).transpose(0, 1))
        monkeypatch.setattr(attention, "random_blocks", lambda n, heads, count, seed: tables[seed][:n])
    mask = padded(L, *sizes).long()
    batch = {"input_ids": torch.randint(5, 60, mask.shape) * mask + 1 - mask, "attention_mask": mask}
    theirs_more = {"global_attention_mask": F.pad(mask[:, :1], (0, L - 1))} if family == "longformer" else {}
    weight, found = torch.randn(*mask.shape, 60, dtype=torch.float64) * mask[:, :, None], []
    for model, extra in ((ours.train(), {}), (theirs.train(), theirs_more)):
        out = model(**batch, **extra, output_hidden_states=True)
        (out.logits * weight).sum().backward()
        gradient = model.base_model.encoder.layer[0].attention.self.query.weight.grad
        hidden = out.hidden_states[-1] * mask[:, :, None]
        found.append((hidden, out.logits * mask[:, :, None], gradient / gradient.norm()))
    assert found[0][0].std() > 0.1
    close(*found, atol=1e-5, rtol=1e-5)  # the library computes some softmax in float32


@pytest.mark.parametrize("family", LIBRARY)
def test_the_librarys_long_models(family: str, tmp_path: Path) -> None:
    """With the body alone, saved and loaded, and cut in half; what is not one of them stays what it is."""
    theirs = of_the_library(family)
    model, ids = attention.from_library(theirs).eval(), ids_of(2, 96)
    model.save_pretrained(tmp_path)
    again, lost = attention.read(tmp_path, transformers.AutoModelForTokenClassification)
    assert lost == ["classifier.bias", "classifier.weight"]
    body = attention.from_library(theirs.base_model).eval()
    expected = body(input_ids=ids).last_hidden_state
    for other in (model, again):
        assert torch.equal(other.base_model(input_ids=ids).last_hidden_state, expected)
    half = models.keep_layers(model, "2", 1)
    half.save_pretrained(tmp_path / "half")
    loaded = attention.load(tmp_path / "half", AutoModelForMaskedLM)
    assert torch.equal(loaded(input_ids=ids).logits, half(input_ids=ids).logits)
    assert attention.from_library(half) is half


# --- whole models -------------------------------------------------------------------------------------------

TINY: dict[str, dict[str, Any]] = {
    "longformer": {"window": 4},
    "bigbird": {"block": 4, "random": 2},
    "lsg": {"block": 4, "sparse_block": 4, "global_count": 2},
    "nystromformer": {"landmarks": 4, "kernel": 5},
}


def encoder(family: str = "bert", head: Any = AutoModel) -> Any:
    """Reads 16 tokens; RoBERTa and its kin have a position for padding besides."""
    settings = FAMILIES.get(family, FAMILIES["roberta"]) | {"vocab_size": 31, "pad_token_id": 0}
    if family != "xlnet":
        settings["max_position_embeddings"] = 17 if family in ("roberta", "camembert") else 16
    torch.manual_seed(0)
    model = head.from_config(transformers.AutoConfig.for_model(family, **settings))
    for parameter in model.parameters():  # large enough that layers and tokens differ visibly
        parameter.data.mul_(4.0 if parameter.ndim > 1 else 1.0)
    return model.eval()


def converted(name: str, family: str = "bert", head: Any = AutoModel) -> Any:
    model = encoder(family, head)
    attention.convert(model, name, 64, word_tokenizer(), **TINY[name])
    return model.eval()


def ids_of(*shape: int) -> Tensor:
    return torch.randint(5, 31, shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", FOUR)
def test_a_copy_that_can_be_trained_is_the_same_model(name: str) -> None:
    """Without a teacher's hooks, but with those of its attention."""
    model, seen = converted(name), list[Any]()
    model.register_forward_hook(lambda *_: seen.append(1))
    given = {"input_ids": ids_of(2, 48), "attention_mask": torch.ones(2, 48, dtype=torch.long)}
    copy = models.trainable_copy(model).eval()
    found = copy(**given).last_hidden_state
    assert not seen
    assert torch.equal(found, model(**given).last_hidden_state)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "albert", "distilbert", "camembert"])
@pytest.mark.parametrize("name", FOUR)
def test_any_encoder_becomes_long(name: str, family: str) -> None:
    """Four times the positions, all weights kept, a longer text than before; what was added learns."""
    before, model = encoder(family).state_dict(), converted(name, family)
    after = model.state_dict()
    for key, weight in before.items():
        assert torch.equal(after[key][: len(weight)] if "position_embeddings" in key else after[key], weight), key
    rows = after["embeddings.position_embeddings.weight"][-64:]
    assert torch.equal(rows.view(4, 16, -1), rows[:16].expand(4, -1, -1))
    out = model.train()(input_ids=ids_of(2, 64), output_hidden_states=True)
    assert {hidden.shape for hidden in out.hidden_states} == {(2, 64, 32)}
    out.last_hidden_state.square().sum().backward()
    for key, parameter in model.named_parameters():
        if ("efficient" in key or "global" in key) and not key.endswith("key_global.bias"):  # softmax cancels it
            assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", FOUR)
def test_padding_changes_nothing(name: str) -> None:
    """A text alone, and padded beside another, in outputs and gradients; short texts and long ones."""
    model, weight = converted(name).double(), torch.randn(64, 32, dtype=torch.float64)
    for size in (64, 50, 31, 13, 3):
        mask, ids, found = padded(64, size, 64).long(), ids_of(2, 64), []
        for rows, words in ((1, size), (2, 64)):
            hidden = model(input_ids=ids[:rows, :words], attention_mask=mask[:rows, :words]).last_hidden_state[0, :size]
            loss = (hidden * weight[:size]).sum()
            found.append([hidden, *torch.autograd.grad(loss, model.get_input_embeddings().weight)])
        close(*found, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", FOUR)
def test_in_bf16(name: str) -> None:
    """Under autocast, with a long text, a short one and a padded one: nearly the same outputs, and gradients."""
    model, mask = converted(name), padded(64, 64, 10, 51)
    found: list[Any] = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found.append(model(input_ids=ids_of(3, 64), attention_mask=mask.long()).last_hidden_state[mask].float())
    assert F.cosine_similarity(found[0], found[1], dim=-1).min() > 0.95
    found[1].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["longformer", "bigbird", "lsg"])
def test_keys_that_are_copied_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of queries at once, some, or one: the same output and the same gradients."""
    model, mask, found, attend = converted(name).double(), padded(64, 64, 50, 20), [], attention.attend
    calls: Any = []
    monkeypatch.setattr(attention, "attend", lambda *args: calls.append(len(args[0])) or attend(*args))
    for part in (attention.PART, 2**13, 1):
        monkeypatch.setattr(attention, "PART", part)
        out = model(input_ids=ids_of(3, 64), attention_mask=mask.long()).last_hidden_state[mask]
        found.append([max(calls), out, *torch.autograd.grad(out.square().sum(), model.embeddings.LayerNorm.weight)])
        calls.clear()
    assert found[0][0] > found[1][0] > found[2][0]
    for other in found[1:]:
        close(other[1:], found[0][1:], atol=1e-9, rtol=1e-9)


def test_a_feed_forward_layer_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same output whatever the parts, also of a copy, which has weights of its own."""
    model, ids = converted("lsg"), ids_of(2, 50)
    whole = model(input_ids=ids).last_hidden_state
    monkeypatch.setattr(attention, "PART", 2**11)  # 8 tokens
    close(model(input_ids=ids).last_hidden_state, whole)
    other = copy.deepcopy(model)
    for parameter in other.encoder.parameters():
        parameter.data.zero_()
    close(model(input_ids=ids).last_hidden_state, whole)
    assert not other(input_ids=ids).last_hidden_state.any()


@pytest.mark.parametrize(("count", "expected"), [
    (512, [0, 64, 128, 192, 256, 320, 384, 448, 1, 65]), (2048, [0, 64, 128, 192, 256, 320, 384, 448, 512, 576]),
    (600, [0, 64, 128, 192, 256, 320, 384, 448, 1, 65]), (128, [0, 16, 32, 48, 64, 80, 96, 112, 1, 17]),
])  # fmt: skip
def test_lsgs_global_tokens(count: int, expected: list[int]) -> None:
    """The authors' order of the positions that the model had before it was converted: all are others."""
    settings = FAMILIES["roberta"] | {"vocab_size": 31, "pad_token_id": 0, "max_position_embeddings": count}
    model = AutoModel.from_config(AutoConfig.for_model("bert", **settings))
    rows, words = model.embeddings.position_embeddings.weight, model.embeddings.word_embeddings.weight
    attention.convert(model, "lsg", 4096, word_tokenizer())
    found = model.embeddings.LayerNorm.global_embeddings.weight
    assert torch.equal(found[0], rows[0] + words[word_tokenizer().cls_token_id])
    assert torch.equal(found[1:10], rows[expected[1:]] + words[word_tokenizer().mask_token_id])
    assert len(found[1:].unique(dim=0)) == min(count, 511)


def test_full_attention_is_a_special_case() -> None:
    """Short texts, and Longformer's window as long as the text, give what the model gave before; LSG has globals."""
    base, mask = encoder(), padded(16, 16, 11)
    expected = base(input_ids=ids_of(2, 16), attention_mask=mask.long()).last_hidden_state[mask]
    for name, settings in (("longformer", {"window": 16}), ("bigbird", {}), ("nystromformer", {"landmarks": 16})):
        model = encoder()
        attention.convert(model, name, 16, **settings)
        found = model(input_ids=ids_of(2, 16), attention_mask=mask.long()).last_hidden_state[mask]
        close(found, expected, atol=1e-4, rtol=1e-4)
    given = inputs(10)
    found = attention.Lsg(Source(), block=4, global_count=2)(*given, None, None, 0.0)
    close(found, F.scaled_dot_product_attention(*given).transpose(1, 2))


def test_questions_are_global() -> None:
    """With `question`, every token up to the first separator: as if the caller had named them."""
    named, marked, ids = encoder(), encoder(), ids_of(2, 16)
    attention.convert(named, "longformer", 16, window=4)
    attention.convert(marked, "longformer", 16, window=4, question=3)
    ids[0, 6], ids[1, 9] = 3, 3
    is_global = torch.arange(16) <= torch.tensor([[6], [9]])
    expected = named(input_ids=ids, global_attention_mask=is_global).last_hidden_state
    close(marked(ids).last_hidden_state, expected)
    assert not torch.allclose(named(input_ids=ids).last_hidden_state, expected, atol=1e-3)


@torch.no_grad()
def test_dropout_has_the_right_mean() -> None:
    """Also that of the global rows, which never compute the values that are dropped."""
    module, given = attention.Longformer(Source(), window=2, first=2).double(), inputs(12)
    hidden = torch.randn(B, 12, H * D, dtype=torch.float64)
    draws = torch.stack([module(*given, None, None, 0.3, hidden=hidden) for _ in range(300)])
    errors = (draws.mean(0) - module(*given, None, None, 0.0, hidden=hidden)) / (draws.std(0) / 300**0.5)
    assert float(errors.abs().max()) < 6


@pytest.mark.parametrize("name", FOUR)
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    model, ids = converted(name, head=AutoModelForSequenceClassification), ids_of(2, 60)
    models.save(model, word_tokenizer(), tmp_path, "")
    again = attention.load(tmp_path, AutoModelForSequenceClassification)
    assert torch.equal(model(input_ids=ids).logits, again(input_ids=ids).logits)
    # the library alone would load a model with full attention
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] not in CONFIG_MAPPING_NAMES
