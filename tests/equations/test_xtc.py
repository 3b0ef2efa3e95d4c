"""XTC's equations in float64, each against a reference written from the paper; packed models; predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FAMILIES, ran, tiny_bert
from safetensors.torch import save_file
from scipy.special import log_softmax, softmax
from test_mc3kd import batch_of
from torch import nn
from torch.nn.utils import parametrize
from transformers import AutoConfig, AutoModelForSequenceClassification

from common.args import BadInput
from common.layers import packed
from common.layers.attention import AttentionScores
from common.losses import kd_loss
from common.teacher import Teacher
from common.train import Batch
from methods import xtc
from methods.xtc import STAGES, Args, Quantizer, logit_loss, quantize, step_loss

ENCODERS = [name for name in FAMILIES if name != "xlnet"]


def reference(W: np.ndarray, bits: int) -> np.ndarray:
    """One scale for all of W, entry by entry."""
    if bits == 1:
        alpha = np.abs(W).sum() / W.size
        return np.array([alpha if w >= 0 else -alpha for w in W.flat]).reshape(W.shape)
    delta = 0.7 * np.abs(W).sum() / W.size
    above = [abs(w) for w in W.flat if abs(w) > delta]
    alpha = sum(above) / max(1, len(above))
    return np.array([0.0 if abs(w) <= delta else alpha * np.sign(w) for w in W.flat]).reshape(W.shape)


@pytest.mark.parametrize("bits", [1, 2])
def test_quantisers_by_definition(bits: int) -> None:
    W = np.random.default_rng(bits).standard_normal((16, 8)) * 0.05
    W[0, 0] = 0
    np.testing.assert_allclose(Quantizer(bits)(torch.tensor(W)).numpy(), reference(W, bits), rtol=1e-12)
    rows = np.stack([reference(row, bits) for row in W])  # a word embedding: every row as if it were alone
    np.testing.assert_allclose(Quantizer(bits, per_row=True)(torch.tensor(W)).numpy(), rows, rtol=1e-12)
    zeros = torch.zeros(3, 4, requires_grad=True)
    Quantizer(bits, per_row=True)(zeros).sum().backward()
    assert torch.equal(zeros.grad, torch.ones(3, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("bits", [1, 2])
def test_a_quantised_linear_with_its_adapter(bits: int, clip: float | None) -> None:
    """Eq. 2 on rounded inputs. Backward as if nothing had been rounded, or, clipped, nothing outside the bounds."""
    model, plain = tiny_bert(1, 16), tiny_bert(1, 16)
    quantize(model, bits, clip, lora_rank=3)
    quantize(plain, bits, clip)
    module: Any = model.bert.encoder.layer[0].intermediate.dense.double()
    x = torch.randn(6, 16, dtype=torch.float64, requires_grad=True)
    assert torch.equal(module(x), plain.bert.encoder.layer[0].intermediate.dense.double()(x))  # U = 0
    g, W = torch.randn(6, 32, dtype=torch.float64), module.parametrizations.weight.original
    U, V = (nn.init.normal_(p).detach().numpy() for p in (module.lora_U, module.lora_V))
    y = module(x)
    y.backward(g)
    bound, x_, W_ = clip or np.inf, x.detach().numpy(), W.detach().numpy()
    scale = np.abs(np.clip(x_, -bound, bound)).max(1, keepdims=True) / 127
    x_q = np.round(np.clip(x_, -bound, bound) / scale) * scale
    W_q = reference(np.clip(W_, -bound, bound), bits)
    np.testing.assert_allclose(y.detach(), x_q @ (W_q + U @ V).T + module.bias.detach().numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(W.grad, g.numpy().T @ x_q * (np.abs(W_) <= bound), rtol=1e-9, atol=1e-12)
    dx = g.numpy() @ (W_q + U @ V) * (np.abs(x_) <= bound)
    np.testing.assert_allclose(x.grad, dx, rtol=1e-9, atol=1e-12)  # type: ignore[arg-type]


def states(model: Any, batch: Batch) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Logits, hidden states, and the scores (B, h, L, L) by hand: q k / sqrt(16)."""
    with torch.no_grad():
        output = model(**batch.inputs, output_hidden_states=True)
        scores = []
        for layer, H in zip(model.bert.encoder.layer, output.hidden_states, strict=False):
            q, k = (
                f(H).unflatten(-1, (-1, 16)).numpy() for f in (layer.attention.self.query, layer.attention.self.key)
            )
            scores.append(np.einsum("bqhd,bkhd->bhqk", q, k) / 4)
    return output.logits.numpy(), [H.numpy() for H in output.hidden_states], scores


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("losses", sorted({s.losses for stages in STAGES.values() for s in stages}), ids="-".join)
def test_a_stages_loss_by_hand(losses: tuple[str, ...], scores: bool) -> None:
    """Layers 2 and 4 are kept. Padding changes nothing, the teacher gets no gradient, the head's is the logits'."""
    kept, args, batch = [2, 4], Args(alpha=0.3, temperature=3.0), batch_of(scores)
    student, model = (tiny_bert(n, 32, seed=n, num_labels=1 if scores else 2).double().eval() for n in (2, 4))
    for each in (student, model):
        each.set_attn_implementation("eager")
    found = step_loss(args, losses, student, Teacher("", model, None, ""), batch, kept)
    (z_s, H_S, A_S), (z_t, H_T, A_T) = states(student, batch), states(model, batch)
    lengths, y = batch.mask.sum(1).tolist(), batch.labels.numpy()

    def mse(S: np.ndarray, T: np.ndarray, axes: int) -> float:  # over the tokens of the last `axes` axes but D
        parts = [(S[b, ..., :n, :n] - T[b, ..., :n, :n]).ravel() if axes == 2 else (S[b, :n] - T[b, :n]).ravel()
                 for b, n in enumerate(lengths)]  # fmt: skip
        return float(np.square(np.concatenate(parts)).mean())

    squared = np.square(z_s - z_t).mean()
    hard = np.square(z_s[:, 0] - y).mean() if scores else -log_softmax(z_s, 1)[range(4), y].mean()
    p, q = log_softmax(z_t / 3, 1), log_softmax(z_s / 3, 1)
    kl = squared if scores else 9 * (np.exp(p) * (p - q)).sum(1).mean()
    terms = {
        "label": hard,
        "kd": 0.3 * kl + 0.7 * hard,
        "logit": squared if scores else -(softmax(z_t, 1) * log_softmax(z_s, 1)).sum(1).mean(),
        "hidden": sum(mse(S, T, 1) for S, T in zip(H_S, [H_T[1], H_T[2], H_T[4]], strict=True)),
        "attention": sum(mse(S, T, 2) for S, T in zip(A_S, [A_T[1], A_T[3]], strict=True)),
    }
    assert found.item() == pytest.approx(sum(terms[name] for name in losses), rel=1e-9)
    padded = step_loss(args, losses, student, Teacher("", model, None, ""), batch_of(scores, padding=2), kept)
    assert padded.item() == pytest.approx(found.item(), rel=1e-9)
    found.backward()
    assert all(p.grad is None for p in model.parameters())
    assert student.bert.encoder.layer[0].output.dense.weight.grad.any()
    assert (student.classifier.weight.grad is not None) == bool({"label", "kd", "logit"} & {*losses})


