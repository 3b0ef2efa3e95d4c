"""The kinds of tasks: a class each, in the files beside this one, which are all read. A new kind is another file."""

import importlib
import pkgutil

from common.kinds.base import KINDS as KINDS
from common.kinds.base import Encoded as Encoded
from common.kinds.base import Kind as Kind
from common.kinds.base import Rows as Rows
from common.kinds.base import Split as Split
from common.kinds.base import Task as Task
from common.kinds.base import block_examples as block_examples

for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{module}")

OWN: dict[str, Kind] = {}  # what `--kind` says of a data set of one's own -> the kind; of equals the first
for kind in KINDS.values():
    if kind.own:
        OWN.setdefault(kind.own, kind)
