"""XTC on the pocket suite: bits, layers and stages, beside the undistilled student and vanilla KD with the same bits.

    python -m bench.xtc_pocket --seeds 5           # an hour on one core; goes on where it was stopped
    python -m bench.xtc_pocket --seeds 5 --save    # also writes bench/results/xtc_pocket.json

Every run starts from the layers of the same fine-tuned teacher (4 layers of 128) and has the same budget, which the
stages share. Sizes are bytes of the file that a run leaves, and the paper's rule: every matrix at so many bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import data, metrics, pocket, results
from methods import xtc

STUDENTS = {"full": "4x128", "half": "2x128"}
BITS = ("32", "2", "1")
BUDGET = "4800"
COLUMNS = {"finetune": "undistilled", "kd": "KD", "xtc-1": "1S", "xtc-2": "2S", "xtc-3": "3S"}


def measure(task: str, seeds: list[int], out_dir: Path) -> dict[str, Any]:
    """The teacher's figure and bytes, and layers -> bits -> bytes and, for every column, the score of every seed."""
    table: dict[str, Any] = {"students": {}}
    for layers, student in STUDENTS.items():
        for seed in seeds:
            args = xtc.Args(
                task=task, student=student, bits=",".join(BITS), stages="1,2,3", budget=BUDGET, seed=seed,
                out_dir=str(out_dir / student), cache_dir=str(out_dir / "cache"), resume=True,
            )  # fmt: skip
            args.check()
            xtc.main(args)
            for row in args.rows:
                path = results.folder_of(args.out_dir, "xtc", task, row.label, seed) / "result.json"
                record = results.load(path)
                entry = table["students"].setdefault(layers, {}).setdefault(str(row.bits), {})
                column = f"xtc-{len(row.stages)}" if row.variant == "xtc" else row.variant
                entry.setdefault(column, []).append(record["primary"]["value"])
                entry["bytes"] = record["student"]["bytes"]
                entry.setdefault("seconds", {})[column] = record["ledger"]["seconds"]
    metric = record["primary"]["name"]
    score = float(np.mean([split[metric] for split in record["teacher"]["metrics"].values()]))
    return table | {
        "teacher": {"score": score, "bytes": record["teacher"]["bytes"]},
        "comparable": record["comparable"],
    }


def text(report: dict[str, Any]) -> str:
    """Per task a table of scores and sizes, and what stages, bits and layers change, as paired differences."""
    lines = []
    for task, table in report["tasks"].items():
        title, teacher = metrics.TITLES[report["metrics"][task]], table["teacher"]
        lines += [
            f"{task}, {title}, mean ± standard deviation over {len(report['seeds'])} seeds; the teacher has"
            f" {100 * teacher['score']:.1f} and {teacher['bytes'] / 1e6:.2f} MB:",
            "",
            "| layers | bits | MB | " + " | ".join(COLUMNS.values()) + " |",
            "|---" * (3 + len(COLUMNS)) + "|",
        ]
        for layers, students in table["students"].items():
            for bits, row in students.items():
                cells = " | ".join(cell(row[column]) for column in COLUMNS)
                lines.append(f"| {STUDENTS[layers]} | {bits} | {row['bytes'] / 1e6:.2f} | {cells} |")
        lines += ["", f"| {task} | bits | " + " | ".join(STUDENTS.values()) + " |", "|---" * (2 + len(STUDENTS)) + "|"]
        pairs = [("1S against KD", "xtc-1", "kd"), ("1S against undistilled", "xtc-1", "finetune"),
                 ("2S against 1S", "xtc-2", "xtc-1"), ("3S against 1S", "xtc-3", "xtc-1")]  # fmt: skip
        for label, left, right in pairs:
            for bits in BITS:
                rows = [table["students"][layers][bits] for layers in STUDENTS]
                lines.append(f"| {label} | {bits} | " + " | ".join(difference(r[left], r[right]) for r in rows) + " |")
        for bits in BITS[1:]:
            rows = [table["students"][layers] for layers in STUDENTS]
            cells = " | ".join(difference(r[bits]["xtc-1"], r["32"]["xtc-1"]) for r in rows)
            lines.append(f"| {bits} against 32 bits, 1S | {bits} | {cells} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> None:
    options = parser(__doc__, "xtc_pocket", ["cola"], "runs/xtc_pocket").parse_args()
    tasks = {f"pocket/{name}": measure(f"pocket/{name}", options.seeds, options.out_dir) for name in options.tasks}
    report = {
        "generator_version": pocket.VERSION,
        "seeds": options.seeds,
        "budget": BUDGET,
        "metrics": {task: metrics.primary(data.task_of(task)) for task in tasks},
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "xtc_pocket.json", report)


if __name__ == "__main__":
    main()
