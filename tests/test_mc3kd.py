"""MC3KD's equations, each against a slow reference written from the paper, and its losses' properties."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FAMILIES, tiny_bert, word_tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from common import data, models
from common.args import BadInput
from methods import mc3kd
from methods.mc3kd import VARIANTS, Args, Covariances, ccc, hidden_loss, kd_loss, partners, pkd_loss, step_loss

SHAPES = [  # (n, D_S, D_T): more and fewer vectors than dimensions, on either side
    (30, 5, 5),
    (30, 4, 7),
    (30, 7, 4),
    (6, 9, 9),
    (6, 8, 10),
    (6, 10, 8),
    (8, 5, 12),
    (8, 12, 5),
    (8, 8, 8),
    (2, 3, 4),
]
KINDS = ["nuclear", "frobenius"]


def related(n: int, d_s: int, d_t: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two float64 matrices that share a part, neither centred nor of one scale."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 3))
    s = common @ rng.standard_normal((3, d_s)) + 0.5 * rng.standard_normal((n, d_s)) + 2
    t = common @ rng.standard_normal((3, d_t)) + 0.5 * rng.standard_normal((n, d_t)) - 1
    return s, 3 * t


def reference_ccc(s: np.ndarray, t: np.ndarray, ridge: float, kind: str) -> float:
    """Eqs. 4-6 as they stand: C^(-1/2) symmetric, by eigenvalues, on the full D x D side."""
    n = len(s)
    s, t = s - s.mean(0), t - t.mean(0)

    def inverse_root(x: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(x.T @ x / (n - 1) + ridge * np.eye(x.shape[1]))
        return (vectors / np.sqrt(values)) @ vectors.T

    T = inverse_root(t) @ (t.T @ s / (n - 1)) @ inverse_root(s)
    return float(np.linalg.svd(T, compute_uv=False).sum() if kind == "nuclear" else np.sqrt((T**2).sum()))


def numerical_gradient(s: np.ndarray, t: np.ndarray, ridge: float, kind: str, step: float = 1e-5) -> np.ndarray:
    """Central differences of the reference, entry by entry."""
    gradient = np.zeros_like(s)
    for at in np.ndindex(*s.shape):
        up, down = s.copy(), s.copy()
        up[at] += step
        down[at] -= step
        gradient[at] = (reference_ccc(up, t, ridge, kind) - reference_ccc(down, t, ridge, kind)) / (2 * step)
    return gradient


# --- eqs. 4-6 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ccc_value_and_gradient_are_the_papers(shape: tuple[int, int, int], kind: str, dtype: torch.dtype) -> None:
    s, t = (torch.tensor(x, dtype=dtype).double().numpy() for x in related(*shape))
    x = torch.tensor(s, dtype=dtype, requires_grad=True)
    value = ccc(x, torch.tensor(t, dtype=dtype), 1e-3, kind)
    value.backward()
    assert value.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 1e-7
    assert value.item() == pytest.approx(reference_ccc(s, t, 1e-3, kind), rel=tolerance)
    expected = numerical_gradient(s, t, 1e-3, kind)
    error = np.linalg.norm(x.grad.double().numpy() - expected) / np.linalg.norm(expected)  # type: ignore[union-attr]
    assert error < (1e-3 if dtype == torch.float32 else 3e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(12, 4, 5), (12, 5, 3), (5, 7, 6)])
def test_ccc_gradcheck(shape: tuple[int, int, int], kind: str) -> None:
    s, t = (torch.tensor(x) for x in related(*shape, seed=3))
    assert torch.autograd.gradcheck(lambda x: ccc(x, t, 1e-2, kind), (s.requires_grad_(),))


@pytest.mark.parametrize("kind", KINDS)
def test_ccc_gradient_with_a_weight(kind: str) -> None:
    """The custom backward multiplies by the gradient that comes from above."""
    s, t = (torch.tensor(x) for x in related(20, 4, 5))
    first, second = s.clone().requires_grad_(), s.clone().requires_grad_()
    ccc(first, t, 1e-3, kind).backward()
    (-2.5 * ccc(second, t, 1e-3, kind)).backward()
    torch.testing.assert_close(second.grad, -2.5 * first.grad)  # type: ignore[operator]


def test_ccc_sends_no_gradient_to_the_teacher() -> None:
    s, t = (torch.tensor(x, requires_grad=True) for x in related(20, 4, 5))
    ccc(s, t, 1e-3).backward()
    assert s.grad is not None
    assert t.grad is None


@pytest.mark.parametrize("kind", KINDS)
def test_ccc_of_one_vector_is_zero_with_a_gradient(kind: str) -> None:
    """A batch with one token has no covariance; it must not stop a run."""
    s = torch.randn(1, 4, requires_grad=True)
    value = ccc(s, torch.randn(1, 6), 1e-3, kind)
    value.backward()
    assert value.item() == 0
    assert s.grad is not None
    assert (s.grad == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["student", "teacher", "both"])
def test_ccc_of_constant_vectors_is_zero_and_finite(side: str, kind: str) -> None:
    s, t = torch.randn(10, 4), torch.randn(10, 6)
    s = torch.full_like(s, 3.0) if side != "teacher" else s
    t = torch.full_like(t, -2.0) if side != "student" else t
    s.requires_grad_()
    value = ccc(s, t, 1e-3, kind)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-5)
    assert torch.isfinite(s.grad).all()  # type: ignore[arg-type]


def test_ccc_of_identical_inputs_approaches_the_width() -> None:
    x = torch.tensor(related(200, 6, 6)[0])
    values = [ccc(x, x, ridge).item() for ridge in (1e-1, 1e-3, 1e-9)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(6, abs=1e-5)
    assert max(values) <= 6


@pytest.mark.parametrize("kind", KINDS)
def test_ccc_is_invariant_to_linear_maps_as_the_ridge_vanishes(kind: str) -> None:
    """The property the method is named for: linear relation counts, not rotation, scale or shift."""
    s, t = related(100, 5, 7)
    rng = np.random.default_rng(9)
    mapped = s @ (rng.standard_normal((5, 5)) + 2 * np.eye(5)) + 4, t @ rng.standard_normal((7, 7)) - 1
    before = ccc(torch.tensor(s), torch.tensor(t), 1e-12, kind)
    after = ccc(*map(torch.tensor, mapped), 1e-12, kind)
    torch.testing.assert_close(after, before, rtol=1e-6, atol=0)


def test_ccc_is_at_most_the_number_of_directions() -> None:
    """With n <= D every pair looks related: n - 1, which is why all tokens are the samples."""
    s, t = torch.randn(8, 64), torch.randn(8, 64)
    assert ccc(s, t, 1e-6).item() == pytest.approx(7, abs=1e-3)


# --- SVCCA, eq. 2 ------------------------------------------------------------------------------------------


def reference_svcca(x: np.ndarray, y: np.ndarray, keep: float = 0.99) -> float:
    """SVCCA on all activations: SVD of each centred side, 99% of the variance, CCA between the subspaces by QR."""

    def basis(a: np.ndarray) -> np.ndarray:
        u, d, _ = np.linalg.svd(a - a.mean(0), full_matrices=False)
        k = int(np.searchsorted(np.cumsum(d**2) / (d**2).sum(), keep)) + 1
        return np.linalg.qr(u[:, :k] * d[:k])[0]

    return float(np.linalg.svd(basis(x).T @ basis(y), compute_uv=False).mean())


def streamed(x: np.ndarray, y: np.ndarray, cuts: list[int]) -> float:
    statistics = Covariances([(0, 1)])
    for first, last in zip([0, *cuts], [*cuts, len(x)], strict=True):
        statistics.update({0: torch.tensor(x[first:last]), 1: torch.tensor(y[first:last])})
    return statistics.svcca(0, 1)


@pytest.mark.parametrize(("d_x", "d_y"), [(6, 6), (5, 9), (9, 5)])
@pytest.mark.parametrize("cuts", [[], [1, 40, 41, 160]])
def test_svcca_streamed_equals_svd_and_cca_of_everything(d_x: int, d_y: int, cuts: list[int]) -> None:
    x, y = related(200, d_x, d_y, seed=5)
    assert streamed(x, y, cuts) == pytest.approx(reference_svcca(x, y), rel=1e-9)


def test_svcca_drops_directions_beyond_99_percent() -> None:
    """Small directions are left out: unrelated noise of 1e-3 does not lower the mean."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((300, 2))
    x, y = (np.concatenate([shared, 1e-3 * rng.standard_normal((300, 3))], 1) for _ in range(2))
    assert streamed(x, y, []) == pytest.approx(1, abs=1e-3)
    assert reference_svcca(x, y) == pytest.approx(streamed(x, y, []), rel=1e-9)


