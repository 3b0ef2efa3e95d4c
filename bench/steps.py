"""Training steps of the scripts themselves, on drawn texts with a random teacher: `python -m bench speed --table`.

The tables steps, profile and peers. A step lasts from the end of the one before to its own end.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import transformers
from accelerate.state import AcceleratorState
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from bench import matrix
from bench.grid import Grid
from bench.measure import in_own_process, in_turn, memory_of, ratio, seconds, version
from common import data, models, parallel, results, train
from common.args import read
from common.losses import kd_loss
from common.tasks import TASKS
from common.teacher import Teacher
from pocket.models import SPECIAL_TOKENS


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


def script(method: str, words: list[str], steps: int, last: int | None = None) -> float:
    """The median of (the last) so many steps of a script."""
    spent, _ = trained(method, [*words, "--budget", str(32 * steps)])
    return statistics.median(spent[-(last or len(spent)) :])


# --- steps ---------------------------------------------------------------------------------------------------

STEPS_OF_CKA = "--pretraining off"
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


def row(name: str, how: str, steps: int, last: int | None = None, base: bool = False) -> float:
    """The median of (the last) so many steps of a row; `base`: at BERT-base's sizes."""
    method, words, small, large = METHODS[name]
    sizes, student = (Sizes((12, 768), 30522, 128), large) if base else (Sizes((4, 128), 2000, 20), small)
    with tempfile.TemporaryDirectory() as folder:
        given = [*material(Path(folder), sizes, 160), "--student", student, *words.split(), *HOW[how].split()]
        return script(method, given, steps, last)


def possible(name: str) -> list[str]:
    """Kept are outputs and hidden states; the attention scores that xtc compares are too large."""
    return [how for how in HOW if how != "kept" or name != "xtc"]


def step_ratios(name: str) -> dict[str, float]:
    """The time of a step that is computed in another way, as a share of its time as it is."""
    # of three epochs the last one is measured, when outputs are kept and what is compiled is compiled
    spent = in_turn({how: partial(row, name, how, 15, 5) for how in possible(name)}, 7)
    first = spent.pop("as it is")
    return {how: ratio(values, first) for how, values in spent.items()}


def steps() -> dict[str, Any]:
    """32 texts of 20 tokens, teacher 4x128, student 2x128; memory of 32 texts of 128 tokens, 12x768 and 6x768 (cmow:
    the paper's hybrid), with weights, Adam's moments and the teacher. With bf16 the weights stay float32."""
    table: dict[str, Any] = {}
    for name in METHODS:
        print(f"steps of {name}", file=sys.stderr)
        peaks = {
            how: round(memory_of(partial, row, name, how, 2, None, True) / 1e6)
            for how in possible(name)
            if how != "compile"
        }
        table[name] = {"seconds": in_own_process(step_ratios, name), "megabytes": peaks}
    return {"methods": table}


def steps_text(report: dict[str, Any]) -> str:
    rows = []
    for name, row in report["methods"].items():
        cells = [f"x {row['seconds'][how]:.2f}" if how in row["seconds"] else "-" for how in list(HOW)[1:]]
        cells += [f"{row['megabytes'][how]:,}" if how in row["megabytes"] else "-" for how in list(HOW)[:3]]
        rows.append([name, *cells])
    header = "step of, outputs kept, bf16, compiled, peak MB at BERT-base, outputs kept, bf16"
    return Grid(header.split(", "), rows).markdown()


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
        found = []
        for _ in range(6):
            with step_parts() as spent:
                row(name, "as it is", STEPS_OF_PROFILE)
            found.append(spent)
        table[name] = {
            part: round(1000 * statistics.median(spent[part] for spent in found[1:]) / STEPS_OF_PROFILE, 2)
            for part in PARTS
        }
    return {"methods": table}


def profile_text(report: dict[str, Any]) -> str:
    rows = [[name, *(f"{ms:.2f}" for ms in row.values()), f"{sum(row.values()):.2f}"]
            for name, row in report["methods"].items()]  # fmt: skip
    return Grid(["ms of a step", *PARTS, "sum"], rows).markdown()


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
        words = peer_material(folder)
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
