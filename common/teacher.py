"""The teacher: fine-tuned on the task on first use, kept in the cache, shared by all methods; and its outputs.

Its training is not in any ledger. `pocket`, `pocket-6` and `pocket-12` are the suite's own pre-trained BERTs of
4, 6 and 12 layers, for pocket tasks alone (pocket/models.py says what they are for documents, language modelling
and written texts, and which of them are shipped fine-tuned); anything else is a hub id or a folder. It is fine-tuned
unless it has the task's head. A causal language model has its head before it has seen the task's text: it is
fine-tuned like any other, and with `--teacher-epochs 0` used as it is.

A frozen teacher says the same of an example in every epoch, so that its outputs on the training examples can be
computed once and kept:

    OUT/cache/outputs/<key>/    outputs.safetensors, a row for each example or for each of its tokens; made.json

They are computed in batches of like length, whatever the batches of the training are, so that a row does not depend on
who asked first. The key holds the teacher's weights, the examples' ids and tokens, and how the outputs were computed; a
row is found by its example's id. Every run is charged what the file has cost, or the share of it that its steps read,
whether it has made it or found it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import convert_to_fp32
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from common import data, evaluate, models, parallel, results, train
from common.args import BadInput, CommonArgs, parse_model, split_paths
from common.errors import first_line, tell, warn
from common.evaluate import Evaluation
from common.kinds import Encoded, Kind, Task
from common.kinds.sentences import label_order, renamed
from common.losses import label_loss
from common.tasks import TASKS, TaskData
from common.train import Batch, Ledger, Stage
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

# Shapes: B batch, L length, N examples, n tokens of all examples, D width.

# A step's part when a teacher is fine-tuned: tokens, and layers x width; 32 texts of 1,024 tokens and BERT-base are one
TOKENS, SIZE = 2**15, 12 * 768
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class HiddenStates(dict[int, Tensor]):
    """By layer, (B, L, D): those that were asked for, whether the teacher is run or read from disk."""

    def __missing__(self, layer: int) -> Tensor:
        there = ", ".join(map(str, self)) or "none"
        raise BadInput(f"the teacher's hidden states of layer {layer} were not asked for; those that were: {there}")


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
    # of one that is outputs alone, in `kept`: whose they are, () of a file. Its model says how a student is built
    sources: tuple[Teacher, ...] | None = None
    checkpoint: str = ""  # in keys: what its tokens, and those of what is made of it, are of; "" of a pocket model

    @property
    def bytes(self) -> int:
        """Of the weights as they are held, tied weights once."""
        if self.sources is not None:
            return sum(teacher.bytes for teacher in self.sources)
        return self.model.get_memory_footprint(return_buffers=False)

    @property
    def parameters(self) -> int:
        if self.sources is not None:
            return sum(teacher.parameters for teacher in self.sources)
        return models.parameters(self.model)

    def __call__(self, batch: Batch, layers: Iterable[int] = ()) -> Any:
        wanted = [*self.layers, *layers]
        if wanted and self.sources is not None:
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
            outputs["hidden_states"] = HiddenStates((layer, states[layer]) for layer in wanted)
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
    """The teacher that the arguments say, or another one by its name: a model, or its outputs alone, where they are in
    a file, of several models, or for a student with tokens of its own. `headless`: nobody reads its outputs on the
    task, so that `--teacher-epochs 0` leaves it as it is, without scores of its own."""
    names, base = split_paths(args.teacher), None if name else own_base(args, task)
    if name or (base is None and len(names) == 1):
        return load_teacher(args, task, name or names[0], headless)
    return outputs_alone(args, task, names if args.teacher_outputs is None else [], base)


def load_teacher(args: CommonArgs, task: TaskData, name: str, headless: bool = False) -> Teacher:
    """A model with the task's head: as it came, or fine-tuned and cached."""
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
        if args.label_map and kind.sized and name in split_paths(args.teacher) and args.teacher_outputs is None:
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
            from common.layers import packed

            return packed.unpacked(packed.load(shipped)[0])
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
        batches = data.ShortFirst(*how, recipe["short_steps"], recipe["short_tokens"])
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


