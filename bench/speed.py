"""How fast, and how small: what is ours beside its rivals, measured in turn.

    python -m bench speed                      # the ratios of all kernels and steps, beside the checked-in ones
    python -m bench speed mc3kd loop           # those whose name holds a word; `--save` keeps them
    python -m bench speed --table steps        # a training step of every method: how it is computed, and peak memory
    python -m bench speed --table profile      # where the time of such a step goes
    python -m bench speed --table peers        # our distillation beside the library's Trainer, and TextBrewer
    python -m bench speed --table packed       # BERT-base packed in 8, 2 and 1 bits beside float32 and others' int8
    python -m bench speed --table lengths      # attentions and windows by length, 2x256 and 12x768, with a plot
    python -m bench speed --table training     # training steps of these over long texts with padding
    python -m bench speed --table encoders     # encoders of the efficient-attention paper's table 2, in batches of 16
    python -m bench speed --table students     # sentences per second of cmow's encoders, a half teacher, and BERT-base

Contenders take turns, so that a noisy machine is noisy for all of them, and ratios are medians over the turns. Of
"... / ours" and "... / fast" larger is better, of all other ratios smaller. bench/results/kernels.json has a column for
each machine; a ratio that is more than 20% worse than there is called so, and the exit code is 1. Training steps are
those of the scripts themselves, run on drawn texts with a random teacher, from the end of one step to the end of the
next. Random weights change no speed.
Rivals that the project does not need itself are measured where they are installed (`pip install textbrewer tensorboard
onnx onnxruntime`), and named with their versions.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import itertools
import json
import math
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import psutil
import torch
import transformers
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from bench import matrix, plots
from bench.cli import FOLDER, Parser, markdown
from bench.sizes import EFFICIENT_ATTENTION, Specials, encoder
from common import data, models, parallel, results, train
from common.args import BadInput, read
from common.kinds import Kind
from common.layers import attention
from common.losses import kd_loss
from common.tasks import TASKS
from common.teacher import Teacher
from pocket.make import rounded
from pocket.models import SPECIAL_TOKENS

TOLERANCE = 0.2
Contenders = dict[str, Callable[[], float]]  # name -> the seconds that it needed
Inputs = list[dict[str, Any]]  # batches for a model


# --- measuring -----------------------------------------------------------------------------------------------


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


def memory(make: Callable[..., Callable[[], object]], *arguments: Any) -> int:
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


# --- forward passes ------------------------------------------------------------------------------------------


def load_student(folder: Path, kind: str = "classification") -> Any:
    """A saved model of any method, with the head of a kind of task; or a rival's, of the table packed."""
    import common.layers.packed  # noqa: F401
    import methods.cmow  # noqa: F401  # both make their models known to the library

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


# --- training steps of the scripts ---------------------------------------------------------------------------


class Sizes(NamedTuple):
    """Layers x width of the teacher, its vocabulary, the tokens of the longest text, and whether it writes texts."""

    teacher: tuple[int, int]
    words: int
    length: int
    writes: bool = False


