"""MC3KD: maximising the effectiveness of larger BERT models for compression (Fan et al.).

    python methods/mc3kd.py                                   # pocket task, a few minutes on a laptop
    python methods/mc3kd.py --variant finetune,kd,mc3kd --task pocket/rte --seed 1
    python methods/mc3kd.py --task rte --data-dir GLUE_DIR --teacher MODEL_DIR --student 3x384
    python methods/mc3kd.py --task rte --teacher bert-base-uncased --student 6x768 --budget paper
    python methods/mc3kd.py --analyse MODEL_DIR --task pocket/rte   # SVCCA of every pair of layers, as JSON and plots
    python methods/mc3kd.py --task pocket/lm --variant finetune,kd,mc3kd --max-length 32   # GPT-2s, by perplexity
    python methods/mc3kd.py --task wikitext-2 --data-dir DIR --teacher GPT2_DIR --student 6x768

The paper in ten lines. A larger teacher often distils no better than a smaller one. The authors measure how
alike the layers of a model are by the mean canonical correlation of their activations (SVCCA): in larger
teachers the layers differ more, but KD and PKD do not pass that on; the student's first and last layer stay
alike. MC3KD (1) picks the m teacher layers that differ most from the layer below them, in order, as partners
of the student's m layers; (2) trains each student layer to be as linearly related as possible to its partner,
by the differentiable total correlation of deep CCA; beside the usual KD loss. RCCC, the SVCCA between a
model's first and last layer, is reported for teacher and student: lower means layers that differ more.

Equation -> code
    (1) vanilla KD                     kd_loss and the loop in distil
    (2) C_T(l), layer against layer    Covariances.svcca
    (3) the m smallest, in order       select_layers
    (4)-(6) whitening, correlation     ccc, TotalCorrelation
    (7), (8) the whole loss            hidden_loss and the loop in distil
    tables 4 and 8: TAKD, DynaKD       with_assistant, TeacherChoice
    figures 2, 4-9                     analyse, track
    table 9 (language modelling)       the same; predictions makes every predicted token an example of eq. 1

Differences from the paper, and how its gaps are read
    - eq. 1 leaves out the temperature's square and the direction: KL(teacher || student) * T^2, batchmean.
    - eq. 5 divides by m, also the number of layers: read as n, the number of vectors.
    - eq. 6 writes the trace norm as tr(T'T)^(1/2): read as the sum of singular values, as in deep CCA;
      `--correlation frobenius` takes it literally.
    - each layer's correlation is divided by min(d_S, d_T), so that beta means the same for every width.
    - all valid tokens are the samples (`--tokens cls` for [CLS] alone): with fewer vectors than dimensions the
      correlation is n - 1 for related and unrelated layers alike, and [CLS] at batch 32 gives 32 vectors.
    - ALBERT's layers share their weights: its "first k layers" are those weights applied k times, and its teacher
      layers still differ in what they put out, so that layers are chosen and guided as in any other family.
    - TAKD (Mirzadeh et al. 2020) trains an assistant by KD, then the student by KD from the assistant. Both stages
      are charged to the one budget, half of it each.
    - DynaKD (Ding et al. 2024) samples its teacher anew at every step from a distribution that it learns; how it
      learns is not in the paper at hand. Our reading: the score-function (REINFORCE) gradient of the expected loss
      of eq. 1, with a running mean as baseline, so that teachers whose loss is lower come up more often.
    - Algorithm 1 stops at N - 1, eqs. 2-3 at N: l runs from 1 to N.
    - language modelling (the paper gives no details): KL and CE are means over the predicted tokens, the CCC is over
      the hidden states of all positions. GPT-2's last hidden state is taken where the library hands it out, after
      the final layer norm. The variants with PKD's loss compare [CLS] vectors, which a causal model does not have.
    - "only selection" is said to use the vanilla KD loss, in which no layer takes part; its results differ from
      KD's, so it is read as PKD's loss with the selected layers.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import BadInput, CommonArgs, arg, parse, run, split_list, student_shape


class Variant(NamedTuple):
    """Which teacher layers guide the student, and by which loss."""

    layers: Literal["none", "skip", "last", "selected"]
    hidden: Literal["none", "pkd", "ccc"]
    beta: float = 0.0  # default weight of the hidden loss; each paper has its own scale


VARIANTS = {
    "finetune": Variant("none", "none"),  # the undistilled student
    "kd": Variant("none", "none"),
    "pkd-skip": Variant("skip", "pkd", 100.0),
    "pkd-last": Variant("last", "pkd", 100.0),
    "takd": Variant("none", "none"),
    "dynakd": Variant("none", "none"),
    "only-selection": Variant("selected", "pkd", 100.0),
    "only-mc3": Variant("skip", "ccc", 1.0),
    "mc3kd": Variant("selected", "ccc", 1.0),
}
PAPER_EPOCHS = 4
# Appendix A; the temperature is fixed at 20 there
GRID = {"lr": (2e-5, 3e-5, 5e-5), "alpha": (0.2, 0.5, 0.6, 0.7), "beta": (0.1, 1.0, 10.0)}


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and MC3KD's."""

    KINDS: ClassVar[tuple[str, ...] | None] = ("classification", "regression", "language modelling")

    variant: str = arg("finetune,mc3kd", f"one or several of {', '.join(VARIANTS)}")
    alpha: float = arg(0.9, "eq. 1: weight of the teacher's soft labels; 1 - alpha is that of the true labels")
    temperature: float = arg(2.0, "eq. 1: softens both sides' logits (the paper takes 20)")
    beta: float | None = arg(None, "eq. 8: weight of the hidden loss (default: 1 with CCC, 100 with PKD's MSE)")
    init: str = arg(
        "auto",
        "first weights: pretrained (the teacher's first layers before it was fine-tuned), random, auto (pretrained"
        " where the widths agree, else random), or a model, as for --teacher, whose first layers are copied",
    )
    assistant: str | None = arg(
        None, "takd: layers x width of the assistant (default: half-way in layers, the teacher's width)"
    )
    pool: str | None = arg(
        None, "dynakd: teachers to choose from besides --teacher (default: the shallower pocket teachers)"
    )
    tokens: Literal["all", "cls"] = arg("all", "vectors that SVCCA and CCC compare: every valid token, or [CLS]")
    correlation: Literal["nuclear", "frobenius"] = arg(
        "nuclear", "eq. 6: sum of singular values, or the Frobenius norm"
    )
    ridge: float = arg(1e-3, "eq. 5: r_t = r_s, added to the covariances")
    track: bool = arg(False, "also measure RCCC and the score at the end of every epoch, and plot them")
    analyse: str | None = arg(None, "train nothing: SVCCA of all layers of this model (as for --teacher)")
    selection_examples: int = arg(512, "training examples over which SVCCA and RCCC are computed")

    def check(self) -> None:
        super().check()
        self.check_names("variant", VARIANTS)
        if self.analyse == "":
            raise BadInput("--analyse '': name a model: pocket, a folder or a hub id")
        self.check_value("alpha", lambda v: 0 <= v <= 1, "be between 0 and 1")
        self.check_value("temperature", lambda v: 0 < v <= 1000, "be above 0, and at most 1000")
        self.check_value("beta", lambda v: 0 <= v < math.inf, "be 0 or more")
        self.check_value("ridge", lambda v: 0 < v < math.inf, "be above 0, or covariances may have no inverse")
        self.check_value("selection_examples", lambda v: v >= 2, "be 2 or more")
        if "takd" in self.variants:
            self.check_one_training("--variant takd")
        if self.assistant is not None:
            student_shape(self.assistant, "--assistant")
        if self.pool is None and "dynakd" in self.variants and self.teacher not in ("pocket-6", "pocket-12"):
            raise BadInput("--variant dynakd: chooses among several teachers; name more with --pool A,B")
        if student_shape(self.student)[0] < 2 and any(VARIANTS[v].hidden == "pkd" for v in self.variants):
            raise BadInput(f"--student {self.student}: PKD leaves out the last layer, so it needs 2 layers or more")
        from common import data

        for task in self.tasks:
            if data.task_of(task).kind != "language modelling":
                continue
            if pkd := [name for name in self.variants if VARIANTS[name].hidden == "pkd"]:
                raise BadInput(
                    f"--variant {pkd[0]}: PKD compares [CLS] vectors, and {task} has none; kd or mc3kd works"
                )
            if self.tokens == "cls":
                raise BadInput(f"--tokens cls: {task} has no [CLS]; all would work")


