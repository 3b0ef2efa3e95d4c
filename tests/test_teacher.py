"""The teacher: which folders are one, in whose order of labels, frozen; its kept outputs; what students copy of it."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from conftest import (
    FAMILIES,
    LISTED,
    WIDE,
    bert_config,
    other_words,
    ran,
    records,
    stopped,
    tiny_bart,
    tiny_bert,
    word_tokenizer,
)
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, T5Config
from transformers.utils.logging import disable_progress_bar

from common import data, evaluate, heads, hub, models, own, teacher, train, tuning
from common import kept as kept_outputs
from common import run as run_module
from common.args import BadInput, CommonArgs
from common.errors import tell_once
from common.kept import keep_outputs
from common.kinds import KINDS
from common.layers import attention
from common.results import table, write_json
from common.run import Loading, Run, build_student, first_weights, keeps_outputs, model_card
from common.tasks import TASKS, TaskData
from common.teacher import Teacher, get_teacher
from pocket.curriculum import ShortFirst
from pocket.models import TEACHERS


def saved(folder: Path, model: Any = None) -> Path:
    models.save(model or tiny_bert(3, 32), word_tokenizer(), folder, "# a model\n")
    return folder


def some(**changes: Any) -> CommonArgs:
    return CommonArgs(**({"max_length": 16, "batch_size": 8, "teacher_epochs": 0.02} | changes))


# --- what a teacher says that is odd ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "other"),
    [(0.3, 4.8, False), (-0.2, 5.3, False), (0, 1, True), (-4.1, 4.4, True), (0, 100, True), (5, 10, True),
     (2.4, 2.6, True)],
)  # fmt: skip
@pytest.mark.parametrize("labelled", [True, False])
def test_a_teacher_of_another_scale(low: float, high: float, other: bool, labelled: bool, capsys: Any) -> None:
    """Both ranges are told; without labels of the split those of train are compared."""
    labels = [5 * i / 19 for i in range(20)]
    texts = [(f"text {i}",) for i in range(20)]
    dev = data.Split(list(map(str, range(20))), texts, labels if labelled else [None] * 20)
    task = TaskData("t", TASKS["stsb"], "local", "", {"train": replace(dev, labels=labels), "dev": dev}, "", ("dev",))
    heads.warn_of_scale("--teacher X", task, {"dev": np.linspace(low, high, 20)})
    said = capsys.readouterr().err
    line = f"warning: --teacher X: its scores of dev go from {low:.4g} to {high:.4g}, the labels from 0 to 5; "
    assert said.startswith(line) if other else said == ""


LOGITS = np.array([[0.0, 1.0], [0.2, 0.9], [-1.0, 3.0]])


@pytest.mark.parametrize(
    ("kind", "labels", "found", "says"),
    [
        ("classification", [0, 1, 0], LOGITS, "all 3 answers on dev as 'b'"),
        ("classification", [1, 1, 1], LOGITS, None),  # as it is right
        ("classification", [None] * 3, LOGITS, "as 'b'"),
        ("classification", [0, 1, 0], LOGITS[:, ::-1] * [[1], [1], [-1]], None),
        ("multi-label classification", [[0, 1], [1, 0], [1, 1]], LOGITS - 0.5, "as 'b'"),
        ("multi-label classification", [[0, 1], [1, 0], [1, 1]], LOGITS - 0.05, None),
        ("regression", [1.0, 2.0, 5.0], np.full((3, 1), 2.5) + 1e-7, "as 2.5"),
        ("regression", [1e5, 2e5, 5e5], np.array([[2e5], [2e5 + 99], [2e5]]), "as 200000.0"),
        ("regression", [1.0, 2.0, 5.0], np.array([2.5, 2.4, 2.6]), None),
        ("summarisation", ["x", "y", "z"], ["the"] * 3, "as 'the'"),
        ("translation", ["x", "y", "z"], ["the", "a", "the"], None),
    ],
)
def test_one_answer_to_all_is_told(kind: str, labels: Any, found: Any, says: str | None, capsys: Any) -> None:
    task = data.Task("t", KINDS[kind], ("text",), ("a", "b"), ("accuracy",))
    split = data.Split(list("012"), [("x",), ("y",), ("z",)], labels)
    evaluate.warn_once.cache_clear()
    loaded = TaskData("t", task, "local", "", {"dev": split}, "", ("dev",))
    evaluate.warn_of_one_answer("kd seed 0", loaded, "dev", None, found)
    said = capsys.readouterr().err
    assert "kd seed 0" in said and says in said if says else said == ""


# --- folders -------------------------------------------------------------------------------------------------


def test_a_teacher_is_frozen_and_the_same_whoever_loads_it(
    expert: Path, backbone: Path, sst2: TaskData, tmp_path: Path
) -> None:
    """With its head: as it is. Without one: fine-tuned once, kept, found."""
    found = []
    for folder in (expert, backbone, backbone):
        found.append(made := get_teacher(some(out_dir=str(tmp_path)), sst2, str(folder)))
        assert not any(module.training for module in made.model.modules())
        assert not any(parameter.requires_grad for parameter in made.model.parameters())
        assert evaluate.evaluate(made.model, made.tokenizer, sst2, 16)[0] == made.metrics
    assert [made.pretrained for made in found] == [None, str(backbone), str(backbone)]
    assert found[0].metrics["dev"]["accuracy"] > 0.95
    assert found[1].signature == found[2].signature != found[0].signature
    assert train.weights_digest(found[1].model.state_dict()) == train.weights_digest(found[2].model.state_dict())
    assert len([path for path in (tmp_path / "cache" / "teachers").iterdir() if path.is_dir()]) == 1


def test_a_teacher_whose_head_no_row_reads_is_left_as_it_is(easy: list[str], tmp_path: Path) -> None:
    """Without soft labels `--teacher-epochs 0` trains none, and its line has no score; with them it is refused."""
    argv = [*easy, "--teacher-epochs", 0, "--cache-dir", tmp_path / "cache", "--budget", 320, "--window", 4]
    argv += ["--out-dir", tmp_path / "runs", "--student", "2x32", "--lr", 1e-3]
    out = ran("efficient_attention", *argv, "--variant", "finetune,convert-distil")
    assert not (tmp_path / "cache" / "teachers").exists()
    assert [record["teacher"]["metrics"] for record in records(tmp_path / "runs")] == [{}, {}]
    assert re.search(r"^teacher teacher +- ", out, re.MULTILINE), out
    assert "has no head for sst2" in stopped("efficient_attention", *argv, "--variant", "convert-distil,kd")


@pytest.mark.parametrize(("name", "change", "why"), [
    ("pocket", {}, None),  # shipped
    ("pocket", {"max_length": 64, "limit": 20}, "the one that is shipped has --max-length 128, all examples"),
    ("pocket", {"precision": "bf16"}, "the one that is shipped has --precision fp32"),
    ("pocket-6", {}, "none is shipped for pocket/rte"),
    ("pocket:2", {}, "none with these settings is in the cache"),
])  # fmt: skip
def test_a_line_says_why_a_teacher_is_fine_tuned(
    name: str, change: dict[str, Any], why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Before it begins, with its steps; whoever finds it in the cache says nothing."""
    disable_progress_bar()  # as every script does
    monkeypatch.setattr(tuning, "fine_tune", lambda *_: None)
    found = evaluate.Evaluation({"test": {"accuracy": 0.5}}, 1.0, {})
    monkeypatch.setattr(evaluate, "evaluate", lambda *_, **__: found)
    task = data.load("pocket/rte", limit=change.get("limit"))
    args = CommonArgs(**({"cache_dir": str(tmp_path)} | change))
    get_teacher(args, task, name)
    told = f"teacher {name}: {why}, so it is fine-tuned on pocket/rte once: "
    err = capsys.readouterr().err
    assert err == "" if why is None else re.fullmatch(re.escape(told) + r"[\d,]+ steps of 32 examples\n", err), err
    get_teacher(args, task, name)
    assert capsys.readouterr().err == ""


