"""Contenders take turns; the first turn is not counted."""

import pytest

from common import speed


def test_medians_of_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    takes = {"a": [100.0, 1.0, 2.0, 30.0], "b": [100.0, 5.0, 5.0, 5.0]}
    clock = 0.0

    def call(label: str) -> None:
        nonlocal clock
        clock += takes[label][calls.count(label)]
        calls.append(label)

    monkeypatch.setattr("time.perf_counter", lambda: clock)
    assert speed.medians({"a": lambda: call("a"), "b": lambda: call("b")}) == {"a": 2.0, "b": 5.0}
    assert calls == ["a", "b"] * 4
