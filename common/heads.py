"""Teachers that come fine-tuned: a checkpoint with the task's head, a model in memory, or outputs alone, in a file.

A head gives numbers; which class each of them belongs to, its configuration says by name. A student of outputs alone
reads tokens of its own.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from common import data, evaluate, models, results, train
from common.args import CommonArgs
from common.errors import BadInput, warn
from common.kept import KeptOutputs
from common.kinds import Kind, Task
from common.kinds.names import label_order, renamed
from common.tasks import TASKS, TaskData
from common.teacher import Start, Teacher, get_start, load_frozen, taught
from common.values import parse_model
from pocket.models import POCKET


def with_label_map(args: CommonArgs, start: Start, kind: Kind) -> Start:
    """A checkpoint whose outputs have the names of `--label-map`."""
    if not (args.label_map and kind.sized and start.name == args.teacher):
        return start
    config = start.config
    config.id2label = dict(enumerate(renamed(args.label_map, list(map(str, range(config.num_labels))))))
    return start._replace(origin=f"{start.origin}[{args.label_map}]")


def as_it_is(args: CommonArgs, task: TaskData, start: Start, headless: bool) -> Teacher | None:
    """The teacher that needs no fine-tuning; None: it has to be fine-tuned."""
    kind, order = task.task.kind, head_order(args, start, task.task)
    pretrained = start.name if kind.causal or kind.written else None
    if order is not None:
        model = load_frozen(args, start.name, start.config, task)
        in_task_order(model, order)
        evaluate.check_padding(f"--teacher {start.name}", model, start.tokenizer, task, args.max_length)
        teacher = taught(args, task, start, model, start.origin, pretrained, ready=True)
        warn_of_scale(f"--teacher {start.name}", task, teacher.predictions)
        return teacher
    if headless and args.teacher_epochs == 0:
        return Teacher(start.name, never_run(start, task), start.tokenizer, start.origin, pretrained=start.source,
                       checkpoint=start.checkpoint)  # fmt: skip
    return None


def teacher_of(model: PreTrainedModel, tokenizer: Any, task: TaskData, max_length: int = 128) -> Teacher:
    """A frozen copy of a model in memory that was fine-tuned on the task. `BadInput` if its outputs are not called as
    the task's labels are: their order would be a guess."""
    name = model.name_or_path or type(model).__name__
    if (order := order_of_outputs(name, model.config, task.task)) is None:
        raise BadInput(f"{name}: its outputs have no names; model.config.id2label says which class each is")
    model = copy.deepcopy(model).eval().requires_grad_(False)
    in_task_order(model, order)
    evaluate.check_padding(f"teacher {name}", model, tokenizer, task, max_length)
    found = evaluate.evaluate(model, tokenizer, task, max_length, who=f"teacher {name}")
    warn_of_scale(name, task, found.predictions)
    said = [train.weights_digest(model.state_dict()), model.config.to_json_string(), str(data.identity(tokenizer))]
    signature = f"{name}#{results.digest(said)[:12]}"
    return Teacher(name, model, tokenizer, signature, *found, ready=True, checkpoint=signature)


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
        if other:
            said = f", {start.config.problem_type}".replace("_", " ") if start.config.problem_type else ""
            said = f"its head has {start.config.num_labels} outputs{said}, {task.name} {len(task.labels) or 1}"
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


def never_run(start: Start, task: TaskData) -> PreTrainedModel:
    """A model without weights, which says how a student is built."""
    start.config.update(task.task.kind.settings(task.task))
    with torch.device("meta"):
        return models.build(start.config, task.task.kind)


def stored_teacher(args: CommonArgs, task: TaskData) -> Teacher:
    """What `--teacher-outputs` holds, to a student that reads the tokens of `--teacher`, or `--init`."""
    file, kind, examples = Path(str(args.teacher_outputs)), task.task.kind, task.splits["train"]
    option, name = "--teacher", args.teacher
    if args.checkpoint and name in POCKET:
        option, name = "--init", args.checkpoint
    if name in POCKET and task.source != "pocket":
        raise BadInput(f"--teacher-outputs {file}: has no tokenizer; --init MODEL gives the student a checkpoint's"
                       " weights and tokens, --teacher MODEL the tokens alone")  # fmt: skip
    base = get_start(args, task, name, option)
    if kind.outputs != ("logits",) or kind.windowed:
        raise BadInput(f"--task {task.name}: is {kind}; only classes and scores of texts are learnt from outputs alone")
    assert examples.outputs is not None, "a task is loaded with its outputs"
    logits = examples.outputs
    there = {split: task.splits[split].outputs for split in task.reported}
    said = {split: found for split, found in there.items() if found is not None and not np.isnan(found).any()}
    warn_of_scale(f"--teacher-outputs {file}", task, {"train": logits[:, 0]} | said)
    if task.task.metrics == ("agreement",) and len(said) < len(there):
        raise BadInput(f"--teacher-outputs {file}: {', '.join(there)} has neither labels nor outputs here; one of"
                       " them is needed to score a student")  # fmt: skip
    tensors = {"logits": torch.from_numpy(logits)}
    signature = f"{file.name}#{train.weights_digest(tensors)[:12]}, read by {base.origin}"
    encoded = data.encode(base.tokenizer, examples, task.task, args.max_length)
    metrics = {split: evaluate.scored(task, split, None, found) for split, found in said.items()}
    predictions = {split: scores for split, found in said.items() if (scores := kind.kept(found)) is not None}
    for split, found in predictions.items():
        evaluate.warn_of_one_answer(f"teacher {file.name}", task, split, None, found)
    kept = KeptOutputs(Path(signature), encoded, base.tokenizer.padding_side, tensors)
    return Teacher(file.name, never_run(base, task), base.tokenizer, signature, metrics, 0.0, predictions, base.source,
                   stored=True, checkpoint=base.checkpoint, kept=kept)  # fmt: skip
