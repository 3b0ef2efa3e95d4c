"""Intervals that count seeds and test items, the tests that follow from them, and the comparisons of rows.

A score would have been another with other seeds, and with other test items. A difference of rows, paired by both, has
the variance of a mean over two crossed random factors. Of S seeds and N items, from the usual mean squares [1]:

    Var(mean) = (MS_seed + MS_item - MS_rest) / (S N)
              = s^2 / S  +  max(0, Var_i(mean influence of item i) / N - MS_rest / (S N))

s^2 is the variance of the seeds' differences. What an item does to a score is its influence [2]: for the accuracy
whether it is right; for a correlation, Pearson's or Matthews', z_x z_y - r (z_x^2 + z_y^2) / 2. Degrees of freedom are
Satterthwaite's. Tasks are independent: their variances are added. Without predictions the first part is all there is.

[1] Searle, Casella and McCulloch 1992, Variance components, chapter 4; [2] Hampel 1974, The influence curve.
Shapes: S seeds, N items, C classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from bench.table import Row, Table

MOST_SEEDS = 1000
ALIKE = 0.01  # rows that differ by less are as good as each other
WANTED = 0.02  # the difference that a table should be able to tell


class Sample(NamedTuple):
    """One task's scores, or differences: `values` [S]; and how each item moves each, `influence` [S, N], if known."""

    values: np.ndarray
    influence: np.ndarray | None = None


class Estimate(NamedTuple):
    """A mean over tasks and seeds, and what is known of its error: `seeds` and `items` are parts of its variance, NaN
    where there is one seed."""

    mean: float
    seeds: float
    items: float
    freedom: float

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.seeds + self.items)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Its ends; NaN where there is one seed."""
        half = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.error if self.error else 0.0
        return self.mean - half, self.mean + half

    @property
    def word(self) -> str | None:
        """What a difference is called; None where there is one seed."""
        low, high = self.interval()
        if math.isnan(low):
            return None
        return "not distinguishable" if low <= 0 <= high else "higher" if self.mean > 0 else "lower"

    def text(self, form: str = "+.1f", unit: float = 100, name: str = "") -> str:
        """The mean and its interval; of fractions in percent."""
        low, high = self.interval()
        if math.isnan(low):
            return f"{unit * self.mean:{form}}{name} (one seed)"
        return f"{unit * self.mean:{form}} [{unit * low:{form}}, {unit * high:{form}}]{name}"

    def above(self, bound: float) -> float:
        """P value of the one-sided test that the truth is above `bound`."""
        if not self.error:
            return float(self.mean <= bound)
        return float(stats.t.sf((self.mean - bound) / self.error, self.freedom))

    @property
    def p(self) -> float:
        """P value of the two-sided test against zero; NaN of one seed."""
        if math.isnan(self.error):
            return math.nan
        return min(1.0, 2 * min(self.above(0), 1 - self.above(0))) if self.mean or self.error else 1.0

    def within(self, margin: float) -> float:
        """P value of the equivalence test: two one-sided tests (TOST) that the truth lies within the margin."""
        return max(self.above(-margin), 1 - self.above(margin))


def estimate(samples: Sequence[Sample]) -> Estimate:
    """The mean over tasks of means over seeds: one sample for each task."""
    mean = float(np.mean([np.mean(sample.values) for sample in samples]))
    if any(len(sample.values) < 2 for sample in samples):
        return Estimate(mean, math.nan, math.nan, math.nan)
    # of each task the part of the variance and its degrees of freedom
    by_seed = [(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values, _ in samples]
    by_item = [(item_part(influence), influence.shape[1] - 1) for _, influence in samples if influence is not None]
    squares = sum(part**2 / n for part, n in by_seed) + sum(part**2 / n for part, n in by_item)
    seeds, items = (sum(part for part, _ in parts) for parts in (by_seed, by_item))
    freedom = (seeds + items) ** 2 / squares if squares else math.inf
    return Estimate(mean, seeds / len(samples) ** 2, items / len(samples) ** 2, freedom)


def sides(tasks: Mapping[str, Estimate], bound: float = 0.0) -> tuple[list[str], list[str]]:
    """The tasks whose interval lies above a bound, and those whose lies below: of a difference that has some of both
    the tasks contradict each other."""
    ends = {task: one.interval() for task, one in tasks.items()}
    return [task for task in ends if ends[task][0] > bound], [task for task in ends if ends[task][1] < bound]


def only_on(tasks: Mapping[str, Estimate], bound: float, above: bool) -> str:
    """On which tasks a mean's side of a bound is told by the task itself; "" if on all."""
    by = sides(tasks, bound)[not above]
    return f" (by task: {' and '.join(by) or 'none'})" if len(by) < len(tasks) else ""


