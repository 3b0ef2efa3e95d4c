"""The head of a model of scores in any unit: its weights learn z-scores, its answers have the data's unit."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput

FARTHEST = 10  # standard deviations from 0 of a mean that a head without a bias learns


class ScoreHead(nn.Linear):
    """mean + std (W x + b)."""

    mean: float
    std: float

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return self.mean + self.std * z.to(torch.promote_types(z.dtype, torch.float32))

    def fold_scale(self) -> None:
        """Become the library's linear again, in place, with the same answers: they are in its weights."""
        self.weight *= self.std
        if self.bias is not None:
            self.bias.mul_(self.std).add_(self.mean)
        self.__class__ = nn.Linear  # type: ignore[assignment]


def install(model: PreTrainedModel, scale: tuple[float, float], absent: Collection[str] | None) -> None:
    """Make a model's head a `ScoreHead` of this mean and standard deviation: `models.scale_head`."""
    heads = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear) and m.out_features == 1}
    for name, head in list(heads.items())[-1:]:
        mean, std = scale if head.bias is not None else (0.0, scale[1])
        new = absent is None or f"{name}.weight" in absent
        if new and abs(scale[0] - mean) > FARTHEST * std:
            raise BadInput(
                f"--kind scores: their mean is {scale[0]:.4g}, their standard deviation {std:.4g}, and the head of a"
                f" {model.config.model_type} has no bias to learn that; an encoder, or scores less their mean, would do"
            )
        if not new:
            head.weight /= std
            if head.bias is not None:
                head.bias.sub_(mean).div_(std)
        head.__class__ = ScoreHead
        head.mean, head.std = mean, std  # type: ignore[assignment]
