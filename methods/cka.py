"""Improving sequence-level distillation through hidden-state matching with centred kernel alignment (CKA).

    python methods/cka.py                                              # pocket task, a few minutes on a laptop
    python methods/cka.py --variant finetune,kd,woh,lin,cka,wopt       # every column of the paper's tables
    python methods/cka.py --task pocket/translate --student 4x64       # an encoder-decoder; also pocket/xsum
    python methods/cka.py --task wmt16/en-ro --teacher facebook/mbart-large-en-ro --teacher-epochs 0 --student 12x384
    python methods/cka.py --params                                     # the sizes of tables 2, 3 and 6, counted

The paper in ten lines. A student learns more from a teacher if its hidden states are matched as well as its outputs.
A cosine or squared distance needs states of one width, so that students can be shallower but not narrower; a linear
projection between the widths (TinyBERT) hardly helps and hurts where the student is much smaller. CKA compares two
sets of states of any widths by their covariances: CKA = ||S_TS||^2 / (||S_TT|| ||S_SS||) lies in [0, 1] and does not
change when either side is rotated or scaled. Its root stands for the canonical correlation, and 1 - sqrt(CKA), the
mean over matched layers, is added to the KL divergence of the outputs, nothing weighted. A batch is small for a
covariance, so covariances are summed over B minibatches. Students are deep, narrow and start at random: they are
first distilled on unlabelled text from the pre-trained teacher (KL + hidden states), then on the task from the
fine-tuned one. Encoder-decoders (BART, mBART, T5) have the true text's loss besides, and both sides matched.

What the paper has -> code
    eq. 1, covariances of centred states      covariances
    eqs. 2-3, CKA and 1 - sqrt(CKA)           root_cka, cka_loss
    eq. 4, minibatches                        cka_loss (past), cka_gradients, accumulate
    eqs. 5-6, L_CLM and L_Dist                output_loss
    Lin, cosine, squared distance             hidden_loss
    distillation on unlabelled text           pretraining
    matched layers                            layer_map, `--layer-map`
    students of tables 2, 3 and 6             student_config, PUBLISHED, `--params`
    distilBART's start                        copy_layers, `--init copy`
    figures 3a and 4                          validation, draw_curves: beside the results
    table 4, time per sentence                the results' speed; bench/cka_pocket.py

Differences from the paper, and how its gaps are read
    - variants: `finetune` (no teacher) and `kd` (no pre-training, no hidden loss) have no column in its tables for
      BERT; `woh`, `lin`, `cosine`, `mse` and `cka` are pre-trained with that hidden loss, `wopt` is CKA without.
    - GLUE: the paper fine-tunes pre-trained students "without any hidden loss". Here they also learn from the teacher's
      outputs, as the row `kd` does; `--finetuning labels` leaves that out. `wopt` has its hidden loss on the task.
    - pre-training of an encoder-decoder: eq. 5's text is read by the encoder and written by the decoder. A teacher that
      is no pre-trained checkpoint (the pocket suite's; a Marian as it is) teaches this stage as well.
    - states are centred over the valid tokens. The paper holds that LayerNorm has done so: it centres features.
    - eq. 4 is "added to the final batch": by default only that minibatch carries the gradient. `--history exact`
      takes the gradient of the whole, in two passes. A minibatch's other losses count by its share of the tokens.
    - layer i of m is matched with layer ceil(i N / m) of N: every second of 12 for 6, two of three for 8, the last
      always. The loss is the mean over pairs; whether the paper sums is unstated. `--beta` weighs it (paper: 1).
    - AdamW with the decay of all scripts here (0.01) for Adam with 5e-4; linear warm-up and decay, clipped at 1.
    - first weights grow as 1 / sqrt(width): with the teacher's spread narrow students learn much slower.
    - the feed-forward widths of its students are not in the paper; PAPER_FFN holds what its sizes imply.
    - "cosine" of its distilBART rows: DistilBERT's. The script they cite has a squared distance: `mse`. That script
      also freezes the encoder, and learns from texts that the teacher wrote; here neither is done.
    - a T5 student's output layer is its embeddings, also where the teacher's is its own (Flan-T5).
    - 16 x 8 is 128 examples a step, not 256. Epochs on the task are unstated: `--budget paper` takes distilBART's 6.
"""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import stream
from common.args import BadInput, CommonArgs, arg, parse, run, student_shape

Hidden = Literal["none", "lin", "cosine", "mse", "cka"]
PAPER_EPOCHS, PAPER_PRETRAINING_EPOCHS = 6, 30


class Variant(NamedTuple):
    """A row of a table: whether there is a teacher, what matches hidden states, whether unlabelled text comes first."""

    teacher: bool
    hidden: Hidden
    pretraining: bool


