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

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import convert_to_fp32
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from common import data, evaluate, models, parallel, results, train
from common.args import BadInput, CommonArgs, parse_model
from common.errors import warn
from common.evaluate import Evaluation
from common.kinds import Encoded, Task
from common.kinds.sentences import label_order
from common.layers import packed
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
)

# Shapes: B batch, L length, N examples, n tokens of all examples, D width.

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class HiddenStates(dict[int, Tensor]):
    """By layer, (B, L, D): those that were asked for, whether the teacher is run or read from disk."""

    def __missing__(self, layer: int) -> Tensor:
        there = ", ".join(map(str, self)) or "none"
        raise BadInput(
            f"the teacher's hidden states of layer {layer}: were not asked for; the loop's layers are {there}"
        )


@dataclass
class Teacher:
    """A frozen teacher in evaluation mode, whose logits stand in the order of the task's labels.

    Called with a batch it gives its outputs, without gradient, as the library names them; `hidden_states[l]` for the
    `layers` that the loop was given or, without a loop, the call, of which 0 is the embeddings' output.
    """

    name: str
    model: PreTrainedModel
    tokenizer: Any
    signature: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # reported split -> metric -> value
    speed: float = 0.0  # inference, examples per second
    predictions: dict[str, np.ndarray] = field(default_factory=dict)  # of the reported splits, where a kind has them
    pretrained: str | None = None  # what it was before it was fine-tuned; None: nothing was pre-trained
    kept: KeptOutputs | None = None  # outputs to be read in place of computed ones
    layers: tuple[int, ...] = ()  # whose hidden states the loop at hand has asked for

    @property
    def bytes(self) -> int:
        """Of the weights as they are held, tied weights once."""
        return self.model.get_memory_footprint(return_buffers=False)

    def __call__(self, batch: Batch, layers: Iterable[int] = ()) -> Any:
        wanted = list(dict.fromkeys([*self.layers, *layers]))
        if self.kept is not None:
            outputs = self.kept.read(batch.ids, batch.inputs["attention_mask"])
            states = outputs.hidden_states
        else:
            batch.ledger.teacher_examples += batch.examples
            with torch.no_grad():
                outputs = self.model(**batch.inputs, output_hidden_states=bool(wanted))
            states = outputs.get("hidden_states")  # an encoder-decoder's have other names
        if wanted and states is not None:
            outputs["hidden_states"] = HiddenStates((layer, states[layer]) for layer in wanted)
        return outputs

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: Any, task: TaskData, max_length: int = 128) -> Teacher:
        """A model in memory that was fine-tuned on the task, and from now on is frozen. `BadInput` if its outputs are
        not called as the task's labels are: their order would be a guess."""
        name = model.name_or_path or type(model).__name__
        if (order := order_of_outputs(name, model.config, task.task)) is None:
            raise BadInput(f"{name}: its outputs have no names; model.config.id2label says which class each is")
        in_task_order(model, order)
        model.eval().requires_grad_(False)
        found = evaluate.evaluate(model, tokenizer, task, max_length)
        weights = train.digest(model.state_dict())
        return cls(name, model, tokenizer, f"{name}#{weights[:12]}", *found)


