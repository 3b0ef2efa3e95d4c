"""How fast, and how small: what is ours beside its rivals, measured in turn.

    python -m bench speed                      # ratios of kernels, losses and steps, `CASES`
    python -m bench speed mc3kd loop           # those whose name holds a word; `--save` keeps them
    python -m bench speed --table peers        # our distillation beside the library's Trainer, and TextBrewer
    python -m bench speed --table packed       # BERT-base packed in 2 and 1 bits beside float32 and others' int8
    python -m bench speed --table lengths      # attentions and windows by length, 2x256 and 12x768
    pytest bench/speed.py                      # each case once, at a tiny size, as the tests do
    pytest bench/speed.py --benchmark-enable --benchmark-group-by=param:name      # what each contender needs

Contenders take turns, so that a noisy machine is noisy for all of them. Ratios of cases and peers are medians over the
turns; the other tables divide medians. Steps of the scripts and the loop are timed in processor time of all threads,
but for peers. Of "... / ours" and "... / fast" larger is better, of all other ratios smaller.
bench/results/kernels.json has a column for each machine; a ratio that is more than 20% worse than this machine's is
called so, and the exit code is 1. Random weights change no speed.
Rivals that the project does not need itself are measured where they are installed (`pip install textbrewer tensorboard
onnx onnxscript onnxruntime`), and named with their versions.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
import itertools
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import psutil
import torch
import transformers
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from bench import FOLDER, Parser, matrix, saved
from bench.table import Grid
from common import models, parallel, results, train
from common.args import BadInput, read
from common.kinds import Kind
from common.layers import attention, onnx, packed
from common.losses import kd_loss
from common.tasks import TASKS
from methods import cmow
from methods.cka import cka_loss, stacked_covariances
from pocket.models import SPECIAL_TOKENS

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
        return pool.submit(function, *arguments).result()


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
    """A saved model of any script, with the head of a kind of task."""
    from bench.baselines import linear

    if (folder / "vocabulary.json").exists():
        return linear.load(folder)
    return models.load_model(str(folder), models.load_config(str(folder)), Kind.of(kind), head=True).eval()


@torch.inference_mode()
def forward(model: Any, inputs: Inputs) -> None:
    for batch in inputs:
        model(**batch)


def load_and_forward(load: Callable[[], Any], inputs: Inputs) -> None:
    forward(load(), inputs)


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


def save_packed(bits: int, folder: Path) -> int:
    """Write BERT-base of random weights with so many bits a weight; its bytes."""
    packed_model(bits).save_pretrained(folder)
    return (folder / "model.safetensors").stat().st_size


def load_kept(folder: Path) -> Any:
    return packed.keep(load_student(folder))


def save_torch_int8(folder: Path) -> int:
    """Save the float32 model; the bytes of what it holds when torch has rounded its linears."""
    save_packed(32, folder)
    model = load_torch_int8(folder)
    linears = [m._weight_bias() for m in model.modules() if isinstance(m, torch.ao.nn.quantized.dynamic.Linear)]
    floats = sum(4 * p.numel() for p in model.parameters())
    return floats + sum(weight.numel() + 4 * bias.numel() for weight, bias in linears)


def load_torch_int8(folder: Path) -> Any:
    return torch.ao.quantization.quantize_dynamic(load_student(folder), {nn.Linear}, dtype=torch.qint8)


def save_onnx(bits: int, folder: Path) -> int:
    """As a graph of ONNX Runtime: packed, or of float32 as its own tool rounds that to 8 bits."""
    from onnxruntime.quantization import quantize_dynamic

    folder.mkdir()
    graph = folder / "model.onnx"
    onnx.save(packed_model(bits), lambda *_, **__: sentences(2)[0], graph)
    if bits == 32:
        quantize_dynamic(graph, graph)
    return graph.stat().st_size


def load_onnx(folder: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # else its threads go on turning after a call, in the next contender's time
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return lambda **batch: session.run(None, {name: values.numpy() for name, values in batch.items()})


def packed_models() -> dict[str, Any]:
    """BERT-base of random weights, sentences of 32 tokens, from token ids to logits; memory beyond the libraries'."""
    rivals: dict[str, tuple[Callable[[Path], int], Callable[[Path], Any]]] = {
        "float32": (partial(save_packed, 32), load_student),
        f"int8 by torch {version('torch')}": (save_torch_int8, load_torch_int8),
        "2 bits": (partial(save_packed, 2), load_student),
        "1 bit": (partial(save_packed, 1), load_student),
        "1 bit, `keep`": (partial(save_packed, 1), load_kept),
    }
    if found := version("onnxruntime", "onnx", "onnxscript"):
        rivals[f"int8 by ONNX Runtime {found}"] = partial(save_onnx, 32), load_onnx
        rivals[f"2 bits, ONNX Runtime {found}"] = partial(save_onnx, 2), load_onnx
    with tempfile.TemporaryDirectory() as place:
        table: dict[str, Any] = {}
        loaded = dict[str, Any]()
        for name, (save, load) in rivals.items():
            table[name] = {"disk": save(Path(place, name)), "batches": {}}
            loaded[name] = load(Path(place, name))
        for batch in (1, 32):
            texts = sentences(batch)
            calls = {name: partial(forward, model, texts) for name, model in loaded.items()}
            for name, value in medians(calls, 5).items():
                peak = memory_of(partial, load_and_forward, partial(rivals[name][1], Path(place, name)), texts)
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
            cells.append(f"{ms:.1f} ({found['seconds'] / base[batch]['seconds']:.2f}x)")
            cells.append(f"{found['memory'] / 1e6:.0f} ({found['memory'] / base[batch]['memory']:.2f}x)")
        rows.append(cells)
    header = ["weights", "MB on disk", *(title for batch in base for title in (f"batch {batch}: ms", "MB"))]
    return f"{text}\n\n{Grid(header, rows).markdown()}"