VARIANTS = {
    "finetune": Variant(False, "none", False),
    "kd": Variant(True, "none", False),
    "woh": Variant(True, "none", True),
    "lin": Variant(True, "lin", True),
    "cosine": Variant(True, "cosine", True),
    "mse": Variant(True, "mse", True),
    "cka": Variant(True, "cka", True),
    "wopt": Variant(True, "cka", False),
}
SAME_AS = {"woh": "kd", "wopt": "cka"}  # where there is no pre-training at all


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and CKA's."""

    KINDS = ("classification", "regression", "translation", "summarisation")

    variant: str = arg("finetune,kd,cka", f"one or several of {', '.join(VARIANTS)}")
    student: str = arg("2x64", "student's layers x width")
    lr: float | None = arg(None, "peak learning rate on the task (default: 1e-3; of texts 4e-3)")
    init: Literal["random", "copy"] = arg(
        "random", "first weights: random, or layers spread over the teacher's (equal widths), as distilBART's"
    )
    ffn: int | None = arg(None, "the student's feed-forward width (default: the paper's for its sizes, else 4 x width)")
    layer_map: str = arg("uniform", "teacher layers for student layers 1, 2, ...: uniform, or a list as 1,2,4,5")
    beta: float = arg(1.0, "weight of the hidden loss")
    temperature: float = arg(1.0, "softens both sides' logits")
    minibatches: int = arg(1, "B of eq. 4: a batch is processed in so many parts, whose covariances are summed")
    history: Literal["detached", "exact"] = arg(
        "detached", "eq. 4's gradient: through the last part alone, or exact, with a second pass over all"
    )
    pretraining: Literal["auto", "on", "off"] = arg(
        "auto", "distil on unlabelled text first; auto, as in the paper: not for summaries"
    )
    pretraining_share: float = arg(0.25, "pre-training: its share of the budget")
    pretraining_lr: float = arg(1e-3, "pre-training: peak learning rate")
    corpus: str | None = arg(
        None,
        "pre-training: text file, one passage a line, or stream:FILE or stream:hub:NAME, which are read as they are"
        " used (default: pocket documents, or the task's own texts)",
    )
    finetuning: Literal["kd", "labels"] = arg("kd", "after pre-training: the teacher and labels, or labels alone")
    prompt: str = arg("", "put in front of every source text, for T5; the paper's: Translate from English to Spanish:")
    params: bool = arg(False, "print the sizes of tables 2, 3 and 6, counted from models built here; train nothing")

    def check(self) -> None:
        super().check()
        self.check_names("variant", VARIANTS)
        for name in (name for name in SAME_AS if name in self.variants):
            for task in (task for task in self.tasks if not self.pretrains(task)):
                raise BadInput(f"--variant {name}: is {SAME_AS[name]} where nothing is pre-trained, as for {task}")
        for name in ("beta", "pretraining_lr"):
            self.check_value(name, lambda v: 0 < v < math.inf, "be a number above 0")
        self.check_value("temperature", lambda v: 0 < v <= 1000, "be above 0, and at most 1000")
        for name in ("minibatches", "ffn"):
            self.check_value(name, lambda v: v >= 1, "be 1 or more")
        if self.batch_size % self.minibatches:
            raise BadInput(f"--minibatches {self.minibatches}: must divide --batch-size {self.batch_size}")
        self.check_value("pretraining_share", lambda v: 0 < v < 1, "be between 0 and 1, both excluded")
        if self.layer_map != "uniform" and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", self.layer_map):
            raise BadInput(f"--layer-map {self.layer_map}: must be uniform, or teacher layers from 1 on, as 2,4,6")
        if self.prompt and any(self.kind(task) not in self.KINDS[2:] for task in self.tasks):
            raise BadInput(f"--prompt {self.prompt!r}: is for translation and summarisation alone")
        if self.accumulate > 1:
            raise BadInput(f"--accumulate {self.accumulate}: is --minibatches here, which joins CKA's parts by eq. 4")
        stream.check(self.corpus)

    def kind(self, task: str) -> str:
        from common import data

        return data.task_of(task).kind

    def pretrains(self, task: str) -> bool:
        """Whether students of a task start on unlabelled text."""
        return self.pretraining == "on" or (self.pretraining == "auto" and self.kind(task) != "summarisation")


def grid(args: Args, variant: str) -> dict[str, tuple[float, ...]]:
    """Appendix B.3's learning rates, 3e-5 to 1e-4: its ends, and one between; they scale with 768 / width."""
    return {"lr": tuple(lr * 768 / student_shape(args.student)[1] for lr in (3e-5, 5e-5, 1e-4))}


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BertConfig,
    MBartConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from common import cache, data, masked_lm, models, parallel, plots, results, teacher_cache, train
from common.data import TaskData
from common.run import Run, compiled
from common.teacher import Teacher, frozen, get_teacher, large_settings

# Shapes: B batch, L length, n valid tokens, m pairs of layers, D_S and D_T widths of student and teacher, C classes
# or words.


# --- CKA (section 2) -----------------------------------------------------------------------------------------

TINY = 1e-30


class Covariances(NamedTuple):
    """Of m pairs of layers, or sums of such: S_TS (m, D_T, D_S), S_TT (m, D_T, D_T), S_SS (m, D_S, D_S)."""

    TS: Tensor
    TT: Tensor
    SS: Tensor

    def plus(self, other: Covariances | None) -> Covariances:
        return self if other is None else Covariances(*(a + b for a, b in zip(self, other, strict=True)))


def centred(X: Tensor) -> Tensor:
    """(m, n, D) minus its mean over the n tokens, those of all processes, in float32 or better."""
    return parallel.centred(X if X.dtype == torch.float64 else X.float())


def covariances(S: Tensor, T: Tensor) -> Covariances:
    """Eq. 1's matrices of (m, n, D_S) and (m, n, D_T) states: S_TS = T'S / (n - 1), T and S centred.

    Of several processes, each of which has some of the n tokens: the same matrices in all, summed over the processes.
    """
    S, T = centred(S), centred(T)
    n = max(2, parallel.count(S.shape[-2]))
    return Covariances(*(parallel.total(A.mT @ B) / (n - 1) for A, B in ((T, S), (T, T), (S, S))))