def test_svcca_is_invariant_to_rotation_scale_and_shift() -> None:
    x, y = related(200, 6, 6, seed=2)
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    assert streamed(7 * x @ rotation + 3, y, [50]) == pytest.approx(streamed(x, y, []), rel=1e-9)


def test_svcca_without_its_cut_is_invariant_to_invertible_maps() -> None:
    """CCA is; SVCCA's cut is not, so the inputs' spectrum is flat enough for the cut to keep everything."""
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((500, 4)), rng.standard_normal((500, 4))
    y += x @ rng.standard_normal((4, 4))
    mapped = x @ (np.eye(4) + 0.2 * rng.standard_normal((4, 4)))
    assert streamed(mapped, y, []) == pytest.approx(streamed(x, y, []), rel=1e-9)


def test_svcca_of_equal_and_of_constant_layers() -> None:
    x, _ = related(100, 5, 5)
    assert streamed(x, x, [30]) == pytest.approx(1)
    assert streamed(x, np.ones_like(x), [30]) == 0


def test_statistics_leave_padding_out_and_the_model_as_it_was(sst2: data.TaskData) -> None:
    """Covariances of the model's layers equal those of each example on its own, without any padding."""
    model, tokenizer = tiny_bert(2, 16).train(), word_tokenizer()
    args = Args(selection_examples=9, batch_size=4)
    encoded = data.encode(tokenizer, sst2.splits["train"], sst2.task, 16)
    statistics = mc3kd.layer_statistics(model, tokenizer, encoded, [(0, 1), (1, 2)], args)
    assert model.training
    model.eval()
    alone = Covariances([(0, 1), (1, 2)])
    with torch.no_grad():
        for i in range(9):
            ids = torch.tensor([encoded.features["input_ids"][i]])
            hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
            alone.update({k: h[0] for k, h in enumerate(hidden)})
    assert statistics.n == alone.n == sum(encoded.lengths[:9])
    for pair in [(0, 1), (1, 2), (1, 1)]:
        torch.testing.assert_close(statistics.covariance(*pair), alone.covariance(*pair), rtol=1e-4, atol=1e-5)


