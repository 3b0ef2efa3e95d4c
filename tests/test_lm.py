"""Language modelling: the corpora, blocks, perplexity against direct computations, token-level losses, the script."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SCRIPT, error_line, script, tiny_bert, word_tokenizer
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from common import data, hub, metrics, models, pocket, results, teacher, train
from common.args import BadInput, CommonArgs
from methods import mc3kd

Inside = Callable[..., tuple[int, str, str]]
LM = data.TASKS["lm"]
CPU = torch.device("cpu")


def gpt2(layers: int = 2, width: int = 16, vocab: int = 50, seed: int = 0, **changes: Any) -> GPT2LMHeadModel:
    """A random GPT-2 whose weights are large enough that predictions differ visibly; no dropout."""
    torch.manual_seed(seed)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    settings = special | off | {"n_positions": 64, "n_head": 2, "initializer_range": 0.3} | changes
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_embd=width, n_layer=layers, **settings)).eval()


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 with the pocket suite's words, saved as the hub has them: without a padding token."""
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    _, tokenizer = models.pocket_gpt2("pocket")
    tokenizer.pad_token = None
    models.save(gpt2(3, 16, len(tokenizer), seed=3, initializer_range=0.02), tokenizer, folder, "# gpt2\n")
    return folder


# --- the pocket corpus -------------------------------------------------------------------------------------


def sentences(document: str) -> list[str]:
    return re.findall(r".+?[.?](?: |$)", document)


def test_the_corpus_of_this_version_is_frozen() -> None:
    """Any other digest is other data: bump VERSION when this changes."""
    sample = [pocket.generate("lm", split, 100, seed) for split in pocket.SPLITS["lm"] for seed in (0, 3)]
    assert (pocket.VERSION, hashlib.sha256(json.dumps(sample).encode()).hexdigest()[:16]) == ("2", "64632129a97274c0")


def test_splits_share_no_sentence_and_every_sentence_is_its_splits_own() -> None:
    found = {}
    for split in pocket.SPLITS["lm"]:
        documents = pocket.generate("lm", split, 600)["text"]
        found[split] = {sentence.strip() for document in documents for sentence in sentences(document)}
        assert pocket.in_split(found[split], split)
        assert len(found[split]) > 1000
    assert not found["train"] & found["dev"]
    assert not found["train"] & found["test"]
    assert not found["dev"] & found["test"]


def test_documents_are_of_the_same_kinds_in_every_split() -> None:
    """A redrawn sentence keeps its place: stories open with a person, facts with a kind; lengths are alike."""
    free = pocket.unlabelled(500)
    for split in pocket.SPLITS["lm"]:
        columns = pocket.generate("lm", split, 500)
        assert list(columns) == ["text", "id"]
        assert len(set(columns["id"])) == 500
        assert columns["text"][:50] == pocket.generate("lm", split, 50)["text"]
        assert columns["text"] != pocket.generate("lm", split, 500, seed=1)["text"]
        assert {word for text in columns["text"] for word in text.split()} <= set(pocket.vocabulary())
        for pattern in (r"^\w+ is an? \w+ from", r"^every \w+ is"):
            shares = [np.mean([bool(re.match(pattern, text)) for text in texts]) for texts in (free, columns["text"])]
            assert shares[0] == pytest.approx(shares[1], abs=0.08)
        lengths = [np.mean([len(text.split()) for text in texts]) for texts in (free, columns["text"])]
        assert lengths[0] == pytest.approx(lengths[1], rel=0.1)


def test_loading_the_corpus() -> None:
    loaded = data.load("pocket/lm", limit=40)
    assert (loaded.source, loaded.reported, loaded.task.metrics) == ("pocket", ("test",), ("perplexity",))
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 40, "dev": 500, "test": 1000}
    assert set(loaded.splits["train"].labels) == {None}
    with pytest.raises(BadInput, match=r"built in.*--task wikitext-2"):
        data.check_name("pocket/lm", ".")
    with pytest.raises(BadInput, match="unknown task; did you mean pocket/lm"):
        data.check_name("pocket/lmm")
    with pytest.raises(BadInput, match="unknown task"):
        data.check_name("lm")


# --- wikitext-2: files and the hub ---------------------------------------------------------------------------

ARTICLES = [" = A <unk> = \n \n One line . \n = = Part = = \n Two . \n", " = B = \n \n Three = four = \n"]
TEXT = " \n" + "\n \n".join(text.removesuffix("\n") for text in ARTICLES) + "\n"