def test_the_page_lists_the_teachers_that_are_shipped() -> None:
    page = (TEACHERS.parents[1] / "docs" / "pocket.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (pocket[\d-]*) \| ([a-z2, ]+) \|$", page, re.MULTILINE)
    listed = {f"{name}-{task}" for name, tasks in lines for task in tasks.split(", ")}
    assert listed == {path.name for path in TEACHERS.iterdir() if path.is_dir()}


@pytest.mark.parametrize(("name", "shown"), [
    ("/home/me/models/bert/", "bert"), ("./bert", "bert"), ("~/a/bert:6", "bert:6"), ("runs/mc3kd/bert", "bert"),
    ("org/bert", "org/bert"), ("org/bert:6", "org/bert:6"), ("pocket-6", "pocket-6"), ("bert+gpt2", "bert+gpt2"),
])  # fmt: skip
def test_a_card_and_a_table_show_no_place_of_this_machine(
    name: str, shown: str, expert: Path, sst2: TaskData, tmp_path: Path
) -> None:
    made = replace(get_teacher(some(), sst2, str(expert)), name=name)
    run = Run(some(out_dir=str(tmp_path)), "m", "kd", sst2, made, 1)
    assert f"student of {shown}, seed 0." in model_card(run, {}, Loading())
    record: dict[str, Any] = {"comparable": "", "metrics": {"dev": {}}, "analysis": {}, "variant": "kd", "seed": 0}
    record["teacher"] = {"name": name, "signature": "", "metrics": {}, "analysis": {}, "parameters": 0, "bytes": 0}
    record["student"] = record["teacher"] | {"shape": "1x2", "init": "random"}
    record["ledger"] = {"teacher_examples": 0}
    assert f"\nteacher {shown}  " in table([record])