# --- eq. 3 and the published layer maps --------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 5, 12])
@pytest.mark.parametrize("seed", range(5))
def test_selected_layers_are_the_smallest_in_order(seed: int, m: int) -> None:
    sequence = np.random.default_rng(seed).random(12).tolist()
    chosen = mc3kd.select_layers(sequence, m)
    rest = [l for l in range(1, 13) if l not in chosen]
    assert len(chosen) == m
    assert chosen == sorted(set(chosen))
    assert not rest or max(sequence[l - 1] for l in chosen) <= min(sequence[l - 1] for l in rest)


def test_selection_with_ties_takes_the_lower_layers() -> None:
    assert mc3kd.select_layers([0.5] * 6, 3) == [1, 2, 3]
    assert mc3kd.select_layers([0.9, 0.1, 0.5, 0.5, 0.1, 0.9], 3) == [2, 3, 5]


@pytest.mark.parametrize(
    ("name", "N", "m", "published"),
    [
        ("pkd-skip", 12, 6, [1, 3, 5, 7, 9]),
        ("pkd-last", 12, 6, [6, 7, 8, 9, 10]),
        ("pkd-skip", 12, 3, [3, 7]),
        ("pkd-skip", 24, 6, [3, 7, 11, 15, 19]),
        ("pkd-skip", 24, 3, [7, 15]),
    ],
)
def test_layer_maps_are_pkds(name: str, N: int, m: int, published: list[int]) -> None:
    """PKD counts its layers from 0 without the embeddings, `hidden_states` from 1."""
    assert [l - 1 for l in partners(name, [0.0] * N, m)] == published


