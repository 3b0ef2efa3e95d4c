"""Which small model to ship for a task: the rows of bench/arena.toml on it, measured in turn, and what follows.

    python -m bench arena tickets.csv --teacher MODEL --student 3x384
    python -m bench arena tickets.csv --text body --label team --teacher MODEL --student 3x384 --budget 6400 --seeds 0
    python -m bench arena pocket/rte --rows undistilled,kd,cmow-kd --max-length 32    # further arguments of the scripts

A task is a file, a folder, hub:REPO or a name, as for the scripts (docs/data.md). Every row has the arguments that
bench/arena.toml gives it, the scripts' learning rates and the budget; rows of its main shape have --student, those of
half its width half of that. Rows start from the teacher's layers if the student is as wide as the teacher, else from
random weights, and rows that cannot are left out. The score is the primary metric on the reported split, in percent,
with a 95% interval over seeds; milliseconds are those of one text, by `python -m bench profile`. Everything goes to
runs/arena/, the table also as arena.json, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bench import profile, run, table
from bench.cli import Parser, add_engine, check_engine, markdown
from bench.matrix import Matrix, build, read_file
from bench.table import Grid, Interval, Row, Table
from common import data, models, results
from common.args import BadInput, split_list, student_shape
from common.tasks import Columns, is_data_set

FILE = results.ROOT / "bench" / "arena.toml"
MAIN, NARROW = "2x128", "2x64"  # the shapes of its rows
WORTH = 1.5  # so many times faster, or smaller, is worth a word
DEFAULT = "undistilled,kd,mc3kd,cka-kd,1bit-xtc,2bit-xtc,narrow-kd,cmow-undistilled,cmow-kd"


def rows_for(options: Any, wide: bool) -> list[dict[str, Any]]:
    """The rows that were asked for, with this student; `wide`: as wide as the teacher, whose layers it can have."""
    known = {row["name"]: row for row in read_file(FILE)["rows"]}
    names = list(known) if options.rows == "all" else split_list(options.rows)
    if wrong := [name for name in names if name not in known]:
        raise BadInput(f"--rows {wrong[0]}: must be all, or of {', '.join(known)}")
    layers, width = student_shape(options.student)
    shapes = {MAIN: options.student, NARROW: f"{layers}x{max(8, width // 16 * 8)}"}
    rows = []
    for row in (known[name] for name in names):
        needs = row["method"] == "xtc" or "pkd" in row["variant"] or row["method"] == "efficient_attention"
        if (needs and not wide) or ("pool" in row and not options.teacher.startswith("pocket")):
            print(f"left out: {row['name']}, which needs {'a pool of teachers' if 'pool' in row else 'that width'}")
            continue
        start = {} if wide or row.get("init") != "pretrained" else {"init": "random"}
        apart = {key: value for key, value in row.items() if key != "tune"}
        rows.append(apart | start | {"student": shapes.get(row["student"], row["student"])})
    return rows


def plan_of(options: Any, given: dict[str, str], out: str) -> Matrix:
    """The matrix, in memory; its commands run in the repository, so that places are whole."""

    def whole(name: str) -> str:
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() else name

    width = models.load_config(models.source(options.teacher)).hidden_size
    seeds = split_list(options.seeds)
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise BadInput(f"--seeds {options.seeds}: must be numbers with commas, as 0,1,2")
    settings = {
        "tasks": [whole(options.task) if is_data_set(options.task) else options.task],
        "seeds": [int(seed) for seed in seeds],
        "budget": options.budget,
        "teacher": whole(options.teacher),
        "rows": rows_for(options, student_shape(options.student)[1] == width),
    }
    return build(given | settings, out, "arena")


def answer(found: Table, measured: list[dict[str, Any]]) -> tuple[Grid, str]:
    """The table that answers the question, the best first, and one sentence that follows from it."""
    (task, record), *_ = found.tasks.items()
    of_row = {line["row"]: line for line in measured}
    scores = {row.path: (row, table.interval(row.values(task))) for row in found.rows if row.path in of_row}
    order = sorted(scores.values(), key=lambda pair: -pair[1].mean)
    others = [name for name in next(iter(record["metrics"].values())) if name != record["primary"]["name"]]

    def also(metrics: dict[str, dict[str, float]]) -> str:
        return "/".join(f"{100 * sum(m[name] for m in metrics.values()) / len(metrics):.1f}" for name in others)

    def cells(row: Row, score: Interval) -> list[str]:
        line = of_row[row.path]
        return [row.place, row.kind.removeprefix("student "), table.mean_cell(score), also(row.all()[0]["metrics"]),
                f"{line['bytes'] / 1e6:.2f}", f"{line['milliseconds']['1']:.2f}",
                f"{row.typical('ledger', 'seconds'):.0f}", str(len(row.values(task)))]  # fmt: skip

    teacher = record["teacher"]
    name = record["primary"]["name"]
    value = sum(split[name] for split in teacher["metrics"].values()) / len(teacher["metrics"])
    first = [f"teacher {Path(teacher['name']).name}", "-", f"{100 * value:.1f}", also(teacher["metrics"]),
             f"{teacher['bytes'] / 1e6:.2f}", "-", "-", "-"]  # fmt: skip
    header = ["row", "student", name, "/".join(others), "MB", "ms a text", "training s", "seeds"]
    said = advice(order, of_row, task)
    if value < order[0][1].mean:
        said += f" The teacher itself has {100 * value:.1f}: it has to learn for longer, --teacher-epochs."
    return Grid(header, [first, *(cells(*pair) for pair in order)]), said


def advice(order: list[tuple[Row, Interval]], of_row: dict[str, dict[str, Any]], task: str) -> str:
    """The best row, whether it can be told from vanilla KD, or KD from the next row, and what the fastest and the
    smallest cost in points."""
    (best, score), *_ = order
    constant = min(m.get("majority", -1) for record in best.all() for m in record["metrics"].values())
    if best.all()[0]["primary"]["name"] == "accuracy" and score.mean <= constant:
        return (
            f"No row is above {100 * constant:.1f}, always the largest class: give --budget or --teacher-epochs more."
        )
    said = f"{best.place} has the highest score, {100 * score.mean:.1f}"
    rivals = [row for row, _ in order[1:] if best.role == "vanilla KD" or row.role == "vanilla KD"]
    if rivals:
        said += f", {gap(best, rivals[0], task)} {rivals[0].place if best.role else 'vanilla KD'}"
    told = {best.path}
    for what, of in (("faster", lambda line: line["milliseconds"]["1"]), ("smaller", lambda line: line["bytes"])):
        row = min((row for row, _ in order), key=lambda row: of(of_row[row.path]))
        times = of(of_row[best.path]) / of(of_row[row.path])
        if row.path not in told and times >= WORTH:
            told.add(row.path)
            said += f"; {row.place} is {times:.1f} times {what}, {gap(row, best, task)} it"
    return said + "."


def gap(row: Row, other: Row, task: str) -> str:
    """How far a row is above another, paired by seed."""
    ours, theirs = row.records[task], other.records[task]
    pairs = [ours[s]["primary"]["value"] - theirs[s]["primary"]["value"] for s in sorted(ours.keys() & theirs.keys())]
    over = table.interval(pairs or [0.0])
    if over.word == "not distinguishable":
        return "within the noise of"
    side = f"{100 * abs(over.mean):.1f} points {'above' if over.mean > 0 else 'below'}"
    return side if over.word else f"{side} (one seed: it may be noise)"


def text(report: dict[str, Any]) -> str:
    """A report that was kept, in Markdown."""
    hardware = report["environment"]["hardware"]
    how = f"`{report['comparable']}`; {hardware['device']}, {hardware['threads']} thread(s)."
    return f"{how}\n\n{markdown(report['header'], report['rows'])}\n\n{report['said']}"


def arguments(words: list[str]) -> dict[str, str]:
    """`["--max-length", "64"]`, which every script is to have, as a file would say it."""
    names = [name.removeprefix("--").replace("-", "_") for name in words[::2]]
    if len(words) % 2 or not all(word.startswith("--") for word in words[::2]):
        raise BadInput(f"{' '.join(words)}: arguments of the scripts come as --name value")
    return dict(zip(names, words[1::2], strict=True))


def main(argv: list[str]) -> None:
    parser = Parser("arena", __doc__)
    parser.add_argument("task", help="a file, a folder, hub:REPO, or the name of a task")
    parser.add_argument("--teacher", default="pocket", help="as for the scripts (default: pocket)")
    parser.add_argument("--student", default=MAIN, help=f"layers x width (default: {MAIN})")
    parser.add_argument("--rows", default=DEFAULT, help=f"of bench/arena.toml, or all (default: {DEFAULT})")
    parser.add_argument("--budget", default="6400", help="examples through each student (default: 6400)")
    parser.add_argument("--seeds", default="0,1,2", help="with commas (default: 0,1,2)")
    parser.add_argument("--out", help="where results go (default: runs/arena/ and the task's name)")
    add_engine(parser)
    options, others = parser.parse_known_args(argv)
    check_engine(options)
    given = arguments(others)
    task = data.load(options.task, given.get("data_dir"), columns=Columns.of(given))
    plan = plan_of(options, given, options.out or f"runs/arena/{re.sub(r'[^A-Za-z0-9._-]+', '-', task.name)}")
    run.carry_out(plan, options)
    found = table.load([plan.out])
    _, rows = profile.chosen(found, [plan.out], None)
    grid, said = answer(found, profile.measure(rows, task, memory=False))
    (record,) = found.tasks.values()
    report = {"comparable": record["comparable"], **grid._asdict(), "said": said, "environment": results.environment()}
    results.write_json(plan.out / "arena.json", report)
    print(f"\n{record['comparable']}\n{results.columns(grid.rows, grid.header)}\n\n{said}")
    for line in found.missing:
        print(f"failed or missing: {line}")
    if found.missing:
        raise SystemExit(1)
