"""A teacher's outputs in a file, in the place of the teacher: `--teacher-outputs FILE`.

    found = stored(columns)                # of the file, all its columns
    join(splits, found)                    # to the rows of a task, by their ids or in their order

A row holds probabilities or logits: a column for each class, called as the class is, or what the library's pipeline
gives with `top_k=None`, [{"label": class, "score": number}, ...], in a column or as the whole row of a JSON file. Other
columns are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import tables
from common.errors import BadInput, shown, some, tell
from common.kinds import Rows, Task
from common.kinds.names import label_order, renamed
from common.kinds.sentences import number
from common.tasks import Columns

NO_OUTPUTS = ("", "id", "index", "label")  # columns of numbers that are no outputs
EVERYONE = "every class needs its number, as pipeline(..., top_k=None) gives them"


@dataclass(frozen=True)
class Outputs:
    """Rows of numbers, one for each class of `names`."""

    names: tuple[str, ...]
    values: list[list[float]]
    ids: list[str] | None
    rows: Rows  # of the file, for what is wrong in it

    @property
    def argument(self) -> str:
        return f"--teacher-outputs {self.rows.where}"

    def logits(self, task: Task, chosen: list[int | None]) -> np.ndarray | None:
        """(N, C) logits of a split whose rows have these of the file, in the order of the task's labels; NaN for None.
        None where it has none."""
        there = {i: row for i, row in enumerate(chosen) if row is not None}
        if not there:
            return None
        order = order_of(task, self)
        values = task.kind.stored(np.array(self.values)[:, order], self.rows.place)
        made = np.full((len(chosen), len(order)), np.nan, np.float32)
        made[list(there)] = values[list(there.values())]
        return made


def stored(columns: Columns) -> Outputs:
    """What `--teacher-outputs` names, with the names of `--label-map`. Raises BadInput with the file's line."""
    path = Path(str(columns.outputs))
    rows = tables.read(path, str(path), lambda header, _: {name: name for name in header})
    if not (rows.columns and len(rows)):
        raise BadInput(f"--teacher-outputs {path}: no rows")
    ids = next((_unique(rows, values) for name, values in rows.columns.items() if name.lower() == "id"), None)
    cells = _cells(rows)
    names = tuple(dict.fromkeys(name for cell in cells for name in cell))
    values: list[list[float]] = []
    for i, cell in enumerate(cells):
        if lacking := [name for name in names if name not in cell]:
            raise BadInput(f"{rows.place(i)}: lacks {some(lacking, 5)}; {EVERYONE}")
        values.append([])
        for name in names:
            value = number(cell[name])
            if value is None or not -1e9 < value < 1e9:
                raise BadInput(f"{rows.place(i)}: output {shown(cell[name])} of {name!r} is no finite number")
            values[-1].append(value)
    return Outputs(names if columns.label_map is None else renamed(columns.label_map, names), values, ids, rows)


def _cells(rows: Rows) -> list[dict[str, Any]]:
    """Class -> output, for each row of a file in either form."""
    columns = {
        name: values
        for name, values in rows.columns.items()
        if name.lower() not in NO_OUTPUTS and not name.startswith("Unnamed: ")  # pandas' row numbers
    }
    for values in columns.values():
        if _scores(values[0]):
            return [_scores(value) for value in values]
    # of most cells: one that is blank or wrong, the first too, is told later, and drops no class
    single = [name for name, values in columns.items() if 2 * sum(number(v) is not None for v in values) > len(values)]
    best = any(name.lower() == "label" and number(values[0]) is None for name, values in rows.columns.items())
    if best and single == ["score"]:
        raise BadInput(f"--teacher-outputs {rows.where}: has the best class alone ('label', 'score'); {EVERYONE}")
    if not single:
        needs = "needs a column of numbers for each class, or what pipeline(..., top_k=None) gives"
        raise BadInput(f"--teacher-outputs {rows.where}: {needs}; it has {some(list(rows.columns))}")
    return [dict(zip(single, row, strict=True)) for row in zip(*(columns[name] for name in single), strict=True)]


