"""Damaged files, full disks, vanished files, two runs at once: the right result, or one line and exit code 2; a
finished result is never lost and no figure is ever wrong."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, error_line, in_process, start
from test_scripts import cell, outcome

from common import cache, data, results, train
from common.args import BadInput
from methods import mc3kd

Inside = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    yield from in_process(capsys, mc3kd)


@pytest.fixture(scope="session")
def small(glue: Path, expert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Ten steps of one variant."""
    argv = f"--task sst2 --data-dir {glue} --teacher {expert} --student 2x16 --max-length 16 --selection-examples 32"
    return f"{argv} --budget 320 --variant mc3kd --save-every 0".split()


@pytest.fixture
def whole(small: list[str], tmp_path: Path, inside: Inside) -> dict[str, Any]:
    """What a run ends with that nothing disturbed; it stands in `tmp_path`/whole."""
    assert inside(*small, "--out-dir", tmp_path / "whole")[0] == 0
    return outcome(cell(tmp_path / "whole"))


def stopped(inside: Inside, small: list[str], out: Path, patch: pytest.MonkeyPatch, at: int = 6) -> Path:
    """Stop a run dead after so many steps; returns its folder."""
    real = train.check_finite

    def check(loss: torch.Tensor, step: int, ids: list[str]) -> None:
        real(loss, step, ids)
        if step == at:
            raise SystemExit(9)

    with patch.context() as context:
        context.setattr(train, "check_finite", check)
        assert inside(*small, "--out-dir", out)[0] == 9
    return cell(out)


# --- damage ------------------------------------------------------------------------------------------------


