"""XTC: extreme compression for pre-trained transformers made simple and efficient (Wu et al. 2022).

    python methods/xtc.py                                       # pocket task: 1 bit, half the layers; a few minutes
    python methods/xtc.py --bits 32,2,1 --stages 1,2,3 --variant xtc --student 4x128
    python methods/xtc.py --variant xtc --export runs/tiny.packed          # one file: model, tokenizer, 1 bit a weight
    python methods/xtc.py predict runs/tiny.packed "the first sentence"    # straight from it, faster than float32
    python methods/xtc.py --task rte --data-dir GLUE_DIR --teacher bert-base-uncased --student 6x768 --budget paper
    python methods/xtc.py --sizes                               # the paper's sizes beside bytes really written
    python methods/xtc.py --analyse RUN,RUN                     # figures 5 and 6 from the folders of finished runs

The paper in ten lines. A fine-tuned BERT is made small without pre-training anything anew. Half or more of its layers
are left out (Skip: every other one is kept), then all weights of linear layers and the word embedding are trained with
one or two bits each, and activations with eight: the forward pass sees sign(W) mean|W|, or a ternary W, the gradient
goes straight through to the float weight behind it. The teacher, the BERT as it was, guides by its logits, its hidden
states and its attention, all at once (1S), the layers first and the logits afterwards (2S), or with a transition
between the two (3S). What others owe to long pipelines is mostly owed to training long enough: given the same larger
budget, plain one-stage distillation (1S) is as good, and augmented data help. Low-rank adapters beside the quantised
weights (LoRA) help only when training is short. 1 bit and 5 or 6 layers: 1/50 of BERT's size, 2 to 3 points below it.

The paper -> code
    quantisers                          Quantizer.codes, QuantizedLinear, StraightThrough; which modules: quantizable
    layer reduction, table C.6          layer_map, reduce_layers
    B.1: L_hidden, L_att, L_logit       hidden_loss, attention_loss, logit_loss
    figure 4: 1S-, 2S-, 3S-KD           STAGES and the loop in distil
    eq. 2: W = W~ + UV (LoRA)           QuantizedLinear.forward, `--lora-rank`
    Budgets A, B, C                     PAPER_EPOCHS, `--budget paper --paper-budget A`
    table C.14, one run after another   `--init FOLDER`; C.15, a smaller teacher: `--teacher FOLDER`
    sizes, tables C.8 and C.13          rule, PUBLISHED, `--sizes`
    figures 5 and 6                     distances, analyse
    bytes in files, integer products    common/packed.py

Differences from the paper, and how its gaps are read (the authors' code was looked at for what the text leaves out)
    - activations: max|x| / 127 per token, symmetric; their code divides by 128 and cuts off. sign(0) is +1; there 0.
    - a quantised linear multiplies the integer codes and scales the sum, so that a packed file gives the same bits; to
      multiply the scaled values, as their code does, rounds a little differently.
    - attention: what is matched are the scores before the softmax, as in their code, not the maps of B.1. Padded
      positions are left out of both MSE terms; their code counts them. Weights of the losses are 1; no hard labels.
    - hidden states: the one below the first kept layer for the student's embeddings, then each kept layer's output.
    - stages share the budget equally; each starts a new optimiser and a new schedule (10% warm-up, B.1; B.2 says one
      epoch more). Stage I peaks at 2.5 x the learning rate, where there is a stage II.
    - 4 layers of 12 are [2, 5, 8, 11], which no source names. 4 and 8 bits round to the nearest of 2^b - 1 levels.
    - epochs of the three budgets are named nowhere: PAPER_EPOCHS is our definition.
    - every row, the undistilled one included, starts from the same layers of the fine-tuned teacher and has the same
      bits: what differs is the loss. `--init pretrained` takes the layers as they were before fine-tuning.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import BadInput, CommonArgs, arg, check_place, fail, first_line, parse, run, split_list, student_shape

VARIANTS = ("finetune", "kd", "xtc")
BITS = ("32", "8", "4", "2", "1")
# Epochs of Budgets A, B, C (ours): over the task's own data; over augmented data, which are 17 to 62 times as many
PAPER_EPOCHS = {"A": (3, 1), "B": (9, 3), "C": (18, 6)}


class Stage(NamedTuple):
    """What is minimised, and the peak learning rate in units of `--lr`."""

    losses: tuple[str, ...]
    peak: float


# Figure 4
STAGES = {
    "1": (Stage(("hidden", "attention", "logit"), 1.0),),
    "2": (Stage(("hidden", "attention"), 2.5), Stage(("logit",), 1.0)),
    "3": (Stage(("hidden", "attention"), 2.5), Stage(("hidden", "attention", "logit"), 1.0), Stage(("logit",), 1.0)),
}
BASELINES = {"finetune": (Stage(("hard",), 1.0),), "kd": (Stage(("logit",), 1.0),)}


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and XTC's."""

    variant: str = arg("finetune,kd,xtc", f"one or several of {', '.join(VARIANTS)}")
    # less than quick: three rows in a minute; 300 steps, which two and three stages share evenly
    budget: str = arg("9600", CommonArgs.__dataclass_fields__["budget"].metadata["help"])
    bits: str = arg("1", f"bits of a weight, one or several of {', '.join(BITS)}; 32: neither weights nor activations")
    stages: str = arg("1", "xtc: 1S-, 2S- or 3S-KD, one or several of 1, 2, 3")
    layers: str = arg(
        "skip", "which teacher layers are kept: skip, top, bottom, or their numbers from 0, for example 1,3"
    )
    init: str = arg(
        "teacher", "first weights: teacher, pretrained (before it was fine-tuned), or the folder of a run to go on from"
    )
    ste: Literal["identity", "clipped"] = arg(
        "identity", "gradient through the quantisers; clipped: TernaryBERT's, cut off at +-2.5"
    )
    lora_rank: int = arg(0, "eq. 2: rank of the float matrices beside each quantised linear (the paper: 1 and 8)")
    augment: int = arg(
        0, "kd, xtc: copies of each training text with words replaced (TinyBERT: 10, 20 or 30, by the task's size)"
    )
    paper_budget: Literal["A", "B", "C"] = arg("A", "--budget paper: epochs of Budget A, B or C")
    export: str | None = arg(None, "also write the quantised student to this file, packed")
    export_rest: Literal["fp32", "fp16"] = arg("fp32", "--export: how what is not quantised is stored")
    sizes: bool = arg(False, "print the paper's sizes beside the bytes of models written here; train nothing")
    analyse: str | None = arg(None, "train nothing: figures 5 and 6 of the folders of one or several quantised runs")

    def check(self) -> None:
        super().check()
        for name, allowed in (("variant", VARIANTS), ("bits", BITS), ("stages", STAGES)):
            self.check_names(name, allowed)
        if any(len(row.stages) > 1 for row in self.rows):
            self.check_one_training(f"--stages {self.stages}")
        for name in ("lora_rank", "augment"):
            self.check_value(name, lambda v: v >= 0, "be 0 (none) or more")
        if self.init not in ("teacher", "pretrained") and not (Path(self.init) / "config.json").is_file():
            raise BadInput(f"--init {self.init}: must be teacher, pretrained, or the folder of a finished run")
        if self.layers not in ("skip", "top", "bottom"):
            kept, wanted = layer_list(self.layers), student_shape(self.student)[0]
            if len(kept) != wanted:
                raise BadInput(
                    f"--layers {self.layers}: keeps {len(kept)} layers, --student {self.student} has {wanted}"
                )
        for folder in split_list(self.analyse or ""):
            if not (Path(folder) / "result.json").is_file():
                raise BadInput(f"--analyse {folder}: holds no result.json; give the folder of a finished run")
        if self.analyse is not None and not split_list(self.analyse):
            raise BadInput(f"--analyse {self.analyse!r}: names no folder of a finished run")
        exported = [row for row in self.rows if row.variant == "xtc" and row.bits < 32]
        if self.export is not None and (len(exported) != 1 or len(self.tasks) != 1):
            raise BadInput(
                f"--export {self.export}: one file holds one student of --variant xtc; give one of --bits, 8 or fewer,"
                " one of --stages and one --task"
            )
        if self.export is not None and (self.export == "" or Path(self.export).is_dir()):
            raise BadInput(f"--export {self.export}: is a folder; give a file")
        if self.export is not None:
            check_place("--export", self.export, file=True)
        if self.export is not None and Path(self.export).exists() and not self.force:
            raise BadInput(
                f"--export {self.export}: is there already; give another name, or --force, which also trains again"
            )
        if self.teacher_device_map != "off":
            raise BadInput(
                f"--teacher-device-map {self.teacher_device_map}: the student is a part of the teacher here,"
                " which fits where the teacher does; leave it out"
            )
        from common import data

        for task in self.tasks:
            if data.task_of(task).kind not in ("classification", "regression"):
                raise BadInput(f"--task {task}: XTC compresses encoders; classification and regression only")

    @property
    def rows(self) -> list[Row]:
        """The rows of the table, in its order."""
        found = []
        for bits in split_list(self.bits):
            for variant in self.variants:
                if variant == "xtc":
                    found += [
                        Row(f"xtc-{bits}bit-{s}s", variant, int(bits), STAGES[s]) for s in split_list(self.stages)
                    ]
                else:
                    found.append(Row(f"{variant}-{bits}bit", variant, int(bits), BASELINES[variant]))
        return found


