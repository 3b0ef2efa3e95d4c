"""Covariances that remember earlier batches: MC3KD's `--memory`."""

from __future__ import annotations

import torch
from torch import Tensor


class Memory(torch.nn.Module):
    """S'S, T'T and T'S of the batches before, with which a batch of few vectors is judged.

    A batch, with `--accumulate` a part of it, multiplies them by `kept` before it joins, centred by its own mean: of n
    vectors in each, n / (1 - kept) count in the end.
    """

    n: Tensor

    def __init__(self, kept: float, D_S: int, D_T: int) -> None:
        super().__init__()
        self.kept = kept
        for name, shape in (("SS", (D_S, D_S)), ("TT", (D_T, D_T)), ("TS", (D_T, D_S)), ("n", ())):
            self.register_buffer(name, torch.zeros(shape))

    def join(self, S: Tensor, T: Tensor) -> tuple[float, Tensor, Tensor, Tensor]:
        """The number of vectors that count, and S'S, T'T and T'S of a batch and of those before it."""
        n = len(S) + float(self.kept * self.n)
        # Only the batch's own S has a gradient, times n / len(S), so that beta means the same without a memory;
        # lerp(S, S, w) has the value S and w times its gradient
        S = torch.lerp(S.detach(), S, n / len(S))
        *past, _ = self.buffers()
        products = S.T @ S, T.T @ T, T.T @ S
        SS, TT, TS = (now + self.kept * before.to(now) for now, before in zip(products, past, strict=True))
        for before, now in zip(self.buffers(), [SS, TT, TS, torch.tensor(n)], strict=True):
            before.copy_(now.detach())
        return n, SS, TT, TS