# --- time and memory by length -------------------------------------------------------------------------------

LENGTHS = (512, 1024, 2048, 4096, 8192)


def lengths() -> dict[str, Any]:
    """One forward pass of one text, without padding; at two sizes."""
    shapes = {"2x256": read_by_length(2, 256, FULL, LENGTHS),
              "12x768": read_by_length(12, 768, ("sdpa", "windows"), (512, 4096))}  # fmt: skip
    return {"shapes": shapes}


def read_by_length(layers: int, width: int, full: tuple[str, ...], lengths: tuple[int, ...]) -> dict[str, Any]:
    """Each attention, and full attention of the names `full`, in turn: seconds, bytes beyond the model's."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table: dict[str, Any] = {}
    for name in (*attention.ATTENTIONS, *full):
        model = attention_model(name, WINDOW if name == "windows" else lengths[-1], layers=layers, width=width)
        table[name] = {"seconds": {}, "bytes": {}, "parameters": model.num_parameters()}
    for length in lengths:
        calls = {name: attention_reader(name, layers, width, length, device) for name in table}
        for name, value in medians(calls).items():
            table[name]["seconds"][str(length)] = value
            table[name]["bytes"][str(length)] = memory_of(attention_reader, name, layers, width, length, device)
    return {"attentions": table}


def crossing(own: dict[str, float], full: dict[str, float]) -> str:
    """The length from which `own` stays below `full`, by length: on a straight line of logs between two; "-": none."""
    lengths = np.array([int(length) for length in own])
    gaps = np.log([own[length] / full[length] for length in own])
    if gaps[-1] >= 0:
        return "-"
    if (gaps < 0).all():
        return str(lengths[0])
    last = np.flatnonzero(gaps >= 0)[-1]
    both = [last + 1, last]
    return f"{np.exp(np.interp(0, gaps[both], np.log(lengths[both]))):.0f}"


def lengths_text(report: dict[str, Any]) -> str:
    """The last column: time at the greatest length, as a share of that of windows."""
    rows = []
    for shape, entry in report["shapes"].items():
        windows = entry["attentions"]["windows"]["seconds"]
        for name, row in entry["attentions"].items():
            cells = [f"{1000 * row['seconds'][L]:.0f}, {row['bytes'][L] / 1e6:.0f}" if L in row["seconds"] else ""
                     for L in map(str, LENGTHS)]  # fmt: skip
            start = ""
            if name not in FULL and len(windows) > 2:  # two lengths far apart do not say where the lines cross
                start = crossing(row["seconds"], entry["attentions"]["sdpa"]["seconds"])
            share = row["seconds"][list(windows)[-1]] / list(windows.values())[-1]
            rows.append([shape, name, f"{row['parameters'] / 1e6:.2f}M", *cells, start, f"{share:.2f}"])
    header = ["shape", "attention", "parameters", *(f"{L}: ms, MB" for L in LENGTHS)]
    return Grid([*header, "faster than sdpa from", "of windows' time"], rows).markdown()


# --- training steps of the scripts, on drawn texts with a random teacher -----------------------------------------


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
    if sizes.writes:
        special: Any = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "forced_eos_token_id": 3}
        config: Any = transformers.BartConfig(vocab_size=sizes.words, decoder_start_token_id=2, **special)
    else:  # with the labels' names: a head that is known
        config = BertConfig(vocab_size=sizes.words, **TASKS[task].kind.settings(TASKS[task]))
    teacher = models.build(models.student_config(config, layers, width), TASKS[task].kind)
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


def trained(method: str, words: list[str]) -> tuple[list[float], dict[str, Any]]:
    """(seconds of every step but the first, the result) of a script that trains one student in a new folder."""
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
        return np.diff(ends).tolist(), results.load(path)


def script(method: str, words: list[str], steps: int) -> float:
    """The median of so many steps of a script."""
    return statistics.median(trained(method, [*words, "--budget", str(32 * steps)])[0])


# --- others' loops -------------------------------------------------------------------------------------------

EXAMPLES, EPOCHS, LR, ALPHA, TEMPERATURE = 320, 3, 5e-5, 0.9, 2.0
STEPS = EPOCHS * EXAMPLES // 32


def lognormal(rng: random.Random) -> int:
    """Words of a text, distributed as GLUE's: most texts are short, a few long."""
    return min(126, max(3, round(22 * rng.lognormvariate(0, 0.75))))


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
            weight_decay=train.Options.decay, max_grad_norm=train.Options.clip, use_cpu=True, report_to=[],
            logging_steps=20, save_strategy="no", disable_tqdm=True, seed=0, train_sampling_strategy=sampling,
        )  # fmt: skip
        trainer = DistillationTrainer(student, settings, collate, train_dataset=encoded)  # type: ignore[arg-type]
        return seconds(trainer.train)


