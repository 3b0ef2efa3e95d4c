# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "torch==2.13.0", "transformers==5.23.0", "tokenizers==0.23.3", "datasets==5.2.0",
#     "accelerate==1.15.0", "safetensors==0.8.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1",
#     "rouge-score==0.1.2", "sacrebleu==2.6.0", "seqeval==1.2.2", "sentencepiece==0.2.3",
#     "filelock==4.2.11", "matplotlib==3.11.2", "psutil==7.2.2", "tqdm==4.70.1",
# ]
# ///
"""CKA: improving (sequence-level) language model distillation through hidden-state matching.
Dasgupta and Cohn, ICLR 2025: https://openreview.net/forum?id=IcVSKhVpKu

    python methods/cka.py                                              # undistilled, KD, CKA on the task; a minute
    python methods/cka.py --variant finetune,kd,woh,lin,cka,wopt       # every column of the paper's tables
    python methods/cka.py --task pocket/translate --student 4x64       # 2 layers on each side; also pocket/xsum
    python methods/cka.py --variant kd,cka --task wmt16/en-ro --teacher facebook/mbart-large-en-ro --teacher-epochs 0

The paper in ten lines. A student learns more from a teacher if its hidden states are matched as well as its outputs.
A cosine or squared distance needs states of one width, so that students can be shallower but not narrower; a linear
projection between the widths (TinyBERT) hardly helps and hurts where the student is much smaller. CKA compares two
sets of states of any widths by their covariances: CKA = ||S_TS||^2 / (||S_TT|| ||S_SS||) lies in [0, 1] and does not
change when either side is rotated or scaled. Its root stands for the canonical correlation, and 1 - sqrt(CKA), the
mean over matched layers, is added to the KL divergence of the outputs, without weights. A batch is small for a
covariance, so covariances are summed over B minibatches. Students are deep, narrow and start at random: they are
first distilled on unlabelled text from the pre-trained teacher (KL + hidden states), then on the task from the
fine-tuned one. Encoder-decoders (BART, mBART, T5) also learn the true text, and both of their sides are matched.

What the paper has -> code
    S_TS, S_TT, S_SS of section 2 and eq. 1   covariances
    eqs. 2-3, CKA and 1 - sqrt(CKA)           cka_loss
    eq. 4, sums over minibatches              MinibatchCKA; `--minibatches`, `--history`
    eqs. 5-6, L_CLM; section 2.1, L_Dist      Objective.output_losses; with L_H: Objective.forward
    Lin, cosine, squared distance             hidden_loss
    distillation on unlabelled text           pretrain
    matched layers                            layer_map, `--layer-map`
    students of tables 2, 3, 5 and 6          student_settings
    distilBART's start, T5's warm start       `--init teacher --keep spread`; `--init FOLDER`, of a pre-trained student
    figures 2-4                               watch; python -m bench figures cka and cka-size
docs/cka.md lists what differs from the paper, and how its gaps are read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import CORPUS, BadInput, CommonArgs, arg, execute, parse, student_shape, variants

# Shapes: n tokens that are not padding, m pairs of layers, D_S and D_T student and teacher widths, C classes or words.
# torch is imported below the arguments, so that a wrong one is answered at once.


# --- the hidden losses (section 2) ---------------------------------------------------------------------------


class Covariances(NamedTuple):
    """S_TS (m, D_T, D_S), S_TT (m, D_T, D_T) and S_SS (m, D_S, D_S) of m pairs of layers. By default the empty sum."""

    TS: Any = 0.0
    TT: Any = 0.0
    SS: Any = 0.0

    def plus(self, other: Covariances) -> Covariances:
        return Covariances(*(a + b for a, b in zip(self, other, strict=True)))


def covariances(S: Tensor, T: Tensor) -> Covariances:
    """Section 2's S_TS, S_TT and S_SS of (n, D_S) and (n, D_T) states, centred over the tokens; of one token all 0."""
    n = max(2, S.shape[-2])
    with torch.autocast(S.device.type, enabled=False):
        S, T = centred(S), centred(T)
        return Covariances(TS=T.mT @ S / (n - 1), TT=T.mT @ T / (n - 1), SS=S.mT @ S / (n - 1))


