"""What the training loop costs beside the training: the scripts' steps and those of a bare PyTorch loop, in turn.

    python -m pytest bench/bench_loop.py -s      # prints the ratio; at most 1.05

The pocket student, undistilled, whose step is the cheapest of all. The bare loop has the same weights and batches, all
made before its first step, and nothing else than forward and backward pass, clipping and the fused AdamW: no schedule,
no ledger, no check of the loss, no log, no checkpoint, no batch to be made.
"""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from common import data, models, train
from common.run import Run
from common.teacher import Teacher
from methods import mc3kd

STEPS, TURNS, LIMIT = 20, 12, 1.05


class Clocked(data.Batches):
    """A stream that notes when each batch is asked for: where a step of the loop starts."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times: list[float] = []

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        self.times.append(time.process_time())  # of this process: other work on the machine does not count
        return super().__getitem__(step)


def seconds(times: list[float]) -> list[float]:
    """Of the steps but for the first, which loads what is loaded late."""
    return [later - earlier for earlier, later in itertools.pairwise(times[1:])]


def test_loop(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median of the ratios of neighbouring turns, each the median of its steps."""
    args = mc3kd.Args(device="cpu", out_dir=str(tmp_path), budget=str(32 * STEPS))
    engine = train.accelerator(args)
    task = data.load("pocket/sst2", limit=2000)
    tokenizer = models.load_tokenizer(models.source("pocket"))
    config = models.student_config(models.load_config(models.source("pocket")), 2, 128, num_labels=2)
    encoded = data.encode(tokenizer, task.splits["train"], task.task, args.max_length)
    guide: Any = None  # not asked
    teacher = Teacher("none", guide, tokenizer, "none", {}, 1.0, 1, None)

    def student() -> Any:
        train.seed_everything(0)
        return models.build_student(config, task.task.kind, None).float()  # the file holds half precision

    def ours() -> list[float]:
        cell = Run(args, "mc3kd", "finetune", task, teacher, 1, {"lr": 1e-3})
        made: list[Clocked] = []

        def batches(*_: Any) -> Clocked:
            made.append(Clocked(encoded, tokenizer, args.batch_size, args.seed))
            return made[0]

        monkeypatch.setattr(cell, "batches", batches)
        stage = mc3kd.Stage(cell.steps, None)
        mc3kd.distil(args, "finetune", cell, student(), [teacher], encoded, [], train.Ledger(), engine, stage)
        return seconds(made[0].times)

    def bare() -> list[float]:
        stream = data.Batches(encoded, tokenizer, args.batch_size, args.seed)
        batches = [stream[step] for step in range(STEPS)]
        model, times = student().train(), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for batch in batches:
            times.append(time.process_time())
            model(**batch).loss.backward()
            clip_grad_norm_(model.parameters(), train.CLIP)
            optimizer.step()
            optimizer.zero_grad()
        return seconds(times)

    ratios: list[float] = []
    spent: dict[str, list[float]] = {"ours": [], "bare": []}

    def turn() -> None:
        found = {"ours": statistics.median(ours()), "bare": statistics.median(bare())}
        ratios.append(found["ours"] / found["bare"])
        for name, value in found.items():
            spent[name].append(value)

    benchmark.pedantic(turn, rounds=TURNS, warmup_rounds=1)
    ratio = statistics.median(ratios[1:])
    benchmark.extra_info["loop / bare"] = round(ratio, 3)
    own, other = (1000 * statistics.median(spent[name][1:]) for name in ("ours", "bare"))
    print(f"\nloop / bare: {ratio:.3f} ({own:.2f} ms and {other:.2f} ms a step, {TURNS} turns of {STEPS} steps)")
    assert ratio <= LIMIT