def material(folder: Path, sizes: Sizes, rows: int, draw: Callable[[random.Random], int] | None = None) -> list[str]:
    """Make drawn texts and a random teacher with the task's head; the scripts' arguments that name them.

    `draw` gives the words of a text (default: between half the length and all of it).
    """
    rng, (layers, width) = random.Random(0), sizes.teacher
    draw = draw or (lambda rng: rng.randint(sizes.length // 2, sizes.length) - 2)
    words = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(sizes.words - len(SPECIAL_TOKENS)))]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=512)
    task, fields = ("xsum", ("document", "summary")) if sizes.writes else ("sst2", ("sentence", "label"))
    for split, count in (("train", rows), ("validation", 4), ("test", 4)):
        lines = []
        for i in range(count):
            text = " ".join(f"word{rng.randrange(sizes.words - 5)}" for _ in range(draw(rng)))
            lines.append(json.dumps(dict(zip(fields, (text, text if sizes.writes else i % 2), strict=True))))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    heads = max(1, width // 64)
    if sizes.writes:
        config: Any = transformers.BartConfig(
            vocab_size=sizes.words, d_model=width, encoder_layers=layers // 2, decoder_layers=layers // 2,
            encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, encoder_attention_heads=heads,
            decoder_attention_heads=heads, pad_token_id=0, bos_token_id=2, decoder_start_token_id=2, eos_token_id=3,
            forced_eos_token_id=3,
        )  # fmt: skip
        teacher: Any = transformers.BartForConditionalGeneration(config)
    else:
        config = BertConfig(vocab_size=sizes.words, hidden_size=width, num_hidden_layers=layers,
                            num_attention_heads=heads, intermediate_size=4 * width,
                            **TASKS[task].kind.settings(TASKS[task]))  # fmt: skip
        teacher = BertForSequenceClassification(config)  # with the labels' names: a head that is known
    models.save(teacher, tokenizer, folder / "teacher", "")
    given = (
        f"--task {task} --data-dir {folder} --teacher {folder / 'teacher'} --max-length {sizes.length} --init random"
    )
    return f"{given} --teacher-epochs 0 --lr 1e-5 --device cpu --batches shuffled --teacher-cache off".split()


def of_library(folder: Path, width: int) -> tuple[Any, list[dict[str, Any]], Any, Any]:
    """For others' loops, of the same material: collator, encoded texts, teacher, and a new student of 2 layers."""
    tokenizer = BertTokenizer.from_pretrained(folder / "teacher")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    encoded = [dict(tokenizer(row["sentence"], truncation=True, max_length=128)) | {"labels": row["label"]}
               for row in rows]  # fmt: skip
    teacher = BertForSequenceClassification.from_pretrained(folder / "teacher", use_safetensors=True).eval()
    student = BertForSequenceClassification(models.student_config(teacher.config, 2, width))  # type: ignore[arg-type]
    return transformers.DataCollatorWithPadding(tokenizer), encoded, teacher, student


def gaps(ends: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def trained(method: str, words: list[str]) -> tuple[list[float], dict[str, Any]]:
    """(seconds of every step but the first, the result) of a script that trains one student in a new folder."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # one process, several precisions
    module, minimise, ends = matrix.module_of(f"methods/{method}.py"), train.Loop.minimise, list[float]()

    def noted(loop: Any, loss: Tensor) -> None:
        minimise(loop, loss)
        ends.append(time.process_time())  # of this process: other work on the machine does not count

    quiet = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(train.Loop, "minimise", noted), quiet:
        args = read(module.Args, None, [*words, "--out-dir", folder])
        parallel.start(args.device, args.precision)
        module.main(args)
        (path,) = Path(folder).rglob("result.json")
        return gaps(ends), results.load(path)


def script(method: str, words: list[str], steps: int, last: int | None = None) -> Callable[[], float]:
    """The median of (the last) so many steps of a script."""

    def call() -> float:
        spent, _ = trained(method, [*words, "--budget", str(32 * steps)])
        return statistics.median(spent[-(last or len(spent)) :])

    return call


# --- ratios --------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A measurement: its contenders, made in a folder; what is divided, (numerator, denominator); and its turns."""

    make: Callable[[Path], Contenders]
    ratios: tuple[tuple[str, str], ...]
    turns: int


def of_scripts(method: str, variants: tuple[str, ...], sizes: Sizes, student: str, steps: int, more: str,
               folder: Path) -> Contenders:  # fmt: skip
    words = [*material(folder, sizes, 32 * steps), "--student", student, *more.split()]
    return {variant: script(method, [*words, "--variant", variant], steps) for variant in variants}


def loop_and_bare(folder: Path) -> Contenders:
    """The undistilled student; and in a PyTorch loop with nothing but forward and backward pass, clipping and AdamW: no
    schedule, ledger, check of the loss, log or checkpoint, and all batches made before the first step."""
    steps = 20
    words = material(folder, Sizes((2, 128), 2000, 20), 32 * steps)

    def bare() -> float:
        collate, encoded, _, model = of_library(folder, 128)
        batches = [collate(encoded[32 * i : 32 * (i + 1)]) for i in range(steps)]
        weights, ends = list(model.train().parameters()), []
        optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=True)
        for batch in batches:
            for weight, gradient in zip(weights, torch.autograd.grad(model(**batch).loss, weights), strict=True):
                weight.grad = gradient
            nn.utils.clip_grad_norm_(weights, train.CLIP)
            optimizer.step()
            ends.append(time.process_time())
        return statistics.median(gaps(ends))

    return {"loop": script("mc3kd", [*words, "--variant", "finetune", "--student", "2x128"], steps), "bare": bare}


def compositions(fast: str, folder: Path) -> Contenders:
    """Forward and backward pass over 32 texts of 128 matrices of 20 x 20. Of the loop, which takes each `M[:, i]` as
    the equation reads, most is not arithmetic: their gradients, each as large as M, write and add 2.5 GB. The unbound
    loop is spent in its products, 3 L of them."""
    from methods import cmow

    torch.manual_seed(0)
    M = (torch.eye(20) + 0.01 * torch.randn(32, 128, 20, 20)).requires_grad_()

    def one_by_one(matrices: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
        def compose(M: Tensor) -> Tensor:
            P = list(itertools.accumulate(matrices(M), torch.matmul))
            return P[-1] if fast == "ordered_product" else torch.stack(P, 1)

        return compose

    def gradient(compose: Callable[[torch.Tensor], torch.Tensor]) -> object:
        return torch.autograd.grad(compose(M).sum(), M)

    calls = {"fast": getattr(cmow, fast), "loop": one_by_one(lambda M: (M[:, i] for i in range(M.shape[1]))),
             "unbound": one_by_one(lambda M: M.unbind(1))}  # fmt: skip
    return {name: partial(seconds, partial(gradient, compose)) for name, compose in calls.items()}


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


def shaped_reader(name: str, layers: int, width: int, length: int, device: str) -> Callable[[], None]:
    """Of one text: whole, or in windows side by side, as tags are read. Those of questions overlap."""
    texts, tokens = (length // WINDOW, WINDOW) if name == "windows" else (1, length)
    return reader(attention_model(name, tokens, layers=layers, width=width), texts, tokens, device)


def attention_reader(name: str, length: int, library: bool) -> Callable[[], None]:
    """Of one text, with the project's or the library's own implementation."""
    first = {"global_attention_mask": (torch.arange(length) == 0).long()[None]}
    masks = first if library and name == "longformer" else {}
    short = length if library else 8  # the library's Nystromformer reads no others
    return reader(attention_model(name, length, library), 1, length, "cpu", short, **masks)


def attentions(name: str, folder: Path) -> Contenders:
    calls = {side: attention_reader(name, 4096, side == "library") for side in ("ours", "library")}
    return {side: partial(seconds, call) for side, call in calls.items()}


def packed_layers(bits: int, batch: int, folder: Path) -> Contenders:
    """BERT-base's linears in 1 or 2 bits with 8-bit activations. Two layers are enough to compare."""
    calls = {"packed": packed_model(bits, num_hidden_layers=2), "float32": packed_model(32, num_hidden_layers=2)}
    return {name: partial(seconds, partial(forward, model, sentences(batch))) for name, model in calls.items()}


def packed_model(bits: int, **shape: int) -> Any:
    """A BERT of random weights with so many bits a weight: 32, 8, 2 or 1."""
    from methods import xtc

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape)).eval()  # type: ignore[arg-type]
    if bits == 8:
        rounded(model)
    elif bits < 8:
        xtc.quantize(model, bits)
        xtc.pack(model)
    return model


SMALL, MINILM = Sizes((4, 128), 2000, 16), Sizes((6, 384), 30522, 64)
STEPS_OF_CKA = "--pretraining off"
CKA = (("cka", "lin"), ("cka", "kd"))
LIBRARY, COMPOSED = (("library", "ours"),), (("loop", "fast"), ("unbound", "fast"))
CASES: dict[str, Case] = {
    "mc3kd step (pocket)": Case(
        partial(of_scripts, "mc3kd", ("mc3kd", "kd"), SMALL, "2x128", 20, ""), (("mc3kd", "kd"),), 10),
    "mc3kd step (MiniLM)": Case(
        partial(of_scripts, "mc3kd", ("mc3kd", "kd"), MINILM, "3x384", 4, ""), (("mc3kd", "kd"),), 4),
    "cka step (pocket)": Case(
        partial(of_scripts, "cka", ("cka", "lin", "kd"), SMALL, "2x64", 20, STEPS_OF_CKA), CKA, 10),
    "cka step (MiniLM)": Case(
        partial(of_scripts, "cka", ("cka", "lin", "kd"), MINILM, "3x192", 4, STEPS_OF_CKA), CKA, 4),
    "cka step (encoder-decoder)": Case(
        partial(of_scripts, "cka", ("cka", "lin", "kd"), Sizes((8, 128), 2000, 16, True), "4x64", 20, STEPS_OF_CKA),
        CKA, 10),
    "loop": Case(loop_and_bare, (("loop", "bare"),), 12),
    "cmow product (pooled)": Case(partial(compositions, "ordered_product"), COMPOSED, 15),
    "cmow product (prefix)": Case(partial(compositions, "prefix_products"), COMPOSED, 15),
    **{f"efficient_attention ({name})": Case(partial(attentions, name), LIBRARY, 7)
       for name in ("longformer", "bigbird", "nystromformer")},
    **{f"xtc packed layers ({bits}-bit; batch of {batch})":
       Case(partial(packed_layers, bits, batch), (("packed", "float32"),), 10) for bits in (2, 1) for batch in (1, 32)},
}  # fmt: skip
Ratios = dict[str, float]  # "case, numerator / denominator" -> value


def measure(names: list[str]) -> Ratios:
    """The ratios of these cases."""
    found: Ratios = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[name]
            spent = in_turn(case.make(Path(folder)), case.turns)
        found |= {f"{name}, {a} / {b}": ratio(spent[a], spent[b]) for a, b in case.ratios}
    return found


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
    """A column for each machine; ratios of cases that are gone are left out."""
    machines = report["machines"]
    names = [f"{name}, {a} / {b}" for name, case in CASES.items() for a, b in case.ratios]
    found = [[entry["ratios"].get(name) for entry in machines.values()] for name in names]
    rows = [[*name.split(", "), *("-" if value is None else f"{value:.2f}" for value in row)]
            for name, row in zip(names, found, strict=True)]  # fmt: skip
    return markdown(["measured", "what is divided", *machines], rows)


# --- steps ---------------------------------------------------------------------------------------------------

# How a step is computed: the scripts' arguments
HOW = {"as it is": "", "kept": "--teacher-cache on", "bf16": "--precision bf16", "compile": "--compile"}
# Row -> script, arguments, and the student at the pocket suite's sizes and at BERT-base's
METHODS = {
    "kd": ("mc3kd", "--variant kd", "2x128", "6x768"),
    "mc3kd": ("mc3kd", "--variant mc3kd", "2x128", "6x768"),
    "cmow": ("cmow", "--variant kd", "hybrid-10-100", "hybrid-20-400"),
    "xtc": ("xtc", "--variant xtc --bits 1 --init teacher", "2x128", "6x768"),
    "efficient_attention": ("efficient_attention", "--variant kd --init teacher", "2x128", "6x768"),
    "cka": ("cka", f"--variant cka {STEPS_OF_CKA}", "2x128", "6x768"),
}


def words_of(name: str, how: str, base: bool, folder: Path) -> list[str]:
    sizes = Sizes((12, 768), 30522, 128) if base else Sizes((4, 128), 2000, 20)
    _, words, small, large = METHODS[name]
    return [*material(folder, sizes, 160), "--student", large if base else small, *words.split(), *HOW[how].split()]


def possible(name: str) -> list[str]:
    """Kept are outputs and hidden states; the attention scores that xtc compares are too large."""
    return [how for how in HOW if how != "kept" or name != "xtc"]


def step_ratios(name: str) -> dict[str, float]:
    """The time of a step that is computed in another way, as a share of its time as it is."""
    with tempfile.TemporaryDirectory() as folder:
        # of three epochs the last one is measured, when outputs are kept and what is compiled is compiled
        spent = in_turn({how: script(METHODS[name][0], words_of(name, how, False, Path(folder)), 15, 5)
                         for how in possible(name)}, 7)  # fmt: skip
    first = spent.pop("as it is")
    return {how: ratio(values, first) for how, values in spent.items()}


def two_steps(name: str, how: str) -> None:
    """At BERT-base's sizes."""
    with tempfile.TemporaryDirectory() as folder:
        trained(METHODS[name][0], [*words_of(name, how, True, Path(folder)), "--budget", "64"])


def steps() -> dict[str, Any]:
    """32 texts of 20 tokens, teacher 4x128, student 2x128; memory of 32 texts of 128 tokens, 12x768 and 6x768 (cmow:
    the paper's hybrid), with weights, Adam's moments and the teacher. With bf16 the weights stay float32."""
    table: dict[str, Any] = {}
    for name in METHODS:
        print(f"steps of {name}", file=sys.stderr)
        peaks = {how: round(memory(partial, two_steps, name, how) / 1e6) for how in possible(name) if how != "compile"}
        table[name] = {"seconds": in_own_process(step_ratios, name), "megabytes": peaks}
    return {"methods": table}


def steps_text(report: dict[str, Any]) -> str:
    rows = []
    for name, row in report["methods"].items():
        cells = [f"x {row['seconds'][how]:.2f}" if how in row["seconds"] else "-" for how in list(HOW)[1:]]
        cells += [f"{row['megabytes'][how]:,}" if how in row["megabytes"] else "-" for how in list(HOW)[:3]]
        rows.append([name, *cells])
    header = "step of, outputs kept, bf16, compiled, peak MB at BERT-base, outputs kept, bf16"
    return markdown(header.split(", "), rows)


# --- where a step's time goes --------------------------------------------------------------------------------

PARTS = ("batch", "student", "teacher", "loss", "backward", "optimiser", "rest")
STEPS_OF_PROFILE = 20  # of a training


@contextlib.contextmanager
def step_parts() -> Iterator[dict[str, float]]:
    """Processor time of what trains inside, by part: the batch, both forward passes, the method's loss, the backward
    pass, clipping and optimiser, and the rest of the loop."""
    spent, now = defaultdict[str, float](float), time.process_time
    iterate = train.Loop.__iter__

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = now()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += now() - started

        return call

    def batches(loop: Any) -> Iterator[Any]:
        steps, modules = iterate(loop), loop.modules.values()
        for module in modules:
            module.forward = timed("student", module.forward)
        while (batch := timed("next", next)(steps, None)) is not None:
            started = now()
            yield batch
            spent["body"] += now() - started
        for module in modules:  # evaluation is no step
            del module.forward

    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (train.Loop, "__iter__", batches),
            *((owner, name, timed(part, getattr(owner, name))) for owner, name, part in (
                (data.Batches, "__getitem__", "batch"), (Teacher, "__call__", "teacher"),
                (train.Loop, "minimise", "minimise"), (Tensor, "backward", "backward"),
                (torch.optim.AdamW, "step", "optimiser"), (train, "clip_grad_norm_", "optimiser"))),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, function))
        yield spent
    spent["loss"] = spent["body"] - spent["minimise"] - spent["student"] - spent["teacher"]
    spent["rest"] = spent["next"] + spent["minimise"] - spent["batch"] - spent["backward"] - spent["optimiser"]


