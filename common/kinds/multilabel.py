"""Several labels of one text, or none: each of them is a yes or a no, whatever the others are."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import BadInput, shown, some, warn, warn_of_lacking
from common.kinds.names import class_of
from common.kinds.own import OwnClasses, class_figures
from common.kinds.sentences import number
from common.metrics import METRICS, accuracy

NO = ("0", "0.0", "false", "", "none", "nan")  # with pandas' and pyarrow's blanks


class MultiLabel(OwnClasses):
    """A 0 or 1 for each of Task.labels. Labels: [N, C], long.

    In files: a list, which a cell holds as JSON or as "a,b", or several columns of 0 and 1, `--label a,b,c`.
    """

    name = "multi-label classification"
    own_metrics, more_metrics = ("micro_f1", "macro_f1"), ()
    single, several = False, True

    def cell(self, value: Any) -> list[str]:
        """The names of a text's labels. Raises ValueError with what is wrong."""
        if isinstance(value, dict):  # column -> its cell
            for name, cell in value.items():
                if str(cell).strip().lower() not in ("1", "1.0", "true", *NO):
                    raise ValueError(f"{name!r} is {shown(cell)}; must be 0 or 1")
            value = [name for name, cell in value.items() if str(cell).strip().lower() not in NO]
        if isinstance(value, str) and value.lstrip().startswith("["):
            if re.search(r"""["']\s+["']""", value):  # as numpy prints them, which Python reads as one word
                raise ValueError(f"no commas in the list {shown(value)}")
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError) as error:
                raise ValueError(f"no list: {shown(value)}") from error
        if isinstance(value, str) and re.fullmatch(r"\s*(\(.*,.*\)|\{.*\})\s*", value, re.DOTALL):
            raise ValueError(f'a tuple, set or dictionary as text, {shown(value)}; a list or "a,b" is needed')
        parts = value if isinstance(value, list) else [] if value is None else str(value).split(",")
        if any(isinstance(part, list | dict) for part in parts):
            raise ValueError(f"its label is {shown(value)}; names in a list are read, and no spans of characters")
        return [one for part in parts if (one := super(MultiLabel, self).cell(part))]

    def label_names(self, rows: dict[str, Any]) -> Sequence[str]:
        found = sorted({name for part in rows.values() for names in part.columns["label"] for name in names})
        shares = [name for name in found if (n := number(name)) is not None and not n.is_integer()]
        if shares or (found and all(re.fullmatch(r"[01]|True|False|-\d+", name) for name in found)):
            raise BadInput(f"{rows['train'].place(0)}: {some(shares or found, 2)} are no names of labels, which a list"
                           " holds; 0 and 1 need a column for each label, --label A,B")  # fmt: skip
        for part in rows.values():
            for i, names in enumerate(part.columns["label"]):
                if len({*names}) < len(names):
                    raise BadInput(f"{part.place(i)}: {some(names)}: a label stands there twice")
        if len(found) == 1:
            raise BadInput(f"--kind labels: {found[0]!r} is the only label; as --kind classes its absence needs a name")
        return found

    def read(self, task: Any, rows: Any, i: int) -> Any:
        found = [class_of(name, task) for name in rows.columns["label"][i]]
        if None in found:
            said = shown(rows.columns["label"][i])
            raise BadInput(f"{rows.place(i)}: labels {said} are unknown; {task.name} has {some(task.labels)}")
        return [int(c in found) for c in range(len(task.labels))]

    def told(self, task: Any, splits: Any, rows: Any) -> str:
        for name, split in splits.items():
            if not (there := {task.labels[c] for row in split.labels for c, yes in enumerate(row) if yes}):
                raise BadInput(f"{name}: no row has a label; leave them out if nobody knows them")
            warn_of_lacking(name, "labels", task.labels, there)
        if joined := [name for name in task.labels if {*re.split(r"\s*[;|/]\s*", name)} <= {*task.labels} - {name}]:
            warn(f"label {joined[0]!r} is made of others; a comma stands between labels")
        none = sum(not any(row) for row in splits["train"].labels)
        return f"{len(task.labels)} labels, several a text ({some(task.labels, 5)}), none of {none:,} of train's texts"

    def settings(self, task: Any) -> dict[str, Any]:
        return super().settings(task) | {"problem_type": "multi_label_classification"}

    def predictions(self, output: Any, labels: Any, mask: Any) -> tuple[Any, Any]:
        """(B C, 2) and (B C,): softmax of (0, z) / T is sigmoid of z / T, so CE and KL are those of each label."""
        z = output.logits.reshape(-1, 1) * output.logits.new_tensor([0.0, 1.0])
        return z, labels.flatten()

    def scores(self, task: Any, split: Any, given: Any, found: Any) -> dict[str, float]:
        return {name: METRICS[name](found > 0, split.labels) for name in task.metrics}

    def decided(self, task: Any, split: Any, given: Any, found: Any) -> Sequence[Any]:
        return [", ".join(name for name, z in zip(task.labels, row, strict=True) if z > 0) for row in found]

    def agreement(self, student: Any, teacher: Any) -> float:
        return accuracy(student > 0, teacher > 0)

    def log_loss(self, kept: Any, labels: Sequence[Any]) -> float | None:
        return float((np.logaddexp(0, kept.astype("float64")) - kept * np.array(labels)).mean())

    def by_class(self, task: Any, split: Any, kept: Any) -> dict[str, dict[str, Any]]:
        """Each label's precision, recall, F1 and count; an answer takes no other label's place."""
        return class_figures(task.labels, split.labels, kept > 0, [{}] * len(task.labels))

    def stored(self, values: Any, place: Any) -> Any:
        """Probabilities where all numbers lie in 0..1; they need not sum to 1."""
        from scipy.special import logit

        inside = ((values >= 0) & (values <= 1)).all()
        return logit(values.clip(1e-7, 1 - 1e-7)) if inside else values
