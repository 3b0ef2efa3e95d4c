"""Numbers: gradients of every loss in float64, metrics by their formulas, and what happens where numbers end."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import error_line, in_process, tiny_bert
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from common import data, metrics, train
from common.args import BadInput
from methods import cka, cmow, mc3kd, xtc
from methods import efficient_attention as ea

# --- gradients ---------------------------------------------------------------------------------------------

LABELS, SCORES = torch.tensor([0, 2, 1]), torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def values(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


GUIDE, ONE, STATES = values(3, 4, seed=1), values(3, 1, seed=2), values(2, 5, 4, seed=3)


def of_cmow(**changes: Any) -> Callable[[Tensor], Tensor]:
    one = changes.pop("one", False)
    args = cmow.Args(**changes)
    return lambda x: cmow.distillation_loss(args, x, ONE if one else GUIDE, SCORES if one else LABELS)


def of_cka(teacher: bool, one: bool = False) -> Callable[[Tensor], Tensor]:
    objective = cka.Objective("none", True, teacher, [], nn.ModuleList())
    batch, soft = {"labels": SCORES if one else LABELS}, SimpleNamespace(logits=ONE if one else GUIDE)
    args = cka.Args(temperature=2.0)
    return lambda x: cka.output_loss(args, objective, SimpleNamespace(logits=x), soft, batch)


def of_ea(kind: str) -> Callable[[Tensor], Tensor]:
    one = kind == "regression"
    inputs, soft = {"labels": SCORES if one else LABELS}, SimpleNamespace(logits=ONE if one else GUIDE)

    def loss(x: Tensor) -> Tensor:
        hard = F.mse_loss(x[:, 0], SCORES) if one else F.cross_entropy(x, LABELS)
        return ea.task_loss(SimpleNamespace(logits=x, loss=hard), soft, inputs, kind)

    return loss


def of_mc3kd(name: str, one: bool = False) -> Callable[[Tensor], Tensor]:
    """The whole loss of a step, by the student's logits: those of a model that answers with them."""
    args, inputs = mc3kd.Args(variant=name), {"labels": SCORES if one else LABELS, "attention_mask": torch.ones(3, 2)}
    teacher = lambda **_: SimpleNamespace(logits=ONE if one else GUIDE)  # noqa: E731
    return lambda x: mc3kd.step_loss(args, name, lambda **_: SimpleNamespace(logits=x), teacher, inputs, [], one)


PROJECTIONS = [nn.Linear(4, 4).double() for _ in range(2)]
# ccc, cka_loss and efficient attention's loss before fine-tuning stand, shape by shape, in their methods' tests.
LOSSES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "mc3kd finetune": (of_mc3kd("finetune"), (3, 4)),
    "mc3kd kd": (of_mc3kd("kd"), (3, 4)),
    "mc3kd kd, scores": (of_mc3kd("kd", one=True), (3, 1)),
    "mc3kd pkd": (lambda x: mc3kd.pkd_loss(x, GUIDE), (3, 4)),
    "mc3kd nuclear": (lambda x: mc3kd.ccc(x, STATES, 1e-2), (2, 5, 3)),
    "mc3kd frobenius": (lambda x: mc3kd.ccc(x, STATES, 1e-2, "frobenius"), (2, 5, 3)),
    "cmow kl": (of_cmow(temperature=3.0), (3, 4)),
    "cmow mse": (of_cmow(loss="mse"), (3, 4)),
    "cmow scores": (of_cmow(one=True), (3, 1)),
    "cmow general": (lambda x: cmow.general_loss(x, GUIDE, torch.tensor([2, -100, 0])), (3, 4)),
    "cmow general, nothing masked": (lambda x: cmow.general_loss(x, GUIDE, torch.full((3,), -100)), (3, 4)),
    "xtc hidden": (lambda x: xtc.hidden_loss([x], [values(2, 3, 4, seed=5)], MASK), (2, 3, 4)),
    "xtc attention": (lambda x: xtc.attention_loss([x], [values(2, 2, 3, 3, seed=5)], MASK), (2, 2, 3, 3)),
    "xtc logit": (lambda x: xtc.logit_loss(x, GUIDE), (3, 4)),
    "xtc logit, scores": (lambda x: xtc.logit_loss(x, ONE, regression=True), (3, 1)),
    "efficient attention kd": (of_ea("classification"), (3, 4)),
    "efficient attention kd, scores": (of_ea("regression"), (3, 1)),
    "cka labels": (of_cka(teacher=False), (3, 4)),
    "cka labels and kd": (of_cka(teacher=True), (3, 4)),
    "cka scores and kd": (of_cka(teacher=True, one=True), (3, 1)),
    "cka lin": (lambda x: cka.hidden_loss("lin", x, STATES, PROJECTIONS), (2, 5, 4)),
    "cka cosine": (lambda x: cka.hidden_loss("cosine", x, STATES, ()), (2, 5, 4)),
    "cka mse": (lambda x: cka.hidden_loss("mse", x, STATES, ()), (2, 5, 4)),
    "cka cka": (lambda x: cka.cka_loss(x, STATES), (2, 5, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradcheck(name: str) -> None:
    loss, shape = LOSSES[name]
    assert torch.autograd.gradcheck(loss, (values(*shape, seed=9).requires_grad_(),))


# --- metrics -----------------------------------------------------------------------------------------------

CLASSES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
NUMBER = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e-300, -1e-300, 1e300, 0.1, 0.1 + 2**-54, 5.0])
PAIRS = st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=30)
FUZZ = settings(max_examples=80, deadline=None, derandomize=True, database=None)


