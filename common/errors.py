"""The two exceptions that end a script in an orderly way, and the lines that tell its user something."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn


class BadInput(Exception):
    """Wrong input from the user: the message names the argument or the file, what is wrong, and what is right."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; a training loop has written its checkpoint before this reaches `run`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interrupt(number: int, _frame: object) -> NoReturn:
    raise Interrupted(number)


def speaks() -> bool:
    """Whether this process speaks for its group, as the launcher says: the first, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def tell(line: str) -> None:
    if speaks():
        print(line, file=sys.stderr)


def warn(line: str) -> None:
    tell(f"warning: {line}")


warn_once = functools.cache(warn)
tell_once = functools.cache(tell)


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def refused(what: str, *errors: type[Exception], hint: str = "") -> Iterator[None]:
    """Make a `BadInput` of whatever goes wrong inside, or of these errors alone: what, why, and what would do. The kind
    of error is named where it may be any, and of a KeyError, whose text is a bare key."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BadInput) or not isinstance(error, errors or Exception):
            raise
        kind = f"{type(error).__name__}: " if not errors or isinstance(error, KeyError) else ""
        why = getattr(error, "strerror", None) or kind + first_line(error)
        raise BadInput(f"{what} ({why}){hint}") from error


def some(names: Sequence[Any], count: int = 20) -> str:
    """The first of many names, for a line."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(str(name)[:40] for name in names[:count]) + more


def shown(value: Any) -> str:
    """A value as an error line shows it: its beginning, and never an integer of thousands of digits."""
    try:
        return repr(value)[:60]
    except ValueError:
        return "a huge number"


def warn_of_lacking(split: str, what: str, names: Sequence[str], there: set[str]) -> None:
    """Say of which names a split has no row."""
    if lacking := [name for name in names if name not in there]:
        warn(f"{split}: no row of {len(lacking):,} of {len(names):,} {what} ({some(lacking, 5)})")
