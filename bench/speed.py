"""How fast, and how small: what is ours beside its rivals, measured in turn.

    python -m bench speed                      # bench/benchmarks.py: ratios of kernels, losses and steps
    python -m bench speed mc3kd loop           # those whose name holds a word; `--save` keeps them
    python -m bench speed --table peers        # our distillation beside the library's Trainer, and TextBrewer
    python -m bench speed --table packed       # BERT-base packed in 2 and 1 bits beside float32 and others' int8
    python -m bench speed --table lengths      # attentions and windows by length, 2x256 and 12x768, with a plot

Contenders take turns, so that a noisy machine is noisy for all of them. Ratios of cases and peers are medians over the
turns; the other tables divide medians. Steps of the scripts and the loop are timed in processor time of all threads,
but for peers. Of "... / ours" and "... / fast" larger is better, of all other ratios smaller.
bench/results/kernels.json has a column for each machine; a ratio that is more than 20% worse than there is called so,
and the exit code is 1. A machine without one sees the first column, under its processor's name, and nothing is called.
Random weights change no speed.
Rivals that the project does not need itself are measured where they are installed (`pip install textbrewer tensorboard
onnx onnxscript onnxruntime`), and named with their versions.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from bench import FOLDER, Parser, report, saved
from bench.table import Grid
from common import models, results, train
from common.args import BadInput
from common.kinds import Kind
from common.layers import attention, onnx, packed

TOLERANCE = 0.2
Contenders = dict[str, Callable[[], float]]  # name -> the seconds that it needed
Inputs = list[dict[str, Any]]  # batches for a model

# --- time and memory ------------------------------------------------------------------------------------------


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


# --- what is measured: saved students, and models of random weights ---------------------------------------


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


def sentences(batch: int) -> Inputs:
    """A batch of drawn texts of 32 tokens."""
    ids = torch.randint(1000, 30_000, (batch, 32), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


class Specials:
    """The ids that LSG asks a tokenizer for, where there is none."""

    cls_token_id, mask_token_id = 2, 4


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
    """The forward pass over one text without padding: whole, or in windows side by side, as tags are read; those of
    questions overlap. It has read a short one before: libraries load things late."""
    texts, tokens = (length // WINDOW, WINDOW) if name == "windows" else (1, length)
    model = attention_model(name, tokens, library, layers, width).eval().to(device)
    inputs = {"input_ids": torch.randint(5, 1000, (texts, tokens), device=device)}
    if library and name == "longformer":
        inputs["global_attention_mask"] = (torch.arange(length) == 0).long()[None]

    @torch.no_grad()
    def read_texts(tokens: int = tokens) -> None:
        part = {name: values[:, :tokens] for name, values in inputs.items()}
        model(**part).last_hidden_state.sum().item()  # waits for a GPU

    read_texts(length if library else 8)  # the library's Nystromformer reads no other length
    return read_texts


def packed_model(bits: int, **shape: int) -> Any:
    """A BERT of random weights with so many bits a weight: 32, 2 or 1."""
    from methods import xtc

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape)).eval()  # type: ignore[arg-type]
    if bits < 32:
        xtc.quantize(model, bits)
        packed.pack_model(model)
    return model


# --- packed models -------------------------------------------------------------------------------------------


def save_packed(bits: int, folder: Path, kept: bool = False) -> int:
    """Write BERT-base of random weights with so many bits a weight; its bytes. `kept`: loaded, it is unpacked."""
    packed_model(bits).save_pretrained(folder)
    if kept:
        (folder / "kept").touch()
    return (folder / "model.safetensors").stat().st_size


def save_torch_int8(folder: Path) -> int:
    """Save the float32 model, whose linears torch rounds when it is loaded; the bytes of what it holds then."""
    save_packed(32, folder)
    (folder / "torch-int8").touch()
    model = load_student(folder)
    linears = [m._weight_bias() for m in model.modules() if isinstance(m, torch.ao.nn.quantized.dynamic.Linear)]
    floats = sum(4 * p.numel() for p in model.parameters())
    return floats + sum(weight.numel() + 4 * bias.numel() for weight, bias in linears)


def save_onnx(bits: int, folder: Path) -> int:
    """As a graph of ONNX Runtime: packed, or of float32 as its own tool rounds that to 8 bits."""
    from onnxruntime.quantization import quantize_dynamic

    folder.mkdir()
    graph = folder / "rival.onnx"
    onnx.save(packed_model(bits), lambda *_, **__: sentences(2)[0], graph)
    if bits == 32:
        quantize_dynamic(graph, graph)
    return graph.stat().st_size


def packed_models() -> dict[str, Any]:
    """BERT-base of random weights, sentences of 32 tokens, from token ids to logits; memory beyond the libraries'."""
    save: dict[str, Callable[[Path], int]] = {"float32": partial(save_packed, 32)}
    save[f"int8 by torch {version('torch')}"] = save_torch_int8
    found = version("onnxruntime", "onnx", "onnxscript")
    if found:
        save[f"int8 by ONNX Runtime {found}"] = partial(save_onnx, 32)
    save |= {f"{bits} bit{'s' * (bits > 1)}": partial(save_packed, bits) for bits in (2, 1)}
    save["1 bit, `keep`"] = partial(save_packed, 1, kept=True)
    if found:
        save[f"2 bits, ONNX Runtime {found}"] = partial(save_onnx, 2)
    with tempfile.TemporaryDirectory() as place:
        table: dict[str, Any] = {name: {"disk": call(Path(place, name)), "batches": {}} for name, call in save.items()}
        loaded = {name: load_student(Path(place, name)) for name in table}
        for batch in (1, 32):
            texts = sentences(batch)
            calls = {name: partial(forward, model, texts) for name, model in loaded.items()}
            for name, value in medians(calls, 5).items():
                peak = memory_of(partial, load_and_forward, Path(place, name), "classification", texts)
                table[name]["batches"][str(batch)] = {"seconds": value, "memory": peak}
    return {"length": 32, "models": table}


