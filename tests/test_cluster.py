"""`python -m bench run` and `sweep` with `--engine ray`, on a real cluster of two nodes on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ENVIRONMENT, ROOT
from stand_in import cells, stand_in, starts
from test_bench import refused

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
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | memory)
        cluster.workers = []
        yield cluster
        cluster.shutdown()


@pytest.fixture
def nodes(head: Any) -> Iterator[Any]:
    """A cluster of two nodes of one processor each, beside the head."""
    head.workers += [head.add_node(num_cpus=1, object_store_memory=100 * 2**20) for _ in range(2 - len(head.workers))]
    yield head
    import ray

    ray.shutdown()


def test_a_node_is_lost_in_the_middle(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished cells stay; the command that was lost with its node runs again, elsewhere; every result is there."""
    from bench.cluster import Cluster, Command

    plan, cluster = stand_in(tmp_path, seeds=6, seconds=2.0, variants="kd"), Cluster(nodes.address, 1, 0)
    assert cluster.places == 2
    lost: list[dict[str, str]] = []
    asked: Any = Command.exitcode.fget

    def watched(self: Any) -> int | None:
        if not lost and len(cells(plan.out)) >= 2 and len(starts(plan)) >= 4:
            lost.append(cells(plan.out))
            nodes.remove_node(nodes.workers.pop(), allow_graceful=False)
        return asked(self)

    monkeypatch.setattr(Command, "exitcode", property(watched))
    assert run.execute(plan, cluster.places, 1, cluster) == []
    after = cells(plan.out)
    assert len(after) == 6
    assert {name: after[name] for name in lost[0]} == lost[0]
    assert len({line for line in starts(plan) if starts(plan).count(line) > 1}) == 1  # of six commands one was lost


def test_ctrl_c_stops_what_runs_and_what_waits(nodes: Any, tmp_path: Path) -> None:
    from bench.cluster import Cluster

    plan, cluster = stand_in(tmp_path, seeds=3, seconds=60.0, variants="kd"), Cluster(nodes.address, 1, 0)
    running = [run.start(plan.out, job, 1, cluster) for job in plan.jobs]
    while not (plan.out / "starts.txt").exists():
        time.sleep(0.1)
    cluster.stop([one.process for one in running], 10)
    assert all(one.process.exitcode == -1 for one in running)
    assert not cells(plan.out)


def test_a_sweep_is_the_same_on_a_cluster(nodes: Any, glue: Path, expert: Path, tmp_path: Path) -> None:
    """The scripts themselves, through the command line: one table, the same bits, and Ctrl-C in between."""
    line = f"mc3kd --variants kd --trials 3 --task sst2 --data-dir {glue} --teacher {expert} --student 2x16"
    words = [sys.executable, "-m", "bench", "sweep", *f"{line} --budget 640 --max-length 16".split()]
    there = [*words, "--out-dir", str(tmp_path / "there"), "--engine", "ray", "--address", nodes.address]
    process = subprocess.Popen(there, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    while not list((tmp_path / "there").rglob("result.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, "stopped by SIGINT" in err) == (130, True), err
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("result.json")}
    assert 1 <= len(kept) < 3
    tables = []
    for command in (there, [*words, "--out-dir", str(tmp_path / "here")]):
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        tables.append(done.stdout[done.stdout.index("\nkd on sst2, 3 trials") :])
    assert tables[0] == tables[1]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    weights = [
        {str(path.relative_to(place)): path.read_bytes() for path in (place / "sweep").rglob("model.safetensors")}
        for place in (tmp_path / "here", tmp_path / "there")
    ]
    assert weights[0] == weights[1]
    assert len(weights[0]) == 3


def test_what_is_asked_of_a_cluster(nodes: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    matrix = ["run", "quick", "--out", str(tmp_path), "--tasks", "pocket/cola"]
    matrix += ["--engine", "ray"]
    assert "the cluster has 2 processors" in refused(capsys, *matrix, "--address", nodes.address, "--cpus", "8")
    assert "--address 127.0.0.1:1: no cluster there" in refused(capsys, *matrix, "--address", "127.0.0.1:1")
