# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "torch==2.13.0", "transformers==5.23.0", "tokenizers==0.23.3", "datasets==5.2.0",
#     "accelerate==1.15.0", "safetensors==0.8.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1",
#     "rouge-score==0.1.2", "sacrebleu==2.6.0", "seqeval==1.2.2", "sentencepiece==0.2.3",
#     "filelock==4.2.11", "matplotlib==3.11.2", "psutil==7.2.2", "tqdm==4.70.1",
# ]
# ///
"""XTC: extreme compression for pre-trained transformers made simple and efficient.
Wu et al., NeurIPS 2022: https://arxiv.org/abs/2206.01859

    python methods/xtc.py                                       # pocket task: 1 bit, half the layers; about a minute
    python methods/xtc.py --bits 32,2,1 --stages 1,2,3 --variant xtc --student 4x128
    python methods/xtc.py --task rte --data-dir GLUE_DIR --teacher bert-base-uncased --student 6x768 --budget paper

The paper in ten lines. A fine-tuned BERT is made small, and nothing is pre-trained again. Half or more of its layers
are left out (Skip keeps every other one), and what is left is distilled in full precision. The weights of its linear
layers and its word embedding are then trained with one or two bits each, and the inputs of the linear layers with
eight: the forward pass sees sign(W) mean|W|, or a ternary W, and the gradient goes straight through to the float weight
behind it. The teacher, the BERT as it was, gives its logits, hidden states and attention as targets: all at once (1S),
hidden states and attention first and logits afterwards (2S), or with a transition between the two (3S). The paper finds
that long pipelines owe most of their gain to their long training: with the same large budget, 1S is as good, and
augmented data help. Low-rank matrices beside the quantised weights (LoRA) help only when training is short. With 1 bit
and 5 or 6 layers, a model is 1/50 of BERT's size and 2 to 3 points below it.

The paper -> code
    quantisers                          quantised, Quantizer, QuantizedLinear; of what: quantizable
    layer reduction, table C.6          `--keep skip`, `first`, `top`, or numbers; layer_numbers
    B.1: L_hidden, L_att, L_logit       hidden_loss, attention_loss, logit_loss; their sum: step_loss
    figure 4: 1S-, 2S-, 3S-KD           STAGES, train, distil
    the recipe: reduce, then quantise   `--reduce-share`, distil (figure 5 is of "the fine-tuned 6-layer SkipBERT6")
    eq. 2: W = W~ + UV (LoRA)           QuantizedLinear.forward, `--lora-rank`
    Budgets A, B, C                     PAPER_EPOCHS, `--budget paper --paper-budget A`
    table C.14, one run after another   `--init FOLDER`; C.15, a smaller teacher: `--teacher FOLDER`
    figures 5 and 6: how far W moves    distances; latent.safetensors; python -m bench figures xtc RUN,RUN
    bytes in files, integer products    common/layers/packed.py
docs/xtc.md lists what differs from the paper, and how its gaps are read.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import BadInput, CommonArgs, arg, execute, parse, split_list, student_shape, variants

# Shapes: B batch, L length, D width, h heads; N teacher layers, m student layers; W (out, in).
# torch is imported below the arguments, so that a wrong one is answered at once.


# --- quantisers ----------------------------------------------------------------------------------------------


def quantised(W: Tensor, bits: int, per_row: bool = False) -> tuple[Tensor, Tensor]:
    """W~ = alpha C: the codes C, of W's shape, and alpha, (), or with `per_row` one for each row, (rows, 1)."""

    def mean_of(x: Tensor) -> Tensor:
        return x.mean(-1, keepdim=True) if per_row else x.mean()

    if bits == 1:
        C = 2 * (W >= 0).to(W) - 1  # sign(W), sign(0) = 1
        alpha = mean_of(W.abs())
    else:
        above = (W.abs() > 0.7 * mean_of(W.abs())).to(W)  # 1 where |W| > delta = 0.7 mean |W|, else 0
        C = W.sign() * above
        alpha = mean_of(W.abs() * above) / mean_of(above).clamp(min=packed.TINY)  # mean of the |W| above delta
    return C, alpha.clamp(min=packed.TINY)


