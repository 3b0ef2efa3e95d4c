"""How often 95% intervals hold the truth, by simulation.

    python -m bench coverage            # prints the table
    python -m bench coverage --save     # and writes bench/results/coverage.json

Two rows are trained with S seeds and scored on the same N items of each task. A seed's skill is drawn around its row's;
an item has a difficulty for both rows, one for each, and one for each row and seed. The truth is the difference of the
rows' mean scores over all seeds and all items, by numerical integration; of drawn runs `stats.estimate` makes an
interval, and from the seeds alone Student's t makes another. A cell whose seeds differ too much is a † of tables, so
the last column leaves out draws that have one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats as distributions

from bench import stats
from bench.cli import FOLDER, Parser, at_least
from bench.grid import Grid
from bench.rows import SPAN
from common import metrics, results

BASE = 0.6  # of the labels, those of class 1
JUMPED = 0.2  # of the seeds, those that have taken a jump


class Simulated(NamedTuple):
    metric: str
    skills: tuple[float, float]  # of the two rows
    spread: float  # of a seed's skill around its row's
    shared: tuple[float, float, float] = (0.6, 0.5, 0.62)  # difficulty by item, by row and item, by row, seed and item
    jump: float = 0.0  # what every fifth seed of the second row, at random, has learnt besides


# Points by which seeds differ, and what a difference of two seeds owes to 6,000 items, are those of the arena's runs
EASY, HARD = Simulated("accuracy", (1.00, 1.05), 0.01), Simulated("matthews", (1.1, 1.2), 0.03)
PEARSON = Simulated("pearson", (1.6, 1.7), 0.1)
FOUR = (HARD, HARD._replace(skills=(0.9, 1.0)), EASY._replace(spread=0.03), PEARSON._replace(spread=0.05))
WIDER = (HARD._replace(spread=0.2), HARD, EASY, PEARSON._replace(spread=0.02))
CASES: dict[str, tuple[int, int, tuple[Simulated, ...]]] = {  # seeds, items, tasks
    "accuracy, seeds alike": (5, 6000, (EASY,)),
    "accuracy": (5, 6000, (EASY._replace(spread=0.05),)),
    "Matthews, seeds alike": (5, 6000, (HARD._replace(spread=0.005),)),
    "Matthews": (5, 6000, (HARD,)),
    "Matthews, seeds far apart": (5, 6000, (HARD._replace(spread=0.15),)),
    "Pearson, seeds alike": (5, 6000, (PEARSON._replace(spread=0.01),)),
    "Pearson": (5, 6000, (PEARSON,)),
    "four tasks": (5, 6000, FOUR),
    "four tasks, one far wider": (5, 6000, WIDER),
    "three seeds, Matthews": (3, 6000, (HARD,)),
    "three seeds, four tasks": (3, 6000, FOUR),
    "three seeds, seeds far apart": (3, 6000, (HARD._replace(spread=0.15),)),
    "no difference, Matthews": (5, 6000, (HARD._replace(skills=(1.1, 1.1)),)),
    "1,000 items, Matthews": (5, 1000, (HARD,)),
    "a jump of 4 points in a fifth of one row's seeds": (5, 6000, (HARD._replace(jump=0.1),)),
    "a jump of 14 points in a fifth of one row's seeds": (5, 6000, (HARD._replace(jump=0.4),)),
}


def truth(task: Simulated) -> float:
    """The difference of the rows' mean scores, over all seeds and items."""
    nodes, weights = hermegauss(41)
    noise = np.sqrt(np.sum(np.square(task.shared)))
    weights, means = np.concatenate([(1 - JUMPED) * weights, JUMPED * weights]), []
    for skill, jump in zip(task.skills, (0, task.jump), strict=True):
        skills = skill + np.concatenate([task.spread * nodes, jump + task.spread * nodes])
        share = distributions.norm.cdf(skills / noise)  # right
        if task.metric == "matthews":
            said = BASE * share + (1 - BASE) * (1 - share)
            both = BASE * share
            scores = (both - said * BASE) / np.sqrt(said * (1 - said) * BASE * (1 - BASE))
        else:
            scores = share if task.metric == "accuracy" else skills / np.sqrt(skills**2 + noise**2)
        means.append(float(scores @ weights / weights.sum()))
    return means[1] - means[0]


