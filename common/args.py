"""The command line that all scripts share: a dataclass becomes `--help`, parsing and checks.

A script subclasses `CommonArgs`, adds one field for each knob of its method, and calls `parse` before it imports torch:
`--help` and wrong arguments are answered at once. Every mistake ends as one line and exit code 2.
"""

from __future__ import annotations

import math
import operator
import os
import re
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from common.errors import BadInput, Interrupted, first_line, interrupt, speaks
from common.kinds import OWN, Kind
from common.tasks import Columns, check_task
from common.values import (
    BUDGETS,
    KEEP,
    check_place,
    layer_list,
    parse_budget,
    parse_model,
    split_list,
    split_paths,
    student_shape,
)

# --- declaring arguments -------------------------------------------------------------------------------------


def arg(default: Any, help: str, *, low: float | None = None, high: float | None = None, above: float | None = None,
        below: float | None = None, names: Collection[str] | None = None, shape: bool = False,
        setting: bool = True) -> Any:  # fmt: skip
    """A field with its one-line `--help` text, and its rules.

    A number must be at least `low`, at most `high`, more than `above` and less than `below`; a text must be one or
    several of `names`, with commas, or with `shape` LAYERSxWIDTH. `setting`: whether it decides what comes out, and is
    part of a result's settings; otherwise it says where or how to run.
    """
    rules = {"help": help, "low": low, "high": high, "above": above, "below": below, "names": names, "shape": shape,
             "setting": setting}  # fmt: skip
    return field(default=default, metadata=rules)


def variants(default: str, names: Collection[str]) -> Any:
    """`--variant` of a script with these rows."""
    return arg(default, f"one or several of {', '.join(names)}", names=names, setting=False)


ENDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "low": ("{:,} or more", operator.ge),
    "above": ("above {:,}", operator.gt),
    "high": ("{:,} or less", operator.le),
    "below": ("below {:,}", operator.lt),
}