def swapped_outputs(expert: Path) -> Any:
    """The same teacher with its two outputs swapped, and named accordingly."""
    model = AutoModelForSequenceClassification.from_pretrained(expert)
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter.copy_(parameter.flip(0))
    model.config.id2label = {0: "positive", 1: "negative"}
    return model


def test_labels_are_joined_by_their_names(
    expert: Path, sst2: TaskData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever their order; names of another task."""
    model = swapped_outputs(expert)
    straight, swapped = (get_teacher(some(), sst2, str(f)) for f in (expert, saved(tmp_path / "swapped", model)))
    assert swapped.metrics == straight.metrics
    inputs = {"input_ids": torch.arange(40).view(4, 10) % 26 + 5}
    assert torch.equal(swapped.model(**inputs).logits, straight.model(**inputs).logits)
    model.config.id2label = {0: "cat", 1: "dog"}
    with pytest.raises(BadInput, match="cat, dog"):
        get_teacher(some(), sst2, str(other := saved(tmp_path / "other", model)))
    mine = own.from_lists([f"book {i}" for i in range(40)], ["up", "down"] * 20)  # no checkpoint of a hub knows these
    assert heads.order_of_outputs("m", SimpleNamespace(id2label={0: "0", 1: "1"}), mine.task) is None  # nor their order
    made = get_teacher(some(out_dir=str(tmp_path)), mine, str(other))
    assert made.pretrained == str(other)
    assert "it is fine-tuned" in capsys.readouterr().err
    with pytest.raises(BadInput, match="cat, dog"):
        get_teacher(some(teacher_epochs=0), mine, str(other))


def test_outputs_without_names_are_named_by_hand(
    expert: Path, sst2: TaskData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without, and with another number of classes, a new head is trained, and a line says so."""
    model = AutoModelForSequenceClassification.from_pretrained(expert)
    model.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    folder, given = saved(tmp_path / "unnamed", model), {"out_dir": str(tmp_path)}
    straight, named = get_teacher(some(), sst2, str(expert)), some(teacher=str(folder), label_map="1=pos, 0=negative")
    assert get_teacher(named, sst2).metrics == straight.metrics
    swapped = get_teacher(replace(named, label_map="1=negative,0=positive"), sst2)
    assert swapped.metrics["dev"]["accuracy"] == pytest.approx(1 - straight.metrics["dev"]["accuracy"])
    assert "warning" not in capsys.readouterr().err
    assert get_teacher(some(**given), sst2, str(folder)).pretrained == str(folder)
    assert "its outputs have no names (LABEL_0, ...)" in capsys.readouterr().err
    several = saved(tmp_path / "several", tiny_bert(3, 32, problem_type="multi_label_classification"))
    assert get_teacher(some(**given), sst2, str(several)).pretrained == str(several)
    assert "its head has 2 outputs, multi label classification, sst2 2; a new one" in capsys.readouterr().err
    five = saved(tmp_path / "five", tiny_bert(3, 32, num_labels=5))
    assert get_teacher(some(**given), sst2, str(five)).pretrained == str(five)
    assert "its head has 5 outputs, sst2 2; a new one is fine-tuned" in capsys.readouterr().err


def test_a_model_in_memory_stays_as_it_is(expert: Path, sst2: TaskData, capsys: pytest.CaptureFixture[str]) -> None:
    """Its teacher is a copy, in the task's order; students start from that by themselves, and a line says so."""
    model = swapped_outputs(expert)
    before = train.weights_digest(model.state_dict())
    first, second = (heads.teacher_of(model, word_tokenizer(), sst2, 16) for _ in range(2))
    assert first.metrics == second.metrics == get_teacher(some(), sst2, str(expert)).metrics
    assert (train.weights_digest(model.state_dict()), model.config.id2label) == (before, {0: "positive", 1: "negative"})
    assert all(p.requires_grad for p in model.parameters())
    assert first.model.config.id2label == {0: "negative", 1: "positive"}
    tell_once.cache_clear()  # another test may have been told
    starts = {shape: Run(CommonArgs(student=shape), "some", "kd", sst2, first, 1) for shape in ("2x32", "2x16", "4x32")}
    assert [row.settings["init"] for row in starts.values()] == ["teacher", "random", "random"]
    layer = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(starts["2x32"].student().state_dict()[layer], model.state_dict()[layer])
    assert capsys.readouterr().err.count("students start from its layers") == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_teacher_in_half_precision_gives_float32(precision: Any, expert: Path, sst2: TaskData) -> None:
    whole, half = (get_teacher(some(teacher_precision=p), sst2, str(expert)) for p in ("fp32", precision))
    assert half.model.dtype == teacher.DTYPES[precision]
    inputs = {"input_ids": torch.arange(40).view(4, 10) % 26 + 5}
    expected, found = (t.model(**inputs, output_hidden_states=True) for t in (whole, half))
    assert {found.logits.dtype, found.hidden_states[1].dtype} == {torch.float32}
    assert half.signature == f"{whole.signature}@{precision}"
    assert half.bytes == whole.bytes / 2
    assert half.metrics["dev"]["accuracy"] == pytest.approx(whole.metrics["dev"]["accuracy"], abs=0.05)
    # a dozen roundings to 8 bits, in a model whose logits are about 3
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=0.3)
    assert not torch.equal(found.logits, expected.logits)


