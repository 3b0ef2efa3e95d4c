"""`python -m bench run --engine ray` on a real cluster of two nodes on this machine. The scripts are stood in for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ENVIRONMENT, ROOT, error_line
from test_bench_run import cells, stand_in, starts

from bench import run

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without places and two nodes of one processor each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_health_check_timeout_ms", "2000")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_initial_delay_ms", "0")
    memory = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | memory)
    found.workers = [found.add_node(num_cpus=1, object_store_memory=100 * 2**20) for _ in range(2)]
    yield found
    import ray

    ray.shutdown()
    found.shutdown()


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
            nodes.remove_node(nodes.workers[1], allow_graceful=False)
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