def packed_text(report: dict[str, Any]) -> str:
    hardware, table = report["environment"]["hardware"], report["models"]
    base = table["float32"]["batches"]
    processor = ", ".join(filter(None, [hardware["device"], hardware.get("instructions")]))
    text = (
        f"BERT-base's geometry, sentences of {report['length']} tokens, {processor}, {hardware['threads']}"
        " thread(s); milliseconds per sentence, megabytes of peak memory beyond the libraries':"
    )
    rows = []
    for name, row in table.items():
        cells = [name, f"{row['disk'] / 1e6:.1f}"]
        for batch, found in row["batches"].items():
            ms = 1000 * found["seconds"] / int(batch)
            cells.append(f"{ms:.1f} ({found['seconds'] / base[batch]['seconds']:.2f} x)")
            cells.append(f"{found['memory'] / 1e6:.0f} ({found['memory'] / base[batch]['memory']:.2f} x)")
        rows.append(cells)
    header = ["weights", "MB on disk", *(title for batch in base for title in (f"batch {batch}: ms", "MB"))]
    return f"{text}\n\n{Grid(header, rows).markdown()}"


# --- time and memory by length -------------------------------------------------------------------------------

LENGTHS = (512, 1024, 2048, 4096, 8192)


def lengths() -> dict[str, Any]:
    """One forward pass of one text, without padding; at two sizes."""
    shapes = {"2x256": read_by_length(2, 256, FULL, LENGTHS),
              "12x768": read_by_length(12, 768, ("sdpa", "windows"), (512, 4096))}  # fmt: skip
    table = shapes["2x256"]["attentions"]
    series: dict[str, report.Line] = {
        name: (LENGTHS, [1000 * value for value in row["seconds"].values()]) for name, row in table.items()
    }
    marks = [length for length in shapes["2x256"]["faster_than_sdpa_from"].values() if length is not None]
    title, image = "forward pass, 2x256; dotted: faster than sdpa", "efficient_attention/lengths.png"
    report.lines(series, Path("runs/figures", image), title, "tokens", "ms", marks, log=True)
    return {"shapes": shapes}


