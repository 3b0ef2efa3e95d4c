"""What a file asks for: its rows, their commands, and the values of the arguments that are tuned.

bench/run.py shows the form of a file, bench/sweep.py that of its trials.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib
import importlib.util
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import FOLDER, dashed, reading
from common import results
from common.args import BadInput, CommonArgs, check_field, parse_model, read, split_list, split_paths
from common.folders import find_files
from common.tasks import Columns, Task, check_task, is_data_set
from common.values import expanded

MATRICES = results.ROOT / "bench" / "matrices"
SCRIPTS = ("methods", "bench/baselines")  # folders whose scripts a file names without a path
OF_ROW = ("method", "name", "tune", "weight", "late")  # keys of a row that are no arguments
BEYOND = 2  # values of an argument that may be added at each end of those that a file has
SET_HERE = ("task", "seed", "out_dir", "force")  # arguments that no file may set


# --- methods -------------------------------------------------------------------------------------------------


def methods() -> list[str]:
    """The scripts under methods/ and bench/baselines/."""
    paths = [path for folder in SCRIPTS for path in (results.ROOT / folder).glob("*.py")]
    return sorted(path.stem for path in paths if is_method(path))


@functools.cache
def is_method(path: Path) -> bool:
    """Whether a file has what every method's script has: its arguments, a class `Args`, and a function `main`."""
    text = path.read_text(encoding="utf-8")
    return "\nclass Args(" in text and "\ndef main(" in text


def script_of(method: Any) -> str:
    """`"mc3kd"` -> `"methods/mc3kd.py"`; the path of a script elsewhere stays. `BadInput` if neither is a method."""
    places = [f"{folder}/{method}.py" for folder in SCRIPTS]
    path = next((place for place in places if file_of(place).is_file()), str(method))
    if not path.endswith(".py") or not file_of(path).is_file() or not is_method(file_of(path)):
        raise BadInput(f"method {method!r}: must be one of {', '.join(methods())}, or the path of another script")
    return path


def file_of(script: str) -> Path:
    """Where a script lies: ours, or one that is kept elsewhere."""
    return ours if (ours := results.ROOT / script).is_file() else results.HOME / script


def module_of(script: str) -> Any:
    """The script as a module."""
    if script.startswith(SCRIPTS) and (results.ROOT / script).is_file():
        package = __name__.removesuffix("bench.matrix")
        return importlib.import_module(package + script.removesuffix(".py").replace("/", "."))
    # by its path: a script may be called as a module is, or another script
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", script), file_of(script))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))  # dataclasses look there
    spec.loader.exec_module(module)
    return module


# --- the matrix ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One command, whose results are cells of the table: a variant of a row on a task with a seed."""

    row: str
    task: str
    seed: int
    words: tuple[str, ...]  # the command, from the script's name on
    args: CommonArgs
    part: str = ""  # the variant, where the row has several; the trial of a sweep
    data: str | None = None  # a digest of the files that the task is read from, where they are one's own
    rank: tuple[int, ...] = ()  # in the order of running, before the seed

    @property
    def name(self) -> str:
        return f"{self.row} {self.task} seed {self.seed} {self.part}".rstrip()

    @property
    def key(self) -> str:
        """The name of its log and its note, without the place of a file on this machine."""
        path = Path(self.task)
        task = f"{path.name}-{results.digest([self.task])[:6]}" if path.is_absolute() else self.task
        return re.sub(r"[^\w.-]", "-", replace(self, task=task).name)

    @property
    def teacher(self) -> tuple[Any, ...]:
        """What decides the fine-tuned teacher, so far as the arguments tell: such jobs share one."""
        a = self.args
        return (self.task, a.teacher, a.data_dir, a.limit, a.max_length, a.batch_size, a.teacher_epochs)

    @functools.cached_property
    def asked(self) -> str:
        """A digest of the script's name, the variant and the settings, but for the seed, that are not the script's
        defaults: an option more or less, or another folder, does not change it, a later version of the training or of
        the variant's loss does."""
        default = type(self.args)().settings()
        others = {key: value for key, value in self.args.settings().items() if key != "seed" and value != default[key]}
        others |= self.args.versions(self.args.variant)
        method, version = Path(self.words[0]).stem, results.TRAINING_VERSION
        return results.digest([method, self.args.variant, others, *range(1, version)])[:12]

    @property
    def fingerprint(self) -> str:
        """Of the task's data, which are loaded for it, once for all jobs."""
        return fingerprint(self.task, tuple(self.args.source.items()))


@functools.cache
def fingerprint(task: str, source: tuple[tuple[str, Any], ...]) -> str:
    from common import data  # which imports torch

    return data.load(task, **dict(source)).fingerprint