# --- kept outputs --------------------------------------------------------------------------------------------


def kept(model: Any, folder: Path, encoded: data.Encoded, tokenizer: Any = None, layers: tuple[int, ...] = ()) -> Any:
    args = some(cache_dir=str(folder))
    made = Teacher("t", teacher.frozen(args, model), tokenizer or word_tokenizer(), "t")
    return keep_outputs(args, replace(made, layers=layers), encoded)


@pytest.fixture
def encoded(sst2: TaskData) -> data.Encoded:
    return data.encode(word_tokenizer(), data.head(sst2.splits["train"], 60), sst2.task, 16)


def same_outputs(model: Any, outputs: Any, batches: Any, layers: tuple[int, ...] = ()) -> None:
    """Of batches in any order, however they are padded: the rows are found by the examples' ids."""
    for step in range(12):
        inputs = {k: v for k, v in batches[step].items() if k != "labels"}
        read = outputs.read(batches.ids(step), inputs["attention_mask"])
        with torch.no_grad():
            computed = model(**inputs, output_hidden_states=True)
        valid = inputs["attention_mask"].bool()
        rows: list[tuple[Tensor, Tensor]] = [(read.hidden_states[l], computed.hidden_states[l]) for l in layers]
        rows = [(a[valid], b[valid]) for a, b in rows]
        of_tokens = valid if read.logits.ndim == 3 else slice(None)
        rows.append((read.logits[of_tokens], computed.logits[of_tokens]))
        for found, wanted in rows:
            # float32 sums of the same numbers in another order, as batches of other lengths have them
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert all(not read.hidden_states[l][~valid].any() for l in layers)


@pytest.mark.parametrize("cache", ["on", "off"])
def test_layers_are_declared_once(cache: str, expert: Path, sst2: TaskData, tmp_path: Path) -> None:
    """The layers that were asked for are what the teacher gives; another is an error, run or read from disk."""
    args = some(teacher=str(expert), teacher_cache=cache, out_dir=str(tmp_path), max_length=16, student="2x32",
                budget="64", teacher_epochs=0)  # fmt: skip
    made = get_teacher(args, sst2)
    run = Run(args, "m", "kd", sst2, made, 1)
    student = run.student()
    guide = run.kept_teacher([3, 1])
    assert (guide.kept is not None) == (cache == "on")
    with run.loop({"student": student}, 1e-3) as loop:
        for batch in loop:
            outputs = guide(batch)
            assert {l: tuple(outputs.hidden_states[l].shape[::2]) for l in (1, 3)} == {1: (8, 32), 3: (8, 32)}
            with pytest.raises(BadInput, match=r"layer 2 were not asked for; those that were: 3, 1"):
                outputs.hidden_states[2]
            loop.minimise(student(**batch.inputs).logits.mean())
    with pytest.raises(BadInput, match="layer 4: it has fewer"):
        run.kept_teacher([4])


@pytest.mark.parametrize("family", ["bert", "xlnet"])  # padded on the right, on the left
def test_kept_outputs_are_the_teachers(family: str, encoded: data.Encoded, tmp_path: Path) -> None:
    tokenizer, model = word_tokenizer(), tiny_bert()
    if family == "xlnet":
        tokenizer.padding_side = "left"
        config = AutoConfig.for_model("xlnet", vocab_size=31, num_labels=2, **FAMILIES["xlnet"])
        model = AutoModelForSequenceClassification.from_config(config)
    made = kept(model, tmp_path, encoded, tokenizer, layers=(0, 2))
    batches = data.Batches(encoded, tokenizer, 8, seed=3)
    same_outputs(model, made, batches, (0, 2))
    with pytest.raises(RuntimeError, match="does not hold"):
        made.read(batches.ids(1), batches[0]["attention_mask"])


def test_kept_outputs_by_token(tmp_path: Path) -> None:
    """Tags: as many rows as an example has tokens."""
    task = data.load("pocket/ner", limit=3)
    encoded = data.encode(word_tokenizer(), task.splits["train"], task.task, 24)
    model = models.build(bert_config(num_labels=len(task.task.labels), initializer_range=0.3), task.task.kind)
    made = kept(model, tmp_path, encoded)
    same_outputs(model, made, ShortFirst(encoded, word_tokenizer(), 4, 0, steps=2, tokens=20))


