"""What the pocket suite is worth: bag of words, teacher, undistilled student and vanilla KD on every task.

    python -m bench.pocket_suite --seeds 5             # about an hour on two cores; goes on where it was stopped
    python -m bench.pocket_suite --seeds 1 --tasks sst2,rte
    python -m bench.pocket_suite --seeds 5 --save      # also writes bench/results/pocket_suite.json, where tasks
                                                       # measured before in the same way are kept

The suite exists to leave room for distillation. Four figures say whether it does: the teacher's mean over the
tasks (0.85 or more, none under 0.70), its lead over bag of words (15 points or more), over the undistilled
student (8 or more), and the share of that last gap that vanilla KD closes (a third or more), with an interval
over the seeds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from bench.stats import cell, interval
from common import data, metrics, pocket, results
from common.data import TaskData
from methods import mc3kd


def bag_of_words(task: TaskData) -> float:
    """Primary metric, mean over the reported splits, of a linear model over words and pairs of words."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    regression = task.task.kind == "regression"
    linear: Any = Ridge() if regression else LogisticRegression(max_iter=1000)
    model = make_pipeline(CountVectorizer(ngram_range=(1, 2), token_pattern=r"\S+"), linear)
    texts = {name: [" [SEP] ".join(text) for text in split.texts] for name, split in task.splits.items()}
    model.fit(texts["train"], task.splits["train"].labels)
    primary = metrics.primary(task.task)
    return float(
        np.mean(
            [metrics.compute(task.task, model.predict(texts[s]), task.splits[s].labels)[primary] for s in task.reported]
        )
    )


def measure(tasks: list[str], seeds: list[int], out_dir: Path) -> dict[str, Any]:
    """Primary metrics per task: bag of words and teacher once, finetune and kd per seed."""
    table: dict[str, Any] = {}
    for name in tasks:
        task = data.load(f"pocket/{name}")
        row: dict[str, Any] = {"metric": metrics.primary(task.task), "bag_of_words": bag_of_words(task)}
        for seed in seeds:
            args = mc3kd.Args(
                task=f"pocket/{name}", variant="finetune,kd", seed=seed, out_dir=str(out_dir), resume=True
            )
            mc3kd.main(args)
            for variant in args.variants:
                folder = results.folder_of(out_dir, "mc3kd", args.task, variant, seed)
                record = results.load(folder / "result.json")
                row.setdefault(variant, []).append(record["primary"]["value"])
            scores = record["teacher"]["metrics"].values()
            row["teacher"] = float(np.mean([split[row["metric"]] for split in scores]))
            row["comparable"] = record["comparable"]
        table[name] = row
    return table


def summary(table: dict[str, Any]) -> dict[str, Any]:
    """The suite's figures: means over the tasks, and intervals over the seeds."""
    rows = table.values()
    teacher = float(np.mean([row["teacher"] for row in rows]))
    finetune = np.mean([row["finetune"] for row in rows], axis=0)  # per seed
    kd = np.mean([row["kd"] for row in rows], axis=0)
    return {
        "teacher": teacher,
        "lowest_teacher": min(row["teacher"] for row in rows),
        "lead_over_bag_of_words": teacher - float(np.mean([row["bag_of_words"] for row in rows])),
        "lead_over_finetune": interval(list(teacher - finetune)),
        "kd_minus_finetune": interval(list(kd - finetune)),
        "share_recovered": interval(list((kd - finetune) / (teacher - finetune))),
    }


def text(report: dict[str, Any]) -> str:
    """The table and the figures, in Markdown."""
    lines = ["| task | metric | bag of words | teacher | undistilled | KD |", "|---|---|---|---|---|---|"]
    for name, row in report["tasks"].items():
        lines.append(
            f"| {name} | {metrics.TITLES[row['metric']]} | {100 * row['bag_of_words']:.1f} | {100 * row['teacher']:.1f}"
            f" | {cell(row['finetune'])} | {cell(row['kd'])} |"
        )
    columns = ("bag_of_words", "teacher", "finetune", "kd")
    means = [100 * np.mean([np.mean(row[k]) for row in report["tasks"].values()]) for k in columns]
    lines.append("| **mean** | | " + " | ".join(f"**{value:.1f}**" for value in means) + " |")
    figures = report["summary"]
    count = len(report["seeds"])
    coverage = f"95% intervals over {count} seeds" if count > 1 else "one seed, so no interval"

    def points(name: str) -> str:
        mean, low, high = figures[name]
        return f"{100 * mean:.1f}" + ("" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]")

    lines += [
        "",
        f"Teacher over bag of words: {100 * figures['lead_over_bag_of_words']:.1f} points. Teacher over the undistilled"
        f" student: {points('lead_over_finetune')} points. KD over the undistilled student:"
        f" {points('kd_minus_finetune')} points, {points('share_recovered')}% of that gap"
        f" ({coverage}; student {report['student']}, budget {report['budget']}).",
    ]
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__, "pocket_suite", list(pocket.TASKS)).parse_args()
    table = measure(options.tasks, options.seeds, options.out_dir)
    defaults = mc3kd.Args()
    how = {"generator_version": pocket.VERSION, "seeds": options.seeds}
    how |= {"student": defaults.student, "budget": defaults.budget}
    path = FOLDER / "pocket_suite.json"
    if options.save and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if all(before[key] == value for key, value in how.items()):
            table = before["tasks"] | table
    table = {name: table[name] for name in pocket.TASKS if name in table}
    report = {**how, "environment": results.environment(), "tasks": table, "summary": summary(table)}
    print(text(report))
    if options.save:
        results.write_json(path, report)


if __name__ == "__main__":
    main()
