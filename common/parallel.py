"""Devices, precision, and several processes that train one student.

    accelerate launch --num_processes 8 methods/mc3kd.py --task rte          # one process for each GPU
    torchrun --nproc-per-node 2 methods/mc3kd.py --device cpu                # the same without GPUs

Every process makes the same batch, a function of seed and step alone, and passes its share of the rows (`share_of`)
through the models. A loss is made of two reductions: `mean`, over everybody's rows, and, for a statistic of the whole
batch, `whole`, everybody's rows. Its value is then the whole batch's in every process, and the processes' gradients,
summed (`sum_gradients`), are the gradient of the whole batch. The transport is accelerate's and torch's.

The main process alone evaluates, writes and prints (`by_main`). In one process, and inside of what the main process
does alone, every function here gives back what it was given.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast, broadcast_object_list, gather, gather_object, reduce
from torch import Tensor, distributed, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from tqdm import tqdm

from common.errors import BadInput, Interrupted

# The others wait while the main process fine-tunes a teacher or evaluates; a process that is lost is missed in the end.
PATIENCE = InitProcessGroupKwargs(timeout=timedelta(days=2))

P = ParamSpec("P")
T = TypeVar("T")
_alone = False  # whether the main process does something that the others wait for
_engine: Accelerator | None = None


# --- the machine ---------------------------------------------------------------------------------------------


def start(device: str, precision: str) -> None:
    """Take the device (`--device`) and the precision (`--precision`), with deterministic kernels where they exist. The
    library is silent from here on: what a script has to say it says itself."""
    global _engine
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise BadInput(f"--device {device}: this machine has no {device.upper()}; --device cpu or auto would work")
    cpu = device == "cpu" or not torch.accelerator.is_available()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # of attention's backward pass on GPUs
    warnings.filterwarnings("ignore", ".* defaults to a non-deterministic algorithm")
    # filling memory takes a twentieth of a small student's step
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        mixed = {"fp32": "no"}.get(precision, precision)
        _engine = Accelerator(cpu=cpu, mixed_precision=mixed, kwargs_handlers=[PATIENCE])
    except (ValueError, RuntimeError) as error:
        raise BadInput(f"--precision {precision} --device {device}: {error}") from error
    if precision == "fp16" and _engine.device.type != "cuda":
        raise BadInput(f"--precision fp16: needs a CUDA device, this is {_engine.device.type}; bf16 or fp32 would work")
    if (started := int(os.environ.get("WORLD_SIZE", 1))) != processes():
        raise BadInput(f"--device {device}: {started} processes were started, which {_engine.device} cannot join")
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    set_verbosity_error()
    disable_progress_bar()
    if not main():  # the main process speaks for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)


def engine() -> Accelerator:
    """The accelerator that `start` made; without `start`, as in a notebook or a test, one in float32 on the CPU."""
    global _engine
    if _engine is None:
        _engine = Accelerator(cpu=True, mixed_precision="no")
    return _engine


def device() -> torch.device:
    return engine().device


def processes() -> int:
    return distributed.get_world_size() if distributed.is_initialized() and not _alone else 1


def rank() -> int:
    return distributed.get_rank() if processes() > 1 else 0


def main() -> bool:
    return rank() == 0


def progress(total: int, label: str, done: int = 0) -> tqdm:
    """A bar with the time left, of the main process; silent when the output is not a terminal."""
    disable = None if main() else True
    return tqdm(total=total, initial=done, desc=label, disable=disable, leave=False, dynamic_ncols=True)


# --- rows and reductions -------------------------------------------------------------------------------------


def share_of(rows: Any) -> Any:
    """This process's share of the rows of a tensor, a list, or a dict of these; shares differ by one row at most."""
    if processes() == 1:
        return rows
    if isinstance(rows, dict):
        return {name: share_of(values) for name, values in rows.items()}
    size, parts = len(rows), processes()
    if size < parts:
        raise BadInput(f"--batch-size: {size} examples at once are too few for {parts} processes")
    return rows[size * rank() // parts : size * (rank() + 1) // parts]


class _Gather(torch.autograd.Function):
    """Everybody's rows, in the order of the processes; the gradient of one's own rows goes back to them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        counts = gather(torch.tensor([len(rows)], device=rows.device)).tolist()
        padded = torch.cat([rows, rows.new_zeros(max(counts) - len(rows), *rows.shape[1:])])
        everybody = gather(padded).chunk(len(counts))
        ctx.start, ctx.size = sum(counts[: rank()]), len(rows)
        return torch.cat([one[:count] for one, count in zip(everybody, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient[ctx.start : ctx.start + ctx.size]


def whole(rows: Tensor) -> Tensor:
    """(n, ...) -> the rows of all processes, of which each may have another number; the gradient goes to one's own.

    Every process has to go on with the same loss of all rows: the gradient then is complete.
    """
    return rows if processes() == 1 else _Gather.apply(rows)


def mean(rows: Tensor) -> Tensor:
    """(n,) -> (): the mean over the rows of all processes; 0 if there is none."""
    rows = whole(rows)
    return rows.mean() if len(rows) else rows.sum()


def batch_norm(channels: int) -> nn.Module:
    """A norm of images by the statistics of the whole batch. Several processes share these on GPUs alone."""
    if processes() == 1:
        return nn.BatchNorm2d(channels)
    if device().type != "cuda":
        raise BadInput(f"--device {device().type}: a batch norm in several processes needs GPUs; one process works")
    return nn.SyncBatchNorm(channels)


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Make every process's gradients the sum over all processes'; call after the backward pass, before clipping."""
    if processes() == 1:
        return
    trained = [p for p in parameters if p.requires_grad]
    has_one = torch.tensor([p.grad is not None for p in trained], dtype=torch.float32, device=trained[0].device)
    # what no process has a gradient for stays without one, as it would in one process
    used = [p for p, n in zip(trained, reduce(has_one, "sum").tolist(), strict=True) if n]
    for p in used:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    gradients = [p.grad for p in used if p.grad is not None]
    vector_to_parameters(reduce(parameters_to_vector(gradients), "sum"), gradients)


def largest(value: int) -> int:
    """The largest of the processes' values."""
    return value if processes() == 1 else int(reduce(torch.tensor(int(value), device=device()), "max"))


def of_all(value: T) -> list[T]:
    """The processes' values, which may be any."""
    return [value] if processes() == 1 else gather_object([value])


@torch.no_grad()
def copy_main(modules: Iterable[nn.Module]) -> None:
    """Give every process the weights and buffers of the main one's modules."""
    if processes() > 1:
        for tensor in (tensor for module in modules for tensor in module.state_dict().values()):
            tensor.copy_(broadcast(tensor.to(device(), copy=True)))


# --- random numbers ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def randomness(step: int, part: int = 0) -> Iterator[None]:
    """For the models' passes of a part of a step: dropout that differs between processes.

    Outside, all draw the same numbers, and a checkpoint holds the state of all: a run may go on with another number of
    processes.
    """
    if processes() == 1:
        yield
        return
    common = zlib.crc32(torch.get_rng_state().numpy().tobytes())
    (seed,) = np.random.SeedSequence([common, step, part, rank()]).generate_state(1, np.uint64)
    with _kept():
        torch.manual_seed(int(seed) >> 1)
        yield


def _kept() -> contextlib.AbstractContextManager[None]:
    """Random numbers after this context are as if it had drawn none."""
    return torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else [])


# --- what the main process does alone ------------------------------------------------------------------------


def on_main(function: Callable[[], T]) -> T:
    """What `function` returns, or the `BadInput` it raises, in every process; the main one alone runs it."""
    global _alone
    if processes() == 1:
        return function()
    box: list[Any] = [None, None]
    if main():
        _alone = True
        try:
            with _kept():
                box[0] = function()
        except (BadInput, Interrupted) as error:
            box[1] = error
        finally:
            _alone = False
    broadcast_object_list(box)
    if box[1] is not None:
        raise box[1]
    return box[0]


def by_main(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates what the main process does alone: `on_main`."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        return on_main(functools.partial(function, *arguments, **named))

    return call