def get_teacher(args: CommonArgs, task: TaskData, name: str | None = None) -> Teacher:
    """Load, or fine-tune and cache, a teacher (`--teacher` unless another is named) for the task."""
    name = name or args.teacher
    kind = task.task.kind
    base, layers = parse_model(name)
    if base in POCKET and task.source != "pocket":
        raise BadInput(f"--teacher {name}: reads only the pocket suite; {task.name} needs a hub id or a model folder")
    language, written = kind.causal, kind.written
    scratch = (language or written) and name in POCKET
    source: str | None = None if scratch else models.source(name, kind)
    config: Any
    if source is None:
        config, tokenizer = (pocket_bart if written else pocket_gpt2)(name)
        origin = f"{name}@{train.key(config.to_diff_dict())}"
    else:
        config, tokenizer = models.load_config(source), models.load_tokenizer(source)
        origin = models.model_name(name)
    check_length(args.max_length, config, tokenizer)
    words = max(tokenizer.get_vocab().values(), default=0) + 1
    if words > getattr(config, "vocab_size", words):
        said = f"--teacher {name}: its tokenizer has {words} words, the model {config.vocab_size} embeddings"
        if set(range(config.vocab_size, words)) - set(tokenizer.added_tokens_decoder):
            raise BadInput(said)
        warn(f"{said}: those beyond are marks that no text should hold")  # BART's <mask>, of models of summaries
    if written and not config.is_encoder_decoder:
        raise BadInput(f"--teacher {name}: is no encoder-decoder, which {task.name} needs; for example a BART or a T5")
    half = "" if args.teacher_precision == "fp32" else f"@{args.teacher_precision}"
    order = None
    # of a model that is cut, the head has to learn what the last layer left says
    if not layers and kind.has_head(config, task.task) and (args.teacher_epochs == 0 or not (language or written)):
        order = head_order(args, name, config, task.task)
    if order is not None:  # it is used as it is
        model = load_frozen(args, name, config, task)
        kind.prepare(model, tokenizer, task.task)
        in_task_order(model, order)
        found = evaluated(args, model, tokenizer, task)
        return Teacher(name, model, tokenizer, origin + half, *found, name if language or written else None)
    if name in POCKET:
        recipe = pocket_recipe(name, task.task, args.max_length)
    elif args.teacher_epochs == 0:
        raise BadInput(f"--teacher-epochs 0: {name} has no head for {task.name}, it has to be fine-tuned")
    else:
        epoch = len(data.encode(tokenizer, task.splits["train"], task.task, args.max_length)) / args.batch_size
        lr = args.teacher_lr or 5e-5 * 768 / config.hidden_size
        recipe = {"steps": max(1, round(epoch * args.teacher_epochs)), "batch_size": args.batch_size, "lr": lr}
    for key, value in kind.settings(task.task).items():
        setattr(config, key, value)
    recipe |= {"max_length": args.max_length, "task": task.name, "data": task.fingerprint, "model": origin}
    recipe |= {"precision": args.precision, "seed": 0}
    shipped = shipped_teacher(name, recipe) if name in POCKET else None
    if shipped is not None:
        recipe |= {"shipped": shipped[1]}

    def make(stage: Stage) -> PreTrainedModel:
        if shipped is not None:
            model = packed.unpacked(packed.load(shipped[0])[0])
        else:
            model = models.load_model(source, config, kind) if source else models.build(config, kind)
            if scratch and written:
                encode_as_pocket_bert(model, name)
            elif scratch:
                embed_as_pocket_bert(model)
            kind.prepare(model, tokenizer, task.task)
            fine_tune(stage, model, tokenizer, task, f"teacher {name} on {task.name}")
        return model

    # off the clock: the main process makes it alone, to the same bits however many wait for it
    made = parallel.on_main(lambda: train.shared(args, "teachers", recipe, tokenizer, make))
    model = load_frozen(args, str(made.folder), models.load_config(str(made.folder)), task)
    kind.prepare(model, tokenizer, task.task)
    signature = f"{origin}+{task.task.name}#{made.folder.name}{half}"
    return Teacher(name, model, tokenizer, signature, *evaluated(args, model, tokenizer, task), source)


def evaluated(args: CommonArgs, model: PreTrainedModel, tokenizer: Any, task: TaskData) -> Evaluation:
    """A teacher on the reported splits: evaluated once, and kept in OUT/cache/evaluations/<key>/."""
    recipe = {
        "weights": train.digest(model.state_dict()),
        "task": [task.name, task.fingerprint, *task.reported],
        "max_length": args.max_length,
        "how": [parallel.device().type, torch.__version__],
    }
    folder = train.cache_folder(args) / "evaluations" / train.key(recipe)

    def fill(partial: Path) -> dict[str, Any]:
        found = evaluate.evaluate(model, tokenizer, task, args.max_length)
        evaluate.save_predictions(partial, found.predictions)
        return {"recipe": recipe, "metrics": found.metrics, "speed": found.speed}

    note = parallel.on_main(lambda: train.kept(folder, fill))
    return Evaluation(note["metrics"], note["speed"], load_file(folder / "predictions.safetensors"))


