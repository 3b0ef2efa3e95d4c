"""The command without arguments, as a newcomer types it: minutes long, so marked slow."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from common import results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rows", "examples"),
    [
        ("mc3kd", ["finetune", "mc3kd"], 25_600),
        ("xtc", ["finetune-1bit", "kd-1bit", "xtc-1bit-1s"], 9_600),
    ],
)
def test_no_arguments(method: str, rows: list[str], examples: int, tmp_path: Path) -> None:
    """All rows; a strong teacher; distillation above the undistilled student; the second run repeats nothing."""
    command = [sys.executable, str(ROOT / "methods" / f"{method}.py")]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for row in ("teacher pocket", *(f"{row} 2x128 seed 0" for row in rows)):
        assert row in first.stdout
    found = [
        results.load(results.folder_of(tmp_path / "runs", method, "pocket/sst2", row, 0) / "result.json")
        for row in rows
    ]
    assert found[-1]["teacher"]["metrics"]["test"]["accuracy"] > 0.9
    assert found[-1]["primary"]["value"] > found[0]["primary"]["value"]
    assert {record["ledger"]["student_examples"] for record in found} == {examples}
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert again.stdout.count("finished before") == len(rows)
    assert again.stdout.split("\n\n")[-1].strip() == first.stdout.split("\n\n")[-1].strip()