def wikitext(folder: Path, names: str = "wiki.{}.tokens", text: str = TEXT) -> Path:
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / names.format(split)).write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(
    ("names", "end"), [("wiki.{}.tokens", "\n"), ("wiki.{}.raw", "\r\n"), ("{}.txt", "\n")], ids=str
)
@pytest.mark.parametrize("inside", ["", "wikitext-2", "wikitext-2-raw"])
def test_text_files_hold_articles(names: str, end: str, inside: str, tmp_path: Path) -> None:
    wikitext(tmp_path / "data" / inside, names, TEXT.replace("\n", end))
    loaded = data.load("wikitext-2", str(tmp_path / "data"))
    assert loaded.reported == ("test",)
    assert set(loaded.splits) == {"train", "dev", "test"}
    texts = [text for (text,) in loaded.splits["train"].texts]
    assert "".join(texts) == TEXT[2:]  # but for the blank line at the top, every character is there
    assert [text.split("\n")[0] for text in texts] == [" = A <unk> = ", " = B = "]


def test_text_without_headings_is_cut_at_blank_lines(tmp_path: Path) -> None:
    wikitext(tmp_path / "a", "{}.txt", "one\ntwo\n\n\nthree\n\nfour")
    texts = data.load("wikitext-2", str(tmp_path / "a")).splits["dev"].texts
    assert texts == [("one\ntwo\n\n",), ("three\n\n",), ("four\n",)]


def test_the_hubs_rows_are_the_files_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    rows = [line if line.strip() else "" for line in TEXT.splitlines(keepends=True)]
    whole = datasets.DatasetDict(
        {name: datasets.Dataset.from_dict({"text": rows}) for name in ("train", "validation", "test")}
    )
    asked = []
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **kwargs: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or whole)
    loaded = data.load("wikitext-2")
    assert asked == [(("Salesforce/wikitext", "wikitext-2-raw-v1"), {"revision": hub.WIKITEXT_REVISION})]
    local = data.load("wikitext-2", str(wikitext(tmp_path / "a")))
    assert loaded.fingerprint == local.fingerprint
    whole.save_to_disk(tmp_path / "b")
    assert data.load("wikitext-2", str(tmp_path / "b")).fingerprint == local.fingerprint
    (tmp_path / "c").mkdir()
    for name, split in whole.items():
        split.to_parquet(tmp_path / "c" / f"{name}-00000-of-00001.parquet")
    assert data.load("wikitext-2", str(tmp_path / "c")).fingerprint == local.fingerprint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "wiki.train.tokens").unlink(), "no train split for wikitext-2; needs wiki.train.raw"),
        (lambda folder: (folder / "wiki.train.tokens").write_text(""), "wiki.train.tokens: the file is empty"),
        (lambda folder: (folder / "wiki.test.tokens").write_text(" \n\n"), "wiki.test.tokens: the file is empty"),
        (lambda folder: (folder / "train.txt").write_text("two"), "both hold the train split"),
        (lambda folder: (folder / "wiki.valid.tokens").write_bytes(b"a\n\xff"), "line 2: not UTF-8"),
    ],
)
def test_bad_text_files_are_one_line(change: Callable[[Path], Any], says: str, tmp_path: Path) -> None:
    change(wikitext(tmp_path / "a"))
    with pytest.raises(BadInput, match=says) as error:
        data.load("wikitext-2", str(tmp_path / "a"))
    assert "\n" not in str(error.value)


def test_real_wikitext_has_its_articles(tmp_path: Path) -> None:
    real = SCRIPT.parents[2] / "shared" / "realdata" / "wikitext-2"
    if not real.is_dir():
        pytest.skip("no real data beside the repository")
    with pytest.raises(BadInput, match="no train split"):
        data.load("wikitext-2", str(real))
    for name in ("valid", "test"):
        (tmp_path / f"wiki.{name}.tokens").symlink_to(real / f"{name}.txt")
    (tmp_path / "train.txt").symlink_to(real / "valid.txt")
    loaded = data.load("wikitext-2", str(tmp_path))
    assert [len(loaded.splits[name]) for name in ("dev", "test")] == [60, 60]


# --- tokens and blocks -------------------------------------------------------------------------------------


def corpus(texts: list[str]) -> data.Split:
    return data.Split([str(i) for i in range(len(texts))], [(text,) for text in texts], [None] * len(texts))


