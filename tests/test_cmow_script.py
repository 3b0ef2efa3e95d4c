"""cmow.py from end to end: the tables, the budget of two stages, the caches, kills, and students that load again."""

from __future__ import annotations

import hashlib
import json
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
from transformers import BertForMaskedLM

from common import data, models, results, train
from methods import cmow

Inside = Callable[..., tuple[int, str, str]]
SCRIPT = ROOT / "methods" / "cmow.py"
SMALL = (
    "--student",
    "bidirectional-3-9",
    "--mlp-width",
    "16",
    "--budget",
    "1280",
    "--max-length",
    "16",
    "--lr",
    "2e-2",
)


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    yield from in_process(capsys, cmow)


@pytest.fixture(scope="session")
def basic(glue: Path, expert: Path) -> list[str]:
    return ["--task", "sst2", "--data-dir", str(glue), "--teacher", str(expert), *SMALL]


def cell(out: Path, variant: str = "kd", task: str = "sst2", seed: int = 0) -> Path:
    return out / "cmow" / task / variant / f"seed{seed}"


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_three_rows_and_a_student_that_loads_again(basic: list[str], sst2: data.TaskData, tmp_path: Path) -> None:
    done = script(*basic, "--out-dir", tmp_path, path=SCRIPT)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.split("---\n")[1].splitlines()[:3]
    assert [row.split()[0] for row in rows] == ["teacher", "finetune", "kd"]
    records = {v: results.load(cell(tmp_path, v) / "result.json") for v in ("finetune", "kd")}
    for variant, record in records.items():
        assert record["ledger"]["student_examples"] == 1280
        assert record["student"]["shape"] == "bidirectional-3-9"
        assert record["student"]["init"] == "random"
        assert record["metrics"]["dev"]["accuracy"] > 0.75, variant
    assert records["finetune"]["ledger"]["teacher_examples"] == 0
    assert records["kd"]["ledger"]["teacher_examples"] == 1280

    # the call that the model card documents, in another process, as it stands there
    card = (cell(tmp_path) / "README.md").read_text()
    assert "A bidirectional-3-9 student" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]  # type: ignore[index]
    code = code.replace('folder = "."', f"folder = {str(cell(tmp_path))!r}").replace(
        "tokenizer(sentence", "tokenizer('the film was good'"
    )
    code = f"sentence = 'the film was good'\n{code}".replace('tokenizer("sentence"', "tokenizer(sentence")
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    from transformers import AutoModelForSequenceClassification

    again = AutoModelForSequenceClassification.from_pretrained(cell(tmp_path)).eval()
    assert isinstance(again, cmow.MatrixEmbeddingForSequenceClassification)
    inputs = word_tokenizer()("the film was good", return_tensors="pt")
    assert str(again(**inputs).logits).split("grad_fn")[0] == loaded.stdout.strip().split("grad_fn")[0]
    assert train.evaluate(again, word_tokenizer(), sst2, 16)[0] == records["kd"]["metrics"]


