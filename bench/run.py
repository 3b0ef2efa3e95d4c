"""A matrix of runs: methods x variants x tasks x seeds under one budget, each command in a process of its own.

    python -m bench run quick
    python -m bench run quick --dry-run              # the commands, for an array of jobs elsewhere
    python -m bench run quick --jobs 2 --seeds 0     # two at a time; a part of the file's seeds or tasks
    python -m bench run quick --engine ray           # on a cluster (bench/cluster.py)

The file:

    tasks = ["pocket/cola", "pocket/rte"]        # keys that are not named below are arguments of every script
    seeds = [0, 1, 2]
    budget = "6400"                              # or budgets = [12800, 6400]: the first is reported, and tuned at

    [[rows]]
    method = "mc3kd"                             # methods/mc3kd.py, or one of bench/baselines/; the rest is its own
    student = "2x128"
    variant = "finetune,kd,mc3kd"

    [[rows]]
    method = "my/loss.py"                        # a script that is kept elsewhere
    name = "dist-narrow"                         # where results go: OUT/<name>/...; default: the script's name
    student = "2x64"
    tasks = ["pocket/rte"]                       # a row may have tasks and seeds of its own
    late = true                                  # after all others, and of several budgets at the first alone

`out` is where everything goes, by default runs/ and the file's name. Paths are relative to the repository. Tasks of a
kind that a row's method does not do are left out, with a line. With [tune] in the file, rows have the values that have
won the trials of `python -m bench sweep FILE` (bench/sweep.py). A file with `of = "arena"` starts from that file: its
own keys replace that one's, `rows` chooses rows by name, and without a [tune] of its own that one's trials count.
`pairs` are differences of rows, "A - B": results that `bench table FILE --save FILE` keeps then have a table FILE for a
page (docs/contributing.md), with all rows and these. A row can go on from another file's runs: in
`init = "runs/other/a-row/xtc/{task}/*/*/seed{seed}"` task and seed are the cell's, and a pattern is the path that it
matches.

Interrupted in whatever way and started again it goes on: a finished command is not run again, unless files of your own
that it reads have changed; an unfinished one goes on from its checkpoint. A command trains one student, a cell of the
table, or several, as with `bits = "32,1"`; one that fails stops no other. OUT/jobs/ has the log of each command and a
note on how it ended. The teacher of a task is made by the first command that needs it; others wait for it. Commands
are forked from one process that has the libraries, and the pocket tasks, ready.
Exit code: 0 if every cell is finished, 1 if some failed, 2 for wrong arguments, 130 or 143 when stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import runpy
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from bench import Parser, at_least
from bench.matrix import Job, Matrix, build, chosen, file_of, named, out_of, path_of, read_file
from common import results
from common.args import BadInput, Interrupted, split_list

if TYPE_CHECKING:
    from bench.cluster import Cluster

PATIENCE = 60.0  # seconds that a command has to save its checkpoint when it is stopped
POLL = 0.05
# Commands are forked from a process that has imported bench/preload.py; where that is not safe, each starts anew
PRELOAD = [f"{__package__}.preload"]
START: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")


# --- notes: how a command ended ------------------------------------------------------------------------------


def log_path(out: Path, job: Job) -> Path:
    """The log of a command; its note lies beside it."""
    return out / "jobs" / f"{job.key}.log"


def log_of(out: Path, job: Job) -> list[str]:
    """The lines of a command's log that are not empty."""
    with contextlib.suppress(OSError):
        text = log_path(out, job).read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()]
    return []


def write_note(out: Path, job: Job, **how: Any) -> None:
    note = {"command": list(job.words), "data": job.data, "asked": job.asked}
    results.write_json(log_path(out, job).with_suffix(".json"), note | how)


def made_by(out: Path, job: Job) -> list[str]:
    """The results, relative to OUT, with which this very command has ended; [] if it has not, or they are gone."""
    try:
        note = json.loads(log_path(out, job).with_suffix(".json").read_text(encoding="utf-8"))
        same = [note["command"], note["data"], note["asked"]] == [list(job.words), job.data, job.asked]
        paths = note["results"] if same else []
    except (OSError, ValueError, KeyError, TypeError):  # not there, of a command that failed, or damaged
        return []
    return paths if all((out / path).is_file() for path in paths) else []


def results_of(out: Path, job: Job) -> list[str]:
    """The results that a command has named in its log, "saved: FOLDER", relative to OUT: what else lies in its folders
    was not made by this matrix."""
    saved = [line.removeprefix("saved: ") for line in log_of(out, job) if line.startswith("saved: ")]
    paths = [results.HOME / folder / "result.json" for folder in dict.fromkeys(saved)]
    return [os.path.relpath(path, out) for path in paths if path.is_file()]


