"""What a distillation step costs, method by method: seconds by how it is computed, and peak memory at BERT-base.

    python -m bench steps                       # a table; some minutes
    python -m bench steps --save                # also writes bench/results/steps.json
    python -m bench steps --methods mc3kd,xtc --only seconds

Seconds: whole steps at the pocket suite's sizes (teacher 4x128, student 2x128, 32 texts of 20 tokens), of this process
(other work on the machine does not count), contenders that take turns: the teacher at every step; its outputs kept
(`--teacher-cache`), where the method can; bf16 autocast; `--compile`. Ratios are medians, to the first. Memory: a step
of 32 texts of 128 tokens with a teacher of 12x768 and a student of 6x768 (cmow: the paper's hybrid), weights, Adam's
moments and the teacher included, each in a process of its own; bf16 as autocast, with which the weights stay float32.
Random weights: they change neither.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil
import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification

from bench.cli import Parser
from common import results, train
from common.args import BadInput, fail, split_list
from common.speed import in_own_process
from methods import cka, cmow, efficient_attention, mc3kd, xtc


class Sizes(NamedTuple):
    """Layers x width of teacher and student, words, tokens of a text, cmow's student."""

    teacher: tuple[int, int]
    student: tuple[int, int]
    words: int
    length: int
    matrices: str


POCKET = Sizes((4, 128), (2, 128), 2000, 20, "hybrid-10-100")
BASE = Sizes((12, 768), (6, 768), 30522, 128, "hybrid-20-400")
HOW = ("as it is", "kept", "bf16", "compile")
STEPS, TURNS = 5, 7
METHODS = ("kd", "mc3kd", "cmow", "xtc", "efficient_attention", "cka")


