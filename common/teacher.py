"""The teacher: fine-tuned on the task on first use, kept in the cache, shared by all methods.

Its training is not in any ledger. `pocket`, `pocket-6` and `pocket-12` are the suite's own pre-trained BERTs of
4, 6 and 12 layers, for pocket tasks alone (pocket/models.py says what they are for documents, language modelling
and written texts, and which of them are shipped fine-tuned); anything else is a hub id or a folder. It is fine-tuned
unless it has the task's head. A causal language model has its head before it has seen the task's text: it is
fine-tuned like any other, and with `--teacher-epochs 0` used as it is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import convert_to_fp32
from safetensors.numpy import load_file
from torch import nn
from transformers import PreTrainedModel

from common import data, evaluate, models, parallel, results, train
from common.args import BadInput, CommonArgs, parse_model
from common.errors import tell, warn
from common.evaluate import Evaluation
from common.kinds import Task
from common.kinds.sentences import label_order, renamed
from common.losses import label_loss
from common.tasks import TASKS, TaskData
from common.train import Batch, Stage
from pocket.models import (
    POCKET,
    embed_as_pocket_bert,
    encode_as_pocket_bert,
    pocket_bart,
    pocket_gpt2,
    pocket_recipe,
    shipped_teacher,
    why_not_shipped,
)

if TYPE_CHECKING:
    from common.kept import KeptOutputs

# Shapes: B batch, L length, D width.

# A step's part when a teacher is fine-tuned: tokens, and layers x width; 32 texts of 1,024 tokens and BERT-base are one
TOKENS, SIZE = 2**15, 12 * 768
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Teacher:
    """A frozen teacher in evaluation mode, whose logits stand in the order of the task's labels.

    Called with a batch it gives its outputs, without gradient, as the library names them; `hidden_states[l]` for its
    own `layers` and those of the call, of which 0 is the embeddings' output.
    """

    name: str
    model: PreTrainedModel
    tokenizer: Any
    signature: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # reported split -> metric -> value
    speed: float = 0.0  # inference, examples per second
    predictions: dict[str, np.ndarray] = field(default_factory=dict)  # of the reported splits, where a kind has them
    pretrained: str | None = None  # what it was before it was fine-tuned; None: nothing was pre-trained
    ready: bool = False  # whether it came fine-tuned for the task, and what it was before is not known
    kept: KeptOutputs | None = None  # outputs to be read in place of computed ones
    layers: tuple[int, ...] = ()  # whose hidden states every call gives
    stored: bool = False  # whether it is outputs alone, in `kept`: then its model says how a student is built
    checkpoint: str = ""  # in keys: what its tokens, and those of what is made of it, are of; "" of a pocket model

    @property
    def bytes(self) -> int:
        """Of the weights as they are held, tied weights once."""
        return 0 if self.stored else self.model.get_memory_footprint(return_buffers=False)

    @property
    def parameters(self) -> int:
        return 0 if self.stored else models.parameters(self.model)

    def __call__(self, batch: Batch, layers: Iterable[int] = ()) -> Any:
        wanted = [*self.layers, *layers]
        if wanted and self.stored:
            raise BadInput(f"teacher {self.name}: is outputs alone, without hidden states; finetune and kd need none")
        if self.kept is not None:
            outputs = self.kept.read(batch.ids, batch.inputs["attention_mask"])
        else:
            batch.ledger.teacher_examples += batch.examples
            with torch.no_grad():
                outputs = self.model(**batch.inputs, output_hidden_states=bool(wanted))
        states = outputs.get("hidden_states")  # an encoder-decoder's have other names
        if wanted and states is None and not batch.kind.written:
            models.no_hidden_states(self.model)
        if wanted and states is not None:
            outputs["hidden_states"] = models.HiddenStates((layer, states[layer]) for layer in wanted)
        return outputs

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: Any, task: TaskData, max_length: int = 128) -> Teacher:
        """A frozen copy of a model in memory that was fine-tuned on the task. `BadInput` if its outputs are not called
        as the task's labels are: their order would be a guess."""
        name = model.name_or_path or type(model).__name__
        if (order := order_of_outputs(name, model.config, task.task)) is None:
            raise BadInput(f"{name}: its outputs have no names; model.config.id2label says which class each is")
        model = copy.deepcopy(model).eval().requires_grad_(False)
        in_task_order(model, order)
        found = evaluate.evaluate(model, tokenizer, task, max_length, who=f"teacher {name}")
        warn_of_scale(name, task, found.predictions)
        said = [train.weights_digest(model.state_dict()), model.config.to_json_string(), str(data.identity(tokenizer))]
        signature = f"{name}#{results.digest(said)[:12]}"
        return cls(name, model, tokenizer, signature, *found, ready=True, checkpoint=signature)