@pytest.mark.filterwarnings("error")
@FUZZ
@given(CLASSES)
def test_metrics_of_classes_are_their_formulas(rows: list[tuple[int, int]]) -> None:
    predicted, true = (list(column) for column in zip(*rows, strict=True))
    tp, fp = sum(p and t for p, t in rows), sum(p and not t for p, t in rows)
    fn, tn = sum(t and not p for p, t in rows), sum(not p and not t for p, t in rows)
    below = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert metrics.accuracy(predicted, true) == pytest.approx((tp + tn) / len(rows))
    assert metrics.f1(predicted, true) == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp else 0)
    assert metrics.matthews(predicted, true) == pytest.approx((tp * tn - fp * fn) / math.sqrt(below) if below else 0)


def ranks(values: list[float]) -> list[float]:
    """Ranks from 1; of equal values, the mean of theirs."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


@pytest.mark.filterwarnings("error")
@FUZZ
@given(PAIRS)
def test_correlations_are_finite_and_their_formulas(rows: list[tuple[float, float]]) -> None:
    """Also of numbers that hardly differ, and of tiny and huge ones."""
    x, y = (list(column) for column in zip(*rows, strict=True))
    found = metrics.pearson(x, y), metrics.spearman(x, y)
    assert all(-1 <= value <= 1 for value in found)
    a, b = (np.array(ranks(values)) for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    expected = a @ b / np.sqrt((a @ a) * (b @ b)) if a.any() and b.any() else 0
    assert found[1] == pytest.approx(expected, abs=1e-9)
    if max(map(abs, x + y)) <= 1e3 and np.std(x) > 1e-3 and np.std(y) > 1e-3:
        assert found[0] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)


# --- where numbers end -------------------------------------------------------------------------------------


class Engine(SimpleNamespace):
    """What `train.update` needs of an engine in fp16, on the CPU."""

    def __init__(self) -> None:
        super().__init__(scaler=torch.amp.GradScaler("cpu"))

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()


def a_step(engine: Any, model: nn.Linear, optimizer: torch.optim.Optimizer, factor: float) -> None:
    loss = (model(torch.arange(8.0).view(2, 4)) * factor).square().mean()
    engine.backward(loss) if engine.scaler else loss.backward()
    train.update(engine, optimizer, model.parameters())


def linear() -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    return model, train.adamw(model, 1e-2)


def test_scaled_losses_are_scaled_back_before_gradients_are_clipped() -> None:
    """The bits of a step that was not scaled: a power of two changes none."""
    (model, optimizer), (other, scaled) = linear(), linear()
    engine = Engine()
    for _ in range(5):
        a_step(SimpleNamespace(scaler=None), model, optimizer, 1.0)
        a_step(engine, other, scaled, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_step_that_overflows_is_left_out(tmp_path: Path) -> None:
    model, optimizer = linear()
    engine = Engine()
    before = [p.detach().clone() for p in model.parameters()]
    a_step(engine, model, optimizer, 1e18)  # its gradient, times 65,536, is no float32
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert engine.scaler.get_scale() == 2**15
    a_step(engine, model, optimizer, 1.0)
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    schedule = train.Schedule(optimizer, train.Ledger(), 9, None)
    checkpoint = train.Checkpoint(tmp_path, {"m": model}, schedule, "s", scaler=engine.scaler)
    checkpoint.look()
    for _ in range(16):
        a_step(engine, model, optimizer, math.inf)
    with pytest.raises(BadInput, match="--precision fp16: every gradient overflows"):
        checkpoint.look()


def test_states_that_end_and_a_ridge_that_is_too_small() -> None:
    """A covariance without a factor: NaN where the states are not finite, for the loop to name; else the ridge's."""
    x = values(6, 3)
    for end in (math.nan, math.inf):
        broken = x.clone()
        broken[2, 1] = end
        assert mc3kd.ccc(broken, x, 1e-3).isnan()
    twice = torch.cat([x, x], 1).float() * 1e4
    with pytest.raises(BadInput, match="--ridge 1e-30"):
        mc3kd.ccc(twice.repeat(2, 1), twice.repeat(2, 1), 1e-30)


