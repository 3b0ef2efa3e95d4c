"""The tasks' official metrics, of predictions and labels.

GLUE's metrics are from scikit-learn and scipy; those of texts and documents are in `text_metrics.py`.
Accuracy and F1 lie in 0..1, the correlations in -1..1. Where a figure has no value (constant predictions or labels in a
correlation, no positive in F1), it is 0.0: what was predicted carries no information.

Shapes: N examples. The large libraries are imported where they are used: `--help` needs none of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Metric = Callable[[Any, Any], float]  # of predictions and labels, [N]


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of predictions that equal the label."""
    return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def majority(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of the largest class: the accuracy of who always says it."""
    return float(np.unique(np.asarray(labels), return_counts=True)[1].max() / np.asarray(labels).size)


def _sklearn(name: str, **how: Any) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        import sklearn.metrics

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one class alone is a defined case here
            return float(getattr(sklearn.metrics, name)(labels, predictions, **how))

    return metric


def _scipy(name: str) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        import scipy.stats

        x, y = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
        if (x == x[0]).all() or (y == y[0]).all():  # scipy answers NaN
            return 0.0
        return float(getattr(scipy.stats, name)(x, y).statistic)

    return metric


f1 = _sklearn("f1_score", average="binary", pos_label=1, zero_division=0.0)  # of MRPC's and QQP's class 1
macro_f1 = _sklearn("f1_score", average="macro", zero_division=0.0)  # over the classes that are there or predicted
micro_f1 = _sklearn("f1_score", average="micro", zero_division=0.0)  # over all labels together
matthews = _sklearn("matthews_corrcoef")
pearson, spearman = _scipy("pearsonr"), _scipy("spearmanr")
METRICS: dict[str, Metric] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "majority": majority}
METRICS |= {"matthews": matthews, "pearson": pearson, "spearman": spearman, "micro_f1": micro_f1}


def compute(names: Sequence[str], predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """These metrics on one split, in their order.

    `predictions`, `labels`: [N], class indices (classification) or scores (regression).
    Raises ValueError if they differ in shape, are empty, or hold a number that is not finite.
    """
    x, y = np.asarray(predictions), np.asarray(labels)
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise ValueError(f"predictions {x.shape} and labels {y.shape}: both must be [N], N > 0")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("predictions and labels must be finite")
    return {name: METRICS[name](x, y) for name in names}
