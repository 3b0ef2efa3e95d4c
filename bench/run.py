"""A matrix of runs: methods x variants x tasks x seeds under one budget, each command in a process of its own.

    python -m bench run bench/quick.toml
    python -m bench run bench/quick.toml --dry-run              # the commands, each with its budget
    python -m bench run bench/quick.toml --jobs 2 --seeds 0     # two at a time; a part of the file's seeds or tasks
    python -m bench run --methods mc3kd,cka --tasks pocket/rte --seeds 0,1,2 --budget 6400     # without a file
    python -m bench run bench/quick.toml --dry-run --json       # for an array of jobs elsewhere: one object a line
    python -m bench run bench/quick.toml --engine ray           # on a cluster (bench/cluster.py)

The file:

    tasks = ["pocket/cola", "pocket/rte"]        # keys that are not named below are arguments of every script
    seeds = [0, 1, 2]
    budget = "6400"

    [[rows]]
    method = "mc3kd"                             # methods/mc3kd.py; further keys are arguments of this script
    student = "2x128"
    variant = "finetune,kd,mc3kd"

    [[rows]]
    method = "docs/dist.py"                      # a script that is kept elsewhere
    name = "dist-narrow"                         # where results go: OUT/<name>/...; default: the script's name
    student = "2x64"
    tasks = ["pocket/rte"]                       # a row may have tasks and seeds of its own

`out` is where everything goes, by default runs/ and the file's name. Paths are relative to the repository. Tasks of a
kind that a row's method does not do are left out, with a line.

Interrupted in whatever way and started again it goes on: a finished command is not run again, an unfinished one goes
on from its checkpoint. A command that fails stops no other; its variants are then tried one by one, so that one of
them costs the table a cell and not a row. OUT/jobs/ has the log of each command and a note on how it ended. The
teacher of a task is made by the first command that needs it, while the others do something else.
Exit code: 0 if every cell is finished, 1 if some failed, 2 for wrong arguments, 130 or 143 when stopped.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from filelock import FileLock, Timeout

from bench.cli import Parser, add_engine, check_engine, dashed
from common import results
from common.args import BadInput, CommonArgs, Interrupted, interrupt, read, split_list
from common.tasks import check_name

if TYPE_CHECKING:
    from bench.cluster import Cluster

PATIENCE = 60.0  # seconds that a command has to save its checkpoint when it is stopped
POLL = 0.2
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
    part: str = ""  # the variant, where it was split off a command for several; the point of a sweep

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


def read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from error


def out_of(path: Path) -> str:
    """Where the results of a file go."""
    return str(read_file(path).get("out", f"runs/{path.stem}"))


def build(table: dict[str, Any], out: str, where: str) -> Matrix:
    """The matrix of a table as TOML has it; `where` is named in errors."""
    common = {key: value for key, value in table.items() if key not in ("rows", "out")}
    rows = table.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{where}: needs [[rows]], each with a method")
    jobs: dict[str, list[Job]] = {}
    for row in rows:
        label = row.get("name", Path(str(row.get("method"))).stem)
        if not isinstance(label, str) or not re.fullmatch(r"[\w.-]+", label):
            raise BadInput(f"{where}: name {label!r}: must be letters, digits, '.', '_' and '-'")
        if label in jobs:
            raise BadInput(f"{where}: two rows are called {label}; give one another name")
        try:
            merged = common | {key: value for key, value in row.items() if key not in ("method", "name")}
            jobs[label] = jobs_of(label, script_of(row.get("method")), merged, Path(out))
        except BadInput as error:
            raise BadInput(f"{where}, row {label}: {error}") from error
    return Matrix(results.ROOT / out, [job for some in jobs.values() for job in some])


def jobs_of(label: str, script: str, table: dict[str, Any], out: Path) -> list[Job]:
    tasks, seeds = listed(table, "tasks", str), listed(table, "seeds", int)
    Args = module_of(script).Args
    known = {field.name for field in fields(Args)} - set(SET_HERE)
    words: list[str] = []
    for key, value in ({"variant": Args().variant, "cache_dir": "runs/cache"} | table).items():
        if key in ("tasks", "seeds"):
            continue
        if (name := key.replace("-", "_")) not in known:
            raise BadInput(f"{key}: no argument of {script} that may be given here")
        if isinstance(value, dict):
            raise BadInput(f"{key}: must be one value")
        words += [f"--{dashed(name)}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    jobs = []
    for task in tasks:
        if Args.KINDS is not None and (kind := check_name(task, table.get("data_dir")).kind) not in Args.KINDS:
            print(f"left out: {label} on {task}, which is {kind}; {script} does {', '.join(Args.KINDS)}",
                  file=sys.stderr)  # fmt: skip
            continue
        for seed in seeds:
            command = ["--task", task, "--seed", str(seed), *words, "--out-dir", str(out / label), "--resume"]
            args = read(Args, None, command)
            if len(args.tasks) != 1:
                raise BadInput(f"tasks: {task!r} must be one task")
            jobs.append(Job(label, task, seed, (script, *command), args))
    return jobs


def listed(table: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A list of distinct values of one type, not empty."""
    values: Any = table.get(key)
    right = isinstance(values, list) and values and all(type(value) is kind for value in values)
    if not right or len(set(values)) < len(values):
        raise BadInput(f"{key} = {values!r}: must be a list of one or more different {kind.__name__} values")
    return values


