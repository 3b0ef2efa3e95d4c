"""What a file asks for: its rows, their commands, and the values of the arguments that are tuned.

bench/run.py shows the form of a file, bench/sweep.py that of its trials.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.cli import FOLDER, dashed
from common import results
from common.args import BadInput, CommonArgs, read
from common.sources import check_task
from common.tasks import Columns

SET_HERE = ("task", "seed", "out_dir", "resume", "force")  # arguments that no file may set


# --- methods -------------------------------------------------------------------------------------------------


def methods() -> list[str]:
    """The scripts under methods/."""
    return sorted(path.stem for path in (results.ROOT / "methods").glob("*.py") if is_method(path))


def is_method(path: Path) -> bool:
    """Whether a file has what every method's script has: its arguments, a class `Args`, and a function `main`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {"Args", "main"} <= {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def script_of(method: Any) -> str:
    """`"mc3kd"` -> `"methods/mc3kd.py"`; the path of a script elsewhere stays. `BadInput` if neither is a method."""
    path = f"methods/{method}.py" if method in methods() else str(method)
    if not path.endswith(".py") or not (results.ROOT / path).is_file() or not is_method(results.ROOT / path):
        raise BadInput(f"method {method!r}: must be one of {', '.join(methods())}, or the path of another script")
    return path


def module_of(script: str) -> Any:
    """The script as a module."""
    if script.startswith("methods/"):
        return importlib.import_module(f"methods.{Path(script).stem}")
    spec = importlib.util.spec_from_file_location(Path(script).stem, results.ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))  # dataclasses look there
    spec.loader.exec_module(module)
    return module


# --- the matrix ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One command: the variants of a row on a task with a seed. Each of its results is a cell of the table."""

    row: str
    task: str
    seed: int
    words: tuple[str, ...]  # the command, from the script's name on
    args: CommonArgs
    part: str = ""  # the variant, where it was split off a command for several; the trial of a sweep
    point: dict[str, Any] = field(default_factory=dict)  # of a sweep: the values of the trial

    @property
    def name(self) -> str:
        return f"{self.row} {self.task} seed {self.seed} {self.part}".rstrip()

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
            replace(self, words=(*self.words[:at], variant, *self.words[at + 1 :]),
                    args=replace(self.args, variant=variant), part=variant)
            for variant in self.args.variants
        ]  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    out: Path
    jobs: list[Job]
    said: str = ""  # where the values of tuned arguments are from


def read_file(path: Path) -> dict[str, Any]:
    """A file as a table. `trials` in it is the name of the file whose trials are its rows'."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from error
    if "of" not in table:
        return {"trials": path.stem} | table
    whole = read_file(results.ROOT / str(table["of"]))
    rows = {row.get("name", row.get("method")): row for row in whole["rows"]}
    if wrong := [name for name in table.get("rows", []) if name not in rows]:
        raise BadInput(f"{path}: rows: {table['of']} has no {wrong[0]!r}; it has {', '.join(map(str, rows))}")
    whole.pop("out", None)
    del table["of"]
    return whole | table | {"rows": [rows[name] for name in table.get("rows", rows)]}


def out_of(path: Path) -> str:
    """Where the results of a file go."""
    return str(read_file(path).get("out", f"runs/{path.stem}"))


class Row(NamedTuple):
    """A row of a file: its name, its script, its arguments, and the values of those that are tuned."""

    label: str
    script: str
    table: dict[str, Any]
    grid: dict[str, list[Any]]


def rows_of(table: dict[str, Any], where: str) -> list[Row]:
    """The rows of a table as TOML has it; `where` is named in errors."""
    tune = table["tune"] if isinstance(table.get("tune"), dict) else {}  # else it is the scripts' argument
    apart = {"rows", "out", "trials"} | ({"tune"} if tune else set())
    common = plain({key: value for key, value in table.items() if key not in apart})
    tried = {key: value for key, value in tune.items() if isinstance(value, list) and key not in ("seeds", "tasks")}
    listed_rows = table.get("rows")
    if not isinstance(listed_rows, list) or not listed_rows or not all(isinstance(row, dict) for row in listed_rows):
        raise BadInput(f"{where}: needs [[rows]], each with a method")
    rows: dict[str, Row] = {}
    for row in listed_rows:
        label = row.get("name", Path(str(row.get("method"))).stem)
        if not isinstance(label, str) or not re.fullmatch(r"[\w.-]+", label):
            raise BadInput(f"{where}: name {label!r}: must be letters, digits, '.', '_' and '-'")
        if label in rows:
            raise BadInput(f"{where}: two rows are called {label}; give one another name")
        merged = common | plain({key: value for key, value in row.items() if key not in ("method", "name", "tune")})
        grid = plain(tried | row.get("tune", {}))
        try:
            if twice := set(grid) & set(merged):
                raise BadInput(f"{min(twice)}: is tuned, and cannot be given as well")
            reported = merged.get("seeds")
            if isinstance(reported, list) and (both := [seed for seed in reported if seed in tune.get("seeds", [])]):
                raise BadInput(f"seeds: {both[0]} is a seed of the trials, which are tuned on")
            rows[label] = Row(label, script_of(row.get("method")), merged, grid)
        except BadInput as error:
            raise BadInput(f"{where}, row {label}: {error}") from error
    return list(rows.values())


def plain(table: dict[str, Any]) -> dict[str, Any]:
    """With keys as the scripts' arguments are called in Python."""
    return {key.replace("-", "_"): value for key, value in table.items()}


