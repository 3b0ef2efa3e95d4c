"""Efficient Transformer knowledge distillation: long inputs, half the layers (Brown et al. 2023).

    python methods/efficient_attention.py                                      # pocket task, minutes on a laptop
    python methods/efficient_attention.py --variant finetune,kd,distil,convert,convert-distil,distil-convert
    python methods/efficient_attention.py --attention lsg --sparsity lsh --task pocket/rte --max-length 128
    python methods/efficient_attention.py --task litbank --data-dir DIR --teacher FacebookAI/roberta-base \
        --max-length 4096 --corpus oscar=part.jsonl.gz,books=books.txt            # OSCAR is filtered as in section 3.2
    python methods/efficient_attention.py --params                             # Table 2's sizes beside counted ones
    python methods/efficient_attention.py --profile                            # time and memory by length, with a plot
    python methods/efficient_attention.py --analyse-data --task pocket/ner     # lengths and tags of NER data, a plot

The paper in ten lines. Encoders such as RoBERTa read 512 tokens, since attention costs the square of the length.
Efficient attentions cost a multiple of it: a sliding window with global tokens (Longformer), blocks with random and
global ones (BigBird), local, sparse and global tokens (LSG), landmarks (Nystromformer). "Convert": put one of them
into a pretrained model, repeat its positions up to 4096 and go on with masked language modelling. "Distil": train a
student of every other layer on the teacher's masked-LM predictions, as DistilBERT was. "Fine-tune": train the student
on a task. The paper converts, then distils, with all four, and keeps most of the teacher's scores at half the time;
it leaves distil-then-convert open, which is a variant here. It finds that long tasks lose more than short ones, and
that a corpus of long and short texts is the best to distil on.

What the paper has -> code
    sections 2 and 4: four attentions      common/attention.py: longformer, bigbird, lsg, nystromformer
    section 3.1: convert                   common/attention.py, convert
    section 3.1: every other layer         halve
    appendix B: the loss, 5 CE + 2 MLM + 1 cosine, T = 2     pretraining_loss
    section 3.1: both orders               VARIANTS, pretrained
    section 4.1, Tables 2 and 4: cost      profile; Table 2's parameters: print_parameters
    sections 3.2 and 4.5: what to distil on    common/corpus.py, corpus_of, `--corpus`
    section 4.3: population-based training     bench/tuning.py, `python -m bench sweep --search population`
    appendix A: what NER data is made of   common/analysis.py, `--analyse-data`

Differences from the paper, and how its gaps are read
    - any encoder of the library that uses its attention interface can be converted, not RoBERTa alone.
    - every other layer is the first, third, ...: [0, 2, 4, 6, 8, 10] of twelve; DistilBERT took [0, 2, 4, 7, 9, 11].
    - padding changes no result. The library's Nystromformer averages padding into its landmarks, and its BigBird has
      a global block at the end of the batch's longest text; here both belong to each text.
    - BigBird's random blocks are the same in training and evaluation; the library draws them in training and sees
      block 0 four times in evaluation. A text of up to 704 tokens gets full attention in both.
    - LSG's hash functions are fixed; the authors draw new ones at every call.
    - Longformer's own projections for global tokens are not trained by masked language modelling, where nothing is
      global: they are copied from the others when it ends. Question tokens are global in question answering.
    - all variants have one budget of steps: those of the converted teacher count as the student's do. Before
      fine-tuning a batch has as many tokens whatever the length of its texts. The pocket suite's documents are
      fine-tuned on short ones first (SHORT_FIRST). 3 epochs over 19 GB are the `paper` budget's business.
    - the rates of the paper's stages are for a width of 768 and batches of 2^18 tokens: `--convert-lr`, `--distil-lr`.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import corpus, stream
from common.args import BadInput, CommonArgs, arg, parse, run, split_list

# What a row's model goes through before it is fine-tuned
VARIANTS: dict[str, tuple[str, ...]] = {
    "finetune": (),  # the undistilled student: full attention
    "kd": (),  # the same, fine-tuned with the fine-tuned teacher's soft labels: vanilla KD, which the paper leaves out
    "distil": ("distil",),
    "convert": ("convert",),  # as deep as the teacher
    "convert-distil": ("convert", "distil"),  # the paper's order
    "distil-convert": ("distil", "convert"),
}
PAPER_EPOCHS = 5


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and those of efficient attention."""

    variant: str = arg("finetune,kd,convert-distil", f"one or several of {', '.join(VARIANTS)}")
    task: str = arg("pocket/rte", "task, or several with commas: pocket/NAME (embedded), or NAME (hub, or --data-dir)")
    budget: str = arg(
        "4800", "examples through the student, as in the other scripts: smoke, quick, ..., a number, 600s"
    )
    student: str = arg("half", "half: every other layer of the teacher's; convert has all of them")
    attention: Literal["longformer", "bigbird", "lsg", "nystromformer"] = arg("longformer", "what to convert to")
    max_length: int = arg(128, "tokens kept of an example by converted models")
    short_length: int = arg(512, "tokens kept of an example, or of a window, by models with full attention")
    window: int | None = arg(
        None,
        "Longformer: tokens seen on each side (256); BigBird, LSG: a block's tokens (64, 128); Nystromformer:"
        " landmarks (64). Default: these; 64 with a pocket teacher",
    )
    global_tokens: int = arg(1, "Longformer: so many first tokens are global; LSG: so many are put before the text")
    random_blocks: int = arg(3, "BigBird: random blocks that a block sees")
    sparsity: Literal["norm", "pooling", "stride", "block_stride", "lsh"] = arg("norm", "LSG: how tokens are chosen")
    corpus: str = arg(
        "auto",
        "text of the stages before fine-tuning, several with commas: task (its training texts), pocket-short,"
        " pocket-long (built in), NAME=FILE (.txt, or .jsonl with a text or as OSCAR has it); or stream:FILE or"
        " stream:hub:NAME alone, which are read as they are used; auto: task, and pocket-short with a pocket task",
    )
    convert_share: float = arg(0.1, "share of the budget for masked language modelling after conversion")
    distil_share: float = arg(0.4, "share of the budget for distillation")
    convert_lr: float | None = arg(None, "peak learning rate after conversion (default: 3e-5 x 768 / width)")
    distil_lr: float | None = arg(None, "peak learning rate of distillation (default: 5e-4)")
    soft_labels: Literal["all", "masked"] = arg("all", "tokens on which teacher and student are compared")
    params: bool = arg(False, "print Table 2's numbers of parameters beside those of models built here; train nothing")
    profile: bool = arg(False, "measure time and memory of every attention by length; train nothing")
    analyse_data: bool = arg(False, "lengths and tags of the tasks of named entities, with a plot; train nothing")

    def check(self) -> None:
        super().check()
        self.check_names("variant", VARIANTS)
        self.check_value("short_length", lambda v: v >= 4, "leave room for text, 4 or more")
        for name in ("window", "global_tokens"):
            self.check_value(name, lambda v: v >= 1, "be 1 or more")
        self.check_value("random_blocks", lambda v: v >= 0, "be 0 or more")
        for name in ("convert_share", "distil_share"):
            self.check_value(name, lambda v: 0 < v < 1, "be between 0 and 1, both excluded")
        for name in ("convert_lr", "distil_lr"):
            self.check_value(name, lambda v: 0 < v < math.inf, "be a number above 0")
        if self.convert_share + self.distil_share >= 1:
            raise BadInput(
                f"--distil-share {self.distil_share}: with --convert-share {self.convert_share} leaves nothing to"
                " fine-tune with; their sum must be below 1"
            )
        if self.attention == "lsg" and (self.window or 128) % 4:
            raise BadInput(f"--window {self.window}: LSG keeps every other token of a block; give a multiple of 4")
        others = [name for name in split_list(self.corpus) if name != "task"]
        if self.corpus.startswith(stream.PREFIX):
            stream.check(self.corpus)
        elif self.corpus != "auto" and (others or not split_list(self.corpus)):
            corpus.check(",".join(others))

    def check_student(self) -> None:
        if self.student != "half":
            raise BadInput(f"--student {self.student}: must be half, every other layer of the teacher's")