# --- outputs alone -------------------------------------------------------------------------------------------


def own_base(args: CommonArgs, task: TaskData) -> Start | None:
    """What a student with tokens of its own is made of: `--tokenizer`, or a checkpoint that `--init` names; None where
    it reads the teacher's."""
    option, name = ("--tokenizer", args.tokenizer) if args.tokenizer else ("--init", args.checkpoint)
    first, kind = split_paths(args.teacher)[0], task.task.kind
    if args.teacher_outputs is not None:
        if name is None and first in POCKET and task.source != "pocket":
            raise BadInput(f"--teacher-outputs {args.teacher_outputs}: has no tokenizer; --init MODEL gives the student"
                           " a checkpoint's weights and tokenizer, --tokenizer MODEL the tokenizer alone")  # fmt: skip
        return get_start(args, task, name or first, option if name else "--teacher")
    if name is None:
        return None
    sources = [(models.source(name), option), (models.source(first, kind), "--teacher")]
    one, other = (models.load_config(*place) for place in sources)
    same = (one.model_type, one.vocab_size) == (other.model_type, other.vocab_size)
    if same:
        with contextlib.nullcontext() if args.tokenizer else contextlib.suppress(BadInput):  # a checkpoint without one
            own, theirs = (models.load_tokenizer(*place).get_vocab() for place in sources)
            same = own == theirs
    if same:
        return None
    args.check_outputs_alone(f"{option} {name}: reads other tokens than the teacher")
    return get_start(args, task, name, option)


def outputs_alone(args: CommonArgs, task: TaskData, names: list[str], base: Start | None) -> Teacher:
    """A teacher that says what these say, the mean of their probabilities, or without names what `--teacher-outputs`
    holds; to a student of `base`, or of the first."""
    kind, examples = task.task.kind, task.splits["train"]
    if kind.outputs != ("logits",) or kind.windowed:
        raise BadInput(f"--task {task.name}: is {kind}; only classes and scores of texts are learnt from outputs alone")
    teachers, cost = [load_teacher(args, task, name) for name in names], Ledger()
    if teachers:
        logits = mean_logits(kind, [spoken(args, one, task, cost) for one in teachers])
        said = {split: mean_logits(kind, [one.predictions[split] for one in teachers]) for split in task.reported}
        name, signature = "+".join(Path(one).name for one in names), "+".join(one.signature for one in teachers)
    else:
        assert examples.outputs is not None, "a task is loaded with its outputs"
        logits, file = examples.outputs, Path(str(args.teacher_outputs))
        there = {split: task.splits[split].outputs for split in task.reported}
        said = {split: found for split, found in there.items() if found is not None and not np.isnan(found).any()}
        warn_of_scale(f"--teacher-outputs {file}", task, {"train": logits[:, 0]} | said)
        if task.task.metrics == ("agreement",) and len(said) < len(there):
            raise BadInput(f"--teacher-outputs {file}: {', '.join(there)} has neither labels nor outputs here; one of"
                           " them is needed to score a student")  # fmt: skip
        name, signature = file.name, f"{file.name}#{train.weights_digest({'logits': torch.from_numpy(logits)})[:12]}"
    if base is None:
        model, tokenizer, pretrained = teachers[0].model, teachers[0].tokenizer, teachers[0].pretrained
        checkpoint = teachers[0].checkpoint
    else:
        model, tokenizer, pretrained = never_run(base, task), base.tokenizer, base.source
        signature, checkpoint = f"{signature}, read by {base.origin}", base.checkpoint
    encoded = data.encode(tokenizer, examples, task.task, args.max_length)
    rows = {split: found.reshape(len(found), -1) for split, found in said.items()}
    metrics = {split: evaluate.scored(task, split, None, found, None) for split, found in rows.items()}
    predictions = {split: scores for split, found in rows.items() if (scores := kind.kept(found)) is not None}
    for split, found in predictions.items():
        evaluate.warn_of_one_answer(f"teacher {name}", task, split, None, found)
    return Teacher(
        name, model, tokenizer, signature, metrics, min((one.speed for one in teachers), default=0.0), predictions,
        pretrained, sources=tuple(teachers), checkpoint=checkpoint,
        kept=KeptOutputs(Path(signature), encoded, tokenizer.padding_side, {"logits": torch.from_numpy(logits)}, cost),
    )  # fmt: skip


