"""In the installed package common, methods, pocket and bench are parts of distil_papers, as pyproject.toml cannot say.

Their imports are written anew, so that no module of ours takes a name that a company's own may have; and what their
help calls `python methods/mc3kd.py` or `python -m bench` is called `distil-papers mc3kd` and `distil-papers` there.
"""

import re
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

PARTS = "(common|methods|pocket|bench)"
RULES = (
    (rf"^(\s*)from {PARTS}\b", r"\1from distil_papers.\2"),
    (rf"^(\s*)import {PARTS}\.", r"\1import distil_papers.\2."),
    (rf"^(\s*)import {PARTS}$", r"\1from distil_papers import \2"),
    (r"^sys\.path\.insert\(0, .*\n", ""),  # a script's way to what lies beside it
    (r"python (?:methods|bench/baselines)/(\w+)\.py", r"distil-papers \1"),
    (r"python -m bench\b(?!\.)", "distil-papers"),
)


class Build(build_py):
    def build_module(self, module: Any, module_file: Any, package: Any) -> Any:
        made, copied = super().build_module(module, module_file, package)
        text = Path(made).read_text(encoding="utf-8")
        for pattern, new in RULES:
            text = re.sub(pattern, new, text, flags=re.MULTILINE)
        Path(made).write_text(text, encoding="utf-8")
        return made, copied


setup(cmdclass={"build_py": Build})