def grid(args: Args, variant: str) -> dict[str, tuple[float, ...]]:
    """Appendix A's search space for a variant: what it does not use is left out.

    The learning rates are those of BERT-base; they scale with 768 / width as the default does.
    """
    width = student_shape(args.student)[1]
    space = GRID | {"lr": tuple(lr * 768 / width for lr in GRID["lr"])}
    unused = {"alpha", "beta"} if variant == "finetune" else {"beta"} if VARIANTS[variant].hidden == "none" else set()
    return {name: values for name, values in space.items() if name not in unused}


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from common import data, metrics, models, parallel, plots, results, teacher_cache, train
from common.data import TaskData
from common.run import Run, choose_student, compiled
from common.teacher import Teacher, get_teacher

# Shapes: B batch, L length, D width (D_S student, D_T teacher), C classes, n vectors (valid tokens of a batch);
# m student layers, N teacher layers.


# --- SVCCA: how alike two layers are (section 3.2, eq. 2) ----------------------------------------------------


class Covariances:
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
        self.whiteners: dict[int, Tensor] = {}  # layer -> (D, k), made when first asked for

    def update(self, states: dict[int, Tensor]) -> None:
        """Add the (n, D) vectors of every layer, row k of each from the same token."""
        self.whiteners.clear()
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

    def whitener(self, i: int, keep: float = 0.99) -> Tensor:
        """(D, k): the directions that hold 99% of the variance (SVCCA's cut), each scaled to variance 1."""
        values, directions = torch.linalg.eigh(self.covariance(i, i))
        values, directions = values.flip(0).clamp(min=0), directions.flip(1)
        share = values.cumsum(0) / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
        k = int((share < keep).sum()) + 1
        values, directions = values[:k], directions[:, :k]
        return directions[:, values > 0] / values[values > 0].sqrt()

    def svcca(self, i: int, j: int) -> float:
        """Mean canonical correlation between layers i and j, in [0, 1] (eq. 2). 0 for a constant layer."""
        for layer in {i, j} - self.whiteners.keys():
            self.whiteners[layer] = self.whitener(layer)
        cross = self.whiteners[i].T @ self.covariance(i, j) @ self.whiteners[j]
        return float(torch.linalg.svdvals(cross).clamp(max=1).mean()) if cross.numel() else 0.0