class Start(NamedTuple):
    """What a teacher is before it has seen the task."""

    name: str
    source: str | None  # a hub id or a folder; None: a pocket model that is begun anew
    config: Any
    tokenizer: Any
    origin: str  # what signatures call it

    @property
    def checkpoint(self) -> str:
        """`Teacher.checkpoint`."""
        return "" if parse_model(self.name)[0] in POCKET else self.origin


def get_teacher(args: CommonArgs, task: TaskData, name: str | None = None, headless: bool = False) -> Teacher:
    """The teacher that the arguments say, or another one by its name: a model with the task's head, as it came, or
    fine-tuned and cached; or outputs alone, where they are in a file. `headless`: nobody reads its outputs on the task,
    so that `--teacher-epochs 0` leaves it as it is, without scores of its own."""
    if name is None and args.teacher_outputs is not None:
        from common.stored import stored_teacher

        return stored_teacher(args, task)
    name = name or args.teacher
    start, kind = get_start(args, task, name), task.task.kind
    order = head_order(args, start, task.task)
    if order is None and headless and args.teacher_epochs == 0 and start.name not in POCKET:
        return Teacher(start.name, never_run(start, task), start.tokenizer, start.origin, pretrained=start.source,
                       checkpoint=start.checkpoint)  # fmt: skip
    if order is not None:  # it is used as it is
        folder, config, signature = start.name, start.config, start.origin
        pretrained = start.name if kind.causal or kind.written else None
    else:
        made = fine_tuned(args, task, start)
        folder, config = str(made), models.load_config(str(made))
        signature, pretrained = f"{start.origin}+{task.task.name}#{made.name}", start.source
    model = load_frozen(args, folder, config, task)
    kind.prepare(model, start.tokenizer, task.task)
    in_task_order(model, order or [])
    if args.teacher_precision != "fp32":
        signature += f"@{args.teacher_precision}"
    found = evaluated(args, model, start, task)
    if order is not None:
        warn_of_scale(f"--teacher {name}", task, found.predictions)
    if kind.recipe and kind.scale is None:  # no label says how large scores are
        kind.fit(next(iter(found.predictions.values())))
        models.scale_head(model, kind, absent=())
    return Teacher(start.name, model, start.tokenizer, signature, *found, pretrained, order is not None,
                   checkpoint=start.checkpoint)  # fmt: skip


def warn_of_scale(who: str, task: TaskData, said: dict[str, np.ndarray]) -> None:
    """Say where a teacher's scores have another scale than the labels: a mean that is more than half of their standard
    deviation away, or less than half, or more than twice, that deviation."""
    for split, found in said.items() if task.task.kind.among(("regression",)) else ():
        labels = [task.splits[name].labelled.labels for name in (split, "train", *task.reported)]
        scores, known = found[~np.isnan(found)], next(filter(None, labels), [0.0])
        spread = float(np.std(known))
        if spread and not (abs(scores.mean() - np.mean(known)) <= spread / 2 <= scores.std() <= 2 * spread):
            ranges = [f"from {np.min(values):.4g} to {np.max(values):.4g}" for values in (scores, known)]
            hint = "students learn its scale; --teacher-outputs FILE with scores on the labels' scale would do"
            return warn(f"{who}: its scores of {split} go {ranges[0]}, the labels {ranges[1]}; {hint}")


