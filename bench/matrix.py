"""A matrix of runs: rows x tasks x seeds, read from a short TOML file, as command lines of the scripts.

    tasks = ["pocket/cola", "pocket/rte"]        # keys that are not named below are arguments of every script
    seeds = [0, 1, 2]
    budget = "6400"

    [[rows]]
    method = "mc3kd"                             # methods/mc3kd.py; further keys are arguments of this script
    student = "2x128"
    variant = "finetune,kd,mc3kd"

    [[rows]]
    method = "cka"
    name = "cka-narrow"                          # where results go: OUT/<name>/...; default: the method
    student = "2x32"
    tasks = ["pocket/rte"]                       # a row may have tasks and seeds of its own

`out` is where everything goes, by default runs/ and the file's name. Paths are relative to the repository's root, from
where the commands are run.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from common import results
from common.args import BadInput, CommonArgs, dashed, read

OWN = ("task", "seed", "out_dir", "resume", "force")  # arguments that the bench sets


def methods() -> list[str]:
    return sorted(path.stem for path in (results.ROOT / "methods").glob("*.py"))


@dataclass(frozen=True)
class Job:
    """One command: the variants of a row on a task with a seed. Each of its results is a cell of the table."""

    row: str
    method: str
    task: str
    seed: int
    words: tuple[str, ...]  # the command, from the script's name on
    args: CommonArgs
    alone: str = ""  # the variant, where it was split off a command for several

    @property
    def name(self) -> str:
        return f"{self.row} {self.task} seed {self.seed} {self.alone}".rstrip()

    @property
    def key(self) -> str:
        """The name of its log and its note."""
        return re.sub(r"[^\w.-]", "-", self.name)

    @property
    def teacher(self) -> tuple[Any, ...]:
        """What decides the fine-tuned teacher, so far as the arguments tell: such jobs share one."""
        a = self.args
        return (self.task, a.teacher, a.data_dir, a.limit, a.max_length, a.batch_size, a.teacher_epochs, a.teacher_lr)

    def one_by_one(self) -> list[Job]:
        """The same with one command for each variant; none where there is but one."""
        if len(self.args.variants) < 2:
            return []
        at = self.words.index("--variant") + 1
        return [
            replace(
                self,
                words=(*self.words[:at], variant, *self.words[at + 1 :]),
                args=replace(self.args, variant=variant),
                alone=variant,
            )
            for variant in self.args.variants
        ]


@dataclass(frozen=True)
class Matrix:
    name: str
    out: Path
    jobs: list[Job]


def read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from error


def place_of(path: Path) -> Path:
    """Where the results of a file go."""
    return results.ROOT / str(read_file(path).get("out", f"runs/{path.stem}"))


def load(path: Path, changes: dict[str, Any], out: str | None = None) -> Matrix:
    """The matrix of a file, with some of its top-level keys replaced; `BadInput` names what is wrong with it."""
    return build(read_file(path) | changes, path.stem, out, str(path))


def build(raw: dict[str, Any], name: str, out: str | None, where: str) -> Matrix:
    """The matrix of a table as TOML has it; `where` is named in errors."""
    common = dict(raw)
    rows = common.pop("rows", None)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{where}: needs [[rows]], each with a method")
    place = Path(out or common.pop("out", f"runs/{name}"))
    common.pop("out", None)
    jobs: dict[str, list[Job]] = {}
    for row in rows:
        method = row.get("method")
        if method not in methods():
            raise BadInput(f"{where}: method {method!r}: must be one of {', '.join(methods())}")
        label = row.get("name", method)
        if not isinstance(label, str) or not re.fullmatch(r"[\w.-]+", label):
            raise BadInput(f"{where}: name {label!r}: must be letters, digits, '.', '_' and '-'")
        if label in jobs:
            raise BadInput(f"{where}: two rows are called {label}; give one another name")
        try:
            merged = common | {key: value for key, value in row.items() if key not in ("method", "name")}
            jobs[label] = jobs_of(label, method, merged, place)
        except BadInput as error:
            raise BadInput(f"{where}, row {label}: {error}") from error
    return Matrix(name, results.ROOT / place, [job for some in jobs.values() for job in some])


def jobs_of(label: str, method: str, table: dict[str, Any], out: Path) -> list[Job]:
    tasks, seeds = listed(table, "tasks", str), listed(table, "seeds", int)
    Args = importlib.import_module(f"methods.{method}").Args
    known = {field.name for field in fields(Args)} - set(OWN)
    words: list[str] = []
    for key, value in ({"variant": Args().variant, "cache_dir": "runs/cache"} | table).items():
        if key in ("tasks", "seeds"):
            continue
        if (name := key.replace("-", "_")) not in known:
            raise BadInput(f"{key}: no argument of methods/{method}.py that may be given here")
        if isinstance(value, dict):
            raise BadInput(f"{key}: must be one value")
        words += [f"--{dashed(name)}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    found = []
    for task in tasks:
        for seed in seeds:
            own = ["--task", task, "--seed", str(seed), *words, "--out-dir", str(out / label), "--resume"]
            args = read(Args, None, own)
            if len(args.tasks) != 1:
                raise BadInput(f"tasks: {task!r} must be one task")
            found.append(Job(label, method, task, seed, (f"methods/{method}.py", *own), args))
    return found


def listed(table: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A list of distinct values of one type, not empty."""
    values: Any = table.get(key)
    right = isinstance(values, list) and values and all(type(value) is kind for value in values)
    if not right or len(set(values)) < len(values):
        raise BadInput(f"{key} = {values!r}: must be a list of one or more different {kind.__name__} values")
    return values
