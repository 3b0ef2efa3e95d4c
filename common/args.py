"""The command line that all scripts share: a dataclass becomes `--help`, parsing and checks.

A script subclasses `CommonArgs`, adds one field per knob of its method, and calls `parse` before it imports
torch: `--help` and wrong arguments are answered at once. Every mistake ends as one line and exit code 2.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
import traceback
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

# --- errors ---


def speaks() -> bool:
    """Whether this process speaks for its group, as the launcher says: the first, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def first_line(error: BaseException) -> str:
    """What an error says, for a line of ours: its first line, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class BadInput(Exception):
    """Wrong input from the user: the message names the argument or the file, what is wrong, and what is right."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; a training loop has written its checkpoint before this reaches `run`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


# Training examples that pass through the student, summed over every stage of a method.
BUDGETS = {"smoke": 640, "quick": 25_600, "standard": 256_000}


def arg(default: Any, help: str) -> Any:
    """A dataclass field with its one-line `--help` text."""
    return field(default=default, metadata={"help": help})


@dataclass
class CommonArgs:
    """The arguments that mean the same in every script."""

    KINDS: ClassVar[tuple[str, ...] | None] = None  # of tasks that the script can do; None for all

    variant: str = arg("finetune,kd", "what to train, several with commas; finetune is the undistilled student")
    task: str = arg("pocket/sst2", "task, or several with commas: pocket/NAME (embedded), or NAME (hub, or --data-dir)")
    teacher: str = arg(
        "pocket", "pocket, pocket-6, pocket-12 (embedded), a hub id, or a folder with config.json, model.safetensors"
    )
    student: str = arg("2x128", "student's layers x width")
    budget: str = arg(
        "quick",
        f"examples through the student: {', '.join(f'{k} ({v:,})' for k, v in BUDGETS.items())}, "
        "paper (its epochs; not comparable), a number, or seconds as 600s",
    )
    seed: int = arg(0, "seed of the student's initialisation, the data order and dropout")
    batch_size: int = arg(32, "examples per optimiser step")
    lr: float | None = arg(
        None, "the student's peak learning rate (default: 5e-5 x 768 / width; from random weights 1e-3, a GPT-2 3e-3)"
    )
    lr_plan: str | None = arg(
        None,
        "changes of that rate, SHARE:FACTOR,...: from a share of the training on the task on, so many times --lr, as"
        " population-based training finds them",
    )
    until: float | None = arg(
        None,
        "with --tune, stop after this share of the training on the task, and score what there is; --resume goes on,"
        " from there with another --lr-plan",
    )
    max_length: int = arg(128, "tokens kept of an example; language modelling: of a block and of a window")
    limit: int | None = arg(
        None, "use only so many training examples or documents (a seeded choice, named in the result)"
    )
    data_dir: str | None = arg(
        None, "folder with local data: GLUE's TSV layout, CSV/JSONL/Parquet, text files, or save_to_disk"
    )
    teacher_epochs: float = arg(
        3.0, "epochs of fine-tuning for a teacher without the task's head, and for every language model; 0: as it is"
    )
    tune: bool = arg(False, "report on data that may be tuned on: dev of pocket tasks, a tenth held out of real ones")
    teacher_precision: Literal["fp32", "bf16", "fp16"] = arg(
        "fp32", "weights and arithmetic of the teacher while it teaches; its outputs are float32"
    )
    teacher_device_map: Literal["off", "auto"] = arg(
        "off", "auto: a fine-tuned teacher is spread over all GPUs and the main memory, if it is larger than one GPU"
    )
    teacher_lr: float | None = arg(None, "peak learning rate of that fine-tuning (default: 5e-5 x 768 / width)")
    out_dir: str = arg("runs", "where results go: OUT/<method>/<task>/<variant>/seed<N>/")
    cache_dir: str | None = arg(None, "where fine-tuned teachers are kept (default: OUT/cache)")
    teacher_cache: Literal["auto", "off", "fp32", "fp16"] = arg(
        "auto",
        "keep the teacher's outputs on the training examples in the cache, as fp32 or fp16; auto: fp32, where the"
        " budget has more examples than the task",
    )
    batches: Literal["auto", "shuffled", "by-length"] = arg(
        "auto",
        "what meets in a batch: any examples, or those of like length, with little padding; auto: shuffled for pocket"
        " tasks, whose texts differ less in length",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = arg("auto", "where to compute")
    precision: Literal["fp32", "bf16", "fp16"] = arg("fp32", "arithmetic of forward passes; weights stay float32")
    accumulate: int = arg(1, "process a step's batch in so many parts, for less memory; their gradients are summed")
    gradient_checkpointing: bool = arg(
        False, "compute the student's activations again in the backward pass: less memory, a third more time"
    )
    save_every: float = arg(30.0, "seconds between checkpoints, from which --resume continues")
    resume: bool = arg(False, "continue unfinished runs from their checkpoints")
    force: bool = arg(False, "run again and replace results that exist")
    compile: bool = arg(False, "compile teacher and student with torch.compile")
    debug: bool = arg(False, "print the traceback of an error")

    def check(self) -> None:
        """Raise `BadInput` for values that no run could use. Subclasses extend it; torch is not needed here."""
        self.check_student()
        for name in ("batch_size", "max_length", "limit", "accumulate"):
            self.check_value(name, lambda v: v >= 1, "be 1 or more")
        self.check_value("batch_size", lambda v: v <= 2**16, f"be at most {2**16}")
        counted, amount = parse_budget(self.budget)
        if counted == "examples" and amount < self.batch_size:
            raise BadInput(
                f"--budget {self.budget}: pays for no step of --batch-size {self.batch_size}; give {self.batch_size} or"
                " more"
            )
        for name in ("lr", "teacher_lr"):
            self.check_value(name, lambda v: 0 < v < math.inf, "be a number above 0")
        self.check_value("until", lambda v: 0 < v < 1, "be between 0 and 1, both excluded")
        if self.until is not None and not self.tune:
            raise BadInput(f"--until {self.until}: looks at a score before the end; give --tune, data to be tuned on")
        if (self.plan or self.until is not None) and counted == "seconds":
            raise BadInput(f"--budget {self.budget}: --lr-plan and --until count steps; give a budget of examples")
        self.check_value("teacher_epochs", lambda v: 0 <= v < math.inf, "be 0 (the teacher as it is) or more")
        self.check_value("teacher_epochs", lambda v: v <= 10_000, "be at most 10,000")
        self.check_value("save_every", lambda v: 0 <= v < math.inf, "be 0 seconds (every step) or more")
        self.check_value("seed", lambda v: 0 <= v < 2**32, f"be between 0 and {2**32 - 1}")
        self.check_value("max_length", lambda v: v >= 4, "leave room for text, 4 or more")
        if not self.teacher:
            raise BadInput("--teacher '': names no model; give pocket, a folder or a hub id")
        for name in ("data_dir", "out_dir", "cache_dir"):
            if getattr(self, name) == "":
                raise BadInput(f"--{dashed(name)} '': names no folder; leave it out, or give one")
        for name in ("out_dir", "cache_dir"):
            check_place(f"--{dashed(name)}", getattr(self, name))
        if self.resume and self.force:
            raise BadInput("--resume and --force contradict each other: continue, or start again")
        if not self.tasks:
            raise BadInput(f"--task {self.task!r}: names no task; for example --task pocket/sst2")
        from common import data

        for task in self.tasks:
            kind = data.check_name(task, self.data_dir).kind
            if self.KINDS is not None and kind not in self.KINDS:
                raise BadInput(f"--task {task}: is {kind}; this method does {', '.join(self.KINDS)}")

    def check_value(self, name: str, valid: Callable[[Any], bool], must: str) -> None:
        """Raise `BadInput` if the argument `name` has a value (not None) that is not valid; `must` says what is."""
        value = getattr(self, name)
        if value is not None and not valid(value):
            raise BadInput(f"--{dashed(name)} {value}: must {must}")

    def check_names(self, name: str, allowed: Collection[str]) -> None:
        """Raise `BadInput` unless the argument `name` is one or several, with commas, of the allowed names."""
        names = split_list(getattr(self, name))
        if not names:
            raise BadInput(f"--{dashed(name)} {getattr(self, name)!r}: names none of {', '.join(allowed)}")
        for wrong in (found for found in names if found not in allowed):
            raise BadInput(f"--{dashed(name)} {wrong!r}: must be one or several of {', '.join(allowed)}")

    def check_student(self) -> None:
        """Raise `BadInput` for a `--student` that cannot be built. Students without layers override it."""
        student_shape(self.student)

    def check_one_training(self, what: str) -> None:
        """Raise `BadInput` for arguments that are about the one training on the task, where `what` has several."""
        for name in ("lr_plan", "until"):
            self.check_value(name, lambda v: False, f"be left out, {what} trains on the task more than once")

    @property
    def plan(self) -> list[tuple[float, float]]:
        """`--lr-plan` as (share, factor), from the beginning to the end; `BadInput` unless it is one."""
        try:
            found = [tuple(map(float, part.split(":"))) for part in split_list(self.lr_plan or "")]
            pairs = [(share, factor) for share, factor in found]
        except ValueError:
            pairs = []
        shares = [share for share, _ in pairs]
        right = shares == sorted(set(shares)) and all(0 < s < 1 and 0 < f < math.inf for s, f in pairs)
        if self.lr_plan is not None and (not pairs or not right):
            raise BadInput(
                f"--lr-plan {self.lr_plan!r}: must be SHARE:FACTOR with commas, rising shares between 0 and 1, for"
                " example 0.5:0.8,0.75:1.2"
            )
        return pairs

    @property
    def tasks(self) -> list[str]:
        return split_list(self.task)

    @property
    def variants(self) -> list[str]:
        return split_list(self.variant)


def check_place(argument: str, place: str | None, file: bool = False) -> None:
    """Raise `BadInput` unless a folder (`file`: a file in one) can be made, or written to, at `place`."""
    if place is not None:
        path = Path(place).absolute()
        there = next(path for path in (*([] if file else [path]), *path.parents) if os.path.exists(path))
        if not there.is_dir():
            raise BadInput(f"{argument} {place}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise BadInput(f"{argument} {place}: {there} cannot be written to; give a folder that can")


def split_list(text: str) -> list[str]:
    """Comma-separated names, without blanks and repetitions, in order."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def dashed(name: str) -> str:
    return name.replace("_", "-")


def student_shape(text: str, argument: str = "--student") -> tuple[int, int]:
    """`"3x128"` -> (3 layers, width 128)."""
    match = re.fullmatch(r"(\d{1,3})x(\d{1,5})", text)
    if not match or int(match[1]) < 1 or int(match[2]) < 1:
        raise BadInput(f"{argument} {text!r}: must be LAYERSxWIDTH, for example 3x128")
    layers, width = int(match[1]), int(match[2])
    if width % 8:
        raise BadInput(
            f"{argument} {text}: the width must be a multiple of 8, for example {layers}x{max(8, width // 8 * 8)}"
        )
    return layers, width


def parse_budget(text: str) -> tuple[Literal["examples", "seconds", "paper"], int]:
    """`"quick"` -> ("examples", 25600), `"5000"` -> ("examples", 5000), `"600s"` -> ("seconds", 600)."""
    if text in BUDGETS:
        return "examples", BUDGETS[text]
    if text == "paper":
        return "paper", 0
    match = re.fullmatch(r"(\d{1,15})(s?)", text)
    if not match or int(match[1]) < 1:
        names = ", ".join(BUDGETS)
        raise BadInput(f"--budget {text!r}: must be {names}, paper, a number of examples, or seconds as 600s")
    return ("seconds" if match[2] else "examples"), int(match[1])


T = TypeVar("T", bound=CommonArgs)


def read(cls: type[T], doc: str | None, argv: list[str]) -> T:
    """Parse and check a command line; a mistake is a `BadInput`."""
    # The library's parser imports neither torch nor the models; its start-up is a good second.
    from transformers import HfArgumentParser

    class Formatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
        def _format_action_invocation(self, action: Any) -> str:
            # the library registers --data_dir beside --data-dir; one spelling is enough to read
            action.option_strings = [o for o in action.option_strings if "_" not in o] or action.option_strings
            return super()._format_action_invocation(action)

    class Parser(HfArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise BadInput(message.removeprefix("argument ").replace("\n", " "))

    parser = Parser([cls], description=doc, formatter_class=Formatter, allow_abbrev=False)  # type: ignore[list-item]
    args, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True, look_for_args_file=False)
    if unknown:
        raise BadInput(f"{unknown[0]}: no such argument; --help lists them")
    args.check()
    return args


def parse(cls: type[T], doc: str | None, argv: list[str] | None = None) -> T:
    """`read`, but on a mistake print one line and exit with 2."""
    if argv is None:  # a script: stopped before it has begun, it ends in an orderly way too
        argv = sys.argv[1:]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, leave)
    try:
        return read(cls, doc, argv)
    except BadInput as error:
        fail(error, "--debug" in argv)


def fail(error: BaseException, debug: bool = False, line: str = "") -> NoReturn:
    """One line on stderr, exit code 2 (and the traceback first, with `--debug`)."""
    if debug:
        traceback.print_exception(error)
    if not speaks():  # for those that fail as the first one does, which the launcher then ends, its line is enough
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(10)
    print(f"error: {' '.join((line or str(error)).split())}", file=sys.stderr)
    raise SystemExit(2)


def of_the_machine(error: Exception) -> str | None:
    """The line for an error that is neither the user's nor ours: the disk's or the memory's. None for any other."""
    from safetensors import SafetensorError

    text = first_line(error)
    if isinstance(error, (OSError, SafetensorError)):
        return f"{text}; what was finished is kept, the same command with --resume goes on"
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text:
        return f"out of memory ({text}); a smaller --batch-size, --max-length or --student needs less"
    return None


def run(main: Callable[[T], None], args: T) -> None:
    """Run a script's `main`: mistakes, a full disk and too little memory become one line and exit code 2, Ctrl-C 130
    and SIGTERM 143."""

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        main(args)
    except BadInput as error:
        fail(error, args.debug)
    except Exception as error:
        if (line := of_the_machine(error)) is None:
            raise
        fail(error, args.debug, line)
    except Interrupted as stop:
        if speaks():
            name = signal.Signals(stop.number).name
            print(f"\nstopped by {name}; the same command with --resume goes on", file=sys.stderr)
        raise SystemExit(128 + stop.number) from None


def interrupt(number: int, _frame: object) -> NoReturn:
    raise Interrupted(number)


def leave(number: int, _frame: object) -> NoReturn:
    print(f"\nstopped by {signal.Signals(number).name}; nothing had begun", file=sys.stderr)
    raise SystemExit(128 + number)


def as_dict(args: CommonArgs) -> dict[str, Any]:
    return {f.name: getattr(args, f.name) for f in fields(args)}
