"""The cache of models: made once, whole or not at all; damage is named and repaired."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from common import cache


def maker(made: list[Path], wait: float = 0.0) -> Any:
    def make(partial: Path) -> dict[str, Any]:
        time.sleep(wait)
        partial.mkdir()
        (partial / "config.json").write_text("{}")
        (partial / "model.safetensors").write_bytes(b"weights")
        made.append(partial)
        return {"times": len(made)}

    return make


def test_made_once_and_found_again(tmp_path: Path) -> None:
    made: list[Path] = []
    for _ in range(2):
        note = cache.fetch(tmp_path / "kind" / "abc", "note.json", "model", maker(made))
        assert note["times"] == 1
    assert len(made) == 1
    assert {path.name for path in (tmp_path / "kind" / "abc").iterdir()} == {
        "config.json", "model.safetensors", "note.json",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "note.json"])
@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_damage_is_named_and_the_model_made_again(
    name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []
    folder = tmp_path / "abc"
    cache.fetch(folder, "note.json", "model", maker(made))
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(before[:-1] + b"?" if damage == "changed" else before[: len(before) // 2])
    assert cache.fetch(folder, "note.json", "model", maker(made))["times"] == 2
    assert f"{folder}: damaged model in the cache" in capsys.readouterr().out
    assert cache.intact(folder, "note.json", "model")


def test_a_failure_leaves_no_folder_behind_its_name(tmp_path: Path) -> None:
    def fails(partial: Path) -> dict[str, Any]:
        partial.mkdir()
        (partial / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.fetch(tmp_path / "abc", "note.json", "model", fails)
    assert not (tmp_path / "abc").exists()
    made: list[Path] = []
    assert cache.fetch(tmp_path / "abc", "note.json", "model", maker(made))["times"] == 1


def test_two_at_once_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[Path] = []
    notes: list[dict[str, Any]] = []

    def work() -> None:
        notes.append(cache.fetch(tmp_path / "abc", "note.json", "model", maker(made, wait=0.2)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [note["times"] for note in notes] == [1, 1, 1]
    assert f"{tmp_path / 'abc'}: another process is making it; waiting" in capsys.readouterr().out


def test_a_key_depends_on_the_recipe_and_not_on_its_order() -> None:
    assert cache.key({"a": 1, "b": 2}) == cache.key({"b": 2, "a": 1})
    assert cache.key({"a": 1}) != cache.key({"a": 2})
    assert json.dumps({"a": 1}) not in cache.key({"a": 1})
