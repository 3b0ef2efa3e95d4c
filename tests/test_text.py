"""Unlabelled text: what --corpus names, OSCAR's filters, streams, blocks, masking, a masked language model's head."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest
import torch
from conftest import ENVIRONMENT, NEUTRAL, ROOT, bert_config, ran, word_tokenizer
from safetensors.torch import load_file
from test_attention import of_the_library
from torch.nn.functional import cross_entropy
from transformers import AutoModel, BertForMaskedLM

import pocket
from common import corpus, data, masking, models, text
from common.args import CommonArgs
from common.tasks import TASKS, Split, TaskData
from common.train import Stage
from methods.efficient_attention import passes_oscar

POCKET = TaskData("pocket/sst2", TASKS["sst2"], "pocket", "", {}, "", ())


def real(name: str, texts: list[tuple[str, ...]], labels: list[Any]) -> TaskData:
    train = Split([str(i) for i in range(len(texts))], texts, labels)
    return TaskData(name, TASKS[name], "local", "", {"train": train}, "", ("train",))


def passages(count: int) -> list[str]:
    """All different."""
    words = [NEUTRAL[i % len(NEUTRAL)] for i in range(40)]
    return [" ".join([*words[i % 7 : i % 7 + 5 + i % 3], str(i)]) for i in range(count)]


def write(path: Path, texts: list[str], mark: bytes = b"") -> Path:
    """A file of passages, as its name says."""
    rows = [json.dumps({"text": row, "n": i}) for i, row in enumerate(texts)] if "jsonl" in path.name else texts
    whole = mark + "\n".join(rows).encode() + b"\n\n"
    if path.suffix == ".gz":
        whole = gzip.compress(whole)
    path.write_bytes(whole)
    return path


# --- what --corpus names -------------------------------------------------------------------------------------


def test_where_no_corpus_is_named() -> None:
    assert text.open_texts(None, POCKET, 40).head == pocket.unlabelled(40, seed=1)
    pairs = real("rte", [("a", "b "), ("b ", " ")], [0, 1])
    assert text.open_texts(None, pairs).head == ["a", "b "]
    both = real("wmt16/en-ro", [("one",), ("two",)], ["unu", "doi"])
    assert text.open_texts(None, both).head == ["one", "unu", "two", "doi"]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz"])
def test_a_file_is_held_or_streamed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / name, passages(30), codecs.BOM_UTF8)
    whole = text.open_texts(str(path), POCKET)
    monkeypatch.setattr(text, "HEAD", 8)
    streamed = text.open_texts(str(path), POCKET)
    assert whole.head == passages(30)
    assert streamed.head == passages(8)
    assert sorted(islice(streamed.drawn(0), 22)) == sorted(passages(30)[8:])
    monkeypatch.setattr(text, "HEAD", 30)
    assert whole.signature == text.open_texts(str(write(tmp_path / "b.txt", passages(30))), POCKET).signature
    rest, held = whole.hold_out(256)
    assert (rest.head, held) == (passages(27), passages(30)[27:])


def oscar(content: str = "some text", **changes: Any) -> dict[str, Any]:
    """A record as OSCAR 23.01 has them."""
    metadata = {"identification": {"label": "en", "prob": 0.93}, "harmful_pp": 240.5, "quality_warnings": ["header"]}
    return {"content": content, "metadata": metadata | {"categories": ["liste_bu"]} | changes}


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, True),
        ({"identification": {"label": "en", "prob": 0.8}}, True),  # "eighty percent or higher"
        ({"identification": {"label": "en", "prob": 0.79}}, False),
        ({"identification": {"label": "fr", "prob": 0.99}}, False),
        ({"identification": None}, False),
        ({"quality_warnings": ["footer", "short_sentences"]}, False),
        ({"quality_warnings": None}, True),
        ({"harmful_pp": 13.51}, False),  # "of 13.51 or less"
        ({"harmful_pp": 13.52}, True),
        ({"harmful_pp": None}, True),
        ({"categories": ["press", "adult"]}, False),
    ],
)
def test_filters(changes: dict[str, Any], passes: bool) -> None:
    record = oscar(**changes)
    of_the_hub = {"id": 0, "text": record["content"], "meta": record["metadata"]}
    assert [passes_oscar(one) for one in (record, of_the_hub, {"text": "a"})] == [passes, passes, True]


def test_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = real("rte", [("a  text", "b"), ("b", "c")], [0, 1])
    monkeypatch.setattr(corpus, "SHORT", 50)
    monkeypatch.setattr(pocket, "generate", lambda name, split, size=60: GENERATE(name, split, size))
    short, long = (text.open_texts(name, task).head for name in ("pocket-short", "pocket-long"))
    assert (len(short), len(long)) == (50, 120)
    assert max(len(row.split()) for row in short) < 120 < max(len(row.split()) for row in long)
    made = text.open_texts("task,pocket-short", task)
    assert sorted(made.head) == sorted([*short, "a text", "b", "c"])
    assert made.head[-3:] != ["a text", "b", "c"]
    assert made.signature.startswith("pocket-short:50+task:3#")


GENERATE = pocket.generate

# --- streams -------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> text.Texts:
    """50 passages, of which 8 are the head."""
    monkeypatch.setattr(text, "HEAD", 8)
    monkeypatch.setattr(text, "BUFFER", 10)
    return text.open_texts(str(write(tmp_path / "a.txt", passages(50))), POCKET)


def test_epochs_hold_every_text_once_and_the_head_never(stream: text.Texts) -> None:
    assert stream.head == passages(8)
    first, second, other = (list(islice(stream.drawn(seed), 84)) for seed in (0, 0, 1))
    assert first == second != other
    assert sorted(first[:42]) == sorted(first[42:]) == sorted(passages(50)[8:])
    assert first[:42] != first[42:]
    assert first[:42] != passages(50)[8:]


@pytest.mark.parametrize("make", [lambda texts: texts.batches(word_tokenizer(), 12, 4, 3),
                                  lambda texts: texts.pieces(word_tokenizer(), 8, 4, 3)])  # fmt: skip
def test_a_batch_is_a_function_of_its_step(make: Any, stream: text.Texts) -> None:
    """Forwards, backwards and with gaps; of texts at hand too."""
    for texts in (stream, text.Texts(passages(50), "")):
        one, other = make(texts), make(texts)
        expected = []
        for step in range(9):
            expected.append(one[step])
            assert expected[step]["input_ids"].shape[0] == len(one.ids(step)) == 4
        for step in (8, 3, 7, 2, 0):
            found = other[step]
            assert found.keys() == expected[step].keys()
            assert all(torch.equal(found[name], expected[step][name]) for name in found)
        assert len({tuple(batch["input_ids"].flatten().tolist()) for batch in expected}) >= 7


def test_a_corpus_is_named_by_its_content(tmp_path: Path) -> None:
    names = []
    for folder, content in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(content)
        names.append(corpus.named(f"{tmp_path / folder}/x.txt,task"))
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("x.txt@")
    assert corpus.named("pocket-short, pocket-long") == "pocket-short,pocket-long"
    assert corpus.named("hub:some/set:en") == "hub:some/set:en"


def test_streams_are_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of each in turn, filtered; a stream of unknown length is measured for `paper`."""
    rows = [oscar("bad", harmful_pp=1.0), *(oscar(f"web {i}") for i in range(5))]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.txt").write_text("\n\n".join(f"book {i}" for i in range(3)))
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    task = real("rte", [("a", "b")], [0])
    spec = f"{tmp_path}/o.jsonl,{tmp_path}/b.txt,task,hub:{tmp_path / 'repo'}"
    expected = ["web 0", "book 0", "a", "web 0", "web 1", "book 1", "b", "web 1", "web 2", "book 2", "web 3", "web 4"]
    assert text.open_texts(spec, task, passes=passes_oscar).head == expected
    monkeypatch.setattr(text, "HEAD", 6)
    made = text.open_texts(spec, task, passes=passes_oscar)
    assert [*corpus.texts_of(made.stream)] == expected
    assert [part.partition("@")[0] for part in made.signature.split("+")][:3] == ["o.jsonl", "b.txt", "task"]
    batches = made.pieces(word_tokenizer(), 12, 2, 0)
    longer = sum(map(len, expected)) / sum(map(len, made.head))
    assert batches.steps_per_epoch == math.ceil(longer * len(batches.encoded) / 2) > len(batches.encoded) / 2


