"""GLUE's test splits, whose labels its server alone has: predictions as it takes them (`--write-test`).

write(run, student)                        # <result>/test/CoLA.tsv: index, prediction
"""

from __future__ import annotations

from typing import Any

from common import data, evaluate
from common.kinds import Split, Task
from common.results import replacing
from common.sources import test_texts

# Task -> its test splits, and what the server calls their files
FILES = {name: {"test": file} for name, file in (
    ("cola", "CoLA"), ("sst2", "SST-2"), ("mrpc", "MRPC"), ("stsb", "STS-B"), ("qqp", "QQP"), ("qnli", "QNLI"),
    ("rte", "RTE"), ("wnli", "WNLI"))}  # fmt: skip
FILES["mnli"] = {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"}
SPELT = ("mnli", "qnli", "rte")  # whose classes the server takes by name; of the others by number


def write(run: Any, student: Any) -> None:
    """The student's predictions for every test split of the run's task, beside its result."""
    task, tokenizer = run.task.task, run.teacher.tokenizer
    for split, texts in test_texts(task, run.args.data_dir, FILES[task.name]).items():
        examples = Split([f"{split}-{i}" for i in range(len(texts))], texts, [0] * len(texts))
        given = data.encode(tokenizer, examples, task, run.args.max_length)
        found, _ = task.kind.predict(student, given, tokenizer, run.args.max_length, evaluate.forward)
        path = run.folder / "test" / f"{FILES[task.name][split]}.tsv"
        lines = [f"{i}\t{prediction}\n" for i, prediction in enumerate(predictions_of(task, found))]
        with replacing(path) as partial:
            partial.write_text("".join(["index\tprediction\n", *lines]), encoding="utf-8")


def predictions_of(task: Task, found: Any) -> list[str]:
    """As the server takes them: a score, a class by its name, or by its number."""
    if not task.labels:
        low, high = task.score_range or (0.0, 5.0)
        return [f"{min(max(float(score), low), high):.3f}" for score in found]
    numbers = [int(row.argmax()) for row in found]
    named = task.name in SPELT or task.name == "stsb"  # of which a class of 21 is a score
    return [task.labels[number] if named else str(number) for number in numbers]