def textbrewer(folder: Path) -> float:
    """Seconds of TextBrewer's GeneralDistiller: soft labels and true ones, batches in random order."""
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    collate, encoded, teacher, student = of_library(folder, 256)
    loader = torch.utils.data.DataLoader(encoded, 32, shuffle=True, collate_fn=lambda rows: dict(collate(rows)))  # type: ignore[arg-type, var-annotated]
    optimizer = torch.optim.AdamW(student.parameters(), LR, weight_decay=train.Options.decay)
    rising = {"num_warmup_steps": STEPS // 10, "num_training_steps": STEPS}

    def adaptor(_batch: Any, output: Any) -> dict[str, Any]:
        return {"logits": output.logits, "losses": output.loss}

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stderr(io.StringIO()):
        settings = TrainingConfig(output_dir=out, log_dir=None, device="cpu", ckpt_epoch_frequency=EPOCHS)
        weights = DistillationConfig(TEMPERATURE, hard_label_weight=1 - ALPHA, kd_loss_weight=ALPHA)
        with (distiller := GeneralDistiller(settings, weights, teacher, student, adaptor, adaptor)):
            how = {"scheduler_class": transformers.get_linear_schedule_with_warmup, "scheduler_args": rising}
            return seconds(partial(distiller.train, optimizer, loader, EPOCHS, max_grad_norm=train.Options.clip, **how))


def ours(more: str, words: list[str]) -> float:
    """Seconds on the clock of mc3kd.py's row kd, as it is run on real data: kept outputs and ledger included, log and
    checkpoints not. A rival's are of its whole call."""
    shape = f"--variant kd --student 2x256 --lr {LR} --alpha {ALPHA} --temperature {TEMPERATURE}"
    given = f"{shape} --budget {EPOCHS * EXAMPLES} --teacher-cache auto --batches auto {more}"
    return float(trained("mc3kd", [*words, *given.split()])[1]["ledger"]["seconds"])


def peers() -> dict[str, Any]:
    """The same models, data, batch size and steps; AdamW, linear warm-up and decay, clipping at 1 on both sides."""
    trainer = f"Trainer of transformers {version('transformers')}"
    table = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = material(folder, Sizes((4, 256), 2000, 128), EXAMPLES, lognormal)
        calls = {
            "ours": partial(ours, "", words),
            "ours, teacher at every step": partial(ours, "--teacher-cache off", words),
            "ours, shuffled": partial(ours, "--batches shuffled", words),
            f"{trainer}, by length": partial(library, "group_by_length", folder),
            trainer: partial(library, "random", folder),
        }  # fmt: skip
        if found := version("textbrewer", "tensorboard"):
            calls[f"TextBrewer {found}"] = partial(textbrewer, folder)
        spent = in_turn({**calls}, 3)
        for name, values in spent.items():
            speed = EPOCHS * EXAMPLES / statistics.median(values)
            table[name] = {"examples_per_second": round(speed, 1), "seconds / ours": ratio(values, spent["ours"]),
                           "megabytes": round(memory_of(partial, calls[name]) / 1e6, 1)}  # fmt: skip
    return {"peers": table}


def peers_text(report: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['examples_per_second']:.0f}", f"{row['seconds / ours']:.2f}", f"{row['megabytes']:.0f}"]
        for name, row in report["peers"].items()
    ]
    return Grid(["", "examples/s", "seconds / ours", "peak MB"], rows).markdown()


