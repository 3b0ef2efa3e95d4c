"""All of it under one name: `from distil_papers.methods.mc3kd import ccc`.

`pip install .` puts common, methods, pocket and bench in here, and setup.py writes their imports anew. In a copy of the
repository they lie beside this folder: then `distil_papers.common` is `common`, the same module.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PARTS = ("common", "methods", "pocket", "bench")


class Beside(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `distil_papers.NAME` as NAME."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        name = fullname.removeprefix("distil_papers.")
        part = name != fullname and name.split(".")[0] in PARTS
        return importlib.machinery.ModuleSpec(fullname, self) if part else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.removeprefix("distil_papers."))
        spec.loader_state = module.__spec__  # which the library is about to replace
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


if not (Path(__file__).parent / "common").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.meta_path.insert(0, Beside())