def test_general_distillation_is_charged_and_made_once(
    basic: list[str], backbone: Path, tmp_path: Path, inside: Inside
) -> None:
    """The teacher has no masked-LM head: one is trained, on the clock. Variants and seeds share what was made."""
    out = ("--out-dir", tmp_path)
    argv = [*basic, "--general-share", "0.25", "--general-lr", "5e-3", *out]
    code, _, err = inside(*argv, "--init", "random,general", "--variant", "finetune,kd")
    assert code == 0, err
    rows = {v: results.load(cell(tmp_path, v) / "result.json") for v in ("finetune", "kd")}
    general = {v: results.load(cell(tmp_path, f"general-{v}") / "result.json") for v in rows}
    assert {r["ledger"]["student_examples"] for r in (*rows.values(), *general.values())} == {1280}
    assert {r["ledger"]["steps"] for r in (*rows.values(), *general.values())} == {40}
    assert len({r["comparable"] for r in (*rows.values(), *general.values())}) == 1
    folders = [path for path in (tmp_path / "cache" / "general").iterdir() if path.is_dir()]
    assert len(folders) == 1
    note = json.loads((folders[0] / "general.json").read_text())
    assert note["ledger"]["student_examples"] == 320
    head = 300 * 32  # examples that the new masked-LM head has read
    assert note["ledger"]["teacher_examples"] == 320 + head
    assert general["finetune"]["ledger"]["teacher_examples"] == 320 + head
    assert general["kd"]["ledger"]["teacher_examples"] == 1280 + head
    assert general["kd"]["ledger"]["seconds"] > note["ledger"]["seconds"]
    assert general["kd"]["student"]["init"] == f"general distillation #{folders[0].name}"

    before = {path: path.read_bytes() for path in folders[0].iterdir()}
    assert inside(*argv, "--init", "general", "--variant", "finetune", "--seed", "1")[0] == 0
    assert {path: path.read_bytes() for path in folders[0].iterdir()} == before

    # a folder that was made so, as the first embeddings
    assert inside(*argv, "--init", folders[0], "--variant", "kd")[0] == 0
    record = results.load(cell(tmp_path, "pretrained-kd") / "result.json")
    assert record["student"]["init"].endswith("not charged")
    assert record["ledger"]["teacher_examples"] == 1280
    code, _, err = inside(*argv, "--init", folders[0], "--student", "hybrid-3-9", "--seed", "2")
    assert code == 2
    assert "bidirectional" in error_line(err)
    code, _, err = inside(*argv, "--init", backbone, "--seed", "2")
    assert code == 2
    assert "--init" in error_line(err)

    # a damaged cache is noticed and made again, to the same bits
    weights = folders[0] / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, text, _ = inside(*argv, "--init", "general", "--variant", "finetune", "--seed", "3")
    assert code == 0
    assert "damaged general distillation" in text
    assert weights.read_bytes() == whole