def fine_tune(stage: Stage, model: PreTrainedModel, tokenizer: Any, task: TaskData, label: str) -> None:
    """Plain supervised training, as `stage.recipe` says."""
    recipe, kind = stage.recipe, task.task.kind
    encoded = data.encode(tokenizer, task.splits["train"], task.task, recipe["max_length"])
    how = (encoded, tokenizer, recipe["batch_size"], recipe["seed"])
    short_first = "short_steps" in recipe
    batches: Any = data.Batches(*how)
    if short_first:
        batches = data.ShortFirst(*how, recipe["short_steps"], recipe["short_tokens"])
    # whatever --accumulate says: the teacher is the same for all
    with stage.loop(
        {"teacher": model}, batches, recipe["steps"], recipe["lr"], kind=kind, label=label, parts=1
    ) as loop:
        for batch in loop:
            logits, labels = batch.predictions(model(**batch.inputs))
            loop.minimise(parallel.mean(label_loss(logits, labels)))


def order_of_outputs(name: str, config: Any, task: Task) -> list[int] | None:
    """For each of the task's classes the output of a checkpoint that has its head; None if its labels have no names."""
    if not task.labels:  # one output, and words, cannot be out of order
        return [0]
    try:
        return label_order(dict(config.id2label or {}), task)
    except BadInput as error:
        raise BadInput(f"--teacher {name}: {error}") from error


def head_order(args: CommonArgs, name: str, config: Any, task: Task) -> list[int] | None:
    """`order_of_outputs` of a teacher that has a head. For data of one's own, whose classes no checkpoint of the hub
    knows, one with other classes is fine-tuned like one without a head."""
    try:
        order = order_of_outputs(name, config, task)
    except BadInput:
        if task.name in TASKS or args.teacher_epochs == 0:
            raise
        warn(f"--teacher {name}: its outputs have other names than the classes of {task.name}; it is fine-tuned")
        return None
    if task.name not in TASKS and not task.labels and args.teacher_epochs > 0:
        warn(f"--teacher {name}: has a head like that of {task.name}; it is used as it is, not fine-tuned")
    return order


def load_frozen(args: CommonArgs, name: str, config: Any, task: TaskData) -> PreTrainedModel:
    """A finished teacher in the precision that the arguments name."""
    model = models.load_model(name, config, task.task.kind, head=True, dtype=DTYPES[args.teacher_precision])
    model.config.dtype = torch.float32  # of the students whose configuration is made from it
    return frozen(args, model)


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


def check_length(max_length: int, config: Any, tokenizer: Any, argument: str = "--max-length") -> None:
    """`BadInput` if the model has too few positions; RoBERTa's last ones are not for use, as its tokenizer knows.

    T5 and XLNet have relative positions, without an end.
    """
    positions = getattr(config, "max_position_embeddings", None) or -1  # XLNet says -1
    positions = min(positions, tokenizer.model_max_length)
    if max_length > positions > 0:
        raise BadInput(f"{argument} {max_length}: the teacher has {positions} positions; give that or less")


# --- kept outputs --------------------------------------------------------------------------------------------

BATCH = 128  # examples
MOST = 2**29  # bytes of a file that `--teacher-cache auto` makes