def vectors(hidden: Tensor, attention_mask: Tensor, tokens: str, family: str = "bert") -> Tensor:
    """(B, L, D) -> (n, D): every valid token, or [CLS], the first valid token; XLNet puts it last."""
    if tokens == "all":
        return hidden[attention_mask.bool()]
    at = (
        attention_mask.shape[1] - 1 - attention_mask.flip(1).argmax(1)
        if family == "xlnet"
        else attention_mask.argmax(1)
    )
    return hidden[torch.arange(len(hidden)), at]


@torch.no_grad()
def layer_statistics(model: PreTrainedModel, tokenizer: Any, encoded: data.Encoded, pairs: list[tuple[int, int]],
                     args: Args) -> Covariances:  # fmt: skip
    """SVCCA statistics of a model in evaluation mode over the first `--selection-examples` training examples."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    statistics = Covariances(pairs)
    count = min(args.selection_examples, len(encoded))
    for start in range(0, count, args.batch_size):
        batch = data.collate(tokenizer, encoded, list(range(start, min(start + args.batch_size, count))))
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        hidden = model(**inputs, output_hidden_states=True).hidden_states
        mask, family = inputs["attention_mask"], model.config.model_type
        statistics.update({i: vectors(hidden[i], mask, args.tokens, family) for i in statistics.layers})
    model.train(was_training)
    return statistics


@parallel.by_main
def differences(teacher: Teacher, encoded: data.Encoded, args: Args) -> tuple[list[float], float]:
    """Eq. 2: C_T(l) = CCA(T_{l-1}, T_l) for l = 1..N; and the teacher's RCCC, layer 1 against layer N."""
    N = teacher.model.config.num_hidden_layers
    pairs = [(l - 1, l) for l in range(1, N + 1)]
    statistics = layer_statistics(teacher.model, teacher.tokenizer, encoded, [*pairs, (1, N)], args)
    return [statistics.svcca(i, j) for i, j in pairs], statistics.svcca(1, N)


# --- which teacher layers (section 5.1, eqs. 2-3) ------------------------------------------------------------


def select_layers(sequence: list[float], m: int) -> list[int]:
    """Eq. 3: the m layers l in 1..N with the smallest C_T(l), in the teacher's order. `sequence[l - 1]` is C_T(l)."""
    order = sorted(range(1, len(sequence) + 1), key=lambda l: sequence[l - 1])
    return sorted(order[:m])


def skip_layers(N: int, m: int) -> list[int]:
    """PKD-Skip: every (N/m)-th layer, the last included: 12 -> 3 is [4, 8, 12]."""
    return [round(i * N / m) for i in range(1, m + 1)]


