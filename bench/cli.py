"""What the commands of `python -m bench` share: parser, options of `--engine`, tables, and where results are kept."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from common import results
from common.args import BadInput, fail, first_line, split_list

FOLDER = results.ROOT / "bench" / "results"


class Parser(argparse.ArgumentParser):
    """Shows a module's docstring as it stands; a mistake is one line and exit code 2."""

    def __init__(self, name: str, doc: str | None) -> None:
        super().__init__(
            f"python -m bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        fail(BadInput(message.removeprefix("argument ")))


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where commands run; `check_engine` checks the values."""
    parser.add_argument("--jobs", type=int, help="commands at the same time (default: one a processor, at most 4)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="here, or on a Ray cluster")
    parser.add_argument("--address", default="auto", help="--engine ray: of the cluster (default: the one found here)")
    parser.add_argument("--cpus", type=float, default=1.0, help="--engine ray: processors of a command (default: 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="--engine ray: GPUs of a command (default: 0)")


def check_engine(options: argparse.Namespace) -> None:
    if options.jobs is not None and options.jobs < 1:
        raise BadInput(f"--jobs {options.jobs}: must be 1 or more")
    if not (0 < options.cpus < math.inf and 0 <= options.gpus < math.inf):
        raise BadInput(f"--cpus {options.cpus:g} --gpus {options.gpus:g}: must be above 0, and 0 or more")


def seeds_of(text: str) -> list[int]:
    """What `--seeds` says."""
    seeds = split_list(text)
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise BadInput(f"--seeds {text}: must be numbers with commas, as 0,1,2")
    return list(map(int, seeds))


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[str]:
    """The text of a file. Where it cannot be read, or the block does not find there what it takes out: a `BadInput`."""
    try:
        yield path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: damaged, or not {what} ({type(error).__name__}: {first_line(error)})") from error


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a row of one cell is a heading."""
    width = len(header)
    full = [row if len(row) == width else (f"**{row[0]}**", *[""] * (width - 1)) for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (header, *full)]
    return "\n".join([lines[0], "|---" * width + "|", *lines[1:]])


def dashed(name: str) -> str:
    """A field's name as the command line has it."""
    return name.replace("_", "-")