def never_run(start: Start, task: TaskData) -> PreTrainedModel:
    """A model without weights, which says how a student is built."""
    start.config.update(task.task.kind.settings(task.task))
    with torch.device("meta"):
        return models.build(start.config, task.task.kind)


def get_start(args: CommonArgs, task: TaskData, name: str, argument: str = "--teacher") -> Start:
    """The model that `name` means for this task. `BadInput` if it cannot read what the task holds."""
    kind = task.task.kind
    if parse_model(name)[0] in POCKET and task.source != "pocket":
        needs = f"{task.name} needs a hub id or a model folder, as pocket/bert"
        raise BadInput(f"{argument} {name}: reads only the pocket suite; {needs}")
    config: Any
    if name in POCKET and (kind.causal or kind.written):
        config, tokenizer = (pocket_bart if kind.written else pocket_gpt2)(name)
        start = Start(name, None, config, tokenizer, f"{name}@{results.digest(config.to_diff_dict())[:12]}")
    else:
        source = models.source(name, kind)
        config, tokenizer = models.load_config(source, argument), models.load_tokenizer(source, argument)
        start = Start(name, source, config, tokenizer, models.model_name(name, whole=True))
        if args.label_map and kind.sized and name == args.teacher and args.teacher_outputs is None:
            config.id2label = dict(enumerate(renamed(args.label_map, list(map(str, range(config.num_labels))))))
            start = start._replace(origin=f"{start.origin}[{args.label_map}]")
    if models.is_decoder(config.model_type) and not kind.causal:
        pad(name, config, tokenizer)
    check_length(args.max_length, config, tokenizer)
    if kind.written:
        check_length(task.task.target_length or args.max_length, config, tokenizer, "--target-max-length", decoder=True)
    words = models.vocabulary_size(tokenizer)
    if words > getattr(config, "vocab_size", words):
        said = f"{argument} {name}: its tokenizer has {words} words, the model {config.vocab_size} embeddings"
        if set(range(config.vocab_size, words)) - set(tokenizer.added_tokens_decoder):
            raise BadInput(said)
        warn(f"{said}: those beyond are marks that no text should hold")  # BART's <mask>, of models of summaries
    if kind.written and not config.is_encoder_decoder:
        raise BadInput(f"{argument} {name}: is no encoder-decoder, which {task.name} needs; for example a BART or a T5")
    return start


def pad(name: str, config: Any, tokenizer: Any) -> None:
    """Make a decoder a classifier of batches: it reads the last token that is no padding."""
    usable = {token for token, i in tokenizer.get_vocab().items() if i < config.vocab_size}
    if tokenizer.pad_token not in usable:
        if tokenizer.eos_token not in usable:
            raise BadInput(f"--teacher {name}: its tokenizer has no token for padding, and none for the end of a text")
        tokenizer.pad_token = tokenizer.eos_token
        warn(f"--teacher {name}: its tokenizer has no token for padding; {tokenizer.eos_token} is used")
    config.pad_token_id = tokenizer.pad_token_id


def fine_tuned(args: CommonArgs, task: TaskData, start: Start) -> Path:
    """The folder of the teacher that was fine-tuned on the task; off the clock."""
    kind, own = task.task.kind, start.name in POCKET
    recipe = pocket_recipe(start.name, task.task, args.max_length) if own else recipe_of(args, task, start)
    recipe |= {"max_length": args.max_length, "task": task.key, "data": task.fingerprint, "model": start.origin}
    recipe |= {"precision": args.precision, "seed": 0} | kind.recipe
    shipped, mark = (shipped_teacher(start.name, recipe) if own else None) or (None, None)

    def make(stage: Stage) -> PreTrainedModel:
        if shipped is not None:
            from common.layers import packed  # with which the library reads its 8-bit weights

            config = models.load_config(str(shipped))
            return packed.unpacked(models.load_model(str(shipped), config, kind, head=True))
        why = why_not_shipped(start.name, recipe) if own else "none with these settings is in the cache"
        tell(f"teacher {start.name}: {why}, so it is fine-tuned on {task.name} once: {recipe['steps']:,} steps of"
             f" {recipe['batch_size']} examples")  # fmt: skip
        start.config.update(kind.settings(task.task))
        if start.source is not None:
            model = models.load_model(start.source, start.config, kind)
        else:
            model = models.build(start.config, kind)
            if kind.written:
                encode_as_pocket_bert(model, start.name)
            else:
                embed_as_pocket_bert(model)
        kind.prepare(model, start.tokenizer, task.task)
        fine_tune(stage, model, start.tokenizer, task, f"teacher {start.name} on {task.name}")
        return model

    recipe |= {"shipped": mark} if mark else {}
    # the main process makes it alone, to the same bits however many wait for it
    return parallel.on_main(lambda: train.shared(args, "teachers", recipe, start.tokenizer, make)).folder


