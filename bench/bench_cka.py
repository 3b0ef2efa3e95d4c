"""What one training step with CKA costs beside one with the linear projection: the same models and batch, in turn.

python -m pytest bench/bench_cka.py -s        # prints the ratios; the paper says "no slower"
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.nn.utils import clip_grad_norm_
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BartConfig, BertConfig

from common import models, train
from methods.cka import Args, accumulate, make_objective


def bert(layers: int, width: int, words: int) -> Any:
    return AutoModelForSequenceClassification.from_config(
        models.student_config(BertConfig(vocab_size=words), layers, width)
    )


def bart(layers: int, width: int, words: int) -> Any:
    return AutoModelForSeq2SeqLM.from_config(models.student_config(BartConfig(vocab_size=words), layers, width))


def stepper(hidden: Any, student: Any, teacher: Any, batch: dict[str, torch.Tensor]) -> Callable[[], None]:
    """A whole training step: forward passes, losses, backward, clipping, optimiser."""
    student.train()
    objective = make_objective(Args(), hidden, True, True, student, teacher)
    weights = [*student.parameters(), *objective.projections.parameters()]
    optimizer = train.adamw(student, 1e-4, [*objective.projections.parameters()])
    engine = Accelerator(cpu=True)

    def step() -> None:
        accumulate(Args(), objective, student, teacher, batch, engine)
        clip_grad_norm_(weights, train.CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(
    ("make", "teacher", "student", "length", "rounds"),  # models as (layers, width, words)
    [
        (bert, (4, 128, 2000), (2, 64, 2000), 16, 60),
        (bert, (6, 384, 5000), (3, 192, 5000), 64, 10),
        (bart, (8, 128, 2000), (4, 64, 2000), 16, 40),
    ],
    ids=["pocket", "minilm", "encoder-decoder"],
)
def test_step(benchmark: Any, make: Any, teacher: tuple, student: tuple, length: int, rounds: int) -> None:
    """CKA's step costs at most 1.05 of Lin's: the median of the ratios of neighbouring steps."""
    torch.manual_seed(0)
    mask = (torch.arange(length) < torch.randint(length // 2, length + 1, (32, 1))).long()
    ids = torch.randint(5, teacher[2], (32, length)) * mask
    labels = torch.randint(0, 2, (32,)) if make is bert else torch.where(mask > 0, ids, -100)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    guide = make(*teacher).eval().requires_grad_(False)
    lin, cka = (stepper(hidden, make(*student), guide, batch) for hidden in ("lin", "cka"))
    ratios: list[float] = []

    def seconds(step: Callable[[], None]) -> float:
        started = time.process_time()  # of this process: other work on the machine does not count
        step()
        return time.process_time() - started

    def pair() -> None:
        first = len(ratios) % 2
        found = [seconds((lin, cka)[first]), seconds((lin, cka)[1 - first])]
        ratios.append(found[1 - first] / found[first])

    benchmark.pedantic(pair, rounds=rounds, warmup_rounds=3)
    ratio = statistics.median(ratios[3:])
    benchmark.extra_info["cka / lin"] = round(ratio, 3)
    print(f"\ncka / lin, teacher {teacher}, student {student}: {ratio:.3f} (median of {rounds})")
    assert ratio <= 1.05
