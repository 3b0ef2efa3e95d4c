"""`python -m bench sweep --engine ray`: the trials of a sweep under Ray Tune, on a cluster (bench/cluster.py).

    python -m bench sweep mc3kd --variants kd,mc3kd --task rte --engine ray --trials 12
    python -m bench sweep efficient_attention --variants convert-distil --task rte --engine ray --search population \
        --trials 8 --intervals 4

A trial is the command of the plain sweep, with the same files: a sweep begun in one way may go on in the other. A trial
that is lost with its machine runs again elsewhere, from its checkpoint.

Population-based training (Jaderberg et al. 2017), by which the efficient-attention paper tunes for GLUE (section 4.3,
which names neither what is varied nor ranges): `--trials` students begin with learning rates drawn from between the
ends of the method's grid, on a logarithmic scale, and with other points drawn from the grid. After each of
`--intervals` parts of the training on the task all are scored on the tuning split (`--until`). Then the worst quarter
go on from checkpoints of the best quarter, with the points of these, and a learning rate that is 0.8 or 1.2 times
theirs or, one time in four, a new one. Every student passes the whole budget. What comes out is a rate that changes on
the way, printed as arguments (`--lr`, `--lr-plan`) that train the same student again in one run.

Every interval is a folder, OUT/population/<variant>-<digest>/member<i>/interval<k>. Stopped and started again, a sweep
makes the same decisions from what is finished there, and goes on. Ray's own files are not read again.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import cluster
from bench.run import PATIENCE, last_line
from bench.sweep import Trial, cache_of, goodness, words_of
from common import results
from common.args import BadInput, Interrupted, first_line

os.environ |= {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a table of every trial's results, for tools that are not used here
    "RAY_AIR_NEW_OUTPUT": "0",  # whose older form can be silent
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `Stop` is ours
}
try:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining
except ImportError:
    raise BadInput("--engine ray: needs `pip install -r requirements-cluster.txt`") from None

Config = dict[str, Any]


class Point(tune.Trainable):
    """A trial of the grid: one command. To fail, as at a rate too high, is its result; what is lost runs again."""

    def setup(self, config: Config) -> None:
        self.given = config["trial"]

    def step(self) -> dict[str, Any]:
        given = self.given
        code = cluster.command(given["words"], given["log"], given["environment"], PATIENCE)
        score = None if code else goodness(results.load(result_in(given["folder"])))
        return {"code": code, "score": score, "point": given["point"], "log": given["log"], "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the script knows how far it has come."""


class Member(tune.Trainable):
    """A student of a population; a step is one interval of its training.

    `base`: the --lr it began with; `plan`: the changes since, as [share, factor]; `done`: intervals; `place`: the
    folder of the last one.
    """

    def setup(self, config: Config) -> None:
        self.given = config["trial"]
        self.base, self.done, self.place = self.given["lr"], 0, ""
        self.plan: list[list[float]] = []

    def step(self) -> dict[str, Any]:
        given, code = self.given, 0
        factor = float(f"{given['lr'] / self.base:.4g}")
        if factor != (self.plan[-1][1] if self.plan else 1.0):
            self.plan.append([self.done / given["intervals"], factor])
        point = given["point"] | {"lr": self.base}
        if self.plan:
            point["lr_plan"] = ",".join(f"{share}:{factor}" for share, factor in self.plan)
        number = int(self.trial_id.rpartition("_")[2])
        here = Path(given["folder"], f"member{number}", f"interval{self.done + 1}")
        inherit(here, {"point": point, "from": self.place})
        self.done, self.place = self.done + 1, str(here)
        last = self.done == given["intervals"]
        name, log = "result.json" if last else "part.json", str(here / "log.txt")
        if not any(here.rglob(name)):
            words = [*given["words"], *words_of(point), "--out-dir", str(here)]
            words += [] if last else ["--until", str(self.done / given["intervals"])]
            code = cluster.command(words, log, given["environment"], PATIENCE)
        score = -math.inf if code else goodness(results.load(result_in(here, name)))
        shown = {"member": number, "interval": self.done, "point": point, "log": log}
        return shown | {"code": code, "score": score, "done": last}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        state = {"base": self.base, "plan": self.plan, "done": self.done, "place": self.place}
        results.write_json(Path(checkpoint_dir, "member.json"), state)

    def reset_config(self, new_config: Config) -> bool:
        """Be another one."""
        self.setup(new_config)
        return True

    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override]
        state = json.loads(Path(checkpoint_dir, "member.json").read_text(encoding="utf-8"))
        self.base, self.plan, self.done, self.place = (state[key] for key in ("base", "plan", "done", "place"))


def result_in(folder: str | Path, name: str = "result.json") -> Path:
    (path,) = Path(folder).rglob(name)
    return path


def inherit(here: Path, origin: dict[str, Any]) -> None:
    """Make the folder of an interval: a copy of the one it goes on from. One that is there already is kept, finished or
    not, if it has come about in the same way."""
    note = here / "origin.json"
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) == origin:
        return
    partial = here.with_suffix(".partial")
    for folder in (here, partial):
        shutil.rmtree(folder, ignore_errors=True)
    if origin["from"]:
        shutil.copytree(origin["from"], partial, ignore=shutil.ignore_patterns("part.json", "log.txt"))
    partial.mkdir(parents=True, exist_ok=True)
    results.write_json(partial / note.name, origin)
    partial.rename(here)


