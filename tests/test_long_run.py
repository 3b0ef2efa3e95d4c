"""2,000 steps of every method: memory and open files do not grow."""

from __future__ import annotations

import importlib
from pathlib import Path

import psutil
import pytest
from conftest import in_process

from common import train

STEPS, WARM = 2000, 500
COMMANDS = {
    "mc3kd": "--variant mc3kd --student 2x16",
    "cmow": "--variant kd --student hybrid-3-9 --init general",
    "xtc": "--variant xtc --stages 3 --student 2x32",
    "efficient_attention": "--variant convert-distil --window 8",
    "cka": "--variant lin --student 2x16 --minibatches 2",
}


@pytest.mark.slow
@pytest.mark.parametrize("method", COMMANDS)
def test_nothing_grows(
    method: str, glue: Path, backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By at most 2% from step 500 to step 2,000, its checkpoints included; printed with -s."""
    process, memory, files = psutil.Process(), list[int](), list[int]()
    real = train.Checkpoint.step

    def step(self: train.Checkpoint) -> None:
        real(self)
        if self.path.parent.suffix != ".training" or "teachers" not in self.path.parts:
            memory.append(process.memory_info().rss)
            files.append(process.num_fds())

    monkeypatch.setattr(train.Checkpoint, "step", step)
    argv = f"--task sst2 --data-dir {glue} --teacher {backbone} --max-length 16 --limit 512 --save-every 1"
    argv += f" --batch-size 8 --budget {8 * STEPS} {COMMANDS[method]} --out-dir {tmp_path}"
    runs = in_process(capsys, importlib.import_module(f"methods.{method}"))
    code, _, err = next(runs)(*argv.split())
    next(runs, None)
    assert code == 0, err
    assert len(memory) == STEPS
    grown = max(memory[-100:]) / max(memory[WARM : WARM + 100]) - 1
    with capsys.disabled():
        print(f"\n{method}: {memory[WARM] / 2**20:.0f} MiB and {files[WARM]} files at step {WARM}, "
              f"{memory[-1] / 2**20:.0f} MiB and {files[-1]} files at step {STEPS}: {100 * grown:+.2f}%")  # fmt: skip
    assert grown <= 0.02
    assert max(files[-100:]) <= 1.02 * max(files[WARM : WARM + 100])