def root_cka(sums: Covariances) -> Tensor:
    """Eqs. 2 and 4: sqrt(CKA) = ||S_TS|| / sqrt(||S_TT|| ||S_SS||), (m,); 0 for states that do not vary."""
    TS, TT, SS = (torch.linalg.matrix_norm(x) for x in sums)
    return TS / (TT * SS).clamp(min=TINY).sqrt()


def root_cka_of_grams(S: Tensor, T: Tensor) -> Tensor:
    """The same from the n x n side: ||T'S||^2 = <SS', TT'>, ||S'S|| = ||SS'||."""
    S, T = centred(S), centred(T)
    K, L = S @ S.mT, T @ T.mT
    cross = (K * L).sum((-2, -1)).clamp(min=TINY).sqrt()
    scale = (torch.linalg.matrix_norm(K) * torch.linalg.matrix_norm(L)).clamp(min=TINY).sqrt()
    return torch.where(scale > math.sqrt(TINY), cross / scale, 0.0)


def cka_loss(S: Tensor, T: Tensor, past: Covariances | None = None) -> Tensor:
    """Eq. 3, L_H = 1 - sqrt(CKA) of (m, n, D_S) and (m, n, D_T) states: (m,), each in [0, 1].

    With `past`, the summed covariances of earlier minibatches, eq. 4; gradient reaches these states alone. Without,
    on the cheaper side: a Gram matrix takes n^2 D operations, a covariance n D^2 (and can be summed over processes).
    """
    with torch.autocast(S.device.type, enabled=False):
        n, D_S, D_T = *S.shape[-2:], T.shape[-1]
        if past is None and parallel.processes() == 1 and n * (D_S + D_T) < D_S**2 + D_T**2 + D_S * D_T:
            return 1 - root_cka_of_grams(S, T)
        return 1 - root_cka(covariances(S, T).plus(past))


def cka_gradients(sums: Covariances) -> tuple[Tensor, Tensor]:
    """dL_H / dS_TS and dL_H / dS_SS at summed covariances, (m, D_T, D_S) and (m, D_S, D_S).

    With rho = sqrt(CKA): dL/dS_TS = -rho S_TS / ||S_TS||^2, dL/dS_SS = (rho / 2) S_SS / ||S_SS||^2.
    """
    rho = root_cka(sums)[:, None, None]
    TS, SS = (torch.linalg.matrix_norm(x, keepdim=True).square().clamp(min=TINY) for x in (sums.TS, sums.SS))
    return -rho * sums.TS / TS, rho / 2 * sums.SS / SS


def cka_surrogate(S: Tensor, T: Tensor, gradients: tuple[Tensor, Tensor]) -> Tensor:
    """<G_TS, S_TS_b> + <G_SS, S_SS_b> of one minibatch, (m,): summed over minibatches, its gradient is eq. 4's."""
    with torch.autocast(S.device.type, enabled=False):
        own = covariances(S, T)
        G_TS, G_SS = gradients
        return (G_TS * own.TS).sum((-2, -1)) + (G_SS * own.SS).sum((-2, -1))


# --- the other losses ----------------------------------------------------------------------------------------


def hidden_loss(kind: Hidden, S: Tensor, T: Tensor, projections: Iterable[nn.Module]) -> Tensor:
    """The baselines, (m,), means over the n tokens: Lin ||S W + b - T||^2 / D_T (one W per pair), MSE, 1 - cosine."""
    if kind == "lin":
        S = torch.stack([project(s) for project, s in zip(projections, S, strict=True)])
    if kind == "cosine":
        return (1 - F.cosine_similarity(S, T, dim=-1)).mean(-1)
    return (S - T).square().mean((-2, -1))


def kd_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) over (r, C) logits, mean over the r rows ('batchmean')."""
    s = F.log_softmax(student / temperature, dim=-1)
    t = F.log_softmax(teacher / temperature, dim=-1)
    return temperature**2 * F.kl_div(s, t, log_target=True, reduction="batchmean")


def predictions(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One row per prediction: (B, C) logits and (B,) labels as they are; of (B, L, C), the rows with a label >= 0."""
    if labels.ndim == 1:
        return logits, labels
    return logits[labels >= 0], labels[labels >= 0]


def row_count(batch: dict[str, Tensor]) -> int:
    labels = batch["labels"]
    return len(labels) if labels.ndim == 1 else int((labels >= 0).sum())


# --- what a stage minimises ----------------------------------------------------------------------------------