def profile() -> dict[str, Any]:
    """Milliseconds of each part of a step: medians over 5 trainings, at the sizes of the table steps."""
    table: dict[str, Any] = {}
    for name in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            words, found = words_of(name, "as it is", False, Path(folder)), []
            for _ in range(6):
                with step_parts() as spent:
                    trained(METHODS[name][0], [*words, "--budget", str(32 * STEPS_OF_PROFILE)])
                found.append(spent)
        table[name] = {
            part: round(1000 * statistics.median(spent[part] for spent in found[1:]) / STEPS_OF_PROFILE, 2)
            for part in PARTS
        }
    return {"methods": table}


def profile_text(report: dict[str, Any]) -> str:
    rows = [[name, *(f"{ms:.2f}" for ms in row.values()), f"{sum(row.values()):.2f}"]
            for name, row in report["methods"].items()]  # fmt: skip
    return markdown(["ms of a step", *PARTS, "sum"], rows)


# --- peers ---------------------------------------------------------------------------------------------------

EXAMPLES, EPOCHS, LR, ALPHA, TEMPERATURE = 320, 3, 5e-5, 0.9, 2.0
STEPS = EPOCHS * EXAMPLES // 32


def lognormal(rng: random.Random) -> int:
    """Words of a text, distributed as GLUE's: most texts are short, a few long."""
    return min(126, max(3, round(22 * rng.lognormvariate(0, 0.75))))


