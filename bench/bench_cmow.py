"""How fast matrices are composed: the tree and the prefix products beside the plain loop, forward and backward.

    python -m pytest bench/bench_cmow.py -s

Batch 32, L = 128, 20 x 20, float32. The targets are against the loop as `methods/cmow.py` defines it: 5 x for the
pooled product, 3 x for the prefixes. Most of that loop's time is not arithmetic. Every `M[:, i]` of its backward
pass makes and adds a gradient of the whole (B, L, s, s) tensor: 128 x 6.6 MB written, read and added, 2.5 GB in
all. A loop over `M.unbind(1)` has no such cost, and is printed as well ("unbound"). No algorithm can be 5 x faster
than that one on the same cores: forward and backward together need 3 L products of B matrices, 32 x 128 x 3 x
2 x 20^3 = 197 million operations, and the unbound loop already spends most of its time in them. For prefixes a
scan of logarithmic depth needs 5 L products, which is why a CPU takes the loop with its gradient in closed form
(3 L) and only accelerators, where the depth counts, the scan.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from methods.cmow import ordered_product, prefix_loop, prefix_products, product_loop

B, L, S = 32, 128, 20
Composition = Callable[[Tensor], Tensor]


def unbound_product(M: Tensor) -> Tensor:
    P, *rest = M.unbind(1)
    for m in rest:
        P = P @ m
    return P


def unbound_prefix(M: Tensor) -> Tensor:
    P = [M[:, 0]]
    for m in M.unbind(1)[1:]:
        P.append(P[-1] @ m)
    return torch.stack(P, 1)


def seconds(compose: Composition, M: Tensor) -> float:
    """Of a forward and a backward pass."""
    M = M.clone().requires_grad_()
    started = time.perf_counter()
    compose(M).sum().backward()
    return time.perf_counter() - started


@pytest.mark.parametrize(
    ("fast", "loop", "unbound", "target"),
    [(ordered_product, product_loop, unbound_product, 5.0), (prefix_products, prefix_loop, unbound_prefix, 3.0)],
    ids=["pooled", "prefix"],
)
def test_composition(benchmark: Any, fast: Composition, loop: Composition, unbound: Composition, target: float) -> None:
    """The median of the ratios of neighbouring measurements reaches the target."""
    torch.manual_seed(0)
    M = torch.eye(S) + 0.01 * torch.randn(B, L, S, S)
    ratios: dict[str, list[float]] = {"loop": [], "unbound": []}

    def turn() -> None:
        own = seconds(fast, M)
        ratios["loop"].append(seconds(loop, M) / own)
        ratios["unbound"].append(seconds(unbound, M) / own)

    benchmark.pedantic(turn, rounds=15, warmup_rounds=2)
    found = {name: statistics.median(values[2:]) for name, values in ratios.items()}
    benchmark.extra_info |= {f"{name} / fast": round(value, 2) for name, value in found.items()}
    print(f"\n{fast.__name__}: {found['loop']:.1f} x the loop, {found['unbound']:.1f} x the unbound loop")
    assert found["loop"] >= target
