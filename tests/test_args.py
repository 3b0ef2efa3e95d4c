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
from common.errors import BadInput
from methods import mc3kd

BAD = [  # what is typed, what the line must hold
    ("--task pocket/sst3", "--task pocket/sst3", "did you mean pocket/sst2"),
    ("--task sts2", "--task", "unknown task"),
    ("--task ,", "--task", "names no task"),
    ("--task pocket/sst2,nonsense", "--task nonsense", "unknown task"),
    ("--task", "--task", "expected one argument"),
    ("--student 3", "--student", "LAYERSxWIDTH"),
    ("--student 0x64", "--student", "LAYERSxWIDTH"),
    ("--student 2x0", "--student", "LAYERSxWIDTH"),
    ("--student 2x-64", "--student", "LAYERSxWIDTH"),
    ("--student 2X64", "--student", "LAYERSxWIDTH"),
    ("--student 2x64.5", "--student", "LAYERSxWIDTH"),
    ("--student 3x130", "--student", "multiple of 8, for example 3x128"),
    ("--student 3x4", "--student", "multiple of 8, for example 3x8"),
    ("--student 1x64 --variant pkd-skip", "--student", "2 layers"),
    ("--budget huge", "--budget", "smoke"),
    ("--budget 0", "--budget", "number of examples"),
    ("--budget -5", "--budget", ""),
    ("--budget 10.5", "--budget", "600s"),
    ("--budget 0s", "--budget", "600s"),
    ("--budget 600m", "--budget", "600s"),
    ("--budget 9999999999999999999999", "--budget", "number of examples"),
    ("--seed -1", "--seed", "between 0 and"),
    ("--seed 4294967296", "--seed", "between 0 and"),
    ("--seed 1.5", "--seed", "invalid int"),
    ("--seed zero", "--seed", "invalid int"),
    ("--batch-size 0", "--batch-size", "1 or more"),
    ("--batch-size -3", "--batch-size", "1 or more"),
    ("--batch-size many", "--batch-size", "invalid int"),
    ("--lr 0", "--lr", "above 0"),
    ("--lr -1e-4", "--lr", ""),
    ("--lr nan", "--lr", "above 0"),
    ("--lr inf", "--lr", "above 0"),
    ("--max-length 0", "--max-length", "1 or more"),
    ("--max-length 3", "--max-length", "4 or more"),
    ("--limit 0", "--limit", "1 or more"),
    ("--teacher-epochs -1", "--teacher-epochs", "0 (the teacher as it is) or more"),
    ("--teacher-epochs inf", "--teacher-epochs", "or more"),
    ("--teacher-lr nan", "--teacher-lr", "above 0"),
    ("--save-every -1", "--save-every", "0"),
    ("--save-every nan", "--save-every", "0"),
    ("--save-every inf", "--save-every", "0"),
    ("--device tpu", "--device", "invalid choice"),
    ("--precision fp8", "--precision", "invalid choice"),
    ("--resume --force", "--resume", "--force"),
    ("--resume perhaps", "--resume", ""),
    ("--alpha 1.5", "--alpha", "between 0 and 1"),
    ("--alpha -0.1", "--alpha", ""),
    ("--alpha nan", "--alpha", "between 0 and 1"),
    ("--temperature 0", "--temperature", "above 0"),
    ("--temperature -2", "--temperature", "above 0"),
    ("--temperature inf", "--temperature", "above 0"),
    ("--temperature nan", "--temperature", "above 0"),
    ("--beta -1", "--beta", "0 or more"),
    ("--beta nan", "--beta", "0 or more"),
    ("--beta inf", "--beta", "0 or more"),
    ("--ridge 0", "--ridge", "above 0"),
    ("--ridge nan", "--ridge", "above 0"),
    ("--selection-examples 1", "--selection-examples", "2 or more"),
    ("--variant mc4kd", "--variant 'mc4kd'", "mc3kd"),
    ("--variant finetune,nonsense", "--variant 'nonsense'", "finetune"),
    ("--variant ,", "--variant", "names none"),
    ("--variant dynakd", "--variant", "--pool"),
    ("--assistant 3by128", "--assistant", "LAYERSxWIDTH"),
    ("--tokens first", "--tokens", "invalid choice"),
    ("--correlation max", "--correlation", "invalid choice"),
    ("--no-such-thing 1", "--no-such-thing", "no such argument"),
    ("--temp 3", "--temp", "no such argument"),  # abbreviations are refused: they change meaning as arguments come
    ("stray", "stray", "no such argument"),
    ("--task sst2 --data-dir /no/such/folder", "--data-dir /no/such/folder", "no such folder"),
    ("--task pocket/sst2 --data-dir .", "--data-dir", "--task sst2"),
]


@pytest.mark.parametrize(("typed", "names", "says"), BAD, ids=[row[0] for row in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    typed: str, names: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        args.parse(mc3kd.Args, "doc", typed.split())
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert names in err
    assert says in err


def test_a_folder_without_the_splits_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        args.parse(mc3kd.Args, "doc", ["--task", "rte", "--data-dir", str(tmp_path)])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--data-dir" in err
    assert "train.tsv" in err


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        args.parse(mc3kd.Args, "doc", ["--budget", "huge", "--debug"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: --budget")


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
