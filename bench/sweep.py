"""A search over the grid that a method declares, the same number of trials for every variant.

    python -m bench sweep mc3kd --variants kd,mc3kd --trials 12 --task pocket/rte    # arguments of the script follow
    python -m bench sweep mc3kd --variants mc3kd --task rte --data-dir data/glue --teacher weights/minilm
    python -m bench sweep mc3kd --variants kd,mc3kd --task rte --engine ray          # on a cluster (bench/cluster.py)
    python -m bench sweep efficient_attention --variants convert-distil --task rte --engine ray --search population

A trial is one point of the paper's grid (`grid` in the method's file), drawn without replacement in an order that
`--draw` decides, run with `--tune`: scored on dev of pocket tasks, on a tenth of the training split held out of real
ones, never on the split that results are reported on. Every variant has the same number of trials: `--trials`, or as
many as the smallest of their grids has points. Finished trials are not repeated. The points are printed as the
arguments to run them with, the best first.

`--search population` is population-based training (bench/tuning.py): `--trials` students whose learning rates change
on the way, each with the whole budget.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import cli, matrix
from common import metrics, results
from common.args import BadInput, dashed, fail, parse, run, split_list
from common.data import task_of

INTERVALS = 4  # of a population's training, after each of which it is compared


def points(grid: dict[str, tuple[Any, ...]], trials: int, draw: int) -> list[dict[str, Any]]:
    """`trials` points of the grid; all of them if there are fewer."""
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    random.Random(draw).shuffle(every)
    return every[:trials]


class Trial(NamedTuple):
    """A point of the grid, and the arguments of the script that belong to it."""

    point: dict[str, Any]
    args: Any


def trials_of(name: str, args: Any, variant: str, trials: int, draw: int) -> list[Trial]:
    """Those of a variant of the method `name`; `BadInput` for arguments that no script would take."""
    method, found = importlib.import_module(f"methods.{name}"), []
    for point in points(method.grid(args, variant), trials, draw):
        label = ",".join(f"{key}={value}" for key, value in point.items())
        trial = replace(args, variant=variant, tune=True, resume=True, cache_dir=cache_of(args),
                        out_dir=f"{args.out_dir}/sweep/{variant}/{label}", **point)  # fmt: skip
        trial.check()
        found.append(Trial(point, trial))
    return found


def cache_of(args: Any) -> str:
    """The cache that all trials share."""
    return str(args.cache_dir or f"{args.out_dir}/cache")


def words_of(point: dict[str, Any]) -> list[str]:
    """A point as arguments of the script."""
    return [word for name, value in point.items() for word in (f"--{dashed(name)}", str(value))]


def score_of(name: str, args: Any) -> float:
    """What the finished trial of these arguments reached, more is better."""
    (path,) = Path(args.out_dir, name, args.tasks[0]).glob(f"*/seed{args.seed}/result.json")
    return goodness(results.load(path))


def goodness(record: dict[str, Any]) -> float:
    """The primary metric, turned round where less is better."""
    primary = record["primary"]
    return float(-primary["value"] if primary["name"] == "perplexity" else primary["value"])


def sweep(name: str, args: Any, variant: str, trials: int, draw: int) -> list[tuple[float, dict[str, Any]]]:
    """(score, point) of every trial of a variant of the method `name`, best first."""
    found = []
    for trial in trials_of(name, args, variant, trials, draw):
        importlib.import_module(f"methods.{name}").main(trial.args)
        found.append((score_of(name, trial.args), trial.point))
    return sorted(found, key=lambda row: -row[0])


def search(options: Any, given: list[str], args: Any) -> None:
    """Sweep every variant, and print its points. `given` is the command line that `args` were read from."""
    method, variants = importlib.import_module(f"methods.{options.method}"), split_list(options.variants)
    trials, tuner = options.trials, None
    if options.search == "grid":
        trials = min(len(points(method.grid(args, variant), trials, options.draw)) for variant in variants)
    if options.engine == "ray":
        from bench.tuning import Tuner  # Ray is an extra

        tuner = Tuner(options, given, args)
    title = metrics.TITLES[metrics.primary(task_of(args.tasks[0]))]
    for variant in variants:
        if tuner is None:
            rows = sweep(options.method, args, variant, trials, options.draw)
        elif options.search == "grid":
            rows = tuner.grid(variant, trials_of(options.method, args, variant, trials, options.draw))
        else:
            rows = tuner.population(variant, method.grid(args, variant))
        print(f"\n{variant} on {args.task}, {len(rows)} trials, {title} on the tuning split")
        for score, point in rows:
            shown = 100 * score if title != metrics.TITLES["perplexity"] else -score
            print(f"  {shown:6.2f}  " + " ".join(words_of(point)))
    if tuner is not None and tuner.failed:
        print(f"{tuner.failed} trials have failed", file=sys.stderr)
        raise SystemExit(1)


def main(argv: list[str]) -> None:
    parser = cli.Parser("sweep", __doc__)
    parser.add_argument("method", choices=matrix.methods(), help="a script under methods/")
    parser.add_argument("--variants", required=True, help="comma-separated variants of the method")
    parser.add_argument("--trials", type=int, default=12, help="points of the grid per variant, or students")
    parser.add_argument("--draw", type=int, default=0, help="seed of the order in which points are drawn")
    parser.add_argument("--search", choices=("grid", "population"), default="grid", help="how (default: the grid)")
    parser.add_argument("--intervals", type=int, default=INTERVALS,
                        help=f"--search population: parts of the training (default: {INTERVALS})")  # fmt: skip
    cli.add_engine(parser)
    options, rest = parser.parse_known_args(argv)
    method = importlib.import_module(f"methods.{options.method}")
    try:
        check(options, method)
    except BadInput as error:
        fail(error)
    args = parse(method.Args, method.__doc__, rest)
    if len(args.tasks) != 1:
        fail(BadInput(f"--task {args.task}: a sweep is over one task"))
    if args.until is not None or args.lr_plan is not None:
        fail(BadInput("--until, --lr-plan: are of one run; --search population finds a plan"))
    run(functools.partial(search, options, rest), args)


def check(options: Any, method: Any) -> None:
    """`BadInput` for options that no sweep can have."""
    if options.trials < 1:
        raise BadInput(f"--trials {options.trials}: must be 1 or more")
    if not hasattr(method, "grid"):
        raise BadInput(f"{options.method}: declares no grid; a function `grid` in methods/{options.method}.py would")
    names = split_list(options.variants)
    if wrong := [name for name in names if name not in method.VARIANTS] or ([] if names else [options.variants]):
        raise BadInput(f"--variants {wrong[0]!r}: must be one or several of {', '.join(method.VARIANTS)}")
    cli.check_engine(options)
    if options.search == "population":
        if options.engine != "ray":
            raise BadInput("--search population: is Ray Tune's; add --engine ray")
        if options.trials < 2:
            raise BadInput(f"--trials {options.trials}: a population is 2 or more")
        if options.intervals < 2:
            raise BadInput(f"--intervals {options.intervals}: must be 2 or more, or nothing is compared on the way")