def test_blocks_are_the_stream_of_documents() -> None:
    _, tokenizer = models.pocket_gpt2("pocket")
    split = corpus(["the judge slept .", "nobody slept ?", "the judge praised the niece ."])
    end = tokenizer.eos_token_id
    stream = [i for (text,) in split.texts for i in [end, *tokenizer.convert_tokens_to_ids(text.split())]]
    assert tokenizer.unk_token_id not in stream
    assert data.token_stream(tokenizer, split).tolist() == stream
    made = data.encode(tokenizer, split, LM, 5)
    assert len(made) == len(stream) // 5 == 3  # the remainder is left out
    assert torch.equal(made.labels.flatten(), torch.tensor(stream[:15]))
    tokenizer.pad_token = None  # nothing is padded
    batch = data.Batches(made, tokenizer, 2, 0)[0]
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert torch.equal(batch["input_ids"], batch["labels"])
    assert batch["attention_mask"].tolist() == [[1] * 5] * 2
    with pytest.raises(BadInput, match=r"max length 20: lm has 16 tokens"):
        data.encode(tokenizer, split, LM, 20)
    tokenizer.eos_token = None
    with pytest.raises(BadInput, match="no end-of-text token"):
        data.encode(tokenizer, split, LM, 4)


def test_an_epoch_is_counted_in_blocks(sst2: data.TaskData) -> None:
    _, tokenizer = models.pocket_gpt2("pocket")
    loaded = data.load("pocket/lm", limit=30)
    assert data.epoch_size(tokenizer, loaded, 16) == len(data.encode(tokenizer, loaded.splits["train"], LM, 16))
    assert data.epoch_size(word_tokenizer(), sst2, 16) == len(sst2.splits["train"])


# --- perplexity --------------------------------------------------------------------------------------------


def log_probability(model: GPT2LMHeadModel, context: Tensor, token: Tensor) -> float:
    """Of one token after its context, from a forward pass of its own."""
    with torch.no_grad():
        return float(model(context[None]).logits[0, -1].double().log_softmax(-1)[token])


def direct(model: GPT2LMHeadModel, stream: Tensor, max_length: int, stride: int) -> tuple[float, list[int]]:
    """Token by token: the perplexity, and each token's length of context."""
    total, contexts = 0.0, []
    start = 0
    for i in range(1, len(stream)):
        while i - start > max_length:  # the window is full: the next one lies a stride further
            start += stride
        contexts.append(i - start)
        total -= log_probability(model, stream[start:i], stream[i])
    return math.exp(total / len(contexts)), contexts


@pytest.mark.parametrize("count", [2, 3, 8, 9, 10, 16, 17, 40, 61])
@pytest.mark.parametrize(("max_length", "stride"), [(8, 4), (8, 8), (8, 1), (9, 4), (64, 32)])
def test_perplexity_equals_a_direct_computation(count: int, max_length: int, stride: int) -> None:
    model = gpt2()
    stream = torch.randint(0, 50, (count,), generator=torch.Generator().manual_seed(count))
    expected, contexts = direct(model, stream, max_length, stride)
    assert all(context >= min(max_length - stride + 1, i) for i, context in enumerate(contexts, start=1))
    for batch_size in (1, 3, 32):
        found = metrics.perplexity(model, stream, max_length, stride, batch_size)
        assert found == pytest.approx(expected, rel=1e-5)


def test_a_text_within_one_window_is_scored_as_the_library_scores_it() -> None:
    model = gpt2()
    stream = torch.randint(0, 50, (64,), generator=torch.Generator().manual_seed(0))
    loss = model(stream[None], labels=stream[None]).loss
    assert metrics.perplexity(model, stream, 64) == pytest.approx(math.exp(loss.item()), rel=1e-5)


@pytest.mark.parametrize(("max_length", "stride"), [(8, None), (8, 8), (7, 3), (100, 50), (1, None)])
def test_windows_score_every_token_once(max_length: int, stride: int | None) -> None:
    for count in range(2, 40):
        found = metrics.windows(count, max_length, stride)
        assert [i for _, end, first in found for i in range(first + 1, end + 1)] == list(range(1, count))
        assert all(end - start == max_length for start, end, _ in found[:-1])
        assert all(start <= first for start, _, first in found)


def test_perplexity_of_no_knowledge_and_bad_requests() -> None:
    model = gpt2()
    for parameter in model.parameters():
        parameter.data.zero_()
    stream = torch.arange(20)
    assert metrics.perplexity(model, stream, 8) == pytest.approx(50, rel=1e-5)
    with pytest.raises(ValueError, match="nothing to score"):
        metrics.perplexity(model, stream[:1], 8)
    with pytest.raises(ValueError, match="stride 9"):
        metrics.perplexity(model, stream, 8, 9)


