"""The papers' claims: which of them held here. The tables of docs/claims.md, from bench/claims.toml.

The head of that file says what its keys mean; `python -m bench readme` writes the tables. The word of a claim follows
from a 95% interval, or from a count, alone.
"""

from __future__ import annotations

import functools
import json
import math
import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from bench import sizes, table
from bench.cli import FOLDER
from bench.cli import markdown as grid
from common import results

WORDS = ("held", "did not hold", "not distinguishable", "not tested")
COLUMNS = ("pocket", "real")
GROUPS = {"rows", "score"}  # keys that are no part of a row's name
RIVALS = ("sdpa", "windows", "eager")  # full attention, in the table by length
Scores = dict[str, dict[str, dict[int, float]]]  # row -> task -> seed -> value


@functools.cache
def read() -> dict[str, Any]:
    return tomllib.loads((results.ROOT / "bench" / "claims.toml").read_text(encoding="utf-8"))


PAPERS = tuple(dict.fromkeys(claim["paper"] for claim in read()["claims"]))


# --- checked-in results ------------------------------------------------------------------------------------------


@functools.cache
def scores(name: str) -> Scores:
    """What a checked-in result holds, a row's analyses as ROW/NAME; {} if there is none yet."""
    path, found = FOLDER / f"{name}.json", Scores()
    if not path.is_file():
        return found
    report = json.loads(path.read_text(encoding="utf-8"))
    if "digest" in report:
        rows = table.load([path]).rows
        for row in rows:
            alone = [other.place for other in rows].count(row.place) == 1
            label = row.place if alone else f"{row.place}/{row.variant}"
            for record in row.all():
                values = {f"{label}/{key}": value for key, value in record["analysis"].items()}
                for key, value in {label: record["primary"]["value"], **values}.items():
                    found.setdefault(key, {}).setdefault(table.short(record["task"]), {})[record["seed"]] = value
        return found
    for task, entry in by_task(report).items():
        for key, seeds in leaves(entry):
            found.setdefault(key, {})[table.short(task)] = dict(enumerate(seeds))
    return found


def by_task(report: dict[str, Any]) -> dict[str, Any]:
    """Task -> what a file of another layout holds of it: of kernels by model, of attentions each beside its rivals."""
    if "machines" in report:
        found = [entry["ratios"] for entry in report["machines"].values()]
        shared = set.intersection(*(set(ratios) for ratios in found))
        return {key: {key.split(", ")[1]: float(np.mean([r[key] for r in found]))} for key in sorted(shared)}
    if "shapes" in report:
        entries = report["shapes"]["2x256"]["attentions"]
        rivals = {name: entries[name] for name in RIVALS}
        return {name: entry | rivals for name, entry in entries.items() if name not in RIVALS}
    return report.get("tasks") or {"": report["models"]}