def test_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `datasets` streams it, at one commit; here from a folder, which it takes for one."""
    monkeypatch.setattr(text, "HEAD", 8)
    (tmp_path / "repo").mkdir()
    write(tmp_path / "repo" / "train.jsonl", passages(20))
    found = text.open_texts(f"hub:{tmp_path / 'repo'}", POCKET)
    assert (found.head, found.signature) == (passages(8), f"hub:{tmp_path / 'repo'}@local")
    assert sorted(islice(found.drawn(0), 12)) == sorted(passages(20)[8:])
    commits, asked = iter(("5" * 40, "6" * 40)), []
    info = lambda *_, timeout, **__: SimpleNamespace(sha=next(commits))  # noqa: E731
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    rows = datasets.Dataset.from_list([{"text": row} for row in passages(20)]).to_iterable_dataset()
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: asked.append((*a, k["revision"])) or rows)
    found = text.open_texts("hub:x/texts:en", POCKET)
    assert found.signature == f"hub:x/texts:en@{'5' * 12}"
    assert len(list(islice(found.drawn(0), 24))) == 24
    assert set(asked) == {("x/texts", "en", "5" * 40)}


READER = """
import sys
sys.path.insert(0, {root!r})
from conftest import word_tokenizer
from common import text
from common.tasks import TASKS, TaskData
for path, lines in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    texts = text.open_texts(path, TaskData("sst2", TASKS["sst2"], "local", "", {{}}, "", ()))
    batches = texts.batches(word_tokenizer(), 16, 32, 0)
    last = lines // 32 - text.HEAD // 32 - 1
    for step in (0, last // 2, last):
        batches[step]
    print(next(line for line in open("/proc/self/status") if "VmHWM" in line).split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A process reads a file, then one three times as long: the first fills what allocators keep, about 40 MB."""
    lines = [" ".join(passages(40))] * 3000
    names = {"first.txt": 12, "long.txt": 36}
    files = {write(tmp_path / name, lines * times): len(lines) * times for name, times in names.items()}
    argv = [sys.executable, "-c", READER.format(root=str(ROOT / "tests"))]
    argv += [str(given) for both in files.items() for given in both]
    done = subprocess.run(argv, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = map(int, done.stdout.split())
    assert 1024 * (second - first) < (tmp_path / "long.txt").stat().st_size / 4  # whoever holds the file holds more


# --- blocks and masking --------------------------------------------------------------------------------------


def test_texts_stay_whole() -> None:
    """No piece holds two texts, and all of a long one is there."""
    tokenizer, texts = word_tokenizer(), [*passages(60), " ".join(passages(20))]
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    whole = [tokenizer(row, add_special_tokens=False)["input_ids"] for row in texts]
    made = list(text.pieces_of(tokenizer, texts, 12))
    assert {(piece[0], piece[-1]) for piece in made} == {special}
    assert [piece[1:-1] for piece in made] == [row[i : i + 10] for row in whole for i in range(0, len(row), 10)]
    few, all_ = (list(text.pieces_of(tokenizer, texts * 10, 12, most=most)) for most in (3, None))
    assert len(few) < len(all_)
    batches = text.Texts(texts, "").pieces(tokenizer, 12, 4, 0)
    assert batches.steps_per_epoch == math.ceil(len(made) / 4)
    taken = [batches[step] for step in range(batches.steps_per_epoch)]
    seen = {tuple(row[row != tokenizer.pad_token_id].tolist()) for batch in taken for row in batch["input_ids"]}
    assert seen == {tuple(piece) for piece in made}


@pytest.mark.parametrize("everywhere", [False, True])
def test_masking(everywhere: bool) -> None:
    """15% of the tokens of every batch, never a special one; 80% hidden, 10% replaced, 10% left."""
    tokenizer = word_tokenizer()
    texts = text.Texts([row.rsplit(" ", 1)[0] for row in passages(400)], "")
    plain = texts.batches(tokenizer, 16, 32, 0)
    masked = masking.Masked(plain, tokenizer, everywhere=everywhere)
    counts = Counter[str]()
    for step in range(100):
        before, batch = plain[step], masked[step]
        valid = before["attention_mask"] > 0
        changed = batch["input_ids"] != before["input_ids"]
        labels = batch["labels"] >= 0
        assert torch.equal(batch["labels"][labels], before["input_ids"][labels])
        assert not changed[~labels].any()
        if everywhere:
            assert torch.equal(labels, valid)
            continue
        assert int(labels.sum()) == math.ceil(0.15 * int(valid.sum()))
        assert not torch.isin(before["input_ids"][labels], torch.tensor(tokenizer.all_special_ids)).any()
        hidden = batch["input_ids"][labels] == tokenizer.mask_token_id
        counts.update(hidden=int(hidden.sum()), left=int((~changed[labels]).sum()), all=int(labels.sum()))
    if not everywhere:
        assert counts["hidden"] / counts["all"] == pytest.approx(0.8, abs=0.03)
        assert counts["left"] / counts["all"] == pytest.approx(0.1, abs=0.03)
    assert masked.ids(3) == plain.ids(3)


def test_labels_and_weights_of_texts() -> None:
    """Rare tokens are masked more readily, special ones never; a text that is written again is its own label."""
    tokenizer = word_tokenizer()
    weights = masking.Masked(
        text.Texts(["the the the the film"], "").batches(tokenizer, 16, 1, 0), tokenizer, 0.7
    ).weights
    the, film, unseen = tokenizer.convert_tokens_to_ids(["the", "film", "plot"])
    assert weights[[the, film, unseen]].tolist() == pytest.approx([4**-0.7, 1, 1])
    assert not weights[tokenizer.all_special_ids].any()
    encoded = text.encode(tokenizer, ["the film", "a"], 8, written=True)
    ids = encoded.features["input_ids"]
    assert encoded.labels.tolist() == [ids[0], ids[1] + [-100]]


def test_ids_with_holes(glue: Path, tmp_path: Path) -> None:
    """A vocabulary may have larger ids than words: a student's table, and the masks, reach to the largest."""
    ids = {word: i + 10 * (i > 12) for word, i in word_tokenizer().get_vocab().items()}
    tokenizer = type(word_tokenizer())(vocab=ids, model_max_length=64)
    largest = max(ids, key=lambda word: ids[word])
    assert len(tokenizer) < models.vocabulary_size(tokenizer) == ids[largest] + 1 == 41
    masked = masking.Masked(data.Batches(text.encode(tokenizer, ["the film"] * 4, 8), tokenizer, 4, 0), tokenizer)
    batch = data.Batches(text.encode(tokenizer, [f"{largest} {largest}"], 8), tokenizer, 1, 0)[0]
    assert (masked.mask(batch)["labels"] == ids[largest]).sum() == 1
    models.save(BertForMaskedLM(bert_config(2, 32, vocab=41)), tokenizer, tmp_path / "holes", "")
    argv = f"--task sst2 --data-dir {glue} --teacher {tmp_path / 'holes'} --teacher-epochs 0.1 --max-length 16"
    argv += f" --student hybrid-3-9 --init random,general --variant kd --budget 640 --out-dir {tmp_path / 'runs'}"
    ran("cmow", *argv.split())
    tables = [load_file(path)["embeddings.vectors.weight"] for path in tmp_path.glob("runs/cmow/**/model.safetensors")]
    assert [len(table) for table in tables] == [41, 41]


# --- masked language models ----------------------------------------------------------------------------------


def test_logits_at_chosen_tokens_are_the_models() -> None:
    model = BertForMaskedLM(bert_config(initializer_range=0.3)).eval()
    ids = torch.randint(5, 30, (3, 9), generator=torch.Generator().manual_seed(0))
    chosen = ids % 3 == 0
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    torch.testing.assert_close(masking.logits_at(model, inputs, chosen), model(**inputs).logits[chosen])


def test_a_head_is_trained_above_a_body_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = word_tokenizer()
    whole = BertForMaskedLM(bert_config(2, 32))
    models.save(whole, tokenizer, tmp_path / "whole", "")
    models.save(whole.bert, tokenizer, tmp_path / "body", "")
    assert masking.load_masked_lm(str(tmp_path / "whole"))[1]
    lower, complete = masking.load_masked_lm(f"{tmp_path / 'whole'}:1")  # the head reads layer 2, which is cut off
    assert (lower.config.num_hidden_layers, complete) == (1, False)
    model, complete = masking.load_masked_lm(str(tmp_path / "body"))
    assert not complete
    texts = text.Texts([row.rsplit(" ", 1)[0] for row in passages(200)], "")
    encoded = text.encode(tokenizer, texts.head, 16)
    batch = masking.Masked(data.Batches(encoded, tokenizer, 100, 1), tokenizer)[0]
    labels = batch.pop("labels")

    def loss() -> float:
        return cross_entropy(model(**batch).logits[labels >= 0], labels[labels >= 0]).item()

    body = {name: value.clone() for name, value in model.bert.state_dict().items()}
    model.eval()
    first = loss()
    monkeypatch.setattr(masking, "HEAD_STEPS", 60)
    monkeypatch.setattr(masking, "HEAD_LR", 1e-2)
    stage = Stage(CommonArgs(), {"seed": 0}, tmp_path / "stage")
    masking.train_head(stage, model, tokenizer, encoded)
    assert loss() < first - 0.3
    assert all(torch.equal(value, body[name]) for name, value in model.bert.state_dict().items())
    assert (stage.ledger.teacher_examples, stage.ledger.student_examples, stage.ledger.steps) == (60 * 32, 0, 0)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("family", ["longformer", "big_bird", "nystromformer"])
def test_a_head_that_is_not_in_the_file_is_not_what_the_memory_held(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.save(of_the_library(family, AutoModel, vocab_size=31), word_tokenizer(), tmp_path, "")
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        model, complete = masking.load_masked_lm(str(tmp_path))
    finally:
        torch.use_deterministic_algorithms(False)
    assert not complete
    assert all(weights.isfinite().all() for weights in model.parameters())