def grid(args: Args, variant: str) -> dict[str, tuple[float, ...]]:
    """The paper's search is population-based (bench/tuning.py) and names no range: BERT's rates, which scale with
    768 / width, and of distillation DistilBERT's and half of it."""
    from common import models

    width = models.load_config(models.source(args.teacher)).hidden_size
    space: dict[str, tuple[float, ...]] = {"lr": tuple(lr * 768 / width for lr in (2e-5, 3e-5, 5e-5))}
    return space | ({"distil_lr": (5e-4, 2.5e-4)} if "distil" in VARIANTS[variant] else {})


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import psutil
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    BertModel,
    PreTrainedModel,
)

from common import cache, data, masked_lm, models, parallel, plots, results, speed, teacher_cache, train
from common.analysis import analyse_ner
from common.data import TaskData
from common.layers.attention import ATTENTIONS, convert, copy_globals, install, is_converted, is_longformer, load
from common.run import Loading, Run, compiled
from common.teacher import Teacher, frozen, get_teacher, large_settings

# Shapes: B batch, L length, D width, V vocabulary.


# --- the student: every other layer --------------------------------------------------------------------------


def halve(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with every other layer, the first, third, ...; embeddings, head and conversion stay as they are."""
    student = copy.deepcopy(model)
    N = model.config.num_hidden_layers
    stacks = [(m, k, v) for m in student.base_model.modules() for k, v in m.named_children()
              if isinstance(v, nn.ModuleList) and len(v) == N]  # fmt: skip
    if len(stacks) != 1:
        raise BadInput(f"--teacher: {model.config.model_type} has no single stack of {N} layers to take every other of")
    parent, name, layers = stacks[0]
    setattr(parent, name, nn.ModuleList(layers[::2]))
    student.config.num_hidden_layers = len(layers[::2])
    return student


# --- before fine-tuning: masked language modelling and distillation (appendix B) -----------------------------

TEMPERATURE = 2.0
SOFT, MLM, COSINE = 5.0, 2.0, 1.0
KD_WEIGHT = 0.9  # of the teacher's soft labels in the row kd
SMOOTHING = 0.7  # in distillation rare tokens are masked more often: by count^-0.7
PRETRAINING_CLIP = 5.0
TOKENS = 64  # of a batch before fine-tuning, for each of `--batch-size`: as many whatever the length of its blocks
PRETRAINING_SEED = 0  # one chain of models for all seeds, like a published checkpoint
WARMUP = {"convert": 500 / 3000, "distil": 0.05}


def pretraining_loss(student: Any, teacher: Any | None, labels: Tensor, mask: Tensor, soft_labels: str) -> Tensor:
    """L = 2 L_mlm + 5 L_ce + 1 L_cos (appendix B); without a teacher L_mlm alone.

    Outputs have (B, L, V) logits and hidden states (B, L, D); labels are (B, L), -100 where nothing is masked; mask
    is (B, L). L_ce is T^2 KL(teacher || student), T = 2, and L_cos is 1 - cos of the last hidden states: both are
    means over the tokens that are not padding (L_ce with `masked`: over the masked ones).
    """
    masked = labels >= 0
    mlm = F.cross_entropy(student.logits[masked], labels[masked]) if masked.any() else student.logits.sum() * 0
    mlm = parallel.mean(mlm, masked.sum())
    if teacher is None:
        return mlm
    tokens = mask.bool()
    compared = masked if soft_labels == "masked" else tokens
    # p_i = exp(z_i / T) / sum_j exp(z_j / T)
    s = F.log_softmax(student.logits[compared] / TEMPERATURE, dim=-1)
    t = F.log_softmax(teacher.logits[compared] / TEMPERATURE, dim=-1)
    ce = TEMPERATURE**2 * F.kl_div(s, t, log_target=True, reduction="batchmean") if compared.any() else mlm * 0
    cosine = 1 - F.cosine_similarity(student.hidden_states[-1][tokens], teacher.hidden_states[-1][tokens], dim=-1)
    ce, cosine = parallel.mean(ce, compared.sum()), parallel.mean(cosine.mean(), tokens.sum())
    # L_student = alpha L_mlm + beta L_ce + gamma L_cos
    return MLM * mlm + SOFT * ce + COSINE * cosine


@dataclass(frozen=True)
class Corpus:
    """Unlabelled documents of several named corpora, in a drawn order; `signature` says which and how many. Or the head
    of a stream."""

    texts: list[str]
    signature: str
    flow: stream.Stream | None = None


def corpus_of(args: Args, task: TaskData) -> Corpus:
    """What `--corpus` names: the training texts of the task, without their labels, and mixes of others (table 8)."""
    if flow := stream.of(args.corpus, args.budget):
        return Corpus(flow.head(), flow.signature(), flow)
    names = split_list(args.corpus)
    if names == ["auto"]:
        names = ["task", "pocket-short"] if task.source == "pocket" else ["task"]
    texts, parts = [], []
    if others := ",".join(name for name in names if name != "task"):
        mix = corpus.mix(others)
        texts, parts = mix.texts, [mix.signature]
    if "task" in names:
        own = [" ".join(text.split()) for row in task.splits["train"].texts for text in row]
        own = [text for text in dict.fromkeys(own) if text]
        texts, parts = texts + own, [*parts, f"task:{len(own)}"]
        random.Random(PRETRAINING_SEED).shuffle(texts)
    return Corpus(texts, f"{'+'.join(parts)}#{cache.key({'texts': texts})}")


def settings_of(args: Args) -> dict[str, Any]:
    """The arguments of the attention's class that the command line names."""
    window = args.window or (64 if args.teacher in models.POCKET else None)
    sizes = {
        "longformer": {"window": window},
        "bigbird": {"block": window},
        "lsg": {"block": window, "sparse_block": window},
        "nystromformer": {"landmarks": window},
    }
    own: dict[str, dict[str, Any]] = {
        "longformer": {"first": args.global_tokens},
        "bigbird": {"random": args.random_blocks},
        "lsg": {"sparsity": args.sparsity, "global_count": args.global_tokens},
        "nystromformer": {},
    }
    return (sizes[args.attention] if window else {}) | own[args.attention]


def length_of(args: Args, converted: bool) -> int:
    return args.max_length if converted else min(args.short_length, args.max_length)


def share_of(args: Args, stage: str) -> float:
    """Of the budget."""
    return args.convert_share if stage == "convert" else args.distil_share


def open_checkpoint(args: Args, folder: str) -> tuple[PreTrainedModel, bool]:
    """A masked LM from a folder or the hub, converted or not, and whether its head came with it."""
    config = models.load_config(folder)
    if hasattr(config, "efficient_attention"):
        return load(folder, AutoModelForMaskedLM), True
    return masked_lm.load(folder)


def pretrained(args: Args, cell: Run, teacher: Teacher, texts: Corpus, chain: tuple[str, ...],
               engine: Accelerator) -> tuple[str, train.Ledger]:  # fmt: skip
    """The folder (or hub id) of the masked LM at the end of a chain of stages, and what all of them have cost.

    Each stage is trained on first use and kept under `OUT/cache/efficient/`, for all variants, tasks and seeds that
    share it; every result is charged in full.
    """
    source = teacher.pretrained or teacher.name
    if not chain:
        return source, train.Ledger()
    *before, stage = chain
    parent, spent = pretrained(args, cell, teacher, texts, tuple(before), engine)
    converted = stage == "convert" or "convert" in before
    share = share_of(args, stage)
    width = teacher.model.config.hidden_size
    recipe: dict[str, Any] = {
        "parent": f"{Path(parent).name}@{models.file_digest(Path(parent))}" if Path(parent).is_dir() else parent,
        "stage": stage,
        "texts": texts.signature,
        "length": length_of(args, converted),
        "tokens": args.batch_size * TOKENS,
        "steps": None if cell.steps is None else max(1, round(share * cell.steps)),
        "epochs": None,
        "seconds": None if cell.seconds is None else share * cell.seconds,
        "lr": (args.convert_lr or 3e-5 * 768 / width) if stage == "convert" else args.distil_lr or 5e-4,
        "precision": args.precision,
        "seed": PRETRAINING_SEED,
    }
    if cell.kind == "paper":
        recipe |= {"steps": 3000} if stage == "convert" else {"steps": None, "epochs": 3}
    if stage == "convert":
        recipe |= {"attention": args.attention, "max_length": args.max_length, **settings_of(args)}
    else:
        recipe |= {"soft_labels": args.soft_labels, **large_settings(args)}
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / "efficient" / cache.key(recipe)

    def make(partial: Path) -> dict[str, Any]:
        train.seed_everything(PRETRAINING_SEED)
        model, whole = open_checkpoint(args, parent)
        ledger = train.Ledger()
        blocks = None if recipe["steps"] is None else recipe["steps"] * batch_of(recipe)
        encoded = masked_lm.packed(teacher.tokenizer, texts.texts, recipe["length"], blocks)
        batches: Any = data.Batches(encoded, teacher.tokenizer, batch_of(recipe), PRETRAINING_SEED)
        if flow := texts.flow:
            how = (teacher.tokenizer, recipe["length"], batch_of(recipe))
            batches = stream.Blocks(lambda: flow.drawn(PRETRAINING_SEED), *how)
        model.to(engine.device)  # type: ignore[arg-type]
        if not whole:  # the checkpoint has no such head: one is trained while it still is what it was
            short = masked_lm.packed(teacher.tokenizer, texts.texts, min(TOKENS, length_of(args, False)), 10_000)
            with ledger.clock():
                masked_lm.train_head(model, teacher.tokenizer, short, ledger)
        if stage == "convert":
            convert(model, args.attention, args.max_length, teacher.tokenizer, **settings_of(args))
        student = model if stage == "convert" else halve(model)
        guide = None if stage == "convert" else frozen(model, engine.device, args.teacher_precision)
        pretrain(args, student, guide, teacher.tokenizer, encoded, batches, recipe, folder, ledger, engine)
        if is_longformer(student):
            copy_globals(student)
        models.save(student, teacher.tokenizer, partial, "# A masked language model, made as `stage.json` says\n")
        return {"recipe": recipe, "ledger": asdict(ledger)}

    note = cache.fetch(folder, "stage.json", f"{stage} stage", make)
    own = train.Ledger.of(note)
    own.add(spent)
    return str(folder), own


def batch_of(recipe: dict[str, Any]) -> int:
    """Blocks in a batch."""
    return max(1, recipe["tokens"] // recipe["length"])


def pretrain(
    args: Args, student: PreTrainedModel, guide: PreTrainedModel | None, tokenizer: Any, encoded: data.Encoded,
    batches: Any, recipe: dict[str, Any], folder: Path, ledger: train.Ledger, engine: Accelerator,
) -> None:  # fmt: skip
    """Train a masked LM, with a teacher or without. Killed and started again, it goes on from its checkpoint."""
    stage, distils = recipe["stage"], guide is not None
    weights = masked_lm.token_weights(encoded, tokenizer, SMOOTHING if distils else 0.0)
    student.train()
    optimizer = torch.optim.AdamW(
        student.parameters(), lr=recipe["lr"], betas=(0.9, 0.98 if distils else 0.999), eps=1e-6,
        weight_decay=0.0 if distils else 0.01, fused=True,
    )  # fmt: skip
    own = train.Ledger()
    steps = batches.steps_per_epoch * recipe["epochs"] if recipe["epochs"] else recipe["steps"]
    schedule = train.Schedule(optimizer, own, steps, recipe["seconds"], WARMUP[stage])
    checkpoint = train.Checkpoint(
        folder.with_suffix(".training"), {"student": student}, schedule, cache.key(recipe), args.save_every,
        engine.scaler,
    )  # fmt: skip
    if checkpoint.load(again=True):
        print(f"{stage}: continued at step {own.steps}")
    # nothing is global here: where every text is of full length, no token of it is more important than others
    extra: dict[str, Any] = {}
    model, teacher = compiled(student, args), None if guide is None else compiled(guide, args)
    bar = train.progress(steps or 0, stage, own.steps)
    with checkpoint:
        while schedule.running():
            with own.clock():
                batch = batches[own.steps]
                labels = masked_lm.mask_tokens(batch["input_ids"], batch["attention_mask"], weights, tokenizer)
                batch["labels"] = labels
                loss: Any = 0.0
                for part in parallel.parts(batch, batches.ids(own.steps), args.accumulate):
                    inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                    labels = inputs.pop("labels")
                    if is_longformer(student):
                        extra["global_attention_mask"] = torch.zeros_like(inputs["input_ids"])
                    with engine.autocast(), parallel.randomness(own.steps, part.number):
                        soft = None
                        if teacher is not None:
                            with torch.no_grad():
                                soft = teacher(**inputs, **extra, output_hidden_states=True)
                        out = model(**inputs, **extra, output_hidden_states=distils)
                        term = pretraining_loss(out, soft, labels, inputs["attention_mask"], args.soft_labels)
                        term = part.share * term
                    engine.backward(term)
                    loss += term.detach()
                checkpoint.watch(loss, own.steps, batches.ids)
                train.update(engine, optimizer, student.parameters(), PRETRAINING_CLIP)
                own.count(batch, teachers=int(distils))
                schedule.step()
            bar.update()
            checkpoint.step()
    bar.close()
    ledger.add(own)


# --- fine-tuning ---------------------------------------------------------------------------------------------


def with_head(lm: PreTrainedModel, task: data.Task, tokenizer: Any) -> PreTrainedModel:
    """The body of a masked LM below a new head for the task; conversion stays. For questions, Longformer's question
    tokens become global."""
    config = copy.deepcopy(lm.config)
    for key, value in models.task_settings(task).items():
        setattr(config, key, value)
    if is_longformer(lm) and task.kind == "span QA":
        config.efficient_attention["question"] = tokenizer.sep_token_id
    model = models.HEADS[task.kind].from_config(config, dtype=torch.float32)
    if is_converted(lm):
        install(model)
    lost, unknown = model.base_model.load_state_dict(lm.base_model.state_dict(), strict=False)
    if unknown or any("pooler" not in name for name in lost):  # a masked LM has no pooler
        raise BadInput(f"--teacher: its masked LM and its {task.kind} model have other weights, the first {lost[:1]}")
    return model


# Of fine-tuning on the pocket suite's documents, which are made short and long for it: the share of the steps after
# which longer ones come in, and tokens of the short ones. Looking something up is learnt from short texts in a fraction
# of the time. Real documents are drawn evenly: their short examples are the ends of long ones.
SHORT_FIRST = (0.75, 160)


def task_loss(student: Any, soft: Any | None, inputs: dict[str, Tensor], kind: str) -> Tensor:
    """The loss of the labels, which the library's head has taken; with a teacher's outputs, vanilla KD.

    L = (1 - KD_WEIGHT) L_labels + KD_WEIGHT T^2 KL(teacher || student), a mean over the predictions; of scores, the
    squared distance.
    """
    whole = parallel.mean(student.loss, len(models.predictions(student, inputs, kind)[0][1]))
    if soft is None:
        return whole
    terms = []
    for (own, _), (guide, _) in zip(*(models.predictions(x, inputs, kind) for x in (student, soft)), strict=True):
        if kind == "regression":
            term = F.mse_loss(own, guide)
        else:
            s, t = (F.log_softmax(x / TEMPERATURE, dim=-1) for x in (own, guide))
            term = TEMPERATURE**2 * F.kl_div(s, t, log_target=True, reduction="batchmean")
        terms.append(parallel.mean(term, len(own)))
    return (1 - KD_WEIGHT) * whole + KD_WEIGHT * torch.stack(terms).mean()


class Encodings(dict[int, data.Encoded]):
    """The training documents in windows of a length, tokenised when first asked for."""

    def __init__(self, task: TaskData, tokenizer: Any) -> None:
        self.task, self.tokenizer = task, tokenizer

    def __missing__(self, length: int) -> data.Encoded:
        self[length] = data.encode(self.tokenizer, self.task.splits["train"], self.task.task, length)
        return self[length]


def fine_tune(args: Args, cell: Run, steps: int | None, seconds: float | None, student: PreTrainedModel,
              teacher: Teacher, encodings: Encodings, ledger: train.Ledger, engine: Accelerator) -> None:  # fmt: skip
    """Train the student on the task's labels; in the row kd, with the teacher's outputs beside them."""
    tokenizer, guided = teacher.tokenizer, cell.variant == "kd"
    kind = cell.task.task.kind
    encoded = encodings[cell.args.max_length]
    batches: Any
    if kind in data.WINDOWED and cell.task.source == "pocket" and steps is not None:
        short, tokens = SHORT_FIRST
        batches = data.ShortFirst(encoded, tokenizer, args.batch_size, args.seed, round(short * steps), tokens)
    else:
        batches = cell.batches(encoded, engine.device)
    student.to(engine.device).train()  # type: ignore[arg-type]
    optimizer = train.adamw(student, cell.settings["lr"])
    schedule = train.Schedule(optimizer, ledger, steps, seconds, args=args)
    guide = teacher_cache.guide(args, cell, teacher, encoded, steps, ledger, engine) if guided else None
    checkpoint = train.Checkpoint(
        cell.folder, {"student": student}, schedule, cell.identity, args.save_every, engine.scaler
    )
    if args.resume and checkpoint.load():
        print(f"{cell.variant}: continued at step {ledger.steps}")
    cell.start(ledger.steps)
    model = compiled(student, args)
    bar = train.progress(steps or 0, f"{cell.variant} seed {args.seed}", ledger.steps)
    with checkpoint:
        while schedule.running():
            with ledger.clock():
                batch = batches[ledger.steps]
                loss: Any = 0.0
                for part in parallel.parts(batch, batches.ids(ledger.steps), args.accumulate):
                    inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                    with engine.autocast(), parallel.randomness(ledger.steps, part.number):
                        soft = None
                        if guide is not None:
                            texts = {k: v for k, v in inputs.items() if k != "labels"}
                            soft = guide(part.ids, **texts)
                        own = task_loss(model(**models.inputs_with_labels(inputs, kind)), soft, inputs, kind)
                        own = part.share * own
                    engine.backward(own)
                    loss += own.detach()
                checkpoint.watch(loss, ledger.steps, batches.ids)
                train.update(engine, optimizer, student.parameters())
                ledger.count(batch, teachers=0 if guide is None else guide.charge)
                schedule.step()
            if ledger.steps % 20 == 0:
                cell.log(step=ledger.steps, loss=round(loss.item(), 6))
            bar.update()
            checkpoint.step()
    bar.close()


# --- Table 2: numbers of parameters --------------------------------------------------------------------------

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
# Row, family, configuration, attention, most tokens, and the millions of parameters that Table 2 prints, also of half
# the layers ("-" where it has no such row).
PUBLISHED: tuple[tuple[str, str, dict[str, Any], str | None, int, str, str], ...] = (
    ("BERT-base", "bert", {}, None, 512, "109.5", "-"),
    ("BERT-large", "bert", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                            "intermediate_size": 4096}, None, 512, "335.1", "-"),
    ("RoBERTa", "roberta", BASE | ROBERTA, None, 512, "124.6", "82.1"),
    ("LegalBERT-base", "bert", {}, None, 512, "109.5", "-"),
    ("XLM-R", "xlm-roberta", BASE | ROBERTA | {"vocab_size": 250002}, None, 512, "278.0", "-"),
    ("DistilBERT", "distilbert", {}, None, 512, "66.4", "-"),
    ("TinyBERT", "bert", {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
                          "intermediate_size": 512}, None, 512, "4.4", "-"),
    ("MobileBERT", "mobilebert", {"classifier_activation": False}, None, 512, "24.6", "-"),
    ("ALBERT", "albert", BASE, None, 512, "11.7", "-"),
    ("LSG", "roberta", BASE | ROBERTA, "lsg", 4096, "127.8", "85.3"),
    ("Nystromformer", "roberta", BASE | ROBERTA | {"vocab_size": 30000, "type_vocab_size": 2}, "nystromformer", 4096,
     "111.2", "68.7"),
    ("Longformer", "roberta", BASE | ROBERTA, "longformer", 4096, "148.7", "95.5"),
    ("Big Bird", "bert", {"vocab_size": 50358}, "bigbird", 4096, "127.5", "84.9"),
)  # fmt: skip


class Specials:
    """The ids that LSG asks a tokenizer for, where there is none."""

    cls_token_id, mask_token_id = 2, 4


def count_parameters(
    family: str, settings: dict[str, Any], attention: str | None, length: int, both: bool
) -> tuple[int, int]:  # fmt: skip
    """Parameters of an encoder with its pooler and no other head, and of the one with every other layer; built
    without memory. Nystromformer has no pooler."""
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(family, **settings))
        if attention is not None:
            convert(model, attention, length, Specials)
        if attention == "nystromformer":
            model.pooler = None
        return models.parameters(model), models.parameters(halve(model)) if both else 0


