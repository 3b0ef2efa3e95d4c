"""Evaluation: what a model says of the reported splits, and what that is worth. How, the task's kind knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn

from common import data, models, parallel
from common.errors import BadInput, refused, shown, warn_once
from common.kinds import Encoded
from common.results import replacing
from common.tasks import TaskData

# Metric -> as tables print it
TITLES = {
    **{"accuracy": "Acc", "f1": "F1", "macro_f1": "macro F1", "micro_f1": "micro F1", "matthews": "MCC"},
    **{"majority": "largest class", "pearson": "Pearson", "spearman": "Spearman", "entity_f1": "entity F1"},
    **{"answer_f1": "F1", "exact_match": "EM", "perplexity": "PPL", "token_probability": "1/PPL", "bleu": "BLEU"},
    **{"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"},
    "agreement": "agreement",  # of splits without labels
}


class Evaluation(NamedTuple):
    """What a model says of the reported splits."""

    metrics: dict[str, dict[str, float]]
    speed: float  # examples, of texts windows, per second of the forward passes
    # (N, C) logits or (N,) scores of each split, float32; {} for tags, spans and texts
    predictions: dict[str, np.ndarray]


def save_predictions(folder: Path, predictions: dict[str, np.ndarray]) -> None:
    """Write `predictions.safetensors`: a tensor for each split, its rows in the split's order."""
    with replacing(folder / "predictions.safetensors") as partial:
        save_file(predictions, partial)


@torch.no_grad()
def forward(
    model: nn.Module, encoded: Encoded, tokenizer: Any, batch_size: int,
    call: Callable[..., Any] | None = None, label: str = "evaluating",
) -> Iterator[tuple[list[int], int, Any]]:  # fmt: skip
    """What the model, or `call`, says of each example in evaluation mode: indices, padded length, output of a batch."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    bar = parallel.progress(len(encoded), label)
    for indices, batch in data.eval_batches(encoded, tokenizer, batch_size):
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        yield indices, inputs["input_ids"].shape[1], (call or model)(**inputs)
        bar.update(len(indices))
    bar.close()
    model.train(was_training)


def scored(task: TaskData, name: str, given: Any, found: Any, teacher: Any = None) -> dict[str, float]:
    """The metrics of what a model says of a split."""
    kind = task.task.kind
    if task.task.metrics != ("agreement",):
        return kind.scores(task.task, task.splits[name], given, found)
    said: Any = kind.kept(found)
    return {"agreement": kind.agreement(said, said if teacher is None else teacher[name])}


def warn_of_one_answer(who: str, task: TaskData, name: str, given: Any, found: Any) -> None:
    """Say where a model gives all examples of a split the same answer, of which there are several."""
    split = task.splits[name]
    answers = task.task.kind.decided(task.task, split, given, found)
    several = len({str(label) for label in split.labels if label is not None}) != 1
    if len(answers) > 1 and len(set(answers)) == 1 and several:
        warn_once(f"{who}: gives all {len(answers):,} answers on {name} as {shown(answers[0])}: it has learnt nothing")


@torch.no_grad()
def check_padding(who: str, model: Any, tokenizer: Any, task: TaskData, max_length: int) -> None:
    """Raises BadInput for a model that says something else of a text where padding stands beside it: its answers would
    depend on who shares its batch."""
    kind, training = task.task.kind, model.training
    if kind.outputs != ("logits",) or kind.windowed:
        return
    encoded = data.encode(tokenizer, task.splits[task.reported[0]], task.task, max_length)
    short, long = (pick(range(len(encoded)), key=encoded.lengths.__getitem__) for pick in (min, max))
    model.eval()
    with refused(f"{who}: cannot read texts of {task.name}"):
        batches = (data.collate(tokenizer, encoded, rows) for rows in ([short], [short, long]))
        alone, beside = (model(**{k: v.to(model.device) for k, v in batch.items() if k != "labels"}).logits[0].float()
                         for batch in batches)  # fmt: skip
    model.train(training)
    exact = next(model.parameters()).dtype == torch.float32
    if (far := float((alone - beside).abs().max())) > (1e-3 if exact else 0.1) * max(1.0, float(alone.abs().max())):
        raise BadInput(f"{who}: padding on the {tokenizer.padding_side} of a text changes its logits by {far:.2g}; the"
                       " other side (padding_side in tokenizer_config.json), or another model, is needed")  # fmt: skip


@parallel.by_main
def evaluate(
    model: nn.Module, tokenizer: Any, task: TaskData, max_length: int, folder: Path | None = None,
    teacher: dict[str, np.ndarray] | None = None, who: str | None = None,
) -> Evaluation:  # fmt: skip
    """Metrics and predictions of every reported split. Without labels a split's metric is the agreement with the
    teacher's predictions; the teacher's own is 1.

    `who`: how a warning calls a model that gives all examples one answer; None: it is not said.
    Texts that were written, and those they are compared with, are kept in `folder`, one a line: what sacreBLEU's own
    command takes, `sacrebleu test.reference.txt -i A/test.written.txt B/test.written.txt --paired-bs`.
    """
    scores, predictions, examples, seconds = {}, {}, 0, 0.0
    models.check_finite(model, f"the model for {task.name}")
    kind = task.task.kind
    for name in task.reported:
        split = task.splits[name]
        given: Any = kind.stream(tokenizer, split)
        if given is None:
            given = data.encode(tokenizer, split, task.task, max_length)
        started = time.perf_counter()
        found, count = kind.predict(model, given, tokenizer, task.task.target_length or max_length, forward)
        seconds += time.perf_counter() - started
        examples += count
        scores[name] = scored(task, name, given, found, teacher)
        if who is not None:
            warn_of_one_answer(who, task, name, given, found)
        for metric, value in scores[name].items():
            if not np.isfinite(value):
                raise BadInput(f"the {metric} on {name} is {value}: try a lower --lr")
        if (kept := kind.kept(found)) is not None:
            predictions[name] = kept
        if kind.written and folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for file, lines in (("written", found), ("reference", split.labels)):
                whole = "".join(f"{' '.join(text.split())}\n" for text in lines)
                (folder / f"{name}.{file}.txt").write_text(whole, encoding="utf-8")
    return Evaluation(scores, examples / seconds, predictions)
