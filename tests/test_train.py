"""The training loop: a plain loop's weights to the last bit, parts, ledger, checkpoints, signals; kept stages."""

from __future__ import annotations

import functools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_bert, word_tokenizer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import set_seed

from common import args as arguments
from common import losses, parallel, results, train
from common.args import BadInput, CommonArgs, Interrupted
from common.run import task_runs
from common.selection import Selection
from common.tasks import TASKS, TaskData
from common.teacher import get_teacher
from common.train import Batch, Ledger, Loop, split_batch

STEPS, LR = 12, 1e-2


class Net(nn.Module):
    """Tied weights, a norm, a buffer; dropout makes the random state matter."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.dropout = nn.Embedding(11, 6), nn.LayerNorm(6), nn.Dropout(dropout)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.out(self.dropout(self.norm(self.embed(x))))


class Stream:
    """Batches that are a function of the step: 8 texts of 3 tokens, the last of which is padding in every third."""

    steps_per_epoch = 5

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        ids = (torch.arange(24).view(8, 3) * 7 + step) % 11
        mask = torch.ones(8, 3, dtype=torch.long)
        mask[::3, 2] = 0
        return {"input_ids": ids, "attention_mask": mask, "labels": (ids[:, 0] + 1) % 11}

    def ids(self, step: int) -> list[str]:
        return [f"train-{8 * step + i}" for i in range(8)]


def a_loop(folder: Path, net: nn.Module, steps: int = STEPS, **options: Any) -> Loop:
    return Loop({"net": net}, Stream(), steps, LR, folder, options.pop("identity", "s"), **options)


def a_loss(net: nn.Module, batch: train.Batch) -> Tensor:
    return F.cross_entropy(net(batch.inputs["input_ids"][:, 0]), batch.labels)


def trained(folder: Path, stop: Callable[[Loop], None] = lambda loop: None, **options: Any) -> tuple[Loop, Net]:
    """A loop to its end, whose notes are its losses; `stop` is called before each step."""
    set_seed(0)
    net = Net()
    loop = a_loop(folder, net, **options)
    with loop:
        for batch in loop:
            stop(loop)
            loop.minimise(a_loss(net, batch))
            if batch.last:
                loop.notes.setdefault("losses", []).append(loop.loss)
    return loop, net


def drawing(stop: Callable[[Loop], None] = lambda loop: None) -> Callable[[Loop], None]:
    """Notes what a method may draw at a step; of two normal numbers a state holds the second."""
    ways = [random.random, np.random.rand, lambda: torch.rand(()).item(), lambda: random.gauss(0, 1), np.random.randn]

    def before(loop: Loop) -> None:
        stop(loop)
        found = [*(way() for way in ways), torch.rand((), generator=loop.batch.generator).item()]
        loop.notes.setdefault("drawn", []).extend(found)

    return before


def state(loop: Loop) -> str:
    """Weights, buffers and the optimiser's moments."""
    tensors = {k: v for module in loop.modules.values() for k, v in module.state_dict().items()}
    for index, values in loop.optimizer.state_dict()["state"].items():
        tensors |= {f"{index}/{k}": v for k, v in values.items()}
    return train.weights_digest({k: v.detach().clone() for k, v in tensors.items()})


# --- steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.1), (STEPS, 0.1), (STEPS, 0.5), (STEPS, 0.0)])
def test_it_is_a_plain_loop(steps: int, warmup: float, tmp_path: Path) -> None:
    """To the last bit: AdamW, decay on matrices alone, linear warm-up and decay, gradients clipped to norm 1."""
    net, losses = Net(), []
    decays = [p for p in net.parameters() if p.ndim == 2]
    others = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer, w = torch.optim.AdamW(groups, lr=LR, fused=True), round(warmup * steps)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LR * (step / w if step < w else (steps - step) / (steps - w))
        batch = Stream()[step]
        loss = F.cross_entropy(net(batch["input_ids"][:, 0]), batch["labels"])
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    loop, ours = trained(tmp_path, steps=steps, warmup=warmup)
    assert loop.notes["losses"] == losses
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), net.state_dict().values(), strict=True))
    assert ours.out.weight is ours.embed.weight


