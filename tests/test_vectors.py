"""Sentence embeddings: a student of vectors, from texts alone, or with pairs that score it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import bert_config, ran, records, sentences, stopped, word_tokenizer
from safetensors.numpy import load_file
from test_input import refused, write
from transformers import AutoModel, BertModel

from common import data, models, teacher
from common.kinds import KINDS
from common.layers.embedding import TextEmbedder
from common.losses import kd_loss
from common.metrics import METRICS
from common.tasks import Columns

KIND, PAIRS = KINDS["text embedding"], Columns(("sentence1", "sentence2"), "score", "vectors")


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher as sentence-transformers has them, but for the pooling's folder: the mean is usual."""
    folder = tmp_path_factory.mktemp("models") / "embedder"
    torch.manual_seed(3)
    models.save(BertModel(bert_config(2, 32, initializer_range=0.2)), word_tokenizer(), folder, "")
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Texts alone to learn from, pairs with scores to be scored on."""
    train = "".join(f"{text},,\n" for text in sentences(400))
    dev = "".join(f"{a},{b},{i % 6}\n" for i, (a, b) in enumerate(zip(sentences(60, 1), sentences(60, 2), strict=True)))
    for name, rows in (("train", train), ("dev", dev)):
        write(tmp_path / "pairs" / f"{name}.csv", f"sentence1,sentence2,score\n{rows}")
    return tmp_path / "pairs"


def words(task: Path, teacher: Path, out: Path, *more: Any) -> list[Any]:
    argv = ["--task", task, "--kind", "vectors", "--teacher", teacher, "--variant", "kd", "--max-length", 16]
    argv += ["--text", "sentence1,sentence2", "--label", "score"] if task.is_dir() else []
    return [*argv, "--budget", 6400, "--out-dir", out, "--device", "cpu", *more]


def test_the_loss_is_twice_one_minus_the_cosine() -> None:
    s, t = torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    nothing = torch.full((5,), float("nan"))
    (x, none), (y, _) = (KIND.predictions(SimpleNamespace(logits=3 * z), nothing, None) for z in (s, t))
    expected = (2 - 2 * F.cosine_similarity(s, t)).mean().float()
    torch.testing.assert_close(kd_loss(x, y, none, 1.0, 2.0), expected)


@pytest.mark.parametrize(("shape", "floor"), [("1x32", 0.7), ("1x16", 0.2)])
def test_a_student_of_vectors(shape: str, floor: float, pairs: Path, embedder: Path, tmp_path: Path) -> None:
    """It comes near its teacher, is scored by its cosines, and its folder gives the vectors that were scored."""
    out = ran("mc3kd", *words(pairs, embedder, tmp_path / "runs", "--student", shape, "--lr", "3e-3"))
    assert "dev spearman" in out
    (path,) = (tmp_path / "runs").rglob("result.json")
    record = json.loads(path.read_text())
    assert record["agreement"]["dev"] > floor  # the correlation of its cosines with the teacher's
    task = data.load(str(pairs), columns=replace(PAIRS, teacher=str(embedder)))
    model, tokenizer = TextEmbedder.from_pretrained(str(path.parent)).eval(), word_tokenizer()

    def vectors(side: int) -> torch.Tensor:
        inputs = tokenizer([texts[side] for texts in task.splits["dev"].texts], padding=True, return_tensors="pt")
        with torch.no_grad():
            return model(**inputs).logits

    cosines = F.cosine_similarity(vectors(0), vectors(1)).numpy()
    np.testing.assert_allclose(cosines, load_file(path.with_name("predictions.safetensors"))["dev"], atol=1e-5)
    spearman = METRICS["spearman"](cosines, task.splits["dev"].labels)
    assert record["metrics"]["dev"]["spearman"] == pytest.approx(spearman, abs=1e-3)
    steps = [step["type"].rpartition(".")[2] for step in json.loads(path.with_name("modules.json").read_text())]
    assert ("Dense" in steps) == (shape == "1x16")
    _, report = AutoModel.from_pretrained(path.parent, output_loading_info=True)  # the library's own reading
    assert not report["unexpected_keys"]
    assert all("pooler" in key for key in report["missing_keys"])


def test_texts_alone_and_stored_vectors(embedder: Path, backbone: Path, tmp_path: Path) -> None:
    """Without pairs the score is the mean cosine to the teacher's vectors, which may lie in a file."""
    texts = sentences(200)
    file = write(tmp_path / "t.csv", "text\n" + "\n".join(texts))
    out = ran("cmow", *words(file, embedder, tmp_path / "a", "--student", "cbow-32", "--head", "linear"))
    assert "dev agreement" in out
    model, tokenizer = TextEmbedder.from_pretrained(str(embedder)).eval(), word_tokenizer()
    with torch.no_grad():
        said = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    stored = write(tmp_path / "v.jsonl", "\n".join(json.dumps({"vector": row}) for row in said.tolist()))
    argv = words(file, embedder, tmp_path / "b", "--teacher-outputs", stored, "--init", backbone, "--student", "2x32")
    ran("mc3kd", *argv, "--lr", "3e-3")
    found = records(tmp_path)
    assert [record["primary"]["name"] for record in found] == ["agreement", "agreement"]
    assert all(record["primary"]["value"] > 0.8 for record in found)


def test_the_pooling_of_a_checkpoint_is_its_own(embedder: Path, tmp_path: Path) -> None:
    model = TextEmbedder.from_pretrained(str(embedder)).eval()
    inputs = word_tokenizer()(sentences(4), padding=True, return_tensors="pt")
    for mode, expected in (("cls_token", lambda states: states[:, 0]), ("max_tokens", None)):
        folder = tmp_path / mode
        models.save(model, word_tokenizer(), folder, "")
        write(folder / "1_Pooling" / "config.json", json.dumps({f"pooling_mode_{mode}": True}))
        if expected is None:
            refused(lambda: TextEmbedder.from_pretrained(str(tmp_path / "max_tokens")), "pools by max")
            continue
        found = TextEmbedder.from_pretrained(str(folder)).eval()
        torch.testing.assert_close(found(**inputs).logits, expected(model.body(**inputs).last_hidden_state))
        assert teacher.weights_of(found) == teacher.weights_of(model) | {"embedding_pooling": "cls"}  # in keys


def test_what_vectors_cannot_do(pairs: Path, embedder: Path, backbone: Path, tmp_path: Path) -> None:
    for method, more, says in [
        ("mc3kd", ["--variant", "finetune"], "learns from labels"),
        ("mc3kd", ["--teacher", f"{embedder},{backbone}"], "--teacher A,B"),
        ("xtc", [], "this method does classification, regression"),
    ]:
        assert says in stopped(method, *words(pairs, embedder, tmp_path / "runs", "--student", "2x32"), *more)
    one_text = (pairs / "dev.csv").read_text().splitlines()
    write(pairs / "dev.csv", "\n".join([*one_text, "one text,,3"]))
    columns = replace(PAIRS, teacher=str(embedder))
    refused(lambda: data.load(str(pairs), columns=columns), "dev.csv line 62: has a score")
    refused(lambda: data.load(str(pairs), columns=PAIRS), "no ")
