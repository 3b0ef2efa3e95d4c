# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "torch==2.13.0", "transformers==5.23.0", "tokenizers==0.23.3", "datasets==5.2.0",
#     "accelerate==1.15.0", "safetensors==0.8.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1",
#     "rouge-score==0.1.2", "sacrebleu==2.6.0", "seqeval==1.2.2", "sentencepiece==0.2.3",
#     "filelock==4.2.11", "matplotlib==3.11.2", "psutil==7.2.2", "tqdm==4.70.1",
# ]
# ///
"""Efficient Transformer knowledge distillation: a performance review. Long inputs, half the layers.
Brown et al. 2023: https://arxiv.org/abs/2311.13657

    python methods/efficient_attention.py                                      # pocket task, about a minute on a laptop
    python methods/efficient_attention.py --variant finetune,kd,distil,convert,convert-distil,distil-convert
    python methods/efficient_attention.py --attention lsg --task pocket/rte                # or bigbird, nystromformer
    python methods/efficient_attention.py --task litbank --data-dir DIR --teacher FacebookAI/roberta-base \\
        --max-length 4096 --corpus part.jsonl.gz,books.txt    # OSCAR is filtered as in section 3.2
    python methods/efficient_attention.py --task squad --teacher allenai/longformer-base-4096 --max-length 512

The paper in ten lines. Encoders such as RoBERTa read 512 tokens, since attention costs the square of the length.
Efficient attentions cost a multiple of the length: a sliding window with global tokens (Longformer), blocks with
random and global ones (BigBird), local, sparse and global tokens (LSG), landmarks (Nystromformer). "Convert": put one
of them into a pretrained model, repeat its positions up to 4096 and go on with masked language modelling. "Distil":
train a student of every other layer on the teacher's masked-LM predictions, as DistilBERT was. "Fine-tune": train the
student on a task. The paper takes published long models, and pre-trains LSG itself; it distils and fine-tunes all
four. Students keep most of the teacher's scores at about half the time. Questions over long texts lose most, named
entities little. A corpus of long and short texts distils best. Distil-then-convert, left open there, is a variant.

What the paper has -> code
    sections 2, 4: four attentions     longformer, bigbird, lsg, nystromformer; fast: common/layers/attention.py
    section 3.1: convert               convert; common/layers/long.py: published long teachers
    section 3.1: every other layer     depth, distil
    section 3.1: both orders           VARIANTS, before_the_task
    appendix B: the loss               pretraining_loss
    fine-tuning                        fine_tune
    sections 3.2, 4.5: texts           `--corpus`, passes_oscar
    table 4, of our attentions         python -m bench speed --table lengths
docs/efficient_attention.md lists what differs from the paper, and how its gaps are read.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import CORPUS, BadInput, CommonArgs, arg, execute, parse, student_shape, variants

# Shapes: B batch, L length, D width, V vocabulary; in the attentions H heads of width d, M landmarks.
# torch is imported below the arguments, so that a wrong one is answered at once.


# --- the four attentions (sections 2 and 4), and the loss before the task (appendix B) ------------------------
# As their papers define them, Nystromformer without its convolution, for one text: Q, K and V are (H, L, d), and all
# L x L scores are computed. common/layers/attention.py is what trains: it computes the same without them, for padded
# batches; short texts get full attention there.


def attend(Q: Tensor, K: Tensor, V: Tensor, seen: Tensor) -> Tensor:
    """softmax(Q K' / sqrt(d)) V over the keys that each query sees, by the mask `seen`, (L, L) or (H, L, L)."""
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ V


def longformer(Q: Tensor, K: Tensor, V: Tensor, of_global: tuple[Tensor, Tensor, Tensor], window: int,
               is_global: Tensor) -> Tensor:  # fmt: skip
    """A token sees `window` tokens on each side and the global ones. Global tokens (a mask, (L,)) see everything, by
    queries, keys and values of their own, `of_global`."""
    i = torch.arange(Q.shape[1], device=Q.device)
    near = (i[:, None] - i).abs() <= window
    local = attend(Q, K, V, near | is_global)
    everything = attend(*of_global, torch.ones_like(near))
    return torch.where(is_global[:, None], everything, local)


def bigbird(Q: Tensor, K: Tensor, V: Tensor, block: int, drawn: Tensor) -> Tensor:
    """A block of tokens sees itself, its neighbours, the first, the last, and those of `drawn`, (blocks, H, random).
    The first and the last block see everything."""
    j = torch.arange(Q.shape[1], device=Q.device) // block  # the block of each key, (L,)
    i = j[:, None]  # of each query, (L, 1)
    seen = ((i - j).abs() <= 1) | (j == 0) | (j == j[-1]) | (i == 0) | (i == j[-1])
    of_query = drawn[j].transpose(0, 1)  # (H, L, random), blocks
    return attend(Q, K, V, seen | (of_query[..., None] == j).any(2))


def lsg(Q: Tensor, K: Tensor, V: Tensor, block: int, sparse: int, reach: int, global_count: int) -> Tensor:
    """Behind the global tokens, which see and are seen by everything, a block sees itself, its neighbours and, of
    each of the `reach` blocks beyond these on each side, the `sparse` tokens whose keys have the largest norm."""
    i = torch.arange(Q.shape[1], device=Q.device)
    block_of = (i - global_count).div(block, rounding_mode="floor")  # negative for global tokens
    stands_out = torch.zeros(Q.shape[:2], dtype=torch.bool, device=Q.device)  # (H, L)
    for J in range(int(block_of[-1]) + 1):
        (inside,) = torch.where(block_of == J)
        largest = K[:, inside].norm(dim=-1).topk(min(sparse, len(inside))).indices
        stands_out.scatter_(1, inside[largest], True)
    distance = (block_of[:, None] - block_of).abs()
    seen = (distance <= 1) | (i < global_count) | (i < global_count)[:, None]
    return attend(Q, K, V, seen | (stands_out[:, None] & (distance <= 1 + reach)))


def nystromformer(Q: Tensor, K: Tensor, V: Tensor, landmarks: int, iterations: int = 6) -> Tensor:
    """softmax(Q K~' / sqrt(d)) A^+ softmax(Q~ K' / sqrt(d)) V with A = softmax(Q~ K~' / sqrt(d)), where Q~ and K~ are
    means over M segments; of fewer than M tokens NaN. (The fast one adds a convolution of V, 0 after conversion.)"""
    L, d = Q.shape[1:]
    segments = F.one_hot(torch.arange(L, device=Q.device) * landmarks // L).to(Q)  # (L, M)
    means = (segments / segments.sum(0)).T
    Q_means, K_means = means @ Q, means @ K  # (H, M, d)
    to_landmarks = (Q @ K_means.mT / d**0.5).softmax(-1)  # (H, L, M)
    A = (Q_means @ K_means.mT / d**0.5).softmax(-1)  # (H, M, M)
    from_landmarks = (Q_means @ K.mT / d**0.5).softmax(-1)  # (H, M, L)
    return to_landmarks @ pseudo_inverse(A, iterations) @ from_landmarks @ V


def pseudo_inverse(A: Tensor, iterations: int) -> Tensor:
    """A^+ by Nystromformer's iteration of third order, from Z = A' / (||A||_1 ||A||_inf); the rows of A sum to 1."""
    I = torch.eye(A.shape[-1]).to(A)
    Z = A.mT / A.sum(-2).max()  # over all heads of the text
    for _ in range(iterations):
        AZ = A @ Z
        Z = 0.25 * Z @ (13 * I - AZ @ (15 * I - AZ @ (7 * I - AZ)))
    return Z


def pretraining_loss(student: Any, teacher: Any | None, labels: Tensor, mask: Tensor,
                     over_tokens: Callable[[Tensor], Tensor]) -> Tensor:  # fmt: skip
    """L = 2 L_mlm + 5 L_ce + 1 L_cse (appendix B), (); without a teacher L_mlm alone.
    Outputs have (B, L, V) logits and (B, L, D) hidden states; labels are (B, L), -100 where nothing is masked; mask
    is (B, L), true for tokens. Means over the tokens, L_mlm over the masked ones; of a part of a batch `over_tokens` is
    its `mean_of_tokens`, and the parts' losses add up to that of the batch."""
    masked = labels >= 0
    L_mlm = mean(label_loss(student.logits[masked], labels[masked]))
    if teacher is None:
        return L_mlm
    # p_i = exp(z_i / T) / sum_j exp(z_j / T); L_ce = T^2 KL(teacher || student)
    L_ce = over_tokens(kl_loss(student.logits[mask], teacher.logits[mask], temperature=2.0))
    # L_cse = 1 - cos of the last hidden states
    S, T = student.hidden_states[-1][mask], teacher.hidden_states[-1][mask]
    L_cse = over_tokens(1 - F.cosine_similarity(S, T, dim=-1))
    return 2 * term("MLM", L_mlm) + 5 * term("KL", L_ce) + 1 * term("cosine", L_cse)


# --- arguments -----------------------------------------------------------------------------------------------

# What a row's model goes through before it is fine-tuned, and "kd", which is how; the paper's tables call `distil` KD
VARIANTS: dict[str, tuple[str, ...]] = {
    "finetune": (),  # the undistilled student, with the teacher's attention
    "kd": ("kd",),  # the same, fine-tuned with the fine-tuned teacher's soft labels: vanilla KD
    "distil": ("distil",),
    "convert": ("convert",),  # as deep as the teacher
    "convert-distil": ("convert", "distil"),  # the paper's order
    "distil-convert": ("distil", "convert"),
    "convert-distil-kd": ("convert", "distil", "kd"),
}
PAPER_EPOCHS = {"hotpot_qa": 10}  # of fine-tuning; of the other tasks 5, which the paper gives for TriviaQA alone


def stages_of(variant: str) -> list[str]:
    """The stages before the task, convert and distil, in their order."""
    return [stage for stage in VARIANTS[variant] if stage != "kd"]


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and those of efficient attention."""

    KINDS = ("classification", "regression", "token classification", "span QA")
    OUTPUTS_ALONE = ()  # its stages go on from the teacher
    # the paper names no range: BERT's rates, and for distillation DistilBERT's and half of it
    GRID: ClassVar = {"lr": (2e-5, 3e-5, 5e-5), "distil_lr": (5e-4, 2.5e-4)}

    variant: str = variants("finetune,kd,convert-distil", VARIANTS)
    task: str = "pocket/rte"
    student: str = arg("half", "half: layers 1, 3, 5, ... of the teacher's; or LAYERSxWIDTH, chosen by --keep")
    attention: Literal["longformer", "bigbird", "lsg", "nystromformer"] = arg("longformer", "what to convert to")
    max_length: int = arg(128, "tokens kept of an example by converted models", low=4)
    short_length: int = arg(512, "tokens kept of an example, or of a window, by models with full attention", low=4)
    window: int | None = arg(None, "tokens on each side (256), of a block (64, LSG: 128), or landmarks (64)", low=1)
    global_tokens: int = arg(1, "Longformer, LSG: tokens that see everything", low=1, high=512)
    random_blocks: int = arg(3, "BigBird: random blocks that a block sees", low=0)
    corpus: str | None = arg(None, f"text of the stages before fine-tuning, {CORPUS} (default: task, and pocket texts)")
    convert_corpus: str | None = arg(None, "text of masked language modelling after conversion (default: --corpus)")
    stage_length: int | None = arg(None, "tokens of its pieces, by an efficient attention (--max-length)", low=4)
    convert_share: float = arg(0.05, "share of the budget after conversion; 0: only convert", low=0, below=1)
    distil_share: float = arg(0.15, "share of the budget for distillation; 0: only fewer layers", low=0, below=1)
    convert_lr: float | None = arg(None, "peak learning rate after conversion (default: 3e-5 x 768 / width)", above=0)
    distil_lr: float = arg(5e-4, "peak learning rate of distillation", above=0)

    def wrong(self) -> Iterator[str]:
        if self.convert_share + self.distil_share >= 1:
            yield f"--distil-share {self.distil_share}: leaves nothing to fine-tune with; give less, or --convert-share"
        if self.attention == "lsg" and (self.window or 128) % 4:
            yield f"--window {self.window}: LSG halves a block and pairs what is left; give a multiple of 4"
        if self.student == "half" and self.keep != "first":
            yield f"--keep {self.keep}: half keeps layers 1, 3, 5, ...; give --student LAYERSxWIDTH with it"
        for name in self.variants:
            stages = stages_of(name)
            from_random = self.init == "random" and stages[:1] == ["convert"]
            if stages and self.init not in ("auto", "pretrained") and not from_random:
                yield f"--init {self.init}: {name} goes on from the pretrained model; pretrained would work"

    def check_student(self) -> None:
        if self.student != "half":
            super().check_student()

    def width(self) -> int:
        from common import models

        return models.load_config(models.source(self.teacher)).hidden_size  # students are as wide as the teacher

    def unused(self, variant: str) -> set[str]:
        return {"distil_lr"} - {f"{stage}_lr" for stage in VARIANTS[variant]}


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common import corpus, models, text
from common.data import load
from common.layers import attention, long
from common.losses import baseline, kl_loss, label_loss, term
from common.parallel import mean
from common.run import Loading, Run, task_runs
from common.tasks import TaskData
from common.teacher import Teacher, check_length, get_teacher
from common.train import Batch


def depth(args: Args, teacher: Teacher, variant: str) -> tuple[int, str]:
    """How many layers a row's student has, and which of the teacher's these are."""
    config = teacher.model.config
    N = config.num_hidden_layers
    if VARIANTS[variant] == ("convert",):  # the whole teacher, with another attention
        return N, "first"
    if args.student == "half":
        every_other = range(1, N + 1, 2)
        return len(every_other), ",".join(map(str, every_other))
    layers, student_width = student_shape(args.student)
    if student_width != config.hidden_size:
        raise BadInput(f"--student {args.student}: has to be as wide as the teacher, {config.hidden_size}; or half")
    return layers, args.keep


def attention_settings(args: Args) -> dict[str, Any]:
    """The arguments of the attention's class that the command line names; a pocket teacher's window is 64."""
    window = args.window
    if window is None and args.teacher in models.POCKET:
        window = 64
    settings: dict[str, dict[str, Any]] = {
        "longformer": {"window": window, "first": args.global_tokens},
        "bigbird": {"block": window, "random": args.random_blocks},
        "lsg": {"block": window, "sparse_block": window, "global_count": args.global_tokens},
        "nystromformer": {"landmarks": window},
    }
    return {name: value for name, value in settings[args.attention].items() if value is not None}


# --- the stages before the task (section 3.1) ----------------------------------------------------------------

# With --budget paper: Longformer's steps and tokens a step (of distillation, too); DistilBERT's epochs
CONVERT_STEPS = 3000
TOKENS_PER_STEP = 2**18
DISTIL_EPOCHS = 3
# With every budget: Longformer's and DistilBERT's
CONVERT_OPTIMIZER = {"warmup": 500 / CONVERT_STEPS, "eps": 1e-6, "clip": 5.0}
DISTIL_OPTIMIZER = {"warmup": 0.05, "betas": (0.9, 0.98), "decay": 0.0, "eps": 1e-6, "clip": 5.0}


def pretraining_step(student: PreTrainedModel, teacher: Teacher | None, batch: Batch) -> Tensor:
    """`pretraining_loss` of a batch."""
    if attention.kind_of(student.config) == "longformer":  # no token of a text is more important than others
        batch.inputs["global_attention_mask"] = torch.zeros_like(batch.inputs["input_ids"])
    s = student(**batch.inputs, output_hidden_states=teacher is not None)
    t = teacher(batch, layers=[-1]) if teacher else None
    return pretraining_loss(s, t, batch.labels, batch.mask, batch.mean_of_tokens)


def convert(args: Args, run: Run, source: str, texts: Any, length: int) -> str:
    """The folder of the masked LM `source` with another attention, trained on; `--init random`: from random weights."""
    settings = attention_settings(args)
    positions = max(length, args.max_length)

    def build(model: PreTrainedModel) -> PreTrainedModel:  # in place, so that text.pretrain has no teacher
        if args.init == "random":  # section 3.4
            model.load_state_dict(AutoModelForMaskedLM.from_config(copy.deepcopy(model.config)).state_dict())
        attention.convert(model, args.attention, positions, run.teacher.tokenizer, **settings)
        return model

    size = args.batch_size
    steps = run.steps_for(args.convert_share, size)
    if args.budget == "paper" and steps:
        size = max(1, TOKENS_PER_STEP // length)
        steps = CONVERT_STEPS
    lr = args.convert_lr or 3e-5 * 768 / run.teacher.model.config.hidden_size
    key: dict[str, Any] = {"stage": "convert", "attention": args.attention, "settings": settings}
    if positions > length:  # otherwise the length says so
        key["positions"] = positions
    if args.init == "random":
        key["init"] = "random"
    if args.convert_corpus:
        texts = text.open_texts(args.convert_corpus, run.task, passes=passes_oscar)
    recipe = text.Recipe(texts, lr, size, length, args.seed, steps, pieces=True, optimizer=CONVERT_OPTIMIZER, more=key)
    return str(text.pretrain(run, "efficient", recipe, build, pretraining_step, source).folder)


def distil(args: Args, run: Run, source: str, texts: Any, length: int, layers: int, keep: str) -> str:
    """A student of so many of the masked LM's layers, which teaches it. The folder of the result."""

    def build(model: PreTrainedModel) -> PreTrainedModel:
        return models.keep_layers(copy.deepcopy(model), keep, layers)

    size = args.batch_size
    steps, epochs = run.steps_for(args.distil_share, size), 0
    if args.budget == "paper" and steps:
        size = max(1, TOKENS_PER_STEP // length)
        steps, epochs = 0, DISTIL_EPOCHS  # 0 steps: so many epochs
    recipe = text.Recipe(
        texts, args.distil_lr, size, length, args.seed, steps, epochs, pieces=True, optimizer=DISTIL_OPTIMIZER,
        smoothing=0.7,  # rare tokens are masked more often: by count^-0.7
        more={"stage": "distil", "layers": layers, "keep": keep},
    )  # fmt: skip
    return str(text.pretrain(run, "efficient", recipe, build, pretraining_step, source).folder)


def before_the_task(args: Args, run: Run, texts: Any) -> str:
    """A row's stages, one after the other, each on the masked LM that the one before it left; the folder (or hub id) of
    the last one. Every row is charged for all of its stages, those that it shares with other rows too."""
    length = short = min(args.short_length, args.max_length)  # tokens of a piece, with full attention
    stages = stages_of(run.variant)
    if attention.kind_of(run.teacher.model.config):  # it is long, and not converted again
        length = args.stage_length or args.max_length
        stages = [name for name in stages if name != "convert"]
    source = run.teacher.pretrained or run.teacher.name
    if any(getattr(args, f"{name}_share") for name in stages):  # a missing masked-LM head is trained first
        source = long.with_lm_head(run, source, texts, min(64, short))
    for name in stages:
        if name == "convert":
            length = args.stage_length or args.max_length
            source = convert(args, run, source, texts, length)
        else:
            layers, keep = depth(args, run.teacher, run.variant)
            source = distil(args, run, source, texts, length, layers, keep)
    return source


def build_student(args: Args, run: Run, texts: Any) -> PreTrainedModel:
    """A row's student before it is fine-tuned: the teacher's layers, or what its stages have made of them."""
    teacher, stages = run.teacher, stages_of(run.variant)
    layers, keep = depth(args, teacher, run.variant)
    if not stages:
        return run.student(keep=keep)
    source = before_the_task(args, run, texts)
    fine_tuned = None if teacher.pretrained else teacher.model  # whose head the student takes over
    student = long.with_task_head(source, run.task.task, teacher.tokenizer, args.seed, fine_tuned)
    name = teacher.name
    if not attention.kind_of(teacher.model.config):
        name = teacher.pretrained or name
        if "convert" in stages and attention.kind_of(student.config) == "longformer":
            attention.copy_globals(student)  # masked language modelling does not reach the projections of global tokens
    # as a table names it: "layers 1,3 of bert then convert then distil"
    layer_names = "all layers"
    if "distil" in stages:
        layer_names = models.named_layers(keep, layers)
    run.started_from = " then ".join((f"{layer_names} of {Path(name).name}", *stages))
    return student


# --- fine-tuning ---------------------------------------------------------------------------------------------


def load_teacher(args: Args, task: TaskData) -> Teacher:
    """The teacher, which needs no head of the task where no row reads its soft labels."""
    teacher_args = replace(args, teacher=long.long_teacher(args, task.task))
    teacher_args = replace(teacher_args, max_length=teacher_length(teacher_args, task))
    teacher = get_teacher(teacher_args, task, headless=not any("kd" in VARIANTS[name] for name in args.variants))
    teacher.name = args.teacher
    teacher.tokenizer.model_max_length = max(teacher.tokenizer.model_max_length, args.max_length)
    return teacher


def teacher_length(args: Args, task: TaskData) -> int:
    """The fine-tuned teacher has full attention: over whole documents of the pocket suite, where that is cheap, and
    otherwise up to `--short-length`. A long teacher reads what its students read. `BadInput` where its soft
    labels would be of less text than the student reads."""
    source = models.source(args.teacher)
    if attention.kind_of(config := models.load_config(source)):
        check_length(args.stage_length or 0, config, models.load_tokenizer(source), "--stage-length")
        return args.max_length
    if args.teacher in models.POCKET and task.task.kind.windowed:
        return args.max_length
    length = min(args.short_length, args.max_length)
    if args.teacher in models.POCKET:
        length = min(args.max_length, 128)  # all positions of pocket models
    if length < args.max_length and "convert-distil-kd" in args.variants:
        raise BadInput(f"--variant convert-distil-kd: the teacher reads {length} tokens and the student"
                       f" {args.max_length}; give a --teacher that is long, or --max-length {length}")  # fmt: skip
    if length < args.max_length:
        check_length(length, config, models.load_tokenizer(source), "--short-length")
    return length


# The paper drops texts of "harmful categories" and does not list them: here those of the UT1 block list, OSCAR's source
HARMFUL = {"adult", "agressif", "cryptojacking", "dangerous_material", "dating", "ddos", "drogue", "gambling",
           "hacking", "malware", "mixed_adult", "phishing", "sect", "stalkerware", "warez"}  # fmt: skip


def passes_oscar(row: dict[str, Any]) -> bool:
    """Section 3.2's filters of OSCAR: English with a probability of 0.8 or more, not tiny, noisy or of short sentences,
    a perplexity of more than 13.51 under a model of harmful text, no harmful category. Others pass."""
    metadata = row.get("metadata") or row.get("meta")
    if not isinstance(metadata, dict) or "identification" not in metadata:
        return True
    language, perplexity = metadata["identification"] or {}, metadata.get("harmful_pp")
    english = language.get("label") == "en" and language.get("prob", 0.0) >= 0.8
    warned = {"tiny", "short_sentences", "noisy"} & set(metadata.get("quality_warnings") or ())
    harmful = HARMFUL & set(metadata.get("categories") or ()) or (perplexity is not None and perplexity <= 13.51)
    return english and not warned and not harmful


def default_corpus(task: TaskData) -> str:
    """The task's own texts; of pocket tasks documents, or the task's with short texts."""
    if task.source != "pocket":
        return "task"
    if task.task.kind.windowed:
        return "pocket-long"
    return "task,pocket-short"


def settings_of(args: Args, variant: str, teacher: Teacher, texts: Any) -> dict[str, Any]:
    """A row's settings besides the arguments, and its own `arguments`. `BadInput` for another width."""
    config = teacher.model.config
    stages = stages_of(variant)
    layers, _ = depth(args, teacher, variant)
    length = args.max_length
    efficient = getattr(config, "efficient_attention", None)  # a teacher that is long already keeps its attention
    if efficient is None and "convert" in stages:
        efficient = attention_settings(args)
    if efficient is None:  # full attention
        length = min(args.short_length, length)
    init = args.init
    if stages or init == "auto":  # a teacher that is only known as it was fine-tuned is where all rows start
        init = "pretrained" if teacher.pretrained else "teacher"
    settings: dict[str, Any] = {
        "arguments": {"max_length": length, "student": f"{layers}x{config.hidden_size}", "init": init},
        "order": ", ".join(stages),
        "corpus": None,
        "convert_corpus": None,
        "document_length": args.max_length,
        "pattern": efficient,
        "labels_alone": "kd" not in VARIANTS[variant],
    }
    if stages:
        settings["corpus"] = texts.signature
    if stages and args.init == "random":
        settings["order"] += " from random weights"
    if args.convert_corpus and "convert" in stages:
        settings["convert_corpus"] = corpus.named(args.convert_corpus)
    return settings


def fine_tune(args: Args, run: Run, texts: Any) -> None:
    """Train the student of a row on the task, on its labels or by vanilla KD, and write its record."""
    student = build_student(args, run, texts)
    teacher = None
    loading = None
    if "kd" in VARIANTS[run.variant]:
        teacher = run.kept_teacher()
    with run.loop({"student": student}, run.lr) as loop:
        for batch in loop:
            t = teacher(batch) if teacher else None
            loop.minimise(baseline(args, batch, student(**batch.inputs), t))
    if attention.kind_of(student.config):
        loading = Loading("from distil_papers.common.layers import attention", "attention.load(folder, {model})")
    run.finish(student, loading=loading)


def main(args: Args) -> None:
    for task in (load(name, **args.source) for name in args.tasks):
        teacher = load_teacher(args, task)
        texts = None
        if any(map(stages_of, args.variants)):
            texts = text.open_texts(args.corpus or default_corpus(task), task, passes=passes_oscar)
        rows = {variant: settings_of(args, variant, teacher, texts) for variant in args.variants}
        epochs = PAPER_EPOCHS.get(task.task.name, 5)
        for run in task_runs(args, "efficient_attention", task, teacher, rows, paper_epochs=epochs):
            fine_tune(args, run, texts)


if __name__ == "__main__":
    execute(main, ARGS)
