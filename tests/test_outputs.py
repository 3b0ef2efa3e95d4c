"""The teacher as data: rows without labels, stored outputs, a student with tokens of its own, several teachers."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import POSITIVE, ran, records, refused, sentences, stopped

from common import data, losses
from common.args import CommonArgs
from common.tasks import Columns
from common.teacher import get_teacher

CLASSES = ("negative", "positive")
TEXTS = sentences(200, 4)


def table(path: Path, header: str, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


@pytest.fixture
def unlabelled(tmp_path: Path) -> Path:
    return table(tmp_path / "texts.csv", "id,text", [[f"r{i}", text] for i, text in enumerate(TEXTS)])


def probabilities(count: int = 200) -> list[list[float]]:
    """Of row i, whose class is i modulo 2."""
    return [[0.9, 0.1] if i % 2 == 0 else [0.125, 0.875] for i in range(count)]


def listed(row: list[float]) -> list[dict[str, Any]]:
    """As the library's pipeline gives a row, the largest first."""
    found = [{"label": name, "score": p} for name, p in zip(("NEGATIVE", "POSITIVE"), row, strict=True)]
    return sorted(found, key=lambda one: -float(one["score"]))


def write(folder: Path, form: str) -> Path:
    """The outputs of `probabilities`, in one of the forms that a file may have."""
    rows = probabilities()
    path = folder / f"outputs.{form.partition(' ')[0]}"
    numbers = list(range(len(rows)))
    random.Random(1).shuffle(numbers)
    if form == "csv by id":
        return table(path, "id,positive,negative", [[f"r{i}", rows[i][1], rows[i][0]] for i in numbers])
    if form == "csv of logits":
        logits = [[math.log(p) + 3 for p in row] for row in rows]
        return table(path, "negative,positive,model", [[*row, "large"] for row in logits])
    if form == "csv of pandas":
        return table(path, "Unnamed: 0,negative,positive", [[i, *row] for i, row in enumerate(rows)])
    if form == "csv of numbered outputs":
        return table(path, "LABEL_1,LABEL_0", [[b, a] for a, b in rows])
    if form == "jsonl of the library":
        lines = [json.dumps({"probs": listed(row)}) for row in rows]
    elif form == "jsonl of the pipeline":
        lines = [json.dumps(listed(row)) for row in rows]
    else:
        lines = [json.dumps([listed(row) for row in rows], indent=1)]
    path.write_text("\n".join(lines))
    return path


UNNAMED = "csv of numbered outputs"
FORMS = ("csv by id", "csv of pandas", "csv of logits", "jsonl of the library", "json of the pipeline",
         "jsonl of the pipeline", UNNAMED)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_is_the_same_teacher(form: str, unlabelled: Path, backbone: Path, tmp_path: Path) -> None:
    """What a batch is taught is what the file says of its texts, whatever their order, here and there; LABEL_0 in a
    file's columns is the class that --label-map says."""
    names = "1=positive,0=negative" if form == UNNAMED else None
    columns = Columns(outputs=str(write(tmp_path, form)), label_map=names)
    task = data.load(str(unlabelled), columns=columns)
    assert {name.lower() for name in task.task.labels} == set(CLASSES)
    assert f"0 of {len(task.splits['train'])} training rows have labels" in task.origin
    args = CommonArgs(teacher_outputs=columns.outputs, label_map=names, init=str(backbone), max_length=16)
    teacher = get_teacher(args, task)
    assert teacher.metrics == {"dev": {"agreement": 1.0}}
    encoded = data.encode(teacher.tokenizer, task.splits["train"], task.task, 16)
    kept = teacher.kept
    assert kept is not None
    assert kept.cost(32).teacher_examples == 0
    batch = data.collate(teacher.tokenizer, encoded, [5, 0, 77])
    said = kept.read([encoded.ids[i] for i in (5, 0, 77)], batch["attention_mask"]).logits.softmax(-1)
    place = {name.lower(): i for i, name in enumerate(task.task.labels)}
    for row, i in zip(said, (5, 0, 77), strict=True):
        mood = any(word in POSITIVE for word in task.splits["train"].texts[i][0].split())
        expected = [0.125, 0.875] if mood else [0.9, 0.1]
        torch.testing.assert_close(row[[place["negative"], place["positive"]]], torch.tensor(expected))


def test_from_texts_and_probabilities_to_a_student(unlabelled: Path, backbone: Path, tmp_path: Path) -> None:
    """The walk of docs/teacher_as_data.md: the student learns, and the table says what its score is."""
    outputs = write(tmp_path, "csv by id")
    argv = ["--variant", "kd", "--task", unlabelled, "--teacher-outputs", outputs, "--max-length", 16, "--lr", "5e-3"]
    argv += ["--budget", 4800, "--out-dir", tmp_path / "runs", "--device", "cpu"]
    assert "dev agreement" in ran("mc3kd", *argv, "--init", backbone, "--student", "2x32")
    (record,) = records(tmp_path / "runs")
    assert record["primary"]["name"] == "agreement"
    assert record["primary"]["value"] > 0.7
    assert record["teacher"]["parameters"] == record["ledger"]["teacher_examples"] == 0
    for method, more in (
        ("cmow", ["--teacher", backbone, "--student", "cbow-16"]),
        ("cka", ["--init", backbone, "--student", "2x32", "--variant", "kd,woh"]),
        ("xtc", ["--init", backbone, "--student", "2x32"]),
    ):
        ran(method, *argv, "--budget", 640, *more)