def spoken(args: CommonArgs, teacher: Teacher, task: TaskData, cost: Ledger) -> np.ndarray:
    """The logits of a teacher for the training examples, from the cache; their cost is added."""
    encoded = data.encode(teacher.tokenizer, task.splits["train"], task.task, args.max_length)
    found = keep_outputs(replace(args, teacher_cache="on"), teacher, encoded, len(encoded))
    assert found is not None, "ids of examples are unique"
    cost.add(found.cost(len(encoded)))
    return found.tensors["logits"].numpy()


def mean_logits(kind: Kind, logits: list[np.ndarray]) -> np.ndarray:
    """Those of the mean of the probabilities."""
    return kind.logits(np.mean([kind.probabilities(one) for one in logits], axis=0)) if logits[1:] else logits[0]


# --- kept outputs --------------------------------------------------------------------------------------------

BATCH = 128  # examples
MOST = 2**29  # bytes of a file that `--teacher-cache auto` makes
PIECE = 2**24  # bytes that are written at once


def keep_outputs(args: CommonArgs, teacher: Teacher, encoded: Encoded, steps: int) -> KeptOutputs | None:
    """The teacher's outputs on all examples; None if `--teacher-cache` wants none.

    With auto they are kept if the steps see more examples than there are, and if the file is not too large. The hidden
    states of its `layers` are kept too.
    """
    if teacher.sources is not None:
        return teacher.kept
    kind, layers = encoded.kind, tuple(sorted(set(teacher.layers)))
    wanted = args.teacher_cache != "off" and bool(kind.outputs) and len(set(encoded.ids)) == len(encoded)
    if args.teacher_cache == "auto":
        pays = steps * args.batch_size > len(encoded)
        width = teacher.model.config.hidden_size if layers else 0
        wanted = wanted and pays and sum(encoded.lengths) * len(layers) * width * 4 <= MOST
    if not wanted:
        return None
    tokens = {name: torch.from_numpy(values) for name, values in (encoded.flat | {"ends": encoded.ends}).items()}
    recipe = {
        "teacher": teacher.signature,
        "weights": train.weights_digest(teacher.model.state_dict()),
        "examples": [results.digest(encoded.ids), train.weights_digest(tokens)],
        "outputs": [*kind.outputs, *layers],
        "attention": teacher.model.config._attn_implementation,
        "how": [args.precision, args.compile, parallel.device().type, torch.__version__],
    }

    def write(stage: Stage, folder: Path) -> None:
        stage.ledger.teacher_examples = len(encoded)
        folder.mkdir()
        try:
            with stage.ledger.clock():
                write_outputs(folder, teacher, encoded, layers)
        except (OSError, SafetensorError) as error:  # of a full disk, whose room others need
            shutil.rmtree(folder)
            raise OSError(f"{folder.parent}: {first_line(error)}") from error

    made = parallel.on_main(lambda: train.kept(args, "outputs", recipe, write))
    file = made.folder / "outputs.safetensors"
    return KeptOutputs(file, encoded, teacher.tokenizer.padding_side, spent=made.ledger)


