"""Seconds of contenders that take turns, bytes of memory of a new process; and what is measured: saved students, and
models of random weights, which change no speed."""

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
import transformers
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from bench.sizes import Specials
from common import models, train
from common.kinds import Kind
from common.layers import attention, packed

Contenders = dict[str, Callable[[], float]]  # name -> the seconds that it needed
Inputs = list[dict[str, Any]]  # batches for a model


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def timed(calls: Mapping[str, Callable[[], object]]) -> Contenders:
    return {name: partial(seconds, call) for name, call in calls.items()}


def in_turn(calls: Contenders, turns: int) -> dict[str, list[float]]:
    """What each call returns in every turn but the first, which warms up; every second turn goes backwards."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            spent[name].append(calls[name]())
    return {name: values[1:] for name, values in spent.items()}


def medians(calls: Mapping[str, Callable[[], object]], turns: int = 3) -> dict[str, float]:
    """Seconds of each call: the median over the turns."""
    return {name: statistics.median(values) for name, values in in_turn(timed(calls), turns).items()}


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
    """Bytes that the call `make(*arguments)` adds: of a GPU's memory, if "cuda" is an argument; else to a new process,
    which has done nothing larger than to make it."""
    return added(make, *arguments) if "cuda" in arguments else in_own_process(added, make, *arguments)


def added(make: Callable[..., Callable[[], object]], *arguments: Any) -> int:
    call, on_gpu = make(*arguments), "cuda" in arguments
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if on_gpu else psutil.Process().memory_info().rss
    call()
    return max(1, (torch.cuda.max_memory_allocated() if on_gpu else train.peak_memory()) - before)


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
    from bench.baselines import linear

    if (folder / "vocabulary.json").exists():
        return linear.load(folder)
    if (folder / "rival.onnx").exists():  # a student may have a model.onnx beside it, as docs/ship.md writes one
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # else its threads go on turning after a call, in the next contender's time
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(folder / "rival.onnx", options, providers=["CPUExecutionProvider"])
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


# --- random models of given shapes --------------------------------------------------------------------------


def sentences(batch: int) -> Inputs:
    """A batch of drawn texts of 32 tokens."""
    ids = torch.randint(1000, 30_000, (batch, 32), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


def reader(model: Any, texts: int, length: int, device: str, short: int = 8, **masks: Tensor) -> Callable[[], None]:
    """The forward pass of an encoder over texts without padding. It has read short ones: libraries load things late."""
    model = model.eval().to(device)
    inputs = {"input_ids": torch.randint(5, 1000, (texts, length), device=device), **masks}

    @torch.no_grad()
    def read_texts(tokens: int = length) -> None:
        part = {name: values[:, :tokens] for name, values in inputs.items()}
        model(**part).last_hidden_state.sum().item()  # waits for a GPU

    read_texts(short)
    return read_texts


# Full attention: the library's fused kernel, the same over windows of 512 tokens, and the one that holds the scores
FULL, WINDOW = ("sdpa", "windows", "eager"), 512


def attention_model(name: str, length: int, library: bool = False, layers: int = 2, width: int = 256) -> Any:
    """A random model with heads of 64; `library`: its own implementation of the same shape."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64,
        "intermediate_size": 4 * width, "vocab_size": 1000, "max_position_embeddings": length + 2 * library,
    }  # fmt: skip
    if library:
        more = {"longformer": {"attention_window": 512, "pad_token_id": 1}, "bigbird": {},
                "nystromformer": {"segment_means_seq_len": length}}[name]  # fmt: skip
        return transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model({"bigbird": "big_bird"}.get(name, name), **settings, **more)
        )
    model = transformers.BertModel(BertConfig(**settings))
    if name in FULL:
        model.set_attn_implementation("eager" if name == "eager" else "sdpa")
    else:
        attention.convert(model, name, length, Specials)
    return model


def attention_reader(name: str, layers: int, width: int, length: int, device: str = "cpu",
                     library: bool = False) -> Callable[[], None]:  # fmt: skip
    """Of one text: whole, or in windows side by side, as tags are read. Those of questions overlap."""
    texts, tokens = (length // WINDOW, WINDOW) if name == "windows" else (1, length)
    first = {"global_attention_mask": (torch.arange(length) == 0).long()[None]}
    masks = first if library and name == "longformer" else {}
    short = length if library else 8  # the library's Nystromformer reads no others
    return reader(attention_model(name, tokens, library, layers, width), texts, tokens, device, short, **masks)


def packed_model(bits: int, **shape: int) -> Any:
    """A BERT of random weights with so many bits a weight: 32, 8, 2 or 1."""
    from methods import xtc

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape)).eval()  # type: ignore[arg-type]
    if bits == 8:
        packed.rounded(model)
    elif bits < 8:
        xtc.quantize(model, bits)
        packed.pack_model(model)
    return model
