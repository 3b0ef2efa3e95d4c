"""A teacher's outputs in a file, in the place of the teacher: `--teacher-outputs FILE`.

    found = parse(rows)                    # of the file, all its columns
    join(splits, found)                    # to the rows of a task, by their ids or in their order

A row holds probabilities or logits: a column for each class, called as the class is, or one column with a list, with
{class: number}, or with the library's [{"label": class, "score": number}, ...], which may be the whole row of a JSON
file. Other columns are left alone.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import tables
from common.errors import BadInput, shown, some, tell
from common.kinds import Rows, Task
from common.kinds.sentences import label_order, number, renamed
from common.tasks import Columns

NO_OUTPUTS = ("", "id", "index", "label")  # columns of numbers that are no outputs


@dataclass(frozen=True)
class Outputs:
    """Rows of numbers; `names`: of the classes, () of a list, which says none."""

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
    whole = [name for name, values in columns.items() if isinstance(_cell(values[0]), (list, dict))]
    # of most cells: one that is blank or wrong, the first too, is told below, and drops no class
    single = [name for name, values in columns.items() if 2 * sum(number(v) is not None for v in values) > len(values)]
    best = any(name.strip().lower() == "label" and number(values[0]) is None for name, values in rows.columns.items())
    if best and single == ["score"] and not whole:
        needs = "every class needs its number, as pipeline(..., top_k=None) gives them"
        raise BadInput(f"--teacher-outputs {rows.where}: has the best class alone ('label', 'score'); {needs}")
    cells: list[Any] = [{name: columns[name][i] for name in single} for i in range(len(rows))]
    if whole:
        cells = [_cell(*row) for row in zip(*(columns[name] for name in whole), strict=True)]
    if (len(whole) > 1 and not isinstance(cells[0], dict)) or not (whole or single):
        needs = "needs a column of numbers for each class, or one column of lists"
        raise BadInput(f"--teacher-outputs {rows.where}: {needs}; it has {some(list(rows.columns))}")
    names = tuple(dict.fromkeys(name for cell in cells if isinstance(cell, dict) for name in cell))
    values: list[list[float]] = []
    for i, cell in enumerate(cells):
        if isinstance(cell, dict) and (lacking := [name for name in names if name not in cell]):
            needs = (
                f"every row needs all {len(names)} classes, not its best alone, as pipeline(..., top_k=None) gives them"
            )
            raise BadInput(f"{rows.place(i)}: lacks {some(lacking, 5)}; {needs}")
        if type(cell) is not type(cells[0]) or len(cell) != len(cells[0]):
            needs = some(names) if names else f"{len(cells[0])} numbers"
            raise BadInput(f"{rows.place(i)}: holds {shown(cell)}; every row needs {needs}")
        values.append([])
        for k, said in enumerate([cell[name] for name in names] if names else cell):
            value = number(said)
            if value is None or not -1e9 < value < 1e9:
                what = f" of {names[k]!r}" if names else ""
                raise BadInput(f"{rows.place(i)}: output {shown(said)}{what} is no finite number")
            values[-1].append(value)
    return Outputs(names, values, ids, rows)


def stored(columns: Columns) -> Outputs:
    """What `--teacher-outputs` names, with the names of `--label-map`."""
    path = Path(str(columns.outputs))
    found = parse(tables.read(path, str(path), lambda header, _: {name: name for name in header}))
    if columns.label_map is None:
        return found
    return replace(found, names=renamed(columns.label_map, found.names or tuple(map(str, range(len(found.values[0]))))))


def _cell(*values: Any) -> Any:
    """A list, or class -> number, of a cell that holds either, as JSON or as Python prints it where it is text, or of
    cells that hold a class each; other cells as they are."""
    read = [_literal(value) for value in values]
    value = read if len(read) > 1 else read[0]
    if isinstance(value, list) and all(isinstance(one, dict) and one.keys() >= {"label", "score"} for one in value):
        named = {str(one["label"]): one["score"] for one in value}
        value = named if named and len(named) == len(value) else value
    return value


def _literal(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        for parse_text in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return parse_text(value.strip())
    return value


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
    order, count = None, len(found.values[0])
    if task.labels and found.names:
        same = sorted(found.names) == sorted(task.labels)
        named = dict(enumerate(found.names))
        order = list(map(found.names.index, task.labels)) if same else label_order(named, task, found.argument)
    elif count != len(task.labels or "1"):
        raise BadInput(f"{found.argument}: {count} numbers a row; {task.name} has {some(task.labels) or 'one score'}")
    elif not task.labels or task.folder or task.labels == tuple(map(str, range(count))):
        order = list(range(count))
    if order is None:
        needs = f"give a column for each of {some(task.labels)}"
        raise BadInput(f"{found.argument}: does not say which class is which; {needs}")
    return order
