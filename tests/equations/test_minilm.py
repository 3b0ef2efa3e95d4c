"""MiniLMv2's relations and their loss against numpy in float64, one example, head and token at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import module_of
from torch import Tensor

minilm = module_of("minilm")

B, L, h = 3, 5, 2
LENGTHS = (5, 3, 1)
MASK = torch.arange(L) < torch.tensor(LENGTHS)[:, None]


def draw(width: int, seed: int) -> list[Tensor]:
    """Queries, keys and values, (B, L, width), padding too."""
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(3, B, L, width, generator=generator, dtype=torch.float64))


def relation(A: np.ndarray) -> np.ndarray:
    """Section 3.1 for one relation head of one text, (l, d_r) -> (l, l)."""
    R = np.zeros((len(A), len(A)))
    for i, q in enumerate(A):
        scores = np.array([sum(q * k) / np.sqrt(A.shape[1]) for k in A])
        R[i] = np.exp(scores) / np.exp(scores).sum()
    return R


def reference(student: list[Tensor], teacher: list[Tensor]) -> np.ndarray:
    """Of each text (1 / (h l)) sum over Q, K, V, heads and tokens of KL(R_T || R_S)."""
    loss = np.zeros(B)
    for S, T in zip(student, teacher, strict=True):
        for b, l in enumerate(LENGTHS):
            for s, t in zip(np.split(S[b, :l].numpy(), h, -1), np.split(T[b, :l].numpy(), h, -1), strict=True):
                R_S, R_T = relation(s), relation(t)
                loss[b] += (R_T * np.log(R_T / R_S)).sum() / (h * l)
    return loss


@pytest.mark.parametrize("width", [8, 4])
def test_the_loss_is_the_papers(width: int) -> None:
    """A student as wide as the teacher, and one half as wide; texts of three lengths."""
    S, T = draw(width, 0), draw(8, 1)
    found = minilm.relation_loss(S, T, MASK, h)
    np.testing.assert_allclose(found.numpy(), reference(S, T), rtol=1e-12, atol=1e-15)
    assert abs(reference(S, T) - reference(S, T[::-1])).max() > 1e-3  # queries are told from values
    assert abs(reference(T, S)[:2] - reference(S, T)[:2]).min() > 1e-3  # and the directions of KL
    np.testing.assert_allclose(minilm.relation_loss(T, T, MASK, h).numpy(), np.zeros(B), atol=1e-15)


def test_its_gradient_is_the_references() -> None:
    """By central differences of the reference, for every number of the student; padding has none."""
    S, T = draw(4, 0), draw(8, 1)
    leaves = [A.clone().requires_grad_() for A in S]
    minilm.relation_loss(leaves, T, MASK, h).sum().backward()
    for A, leaf in zip(S, leaves, strict=True):
        assert not leaf.grad[~MASK].any()
        for index in np.ndindex(*A.shape):
            sides, at = [], A[index].item()
            for step in (1e-5, -1e-5):
                A[index] = at + step
                sides.append(reference(S, T).sum())
            A[index] = at
            assert leaf.grad[index].item() == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_padding_changes_nothing() -> None:
    S, T = draw(8, 0), draw(8, 1)
    before = minilm.relation_loss(S, T, MASK, h)
    for side in (S, T):
        for A in side:
            A[~MASK] = 7.0
    assert torch.equal(minilm.relation_loss(S, T, MASK, h), before)