def recipe_of(args: CommonArgs, task: TaskData, start: Start) -> dict[str, Any]:
    """How a model that is not the pocket suite's is fine-tuned."""
    if not len(task.labelled):
        raise BadInput(f"--teacher {start.name}: has no head for {task.name}, which has no labels to fine-tune it on;"
                       " give a fine-tuned one, or --teacher-outputs FILE")  # fmt: skip
    if args.teacher_epochs == 0:
        raise BadInput(f"--teacher-epochs 0: {start.name} has no head for {task.name}, it has to be fine-tuned")
    encoded, width = data.encode(start.tokenizer, task.labelled, task.task, args.max_length), start.config.hidden_size
    steps = max(1, round(len(encoded) / args.batch_size * args.teacher_epochs))
    recipe = {"steps": steps, "batch_size": args.batch_size, "lr": args.teacher_lr or 5e-5 * 768 / width}
    larger = max(1.0, sum(models.stack_depths(start.config)) * width / SIZE)
    if (parts := math.ceil(larger * args.batch_size * args.max_length / TOKENS)) > 1:
        recipe["parts"] = parts
    return recipe


def evaluated(args: CommonArgs, model: PreTrainedModel, start: Start, task: TaskData) -> Evaluation:
    """A teacher on the reported splits: evaluated once, and kept in OUT/cache/evaluations/<key>/."""
    tokenizer = start.tokenizer
    recipe = {
        "weights": train.weights_digest(model.state_dict()),
        "task": [task.key, task.fingerprint, *task.reported, *task.task.metrics],
        "tokens": [results.digest(str(data.identity(tokenizer))), args.max_length],
        "how": [parallel.device().type, torch.__version__],
    }
    if start.checkpoint:  # its configuration, too
        recipe["teacher"] = start.checkpoint

    def write(stage: Stage, folder: Path) -> None:
        found = evaluate.evaluate(model, tokenizer, task, args.max_length, who=f"teacher {start.name}")
        evaluate.save_predictions(folder, found.predictions)
        stage.notes = {"metrics": found.metrics, "speed": found.speed}

    made = parallel.on_main(lambda: train.kept(args, "evaluations", recipe, write))
    predictions = load_file(made.folder / "predictions.safetensors")
    for split, found in predictions.items():
        evaluate.warn_of_one_answer(f"teacher {start.name}", task, split, None, found)
    return Evaluation(**made.notes, predictions=predictions)


def fine_tune(stage: Stage, model: PreTrainedModel, tokenizer: Any, task: TaskData, label: str) -> None:
    """Plain supervised training, as `stage.recipe` says."""
    recipe, kind = stage.recipe, task.task.kind
    encoded = data.encode(tokenizer, task.labelled, task.task, recipe["max_length"])
    how = (encoded, tokenizer, recipe["batch_size"], recipe["seed"])
    batches: Any = data.Batches(*how)
    if "short_steps" in recipe:
        from pocket.curriculum import ShortFirst

        batches = ShortFirst(*how, recipe["short_steps"], recipe["short_tokens"])
    parts = recipe.get("parts", 1)  # whatever --accumulate says: the teacher is the same for all
    with stage.loop(
        {"teacher": model}, batches, recipe["steps"], recipe["lr"], kind=kind, label=label, parts=parts
    ) as loop:
        for batch in loop:
            logits, labels = batch.predictions(model(**batch.inputs))
            loop.minimise(parallel.mean(label_loss(logits, labels)))


