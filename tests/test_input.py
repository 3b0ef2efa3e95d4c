"""Wrong input is refused in one line that names what is wrong, the file and its line, and what would be right."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common import data, text
from common.errors import BadInput
from common.tasks import TASKS, Split, TaskData, check_name


def refused(call: Callable[[], Any], *says: str) -> str:
    """The one line with which `call` is refused; it holds all that it `says`."""
    with pytest.raises(BadInput) as error:
        call()
    line = str(error.value)
    assert "\n" not in line
    for part in says:
        assert part in line, line
    return line


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder", "says"),
    [
        ("sst3", None, ("--task sst3", "did you mean sst2")),
        ("", None, ("unknown task", "Known:", "pocket/mnli")),
        ("pocket/RTE", None, ("did you mean pocket/rte?",)),
        ("ax", None, ("unknown task",)),  # GLUE's diagnostics have no labels
        ("pocket/hotpot", ".", ("for your files, --task hotpot_qa",)),
        ("litbank", None, ("--task litbank", "--data-dir DIR", "pocket/ner")),
        ("sst2", "no/such/folder", ("--data-dir no/such/folder", "no such folder")),
        ("sst2", __file__, ("--data-dir", "not a folder")),
    ],
)
def test_names(name: str, folder: str | None, says: tuple[str, ...]) -> None:
    refused(lambda: check_name(name, folder), *says)


# --- files ---------------------------------------------------------------------------------------------------

MOODS = "sentence\tlabel\na fine film\t1\na dull film\t0\n"
PAIRS = "index\tsentence1\tsentence2\tlabel\n0\ta film\ta plot\tentailment\n1\ta film\ta plot\tnot_entailment\n"
SCORES = "sentence1\tsentence2\tlabel\na film\ta plot\t1.5\na cast\ta plot\t4\n"
ROW = '{"sentence": "a fine film", "label": 1}\n'
WORDS = "the O\nfilm B-PER\n\na O\nplot O\n"
QUESTION: dict[str, Any] = {"id": "q", "question": "what film", "answers": [{"text": "fine", "answer_start": 2}]}
TRANSLATIONS = "source\ttarget\na film\tun film\n"
DEEP, BIG = "[" * 100_000, "1" + "0" * 400
SST2, SCORE = "negative, positive or 0, 1", "from 0 to 5"


def third(content: str, line: str) -> str:
    """A file with another third line."""
    return "\n".join([*content.splitlines()[:2], line, ""])


moods, pairs, scores = (partial(third, content) for content in (MOODS, PAIRS, SCORES))


def label(value: str) -> str:
    """SST-2 as JSON lines whose second label is something else."""
    return f'{ROW}{{"sentence": "a dull film", "label": {value}}}\n'


def squad(**changes: Any) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": "a fine film", "qas": [QUESTION | changes]}]}]})


# Task -> its good files
GOOD: dict[str, dict[str, str]] = {
    "sst2": {"train.tsv": MOODS, "dev.tsv": MOODS},
    "cola": {"train.tsv": "x\t1\t\ta film\n", "dev.tsv": "x\t0\t*\ta film\n"},
    "rte": {"train.tsv": PAIRS, "dev.tsv": PAIRS},
    "stsb": {"train.tsv": SCORES, "dev.tsv": SCORES},
    "wikitext-2": dict.fromkeys(("train.txt", "valid.txt", "test.txt"), " = A film = \n\n the story of a film\n"),
    "gonerd": dict.fromkeys(("train.txt", "dev.txt", "test.txt"), WORDS),
    "litbank": dict.fromkeys(("train.txt", "dev.txt", "test.txt"), WORDS),
    "squad": {"train.json": squad(), "dev.json": squad()},
    "tatoeba/en-fr": dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), TRANSLATIONS),
    "wmt16/en-ro": dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), TRANSLATIONS),
}
# Task, the file that is wrong, what is in it, what the line must hold. The other splits are good.
FILES: list[tuple[str, str, str | bytes, tuple[str, ...]]] = [
    ("sst2", "train.tsv", "", ("train.tsv: the file is empty",)),
    ("sst2", "dev.tsv", "sentence\tlabel\n", ("dev.tsv: no rows", "at least one")),
    ("sst2", "train.tsv", "sentence\na film\n", ("no column 'label'; needs sentence, label, has sentence",)),
    ("sst2", "train.tsv", "sentence,label\na film,1\n", ("train.tsv: no column", "has sentence,label")),
    ("sst2", "train.tsv", moods("a dull film"), ("train.tsv line 3", "1 columns where 2 are needed")),
    ("sst2", "train.tsv", moods('"a\tdull" film\t0'), ("train.tsv line 3", "3 columns where 2 are needed")),
    ("sst2", "train.tsv", moods("a film\tmaybe"), ("train.tsv line 3: label 'maybe'", SST2)),
    ("sst2", "train.tsv", moods("a film\t" + "9" * 5000), ("train.tsv line 3: label '999", "or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t1"), ("all training labels are 'positive'", "at least two")),
    ("sst2", "train.tsv", moods("\n  \t0"), ("train.tsv line 4: sentence is empty", "needs its text")),
    ("sst2", "train.tsv", moods("d\xe9j\xe0\t0").encode("latin-1"), ("train.tsv line 3: not UTF-8", "as UTF-8")),
    ("sst2", "train.tsv", MOODS.encode("utf-16-le"), ("train.tsv: binary, or UTF-16 without a mark", "as UTF-8")),
    ("sst2", "validation.tsv", MOODS, ("dev.tsv and validation.tsv both hold the dev split", "leave one")),
    ("sst2", "train.csv", 'sentence,label\n"a film,1\na film,0\n', ("train.csv line 3", "check the quotes")),
    ("sst2", "train.csv", 'sentence,label\n"a" film,1\n', ("train.csv line 2", "check the quotes")),
    ("sst2", "train.jsonl", ROW + '{"sentence": ', ("train.jsonl line 2: not JSON", "one object a line")),
    ("sst2", "train.jsonl", ROW + "[1]\n", ("train.jsonl line 2: list", "one object a line")),
    ("sst2", "train.jsonl", ROW + DEEP, ("train.jsonl line 2: not JSON", "one object a line")),
    ("sst2", "train.jsonl", ROW + '{"sentence": "a"}\n', ("train.jsonl line 2: label None is unknown",)),
    ("sst2", "train.jsonl", ROW + '{"sentence": 5, "label": 0}', ("train.jsonl line 2: sentence is 5", "text")),
    ("sst2", "train.jsonl", ROW + '{"sentence": "\\ud800", "label": 0}', ("train.jsonl line 2: sentence", "surrogate")),
    ("sst2", "train.jsonl", label("true"), ("train.jsonl line 2: label True", "negative, positive")),
    ("sst2", "train.jsonl", label("NaN"), ("train.jsonl line 2: label nan", "negative, positive")),
    ("sst2", "train.jsonl", label(BIG), ("train.jsonl line 2: label 1000", "negative, positive")),
    ("sst2", "train.parquet", b"PAR1 nonsense PAR1", ("train.parquet: not a readable Parquet file",)),
    ("rte", "train.tsv", pairs("1\ta\tb\t1"), ("train.tsv line 3: label '1'", "entailment, not_entailment")),
    ("rte", "train.tsv", pairs("1\ta\t\tentailment").replace("index", "idx"), ("line 3: sentence2 is empty",)),
    ("rte", "train.tsv", pairs("1\t\t\tentailment"), ("line 3: sentence1 is empty",)),
    ("wmt16/en-ro", "train.jsonl", '{"translation": {"en": "a"}}\n', ("train.jsonl line 1: not as wmt/wmt16 has it",)),
    ("stsb", "train.tsv", scores("a\tb\tnan"), ("train.tsv line 3: score 'nan'", SCORE)),
    ("stsb", "train.tsv", scores("a\tb\t5.1"), ("train.tsv line 3: score '5.1'", SCORE)),
    ("stsb", "dev.tsv", scores("a\tb\t1,5"), ("dev.tsv line 3: score '1,5'", SCORE)),
    ("stsb", "train.tsv", scores("a\tb\t1.5"), ("all training labels are 1.5", "at least two")),
    ("stsb", "train.jsonl", '{"sentence1": "a", "sentence2": "b", "label": true}', ("line 1: score True", SCORE)),
    ("stsb", "train.jsonl", f'{{"sentence1": "a", "sentence2": "b", "label": {BIG}}}', ("line 1: score 1000", SCORE)),
    ("cola", "train.tsv", "x\t1\ta film\n", ("train.tsv line 1: 3 columns where 4 are needed",)),
    ("gonerd", "train.txt", "the O\nfilm\n", ("train.txt line 2: 1 columns where 2 are needed, a word first and its",)),
    ("gonerd", "train.txt", "the\tO\nNew Haven\tB-LOC\n", ("train.txt line 2: word 'New Haven': must not be empty",)),
    ("gonerd", "train.txt", "the\tO\n\tB-LOC\n", ("train.txt line 2: word '': must not be empty, nor hold blanks",)),
    ("gonerd", "train.txt", "the\tO\nNew B-LOC\n", ("train.txt line 2: 1 columns where 2 are needed",)),
    ("gonerd", "train.txt", "1 the O\n2 film B-PER\n", ("train.txt: its first column holds numbers; a word",)),
    ("gonerd", "train.txt", "the O\nfilm B-FILM\n", ("train.txt line 1: tag 'B-FILM'", "B-PER")),
    ("gonerd", "train.jsonl", '{"tokens": ["a"], "ner_tags": []}', ("train.jsonl line 1: 0 tags for 1 words",)),
    ("litbank", "train.txt", "\n-DOCSTART- O\n", ("train.txt: no words with tags",)),
    ("squad", "train.json", "{", ("train.json: not JSON", "SQuAD's layout")),
    ("squad", "train.json", '{"data": [1]}', ("train.json: not SQuAD's layout", "paragraphs")),
    ("squad", "train.json", '{"data": []}', ("train.json: no questions",)),
    ("squad", "train.json", DEEP, ("train.json: not JSON", "SQuAD's layout")),
    ("squad", "train.json", squad(answers=[]), ("train.json question q: answers are", "one text or more")),
    ("squad", "train.json", squad(answers=[{"text": "dull", "answer_start": 2}]), ("train.json question q", "context")),
    ("squad", "train.json", squad(answers=[{"text": "", "answer_start": 2}]), ("train.json question q: answers are",)),
    ("squad", "train.json", squad(answers=[{"text": "fine", "answer_start": "x"}]),
     ("train.json question q: answer_start is ['x']", "one number for each answer is needed")),
    ("squad", "train.json", squad(question=None), ("train.json question q: question is None",)),
    ("tatoeba/en-fr", "train.tsv", "source\ttarget\na film\t\n", ("train.tsv line 2: the answer is ''", "text")),
]  # fmt: skip


@pytest.mark.parametrize(("task", "file", "content", "says"), FILES, ids=lambda value: str(value)[:40])
def test_files(task: str, file: str, content: str | bytes, says: tuple[str, ...], tmp_path: Path) -> None:
    for name, good in GOOD[task].items():
        if name.partition(".")[0] != file.partition(".")[0]:
            write(tmp_path / name, good)
    write(tmp_path / file, content)
    refused(lambda: data.load(task, str(tmp_path)), *says)


@pytest.mark.parametrize(
    ("task", "files", "says"),
    [
        ("sst2", ["train.tsv"], ("no dev split; needs dev or validation with .csv, .tsv", "has train.tsv")),
        ("sst2", [], ("no train split", "no files")),
        ("mnli", ["train.tsv", "dev_matched.tsv"], ("no dev_mismatched split", "or validation_mismatched with")),
        ("wikitext-2", [], ("no train split; needs train with",)),
        ("rte", ["state.json"], ("one split written by save_to_disk",)),
    ],
)
def test_missing_files(task: str, files: list[str], says: tuple[str, ...], tmp_path: Path) -> None:
    for file in files:
        write(tmp_path / file, "x")
    refused(lambda: check_name(task, str(tmp_path)), str(tmp_path), *says)


@pytest.mark.parametrize(
    ("file", "content", "first"),
    [
        ("train.tsv", MOODS.replace("\n", "\n\n").rstrip("\n"), "a fine film"),
        ("train.tsv", MOODS.replace("a fine", "a\u2028\0fine"), "a\u2028\0fine film"),
        ("train.tsv", MOODS.replace("a fine", "fine " * 100_000), "fine " * 100_000 + " film"),
        ("train.jsonl", ROW + '\n{"label": "NEGATIVE", "sentence": "b", "more": []}\n', "a fine film"),
        (
            "train.jsonl",
            '{"sentence": "\\ud83c\\udfac", "label": 1.0}\n{"sentence": "b", "label": "neg"}',
            "\U0001f3ac",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_files_are_read_as_meant(file: str, content: str | bytes, first: str, tmp_path: Path) -> None:
    write(tmp_path / file, content)
    write(tmp_path / "dev.tsv", MOODS)
    task = data.load("sst2", str(tmp_path))
    assert (task.splits["train"].labels, task.splits["train"].texts[0]) == ([1, 0], (first,))


# --- unlabelled text -----------------------------------------------------------------------------------------

TASK = TaskData("rte", TASKS["rte"], "local", "", {"train": Split(["a"], [("a", "b")], [0])}, "", ("train",))


@pytest.mark.parametrize(
    ("spec", "content", "says"),
    [
        (",", "", "--corpus ',': names no text; give a file"),
        ("{}/none.txt", "", "no such file; give one or several of FILE.txt"),
        ("task,oscar", "", "--corpus oscar: no such file"),
        ("{}/x.csv", "", "x.csv: must be .txt or .jsonl"),
        ("{}/x.jsonl", '{"text": "a"}\n{"text"\n', "--corpus: cannot be read"),
        ("{}/x.jsonl", '{"words": "a"}\n', "x.jsonl: a row without a text"),
        ("{}/x.txt", "\n", "no text is left"),
        ("{}/x.txt", "one\n", "one text alone is too few"),
        ("{}/x.txt", b"\xff\n", "cannot be read"),
        ("{}/x.txt.gz", gzip.compress(b"one line\n" * 2000, mtime=0)[:-20], "cannot be read"),
    ],
)
def test_corpora(spec: str, content: str | bytes, says: str, tmp_path: Path) -> None:
    for name in ("x.csv", "x.txt", "x.jsonl", "x.txt.gz"):
        write(tmp_path / name, content)
    refused(lambda: text.open_texts(spec.format(tmp_path), TASK).hold_out(1), says)