def test_partners_of_every_variant() -> None:
    sequence = [0.9, 0.2, 0.8, 0.1, 0.7, 0.3]
    assert {name: partners(name, sequence, 3) for name in VARIANTS} == {
        "finetune": [],
        "kd": [],
        "pkd-skip": [2, 4],
        "pkd-last": [4, 5],
        "only-selection": [2, 4],
        "only-mc3": [2, 4, 6],
        "mc3kd": [2, 4, 6],
        "takd": [],
        "dynakd": [],
    }
    with pytest.raises(BadInput, match="--student: 7 layers"):
        partners("mc3kd", sequence, 7)


# --- losses ------------------------------------------------------------------------------------------------


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 20.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_kd_loss_is_t_squared_kl_teacher_to_student(temperature: float, classes: int) -> None:
    rng = np.random.default_rng(0)
    s, t = 3 * rng.standard_normal((5, classes)), 3 * rng.standard_normal((5, classes))
    p, q = softmax(t / temperature), softmax(s / temperature)
    expected = temperature**2 * (p * (np.log(p) - np.log(q))).sum() / 5
    assert kd_loss(torch.tensor(s), torch.tensor(t), temperature).item() == pytest.approx(expected, rel=1e-9)
    backwards = temperature**2 * (q * (np.log(q) - np.log(p))).sum() / 5
    assert abs(expected - backwards) > 1e-3 * expected  # the two directions can be told apart here


def test_kd_loss_is_a_mean_over_the_batch() -> None:
    s, t = torch.randn(4, 3), torch.randn(4, 3)
    torch.testing.assert_close(kd_loss(s.repeat(3, 1), t.repeat(3, 1), 2.0), kd_loss(s, t, 2.0))


def test_kd_gradient_is_the_difference_of_probabilities() -> None:
    """d/ds = T (q - p) / B: with T^2 the gradient's size does not shrink as T^-2."""
    s, t = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(4, 3, dtype=torch.float64)
    kd_loss(s, t, 5.0).backward()
    expected = 5.0 * (softmax(s.detach().numpy() / 5) - softmax(t.numpy() / 5)) / 4
    np.testing.assert_allclose(s.grad, expected, rtol=1e-9)  # type: ignore[arg-type]


def test_pkd_loss_is_the_mean_square_of_normalised_vectors() -> None:
    rng = np.random.default_rng(0)
    s, t = rng.standard_normal((4, 6)), 5 * rng.standard_normal((4, 6))
    unit = [x / np.sqrt((x**2).sum(1, keepdims=True)) for x in (s, t)]
    expected = ((unit[0] - unit[1]) ** 2).sum() / (4 * 6)
    assert pkd_loss(torch.tensor(s), torch.tensor(t)).item() == pytest.approx(expected, rel=1e-9)
    assert pkd_loss(torch.tensor(2 * t), torch.tensor(t)).item() == pytest.approx(0, abs=1e-15)


def states(layers: int, width: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(3, 5, width, generator=generator, dtype=torch.float64) for _ in range(layers + 1))


MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])


def tokens(hidden: Tensor) -> np.ndarray:
    return np.array([hidden[i, j].tolist() for i in range(3) for j in range(5) if MASK[i, j]])


@pytest.mark.parametrize("correlation", KINDS)
def test_hidden_loss_is_minus_the_sum_of_correlations(correlation: Any) -> None:
    """Eq. 7: student layer i with its partner, each as a share of min(d_S, d_T)."""
    student, teacher = states(3, 4, 0), states(6, 7, 1)
    args = Args(correlation=correlation, ridge=0.01)
    value = hidden_loss(VARIANTS["mc3kd"], args, student, teacher, [2, 3, 6], MASK)
    expected = -sum(
        reference_ccc(tokens(student[i]), tokens(teacher[l]), 0.01, correlation) / 4
        for i, l in ((1, 2), (2, 3), (3, 6))
    )
    assert value.item() == pytest.approx(expected, rel=1e-6)


