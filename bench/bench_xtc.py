"""What a packed model costs to run beside the same model in float32: seconds and peak memory, BERT-base's geometry.

    python -m pytest bench/bench_xtc.py -s      # a few minutes; checks the targets
    python -m bench.bench_xtc --save            # also writes bench/results/xtc_inference.json

Random weights, 12 layers of 768, sentences of 32 tokens, from token ids to logits. Contenders take turns in one process
for the time; for the memory each has a process of its own, which loads the model from disk and runs one batch, and
what counts is its peak resident size beyond that of a process which only imports the libraries. Targets: at most 1.05 x
float32's time at batch 1 and 32, and less memory.

Why it is faster: weights of 1 or 2 bits and activations of 8 make every linear a product of int8 matrices, for which
processors have instructions (VNNI, AMX) that do several times as many operations as float32's. Unpacking a weight
from its bits before each product, by a table, costs less than the product saves, at batch 1 too.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedModel

from bench.cli import FOLDER
from common import results, speed
from methods.xtc import pack, quantize

BATCHES, LENGTH, TURNS = (1, 32), 32, 5
CONTENDERS = {"float32": 32, "2 bits": 2, "1 bit": 1}


def write_models(folder: Path) -> dict[str, PreTrainedModel]:
    """The contenders, each saved under its name in the library's layout and, if it is packed, loaded from there."""
    found = {}
    for name, bits in CONTENDERS.items():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(BertConfig())
        quantize(model, bits)
        pack(model).save_pretrained(folder / name)
        found[name] = AutoModelForSequenceClassification.from_pretrained(
            folder / name, use_safetensors=True, trust_remote_code=False
        ).eval()
    return found


def ids(batch: int) -> Tensor:
    return torch.randint(1000, 30_000, (batch, LENGTH), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def forward(model: PreTrainedModel, inputs: Tensor) -> None:
    model(input_ids=inputs)


# VmHWM: unlike getrusage's figure it knows nothing of the process that started this one
CHILD = """
import re, sys
from transformers import AutoModelForSequenceClassification
import common.layers.packed  # the format of what is loaded
from bench.bench_xtc import forward, ids
if sys.argv[1] != "nothing":
    forward(AutoModelForSequenceClassification.from_pretrained(
        sys.argv[1], use_safetensors=True, trust_remote_code=False
    ).eval(), ids(int(sys.argv[2])))
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]))
"""


def peak(folder: str, batch: int) -> int:
    """Peak resident bytes of a process that loads the model in `folder` ("nothing": none) and runs one batch. Linux."""
    command = [sys.executable, "-c", CHILD, folder, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=results.ROOT)
    return int(done.stdout)


def measure(folder: Path) -> dict[str, Any]:
    """Contender -> bytes on disk and, for each batch size, seconds and peak bytes."""
    loaded = write_models(folder)
    table: dict[str, Any] = {
        name: {"disk": (folder / name / "model.safetensors").stat().st_size, "batches": {}} for name in loaded
    }
    for batch in BATCHES:
        calls: dict[str, Callable[[], object]] = {
            name: functools.partial(forward, model, ids(batch)) for name, model in loaded.items()
        }
        for name, seconds in speed.medians(calls, TURNS).items():
            table[name]["batches"][str(batch)] = {"seconds": seconds}
    del loaded, calls
    for batch in BATCHES:
        libraries = peak("nothing", batch)
        for name in table:
            table[name]["batches"][str(batch)]["memory"] = peak(str(folder / name), batch) - libraries
    return table


def text(report: dict[str, Any]) -> str:
    """The table in Markdown; ratios are to float32."""
    hardware, table = report["environment"]["hardware"], report["models"]
    base = table["float32"]["batches"]
    lines = [
        f"BERT-base's geometry, sentences of {report['length']} tokens, {hardware['device']}, {hardware['threads']}"
        " thread(s); milliseconds per sentence, megabytes of peak memory beyond the libraries':",
        "",
        "| weights | MB on disk | " + " | ".join(f"batch {b}: ms | MB" for b in base) + " |",
        "|---" * (2 + 2 * len(base)) + "|",
    ]
    for name, row in table.items():
        cells = []
        for batch, found in row["batches"].items():
            ms = 1000 * found["seconds"] / int(batch)
            cells.append(f"{ms:.1f} ({found['seconds'] / base[batch]['seconds']:.2f} x)")
            cells.append(f"{found['memory'] / 1e6:.0f} ({found['memory'] / base[batch]['memory']:.2f} x)")
        lines.append(f"| {name} | {row['disk'] / 1e6:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder))
    return {"length": LENGTH, "models": table, "environment": results.environment()}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("bits", [2, 1])
def test_a_packed_layer_is_not_slower(benchmark: Any, bits: int, batch: int) -> None:
    """Two layers are enough to compare: the time is theirs, layer by layer."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=2)
    whole = AutoModelForSequenceClassification.from_config(config).eval()
    small = AutoModelForSequenceClassification.from_config(config).eval()
    quantize(small, bits)
    pack(small)
    ratios: list[float] = []

    def turn() -> None:
        inputs = ids(batch)
        calls = {"small": lambda: forward(small, inputs), "whole": lambda: forward(whole, inputs)}
        seconds = speed.medians(calls, turns=1)
        ratios.append(seconds["small"] / seconds["whole"])

    benchmark.pedantic(turn, rounds=10)
    found = statistics.median(ratios)
    benchmark.extra_info["packed / float32"] = round(found, 2)
    print(f"\n{bits} bits, batch {batch}: {found:.2f} x the time of float32")
    assert found <= 1.05


def test_packed_models_take_less_memory(tmp_path: Path) -> None:
    write_models(tmp_path)
    for batch in BATCHES:
        found = {name: peak(str(tmp_path / name), batch) for name in CONTENDERS}
        print(f"\nbatch {batch}: " + ", ".join(f"{name} {value / 1e6:.0f} MB" for name, value in found.items()))
        assert max(found["1 bit"], found["2 bits"]) < found["float32"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write bench/results/xtc_inference.json")
    options = parser.parse_args()
    found = report()
    print(text(found))
    if options.save:
        results.write_json(FOLDER / "xtc_inference.json", found)