def keep_outputs(args: CommonArgs, teacher: Teacher, encoded: Encoded, steps: int,
                 layers: tuple[int, ...]) -> tuple[KeptOutputs, Ledger] | None:  # fmt: skip
    """The teacher's outputs on all examples, and what they have cost; None if `--teacher-cache` wants none.

    With auto they are kept if the steps see more examples than there are, and if the file is not too large. `layers`:
    whose hidden states are kept too.
    """
    kind = encoded.kind
    wanted = args.teacher_cache != "off" and bool(kind.outputs) and len(set(encoded.ids)) == len(encoded)
    if args.teacher_cache == "auto":
        pays = steps * args.batch_size > len(encoded)
        wanted = wanted and pays and sum(encoded.lengths) * len(layers) * teacher.model.config.hidden_size * 4 <= MOST
    if not wanted:
        return None
    tokens = encoded.flat | {"ends": encoded.ends}
    recipe = {
        "teacher": teacher.signature,
        "weights": train.digest(teacher.model.state_dict()),
        "examples": [results.digest(encoded.ids), train.digest({k: torch.from_numpy(v) for k, v in tokens.items()})],
        "outputs": [*kind.outputs, *layers],
        "attention": teacher.model.config._attn_implementation,
        "how": [args.precision, args.compile, parallel.device().type, torch.__version__],
    }
    folder = train.cache_folder(args) / "outputs" / train.key(recipe)

    def fill(partial: Path) -> dict[str, Any]:
        spent = Ledger(teacher_examples=len(encoded))
        partial.mkdir()
        with spent.clock():
            write_outputs(partial, teacher, encoded, layers)
        return {"recipe": recipe, "ledger": asdict(spent)}

    note = parallel.on_main(lambda: train.kept(folder, fill))
    cost = Ledger(**note["ledger"])
    share = min(1.0, steps * args.batch_size / len(encoded))  # of the file, which the steps read
    cost.teacher_examples, cost.seconds = round(share * cost.teacher_examples), share * cost.seconds
    cost.shared_seconds = 0.0 if note["fresh"] else cost.seconds
    return KeptOutputs(folder / "outputs.safetensors", encoded, teacher.tokenizer.padding_side), cost


@torch.no_grad()
def write_outputs(folder: Path, teacher: Teacher, encoded: Encoded, layers: tuple[int, ...]) -> None:
    """Write outputs.safetensors: (N, ...) or (n, ...) outputs, (n, D) hidden states. Memory does not grow with N."""
    kind = encoded.kind
    side = teacher.tokenizer.padding_side
    tensors: dict[str, Tensor] = {}
    bar = evaluate.progress(len(encoded), "teacher's outputs")
    for indices, batch in data.eval_batches(encoded, teacher.tokenizer, BATCH):
        inputs = {k: v.to(parallel.device()) for k, v in batch.items() if k != "labels"}
        with parallel.engine().autocast():
            outputs = teacher.model(**inputs, output_hidden_states=bool(layers))
        places, padding = (
            torch.from_numpy(x) for x in data.places(encoded, indices, inputs["input_ids"].shape[1], side)
        )
        tokens = places[~padding]
        rows = [(name, outputs[name], kind.by_token) for name in kind.outputs]
        rows += [(f"hidden_states.{l}", outputs.hidden_states[l], True) for l in layers]
        for name, value, per_token in rows:
            value = value.to("cpu", torch.float32)
            if per_token:
                value = value[~padding]
            if name not in tensors:  # written to disk as it comes
                shape = (int(encoded.ends[-1]) if per_token else len(encoded), *value.shape[1:])
                raw = torch.from_file(str(folder / f"{name}.raw"), True, torch.Size(shape).numel())
                tensors[name] = raw.view(shape)
            tensors[name][tokens if per_token else indices] = value
        bar.update(len(indices))
    bar.close()
    save_file(tensors, folder / "outputs.safetensors", metadata={"by_token": str(int(kind.by_token))})
    results.apply_umask(folder / "outputs.safetensors")
    for name in tensors:
        (folder / f"{name}.raw").unlink()


class KeptOutputs:
    """A file that `write_outputs` has written for `encoded`, mapped into memory."""

    def __init__(self, path: Path, encoded: Encoded, padding_side: str) -> None:
        with safe_open(path, "pt") as file:
            self.tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.by_token = file.metadata()["by_token"] == "1"
        self.path, self.encoded, self.padding_side = path, encoded, padding_side
        self.rows = {example: i for i, example in enumerate(encoded.ids)}

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
            if layer or self.by_token:
                value = tensor[places].masked_fill(padding.view(*padding.shape, *[1] * (tensor.ndim - 1)), 0)
            else:
                value = tensor[indices]
            if layer:
                outputs["hidden_states"][int(layer)] = value.to(device)
            else:
                outputs[name] = value.to(device)
        return ModelOutput(**outputs)
