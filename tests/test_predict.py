"""`bench predict`: what a saved student of any method says of a table's rows."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tickets
import torch
from conftest import ROOT, blocks, module_of, outside, ran, sentences, tiny_bert, word_tokenizer
from safetensors.numpy import load_file
from scipy.special import softmax

from bench import predict
from common import data, models, outputs, parallel, results
from common import own as own_data
from common.errors import BadInput
from common.layers import attention, packed
from common.tasks import Columns
from methods import cmow, xtc

linear = module_of("linear")
TEXTS = ["a good film", "", "the plot was bad " * 500, "music"]
NAMES = {"id2label": {0: "praise", 1: "complaint"}, "label2id": {"praise": 0, "complaint": 1}}


def student(what: str) -> Any:
    """A model as a run saves it."""
    if what == "cmow":
        config = cmow.student_config(cmow.Args(), word_tokenizer())
        config.id2label = NAMES["id2label"]
        return cmow.MatrixEmbeddingForSequenceClassification(config).eval()
    changes: dict[str, Any] = {"scores": {"num_labels": 1}}.get(what, NAMES)
    if what == "labels":
        changes = changes | {"problem_type": "multi_label_classification"}
    model = tiny_bert(2, 32, **changes).eval()
    if what == "packed":
        xtc.quantize(model, 1)
        packed.pack_model(model)
    elif what == "converted":
        attention.convert(model, "lsg", 64, word_tokenizer(), block=8)
    return model


def said(monkeypatch: pytest.MonkeyPatch, *argv: Any) -> None:
    monkeypatch.setattr(parallel, "start", lambda *_: None)
    predict.main([str(word) for word in argv])


@pytest.mark.parametrize("what", ["plain", "packed", "cmow", "converted", "scores", "labels"])
def test_every_kind_of_student(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answers are the model's, row by row, whatever is read at a time; long texts are cut where training cut them,
    and an empty one has an answer and is named."""
    model, folder, out = student(what), tmp_path / "student", tmp_path / "answers.csv"
    models.save(model, word_tokenizer(), folder, "", max_length=16)
    rows = "".join(json.dumps({"id": f"r{i}", "text": text or None}) + "\n" for i, text in enumerate(TEXTS))
    (tmp_path / "texts.jsonl").write_text(rows)
    monkeypatch.setattr(predict, "ROWS", 3)
    said(monkeypatch, folder, tmp_path / "texts.jsonl", "--out", out)
    found = list(csv.DictReader(out.open()))
    assert [row["id"] for row in found] == ["r0", "r1", "r2", "r3"]
    told = capsys.readouterr().err
    assert f"1 texts are empty, and predicted all the same: {tmp_path / 'texts.jsonl'} line 2" in told
    assert "1 of 4 texts are longer than in training" in told
    for text, row in zip(TEXTS, found, strict=True):
        inputs = word_tokenizer()(text, truncation=True, max_length=16, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        if what == "scores":
            assert float(row["score"]) == pytest.approx(float(logits), abs=1e-4)
            continue
        p = (logits.sigmoid() if what == "labels" else logits.softmax(-1)).tolist()
        assert [float(row["praise"]), float(row["complaint"])] == pytest.approx(p, abs=1e-4)
        chosen = [one > 0.5 for one in p] if what == "labels" else [one == max(p) for one in p]
        assert row["label"] == ",".join(NAMES["id2label"][i] for i, yes in enumerate(chosen) if yes)


def test_a_tokenizers_sides_are_kept(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.padding_side, tokenizer.truncation_side = "left", "left"
    models.save(tiny_bert(1, 16), tokenizer, tmp_path, "")
    read = models.load_tokenizer(str(tmp_path))
    assert (read.padding_side, read.truncation_side) == ("left", "left")


def test_a_file_of_one_column(tmp_path: Path) -> None:
    """Each line is a row, empty or not, as pandas and spreadsheets write them; the first names the column."""
    for empty in ('""', "", "   "):
        (tmp_path / "t.csv").write_text(f"text\ngood\n{empty}\nbad\n\n")
        assert [t.strip() for (t,) in predict.read(tmp_path / "t.csv", tmp_path, None)[0].texts] == ["good", "", "bad"]
    (tmp_path / "t.txt").write_text("good\nbad\n")
    with pytest.raises(BadInput, match="no column text, it has good; --text COLUMN names that of the texts"):
        predict.read(tmp_path / "t.txt", tmp_path, None)


@pytest.mark.parametrize("method", ["mc3kd", "linear"])
def test_a_runs_folder(method: str, easy: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what the run has kept of the same texts, in the columns that it was trained with; and the answers are a
    file of outputs for a next student. No place of this machine is kept, but in the command as it was typed."""
    variant = {"mc3kd": "kd", "linear": "linear"}[method]
    ran(method, *easy, "--variant", variant, "--budget", "320", "--out-dir", tmp_path)
    folder = next(tmp_path.rglob("result.json")).parent
    kept = [results.load(folder / "result.json") | {"command": ""}, (folder / "args.json").read_text()]
    assert str(Path(easy[easy.index("--teacher") + 1]).parent) not in json.dumps(kept)
    dev = Path(easy[easy.index("--data-dir") + 1], "SST-2", "dev.tsv")
    assert predict.trained_with(folder)["text"] == ["sentence"]
    said(monkeypatch, folder, dev, "--out", tmp_path / "answers.csv")
    found = outputs.stored(Columns(outputs=str(tmp_path / "answers.csv")))
    kept = softmax(load_file(folder / "predictions.safetensors")["dev"].astype(float), axis=-1)
    assert found.names == ("negative", "positive")
    np.testing.assert_allclose(found.values, kept, atol=1e-4)


def test_this_months_student_against_last_months(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the held-out rows of the longer table, of which the older student has seen none."""
    folders, table, seen = [], tmp_path / "t.csv", list[set[Any]]()
    for rows in (300, 400):
        tickets.write(table, rows)
        task = data.load(str(table), columns=Columns(("body",), "team"))
        seen.append({*task.splits["train"].texts})
        ran("linear", "--task", table, "--text", "body", "--label", "team", "--variant", "linear-all",
            "--out-dir", tmp_path / str(rows))  # fmt: skip
        folders.append(next((tmp_path / str(rows)).rglob("result.json")).parent)
    held = task.splits["dev"]
    assert not {*held.texts} & seen[0]
    capsys.readouterr()
    said(monkeypatch, folders[1], table, "--against", folders[0])
    new, old, test = capsys.readouterr().out.splitlines()
    figures = [results.load(folder / "result.json")["metrics"]["dev"]["accuracy"] for folder in folders]
    assert new.startswith(f"{folders[1]}: Acc {100 * figures[1]:.1f}, macro F1 ")
    predicted = [predict.load(folder)[0](held)[0].argmax(1) for folder in folders]
    right = [answers == np.array(held.labels) for answers in predicted]
    assert old.startswith(f"{folders[0]}: Acc {100 * right[0].mean():.1f}, ")
    alone = [int((one & ~other).sum()) for one, other in (right[::-1], right)]
    assert f"{len(held)} held-out rows the first alone is right on {alone[0]}, the second alone on {alone[1]}" in test
    models.save(student("scores"), word_tokenizer(), tmp_path / "scores", "", max_length=16)
    with pytest.raises(BadInput, match="answers otherwise than"):
        said(monkeypatch, folders[1], table, "--against", tmp_path / "scores")


def test_scores_are_compared_as_they_were_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run's kind and metric, which its folder names."""
    table = tmp_path / "t.csv"
    words = [random.Random(i).choices(("good", "bad", "room", "view"), k=6) for i in range(90)]
    table.write_text(
        "text,score\n" + "".join(f"{' '.join(row)} {i},{row.count('good') + i / 100}\n" for i, row in enumerate(words))
    )
    ran("linear", "--task", table, "--label", "score", "--kind", "scores", "--metric", "spearman", "--variant",
        "linear-all", "--out-dir", tmp_path / "runs")  # fmt: skip
    folder = next((tmp_path / "runs").rglob("result.json")).parent
    capsys.readouterr()
    said(monkeypatch, folder, table, "--against", folder)
    first, second = capsys.readouterr().out.splitlines()
    score = results.load(folder / "result.json")["metrics"]["dev"]["spearman"]
    assert first == second
    assert first.startswith(f"{folder}: Spearman {100 * score:.1f}, ")


def test_a_table_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, words = student("plain"), sentences(2)
    models.save(model, word_tokenizer(), tmp_path, "", max_length=64)
    (tmp_path / "pairs.csv").write_text(f"question,answer\n{words[0]},{words[1]}\n")
    said(monkeypatch, tmp_path, tmp_path / "pairs.csv", "--text", "question,answer", "--out", tmp_path / "a.csv")
    (row,) = csv.DictReader((tmp_path / "a.csv").open())
    with torch.no_grad():
        p = model(**word_tokenizer()(*words, return_tensors="pt")).logits[0].softmax(-1)
    assert float(row["praise"]) == pytest.approx(float(p[0]), abs=1e-4)


def in_table(student: str) -> str:
    """How the page's table loads a student."""
    page = (ROOT / "docs" / "ship.md").read_text(encoding="utf-8")
    return re.search(rf"^\| {student}[^|]*\| `(.*?)`", page, re.MULTILINE)[1]  # type: ignore[index]


def test_the_pages_lines_answer_any_text(tmp_path: Path) -> None:
    """One of 2,000 words, an empty one, and short ones, in one batch, in a process outside the repository."""
    serve, steps = blocks("ship.md")[:2]
    usual, own = (
        "AutoModelForSequenceClassification.from_pretrained(folder)",
        in_table("efficient_attention, converted"),
    )
    code = f"texts = {TEXTS!r}\n"
    for what in ("plain", "packed", "cmow", "converted"):
        models.save(student(what), word_tokenizer(), tmp_path / what, "", max_length=16)
        code += f"folder = {what!r}\n"
        if what == "converted":
            code += "import distil_papers.common.layers.attention\n" + steps.replace(usual, own)
        else:
            code += steps + serve + "assert [answer['label'] for answer in answers] == names\n"
        code += "print(*logits.shape)\n"
    task = own_data.from_lists([f"{word} film {i}" for i in range(30) for word in ("a good", "bad")], ["x", "y"] * 30)
    (tmp_path / "linear").mkdir()
    linear.fit(task, task.splits["train"], 3.0).save(tmp_path / "linear")
    line = in_table("linear").replace('[("a text",)]', "[(text,) for text in texts]")
    code += f"folder = 'linear'\nimport distil_papers.bench.baselines.linear\nprint(*{line}.shape)"
    assert outside(tmp_path, code).split("\n") == ["4 2"] * 5 + [""]


@pytest.mark.slow
def test_the_pages_graph_of_a_packed_student(tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    models.save(student("packed"), word_tokenizer(), tmp_path / "packed", "", max_length=16)
    code = "\n".join([f"texts, folder = {TEXTS!r}, 'packed'", *blocks("ship.md")[1:4], "print(*logits.shape)"])
    assert outside(tmp_path, code).split("\n")[-2] == "4 2"