def peer_material(folder: Path) -> list[str]:
    return material(folder, Sizes((4, 256), 2000, 128), EXAMPLES, lognormal)


def library(sampling: str, folder: Path) -> float:
    """Seconds of the library's Trainer, whose default collator pads a batch to its longest text, with the teacher's
    soft labels in its loss."""
    collate, encoded, teacher, student = of_library(folder, 256)

    class DistillationTrainer(transformers.Trainer):
        def compute_loss(  # type: ignore[override]
            self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
        ) -> Any:
            labels = inputs.pop("labels")
            output = model(**inputs)
            with torch.no_grad():
                soft = teacher(**inputs).logits
            loss = kd_loss(output.logits, soft, labels, ALPHA, TEMPERATURE)
            return (loss, output) if return_outputs else loss

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        settings = transformers.TrainingArguments(
            out, num_train_epochs=EPOCHS, per_device_train_batch_size=32, learning_rate=LR, warmup_steps=STEPS // 10,
            weight_decay=train.WEIGHT_DECAY, max_grad_norm=train.CLIP, use_cpu=True, report_to=[], logging_steps=20,
            save_strategy="no", disable_tqdm=True, seed=0, train_sampling_strategy=sampling,
        )  # fmt: skip
        trainer = DistillationTrainer(student, settings, collate, train_dataset=encoded)  # type: ignore[arg-type]
        return seconds(trainer.train)


