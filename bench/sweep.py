"""Trials: what every row of a file is best run with, by scores that are not reported.

    python -m bench sweep arena                                           # the rows of a file with [tune]
    python -m bench sweep mc3kd --variants kd,mc3kd --trials 12 --task pocket/rte    # a paper's grid; arguments follow
    python -m bench sweep mc3kd --variants kd --task rte --teacher MODEL --engine ray  # on a cluster (bench/cluster.py)

The file:

    [tune]
    seeds = [100, 101]               # none of those that are reported
    lr = [2.5e-4, 5e-4, 1e-3]        # a list: what every row tries

    [[rows]]                         # of one variant
    name = "mc3kd"
    method = "mc3kd"
    variant = "mc3kd"
    tune = { lr = [1e-3, 2e-3] }     # what this one tries in its place, or besides
    weight = { beta = [0.3, 1, 3] }  # one argument, tuned at the rate that has won; the script's default in the middle

A trial is a point, one command for each task and seed, with `--tune`: scored on dev where results are of a test split,
else on a tenth of the training split, never on the split that results are reported on. [tune] may have arguments of all
trials, such as a smaller budget; without, it is the file's, the first of several. A winner has the best mean over tasks
and seeds. A rate that wins at an end of its list adds one beyond it, half or twice as large, until the winner is inside
or two are added there. Then the weight's two other values are tried at the rate that has won, and likewise beyond.

bench/results/FILE_trials.json holds all trials with every score, and the winners, with which `python -m bench run FILE`
then runs the rows. It is written after each command, and what it holds is not run again, on whatever machine, if
settings and data are the same.

A script declares its grid, the paper's, as `GRID`. Each variant has the same number of trials: the points of the
smallest grid, at most 12, or `--trials`; a grid with fewer points is tried whole. The table is OUT/sweep/trials.json.
Trials run as the commands of `python -m bench run` do: several at a time, and stopped and started again the sweep goes
on.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Parser, at_least, matrix, run
from bench.run import add_engine
from bench.table import by_token
from common import evaluate, results
from common.args import BadInput, read, split_list

USUAL = 12  # trials of a variant of a script


def points(grid: dict[str, Any], trials: int | None) -> list[dict[str, Any]]:
    """The points of a grid in its order; if they are more than `trials`, so many of them, always the same."""
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    drawn = random.Random(0).sample(range(len(every)), min(len(every), trials or len(every)))
    return [every[i] for i in sorted(drawn)]


@dataclass
class Trial:
    """A point, its commands, and their scores: task -> seed -> the primary metric; None: not there yet, or failed."""

    point: dict[str, Any]
    jobs: list[matrix.Job]
    scores: dict[str, dict[str, float | None]]

    def lacking(self) -> list[matrix.Job]:
        return [job for job in self.jobs if self.scores[job.task][str(job.seed)] is None]


class Search:
    """The trials of a table's rows: what is to be run, one point after another, and what was found.

    `kept`: trials of `matrix.trials`, which are not run again where their settings and data are the same.
    """

    def __init__(self, table: dict[str, Any], out: Path, where: str, kept: dict[str, Any]) -> None:
        if not isinstance(table.get("tune"), dict) or "seeds" not in table["tune"]:
            raise BadInput(f"{where}: needs [tune] with seeds, and with lists of values to try")
        tune = table["tune"]
        given = {key: value for key, value in tune.items() if key in ("seeds", "tasks") or not isinstance(value, list)}
        self.most = given.pop("trials", None)
        if budgets := table.get("budgets"):
            given = {"budget": budgets[0]} | given
        apart = {key: value for key, value in table.items() if key != "budgets"}
        self.rows = {row.label: row for row in matrix.rows_of(apart, where)}
        self.given, self.out, self.kept = given | {"tune": True}, results.HOME / out, kept
        self.metrics: dict[str, str] = {}
        self.comparable: dict[str, str] = {}
        self.trials: dict[tuple[str, str], Trial] = {}  # of a row's point
        self.failed: set[str] = set()  # commands, of this sweep
        self.listed: set[str] = set()  # commands that were given out

    def trial(self, row: matrix.Entry, point: dict[str, Any]) -> Trial:
        """A point of a row, which is the part of its commands."""
        label = (row.label, matrix.words_of(point))
        if label not in self.trials:
            jobs = matrix.jobs_of(row, row.table | self.given, self.out / row.label, point)
            if any(job.part != label[1] for job in jobs):
                raise BadInput(f"{row.where}: variant: a row that is tuned has one")
            rank = list(self.rows).index(row.label)
            jobs = [dataclasses.replace(job, rank=(rank,)) for job in jobs]
            self.trials[label] = made = Trial(point, jobs, {})
            for job in made.jobs:
                made.scores.setdefault(job.task, {})[str(job.seed)] = self.score_kept(job)
        return self.trials[label]

    def score_kept(self, job: matrix.Job) -> float | None:
        """The score of a command in the trials that were kept, if it had the same settings and data."""
        comparable = self.kept["comparable"].get(job.task, "")
        for trial in self.kept["rows"].get(job.row, {"trials": []})["trials"]:
            value = trial["scores"].get(job.task, {}).get(str(job.seed))
            if trial.get("asked") == job.asked and value is not None and f"#{job.fingerprint}|" in comparable:
                self.metrics[job.task], self.comparable[job.task] = self.kept["metrics"][job.task], comparable
                return float(value)
        return None

    def mean(self, trial: Trial) -> float | None:
        """Of a trial over tasks and seeds; minus infinity if it has failed, None if it is not over."""
        for job in trial.lacking():
            if not (paths := run.made_by(self.out, job)):
                continue
            if len(paths) > 1:
                raise BadInput(f"{job.row}: trains {len(paths)} students at once; a tuned row trains one")
            record = by_token(results.load(self.out / paths[0]))
            self.metrics[job.task], self.comparable[job.task] = record["primary"]["name"], record["comparable"]
            trial.scores[job.task][str(job.seed)] = record["primary"]["value"]
        if lacking := trial.lacking():
            return -math.inf if all(job.key in self.failed for job in lacking) else None
        values = [value for seeds in trial.scores.values() for value in seeds.values() if value is not None]
        return statistics.fmean(values) if values else None

    def steps(self, row: matrix.Entry) -> tuple[list[Trial], dict[str, Any] | None, list[str]]:
        """A row's trials so far; its winner, None until all are over; and which of the winner's values lie at an end of
        what was tried."""
        tried = list[Trial]()

        def best_of(wanted: list[dict[str, Any]]) -> dict[str, Any] | None:
            known = [one.point for one in tried]
            tried.extend(self.trial(row, point) for point in wanted if point not in known)
            means = [mean for one in tried if (mean := self.mean(one)) is not None]
            complete = len(means) == len(tried) and max(means, default=-math.inf) > -math.inf
            return tried[means.index(max(means))].point if complete else None

        def inside(best: dict[str, Any] | None, name: str, values: list[Any]) -> dict[str, Any] | None:
            """The best, after values beyond the end at which one has won."""
            reach = row.reach(name)
            low, high = reach.index(min(values)), reach.index(max(values))
            while best is not None and best[name] in (reach[low], reach[high]):
                at = low - 1 if best[name] == reach[low] else high + 1
                if not 0 <= at < len(reach):
                    break
                low, high = min(low, at), max(high, at)
                best = best_of([best | {name: reach[at]}])
            return best

        best = best_of([point | row.middle for point in points(row.grid, self.most)])
        if set(row.grid) == {"lr"} and self.most is None:
            best = inside(best, "lr", row.grid["lr"])
        for name, values in row.weight.items():
            best = best and inside(best_of([best | {name: value} for value in values]), name, values)
        ends = {name: [one.point[name] for one in tried] for name, values in (row.grid | row.weight).items()
                if len(values) > 2 and not isinstance(values[0], str)}  # fmt: skip
        edge = [name for name, values in ends.items() if best and best[name] in (min(values), max(values))]
        return tried, best, edge

    def left(self, row: matrix.Entry) -> list[matrix.Job]:
        """The commands of a row that are to be run and were not given out yet."""
        lacking = [job for trial in self.steps(row)[0] for job in trial.lacking()]
        found = [job for job in lacking if job.key not in self.listed]
        self.listed |= {job.key for job in found}
        return found

    def first(self) -> list[matrix.Job]:
        """The commands that do not wait for the scores of others."""
        return [job for row in self.rows.values() for job in self.left(row)]

    def carry_out(
        self, jobs: list[matrix.Job], options: Any, write: Callable[[], object] = lambda: None
    ) -> list[matrix.Job]:
        """Run these trials, and a row's next ones once those before them are over; `write` follows each command.
        Returns the commands that failed."""

        def more(job: matrix.Job, well: bool) -> list[matrix.Job]:
            self.failed |= set() if well else {job.key}
            write()
            return self.left(self.rows[job.row])

        return run.carry_out(matrix.Matrix(self.out, jobs, more=more), options)

    def found(self) -> dict[str, Any]:
        """Of each row: its winner, its trials, and every score by task and seed."""
        rows: dict[str, Any] = {}
        for row in self.rows.values():
            tried, winner, edge = self.steps(row)
            trials = []
            for trial in (trial for trial in tried if trial.jobs):
                mean, asked = self.mean(trial), trial.jobs[0].asked
                mean = None if mean == -math.inf else mean
                trials.append({"point": trial.point, "asked": asked, "mean": mean, "scores": trial.scores})
            if trials:
                rows[row.label] = {"winner": winner, "at_edge": edge, "trials": trials}
        return {"metrics": self.metrics, "comparable": self.comparable, "rows": rows}


def table_of(script: str, words: list[str], variants: list[str], trials: int | None) -> tuple[dict[str, Any], str]:
    """The paper's grids of a script's variants as a table of rows, and the folder of their results."""
    method = matrix.module_of(script)
    if not method.Args.GRID:
        raise BadInput(f"{script}: declares no grid; GRID of its Args would")
    args = read(method.Args, method.__doc__, [*words, "--variant", ",".join(variants)])
    grids = {variant: args.grid(variant) for variant in variants}
    default, apart = method.Args(), {*matrix.SET_HERE, "variant", *itertools.chain(*grids.values())}
    given = {name: value for name, value in vars(args).items() if name not in apart and value != getattr(default, name)}
    rows = [{"name": variant, "method": script, "variant": variant, "tune": grids[variant]} for variant in variants]
    most = min(len(points(grid, USUAL)) for grid in grids.values())
    tune = {"seeds": [args.seed], "trials": trials or most}
    cache = args.cache_dir or f"{args.out_dir}/cache"
    table = given | {"tasks": args.tasks, "seeds": [], "cache_dir": str(Path(cache).absolute())}
    return table | {"rows": rows, "tune": tune}, str(Path(args.out_dir).absolute() / "sweep")


def show(found: dict[str, Any]) -> None:
    """The trials of every row by their mean on the tuning splits, the best first."""
    names = set(found["metrics"].values())
    title = evaluate.TITLES[names.pop()] if len(names) == 1 else "mean"
    for name, row in found["rows"].items():
        done = [trial for trial in row["trials"] if trial["mean"] is not None]
        print(f"\n{name} on {', '.join(row['trials'][0]['scores'])}, {len(done)} trials, {title} on the tuning split")
        for trial in sorted(done, key=lambda trial: (trial["point"] != row["winner"], -trial["mean"])):
            edge = ", at an edge" if trial["point"] == row["winner"] and row["at_edge"] else ""
            print(f"  {100 * trial['mean']:6.2f}  {matrix.words_of(trial['point'])}{edge}")
        if row["winner"] is None:
            print("  not complete: no winner yet")


def main(argv: list[str]) -> None:
    parser = Parser("sweep", __doc__)
    parser.add_argument("what", help="a matrix with [tune]; or a script under methods/, or the path of another")
    parser.add_argument("--variants", help="of a script: comma-separated variants")
    parser.add_argument("--trials", type=at_least(1), help="of a script: points of the grid for each variant (default:"
                        f" as many as the smallest grid has, at most {USUAL})")  # fmt: skip
    add_engine(parser)
    options, words = parser.parse_known_args(argv)
    if (path := matrix.path_of(options.what)) is not None:
        if words or options.variants or options.trials:
            unread = words[0] if words else "--variants, --trials"
            raise BadInput(f"{unread}: no such argument; what trials have stands in the file")
        table, out = matrix.read_file(path), f"{matrix.out_of(path)}/trials"
        if table["trials"] != matrix.place(path):
            raise BadInput(
                f"{options.what}: its rows have the trials of {table['of']}; sweep that, or give it a [tune]"
            )
        file, kept = matrix.trials_path(table), matrix.trials(table)
    else:
        script = matrix.script_of(options.what)
        if not options.variants:
            raise BadInput("--variants: of which variants? For example finetune,kd")
        table, out = table_of(script, words, split_list(options.variants), options.trials)
        file, kept = Path(out) / "trials.json", matrix.NOTHING_TRIED
    search = Search(table, Path(out), options.what, kept)

    def write() -> dict[str, Any]:
        found = search.found()
        results.write_json(file, {"file": table.get("trials", options.what)} | found)
        return found

    failed = search.carry_out(search.first(), options, write)
    show(write())
    print(f"\ntrials and winners: {file}")
    if failed:
        raise SystemExit(1)
