"""A class or a score for each text, or pair of texts; and what the classes are called, here and in checkpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.errors import BadInput, shown, some
from common.kinds import Kind, Rows, Split, Task
from common.metrics import accuracy, compute, pearson

if TYPE_CHECKING:
    from torch import Tensor


class _Sentence(Kind):
    """What one class and one score have in common."""

    single = True
    outputs = ("logits",)

    def default_lr(self, width: int, init: str) -> float:
        """Interpolated between widths that were tried on tuning splits: at 128 1e-3 is the best of five rates for
        vanilla KD and as good as the best for the undistilled student (bench/results/arena_trials.json), at 384 3e-4 is
        the best of three for both (bench/results/real_arena_trials.json); 3e-5 is BERT-base's usual one. From random
        weights 2e-3 at 64. Losses on hidden states take one to three times as much."""
        if init == "random":
            return 2e-3 if width <= 64 else 1e-3
        return float(np.interp(1 / width, [1 / 768, 1 / 384, 1 / 128, 1 / 64], [3e-5, 3e-4, 1e-3, 2e-3]))


class Classification(_Sentence):
    """One class: an index into Task.labels. Labels: [N], long."""

    name = "classification"
    own_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "majority")
    more_metrics: ClassVar[tuple[str, ...]] = ("matthews",)

    def read(self, task: Task, rows: Rows, i: int) -> int:
        """Row i's label as an index into task.labels: by name, or an integer that is the hub's id."""
        value = rows.columns["label"][i]
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if isinstance(value, str):
            if (found := task.places.get(value)) is None:
                from common.kinds.names import class_of

                found = class_of(value, task)
            if found is not None and (rows.integers or not value.strip().isdigit()):
                return found
        elif whole and rows.integers and 0 <= value < len(task.labels):
            return int(value)
        ids = f" or {some(range(len(task.labels)))}" if rows.integers else ""
        raise BadInput(f"{rows.place(i)}: label {shown(value)} is unknown; {task.name} has {some(task.labels)}{ids}")

    def settings(self, task: Task) -> dict[str, Any]:
        return super().settings(task) | {"problem_type": "single_label_classification"}

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        return compute(task.metrics, found.argmax(1), split.labels)

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        return [task.labels[c] for c in found.argmax(1)]

    def kept(self, found: Any) -> np.ndarray | None:
        """(N, C) logits."""
        return found

    def agreement(self, student: np.ndarray, teacher: np.ndarray) -> float:
        """The share of equal classes (Stanton et al.'s top-1 agreement)."""
        return accuracy(student.argmax(1), teacher.argmax(1))

    def log_loss(self, kept: np.ndarray, labels: Sequence[Any]) -> float | None:
        """The mean negative log-likelihood, in nats."""
        from scipy.special import log_softmax

        if not all(isinstance(label, int) for label in labels):  # scores, of which classes were made for training
            return None
        return float(-log_softmax(kept.astype("float64"), axis=1)[range(len(kept)), labels].mean())

    def stored(self, values: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """Probabilities where all numbers lie in 0..1, or half of the rows sum to 1: then every row has to."""
        inside, sums = ((values >= 0) & (values <= 1)).all(1), values.sum(1)
        # half of the last digit for each class, where they are rounded
        digits = next((d for d in range(2, 5) if np.allclose(values, values.round(d), rtol=0, atol=1e-9)), 9)
        sound = inside & (abs(sums - 1) <= np.clip(values.shape[1] / 2 * 0.1**digits, 0.02, 0.2))
        if not inside.all() and sound.mean() < 0.5:
            if (values >= 0).all() and (abs(sums - 100) <= 2).mean() > 0.5:
                raise BadInput(f"{place(0)}: its numbers sum to {sums[0]:.4g}, as percentages do; divide them by 100")
            return values
        if not sound.all():
            i = int(sound.argmin())
            raise BadInput(f"{place(i)}: its probabilities sum to {sums[i]:.4g}; those of a row must sum to 1")
        return np.log(np.maximum(values, 1e-7))


class Regression(_Sentence):
    """A score, a float. Labels: [N], float32."""

    name = "regression"
    own_metrics = ("pearson", "spearman")
    absent = math.nan

    def read(self, task: Task, rows: Rows, i: int) -> float:
        """Row i's label as a finite score within task.score_range."""
        value = rows.columns["label"][i]
        low, high = task.score_range or (-math.inf, math.inf)
        score = None if isinstance(value, str) and "," in value else number(value)
        if score is None or not (low <= score <= high and math.isfinite(score)):
            wants = f"{task.name} needs a number" + (f" from {low:g} to {high:g}" if task.score_range else "")
            wants += ", without a comma that may mean thousands" if _thousands(value) else ""
            raise BadInput(f"{rows.place(i)}: score {shown(value)} is wrong; {wants}")
        return score

    def targets(self, tokenizer: Any, split: Split, max_length: int) -> Tensor:
        return super().targets(tokenizer, split, max_length).float()

    def settings(self, task: Task) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        return compute(task.metrics, found[:, 0], split.labels)

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        """Scores, as far apart as a thousandth of the labels' range, or as rounding."""
        known = [label for label in split.labels if label is not None] or [0.0]
        same = np.ptp(found) <= max(1e-3 * np.ptp(known), 1e-6 * abs(found).max())
        return [float(found.flat[0])] * len(found) if same else found.ravel().tolist()

    def kept(self, found: Any) -> np.ndarray | None:
        """(N,) scores."""
        return found[:, 0].copy()

    def agreement(self, student: np.ndarray, teacher: np.ndarray) -> float:
        return pearson(student, teacher)

    def log_loss(self, kept: np.ndarray, labels: Sequence[Any]) -> float | None:
        """The mean squared error."""
        return float(((kept.astype("float64") - labels) ** 2).mean())


# --- numbers -------------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """A cell as a number, a decimal comma allowed; None if it is none, or may be thousands: "1,036"."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # Python's True, and its 1_000
        return None
    if isinstance(value, str) and re.fullmatch(r"\s*-?(0,\d+|\d+,(?!\d{3}\s*$)\d+)\s*", value):
        value = value.replace(",", ".")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _thousands(value: Any) -> bool:
    """Whether a cell is a number that may have a comma after its thousands."""
    return isinstance(value, str) and re.fullmatch(r"\s*-?[1-9]\d{0,2}(,\d{3})+\s*", value) is not None
