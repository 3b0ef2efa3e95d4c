"""cka.py from end to end: the tables of every family, both stages, the budget, kills, and students that load again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, bert_config, error_line, in_process, kill_at_checkpoint, script, word_tokenizer
from test_texts import text_tokenizer, tiny_bart, write_pairs
from transformers import AutoModelForSeq2SeqLM, BertForMaskedLM, MarianConfig, MBartConfig, T5Config

from common import data, masked_lm, metrics, models, results, train
from methods import cka

Inside = Callable[..., tuple[int, str, str]]
SCRIPT = ROOT / "methods" / "cka.py"
SMALL = ("--budget", "256", "--max-length", "16", "--lr", "5e-3", "--pretraining-share", "0.25")


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    yield from in_process(capsys, cka)


@pytest.fixture(scope="session")
def basic(glue: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A teacher with a masked-LM head, which is fine-tuned within a few steps."""
    folder = tmp_path_factory.mktemp("models") / "masked"
    torch.manual_seed(0)
    models.save(BertForMaskedLM(bert_config(3, 32, initializer_range=0.3)), word_tokenizer(), folder, "")
    task = ["--task", "sst2", "--data-dir", str(glue), "--limit", "128", "--teacher", str(folder)]
    return [*task, "--teacher-epochs", "1", "--student", "2x16", *SMALL]


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("texts")
    write_pairs(root / "tatoeba_en_fr")
    return root


@pytest.fixture(scope="session")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bart"
    models.save(tiny_bart(), text_tokenizer(), folder, "")
    return folder


def cell(out: Path, variant: str = "cka", task: str = "sst2", seed: int = 0) -> Path:
    return out / "cka" / task / variant / f"seed{seed}"


def record(out: Path, variant: str = "cka", task: str = "sst2", seed: int = 0) -> dict[str, Any]:
    return results.load(cell(out, variant, task, seed) / "result.json")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_every_column_of_the_paper(basic: list[str], glue: Path, tmp_path: Path) -> None:
    """One budget for all rows, of which pre-training is a part; the curves; a student that loads again."""
    rows = ["finetune", "kd", "woh", "lin", "cka", "wopt"]
    done = script(*basic, "--budget", "640", "--variant", ",".join(rows), "--out-dir", tmp_path, path=SCRIPT)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("---\n")[1].splitlines()[:7]
    assert [line.split()[0] for line in table] == ["teacher", *rows]
    found = {name: record(tmp_path, name) for name in rows}
    assert {r["ledger"]["student_examples"] for r in found.values()} == {640}
    assert found["finetune"]["ledger"]["teacher_examples"] == 0
    # on the task each of its 128 examples once; the masks of pre-training change with every step
    asked = {name: 128 + (160 if cka.VARIANTS[name].pretraining else 0) for name in rows if name != "finetune"}
    assert {name: found[name]["ledger"]["teacher_examples"] for name in asked} == asked
    curves = json.loads((tmp_path / "cka" / "sst2" / "curves" / "seed0" / "pretraining.json").read_text())
    assert set(curves) == {"woh", "lin", "cka"}
    assert all(len(curve) == 5 and curve[-1] < curve[0] for curve in curves.values())
    on_task = json.loads((tmp_path / "cka" / "sst2" / "curves" / "seed0" / "task.json").read_text())
    assert set(on_task) == set(rows) - {"finetune"}
    assert all((tmp_path / "cka" / "sst2" / "curves" / "seed0" / f"{s}.png").exists() for s in ("pretraining", "task"))
    from transformers import AutoModelForSequenceClassification

    again = AutoModelForSequenceClassification.from_pretrained(cell(tmp_path)).eval()
    assert (again.config.num_hidden_layers, again.config.hidden_size) == (2, 16)
    sst2 = data.load("sst2", str(glue), limit=128)
    assert train.evaluate(again, word_tokenizer(), sst2, 16)[0] == found["cka"]["metrics"]


