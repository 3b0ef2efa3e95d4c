"""The papers' claims: which of them held here. The tables of docs/claims.md, from bench/published/claims.toml.

The head of that file says what its keys mean; `python -m bench pages` writes the tables. The word of a claim follows
from a 95% interval over seeds, and test items where predictions are kept; ratios of medians say it where they agree.
Counts, and finished measurements, stand there with their word. A † cell decides nothing.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanrho

from bench import FOLDER, saved, stats
from bench.records import KEPT
from bench.table import Grid, Row, Table, load, on_matched, short, teacher_score
from common import results
from common.args import BadInput
from common.layers.attention import ATTENTIONS

WORDS = ("held", "did not hold", "not distinguishable", "not tested")
COLUMNS = ("pocket", "real")
TITLES = {"mc3kd": "MC3KD", "xtc": "XTC", "cmow": "CMOW", "efficient_attention": "efficient attention", "cka": "CKA"}
Scores = dict[str, dict[str, dict[int, float]]]  # row -> task -> seed -> value


@functools.cache
def read() -> dict[str, Any]:
    return tomllib.loads((results.ROOT / "bench" / "published" / "claims.toml").read_text(encoding="utf-8"))


PAPERS = tuple(dict.fromkeys(claim["paper"] for claim in read()["claims"]))


# --- checked-in results ------------------------------------------------------------------------------------------


@functools.cache
def kept(name: str) -> Table | None:
    """The table of a checked-in result, of NAME#matched with the matched half of mnli alone; None if there is none."""
    whole, half, _ = name.partition("#")
    if half:
        return on_matched(found) if (found := kept(whole)) else None
    path = FOLDER / f"{name}{KEPT}"
    return load([path]) if path.is_file() else None


@functools.cache
def rows(name: str) -> dict[str, Row]:
    """Its rows by their place in the matrix, with the variant where that has several; rows that have another budget
    alone, too."""
    if (whole := kept(name)) is None:
        return {}
    rungs = [row for rung in whole.ladder.values() for row in rung.rows]
    found = whole.rows + [row for row in rungs if not whole.same(row)]
    places = [row.place for row in found]
    named = {row.place if places.count(row.place) == 1 else f"{row.place}/{row.variant}": row for row in found}
    if len(named) < len(found):
        raise BadInput(f"{name}: two of its rows have one name; give each a name of its own in its file")
    return named


@functools.cache
def scores(name: str) -> Scores:
    """What it holds, a row's analyses as ROW/NAME."""
    found = Scores()
    for label, row in rows(name).items():
        for record in row.records():
            values = {f"{label}/{key}": value for key, value in record["analysis"].items()}
            for key, value in {label: record["primary"]["value"], **values}.items():
                found.setdefault(key, {}).setdefault(short(record["task"]), {})[record["seed"]] = value
    return found


# --- answers -----------------------------------------------------------------------------------------------------


def sides(answer: dict[str, Any]) -> list[tuple[str, float]]:
    """The rows that a difference is made of, each with its sign: "A - B" is a difference itself."""
    first = answer.get("more") or answer["less"]
    found = [(name, 1.0 if i == 0 else -1.0) for i, name in enumerate(first.split(" - "))]
    return found + [(name, -1.0 if i == 0 else 1.0) for i, name in enumerate(answer["than"].split(" - "))]


def sample(answer: dict[str, Any], task: str) -> stats.Sample | None:
    """What is judged on a task, paired by seed; and by test item, of rows whose predictions are kept."""
    found, parts = scores(answer["results"]), sides(answer)
    seeds = sorted(set.intersection(*(set(found.get(name, {}).get(task, {})) for name, _ in parts)))
    if not seeds:
        return None
    if "times" in answer:
        (left, _), (right, _) = parts
        return stats.Sample(np.array([found[left][task][seed] / found[right][task][seed] for seed in seeds]))
    named, whole = rows(answer["results"]), kept(answer["results"])
    if whole and all(name in named for name, _ in parts):
        full = next(name for name in whole.tasks if short(name) == task)
        return whole.sample([(named[name], sign) for name, sign in parts], full)
    return stats.Sample(np.array([sum(sign * found[name][task][seed] for name, sign in parts) for seed in seeds]))


def falls(answer: dict[str, Any], task: str) -> stats.Sample | None:
    """Of each seed the rank correlation of score and an analysis, over all rows that begin so."""
    found, other = scores(answer["results"]), answer["with"]
    names = [name for name in found if name.startswith(answer["falls"]) and task in found.get(f"{name}/{other}", {})]
    pairs = [(found[name][task], found[f"{name}/{other}"][task]) for name in names]
    seeds = sorted(set.intersection(*(a.keys() & b.keys() for a, b in pairs))) if pairs else []
    values = [float(spearmanrho([a[s] for a, _ in pairs], [b[s] for _, b in pairs]).statistic) for s in seeds]
    return stats.Sample(np.array(values)) if values else None


def doubts(answer: dict[str, Any], tasks: Sequence[str]) -> str:
    """Why these results cannot answer, although they are there: † cells, a premise that fails; "" if they can."""
    whole, named = kept(answer["results"]), rows(answer["results"])
    if whole is None:
        return ""
    used = {name.partition("/rccc")[0] for name, _ in sides(answer)} & named.keys()
    found = [f"{label} on {short(task)}: {why}" for label in named if label in used for task in whole.tasks
             if short(task) in tasks and (why := whole.untrained(named[label], task))]  # fmt: skip
    if found:
        return f"† {'; '.join(found)}"
    if "premise" in answer:
        larger, smaller = (named[name] for name in answer["premise"])
        values = [100 * np.mean([teacher_score(row.records(task)[0]) for task in whole.tasks if short(task) in tasks])
                  for row in (larger, smaller)]  # fmt: skip
        if values[0] <= values[1]:
            return f"the larger teacher is no better itself: {values[0]:.1f} against {values[1]:.1f}"
    return ""