def centred(X: Tensor) -> Tensor:
    """In float32 or better. The mean needs no gradient: it is multiplied by centred states, which sum to 0."""
    X = X.to(torch.promote_types(X.dtype, torch.float32))
    return X - X.detach().mean(-2, keepdim=True)


def stacked_covariances(pairs: Iterable[tuple[Tensor, Tensor]]) -> Covariances:
    """The covariances of m pairs of layers, one pair at a time."""
    each = [covariances(S, T) for S, T in pairs]
    return Covariances(*(torch.stack(parts) for parts in zip(*each, strict=True)))


def cka_loss(sums: Covariances) -> Tensor:
    """Eqs. 2-4, L_H = 1 - sqrt(CKA) = 1 - ||S_TS|| / sqrt(||S_TT|| ||S_SS||), (m,); 1 for states that do not vary."""
    TS, TT, SS = (torch.linalg.matrix_norm(x) for x in sums)
    return 1 - TS / (TT * SS).clamp(min=1e-30).sqrt()


class MinibatchCKA:
    """Eq. 4: L_H of the covariances that are summed over a batch's minibatches, which `add` takes one by one.

    Detached: the last minibatch's gradient, B times, stands for all; its mean over divisions of a batch is about the
    exact one. Exact, where `total` gives the sums over all minibatches: each one has its own part of the gradient.
    """

    def __init__(self, total: Covariances | None = None) -> None:
        self.total, self.sums = total, Covariances()

    def add(self, part: Covariances, batch: Batch) -> Tensor:
        """(m,), which the loop multiplies by the minibatch's share of its batch, `batch.share`."""
        if self.total is not None:
            # own is 0 with C_b's gradient: value L(C), gradient L'(C) dC_b; the loop multiplies by the share
            own = Covariances(*((C - C.detach()) / batch.share for C in part))
            return cka_loss(self.total.plus(own))
        self.sums = self.sums.plus(Covariances(*(C.detach() for C in part)))
        if not batch.last:
            return torch.zeros_like(part.TS[:, 0, 0])  # the batch's loss counts once, at its last minibatch
        B = batch.number + 1
        last = Covariances(*(B * (C - C.detach()) for C in part))  # 0, with B times C's gradient
        return cka_loss(self.sums.plus(last)) / batch.share


def hidden_loss(hidden: str, S: Tensor, T: Tensor) -> Tensor:
    """The baselines, (), means over the tokens: 1 - cosine; of MSE and Lin, whose S is projected, ||S - T||^2 / D."""
    if hidden == "cosine":
        return (1 - F.cosine_similarity(S, T, dim=-1)).mean()
    return (S - T).square().mean()


