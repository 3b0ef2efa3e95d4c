"""Files of data as users have them, good and bad, for the tests that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet

TEAMS = ("billing", "refund", "login")


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sheet(rows: int = 60, teams: tuple[str, ...] = TEAMS, sep: str = ",", more: str = "") -> str:
    """Different texts, the classes in turn; `more` are further lines."""
    lines = [f"ticket number {i} about {teams[i % len(teams)]}{sep}{teams[i % len(teams)]}" for i in range(rows)]
    return "\n".join([f"text{sep}label", *lines]) + "\n" + more


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def values(*labels: Any, count: int = 40) -> str:
    """JSON lines whose labels are these in turn."""
    return lines(*({"text": f"text {i}", "label": labels[i % len(labels)]} for i in range(count)))


def parquet(**columns: Any) -> bytes:
    pyarrow.parquet.write_table(pyarrow.table(columns), packed := pyarrow.BufferOutputStream())
    return packed.getvalue().to_pybytes()


def conll(*rows: str) -> str:
    """Twenty sentences of these lines, each with its number in the place of *."""
    return "\n".join("".join(f"{row}\n".replace("*", str(i)) for row in rows) for i in range(20))


def jsonl(**cells: Any) -> str:
    """Twenty rows of these cells, likewise."""
    return "".join(json.dumps(cells).replace("*", str(i)) + "\n" for i in range(20))


def asked(start: Any) -> str:
    """Twenty questions whose answer is said to stand there."""
    answers = {"text": ["ox"], "answer_start": [start]}
    return jsonl(question="which * ?", context="an ox and an ox", answers=answers)


QUESTION: dict[str, Any] = {"id": "q", "question": "what film", "answers": [{"text": "fine", "answer_start": 2}]}


def squad(count: int = 1, **changes: Any) -> str:
    """SQuAD's layout: one question, or several."""
    question = QUESTION | changes
    every = [question | {"id": f"q{i}", "question": f"what film {i}"} for i in range(count)]
    asks = [question] if count == 1 else every
    return json.dumps({"data": [{"paragraphs": [{"context": "a fine film", "qas": asks}]}]})


# --- tasks of the table ----------------------------------------------------------------------------------------

MOODS = "sentence\tlabel\na fine film\t1\na dull film\t0\n"
PAIRS = "index\tsentence1\tsentence2\tlabel\n0\ta film\ta plot\tentailment\n1\ta film\ta plot\tnot_entailment\n"
SCORES = "sentence1\tsentence2\tlabel\na film\ta plot\t1.5\na cast\ta plot\t4\n"
ROW = '{"sentence": "a fine film", "label": 1}\n'
WORDS = "the O\nfilm B-PER\n\na O\nplot O\n"
TEST = ("train", "dev", "test")
# Task -> its good files
GOOD: dict[str, dict[str, str]] = {
    "sst2": {"train.tsv": MOODS, "dev.tsv": MOODS},
    "cola": {"train.tsv": "x\t1\t\ta film\n", "dev.tsv": "x\t0\t*\ta film\n"},
    "rte": {"train.tsv": PAIRS, "dev.tsv": PAIRS},
    "stsb": {"train.tsv": SCORES, "dev.tsv": SCORES},
    "gonerd": {f"{split}.txt": WORDS for split in TEST},
    "litbank": {f"{split}.txt": WORDS for split in TEST},
    "squad": {"train.json": squad(), "dev.json": squad()},
    "tatoeba/en-fr": {f"{split}.tsv": "source\ttarget\na film\tun film\n" for split in TEST},
    "wmt16/en-ro": {f"{split}.tsv": "source\ttarget\na film\tun film\n" for split in TEST},
    "wikitext-2": {f"{split}.txt": " = A film = \n\n the story of a film\n" for split in TEST},
}


def third(content: str, line: str) -> str:
    """A file with another third line."""
    return "\n".join([*content.splitlines()[:2], line, ""])


# --- a teacher's outputs ---------------------------------------------------------------------------------------


def outputs(header: str, row: Any, rows: int = 200) -> str:
    """A table of 200 rows: `row(i)` gives the cells, or nothing."""
    return "\n".join([header, *(",".join(map(str, found)) for i in range(rows) if (found := row(i)))])
