"""Records, tables and metrics: what is written validates, what is damaged is named, what differs is not compared."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, ran, records, stopped, tiny_bert, word_tokenizer
from filelock import FileLock
from safetensors.numpy import load_file
from scipy.stats import spearmanr
from sklearn.metrics import log_loss

from common import data, evaluate, metrics, models, results, run
from common.args import BadInput, CommonArgs
from common.tasks import TASKS, TaskData
from common.teacher import get_teacher
from common.train import Ledger


def record(**changes: Any) -> dict[str, Any]:
    return json.loads((ROOT / "tests/result.json").read_text(encoding="utf-8")) | changes


def changed(path: str, value: Any) -> dict[str, Any]:
    """A record with one field, named by its path, set to a value; `...` removes it."""
    made = record()
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
    *((name, ...) for name in record() if name not in ("agreement", "log_loss")),  # schema 1 has neither
    *((f"ledger/{name}", ...) for name in record()["ledger"] if name != "shared_seconds"),
    *((f"{part}surprise", 1) for part in ("", "student/", "teacher/", "ledger/")),
    *((name, NAN) for name in ("teacher/metrics/dev/accuracy", "primary/value", "student/speed", "analysis/rccc")),
    ("student", 1), ("environment", None),
]  # fmt: skip


# --- predictions ---------------------------------------------------------------------------------------------


def test_what_is_saved_does_not_depend_on_the_tokenizers_last_call(tmp_path: Path) -> None:
    """Its limit is that of the training, whatever the tokenizer's own, which stays."""
    tokenizer, model, found = word_tokenizer(), tiny_bert(), list[list[bytes]]()
    for more in ({}, {"truncation": True, "max_length": 5, "padding": "max_length"}):
        tokenizer("a good film", **more)
        models.save(model, tokenizer, tmp_path, "", 16)
        found.append([path.read_bytes() for path in sorted(tmp_path.iterdir())])
    assert found[0] == found[1]
    assert (models.load_tokenizer(str(tmp_path)).model_max_length, tokenizer.model_max_length) == (16, 64)


@pytest.mark.parametrize("name", ["sst2", "stsb"])
def test_a_run_records_its_predictions(name: str, glue: Path, tmp_path: Path) -> None:
    """On the reported split, in its order; metrics, agreement and log loss follow from them. A teacher is evaluated
    once, and a student that is not saved leaves the same record."""
    classes = name == "sst2"
    task = data.load(name, str(glue))
    settings = task.task.kind.settings(task.task)
    models.save(tiny_bert(3, 32, **settings), word_tokenizer(), tmp_path / "teacher", "")
    for save in (True, False):
        folders = {"out_dir": str(tmp_path / f"runs{save}"), "cache_dir": str(tmp_path)}
        given = {"student": "2x32", "init": "random", "max_length": 40, "teacher_epochs": 0, "save_student": save}
        args = CommonArgs(budget="64", **(folders | given))  # type: ignore[arg-type]
        teacher = get_teacher(args, task, str(tmp_path / "teacher"))
        one = run.Run(args, "mc3kd", "kd", task, teacher, 1)
        one.ledger = Ledger(steps=1, student_examples=1, student_tokens=1)
        record = one.finish(one.student())
        found = load_file(one.folder / "predictions.safetensors")["dev"]
        assert (one.folder / "model.safetensors").exists() is save
    assert len(list((tmp_path / "evaluations").glob("*/made.json"))) == 1
    labels = np.asarray(task.splits["dev"].labels)
    assert found.shape == ((len(labels), 2) if classes else (len(labels),))
    with torch.no_grad():
        inputs = teacher.tokenizer(*zip(*task.splits["dev"].texts, strict=True), padding=True, return_tensors="pt")
        expected = teacher.model(**inputs).logits.numpy()
    said = expected if classes else expected[:, 0]
    np.testing.assert_allclose(teacher.predictions["dev"], said, atol=1e-5)
    if classes:
        softmax = np.exp(found.astype(float)) / np.exp(found.astype(float)).sum(1, keepdims=True)
        metrics = {"accuracy": (found.argmax(1) == labels).mean()}
        agreement, loss = (found.argmax(1) == said.argmax(1)).mean(), log_loss(labels, softmax)
    else:
        metrics = {"pearson": np.corrcoef(found, labels)[0, 1], "spearman": spearmanr(found, labels).statistic}
        agreement, loss = np.corrcoef(found, said)[0, 1], ((found - labels) ** 2).mean()
    assert record["metrics"]["dev"] == pytest.approx(metrics)
    assert record["agreement"]["dev"] == pytest.approx(agreement, abs=1e-6)
    assert record["log_loss"]["dev"] == pytest.approx(loss)


