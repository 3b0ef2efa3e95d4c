"""A class or a score for each text, or pair of texts; and what the classes are called, here and in checkpoints."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.errors import BadInput, shown, some, warn
from common.kinds.base import Kind, Rows, Split, Task
from common.metrics import accuracy, compute, pearson

if TYPE_CHECKING:
    from torch import Tensor


class _Sentence(Kind):
    """What one class and one score have in common."""

    ordered = True
    outputs = ("logits",)

    def output_names(self, config: Any) -> tuple[str, ...]:
        headed = any(part in name for part in self.architectures for name in config.architectures or [])
        names = tuple(str(config.id2label[i]) for i in range(config.num_labels)) if headed else ()
        return () if len(names) > 1 and nameless(names) else names

    def default_lr(self, width: int, init: str) -> float:
        """It grows with the square of 768 / width. On the tuning splits 1e-3 is the best of five rates at width 128 for
        vanilla KD, and as good as the best for the undistilled student (bench/results/arena_trials.json), 1e-4 at 384;
        from random weights 2e-3 at 64. Losses on hidden states take twice as much."""
        if init == "random":
            return 2e-3 if width <= 64 else 1e-3
        return min(2e-3, 1e-3 * (128 / width) ** 2)


class Classification(_Sentence):
    """One class: an index into Task.labels. Labels: [N], long."""

    name = "classification"
    own_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "majority")
    more_metrics: ClassVar[tuple[str, ...]] = ("matthews",)

    def cell(self, value: Any) -> Any:
        return re.sub(r"^(-?\d+)\.0$", r"\1", str(value).strip())  # what tables make of 1 where cells are blank

    def label_names(self, rows: dict[str, Rows]) -> Sequence[str]:
        """The classes that there are, numbers in their order."""
        if names := next(iter(rows.values())).names.get("label"):
            return names
        there = {value for found in rows.values() for value in found.columns["label"]}
        numbers = {value: number(value) for value in there}
        return sorted(there, key=str if None in numbers.values() else lambda value: (numbers[value], value))

    def read(self, task: Task, rows: Rows, i: int) -> int:
        """Row i's label as an index into task.labels: by name, or an integer that is the hub's id."""
        value = rows.columns["label"][i]
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if isinstance(value, str):
            found = class_of(value, task)
            if found is not None and (rows.integers or not value.strip().isdigit()):
                return found
        elif whole and rows.integers and 0 <= value < len(task.labels):
            return int(value)
        ids = f" or {some(range(len(task.labels)))}" if rows.integers else ""
        raise BadInput(f"{rows.place(i)}: label {shown(value)} is unknown; {task.name} has {some(task.labels)}{ids}")

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        counts = Counter(splits["train"].labelled.labels)
        for name, split in splits.items():
            there = set(split.labels) - {None}
            if there and (lacking := [label for i, label in enumerate(task.labels) if i not in there]):
                warn(f"{name}: no row of {len(lacking):,} of {len(task.labels):,} classes ({some(lacking, 5)})")
        alone = [task.labels[label] for label, count in counts.items() if count == 1]
        for label in alone[:5]:
            close = difflib.get_close_matches(label, [name for name in task.labels if name != label], 1, 0.8)
            place = rows.place(rows.columns["label"].index(label))
            warn(f"train: class {label!r} has one row, {place}{f'; is it {close[0]!r}?' if close else ''}")
        if alone[5:]:
            warn(f"train: {len(alone) - 5:,} more classes have one row")
        known = set(task.labels)
        if joined := [name for name in known if "," in name and known.issuperset(map(str.strip, name.split(",")))]:
            warn(f"class {min(joined)!r} is made of others; --kind labels gives a text several")
        shares = [f"{task.labels[label]} {count:,}" for label, count in counts.most_common()]
        return f"{len(task.labels):,} class{'es' * (len(task.labels) != 1)} ({some(shares or task.labels, 5)})"

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

    def by_class(self, task: Task, split: Split, kept: np.ndarray) -> dict[str, dict[str, Any]]:
        """Each class's precision, recall, F1 and count, and its row of the confusion matrix: answer -> how often."""
        from sklearn.metrics import confusion_matrix

        answers = kept.argmax(1)
        confusion = confusion_matrix(split.labels, answers, labels=range(len(task.labels)))
        answered = [{task.labels[i]: int(row[i]) for i in row.nonzero()[0]} for row in confusion]
        return class_figures(task.labels, split.labels, answers, answered)

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

    def cell(self, value: Any) -> Any:
        return value if (found := number(value)) is None else found

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

    def of_own(self, train: Split) -> Kind:
        kind = OwnScores(self)
        kind.fit(train.labelled.labels or (() if train.outputs is None else train.outputs))
        return kind

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        scores = splits["train"].labelled.labels
        return f"scores from {min(scores):g} to {max(scores):g}" if scores else "scores"

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


