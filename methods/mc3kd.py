# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "torch==2.13.0", "transformers==5.23.0", "tokenizers==0.23.3", "datasets==5.2.0",
#     "accelerate==1.15.0", "safetensors==0.8.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1",
#     "rouge-score==0.1.2", "sacrebleu==2.6.0", "seqeval==1.2.2", "sentencepiece==0.2.3",
#     "filelock==4.2.11", "matplotlib==3.11.2", "psutil==7.2.2", "tqdm==4.70.1",
# ]
# ///
"""MC3KD: maximising the effectiveness of larger BERT models for compression.
Fan et al., ACL 2025: https://aclanthology.org/2025.acl-long.1067

    python methods/mc3kd.py                                   # pocket task, about a minute on a laptop
    python methods/mc3kd.py --variant finetune,kd,mc3kd --task pocket/rte --seed 1
    python methods/mc3kd.py --task rte --data-dir GLUE_DIR --teacher MODEL_DIR --student 3x384
    python methods/mc3kd.py --task rte --teacher bert-base-uncased --student 6x768 --budget paper --temperature 20
    python methods/mc3kd.py --task pocket/lm --variant finetune,kd,mc3kd --max-length 32   # GPT-2s, by perplexity

The paper in ten lines. A larger teacher often distils no better than a smaller one. The authors measure how
alike the layers of a model are by the mean canonical correlation of their activations (SVCCA): in larger
teachers the layers differ more, but KD and PKD do not pass that on; the student's first and last layer stay
alike. MC3KD (1) picks the m teacher layers that differ most from the layer below them, in order, as partners
of the student's m layers; (2) trains each student layer to be as linearly related as possible to its partner,
by the differentiable total correlation of deep CCA, the CCC (canonical correlation coefficients), beside the
usual KD loss. RCCC, the SVCCA between a model's first and last layer, is reported for teacher and student:
lower means layers that differ more.

Equation -> code
    (1) vanilla KD                     baseline, of all scripts: common/losses.py
    (2) C_T(l), layer against layer    svcca, layer_correlations
    (3) the m smallest, in order       select_layers
    (4)-(6) the total correlation      total_correlation, called by `ccc`
    (7), (8) the whole loss            step_loss
    tables 4 and 8: TAKD, DynaKD       bench/baselines/takd.py, dynakd.py
    figures 2, 4-9                     python -m bench figures mc3kd, mc3kd-track
docs/mc3kd.md lists what differs from the paper, and how its gaps are read.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import BadInput, CommonArgs, arg, execute, parse, student_shape, variants

# Shapes: n vectors (valid tokens of a batch), D width (D_S student, D_T teacher); m student layers, N teacher layers.
# torch is imported below the arguments, so that a wrong one is answered at once.


# --- equations -----------------------------------------------------------------------------------------------


def svcca(S_xx: Tensor, S_yy: Tensor, S_xy: Tensor) -> float:
    """Eq. 2: the mean canonical correlation of two layers, from their (D_x, D_x), (D_y, D_y) and (D_x, D_y)
    covariances: in [0, 1], 0 for a constant layer."""
    correlations = torch.linalg.svdvals(whitening(S_xx).T @ S_xy @ whitening(S_yy)).clamp(max=1)
    return float(correlations.mean()) if len(correlations) else 0.0


def whitening(S: Tensor) -> Tensor:
    """(D, D) -> (D, k): the directions that hold 99% of the variance (SVCCA's cut), each scaled to variance 1."""
    values, directions = torch.linalg.eigh(S)
    values, directions = values.flip(0).clamp(min=0), directions.flip(1)
    share = values.cumsum(0) / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    k = int((share < 0.99).sum()) + 1
    values, directions = values[:k], directions[:, :k]
    return directions[:, values > 0] / values[values > 0].sqrt()


def select_layers(sequence: list[float], m: int) -> list[int]:
    """Eq. 3: the m layers l in 1..N with the smallest C_T(l), in the teacher's order. `sequence[l - 1]` is C_T(l)."""
    order = sorted(range(1, len(sequence) + 1), key=lambda l: sequence[l - 1])
    return sorted(order[:m])


def total_correlation(S: Tensor, T: Tensor, ridge: float, shrinkage: float | None = None,
                      memory: Any = None) -> Tensor:  # fmt: skip
    """Eqs. 4-6 in float64: float32 loses the gradient where layers have outliers or few directions. `memory`: of
    common/layers/memory.py, the covariances of earlier batches, which this one joins."""
    if S.device.type == "mps":  # Apple's GPUs have no float64
        S, T = S.cpu(), T.cpu()
    S, T = S.double(), T.double()
    S, T = S - S.mean(0), T - T.mean(0)
    if memory is None:
        n = float(len(S))
        S, T = in_row_space(S), in_row_space(T)
        SS, TT, TS = S.T @ S, T.T @ T, T.T @ S
    else:
        n, SS, TT, TS = memory.join(S, T)

    def ridged(X: Tensor) -> Tensor:
        r: Any = ridge
        if shrinkage is not None:
            r = shrinkage / n * X.trace() + 1e-30  # = shrinkage D/n mean variance; > 0 for Cholesky
        return X + r * torch.eye(len(X)).to(X)

    # eq. 5, whose m is read as n, the number of vectors: S_ss = S'S / (n - 1) + r_s I, and S_tt likewise
    S_ss, S_tt, S_ts = ridged(SS / (n - 1)), ridged(TT / (n - 1)), TS / (n - 1)
    # eq. 4: W = S_tt^-1/2 S_ts S_ss^-1/2, here L_t^-1 S_ts L_s^-T: Cholesky factors L L' = S_ss differ from the paper's
    # symmetric roots by rotations, which change no singular value
    L_s, L_t = torch.linalg.cholesky(S_ss), torch.linalg.cholesky(S_tt)
    W = torch.linalg.solve_triangular(L_t, S_ts, upper=False)
    W = torch.linalg.solve_triangular(L_s.T, W, upper=True, left=False)
    # eq. 6: ||W||_tr, the sum of its singular values
    return torch.linalg.matrix_norm(W, "nuc")


def in_row_space(X: Tensor) -> Tensor:
    """(n, D) -> (n, min(n, D)): fewer vectors than dimensions, in an orthonormal basis of the space that they span."""
    if len(X) >= X.shape[1]:
        return X
    # The correlations depend on X X' alone; E orthogonal to X's rows adds E E', of second order: no gradient is lost
    return X @ torch.linalg.qr(X.detach().T).Q


def ccc(S: Tensor, T: Tensor, ridge: float, shrinkage: float | None = None, memory: Any = None) -> Tensor:
    """Eqs. 4-6 of (n, D_S) and (n, D_T) vectors, (), at most min(n - 1, D_S, D_T). No gradient reaches the teacher.

    With n - 1 <= D, the larger width, and a small ridge it is nearly that, whatever the layers, of which a line warns;
    `shrinkage` sets a ridge that grows with D/n in its place, and `memory`, which the batch then joins, adds earlier
    batches. Raises `BadInput` where the ridge leaves no inverse; of vectors that are not finite the value is NaN.
    """
    n, D = len(S), max(S.shape[1], T.shape[1])
    if n < 2:
        return S.sum() * 0.0  # one vector has no covariance
    if memory is not None:
        n = round(n / (1 - memory.kept))
    if n - 1 <= D and shrinkage is None:  # centred vectors span n - 1 dimensions
        warn_once(f"a batch has fewer than {D + 2} vectors of {D} dimensions: the CCC tells nothing; --memory 0.9,"
                  " --shrinkage 1, or a larger --batch-size")  # fmt: skip
    with torch.autocast(S.device.type, enabled=False):
        try:
            return total_correlation(S, T.detach(), ridge, shrinkage, memory).to(S)
        except torch.linalg.LinAlgError as error:
            if S.isfinite().all() and T.isfinite().all():
                used = f"a ridge of {ridge}" if shrinkage is None else f"--shrinkage {shrinkage}"
                raise BadInput(f"{used}: leaves a covariance without an inverse; --shrinkage 1 works") from error
            return S.sum() * math.nan  # the loop says at which batch


def pkd_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """PKD: the squared distance of (n, D) vectors, each scaled to length 1; mean over D, (n,)."""
    return (F.normalize(student, dim=-1) - F.normalize(teacher, dim=-1)).square().mean(-1)


# --- arguments -----------------------------------------------------------------------------------------------

RIDGE = 1e-3  # eq. 5: r_t and r_s, which the paper does not give, added to make the covariances invertible
SELECTION_EXAMPLES = 512  # drawn at random, over which SVCCA and RCCC are computed


class Variant(NamedTuple):
    """Which teacher layers guide the student, and by which loss; `--beta`, `--tokens` and `--last` replace theirs."""

    layers: Literal["none", "skip", "last", "selected"] = "none"
    hidden: Literal["none", "pkd", "ccc"] = "none"
    beta: float = 0.0  # weight of the hidden loss; each paper has its own scale
    tokens: Literal["all", "cls"] = "all"  # whose vectors it compares
    last: Literal["in", "out"] = "in"  # whether the student's last layer is matched too


VARIANTS = {
    "finetune": Variant(),  # the undistilled student
    "kd": Variant(),
    # PKD's own paper matches the [CLS] vectors of all student layers but the last
    "pkd-skip": Variant("skip", "pkd", 100.0, "cls", "out"),
    "pkd-last": Variant("last", "pkd", 100.0, "cls", "out"),
    # said to have vanilla KD's loss, in which no layer takes part, and other results than KD: read as PKD's loss
    "only-selection": Variant("selected", "pkd", 100.0, "cls", "out"),
    "only-mc3": Variant("skip", "ccc", 1.0),
    "mc3kd": Variant("selected", "ccc", 1.0),
}


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and MC3KD's."""

    KINDS = ("classification", "regression", "language modelling")
    VARIANTS = VARIANTS
    # arguments that are gone, of which signatures of older results have the values
    FORMER: ClassVar = CommonArgs.FORMER | {"ridge": RIDGE, "selection_examples": SELECTION_EXAMPLES}
    # Appendix A's numbers, where T is 20. They are other weights here: its beta weighs a sum of D correlations, ours
    # their mean, so that its 0.1 is 77 for D = 768
    GRID: ClassVar = {"lr": (2e-5, 3e-5, 5e-5), "alpha": (0.2, 0.5, 0.6, 0.7), "beta": (0.1, 1.0, 10.0)}

    variant: str = variants("finetune,kd,mc3kd", VARIANTS)
    beta: float | None = arg(None, "eq. 8: weight of the hidden loss (default: 1 with CCC, 100 with PKD's MSE)", low=0)
    tokens: Literal["all", "cls"] | None = arg(None, "vectors compared: of all tokens (CCC's default) or [CLS] (PKD's)")
    last: Literal["in", "out"] | None = arg(None, "is the student's last layer matched? (default: CCC in, PKD out)")
    shrinkage: float | None = arg(None, "a ridge for few vectors: SHRINKAGE x D/n x mean variance", above=0)
    memory: float = arg(0.0, "for few vectors: the share that earlier batches' covariances keep", low=0, high=0.999)

    def wrong(self) -> Iterator[str]:
        for name in self.variants:
            row = self.row(name)
            if row.hidden == "none":
                continue
            if row.last == "out" and student_shape(self.student)[0] < 2:
                yield f"--student {self.student}: its last layer is left out, so it needs 2 or more; or --last in"
            per_example = row.hidden == "pkd" and row.tokens == "cls"
            remembered = row.hidden == "ccc" and self.memory
            if self.accumulate > 1 and not per_example and not remembered:
                hint = "leave it out, or with the CCC add --memory 0.9"
                yield f"--accumulate {self.accumulate}: the hidden loss is of a batch's tokens; {hint}"
            for task in self.tasks:
                if row.tokens == "cls" and self.kind_of(task) == "language modelling":
                    yield f"--variant {name}: compares [CLS] vectors, and {task} has none; --tokens all works"

    def grid(self, variant: str) -> dict[str, tuple[Any, ...]]:
        """PKD's loss has another scale; its beta has the grid of its own paper."""
        space = super().grid(variant)
        if VARIANTS[variant].hidden == "pkd":
            space["beta"] = (10.0, 100.0, 500.0, 1000.0)
        return space

    def unused(self, variant: str) -> set[str]:
        return {"finetune": {"alpha", "beta"}, "kd": {"beta"}}.get(variant, set())

    def versions(self, variant: str) -> dict[str, Any]:
        """Version 1 of the CCC had another gradient: less exact, and with `--memory` a smaller one."""
        return {"ccc": 2} if VARIANTS[variant].hidden == "ccc" else {}


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from common.data import collate, encode
from common.errors import warn_once
from common.losses import baseline, term
from common.models import no_hidden_states, vectors
from common.parallel import by_main, mean, whole
from common.run import Run, task_runs, taught_tasks
from common.teacher import Teacher
from common.train import Batch, Ledger, Loop

PAPER_EPOCHS = 4


def step_loss(args: Args, row: Variant, student: PreTrainedModel, teacher: Teacher | None, batch: Batch,
              layers: list[int], memories: Any = None) -> Tensor:  # fmt: skip
    """Eq. 8, L = L_KD + beta L_CCC, or with PKD's loss or none in L_CCC's place; without a teacher the labels alone.
    Student layer i is guided by `layers[i - 1]`; with `--memory`, `memories[i - 1]` has earlier covariances."""
    s = student(**batch.inputs, output_hidden_states=bool(layers))
    t: Any = teacher(batch, layers) if teacher else None  # without gradient; hidden states of `layers` alone
    # eq. 1: L_KD = alpha T^2 KL + (1 - alpha) CE; the paper prints KL(S, T) without T^2, ours is KL(teacher || student)
    loss = baseline(args, batch, s, t)
    if row.hidden == "none":
        return loss
    vectors_of = partial(vectors, mask=batch.mask, tokens=row.tokens, family=student.config.model_type)  # -> (n, D)
    pairs = [(vectors_of(s.hidden_states[i]), vectors_of(t.hidden_states[l])) for i, l in enumerate(layers, start=1)]
    if row.hidden == "pkd":
        distances = torch.stack([pkd_loss(S, T) for S, T in pairs], 1).mean(1)
        return loss + row.beta * mean(term("PKD", distances))  # over all processes' examples, as `whole` below
    # eq. 7: L_CCC = - sum_i corr(T_{l_i}, S_i), each divided by the smaller width, its largest value for many vectors
    L_CCC: Any = 0.0
    for (S, T), memory in zip(pairs, memories or [None] * len(pairs), strict=True):
        corr = ccc(whole(S), whole(T), RIDGE, args.shrinkage, memory)
        L_CCC = L_CCC - corr / min(S.shape[1], T.shape[1])
    # eq. 8
    return loss + row.beta * term("CCC", L_CCC)


def partners(variant: Variant, sequence: list[float], m: int) -> list[int]:
    """The teacher layers of student layers 1, 2, ...; without the last student layer's where `last` is "out".
    `BadInput` for a student with more layers than the teacher."""
    N = len(sequence)
    if variant.layers == "none":
        return []
    if m > N:
        raise BadInput(f"--student: {m} layers need as many teacher layers, the teacher has {N}")
    layers = {
        "last": [N - m + i for i in range(1, m + 1)],  # 12 -> 6: layers 7 to 12; PKD-Last itself leaves out 12
        "skip": [i * N // m for i in range(1, m + 1)],  # every (N/m)-th: 12 -> 3 is 4, 8, 12; PKD-Skip itself 4, 8
        "selected": select_layers(sequence, m),
    }[variant.layers]
    if variant.last == "out":
        layers.pop()
    return layers


def svcca_of_batches(batches: Iterable[dict[int, Tensor]], pairs: list[tuple[int, int]]) -> list[float]:
    """Eq. 2 of pairs of layers, whose (n, D) vectors come batch by batch: memory does not grow with their number. Row k
    of each layer is the same token's.

    Products are taken in the precision of the vectors, after a first mean is taken off (some of BERT's dimensions are
    far from zero), which changes no covariance; their sums are kept in float64 on the CPU.
    """
    n = 0
    shift: dict[int, Tensor] = {}  # layer -> (D,), the mean of its first vectors
    sums: Any = defaultdict(float)  # layer -> (D,)
    products: Any = defaultdict(float)  # (i, j) -> (D, D)
    for states in batches:
        shift = shift or {i: X.mean(0) for i, X in states.items()}
        centred = {i: X - shift[i] for i, X in states.items()}
        n += len(next(iter(states.values())))
        for i, X in centred.items():
            sums[i] += X.sum(0).cpu().double()
        for i, j in {*pairs, *((i, i) for i in centred)}:
            products[i, j] += (centred[i].T @ centred[j]).cpu().double()

    def covariance(i: int, j: int) -> Tensor:
        return (products[i, j] - torch.outer(sums[i], sums[j]) / n) / (n - 1)

    return [svcca(covariance(i, i), covariance(j, j), covariance(i, j)) for i, j in pairs]


@torch.no_grad()
def layer_svcca(args: Any, task: Any, split: str, tokenizer: Any, model: PreTrainedModel,
                pairs: list[tuple[int, int]]) -> list[float]:  # fmt: skip
    """Eq. 2 of pairs of a model's layers, of which 0 is the embedding output, over the same `SELECTION_EXAMPLES`
    examples of a split for every model."""
    encoded = encode(tokenizer, task.splits[split], task.task, args.max_length)
    sample = Random(0).sample(range(len(encoded)), min(SELECTION_EXAMPLES, len(encoded)))
    layers = sorted({i for pair in pairs for i in pair})

    def states() -> Iterator[dict[int, Tensor]]:
        for start in range(0, len(sample), args.batch_size):
            batch = collate(tokenizer, encoded, sample[start : start + args.batch_size])
            inputs = {k: v.to(model.device) for k, v in batch.items() if k != "labels"}
            hidden = model(**inputs, output_hidden_states=True).get("hidden_states") or no_hidden_states(model)
            valid = inputs["attention_mask"].bool()
            yield {i: hidden[i][valid] for i in layers}

    was_training = model.training
    model.eval()
    correlations = svcca_of_batches(states(), pairs)
    model.train(was_training)
    return correlations


@by_main
def layer_correlations(args: Args, task: Any, teacher: Teacher) -> tuple[list[float], Ledger]:
    """Eq. 2: C_T(l) = CCA(T_{l-1}, T_l) for l = 1..N, over training examples, and what it costs; [] of a teacher that
    is outputs alone."""
    cost = Ledger()
    if teacher.stored:
        return [], cost
    pairs = [(l - 1, l) for l in range(1, teacher.model.config.num_hidden_layers + 1)]
    with cost.clock():
        sequence = layer_svcca(args, task, "train", teacher.tokenizer, teacher.model, pairs)
    cost.teacher_examples = min(SELECTION_EXAMPLES, len(task.splits["train"]))
    return sequence, cost


@by_main
def rccc_of(args: Any, task: Any, teacher: Teacher, model: PreTrainedModel) -> dict[str, float]:
    """SVCCA between a model's first and last layer, over training examples and over those of each reported split; of
    one layer nothing."""
    last = model.config.num_hidden_layers
    if last == 1:
        return {}
    rccc = {}
    for split in ("train", *task.reported):
        name = "rccc" if split == "train" else f"rccc_{split}"
        (rccc[name],) = layer_svcca(args, task, split, teacher.tokenizer, model, [(1, last)])
    return rccc


# --- training ------------------------------------------------------------------------------------------------


def distil(args: Args, run: Run, student: PreTrainedModel, layers: list[int]) -> None:
    """Train a row's student on its budget; `layers` guide student layers 1, 2, ..."""
    row, teacher, memories = args.row(run.variant), None, None
    modules: dict[str, torch.nn.Module] = {"student": student}
    if args.memory and row.hidden == "ccc":
        from common.layers.memory import Memory

        widths = student.config.hidden_size, run.teacher.model.config.hidden_size
        modules["memory"] = memories = torch.nn.ModuleList(Memory(args.memory, *widths) for _ in layers)
    if run.variant != "finetune":
        teacher = run.kept_teacher(layers)  # its outputs and these states may be read from disk
    with run.loop(modules, run.lr) as loop:
        if args.budget == "paper":
            loop.watch = partial(track, args, run, student, loop)
        for batch in loop:
            loop.minimise(step_loss(args, row, student, teacher, batch, layers, memories))


def track(args: Args, run: Run, student: PreTrainedModel, loop: Loop) -> None:
    """Figures 4 and 5: RCCC and the score after an epoch, into the log. Nothing is chosen by them."""
    if loop.step % loop.steps_per_epoch == 0:
        rccc = rccc_of(args, run.task, run.teacher, student)
        score = run.score(run.evaluation(student))
        run.log(step=loop.step, epoch=loop.step // loop.steps_per_epoch, score=score, **rccc)


def settings_of(args: Args, teacher: Teacher) -> dict[str, dict[str, Any]]:
    """What a row makes of `--beta`, `--tokens` and `--last`. `BadInput` for widths that PKD's loss cannot compare."""
    m, D_S = student_shape(args.student)
    D_T = teacher.model.config.hidden_size
    settings = {}
    for name in args.variants:
        row = args.row(name)
        if row.hidden == "pkd" and D_S != D_T:
            raise BadInput(f"--variant {name}: PKD's MSE needs equal widths; --student {m}x{D_T}, or --variant mc3kd")
        settings[name] = {"beta": row.beta, "tokens": row.tokens, "last": row.last}
    return settings


def train_row(args: Args, run: Run, sequence: list[float], cost: Ledger, teacher_analysis: dict[str, Any]) -> None:
    """A row's student and its record; choosing the layers is part of the method and of its cost."""
    row = args.row(run.variant)
    layers = partners(row, sequence, student_shape(args.student)[0])
    if row.layers == "selected":
        run.ledger.add(cost)
    student = run.student()
    distil(args, run, student, layers)
    analysis: dict[str, Any] = {"layers": layers}
    if not args.tune:  # trials are for the score alone
        analysis |= rccc_of(args, run.task, run.teacher, student)
    run.finish(student, analysis=analysis, teacher_analysis=teacher_analysis)


def main(args: Args) -> None:
    for task, teacher in taught_tasks(args):
        settings = settings_of(args, teacher)
        sequence, cost = layer_correlations(args, task, teacher)
        analysis: dict[str, Any] = {}
        if sequence and not args.tune:
            analysis = rccc_of(args, task, teacher, teacher.model) | {"ccc_sequence": sequence}
        for run in task_runs(args, "mc3kd", task, teacher, settings, paper_epochs=PAPER_EPOCHS):
            train_row(args, run, sequence, cost, analysis)


if __name__ == "__main__":
    execute(main, ARGS)
