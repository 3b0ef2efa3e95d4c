"""XTC's parts, each against a slow reference written from the definition, and their properties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import FAMILIES, bert_config, tiny_bert
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from common.args import BadInput
from methods import xtc
from methods.xtc import (
    STAGES,
    Quantizer,
    Scores,
    Stage,
    attention_loss,
    hidden_loss,
    layer_map,
    logit_loss,
    pack,
    quantizable,
    quantize,
    reduce_layers,
    step_loss,
)

ENCODERS = [name for name in FAMILIES if name != "xlnet"]


# --- quantisers --------------------------------------------------------------------------------------------


def reference(W: np.ndarray, bits: int) -> np.ndarray:
    """One scale for all of W, entry by entry."""
    size = np.abs(W)
    if bits == 1:
        alpha = size.sum() / W.size
        return np.array([alpha if w >= 0 else -alpha for w in W.flat]).reshape(W.shape)
    if bits == 2:
        delta = 0.7 * size.sum() / W.size
        above = size[size > delta]
        alpha = above.sum() / len(above) if len(above) else 0.0
        return np.array([0.0 if abs(w) <= delta else alpha * np.sign(w) for w in W.flat]).reshape(W.shape)
    step = size.max() / (2 ** (bits - 1) - 1)
    return np.array([step * np.round(w / step) for w in W.flat]).reshape(W.shape)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (16, 8)])
def test_quantisers_by_definition(bits: int, shape: tuple[int, int]) -> None:
    W = np.random.default_rng(bits).standard_normal(shape) * 0.05
    W[0, 0] = 0.1
    found = Quantizer(bits)(torch.tensor(W)).numpy()
    np.testing.assert_allclose(found, reference(W, bits), rtol=1e-12, atol=1e-15)
    assert len(np.unique(found)) <= {1: 2, 2: 3, 4: 15, 8: 255}[bits]
    # a word embedding: every row as if it were alone
    rows = np.stack([reference(row, bits) for row in W])
    np.testing.assert_allclose(Quantizer(bits, per_row=True)(torch.tensor(W)).numpy(), rows, rtol=1e-12, atol=1e-15)


def test_sign_of_zero_is_one_and_zeros_stay_finite() -> None:
    assert (Quantizer(1).codes(torch.tensor([[0.0, -1.0, 2.0]]))[0] == torch.tensor([[1.0, -1.0, 1.0]])).all()
    for bits in (1, 2, 4, 8):
        W = torch.zeros(3, 4, requires_grad=True)
        W_q = Quantizer(bits, per_row=True)(W)
        W_q.sum().backward()
        assert W_q.abs().max() <= 1e-11
        assert torch.isfinite(W.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("per_row", [False, True])
def test_quantising_twice_is_quantising_once(bits: int, per_row: bool) -> None:
    quantizer = Quantizer(bits, per_row)
    torch.manual_seed(0)
    once = quantizer(torch.randn(9, 17, dtype=torch.float64))
    torch.testing.assert_close(quantizer(once), once)
    assert (quantizer.codes(once)[0] == quantizer.codes(quantizer(once))[0]).all()


def quantised_linear(bits: int, clip: float | None = None, rank: int = 0) -> nn.Linear:
    """A linear of a tiny BERT, quantised by the one call, in float64."""
    torch.manual_seed(0)
    model = tiny_bert(1, 16)
    quantize(model, bits, clip, rank)
    return model.bert.encoder.layer[0].intermediate.dense.double()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_a_quantised_linear_and_its_gradients(bits: int, clip: float | None) -> None:
    """Forward: rounded inputs times rounded weights. Backward: as if nothing had been rounded, or, clipped, nothing
    outside the bounds."""
    module = quantised_linear(bits, clip)
    W = module.parametrizations.weight.original  # type: ignore[union-attr, index]
    x = torch.randn(2, 3, 16, dtype=torch.float64, requires_grad=True)
    g = torch.randn(2, 3, 32, dtype=torch.float64)
    y = module(x)
    y.backward(g)

    bound = clip or np.inf
    rows = np.clip(x.detach().numpy().reshape(6, 16), -bound, bound)
    scale = np.abs(rows).max(1, keepdims=True) / 127
    x_q = np.round(rows / scale) * scale
    W_q = reference(np.clip(W.detach().numpy(), -bound, bound), bits)
    expected = x_q @ W_q.T + module.bias.detach().numpy()
    np.testing.assert_allclose(y.detach().numpy().reshape(6, 32), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(module.weight.detach().numpy(), W_q, rtol=1e-9)
    flat = g.numpy().reshape(6, 32)
    dW = flat.T @ x_q * (np.abs(W.detach().numpy()) <= bound)
    dx = (flat @ W_q).reshape(2, 3, 16) * (np.abs(x.detach().numpy()) <= bound)
    np.testing.assert_allclose(W.grad.numpy(), dW, rtol=1e-9, atol=1e-12)  # type: ignore[union-attr]
    np.testing.assert_allclose(x.grad.numpy(), dx, rtol=1e-9, atol=1e-12)  # type: ignore[union-attr]
    np.testing.assert_allclose(module.bias.grad.numpy(), flat.sum(0), rtol=1e-9, atol=1e-12)  # type: ignore[union-attr]
    if clip:
        assert (W.grad == 0).any()  # type: ignore[union-attr]


def test_adapters_stand_beside_the_weight() -> None:
    """Eq. 2: W = W~ + UV on the rounded input; with U = 0, as at the start, nothing changes."""
    plain, module = quantised_linear(1), quantised_linear(1, rank=3)
    x = torch.randn(5, 16, dtype=torch.float64)
    assert torch.equal(module(x), plain(x))
    U, V = module.lora_U, module.lora_V
    assert U.shape == (32, 3)  # type: ignore[union-attr]
    assert V.shape == (3, 16)  # type: ignore[union-attr]
    nn.init.normal_(U)  # type: ignore[arg-type]
    scale = x.abs().amax(-1, keepdim=True) / 127
    x_q = (x / scale).round() * scale
    torch.testing.assert_close(module(x), F.linear(x_q, module.weight + U @ V, module.bias))  # type: ignore[operator]
    module(x).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in (U, V))  # type: ignore[union-attr]


def test_rank_zero_is_no_adapter() -> None:
    none, zero = tiny_bert(2, 16).eval(), tiny_bert(2, 16).eval()
    quantize(none, 1)
    quantize(zero, 1, lora_rank=0)
    assert [n for n, _ in none.named_parameters()] == [n for n, _ in zero.named_parameters()]
    ids = torch.randint(5, 31, (2, 6))
    assert torch.equal(none(input_ids=ids).logits, zero(input_ids=ids).logits)


def test_32_bits_change_nothing() -> None:
    model = tiny_bert(2, 16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert quantize(model, 32) == []
    assert before.keys() == model.state_dict().keys()
    assert pack(model) is model


# --- which modules; every family ---------------------------------------------------------------------------


def encoder(family: str) -> PreTrainedModel:
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES[family])
    config.initializer_range = 0.2
    return AutoModelForSequenceClassification.from_config(config).eval()


def batch() -> dict[str, Tensor]:
    torch.manual_seed(2)
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": torch.randint(5, 99, (3, 9)), "attention_mask": mask, "labels": torch.tensor([0, 1, 0])}


def test_what_is_quantised_in_a_bert() -> None:
    names = [name.removeprefix("bert.") for name in quantizable(tiny_bert(2, 16))]
    parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
             "intermediate.dense", "output.dense"]  # fmt: skip
    layers = [f"encoder.layer.{l}.{part}" for l in range(2) for part in parts]
    assert names == ["embeddings.word_embeddings", *layers]
    model = tiny_bert(2, 16)
    quantize(model, 2)
    assert model.bert.embeddings.word_embeddings.parametrizations.weight[0].per_row  # type: ignore[index]
    assert not model.bert.encoder.layer[0].output.dense.parametrizations.weight[0].per_row  # type: ignore[index]


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("bits", [1, 2])
def test_one_call_serves_every_family(family: str, bits: int, tmp_path: Path) -> None:
    """Logits change, gradients reach every weight, and packed, saved and loaded they are the same to the last bit."""
    model, inputs = encoder(family), {k: v for k, v in batch().items() if k != "labels"}
    before = model(**inputs).logits
    names = quantize(model, bits)
    linears = 4 * 6 if family != "albert" else 6
    assert len(names) >= 1 + linears
    logits = model(**inputs).logits
    assert not torch.equal(logits, before)
    logits.square().sum().backward()
    assert all(model.get_submodule(n).parametrizations.weight.original.grad is not None for n in names)  # type: ignore[union-attr, index]
    small = pack(model)
    assert torch.equal(small(**inputs).logits, logits)
    small.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(again(**inputs).logits, logits)


def test_xlnet_is_refused() -> None:
    with pytest.raises(BadInput, match="xlnet"):
        quantize(encoder("xlnet"), 1)


# --- layer reduction ---------------------------------------------------------------------------------------


def test_layer_maps() -> None:
    assert layer_map("skip", 12, 6) == [1, 3, 5, 7, 9, 11]
    assert layer_map("skip", 12, 5) == [2, 4, 6, 8, 10]
    assert layer_map("skip", 12, 4) == [2, 5, 8, 11]
    assert layer_map("top", 12, 6) == [6, 7, 8, 9, 10, 11]
    assert layer_map("bottom", 12, 6) == [0, 1, 2, 3, 4, 5]
    assert layer_map("0,3", 4, 2) == [0, 3]
    for N in range(1, 13):
        assert layer_map("skip", N, N) == list(range(N))
        for m in range(1, N + 1):
            kept = layer_map("skip", N, m)
            assert len(set(kept)) == m
            assert 0 <= kept[0] <= kept[-1] < N
    with pytest.raises(BadInput, match="--layers"):
        layer_map("0,4", 4, 2)
    with pytest.raises(BadInput, match="--student"):
        layer_map("skip", 4, 5)


def test_a_reduced_model_is_its_teachers_layers_one_after_the_other() -> None:
    teacher = tiny_bert(4, 16).eval()
    ids = torch.randint(5, 31, (2, 6))
    hidden = teacher.bert.embeddings(input_ids=ids)
    for l in (1, 3):
        hidden = teacher.bert.encoder.layer[l](hidden)
        hidden = hidden if isinstance(hidden, Tensor) else hidden[0]
    expected = teacher.classifier(teacher.bert.pooler(hidden))
    args: Any = SimpleNamespace(seed=0)
    task: Any = SimpleNamespace(task=SimpleNamespace(kind="classification", labels=("no", "yes")))
    student = xtc.build_student(args, SimpleNamespace(model=teacher), [1, 3], task, "teacher").eval()  # type: ignore[arg-type]
    assert student.config.num_hidden_layers == 2
    assert student.config.id2label == {0: "no", 1: "yes"}
    torch.testing.assert_close(student(input_ids=ids).logits, expected)
    assert teacher.config.num_hidden_layers == len(teacher.bert.encoder.layer) == 4


@pytest.mark.parametrize("family", ENCODERS)
def test_every_family_can_be_reduced(family: str) -> None:
    model = reduce_layers(encoder(family), [1, 3])
    inputs = {k: v for k, v in batch().items() if k != "labels"}
    assert len(model(**inputs, output_hidden_states=True).hidden_states) == 3


# --- losses ------------------------------------------------------------------------------------------------


def test_hidden_and_attention_losses_by_loops_over_valid_positions() -> None:
    rng = np.random.default_rng(0)
    B, L, D, h, lengths = 3, 5, 4, 2, (5, 3, 1)
    mask = torch.tensor([[int(i < n) for i in range(L)] for n in lengths])
    S, T = (rng.standard_normal((2, B, L, D)) for _ in range(2))
    expected = 0.0
    for layer in range(2):
        terms = [(S[layer, b, i] - T[layer, b, i]) ** 2 for b in range(B) for i in range(lengths[b])]
        expected += np.mean(terms)
    found = hidden_loss([*torch.tensor(S)], [*torch.tensor(T)], mask)
    assert found.item() == pytest.approx(expected)
    A_s, A_t = (rng.standard_normal((2, B, h, L, L)) for _ in range(2))
    expected = 0.0
    for layer in range(2):
        heads = []
        for i in range(h):
            terms = [(A_s[layer, b, i, q, k] - A_t[layer, b, i, q, k]) ** 2
                     for b in range(B) for q in range(lengths[b]) for k in range(lengths[b])]  # fmt: skip
            heads.append(np.mean(terms))
        expected += np.mean(heads)  # 1/h sum_i
    found = attention_loss([*torch.tensor(A_s)], [*torch.tensor(A_t)], mask)
    assert found.item() == pytest.approx(expected)


def test_padding_counts_for_nothing_not_even_infinities() -> None:
    mask = torch.tensor([[1, 1, 0]])
    s, t = torch.randn(1, 3, 4, requires_grad=True), torch.randn(1, 3, 4)
    before = hidden_loss([s], [t], mask)
    t[0, 2] = float("inf")
    after = hidden_loss([s], [t], mask)
    after.backward()
    assert torch.equal(before, after)
    assert (s.grad[0, 2] == 0).all()  # type: ignore[index]
    assert torch.isfinite(s.grad).all()  # type: ignore[arg-type]


def test_logit_loss_by_definition() -> None:
    s, t = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    p, q = (np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True) for x in (s, t))
    assert logit_loss(s, t).item() == pytest.approx(-(q * np.log(p)).sum(1).mean())
    assert logit_loss(s[:, :1], t[:, :1], regression=True).item() == pytest.approx(((s - t)[:, 0] ** 2).mean().item())


@pytest.mark.parametrize("family", ENCODERS)
def test_scores_are_what_the_attention_maps_are_made_of(family: str) -> None:
    """As many as layers, and their softmax is what the library calls attentions."""
    model = encoder(family)
    model.set_attn_implementation("eager")
    inputs = {k: v for k, v in batch().items() if k != "labels"}
    with Scores() as scores:
        output = model(**inputs, output_attentions=True)
    assert len(scores.layers) == len(output.attentions) == 4
    for own, maps in zip(scores.layers, output.attentions, strict=True):
        torch.testing.assert_close(own.softmax(-1), maps)
    assert not scores.layers[0].softmax(-1).equal(scores.layers[0])


def test_scores_of_a_bert_by_hand() -> None:
    model = tiny_bert(1, 32).eval()
    model.set_attn_implementation("eager")
    ids = torch.randint(5, 31, (2, 6))
    with Scores() as scores:
        model(input_ids=ids)
    x, attention = model.bert.embeddings(input_ids=ids), model.bert.encoder.layer[0].attention.self
    q, k = (part(x).view(2, 6, 2, 16) for part in (attention.query, attention.key))
    torch.testing.assert_close(scores.layers[0], torch.einsum("bqhd,bkhd->bhqk", q, k) / 4)


def both(kept: list[int]) -> tuple[Any, Any]:
    teacher = tiny_bert(4, 32, seed=3, vocab=99).eval()
    student = reduce_layers(tiny_bert(4, 32, seed=4, vocab=99), kept).eval()
    for model in (teacher, student):
        model.set_attn_implementation("eager")
    return student, teacher


@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_a_stage_sums_its_losses_over_the_right_layers(number: str) -> None:
    """Against the losses put together by hand, from the library's own outputs."""
    kept = [1, 3]
    student, teacher = both(kept)
    inputs = batch()
    visible = {k: v for k, v in inputs.items() if k != "labels"}
    mask = inputs["attention_mask"]
    with Scores() as own:
        s = student(**visible, output_hidden_states=True)
    with Scores() as guide:
        t = teacher(**visible, output_hidden_states=True)
    parts: dict[str, Callable[[], Tensor]] = {
        "hidden": lambda: hidden_loss(list(s.hidden_states), [t.hidden_states[i] for i in (1, 2, 4)], mask),
        "attention": lambda: attention_loss(own.layers, [guide.layers[1], guide.layers[3]], mask),
        "logit": lambda: F.cross_entropy(s.logits, t.logits.softmax(-1)),
    }
    for stage in STAGES[number]:
        found = step_loss(stage, student, teacher, inputs, kept, regression=False)
        torch.testing.assert_close(found, sum(parts[name]() for name in stage.losses))  # type: ignore[arg-type]


