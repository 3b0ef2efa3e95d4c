"""Building, loading, copying and saving models; the teacher that a folder gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import FAMILIES, ROOT, bert_config, tiny_bert, word_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from common import data, models, run, teacher, train
from common.args import BadInput, CommonArgs

SST2, STSB, MNLI = (data.TASKS[name] for name in ("sst2", "stsb", "mnli"))
CPU = torch.device("cpu")


def saved(folder: Path, model: Any = None) -> Path:
    models.save(model or tiny_bert(3, 32), word_tokenizer(), folder, "# a model\n")
    return folder


# --- shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "width", "heads", "ffn"),
    [(2, 64, 4, 256), (6, 64, 4, 256), (2, 32, 2, 128), (3, 16, 1, 64), (1, 8, 1, 32)],
)
def test_a_students_shape(layers: int, width: int, heads: int, ffn: int) -> None:
    """Heads of the teacher's size and its FFN ratio; the teacher's own configuration stays as it was."""
    given = bert_config(4, 64, num_attention_heads=4, intermediate_size=256)
    config = models.student_config(given, layers, width, hidden_dropout_prob=0.0)
    assert (config.num_hidden_layers, config.hidden_size) == (layers, width)
    assert (config.num_attention_heads, config.intermediate_size) == (heads, ffn)
    assert config.hidden_dropout_prob == 0.0
    assert (given.num_hidden_layers, given.hidden_size, given.hidden_dropout_prob) == (4, 64, 0.1)
    student = models.build_student(config, "classification", None)
    assert len(student.bert.encoder.layer) == layers
    assert student.bert.embeddings.word_embeddings.weight.shape == (31, width)


@pytest.mark.parametrize("family", FAMILIES)
def test_students_of_every_family(family: str, tmp_path: Path) -> None:
    """The first layers of a checkpoint give the checkpoint's first hidden states; a narrower student is built too."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES[family])
    teacher = AutoModelForSequenceClassification.from_config(config).eval()
    folder = saved(tmp_path / family, teacher)
    inputs = {"input_ids": torch.randint(5, 99, (3, 10)), "attention_mask": torch.ones(3, 10, dtype=torch.long)}
    inputs["attention_mask"][0, 7:] = 0
    student = models.build_student(models.student_config(config, 2, 32), "classification", str(folder)).eval()
    theirs, ours = (model(**inputs, output_hidden_states=True).hidden_states for model in (teacher, student))
    assert len(theirs) == 5
    assert len(ours) == 3
    torch.testing.assert_close(ours[1], theirs[1])
    narrow = models.student_config(config, 2, 16)
    small = models.build_student(narrow, "classification", None)
    assert small(**inputs, output_hidden_states=True).hidden_states[-1].shape == (3, 10, 16)
    assert narrow.num_attention_heads == 2
    assert 64 not in {getattr(narrow, name, None) for name in ("intermediate_size", "d_inner", "hidden_dim")}


@pytest.mark.parametrize(("task", "outputs"), [(SST2, 2), (MNLI, 3), (STSB, 1)])
def test_a_task_decides_the_head(task: data.Task, outputs: int) -> None:
    config = models.student_config(bert_config(), 1, 16, **models.task_settings(task))
    student = models.build_student(config, task.kind, None)
    assert student.classifier.out_features == outputs
    assert student.config.problem_type == ("regression" if outputs == 1 else "single_label_classification")
    if task.labels:
        assert tuple(student.config.id2label.values()) == task.labels


def test_sizes_count_tied_weights_once() -> None:
    tied = torch.nn.Module()
    tied.a, tied.b = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
    tied.b.weight = tied.a.weight
    assert models.parameters(tied) == 15
    assert models.weight_bytes(tied) == 60


def test_bytes_are_those_of_the_models_file_alone(tmp_path: Path) -> None:
    """A checkpoint of the same run may lie beside it."""
    (tmp_path / "checkpoint.safetensors").write_bytes(b"x" * 1000)
    size = models.save(tiny_bert(), word_tokenizer(), tmp_path, "")
    assert size == (tmp_path / "model.safetensors").stat().st_size


# --- first layers ------------------------------------------------------------------------------------------


def test_a_student_copies_the_first_layers_of_the_pretrained_checkpoint(
    backbone: Path, sst2: data.TaskData, tmp_path: Path
) -> None:
    """PKD's start: not the teacher's fine-tuned layers, and not the last ones."""
    args = CommonArgs(out_dir=str(tmp_path), student="2x32", teacher_epochs=0.02, batch_size=8, max_length=16)
    guide = teacher.get_teacher(args, str(backbone), sst2, CPU)
    student, init = run.choose_student(args, "auto", guide, sst2)
    assert init == "first 2 layers of backbone"
    first, fine_tuned = load_file(backbone / "model.safetensors"), guide.model.state_dict()
    copied = {k.removeprefix("bert."): v for k, v in student.state_dict().items() if k.startswith("bert.")}
    assert {k for k in copied if k.startswith("encoder")} == {
        k for k in first if re.match(r"encoder\.layer\.[01]\.", k)
    }
    for key, value in copied.items():
        assert torch.equal(value, first[key]), key
    assert not torch.equal(copied["encoder.layer.0.output.dense.weight"],
                           fine_tuned["bert.encoder.layer.0.output.dense.weight"])  # fmt: skip


