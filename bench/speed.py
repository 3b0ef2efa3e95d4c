"""How fast, and how small: what is ours beside its rivals, measured in turn.

    python -m bench speed                      # bench/benchmarks.py: ratios of kernels, losses and steps
    python -m bench speed mc3kd loop           # those whose name holds a word; `--save` keeps them
    python -m bench speed --table steps        # a training step of every method: how it is computed, and peak memory
    python -m bench speed --table profile      # where the time of such a step goes
    python -m bench speed --table peers        # our distillation beside the library's Trainer, and TextBrewer
    python -m bench speed --table packed       # BERT-base packed in 8, 2 and 1 bits beside float32 and others' int8
    python -m bench speed --table lengths      # attentions and windows by length, 2x256 and 12x768, with a plot
    python -m bench speed --table training     # training steps of these over long texts with padding
    python -m bench speed --table encoders     # encoders of the efficient-attention paper's table 2, 16 texts on a GPU
    python -m bench speed --table students     # sentences per second of cmow's encoders, a half teacher, and BERT-base

Contenders take turns, so that a noisy machine is noisy for all of them. Ratios of cases, steps and peers are medians
over the turns; the other tables divide medians. Steps of the scripts and the loop are timed in processor time of all
threads, but for peers. Of "... / ours" and "... / fast" larger is better, of all other ratios smaller.
bench/results/kernels.json has a column for each machine; a ratio that is more than 20% worse than there is called so,
and the exit code is 1. A machine without one sees the first column, under its processor's name, and nothing is called.
Random weights change no speed.
Rivals that the project does not need itself are measured where they are installed (`pip install textbrewer tensorboard
onnx onnxscript onnxruntime`), and named with their versions.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from bench import measure, plots, steps
from bench.benchmarks import CASES
from bench.cli import FOLDER, Parser, saved
from bench.grid import Grid
from bench.measure import FULL, WINDOW, attention_model, attention_reader, medians, memory_of, packed_model, reader
from bench.sizes import ENCODERS, cells, encoder
from common import models, results
from common.args import BadInput
from common.layers import attention, onnx

TOLERANCE = 0.2
ON_GPU = ("lengths", "training", "encoders")  # tables of a GPU, where there is one


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
    model = measure.load_student(folder)
    linears = [m._weight_bias() for m in model.modules() if isinstance(m, torch.ao.nn.quantized.dynamic.Linear)]
    floats = sum(4 * p.numel() for p in model.parameters())
    return floats + sum(weight.numel() + 4 * bias.numel() for weight, bias in linears)


def save_onnx(bits: int, folder: Path) -> int:
    """As a graph of ONNX Runtime: packed, or of float32 as its own tool rounds that to 8 bits."""
    from onnxruntime.quantization import quantize_dynamic

    folder.mkdir()
    graph = folder / "rival.onnx"
    onnx.save(packed_model(bits), lambda *_, **__: measure.sentences(2)[0], graph)
    if bits == 32:
        quantize_dynamic(graph, graph)
    return graph.stat().st_size


def packed() -> dict[str, Any]:
    """BERT-base of random weights, sentences of 32 tokens, from token ids to logits; memory beyond the libraries'."""
    save: dict[str, Callable[[Path], int]] = {"float32": partial(save_packed, 32)}
    save[f"int8 by torch {measure.version('torch')}"] = save_torch_int8
    found = measure.version("onnxruntime", "onnx", "onnxscript")
    if found:
        save[f"int8 by ONNX Runtime {found}"] = partial(save_onnx, 32)
    save |= {f"{bits} bit{'s' * (bits > 1)}": partial(save_packed, bits) for bits in (8, 2, 1)}
    save["1 bit, `keep`"] = partial(save_packed, 1, kept=True)
    if found:
        save[f"2 bits, ONNX Runtime {found}"] = partial(save_onnx, 2)
    with tempfile.TemporaryDirectory() as place:
        table: dict[str, Any] = {name: {"disk": call(Path(place, name)), "batches": {}} for name, call in save.items()}
        loaded = {name: measure.load_student(Path(place, name)) for name in table}
        for batch in (1, 32):
            texts = measure.sentences(batch)
            calls = {name: partial(measure.forward, model, texts) for name, model in loaded.items()}
            for name, value in medians(calls, 5).items():
                peak = memory_of(partial, measure.load_and_forward, Path(place, name), "classification", texts)
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


