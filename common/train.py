"""The one training loop of the project, and the stages that several runs share.

    with run.loop({"student": student}, lr) as loop:
        for batch in loop:                            # goes on where it was killed, and ends with the budget
            loss = step_loss(student, teacher, batch)
            loop.minimise(loss)                       # after a batch's last part: clip, AdamW, schedule, ledger

Students, teachers, masked language models and stages before the task are all trained like this. Forward passes and the
loss stand on the caller's page; clock, ledger, parts of a batch, autocast, random numbers, finite checks, clipping,
schedule, progress, log, checkpoints and signals are here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm
from transformers import PreTrainedModel, set_seed

from common import losses, models, parallel, results
from common.errors import BadInput, Interrupted, first_line, interrupt, some, tell
from common.kinds import Kind
from common.results import replacing, write_json

if TYPE_CHECKING:
    from common.args import CommonArgs

LOG_EVERY = 20  # steps
TELL_EVERY = 30.0  # seconds between two lines of a loop that shows no bar
LOOK_EVERY = 20  # steps between two looks at losses on a GPU, which make it wait


# --- the ledger ----------------------------------------------------------------------------------------------


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

    def add(self, other: Ledger) -> None:
        """Charge what something else has spent."""
        for name, spent in asdict(other).items():
            before = getattr(self, name)
            setattr(self, name, max(before, spent) if name == "peak_memory_bytes" else before + spent)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def peak_memory() -> int:
    """Peak bytes: of the CUDA allocator where models are on a GPU, otherwise of this process (teacher included)."""
    if parallel.device().type == "cuda":
        return torch.cuda.max_memory_allocated()
    if (status := Path("/proc/self/status")).exists():  # rusage also counts the process that started this one
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --- a batch -------------------------------------------------------------------------------------------------


class Stream(Protocol):
    """A stream of batches, which is a function of the step: a resumed training needs no other state of it. Masks are
    drawn from torch's random numbers, whose state a checkpoint holds."""

    def __getitem__(self, step: int) -> dict[str, Tensor]: ...

    def ids(self, step: int) -> list[str]: ...