def test_hidden_loss_of_cls_vectors() -> None:
    student, teacher = states(2, 4, 0), states(4, 4, 1)
    value = hidden_loss(VARIANTS["mc3kd"], Args(tokens="cls"), student, teacher, [1, 3], MASK)
    pairs = ((1, 1), (2, 3))
    expected = -sum(reference_ccc(*(x[:, 0].numpy() for x in (student[i], teacher[l])), 1e-3, "nuclear") / 4
                    for i, l in pairs)  # fmt: skip
    assert value.item() == pytest.approx(expected, rel=1e-6)


def test_cls_is_the_first_valid_token_also_with_padding_on_the_left() -> None:
    hidden = torch.arange(12.0).reshape(2, 3, 2)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert mc3kd.vectors(hidden, mask, "cls").tolist() == [[2, 3], [6, 7]]


def test_cls_of_xlnet_is_the_last_valid_token() -> None:
    hidden = torch.arange(12.0).reshape(2, 3, 2)
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    assert mc3kd.vectors(hidden, mask, "cls", "xlnet").tolist() == [[4, 5], [8, 9]]


def test_hidden_loss_of_pkd_is_the_mean_over_layers() -> None:
    student, teacher = states(3, 4, 0), states(6, 4, 1)
    value = hidden_loss(VARIANTS["pkd-skip"], Args(), student, teacher, [2, 4], MASK)
    terms = [pkd_loss(student[i][:, 0], teacher[l][:, 0]) for i, l in ((1, 2), (2, 4))]
    torch.testing.assert_close(value, (terms[0] + terms[1]) / 2)


# --- eq. 8 on models ---------------------------------------------------------------------------------------


def batch(regression: bool = False, extra: int = 0) -> dict[str, Tensor]:
    """Four sequences of different length, padded by `extra` more tokens than needed."""
    generator = torch.Generator().manual_seed(3)
    lengths = [9, 7, 5, 4]
    ids = torch.zeros(4, 9 + extra, dtype=torch.long)
    for i, length in enumerate(lengths):
        ids[i, :length] = torch.randint(5, 31, (length,), generator=generator)
    mask = (ids > 0).long()
    labels = torch.tensor([0.5, 3.0, 4.5, 1.0]) if regression else torch.tensor([0, 1, 1, 0])
    return {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "attention_mask": mask, "labels": labels}


def pair(regression: bool = False) -> tuple[Any, Any]:
    """A student in training mode without dropout, and a frozen teacher with it, in evaluation mode."""
    labels = {"num_labels": 1} if regression else {"num_labels": 2}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    student = tiny_bert(3, 16, seed=1, **labels, **off).train()
    return student, tiny_bert(6, 16, seed=2, **labels).eval().requires_grad_(False)


SEQUENCE = [0.9, 0.2, 0.8, 0.1, 0.7, 0.3]


