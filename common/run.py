"""One cell of a table: its folder, its settings, the student it starts from, and the record it leaves.

A finished cell with the same settings is not run again; one with other settings is never overwritten
without `--force`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from common import data, metrics, models, parallel, results, train
from common.args import BadInput, CommonArgs, as_dict, parse_budget, student_shape
from common.data import TaskData
from common.teacher import Teacher, large_settings

# Arguments that say where and how to run, not what; everything else is part of a result's settings.
NOT_SETTINGS = {
    *("task", "data_dir", "variant", "out_dir", "cache_dir", "device", "save_every", "resume", "force", "debug"),
    *("track", "analyse", "analyse_data", "params", "profile", "sizes"),  # a look, which touches no training
    *("export", "export_rest", "teacher_cache", "batches"),
    *("lr_plan", "until"),
    *("teacher_precision", "teacher_device_map", "gradient_checkpointing", "accumulate"),
}


_HELD: dict[Path, int] = {}  # folder -> descriptor; the system frees the lock when the process ends, however it does


def hold(folder: Path) -> None:
    """Keep other processes out of an output folder; `BadInput` if one is at work there."""
    folder = folder.resolve()
    if folder not in _HELD:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise BadInput(
                f"{folder}: another process is at work here; wait for its end, or give another --out-dir"
            ) from error
        except OSError:  # a file system without locks
            pass
        _HELD[folder] = descriptor


def release(folder: Path) -> None:
    """Let other processes in again."""
    if (descriptor := _HELD.pop(folder.resolve(), None)) is not None:
        os.close(descriptor)


class Run:
    """A variant of a method on a task with a seed. `settings` are the method's resolved arguments."""

    def __init__(self, args: CommonArgs, method: str, variant: str, task: TaskData, teacher: Teacher,
                 paper_epochs: float, settings: dict[str, Any]) -> None:  # fmt: skip
        self.args, self.method, self.variant, self.task, self.teacher = args, method, variant, task, teacher
        self.folder = results.folder_of(args.out_dir, method, task.name, variant, args.seed)
        kind, amount = parse_budget(args.budget)
        self.kind = kind
        # only the paper's budget is counted in epochs, for which a corpus has to be tokenised
        examples = data.epoch_size(teacher.tokenizer, task, args.max_length) if kind == "paper" else 0
        per_epoch = -(-examples // args.batch_size)
        self.steps = (
            None if kind == "seconds" else train.total_steps(kind, amount, args.batch_size, per_epoch, paper_epochs)
        )
        self.seconds = amount if kind == "seconds" else None
        self.amount = self.seconds if self.steps is None else self.steps * args.batch_size
        self.settings = {k: v for k, v in as_dict(args).items() if k not in NOT_SETTINGS} | settings
        # settings of their own only where they change more than the rounding of a float32
        blocks = task.task.kind == "language modelling"  # all of one length
        self.by_length = not blocks and args.batches != "shuffled"
        self.by_length &= args.batches == "by-length" or task.source != "pocket"
        if self.by_length:
            self.settings["batches"] = "by-length"
        self.settings |= large_settings(args) | ({"lr_plan": args.lr_plan} if args.lr_plan else {})
        if args.teacher_cache == "fp16":
            self.settings["teacher_cache"] = "fp16"
        fields = {
            "task": task.name,
            "data": f"{task.origin}#{task.fingerprint}",
            "split": "+".join(task.reported),
            "budget": f"{self.amount}{'s' if kind == 'seconds' else ''}" + ("(paper)" if kind == "paper" else ""),
            "schema": results.SCHEMA_VERSION,
        }
        if task.task.kind == "language modelling":  # a perplexity belongs to its tokens and its windows
            fields |= {"tokens": vocabulary_digest(teacher.tokenizer), "window": f"{args.max_length}/2"}
        if task.task.kind in data.GENERATED:  # how the texts were written and scored
            fields |= {"length": args.max_length, "beams": train.BEAMS}
            fields["score"] = metrics.signature(metrics.primary(task.task))
        self.comparable = results.one_line(fields)
        own = {k: v for k, v in self.settings.items() if k not in ("budget", "teacher", "limit", "compile")}
        own = {"method": method, "variant": variant, "teacher": teacher.signature, **own}
        self.signature = f"{self.comparable}|{results.one_line(own)}"
        own.pop("lr_plan", None)
        # of a checkpoint, which knows what it has seen of the plan
        self.identity = f"{self.comparable}|{results.one_line(own)}"

    def batches(self, encoded: data.Encoded, device: torch.device) -> data.Batches:
        """The training stream as `--batches` says; on a GPU, lengths are multiples of 8, as its kernels like them."""
        multiple = 8 if device.type == "cuda" else 1
        args = self.args
        return data.Batches(encoded, self.teacher.tokenizer, args.batch_size, args.seed, self.by_length, multiple)

    @parallel.by_main
    def finished(self) -> dict[str, Any] | None:
        """The record of this cell if it was run before with the same settings; `--force` forgets it."""
        path = self.folder / "result.json"
        if self.args.force and self.folder.exists():
            hold(self.folder)
            for old in (path, self.folder / "log.jsonl", *self.checkpoints()):
                old.unlink(missing_ok=True)
        if path.exists():
            record = results.load(path)
            if record["signature"] == self.signature:
                print(f"{self.variant}: finished before, {path}")
                return record
            raise BadInput(
                f"{path}: holds a result of other settings ({difference(record, self)}); --force replaces it,"
                " --out-dir keeps both"
            )
        if self.folder.exists():
            hold(self.folder)
        if self.checkpoints() and not self.args.resume:
            raise BadInput(f"{self.folder}: holds an unfinished run; --resume continues it, --force starts again")
        return None

    def checkpoints(self) -> list[Path]:
        """Those of all stages, each in a folder of its own."""
        return sorted(self.folder.rglob("checkpoint.safetensors"))

    def start(self, steps: int = 0) -> None:
        """Write the resolved arguments beside the result to come; keep the log up to `steps`, where the run goes on."""
        if not parallel.main():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        hold(self.folder)
        results.write_json(self.folder / "args.json", {"signature": self.signature, "settings": self.settings})
        kept = [json.dumps(row) + "\n" for row in self.read_log() if row["step"] <= steps]
        (self.folder / "log.jsonl").write_text("".join(kept), encoding="utf-8")

    def read_log(self) -> list[dict[str, Any]]:
        """The lines of `log.jsonl`, without those that are damaged: a kill may have cut the last one."""
        path = self.folder / "log.jsonl"
        found = []
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                found += [row] if isinstance(row["step"], int) else []
        return found

    def log(self, **values: Any) -> None:
        """Append a line to `log.jsonl`."""
        if not parallel.main():
            return
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    @parallel.by_main
    def finish(
        self, student: PreTrainedModel, init: str, ledger: train.Ledger, *, analysis: dict[str, Any] | None = None,
        teacher_analysis: dict[str, Any] | None = None, parameters: int | None = None, loading: Loading | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Evaluate on the reported splits, save the student, write the record; of a part (`--until`), as `part.json`.

        `parameters`: how many numbers a student stands for that holds them packed. `loading`: how it is loaded again,
        where that is not the library's usual way.
        """
        task, args = self.task, self.args
        scores, speed = train.evaluate(student, self.teacher.tokenizer, task, args.max_length, self.folder)
        primary = metrics.primary(task.task)
        value = float(np.mean([scores[split][primary] for split in task.reported]))
        card = model_card(self, scores, loading or Loading())
        size = models.save(student, self.teacher.tokenizer, self.folder, card)
        record = {
            "schema": results.SCHEMA_VERSION,
            "method": self.method,
            "variant": self.variant,
            "task": task.name,
            "source": task.source,
            "origin": task.origin,
            "fingerprint": task.fingerprint,
            "seed": args.seed,
            "budget": {
                "name": args.budget,
                "kind": self.kind,
                "amount": self.amount,
                "comparable": self.kind != "paper",
            },
            "metrics": scores,
            "primary": {"name": primary, "value": value},
            "teacher": {
                "name": self.teacher.name,
                "signature": self.teacher.signature,
                "parameters": models.parameters(self.teacher.model),
                "bytes": self.teacher.bytes,
                "speed": self.teacher.speed,
                "metrics": self.teacher.metrics,
                "analysis": teacher_analysis or {},
            },
            "student": {
                "shape": args.student,
                "init": init,
                "parameters": parameters or models.parameters(student),
                "bytes": size,
                "speed": speed,
            },
            "ledger": asdict(ledger),
            "analysis": analysis or {},
            "settings": self.settings,
            "environment": results.environment(),
            "command": shlex.join(["python", *sys.argv]),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "comparable": self.comparable,
            "signature": self.signature,
        }
        if args.until is not None:
            results.save(self.folder, record, "part.json")
            release(self.folder)
            return record
        results.save(self.folder, record)
        (self.folder / "part.json").unlink(missing_ok=True)
        for checkpoint in self.folder.rglob("checkpoint.*"):  # also what a kill has left of one
            checkpoint.unlink()
        release(self.folder)
        return record


def vocabulary_digest(tokenizer: Any) -> str:
    """Short SHA-256 of a tokenizer's tokens and their ids."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:8]


def difference(record: dict[str, Any], run: Run) -> str:
    """The first setting in which a record and a run differ, for the error line."""
    for key, value in run.settings.items():
        if record["settings"].get(key) != value:
            return f"{key} {record['settings'].get(key)} there, {value} here"
    return "another data set or budget" if record["comparable"] != run.comparable else "another teacher"


def choose_student(args: CommonArgs, init: str, teacher: Teacher, task: TaskData, shape: str | None = None,
                   **changes: Any) -> tuple[PreTrainedModel, str]:  # fmt: skip
    """Build a student of `shape` (default: `--student`) as `--init` asks; also say what it started from.

    `pretrained` copies the embeddings and the first layers of the teacher's pre-trained checkpoint (before it was
    fine-tuned), the name of a model those of that model, `random` nothing. `auto` is `pretrained` where there is
    such a checkpoint of the same width, and `random` otherwise.
    """
    layers, width = student_shape(shape or args.student)
    config = teacher.model.config
    if init == "auto":
        init = "pretrained" if teacher.pretrained and width == config.hidden_size else "random"
    if init == "pretrained" and not teacher.pretrained:
        raise BadInput(f"--init pretrained: teacher {teacher.name} has no pre-trained checkpoint; --init random works")
    source = teacher.pretrained if init == "pretrained" else None if init == "random" else models.source(init)
    if source is not None:
        checkpoint = models.load_config(source, "--init")
        if checkpoint.model_type != config.model_type or checkpoint.vocab_size != config.vocab_size:
            raise BadInput(
                f"--init {init}: a {checkpoint.model_type} of {checkpoint.vocab_size} words, the teacher is a"
                f" {config.model_type} of {config.vocab_size}; --init random works"
            )
        if checkpoint.hidden_size != width:
            raise BadInput(
                f"--init {init}: the student is {width} wide, the checkpoint {checkpoint.hidden_size}; --init random"
                " works"
            )
        if checkpoint.num_hidden_layers < layers:
            raise BadInput(
                f"--init {init}: the checkpoint has {checkpoint.num_hidden_layers} layers to copy from, the student"
                f" {layers}"
            )
    changes = models.task_settings(task.task) | changes
    own = models.student_config(config, layers, width, **changes)
    train.seed_everything(args.seed)
    student = models.build_student(own, task.task.kind, source)
    return student, f"first {layers} layers of {Path(source).name}" if source else "random"


class Loading(NamedTuple):
    """What a student's card tells its reader to type: a line that imports, and the call that loads."""

    imports: str = ""
    call: str = "{model}.from_pretrained(folder)"


def model_card(run: Run, scores: dict[str, dict[str, float]], loading: Loading) -> str:
    """A short README for the saved student: what it is, what it reaches, how to load it."""
    task = run.task
    model = models.HEADS[task.task.kind].__name__
    use = "model(**inputs)" if task.task.kind == "span QA" else "model(**inputs).logits"
    if task.task.kind in data.GENERATED:
        use = f"tokenizer.batch_decode(model.generate(**inputs, num_beams={train.BEAMS}), skip_special_tokens=True)"
    fields = ", ".join(f'"{field}"' for field in task.task.fields)
    imports = f"{loading.imports}  # from this repository's root\n" if loading.imports else ""
    lines = [f"- {split}: " + ", ".join(f"{k} {v:.4f}" for k, v in m.items()) for split, m in scores.items()]
    return f"""# {run.method} {run.variant}, {task.name}

A {run.args.student} student of {run.teacher.name}, seed {run.args.seed}. Data: {task.origin}.

{chr(10).join(lines)}

Signature: `{run.signature}`

```python
{imports}from transformers import {model}, AutoTokenizer

folder = "."  # the folder of this file
model = {loading.call.format(model=model)}.eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
inputs = tokenizer({fields}, truncation=True, max_length={run.args.max_length}, return_tensors="pt")
print({use})
```
"""


def compiled(model: torch.nn.Module, args: CommonArgs) -> Any:
    """The model as its loop calls it: with `--compile`, and a student, which is in training mode, with
    `--gradient-checkpointing`."""
    if args.gradient_checkpointing and model.training:
        models.checkpoint_activations(model)
    return torch.compile(model, dynamic=True) if args.compile else model