def textbrewer(folder: Path) -> float:
    """Seconds of TextBrewer's GeneralDistiller: soft labels and true ones, batches in random order."""
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    collate, encoded, teacher, student = of_library(folder, 256)
    loader = torch.utils.data.DataLoader(encoded, 32, shuffle=True, collate_fn=lambda rows: dict(collate(rows)))  # type: ignore[arg-type, var-annotated]
    optimizer = torch.optim.AdamW(student.parameters(), LR, weight_decay=train.WEIGHT_DECAY)
    rising = {"num_warmup_steps": STEPS // 10, "num_training_steps": STEPS}

    def adaptor(_batch: Any, output: Any) -> dict[str, Any]:
        return {"logits": output.logits, "losses": output.loss}

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stderr(io.StringIO()):
        settings = TrainingConfig(output_dir=out, log_dir=None, device="cpu", ckpt_epoch_frequency=EPOCHS)
        weights = DistillationConfig(TEMPERATURE, hard_label_weight=1 - ALPHA, kd_loss_weight=ALPHA)
        with (distiller := GeneralDistiller(settings, weights, teacher, student, adaptor, adaptor)):
            how = {"scheduler_class": transformers.get_linear_schedule_with_warmup, "scheduler_args": rising}
            return seconds(partial(distiller.train, optimizer, loader, EPOCHS, max_grad_norm=train.CLIP, **how))


def ours(more: str, folder: Path) -> float:
    """Seconds on the clock of mc3kd.py's row kd, as it is run on real data: checkpoints, log and ledger included."""
    shape = f"--variant kd --student 2x256 --lr {LR} --alpha {ALPHA} --temperature {TEMPERATURE}"
    given = f"{shape} --budget {EPOCHS * EXAMPLES} --teacher-cache auto --batches auto {more}"
    return float(trained("mc3kd", [*peer_material(folder), *given.split()])[1]["ledger"]["seconds"])


def peers() -> dict[str, Any]:
    """The same models, data, batch size and steps; AdamW, linear warm-up and decay, clipping at 1 on both sides."""
    trainer = f"Trainer of transformers {version('transformers')}"
    calls: dict[str, Callable[[Path], float]] = {
        "ours": partial(ours, ""), "ours, teacher at every step": partial(ours, "--teacher-cache off"),
        "ours, shuffled": partial(ours, "--batches shuffled"),
        f"{trainer}, by length": partial(library, "group_by_length"), trainer: partial(library, "random"),
    }  # fmt: skip
    if found := version("textbrewer", "tensorboard"):
        calls[f"TextBrewer {found}"] = textbrewer
    table = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        peer_material(folder)
        spent = in_turn({name: partial(call, folder) for name, call in calls.items()}, 3)
        for name, values in spent.items():
            speed = EPOCHS * EXAMPLES / statistics.median(values)
            table[name] = {"examples_per_second": round(speed, 1), "seconds / ours": ratio(values, spent["ours"]),
                           "megabytes": round(memory(partial, calls[name], folder) / 1e6, 1)}  # fmt: skip
    return {"peers": table}


def peers_text(report: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['examples_per_second']:.0f}", f"{row['seconds / ours']:.2f}", f"{row['megabytes']:.0f}"]
        for name, row in report["peers"].items()
    ]
    return markdown(["", "examples/s", "seconds / ours", "peak MB"], rows)


