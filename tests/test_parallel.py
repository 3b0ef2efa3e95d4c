"""Several processes are one: reductions and their gradients, random numbers, a training, who writes and speaks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, draw, in_two_processes, tiny_bert
from torch import Tensor, nn

from common import parallel, results, train
from common.args import BadInput, Interrupted
from common.teacher import Teacher
from methods import mc3kd
from methods.mc3kd import ccc

# --- reductions ----------------------------------------------------------------------------------------------


def of_mean(x: Tensor) -> Tensor:
    return parallel.mean((x.sin() * draw(3)).sum(-1))


def of_whole(x: Tensor) -> Tensor:
    """A statistic in which every row meets every other."""
    x = parallel.whole(x)
    return (x @ x.T).exp().sum() + x.sum()


def of_ccc(x: Tensor) -> Tensor:
    S = parallel.whole(x)
    return ccc(S, draw(len(S), 4, seed=1), 1e-3)


def value_and_gradient(loss: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    value = loss(x)
    x.grad = None
    value.backward()
    return [value.detach(), x.grad]


@pytest.mark.forks
@pytest.mark.parametrize(
    ("loss", "counts"),
    [(of_mean, [3, 5]), (of_mean, [8, 0]), (of_mean, [0, 0]), (of_whole, [3, 5]), (of_whole, [0, 8]), (of_ccc, [3, 5])],
)
def test_a_loss_of_two_processes_is_that_of_all_rows(loss: Callable[[Tensor], Tensor], counts: list[int]) -> None:
    """The value in both, and of the gradient one's own rows, whatever their number."""
    x = draw(sum(counts), 3, seed=9)
    value, gradient = value_and_gradient(loss, x)
    assert value.isfinite()
    both = in_two_processes(lambda: value_and_gradient(loss, x.split(counts)[parallel.rank()]))
    for (found, mine), wanted in zip(both, gradient.split(counts), strict=True):
        torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-12)


def primitives() -> None:
    rank = parallel.rank()
    rows = {"x": torch.arange(5), "ids": list("abcde")}
    assert parallel.share_of(rows)["x"].tolist() == ([0, 1], [2, 3, 4])[rank]
    assert parallel.share_of(rows)["ids"] == (["a", "b"], ["c", "d", "e"])[rank]
    with pytest.raises(BadInput, match="1 examples at once are too few for 2 processes"):
        parallel.share_of(torch.zeros(1, 3))
    assert parallel.largest(rank + 1) == 2  # the largest, not the sum
    with pytest.raises(BadInput, match="needs GPUs"):
        parallel.batch_norm(3)

    # the main process alone: its result, its error, and its random numbers, which stay those of all
    torch.manual_seed(1)
    assert parallel.on_main(lambda: (parallel.rank(), parallel.processes(), bool(torch.rand(()) > 2))) == (0, 1, False)
    state = parallel.on_main(torch.get_rng_state)
    assert torch.equal(state, torch.get_rng_state())
    for error in (BadInput("--lr: too high"), Interrupted(15)):

        @parallel.by_main
        def fails(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            fails()
        assert str(raised.value) == str(error)

    # dropout differs between processes, steps and parts, and leaves the common numbers alone
    drawn = []
    for at in ((0, 0), (0, 1), (1, 0)):
        with parallel.randomness(*at):
            drawn.append(float(torch.rand(())))
    assert len({*drawn, *parallel.on_main(lambda: drawn)}) == (3, 6)[rank]
    assert torch.equal(state, torch.get_rng_state())

    # a weight that one process has no gradient for, and one that none has
    weights = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    weights[0].grad = torch.full((2,), 1.0 + rank)
    weights[1].grad = torch.full((2,), 5.0) if rank == 0 else None
    parallel.sum_gradients(weights)
    assert [None if p.grad is None else p.grad.tolist() for p in weights] == [[3.0, 3.0], [5.0, 5.0], None]
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, rank)
    parallel.copy_main([model])
    assert model.weight.eq(0).all()


@pytest.mark.forks
def test_primitives_of_two_processes() -> None:
    in_two_processes(primitives)


# --- a training ----------------------------------------------------------------------------------------------


class Texts:
    """Batches of 7 texts of unlike length: neither parts nor processes have the same number of rows or of tokens."""

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        mask = (torch.arange(9) < torch.tensor([9, 2, 4, 3, 7, 5, 4])[:, None]).long()
        ids = ((torch.arange(63).view(7, 9) * 11 + step) % 26 + 5) * mask
        return {"input_ids": ids, "attention_mask": mask, "labels": (ids[:, 0] + step) % 2}

    def ids(self, step: int) -> list[str]:
        return [f"train-{7 * step + i}" for i in range(7)]