def by_hand(name: str, args: Args, student: Any, teacher: Any, inputs: dict[str, Tensor], regression: bool) -> float:
    """Eq. 8 from its parts, in numpy."""
    labels = inputs["labels"].numpy()
    features = {k: v for k, v in inputs.items() if k != "labels"}
    with torch.no_grad():
        s, t = (m(**features, output_hidden_states=True) for m in (student, teacher))
    s_logits, t_logits = s.logits.double().numpy(), t.logits.double().numpy()
    T = args.temperature
    if regression:
        hard = ((s_logits[:, 0] - labels) ** 2).mean()
        soft = ((s_logits - t_logits) ** 2).mean()
    else:
        hard = -np.log(softmax(s_logits)[np.arange(4), labels]).mean()
        p, q = softmax(t_logits / T), softmax(s_logits / T)
        soft = T**2 * (p * np.log(p / q)).sum(1).mean()
    if name == "finetune":
        return float(hard)
    loss = args.alpha * soft + (1 - args.alpha) * hard
    valid = inputs["attention_mask"].bool()
    partner = {"pkd-skip": [2, 4], "pkd-last": [4, 5], "only-selection": [2, 4], "only-mc3": [2, 4, 6],
               "mc3kd": [2, 4, 6]}.get(name, [])  # fmt: skip
    beta = {"pkd-skip": 100, "pkd-last": 100, "only-selection": 100}.get(name, 1)
    beta = beta if args.beta is None else args.beta
    hidden = 0.0
    for i, l in enumerate(partner, start=1):
        if "mc3" in name:
            both = [x[valid].double().numpy() for x in (s.hidden_states[i], t.hidden_states[l])]
            hidden -= reference_ccc(*both, args.ridge, args.correlation) / 16
        else:
            a, b = (x[:, 0].double().numpy() for x in (s.hidden_states[i], t.hidden_states[l]))
            a, b = (x / np.sqrt((x**2).sum(1, keepdims=True)) for x in (a, b))
            hidden += ((a - b) ** 2).mean() / len(partner)
    return float(loss + beta * hidden)


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
@pytest.mark.parametrize("beta", [None, 3.0])
@pytest.mark.parametrize("name", VARIANTS)
def test_step_loss_is_equation_8(name: str, beta: float | None, regression: bool) -> None:
    student, teacher = pair(regression)
    args = Args(alpha=0.3, temperature=3.0, beta=beta)
    inputs = batch(regression)
    loss = step_loss(args, name, student, teacher, inputs, partners(name, SEQUENCE, 3), regression)
    assert loss.item() == pytest.approx(by_hand(name, args, student, teacher, inputs, regression), rel=1e-4)
    assert "labels" in inputs  # the caller's batch stays as it was


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_student_gets_gradient_and_the_teacher_none(name: str, regression: bool) -> None:
    """The teacher's weights are left trainable here, so that only the loss keeps gradient from them."""
    student, teacher = pair(regression)
    teacher.requires_grad_(True)
    layers = partners(name, SEQUENCE, 3)
    step_loss(Args(), name, student, teacher, batch(regression), layers, regression).backward()
    for key, parameter in student.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().max() > 0 or "key.bias" in key, key  # softmax ignores a bias of the keys
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize("name", [name for name in VARIANTS if VARIANTS[name].hidden != "none"])
def test_each_part_of_the_loss_reaches_the_student(name: str) -> None:
    """With alpha 0 the difference to beta 0 is the hidden term's gradient alone: it goes up to the right layer."""
    layers = partners(name, SEQUENCE, 3)
    gradients = []
    for beta in (0.0, 50.0):
        student, teacher = pair()
        step_loss(Args(alpha=0.0, beta=beta), name, student, teacher, batch(), layers, False).backward()
        gradients.append({k: p.grad for k, p in student.named_parameters()})
    changed = {k for k in gradients[0] if not torch.allclose(gradients[0][k], gradients[1][k])}
    for layer in range(3):
        touched = any(f"layer.{layer}." in k for k in changed)
        assert touched == (layer < len(layers)), f"layer {layer}: {changed}"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_guided_layer_by_layer(family: str) -> None:
    """A student half as wide by MC3KD, and one of equal width by PKD: gradient up to the guided layers, no padding."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES[family])
    teacher = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    inputs = batch()
    if family == "distilbert":
        del inputs["token_type_ids"]
    for name, width in (("mc3kd", 16), ("pkd-skip", 32)):
        student = models.build_student(models.student_config(config, 3, width), "classification", None).train()
        layers = partners(name, [0.9, 0.2, 0.8, 0.1], 3)
        assert len(layers) == (3 if name == "mc3kd" else 2)
        loss = step_loss(Args(), name, student, teacher, inputs, layers, regression=False)
        loss.backward()
        assert torch.isfinite(loss)
        words = student.get_input_embeddings().weight.grad
        assert words is not None
        assert words.isfinite().all()
        assert words.abs().max() > 0
    statistics = mc3kd.Covariances([(0, 4), (1, 4)])
    with torch.no_grad():
        hidden = teacher(**{k: v for k, v in inputs.items() if k != "labels"}, output_hidden_states=True).hidden_states
    assert len(hidden) == 5
    statistics.update({i: mc3kd.vectors(hidden[i], inputs["attention_mask"], "all", family) for i in (0, 1, 4)})
    assert statistics.n == int(inputs["attention_mask"].sum())
    assert 0 < statistics.svcca(1, 4) <= 1


@pytest.mark.parametrize("name", VARIANTS)
def test_extra_padding_changes_nothing(name: str) -> None:
    student, teacher = pair()
    student.eval()
    layers = partners(name, SEQUENCE, 3)
    with torch.no_grad():
        short, long = (
            step_loss(Args(), name, student, teacher, batch(extra=extra), layers, False) for extra in (0, 11)
        )
    assert long.item() == pytest.approx(short.item(), rel=1e-5)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "finetune"])
def test_the_loss_falls_when_the_student_is_trained(name: str) -> None:
    """The hidden term's sign: thirty steps on one batch lower the loss, and raise the correlation."""
    student, teacher = pair()
    layers = partners(name, SEQUENCE, 3)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = step_loss(Args(), name, student, teacher, batch(), layers, False)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05 * abs(losses[0])