def test_evaluation_is_the_perplexity_of_each_reported_split() -> None:
    _, tokenizer = models.pocket_gpt2("pocket")
    loaded = data.load("pocket/lm", limit=5)
    model = gpt2(vocab=len(tokenizer)).train()
    scores, speed = train.evaluate(model, tokenizer, loaded, 32)
    stream = data.token_stream(tokenizer, loaded.splits["test"])
    assert scores == {"test": {"perplexity": metrics.perplexity(model, stream, 32, 16)}}
    assert speed > 0
    assert model.training
    for parameter in model.parameters():
        parameter.data.fill_(math.nan)
    with pytest.raises(BadInput, match="not finite"):
        train.evaluate(model, tokenizer, loaded, 32)


# --- losses ------------------------------------------------------------------------------------------------


def slow_loss(student: Tensor, guide: Tensor, tokens: Tensor, alpha: float, T: float) -> float:
    """Eq. 1 by loops over every predicted position, in float64: the mean over them."""
    terms = []
    for b in range(len(tokens)):
        for i in range(tokens.shape[1] - 1):
            s, t = (x[b, i].double().numpy() for x in (student, guide))
            p, q = (np.exp(x / T) / np.exp(x / T).sum() for x in (t, s))
            soft = T**2 * (p * np.log(p / q)).sum()
            hard = -np.log(np.exp(s) / np.exp(s).sum())[int(tokens[b, i + 1])]
            terms.append(alpha * soft + (1 - alpha) * hard)
    return float(np.mean(terms))


@pytest.mark.parametrize("name", ["finetune", "kd", "mc3kd"])
def test_the_loss_is_a_mean_over_predicted_tokens(name: str) -> None:
    student, guide = gpt2(2, 16), gpt2(3, 16, seed=1)
    ids = torch.randint(0, 50, (3, 7), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    args = mc3kd.Args(task="pocket/lm", alpha=0.7, temperature=3.0)
    layers = [1, 3] if name == "mc3kd" else []
    found = mc3kd.step_loss(args, name, student, guide, inputs, layers, regression=False)
    s, t = (model(ids, output_hidden_states=True) for model in (student, guide))
    alpha = 0.0 if name == "finetune" else 0.7
    expected = slow_loss(s.logits.detach(), t.logits.detach(), ids, alpha, 3.0)
    if layers:  # all positions' vectors, those of both sides at the same token
        for i, l in enumerate(layers, start=1):
            S, T = s.hidden_states[i].flatten(0, 1), t.hidden_states[l].flatten(0, 1)
            expected -= float(mc3kd.ccc(S, T, args.ridge).detach()) / 16
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)
    found.backward()
    assert all(parameter.grad is not None for parameter in student.parameters())
    assert all(parameter.grad is None for parameter in guide.parameters())


def test_the_last_hidden_state_comes_after_the_final_norm() -> None:
    """What the docstring of the method says of GPT-2: hidden_states[0] is the embedding, [N] is normalised."""
    model = gpt2(2)
    seen = model(torch.arange(6)[None], output_hidden_states=True).hidden_states
    assert len(seen) == 3
    embedded = model.transformer.wte.weight[:6] + model.transformer.wpe.weight[:6]
    assert torch.equal(seen[0][0], embedded)
    torch.testing.assert_close(seen[2].mean(-1), torch.zeros(1, 6), atol=1e-5, rtol=0)


# --- teachers ----------------------------------------------------------------------------------------------


def test_a_language_model_is_fine_tuned_unless_told_otherwise(gpt2_folder: Path, tmp_path: Path) -> None:
    loaded = data.load("pocket/lm", limit=60)
    made = {}
    for epochs in (0.0, 1.0):
        args = CommonArgs(task="pocket/lm", max_length=16, out_dir=str(tmp_path), teacher_epochs=epochs)
        args.check()
        made[epochs] = teacher.get_teacher(args, str(gpt2_folder), loaded, CPU)
        assert made[epochs].pretrained == str(gpt2_folder)
        assert not made[epochs].model.training
    assert made[0.0].signature.startswith("gpt2@")
    before = GPT2LMHeadModel.from_pretrained(gpt2_folder)
    assert train.digest(made[0.0].model.state_dict()) == train.digest(before.state_dict())
    assert made[1.0].metrics["test"]["perplexity"] < made[0.0].metrics["test"]["perplexity"]


