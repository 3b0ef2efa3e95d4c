"""GLUE's official metrics, from scikit-learn and scipy, with the degenerate cases defined.

Accuracy and F1 lie in 0..1, the correlations in -1..1. Where a figure has no value (constant predictions or
labels in a correlation, no positive in F1), it is 0.0: what was predicted carries no information.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import ArrayLike

    from common.data import Task

# The names that tables print.
TITLES: dict[str, str] = {
    "accuracy": "Acc",
    "f1": "F1",
    "matthews": "MCC",
    "pearson": "Pearson",
    "spearman": "Spearman",
}


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of predictions that equal the label."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Binary F1 of class 1 (MRPC: equivalent, QQP: duplicate); 0.0 if it is neither predicted nor there."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="binary", pos_label=1, zero_division=0.0))


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Matthews correlation (CoLA); 0.0 if predictions or labels are all of one class."""
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one class alone is a defined case here
        return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Pearson correlation (STS-B); 0.0 if either side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, labels)


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Spearman rank correlation (STS-B), ties with their average rank; 0.0 if either side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, labels)


def _correlation(function: Callable[..., Any], predictions: ArrayLike, labels: ArrayLike) -> float:
    import numpy

    x, y = numpy.asarray(predictions, dtype=numpy.float64), numpy.asarray(labels, dtype=numpy.float64)
    if (x == x[0]).all() or (y == y[0]).all():  # scipy answers NaN
        return 0.0
    return float(function(x, y).statistic)


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def primary(task: Task) -> str:
    """The metric by which the task's rows are compared."""
    return task.metrics[0]


def compute(
    task: Task, predictions: Sequence[Any] | numpy.ndarray, labels: Sequence[Any] | numpy.ndarray
) -> dict[str, float]:
    """The task's metrics on one split (MNLI: once per split), the primary first.

    `predictions`, `labels`: [N], class indices (classification) or scores (regression).
    Raises ValueError if they differ in shape, are empty, or hold a number that is not finite.
    """
    import numpy

    x, y = numpy.asarray(predictions), numpy.asarray(labels)
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise ValueError(f"predictions {x.shape} and labels {y.shape}: both must be [N], N > 0")
    if not (numpy.isfinite(x).all() and numpy.isfinite(y).all()):
        raise ValueError("predictions and labels must be finite")
    return {name: METRICS[name](x, y) for name in task.metrics}
