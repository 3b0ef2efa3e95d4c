"""Which small model to ship for a task: the rows of the matrix `arena` on it, measured in turn, and what follows.

    python -m bench arena tickets.csv --teacher MODEL --student 3x384
    python -m bench arena tickets.csv --text body --label team --teacher MODEL --student 3x384 --budget 6400 --seeds 0
    python -m bench arena pocket/rte --rows undistilled,kd,cmow-kd --max-length 32    # further arguments of the scripts
    python -m bench arena texts.csv --teacher-outputs probabilities.csv --init MODEL --student 3x384

Each row first tries three learning rates (linear models three regularisations), scored on dev where there is a test
split, else on a tenth of train that is held out besides, at a sixth of the budget for each seed, at most a half;
--rates 1 takes the scripts' defaults.

A task is a file, a folder, hub:REPO or a name, as for the scripts (docs/data.md). Every row has the arguments that
bench/matrices/arena.toml gives it, and the budget; rows of its main shape have --student, those of half its width half
of that. If the student is as wide as the teacher, rows start from the teacher's layers, those before it was fine-tuned
where they are known, else from random weights; rows that cannot are left out. So are, where the teacher is its outputs
alone (docs/teacher_as_data.md), rows that read its layers, and without labels the undistilled; rows that start from
random weights take the tokens of --init. efficient_attention.py trains the baselines of tags and spans. The score is
the primary metric on the reported split, in percent, with a 95% interval over seeds; milliseconds are those of one
text, by `python -m bench profile`. Everything goes to runs/arena/TASK, the table also as arena.json; the same command
goes on where it was stopped. Where a command has failed there is no advice. It leaves out rows of which a seed is
not above guessing (the share of the largest class, a correlation of 0), with the likely cause, corrects the others'
gaps to the best for their number, and gives a tie to the linear model: `linear` sees as many labelled rows as a student
sees, `linear-all` all of train."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from scipy.stats import fisher_exact
from transformers import AutoTokenizer

from bench import Parser, dashed, run, sweep, table
from bench.matrix import MATRICES, NOTHING_TRIED, Job, build, chosen, module_of, read_file, script_of, trials
from bench.records import folder_of
from bench.run import add_engine, seeds_of
from bench.speed import Inputs, forward, load_and_forward, load_student, medians, memory_of
from bench.stats import Estimate, Sample, estimate, holm
from bench.table import LINEAR, Grid, Row, Table, interval, load
from common import data, evaluate, models, results
from common.args import BadInput, parse_budget, parse_model, student_shape
from common.kinds import Kind
from common.tasks import TASKS, Columns, is_data_set, permutation
from common.teacher import Teacher, get_teacher
from common.values import expanded
from pocket.models import POCKET

FILE = MATRICES / "arena.toml"
MAIN, NARROW = "2x128", "2x64"  # the shapes of its rows
WORTH = 1.5  # so many times faster, or smaller, is worth a word
LIKE = 1.1  # rows that are fewer times slower, or larger, than the least are like it
NOISE = 0.02  # scores of trials that differ by less say nothing of the rate
FAR = 0.95  # of the teacher's score: below it the budget is worth a word
BASELINES = ("undistilled", "kd")
FOLDERS = {"data_dir", "cache_dir"}
SEEN = 500  # train rows on which a teacher is asked whether it knows them
RATES, SEED = (1, 1 / 3, 3), 100  # of trials: times the middle one, to which a tie goes; their seed
PLACES = {"teacher_outputs", "init"}  # arguments; with one of them no teacher's layers are there
DEFAULT = "linear,linear-all,undistilled,kd,mse-kd,mc3kd,cka-kd,1bit-xtc,2bit-xtc,narrow-kd,cmow-undistilled,cmow-kd"


def rows_for(options: Any, width: int, kind: Kind, given: dict[str, str], labelled: bool) -> list[dict[str, Any]]:
    """The rows that were asked for, with this student; `width`: the teacher's, or that of the checkpoint that students
    start from, `kind`: the task's, `labelled`: whether labels can teach."""
    known = {row["name"]: {"student": MAIN} | row for row in read_file(FILE)["rows"]}
    names = list(known) if options.rows == "all" else chosen("--rows", options.rows, known, "the arena")
    layers, own = student_shape(options.student)
    shapes = {MAIN: options.student, NARROW: f"{layers}x{max(8, own // 16 * 8)}"}
    rows = []
    for row in (known[name] for name in names):
        if kind.windowed and row["name"] in BASELINES:  # every script has them
            row = row | {"method": "efficient_attention"}
        script = module_of(script_of(row["method"])).Args
        # XTC and converted attention go on from the teacher's layers; the others compare states of one width
        layered = row["method"] in ("xtc", "efficient_attention") or row["variant"] in ("pkd-skip", "mse", "cosine")
        outputs_alone = bool(PLACES & given.keys())
        why = {
            f": its script cannot do {kind}": not kind.among(script.KINDS),
            ", which learns from labels": not labelled and (row["method"] == LINEAR or "finetune" in row["variant"]),
            ", which reads the teacher's layers": outputs_alone and row["variant"] not in script.OUTPUTS_ALONE,
            ", which needs that width": layered and own != width,
        }
        if reason := next((reason for reason, holds in why.items() if holds), None):
            print(f"left out: {row['name']}{reason}")
            continue
        init = {"init": given.get("init", "auto")} if row.get("init") == "pretrained" else {}  # else of what there is
        if "init" in given and not init:  # weights of its own
            init = {"init": row.get("init", "random")}
            if "teacher_outputs" in given:  # and tokens of the checkpoint that others start from
                init["teacher"] = given["init"]
        apart = {key: value for key, value in row.items() if key not in ("tune", "weight", "late")}
        rows.append(apart | init | {"student": shapes.get(row["student"], row["student"])})
    if not rows:
        raise BadInput(f"--student {options.student}: no row is left for {kind}; try {layers}x{width}")
    return rows


