"""The teacher: fine-tuned on the task on first use, cached by signature, shared by all methods.

    OUT/cache/teachers/<signature>/    Hugging Face layout + teacher.json (how it was made, its scores, its digest)

Its training is off every method's clock. `pocket`, `pocket-6` and `pocket-12` are the suite's own pre-trained
BERTs of 4, 6 and 12 layers, for pocket tasks alone; anything else is a hub id or a folder. All are fine-tuned
unless they have the task's head.

For tasks of long documents `pocket` is a BERT that was pre-trained further on 2,048 positions, with full attention
(`python -m common.backbone --long`), and for those of questions then with questions (`--asked`); the deeper ones read
128.

For tasks whose answer is a text they are BARTs: the encoder starts from the BERT, the decoder at random.

For language modelling the three names are GPT-2s of as many layers, trained on pocket/lm from random layers and the
word embeddings of the suite's BERT, which reaches in the same time what twice the text would. A hub id or a folder is
a pre-trained causal language model, which has its head before it has seen the task's text: it is fine-tuned for
`--teacher-epochs` like any other, and with `--teacher-epochs 0` used as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import convert_to_fp32
from torch import nn
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from common import cache, data, models, parallel, train
from common.args import BadInput, CommonArgs
from common.data import TaskData

# Until it has converged on every pocket task, noisy labels included; the same for all of them. The learning rates were
# chosen on dev of cola, the task where too large a step shows first.
POCKET_RECIPE = {"steps": 1500, "batch_size": 32}
POCKET_LR = {"pocket": 3e-4, "pocket-6": 4e-4, "pocket-12": 2.5e-4}
# The first steps read short documents, from which looking something up is learnt in a fraction of the time.
# A document of ner has a label in every line, one of the others a single answer: these need more documents in a step.
POCKET_DOCUMENT_RECIPE = {
    "ner": {"steps": 800, "batch_size": 16, "lr": 1e-3, "short_steps": 600, "short_tokens": 420},
    "squad": {"steps": 700, "batch_size": 32, "lr": 1e-3, "short_steps": 700, "short_tokens": 420},
    "hotpot": {"steps": 360, "batch_size": 48, "lr": 6e-4, "short_steps": 100, "short_tokens": 220},
}
# Of texts to be written: the decoder learns the words of the other language within a few hundred steps.
POCKET_TEXT_RECIPE = {"steps": 700, "batch_size": 32, "lr": 1e-3}
# A batch is 512 tokens, whatever the length of a block: in the same time, many small steps reach further than few
# large ones.
POCKET_LM_RECIPE = {"steps": 1600, "batch_tokens": 512, "lr": 2e-3}


@dataclass
class Teacher:
    """A frozen teacher in evaluation mode, whose logits stand in the order of the task's labels."""

    name: str
    model: PreTrainedModel
    tokenizer: Any
    signature: str
    metrics: dict[str, dict[str, float]]  # reported split -> metric -> value
    speed: float  # inference, examples per second
    bytes: int  # of the weight files
    pretrained: str | None  # what a student can copy its first layers from; None: nothing was pre-trained


