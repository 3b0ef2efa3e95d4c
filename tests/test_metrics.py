"""The metrics against direct library calls, hand-computed values, and the degenerate cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from common import metrics
from common.data import TASKS

LABELLED = [name for name, task in TASKS.items() if task.kind in ("classification", "regression")]


@pytest.mark.parametrize("seed", range(5))
def test_classification_metrics_equal_the_library(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predictions, labels = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    assert metrics.accuracy(predictions, labels) == np.mean(predictions == labels)
    assert metrics.f1(predictions, labels) == sklearn_metrics.f1_score(labels, predictions)
    assert metrics.matthews(predictions, labels) == sklearn_metrics.matthews_corrcoef(labels, predictions)


@pytest.mark.parametrize("seed", range(5))
def test_regression_metrics_equal_the_library(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predictions, labels = rng.normal(size=100), rng.integers(0, 6, 100).astype(float)
    assert metrics.pearson(predictions, labels) == stats.pearsonr(predictions, labels)[0]
    assert metrics.spearman(predictions, labels) == stats.spearmanr(predictions, labels)[0]


def test_values_computed_by_hand() -> None:
    # tp 2, fp 1, fn 1, tn 2: precision = recall = 2/3; MCC = (4 - 1) / sqrt(3 * 3 * 3 * 3)
    predictions, labels = [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]
    assert metrics.accuracy(predictions, labels) == pytest.approx(4 / 6)
    assert metrics.f1(predictions, labels) == pytest.approx(2 / 3)
    assert metrics.matthews(predictions, labels) == pytest.approx(1 / 3)
    # Deviations (-1, 0, 1) and (-4/3, -1/3, 5/3): 3 / sqrt(2 * 42/9)
    assert metrics.pearson([1, 2, 3], [0, 1, 3]) == pytest.approx(3 / np.sqrt(2 * 42 / 9))
    assert metrics.spearman([1, 2, 30], [0, 1, 3]) == pytest.approx(1.0)
    # Ranks (1, 2, 3) and (1.5, 1.5, 3), ties averaged: 1.5 / sqrt(2 * 1.5)
    assert metrics.spearman([1, 2, 3], [4, 4, 5]) == pytest.approx(1.5 / np.sqrt(3))


def test_f1_is_not_symmetric_in_the_classes() -> None:
    """The positive class is 1 (paraphrase, duplicate): a prediction of 0 everywhere earns nothing."""
    assert metrics.f1([0, 0, 0, 0], [0, 0, 0, 1]) == 0.0
    assert metrics.f1([1, 1, 1, 1], [0, 1, 1, 1]) == pytest.approx(6 / 7)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "predictions", "labels"),
    [
        ("f1", [0, 0], [0, 0]),
        ("matthews", [1, 1, 1], [1, 1, 1]),
        ("matthews", [0, 0, 0], [0, 1, 1]),
        ("matthews", [0, 1, 1], [1, 1, 1]),
        ("pearson", [2.5, 2.5, 2.5], [1.0, 2.0, 3.0]),
        ("pearson", [1.0, 2.0, 3.0], [4.0, 4.0, 4.0]),
        ("pearson", [1.0], [2.0]),
        ("spearman", [2.5, 2.5, 2.5], [1.0, 2.0, 3.0]),
        ("spearman", [1.0, 2.0, 3.0], [4.0, 4.0, 4.0]),
    ],
)
def test_degenerate_cases_are_zero_and_silent(name: str, predictions: list, labels: list) -> None:
    assert metrics.METRICS[name](predictions, labels) == 0.0


def test_a_negative_correlation_stays_negative() -> None:
    assert metrics.matthews([0, 1, 0, 1], [1, 0, 1, 0]) == pytest.approx(-1.0)
    assert metrics.pearson([3, 2, 1], [1, 2, 3]) == pytest.approx(-1.0)


@pytest.mark.parametrize("name", LABELLED)
def test_compute_gives_every_metric_the_primary_first(name: str) -> None:
    task = TASKS[name]
    labels = [0.5, 2.0, 4.0] if task.kind == "regression" else [0, 1, 1]
    found = metrics.compute(task, labels, labels)
    assert list(found) == list(task.metrics)
    assert next(iter(found)) == metrics.primary(task)
    assert all(type(value) is float and value == pytest.approx(1.0) for value in found.values())
    assert set(found) <= set(metrics.TITLES)


def test_the_metrics_of_glue() -> None:
    assert {name: TASKS[name].metrics for name in LABELLED} == {
        "cola": ("matthews",),
        "sst2": ("accuracy",),
        "mrpc": ("f1", "accuracy"),
        "qqp": ("f1", "accuracy"),
        "stsb": ("pearson", "spearman"),
        "mnli": ("accuracy",),
        "qnli": ("accuracy",),
        "rte": ("accuracy",),
    }


@pytest.mark.parametrize(
    ("predictions", "labels", "message"),
    [
        ([1, 0], [1], "both must be"),
        ([], [], "N > 0"),
        ([[0.1, 0.9]], [[1, 0]], "both must be"),
        ([float("nan"), 1.0], [1, 0], "finite"),
        ([1.0, 0.0], [float("inf"), 0], "finite"),
    ],
)
def test_compute_refuses_what_has_no_metric(predictions: list, labels: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.compute(TASKS["sst2"], predictions, labels)
