"""Where results are read from: folders that runs have filled, and what `python -m bench table --save NAME` has kept.

bench/results/NAME.jsonl.gz holds what is missing, and what tables need of each result, a line each (`zcat` shows them).
NAME.safetensors.gz holds, of the reported budget, what each row predicted for each test item, and the labels: from
these anybody can compute the intervals, or another score.
"""

from __future__ import annotations

import functools
import gzip
import json
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load as parse
from safetensors.numpy import load_file
from safetensors.numpy import save as dump

from bench import matrix, stats
from bench.cli import FOLDER, reading
from common import data, results
from common.args import BadInput, first_line

KEPT = ".jsonl.gz"  # how files of `--save` end
Splits = dict[str, np.ndarray]  # split -> a class or a score for each item [N]


class Cell(NamedTuple):
    """A result, the row of the matrix that it belongs to, where it lies, for errors, and what reads its predictions."""

    place: str
    where: str
    record: dict[str, Any]
    predictions: Callable[[], Splits | None]
    labels: Callable[[], Splits | None]

    def influence(self) -> np.ndarray | None:
        """How each item of the reported splits moves the score [N]; None where predictions or labels are not known."""
        metric = self.record["primary"]["name"]
        if metric not in stats.INFLUENCE or not (found := self.predictions()) or not (labels := self.labels()):
            return None
        if any(split not in labels or len(labels[split]) != len(found[split]) for split in found):
            return None
        count = sum(map(len, found.values()))  # the score is the mean of the splits' scores, whatever their sizes
        # in one order for all rows, which are paired by item: a file gives its tensors in any
        return np.concatenate([stats.INFLUENCE[metric](values, labels[split]) * (count / len(values) / len(found))
                               for split, values in sorted(found.items())])  # fmt: skip


def read(source: Path) -> tuple[list[Cell], list[str]]:
    """The results of a folder, or of a file that `--save` has written; and which cells are missing there, and why."""
    if source.name.endswith(KEPT):
        kept, missing = opened(source)
        return [
            Cell(place := record.pop("row"), "{}: {method} {variant} {task} seed {seed}".format(source, **record),
                 record, functools.partial(kept_predictions, source, place, record),
                 functools.partial(kept_labels, source, record["task"]))
            for record in kept
        ], missing  # fmt: skip
    if not source.is_dir():
        raise BadInput(f"{source}: no such folder; `python -m bench run` makes it")
    paths, missing = cells_of(source)
    found = []
    for path, asked in paths.items():
        record = results.load(path) | ({"asked": asked} if asked else {})
        own = "{method}/{task}/{variant}/".format(**record)
        place = str(Path(path.relative_to(source).as_posix().rpartition(own)[0]))
        found.append(Cell(place, str(path), record, functools.partial(predicted, path.parent),
                          functools.partial(labels_of, record["task"], record["command"])))  # fmt: skip
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
        wanted = {key: (asked, folder / "jobs" / f"{key}.json") for key, asked in json.loads(text).items()}
    paths, missing = dict[Path, str](), []
    for key, (asked, path) in wanted.items():
        if not path.is_file():
            missing.append(f"{key}: never run")
            continue
        with reading(path, "a note of `python -m bench run`, which writes it anew") as text:
            note = json.loads(text)
            if note["asked"] != asked:  # before a winner changed
                missing.append(f"{key}: never run with these settings")
                continue
            made = note["results"] if note["status"] == "done" else []
            missing += [f"{key}: {name} is gone" for name in made if not (folder / name).is_file()]
            missing += [] if made else [f"{key}: {note.get('error', 'stopped')}"]
            paths |= {folder / name: asked for name in made if (folder / name).is_file()}
    return dict(sorted(paths.items())), missing


def kept_in(folder: Path) -> list[Path]:
    """The files of `--save` in a folder."""
    return sorted(folder.glob(f"*{KEPT}"))


def file_named(name: str) -> Path:
    """Where `--save NAME` keeps results."""
    return FOLDER / f"{name}{KEPT}"


def predictions_of(path: Path) -> Path:
    """The file beside one of `--save`."""
    return path.with_name(path.name.replace(KEPT, ".safetensors.gz"))


def folder_of(name: str) -> Path:
    """The folder of a matrix's results; a folder, or a file of `--save`, as it is."""
    return results.ROOT / matrix.out_of(Path(name)) if name.endswith(".toml") else Path(name)


# --- predictions -------------------------------------------------------------------------------------------------


def predicted(folder: Path) -> Splits | None:
    """What a run has predicted: classes, or scores, of each item of the reported splits."""
    if not (path := folder / "predictions.safetensors").is_file():
        return None
    return {split: found.argmax(1) if found.ndim == 2 else found for split, found in load_file(path).items()}