def base_of(given: dict[str, str], teacher: str) -> str:
    """The checkpoint whose tokens students read, and whose family they are of."""
    return given.get("init") or models.source(teacher)


def table_of(options: Any, kind: Kind, given: dict[str, str], labelled: bool = True) -> dict[str, Any]:
    """The matrix, as a file would say it; its commands run in the repository, so that places are whole."""

    def whole(name: str) -> str:  # a hub id stays as it is
        return str(path.resolve()) if (path := expanded(name)).exists() else name

    task = whole(options.task) if is_data_set(options.task) and not options.task.startswith("hub:") else options.task
    teacher = options.teacher if options.teacher in POCKET else whole(options.teacher)
    given = given | {name: whole(given[name]) for name in PLACES & given.keys()}
    given |= {name: str(expanded(given[name]).resolve()) for name in FOLDERS & given.keys()}
    width = models.load_config(base_of(given, teacher), "--init" if "init" in given else "--teacher").hidden_size
    rows = rows_for(options, width, kind, given, labelled)
    settings = {"tasks": [task], "seeds": seeds_of(options.seeds), "budget": options.budget, "teacher": teacher}
    given.pop("init", None)  # it is in the rows
    return given | settings | {"rows": rows}


def search_of(wanted: dict[str, Any], kind: Kind, out: str) -> sweep.Search:
    """The trials of a matrix's rows: the rate that has won the arena's own trials, a third and three times of it, in
    units of the default rate, which knows the width and the kind. Linear models try their C likewise."""
    unit, amount = parse_budget(wanted["budget"])
    if unit == "paper":
        raise BadInput("--budget paper: is in epochs, of which trials take no part; --rates 1 leaves them out")
    file = read_file(FILE)
    shapes, won = {row["name"]: row.get("student", MAIN) for row in file["rows"]}, trials(file)["rows"]
    rows = []
    for row in wanted["rows"]:
        name, usual = "C" if row["method"] == LINEAR else "lr", shapes[row["name"]]
        middle = won[row["name"]]["winner"][name]
        if usual in (MAIN, NARROW):
            start = "random" if usual == NARROW else ""
            of_arena = Kind.of("classification").default_lr(student_shape(usual)[1], start)
            middle *= kind.default_lr(student_shape(row["student"])[1], start) / of_arena
        rows.append(row | {"tune": {name: [float(f"{middle * times:.3g}") for times in RATES]}})
    part = round(min(1 / 2, len(wanted["seeds"]) / 6) * amount)  # half of what the rows take in all
    budget = max(part, int(wanted.get("batch_size", 32)))
    tune = {"seeds": [SEED], "trials": len(RATES), "budget": str(budget)}
    return sweep.Search(wanted | {"rows": rows, "tune": tune}, Path(out) / "trials", "arena", NOTHING_TRIED)


