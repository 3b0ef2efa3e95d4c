"""xtc.py from end to end: rows, stages in the log, real bytes, kills, runs that go on from runs, refusals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from conftest import (
    ENVIRONMENT,
    ROOT,
    bert_config,
    error_line,
    in_process,
    kill_at_checkpoint,
    script,
    tiny_bert,
    word_tokenizer,
)
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertForMaskedLM

import common.layers.packed
from common import args, data, models, results, train
from methods import xtc

Inside = Callable[..., tuple[int, str, str]]
SCRIPT = ROOT / "methods" / "xtc.py"
SMALL = ("--student", "2x32", "--budget", "960", "--max-length", "16", "--lr", "3e-3")


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    yield from in_process(capsys, xtc)


@pytest.fixture(scope="session")
def basic(glue: Path, expert: Path) -> list[str]:
    return ["--task", "sst2", "--data-dir", str(glue), "--teacher", str(expert), *SMALL]


def say(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """`predict` in this process: (exit code, stdout, stderr)."""
    capsys.readouterr()
    code = 0
    try:
        args.run(xtc.predict, xtc.predict_arguments([str(word) for word in words]))
    except SystemExit as stop:
        code = int(stop.code or 0)
    done = capsys.readouterr()
    return code, done.out, done.err


def cell(out: Path, label: str = "xtc-1bit-1s", task: str = "sst2", seed: int = 0) -> Path:
    return results.folder_of(out, "xtc", task, label, seed)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_rows_and_a_student_that_loads_again(
    basic: list[str], sst2: data.TaskData, tmp_path: Path, inside: Inside
) -> None:
    code, out, err = inside(*basic, "--out-dir", tmp_path, "--export", tmp_path / "tiny.packed")
    assert code == 0, err
    rows = out.split("---\n")[1].splitlines()[:4]
    assert [row.split()[0] for row in rows] == ["teacher", "finetune-1bit", "kd-1bit", "xtc-1bit-1s"]
    records = {label: results.load(cell(tmp_path, label) / "result.json")
               for label in ("finetune-1bit", "kd-1bit", "xtc-1bit-1s")}  # fmt: skip
    for label, record in records.items():
        assert record["ledger"]["student_examples"] == 960
        assert record["ledger"]["teacher_examples"] == (0 if label.startswith("finetune") else 960)
        assert record["student"]["bytes"] == (cell(tmp_path, label) / "model.safetensors").stat().st_size
        assert record["metrics"]["dev"]["accuracy"] > 0.8, label
    # the call that the model card documents, in another process, as it stands there
    call = re.search(r"```python\n(.*?)```", (cell(tmp_path) / "README.md").read_text(), re.DOTALL)[1]  # type: ignore[index]
    call = call.replace('folder = "."', f"folder = {str(cell(tmp_path))!r}")
    call = call.replace('"sentence"', "'the film was good'")
    loaded = subprocess.run([sys.executable, "-c", call], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    again = AutoModelForSequenceClassification.from_pretrained(cell(tmp_path)).eval()
    assert any(isinstance(module, common.layers.packed.PackedLinear) for module in again.modules())
    inputs = word_tokenizer()("the film was good", return_tensors="pt")
    logits = again(**inputs).logits
    assert str(logits).split("grad_fn")[0] == loaded.stdout.strip().split("grad_fn")[0]
    assert train.evaluate(again, word_tokenizer(), sst2, 16)[0] == records["xtc-1bit-1s"]["metrics"]
    # and the one file: the same logits, a smaller one than the float weights beside it
    model, _ = common.layers.packed.load(tmp_path / "tiny.packed")
    assert torch.equal(model(**inputs).logits, logits)
    assert record["student"]["bytes"] < (cell(tmp_path) / "latent.safetensors").stat().st_size / 2
    said = script("predict", tmp_path / "tiny.packed", "the film was good", path=SCRIPT)
    assert said.returncode == 0, said.stderr
    p, label = said.stdout.splitlines()[0].split()
    assert label == model.config.id2label[int(logits.argmax())]
    assert float(p) == pytest.approx(logits.softmax(-1).max().item(), abs=1e-4)


def test_the_saved_bits_are_the_trained_ones(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """From the float weights that are kept for `--init`, quantised as in training: the file's logits, bit for bit."""
    assert inside(*basic, "--variant", "xtc", "--bits", "2,1", "--lora-rank", "2", "--out-dir", tmp_path)[0] == 0
    inputs = word_tokenizer()(["the film was good", "a plot"], padding=True, return_tensors="pt")
    for bits in (2, 1):
        folder = cell(tmp_path, f"xtc-{bits}bit-1s")
        small = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        del small.config.quantization_config
        trained = AutoModelForSequenceClassification.from_config(small.config).eval()
        xtc.quantize(trained, bits, lora_rank=2)
        state = load_file(folder / "latent.safetensors")
        names = dict(zip(xtc.latent(trained), trained.state_dict(), strict=True))
        trained.load_state_dict({names[name]: value for name, value in state.items()})
        assert torch.equal(small(**inputs).logits, trained(**inputs).logits)


