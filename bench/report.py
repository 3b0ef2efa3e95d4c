"""What the programs of this folder share: their command line, where they save, and how they write figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from common import pocket, results

FOLDER = results.ROOT / "bench" / "results"


def parser(
    doc: str | None, name: str, tasks: list[str], out_dir: str = "runs", allowed: Sequence[str] = pocket.TASKS
) -> argparse.ArgumentParser:
    """--seeds, --tasks, --out-dir and --save, for a table over pocket tasks."""

    def task_names(text: str) -> list[str]:
        """`"cola,rte"` -> ["cola", "rte"], each one of those allowed."""
        for wrong in (found for found in text.split(",") if found not in allowed):
            raise argparse.ArgumentTypeError(f"{wrong}: must be of {', '.join(allowed)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=count, default=[0], metavar="N", help="how many seeds, from 0 (default: 1)")
    parser.add_argument(
        "--tasks", type=task_names, default=tasks, metavar="T,...", help=f"pocket tasks (default: {','.join(tasks)})"
    )
    parser.add_argument("--out-dir", type=Path, default=Path(out_dir), help="where the runs and teachers are")
    parser.add_argument("--save", action="store_true", help=f"write bench/results/{name}.json")
    return parser


def count(text: str) -> list[int]:
    """`"5"` -> the seeds [0, 1, 2, 3, 4]."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return list(range(int(text)))


def interval(values: list[float]) -> tuple[float, float | None, float | None]:
    """Mean and 95% interval (Student's t) over seeds; one value has no interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None, None
    half = float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))
    return mean, mean - half, mean + half


def difference(left: list[float], right: list[float]) -> str:
    """Left minus right in points, paired by seed, with its 95% interval, and what it says."""
    mean, low, high = interval([a - b for a, b in zip(left, right, strict=True)])
    if low is None or high is None:
        return f"{100 * mean:+.1f} (one seed)"
    word = "not distinguishable" if low <= 0 <= high else "higher" if mean > 0 else "lower"
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}], {word}"


def cell(values: list[float]) -> str:
    """Fractions as percent: their mean ± standard deviation."""
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"