def last_layers(N: int, m: int) -> list[int]:
    """PKD-Last: the last m layers."""
    return list(range(N - m + 1, N + 1))


# --- losses --------------------------------------------------------------------------------------------------


def kd_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) over (B, C) logits, mean over the batch ('batchmean'); of a text, over its tokens."""
    s = F.log_softmax(student / temperature, dim=-1)
    t = F.log_softmax(teacher / temperature, dim=-1)
    return temperature**2 * F.kl_div(s, t, log_target=True, reduction="batchmean")


def predictions(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One row per prediction: (B, C) logits and (B,) labels as they are. Of a language model, whose position i
    predicts token i + 1: (B, L, V) logits and (B, L) tokens -> (B (L - 1), V) and (B (L - 1),)."""
    if labels.ndim == 1:
        return logits, labels
    return logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()


def pkd_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """PKD: mean squared distance of (B, D) [CLS] vectors after each is scaled to length 1."""
    return F.mse_loss(F.normalize(student, dim=-1), F.normalize(teacher, dim=-1))


def ccc(student: Tensor, teacher: Tensor, ridge: float, correlation: str = "nuclear") -> Tensor:
    """Eqs. 4-6: total canonical correlation of (..., n, D_S) and (..., n, D_T): (...), at most min(n - 1, D_S, D_T).

    On whichever side is smaller: with n < D, a matrix is first written in an orthonormal basis of its own row
    space, (n, n). The basis needs no gradient: moved out of that space, the student's correlation does not change
    to first order. No gradient reaches the teacher.
    """
    if parallel.count(student.shape[-2]) < 2:
        return student.sum((-2, -1)) * 0.0  # one vector has no covariance
    with torch.autocast(student.device.type, enabled=False):  # in bf16 a covariance may have no Cholesky factor
        S, T = reduced(student), reduced(teacher.detach())
        try:
            return TotalCorrelation.apply(S, T, ridge, correlation).to(student.dtype)
        except torch.linalg.LinAlgError as error:
            if not parallel.largest(not (S.isfinite().all() and T.isfinite().all())):
                raise BadInput(f"--ridge {ridge}: leaves a covariance without an inverse; 1e-3 would do") from error
            return student.sum((-2, -1)) * math.nan  # the loop says at which batch


def reduced(x: Tensor) -> Tensor:
    """Centred (..., n, D) in float32 or better, as (..., n, min(n, D)); of several processes' vectors, (..., n, D)."""
    x = parallel.centred(x if x.dtype == torch.float64 else x.float())
    return x if x.shape[-2] >= x.shape[-1] or parallel.processes() > 1 else x @ torch.linalg.qr(x.detach().mT).Q