def published_sizes() -> list[tuple[str, str, str, str, float, str]]:
    """Table 2's parameters: (table, row, column, millions as printed, millions counted, remark)."""
    cells = []
    for name, family, settings, attention, length, *printed in PUBLISHED:
        counts = count_parameters(family, settings, attention, length, printed[1] != "-")
        for column, count, cell in zip(("all layers", "half the layers"), counts, printed, strict=True):
            if cell != "-":
                exact = f"{count / 1e6:.1f}" == cell
                close = abs(count / 1e6 - float(cell)) < 0.1
                remark = "ok" if exact else f"cut off, not rounded ({count / 1e6:.1f})" if close else "MISMATCH"
                cells.append(("2-sizes", name, column, cell, count / 1e6, remark))
    return cells


def print_parameters() -> int:
    """Print Table 2's parameters beside those counted; return how many cells disagree by more than a rounding."""
    cells = published_sizes()
    wrong = sum(remark == "MISMATCH" for *_, remark in cells)
    rows = [[f"{row}, {column}", f"{found:.3f}", cell, remark] for _, row, column, cell, found, remark in cells]
    print(results.columns(rows, ["", "counted here (M)", "Table 2 (M)", ""]))
    print(f"\n{len(rows)} cells, {wrong} mismatches.")
    return wrong


