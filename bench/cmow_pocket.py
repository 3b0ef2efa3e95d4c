"""CMOW on the pocket suite: every encoder undistilled, with KD, from general distillation, and with both.

    python -m bench.cmow_pocket --seeds 5                    # two hours on one core; goes on where it was stopped
    python -m bench.cmow_pocket --tasks mrpc --seeds 1
    python -m bench.cmow_pocket --seeds 5 --save             # also writes bench/results/cmow_pocket.json

All runs have one budget; what general distillation spends is part of it. Encoders are of one width, about 200 numbers
per token, and share the defaults of the script, which were chosen on dev splits with the bidirectional hybrid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import metrics, pocket, results
from methods import cmow

ENCODERS = {"CBOW": "cbow-200", "CMOW": "cmow-14", "Hybrid": "hybrid-10-100", "Bidirectional": "bidirectional-10-100"}
ROWS = ("finetune", "kd", "general-finetune", "general-kd")
TASKS = ["cola", "rte"]


def measure(name: str, seeds: list[int], out_dir: Path) -> dict[str, Any]:
    """The teacher's figure, and encoder -> parameters and variant -> the primary metric of every seed."""
    encoders: dict[str, Any] = {}
    for encoder, student in ENCODERS.items():
        folder = out_dir / student  # one for each student; they share a cache of teachers
        row: dict[str, Any] = {variant: [] for variant in ROWS}
        for seed in seeds:
            args = cmow.Args(
                task=f"pocket/{name}", student=student, init="random,general", seed=seed,
                out_dir=str(folder), cache_dir=str(out_dir / "cache"), resume=True,
            )  # fmt: skip
            args.check()
            cmow.main(args)
            for variant in ROWS:
                path = results.folder_of(folder, "cmow", args.task, variant, seed) / "result.json"
                record = results.load(path)
                row[variant].append(record["primary"]["value"])
        encoders[encoder] = {"parameters": record["student"]["parameters"], **row}
    metric = record["primary"]["name"]
    teacher = float(np.mean([split[metric] for split in record["teacher"]["metrics"].values()]))
    return {"metric": metric, "teacher": teacher, "comparable": record["comparable"], "encoders": encoders}


def text(report: dict[str, Any]) -> str:
    """The table, and what KD and general distillation add, in Markdown."""
    lines = ["| task, metric | encoder | parameters | undistilled | KD | general | general + KD |", "|---" * 7 + "|"]
    for name, table in report["tasks"].items():
        title = f"{name}, {metrics.TITLES[table['metric']]}"
        lines.append(f"| {title} | *teacher: {100 * table['teacher']:.1f}* | | | | | |")
        for encoder, row in table["encoders"].items():
            cells = " | ".join(cell(row[variant]) for variant in ROWS)
            lines.append(f"| {title} | {encoder} | {row['parameters'] / 1e6:.2f}M | {cells} |")
    lines += [
        "",
        "| task | encoder | KD over undistilled | general over undistilled | general + KD over KD |",
        "|---" * 5 + "|",
    ]
    for name, table in report["tasks"].items():
        for encoder, row in table["encoders"].items():
            pairs = (("kd", "finetune"), ("general-finetune", "finetune"), ("general-kd", "kd"))
            cells = " | ".join(difference(row[left], row[right]) for left, right in pairs)
            lines.append(f"| {name} | {encoder} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__, "cmow_pocket", TASKS, "runs/cmow_pocket").parse_args()
    tasks = {name: measure(name, options.seeds, options.out_dir) for name in options.tasks}
    report = {
        "generator_version": pocket.VERSION,
        "seeds": options.seeds,
        "budget": cmow.Args().budget,
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "cmow_pocket.json", report)


if __name__ == "__main__":
    main()