def test_no_figure_of_a_model_that_is_not_finite(sst2: data.TaskData) -> None:
    """A step with a finite loss may end at weights that are not; an argmax of NaN would still be a class."""
    from conftest import word_tokenizer

    model = tiny_bert(2, 16)
    with torch.no_grad():
        model.classifier.bias[0] = math.nan
    with pytest.raises(BadInput, match=r"classifier.bias is not finite"):
        train.evaluate(model, word_tokenizer(), sst2, 16)
    model = tiny_bert(2, 16)
    with torch.no_grad():
        model.classifier.weight.fill_(3e38)
        model.bert.pooler.dense.bias.fill_(100.0)
    with pytest.raises(BadInput, match="outputs that are not finite, first for dev-"):
        train.evaluate(model, word_tokenizer(), sst2, 16)


@pytest.fixture
def any_method(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(method: str, *argv: str | Path) -> tuple[int, str, str]:
        runs = in_process(capsys, importlib.import_module(f"methods.{method}"))
        found = next(runs)(*argv)
        next(runs, None)
        return found

    return call


WRECKED = [
    ("mc3kd", "--variant finetune --student 2x16 --lr 1e30"),
    ("mc3kd", "--variant mc3kd --student 2x16 --lr 1e30"),
    ("cmow", "--variant kd --student hybrid-3-9 --lr 1e30"),
    ("cmow", "--variant kd --student hybrid-3-9 --init general --general-lr 1e30"),
    ("xtc", "--variant xtc --student 2x32 --lr 1e30"),
    ("xtc", "--variant finetune --bits 32 --student 2x32 --lr 1e30"),
    ("efficient_attention", "--variant kd --lr 1e30"),
    ("efficient_attention", "--variant distil --distil-lr 1e30"),
    ("cka", "--variant kd --student 2x16 --lr 1e30"),
    ("cka", "--variant cka --student 2x16 --pretraining-lr 1e30"),
    ("mc3kd", "--variant finetune --student 2x16 --teacher-lr 1e30"),
]


@pytest.mark.parametrize(("method", "typed"), WRECKED, ids=[" ".join(case) for case in WRECKED])
def test_a_loss_that_ends_stops_with_step_and_ids(
    method: str, typed: str, glue: Path, backbone: Path, tmp_path: Path,
    any_method: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from common import masked_lm

    monkeypatch.setitem(masked_lm.HEAD_RECIPE, "steps", 5)
    argv = f"--task sst2 --data-dir {glue} --teacher {backbone} --limit 128 --max-length 16 --budget 640 {typed}"
    if "--teacher-lr" not in typed:
        argv += " --teacher-lr 1e-3"
    code, out, err = any_method(method, *argv.split(), "--out-dir", tmp_path)
    assert code == 2, out + err
    line = error_line(err)
    assert "the loss is" in line
    assert " at step " in line
    assert "train-" in line or "text-" in line or "block-" in line
    assert "-lr" in line
    assert not list(tmp_path.rglob("result.json"))
