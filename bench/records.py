"""Where results are read from: folders that runs have filled, and what `python -m bench table --save NAME` has kept.

bench/results/NAME.json holds what tables need of each result. What results share is written once: of all, of each row,
of each task of a row, of each of its budgets; the figures of its seeds stand in columns. bench/results/NAME/ holds, of
the reported budget, what each row predicted for each test item, a file for each row, and the labels: from these anybody
can compute the intervals, or another score, and a megabyte is enough for all of them.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bench import matrix, stats
from bench.cli import reading
from common import data, results
from common.args import BadInput

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
        return np.concatenate([stats.INFLUENCE[metric](values, labels[split]) * (count / len(values) / len(found))
                               for split, values in found.items()])  # fmt: skip


def read(source: Path) -> tuple[list[Cell], list[str]]:
    """The results of a folder, or of a file that `--save` has written; and which cells are missing there, and why."""
    if source.suffix == ".json":
        kept, missing = opened(source)
        return [
            Cell(place := record.pop("row"), "{}: {method} {variant} {task} seed {seed}".format(source, **record),
                 record, functools.partial(unpacked, source, place, record),
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


def cells_of(folder: Path) -> tuple[dict[Path, str], list[str]]:
    """(results and what their commands have asked for, what is missing and why) of the matrix that was run into a
    folder; of another folder all results."""
    if not (folder / "matrix.json").is_file():
        return dict.fromkeys(sorted(folder.rglob("result.json")), ""), []

    with reading(folder / "matrix.json", "the list of commands of `python -m bench run`, which writes it anew") as text:
        notes = {key: folder / "jobs" / f"{key}.json" for key in json.loads(text)}
    paths, missing = dict[Path, str](), []
    for key, path in notes.items():
        if not path.is_file():
            missing.append(f"{key}: never run")
            continue
        with reading(path, "a note of `python -m bench run`, which writes it anew") as text:
            note = json.loads(text)
            made = note["results"] if note["status"] == "done" else []
            missing += [f"{key}: {name} is gone" for name in made if not (folder / name).is_file()]
            missing += [] if made else [f"{key}: {note.get('error', 'stopped')}"]
            paths |= {folder / name: note.get("asked", "") for name in made if (folder / name).is_file()}
    return dict(sorted(paths.items())), missing


def kept_in(folder: Path) -> list[Path]:
    """The files of `--save` in a folder."""
    return [
        path for path in sorted(folder.glob("*.json")) if path.read_text(encoding="utf-8").startswith('{\n "digest"')
    ]


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


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers below 2^bits [S, N] as bytes."""
    return np.packbits(
        np.unpackbits(values[..., None], axis=-1, count=bits, bitorder="little").reshape(len(values), -1), axis=-1
    )


def save_predictions(cells: list[Cell], folder: Path) -> None:
    """A file for each row, and the labels. A class takes as many bits as it needs, a score, in 256 steps, eight."""
    rows: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    labels: dict[str, np.ndarray] = {}
    for cell in cells:
        if cell.influence() is None:
            continue
        for split, values in (cell.predictions() or {}).items():
            record = cell.record
            key = f"{key_of(record)}|{split}"
            rows.setdefault(cell.place, {}).setdefault(key, {})[record["seed"]] = values
            labels[f"{record['task']}|{split}"] = (cell.labels() or {})[split]
    for place, found in rows.items():
        tensors, how = {}, {}
        for key, seeds in found.items():
            values, low, step, bits = np.stack(list(seeds.values())), 0.0, 1.0, 8
            if values.dtype.kind == "f":
                low, high = float(values.min()), float(values.max())
                step = (high - low) / 255 or 1.0
                values = np.round((values - low) / step)
            else:
                bits = max(1, int(values.max()).bit_length())
            tensors[key] = packed(values.astype(np.uint8), bits)
            how[key] = json.dumps(
                {"seeds": list(seeds), "items": values.shape[1], "bits": bits, "low": low, "step": step}
            )
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, file_of(folder, place), how)
    if labels:
        save_file({key: np.ascontiguousarray(found) for key, found in labels.items()}, folder / "labels.safetensors")


def key_of(record: dict[str, Any]) -> str:
    """What the results of a row on a task share: all but the seed."""
    return f"{record['task']}|{results.digest(results.seedless(record))}"


def file_of(folder: Path, place: str) -> Path:
    return folder / f"{place.replace('/', '-').strip('.') or 'rows'}.safetensors"


