"""A teacher that is outputs alone: `--teacher-outputs FILE`, and a student that reads tokens of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from common import data, evaluate, train
from common.args import CommonArgs
from common.errors import BadInput
from common.heads import never_run, warn_of_scale
from common.kept import KeptOutputs
from common.tasks import TaskData
from common.teacher import Teacher, get_start
from pocket.models import POCKET


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
    rows = {split: found.reshape(len(found), -1) for split, found in said.items()}
    metrics = {split: evaluate.scored(task, split, None, found, None) for split, found in rows.items()}
    predictions = {split: scores for split, found in rows.items() if (scores := kind.kept(found)) is not None}
    for split, found in predictions.items():
        evaluate.warn_of_one_answer(f"teacher {file.name}", task, split, None, found)
    kept = KeptOutputs(Path(signature), encoded, base.tokenizer.padding_side, tensors)
    return Teacher(file.name, never_run(base, task), base.tokenizer, signature, metrics, 0.0, predictions, base.source,
                   stored=True, checkpoint=base.checkpoint, kept=kept)  # fmt: skip