def test_who_gets_gradient() -> None:
    """The student in every stage, but not its head while only layers are matched; the teacher never."""
    student, teacher = both([0, 3])
    for stage in (*STAGES["3"], Stage(("hard",), 1.0)):
        student.zero_grad()
        step_loss(stage, student, teacher, batch(), [0, 3], regression=False).backward()
        assert student.bert.encoder.layer[0].output.dense.weight.grad.any()
        assert (student.classifier.weight.grad is not None) == ({"logit", "hard"} & set(stage.losses) != set())
        assert all(p.grad is None for p in teacher.parameters())


def test_a_perfect_student_has_no_layer_loss() -> None:
    _, teacher = both([0, 1])
    stage = Stage(("hidden", "attention"), 1.0)
    assert step_loss(stage, teacher, teacher, batch(), [0, 1, 2, 3], False).item() == 0


def test_stages_are_the_papers() -> None:
    """Stage I: layers alone at 2.5 x; the transition: all; the last: logits alone. 1S: all at once, once."""
    layers, everything = {"hidden", "attention"}, {"hidden", "attention", "logit"}
    found = {n: [(set(s.losses), s.peak) for s in stages] for n, stages in STAGES.items()}
    assert found == {
        "1": [(everything, 1.0)],
        "2": [(layers, 2.5), ({"logit"}, 1.0)],
        "3": [(layers, 2.5), (everything, 1.0), ({"logit"}, 1.0)],
    }


