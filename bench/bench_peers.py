"""Distillation here and by others: the same models, data, batch size and steps, three epochs, runs that take turns.

    python -m pytest bench/bench_peers.py -s            # prints the ratios; a few minutes
    python -m bench.bench_peers --save                  # also writes bench/results/peers.json

Ours is mc3kd.py's row kd as it is run on real data: batches by length, the teacher's outputs computed once (within the
time measured), checkpoints, log and ledger. The library's Trainer has the teacher in `compute_loss` at every step and
its default collator for texts, which pads to the longest of the batch; TextBrewer, where it is installed, the same
collator, and the teacher at every step. All have the loss alpha T^2 KL + (1 - alpha) CE in common, AdamW, linear
warm-up and decay, clipping at 1. Lengths are drawn as GLUE's are distributed: most texts short, a few long. Targets:
1.5 x the Trainer's examples per second, no more memory; faster than TextBrewer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import torch
import torch.nn.functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

from common import data, models, results, train
from common.data import Split, TaskData
from common.run import Run
from common.speed import in_own_process
from common.teacher import Teacher, frozen
from methods import mc3kd

EXAMPLES, EPOCHS, BATCH, WORDS = 320, 3, 32, 2000
STEPS = EPOCHS * EXAMPLES // BATCH
TEACHER, STUDENT = (4, 256), (2, 256)  # layers, width
MEDIAN, SPREAD, LONGEST = 22, 0.75, 126  # of the words in a text, whose logarithms are normally distributed
LR, ALPHA, TEMPERATURE = 5e-5, 0.9, 2.0
TARGET, TURNS = 1.5, 3


def tokenizer() -> BertTokenizer:
    words = [*models.SPECIAL_TOKENS, *(f"word{i}" for i in range(WORDS - len(models.SPECIAL_TOKENS)))]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=512)


def task() -> TaskData:
    rng = random.Random(0)
    lengths = [min(LONGEST, max(3, round(MEDIAN * rng.lognormvariate(0, SPREAD)))) for _ in range(EXAMPLES)]
    texts: list[tuple[str, ...]] = [
        (" ".join(f"word{rng.randrange(1000)}" for _ in range(length)),) for length in lengths
    ]
    split = Split([f"train-{i}" for i in range(EXAMPLES)], texts, [i % 2 for i in range(EXAMPLES)])
    return TaskData("sst2", data.TASKS["sst2"], "local", "drawn", {"train": split, "dev": split}, "drawn", ("dev",))


def bert(shape: tuple[int, int], seed: int) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    layers, width = shape
    sizes: dict[str, Any] = {"num_attention_heads": width // 64, "intermediate_size": 4 * width}
    return BertForSequenceClassification(
        BertConfig(vocab_size=WORDS, hidden_size=width, num_hidden_layers=layers, **sizes)
    )


def ours(folder: str, cached: Any = "auto", batches: Any = "auto") -> None:
    """The loop of `--variant kd`."""
    own, words = task(), tokenizer()
    args = mc3kd.Args(
        out_dir=folder, budget=str(EPOCHS * EXAMPLES), batch_size=BATCH, alpha=ALPHA, temperature=TEMPERATURE,
        teacher_cache=cached, batches=batches, device="cpu",
    )  # fmt: skip
    guide = frozen(bert(TEACHER, 0), torch.device("cpu"))
    teacher = Teacher("teacher", guide, words, "teacher", {}, 1.0, 1, None)
    encoded = data.encode(words, own.splits["train"], own.task, args.max_length)
    cell, ledger = Run(args, "mc3kd", "kd", own, teacher, 1, {"lr": LR}), train.Ledger()
    engine, stage = train.accelerator(args), mc3kd.Stage(cell.steps, None)
    mc3kd.distil(args, "kd", cell, bert(STUDENT, 1), [teacher], encoded, [], ledger, engine, stage)
    assert (ledger.steps, ledger.student_examples) == (STEPS, EPOCHS * EXAMPLES)


def rows() -> list[dict[str, Any]]:
    own = task().splits["train"]
    found = tokenizer()([text for (text,) in own.texts], truncation=True, max_length=128)
    return [{name: found[name][i] for name in found} | {"labels": own.labels[i]} for i in range(EXAMPLES)]


class DistillationTrainer(Trainer):
    """The library's loop, with the teacher's soft labels in its loss."""

    guide: Any

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
    ) -> Any:
        labels = inputs.pop("labels")
        output = model(**inputs)
        with torch.no_grad():
            soft = self.guide(**inputs).logits
        hard = F.cross_entropy(output.logits, labels)
        loss = ALPHA * mc3kd.kd_loss(output.logits, soft, TEMPERATURE) + (1 - ALPHA) * hard
        return (loss, output) if return_outputs else loss


def library(folder: str) -> None:
    settings = TrainingArguments(
        folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, learning_rate=LR, warmup_steps=STEPS // 10,
        weight_decay=train.WEIGHT_DECAY, max_grad_norm=train.CLIP, use_cpu=True, report_to=[], save_strategy="no",
        logging_steps=20, disable_tqdm=True, seed=0,
    )  # fmt: skip
    collator = DataCollatorWithPadding(tokenizer())
    trainer = DistillationTrainer(bert(STUDENT, 1), settings, collator, train_dataset=rows())  # type: ignore[arg-type]
    trainer.guide = frozen(bert(TEACHER, 0), torch.device("cpu"))
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    assert trainer.state.global_step == STEPS


def textbrewer(folder: str) -> None:
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    torch.manual_seed(0)
    student, guide = bert(STUDENT, 1), frozen(bert(TEACHER, 0), torch.device("cpu"))

    def adaptor(batch: Any, output: Any) -> dict[str, Any]:
        return {"logits": output.logits, "losses": output.loss}

    how = DistillationConfig(temperature=TEMPERATURE, kd_loss_weight=ALPHA, hard_label_weight=1 - ALPHA)
    settings = TrainingConfig(output_dir=folder, device="cpu", ckpt_frequency=0)
    collator = DataCollatorWithPadding(tokenizer())
    loader: Any = torch.utils.data.DataLoader(
        rows(),  # type: ignore[arg-type]
        batch_size=BATCH, shuffle=True, collate_fn=lambda chosen: dict(collator(chosen)),
    )  # fmt: skip
    optimizer = train.adamw(student, LR)
    schedule = {"num_warmup_steps": STEPS // 10, "num_training_steps": STEPS}
    distiller = GeneralDistiller(settings, how, guide, student, adaptor, adaptor)
    with distiller:
        distiller.train(optimizer, loader, EPOCHS, get_linear_schedule_with_warmup, schedule, max_grad_norm=train.CLIP)


def contenders() -> dict[str, Callable[[str], None]]:
    found: dict[str, Callable[[str], None]] = {
        "ours": ours,
        "ours, teacher at every step": partial(ours, cached="off"),
        "ours, shuffled": partial(ours, batches="shuffled"),
        "Trainer": library,
    }
    with contextlib.suppress(ImportError):
        import textbrewer as _  # noqa: F401

        found["TextBrewer"] = textbrewer
    return found


def once(contender: Callable[[str], None]) -> float:
    """Seconds of a whole training; of this process: other work on the machine does not count."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        contender(folder)
        return time.process_time() - started