def test_outputs_are_kept_where_that_pays(encoded: data.Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    """With auto a function of the arguments and of the data alone: the same bits, whoever ran before."""

    def is_kept(how: str, steps: int, given: data.Encoded = encoded, layers: tuple[int, ...] = ()) -> bool:
        made = Teacher("t", tiny_bert(), word_tokenizer(), "t", layers=layers)
        return keeps_outputs(some(teacher_cache=how), made, given, 8 * steps)

    written = replace(encoded, kind=KINDS["translation"])
    assert [is_kept("auto", 7), is_kept("auto", 8), is_kept("auto", 7)] == [False, True, False]  # 56 and 64 of 60
    assert [is_kept("on", 1), is_kept("off", 99), is_kept("on", 99, written)] == [True, False, False]
    monkeypatch.setattr("common.run.MOST_KEPT", 1000)
    large = [is_kept(how, 99, layers=layers) for how, layers in (("auto", (1,)), ("auto", ()), ("on", (1,)))]
    assert large == [False, True, True]


def test_every_run_is_charged_and_damage_is_made_again(
    encoded: data.Encoded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = [kept(tiny_bert(), tmp_path, encoded).cost(72) for _ in range(2)]
    assert [cost.teacher_examples for cost in costs] == [60, 60]
    few = kept(tiny_bert(), tmp_path, encoded)
    parts = [few.cost(24), few.cost(24, 24), few.cost(24, 48), few.cost(24, 72)]  # stages that follow each other
    assert [part.teacher_examples for part in parts] == [24, 24, 12, 0]
    assert parts[0].seconds == pytest.approx(0.4 * costs[0].seconds)
    assert costs[0].seconds == costs[1].seconds == costs[1].shared_seconds > costs[0].shared_seconds == 0
    (path,) = tmp_path.glob("outputs/*/outputs.safetensors")
    whole = path.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-7]):
        path.write_bytes(damaged)
        kept(tiny_bert(), tmp_path, encoded)
        assert "damaged in the cache" in capsys.readouterr().out
        assert path.read_bytes() == whole
    kept(tiny_bert(seed=1), tmp_path, encoded)  # another teacher, other examples: files of their own
    kept(tiny_bert(), tmp_path, replace(encoded, ids=encoded.ids[::-1]))
    assert len(list(tmp_path.glob("outputs/*/outputs.safetensors"))) == 3
    assert not list(tmp_path.glob("outputs/*/*.raw"))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_under_outputs_is_a_line(
    error: Exception, encoded: data.Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has all of its room before it is written through memory; what cannot be finished leaves none taken."""
    values = kept_outputs.mapped(tmp_path / "raw", (1000, 7))
    assert (values.shape, values.count_nonzero()) == ((1000, 7), 0)
    assert 512 * (tmp_path / "raw").stat().st_blocks >= 4 * values.numel()

    def full(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(kept_outputs, "mapped" if isinstance(error, OSError) else "save_file", full)
        with pytest.raises(OSError, match=r"outputs: .*No space left on device"):
            kept(tiny_bert(), tmp_path, encoded)
    assert not [path for path in (tmp_path / "outputs").iterdir() if path.is_dir()]
    assert kept(tiny_bert(), tmp_path, encoded).tensors["logits"].count_nonzero()


def test_an_evaluation_has_the_metrics_and_the_tokens_that_are_asked(
    expert: Path, backbone: Path, sst2: TaskData, tmp_path: Path
) -> None:
    """And a checkpoint of as many other words is no start for a student of this teacher's tokens."""
    other_words(Path(shutil.copytree(expert, other := tmp_path / "other")))
    by_f1 = replace(sst2, task=replace(sst2.task, metrics=("macro_f1", *sst2.task.metrics)))
    args = some(out_dir=str(tmp_path))
    found = [get_teacher(args, *one) for one in ((sst2, str(expert)), (by_f1, str(expert)), (sst2, str(other)))]
    assert "macro_f1" in found[1].metrics["dev"]
    assert found[2].metrics["dev"]["accuracy"] < found[0].metrics["dev"]["accuracy"]
    assert not run_module.other_words(str(backbone), found[0].tokenizer)
    assert run_module.other_words(str(other), found[0].tokenizer)


def other_activation(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"hidden_act": "relu"})