# --- packed models -------------------------------------------------------------------------------------------


def save_packed(bits: int, folder: Path) -> int:
    """Write BERT-base of random weights with so many bits a weight; its bytes."""
    packed_model(bits).save_pretrained(folder)
    return (folder / "model.safetensors").stat().st_size


def save_torch_int8(folder: Path) -> int:
    """Save the float32 model, whose linears torch rounds when it is loaded; the bytes of what it holds then."""
    save_packed(32, folder)
    (folder / "torch-int8").touch()
    model = load_student(folder)
    linears = [m._weight_bias() for m in model.modules() if isinstance(m, torch.ao.nn.quantized.dynamic.Linear)]
    floats = sum(4 * p.numel() for p in model.parameters())
    return floats + sum(weight.numel() + 4 * bias.numel() for weight, bias in linears)


def save_onnx_int8(folder: Path) -> int:
    """The same model as ONNX Runtime's own tool rounds it."""
    from onnxruntime.quantization import quantize_dynamic

    class Logits(nn.ModuleList):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self[0](input_ids=input_ids, attention_mask=attention_mask).logits

    save_packed(32, folder)
    model, (inputs,), axes = Logits([load_student(folder)]), sentences(2), {0: "batch", 1: "length"}
    with tempfile.TemporaryDirectory() as place:
        torch.onnx.export(model, tuple(inputs.values()), f"{place}/float.onnx", input_names=list(inputs),
                          dynamic_axes=dict.fromkeys(inputs, axes), dynamo=False)  # fmt: skip
        quantize_dynamic(f"{place}/float.onnx", folder / "int8.onnx")
    return (folder / "int8.onnx").stat().st_size