class OwnScores(Regression):
    """Scores of a data set of one's own, in any unit. Losses compare z-scores; models answer in the data's unit."""

    recipe: ClassVar = {"scores": "standardised"}

    def fit(self, scores: Any) -> None:
        """Take the scale of the first scores that are known: of train's labels, or else of a teacher's outputs."""
        known = np.array(scores, "float64")
        if self.scale is None and known[~np.isnan(known)].size:
            self.scale = float(np.nanmean(known)), float(np.nanstd(known)) or 1.0

    def predictions(self, output: Any, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = self.scale or (0.0, 1.0)
        return (output.logits - mean) / std, (labels - mean) / std


def class_figures(names: Sequence[str], labels: Any, answers: Any, answered: list[dict[str, int]]) -> dict[str, Any]:
    """By name precision, recall, F1 and count of C classes, or labels, (N,) or (N, C), and what was `answered`."""
    from sklearn.metrics import precision_recall_fscore_support

    figures = precision_recall_fscore_support(labels, answers, labels=range(len(names)), zero_division=0.0)
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f1), "count": int(count), "answered": said}
        for name, p, r, f1, count, said in zip(names, *figures, answered, strict=True)
    }


# --- numbers -------------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """A cell as a number, a decimal comma allowed; None if it is none, or may be thousands: "1,036"."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?(0,\d+|\d+,(?!\d{3}\s*$)\d+)\s*", value):
        value = value.replace(",", ".")
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _thousands(value: Any) -> bool:
    """Whether a cell is a number that may have a comma after its thousands."""
    return isinstance(value, str) and re.fullmatch(r"\s*-?[1-9]\d{0,2}(,\d{3})+\s*", value) is not None


# --- class names ---------------------------------------------------------------------------------------------

# Other spellings of the class names, as models on the hub carry them (compared after `_plain`).
_SYNONYMS = {
    "negative": ("neg",),
    "positive": ("pos",),
    "entailment": ("entail", "entails", "entailed"),
    "not_entailment": ("not_entailed", "non_entailment", "no_entailment"),
    "neutral": ("neutrality",),
    "contradiction": ("contradict", "contradicts", "contradictory"),
    "duplicate": ("is_duplicate", "duplicated"),
    "not_duplicate": ("non_duplicate", "not_duplicated"),
    "equivalent": ("is_equivalent", "paraphrase"),
    "not_equivalent": ("non_equivalent", "not_paraphrase"),
    "acceptable": ("grammatical",),
    "unacceptable": ("not_acceptable", "ungrammatical"),
}


def _plain(name: str) -> str:
    """A class name without case, hyphens, underscores and spaces."""
    return re.sub(r"[-_\s]+", "", name).lower()


def class_of(name: str, task: Task) -> int | None:
    """The class that `name` (a name, a synonym, or digits: the hub's id) means, or None."""
    if name in task.places:
        return task.places[name]
    digits = name.strip()
    if digits.isascii() and digits.isdigit():
        return int(digits) if len(digits) < 5 and int(digits) < len(task.labels) else None
    for i, label in enumerate(task.labels):
        if _plain(name) in {_plain(other) for other in (label, *_SYNONYMS.get(label, ()))}:
            return i
    return None


def nameless(names: Iterable[str]) -> bool:
    """Whether a checkpoint's outputs have only the generic names LABEL_0, LABEL_1, ..., or none."""
    return all(re.fullmatch(r"label_?\d+", name.strip(), re.IGNORECASE) for name in names)


def renamed(given: str, names: Sequence[str]) -> tuple[str, ...]:
    """`"0=negative,1=positive"` -> ("negative", "positive"): another name for each of a teacher's outputs, which are
    called 0, 1, ..., LABEL_0, LABEL_1, ..., or otherwise."""
    pairs = [part.partition("=") for part in given.split(",") if part.strip()]
    new = {_number(old): name.strip() for old, _, name in pairs if name.strip()}
    if sorted(new) != sorted(map(_number, names)) or len(pairs) != len(names):
        wants = ",".join(f"{_number(name)}=NAME" for name in names)
        raise BadInput(f"--label-map {given}: must name each output of the teacher once, {wants}")
    return tuple(new[_number(name)] for name in names)


def _number(name: str) -> str:
    """LABEL_1 as 1; other names as they are."""
    return re.sub(r"(?i)^label_?(?=\d+$)", "", name.strip())


def label_order(id2label: dict[int, str], task: Task, where: str) -> list[int] | None:
    """For class i of the task, the column of a model's or a file's outputs, decided by the names and never by their
    position.

    Digits count as names: they are the hub's class ids. None if there are only the generic LABEL_0, LABEL_1, ...,
    which say nothing. Raises BadInput, `where` in it, for names that are not this task's classes, one for one. For
    scores, [0] if there is one named output.
    """
    names = {int(column): str(name) for column, name in id2label.items()}
    if nameless(names.values()):
        return None
    if not task.labels and len(names) == 1:
        return list(names)
    order: dict[int, int] = {}
    for column, name in names.items():
        found = class_of(name, task)
        if found is not None and found not in order:
            order[found] = column
    if not task.labels or len(order) != len(task.labels) or len(names) != len(task.labels):
        has = some([names[column] for column in sorted(names)])
        wants = f"the classes {some(task.labels)}" if task.labels else "one score"
        raise BadInput(f"{where}: its outputs ({has}) do not fit {task.name}, which has {wants}")
    return [order[i] for i in range(len(task.labels))]
