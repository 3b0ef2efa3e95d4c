"""efficient_attention.py: appendix B's loss in float64, every other layer, both orders of stages in one budget."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import bert_config, draw, word_tokenizer
from test_attention import LIBRARY, of_the_library
from torch import Tensor
from transformers import BertForMaskedLM

from common import masking, models
from common.layers import attention, long
from common.parallel import mean
from common.run import Run
from common.tasks import TASKS
from common.text import Texts
from common.train import Stage
from methods import efficient_attention as ea

B, L, V, D = 2, 5, 7, 4
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
LABELS = torch.tensor([[-100, 3, -100, 0, -100], [-100, -100, 6, -100, -100]])


def outputs(seed: int) -> tuple[Tensor, Tensor]:
    return draw(B, L, V, seed=seed).requires_grad_(), draw(B, L, D, seed=seed + 2).requires_grad_()


def loss_of(student: tuple[Tensor, Tensor], teacher: tuple[Tensor, Tensor] | None) -> Tensor:
    s, t = (x and SimpleNamespace(logits=x[0], hidden_states=(None, x[1])) for x in (student, teacher))
    return ea.pretraining_loss(s, t, LABELS, MASK, mean)


def test_loss_by_hand() -> None:
    """Token by token: 5 T^2 KL + 2 CE + 1 (1 - cos), and the gradient against finite differences; padding has none."""
    student, teacher = outputs(0), tuple(x.detach() for x in outputs(1))
    s, S, t, T = (x.detach().numpy() for x in (*student, *teacher))
    terms: dict[str, list[float]] = {"kl": [], "ce": [], "cosine": []}
    for b, i in np.argwhere(MASK.numpy()):
        p, q = (np.exp(x[b, i] / 2) / np.exp(x[b, i] / 2).sum() for x in (t, s))
        terms["kl"].append(float(4 * (p * np.log(p / q)).sum()))
        if LABELS[b, i] >= 0:
            terms["ce"].append(math.log(np.exp(s[b, i]).sum()) - s[b, i, LABELS[b, i]])
        terms["cosine"].append(1 - float(S[b, i] @ T[b, i] / np.linalg.norm(S[b, i]) / np.linalg.norm(T[b, i])))
    kl, ce, cosine = (float(np.mean(values)) for values in terms.values())
    loss = loss_of(student, teacher)  # type: ignore[arg-type]
    assert loss.item() == pytest.approx(5 * kl + 2 * ce + cosine, rel=1e-10)
    assert loss_of(student, None).item() == pytest.approx(ce, rel=1e-10)
    loss.backward()
    assert all((x.grad[~MASK] == 0).all() for x in student)  # type: ignore[index]
    assert torch.autograd.gradcheck(lambda *x: loss_of(x, teacher), student)  # type: ignore[arg-type]


@pytest.fixture
def teacher() -> Any:
    torch.manual_seed(0)
    model = BertForMaskedLM(bert_config(4, 32, initializer_range=0.3)).eval()
    return SimpleNamespace(name="t", pretrained="t", model=model, tokenizer=word_tokenizer(), stored=False)


@pytest.mark.parametrize("name", list(attention.ATTENTIONS))
def test_every_other_layer(name: str, teacher: Any) -> None:
    """Layers 1 and 3 of four, with what conversion gave them; of --student 3x32, what --keep says; convert has all."""
    layers, keep = ea.depth(ea.Args(), teacher, "distil")
    assert (layers, keep) == (2, "1,3")
    assert ea.depth(ea.Args(student="3x32", keep="top"), teacher, "kd") == (3, "top")
    assert ea.depth(ea.Args(), teacher, "convert") == (4, "first")
    attention.convert(teacher.model, name, 128, teacher.tokenizer)
    weights = {key: value.clone() for key, value in teacher.model.state_dict().items()}
    half = models.keep_layers(teacher.model, keep, layers)
    for key, weight in half.state_dict().items():
        assert torch.equal(weight, weights[key.replace("layer.1.", "layer.2.")]), key


def test_both_orders_share_one_budget(teacher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages take their shares of the steps, none of them for a share of 0; each seed has its own. A head that the
    checkpoint lacks is the first stage, one for all seeds, where another stage trains."""
    recipes: list[dict[str, Any]] = []
    monkeypatch.setattr(masking, "load_masked_lm", lambda source: (None, source != "t" or has_head))
    has_head = True

    def shared(_kind: str, recipe: dict[str, Any], _make: Any) -> Any:
        recipes.append(recipe)
        return SimpleNamespace(folder=Path(recipe["source"]) / recipe["stage"])

    def stages(variant: str, **settings: Any) -> list[tuple[Any, ...]]:
        recipes.clear()
        args = ea.Args(variant=variant, max_length=128, short_length=16, batch_size=16, seed=3, **settings)
        run: Any = SimpleNamespace(steps=40, args=args, shared=shared, teacher=teacher, variant=variant)
        run.steps_for = partial(Run.steps_for, run)
        end = ea.before_the_task(args, run, Texts([], "texts"))
        assert end == "/".join(["t", *(recipe["stage"] for recipe in recipes)])
        assert all(recipe["seed"] == (0 if recipe["stage"] == "head" else 3) for recipe in recipes)
        return [
            tuple(recipe.get(key) for key in ("stage", "length", "steps", "epochs", "batch_size")) for recipe in recipes
        ]

    shares = {"convert_share": 0.1, "distil_share": 0.4}
    assert stages("convert-distil", **shares) == [("convert", 128, 4, 0, 16), ("distil", 128, 16, 0, 16)]
    assert stages("distil-convert", **shares) == [("distil", 16, 16, 0, 16), ("convert", 128, 4, 0, 16)]
    assert stages("convert-distil-kd", convert_share=0) == [("convert", 128, 0, 0, 16), ("distil", 128, 6, 0, 16)]
    assert stages("kd") == []
    stages("convert", stage_length=64)  # a model of more positions than its pieces have tokens is another
    assert [recipe.get("positions") for recipe in recipes] == [128]
    stages("convert")
    assert "positions" not in recipes[0]
    paper = stages("convert-distil", budget="paper")  # batches of 2^18 tokens
    assert paper == [("convert", 128, 3000, 0, 2048), ("distil", 128, 0, 3, 2048)]
    has_head = False
    assert stages("distil-convert", **shares)[:2] == [("head", 16, None, None, None), ("distil", 16, 16, 0, 16)]
    assert stages("convert", convert_share=0) == [("convert", 128, 0, 0, 16)]
    has_head = True
    attention.convert(teacher.model, "longformer", 128, teacher.tokenizer)
    assert stages("convert-distil") == [("distil", 128, 6, 0, 16)]  # a teacher that is long already stays what it is


