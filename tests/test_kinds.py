"""A kind of task is one class in one file: several labels of one text, end to end; and what every kind has to know."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import NEGATIVE, NEUTRAL, POSITIVE, ran, records
from content import write

from common import data
from common.evaluate import TITLES
from common.kinds import KINDS, MODULES, OWN
from common.losses import baseline, kd_loss, kl_loss, label_loss
from common.metrics import METRICS
from common.tasks import TASKS, Columns

MOODS = {"bright": POSITIVE[0], "grim": NEGATIVE[0], "long": "story"}


def sheet(rows: int = 400) -> list[tuple[str, list[str]]]:
    """Texts that hold a word for each of their labels."""
    rng, found = random.Random(0), []
    for i in range(rows):
        labels = [name for name in MOODS if rng.random() < 0.5]
        words = [*(MOODS[name] for name in labels), *rng.choices(NEUTRAL[:2], k=4), f"w{i}"]
        found.append((" ".join(rng.sample(words, len(words))), labels))
    return found


def test_every_kind_is_whole() -> None:
    """Names are their own; a metric that tables hold has a title; tasks of the table have metrics that are known."""
    assert set(OWN.values()) < set(MODULES)
    for task in TASKS.values():
        assert set(task.metrics) <= set(TITLES)
    for kind in map(KINDS.__getitem__, MODULES):
        assert {*kind.own_metrics, *kind.more_metrics} <= set(TITLES) | {"majority"}
        assert kind.auto.__name__ == kind.head
    assert KINDS["multi-label classification"].among(("classification", "regression"))
    assert not KINDS["classification"].among(("regression", "span QA"))
    assert set(METRICS) <= set(TITLES)


@pytest.mark.parametrize("form", ["lists", "json", "commas", "columns"])
def test_labels_are_read_in_every_form(form: str, tmp_path: Path) -> None:
    rows = sheet(60)
    label, path = None, tmp_path / "t.csv"
    if form == "lists":
        path = tmp_path / "t.jsonl"
        content = "".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in rows)
    elif form == "columns":
        label = ",".join(sorted(MOODS))
        lines = [f"{text},{','.join(str(int(name in labels)) for name in sorted(MOODS))}" for text, labels in rows]
        content = f"text,{label}\n" + "\n".join(lines)
    else:
        cells = [json.dumps(labels).replace('"', '""') if form == "json" else ",".join(labels) for _, labels in rows]
        content = "text,label\n" + "\n".join(f'{text},"{cell}"' for (text, _), cell in zip(rows, cells, strict=True))
    task = data.load(str(write(path, content)), columns=Columns(label=label, kind="labels"))
    assert task.task.labels == ("bright", "grim", "long")
    found = dict(zip(task.splits["train"].texts, task.splits["train"].labels, strict=True))
    found |= dict(zip(task.splits["dev"].texts, task.splits["dev"].labels, strict=True))
    assert found == {(text,): [int(name in labels) for name in sorted(MOODS)] for text, labels in rows}


def test_losses_are_those_of_each_label() -> None:
    """Binary cross-entropy, and the binary KL divergence of both sides softened by T, against torch's own."""
    kind, T = KINDS["multi-label classification"], 2.0
    student, teacher = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    labels = torch.randint(2, (5, 3))
    (s, targets), (t, _) = (kind.predictions(SimpleNamespace(logits=z), labels, labels) for z in (student, teacher))
    bce = F.binary_cross_entropy_with_logits(student, labels.double(), reduction="none").flatten()
    torch.testing.assert_close(label_loss(s, targets), bce)
    p, q = (torch.distributions.Bernoulli(logits=z / T) for z in (teacher, student))
    kl = T**2 * torch.distributions.kl_divergence(p, q).flatten()
    torch.testing.assert_close(kl_loss(s, t, T), kl)
    assert kind.log_loss(student.numpy(), labels.tolist()) == pytest.approx(bce.mean().item())
    assert kind.agreement(np.array([[1.0, -2.0]]), np.array([[3.0, 1.0]])) == 0.5


def test_a_student_learns_several_labels(tmp_path: Path, backbone: Path) -> None:
    """From a file to a table: the undistilled student and KD of a script that knows nothing of the kind."""
    lines = [f'{text},"{",".join(labels)}"' for text, labels in sheet()]
    path = write(tmp_path / "moods.csv", "text,label\n" + "\n".join(lines))
    words = f"--task {path} --kind labels --teacher {backbone} --teacher-epochs 40 --student 2x32"
    words += " --variant finetune,kd --lr 3e-3 --budget 6400 --max-length 16 --device cpu"
    assert "micro_f1" in ran("mc3kd", *words.split(), "--out-dir", tmp_path / "out")
    found = records(tmp_path / "out")
    assert [record["variant"] for record in found] == ["finetune", "kd"]
    for record in found:
        assert list(record["metrics"]["dev"]) == ["micro_f1", "macro_f1"]
        assert record["metrics"]["dev"]["micro_f1"] > 0.7  # of who says nothing 0, of who says all 2/3
        assert record["teacher"]["metrics"]["dev"]["micro_f1"] > 0.8
        each = [one["f1"] for one in record["analysis"]["by_class"]["dev"].values()]
        assert sum(each) / len(each) == pytest.approx(record["metrics"]["dev"]["macro_f1"])


def test_soft_labels_of_tags_are_not_softened() -> None:
    """Unless `--temperature` says so: of others the default is 2."""
    assert {name for name in MODULES if KINDS[name].temperature != 2.0} == {"token classification"}
    logits, soft = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    labels = torch.randint(0, 5, (2, 3))
    for given, used in ((None, 1.0), (3.0, 3.0)):
        args = SimpleNamespace(alpha=0.7, temperature=given)
        batch = SimpleNamespace(kind=KINDS["token classification"])
        batch.predictions = lambda out: (out.flatten(0, 1), labels.flatten())
        wanted = kd_loss(logits.flatten(0, 1), soft.flatten(0, 1), labels.flatten(), 0.7, used)
        assert torch.equal(baseline(args, batch, logits, soft), wanted)