@dataclass(frozen=True)
class Matrix:
    out: Path
    jobs: list[Job]
    said: str = ""  # where the values of tuned arguments are from
    # told of each command that has ended, and whether well: what is to be run then
    more: Callable[[Job, bool], list[Job]] = lambda _job, _well: []


def place(path: Path) -> str:
    """What a file's trials call it, wherever the repository lies."""
    full = path.resolve()
    return str(full.relative_to(results.ROOT) if full.is_relative_to(results.ROOT) else full)


def path_of(what: str) -> Path | None:
    """The file of a matrix, from its name, bench/matrices/NAME.toml, or its path; None for what is neither."""
    if (known := MATRICES / f"{what}.toml").is_file():
        return known
    return Path(what) if what.endswith(".toml") else None


def read_file(path: Path, part: Path | None = None) -> dict[str, Any]:
    """A file as a table. `trials` in it is the path of the file whose trials are its rows': the file itself, or with
    `of` and no [tune] the other one. `part`: which file needs this one, its whole."""
    with reading(path, "TOML") as text:
        table = tomllib.loads(text)
    own = {"trials": place(path)}
    if "of" not in table:
        return own | table
    if part is not None:
        raise BadInput(f"{part}: of: {path} is a part of another file itself; name that one")
    whole = read_file(results.HOME / (path_of(str(table["of"])) or str(table["of"])), path)
    rows = named(whole, f"{path}: {table['of']}")
    names = table.get("rows", list(rows))
    names = names if isinstance(names, list) else [names]
    if wrong := [name for name in names if name not in list(rows)]:
        raise BadInput(f"{path}: rows: {table['of']} has no {wrong[0]!r}; it has {', '.join(rows)}")
    for key in ("out", *["budget", "budgets"] * bool({"budget", "budgets"} & table.keys())):
        whole.pop(key, None)
    return whole | (own if "tune" in table else {}) | table | {"rows": [rows[name] for name in names]}


def chosen(option: str, text: str, known: Iterable[str], where: str) -> list[str]:
    """What an option names, with commas; `BadInput` for a name that is not known."""
    known, wanted = list(known), split_list(text)
    if wrong := [name for name in wanted if name not in known]:
        raise BadInput(f"{option} {wrong[0]}: {where} has {', '.join(known)}")
    return wanted


