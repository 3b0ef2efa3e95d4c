"""python -m bench COMMAND [ARGUMENTS]; `python -m bench COMMAND --help` says what each takes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable

from common import __version__
from common.args import BadInput, fail, interrupt
from common.errors import Interrupted

# Command -> what it does
COMMANDS = {
    "run": "a matrix of methods, variants, tasks and seeds under one budget; goes on where it was stopped",
    "arena": "which small model to ship for a task: the arena's rows on it, measured, and what follows",
    "table": "the tables of a matrix, from its results",
    "report": "one page about it: runs/report/index.html",
    "predict": "a class, or a score, for each row of a table, by a saved student",
    "profile": "size, latency, throughput and memory of every row, measured in turn",
    "sweep": "a search over the grid of a paper, as many trials for every variant",
    "papers": "the papers' tables, as printed, and the commands of their rows",
    "figures": "the papers' figures and analyses",
    "speed": "kernels and steps beside their rivals, and beside the checked-in ratios",
    "pages": "the tables in README.md and docs/, from the checked-in results",
}


def command(name: str) -> Callable[[list[str]], None]:
    """`main` of bench/NAME.py, which is imported when it is asked for; the students of `profile` are arena's."""
    module = importlib.import_module(f"{__package__}.{'arena' if name == 'profile' else name}")
    return module.profile if name == "profile" else module.main


def main(argv: list[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__, *(f"  {name:<10}{what}" for name, what in COMMANDS.items()), sep="\n")
        raise SystemExit(0 if argv else 2)
    if argv[0] == "--version":
        return print(__version__)
    if argv[0] not in COMMANDS:
        fail(BadInput(f"python -m bench {argv[0]}: no such command; there is {', '.join(COMMANDS)}"))
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | dict(os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        command(argv[0])(argv[1:])
        sys.stdout.flush()
    except BadInput as error:
        fail(error)
    except Interrupted as stopped:
        print("\nstopped", file=sys.stderr)
        raise SystemExit(128 + stopped.number) from None
    except BrokenPipeError:  # the reader, head or a pager, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # of files and folders; it names them
        fail(error)


if __name__ == "__main__":
    main(sys.argv[1:])
