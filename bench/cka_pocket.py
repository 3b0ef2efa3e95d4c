"""CKA on the pocket suite: no hidden loss, linear projection, cosine, squared distance and CKA, at three widths.

    python -m bench.cka_pocket --seeds 3                          # hours on one core; goes on where it was stopped
    python -m bench.cka_pocket --tasks translate --seeds 1
    python -m bench.cka_pocket --seeds 3 --save                   # also writes bench/results/cka_pocket.json, plots

All rows have one budget and learn on the task alone (`--pretraining off`); `--pretraining-rows` adds, for the first
student, rows that are pre-trained on unlabelled text within that budget. Cosine and squared distance need the
teacher's width: 2x128, which is run for classification alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import data, metrics, plots, pocket, results
from methods import cka

EQUAL = "2x128"  # of the teacher's width
STUDENTS: dict[str, tuple[str, ...]] = {
    "2x64": ("finetune", "kd", "lin", "cka"),
    "2x32": ("finetune", "kd", "lin", "cka"),
}
STUDENTS |= {EQUAL: ("kd", "lin", "cosine", "mse", "cka")}
PRETRAINED = ("woh", "lin", "cka")
TASKS = ["rte", "translate", "xsum"]
BUDGET = "12800"
TITLES = {"finetune": "undistilled", "kd": "none", "lin": "Lin", "cosine": "cosine", "mse": "MSE", "cka": "CKA"}


def run(task: str, student: str, variants: tuple[str, ...], seed: int, folder: Path, pretraining: Any) -> list[Any]:
    """The records of these variants, from their folders if they were run before."""
    args = cka.Args(
        task=f"pocket/{task}", student=student, variant=",".join(variants), seed=seed, pretraining=pretraining,
        budget=BUDGET, out_dir=str(folder / student / pretraining), cache_dir=str(folder / "cache"), resume=True,
    )  # fmt: skip
    args.check()
    cka.main(args)
    places = (results.folder_of(args.out_dir, "cka", args.task, variant, seed) for variant in variants)
    return [results.load(place / "result.json") for place in places]


def measure(name: str, seeds: list[int], out_dir: Path, shapes: list[str], pretrained: bool) -> dict[str, Any]:
    """The teacher's figures, and student -> parameters, and variant -> figures of every seed."""
    students: dict[str, Any] = {}
    for seed in seeds:
        plans: list[Any] = [
            (shape, shape, STUDENTS[shape], "off") for shape in shapes if shape != EQUAL or name in pocket.TASKS
        ]
        if pretrained:
            plans.append((f"{shapes[0]}, pre-trained", shapes[0], PRETRAINED, "on"))
        for label, student, variants, pretraining in plans:
            for record in run(name, student, variants, seed, out_dir, pretraining):
                row = students.setdefault(label, {"parameters": record["student"]["parameters"], "variants": {}})
                variant = "kd" if record["variant"] == "woh" else record["variant"]
                figures = row["variants"].setdefault(variant, {"score": [], "speed": [], "validation": []})
                figures["score"].append(record["primary"]["value"])
                figures["speed"].append(record["student"]["speed"])
                figures["validation"].append(record["analysis"]["validation"]["task"])
    metric = record["primary"]["name"]
    teacher = record["teacher"]
    return {
        "metric": metric,
        "seeds": seeds,
        "teacher": float(np.mean([split[metric] for split in teacher["metrics"].values()])),
        "teacher_parameters": teacher["parameters"],
        "teacher_speed": teacher["speed"],
        "comparable": record["comparable"],
        "students": students,
    }


def text(report: dict[str, Any]) -> str:
    """The scores by size, differences from no hidden loss, and the time to write a sentence, in Markdown."""
    lines = ["| task, metric | student | parameters | " + " | ".join(TITLES.values()) + " |"]
    lines.append("|---" * (3 + len(TITLES)) + "|")
    for name, table in report["tasks"].items():
        title = f"{name}, {metrics.TITLES[table['metric']]}, {len(table['seeds'])} seed(s)"
        size = f"{table['teacher_parameters'] / 1e6:.2f}M"
        lines.append(f"| {title} | *teacher: {100 * table['teacher']:.1f}* | {size} |" + " |" * len(TITLES))
        for student, row in table["students"].items():
            found = row["variants"]
            cells = " | ".join(cell(found[v]["score"]) if v in found else "" for v in TITLES)
            lines.append(f"| {title} | {student} | {row['parameters'] / 1e6:.2f}M | {cells} |")
    hidden = [name for name in TITLES if name not in ("finetune", "kd")]
    lines += ["", "| over none, task | student | " + " | ".join(TITLES[name] for name in hidden) + " | CKA over Lin |"]
    lines.append("|---" * (3 + len(hidden)) + "|")
    for name, table in report["tasks"].items():
        for student, row in table["students"].items():
            found = {variant: figures["score"] for variant, figures in row["variants"].items()}
            gains = [difference(found[v], found["kd"]) if v in found else "" for v in hidden]
            lines.append(f"| {name} | {student} | {' | '.join([*gains, difference(found['cka'], found['lin'])])} |")
    lines += ["", "| beam search | milliseconds per text |", "|---|---|"]
    for name, table in report["tasks"].items():
        if data.TASKS[name].kind in data.GENERATED:
            lines.append(f"| {name}, teacher | {1000 / table['teacher_speed']:.1f} |")
            for student, row in table["students"].items():
                speed = float(np.median(row["variants"]["cka"]["speed"]))
                lines.append(f"| {name}, {student} | {1000 / speed:.1f} |")
    return "\n".join(lines)


def draw(report: dict[str, Any], folder: Path) -> None:
    """Figures 2 and 3: the score against the student's size, a line for each hidden loss."""
    for name, table in report["tasks"].items():
        series: dict[str, Any] = {}
        for student, row in table["students"].items():
            for variant, figures in row["variants"].items() if "pre-trained" not in student else ():
                xs, ys = series.setdefault(TITLES[variant], ([], []))
                xs.append(row["parameters"] / 1e6)
                ys.append(100 * float(np.mean(figures["score"])))
        ordered: dict[str, Any] = {
            label: tuple(zip(*sorted(zip(*line, strict=True)), strict=True)) for label, line in series.items()
        }
        title = metrics.TITLES[table["metric"]]
        plots.lines(ordered, folder / f"cka-{name}.png", f"pocket/{name}", "million parameters", title)


def main() -> None:
    options = parser(__doc__, "cka_pocket", TASKS, "runs/cka_pocket", [*pocket.TASKS, *pocket.TEXTS])
    options.add_argument("--pretraining-rows", action="store_true", help="also students that were pre-trained")
    options.add_argument("--students", default=",".join(STUDENTS), help=f"of {','.join(STUDENTS)}")
    chosen = options.parse_args()
    shapes = chosen.students.split(",")
    if unknown := set(shapes) - set(STUDENTS):
        options.error(f"argument --students: {', '.join(unknown)}: must be of {', '.join(STUDENTS)}")
    path = FOLDER / "cka_pocket.json"
    tasks = {t: measure(t, chosen.seeds, chosen.out_dir, shapes, chosen.pretraining_rows) for t in chosen.tasks}
    report = {
        "generator_version": pocket.VERSION,
        "budget": BUDGET,
        "environment": results.environment(),
        "tasks": tasks,
    }
    print(text(report))
    if chosen.save:
        results.write_json(path, report)
        draw(report, results.ROOT / "docs" / "img")


if __name__ == "__main__":
    main()