def drawn(rng: np.random.Generator, task: Simulated, seeds: int, items: int) -> tuple[stats.Sample, bool]:
    """The second row minus the first, as runs would have it, and whether the seeds of one of them differ too much."""
    metric, influence = metrics.METRICS[task.metric], stats.INFLUENCE[task.metric]
    item, pair, rest = task.shared
    labels = rng.normal(size=items) if task.metric == "pearson" else (rng.random(items) < BASE).astype(int)
    side = labels if task.metric == "pearson" else 2 * labels - 1
    shared = item * rng.normal(size=items)
    values, moves = np.zeros((2, seeds)), np.zeros((seeds, items))
    for row, (skill, jump) in enumerate(zip(task.skills, (0, task.jump), strict=True)):
        own = shared + pair * rng.normal(size=items)
        for seed in range(seeds):
            learnt = skill + task.spread * rng.normal() + (jump * (rng.random() < JUMPED) if jump else 0.0)
            score = learnt * side + own + rest * rng.normal(size=items)
            found = score if task.metric == "pearson" else (score > 0).astype(int)
            values[row, seed] = (correlation if task.metric == "matthews" else metric)(found, labels)
            moves[seed] += (-1, 1)[row] * influence(found, labels)
    return stats.Sample(values[1] - values[0], moves), bool((values.std(1, ddof=1) > SPAN).any())


def correlation(found: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' of two classes, without scikit-learn's checks: a fiftieth of the time."""
    return float(np.corrcoef(found, labels)[0, 1])


def simulate(repeats: int) -> list[dict[str, Any]]:
    rows = []
    for name, (seeds, items, tasks) in CASES.items():
        rng, expected = np.random.default_rng(0), float(np.mean([truth(task) for task in tasks]))
        held, widths, parts, marked = [], [], [], []
        for _ in range(repeats):
            samples, marks = zip(*(drawn(rng, task, seeds, items) for task in tasks), strict=True)
            both = stats.estimate(samples)
            alone = stats.estimate([sample._replace(influence=None) for sample in samples])
            ends = np.array([both.interval()[1:], alone.interval()[1:]], np.float64)  # [2, low and high]
            held.append((ends[:, 0] <= expected) & (expected <= ends[:, 1]))
            widths.append(ends[:, 1] - ends[:, 0])
            parts.append([both.seeds, both.items])
            marked.append(any(marks))
        share, width, part = np.mean(held, 0), np.mean(widths, 0) / 2, np.sqrt(np.mean(parts, 0))
        rows.append({
            "case": name, "seeds": seeds, "items": items, "tasks": len(tasks), "difference": expected,
            "from_seeds": float(part[0]), "from_items": float(part[1]),
            "held": float(share[0]), "held_by_seeds_alone": float(share[1]), "marked": float(np.mean(marked)),
            "held_without": float(np.mean([one[0] for one, mark in zip(held, marked, strict=True) if not mark])),
            "half_width": float(width[0]), "half_width_of_seeds_alone": float(width[1]),
        })  # fmt: skip
        print(f"{name}: {100 * share[0]:.1f}%, by seeds alone {100 * share[1]:.1f}%", flush=True)
    return rows


def text(report: dict[str, Any]) -> str:
    """The table of a report."""
    header = ["", "tasks", "seeds", "items", "points, true", "SE from seeds", "SE from items", "hold the truth",
              "half width", "seeds alone: hold", "half width", "with a †", "hold, of those without"]  # fmt: skip
    rows = []
    for row in report["cases"]:
        points = [f"{100 * row[key]:.2f}" for key in ("difference", "from_seeds", "from_items")]
        shares = []
        for held, width in (("held", "half_width"), ("held_by_seeds_alone", "half_width_of_seeds_alone")):
            shares += [f"{100 * row[held]:.1f}%", f"{100 * row[width]:.1f}"]
        shares += [f"{100 * row[key]:.1f}%" for key in ("marked", "held_without")]
        counts = [f"{row[key]:,}" for key in ("tasks", "seeds", "items")]
        rows.append([row["case"], *counts, *points, *shares])
    error = 100 * (0.95 * 0.05 / report["repeats"]) ** 0.5
    said = f"{report['repeats']:,} draws of each: a share of 95% is known to ± {error:.1f}."
    return f"{Grid(header, rows).markdown()}\n\n{said}"


def main(argv: list[str]) -> None:
    parser = Parser("coverage", __doc__)
    parser.add_argument("--repeats", type=at_least(1), default=2000,
                        help="draws of each case (default: 2000, 8 core-minutes)")  # fmt: skip
    parser.add_argument("--save", action="store_true", help="write bench/results/coverage.json")
    options = parser.parse_args(argv)
    report = {"repeats": options.repeats, "cases": simulate(options.repeats)}
    print(text(report))
    if options.save:
        results.write_json(FOLDER / "coverage.json", report)