def read_by_length(layers: int, width: int, full: tuple[str, ...], lengths: tuple[int, ...]) -> dict[str, Any]:
    """Each attention, and full attention of the names `full`, in turn: seconds, bytes beyond the model's; and from
    which length it is faster than full attention over the whole text."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table: dict[str, Any] = {}
    for name in (*attention.ATTENTIONS, *full):
        model = attention_model(name, WINDOW if name == "windows" else lengths[-1], layers=layers, width=width)
        table[name] = {"seconds": {}, "bytes": {}, "parameters": models.parameters(model)}
    for length in lengths:
        calls = {name: attention_reader(name, layers, width, length, device) for name in table}
        for name, value in medians(calls).items():
            table[name]["seconds"][str(length)] = value
            table[name]["bytes"][str(length)] = memory_of(attention_reader, name, layers, width, length, device)
    whole = table["sdpa"]["seconds"]
    crossings = {name: crossing(table[name]["seconds"], whole) for name in attention.ATTENTIONS}
    return {"attentions": table, "faster_than_sdpa_from": crossings}


def crossing(own: dict[str, float], full: dict[str, float]) -> float | None:
    """The length from which `own` stays below `full`, by length: on a straight line of logs between two."""
    lengths, gaps = [int(L) for L in own], [math.log(own[L] / full[L]) for L in own]
    if gaps[-1] >= 0:
        return None
    last = max((i for i, gap in enumerate(gaps) if gap >= 0), default=None)
    if last is None:
        return float(lengths[0])
    share = gaps[last] / (gaps[last] - gaps[last + 1])
    return round(math.exp((1 - share) * math.log(lengths[last]) + share * math.log(lengths[last + 1])))


def lengths_text(report: dict[str, Any]) -> str:
    """The last column: time at the greatest length, as a share of that of windows."""
    rows = []
    for shape, entry in report["shapes"].items():
        windows = entry["attentions"]["windows"]["seconds"]
        for name, row in entry["attentions"].items():
            cells = [f"{1000 * row['seconds'][L]:.0f}, {row['bytes'][L] / 1e6:.0f}" if L in row["seconds"] else ""
                     for L in map(str, LENGTHS)]  # fmt: skip
            found = entry["faster_than_sdpa_from"].get(name)
            start = "-" if found is None else f"{found:.0f}"
            if name in FULL or len(windows) < 3:  # two lengths far apart do not say where the lines cross
                start = ""
            share = row["seconds"][list(windows)[-1]] / list(windows.values())[-1]
            rows.append([shape, name, f"{row['parameters'] / 1e6:.2f}M", *cells, start, f"{share:.2f}"])
    header = ["shape", "attention", "parameters", *(f"{L}: ms, MB" for L in LENGTHS)]
    return Grid([*header, "faster than sdpa from", "of windows' time"], rows).markdown()


def peers_text(report: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['examples_per_second']:.0f}", f"{row['seconds / ours']:.2f}", f"{row['megabytes']:.0f}"]
        for name, row in report["peers"].items()
    ]
    return Grid(["", "examples/s", "seconds / ours", "peak MB"], rows).markdown()


# --- the command ---------------------------------------------------------------------------------------------


def peers() -> dict[str, Any]:
    """Of bench/benchmarks.py, which has the material."""
    from bench import benchmarks

    return benchmarks.peers()


# --table -> its measurement, its text, and its file under bench/results
TABLES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], str], str]] = {
    "peers": (peers, peers_text, "peers"),
    "packed": (packed_models, packed_text, "xtc_inference"),
    "lengths": (lengths, lengths_text, "attention_profile"),
}
Ratios = dict[str, float]  # "case, numerator / denominator" -> value


def worse(checked_in: Ratios, found: Ratios) -> list[str]:
    """A line for each ratio that is more than `TOLERANCE` worse than the checked-in one."""
    lines = []
    for name in sorted(checked_in.keys() & found.keys()):
        before, now = checked_in[name], found[name]
        loss = before / now - 1 if name.endswith((" / ours", " / fast")) else now / before - 1
        if loss > TOLERANCE:
            lines.append(f"{name}: {now:.2f}, checked in {before:.2f}, {100 * loss:.0f}% worse")
    return lines


def ratios_text(report: dict[str, Any]) -> str:
    """A column for each machine."""
    every = [entry["ratios"] for entry in report["machines"].values()]
    names = max(every, key=len) | {name: 0.0 for ratios in every for name in ratios}
    rows = [[*name.split(", "), *(f"{ratios[name]:.2f}" if name in ratios else "-" for ratios in every)]
            for name in names]  # fmt: skip
    return Grid(["measured", "what is divided", *report["machines"]], rows).markdown()


def benchmarked(words: list[str]) -> Ratios:
    """The ratios that pytest-benchmark finds, of the cases whose name holds a word."""
    import pytest

    from bench.benchmarks import CASES

    for wrong in (word for word in words if not any(word in name for name in CASES)):
        raise BadInput(f"{wrong}: no case has this word; there is {', '.join(CASES)}")
    chosen = {name: case for name, case in CASES.items() if not words or any(word in name for word in words)}
    tests = [f"{results.ROOT}/bench/benchmarks.py::test_in_turn[{name}-{contender}]"
             for name, case in chosen.items() for contender in case.contenders]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "benchmarks.json")
        shown = ["--benchmark-enable", "--benchmark-group-by=param:name", "--benchmark-columns=median,iqr,rounds"]
        if code := pytest.main([*shown, f"--benchmark-json={kept}", f"--rootdir={results.ROOT}", *tests]):
            raise SystemExit(int(code))
        report = json.loads(kept.read_text(encoding="utf-8"))
    return {name: value for one in report["benchmarks"] for name, value in one["extra_info"].items()}


def main(argv: list[str]) -> None:
    parser = Parser("speed", __doc__)
    parser.add_argument("names", nargs="*", help="words of the cases' names; default: all")
    parser.add_argument("--table", choices=TABLES, help="measure this table instead of the ratios")
    parser.add_argument("--save", action="store_true", help="keep what was measured under bench/results")
    given = parser.parse_args(argv)
    if given.table is not None:
        measured, text, name = TABLES[given.table]
        report = measured() | {"environment": results.environment(on_cpu=given.table != "lengths")}
        print(text(report))
        if given.save:
            results.write_json(FOLDER / f"{name}.json", report)
        return
    machines, environment = saved("kernels")["machines"], results.environment(on_cpu=True)
    here = "{device}, {instructions}".format(**environment["hardware"])
    own = machines.get(here, {}).get("ratios", {})
    beside = here if own else next(iter(machines))  # another machine, if there is nothing of this one
    before = machines[beside]["ratios"]
    found = benchmarked(given.names)
    rows = [[name, f"{value:.2f}", f"{before[name]:.2f}" if name in before else "-"] for name, value in found.items()]
    print(results.columns(rows, ["ratio", f"now, {here}", f"checked in, {beside}"]))
    if given.save:
        entry = {"ratios": own | found, "environment": environment}
        results.write_json(FOLDER / "kernels.json", {"machines": machines | {here: entry}})
    if lines := worse(own, found):
        print("\n".join(lines))
        raise SystemExit(1)
