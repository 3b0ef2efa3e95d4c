"""How long things take, side by side: contenders take turns, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


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