# --- time and memory by length (Tables 2 and 4) --------------------------------------------------------------

PROFILE_SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
PROFILE_LENGTHS = (512, 1024, 2048, 4096, 8192)
FULL = ("sdpa", "eager")  # full attention: the library's fused kernel, and the one that holds the scores


def profiled(attention: str, length: int, device: torch.device) -> tuple[PreTrainedModel, Tensor]:
    """A random BERT of `PROFILE_SHAPE` for texts of `length` tokens, and one such text."""
    torch.manual_seed(0)
    model = BertModel(BertConfig(max_position_embeddings=length, **PROFILE_SHAPE)).eval()
    if attention in FULL:
        model.set_attn_implementation(attention)
    else:
        convert(model, attention, length, Specials)
    return model.to(device), torch.randint(5, 1000, (1, length), device=device)  # type: ignore[arg-type]


@torch.no_grad()
def peaks(attention: str, lengths: Sequence[int], device: str) -> list[int]:
    """Bytes that one forward pass adds to the model's, for growing lengths; on CPUs only a process that has done
    nothing larger can tell."""
    found = []
    for length in lengths:
        model, ids = profiled(attention, length, torch.device(device))
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        model(input_ids=ids[:, :8])  # loads what the libraries load late
        held = torch.cuda.memory_allocated() if device == "cuda" else psutil.Process().memory_info().rss
        model(input_ids=ids)
        found.append(max(0, train.peak_memory() - held))
    return found


