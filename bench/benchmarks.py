"""Kernels, product scans, packed layers, losses and steps beside their rivals, as benchmarks of pytest-benchmark.

    ./run_all.sh bench               # all, in an environment of their own: `python -m bench speed`
    pytest bench/benchmarks.py       # each once, at a tiny size: a part of the tests, steps of the slow ones
    pytest bench/benchmarks.py --benchmark-enable --benchmark-group-by=param:name      # what each contender needs

pytest-benchmark measures one contender after the other. Here all contenders of a case take turns first, so that a noisy
machine is noisy for all of them, and its tables show what they needed. Ratios are taken turn by turn.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from bench import matrix, speed
from bench.speed import (
    Contenders,
    attention_reader,
    in_turn,
    memory_of,
    packed_model,
    ratio,
    seconds,
    sentences,
    timed,
    version,
)
from common import models, parallel, results, train
from common.args import read
from common.layers.packed import keep
from common.losses import kd_loss
from common.tasks import TASKS
from methods import cmow
from methods.cka import cka_loss, of_pairs
from pocket.models import SPECIAL_TOKENS


class Case(NamedTuple):
    """Contenders, made in a folder, at a `tiny` size or not; what is divided, (numerator, denominator); the turns."""

    make: Callable[[Path, bool], Contenders]
    ratios: tuple[tuple[str, str], ...]
    turns: int

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(itertools.chain(*self.ratios)))


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

    return gradients({"grams": grams, "fast": lambda S: cka_loss(of_pairs(zip(S, T, strict=True)))}, S)


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
    models["kept"] = keep(packed_model(bits, **shape))
    return timed({name: partial(speed.forward, model, sentences(batch)) for name, model in models.items()})


# --- the cases -----------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("name", "contender"),
    [pytest.param(name, one, marks=[pytest.mark.slow] * ("step" in name)) for name in CASES
     for one in CASES[name].contenders],
)  # fmt: skip
def test_in_turn(name: str, contender: str, benchmark: Any) -> None:
    spent = measured(name, benchmark.disabled)
    assert min(map(min, spent.values())) > 0
    benchmark.pedantic(bool)
    if not benchmark.disabled:  # what was measured stands in the place of this call
        benchmark.stats.stats.data[:] = spent[contender]
