"""Does an order that small tasks give hold on others? The same rows in two matrices, rank against rank.

    python -m bench transfer bench/arena.toml bench/real.toml
    python -m bench transfer bench/results/arena.jsonl.gz runs/real --figure docs/img/transfer.png

The first matrix predicts, the second is predicted. Rows are matched by their names; a task on which one of them is †
is left out. For the mean over the first one's tasks, beside each task of the second and their mean: Spearman's rank
correlation of the rows' scores. The ceiling: each task of the second beside the mean of its others. Then the pairs of
rows that the second tells apart (Holm), and how many of them the first puts in the same order. Intervals are the middle
95% of draws of seeds and of test items, the same ones for all rows; they are blind to which tasks were taken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from bench import plots
from bench.cli import Parser, markdown
from bench.contrasts import pairs
from bench.records import folder_of
from bench.rows import Grid, Row, Table, load, short
from common.args import BadInput

DRAWS = 2000
LEAST = 4  # rows: a correlation of fewer says nothing

Means = dict[str, np.ndarray]  # task -> the mean over seeds of each row [R]


class Scores(NamedTuple):
    """The rows that both matrices have, in one of them: [R, S] scores by task, and how an item moves each [R, S, N]."""

    table: Table
    rows: list[Row]
    values: dict[str, np.ndarray]
    influence: dict[str, np.ndarray]

    @property
    def tasks(self) -> list[str]:
        """Their full names."""
        return [task for task in self.table.tasks if short(task) in self.values]

    def means(self) -> Means:
        return {task: values.mean(1) for task, values in self.values.items()}

    def drawn(self, rng: np.random.Generator) -> Means:
        """The means with other seeds and other test items."""
        found = {}
        for task, values in self.values.items():
            seeds, moves = rng.integers(values.shape[1], size=values.shape[1]), self.influence[task]
            items = rng.multinomial(moves.shape[2], np.full(moves.shape[2], 1 / moves.shape[2])) / moves.shape[2]
            found[task] = (values + moves @ items)[:, seeds].mean(1)
        return found


def scores_of(table: Table, names: list[str]) -> Scores:
    """Of the rows of these names: the tasks on which all have the same seeds, and none is †."""
    named = {row.name: row for row in table.rows if row.name in names}
    rows = [named[name] for name in names]
    values, influence = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for task in table.tasks:
        seeds = {tuple(sorted(row.records.get(task, {}))) for row in rows}
        if len(seeds) > 1 or () in seeds or any(table.untrained(row, task) for row in rows):
            continue
        samples = [table.sample([(row, 1.0)], task) for row in rows]
        moves: list[Any] = [sample.influence for sample in samples if sample is not None]
        values[short(task)] = np.array([sample.values for sample in samples if sample is not None])
        # predictions were not kept: intervals are over seeds alone
        unknown = any(one is None for one in moves)
        influence[short(task)] = np.zeros((*values[short(task)].shape, 1)) if unknown else np.array(moves)
    if not values:
        raise BadInput("no task on which all rows have the same seeds, and none is †")
    return Scores(table, rows, values, influence)


def mean(means: Means, without: str = "") -> np.ndarray:
    return np.mean([values for task, values in means.items() if task != without], axis=0)


def ranked(a: np.ndarray, b: np.ndarray) -> float:
    return float(spearmanr(a, b).statistic)


Measured = Callable[[Means, Means], float]


def measures(other: Scores) -> dict[tuple[str, str], Measured]:
    """What is compared with what -> the correlation."""
    found: dict[tuple[str, str], Measured] = {}
    for task in other.values:
        found["first, mean", task] = lambda a, b, task=task: ranked(mean(a), b[task])  # type: ignore[misc]
    found["first, mean", "second, mean"] = lambda a, b: ranked(mean(a), mean(b))
    for task in other.values if len(other.values) > 1 else ():
        found["the other tasks of the second, mean", task] = lambda _, b, task=task: ranked(mean(b, task), b[task])  # type: ignore[misc]
    return found


def both(first: Table, second: Table) -> tuple[Scores, Scores]:
    """The rows that both have, in the first one's order."""
    there = {row.name for row in second.rows}
    names = [row.name for row in first.arena() if row.name in there]
    if len(names) < LEAST:
        raise BadInput(f"{', '.join(names) or 'no row'}: in both matrices; {LEAST} rows or more are needed")
    return scores_of(first, names), scores_of(second, names)


def transfer(one: Scores, two: Scores) -> Grid:
    """A line for each correlation, and one for the pairs."""
    compared, rng = measures(two), np.random.default_rng(0)
    draws = [(one.drawn(rng), two.drawn(rng)) for _ in range(DRAWS)]
    lines = [[a, b, f"{measure(one.means(), two.means()):+.2f}", between([measure(*draw) for draw in draws], "+.2f")]
             for (a, b), measure in compared.items()]  # fmt: skip
    told = [(i, j, np.sign(c.found.mean)) for (i, j), c in pairs(two.table, two.rows, two.tasks).items()
            if c.found is not None and c.p < 0.05]  # fmt: skip

    def same(means: Means) -> int:
        scores = mean(means)
        return sum(np.sign(scores[i] - scores[j]) == sign for i, j, sign in told)

    agree = [same(a) for a, _ in draws]
    lines.append(["first, mean", f"{len(told)} pairs that the second tells apart", f"{same(one.means())} in one order",
                  between(agree, ".0f")])  # fmt: skip
    return Grid([f"{len(one.rows)} rows", "beside", "", "middle 95% of draws"], lines)


def between(values: list[Any], form: str) -> str:
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return f"[{low:{form}}, {high:{form}}]"


def gains(scores: Scores) -> list[tuple[float, float, float]]:
    """Each row over vanilla KD in points: the mean, and its 95% interval."""
    table, kd = scores.table, next((row for row in scores.rows if row.role == "vanilla KD"), None)
    if kd is None:
        raise BadInput("no vanilla KD among the rows that both have")
    found = []
    for row in scores.rows:
        over = table.over(row, kd, scores.tasks)
        mean, low, high = over[0].interval() if over and row is not kd else (0.0, 0.0, 0.0)
        found.append((100 * mean, 100 * (mean if low is None else low), 100 * (mean if high is None else high)))
    return found


def main(argv: list[str]) -> None:
    parser = Parser("transfer", __doc__)
    parser.add_argument("first", help="the matrix that predicts: its file, a folder with runs, or a file that was kept")
    parser.add_argument("second", help="the matrix that is predicted")
    parser.add_argument("--figure", type=Path, help="draw each row's gain over vanilla KD in both, to this file")
    given = parser.parse_args(argv)
    one, two = both(*(load([folder_of(name)]) for name in (given.first, given.second)))
    found = transfer(one, two)
    print(markdown(found.header, found.rows))
    if given.figure:
        points = {row.label: pair for row, *pair in zip(one.rows, gains(one), gains(two), strict=True)}
        plots.crosses(points, given.figure, "Points over vanilla KD", "first matrix", "second matrix")
