"""Trials: what every row of a file is best run with, by scores that are not reported.

    python -m bench sweep bench/arena.toml                                           # the rows of a file with [tune]
    python -m bench sweep mc3kd --variants kd,mc3kd --trials 12 --task pocket/rte    # a paper's grid; arguments follow
    python -m bench sweep mc3kd --variants kd,mc3kd --task rte --engine ray          # on a cluster (bench/cluster.py)

The file:

    [tune]
    seeds = [100, 101]               # none of those that are reported
    trials = 6                       # of a row, at most
    budget = "6400"                  # arguments of all trials, in the place of the file's
    lr = [2.5e-4, 5e-4, 1e-3]        # a list: what every row tries

    [[rows]]
    name = "mc3kd"
    tune = {beta = [0.5, 1.0]}       # and what this one tries besides, or in its place

A trial is a point of that grid, one command for each task and seed, with `--tune`: scored on dev of pocket tasks, on a
tenth of the training split held out of real ones, never on the split that results are reported on. A row whose grid has
more points than `trials` tries so many of them, drawn at random. The winner is the point with the best mean over
tasks and seeds. bench/results/FILE_trials.json holds all trials and the winners, with which `python -m bench run FILE`
then runs the rows.

Of a script, the grid is the one that it declares (`grid`, the paper's). Every variant has as many trials as the
smallest of their grids has points, 12 at most; or as `--trials` says, so far as its own grid has points. The table is
OUT/sweep/trials.json. Trials run as the commands of `python -m bench run` do: several at a time, and stopped and
started again the sweep goes on.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from bench import __main__ as bench
from bench import matrix, run
from bench.cli import Parser, add_engine, check_engine
from common import evaluate, results
from common.args import BadInput, read, split_list

USUAL = 12  # trials of a variant of a script


def points(grid: dict[str, Any], trials: int | None) -> list[dict[str, Any]]:
    """The points of a grid in its order; if they are more than `trials`, so many of them, always the same."""
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    drawn = random.Random(0).sample(range(len(every)), min(len(every), trials or len(every)))
    return [every[i] for i in sorted(drawn)]


def plan_of(table: dict[str, Any], out: Path, where: str) -> matrix.Matrix:
    """The trials of a table's rows as jobs, whose part is the point."""
    if not isinstance(table.get("tune"), dict) or "seeds" not in table["tune"]:
        raise BadInput(f"{where}: needs [tune] with seeds, and with lists of values to try")
    tune = table["tune"]
    given = {key: value for key, value in tune.items() if key in ("seeds", "tasks") or not isinstance(value, list)}
    trials = given.pop("trials", None)
    if trials is not None and (type(trials) is not int or trials < 1):
        raise BadInput(f"{where}: trials = {trials!r}: must be a number, 1 or more")
    jobs = []
    for row in matrix.rows_of(table, where):
        for point in points(row.grid, trials):
            label = ",".join(f"{key}={value}" for key, value in point.items())
            trial = matrix.jobs_of(row, row.table | given | {"tune": True}, out / row.label / label, point)
            if any(job.part != matrix.words_of(point) for job in trial):
                raise BadInput(f"{row.where}: variant: a row that is tuned has one")
            jobs += trial
    return matrix.Matrix(results.ROOT / out, jobs)


def table_of(script: str, words: list[str], variants: list[str], trials: int | None) -> tuple[dict[str, Any], str]:
    """The paper's grids of a script's variants as a table of rows, and the folder of their results."""
    method = matrix.module_of(script)
    if not hasattr(method, "grid"):
        raise BadInput(f"{script}: declares no grid; a function `grid` there would")
    args = read(method.Args, method.__doc__, [*words, "--variant", ",".join(variants)])
    grids = {variant: method.grid(args, variant) for variant in variants}
    default, tuned = method.Args(), {name for grid in grids.values() for name in grid}
    given = {field.name: getattr(args, field.name) for field in fields(args)}
    given = {name: value for name, value in given.items() if value != getattr(default, name)}
    for name in {*matrix.SET_HERE, "variant", *tuned} & set(given):
        del given[name]
    rows = [{"name": variant, "method": script, "variant": variant, "tune": grids[variant]} for variant in variants]
    most = min(len(points(grid, USUAL)) for grid in grids.values())
    tune = {"seeds": [args.seed], "trials": trials or most}
    cache = args.cache_dir or f"{args.out_dir}/cache"
    table = given | {"tasks": args.tasks, "seeds": [], "cache_dir": str(Path(cache).absolute())}
    return table | {"rows": rows, "tune": tune}, str(Path(args.out_dir).absolute() / "sweep")


