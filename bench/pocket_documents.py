"""Do the pocket suite's long tasks need a long input? One reader, given 512 tokens at a time, or 2048.

    python -m bench.pocket_documents                  # minutes on two cores; goes on where it was stopped
    python -m bench.pocket_documents --tasks ner --save    # also writes bench/results/pocket_documents.json

The reader is the pocket teacher (4 layers of 128, full attention), the same weights at both lengths: most of its
training documents have less than 512 tokens. Given 512 tokens it reads a document in windows: of ner side by side, of
questions with a quarter in common and the question in each. `guess` is what words alone tell, without reading: for ner
the type that a name has most often in the training data; for questions, any of the context's spans that answers such
questions there.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from common import data, metrics, pocket, results, train, windows
from common.args import CommonArgs
from common.data import TaskData
from common.teacher import get_teacher

TASKS = ("ner", "squad", "hotpot")
LENGTHS = (512, 2048)


def guess(task: TaskData) -> float:
    """The primary metric of a guess without reading, on the reported splits."""
    guessed = _names if task.task.kind == "token classification" else _answers
    return float(np.mean([guessed(task, name) for name in task.reported]))


def _names(task: TaskData, name: str) -> float:
    """Entity F1 if every name has the type that its first word has most often in the training data."""
    counts: dict[str, Counter[str]] = {}
    train_split, split, tags = task.splits["train"], task.splits[name], task.task.labels
    for (text,), row in zip(train_split.texts, train_split.labels, strict=True):
        for word, tag in zip(windows.words(text), row, strict=True):
            if tags[tag].startswith("B-"):
                counts.setdefault(word, Counter())[tags[tag][2:]] += 1
    found, true = [], []
    for (text,), row in zip(split.texts, split.labels, strict=True):
        kind, best = "", []
        for word, tag in zip(windows.words(text), row, strict=True):
            if tags[tag].startswith("B-"):
                kind = counts[word].most_common(1)[0][0] if word in counts else windows.entity_types(task.task)[0]
            best.append("O" if tags[tag] == "O" else f"{tags[tag][:2]}{kind}")
        found.append(best)
        true.append([tags[tag] for tag in row])
    return metrics.entities(found, true, windows.entity_types(task.task))["entity_f1"]


def _answers(task: TaskData, name: str) -> float:
    """Expected F1 of one of the context's spans that answer a training question with the same first word."""
    known: dict[str, set[str]] = {}
    for (question, _), answers in zip(task.splits["train"].texts, task.splits["train"].labels, strict=True):
        known.setdefault(question.split()[0], set()).add(answers[0][0])
    shares = []
    for (question, context), answers in zip(task.splits[name].texts, task.splits[name].labels, strict=True):
        options = [option for option in known[question.split()[0]] if f" {option} " in f" {context} "]
        truths = [text for text, _ in answers]
        shares.append(sum(metrics.answer_f1(option, truths) for option in options) / max(1, len(options)))
    return float(np.mean(shares))


def text(report: dict[str, Any]) -> str:
    """The table, in Markdown."""
    lengths = report["lengths"]
    lines = ["| task | metric | guess | " + " | ".join(f"{n} tokens" for n in lengths) + " |"]
    lines.append("|---|---|---|" + "---|" * len(lengths))
    for name, row in report["tasks"].items():
        cells = [f"{100 * row['guess']:.1f}", *(f"{100 * row['reader'][str(n)]:.1f}" for n in lengths)]
        lines.append(f"| {name} | {metrics.TITLES[row['metric']]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__, "pocket_documents", list(TASKS), allowed=TASKS).parse_args()
    table: dict[str, Any] = {}
    for name in options.tasks:
        task = data.load(f"pocket/{name}")
        primary = metrics.primary(task.task)
        row: dict[str, Any] = {"metric": primary, "guess": guess(task), "data": f"{task.origin}#{task.fingerprint}"}
        args = CommonArgs(task=task.name, max_length=max(LENGTHS), out_dir=str(options.out_dir))
        teacher = get_teacher(args, "pocket", task, train.accelerator(args).device)
        for length in LENGTHS:
            found, _ = train.evaluate(teacher.model, teacher.tokenizer, task, length)
            row.setdefault("reader", {})[str(length)] = float(np.mean([split[primary] for split in found.values()]))
        table[name] = row
    report = {"generator_version": pocket.VERSION, "lengths": list(LENGTHS), "tasks": table}
    path = FOLDER / "pocket_documents.json"
    if options.save and path.exists():  # tasks measured before are kept
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["lengths"] == report["lengths"]:
            table = before["tasks"] | table
    report |= {"environment": results.environment(), "tasks": {name: table[name] for name in TASKS if name in table}}
    print(text(report))
    if options.save:
        results.write_json(path, report)


if __name__ == "__main__":
    main()