def item_part(influence: np.ndarray) -> float:
    """What items add to the variance of a mean over seeds, beside the variance between seeds; of influences [S, N]."""
    s, n = influence.shape
    means = influence.mean(0)
    rest = influence - means - influence.mean(1, keepdims=True) + means.mean()
    return max(0.0, float(means.var(ddof=1)) / n - float(np.square(rest).sum()) / ((s - 1) * (n - 1)) / (s * n))


# --- how an item moves a metric ------------------------------------------------------------------------------


def right(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Influence on the accuracy [N]."""
    hits = predicted == labels
    return hits - hits.mean()


def correlated(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Influence on Pearson's correlation, which of two classes is Matthews' [N]; zeros where a side is constant."""
    x, y = (np.asarray(side, np.float64) for side in (predicted, labels))
    if not x.std() or not y.std():
        return np.zeros(len(x))
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    return x * y - (x * y).mean() * (x * x + y * y) / 2


def matched(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Influence on Matthews' correlation of any number of classes: Pearson's, of one-hot vectors [N, C]."""
    if len(classes := np.union1d(predicted, labels)) <= 2:
        return correlated(predicted, labels)
    x, y = (1.0 * (side[:, None] == classes) for side in (predicted, labels))
    x, y = x - x.mean(0), y - y.mean(0)
    if not x.any() or not y.any():
        return np.zeros(len(x))
    x, y = (side / np.sqrt(np.square(side).sum(1).mean()) for side in (x, y))
    both = (x * y).sum(1)
    return both - both.mean() * (x * x + y * y).sum(1) / 2


def found_and_true(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Influence on the F1 of class 1, twice the hits over what is predicted and what is true [N]; zeros where it is
    on neither side."""
    hits, either = 2.0 * ((predicted == 1) & (labels == 1)), 1.0 * (predicted == 1) + (labels == 1)
    return (hits - hits.sum() / either.sum() * either) / either.mean() if either.any() else either


INFLUENCE = {"accuracy": right, "f1": found_and_true, "matthews": matched, "pearson": correlated}


# --- several tests -------------------------------------------------------------------------------------------


def holm(p: Sequence[float]) -> list[float]:
    """P values corrected for their number (Holm 1979): each below .05 may be called, with 5% risk for all together."""
    order, found, highest = np.argsort(p), [0.0] * len(p), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[at]))
        found[at] = highest
    return found


def seeds_for(difference: float, spreads: Sequence[float], items: Sequence[float]) -> float:
    """Seeds with which `estimate` would tell a mean difference of this size from zero in 80% of all cases.

    Of each task `spreads` has the standard deviation between seeds, `items` the standard error from its test items,
    which no seed makes smaller. The two-sided t test at 5%. Infinite where no number up to `MOST_SEEDS` would do.
    """
    between = [spread**2 for spread in spreads]
    fixed = sum(error**2 for error in items) / len(items) ** 2
    independent = (
        sum(between) ** 2 / sum(v**2 for v in between) if any(between) else 1.0
    )  # tasks, as Satterthwaite counts
    for n in range(2, MOST_SEEDS + 1):
        seeds = sum(between) / len(between) ** 2 / n
        if not seeds + fixed:
            return n
        freedom = min(1e6, independent * (n - 1) * ((seeds + fixed) / seeds) ** 2 if seeds else math.inf)
        shift, critical = abs(difference) / math.sqrt(seeds + fixed), float(stats.t.ppf(0.975, freedom))
        if shift > critical + 20 or float(stats.nct.sf(critical, freedom, shift)) >= 0.8:
            return n
    return math.inf


# --- comparisons of rows -------------------------------------------------------------------------------------


def short(task: str) -> str:
    return task.removeprefix("pocket/")


class Contrast(NamedTuple):
    """A weighted sum of rows: what it is, on each task by itself, its p value, corrected where it is one of several,
    and why it decides nothing, if it does. None where no task has seeds of all rows and no † cell."""

    found: Estimate | None
    tasks: dict[str, Estimate]
    p: float
    what: str = ""
    why: str = ""

    @property
    def word(self) -> str:
        """What it is called: from the p value, and on which tasks by itself if not on all; "as good as" from the
        equivalence test. Tasks that contradict each other have no common answer."""
        if self.found is None:
            return self.why or "no seed that all rows have"
        if np.isnan(self.p):
            return "one seed"
        if self.disagree:
            return self.disagree
        told = ("higher" if self.found.mean > 0 else "lower") if self.p < 0.05 else "not distinguishable"
        named = {short(task): one for task, one in self.tasks.items()}
        partly = only_on(named, 0.0, self.found.mean > 0) if self.p < 0.05 else ""
        return told + partly + f", as good as (within {100 * ALIKE:.0f} point)" * self.alike

    @property
    def disagree(self) -> str:
        """On which tasks it is higher and on which lower, each by its own interval; "" if not both."""
        higher, lower = (" and ".join(map(short, side)) for side in sides(self.tasks))
        return f"the tasks disagree: higher on {higher}, lower on {lower}" if higher and lower else ""

    @property
    def alike(self) -> bool:
        """Within the margin by the mean, where no task by itself tells a difference beyond it."""
        far = any(abs(one.mean) > ALIKE and one.word in ("higher", "lower") for one in self.tasks.values())
        return self.found is not None and self.found.within(ALIKE) < 0.05 and not (self.disagree or far)

    @property
    def verdict(self) -> str:
        """The figures, and what they say, without a correction."""
        if self.found is None:
            return "† decides nothing"
        return ", ".join(filter(None, [self.found.text(), self.disagree or self.found.word]))


