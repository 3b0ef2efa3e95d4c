"""The two baselines' losses against numpy in float64: values, gradients, reductions, the temperature's square."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor

from common.losses import kd_loss, kl_loss, label_loss

# rounding of T^2 sum_c p_c log p_c: at most 20^2 x 30 x 2.2e-16, the largest case here
EXACT = {"rtol": 1e-11, "atol": 1e-11}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Tensor, wanted: np.ndarray | float) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted, **EXACT)


CLASSES = torch.tensor([2, 0, 1, 1, 2])
SCORES = torch.tensor([0.5, 3.0, 4.5, 1.0, 2.0], dtype=torch.float64)


def test_labels() -> None:
    """One number a row: - log p of the true class; of scores, the squared error."""
    logits = draw(5, 3)
    same(label_loss(logits, CLASSES), -np.log(softmax(logits.numpy(), axis=1)[range(5), CLASSES]))
    same(label_loss(draw(5, 1), SCORES), (draw(5, 1)[:, 0] - SCORES).numpy() ** 2)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 20.0])
@pytest.mark.parametrize("classes", [2, 3, 30])
def test_kl_is_from_the_teacher_to_the_student_times_the_temperatures_square(temperature: float, classes: int) -> None:
    s, t = draw(5, classes), draw(5, classes, seed=1)
    p, q = (softmax(z.numpy() / temperature, axis=1) for z in (t, s))
    wanted = temperature**2 * (p * np.log(p / q)).sum(-1)
    same(kl_loss(s, t, temperature), wanted)
    backwards = temperature**2 * (q * np.log(q / p)).sum(-1)
    assert abs(wanted - backwards).max() > 1e-3 * wanted.max()  # the two directions can be told apart here
    same(kl_loss(s, s, temperature), np.zeros(5))


def test_kl_of_close_models_in_half_precision() -> None:
    """Logits that bf16 holds exactly: the loss is that of float64, not lost in bf16's logarithms."""
    t = draw(64, 3).bfloat16()
    s = (t + 0.02 * draw(64, 3, seed=1)).bfloat16()
    torch.testing.assert_close(kl_loss(s, t, 1.0).double(), kl_loss(s.double(), t.double(), 1.0), atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("labels", [CLASSES, SCORES], ids=["classes", "scores"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_vanilla_kd_is_the_weighted_mean_over_the_rows(alpha: float, labels: Tensor) -> None:
    C = 1 if labels.is_floating_point() else 3
    s, t = draw(5, C).requires_grad_(), draw(5, C, seed=1)
    value = kd_loss(s, t, labels, alpha, 2.0).detach()
    same(value, float((alpha * kl_loss(s, t, 2.0) + (1 - alpha) * label_loss(s, labels)).sum().detach()) / 5)
    same(kd_loss(s.repeat(3, 1), t.repeat(3, 1), labels.repeat(3), alpha, 2.0), value.item())
    assert torch.autograd.gradcheck(lambda x: kd_loss(x, t, labels, alpha, 2.0), (s,))


def test_no_row_is_no_loss() -> None:
    """A part of a batch in which no token has a label; its gradient is 0 and no NaN."""
    s = draw(0, 3).requires_grad_()
    value = kd_loss(s, draw(0, 3), torch.zeros(0, dtype=torch.long), 0.5, 2.0)
    value.backward()
    assert value == 0
    assert s.grad is not None