# --- steps and the loop --------------------------------------------------------------------------------------


def of_scripts(method: str, variants: tuple[str, ...], sizes: Sizes, student: str, steps: int, more: str,
               folder: Path, tiny: bool) -> Contenders:  # fmt: skip
    if tiny:
        sizes, steps = sizes._replace(teacher=(sizes.teacher[0], 64), words=100, length=8), 2
        student = f"{student.split('x')[0]}x64"
    words = [*material(folder, sizes, 32 * steps), "--student", student, *more.split()]
    return {variant: partial(script, method, [*words, "--variant", variant], steps) for variant in variants}


def loop_and_bare(folder: Path, tiny: bool) -> Contenders:
    """The undistilled student; and in a PyTorch loop with nothing but forward and backward pass, clipping and AdamW: no
    schedule, ledger, check of the loss, log or checkpoint, and all batches made before the first step."""
    steps = 2 if tiny else 20
    words = material(folder, Sizes((2, 128), 2000, 20), 32 * steps)

    def bare() -> float:
        collate, encoded, _, model = of_library(folder, 128)
        batches = [collate(encoded[32 * i : 32 * (i + 1)]) for i in range(steps)]
        weights, ends = list(model.train().parameters()), []
        optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=True)
        for batch in batches:
            for weight, gradient in zip(weights, torch.autograd.grad(model(**batch).loss, weights), strict=True):
                weight.grad = gradient
            nn.utils.clip_grad_norm_(weights, train.Options.clip)
            optimizer.step()
            ends.append(time.process_time())
        return float(np.median(np.diff(ends)))

    words += ["--variant", "finetune", "--student", "2x128"]
    return {"loop": partial(script, "mc3kd", words, steps), "bare": bare}


# --- losses and product scans --------------------------------------------------------------------------------


def gradients(losses: dict[str, Callable[[Tensor], Tensor]], at: Tensor) -> Contenders:
    """Forward and backward pass of each."""
    return timed({name: partial(lambda loss: torch.autograd.grad(loss(at).sum(), at), loss)
                  for name, loss in losses.items()})  # fmt: skip


