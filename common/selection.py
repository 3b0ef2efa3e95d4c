"""The best of several evaluations, which xtc.py and cmow.py report with `--budget paper`, as their papers do."""

from __future__ import annotations

import math
from typing import Any

from common.parallel import on_main
from common.tasks import TaskData
from common.train import Loop


class Selection:
    """Evaluations after `every` steps (0: epochs) of a loop; `patience` of them that are no better end it.

    The split and the metric that decide are those of the papers' programs: the first half of MNLI, and accuracy where
    there is one.
    """

    def __init__(self, task: TaskData, every: int, patience: int | None) -> None:
        metrics = task.task.metrics
        self.split, self.metric = task.reported[0], "accuracy" if "accuracy" in metrics else metrics[0]
        self.every, self.patience = every, patience or math.inf

    def keep_best(self, run: Any, loop: Loop) -> bool:
        """After a number of steps, and the last, keep the student that no evaluation found better in the loop's module
        "best". Whether the loop has to end."""
        scores, student = loop.notes.setdefault("scores", []), loop.modules["student"]
        every = self.every or loop.steps_per_epoch
        if len(scores) * every < loop.step and (loop.step % every == 0 or loop.step == loop.steps):
            scores.append(on_main(lambda: run.evaluation(student).metrics[self.split][self.metric]))
            student.train()
            if scores[-1] > max(scores[:-1], default=-math.inf):
                loop.modules["best"].load_state_dict(student.state_dict())
        return bool(scores) and len(scores) - scores.index(max(scores)) > self.patience
