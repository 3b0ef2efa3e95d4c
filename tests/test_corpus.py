"""OSCAR's filters, reading corpora, mixing them; and the analysis of tagged data."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import analysis, corpus, data, models, pocket
from common.args import BadInput


def document(text: str = "some text", **changes: Any) -> dict[str, Any]:
    """A record as OSCAR 23.01 has them."""
    metadata = {
        "identification": {"label": "en", "prob": 0.93},
        "harmful_pp": 240.5,
        "tlsh": "tlsh:1",
        "quality_warnings": ["header"],
        "categories": ["liste_bu"],
        "sentence_identifications": [None],
    }
    return {"content": text, "warc_headers": {}, "metadata": metadata | changes}


def write(path: Path, records: list[Any]) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"identification": {"label": "en", "prob": 0.8}}, None),  # "eighty percent or higher"
        ({"identification": {"label": "en", "prob": 0.79}}, "language"),
        ({"identification": {"label": "fr", "prob": 0.99}}, "language"),
        ({"identification": None}, "language"),
        ({"identification": {"label": "en", "prob": math.nan}}, "language"),
        ({"quality_warnings": ["tiny"]}, "quality"),
        ({"quality_warnings": ["footer", "short_sentences"]}, "quality"),
        ({"quality_warnings": ["noisy"]}, "quality"),
        ({"quality_warnings": ["header", "footer"]}, None),
        ({"quality_warnings": None}, None),
        ({"harmful_pp": 13.51}, "harmful perplexity"),  # "of 13.51 or less"
        ({"harmful_pp": 13.52}, None),
        ({"harmful_pp": None}, None),
        ({"categories": ["press", "adult"]}, "category"),
        ({"categories": None}, None),
    ],
)
def test_filters(changes: dict[str, Any], reason: str | None) -> None:
    assert corpus.dropped_by(document(**changes)["metadata"]) == reason


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_mix_of_files(suffix: str, tmp_path: Path) -> None:
    bad = [document(f"bad {i}", harmful_pp=1.0) for i in range(3)] + [document(" ", categories=[])]
    oscar = write(tmp_path / f"oscar{suffix}", [document(f"good {i}") for i in range(5)] + bad)
    (tmp_path / "books.txt").write_text("one\nchapter\n\n\n another \n")
    plain = write(tmp_path / "plain.jsonl", [{"text": "p"}])
    made = corpus.mix(f"oscar={oscar},books={tmp_path / 'books.txt'},plain={plain}")
    assert sorted(made.texts) == ["another", *(f"good {i}" for i in range(5)), "one\nchapter", "p"]
    assert Counter(made.sources) == {"oscar": 5, "books": 2, "plain": 1}
    assert all(source == "oscar" for text, source in zip(made.texts, made.sources, strict=True) if "good" in text)
    assert made.kept == {"oscar": 5, "books": 2, "plain": 1}
    assert made.dropped == {"oscar": {"harmful perplexity": 3, "empty": 1}, "books": {}, "plain": {}}
    assert made.signature == "oscar:5+books:2+plain:1"


def test_a_limit_draws_from_the_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", [document(str(i)) for i in range(400)])
    draws = [corpus.mix(f"o={path}", limit=40, seed=seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0].texts != draws[2].texts
    assert len(set(draws[0].texts)) == 40
    mean = statistics.mean(int(text) for draw in draws[1:] for text in draw.texts)
    assert 150 < mean < 250
    assert len(corpus.mix(f"o={path}", limit=1000).texts) == 400


def test_built_in_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BUILT_IN_SIZE", 50)
    monkeypatch.setattr(pocket, "SIZES", {"ner": {"train": 60}, "hotpot": {"train": 60}})
    made = corpus.mix("pocket-short,pocket-long", limit=30)
    lengths = {
        name: [len(t.split()) for t, s in zip(made.texts, made.sources, strict=True) if s == name]
        for name in corpus.BUILT_IN
    }
    assert [len(found) for found in lengths.values()] == [30, 30]
    assert max(lengths["pocket-short"]) < 120 < max(lengths["pocket-long"])
    assert {word for text in made.texts for word in text.split()} <= set(pocket.vocabulary())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "names no corpus"),
        ("oscar", "must be NAME=FILE, or one of pocket-short"),
        ("a={0}/none.jsonl", "no such file"),
        ("a={0}/x.csv", "must be .jsonl or .txt"),
        ("a={0}/x.jsonl,a={0}/y.jsonl", "names a twice"),
    ],
)
def test_bad_names(spec: str, says: str, tmp_path: Path) -> None:
    for name in ("x.csv", "x.jsonl", "y.jsonl"):
        (tmp_path / name).write_text("")
    with pytest.raises(BadInput, match=says):
        corpus.check(spec.format(tmp_path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"text": "a"}\n{"text"\n', "x.jsonl line 2: not JSON"),
        (b"[1]\n", "line 1: needs a text"),
        (b'{"metadata": {}}\n', "line 1: needs a text"),
        (b"", "no document is left .it is empty"),
        (b'{"content": "a", "metadata": {}}\n', "no document is left .language 1"),
        (b"\xff\n", "cannot be read"),
    ],
)
def test_bad_files(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(BadInput, match=says) as error:
        corpus.mix(f"x={tmp_path / 'x.jsonl'}")
    assert "\n" not in str(error.value)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl.gz", [document(str(i)) for i in range(2000)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadInput, match=r"x.jsonl.gz: cannot be read"):
        corpus.mix(f"x={path}")


# --- analysis ----------------------------------------------------------------------------------------------


@pytest.fixture
def tagged() -> data.TaskData:
    task = data.TASKS["ner"]
    splits = {
        "train": data.Split(["a", "b"], [("clara slept .",), ("the judge saw paris\nparis vera .",)],
                            [[1, 0, 0], [0, 0, 0, 3, 1, 2, 0]]),
        "test": data.Split(["c"], [("paris",)], [[5]]),
    }  # fmt: skip
    return data.TaskData("pocket/ner", task, "pocket", "by hand", splits, "0", ("test",))


def test_tags_and_lengths_are_counted(tagged: data.TaskData) -> None:
    tags = analysis.tag_proportions(tagged)
    assert {tag: row["count"] for tag, row in tags.items() if row["count"]} == {
        "O": 6, "B-PER": 2, "I-PER": 1, "B-LOC": 1, "B-ORG": 1,
    }  # fmt: skip
    assert tags["O"] == {"count": 6, "p": 6 / 11, "p1": None}
    assert tags["B-PER"] == {"count": 2, "p": 2 / 11, "p1": 2 / 5}
    assert sum(row["p"] for row in tags.values()) == pytest.approx(1)  # type: ignore[misc]
    lengths = analysis.word_lengths(tagged)
    assert lengths == [3, 7, 1]
    found = analysis.length_statistics(lengths)
    assert found["mean"] == pytest.approx(statistics.mean(lengths))
    assert found["std"] == pytest.approx(statistics.stdev(lengths))
    assert [found[f"{q}%"] for q in (0, 25, 50, 75, 100)] == [1, 2, 3, 5, 7]
    assert analysis.length_statistics([513, 512, 4097, 4])["over 512"] == 0.5
    assert analysis.length_statistics([513, 512, 4097, 4])["over 4096"] == 0.25
    assert analysis.length_statistics([5])["std"] == 0


def test_analysis_writes_what_it_prints(tagged: data.TaskData, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    made = analysis.analyse_ner([tagged], tmp_path, models.pocket_tokenizer())
    assert json.loads((tmp_path / "ner-data.json").read_text()) == made
    assert (tmp_path / "ner-lengths.png").stat().st_size > 1000
    out = capsys.readouterr().out
    assert "B-PER" in out
    assert "0.182" in out
    assert made["pocket/ner"]["tokens"] == made["pocket/ner"]["lengths"]  # one token a word
    assert made["pocket/ner"]["i_to_b"] == pytest.approx(1 / 4)
    assert analysis.density([3, 3, 3]) is None
    x, y = analysis.density([1, 5, 9, 30])  # type: ignore[misc]
    assert (len(x), min(x), max(x)) == (200, 0, 30)
    assert min(y) >= 0


@pytest.mark.parametrize("name", ["pocket/squad", "pocket/sst2"])
def test_only_tagged_data_is_analysed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate: Callable[..., Any] = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, size=20))
    with pytest.raises(BadInput, match=f"--analyse-data: {name} is"):
        analysis.analyse_ner([data.load(name)], tmp_path)
