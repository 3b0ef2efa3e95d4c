"""The command without arguments, as a newcomer types it: minutes long, so marked slow."""

import subprocess
import sys

import pytest
from conftest import SCRIPT

from common import results


@pytest.mark.slow
def test_no_arguments(tmp_path) -> None:
    """Three rows; a strong teacher; distillation above the undistilled student; the second run repeats nothing."""
    command = [sys.executable, str(SCRIPT)]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for row in ("teacher pocket", "finetune 2x128 seed 0", "mc3kd 2x128 seed 0"):
        assert row in first.stdout
    seed = tmp_path / "runs" / "mc3kd" / "pocket" / "sst2"
    found = {v: results.load(seed / v / "seed0" / "result.json") for v in ("finetune", "mc3kd")}
    assert found["mc3kd"]["teacher"]["metrics"]["test"]["accuracy"] > 0.9
    assert found["mc3kd"]["primary"]["value"] > found["finetune"]["primary"]["value"]
    assert found["finetune"]["ledger"]["student_examples"] == found["mc3kd"]["ledger"]["student_examples"] == 25_600
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert again.stdout.count("finished before") == 2
    assert again.stdout.split("\n\n")[-1] == first.stdout.split("\n\n")[-1]