@pytest.mark.parametrize(("precision", "computed"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_teacher_is_trained_in_the_precision_asked_for(
    precision: str, computed: torch.dtype, backbone: Path, sst2: data.TaskData, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its weights stay in float32."""
    seen: set[torch.dtype] = set()
    whole = torch.nn.functional.linear

    def linear(*inputs: Any) -> torch.Tensor:
        out = whole(*inputs)
        if torch.is_grad_enabled():
            seen.add(out.dtype)
        return out

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    given: dict[str, Any] = {"precision": precision, "out_dir": str(tmp_path)}
    guide = teacher.get_teacher(CommonArgs(teacher_epochs=0.02, batch_size=8, max_length=16, **given), str(backbone),
                                sst2, CPU)  # fmt: skip
    assert seen == {computed}
    assert {p.dtype for p in guide.model.parameters()} == {torch.float32}


def test_the_start_follows_the_seed(backbone: Path, sst2: data.TaskData) -> None:
    guide = teacher.Teacher("t", tiny_bert(3, 32), word_tokenizer(), "t", {}, 1.0, 1, str(backbone))
    starts = [run.choose_student(CommonArgs(student="2x16", seed=s), "auto", guide, sst2) for s in (0, 0, 1)]
    assert [init for _, init in starts] == ["random"] * 3
    digests = [train.digest(student.state_dict()) for student, _ in starts]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("shape", "pretrained", "says"),
    [("2x16", True, "16 wide"), ("4x32", True, "3 layers"), ("2x32", False, "no pre-trained checkpoint")],
)
def test_first_layers_that_cannot_be_copied(
    shape: str, pretrained: bool, says: str, backbone: Path, sst2: data.TaskData
) -> None:
    guide = teacher.Teacher(
        "t", tiny_bert(3, 32), word_tokenizer(), "t", {}, 1.0, 1, str(backbone) if pretrained else None
    )
    with pytest.raises(BadInput, match=says):
        run.choose_student(CommonArgs(student=shape), "pretrained", guide, sst2)


# --- damaged and foreign folders ---------------------------------------------------------------------------


def without(folder: Path, *parts: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    left = {k: v for k, v in tensors.items() if not any(part in k for part in parts)}
    assert len(left) < len(tensors)
    save_file(left, folder / "model.safetensors", metadata={"format": "pt"})


def loaded(folder: Path, **options: Any) -> Any:
    return models.load_model(str(folder), models.load_config(str(folder)), "classification", **options)


@pytest.mark.parametrize("part", ["word_embeddings", "layer.1.attention", "layer.2.output.LayerNorm.bias"])
def test_missing_weights_are_refused(part: str, tmp_path: Path) -> None:
    without(saved(tmp_path), part)
    with pytest.raises(BadInput, match=r"weights are not in its file"):
        loaded(tmp_path)


def test_a_missing_head_is_refused_only_where_one_is_promised(tmp_path: Path) -> None:
    without(saved(tmp_path), "classifier", "pooler")
    assert loaded(tmp_path)
    with pytest.raises(BadInput, match=r"4 weights .* bert\.pooler"):
        loaded(tmp_path, head=True)


def test_a_head_of_another_size_is_left_out(tmp_path: Path) -> None:
    """An MNLI model can be fine-tuned on RTE: its body is kept, its three outputs are not."""
    three = tiny_bert(num_labels=3)
    folder = saved(tmp_path / "mnli", three)
    config = models.load_config(str(folder))
    config.num_labels = 2
    model = models.load_model(str(folder), config, "classification")
    assert model.classifier.weight.shape[0] == 2
    for name, weight in three.bert.state_dict().items():
        assert torch.equal(weight, model.bert.state_dict()[name]), name
    with pytest.raises(BadInput, match="classifier"):
        models.load_model(str(folder), config, "classification", head=True)


def test_a_fine_tuned_teacher_without_its_head_is_refused(expert: Path, sst2: data.TaskData, tmp_path: Path) -> None:
    saved(tmp_path, AutoModelForSequenceClassification.from_pretrained(expert))
    without(tmp_path, "classifier")
    with pytest.raises(BadInput, match=r"--teacher .*classifier"):
        teacher.get_teacher(CommonArgs(max_length=16), str(tmp_path), sst2, CPU)


@pytest.mark.parametrize("keep", [0, 100, 5000, -1])
def test_truncated_weights_are_refused(keep: int, tmp_path: Path) -> None:
    file = saved(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BadInput, match=f"--teacher {re.escape(str(tmp_path))}"):
        loaded(tmp_path)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    (saved(tmp_path) / "model.safetensors").unlink()

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    torch.save({"x": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="cannot be loaded"):
        loaded(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    config = models.load_config(str(tmp_path))
    config.intermediate_size = 48
    with pytest.raises(BadInput, match="--teacher"):
        models.load_model(str(tmp_path), config, "classification")


@pytest.mark.parametrize("text", [None, "{", "{}", '{"model_type": "no-such-model"}'])
def test_a_folder_without_a_usable_configuration_is_refused(text: str | None, tmp_path: Path) -> None:
    file = saved(tmp_path) / "config.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=r"--teacher .*config\.json"):
        models.load_config(str(tmp_path))


# --- heads and labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "outputs", "task", "expected"),
    [
        ("BertForSequenceClassification", 2, SST2, True),
        ("BertForSequenceClassification", 3, SST2, False),
        ("BertForSequenceClassification", 3, MNLI, True),
        ("BertForSequenceClassification", 1, STSB, True),
        ("BertForSequenceClassification", 2, STSB, False),
        ("BertForMaskedLM", 2, SST2, False),
        (None, 2, SST2, False),
    ],
)
def test_has_head(architecture: str | None, outputs: int, task: data.Task, expected: bool) -> None:
    config = bert_config(num_labels=outputs)
    config.architectures = [architecture] if architecture else None
    assert models.has_head(config, task) == expected


def test_permuted_labels_change_neither_metrics_nor_soft_labels(
    expert: Path, sst2: data.TaskData, tmp_path: Path
) -> None:
    """The same teacher with its two outputs swapped, and named accordingly."""
    model = AutoModelForSequenceClassification.from_pretrained(expert)
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter.copy_(parameter.flip(0))
    model.config.id2label = {0: "positive", 1: "negative"}
    model.config.label2id = {"positive": 0, "negative": 1}
    saved(tmp_path, model)
    args = CommonArgs(max_length=16)
    straight, swapped = (teacher.get_teacher(args, str(f), sst2, CPU) for f in (expert, tmp_path))
    assert swapped.metrics == straight.metrics
    assert straight.metrics["dev"]["accuracy"] > 0.95
    encoded = data.encode(straight.tokenizer, sst2.splits["dev"], sst2.task, 16)
    batch = data.collate(straight.tokenizer, encoded, range(8))
    del batch["labels"]
    torch.testing.assert_close(swapped.model(**batch).logits, straight.model(**batch).logits)


def test_labels_of_another_task_are_refused(expert: Path, sst2: data.TaskData, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(expert)
    model.config.id2label = {0: "cat", 1: "dog"}
    saved(tmp_path, model)
    with pytest.raises(BadInput, match="cat, dog"):
        teacher.get_teacher(CommonArgs(max_length=16), str(tmp_path), sst2, CPU)


def test_a_teacher_is_frozen_and_evaluates(expert: Path, backbone: Path, sst2: data.TaskData, tmp_path: Path) -> None:
    args = CommonArgs(max_length=16, out_dir=str(tmp_path), teacher_epochs=0.02)
    for folder in (expert, backbone, backbone):  # with its head, fine-tuned here, from the cache
        guide = teacher.get_teacher(args, str(folder), sst2, CPU)
        assert not any(module.training for module in guide.model.modules())
        assert not any(parameter.requires_grad for parameter in guide.model.parameters())
        assert train.evaluate(guide.model, guide.tokenizer, sst2, 16)[0] == guide.metrics


# --- saved and loaded again --------------------------------------------------------------------------------


def test_the_model_card_loads_the_same_predictions(
    expert: Path,
    sst2: data.TaskData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The snippet of the card runs as it stands, in the folder of the card."""
    args = CommonArgs(task="sst2", max_length=16, out_dir=str(tmp_path), budget="smoke", student="2x16")
    guide = teacher.get_teacher(args, str(expert), sst2, CPU)
    student, init = run.choose_student(args, "auto", guide, sst2)
    cell = run.Run(args, "mc3kd", "kd", sst2, guide, 4, {"lr": 1e-3})
    ledger = train.Ledger(1, 32, 100, 0, 1.0, 1)
    record = cell.finish(student, init, ledger)
    assert record["metrics"] == train.evaluate(student, guide.tokenizer, sst2, 16)[0]

    again = AutoModelForSequenceClassification.from_pretrained(cell.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(cell.folder)
    text = [row[0] for row in sst2.splits["dev"].texts[:16]]
    inputs = tokenizer(text, truncation=True, max_length=16, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, student.eval()(**inputs).logits)
    assert again.config.id2label == {0: "negative", 1: "positive"}

    card = (cell.folder / "README.md").read_text()
    assert record["signature"] in card
    assert str(ROOT) not in card
    monkeypatch.chdir(cell.folder)
    scope: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], scope)
    assert scope["model"](**scope["inputs"]).logits.shape == (1, 2)
    assert "tensor" in capsys.readouterr().out


def test_digests_tell_files_and_weights_apart(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "a"), saved(tmp_path / "b", tiny_bert(3, 32, seed=1))
    assert models.file_digest(first) == models.file_digest(saved(tmp_path / "c"))
    assert models.file_digest(first) != models.file_digest(second)
    assert train.digest(tiny_bert().state_dict()) == train.digest(tiny_bert().state_dict())
    assert train.digest(tiny_bert().state_dict()) != train.digest(tiny_bert(seed=1).state_dict())