def grid(args: Args, variant: str) -> dict[str, tuple[float, ...]]:
    """The learning rates that the paper's tables try; they are BERT-base's and scale with 768 / width."""
    return {"lr": tuple(lr * 768 / student_shape(args.student)[1] for lr in (5e-5, 1e-4, 5e-4))}


class Row(NamedTuple):
    """A student of the table: its label, how it is trained, and its bits."""

    label: str
    variant: str
    bits: int
    stages: tuple[Stage, ...]


def layer_list(text: str) -> list[int]:
    """`"1,3,5"` -> [1, 3, 5]; raises `BadInput` unless it is a list of layers from below to above."""
    try:
        kept = [int(part) for part in text.split(",")]
    except ValueError:
        kept = []
    if not kept or kept[0] < 0 or kept != sorted(set(kept)):
        raise BadInput(f"--layers {text!r}: must be skip, top, bottom, or rising numbers from 0, for example 1,3")
    return kept


def predict_arguments(argv: list[str]) -> argparse.Namespace:
    """`predict FILE TEXT [TEXT]`; a mistake is one line and exit code 2."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            fail(BadInput(f"predict: {message}; python methods/xtc.py predict FILE TEXT [SECOND_TEXT]"))

    parser = Parser(prog="xtc.py predict", description="What a packed model makes of a text, or of a pair of texts.")
    parser.add_argument("file", help="written by --export")
    parser.add_argument("text", nargs="+", help="one text, or two for tasks about pairs")
    parser.set_defaults(debug=False)
    found = parser.parse_args(argv)
    if len(found.text) > 2:
        parser.error(f"{len(found.text)} texts")
    return found


PREDICT = sys.argv[1:2] == ["predict"]
if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS: Any = predict_arguments(sys.argv[2:]) if PREDICT else parse(Args, __doc__)

import copy

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForSequenceClassification, BertConfig, BertTokenizer, PreTrainedModel

from common import data, models, parallel, plots, results, teacher_cache, train
from common.data import TaskData
from common.layers import augment, packed
from common.run import Loading, Run, compiled
from common.teacher import Teacher, get_teacher

# Shapes: B batch, L length, D width, h heads, C classes; N teacher layers, m student layers; W (out, in).

CLIP = 2.5  # TernaryBERT's


# --- quantisers ----------------------------------------------------------------------------------------------


class StraightThrough(torch.autograd.Function):
    """Codes in the place of x / scale, with x's gradient: d codes / d x = 1 / scale.

    Not written as x + (codes - x).detach(), which rounds: codes have to stay integers.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return codes

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient / ctx.saved_tensors[0], None, None