def shown(found: stats.Estimate, answer: dict[str, Any]) -> str:
    """The figure and its interval: points, times, or a rank correlation."""
    if "times" in answer:
        return found.text(".2f", 1, " times")
    return found.text("+.2f", 1, " rank correlation, over seeds alone") if "falls" in answer else found.text()


def judged(answer: dict[str, Any]) -> tuple[str, str]:
    """(the word, our figure and where it is from)."""
    if "figure" in answer:
        return answer["said"], answer["figure"]
    if "measured" in answer:
        return of_lengths(answer["measured"], answer["over"])
    name = answer["results"]
    said, figure = estimated(answer)
    other = said
    if (whole := kept(name)) and "mnli" in map(short, whole.tasks):
        other, _ = estimated(answer | {"results": f"{name}#matched"})
    return said, f"{figure}{f' (mnli matched alone: {other})' * (other != said)}; `{name}`"


def of_lengths(measured: str, over: str) -> tuple[str, str]:
    """The word and the ratios, at 4,096 tokens: each efficient attention's seconds or bytes over those of `over`."""
    shapes = [entry["attentions"] for entry in saved("attention_profile")["shapes"].values()]
    ratios = [found[name][measured]["4096"] / found[over][measured]["4096"]
              for found in shapes if over in found for name in ATTENTIONS]  # fmt: skip
    said = WORDS[2]
    if max(ratios) < 1:
        said = WORDS[0]
    elif min(ratios) > 1:
        said = WORDS[1]
    times = f"{min(ratios):.2f} to {max(ratios):.2f} times, {len(ratios)} cases"
    return said, f"{times}, one median each; `attention_profile`"


def estimated(answer: dict[str, Any]) -> tuple[str, str]:
    """The word and the figure, over seeds and tasks."""
    known = sorted({task for row in scores(answer["results"]).values() for task in row})
    tasks = [task for task in answer.get("tasks", known) if task in known]
    samples = {task: one for task in tasks if (one := (falls if "falls" in answer else sample)(answer, task))}
    if not samples:
        return WORDS[3], "no result yet"
    if "falls" not in answer and (why := doubts(answer, list(samples))):
        return WORDS[3], why
    found, bound = stats.estimate(list(samples.values())), answer.get("times", answer.get("by", 0) / 100)
    figure = shown(found, answer)
    low, high = found.interval()
    if math.isnan(low):
        return WORDS[3], figure
    each = {task: stats.estimate([one]) for task, one in samples.items()}
    if all(stats.sides(each, bound)):  # tasks that contradict each other have no common answer
        return WORDS[2], f"by task: {', '.join(f'{task} {shown(one, answer)}' for task, one in each.items())}"
    if low <= bound <= high:
        return WORDS[2], figure
    said = WORDS[0] if (low > bound) == ("more" in answer) else WORDS[1]
    return said, figure + stats.only_on(each, bound, low > bound)


def answers(claim: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Column -> (word, figure). Times and counts, which have no interval, need no other column."""
    exact = any(answer.keys() & {"figure", "measured"} for answer in claim.get("answers", []))
    found = dict.fromkeys(COLUMNS, ("-" if exact else WORDS[3], ""))
    if "takes" in claim:
        found["pocket"] = WORDS[3], f"takes {claim['takes']}"
    for answer in claim.get("answers", []):
        column = answer.get("column") or read()["results"][answer["results"]]["column"]
        found[column] = judged(answer)
    return found


# --- tables ------------------------------------------------------------------------------------------------------


def of_paper(paper: str) -> str:
    lines = []
    for claim in read()["claims"]:
        if claim["paper"] == paper:
            cells = [f"**{said}**: {text}" if text else said for said, text in answers(claim).values()]
            lines.append([claim["claim"], claim["published"], *cells])
    return Grid(["claim", "in the paper", "small tasks", "real tasks"], lines).markdown()


def outcome(claim: dict[str, Any]) -> str:
    """One word for all columns: a claim that failed anywhere did not hold, and one that held elsewhere held."""
    found = {said for said, _ in answers(claim).values()}
    return next(word for word in (WORDS[1], WORDS[0], *WORDS[2:]) if word in found)


def counts() -> str:
    """How many claims of each paper have which outcome."""
    lines = []
    for title, papers in [(title, (paper,)) for paper, title in TITLES.items()] + [("all", PAPERS)]:
        found = [outcome(claim) for claim in read()["claims"] if claim["paper"] in papers]
        lines.append([title, *(str(found.count(word)) for word in WORDS), str(len(found))])
    return Grid(["paper", "held somewhere, failed nowhere", "failed somewhere", *WORDS[2:], "claims"], lines).markdown()


def sources() -> str:
    """Where our figures are from."""
    lines = []
    for name, entry in read()["results"].items():
        whole = None if entry.get("once") else kept(name)
        seeds = max((len(row.values(task)) for row in whole.rows for task in whole.tasks), default=0) if whole else 0
        there = ", ".join(map(short, whole.tasks)) if whole else "-" if entry.get("once") else "no result yet"
        lines.append([f"`{name}`", f"`{entry['command']}`", entry["what"], there, str(seeds) if seeds else "-"])
    return Grid(["result", "command", "what was run", "tasks", "seeds"], lines).markdown()
