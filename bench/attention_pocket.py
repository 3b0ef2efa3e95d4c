"""Efficient attention on the pocket suite: long documents and short texts, converted, distilled, in both orders.

    python -m bench.attention_pocket --seeds 5                 # hours on one core; goes on where it was stopped
    python -m bench.attention_pocket --tasks ner --seeds 1
    python -m bench.attention_pocket --seeds 5 --save          # also writes bench/results/attention_pocket.json

ner is tagged, and hotpot answered, over documents of 1,500 to 2,000 words: with windows of 512 tokens by the students
with full attention, and at once, in 2048 tokens, by the converted ones. rte and mrpc are short texts. A task's rows
have one budget; conversion and distillation are part of it. Retention is the score as a share of the teacher's. The
report holds texts per second and seconds of training too; the table leaves them out, since runs of different hours on
one machine do not compare: `methods/efficient_attention.py --profile` measures speed, in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import metrics, pocket, results
from methods import efficient_attention as ea

LONG: dict[str, Any] = {
    "max_length": 2048,
    "short_length": 512,
    "window": 64,
    "global_tokens": 64,
    "batch_size": 16,
    "lr": 1e-3,
}
SHORT: dict[str, Any] = {"max_length": 128, "short_length": 128, "window": 16, "batch_size": 32}
TASKS = {"ner": LONG | {"budget": "4800"}, "hotpot": LONG | {"budget": "4800"}}
TASKS |= {name: SHORT | {"budget": "12800"} for name in ("rte", "mrpc")}


def measure(name: str, seeds: list[int], out_dir: Path) -> dict[str, Any]:
    """The teacher's figure, and for every variant its scores, speed and cost."""
    rows: dict[str, Any] = {variant: {"scores": [], "seconds": [], "speed": []} for variant in ea.VARIANTS}
    for seed in seeds:
        settings: dict[str, Any] = TASKS[name] | {
            "seed": seed,
            "out_dir": str(out_dir),
            "resume": True,
        }
        args = ea.Args(task=f"pocket/{name}", variant=",".join(ea.VARIANTS), **settings)
        args.check()
        ea.main(args)
        for variant, row in rows.items():
            path = results.folder_of(out_dir, "efficient_attention", args.task, variant, seed) / "result.json"
            record = results.load(path)
            texts = sum(pocket.SIZES[name][split] for split in record["metrics"])
            row["scores"].append(record["primary"]["value"])
            row["seconds"].append(record["ledger"]["seconds"])
            # of whole documents: a student of short windows reads each in several
            row["speed"].append(record["student"]["speed"] * texts / record["analysis"]["windows_of_reported"])
            row |= {"parameters": record["student"]["parameters"], "shape": record["student"]["shape"]}
    metric = record["primary"]["name"]
    teacher = float(np.mean([split[metric] for split in record["teacher"]["metrics"].values()]))
    row = {"metric": metric, "teacher": teacher, "budget": args.budget, "comparable": record["comparable"]}
    return row | {"parameters": record["teacher"]["parameters"], "variants": rows}


def text(report: dict[str, Any]) -> str:
    """The table, and what each step adds, in Markdown."""
    lines = ["| task | | parameters | score | retention |", "|---" * 5 + "|"]
    for name, table in report["tasks"].items():
        title = f"{name}, {metrics.TITLES[table['metric']]}"
        lines.append(f"| {title} | *teacher* | {table['parameters'] / 1e6:.2f}M | {100 * table['teacher']:.1f} | |")
        for variant, row in table["variants"].items():
            kept = 100 * np.mean(row["scores"]) / table["teacher"]
            cells = f"{cell(row['scores'])} | {kept:.1f}%"
            lines.append(f"| {title} | {variant} {row['shape']} | {row['parameters'] / 1e6:.2f}M | {cells} |")
    pairs = (
        ("kd", "finetune"),
        ("distil", "finetune"),
        ("convert-distil", "finetune"),
        ("convert-distil", "distil"),
        ("distil-convert", "convert-distil"),
        ("convert-distil", "convert"),
    )
    lines += ["", "| task | " + " | ".join(f"{a} over {b}" for a, b in pairs) + " |", "|---" * (len(pairs) + 1) + "|"]
    for name, table in report["tasks"].items():
        rows = table["variants"]
        cells = " | ".join(difference(rows[a]["scores"], rows[b]["scores"]) for a, b in pairs)
        lines.append(f"| {name} | {cells} |")
    count = len(report["seeds"])
    lines += ["", f"{count} seed{'s' if count > 1 else ''}; Longformer."]
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__, "attention_pocket", list(TASKS), "runs/attention_pocket", list(TASKS)).parse_args()
    tasks = {name: measure(name, options.seeds, options.out_dir) for name in options.tasks}
    report = {
        "generator_version": pocket.VERSION,
        "seeds": options.seeds,
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "attention_pocket.json", report)


if __name__ == "__main__":
    main()
