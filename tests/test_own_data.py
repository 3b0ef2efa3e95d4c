"""A data set of one's own: what is seen in it, and what its user is told where it is bad."""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import runpy
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy
import pandas
import pyarrow.parquet
import pytest
import torch
import transformers
from conftest import (
    FAMILIES,
    NEGATIVE,
    POSITIVE,
    ROOT,
    SCRIPTS,
    WIDE,
    blocks,
    outside,
    ran,
    refused,
    sentence,
    tiny_bert,
    word_tokenizer,
)
from content import TEAMS, asked, conll, lines, parquet, sheet, squad, values, write
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from safetensors.numpy import load_file

from bench import arena, matrix, speed
from bench import table as compared
from bench.records import Cell
from common import data, kept, models, own
from common.args import CommonArgs
from common.heads import teacher_of
from common.kinds import KINDS
from common.layers import onnx
from common.layers.scores import ScoreHead
from common.run import Run
from common.tasks import Columns, check_task
from common.teacher import Teacher, get_teacher
from methods import mc3kd

SCORES, PAIR = Columns(kind="scores"), Columns(("text1", "text2"))
TEXTS = [f"text {i}" for i in range(40)]
MAP = pyarrow.map_(pyarrow.string(), pyarrow.string())  # a type that the library has not
TAGGED = "\n\n".join(f"Vera B-PER\nsaw O\nRiga{i} B-LOC" for i in range(20)) + "\n"


# --- what is seen --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        ("t.csv", sheet(), "classification", "3 classes (billing 1"),
        ("t.tsv", sheet(sep="\t"), "classification", "3 classes (billing 1"),
        ("t.txt", sheet(sep="\t").encode("utf-16"), "classification", "3 classes"),
        ("t.csv", sheet().replace("text,label", "message,team"), Columns(("message",), "team"), "classification",
         "text from 'message', label from 'team'"),
        ("t.csv", sheet().replace("text,", "body,"), "classification", "text from 'body'"),
        ("t.csv", sheet().replace(",label", ",team"), "classification", "label from 'team'"),
        ("t.csv", sheet().replace("text,label", ",sentence,Label").replace("\nticket", "\n7,ticket"), "classification",
         "text from 'sentence', label from 'Label'"),
        ("t.json", json.dumps([{"text": f"text {i}", "label": i % 2} for i in range(20)]), "classification",
         "2 classes (0 "),
        ("t.jsonl", values(True, False), "classification", "2 classes (False 1"),
        ("t.jsonl", values(1.0, 2.0, 10.0), "classification", "3 classes (1 "),
        ("t.jsonl", values(*range(5)), SCORES, "regression", "scores from 0 to 4"),
        ("t.csv", sheet(teams=("1.5", "2.5", "4")), SCORES, "regression", "scores from 1.5 to 4"),
        ("t.csv", sheet(40, ("1,5", "0,125", "-3,25"), ";"), SCORES, "regression", "scores from -3.25 to 1.5"),
        ("t.csv", sheet(teams=("1", "2", "1.0")), "classification", "2 classes (1 "),
        ("t.csv", " \n" + sheet(sep=";", more="  \n"), "classification", "3 classes (billing 1"),
        ("t.jsonl", values(*range(77), count=154), "classification", "77 classes"),
        ("t.jsonl", values(*range(100, 140)), SCORES, "regression", "scores from 10"),
        ("t.conll", TAGGED, "token classification", "tags of 2 types (LOC, PER)"),
        ("t.tsv", TAGGED.replace(" ", "\t"), "token classification", "tags of 2 types"),
        ("t.jsonl", lines(*({"tokens": ["Vera", f"w{i}"], "ner_tags": ["B-X", "O"]} for i in range(20))),
         "token classification", "text from 'tokens', label from 'ner_tags'"),
        ("t.jsonl", lines(*({"text": f"Vera saw w{i}", "label": ["B-X", "O", "O"]} for i in range(20))),
         "token classification", "tags of 1 types (X)"),
        ("t.json", squad(20), "span QA", "spans of a text"),
        ("t.jsonl", lines(*({"text": f"text {i}", "summary": f"what it says, {i}"} for i in range(20))),
         Columns(kind="texts"), "summarisation", "texts to be written"),
        ("t.jsonl", lines(*({"source": f"text {i}", "target": f"ce que dit {i}"} for i in range(20))),
         Columns(("source",), kind="texts", metric="bleu"), "translation", "by bleu"),
        ("t.csv", "a,b,label\n" + "".join(f"one {i},two {i},{i % 2}\n" for i in range(20)), Columns(("a", "b"), None),
         "classification", "text1 from 'a', text2 from 'b'"),
        ("t.jsonl", lines(*({"text1": f"one {i}", "text2": None, "label": i % 2} for i in range(20))), PAIR,
         "classification", "2 classes (1 "),
        ("t.jsonl", lines(*({" body": f"text {i}", "team ": i % 2} for i in range(20))),
         Columns.of({"text": "body ", "label": " team"}), "classification", "text from 'body', label from 'team'"),
        ("t.csv", sheet().replace("text,", '"to, from",'), Columns.of({"text": '"to, from"'}), "classification",
         "text from 'to, from'"),
        ("t.parquet", parquet(text=TEXTS, label=["a", "b"] * 20, other=pyarrow.array([[("k", "v")]] * 40, MAP)),
         "classification", "2 classes (b "),
        ("t.csv", sheet(3000, tuple(f"class {i}" for i in range(1000))), "classification",
         "1,000 classes (class 0 3, class 1 3"),
    ],
    ids=lambda case: f"{case[0]}-{case[-1][:30]}",
)  # fmt: skip
def test_kinds(case: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file, content, *columns, kind, says = case
    task = data.load(str(write(tmp_path / file, content)), columns=[*columns, Columns()][0])
    told = capsys.readouterr().err
    assert task.task.kind == kind
    assert says in told
    assert max(map(len, told.splitlines())) < 400
    assert "a tenth of train held out as dev" in task.origin
    assert task.reported == ("dev",)
    assert not set(task.splits["train"].ids) & set(task.splits["dev"].ids)


def test_excel(tmp_path: Path) -> None:
    """Semicolons, a byte order mark, CRLF, quotes around a cell with a line end: the cells are what was typed."""
    rows = [f'{i};"He said ""no"";\nthen left {i}";{"yes" if i % 2 else "no"}\r\n' for i in range(30)]
    task = data.load(str(write(tmp_path / "t.csv", "\ufeffId;Text;Label\r\n" + "".join(rows))))
    assert ('He said "no";\nthen left 4',) in task.splits["train"].texts + task.splits["dev"].texts
    assert task.task.labels == ("no", "yes")


def test_folders_and_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """The splits of a folder, of `save_to_disk`, of the hub at the revision that it names; unlabelled tests are not."""
    write(tmp_path / "mine" / "train.csv", sheet())
    write(tmp_path / "mine" / "val.jsonl", lines({"text": "ticket number 3 about billing", "label": "billing"}))
    (tmp_path / "mine" / "gone.csv").symlink_to("nowhere")
    task = data.load(f"{tmp_path}/mine/")
    assert (list(task.splits), task.reported, task.origin) == (["train", "dev"], ("dev",), "mine: train.csv, val.jsonl")
    told = capsys.readouterr().err
    assert "warning: dev: 1 of its 1 texts stand in train too" in told
    assert "warning: dev: no row of 2 of 3 classes (login, refund)" in told

    features = Features({"text ": Value("string"), "label": ClassLabel(names=["world", "sports"])})
    made = {name: Dataset.from_list([{"text ": f"{name} {i}", "label": i % 2} for i in range(20)], features)
            for name in ("train", "validation")}  # fmt: skip
    made["test"] = Dataset.from_list([{"text ": "x", "label": -1}], features)
    made["unsupervised"] = made["test"]
    DatasetDict(made).save_to_disk(tmp_path / "saved")
    saved = data.load(str(tmp_path / "saved"))
    assert saved.task.labels == ("world", "sports")
    assert saved.reported == ("dev",)
    told = capsys.readouterr().err
    assert "warning: test: 1 of 1 rows have no label" in told
    assert "does not read unsupervised; splits are" in told

    info = huggingface_hub.hf_api.DatasetInfo(id="x/news", sha="5" * 40)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **kwargs: info)
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: calls.append((*a, k)) or DatasetDict(made))
    for name in ("hub:x/news:en", "hub:x/news@main:en"):
        hub = data.load(name)
        assert calls.pop() == ("x/news", "en", {"revision": "5" * 40})
        assert (hub.source, hub.origin) == ("hub", f"x/news@{'5' * 40}")
        assert hub.fingerprint == saved.fingerprint
        assert hub.name == f"news-{hub.fingerprint[:8]}"