def test_the_loss_of_the_authors_code() -> None:
    """Layers 2 and 4 of 4: the embeddings meet the teacher's; the logits' loss is a mean over batch and classes."""
    kept, batch = [2, 4], batch_of()
    student, model = (tiny_bert(n, 32, seed=n).double().eval().requires_grad_(False) for n in (2, 4))
    for each in (student, model):
        each.set_attn_implementation("eager")

    def loss(how: str, *losses: str) -> float:
        args = Args(loss=how)  # type: ignore[arg-type]
        return step_loss(args, losses, student, Teacher("", model, None, ""), batch, kept).item()

    assert loss("code", "logit") == pytest.approx(loss("paper", "logit") / 2, rel=1e-12)
    H_S, H_T, mask = states(student, batch)[1][0], states(model, batch)[1], batch.mask.numpy()
    moved = sum(sign * np.square((H_S - H_T[l])[mask]).mean() for sign, l in ((1, 0), (-1, 1)))
    hidden = [loss(how, "hidden", "attention") for how in ("code", "paper")]
    assert hidden[0] - hidden[1] == pytest.approx(moved, rel=1e-6)
    student = tiny_bert(4, 32, seed=4).double().eval().requires_grad_(False)  # no layer is left out: nothing moves
    student.set_attn_implementation("eager")
    kept = [1, 2, 3, 4]
    assert loss("code", "hidden", "attention") == pytest.approx(loss("paper", "hidden", "attention"), abs=1e-12)


