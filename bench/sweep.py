"""A search over the grid that a method declares, the same number of trials for every variant.

    python -m bench sweep mc3kd --variants kd,mc3kd --trials 12 --task pocket/rte    # arguments of the script follow
    python -m bench sweep mc3kd --variants mc3kd --task rte --data-dir data/glue --teacher weights/minilm
    python -m bench sweep mc3kd --variants kd,mc3kd --task rte --engine ray          # on a cluster (bench/cluster.py)

A trial is one point of the paper's grid (`grid` in the method's file), drawn without replacement in an order that
`--draw` decides, run with `--tune`: scored on dev of pocket tasks, on a tenth of the training split held out of real
ones, never on the split that results are reported on. Every variant has the same number of trials: `--trials`, or as
many as the smallest of their grids has points. Trials run as the commands of `python -m bench run` do: several at a
time, and stopped and started again the sweep goes on. The points are printed as the arguments to run them with, the
best first.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import run
from bench.cli import Parser, add_engine, check_engine, dashed
from common import evaluate, results
from common.args import BadInput, read, split_list


def points(grid: dict[str, tuple[Any, ...]], trials: int, draw: int) -> list[dict[str, Any]]:
    """`trials` points of the grid; all of them if there are fewer."""
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    random.Random(draw).shuffle(every)
    return every[:trials]


def words_of(point: dict[str, Any]) -> list[str]:
    """A point as arguments of the script."""
    return [word for name, value in point.items() for word in (f"--{dashed(name)}", str(value))]


def plan_of(script: str, words: list[str], args: Any, variants: list[str], trials: int, draw: int) -> run.Matrix:
    """The trials as jobs, whose row is the variant and whose part is the point. `words`: the command line of `args`."""
    grid = run.module_of(script).grid
    trials = min(len(points(grid(args, variant), trials, draw)) for variant in variants)
    out = Path(args.out_dir).absolute() / "sweep"
    words = [*words, "--cache-dir", str(Path(args.cache_dir or f"{args.out_dir}/cache").absolute())]
    jobs = []
    for variant in variants:
        for point in points(grid(args, variant), trials, draw):
            trial = replace(args, variant=variant, tune=True, resume=True, **point)
            trial.check()
            label = ",".join(f"{key}={value}" for key, value in point.items())
            command = [*words, "--tune", "--resume", "--variant", variant, *words_of(point)]
            command += ["--out-dir", str(out / variant / label)]
            jobs.append(
                run.Job(variant, args.tasks[0], args.seed, (script, *command), trial, " ".join(words_of(point)))
            )
    return run.Matrix(out, jobs)


def show(plan: run.Matrix) -> None:
    """The points of every variant by their score on the tuning split, the best first."""
    for variant in dict.fromkeys(job.row for job in plan.jobs):
        rows, title = [], ""
        finished = [job for job in plan.jobs if job.row == variant and run.done(plan.out, job)]
        for job in finished:
            (path,) = run.read_note(plan.out, job)["results"]
            primary = results.load(plan.out / path)["primary"]
            title = evaluate.TITLES[primary["name"]]
            better = primary["value"] if primary["name"] == "perplexity" else -primary["value"]
            shown = primary["value"] if primary["name"] == "perplexity" else 100 * primary["value"]
            rows.append((better, f"  {shown:6.2f}  {job.part}"))
        print(f"\n{variant} on {plan.jobs[0].task}, {len(rows)} trials, {title} on the tuning split")
        print("\n".join(line for _, line in sorted(rows)))


def main(argv: list[str]) -> None:
    parser = Parser("sweep", __doc__)
    parser.add_argument("method", help="a script under methods/, or the path of another")
    parser.add_argument("--variants", required=True, help="comma-separated variants of the method")
    parser.add_argument("--trials", type=int, default=12, help="points of the grid for each variant")
    parser.add_argument("--draw", type=int, default=0, help="seed of the order in which points are drawn")
    add_engine(parser)
    options, words = parser.parse_known_args(argv)
    check_engine(options)
    if options.trials < 1:
        raise BadInput(f"--trials {options.trials}: must be 1 or more")
    script, names = run.script_of(options.method), split_list(options.variants)
    method = run.module_of(script)
    if not hasattr(method, "grid"):
        raise BadInput(f"{options.method}: declares no grid; a function `grid` in {script} would")
    args = read(method.Args, method.__doc__, [*words, "--variant", options.variants])
    if len(args.tasks) != 1:
        raise BadInput(f"--task {args.task}: a sweep is over one task")
    plan = plan_of(script, words, args, names, options.trials, options.draw)
    failed = run.carry_out(plan, options)
    show(plan)
    if failed:
        raise SystemExit(1)
