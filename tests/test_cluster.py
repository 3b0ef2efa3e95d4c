"""`python -m bench run` and `sweep` with `--engine ray` on a real cluster of two nodes on this machine. The scripts are
stood in for, but where it is said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ENVIRONMENT, ROOT, error_line
from test_bench_run import cells, stand_in, starts

from bench import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """A cluster's head, without places."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_health_check_timeout_ms", "2000")
        patch.setenv("RAY_health_check_period_ms", "500")
        patch.setenv("RAY_health_check_initial_delay_ms", "0")
        memory = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | memory)
        found.workers = []
        yield found
        found.shutdown()


@pytest.fixture
def nodes(head: Any) -> Iterator[Any]:
    """A cluster of two nodes of one processor each, beside the head."""
    head.workers += [head.add_node(num_cpus=1, object_store_memory=100 * 2**20) for _ in range(2 - len(head.workers))]
    yield head
    import ray

    ray.shutdown()


def kill_a_node(nodes: Any) -> None:
    nodes.remove_node(nodes.workers.pop(), allow_graceful=False)


def engine(nodes: Any) -> Any:
    from bench.cluster import Cluster

    return Cluster(nodes.address, cpus=1, gpus=0)


def test_a_node_is_lost_in_the_middle(nodes: Any, tmp_path: Path) -> None:
    """Finished cells stay; the command that was lost with its node runs again, elsewhere; every result is there."""
    plan = stand_in(tmp_path, seeds=6, seconds=2.0, variants="kd")
    plan.out.mkdir()
    cluster = engine(nodes)
    assert cluster.places == 2
    lost: list[dict[str, str]] = []
    from bench.cluster import Command

    poll = Command.poll

    def watched(self: Any) -> int | None:
        if not lost and len(cells(plan.out)) >= 2 and len(starts(plan)) >= 4:
            lost.append(cells(plan.out))
            kill_a_node(nodes)
        return poll(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Command, "poll", watched)
        assert run.execute(plan, cluster.places, 1, cluster) == []
    after = cells(plan.out)
    assert len(after) == 6
    assert {name: after[name] for name in lost[0]} == lost[0]
    again = [line for line in starts(plan) if starts(plan).count(line) > 1]
    assert len(set(again)) == 1  # of six commands one was lost
    assert all(run.done(plan.out, job) for job in plan.jobs)


