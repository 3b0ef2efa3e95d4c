"""Where results are read from: folders that runs have filled, and what `python -m bench table --save NAME` has kept.

bench/results/NAME.jsonl.gz holds what is missing, and what tables need of each result, a line each (`zcat` shows them).
In the folder NAME are, of the reported budget, what each row predicted for each test item, ROW.safetensors.gz, and the
labels, labels.safetensors.gz: from these anybody can compute the intervals, or another score.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import json
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse
from safetensors.numpy import load_file
from safetensors.numpy import save as dump

from bench import dashed, matrix, reading, stats
from common import data, results
from common.errors import BadInput, refused
from common.tasks import Columns
from common.values import split_paths

KEPT = ".jsonl.gz"  # how files of `--save` end
Splits = dict[str, np.ndarray]  # split -> a class or a score for each item [N]
SOURCE = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # of what a run's command says of its data
for _name in ("task", "data_dir", "text", "label", "kind", "metric", "teacher", "label_map", "teacher_outputs"):
    SOURCE.add_argument(f"--{dashed(_name)}", f"--{_name}")  # as scripts read both


@dataclass(eq=False)
class Cell:
    """A result, the row of the matrix that it belongs to, where it lies, and what reads its predictions and the labels:
    nothing where they are not known."""

    place: str
    where: str
    record: dict[str, Any]
    items: Callable[[], tuple[Splits, Splits]] = lambda: ({}, {})

    @property
    def folder(self) -> Path:
        """That of the run; of a result of a file none that there is."""
        return Path(self.where).parent

    @functools.cached_property
    def influence(self) -> np.ndarray | None:
        """How each item of the reported splits moves the score [N]; None where predictions or labels are not known."""
        metric = self.record["primary"]["name"]
        if metric not in stats.INFLUENCE:
            return None
        found, labels = self.items()
        if not found or any(len(labels.get(split, ())) != len(values) for split, values in found.items()):
            return None
        count = sum(map(len, found.values()))  # the score is the mean of the splits' scores, whatever their sizes
        # in one order for all rows, which are paired by item: a file gives its tensors in any
        return np.concatenate([stats.INFLUENCE[metric](values, labels[split]) * (count / len(values) / len(found))
                               for split, values in sorted(found.items())])  # fmt: skip


def read(source: Path) -> tuple[list[Cell], list[str]]:
    """The results of a folder, or of a file that `--save` has written; and which cells are missing there, and why."""
    found = []
    if source.name.endswith(KEPT):
        kept, missing = opened(source)
        for record in kept:
            place = record.pop("row")
            where = "{}: {method} {variant} {task} seed {seed}".format(source, **record)
            found.append(Cell(place, where, record, functools.partial(items_kept, source, place, record)))
        return found, missing
    if not source.is_dir():
        raise BadInput(f"{source}: no such folder; `python -m bench run` makes it")
    paths, missing = cells_of(source)
    for path, asked in paths.items():
        record = results.load(path) | ({"asked": asked} if asked else {})
        own = "{method}/{task}/{variant}/".format(**record)
        place = str(Path(path.relative_to(source).as_posix().rpartition(own)[0]))
        found.append(Cell(place, str(path), record, functools.partial(items_of, path.parent, record)))
    return [one for one in found if not one.record["settings"].get("tune")], missing


def read_all(sources: list[Path]) -> tuple[list[Cell], list[str]]:
    """Of several. What a file has missed when it was written counts only where no folder says what is missing now."""
    found = {source: read(source) for source in sources}
    current = [source for source in sources if source.is_dir()] or sources
    return [cell for some, _ in found.values() for cell in some], [line for one in current for line in found[one][1]]


def cells_of(folder: Path) -> tuple[dict[Path, str], list[str]]:
    """(results and what their commands have asked for, what is missing and why) of the matrix that was run into a
    folder; of another folder all results."""
    if not (folder / "matrix.json").is_file():
        return dict.fromkeys(sorted(folder.rglob("result.json")), ""), []
    with reading(folder / "matrix.json", "the list of commands of `python -m bench run`, which writes it anew") as text:
        wanted = {**json.loads(text)}
    paths, missing = dict[Path, str](), []
    for key, asked in wanted.items():
        note: dict[str, Any] = {}
        if (path := folder / "jobs" / f"{key}.json").is_file():
            with reading(path, "a note of `python -m bench run`, which writes it anew") as text:
                found = json.loads(text)
                note = found if found["asked"] == asked else {}  # of before a winner changed
        made = note.get("results", [])
        missing += [] if made else [f"{key}: {note.get('error', 'not run with these settings')}"]
        for name in made:
            if (folder / name).is_file():
                paths[folder / name] = asked
            else:
                missing.append(f"{key}: {name} is gone")
    return dict(sorted(paths.items())), missing


def folder_of(name: str) -> Path:
    """The folder of a matrix's results; a folder, or a file of `--save`, as it is."""
    path = matrix.path_of(name)
    return Path(name) if path is None else results.HOME / matrix.out_of(path)


# --- predictions -------------------------------------------------------------------------------------------------


