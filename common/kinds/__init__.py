"""The kinds of tasks: a class each, in the files beside this one, which are all read. A new kind is another file."""

import importlib
import pkgutil

from common.kinds.base import KINDS, Encoded, Kind, Rows, Split, Task, block_examples

__all__ = ["KINDS", "OWN", "Encoded", "Kind", "Rows", "Split", "Task", "block_examples"]

for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{module}")

OWN: dict[str, Kind] = {}  # what `--kind` says of a data set of one's own -> the kind; of equals the first
for kind in KINDS.values():
    if kind.own:
        OWN.setdefault(kind.own, kind)