def train_by(
    variant: str, folder: Path, parts: int = 1, steps: int = 12
) -> tuple[list[float], str, int, list[list[int]], dict[str, Any]]:
    """MC3KD's own step on two BERTs in float64, without dropout: losses, digest of the weights, teacher examples,
    layers that were drawn, the last line of the log."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    student, model = tiny_bert(2, 16, seed=1, **off).double(), tiny_bert(4, 16, seed=2).double().eval()
    teacher, args = Teacher("", model.requires_grad_(False), None, ""), mc3kd.Args()
    layers = mc3kd.partners(args.row(variant), [0.9, 0.1, 0.5, 0.3], 2)
    log, drawn = list[dict[str, Any]](), list[list[int]]()
    options: dict[str, Any] = {"parts": parts, "log": lambda **line: log.append(line)}
    guide = None if variant == "finetune" else teacher
    with train.Loop({"s": student}, Texts(), steps, 5e-3, folder, variant, **options) as loop:
        for batch in loop:
            drawn.append(torch.randperm(4, generator=batch.generator).tolist())
            loop.minimise(mc3kd.step_loss(args, args.row(variant), student, guide, batch, layers))
            if batch.last:
                loop.notes.setdefault("losses", []).append(loop.loss)
    weights = train.weights_digest(student.state_dict())
    return loop.notes["losses"], weights, loop.ledger.teacher_examples, drawn, log[-1]


@pytest.mark.forks
@pytest.mark.parametrize(("variant", "parts"), [("finetune", 3), ("pkd-last", 2), ("mc3kd", 1)])
def test_two_processes_train_as_one_does(variant: str, parts: int, tmp_path: Path) -> None:
    """Every loss, in both; the same weights in both; the teacher is asked once for each example of all. Both draw the
    same layers, and log everybody's terms, which add up to the loss.

    In float64 the gradients differ by 1e-15 of themselves, and AdamW's division by 1e-8 + their size makes at most
    1e-7 of that in 12 steps; losses are kept in float32, to 6e-8."""
    losses, _, asked, layers, line = train_by(variant, tmp_path / "one", parts)
    (first, weights, counted, drawn, log), second = in_two_processes(train_by, variant, tmp_path / "two", parts)
    assert second == (first, weights, counted, drawn, log)
    assert drawn == layers
    assert len({*map(str, drawn)}) > 6
    assert log["terms"] == pytest.approx(line["terms"], rel=1e-4)  # of 6 decimals
    weighed = {"KL": 0.9, "labels": 0.1, "PKD": 100.0, "CCC": 1.0}
    assert variant == "finetune" or sum(weighed[name] * term for name, term in log["terms"].items()) == pytest.approx(
        log["loss"], rel=1e-3
    )
    assert first == pytest.approx(losses, rel=1e-6)
    assert losses[0] != pytest.approx(losses[-1], rel=1e-2)  # it has learnt something
    assert counted == asked == (0 if variant == "finetune" else 7 * 12)
    assert len(list((tmp_path / "two").iterdir())) == 1


@pytest.mark.forks
@pytest.mark.parametrize("before", [1, 2])
def test_a_run_goes_on_with_another_number_of_processes(before: int, tmp_path: Path) -> None:
    whole, *_ = train_by("mc3kd", tmp_path / "whole")

    half, resumed = tmp_path / "parts", ("mc3kd", tmp_path / "parts")

    def stopped() -> None:
        real = train.Loop.minimise

        def minimise(self: train.Loop, loss: Tensor) -> None:
            real(self, loss)
            if self.step == 5:
                self.stop = 15 if parallel.main() else None  # one of them was asked to stop

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):  # noqa: PT012
            patch.setattr(train.Loop, "minimise", minimise)
            train_by("mc3kd", half)

    if before == 1:
        stopped()
        losses, *_ = in_two_processes(train_by, *resumed)[0]
    else:
        in_two_processes(stopped)
        losses, *_ = train_by(*resumed)
    assert losses == pytest.approx(whole, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun --nproc-per-node 2", "accelerate launch --multi_gpu --num_processes 2"])
def test_a_launcher(launcher: str, easy: list[str], tmp_path: Path) -> None:
    """One table, one process's warnings; a loss that is not finite is one line, and exit code 2 of each."""
    program, *words = launcher.split()
    argv = [*easy, "--variant", "mc3kd", "--student", "2x16", "--budget", "96"]
    command = [str(Path(sys.executable).with_name(program)), *words, str(ROOT / "methods" / "mc3kd.py"), *argv]
    command += ["--cache-dir", str(tmp_path / "cache"), "--out-dir"]
    done = subprocess.run([*command, str(tmp_path / "out")], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved: ") == 1
    assert done.stderr.count("warning: sst2 train has 640 rows") == 1
    record = results.load(next((tmp_path / "out").rglob("result.json")))
    assert record["environment"]["hardware"]["processes"] == 2
    command += [str(tmp_path / "bad"), "--lr", "1e30"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode != 0
    assert [line.count("try a lower --lr") for line in done.stderr.splitlines() if line.startswith("error: ")] == [1]
