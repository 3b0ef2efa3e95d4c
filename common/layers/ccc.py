"""MC3KD's canonical correlation of a pair of layers, with its gradient in closed form.

    ccc(S, T, ridge=1e-3)    # (n, D_S) and (n, D_T) -> (), at most min(n - 1, D_S, D_T)
    ccc(S, T, ridge=1e-3, memory=Memory(0.9, D_S, D_T))    # with the batches before

`total_correlation` in methods/mc3kd.py is the same as the paper writes it, eqs. 4-6; a test holds the two equal. With
W = U roots V' and G = d value / d W, deep CCA's gradient (Andrew et al. 2013) for the student's centred S is

    d value / d S = T L_t^-T G L_s^-1 - S L_s^-T W'G L_s^-1

It is computed with the value: of a pair nothing else is kept for the backward pass.
Shapes: n vectors, D_S and D_T dimensions of student and teacher; L_s L_s' and L_t L_t' are the covariances.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor, nn

from common.errors import BadInput

_warned: set[int] = set()  # widths


class Memory(nn.Module):
    """The scatter matrices of the batches before: one of few vectors is judged together with them.

    Before a batch joins, what is there is multiplied by `kept`: of n vectors a batch, n / (1 - kept) count in the end.
    Earlier batches have no gradient; each is centred by its own mean.
    """

    student: Tensor
    teacher: Tensor
    cross: Tensor
    n: Tensor

    def __init__(self, kept: float, D_S: int, D_T: int) -> None:
        super().__init__()
        self.kept = kept
        for name, shape in (("student", (D_S, D_S)), ("teacher", (D_T, D_T)), ("cross", (D_T, D_S))):
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("n", torch.zeros(()))

    def add(self, S: Tensor, T: Tensor) -> None:
        """A batch of centred vectors."""
        for old, new in ((self.student, S.mT @ S), (self.teacher, T.mT @ T), (self.cross, T.mT @ S)):
            old.mul_(self.kept).add_(new)
        self.n.mul_(self.kept).add_(len(S))

    def past(self) -> Past:
        """What counts beside the next batch."""
        return tuple(self.kept * x for x in (self.student, self.teacher, self.cross, self.n))  # type: ignore[return-value]


Past = tuple[Tensor | float, Tensor | float, Tensor | float, Tensor | float]  # S'S, T'T, T'S, and the number of vectors


def ccc(
    student: Tensor, teacher: Tensor, ridge: float, shrinkage: float | None = None, memory: Memory | None = None
) -> Tensor:
    """Total canonical correlation of (n, D_S) and (n, D_T) vectors, (). No gradient reaches the teacher.

    With n <= D and a small ridge it is nearly n - 1, whatever the layers, of which a line warns; `shrinkage` sets a
    ridge that grows with D/n in its place, and `memory`, which the batch then joins, adds the batches before. Raises
    `BadInput` where the ridge leaves no inverse; of vectors that are not finite the value is NaN.
    """
    n, D = len(student), max(student.shape[1], teacher.shape[1])
    if n < 2:
        return student.sum() * 0.0  # one vector has no covariance
    counted = n if memory is None else round(n / (1 - memory.kept))
    if counted <= D and D not in _warned and shrinkage is None:
        _warned.add(D)
        print(f"warning: a batch has {counted} vectors in {D} dimensions, where the CCC tells nothing; --memory 0.9,"
              " --shrinkage 1, or a larger --batch-size", file=sys.stderr)  # fmt: skip
    with torch.autocast(student.device.type, enabled=False):  # in bf16 a covariance may have no Cholesky factor
        S, T = (centred(x) if memory else centred_basis(x) for x in (student, teacher.detach()))
        try:
            past = memory.past() if memory else (0.0, 0.0, 0.0, 0.0)
            value = TotalCorrelation.apply(S, T, past, ridge, shrinkage).to(student.dtype)
            if memory:
                memory.add(S.detach(), T)
            return value
        except torch.linalg.LinAlgError as error:
            if S.isfinite().all() and T.isfinite().all():
                raise BadInput(f"--ridge {ridge}: leaves a covariance without an inverse; 1e-3 would do") from error
            return student.sum() * math.nan  # the loop says at which batch


def centred(x: Tensor) -> Tensor:
    """(n, D) in float32 or better, with the mean 0. The gradient is centred."""
    x = x if x.dtype == torch.float64 else x.float()
    return x - x.detach().mean(0)


def centred_basis(x: Tensor) -> Tensor:
    """Centred (n, D) on the smaller side: (n, min(n, D)).

    With n < D it is written in an orthonormal basis of its own row space, which needs no gradient: moved out of that
    space, the student's correlation does not change to first order.
    """
    x = centred(x)
    return x if len(x) >= x.shape[1] else x @ torch.linalg.qr(x.detach().T).Q


class TotalCorrelation(torch.autograd.Function):
    """The value for centred S (n, D_S) and T (n, D_T), and the gradient for S.

    Products over the n vectors are taken in the precision of the input, and so are the singular vectors of W, whose
    values lie in [0, 1]; the covariances are factorised in float64.
    """

    @staticmethod
    def forward(ctx: Any, S: Tensor, T: Tensor, past: Past, ridge: float, shrinkage: float | None) -> Tensor:
        # Apple's GPUs have no float64, not even on the way to the CPU
        device = torch.device("cpu") if S.device.type == "mps" else S.device
        n = float(len(S) + past[3])

        def factor(x: Tensor, before: Tensor | float) -> Tensor:
            """Eq. 5, times n - 1: X'X + (n - 1) r I = L L'; shrunk, r = shrinkage tr(X'X / (n - 1)) / n."""
            scatter = (x.T @ x + before).to(device).double()
            diagonal = scatter.diagonal()
            diagonal += (n - 1) * ridge if shrinkage is None else shrinkage / n * diagonal.sum() + 1e-30
            return torch.linalg.cholesky(scatter)

        L_t, L_s = factor(T, past[1]), factor(S, past[0])
        cross = (T.T @ S + past[2]).to(device).double()
        # eq. 4: W = L_t^-1 (T'S) L_s^-T, in which n - 1 cancels
        half = torch.linalg.solve_triangular(L_t, cross, upper=False)
        W = torch.linalg.solve_triangular(L_s.T, half, upper=True, left=False)
        # eq. 6: W = U roots V', and ||W||_tr is the sum of the roots, the lengths of the columns of W V
        W = W.to(S.dtype)
        V = torch.linalg.eigh(W.T @ W).eigenvectors
        WV = W @ V
        roots = WV.norm(dim=0)
        # G = W V h V', h = 1 / roots; a direction without any correlation gets no gradient, a subgradient there
        h = torch.where(roots > 1e-5, 1 / roots.clamp(min=1e-5), 0.0)
        # the two products of d value / d S, with A = L_t^-T W V h and B = L_s^-T V
        A = torch.linalg.solve_triangular(L_t.T, (WV * h).to(L_t), upper=True).to(S)
        B = torch.linalg.solve_triangular(L_s.T, V.to(L_s), upper=True).to(S)
        from_teacher, from_student = A @ B.T, -(B * (h * roots.square()).to(S)) @ B.T
        if shrinkage is not None:  # the student's own part of its ridge
            diagonal = from_student.diagonal()
            diagonal += shrinkage / n * diagonal.sum()
        ctx.save_for_backward((T @ from_teacher).addmm_(S, from_student))
        return roots.sum().to(S)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        return gradient * ctx.saved_tensors[0], None, None, None, None
