"""Kill every script at random moments, resume it, and compare with a run that nothing disturbed.

    python -m tests.kill                            # 20 SIGKILLs for each script, at its own budget: about an hour
    python -m tests.kill xtc cka --kills 5 --budget 960

A script is started, killed after a random time, started again with --resume, and so on until it ends; when it ends
before it was killed often enough, a fresh one is begun. A fifth of the times lies in its start-up. Teachers and what
else is cached are made under the same fire.
Every fifth time it is SIGINT or SIGTERM: one line and exit code 130 or 143 are then expected. In the end the weights,
the caches' weights and everything in result.json but clocks have to be those of the undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What is run of each script: every kind of stage that it has.
COMMANDS = {
    "mc3kd": "--variant mc3kd,takd",
    "cmow": "--variant kd --init general",
    "xtc": "--variant xtc --stages 2,3",
    "efficient_attention": "--variant convert-distil,distil-convert",
    "cka": "--task pocket/translate --student 4x64 --variant lin",
}
CLOCKS = ("command", "finished", "environment")


def start(method: str, out: Path, words: list[str], log: Path) -> int:
    """A script in a process that has imported the libraries already, which takes longer than all that comes after."""
    argv = [str(ROOT / "methods" / f"{method}.py"), *words, "--out-dir", str(out), "--resume", "--save-every", "1"]
    if (pid := os.fork()) == 0:
        with log.open("w") as file:
            os.dup2(file.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code, sys.argv = 0, argv
        try:
            runpy.run_path(argv[0], run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)
    return pid


def wait(pid: int, seconds: float) -> int | None:
    """The exit code of a process, negative for a signal; None if it still runs after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def outcome(out: Path) -> dict[str, Any]:
    """What two runs with one seed must share: digests of all weights, and the results without clocks and places."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*.safetensors")):
        found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(out.rglob("result.json")):
        record = json.loads(path.read_text())
        for name in (*CLOCKS, "digest"):
            record.pop(name, None)
        for part in (record["teacher"], record["student"]):
            del part["speed"]
        for name in ("seconds", "shared_seconds", "peak_memory_bytes"):
            del record["ledger"][name]
        found[str(path.relative_to(out))] = record
    return found


def left_behind(out: Path) -> list[str]:
    """Files that only an unfinished run has."""
    names = [path.relative_to(out) for path in out.rglob("*")]
    return [str(path) for path in names if "checkpoint" in path.name or path.suffix in (".partial", ".training")]


def place(out: Path, began: float) -> str:
    """The stage that a killed run was in: where it last wrote."""
    files = [(path.stat().st_mtime, path) for path in out.rglob("*") if path.is_file() and path.suffix != ".lock"]
    if not files or max(files)[0] < began:
        return "before anything was written"
    parts = max(files)[1].relative_to(out).parts
    if parts[0] == "cache":
        return f"cache/{parts[1]}"
    stage = [part for part in parts[-2:-1] if not part.startswith("seed")]
    return "/".join([parts[-3] if not stage else parts[-4], *stage])


def under_fire(method: str, words: list[str], kills: int, rng: random.Random, folder: Path, ready: Path | None) -> None:
    """Kill a script `kills` times; AssertionError where it does not end as if it had not been.

    `ready`: a folder with teachers that were fine-tuned before; without one they are fine-tuned under fire.
    """
    log = folder / "stderr"

    def prepared(name: str) -> Path:
        if ready is not None:
            shutil.copytree(ready, folder / name / "cache" / "teachers")
        return folder / name

    out, began = prepared("whole"), time.time()
    code = wait(start(method, out, words, log), math.inf)
    assert code == 0, log.read_text()
    # when it began to write, and how long it has worked from there
    writing = max(began, min(path.stat().st_mtime for path in out.rglob("*.lock") if path.stat().st_mtime >= began))
    work, wanted = time.time() - writing, outcome(out)
    assert not left_behind(out), left_behind(out)
    done, stops, ends, places = 0, 0, 0, Counter[str]()
    while done < kills or ends == 0:
        out, code = prepared(f"killed{ends}"), None
        while code != 0:
            pid, born = start(method, out, words, log), time.time()
            number = rng.choice([signal.SIGINT, signal.SIGTERM]) if (done + stops) % 5 == 4 else signal.SIGKILL
            early = number == signal.SIGKILL and rng.random() < 0.2
            far = work * rng.choice([0.2, 0.4, 0.8])  # some get on, and so every stage is met
            life = rng.uniform(0, writing - began) if early else writing - began + rng.uniform(0, far)
            code = wait(pid, math.inf if done >= kills else life)
            if code is None:
                os.kill(pid, number)
                code = wait(pid, math.inf)
            if code == 0:
                break
            places[place(out, born)] += 1
            if number == signal.SIGKILL:
                assert code == -number, log.read_text()
                done += 1
            else:
                lines = [line for line in log.read_text().splitlines() if line]
                assert (code, len(lines)) == (128 + number, 1), log.read_text()
                assert lines[0].startswith(f"stopped by {number.name}"), lines
                stops += 1
        found = outcome(out)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found[name] == value, f"{method}: {name} differs"
        assert not left_behind(out), left_behind(out)
        shutil.rmtree(out)
        ends += 1
    spread = ", ".join(f"{where} {count}" for where, count in places.most_common())
    print(
        f"{method} {' '.join(words)}: {work:.0f} s of work undisturbed; {done} kills, {stops} other signals,"
        f" {ends} ends,"
        f" all {len(wanted)} files the same. Last written before a stop: {spread}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs for each script")
    parser.add_argument("--budget", help="as the scripts' (default: each script's own)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--teachers", type=Path, help="a runs/cache/teachers with those that are needed (default: made)"
    )
    asked = parser.parse_args()
    if wrong := [name for name in asked.methods if name not in COMMANDS]:
        parser.error(f"{wrong[0]}: no such script")
    import accelerate  # noqa: F401  (for the scripts, which are forked from here)
    import torch
    import transformers  # noqa: F401

    from common import run, teacher  # noqa: F401

    torch.set_num_threads(1)
    for method in asked.methods or COMMANDS:
        words = COMMANDS[method].split() + (["--budget", asked.budget] if asked.budget else [])
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{method}/{asked.seed}")
            under_fire(method, words, asked.kills, rng, Path(folder), asked.teachers)


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    main()