def test_the_same_files_as_without_a_cluster(nodes: Any, tmp_path: Path) -> None:
    """A real script, through the command line."""
    line = ["--methods", "mc3kd", "--tasks", "pocket/rte", "--seeds", "0", "--budget", "64"]
    outputs = []
    for name, more in (("here", []), ("there", ["--engine", "ray", "--address", nodes.address])):
        done = subprocess.run([sys.executable, "-m", "bench", "run", *line, "--out", str(tmp_path / name), *more],
                              cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append({path.name: path.read_bytes() for path in (tmp_path / name).rglob("model.safetensors")})
    assert outputs[0] == outputs[1] != {}


def test_ctrl_c_stops_what_runs_and_what_waits(nodes: Any, tmp_path: Path) -> None:
    plan = stand_in(tmp_path, seeds=3, seconds=60.0, variants="kd")
    plan.out.mkdir()
    cluster = engine(nodes)
    running = [run.start(plan.out, job, 1, cluster) for job in plan.jobs]
    deadline = time.monotonic() + 60
    while not (plan.out / "starts.txt").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.stop([found.process for found in running], 10)
    assert all(found.process.poll() == -1 for found in running)
    assert not cells(plan.out)


def test_what_is_asked_of_a_cluster(nodes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--methods", "mc3kd", "--tasks", "pocket/rte", "--engine", "ray", "--address", nodes.address]
    with pytest.raises(SystemExit) as stop:
        run.main([*line, "--cpus", "8"])
    assert stop.value.code == 2
    assert "the cluster has 2 processors" in error_line(capsys.readouterr().err)


# --- sweeps ------------------------------------------------------------------------------------------------------

# In place of a script: the score of a student is how near its rates have been to 2e-3, summed over the intervals; it
# stands in a "checkpoint". Takes a second.
TUNED = """
import argparse, json, math, sys, time
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from test_results import record
from common import results
parser = argparse.ArgumentParser()
for name in ("--out-dir", "--variant", "--lr", "--alpha", "--lr-plan", "--until", "--cache-dir"):
    parser.add_argument(name)
args, _ = parser.parse_known_args()
place = Path(args.out_dir, "mc3kd", "pocket", "rte", args.variant, "seed0")
with open({starts!r}, "a") as file:
    file.write(json.dumps([args.lr, args.alpha, args.lr_plan, args.until]) + "\\n")
if (place / "result.json").exists():
    sys.exit()
if args.lr and float(args.lr) > {broken}:
    sys.exit("error: the loss is nan")
time.sleep(1)
before = json.loads((place / "state").read_text()) if (place / "state").exists() else []
share, plan = float(args.until or 1), [part.split(":") for part in (args.lr_plan or "").split(",") if part]
factor = float(plan[-1][1]) if plan else 1.0
now = before + [[share, float(args.lr) * factor]]
place.mkdir(parents=True, exist_ok=True)
(place / "state").write_text(json.dumps(now))
score = 1 / (1 + sum(abs(math.log(lr / 2e-3)) for _, lr in now))
results.save(place, record(primary=dict(name="accuracy", value=score)), "part.json" if args.until else "result.json")
"""


def tuned(
    nodes: Any, folder: Path, trials: int = 4, broken: float = 1.0, search: str = "population"
) -> tuple[Any, list[list[Any]]]:
    """A `Tuner` whose scripts are the stand-in, and, as a function, what was started so far."""
    from types import SimpleNamespace

    import ray

    from bench.tuning import Tuner
    from methods import mc3kd

    ray.shutdown()  # of the one before
    folder.mkdir(exist_ok=True)
    script, starts = folder / "tuned.py", folder / "starts.jsonl"
    tests = str(Path(__file__).parent)
    script.write_text(TUNED.format(root=str(ROOT), tests=tests, starts=str(starts), broken=broken))
    options = SimpleNamespace(method="mc3kd", address=nodes.address, cpus=1, gpus=0, trials=trials, intervals=3, draw=0)
    args = mc3kd.Args(task="pocket/rte", out_dir=str(folder / "out"))
    made = Tuner(options, ["--task", "pocket/rte"], args)
    made.common["words"][0] = str(script)
    return made, lambda: [json.loads(line) for line in starts.read_text().splitlines()] if starts.exists() else []


GRID = {"lr": (1e-4, 1e-2), "alpha": (0.2, 0.5)}


def folders(place: Path, name: str) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob(name))


def test_a_population_is_compared_and_copied(nodes: Any, tmp_path: Path) -> None:
    """Every student passes all intervals; the worst goes on from the best with its point and another rate."""
    made, starts = tuned(nodes, tmp_path / "one")
    rows = made.population("kd", GRID)
    assert len(rows) == 4
    assert [score for score, _ in rows] == sorted((score for score, _ in rows), reverse=True)
    assert len(starts()) == 12
    assert [line[3] for line in starts()].count(None) == 4  # the last intervals, scored as a whole run is
    origins = {path.parent: json.loads(path.read_text()) for path in tmp_path.rglob("origin.json")}
    assert len(origins) == 12
    copied = 0
    for here, origin in origins.items():
        parent = Path(origin["from"]) if origin["from"] else None
        assert (parent is None) == (here.name == "interval1")
        if parent is not None:
            copied += parent.parent != here.parent
            if parent.parent != here.parent:
                assert origin["point"]["lr"] == origins[parent]["point"]["lr"]
                assert origin["point"]["alpha"] == origins[parent]["point"]["alpha"]
                assert origin["point"]["lr_plan"].startswith(origins[parent]["point"].get("lr_plan", ""))
    assert copied == 2  # a quarter of four, after the first and the second interval
    # started again: nothing is run, and the table is the same
    again, starts = tuned(nodes, tmp_path / "one")
    assert again.population("kd", GRID) == rows
    assert len(starts()) == 12


def test_a_population_loses_a_node(nodes: Any, tmp_path: Path) -> None:
    """The same students as without a loss."""
    made, _ = tuned(nodes, tmp_path / "whole")
    rows = made.population("kd", GRID)
    made, starts = tuned(nodes, tmp_path / "lost")
    lose_a_node(nodes, lambda: len(starts()) >= 6)
    assert made.population("kd", GRID) == rows
    assert 12 <= len(starts()) <= 14
    assert made.failed == 0


def lose_a_node(nodes: Any, when: Any) -> None:
    """Kill a node as soon as `when` is true."""

    def wait() -> None:
        deadline = time.monotonic() + 120
        while not when() and time.monotonic() < deadline:
            time.sleep(0.05)
        kill_a_node(nodes)

    threading.Thread(target=wait, daemon=True).start()


def test_a_grid_loses_a_node_and_a_trial_fails(nodes: Any, tmp_path: Path) -> None:
    """What is finished is not run again, what was lost is; a rate at which the loss is not finite fails once."""
    from bench.sweep import trials_of

    made, starts = tuned(nodes, tmp_path, broken=2.5e-4)
    trials = trials_of("mc3kd", made.args, "kd", 12, 0)
    high = sum(trial.point["lr"] > 2.5e-4 for trial in trials)
    lose_a_node(nodes, lambda: len(starts()) >= 5)
    rows = made.grid("kd", trials)
    assert len(rows) == 12 - high == 8
    assert made.failed == high
    assert 12 <= len(starts()) <= 13
    assert len(folders(tmp_path / "out" / "sweep" / "kd", "result.json")) == 8
    assert [score for score, _ in rows] == sorted((score for score, _ in rows), reverse=True)


def test_a_sweep_is_the_same_on_a_cluster(nodes: Any, glue: Path, expert: Path, tmp_path: Path) -> None:
    """A real script, through the command line: one table, the same bits, and Ctrl-C in between."""
    line = f"mc3kd --variants kd --trials 3 --task sst2 --data-dir {glue} --teacher {expert} --student 2x16"
    line += " --budget 640 --max-length 16"
    words = [sys.executable, "-m", "bench", "sweep", *line.split()]
    there = [*words, "--out-dir", str(tmp_path / "there"), "--engine", "ray", "--address", nodes.address]
    process = subprocess.Popen(
        there, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "there").rglob("result.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopped by SIGINT" in err
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("result.json")}
    assert 1 <= len(kept) < 3
    tables = []
    for command in (there, [*words, "--out-dir", str(tmp_path / "here")]):
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        tables.append(done.stdout[done.stdout.index("\nkd on sst2, 3 trials") :])
    assert tables[0] == tables[1]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    one, other = (folders(tmp_path / place / "sweep" / "kd", "model.safetensors") for place in ("here", "there"))
    assert one == other
    assert len(one) == 3
    for name in one:
        pair = [(tmp_path / place / "sweep" / "kd" / name).read_bytes() for place in ("here", "there")]
        assert pair[0] == pair[1]


@pytest.mark.parametrize("command", ["run --methods mc3kd --tasks pocket/rte --seeds 0", "sweep mc3kd --variants kd"])
def test_no_cluster(command: str, tmp_path: Path) -> None:
    place = "--out" if command.startswith("run") else "--out-dir"
    words = [*command.split(), place, str(tmp_path), "--engine", "ray", "--address", "127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-m", "bench", *words], cwd=ROOT, capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=100)  # fmt: skip
    assert done.returncode == 2
    assert "--address 127.0.0.1:1: no cluster there" in error_line(done.stderr)


def test_no_ray(tmp_path: Path) -> None:
    """Said in one line, of both commands."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise ImportError('not installed')")
    for words in ("run --methods mc3kd --tasks pocket/rte --seeds 0 --out", "sweep mc3kd --variants kd --out-dir"):
        command = [*words.split(), str(tmp_path / "out"), "--engine", "ray"]
        done = subprocess.run([sys.executable, "-m", "bench", *command], cwd=ROOT, capture_output=True, text=True,
                              env=ENVIRONMENT | {"PYTHONPATH": str(tmp_path)})  # fmt: skip
        assert done.returncode == 2
        assert "pip install -r requirements-cluster.txt" in error_line(done.stderr)
