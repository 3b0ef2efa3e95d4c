"""One row of a table: its folder, its settings, its share of the budget, the student, and the record it leaves.

A finished run is not run again without `--force`; one with other settings has another folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from torch import Tensor, nn
from transformers import PreTrainedModel, set_seed

import pocket
from common import data, evaluate, losses, models, parallel, results, train
from common.args import BadInput, CommonArgs, parse_budget, student_shape
from common.errors import refused, tell_once
from common.kinds import Encoded
from common.tasks import TaskData
from common.teacher import Teacher, get_teacher
from pocket.curriculum import ShortFirst

MOST_KEPT = 2**29  # bytes of a teacher's outputs that `--teacher-cache auto` keeps


class Run:
    """A variant of a method on a task with a seed. `settings` are added to those of the arguments, or replace them.

    `lr` is the student's peak learning rate: `--lr`, or the default of its width and of where it starts from. `select`:
    with `--budget paper` alone, the result is the best of evaluations after so many steps (0: epochs) of the last loop,
    which ends when `patience` of them were no better. `labels_alone`: nothing but labels teaches it on the task
    (default: what is called finetune); examples without one are left out.
    """

    def __init__(self, args: CommonArgs, method: str, variant: str, task: TaskData, teacher: Teacher,
                 paper_epochs: float, select: int | None = None, patience: int | None = None,
                 labels_alone: bool | None = None, **settings: Any) -> None:  # fmt: skip
        self.args, self.method, self.variant, self.task, self.teacher = args, method, variant, task, teacher
        self.examples = task.splits["train"]  # a method may put augmented ones in their place
        if "finetune" in variant.split("-") if labels_alone is None else labels_alone:
            self.examples = task.labelled
            if not len(self.examples):
                raise BadInput(f"--variant {variant}: learns from labels, and {task.name} has none; --variant kd learns"
                               " from the teacher alone")  # fmt: skip
        self.ledger = train.Ledger()  # of all that the run has spent
        self.taken = 0  # steps of this run's own loops
        self.shared_steps = 0  # of stages that it shares with others, in steps of --batch-size
        self.charged = Counter[Path]()  # of teachers' outputs, for how many examples their cost is in the ledger
        self.kind, amount = parse_budget(args.budget)
        if self.kind == "paper":  # counted in epochs, for which the data have to be tokenised
            amount = round(paper_epochs * -(-len(self.encoded) // args.batch_size)) * args.batch_size
        self.steps = max(1, amount // args.batch_size)
        self.selection: Any = None
        if select is not None and self.kind == "paper":
            from common.selection import Selection

            self.selection = Selection(task, select, patience)
            settings["selected"] = f"the best {self.selection.metric} on {self.selection.split}"
        settings.setdefault("temperature", losses.temperature(args, task.task.kind))
        self.started_from = settings["init"] = settings.get("init") or first_weights(args, teacher)
        self.lr = settings["lr"] = settings.get("lr") or self.rate(student_shape(args.student)[1], self.started_from)
        # Blocks of text are all of one length. On pocket tasks batches of like length cost score: on cola and grammar,
        # after 6,400 examples, KD and MC3KD had 0.2 to 17 points less (all eight pairs of runs)
        like_length = args.batches == "by-length" or (args.batches == "auto" and task.source != "pocket")
        self.by_length = like_length and not task.task.kind.causal
        if self.by_length:
            settings["batches"] = "by-length"
        if given := getattr(args, "corpus", None):
            from common import corpus

            settings.setdefault("corpus", corpus.named(given))
        settings |= args.versions(variant) | task.task.kind.recipe
        self.settings = dict(sorted((args.settings() | settings).items()))
        self.settings["teacher"] = results.without_place(self.settings["teacher"])
        reported = [task.splits[name] for name in task.reported]
        self.comparable = results.one_line({
            "task": task.name,
            "data": f"{task.origin}#{task.fingerprint}",
            "split": "+".join(task.reported),
            "budget": f"{self.steps * args.batch_size}" + ("(paper)" if self.kind == "paper" else ""),
            "schema": results.SCHEMA_VERSION,
            **task.task.kind.comparable(task.task, teacher.tokenizer, args.max_length, reported),
        })  # fmt: skip
        others = {k: v for k, v in self.settings.items() if k not in ("budget", "teacher", "limit", "compile")}
        fields = {"method": method, "variant": variant, "teacher": teacher.signature} | others
        self.signature = f"{self.comparable}|{results.one_line(fields | {'training': train.training()})}"
        self.named: dict[str, Any] = {
            "method": method,
            "variant": variant,
            "task": task.name,
            "seed": args.seed,
            "student": {"shape": args.student},
            "teacher": {"name": results.without_place(teacher.name)},
            "signature": self.signature,
        }
        self.folder = results.folder_of(args.out_dir, self.named)
        self.lock = FileLock(self.folder / ".lock", is_singleton=True)  # one for all runs of this process

    # --- training ---

    @property
    def encoded(self) -> Encoded:
        return data.encode(self.teacher.tokenizer, self.examples, self.task.task, self.args.max_length)

    @property
    def left(self) -> int:
        """Steps that the budget still pays for; the paper's epochs are those on the task alone."""
        return self.steps - self.taken - (0 if self.kind == "paper" else self.shared_steps)

    def steps_for(self, share: float, batch_size: int) -> int:
        """Steps of so many examples that a share of the budget pays for: 0 for none of it, otherwise 1 or more."""
        return max(1, round(share * self.steps * self.args.batch_size / batch_size)) if share else 0

    def rate(self, width: int, start: str) -> float:
        """The peak learning rate of a student of this width that starts from there: `--lr`, or the default."""
        return self.args.lr or self.task.task.kind.default_lr(width, start)

    def student(self, *, init: str | None = None, shape: str | None = None, keep: str | None = None,
                ffn: int | None = None, **changes: Any) -> PreTrainedModel:  # fmt: skip
        """The student that `--student`, `--init` and `--keep` ask for, or what is given in their place.

        `changes` go into its configuration. New weights, those of the task's head among them, are drawn from `--seed`.
        """
        init, shape, keep = init or self.settings["init"], shape or self.args.student, keep or self.args.keep
        student, self.started_from = build_student(self, init, shape, keep, ffn, changes)
        if self.task.task.kind.written:  # it writes as the teacher does
            student.generation_config = deepcopy(self.teacher.model.generation_config)
        return student

    def evaluation_batches(self, most: int) -> list[dict[str, Tensor]]:
        """Batches of the first so many examples of an evaluation split."""
        split = next(split for name, split in self.task.splits.items() if name != "train")
        tokenizer = self.teacher.tokenizer
        encoded = data.encode(tokenizer, data.head(split, most), self.task.task, self.args.max_length)
        return [batch for _, batch in data.eval_batches(encoded, tokenizer, self.args.batch_size)]

    def kept_teacher(self, layers: Sequence[int] = (), steps: int | None = None) -> Teacher:
        """The teacher for a loop of so many steps (default: all that are left) over the task's examples: what it says
        of them, with the hidden states of `layers`, is computed once and read from disk where that pays."""
        if wrong := [l for l in layers if l > self.teacher.model.config.num_hidden_layers]:
            raise BadInput(f"the teacher's hidden states of layer {wrong[0]}: it has fewer layers")
        teacher = replace(self.teacher, layers=tuple(layers))
        steps = self.left if steps is None else steps
        examples = steps * self.args.batch_size
        if not (teacher.stored or keeps_outputs(self.args, teacher, self.encoded, examples)):
            return teacher
        if (kept := teacher.kept) is None:
            from common.kept import keep_outputs

            kept = keep_outputs(self.args, teacher, self.encoded)
        self.ledger.add(kept.cost(examples, self.charged[kept.path]))
        self.charged[kept.path] += examples
        return replace(teacher, kept=kept)

    def shared(self, kind: str, recipe: dict[str, Any],
               make: Callable[[train.Stage], PreTrainedModel]) -> train.Stage:  # fmt: skip
        """A stage that other runs share, made by `make` or found; this run is charged what it has cost."""
        if self.args.accumulate > 1:  # a mean over the tokens of a part is not the whole batch's
            recipe = recipe | {"accumulate": self.args.accumulate}
        if self.teacher.checkpoint:
            recipe = recipe | {"checkpoint": self.teacher.checkpoint}
        stage = train.shared(self.args, kind, recipe, self.teacher.tokenizer, make)
        self.ledger.add(stage.ledger)
        self.shared_steps += -(-stage.ledger.student_examples // self.args.batch_size)  # its batches may be larger
        return stage

    @contextlib.contextmanager
    def loop(self, modules: dict[str, nn.Module], lr: float, *, steps: int | None = None, stage: str = "",
             whole_batch: bool = False, **options: Any) -> Iterator[train.Loop]:  # fmt: skip
        """The training loop over the task's examples: for `steps`, or for all that is left of the budget.

        `stage` names its checkpoint where a run has several loops, which follow each other in the stream of batches.
        `whole_batch`: the loss is a statistic of the batch, which `--accumulate` would change: refused.
        """
        args, kind = self.args, self.task.task.kind
        if whole_batch and args.accumulate > 1:
            raise BadInput(
                f"--accumulate {args.accumulate}: the loss of {self.variant} is a statistic of the batch; leave it"
                " out, or give a smaller --batch-size"
            )
        steps = self.left if steps is None else steps
        if steps < 1:
            raise BadInput(f"--budget {args.budget}: its stages leave no step for {self.variant}; give more")
        how = (self.encoded, self.teacher.tokenizer, args.batch_size, args.seed)
        if self.task.source == "pocket" and kind.windowed:
            batches: train.Stream = ShortFirst(*how, round(self.left / 2))
        else:
            # of lengths, as a GPU's kernels like them, where that does not go beyond --max-length
            multiple = 8 if parallel.device().type == "cuda" and args.max_length % 8 == 0 else 1
            batches = data.Batches(*how, self.by_length, multiple)
        selects = self.selection is not None and steps == self.left
        if selects:
            modules = modules | {"best": deepcopy(modules["student"]).requires_grad_(False)}
        set_seed(args.seed, deterministic=False)
        options = train.Options.of(args) | options
        if args.warmup is not None:
            options["warmup"] = args.warmup
        loop = train.Loop(
            modules, batches, steps, lr, self.folder / stage, f"{self.signature}|{stage}", kind=kind,
            label=f"{self.variant} {stage} seed {args.seed}".replace("  ", " "), first=self.taken, log=self.log,
            total=self.ledger, seed=args.seed, **options,
        )  # fmt: skip
        if selects:
            loop.done = lambda: self.selection.keep_best(self, loop)
        with loop:
            if loop.step < loop.steps:
                self.start(self.taken + loop.step)
            yield loop
        if selects:
            modules["student"].load_state_dict(modules["best"].state_dict())
        self.taken += loop.step

    def evaluation(self, student: Any, folder: Path | None = None) -> evaluate.Evaluation:
        """What a student says of the reported splits; `folder`, where answers are written, only at the run's end."""
        teacher, length = self.teacher, self.args.max_length
        who = f"{self.variant} seed {self.args.seed}" if folder else None
        return evaluate.evaluate(student, teacher.tokenizer, self.task, length, folder, teacher.predictions, who)

    def score(self, found: evaluate.Evaluation) -> float:
        """The primary metric, mean over the reported splits."""
        primary = self.task.task.metrics[0]
        return float(np.mean([found.metrics[split][primary] for split in self.task.reported]))

    # --- files ---

    @property
    @parallel.by_main
    def finished(self) -> dict[str, Any] | None:
        """The record of this run if it was made before with the same settings; `--force` forgets it."""
        path = self.folder / "result.json"
        if self.folder.exists() and (self.args.force or not path.exists()):
            self.hold()
        if self.args.force:
            for old in (path, self.folder / "log.jsonl", *self.folder.rglob("checkpoint.safetensors")):
                old.unlink(missing_ok=True)
        if path.exists():
            record = results.load(path)
            if record["signature"] != self.signature:
                raise BadInput(f"{path}: is no result of these settings; --force replaces it")
            self.clear()
            here = not self.args.save_student or any(self.folder.glob("model*.safetensors"))
            print(f"{self.variant}: finished before, {path}{'' if here else '; its student was not kept, see --force'}")
            return record
        return None

    def hold(self) -> None:
        """Keep other processes out of the output folder until the run ends; `BadInput` if one is at work there."""
        hint = "; wait, or give another --out-dir"
        with refused(f"{self.folder}: another process is at work here", Timeout, hint=hint):
            self.lock.acquire(timeout=0)

    def clear(self) -> None:
        """Remove what a finished run needs no more: checkpoints, and what a kill has left of any file."""
        for left in (*self.folder.rglob("checkpoint.*"), *self.folder.rglob("*.partial")):
            left.unlink(missing_ok=True)

    def start(self, steps: int) -> None:
        """Write the resolved arguments beside the result to come; keep the log up to `steps`, where the run goes on."""
        if not parallel.main():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.hold()
        columns = self.args.source["columns"]
        told = {"signature": self.signature, "settings": self.settings, "label": columns.label, "kind": columns.kind,
                "metric": columns.metric, "text": self.task.columns or self.task.task.fields}  # fmt: skip
        results.write_json(self.folder / "args.json", told)
        path, rows = self.folder / "log.jsonl", list[bytes]()
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a kill may have cut the last one
                rows += [line + b"\n"] if json.loads(line)["step"] <= steps else []
        path.write_bytes(b"".join(rows))

    def log(self, **values: Any) -> None:
        """Append a line to `log.jsonl`."""
        if parallel.main():
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    @parallel.by_main
    def finish(
        self, student: PreTrainedModel, *, analysis: dict[str, Any] | None = None,
        teacher_analysis: dict[str, Any] | None = None, parameters: int | None = None, loading: Loading | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Evaluate on the reported splits, save the student, write the record.

        `parameters`: how many numbers a student stands for that holds them packed. `loading`: how it is loaded again,
        where that is not the library's usual way.
        """
        args = self.args
        models.fold_head(student)
        found = self.evaluation(student, self.folder)
        with contextlib.nullcontext(self.folder) if args.save_student else TemporaryDirectory() as place:
            card = model_card(self, found.metrics, loading or Loading())
            size = models.save(student, self.teacher.tokenizer, Path(place), card, args.max_length)
        parameters = parameters or student.num_parameters()
        return self.record(found, parameters, size, analysis or {}, teacher_analysis or {})

    @parallel.by_main
    def record(self, found: evaluate.Evaluation, parameters: int, size: int, analysis: dict[str, Any] | None = None,
               teacher_analysis: dict[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
        """Write predictions and the record of a student that was evaluated, of so many parameters and bytes."""
        task, args, teacher, kind = self.task, self.args, self.teacher, self.task.task.kind
        said, splits = found.predictions, task.splits
        if said:
            evaluate.save_predictions(self.folder, said)
        log_loss = {name: kind.log_loss(said[name], splits[name].labels) for name in said if len(splits[name].labelled)}
        record = {
            "schema": results.SCHEMA_VERSION,
            **self.named,
            "source": task.source,
            "origin": task.origin,
            "fingerprint": task.fingerprint,
            "budget": {
                "name": args.budget,
                "kind": self.kind,
                "amount": self.steps * args.batch_size,
                "comparable": self.kind != "paper",
            },
            "metrics": found.metrics,
            "primary": {"name": task.task.metrics[0], "value": self.score(found)},
            # how far the predictions are the teacher's, and their log loss
            "agreement": {
                name: kind.agreement(said[name], teacher.predictions[name]) for name in said
                if name in teacher.predictions
            },
            "log_loss": {name: loss for name, loss in log_loss.items() if loss is not None},
            "teacher": self.named["teacher"] | {
                "signature": teacher.signature,
                "parameters": teacher.parameters,
                "bytes": teacher.bytes,
                "speed": teacher.speed,
                "metrics": teacher.metrics,
                "analysis": teacher_analysis or {},
            },
            "student": {
                "shape": args.student,
                "init": self.started_from,
                "parameters": parameters,
                "bytes": size,
                "speed": found.speed,
            },
            "ledger": asdict(self.ledger),
            "analysis": (analysis or {}) | skills(task, said) | by_class(task, said),
            "settings": self.settings,
            "environment": results.environment(on_cpu=parallel.device().type != "cuda"),
            "command": shlex.join(["python", *sys.argv]),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "comparable": self.comparable,
        }  # fmt: skip
        results.save(self.folder, record)
        self.clear()
        self.lock.release(force=True)
        return record


def skills(task: TaskData, predictions: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The accuracy on each skill, for the task of the suite whose examples have one."""
    right: dict[str, list[bool]] = {}
    for name, found in predictions.items() if task.source == "pocket" else ():
        split = task.splits[name]
        for example, logits, label in zip(split.ids, found, split.labels, strict=True):
            if skill := pocket.skill_of(example):
                right.setdefault(skill, []).append(logits.argmax() == label)
    return {"skills": {skill: float(np.mean(right[skill])) for skill in sorted(right)}} if right else {}


def by_class(task: TaskData, predictions: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """What is known of each class, by split, of a data set of one's own with labels."""
    if task.task.metrics == ("agreement",):
        return {}
    each = {name: task.task.kind.by_class(task.task, task.splits[name], predictions[name]) for name in predictions}
    return {"by_class": each} if any(each.values()) else {}


def runs(args: CommonArgs, method: str, paper_epochs: float) -> Iterator[Run]:
    """A command's runs, task by task and variant by variant, without those that were finished before.

    Whoever takes one trains its student and calls its `finish`. A task's table is shown after its last run.
    """
    for task, teacher in taught_tasks(args):
        yield from task_runs(args, method, task, teacher, paper_epochs=paper_epochs)


def taught_tasks(args: CommonArgs) -> Iterator[tuple[TaskData, Teacher]]:
    """A command's tasks, each with its teacher."""
    for name in args.tasks:
        task = data.load(name, **args.source)
        yield task, get_teacher(args, task)


def task_runs(
    args: CommonArgs, method: str, task: TaskData, teacher: Teacher,
    variants: Mapping[str, dict[str, Any]] | None = None, **settings: Any,
) -> Iterator[Run]:  # fmt: skip
    """The same of one task. `variants`: for each row's label (default: each `--variant`) its settings, beside those of
    all rows; "arguments" among them replace the script's."""
    records = []
    for variant, own in (variants or {name: {} for name in args.variants}).items():
        given = settings | own
        run = Run(replace(args, **given.pop("arguments", {})), method, variant, task, teacher, **given)
        if (record := run.finished) is None:
            set_seed(args.seed, deterministic=False)  # of what a method makes before its student
            yield run
            record = parallel.on_main(functools.partial(results.load, run.folder / "result.json"))
        records.append(record)
    results.show(records, args.out_dir)


def keeps_outputs(args: CommonArgs, teacher: Teacher, encoded: Encoded, examples: int) -> bool:
    """Whether `--teacher-cache` wants a teacher's outputs kept for a loop over so many examples. With auto it does if
    there are fewer in the data, some of which then come again, and the file has at most `MOST_KEPT` bytes."""
    layers, how = set(teacher.layers), args.teacher_cache
    if how == "off" or not encoded.kind.outputs or len(set(encoded.ids)) < len(encoded):
        return False
    config = teacher.model.config
    logits = config.num_labels if encoded.kind.windowed else 0  # of a token; of a text they are few
    size = 4 * sum(encoded.lengths) * (len(layers) * config.hidden_size + logits)
    return how == "on" or (examples > len(encoded) and size <= MOST_KEPT)


# --- the student ---------------------------------------------------------------------------------------------


def first_weights(args: CommonArgs, teacher: Teacher) -> str:
    """What `--init` means for this teacher: random, pretrained, teacher, or a hub id or folder, named by its digest."""
    if args.init == "auto":
        (layers, width), config = student_shape(args.student), teacher.model.config
        if width == config.hidden_size and teacher.pretrained:
            return "pretrained"
        if width == config.hidden_size and teacher.ready and layers <= sum(models.stack_depths(config)):
            tell_once(f"--init auto: {teacher.name} came fine-tuned: students start from its layers")
            return "teacher"
        return "random"
    return models.model_name(models.source(args.checkpoint)) if args.checkpoint else args.init


def build_student(run: Run, init: str, shape: str, keep: str, ffn: int | None,
                  changes: dict[str, Any]) -> tuple[PreTrainedModel, str]:  # fmt: skip
    """A student of `shape`, and what it started from."""
    args, teacher, task = run.args, run.teacher, run.task
    layers, width = student_shape(shape)
    config, kind = teacher.model.config, task.task.kind
    changes = kind.settings(task.task) | changes
    set_seed(args.seed, deterministic=False)
    if init == "random":
        with refused(f"--student {shape}: no {config.model_type} can be made so"):
            return models.build(models.student_config(config, layers, width, ffn, **changes), kind), "random"
    if init == "teacher" and teacher.stored:
        raise BadInput(f"--init teacher: {teacher.name} is outputs alone, without weights; give --init MODEL or random")
    if init == "pretrained" and not teacher.pretrained:
        raise BadInput(f"--init pretrained: teacher {teacher.name} has no pre-trained checkpoint; --init random works")
    given = init not in ("teacher", "pretrained")  # by --init NAME
    name = {"teacher": teacher.name, "pretrained": str(teacher.pretrained)}.get(init, init)
    source = models.source(args.init) if given else name
    checkpoint = config if init == "teacher" else models.load_config(source, "--init")
    if checkpoint.model_type != config.model_type or checkpoint.vocab_size != config.vocab_size:
        raise BadInput(
            f"--init {init}: a {checkpoint.model_type} of {checkpoint.vocab_size} words, the teacher is a"
            f" {config.model_type} of {config.vocab_size}; --init random works"
        )
    if given and other_words(source, teacher.tokenizer):
        raise BadInput(f"--init {init}: its tokenizer has other words than the teacher's; --init random works")
    if checkpoint.hidden_size != width:
        wide = checkpoint.hidden_size
        raise BadInput(f"--init {init}: the student is {width} wide, the checkpoint {wide}; --init random works")
    there, wanted = map(models.stack_depths, (checkpoint, models.student_config(config, layers, width)))
    if any(m > N for N, m in zip(there, wanted, strict=True)):
        raise BadInput(f"--init {init}: the checkpoint has {sum(there)} layers to copy from, the student {layers}")
    if ffn and ffn not in [getattr(checkpoint, name, None) for name in models.FFN]:
        raise BadInput(f"--init {init}: its layers are copied as wide as they are, not {ffn}; --init random works")
    if init == "teacher":
        student = models.scale_head(models.trainable_copy(teacher.model), kind, absent=())
        student.config.update(changes)
    else:
        deep = models.student_config(config, layers, width, **changes)  # as deep as the checkpoint, and inside as wide
        as_deep = (*models.DEPTHS, *models.LAYER_LISTS, *models.FFN)
        deep.update({key: getattr(checkpoint, key) for key in as_deep if hasattr(checkpoint, key)})
        student = models.load_model(source, deep, kind, argument="--init" if given else "--teacher")
    which = "all layers" if there == wanted else models.named_layers(keep, layers)
    return models.keep_layers(student, keep, layers), f"{which} of {Path(name).name}"


def other_words(source: str, tokenizer: Any) -> bool:
    """Whether a checkpoint has a tokenizer of other words than this one."""
    with contextlib.suppress(BadInput):
        return models.load_tokenizer(source, "--init").get_vocab() != tokenizer.get_vocab()
    return False


# --- the model card ------------------------------------------------------------------------------------------


class Loading(NamedTuple):
    """What a student's card tells its reader to type: a line that imports, and the call that loads."""

    imports: str = ""
    call: str = "{model}.from_pretrained(folder)"


def model_card(run: Run, scores: dict[str, dict[str, float]], loading: Loading) -> str:
    """A short README for the saved student: what it is, what it reaches, how to load it."""
    task, kind = run.task, run.task.task.kind
    fields, imports = ", ".join(f'"{field}"' for field in task.task.fields), ""
    if loading.imports:
        imports = f"{loading.imports}  # after `pip install .` in the repository that made it\n"
    lines = [f"- {split}: " + ", ".join(f"{k} {v:.4f}" for k, v in m.items()) for split, m in scores.items()]
    return f"""# {run.method} {run.variant}, {task.name}

A {run.args.student} student of {results.model_label(run.teacher.name)}, seed {run.args.seed}. Data: {task.origin}.

{chr(10).join(lines)}

Signature: `{run.signature}`

```python
{imports}from transformers import {kind.head}, AutoTokenizer

folder = "."  # the folder of this file
model = {loading.call.format(model=kind.head)}.eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
inputs = tokenizer({fields}, truncation=True, max_length={run.args.max_length}, return_tensors="pt")
print({kind.use})
```
"""