def test_stages_switch_at_the_right_steps_and_rates(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """One budget for 1S, 2S and 3S; each stage warms up and decays again; stage I peaks at 2.5 x."""
    code, _, err = inside(*basic, "--variant", "xtc", "--stages", "1,2,3", "--budget", "1920", "--out-dir", tmp_path)
    assert code == 0, err
    for n, ends in ((1, [60]), (2, [30, 60]), (3, [20, 40, 60])):
        record = results.load(cell(tmp_path, f"xtc-1bit-{n}s") / "result.json")
        assert record["ledger"]["steps"] == 60
        assert record["ledger"]["student_examples"] == record["ledger"]["teacher_examples"] == 1920
        rows = log(cell(tmp_path, f"xtc-1bit-{n}s"))
        assert [max(row["step"] for row in rows if row["stage"] == k + 1) for k in range(n)] == ends
        for row in rows:
            first = [0, *ends][int(row["stage"]) - 1]
            total, step = ends[int(row["stage"]) - 1] - first, row["step"] - 1 - first
            peak = 3e-3 * (2.5 if n > 1 and row["stage"] == 1 else 1)
            warm = round(0.1 * total)
            expected = peak * (step / warm if step < warm else (total - step) / (total - warm))
            assert row["lr"] == pytest.approx(expected)


def test_a_killed_run_goes_on_to_the_same_bits(
    basic: list[str], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped dead in the first stage, and killed in the second."""
    argv = [*basic, "--variant", "xtc", "--stages", "2"]
    assert inside(*argv, "--out-dir", tmp_path / "whole")[0] == 0
    out = tmp_path / "killed"
    folder = cell(out, "xtc-1bit-2s")

    def stop(_loss: torch.Tensor, step: int, _ids: list[str]) -> None:
        if step == 8:
            raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(train, "check_finite", stop)
        assert inside(*argv, "--out-dir", out, "--save-every", "0")[0] == 9
    kill_at_checkpoint(folder / "stage2", *argv, "--out-dir", out, "--resume", path=SCRIPT)
    code, text, err = inside(*argv, "--out-dir", out, "--resume")
    assert code == 0, err
    assert "continued at step" in text
    whole = cell(tmp_path / "whole", "xtc-1bit-2s")
    assert digest(folder) == digest(whole)
    assert [row["step"] for row in log(folder)] == [row["step"] for row in log(whole)]
    records = [results.load(f / "result.json") for f in (folder, whole)]
    assert records[0]["metrics"] == records[1]["metrics"]
    assert records[0]["ledger"]["student_tokens"] == records[1]["ledger"]["student_tokens"]


def test_going_on_from_another_run(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """Table C.14: 2 bits, then 1 bit from its float weights; with the figures of both; C.15: a smaller teacher."""
    argv = [*basic, "--variant", "xtc", "--budget", "320"]
    assert inside(*argv, "--bits", "32,2", "--out-dir", tmp_path / "a")[0] == 0
    two = cell(tmp_path / "a", "xtc-2bit-1s")
    code, _, err = inside(*argv, "--init", two, "--lora-rank", "1", "--out-dir", tmp_path / "b")
    assert code == 0, err
    one = cell(tmp_path / "b")
    assert models.file_digest(two) in results.load(one / "result.json")["student"]["init"]
    code, _, err = inside("--analyse", f"{two},{one}", "--out-dir", tmp_path)
    assert code == 0, err
    found = json.loads((tmp_path / "xtc" / "analysis" / "analysis.json").read_text())
    assert len(found) == 2
    assert all(len(row["distance"]) == 12 for row in found.values())
    assert {path.name for path in (tmp_path / "xtc" / "analysis").glob("*.png")} == {"distance.png", "weights.png"}
    # adapters are taken over, and not lost silently
    code, _, err = inside(*argv, "--init", one, "--out-dir", tmp_path / "c")
    assert code == 2
    assert "--lora-rank 1" in error_line(err)
    assert inside(*argv, "--init", one, "--lora-rank", "1", "--out-dir", tmp_path / "d")[0] == 0
    assert inside(*argv, "--init", cell(tmp_path / "a", "xtc-32bit-1s"), "--out-dir", tmp_path / "e")[0] == 0
    # the reduced float student as the teacher
    smaller = [*argv, "--teacher", cell(tmp_path / "a", "xtc-32bit-1s"), "--out-dir", tmp_path / "f"]
    code, _, err = inside(*smaller)
    assert code == 0, err
    assert results.load(cell(tmp_path / "f") / "result.json")["analysis"]["layers"] == [0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        ["--ste", "clipped", "--layers", "0,2"],
        ["--layers", "top", "--bits", "8"],
        ["--layers", "bottom", "--bits", "4"],
        ["--augment", "1", "--budget", "paper", "--paper-budget", "A", "--limit", "64"],
        ["--precision", "bf16", "--stages", "3"],
        ["--budget", "2s", "--stages", "2"],
    ],
    ids=" ".join,
)
def test_other_ways_to_run(changes: list[str], basic: list[str], tmp_path: Path, inside: Inside) -> None:
    code, _, err = inside(*basic, "--budget", "128", "--variant", "xtc", *changes, "--out-dir", tmp_path)
    assert code == 0, err
    record = results.load(next(tmp_path.rglob("result.json")))
    if "paper" in changes:
        assert record["ledger"]["steps"] == 4  # one epoch over 64 texts and a copy of each
        assert not record["budget"]["comparable"]


def test_a_regression_and_the_pretrained_layers(
    glue: Path, tmp_path: Path, inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    models.save(tiny_bert(3, 32).bert, word_tokenizer(), tmp_path / "body", "")
    argv = ["--task", "stsb", "--data-dir", glue, "--teacher", tmp_path / "body", "--teacher-epochs", "1", *SMALL]
    code, _, err = inside(
        *argv, "--budget", "96", "--init", "pretrained", "--export", tmp_path / "m", "--out-dir", tmp_path
    )
    assert code == 0, err
    assert set(results.load(cell(tmp_path, task="stsb") / "result.json")["metrics"]["dev"]) == {"pearson", "spearman"}
    code, out, err = say(capsys, tmp_path / "m", "a film", "a plot")
    assert re.fullmatch(r"-?\d+\.\d{4}\n", out), err


def test_augmentation_by_the_masked_lm_of_the_teacher(glue: Path, tmp_path: Path, inside: Inside) -> None:
    torch.manual_seed(0)
    models.save(BertForMaskedLM(bert_config(2, 32, initializer_range=0.3)), word_tokenizer(), tmp_path / "lm", "")
    argv = [
        "--task",
        "sst2",
        "--data-dir",
        glue,
        "--teacher",
        tmp_path / "lm",
        "--limit",
        "64",
        "--teacher-epochs",
        "1",
    ]
    code, _, err = inside(*argv, *SMALL, "--augment", "2", "--budget", "128", "--out-dir", tmp_path)
    assert code == 0, err
    ledgers = {v: results.load(cell(tmp_path, v) / "result.json")["ledger"] for v in ("finetune-1bit", "xtc-1bit-1s")}
    assert ledgers["xtc-1bit-1s"]["teacher_examples"] > 128 + 32  # the words that the masked LM was asked for
    assert ledgers["finetune-1bit"]["teacher_examples"] == 0


@pytest.mark.parametrize("words", [[], ["nowhere"], ["nowhere", "text"], ["m", "a", "b", "c"]])
def test_predicting_from_nothing_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = say(capsys, *words)
    assert code == 2
    assert error_line(err).startswith("error: ")


def test_real_bytes_of_a_berts_geometry(tmp_path: Path) -> None:
    """4 layers, in the time of a test; `--sizes`, marked slow, writes all of them."""
    assert xtc.written(4, 1, 0, tmp_path) < 10.8
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == os.path.getsize(tmp_path / "4-1-0")


@pytest.mark.slow
def test_sizes() -> None:
    done = script("--sizes", path=SCRIPT)
    assert done.returncode == 0, done.stderr
    assert "0 mismatches" in done.stdout
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    found = {row[0]: float(row[5]) for row in rows if row[-1] == "ok" and row[5] != "-"}
    assert found["12 layers, 1 bit"] <= 17.7
    assert found["6 layers, 1 bit"] <= 12.3
