"""Size, latency, throughput and memory of every row of a matrix, measured in turn in one run.

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

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from bench.cli import Parser
from bench.records import folder_of
from bench.rows import LINEAR, Row, Table, load
from bench.speed import Inputs, forward, load_and_forward, load_student, medians, memory_of
from bench.table import budget_of, grid
from common import data, results
from common.args import BadInput

NO_TOKENIZER = "none"  # of a linear model, whose clock begins at the text
LATENCY_TEXTS, BATCH, BATCHES, TURNS = 16, 32, 3, 5


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
    calls: dict[int, dict[str, Callable[[], object]]] = {1: {}, BATCH: {}}
    reported = len(task.splits[task.reported[0]])
    texts = {size: min(size * count, reported) for size, count in ((1, LATENCY_TEXTS), (BATCH, BATCHES))}
    found: list[dict[str, Any]] = []
    for row, folder in rows:
        model = load_student(folder, task.task.kind)
        linear = row.method == LINEAR
        tokenizer = NO_TOKENIZER if linear else AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        record = results.load(folder / "result.json")
        for size, count in ((1, LATENCY_TEXTS), (BATCH, BATCHES)):
            inputs = batches(task, tokenizer, record["settings"]["max_length"], size, count)
            calls[size][row.path] = partial(forward, model, inputs)
        student = {key: record["student"][key] for key in ("parameters", "bytes")}
        peak = memory_of(partial, load_and_forward, folder, task.task.kind, inputs[:1]) if memory else None
        found.append({"row": row.path, "memory": peak} | student)
    seconds = {size: medians(some, TURNS) for size, some in calls.items()}
    for line in found:
        line["milliseconds"] = {str(size): 1000 * seconds[size][line["row"]] * size / texts[size] for size in calls}
    return found


def chosen(found: Table, name: str | None) -> tuple[str, list[tuple[Row, Path]]]:
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


def text(found: Table, report: dict[str, Any]) -> str:
    """The table in Markdown."""
    hardware, lines = report["environment"]["hardware"], {line["row"]: line for line in report["rows"]}
    header = ["parameters", "MB on disk", "ms, batch 1", f"ms, batch {BATCH}", "texts/s", "MB of memory", "script"]

    def cells(row: Row) -> list[str]:
        line = lines[row.path]
        one, many = line["milliseconds"]["1"], line["milliseconds"][str(BATCH)]
        return [f"{line['parameters'] / 1e6:.2f}M", f"{line['bytes'] / 1e6:.2f}", f"{one:.2f}", f"{many:.1f}",
                f"{1000 * BATCH / many:.0f}", f"{line['memory'] / 1e6:.0f}", row.method]  # fmt: skip

    made = grid(found, header, cells, [row for row in found.rows if row.path in lines])
    said = (
        f"{report['task']}, {hardware['device']}, {hardware['threads']} thread(s); medians of passes that take turns."
    )
    return f"{said}\n\n{made.markdown()}"


def main(argv: list[str]) -> None:
    parser = Parser("profile", __doc__)
    parser.add_argument("results", nargs="+", help="files of matrices, or folders with runs")
    parser.add_argument("--task", help="the task whose students are measured (default: the first)")
    parser.add_argument("--data-dir", help="folder with local data, as for the scripts")
    options = parser.parse_args(argv)
    folders = [folder_of(name) for name in options.results]
    found = load(folders, budget_of(options.results))
    name, rows = chosen(found, options.task)
    measured = measure(rows, data.load(name, options.data_dir))
    report = {"task": name, "rows": measured, "environment": results.environment(on_cpu=True)}
    print(text(found, report))
    path = next(folder for folder in folders if folder.is_dir()) / "profile.json"
    results.write_json(path, report)
    print(f"saved: {path}")