def seconds_of(base: str, shape: str, task: data.TaskData, max_length: int) -> float:
    """About what an example takes: models with random weights read a few batches, the teacher once, the student three
    times, as a training step does. The quickest token counts, times a text's own: students train on batches of like
    length."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, config = task.task.kind, models.load_config(base)
    config.update(kind.settings(task.task))
    teacher: Any = models.build(config, kind)
    student: Any = models.build(models.student_config(config, *student_shape(shape)), kind)
    for model in (teacher, student):
        model.to(device).eval().requires_grad_(False)
    seconds, lengths = [], list[int]()
    for batch in batches(task, models.load_tokenizer(base), max_length, BATCH, PASSES[BATCH]):
        inputs, started = {name: values.to(device) for name, values in batch.items()}, time.perf_counter()
        forward(teacher, [inputs])
        forward(student, [inputs] * 3)
        seconds.append((time.perf_counter() - started) / batch["input_ids"].numel())
        lengths += batch["attention_mask"].sum(1).tolist()
    each = min(seconds) * fmean(lengths)
    return each * (torch.get_num_threads() / run.cores() if device == "cpu" else 1)


def is_linear(job: Job) -> bool:
    return Path(job.words[0]).stem == LINEAR


def make_teachers(jobs: list[Job], options: Any) -> None:
    """Fine-tune the teacher that commands share before they start: with all processors, and where one sees it. Those of
    a cluster make it on its devices, and those of efficient attention may want one of another length."""
    if options.engine == "ray":
        return
    shared = [job for job in jobs if Path(job.words[0]).stem not in (LINEAR, "efficient_attention")]
    with contextlib.chdir(results.HOME):  # as they do
        for args in {job.teacher: job.args for job in shared}.values():
            get_teacher(args, data.load(args.task, **args.source))


def minutes(jobs: list[Job], each: float) -> str:
    """About what these commands take; `each`: seconds of an example."""
    examples = sum(parse_budget(job.args.budget)[1] for job in jobs if not is_linear(job))
    return f"{len(jobs)} runs, about {examples * each / 60:.0f} minutes"


def answer(found: Table, task: str, measured: list[dict[str, Any]], trials: dict[str, Any],
           labelled: int) -> tuple[Grid, str]:  # fmt: skip
    """The table that answers the question, the best first, and one sentence that follows from it; `trials`: of rows,
    `labelled`: how many rows of train have a label."""
    record = found.tasks[task]
    of_row = {line["row"]: line for line in measured}
    order = [(row, interval(row.values(task))) for row in found.rows if row.path in of_row]
    order.sort(key=lambda pair: -pair[1].mean)
    first, teacher = record["primary"]["name"], record["teacher"]
    others = [name for name in next(iter(record["metrics"].values())) if name != first]

    def mean(records: list[dict[str, Any]], name: str) -> float:
        return fmean(split[name] for record in records for split in record["metrics"].values())

    def line(name: str, kind: str, score: str, records: list[dict[str, Any]], size: float, *more: str) -> list[str]:
        also = "/".join(f"{100 * mean(records, other):.1f}" for other in others)
        return [name, kind, score, also, f"{size / 1e6:.2f}", *more]

    rows, own = [], None
    if teacher["metrics"]:  # outputs in a file may be of train alone
        own = mean([teacher], first)
        rows = [line(f"teacher {Path(teacher['name']).name}", "-", f"{100 * own:.1f}", [teacher], teacher["bytes"],
                     "-", "-", "-")]  # fmt: skip
    for row, score in order:
        known = of_row[row.path]
        more = f"{known['milliseconds']['1']:.2f}", found.labelled(row, labelled), f"{len(row.values(task))}"
        kind, cell = row.kind.removeprefix("student "), table.mean_cell(score)
        rows.append(line(row.place, kind, cell, row.records(), known["bytes"], *more))
    said = advice(found, task, order, of_row, own, trials)
    title, *titles = (evaluate.TITLES.get(name, name) for name in (first, *others))
    return Grid(["row", "student", title, "/".join(titles), "MB", "ms a text", "labelled rows", "seeds"], rows), said


def seen_rows(teacher: Teacher, task: data.TaskData, max_length: int) -> str:
    """Where a teacher that came fine-tuned is right on train rows more often than on held-out ones, as if it had seen
    the former, by Fisher's exact test, one-sided: a sentence. Else ""."""
    kind, name = task.task.kind, task.reported[0]
    known = teacher.ready and name in teacher.predictions and len(task.labelled) > 0
    if not (known and kind.among(("classification",)) and not kind.several):
        return ""
    some = task.labelled.rows(permutation(len(task.labelled), 0, 0)[:SEEN])
    encoded = data.encode(teacher.tokenizer, some, task.task, max_length)
    logits, _ = kind.predict(teacher.model, encoded, teacher.tokenizer, max_length, evaluate.forward)
    said = {"train": (logits, some), "held-out": (teacher.predictions[name], task.splits[name])}
    right = {where: z.argmax(1) == np.array(split.labels) for where, (z, split) in said.items()}
    if (p := fisher_exact([[hits.sum(), (~hits).sum()] for hits in right.values()], "greater").pvalue) >= 0.01:
        return ""
    both = " but ".join(f"{100 * hits.mean():.1f}% of {len(hits):,} {where} rows" for where, hits in right.items())
    return f" The teacher is right on {both} (p {p:.1g}), as if it had been trained on the former."


