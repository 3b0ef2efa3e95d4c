"""MiniLMv2: self-attention relations (Wang et al. 2021, arXiv 2012.15828), an example of docs/add_a_method.md.

    python bench/baselines/minilm.py --task pocket/rte                # undistilled, vanilla KD, KD + relations
    python bench/baselines/minilm.py --student 2x64 --teacher-layer 3 # a student of any width, another teacher layer

The paper in three lines. Queries, keys and values are each cut into as many relation heads in the student as in the
teacher, of any widths. A relation is the softmax of scaled dot products of all pairs of tokens: Q-Q, K-K and V-V. The
student's last layer learns those of one teacher layer.

Term -> code
    R = softmax(A A' / sqrt(d_r))               log_relations
    L = sum over Q, K, V of KL(R_T || R_S)      relation_loss

Differences from the paper
    - it distils on unlabelled text, by relations alone, from a teacher that was not fine-tuned. Here a fine-tuned one
      teaches on the task, and KD's loss stands beside the relations; with `--alpha 0` that is the labels' loss alone.
    - its 48 relation heads of width 768 and 64 of 1,024 have 16 numbers each: the default for every teacher. The layer
      is the last, as for its BERT-base; of large teachers it takes one of the upper middle.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.args import BadInput, CommonArgs, arg, execute, parse, variants

VARIANTS = ("finetune", "kd", "minilm-kd")
PAPER_EPOCHS = 4  # as of the other methods on GLUE: the paper's are of unlabelled text


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and MiniLMv2's."""

    KINDS = ("classification", "regression")

    variant: str = variants(",".join(VARIANTS), VARIANTS)
    beta: float = arg(1.0, "weight of the relations' loss", low=0)
    relation_heads: int | None = arg(None, "heads of a relation (default: the teacher's width / 16)", low=1)
    teacher_layer: int | None = arg(None, "teacher layer whose relations are learnt (default: the last)", low=1)


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
from torch import Tensor

from common.layers.attention import attention_inputs
from common.losses import baseline
from common.run import runs
from common.train import Batch

# Shapes: B batch, L length, D width, h relation heads of d_r = D / h.


def log_relations(A: Tensor, mask: Tensor, h: int) -> Tensor:
    """log softmax(A A' / sqrt(d_r)) of (B, L, D) vectors, (B, h, L, L): of each token to those in the (B, L) mask."""
    A = A.unflatten(-1, (h, -1)).transpose(1, 2)  # (B, h, L, d_r)
    scores = A @ A.mT / A.shape[-1] ** 0.5
    return scores.masked_fill(~mask[:, None, None], -1e4).log_softmax(-1)  # -inf would give NaN in KL


def relation_loss(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...], mask: Tensor, h: int) -> Tensor:
    """Of queries, keys and values, each (B, L, D), the sum of KL(R_T || R_S), mean over heads and over an example's
    tokens: (B,). The widths of student and teacher may differ."""
    log_R_S, log_R_T = (torch.stack([log_relations(A, mask, h) for A in side]) for side in (student, teacher))
    KL = torch.nn.functional.kl_div(log_R_S, log_R_T, log_target=True, reduction="none")
    KL = KL.sum(-1).mean(2).sum(0)  # (3, B, h, L, L) -> (B, L)
    return (KL * mask).sum(-1) / mask.sum(-1)


def step_loss(args: Args, student: Any, teacher: Any, batch: Batch, layer: int | None, h: int) -> Tensor:
    """L = L_KD + beta L_relations of a teacher layer, or without one of the two baselines."""
    s = student(**batch.inputs, output_hidden_states=layer is not None)
    t = teacher(batch) if teacher else None
    loss = baseline(args, batch, s, t)
    if layer is not None:
        S = attention_inputs(student, s, student.config.num_hidden_layers)
        T = attention_inputs(teacher.model, t, layer)
        loss = loss + args.beta * batch.mean(relation_loss(S, T, batch.mask, h))
    return loss


def main(args: Args) -> None:
    for run in runs(args, "minilm", PAPER_EPOCHS):
        student, config = run.student(), run.teacher.model.config
        N, D_T, D_S = config.num_hidden_layers, config.hidden_size, student.config.hidden_size
        h = args.relation_heads or max(1, D_T // 16)
        layer, teacher = None, None
        if run.variant == "kd":
            teacher = run.kept_teacher()
        elif run.variant == "minilm-kd":
            layer = args.teacher_layer or N
            if layer > N:
                raise BadInput(f"--teacher-layer {layer}: the teacher has {N} layers")
            if D_T % h or D_S % h:
                raise BadInput(f"--relation-heads {h}: must divide both widths, {D_S} and {D_T}")
            teacher = run.kept_teacher([layer - 1])  # whose output is the layer's input
        with run.loop({"student": student}, run.lr) as loop:
            for batch in loop:
                loop.minimise(step_loss(args, student, teacher, batch, layer, h))
        run.finish(student)


if __name__ == "__main__":
    execute(main, ARGS)
