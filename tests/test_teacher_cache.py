"""Kept outputs of a teacher: the same numbers, the right rows, damage noticed, the cost charged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from conftest import FAMILIES, kill_at_checkpoint, tiny_bert, word_tokenizer
from test_scripts import outcome
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

from common import data, results, teacher_cache, train
from common.args import CommonArgs
from common.data import TaskData
from common.teacher import Teacher, frozen

Inside = Callable[..., tuple[int, str, str]]
CPU = torch.device("cpu")


def make_guide(
    task: TaskData, folder: Path, model: Any, tokenizer: Any = None, steps: int | None = 1000, how: str = "auto",
    layers: tuple[int, ...] = (), ledger: train.Ledger | None = None, encoded: data.Encoded | None = None,
) -> tuple[teacher_cache.Guide, data.Encoded]:  # fmt: skip
    tokenizer = tokenizer or word_tokenizer()
    teacher = Teacher("t", frozen(model, CPU), tokenizer, "t", {}, 1.0, 1, None)
    encoded = encoded or data.encode(tokenizer, data.head(task.splits["train"], 150), task.task, 16)
    args = CommonArgs(teacher_cache=how, cache_dir=str(folder))  # type: ignore[arg-type]
    cell: Any = SimpleNamespace(task=task)
    made = teacher_cache.guide(
        args, cell, teacher, encoded, steps, ledger or train.Ledger(), Accelerator(cpu=True), layers
    )
    return made, encoded


@pytest.mark.parametrize("family", ["bert", "xlnet"])  # padded on the right, on the left
@pytest.mark.parametrize(("how", "close"), [("fp32", 1e-6), ("fp16", 5e-3)])
def test_what_is_read_is_what_is_computed(family: str, how: str, close: float, sst2: TaskData, tmp_path: Path) -> None:
    """Logits and hidden states of batches in any order, by the examples' ids."""
    tokenizer, model = word_tokenizer(), tiny_bert()
    if family == "xlnet":
        tokenizer.padding_side = "left"
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(
            AutoConfig.for_model("xlnet", vocab_size=31, num_labels=2, **FAMILIES["xlnet"])
        )
    guide, encoded = make_guide(sst2, tmp_path, model, tokenizer, how=how, layers=(1, 2))
    assert guide.charge == 0
    batches = data.Batches(encoded, tokenizer, 8, seed=3)
    for step in range(20):
        inputs = {k: v for k, v in batches[step].items() if k != "labels"}
        read = guide(batches.ids(step), output_hidden_states=True, **inputs)
        with torch.no_grad():
            computed = model(**inputs, output_hidden_states=True)
        torch.testing.assert_close(read.logits, computed.logits, atol=close, rtol=close)
        valid = inputs["attention_mask"].bool()
        for layer in (1, 2):
            own = read["hidden_states"][layer]
            torch.testing.assert_close(own[valid], computed.hidden_states[layer][valid], atol=close, rtol=close)
            assert not own[~valid].any()
        assert read.logits.dtype == torch.float32


def test_outputs_by_token(tmp_path: Path) -> None:
    """Tags: as many rows as an example has tokens."""
    task = data.load("pocket/ner", limit=3)
    tokenizer = word_tokenizer()
    encoded = data.encode(tokenizer, task.splits["train"], task.task, 24)
    torch.manual_seed(0)
    config = AutoConfig.for_model("bert", vocab_size=31, num_labels=len(task.task.labels), **FAMILIES["roberta"])
    model = AutoModelForTokenClassification.from_config(config).eval()
    guide, _ = make_guide(task, tmp_path, model, encoded=encoded)
    batches = data.ShortFirst(encoded, tokenizer, 4, 0, steps=2, tokens=20)
    for step in range(4):
        inputs = {k: v for k, v in batches[step].items() if k != "labels"}
        valid = inputs["attention_mask"].bool()
        with torch.no_grad():
            computed = model(**inputs).logits[valid]
        torch.testing.assert_close(guide(batches.ids(step), **inputs).logits[valid], computed, atol=1e-6, rtol=1e-6)


def test_another_batch_than_its_examples_is_refused(sst2: TaskData, tmp_path: Path) -> None:
    guide, encoded = make_guide(sst2, tmp_path, tiny_bert())
    batches = data.Batches(encoded, word_tokenizer(), 8, seed=0)
    with pytest.raises(RuntimeError, match="does not hold"):
        guide(batches.ids(1), **{k: v for k, v in batches[0].items() if k != "labels"})
    with pytest.raises(KeyError):
        guide(["nobody"] * 8, **{k: v for k, v in batches[0].items() if k != "labels"})


def test_kept_when_it_pays(sst2: TaskData, tmp_path: Path) -> None:
    """With auto, a function of the arguments and of the data alone: the same bits, whoever ran before."""
    encoded = data.encode(word_tokenizer(), data.head(sst2.splits["train"], 64), sst2.task, 16)

    def kept(how: str, steps: int | None, layers: tuple[int, ...] = ()) -> bool:
        guide, _ = make_guide(sst2, tmp_path, tiny_bert(), steps=steps, how=how, layers=layers, encoded=encoded)
        return guide.charge == 0

    assert not kept("auto", 2)  # 64 examples of 64
    assert not (tmp_path / "outputs").exists()
    assert kept("auto", 3)
    assert not kept("auto", 2)
    assert not kept("auto", None)  # seconds: who knows how many
    assert kept("fp32", 1)
    assert not kept("off", 1000)
    same = data.Encoded(["x"] * 64, encoded.features, encoded.labels, encoded.lengths)
    assert make_guide(sst2, tmp_path, tiny_bert(), encoded=same, how="fp32")[0].charge == 1


