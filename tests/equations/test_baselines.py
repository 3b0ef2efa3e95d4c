"""MiniLMv2's relations and their loss against numpy in float64, one text and head at a time; DynaKD's distribution;
DIST's distance."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from conftest import bert_config, draw, module_of
from scipy.special import softmax
from torch import Tensor

minilm, dynakd, dist = map(module_of, ("minilm", "dynakd", "dist"))

B, L, h = 3, 5, 2
LENGTHS = (5, 3, 1)
MASK = torch.arange(L) < torch.tensor(LENGTHS)[:, None]


def reference(student: Tensor, teacher: Tensor) -> np.ndarray:
    """Section 3.1: of each text (1 / (h l)) sum over Q, K, V, heads and tokens of KL(R_T || R_S)."""
    loss = np.zeros(B)
    for S, T in zip(student, teacher, strict=True):
        for b, l in enumerate(LENGTHS):
            for s, t in zip(np.split(S[b, :l].numpy(), h, -1), np.split(T[b, :l].numpy(), h, -1), strict=True):
                R_S, R_T = (softmax(A @ A.T / np.sqrt(A.shape[1]), axis=1) for A in (s, t))
                loss[b] += (R_T * np.log(R_T / R_S)).sum() / (h * l)
    return loss


@pytest.mark.parametrize("width", [8, 4])
def test_the_loss_is_the_papers(width: int) -> None:
    """A student as wide as the teacher, and one half as wide; texts of three lengths, beside padding that is random.
    Its gradient by differences; padding has none."""
    S, T = draw(3, B, L, width), draw(3, B, L, 8, seed=1)
    found = minilm.relation_loss(S, T, MASK, h)
    np.testing.assert_allclose(found.numpy(), reference(S, T), rtol=1e-12, atol=1e-15)
    assert abs(reference(S, T) - reference(S, T.flip(0))).max() > 1e-3  # queries are told from values
    assert abs(reference(T, S)[:2] - reference(S, T)[:2]).min() > 1e-3  # and the directions of KL
    np.testing.assert_allclose(minilm.relation_loss(T, T, MASK, h).numpy(), np.zeros(B), atol=1e-15)
    assert torch.autograd.gradcheck(lambda x: minilm.relation_loss(x, T, MASK, h), (S.requires_grad_(),))


@pytest.mark.parametrize("variant", ["finetune", "kd"])
def test_only_relations_need_their_heads_and_layer(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SimpleNamespace(config=bert_config(2, 16))
    run = SimpleNamespace(student=lambda: model, teacher=SimpleNamespace(model=model), variant=variant, lr=1.0)
    run.kept_teacher, run.loop = (lambda: None), MagicMock()
    run.finish = finish = MagicMock()
    monkeypatch.setattr(minilm, "runs", lambda *_: [run])
    minilm.main(minilm.Args(teacher_layer=3, relation_heads=5))
    finish.assert_called_once()


@pytest.mark.parametrize("classes", [2, 3])
def test_dists_inter_class_relation_needs_three_classes(classes: int) -> None:
    logits, other = draw(4, classes).requires_grad_(), draw(4, classes, seed=1)
    found = dist.pearson_distance(logits.softmax(-1), other.softmax(-1))
    found.sum().backward()
    assert (logits.grad.abs().max() < 1e-12) == (classes == 2)


def test_dynakd_follows_the_gradient_of_the_expected_loss() -> None:
    """Over all draws, weighted by their probabilities, a step is that of the exact gradient, for any baseline."""
    losses, logits = torch.tensor([0.3, 1.1, 0.7]), torch.tensor([0.2, -0.4, 0.5], requires_grad=True)
    (logits.softmax(0) @ losses).backward()
    step = torch.zeros(3)
    for k, loss in enumerate(losses.tolist()):
        choice = dynakd.TeacherChoice(3)
        choice.logits.copy_(logits.detach())
        choice.mean_loss.fill_(5.0)
        choice.learn(k, loss)
        step += logits.detach().softmax(0)[k] * (choice.logits - logits.detach())
        assert choice.mean_loss.item() == pytest.approx(0.9 * 5.0 + 0.1 * loss)
    torch.testing.assert_close(step, -choice.LR * logits.grad)
    draws = [choice.draw(torch.Generator().manual_seed(step)) for step in range(2000)]
    # a share differs from its probability by less than 5 standard deviations
    shares = torch.bincount(torch.tensor(draws), minlength=3) / 2000
    assert (shares - choice.logits.softmax(0)).abs().max() < 5 * (0.25 / 2000) ** 0.5