@pytest.mark.parametrize("family", LIBRARY)
def test_published_long_models_are_teachers(family: str, tmp_path: Path) -> None:
    """The library's Longformer, BigBird and Nystromformer: kept as converted models, whole and halved, below the heads
    of all kinds of tasks; trained further before the task."""
    tokenizer, name = word_tokenizer(), attention.LIBRARY[family][0]
    theirs = of_the_library(family, vocab_size=31, pad_token_id=0)
    models.save(theirs, tokenizer, tmp_path / "published", "")
    args = ea.Args(
        teacher=str(tmp_path / "published"), attention=name, out_dir=str(tmp_path / "out"), max_length=48, batch_size=2
    )
    ids = torch.randint(5, 31, (2, 40), generator=torch.Generator().manual_seed(0))
    for task in ("sst2", "conll2003", "squad"):
        whole = long.long_teacher(args, TASKS[task])

        def shared(_kind: str, recipe: dict[str, Any], make: Any, task: str = task) -> Any:
            half, folder = make(Stage(args, recipe, tmp_path / task)), tmp_path / task / "half"
            models.save(half, tokenizer, folder, "")
            return SimpleNamespace(folder=folder)

        run: Any = SimpleNamespace(args=args, shared=shared, steps_for=lambda *_: 1)
        run.teacher = SimpleNamespace(tokenizer=tokenizer, pretrained=whole, stored=False)
        half = ea.distil(args, run, whole, Texts(["the film was good"] * 4, ""), 16, 1, "2")
        for source, layers in ((whole, 2), (half, 1)):
            model = long.with_task_head(source, TASKS[task], tokenizer, 0).eval()
            assert attention.kind_of(model.config) == name
            assert model.config.num_hidden_layers == layers
            assert all(torch.isfinite(x).all() for x in model(input_ids=ids).to_tuple())
        kept = masking.load_masked_lm(whole)[0].eval()
        expected = attention.from_library(theirs).eval()(input_ids=ids, global_attention_mask=torch.zeros_like(ids))
        assert torch.equal(kept(input_ids=ids, global_attention_mask=torch.zeros_like(ids)).logits, expected.logits)


