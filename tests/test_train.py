"""Budget, schedule, ledger, checkpoints and evaluation: what every training loop relies on."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_bert, word_tokenizer
from safetensors import safe_open
from torch import nn
from transformers import get_linear_schedule_with_warmup

from common import args, data, train
from common.args import BadInput, Interrupted
from common.train import Checkpoint, Ledger, Schedule


def a_batch(examples: int = 4, length: int = 3) -> dict[str, torch.Tensor]:
    return {"attention_mask": torch.ones(examples, length)}


# --- budget ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 7, 20, 101])
def test_the_schedule_is_the_librarys(steps: int) -> None:
    """Linear warm-up over a tenth of the steps, then linear decay that ends at 0."""
    ours, theirs = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4) for _ in range(2))
    ledger = Ledger()
    schedule = Schedule(ours, ledger, steps, None)
    library = get_linear_schedule_with_warmup(theirs, round(0.1 * steps), steps)
    rates = []
    while schedule.running():
        rates.append(ours.param_groups[0]["lr"])
        assert rates[-1] == theirs.param_groups[0]["lr"]
        ours.step()
        theirs.step()
        library.step()
        ledger.count(a_batch())
        schedule.step()
    assert len(rates) == steps
    assert ours.param_groups[0]["lr"] == 0
    assert max(rates) == 0.4


@pytest.mark.parametrize(("warmup", "first", "peak_at"), [(0.0, 0.4, 0), (0.5, 0.0, 5)])
def test_the_share_of_the_warm_up(warmup: float, first: float, peak_at: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
    ledger, rates = Ledger(), []
    schedule = Schedule(optimizer, ledger, 10, None, warmup)
    while schedule.running():
        rates.append(optimizer.param_groups[0]["lr"])
        ledger.count(a_batch())
        optimizer.step()
        schedule.step()
    assert (rates[0], rates.index(max(rates))) == (first, peak_at)


def test_a_plan_multiplies_the_rates_from_its_shares_on() -> None:
    """Beside the schedule without one: 7 rates as they are, 6 of three times, 7 of a half."""
    courses = [args.CommonArgs(), args.CommonArgs(lr_plan="0.34:3,0.65:0.5")]
    rates: list[list[float]] = []
    for course in courses:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
        ledger = Ledger()
        schedule = Schedule(optimizer, ledger, 20, None, args=course)
        rates.append([])
        while schedule.running():
            rates[-1].append(optimizer.param_groups[0]["lr"])
            ledger.count(a_batch())
            schedule.step()
    factors = [1.0] * 7 + [3.0] * 6 + [0.5] * 7
    assert rates[1] == pytest.approx([rate * factor for rate, factor in zip(rates[0], factors, strict=True)])


def test_stages_add_up_but_for_the_peak_of_memory() -> None:
    first = Ledger(steps=2, student_examples=64, student_tokens=640, teacher_examples=32, seconds=1.5)
    first.peak_memory_bytes = 500
    second = Ledger(steps=3, student_examples=96, student_tokens=900, teacher_examples=96, seconds=2.0)
    second.peak_memory_bytes = 400
    first.add(second)
    assert first == Ledger(5, 160, 1540, 128, 3.5, 500)


class Clock:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(train.time, "perf_counter", lambda: self.now)


def test_a_budget_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds of training, half a second a step; evaluation and checkpoints between the steps are free."""
    clock = Clock(monkeypatch)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    ledger = Ledger()
    schedule = Schedule(optimizer, ledger, None, 10)
    rates = []
    while schedule.running():
        with ledger.clock():
            optimizer.step()
            clock.now += 0.5
            ledger.count(a_batch())
            schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
        clock.now += 3.0  # off the clock
    assert ledger.steps == 20
    assert ledger.seconds == pytest.approx(10)
    # after a share x of the time: x / 0.1 up to the peak at a tenth, then (1 - x) / 0.9 down to 0
    shares = [0.5 * k / 10 for k in range(1, 21)]
    expected = [x / 0.1 if x < 0.1 else (1 - x) / 0.9 for x in shares]
    assert rates == pytest.approx(expected, abs=1e-2)
    assert rates[-1] == 0