def flips(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """The file with one bit changed, and cut short."""
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)
    for _ in range(count // 4):
        yield whole[: rng.randrange(len(whole))]


def test_no_flipped_bit_of_a_result_becomes_a_figure(whole: dict[str, Any], tmp_path: Path) -> None:
    path = cell(tmp_path / "whole") / "result.json"
    record, text = results.load(path), path.read_bytes()
    assert record["metrics"]
    refused = 0
    for damaged in flips(text, 160):
        path.write_bytes(damaged)
        found = None
        with contextlib.suppress(BadInput):
            found = results.load(path)
        assert found in (None, record)  # a blank that became another, or a digest's name, at most
        refused += found is None
    assert refused > 180


def test_no_flipped_bit_of_a_note_becomes_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a teacher in the cache, whose scores stand in its note."""

    def make(partial: Path) -> dict[str, Any]:
        partial.mkdir()
        (partial / "model.safetensors").write_bytes(b"weights")
        return {"metrics": {"dev": {"accuracy": 0.9125}}, "signature": "abc"}

    folder = tmp_path / "key"
    note = cache.fetch(folder, "note.json", "teacher", make)
    text = (folder / "note.json").read_bytes()
    for damaged in flips(text, 100):
        (folder / "note.json").write_bytes(damaged)
        assert cache.fetch(folder, "note.json", "teacher", make)["metrics"] == note["metrics"]
    assert "damaged teacher" in capsys.readouterr().out


def test_a_damaged_log_does_not_stop_a_run(
    small: list[str], whole: dict[str, Any], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(inside, small, tmp_path / "out", monkeypatch)
    (folder / "log.jsonl").write_bytes(b'{"step": 2, "loss": 1}\n\xff\n[]\n{"step": "x"}\n{}\n5\n{"st')
    (folder / "args.json").write_bytes(b"\xff")
    code, _, err = inside(*small, "--out-dir", tmp_path / "out", "--resume")
    assert code == 0, err
    assert outcome(folder) == whole
    assert (folder / "log.jsonl").read_text() == '{"step": 2, "loss": 1}\n'
    assert json.loads((folder / "args.json").read_text())["settings"]


def test_a_result_is_left_alone_unless_forced(
    small: list[str], whole: dict[str, Any], tmp_path: Path, inside: Inside
) -> None:
    """A damaged one is named; with --force the run starts again and ends as before."""
    path = cell(tmp_path / "whole") / "result.json"
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"seed": 0', b'"seed": 1'))
    code, _, err = inside(*small, "--out-dir", tmp_path / "whole")
    assert code == 2
    assert "damaged result" in error_line(err)
    assert inside(*small, "--out-dir", tmp_path / "whole", "--force")[0] == 0
    assert outcome(path.parent) == whole


def test_other_data_than_before_the_kill(
    small: list[str], glue: Path, tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is not continued on data that have changed."""
    shutil.copytree(glue, tmp_path / "glue")
    argv = [*small, "--data-dir", str(tmp_path / "glue")]
    folder = stopped(inside, argv, tmp_path / "out", monkeypatch)
    train_file = tmp_path / "glue" / "SST-2" / "train.tsv"
    train_file.write_text(train_file.read_text().replace("good", "bad", 1))
    before = (folder / "checkpoint.safetensors").read_bytes()
    code, _, err = inside(*argv, "--out-dir", tmp_path / "out", "--resume")
    assert code == 2
    assert "belongs to other settings" in error_line(err)
    assert (folder / "checkpoint.safetensors").read_bytes() == before


# --- disks -------------------------------------------------------------------------------------------------


def test_a_full_disk(small: list[str], whole: dict[str, Any], tmp_path: Path, inside: Inside) -> None:
    """Whatever is larger than 40 kB cannot be written: a checkpoint, and without one the student itself."""
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = [
        sys.executable,
        "-c",
        code,
        str(ROOT / "methods" / "mc3kd.py"),
        *small,
        "--out-dir",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(script, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "the same command with --resume goes on" in error_line(done.stderr)
    assert not [path for path in (tmp_path / "out").rglob("*") if ".partial" in path.name]
    assert inside(*small, "--out-dir", tmp_path / "out", "--resume")[0] == 0
    assert outcome(cell(tmp_path / "out")) == whole


def test_a_disk_that_fills_up_later_keeps_the_last_checkpoint(
    small: list[str], whole: dict[str, Any], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = train.save_file, iter(range(100))

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        real(tensors, path, metadata)
        if next(calls) == 6:
            os.truncate(path, 1000)
            raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(train, "save_file", full)
        code, _, err = inside(*small, "--out-dir", tmp_path / "out")
    assert code == 2
    assert "No space left on device" in error_line(err)
    assert not list((tmp_path / "out").rglob("*.partial"))
    code, out, err = inside(*small, "--out-dir", tmp_path / "out", "--resume")
    assert code == 0, err
    assert "continued at step 6" in out
    assert outcome(cell(tmp_path / "out")) == whole


@pytest.mark.parametrize("place", ["mc3kd", "mc3kd/sst2/mc3kd/seed0"])
def test_a_file_where_a_folder_is_needed(place: str, small: list[str], tmp_path: Path, inside: Inside) -> None:
    path = tmp_path / "out" / place
    path.parent.mkdir(parents=True)
    path.write_text("a user's")
    code, _, err = inside(*small, "--out-dir", tmp_path / "out")
    assert code == 2
    assert str(path) in error_line(err)
    assert path.read_text() == "a user's"


# --- what vanishes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["the folder", "its checkpoint", "the teacher", "the data"])
def test_what_vanishes_while_it_runs(
    what: str, small: list[str], glue: Path, expert: Path, whole: dict[str, Any], tmp_path: Path, inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Deleted after the sixth step: the run ends as if nothing had happened."""
    out = tmp_path / "out"
    shutil.copytree(glue, tmp_path / "glue")
    shutil.copytree(expert, tmp_path / "expert")
    real = train.check_finite

    def check(loss: torch.Tensor, step: int, ids: list[str]) -> None:
        real(loss, step, ids)
        if step == 6 and what == "its checkpoint":
            (cell(out) / "checkpoint.safetensors").unlink()
        elif step == 6:
            shutil.rmtree({"the folder": cell(out), "the teacher": tmp_path / "expert"}.get(what, tmp_path / "glue"))

    monkeypatch.setattr(train, "check_finite", check)
    argv = [*small, "--data-dir", str(tmp_path / "glue"), "--teacher", str(tmp_path / "expert")]
    code, _, err = inside(*argv, "--out-dir", out)
    assert code == 0, err
    found = outcome(cell(out))
    for record in (found, whole):  # they name the folders
        del record["signature"], record["settings"]["teacher"], record["teacher"]["name"]
    assert found == whole


def test_data_that_vanish_before_they_are_read(small: list[str], glue: Path, tmp_path: Path, inside: Inside,
                                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    shutil.copytree(glue, tmp_path / "glue")
    real = data.read_local

    def late(*args: Any) -> Any:
        (tmp_path / "glue" / "SST-2" / "dev.tsv").unlink()
        return real(*args)

    monkeypatch.setattr(data, "read_local", late)
    code, _, err = inside(*small, "--data-dir", tmp_path / "glue", "--out-dir", tmp_path / "out")
    assert code == 2
    assert "no dev split for sst2" in error_line(err)


# --- two at once, and clocks -------------------------------------------------------------------------------


def test_another_process_in_the_same_folder(small: list[str], whole: dict[str, Any], tmp_path: Path,
                                            inside: Inside) -> None:  # fmt: skip
    """The first one goes on undisturbed, also by --force; what is finished can be read by anyone."""
    out, folder = tmp_path / "out", cell(tmp_path / "out")
    process = start(*small, "--out-dir", out)
    while process.poll() is None and not list(folder.glob("checkpoint.safetensors")):
        time.sleep(0.002)
    process.send_signal(19)  # SIGSTOP: it is in the middle
    try:
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for extra in ([], ["--resume"], ["--force"], ["--lr", "1e-2"]):
            code, _, err = inside(*small, *extra, "--out-dir", out)
            assert code == 2
            assert f"{folder}: another process is at work here" in error_line(err)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    finally:
        process.send_signal(18)
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert outcome(folder) == whole
    assert "finished before" in inside(*small, "--out-dir", out)[1]


def test_a_clock_that_is_set_back(
    small: list[str], whole: dict[str, Any], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look at it finds it an hour earlier."""
    now = [time.time()]

    def earlier() -> float:
        now[0] -= 3600
        return now[0]

    stopped(inside, small, tmp_path / "out", monkeypatch)
    for path in (tmp_path / "out").rglob("*"):
        os.utime(path, (now[0] + 1e8, now[0] + 1e8))  # written in the future
    monkeypatch.setattr(time, "time", earlier)
    code, _, err = inside(*small, "--out-dir", tmp_path / "out", "--resume")
    assert code == 0, err
    assert outcome(cell(tmp_path / "out")) == whole