def has_learnt_nothing(found: Table, task: str, row: Row) -> bool:
    """Whether a row gives one answer, or one of its students is not above guessing, by its interval over test items."""
    said = [values for cell in row.cells[task].values() for values in cell.items()[0].values()]
    one_answer = bool(said) and all(np.isclose(values, values[0], rtol=1e-6, atol=0).all() for values in said)
    scores = over_items(cast("Sample", found.sample([(row, 1.0)], task)))
    low = min(score.mean if math.isnan(score.error) else score.interval()[0] for score in scores)
    return one_answer or low <= table.guessing(row.records(task)[0])


def over_items(sample: Sample) -> list[Estimate]:
    """Seed by seed: the error is of test items alone, NaN where their part is not known."""
    if sample.influence is None:
        return [Estimate(value, math.nan, math.nan, math.nan) for value in sample.values.tolist()]
    n = sample.influence.shape[1]
    parts = (sample.influence.var(1, ddof=1) / n).tolist()
    return [Estimate(value, 0.0, part, n - 1) for value, part in zip(sample.values.tolist(), parts, strict=True)]


def likely_cause(row: Row, trials: dict[str, Any] | None, others: list[Row]) -> str:
    """Why a row has learnt nothing, as its trials say: its best rate is the first or the last of those that differ; or
    others, that learn, start from a teacher's layers and it does not; or it has seen too few examples."""
    if row.method == LINEAR:
        return "its features, words and characters"
    scores = [trial["mean"] for trial in trials["trials"] if trial["mean"] is not None] if trials else []
    if len(scores) < 2:
        return "the rate, of which one was tried"
    if trials and trials["at_edge"] and max(scores) - min(scores) > NOISE:
        ((name, value),) = trials["winner"].items()
        side = "highest" if value == max(trial["point"][name] for trial in trials["trials"]) else "lowest"
        return f"the rate: the {side} that was tried, {value:g}, was the best"
    if row.start == "random" and any(other.start != "random" and other.method != LINEAR for other in others):
        return "the start, random weights"
    return "the budget"


