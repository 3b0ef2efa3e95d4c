"""Means over seeds and tasks, their intervals, and when a difference is called one (bench/RULES.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean and its 95% interval; None where there is one seed."""

    mean: float
    low: float | None
    high: float | None


def interval(*samples: list[float]) -> Interval:
    """Mean over tasks of means over seeds, and its 95% interval: one sample of seeds for each task.

    Student's t, the variances of the tasks added up and their degrees of freedom as Welch and Satterthwaite have
    them. A bootstrap of three seeds would be far too sure of itself: its interval can be no wider than the three.
    """
    mean = float(np.mean([np.mean(values) for values in samples]))
    if any(len(values) < 2 for values in samples):
        return Interval(mean, None, None)
    shares = [float(np.var(values, ddof=1)) / len(values) for values in samples]
    if not sum(shares):
        return Interval(mean, mean, mean)
    freedom = sum(shares) ** 2 / sum(v**2 / (len(values) - 1) for v, values in zip(shares, samples, strict=True))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(shares)) / len(samples)
    return Interval(mean, mean - half, mean + half)


def paired(left: list[float], right: list[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def word(found: Interval) -> str:
    """What an interval of a difference says."""
    if found.low is None or found.high is None:
        return "one seed"
    return "not distinguishable" if found.low <= 0 <= found.high else "higher" if found.mean > 0 else "lower"


def verdict(found: Interval) -> str:
    """A difference in points, its interval, and what it says."""
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f} (one seed)"
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}], {word(found)}"


def difference(left: list[float], right: list[float]) -> str:
    """Left minus right in points, paired by seed, with its 95% interval, and what it says."""
    return verdict(interval(paired(left, right)))


def cell(values: list[float]) -> str:
    """Fractions as percent: their mean ± standard deviation."""
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"
