"""Teachers that are fine-tuned here: all but those that came with the task's head, or are shipped with the suite."""

from __future__ import annotations

import math
from typing import Any

from transformers import PreTrainedModel

from common import data, models, parallel
from common.args import CommonArgs
from common.errors import BadInput, tell
from common.evaluate import check_padding
from common.losses import label_loss
from common.tasks import TaskData
from common.teacher import Start
from common.train import Stage
from pocket.curriculum import ShortFirst
from pocket.models import POCKET, embed_as_pocket_bert, encode_as_pocket_bert, why_not_shipped

# A step's part: tokens, and layers x width; 32 texts of 1,024 tokens and BERT-base are one
TOKENS, SIZE = 2**15, 12 * 768


def fine_tuned(stage: Stage, task: TaskData, start: Start) -> PreTrainedModel:
    """A teacher that is fine-tuned on the task, on first use; why, and for how long, is told first."""
    recipe, name = stage.recipe, start.name
    why = why_not_shipped(name, recipe) if name in POCKET else "none with these settings is in the cache"
    tell(f"teacher {name}: {why}, so it is fine-tuned on {task.name} once: {recipe['steps']:,} steps of"
         f" {recipe['batch_size']} examples")  # fmt: skip
    model = begun(task, start)
    if name not in POCKET:
        check_padding(f"--teacher {name}", model, start.tokenizer, task, recipe["max_length"])
    fine_tune(stage, model, start.tokenizer, task, f"teacher {name} on {task.name}")
    return model


def recipe_of(args: CommonArgs, task: TaskData, start: Start) -> dict[str, Any]:
    """How a model that is not the pocket suite's is fine-tuned."""
    if not len(task.labelled):
        raise BadInput(f"--teacher {start.name}: has no head for {task.name}, which has no labels to fine-tune it on;"
                       " give a fine-tuned one, or --teacher-outputs FILE")  # fmt: skip
    if args.teacher_epochs == 0:
        raise BadInput(f"--teacher-epochs 0: {start.name} has no head for {task.name}, it has to be fine-tuned")
    encoded, width = data.encode(start.tokenizer, task.labelled, task.task, args.max_length), start.config.hidden_size
    steps = max(1, round(len(encoded) / args.batch_size * args.teacher_epochs))
    recipe = {"steps": steps, "batch_size": args.batch_size, "lr": 5e-5 * 768 / width}
    larger = max(1.0, sum(models.stack_depths(start.config)) * width / SIZE)
    if (parts := math.ceil(larger * args.batch_size * args.max_length / TOKENS)) > 1:
        recipe["parts"] = parts
    return recipe


def begun(task: TaskData, start: Start) -> PreTrainedModel:
    """A model with a new head of the task, which is to be trained."""
    kind = task.task.kind
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
    return model


def fine_tune(stage: Stage, model: PreTrainedModel, tokenizer: Any, task: TaskData, label: str) -> None:
    """Plain supervised training, as `stage.recipe` says."""
    recipe, kind = stage.recipe, task.task.kind
    encoded = data.encode(tokenizer, task.labelled, task.task, recipe["max_length"])
    how = (encoded, tokenizer, recipe["batch_size"], recipe["seed"])
    batches: Any = data.Batches(*how)
    if "short_steps" in recipe:
        batches = ShortFirst(*how, recipe["short_steps"], recipe["short_tokens"])
    parts = recipe.get("parts", 1)  # whatever --accumulate says: the teacher is the same for all
    with stage.loop(
        {"teacher": model}, batches, recipe["steps"], recipe["lr"], kind=kind, label=label, parts=parts
    ) as loop:
        for batch in loop:
            logits, labels = batch.predictions(model(**batch.inputs))
            loop.minimise(parallel.mean(label_loss(logits, labels)))