def packed() -> dict[str, Any]:
    """BERT-base of random weights, sentences of 32 tokens, from token ids to logits; memory beyond the libraries'."""
    save: dict[str, Callable[[Path], int]] = {"float32": partial(save_packed, 32)}
    save[f"int8 by torch {version('torch')}"] = save_torch_int8
    if found := version("onnxruntime", "onnx"):
        save[f"int8 by ONNX Runtime {found}"] = save_onnx_int8
    save |= {f"{bits} bit{'s' * (bits > 1)}": partial(save_packed, bits) for bits in (8, 2, 1)}
    with tempfile.TemporaryDirectory() as place:
        table: dict[str, Any] = {name: {"disk": call(Path(place, name)), "batches": {}} for name, call in save.items()}
        loaded = {name: load_student(Path(place, name)) for name in table}
        for batch in (1, 32):
            texts = sentences(batch)
            for name, value in medians({n: partial(forward, m, texts) for n, m in loaded.items()}, 5).items():
                peak = memory(partial, load_and_forward, Path(place, name), "classification", texts)
                table[name]["batches"][str(batch)] = {"seconds": value, "memory": peak}
    return {"length": 32, "models": table}


def packed_text(report: dict[str, Any]) -> str:
    hardware, table = report["environment"]["hardware"], report["models"]
    base = table["float32"]["batches"]
    text = (
        f"BERT-base's geometry, sentences of {report['length']} tokens, {hardware['device']}, {hardware['threads']}"
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
    return f"{text}\n\n{markdown(header, rows)}"


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
            table[name]["bytes"][str(length)] = memory(make, *rows[name], length, device)
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
    table = by_length(shaped_reader, {name: (name, layers, width) for name in names}, lengths)
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
    return markdown([*header, "faster than sdpa from", "of windows' time"], rows)


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
    return markdown(["attention", *(f"{L}: s (of sdpa's), MB" for L in full["seconds"])], rows)


# --- the encoders of the efficient-attention paper's tables 2 and 4 ------------------------------------------

BATCH, ENCODER_LENGTHS = 16, (512, 4096)  # the paper's


def encoder_reader(row: int, half: bool, length: int, device: str) -> Callable[[], None]:
    """A row of table 2, with random weights. Full attention has as many positions as there are tokens, as table 4."""
    torch.manual_seed(0)
    _, family, settings, name, *_ = EFFICIENT_ATTENTION[row]
    return reader(encoder(family, settings, name, half, length), BATCH, length, device)


def encoders() -> dict[str, Any]:
    """Seconds and bytes of tables 2 and 4, on the machine at hand; one encoder after the other, as they are large."""
    table: dict[str, Any] = {}
    for row, (name, *_, half) in enumerate(EFFICIENT_ATTENTION):
        for cut in (False, True)[: 1 if half == "-" else 2]:
            table |= by_length(encoder_reader, {f"{name}{', half' if cut else ''}": (row, cut)}, ENCODER_LENGTHS)
    return {"batch": BATCH, "encoders": table}


def encoders_text(report: dict[str, Any]) -> str:
    rows = [[name, *(f"{row['seconds'][L]:.3f}, {row['bytes'][L] / 1e6:.0f}" for L in row["seconds"])]
            for name, row in report["encoders"].items()]  # fmt: skip
    return markdown(["encoder", *(f"{L}: s, MB" for L in ENCODER_LENGTHS)], rows)


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
        config = cmow.MatrixEmbeddingConfig(matrix_size=size, vector_size=length, bidirectional="bi" in name)
        contenders[name] = cmow.MatrixEmbeddingForSequenceClassification(config)
    table: dict[str, Any] = {name: {"parameters": models.parameters(m)} for name, m in contenders.items()}
    for batch in (1, 64):
        calls = {name: partial(forward, model.eval(), sentences(batch)) for name, model in contenders.items()}
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
    "steps": (steps, steps_text, "steps"), "profile": (profile, profile_text, "step_parts"),
    "peers": (peers, peers_text, "peers"), "packed": (packed, packed_text, "xtc_inference"),
    "lengths": (lengths, lengths_text, "attention_profile"),
    "training": (training, training_text, "attention_training"),
    "encoders": (encoders, encoders_text, "attention_encoders"), "students": (students, students_text, "cmow_students"),
}  # fmt: skip


