"""Seconds of contenders that take turns, bytes of memory of a new process, and saved students to be measured."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from common import models, train
from common.kinds import Kind
from common.layers import attention, packed

Contenders = dict[str, Callable[[], float]]  # name -> the seconds that it needed
Inputs = list[dict[str, Any]]  # batches for a model


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turn(calls: Contenders, turns: int) -> dict[str, list[float]]:
    """What each call returns in every turn but the first, which warms up; every second turn goes backwards."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            spent[name].append(calls[name]())
    return {name: values[1:] for name, values in spent.items()}


def medians(calls: Mapping[str, Callable[[], object]], turns: int = 3) -> dict[str, float]:
    """Seconds of each call: the median over the turns."""
    spent = in_turn({name: partial(seconds, call) for name, call in calls.items()}, turns)
    return {name: statistics.median(values) for name, values in spent.items()}


def ratio(over: list[float], under: list[float]) -> float:
    """The median over the turns."""
    return round(statistics.median(a / b for a, b in zip(over, under, strict=True)), 3)


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a new process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BaseException:  # stopped: the pool would wait for the process to finish
            for process in multiprocessing.active_children():
                process.kill()
            raise


def memory_of(make: Callable[..., Callable[[], object]], *arguments: Any) -> int:
    """Bytes that the call `make(*arguments)` adds to a new process, which has done nothing larger than to make it."""
    return in_own_process(added, make, *arguments)


def added(make: Callable[..., Callable[[], object]], *arguments: Any) -> int:
    call, on_gpu = make(*arguments), torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if on_gpu else psutil.Process().memory_info().rss
    call()
    return max(1, train.peak_memory() - before)


def version(*packages: str) -> str:
    """That of the first package; none unless all of them are installed."""
    try:
        first, *_ = map(importlib.metadata.version, packages)
        return first
    except importlib.metadata.PackageNotFoundError:
        return ""


def load_student(folder: Path, kind: str = "classification") -> Any:
    """A saved model of any method, with the head of a kind of task; or a rival's, of the table packed."""
    import methods.cmow  # noqa: F401  # makes its models known to the library

    if (folder / "int8.onnx").exists():
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(folder / "int8.onnx", options, providers=["CPUExecutionProvider"])
        return lambda **batch: session.run(None, {name: values.numpy() for name, values in batch.items()})
    family: Any = Kind.of(kind).auto
    if hasattr(models.load_config(str(folder)), "efficient_attention"):
        return attention.load(folder, family).eval()
    model = family.from_pretrained(folder, use_safetensors=True, trust_remote_code=False).eval()
    if (folder / "kept").exists():
        return packed.keep(model)
    if (folder / "torch-int8").exists():
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    return model


@torch.inference_mode()
def forward(model: Any, inputs: Inputs) -> None:
    for batch in inputs:
        model(**batch)


def load_and_forward(folder: Path, kind: str, inputs: Inputs) -> None:
    forward(load_student(folder, kind), inputs)
