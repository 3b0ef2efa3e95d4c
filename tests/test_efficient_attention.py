"""efficient_attention.py: the loss, the student's layers, both orders, the budget, kills, sizes, and the profile."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import ENVIRONMENT, POSITIVE, ROOT, bert_config, in_process, word_tokenizer
from test_attention import converted
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertForMaskedLM

from common import data, masked_lm, models, results, train
from common.layers import attention
from methods import efficient_attention as ea

Inside = Callable[..., tuple[int, str, str]]
TASK = data.TASKS["sst2"]


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    yield from in_process(capsys, ea)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A "pre-trained" masked language model of three layers that reads 64 tokens."""
    folder = tmp_path_factory.mktemp("models") / "masked-lm"
    torch.manual_seed(0)
    models.save(BertForMaskedLM(bert_config(3, 32)), word_tokenizer(), folder, "# masked LM\n")
    return folder


@pytest.fixture(scope="session")
def basic(glue: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Converted models read 128 tokens, the others 16; one cache for the teacher alone, as it is the same in all."""
    cache_dir = str(tmp_path_factory.mktemp("cache"))
    argv = "--window 8 --max-length 128 --short-length 16 --budget 640 --batch-size 16 --lr 5e-3 --limit 600"
    argv += f" --task sst2 --data-dir {glue} --teacher {checkpoint} --teacher-lr 3e-3 --cache-dir {cache_dir}"
    return argv.split()


def cell(out: Path, variant: str, seed: int = 0, task: str = "sst2") -> Path:
    return out / "efficient_attention" / task / variant / f"seed{seed}"


# --- the loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("soft_labels", ["all", "masked"])
def test_loss_by_hand(soft_labels: str) -> None:
    """Token by token: 5 T^2 KL + 2 CE + 1 (1 - cos); the teacher gets no gradient."""
    torch.manual_seed(0)
    B, L, V, D = 2, 5, 7, 4
    logits = [torch.randn(B, L, V, requires_grad=True) for _ in range(2)]
    hidden = [torch.randn(B, L, D, requires_grad=True) for _ in range(2)]
    student = SimpleNamespace(logits=logits[0], hidden_states=(None, hidden[0]))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    labels = torch.tensor([[-100, 3, -100, 0, -100], [-100, -100, 6, -100, -100]])

    kl, ce, cosine = [], [], []
    for b in range(B):
        for i in range(L):
            if not mask[b, i]:
                continue
            p = [[math.exp(float(z) / 2) for z in x[b, i]] for x in logits]
            p = [[z / sum(row) for z in row] for row in p]
            if soft_labels == "all" or labels[b, i] >= 0:
                kl.append(4 * sum(t * math.log(t / s) for s, t in zip(*p, strict=True)))
            if labels[b, i] >= 0:
                ce.append(-float(logits[0][b, i].log_softmax(0)[labels[b, i]]))
            s, t = hidden[0][b, i], hidden[1][b, i]
            cosine.append(1 - float(s @ t / (s.norm() * t.norm())))

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    expected = 5 * mean(kl) + 2 * mean(ce) + mean(cosine)
    with torch.no_grad():
        guide = SimpleNamespace(logits=logits[1].detach(), hidden_states=(None, hidden[1].detach()))
    loss = ea.pretraining_loss(student, guide, labels, mask, soft_labels)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert logits[1].grad is None
    assert torch.equal(logits[0].grad[1, 3:], torch.zeros(2, V))  # type: ignore[index]
    assert torch.equal(hidden[0].grad[1, 3:], torch.zeros(2, D))  # type: ignore[index]
    alone = ea.pretraining_loss(student, None, labels, mask, soft_labels)
    assert float(alone) == pytest.approx(mean(ce), rel=1e-5)


def test_vanilla_kd_by_hand() -> None:
    """0.1 L_labels + 0.9 T^2 KL(teacher || student), a mean over predictions; of scores, the squared distance."""
    torch.manual_seed(0)
    s, t = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    inputs = {"labels": torch.tensor([0, 3, 1]), "attention_mask": torch.ones(3, 5)}
    labels = torch.nn.functional.cross_entropy(s, inputs["labels"])
    out, soft = SimpleNamespace(logits=s, loss=labels), SimpleNamespace(logits=t.detach())
    p, q = ((x / 2).softmax(-1) for x in (t, s))
    expected = 0.1 * labels + 0.9 * 4 * (p * (p / q).log()).sum(-1).mean()
    loss = ea.task_loss(out, soft, inputs, "classification")
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    loss.backward()
    assert s.grad is not None
    assert t.grad is None
    assert ea.task_loss(out, None, inputs, "classification") is labels
    one = SimpleNamespace(logits=s[:, :1], loss=labels)
    scores = ea.task_loss(one, SimpleNamespace(logits=t[:, :1].detach()), inputs, "regression")
    assert float(scores) == pytest.approx(float(0.1 * labels + 0.9 * (s - t)[:, 0].square().mean()), rel=1e-5)


def test_gradient_of_the_loss() -> None:
    """Against finite differences, in double precision."""
    torch.manual_seed(0)
    mask, labels = torch.ones(1, 3, dtype=torch.long), torch.tensor([[-100, 2, -100]])
    guide = SimpleNamespace(logits=torch.randn(1, 3, 4).double(), hidden_states=(torch.randn(1, 3, 2).double(),))

    def loss(logits: Tensor, hidden: Tensor) -> Tensor:
        return ea.pretraining_loss(SimpleNamespace(logits=logits, hidden_states=(hidden,)), guide, labels, mask, "all")

    inputs = (torch.randn(1, 3, 4).double().requires_grad_(), torch.randn(1, 3, 2).double().requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)


# --- the student --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(attention.ATTENTIONS))
def test_every_other_layer(name: str) -> None:
    """Layers 0 and 2 of four, with what conversion gave them; the original keeps its own."""
    model = converted(name)
    half = ea.halve(model)
    assert (half.config.num_hidden_layers, model.config.num_hidden_layers) == (2, 4)
    weights = model.state_dict()
    for key, weight in half.state_dict().items():
        assert torch.equal(weight, weights[key.replace("layer.1.", "layer.2.")]), key
    ids = torch.randint(5, 31, (2, 64))
    states = model(input_ids=ids, output_hidden_states=True).hidden_states
    assert torch.equal(half(input_ids=ids, output_hidden_states=True).hidden_states[1], states[1])
    with torch.no_grad():
        half.get_input_embeddings().weight.zero_()
    assert model.get_input_embeddings().weight.abs().sum() > 0


def test_packed_text() -> None:
    """Every token of the texts in order, each text closed by a separator, in full blocks with their own ends."""
    tokenizer = word_tokenizer()
    texts = ["the film was good", "a plot", "the music and the cast"] * 3
    encoded = masked_lm.packed(tokenizer, texts, 10)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    stream = [t for text in texts for t in (*tokenizer(text, add_special_tokens=False)["input_ids"], sep)]
    blocks = encoded.features["input_ids"]
    assert [t for block in blocks for t in block[1:-1]] == stream[: 8 * len(blocks)]
    assert len(stream) - 8 * len(blocks) < 8
    assert all((len(block), block[0], block[-1]) == (10, cls, sep) for block in blocks)
    assert len(masked_lm.packed(tokenizer, ["a plot"], 10)) == 1
    assert len(masked_lm.packed(tokenizer, texts * 100, 10, most=3)) < len(masked_lm.packed(tokenizer, texts * 100, 10))


# --- the script ---------------------------------------------------------------------------------------------


def test_both_orders(basic: list[str], glue: Path, tmp_path: Path, inside: Inside) -> None:
    """Six rows of one budget; stages are made once and charged to each; students load again as the card says."""
    argv = [*basic, "--cache-dir", tmp_path / "cache", "--out-dir", tmp_path]
    code, out, err = inside(*argv, "--variant", ",".join(ea.VARIANTS))
    assert code == 0, err
    assert [row.split()[0] for row in out.split("---\n")[1].splitlines()[:7]] == ["teacher", *ea.VARIANTS]
    records = {v: results.load(cell(tmp_path, v) / "result.json") for v in ea.VARIANTS}
    assert {record["ledger"]["steps"] for record in records.values()} == {40}
    assert len({record["comparable"] for record in records.values()}) == 1
    shapes = {v: record["student"]["shape"] for v, record in records.items()}
    assert shapes == dict.fromkeys(ea.VARIANTS, "2x32") | {"convert": "3x32"}
    notes = [json.loads(path.read_text()) for path in (tmp_path / "cache" / "efficient").glob("*/stage.json")]
    assert sorted(note["recipe"]["stage"] for note in notes) == ["convert", "convert", "distil", "distil"]
    steps = {(n["recipe"]["stage"], n["recipe"]["length"]): n["ledger"]["steps"] for n in notes}
    assert steps == {("convert", 128): 4, ("distil", 128): 16, ("distil", 16): 16}
    for note in notes:  # as many tokens in every batch
        assert note["ledger"]["student_tokens"] == note["ledger"]["steps"] * 16 * 64

    folder = cell(tmp_path, "convert-distil")
    card = (folder / "README.md").read_text()
    code_block = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]  # type: ignore[index]
    code_block = code_block.replace('folder = "."', f"folder = {str(folder)!r}").replace(
        '"sentence"', '"the film was good"'
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code_block], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert loaded.returncode == 0, loaded.stderr
    again = attention.load(folder, AutoModelForSequenceClassification)
    assert again.config.efficient_attention == {"name": "longformer", "window": 8, "first": 1}
    assert again.config.max_position_embeddings == 128
    task = data.load("sst2", str(glue), limit=600)
    assert train.evaluate(again, word_tokenizer(), task, 128)[0] == records["convert-distil"]["metrics"]


def test_real_documents_are_drawn_evenly(
    backbone: Path, tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a long document is a short example, and no curriculum: it counts as often as the other windows."""
    monkeypatch.setattr(ea, "SHORT_FIRST", (0.75, 20))
    rng, folder = random.Random(0), tmp_path / "litbank"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        words = [rng.choice([f"{rng.choice(POSITIVE)} B-PER", "the O", "film O"]) for _ in range(20 * 100)]
        lines = [line if i % 100 else f"-DOCSTART- O\n\n{line}" for i, line in enumerate(words)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    argv = ["--task", "litbank", "--data-dir", folder, "--teacher", backbone, "--teacher-epochs", 1]
    argv += ["--max-length", 32, "--short-length", 32, "--budget", 160, "--variant", "finetune", "--out-dir", tmp_path]
    code, _, err = inside(*argv)
    assert code == 0, err
    ledger = results.load(cell(tmp_path, "finetune", task="litbank") / "result.json")["ledger"]
    # 100 words and the special tokens of four windows, three of them full
    assert ledger["student_tokens"] / ledger["student_examples"] == pytest.approx((100 + 4 * 2) / 4, rel=0.1)


@pytest.mark.parametrize("name", list(attention.ATTENTIONS))
def test_every_attention_learns(name: str, basic: list[str], tmp_path: Path, inside: Inside) -> None:
    """The mood of a sentence, from few examples, converted and distilled."""
    argv = [*basic, "--attention", name, "--variant", "convert-distil", "--budget", "1600", "--out-dir", tmp_path]
    code, _, err = inside(*argv)
    assert code == 0, err
    record = results.load(cell(tmp_path, "convert-distil") / "result.json")
    assert record["metrics"]["dev"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(
    basic: list[str], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in conversion, in distillation, and in fine-tuning."""
    argv = [*basic, "--variant", "convert-distil", "--save-every", "0", "--resume"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert inside(*argv, "--out-dir", whole, "--cache-dir", whole / "cache")[0] == 0
    shutil.copytree(whole / "cache" / "teachers", parts / "cache" / "teachers")
    real = train.check_finite

    for stop in (2, 8, 12):
        calls = iter(range(1000))

        def check(loss: Tensor, step: int, ids: list[str], stop: int = stop, calls: Iterator[int] = calls) -> None:
            if next(calls) == stop:
                raise KeyboardInterrupt
            real(loss, step, ids)

        monkeypatch.setattr(train, "check_finite", check)
        with pytest.raises(KeyboardInterrupt):
            inside(*argv, "--out-dir", parts, "--cache-dir", parts / "cache")
    monkeypatch.setattr(train, "check_finite", real)
    code, out, err = inside(*argv, "--out-dir", parts, "--cache-dir", parts / "cache")
    assert code == 0, err
    assert "convert-distil: continued at step 2" in out
    files = [(cell(out, "convert-distil") / "model.safetensors").read_bytes() for out in (whole, parts)]
    assert files[0] == files[1]


# --- sizes and profile --------------------------------------------------------------------------------------


def test_parameters_of_table_2(inside: Inside) -> None:
    """Every cell; the efficient ones to the last parameter."""
    exact = {"Longformer": (148_659_456, 95_501_568), "LSG": (127_791_360, 85_264_128),
             "Big Bird": (127_468_800, 84_941_568), "Nystromformer": (111_254_160, 68_722_248)}  # fmt: skip
    for name, family, settings, kind, length, *_ in ea.PUBLISHED:
        if name in exact:
            assert ea.count_parameters(family, settings, kind, length, both=True) == exact[name]
    code, out, _ = inside("--params")
    assert code == 0
    assert "0 mismatches" in out
    assert "cut off, not rounded (111.3)" in out


def test_crossing() -> None:
    """Where two straight lines in the logs meet; from the first length on; never."""
    full = {"100": 1.0, "1000": 100.0}
    assert ea.crossing({"100": 10.0, "1000": 10.0}, full) == pytest.approx(316, abs=1)
    assert ea.crossing({"100": 0.5, "1000": 10.0}, full) == 100
    assert ea.crossing({"100": 0.5, "1000": 200.0}, full) is None


def test_analyse_data(inside: Inside, tmp_path: Path) -> None:
    """Appendix A for files of anybody's: lengths, tags, a plot; another kind of task is refused and nothing written."""
    text = "Vera B-PER\nVon I-PER\nsaw O\nOslo B-LOC\n\n"
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text(text + "it O\nrained O\n\n")
    code, out, err = inside("--analyse-data", "--task", "conll2003", "--data-dir", tmp_path, "--out-dir", tmp_path)
    assert code == 0, err
    folder = tmp_path / "efficient_attention" / "data"
    (report,) = json.loads((folder / "ner-data.json").read_text()).values()
    assert (report["lengths"]["count"], report["lengths"]["mean"], report["lengths"]["100%"]) == (6, 3, 4)
    assert report["tags"]["B-PER"]["count"] == 3
    assert report["tags"]["O"]["p"] == pytest.approx(1 / 2)
    assert report["tags"]["I-PER"]["p1"] == pytest.approx(1 / 3)
    assert "B-LOC" in out
    assert (folder / "ner-lengths.png").stat().st_size > 5000
    code, _, err = inside("--analyse-data", "--task", "pocket/rte", "--out-dir", tmp_path / "other")
    assert code == 2
    assert "--analyse-data: pocket/rte is classification" in err
    assert not (tmp_path / "other").exists()


def test_profile(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attention and full attention, at every length: time, memory, parameters, a table and a plot."""
    monkeypatch.setattr(ea, "PROFILE_LENGTHS", (512, 1024))
    # a process of its own takes seconds to start; `test_memory_of_a_forward_pass` starts one
    monkeypatch.setattr(
        ea.speed, "in_own_process", lambda function, name, lengths, device: [L * len(name) for L in lengths]
    )
    code, out, err = inside("--profile", "--out-dir", tmp_path, "--device", "cpu")
    assert code == 0, err
    folder = tmp_path / "efficient_attention" / "profile" / "cpu"
    report = json.loads((folder / "profile.json").read_text())
    assert set(report["attentions"]) == {*attention.ATTENTIONS, *ea.FULL}
    for row in report["attentions"].values():
        assert all(row["seconds"][L] > 0 and row["bytes"][L] > 0 for L in ("512", "1024"))
    assert (folder / "profile.png").stat().st_size > 5000
    assert out.count("|") > 30


@pytest.mark.slow
def test_memory_of_a_forward_pass() -> None:
    """Eager attention holds the scores, (heads, L, L) float32, more than once; fused attention does not."""
    fused, eager = (ea.speed.in_own_process(ea.peaks, name, (1024, 2048), "cpu")[1] for name in ("sdpa", "eager"))
    scores = 4 * 2048 * 2048 * 4
    assert eager > 1.5 * scores > fused  # twice, but for pages that the process had already