@parallel.by_main
@torch.no_grad()
def profile(args: Args, engine: Accelerator) -> None:
    """Time, memory and parameters of every attention and of full attention, by length: JSON, a table and a plot.

    One forward pass of one text, no padding, medians of passes that take turns. The plot marks, for each attention,
    the length from which it is faster than the library's fused full attention.
    """
    device = engine.device
    names = [*ATTENTIONS, *FULL]
    table: dict[str, Any] = {name: {"seconds": {}, "bytes": {}, "parameters": {}} for name in names}
    for name in names:
        needed = speed.in_own_process(peaks, name, PROFILE_LENGTHS, device.type)
        table[name]["bytes"] = {str(length): count for length, count in zip(PROFILE_LENGTHS, needed, strict=True)}
    for length in PROFILE_LENGTHS:
        contenders: dict[str, Callable[[], object]] = {}
        for name in names:
            model, ids = profiled(name, length, device)
            table[name]["parameters"][str(length)] = models.parameters(model)

            def once(model: PreTrainedModel = model, ids: Tensor = ids) -> None:
                model(input_ids=ids).last_hidden_state.sum().item()  # waits for a GPU

            contenders[name] = once
        for name, seconds in speed.medians(contenders).items():
            table[name]["seconds"][str(length)] = seconds
    crossings = {name: crossing(table[name]["seconds"], table["sdpa"]["seconds"]) for name in ATTENTIONS}
    shape = f"{PROFILE_SHAPE['num_hidden_layers']}x{PROFILE_SHAPE['hidden_size']}"
    report = {"shape": shape, "attentions": table, "faster_than_sdpa_from": crossings}
    folder = Path(args.out_dir) / "efficient_attention" / "profile" / device.type
    results.write_json(folder / "profile.json", report | {"environment": results.environment()})
    series: dict[str, plots.Line] = {
        name: (PROFILE_LENGTHS, [1000 * s for s in row["seconds"].values()]) for name, row in table.items()
    }
    marks = [length for length in crossings.values() if length is not None]
    plots.lines(series, folder / "profile.png", f"forward pass, {shape}; dotted: faster than sdpa from here", "tokens",
                "ms", marks, log=True)  # fmt: skip
    print(profile_text(report))
    print(f"saved: {folder}")


