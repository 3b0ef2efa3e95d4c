"""What one training step of mc3kd costs beside one of kd: the same models, the same batch, in turn.

python -m pytest bench/bench_mc3kd.py            # prints the ratio; the paper reports 1.6
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from transformers import BertConfig, BertForSequenceClassification

from common import train
from methods.mc3kd import Args, step_loss


def bert(layers: int, width: int, vocabulary: int) -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            intermediate_size=4 * width,
        )
    )


def stepper(
    name: str, teacher: Any, shape: tuple[int, int, int], inputs: dict[str, torch.Tensor]
) -> Callable[[], None]:
    """A whole training step of a variant: forward passes, loss, backward, clipping, optimiser."""
    train.seed_everything(0)
    student = bert(*shape).train()
    optimizer = train.adamw(student, 1e-3)
    layers = list(range(1, shape[0] + 1)) if name == "mc3kd" else []

    def step() -> None:
        step_loss(Args(), name, student, teacher, inputs, layers, regression=False).backward()
        clip_grad_norm_(student.parameters(), train.CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(
    ("teacher", "student", "length", "rounds"),  # models as (layers, width, words)
    [((4, 128, 2000), (2, 128, 2000), 16, 60), ((6, 384, 30522), (3, 384, 30522), 64, 8)],
    ids=["pocket", "minilm"],
)
def test_step(benchmark: Any, teacher: tuple, student: tuple, length: int, rounds: int) -> None:
    """mc3kd's step costs at most 1.15 of kd's: the median of the ratios of neighbouring steps."""
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "input_ids": torch.randint(0, teacher[2], (32, length), generator=generator),
        "attention_mask": (torch.arange(length) < torch.randint(length // 2, length + 1, (32, 1), generator=generator)),
        "labels": torch.randint(0, 2, (32,), generator=generator),
    }
    inputs["attention_mask"] = inputs["attention_mask"].long()
    guide = bert(*teacher).eval().requires_grad_(False)
    kd, mc3kd = (stepper(name, guide, student, inputs) for name in ("kd", "mc3kd"))
    ratios = []

    def seconds(step: Callable[[], None]) -> float:
        started = time.perf_counter()
        step()
        return time.perf_counter() - started

    def pair() -> None:
        ratios.append(seconds(mc3kd) / seconds(kd))

    benchmark.pedantic(pair, rounds=rounds, warmup_rounds=3)
    ratio = statistics.median(ratios[3:])
    benchmark.extra_info["mc3kd / kd"] = round(ratio, 3)
    print(f"\nmc3kd / kd, teacher {teacher}, student {student}: {ratio:.3f} (median of {rounds})")
    assert ratio <= 1.15
