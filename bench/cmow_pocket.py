"""CMOW on the pocket suite: every encoder undistilled, with KD, from general distillation, and with both.

    python -m bench.cmow_pocket --seeds 5                    # hours on two cores; goes on where it was stopped
    python -m bench.cmow_pocket --tasks sst2,mrpc --seeds 1
    python -m bench.cmow_pocket --seeds 5 --save             # also writes bench/results/cmow_pocket.json

All runs have one budget; what general distillation spends is part of it. Figures are the primary metric, mean and
standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import pocket, results
from common.args import BUDGETS
from methods import cmow

FOLDER = Path(__file__).with_name("results")
ENCODERS = {"CBOW": "cbow-200", "CMOW": "cmow-14", "Hybrid": "hybrid-10-100", "Bidirectional": "bidirectional-10-100"}
ROWS = ("finetune", "kd", "general-finetune", "general-kd")


def measure(tasks: list[str], seeds: list[int], budget: str, out_dir: Path) -> dict[str, Any]:
    """task -> encoder -> variant -> the primary metric of every seed."""
    table: dict[str, Any] = {}
    for name in tasks:
        for encoder, student in ENCODERS.items():
            folder = out_dir / "cmow_pocket" / student  # one for each student; they share a cache of teachers
            row = table.setdefault(name, {}).setdefault(encoder, {variant: [] for variant in ROWS})
            for seed in seeds:
                args = cmow.Args(
                    task=f"pocket/{name}", student=student, init="random,general", budget=budget, seed=seed,
                    out_dir=str(folder), cache_dir=str(out_dir / "cache"), resume=True,
                )  # fmt: skip
                args.check()
                cmow.main(args)
                for variant in ROWS:
                    path = folder / "cmow" / "pocket" / name / variant / f"seed{seed}" / "result.json"
                    row[variant].append(results.load(path)["primary"]["value"])
    return table


def text(table: dict[str, Any]) -> str:
    """The table in Markdown."""
    lines = ["| task | encoder | undistilled | KD | general | general + KD |", "|---|---|---|---|---|---|"]
    for name, encoders in table.items():
        for encoder, row in encoders.items():
            cells = [
                f"{100 * np.mean(row[v]):.1f}" + (f" ± {100 * np.std(row[v], ddof=1):.1f}" if len(row[v]) > 1 else "")
                for v in ROWS
            ]
            lines.append(f"| {name} | {encoder} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--tasks", default=",".join(pocket.TASKS), help="comma-separated names")
    parser.add_argument("--budget", default="quick", choices=list(BUDGETS), help="of every run")
    parser.add_argument("--out-dir", default="runs", help="where the runs and teachers are")
    parser.add_argument("--save", action="store_true", help="write bench/results/cmow_pocket.json")
    options = parser.parse_args()
    names, seeds = options.tasks.split(","), list(range(options.seeds))
    for name in names:
        if name not in pocket.TASKS:
            parser.error(f"--tasks {name}: must be of {', '.join(pocket.TASKS)}")
    table = measure(names, seeds, options.budget, Path(options.out_dir))
    print(text(table))
    if options.save:
        report = {"generator_version": pocket.VERSION, "seeds": seeds, "budget": options.budget, "tasks": table}
        results.write_json(FOLDER / "cmow_pocket.json", report | {"environment": results.environment()})


if __name__ == "__main__":
    main()
