"""TAKD: knowledge distillation via a teacher assistant (Mirzadeh et al. 2020, arXiv 1902.03393).

    python bench/baselines/takd.py --teacher pocket-6 --student 3x128     # undistilled, vanilla KD, TAKD
    python bench/baselines/takd.py --task rte --teacher bert-base-uncased --student 3x768 --assistant 6x768

The paper in two lines. A student far smaller than its teacher learns less from it. TAKD first distils an assistant,
whose size lies between the two, and then the student from the assistant; both by vanilla KD.

Differences from the paper: here assistant and student share the budget, half each; with `--budget paper` each of them
has all epochs. By default the assistant has the teacher's width and lies half-way in layers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.args import CommonArgs, arg, execute, parse, student_shape, variants

VARIANTS = ("finetune", "kd", "takd")
PAPER_EPOCHS = 4  # as MC3KD's table 4, which compares with TAKD, has it


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and TAKD's."""

    KINDS = ("classification", "regression", "language modelling")
    FORMER: ClassVar = CommonArgs.FORMER | {"selection_examples": 512}

    variant: str = variants("finetune,kd,takd", VARIANTS)
    assistant: str | None = arg(None, "its layers x width (default: half-way in layers, teacher's width)", shape=True)


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

from transformers import PreTrainedModel

from common.losses import baseline
from common.run import Run, task_runs, taught_tasks
from common.teacher import Teacher
from methods.mc3kd import rccc_of


def distil(run: Run, student: PreTrainedModel, teacher: Teacher | None, steps: int, lr: float, stage: str = "") -> None:
    """Train a student for so many steps by vanilla KD, or without a teacher on the labels alone."""
    with run.loop({"student": student}, lr, steps=steps, stage=stage) as loop:
        for batch in loop:
            t = teacher(batch) if teacher else None
            loop.minimise(baseline(run.args, batch, student(**batch.inputs), t))


def train_assistant(args: Args, run: Run, shape: str, steps: int) -> Teacher:
    """The assistant, as a teacher. One as wide as the student starts as the student does; another from the first layers
    of the pretrained teacher, if that is as wide, unless `--init random`, and otherwise from random weights."""
    teacher, init, width = run.teacher, run.settings["init"], student_shape(shape)[1]
    if width != student_shape(args.student)[1]:
        copied = teacher.pretrained and args.init != "random" and width == teacher.model.config.hidden_size
        init = "pretrained" if copied else "random"
    assistant = run.student(init=init, shape=shape, keep="first")
    distil(run, assistant, teacher, steps, run.rate(width, init), stage="assistant")
    return replace(teacher, name=f"assistant {shape}", model=assistant.eval().requires_grad_(False))


def main(args: Args) -> None:
    for task, teacher in taught_tasks(args):
        config = teacher.model.config
        layers = (student_shape(args.student)[0] + config.num_hidden_layers) // 2
        shape = args.assistant or f"{layers}x{config.hidden_size}"
        settings = {name: {"assistant": shape if name == "takd" else None} for name in args.variants}
        for run in task_runs(args, "takd", task, teacher, settings, paper_epochs=PAPER_EPOCHS):
            guiding, steps = None, run.steps  # the student's teacher
            if run.variant == "takd" and run.kind == "paper":  # all epochs for each of the two
                guiding = train_assistant(args, run, shape, steps)
            elif run.variant == "takd":
                guiding = train_assistant(args, run, shape, steps // 2)
                steps = run.left
            elif run.variant == "kd":
                guiding = run.kept_teacher()
            student = run.student()
            distil(run, student, guiding, steps, run.lr)
            run.finish(student, analysis=rccc_of(args, task, teacher, student))


if __name__ == "__main__":
    execute(main, ARGS)