def test_padding_may_be_infinite() -> None:
    s, mask = torch.randn(1, 3, 4, requires_grad=True), torch.tensor([[True, True, False]])
    (grad,) = torch.autograd.grad(xtc.hidden_loss([s], [torch.ones(1, 3, 4) / mask[:, :, None]], mask), s)
    assert (grad.isfinite() & (grad.bool() == mask[:, :, None])).all()


def test_vanilla_kd_and_the_papers_loss_differ_by_the_teachers_entropy() -> None:
    s, t = torch.randn(2, 5, 3, dtype=torch.float64)
    s.requires_grad_()
    kd, paper = kd_loss(s, t, torch.zeros(5, dtype=torch.long), 1.0, 1.0), logit_loss(s, t).mean()
    entropy = torch.distributions.Categorical(logits=t).entropy().mean()
    torch.testing.assert_close(kd + entropy, paper)
    torch.testing.assert_close(*(torch.autograd.grad(loss, s)[0] for loss in (kd, paper)))


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("bits", [1, 2])
def test_every_family(family: str, bits: int, tmp_path: Path) -> None:
    """Scores are what the maps are made of; every weight has gradient; packed, saved and loaded: the same bits."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES[family], initializer_range=0.2)
    model: Any = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    inputs = batch_of(padding=1, types=False).inputs
    with AttentionScores() as scores:
        maps = model(**inputs, output_attentions=True).attentions
    torch.testing.assert_close([layer.softmax(-1) for layer in scores.layers], list(maps))
    modules: list[Any] = xtc.quantizable(model)
    quantize(model, bits, lora_rank=2)
    assert len(modules) >= 1 + (4 if family != "albert" else 1) * 6
    logits = model(**inputs).logits
    logits.square().sum().backward()
    assert all(module.parametrizations.weight.original.grad.any() for module in modules)
    packed.pack_model(model).save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert torch.equal(model(**inputs).logits, logits)
    assert torch.equal(again(**inputs).logits, logits)


def test_what_is_quantised() -> None:
    model = tiny_bert(1, 16)
    names = [name.removeprefix("bert.") for name, module in model.named_modules() if module in xtc.quantizable(model)]
    parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
             "intermediate.dense", "output.dense"]  # fmt: skip
    assert names == ["embeddings.word_embeddings", *(f"encoder.layer.0.{part}" for part in parts)]
    quantize(model := tiny_bert(1, 16), 32)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())


def test_going_on_from_the_float_weights(tmp_path: Path) -> None:
    first, plain, start = tiny_bert(2, 16, seed=1), tiny_bert(2, 16, seed=2), tiny_bert(2, 16, seed=1)
    quantize(first, 2, lora_rank=1)
    save_file(xtc.latent(first), tmp_path / "latent.safetensors")
    second = tiny_bert(2, 16, seed=3)
    quantize(second, 1, lora_rank=1)
    xtc.load_latent(second, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(xtc.latent(first).values(), xtc.latent(second).values(), strict=True))
    before = start.bert.encoder.layer[0].output.dense.weight.detach().numpy()
    name = "bert.encoder.layer.0.output.dense"
    expected = np.linalg.norm(before - reference(before, 1))
    assert xtc.distances(second, xtc.latent(start))[name] == pytest.approx(expected, rel=1e-4)
    for other in (plain, tiny_bert(3, 16), tiny_bert(2, 32)):
        with pytest.raises(BadInput, match="do not fit"):
            xtc.load_latent(other, tmp_path)


def test_no_weights_are_written_without_a_student(easy: list[str], tmp_path: Path) -> None:
    ran("xtc", *easy, "--variant", "xtc", "--student", "2x32", "--save-student", "false", "--out-dir", tmp_path)
    assert list(tmp_path.rglob("result.json"))
    assert not list(tmp_path.rglob("latent.safetensors"))