def test_seconds_that_were_spent_before_a_resume_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    ledger = Ledger(seconds=9.0)
    schedule = Schedule(optimizer, ledger, None, 10)
    clock.now += 50  # loading and evaluating
    assert schedule.running()
    with ledger.clock():
        clock.now += 1
    assert not schedule.running()


@pytest.mark.parametrize(
    ("kind", "amount", "batch_size", "per_epoch", "epochs", "steps"),
    [
        ("examples", 640, 32, 999, 4, 20),
        ("examples", 650, 32, 999, 4, 20),  # never more than was paid for
        ("examples", 5, 32, 999, 4, 1),
        ("paper", 0, 32, 78, 4, 312),
        ("paper", 0, 32, 1, 0.1, 1),
    ],
)
def test_total_steps(kind: str, amount: int, batch_size: int, per_epoch: int, epochs: float, steps: int) -> None:
    assert train.total_steps(kind, amount, batch_size, per_epoch, epochs) == steps


def test_the_ledger_counts() -> None:
    ledger = Ledger()
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    ledger.count({"attention_mask": mask}, teachers=2)
    ledger.count({"attention_mask": mask})
    assert (ledger.steps, ledger.student_examples, ledger.student_tokens, ledger.teacher_examples) == (2, 4, 8, 4)


def test_the_clock_counts_its_inside_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    ledger = Ledger()
    with pytest.raises(RuntimeError), ledger.clock():  # noqa: PT012
        clock.now += 2
        raise RuntimeError
    clock.now += 5
    assert ledger.seconds == ledger.elapsed() == 2
    assert ledger.peak_memory_bytes > 1e6


# --- optimiser ---------------------------------------------------------------------------------------------


