"""`python -m bench profile`: every row is measured, from the students that runs have saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, matrix_of

from bench import profile
from common import results


def test_students_of_finished_runs_are_measured(
    glue: Path, expert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two methods, one of which needs its own way of loading; and the cost of training, trained anew."""
    path = tmp_path / "tiny.toml"
    path.write_text(f"""{matrix_of(glue, expert, tmp_path / "cache")}
[[rows]]
method = "cmow"
student = "hybrid-3-8"
variant = "finetune,kd"
[[rows]]
method = "xtc"
student = "2x32"
variant = "xtc"
""")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench", "run", str(path), "--out", str(out), "--jobs", "1"]
    subprocess.run(command, env=ENVIRONMENT, cwd=results.ROOT, check=True, capture_output=True)
    before = {one: one.stat().st_mtime_ns for one in out.rglob("result.json")}
    profile.main([str(out), "--data-dir", str(glue), "--rounds", "1"])
    shown = capsys.readouterr().out
    assert shown.count("| cmow |") == 2
    assert "| xtc-1bit-1s |" in shown
    rows = json.loads((out / "profile.json").read_text())["rows"]
    assert {row["row"] for row in rows} == {"cmow/cmow/finetune", "cmow/cmow/kd", "xtc/xtc/xtc-1bit-1s"}
    for row in rows:
        assert row["milliseconds"]["1"] > 0
        assert row["milliseconds"]["32"] > 0
        assert row["training"] > 0
        assert row["bytes"] > 0
    assert {one: one.stat().st_mtime_ns for one in out.rglob("result.json")} == before


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["bench/results/rte-minilm"], "no student is saved there"),
        (["bench/results/rte-minilm", "--task", "cola"], "--task cola: must be of rte"),
        (["bench/results/rte-minilm", "--rounds", "-1"], "--rounds -1: must be 0 or more"),
    ],
)
def test_bad_arguments_are_one_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        profile.main([str(results.ROOT / argv[0]), *argv[1:]])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
