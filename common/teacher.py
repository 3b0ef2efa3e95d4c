"""The teacher: fine-tuned on the task on first use, kept in the cache, shared by all methods.

Its training is not in any ledger. `pocket`, `pocket-6` and `pocket-12` are the suite's own pre-trained BERTs of
4, 6 and 12 layers, for pocket tasks alone (pocket/models.py says what they are for documents, language modelling
and written texts, and which of them are shipped fine-tuned); anything else is a hub id or a folder. It is fine-tuned
unless it has the task's head. A causal language model has its head before it has seen the task's text: it is
fine-tuned like any other, and with `--teacher-epochs 0` used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import convert_to_fp32
from safetensors.numpy import load_file
from transformers import PreTrainedModel

from common import data, evaluate, models, parallel, results, train
from common.args import BadInput, CommonArgs, parse_model
from common.errors import warn
from common.evaluate import Evaluation
from common.tasks import TaskData
from common.train import Batch, Stage
from pocket.models import (
    POCKET,
    pocket_bart,
    pocket_gpt2,
    pocket_recipe,
    shipped_teacher,
)

if TYPE_CHECKING:
    from common.kept import KeptOutputs

# Shapes: B batch, L length, D width.

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
        return 0 if self.stored else self.model.num_parameters()

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
        from common import heads

        return heads.stored_teacher(args, task)
    start = get_start(args, task, name or args.teacher)
    if start.name not in POCKET:
        from common import heads

        start = heads.with_label_map(args, start, task.task.kind)
        if (ready := heads.as_it_is(args, task, start, headless)) is not None:
            return ready
    made = made_teacher(args, task, start)
    model = load_frozen(args, str(made), models.load_config(str(made)), task)
    signature = f"{start.origin}+{task.task.name}#{made.name}"
    return taught(args, task, start, model, signature, start.source)


def taught(args: CommonArgs, task: TaskData, start: Start, model: PreTrainedModel, signature: str,
           pretrained: str | None, ready: bool = False) -> Teacher:  # fmt: skip
    """The teacher that a model with the task's head is, with its scores."""
    kind = task.task.kind
    kind.prepare(model, start.tokenizer, task.task)
    if args.teacher_precision != "fp32":
        signature += f"@{args.teacher_precision}"
    found = evaluated(args, model, start, task)
    if kind.recipe and kind.scale is None:  # no label says how large scores are
        kind.fit(next(iter(found.predictions.values())))
        models.scale_head(model, kind, absent=())
    return Teacher(start.name, model, start.tokenizer, signature, *found, pretrained, ready,
                   checkpoint=start.checkpoint)  # fmt: skip


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
    if not hasattr(config, "hidden_size"):
        raise BadInput(f"{argument} {name}: a {config.model_type} has no layers of one width; a transformer is needed")
    if models.is_decoder(config.model_type) and not kind.causal:
        pad(name, config, tokenizer, argument)
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


def pad(name: str, config: Any, tokenizer: Any, argument: str = "--teacher") -> None:
    """Make a decoder a classifier of batches: it reads the last token that is no padding."""
    usable = {token for token, i in tokenizer.get_vocab().items() if i < config.vocab_size}
    if tokenizer.pad_token not in usable:
        if tokenizer.eos_token not in usable:
            raise BadInput(f"{argument} {name}: its tokenizer has no token for padding, and none for the end of a text")
        tokenizer.pad_token = tokenizer.eos_token
        warn(f"{argument} {name}: its tokenizer has no token for padding; {tokenizer.eos_token} is used")
    config.pad_token_id = tokenizer.pad_token_id


def made_teacher(args: CommonArgs, task: TaskData, start: Start) -> Path:
    """The folder of a teacher with the task's head: one that is shipped with the suite, or that is fine-tuned; off the
    clock."""
    if start.name in POCKET:
        recipe = whole_recipe(args, task, start, pocket_recipe(start.name, task.task, args.max_length))
        if (shipped := shipped_teacher(start.name, recipe)) is not None:
            from common.layers import packed  # with which the library reads its 8-bit weights

            folder, mark = shipped

            def unpack(_: Stage) -> PreTrainedModel:
                config = models.load_config(str(folder))
                return packed.unpacked(models.load_model(str(folder), config, task.task.kind, head=True))

            return cached_teacher(args, start, recipe | {"shipped": mark}, unpack)
    from common import tuning

    if start.name not in POCKET:
        recipe = whole_recipe(args, task, start, tuning.recipe_of(args, task, start))
    return cached_teacher(args, start, recipe, lambda stage: tuning.fine_tuned(stage, task, start))


def whole_recipe(args: CommonArgs, task: TaskData, start: Start, how: dict[str, Any]) -> dict[str, Any]:
    """What decides a fine-tuned teacher: how it is trained, and on what."""
    of_task = {"max_length": args.max_length, "task": task.key, "data": task.fingerprint, "model": start.origin}
    return how | of_task | {"precision": args.precision, "seed": 0} | task.task.kind.recipe


def cached_teacher(args: CommonArgs, start: Start, recipe: dict[str, Any],
                 make: Callable[[Stage], PreTrainedModel]) -> Path:  # fmt: skip
    """The folder of the teacher of a recipe, in the cache; the main process makes it alone, to the same bits however
    many wait for it."""
    return parallel.on_main(lambda: train.shared(args, "teachers", recipe, start.tokenizer, make)).folder


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


def load_frozen(args: CommonArgs, name: str, config: Any, task: TaskData) -> PreTrainedModel:
    """A finished teacher in the precision that the arguments name."""
    return frozen(args, models.load_model(name, config, task.task.kind, True, DTYPES[args.teacher_precision]))


def frozen(args: CommonArgs, model: PreTrainedModel) -> PreTrainedModel:
    """A model that teaches: in evaluation mode, without gradients, in a precision of its own, with float32 outputs."""
    model.to(parallel.device())  # type: ignore[arg-type]  # the library wraps `to` without its types
    if args.teacher_precision != "fp32":
        model.to(DTYPES[args.teacher_precision])  # type: ignore[arg-type]
        model.register_forward_hook(lambda _module, _inputs, outputs: convert_to_fp32(outputs))
    return model.eval().requires_grad_(False)


def check_length(
    max_length: int, config: Any, tokenizer: Any, argument: str = "--max-length", decoder: bool = False
) -> None:
    """`BadInput` if the model, or its `decoder`, has too few positions, or its tokenizer says less."""
    positions = min(models.usable_positions(config, decoder), tokenizer.model_max_length)
    if max_length > positions > 0:
        raise BadInput(f"{argument} {max_length}: the teacher has {positions} positions; give that or less")
