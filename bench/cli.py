"""What the commands of `python -m bench` share: parser, options of `--engine`, and where results are kept."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from common import results
from common.args import BadInput, fail, split_list
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


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where commands run."""
    some, any_ = at_least(0, float, above=True), at_least(0, float)
    parser.add_argument("--jobs", type=at_least(1),
                        help="commands at the same time (default: one a processor, at most 4)")  # fmt: skip
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="here, or on a Ray cluster")
    parser.add_argument("--address", default="auto", help="--engine ray: of the cluster (default: the one found here)")
    parser.add_argument("--cpus", type=some, default=1.0,
                        help="--engine ray: processors of a command (default: 1)")  # fmt: skip
    parser.add_argument("--gpus", type=any_, default=0.0, help="--engine ray: GPUs of a command (default: 0)")


def seeds_of(text: str) -> list[int]:
    """What `--seeds` says."""
    seeds = split_list(text)
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise BadInput(f"--seeds {text}: must be numbers with commas, as 0,1,2")
    return list(map(int, seeds))


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