def winners(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values with which each row has won its trials; {} for a file without [tune], or whose trials were not run."""
    path = FOLDER / f"{table.get('trials')}_trials.json"
    if not isinstance(table.get("tune"), dict) or not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {name: row["winner"] for name, row in rows.items() if row["winner"] is not None}


def build(table: dict[str, Any], out: str, where: str) -> Matrix:
    """The matrix of a table as TOML has it; `where` is named in errors."""
    tuned, jobs, without = winners(table), [], []
    for row in rows_of(table, where):
        point = tuned.get(row.label, {})
        if wrong := [name for name, value in point.items() if value not in row.grid.get(name, [])]:
            raise BadInput(f"{where}, row {row.label}: its trials had another {wrong[0]}; run them again with `sweep`")
        without += [] if point else [row.label]
        try:
            jobs += jobs_of(row.label, row.script, row.table | point, Path(out) / row.label)
        except BadInput as error:
            raise BadInput(f"{where}, row {row.label}: {error}") from error
    said = ""
    if isinstance(table.get("tune"), dict):
        said = f"rows have the values that have won the trials of bench/results/{table['trials']}_trials.json"
        said += f"; without trials, and with their scripts' defaults: {', '.join(without)}" if without else ""
    return Matrix(results.ROOT / out, jobs, said)


def jobs_of(label: str, script: str, table: dict[str, Any], folder: Path,
            point: dict[str, Any] | None = None) -> list[Job]:  # fmt: skip
    """The commands of a row, one for each of its tasks and seeds, whose results go into `folder`; `point`: of a trial,
    the values that it tries."""
    table = table | (point or {})
    tasks, seeds = listed(table, "tasks", str), listed(table, "seeds", int)
    Args = module_of(script).Args
    known = {one.name for one in fields(Args)} - set(SET_HERE)
    words: list[str] = []
    for name, value in ({"variant": Args().variant, "cache_dir": "runs/cache"} | plain(table)).items():
        if name in ("tasks", "seeds"):
            continue
        if name not in known:
            raise BadInput(f"{name}: no argument of {script} that may be given here")
        if isinstance(value, dict):
            raise BadInput(f"{name}: must be one value")
        words += [f"--{dashed(name)}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    jobs = []
    for task in tasks:
        kind = check_task(task, table.get("data_dir"), Columns.of(table)).kind
        if Args.KINDS is not None and kind not in Args.KINDS:
            print(f"left out: {label} on {task}, which is {kind}; {script} does {', '.join(Args.KINDS)}",
                  file=sys.stderr)  # fmt: skip
            continue
        for seed in seeds:
            command = ["--task", task, "--seed", str(seed), *words, "--out-dir", str(folder), "--resume"]
            args = read(Args, None, command)
            if len(args.tasks) != 1:
                raise BadInput(f"tasks: {task!r} must be one task")
            jobs.append(Job(label, task, seed, (script, *command), args, words_of(point or {}), point or {}))
    return jobs


def words_of(point: dict[str, Any]) -> str:
    """Values as arguments of a script."""
    return " ".join(f"--{dashed(name)} {value}" for name, value in point.items())


def listed(table: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A list of distinct values of one type, not empty."""
    values: Any = table.get(key)
    right = isinstance(values, list) and values and all(type(value) is kind for value in values)
    if not right or len(set(values)) < len(values):
        raise BadInput(f"{key} = {values!r}: must be a list of one or more different {kind.__name__} values")
    return values