# --- notes: how a command ended ------------------------------------------------------------------------------


def note_path(out: Path, job: Job) -> Path:
    return out / "jobs" / f"{job.key}.json"


def log_path(out: Path, job: Job) -> Path:
    return out / "jobs" / f"{job.key}.log"


def read_note(out: Path, job: Job) -> dict[str, Any]:
    """The note of this very command; {} if there is none or it is damaged."""
    try:
        note = json.loads(note_path(out, job).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) and note.get("command") == list(job.words) else {}


def write_note(out: Path, job: Job, status: str, **more: Any) -> None:
    note = {"row": job.row, "task": job.task, "seed": job.seed, "variants": job.args.variants, "status": status}
    results.write_json(note_path(out, job), note | {"command": list(job.words)} | more)


def done(out: Path, job: Job) -> bool:
    """Whether the command ended well and its results are still there."""
    note = read_note(out, job)
    return note.get("status") == "done" and all((out / path).is_file() for path in note["results"])


def result_paths(out: Path, job: Job) -> list[str]:
    """The results that a command has named in its log, "saved: FOLDER", relative to OUT. They are the job's cells:
    what else lies in its folders was not made by this matrix."""
    text = log_path(out, job).read_text(encoding="utf-8", errors="replace")
    folders = (results.ROOT / line.removeprefix("saved: ") for line in text.splitlines() if line.startswith("saved: "))
    return [os.path.relpath(folder / "result.json", out) for folder in folders if (folder / "result.json").is_file()]


