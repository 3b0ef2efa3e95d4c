"""A search over the grid that a method declares, the same number of trials for every variant.

    python -m bench sweep mc3kd --variants kd,mc3kd --trials 12 --task pocket/rte    # arguments of the script follow
    python -m bench sweep mc3kd --variants mc3kd --task rte --data-dir data/glue --teacher weights/minilm

A trial is one point of the paper's grid (`grid` in the method's file), drawn without replacement in an order that
`--draw` decides, run with `--tune`: scored on dev of pocket tasks, on a tenth of the training split held out of real
ones, never on the split that results are reported on. Every variant has the same number of trials: `--trials`, or as
many as the smallest of their grids has points. Finished trials are not repeated. The points are printed as the
arguments to run them with, the best first.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import matrix
from bench.cli import Parser
from common import metrics, results
from common.args import dashed, fail, parse, run, split_list
from common.data import task_of
from common.errors import BadInput


def points(grid: dict[str, tuple[Any, ...]], trials: int, draw: int) -> list[dict[str, Any]]:
    """`trials` points of the grid; all of them if there are fewer."""
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    random.Random(draw).shuffle(every)
    return every[:trials]


def sweep(name: str, args: Any, variant: str, trials: int, draw: int) -> list[tuple[float, dict[str, Any]]]:
    """(score, point) of every trial of a variant of the method `name`, best first."""
    method, found = importlib.import_module(f"methods.{name}"), []
    for point in points(method.grid(args, variant), trials, draw):
        label = ",".join(f"{key}={value}" for key, value in point.items())
        cache = args.cache_dir or f"{args.out_dir}/cache"
        trial = replace(args, variant=variant, tune=True, resume=True, cache_dir=cache,
                        out_dir=f"{args.out_dir}/sweep/{variant}/{label}", **point)  # fmt: skip
        trial.check()
        method.main(trial)
        (path,) = Path(trial.out_dir, name, args.tasks[0]).glob(f"*/seed{args.seed}/result.json")
        found.append((results.load(path)["primary"]["value"], point))
    return sorted(found, key=lambda row: -row[0])


def search(options: Any, args: Any) -> None:
    """Sweep every variant, and print its points."""
    method, variants = importlib.import_module(f"methods.{options.method}"), split_list(options.variants)
    trials = min(len(points(method.grid(args, variant), options.trials, options.draw)) for variant in variants)
    for variant in variants:
        rows = sweep(options.method, args, variant, trials, options.draw)
        title = metrics.TITLES[metrics.primary(task_of(args.tasks[0]))]
        print(f"\n{variant} on {args.task}, {len(rows)} trials, {title} on the tuning split")
        for score, point in rows:
            print(f"  {100 * score:6.2f}  " + " ".join(f"--{dashed(name)} {value}" for name, value in point.items()))


def main(argv: list[str]) -> None:
    parser = Parser("sweep", __doc__)
    parser.add_argument("method", choices=matrix.methods(), help="a script under methods/")
    parser.add_argument("--variants", required=True, help="comma-separated variants of the method")
    parser.add_argument("--trials", type=int, default=12, help="points of the grid per variant")
    parser.add_argument("--draw", type=int, default=0, help="seed of the order in which points are drawn")
    options, rest = parser.parse_known_args(argv)
    method = importlib.import_module(f"methods.{options.method}")
    if options.trials < 1:
        fail(BadInput(f"--trials {options.trials}: must be 1 or more"))
    names = split_list(options.variants)
    if wrong := [name for name in names if name not in method.VARIANTS] or ([] if names else [options.variants]):
        fail(BadInput(f"--variants {wrong[0]!r}: must be one or several of {', '.join(method.VARIANTS)}"))
    args = parse(method.Args, method.__doc__, rest)
    if len(args.tasks) != 1:
        fail(BadInput(f"--task {args.task}: a sweep is over one task"))
    run(functools.partial(search, options), args)