def gradients(
    monkeypatch: pytest.MonkeyPatch, folder: Path, parts: int, kind: str, labels: Tensor, examples: bool = False
) -> tuple[list[Tensor], float]:
    """What a step's parts add up to: the gradient before it is clipped, and the loss; of `examples`, one with a mean
    over these too."""
    net, found = Net(dropout=0.0).double(), list[Tensor]()

    class Labelled(Stream):
        def __getitem__(self, step: int) -> dict[str, Tensor]:
            return super().__getitem__(step) | {"labels": labels}

    with monkeypatch.context() as patch:
        patch.setattr(train, "clip_grad_norm_", lambda weights, _: found.extend(p.grad.clone() for p in weights))
        with Loop({"net": net}, Labelled(), 1, LR, folder / str(parts), "", kind=kind, parts=parts) as loop:
            seen = list[Batch]()
            for batch in loop:
                seen.append(batch)
                x = batch.inputs["input_ids"]
                output = SimpleNamespace(logits=net(x[:, 0] if labels.ndim == 1 else x))
                logits, targets = batch.predictions(output)
                assert len(logits) == len(targets)
                loss = parallel.mean(F.cross_entropy(logits, targets, reduction="none"))
                if examples:
                    loss = loss + batch.mean(output.logits.square().flatten(1).mean(1))
                loop.minimise(loss)
            assert len(seen) == min(parts, 8)
            assert [seen[0], *seen[0].rest] == seen
            assert [p.of_tokens for p in seen] == [int(p.mask.sum()) / 21 for p in seen]
            assert [p.first for p in seen].index(True) == 0
            assert [p.last for p in seen].index(True) == len(seen) - 1
    return found, loop.loss


