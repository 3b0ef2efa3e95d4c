"""The kernels of all methods beside their rivals, in one command: every `bench/bench_*.py`, and the ratios they print.

    python -m bench kernels                    # all of them, some minutes; the ratios beside the checked-in ones
    python -m bench kernels mc3kd loop         # bench_mc3kd.py and bench_loop.py alone
    python -m bench kernels --save             # also writes what was measured into bench/results/kernels.json

A ratio is named as what it divides. Of those over what is ours, "... / ours" and "... / fast", larger is better; of all
others smaller. One that is more than 20% worse than the checked-in one is called so, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cli import Parser
from common import results
from common.args import BadInput, fail

FOLDER = results.ROOT / "bench"
CHECKED_IN = FOLDER / "results" / "kernels.json"
TOLERANCE = 0.2
Ratios = dict[str, float]  # "file::test, ratio" -> value


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def ratios_of(report: dict[str, Any]) -> Ratios:
    """The ratios in a report of pytest-benchmark. Of times noted as "ours" and "library": theirs over ours."""
    found: Ratios = {}
    for row in report["benchmarks"]:
        noted = row["extra_info"]
        if {"ours", "library"} <= noted.keys():
            noted = {"library / ours": noted["library"] / noted["ours"]}
        label = f"{Path(row['fullname'].split('::')[0]).stem}::{row['name']}"
        found |= {f"{label}, {name}": round(value, 3) for name, value in noted.items() if " / " in name}
    return found


def measure(chosen: list[str]) -> tuple[Ratios, bool]:
    """The ratios of these benchmarks, and whether all have met their own targets. What fails has no ratio."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        files = [str(FOLDER / f"bench_{name}.py") for name in chosen]
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *files]
        # started by a worker of pytest-xdist, pytest-benchmark would take itself for one and measure nothing
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
        done = subprocess.run(
            [*command, f"--benchmark-json={path}"], cwd=results.ROOT, env=environment | {"HF_HUB_OFFLINE": "1"}
        )
        return ratios_of(json.loads(path.read_text())) if path.exists() else {}, done.returncode == 0


def worse(checked_in: Ratios, found: Ratios) -> list[str]:
    """A line for each ratio that is more than `TOLERANCE` worse than the checked-in one."""
    lines = []
    for name in sorted(checked_in.keys() & found.keys()):
        before, now = checked_in[name], found[name]
        larger_is_better = name.endswith((" / ours", " / fast"))
        loss = before / now - 1 if larger_is_better else now / before - 1
        if loss > TOLERANCE:
            lines.append(f"{name}: {now:.2f}, checked in {before:.2f}, {100 * loss:.0f}% worse")
    return lines


def checked_in() -> Ratios:
    return json.loads(CHECKED_IN.read_text(encoding="utf-8"))["ratios"] if CHECKED_IN.exists() else {}


def main(argv: list[str]) -> None:
    parser = Parser("kernels", __doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(names())}; default: all")
    parser.add_argument("--save", action="store_true", help="write bench/results/kernels.json")
    given = parser.parse_args(argv)
    for wrong in (name for name in given.names if name not in names()):
        fail(BadInput(f"{wrong}: must be one or several of {', '.join(names())}"))
    before = checked_in()
    found, met = measure(given.names or names())
    rows = [[name, f"{value:.2f}", f"{before[name]:.2f}" if name in before else "-"] for name, value in found.items()]
    print(results.columns(rows, ["ratio", "now", "checked in"]))
    if given.save:
        results.write_json(CHECKED_IN, {"ratios": before | found, "environment": results.environment()})
        print(f"saved: {CHECKED_IN}")
    lines = worse(before, found)
    print("\n".join(lines))
    if lines or not met:
        raise SystemExit(1)