@pytest.mark.parametrize("of_hub", [False, True])
@pytest.mark.parametrize("repair", [other_words, other_activation])
def test_whatever_decides_a_checkpoints_outputs_is_in_its_keys(
    repair: Callable[[Path], None], of_hub: bool, expert: Path, backbone: Path, sst2: TaskData, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As it is or fine-tuned, in a folder or in the hub's cache: after a repair no evaluation, no stage, no run and no
    teacher that was made before is used."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found: list[tuple[Run, Any, Any]] = []
    for checkpoint in (expert, backbone):
        place, name = tmp_path / checkpoint.name, str(tmp_path / checkpoint.name)
        for commit in ("a" * 40, "b" * 40):
            if of_hub:
                repository, name = tmp_path / "hub" / f"models--some--{checkpoint.name}", f"some/{checkpoint.name}"
                place = repository / "snapshots" / commit
                (repository / "refs").mkdir(parents=True, exist_ok=True)
                (repository / "refs/main").write_text(commit)
            shutil.copytree(checkpoint, place, dirs_exist_ok=True)
            if commit[0] == "b":
                repair(place)
            made = get_teacher(args := some(teacher=name, out_dir=str(tmp_path)), sst2)
            now = evaluate.evaluate(made.model, made.tokenizer, sst2, 16)
            assert (made.predictions["dev"] == now.predictions["dev"]).all()
            stage = (one := Run(args, "some", "kd", sst2, made, 1)).shared("some", {"seed": 0}, lambda _: tiny_bert())
            found.append((one.folder, stage.folder, made.signature))
    for kind in zip(*found, strict=True):
        assert len(set(kind)) == 4, kind
    assert len(list(tmp_path.glob("cache/teachers/*/made.json"))) == 2


# --- students of it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_student_is_float32_whatever_its_checkpoint_is(
    dtype: torch.dtype, expert: Path, sst2: TaskData, tmp_path: Path
) -> None:
    """Of a teacher in memory, and of a checkpoint."""
    half = swapped_outputs(expert).to(dtype)
    folder = saved(tmp_path / "half", half)
    args = some(teacher=str(folder), out_dir=str(tmp_path), init="random")
    for made in (
        heads.teacher_of(half, word_tokenizer(), sst2, 16),
        get_teacher(args, sst2),
    ):
        student = Run(args, "some", "kd", sst2, made, 1).student()
        assert {weights.dtype for weights in student.parameters()} == {torch.float32}
    config = models.load_config(str(folder))
    assert config.dtype == dtype


@pytest.mark.parametrize("init", ["pretrained", "teacher"])
@pytest.mark.parametrize(("keep", "layers"), [("first", (0, 1)), ("top", (1, 2)), ("spread", (0, 2)), ("1,3", (0, 2))])
def test_a_student_copies_what_init_and_keep_say(
    init: str, keep: str, layers: tuple[int, ...], backbone: Path, sst2: TaskData, tmp_path: Path
) -> None:
    guide = get_teacher(some(out_dir=str(tmp_path)), sst2, str(backbone))
    row = Run(CommonArgs(student="2x32", init=init, keep=keep), "some", "kd", sst2, guide, 1)
    student = row.student()
    before = {f"bert.{k}": v for k, v in load_file(backbone / "model.safetensors").items()}
    source, ours = before if init == "pretrained" else guide.model.state_dict(), student.state_dict()
    for i, layer in enumerate(layers):
        for name in ("attention.self.query.weight", "output.dense.bias"):
            assert torch.equal(ours[f"bert.encoder.layer.{i}.{name}"], source[f"bert.encoder.layer.{layer}.{name}"])
    assert torch.equal(ours["bert.embeddings.word_embeddings.weight"], source["bert.embeddings.word_embeddings.weight"])
    assert (init == "teacher") == torch.equal(ours["classifier.weight"], guide.model.classifier.weight)
    assert row.started_from.startswith("layers 1,3 of " if keep == "1,3" else f"{keep} 2 layers of ")
    assert all(p.requires_grad for p in student.parameters())


def test_a_random_start_follows_the_seed(
    backbone: Path, sst2: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    guide = Teacher("t", tiny_bert(3, 32), word_tokenizer(), "t", pretrained=str(backbone))
    (tmp_path / "random").mkdir()
    monkeypatch.chdir(tmp_path)  # where a folder has the name of a start
    assert first_weights(CommonArgs(init="random"), guide) == "random"
    rows = [Run(CommonArgs(student="2x16", seed=seed), "some", "kd", sst2, guide, 1) for seed in (0, 0, 1)]
    digests = [train.weights_digest(row.student().state_dict()) for row in rows]
    assert [(row.started_from, row.lr) for row in rows] == [("random", 2e-3)] * 3
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("rule", "N", "m", "layers"),
    [("first", 12, 3, [1, 2, 3]), ("top", 12, 3, [10, 11, 12]), ("skip", 12, 6, [2, 4, 6, 8, 10, 12]),
     ("skip", 12, 5, [3, 5, 7, 9, 11]), ("spread", 12, 6, [1, 3, 5, 8, 10, 12]), ("spread", 4, 2, [1, 4]),
     ("2,4", 4, 2, [2, 4]), ("skip", 12, 4, [3, 6, 9, 12])],
)  # fmt: skip
def test_layers_by_rule(rule: str, N: int, m: int, layers: list[int]) -> None:
    assert models.layer_numbers(rule, N, m) == layers