class TotalCorrelation(torch.autograd.Function):
    """Eqs. 4-6 for centred S (..., n, D_S) and T (..., n, D_T), with deep CCA's gradient in closed form.

    Products over the n vectors, those of all processes, are taken in the precision of the input; the small (D, D)
    matrices are factorised in float64. Cholesky factors L L' = S_ss stand in for the paper's symmetric roots: they
    differ by rotations, which change neither a singular value nor the gradient.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, ridge: float, correlation: str) -> Tensor:
        # Apple's GPUs have no float64
        device = torch.device("cpu") if student.device.type == "mps" else student.device
        n = parallel.count(student.shape[-2])

        def factor(x: Tensor) -> Tensor:
            """Eq. 5, times n - 1: X'X + (n - 1) r I = L L'."""
            scatter = parallel.total(x.mT @ x).to(device, torch.float64)
            scatter.diagonal(dim1=-2, dim2=-1).add_((n - 1) * ridge)
            return torch.linalg.cholesky(scatter)

        L_t, L_s = factor(teacher), factor(student)
        cross = parallel.total(teacher.mT @ student).to(device, torch.float64)
        # eq. 4: W = L_t^-1 (T'S) L_s^-T, in which n - 1 cancels
        half = torch.linalg.solve_triangular(L_t, cross, upper=False)
        W = torch.linalg.solve_triangular(L_s.mT, half, upper=True, left=False)
        # eq. 6: ||W||_tr is the sum of the singular values, the roots of the eigenvalues of W'W = V squares V'
        squares, V = torch.linalg.eigh(W.mT @ W)
        squares = squares.clamp(min=0)
        if correlation == "frobenius":
            value = squares.sum(-1).sqrt()
            roots = value[..., None].expand_as(squares)
        else:
            roots = squares.sqrt()
            roots = torch.where(roots > 1e-6, roots, 0.0)  # below is the rounding of squares that are 0
            value = roots.sum(-1)
        # G = d value / dW = W V h V'; a direction without any correlation gets no gradient, a subgradient there
        h = torch.where(roots > 1e-6, 1 / roots.clamp(min=1e-6), 0.0)
        # d value / dS = T L_t^-T G L_s^-1 - S L_s^-T W'G L_s^-1, with B = L_s^-T V
        B = torch.linalg.solve_triangular(L_s.mT, V, upper=True)
        from_teacher = torch.linalg.solve_triangular(L_t.mT, W @ (V * h[..., None, :]), upper=True) @ B.mT
        from_student = -(B * (h * squares)[..., None, :]) @ B.mT
        ctx.save_for_backward(student, teacher, from_student.to(student), from_teacher.to(student))
        return value.to(student)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        student, teacher, from_student, from_teacher = ctx.saved_tensors
        return gradient[..., None, None] * (teacher @ from_teacher + student @ from_student), None, None, None


def hidden_loss(variant: Variant, args: Args, student: tuple[Tensor, ...], teacher: tuple[Tensor, ...],
                layers: list[int], mask: Tensor, family: str = "bert") -> Tensor:  # fmt: skip
    """The term that beta weighs: PKD's MSE, or L_CCC of eq. 7. `layers[i - 1]` is the partner of student layer i."""
    if variant.hidden == "pkd":
        # the mean over layers; the last student layer has no partner
        pairs = [(student[i], teacher[l]) for i, l in enumerate(layers, start=1)]
        terms = [pkd_loss(vectors(s, mask, "cls", family), vectors(t, mask, "cls", family)) for s, t in pairs]
        return parallel.mean(torch.stack(terms).mean(), len(mask))
    S = torch.stack([vectors(student[i], mask, args.tokens, family) for i in range(1, len(layers) + 1)])  # (m, n, D_S)
    T = torch.stack([vectors(teacher[l], mask, args.tokens, family) for l in layers])  # (m, n, D_T)
    # eq. 7: L_CCC = - sum_i corr(T_{l_i}, S_i), each corr as a share of its largest possible value
    return -ccc(S, T, args.ridge, args.correlation).sum() / min(S.shape[-1], T.shape[-1])


class Stage(NamedTuple):
    """A share of the budget: steps or seconds, how many steps came before, and the folder of its checkpoint."""

    steps: int | None
    seconds: int | None
    before: int = 0
    folder: str = ""

    @property
    def last(self) -> bool:
        return self.folder == ""


# --- the training loop ---------------------------------------------------------------------------------------


def partners(name: str, sequence: list[float], m: int) -> list[int]:
    """The teacher layers of student layers 1, 2, ... for a variant; PKD's leave out the last student layer."""
    variant, N = VARIANTS[name], len(sequence)
    if variant.layers == "none":
        return []
    if m > N:
        raise BadInput(f"--student: {m} layers need as many teacher layers, the teacher has {N}")
    if name == "pkd-last":
        return last_layers(N - 1, m - 1)  # 12 -> 6: layers 7 to 11; the last one is the logits' business
    layers = skip_layers(N, m) if variant.layers == "skip" else select_layers(sequence, m)
    return layers[:-1] if variant.hidden == "pkd" else layers


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

    def probabilities(self) -> Tensor:
        return self.logits.softmax(0)

    def draw(self) -> int:
        return int(torch.multinomial(self.probabilities(), 1))

    def learn(self, k: int, loss: float) -> None:
        """One step of stochastic gradient descent after teacher k gave this loss."""
        if self.baseline.isnan():
            self.baseline.fill_(loss)
        drawn = F.one_hot(torch.tensor(k), len(self.logits))
        self.logits -= self.RATE * (loss - self.baseline) * (drawn - self.probabilities())
        self.baseline.lerp_(torch.tensor(loss), 1 - self.MEMORY)