def test_all_rows_start_from_a_fine_tuned_teachers_head(tmp_path: Path) -> None:
    """Of a teacher that is known only as it was fine-tuned, converted students have the pooler and the head, too; also
    of one that is converted itself, which has no masked-LM head."""
    tuned = models.build(bert_config(2, 16, initializer_range=0.3, num_labels=2), "classification")
    attention.convert(tuned, "bigbird", 64)
    models.save(tuned, word_tokenizer(), tmp_path / "tuned", "")
    assert not masking.load_masked_lm(str(tmp_path / "tuned"))[1]
    body = BertForMaskedLM(bert_config(2, 16))
    attention.convert(body, "bigbird", 64)
    models.save(body, word_tokenizer(), tmp_path / "body", "")
    assert masking.load_masked_lm(str(tmp_path / "body"))[1]
    for folder, below in (("tuned", tuned), ("body", body)):
        made = long.with_task_head(str(tmp_path / folder), TASKS["sst2"], word_tokenizer(), 0, tuned).state_dict()
        for name, weight in made.items():
            source = below if name in below.state_dict() else tuned
            assert torch.equal(weight, source.state_dict()[name]), name
        assert {"classifier.weight", "bert.pooler.dense.weight"} <= made.keys()


def test_only_converted_students_have_copied_projections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long teacher has learnt its own, and its students keep them."""
    long_one, short_one = (BertForMaskedLM(bert_config(2, 16, initializer_range=0.3)) for _ in range(2))
    attention.convert(long_one, "longformer", 64)
    (first, *_) = attention.self_attentions(long_one)
    torch.nn.init.normal_(first.efficient.query_global.weight)
    models.save(long_one, word_tokenizer(), tmp_path, "")
    monkeypatch.setattr(ea, "before_the_task", lambda *_: str(tmp_path))
    for model, kept in ((long_one, True), (short_one, False)):
        teacher = SimpleNamespace(name="t", pretrained="t", model=model, tokenizer=word_tokenizer())
        run: Any = SimpleNamespace(teacher=teacher, variant="convert-distil", task=SimpleNamespace(task=TASKS["sst2"]))
        (found, *_) = attention.self_attentions(ea.build_student(ea.Args(), run, None))
        expected = first.efficient.query_global if kept else found.query
        assert torch.equal(found.efficient.query_global.weight, expected.weight)


def test_a_teachers_soft_labels_are_of_what_the_student_reads(tmp_path: Path) -> None:
    """A teacher of full attention reads --short-length tokens, a long one what its students do; the soft labels of a
    long student need the second."""
    model, task = BertForMaskedLM(bert_config(1, 16)), SimpleNamespace(task=TASKS["squad"])
    args = ea.Args(teacher=str(tmp_path), variant="kd,convert-distil-kd", max_length=64, short_length=32)
    models.save(model, word_tokenizer(), tmp_path, "")
    assert ea.teacher_length(replace(args, variant="kd,convert-distil"), task) == 32
    assert ea.teacher_length(replace(args, short_length=64), task) == 64
    attention.convert(model, "bigbird", 64)
    models.save(model, word_tokenizer(), tmp_path, "")
    assert ea.teacher_length(args, task) == 64
