"""Values of the command line: the names of models, shapes, layers, budgets and places, from text. No heavy library."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Literal

from common.errors import BadInput

# Training examples that pass through the student, summed over every stage of a method.
BUDGETS = {"smoke": 640, "quick": 25_600, "standard": 256_000}
TIMEOUT_SECONDS = 10.0  # of a question to the hub
KEEP = ("first", "skip", "spread", "top")


def layer_list(text: str) -> list[int]:
    """`"2,4"` -> [2, 4]; raises `BadInput` unless it is a list of layers, from 1 on, from below to above."""
    layers = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if layers[0] < 1 or layers != sorted(set(layers)):
        raise BadInput(f"--keep {text!r}: must be {', '.join(KEEP)}, or rising numbers from 1 on, for example 2,4")
    return layers


def expanded(name: str) -> Path:
    """A path with the home folder in the place of "~"; of a user that is not known it stays as it is."""
    return Path(os.path.expanduser(name))


def parse_model(name: str) -> tuple[str, int | None]:
    """`"MODEL:6"` -> ("MODEL", 6), the first 6 layers of a model; `"MODEL"` -> ("MODEL", None), all of them, as of a
    folder that is called so."""
    match = re.fullmatch(r"(.+):([1-9]\d{0,3})", name)
    return (match[1], int(match[2])) if match and not os.path.exists(name) else (name, None)


def check_place(argument: str, place: str | None, file: bool = False) -> None:
    """Raise `BadInput` unless a folder (`file`: a file in one) can be made, or written to, at `place`."""
    if place is not None:
        path = Path(place).absolute()
        if not str(path).isascii() and sys.getfilesystemencoding() != "utf-8":  # the libraries write no other names
            raise BadInput(f"{argument} {place!a}: this locale's names are not UTF-8; with PYTHONUTF8=1 they would be")
        if file and path.is_dir():
            raise BadInput(f"{argument} {place}: is a folder; give a file")
        there = next(path for path in (*([] if file else [path]), *path.parents) if os.path.exists(path))
        if not there.is_dir():
            raise BadInput(f"{argument} {place}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise BadInput(f"{argument} {place}: {there} cannot be written to; give a folder that can")


def split_list(text: str) -> list[str]:
    """Comma-separated names, without blanks and repetitions, in order."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def split_paths(text: str) -> list[str]:
    """`split_list` of names that may be paths: parts that together name a file or a folder are one, as many as can."""
    parts, names = text.split(","), list[str]()
    while parts:
        joined = [",".join(parts[:count]).strip() for count in range(1, len(parts) + 1)]
        there = [name for name in joined if os.path.exists(expanded(parse_model(name)[0]))]
        names.append(max(there, key=len, default=joined[0]))
        del parts[: joined.index(names[-1]) + 1]
    return list(dict.fromkeys(filter(None, names)))


def student_shape(text: str, argument: str = "--student") -> tuple[int, int]:
    """`"3x128"` -> (3 layers, width 128)."""
    match = re.fullmatch(r"(\d{1,3})x(\d{1,5})", text)
    if not match or int(match[1]) < 1 or int(match[2]) < 1:
        raise BadInput(f"{argument} {text!r}: must be LAYERSxWIDTH, for example 3x128")
    layers, width = int(match[1]), int(match[2])
    if width % 8:
        near = max(8, width // 8 * 8)
        raise BadInput(f"{argument} {text}: the width must be a multiple of 8, for example {layers}x{near}")
    return layers, width


def parse_budget(text: str) -> tuple[Literal["examples", "paper"], int]:
    """`"quick"` -> ("examples", 25600); `"5000"`, `"5e3"`, `"5k"` -> ("examples", 5000); `"paper"` -> ("paper", 0)."""
    if text == "paper":
        return "paper", 0
    number = re.fullmatch(r"([1-9]\d{0,14}(?:\.\d+)?(?:e\d{1,2})?)([km]?)", text, re.IGNORECASE)
    amount = float(number[1]) * {"": 1, "k": 1e3, "m": 1e6}[number[2].lower()] if number else 0.5
    if text not in BUDGETS and not (amount.is_integer() and amount < 1e15):
        names = ", ".join(BUDGETS)
        raise BadInput(
            f"--budget {text!r}: must be {names}, paper, or a number of examples below 1e15, as 25600, 25k or 1e4"
        )
    return "examples", BUDGETS.get(text) or int(amount)