def _scores(value: Any) -> dict[str, Any]:
    """Class -> score, of what the library's pipeline gives for a text; {} of anything else."""
    if not isinstance(value, list) or not all(isinstance(one, dict) and {"label", "score"} <= {*one} for one in value):
        return {}
    return {str(one["label"]): one["score"] for one in value}


def _unique(rows: Rows, values: Sequence[Any]) -> list[str]:
    """The ids of rows; raises BadInput where one stands twice."""
    ids = [str(value).strip() for value in values]
    for name, times in Counter(ids).most_common(1):
        if times > 1:
            raise BadInput(f"{rows.place(ids.index(name, ids.index(name) + 1))}: id {shown(name)} stands twice")
    return ids


def join(splits: dict[str, Rows], found: Outputs) -> None:
    """Give the rows of a task's splits their outputs, None where there are none: by their ids where the file has ids,
    otherwise row i of the file is row i of train. Raises BadInput where train would lack any."""
    ids = {split: rows.columns.pop("id", None) for split, rows in splits.items()}
    places: dict[str, list[int | None]] = {"train": [*range(len(found.values))]}
    if found.ids is not None:
        places = _by_id(splits, ids, found)
    elif len(found.values) != len(splits["train"]):
        has = f"{len(found.values):,} rows, train has {len(splits['train']):,}"
        raise BadInput(f"{found.argument}: {has}; one for each, in order, or an id column in both, is needed")
    else:
        _same_texts(splits["train"], found)
    for split, rows in places.items():
        splits[split] = replace(splits[split], columns=splits[split].columns | {"outputs": rows}, outputs=found)
        if split != "train" and (count := sum(row is not None for row in rows)):
            tell(f"{found.rows.where}: {count:,} of its rows are {split}'s: they score the teacher and teach nothing")


def _same_texts(train: Rows, found: Outputs) -> None:
    """Raises BadInput where the file has a column of train's texts and they differ in a row."""
    for ours in train.chosen.keys() - {"id", "label"}:
        name, texts = train.chosen[ours], train.columns[ours]
        both = zip(texts, found.rows.columns.get(name, texts), strict=True)
        if (i := next((i for i, (one, other) in enumerate(both) if one != other), None)) is not None:
            raise BadInput(f"{found.rows.place(i)}: its {name!r} is not that of {train.place(i)}; the same order, or an"
                           " id column in both, is needed")  # fmt: skip


def _by_id(splits: dict[str, Rows], given: dict[str, list[Any] | None], found: Outputs) -> dict[str, list[int | None]]:
    """Split -> for each of its rows the file's, or None; no id may stand in two splits."""
    at = {name: i for i, name in enumerate(found.ids or ())}
    seen: dict[str, str] = {}
    chosen: dict[str, list[int | None]] = {}
    for split, rows in splits.items():
        if (values := given[split]) is None:
            raise BadInput(f"{found.argument}: has ids, {split} no column 'id'; give both, or neither")
        ids = _unique(rows, values)
        for i, name in enumerate(ids):
            if name in seen:
                raise BadInput(f"{rows.place(i)}: id {shown(name)} stands in {seen[name]} too: its outputs would leak")
        seen |= dict.fromkeys(ids, split)
        chosen[split] = [at.get(name) for name in ids]
    if lacking := [i for i, row in enumerate(chosen["train"]) if row is None]:
        of_train = f"{len(lacking):,} of {len(chosen['train']):,} rows of train"
        first = splits["train"].place(lacking[0])
        raise BadInput(f"{found.argument}: no outputs for {of_train}, the first is {first}")
    return chosen


def order_of(task: Task, found: Outputs) -> list[int]:
    """For each of the task's labels its place in a row of the file. Raises BadInput where that would be a guess."""
    if not task.labels:
        if len(found.names) != 1:
            raise BadInput(f"{found.argument}: {len(found.names)} numbers a row; {task.name} has one score")
        return [0]
    if sorted(found.names) == sorted(task.labels):
        return list(map(found.names.index, task.labels))
    order = label_order(dict(enumerate(found.names)), task, found.argument)
    if order is None:
        needs = f"give a column for each of {some(task.labels)}, or --label-map"
        raise BadInput(f"{found.argument}: does not say which class is which; {needs}")
    return order
