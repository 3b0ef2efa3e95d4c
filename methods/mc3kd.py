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
    python methods/mc3kd.py --variant only-selection --tokens all --last in    # MC3KD's layers, PKD's loss
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
    (2) C_T(l), layer against layer    LayerStatistics.svcca, layer_correlations
    (3) the m smallest, in order       select_layers
    (4)-(6) whitening, correlation     total_correlation, by `ccc`
    (7), (8) the whole loss            step_loss
    tables 4 and 8: TAKD, DynaKD       takd, dynakd
    figures 2, 4-9                     python -m bench figures mc3kd; `--track`

Differences from the paper, and how its gaps are read (more, table by table: `python -m bench papers mc3kd`)
    - eq. 1 leaves out the temperature's square and the direction: KL(teacher || student) * T^2, mean over the batch.
    - T is 2 and alpha 0.9, as in all scripts. The paper has T = 20 and searches alpha from 0.2 to 0.7 (appendix A);
      `--budget paper` changes the number of epochs alone.
    - eq. 5 divides by m - 1, and m is also the number of layers: read as n, the number of vectors. Eq. 6 writes the
      trace norm as tr(T'T)^(1/2): read as the sum of singular values, as in deep CCA.
    - each layer's correlation is divided by min(D_S, D_T), so that beta means the same for every width. A beta of the
      paper is that many times as large here.
    - all valid tokens are the samples (`--tokens cls`: [CLS] alone, 32 of a batch). With no more vectors than
      dimensions it is nearly n - 1 for related and unrelated layers alike: a line warns of it. `--memory 0.9`
      adds the covariances of the batches before, each batch's with 0.9 of the next one's weight, so that
      `--accumulate` works, too; `--shrinkage` sets a ridge that grows with D/n.
    - C_T and RCCC are over 512 examples, drawn at random; RCCC is of layers 1 and N, not of the embeddings. Algorithm 1
      stops at N - 1, eqs. 2-3 at N: l runs from 1 to N.
    - the paper names AdamW. A start from the first layers of the student's checkpoint, warm-up 0.1, linear decay,
      weight decay 0.01, clipping at 1, and batches of like length are ours.
    - PKD matches the [CLS] vectors of all student layers but the last, as its own paper does (`--tokens`, `--last`).
      "Only selection" is said to use vanilla KD's loss, in which no layer takes part; its results differ from KD's:
      read as PKD's loss, so that the deepest of the selected layers has no partner. `only-mc3` matches all student
      layers, the last one with the teacher's last.
    - TAKD (Mirzadeh et al. 2020) spends half of the budget on its assistant. This lies half-way in layers; the paper's
      has 6 between 24 and 3 (section 6.3; `--assistant 6x768`). How DynaKD (Ding et al. 2024) learns its distribution
      is not in the paper: read as the score-function (REINFORCE) gradient of the expected loss of eq. 1.
    - language modelling, without details in the paper: means over the predicted tokens; the CCC is over the states of
      all positions, GPT-2's last after the final layer norm, as the library hands it out.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import BadInput, CommonArgs, arg, execute, parse, split_paths, student_shape, variants


class Variant(NamedTuple):
    """Which teacher layers guide the student, and by which loss; `--beta`, `--tokens` and `--last` replace theirs."""

    layers: Literal["none", "skip", "last", "selected"]
    hidden: Literal["none", "pkd", "ccc"]
    beta: float = 0.0  # weight of the hidden loss; each paper has its own scale
    tokens: Literal["all", "cls"] = "all"  # whose vectors it compares
    last: Literal["in", "out"] = "in"  # whether the student's last layer is matched too


VARIANTS = {
    "finetune": Variant("none", "none"),  # the undistilled student
    "kd": Variant("none", "none"),
    "pkd-skip": Variant("skip", "pkd", 100.0, "cls", "out"),
    "pkd-last": Variant("last", "pkd", 100.0, "cls", "out"),
    "takd": Variant("none", "none"),
    "dynakd": Variant("none", "none"),
    "only-selection": Variant("selected", "pkd", 100.0, "cls", "out"),
    "only-mc3": Variant("skip", "ccc", 1.0),
    "mc3kd": Variant("selected", "ccc", 1.0),
}
PAPER_EPOCHS = 4
POOLS = {"pocket-6": "pocket", "pocket-12": "pocket,pocket-6"}  # DynaKD's teachers beside an embedded one


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and MC3KD's."""

    KINDS = ("classification", "regression", "language modelling")

    variant: str = variants("finetune,kd,mc3kd", VARIANTS)
    beta: float | None = arg(None, "eq. 8: weight of the hidden loss (default: 1 with CCC, 100 with PKD's MSE)", low=0)
    assistant: str | None = arg(
        None, "takd: layers x width of the assistant (default: half-way in layers, the teacher's width)"
    )
    pool: str | None = arg(
        None, "dynakd: teachers to choose from besides --teacher (default: the shallower pocket teachers)"
    )
    tokens: Literal["all", "cls"] | None = arg(
        None, "vectors that are compared: every valid token, or [CLS] (default: [CLS] by PKD's MSE, else all)"
    )
    last: Literal["in", "out"] | None = arg(
        None, "whether the student's last layer is matched too (default: out by PKD's MSE, as in its paper; else in)"
    )
    ridge: float = arg(1e-3, "eq. 5: r_t = r_s, added to the covariances, which may have no inverse without", above=0)
    shrinkage: float | None = arg(
        None, "in place of --ridge: r = SHRINKAGE x D/n x mean variance, for batches of few vectors", above=0
    )
    memory: float = arg(
        0.0, "share of the earlier batches' covariances that joins a batch's, for few vectors", low=0, high=0.999
    )
    track: bool = arg(False, "also log RCCC and the score at the end of every epoch (figures 4 and 5)", setting=False)
    selection_examples: int = arg(512, "examples, drawn at random, over which SVCCA and RCCC are computed", low=2)

    def check(self) -> None:
        super().check()
        rows = {name: row for name in self.variants if (row := self.row(name)).hidden != "none"}
        of_tokens = [row for row in rows.values() if row.hidden == "ccc" or row.tokens == "all"]
        if self.accumulate > 1 and any(row.hidden == "pkd" or not self.memory for row in of_tokens):
            raise BadInput(
                f"--accumulate {self.accumulate}: the hidden loss is of a batch's tokens; leave it out, or add"
                " --memory 0.9, which is for the CCC alone"
            )
        if self.assistant is not None:
            student_shape(self.assistant, "--assistant")
        if self.pool is None and "dynakd" in self.variants and self.teacher not in POOLS:
            raise BadInput("--variant dynakd: chooses among several teachers; name more with --pool A,B")
        if any(row.last == "out" for row in rows.values()) and student_shape(self.student)[0] < 2:
            raise BadInput(f"--student {self.student}: its last layer is left out, so it needs 2 or more; or --last in")
        cls = [name for name, row in rows.items() if row.tokens == "cls"]
        for task in self.tasks if cls else ():
            if self.kind_of(task) == "language modelling":
                raise BadInput(f"--variant {cls[0]}: compares [CLS] vectors, and {task} has none; --tokens all works")

    def row(self, name: str) -> Variant:
        """A variant, with what the arguments replace in it."""
        given = {key: getattr(self, key) for key in ("beta", "tokens", "last")}
        return VARIANTS[name]._replace(**{key: value for key, value in given.items() if value is not None})

    def versions(self, variant: str) -> dict[str, Any]:
        """Version 1 of the CCC had another gradient: less exact, and with `--memory` a smaller one."""
        return {"ccc": 2} if VARIANTS[variant].hidden == "ccc" else {}


def grid(args: Args, variant: str) -> dict[str, tuple[float, ...]]:
    """Appendix A's search space, for BERT-base, without what a variant does not use; rates scale with 768 / width. The
    temperature is fixed at 20 there. The figures of beta are the paper's, their meaning is not: its 0.1 weighs the sum
    of 768 correlations, which would be 77 here."""
    space: dict[str, tuple[float, ...]] = {
        "lr": tuple(lr * 768 / student_shape(args.student)[1] for lr in (2e-5, 3e-5, 5e-5))
    }
    if variant != "finetune":
        space["alpha"] = (0.2, 0.5, 0.6, 0.7)
    if VARIANTS[variant].hidden != "none":
        space["beta"] = (0.1, 1.0, 10.0)
    return space


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from common.data import Encoded, collate, encode, load
from common.errors import warn
from common.losses import baseline, term
from common.models import no_hidden_states, vectors
from common.parallel import by_main, mean, whole
from common.run import Run, task_runs
from common.teacher import Teacher, get_teacher
from common.train import Batch, Ledger, Loop

# Shapes: B batch, L length, D width (D_S student, D_T teacher), C classes, n vectors (valid tokens of a batch);
# m student layers, N teacher layers.


# --- SVCCA: how alike two layers are (section 3.2, eq. 2) ----------------------------------------------------


class LayerStatistics:
    """Streamed second moments of pairs of layers; memory does not grow with the number of examples.

    `pairs` are pairs of indices into the library's `hidden_states`: 0 is the embedding output, N the last layer.
    Products are taken in the precision of the vectors, after a first mean is taken off (some of BERT's dimensions
    are far from zero); their sums are kept in float64 on the CPU.
    """

    def __init__(self, pairs: list[tuple[int, int]]) -> None:
        self.pairs = pairs
        self.layers = sorted({i for pair in pairs for i in pair})
        self.n = 0
        self.shift: dict[int, Tensor] = {}  # layer -> (D,), the mean of its first vectors
        self.sums: dict[int, Tensor] = {}  # layer -> (D,)
        self.products: dict[tuple[int, int], Tensor] = {}  # (i, j) -> (D, D)

    def update(self, states: dict[int, Tensor]) -> None:
        """Add the (n, D) vectors of every layer, row k of each from the same token."""
        if not self.shift:
            self.shift = {i: states[i].mean(0) for i in self.layers}
        states = {i: states[i] - self.shift[i] for i in self.layers}
        self.n += len(states[self.layers[0]])
        for i in self.layers:
            self.sums[i] = self.sums.get(i, 0) + states[i].sum(0).cpu().double()
        for i, j in {*self.pairs, *((i, i) for i in self.layers)}:
            self.products[i, j] = self.products.get((i, j), 0) + (states[i].T @ states[j]).cpu().double()

    def covariance(self, i: int, j: int) -> Tensor:
        """(D_i, D_j), divided by n - 1; no shift changes it."""
        centred = self.products[i, j] - torch.outer(self.sums[i], self.sums[j]) / self.n
        return centred / (self.n - 1)

    def whitener(self, i: int) -> Tensor:
        """(D, k): the directions that hold 99% of the variance (SVCCA's cut), each scaled to variance 1."""
        values, directions = torch.linalg.eigh(self.covariance(i, i))
        values, directions = values.flip(0).clamp(min=0), directions.flip(1)
        share = values.cumsum(0) / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
        k = int((share < 0.99).sum()) + 1
        values, directions = values[:k], directions[:, :k]
        return directions[:, values > 0] / values[values > 0].sqrt()

    def svcca(self) -> list[float]:
        """Eq. 2 of each pair: the mean canonical correlation of its layers, in [0, 1]; 0 for a constant layer."""
        whiteners = {i: self.whitener(i) for i in self.layers}
        crosses = (whiteners[i].T @ self.covariance(i, j) @ whiteners[j] for i, j in self.pairs)
        return [float(x.clamp(max=1).mean()) if len(x) else 0.0 for x in map(torch.linalg.svdvals, crosses)]


@torch.no_grad()
def layer_statistics(model: PreTrainedModel, tokenizer: Any, encoded: Encoded, pairs: list[tuple[int, int]],
                     args: Args) -> LayerStatistics:  # fmt: skip
    """SVCCA statistics of a model in evaluation mode over `--selection-examples` examples, the same for every model."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    statistics = LayerStatistics(pairs)
    sample = Random(0).sample(range(len(encoded)), min(args.selection_examples, len(encoded)))
    for start in range(0, len(sample), args.batch_size):
        batch = collate(tokenizer, encoded, sample[start : start + args.batch_size])
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        hidden = model(**inputs, output_hidden_states=True).get("hidden_states") or no_hidden_states(model)
        valid = inputs["attention_mask"].bool()
        statistics.update({i: hidden[i][valid] for i in statistics.layers})
    model.train(was_training)
    return statistics


@by_main
def layer_correlations(args: Args, task: Any, teacher: Teacher) -> tuple[list[float], Ledger]:
    """Eq. 2: C_T(l) = CCA(T_{l-1}, T_l) for l = 1..N, over training examples; what it costs."""
    encoded = encode(teacher.tokenizer, task.splits["train"], task.task, args.max_length)
    N, cost = teacher.model.config.num_hidden_layers, Ledger()
    pairs = [(l - 1, l) for l in range(1, N + 1)]
    with cost.clock():
        sequence = layer_statistics(teacher.model, teacher.tokenizer, encoded, pairs, args).svcca()
    cost.teacher_examples = min(args.selection_examples, len(encoded))
    return sequence, cost


@by_main
def rccc_of(args: Args, task: Any, teacher: Teacher, model: PreTrainedModel) -> dict[str, float]:
    """SVCCA between a model's first and last layer, over training examples and over those of each reported split; of
    one layer nothing."""
    found, last = dict[str, float](), model.config.num_hidden_layers
    if last == 1:
        return found
    for key, split in {"rccc": "train", **{f"rccc_{split}": split for split in task.reported}}.items():
        encoded = encode(teacher.tokenizer, task.splits[split], task.task, args.max_length)
        (found[key],) = layer_statistics(model, teacher.tokenizer, encoded, [(1, last)], args).svcca()
    return found


# --- which teacher layers (section 5.1, eqs. 2-3) ------------------------------------------------------------


def select_layers(sequence: list[float], m: int) -> list[int]:
    """Eq. 3: the m layers l in 1..N with the smallest C_T(l), in the teacher's order. `sequence[l - 1]` is C_T(l)."""
    order = sorted(range(1, len(sequence) + 1), key=lambda l: sequence[l - 1])
    return sorted(order[:m])


def partners(variant: Variant, sequence: list[float], m: int) -> list[int]:
    """The teacher layers of student layers 1, 2, ...; without the last student layer's where `last` is "out".

    `BadInput` for a student with more layers than the teacher.
    """
    N = len(sequence)
    if variant.layers == "none":
        return []
    if m > N:
        raise BadInput(f"--student: {m} layers need as many teacher layers, the teacher has {N}")
    layers = {
        "last": list(range(N - m + 1, N + 1)),  # PKD-Last, 12 -> 6: layers 7 to 12
        "skip": [i * N // m for i in range(1, m + 1)],  # every (N/m)-th: 12 -> 3 is [4, 8, 12]; PKD's own [4, 8]
        "selected": select_layers(sequence, m),
    }[variant.layers]
    return layers[:-1] if variant.last == "out" else layers


# --- losses --------------------------------------------------------------------------------------------------


def pkd_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """PKD: the squared distance of (n, D) vectors, each scaled to length 1; mean over D, (n,)."""
    return (F.normalize(student, dim=-1) - F.normalize(teacher, dim=-1)).square().mean(-1)


def ccc(S: Tensor, T: Tensor, ridge: float, shrinkage: float | None = None, memory: Memory | None = None) -> Tensor:
    """Eqs. 4-6 of (n, D_S) and (n, D_T) vectors, (), at most min(n - 1, D_S, D_T). No gradient reaches the teacher.

    With n <= D and a small ridge it is nearly n - 1, whatever the layers, of which a line warns; `shrinkage` sets a
    ridge that grows with D/n in its place, and `memory`, which the batch then joins, adds the batches before. Raises
    `BadInput` where the ridge leaves no inverse; of vectors that are not finite the value is NaN.
    """
    n, D = len(S), max(S.shape[1], T.shape[1])
    if n < 2:
        return S.sum() * 0.0  # one vector has no covariance
    if memory is not None:
        n = round(n / (1 - memory.kept))
    if n <= D and shrinkage is None:
        warn_of_few_vectors(D)
    with torch.autocast(S.device.type, enabled=False):
        try:
            return total_correlation(S, T.detach(), ridge, shrinkage, memory).to(S)
        except torch.linalg.LinAlgError as error:
            if S.isfinite().all() and T.isfinite().all():
                larger = max(1e-3, 10 * ridge)
                raise BadInput(f"--ridge {ridge}: leaves a covariance without an inverse; try {larger:g}") from error
            return S.sum() * math.nan  # the loop says at which batch


@cache
def warn_of_few_vectors(D: int) -> None:
    warn(f"a batch has no more vectors than their {D} dimensions, where the CCC tells nothing; --memory 0.9,"
         " --shrinkage 1, or a larger --batch-size")  # fmt: skip


def total_correlation(
    S: Tensor, T: Tensor, ridge: float, shrinkage: float | None = None, memory: Memory | None = None
) -> Tensor:
    """Eqs. 4-6 as they stand, in float64: float32 loses the gradient where layers have outliers or few directions."""
    if S.device.type == "mps":  # Apple's GPUs have no float64
        S, T = S.cpu(), T.cpu()
    S, T = S.double(), T.double()
    S, T = S - S.mean(0), T - T.mean(0)
    if memory is None:
        (SS, TT, TS), n = scatters(in_row_space(S), in_row_space(T)), float(len(S))
    else:
        (SS, TT, TS), n = memory.join(S, T)
    S_ss, S_tt, S_ts = SS / (n - 1), TT / (n - 1), TS / (n - 1)
    # eq. 5: S_ss = S'S / (n - 1) + r_s I, and S_tt likewise
    r_s: Any = ridge
    r_t: Any = ridge
    if shrinkage is not None:
        r_s, r_t = (shrinkage / n * X.trace() + 1e-30 for X in (S_ss, S_tt))  # 1e-30: of vectors that do not vary
    S_ss = S_ss + r_s * torch.eye(len(S_ss)).to(S_ss)
    S_tt = S_tt + r_t * torch.eye(len(S_tt)).to(S_tt)
    # eq. 4: W = S_tt^-1/2 S_ts S_ss^-1/2, here L_t^-1 S_ts L_s^-T: Cholesky factors L L' = S_ss differ from the paper's
    # symmetric roots by rotations, which change no singular value
    L_s, L_t = torch.linalg.cholesky(S_ss), torch.linalg.cholesky(S_tt)
    W = torch.linalg.solve_triangular(L_t, S_ts, upper=False)
    W = torch.linalg.solve_triangular(L_s.T, W, upper=True, left=False)
    # eq. 6: ||W||_tr, the sum of its singular values
    return torch.linalg.matrix_norm(W, "nuc")


def scatters(S: Tensor, T: Tensor) -> list[Tensor]:
    """S'S, T'T and T'S of centred vectors."""
    return [S.T @ S, T.T @ T, T.T @ S]


def in_row_space(X: Tensor) -> Tensor:
    """(n, D) -> (n, min(n, D)): fewer vectors than dimensions, in an orthonormal basis of the space that they span.

    The basis needs no gradient: moved out of that space, a vector changes no correlation to first order.
    """
    return X if len(X) >= X.shape[1] else X @ torch.linalg.qr(X.detach().T).Q


class Memory(torch.nn.Module):
    """`--memory`: S'S, T'T and T'S of the batches before, with which a batch of few vectors is judged.

    A batch multiplies them by `kept` before it joins: of n vectors a batch, n / (1 - kept) count in the end. Each is
    centred by its own mean.
    """

    n: Tensor

    def __init__(self, kept: float, D_S: int, D_T: int) -> None:
        super().__init__()
        self.kept = kept
        for name, shape in (("SS", (D_S, D_S)), ("TT", (D_T, D_T)), ("TS", (D_T, D_S)), ("n", ())):
            self.register_buffer(name, torch.zeros(shape))

    def join(self, S: Tensor, T: Tensor) -> tuple[list[Tensor], float]:
        """S'S, T'T and T'S of a batch and of those before it, and the number of vectors that count.

        The batch's own n vectors alone have a gradient. Theirs is n / count of what they would have alone: it is scaled
        by count / n, so that beta means the same with a memory and without. No value changes.
        """
        n = len(S) + float(self.kept * self.n)
        S = torch.lerp(S.detach(), S, n / len(S))
        past: list[Tensor] = [self.SS, self.TT, self.TS]  # type: ignore[list-item]
        joined = [now + self.kept * before.to(now) for now, before in zip(scatters(S, T), past, strict=True)]
        for before, now in zip([*past, self.n], [*joined, torch.tensor(n)], strict=True):
            before.copy_(now.detach())
        return joined, n


def step_loss(args: Args, name: str, student: PreTrainedModel, teacher: Teacher, batch: Batch,
              layers: list[int], memories: Any = ()) -> Tensor:  # fmt: skip
    """Eq. 8, L = L_KD + beta L_CCC, or what the variant leaves of it. `layers[i - 1]` guides student layer i, and
    `memories[i - 1]` has the covariances of its batches before."""
    s = student(**batch.inputs, output_hidden_states=bool(layers))
    t: Any = None if name == "finetune" else teacher(batch, layers)
    # eq. 1: L_KD = alpha T^2 KL + (1 - alpha) CE; without a teacher CE alone
    loss, row = baseline(args, batch, s, t), args.row(name)
    at: dict[str, Any] = {"mask": batch.mask, "tokens": row.tokens, "family": student.config.model_type}
    pairs = ((vectors(s.hidden_states[i], **at), vectors(t.hidden_states[l], **at)) for i, l in enumerate(layers, 1))
    if row.hidden == "pkd":
        loss = loss + row.beta * mean(term("PKD", torch.stack([pkd_loss(S, T) for S, T in pairs], 1).mean(1)))
    elif row.hidden == "ccc":
        # eq. 7: L_CCC = - sum_i corr(T_{l_i}, S_i), each as a share of its largest value
        L_CCC: Any = 0.0  # without --memory there are no `memories`, and each is None
        for (S, T), memory in zip_longest(pairs, memories):
            L_CCC -= ccc(whole(S), whole(T), args.ridge, args.shrinkage, memory) / min(S.shape[1], T.shape[1])
        # eq. 8
        loss = loss + row.beta * term("CCC", L_CCC)
    return loss


# --- training ------------------------------------------------------------------------------------------------


def distil(args: Args, run: Run, student: PreTrainedModel, teacher: Teacher, layers: list[int]) -> None:
    """KD, PKD, MC3KD: a row's student on all that is left of its budget; `layers` guide student layers 1, 2, ..."""
    # with --budget paper TAKD's assistant and student each have all epochs; otherwise the student has what is left
    steps = run.steps if run.kind == "paper" else run.left
    modules: dict[str, torch.nn.Module] = {"student": student}
    memories: Any = ()
    if args.memory and args.row(run.variant).hidden == "ccc":
        widths = student.config.hidden_size, teacher.model.config.hidden_size
        modules["memory"] = memories = torch.nn.ModuleList(Memory(args.memory, *widths) for _ in layers)
    if run.variant not in ("finetune", "takd"):
        teacher = run.kept_teacher(layers, steps)
    with run.loop(modules, run.lr, steps=steps) as loop:
        loop.watch = partial(track, args, run, student, loop)
        for batch in loop:
            loop.minimise(step_loss(args, run.variant, student, teacher, batch, layers, memories))


def takd(args: Args, run: Run, teacher: Teacher) -> Teacher:
    """TAKD's first stage: KD trains an assistant, on half of the budget, or with `--budget paper` for all epochs. The
    assistant, as a teacher."""
    width = student_shape(shape := run.settings["assistant"])[1]
    first = run.settings["init"]
    if width != student_shape(args.student)[1]:
        copied = teacher.pretrained and args.init != "random" and width == teacher.model.config.hidden_size
        first = "pretrained" if copied else "random"
    assistant = run.student(init=first, shape=shape, keep="first")
    steps = run.steps if run.kind == "paper" else run.steps // 2
    with run.loop({"student": assistant}, run.rate(width, first), steps=steps, stage="assistant") as loop:
        for batch in loop:
            loop.minimise(step_loss(args, "kd", assistant, teacher, batch, []))
    return replace(teacher, name=f"assistant {shape}", model=assistant.eval().requires_grad_(False))


class TeacherChoice(torch.nn.Module):
    """DynaKD's categorical distribution over K teachers, in our reading: learned by the score function.

    With p = softmax(logits) and k drawn from p, (loss_k - baseline) (onehot(k) - p) estimates the gradient of the
    expected loss, sum_k p_k loss_k, with respect to the logits.
    """

    logits: Tensor
    baseline: Tensor
    RATE, MEMORY = 0.1, 0.9  # step size of the logits; share of the baseline that a step keeps

    def __init__(self, K: int) -> None:
        super().__init__()
        self.register_buffer("logits", torch.zeros(K))
        self.register_buffer("baseline", torch.tensor(float("nan")))  # until the first loss

    def draw(self, generator: torch.Generator) -> int:
        """The teacher of a step."""
        return int(torch.multinomial(self.logits.softmax(0).cpu(), 1, generator=generator))

    def learn(self, k: int, loss: float) -> None:
        """One step of stochastic gradient descent after teacher k gave this loss."""
        if self.baseline.isnan():
            self.baseline.fill_(loss)
        drawn = F.one_hot(torch.tensor(k), len(self.logits)).to(self.logits)
        self.logits -= self.RATE * (loss - self.baseline) * (drawn - self.logits.softmax(0))
        self.baseline.lerp_(torch.tensor(loss).to(self.baseline), 1 - self.MEMORY)


def dynakd(args: Args, run: Run, student: PreTrainedModel, teachers: list[Teacher]) -> dict[str, float]:
    """KD from a teacher that is drawn at every step; how probable each is in the end."""
    choice = TeacherChoice(len(teachers))
    with run.loop({"student": student, "choice": choice}, run.lr) as loop:
        loop.watch = partial(track, args, run, student, loop)
        for batch in loop:
            k = choice.draw(batch.generator)
            loop.minimise(step_loss(args, "kd", student, teachers[k], batch, []))
            if batch.last:
                choice.learn(k, loop.loss)
    return {t.name: float(p) for t, p in zip(teachers, choice.logits.softmax(0), strict=True)}


def teacher_pool(args: Args, task: Any, teacher: Teacher) -> list[Teacher]:
    """DynaKD's teachers, `--teacher` first. `BadInput` for one of another vocabulary, or if there is no second."""
    names = split_paths(args.pool or POOLS[args.teacher])
    pool = [get_teacher(args, task, name) for name in names if name != args.teacher]
    for other in pool:
        if other.tokenizer.get_vocab() != teacher.tokenizer.get_vocab():
            raise BadInput(f"--pool {other.name}: another vocabulary than {teacher.name}'s; teachers must share it")
    if not pool:
        raise BadInput(f"--pool {args.pool}: names no teacher besides {args.teacher}")
    return [teacher, *pool]


def track(args: Args, run: Run, student: PreTrainedModel, loop: Loop) -> None:
    """Figures 4 and 5: RCCC and the score after an epoch, into the log. Nothing is chosen by them."""
    if args.track and loop.step % loop.steps_per_epoch == 0:
        rccc = rccc_of(args, run.task, run.teacher, student)
        run.log(step=loop.step, epoch=loop.step // loop.steps_per_epoch, score=run.score(student)[0], **rccc)


def settings_of(args: Args, name: str, teacher: Teacher, pool: list[Teacher]) -> dict[str, Any]:
    """A row's settings besides the arguments. `BadInput` for widths that its loss cannot compare."""
    row, (m, D_S) = args.row(name), student_shape(args.student)
    N, D_T = teacher.model.config.num_hidden_layers, teacher.model.config.hidden_size
    if row.hidden == "pkd" and D_S != D_T:
        raise BadInput(
            f"--variant {name}: PKD's MSE needs equal widths, the student has {D_S} and the teacher {D_T};"
            f" --student {m}x{D_T}, or mc3kd"
        )
    assistant = args.assistant or f"{(m + N) // 2}x{D_T}"  # half-way
    return {"beta": row.beta, "tokens": row.tokens, "last": row.last,
            "assistant": assistant if name == "takd" else None,
            "pool": [t.signature for t in pool[1:]] if name == "dynakd" else None}  # fmt: skip


def main(args: Args) -> None:
    for task in (load(name, **args.source) for name in args.tasks):
        teacher = get_teacher(args, task)
        pool = teacher_pool(args, task, teacher) if "dynakd" in args.variants else []
        sequence, cost, of_teacher = list[float](), Ledger(), dict[str, Any]()
        if not teacher.stored:  # otherwise no layer of it is there
            sequence, cost = layer_correlations(args, task, teacher)
            of_teacher = rccc_of(args, task, teacher, teacher.model) | {"ccc_sequence": sequence}
        settings = {name: settings_of(args, name, teacher, pool) for name in args.variants}
        for run in task_runs(args, "mc3kd", task, teacher, settings, paper_epochs=PAPER_EPOCHS):
            row, guide, teachers = args.row(run.variant), teacher, dict[str, Any]()
            layers = partners(row, sequence, student_shape(args.student)[0])
            if row.layers == "selected":  # choosing the layers is part of the method and of its cost
                run.ledger.add(cost)
            if run.variant == "takd":
                guide = takd(args, run, teacher)
                teachers = {"teachers": {guide.name: 1.0}}
            student = run.student()
            if run.variant == "dynakd":
                teachers = {"teachers": dynakd(args, run, student, pool)}
            else:
                distil(args, run, student, guide, layers)
            analysis = rccc_of(args, task, teacher, student) | {"layers": layers} | teachers
            run.finish(student, analysis=analysis, teacher_analysis=of_teacher)


if __name__ == "__main__":
    execute(main, ARGS)
