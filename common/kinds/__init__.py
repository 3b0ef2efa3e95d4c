"""The kinds of tasks: a class each, in the files beside this one; `base.MODULES` names the file of each."""

from common.kinds.base import KINDS, OWN, Encoded, Kind, Rows, Split, Task, block_examples

__all__ = ["KINDS", "OWN", "Encoded", "Kind", "Rows", "Split", "Task", "block_examples"]