def macro_f1(row: Row) -> float | None:
    """The mean over seeds and splits; None where it is the first metric, or none."""
    values = [split["macro_f1"] for one in row.records() for split in one["metrics"].values() if "macro_f1" in split]
    return fmean(values) if values and row.records()[0]["primary"]["name"] != "macro_f1" else None


def gap_of(found: Table, task: str, best: Row, row: Row) -> Estimate | None:
    """The best row minus another one: its error is of seeds and test items, of one seed of the items alone."""
    if (sample := found.sample([(best, 1.0), (row, -1.0)], task)) is None:
        return None
    return estimate([sample]) if len(sample.values) > 1 else over_items(sample)[0]


def advice(found: Table, task: str, order: list[tuple[Row, Estimate]], of_row: dict[str, dict[str, Any]],
           teacher: float | None, trials: dict[str, Any]) -> str:  # fmt: skip
    """The best row, whether it can be told from its vanilla KD, or KD from the next row, and from the linear model, to
    which a tie goes; what the fastest and the smallest cost in points, and who has to learn for longer. Rows that have
    learnt nothing are named and take no part; of the others' gaps to the best p values have Holm's correction."""
    dead = [row for row, _ in order if has_learnt_nothing(found, task, row)]
    order = [(row, score) for row, score in order if row not in dead]
    causes = [f"{row.place} ({likely_cause(row, trials.get(row.place), [one for one, _ in order])})" for row in dead]
    if not order:
        said = "No row gives several answers and is above guessing: more --budget or --teacher-epochs."
        return f"{said} Likely causes: {', '.join(causes)}."
    (best, score), *_ = order
    gaps = {row.path: one for row, _ in order[1:] if (one := gap_of(found, task, best, row)) is not None}
    p = dict(zip(gaps, holm([one.p for one in gaps.values()]), strict=True))

    def tie(row: Row) -> str:
        """What a tie with the best is called; "" without one."""
        one = gaps.get(row.path)
        if one is None or (p[row.path] >= 0.05 and not math.isnan(one.p)):
            return "within the noise of"
        return "level with" * (abs(one.mean) < 5e-4)

    def gap(row: Row, side: str) -> str:
        if said := tie(row):
            return said
        return f"{100 * gaps[row.path].mean:.1f} points {side}"

    said = "One seed: another may give another order. " * (len(best.cells[task]) == 1)
    said += f"{best.place} has the highest score, {100 * score.mean:.1f}"
    baseline = Table(found.tasks, [row for row, _ in order], []).baseline(best, "vanilla KD")
    others = (row for row, _ in order[1:] if "vanilla KD" in (best.role, row.role))
    if rival := baseline or next(others, None):
        said += f", {gap(rival, 'above')} {'vanilla KD' if rival is baseline else rival.place}"
    if linear := next((row for row, _ in order if row.method == LINEAR), None):
        what = f"a linear model from {found.labelled(linear)} labelled rows"
        if linear is best:
            said += f"; it is {what}: no network is worth it"
        else:
            said += f"; it is {gap(linear, 'above')} {linear.place}, {what}"
            said += ", to which a tie goes" * bool(tie(linear))
    told = {best.path}
    for what, of in (("faster", lambda line: line["milliseconds"]["1"]), ("smaller", lambda line: line["bytes"])):
        least = min(of(of_row[row.path]) for row, _ in order)
        row = next(row for row, _ in order if of(of_row[row.path]) <= LIKE * least)  # the best of them
        times = of(of_row[best.path]) / of(of_row[row.path])
        if row.path not in told and times >= WORTH:
            told.add(row.path)
            said += f"; {row.place} is {times:.1f} times {what}, {gap(row, 'below')} it"
    by_class = {row.place: value for row, _ in order if (value := macro_f1(row)) is not None}
    if by_class and max(by_class.values()) > by_class[best.place] + 5e-4:
        first = max(by_class, key=lambda place: by_class[place])
        said += f". By macro F1, where small classes count as large ones, {first} is the best,"
        said += f" {100 * by_class[first]:.1f} against {100 * by_class[best.place]:.1f}"
    if dead:
        said += ". These are left out, as they are not shown to have learnt anything (one answer, or a seed not above"
        said += f" guessing); the likely cause is: {', '.join(causes)}"
    if teacher is None or best.records()[0]["primary"]["name"] == "agreement":
        return f"{said}."
    if teacher < score.mean:
        said += f". The teacher itself has {100 * teacher:.1f}: another, or more --teacher-epochs, may serve better"
    elif score.mean < FAR * teacher:
        said += f". The teacher has {100 * teacher:.1f}: students that learn for longer, --budget, may come closer"
    return said + "."


