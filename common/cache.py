"""Model folders that several runs share: made once, under a lock, written whole or not at all.

runs/cache/<kind>/<key>/             Hugging Face layout + a JSON note: how it was made, and the digest of its files
runs/cache/<kind>/<key>.training/    while it is made: the checkpoint from which a killed run goes on
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from common import models, parallel
from common.results import write_json


def key(recipe: dict[str, Any]) -> str:
    """The name of the folder of what is made by `recipe`: 12 hexadecimal digits."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def fetch(folder: Path, note: str, what: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The note of `folder`, which `make` fills first if it is absent or damaged; its "fresh" says whether that was now.

    `make` writes the model into the folder it is given and returns what is to be noted; `what` names the model in
    the line about damage. Several processes make it together; the main one decides and writes.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    # two runs at once: the second waits for the first one's model instead of training another
    with alone(folder) if parallel.main() else contextlib.nullcontext():
        fresh = parallel.on_main(lambda: wanting(folder, note, what))
        if fresh:
            partial = folder.with_suffix(f".{os.getpid()}.partial")
            made = make(partial)
            parallel.on_main(lambda: finish(partial, folder, note, made))
        if parallel.main():
            shutil.rmtree(folder.with_suffix(".training"), ignore_errors=True)
        return json.loads((folder / note).read_text(encoding="utf-8")) | {"fresh": fresh}


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Until no other process is making this folder, and while this one is at it."""
    lock = FileLock(folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{folder}: another process is making it; waiting for its end", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def wanting(folder: Path, note: str, what: str) -> bool:
    """Whether a model has to be made; what is left of a damaged or unfinished one is removed."""
    if intact(folder, note, what):
        return False
    for old in (folder, *folder.parent.glob(f"{folder.name}.*.partial")):  # a kill may have left some
        shutil.rmtree(old, ignore_errors=True)
    return True


def finish(partial: Path, folder: Path, note: str, made: dict[str, Any]) -> None:
    """Give a model that was written its note and its place."""
    made = made | {"digest": models.file_digest(partial)}
    write_json(partial / note, made | {"note_digest": key(made)})
    partial.rename(folder)


def intact(folder: Path, note: str, what: str) -> bool:
    """Whether the folder holds a finished model whose files are the ones that were written."""
    if not (folder / note).exists():
        return False
    try:
        found = json.loads((folder / note).read_text(encoding="utf-8"))
        whole = found.pop("note_digest", None) in (None, key(found))  # notes of older versions have none
        if whole and found["digest"] == models.file_digest(folder):
            return True
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    print(f"{folder}: damaged {what} in the cache; it is made again")
    return False