def named(table: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by what they are called: their name, or their script's."""
    rows = table.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{where}: needs [[rows]], each with a method")
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = str(row.get("name", Path(str(row.get("method"))).stem))
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise BadInput(f"{where}: name {name!r}: must be letters, digits, '_', and behind the first '.' and '-'")
        if name in found:
            raise BadInput(f"{where}: two rows are called {name}; give one another `name`")
        found[name] = row
    return found


def out_of(path: Path, given: str | None = None) -> str:
    """Where the results of a file go: `--out`, or what it says, or its name. `BadInput` for where a script that is
    called alone leaves its own: a table of the folder would be without these."""
    table, runs = read_file(path), results.HOME / "runs"
    out = given or str(table.get("out", f"runs/{path.stem}"))
    scripts = [*methods(), *(Path(str(row.get("method"))).stem for row in named(table, str(path)).values())]
    if (results.HOME / out).resolve() in (runs, *(runs / script for script in scripts)):
        raise BadInput(f"{path}: its results would go to {out}, where scripts leave theirs; give another `out`, or"
                       f" --out runs/{path.stem}-table")  # fmt: skip
    return out


class Entry(NamedTuple):
    """A row of a file."""

    where: str
    label: str
    script: str
    table: dict[str, Any]  # its arguments
    grid: dict[str, list[Any]]  # the values of those that are tuned
    weight: dict[str, list[Any]]  # three values of one argument, which is tuned after them
    late: bool  # whether it is run when all others are done, at the first budget alone

    @property
    def middle(self) -> dict[str, Any]:
        """What the weight is while the grid is tried."""
        return {name: values[1] for name, values in self.weight.items()}

    def reach(self, name: str) -> list[Any]:
        """The values that an argument may win with: those of the file; of the rate and the weight, by size, if they are
        three or more up to `BEYOND` beyond each end, by the factor between the two before, so far as the script takes
        them."""
        values = (self.grid | self.weight).get(name, [])
        if name not in ("lr", *self.weight):
            return values
        values = sorted(values)
        rules = {field.name: field.metadata for field in fields(module_of(self.script).Args)}
        for end in (0, -1) * (BEYOND if len(values) > 2 else 0):
            last, before = values[end], values[1 if end == 0 else -2]
            with contextlib.suppress(BadInput):
                value = float(f"{last * last / before:.4g}")
                check_field(name, value, rules[name])
                values = sorted({*values, int(value) if value.is_integer() else value})
        return values


def rows_of(table: dict[str, Any], where: str) -> list[Entry]:
    """The rows of a table as TOML has it; `where` is named in errors, and the file that the rows are from."""
    where += f", of {table['of']}" if "of" in table else ""
    tune = table["tune"] if isinstance(table.get("tune"), dict) else {}  # else it is the scripts' argument
    apart = {"rows", "of", "out", "trials", "pairs"} | ({"tune"} if tune else set())
    common = {key: value for key, value in table.items() if key not in apart}
    tried = {key: value for key, value in tune.items() if isinstance(value, list) and key not in ("seeds", "tasks")}
    rows = []
    for label, row in named(table, where).items():
        merged = common | {key: value for key, value in row.items() if key not in OF_ROW}
        with within(f"{where}, row {label}"):
            own = row.get("tune", {})
            grid = tried | own if isinstance(own, dict) else {"tune": own}
            weight = row.get("weight", {}) if tune else {}
            if wrong := [name for name, values in grid.items() if not isinstance(values, list | tuple) or not values]:
                raise BadInput(f"tune: {wrong[0]}: must be a list of values to try")
            if twice := set(grid) & set(merged):
                raise BadInput(f"{min(twice)}: is tuned, and cannot be given as well")
            reported, held = merged.get("seeds"), tune.get("seeds")
            both = [seed for seed in reported if seed in held] if type(reported) is type(held) is list else []
            if both:
                raise BadInput(f"seeds: {both[0]} is a seed of the trials, which are tuned on")
            if len(weight) > 1 or any(type(values) is not list or len(values) != 3 for values in weight.values()):
                raise BadInput(f"weight = {row['weight']!r}: must be one argument with three values to try")
            for name, values in ({"lr": grid.get("lr", [])} | weight).items():
                if not all(type(value) in (int, float) for value in values) or len({*values}) < len(values):
                    raise BadInput(f"{name} = {values!r}: must be different numbers, without quotes")
            for name, (_, value, _) in weight.items():
                if merged.get(name, value) != value:
                    raise BadInput(f"weight: {name}: the row has {merged[name]}, which must stand in the middle")
            script, late = script_of(row.get("method")), bool(row.get("late", False))
            rows.append(Entry(f"{where}, row {label}", label, script, merged, grid, weight, late))
    return rows


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Say of a `BadInput` where the file has it."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


NOTHING_TRIED: dict[str, Any] = {"metrics": {}, "comparable": {}, "rows": {}}


def trials_path(table: dict[str, Any]) -> Path:
    """Where a file's trials are kept: beside the results here, in runs/ where the package is installed."""
    here = FOLDER if results.HOME == results.ROOT else results.HOME / "runs"
    return here / f"{Path(table['trials']).stem}_trials.json"


def trials(table: dict[str, Any]) -> dict[str, Any]:
    """What `python -m bench sweep` has written for a file; without rows if it has no [tune], or nothing was tried."""
    if not isinstance(table.get("tune"), dict):
        return NOTHING_TRIED
    path = trials_path(table)
    if not path.exists():
        path = FOLDER / path.name  # what is shipped
    if not path.exists():
        return NOTHING_TRIED
    with reading(path, "trials of `python -m bench sweep`") as text:
        kept = json.loads(text)
        if kept["file"] != table["trials"]:
            raise BadInput(f"{path}: has the trials of {kept['file']}; give {table['trials']} another name")
        for row in kept["rows"].values():
            row["winner"], row["trials"]
        return NOTHING_TRIED | kept


def build(table: dict[str, Any], out: str, where: str) -> Matrix:
    """The matrix of a table as TOML has it; `where` is named in errors."""
    found, tuned = trials(table)["rows"], isinstance(table.get("tune"), dict)
    jobs: list[Job] = []
    without = []
    for row in rows_of(table, where):
        asked, tried = row.table.get("tasks"), found.get(row.label)
        on_all = tried and isinstance(asked, list) and all(set(asked) <= set(one["scores"]) for one in tried["trials"])
        point = (on_all and tried["winner"]) or {}
        if wrong := [name for name, value in point.items() if value not in row.reach(name)]:
            raise BadInput(f"{row.where}: its trials had another {wrong[0]}; run them again with `sweep`")
        without += [] if point else [row.label]
        jobs += jobs_of(row, row.table | point, Path(out) / row.label)
    said = ""
    if tuned:
        said = f"rows have the values that have won the trials of bench/results/{trials_path(table).name}"
        if without:
            said += f"; without trials on all of their tasks, and with their scripts' defaults: {', '.join(without)}"
    return Matrix(results.HOME / out, jobs, said)


def jobs_of(row: Entry, table: dict[str, Any], folder: Path, point: dict[str, Any] | None = None) -> list[Job]:
    """The commands of a row with these arguments, one for each budget, task, seed and variant, whose results go into
    `folder`; `point`: of a trial, the values that it tries. All rows come before those that are `late`, and the first
    budget before the second."""
    with within(row.where):
        Args = module_of(row.script).Args
        table = {"variant": Args().variant, "cache_dir": "runs/cache"} | table | (point or {})
        tasks, seeds = listed(table, "tasks", str), listed(table, "seeds", int)
        known = {one.name for one in fields(Args)} - set(SET_HERE)
        if {"budget", "budgets"} <= set(table):
            raise BadInput("budgets: there is a budget as well")
        budgets = listed(table, "budgets", int) if "budgets" in table else []
        if row.late:
            budgets = budgets[:1]
        given: dict[str, str] = {}
        for name, value in table.items():
            if name in ("tasks", "seeds", "budgets"):
                continue
            if name not in known:
                raise BadInput(f"{name}: no argument of {row.script} that may be given here")
            if isinstance(value, dict):
                raise BadInput(f"{name}: must be one value")
            given[name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        jobs, variants = [], split_list(given["variant"]) or [""]
        for task in tasks:
            found = check_task(task, given.get("data_dir"), Columns.of(given))
            if not found.kind.among(Args.KINDS):
                print(f"left out: {row.label} on {task}, which is {found.kind};"
                      f" {row.script} does {', '.join(Args.KINDS or ())}", file=sys.stderr)  # fmt: skip
                continue
            # the library's parser is slow, and mostly only the seed differs
            parsed: dict[tuple[str, ...], tuple[Any, str | None]] = {}
            for (rung, budget), seed, variant in itertools.product(enumerate(budgets or [None]), seeds, variants):
                own = given | {"variant": variant} | ({"budget": str(budget)} if budget else {})
                own = {name: matching(value, task, seed) for name, value in own.items()}
                words = [word for name, value in own.items() for word in (f"--{dashed(name)}", value)]
                command = ["--task", task, "--seed", str(seed), *words, "--out-dir", str(folder)]
                if (values := tuple(own.values())) not in parsed:
                    parsed[values] = read(Args, None, command), digest(task, found, own)
                args, data = parsed[values]
                args = replace(args, seed=seed)
                args.check()
                parts = [words_of(point or {}), variant if len(variants) > 1 else "", f"of {budget}" if budget else ""]
                jobs.append(Job(row.label, task, seed, (row.script, *command), args, " ".join(filter(None, parts)),
                                data, (int(row.late), rung)))  # fmt: skip
        return jobs


def matching(value: str, task: str, seed: int) -> str:
    """A value for this task and seed; a pattern that one path of the repository matches is that path."""
    value = value.replace("{task}", task).replace("{seed}", str(seed))
    found = glob.glob(value, root_dir=results.HOME) if "*" in value else []
    return found[0] if len(found) == 1 else value


def digest(name: str, task: Task, given: dict[str, str]) -> str | None:
    """Of the files of one's own that are read: a task's, a teacher's outputs, a corpus, models in folders; None of what
    does not change."""
    if "data_dir" in given:
        places = list(find_files(task, given["data_dir"]).values())
    else:
        places = [expanded(name)] if is_data_set(name) else []
    places += [Path(given["teacher_outputs"])] if "teacher_outputs" in given else []
    corpora = split_paths(",".join(given.get(key, "") for key in ("corpus", "convert_corpus")))
    places += [Path(name) for name in corpora if Path(name).is_file()]
    named = [given.get(key, "") for key in ("teacher", "init", "pool", "pretraining_teacher")]
    folders = [Path(parse_model(model)[0]) for model in split_paths(",".join(named))]
    files: list[Path] = []
    for place in places + [folder for folder in folders if (folder / "config.json").is_file()]:
        if place.is_dir():
            files += sorted(place.rglob("*"))
        else:  # of a split in parts the name is a pattern
            files += [place] if place.is_file() else sorted(place.parent.glob(place.name))
    stamped = tuple((file, file.stat().st_mtime_ns) for file in files if file.is_file())
    return digest_of(stamped) if stamped else None


@functools.cache
def digest_of(stamped: tuple[tuple[Path, int], ...]) -> str:
    """Of files and when they were last written: read once for all rows."""
    total = hashlib.sha256()
    for place, _ in stamped:
        with place.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


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