def by_length(make: Callable[..., Callable[[], None]], rows: dict[str, tuple[Any, ...]],
              lengths: tuple[int, ...]) -> dict[str, Any]:  # fmt: skip
    """Seconds, and bytes beyond the model's, of what `make(*row, length, device)` gives for each row, in turn."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table: dict[str, Any] = {name: {"seconds": {}, "bytes": {}} for name in rows}
    for length in lengths:
        for name, value in medians({name: make(*row, length, device) for name, row in rows.items()}).items():
            table[name]["seconds"][str(length)] = value
            table[name]["bytes"][str(length)] = memory_of(make, *rows[name], length, device)
    return table


def lengths() -> dict[str, Any]:
    """One forward pass of one text, without padding; at two sizes."""
    shapes = {"2x256": read_by_length(2, 256, FULL, LENGTHS),
              "12x768": read_by_length(12, 768, ("sdpa", "windows"), (512, 4096))}  # fmt: skip
    table = shapes["2x256"]["attentions"]
    series: dict[str, plots.Line] = {
        name: (LENGTHS, [1000 * value for value in row["seconds"].values()]) for name, row in table.items()
    }
    marks = [length for length in shapes["2x256"]["faster_than_sdpa_from"].values() if length is not None]
    title, image = "forward pass, 2x256; dotted: faster than sdpa from here", "efficient_attention/lengths.png"
    plots.lines(series, Path("runs/figures", image), title, "tokens", "ms", marks, log=True)
    return {"shapes": shapes}


def read_by_length(layers: int, width: int, full: tuple[str, ...], lengths: tuple[int, ...]) -> dict[str, Any]:
    """Each attention beside full attention of the names `full`; and from which length it is faster than that over the
    whole text."""
    names = (*attention.ATTENTIONS, *full)
    table = by_length(attention_reader, {name: (name, layers, width) for name in names}, lengths)
    for name, row in table.items():
        model = attention_model(name, WINDOW if name == "windows" else lengths[-1], layers=layers, width=width)
        row["parameters"] = models.parameters(model)
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


TRAINED = (1024, 4096, 16384)


def attention_trainer(name: str, length: int, device: str) -> Callable[[], None]:
    """Forward and backward pass over two texts, of which one is half as long and padded. Without dropout: with it, full
    attention has no fused kernel on CPUs."""
    model = attention_model(name, length).eval().to(device)
    ids, mask = torch.randint(5, 1000, (2, length), device=device), torch.ones(2, length, device=device).long()
    mask[1, length // 2 :] = 0

    def step(tokens: int = length) -> None:
        states = model(ids[:, :tokens], attention_mask=mask[:, :tokens]).last_hidden_state
        loss = states[mask[:, :tokens] == 1].square().mean()
        torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)[0].sum().item()  # waits for a GPU

    step(8)
    return step


def training() -> dict[str, Any]:
    """A training step's two passes over a padded batch."""
    rows = {name: (name,) for name in (*attention.ATTENTIONS, "sdpa")}
    return {"shape": "2x256", "attentions": by_length(attention_trainer, rows, TRAINED)}


def training_text(report: dict[str, Any]) -> str:
    full, rows = report["attentions"]["sdpa"], []
    for name, row in report["attentions"].items():
        cells = [f"{value:.2f} (x {value / full['seconds'][L]:.2f}), {row['bytes'][L] / 1e6:,.0f}"
                 for L, value in row["seconds"].items()]  # fmt: skip
        rows.append([name, *cells])
    return Grid(["attention", *(f"{L}: s (of sdpa's), MB" for L in full["seconds"])], rows).markdown()


# --- the encoders of the efficient-attention paper's tables 2 and 4 ------------------------------------------

BATCH = 16 if torch.cuda.is_available() else 1  # the paper's; a CPU needs minutes for so many
ENCODER_LENGTHS = (512, 4096)  # the paper's