def scores_of(out: Path, paths: list[str]) -> str:
    """The scores of a command's students, for its line; nothing of a result that cannot be read."""
    from common import evaluate  # which imports torch

    try:
        primary = [results.load(out / path)["primary"] for path in paths]
    except BadInput:
        return ""
    values = [f"{p['value'] * (1 if p['name'] == 'perplexity' else 100):.1f}" for p in primary]
    return f"{evaluate.TITLES[primary[0]['name']]} {', '.join(values)}, "


# --- processes -----------------------------------------------------------------------------------------------


@dataclass
class Running:
    job: Job
    process: Any  # multiprocessing.Process, or bench.cluster.Command
    started: float


def environment(jobs: list[Job], threads: int) -> dict[str, str]:
    """What commands, and the process that they are forked from, find in their environment."""
    drawn = {job.task for job in jobs if job.task.startswith("pocket/")}
    ours = str(results.ROOT) if results.HOME == results.ROOT else None  # an installed package is found without
    path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
    return {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": path, "BENCH_TASKS": ",".join(sorted(drawn))}  # fmt: skip


def command(words: tuple[str, ...], log: Path, threads: int) -> None:
    """In a new process: run a script of the repository as `python SCRIPT ...` would."""
    os.setsid()  # Ctrl-C reaches it through `stop` alone
    os.chdir(results.HOME)
    lock = FileLock(log.with_suffix(".lock"))
    lock.acquire()  # a command that has outlived its runner ends before its successor begins
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if "torch" in sys.modules:  # a fork
        sys.modules["torch"].set_num_threads(threads)
    script = str(file_of(words[0]))
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = list(words)
    runpy.run_path(script, run_name="__main__")


def start(out: Path, job: Job, threads: int, cluster: Cluster | None = None) -> Running:
    log = log_path(out, job).absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    for before in (log, log.with_suffix(".json")):
        before.unlink(missing_ok=True)
    if cluster is not None:
        process: Any = cluster.start(job.words, log, threads, PATIENCE)
    else:
        process = START.Process(target=command, args=(job.words, log, threads), name=job.key)
        process.start()
    return Running(job, process, time.monotonic())


def stop(processes: list[Any]) -> None:
    """End commands. Asked for an end, one saves a checkpoint."""
    for process in processes:
        process.terminate()
    ends = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, ends - time.monotonic()))
        process.kill()


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the schedule --------------------------------------------------------------------------------------------


def in_order(jobs: list[Job]) -> list[Job]:
    """The first command for each teacher first, so that few wait for the same one; then by rank, and seed by seed, so
    that a matrix that is stopped early has all rows."""
    first: dict[tuple[Any, ...], Job] = {}
    for job in jobs:
        first.setdefault(job.teacher, job)
    rest = [job for job in jobs if job is not first[job.teacher]]
    return [*first.values(), *sorted(rest, key=lambda job: (*job.rank, job.seed))]