def scores(plan: matrix.Matrix) -> dict[str, Any]:
    """Of each row: its trials, every score by task and seed, and the winner: the best mean of all that are complete."""
    rows: dict[str, Any] = {}
    metrics = {}
    for job in plan.jobs:
        trials = rows.setdefault(job.row, {"winner": None, "trials": {}})["trials"]
        trial = trials.setdefault(job.part, {"point": job.point, "mean": None, "scores": {}})
        value = None
        if run.done(plan.out, job):
            path, *others = run.read_note(plan.out, job)["results"]
            if others:
                raise BadInput(f"{job.row}: trains {len(others) + 1} students at once; a row that is tuned trains one")
            primary = results.load(plan.out / path)["primary"]
            metrics[job.task], value = primary["name"], primary["value"]
        trial["scores"].setdefault(job.task, {})[str(job.seed)] = value
    sign = -1 if "perplexity" in metrics.values() else 1
    for row in rows.values():
        row["trials"] = list(row["trials"].values())
        for trial in row["trials"]:
            found = [value for seeds in trial["scores"].values() for value in seeds.values()]
            trial["mean"] = None if None in found else statistics.fmean(found)
        complete = [trial for trial in row["trials"] if trial["mean"] is not None]
        if complete:
            row["winner"] = max(complete, key=lambda trial: sign * trial["mean"])["point"]
    return {"metrics": metrics, "rows": rows}


def show(found: dict[str, Any]) -> None:
    """The trials of every row by their mean on the tuning splits, the best first."""
    names = set(found["metrics"].values())
    percent = 1 if "perplexity" in names else 100
    title = evaluate.TITLES[names.pop()] if len(names) == 1 else "mean"
    for name, row in found["rows"].items():
        done = [trial for trial in row["trials"] if trial["mean"] is not None]
        print(f"\n{name} on {', '.join(row['trials'][0]['scores'])}, {len(done)} trials, {title} on the tuning split")
        for trial in sorted(done, key=lambda trial: (trial["point"] != row["winner"], -trial["mean"])):
            print(f"  {percent * trial['mean']:6.2f}  {matrix.words_of(trial['point'])}")


def main(argv: list[str]) -> None:
    parser = Parser("sweep", __doc__)
    parser.add_argument("what", help="a file with [tune]; or a script under methods/, or the path of another")
    parser.add_argument("--variants", help="of a script: comma-separated variants")
    parser.add_argument("--trials", type=int, help="of a script: points of the grid for each variant (default: as many"
                        f" as the smallest grid has, at most {USUAL})")  # fmt: skip
    add_engine(parser)
    options, words = parser.parse_known_args(argv)
    check_engine(options)
    if options.trials is not None and options.trials < 1:
        raise BadInput(f"--trials {options.trials}: must be 1 or more")
    if options.what.endswith(".toml"):
        if words:
            raise BadInput(f"{words[0]}: no such argument; what trials have stands in the file")
        path = Path(options.what)
        table, out = matrix.read_file(path), f"{matrix.out_of(path)}/trials"
        file, before = matrix.trials_path(table), matrix.trials(table)
    else:
        script = matrix.script_of(options.what)
        if not options.variants:
            raise BadInput("--variants: of which variants? For example finetune,kd")
        table, out = table_of(script, words, split_list(options.variants), options.trials)
        file, before = Path(out) / "trials.json", {}
    plan = plan_of(table, Path(out), options.what)
    failed = run.carry_out(plan, options)
    found = scores(plan)
    show(found)
    if "of" in table:  # a part of a file: its other rows keep theirs
        found["rows"] = before | found["rows"]
    results.write_json(file, {"file": table.get("trials", options.what)} | found)
    print(f"\ntrials and winners: {file}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":  # `python -m bench.sweep` is the same command
    bench.main(["sweep", *sys.argv[1:]])