def test_ccc_raises_the_correlation_and_not_lowers_it() -> None:
    s, t = (torch.tensor(x) for x in related(60, 5, 6, seed=8))
    s = torch.randn_like(s).requires_grad_()
    before = ccc(s, t, 1e-3)
    before.backward()
    with torch.no_grad():
        after = ccc(s + 0.1 * s.grad / s.grad.norm(), t, 1e-3)  # type: ignore[union-attr, operator]
    assert after > before


# --- the loop ----------------------------------------------------------------------------------------------


class Cell(SimpleNamespace):
    """What the loop needs of a `Run`."""

    def start(self, steps: int) -> None:
        self.started = steps

    def log(self, **values: Any) -> None:
        self.lines.append(values)

    def batches(self, encoded: data.Encoded, device: torch.device) -> data.Batches:
        return data.Batches(encoded, word_tokenizer(), 8, self.seed)


def distilled(name: str, sst2: data.TaskData, folder: Any, seed: int = 0, steps: int = 4) -> tuple[Any, Any, Any]:
    from accelerate import Accelerator

    from common import train
    from common.teacher import Teacher, frozen

    tokenizer = word_tokenizer()
    guide = frozen(tiny_bert(6, 16, seed=2), torch.device("cpu"))
    teacher = Teacher("t", guide, tokenizer, "t", {}, 1.0, 1, None)
    encoded = data.encode(tokenizer, sst2.splits["train"], sst2.task, 16)
    cell = Cell(folder=folder, identity="x", steps=steps, seconds=None, settings={"lr": 1e-3}, task=sst2, lines=[])
    cell.seed = seed
    train.seed_everything(seed)
    student = tiny_bert(3, 16, seed=1)
    ledger = train.Ledger()
    args, layers = Args(seed=seed, batch_size=8), partners(name, SEQUENCE, 3)
    stage = mc3kd.Stage(steps, None)
    mc3kd.distil(args, name, cell, student, [teacher], encoded, layers, ledger, Accelerator(cpu=True), stage)
    return student, guide, ledger


@pytest.mark.parametrize("name", ["finetune", "mc3kd"])
def test_the_loop_trains_the_student_and_leaves_the_teacher(name: str, sst2: data.TaskData, tmp_path: Any) -> None:
    student, guide, ledger = distilled(name, sst2, tmp_path)
    untouched = tiny_bert(6, 16, seed=2).state_dict()
    assert not guide.training
    assert all(torch.equal(v, untouched[k]) for k, v in guide.state_dict().items())
    assert student.training
    assert not torch.equal(student.classifier.weight, tiny_bert(3, 16, seed=1).classifier.weight)
    assert (ledger.steps, ledger.student_examples) == (4, 32)
    assert ledger.teacher_examples == (0 if name == "finetune" else 32)


def test_variants_see_the_same_batches(sst2: data.TaskData, tmp_path: Any) -> None:
    """Fairness: the rows of one table differ by their loss alone."""
    first, second = (distilled(name, sst2, tmp_path / name)[2] for name in ("finetune", "mc3kd"))
    assert first.student_tokens == second.student_tokens