def layer_map(N: int, m: int, given: str = "uniform") -> list[int]:
    """The teacher layers of 1..N that guide student layers 1..m: ceil(i N / m), the last included; or those given."""
    if m > N:
        raise BadInput(f"--student: {m} layers need as many teacher layers, the teacher has {N}")
    if given == "uniform":
        return [-(-i * N // m) for i in range(1, m + 1)]
    layers = [int(layer) for layer in given.split(",")]
    if len(layers) != m or max(layers) > N:
        raise BadInput(f"--layer-map {given}: must name {m} of the teacher's {N} layers, one for each of the student's")
    return layers


@dataclass
class Objective:
    """The losses of a stage. `layers`: for the encoder (and the decoder), the partners of student layers 1, 2, ..."""

    hidden: Hidden
    labels: bool  # the loss of the true labels counts
    teacher: bool  # the KL divergence counts
    layers: list[list[int]]
    projections: nn.ModuleList  # of Lin: for each stack a list


def matched_layers(args: Args, hidden: Hidden, student: PreTrainedConfig, teacher: PreTrainedConfig) -> list[list[int]]:
    """The partners of every stack's layers, after a check that the hidden loss can compare the two widths."""
    D_S, D_T = student.hidden_size, teacher.hidden_size
    if hidden in ("cosine", "mse") and D_S != D_T:
        raise BadInput(
            f"--variant {hidden}: compares states of one width, the student has {D_S} and the teacher {D_T};"
            f" --student {args.student.split('x')[0]}x{D_T}, or --variant lin or cka"
        )
    depths = zip(models.stack_depths(teacher), models.stack_depths(student), strict=True)
    return [layer_map(N, m, args.layer_map) for N, m in depths] if hidden != "none" else []


def make_objective(args: Args, hidden: Hidden, labels: bool, guided: bool, student: PreTrainedModel,
                   teacher: PreTrainedModel) -> Objective:  # fmt: skip
    """The losses of a stage; Lin's projections start at random."""
    D_S, D_T = student.config.hidden_size, teacher.config.hidden_size
    layers = matched_layers(args, hidden, student.config, teacher.config)
    lin = nn.ModuleList()
    if hidden == "lin":
        lin.extend(nn.ModuleList(nn.Linear(D_S, D_T) for _ in stack) for stack in layers)
    return Objective(hidden, labels, guided, layers, lin)


def outputs(objective: Objective, student: Any, teacher: Any, batch: dict[str, Tensor]) -> tuple[Any, Any]:
    """Both models' outputs on a batch; the teacher's without gradient, None if it does not count."""
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    if student.config.is_encoder_decoder:  # the family's own way to shift, the same for both
        inputs["decoder_input_ids"] = student.prepare_decoder_input_ids_from_labels(batch["labels"])
    matched = objective.hidden != "none"
    with torch.no_grad():
        t = teacher(**inputs, output_hidden_states=matched) if objective.teacher else None
    return student(**inputs, output_hidden_states=matched), t


def output_loss(args: Args, objective: Objective, student: Any, teacher: Any, batch: dict[str, Tensor]) -> Tensor:
    """L_CLM (eqs. 5-6; of a class, its cross-entropy) + L_Dist, unweighted means over the rows.

    A regression, whose labels are no integers, has squared errors for both.
    """
    logits, labels = predictions(student.logits, batch["labels"])
    regression = labels.is_floating_point()
    loss = logits.sum() * 0.0
    if objective.labels:
        loss = loss + (F.mse_loss(logits[:, 0], labels) if regression else F.cross_entropy(logits, labels))
    if objective.teacher:
        soft, _ = predictions(teacher.logits, batch["labels"])
        loss = loss + (F.mse_loss(logits, soft) if regression else kd_loss(logits, soft, args.temperature))
    return loss


def valid(objective: Objective, batch: dict[str, Tensor]) -> list[Tensor]:
    """For each matched stack, which of its tokens are no padding: (B, L) of the encoder, (B, M) of the decoder."""
    return [batch["attention_mask"].bool(), batch["labels"] >= 0][: len(objective.layers)]


def states(objective: Objective, student: Any, teacher: Any, batch: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """For each matched stack, its hidden states without padding: (m, n, D_S) and (m, n, D_T)."""
    names = ("encoder_hidden_states", "decoder_hidden_states") if len(objective.layers) == 2 else ("hidden_states",)
    found = []
    for name, layers, mask in zip(names, objective.layers, valid(objective, batch), strict=False):
        # index 0 holds the embeddings
        S = torch.stack([student[name][i][mask] for i in range(1, len(layers) + 1)])
        T = torch.stack([teacher[name][l][mask] for l in layers])
        found.append((S, T))
    return found


def accumulate(args: Args, objective: Objective, student: Any, teacher: Any, batch: dict[str, Tensor],
               engine: Accelerator) -> Tensor:  # fmt: skip
    """The gradient of a whole batch, processed in `--minibatches` parts; returns the loss.

    But for CKA the result does not depend on their number: a part counts by its share of the rows and of the tokens.
    """
    split = [value.chunk(args.minibatches) for value in batch.values()]
    parts = [parallel.own(dict(zip(batch, values, strict=True))) for values in zip(*split, strict=True)]
    rows = [row_count(part) / row_count(batch) for part in parts]
    total = [mask.sum() for mask in valid(objective, batch)]
    past: list[Covariances | None] = [None for _ in objective.layers]
    exact = objective.hidden == "cka" and args.history == "exact" and len(parts) > 1
    value = torch.zeros((), device=engine.device)
    gradients: list[tuple[Tensor, Tensor]] = []
    if exact:
        # pass 1: the summed covariances. What dropout draws here it draws again in pass 2.
        with torch.no_grad(), torch.random.fork_rng(), engine.autocast():
            for part in parts:
                found = states(objective, *outputs(objective, student, teacher, part), part)
                past = [covariances(*own).plus(sums) for own, sums in zip(found, past, strict=True)]
        whole = [sums for sums in past if sums is not None]
        gradients = [cka_gradients(sums) for sums in whole]
        value += args.beta * torch.stack([(1 - root_cka(sums)).mean() for sums in whole]).mean()
    for b, part in enumerate(parts):
        hidden: list[Tensor] = []  # of each stack, (m,)
        surrogate: list[Tensor] = []
        with engine.autocast():
            s, t = outputs(objective, student, teacher, part)
            loss = parallel.total(rows[b] * output_loss(args, objective, s, t, part))
            found = states(objective, s, t, part)
            if exact:  # pass 2
                surrogate = [cka_surrogate(*own, G) for own, G in zip(found, gradients, strict=True)]
            elif objective.hidden == "cka" and b < len(parts) - 1:
                with torch.no_grad():
                    past = [covariances(*own).plus(sums) for own, sums in zip(found, past, strict=True)]
            elif objective.hidden == "cka":  # eq. 4, "added to the final batch"
                hidden = [cka_loss(*own, sums) for own, sums in zip(found, past, strict=True)]
            else:
                for k, (S, T) in enumerate(found):
                    projections = objective.projections[k].children() if objective.hidden == "lin" else ()
                    terms = S.shape[1] / total[k] * hidden_loss(objective.hidden, S, T, projections)
                    hidden.append(parallel.total(terms))
        if hidden:
            loss = loss + args.beta * torch.stack([terms.mean() for terms in hidden]).mean()
        value += loss.detach()
        if surrogate:  # its value says nothing, its gradient everything
            loss = loss + args.beta * torch.stack([terms.mean() for terms in surrogate]).mean()
        engine.backward(loss)
    return value


# --- the training loop, for both stages ----------------------------------------------------------------------

POINTS = 10  # of a validation curve


class Curve(nn.Module):
    """The validation loss after each of POINTS equal shares of a stage; a module, so that checkpoints hold it."""

    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((POINTS,), float("nan"), dtype=torch.float32))

    def found(self) -> list[float]:
        return [round(value, 6) for value in self.values.tolist() if not math.isnan(value)]

    def due(self, schedule: train.Schedule) -> bool:
        ledger = schedule.ledger
        spent = ledger.steps if schedule.steps else parallel.on_main(lambda: ledger.seconds)
        passed = spent / (schedule.steps or schedule.seconds or 1)
        taken = len(self.found())
        return taken < POINTS and passed >= (taken + 1) / POINTS


@parallel.by_main
@torch.no_grad()
def validation(args: Args, objective: Objective, student: nn.Module, teacher: nn.Module,
               batches: list[dict[str, Tensor]], device: torch.device) -> float:  # fmt: skip
    """Figures 3a and 4: the losses on the outputs (KL; with labels, CLM + KL), mean over the rows of held-out data."""
    was_training = student.training
    student.eval()
    total, count = 0.0, 0
    for batch in batches:
        inputs = {k: v.to(device) for k, v in batch.items()}
        loss = output_loss(args, objective, *outputs(objective, student, teacher, inputs), inputs)
        total += float(loss) * row_count(batch)
        count += row_count(batch)
    student.train(was_training)
    return total / count


@dataclass
class Stage:
    """A share of the budget on one kind of data. `batch(step)` makes a batch, `ids(step)` names its examples."""

    name: str
    folder: Path  # of its checkpoint
    signature: str  # what a checkpoint must agree on
    steps: int | None
    seconds: float | None
    lr: float
    batch: Callable[[int], dict[str, Tensor]]
    ids: Callable[[int], list[str]]
    held_out: list[dict[str, Tensor]]
    cell: Run | None = None  # where its loss is logged
    guide: teacher_cache.Guide | None = None  # the teacher, if its outputs are kept


def distil(args: Args, stage: Stage, objective: Objective, student: PreTrainedModel, teacher: PreTrainedModel,
           ledger: train.Ledger, engine: Accelerator, resume: bool) -> list[float]:  # fmt: skip
    """Train the student (and Lin's projections) over a stage; returns its validation curve. `ledger` is its alone."""
    student.to(engine.device).train()  # type: ignore[arg-type]
    objective.projections.to(engine.device)
    weights = [*student.parameters(), *objective.projections.parameters()]
    optimizer = train.adamw(student, stage.lr, [*objective.projections.parameters()])
    schedule = train.Schedule(optimizer, ledger, stage.steps, stage.seconds, args=args if stage.cell else None)
    curve = Curve()
    modules = {"student": student, "projections": objective.projections, "curve": curve}
    checkpoint = train.Checkpoint(stage.folder, modules, schedule, stage.signature, args.save_every, engine.scaler)
    if resume and checkpoint.load(again=stage.cell is None):
        print(f"{stage.name}: continued at step {ledger.steps}")
    if stage.cell is not None:
        stage.cell.start(ledger.steps)
    model, guide = compiled(student, args), stage.guide or teacher_cache.Guide(compiled(teacher, args))
    bar = train.progress(stage.steps or 0, f"{stage.name} seed {args.seed}", ledger.steps)
    with checkpoint:
        while schedule.running():
            with ledger.clock():
                batch = stage.batch(ledger.steps)
                inputs = {k: v.to(engine.device) for k, v in batch.items()}
                with parallel.randomness(ledger.steps):
                    teach = guide.on(parallel.own(stage.ids(ledger.steps)))
                    loss = accumulate(args, objective, model, teach, inputs, engine)
                checkpoint.watch(loss, ledger.steps, stage.ids)
                train.update(engine, optimizer, weights)
                ledger.count(batch, teachers=guide.charge if objective.teacher else 0)
                schedule.step()
            if stage.cell is not None and ledger.steps % 20 == 0:
                stage.cell.log(step=ledger.steps, loss=round(loss.item(), 6))
            if stage.held_out and curve.due(schedule):
                point = validation(args, objective, student, teacher, stage.held_out, engine.device)
                curve.values[len(curve.found())] = point
            bar.update()
            checkpoint.step()
    bar.close()
    return curve.found()


# --- the student ---------------------------------------------------------------------------------------------

# The feed-forward widths that the paper's sizes imply, where they are not in the teacher's ratio.
PAPER_FFN = {
    ("bart", "6x640"): 4096,
    ("bart", "6x768"): 4096,
    ("bart", "12x768"): 3072,
    ("bart", "24x768"): 3072,
    ("bert", "8x512"): 3072,
    ("bert", "12x512"): 3072,
}
# distilBART's choice of 12 decoder layers, 0-based; of another number they are spread evenly, both ends included
COPIED = {1: [0], 2: [0, 6], 3: [0, 6, 11], 4: [0, 4, 8, 11], 6: [0, 2, 4, 7, 9, 11], 9: [0, 1, 2, 4, 5, 7, 9, 10, 11]}
LAYER = re.compile(r"(.*?\.(?:layers?|block)\.)(\d+)(\..*)")  # prefix, number and rest of the name of a layer's weight


def student_config(args: Args, teacher: PreTrainedConfig, shape: str, **changes: Any) -> PreTrainedConfig:
    """The teacher's configuration at LxD (encoder-decoders: L / 2 layers each), with the paper's feed-forward width.

    First weights are as much larger as narrower layers want them: their spread goes with 1 / sqrt(D).
    """
    layers, width = student_shape(shape)
    for name in ("initializer_range", "init_std"):
        if hasattr(teacher, name):
            changes[name] = getattr(teacher, name) * math.sqrt(teacher.hidden_size / width)
    ffn = args.ffn or PAPER_FFN.get((teacher.model_type, shape))
    return models.student_config(teacher, layers, width, ffn=ffn, **changes)


def copied_layers(N: int, m: int) -> list[int]:
    """The layers, 0-based, that a student of m layers copies from N."""
    if N == 12 and m in COPIED:
        return COPIED[m]
    return [round(i * (N - 1) / max(1, m - 1)) for i in range(m)]


def layer_counts(names: Iterable[str]) -> dict[str, int]:
    """Prefix of a stack's weights -> its number of layers."""
    counts: dict[str, int] = {}
    for match in filter(None, map(LAYER.fullmatch, names)):
        counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
    return counts


@torch.no_grad()
def copy_layers(student: PreTrainedModel, teacher: PreTrainedModel) -> None:
    """distilBART's start: layers spread over the teacher's, and all its other weights. Raises `BadInput` at widths."""
    own, theirs = student.state_dict(), teacher.state_dict()
    N, m = layer_counts(theirs), layer_counts(own)
    for name, weight in own.items():
        source = name
        if match := LAYER.fullmatch(name):
            source = f"{match[1]}{copied_layers(N[match[1]], m[match[1]])[int(match[2])]}{match[3]}"
        if source in theirs:
            if weight.shape != theirs[source].shape:
                raise BadInput("--init copy: needs a student as wide as its teacher, in its feed-forward layers too")
            weight.copy_(theirs[source])


# --- pre-training distillation -------------------------------------------------------------------------------

HELD_OUT = 256  # passages, or examples, of a validation curve


COPY = data.Task("copy", "summarisation", ("text",), (), ())  # a passage that is to be written again


def copies(texts: list[str]) -> data.Split:
    """Unlabelled texts as a split, each its own answer."""
    return replace(masked_lm.passages(texts), labels=list(texts))


class Pretrained(NamedTuple):
    """A pre-trained student, what it is called, what it has cost, and its validation curve."""

    model: PreTrainedModel
    name: str
    ledger: train.Ledger
    curve: list[float]


def pretraining(args: Args, hidden: Hidden, cell: Run, teacher: Teacher, engine: Accelerator) -> Pretrained:
    """A student distilled on unlabelled text from the teacher's pre-trained checkpoint.

    Made on first use and kept under `OUT/cache/pretraining/` for all tasks with the same text and budget; each result
    is charged in full. Its share of a budget is `--pretraining-share`; with `--budget paper` it has the paper's epochs.
    """
    written = cell.task.task.kind in data.GENERATED
    # a teacher that has no other checkpoint than the one of the task teaches from that
    source = teacher.pretrained or (teacher.signature if written else teacher.name)
    steps = None if cell.steps is None else max(1, round(args.pretraining_share * cell.steps))
    documents = masked_lm.DOCUMENTS if steps is None else min(masked_lm.DOCUMENTS, steps * args.batch_size + HELD_OUT)
    flow = stream.of(args.corpus, cell.kind)
    texts = flow.head() if flow else masked_lm.corpus(args.corpus, cell.task, documents)
    if cell.kind == "paper":
        steps = max(1, PAPER_PRETRAINING_EPOCHS * len(texts) // args.batch_size)
    seconds = None if cell.seconds is None else args.pretraining_share * cell.seconds
    recipe = {
        "teacher": f"{Path(source).name}@{models.file_digest(Path(source))}" if Path(source).is_dir() else source,
        "texts": flow.signature() if flow else cache.key({"texts": texts}),
        "hidden": hidden,
        "steps": steps,
        "seconds": seconds,
        "lr": args.pretraining_lr,
    }
    names = ("student", "init", "ffn", "layer_map", "beta", "temperature", "minibatches", "history", "batch_size")
    recipe |= {name: getattr(args, name) for name in (*names, "max_length", "precision", "seed")} | large_settings(args)
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / "pretraining" / cache.key(recipe)

    family = AutoModelForSeq2SeqLM if written else AutoModelForMaskedLM

    def make(partial: Path) -> dict[str, Any]:
        ledger = train.Ledger()
        guide, whole = teacher.model, True
        if not written:
            guide, whole = masked_lm.load(source)
        elif teacher.pretrained:
            guide = models.load_model(source, models.load_config(source), cell.task.task.kind, head=True)
        train.seed_everything(args.seed)
        student = family.from_config(student_config(args, guide.config, args.student))
        if args.init == "copy":
            copy_layers(student, guide)
        objective = make_objective(args, hidden, written, True, student, guide)
        guide.to(engine.device).eval()  # type: ignore[arg-type]
        as_split = copies if written else masked_lm.passages

        def encode(part: list[str]) -> data.Encoded:
            kind = COPY if written else masked_lm.TEXT
            return data.encode(teacher.tokenizer, as_split(part), kind, args.max_length)

        held = min(HELD_OUT, max(1, len(texts) // 10))
        training, other = encode(texts[:-held]), encode(texts[-held:])
        if not whole:
            with ledger.clock():
                masked_lm.train_head(guide, teacher.tokenizer, training, ledger)
        guide = frozen(guide, engine.device, args.teacher_precision)
        weights = None if written else masked_lm.token_weights(training, teacher.tokenizer, smoothing=0.0)

        def masked(batch: dict[str, Tensor]) -> dict[str, Tensor]:
            """BERT's masking, with KL at every token; an encoder-decoder reads what it has to write (eq. 5)."""
            if weights is None:
                return batch
            masked_lm.mask_tokens(batch["input_ids"], batch["attention_mask"], weights, teacher.tokenizer)
            return batch | {"labels": torch.where(batch["attention_mask"] > 0, batch["input_ids"], -100)}

        with torch.random.fork_rng():
            torch.manual_seed(0)
            held_out = [masked(batch) for _, batch in data.eval_batches(other, teacher.tokenizer, args.batch_size)]
        batches: Any = data.Batches(training, teacher.tokenizer, args.batch_size, args.seed)
        if flow:
            batches = stream.Batches(lambda: flow.drawn(args.seed), teacher.tokenizer, encode, args.batch_size)
        stage = Stage(
            f"pre-training {hidden}", folder.with_suffix(".training"), cache.key(recipe), steps, seconds,
            args.pretraining_lr, lambda step: masked(batches[step]), batches.ids, held_out,
        )  # fmt: skip
        train.seed_everything(args.seed)
        own = train.Ledger()
        curve = distil(args, stage, objective, student, guide, own, engine, resume=True)
        ledger.add(own)
        models.save(student, teacher.tokenizer, partial, "# A pre-trained student, made as `pretraining.json` says\n")
        return {"recipe": recipe, "ledger": asdict(ledger), "curve": curve}

    note = cache.fetch(folder, "pretraining.json", "pre-trained student", make)
    model = family.from_pretrained(folder, use_safetensors=True, dtype=torch.float32)
    return Pretrained(model, f"pre-training #{folder.name}", train.Ledger.of(note), note["curve"])


# --- tables 2, 3 and 6: numbers of parameters ----------------------------------------------------------------

# Table, family, layers x width, millions as printed. Encoder-decoders: the sum of both sides' layers.
PUBLISHED = """
2  bart   6x640  80
2  bart   6x768  100
2  bart  12x768  140
2  bart  24x768  239
3  mbart 24x1024 610
3  mbart 12x384  122
3  mbart 12x512  173
3  mbart 24x512  217
3  mbart 24x640  300
3  mbart  2x1024 287
3  mbart  4x1024 319
6  bert  12x768  110
6  bert   6x384  22.0
6  bert  12x384  33.0
6  bert   8x512  49.8
6  bert  12x512  66.5
6  bert   6x768  66.9
"""
TEACHERS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "bert": (BertConfig, {}),
    "bart": (BartConfig, {}),
    "mbart": (MBartConfig, {"vocab_size": 250027}),
}


def count_parameters(args: Args, family: str, shape: str) -> int:
    """Parameters of a student, counted from a model that is built without memory; of a BERT with its pooler."""
    make, settings = TEACHERS[family]
    config = student_config(args, make(**settings), shape)
    with torch.device("meta"):
        return models.parameters((AutoModel if family == "bert" else AutoModelForSeq2SeqLM).from_config(config))


def published_sizes() -> list[tuple[str, str, str, str, float, str]]:
    """Every size of tables 2, 3 and 6: (table, row, column, millions as printed, millions counted, remark)."""
    cells = []
    for line in PUBLISHED.strip().splitlines():
        table, family, shape, printed = line.split()
        found = count_parameters(Args(), family, shape) / 1e6
        agrees = abs(found - float(printed)) < 1
        unlike = (family, shape) == ("mbart", "4x1024")  # no split of its layers gives what is printed
        remark = "ok" if agrees != unlike and agrees else "differs" if unlike and not agrees else "MISMATCH"
        cells.append((f"{table}-sizes", f"{family} {shape}", "P(M)", printed, found, remark))
    return cells


def print_parameters(args: Args) -> int:
    """Print each model of the tables beside its count; returns how many differ by a million, the paper's rounding."""
    cells = published_sizes()
    mismatches = sum(remark == "MISMATCH" for *_, remark in cells)
    rows = [[row, table[0], f"{found:.3f}M", f"{printed}M", remark] for table, row, _, printed, found, remark in cells]
    print(results.columns(rows, ["", "table", "counted here", "published", ""]))
    print(
        f"\n{len(rows)} models, {mismatches} mismatches."
        "\nNo split of distil-mBART's 4 layers gives 319M: 2 + 2 have 316.9M, 1 + 3 have 321.1M."
        f"\nTable 2 gives BART-large 440M; it has {count_parameters(args, 'bart', '24x1024'):,}."
    )
    return mismatches


# --- main ----------------------------------------------------------------------------------------------------


def run_variant(args: Args, name: str, task: TaskData, teacher: Teacher, encoded: data.Encoded,
                engine: Accelerator) -> dict[str, Any]:  # fmt: skip
    """One row of the table, from its folder if it was run before."""
    variant = VARIANTS[name]
    pretrained = variant.pretraining and args.pretrains(task.name)
    written = task.task.kind in data.GENERATED
    lr = args.lr or models.RANDOM_LR[task.task.kind]
    cell = Run(args, "cka", name, task, teacher, PAPER_EPOCHS, {"lr": lr})
    if (record := cell.finished()) is not None:
        return record
    if pretrained and cell.steps == 1:
        raise BadInput(f"--budget {args.budget}: pays for one step; pre-training and what follows need two")
    config = student_config(args, teacher.model.config, args.student, **models.task_settings(task.task))
    matched_layers(args, variant.hidden, config, teacher.model.config)  # before anything is trained
    train.seed_everything(args.seed)
    student = models.build_student(config, task.task.kind, None)
    if args.init == "copy":
        copy_layers(student, teacher.model)
    if written:
        student.generation_config = copy.deepcopy(teacher.model.generation_config)
    # the paper's BERT students are fine-tuned without a hidden loss
    hidden = "none" if pretrained and not written else variant.hidden
    guided = variant.teacher and not (pretrained and args.finetuning == "labels")
    objective = make_objective(args, hidden, True, guided, student, teacher.model)
    earlier, start, curve = train.Ledger(), str(args.init), list[float]()
    if pretrained:
        made = pretraining(args, variant.hidden, cell, teacher, engine)
        student.load_state_dict(made.model.state_dict(), strict=False)  # all but the pooler and the classifier
        start, earlier, curve = made.name, made.ledger, made.curve
    steps = cell.steps if cell.steps is None or cell.kind == "paper" else cell.steps - earlier.steps
    seconds = None if cell.seconds is None else cell.seconds - earlier.seconds
    if seconds is not None and seconds <= 0:
        raise BadInput(f"--budget {args.budget}: pre-training took {earlier.seconds:.1f} s; give more")
    batches = cell.batches(encoded, engine.device)
    other = next(split for split in task.splits if split != "train")
    seen = data.encode(teacher.tokenizer, data.head(task.splits[other], HELD_OUT), task.task, args.max_length)
    held_out = [batch for _, batch in data.eval_batches(seen, teacher.tokenizer, args.batch_size)]
    ledger, guide = train.Ledger(), None
    if guided and args.minibatches == 1:
        layers = tuple(sorted({l for stack in objective.layers for l in stack}))
        guide = teacher_cache.guide(args, cell, teacher, encoded, steps, ledger, engine, layers)
    stage = Stage(
        name, cell.folder, cell.identity, steps, seconds, lr, batches.__getitem__, batches.ids, held_out, cell, guide
    )  # fmt: skip
    train.seed_everything(args.seed)
    on_task = distil(args, stage, objective, student, teacher.model, ledger, engine, args.resume)
    ledger.add(earlier)
    analysis = {"teacher": objective.teacher, "validation": {"pretraining": curve, "task": on_task}}
    return cell.finish(student, start, ledger, analysis=analysis)


@parallel.by_main
def draw_curves(args: Args, task: TaskData, rows: list[dict[str, Any]]) -> None:
    """Figures 3a and 4: the validation loss of all rows that have a teacher, in pre-training and on the task."""
    for stage in ("pretraining", "task"):
        found = {row["variant"]: row["analysis"]["validation"][stage] for row in rows if row["analysis"]["teacher"]}
        if curves := {name: values for name, values in found.items() if values}:
            path = results.folder_of(args.out_dir, "cka", task.name, "curves", args.seed) / f"{stage}.json"
            results.write_json(path, curves)
            series: dict[str, plots.Line] = {
                name: ([100 * (i + 1) / POINTS for i in range(len(values))], values) for name, values in curves.items()
            }
            losses = "labels + KL" if stage == "task" or task.task.kind in data.GENERATED else "KL"
            title, image = f"{stage}, {task.name}", path.with_suffix(".png")
            plots.lines(series, image, title, "% of the stage", f"validation {losses}")
            print(f"saved: {path}")


def run_task(args: Args, name: str, engine: Accelerator) -> None:
    task = data.prompted(data.load(name, args.data_dir, limit=args.limit, tune=args.tune), args.prompt)
    teacher = get_teacher(args, args.teacher, task, engine.device)
    encoded = data.encode(teacher.tokenizer, task.splits["train"], task.task, args.max_length)
    rows = [run_variant(args, v, task, teacher, encoded, engine) for v in args.variants]
    results.show(rows, args.out_dir)
    draw_curves(args, task, rows)


def main(args: Args) -> None:
    if args.params:
        if print_parameters(args):
            raise SystemExit(1)
        return
    engine = train.accelerator(args)
    for name in args.tasks:
        run_task(args, name, engine)


if __name__ == "__main__":
    run(main, ARGS)
