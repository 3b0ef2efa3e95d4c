"""What the programs of this folder share: their command lines, and where they save.

`Parser` is of the subcommands of `python -m bench`, whose mistakes are one line and exit code 2; `parser` of the
programs that make one table of their own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from common import pocket, results
from common.args import BadInput, fail

FOLDER = results.ROOT / "bench" / "results"


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that shows a module's docstring as it stands."""

    def __init__(self, name: str, doc: str | None) -> None:
        super().__init__(
            f"python -m bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        fail(BadInput(message.removeprefix("argument ")))


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine and what belongs to it; `check_engine` afterwards."""
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="here, or on a Ray cluster")
    parser.add_argument("--address", default="auto", help="--engine ray: of the cluster (default: the one found here)")
    parser.add_argument("--cpus", type=float, default=1.0, help="--engine ray: processors of a command (default: 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="--engine ray: GPUs of a command (default: 0)")


def check_engine(options: argparse.Namespace) -> None:
    if not (0 < options.cpus < math.inf and 0 <= options.gpus < math.inf):
        raise BadInput(f"--cpus {options.cpus:g} --gpus {options.gpus:g}: must be above 0, and 0 or more")


def parser(
    doc: str | None, name: str, tasks: list[str], out_dir: str = "runs", allowed: Sequence[str] = pocket.TASKS
) -> argparse.ArgumentParser:
    """--seeds, --tasks, --out-dir and --save, for a table over pocket tasks."""

    def task_names(text: str) -> list[str]:
        """`"cola,rte"` -> ["cola", "rte"], each one of those allowed."""
        for wrong in (found for found in text.split(",") if found not in allowed):
            raise argparse.ArgumentTypeError(f"{wrong}: must be of {', '.join(allowed)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=count, default=[0], metavar="N", help="how many seeds, from 0 (default: 1)")
    parser.add_argument(
        "--tasks", type=task_names, default=tasks, metavar="T,...", help=f"pocket tasks (default: {','.join(tasks)})"
    )
    parser.add_argument("--out-dir", type=Path, default=Path(out_dir), help="where the runs and teachers are")
    parser.add_argument("--save", action="store_true", help=f"write bench/results/{name}.json")
    return parser


def count(text: str) -> list[int]:
    """`"5"` -> the seeds [0, 1, 2, 3, 4]."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return list(range(int(text)))
