"""The command line: every mistake ends as one line that names the argument, and exit code 2."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPT

from common import args
from common.args import BadInput
from methods import mc3kd


def test_nothing_typed_is_valid() -> None:
    made = args.parse(mc3kd.Args, "doc", [])
    assert made == mc3kd.Args()
    assert made.tasks == ["pocket/sst2"]
    assert made.variants == ["finetune", "mc3kd"]


def test_values_arrive(tmp_path: Path) -> None:
    typed = "--seed 0 --lr 1e-4 --task pocket/rte,pocket/sst2 --variant kd,kd --resume --batch_size 8 --beta 0"
    made = args.parse(mc3kd.Args, "doc", typed.split())
    assert (made.seed, made.lr, made.batch_size, made.beta, made.resume) == (0, 1e-4, 8, 0.0, True)
    assert made.tasks == ["pocket/rte", "pocket/sst2"]
    assert made.variants == ["kd"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smoke", ("examples", 640)),
        ("quick", ("examples", 25_600)),
        ("standard", ("examples", 256_000)),
        ("paper", ("paper", 0)),
        ("5000", ("examples", 5000)),
        ("600s", ("seconds", 600)),
    ],
)
def test_budgets(text: str, expected: tuple[str, int]) -> None:
    assert args.parse_budget(text) == expected


def test_student_shape() -> None:
    assert args.student_shape("3x128") == (3, 128)
    with pytest.raises(BadInput, match="LAYERSxWIDTH"):
        args.student_shape("3x128x2")


def test_split_list_keeps_order_and_drops_repetitions() -> None:
    assert args.split_list(" b, a,,b ") == ["b", "a"]


def test_help_names_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        args.parse(mc3kd.Args, mc3kd.__doc__, ["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for field in dataclasses.fields(mc3kd.Args):
        assert f"--{args.dashed(field.name)}" in text
        assert f"--{field.name}" not in text or "_" not in field.name  # one spelling is enough to read
    assert "python methods/mc3kd.py" in text


@pytest.mark.parametrize(("typed", "code"), [("--help", 0), ("--budget huge", 2), ("--task nonsense", 2)])
def test_help_and_mistakes_do_not_wait_for_torch(typed: str, code: int, tmp_path: Path) -> None:
    """A torch that raises on import stands first on the path: whoever imports it fails."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('torch was imported')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(SCRIPT), *typed.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert "torch was imported" not in done.stderr
    assert done.returncode == code
    assert ("--temperature" in done.stdout) == (code == 0)
    # the trap works: the script itself, once its arguments are right, does import torch
    if code == 0:
        done = subprocess.run([*command[:2]], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert "torch was imported" in done.stderr