def peak(contender: Callable[[str], None]) -> int:
    """Bytes that a training adds to a process which has only loaded the libraries."""
    with tempfile.TemporaryDirectory() as folder:
        held = psutil.Process().memory_info().rss
        contender(folder)
        return train.peak_memory() - held


def measure(turns: int = TURNS) -> dict[str, Any]:
    """Medians over the turns, in which all contenders run one after the other, of seconds and of ratios to ours."""
    found = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(turns + 1):
        for name, contender in found.items():
            spent = once(contender)
            if turn:
                seconds[name].append(spent)
    table = {}
    for name, values in seconds.items():
        ratio = statistics.median(value / own for value, own in zip(values, seconds["ours"], strict=True))
        table[name] = {
            "examples_per_second": round(EPOCHS * EXAMPLES / statistics.median(values), 1),
            "seconds / ours": round(ratio, 3),
            "megabytes": round(in_own_process(peak, found[name]) / 1e6, 1),
        }
    return table


def text(report: dict[str, Any]) -> str:
    """The table of a report, in Markdown."""
    header = "| | examples/s | seconds / ours | peak MB |\n|---|---|---|---|\n"
    lines = [
        f"| {name} | {row['examples_per_second']:.0f} | {row['seconds / ours']:.2f} | {row['megabytes']:.0f} |"
        for name, row in report["peers"].items()
    ]
    return header + "\n".join(lines)


def check(table: dict[str, Any]) -> None:
    assert table["Trainer"]["seconds / ours"] >= TARGET
    assert table["ours"]["megabytes"] <= table["Trainer"]["megabytes"]
    assert "TextBrewer" not in table or table["TextBrewer"]["seconds / ours"] > 1


def test_peers(benchmark: Any) -> None:
    table: dict[str, Any] = {}
    benchmark.pedantic(lambda: table.update(measure()), rounds=1)
    benchmark.extra_info |= {f"{name} / ours": row["seconds / ours"] for name, row in table.items() if name != "ours"}
    print(f"\n{text({'peers': table})}")
    check(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write bench/results/peers.json")
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args()
    table = measure(given.turns)
    report = {"peers": table, "environment": results.environment()}
    print(text(report))
    if given.save:
        path = results.ROOT / "bench" / "results" / "peers.json"
        results.write_json(path, report)
        print(f"saved: {path}")
    check(table)


if __name__ == "__main__":
    main()
