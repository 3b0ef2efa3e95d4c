"""DynaKD: a teacher that is drawn anew at every step. Ding et al. 2024, "How to trade off the quantity and capacity of
teacher ensemble", AAAI 38, pages 17915-17923. MC3KD's table 8 compares with it.

    python bench/baselines/dynakd.py --teacher pocket-6 --student 3x128   # undistilled, vanilla KD, DynaKD
    python bench/baselines/dynakd.py --task rte --teacher bert-large-uncased --pool bert-base-uncased --student 3x768

The paper in two lines. The best teacher for a student is not known, and changes as it learns. DynaKD draws one of
several at every step, from a distribution that it learns, and takes a step of vanilla KD from it.

MC3KD does not say how the distribution learns: here by the score-function (REINFORCE) gradient of KD's expected loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.args import BadInput, CommonArgs, arg, execute, parse, split_paths, variants

VARIANTS = ("finetune", "kd", "dynakd")
PAPER_EPOCHS = 4  # as MC3KD's table 8 has it
POOLS = {"pocket-6": "pocket", "pocket-12": "pocket,pocket-6"}  # the teachers beside an embedded one


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and DynaKD's."""

    KINDS = ("classification", "regression", "language modelling")
    FORMER: ClassVar = CommonArgs.FORMER | {"selection_examples": 512}

    variant: str = variants("finetune,kd,dynakd", VARIANTS)
    teacher: str = "pocket-6"
    pool: str | None = arg(None, "teachers to draw from besides --teacher (default: the shallower pocket teachers)")

    def wrong(self) -> Iterator[str]:
        if not self.pool and "dynakd" in self.variants and self.teacher not in POOLS:
            yield "--variant dynakd: chooses among several teachers; name more with --pool A,B"


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from common.losses import baseline
from common.run import Run, task_runs, taught_tasks
from common.teacher import Teacher, get_teacher
from methods.mc3kd import rccc_of


class TeacherChoice(torch.nn.Module):
    """DynaKD's categorical distribution over K teachers, in our reading: learned by the score function.

    With p = softmax(logits) and k drawn from p, (loss_k - mean_loss) (onehot(k) - p) estimates the gradient of the
    expected loss, sum_k p_k loss_k, with respect to the logits.
    """

    logits: Tensor
    mean_loss: Tensor  # moving average, REINFORCE's baseline
    LR = 0.1  # of the logits
    DECAY = 0.9  # of the average

    def __init__(self, K: int) -> None:
        super().__init__()
        self.register_buffer("logits", torch.zeros(K))
        self.register_buffer("mean_loss", torch.tensor(float("nan")))  # until the first loss

    def draw(self, generator: torch.Generator) -> int:
        """The teacher of a step."""
        return int(torch.multinomial(self.logits.softmax(0).cpu(), 1, generator=generator))

    def learn(self, k: int, loss: float) -> None:
        """One step of stochastic gradient descent after teacher k gave this loss."""
        if self.mean_loss.isnan():
            self.mean_loss.fill_(loss)
        onehot = F.one_hot(torch.tensor(k), len(self.logits)).to(self.logits)
        self.logits -= self.LR * (loss - self.mean_loss) * (onehot - self.logits.softmax(0))
        self.mean_loss.lerp_(torch.tensor(loss).to(self.mean_loss), 1 - self.DECAY)


def teacher_pool(args: Args, task: Any, teacher: Teacher) -> list[Teacher]:
    """`--teacher` and those of `--pool`. `BadInput` for one of another vocabulary, or if there is no second."""
    names = split_paths(args.pool or POOLS[args.teacher])
    pool = [get_teacher(args, task, name) for name in names if name != args.teacher]
    for other in pool:
        if other.tokenizer.get_vocab() != teacher.tokenizer.get_vocab():
            raise BadInput(f"--pool {other.name}: another vocabulary than {teacher.name}'s; teachers must share it")
    if not pool:
        raise BadInput(f"--pool {args.pool}: names no teacher besides {args.teacher}")
    return [teacher, *pool]


def distil(run: Run, student: PreTrainedModel, teachers: list[Teacher]) -> dict[str, float]:
    """Vanilla KD from teachers that are drawn, and how probable each is in the end; without any the labels alone."""
    choice = TeacherChoice(len(teachers))
    with run.loop({"student": student, "choice": choice}, run.lr) as loop:
        for batch in loop:
            t = None
            if teachers:
                k = choice.draw(batch.generator)
                t = teachers[k](batch)
            loop.minimise(baseline(run.args, batch, student(**batch.inputs), t))
            if teachers and batch.last:
                choice.learn(k, loop.loss)
    return {t.name: float(p) for t, p in zip(teachers, choice.logits.softmax(0), strict=True)}


def main(args: Args) -> None:
    for task, teacher in taught_tasks(args):
        teachers: dict[str, list[Teacher]] = {"finetune": [], "kd": [teacher]}
        if "dynakd" in args.variants:
            teachers["dynakd"] = teacher_pool(args, task, teacher)
        settings = {name: {"pool": [t.signature for t in teachers[name][1:]]} for name in args.variants}
        for run in task_runs(args, "dynakd", task, teacher, settings, paper_epochs=PAPER_EPOCHS):
            student = run.student()
            if run.variant == "kd":  # what one teacher says of an example is computed once, where that pays
                teachers["kd"] = [run.kept_teacher()]
            probabilities = distil(run, student, teachers[run.variant])
            run.finish(student, analysis=rccc_of(args, task, teacher, student) | {"teachers": probabilities})


if __name__ == "__main__":
    execute(main, ARGS)