def step_loss(args: Args, name: str, student: Any, teacher: Any, inputs: dict[str, Tensor], layers: list[int],
              regression: bool) -> Tensor:  # fmt: skip
    """The loss of one batch for a variant: eq. 8, L = L_KD + beta L_CCC, or what the variant leaves of it."""
    variant = VARIANTS[name]
    labels, inputs = inputs["labels"], {k: v for k, v in inputs.items() if k != "labels"}
    s = student(**inputs, output_hidden_states=bool(layers))
    logits, targets = predictions(s.logits, labels)
    hard = F.mse_loss(logits[:, 0], targets) if regression else F.cross_entropy(logits, targets)
    if name == "finetune":
        return parallel.mean(hard, len(targets))
    with torch.no_grad():
        t = teacher(**inputs, output_hidden_states=bool(layers))
    guide, _ = predictions(t.logits, labels)
    soft = F.mse_loss(logits, guide) if regression else kd_loss(logits, guide, args.temperature)
    # eq. 1: L_KD = alpha KL + (1 - alpha) CE
    loss = parallel.mean(args.alpha * soft + (1 - args.alpha) * hard, len(targets))
    if layers:
        # eq. 8
        beta = variant.beta if args.beta is None else args.beta
        mask, family = inputs["attention_mask"], student.config.model_type
        loss = loss + beta * hidden_loss(variant, args, s.hidden_states, t.hidden_states, layers, mask, family)
    return loss