class Population(PopulationBasedTraining):
    """Ray Tune's, whose random decisions after an interval are a function of the seed and the interval."""

    def __init__(self, draw: int, low: float, high: float) -> None:
        rates = {"lr": lambda: math.exp(random.uniform(math.log(low), math.log(high)))}
        super().__init__(time_attr="interval", perturbation_interval=1, hyperparam_mutations={"trial": rates},
                         synch=True, metric="score", mode="max", log_config=False)  # fmt: skip
        self.draw = draw

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        random.seed(f"{self.draw}/{result['interval']}")
        return str(super().on_trial_result(tune_controller, trial, result))


class Progress(tune.Callback):
    """A line for every result."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.count = label, total, 0

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any],
                        **info: Any) -> None:  # fmt: skip
        self.count += 1
        who = f"member {result['member']} interval {result['interval']}: " if "member" in result else ""
        said = f"FAILED ({result['code']}): {last_line(Path(result['log']))}"
        if not result["code"]:
            said = f"{abs(result['score']):.4f}"
        point = " ".join(words_of(result["point"]))
        print(f"[{self.count}/{self.total}] {self.label} {who}{point}: {said}", flush=True)


class Stop(tune.Stopper):
    """Ends a search when a signal has come. An exception, as `common.args.interrupt` raises it, would be turned into
    another one, or be lost, inside of Ray's own code."""

    number: int | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return Stop.number is not None


def note(number: int, _frame: object) -> None:
    Stop.number = number


class Tuner:
    """The two searches of a sweep on a cluster. `given`: the command line of the script that `args` were read from."""

    def __init__(self, options: Any, given: list[str], args: Any) -> None:
        self.options, self.given, self.args = options, given, args
        self.failed = 0
        self.cluster = cluster.Cluster(options.address, options.cpus, options.gpus)
        threads = {"OMP_NUM_THREADS": str(max(1, int(options.cpus))), "PYTHONUNBUFFERED": "1"}
        cache_dir = str(Path(cache_of(args)).absolute())
        words = [f"methods/{options.method}.py", *given, "--tune", "--resume", "--cache-dir", cache_dir]
        self.common: Config = {"environment": threads, "words": words}

    def grid(self, variant: str, trials: list[Trial]) -> list[tuple[float, Config]]:
        """(score, point) of every trial that did not fail, best first."""
        configs = []
        for trial in trials:
            folder = str(Path(trial.args.out_dir).absolute())
            words = [*self.common["words"], "--variant", variant, *words_of(trial.point), "--out-dir", folder]
            own = {"point": trial.point, "words": words, "folder": folder, "log": f"{folder}/log.txt"}
            configs.append(self.common | own)
        return self.fit(Point, variant, len(trials), configs)

    def population(self, variant: str, grid: dict[str, tuple[Any, ...]]) -> list[tuple[float, Config]]:
        """Likewise of the students of a population, whose points are those they have come to."""
        from common import cache  # with all libraries, which what runs elsewhere can do without

        options, rng = self.options, random.Random(self.options.draw)
        low, high = min(grid["lr"]), max(grid["lr"])
        recipe = {"given": self.given, "trials": options.trials, "intervals": options.intervals, "draw": options.draw}
        folder = Path(self.args.out_dir).absolute() / "population" / f"{variant}-{cache.key(recipe)}"
        own = {"intervals": options.intervals, "folder": str(folder)}
        own["words"] = [*self.common["words"], "--variant", variant]
        configs = []
        for _ in range(options.trials):
            lr = float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")
            point = {name: rng.choice(values) for name, values in grid.items() if name != "lr"}
            replace(self.args, variant=variant, tune=True, resume=True, until=0.5, lr=lr, **point).check()
            configs.append(self.common | own | {"lr": lr, "point": point})
        scheduler = Population(options.draw, low, high)
        return self.fit(Member, variant, options.trials * options.intervals, configs, scheduler)

    def fit(
        self, kind: type, label: str, total: int, configs: list[Config], scheduler: Any = None
    ) -> list[tuple[float, Config]]:
        """Run a trial of each configuration. `BadInput` if Ray has given one up."""
        from common.run import hold

        storage = Path(self.args.out_dir).absolute() / "sweep" / "ray"
        storage.mkdir(parents=True, exist_ok=True)
        hold(storage.parent)
        shutil.rmtree(storage / label, ignore_errors=True)
        checkpoints = tune.CheckpointConfig(checkpoint_frequency=1)
        run = tune.RunConfig(name=label, storage_path=str(storage), verbose=0, checkpoint_config=checkpoints,
                             failure_config=tune.FailureConfig(max_failures=cluster.RETRIES),
                             callbacks=[Progress(label, total)], stop=Stop())  # fmt: skip
        how = tune.TuneConfig(scheduler=scheduler, trial_dirname_creator=lambda trial: str(trial.trial_id),
                              reuse_actors=scheduler is not None)  # fmt: skip
        trainable = tune.with_resources(kind, {"cpu": self.options.cpus, "gpu": self.options.gpus})
        space = {"trial": tune.grid_search(configs)}
        tuner = tune.Tuner(trainable, param_space=space, tune_config=how, run_config=run)
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            found = tuner.fit()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if Stop.number is not None:
            raise Interrupted(Stop.number)
        if found.errors:
            lost = first_line(found.errors[0])
            raise BadInput(f"{label}: {len(found.errors)} trials were lost {cluster.RETRIES} times; the first: {lost}")
        shutil.rmtree(storage, ignore_errors=True)
        ended = [found[i].metrics or {} for i in range(len(found))]
        self.failed += sum(row["code"] != 0 for row in ended)
        return sorted(((row["score"], row["point"]) for row in ended if not row["code"]), key=lambda row: -row[0])