def last_line(log: Path) -> str:
    """What a command said last."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "no output")


# --- processes -----------------------------------------------------------------------------------------------


@dataclass
class Running:
    job: Job
    process: Any  # subprocess.Popen, or bench.cluster.Command
    started: float


def start(out: Path, job: Job, threads: int, cluster: Cluster | None = None) -> Running:
    log = log_path(out, job)
    log.parent.mkdir(parents=True, exist_ok=True)
    more = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    if cluster is not None:
        log.unlink(missing_ok=True)
        process: Any = cluster.start(job.words, log.absolute(), more, PATIENCE)
    else:
        with log.open("wb") as file:
            # a session of its own: Ctrl-C reaches it through `stop` alone
            process = subprocess.Popen([sys.executable, *job.words], cwd=results.ROOT, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file, env=os.environ | more,
                                       start_new_session=True)  # fmt: skip
    write_note(out, job, "running", pid=process.pid)
    return Running(job, process, time.monotonic())


def stop(processes: list[psutil.Process]) -> None:
    """Ask for an end, which saves a checkpoint, and wait for it."""
    for process in processes:
        process.terminate()
    _, alive = psutil.wait_procs(processes, PATIENCE)
    for process in alive:
        process.kill()


def stop_orphans(out: Path, jobs: list[Job]) -> None:
    """End commands that outlived a killed runner: two processes must not write one run."""
    orphans = []
    for job in jobs:
        note = read_note(out, job)
        if note.get("status") == "running" and note["pid"] is not None:  # Ray ends what a lost runner has started
            try:
                process = psutil.Process(note["pid"])
                if process.cmdline()[1:] == list(job.words):
                    orphans.append(process)
            except psutil.Error:
                continue
    stop(orphans)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the schedule --------------------------------------------------------------------------------------------


def in_order(jobs: list[Job]) -> list[Job]:
    """The first command for each teacher first, so that no two wait for the same one; then seed by seed, so that a
    matrix that is stopped early has all rows."""
    first: dict[tuple[Any, ...], Job] = {}
    for job in jobs:
        first.setdefault(job.teacher, job)
    rest = [job for job in jobs if job is not first[job.teacher]]
    return [*first.values(), *sorted(rest, key=lambda job: job.seed)]


def next_job(waiting: list[Job], running: list[Running], teachers: set[tuple[Any, ...]]) -> Job | None:
    """A command for a teacher that nobody makes yet; else one whose teacher is ready, of another row than those that
    run, if there is one: commands of a row may share more than the teacher."""
    busy = {other.job.teacher for other in running}
    rows = {other.job.row for other in running}
    makers = [job for job in waiting if job.teacher not in teachers | busy]
    ready = [job for job in waiting if job.teacher in teachers]
    return next(iter([*makers, *(job for job in ready if job.row not in rows), *ready]), None)


def time_left(waiting: list[Job], running: list[Running], seconds: dict[str, list[float]], at_once: int) -> str:
    """From how long commands of the same row took, or any."""
    every = [value for values in seconds.values() for value in values]
    if not every:
        return "time left unknown"

    def expected(job: Job) -> float:
        return statistics.median(seconds.get(job.row) or every)

    now = time.monotonic()
    total = sum(map(expected, waiting)) + sum(max(0.0, expected(r.job) - (now - r.started)) for r in running)
    return f"about {total / at_once / 60:.0f} min left"


def execute(plan: Matrix, at_once: int, threads: int, cluster: Cluster | None = None) -> list[Job]:
    """Run what is not done yet, here or on a cluster; returns the commands that failed."""
    out = plan.out
    stop_orphans(out, [part for job in plan.jobs for part in (job, *job.one_by_one())])
    finished = [job for job in plan.jobs if done(out, job)]
    waiting = in_order([job for job in plan.jobs if job not in finished])
    teachers = {job.teacher for job in finished}
    seconds: dict[str, list[float]] = {}
    for job in finished:
        seconds.setdefault(job.row, []).append(read_note(out, job)["seconds"])
    total, count = len(plan.jobs), len(finished)
    running: list[Running] = []
    failed: list[Job] = []
    try:
        while waiting or running:
            while len(running) < at_once and (chosen := next_job(waiting, running, teachers)) is not None:
                waiting.remove(chosen)
                running.append(start(out, chosen, threads, cluster))
            time.sleep(POLL)
            for ended in [r for r in running if r.process.poll() is not None]:
                running.remove(ended)
                job, took = ended.job, time.monotonic() - ended.started
                count += 1
                if ended.process.returncode == 0:
                    write_note(out, job, "done", seconds=took, results=result_paths(out, job))
                    teachers.add(job.teacher)
                    seconds.setdefault(job.row, []).append(took)
                    said = f"done in {took:.0f} s"
                else:
                    said = f"FAILED ({ended.process.returncode}): {last_line(log_path(out, job))}"
                    write_note(out, job, "failed", seconds=took, error=said)
                    parts = job.one_by_one()
                    todo = [part for part in parts if not done(out, part)]
                    waiting, total = [*todo, *waiting], total + len(todo)
                    failed += [] if parts else [job]
                left = time_left(waiting, running, seconds, at_once)
                print(f"[{count}/{total}] {job.name}: {said}; {left}", flush=True)
    except Interrupted:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        alive = [r.process for r in running if r.process.poll() is None]
        if cluster is not None:
            cluster.stop(alive, PATIENCE)
        else:
            stop([psutil.Process(process.pid) for process in alive])
        raise
    return failed


def carry_out(plan: Matrix, options: Any) -> list[Job]:
    """Run a matrix, or a sweep, as `--engine` and `--jobs` say, alone in its folder; returns what failed."""
    cluster = None
    if options.engine == "ray":
        from bench.cluster import Cluster

        cluster = Cluster(options.address, options.cpus, options.gpus)
    plan.out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(plan.out / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BadInput(f"{plan.out}: another run of the bench is at work there") from None
    import torch

    here = 1 if torch.cuda.is_available() else min(4, cores())
    at_once = options.jobs or (cluster.places if cluster else here)
    threads = int(os.environ.get("OMP_NUM_THREADS", max(1, cores() // at_once)))
    threads = max(1, int(options.cpus)) if cluster else threads
    before = sum(done(plan.out, job) for job in plan.jobs)
    print(f"{len(plan.jobs)} commands, {before} of them done before; {at_once} at a time, {threads} threads each",
          flush=True)  # fmt: skip
    results.write_json(plan.out / "matrix.json", [job.key for job in plan.jobs])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        failed = execute(plan, at_once, threads, cluster)
    except Interrupted as stopped:
        print(f"\nstopped by {signal.Signals(stopped.number).name}; the same command goes on", file=sys.stderr)
        raise SystemExit(128 + stopped.number) from None
    finally:
        lock.release()
    for job in failed:
        print(f"failed: {job.name}; log: {log_path(plan.out, job)}", file=sys.stderr)
    return failed


# --- the command ---------------------------------------------------------------------------------------------


def plan_of(argv: list[str]) -> tuple[Matrix, Any]:
    """The matrix that a command line asks for, and the options."""
    parser = Parser("run", __doc__)
    parser.add_argument("file", nargs="?", type=Path, help="the matrix, for example bench/quick.toml")
    parser.add_argument("--methods", help="instead of a file: scripts under methods/, with commas, as they are")
    parser.add_argument("--tasks", help="tasks, with commas")
    parser.add_argument("--seeds", help="seeds, with commas (default: the file's, or 0,1,2)")
    parser.add_argument("--budget", help="examples through each student, or as in the scripts")
    parser.add_argument("--out", help="where results go (default: the file's, or runs/bench)")
    add_engine(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their budgets, run nothing")
    parser.add_argument("--json", action="store_true", help="with --dry-run: one JSON object a line")
    options = parser.parse_args(argv)
    check_engine(options)
    changes: dict[str, Any] = {} if options.budget is None else {"budget": options.budget}
    if options.tasks is not None:
        changes["tasks"] = split_list(options.tasks)
    if options.seeds is not None:
        seeds = split_list(options.seeds)
        if not all(seed.isdecimal() for seed in seeds):
            raise BadInput(f"--seeds {options.seeds}: must be numbers with commas, as 0,1,2")
        changes["seeds"] = [int(seed) for seed in seeds]
    if (options.file is None) == (options.methods is None):
        raise BadInput("give a file, for example bench/quick.toml, or --methods with --tasks")
    if options.file is not None:
        table = read_file(options.file) | changes
        return build(table, options.out or out_of(options.file), str(options.file)), options
    if options.tasks is None:
        raise BadInput(f"--methods {options.methods}: on which --tasks? For example pocket/cola,pocket/rte")
    rows = [{"method": name} for name in split_list(options.methods)]
    return build({"rows": rows, "seeds": [0, 1, 2]} | changes, options.out or "runs/bench", "--methods"), options


def dry_run(plan: Matrix, as_json: bool) -> None:
    for job in plan.jobs:
        if as_json:
            record: dict[str, Any] = {"name": job.name, "command": ["python", *job.words], "budget": job.args.budget}
            record |= {"row": job.row, "task": job.task, "seed": job.seed, "variants": job.args.variants}
            print(json.dumps(record))
        else:
            print(f"{shlex.join(['python', *job.words])}  # budget {job.args.budget} for each student")
    if not as_json:
        rows = len({job.row for job in plan.jobs})
        print(f"# {len(plan.jobs)} commands in {rows} rows; results under {plan.out}")


def main(argv: list[str]) -> None:
    plan, options = plan_of(argv)
    if options.dry_run:
        return dry_run(plan, options.json)
    if carry_out(plan, options):
        raise SystemExit(1)
    print(f"all done: {plan.out}")