def test_a_large_file_is_not_made_unasked(sst2: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_cache, "MOST", 1000)
    assert make_guide(sst2, tmp_path, tiny_bert(), layers=(1,))[0].charge == 1
    assert make_guide(sst2, tmp_path, tiny_bert(), layers=(1,), how="fp32")[0].charge == 0
    assert make_guide(sst2, tmp_path, tiny_bert())[0].charge == 0


def test_every_run_is_charged_in_full(sst2: TaskData, tmp_path: Path) -> None:
    first, second = train.Ledger(), train.Ledger()
    for ledger in (first, second):
        make_guide(sst2, tmp_path, tiny_bert(), ledger=ledger)
    assert first.teacher_examples == second.teacher_examples == 150
    assert first.seconds == second.seconds > 0
    assert (first.shared_seconds, second.shared_seconds) == (0.0, second.seconds)
    assert first.steps == first.student_examples == 0


def test_another_teacher_or_other_examples_have_their_own_file(sst2: TaskData, tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    one = data.encode(tokenizer, data.head(sst2.splits["train"], 40), sst2.task, 16)
    other = data.Encoded(one.ids[::-1], one.features, one.labels, one.lengths)
    for count, (model, encoded) in enumerate([(tiny_bert(), one), (tiny_bert(seed=1), one), (tiny_bert(), other)], 1):
        make_guide(sst2, tmp_path, model, encoded=encoded)
        assert len(list(tmp_path.glob("outputs/*/outputs.safetensors"))) == count
    make_guide(sst2, tmp_path, tiny_bert(), encoded=one)
    assert len(list(tmp_path.glob("outputs/*/outputs.safetensors"))) == 3
    assert not list(tmp_path.glob("outputs/*/*.raw"))


def test_damage_is_noticed_and_the_file_made_again(
    sst2: TaskData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_guide(sst2, tmp_path, tiny_bert())
    (path,) = tmp_path.glob("outputs/*/outputs.safetensors")
    whole = path.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-7]):
        path.write_bytes(damaged)
        ledger = train.Ledger()
        make_guide(sst2, tmp_path, tiny_bert(), ledger=ledger)
        assert "damaged teacher's outputs" in capsys.readouterr().out
        assert path.read_bytes() == whole
        assert ledger.shared_seconds == 0


# --- scripts -----------------------------------------------------------------------------------------------


@pytest.fixture
def argv(glue: Path, expert: Path) -> list[str]:
    shape = ["--student", "2x16", "--max-length", "16", "--lr", "5e-3", "--selection-examples", "64"]
    return ["--task", "sst2", "--data-dir", str(glue), "--teacher", str(expert), *shape]


def test_the_loss_curve_is_the_same(argv: list[str], tmp_path: Path, inside: Inside) -> None:
    """To 1e-6 in float32, over one and a half epochs; teacher examples are counted once each."""
    logs: dict[tuple[str, str], list[float]] = {}
    for how in ("off", "fp32", "fp16"):
        out = tmp_path / how
        more = ("--budget", "2240", "--variant", "kd,mc3kd", "--teacher-cache", how, "--out-dir", out)
        assert inside(*argv, *more)[0] == 0
        for variant, extra in (("kd", 0), ("mc3kd", 64)):
            folder = out / "mc3kd" / "sst2" / variant / "seed0"
            lines = (folder / "log.jsonl").read_text().splitlines()
            logs[how, variant] = [json.loads(line)["loss"] for line in lines]
            record = results.load(folder / "result.json")
            assert record["ledger"]["teacher_examples"] == (2240 if how == "off" else 1500) + extra
            assert ("teacher_cache" in record["settings"]) == (how == "fp16")
    for variant in ("kd", "mc3kd"):
        assert len(logs["off", variant]) == 3
        assert logs["fp32", variant] == pytest.approx(logs["off", variant], abs=1.01e-6)  # as rounded in the log
        assert logs["fp16", variant] == pytest.approx(logs["off", variant], abs=2e-3)


def test_a_killed_run_ends_with_the_same_bits(argv: list[str], tmp_path: Path, inside: Inside) -> None:
    """The cost of the outputs is charged once; a run that finds them in the cache has the same result."""
    argv = [*argv, "--variant", "mc3kd", "--budget", "1920"]
    assert inside(*argv, "--out-dir", tmp_path / "whole")[0] == 0
    parts = tmp_path / "parts"
    place = parts / "mc3kd" / "sst2" / "mc3kd" / "seed0"
    kill_at_checkpoint(place, *argv, "--out-dir", parts)
    assert inside(*argv, "--out-dir", parts, "--resume")[0] == 0
    whole = tmp_path / "whole" / "mc3kd" / "sst2" / "mc3kd" / "seed0"
    assert outcome(place) == outcome(whole)
    assert results.load(whole / "result.json")["ledger"]["shared_seconds"] == 0
    again = tmp_path / "again"
    assert inside(*argv, "--out-dir", again, "--cache-dir", tmp_path / "whole" / "cache")[0] == 0
    found = again / "mc3kd" / "sst2" / "mc3kd" / "seed0"
    assert outcome(found) == outcome(whole)
    ledger = results.load(found / "result.json")["ledger"]
    assert 0 < ledger["shared_seconds"] < ledger["seconds"]
