"""What every training loop needs: device, seed, optimiser, budget, ledger, checkpoints, evaluation.

The loops themselves stand in the methods (and, for the teacher, in `common/teacher.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm
from transformers import get_linear_schedule_with_warmup, set_seed

from common import data, metrics, models, parallel, results, windows
from common.args import BadInput, CommonArgs, Interrupted, first_line, interrupt
from common.data import Encoded, TaskData

WARMUP = 0.1  # share of the steps
WEIGHT_DECAY = 0.01
CLIP = 1.0  # gradient norm
BEAMS = 4  # of the beam search by which texts are written


def accelerator(args: CommonArgs) -> Accelerator:
    """The device and the precision that the arguments name; deterministic kernels where they exist."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: this machine has no CUDA device; --device cpu or auto would work")
    if args.device == "mps" and not torch.backends.mps.is_available():
        raise BadInput("--device mps: this machine has no MPS device; --device cpu or auto would work")
    cpu = args.device == "cpu" or not torch.accelerator.is_available()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # filling memory takes a twentieth of a small student's step
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    precision = {"fp32": "no"}.get(args.precision, args.precision)
    try:
        engine = Accelerator(cpu=cpu, mixed_precision=precision, kwargs_handlers=[parallel.PATIENCE])
    except (ValueError, RuntimeError) as error:
        raise BadInput(f"--precision {args.precision} --device {args.device}: {error}") from error
    if args.precision == "fp16" and engine.device.type != "cuda":
        raise BadInput(f"--precision fp16: needs a CUDA device, this is {engine.device.type}; bf16 or fp32 would work")
    if (started := int(os.environ.get("WORLD_SIZE", 1))) != parallel.processes():
        raise BadInput(f"--device {args.device}: {started} processes were started, which {engine.device} does not join")
    parallel.quiet()
    return engine


def seed_everything(seed: int) -> None:
    set_seed(seed, deterministic=False)


def adamw(model: nn.Module, lr: float, extra: list[nn.Parameter] | None = None) -> torch.optim.AdamW:
    """AdamW with BERT's constants; biases and norms (everything of one dimension) do not decay."""
    parameters = [p for p in [*model.parameters(), *(extra or [])] if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.999), eps=1e-8, fused=True)


# --- budget and ledger ------------------------------------------------------------------------------------


@dataclass
class Ledger:
    """What a run has spent. Evaluation, checkpoints and the teacher's own training are off the clock."""

    steps: int = 0
    student_examples: int = 0
    student_tokens: int = 0
    teacher_examples: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    shared_seconds: float = 0.0  # of the seconds, those of an earlier run, whose work this one read from the cache

    def __post_init__(self) -> None:
        self._opened: float | None = None  # when the clock was started, if it runs

    def count(self, batch: dict[str, Tensor], teachers: int = 0) -> None:
        """Charge one optimiser step over `batch`, still on the CPU, that `teachers` teachers saw too."""
        mask = batch["attention_mask"]
        self.steps += 1
        self.student_examples += len(mask)
        self.student_tokens += int(mask.sum())
        self.teacher_examples += teachers * len(mask)

    @classmethod
    def of(cls, note: dict[str, Any]) -> Ledger:
        """What was spent on something in the cache (`cache.fetch`), by this run or by an earlier one."""
        ledger = cls(**note["ledger"])
        ledger.shared_seconds = 0.0 if note["fresh"] else ledger.seconds
        return ledger

    def add(self, other: Ledger) -> None:
        """Charge what another stage of the same run has spent."""
        for name, spent in asdict(other).items():
            own = getattr(self, name)
            setattr(self, name, max(own, spent) if name == "peak_memory_bytes" else own + spent)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        self._opened = time.perf_counter()
        try:
            yield
        finally:
            self.seconds, self._opened = self.elapsed(), None
            self.peak_memory_bytes = max(self.peak_memory_bytes, peak_memory())

    def elapsed(self) -> float:
        """Seconds on the clock so far, those of an open `clock` included."""
        return self.seconds + (0.0 if self._opened is None else time.perf_counter() - self._opened)


