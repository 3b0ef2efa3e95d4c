"""DIST: knowledge distillation from a stronger teacher (Huang et al. 2022), the example of docs/add_a_method.md.

    python docs/dist.py --task pocket/rte                       # the undistilled student, vanilla KD, DIST
    python -m bench run docs/dist.toml                          # beside other methods, under one budget

The paper in three lines. A much stronger teacher's probabilities are too far from a student's for an exact match by KL.
DIST asks for the same order alone: Pearson's correlation, between classes for each example (inter-class relation), and
between the examples of a batch for each class (intra-class relation).

Term -> code
    d_p = 1 - Pearson                  pearson_distance
    L_inter, L_intra, and their sum    step_loss
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import CommonArgs, arg, execute, parse

VARIANTS = ("finetune", "kd", "dist")
PAPER_EPOCHS = 4  # of this repository's other methods on GLUE: the paper is about images


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and DIST's."""

    KINDS: ClassVar[tuple[str, ...] | None] = ("classification",)

    variant: str = arg("finetune,kd,dist", f"one or several of {', '.join(VARIANTS)}", names=VARIANTS, setting=False)
    beta: float = arg(1.0, "weight of the inter-class relation", low=0)
    gamma: float = arg(1.0, "weight of the intra-class relation", low=0)


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

from torch import Tensor
from transformers import PreTrainedModel

from common.losses import kd_loss, label_loss
from common.parallel import mean, whole
from common.run import rows
from common.teacher import Teacher
from common.train import Batch

# Shapes: B batch, C classes.


def pearson_distance(a: Tensor, b: Tensor) -> Tensor:
    """d_p = 1 - Pearson's correlation of the rows of (r, k) and (r, k), (r,)."""
    a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
    return 1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-8)


def step_loss(args: Args, name: str, student: PreTrainedModel, teacher: Teacher, batch: Batch) -> Tensor:
    """L = CE + beta L_inter + gamma L_intra, or one of the two baselines."""
    logits, labels = batch.predictions(student(**batch.inputs))
    if name == "finetune":
        return mean(label_loss(logits, labels))
    soft, _ = batch.predictions(teacher(batch))
    if name == "kd":
        return kd_loss(logits, soft, labels, args.alpha, args.temperature)
    # the whole batch's probabilities, (B, C), also where several processes share it
    s, t = (whole((z / args.temperature).softmax(-1)) for z in (logits, soft))
    # the inter-class relation, over the classes of each example
    L_inter = pearson_distance(s, t).mean()
    # the intra-class relation, over the examples of each class
    L_intra = pearson_distance(s.T, t.T).mean()
    return mean(label_loss(logits, labels)) + args.beta * L_inter + args.gamma * L_intra


def main(args: Args) -> None:
    for row in rows(args, "dist", PAPER_EPOCHS):
        student, cached = row.student(), None if row.variant == "finetune" else row.teacher
        whole_batch = row.variant == "dist"
        with row.loop({"student": student}, row.lr, cached=cached, whole_batch=whole_batch) as loop:
            for batch in loop:
                loop.minimise(step_loss(args, row.variant, student, row.teacher, batch))
        row.finish(student)


if __name__ == "__main__":
    execute(main, ARGS)