@torch.no_grad()
def write_outputs(folder: Path, teacher: Teacher, encoded: Encoded, layers: tuple[int, ...]) -> None:
    """Write outputs.safetensors: (N, ...) or (n, ...) outputs, (n, D) hidden states. Memory does not grow with N."""
    kind = encoded.kind
    side = teacher.tokenizer.padding_side
    tensors: dict[str, Tensor] = {}

    def call(**inputs: Tensor) -> Any:
        with parallel.engine().autocast():
            return teacher.model(**inputs, output_hidden_states=bool(layers))

    called = evaluate.forward(teacher.model, encoded, teacher.tokenizer, BATCH, call, "teacher's outputs")
    for indices, L, outputs in called:
        places, padding = (torch.from_numpy(x) for x in data.places(encoded, indices, L, side))
        tokens = places[~padding]
        rows = [(name, outputs[name], kind.windowed) for name in kind.outputs]
        rows += [(f"hidden_states.{l}", outputs.hidden_states[l], True) for l in layers]
        for name, value, per_token in rows:
            value = value.to("cpu", torch.float32)
            if per_token:
                value = value[~padding]
            if name not in tensors:  # written to disk as it comes
                shape = (int(encoded.ends[-1]) if per_token else len(encoded), *value.shape[1:])
                tensors[name] = mapped(folder / f"{name}.raw", shape)
            tensors[name][tokens if per_token else indices] = value
    save_file(tensors, folder / "outputs.safetensors")
    results.apply_umask(folder / "outputs.safetensors")
    for name in tensors:
        (folder / f"{name}.raw").unlink()


def mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    """A new file's float32 numbers, 0 at first. Its room on the disk is taken now: where there is none later, a write
    into memory would end the process without a line."""
    count = math.prod(shape)
    with path.open("wb") as file:
        for start in range(0, 4 * count, PIECE):
            file.write(bytes(min(PIECE, 4 * count - start)))
    return torch.from_file(str(path), shared=True, size=count).view(shape)


class KeptOutputs:
    """A file that `write_outputs` has written for `encoded`, mapped into memory; or `tensors` with a row for each
    example. `spent` is what they have cost."""

    def __init__(self, path: Path, encoded: Encoded, padding_side: str, tensors: dict[str, Tensor] | None = None,
                 spent: Ledger | None = None) -> None:  # fmt: skip
        self.tensors = load_tensors(path) if tensors is None else tensors
        self.path, self.encoded, self.padding_side, self.spent = path, encoded, padding_side, spent or Ledger()
        self.rows = {example: i for i, example in enumerate(encoded.ids)}

    def cost(self, examples: int, before: int = 0) -> Ledger:
        """What those have cost that are read for so many examples, after others: none is paid for twice."""
        spent, whole = self.spent, len(self.encoded)
        share = (min(whole, before + examples) - min(whole, before)) / whole
        return replace(spent, teacher_examples=round(share * spent.teacher_examples), seconds=share * spent.seconds,
                       shared_seconds=share * spent.shared_seconds)  # fmt: skip

    def read(self, ids: list[str], attention_mask: Tensor) -> Any:
        """The outputs on these examples, float32, where (B, L) `attention_mask` is; as the library names them. Hidden
        states are a mapping of the layers that were kept, (B, L, D), 0 where there is padding."""
        indices = [self.rows[example] for example in ids]
        L, device = attention_mask.shape[1], attention_mask.device
        places, padding = (torch.from_numpy(x) for x in data.places(self.encoded, indices, L, self.padding_side))
        if device.type == "cpu" and not torch.equal(attention_mask == 0, padding):
            raise RuntimeError(f"a batch that does not hold the examples {', '.join(ids)}")
        outputs: dict[str, Any] = {"hidden_states": HiddenStates()}
        for name, tensor in self.tensors.items():
            layer = name.partition(".")[2]
            if layer or self.encoded.kind.windowed:
                value = tensor[places].masked_fill(padding.view(*padding.shape, *[1] * (tensor.ndim - 1)), 0)
            else:
                value = tensor[indices]
            if layer:
                outputs["hidden_states"][int(layer)] = value.to(device)
            else:
                outputs[name] = value.to(device)
        return ModelOutput(**outputs)