def test_biases_and_norms_do_not_decay() -> None:
    model = tiny_bert()
    model.bert.embeddings.position_embeddings.weight.requires_grad_(False)
    extra = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))]
    optimizer = train.adamw(model, 1e-3, extra)
    names = {id(p): n for n, p in model.named_parameters()} | {id(extra[0]): "extra", id(extra[1]): "extra.bias"}
    decay, plain = ({names[id(p)] for p in group["params"]} for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert decay & plain == set()
    assert all(n.endswith("bias") or "LayerNorm" in n for n in plain)
    assert not any(n.endswith("bias") or "LayerNorm" in n for n in decay)
    assert "extra" in decay
    assert "extra.bias" in plain
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    assert decay | plain == trainable | {"extra", "extra.bias"}


# --- checkpoints -------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """Embedding and output share their weight; dropout makes the random state matter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.LayerNorm(6)
        self.dropout = nn.Dropout(0.5)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.out(self.dropout(self.norm(self.embed(x))))


class Training:
    """A loop in miniature; its batches are a function of the step, as in the scripts."""

    def __init__(self, folder: Path, total: int = 12, settings: str = "s", **course: Any) -> None:
        torch.manual_seed(0)
        self.model = Tied()
        self.optimizer = train.adamw(self.model, 1e-2)
        self.ledger = Ledger()
        self.schedule = Schedule(self.optimizer, self.ledger, total, None, args=args.CommonArgs(**course))
        self.checkpoint = Checkpoint(folder, {"student": self.model}, self.schedule, settings)
        self.losses: list[float] = []

    def run(self, until: int = 10**9) -> Training:
        while self.schedule.running() and self.ledger.steps < until:
            x = torch.arange(8) + self.ledger.steps
            loss = nn.functional.cross_entropy(self.model(x % 11), (x + 1) % 11)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.ledger.count(a_batch())
            self.schedule.step()
            self.losses.append(loss.item())
        return self

    def digest(self) -> str:
        state = {k: v.detach() for k, v in self.model.state_dict().items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            state |= {f"{index}/{k}": v for k, v in values.items()}
        return train.digest(state)


@pytest.mark.parametrize("at", [1, 2, 6, 11, 12])
def test_a_resumed_run_ends_at_the_same_bits(at: int, tmp_path: Path) -> None:
    """Weights, optimiser, schedule and dropout, wherever it was stopped."""
    whole = Training(tmp_path / "whole").run()
    stopped = Training(tmp_path / "stopped").run(until=at)
    stopped.checkpoint.save()
    torch.manual_seed(999)
    resumed = Training(tmp_path / "stopped")
    torch.rand(5)  # whatever happened between start and load
    assert resumed.checkpoint.load()
    assert resumed.ledger == stopped.ledger
    assert resumed.optimizer.param_groups[0]["lr"] == stopped.optimizer.param_groups[0]["lr"]
    assert resumed.digest() == stopped.digest()
    resumed.run()
    assert stopped.losses + resumed.losses == whole.losses
    assert resumed.digest() == whole.digest()
    assert resumed.model.out.weight is resumed.model.embed.weight
    assert resumed.model.count == 12


def test_saving_does_not_change_the_run(tmp_path: Path) -> None:
    whole = Training(tmp_path / "a").run()
    saving = Training(tmp_path / "b")
    for step in range(1, 13):
        saving.run(until=step)
        saving.checkpoint.save()
    assert saving.digest() == whole.digest()
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["checkpoint.safetensors"]


def saved(folder: Path) -> Path:
    run = Training(folder).run(until=3)
    run.checkpoint.save()
    return run.checkpoint.path


def refused(folder: Path, match: str, settings: str = "s") -> None:
    """`load` names the file and changes nothing."""
    other = Training(folder, settings=settings)
    before = other.digest()
    with pytest.raises(BadInput, match=match) as error:
        other.checkpoint.load()
    assert "checkpoint.safetensors" in str(error.value)
    assert "--force" in str(error.value)
    assert other.digest() == before
    assert other.ledger == Ledger()


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert Training(tmp_path).checkpoint.load() is False


@pytest.mark.parametrize("keep", [0, 4, 100, -1, -1000])
def test_a_truncated_checkpoint_is_refused(keep: int, tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    refused(tmp_path, "damaged")


def test_any_flipped_bit_of_the_tensors_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for at in range(header, len(whole), max(1, (len(whole) - header) // 20)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        refused(tmp_path, "digest")


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(tmp_path, "other settings", settings="another learning rate")


def test_the_rest_of_a_plan_may_change(tmp_path: Path) -> None:
    """A part, and the rest by a plan that begins where it has ended: the bits of the whole plan in one run. What has
    been cannot be changed."""
    whole = Training(tmp_path / "whole", lr_plan="0.25:2,0.5:0.3").run()
    part = Training(tmp_path / "part", lr_plan="0.25:2", tune=True, until=0.5).run()
    assert part.ledger.steps == 6
    part.checkpoint.save()
    for plan in (None, "0.25:3", "0.25:2,0.4:0.3"):
        with pytest.raises(BadInput, match="another --lr-plan"):
            Training(tmp_path / "part", lr_plan=plan).checkpoint.load()
    rest = Training(tmp_path / "part", lr_plan="0.25:2,0.5:0.3")
    assert rest.checkpoint.load()
    rest.run()
    assert part.losses + rest.losses == whole.losses
    assert rest.digest() == whole.digest() != Training(tmp_path / "plain").run().digest()


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "checkpoint.safetensors")
    refused(tmp_path, "damaged")


def test_a_save_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    old = path.read_bytes()
    run = Training(tmp_path).run(until=7)

    def dies(tensors: Any, partial: Path, metadata: Any) -> None:
        Path(partial).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(train, "save_file", dies)
    with pytest.raises(OSError, match="No space"):
        run.checkpoint.save()
    assert path.read_bytes() == old
    resumed = Training(tmp_path)
    assert resumed.checkpoint.load()
    assert resumed.ledger.steps == 3


def test_the_interval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock(monkeypatch)
    run = Training(tmp_path)
    run.checkpoint.every = 10
    for seconds, expected in ((9, False), (1, True)):
        clock.now += seconds
        run.checkpoint.step()
        assert run.checkpoint.path.exists() == expected
    run.checkpoint.path.unlink()
    clock.now += 9
    run.checkpoint.step()
    assert not run.checkpoint.path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_and_is_saved(number: signal.Signals, tmp_path: Path) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        for n in before:
            signal.signal(n, args.interrupt)
        run = Training(tmp_path)
        with pytest.raises(Interrupted) as stop, run.checkpoint:  # noqa: PT012
            os.kill(os.getpid(), number)
            run.run(until=2)  # the step goes on
            run.checkpoint.step()
        assert stop.value.number == number
        assert signal.getsignal(signal.SIGTERM) is args.interrupt
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    with safe_open(run.checkpoint.path, "pt") as file:
        assert json.loads(file.metadata()["state"])["ledger"]["steps"] == 2


# --- the rest of a step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_with_the_batch(value: float) -> None:
    with pytest.raises(BadInput, match=r"step 17, batch train-3, train-9"):
        train.check_finite(torch.tensor(value), 17, lambda step: ["train-3", "train-9"])
    train.check_finite(torch.tensor(1e30), 17, lambda step: ["train-3"])


class Elsewhere:
    """Stands for a loss on another device, where a look waits; counts the looks."""

    looks = 0

    def __init__(self, value: float) -> None:
        self.value, self.device = value, torch.device("meta")

    def detach(self) -> Elsewhere:
        return self

    def item(self) -> float:
        return self.value


def test_a_devices_losses_are_looked_at_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each step, but before a checkpoint is written and at the end; the first bad one is named."""

    def stack(losses: list[Any]) -> torch.Tensor:
        Elsewhere.looks += 1
        return torch.tensor([loss.value for loss in losses])

    monkeypatch.setattr(train.torch, "stack", stack)

    def losses(bad: int, count: int) -> train.Checkpoint:
        checkpoint = Training(tmp_path).checkpoint
        for step in range(count):
            loss: Any = Elsewhere(math.nan if step >= bad else 1.0)
            checkpoint.watch(loss, step, lambda step: [f"example-{step}"])
        return checkpoint

    losses(bad=999, count=60)
    assert Elsewhere.looks == 3
    with pytest.raises(BadInput, match="step 7, batch example-7:"):
        losses(bad=7, count=60)
    checkpoint = losses(bad=7, count=10)
    with pytest.raises(BadInput, match="step 7"):
        checkpoint.save()
    assert not checkpoint.path.exists()
    checkpoint = losses(bad=7, count=10)
    with pytest.raises(BadInput, match="step 7"), checkpoint:
        pass


class Echo(nn.Module):
    """Logits that tell which example a row is, by its tokens; counts what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.rows = 0

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> SimpleNamespace:
        assert not self.training
        self.rows += len(input_ids)
        valid = input_ids * attention_mask
        return SimpleNamespace(logits=torch.stack([valid.sum(1), (valid * valid).sum(1)], 1).float())


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_predict_keeps_the_order_and_counts_once(batch_size: int, sst2: data.TaskData) -> None:
    """Also when the last batch is smaller, and whatever order the batches are made in."""
    tokenizer, model = word_tokenizer(), Echo().train()
    split = data.Split(sst2.splits["dev"].ids[:100], sst2.splits["dev"].texts[:100], sst2.splits["dev"].labels[:100])
    encoded = data.encode(tokenizer, split, sst2.task, 16)
    logits = train.predict(model, encoded, tokenizer, batch_size)
    ids = [np.array(row) for row in encoded.features["input_ids"]]
    np.testing.assert_array_equal(logits, [[row.sum(), (row**2).sum()] for row in ids])
    assert logits.dtype == np.float32
    assert model.rows == 100
    assert model.training


def test_evaluate_reports_every_reported_split(sst2: data.TaskData) -> None:
    scores, speed = train.evaluate(tiny_bert(), word_tokenizer(), sst2, 16)
    assert list(scores) == ["dev"]
    assert 0 <= scores["dev"]["accuracy"] <= 1
    assert speed > 0


def test_seed_zero_is_a_seed() -> None:
    draws = []
    for seed in (0, 0, 1):
        train.seed_everything(seed)
        draws.append((torch.rand(3).tolist(), np.random.rand(3).tolist()))
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named(device: Any) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(BadInput, match=f"--device {device}"):
        train.accelerator(args.CommonArgs(device=device))


def test_half_precision_needs_cuda() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(BadInput, match="--precision fp16"):
        train.accelerator(args.CommonArgs(device="cpu", precision="fp16"))