def test_a_teacher_without_a_masked_lm_head_gets_one(glue: Path, expert: Path, tmp_path: Path, inside: Inside,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Its training is charged, in teacher examples and on the clock."""
    monkeypatch.setitem(masked_lm.HEAD_RECIPE, "steps", 5)
    argv = ["--task", "sst2", "--data-dir", glue, "--teacher", expert, "--student", "2x16", *SMALL]
    code, _, err = inside(*argv, "--variant", "woh", "--out-dir", tmp_path)
    assert code == 0, err
    assert record(tmp_path, "woh")["ledger"]["teacher_examples"] == 256 + 5 * 32


def teacher_of(family: str, folder: Path) -> Path:
    """A small random encoder-decoder of a family."""
    torch.manual_seed(0)
    special = {"vocab_size": 31, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
    sizes = {"d_model": 16, "max_position_embeddings": 64, "forced_eos_token_id": None}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    config = {
        "bart": lambda: tiny_bart().config,
        "mbart": lambda: MBartConfig(**sizes, **special),
        "marian": lambda: MarianConfig(**sizes, **special, scale_embedding=True),
        "t5": lambda: T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, **special),
        "flan-t5": lambda: T5Config(
            d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu",
            tie_word_embeddings=False, **special,
        ),
    }[family]()  # fmt: skip
    models.save(AutoModelForSeq2SeqLM.from_config(config), text_tokenizer(), folder, "")
    return folder


@pytest.mark.parametrize("family", ["bart", "mbart", "marian", "t5", "flan-t5"])
def test_families_of_encoder_decoders(family: str, pairs: Path, tmp_path: Path, inside: Inside) -> None:
    """Pre-training and task, encoder and decoder matched; as it is, or fine-tuned; the student loads again."""
    folder = teacher_of(family, tmp_path / family)
    argv = ["--task", "tatoeba/en-fr", "--data-dir", pairs, "--teacher", folder, "--student", "2x8", *SMALL]
    argv += ["--budget", "128", "--out-dir", tmp_path, "--teacher-epochs", "0" if family == "marian" else "1"]
    argv += ["--prompt", "the film :"] if "t5" in family else []
    code, _, err = inside(*argv, "--variant", "lin,cka")
    assert code == 0, err
    found = record(tmp_path, "cka", "tatoeba/en-fr")
    assert set(found["metrics"]["test"]) == {"bleu"}
    assert ("prompt" in found["origin"]) == ("t5" in family)
    assert "tok:13a" in found["comparable"]
    assert found["ledger"]["student_examples"] == 128
    curves = found["analysis"]["validation"]
    assert all(len(curves[stage]) > 0 for stage in ("pretraining", "task"))
    student = AutoModelForSeq2SeqLM.from_pretrained(cell(tmp_path, "cka", "tatoeba/en-fr")).eval()
    task = data.prompted(data.load("tatoeba/en-fr", str(pairs)), "the film :" if "t5" in family else "")
    assert models.stack_depths(student.config) == [1, 1]
    assert student.config.hidden_size == 8
    assert train.evaluate(student, text_tokenizer(), task, 16)[0] == found["metrics"]
    written, given = (
        (cell(tmp_path, "cka", "tatoeba/en-fr") / f"test.{kind}.txt").read_text().splitlines()
        for kind in ("written", "reference")
    )
    assert given == task.splits["test"].labels
    assert metrics.bleu(written, given) == found["metrics"]["test"]


def test_both_sides_are_matched(bart: Path) -> None:
    """CKA of encoder and decoder, by hand, over the tokens that are no padding."""
    teacher, student = tiny_bart().eval(), tiny_bart(1, 8, 1).eval()
    ids = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    batch["labels"] = torch.tensor([[11, 12, 13, 3], [14, 3, -100, -100]])
    args = cka.Args(student="2x8")
    objective = cka.make_objective(args, "cka", True, True, student, teacher)
    assert objective.layers == [[2], [2]]
    s, t = cka.outputs(objective, student, teacher, batch)
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    own = student(**inputs, labels=batch["labels"], output_hidden_states=True)
    theirs = teacher(**inputs, labels=batch["labels"], output_hidden_states=True)
    wanted = torch.stack([
        cka.cka_loss(own.encoder_hidden_states[1][ids > 0][None], theirs.encoder_hidden_states[2][ids > 0][None]),
        cka.cka_loss(
            own.decoder_hidden_states[1][batch["labels"] >= 0][None],
            theirs.decoder_hidden_states[2][batch["labels"] >= 0][None],
        ),
    ])  # fmt: skip
    found = torch.stack([cka.cka_loss(*pair) for pair in cka.states(objective, s, t, batch)])
    torch.testing.assert_close(found, wanted)
    # CLM as the library computes it, and KL over the same rows
    loss = cka.output_loss(args, objective, s, t, batch)
    rows = batch["labels"] >= 0
    torch.testing.assert_close(loss, own.loss + cka.kd_loss(own.logits[rows], theirs.logits[rows], 1.0))


def test_distilbart(bart: Path, pairs: Path, tmp_path: Path, inside: Inside) -> None:
    """Layers copied from a teacher of the same width, matched by cosine and squared distance; no pre-training."""
    argv = ["--task", "tatoeba/en-fr", "--data-dir", pairs, "--teacher", bart, "--student", "2x16", "--init", "copy"]
    argv += [*SMALL, "--budget", "64", "--teacher-epochs", "0", "--pretraining", "off", "--out-dir", tmp_path]
    code, _, err = inside(*argv, "--variant", "cosine,mse")
    assert code == 0, err
    for variant in ("cosine", "mse"):
        found = record(tmp_path, variant, "tatoeba/en-fr")
        assert found["student"]["init"] == "copy"
        assert found["analysis"]["validation"]["pretraining"] == []
    code, _, err = inside(*argv, "--variant", "woh")
    assert code == 2
    assert "is kd" in error_line(err)


@pytest.mark.parametrize(
    "changes",
    [
        ["--minibatches", "4", "--history", "exact"],
        ["--minibatches", "4", "--precision", "bf16"],
        ["--budget", "1s", "--pretraining", "off"],
        ["--finetuning", "labels", "--layer-map", "1,3", "--beta", "2", "--temperature", "2", "--ffn", "24"],
    ],
    ids=" ".join,
)
def test_other_ways_to_run(changes: list[str], basic: list[str], tmp_path: Path, inside: Inside) -> None:
    code, _, err = inside(*basic, *changes, "--variant", "cka", "--out-dir", tmp_path)
    assert code == 0, err
    assert record(tmp_path)["ledger"]["student_examples"] > 0


def test_a_killed_run_goes_on_to_the_same_bits(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """Killed in pre-training, then on the task; Lin's projections and the curves are part of what goes on."""
    argv = [*basic, "--variant", "lin", "--budget", "640"]
    assert inside(*argv, "--out-dir", tmp_path / "whole")[0] == 0
    out = tmp_path / "killed"
    for place, extra in ((out / "cache" / "pretraining", []), (cell(out, "lin"), ["--resume"])):
        kill_at_checkpoint(place, *argv, "--out-dir", out, *extra, path=SCRIPT)
    code, text, err = inside(*argv, "--out-dir", out, "--resume")
    assert code == 0, err
    assert "continued at step" in text
    assert digest(cell(out, "lin")) == digest(cell(tmp_path / "whole", "lin"))
    first, second = (record(o, "lin") for o in (out, tmp_path / "whole"))
    assert first["metrics"] == second["metrics"]
    assert first["analysis"] == second["analysis"]


def test_pretraining_is_made_once_for_all_its_rows(basic: list[str], tmp_path: Path, inside: Inside) -> None:
    assert inside(*basic, "--variant", "cka", "--out-dir", tmp_path)[0] == 0
    folders = [path for path in (tmp_path / "cache" / "pretraining").iterdir() if path.is_dir()]
    assert [path.suffix for path in folders] == [""]
    before = (folders[0] / "model.safetensors").stat().st_mtime_ns
    argv = ["--variant", "cka", "--finetuning", "labels", "--out-dir", tmp_path, "--force"]
    assert inside(*basic, *argv)[0] == 0
    assert (folders[0] / "model.safetensors").stat().st_mtime_ns == before
    assert record(tmp_path)["student"]["init"] == f"pre-training #{folders[0].name}"


def test_an_odd_number_of_layers(bart: Path, pairs: Path, tmp_path: Path, inside: Inside) -> None:
    argv = ["--task", "tatoeba/en-fr", "--data-dir", pairs, "--teacher", bart, "--student", "3x8", *SMALL]
    code, _, err = inside(*argv, "--teacher-epochs", "0", "--variant", "kd", "--out-dir", tmp_path)
    assert code == 2
    assert "both sides" in error_line(err)


def test_params(inside: Inside) -> None:
    code, text, _ = inside("--params")
    assert code == 0
    assert "0 mismatches" in text
