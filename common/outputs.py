"""A teacher's outputs in a file, in the place of the teacher: `--teacher-outputs FILE`.

    found = parse(rows)                    # of the file, all its columns
    join(splits, found)                    # to the rows of a task, by their ids or in their order

A row holds probabilities or logits: a column for each class, called as the class is, or what the library's pipeline
gives with `top_k=None`, [{"label": class, "score": number}, ...], in a column or as the whole row of a JSON file. Other
columns are left alone.
"""

from __future__ import annotations

from collections import Counter
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
        if all(row is None for row in chosen):
            return None
        order = order_of(task, self)
        values = task.kind.stored(np.array(self.values)[:, order], self.rows.place)
        made = np.full((len(chosen), len(order)), np.nan, np.float32)
        there = [i for i, row in enumerate(chosen) if row is not None]
        made[there] = values[[row for row in chosen if row is not None]]
        return made


def parse(rows: Rows) -> Outputs:
    """Find the outputs in the columns of a file. Raises BadInput with its line."""
    ids = None
    if not (rows.columns and len(rows)):
        raise BadInput(f"--teacher-outputs {rows.where}: no rows")
    columns = {
        name: values
        for name, values in rows.columns.items()
        if name.strip().lower() not in NO_OUTPUTS and not name.startswith("Unnamed: ")  # pandas' row numbers
    }
    for column in (name for name in rows.columns if name.strip().lower() == "id"):
        ids = [str(value).strip() for value in rows.columns[column]]
        name, times = Counter(ids).most_common(1)[0]
        if times > 1:
            raise BadInput(f"{rows.place(ids.index(name, ids.index(name) + 1))}: id {shown(name)} stands twice")
    # of most cells: one that is blank or wrong, the first too, is told below, and drops no class
    single = [name for name, values in columns.items() if 2 * sum(number(v) is not None for v in values) > len(values)]
    listed = next((name for name, values in columns.items() if _scores(values[0])), None)
    everyone = "every class needs its number, as pipeline(..., top_k=None) gives them"
    best = any(name.strip().lower() == "label" and number(values[0]) is None for name, values in rows.columns.items())
    if best and single == ["score"] and listed is None:
        raise BadInput(f"--teacher-outputs {rows.where}: has the best class alone ('label', 'score'); {everyone}")
    if not (single or listed):
        needs = "needs a column of numbers for each class, or what pipeline(..., top_k=None) gives"
        raise BadInput(f"--teacher-outputs {rows.where}: {needs}; it has {some(list(rows.columns))}")
    cells = [_scores(value) for value in columns[listed]] if listed else [
        {name: columns[name][i] for name in single} for i in range(len(rows))
    ]  # fmt: skip
    names = tuple(dict.fromkeys(name for cell in cells for name in cell))
    values: list[list[float]] = []
    for i, cell in enumerate(cells):
        if lacking := [name for name in names if name not in cell]:
            raise BadInput(f"{rows.place(i)}: lacks {some(lacking, 5)}; {everyone}")
        values.append([])
        for name in names:
            value = number(cell[name])
            if value is None or not -1e9 < value < 1e9:
                raise BadInput(f"{rows.place(i)}: output {shown(cell[name])} of {name!r} is no finite number")
            values[-1].append(value)
    return Outputs(names, values, ids, rows)


def _scores(value: Any) -> dict[str, Any]:
    """Class -> score, of what the library's pipeline gives for a text; {} of anything else."""
    if not isinstance(value, list) or not all(isinstance(one, dict) and {"label", "score"} <= {*one} for one in value):
        return {}
    return {str(one["label"]): one["score"] for one in value}


def stored(columns: Columns) -> Outputs:
    """What `--teacher-outputs` names, with the names of `--label-map`."""
    path = Path(str(columns.outputs))
    found = parse(tables.read(path, str(path), lambda header, _: {name: name for name in header}))
    if columns.label_map is None:
        return found
    return replace(found, names=renamed(columns.label_map, found.names))


def join(splits: dict[str, Rows], found: Outputs) -> None:
    """Give the rows of a task's splits their outputs, None where there are none: by their ids where the file has ids,
    otherwise row i of the file is row i of train or, where a column says the splits, of the whole table.

    Raises BadInput where train would lack any.
    """
    ids = {split: rows.columns.pop("id", None) for split, rows in splits.items()}
    places = {split: rows.columns.pop("row", None) for split, rows in splits.items()}
    if found.ids is not None:
        places = _by_id(splits, ids, found)
    elif not places["train"] or len(found.values) != sum(map(len, splits.values())):
        if len(found.values) != len(splits["train"]):
            has = f"{len(found.values):,} rows, train has {len(splits['train']):,}"
            raise BadInput(f"{found.argument}: {has}; one for each, in order, or an id column in both, is needed")
        places = {"train": list(range(len(found.values)))}
    for split, rows in places.items():
        splits[split] = replace(splits[split], columns=splits[split].columns | {"outputs": rows}, outputs=found)
        if split != "train" and (count := sum(row is not None for row in rows)):
            tell(f"{found.rows.where}: {count:,} of its rows are {split}'s: they score the teacher and teach nothing")


def _by_id(splits: dict[str, Rows], given: dict[str, list[Any] | None], found: Outputs) -> dict[str, list[int | None]]:
    """Split -> for each of its rows the file's, or None; no id may stand in two splits."""
    at = {name: i for i, name in enumerate(found.ids or ())}
    seen: dict[str, str] = {}
    chosen = {}
    for split, rows in splits.items():
        if (values := given[split]) is None:
            raise BadInput(f"{found.argument}: has ids, {split} no column 'id'; give both, or neither")
        ids = [str(value).strip() for value in values]
        for i, name in enumerate(ids):
            if seen.get(name) == split:
                raise BadInput(f"{rows.place(i)}: id {shown(name)} stands twice")
            if name in seen:
                raise BadInput(f"{rows.place(i)}: id {shown(name)} stands in {seen[name]} too: its outputs would leak")
            seen[name] = split
        chosen[split] = [at.get(name) for name in ids]
        if split == "train" and (count := chosen[split].count(None)):
            lacking = f"{count:,} of {len(ids):,} rows of train"
            first = rows.place(chosen[split].index(None))
            raise BadInput(f"{found.argument}: no outputs for {lacking}, the first is {first}")
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
