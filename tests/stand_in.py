"""A matrix whose commands are a small script in place of the methods'; it needs neither torch nor a model."""

from __future__ import annotations

import itertools
from pathlib import Path

from bench.matrix import Job, Matrix
from common.args import CommonArgs

# Writes a result, its process id into it, for each variant; fails at one for which there is a file FAIL-<variant>, and
# waits at a seed for which there is a file HOLD-<seed>.
STAND_IN = """
import os, signal, sys, time
from pathlib import Path
out, seed, seconds, _, variant = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with open(Path(out).parent / "starts.txt", "a") as file:
    file.write(f"{Path(out).name} {seed} {variant}\\n")
for one in variant.split("+"):
    place = Path(out) / "mc3kd" / "pocket" / "rte" / one / f"seed{seed}" / "result.json"
    if not place.exists():
        if (Path(out).parent / f"FAIL-{one}").exists():
            sys.exit(f"error: {one} is broken")
        time.sleep(float(seconds))
        while (Path(out).parent / f"HOLD-{seed}").exists():
            time.sleep(0.02)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(os.getpid()))
    print(f"saved: {place.parent}")
"""


def stand_in(folder: Path, seeds: int = 4, seconds: float = 0.0, variants: str = "kd,mc3kd") -> Matrix:
    """A matrix of one row whose commands are the stand-in's."""
    path, out = folder / "stand_in.py", folder / "out"
    path.write_text(STAND_IN)
    out.mkdir(exist_ok=True)
    jobs = []
    for seed, variant in itertools.product(range(seeds), variants.split(",")):
        args = CommonArgs(task="pocket/rte", variant=variant, seed=seed)
        words = (str(path), str(out / "row"), str(seed), str(seconds), "--variant", variant)
        jobs.append(Job("row", "pocket/rte", seed, words, args, variant))
    return Matrix(out, jobs)


def cells(out: Path) -> dict[str, str]:
    """Result -> the id of the process that made it."""
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("result.json"))}


def starts(plan: Matrix) -> list[str]:
    return (plan.out / "starts.txt").read_text().splitlines()
