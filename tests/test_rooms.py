"""Rooms: what few commands need is opened where it is asked for, and the core can be read without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from conftest import ENVIRONMENT, ROOT

CORE = {
    *("args", "data", "errors", "evaluate", "kinds", "kinds.sentences", "layers", "losses", "metrics"),
    *("models", "parallel", "results", "run", "tasks", "teacher", "train", "values"),
}  # every other module of common/ is a room
PATHS = {
    ".".join(path.relative_to(ROOT / "common").with_suffix("").parts): path for path in ROOT.glob("common/**/*.py")
}
MODULES = {name.removesuffix(".__init__"): path for name, path in PATHS.items() if name != "__init__"}


def imports(nodes: list[ast.stmt], everywhere: bool) -> Iterator[str]:
    """The modules of common/ that are imported, not for types alone: at the top, or everywhere below these nodes."""
    for node in nodes:
        for one in ast.walk(node) if everywhere else [node]:
            if isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] == "common":
                place = one.module.removeprefix("common").removeprefix(".")
                names = {f"{place}.{alias.name}".lstrip(".") for alias in one.names}
                yield from (names & MODULES.keys()) or {place}


def test_the_core_imports_no_room_at_its_top() -> None:
    assert MODULES.keys() > CORE
    for name in sorted(CORE):
        wrong = set(imports(ast.parse(MODULES[name].read_text()).body, False)) - CORE - {""}
        assert not wrong, f"common/{name} imports {wrong} at its top"


def test_the_core_opens_a_room_in_two_places_at_most() -> None:
    opened = Counter[str]()
    for name in CORE:
        tree = ast.parse(MODULES[name].read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {node for one in functions for node in ast.walk(one) if isinstance(node, ast.ImportFrom)}
        opened.update(imports(list(inside), False))
    assert opened.total() <= 20
    assert {room: count for room, count in opened.items() if count > 2 and room not in CORE} == {}


RUN = """
import runpy, sys
sys.argv = ["methods/mc3kd.py", "--variant", "mc3kd", "--budget", "smoke", "--out-dir", sys.argv[1], "--device", "cpu"]
runpy.run_path("methods/mc3kd.py", run_name="__main__")
print("\\nLOADED", *(name.removeprefix("common.") for name in sys.modules if name.startswith("common.")))
"""


def test_a_pocket_task_loads_no_room(tmp_path: Path) -> None:
    """But that of the shipped teachers, whose weights are packed; a longer run keeps the teacher's outputs, too."""
    done = subprocess.run([sys.executable, "-c", RUN, tmp_path], env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, cwd=ROOT,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert set(loaded) - CORE == {"layers.packed"}