def bert(shape: tuple[int, int], words: int, eager: bool = False) -> Any:
    layers, width = shape
    sizes: dict[str, Any] = {"num_attention_heads": max(1, width // 64), "intermediate_size": 4 * width}
    config = BertConfig(vocab_size=words, hidden_size=width, num_hidden_layers=layers, **sizes)
    model = BertForSequenceClassification(config)
    if eager:
        model.set_attn_implementation("eager")
    return model


def stepper(method: str, sizes: Sizes, how: str) -> Callable[[], None]:
    """A whole training step: forward passes, losses, backward, clipping, optimiser. `kd` is mc3kd.py's row of it."""
    torch.manual_seed(0)
    train.seed_everything(0)
    eager = method == "xtc"
    guide = bert(sizes.teacher, sizes.words, eager).eval().requires_grad_(False)
    mask = (torch.arange(sizes.length) < torch.randint(sizes.length // 2, sizes.length + 1, (32, 1))).long()
    mask[0] = 1
    batch = {"input_ids": torch.randint(5, sizes.words, (32, sizes.length)), "attention_mask": mask}
    batch["labels"] = torch.randint(0, 2, (32,))
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    if method == "cmow":
        shape = cmow.encoder_shape(sizes.matrices)
        config: Any = cmow.MatrixEmbeddingConfig(
            vocab_size=sizes.words, matrix_size=shape.matrix, vector_size=shape.vector
        )
        config.num_labels = 2
        student: Any = cmow.MatrixEmbeddingForSequenceClassification(config)
    elif method == "efficient_attention":
        student = efficient_attention.halve(bert(sizes.teacher, sizes.words)).requires_grad_()
    else:
        student = bert(sizes.student, sizes.words, eager)
    N, m = sizes.teacher[0], sizes.student[0]
    layers = mc3kd.skip_layers(N, m)
    if method == "xtc":
        xtc.quantize(student, 1)
    student.train()
    optimizer = train.adamw(student, 1e-5)
    model: Any = torch.compile(student, dynamic=True) if how == "compile" else student
    teacher: Any = torch.compile(guide, dynamic=True) if how == "compile" else guide
    if how == "kept":
        with torch.no_grad():
            outputs = guide(**inputs, output_hidden_states=method in ("mc3kd", "cka"))
        teacher = lambda **_: outputs  # noqa: E731
    engine, objective = Accelerator(cpu=True), cka.Objective("none", True, True, [], torch.nn.ModuleList())
    if method == "cka":
        objective = cka.make_objective(cka.Args(), "cka", True, True, student, guide)

    def loss() -> torch.Tensor | None:
        if method in ("kd", "mc3kd"):
            own = layers if method == "mc3kd" else []
            return mc3kd.step_loss(mc3kd.Args(), method, model, teacher, batch, own, regression=False)
        if method == "xtc":
            return xtc.step_loss(xtc.STAGES["1"][0], model, teacher, batch, [l - 1 for l in layers], regression=False)
        if method == "cka":
            cka.accumulate(cka.Args(), objective, model, teacher, batch, engine)
            return None  # it has gone backward itself
        with torch.no_grad():
            soft = teacher(**inputs)
        if method == "cmow":
            return cmow.distillation_loss(cmow.Args(), model(**inputs).logits, soft.logits, batch["labels"])
        return efficient_attention.task_loss(model(**batch), soft, batch, "classification")

    def step() -> None:
        context = torch.autocast("cpu", torch.bfloat16) if how == "bf16" else contextlib.nullcontext()
        with context:
            found = loss()
        if found is not None:
            found.backward()
        train.update(engine, optimizer, student.parameters())

    return step


def possible(method: str, how: str) -> bool:
    """Kept are outputs and hidden states; the attention scores that xtc compares are too large."""
    return how != "kept" or method != "xtc"


def ratios(method: str) -> dict[str, float]:
    """Milliseconds of a step as it is, and what the other ways to compute it take, as a share of that."""
    steps = {how: stepper(method, POCKET, how) for how in HOW if possible(method, how)}
    spent: dict[str, list[float]] = {how: [] for how in steps}
    for turn in range(TURNS + 1):
        for how, step in steps.items():
            started = time.process_time()
            for _ in range(STEPS):
                step()
            if turn:
                spent[how].append((time.process_time() - started) / STEPS)
    first = spent[HOW[0]]
    found = {"ms": round(1000 * statistics.median(first), 2)}
    for how in list(steps)[1:]:
        found[how] = round(statistics.median(b / a for a, b in zip(first, spent[how], strict=True)), 3)
    return found


def peak(method: str, how: str) -> int:
    """Bytes that two steps add to a process which has only loaded the libraries."""
    held = psutil.Process().memory_info().rss
    step = stepper(method, BASE, how)
    step()
    step()
    return train.peak_memory() - held


def measure(methods: list[str], only: str | None = None) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for method in methods:
        bar = train.progress(1, f"steps of {method}")
        table[method] = {}
        if only != "memory":
            table[method]["seconds"] = in_own_process(ratios, method)  # what one compiles does not slow the next
        if only != "seconds":
            table[method]["megabytes"] = {
                how: round(in_own_process(peak, method, how) / 1e6)
                for how in ("as it is", "kept", "bf16")
                if possible(method, how)
            }
        bar.close()
    return table


def text(report: dict[str, Any]) -> str:
    """The table of a report, in Markdown."""
    lines = ["| step of | ms | outputs kept | bf16 | compiled | peak MB at BERT-base | outputs kept | bf16 |",
             "|---" * 8 + "|"]  # fmt: skip
    for method, row in report["methods"].items():
        seconds, megabytes = row.get("seconds", {}), row.get("megabytes", {})
        cells = [f"{seconds['ms']:.1f}" if seconds else ""]
        cells += [f"x {seconds[how]:.2f}" if how in seconds else "-" for how in HOW[1:]]
        cells += [f"{megabytes[how]:,}" if how in megabytes else "-" for how in HOW[:3]]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    parser = Parser("steps", __doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help=f"one or several of {', '.join(METHODS)}")
    parser.add_argument("--only", choices=("seconds", "memory"), help="measure nothing else")
    parser.add_argument("--save", action="store_true", help="write bench/results/steps.json")
    given = parser.parse_args(argv)
    methods = split_list(given.methods)
    for wrong in (name for name in methods if name not in METHODS):
        fail(BadInput(f"--methods {wrong}: must be one or several of {', '.join(METHODS)}"))
    report = {"methods": measure(methods, given.only), "environment": results.environment()}
    print(text(report))
    if given.save:
        path = results.ROOT / "bench" / "results" / "steps.json"
        results.write_json(path, report)
        print(f"saved: {path}")