def crossing(own: dict[str, float], full: dict[str, float]) -> float | None:
    """The length from which `own` stays below `full`, by length: on a straight line of logs between two."""
    lengths, gaps = [int(L) for L in own], [math.log(own[L] / full[L]) for L in own]
    if gaps[-1] >= 0:
        return None
    last = max((i for i, gap in enumerate(gaps) if gap >= 0), default=None)
    if last is None:
        return float(lengths[0])
    share = gaps[last] / (gaps[last] - gaps[last + 1])
    return round(math.exp((1 - share) * math.log(lengths[last]) + share * math.log(lengths[last + 1])))


def profile_text(report: dict[str, Any]) -> str:
    """The table of `profile`, in Markdown."""
    lengths = list(next(iter(report["attentions"].values()))["seconds"])
    lines = ["| attention | parameters | " + " | ".join(f"{L}: ms, MB" for L in lengths) + " | faster than sdpa from |",
             "|---" * (len(lengths) + 3) + "|"]  # fmt: skip
    for name, row in report["attentions"].items():
        cells = [f"{1000 * row['seconds'][L]:.0f}, {row['bytes'][L] / 1e6:.0f}" for L in lengths]
        found = report["faster_than_sdpa_from"].get(name)
        start = "" if name in FULL else "-" if found is None else f"{found:.0f}"
        lines.append(f"| {name} | {row['parameters'][lengths[-1]] / 1e6:.2f}M | {' | '.join(cells)} | {start} |")
    return "\n".join(lines)