def leaves(node: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, list[float]]]:
    """(row, its values): numbers and lists of numbers, by the keys above them."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, name if key in GROUPS else (*name, key))
    else:
        values = node if isinstance(node, list) else [node]
        if all(isinstance(value, int | float) for value in values):
            yield "/".join(name), values


# --- answers -----------------------------------------------------------------------------------------------------


def side(found: Scores, name: str, task: str) -> dict[int, float]:
    """Seed -> value of a row, or of the difference "A - B"."""
    first, *rest = (found.get(part, {}).get(task, {}) for part in name.split(" - "))
    return {s: value - sum(r[s] for r in rest) for s, value in first.items() if all(s in r for r in rest)}


def correlations(found: Scores, start: str, other: str, task: str) -> list[float]:
    """Of each seed the rank correlation of score and an analysis, over all rows that begin so."""
    rows = [name for name in found if name.startswith(start) and task in found.get(f"{name}/{other}", {})]
    pairs = [(found[name][task], found[f"{name}/{other}"][task]) for name in rows]
    seeds = sorted(set.intersection(*(a.keys() & b.keys() for a, b in pairs))) if pairs else []
    return [float(stats.spearmanr([a[s] for a, _ in pairs], [b[s] for _, b in pairs]).statistic) for s in seeds]


def samples(found: Scores, answer: dict[str, Any]) -> list[list[float]]:
    """What is judged, paired by seed: one sample for each task; or one sample with a value for each task."""
    values = []
    for task in answer.get("tasks") or sorted({task for row in found.values() for task in row}):
        if "falls" in answer:
            values.append(correlations(found, answer["falls"], answer["with"], task))
            continue
        left = side(found, answer.get("more") or answer["less"], task)
        right = side(found, answer["than"], task) if "than" in answer else dict.fromkeys(left, 1.0)
        pairs = [(left[seed], right[seed]) for seed in sorted(left.keys() & right.keys())]
        values.append([a / b if "times" in answer else a - b for a, b in pairs])
    values = [sample for sample in values if sample]
    return [[sample[0] for sample in values]] if values and answer.get("paired") == "tasks" else values


def word(found: table.Interval, more: bool, bound: float = 0.0) -> str:
    """What a claim is called that something is more, or less, than a bound."""
    if found.low is None or found.high is None or math.isnan(found.mean):
        return "not tested"
    if found.low <= bound <= found.high:
        return "not distinguishable"
    return "held" if (found.mean > bound) == more else "did not hold"


def shown(found: table.Interval, answer: dict[str, Any]) -> str:
    """The figure and its interval: points, times, or a rank correlation."""
    unit, form, name = 100, "+.1f", ""
    if "times" in answer:
        unit, form, name = 1, ".2f", " times"
    elif "falls" in answer:
        unit, form, name = 1, "+.2f", " rank correlation"
    if found.low is None or found.high is None:
        return f"{unit * found.mean:{form}}{name} (one seed)"
    ends = f" [{unit * found.low:{form}}, {unit * found.high:{form}}]"
    return f"{unit * found.mean:{form}}{ends if found.low < found.high else ''}{name}"


@functools.cache
def counted(method: str, rows: str) -> tuple[str, str]:
    """The word for sizes, and how many are as printed."""
    cells = [cell for cell in sizes.CELLS[method]() if cell.row.endswith(rows) and cell.printed != "-"]
    printed = [cell.printed.replace(",", "") for cell in cells]
    # a whole number is exact; the last digit of another may be rounded or cut off
    off = [abs(cell.found - float(p)) for cell, p in zip(cells, printed, strict=True)]
    same = [d == 0 or d < 0.1 ** len(p.partition(".")[2]) < 1 for d, p in zip(off, printed, strict=True)]
    figure = f"{sum(same)} of {len(same)} figures as printed; `bench sizes {method}`"
    return "held" if all(same) else "did not hold", figure


def judged(answer: dict[str, Any]) -> tuple[str, str]:
    """(the word, our figure and where it is from)."""
    if "counted" in answer:
        return counted(answer["results"], answer["counted"])
    found, source = scores(answer["results"]), f"; `{answer['results']}`"
    values = samples(found, answer)
    if not values:
        return "not tested", f"no result yet{source}"
    interval = table.interval(*values)
    if answer.get("exact"):
        interval = table.Interval(interval.mean, interval.mean, interval.mean)
    names = [part for key in ("more", "less", "than") if key in answer for part in answer[key].split(" - ")]
    tasks = answer.get("tasks")
    loose = [name for name in names for task, seeds in found[name].items()
             if (not tasks or task in tasks) and table.untrained(list(seeds.values()))]  # fmt: skip
    source += f", older: {answer['older']}" if "older" in answer else ""
    said = word(interval, "more" in answer, answer.get("times", answer.get("by", 0) / 100))
    return said, f"{shown(interval, answer)}{' †' * bool(loose)}{source}"


def answers(claim: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Column -> (word, figure). What is counted has no need of the other column."""
    exact = any({"counted", "exact"} & answer.keys() for answer in claim.get("answers", []))
    found = dict.fromkeys(COLUMNS, ("-" if exact else "not tested", ""))
    if "takes" in claim:
        found["pocket"] = "not tested", f"takes {claim['takes']}"
    for answer in claim.get("answers", []):
        column = answer.get("column") or read()["results"][answer["results"]]["column"]
        found[column] = judged(answer)
    return found


# --- tables ------------------------------------------------------------------------------------------------------


def of_paper(paper: str) -> str:
    rows = []
    for claim in read()["claims"]:
        if claim["paper"] == paper:
            cells = [f"**{said}**: {text}" if text else said for said, text in answers(claim).values()]
            rows.append([claim["claim"], claim["published"], *cells])
    return grid(["claim", "in the paper", *COLUMNS], rows)


def counts() -> str:
    """How many claims of each paper have which word."""
    found = {p: [answers(claim) for claim in read()["claims"] if claim["paper"] == p] for p in PAPERS}
    found["all"] = [one for mine in found.values() for one in mine]
    rows = [
        [paper, str(len(mine)), *(str(sum(one[c][0] == w for one in mine)) for c in COLUMNS for w in WORDS)]
        for paper, mine in found.items()
    ]
    return grid(["paper", "claims", *(f"{column}: {w}" for column in COLUMNS for w in WORDS)], rows)


def sources() -> str:
    """Where our figures are from."""
    rows = []
    for name, entry in read()["results"].items():
        found = scores(name)
        seeds = max((len(values) for row in found.values() for values in row.values()), default=0)
        tasks = ", ".join(sorted({task for row in found.values() for task in row})) if seeds > 1 else "-"
        what = [entry["what"], tasks if found else "no result yet", str(seeds) if seeds > 1 else "-"]
        rows.append([f"`{name}`", f"`{entry['command']}`", *what])
    return grid(["result", "command", "what was run", "tasks", "seeds"], rows)