def states(tiny: bool) -> tuple[Tensor, Tensor]:
    """Of a student and its teacher, for 2 pairs of layers."""
    torch.manual_seed(0)
    n, D = (20, 8) if tiny else (512, 128)
    return torch.randn(2, n, D, requires_grad=True), torch.randn(2, n, D)


def alignments(folder: Path, tiny: bool) -> Contenders:
    """Linear CKA from the Gram matrices of the tokens (n x n), and from covariances (D x D)."""
    S, T = states(tiny)

    def grams(S: Tensor) -> Tensor:
        K, L = (X @ X.mT for X in (S - S.mean(-2, keepdim=True), T - T.mean(-2, keepdim=True)))
        return 1 - ((K * L).sum((-2, -1)) / (K.norm(dim=(-2, -1)) * L.norm(dim=(-2, -1)))).sqrt()

    return gradients({"grams": grams, "fast": lambda S: cka_loss(stacked_covariances(zip(S, T, strict=True)))}, S)


def compositions(fast: str, folder: Path, tiny: bool) -> Contenders:
    """Forward and backward pass over 32 texts of 128 matrices of 20 x 20. Of the loop, which takes each `M[:, i]` as
    the equation reads, most is not arithmetic: their gradients, each as large as M, write and add 2.5 GB. The unbound
    loop is spent in its products, 3 L of them."""
    torch.manual_seed(0)
    shape = (2, 8, 4, 4) if tiny else (32, 128, 20, 20)
    M = (torch.eye(shape[-1]) + 0.01 * torch.randn(shape)).requires_grad_()

    def one_by_one(matrices: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
        def compose(M: Tensor) -> Tensor:
            P = list(itertools.accumulate(matrices(M), torch.matmul))
            return P[-1] if fast == "ordered_product" else torch.stack(P, 1)

        return compose

    return gradients({"fast": getattr(cmow, fast), "loop": one_by_one(lambda M: (M[:, i] for i in range(M.shape[1]))),
                      "unbound": one_by_one(lambda M: M.unbind(1))}, M)  # fmt: skip


# --- attentions and packed layers ----------------------------------------------------------------------------


def attentions(name: str, folder: Path, tiny: bool) -> Contenders:
    length = 1024 if tiny else 4096
    sides = {"ours": False, "library": True}
    return timed({side: attention_reader(name, 2, 256, length, library=own) for side, own in sides.items()})


def packed_layers(bits: int, batch: int, folder: Path, tiny: bool) -> Contenders:
    """BERT-base's linears in 1 or 2 bits with 8-bit activations. Two layers are enough to compare."""
    tiny_shape = {"num_hidden_layers": 1, "hidden_size": 96, "intermediate_size": 64}
    shape = tiny_shape if tiny else {"num_hidden_layers": 2}
    models = {"packed": packed_model(bits, **shape), "float32": packed_model(32, **shape)}
    models["kept"] = packed.keep(packed_model(bits, **shape))
    return timed({name: partial(forward, model, sentences(batch)) for name, model in models.items()})


# --- the cases -----------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """Contenders, made in a folder, at a `tiny` size or not; what is divided, (numerator, denominator); the turns."""

    make: Callable[[Path, bool], Contenders]
    ratios: tuple[tuple[str, str], ...]
    turns: int

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(itertools.chain(*self.ratios)))