@pytest.mark.parametrize("family", [*FAMILIES, *LISTED])
def test_students_of_every_family(family: str, tmp_path: Path) -> None:
    """The first layers give the first hidden states; a narrower one has heads of the same size; whatever layers are
    kept, a file of them says the same."""
    config = AutoConfig.for_model(family, vocab_size=99, **(FAMILIES | LISTED)[family])
    whole, other = (AutoModelForSequenceClassification.from_config(copy.deepcopy(config)).eval() for _ in range(2))
    inputs = {"input_ids": torch.randint(5, 99, (3, 10)), "attention_mask": torch.ones(3, 10, dtype=torch.long)}
    inputs["attention_mask"][0, 7:] = 0
    narrow = models.student_config(config, 2, 16)
    with torch.no_grad():
        theirs = whole(**inputs, output_hidden_states=True).hidden_states
        ours = models.keep_layers(whole, "first", 2)(**inputs, output_hidden_states=True).hidden_states
        small = models.build(narrow, "classification")(**inputs, output_hidden_states=True).hidden_states
    assert (len(theirs), len(ours), small[-1].shape) == (5, 3, (3, 10, 16))
    torch.testing.assert_close(ours[1], theirs[1])
    assert (narrow.num_attention_heads, config.hidden_size) == (1 if family == "qwen3" else 2, 32)
    assert 64 not in {getattr(narrow, name, None) for name in models.FFN}
    cut = models.keep_layers(other, "2,4", 2)
    if types := getattr(config, "layer_types", None):
        assert cut.config.layer_types == types[1::2] == cut.base_model.config.layer_types
    for student in (cut, models.build(narrow, "classification")):
        student.save_pretrained(tmp_path)
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        with torch.no_grad():
            assert torch.equal(again(**inputs).logits, student.eval()(**inputs).logits)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert"])
def test_attention_inputs_are_what_the_projections_gave(family: str) -> None:
    """Bit for bit what hooks see inside of the layer, with padding, in training too."""
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES.get(family, WIDE))
    model = AutoModelForSequenceClassification.from_config(config).train()
    inputs = {"input_ids": torch.randint(5, 99, (3, 10)), "attention_mask": torch.ones(3, 10, dtype=torch.long)}
    inputs["attention_mask"][0, 7:] = 0
    seen: dict[str, list[Tensor]] = {}
    names = attention.PROJECTIONS[family == "distilbert"]
    for place, module in model.named_modules():
        if (name := place.rpartition(".")[2]) in names:
            module.register_forward_hook(lambda _m, _i, output, name=name: seen.setdefault(name, []).append(output))
    outputs = model(**inputs, output_hidden_states=True)
    hooked = {name: list(found) for name, found in seen.items()}
    for layer in (1, 2, 4):
        for name, found in zip(names, attention.attention_inputs(model, outputs, layer), strict=True):
            assert torch.equal(found, hooked[name][layer - 1]), (name, layer)
            assert found.requires_grad


def test_a_copy_of_the_teacher_shares_nothing_with_it() -> None:
    """Neither weights nor hooks, which would write to one place: a loss between the two would be 0."""
    teacher, seen = tiny_bert(3, 32), dict[str, Tensor]()
    inputs = {"input_ids": torch.randint(5, 31, (2, 6))}
    query = teacher.bert.encoder.layer[1].attention.self.query
    query.register_forward_hook(lambda _module, _inputs, output: seen.update(queries=output))
    with torch.no_grad():
        states = teacher.eval()(**inputs, output_hidden_states=True).hidden_states
    seen.clear()
    student = models.keep_layers(models.trainable_copy(teacher), "first", 2)
    ours = student(**inputs, output_hidden_states=True).hidden_states
    assert not seen
    assert len(ours) == 3
    assert torch.equal(ours[2], states[2])
    places = {tensor.data_ptr() for tensor in teacher.state_dict().values()}
    assert not [name for name, tensor in student.state_dict().items() if tensor.data_ptr() in places]


def test_students_of_an_encoder_decoder() -> None:
    """Half of the layers on each side."""
    model: Any = tiny_bart(3)
    assert models.stack_depths(models.keep_layers(model, "spread", 4).config) == [2, 2]
    assert (len(model.model.encoder.layers), len(model.model.decoder.layers)) == (2, 2)
    # a decoder's layers know their places in the cache
    assert model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=3, do_sample=False).shape[0] == 1


def test_t5_keeps_its_position_bias() -> None:
    """Its first block alone holds it; without it, an encoder cannot tell a text from its reverse."""
    config = T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=4, num_heads=2, decoder_start_token_id=0)
    model = models.keep_layers(models.build(config, "translation"), "top", 4).eval()
    assert models.stack_depths(model.config) == [2, 2]
    encoder, ids = model.get_encoder(), torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        forwards, backwards = (encoder(x).last_hidden_state for x in (ids, ids.flip(1)))
    assert not torch.allclose(forwards, backwards.flip(1), atol=1e-3)


