"""Several processes are one: losses, gradients, random numbers, curves, resuming, what is written and by whom."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, debug_launcher
from accelerate.state import AcceleratorState
from conftest import ENVIRONMENT, SCRIPT
from torch import Tensor, nn

from common import args as arguments
from common import data, parallel, results, train
from common.args import BadInput
from methods import cka, cmow, efficient_attention, mc3kd, xtc


def two(function: Callable[..., None], *given: Any, limit: int = 120) -> None:
    """Run it in two processes that form a group; what one of them raises is raised here."""

    def late(*_: object) -> None:
        raise TimeoutError(f"two processes have not come to an end in {limit} s")

    AcceleratorState._reset_state(reset_partial_state=True)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        debug_launcher(function, given, num_processes=2)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for child in multiprocessing.active_children():
            child.kill()


def group() -> None:
    """Join the group that `two` has started; to be called before anything is measured."""
    os.environ["WORLD_SIZE"] = "2"
    Accelerator(cpu=True, kwargs_handlers=[parallel.PATIENCE])
    assert parallel.processes() == 2


# --- the primitives ------------------------------------------------------------------------------------------


def test_one_process_gets_back_what_it_gave() -> None:
    x = torch.randn(4, 3)
    assert parallel.own(x) is x
    assert parallel.total(x) is x
    assert parallel.mean(x, 4) is x
    assert parallel.inner(x) is x
    assert parallel.count(4) == 4
    assert parallel.on_main(lambda: 5) == 5
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    with parallel.randomness(3):
        assert torch.equal(torch.rand(2), expected)


def check_primitives() -> None:
    group()
    rank = parallel.rank()
    batch = {"x": torch.arange(5), "ids": list("abcde")}
    assert parallel.own(batch)["x"].tolist() == ([0, 1] if rank == 0 else [2, 3, 4])
    assert parallel.own(batch)["ids"] == (["a", "b"] if rank == 0 else ["c", "d", "e"])
    with pytest.raises(BadInput, match="1 examples at once are too few for 2 processes"):
        parallel.own(torch.zeros(1, 3))
    assert parallel.count(3 + rank) == 7
    assert parallel.largest(rank) == 1

    # the main process alone: its result, its error, and its random numbers, which stay those of all
    calls: list[int] = []
    torch.manual_seed(1)
    assert parallel.on_main(lambda: (calls.append(1), parallel.processes(), float(torch.rand(()))))[1] == 1  # type: ignore[func-returns-value]
    assert len(calls) == (rank == 0)
    after = parallel.on_main(lambda: torch.get_rng_state())
    assert torch.equal(after, torch.get_rng_state())

    def fails() -> None:
        raise BadInput("--lr: too high")

    with pytest.raises(BadInput, match="--lr: too high"):
        parallel.on_main(fails)
    # dropout differs between processes and between steps, and leaves the common numbers alone
    drawn = []
    for step in (0, 1):
        with parallel.randomness(step):
            drawn.append(float(torch.rand(())))
    other = parallel.on_main(lambda: drawn)
    assert drawn[0] != drawn[1]
    assert (drawn == other) == (rank == 0)
    assert torch.equal(after, torch.get_rng_state())

    # a weight that one process has no gradient for, and one that none has
    weights = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    weights[0].grad = torch.full((2,), 1.0 + rank)
    if rank == 0:
        weights[1].grad = torch.full((2,), 5.0)
    parallel.sum_gradients(weights)
    assert weights[0].grad is not None and weights[0].grad.tolist() == [3.0, 3.0]  # noqa: PT018
    assert weights[1].grad is not None and weights[1].grad.tolist() == [5.0, 5.0]  # noqa: PT018
    assert weights[2].grad is None
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, rank)
    parallel.copy_main([model])
    assert model.weight.eq(0).all()


def test_primitives_of_two_processes() -> None:
    two(check_primitives)


# --- every loss, its value and its gradient, over two shards -------------------------------------------------

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # student (B, L, D), teacher (B, L, E), mask (B, L) -> a scalar


def pairs(S: Tensor, T: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Two layers of states, without padding: (2, n, D) and (2, n, E)."""
    return torch.stack([S[mask], S.tanh()[mask]]), torch.stack([T[mask], T.sin()[mask]])