@pytest.mark.parametrize(("variant", "count"), [("finetune", 3), ("kd", 12), ("pkd-skip", 36), ("mc3kd", 36)])
def test_the_papers_grid(variant: str, count: int) -> None:
    """Appendix A: 3 x 4 x 3 points, what a variant does not use left out; each passes the arguments' checks."""
    space = mc3kd.grid(Args(student="3x128"), variant)
    points = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    assert len(points) == count
    for point in points:
        Args(**point).check()
    assert space["lr"] == pytest.approx([1.2e-4, 1.8e-4, 3e-4])
    assert mc3kd.grid(Args(student="3x768"), variant)["lr"] == mc3kd.GRID["lr"]


def test_every_variant_is_described() -> None:
    """`--help` names each variant; every argument has its line of help."""
    assert all(field.metadata["help"] for field in dataclasses.fields(Args))
    text = next(f for f in dataclasses.fields(Args) if f.name == "variant").metadata["help"]
    assert all(name in text for name in VARIANTS)


# --- DynaKD's choice of a teacher ---------------------------------------------------------------------------


def test_the_choice_follows_the_gradient_of_the_expected_loss() -> None:
    """Over all draws, weighted by their probabilities, a step is that of the exact gradient, for any baseline."""
    losses = torch.tensor([0.3, 1.1, 0.7])
    logits = torch.tensor([0.2, -0.4, 0.5], requires_grad=True)
    (logits.softmax(0) @ losses).backward()
    step = torch.zeros(3)
    for k, loss in enumerate(losses.tolist()):
        choice = mc3kd.TeacherChoice(3)
        choice.logits.copy_(logits.detach())
        choice.baseline.fill_(5.0)
        p = choice.probabilities()
        choice.learn(k, loss)
        step += p[k] * (choice.logits - logits.detach())
        assert choice.baseline.item() == pytest.approx(0.9 * 5.0 + 0.1 * loss)
    assert logits.grad is not None
    torch.testing.assert_close(step, -choice.RATE * logits.grad)


def test_the_choice_prefers_the_teacher_with_the_lower_loss() -> None:
    torch.manual_seed(0)
    choice = mc3kd.TeacherChoice(2)
    assert choice.probabilities().tolist() == [0.5, 0.5]
    draws = []
    for _ in range(300):
        draws.append(choice.draw())
        choice.learn(draws[-1], (0.9, 0.3)[draws[-1]])
    assert choice.probabilities()[1] > 0.9
    assert sum(draws[:50]) < sum(draws[-50:])


# --- the analysis ------------------------------------------------------------------------------------------


def test_analysis_of_a_model_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and plots of any model folder; the matrix agrees with the statistics of each pair alone."""
    folder = tmp_path / "model"
    models.save(tiny_bert(3, 16, vocab=len(models.pocket_tokenizer())), models.pocket_tokenizer(), folder, "# a model")
    args = Args(task="pocket/rte", analyse=str(folder), out_dir=str(tmp_path), selection_examples=64, max_length=64)
    mc3kd.main(args)
    out = tmp_path / "mc3kd" / "analysis" / "pocket" / "rte" / "model"
    record = json.loads((out / "svcca.json").read_text(encoding="utf-8"))
    matrix = np.array(record["svcca"])
    assert matrix.shape == (4, 4)
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1).all()
    assert ((matrix > 0) & (matrix <= 1)).all()
    assert record["sequence"] == [matrix[0, 1], matrix[1, 2], matrix[2, 3]]
    assert record["rccc"] == matrix[1, 3]
    assert record["selected"] == mc3kd.select_layers(record["sequence"], 2)
    assert f"RCCC {matrix[1, 3]:.4f}" in capsys.readouterr().out
    for name in ("svcca.png", "sequence.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    task = data.load("pocket/rte")
    tokenizer, model = (
        models.load_tokenizer(str(folder)),
        models.load_model(str(folder), models.load_config(str(folder)), "classification"),
    )
    encoded = data.encode(tokenizer, task.splits["train"], task.task, 64)
    alone = mc3kd.layer_statistics(model, tokenizer, encoded, [(1, 3)], args)
    assert alone.svcca(1, 3) == pytest.approx(matrix[1, 3])