# --- main ----------------------------------------------------------------------------------------------------


def run_variant(args: Args, name: str, task: TaskData, teacher: Teacher, texts: Corpus, encodings: Encodings,
                engine: Accelerator) -> dict[str, Any]:  # fmt: skip
    """One row of the table, from its folder if it was run before."""
    chain = VARIANTS[name]
    converted = "convert" in chain
    N, width = teacher.model.config.num_hidden_layers, teacher.model.config.hidden_size
    layers = N if chain == ("convert",) else -(-N // 2)
    own = replace(args, max_length=length_of(args, converted), student=f"{layers}x{width}")
    settings: dict[str, Any] = {"lr": args.lr or models.default_lr(width), "order": ", ".join(chain)}
    settings |= {"corpus": texts.signature if chain else None, "document_length": args.max_length}
    if converted:
        settings |= {"attention": args.attention, "pattern": settings_of(args)}
    cell = Run(own, "efficient_attention", name, task, teacher, PAPER_EPOCHS, settings)
    if (record := cell.finished()) is not None:
        return record
    nothing_left = f"--budget {args.budget}: conversion and distillation leave nothing to fine-tune with; give more"
    if cell.steps is not None and cell.kind != "paper":
        stages = sum(max(1, round(share_of(args, stage) * cell.steps)) for stage in chain)
        if stages >= cell.steps:
            raise BadInput(nothing_left)
    folder, before = pretrained(args, cell, teacher, texts, chain, engine)
    steps = cell.steps if cell.steps is None or cell.kind == "paper" else cell.steps - before.steps
    seconds = None if cell.seconds is None else cell.seconds - before.seconds
    if seconds is not None and seconds <= 0:
        raise BadInput(nothing_left)
    lm, _ = open_checkpoint(args, folder)
    train.seed_everything(args.seed)
    student = with_head(lm if chain else halve(lm), task.task, teacher.tokenizer)
    ledger = train.Ledger()
    fine_tune(args, cell, steps, seconds, student, teacher, encodings, ledger, engine)
    ledger.add(before)
    init = " then ".join((Path(teacher.pretrained or teacher.name).name, *(chain or ("every other layer",))))
    analysis = {"windows_of_reported": windows_of(own, task, teacher.tokenizer)}
    loading = Loading("from common import attention", "attention.load(folder, {model})") if converted else None
    return cell.finish(student, init, ledger, analysis=analysis, loading=loading)


def windows_of(args: Args, task: TaskData, tokenizer: Any) -> int:
    """How many windows (texts) the reported splits have: what examples per second are of."""
    parts = [replace(task, splits={"train": task.splits[name]}) for name in task.reported]
    return sum(data.epoch_size(tokenizer, part, args.max_length) for part in parts)


def teacher_length(args: Args, task: TaskData) -> int:
    """The fine-tuned teacher has full attention: over whole documents of the pocket suite, where that is cheap, and
    otherwise as far as its positions reach."""
    if args.teacher in models.POCKET:
        return args.max_length if task.task.kind in data.WINDOWED else min(args.max_length, 128)
    return min(args.short_length, args.max_length)


def run_task(args: Args, name: str, engine: Accelerator) -> None:
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    teacher = get_teacher(replace(args, max_length=teacher_length(args, task)), args.teacher, task, engine.device)
    teacher.tokenizer.model_max_length = max(teacher.tokenizer.model_max_length, args.max_length)
    texts, encodings = corpus_of(args, task), Encodings(task, teacher.tokenizer)
    rows = [run_variant(args, v, task, teacher, texts, encodings, engine) for v in args.variants]
    print(f"\n{results.table(rows)}")
    for row in rows:
        folder = results.folder_of(args.out_dir, row["method"], row["task"], row["variant"], args.seed)
        print(f"saved: {folder}")


def main(args: Args) -> None:
    if args.params:
        if print_parameters():
            raise SystemExit(1)
        return
    if args.analyse_data:
        folder = Path(args.out_dir) / "efficient_attention" / "data"
        analyse_ner([data.load(name, args.data_dir, limit=args.limit) for name in args.tasks], folder)
        return
    engine = train.accelerator(args)
    if args.profile:
        profile(args, engine)
        return
    for name in args.tasks:
        run_task(args, name, engine)


if __name__ == "__main__":
    run(main, ARGS)