def distil(args: Args, name: str, cell: Run, student: PreTrainedModel, teachers: list[Teacher], encoded: data.Encoded,
           layers: list[int], ledger: train.Ledger, engine: Accelerator, stage: Stage) -> dict[str, float]:  # fmt: skip
    """Train the student over a stage of the budget; returns the share of each teacher where there are several.

    `layers`: the teacher layers that guide student layers 1, 2, ... `ledger` is this stage's alone.
    """
    teacher = teachers[0]
    batches = cell.batches(encoded, engine.device)
    student.to(engine.device).train()
    optimizer = train.adamw(student, cell.settings["lr"])
    schedule = train.Schedule(optimizer, ledger, stage.steps, stage.seconds, args=args)
    guides = [teacher_cache.Guide(compiled(t.model, args)) for t in teachers]
    if name not in ("finetune", "takd", "dynakd"):  # one teacher for the whole run
        guides = [teacher_cache.guide(args, cell, teacher, encoded, stage.steps, ledger, engine, tuple(layers))]
    choice = TeacherChoice(len(teachers))
    checkpoint = train.Checkpoint(
        cell.folder / stage.folder, {"student": student, "choice": choice}, schedule, cell.identity,
        args.save_every, engine.scaler,
    )  # fmt: skip
    if args.resume and checkpoint.load():
        print(f"{name}: continued at step {stage.before + ledger.steps}")
    if schedule.running():
        cell.start(stage.before + ledger.steps)
    model = compiled(student, args)
    regression = cell.task.task.kind == "regression"
    bar = train.progress(stage.steps or 0, f"{name} {stage.folder} seed {args.seed}", ledger.steps)
    with checkpoint:
        while schedule.running():
            with ledger.clock():
                step = stage.before + ledger.steps
                batch = batches[step]
                k = choice.draw() if len(guides) > 1 else 0
                loss: Any = 0.0
                for part in parallel.parts(batch, batches.ids(step), args.accumulate):
                    inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                    with engine.autocast(), parallel.randomness(step, part.number):
                        own = step_loss(args, name, model, guides[k].on(part.ids), inputs, layers, regression)
                        own = part.share * own
                    engine.backward(own)
                    loss += own.detach()
                checkpoint.watch(loss, step, batches.ids)
                train.update(engine, optimizer, student.parameters())
                if len(guides) > 1:
                    choice.learn(k, loss.item())
                ledger.count(batch, teachers=0 if name == "finetune" else guides[k].charge)
                schedule.step()
            if ledger.steps % 20 == 0:
                cell.log(step=stage.before + ledger.steps, loss=round(loss.item(), 6))
            if args.track and stage.last and ledger.steps % batches.steps_per_epoch == 0:
                track(args, cell, student, teacher, encoded, ledger.steps, ledger.steps // batches.steps_per_epoch)
            bar.update()
            checkpoint.step()
    bar.close()
    return {t.name: float(p) for t, p in zip(teachers, choice.probabilities(), strict=True)}


def assistant_shape(args: Args, teacher: Teacher) -> str:
    half_way = (student_shape(args.student)[0] + teacher.model.config.num_hidden_layers) // 2
    return args.assistant or f"{half_way}x{teacher.model.config.hidden_size}"


def with_assistant(args: Args, cell: Run, teacher: Teacher, encoded: data.Encoded, ledger: train.Ledger,
                   engine: Accelerator) -> tuple[Teacher, Stage]:  # fmt: skip
    """TAKD's first stage: an assistant, distilled by KD with half the budget; also the stage that is left."""
    shape = assistant_shape(args, teacher)
    steps = None if cell.steps is None else cell.steps // 2
    seconds = None if cell.seconds is None else cell.seconds // 2
    # a checkpoint that was named for the student may be too shallow for the assistant
    model, _ = choose_student(args, "random" if args.init == "random" else "auto", teacher, cell.task, shape)
    distil(args, "takd", cell, model, [teacher], encoded, [], ledger, engine, Stage(steps, seconds, 0, "assistant"))
    model.eval().requires_grad_(False)
    rest = Stage(
        None if cell.steps is None else cell.steps - ledger.steps,
        None if cell.seconds is None else cell.seconds - (seconds or 0),
        ledger.steps,
    )
    return replace(teacher, name=f"assistant {shape}", model=model), rest


# --- the paper's analysis: figures 2 and 4-9 ------------------------------------------------------------------


@parallel.by_main
def track(args: Args, cell: Run, student: PreTrainedModel, teacher: Teacher, encoded: data.Encoded, step: int,
          epoch: int) -> None:  # fmt: skip
    """Figures 4 and 5: RCCC and the score after an epoch, into the log and a plot. Nothing is chosen by them."""
    m = student.config.num_hidden_layers
    rccc = layer_statistics(student, teacher.tokenizer, encoded, [(1, m)], args).svcca(1, m)
    scores, _ = train.evaluate(student, teacher.tokenizer, cell.task, args.max_length)
    metric = metrics.primary(cell.task.task)
    cell.log(step=step, epoch=epoch, rccc=rccc, score=sum(s[metric] for s in scores.values()) / len(scores))
    rows = [row for row in cell.read_log() if "epoch" in row]
    epochs = [row["epoch"] for row in rows]
    series: dict[str, plots.Line] = {"RCCC": (epochs, [row["rccc"] for row in rows])}
    right: dict[str, plots.Line] = {metrics.TITLES[metric]: (epochs, [row["score"] for row in rows])}
    title = f"{cell.variant}, {cell.task.name}"
    plots.lines(series, cell.folder / "epochs.png", title, "epoch", "RCCC", right=right)


@parallel.by_main
def analyse(args: Args, name: str, engine: Accelerator) -> None:
    """SVCCA between all layers of a model over training inputs of the task, without their labels (figures 2, 6-9).

    Writes svcca.json, svcca.png and sequence.png: the matrix, and its below-diagonal C_T(l) with the layers that
    a student of `--student`'s depth would be given (figure 7).
    """
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    source = models.source(str(args.analyse))
    if args.analyse in models.POCKET and task.task.kind == "language modelling":  # made on first use, as a teacher
        source, teacher = str(args.analyse), get_teacher(args, str(args.analyse), task, engine.device)
        tokenizer, model = teacher.tokenizer, teacher.model
    else:
        tokenizer = models.load_tokenizer(source)
        model = models.load_model(source, models.load_config(source), task.task.kind).to(engine.device)  # type: ignore[arg-type]
    encoded = data.encode(tokenizer, task.splits["train"], task.task, args.max_length)
    N = model.config.num_hidden_layers
    pairs = [(i, j) for i in range(N + 1) for j in range(i + 1, N + 1)]
    statistics = layer_statistics(model, tokenizer, encoded, pairs, args)
    matrix = [[1.0] * (N + 1) for _ in range(N + 1)]
    for i, j in pairs:
        matrix[i][j] = matrix[j][i] = statistics.svcca(i, j)
    sequence = [matrix[l - 1][l] for l in range(1, N + 1)]
    selected = select_layers(sequence, min(N, student_shape(args.student)[0]))
    label = Path(source).name
    folder = Path(args.out_dir) / "mc3kd" / "analysis" / task.name / label
    record = {
        "model": source,
        "task": task.name,
        "data": f"{task.origin}#{task.fingerprint}",
        "tokens": args.tokens,
        "vectors": statistics.n,
        "svcca": matrix,
        "sequence": sequence,
        "selected": selected,
        "rccc": matrix[1][N],
    }
    results.write_json(folder / "svcca.json", record)
    plots.heatmap(matrix, folder / "svcca.png", f"SVCCA, {label}, {task.name}", "layer")
    series: dict[str, plots.Line] = {"C_T": (range(1, N + 1), sequence)}
    title = f"C_T(l), {label}; dotted: the {len(selected)} selected layers"
    plots.lines(series, folder / "sequence.png", title, "layer l", "SVCCA with layer l - 1", selected)
    print(f"{label} on {task.name}: RCCC {matrix[1][N]:.4f}, C_T(l) {', '.join(f'{c:.3f}' for c in sequence)}")
    print(f"saved: {folder}")


# --- main ----------------------------------------------------------------------------------------------------


def run_variant(args: Args, name: str, task: TaskData, teacher: Teacher, pool: list[Teacher], encoded: data.Encoded,
                engine: Accelerator, sequence: list[float], teacher_analysis: dict[str, Any],
                seconds: float) -> dict[str, Any]:  # fmt: skip
    """One row of the table, from its folder if it was run before."""
    variant = VARIANTS[name]
    student, init = choose_student(args, args.init, teacher, task)
    lr = args.lr or (
        models.RANDOM_LR[task.task.kind] if init == "random" else models.default_lr(student.config.hidden_size)
    )
    beta = variant.beta if args.beta is None else args.beta
    settings = {
        "lr": lr,
        "beta": beta,
        "init": init,
        "assistant": assistant_shape(args, teacher) if name == "takd" else None,
        "pool": [t.signature for t in pool] if name == "dynakd" else None,
    }
    cell = Run(args, "mc3kd", name, task, teacher, PAPER_EPOCHS, settings)
    if (record := cell.finished()) is not None:
        return record
    m = student.config.num_hidden_layers
    layers = partners(name, sequence, m)
    if variant.hidden == "pkd" and student.config.hidden_size != teacher.model.config.hidden_size:
        raise BadInput(
            f"--variant {name}: PKD's MSE needs equal widths, the student has {student.config.hidden_size} and the"
            f" teacher {teacher.model.config.hidden_size}; --student {m}x{teacher.model.config.hidden_size}, or mc3kd"
        )
    ledger, earlier = train.Ledger(), train.Ledger()
    if variant.layers == "selected":  # choosing the layers is part of the method and of its cost
        ledger.seconds += seconds
        ledger.teacher_examples += min(args.selection_examples, len(encoded))
    guides, stage = [teacher, *(pool if name == "dynakd" else [])], Stage(cell.steps, cell.seconds)
    if name == "takd":
        guides[0], stage = with_assistant(args, cell, teacher, encoded, earlier, engine)
        student, _ = choose_student(args, args.init, teacher, task)  # draws its random numbers from the seed again
    shares = distil(args, name, cell, student, guides, encoded, layers, ledger, engine, stage)
    ledger.add(earlier)
    statistics = layer_statistics(student, teacher.tokenizer, encoded, [(1, m)], args)
    analysis: dict[str, Any] = {"rccc": statistics.svcca(1, m), "layers": layers}
    if name in ("takd", "dynakd"):
        analysis["teachers"] = shares
    return cell.finish(student, init, ledger, analysis=analysis, teacher_analysis=teacher_analysis)


def get_pool(args: Args, task: TaskData, teacher: Teacher, engine: Accelerator) -> list[Teacher]:
    """DynaKD's teachers besides `--teacher`; they must read the same tokens."""
    if "dynakd" not in args.variants:
        return []
    shallower = list(models.POCKET)
    names = split_list(args.pool) if args.pool else shallower[: shallower.index(args.teacher)]
    pool = [get_teacher(args, name, task, engine.device) for name in names if name != args.teacher]
    for other in pool:
        if other.tokenizer.get_vocab() != teacher.tokenizer.get_vocab():
            raise BadInput(f"--pool {other.name}: another vocabulary than {teacher.name}'s; teachers must share it")
    if not pool:
        raise BadInput(f"--pool {args.pool}: names no teacher besides {args.teacher}")
    return pool


def run_task(args: Args, name: str, engine: Accelerator) -> None:
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    teacher = get_teacher(args, args.teacher, task, engine.device)
    pool = get_pool(args, task, teacher, engine)
    encoded = data.encode(teacher.tokenizer, task.splits["train"], task.task, args.max_length)
    clock = train.Ledger()
    with clock.clock():
        sequence, rccc = differences(teacher, encoded, args)
    analysis = {"rccc": rccc, "ccc_sequence": sequence}
    rows = [
        run_variant(args, v, task, teacher, pool, encoded, engine, sequence, analysis, clock.seconds)
        for v in args.variants
    ]
    results.show(rows, args.out_dir)


def main(args: Args) -> None:
    engine = train.accelerator(args)
    for name in args.tasks:
        (analyse if args.analyse else run_task)(args, name, engine)


if __name__ == "__main__":
    run(main, ARGS)