@pytest.mark.parametrize("examples", [False, True])
@pytest.mark.parametrize("parts", [2, 3, 100])
@pytest.mark.parametrize("kind", ["classification", "token classification", "multi-label classification"])
def test_parts_have_the_gradient_of_the_whole(
    kind: str, parts: int, examples: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a part's share of the labelled tokens is another than that of the rows, or nothing; and where some of
    several labels are unknown, which the mean counts."""
    labels = torch.arange(8)
    if kind != "classification":
        at_tokens = kind == "token classification"
        labels = torch.arange(24).view(8, 3) % 11 if at_tokens else torch.arange(264).view(8, 33) % 2
        labels[:3] = -100
        labels[4, 1:] = -100
    whole, loss = gradients(monkeypatch, tmp_path, 1, kind, labels, examples)
    summed, total = gradients(monkeypatch, tmp_path, parts, kind, labels, examples)
    torch.testing.assert_close(summed, whole, rtol=1e-12, atol=1e-14)
    assert total == pytest.approx(loss, rel=1e-6)  # losses are kept in float32


def test_predictions_are_one_row_each() -> None:
    """For every kind of task: which logits meet which target."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    logits = torch.arange(24.0).view(2, 3, 4)
    tags, blocks = torch.tensor([[3, -100, 1], [2, 0, -100]]), torch.tensor([[1, 2, 3], [3, 2, 1]])
    spans = SimpleNamespace(start_logits=logits[..., 0], end_logits=logits[..., 1])
    cases: list[tuple[str, Any, Tensor, list[list[float]], list[float]]] = [
        ("classification", logits[:, 0], torch.tensor([1, 0]), logits[:, 0].tolist(), [1, 0]),
        ("regression", logits[:, 0, :1], torch.tensor([0.5, 2.0]), [[0.0], [12.0]], [0.5, 2.0]),
        ("token classification", logits, tags, logits[tags >= 0].tolist(), [3, 1, 2, 0]),
        ("masked LM", logits, tags, logits[tags >= 0].tolist(), [3, 1, 2, 0]),
        ("translation", logits, tags, logits[tags >= 0].tolist(), [3, 1, 2, 0]),
        ("language modelling", logits, blocks, logits[:, :2].flatten(0, 1).tolist(), [2, 3, 2, 1]),
        ("span QA", spans, torch.tensor([[0, 2], [1, 1]]),
         [[0, 4, 8], [12, 16, -1e4], [1, 5, 9], [13, 17, -1e4]], [0, 1, 2, 1]),
    ]  # fmt: skip
    for kind, output, labels, rows, targets in cases:
        inputs = {"attention_mask": mask, "labels": labels}
        (batch,) = split_batch(inputs, ["a", "b"], 1, kind, 0, Ledger(), torch.device("cpu"))
        output = output if kind == "span QA" else SimpleNamespace(logits=output)
        found, wanted = batch.predictions(output)
        assert (found.tolist(), wanted.tolist()) == (rows, targets), kind


def test_the_ledger_and_the_log(tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    loop, _ = trained(tmp_path, steps=45, log=lambda **values: log.append(values), first=100, parts=2)
    spent = loop.ledger
    assert (spent.steps, spent.student_examples, spent.student_tokens, spent.teacher_examples) == (45, 360, 45 * 21, 0)
    assert spent.seconds > 0
    assert spent.peak_memory_bytes > 1e6
    assert [line["step"] for line in log] == [120, 140, 145]
    assert log[0]["rate"] > log[1]["rate"] > log[2]["rate"] > 0
    assert all(line["norm"] > 0 for line in log)
    assert [line["loss"] for line in log] == [round(loop.notes["losses"][i], 6) for i in (19, 39, 44)]
    assert [step for step in range(1, 46) if (setattr(loop, "step", step), loop.due(4))[1]] == [12, 23, 34, 45]
    total = Ledger(steps=1, seconds=1.5, peak_memory_bytes=500)
    total.add(Ledger(2, 3, 4, 5, 6.0, 400, 1.0))
    assert total == Ledger(3, 3, 4, 5, 7.5, 500, 1.0)


def test_the_log_names_the_parts_of_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a batch in parts too; and away from a terminal a line says how far it is."""
    monkeypatch.setattr(train, "TELL_EVERY", 0.0)
    lines: list[list[dict[str, Any]]] = []
    for parts in (1, 2):
        log: list[dict[str, Any]] = []
        lines.append(log)
        net, write = Net(0.0), functools.partial(lambda log, **line: log.append(line), log)
        with a_loop(tmp_path / str(parts), net, steps=20, parts=parts, log=write) as loop:
            for batch in loop:
                loss = a_loss(net, batch)
                loop.minimise(losses.term("plain", loss) + 2 * losses.term("twice", loss))
    for (line,) in lines:
        assert line["terms"] == {"plain": pytest.approx(line["loss"] / 3), "twice": pytest.approx(line["loss"] / 3)}
    assert lines[0][0]["terms"] == pytest.approx(lines[1][0]["terms"], rel=1e-4)
    assert re.search(r"step 5 of 20, loss [\d.]+, rate \S+, 00:0\d left", capsys.readouterr().err)


def test_a_machine_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS, which counts in bytes; the other way also counts the process that started this one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    usual = train.peak_memory()
    for module in (train, results):
        monkeypatch.setattr(module, "Path", lambda path: tmp_path / path.strip("/"))
    assert results.cpu_name()
    assert (linux := train.peak_memory()) >= usual * 0.99
    monkeypatch.setattr(sys, "platform", "darwin")
    assert 0.99 < 1024 * train.peak_memory() / linux < 1.1


HELD = """
import common, torch
del common
torch.empty(29 * 2**20, dtype=torch.uint8)  # freed, from which on the C library would place smaller ones in its heap
held = [torch.empty(20 * 2**20, dtype=torch.uint8) for _ in range(20)]
heap = [line.split()[0].split("-") for line in open("/proc/self/maps") if "[heap]" in line]
print(sum(int(start, 16) <= one.data_ptr() < int(end, 16) for one in held for start, end in heap))
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="where memory lies is read from /proc")
def test_large_tensors_lie_apart() -> None:
    """Between others they leave gaps: a training may need three times its memory."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", HELD]
    assert int(subprocess.run(command, env=usual, cwd=results.ROOT, stdout=subprocess.PIPE, check=True).stdout) < 10


def test_a_loop_that_forgets_to_minimise(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="minimise"), a_loop(tmp_path, Net()) as loop:
        for _ in loop:
            pass


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_with_its_batch(value: float, tmp_path: Path) -> None:
    def train_on(loop: Loop, net: nn.Module) -> None:
        with loop:
            for batch in loop:
                loop.minimise(a_loss(net, batch) * (value if batch.step == 107 else 1))

    net = Net()
    with pytest.raises(BadInput, match=r"step 107, batch train-856, .*: try a lower --lr"):
        train_on(a_loop(tmp_path, net, first=100, save_every=0), net)
    loop = a_loop(tmp_path, Net(), first=100)
    loop.load()
    assert loop.step == 7  # the checkpoint before it is whole
    with pytest.raises(BadInput, match=r"step 107, .*: no step was taken"):
        train_on(a_loop(tmp_path / "other", net, first=107), net)


def test_half_precision_leaves_out_steps_that_overflow(tmp_path: Path) -> None:
    """Scaled losses are scaled back before gradients are clipped: a power of two changes no bit."""

    def run(overflows: Callable[[int], bool], scaler: Any) -> Net:
        net = Net(0.0)
        (tmp_path / "checkpoint.safetensors").unlink(missing_ok=True)
        loop = a_loop(tmp_path, net, steps=20, save_every=1e9)
        loop.scaler = scaler
        with loop:
            for batch in loop:
                before = [p.detach().clone() for p in net.parameters()]
                # 0, with a gradient that is no number
                end = (0 * net.embed.weight.sum()).sqrt() if overflows(batch.step) else 0
                loop.minimise(a_loss(net, batch) + end)
                after = [p.detach() for p in net.parameters()]
                same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
                assert same == (overflows(batch.step) or batch.step == 0)  # whose rate is 0
        return net

    plain, scaled = (
        run(lambda step: False, torch.amp.GradScaler("cpu", enabled=on)).state_dict() for on in (False, True)
    )
    assert all(torch.equal(plain[k], scaled[k]) for k in plain)
    run(lambda step: step % 3 == 2, scaler := torch.amp.GradScaler("cpu"))
    assert scaler.get_scale() == 2**10  # six were halved
    with pytest.raises(BadInput, match="--precision fp16: every gradient overflows"):
        run(lambda step: True, torch.amp.GradScaler("cpu"))


def test_activations_that_are_computed_again(tmp_path: Path) -> None:
    """The same losses, dropout drawn again as it was; between the passes a layer's inputs alone are held."""
    curves, held = [], []
    for again in (False, True):
        model, losses, sizes = tiny_bert(3, 32), list[float](), list[int]()

        def pack(x: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(x.numel())
            return x

        with Loop({"model": model}, Stream(), 10, 1e-3, tmp_path / str(again), "", checkpointing=again) as loop:
            for batch in loop:
                with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                    logits = model(**batch.inputs).logits
                loop.minimise(F.cross_entropy(logits, batch.labels % 2))
                losses.append(loop.loss)
        curves.append(losses)
        held.append(sum(sizes))
    assert curves[1] == pytest.approx(curves[0], rel=1e-6)
    assert held[1] < held[0] / 2


# --- checkpoints ---------------------------------------------------------------------------------------------


class Killed(Exception):
    """Stands for a kill: nothing is written any more."""


def kill_at(step: int) -> Callable[[Loop], None]:
    def stop(loop: Loop) -> None:
        if loop.step == step:
            raise Killed

    return stop


@pytest.mark.parametrize("parts", [1, 2])
def test_a_run_that_is_killed_again_and_again_ends_at_the_same_bits(parts: int, tmp_path: Path) -> None:
    """At every step, and some steps after the last checkpoint; whatever random numbers were drawn in between. What a
    method draws goes on, too."""
    whole, _ = trained(tmp_path / "whole", drawing(), parts=parts)
    rng = random.Random(parts)
    for step in range(STEPS):
        with pytest.raises(Killed):
            trained(tmp_path / "parts", drawing(kill_at(step)), parts=parts, save_every=rng.choice([0, 0, 1e9]))
        set_seed(rng.randrange(1000))
    loop, _ = trained(tmp_path / "parts", drawing(), parts=parts)
    assert state(loop) == state(whole)
    assert loop.notes == whole.notes
    assert loop.ledger.student_tokens == whole.ledger.student_tokens
    again, _ = trained(tmp_path / "parts", parts=parts)  # finished: nothing is left to do
    assert state(again) == state(whole)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["checkpoint.safetensors"]


def test_what_is_drawn_at_a_step(tmp_path: Path) -> None:
    """Differs from step to step; by `batch.generator` with the seed and the stream's step alone, not with the part."""
    found = {}
    for at, options in enumerate([{}, {"parts": 2}, {"seed": 1}, {"first": 3}]):
        drawn = trained(tmp_path / str(at), drawing(), **options)[0].notes["drawn"]
        assert len(set(drawn[::6])) == len(drawn) / 6  # of the first, random.random()
        found[at] = drawn[5::6]
    assert found[1] == [number for number in found[0] for _ in range(2)]
    assert found[3][:-3] == found[0][3:]
    assert len({*found[0], *found[2]}) == 2 * STEPS


def test_what_is_made_before_a_student(expert: Path, sst2: TaskData, tmp_path: Path) -> None:
    """Depends on the seed alone, not on what else the command has made."""
    args = CommonArgs(teacher=str(expert), out_dir=str(tmp_path), max_length=16, variant="kd")
    found = []
    for before, seed in ((1, 0), (2, 0), (1, 1)):
        made, args.seed = get_teacher(args, sst2), seed
        set_seed(before)
        next(task_runs(args, "m", sst2, made, paper_epochs=1))
        found.append([random.random(), np.random.rand(), nn.Linear(2, 2).weight.tolist()])
    assert found[0] == found[1] != found[2]


def test_a_checkpoint_of_an_older_version(tmp_path: Path) -> None:
    """Python's and numpy's random numbers were in none; the rest goes on as it did."""
    whole, _ = trained(tmp_path / "whole")
    with pytest.raises(Killed):
        trained(tmp_path, kill_at(5), save_every=0)
    path = tmp_path / "checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        state = json.loads(file.metadata()["state"])
    del state["random"]
    save_file(load_file(path), path, metadata={"state": json.dumps(state)})
    assert trained(tmp_path)[0].notes["losses"] == whole.notes["losses"]


@pytest.mark.parametrize("killed", [None, 4, 5, 7])
def test_the_best_evaluation_is_kept_and_ends_a_loop_that_gets_no_better(killed: int | None, tmp_path: Path) -> None:
    """After steps 2, 4, ...: the second is the best of four, and two that are no better end the loop, killed or not."""
    scores, weights = {2: 0.5, 4: 0.7, 6: 0.6, 8: 0.7}, []

    def found(score: float) -> SimpleNamespace:
        return SimpleNamespace(metrics={"dev": {"f1": 0.0, "accuracy": score}})

    def train(stop: int | None) -> Loop:
        net, best = Net(0.0), Net(0.0).requires_grad_(False)
        loop = Loop({"student": net, "best": best}, Stream(), STEPS, LR, tmp_path, "s", save_every=0)
        task: Any = SimpleNamespace(task=SimpleNamespace(metrics=("f1", "accuracy")), reported=("dev",))
        run = SimpleNamespace(evaluation=lambda _: found(scores[loop.step]))
        loop.done = lambda: Selection(task, 2, 2).keep_best(run, loop)
        with loop:
            for batch in loop:
                if loop.step == stop:
                    raise Killed
                loop.minimise(a_loss(net, batch))
                if loop.step == 4:
                    weights.append(net.embed.weight.detach().clone())
        return loop

    if killed is not None:
        with pytest.raises(Killed):
            train(killed)
    loop = train(None)
    assert (loop.step, loop.notes["scores"]) == (8, [0.5, 0.7, 0.6, 0.7])
    assert torch.equal(loop.modules["best"].embed.weight, weights[0])  # type: ignore[union-attr, arg-type]
    assert not torch.equal(loop.modules["student"].embed.weight, weights[0])  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(("name", "split", "metric"), [
    ("mrpc", "dev", "accuracy"), ("mnli", "dev_matched", "accuracy"), ("cola", "dev", "matthews"),
])  # fmt: skip
def test_students_are_selected_as_the_papers_programs_do(name: str, split: str, metric: str) -> None:
    """Of MRPC and QQP by accuracy, of MNLI on the matched half."""
    task = TASKS[name]
    data: Any = SimpleNamespace(task=task, reported=task.splits[1:])
    found = Selection(data, 0, None)
    assert (found.split, found.metric) == (split, metric)


@pytest.mark.forks
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_and_a_second_one_does_not(number: signal.Signals, tmp_path: Path) -> None:
    """In a process of its own, whose exit code says how it ended."""
    whole, _ = trained(tmp_path / "whole")

    def child(times: int) -> int:
        if (pid := os.fork()) == 0:
            for n in (signal.SIGINT, signal.SIGTERM):
                signal.signal(n, arguments.interrupt)

            def send(loop: Loop) -> None:
                if loop.step == 4:
                    for _ in range(times):
                        os.kill(os.getpid(), number)
                    if times > 1:
                        time.sleep(600)  # a step that would go on for minutes

            try:
                trained(tmp_path / str(times), send)
            except Interrupted as stop:
                os._exit(128 + stop.number)
            os._exit(99)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert (child(1), child(2)) == (128 + number, -number)
    assert not (tmp_path / "2").exists()
    started: list[int] = []
    loop, _ = trained(tmp_path / "1", lambda loop: started.append(loop.step))
    assert started[0] == 5  # the step had its end, and its checkpoint
    assert state(loop) == state(whole)


def test_what_is_no_checkpoint_of_this_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut, changed, another run's, another file's: refused and left as it is, or with `remake` left behind."""
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Killed):
        trained(tmp_path, kill_at(3), save_every=0)
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    cut = [good[:keep] for keep in (0, 4, 100, -1)]
    flipped = [good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :] for i in range(header, len(good), 199)]
    save_file({"x": torch.ones(2)}, path)
    wrong = [(content, "s", "damaged checkpoint") for content in [*cut, *flipped, path.read_bytes()]]
    for content, identity, says in [*wrong, (good, "another --lr", "belongs to other settings")]:
        path.write_bytes(content)
        with pytest.raises(BadInput, match=says) as error:
            trained(tmp_path, identity=identity)
        assert str(path) in str(error.value)
        assert "--force" in str(error.value)
        assert path.read_bytes() == content
    fresh, _ = trained(tmp_path, identity="another --lr", remake=True)
    assert "this training starts again" in capsys.readouterr().out
    assert state(fresh) == state(trained(tmp_path / "other")[0])


def test_a_disk_that_fills_up_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = trained(tmp_path / "whole")
    real = train.save_file

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        real(tensors, path, metadata)
        if json.loads(metadata["state"])["step"] == 6:
            os.truncate(path, 1000)
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):  # noqa: PT012
        patch.setattr(train, "save_file", full)
        trained(tmp_path / "full", save_every=0)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["checkpoint.safetensors"]
    assert state(trained(tmp_path / "full")[0]) == state(whole)


# --- stages that several runs share --------------------------------------------------------------------------


def make(stage: train.Stage, stop: Callable[[Loop], None] = lambda loop: None) -> Any:
    """Six steps of a BERT by two loops."""
    model = tiny_bert(1, 16)
    for name in ("first", "second"):
        with stage.loop({"model": model}, Stream(), 3, LR, kind="classification", name=name, save_every=0) as loop:
            for batch in loop:
                stop(loop)
                logits = model(**batch.inputs).logits
                loop.minimise(F.cross_entropy(logits, batch.labels % 2))
    stage.notes["loss"] = loop.loss
    return model


def get(out: Path, function: Callable[[train.Stage], Any] = make) -> train.Stage:
    args = CommonArgs(out_dir=str(out))
    return train.shared(args, "general", {"seed": 0, "steps": 6}, word_tokenizer(), function)


def test_a_stage_is_made_once_and_charged_to_all(tmp_path: Path) -> None:
    def kill_in_second(loop: Loop) -> None:
        if loop.label == "second" and loop.step == 1:
            raise Killed

    whole = get(tmp_path / "whole")
    with pytest.raises(Killed):
        get(tmp_path, lambda stage: make(stage, kill_in_second))
    made = get(tmp_path)  # goes on where it was killed
    found = get(tmp_path, lambda stage: pytest.fail("made twice"))
    assert made.folder == found.folder == tmp_path / "cache" / "general" / train.stage_key({"steps": 6, "seed": 0})
    assert {made.notes["loss"], found.notes["loss"]} == {whole.notes["loss"]}
    weights = [(one.folder / "model.safetensors").read_bytes() for one in (whole, made)]
    assert weights[0] == weights[1]
    assert (made.ledger.steps, made.ledger.student_examples, made.ledger.shared_seconds) == (6, 48, 0)
    assert found.ledger.seconds == found.ledger.shared_seconds == made.ledger.seconds > 0
    assert found.ledger.steps == 6
    assert train.stage_key({"steps": 7, "seed": 0}) != made.folder.name
    left = {path.name for path in made.folder.parent.iterdir()}
    assert left == {made.folder.name, f"{made.folder.name}.lock"}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", train.NOTE])
def test_a_damaged_stage_is_made_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = get(tmp_path).folder / name
    good = path.read_bytes()
    for damaged in (good[: len(good) // 2], good.replace(good[-9:-8], b"?"), b""):
        path.write_bytes(damaged)
        assert get(tmp_path).ledger.shared_seconds == 0
        assert f"{path.parent}: damaged in the cache; it is made again" in capsys.readouterr().out
    if name == "model.safetensors":
        assert path.read_bytes() == good


def test_two_at_once_make_one(tmp_path: Path) -> None:
    """Two processes: the second waits, and finds it."""
    counted, args = tmp_path / "made", CommonArgs(cache_dir=str(tmp_path / "cache"))

    def count(_: train.Stage, folder: Path) -> None:
        time.sleep(0.3)  # so that both are here at once
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")
        with counted.open("a") as file:
            file.write("x")

    if (pid := os.fork()) == 0:
        train.kept(args, "general", {}, count)
        os._exit(0)
    assert train.kept(args, "general", {}, count).folder.exists()
    assert os.waitpid(pid, 0)[1] == 0
    assert counted.read_text() == "x"