def check_field(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    """Raise `BadInput` for a value that breaks the rules of its declaration; None is no value."""
    argument = f"--{name.replace('_', '-')}"
    if isinstance(value, str) and rules["names"]:
        for part in split_list(value) or [""]:
            if part not in rules["names"]:
                raise BadInput(f"{argument} {part!r}: must be one or several of {', '.join(rules['names'])}")
    if value is not None and rules["shape"]:
        student_shape(value, argument)
    if value is None or isinstance(value, (str, bool)):
        return
    if not math.isfinite(value):
        raise BadInput(f"{argument} {value}: must be finite")
    ends = {end: rules[end] for end in ENDS if rules[end] is not None}
    if not all(ENDS[end][1](value, limit) for end, limit in ends.items()):
        wants = [ENDS[end][0].format(limit) for end, limit in ends.items()]
        raise BadInput(f"{argument} {value}: must be {' and '.join(wants)}")


# What --corpus takes, for its help
CORPUS = (
    "FILE.txt with a passage a line, FILE.jsonl with a text a line, or either as .gz; hub:REPO[:CONFIG]; task (its"
    " training texts), pocket-short, pocket-long (built in); several with commas are mixed"
)


@dataclass
class CommonArgs:
    """The arguments that mean the same in every script."""

    def __init_subclass__(cls) -> None:
        """A script may give one of these another default, `task: str = "pocket/rte"`; the rest of it stays."""
        for declared in fields(CommonArgs):
            default = vars(cls).get(declared.name, field())
            if not isinstance(default, Field):
                setattr(cls, declared.name, field(default=default, metadata=declared.metadata))

    KINDS: ClassVar[tuple[str, ...] | None] = None  # of tasks that the script can do; None for all
    OUTPUTS_ALONE: ClassVar[tuple[str, ...]] = ("finetune", "kd")  # variants that need no hidden state of the teacher
    VARIANTS: ClassVar[dict[str, Any]] = {}  # name -> a NamedTuple; arguments of its fields' names replace its values
    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}  # the paper's search space, with BERT-base's learning rates
    # What settings say in the place of arguments that there were: results of then are found again
    FORMER: ClassVar[dict[str, Any]] = {"compile": False, "teacher_lr": None}

    variant: str = arg("finetune,kd", "what to train, several with commas; finetune: the undistilled student",
                       setting=False)  # fmt: skip
    task: str = arg(
        "pocket/cola",
        "task, or several with commas: pocket/NAME (embedded), NAME (hub, or --data-dir), or data of your own: FILE,"
        " FOLDER, hub:REPO[@REVISION][:CONFIG]",
        setting=False,
    )
    text: str | None = arg(None, "your own data: the column of the texts, or A,B of pairs (default: text, sentence)",
                           setting=False)  # fmt: skip
    label: str | None = arg(None, "your own data: the column of the labels (default: label)", setting=False)
    kind: str | None = arg(None, f"your own data: {', '.join(OWN)} (default: tags or spans by layout, else classes)",
                           names=OWN, setting=False)  # fmt: skip
    metric: str | None = arg(None, "your own data: the primary metric, for example macro_f1 (default: the kind's)",
                             setting=False)  # fmt: skip
    teacher: str = arg(
        "pocket",
        "pocket, pocket-6, pocket-12 (embedded; docs/pocket.md lists the tasks for which they are shipped fine-tuned,"
        " with the default --max-length and --precision and without --limit; otherwise they are fine-tuned first), a"
        " hub id, or a folder with config.json, model.safetensors; NAME:6: its first 6 layers, fine-tuned; with"
        " --teacher-outputs: the checkpoint whose tokens and family students have",
    )
    label_map: str | None = arg(
        None, "of a teacher whose outputs are called LABEL_0, ...: the class of each, as 0=negative,1=positive",
        setting=False,
    )  # fmt: skip
    teacher_outputs: str | None = arg(
        None, "in the teacher's place its probabilities or logits of each text, in CSV, JSON lines or Parquet",
        setting=False,
    )  # fmt: skip
    student: str = arg("2x128", "student's layers x width")
    init: str = arg(
        "auto",
        "first weights: pretrained (the teacher's layers before it was fine-tuned), teacher (of the fine-tuned one),"
        " random, or a folder or hub id; auto: where the widths agree pretrained, or teacher if it came fine-tuned,"
        " else random",
    )
    keep: str = arg(
        "first", "which layers the first weights are of: first, skip (12 to 6: 2, 4, ..., 12), spread, top, or 2,4,..."
    )
    alpha: float = arg(
        0.9, "KD: weight of the teacher's soft labels; 1 - alpha is that of the true ones", low=0, high=1
    )
    temperature: float | None = arg(None, "KD: softens both sides' logits (default: 2; of tags 1)", above=0, high=1000)
    budget: str = arg(
        "6400",
        f"examples through the student: {', '.join(f'{k} ({v:,})' for k, v in BUDGETS.items())}, "
        "a number, or paper (its epochs; not comparable)",
    )
    seed: int = arg(0, "seed of the student's first weights, the data order and dropout", low=0, below=2**32)
    batch_size: int = arg(32, "examples per optimiser step", low=1, high=2**16)
    lr: float | None = arg(
        None,
        "the student's peak learning rate (default: 5e-5 x 768 / width, of classes and scores 1e-3 x (128 / width)^2,"
        " at most 2e-3; from random weights 1e-3, up to width 64 2e-3, of texts 4e-3, a GPT-2 3e-3; xtc: twice that)",
        above=0,
    )
    warmup: float | None = arg(
        None, "share of the steps over which the learning rate rises (default: 0.1; cmow: 0)", low=0, below=1
    )
    max_length: int = arg(128, "tokens kept of an example; language modelling: of a block and of a window", low=4)
    limit: int | None = arg(
        None, "use only so many training examples or documents (a seeded choice, named in the result)", low=1
    )
    data_dir: str | None = arg(
        None, "folder with local data: GLUE's TSV layout, CSV/JSONL/Parquet, text files, or save_to_disk", setting=False
    )
    teacher_epochs: float = arg(
        3.0, "epochs of fine-tuning for a teacher without the task's head, and for every language model; 0: as it is",
        low=0, high=10_000,
    )  # fmt: skip
    tune: bool = arg(False, "report on data that may be tuned on: dev beside a test split, else a tenth of train")
    teacher_precision: Literal["fp32", "bf16", "fp16"] = arg(
        "fp32", "weights and arithmetic of the teacher while it teaches; its outputs are float32"
    )
    out_dir: str = arg("runs", "where results go: OUT/<method>/<task>/<variant>/<settings>/seed<N>/", setting=False)
    cache_dir: str | None = arg(None, "where fine-tuned teachers are kept (default: OUT/cache)", setting=False)
    teacher_cache: Literal["auto", "off", "on"] = arg(
        "auto",
        "keep the teacher's outputs on the training examples in the cache; auto: where the budget has more examples"
        " than the task",
        setting=False,
    )
    batches: Literal["auto", "shuffled", "by-length"] = arg(
        "auto",
        "what meets in a batch: any examples, or those of like length, with little padding; auto: shuffled for pocket"
        " tasks, whose texts differ less in length",
        setting=False,
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = arg("auto", "where to compute", setting=False)
    precision: Literal["fp32", "bf16", "fp16"] = arg("fp32", "arithmetic of forward passes; weights stay float32")
    accumulate: int = arg(
        1, "process a step's batch in so many parts, for less memory; their gradients are summed", low=1
    )
    gradient_checkpointing: bool = arg(
        False, "compute the student's activations again in the backward pass: less memory, a third more time",
        setting=False,
    )  # fmt: skip
    save_student: bool = arg(
        True, "write the student beside its result; without, a result and its predictions are all that is left",
        setting=False,
    )  # fmt: skip
    force: bool = arg(
        False, "start again, as after a change of a method's code: without, results stay and unfinished runs go on",
        setting=False,
    )  # fmt: skip

    def check(self) -> None:
        """Raise `BadInput` for values that no run could use. Scripts add what concerns two arguments; no torch here."""
        for declared in fields(self):
            check_field(declared.name, getattr(self, declared.name), declared.metadata)
        self.check_student()
        counted, amount = parse_budget(self.budget)
        if counted == "examples" and amount < self.batch_size:
            raise BadInput(f"--budget {self.budget}: pays for no step of --batch-size {self.batch_size}; give more")
        for name in ("teacher", "init", "data_dir", "out_dir", "cache_dir"):
            if (given := getattr(self, name)) is not None and not split_list(given):
                raise BadInput(f"--{name.replace('_', '-')} {given!r}: names nothing; leave it out, or give one")
        for name in ("out_dir", "cache_dir"):
            check_place(f"--{name.replace('_', '-')}", getattr(self, name))
        if (file := self.teacher_outputs) is not None:
            if not Path(file).is_file():
                raise BadInput(f"--teacher-outputs {file}: no such file")
            if layered := [name for name in self.variants if name not in self.OUTPUTS_ALONE]:
                instead = f"--variant {','.join(self.OUTPUTS_ALONE)}" if self.OUTPUTS_ALONE else "another script's kd"
                raise BadInput(f"--teacher-outputs {file}: {layered[0]} reads the teacher's layers, and has class"
                               f" probabilities alone here; {instead} works")  # fmt: skip
        if len(split_paths(self.teacher)) > 1:
            raise BadInput(f"--teacher {self.teacher}: names several; a file with the mean of their probabilities"
                           " teaches as --teacher-outputs FILE")  # fmt: skip
        for name, given in [("teacher", self.teacher), *(("init", part) for part in split_paths(self.init))]:
            place, _ = parse_model(given)
            if (place.startswith((".", "/", "~")) or place.count("/") > 1) and not Path(place).is_dir():
                raise BadInput(f"--{name} {place}: no such folder; give one written by save_pretrained, or a hub id")
        if not self.tasks:
            raise BadInput(f"--task {self.task!r}: names no task; for example --task pocket/sst2")
        for name in ("corpus", "convert_corpus"):  # of scripts that distil on text before the task
            if (given := getattr(self, name, None)) is not None:
                from common import corpus

                corpus.corpora(given)
        for task in self.tasks:
            kind = self.kind_of(task)
            if not kind.among(self.KINDS):
                raise BadInput(f"--task {task}: is {kind}; this method does {', '.join(self.KINDS or ())}")
        for line in self.wrong():
            raise BadInput(line)

    def wrong(self) -> Iterator[str]:
        """A line for each thing that no run of the script could use; the first one is shown."""
        yield from ()

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that `--init` names, if it names one."""
        return None if self.init in ("auto", "random", "pretrained", "teacher") else self.init

    def check_student(self) -> None:
        """Raise `BadInput` for a `--student` that cannot be built. Students without layers override it."""
        layers, _ = student_shape(self.student)
        if self.keep not in KEEP and (count := len(layer_list(self.keep))) not in (layers, layers // 2):
            raise BadInput(f"--keep {self.keep}: names {count} layers, --student {self.student} has {layers}")

    @property
    def source(self) -> dict[str, Any]:
        """Where the data are and how much of them is used, as `data.load` takes it."""
        columns = Columns.of(vars(self))
        return {"data_dir": self.data_dir, "limit": self.limit, "tune": self.tune, "columns": columns}

    def kind_of(self, task: str) -> Kind:
        """The kind of one of the tasks; `BadInput` for one that there is not."""
        return check_task(task, self.data_dir, self.source["columns"]).kind

    @property
    def tasks(self) -> list[str]:
        return split_paths(self.task)

    @property
    def variants(self) -> list[str]:
        return split_list(self.variant)

    def settings(self) -> dict[str, Any]:
        """The arguments that decide what comes out, by name."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata["setting"]}
        return given | self.FORMER

    def row(self, name: str) -> Any:
        """A variant, with what the arguments replace in it."""
        row = self.VARIANTS[name]
        given = {key: getattr(self, key, None) for key in row._fields}
        return row._replace(**{key: value for key, value in given.items() if value is not None})

    def grid(self, variant: str) -> dict[str, tuple[Any, ...]]:
        """The search space of a variant, {argument: values}; learning rates scale with 768 / width."""
        space = {name: values for name, values in self.GRID.items() if name not in self.unused(variant)}
        width = self.width()
        return space | {"lr": tuple(lr * 768 / width for lr in space["lr"])}

    def width(self) -> int:
        """The student's width."""
        return student_shape(self.student)[1]

    def unused(self, variant: str) -> set[str]:
        """The arguments of the search space that a variant does not use."""
        return set()

    def versions(self, variant: str) -> dict[str, Any]:
        """The settings that tell a variant's runs from those of an earlier version of its own loss."""
        return {}


# --- parsing, and running a script ---------------------------------------------------------------------------

T = TypeVar("T", bound=CommonArgs)


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(message.removeprefix("argument ").replace("\n", " "))


def truth(text: str) -> bool:
    """The value of `--save-student false`."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise ArgumentTypeError(f"{text!r} is neither true nor false")
    return words[text.lower()]


def read(cls: type[T], doc: str | None, argv: list[str]) -> T:
    """Parse and check a command line; a mistake is a `BadInput`."""
    parser = Parser(description=doc, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False)
    hints = get_type_hints(cls)
    shared = {declared.name for declared in fields(CommonArgs)} - {"variant"}
    for declared in sorted(fields(cls), key=lambda declared: declared.name in shared):  # the method's own come first
        hint = hints[declared.name]
        text = declared.metadata["help"]
        if type(None) in get_args(hint):
            hint = get_args(hint)[0]
        how: dict[str, Any] = {"type": hint}
        if hint is bool:
            how = {"type": truth, "nargs": "?", "const": True}
        elif get_origin(hint) is Literal:
            how = {"choices": get_args(hint)}
        if declared.default is not None:  # what None stands for, the help says in words
            text += " (default: %(default)s)"
        parser.add_argument(f"--{declared.name.replace('_', '-')}", default=declared.default, help=text, **how)
    argv = [re.sub("^--[^=]+", lambda option: option[0].replace("_", "-"), word) for word in argv]  # --data_dir, too
    found, unknown = parser.parse_known_args(argv)
    if unknown:
        raise BadInput(f"{unknown[0]}: no such argument; --help lists them")
    # shells leave the "~" of `--out-dir=~/runs` as it is, and files of a matrix have no shell
    home = {name: os.path.expanduser(value) for name, value in vars(found).items() if str(value).startswith("~/")}
    args = cls(**vars(found) | home)
    args.check()
    return args


def parse(cls: type[T], doc: str | None, argv: list[str] | None = None) -> T:
    """`read`, but on a mistake print one line and exit with 2."""
    # Threads that wait for work soon sleep: spinning ones slow down two runs on one machine many times. Threads that
    # sleep at once slow down a run alone, since a small model's pauses are short.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if argv is None:  # a script: stopped before it has begun, it ends in an orderly way too
        argv = sys.argv[1:]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, leave)
    try:
        return read(cls, doc, argv)
    except (BadInput, OSError) as error:  # the latter of a place that cannot be looked at; it names it
        fail(error)


def fail(error: BaseException, line: str = "") -> NoReturn:
    """One line on stderr, exit code 2."""
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
        return f"{text}; what was finished is kept, the same command goes on"
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text:
        return f"out of memory ({text}); a smaller --batch-size, --max-length or --student needs less"
    return None


def execute(main: Callable[[T], None], args: T) -> None:
    """Start device and processes, and run a script's `main`: mistakes, a full disk and too little memory become one
    line and exit code 2, Ctrl-C 130 and SIGTERM 143."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        from common import parallel

        parallel.start(args.device, args.precision)
        main(args)
    except BadInput as error:
        fail(error)
    except Exception as error:
        if (line := of_the_machine(error)) is None:
            raise
        fail(error, line)
    except Interrupted as stop:
        if speaks():
            name = signal.Signals(stop.number).name
            print(f"\nstopped by {name}; the same command goes on", file=sys.stderr)
        raise SystemExit(128 + stop.number) from None


def leave(number: int, _frame: object) -> NoReturn:
    print(f"\nstopped by {signal.Signals(number).name}; nothing had begun", file=sys.stderr)
    raise SystemExit(128 + number)
