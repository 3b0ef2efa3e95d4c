"""What classes are called, by a task, in files and by checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from common.errors import BadInput, some
from common.kinds import Task

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


def class_name(cell: Any) -> str:
    """A class as a cell names it: tables make 1.0 of 1 where other cells are blank."""
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(cell).strip())


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

    Digits count as names: they are the hub's class ids. None if there are only the generic LABEL_0, LABEL_1, ..., or
    for a user's own classes digits, which say nothing. Raises BadInput, `where` in it, for names that are not this
    task's classes, one for one. For scores, [0] if there is one named output.
    """
    names = {int(column): str(name) for column, name in id2label.items()}
    digits = not task.folder and not any(map(str.isdigit, task.labels))  # a user's own classes have no ids
    if {*names.values()} != {*task.labels} and (
        nameless(names.values()) or (digits and all(map(str.isdigit, names.values())))
    ):
        return None
    if sorted(names) != [*range(len(names))]:
        raise BadInput(f"{where}: its outputs are numbered {some(sorted(names))}; id2label counts from 0")
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
