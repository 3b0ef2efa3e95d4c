"""Where results are read from: folders that runs have filled, and one file for all results of a matrix.

A file of `python -m bench table --save` holds what tables need of each result. What results share is written once: of
all, of each row, of each task of a row.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import matrix
from bench.cli import reading
from common import results
from common.args import BadInput


class Cell(NamedTuple):
    """A result, the row of the matrix that it belongs to, and where it lies, for errors."""

    place: str
    where: str
    record: dict[str, Any]


def read(source: Path) -> tuple[list[Cell], list[str]]:
    """The results of a folder, or of a file that `--save` has written; and which cells are missing there, and why."""
    if source.suffix == ".json":
        return [
            Cell(record.pop("row"), "{}: {method} {variant} {task} seed {seed}".format(source, **record), record)
            for record in opened(source)
        ], []
    if not source.is_dir():
        raise BadInput(f"{source}: no such folder; `python -m bench run` makes it")
    paths, missing = cells_of(source)
    found = []
    for path, asked in paths.items():
        record = results.load(path) | ({"asked": asked} if asked else {})
        own = "{method}/{task}/{variant}/".format(**record)
        place = path.relative_to(source).as_posix().rpartition(own)[0]
        found.append(Cell(str(Path(place)), str(path), record))
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


# --- one file for a matrix ---------------------------------------------------------------------------------------

LEVELS = (("row", "method", "variant"), ("task",), ("seed",))
LEFT_OUT = ("schema", "speed", "peak_memory_bytes", "shared_seconds", "student_tokens", "seconds", "command", "digest")


def flat(record: dict[str, Any], row: str) -> dict[str, Any]:
    """{"settings/lr": 0.001, ...}, with a star for the seed in the signature."""
    fields = record | {"row": row}
    for key in ("analysis", "teacher"):
        found = record[key] if key == "analysis" else record[key]["analysis"]
        numbers = {name: value for name, value in found.items() if isinstance(value, float)}
        fields[key] = numbers if key == "analysis" else record[key] | {"analysis": numbers}
    fields["signature"] = results.seedless(record)
    nested = {key: value if isinstance(value, dict) and value else {"": value} for key, value in fields.items()}
    return {f"{key}/{name}".rstrip("/"): value for key, values in nested.items() for name, value in values.items()
            if not {key, name} & set(LEFT_OUT)}  # fmt: skip


def fold(records: list[dict[str, Any]], levels: tuple[tuple[str, ...], ...] = LEVELS) -> dict[str, Any]:
    """A tree of `flat` records; each node holds what all below it share."""

    def same(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in a.items() if key in b and json.dumps(value) == json.dumps(b[key])}

    shared = functools.reduce(same, records)
    if not levels:
        return shared
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        rest = {key: value for key, value in record.items() if key not in shared}
        groups.setdefault(tuple(record.get(key) for key in levels[0]), []).append(rest)
    return shared | {"parts": [fold(group, levels[1:]) for group in groups.values()]}


def unfold(node: dict[str, Any], above: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a tree."""
    here = above | {key: value for key, value in node.items() if key != "parts"}
    for part in node.get("parts", []):
        yield from unfold(part, here)
    if "parts" not in node:
        record: dict[str, Any] = {}
        for key, value in here.items():
            first, _, name = key.partition("/")
            record[first] = record.get(first, {}) | {name: value} if name else value
        yield record | {"signature": record["signature"].replace("|seed:*|", f"|seed:{record['seed']}|")}


def save(sources: list[Path], path: Path) -> None:
    """The results of folders as one file, from which the same tables are made."""
    tree = fold([flat(record, place) for source in sources for place, _, record in read(source)[0]])
    results.write_json(path, {"digest": results.digest(tree), "results": tree})


def opened(path: Path) -> list[dict[str, Any]]:
    """The records of such a file; a damaged one is a `BadInput`."""
    with reading(path, "a file of `python -m bench table --save`") as text:
        kept = json.loads(text)
        if kept["digest"] != results.digest(kept["results"]):
            raise ValueError("its digest does not match")
        return list(unfold(kept["results"], {}))


@functools.cache
def cells_in(path: Path) -> dict[tuple[str, str, int, str], str]:
    """Of such a file: (row, task, seed, what the command has asked for) -> the fingerprint of the data."""
    return {(one["row"], one["task"], one["seed"], one.get("asked", "")): one["fingerprint"] for one in opened(path)}


def holds(path: Path, job: matrix.Job) -> bool:
    """Whether such a file has the cell of a command, with the same settings and data."""
    found = cells_in(path).get((job.row, job.task, job.seed, job.asked))
    return found is not None and found == job.fingerprint
