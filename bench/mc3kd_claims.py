"""MC3KD's claims on the pocket suite: all variants, a smaller and a larger teacher, several seeds.

    python -m bench.mc3kd_claims --seeds 5           # hours on two cores; goes on where it was stopped
    python -m bench.mc3kd_claims --seeds 5 --save    # also writes bench/results/mc3kd_claims.json

One student for both teachers (3x128, started from the first layers of the 4-layer pocket BERT), one budget, the
same defaults for every variant. The undistilled student knows no teacher and is trained once per seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import data, metrics, pocket, results
from methods import mc3kd

TEACHERS = ("pocket-6", "pocket-12")
STUDENT, INIT, BUDGET = "3x128", "pocket", "12800"


def measure(task: str, seeds: list[int], out_dir: Path) -> dict[str, Any]:
    """Teacher -> its own figures, and variant -> score and RCCC per seed."""
    table: dict[str, Any] = {}
    for teacher in TEACHERS:
        entry: dict[str, Any] = {"variants": {}}
        names = [name for name in mc3kd.VARIANTS if name != "finetune" or teacher == TEACHERS[-1]]
        for seed in seeds:
            args = mc3kd.Args(
                task=task, teacher=teacher, student=STUDENT, init=INIT, budget=BUDGET, variant=",".join(names),
                seed=seed, out_dir=f"{out_dir}/{teacher}", cache_dir=f"{out_dir}/cache", resume=True,
            )  # fmt: skip
            mc3kd.main(args)
            for name in names:
                record = results.load(results.folder_of(args.out_dir, "mc3kd", task, name, seed) / "result.json")
                row = entry["variants"].setdefault(name, {"score": [], "rccc": []})
                row["score"].append(record["primary"]["value"])
                row["rccc"].append(record["analysis"]["rccc"])
                row["layers"] = record["analysis"]["layers"]
                row["seconds"] = record["ledger"]["seconds"]
        scores = record["teacher"]["metrics"].values()
        entry["score"] = float(np.mean([split[record["primary"]["name"]] for split in scores]))
        entry |= {"rccc": record["teacher"]["analysis"]["rccc"], "comparable": record["comparable"]}
        table[teacher] = entry
    table[TEACHERS[0]]["variants"]["finetune"] = table[TEACHERS[-1]]["variants"]["finetune"]
    return table


def text(report: dict[str, Any]) -> str:
    """One table of scores and RCCC per task, and the paper's claims as paired differences."""
    lines = []
    for task, table in report["tasks"].items():
        title = metrics.TITLES[report["metrics"][task]]
        lines += [f"{task}, {title}, mean ± standard deviation over {len(report['seeds'])} seeds:", ""]
        lines.append("| variant | " + " | ".join(f"{t}: {title} | {t}: RCCC" for t in TEACHERS) + " |")
        lines.append("|---|" + "---|" * (2 * len(TEACHERS)))
        own = [f"{100 * table[t]['score']:.1f} | {100 * table[t]['rccc']:.1f}" for t in TEACHERS]
        lines.append("| *teacher* | " + " | ".join(own) + " |")
        for name in mc3kd.VARIANTS:
            rows = [table[t]["variants"][name] for t in TEACHERS]
            lines.append(f"| {name} | " + " | ".join(f"{cell(r['score'])} | {cell(r['rccc'])}" for r in rows) + " |")
        small, large = (table[t]["variants"] for t in TEACHERS)
        lines += ["", f"| claim, {task} | score | RCCC |", "|---|---|---|"]
        pairs = [(f"{n}: {TEACHERS[1]} against {TEACHERS[0]}", large[n], small[n]) for n in ("kd", "pkd-skip", "mc3kd")]
        others = [name for name in mc3kd.VARIANTS if name != "mc3kd"]
        pairs += [(f"mc3kd against {name}, {TEACHERS[1]}", large["mc3kd"], large[name]) for name in others]
        for label, left, right in pairs:
            scores, diversity = (difference(left[k], right[k]) for k in ("score", "rccc"))
            lines.append(f"| {label} | {scores} | {diversity} |")
        students = [*small.values(), *(row for name, row in large.items() if name != "finetune")]
        runs = [(s, r) for row in students for s, r in zip(row["score"], row["rccc"], strict=True)]
        rho = stats.spearmanr(*zip(*runs, strict=True)).statistic
        lines += ["", f"Score and RCCC over all {len(runs)} students: Spearman {rho:+.2f}.", ""]
    return "\n".join(lines).rstrip()


def main() -> None:
    options = parser(__doc__, "mc3kd_claims", ["cola"], "runs/mc3kd_claims").parse_args()
    tasks = {f"pocket/{name}": measure(f"pocket/{name}", options.seeds, options.out_dir) for name in options.tasks}
    report = {
        "generator_version": pocket.VERSION,
        "seeds": options.seeds,
        "student": f"{STUDENT}, first layers of {INIT}",
        "budget": BUDGET,
        "metrics": {task: metrics.primary(data.task_of(task)) for task in tasks},
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "mc3kd_claims.json", report)


if __name__ == "__main__":
    main()