def main(argv: list[str]) -> None:
    parser = Parser("speed", __doc__)
    parser.add_argument("names", nargs="*", help="words of the cases' names; default: all")
    parser.add_argument("--table", choices=TABLES, help="measure this table instead of the ratios")
    parser.add_argument("--save", action="store_true", help="keep what was measured under bench/results")
    given = parser.parse_args(argv)
    if given.table is not None:
        measured, text, name = TABLES[given.table]
        report = measured() | {"environment": results.environment()}
        print(text(report))
        if given.save:
            results.write_json(FOLDER / f"{name}.json", report)
        return
    for wrong in (word for word in given.names if not any(word in name for name in CASES)):
        raise BadInput(f"{wrong}: no case has this word; there is {', '.join(CASES)}")
    path = FOLDER / "kernels.json"
    machines = json.loads(path.read_text(encoding="utf-8"))["machines"]
    environment = results.environment()
    here = f"{environment['hardware']['device']}, {torch.backends.cpu.get_cpu_capability()}"
    own = machines.get(here, {}).get("ratios", {})
    before = own or next(iter(machines.values()))["ratios"]  # another machine's, if this one has none
    found = measure([name for name in CASES if not given.names or any(word in name for word in given.names)])
    rows = [[name, f"{value:.2f}", f"{before[name]:.2f}" if name in before else "-"] for name, value in found.items()]
    print(results.columns(rows, ["ratio", "now", "checked in"]))
    if given.save:
        entry = {"ratios": own | found, "environment": environment}
        results.write_json(path, {"machines": machines | {here: entry}})
    if lines := worse(own, found):
        print("\n".join(lines))
        raise SystemExit(1)