@pytest.mark.parametrize(
    ("labels", "test", "left"),
    [
        (("0", "1"), "-1,-1", 0),
        (("0.5", "3", "5"), "-1.0,-1.0", 0),
        (("0", "1"), "-1,1", 1),
        (("a", "b"), "b,-1", 1),
        (("-1", "0", "1"), "-1,0", 2),
        (("-0.5", "0.25"), "-1.0,0.5", 2),
        (("-1", "1"), "-1,-1", 0),
        (("1,0", "0,1"), "-1;-1,-1;-1", 0),
    ],
)
def test_minus_one_where_labels_are_not_known(
    labels: tuple[str, ...], test: str, left: int, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """A test split of nothing but -1 has no labels; where train has no negative number, nor has a row of -1."""
    several = Columns(label="a,b", kind="labels") if ";" in test else SCORES if "." in test else Columns()
    head = "text,a,b\n" if ";" in test else "text,label\n"
    rows = [f"text {i},{labels[i % len(labels)]}\n" for i in range(40)]
    write(tmp_path / "d" / "train.csv", head + "".join(rows))
    rows = [f"new {i},{label.replace(';', ',')}\n" for i, label in enumerate(test.split(","))]
    write(tmp_path / "d" / "test.csv", head + "".join(rows))
    task = data.load(str(tmp_path / "d"), columns=several)
    assert len(task.splits.get("test", ())) == left
    warned = f"warning: test: {2 - left} of 2 rows have no label and are left out"
    assert (warned in capsys.readouterr().err) == (left < 2)


def test_the_tenth_that_is_held_out(tmp_path: Path) -> None:
    """Always the same, whatever a limit and --tune leave of train; texts that are equal but for case and blanks stay
    together; a class's only text is in train."""
    more = "".join(f"Ticket  Number {i} about a,{label}\n" for i in range(8) for label in ("b", f"only {i}"))
    path = str(write(tmp_path / "t.csv", sheet(600, ("a",) * 8 + ("b", "c"), more=more)))
    task, again = data.load(path), data.load(path, limit=100)
    assert again.splits["dev"] == task.splits["dev"]
    assert (again.name, task.task.name) == (task.name, "t")
    assert again.fingerprint != task.fingerprint
    sides = [{" ".join(text.lower().split()) for (text,) in task.splits[split].texts} for split in ("train", "dev")]
    assert not sides[0] & sides[1]
    assert 30 < len(sides[1]) < 90
    assert set(task.splits["train"].labels) == set(range(11))
    tuned = data.load(path, tune=True)
    assert tuned.reported == ("held_out",)
    assert not set(tuned.splits["held_out"].texts) & set(task.splits["dev"].texts)


@pytest.mark.parametrize("teams", [("a",) * 30 + ("b", "c"), (*map(str, range(90)),), ("0.5", "2.5", "7")])
def test_rows_that_are_added_move_no_other(
    teams: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Of 2,000 rows and 400 more all old ones stay on their side, but for those that a class needs, and these are said;
    every class is in train and, if it has ten texts, in dev."""
    path, splits, against = tmp_path / "t.csv", [], []
    scores = Columns(kind="scores" if "0.5" in teams else None)
    for rows in (2000, 2400):
        made = data.load(str(write(path, sheet(rows, teams))), columns=scores).splits
        splits.append({text: split for split, found in made.items() for (text,) in found.texts})
        against.append([int(word) for word in re.findall(r"dev: (\d+) rows are", capsys.readouterr().err)])
        assert set(made["dev"].labels) == set(made["train"].labels)
    assert sum(splits[1][text] != split for text, split in splits[0].items()) <= sum(map(sum, against))
    assert (against == [[], []]) == (len(teams) < 90)
    assert 0.07 * 2400 < list(splits[1].values()).count("dev") < 0.13 * 2400


def test_equal_texts_are_held_out_together(tmp_path: Path) -> None:
    """Of 540 rows with 50 texts and 60 others a tenth, as of others, and no text is on both sides."""
    rows = [f"text {i % 50},{'ab'[i % 2]}\n" for i in range(540)] + [f"one {i},{'ab'[i % 2]}\n" for i in range(60)]
    task = data.load(str(write(tmp_path / "t.csv", "text,label\n" + "".join(rows))))
    train, dev = (set(task.splits[split].texts) for split in ("train", "dev"))
    assert not train & dev
    assert len({text for text in dev if text[0].startswith("text")}) >= 2
    assert 5 <= len(dev) <= 20


def test_names_are_safe_and_tell_contents_apart(tmp_path: Path) -> None:
    """Blanks, umlauts, files of one name and other content, a file that changes between two runs."""
    names = []
    for i, place in enumerate(("a/m\xfc tickets (1).csv", "b/m\xfc tickets (1).csv", "c/other/../tickets.csv")):
        (tmp_path / "c" / "other").mkdir(parents=True, exist_ok=True)
        names.append(data.load(str(write(tmp_path / place, sheet(60 + i)))).name)
    assert len(set(names)) == 3
    assert [name.rpartition("-")[0] for name in names] == ["m-tickets-1"] * 2 + ["tickets"]
    renamed = sheet(62, ("billing", "refund", "sign-in"))  # another content, though texts and indices are the same
    assert data.load(str(write(tmp_path / "c" / "tickets.csv", renamed))).name != names[2]
    moved = data.load(str(write(tmp_path / "elsewhere" / "tickets.csv", sheet(62))))
    assert moved.name == names[2]


def test_a_renamed_table_finds_its_teacher(backbone: Path, tmp_path: Path) -> None:
    args = CommonArgs(teacher=str(backbone), teacher_epochs=1, max_length=16, cache_dir=str(tmp_path / "cache"))
    tasks = [data.load(str(write(tmp_path / name, sheet()))) for name in ("a.csv", "b.csv")]
    assert tasks[0].name != tasks[1].name
    for task in tasks:
        teacher = get_teacher(args, task)
        kept.keep_outputs(args, teacher, data.encode(teacher.tokenizer, task.splits["train"], task.task, 16))
    for place in ("teachers", "evaluations", "outputs"):
        assert len(list((tmp_path / "cache").glob(f"{place}/*/made.json"))) == 1


def test_lists_are_read_as_files_are(tmp_path: Path) -> None:
    texts, labels = [f"text {i}" for i in range(40)], ["good", "bad"] * 20
    rows = lines(*({"text": text, "label": label} for text, label in zip(texts, labels, strict=True)))
    assert own.from_lists(texts, labels).fingerprint == data.load(str(write(tmp_path / "t.jsonl", rows))).fingerprint
    pairs = own.from_lists([(text, "x") for text in texts], labels, dev=([("a", "b")], ["bad"]))
    assert (pairs.task.fields, pairs.splits["dev"].labels) == (("text1", "text2"), [0])
    table = pandas.DataFrame({"text": texts, "label": labels})[10:]
    assert own.from_lists(table.text, table.label) == own.from_lists(texts[10:], labels[10:])
    assert own.from_lists(texts, numpy.arange(40) % 11).task.labels == tuple(map(str, range(11)))


# --- what is odd: refusals have a table of their own ---------------------------------------------------------------

# File, content, what a warning must hold; and a --kind
WARNED: list[tuple[Any, ...]] = [
    ("t.csv", sheet(sep=";"), ("t.csv: its columns are separated by ';', and read so",)),
    ("t.tsv", sheet(), ("t.tsv: its columns are separated by ','",)),
    ("t.csv", sheet(sep=",old,").replace("text,old,", "text,label,", 1).replace("old", "login", 9),
     ("t.csv: several columns are called 'label'; the first of them is read",)),
    ("t.parquet", parquet(text=TEXTS, **{"text ": TEXTS}, label=["a", "b"] * 20),
     ("t.parquet: several columns are called 'text'; the first of them is read",)),
    ("t.jsonl", "".join(f'{{"text": "a {i}", "text ": "b", "label": "{"ab"[i % 2]}"}}\n' for i in range(60)),
     ("t.jsonl: several columns are called 'text'; the first of them is read",)),
    ("t.tsv", sheet(sep="\t", more='"one" two\tlogin\n'), ("t.tsv line 62", "are read as text")),
    ("t.tsv", sheet(sep="\t", more='"one\tlogin\nother\tlogin\ntwo"\tlogin\n'),
     ("t.tsv line 64: a quotation mark", "are read as text")),
    ("t.csv", sheet(more=",billing\n \t,login\n"), ("2 of 62 rows have no text and are left out", "t.csv line 62")),
    ("t.jsonl", values("a", "b") + '{"text": null, "label": "a"}\n', ("1 of 41 rows have no te",)),
    ("t.csv", sheet(more="one,\ntwo, \n"), ("2 of 62 rows have no label and are left out", "t.csv line 62")),
    ("t.csv", sheet(more="one,biling\n"), ("class 'biling' has one row", "is it 'billing'?", "t.csv line 62")),
    *(("t.csv", sheet(teams=(*TEAMS, other)), (f"labels {names} differ in case",)) for other, names in (
        ("Billing", "'Billing', 'billing'"), ("log\u00adin", r"'login', 'log\xadin'"),
        ("refund\u200b", r"'refund', 'refund\u200b'"))),
    ("t.csv", sheet(teams=("caf\xe9", "cafe\u0301")), (r"labels 'cafe\u0301', 'caf\xe9' differ",)),
    ("t.csv", sheet(more='one,"login, billing"\n'), ("'login, billing' is made of others; --kind labels",)),
    ("t.csv", sheet(more="one,login;billing\n"), ("'login;billing' is made of others; --kind labels",)),
    ("d", {"train.csv": sheet(), "test.csv": "text\nx\n"}, ("test is left out: no column 'label', which",)),
    ("d", {"train.csv": sheet(), "test.csv": sheet(3)}, ("test: 3 of its 3 texts stand in train too",)),
    ("d", {"train.csv": sheet(), "dev.csv": sheet(6, ("new", "login"))}, ("train: no row of 1 of 4 classes (new)",)),
    ("d", {"train.csv": sheet(), "dev.csv": "text,label\nx,\n"}, ("dev: 1 of 1 rows have no label",)),
    ("d", {"train.csv": sheet(), "dev.CSV": "", "dev/part-0.csv": ""}, ("does not read dev, dev.CSV; splits",)),
    ("d", {"train.csv": sheet(), "dev.csv": "text,label\n"}, ("dev is left out: no row is in ",)),
    ("d", {"train.csv": sheet(), "test.csv": "text,label\nTicket number 0  About BILLING,billing\n"},
     ("test: 1 of its 1 texts stand in train too",)),
    ("d", {"train.jsonl": asked(0) * 2, "dev.jsonl": asked(0).replace("which", "where")},
     ("dev: 20 of its 20 pairs share one of their texts with train",)),
    ("t.csv", sheet(more="ticket number 0 about billing,login\n"), ("different texts have several labels",)),
    ("t.csv", sheet(more="nan,billing\none,login\nNULL,login\n"), ("2 rows have NULL, nan", "like as text", "line 62")),
    ("t.csv", sheet(more="one,N/A\ntwo,N/A\n"), ("2 rows have NULL, nan", "like as label", "line 62")),
    ("t.csv", sheet(more='"open,login\nb,login\nclose",login\n'), ("t.csv line 64: a quotation mark", "(2 lines)")),
    ("t.csv", sheet(teams=("a", "b", "a;b")), ("label 'a;b' is made of others; a comma",), "labels"),
    ("d", {"train.csv": sheet(), "test.csv": sheet(3, TEAMS[:1])}, ("test: no row of 2 of 3 labels",), "labels"),
    ("d", {"train.conll": conll("Ann* B-PER", "x O") * 2, "dev.conll": conll("Ann B-PERSON", "x O")},
     ("train: no row of 1 of 2 types (PERSON)",)),
    ("d", {"train.jsonl": asked(0) * 2, "dev.jsonl": asked(0).replace("an ox and an ox", "a cow")},
     ("dev: 20 of 20 answers are not in their text",)),
    ("d", {"train.csv": sheet(), "eval.csv": "", "holdout.tsv.gz": "", "README.md": ""},
     ("does not read eval.csv, holdout.tsv.gz; splits are called train",)),
]  # fmt: skip


@pytest.mark.parametrize("case", WARNED, ids=lambda case: f"{case[0]}-{case[-1][-1][-30:]}")
def test_what_is_odd_is_told(case: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """In one line, of data that can be used."""
    name, content, says, *kind = case
    files = {f"{name}/{file}": text for file, text in content.items()} if isinstance(content, dict) else {name: content}
    for file, text in files.items():
        write(tmp_path / file, text)
    assert len(data.load(str(tmp_path / name), columns=Columns(kind="".join(kind) or None)).splits["train"]) > 30
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert any(all(part in line for part in says) for line in warned), warned


def test_columns_that_are_not_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = "".join(f"{i},of what?,text {i},{'ab'[i % 2]},\n" for i in range(40))
    data.load(str(write(tmp_path / "t.csv", f"id,question,sentence,label,Label\n{rows}")))
    data.load(str(write(tmp_path / "t.jsonl", asked(0).replace('"answers"', '"title": "", "answers"'))))
    told = capsys.readouterr().err
    assert "t.csv: does not read question, Label\n" in told
    assert "t.jsonl: does not read title\n" in told


def test_a_table_called_like_a_task_is_a_data_set_of_its_own(tmp_path: Path) -> None:
    task = data.load(str(write(tmp_path / "sst2.csv", sheet(40))))
    assert task.task.name == "own-sst2"


def test_lists_of_tuples_sets_and_arrays() -> None:
    """They are labels as lists are."""
    for form in (tuple, set, numpy.array):
        labels = [form(["a", "b"] if i % 2 else ["c"]) for i in range(40)]
        assert own.from_lists([f"text {i}" for i in range(40)], labels, kind="labels").task.labels == ("a", "b", "c")


def test_a_column_says_what_rows_are_for(tmp_path: Path) -> None:
    """Test rows are not trained on, nor are rows held out; the same file, compressed, is the same data."""
    of = ("train", "Train", "validation", "test")
    text = "\n".join(["text,split,label", *(f"text {i},{of[i % 4]},{'ab'[i % 3 > 0]}" for i in range(40))])
    task = data.load(str(write(tmp_path / "t.csv", text)))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 20, "dev": 10, "test": 10}
    assert task.splits["test"].texts[0] == ("text 3",)
    small = data.load(str(write(tmp_path / "t.csv.gz", gzip.compress(text.encode()))))
    assert (small.splits, small.task.labels) == (task.splits, ("a", "b"))


def test_a_data_set_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = str(write(tmp_path / "t.csv", sheet(more="one,\n")))
    check_task(path)
    assert "have no label" in capsys.readouterr().err
    data.load(path)
    assert "have no label" not in capsys.readouterr().err


def test_texts_that_are_cut_are_counted_once(capsys: pytest.CaptureFixture) -> None:
    task = own.from_lists(["the film was good " * (1 + i % 4) for i in range(40)], list(range(2)) * 20, name="cuts",
                           dev=(["a film"], [0]))  # fmt: skip
    for _ in range(2):
        data.encode(word_tokenizer(), task.splits["train"], task.task, 10)
    told = capsys.readouterr().err
    line = "warning: cuts: 20 of 40 texts (50.0%) have more than 10 tokens and lose their ends (see --max-length)"
    assert told.splitlines().count(line) == 1


# --- every method, and from Python -----------------------------------------------------------------------------


def moods(rows: int = 200) -> tuple[list[str], list[str]]:
    """Texts that the tests' tiny models can read, three in four of them complaints."""
    rng = random.Random(0)
    labels = ["praise" if i % 4 == 0 else "complaint" for i in range(rows)]
    return [sentence(rng, POSITIVE if label == "praise" else NEGATIVE) for label in labels], labels


@pytest.mark.parametrize("method", sorted(SCRIPTS))
def test_every_method(method: str, backbone: Path, tmp_path: Path) -> None:
    """From a file to a student that says the classes by their names, and a table that says how large the largest is."""
    texts, labels = moods()
    path = write(tmp_path / "mail.csv", "".join(f"{text};{label}\n" for text, label in [("message", "team"),
                 *zip(texts, labels, strict=True)]))  # fmt: skip
    argv = ["--task", path, "--text", "message", "--teacher", backbone, "--teacher-epochs", 1, "--max-length", 16]
    argv += ["--budget", 96, "--out-dir", tmp_path / "runs", "--cache-dir", backbone.with_name("cache")]
    argv += ["--student", "cmow-4" if method == "cmow" else "2x32", "--device", "cpu", "--variant",
             "finetune" if method == "xtc" else "kd"]  # fmt: skip
    assert "accuracy/macro_f1/majority" in ran(method, *argv)
    (found,) = (tmp_path / "runs").rglob("result.json")
    record = json.loads(found.read_text())
    assert record["task"].startswith("mail-")
    dev = data.load(str(path), columns=Columns(("message",))).splits["dev"].labels
    assert record["metrics"]["dev"]["majority"] == pytest.approx(dev.count(0) / len(dev))
    assert "a tenth of train held out as dev" in record["comparable"]
    student = speed.load_student(found.parent)
    assert student.config.id2label == {0: "complaint", 1: "praise"}
    if method in ("mc3kd", "cka", "dist"):
        answer = transformers.pipeline("text-classification", str(found.parent), device="cpu")(texts[0])
        assert answer[0]["label"] in ("complaint", "praise")


def test_scores_are_learnt_in_any_unit(tmp_path: Path, backbone: Path) -> None:
    """Prices are learnt as their z-scores are, up to rounding. Predictions, saved students and kept teachers have the
    data's unit."""
    argv = ["--kind", "scores", "--teacher", backbone, "--teacher-epochs", 24, "--max-length", 16]
    argv += ["--student", "2x32", "--variant", "finetune,kd", "--lr", 3e-3, "--budget", 2560, "--device", "cpu"]
    rng, found = random.Random(0), {}
    good = [rng.randint(0, 4) for _ in range(400)]  # words of four
    texts = [
        " ".join([*rng.choices(POSITIVE, k=k), *rng.choices(NEGATIVE, k=4 - k), str(i)]) for i, k in enumerate(good)
    ]
    for unit, price in {"z": -1.5, "prices": 1e5}.items():
        rows = [f"{text},{price + k * (0.75 if unit == 'z' else 1e5)}\n" for text, k in zip(texts, good, strict=True)]
        path = write(tmp_path / f"{unit}.csv", "".join(["text,score\n", *rows]))
        ran("mc3kd", "--task", path, *argv, "--out-dir", tmp_path / unit)
        found[unit] = [run.parent for run in sorted((tmp_path / unit).rglob("result.json"))]
    split = data.load(str(path), columns=Columns(kind="scores")).splits["dev"]
    tokens = word_tokenizer()([text for (text,) in split.texts], padding=True, return_tensors="pt")

    def answers(folder: Path) -> numpy.ndarray:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            return model(**tokens).logits[:, 0].numpy()

    for plain, folder in zip(found["z"], found["prices"], strict=True):
        record = json.loads((folder / "result.json").read_text())
        of_z, said = (load_file(one / "predictions.safetensors")["dev"] for one in (plain, folder))
        numpy.testing.assert_allclose(answers(folder), said, rtol=1e-5)
        assert min(record["metrics"]["dev"]["pearson"], record["teacher"]["metrics"]["dev"]["pearson"]) > 0.6
        assert numpy.corrcoef(of_z, said)[0, 1] > 0.99
        assert abs(of_z - (said - 3e5) / (1e5 / 0.75)).mean() < 0.1
        assert record["settings"]["scores"] == "standardised"
        assert "|scores:standardised|" in record["signature"]
    (note,) = (tmp_path / "prices").glob("cache/teachers/*/made.json")
    assert json.loads(note.read_text())["recipe"]["scores"] == "standardised"
    assert abs(answers(note.parent).mean() - 3e5) < 1e5


def test_scores_of_the_table_stay_as_they_are() -> None:
    for name, kind in KINDS.items():
        assert (kind.scale, kind.recipe) == (None, {}), name
    task = own.from_lists([f"text {i}" for i in range(20)], [float(i % 7) + 0.5 for i in range(20)], kind="scores")
    mean, std = task.task.kind.scale
    train = numpy.array(task.splits["train"].labels)
    assert (mean, std) == (pytest.approx(train.mean()), pytest.approx(train.std()))
    logits, labels = torch.tensor([[mean], [mean + std]], dtype=torch.float64), torch.tensor([mean - std, numpy.nan])
    z, targets = task.task.kind.predictions(argparse.Namespace(logits=logits), labels, labels)
    torch.testing.assert_close(z, torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    torch.testing.assert_close(targets, torch.tensor([-1.0, numpy.nan]), equal_nan=True, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("lost", [(), None], ids=["from a file", "new"])
def test_a_heads_scale(family: str, lost: Any) -> None:
    """A head from a file answers as before, a new one in z-scores times the deviation; folded it is the library's."""
    sizes: dict[str, Any] = {"num_labels": 1, "vocab_size": 31, "pad_token_id": 0}
    if family == "bart":
        sizes |= {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
                  "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}  # fmt: skip
    else:
        sizes |= {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.AutoConfig.for_model(family, **sizes, eos_token_id=3)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    kind = own.from_lists([f"text {i}" for i in range(20)], [1e3 * i + 0.5 for i in range(20)], kind="scores").task.kind
    (mean, std), ids = kind.scale, torch.tensor([[2, 7, 9, 3], [2, 8, 5, 3]])

    def said() -> torch.Tensor:
        with torch.no_grad():
            return model(input_ids=ids).logits

    before, weights = said(), {name: value.clone() for name, value in model.state_dict().items()}
    models.scale_head(model, kind, lost)
    bias = family != "gpt2"  # a decoder's head has none
    wanted = before if lost is not None else before * std + mean * bias
    torch.testing.assert_close(said(), wanted, atol=1e-2, rtol=1e-4)
    if lost is None:
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    models.fold_head(model)
    torch.testing.assert_close(said(), wanted, atol=1e-2, rtol=1e-4)
    assert not any(isinstance(module, ScoreHead) for module in model.modules())


def test_importing_a_method_does_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads no arguments, and leaves threads, precision, random numbers, signals and the library's voice as they
    are."""

    def state() -> tuple[Any, ...]:
        how = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype())
        how += (transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled())
        return (*how, torch.get_rng_state().tolist(), random.getstate(), signal.getsignal(signal.SIGINT), sys.argv[:])

    monkeypatch.setattr(sys, "argv", ["x", "predict", "--nonsense"])
    transformers.logging.set_verbosity_info()
    transformers.logging.enable_progress_bar()
    before = state()
    for path in SCRIPTS.values():
        assert "main" in runpy.run_path(str(path), run_name="imported")
    runpy.run_path(str(ROOT / "common" / "models.py"), run_name="imported")
    assert state() == before
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def test_the_examples_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page has them: distil on lists with a loaded teacher; one loss in the library's Trainer."""
    monkeypatch.chdir(tmp_path)
    texts, labels = moods(120)
    names = {"id2label": {0: "praise", 1: "complaint"}, "label2id": {"praise": 0, "complaint": 1}}
    known = {"texts": texts, "labels": labels, "tokenizer": word_tokenizer(), "model": tiny_bert(4, 32, **names).eval()}
    before = known["model"](**known["tokenizer"](texts[0], return_tensors="pt")).logits
    short, any_text = '["the film was dull", "a bright story"]', '["the film " * 1000, "", "a bright story"]'
    for block in blocks("data.md"):
        exec(block.replace("3x384", "3x32").replace('"6400"', '"96"').replace(short, any_text), known)
    # the caller's model is as it was: the teacher is a copy, with its outputs in the order of the classes
    after = known["model"](**known["tokenizer"](texts[0], return_tensors="pt")).logits
    assert torch.equal(after, before)
    assert known["record"]["ledger"]["student_examples"] == 96
    assert [answer["label"] in ("praise", "complaint") for answer in known["answers"]] == [True] * 3
    # of equal parts the loss and the gradient are one part's; evaluation gathers the logits alone
    row, norms = known["rows"][0], []
    quiet: Any = {"use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
    for parts in (1, 4):
        how = transformers.TrainingArguments(
            "t", max_steps=1, logging_steps=1, gradient_accumulation_steps=parts, **quiet
        )
        model = tiny_bert(3, 32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        trainer = known["Distillation"](model, how, train_dataset=[row] * 32, processing_class=known["tokenizer"])
        trainer.train()
        norms.append([trainer.state.log_history[0][name] for name in ("loss", "grad_norm")])
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    assert trainer.predict([row] * 9).predictions.shape == (9, 2)


def test_the_examples_from_python_run_anywhere(tmp_path: Path) -> None:
    """The page's lines outside the repository, on texts of which one has 2,000 words."""
    names = {"id2label": {0: "praise", 1: "complaint"}, "label2id": {"praise": 0, "complaint": 1}}
    models.save(tiny_bert(4, 32, **names), word_tokenizer(), tmp_path / "model", "")
    texts, labels = moods(120)
    texts[5] += " the film" * 1000
    short, any_text = '["the film was dull", "a bright story"]', '["the film " * 1000, "", "a bright story"]'
    code = f"""from transformers import AutoModelForSequenceClassification, AutoTokenizer
texts, labels = {texts!r}, {labels!r}
model, tokenizer = (one.from_pretrained("model") for one in (AutoModelForSequenceClassification, AutoTokenizer))
"""
    code = (
        "\n".join([code, *blocks("data.md"), "print(len(answers))"]).replace("3x384", "3x32").replace('"6400"', '"96"')
    )
    assert outside(tmp_path, code.replace(short, any_text)).strip().endswith("3")


# --- shipping a student --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    texts, labels = moods(120)
    names = {"id2label": {0: "praise", 1: "complaint"}}
    task = own.from_lists(texts, labels)
    args = mc3kd.Args(student="2x32", budget="64", max_length=16, out_dir=str(tmp_path_factory.mktemp("runs")))
    teacher = teacher_of(tiny_bert(4, 32, **names), word_tokenizer(), task, 16)
    run = Run(args, "mc3kd", "kd", task, teacher, 1)
    model = run.student()
    mc3kd.distil(args, run, model, [])
    run.finish(model)
    return run.folder


@pytest.mark.slow
def test_onnx(student: Path) -> None:
    """The page's lines: one graph for any batch and length, with the library's logits up to float32's rounding."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    known: dict[str, Any] = {"folder": student, "texts": ["the film " * 1000, "", "a dull and cold story", "great"]}
    for block in blocks("ship.md")[2:4]:
        exec(block, known)
    with torch.no_grad():
        wanted = known["model"](**{name: torch.from_numpy(values) for name, values in known["batch"].items()}).logits
    torch.testing.assert_close(torch.from_numpy(known["logits"]), wanted, rtol=1e-4, atol=1e-5)


SHAPES = FAMILIES | {"gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}}


def family(name: str, folder: Path) -> Path:
    """A classifier of a family and the tests' tokenizer, as a run saves them."""
    config = transformers.AutoConfig.for_model(name, **SHAPES.get(name, WIDE), vocab_size=34, pad_token_id=0)
    torch.manual_seed(0)
    models.save(models.build(config, "classification").eval(), word_tokenizer(), folder, "")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["distilbert", "mpnet", "gpt2"])
def test_onnx_of_other_families(name: str, tmp_path: Path) -> None:
    """Whose models do not read all that a tokenizer gives, or keep keys and values."""
    test_onnx(family(name, tmp_path))


@pytest.mark.parametrize("name", ["distilbert", "bert", "gpt2"])
def test_what_a_model_does_not_read_is_no_input(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of its saved tokenizer nor of its graph; what cannot be exported is one line."""
    given: list[Any] = []

    def export(model: Any, kwargs: dict[str, Any], **_: Any) -> None:
        given.append((model.config.use_cache if name == "gpt2" else False, sorted(kwargs)))
        raise RuntimeError("long\nlines") from ValueError("no such operator\nmore")

    monkeypatch.setattr(torch.onnx, "export", export)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(family(name, tmp_path))
    says = f"PyTorch cannot export a {name} (no such operator)"
    refused(lambda: onnx.save(model, word_tokenizer(), tmp_path / "x.onnx"), says)
    read = ["attention_mask", "input_ids"] + ["token_type_ids"] * (name != "distilbert")
    assert given == [(False, read)]
    assert sorted(models.load_tokenizer(str(tmp_path))("good")) == read
    assert not list(tmp_path.glob("x.onnx*"))


def test_the_hub_gets_card_weights_and_tokenizer(student: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, dict[str, Any]] = {}
    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub.HfApi, name, lambda self, *a, _n=name, **k: calls.setdefault(_n, k))
    exec(blocks("ship.md")[-1], {"folder": student})
    assert calls["create_repo"]["private"]
    others = ["latent.safetensors", "dev.reference.txt", "dev.written.txt"]
    files = [str(path.relative_to(student)) for path in student.rglob("*") if path.is_file()] + others
    ignored = calls["upload_folder"]["ignore_patterns"]
    sent = set(huggingface_hub.utils.filter_repo_objects(files, ignore_patterns=ignored))
    assert {"README.md", "config.json", "model.safetensors", "tokenizer_config.json"} <= sent
    assert not sent & {"log.jsonl", "args.json", "result.json", "predictions.safetensors", ".lock", *others}
    assert "complaint" in (student / "config.json").read_text()


# --- which one to ship ---------------------------------------------------------------------------------------


CLASSES, TAGS = KINDS["classification"], KINDS["token classification"]


def options(**changes: Any) -> argparse.Namespace:
    given = {"task": "t.csv", "teacher": "T", "student": "2x32", "rows": arena.DEFAULT, "budget": "96", "seeds": "0,1"}
    return argparse.Namespace(**given | changes)


def planned(given: dict[str, str], kind: Any = CLASSES, labelled: bool = True, **changes: Any) -> matrix.Matrix:
    return matrix.build(arena.table_of(options(**changes), kind, given, labelled), "out", "arena")


def test_the_arena_of_a_file(tmp_path: Path, backbone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands have the file's whole place, its columns and the student; what cannot be is left out, or refused."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", sheet().replace("text,label", "body,team"))
    given = arena.arguments(["--text", "body", "--label", "team", "--max-length", "16", "--cache-dir", "kept"])
    teacher = str(backbone)  # 32 wide
    plan = planned(given, teacher=teacher)
    assert [job.row for job in plan.jobs[::2]] == arena.DEFAULT.split(",")
    for job in plan.jobs:
        assert (job.task, job.args.cache_dir) == (str(tmp_path / "t.csv"), str(tmp_path / "kept"))
        assert (job.args.text, job.args.label, job.args.max_length, job.args.budget) == ("body", "team", 16, "96")
    shapes = {job.row: job.args.student for job in plan.jobs}
    assert (shapes["kd"], shapes["narrow-kd"], shapes["cmow-kd"]) == ("2x32", "2x16", "bidirectional-10-100")
    assert {job.args.init for job in plan.jobs if job.row in ("kd", "1bit-xtc")} == {"auto"}
    plan = planned(given, teacher=teacher, student="2x64")
    assert not {"1bit-xtc", "2bit-xtc"} & {job.row for job in plan.jobs}
    tags = planned(given, TAGS, teacher=teacher, rows="all")
    assert {(job.row, job.words[0]) for job in tags.jobs} == {
        (row, "methods/efficient_attention.py") for row in ("undistilled", "kd", "distilbert", "longformer")
    }


def test_the_arena_of_outputs_alone(tmp_path: Path, backbone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that need labels, or the teacher's layers, are left out; the others start from what --init names."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", sheet())
    stored, model = write(tmp_path / "p.csv", "billing,login,delivery\n" + "1,0,0\n" * 60), str(backbone)
    for given, labelled, rows in [
        ({"teacher_outputs": "p.csv", "init": model}, False, "kd,narrow-kd,cmow-kd"),
        ({"teacher_outputs": "p.csv"}, True,
         "linear,linear-all,undistilled,kd,narrow-kd,cmow-undistilled,cmow-kd"),
        ({}, False, "kd,mse-kd,mc3kd,cka-kd,1bit-xtc,2bit-xtc,narrow-kd,cmow-kd"),
    ]:  # fmt: skip
        teacher = "pocket" if "init" in given else model
        plan = planned(given, labelled=labelled, teacher=teacher)
        assert [job.row for job in plan.jobs[::2]] == rows.split(",")
        assert plan.jobs[0].key.startswith(f"{plan.jobs[0].row}-t.csv-")  # and no folder of this machine
        for job in plan.jobs:
            assert job.args.teacher_outputs == (str(stored) if given else None)
            if "init" in given:
                assert (job.args.init if job.row == "kd" else job.args.teacher) == model


def test_there_is_no_advice_where_commands_have_failed(
    tmp_path: Path, backbone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = str(write(tmp_path / "t.csv", sheet()))
    name = data.load(task).name
    found = argparse.Namespace(missing=["kd: exit code 2"], tasks={name: {"comparable": "c"}})
    monkeypatch.setattr(arena, "make_teachers", lambda *_: None)
    monkeypatch.setattr(arena.run, "carry_out", lambda *_: [])
    monkeypatch.setattr(arena, "load", lambda _: found)
    monkeypatch.setattr(arena, "students_of", lambda *_: (name, []))
    monkeypatch.setattr(arena, "measure", lambda *_, **__: [])
    monkeypatch.setattr(arena, "answer", lambda *_: (arena.Grid(["row"], [["mc3kd"]]), "mc3kd is the best"))
    with pytest.raises(SystemExit):
        arena.main([task, "--teacher", str(backbone), "--student", "2x32", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "No advice: 1 line" in said
    assert "kd: exit code 2" in said
    assert "mc3kd is the best" not in said


def test_a_teacher_that_knows_the_train_rows_is_named() -> None:
    """Its answers are right on train rows, and drawn on the others; with the same share on both it is silent."""
    texts, labels = moods(400)
    task, said = own.from_lists(texts, labels), list[str]()
    known = Teacher("T", tiny_bert(2, 32), word_tokenizer(), "T", ready=True)
    for share in (0.5, 1.0):
        answers = numpy.eye(2)[task.splits["dev"].labels]
        answers[: round((1 - share) * len(answers))] = answers[: round((1 - share) * len(answers)), ::-1]
        known.predictions = {"dev": answers}
        kind = type("Sure", (type(CLASSES),), {"predict": lambda _s, _m, given, *_: (numpy.eye(2)[given.labels], 0)})
        found = replace(task, task=replace(task.task, kind_or_name=kind("classification")))
        said.append(arena.seen_rows(known, found, 16))
    assert re.search(r"is right on 100.0% of \d+ train rows but 5\d.\d% of \d+ held-out rows \(p \de-", said[0])
    assert said[1] == ""


FILMS = "\n".join(["text", *(f"film {i} was a good one" for i in range(60))])
ABOUT = "\n".join(["text,label", *(f'a {"good " * (i % 2)}film {i},"{"good," * (i % 2)}film"' for i in range(60))])
MOODS = "\n".join(["bad,good", *(f"{i % 3 / 4},{1 - i % 3 / 4}" for i in range(60))])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content", "more", "says"),
    [
        ("t.csv", FILMS, "--teacher-outputs p.csv --init {} --rows undistilled,kd,mc3kd,cmow-kd --budget 64",
         ("left out: undistilled, which learns from labels", "left out: mc3kd, which reads the teacher's layers",
          "agreement")),
        ("t.csv", ABOUT, "--teacher {} --kind labels --rows linear,kd --budget 128", ()),
        ("t.conll", TAGGED, "--teacher {} --rows undistilled,kd,mc3kd,longformer --budget 640",
         ("left out: mc3kd: its script cannot do token classification",)),
    ],
)  # fmt: skip
def test_the_arena_from_file_to_advice(
    file: str, content: str, more: str, says: tuple[str, ...], tmp_path: Path, easy: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What cannot be is left out."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / file, content)
    write(tmp_path / "p.csv", MOODS)
    words = f"{file} {more.format(easy[easy.index('--teacher') + 1])} --seeds 0 --max-length 16".split()
    words += ["--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "cache")]
    arena.main([*words, "--student", "2x32"])
    said = capsys.readouterr().out
    assert all(part in said for part in says)
    # after so few examples no row need have learnt anything
    assert re.search(r"(undistilled|vanilla KD|kd|cmow-kd|longformer|linear) has the high|No row gives several", said)


def rows(**scores: list[float]) -> list[tuple[compared.Row, compared.Estimate]]:
    """Rows with these scores, seed by seed; of another kind those of CMOW."""
    made = []
    for place, each in scores.items():
        variant = "kd" if place.endswith("kd") else "x"
        kind, script = "CMOW" if "cmow" in place else "student 2x32", "linear" if place == "linear" else "m"
        row = compared.Row(place, script, variant, kind, "random", "T")
        more = {"metrics": {"dev": {"majority": 0.4}}, "settings": {"batch_size": 32}, "task": "t"}
        more |= {"ledger": {"student_examples": 1600}, "student": {"bytes": 1}}
        found = [{"primary": {"name": "accuracy", "value": value}, **more} for value in each]
        row.cells["t"] = {i: Cell(place, "", record) for i, record in enumerate(found)}
        made.append((row, compared.interval(each)))
    return sorted(made, key=lambda pair: -pair[1].mean)


def test_commands_share_a_teacher_that_is_made_before_they_start(
    tmp_path: Path, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all of them; not for a cluster, which makes it there, or for efficient attention, of its own length."""
    made = list[Any]()
    monkeypatch.setattr(arena, "get_teacher", lambda args, task: made.append((args.teacher, args.max_length, task)))
    task = str(write(tmp_path / "t.csv", sheet()))
    for rows, engine, times in (("linear,kd,mc3kd", "local", 1), ("linear,kd", "ray", 0), ("longformer", "local", 0)):
        made.clear()
        wanted = arena.table_of(options(task=task, teacher=str(backbone), rows=rows), CLASSES, {"max_length": "32"})
        arena.make_teachers(matrix.build(wanted, str(tmp_path), "arena").jobs, argparse.Namespace(engine=engine))
        assert [(name, length, one.name) for name, length, one in made] == [
            (str(backbone), 32, data.load(task).name)
        ] * times


def test_default_rates_are_those_that_won() -> None:
    for name, width in (("arena", 128), ("real_arena", 384)):
        rows = json.loads((ROOT / f"bench/results/{name}_trials.json").read_text())["rows"]
        assert CLASSES.default_lr(width, "pretrained") == rows["kd"]["winner"]["lr"]


def test_rates_are_tried_around_the_one_that_won_and_say_why_a_row_is_dead(
    tmp_path: Path, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider student's are lower; the trials have a part of the budget, and a tenth of train held out."""
    monkeypatch.chdir(tmp_path)
    task = str(write(tmp_path / "t.csv", sheet()))
    known = {"rows": "linear,kd,narrow-kd,cmow-kd", "student": "2x256", "budget": "6400", "teacher": str(backbone)}
    wanted = arena.table_of(options(task=task, **known), CLASSES, {}, True)
    search = arena.search_of(wanted, CLASSES, str(tmp_path / "out"))
    assert {name: next(iter(row.grid.values())) for name, row in search.rows.items()} == {
        "linear": [3, 1, 9], "kd": [0.000475, 0.000158, 0.00142], "narrow-kd": [0.001, 0.000333, 0.003],
        "cmow-kd": [0.005, 0.00167, 0.015],
    }  # fmt: skip
    known = matrix.trials(file := matrix.read_file(arena.FILE))["rows"]
    assert all(known[row["name"]]["winner"] for row in file["rows"])
    jobs = [job for row in search.rows.values() for job in search.left(row)]
    assert {(job.args.budget, job.args.tune, job.seed) for job in jobs} == {("2133", True, 100)}
    assert len(jobs) == 12

    def trials(*means: float | None) -> dict[str, Any]:
        points = [{"point": {"lr": lr}, "mean": mean} for lr, mean in zip((1e-4, 3e-4, 9e-4), means, strict=True)]
        best = max(points, key=lambda one: one["mean"] or 0)["point"]
        return {"winner": best, "at_edge": ["lr"] * (best["lr"] != 3e-4), "trials": points}

    (dead, _), (warm, _) = rows(dead=[0.4], warm=[0.9])
    warm.start = "first 2 layers of T"
    assert (
        arena.likely_cause(dead, trials(0.4, 0.4, 0.5), [warm])
        == "the rate: the highest that was tried, 0.0009, was the best"
    )
    assert (
        arena.likely_cause(dead, trials(0.5, 0.4, None), [warm])
        == "the rate: the lowest that was tried, 0.0001, was the best"
    )
    assert arena.likely_cause(dead, trials(0.4, 0.4, 0.4), [warm]) == "the start, random weights"
    assert arena.likely_cause(dead, trials(0.4, 0.5, 0.4), []) == "the budget"
    assert arena.likely_cause(dead, None, [warm]) == "the rate, of which one was tried"
    (linear, _), *_ = rows(linear=[0.4])
    assert arena.likely_cause(linear, trials(0.4, 0.4, 0.5), [warm]) == "its features, words and characters"


def test_with_one_seed_a_tie_over_the_rows_goes_to_the_linear_model() -> None:
    """Of 200 held-out rows 20 are right for one student alone and 12, or none, for the linear model alone."""
    for alone, says in ((12, "within the noise of linear, a linear model from"), (0, "10.0 points above linear, a")):
        said = advised(kd=[range(alone)], linear=[range(20, 40)])
        assert said.startswith("One seed: another may give another order. kd has the highest score")
        assert says in said
        assert ("to which a tie goes" in said) == (alone > 0)


def advised(**wrong: list[range]) -> str:
    """The advice on 200 held-out rows, of which students answer these wrong, seed by seed."""
    labels = numpy.arange(200) % 2
    measured = rows(**{name: [1 - len(some) / 200 for some in each] for name, each in wrong.items()})
    for row, _ in measured:
        for seed, some in enumerate(wrong[row.place]):
            answers = labels.copy()
            answers[list(some)] ^= 1
            items = {"dev": answers}, {"dev": labels}
            row.cells["t"][seed] = Cell(row.place, "", row.cells["t"][seed].record, partial(tuple, items))
    table = compared.Table({"t": {}}, [row for row, _ in measured], [])
    line = {"milliseconds": {"1": 1.0}, "bytes": 1}
    return arena.advice(table, "t", measured, {row.path: line for row, _ in measured}, None, {})


def test_a_row_is_dead_if_its_students_are_not_above_the_largest_class() -> None:
    """By the held-out rows: however far two seeds are from each other, and with each of them. It is 40%."""
    assert "left out" not in advised(kd=[range(20), range(80)], linear=[range(60), range(60)])
    assert "is: kd (the rate" in advised(kd=[range(10), range(110)], linear=[range(60), range(60)])
    said = advised(kd=[range(110)], linear=[range(60)])  # 45%, within 7 of it
    assert said.startswith("One seed: another may give another order. linear has the highest score, 70.0; it is")
    assert said.endswith("; the likely cause is: kd (the rate, of which one was tried).")
    measured = rows(kd=[0.0, 0.0])
    for record in measured[0][0].records():
        record["primary"]["name"] = "matthews"
    table, line = compared.Table({"t": {}}, [measured[0][0]], []), {"milliseconds": {"1": 1.0}, "bytes": 1}
    of_row = {measured[0][0].path: line}
    assert arena.advice(table, "t", measured, of_row, None, {}).startswith("No row gives several answers and is above")


def test_advice_follows_from_the_figures() -> None:
    def said(teacher: float = 0.92, **scores: list[float]) -> str:
        measured, of_row = rows(**scores), dict[str, Any]()
        for row, _ in measured:
            usual, own = (40.0, 8e6), {"fast": (1.0, 4e6), "quick": (1.05, 4e6), "small": (50.0, 1e6)}
            milliseconds, size = own.get(row.place, usual)
            of_row[row.path] = {"milliseconds": {"1": milliseconds}, "bytes": size}
        every = [row for row, _ in (*measured, *rows(kd=[0.1]))]  # a KD that was not measured
        table = compared.Table({"t": {}}, every, [])
        return arena.advice(table, "t", measured, of_row, teacher, {})

    close = {"best": [0.80, 0.84], "kd": [0.81, 0.82], "fast": [0.77, 0.81], "small": [0.64, 0.66]}
    assert said(0.83, **close) == (
        "best has the highest score, 82.0, within the noise of vanilla KD; fast is 40.0 times faster, 3.0 points below"
        " it; small is 8.0 times smaller, within the noise of it."
    )
    assert "; quick is 38.1 times faster, " in said(0.83, **close, quick=[0.78, 0.82])  # the better of two like times
    clear = {"best": [0.90, 0.92], "kd": [0.80, 0.82]}
    assert said(**clear) == "best has the highest score, 91.0, 10.0 points above vanilla KD."
    assert said(0.9, **clear).endswith(
        ". The teacher itself has 90.0: another, or more --teacher-epochs, may serve better."
    )
    assert "The teacher has 96.0: students that learn for longer, --budget, may come closer." in said(0.96, **clear)
    assert said(kd=[0.9, 0.9], fast=[0.8, 0.8]).startswith("kd has the highest score, 90.0, 10.0 points above fast; ")
    assert ", 2.0 points above vanilla KD" in said(best=[0.82], kd=[0.80])
    other = {"best": [0.9, 0.9], "cmow_kd": [0.88, 0.88]}  # of another kind: a rival by its name, and no vanilla KD
    assert ", 2.0 points above cmow_kd." in said(0.9, **other)
    assert said(0.9, **other, kd=[0.8, 0.8]) == "best has the highest score, 90.0, 10.0 points above vanilla KD."
    assert said(kd=[0.4, 0.4], fast=[0.3, 0.4]).startswith("No row gives several answers and is above guessing")
    # one that is not above the largest class is named, and is neither fastest nor smallest
    dead = said(0.9, **other, fast=[0.3, 0.5]).partition("cmow_kd. ")[2]
    says = (
        "These are left out, as they are not shown to have learnt anything (one answer, or a seed not above guessing)"
    )
    assert dead == f"{says}; the likely cause is: fast (the rate, of which one was tried)."
    measured = rows(best=[0.9, 0.9], even=[0.8, 0.8])
    for (row, _), value in zip(measured, (0.7, 0.75), strict=True):
        for record in row.records():
            record["metrics"]["dev"]["macro_f1"] = value
    of_row = {row.path: {"milliseconds": {"1": 1.0}, "bytes": 1} for row, _ in measured}
    table = compared.Table({"t": {}}, [row for row, _ in measured], [])
    unlike = arena.advice(table, "t", measured, of_row, 0.9, {})
    assert "By macro F1, where small classes count as large ones, even is the best, 75.0 against 70.0." in unlike
    linear, model = {"linear": [0.88, 0.88], "kd": [0.8, 0.8]}, "a linear model from 1,600 labelled rows"
    assert said(best=[0.91, 0.91], **linear).endswith(f"; it is 3.0 points above linear, {model}.")
    tie = said(best=[0.86, 0.92], **linear)
    assert tie.endswith(f"; it is within the noise of linear, {model}, to which a tie goes.")
    assert f"; it is {model}: no network is worth it" in said(best=[0.7, 0.7], **linear)