# --- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "value"), BAD, ids=[f"{p}={'gone' if v is ... else v}" for p, v in BAD])
def test_a_wrong_record_is_neither_written_nor_read(path: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"result|unknown|lacks|no object|JSON compliant"):
        results.save(tmp_path, changed(path, value))
    assert not list(tmp_path.iterdir())
    file = tmp_path / "result.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(BadInput, match=str(file)):
        results.load(file)


def test_a_result_of_a_later_version(tmp_path: Path) -> None:
    results.save(tmp_path, changed("schema", results.SCHEMA_VERSION + 1))
    with pytest.raises(BadInput, match="schema 3, which this version does not read"):
        results.load(tmp_path / "result.json")


def test_a_record_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    """Flipped bits, cut ends, other encodings, nothing: never another figure, and always the file's name."""
    results.save(tmp_path, record())
    file, rng, refused = tmp_path / "result.json", random.Random(0), 0
    whole = file.read_bytes()
    assert results.load(file) == record()
    flips = [(i, 1 << rng.randrange(8)) for i in (rng.randrange(len(whole)) for _ in range(150))]
    damaged = [whole[:i] + bytes([whole[i] ^ bit]) + whole[i + 1 :] for i, bit in flips]
    others = [b"", b"{", b"[]", b"null", b"\xff\xfe{", b"{} {}", b"[" * 100_000, whole[:300]]
    for content in [*damaged, *others]:
        file.write_bytes(content)
        found = None
        with contextlib.suppress(BadInput):
            found = results.load(file)
        assert found in (None, record())  # a blank that became another, at most
        refused += found is None
    assert refused > 140
    file.unlink()
    with pytest.raises(BadInput, match=r"result\.json: cannot be read"):
        results.load(file)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_are_replaced_as_a_whole_with_the_rights_of_the_umask(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = tmp_path / "deep" / "x.json", os.umask(umask)
    try:
        results.write_json(file, {"old": 1})
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    with pytest.raises(TypeError):
        results.write_json(file, {"new": object()})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            results.write_json(file, {"new": 2})
    assert json.loads(file.read_text()) == {"old": 1}
    results.write_json(file, {"new": "é"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"new": "é"}
    assert [path.name for path in file.parent.iterdir()] == ["x.json"]


# --- tables --------------------------------------------------------------------------------------------------


def test_the_table() -> None:
    """Each teacher once, every run, columns aligned; what a run lacks is shown as missing."""
    other = record()["teacher"] | {"signature": "pocket-12+sst2#2", "name": "pocket-12"}
    lines = results.table([record(variant="finetune"), record(seed=1), record(analysis={}, teacher=other)]).splitlines()
    *lines, below = lines
    assert below == record()["comparable"]
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "teacher weights/minilm", "teacher pocket-12",
        "finetune 3x384 seed 0", "mc3kd 3x384 seed 1", "mc3kd 3x384 seed 0",
    ]  # fmt: skip
    assert ["61.37" in lines[2], "52.71" in lines[4], "0.5970" in lines[4], lines[6].endswith("-")] == [True] * 4
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert results.percent({"f1": 0.5, "perplexity": 12.345}) == "50.00/12.35"


def test_where_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.git_state() == {"commit": None, "dirty": None}  # outside of a checkout


# --- the folder of a run -------------------------------------------------------------------------------------


def test_signatures_depend_on_values_alone(small: list[str], tmp_path: Path) -> None:
    """Not on the order of declarations; what says where or how to run is no part of them."""

    def made(*argv: str) -> dict[str, Any]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        ran("mc3kd", *small, *argv, "--out-dir", out)
        return records(out)[0]

    first, same, other = made(), made("--device", "cpu", "--teacher-cache", "off"), made("--shrinkage", "0.01")
    assert first["signature"] == same["signature"] != other["signature"]
    assert first["comparable"] == other["comparable"]
    assert first["signature"].startswith(first["comparable"])
    assert list(first["settings"]) == sorted(first["settings"])
    assert "shrinkage:0.01" in other["signature"]
    assert made("--budget", "160")["comparable"] != first["comparable"]


def test_a_result_is_left_alone_unless_forced(small: list[str], tmp_path: Path) -> None:
    argv = [*small, "--out-dir", str(tmp_path)]
    ran("mc3kd", *argv)
    (file,) = tmp_path.rglob("result.json")
    whole, weights = file.read_bytes(), (file.parent / "model.safetensors").read_bytes()
    file.write_bytes(whole.replace(b'"seed": 0', b'"seed": 1'))
    assert f"{file}: damaged result" in stopped("mc3kd", *argv)
    ran("mc3kd", *argv, "--force")
    assert results.load(file)["metrics"] == json.loads(whole)["metrics"]
    assert (file.parent / "model.safetensors").read_bytes() == weights


def test_one_process_at_a_time_works_in_a_folder(small: list[str], tmp_path: Path) -> None:
    argv = [*small, "--out-dir", str(tmp_path)]
    ran("mc3kd", *argv)
    folder = next(tmp_path.rglob("result.json")).parent
    shutil.rmtree(folder)
    folder.mkdir()
    (held, holds), (ends, end) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        lock = FileLock(folder / ".lock")
        lock.acquire()
        os.write(holds, b"x")
        os.read(ends, 1)
        os._exit(0)
    os.read(held, 1)
    for extra in ([], ["--force"]):
        assert f"{folder}: another process is at work here" in stopped("mc3kd", *argv, *extra)
    assert [path.name for path in folder.iterdir()] == [".lock"]
    os.write(end, b"x")
    os.waitpid(pid, 0)
    ran("mc3kd", *argv)


# --- metrics -------------------------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    # tp 2, fp 1, fn 1, tn 2: precision = recall = 2/3; MCC = (4 - 1) / sqrt(3 * 3 * 3 * 3)
    predictions, labels = [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]
    assert metrics.accuracy(predictions, labels) == pytest.approx(4 / 6)
    assert metrics.f1(predictions, labels) == pytest.approx(2 / 3)
    assert metrics.matthews(predictions, labels) == pytest.approx(1 / 3)
    assert (metrics.f1([0, 0], [0, 1]), metrics.f1([1, 1], [0, 1])) == (0, pytest.approx(2 / 3))  # class 1 counts
    # deviations (-1, 0, 1) and (-4/3, -1/3, 5/3); ranks (1, 2, 3) and (1.5, 1.5, 3), ties averaged
    assert metrics.pearson([1, 2, 3], [0, 1, 3]) == pytest.approx(3 / np.sqrt(2 * 42 / 9))
    assert metrics.spearman([1, 2, 3], [4, 4, 5]) == pytest.approx(1.5 / np.sqrt(3))
    assert metrics.pearson([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman", "f1"])
def test_what_has_no_value_is_zero_and_silent(name: str) -> None:
    cases = [([0, 0], [0, 0])] if name == "f1" else [([2, 2, 2], [1, 2, 3]), ([1, 2, 3], [2, 2, 2]), ([1], [2])]
    for predictions, labels in cases:
        assert metrics.METRICS[name](predictions, labels) == 0.0


@pytest.mark.parametrize("name", [n for n, task in TASKS.items() if task.kind in ("classification", "regression")])
def test_compute_gives_every_metric_the_primary_first(name: str) -> None:
    task = TASKS[name]
    labels = [0.5, 2.0, 4.0] if task.kind == "regression" else [0, 1, 1]
    found = metrics.compute(task.metrics, labels, labels)
    assert list(found) == list(task.metrics)
    assert found == pytest.approx(dict.fromkeys(task.metrics, 1.0))
    wrong: list[tuple[Any, Any]] = [(labels, labels[:2]), ([], []), ([labels], [labels]), ([NAN, 1, 2], labels)]
    for predictions, truth in wrong:
        with pytest.raises(ValueError, match=r"both must be|finite"):
            metrics.compute(task.metrics, predictions, truth)


def test_no_figure_of_a_model_that_is_not_finite(sst2: TaskData) -> None:
    """A step with a finite loss may end at weights that are not; an argmax of NaN would still be a class."""
    model = tiny_bert(2, 16)
    with torch.no_grad():
        model.classifier.bias[0] = NAN
    with pytest.raises(BadInput, match=r"classifier\.bias is not finite"):
        evaluate.evaluate(model, word_tokenizer(), sst2, 16)
    with torch.no_grad():
        model.classifier.bias[0] = 0
        model.classifier.weight.fill_(3e38)
        model.bert.pooler.dense.bias.fill_(100.0)
    with pytest.raises(BadInput, match="outputs that are not finite, first for dev-"):
        evaluate.evaluate(model, word_tokenizer(), sst2, 16)