def execute(plan: Matrix, at_once: int, threads: int, cluster: Cluster | None = None) -> list[Job]:
    """Run what is not done yet, here or on a cluster; returns the commands that failed."""
    out = plan.out
    waiting = in_order([job for job in plan.jobs if not made_by(out, job)])
    os.environ |= environment(waiting, threads)
    START.set_forkserver_preload(PRELOAD)
    running: list[Running] = []
    failed: list[Job] = []
    total = len(plan.jobs)
    # nothing but the lines where the output is no terminal; redrawn each second, also while no command ends
    bar = tqdm(total=total, initial=total - len(waiting), unit="command", disable=None, leave=False, miniters=0,
               mininterval=1.0)  # fmt: skip
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(start(out, waiting.pop(0), threads, cluster))
            time.sleep(POLL)
            bar.update(0)
            for ended in [r for r in running if r.process.exitcode is not None]:
                running.remove(ended)
                job, took = ended.job, time.monotonic() - ended.started
                paths = [] if ended.process.exitcode else results_of(out, job)
                if paths:
                    write_note(out, job, seconds=took, results=paths)
                    said = f"{scores_of(out, paths)}done in {took:.0f} s"
                else:
                    lines = log_of(out, job) or ["no output"]
                    last = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1])
                    said = f"FAILED ({ended.process.exitcode}): {last}"
                    write_note(out, job, seconds=took, error=said)
                    failed.append(job)
                further = plan.more(job, bool(paths))
                waiting, total = in_order(waiting + further), total + len(further)
                with tqdm.external_write_mode():
                    print(f"[{total - len(waiting) - len(running)}/{total}] {job.name}: {said}", flush=True)
                bar.total = total
                bar.update()
    except Interrupted:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        alive = [one.process for one in running if one.process.exitcode is None]
        stop(alive) if cluster is None else cluster.stop(alive, PATIENCE)
        raise
    finally:
        bar.close()
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
    if cluster:
        at_once, threads = options.jobs or cluster.places, max(1, int(options.cpus))
    else:
        import torch

        at_once = options.jobs or (1 if torch.cuda.is_available() else min(4, cores()))
        threads = int(os.environ.get("OMP_NUM_THREADS", max(1, cores() // at_once)))
    before = sum(bool(made_by(plan.out, job)) for job in plan.jobs)
    print(f"{len(plan.jobs)} commands, {before} of them done before; {at_once} at a time, {threads} threads each",
          flush=True)  # fmt: skip
    if plan.said:
        print(plan.said, flush=True)
    results.write_json(plan.out / "matrix.json", {job.key: job.asked for job in plan.jobs})
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


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where commands run."""
    some, any_ = at_least(0, float, above=True), at_least(0, float)
    parser.add_argument("--jobs", type=at_least(1),
                        help="commands at the same time (default: one a processor, at most 4; 1 with a GPU; on a"
                        " cluster as many as have room)")  # fmt: skip
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="here, or on a Ray cluster")
    parser.add_argument("--address", default="auto", help="--engine ray: of the cluster (default: the one found here)")
    parser.add_argument("--cpus", type=some, default=1.0,
                        help="--engine ray: processors of a command (default: 1)")  # fmt: skip
    parser.add_argument("--gpus", type=any_, default=0.0, help="--engine ray: GPUs of a command (default: 0)")


def seeds_of(text: str) -> list[int]:
    """What `--seeds` says."""
    seeds = split_list(text)
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise BadInput(f"--seeds {text}: must be numbers with commas, as 0,1,2")
    return list(map(int, seeds))


def plan_of(argv: list[str]) -> tuple[Matrix, Any]:
    """The matrix that a command line asks for, and the options."""
    parser = Parser("run", __doc__)
    parser.add_argument("file", help="the matrix: a name of bench/matrices/, for example quick, or a file")
    parser.add_argument("--rows", help="rows, with commas (default: the file's)")
    parser.add_argument("--tasks", help="those of the rows' tasks, with commas (default: all)")
    parser.add_argument("--seeds", help="seeds, with commas (default: the file's)")
    parser.add_argument("--budget", help="examples through each student, or as in the scripts (default: the file's)")
    parser.add_argument("--kept", type=Path, help="leave out the cells that this file of `table --save` has")
    parser.add_argument("--out", help="where results go (default: the file's, or runs/ and its name)")
    add_engine(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their budgets, run nothing")
    options = parser.parse_args(argv)
    path = path_of(options.file) or Path(options.file)
    table, changes = read_file(path), dict[str, Any]()
    if options.rows is not None:
        rows = named(table, options.file)
        table["rows"] = [rows[name] for name in chosen("--rows", options.rows, rows, options.file)]
    if options.budget is not None:
        ladder = [budget for budget in table.pop("budgets", []) if str(budget) == options.budget]
        changes = {"budgets": ladder} if ladder else {"budget": options.budget}
    if options.seeds is not None:
        changes["seeds"] = seeds_of(options.seeds)
    plan = build(table | changes, out_of(path, options.out), options.file)
    if options.tasks is not None:
        only = chosen("--tasks", options.tasks, sorted({job.task for job in plan.jobs}), options.file)
        plan = dataclasses.replace(plan, jobs=[job for job in plan.jobs if job.task in only])
    if options.kept is not None:
        from bench import records  # which imports torch

        kept, _ = records.opened(options.kept)
        cells = {(one["row"], one["task"], one["seed"], one.get("asked")): one["fingerprint"] for one in kept}
        there = [cells.get((job.row, job.task, job.seed, job.asked)) for job in plan.jobs]
        left = [job for job, data in zip(plan.jobs, there, strict=True) if data is None or data != job.fingerprint]
        plan = dataclasses.replace(plan, jobs=left)
    return plan, options


def main(argv: list[str]) -> None:
    plan, options = plan_of(argv)
    if options.dry_run:
        lines = [f"{shlex.join(['python', *job.words])}  # budget {job.args.budget}" for job in plan.jobs]
        rows = len({job.row for job in plan.jobs})
        return print(*lines, f"# {len(lines)} commands in {rows} rows; results under {plan.out}", sep="\n")
    if carry_out(plan, options):
        raise SystemExit(1)
    print(f"all done: {plan.out}")