SMALL, MINILM, WRITES = Sizes((4, 128), 2000, 16), Sizes((6, 384), 30522, 64), Sizes((8, 128), 2000, 16, True)
MC3KD, CKA = (("mc3kd", "kd"),), (("cka", "lin"), ("cka", "kd"))
LIBRARY, COMPOSED = (("library", "ours"),), (("loop", "fast"), ("unbound", "fast"))
PACKED = (("packed", "float32"), ("kept", "float32"))
CASES = {
    **{f"mc3kd step ({name})": Case(partial(of_scripts, "mc3kd", ("mc3kd", "kd"), sizes, student, steps, ""), MC3KD,
                                    turns)
       for name, sizes, student, steps, turns in (("pocket", SMALL, "2x128", 20, 10),
                                                  ("MiniLM", MINILM, "3x384", 4, 4))},
    **{f"cka step ({name})": Case(partial(of_scripts, "cka", ("cka", "lin", "kd"), sizes, student, steps,
                                          "--pretraining off"), CKA, turns)
       for name, sizes, student, steps, turns in (("pocket", SMALL, "2x64", 20, 10), ("MiniLM", MINILM, "3x192", 4, 4),
                                                  ("encoder-decoder", WRITES, "4x64", 20, 10))},
    "loop": Case(loop_and_bare, (("loop", "bare"),), 12),
    "cka loss": Case(alignments, (("grams", "fast"),), 15),
    "cmow product (pooled)": Case(partial(compositions, "ordered_product"), COMPOSED, 15),
    "cmow product (prefix)": Case(partial(compositions, "prefix_products"), COMPOSED, 15),
    **{f"efficient_attention ({name})": Case(partial(attentions, name), LIBRARY, 7)
       for name in ("longformer", "bigbird", "nystromformer")},
    **{f"xtc packed layers ({bits}-bit; batch of {batch})": Case(partial(packed_layers, bits, batch), PACKED, 10)
       for bits in (2, 1) for batch in (1, 32)},
}  # fmt: skip


@functools.cache
def measured(name: str, tiny: bool) -> dict[str, list[float]]:
    """Contender -> the seconds that it needed in every turn."""
    with tempfile.TemporaryDirectory() as folder:
        return in_turn(CASES[name].make(Path(folder), tiny), 1 if tiny else CASES[name].turns)


def ratios(name: str) -> dict[str, float]:
    """What the case finds, by its name and what is divided."""
    spent = measured(name, False)
    return {f"{name}, {a} / {b}": ratio(spent[a], spent[b]) for a, b in CASES[name].ratios}


def pytest_generate_tests(metafunc: Any) -> None:
    """Of `test_in_turn`, for pytest alone: whoever asks for an arena may have none."""
    import pytest

    pairs = [(name, one) for name, case in CASES.items() for one in case.contenders]
    marked = [pytest.param(*pair, marks=[pytest.mark.slow] * ("step" in pair[0])) for pair in pairs]
    metafunc.parametrize(("name", "contender"), marked)


def test_in_turn(name: str, contender: str, benchmark: Any) -> None:
    spent = measured(name, benchmark.disabled)
    assert min(map(min, spent.values())) > 0
    benchmark.pedantic(bool)
    if not benchmark.disabled:  # what was measured stands in the place of this call
        benchmark.stats.stats.data[:] = spent[contender]


# --- the command ---------------------------------------------------------------------------------------------

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


def main(argv: list[str]) -> None:
    parser = Parser("speed", __doc__)
    parser.add_argument("names", nargs="*", help="words of the cases' names; default: all")
    parser.add_argument("--table", choices=TABLES, help="measure this table instead of the ratios")
    parser.add_argument("--save", action="store_true", help="keep what was measured under bench/results")
    given = parser.parse_args(argv)
    if given.table is not None:
        measure, text, name = TABLES[given.table]
        report = measure() | {"environment": results.environment(on_cpu=given.table != "lengths")}
        print(text(report))
        if given.save:
            results.write_json(FOLDER / f"{name}.json", report)
        return
    for wrong in (word for word in given.names if not any(word in name for name in CASES)):
        raise BadInput(f"{wrong}: no case has this word; there is {', '.join(CASES)}")
    machines, environment = saved("kernels")["machines"], results.environment(on_cpu=True)
    here = "{device}, {instructions}".format(**environment["hardware"])
    before: Ratios = machines.get(here, {}).get("ratios", {})
    found: Ratios = {}
    for name in CASES:
        if not given.names or any(word in name for word in given.names):
            found |= ratios(name)
    rows = [[name, f"{value:.2f}", f"{before[name]:.2f}" if name in before else "-"] for name, value in found.items()]
    print(results.columns(rows, ["ratio", f"now, {here}", "checked in"]))
    if given.save:
        entry = {"ratios": before | found, "environment": environment}
        results.write_json(FOLDER / "kernels.json", {"machines": machines | {here: entry}})
    if lines := worse(before, found):
        print("\n".join(lines))
        raise SystemExit(1)
