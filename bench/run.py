"""A matrix of runs: methods x variants x tasks x seeds under one budget, each command in a process of its own.

    python -m bench run bench/quick.toml                        # bench/matrix.py describes the file
    python -m bench run bench/quick.toml --dry-run              # the commands, each with its budget
    python -m bench run bench/quick.toml --jobs 2 --seeds 0     # two at a time; a part of the file's seeds or tasks
    python -m bench run --methods mc3kd,cka --tasks pocket/rte --seeds 0,1,2 --budget 6400     # without a file
    python -m bench run bench/quick.toml --dry-run --json       # for an array of jobs elsewhere: one object a line
    python -m bench run bench/quick.toml --engine ray           # on a cluster (bench/cluster.py)

Interrupted in whatever way and started again it goes on: a finished command is not run again, an unfinished one goes
on from its checkpoint. A command that fails stops no other; its variants are then tried one by one, so that one of
them costs the table a cell and not a row. OUT/jobs/ has the log of each command and a note on how it ended. The
teacher of a task is made by the first command that needs it, while the others do something else.
Exit code: 0 if every cell is finished, 1 if some failed, 2 for wrong arguments, 130 or 143 when stopped.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from filelock import FileLock, Timeout

from bench import matrix
from bench.cli import Parser, add_engine, check_engine
from bench.matrix import Job, Matrix
from common import results
from common.args import BadInput, Interrupted, fail, interrupt, split_list

if TYPE_CHECKING:
    from bench.cluster import Cluster

PATIENCE = 60.0  # seconds that a command has to save its checkpoint when it is stopped
POLL = 0.2


# --- notes: how a command ended ------------------------------------------------------------------------------


def note_path(out: Path, job: Job) -> Path:
    return out / "jobs" / f"{job.key}.json"


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


def found_results(out: Path, job: Job) -> list[str]:
    """The result files of a command, relative to OUT."""
    folder = out / job.row / job.method / job.task
    return [str(path.relative_to(out)) for path in sorted(folder.glob(f"*/seed{job.seed}/result.json"))]


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
    log = note_path(out, job).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    more = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    if cluster is not None:
        log.unlink(missing_ok=True)
        process: Any = cluster.start(job.words, log.absolute(), more, PATIENCE)
        write_note(out, job, "running", pid=None)
        return Running(job, process, time.monotonic())
    environment = os.environ | more
    with log.open("wb") as file:
        # a session of its own: Ctrl-C reaches it through `stop` alone
        process = subprocess.Popen([sys.executable, *job.words], cwd=results.ROOT, stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=file, env=environment, start_new_session=True)  # fmt: skip
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


def default_jobs() -> int:
    """One a processor, up to four; one at a time with an accelerator."""
    import torch

    return 1 if torch.cuda.is_available() else min(4, cores())


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
    busy = {found.job.teacher for found in running}
    rows = {found.job.row for found in running}
    makers = [job for job in waiting if job.teacher not in teachers | busy]
    ready = [job for job in waiting if job.teacher in teachers]
    return next(iter([*makers, *(job for job in ready if job.row not in rows), *ready]), None)


def left(waiting: list[Job], running: list[Running], seconds: dict[str, list[float]], at_once: int) -> str:
    """The time left, from how long commands of the same row took, or any."""
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
            while len(running) < at_once and (found := next_job(waiting, running, teachers)) is not None:
                waiting.remove(found)
                running.append(start(out, found, threads, cluster))
            time.sleep(POLL)
            for ended in [r for r in running if r.process.poll() is not None]:
                running.remove(ended)
                job, took = ended.job, time.monotonic() - ended.started
                count += 1
                if ended.process.returncode == 0:
                    write_note(out, job, "done", seconds=took, results=found_results(out, job))
                    teachers.add(job.teacher)
                    seconds.setdefault(job.row, []).append(took)
                    said = f"done in {took:.0f} s"
                else:
                    said = f"FAILED ({ended.process.returncode}): {last_line(note_path(out, job).with_suffix('.log'))}"
                    write_note(out, job, "failed", seconds=took, error=said)
                    parts = job.one_by_one()
                    todo = [part for part in parts if not done(out, part)]
                    waiting, total = [*todo, *waiting], total + len(todo)
                    if not parts:
                        failed.append(job)
                print(f"[{count}/{total}] {job.name}: {said}; {left(waiting, running, seconds, at_once)}", flush=True)
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


# --- the command ---------------------------------------------------------------------------------------------


def arguments(argv: list[str]) -> tuple[Any, dict[str, Any]]:
    """The options, and the keys of the file that they replace."""
    parser = Parser("run", __doc__)
    parser.add_argument("file", nargs="?", type=Path, help="the matrix, for example bench/quick.toml")
    parser.add_argument("--methods", help="instead of a file: scripts under methods/, with commas, as they are")
    parser.add_argument("--tasks", help="tasks, with commas")
    parser.add_argument("--seeds", help="seeds, with commas (default: the file's, or 0,1,2)")
    parser.add_argument("--budget", help="examples through each student, or as in the scripts")
    parser.add_argument("--out", help="where results go (default: the file's, or runs/bench)")
    parser.add_argument("--jobs", type=int, help="commands at the same time (default: one a processor, at most 4)")
    add_engine(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their budgets, run nothing")
    parser.add_argument("--json", action="store_true", help="with --dry-run: one JSON object a line")
    options = parser.parse_args(argv)
    changes: dict[str, Any] = {}
    if options.tasks is not None:
        changes["tasks"] = split_list(options.tasks)
    if options.seeds is not None:
        seeds = split_list(options.seeds)
        if not all(seed.isdecimal() for seed in seeds):
            raise BadInput(f"--seeds {options.seeds}: must be numbers with commas, as 0,1,2")
        changes["seeds"] = [int(seed) for seed in seeds]
    if options.budget is not None:
        changes["budget"] = options.budget
    if options.jobs is not None and options.jobs < 1:
        raise BadInput(f"--jobs {options.jobs}: must be 1 or more")
    check_engine(options)
    if (options.file is None) == (options.methods is None):
        raise BadInput("give a file, for example bench/quick.toml, or --methods with --tasks")
    if options.methods is not None and options.tasks is None:
        raise BadInput(f"--methods {options.methods}: on which --tasks? For example pocket/cola,pocket/rte")
    return options, changes


def plan_of(options: Any, changes: dict[str, Any]) -> Matrix:
    if options.file is not None:
        return matrix.load(options.file, changes, options.out)
    rows = [{"method": name} for name in split_list(options.methods)]
    return matrix.build({"rows": rows, "seeds": [0, 1, 2]} | changes, "bench", options.out, "--methods")


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
    try:
        options, changes = arguments(argv)
        plan = plan_of(options, changes)
        if options.dry_run:
            return dry_run(plan, options.json)
        plan.out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(plan.out / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise BadInput(f"--out {plan.out}: another run of the bench is at work there") from None
        cluster = None
        if options.engine == "ray":
            from bench.cluster import Cluster

            cluster = Cluster(options.address, options.cpus, options.gpus)
    except BadInput as error:
        fail(error)
    at_once = options.jobs or (cluster.places if cluster else default_jobs())
    here = int(os.environ.get("OMP_NUM_THREADS", max(1, cores() // at_once)))
    threads = max(1, int(options.cpus)) if cluster else here
    before = sum(done(plan.out, job) for job in plan.jobs)
    print(f"{len(plan.jobs)} commands, {before} of them done before; {at_once} at a time, {threads} threads each")
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
        print(f"failed: {job.name}; log: {note_path(plan.out, job).with_suffix('.log')}", file=sys.stderr)
    if failed:
        raise SystemExit(1)
    print(f"all done: {plan.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
