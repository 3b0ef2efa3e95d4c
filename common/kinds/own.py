"""Classes and scores of data sets of one's own: whatever names the classes have, and whatever unit the scores."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.errors import BadInput, shown, some, warn, warn_of_lacking
from common.kinds import Kind, Rows, Split, Task
from common.kinds.names import class_name
from common.kinds.sentences import Classification, Regression, number

if TYPE_CHECKING:
    from torch import Tensor


class OwnClasses(Classification):
    """Classes that are seen from the data."""

    def cell(self, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(part, list | dict) for part in value):
            raise ValueError(f"its label is {shown(value)}; no class is a list of lists, such as spans of characters")
        return class_name(value)

    def label_names(self, rows: dict[str, Rows]) -> Sequence[str]:
        """The classes that there are, numbers in their order."""
        if names := next(iter(rows.values())).names.get("label"):
            return names
        there = {value for found in rows.values() for value in found.columns["label"]}
        numbers = {value: number(value) for value in there}
        return sorted(there, key=str if None in numbers.values() else lambda value: (numbers[value], value))

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        counts = Counter(splits["train"].labelled.labels)
        for name, split in splits.items():
            there = set(split.labels) - {None}
            if there and counts and there.isdisjoint(counts):
                found = some([task.labels[label] for label in sorted(there)], 3)
                raise BadInput(f"{name}: train has none of its labels, {found}; leave them out if nobody knows them")
            warn_of_lacking(name, "classes", task.labels, {task.labels[label] for label in there} or {*task.labels})
        alone = [c for c, count in counts.items() if count == 1]
        for c in alone[:5]:
            label, cells = task.labels[c], enumerate(rows.columns["label"])
            close = difflib.get_close_matches(label, [name for name in task.labels if name != label], 1, 0.8)
            place = rows.place(next(i for i, one in cells if one is not None and self.read(task, rows, i) == c))
            warn(f"train: class {label!r} has one row, {place}{f'; is it {close[0]!r}?' if close else ''}")
        if alone[5:]:
            warn(f"train: {len(alone) - 5:,} more classes have one row")
        known = set(task.labels)
        parts = {name: set(map(str.strip, re.split(r"[,;|]", name))) for name in known}
        if joined := [name for name in known if len(parts[name]) > 1 and known >= parts[name]]:
            warn(f'class {min(joined)!r} is made of others; --kind labels gives a text several, as "a,b"')
        shares = [f"{task.labels[label]} {count:,}" for label, count in counts.most_common()]
        return f"{len(task.labels):,} class{'es' * (len(task.labels) != 1)} ({some(shares or task.labels, 5)})"

    def by_class(self, task: Task, split: Split, kept: np.ndarray) -> dict[str, dict[str, Any]]:
        """Each class's precision, recall, F1 and count, and its row of the confusion matrix: answer -> how often."""
        from sklearn.metrics import confusion_matrix

        answers = kept.argmax(1)
        confusion = confusion_matrix(split.labels, answers, labels=range(len(task.labels)))
        answered = [{task.labels[i]: int(row[i]) for i in row.nonzero()[0]} for row in confusion]
        return class_figures(task.labels, split.labels, answers, answered)


class OwnScores(Regression):
    """Scores in any unit. Losses compare z-scores; models answer in the data's unit."""

    recipe: ClassVar = {"scores": "standardised"}

    def cell(self, value: Any) -> Any:
        return value if (found := number(value)) is None else found

    def of_own(self, train: Split) -> Kind:
        kind = type(self)(self)
        kind.fit(train.labelled.labels or (() if train.outputs is None else train.outputs))
        return kind

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        scores = splits["train"].labelled.labels
        for name, split in splits.items():
            if len(split) > 1 and len({*split.labels}) == 1 and split.labels[0] is not None:
                warn(f"{name}: every score is {split.labels[0]:g}; leave them out if nobody knows them")
        return f"scores from {min(scores):g} to {max(scores):g}" if scores else "scores"

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


CLASSES, SCORES = OwnClasses("classification"), OwnScores("regression")