def arguments(words: list[str]) -> dict[str, str]:
    """`["--max-length", "64"]`, which every script is to have, as a file would say it."""
    if len(words) % 2 or not all(word.startswith("--") for word in words[::2]):
        raise BadInput(f"{' '.join(words)}: arguments of the scripts come as --name value")
    names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    return dict(zip(names, words[1::2], strict=True))


# --- size and time of students -------------------------------------------------------------------------------

PROFILE = """Size, latency, throughput and memory of every row of a matrix, measured in turn in one run.

    python -m bench profile quick                     # after `python -m bench run quick`
    python -m bench profile runs/quick --task pocket/rte
    python -m bench profile real_arena --data-dir data/glue

The students are those that the runs of one task and seed have saved, loaded as their cards say. Latency is of one text,
throughput of batches of 32, over texts of the reported split from token ids to logits: medians of passes that take
turns, so that a noisy machine is noisy for all. A document counts once, in however many windows it is read. Memory: the
peak of a process that loads a student and reads one batch, beyond that of a process that only imports the libraries.
All with the processors that OMP_NUM_THREADS names.
OUT/profile.json keeps it, and `python -m bench report` draws from it.
"""
NO_TOKENIZER = "none"  # of a linear model, whose clock begins at the text
BATCH, TURNS = 32, 5
PASSES = {1: 16, BATCH: 3}  # texts of a batch -> how many batches a pass has


def batches(task: data.TaskData, tokenizer: Any, max_length: int, size: int, count: int) -> Inputs:
    """The first texts of the reported split in batches, without labels; as they are if there is no tokenizer."""
    split = data.head(task.splits[task.reported[0]], size * count)
    if tokenizer is NO_TOKENIZER:
        return [{"texts": split.texts[i : i + size]} for i in range(0, len(split), size)]
    encoded = task.task.kind.tokenise(tokenizer, split, task.task, max_length)
    chunks = [list(range(i, min(i + size, len(encoded)))) for i in range(0, len(encoded), size)]
    return [{k: v for k, v in data.collate(tokenizer, encoded, c).items() if k != "labels"} for c in chunks]