class Quantizer(nn.Module):
    """The parametrisation of a weight: W -> codes * scale, of `bits` bits.

    One scale for the tensor, () , or with `per_row` one for each row, (rows, 1).
    """

    def __init__(self, bits: int, per_row: bool = False, clip: float | None = None) -> None:
        super().__init__()
        self.bits, self.per_row, self.clip = bits, per_row, clip

    def codes(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Integers as floats, with the straight-through gradient, and the scale, without one."""
        if self.clip is not None:
            W = W.clamp(-self.clip, self.clip)  # whose gradient is 0 outside
        w = W.detach()
        size = w.abs()

        def mean(x: Tensor) -> Tensor:
            return x.mean(-1, keepdim=True) if self.per_row else x.mean()

        if self.bits == 1:
            # alpha = mean |W|; W~ = alpha sign(W), sign(0) = 1
            scale = mean(size)
            codes = 2 * (w >= 0).to(w) - 1
        elif self.bits == 2:
            # delta = 0.7 mean |W|; alpha = mean of the |W| above delta; W~ = alpha {-1, 0, 1}
            large = (size > 0.7 * mean(size)).to(w)
            scale = mean(size * large) / mean(large).clamp(min=packed.TINY)
            codes = w.sign() * large
        else:
            # scale = max |W| / (2^(b-1) - 1); W~ = scale round(W / scale)
            top = size.amax(-1, keepdim=True) if self.per_row else size.amax()
            scale = (top / packed.LARGEST[self.bits]).clamp(min=packed.TINY)
            codes = (w / scale).round()
        scale = scale.clamp(min=packed.TINY)
        return StraightThrough.apply(W, codes, scale), scale

    def forward(self, W: Tensor) -> Tensor:
        codes, scale = self.codes(W)
        return codes * scale


class QuantizedLinear(nn.Linear):
    """A linear whose weight is parametrised by a Quantizer and whose inputs are rounded to 8 bits per token.

    Codes are multiplied, their integer sums are scaled: exact, so that `packed.PackedLinear` gives the same bits.
    """

    lora_U: nn.Parameter | None  # (out, r)
    lora_V: nn.Parameter | None  # (r, in)

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.parametrizations["weight"]  # type: ignore[index]
        quantizer = weight[0]
        W, weight_scale = quantizer.codes(weight.original)
        if quantizer.clip is not None:
            x = x.clamp(-quantizer.clip, quantizer.clip)
        # per token: scale = max |x| / 127, codes = round(x / scale)
        codes, scale = packed.activation_codes(x.detach())
        codes = StraightThrough.apply(x, codes, scale)
        # eq. 2: y = (W~ + UV) x~ + b
        return packed.rescaled(F.linear(codes, W), codes, scale, weight_scale, self.bias, self.lora_U, self.lora_V)


def quantizable(model: PreTrainedModel) -> dict[str, nn.Module]:
    """What XTC quantises: the word embedding and all linears of the layers. By name, the embedding first.

    Position and type embeddings, layer norms, biases, whatever lies between embeddings and layers, the pooler and the
    head are not. `BadInput` for a family whose layers keep matrices outside linears, as XLNet's do.
    """
    body, prefix = model.base_model, model.base_model_prefix
    words = body.get_input_embeddings()  # type: ignore[operator]
    found = {f"{prefix}.{name}": module for name, module in body.named_modules() if module is words}
    for list_name, layers in body.named_modules():
        if not isinstance(layers, nn.ModuleList):
            continue
        for name, module in layers.named_modules():
            if isinstance(module, nn.Linear):
                found[f"{prefix}.{list_name}.{name}"] = module
            elif any(p.ndim > 1 for p in module.parameters(recurse=False)) and not isinstance(module, nn.Embedding):
                raise BadInput(
                    f"--teacher: {model.config.model_type}'s layers hold matrices outside linears; not for XTC"
                )
    return found


def quantize(model: PreTrainedModel, bits: int, clip: float | None = None, lora_rank: int = 0) -> list[str]:
    """Make an encoder of the library train with weights of `bits` bits, in place; returns the modules' names.

    The float weights stay behind as what is trained. 32 bits change nothing.
    """
    if bits == 32:
        return []
    chosen = quantizable(model)
    for module in dict.fromkeys(chosen.values()):
        if isinstance(module, nn.Linear):
            module.__class__ = QuantizedLinear
            shapes = ((module.out_features, lora_rank), (lora_rank, module.in_features))
            U, V = (nn.Parameter(module.weight.new_zeros(shape)) if lora_rank else None for shape in shapes)
            if V is not None:
                nn.init.normal_(V, std=1 / math.sqrt(module.in_features))  # with U = 0: no change at the start
            module.register_parameter("lora_U", U)
            module.register_parameter("lora_V", V)
        per_row = isinstance(module, nn.Embedding)
        parametrize.register_parametrization(module, "weight", Quantizer(bits, per_row, clip))
    return list(chosen)


@torch.no_grad()
def pack(model: PreTrainedModel) -> PreTrainedModel:
    """Put packed modules in the place of a quantised model's, in place: the same logits, to the last bit."""
    names = [name for name, module in model.named_modules() if parametrize.is_parametrized(module, "weight")]
    if not names:
        return model
    rank = 0
    for name in names:
        module: Any = model.get_submodule(name)
        weight = module.parametrizations.weight
        quantizer = weight[0]
        if isinstance(module, QuantizedLinear) and module.lora_V is not None:
            rank = len(module.lora_V)
        codes, scale = quantizer.codes(weight.original)
        small: Any = packed.empty(module, quantizer.bits, rank, quantizer.clip)
        small.packed, small.scale = packed.pack(codes, quantizer.bits), scale
        for part in ("bias", "lora_U", "lora_V"):
            if getattr(module, part, None) is not None:
                getattr(small, part).copy_(getattr(module, part))
        model.set_submodule(name, small)
    model.config.quantization_config = packed.PackedConfig(quantizer.bits, names, rank, quantizer.clip).to_dict()
    return model


# --- layer reduction -----------------------------------------------------------------------------------------


def layer_map(rule: str, N: int, m: int) -> list[int]:
    """The m teacher layers, from 0, that a student keeps: `skip`, `top`, `bottom`, or a list such as "1,3"."""
    if m > N:
        raise BadInput(f"--student: {m} layers cannot be kept of the teacher's {N}")
    if rule == "top":
        return list(range(N - m, N))
    if rule == "bottom":
        return list(range(m))
    if rule != "skip":
        kept = layer_list(rule)
        if kept[-1] >= N:
            raise BadInput(f"--layers {rule}: the teacher's layers are 0 to {N - 1}")
        return kept
    if (N, m) == (12, 5):
        return [2, 4, 6, 8, 10]  # the authors' choice; the rule would end with 11
    return [i * N // m - 1 for i in range(1, m + 1)]  # 12 -> 6: 1, 3, 5, 7, 9, 11


def reduce_layers(model: PreTrainedModel, kept: list[int]) -> PreTrainedModel:
    """Leave out all other layers, in place; embeddings, pooler and head stay. ALBERT's layers are one and the same."""
    N = model.config.num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == N:
            for i in reversed(range(N)):
                if i not in kept:
                    del module[i]
            break
    else:
        if model.config.model_type != "albert":
            raise BadInput(f"--teacher: {model.config.model_type} has no list of {N} layers to choose from")
    model.config.num_hidden_layers = len(kept)
    return model


def build_student(args: Args, teacher: Teacher, kept: list[int], task: TaskData, init: str) -> PreTrainedModel:
    """The float student, before it is quantised: the teacher's kept layers, or what `init` says instead."""
    own = teacher.model.config
    head = models.task_settings(task.task)
    if init == "teacher":
        student = reduce_layers(copy.deepcopy(teacher.model), kept).float().requires_grad_()
        student._forward_hooks.clear()  # those of a teacher in half precision
        for key, value in head.items():
            setattr(student.config, key, value)
        return student
    if init == "pretrained":
        if teacher.pretrained is None:
            raise BadInput(
                f"--init pretrained: {teacher.name} is only known as it was fine-tuned; --init teacher works"
            )
        train.seed_everything(args.seed)  # of the new head
        config = models.student_config(own, own.num_hidden_layers, own.hidden_size, **head)
        return reduce_layers(models.build_student(config, task.task.kind, teacher.pretrained), kept)
    config = models.load_config(init, "--init")
    for name, wanted in (("model_type", own.model_type), ("hidden_size", own.hidden_size),
                         ("vocab_size", own.vocab_size), ("num_hidden_layers", len(kept)),
                         ("num_labels", own.num_labels)):  # fmt: skip
        if (found := getattr(config, name)) != wanted:
            raise BadInput(f"--init {init}: its {name} is {found}, the student's has to be {wanted}")
    student = models.HEADS[task.task.kind].from_config(models.student_config(own, len(kept), own.hidden_size, **head))
    state = saved_state(init)
    missing, adapters = student.load_state_dict(state, strict=False)
    if missing or any(not name.endswith((".lora_U", ".lora_V")) for name in adapters):
        raise BadInput(f"--init {init}: not the weights of such a student, {[*missing, *adapters][0]} is amiss")
    return student


def saved_state(folder: str) -> dict[str, Tensor]:
    """The float weights of a finished run: latent.safetensors, or with 32 bits model.safetensors."""
    paths = [Path(folder) / f"{name}.safetensors" for name in ("latent", "model")]
    try:
        return load_file(next(path for path in paths if path.exists()))
    except (StopIteration, SafetensorError, OSError) as error:
        raise BadInput(f"--init {folder}: no weights that can be read ({first_line(error)})") from error


def go_on_with_adapters(student: PreTrainedModel, args: Args) -> None:
    """Give a quantised student the adapters of the run it goes on from, if that had any."""
    adapters = {name: value for name, value in saved_state(args.init).items() if name.endswith((".lora_U", ".lora_V"))}
    own = student.state_dict()
    for name, value in adapters.items():
        if name not in own or own[name].shape != value.shape:
            rank = min(value.shape)
            raise BadInput(
                f"--init {args.init}: has adapters of rank {rank}; --lora-rank {rank} and fewer than 32 bits"
            )
    student.load_state_dict(adapters, strict=False)


def latent(student: PreTrainedModel) -> dict[str, Tensor]:
    """The float weights behind a quantised student, under the library's names, and its adapters."""
    state = {
        name.replace("parametrizations.weight.original", "weight"): value
        for name, value in student.state_dict().items()
    }
    return {name: value.cpu().clone().contiguous() for name, value in state.items()}


# --- losses (B.1) --------------------------------------------------------------------------------------------


class Scores(TorchFunctionMode):
    """Keeps the (B, h, L, L) attention scores that a model gives to softmax, layer by layer, while it is entered.

    The library hands out the maps after the softmax, if at all. Every family's eager attention calls this one function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.softmax and args[0].ndim == 4:
            self.layers.append(args[0])
        return function(*args, **(kwargs or {}))


def masked_mse(student: Tensor, teacher: Tensor, valid: Tensor) -> Tensor:
    """The mean of the squared differences where `valid`, a mask that broadcasts to them."""
    valid = valid.expand_as(student)
    return parallel.total((student - teacher).masked_fill(~valid, 0).square().sum()) / parallel.total(valid.sum())


def hidden_loss(student: list[Tensor], teacher: list[Tensor], mask: Tensor) -> Tensor:
    """Sum over pairs of (B, L, D) hidden states of their mean squared distance over the tokens of (B, L) `mask`."""
    # L_hidden = MSE(H^S, H^T)
    valid = mask.bool()[:, :, None]
    terms = [masked_mse(s, t, valid) for s, t in zip(student, teacher, strict=True)]
    return torch.stack(terms).sum()


def attention_loss(student: list[Tensor], teacher: list[Tensor], mask: Tensor) -> Tensor:
    """Sum over pairs of (B, h, L, L) scores of their mean squared distance, where query and key are tokens."""
    # L_att = 1/h sum_i MSE(A_i^S, A_i^T)
    valid = mask.bool()[:, None, :, None] & mask.bool()[:, None, None, :]
    terms = [masked_mse(s, t, valid) for s, t in zip(student, teacher, strict=True)]
    return torch.stack(terms).sum()


def logit_loss(student: Tensor, teacher: Tensor, regression: bool = False) -> Tensor:
    """Of (B, C) logits: cross-entropy against the teacher's probabilities, mean over the batch; of scores, the MSE."""
    if regression:
        return F.mse_loss(student, teacher)
    # L_logit = CE(p^S, p^T), temperature 1
    return F.cross_entropy(student, teacher.softmax(-1))


def step_loss(stage: Stage, student: Any, teacher: Any, inputs: dict[str, Tensor], kept: list[int],
              regression: bool) -> Tensor:  # fmt: skip
    """The sum of a stage's losses over one batch; student layer i is paired with teacher layer `kept[i]`."""
    labels, inputs = inputs["labels"], {k: v for k, v in inputs.items() if k != "labels"}
    deep = "hidden" in stage.losses
    with Scores() as own:
        s = student(**inputs, output_hidden_states=deep)
    if "hard" in stage.losses:
        hard = F.mse_loss(s.logits[:, 0], labels) if regression else F.cross_entropy(s.logits, labels)
        return parallel.mean(hard, len(labels))
    with torch.no_grad(), Scores() as guide:
        t = teacher(**inputs, output_hidden_states=deep)
    mask, loss = inputs["attention_mask"], s.logits.new_zeros(())
    if deep:
        # hidden_states[0] is the embeddings' output, hidden_states[l + 1] that of layer l
        guides = [t.hidden_states[l] for l in (kept[0], *(l + 1 for l in kept))]
        loss = loss + hidden_loss(list(s.hidden_states), guides, mask)
        loss = loss + attention_loss(own.layers, [guide.layers[l] for l in kept], mask)
    if "logit" in stage.losses:
        loss = loss + parallel.mean(logit_loss(s.logits, t.logits, regression), len(labels))
    return loss


# --- the training loop ---------------------------------------------------------------------------------------


def share(total: int | None, parts: int, number: int) -> int | None:
    """Part `number`, from 0, of a total cut into equal parts, the rounding spread out."""
    return None if total is None else total * (number + 1) // parts - total * number // parts


def distil(args: Args, cell: Run, row: Row, student: PreTrainedModel, teacher: Teacher, encoded: data.Encoded,
           kept: list[int], engine: Accelerator) -> train.Ledger:  # fmt: skip
    """Train the student through the stages of its row, which share the budget equally; returns what it has cost."""
    batches = cell.batches(encoded, engine.device)
    student.to(engine.device).train()  # type: ignore[arg-type]
    model = compiled(student, args)
    regression = cell.task.task.kind == "regression"
    total = train.Ledger()
    for number, stage in enumerate(row.stages):
        # a stage begins as a run does: optimiser, warm-up and decay start again
        ledger = train.Ledger()
        steps, seconds = (share(amount, len(row.stages), number) for amount in (cell.steps, cell.seconds))
        optimizer = train.adamw(student, stage.peak * cell.settings["lr"])
        schedule = train.Schedule(optimizer, ledger, steps, seconds, args=args)
        guide = teacher_cache.Guide(compiled(teacher.model, args))
        if stage.losses == ("logit",):  # attention scores are too large to be kept
            guide = teacher_cache.guide(args, cell, teacher, encoded, steps, ledger, engine)
        checkpoint = train.Checkpoint(
            cell.folder / f"stage{number + 1}", {"student": student}, schedule, cell.identity,
            args.save_every, engine.scaler,
        )  # fmt: skip
        if args.resume and checkpoint.load():
            print(f"{row.label}: continued at step {total.steps + ledger.steps}")
        if schedule.running():
            cell.start(total.steps + ledger.steps)
        bar = train.progress(steps or 0, f"{row.label} stage {number + 1} seed {args.seed}", ledger.steps)
        with checkpoint:
            while schedule.running():
                with ledger.clock():
                    step = total.steps + ledger.steps
                    batch = batches[step]
                    loss: Any = 0.0
                    for part in parallel.parts(batch, batches.ids(step), args.accumulate):
                        inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                        with engine.autocast(), parallel.randomness(step, part.number):
                            own = part.share * step_loss(stage, model, guide.on(part.ids), inputs, kept, regression)
                        engine.backward(own)
                        loss += own.detach()
                    checkpoint.watch(loss, step, batches.ids)
                    rate = optimizer.param_groups[0]["lr"]
                    train.update(engine, optimizer, student.parameters())
                    ledger.count(batch, teachers=0 if row.variant == "finetune" else guide.charge)
                    schedule.step()
                if ledger.steps % 20 == 0 or not schedule.running():
                    cell.log(step=step + 1, stage=number + 1, lr=rate, loss=round(loss.item(), 6))
                bar.update()
                checkpoint.step()
        bar.close()
        total.add(ledger)
    return total


# --- figures 5 and 6 -----------------------------------------------------------------------------------------


@torch.no_grad()
def distances(student: PreTrainedModel, reference: PreTrainedModel) -> dict[str, float]:
    """Module -> l2 norm of (its weight before training - its quantised weight)."""
    names = [name for name, module in student.named_modules() if parametrize.is_parametrized(module, "weight")]
    pairs = [(name, student.get_submodule(name).weight, reference.get_submodule(name).weight) for name in names]
    return {name: float((own.cpu() - other.cpu()).norm()) for name, own, other in pairs}  # type: ignore[operator, union-attr]


def analyse(args: Args) -> None:
    """Figures 5 and 6 of finished runs: distances per linear, and a histogram of the float weights behind the bits."""
    lines: dict[str, plots.Line] = {}
    weights: dict[str, Tensor] = {}
    for folder in map(Path, split_list(args.analyse or "")):
        record = results.load(folder / "result.json")
        if not record["analysis"].get("distance") or not (folder / "latent.safetensors").exists():
            raise BadInput(f"--analyse {folder}: no run of xtc.py with 8 bits or fewer")
        label = f"{record['variant']} {record['student']['shape']}, {record['budget']['amount']} examples"
        label += f", seed {record['seed']}" + (f" ({folder})" if label in lines else "")
        distance = record["analysis"]["distance"]
        values = list(distance.values())[1:]  # the word embedding, many times as large, stands in the histogram alone
        lines[label] = (range(1, len(values) + 1), values)
        state = load_file(folder / "latent.safetensors")
        weights[label] = torch.cat([state[f"{name}.weight"].flatten() for name in distance])
    folder = Path(args.out_dir) / "xtc" / "analysis"
    folder.mkdir(parents=True, exist_ok=True)
    plots.lines(lines, folder / "distance.png", "float before training, quantised after", "linear, from below",
                "l2 distance")  # fmt: skip
    plots.histograms({k: v.numpy() for k, v in weights.items()}, folder / "weights.png", "what was quantised", "weight")
    spread = {k: {"mean_absolute": float(v.abs().mean()), "std": float(v.std())} for k, v in weights.items()}
    report: dict[str, Any] = {k: {"distance": list(map(float, v[1])), **spread[k]} for k, v in lines.items()}
    results.write_json(folder / "analysis.json", report)
    rows = [[k, f"{sum(r['distance']) / len(r['distance']):.3f}", f"{r['mean_absolute']:.4f}", f"{r['std']:.4f}"]
            for k, r in report.items()]  # fmt: skip
    print(results.columns(rows, ["", "mean l2 distance", "mean |W|", "std of W"]))
    print(f"saved: {folder}")


# --- sizes: tables C.8 and C.13 ------------------------------------------------------------------------------

MIB = 2**20
# layers, bits, LoRA rank: MiB and "x smaller", as printed
PUBLISHED = {
    (12, 2, 0): (26.8, 16.0), (12, 1, 0): (13.0, 32.0),
    (6, 32, 0): (255.2, 1.6), (6, 2, 0): (16.0, 26.2), (6, 1, 0): (8.0, 52.3), (6, 2, 1): (16.2, None),
    (6, 1, 1): (8.1, None),
    (5, 32, 0): (228.2, 1.8), (5, 2, 0): (14.2, 29.3), (5, 1, 0): (7.1, 58.5), (5, 2, 1): (14.6, 28.7),
    (5, 1, 1): (7.3, 57.4),
    (4, 32, 0): (201.2, 2.1), (4, 2, 0): (12.6, 33.2), (4, 1, 0): (6.3, 66.4), (4, 2, 1): (12.8, 32.6),
    (4, 1, 1): (6.4, 65.2),
}  # fmt: skip
SIZES_HEADER = ["BERT-base, MiB", "rule", "", "published", "", "on disk", ""]


def rule(layers: int, bits: int, rank: int = 0) -> float:
    """MiB of BERT-base by the paper's rule: all matrices, position embeddings and pooler included, at `bits` bits.

    Biases, layer norms and the head are not counted. Adapters: 13,824 numbers a layer and 1,536 for the pooler at rank
    1, two bytes each, fits what is printed with 1 bit; the paper's 2-bit figures are twice its 1-bit ones.
    """
    D, counted = 768, (30522 + 512 + 2) * 768 + 768**2 + layers * 7_077_888
    adapters = rank * (layers * 18 * D + 2 * D) * 2
    return (counted / 8 + adapters) * bits / MIB


def written(layers: int, bits: int, rank: int, folder: Path) -> float:
    """MiB of a BERT-base of random weights, quantised and exported: weights, scales, float rest and tokenizer."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers)
    model = AutoModelForSequenceClassification.from_config(config)
    # stands for BERT's vocabulary: as many words, of six random letters
    letters = torch.randint(97, 123, (config.vocab_size, 6), dtype=torch.uint8).numpy()
    words = dict.fromkeys([*models.SPECIAL_TOKENS, *(row.tobytes().decode() for row in letters)])
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(list(words)[: config.vocab_size])})
    quantize(model, bits, lora_rank=rank)
    return packed.save(pack(model), tokenizer, folder / f"{layers}-{bits}-{rank}", half=False) / MIB


def size_remark(layers: int, bits: int, rank: int) -> str:
    """Whether the published size and ratio of a model are what the rule gives."""
    (size, ratio), found, base = PUBLISHED[layers, bits, rank], rule(layers, bits, rank), rule(12, 32)
    if ratio is None or abs(base / found - ratio) <= 0.0501:
        if abs(found - size) <= 0.0501:
            return "ok"
        if bits == 2 and math.isclose(size, 2 * PUBLISHED[layers, 1, rank][0]):
            return "ok: twice the rounded 1-bit figure"
        if size == 26.8:
            return f"a typo: contradicts the printed x16.0, which is {base / 16:.2f}"
    return "MISMATCH"


def size_label(layers: int, bits: int, rank: int) -> str:
    return f"{layers} layers, {bits} bit{'s' * (bits > 1)}" + (f", LoRA {rank}" if rank else "")


def published_sizes() -> list[tuple[str, str, str, str, float, str]]:
    """Every published size for `python -m bench papers`: (table, row, column, as printed, by the rule, remark)."""
    cells = []
    for key, (size, ratio) in PUBLISHED.items():
        label, found = size_label(*key), rule(*key)
        cells.append(("sizes", label, "MiB", str(size), found, size_remark(*key)))
        if ratio is not None:
            cells.append(("sizes", label, "times smaller", str(ratio), rule(12, 32) / found, ""))
    return cells


def print_sizes(path: Path) -> int:
    """Print every published size beside the rule and beside bytes on disk, also to `path`; return how many disagree."""
    import tempfile

    rows, mismatches = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for (layers, bits, rank), (size, ratio) in PUBLISHED.items():
            found, base = rule(layers, bits, rank), rule(12, 32)
            remark = size_remark(layers, bits, rank)
            mismatches += remark == "MISMATCH"
            disk = written(layers, bits, rank, Path(folder)) if bits < 32 else None
            rows.append([size_label(layers, bits, rank), f"{found:.2f}", f"x{base / found:.1f}", f"{size}",
                         f"x{ratio}" if ratio else "-", f"{disk:.2f}" if disk else "-", remark])  # fmt: skip
    results.write_json(path, {"rows": rows, "environment": results.environment()})
    print(results.columns(rows, SIZES_HEADER))
    print(
        f"\n{len(rows)} sizes, {mismatches} mismatches. Ratios are to {rule(12, 32):.2f} MiB, 12 layers of 32 bits."
        "\nRule: every matrix at so many bits, nothing else. On disk: an exported file with its float32 position"
        "\nembeddings, pooler, norms and biases, its scales, head and tokenizer."
    )
    return mismatches


# --- main ----------------------------------------------------------------------------------------------------


def paper_epochs(args: Args, row: Row, task: TaskData) -> float:
    """Epochs over the task's own training examples that a paper budget pays for."""
    plain, augmented = PAPER_EPOCHS[args.paper_budget]
    if not args.augment or row.variant == "finetune":
        return plain
    return augmented * (1 + args.augment * len(task.task.fields))


def run_row(args: Args, row: Row, task: TaskData, teacher: Teacher, engine: Accelerator) -> dict[str, Any]:
    """One row of the table, from its folder if it was run before."""
    m, width = student_shape(args.student)
    if width != teacher.model.config.hidden_size:
        raise BadInput(
            f"--student {args.student}: layers are left out, not narrowed; --student"
            f" {m}x{teacher.model.config.hidden_size} has the teacher's width"
        )
    kept = layer_map(args.layers, teacher.model.config.num_hidden_layers, m)
    lr = args.lr or 2 * models.default_lr(width)  # 1e-4 at BERT-base's width
    source = args.init
    if source not in ("teacher", "pretrained"):
        source = f"{Path(source).name}@{models.file_digest(Path(source))}"
    settings = {"lr": lr, "bits": row.bits, "stages": len(row.stages), "layers": kept, "init": source}
    cell = Run(args, "xtc", row.label, task, teacher, paper_epochs(args, row, task), settings)
    if (record := cell.finished()) is not None:
        return record
    if cell.steps is not None and cell.steps < len(row.stages):
        raise BadInput(f"--budget {args.budget}: pays for {cell.steps} steps; {len(row.stages)} stages need as many")
    student = build_student(args, teacher, kept, task, args.init)
    train.seed_everything(args.seed)
    quantize(student, row.bits, CLIP if args.ste == "clipped" else None, args.lora_rank)
    if args.init not in ("teacher", "pretrained"):
        go_on_with_adapters(student, args)
    parameters = models.parameters(student)
    spent = train.Ledger()
    split = task.splits["train"]
    if args.augment and row.variant != "finetune":
        words = teacher.pretrained or teacher.name
        split = augment.with_copies(
            task, teacher.tokenizer, words, args.augment, args.seed, args.max_length, spent, engine.device
        )
    encoded = data.encode(teacher.tokenizer, split, task.task, args.max_length)
    # scores are seen in eager attention alone
    usual = teacher.model.config._attn_implementation
    for model in (student, teacher.model):
        model.set_attn_implementation("eager")
    spent.add(distil(args, cell, row, student, teacher, encoded, kept, engine))
    for model in (student, teacher.model):
        model.set_attn_implementation(usual)
    analysis: dict[str, Any] = {"layers": kept}
    if row.bits < 32:
        reference = build_student(args, teacher, kept, task, "teacher")
        analysis["distance"] = distances(student, reference)
        if parallel.main():
            save_file(latent(student), cell.folder / "latent.safetensors")  # what `--init` goes on from
        student = pack(student)
    loading = Loading("import common.layers.packed") if row.bits < 32 else None
    init = f"layers {kept} of {source}"
    return cell.finish(student, init, spent, analysis=analysis, parameters=parameters, loading=loading)


def run_task(args: Args, name: str, engine: Accelerator) -> None:
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    teacher = get_teacher(args, args.teacher, task, engine.device)
    records = [run_row(args, row, task, teacher, engine) for row in args.rows]
    results.show(records, args.out_dir)
    if args.export is not None and parallel.main():
        label = next(row.label for row in args.rows if row.variant == "xtc" and row.bits < 32)
        folder = results.folder_of(args.out_dir, "xtc", task.name, label, args.seed)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False
        )
        size = packed.save(model, teacher.tokenizer, Path(args.export), half=args.export_rest == "fp16")
        print(f"exported: {args.export}, {size / MIB:.2f} MiB")


@torch.no_grad()
def predict(args: Any) -> None:
    """`predict FILE TEXT [TEXT]`: what a packed model makes of a text or a pair: its classes, or its score."""
    model, tokenizer = packed.load(args.file)
    inputs = tokenizer(*args.text, truncation=True, max_length=tokenizer.model_max_length, return_tensors="pt")
    logits = model(**inputs).logits[0]
    if model.config.num_labels == 1:
        print(f"{logits.item():.4f}")
        return
    names: Any = model.config.id2label
    for p, i in sorted(zip(logits.softmax(-1).tolist(), range(len(logits)), strict=True), reverse=True):
        print(f"{p:.4f}  {names[i]}")


def main(args: Args) -> None:
    if args.sizes:
        if print_sizes(Path(args.out_dir) / "xtc" / "sizes.json"):
            raise SystemExit(1)
        return
    if args.analyse is not None:
        analyse(args)
        return
    engine = train.accelerator(args)
    for name in args.tasks:
        run_task(args, name, engine)


if __name__ == "__main__":
    run(predict if PREDICT else main, ARGS)
