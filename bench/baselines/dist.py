"""DIST: a stronger teacher (Huang et al. 2022, arXiv 2205.10536), an example of docs/add_a_method.md.

    python bench/baselines/dist.py --task pocket/mnli                      # the undistilled student, vanilla KD, DIST
    python -m bench run bench/baselines/dist.toml                          # beside other methods, under one budget

The paper in three lines. A much stronger teacher's probabilities are too far from a student's for an exact match by KL.
DIST asks for the same order alone: Pearson's correlation, between classes for each example (inter-class relation), and
between the examples of a batch for each class (intra-class). d_p is `pearson_distance`, the loss is in `step_loss`.

Differences from the paper: it is about images. T is 2 here, as in all scripts; beta and gamma are 1. Of two classes
L_inter teaches nothing: centred probabilities are (x, -x), so an example has 0 or 2, without gradient.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.args import CommonArgs, arg, execute, parse, variants

VARIANTS = ("finetune", "kd", "dist")
PAPER_EPOCHS = 4  # of this repository's other methods on GLUE: the paper is about images


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and DIST's."""

    KINDS = ("classification",)
    OUTPUTS_ALONE = VARIANTS

    variant: str = variants("finetune,kd,dist", VARIANTS)
    beta: float = arg(1.0, "weight of the inter-class relation", low=0)
    gamma: float = arg(1.0, "weight of the intra-class relation", low=0)


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

from torch import Tensor
from transformers import PreTrainedModel

from common.losses import baseline, label_loss, temperature
from common.parallel import mean, whole
from common.run import runs
from common.teacher import Teacher
from common.train import Batch


def pearson_distance(a: Tensor, b: Tensor) -> Tensor:
    """d_p = 1 - Pearson's correlation of the rows of (r, k) and (r, k), (r,)."""
    a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
    return 1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-8)


def step_loss(args: Args, name: str, student: PreTrainedModel, teacher: Teacher | None, batch: Batch) -> Tensor:
    """L = CE + T^2 (beta L_inter + gamma L_intra), or a baseline's; T^2 keeps gradients' size when T changes."""
    s = student(**batch.inputs)
    t = teacher(batch) if teacher else None
    if name != "dist":
        return baseline(args, batch, s, t)
    logits, labels = batch.predictions(s)
    teacher_logits, _ = batch.predictions(t)
    T = temperature(args, batch.kind)
    p, q = (whole((z / T).softmax(-1)) for z in (logits, teacher_logits))  # (B, C), of all processes' rows
    if batch.kind.several:  # (B C, 2): no and yes of each label
        p, q = (x[:, 1].unflatten(0, (-1, batch.labels.shape[1])) for x in (p, q))
    L_inter = pearson_distance(p, q).mean()  # over the classes of each example; of two no gradient
    L_intra = pearson_distance(p.T, q.T).mean()  # over the examples of each class
    return mean(label_loss(logits, labels)) + T**2 * (args.beta * L_inter + args.gamma * L_intra)


def main(args: Args) -> None:
    for run in runs(args, "dist", PAPER_EPOCHS):  # loads task and teacher; shows a task's table after its last run
        student = run.student()  # as --student, --init and --keep say
        # what a teacher says of an example is computed once, where that pays
        teacher = None if run.variant == "finetune" else run.kept_teacher()
        with run.loop({"student": student}, run.lr, whole_batch=run.variant == "dist") as loop:
            for batch in loop:  # goes on where it was killed, ends with the budget
                loop.minimise(step_loss(args, run.variant, student, teacher, batch))
        run.finish(student)


if __name__ == "__main__":
    execute(main, ARGS)