@functools.cache
def tensors_of(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    if not path.is_file():
        return {}, {}
    with safe_open(path, "numpy") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def unpacked(source: Path, place: str, record: dict[str, Any]) -> Splits | None:
    """The predictions of a kept result."""
    tensors, how = tensors_of(file_of(source.with_suffix(""), place))
    start, found = f"{key_of(record)}|", dict[str, np.ndarray]()
    for key, stored in tensors.items():
        said = json.loads(how[key])
        if key.startswith(start) and record["seed"] in said["seeds"]:
            at, bits = said["seeds"].index(record["seed"]), said["bits"]
            flags = np.unpackbits(stored[at], count=said["items"] * bits).reshape(-1, bits)
            values = np.packbits(flags, axis=-1, bitorder="little")[:, 0]
            found[key.removeprefix(start)] = values if bits < 8 else said["low"] + said["step"] * values
    return found or None


def kept_labels(source: Path, task: str) -> Splits | None:
    tensors, _ = tensors_of(source.with_suffix("") / "labels.safetensors")
    return {key.partition("|")[2]: found for key, found in tensors.items() if key.startswith(f"{task}|")} or None


# --- one file for a matrix ---------------------------------------------------------------------------------------

LEVELS = (("row", "method", "variant"), ("task",), ("budget/name",))
LEFT_OUT = {"schema", "speed", "peak_memory_bytes", "shared_seconds", "command", "digest", "finished"}


def flat(record: dict[str, Any], name: str = "") -> dict[str, Any]:
    """{"settings/lr": 0.001, ...}, numbers with six digits; of the analysis single numbers alone."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if (key in LEFT_OUT and "signature/" != name != "comparable/") or (
            "analysis/" in name and not isinstance(value, float)
        ):
            continue
        key = f"{name}{key}"
        if isinstance(value, dict) and value:
            found |= flat(value, f"{key}/")
        else:
            found[key] = float(f"{value:.6g}") if isinstance(value, float) else value
    return found


def fields(line: str) -> dict[str, str]:
    """A signature by its keys, and their order."""
    found = dict(part.partition(":")[::2] for part in line.split("|"))
    plain = results.one_line(found) == line and "/" not in "".join(found)
    return {"": "|".join(found)} | found if plain else {"": "", "whole": line}


def fold(records: list[dict[str, Any]], levels: tuple[tuple[str, ...], ...] = LEVELS) -> dict[str, Any]:
    """A tree of `flat` records; each node holds what all below it share, the last a column for each other key."""
    shared = {key: value for key, value in records[0].items()
              if all(key in other and json.dumps(value) == json.dumps(other[key]) for other in records)}  # fmt: skip
    rest = [{key: value for key, value in record.items() if key not in shared} for record in records]
    if not levels:
        keys = dict.fromkeys(key for record in rest for key in record)
        return shared | {"seeds": {key: [record.get(key) for record in rest] for key in keys}, "count": len(records)}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for whole, left in zip(records, rest, strict=True):
        groups.setdefault(tuple(whole.get(key) for key in levels[0]), []).append(left)
    return shared | {"parts": [fold(group, levels[1:]) for group in groups.values()]}


def unfold(node: dict[str, Any], above: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a tree."""
    here = above | {key: value for key, value in node.items() if key not in ("parts", "seeds", "count")}
    for part in node.get("parts", []):
        yield from unfold(part, here)
    for i in range(node.get("count", 0)):
        record: dict[str, Any] = {}
        for key, value in (here | {key: column[i] for key, column in node["seeds"].items()}).items():
            *names, last = key.split("/")
            inner = record
            for name in names:
                inner = inner.setdefault(name, {})
            inner[last] = value
        for key in ("comparable", "signature"):
            order = record[key].pop("").split("|")
            record[key] = (
                results.one_line({name: record[key][name] for name in order}) if order != [""] else record[key]["whole"]
            )
        yield record


def save(sources: list[Path], path: Path, reported: dict[str, int] | None = None) -> None:
    """The results of folders as one file, from which the same tables are made; and beside it what was predicted at the
    `reported` budget of each task."""
    found = [read(source) for source in sources]
    cells, missing = [cell for some, _ in found for cell in some], [line for _, some in found for line in some]
    lines = ("comparable", "signature")
    flattened = [flat(c.record | {"row": c.place} | {key: fields(c.record[key]) for key in lines}) for c in cells]
    tree = fold(flattened)
    kept = {"missing": missing, "results": tree}
    text = json.dumps({"digest": results.digest(kept)} | kept, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub(
        r"\[\s+([^\[\]{}]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text
    )  # columns, a line each
    path.parent.mkdir(parents=True, exist_ok=True)
    with results.replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    at = [cell for cell in cells if (reported or {}).get(cell.record["task"]) == cell.record["budget"]["amount"]]
    for old in path.with_suffix("").glob("*.safetensors"):
        old.unlink()
    tensors_of.cache_clear()
    save_predictions(at, path.with_suffix(""))


def opened(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of such a file, and what was missing; a damaged one is a `BadInput`."""
    with reading(path, "a file of `python -m bench table --save`") as text:
        kept = json.loads(text)
        if kept.pop("digest") != results.digest(kept):
            raise ValueError("its digest does not match")
        return list(unfold(kept["results"], {})), kept["missing"]


@functools.cache
def cells_in(path: Path) -> dict[tuple[str, str, int, str], str]:
    """Of such a file: (row, task, seed, what the command has asked for) -> the fingerprint of the data."""
    return {(one["row"], one["task"], one["seed"], one.get("asked", "")): one["fingerprint"] for one in opened(path)[0]}


def holds(path: Path, job: matrix.Job) -> bool:
    """Whether such a file has the cell of a command, with the same settings and data."""
    found = cells_in(path).get((job.row, job.task, job.seed, job.asked))
    return found is not None and found == job.fingerprint
