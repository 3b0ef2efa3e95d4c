"""Kill every script at random moments, resume it, and compare with a run that nothing disturbed.

    python -m tests.kill                            # 20 SIGKILLs for each script, at its own budget: about an hour
    python -m tests.kill xtc cka --kills 5 --budget 960

A script is started, killed after a random time, started again with --resume, and so on until it ends; when it ends
before it was killed often enough, a fresh one is begun. Teachers and everything else that is cached are made under the
same fire. Every fifth time it is SIGINT or SIGTERM: one line and exit code 130 or 143 are then expected. In the end
the weights, the caches' weights and everything in result.json but clocks have to be those of the undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
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


def start(method: str, out: Path, words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "methods" / f"{method}.py"), *words, "--out-dir", str(out), "--resume"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--save-every", "1"], env=environment, **pipes)


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
        for name in ("seconds", "peak_memory_bytes"):
            del record["ledger"][name]
        found[str(path.relative_to(out))] = record
    return found


def left_behind(out: Path) -> list[str]:
    """Files that only an unfinished run has."""
    names = [path.relative_to(out) for path in out.rglob("*")]
    return [str(path) for path in names if "checkpoint" in path.name or path.suffix in (".partial", ".training")]


def place(out: Path) -> str:
    """The stage that a killed run was in: where it last wrote."""
    files = [(path.stat().st_mtime_ns, path) for path in out.rglob("*") if path.is_file() and path.suffix != ".lock"]
    if not files:
        return "before anything was written"
    parts = max(files)[1].relative_to(out).parts
    if parts[0] == "cache":
        return f"cache/{parts[1]}"
    stage = [part for part in parts[-2:-1] if not part.startswith("seed")]
    return "/".join([parts[-3] if not stage else parts[-4], *stage])


def under_fire(method: str, words: list[str], kills: int, rng: random.Random, folder: Path, log: Any) -> None:
    """Kill a script `kills` times; AssertionError where it does not end as if it had not been."""
    started = time.monotonic()
    whole = start(method, folder / "whole", words)
    _, err = whole.communicate()
    assert whole.returncode == 0, err
    seconds = time.monotonic() - started
    wanted = outcome(folder / "whole")
    assert not left_behind(folder / "whole")
    done, stops, ends, places = 0, 0, 0, Counter[str]()
    while done < kills or ends == 0:
        out = folder / f"killed{ends}"
        while True:
            process = start(method, out, words)
            number = signal.SIGKILL
            if (done + stops) % 5 == 4:
                number = rng.choice([signal.SIGINT, signal.SIGTERM])
            # half of the times are spent on starting up; a signal has to find an interpreter that is there
            life = rng.uniform(0 if number == signal.SIGKILL else 4, seconds / 4 + 4)
            try:
                process.wait(None if done >= kills else life)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            _, err = process.communicate()
            if process.returncode == 0:
                break
            places[place(out)] += 1
            if number == signal.SIGKILL:
                assert process.returncode == -number, err
                done += 1
            else:
                assert process.returncode == 128 + number, (process.returncode, err)
                lines = [line for line in err.splitlines() if line]
                assert len(lines) == 1, err
                assert lines[0].startswith(f"stopped by {number.name}"), err
                stops += 1
        found = outcome(out)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found[name] == value, f"{method}: {name} differs"
        assert not left_behind(out), left_behind(out)
        ends += 1
    spread = ", ".join(f"{where} {count}" for where, count in places.most_common())
    print(f"{method} {' '.join(words)}: {seconds:.0f} s undisturbed; {done} kills, {stops} other signals, {ends} ends,"
          f" all {len(wanted)} files the same. Where: {spread}", file=log, flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs for each script")
    parser.add_argument("--budget", help="as the scripts' (default: each script's own)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    if wrong := [name for name in asked.methods if name not in COMMANDS]:
        parser.error(f"{wrong[0]}: no such script")
    for method in asked.methods or COMMANDS:
        words = COMMANDS[method].split() + (["--budget", asked.budget] if asked.budget else [])
        with tempfile.TemporaryDirectory() as folder:
            under_fire(method, words, asked.kills, random.Random(f"{method}/{asked.seed}"), Path(folder), sys.stdout)


if __name__ == "__main__":
    main()