def test_rows_that_labels_alone_teach_need_them(unlabelled: Path, expert: Path, tmp_path: Path) -> None:
    """Whatever they are called; and what is held out to tune on has labels."""
    argv = ["--task", unlabelled, "--teacher", expert, "--max-length", 16, "--out-dir", tmp_path, "--device", "cpu"]
    alone = ["--variant", "woh", "--outputs", "labels", "--pretraining", "off", "--student", "2x32"]
    for method, more in (("efficient_attention", ["--variant", "distil"]), ("cka", alone)):
        assert f"--variant {more[1]}: learns from labels" in stopped(method, *argv, *more)
    half = tmp_path / "half.csv"
    half.write_text("text,label\n" + "".join(f"text {i},{'' if i % 3 else 'ab'[i % 2]}\n" for i in range(90)))
    held_out = data.load(str(half), tune=True).splits["held_out"]
    assert len(held_out) > 1
    assert None not in held_out.labels


@pytest.mark.parametrize(("places", "classes"), [(2, 40), (2, 30), (3, 100)])
def test_rounded_probabilities_are_read(places: int, classes: int, tmp_path: Path) -> None:
    """A row may sum to less than 1 by half of the last digit for each class; what is not rounded may not."""
    small = 0.49 * 0.1**places  # becomes 0
    row = [1 - small * (classes - 1), *[small] * (classes - 1)]
    names = [f"c{k:02d}" for k in range(classes)]
    texts = table(tmp_path / "t.csv", "text,label", [[text, names[i % 2]] for i, text in enumerate(TEXTS)])
    stored = [[round(p, places) for p in row]] * len(TEXTS)
    assert sum(stored[0]) < 0.99
    columns = Columns(outputs=str(table(tmp_path / "o.csv", ",".join(names), stored)))
    said = data.load(str(texts), columns=columns).splits["train"].outputs
    assert said.argmax(1).tolist() == [0] * len(said)
    table(tmp_path / "o.csv", ",".join(names), [[stored[0][0] + 1e-6, *stored[0][1:]]] * len(TEXTS))
    if sum(stored[0]) < 0.98:
        refused(lambda: data.load(str(texts), columns=columns), "line 2: its probabilities sum to 0")


def test_outputs_of_other_classes_and_of_dev(unlabelled: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    rows = [[f"r{i}", text, CLASSES[i % 2]] for i, text in enumerate(TEXTS)]
    table(folder / "train.csv", "id,text,label", rows[:150])
    table(folder / "dev.csv", "id,text,label", rows[150:])
    by_id = Columns(outputs=str(write(tmp_path, "csv by id")))
    task = data.load(str(folder), columns=by_id)
    assert "50 of its rows are dev's" in capsys.readouterr().err
    assert task.task.metrics[0] == "accuracy"


def test_a_table_of_which_a_column_says_the_splits(tmp_path: Path) -> None:
    """Outputs by row are those of train alone; dev may have labels where train has none."""
    split = ["dev" if i % 4 == 0 else "train" for i in range(200)]
    rows = [[text, split[i], CLASSES[i % 2] if split[i] == "dev" else ""] for i, text in enumerate(TEXTS)]
    file = table(tmp_path / "all.csv", "text,split,label", rows)
    outputs = [row for row, name in zip(probabilities(), split, strict=True) if name == "train"]
    stored = table(tmp_path / "o.csv", "negative,positive", outputs)
    task = data.load(str(file), columns=Columns(outputs=str(stored)))
    train = task.splits["train"]
    assert task.task.metrics[0] == "accuracy"
    moods = [any(word in POSITIVE for word in text.split()) for (text,) in train.texts]
    assert (train.outputs.argmax(1) == moods).all()
    stored = table(tmp_path / "o.csv", "negative,positive", probabilities())
    refused(lambda: data.load(str(file), columns=Columns(outputs=str(stored))), "200 rows, train has 150")


def test_rows_with_and_without_labels(expert: Path, tmp_path: Path) -> None:
    """KD reads all rows, the undistilled student those that have labels; dev is held out of these."""
    rows = [[text, CLASSES[i % 2] if i < 60 else ""] for i, text in enumerate(TEXTS)]
    file = table(tmp_path / "some.csv", "text,label", rows)
    argv = ["--task", file, "--teacher", expert, "--student", "2x32", "--max-length", 16, "--budget", 320]
    argv += ["--out-dir", tmp_path / "runs", "--variant", "finetune,kd", "--device", "cpu"]
    printed = ran("mc3kd", *argv)
    assert "56 of 196 training rows have labels" in printed
    assert "dev accuracy" in printed
    table(file, "text", [row[:1] for row in rows])
    assert "--variant finetune: learns from labels" in stopped("mc3kd", *argv)
    assert "dev agreement" in ran("mc3kd", *argv, "--variant", "kd")
    refused(lambda: data.load(str(file)), "no column is known to hold the")


def test_a_row_without_a_label_has_no_label_loss() -> None:
    logits = torch.randn(3, 1, requires_grad=True)
    loss = losses.label_loss(logits, torch.tensor([1.0, math.nan, 2.0]))
    loss.sum().backward()
    assert loss[1] == 0
    assert logits.grad[1] == 0
    assert logits.grad[0] != 0
    assert losses.label_loss(torch.randn(2, 2), torch.tensor([-100, 1]))[0] == 0