@functools.cache
def labels_of(task: str, command: str) -> Splits | None:
    """The labels of the reported splits, of the data that a command has read; None where they are no longer there."""
    words = shlex.split(command)
    folder = words[words.index("--data-dir") + 1] if "--data-dir" in words[:-1] else None
    return loaded(task, folder)


@functools.cache
def loaded(task: str, folder: str | None) -> Splits | None:
    try:
        found = data.load(task, folder)
    except BadInput:
        return None
    return {split: np.asarray(found.splits[split].labels) for split in found.reported}


def save_predictions(cells: list[Cell], path: Path) -> None:
    """Of each row and task all seeds, one after the other, and the labels; nothing where none are known."""
    found: dict[str, dict[int, np.ndarray]] = {}
    arrays: dict[str, np.ndarray] = {}
    for cell in cells:
        if cell.influence() is None:
            continue
        for split, values in (cell.predictions() or {}).items():
            found.setdefault(f"{key_of(cell.place, cell.record)}|{split}", {})[cell.record["seed"]] = small(values)
            arrays[f"labels|{cell.record['task']}|{split}"] = np.ascontiguousarray((cell.labels() or {})[split])
    for key, seeds in found.items():
        arrays[f"{key}|{','.join(map(str, seeds))}"] = np.stack(list(seeds.values()))
    predictions_of(path).unlink(missing_ok=True)
    arrays_of.cache_clear()
    if arrays:
        predictions_of(path).write_bytes(gzip.compress(dump(arrays), mtime=0))


def small(values: np.ndarray) -> np.ndarray:
    """Two bytes each: scores in half precision, classes as they are."""
    return values.astype(np.float16 if values.dtype.kind == "f" else np.uint16)


def key_of(place: str, record: dict[str, Any]) -> str:
    """What the results of a row on a task share: all but the seed."""
    return f"{place}|{record['task']}|{results.digest(results.seedless(record))}"


@functools.cache
def arrays_of(path: Path) -> dict[str, np.ndarray]:
    return parse(gzip.decompress(path.read_bytes())) if path.is_file() else {}


def kept_predictions(source: Path, place: str, record: dict[str, Any]) -> Splits | None:
    """The predictions of a kept result."""
    start, found = f"{key_of(place, record)}|", dict[str, np.ndarray]()
    for key, stored in arrays_of(predictions_of(source)).items():
        split, _, seeds = key.removeprefix(start).partition("|")
        if key.startswith(start) and str(record["seed"]) in seeds.split(","):
            values = stored[seeds.split(",").index(str(record["seed"]))]
            found[split] = values.astype(np.float32) if values.dtype.kind == "f" else values
    return found or None


def kept_labels(source: Path, task: str) -> Splits | None:
    start, arrays = f"labels|{task}|", arrays_of(predictions_of(source))
    return {key.removeprefix(start): found for key, found in arrays.items() if key.startswith(start)} or None


# --- one file for a matrix ---------------------------------------------------------------------------------------

LEFT_OUT = {"schema", "command", "digest", "finished"}


def kept_record(record: dict[str, Any]) -> dict[str, Any]:
    """What tables need of a result, numbers with six digits; of the analysis single numbers alone."""
    single = {name: value for name, value in record["analysis"].items() if isinstance(value, float)}
    found = {name: value for name, value in record.items() if name not in LEFT_OUT} | {"analysis": single}
    return json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.6g}"))


def save(sources: list[Path], path: Path, reported: dict[str, int] | None = None) -> None:
    """The results of folders as one file, from which the same tables are made; and beside it what was predicted at the
    `reported` budget of each task."""
    cells, missing = read_all(sources)
    lines = [{"missing": missing}, *(kept_record(cell.record) | {"row": cell.place} for cell in cells)]
    text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    with results.replacing(path) as partial:
        partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    at = [cell for cell in cells if (reported or {}).get(cell.record["task"]) == cell.record["budget"]["amount"]]
    save_predictions(at, path)


def opened(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of such a file, and what was missing; a damaged one is a `BadInput`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            first, *records = map(json.loads, file)
        return records, first["missing"]
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        what = "cannot be read, or not a file of `python -m bench table --save`"
        raise BadInput(f"{path}: {what} ({first_line(error)})") from error


@functools.cache
def cells_in(path: Path) -> dict[tuple[str, str, int, str], str]:
    """Of such a file: (row, task, seed, what the command has asked for) -> the fingerprint of the data."""
    return {(one["row"], one["task"], one["seed"], one.get("asked", "")): one["fingerprint"] for one in opened(path)[0]}


def holds(path: Path, job: matrix.Job) -> bool:
    """Whether such a file has the cell of a command, with the same settings and data."""
    found = cells_in(path).get((job.row, job.task, job.seed, job.asked))
    return found is not None and found == job.fingerprint
