"""GLUE's test splits, whose labels its server alone has: predictions as it takes them (`--write-test`).

texts = test_texts(task, data_dir)         # of the hub, or of DIR/<task>/test.tsv, as GLUE lays them out
write(run, student)                        # <result>/test/CoLA.tsv: index, prediction
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from common import data, evaluate
from common.errors import BadInput
from common.kinds import Split, Task
from common.results import replacing
from common.sources import _OFFICIAL_COLUMNS, HUB, _load

# Task -> its test splits, and what the server calls their files
FILES = {name: {"test": file} for name, file in (
    ("cola", "CoLA"), ("sst2", "SST-2"), ("mrpc", "MRPC"), ("stsb", "STS-B"), ("qqp", "QQP"), ("qnli", "QNLI"),
    ("rte", "RTE"), ("wnli", "WNLI"))}  # fmt: skip
FILES["mnli"] = {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"}
SPELT = ("mnli", "qnli", "rte")  # whose classes the server takes by name; of the others by number


def test_texts(task: Task, data_dir: str | None) -> dict[str, list[tuple[str, ...]]]:
    """The texts of each test split, in the order of their indices; `BadInput` where there are none."""
    if data_dir is None:
        source = HUB[task.name]
        found, _ = _load(task.name, source.repo, source.config, source.revision, "--data-dir DIR with GLUE's test.tsv")
        return {split: list(zip(*(found[split][source.columns[field]] for field in task.fields), strict=True))
                for split in FILES[task.name]}  # fmt: skip
    root = Path(data_dir).expanduser()
    folder = next(path for path in (root / task.folder, root / task.name, root) if path.is_dir())
    return {split: _texts_of(folder / f"{split}.tsv", task) for split in FILES[task.name]}


def _texts_of(path: Path, task: Task) -> list[tuple[str, ...]]:
    if not path.is_file():
        raise BadInput(f"--write-test: {path} is not there; it is GLUE's file of texts without labels")
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    official = _OFFICIAL_COLUMNS.get(task.name, {})
    names = [field if field in header else official.get(field, field) for field in task.fields]
    if lacking := [name for name in names if name not in header]:
        raise BadInput(f"{path}: no column {lacking[0]!r}, only {', '.join(header)}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise BadInput(f"{path} line {number}: {len(row)} columns where {len(header)} are needed")
    return [tuple(row[header.index(name)] for name in names) for row in rows]


def write(run: Any, student: Any) -> None:
    """The student's predictions for every test split of the run's task, beside its result."""
    task, tokenizer = run.task.task, run.teacher.tokenizer
    for split, texts in test_texts(task, run.args.data_dir).items():
        examples = Split([f"{split}-{i}" for i in range(len(texts))], texts, [0] * len(texts))
        given = data.encode(tokenizer, examples, task, run.args.max_length)
        found, _ = task.kind.predict(student, given, tokenizer, run.args.max_length, evaluate.forward)
        path = run.folder / "test" / f"{FILES[task.name][split]}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
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