def peak_memory() -> int:
    """Peak bytes: of the CUDA allocator where there is one, otherwise of this process (teacher included)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if (status := Path("/proc/self/status")).exists():  # rusage also counts the process that started this one
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def total_steps(kind: str, amount: int, batch_size: int, steps_per_epoch: int, paper_epochs: float) -> int:
    """Optimiser steps that a budget of examples (or the paper's epochs) pays for; at least one."""
    if kind == "paper":
        return max(1, round(paper_epochs * steps_per_epoch))
    return max(1, amount // batch_size)


class Schedule:
    """Linear warm-up and decay to zero over the budget, which is counted in steps or in seconds.

    `running()` says whether the budget still pays for a step. With a budget in seconds the library's schedule
    runs over 1000 ticks, of which the elapsed share has passed. `args` are given for the training on the task, which
    `--lr-plan` and `--until` are about.
    """

    TICKS = 1000

    def __init__(
        self, optimizer: torch.optim.Optimizer, ledger: Ledger, steps: int | None, seconds: float | None,
        warmup: float = WARMUP, args: CommonArgs | None = None,
    ) -> None:  # fmt: skip
        self.optimizer, self.ledger, self.steps, self.seconds = optimizer, ledger, steps, seconds
        total = steps if steps is not None else self.TICKS
        self.inner = get_linear_schedule_with_warmup(optimizer, round(warmup * total), total)
        self.plan = [(max(1, round(share * total)), factor) for share, factor in (args.plan if args else [])]
        self.end = max(1, round(args.until * total)) if args and args.until is not None else total

    def running(self) -> bool:
        if self.steps is not None:
            return self.ledger.steps < self.end
        return parallel.on_main(self.ledger.elapsed) < (self.seconds or 0)

    def step(self) -> None:
        """Set the learning rate of the next step. Call after `ledger.count`."""
        at = self.ledger.steps
        if self.steps is None:
            at = int(self.TICKS * min(1.0, parallel.on_main(self.ledger.elapsed) / (self.seconds or 1)))
        factor = next((factor for start, factor in reversed(self.plan) if start <= at), 1.0)
        for group, peak, share in zip(
            self.optimizer.param_groups, self.inner.base_lrs, self.inner.lr_lambdas, strict=True
        ):
            group["lr"] = peak * share(at) * factor

    def past(self, steps: int) -> list[list[float]]:
        """What the first `steps` steps have seen of `--lr-plan`: its changes, each as a step and a factor."""
        return [[start, factor] for start, factor in self.plan if start < steps]


# --- checkpoints ------------------------------------------------------------------------------------------


class Checkpoint:
    """One file from which a killed run continues to the last bit: weights, optimiser, random state, ledger.

    A safetensors file, replaced atomically; its metadata hold the ledger, the settings of the run and a
    digest of every tensor, so that a damaged file or another run's file is refused and named; only the part of
    `--lr-plan` that was still to come may be another one. Use it as a context: inside, SIGINT and SIGTERM wait for the
    end of a step, are answered by `save`, then raised. At its end the last step is saved: whoever stops a run in what
    follows, an evaluation or another stage, loses nothing. Of several processes all read the file and the main one
    writes it.
    """

    LOOK = 20  # steps

    def __init__(self, folder: Path, modules: dict[str, nn.Module], schedule: Schedule, settings: str,
                 every: float = 30.0, scaler: Any = None) -> None:  # fmt: skip
        self.path = folder / "checkpoint.safetensors"
        self.modules, self.schedule, self.scaler = modules, schedule, scaler
        self.optimizer, self.ledger = schedule.optimizer, schedule.ledger
        self.settings, self.every = settings, every
        self.saved, self.saved_steps = time.perf_counter(), 0
        self.stop: int | None = None
        self.watched: list[tuple[Tensor, int]] = []  # losses that were not looked at yet, and their steps
        self.ids: Callable[[int], list[str]] = lambda step: []

    def __enter__(self) -> Checkpoint:
        parallel.copy_main(self.modules.values())
        self.before = {}
        if signal.getsignal(signal.SIGTERM) is interrupt:  # only under `args.run`, in the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._defer)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.look()
                if self.saved_steps < self.ledger.steps:
                    self.save()
        finally:
            for number, handler in self.before.items():
                signal.signal(number, handler)
        if kind is None and (stop := parallel.largest(self.stop or 0)):  # while the last step was saved
            raise Interrupted(stop)

    def _defer(self, number: int, _frame: object) -> None:
        # asked twice: do not wait for the step; a launcher passes on to its processes what they have got already
        if self.stop is not None and parallel.processes() == 1:
            raise Interrupted(number)
        self.stop = number

    def watch(self, loss: Tensor, step: int, ids: Callable[[int], list[str]]) -> None:
        """Stop at a loss that is not finite, with the step and `ids(step)`, those of its batch.

        A look at a GPU's number waits for the GPU: there, one in every `LOOK` steps looks at all of them, and no
        checkpoint is written before.
        """
        self.ids = ids
        self.watched.append((loss.detach(), step))
        if loss.device.type == "cpu" or len(self.watched) >= self.LOOK:
            self.look()

    def look(self) -> None:
        if self.scaler is not None and self.scaler.get_scale() < 1:  # from 65,536, halved at every overflow
            raise BadInput("--precision fp16: every gradient overflows, and no step is taken; bf16 or fp32 would do")
        watched, self.watched = self.watched, []
        if len(watched) > 1 and torch.stack([loss for loss, _ in watched]).isfinite().all():
            return
        for loss, step in watched:
            check_finite(loss, step, self.ids)

    def step(self) -> None:
        """Call at the end of every step, off the clock: saves when `every` seconds have passed or on a signal."""
        stop = self.stop
        if parallel.processes() > 1:  # all stop after the same step; on GPUs, which it makes wait, seldom asked
            asks = parallel.on_cpu() or self.ledger.steps % self.LOOK == 0
            stop = (parallel.largest(stop or 0) or None) if asks else None
        if stop is None and time.perf_counter() - self.saved < self.every:
            return
        self.save()
        if stop is not None:
            raise Interrupted(stop)

    def save(self) -> None:
        self.look()
        self.saved, self.saved_steps = time.perf_counter(), self.ledger.steps
        if not parallel.main():
            return
        tensors = {f"model/{m}/{k}": v for m, module in self.modules.items() for k, v in module.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{k}": v for k, v in state.items()}
        tensors["rng/cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["rng/cuda"] = torch.cuda.get_rng_state()
        # clones: safetensors refuses tensors that share memory, as tied embeddings do
        tensors = {k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}
        state = {"ledger": asdict(self.ledger), "settings": self.settings, "digest": digest(tensors)}
        state["plan"] = self.schedule.past(self.ledger.steps)
        if self.scaler is not None:
            state["scaler"] = self.scaler.state_dict()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with results.replacing(self.path) as partial:
                save_file(tensors, partial, metadata={"state": json.dumps(state)})
        except SafetensorError as error:  # which does not say where
            raise OSError(f"{self.path}: {first_line(error)}") from error

    def load(self, again: bool = False) -> bool:
        """Continue from the file; False when there is none. A damaged or foreign file is a `BadInput`, or, with
        `again`, named and left behind: what is only there to be shared is made again."""
        try:
            return self.path.exists() and self._load()
        except BadInput as error:
            if not again:
                raise
            print(f"{str(error).split(';')[0]}; this training starts again")
            self.path.unlink(missing_ok=True)
            return False

    def _load(self) -> bool:
        try:
            with safe_open(self.path, "pt") as file:
                state = json.loads(file.metadata()["state"])
                tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{self.path}: damaged checkpoint ({error}); --force starts again") from error
        if state["digest"] != digest(tensors):
            raise BadInput(f"{self.path}: damaged checkpoint (its digest does not match); --force starts again")
        if state["settings"] != self.settings:
            raise BadInput(f"{self.path}: belongs to other settings ({state['settings']}); use them, or --force")
        if state.get("plan", []) != self.schedule.past(state["ledger"]["steps"]):
            raise BadInput(f"{self.path}: has come here by another --lr-plan; give that one's beginning, or --force")
        for name, module in self.modules.items():
            prefix = f"model/{name}/"
            module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
        saved: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("optimizer/"):
                _, index, name = key.split("/")
                saved.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": saved, "param_groups": groups})
        torch.set_rng_state(tensors["rng/cpu"])
        if "rng/cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["rng/cuda"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        for name, value in state["ledger"].items():
            setattr(self.ledger, name, value)
        self.schedule.step()  # the rate of the next step
        self.saved_steps = self.ledger.steps
        return True


def digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


# --- the rest of a step -----------------------------------------------------------------------------------


def update(
    engine: Accelerator, optimizer: torch.optim.Optimizer, weights: Iterable[nn.Parameter], clip: float = CLIP
) -> None:
    """Sum the gradients that `engine.backward` has left over the processes, clip the sum, take the step, and forget it.

    In fp16 the loss was scaled: the gradient is scaled back first, and a step whose gradient overflowed is left out.
    """
    weights = list(weights)
    parallel.sum_gradients(weights)
    if engine.scaler is None:
        clip_grad_norm_(weights, clip)
        optimizer.step()
    else:
        engine.scaler.unscale_(optimizer)
        clip_grad_norm_(weights, clip)
        engine.scaler.step(optimizer)
        engine.scaler.update()
    optimizer.zero_grad()


def check_finite(loss: Tensor, step: int, ids: Callable[[int], list[str]]) -> None:
    """Stop at a loss that is not finite, with the step and `ids(step)`, those of its batch."""
    if not math.isfinite(loss.item()):
        raise BadInput(f"the loss is {loss.item()} at step {step}, batch {', '.join(ids(step))}: try a lower --lr")


def progress(total: int, label: str, initial: int = 0) -> tqdm:
    """A progress bar with the time left; silent when the output is not a terminal."""
    hidden = None if parallel.main() else True
    return tqdm(total=total, initial=initial, desc=label, disable=hidden, leave=False, dynamic_ncols=True)


@torch.no_grad()
def forward(
    model: nn.Module, encoded: Encoded, tokenizer: Any, batch_size: int
) -> Iterator[tuple[list[int], int, Any]]:
    """The model's outputs in evaluation mode, each example exactly once: indices, padded length, output of a batch."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    bar = progress(len(encoded), "evaluating")
    for indices, batch in data.eval_batches(encoded, tokenizer, batch_size):
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        yield indices, inputs["input_ids"].shape[1], model(**inputs)
        bar.update(len(indices))
    bar.close()
    model.train(was_training)


def predict(model: nn.Module, encoded: Encoded, tokenizer: Any, batch_size: int = 128) -> np.ndarray:
    """Logits (examples x outputs) as float32, in the order of the examples."""
    rows: dict[int, np.ndarray] = {}
    for indices, _, output in forward(model, encoded, tokenizer, batch_size):
        logits = output.logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise BadInput(f"outputs that are not finite, first for {encoded.ids[indices[0]]}: try a lower --lr")
        rows.update(zip(indices, logits.numpy(), strict=True))
    return np.stack([rows[i] for i in range(len(encoded))])


def predict_windows(model: nn.Module, encoded: Encoded, tokenizer: Any, batch_tokens: int = 16_384) -> list[np.ndarray]:
    """Logits of every window (`models.token_logits`) without its padding, [L, T] or [L, 2], as float32, in order."""
    rows: dict[int, np.ndarray] = {}
    for indices, padded, output in forward(model, encoded, tokenizer, max(1, batch_tokens // max(encoded.lengths))):
        for i, row in zip(indices, models.token_logits(output).float().cpu().numpy(), strict=True):
            first = padded - encoded.lengths[i] if tokenizer.padding_side == "left" else 0
            rows[i] = row[first : first + encoded.lengths[i]]
    return [rows[i] for i in range(len(encoded))]


@torch.no_grad()
def write(model: Any, encoded: Encoded, tokenizer: Any, max_length: int, batch_size: int = 64) -> list[str]:
    """What an encoder-decoder writes for every example: the library's beam search of `BEAMS` beams.

    At most `max_length` tokens, and no more than 10 beyond twice the longest source of the batch.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    rows: dict[int, str] = {}
    bar = progress(len(encoded), "writing")
    for indices, batch in data.eval_batches(encoded, tokenizer, batch_size):
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        # a model that does not come to an end is stopped
        limit = min(max_length, 2 * inputs["input_ids"].shape[1] + 10)
        found = model.generate(
            **inputs, num_beams=BEAMS, max_new_tokens=limit, max_length=None, do_sample=False, early_stopping=True
        )
        rows.update(zip(indices, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True))
        bar.update(len(indices))
    bar.close()
    model.train(was_training)
    return [rows[i] for i in range(len(encoded))]


@parallel.by_main
def evaluate(
    model: nn.Module, tokenizer: Any, task: TaskData, max_length: int, folder: Path | None = None
) -> tuple[dict[str, dict[str, float]], float]:
    """Metrics of every reported split, and the examples (of texts: windows) per second of these forward passes.

    Texts that were written, and those they are compared with, are kept in `folder`, one a line: what sacreBLEU's own
    command takes, `sacrebleu test.reference.txt -i A/test.written.txt B/test.written.txt --paired-bs`.
    """
    scores, examples, seconds = {}, 0, 0.0
    models.check_finite(model, f"the model for {task.name}")
    for name in task.reported:
        split = task.splits[name]
        if task.task.kind == "language modelling":
            stream = data.token_stream(tokenizer, split)
            started = time.perf_counter()
            scores[name] = {"perplexity": metrics.perplexity(model, stream, max_length)}
            seconds += time.perf_counter() - started
            examples += len(metrics.windows(len(stream), max_length))
            if not np.isfinite(scores[name]["perplexity"]):
                raise BadInput(f"the perplexity on {name} is {scores[name]['perplexity']}: try a lower --lr")
        elif task.task.kind in data.GENERATED:
            encoded = data.encode(tokenizer, split, task.task, max_length)
            started = time.perf_counter()
            texts = write(model, encoded, tokenizer, max_length)
            seconds += time.perf_counter() - started
            examples += len(texts)
            scorer = metrics.bleu if task.task.kind == "translation" else metrics.rouge
            scores[name] = scorer(texts, split.labels)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                for kind, lines in (("written", texts), ("reference", split.labels)):
                    whole = "".join(f"{' '.join(text.split())}\n" for text in lines)
                    (folder / f"{name}.{kind}.txt").write_text(whole, encoding="utf-8")
        elif task.task.kind in data.WINDOWED:
            encoded = data.encode(tokenizer, split, task.task, max_length)
            started = time.perf_counter()
            rows = predict_windows(model, encoded, tokenizer)
            seconds += time.perf_counter() - started
            examples += len(rows)
            scores[name] = windows.score(encoded, split, task.task, rows)
        else:
            encoded = data.encode(tokenizer, split, task.task, max_length)
            started = time.perf_counter()
            logits = predict(model, encoded, tokenizer)
            seconds += time.perf_counter() - started
            examples += len(logits)
            outputs = logits[:, 0] if task.task.kind == "regression" else logits.argmax(1)
            scores[name] = metrics.compute(task.task, outputs, split.labels)
    return scores, examples / seconds
