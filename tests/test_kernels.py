"""The ratios of the kernel benchmarks: read from a report, compared with the checked-in ones; measured again (slow)."""

from __future__ import annotations

from typing import Any

import pytest

from bench import kernels


def row(name: str, **noted: float) -> dict[str, Any]:
    return {"fullname": f"bench/bench_mc3kd.py::{name}", "name": name, "extra_info": noted}


def test_ratios_are_read_from_a_report() -> None:
    report = {"benchmarks": [row("a", **{"mc3kd / kd": 1.12345}), row("b", ours=20.0, library=50.0), row("c", sdpa=3)]}
    assert kernels.ratios_of(report) == {
        "bench_mc3kd::a, mc3kd / kd": 1.123, "bench_mc3kd::b, library / ours": 2.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "now", "called"),
    [
        ("x, loop / bare", 1.0, 1.19, False),
        ("x, loop / bare", 1.0, 1.21, True),
        ("x, loop / bare", 1.0, 0.5, False),
        ("x, library / ours", 2.4, 2.01, False),
        ("x, library / ours", 2.4, 1.99, True),
        ("x, loop / fast", 5.0, 9.0, False),
    ],
)
def test_a_fifth_worse_is_called(name: str, before: float, now: float, called: bool) -> None:
    lines = kernels.worse({name: before, "gone": 1.0}, {name: now, "new": 9.0})
    assert [line.split(":")[0] for line in lines] == ([name] if called else [])


def test_every_checked_in_ratio_is_of_a_benchmark() -> None:
    found = kernels.checked_in()
    assert found
    assert {name.split("::")[0].removeprefix("bench_") for name in found} <= set(kernels.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name.split("::")[0].removeprefix("bench_") for name in kernels.checked_in()}))
def test_no_kernel_is_a_fifth_slower_than_it_was(name: str) -> None:
    """Against bench/results/kernels.json; twice, before a busy machine is taken for a slow kernel."""
    before = {key: value for key, value in kernels.checked_in().items() if key.startswith(f"bench_{name}::")}
    lines: list[str] = []
    for _ in range(2):
        found, _ = kernels.measure([name])
        assert before.keys() <= found.keys()
        lines = kernels.worse(before, found)
        if not lines:
            return
    pytest.fail("\n".join(lines))
