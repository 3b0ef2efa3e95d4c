"""Results: one JSON record per run, written last and atomically; tables made from these records only.

    OUT/<method>/<task>/<variant>/<student>-<teacher>-<six digits>/seed<N>/
        result.json  predictions.safetensors  args.json  log.jsonl  model.safetensors  README.md ...

The six digits stand for all settings but the seed: seeds of one row lie together, other settings elsewhere.
`comparable` names everything that two numbers must share to stand in one table; `signature` adds what makes
this run its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from common.errors import BadInput, refused

SCHEMA_VERSION = 2
# Of the code that trains. Whoever changes what comes out of a training counts it up: then nothing that was trained
# before is used again, whether a stage, a teacher or a run. tests/test_keys.py says which sources belong to it.
TRAINING_VERSION = 1
ROOT = Path(__file__).resolve().parents[1]  # of the code
HOME = ROOT if __package__ == "common" else Path.cwd()  # where relative paths begin; of an installed package, here
LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "scikit-learn", "scipy")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of `path` at the end of this context; an error leaves all as it was.
    Its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        apply_umask(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # of a disk that is full


def apply_umask(path: Path) -> None:
    """Give a file the rights that the umask leaves to others; safetensors writes for its owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def write_json(path: Path, value: Any) -> None:
    """Write atomically: a reader sees the old file or the whole new one. NaN and infinities are a ValueError."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


# --- one record ----------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Result:
    """One run, as `result.json` holds it. Metrics are fractions, a perplexity is as it is; seconds are wall-clock,
    bytes bytes."""

    schema: int  # SCHEMA_VERSION; 1: before predictions were kept
    method: str
    variant: str
    task: str
    source: str  # pocket, hub or local
    origin: str  # the data's version, the hub's id and revision, or file names
    fingerprint: str  # of the loaded data
    seed: int
    budget: Budget
    metrics: dict[str, dict[str, float]]  # by split
    primary: Primary
    agreement: dict[str, float] | None = None  # with the teacher, by split; empty for tags, spans and texts
    log_loss: dict[str, float] | None = None  # of the labels, by split, in nats; of scores the squared error
    teacher: Guide
    student: Student
    ledger: Spent
    analysis: dict[str, Any]  # what the method measures of its own
    settings: dict[str, Any]  # every resolved argument that can change the result
    environment: Environment
    command: str
    finished: str  # UTC, ISO 8601
    comparable: str
    signature: str


@dataclass(kw_only=True)
class Budget:
    name: str
    kind: str  # examples or paper; in older results seconds, too
    amount: int
    comparable: bool  # False for the paper's own epochs


@dataclass(kw_only=True)
class Primary:
    name: str
    value: float  # mean over the reported splits


@dataclass(kw_only=True)
class Guide:
    name: str
    signature: str
    parameters: int  # 0 of outputs in a file, as are bytes and speed
    bytes: int
    speed: float  # inference, examples per second, on the reported splits
    metrics: dict[str, dict[str, float]]
    analysis: dict[str, Any]


@dataclass(kw_only=True)
class Student:
    shape: str
    init: str  # random, or what the first layers were copied from
    parameters: int
    bytes: int  # of the weight files, as written
    speed: float


@dataclass(kw_only=True)
class Spent:
    """`train.Ledger`."""

    steps: int
    student_examples: int
    student_tokens: int
    teacher_examples: int
    seconds: float
    peak_memory_bytes: int
    shared_seconds: float = 0.0  # of the seconds, those of an earlier run, whose work was read from the cache


@dataclass(kw_only=True)
class Environment:
    versions: dict[str, str]
    hardware: dict[str, Any]
    git: dict[str, Any]


def wrong_keys(record: Any, declared: type = Result, where: str = "result") -> str | None:
    """What a record has that is not declared, or lacks, or has as no object: the first of it in words, or None."""
    known: dict[str, Any] = {one.name: one for one in fields(declared)}
    if not isinstance(record, dict):
        return f"{where} is no object"
    if unknown := [name for name in record if name not in known]:
        return f"{where} has an unknown {unknown[0][:40]!r}"
    if lacking := [name for name, one in known.items() if one.default is MISSING and name not in record]:
        return f"{where} lacks {lacking[0]!r}"
    parts = ((name, globals().get(one.type)) for name, one in known.items() if name in record)
    return next(filter(None, (wrong_keys(record[name], part, name) for name, part in parts if part)), None)


def folder_of(out_dir: str | Path, record: dict[str, Any]) -> Path:
    """Where a run leaves its result: the folder knows the settings, so that two of them never share one."""
    names = (record["student"]["shape"], Path(record["teacher"]["name"]).name)
    words = [re.sub(r"[^\w.]+", "-", name, flags=re.ASCII)[:40] for name in names]
    place = Path(out_dir) / record["method"] / record["task"] / record["variant"]
    return place / "-".join([*words, digest(seedless(record))[:6]]) / f"seed{record['seed']}"


def model_label(name: str) -> str:
    """A model's name for a reader elsewhere: a hub id as it is, a folder without the place where it lies."""
    return Path(name).name if name.startswith((".", "/", "~")) or name.count("/") > 1 else name