def straight_through(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """The value of `codes`, the gradient of x / scale: x - x.detach() is 0 and has x's gradient."""
    return codes + (x - x.detach()) / scale


# --- losses (B.1) --------------------------------------------------------------------------------------------


def masked_mse(S: Tensor, T: Tensor, valid: Tensor, axis: int) -> Tensor:
    """The mean of (S - T)^2 over `axis` and the entries of the mask `valid`, which has the other axes: (), float32."""
    # padding is taken out first: in half precision a masked score can be infinite
    padding = ~valid.unsqueeze(axis)
    errors = F.mse_loss(S.masked_fill(padding, 0), T.masked_fill(padding, 0), reduction="none")
    return parallel.mean(errors.mean(axis)[valid])


def hidden_loss(student: list[Tensor], teacher: list[Tensor], mask: Tensor) -> Any:
    """L_hidden, the sum over pairs of layers of MSE(H^S, H^T), (B, L, D) each, over the tokens of the (B, L) mask."""
    return sum(masked_mse(H_S, H_T, mask, axis=-1) for H_S, H_T in zip(student, teacher, strict=True))


def attention_loss(student: list[Tensor], teacher: list[Tensor], mask: Tensor) -> Any:
    """L_att, the sum over pairs of layers of 1/h sum_i MSE(A_i^S, A_i^T): (B, h, L, L) scores, between tokens alone."""
    valid = mask[:, :, None] & mask[:, None, :]  # (B, L, L): query and key are tokens
    return sum(masked_mse(A_S, A_T, valid, axis=1) for A_S, A_T in zip(student, teacher, strict=True))


def logit_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """(n, C) twice -> (n,): cross-entropy with the teacher's probabilities; of scores, the squared difference."""
    if student.shape[-1] == 1:
        return (student - teacher)[:, 0].square()
    # L_logit = CE(p^S, p^T), temperature 1
    return F.cross_entropy(student, teacher.softmax(-1), reduction="none")


class Stage(NamedTuple):
    losses: tuple[str, ...]  # what is minimised
    peak: float = 1.0  # learning rate, in units of `--lr`


# The two baselines, and figure 4: 1S-, 2S-, 3S-KD
STAGES = {
    "finetune": (Stage(("label",)),),
    "kd": (Stage(("kd",)),),
    "1": (Stage(("hidden", "attention", "logit")),),
    "2": (Stage(("hidden", "attention"), 2.5), Stage(("logit",))),
    "3": (Stage(("hidden", "attention"), 2.5), Stage(("hidden", "attention", "logit")), Stage(("logit",))),
}
# Epochs of Budgets A, B, C over the task's own data, and over augmented data, which are 17 to 62 times as many (C.1).
# Our reading: the paper gives 18/36 epochs for MNLI and QQP alone (B.2), which we take as Budget C's 18
PAPER_EPOCHS = {"A": (3, 1), "B": (9, 3), "C": (18, 6)}


class Variant(NamedTuple):
    """A student of the table."""

    variant: str
    bits: int
    stages: tuple[Stage, ...]


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and XTC's."""

    KINDS = ("classification", "regression")  # XTC compresses encoders
    GRID: ClassVar = {"lr": (2e-5, 5e-5, 1e-4, 5e-4)}  # what the paper's tables try: C.2 to C.7, C.11 to C.13

    variant: str = variants("finetune,kd,xtc", ("finetune", "kd", "xtc"))
    init: str = "teacher"
    keep: str = "skip"
    bits: str = arg("1", "bits of a weight, one or several; 32: not quantised", names=("32", "2", "1"))
    stages: str = arg("1", "xtc: 1S-, 2S- or 3S-KD, one or several", names=("1", "2", "3"))
    reduce_share: float = arg(0.5, "fewer layers: share of the budget before they are quantised", low=0, below=1)
    ste: Literal["identity", "clipped"] = arg("identity", "gradient through the quantisers; clipped: 0 beyond 2.5")
    stage_steps: str = arg("equal", "xtc: lengths of the stages, as 4,1; with --budget paper their epochs")
    loss: Literal["paper", "code"] = arg("paper", "xtc: as the paper or the authors' code has it")
    beta: float = arg(1.0, "xtc: weight of the hidden and the attention loss", low=0)
    lora_rank: int = arg(0, "eq. 2: rank of U and V (the paper: 1, 8)", low=0)
    augment: int = arg(0, "kd, xtc: copies of each training text with words replaced (TinyBERT: 10 to 30)", low=0)
    paper_budget: Literal["A", "B", "C"] = arg("A", "--budget paper: epochs of Budget A, B or C")
    paper_copies: int = arg(0, "--budget paper: steps as with so many copies of each text (default: --augment)", low=0)

    def wrong(self) -> Iterator[str]:
        if self.accumulate > 1 and "xtc" in self.variants:
            yield f"--accumulate {self.accumulate}: xtc's losses are of a batch's tokens; leave it out"
        if self.stage_steps != "equal":
            parts = self.stage_steps.split(",")
            counts = {len(row.stages) for row in self.rows.values() if row.variant == "xtc"}
            if not all(part.isdecimal() and int(part) for part in parts) or {len(parts)} != counts:
                yield f"--stage-steps {self.stage_steps!r}: must be equal, or one number for each of --stages"

    @property
    def rows(self) -> dict[str, Variant]:
        """The rows of the table by their labels, in its order."""
        rows: dict[str, Variant] = {}
        for bits, variant in itertools.product(split_list(self.bits), self.variants):
            label = f"{variant}-{bits}bit"
            if variant != "xtc":
                rows[label] = Variant(variant, int(bits), STAGES[variant])
                continue
            for stages in split_list(self.stages):  # 1S-, 2S-, 3S-KD are rows of their own
                rows[f"{label}-{stages}s"] = Variant(variant, int(bits), STAGES[stages])
        return rows

    def lengths(self, row: Variant) -> list[int]:
        """Of a row's stages, in relation to each other; with `--stage-steps` and `--budget paper` epochs."""
        if self.stage_steps == "equal" or row.variant != "xtc":
            return [1] * len(row.stages)
        return [int(part) for part in self.stage_steps.split(",")]

    @property
    def goes_on(self) -> bool:
        """Whether `--init` is a quantised run: its model.safetensors holds bits; beside it are the float weights."""
        return (Path(self.init) / "latent.safetensors").exists()


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from common import parallel
from common.errors import refused
from common.layers import packed
from common.layers.attention import AttentionScores, eager
from common.layers.augment import add_copies
from common.losses import baseline, term
from common.models import is_decoder, layer_numbers
from common.run import Loading, Run, task_runs, taught_tasks
from common.teacher import Teacher
from common.train import Batch

# --- the quantised student -----------------------------------------------------------------------------------


class Quantizer(nn.Module):
    """The parametrisation of a weight, W -> W~ = alpha C of 1 or 2 bits. Its gradient goes straight through, as if W~
    were W; where W is clipped it is 0."""

    def __init__(self, bits: int, per_row: bool = False, clip: float | None = None) -> None:
        super().__init__()
        self.bits, self.per_row, self.clip = bits, per_row, clip

    def forward(self, W: Tensor) -> Tensor:
        C, alpha = self.codes(W)
        return alpha * C

    def codes(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """C, integers as floats, with W's gradient / alpha; and alpha, without one."""
        if self.clip is not None:
            W = W.clamp(-self.clip, self.clip)
        C, alpha = quantised(W.detach(), self.bits, self.per_row)
        return straight_through(W, C, alpha), alpha


class QuantizedLinear(nn.Linear):
    """Eq. 2: y = (W~ + UV) x~ + b, W~ = alpha C of a Quantizer; for each token x~ = s X, s = max|x| / 127,
    X = round(x / s), again with the gradient straight through.

    In float32 C X, a sum of integers, is exact, and is scaled afterwards: `packed.PackedLinear` gives the same bits.
    """

    lora_U: nn.Parameter | None  # (out, r)
    lora_V: nn.Parameter | None  # (r, in)

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.parametrizations["weight"]  # type: ignore[index]
        quantizer = weight[0]
        C, alpha = quantizer.codes(weight.original)
        if quantizer.clip is not None:
            x = x.clamp(-quantizer.clip, quantizer.clip)
        X, s = packed.activation_codes(x.detach())
        X = straight_through(x, X, s)
        # y = (alpha C + U V) (s X) + b = (alpha s) (C X) + U V (s X) + b
        return packed.rescaled(F.linear(X, C), X, s, alpha, self.bias, self.lora_U, self.lora_V)


def quantizable(model: PreTrainedModel) -> list[nn.Module]:
    """What XTC quantises, each once: the word embedding and all linears of the layers.

    Not quantised: position and type embeddings, layer norms, biases, what lies between embeddings and layers, the
    pooler and the head. `BadInput` for a family whose layers keep matrices outside linears, as XLNet's do.
    """
    modules = [model.get_input_embeddings()]
    lists = [module for module in model.base_model.modules() if isinstance(module, nn.ModuleList)]
    for module in itertools.chain.from_iterable(layers.modules() for layers in lists):
        if isinstance(module, nn.Linear):
            modules.append(module)
        elif any(p.ndim > 1 for p in module.parameters(recurse=False)) and not isinstance(module, nn.Embedding):
            family = model.config.model_type
            raise BadInput(f"--teacher: {family}'s layers hold matrices outside linears; not for XTC")
    return list(dict.fromkeys(modules))  # ALBERT nests a ModuleList in a ModuleList: modules are met twice


def quantize(model: PreTrainedModel, bits: int, clip: float | None = None, lora_rank: int = 0) -> None:
    """Make an encoder of the library train with weights of `bits` bits, in place; the float weights stay behind as what
    is trained. 32 bits change nothing."""
    if bits == 32:
        return
    for module in quantizable(model):
        if isinstance(module, nn.Linear):
            module.__class__ = QuantizedLinear  # whose forward multiplies codes, exactly; an embedding looks up alpha C
            module.lora_U = module.lora_V = None  # type: ignore[assignment]
            if lora_rank:  # with U = 0: no change at the start
                module.lora_U = nn.Parameter(module.weight.new_zeros(module.out_features, lora_rank))
                V = module.weight.new_zeros(lora_rank, module.in_features)
                module.lora_V = nn.Parameter(nn.init.normal_(V, std=1 / math.sqrt(module.in_features)))
        per_row = isinstance(module, nn.Embedding)
        parametrize.register_parametrization(module, "weight", Quantizer(bits, per_row, clip))


def latent(student: PreTrainedModel) -> dict[str, Tensor]:
    """The float weights behind a quantised student (figures 5 and 6), under the library's names, and its adapters."""
    return {
        name.replace("parametrizations.weight.original", "weight"): value.cpu().clone().contiguous()
        for name, value in student.state_dict().items()
    }


def load_latent(student: PreTrainedModel, folder: Path) -> None:
    """Go on from a finished quantised run: its float weights and adapters. `BadInput` unless they fit the student."""
    names = {name.replace("parametrizations.weight.original", "weight"): name for name in student.state_dict()}
    errors = SafetensorError, OSError, KeyError, RuntimeError
    with refused(f"--init {folder}: its weights do not fit", *errors, hint="; its --student and --lora-rank do"):
        saved = load_file(folder / "latent.safetensors")
        if missing := [name for name in names.keys() - saved.keys() if ".lora_" not in name]:  # adapters may be added
            raise KeyError(missing[0])
        student.load_state_dict({names[name]: value for name, value in saved.items()}, strict=False)


@torch.no_grad()
def distances(student: PreTrainedModel, before: dict[str, Tensor]) -> dict[str, float]:
    """Module -> l2 norm of (its float weight, `before` it was trained with bits - its quantised weight)."""
    found: dict[str, Any] = {n: m for n, m in student.named_modules() if parametrize.is_parametrized(m, "weight")}
    return {name: float((module.weight.cpu() - before[f"{name}.weight"]).norm()) for name, module in found.items()}


# --- training ------------------------------------------------------------------------------------------------


def step_loss(args: Args, losses: tuple[str, ...], student: PreTrainedModel, teacher: Teacher, batch: Batch,
              kept: list[int]) -> Tensor:  # fmt: skip
    """The sum of a stage's `losses` over a batch; student layer i + 1 is paired with the teacher's layer `kept[i]`."""
    layers: list[int] = []
    if "hidden" in losses:
        lowest = kept[0] - 1  # the student's embeddings are paired with the input of the first kept layer
        if args.loss == "code" and len(kept) < teacher.model.config.num_hidden_layers:
            lowest = max(0, lowest - 1)  # their code: one state lower; below the lowest it takes the top, ours stays
        layers = [lowest, *kept]
    with AttentionScores() as student_scores:
        s = student(**batch.inputs, output_hidden_states=bool(layers))
    if losses == ("label",):
        return baseline(args, batch, s, None)
    with AttentionScores() as teacher_scores:
        t = teacher(batch, layers)
    if losses == ("kd",):
        return baseline(args, batch, s, t)

    logits, _ = batch.predictions(s)
    loss = logits.new_zeros(())
    if layers:
        L_hidden = hidden_loss(s.hidden_states, [t.hidden_states[l] for l in layers], batch.mask)
        L_att = attention_loss(student_scores.layers, [teacher_scores.layers[l - 1] for l in kept], batch.mask)
        loss = loss + args.beta * (term("hidden", L_hidden) + term("attention", L_att))
    if "logit" in losses:
        L_logit = parallel.mean(term("logit", logit_loss(logits, batch.predictions(t)[0])))
        if args.loss == "code":  # theirs averages classes too
            L_logit = L_logit / logits.shape[-1]
        loss = loss + L_logit
    return loss


def train(args: Args, run: Run, student: PreTrainedModel, kept: list[int], name: str, stage: Stage, steps: int) -> None:
    """A stage begins as a run does: optimiser, warm-up and decay start again."""
    teacher = run.teacher
    if stage.losses in (("kd",), ("logit",)):  # outputs alone: attention scores are too large to be kept
        teacher = run.kept_teacher(steps=steps)
    with run.loop({"student": student}, stage.peak * run.lr, steps=steps, stage=name) as loop:
        for batch in loop:
            loop.minimise(step_loss(args, stage.losses, student, teacher, batch, kept))


def distil(args: Args, run: Run, row: Variant, student: PreTrainedModel, kept: list[int]) -> dict[str, Tensor]:
    """Train the student of a row through its stages, in place; its float weights when it was given its bits."""
    # fewer layers first, in full precision, by 1S or a baseline's own loss; that student is quantised
    if share := run.settings["reduce_share"]:
        key = "1" if row.variant == "xtc" else row.variant
        train(args, run, student, kept, "reduce", STAGES[key][0], round(share * run.steps))
    torch.manual_seed(args.seed)  # of the adapters
    clip = {"identity": None, "clipped": 2.5}[args.ste]  # TernaryBERT's
    quantize(student, row.bits, clip, args.lora_rank)
    if args.goes_on:
        load_latent(student, Path(args.init))
        run.started_from = f"the float weights of {run.settings['init']}"
    before = latent(student)
    lengths = args.lengths(row)
    for i, stage in enumerate(row.stages):  # each takes its part of what is left, the last one all
        train(args, run, student, kept, f"stage{i + 1}", stage, run.left * lengths[i] // sum(lengths[i:]))
    return before


def compress(args: Args, run: Run, row: Variant, kept: list[int]) -> None:
    """Train the student of a row and write its record: of one with bits, its packed weights and the float ones."""
    if args.augment and row.variant != "finetune":
        add_copies(run, args.augment)
    student = run.student(init="random" if args.goes_on else None)
    with eager(student, run.teacher.model):  # whose attention scores can be seen
        before = distil(args, run, row, student, kept)
    if row.bits == 32:
        run.finish(student, analysis={"layers": kept})
        return
    analysis = {"layers": kept, "distance": distances(student, before)}
    if parallel.main() and args.save_student:
        save_file(latent(student), run.folder / "latent.safetensors")
    parameters = student.num_parameters()
    loading = Loading("import distil_papers.common.layers.packed")
    run.finish(packed.pack_model(student), analysis=analysis, parameters=parameters, loading=loading)


def kept_layers(args: Args, teacher: Teacher) -> list[int]:
    """The teacher's layers that the student is made of. `BadInput` for a teacher that is no encoder of its width."""
    config: Any = teacher.model.config
    m, width = student_shape(args.student)
    if config.is_encoder_decoder or is_decoder(config.model_type):
        raise BadInput(f"--teacher {teacher.name}: XTC compresses encoders, and a {config.model_type} is none")
    if width != config.hidden_size:
        instead = f"{m}x{config.hidden_size}"
        raise BadInput(f"--student {args.student}: layers are left out, not narrowed; {instead} would do")
    return layer_numbers(args.keep, config.num_hidden_layers, m)


def settings_of(args: Args, row: Variant, kept: list[int], task: Any, teacher: Teacher) -> dict[str, Any]:
    """A row's settings besides the arguments."""
    config = teacher.model.config
    share = 0.0
    # layers are left out in full precision first, unless the start was already quantised
    if row.bits < 32 and len(kept) < config.num_hidden_layers and not args.goes_on:
        share = args.reduce_share
    # with --budget paper: a Budget's epochs, counted over the task's own examples. Augmented data are many times as
    # many, and are seen less often; --stage-steps names the epochs of each stage in their place
    epochs, augmented_epochs = PAPER_EPOCHS[args.paper_budget]
    if args.stage_steps != "equal" and row.variant == "xtc":
        epochs = augmented_epochs = sum(args.lengths(row))
    copies = (args.paper_copies or args.augment) * len(task.task.fields)
    if copies and row.variant != "finetune":
        epochs = augmented_epochs * (1 + copies)
    # twice the rate of the other scripts (5.6e-5 at width 768), but no stage peaks above 2e-3
    peak = max(stage.peak for stage in row.stages)
    lr = args.lr or min(2 * task.task.kind.default_lr(config.hidden_size, args.init), 2e-3 / peak)
    return {
        "paper_epochs": epochs / (1 - share),  # the reduction first, then a whole Budget
        "lr": lr,
        "bits": row.bits,
        "stages": len(row.stages),
        "layers": kept,
        "reduce_share": share,
        "select": 1000,  # steps, as in their code; B.2 reports the best of the evaluations
    }


def main(args: Args) -> None:
    for task, teacher in taught_tasks(args):
        kept = kept_layers(args, teacher)
        settings = {label: settings_of(args, row, kept, task, teacher) for label, row in args.rows.items()}
        for run in task_runs(args, "xtc", task, teacher, settings):
            compress(args, run, args.rows[run.variant], kept)


if __name__ == "__main__":
    execute(main, ARGS)