def test_shares_add_up() -> None:
    for total in (1, 7, 400, 401):
        for parts in (1, 2, 3):
            shares = [xtc.share(total, parts, i) for i in range(parts)]
            assert sum(shares) == total  # type: ignore[arg-type]
            assert max(shares) - min(shares) <= 1  # type: ignore[operator, type-var]


# --- sizes and distances -----------------------------------------------------------------------------------


def test_the_rule_counts_a_berts_matrices() -> None:
    """Every tensor of more than one dimension but the head's, of models that the library builds."""
    for layers, published in ((12, 417.18), (6, 255.18), (5, 228.18), (4, 201.18)):
        config = bert_config(layers, 768, 30522, intermediate_size=3072, max_position_embeddings=512)
        with torch.device("meta"):
            model = AutoModelForSequenceClassification.from_config(config)
        counted = sum(p.numel() for n, p in model.named_parameters() if p.ndim > 1 and "classifier" not in n)
        assert xtc.rule(layers, 32) == pytest.approx(counted * 4 / 2**20)
        assert round(xtc.rule(layers, 32), 2) == published
        assert xtc.rule(layers, 1) == pytest.approx(xtc.rule(layers, 32) / 32)


def test_distances_by_definition() -> None:
    student, start = tiny_bert(2, 16), tiny_bert(2, 16)
    quantize(student, 1)
    found = xtc.distances(student, start)
    assert list(found) == list(quantizable(tiny_bert(2, 16)))
    name = "bert.encoder.layer.1.output.dense"
    W = start.get_submodule(name).weight.detach().numpy()  # type: ignore[union-attr, operator]
    assert found[name] == pytest.approx(np.sqrt(((W - reference(W, 1)) ** 2).sum()), rel=1e-5)


def test_latent_weights_have_the_librarys_names() -> None:
    plain, student = tiny_bert(2, 16), tiny_bert(2, 16)
    quantize(student, 1)
    state = xtc.latent(student)
    assert state.keys() == plain.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in plain.state_dict().items())
    assert parametrize.is_parametrized(student.bert.encoder.layer[0].output.dense)