def measure(rows: list[tuple[Row, Path]], task: data.TaskData, memory: bool = True) -> list[dict[str, Any]]:
    """Latency, throughput and, with `memory`, which takes a process for each, memory of each row's student."""
    calls: dict[int, dict[str, Callable[[], object]]] = {size: {} for size in PASSES}
    reported = len(task.splits[task.reported[0]])
    texts = {size: min(size * count, reported) for size, count in PASSES.items()}
    found: list[dict[str, Any]] = []
    for row, folder in rows:
        make = partial(load_student, folder, task.task.kind)
        model = make()
        linear = row.method == LINEAR
        tokenizer = NO_TOKENIZER if linear else AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        record = results.load(folder / "result.json")
        for size, count in PASSES.items():
            inputs = batches(task, tokenizer, record["settings"]["max_length"], size, count)
            calls[size][row.path] = partial(forward, model, inputs)
        student = {key: record["student"][key] for key in ("parameters", "bytes")}
        peak = memory_of(partial, load_and_forward, make, inputs[:1]) if memory else None
        found.append({"row": row.path, "memory": peak} | student)
    seconds = {size: medians(some, TURNS) for size, some in calls.items()}
    for line in found:
        line["milliseconds"] = {str(size): 1000 * seconds[size][line["row"]] * size / texts[size] for size in calls}
    return found


def students_of(found: Table, name: str | None) -> tuple[str, list[tuple[Row, Path]]]:
    """The task, and each row's run on it with the smallest seed whose student is still there."""
    task = name or next(iter(found.tasks))
    if task not in found.tasks:
        raise BadInput(f"--task {task}: must be of {', '.join(found.tasks)}")
    rows = []
    for row in (row for members in found.kinds().values() for row in members):
        places = [cell.folder for _, cell in sorted(row.cells.get(task, {}).items())]
        saved = "vocabulary.json" if row.method == LINEAR else "config.json"
        rows += [(row, place) for place in places if (place / saved).is_file()][:1]
    if not rows:
        raise BadInput(f"--task {task}: no student is saved there; result.json files alone cannot be profiled")
    return task, rows


def profile_text(found: Table, report: dict[str, Any]) -> str:
    """The table in Markdown."""
    hardware, lines = report["environment"]["hardware"], {line["row"]: line for line in report["rows"]}
    header = ["parameters", "MB on disk", "ms, batch 1", f"ms, batch {BATCH}", "texts/s", "MB of memory", "script"]

    def cells(row: Row) -> list[str]:
        line = lines[row.path]
        one, many = line["milliseconds"]["1"], line["milliseconds"][str(BATCH)]
        return [f"{line['parameters'] / 1e6:.2f}M", f"{line['bytes'] / 1e6:.2f}", f"{one:.2f}", f"{many:.1f}",
                f"{1000 * BATCH / many:.0f}", f"{line['memory'] / 1e6:.0f}", row.method]  # fmt: skip

    made = table.grid(found, header, cells, [row for row in found.rows if row.path in lines])
    said = (
        f"{report['task']}, {hardware['device']}, {hardware['threads']} thread(s); medians of passes that take turns."
    )
    return f"{said}\n\n{made.markdown()}"


# --- the commands --------------------------------------------------------------------------------------------


