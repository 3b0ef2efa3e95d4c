"""What a person sees while a matrix runs: a line for each command that has ended, and on a terminal, below them and in
place, what runs, how far it is, what is left, and the table of scores as it fills."""

from __future__ import annotations

import glob
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import results
from common.args import BadInput, parse_budget

if TYPE_CHECKING:
    from bench.matrix import Job

REDRAW = 1.0  # seconds


class Progress:
    def __init__(self, out: Path, jobs: list[Job]) -> None:
        self.out, self.live = out, sys.stdout.isatty()
        self.tasks = list(dict.fromkeys(job.task for job in jobs))
        self.scores: dict[str, dict[str, list[float]]] = {label(job): {} for job in jobs}
        self.ended = self.lines = 0
        self.began, self.drawn = time.monotonic(), -REDRAW

    def add(self, job: Job, paths: list[str]) -> str:
        """Put the scores of a command into the table; returns them for its line."""
        self.ended += 1
        try:
            primary = [results.load(self.out / path)["primary"] for path in paths]
        except BadInput:
            return ""
        from common import evaluate  # which imports torch

        values = [p["value"] * (1 if p["name"] == "perplexity" else 100) for p in primary]
        self.scores[label(job)].setdefault(job.task, []).extend(values)
        return f"{evaluate.TITLES[primary[0]['name']]} {', '.join(f'{value:.1f}' for value in values)}, "

    def tell(self, job: Job, said: str, remaining: int, left: str) -> None:
        """The line of a command that has ended."""
        self.ended += said.startswith("FAILED")
        self.clear()
        print(f"[{self.ended}/{self.ended + remaining}] {job.name}: {said}; {left}", flush=True)

    def show(self, running: list[tuple[Job, float]], waiting: int, left: str) -> None:
        """Draw what is below the lines, again if a second has gone by. In a log there is nothing below."""
        now = time.monotonic()
        if not self.live or now - self.drawn < REDRAW:
            return
        width, height = shutil.get_terminal_size()
        total = self.ended + len(running) + waiting
        head = [f"{self.ended}/{total} done in {(now - self.began) / 60:.0f} min; {left}"]
        head += [f"  {now - started:.0f} s{steps(job)}: {job.name}" for job, started in running]
        rows = [[row, *(cell(scores.get(task)) for task in self.tasks)] for row, scores in self.scores.items()]
        table = results.columns(rows, ["mean (seeds)", *(task.removeprefix("pocket/") for task in self.tasks)])
        lines = [*head, "", *table.splitlines()][: height - 2]
        self.clear()
        print("\n".join(line[: width - 1] for line in lines), flush=True)
        self.lines, self.drawn = len(lines), now

    def clear(self) -> None:
        """Take away what was drawn below the lines."""
        if self.lines:
            sys.stdout.write(f"\x1b[{self.lines}F\x1b[J")
            self.lines, self.drawn = 0, -REDRAW

    def close(self) -> None:
        """Leave the last drawing where it is."""
        self.lines = 0


def label(job: Job) -> str:
    """The row of the table: a variant, where a row has several, and a trial of a sweep have one of their own."""
    return f"{job.row} {job.part}".rstrip()


def cell(values: list[float] | None) -> str:
    return f"{sum(values) / len(values):.1f} ({len(values)})" if values else "-"


def steps(job: Job) -> str:
    """How far the run is that a command has logged last; nothing before its first line, or of a budget in epochs."""
    # a data set of one's own has a folder of its name and a digest, a variant one of its name and its bits
    folders = f"{glob.escape(Path(job.task).name)}*/*{job.args.variant}*/seed{job.seed}"
    logs = Path(job.args.out_dir).glob(f"**/{folders}/log.jsonl")
    counted, amount = parse_budget(job.args.budget)
    try:
        log = max(logs, key=lambda path: path.stat().st_mtime)
        record: dict[str, Any] = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        if counted == "paper" or (log.parent / "result.json").exists():
            return ""
        last = amount // job.args.batch_size
        return f", step {record['step']} of {last}" if record["step"] < last else ", evaluating"
    except (ValueError, OSError, IndexError, KeyError):
        return ""