def encoder_reader(name: str, half: bool, length: int, device: str) -> Callable[[], None]:
    """A row of table 2, with random weights. Full attention has as many positions as there are tokens, as table 4."""
    torch.manual_seed(0)
    return reader(encoder(name, half, length), BATCH, length, device)


def encoders() -> dict[str, Any]:
    """Seconds and bytes of tables 2 and 4, on the machine at hand. An encoder and its half take turns; each pair is
    measured by itself, as they are large."""
    halved = {cell.row for cell in cells("efficient_attention") if cell.column == "half the layers"}
    table: dict[str, Any] = {}
    for name in ENCODERS:
        rows = {name: (name, False)} | ({f"{name}, half": (name, True)} if name in halved else {})
        table |= by_length(encoder_reader, rows, ENCODER_LENGTHS)
    return {"batch": BATCH, "encoders": table}


def encoders_text(report: dict[str, Any]) -> str:
    rows = [[name, *(f"{row['seconds'][L]:.3f}, {row['bytes'][L] / 1e6:.0f}" for L in row["seconds"])]
            for name, row in report["encoders"].items()]  # fmt: skip
    return Grid(["encoder", *(f"{L}: s, MB" for L in ENCODER_LENGTHS)], rows).markdown()


# --- sentences per second of students without attention ------------------------------------------------------


class StaticEmbeddings(nn.Module):
    """What sentence-transformers' StaticEmbedding computes, the mean of the tokens' embeddings; a linear probe."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classifier = nn.EmbeddingBag(30_522, 256), nn.Linear(256, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        lengths = attention_mask.sum(1)
        return self.classifier(self.words(input_ids[attention_mask.bool()], lengths.cumsum(0) - lengths))


def students() -> dict[str, Any]:
    """BERT-base, its half, static embeddings, and the paper's encoders with their linear probe, over sentences of 32
    tokens."""
    from methods import cmow

    half = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig())
    contenders: dict[str, Any] = {"BERT 12x768": packed_model(32), "DistilBERT": half,
                                  "static embeddings": StaticEmbeddings()}  # fmt: skip
    for name, (size, length) in cmow.PAPER_SIZES.items():
        config = cmow.MatrixEmbeddingConfig(matrix_size=size, vector_size=length, bidirectional="bi" in name,
                                            diffcat=False, head="linear")  # fmt: skip
        contenders[name] = cmow.MatrixEmbeddingForSequenceClassification(config)
    table: dict[str, Any] = {name: {"parameters": models.parameters(m)} for name, m in contenders.items()}
    for batch in (1, 64):
        texts = measure.sentences(batch)
        calls = {name: partial(measure.forward, model.eval(), texts) for name, model in contenders.items()}
        for name, value in medians(calls, 5).items():
            table[name][str(batch)] = batch / value
    return {"models": table}


def students_text(report: dict[str, Any]) -> str:
    first = next(iter(report["models"].values()))
    rows = [
        [name, f"{row['parameters'] / 1e6:.2f}M"]
        + [cell for batch in ("1", "64") for cell in (f"{row[batch]:.0f}", f"{row[batch] / first[batch]:.1f}x")]
        for name, row in report["models"].items()
    ]
    return results.columns(rows, ["sentences/s", "params", "batch 1", "", "batch 64", ""])


# --- the command ---------------------------------------------------------------------------------------------

# --table -> its measurement, its text, and its file under bench/results
TABLES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], str], str]] = {
    "steps": (steps.steps, steps.steps_text, "steps"), "profile": (steps.profile, steps.profile_text, "step_parts"),
    "peers": (steps.peers, steps.peers_text, "peers"), "packed": (packed, packed_text, "xtc_inference"),
    "lengths": (lengths, lengths_text, "attention_profile"),
    "training": (training, training_text, "attention_training"),
    "encoders": (encoders, encoders_text, "attention_encoders"), "students": (students, students_text, "cmow_students"),
}  # fmt: skip
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
        report = measured() | {"environment": results.environment(on_cpu=given.table not in ON_GPU)}
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