def main(argv: list[str]) -> None:
    parser = Parser("arena", __doc__)
    parser.add_argument("task", help="a file, a folder, hub:REPO, or the name of a task")
    parser.add_argument("--teacher", default="pocket", help="as for the scripts (default: pocket)")
    parser.add_argument("--student", default=MAIN, help=f"layers x width (default: {MAIN})")
    parser.add_argument("--rows", default=DEFAULT, help=f"of bench/matrices/arena.toml, or all (default: {DEFAULT})")
    parser.add_argument("--budget", default="6400", help="examples through each student (default: 6400)")
    parser.add_argument("--seeds", default="0,1,2", help="with commas (default: 0,1,2)")
    parser.add_argument("--rates", type=int, choices=(1, 3), default=3, help="that each row tries (default: 3)")
    parser.add_argument("--out", default="runs/arena", help="where the task's folder is put (default: runs/arena)")
    add_engine(parser)
    options, others = parser.parse_known_args(argv)
    given = arguments(others)
    if taken := [name for name in ("tune", "save_student") if name in given]:
        raise BadInput(f"--{dashed(taken[0])}: is the arena's own, which measures the students that it saves")
    task = data.load(options.task, given.get("data_dir"), columns=Columns.of({"teacher": options.teacher} | given))
    if task.source != "pocket" and parse_model(options.teacher)[0] in POCKET and "teacher_outputs" not in given:
        raise BadInput(f"--teacher {options.teacher}: reads only the pocket suite; give a hub id or a model folder")
    if task.task.kind.written or task.task.kind.causal:
        raise BadInput(f"{options.task}: is {task.task.kind}; the arena compares students that label texts")
    # a data set's name has a digest: one that has changed is another
    out = f"{Path(options.out).resolve()}/{re.sub(r'[^A-Za-z0-9._-]+', '-', task.name)}"
    wanted, trials = table_of(options, task.task.kind, given, len(task.labelled) > 0), dict[str, Any]()
    if options.rates > 1 and "lr" not in given:
        each = seconds_of(base_of(given, options.teacher), options.student, task, int(given.get("max_length", 128)))
        search = search_of(wanted, task.task.kind, out)
        first = search.first()
        print(f"rates are tried (--rates 1: none): {minutes(first, each)}; rows:"
              f" {minutes(build(wanted, out, 'arena').jobs, each)}; the teacher comes on top", flush=True)  # fmt: skip
        make_teachers(first, options)
        search.carry_out(first, options)
        tried = search.found()
        sweep.show(tried)
        trials = tried["rows"]
        wanted["rows"] = [row | (trials[row["name"]]["winner"] or {}) for row in wanted["rows"]]
    plan = build(wanted, out, "arena")
    make_teachers([job for job in plan.jobs if not run.made_by(plan.out, job)], options)
    run.carry_out(plan, options)
    found = load([plan.out])
    _, students = students_of(found, task.name)
    measured = measure(students, task, memory=False)
    grid, said = answer(found, task.name, measured, trials, len(task.labelled))
    networks = [job.args for job in plan.jobs if not (is_linear(job) or job.args.teacher_outputs)]
    if found.missing:
        said = f"No advice: {len(found.missing)} line(s) below say what has failed; it would stand on the rest alone."
    elif networks and task.task.name not in TASKS:
        said += seen_rows(get_teacher(networks[0], task), task, networks[0].max_length)
    comparable = found.tasks[task.name]["comparable"]
    report = {"comparable": comparable, **grid._asdict(), "said": said, "environment": results.environment()}
    results.write_json(plan.out / "arena.json", report)
    print(f"\n{comparable}\n{results.columns(grid.rows, grid.header)}\n\n{said}")
    print(f"class by class: python -m bench report {plan.out}")
    for line in found.missing:
        print(f"failed or missing: {line}")
    if found.missing:
        raise SystemExit(1)


def profile(argv: list[str]) -> None:
    """The command `profile`."""
    parser = Parser("profile", PROFILE)
    parser.add_argument("results", nargs="+", help="files of matrices, or folders with runs")
    parser.add_argument("--task", help="the task whose students are measured (default: the first)")
    parser.add_argument("--data-dir", help="folder with local data, as for the scripts")
    options = parser.parse_args(argv)
    folders = [folder_of(name) for name in options.results]
    found = load(folders, table.budget_of(options.results))
    name, rows = students_of(found, options.task)
    measured = measure(rows, data.load(name, options.data_dir))
    report = {"task": name, "rows": measured, "environment": results.environment(on_cpu=True)}
    print(profile_text(found, report))
    path = next(folder for folder in folders if folder.is_dir()) / "profile.json"
    results.write_json(path, report)
    print(f"saved: {path}")
