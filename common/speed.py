"""How long things take, side by side: contenders take turns, so that a noisy machine is noisy for all of them; and how
much memory, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def medians(contenders: Mapping[str, Callable[[], object]], turns: int = 3) -> dict[str, float]:
    """Seconds that each call takes: the median over the turns, after one that warms up."""
    seconds: dict[str, list[float]] = {label: [] for label in contenders}
    for turn in range(turns + 1):
        for label, call in contenders.items():
            started = time.perf_counter()
            call()
            if turn:
                seconds[label].append(time.perf_counter() - started)
    return {label: statistics.median(values) for label, values in seconds.items()}


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a new process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
