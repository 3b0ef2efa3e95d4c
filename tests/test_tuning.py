"""What population-based training asks of the scripts, `--until` and `--lr-plan`, and the folders of its intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import error_line
from safetensors.torch import load_file
from test_large import RUNS
from test_parallel import lines, run_script

from common import results

STEPS = 12
PLAN = ["--lr-plan", "0.25:2,0.5:0.5"]


@pytest.fixture
def argv(steady: list[str], tmp_path: Path) -> list[str]:
    size = f"--batch-size 8 --max-length 16 --budget {8 * STEPS} --tune --cache-dir {tmp_path / 'cache'}"
    return [*steady, *size.split()]


@pytest.mark.parametrize(
    "method", [m if m in ("mc3kd", "xtc") else pytest.param(m, marks=pytest.mark.slow) for m in RUNS]
)
def test_parts_make_the_whole(method: str, argv: list[str], tmp_path: Path) -> None:
    """Stopped after a share and scored, and continued by the rest of the plan: the bits of one run. The share is of the
    training on the task; what comes before that is the same for all."""
    line, out = RUNS[method], tmp_path / "parts"
    run_script(line, [*argv, *PLAN], tmp_path / "whole", tmp_path / "alone", dropout=True)
    run_script(line, [*argv, "--lr-plan", "0.25:2", "--until", "0.5"], out, tmp_path / "first", dropout=True)
    (path,) = out.rglob("part.json")
    part = results.load(path)
    assert list(part["metrics"]) == ["held_out"]
    assert not list(out.rglob("result.json"))
    run_script(line, [*argv, *PLAN, "--resume"], out, tmp_path / "second", dropout=True)
    assert not path.exists()
    whole, first, second = (lines(tmp_path / place / "losses.0") for place in ("alone", "first", "second"))
    assert abs(len(first) - len(second)) <= 1
    assert whole[-len(first + second) :] == first + second  # what came before is read from the cache
    one, other = (next((tmp_path / place).rglob("result.json")).parent for place in ("whole", "parts"))
    assert results.load(one / "result.json")["signature"] == results.load(other / "result.json")["signature"]
    assert "lr_plan:0.25:2,0.5:0.5" in results.load(one / "result.json")["signature"]
    weights = [load_file(folder / "model.safetensors") for folder in (one, other)]
    assert all(tensor.equal(weights[1][name]) for name, tensor in weights[0].items())
    assert part["ledger"]["steps"] == len(whole) - len(second)


def test_another_past_is_refused(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    run_script(RUNS["mc3kd"], [*argv, "--until", "0.5"], out, tmp_path / "first")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    run_script(RUNS["mc3kd"], [*argv, "--lr-plan", "0.25:2", "--resume"], out, tmp_path / "second", 2)
    assert "another --lr-plan" in error_line(capsys.readouterr().err)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_an_interval_goes_on_from_a_copy(tmp_path: Path) -> None:
    """What is there and has come about in the same way is kept; what has not is made again."""
    pytest.importorskip("ray")
    from bench.tuning import inherit

    first, second = tmp_path / "member0" / "interval1", tmp_path / "member1" / "interval2"
    inherit(first, {"point": {"lr": 1.0}, "from": ""})
    for name in ("checkpoint.safetensors", "part.json", "log.txt"):
        (first / name).write_text("one")
    origin: dict[str, Any] = {"point": {"lr": 1.0, "lr_plan": "0.5:2"}, "from": str(first)}
    inherit(second, origin)
    assert sorted(path.name for path in second.iterdir()) == ["checkpoint.safetensors", "origin.json"]
    assert json.loads((second / "origin.json").read_text()) == origin
    (second / "checkpoint.safetensors").write_text("farther")
    inherit(second, origin)
    assert (second / "checkpoint.safetensors").read_text() == "farther"
    inherit(second, origin | {"point": {"lr": 2.0}})
    assert (second / "checkpoint.safetensors").read_text() == "one"
    assert (first / "part.json").exists()