def test_what_is_no_causal_language_model_is_refused(backbone: Path, sst2: data.TaskData, tmp_path: Path) -> None:
    loaded = data.load("pocket/lm", limit=60)
    folder = tmp_path / "bert"
    _, tokenizer = models.pocket_gpt2("pocket")
    models.save(tiny_bert(2, 16, vocab=len(tokenizer)).bert, tokenizer, folder, "")
    with pytest.raises(BadInput, match="sees the tokens that it has to predict"):
        teacher.get_teacher(CommonArgs(max_length=16, out_dir=str(tmp_path)), str(folder), loaded, CPU)
    with pytest.raises(BadInput, match=r"--teacher-epochs 0: .*backbone has no head for sst2"):
        teacher.get_teacher(CommonArgs(max_length=16, teacher_epochs=0), str(backbone), sst2, CPU)


def test_the_pocket_gpt2s() -> None:
    for name, layers in (("pocket", 4), ("pocket-6", 6), ("pocket-12", 12)):
        config, tokenizer = models.pocket_gpt2(name)
        assert (config.n_layer, config.n_embd, config.model_type) == (layers, 128, "gpt2")
    words = models.pocket_tokenizer()
    text = "the judge praised the niece ."
    assert tokenizer(text)["input_ids"] == words(text, add_special_tokens=False)["input_ids"]
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert set(tokenizer(text)) == {"input_ids", "attention_mask"}


# --- the script --------------------------------------------------------------------------------------------

SMALL = ("--task", "pocket/lm", "--student", "2x16", "--budget", "64", "--max-length", "16", "--limit", "150",
         "--selection-examples", "32", "--teacher-epochs", "1")  # fmt: skip


def test_the_script_end_to_end(gpt2_folder: Path, tmp_path: Path) -> None:
    variants = ["finetune", "kd", "mc3kd"]
    done = script(*SMALL, "--teacher", gpt2_folder, "--variant", ",".join(variants), "--out-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("\n\n")[-1]
    assert "test perplexity" in table
    for name in variants:
        folder = tmp_path / "mc3kd" / "pocket" / "lm" / name / "seed0"
        record = results.load(folder / "result.json")
        value = record["metrics"]["test"]["perplexity"]
        assert 100 < value < 2000  # hardly trained: near the number of words
        assert f"{value:.2f}" in table
        assert record["student"]["init"] == "first 2 layers of gpt2"
        assert record["ledger"]["student_tokens"] == 64 * 16
        assert "|tokens:" in record["comparable"]
        assert "|window:16/2" in record["comparable"]
        student = GPT2LMHeadModel.from_pretrained(folder)
        loaded = data.load("pocket/lm", limit=150)
        tokenizer = models.load_tokenizer(str(folder))
        assert train.evaluate(student, tokenizer, loaded, 16)[0] == record["metrics"]
        assert "AutoModelForCausalLM" in (folder / "README.md").read_text()


def test_tracking_measures_perplexity_after_every_epoch(gpt2_folder: Path, tmp_path: Path, inside: Inside) -> None:
    few = ("--limit", "20", "--batch-size", "8", "--teacher-epochs", "0", "--variant", "finetune", "--track")
    code, _, err = inside(*SMALL, *few, "--teacher", gpt2_folder, "--out-dir", tmp_path)
    assert code == 0, err
    folder = tmp_path / "mc3kd" / "pocket" / "lm" / "finetune" / "seed0"
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    tracked = [row for row in rows if "epoch" in row]
    assert [row["epoch"] for row in tracked] == [1]
    assert tracked[0]["score"] > 1
    assert (folder / "epochs.png").stat().st_size > 1000


def test_analysis_of_a_language_model(gpt2_folder: Path, tmp_path: Path, inside: Inside) -> None:
    code, out, err = inside(*SMALL, "--analyse", gpt2_folder, "--out-dir", tmp_path)
    assert code == 0, err
    assert "gpt2 on pocket/lm: RCCC" in out
    record = json.loads((tmp_path / "mc3kd" / "analysis" / "pocket" / "lm" / "gpt2" / "svcca.json").read_text())
    assert len(record["sequence"]) == 3
    assert record["vectors"] == 32 * 16


@pytest.mark.parametrize("changes", [["--variant", "kd,pkd-skip"], ["--variant", "only-selection"],
                                     ["--tokens", "cls"]], ids=" ".join)  # fmt: skip
def test_what_needs_a_cls_is_refused(changes: list[str], tmp_path: Path, inside: Inside) -> None:
    code, _, err = inside(*SMALL, *changes, "--out-dir", tmp_path)
    assert code == 2
    assert "[CLS]" in error_line(err)
    assert changes[1].split(",")[-1] in err
    assert not any(tmp_path.iterdir())
