"""The linear baseline: what it sees, that it learns, and that a saved one says the same."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import module_of, ran, records
from safetensors.numpy import load_file
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report

from bench import report
from bench.speed import load_student
from bench.table import load as table_of
from common import data, own

linear = module_of("linear")


def test_it_learns_from_the_rows_that_it_says(easy: list[str], tmp_path: Path) -> None:
    """Both variants learn the task, without a teacher; the first sees the students' first examples, each once."""
    ran("linear", *easy, "--budget", "320", "--out-dir", tmp_path)
    some, whole = sorted(records(tmp_path), key=lambda one: one["ledger"]["student_examples"])
    seen = [(one["variant"], one["ledger"]["student_examples"]) for one in (some, whole)]
    assert seen == [("linear", 320), ("linear-all", 640)]
    assert whole["primary"]["value"] >= some["primary"]["value"] > 0.9
    assert some["ledger"]["teacher_examples"] == some["teacher"]["bytes"] == 0
    table = table_of([tmp_path])
    assert {row.label: table.labelled(row) for row in table.rows} == {"linear": "320", "linear-all": "640"}
    assert not table.teachers()


@pytest.mark.parametrize(("labels", "chosen"), [(["a", "b", "c"], 3), (["a", "b"], 2), ([0.5, 1.5, 4.0], 1)])
@pytest.mark.parametrize("pair", [False, True])
def test_a_saved_model_says_the_same(labels: list[str | float], chosen: int, pair: bool, tmp_path: Path) -> None:
    """Of two, three classes and scores, of texts and pairs. A class that no row has is never the answer."""
    words = ["red apple", "green pear", "blue plum"]
    rows = [(f"{words[i % len(labels)]} number {i}", labels[i % len(labels)]) for i in range(60)]
    texts = [(text, "a " + text) if pair else text for text, _ in rows]
    task = own.from_lists(texts, [label for _, label in rows], kind="scores" if chosen == 1 else None)
    first = task.splits["train"].rows([i for i, label in enumerate(task.splits["train"].labels) if label != 2])
    model = linear.fit(task, first, 3.0)
    said, answers = model(task.splits["dev"].texts), {*first.labels}
    assert said.shape == (len(task.splits["dev"]), chosen)
    assert chosen == 1 or {*said.argmax(1)} <= answers
    assert model.save(tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())
    np.testing.assert_allclose(load_student(tmp_path)(texts=task.splits["dev"].texts), said, rtol=1e-5, atol=1e-6)


def test_a_text_with_several_labels(tmp_path: Path) -> None:
    """Each label is scikit-learn's regression by itself; of what all rows have, or none, nothing is learnt."""
    rows = [[word for word in ("red", "green") if i % 3 != len(word) % 3] for i in range(90)]
    texts = [" ".join([*words, f"number {i}"]) for i, words in enumerate(rows)]
    task = own.from_lists(texts, [[*words, "all"] for words in rows], kind="labels")
    model, wanted = linear.fit(task, task.splits["train"], 3.0), np.array(task.splits["dev"].labels)
    assert task.task.labels == ("all", "green", "red")
    assert len(set(wanted.sum(1))) > 1
    said = model(task.splits["dev"].texts)
    np.testing.assert_array_equal(said > 0, wanted)
    X = linear.features(model.tf_idf, task.splits["train"].texts)
    green = LogisticRegression(C=3.0, max_iter=1000).fit(X, np.array(task.splits["train"].labels)[:, 1])
    held_out = linear.features(model.tf_idf, task.splits["dev"].texts)
    np.testing.assert_allclose(expit(said[:, 1]), green.predict_proba(held_out)[:, 1], rtol=1e-4)


def test_what_it_predicts_is_kept(easy: list[str], tmp_path: Path) -> None:
    """The same bits again, as logits of each class, of which softmax makes scikit-learn's probabilities."""
    for out in ("a", "b"):
        ran("linear", *easy, "--variant", "linear", "--out-dir", tmp_path / out)
    first, second = (load_file(next((tmp_path / out).rglob("predictions.safetensors")))["dev"] for out in "ab")
    assert first.shape == (200, 2)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first.sum(1), 0, atol=1e-5)


def test_each_class_has_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one's own data, in the result and in the report; the counts of the answers are the confusion matrix."""
    rng, words = random.Random(0), ("late", "early", "lost")
    rows = [(rng.choice(words), rng.choice(words), words[min(i % 7, 2)]) for i in range(300)]
    lines = "\n".join(
        f"{one} and {other} {label if i % 3 else one} {i},{label}" for i, (one, other, label) in enumerate(rows)
    )
    (tmp_path / "t.csv").write_text(f"text,label\n{lines}\n")
    monkeypatch.setattr(
        sys, "argv", ["linear.py", "--task", str(tmp_path / "t.csv")]
    )  # what a result calls its command
    ran("linear", "--task", tmp_path / "t.csv", "--variant", "linear-all", "--out-dir", tmp_path / "runs")
    (record,), (path,) = records(tmp_path), tmp_path.rglob("predictions.safetensors")
    task, found = data.load(str(tmp_path / "t.csv")), record["analysis"]["by_class"]["dev"]
    answers, labels = load_file(path)["dev"].argmax(1), np.array(task.splits["dev"].labels)
    wanted = classification_report(labels, answers, target_names=task.task.labels, output_dict=True)
    for i, name in enumerate(task.task.labels):
        figures = {
            key.replace("f1-score", "f1").replace("support", "count"): value for key, value in wanted[name].items()
        }
        assert {key: found[name][key] for key in figures} == pytest.approx(figures)
        assert found[name]["answered"] == {
            task.task.labels[j]: n for j in range(3) if (n := int(sum((labels == i) & (answers == j))))
        }
    ((cell,),) = (seeds.values() for seeds in table_of([tmp_path / "runs"]).rows[0].cells.values())
    assert len(cell.influence) == len(labels)  # the labels are found again, so that intervals count test items
    grid = report.by_class(table_of([tmp_path / "runs"]))
    assert grid.rows[0][-1] == f"macro {100 * wanted['macro avg']['f1-score']:.1f}"
    assert [row[:2] for row in grid.rows[1:]] == [[name, str(one["count"])] for name, one in found.items()]
    assert report.sections(table_of([tmp_path / "runs"]), [], tmp_path)["By class"] == [grid]