def ccc(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    return mc3kd.ccc(*pairs(S, T, mask), ridge=1e-3).sum()


def root_cka(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    return cka.cka_loss(*pairs(S, T, mask)).sum()


def root_cka_after_others(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    """Eq. 4 over two parts of the batch, each shared by all processes; S and T are the own rows of both parts."""
    half = [parallel.count(len(S)) // 2 // parallel.processes()] * 2
    parts = [pairs(*part) for part in zip(*(x.split(half) for x in (S, T, mask)), strict=True)]
    with torch.no_grad():
        past = cka.covariances(*parts[0])
    return cka.cka_loss(*parts[1], past).sum()


def cka_surrogate(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    own = pairs(S, T, mask)
    with torch.no_grad():
        sums = cka.covariances(*own)
    return cka.cka_surrogate(*own, cka.cka_gradients(sums)).sum()


def batch_norm(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    torch.manual_seed(0)
    norm = cmow.BatchNorm(S.shape[1]).double()
    assert norm.training
    weight = torch.randn(S.shape[1], 1, S.shape[2], dtype=torch.float64)
    return parallel.total((norm(S[:, :, None]).tanh() * weight).sum())


def distilbert(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    class Out:
        def __init__(self, x: Tensor) -> None:
            self.logits, self.hidden_states = x[..., :5], [x[..., :5].sin()]

    labels = torch.where(mask & (S.detach()[..., 0] > 0.3), 2, -100)
    return efficient_attention.pretraining_loss(Out(S), Out(T), labels, mask.long(), "masked")


def general(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    labels = torch.where(S.detach()[..., 0] > 0.3, 2, -100)
    return cmow.general_loss(S[mask][:, :5], T[mask][:, :5], labels[mask])


def layers_and_scores(S: Tensor, T: Tensor, mask: Tensor) -> Tensor:
    scores, guides = (x[..., :4].unsqueeze(1) @ x[..., :4].unsqueeze(1).mT for x in (S, T))
    layers = xtc.hidden_loss([S[..., :5]], [T[..., :5]], mask) + xtc.attention_loss([scores], [guides], mask)
    return layers


LOSSES: dict[str, Loss] = {
    f.__name__: f
    for f in (ccc, root_cka, root_cka_after_others, cka_surrogate, batch_norm, distilbert, general, layers_and_scores)
}


def some_states() -> tuple[Tensor, Tensor, Tensor]:
    """Few vectors of many dimensions, so that the short cuts of one process are taken there; rows of unlike length."""
    torch.manual_seed(0)
    S, T = torch.randn(8, 6, 24, dtype=torch.float64), torch.randn(8, 6, 40, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 2, 3, 6, 1, 2, 2, 4])[:, None]
    return S + T[..., :24], T, mask


def value_and_gradient(loss: Loss, S: Tensor, T: Tensor, mask: Tensor) -> tuple[float, Tensor]:
    S = S.requires_grad_()
    value = loss(S, T, mask)
    value.backward()
    assert S.grad is not None
    return value.item(), S.grad


def check_losses(expected: dict[str, tuple[float, Tensor]]) -> None:
    group()
    for name, loss in LOSSES.items():
        rows = parallel.own(list(range(8)))
        if name == "root_cka_after_others":  # of each part its own rows
            rows = [row for part in (range(4), range(4, 8)) for row in parallel.own(list(part))]
        value, gradient = value_and_gradient(loss, *(x[rows] for x in some_states()))
        whole, wanted = expected[name]
        assert value == pytest.approx(whole, rel=1e-5), name
        scale = float(wanted.abs().max())
        torch.testing.assert_close(gradient, wanted[rows], rtol=1e-5, atol=1e-7 * scale)


def test_losses_of_two_shards_are_those_of_the_whole_batch() -> None:
    """Statistics of a batch (covariances of CKA and CCC, a norm's) and means over unlike numbers of tokens."""
    expected = {name: value_and_gradient(loss, *some_states()) for name, loss in LOSSES.items()}
    two(check_losses, expected)


def test_norm_is_the_librarys_on_one_process() -> None:
    torch.manual_seed(0)
    own, library = cmow.BatchNorm(3), nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 2, 2)
    assert torch.equal(own(x), library(x))


def check_norm(x: Tensor, expected: dict[str, Tensor]) -> None:
    group()
    norm = cmow.BatchNorm(3)
    norm(parallel.own(x))
    for name, value in norm.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_norm_keeps_the_running_statistics_of_the_whole_batch() -> None:
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    library = nn.BatchNorm2d(3)
    library(x)
    two(check_norm, x, library.state_dict())


# --- whole scripts -------------------------------------------------------------------------------------------

METHODS: dict[str, Any] = {m.__name__.split(".")[1]: m for m in (mc3kd, cka, cmow, xtc, efficient_attention)}
STEPS = 50
COMMON = f"--batch-size 8 --budget {STEPS * 8} --max-length 16 --save-every 1000 --seed 3 --limit 200".split()
# Every stage of every method, pre-training too. 1 and 2 bits have a test of their own.
CURVES = {
    "ccc": "mc3kd --variant mc3kd --student 2x16 --lr 5e-3",
    "cka": "cka --variant cka --student 2x16 --lr 2e-3 --minibatches 2",
    "pkd": "mc3kd --variant pkd-last --student 2x32 --lr 1e-3",
    "takd": "mc3kd --variant takd --student 2x16 --lr 5e-3",
    "cka-exact": "cka --variant cka --student 2x16 --lr 2e-3 --minibatches 2 --history exact --pretraining off",
    "lin": "cka --variant lin --student 2x16 --lr 2e-3",
    "cmow": "cmow --variant kd --student bidirectional-3-9 --mlp-width 16 --init general --lr 5e-3",
    "norm": "cmow --variant finetune --student cmow-5 --head cnn --lr 5e-3",
    "xtc": "xtc --variant xtc --student 2x32 --stages 2 --bits 8 --lr 1e-3",
    "xtc-32": "xtc --variant xtc --student 2x32 --stages 3 --bits 32 --lr 1e-3",
    "efficient": "efficient_attention --variant convert-distil --window 4 --short-length 16 --max-length 32",
    "kd": "efficient_attention --variant kd --short-length 16",
}
DEFAULT = ("ccc", "cka")  # one for each kind of statistic; the others are marked slow


def run_script(line: str, argv: list[str], out: Path, seen: Path, code: int = 0, stop: int = 0,
               dropout: bool = False) -> None:  # fmt: skip
    """A script in this process, which ends with `code`. What happens goes to files, others for each process: the loss
    of every step, the ids that are evaluated, the files below `out` that are opened for writing. Before step `stop`
    SIGINT is sent to the main process."""
    method, *own = line.split()
    module = METHODS[method]
    number = os.environ.get("LOCAL_RANK", "0")

    def note(kind: str, value: object) -> None:
        with (seen / f"{kind}.{number}").open("a") as file:
            file.write(json.dumps(value) + "\n")

    def watch(self: Any, loss: Tensor, step: int, ids: Any) -> None:
        if "teachers" not in self.path.parts:  # those the main process trains alone
            note("losses", loss.item())
            if stop and step == stop and number == "0":
                os.kill(os.getpid(), signal.SIGINT)
        real_watch(self, loss, step, ids)

    def forward(model: Any, encoded: data.Encoded, *given: Any) -> Any:
        for indices, *found in real_forward(model, encoded, *given):
            note("evaluated", [encoded.ids[i] for i in indices])
            yield indices, *found

    def audit(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and str(given[0]).startswith(str(out)) and given[2] & (os.O_WRONLY | os.O_RDWR):
            note("written", str(given[0]))

    seen.mkdir(parents=True, exist_ok=True)
    if parallel.distributed.is_initialized():  # a process of its own
        sys.addaudithook(audit)
    real_watch, real_forward, real_dropout = train.Checkpoint.watch, train.forward, nn.Dropout.forward
    train.Checkpoint.watch = watch  # type: ignore[method-assign]
    train.forward = forward
    if not dropout:
        nn.Dropout.forward = lambda self, x: x  # type: ignore[method-assign]
    found = 0
    try:
        argv = [*argv, *own, "--out-dir", str(out)]
        arguments.run(module.main, arguments.parse(module.Args, module.__doc__, argv))
    except SystemExit as end:
        found = int(end.code or 0)
    finally:
        train.Checkpoint.watch = real_watch  # type: ignore[method-assign]
        train.forward = real_forward
        nn.Dropout.forward = real_dropout  # type: ignore[method-assign]
    assert found == code


def alone(*given: Any, **named: Any) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        run_script(*given, **named)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def of_two(number: int, *given: Any) -> None:
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_RANK": str(parallel.distributed.get_rank())}
    run_script(*given)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(out: Path) -> dict[str, Any]:
    return results.load(next(out.rglob("result.json")))


def same_curve(one: list[float], other: list[float]) -> None:
    assert len(one) == len(other)
    assert max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True)) <= 1e-4


@pytest.mark.parametrize("name", [n if n in DEFAULT else pytest.param(n, marks=pytest.mark.slow) for n in CURVES])
def test_two_processes_have_the_curve_of_one(name: str, steady: list[str], tmp_path: Path) -> None:
    """Every step's loss in every stage to 1e-4, in both processes; the ledger; who evaluates what, who writes."""
    argv = [*steady, *COMMON]
    alone(CURVES[name], argv, tmp_path / "one", tmp_path / "alone")
    two(of_two, 0, CURVES[name], argv, tmp_path / "two", tmp_path / "both")
    first, *both = (lines(tmp_path / place) for place in ("alone/losses.0", "both/losses.0", "both/losses.1"))
    assert len(first) == STEPS
    assert both[0] == both[1]  # one loss, to the last bit
    same_curve(first, both[0])
    one, shared = record(tmp_path / "one"), record(tmp_path / "two")
    counted = ("steps", "student_examples", "student_tokens", "teacher_examples")
    assert [one["ledger"][k] for k in counted] == [shared["ledger"][k] for k in counted]
    assert one["signature"] == shared["signature"]
    assert (one["environment"]["hardware"]["processes"], shared["environment"]["hardware"]["processes"]) == (1, 2)
    # every example of dev once for the teacher and once for the student, in the main process
    evaluated = [i for batch in lines(tmp_path / "both" / "evaluated.0") for i in batch]
    assert sorted(evaluated) == sorted(2 * [f"dev-{i}" for i in range(31)])
    assert not (tmp_path / "both" / "evaluated.1").exists()
    assert lines(tmp_path / "both" / "written.0")
    assert not lines(tmp_path / "both" / "written.1")


@pytest.mark.parametrize("bits", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_few_bits_differ_by_rounding_alone(
    bits: int, steady: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 the curves of one process and of two are the same to 1e-10. In float32 sums in another order move a
    weight, or what is rounded to 8 bits, over a threshold now and then, also in one process whose rows are reversed."""
    line = f"xtc --variant xtc --student 2x32 --stages 2 --bits {bits} --lr 1e-3"
    argv = [*steady, *COMMON, "--teacher-cache", "off", "--cache-dir", str(tmp_path / "cache")]
    real_distil, real_batch = xtc.distil, data.Batches.__getitem__

    def double(args: Any, cell: Any, row: Any, student: nn.Module, teacher: Any, *rest: Any) -> Any:
        teacher.model.double()
        return real_distil(args, cell, row, student.double(), teacher, *rest)  # type: ignore[arg-type]

    def reversed_rows(self: Any, step: int) -> dict[str, Tensor]:
        return {name: rows.flip(0) for name, rows in real_batch(self, step).items()}

    with monkeypatch.context() as patch:
        patch.setattr(xtc, "distil", double)
        alone(line, argv, tmp_path / "one", tmp_path / "alone")
        two(of_two, 0, line, argv, tmp_path / "two", tmp_path / "both")
    first, both = (lines(tmp_path / place / "losses.0") for place in ("alone", "both"))
    assert len(first) == STEPS
    assert both == pytest.approx(first, rel=1e-10)
    alone(line, argv, tmp_path / "three", tmp_path / "float32")
    monkeypatch.setattr(data.Batches, "__getitem__", reversed_rows)
    alone(line, argv, tmp_path / "four", tmp_path / "reversed")
    there, back = (lines(tmp_path / place / "losses.0") for place in ("float32", "reversed"))
    differences = [abs(a - b) / a for a, b in zip(there, back, strict=True)]
    assert max(differences[:5]) < 1e-6
    assert max(differences) > (1e-4 if bits == 2 else 1e-5)


@pytest.mark.parametrize("before", [1, 2])
def test_resume_with_another_number_of_processes(before: int, steady: list[str], tmp_path: Path) -> None:
    """Ctrl-C in the middle: both processes stop after the same step, and the other number of them goes on."""
    line, argv = CURVES["ccc"], [*steady, *COMMON, "--cache-dir", str(tmp_path / "cache")]
    alone(line, argv, tmp_path / "whole", tmp_path / "alone")
    stopped, resumed = (tmp_path / "stopped", 130, 25), (tmp_path / "resumed",)
    if before == 1:
        alone(line, argv, tmp_path / "out", *stopped)
        two(of_two, 0, line, [*argv, "--resume"], tmp_path / "out", *resumed)
    else:
        two(of_two, 0, line, argv, tmp_path / "out", *stopped)
        assert lines(tmp_path / "stopped/losses.0") == lines(tmp_path / "stopped/losses.1")
        alone(line, [*argv, "--resume"], tmp_path / "out", *resumed)
    parts = [lines(tmp_path / place / "losses.0") for place in ("stopped", "resumed")]
    assert [len(part) for part in parts] == [26, 24]
    same_curve(lines(tmp_path / "alone" / "losses.0"), parts[0] + parts[1])
    assert record(tmp_path / "out")["ledger"]["student_examples"] == STEPS * 8


@pytest.mark.slow
def test_seconds_are_the_main_processs(steady: list[str], tmp_path: Path) -> None:
    """A budget in seconds ends after the same step in both, though each has a clock of its own."""
    two(of_two, 0, CURVES["cka"], [*steady, *COMMON, "--budget", "2s"], tmp_path / "out", tmp_path / "seen")
    first, second = (lines(tmp_path / "seen" / f"losses.{i}") for i in (0, 1))
    assert first == second
    assert record(tmp_path / "out")["ledger"]["seconds"] >= 2


def launched(steady: list[str], out: Path, launcher: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        *launcher.split(),
        str(SCRIPT),
        *steady,
        *COMMON,
        *CURVES["ccc"].split()[1:],
        *more,
        "--out-dir",
        str(out),
    ]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def test_a_launcher(steady: list[str], tmp_path: Path) -> None:
    """One table, and the warnings of one process."""
    done = launched(steady, tmp_path, "torchrun --nproc-per-node 2", "--budget", "40")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved: ") == 1
    assert done.stderr.count("warning: sst2 train has 200 rows") == 1
    assert record(tmp_path)["environment"]["hardware"]["processes"] == 2


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_all(steady: list[str], tmp_path: Path) -> None:
    """One line, and exit code 2 of each; the launcher's own report follows, and its exit code is its own."""
    done = launched(steady, tmp_path, "torchrun --nproc-per-node 2", "--lr", "1e30")
    assert done.returncode != 0
    assert "exitcode  : 2" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
    assert "try a lower --lr" in done.stderr


@pytest.mark.slow
def test_the_launcher_of_accelerate(steady: list[str], tmp_path: Path) -> None:
    done = launched(steady, tmp_path, "accelerate launch --multi_gpu --num_processes 2", "--budget", "40")
    assert done.returncode == 0, done.stderr
    assert record(tmp_path)["environment"]["hardware"]["processes"] == 2
