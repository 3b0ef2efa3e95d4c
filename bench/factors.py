"""What makes pocket/grammar graded: one factor of the task or of its teacher is changed at a time.

    python -m bench factors --save                      # 20 to 60 minutes on one core
    python -m bench factors --cells skills-14 tail-2    # some of the cells

A cell has a teacher of its own and students of 2x128 after 6,400 examples: undistilled, KD, MC3KD. Scores are MCC on
the dev split, in percent, by seed. Finished teachers and students are found again in OUT.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pocket
from bench.cli import FOLDER, Parser
from bench.grid import Grid
from common.results import write_json
from methods import mc3kd
from pocket import models, skills

BASE: dict[str, Any] = {"skills": len(skills.SKILLS), "tail": skills.TAIL, "examples": 40_000, "teacher_steps": 3000}
CHANGES: dict[str, list[Any]] = {
    "skills": [14, 28],
    "tail": [0.0, 2.0],
    "examples": [10_000],
    "teacher_steps": [1500, 6000],
}
CELLS = {"base": BASE} | {
    f"{name}-{value:g}": BASE | {name: value} for name, values in CHANGES.items() for value in values
}
VARIANTS, SEEDS = ("finetune", "kd", "mc3kd"), (0, 1)
BUDGET, LR = "6400", 1e-3


def measure(cell: dict[str, Any], out: Path) -> dict[str, Any]:
    """Scores of the cell's teacher and, by seed, of its students."""
    task = pocket._ALL["grammar"]
    sizes = (cell["examples"], *task.sizes[1:])
    rule = partial(skills.grammar, count=cell["skills"], tail=cell["tail"])
    pocket._ALL["grammar"] = task._replace(rule=rule, sizes=sizes)
    models._LONGER["pocket", "grammar"] = {"steps": cell["teacher_steps"]}
    try:
        for seed in SEEDS:
            mc3kd.main(
                mc3kd.Args(
                    task="pocket/grammar", variant=",".join(VARIANTS), student="2x128", init="pretrained",
                    budget=BUDGET, lr=LR, seed=seed, tune=True, out_dir=str(out),
                )
            )  # fmt: skip
    finally:
        pocket._ALL["grammar"] = task
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("result.json"))]
    scores = {
        name: [round(100 * record["primary"]["value"], 1) for record in found if record["variant"] == name]
        for name in VARIANTS
    }
    (teacher,) = found[0]["teacher"]["metrics"].values()
    return cell | {"teacher": round(100 * teacher["matthews"], 1)} | scores


def text(found: dict[str, Any]) -> str:
    """A line for each cell: what is changed of the first, and the scores, seed by seed."""
    titles = {"skills": "skills", "tail": "tail", "examples": "training sentences", "teacher_steps": "teacher's steps"}
    rows = []
    for cell in found["cells"].values():
        values = [f"{cell[key]:,g}" if cell is found["cells"]["base"] or cell[key] != BASE[key] else "" for key in BASE]
        scores = [", ".join(f"{score:.1f}" for score in cell[variant]) for variant in VARIANTS]
        rows.append([*values, f"{cell['teacher']:.1f}", *scores])
    return Grid([*(titles[key] for key in BASE), "teacher", "undistilled", "KD", "MC3KD"], rows).markdown()


def main(argv: list[str]) -> None:
    parser = Parser("factors", __doc__)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="CELL", help="default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/factors"), help="where teachers and students go")
    parser.add_argument("--save", action="store_true", help="keep the scores as bench/results/grammar_factors.json")
    given = parser.parse_args(argv)
    cells: dict[str, Any] = {}
    for name in given.cells:
        cells[name] = measure(CELLS[name], given.out / name)
        print(name, json.dumps(cells[name]), flush=True)
        if given.save:
            write_json(FOLDER / "grammar_factors.json", {"budget": BUDGET, "lr": LR, "cells": cells})