@dataclass
class Batch:
    """This process's rows of a step's batch, or with `--accumulate` of a part of it, on the device."""

    inputs: dict[str, Tensor]  # what the models take, without the labels
    labels: Tensor
    ids: list[str]
    kind: Kind  # of the task, or "masked LM"
    step: int  # of the data stream
    number: int  # of the part, from 0
    first: bool  # whether it is the first part of the batch
    last: bool
    share: float  # of the batch's predictions, by which the loop weighs the part's loss
    of_examples: float  # its share of the batch's examples
    of_tokens: float  # and of its tokens
    examples: int  # of all processes
    ledger: Ledger
    rest: list[Batch] = field(default_factory=list)  # of the first part: those that follow it
    seed: int = 0

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """For what a method draws at a step: a function of seed and step, the same in every process and part."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)

    @property
    def mask(self) -> Tensor:
        """(B, L), which tokens are no padding."""
        return self.inputs["attention_mask"].bool()

    def mean(self, rows: Tensor) -> Tensor:
        """(B,), a number for each example -> (): the mean over everybody's, also of a task whose predictions are tags,
        of which the parts of a batch have other shares than of its examples."""
        return parallel.mean(rows) * (self.of_examples / self.share)

    def mean_of_tokens(self, rows: Tensor) -> Tensor:
        """(n,), a number for each token that is no padding -> (): likewise, where the predictions are others."""
        return parallel.mean(rows) * (self.of_tokens / self.share)

    def predictions(self, output: Any) -> tuple[Tensor, Tensor]:
        """(n, C) logits and (n,) targets, one row for each prediction: `Kind.predictions`."""
        return self.kind.predictions(output, self.labels, self.mask)


def split_batch(batch: dict[str, Tensor], ids: list[str], parts: int, kind: str, step: int, ledger: Ledger,
                device: torch.device) -> list[Batch]:  # fmt: skip
    """A batch in so many parts, fewer if it has too few rows; of each this process's rows."""
    size, labels, tokens = len(ids), batch["labels"], batch["attention_mask"].sum(1)
    # labels beyond one a text are those of tokens, of which only these are predictions, unless the kind has `several`
    at_tokens = labels.ndim > 1 and not Kind.of(kind).several
    counts = (labels >= 0).flatten(1).sum(1).tolist() if at_tokens else [1] * size
    parts = max(1, min(parts, size // parallel.processes()))
    ends = [size * i // parts for i in range(parts + 1)]
    made: list[Batch] = []
    for number, (a, b) in enumerate(itertools.pairwise(ends)):
        rows = parallel.share_of({name: values[a:b] for name, values in batch.items()})
        inputs = {name: values.to(device) for name, values in rows.items()}
        share = max(sum(counts[a:b]) / max(1, sum(counts)), 1e-20)  # what has no prediction has examples
        made.append(Batch(inputs, inputs.pop("labels"), parallel.share_of(ids[a:b]), Kind.of(kind), step, number,
                          number == 0, number == parts - 1, share, (b - a) / size,
                          int(tokens[a:b].sum()) / int(tokens.sum()), b - a, ledger))  # fmt: skip
    made[0].rest = made[1:]
    return made


# --- the loop ------------------------------------------------------------------------------------------------

# The options that decide what comes out. Their defaults are in every key. What an argument changes goes into
# `Run.settings`, and for a shared stage into its recipe
DECIDE = ("warmup", "betas", "eps", "decay", "clip")


@dataclass(frozen=True)
class Options:
    """How a loop trains."""

    warmup: float = 0.1  # share of the steps
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay: float = 0.01
    clip: float = 1.0  # norm of a gradient
    parts: int = 1  # of a batch
    remake: bool = False  # start again where the checkpoint is damaged, or another's; otherwise it is refused
    save_every: float = 30.0  # seconds; ten times as many at most, for large models
    checkpointing: bool = False  # of activations

    @classmethod
    def of(cls, args: CommonArgs, **changes: Any) -> dict[str, Any]:
        """What the arguments of all scripts say, and `changes`."""
        return {"parts": args.accumulate, "checkpointing": args.gradient_checkpointing} | changes


class Loop:
    """Training of `modules` on `batches` for so many steps, with linear warm-up and decay to 0, as `Options` say.

    `first`: where in the stream of batches it begins. `folder`: of its checkpoint, which has this `identity`. `notes`
    are lists of numbers that the caller fills and checkpoints keep. `log` takes a line of the log. `total`: the
    ledger that is charged when it has ended. `seed`: of its batches' generators.
    """

    def __init__(
        self, modules: dict[str, nn.Module], batches: Stream, steps: int, lr: float, folder: Path, identity: str, *,
        kind: str = "classification", label: str = "", first: int = 0, log: Callable[..., None] | None = None,
        total: Ledger | None = None, seed: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        self.modules, self.batches, self.steps, self.lr = modules, batches, steps, lr
        self.path, self.identity = folder / "checkpoint.safetensors", identity
        self.kind, self.label, self.first_step, self.log, self.total = kind, label, first, log, total
        self.seed = seed
        self.options = Options(**options)
        self.engine, self.device = parallel.engine(), parallel.device()
        for module in modules.values():
            module.to(self.device)
        self.weights = [p for module in modules.values() for p in module.parameters() if p.requires_grad]
        groups = [  # biases and norms, everything of one dimension, do not decay
            {"params": [p for p in self.weights if p.ndim > 1], "weight_decay": self.options.decay},
            {"params": [p for p in self.weights if p.ndim <= 1], "weight_decay": 0.0},
        ]
        how = {"betas": self.options.betas, "eps": self.options.eps}
        self.optimizer = torch.optim.AdamW(groups, lr=lr, **how, fused=True)  # type: ignore[arg-type]
        # a scale of its own: where the main process trains a teacher alone, the others' must not differ
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.engine.scaler is not None)  # of fp16 alone
        self.step = 0  # how many were taken
        self.ledger = Ledger()
        self.notes: dict[str, list[float]] = {}
        self.done: Callable[[], bool] = lambda: False  # asked before each step and at the end: whether to stop here
        self.watch: Callable[[], None] = lambda: None  # called after each step, off the clock and in float32
        self.saved, self.saved_step, self.pause = time.perf_counter(), 0, self.options.save_every
        self.stop: int | None = None  # the signal that asked for it
        self._loss = self._norm = torch.zeros((), device=self.device)  # of the last batch; of its gradient, unclipped
        self._terms: dict[tuple[str, int], tuple[Tensor, int]] = {}  # by name and part: sum, number of rows
        self._watched: list[tuple[Tensor, int]] = []  # losses that were not looked at yet, and their steps
        self._set_rate()

    # --- begin, and end ---

    def __enter__(self) -> Loop:
        if self.path.exists():
            try:
                self.load()
                print(f"{self.label}: continued at step {self.first_step + self.step}")
            except BadInput as error:
                if not self.options.remake:
                    raise
                print(f"{str(error).split(';')[0]}; this training starts again")
                self.path.unlink(missing_ok=True)
        parallel.copy_main(self.modules.values())
        for module in self.modules.values():
            module.train()
            if self.options.checkpointing and isinstance(module, PreTrainedModel):
                models.checkpoint_activations(module)
        self.handlers = {}
        if signal.getsignal(signal.SIGTERM) is interrupt:  # only under `args.execute`, in the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self.handlers[number] = signal.signal(number, self._defer)
        self.told = time.perf_counter()
        self.bar = parallel.progress(self.steps, self.label, self.step)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.bar.close()
        try:
            if kind is None:
                with self.ledger.clock():  # a GPU's last steps
                    self._look()
                if self.saved_step < self.step:  # whoever stops a run in what follows loses nothing
                    self.save()
        finally:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
        if kind is None:
            if stop := parallel.largest(self.stop or 0):  # while the last step was saved
                raise Interrupted(stop)
            if self.total is not None:
                self.total.add(self.ledger)

    def _defer(self, number: int, _frame: object) -> None:
        if self.stop is None and parallel.main():  # not by `print`, which this may have interrupted
            os.write(2, b"\nstopping after this step, with a checkpoint; once more stops at once\n")
        self.stop = number
        if parallel.processes() == 1:  # a launcher passes on what all have got already
            for each in self.handlers:
                signal.signal(each, signal.SIG_DFL)  # which does not wait for the end of a backward pass

    # --- a step ---

    def __iter__(self) -> Iterator[Batch]:
        while not self.done() and self.step < self.steps:
            with self.ledger.clock():
                at, before = self.first_step + self.step, self.step
                batch, ids = self.batches[at], self.batches.ids(at)
                parts = self._split(batch, ids, self.options.parts, at, self.ledger)
                self._loss, self._terms = torch.zeros((), device=self.device), {}
                losses.TERMS.clear()
                self._sizes = len(ids), int(batch["attention_mask"].sum())
                for part in parts:
                    self.batch = part
                    with self.engine.autocast(), parallel.randomness(at, part.number):
                        yield part
                if self.step == before:
                    raise RuntimeError("a batch went by without `minimise`")
            self._after_step(at)

    def _split(self, batch: dict[str, Tensor], ids: list[str], parts: int, step: int, ledger: Ledger) -> list[Batch]:
        made = split_batch(batch, ids, parts, self.kind, step, ledger, self.device)
        for part in made:
            part.seed = self.seed
            part.inputs |= part.kind.more_inputs(list(self.modules.values()), part.labels)
        return made

    def uncharged(self, rows: dict[str, Tensor]) -> Batch:
        """A batch from outside of the stream, whole, for a look at what the student has learnt."""
        (batch,) = self._split(rows, [""] * len(rows["labels"]), 1, self.step, Ledger())
        return batch

    def minimise(self, loss: Tensor) -> None:
        """Add the gradient of this part's loss, weighed by its share; after the last part, take the step."""
        with torch.autocast(self.device.type, enabled=False):
            loss = self.batch.share * loss
            self.scaler.scale(loss).backward()
        self._loss += loss.detach()
        for name, (total, rows) in losses.TERMS.items():
            self._terms[name, self.batch.number] = self.batch.share * total, rows
        losses.TERMS.clear()
        if not self.batch.last:
            return
        self._watched.append((self._loss, self.batch.step))
        if self.device.type == "cpu" or len(self._watched) >= LOOK_EVERY:
            self._look()
        parallel.sum_gradients(self.weights)
        self.scaler.unscale_(self.optimizer)
        self._norm = clip_grad_norm_(self.weights, self.options.clip)
        self.scaler.step(self.optimizer)  # fp16: a step whose gradient overflowed is left out
        self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1
        self.ledger.steps += 1
        examples, tokens = self._sizes
        self.ledger.student_examples += examples
        self.ledger.student_tokens += tokens
        self._set_rate()

    @property
    def loss(self) -> float:
        """The loss of the last whole batch."""
        return self._loss.item()

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch  # type: ignore[attr-defined]  # of the task's examples

    def due(self, points: int) -> bool:
        """Whether another of so many equal shares of the steps has just ended."""
        return self.step * points // self.steps > (self.step - 1) * points // self.steps

    def _set_rate(self) -> None:
        """The learning rate of the next step: linear warm-up to `lr`, then linear decay to 0."""
        rise = round(self.options.warmup * self.steps)
        rising, falling = self.step / max(1, rise), (self.steps - self.step) / max(1, self.steps - rise)
        self.rate = self.optimizer.param_groups[0]["lr"]  # of the last one
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * (rising if self.step < rise else max(0.0, falling))

    def _after_step(self, at: int) -> None:
        self.watch()
        if self.log is not None and (self.step % LOG_EVERY == 0 or self.step == self.steps):
            with self.ledger.clock():  # a GPU's steps so far, which these wait for
                terms, loss, norm = self._means(), round(self.loss, 6), round(self._norm.item(), 6)
            self.log(step=at + 1, loss=loss, terms=terms, rate=self.rate, norm=norm)
        self.bar.update()
        if self.bar.disable and time.perf_counter() - self.told >= TELL_EVERY and parallel.main():
            self.told = time.perf_counter()
            left = (self.steps - self.step) * self.ledger.seconds / self.step
            tell(f"{self.label}: step {self.step:,} of {self.steps:,}, loss {self.loss:.4f}, rate {self.rate:.2g},"
                 f" {tqdm.format_interval(left)} left")  # fmt: skip
        stop = self.stop
        if parallel.processes() > 1:  # all stop after the same step; on GPUs, which it makes wait, seldom asked
            asks = self.device.type == "cpu" or self.step % LOOK_EVERY == 0
            stop = (parallel.largest(stop or 0) or None) if asks else None
        if stop is not None or time.perf_counter() - self.saved >= self.pause:
            self.save()
        if stop is not None:
            raise Interrupted(stop)

    def _means(self) -> dict[str, float]:
        """Of the parts of the last loss that have a name, the means over everybody's rows."""
        sums, means = dict[tuple[str, int], Any](), dict[str, float]()
        mine = {key: np.array([total.item(), rows]) for key, (total, rows) in self._terms.items()}
        for terms in parallel.of_all(mine):
            sums |= {key: sums.get(key, 0) + both for key, both in terms.items()}
        for (name, _), (total, rows) in sums.items():
            means[name] = means.get(name, 0.0) + total / max(1, rows)
        return {name: round(float(value), 6) for name, value in means.items()}

    def _look(self) -> None:
        """Stop at a loss that is not finite, with its step and the ids of its batch."""
        if self.scaler.get_scale() < 1:  # from 65,536, halved each time
            raise BadInput("--precision fp16: every gradient overflows, and no step is taken; bf16 or fp32 would do")
        watched, self._watched = self._watched, []
        if len(watched) > 1 and torch.stack([loss for loss, _ in watched]).isfinite().all():
            return
        for loss, step in watched:
            if not math.isfinite(value := loss.item()):
                ids = some(self.batches.ids(step))
                begun = step > self.first_step
                hint = "try a lower --lr" if begun else "no step was taken, outputs are not finite"
                raise BadInput(f"the loss is {value} at step {step}, batch {ids}: {hint}")

    # --- checkpoints ---

    def save(self) -> None:
        """One safetensors file, replaced as a whole: weights, optimiser, random state; ledger and notes beside them."""
        with self.ledger.clock():
            self._look()
        started = self.saved = time.perf_counter()
        self.saved_step = self.step
        # of the process so far, so that no step has to look at it
        self.ledger.peak_memory_bytes = max(self.ledger.peak_memory_bytes, peak_memory())
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
        state = {"identity": self.identity, "step": self.step, "ledger": asdict(self.ledger), "notes": self.notes}
        state |= {"digest": weights_digest(tensors), "scaler": self.scaler.state_dict()}
        numbers = [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()]
        state["random"] = {"python": random.getstate(), "numpy": numbers}
        try:
            with replacing(self.path) as partial:
                save_file(tensors, partial, metadata={"state": json.dumps(state)})
        except SafetensorError as error:  # which does not say where
            raise OSError(f"{self.path}: {first_line(error)}") from error
        self.saved = time.perf_counter()
        # to save a large model takes seconds: no more than a fiftieth of the time, up to ten times the pause
        usual = self.options.save_every
        self.pause = min(max(usual, 50 * (self.saved - started)), 10 * usual)

    def load(self) -> None:
        """Continue from the checkpoint; `BadInput` for one that is damaged or of other settings."""
        try:
            with safe_open(self.path, "pt") as file:
                state = json.loads(file.metadata()["state"])
                tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{self.path}: damaged checkpoint ({error}); --force starts again") from error
        if state.get("digest") != weights_digest(tensors):
            raise BadInput(f"{self.path}: damaged checkpoint (its digest does not match); --force starts again")
        if state["identity"] != self.identity:
            raise BadInput(f"{self.path}: belongs to other settings ({state['identity']}); use them, or --force")
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
        if "random" in state:  # checkpoints of older versions have none
            version, words, gauss = state["random"]["python"]
            random.setstate((version, tuple(words), gauss))
            np.random.set_state(tuple(state["random"]["numpy"]))
        self.scaler.load_state_dict(state.get("scaler", {}))
        self.ledger.__dict__.update(state["ledger"])
        self.notes, self.step, self.saved_step = state["notes"], state["step"], state["step"]
        self._set_rate()


def weights_digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


# --- what several runs share ---------------------------------------------------------------------------------
#
# OUT/cache/<kind>/<key>/             a model in the Hugging Face layout, or other files; made.json: how they were made,
#                                     at what cost, their digest
# OUT/cache/<kind>/<key>.training/    while it is made: the checkpoints from which a killed run goes on

NOTE = "made.json"


@dataclass
class Stage:
    """What is shared: where its checkpoints are, and in the end it; what its loops have charged; notes of made.json."""

    args: CommonArgs
    recipe: dict[str, Any]
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    notes: dict[str, Any] = field(default_factory=dict)

    def loop(self, modules: dict[str, nn.Module], batches: Stream, steps: int, lr: float, *, kind: str = "masked LM",
             label: str = "", name: str = "", **options: Any) -> Loop:  # fmt: skip
        """A `Loop` that goes on from its own checkpoint; `name` tells the loops of one stage apart."""
        options = Options.of(self.args, remake=True) | options
        return Loop(modules, batches, steps, lr, self.folder / name, stage_key(self.recipe), kind=kind,
                    label=label or name, total=self.ledger, seed=self.recipe["seed"], **options)  # fmt: skip


def shared(args: CommonArgs, kind: str, recipe: dict[str, Any], tokenizer: Any,
           make: Callable[[Stage], PreTrainedModel]) -> Stage:  # fmt: skip
    """The model that `recipe` describes: read from the cache, or made now by `make` and kept there.

    `recipe["seed"]` seeds torch. Several processes make it together; the main one decides and writes.
    """

    def write(stage: Stage, folder: Path) -> None:
        set_seed(recipe["seed"], deterministic=False)
        models.save(make(stage), tokenizer, folder, f"# {kind} {stage_key(recipe)}\n\nMade as `{NOTE}` says.\n")

    return kept(args, kind, recipe, write)


def kept(args: CommonArgs, kind: str, recipe: dict[str, Any], write: Callable[[Stage, Path], None]) -> Stage:
    """The folder of what `recipe` describes, which `write` fills where it is absent or damaged."""
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / kind / stage_key(recipe)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # two runs at once: the second waits for the first one's model instead of training another
    with _alone(folder) if parallel.main() else contextlib.nullcontext():
        fresh = parallel.on_main(lambda: _absent(folder))
        if fresh:
            partial = folder.with_suffix(f".{os.getpid()}.partial")
            stage = Stage(args, recipe, folder.with_suffix(".training"))
            write(stage, partial)
            parallel.on_main(lambda: _put(partial, folder, stage))
        if parallel.main():
            shutil.rmtree(folder.with_suffix(".training"), ignore_errors=True)
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    ledger = Ledger(**note["ledger"])
    ledger.shared_seconds = 0.0 if fresh else ledger.seconds
    return Stage(args, recipe, folder, ledger, note["notes"])


def training() -> str:
    """What decides what comes out of a training besides its recipe: the version of the code, and a digest of the loop's
    usual options."""
    usual = {name: getattr(Options, name) for name in DECIDE}
    return f"{results.TRAINING_VERSION}-{results.digest(usual)[:6]}"


def stage_key(recipe: dict[str, Any]) -> str:
    """The name of the folder of what is made by `recipe`: 12 hexadecimal digits."""
    return results.digest({"recipe": recipe, "training": training()})[:12]


def _alone(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Wait until no other process makes this folder; keep others waiting meanwhile."""
    lock = FileLock(folder.with_suffix(".lock"), mode=0o666)  # a cache may serve several users
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"{folder}: another process is making it; waiting for its end", flush=True)
        return lock.acquire()


def _absent(folder: Path) -> bool:
    """Whether a folder has to be made; what is left of a damaged or unfinished one is removed."""
    if (folder / NOTE).exists():
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
            if note.pop("note_digest") == results.digest(note)[:12] and note["digest"] == models.file_digest(folder):
                return False
        print(f"{folder}: damaged in the cache; it is made again")
    for old in (folder, *folder.parent.glob(f"{folder.name}.*.partial")):  # a kill may have left some
        shutil.rmtree(old, ignore_errors=True)
    return True


def _put(partial: Path, folder: Path, stage: Stage) -> None:
    """Give a folder that was written its note and its place."""
    note: dict[str, Any] = {"recipe": stage.recipe, "ledger": asdict(stage.ledger), "notes": stage.notes}
    note["digest"] = models.file_digest(partial)
    write_json(partial / NOTE, note | {"note_digest": results.digest(note)[:12]})
    partial.rename(folder)