def order_of_outputs(name: str, config: Any, task: Task) -> list[int] | None:
    """For each of the task's classes the output of a checkpoint that has its head; None if its labels have no names."""
    if not task.labels:  # one output, or words
        return [0]
    return label_order(dict(config.id2label or {}), task, f"--teacher {name}")


def head_order(args: CommonArgs, start: Start, task: Task) -> list[int] | None:
    """`order_of_outputs` of a teacher that is used as it is; None of one that has to be fine-tuned.

    That is: one without the task's head, or cut, whose head has to learn what the last layer left says; a language
    model, unless `--teacher-epochs 0` says otherwise; and, for data of one's own, whose classes no checkpoint of the
    hub knows, one with other classes.
    """
    name, own, untouched = start.name, task.name not in TASKS, args.teacher_epochs == 0
    language = task.kind.causal or task.kind.written
    if parse_model(name)[1] or (language and not untouched):
        return None
    if not task.kind.has_head(start.config, task):
        other = task.kind.sized and any(part in str(start.config.architectures) for part in task.kind.architectures)
        if other and name not in POCKET:
            said = f"its head has {start.config.num_labels} outputs, {task.name} {len(task.labels) or 1}"
            if args.label_map:
                raise BadInput(f"--label-map {args.label_map}: {said}")
            warn(f"--teacher {name}: {said}; a new one is fine-tuned")
        return None
    try:
        order = order_of_outputs(name, start.config, task)
    except BadInput:
        if not own or untouched or args.label_map:
            raise
        warn(f"--teacher {name}: its outputs have other names than the classes of {task.name}; it is fine-tuned")
        return None
    if order is None:
        example = ",".join(f"{i}={label}" for i, label in enumerate(task.labels[:3]))
        warn(
            f"--teacher {name}: its outputs have no names (LABEL_0, ...), so a new head is fine-tuned; to use it as it"
            f" is, say which is which, as --label-map {example}"
        )
    if own and not task.labels and not untouched:
        warn(f"--teacher {name}: has a head like that of {task.name}; it is used as it is, not fine-tuned")
    return order


def load_frozen(args: CommonArgs, name: str, config: Any, task: TaskData) -> PreTrainedModel:
    """A finished teacher in the precision that the arguments name."""
    return frozen(args, models.load_model(name, config, task.task.kind, True, DTYPES[args.teacher_precision]))


def frozen(args: CommonArgs, model: PreTrainedModel) -> PreTrainedModel:
    """A model that teaches: in evaluation mode, without gradients, in a precision of its own, with float32 outputs."""
    model.to(parallel.device())  # type: ignore[arg-type]  # the library wraps `to` without its types
    if args.teacher_precision != "fp32":
        model.to(DTYPES[args.teacher_precision])  # type: ignore[arg-type]
        model.register_forward_hook(lambda _module, _inputs, outputs: convert_to_fp32(outputs))
    if args.compile:
        model.compile(dynamic=True)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def in_task_order(model: PreTrainedModel, order: list[int]) -> None:
    """Make a checkpoint's logits follow the task's labels: class i is its output row order[i].

    In every family's head the last linear with as many outputs as classes is the one that gives the logits.
    """
    if order != sorted(order):
        *_, output = (m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == len(order))
        for parameter in output.parameters():
            parameter.copy_(parameter[order])
        config: Any = model.config
        config.id2label = {i: config.id2label[column] for i, column in enumerate(order)}
        config.label2id = {name: i for i, name in config.id2label.items()}


def check_length(
    max_length: int, config: Any, tokenizer: Any, argument: str = "--max-length", decoder: bool = False
) -> None:
    """`BadInput` if the model, or its `decoder`, has too few positions, or its tokenizer says less."""
    positions = min(models.usable_positions(config, decoder), tokenizer.model_max_length)
    if max_length > positions > 0:
        raise BadInput(f"{argument} {max_length}: the teacher has {positions} positions; give that or less")