# Rows of a loss on hidden states of all tokens beside KD's; the five contrasts that were planned before the runs
TOKENS = ("mse-kd", "cka-kd", "mc3kd", "cosine-kd", "lin-kd")
PLANNED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("KD over undistilled", ("kd",), "undistilled"),
    ("losses on all tokens' hidden states over KD", TOKENS, "kd"),
    ("CKA over CCC (cka-kd over mc3kd)", ("cka-kd",), "mc3kd"),
    ("CKA over squared error (cka-kd over mse-kd)", ("cka-kd",), "mse-kd"),
    ("CCC over squared error (mc3kd over mse-kd)", ("mc3kd",), "mse-kd"),
)

# The linear model from as many labelled rows: not planned
LINEAR_OVER: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("linear over undistilled", ("linear",), "undistilled"),
    ("linear over KD", ("linear",), "kd"),
    ("losses on all tokens' hidden states over linear", TOKENS, "linear"),
)


def corrected(made: list[Contrast]) -> list[Contrast]:
    """With p values corrected for the number of those that are known, by Holm's rule."""
    known = [i for i, one in enumerate(made) if not np.isnan(one.p)]
    for i, p in zip(known, holm([made[i].p for i in known]), strict=True):
        made[i] = made[i]._replace(p=p)
    return made


def planned(table: Table, which: Sequence[tuple[str, tuple[str, ...], str]] = PLANNED) -> list[Contrast]:
    """The contrasts that were planned, or others, with Holm's correction for their number."""
    named, made = {row.name: row for row in (*table.arena(), *table.linear())}, []
    for what, left, right in which:
        rows = [named[name] for name in left if name in named]
        if not rows or right not in named:
            continue  # no result yet
        weights = [*((row, 1 / len(rows)) for row in rows), (named[right], -1.0)]
        marked = [f"{row.name} on {short(task)}" for row, _ in weights for task in table.tasks
                  if table.untrained(row, task)]  # fmt: skip
        why = f"decides nothing where a cell is †: {', '.join(marked)}" if marked else ""
        made.append(table.contrast(weights, table.tasks)._replace(what=what, why=why))
    return corrected(made)


def has_contrasts(table: Table) -> bool:
    """Whether it has the rows of the first planned contrast."""
    return {"kd", "undistilled"} <= {row.name for row in table.arena()}


def pairs(table: Table, rows: Sequence[Row], wanted: Iterable[str]) -> dict[tuple[int, int], Contrast]:
    """Every row minus each that stands below it, with Holm's correction for their number: exploratory."""
    wanted, which = list(wanted), list(itertools.combinations(range(len(rows)), 2))
    return dict(zip(which, corrected([table.over(rows[a], rows[b], wanted) for a, b in which]), strict=True))


def spread(table: Table) -> str:
    """Seeds with which a difference of `WANTED` between two rows of the arena would be told, its variances pooled over
    all rows over vanilla KD; "" without one."""
    rows = [row for row in table.arena() if row.role is None]
    rivals = [(row, kd) for row in rows if (kd := table.baseline(row, "vanilla KD"))]
    pooled = []
    for task in table.tasks:
        trained = [pair for pair in rivals if not any(table.untrained(row, task) for row in pair)]
        samples = [table.sample([(row, 1.0), (kd, -1.0)], task) for row, kd in trained]
        used = [sample for sample in samples if sample is not None and len(sample.values) > 1]
        if not used:
            return ""
        deviation = float(np.mean([np.var(sample.values, ddof=1) for sample in used])) ** 0.5
        items = float(np.mean([0.0 if s.influence is None else item_part(s.influence) for s in used])) ** 0.5
        pooled.append((deviation, items))
    count = seeds_for(WANTED, *zip(*pooled, strict=True))
    seeds = "no number of" if np.isinf(count) else f"{count:.0f}"
    return (
        f"At this table's spread, pooled over its rows, a difference of {100 * WANTED:.0f} points from vanilla KD is"
        f" told in four cases of five with {seeds} seeds."
    )
