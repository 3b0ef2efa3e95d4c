"""Large teachers: half precision, several devices, and students whose activations are computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import bert_config, error_line, word_tokenizer, write_sst2
from test_parallel import METHODS, run_script
from transformers import BertForMaskedLM

from common import models, parallel, results, teacher
from common.args import CommonArgs

STEPS = 12
# with dropout, which has to be drawn again as it was
RUNS = {
    "mc3kd": "mc3kd --variant mc3kd --student 2x16 --lr 5e-3",
    "cka": "cka --variant cka --student 2x16 --lr 2e-3",
    "xtc": "xtc --variant xtc --student 2x32 --bits 8 --lr 1e-3",
    "efficient_attention": "efficient_attention --variant convert-distil --window 4 --short-length 16 --max-length 32",
    "cmow": "cmow --variant kd --student cmow-3 --mlp-width 16 --init general",
}


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("large")
    write_sst2(root / "data" / "SST-2", 100, 20)
    torch.manual_seed(0)
    models.save(BertForMaskedLM(bert_config(4, 32, initializer_range=0.2)), word_tokenizer(), root / "teacher", "")
    torch.manual_seed(0)
    steady = bert_config(4, 32, initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    models.save(BertForMaskedLM(steady), word_tokenizer(), root / "steady", "")
    task = ["--task", "sst2", "--data-dir", str(root / "data"), "--teacher", str(root / "teacher"), "--device", "cpu"]
    size = ["--batch-size", "8", "--max-length", "16", "--budget", str(STEPS * 8), "--teacher-cache", "off"]
    return [*task, "--teacher-epochs", "1", "--teacher-lr", "3e-3", *size]


def curve(line: str, argv: list[str], folder: Path, *more: str, dropout: bool = True) -> list[float]:
    import json

    run_script(line, [*argv, *more], folder / "out", folder / "seen", dropout=dropout)
    return [json.loads(text) for text in (folder / "seen" / "losses.0").read_text().splitlines()]


def record(folder: Path) -> dict[str, Any]:
    return results.load(next(folder.rglob("result.json")))


def mostly_slow(*default: str, without: str = "") -> list[Any]:
    """The methods, those that are not default marked slow."""
    return [m if m in default else pytest.param(m, marks=pytest.mark.slow) for m in RUNS if m != without]


@pytest.mark.parametrize("method", mostly_slow("xtc", without="cmow"))
def test_gradient_checkpointing_changes_nothing(method: str, basic: list[str], tmp_path: Path) -> None:
    argv = [*basic, "--cache-dir", str(tmp_path / "cache")]
    plain = curve(RUNS[method], argv, tmp_path / "plain")
    (tmp_path / "cache").rename(tmp_path / "other")  # what was pre-trained is trained again
    again = curve(RUNS[method], argv, tmp_path / "again", "--gradient-checkpointing")
    assert len(plain) == STEPS
    assert again == pytest.approx(plain, rel=1e-6)
    assert record(tmp_path / "plain")["signature"] == record(tmp_path / "again")["signature"]


@pytest.mark.parametrize("method", mostly_slow("efficient_attention", without="cka"))
def test_accumulated_gradients_are_those_of_the_batch(method: str, basic: list[str], tmp_path: Path) -> None:
    """Where losses are means over rows the curve is the same; statistics of a part are near those of the batch."""
    steady = [word.replace("/teacher", "/steady") for word in basic]
    plain = curve(RUNS[method], steady, tmp_path / "plain", dropout=False)
    parts = curve(RUNS[method], steady, tmp_path / "parts", "--accumulate", "3", dropout=False)
    assert parts == pytest.approx(plain, rel=0.2 if method == "mc3kd" else 0.02)
    assert parts[0] != plain[0] or method != "mc3kd"
    assert record(tmp_path / "parts")["settings"]["accumulate"] == 3
    assert (
        record(tmp_path / "parts")["ledger"]["student_examples"]
        == record(tmp_path / "plain")["ledger"]["student_examples"]
    )


def test_parts_hold_every_row_once() -> None:
    batch, ids = {"x": torch.arange(8)}, list("abcdefgh")
    for number, sizes in ((1, [8]), (3, [2, 3, 3]), (20, [1] * 8)):
        found = list(parallel.parts(batch, ids, number))
        assert [len(part.ids) for part in found] == sizes
        assert torch.equal(torch.cat([part.rows["x"] for part in found]), batch["x"])
        assert [i for part in found for i in part.ids] == ids
        assert sum(part.share for part in found) == pytest.approx(1)


def test_checkpointing_keeps_less() -> None:
    """Between the passes a layer's inputs are held, not what is inside of it."""
    held = []
    for wanted in (False, True):
        torch.manual_seed(0)
        model = BertForMaskedLM(bert_config(6, 32)).train()
        if wanted:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        size = 0

        def pack(x: torch.Tensor) -> torch.Tensor:
            nonlocal size
            size += x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            model(torch.randint(5, 30, (4, 32))).logits.sum()
        held.append(size)
    assert held[1] < held[0] / 2


@pytest.mark.parametrize("method", mostly_slow("mc3kd"))
def test_a_teacher_in_half_precision(method: str, basic: list[str], tmp_path: Path) -> None:
    """Half the bytes, nearly the same losses, and a result of its own; students stay in float32."""
    full = curve(RUNS[method], basic, tmp_path / "full")
    half = curve(RUNS[method], basic, tmp_path / "half", "--teacher-precision", "bf16")
    assert half == pytest.approx(full, rel=0.05)
    assert half != full
    one, other = record(tmp_path / "full"), record(tmp_path / "half")
    assert other["teacher"]["bytes"] == one["teacher"]["bytes"] / 2
    assert other["student"]["bytes"] == one["student"]["bytes"]
    assert other["teacher"]["signature"] == one["teacher"]["signature"] + "@bf16"
    assert "teacher_precision" not in one["settings"]
    assert other["settings"]["teacher_precision"] == "bf16"


def test_outputs_are_float32() -> None:
    model = teacher.frozen(BertForMaskedLM(bert_config()), torch.device("cpu"), "bf16")
    out = model(torch.randint(5, 30, (2, 8)), output_hidden_states=True)
    assert {x.dtype for x in (out.logits, *out.hidden_states)} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.slow
def test_a_teacher_that_the_library_places(basic: list[str], tmp_path: Path) -> None:
    """The same bits where everything fits on one device."""
    argv = [*basic, "--cache-dir", str(tmp_path / "cache")]
    plain = curve(RUNS["mc3kd"], argv, tmp_path / "plain")
    placed = curve(RUNS["mc3kd"], argv, tmp_path / "placed", "--teacher-device-map", "auto")
    assert placed == plain


@pytest.mark.parametrize(
    ("method", "argument"),
    [("xtc", "--teacher-device-map auto"), ("cmow", "--gradient-checkpointing"), ("cka", "--accumulate 2")],
)
def test_what_cannot_be(method: str, argument: str, basic: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from common import args

    module = METHODS[method]
    with pytest.raises(SystemExit) as stop:
        args.parse(module.Args, module.__doc__, [*basic, *argument.split()])
    assert stop.value.code == 2
    assert argument in error_line(capsys.readouterr().err)


def test_the_defaults_are_no_settings() -> None:
    assert teacher.half(CommonArgs()) == ""
    assert teacher.large_settings(CommonArgs()) == {}