def test_a_t5_is_copied_as_wide_as_it_is(tmp_path: Path) -> None:
    """Also where its feed-forward width is not in the teacher's ratio, as Flan-T5-base's is not in Flan-T5-XL's."""
    sizes: Any = {"d_kv": 8, "vocab_size": 31, "num_layers": 2, "feed_forward_proj": "gated-gelu"}
    sizes["tie_word_embeddings"] = False
    configs = [T5Config(d_model=D, d_ff=ffn, num_heads=D // 8, **sizes) for D, ffn in ((16, 44), (32, 80))]
    small, large = (models.build(config, "translation") for config in configs)
    small.save_pretrained(tmp_path)
    args: Any = CommonArgs(student="2x16", init=str(tmp_path), keep="top")
    task = data.load("pocket/translate", limit=9)
    word_tokenizer().save_pretrained(tmp_path)
    run: Any = SimpleNamespace(args=args, teacher=Teacher("", large, word_tokenizer(), ""), task=task)
    student, _ = build_student(run, args.init, args.student, args.keep, 44, {})
    kept = student.encoder.block[0].layer[1].state_dict()
    assert all(torch.equal(v, kept[k]) for k, v in small.encoder.block[1].layer[1].state_dict().items())
    other = models.load_config(str(tmp_path))
    other.d_ff = 40
    with pytest.raises(BadInput, match="weights are not in its file"):
        models.load_model(str(tmp_path), other, "translation")


@pytest.mark.parametrize(
    ("family", "changes", "beyond"),
    [("roberta", {"pad_token_id": 1}, 2), ("xlm-roberta", {"pad_token_id": 3}, 4), ("mpnet", {}, 2),
     ("camembert", {"pad_token_id": 0}, 1), ("longformer", {"attention_window": 4}, 2), ("ibert", {}, 2),
     ("bert", {}, 0), ("distilbert", {}, 0), ("nystromformer", {}, 0)],
)  # fmt: skip
def test_positions_that_a_family_does_not_use(family: str, changes: dict[str, Any], beyond: int) -> None:
    """As many tokens are read as the model can, whatever its tokenizer says, and no more."""
    config = AutoConfig.for_model(family, **FAMILIES.get(family, WIDE), vocab_size=31, max_position_embeddings=40)
    config.update(changes)
    model, tokenizer = models.build(config, AutoModel).eval(), SimpleNamespace(model_max_length=10**30)
    teacher.check_length(40 - beyond, config, tokenizer)
    model(input_ids=torch.full((1, 40 - beyond), 7))
    with pytest.raises(
        BadInput, match=f"--x {41 - beyond}: the teacher has {40 - beyond} positions; give that or less"
    ):
        teacher.check_length(41 - beyond, config, tokenizer, "--x")
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, 41 - beyond), 7))


def test_texts_to_be_written_fit_the_decoder() -> None:
    """Which may have other positions than the encoder, as LED's has."""
    task = data.load("pocket/xsum", limit=9)
    long = replace(task, task=replace(task.task, target_length=129))
    teacher.get_start(some(), task, "pocket")
    with pytest.raises(BadInput, match="--target-max-length 129: the teacher has 128 positions"):
        teacher.get_start(some(), long, "pocket")
    sides = {"max_encoder_position_embeddings": 96, "max_decoder_position_embeddings": 40, "attention_window": [4] * 2}
    led = AutoConfig.for_model("led", d_model=16, encoder_layers=2, decoder_layers=2, vocab_size=31, **sides)
    assert [models.usable_positions(led, decoder) for decoder in (False, True)] == [96, 40]


def test_relative_positions_have_no_end() -> None:
    """The tokenizers of T5 say 512, and the configuration of XLNet -1."""
    tokenizer = SimpleNamespace(model_max_length=512)
    for family in ("t5", "xlnet"):
        teacher.check_length(1024, AutoConfig.for_model(family), tokenizer)
    with pytest.raises(BadInput, match="the teacher has 512 positions"):
        teacher.check_length(1024, AutoConfig.for_model("bert", max_position_embeddings=2048), tokenizer)


def test_heads() -> None:
    """Of the task's kind and size."""
    for name, outputs in (("sst2", 2), ("mnli", 3), ("stsb", 1)):
        settings = TASKS[name].kind.settings(TASKS[name])
        model = models.build(models.student_config(bert_config(), 1, 16, **settings), TASKS[name].kind)
        assert model.classifier.out_features == outputs
        assert tuple(model.config.id2label.values()) == TASKS[name].labels or outputs == 1
        model.config.architectures = [type(model).__name__]
        others = [TASKS[other] for other in ("sst2", "mnli", "stsb", "conll2003", "lm")]
        found = [other.kind.has_head(model.config, other) for other in others]
        assert found == [outputs == 2, outputs == 3, outputs == 1, False, False]


@pytest.mark.parametrize(("error", "offline"), [(ConnectionError(), True), (HFValidationError(), False)])
def test_a_hub_that_does_not_answer_is_asked_once(
    error: Exception, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(_self: Any, name: str, **_: Any) -> None:
        asked.append(name)
        raise error

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub.ask_for_model.cache_clear()
    for _ in range(2):
        hub.ask_for_model("some/model")
    assert asked == ["some/model"]
    assert offline == huggingface_hub.constants.HF_HUB_OFFLINE