def layer_map(N: int, m: int, rule: str = "uniform") -> list[int]:
    """The teacher layers of 1..N that guide student layers 1..m: ceil(i N / m), the last included; or those listed.
    `BadInput` for more student layers than N, and for layers that are not there."""
    if m > N:
        raise BadInput(f"--student: {m} layers need as many teacher layers, the teacher has {N}")
    if rule == "uniform":
        return [-(-i * N // m) for i in range(1, m + 1)]
    layers = [int(layer) for layer in rule.split(",")]
    if len(layers) > m or max(layers) > N:
        raise BadInput(f"--layer-map {rule}: must name up to {m} of the teacher's {N}, one for each student layer")
    return layers


# --- arguments -----------------------------------------------------------------------------------------------


class Variant(NamedTuple):
    """A row of a table: whose outputs it learns, what matches hidden states, whether unlabelled text comes first."""

    outputs: str  # labels, teacher, both or kd
    hidden: str  # none, lin, cosine, mse or cka
    pretraining: bool


VARIANTS = {
    "finetune": Variant("labels", "none", False),
    "kd": Variant("kd", "none", False),
    "woh": Variant("both", "none", True),
    "lin": Variant("both", "lin", True),
    "cosine": Variant("both", "cosine", True),
    "mse": Variant("both", "mse", True),
    "cka": Variant("both", "cka", True),
    "wopt": Variant("both", "cka", False),
}


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and CKA's."""

    KINDS = ("classification", "regression", "translation", "summarisation")
    OUTPUTS_ALONE = ("finetune", "kd", "woh")
    GRID: ClassVar = {"lr": (3e-5, 5e-5, 1e-4)}  # appendix B.3: 3e-5 to 1e-4; its ends, and one between

    variant: str = variants("finetune,kd,wopt", VARIANTS)
    task: str = "pocket/rte"
    student: str = "2x64"
    init: str = "random"
    keep: str = "spread"
    ffn: int | None = arg(None, "feed-forward width (default: the paper's for its sizes, else 4 x width)", low=1)
    layer_map: str = arg("uniform", "teacher layers of student layers 1, 2, ...: uniform, or a list, as 1,2,4,5")
    tokens: Literal["all", "cls"] = arg("all", "whose hidden states are compared: every token's, or [CLS]'s")
    beta: float = arg(1.0, "weight of the hidden loss", above=0)
    minibatches: int = arg(1, "B of eq. 4: parts of a batch, whose covariances are summed", low=1)
    history: Literal["detached", "exact"] = arg("detached", "eq. 4's gradient: of the last part, or in a second pass")
    pretraining: Literal["auto", "on", "off"] = arg("auto", "unlabelled text first; auto: but for summaries")
    pretraining_teacher: str | None = arg(None, "its teacher (default: --teacher before it was fine-tuned)")
    pretraining_share: float = arg(0.25, "its share of the budget", above=0, below=1)
    pretraining_lr: float = arg(1e-3, "its peak learning rate (the paper's: BERT 2e-4, mBART and T5 3e-5)", above=0)
    pretraining_batch_size: int | None = arg(None, "its texts per step (default: --batch-size)", low=1)
    pretraining_minibatches: int | None = arg(None, "its B of eq. 4 (default: --minibatches)", low=1)
    pretraining_max_length: int | None = arg(None, "tokens kept of its texts (default: --max-length)", low=4)
    corpus: str | None = arg(None, f"text of pre-training, {CORPUS} (default: pocket documents, or the task's)")
    outputs: Literal["both", "kd", "labels"] = arg("both", "on the task: labels + KL (the paper's), KD, or labels")
    target_max_length: int | None = arg(None, "tokens kept of a text to be written (default: --max-length)", low=4)
    prompt: str = arg("", "put before every source text, for T5; the paper's: Translate from English to Spanish:")

    def wrong(self) -> Iterator[str]:
        B = self.pretraining_minibatches or self.minibatches
        size = self.pretraining_batch_size or self.batch_size
        if self.batch_size % self.minibatches:
            yield f"--minibatches {self.minibatches}: must divide the batch size, {self.batch_size}"
        if size % B:
            yield f"--pretraining-minibatches {B}: must divide the batch size, {size}"
        if self.accumulate > 1:
            yield f"--accumulate {self.accumulate}: is --minibatches here, which joins CKA's parts by eq. 4"
        if self.layer_map != "uniform" and not all(l.isdecimal() and int(l) for l in self.layer_map.split(",")):
            yield f"--layer-map {self.layer_map}: must be uniform, or teacher layers from 1 on, as 2,4,6"
        for task in self.tasks:
            if self.prompt and not self.kind_of(task).written:
                yield f"--prompt {self.prompt!r}: is for translation and summarisation, not for {task}"
            if self.tokens == "cls" and self.kind_of(task).written:
                yield f"--tokens cls: the encoder-decoders of {task} have no [CLS]; --tokens all"
            if {"cka", "wopt"} <= set(self.variants) and not self.plan("cka", task).pretraining:
                yield f"--variant cka,wopt: are the same where nothing is pre-trained, as for {task}"

    def plan(self, variant: str, task: str) -> Variant:
        """What the arguments make of a row: whether it is pre-trained, and what the task's loss has."""
        row, kind = VARIANTS[variant], self.kind_of(task)
        if self.pretraining == "off" or (self.pretraining == "auto" and kind == "summarisation"):
            row = row._replace(pretraining=False)
        if row.outputs == "both":
            row = row._replace(outputs=self.outputs)
        if row.pretraining and (row.outputs == "labels" or not kind.written):  # B.3: no hidden loss after pre-training
            row = row._replace(hidden="none")
        return row

    def versions(self, variant: str) -> dict[str, Any]:
        """Version 1 of eq. 4's detached gradient was 1 / B of the exact one; the means weighed tokens unevenly."""
        hidden, parts = VARIANTS[variant].hidden, max(self.minibatches, self.pretraining_minibatches or 1)
        if parts == 1 or hidden == "none" or (hidden == "cka" and self.history == "exact"):
            return {}
        return {f"minibatch_{hidden}": 2}


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, PreTrainedModel

from common import data, models, text
from common.losses import baseline, kl_loss, label_loss, term
from common.parallel import mean, on_main, whole
from common.run import Run, task_runs
from common.teacher import Teacher, check_length, get_teacher
from common.train import Batch

# --- what a stage minimises ----------------------------------------------------------------------------------


class Objective(nn.Module):
    """What a stage minimises: L = L_CLM + L_Dist + beta L_H, or what is left of it.

    `layers`: of the encoder (and of the decoder) a list, the partners of student layers 1, 2, ...; none without a
    hidden loss. `teacher_layers`: all partners, each once. `projections`: what the student's states pass through,
    trained with it: Lin's, which start at random. `BadInput` for widths that `hidden` cannot compare.
    """

    def __init__(self, args: Args, outputs: str, hidden: str, student: Any, teacher: Any) -> None:
        super().__init__()
        self.args = args
        self.outputs = outputs
        self.hidden = hidden
        self.family = student.model_type
        D_S, D_T = student.hidden_size, teacher.hidden_size
        if hidden in ("cosine", "mse") and D_S != D_T:
            shape = f"{student_shape(args.student)[0]}x{D_T}"
            raise BadInput(f"--variant {hidden}: compares states of one width; --student {shape}, or lin or cka")
        depths = zip(models.stack_depths(teacher), models.stack_depths(student), strict=True)
        self.layers = [layer_map(N, m, args.layer_map) for N, m in depths if hidden != "none"]
        projection: Any = nn.Identity
        if hidden == "lin":
            projection = partial(nn.Linear, D_S, D_T)
        self.projections: Any = nn.ModuleList(nn.ModuleList(projection() for _ in stack) for stack in self.layers)
        self.teacher_layers = sorted({layer for stack in self.layers for layer in stack})
        self.reads_teacher = outputs != "labels" or bool(self.layers)
        self.cka: list[MinibatchCKA] = []  # one a stack, over the minibatches of the batch at hand

    def forward(self, student: Any, teacher: Teacher, batch: Batch) -> Tensor:
        """L of a batch, or of a minibatch of it, (): `batch.first` and `batch.last` say which of its minibatches it is,
        `batch.rest` are those that follow the first."""
        if batch.first and self.hidden == "cka":
            self.cka = [MinibatchCKA() for _ in self.layers]
            if self.args.history == "exact" and batch.rest:
                self.cka = [MinibatchCKA(total) for total in self.first_pass(student, teacher, batch)]
        s, t = self.model_outputs(student, teacher, batch)
        loss = baseline(self.args, batch, s, t) if self.outputs == "kd" else mean(self.output_losses(batch, s, t))
        if not self.layers:
            return loss
        L_H = []  # of the encoder, and of the decoder where there is one: the mean over its layers
        for k in range(len(self.layers)):
            pairs = self.states(k, s, t, batch)
            if self.hidden == "cka":
                L_H.append(self.cka[k].add(stacked_covariances(pairs), batch).mean())
            else:
                distance = torch.stack([hidden_loss(self.hidden, S, T) for S, T in pairs]).mean()
                if k == 0:  # the loop weighs a minibatch by its predictions, which the decoder's states are: undone
                    share = {"all": batch.of_tokens, "cls": batch.of_examples}[self.args.tokens]
                    distance = distance * (share / batch.share)
                L_H.append(distance)
        return loss + self.args.beta * term("hidden", torch.stack(L_H).mean())

    def output_losses(self, batch: Batch, s: Any, t: Any) -> Tensor:
        """L_CLM (eqs. 5-6) + L_Dist, KL(teacher || student) at T = 1, or one of the two: (n,), one a prediction. L_CLM
        is a class's cross-entropy. For scores both are squared errors."""
        logits, labels = batch.predictions(s)
        loss: Any = 0.0
        if self.outputs != "teacher":
            loss = term("labels", label_loss(logits, labels))  # L_CLM
        if self.outputs != "labels":
            loss = loss + term("KL", kl_loss(logits, batch.predictions(t)[0], temperature=1.0))  # L_Dist
        return loss

    def model_outputs(self, student: Any, teacher: Teacher, batch: Batch) -> tuple[Any, Any]:
        """Both models' outputs on a batch; None for a teacher that is not read."""
        t = teacher(batch, self.teacher_layers) if self.reads_teacher else None
        return student(**batch.inputs, output_hidden_states=bool(self.layers)), t

    def states(self, k: int, s: Any, t: Any, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
        """The matched states of stack k, 0 the encoder, 1 the decoder, pair by pair: (n, D_S) and (n, D_T)."""
        name = "hidden_states" if len(self.layers) == 1 else "encoder_hidden_states"
        select = partial(models.vectors, mask=batch.mask, tokens=self.args.tokens, family=self.family)
        if k == 1:
            name = "decoder_hidden_states"
            select = partial(models.vectors, mask=batch.labels >= 0)  # the tokens of the text to be written
        for i, (l, project) in enumerate(zip(self.layers[k], self.projections[k], strict=True), start=1):
            S, T = project(select(s[name][i])), select(t[name][l])  # state 0 is the embeddings
            yield whole(S), whole(T)  # after the projection: each process counts its own rows in W's gradient

    @torch.no_grad()
    def first_pass(self, student: Any, teacher: Teacher, batch: Batch) -> list[Covariances]:
        """Eq. 4's sums over all minibatches of a batch, stack by stack, for `--history exact`. In one process the
        second pass draws the same dropout again. In several it draws another for every part but the first: the sums,
        and so the gradient, are then exact without dropout alone."""
        sums = [Covariances() for _ in self.layers]
        with torch.random.fork_rng():
            for part in (batch, *batch.rest):
                s, t = self.model_outputs(student, teacher, part)
                sums = [C.plus(stacked_covariances(self.states(k, s, t, part))) for k, C in enumerate(sums)]
        return sums


# --- the student, its pre-training, and the task -------------------------------------------------------------

HELD_OUT = 256  # passages or examples of a validation curve
PAPER_EPOCHS = 6  # distilBART's; the paper gives none for its tasks
# Pre-training, by the teacher's family: epochs, and the texts of an epoch where the corpus is a stream. The paper does
# not pre-train BART; we use mBART's schedule
PAPER_PRETRAINING = {"bert": (30, 320_000), "bart": (25, 40_000), "mbart": (25, 40_000), "t5": (25, 40_000)}
# The feed-forward widths that the paper's numbers of parameters imply, by family and size
PAPER_FFN = {("bart", "6x640"): 4096, ("bart", "6x768"): 4096, ("bart", "12x768"): 3072, ("bart", "24x768"): 3072,
             ("bert", "8x512"): 3072, ("bert", "12x512"): 3072, ("t5", "12x768"): 2048, ("t5", "24x768"): 2048,
             ("t5", "24x1024"): 2816, ("t5", "48x1024"): 2816}  # fmt: skip


def student_settings(args: Args, teacher: Any) -> dict[str, Any]:
    """What a student's configuration has besides its layers and width: the paper's feed-forward width, and a spread of
    the first weights that grows as 1 / sqrt(width)."""
    scale = math.sqrt(teacher.hidden_size / args.width())
    settings = {k: scale * getattr(teacher, k) for k in ("initializer_range", "init_std") if hasattr(teacher, k)}
    settings["ffn"] = args.ffn
    if args.width() < teacher.hidden_size and not args.checkpoint:  # new and narrow, as the paper's
        settings["ffn"] = args.ffn or PAPER_FFN.get((teacher.model_type, args.student))
    return settings


def first_student(args: Args, init: str, teacher: PreTrainedModel, family: Any) -> PreTrainedModel:
    """What pre-training starts from, which `init` says: random weights, the teacher's layers, or `--init` NAME's."""
    layers, width = student_shape(args.student)
    if init == "random":
        config = models.student_config(teacher.config, layers, width, **student_settings(args, teacher.config))
        return models.build(config, family)
    if init in ("pretrained", "teacher"):
        return models.keep_layers(models.trainable_copy(teacher), args.keep, layers)
    name = models.source(args.init)
    student, _ = models.read_model(name, models.load_config(name, "--init"), family, argument="--init")
    return models.keep_layers(student, args.keep, layers)


def pretraining_texts(args: Args, run: Run) -> tuple[text.Texts, int]:
    """The unlabelled texts, and how many examples of them a student reads: `--pretraining-share` of the budget, or with
    `--budget paper` the paper's epochs."""
    if args.budget != "paper":
        examples = run.steps_for(args.pretraining_share, args.batch_size) * args.batch_size
        return text.open_texts(args.corpus, run.task, examples + HELD_OUT), examples
    texts = text.open_texts(args.corpus, run.task)
    family = run.teacher.model.config.model_type
    epochs, texts_of_one = PAPER_PRETRAINING.get(family, PAPER_PRETRAINING["bert"])
    return texts, epochs * (texts_of_one if texts.stream else len(texts.head))


def pretrain(args: Args, run: Run, hidden: str, student: PreTrainedModel) -> list[float]:
    """Distil on unlabelled text from the teacher's pre-trained checkpoint, and give `student` the weights of that; the
    validation curve."""
    teacher = run.teacher
    config = teacher.model.config
    written = run.task.task.kind.written
    outputs = "teacher"
    auto_class: Any = AutoModelForMaskedLM
    if written:  # it also learns the true text
        outputs = "both"
        auto_class = AutoModelForSeq2SeqLM
    source = args.pretraining_teacher
    if source and models.load_config(source).vocab_size != config.vocab_size:
        raise BadInput(f"--pretraining-teacher {source}: has another vocabulary than {teacher.name}")
    batch_size = args.pretraining_batch_size or args.batch_size
    length = args.pretraining_max_length or args.max_length
    check_length(length, config, teacher.tokenizer, "--pretraining-max-length")
    texts, examples = pretraining_texts(args, run)
    objective = Objective(args, outputs, hidden, student.config, config)

    def build(base: PreTrainedModel) -> PreTrainedModel:
        """First weights of the student and of Lin's projections, from `--seed` alone: several runs share the stage."""
        torch.manual_seed(args.seed)
        first = first_student(args, run.settings["init"], base, auto_class)
        for module in objective.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        torch.manual_seed(args.seed)  # of the masks, the same for all rows
        return first

    key = {name: getattr(args, name) for name in ("student", "keep", "ffn", "beta", "layer_map", "tokens", "history")}
    recipe = text.Recipe(
        texts, args.pretraining_lr, batch_size, length, args.seed, steps=max(1, examples // batch_size),
        written=written, everywhere=True,  # L_Dist at every token, masked or not
        held_out=HELD_OUT, optimizer={"parts": args.pretraining_minibatches or args.minibatches},
        more=key | {"hidden": hidden, "init": run.settings["init"]} | args.versions(run.variant),
    )  # fmt: skip
    stage = text.pretrain(run, "pretraining", recipe, build, objective, source, partial(watch, objective))
    weights = auto_class.from_pretrained(stage.folder, use_safetensors=True, dtype=torch.float32).state_dict()
    missing, _ = student.load_state_dict(weights, strict=False)  # the pooler and the head are new
    if lost := [name for name in missing if models.in_body(student, name)]:
        raise BadInput(f"--teacher {teacher.name}: its masked language model has no {lost[0]}; --pretraining off works")
    run.started_from = f"pre-training #{stage.folder.name}"
    return stage.notes["validation"]


def distil(args: Args, run: Run, objective: Objective, student: PreTrainedModel) -> list[float]:
    """Train `student` on the task; the validation curve."""
    teacher: Any = None
    if objective.reads_teacher:
        teacher = run.kept_teacher(objective.teacher_layers)
    watched = not args.tune  # trials need no curve, which costs a short run as much as its steps
    if objective.reads_teacher and run.teacher.stored:  # stored outputs are of training examples alone
        watched = False
    with run.loop({"student": student, "projections": objective.projections}, run.lr, parts=args.minibatches) as loop:
        if watched:
            held_out = run.evaluation_batches(HELD_OUT)
            loop.watch = partial(watch, objective, loop, student, run.teacher, held_out)
        for batch in loop:
            loop.minimise(objective(student, teacher, batch))
    return loop.notes.get("validation", [])


@torch.no_grad()
def watch(objective: Objective, loop: Any, student: Any, teacher: Teacher, held_out: list[dict[str, Tensor]]) -> None:
    """Figures 3a and 4: what a stage learns of L_CLM + L_Dist, unweighted, mean over the held-out predictions; a point
    after each tenth of its steps, in the loop's notes."""

    def validation() -> float:
        student.eval()
        losses = []
        for batch in map(loop.uncharged, held_out):
            t = None if objective.outputs == "labels" else teacher(batch)
            losses.append(objective.output_losses(batch, student(**batch.inputs), t))
        student.train()
        return round(torch.cat(losses).mean().item(), 6)

    if loop.due(10):
        loop.notes.setdefault("validation", []).append(on_main(validation))


def train_row(args: Args, run: Run, plan: Variant) -> None:
    """A row's student: on unlabelled text where it comes first, then on the task, whose losses are `plan`'s."""
    config = run.teacher.model.config
    student = run.student(**student_settings(args, config))
    objective = Objective(args, plan.outputs, plan.hidden, student.config, config)
    curves: dict[str, list[float]] = {"pretraining": []}
    if plan.pretraining:
        curves["pretraining"] = pretrain(args, run, VARIANTS[run.variant].hidden, student)
    curves["task"] = distil(args, run, objective, student)
    run.finish(student, analysis={"teacher": objective.reads_teacher, "validation": curves})


def main(args: Args) -> None:
    shared: dict[str, Any] = {"paper_epochs": PAPER_EPOCHS}
    if args.pretraining_teacher:
        shared["pretraining_teacher"] = models.model_name(args.pretraining_teacher, whole=True)
    for name in args.tasks:
        task = data.prompted(data.load(name, **args.source), args.prompt)
        task = replace(task, task=replace(task.task, target_length=args.target_max_length))
        plans = {variant: args.plan(variant, name) for variant in args.variants}
        rows = {row: {"labels_alone": (plan.outputs, plan.hidden) == ("labels", "none")} for row, plan in plans.items()}
        for run in task_runs(args, "cka", task, get_teacher(args, task), rows, **shared):
            train_row(args, run, plans[run.variant])


if __name__ == "__main__":
    execute(main, ARGS)
