"""Does the order of rows on small tasks hold on real ones? The arena beside real_arena, rank against rank.

    python -m bench.studies.transfer    # bench/results/transfer.json, docs/img/transfer.png

Rows are matched by their names; a task of the arena on which one of them is † is left out, and in further lines is not.
For the mean over the arena's tasks, beside each real task and their mean: Spearman's rank correlation of the rows'
scores. So of the rows without the undistilled student and vanilla KD: the order of the losses alone. The ceiling: each
real task beside the mean of the others. Then the pairs of rows that the real tasks tell apart (Holm), and how many of
them the arena puts in the same order. Intervals are the middle 95% of draws of seeds and of test items, the same ones
for all rows; they are blind to which tasks and rows were taken. Beside them stands how often two orders that have
nothing to do with each other correlate so well (Student's t).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanrho

from bench import FOLDER, pages, report
from bench.records import KEPT
from bench.stats import Sample, pairs
from bench.table import Grid, Row, Table, load, short
from common import results
from common.args import BadInput

DRAWS = 2000
LEAST = 4  # rows: a correlation of fewer says nothing

Means = dict[str, np.ndarray]  # task -> the mean over seeds of each row [R], or of many draws [DRAWS, R]


class Scores(NamedTuple):
    """The rows that both matrices have, in one of them: by task each row's scores [S], and how an item moves each
    [S, N], by the same seeds."""

    table: Table
    rows: list[Row]
    samples: dict[str, list[Sample]]

    def means(self) -> Means:
        means = {task: [row.values.mean() for row in rows] for task, rows in self.samples.items()}
        return {short(task): np.array(values) for task, values in means.items()}

    def drawn(self, rng: np.random.Generator) -> Means:
        """The means with other seeds and other test items, the same ones for all rows [DRAWS, R]."""
        found = {}
        for task, rows in self.samples.items():
            values = np.array([row.values for row in rows])
            unknown = any(row.influence is None for row in rows)  # predictions were not kept
            moves = np.zeros((*values.shape, 1)) if unknown else np.array([row.influence for row in rows])
            n, means = moves.shape[2], []
            for _ in range(DRAWS):
                seeds = rng.integers(values.shape[1], size=values.shape[1])
                items = np.bincount(rng.integers(n, size=n), minlength=n) / n
                means.append((values + moves @ items)[:, seeds].mean(1))
            found[short(task)] = np.array(means)
        return found


def scores_of(table: Table, names: list[str], marked: bool = False) -> Scores:
    """Of the rows of these names: the tasks on which all have the same seeds and, unless `marked`, none is †."""
    named = {row.name: row for row in table.rows}
    rows = [named[name] for name in names]
    samples = {}
    for task in table.tasks:
        seeds = {tuple(sorted(row.cells.get(task, {}))) for row in rows}
        found = [table.sample([(row, 1.0)], task) for row in rows]
        if len(seeds) == 1 and () not in seeds and (marked or not any(table.untrained(row, task) for row in rows)):
            samples[task] = [sample for sample in found if sample is not None]
    if not samples:
        raise BadInput("no task on which all rows have the same seeds, and none is †")
    if min(len(row.values) for some in samples.values() for row in some) < 2:
        raise BadInput("one seed: its draws are all the same; two or more are needed")
    return Scores(table, rows, samples)


def both(first: Table, second: Table, marked: bool = False) -> tuple[Scores, Scores]:
    """The rows that both have, in the first one's order; `marked`: with the first one's tasks that have a †."""
    there = {row.name for row in second.rows}
    names = [row.name for row in first.arena() if row.name in there]
    every = [[row.name for row in table.rows] for table in (first, second)]
    if twice := [name for name in names if any(found.count(name) > 1 for found in every)]:
        raise BadInput(f"{twice[0]}: the name of several rows; rows of two matrices are matched by their names")
    if len(names) < LEAST:
        raise BadInput(f"{', '.join(names) or 'no row'}: in both matrices; {LEAST} rows or more are needed")
    return scores_of(first, names, marked), scores_of(second, names)


def mean(means: Means, without: str = "") -> np.ndarray:
    return np.mean([values for task, values in means.items() if task != without], axis=0)


def measures(one: Means, two: Means, losses: list[int]) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """What is compared with what; "" and "others" are the means of the first and the second. `losses`: which rows are
    neither undistilled nor vanilla KD."""
    tasks = list(two)
    sides = {("", task): (mean(one), two[task]) for task in tasks}
    sides["", "mean"] = mean(one), mean(two)
    if len(losses) >= LEAST:
        sides["", f"mean, {len(losses)} losses alone"] = mean(one)[..., losses], mean(two)[..., losses]
    for task in tasks if len(tasks) > 1 else ():
        sides["others", task] = mean(two, task), two[task]
    return sides


def transfer(one: Scores, two: Scores, first: str, second: str) -> Grid:
    """A line for each correlation, and one for the pairs; `first`, `second`: what the matrices are called."""
    rng = np.random.default_rng(0)
    draws = one.drawn(rng), two.drawn(rng)
    losses = [i for i, row in enumerate(one.rows) if row.role is None]
    found, drawn = measures(one.means(), two.means(), losses), measures(*draws, losses)
    lines = []
    for (of, on), sides in found.items():
        rho, chance = spearmanrho(*sides, alternative="greater")
        lines.append([f"{second}, the others' mean" if of else f"{first}, mean", f"{second}, {on}", f"{rho:+.2f}",
                      between(spearmanrho(*drawn[of, on], axis=-1).statistic, "+.2f"),
                      "< 0.001" if chance < 0.001 else f"{chance:.3f}"])  # fmt: skip
    told = [(i, j, np.sign(c.found.mean)) for (i, j), c in pairs(two.table, two.rows, two.samples).items()
            if c.found is not None and c.p < 0.05 and not c.disagree]  # fmt: skip

    def same(means: Means) -> np.ndarray:
        scores = mean(means)
        return np.sum([np.sign(scores[..., i] - scores[..., j]) == sign for i, j, sign in told], axis=0, dtype=int)

    lines.append([f"{first}, mean", f"{len(told)} pairs told apart by {second}", f"{same(one.means())} in one order",
                  between(same(draws[0]), ".0f"), "-"])  # fmt: skip
    p = "p of unrelated orders, one-sided"
    header = [f"{len(one.rows)} rows", "beside", "rank correlation", "middle 95% of draws", p]
    return Grid(header, lines)


def between(values: np.ndarray, form: str) -> str:
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return f"[{low:{form}}, {high:{form}}]"


def gains(scores: Scores) -> list[tuple[float, float, float]]:
    """Each row over vanilla KD in points: the mean, and its 95% interval."""
    kd = next((row for row in scores.rows if row.role == "vanilla KD"), None)
    if kd is None:
        raise BadInput("no vanilla KD among the rows that both have")
    found = []
    for row in scores.rows:
        one: Any = scores.table.over(row, kd, scores.samples).found
        low, high = one.interval()
        found.append((100 * one.mean, 100 * low, 100 * high))
    return found


def crosses(points: dict[str, Any]) -> None:
    """Of each row its gains on both sides, each with its interval, as a cross: docs/img/transfer.png."""
    with report.phone(results.ROOT / "docs" / "img" / "transfer.png", 3.4) as (figure, axes):
        for number, (name, (across, up)) in enumerate(points.items()):
            ends = [[[of[0] - of[1]], [of[2] - of[0]]] for of in (across, up)]
            mark = "osD^v"[number // 10 % 5]  # there are ten colours
            axes.errorbar(across[0], up[0], ends[1], ends[0], fmt=mark, markersize=3, linewidth=0.8, label=name)
        for line in (axes.axhline, axes.axvline):
            line(0, color="grey", linewidth=0.6, zorder=0)
        axes.set(title="Points over vanilla KD", xlabel="mean of the small tasks", ylabel="mean of SST-2, STS-B, QQP")
        figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)


def answer(arena: Table, real: Table) -> dict[str, Any]:
    """The table, "header" and "rows", and what is `said` of it by the rule that was written down before the runs."""
    header, lines = [""], list[list[str]]()
    for what, marked in (("the arena", False), ("the arena with its † task", True)):
        found = transfer(*both(arena, real, marked), what, "real tasks")
        header, rows = ["", *found.header[1:]], found.header[0]
        wanted = [line for line in found.rows if not lines or line[0].startswith(what)]  # the ceiling once
        lines += [[f"{line[0]} ({rows})", *line[1:]] for line in wanted]
    out = ", ".join(short(task) for task in arena.tasks if task not in both(arena, real)[0].samples)
    whole, losses = (line[2:] for line in lines
                     if line[0].startswith("the arena, ") and line[1].startswith("real tasks, mean"))  # fmt: skip

    def word(between: str, p: str) -> str:  # the interval is over draws, p over rows
        low, high = map(float, between.strip("[]").split(", "))
        other = "does not predict" if high < 0 else "is not distinguishable from one unrelated to"
        return "predicts" if low > 0 and float(p.removeprefix("< ")) < 0.05 else other

    def figures(correlation: str, between: str, p: str) -> str:
        return f"{correlation} {between}, p = {p} over rows, one-sided"

    place = "[real tasks](docs/real.md#do-small-tasks-predict-real-ones)"
    said = (
        f"The order of these rows{out and f', without {out} (†),'} {word(*whole[1:])} that on {place} under MiniLM"
        f" ({', '.join(map(short, real.tasks))}): rank correlation {figures(*whole)}. Of the losses alone"
        f" the order {word(*losses[1:])} the real one: {figures(*losses)}."
    )
    return {"header": header, "rows": lines, "said": said}


def main() -> None:
    arena, real = (load([FOLDER / f"{name}{KEPT}"]) for name in ("arena", "real_arena"))
    results.write_json(FOLDER / "transfer.json", answer(arena, real))
    one, two = both(arena, real)
    titles = pages.arena_titles()
    crosses({titles[row.name]: pair for row, *pair in zip(one.rows, gains(one), gains(two), strict=True)})


if __name__ == "__main__":
    main()