def pocket_recipe(name: str, task: data.Task, max_length: int) -> dict[str, Any]:
    """How a pocket teacher is trained on a task of this kind."""
    if task.kind == "language modelling":
        recipe = dict(POCKET_LM_RECIPE)
        return recipe | {"batch_size": max(1, int(recipe.pop("batch_tokens")) // max_length)}
    if task.kind in data.GENERATED:
        return dict(POCKET_TEXT_RECIPE)
    if task.kind in data.WINDOWED:
        return dict(POCKET_DOCUMENT_RECIPE[task.name])
    return POCKET_RECIPE | {"lr": POCKET_LR[name]}


def get_teacher(args: CommonArgs, name: str, task: TaskData, device: torch.device) -> Teacher:
    """Load, or fine-tune and cache, the teacher `name` for the task."""
    if name in models.POCKET and task.source != "pocket":
        raise BadInput(f"--teacher {name}: reads only the pocket suite; {task.name} needs a hub id or a model folder")
    language = task.task.kind == "language modelling"
    written = task.task.kind in data.GENERATED
    scratch = (language or written) and name in models.POCKET
    source: str | None = None if scratch else models.source(name, task.task.kind)
    config: Any
    if source is None:
        config, tokenizer = (models.pocket_bart if written else models.pocket_gpt2)(name)
        origin = f"{name}@{cache.key(config.to_diff_dict())}"
    else:
        config, tokenizer = models.load_config(source), models.load_tokenizer(source)
        origin = f"{Path(name).name}@{models.file_digest(Path(source))}" if Path(source).is_dir() else name
    check_length(args.max_length, config, tokenizer)
    words = max(tokenizer.get_vocab().values(), default=0) + 1
    if words > getattr(config, "vocab_size", words):
        raise BadInput(
            f"--teacher {name}: its tokenizer has {words} words, the model {config.vocab_size} embeddings; they are not"
            " of one model"
        )
    if written and not config.is_encoder_decoder:
        raise BadInput(f"--teacher {name}: is no encoder-decoder, which {task.name} needs; for example a BART or a T5")
    if models.has_head(config, task.task) and (args.teacher_epochs == 0 or not (language or written)):
        # one output cannot be out of order, whatever it is called, and words are their ids
        one = task.task.kind == "regression"
        try:
            order = [0] if one or not task.task.labels else data.label_order(dict(config.id2label or {}), task.task)
        except BadInput as error:
            raise BadInput(f"--teacher {name}: {error}") from error
        if order is not None:
            model = load_frozen(args, name, config, task, device)
            models.set_languages(model, tokenizer, task.task)
            in_task_order(model, order)
            scores, speed = train.evaluate(model, tokenizer, task, args.max_length)
            size = models.weight_bytes(model)
            origin += half(args)
            return Teacher(name, model, tokenizer, origin, scores, speed, size, name if language or written else None)
    if name in models.POCKET:
        recipe = pocket_recipe(name, task.task, args.max_length)
    elif args.teacher_epochs == 0:
        raise BadInput(f"--teacher-epochs 0: {name} has no head for {task.name}, it has to be fine-tuned")
    else:
        epoch = data.epoch_size(tokenizer, task, args.max_length) / args.batch_size
        lr = args.teacher_lr or models.default_lr(config.hidden_size)
        recipe = {"steps": max(1, round(epoch * args.teacher_epochs)), "batch_size": args.batch_size, "lr": lr}
    for key, value in models.task_settings(task.task).items():
        setattr(config, key, value)
    recipe |= {"max_length": args.max_length, "task": task.name, "data": task.fingerprint, "model": origin}
    recipe |= {"precision": args.precision, "seed": 0}
    key = cache.key(recipe)
    signature = f"{origin}+{task.task.name}#{key}"
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / "teachers" / key

    def make(partial: Path) -> dict[str, Any]:
        train.seed_everything(recipe["seed"])
        model = to_device(models.build_student(config, task.task.kind, source), device)
        if source is None and written:
            models.encode_as_pocket_bert(model, name)
        elif source is None:
            models.embed_as_pocket_bert(model)
        models.set_languages(model, tokenizer, task.task)
        if args.gradient_checkpointing:
            models.checkpoint_activations(model)
        fine_tune(model, tokenizer, task, recipe, folder, f"teacher {name} on {task.name}", args.save_every)
        scores, speed = train.evaluate(model, tokenizer, task, args.max_length)
        models.save(model, tokenizer, partial, f"# {signature}\n\nA teacher, made from `teacher.json`.\n")
        return {"signature": signature, "recipe": recipe, "metrics": scores, "speed": speed}

    # off the clock: the main process makes it alone, to the same bits however many wait for it
    note = parallel.on_main(lambda: cache.fetch(folder, "teacher.json", "teacher", make))
    model = load_frozen(args, str(folder), models.load_config(str(folder)), task, device)
    models.set_languages(model, tokenizer, task.task)
    scores, speed = note["metrics"], note["speed"]
    if set(scores) != set(task.reported) or half(args):  # it was made for other splits, or was another then
        scores, speed = train.evaluate(model, tokenizer, task, args.max_length)
    size = models.weight_bytes(model)
    return Teacher(name, model, tokenizer, signature + half(args), scores, speed, size, source)


def fine_tune(
    model: PreTrainedModel, tokenizer: Any, task: TaskData, recipe: dict[str, Any], folder: Path, label: str,
    save_every: float = 30.0,
) -> None:  # fmt: skip
    """Plain supervised training; killed and started again, it goes on from its checkpoint."""
    device = next(model.parameters()).device
    encoded = data.encode(tokenizer, task.splits["train"], task.task, recipe["max_length"])
    how = (encoded, tokenizer, recipe["batch_size"], recipe["seed"])
    staged = "short_steps" in recipe
    batches = data.ShortFirst(*how, recipe["short_steps"], recipe["short_tokens"]) if staged else data.Batches(*how)
    optimizer = train.adamw(model, recipe["lr"])
    ledger = train.Ledger()
    schedule = train.Schedule(optimizer, ledger, steps=recipe["steps"], seconds=None)
    settings = json.dumps(recipe, sort_keys=True)
    checkpoint = train.Checkpoint(folder.with_suffix(".training"), {"teacher": model}, schedule, settings, save_every)
    checkpoint.load(again=True)
    model.train()
    bar = train.progress(recipe["steps"], label, ledger.steps)
    with checkpoint:
        while schedule.running():
            batch = batches[ledger.steps]
            inputs = {k: v.to(device) for k, v in batch.items()}
            # fp16 would need its gradients scaled: such a teacher is trained in float32
            with torch.autocast(device.type, torch.bfloat16, enabled=recipe["precision"] == "bf16"):
                loss = model(**models.inputs_with_labels(inputs, task.task.kind)).loss
            checkpoint.watch(loss, ledger.steps, batches.ids)
            loss.backward()
            clip_grad_norm_(model.parameters(), train.CLIP)
            optimizer.step()
            optimizer.zero_grad()
            ledger.count(batch)
            schedule.step()
            bar.update()
            checkpoint.step()
    bar.close()


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def half(args: CommonArgs) -> str:
    """What a teacher's signature ends with if it is not in float32."""
    return "" if args.teacher_precision == "fp32" else f"@{args.teacher_precision}"


def large_settings(args: CommonArgs) -> dict[str, Any]:
    """`--teacher-precision` and `--accumulate`, settings only where they are not the default."""
    found: dict[str, Any] = {"teacher_precision": args.teacher_precision} if half(args) else {}
    return found | ({"accumulate": args.accumulate} if args.accumulate > 1 else {})


def load_frozen(args: CommonArgs, name: str, config: Any, task: TaskData, device: torch.device) -> PreTrainedModel:
    """A finished teacher, in the precision and at the places that the arguments name."""
    device_map = None if args.teacher_device_map == "off" else args.teacher_device_map
    if device_map is not None and parallel.processes() > 1:
        raise BadInput(f"--teacher-device-map {device_map}: is for one process, which then has all GPUs for itself")
    dtype = DTYPES[args.teacher_precision]
    model = models.load_model(name, config, task.task.kind, head=True, dtype=dtype, device_map=device_map)
    model.config.dtype = torch.float32  # of the students whose configuration is made from it
    return frozen(model, device, args.teacher_precision)


def frozen(model: PreTrainedModel, device: torch.device, precision: str = "fp32") -> PreTrainedModel:
    """A model that teaches: in evaluation mode, without gradients, in a precision of its own; its outputs are float32.

    One that is spread over several devices stays where it is.
    """
    if not hasattr(model, "hf_device_map"):
        model = to_device(model, device)
    if precision != "fp32":
        model.to(DTYPES[precision])  # type: ignore[arg-type]
        model.register_forward_hook(lambda _module, _inputs, outputs: convert_to_fp32(outputs))
    return model.eval().requires_grad_(False)


def to_device(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    return model.to(device)  # type: ignore[arg-type]  # the library wraps `to` without its types


@torch.no_grad()
def in_task_order(model: PreTrainedModel, order: list[int]) -> None:
    """Make a checkpoint's logits follow the task's labels: class i is its output row order[i].

    In every family's head the last linear with as many outputs as classes is the one that gives the logits.
    """
    if order != sorted(order):
        *_, output = (m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == len(order))
        for parameter in output.parameters():
            parameter.copy_(parameter[order])


def check_length(max_length: int, config: Any, tokenizer: Any) -> None:
    """`BadInput` if the model has too few positions; RoBERTa's last ones are not for use, as its tokenizer knows."""
    positions = min(getattr(config, "max_position_embeddings", None) or max_length, tokenizer.model_max_length)
    if max_length > positions:
        raise BadInput(f"--max-length {max_length}: the teacher has {positions} positions; give that or less")
