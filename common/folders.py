"""The rows of a task of the table, from `--data-dir` or the hub: what files, splits and columns are called there."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from common import hub, tables
from common.errors import BadInput, some, warn
from common.hub import HUB
from common.kinds import Rows, Task
from common.tasks import SUFFIXES, Source, plain
from common.values import expanded


def open_task(task: Task, data_dir: str | None) -> tuple[dict[str, Rows], str]:
    """The rows of each of the task's splits, and where they are from. Raises BadInput, within seconds where the hub
    cannot be reached: then it names the commands that work without."""
    if data_dir is not None:
        found, origin = tables.opened(find_files(task, data_dir))
    else:
        instead = f"`--task pocket/{task.pocket}` (built in) or `--task {task.name} --data-dir DIR` (your own files)"
        found, origin = hub.load(task.name, HUB[task.name], instead)
    stored = splits_of(found, task.splits, task.splits, origin)
    place: Source = "hub" if data_dir is None else "local"
    return {split: _rows(task, split, one, f"{origin} {split}", place) for split, one in stored.items()}, origin


def splits_of(found: Mapping[str, Any], splits: Collection[str], needed: Collection[str], where: str) -> dict[str, Any]:
    """What is there of these splits: a DatasetDict may have "validation" where it is "dev" here."""
    for split in needed:
        if not set(found) & set(names_of(split)):
            theirs = split.replace("dev", "validation")
            raise BadInput(f"{where}: no {split} split; needs {theirs!r}, has {some(list(found))}")
    there = {split: next((name for name in names_of(split) if name in found), None) for split in splits}
    return {split: found[name] for split, name in there.items() if name is not None}


def _columns_of_task(task: Task, header: Sequence[str], _where: str) -> dict[str, str]:
    """Canonical name -> the source's column: the canonical ones if all are there, else the official release's, those
    that are usual for the kind, or the hub's."""
    same = {name: name for name in task.columns}
    usual = task.kind.usual or same
    official, of_hub = tables.OFFICIAL.get(task.name, usual), HUB[task.name].columns if task.name in HUB else usual
    return next((one for one in (same, official, usual, of_hub) if set(one.values()) <= set(header)), usual)


def _rows(task: Task, split: str, stored: Any, where: str, place: Source) -> Rows:
    """A split of a task of the table, of the hub or a folder, as the task reads it."""
    source = HUB.get(task.name)
    if source and place == "hub":
        rows = replace(tables.read(stored, where, lambda *_: source.columns, task), official=True)
    else:
        rows = tables.read(stored, where, functools.partial(_columns_of_task, task), task)
    if source and rows.official and len(rows) != (count := source.rows[task.splits.index(split)]):
        warn(f"{task.name} {split} has {len(rows)} rows; the official split has {count}")  # a subset is legitimate
    if source and source.convert and rows.chosen == source.columns:
        made: list[dict[str, Any]] = []
        try:
            for row in zip(*rows.columns.values(), strict=True):
                made.append(source.convert(dict(zip(rows.columns, row, strict=True))))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{rows.place(len(made))}: not as {source.repo} has it ({error!r})") from error
        rows = replace(rows, columns={name: [row[name] for row in made] for name in rows.columns})
    return task.kind.examples(rows)


# --- the names of files ---------------------------------------------------------------------------------------

# What a split's file, or the split itself, is called: here, at home, and in the official releases
_NAMES = {
    "train": ("train", "train-v1.1", "hotpot_train_v1.1", "wiki.train", "eng.train"),
    "dev": ("dev", "validation", "valid", "val", "dev-v1.1", "hotpot_dev_distractor_v1", "wiki.valid", "testa",
            "eng.testa"),
    "test": ("test", "wiki.test", "testb", "eng.testb"),
}  # fmt: skip


def names_of(split: str) -> list[str]:
    """What a split can be called: "dev_matched" is also "validation_matched"."""
    stem, _, half = split.partition("_")
    return [f"{name}_{half}".rstrip("_") for name in _NAMES[stem]]


def find_files(task: Task, data_dir: str) -> dict[str, Path]:
    """What `files_of` gives of the task's folder in DIR, or of DIR itself. Reads nothing. Raises BadInput."""
    root = expanded(data_dir)
    if not root.is_dir():
        raise BadInput(f"--data-dir {data_dir}: {'not a folder' if root.exists() else 'no such folder'}")
    folder = next(path for path in (root / task.folder, root / task.name, root) if path.is_dir())
    return files_of(folder, task.splits, task.splits)


def files_of(folder: Path, splits: Collection[str], needed: Collection[str]) -> dict[str, Path]:
    """Split -> file, or {"": folder} for a folder of `save_to_disk`; none of those that are `needed` may be missing."""
    if (folder / "dataset_dict.json").is_file():
        return {"": folder}
    if (folder / "state.json").is_file():
        raise BadInput(f"{folder}: one split written by save_to_disk; save a DatasetDict with train and validation")
    files = {split: file for split in splits if (file := find_split(folder, split))}
    if lacking := [split for split in needed if split not in files]:
        names = " or ".join(name for name in names_of(lacking[0])[:2] if "." not in name)
        has = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "no files"
        raise BadInput(f"{folder}: no {lacking[0]} split; needs {names} with {', '.join(filter(None, SUFFIXES))};"
                       f" has {has}")  # fmt: skip
    return files


def others_than(folder: Path, read: Collection[str]) -> list[str]:
    """What of a folder is not among these names and patterns, but for hidden files and what tells of the data."""
    names = [path.name for path in sorted(folder.iterdir()) if not re.match(r"\.|readme|licen[cs]e", path.name.lower())]
    return [name for name in names if not any(fnmatch(name, one) for one in read)]


def find_split(folder: Path, split: str) -> Path | None:
    """The one file of a split, or the pattern of the names of its parts; None if there is none."""
    names = names_of(split)
    files = {f"{name}{end}" for name in names for end in SUFFIXES}
    found = [path for path in sorted(folder.iterdir()) if plain(path).name in files and path.is_file()]
    part = re.compile(rf"({'|'.join(names)})-\d+-of-(\d+)[-\w]*\.parquet")  # as on the hub, some with a hash
    parts = Counter(match.group(1, 2) for path in folder.iterdir() if (match := part.fullmatch(path.name)))
    for (name, total), count in parts.items():
        pattern = f"{name}-*-of-{total}*.parquet"
        if count != int(total):
            raise BadInput(f"{folder}: {count} of the {int(total)} files {pattern}; all of them are needed")
        found.append(folder / pattern if count > 1 else next(folder.glob(pattern)))
    if len(found) > 1:
        raise BadInput(f"{folder}: {found[0].name} and {found[1].name} both hold the {split} split; leave one")
    return found[0] if found else None
