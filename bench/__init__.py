"""The bench: runs of all methods under one budget, what they cost, and what follows from them.

    matrix     what a file asks for: rows, commands, values that were tuned
    run        the commands, here or on a cluster (cluster, preload); sweep: the trials before them
    records    their results, read from folders and from files that were kept
    table      the rows of one table, baselines, differences; stats: intervals, tests, planned comparisons
    report     a page with plots; pages: the tables on README.md and docs/; claims: what the papers claim
    arena      which small model to ship, and what students cost; predict: what one says of a table
    papers     the papers' tables and commands; figures: their figures; studies/: finished questions
    speed      kernels, losses and steps beside their rivals, in turn

Here is what the commands of `python -m bench` share: their parser, and the folder of what is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from common import results
from common.args import BadInput, fail
from common.errors import refused

FOLDER = results.ROOT / "bench" / "results"


class Parser(argparse.ArgumentParser):
    """Shows a module's docstring as it stands; a mistake is one line and exit code 2."""

    def __init__(self, name: str, doc: str | None) -> None:
        super().__init__(
            f"python -m bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # `--task`, of a script, is no short `--tasks`
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        of_one = message.startswith("argument ")  # "argument --jobs: 0: must be ..."
        fail(BadInput(message.removeprefix("argument ").replace(": ", " ", 1) if of_one else message))


def at_least(least: int, kind: type = int, above: bool = False) -> Callable[[str], Any]:
    """A type of arguments: numbers from `least` on, or above it."""

    def number(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if least <= kind(text) < math.inf and not (above and kind(text) == least):
                return kind(text)
        right = f"above {least}" if above else f"{least} or more"
        raise argparse.ArgumentTypeError(f"{text}: must be {right}")

    return number


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[str]:
    """The text of a file. Where it cannot be read, or the block does not find there what it takes out: a `BadInput`."""
    wrong = (ValueError, KeyError, TypeError, AttributeError)
    with refused(f"{path}: damaged, or not {what}", *wrong), refused(f"{path}: cannot be read", OSError):
        yield path.read_text(encoding="utf-8")


def saved(name: str) -> dict[str, Any]:
    """What a command has kept under bench/results."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def dashed(name: str) -> str:
    """A field's name as the command line has it."""
    return name.replace("_", "-")
