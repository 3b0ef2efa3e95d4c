"""Records and tables: what is written validates, what is damaged is named, what differs is not compared."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from common import results
from common.args import BadInput


def record(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "schema": 1,
        "method": "mc3kd",
        "variant": "mc3kd",
        "task": "pocket/sst2",
        "source": "pocket",
        "origin": "pocket v1",
        "fingerprint": "0123456789abcdef",
        "seed": 0,
        "budget": {"name": "smoke", "kind": "examples", "amount": 640, "comparable": True},
        "metrics": {"test": {"accuracy": 0.75}},
        "primary": {"name": "accuracy", "value": 0.75},
        "teacher": {
            "name": "pocket",
            "signature": "pocket+sst2#1",
            "parameters": 1_000_000,
            "bytes": 4_000_000,
            "speed": 1000.0,
            "metrics": {"test": {"accuracy": 0.9612}},
            "analysis": {"rccc": 0.5},
        },
        "student": {"shape": "2x64", "init": "random", "parameters": 200_000, "bytes": 800_000, "speed": 4000.0},
        "ledger": {
            "steps": 20,
            "student_examples": 640,
            "student_tokens": 9000,
            "teacher_examples": 640,
            "seconds": 3.5,
            "peak_memory_bytes": 1,
        },
        "analysis": {"rccc": 0.25, "layers": [2, 4]},
        "settings": {"lr": 1e-3},
        "environment": {"versions": {}, "hardware": {}, "git": {}},
        "command": "python methods/mc3kd.py",
        "finished": "2025-01-01T00:00:00+00:00",
        "comparable": "task:pocket/sst2|budget:640",
        "signature": "task:pocket/sst2|budget:640|method:mc3kd",
    }
    return made | changes


def changed(path: str, value: Any) -> dict[str, Any]:
    """A record with one field, named by its path, set to a value; `...` removes it."""
    made = copy.deepcopy(record())
    *parents, last = path.split("/")
    place = made
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


NAN = float("nan")
BAD: list[tuple[str, Any]] = [
    *[(name, ...) for name in record()],
    *[(f"ledger/{name}", ...) for name in record()["ledger"]],
    ("surprise", 1),
    ("student/surprise", 1),
    ("teacher/surprise", 1),
    ("ledger/surprise", 1),
    ("schema", 2),
    ("seed", -1),
    ("seed", 0.5),
    ("seed", "0"),
    ("source", "elsewhere"),
    ("budget/kind", "steps"),
    ("budget/amount", 0),
    ("metrics", {}),
    ("metrics/test", {}),
    ("metrics/test/accuracy", "0.75"),
    ("metrics/test/accuracy", 75.0),
    ("metrics/test/accuracy", NAN),
    ("metrics/test/accuracy", None),
    ("teacher/metrics/test/accuracy", NAN),
    ("primary/value", NAN),
    ("primary/value", None),
    ("student/parameters", 0),
    ("student/speed", 0),
    ("student/speed", NAN),
    ("ledger/seconds", NAN),
    ("ledger/seconds", -1),
    ("analysis/rccc", NAN),
    ("ledger/steps", 0),
]


def test_a_record_survives_the_round_trip(tmp_path: Path) -> None:
    results.save(tmp_path / "a", record())
    assert results.load(tmp_path / "a" / "result.json") == record()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["result.json"]


@pytest.mark.parametrize(("path", "value"), BAD, ids=[f"{p}={'gone' if v is ... else v}" for p, v in BAD])
def test_a_wrong_record_is_not_written(path: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises((jsonschema.ValidationError, ValueError)):
        results.save(tmp_path, changed(path, value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("path", "value"), BAD[:3] + BAD[-12:], ids=str)
def test_a_wrong_record_is_named_when_read(path: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(BadInput, match=str(file)):
        results.load(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", json.dumps(record())[:300], "\x00\x01", "{} {}"])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"result\.json: .*--force"):
        results.load(file)


def test_a_record_in_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(b"\xff\xfe{")
    with pytest.raises(BadInput, match=r"result\.json: damaged"):
        results.load(file)


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"result\.json: cannot be read"):
        results.load(tmp_path / "result.json")


def test_write_json_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails before the rename leaves the old file as it was."""
    file = tmp_path / "deep" / "x.json"
    results.write_json(file, {"old": 1})
    with pytest.raises(TypeError):
        results.write_json(file, {"new": object()})
    assert json.loads(file.read_text()) == {"old": 1}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            results.write_json(file, {"new": 2})
    assert json.loads(file.read_text()) == {"old": 1}
    results.write_json(file, {"new": "é"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"new": "é"}


def test_the_table_has_the_teacher_once_and_every_run() -> None:
    runs = [record(variant="finetune"), record(seed=1)]
    lines = results.table(runs).splitlines()
    assert lines[0] == record()["comparable"]
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "teacher pocket",
        "finetune 2x64 seed 0",
        "mc3kd 2x64 seed 1",
    ]
    assert "96.12" in lines[3]
    assert "75.00" in lines[4]
    assert "0.2500" in lines[4]
    assert len({len(line) for line in lines[1:]}) == 1


def test_two_teachers_have_two_rows() -> None:
    other = record()["teacher"] | {"signature": "pocket-12+sst2#2", "name": "pocket-12"}
    text = results.table([record(), record(teacher=other)])
    assert text.count("teacher pocket ") == text.count("teacher pocket-12 ") == 1


def test_the_table_refuses_what_is_not_comparable() -> None:
    with pytest.raises(BadInput, match=r"not comparable.*budget:640.*budget:1280"):
        results.table([record(), record(variant="kd", comparable="task:pocket/sst2|budget:1280")])


def test_a_figure_that_one_run_lacks_is_shown_as_missing() -> None:
    text = results.table([record(), record(variant="kd", analysis={})])
    assert "nan" in text.splitlines()[-1]


def test_environment_says_what_ran_where() -> None:
    found = results.environment()
    assert set(results.LIBRARIES) <= set(found["versions"])
    assert found["hardware"]["device"]
    assert found["hardware"]["threads"] >= 1
    if (results.ROOT / ".git").exists():
        assert len(found["git"]["commit"]) == 40
        assert isinstance(found["git"]["dirty"], bool)


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.git_state() == {"commit": None, "dirty": None}


def test_one_line_and_percent() -> None:
    assert results.one_line({"a": 1, "b": "x"}) == "a:1|b:x"
    assert results.percent({"f1": 0.5, "accuracy": 0.66667}) == "50.00/66.67"