def test_the_undistilled_row_does_not_depend_on_the_others(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """The same bits whether a row is run alone, beside others, or after general distillation drew random numbers."""
    assert inside(*basic, "--out-dir", tmp_path / "a", "--variant", "kd")[0] == 0
    assert inside(*basic, "--out-dir", tmp_path / "b", "--variant", "finetune,kd")[0] == 0
    assert digest(cell(tmp_path / "a")) == digest(cell(tmp_path / "b"))
    assert digest(cell(tmp_path / "b", "finetune")) != digest(cell(tmp_path / "b"))


def test_a_killed_run_goes_on_to_the_same_bits(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """Killed in general distillation, then in the task's training."""
    argv = [*basic, "--init", "general", "--variant", "kd", "--budget", "1920"]
    assert inside(*argv, "--out-dir", tmp_path / "whole")[0] == 0
    out = tmp_path / "killed"
    for place, extra in ((out / "cache" / "general", []), (cell(out, "general-kd"), ["--resume"])):
        kill_at_checkpoint(place, *argv, "--out-dir", out, *extra, path=SCRIPT)
    code, text, err = inside(*argv, "--out-dir", out, "--resume")
    assert code == 0, err
    assert "continued at step" in text
    assert digest(cell(out, "general-kd")) == digest(cell(tmp_path / "whole", "general-kd"))
    records = [results.load(cell(o, "general-kd") / "result.json") for o in (out, tmp_path / "whole")]
    assert records[0]["metrics"] == records[1]["metrics"]
    assert records[0]["ledger"]["student_tokens"] == records[1]["ledger"]["student_tokens"]


@pytest.mark.parametrize(
    "changes",
    [
        ["--head", "cnn"],
        ["--head", "bilstm", "--diffcat", "on"],
        ["--student", "cbow-9", "--head", "linear", "--alpha", "0"],
        ["--student", "cmow-3", "--loss", "mse", "--temperature", "2"],
        ["--precision", "bf16", "--hidden-dropout", "0.2", "--embedding-dropout", "0.1"],
        ["--augment", "1"],
        ["--budget", "1s"],
    ],
    ids=" ".join,
)
def test_other_ways_to_run(changes: list[str], basic: list[str], tmp_path: Path, inside: Inside) -> None:
    code, _, err = inside(*basic, "--budget", "128", *changes, "--variant", "kd", "--out-dir", tmp_path)
    assert code == 0, err
    record = results.load(next(tmp_path.rglob("result.json")))
    if "1s" in changes:
        assert 1 <= record["ledger"]["seconds"] < 30


def test_augmentation_by_the_masked_lm_of_the_teacher(glue: Path, tmp_path: Path, inside: Inside) -> None:
    torch.manual_seed(0)
    model = BertForMaskedLM(bert_config(2, 16, initializer_range=0.3))
    models.save(model, word_tokenizer(), tmp_path / "lm", "")
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
    kd = results.load(cell(tmp_path) / "result.json")
    assert kd["ledger"]["teacher_examples"] > 128 + 32  # the words that the masked LM was asked for
    assert results.load(cell(tmp_path, "finetune") / "result.json")["ledger"]["teacher_examples"] == 0

    # the same teacher has its own masked-LM head: general distillation by the clock
    argv = [*argv, *SMALL, "--init", "general", "--variant", "kd", "--out-dir", tmp_path]
    code, _, err = inside(*argv, "--budget", "2s")
    assert code == 0, err
    ledger = results.load(cell(tmp_path, "general-kd") / "result.json")["ledger"]
    assert 2 <= ledger["seconds"] < 30
    code, _, err = inside(*argv, "--budget", "32", "--seed", "1")
    assert code == 2
    assert "--budget 32" in error_line(err)


@pytest.mark.parametrize("how", ["regression", "classes"])
def test_stsb_both_ways(how: str, glue: Path, tmp_path: Path, inside: Inside) -> None:
    models.save(tiny_bert(2, 16).bert, word_tokenizer(), tmp_path / "body", "")
    argv = ["--task", "stsb", "--data-dir", glue, "--teacher", tmp_path / "body", "--teacher-epochs", "1", *SMALL]
    code, _, err = inside(*argv, "--budget", "128", "--stsb", how, "--out-dir", tmp_path)
    assert code == 0, err
    record = results.load(cell(tmp_path, task="stsb-21" if how == "classes" else "stsb") / "result.json")
    assert set(record["metrics"]["dev"]) == {"pearson", "spearman"}
    config = json.loads((next(tmp_path.rglob("kd/seed0")) / "config.json").read_text())
    assert len(config["id2label"]) == (21 if how == "classes" else 1)
    assert config["diffcat"] is True


def test_a_corpus_of_ones_own(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "text").write_text("the film was good\n\nthe cast was bad with the music\n" * 30)
    argv = [*basic, "--budget", "128", "--init", "general", "--variant", "finetune", "--out-dir", tmp_path]
    code, _, err = inside(*argv, "--corpus", tmp_path / "text")
    assert code == 0, err
    (tmp_path / "empty").write_text("\n\n")
    code, _, err = inside(*argv, "--corpus", tmp_path / "empty", "--seed", "1")
    assert code == 2
    assert "--corpus" in error_line(err)


def test_params_and_profile(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    code, text, _ = inside("--params")
    assert code == 0
    assert "0 mismatches" in text
    code, text, err = inside(*basic, "--profile", "--out-dir", tmp_path)
    assert code == 0, err
    rows = text.split("---\n")[1].splitlines()
    assert [row.split()[0] for row in rows[:3]] == ["teacher", "DistilBERT-shaped", "bidirectional-3-9"]
    found = json.loads(next(tmp_path.rglob("bidirectional-3-9-mlp.json")).read_text())["models"]
    assert all(row["1"] > 0 and row["64"] > 0 for row in found.values())
