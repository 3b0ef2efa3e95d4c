"""MC3KD's claims on the pocket suite: all variants, a smaller and a larger teacher, several seeds.

    python -m bench.mc3kd_claims --seeds 5           # hours on two cores; goes on where it was stopped
    python -m bench.mc3kd_claims --seeds 5 --save    # also writes bench/results/mc3kd_claims.json

One student for both teachers (3x128, started from the first layers of the 4-layer pocket BERT), one budget, the
same defaults for every variant. The undistilled student knows no teacher and is trained once per seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bench.pocket_suite import FOLDER, interval
from common import data, metrics, pocket, results
from methods import mc3kd

TEACHERS = ("pocket-6", "pocket-12")
STUDENT, INIT, BUDGET = "3x128", "pocket", "12800"
VARIANTS = ("finetune", "kd", "pkd-skip", "pkd-last", "takd", "dynakd", "only-selection", "only-mc3", "mc3kd")


def measure(task: str, seeds: list[int], out_dir: str) -> dict[str, Any]:
    """Teacher -> its own figures, and variant -> score and RCCC per seed."""
    table: dict[str, Any] = {}
    for teacher in TEACHERS:
        entry: dict[str, Any] = {"variants": {}}
        names = [name for name in VARIANTS if name != "finetune" or teacher == TEACHERS[-1]]
        for seed in seeds:
            args = mc3kd.Args(
                task=task, teacher=teacher, student=STUDENT, init=INIT, budget=BUDGET, variant=",".join(names),
                seed=seed, out_dir=f"{out_dir}/{teacher}", cache_dir=f"{out_dir}/cache", resume=True,
            )  # fmt: skip
            mc3kd.main(args)
            for name in names:
                path = Path(args.out_dir) / "mc3kd" / task / name / f"seed{seed}" / "result.json"
                record = results.load(path)
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


def difference(left: list[float], right: list[float]) -> str:
    """Left minus right in points, paired by seed, with its 95% interval, and what it says."""
    mean, low, high = interval([a - b for a, b in zip(left, right, strict=True)])
    if low is None or high is None:
        return f"{100 * mean:+.1f} (one seed)"
    word = "not distinguishable" if low <= 0 <= high else "higher" if mean > 0 else "lower"
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}], {word}"


def cell(values: list[float]) -> str:
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


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
        for name in VARIANTS:
            rows = [table[t]["variants"][name] for t in TEACHERS]
            lines.append(f"| {name} | " + " | ".join(f"{cell(r['score'])} | {cell(r['rccc'])}" for r in rows) + " |")
        small, large = (table[t]["variants"] for t in TEACHERS)
        lines += ["", f"| claim, {task} | score | RCCC |", "|---|---|---|"]
        pairs = [(f"{n}: {TEACHERS[1]} against {TEACHERS[0]}", large[n], small[n]) for n in ("kd", "pkd-skip", "mc3kd")]
        pairs += [(f"mc3kd against {n}, {TEACHERS[1]}", large["mc3kd"], large[n]) for n in VARIANTS if n != "mc3kd"]
        for label, left, right in pairs:
            scores, diversity = (difference(left[k], right[k]) for k in ("score", "rccc"))
            lines.append(f"| {label} | {scores} | {diversity} |")
        students = [*small.values(), *(row for name, row in large.items() if name != "finetune")]
        runs = [(s, r) for row in students for s, r in zip(row["score"], row["rccc"], strict=True)]
        rho = stats.spearmanr(*zip(*runs, strict=True)).statistic
        lines += ["", f"Score and RCCC over all {len(runs)} students: Spearman {rho:+.2f}.", ""]
    return "\n".join(lines).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--tasks", default="cola", help="comma-separated pocket tasks")
    parser.add_argument("--out-dir", default="runs/mc3kd_claims", help="where the runs and teachers are")
    parser.add_argument("--save", action="store_true", help="write bench/results/mc3kd_claims.json")
    options = parser.parse_args()
    names, seeds = options.tasks.split(","), list(range(options.seeds))
    for name in names:
        if name not in pocket.TASKS:
            parser.error(f"--tasks {name}: must be of {', '.join(pocket.TASKS)}")
    tasks = {f"pocket/{name}": measure(f"pocket/{name}", seeds, options.out_dir) for name in names}
    report = {
        "generator_version": pocket.VERSION,
        "seeds": seeds,
        "student": f"{STUDENT}, first layers of {INIT}",
        "budget": BUDGET,
        "metrics": {task: metrics.primary(data.check_name(task)) for task in tasks},
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "mc3kd_claims.json", report)


if __name__ == "__main__":
    main()
