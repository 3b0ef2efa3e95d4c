"""Several processes, one student: each passes its own rows of every batch, and what is minimised is the whole batch's.

    accelerate launch --num_processes 8 methods/mc3kd.py --task rte          # one process for each GPU
    torchrun --nproc-per-node 2 methods/mc3kd.py --device cpu                # the same without GPUs

Every process makes the same batch, a pure function of seed and step, and takes its share of the rows (`own`). Losses
are made of `mean`, `total`, `count` and `centred`, whose values are those of the whole batch in every process and whose
gradients reach the process's own rows: summed over the processes (`sum_gradients`), they are the gradient of the whole
batch, whatever it is a statistic of. Models run several times in a step, so that no wrapper of a single forward pass
would do. The transport is accelerate's.

The main process alone evaluates, writes and prints (`by_main`); its clock and its files decide. In one process, and
inside of what the main process does alone, every function here gives back what it was given.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import InitProcessGroupKwargs, broadcast, broadcast_object_list, reduce
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.args import BadInput, Interrupted

# The others wait while the main process fine-tunes a teacher or evaluates; without end, a process that was lost on
# another machine would never be missed.
PATIENCE = InitProcessGroupKwargs(timeout=timedelta(days=2))

P = ParamSpec("P")
T = TypeVar("T")
_alone = False  # whether the main process does something that the others wait for


def processes() -> int:
    return distributed.get_world_size() if distributed.is_initialized() and not _alone else 1


def rank() -> int:
    return distributed.get_rank() if processes() > 1 else 0


def main() -> bool:
    return rank() == 0


def on_cpu() -> bool:
    return PartialState().device.type == "cpu"


def quiet() -> None:
    """Silence the standard output, and the library's messages and bars, of all processes but the main one."""
    if not main():
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)


# --- rows and losses -----------------------------------------------------------------------------------------


def own(batch: Any) -> Any:
    """This process's rows of a batch: of a dict of tensors, a tensor or a list; shares differ by one row at most."""
    if processes() == 1:
        return batch
    if isinstance(batch, dict):
        return {name: own(values) for name, values in batch.items()}
    size, parts = len(batch), processes()
    if size < parts:
        raise BadInput(f"--batch-size: {size} examples at once are too few for {parts} processes")
    return batch[size * rank() // parts : size * (rank() + 1) // parts]


class Part(NamedTuple):
    """This process's rows of a part of a batch, and the share of the batch that the part is."""

    number: int
    share: float
    rows: dict[str, Tensor]
    ids: list[str]


def parts(batch: dict[str, Tensor], ids: list[str], number: int) -> Iterator[Part]:
    """A batch in `number` parts (`--accumulate`), fewer if it has too few rows; the gradients of a step are their sum.

    A statistic over rows or tokens is then one over those of a part.
    """
    size = len(ids)
    number = max(1, min(number, size // processes()))
    ends = [size * i // number for i in range(number + 1)]
    for i, (a, b) in enumerate(itertools.pairwise(ends)):
        yield Part(i, (b - a) / size, own({name: rows[a:b] for name, rows in batch.items()}), own(ids[a:b]))


class _Total(torch.autograd.Function):
    """The sum over processes, the same bits in each; its gradient is that of the own summand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return reduce(x, "sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def total(x: Tensor) -> Tensor:
    """The sum of the processes' x, of which each holds the part of its own rows."""
    return x if processes() == 1 else _Total.apply(x)


def count(n: int) -> int:
    """The sum of the processes' n."""
    return n if processes() == 1 else int(reduce(torch.tensor(n, device=PartialState().device), "sum"))


def mean(x: Tensor, n: int | Tensor) -> Tensor:
    """The mean over the rows of all processes, of which x is the mean over this one's n; 0 if there is no row."""
    if processes() == 1:
        return x
    return total(x * n) / total(torch.as_tensor(n, dtype=torch.float32, device=x.device)).clamp(min=1)


def centred(x: Tensor) -> Tensor:
    """(..., n, D) minus its mean over the rows of all processes.

    For second moments alone: summed over all rows their gradient towards the mean is 0, so that it needs none.
    """
    own_mean = x.mean(-2, keepdim=True)
    return x - (own_mean if processes() == 1 else mean(own_mean.detach(), x.shape[-2]))


def inner(x: Tensor) -> Tensor:
    """The sum of the processes' x for use inside of a model, whose outputs in all processes depend on it."""
    return x if processes() == 1 else all_reduce(x)  # type: ignore[no-untyped-call]


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Make every process's gradients the sum over all processes'; call after the backward pass, before clipping."""
    if processes() == 1:
        return
    trained = [p for p in parameters if p.requires_grad]
    found = torch.tensor([p.grad is not None for p in trained], dtype=torch.float32, device=trained[0].device)
    # what no process has a gradient for stays without one, as it would in one process
    used = [p for p, n in zip(trained, reduce(found, "sum").tolist(), strict=True) if n]
    for p in used:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    gradients = [p.grad for p in used if p.grad is not None]
    vector_to_parameters(reduce(parameters_to_vector(gradients), "sum"), gradients)


# --- random numbers ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def randomness(step: int, part: int = 0) -> Iterator[None]:
    """For the models' passes of a part of a step: dropout that differs between processes.

    Outside, all draw the same numbers (masks, a choice of teacher), and a checkpoint holds the state of all: a run may
    go on with another number of processes.
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


def largest(value: int) -> int:
    """The largest of the processes' values."""
    return value if processes() == 1 else int(reduce(torch.tensor(int(value), device=PartialState().device), "max"))


@torch.no_grad()
def copy_main(modules: Iterable[nn.Module]) -> None:
    """Give every process the weights and buffers of the main one's modules."""
    if processes() > 1:
        for tensor in (tensor for module in modules for tensor in module.state_dict().values()):
            tensor.copy_(broadcast(tensor.to(PartialState().device, copy=True)))