def without_place(name: str) -> str:
    """A model's name as a record keeps it: without where the folder lies on this machine."""
    return Path(name).name if Path(name).is_absolute() else name


def seedless(record: dict[str, Any]) -> str:
    """The signature that all seeds of a row share."""
    return str(record["signature"]).replace(f"|seed:{record['seed']}|", "|seed:*|")


def digest(record: Any) -> str:
    """16 hexadecimal digits over what a record, or anything else that JSON can hold, says, whatever its layout."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def save(folder: Path, record: dict[str, Any]) -> None:
    """Write a record (`Result`), with a digest by which `load` knows that no figure has changed since."""
    if wrong := wrong_keys(record):
        raise ValueError(wrong)
    write_json(folder / "result.json", record | {"digest": digest(record)})


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of a result")


def load(path: Path) -> dict[str, Any]:
    """Read one `result.json`; what is damaged, or no `Result`, is a `BadInput` that names it."""
    again = "; run again with --force"
    damaged = refused(f"{path}: damaged result, no JSON", ValueError, RecursionError, hint=again)
    with damaged, refused(f"{path}: cannot be read", OSError):
        record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    said = record.pop("digest", None) if isinstance(record, dict) else None  # results of older versions have none
    if wrong := wrong_keys(record):
        raise BadInput(f"{path}: not a valid result ({wrong}){again}")
    if record["schema"] not in range(1, SCHEMA_VERSION + 1):
        raise BadInput(f"{path}: a result of schema {record['schema']}, which this version does not read")
    if said not in (None, digest(record)):
        raise BadInput(f"{path}: damaged result (its digest does not match){again}")
    return record


def environment(on_cpu: bool = False) -> dict[str, Any]:
    """Versions, hardware and the state of the code, as recorded in every result. `on_cpu`: no GPU did the work."""
    import torch

    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in LIBRARIES}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() and not on_cpu else cpu_name()
    hardware = {
        "device": device,
        "instructions": torch.backends.cpu.get_cpu_capability(),  # of the processor
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", 1)),  # that have trained one student
        "system": platform.system(),
    }
    return {"versions": versions, "hardware": hardware, "git": git_state()}


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def git_state() -> dict[str, Any]:
    """The commit the code is at and whether files differ from it; nulls outside a checkout."""

    def git(*words: str) -> str | None:
        if HOME != ROOT:  # what lies around an installed package is not its own
            return None
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def one_line(fields: dict[str, Any]) -> str:
    """`key:value|key:value|...`, the form of every signature here."""
    return "|".join(f"{k}:{v}" for k, v in fields.items())


def percent(metrics: dict[str, float]) -> str:
    """Fractions in percent; a perplexity as it is."""
    return "/".join(f"{value if name == 'perplexity' else 100 * value:.2f}" for name, value in metrics.items())


def columns(rows: Iterable[list[str]], header: list[str], left: Collection[int] = (0,)) -> str:
    """Aligned plain text; words, in the columns `left`, to the left, numbers to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def show(records: list[dict[str, Any]], out_dir: str) -> None:
    """Print the table of a task's runs, one for each budget (the epochs of rows may differ), and where each is."""
    for comparable in dict.fromkeys(record["comparable"] for record in records):
        print(f"\n{table([record for record in records if record['comparable'] == comparable])}")
    for record in records:
        print(f"saved: {folder_of(out_dir, record)}")


def table(records: list[dict[str, Any]]) -> str:
    """The teacher and the runs of one task, under one budget and on one data fingerprint: scores, sizes, and what the
    method measures; below them what other results must share to be compared."""
    first = records[0]
    splits = list(first["metrics"])
    extra = [k for k in first["analysis"] if isinstance(first["analysis"][k], float)]
    names = "/".join(first["metrics"][splits[0]])
    header = ["", *[f"{s} {names}" for s in splits], "params", "MB", *extra]

    def line(name: str, metrics: dict[str, Any], analysis: dict[str, Any], model: dict[str, Any]) -> list[str]:
        scores = [percent(metrics.get(s, {})) or "-" for s in splits]
        more = [f"{analysis[k]:.4f}" if k in analysis else "-" for k in extra]
        return [name, *scores, f"{model['parameters'] / 1e6:.2f}M", f"{model['bytes'] / 1e6:.2f}", *more]

    rows, teachers = [], dict[str, Any]()
    for record in records:
        teachers.setdefault(record["teacher"]["signature"], record["teacher"])
    for teacher in teachers.values():
        name = f"teacher {model_label(teacher['name'])}"
        rows.append(line(name, teacher["metrics"], teacher["analysis"], teacher))
    for record in records:
        name = f"{record['variant']} {record['student']['shape']} seed {record['seed']}"
        rows.append(line(name, record["metrics"], record["analysis"], record["student"]))
    return f"{columns(rows, header)}\n{first['comparable']}"
