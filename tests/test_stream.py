"""Text that is read while it is learnt from: what is read, in which order, from where a run goes on, and memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch
from conftest import ENVIRONMENT, NEUTRAL, ROOT, bert_config, error_line, script, word_tokenizer, write_sst2
from test_parallel import lines, of_two, run_script, same_curve, two
from transformers import BertForMaskedLM

from common import masked_lm, models, results, stream
from common.args import BadInput


def passages(count: int) -> list[str]:
    """All different."""
    words = [NEUTRAL[i % len(NEUTRAL)] for i in range(40)]
    return [" ".join([*words[i % 7 : i % 7 + 5 + i % 3], str(i)]) for i in range(count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEAD", 8)
    monkeypatch.setattr(stream, "BUFFER", 10)


def write(path: Path, texts: list[str]) -> stream.Stream:
    kind, whole = path.name.split("."), path.read_bytes() if path.exists() else b""
    rows = [json.dumps({"text": text, "n": i}) for i, text in enumerate(texts)] if "jsonl" in kind else texts
    whole = "\n".join(rows).encode() + b"\n\n"
    if kind[-1] == "gz":
        whole = gzip.compress(whole)
    if kind[-1] == "zst":
        whole = pytest.importorskip("zstandard").compress(whole)
    path.write_bytes(whole)
    spec = f"stream:{path}"
    stream.check(spec)
    return stream.Stream(spec)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz", "a.jsonl.zst"])
def test_every_kind_of_file_gives_the_same_texts(name: str, tmp_path: Path) -> None:
    texts = passages(30)
    assert list(write(tmp_path / name, texts).texts()) == texts


def test_a_data_set_of_the_hub(tmp_path: Path) -> None:
    """As `datasets` streams it; here from a folder, which it takes for one."""
    (tmp_path / "repo").mkdir()
    write(tmp_path / "repo" / "train.jsonl", passages(20))
    found = stream.Stream(f"stream:hub:{tmp_path / 'repo'}")
    assert list(found.texts()) == passages(20)
    assert found.signature().endswith("@local")
    with pytest.raises(BadInput, match="cannot be streamed"):
        list(stream.Stream(f"stream:hub:{tmp_path / 'none'}").texts())


@pytest.mark.usefixtures("small")
def test_epochs_hold_every_text_once_and_the_head_never(tmp_path: Path) -> None:
    texts = passages(50)
    source = write(tmp_path / "a.txt", texts)
    assert source.head() == texts[:8]
    first, second, other = (list(islice(source.drawn(seed), 84)) for seed in (0, 0, 1))
    assert first == second != other
    assert sorted(first[:42]) == sorted(first[42:]) == sorted(texts[8:])
    assert first[:42] != first[42:]
    assert first[:42] != texts[8:]


@pytest.mark.usefixtures("small")
def test_a_batch_is_a_function_of_its_step(tmp_path: Path) -> None:
    """Forwards, backwards and with gaps: what was passed over is not tokenised."""
    source, tokenizer = write(tmp_path / "a.txt", passages(50)), word_tokenizer()
    encoded = Counter[int]()

    def encode(part: list[str]):  # type: ignore[no-untyped-def]
        from common import data

        encoded[len(part)] += 1
        return data.encode(tokenizer, masked_lm.passages(part), masked_lm.TEXT, 16)

    def batches() -> stream.Batches:
        return stream.Batches(lambda: source.drawn(3), tokenizer, encode, 4)

    one = batches()
    expected = [one[step] for step in range(30)]
    encoded.clear()
    assert torch.equal(batches()[25]["input_ids"], expected[25]["input_ids"])
    assert encoded == {4: 1}
    again = batches()
    for step in (3, 7, 2, 29, 0):
        assert torch.equal(again[step]["input_ids"], expected[step]["input_ids"])
    assert len(one.ids(3)) == 4


@pytest.mark.usefixtures("small")
def test_blocks_are_those_of_a_text_in_memory(tmp_path: Path) -> None:
    texts, tokenizer = passages(50), word_tokenizer()
    held = masked_lm.packed(tokenizer, texts, 12).features["input_ids"]
    assert list(stream.blocks(texts, tokenizer, 12)) == held
    source = write(tmp_path / "a.txt", texts)
    one, other = (stream.Blocks(lambda: source.drawn(0), tokenizer, 12, 4) for _ in range(2))
    expected = [one[step]["input_ids"] for step in range(9)]
    assert torch.equal(other[8]["input_ids"], expected[8])
    assert torch.equal(other[2]["input_ids"], expected[2])
    assert expected[0].shape == (4, 12)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl line 2: not JSON"),
        ("a.jsonl", '{"words": "a"}\n', "a.jsonl line 1: needs a text"),
        ("a.txt.gz", "not packed", "a.txt.gz: cannot be read"),
        ("a.txt", "one\ntwo\n", "2 texts are too few to be streamed"),
        ("a.csv", "one\n", "must be .txt or .jsonl"),
    ],
)
def test_what_cannot_be_streamed(name: str, text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    spec = f"stream:{tmp_path / name}"
    with pytest.raises(BadInput, match=line):  # noqa: PT012 (the one or the other)
        stream.check(spec)
        stream.Stream(spec).head()
    with pytest.raises(BadInput, match="no such file"):
        stream.check(f"stream:{tmp_path / 'none.txt'}")
    with pytest.raises(BadInput, match="--budget paper counts epochs"):
        stream.of(spec, "paper")


# --- scripts -------------------------------------------------------------------------------------------------

RUNS = {
    "cka": "cka --variant cka --student 2x16 --pretraining-share 0.5",
    "cmow": "cmow --variant kd --student cmow-3 --mlp-width 16 --init general --general-share 0.5",
    "efficient_attention": "efficient_attention --variant convert-distil --window 4 --short-length 16 --max-length 32",
}


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("stream")
    write_sst2(root / "data" / "SST-2", 100, 20)
    torch.manual_seed(0)
    config = bert_config(4, 32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    models.save(BertForMaskedLM(config), word_tokenizer(), root / "teacher", "")
    write(root / "text.jsonl.gz", passages(9000))
    argv = ["--task", "sst2", "--data-dir", str(root / "data"), "--teacher", str(root / "teacher"), "--device", "cpu"]
    argv += ["--teacher-epochs", "1", "--batch-size", "8", "--max-length", "16", "--budget", "160"]
    return [*argv, "--corpus", f"stream:{root / 'text.jsonl.gz'}"]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("method", ["cka", pytest.param("cmow", marks=SLOW), pytest.param(list(RUNS)[2], marks=SLOW)])
def test_a_run_goes_on_at_its_place_in_the_stream(method: str, basic: list[str], tmp_path: Path) -> None:
    """Stopped in the middle of pre-training and continued: the same losses."""
    line, argv = RUNS[method], [*basic, "--save-every", "1000"]
    run_script(line, argv, tmp_path / "whole", tmp_path / "alone")
    run_script(line, argv, tmp_path / "out", tmp_path / "stopped", 130, 5)
    run_script(line, [*argv, "--resume"], tmp_path / "out", tmp_path / "resumed")
    whole, *parts = (lines(tmp_path / place / "losses.0") for place in ("alone", "stopped", "resumed"))
    assert 6 <= len(parts[0]) < len(whole)
    assert parts[0] + parts[1] == whole
    record = results.load(next((tmp_path / "out").rglob("result.json")))
    assert record["ledger"]["steps"] == len(whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", RUNS)
def test_two_processes_read_one_stream(method: str, basic: list[str], tmp_path: Path) -> None:
    run_script(RUNS[method], basic, tmp_path / "one", tmp_path / "alone")
    two(of_two, 0, RUNS[method], basic, tmp_path / "two", tmp_path / "both")
    same_curve(lines(tmp_path / "alone" / "losses.0"), lines(tmp_path / "both" / "losses.0"))


READER = """
import sys
sys.path.insert(0, {root!r})
from common import data, masked_lm, models, stream, train
source = stream.Stream("stream:" + sys.argv[1])
tokenizer = models.load_tokenizer(sys.argv[2])
source.signature(), source.head()
encode = lambda part: data.encode(tokenizer, masked_lm.passages(part), masked_lm.TEXT, 16)
batches = stream.Batches(lambda: source.drawn(0), tokenizer, encode, 32)
last = sum(1 for _ in source.texts()) // 32 - stream.HEAD // 32 - 1
for step in (0, 1, last // 2, last):
    batches[step]
print(train.peak_memory())
"""


def peak(size: int, folder: Path, teacher: str) -> int:
    """Bytes at most of a process that reads a file of `size` bytes from its beginning to its end."""
    path = folder / f"{size}.txt"
    part = "".join(f"{text}\n" for text in passages(5000))
    with path.open("w") as file:
        for _ in range(max(1, size // len(part))):
            file.write(part)
    code = READER.format(root=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), teacher], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    path.unlink()
    return int(done.stdout)


@pytest.mark.parametrize(("small_mb", "large_mb"), [(2, 20), pytest.param(5, 300, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_file(small_mb: int, large_mb: int, basic: list[str], tmp_path: Path) -> None:
    teacher = basic[basic.index("--teacher") + 1]
    first, second = (peak(size * 10**6, tmp_path, teacher) for size in (small_mb, large_mb))
    assert second <= 1.2 * first


def test_one_line_before_anything_is_loaded(basic: list[str], tmp_path: Path) -> None:
    argv = [*basic[:-1], f"stream:{tmp_path / 'none.txt'}", "--out-dir", str(tmp_path / "out")]
    done = script(*argv, path=ROOT / "methods" / "cka.py")
    assert done.returncode == 2
    assert "no such file" in error_line(done.stderr)
    assert not (tmp_path / "out").exists()
