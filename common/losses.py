"""The two baselines of every table, the undistilled student and vanilla KD (Hinton et al. 2015): one home each.

Shapes: n rows, one for each prediction; C classes, or 1 output for a score.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common.parallel import mean

TERMS: dict[str, tuple[Tensor, int]] = {}  # of the loss at hand, sum and number of rows; the loop empties it


def term(name: str, value: Tensor) -> Tensor:
    """A part of a loss, as it is; the log of a run has its mean over everybody's rows under this name."""
    TERMS[name] = value.detach().sum(dtype=torch.float32), value.numel()
    return value


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """(n, C), (n,) -> (n,): the cross-entropy with the true labels; of scores, which are floats, the squared error. 0
    for a row without a label: -100, of scores NaN."""
    if labels.is_floating_point():
        return (logits[:, 0] - torch.where(labels.isnan(), logits[:, 0].detach(), labels)).square()
    return F.cross_entropy(logits, labels, reduction="none")


def kl_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """(n, C) twice -> (n,): T^2 KL(teacher || student), both softened by T; of scores the squared difference."""
    if student.shape[-1] == 1:
        return (student - teacher)[:, 0].square()
    # p = softmax(z / T); T^2 sum_c p_t (log p_t - log p_s)
    # in float32 at least: in half precision the difference of two close models is lost
    full = torch.promote_types(student.dtype, torch.float32)
    s, t = (F.log_softmax(logits.to(full) / temperature, dim=-1) for logits in (student, teacher))
    return temperature**2 * F.kl_div(s, t, log_target=True, reduction="none").sum(-1)


def kd_loss(student: Tensor, teacher: Tensor, labels: Tensor, alpha: float, temperature: float) -> Tensor:
    """Vanilla KD, (): the mean over all rows of alpha T^2 KL(teacher || student) + (1 - alpha) CE(student, labels)."""
    soft, hard = term("KL", kl_loss(student, teacher, temperature)), term("labels", label_loss(student, labels))
    return mean(alpha * soft + (1 - alpha) * hard)


def temperature(args: Any, kind: Any) -> float:
    """T of soft labels: `--temperature`, or what is usual for a task of this kind."""
    return args.temperature or kind.temperature


def baseline(args: Any, batch: Any, student: Any, teacher: Any | None) -> Tensor:
    """Of both models' outputs on a batch, (): without the teacher's, None, the labels alone; otherwise vanilla KD."""
    logits, labels = batch.predictions(student)
    if teacher is None:
        return mean(label_loss(logits, labels))
    return kd_loss(logits, batch.predictions(teacher)[0], labels, args.alpha, temperature(args, batch.kind))