def items_of(folder: Path, record: dict[str, Any]) -> tuple[Splits, Splits]:
    """What a run has predicted, classes, scores or (N, C) several labels of the reported splits, and the labels."""
    if not (path := folder / "predictions.safetensors").is_file():
        return {}, {}
    given, _ = SOURCE.parse_known_args(shlex.split(record["command"]))
    several = given.kind == "labels"
    found = {split: values > 0 if several else values.argmax(1) if values.ndim == 2 else values
             for split, values in load_file(path).items()}  # fmt: skip
    return found, labels_of(record["task"], tuple(vars(given).items()))


@functools.cache
def labels_of(task: str, source: tuple[tuple[str, str | None], ...]) -> Splits:
    """The labels of the reported splits; nothing where the data are no longer there, or, of one's own, others now."""
    given = dict(source)
    for name in (task, *split_paths(given["task"] or "")):
        with contextlib.suppress(BadInput):
            found = data.load(name, given["data_dir"], columns=Columns.of(given))
            if found.name == task:
                return {split: np.asarray(found.splits[split].labels) for split in found.reported}
    return {}


def predictions_of(path: Path, place: str) -> Path:
    """The file of a row's predictions, or of "labels", beside one of `--save`."""
    return path.with_name(path.name.removesuffix(KEPT)) / f"{place or 'results'}.safetensors.gz"


def key_of(record: dict[str, Any]) -> str:
    """What the results of a row on a task share: all but the seed."""
    return f"{record['task']}|{results.digest(results.seedless(record))}"


def save_predictions(cells: list[Cell], path: Path) -> None:
    """Of each row a file: of each task all seeds, one after the other, in two bytes each (scores in half precision,
    beyond 16 in single; classes as they are). And a file of the labels. Nothing where none are known."""
    found: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    labels: dict[str, np.ndarray] = {}
    for cell in (cell for cell in cells if cell.influence is not None):
        predicted, truth = cell.items()
        for split, values in predicted.items():
            real = np.float16 if abs(values).max() <= 16 else np.float32  # scores of one's own have any size
            small = values.astype(real if values.dtype.kind == "f" else np.uint16)
            of_row = found.setdefault(cell.place, {})
            of_row.setdefault(f"{key_of(cell.record)}|{split}", {})[cell.record["seed"]] = small
            labels[f"{cell.record['task']}|{split}"] = np.ascontiguousarray(truth[split])
    files = {}
    for place, of_row in found.items():
        files[place] = {f"{key}|{','.join(map(str, one))}": np.stack(list(one.values())) for key, one in of_row.items()}
    for before in predictions_of(path, "").parent.rglob("*.safetensors.gz"):
        before.unlink()
    for place, arrays in (files | {"labels": labels} if files else {}).items():
        (beside := predictions_of(path, place)).parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(gzip.compress(dump(arrays), mtime=0))
    arrays_of.cache_clear()


@functools.cache
def arrays_of(beside: Path) -> dict[str, np.ndarray]:
    return parse(gzip.decompress(beside.read_bytes())) if beside.is_file() else {}


def items_kept(source: Path, place: str, record: dict[str, Any]) -> tuple[Splits, Splits]:
    """The predictions of a kept result, and the labels."""
    start, marked, seed = f"{key_of(record)}|", f"{record['task']}|", str(record["seed"])
    found: Splits = {}
    for key, stored in arrays_of(predictions_of(source, place)).items():
        split, _, seeds = key.removeprefix(start).partition("|")
        if key.startswith(start) and seed in seeds.split(","):
            values = stored[seeds.split(",").index(seed)]
            found[split] = values.astype(np.float32) if values.dtype.kind == "f" else values
    labels = arrays_of(predictions_of(source, "labels"))
    return found, {key.removeprefix(marked): values for key, values in labels.items() if key.startswith(marked)}


# --- one file for a matrix ---------------------------------------------------------------------------------------

LEFT_OUT = {"schema", "command", "digest", "finished"}


def kept_record(record: dict[str, Any]) -> dict[str, Any]:
    """What tables need of a result, numbers with six digits; of the analysis single numbers alone."""
    single = {name: value for name, value in record["analysis"].items() if isinstance(value, float)}
    found = {name: value for name, value in record.items() if name not in LEFT_OUT} | {"analysis": single}
    return json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.6g}"))


def save(sources: list[Path], path: Path, reported: dict[str, int] | None = None) -> set[str]:
    """The results of folders as one file, from which the same tables are made; and beside it what was predicted at the
    `reported` budget of each task, and by rows that have other budgets alone. The tasks of which that is not known."""
    cells, missing = read_all(sources)
    lines = [{"missing": missing}, *(kept_record(cell.record) | {"row": cell.place} for cell in cells)]
    text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
    with results.replacing(path) as partial:
        partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    at = [cell for cell in cells if (reported or {}).get(cell.record["task"]) == cell.record["budget"]["amount"]]
    there = {(cell.place, cell.record["task"]) for cell in at}
    shown = at + [cell for cell in cells if (cell.place, cell.record["task"]) not in there]
    save_predictions(shown, path)
    return {cell.record["task"] for cell in shown
            if cell.record["primary"]["name"] in stats.INFLUENCE and cell.influence is None}  # fmt: skip


def opened(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of such a file, and what was missing; a damaged one is a `BadInput`."""
    what = "cannot be read, or not a file of `python -m bench table --save`"
    wrong = (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error)
    with refused(f"{path}: {what}", *wrong), gzip.open(path, "rt", encoding="utf-8") as file:
        first, *records = map(json.loads, file)
        return records, first["missing"]
