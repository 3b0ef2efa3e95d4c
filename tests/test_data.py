"""A task's data: three sources, class names, tokenising, batches, windows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest
from conftest import refused
from content import MOODS, QUESTION, ROW, asked, conll, jsonl, write
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

import pocket
from common import data
from common.hub import CONVERTED, GLUE_REVISION, HUB
from common.kinds import documents
from common.kinds.names import label_order
from common.tasks import TASKS, Columns

MOVED = "c" * 40  # where the branch is
GLUE = [name for name in HUB if HUB[name].revision == GLUE_REVISION]


# --- pocket --------------------------------------------------------------------------------------------------


def test_pocket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task of the generator passes the checks; a limit keeps its order and is stated."""
    generate = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, size=40))
    for name in pocket.TASKS:
        task = data.load(f"pocket/{name}")
        assert set(task.splits) == set(pocket.SPLITS[name])
        assert all(split.startswith("test") for split in task.reported)
        ids = [i for split in task.splits.values() for i in split.ids]
        assert len(set(ids)) == len(ids)
    whole, part = data.load("pocket/mnli"), data.load("pocket/mnli", limit=9)
    assert part.splits["train"] == data.head(whole.splits["train"], 9)
    assert part.splits["dev_matched"] == whole.splits["dev_matched"]
    assert part.origin == f"{whole.origin}, first 9 training examples"
    assert part.fingerprint != whole.fingerprint == data.load("pocket/mnli", limit=1000).fingerprint
    refused(lambda: data.load("pocket/mnli", limit=1), "all training labels are")


# --- the hub: what its repositories hold, as their cards record it ---------------------------------------------

CLASSES = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "mnli": ("entailment", "neutral", "contradiction"),
    **dict.fromkeys(("qnli", "rte"), ("entailment", "not_entailment")),
    "wnli": ("not_entailment", "entailment"),
}
ROWS: dict[str, tuple[dict[str, Any], tuple[str, ...], Any]] = {  # task: a row, the texts and the label read from it
    "wikitext-2": ({"text": "line"}, ("line\n",), None),
    "conll2003": ({"tokens": ["Vera", "slept"], "ner_tags": ["B-PER", "O"]}, ("Vera slept",), [1, 0]),
    "squad": (
        {"id": "s", "title": "t", "context": "saw Vera", "question": "who ?",
         "answers": {"text": ["Vera"], "answer_start": [4]}}, ("who ?", "saw Vera"), [("Vera", 4)],
    ),
    "hotpot_qa": (
        {"id": "h", "question": "where ?", "answer": "Riga",
         "context": {"title": ["Vera", "Rose"], "sentences": [["Vera is from Riga."], ["Rose", " sleeps."]]}},
        ("where ?", "yes no\nVera: Vera is from Riga.\nRose: Rose sleeps."), [("Riga", 26)],
    ),
    "trivia_qa": (
        {"question": "where ?", "question_id": "t", "answer": {"aliases": ["Riga", "City of Riga"], "value": "Riga"},
         "entity_pages": {"title": ["V"], "wiki_context": ["In Riga."]}},
        ("where ?", "In Riga."), [("Riga", 3), ("City of Riga", -1)],
    ),
    "cnn_dailymail": ({"article": "long", "highlights": "short", "id": "c"}, ("long",), "short"),
    "xsum": ({"document": "long", "summary": "short", "id": "x"}, ("long",), "short"),
    "wmt16/en-ro": ({"translation": {"en": "one", "ro": "unu"}}, ("one",), "unu"),
    "wmt14/en-fr": ({"translation": {"en": "one", "fr": "un"}}, ("one",), "un"),
    "iwslt2017/en-fr": ({"translation": {"en": "one", "fr": "un"}}, ("one",), "un"),
}  # fmt: skip


def recorded(name: str, classes: tuple[str, ...] | None = None) -> DatasetDict:
    """A repository; GLUE's have unlabelled test splits."""
    splits = [split.replace("dev", "validation") for split in TASKS[name].splits]
    if name in ROWS:
        return DatasetDict({split: Dataset.from_list([ROWS[name][0]]) for split in splits})
    names = classes or CLASSES.get(name)
    feature = ClassLabel(names=list(names)) if names else Value("float32")
    features = Features({field: Value("string") for field in TASKS[name].fields} | {"label": feature})
    rows = [{field: f"{field} {i}" for field in TASKS[name].fields} for i in range(3)]
    made = {split: [row | {"label": label} for row, label in zip(rows, (0, 1, 0), strict=True)] for split in splits}
    made["test"] = [row | {"label": -1} for row in rows]
    return DatasetDict({split: Dataset.from_list(rows, features) for split, rows in made.items()})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[tuple]]:
    """Let the hub answer with what is given; the calls it got."""

    def answer(what: Callable[[], Any]) -> list[tuple]:
        calls: list[tuple] = []
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, revision, **__: SimpleNamespace(
            sha=MOVED if revision == CONVERTED else revision))  # fmt: skip
        monkeypatch.setattr(
            datasets, "load_dataset", lambda repo, config, revision: calls.append((repo, config, revision)) or what()
        )
        return calls

    return answer


@pytest.mark.parametrize("name", HUB)
def test_hub(name: str, hub: Callable, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """At its commit; saved to disk, or as Parquet, it is read as it is from there."""
    calls = hub(lambda: recorded(name))
    task, source = data.load(name), HUB[name]
    commit = MOVED if source.revision == CONVERTED else source.revision
    assert calls == [(source.repo, source.config, commit)]
    assert task.origin == f"{source.repo}@{commit}"
    recorded(name).save_to_disk(tmp_path / "disk")
    for split, rows in recorded(name).items():
        write(tmp_path / "files" / "x", "")
        rows.to_parquet(tmp_path / "files" / f"{split}.parquet")
    for folder in ("disk", "files"):
        for split, found in data.load(name, str(tmp_path / folder)).splits.items():
            assert (found.texts, found.labels) == (task.splits[split].texts, task.splits[split].labels)
    assert tuple(task.splits) == TASKS[name].splits
    found = task.splits[task.reported[0]]
    if name in GLUE:
        assert tuple(source.columns) == TASKS[name].columns
        assert (found.labels, found.texts[2]) == ([0, 1, 0], tuple(f"{field} 2" for field in task.task.fields))
        assert TASKS[name].labels == CLASSES.get(name, ())
    else:
        assert (found.texts, found.labels) == ([ROWS[name][1]], [ROWS[name][2]])
    assert f"the official split has {source.rows[0]}" in capsys.readouterr().err


def test_hub_labels_are_mapped_by_name_and_columns_checked(hub: Callable) -> None:
    hub(lambda: recorded("mnli", ("contradiction", "entailment", "neutral")))
    assert data.load("mnli").splits["train"].labels == [2, 0, 2]
    hub(lambda: recorded("mnli", ("yes", "no", "maybe")))
    refused(lambda: data.load("mnli"), "train row 1: label 'yes' is unknown; mnli has entailment")


@pytest.mark.parametrize(("name", "revision"), [("rte", GLUE_REVISION), ("rte", "0" * 40), ("xsum", MOVED)])
def test_without_a_connection_only_the_pinned_revision_is_taken_from_the_cache(
    name: str, revision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a branch, the one that is there."""

    def offline(*args: Any, **kwargs: Any) -> None:
        raise OSError("offline")

    recorded(name).save_to_disk(tmp_path / revision)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.load_from_disk(str(tmp_path / revision)))
    if revision in (GLUE_REVISION, MOVED):
        assert data.load(name).origin == f"{HUB[name].repo}@{revision}"
    else:
        refused(lambda: data.load("rte"), "could not be loaded from the hub or its cache (OSError: offline)")
    assert datasets.config.HF_HUB_OFFLINE is False


# --- local files ---------------------------------------------------------------------------------------------

PAIR = "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tnot_entailment\n1\tC\tD\tentailment\n"
STSB = "index\tsource1\tsentence1\tsentence2\tscore\n0\tx\tA\tB\t5.000\n1\tx\tC\tD\t0.25\n"
MRPC = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA "b\t"c\n0\t9\t10\tD\tE\n'
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA\tB\t0\n4\t5\tcut short\n7\t8\t9\tC\t\t1\n"
MNLI = "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tP\tH\tx\tneutral\n1\tP\tH\tx\t-\n2\tp\th\tx\tentailment\n"
OFFICIAL: dict[str, tuple[str, list[float], tuple[str, ...]]] = {  # a split's file, its labels, its first texts
    "cola": ("gj04\t1\t\tIt is.\ngj04\t0\t*\tIs it it.\n", [1, 0], ("It is.",)),
    "sst2": ('sentence\tlabel\na fine film \t1\n"dull , long\t0\n', [1, 0], ("a fine film ",)),
    "mrpc": (MRPC, [1, 0], ('A "b', '"c')),
    "qqp": (QQP, [0, 1], ("A", "B")),
    "stsb": (STSB, [5.0, 0.25], ("A", "B")),
    "mnli": (MNLI, [1, 0], ("P", "H")),
    "qnli": ("index\tquestion\tsentence\tlabel\n0\tQ\tS\tentailment\n1\tq\ts\tnot_entailment\n", [0, 1], ("Q", "S")),
    "rte": (PAIR, [1, 0], ("A", "B")),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", OFFICIAL)
def test_official_layout(name: str, inside: bool, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """DIR and DIR/<FOLDER>, a byte order mark, Windows line ends, quotation marks that are only text."""
    content, labels, first = OFFICIAL[name]
    folder, splits = tmp_path / TASKS[name].folder, TASKS[name].splits
    for split in splits:
        write(folder / f"{split}.tsv", "\ufeff" + content.replace("\n", "\r\n"))
    write(folder / "test.tsv", "index\tsentence\n0\tno label\n")  # never read
    task = data.load(name, str(folder if inside else tmp_path))
    assert (task.splits["train"].labels, task.splits["train"].texts[0]) == (labels, first)
    assert task.origin == f"{folder.name}: {', '.join(f'{split}.tsv' for split in splits)}"
    assert tuple(task.splits) == splits
    warned = capsys.readouterr().err
    assert f"{name} train has 2 rows; the official split has {HUB[name].rows[0]}" in warned
    left_out = "1 rows left out, of another number of columns, or without an agreed label"
    assert (left_out in warned) == (name in ("qqp", "mnli"))


@pytest.mark.parametrize("labels", [("not_entailment", "entailment"), (1, 0), ("Not-Entailment", "ENTAILMENT")])
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_named_columns(suffix: str, labels: tuple, tmp_path: Path) -> None:
    """Names, spelled freely, or the hub's ids; text with quotes, commas and line ends survives."""
    rows = [
        {"label": labels[0], "sentence2": 'said "yes", then\nleft', "sentence1": "a \u2028 b"},
        {"label": labels[1], "sentence2": "null", "sentence1": "1.0"},
    ]
    for stem in ("train", "validation"):  # of JSON an object a line
        getattr(Dataset.from_list(rows), f"to_{suffix}")(tmp_path / f"{stem}.{suffix}")
    split = data.load("rte", str(tmp_path)).splits["dev"]
    assert (split.labels, split.ids) == ([1, 0], ["dev-0", "dev-1"])
    assert split.texts == [("a \u2028 b", 'said "yes", then\nleft'), ("1.0", "null")]


@pytest.mark.parametrize(
    ("file", "content", "first"),
    [
        ("train.tsv", MOODS.replace("\n", "\n\n").rstrip("\n"), "a fine film"),
        ("train.tsv", MOODS.replace("a fine", "a\u2028\0fine"), "a\u2028\0fine film"),
        ("train.tsv", MOODS.replace("a fine", "fine " * 100_000), "fine " * 100_000 + " film"),
        ("train.jsonl", ROW + '\n{"label": "NEGATIVE", "sentence": "b", "more": []}\n', "a fine film"),
        (
            "train.jsonl",
            '{"sentence": "\\ud83c\\udfac", "label": 1.0}\n{"sentence": "b", "label": "neg"}',
            "\U0001f3ac",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_files_are_read_as_meant(file: str, content: str, first: str, tmp_path: Path) -> None:
    write(tmp_path / file, content)
    write(tmp_path / "dev.tsv", MOODS)
    task = data.load("sst2", str(tmp_path))
    assert (task.splits["train"].labels, task.splits["train"].texts[0]) == ([1, 0], (first,))


def test_class_names_of_a_schema(tmp_path: Path) -> None:
    saved = recorded("rte", ("not_entailment", "entailment"))
    saved.save_to_disk(tmp_path / "disk")
    write(tmp_path / "parquet" / "x", "")
    saved["validation"].to_parquet(tmp_path / "parquet" / "validation-00000-of-00001.parquet")
    for i, rows in enumerate(([0, 1], [2])):  # of some files of the hub, the name ends with a hash
        saved["train"].select(rows).to_parquet(tmp_path / "parquet" / f"train-0000{i}-of-00002-{i}a.parquet")
    for folder in ("disk", "parquet"):
        assert data.load("rte", str(tmp_path / folder)).splits["train"].labels == [1, 0, 1]


CONLL = "-DOCSTART- -X- O\n\nVera NNP B-PER\nsaw VBD O\nBig JJ B-LOC\nPark NN I-LOC\n\nin IN O\n\n"
CONLL += "-DOCSTART- -X- O\n\nRose NN I-ORG\n"  # IOB1's I- begins an entity too


@pytest.mark.parametrize(("name", "marked", "texts"), [
    ("conll2003", True, ["Vera saw Big Park", "in", "Rose"]),
    ("conll2003-documents", True, ["Vera saw Big Park\nin", "Rose"]),
    ("conll2003-documents", False, ["Vera saw Big Park", "in", "Rose"]),
])  # fmt: skip
def test_conll_columns(name: str, marked: bool, texts: list[str], tmp_path: Path) -> None:
    """The examples of conll2003 are sentences, as in the papers; the task's name asks for documents."""
    for part in ("train.txt", "valid.txt", "test.txt"):
        write(tmp_path / part, CONLL if marked else CONLL.replace("-DOCSTART- -X- O\n\n", ""))
    task = data.load(name, str(tmp_path))
    assert task.splits["dev"].texts == [(text,) for text in texts]
    tags = [task.task.labels[tag] for row in task.splits["dev"].labels for tag in row]
    assert tags == ["B-PER", "O", "B-LOC", "I-LOC", "O", "B-ORG"]
    assert task.reported == ("test",)


def test_questions_in_json(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """SQuAD's layout; an offset that is wrong or missing is looked for, and what is not found is not learnt from."""
    answers = [{"text": "none"}, {"text": "film", "answer_start": 3}]
    questions = [QUESTION, QUESTION | {"id": "r", "answers": answers}, QUESTION | {"answers": answers[:1]}]
    content = json.dumps({"data": [{"paragraphs": [{"context": "a fine film", "qas": questions}]}]})
    for part in ("train-v1.1.json", "dev-v1.1.json"):
        write(tmp_path / part, content)
    task = data.load("squad", str(tmp_path))
    assert task.splits["train"].ids == ["q", "r"]
    assert task.splits["dev"].labels == [[("fine", 2)], [("film", 7), ("none", -1)], [("none", -1)]]
    told = capsys.readouterr().err
    assert "1 of 3 questions left out" in told
    assert "squad train: 1 of 3 questions have their answer not at answer_start; the place nearest to it" in told
    row = {"_id": "h1", "question": "where ?", "answer": "yes", "context": [["Vera", ["Vera is", " from Riga."]]]}
    for part in ("hotpot_train_v1.1.json", "hotpot_dev_distractor_v1.json"):
        write(tmp_path / "hotpot" / part, json.dumps([row]))
    split = data.load("hotpot_qa", str(tmp_path)).splits["train"]
    assert (split.texts, split.labels) == ([("where ?", "yes no\nVera: Vera is from Riga.")], [[("yes", 0)]])


def test_questions_about_whole_articles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question's context is its article, in parts of whole paragraphs where that is long; its answer is that of its
    own paragraph, though an earlier one has the same words."""
    paragraphs = [
        {"context": f"{name} is a film .", "qas": [{"id": name, "question": "what is it ?", "answers": [
            {"text": "film", "answer_start": start}]}]}
        for name, start in (("one", 9), ("two", 9), ("three", 11), ("four", 10))
    ]  # fmt: skip
    content = json.dumps({"data": [{"title": "a", "paragraphs": paragraphs}, {"paragraphs": paragraphs[:1]}]})
    for part in ("train-v1.1.json", "dev-v1.1.json"):
        write(tmp_path / "squad" / part, content)
    for words, sizes in ((2600, (4, 4, 4, 4, 1)), (10, (2, 2, 2, 2, 1)), (1, (1, 1, 1, 1, 1))):
        monkeypatch.setattr(documents, "ARTICLE", words)
        split = data.load("squad-articles", str(tmp_path)).splits["train"]
        assert split.ids == ["one", "two", "three", "four", "one"]
        for name, (_, context), [(answer, start)], size in zip(
            split.ids, split.texts, split.labels, sizes, strict=True
        ):
            assert context.count("\n") == size - 1
            assert context[: start + len(answer)].endswith(f"{name} is a film")


TEXT = " \n = A <unk> = \n \n One line . \n = = Part = = \n Two . \n \n = B = \n \n Three = four = \n"


@pytest.mark.parametrize(("names", "end"), [("wiki.{}.tokens", "\n"), ("wiki.{}.raw", "\r\n"), ("{}.txt", "\n")])
def test_running_text_holds_articles(names: str, end: str, tmp_path: Path, hub: Callable) -> None:
    for part in ("train", "valid", "test"):
        write(tmp_path / "wikitext-2" / names.format(part), TEXT.replace("\n", end))
    task = data.load("wikitext-2", str(tmp_path))
    texts = [text for (text,) in task.splits["train"].texts]
    assert "".join(texts) == TEXT[2:]  # but for the blank line at the top, every character is there
    assert [text.split("\n")[0] for text in texts] == [" = A <unk> = ", " = B = "]
    rows = {"text": [line if line.strip() else "" for line in TEXT.splitlines(keepends=True)]}
    hub(lambda: DatasetDict({name: Dataset.from_dict(rows) for name in ("train", "validation", "test")}))
    assert data.load("wikitext-2").fingerprint == task.fingerprint


# --- limits, tuning, fingerprints ----------------------------------------------------------------------------


def sst2(folder: Path, content: str = MOODS) -> str:
    for part in ("train", "dev"):
        write(folder / f"{part}.tsv", content)
    return str(folder)


def test_limits_and_tuning(tmp_path: Path) -> None:
    """A limit on files is a seeded draw; what is tuned on is never what is reported."""
    folder = sst2(tmp_path, "sentence\tlabel\n" + "".join(f"sentence {i}\t{i % 2}\n" for i in range(100)))
    first, again = (data.load("sst2", folder, limit=20) for _ in range(2))
    assert first == again
    assert first.splits["train"].ids != [f"train-{i}" for i in range(20)]
    assert first.origin.endswith(": train.tsv, dev.tsv, 20 training examples drawn with seed 0")
    train = first.splits["train"]
    for i, texts, label in zip(train.ids, train.texts, train.labels, strict=True):
        number = int(i.removeprefix("train-"))  # id, text and label stay together
        assert (texts, label) == ((f"sentence {number}",), number % 2)
    whole, tuned = data.load("sst2", folder), data.load("sst2", folder, tune=True)
    assert first.splits["dev"] == whole.splits["dev"]
    assert (whole.reported, tuned.reported) == (("dev",), ("held_out",))
    kept, held = (set(tuned.splits[name].ids) for name in ("train", "held_out"))
    assert kept | held == set(whole.splits["train"].ids)
    assert (len(kept), len(held)) == (90, 10)


def test_the_fingerprint_is_of_content_and_order(tmp_path: Path) -> None:
    base = data.load("sst2", sst2(tmp_path / "a"))
    assert data.load("sst2", sst2(tmp_path / "b", MOODS.replace("\n", "\r\n"))).fingerprint == base.fingerprint
    lines = MOODS.splitlines()
    changed = [MOODS.replace("fine", "bad"), "\n".join([lines[0], *reversed(lines[1:])])]
    changed.append(MOODS.replace("\t1", "\t2").replace("\t0", "\t1").replace("\t2", "\t0"))
    prints = {data.load("sst2", sst2(tmp_path / str(i), content)).fingerprint for i, content in enumerate(changed)}
    assert len(prints | {base.fingerprint, data.prompted(base, "say:").fingerprint}) == 5
    assert data.prompted(base, "say:").splits["dev"].texts[0] == ("say: a fine film",)


# --- tags and answers in files of one's own ------------------------------------------------------------------


PARAGRAPHS = [
    {"context": "an ox and an ox", "qas": [
        {"id": "a", "question": f"which {i} ?", "answers": [{"text": "ox", "answer_start": 13}]},
        {"id": "b", "question": f"what {i} ?", "is_impossible": True, **({"answers": []} if i % 2 else {})}]}
    for i in range(20)
]  # fmt: skip
SCHEME = ("S-PER", "O", "B-LOC", "I-LOC", "E-LOC", "B-PER", "E-PER", "S-PER")
IOB = ["B-PER", "O", "B-LOC", "I-LOC", "I-LOC", "B-PER", "I-PER", "B-PER"]
OWN: list[tuple[str, str, str, list[Any], str]] = [  # a file; one of its texts with its label; what is told
    ("t.tsv", "# page\t[1]\n" + conll("Vera\tB-Full Name ", "#\tO", "Riga*\tB-City", "# note"), "Vera # Riga0",
     ["B-Full Name", "O", "B-City"], "tags of 2 types (City, Full Name); train 18"),
    ("t.txt", conll("#\n# id", "10\u00a0000  B-X", "#w* O"), "10\u00a0000 #w0", ["B-X", "O"], "tags of 1 types"),
    ("t.conll", conll("Vera NNP B-NP B-PER", "w* VBD O O"), "Vera w0", ["B-PER", "O"],
     "t.conll: column 3 holds tags, too; those of the last, 4, are read"),
    ("t.conll", "-DOCSTART- -X- O\n" + conll("Vera _ _ B-PER", "w* _ _ O"), "Vera w0", ["B-PER", "O"],
     "t.conll: -DOCSTART- stands there once; every sentence is an example"),
    ("t.txt", conll("-DOCSTART- O", "", "Vera B-PER", "", "w* O"), "Vera\nw0", ["B-PER", "O"], "tags of 1 types"),
    ("t.txt", conll(*(f"w* {tag}" for tag in SCHEME)), " ".join(["w0"] * 8), IOB, "tags of 2 types (LOC, PER)"),
    ("t.jsonl", jsonl(tokens=["w*"] * 8, ner_tags=[tag.replace("S-", "U-").replace("E-", "L-") for tag in SCHEME]),
     " ".join(["w0"] * 8), IOB, "tags of 2 types"),
    ("t.csv", "text,label\n" + conll("Vera w*,B-PER O"), "Vera w0", ["B-PER", "O"], "tags of 1 types"),
    *(("t.jsonl", asked(start), "an ox and an ox", [("ox", 13)], "spans of") for start in (13, 13.0, "13")),
    *(("t.jsonl", asked(start), "an ox and an ox", [("ox", 3)], "spans of") for start in (None, -1, float("nan"))),
    *(("t.jsonl", asked(start), "an ox and an ox", [("ox", 13)], "t train: 20 of 20 questions have their answer not at"
       " answer_start; the place nearest to it is taken") for start in (14, "12.0", 99)),
    ("t.jsonl", asked(13) + jsonl(question="*", context="an ox", answers={"text": [], "answer_start": []}),
     "an ox and an ox", [("ox", 13)], "train: 20 of 40 rows have no label and are left out"),
    ("t.json", json.dumps({"data": [{"paragraphs": PARAGRAPHS}]}), "an ox and an ox", [("ox", 13)],
     "train: 20 of 40 rows have no label and are left out"),
    ("t.json", json.dumps(PARAGRAPHS, indent=1), "an ox and an ox", [("ox", 13)], "train: 20 of 40 rows have no label"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "content", "text", "label", "says"), OWN, ids=lambda value: str(value)[:40])
def test_own_tags_and_answers(
    file: str, content: str, text: str, label: list[Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = str(write(tmp_path / file, content))
    task = data.load(path)
    assert data.load(path, columns=Columns(teacher="model")).splits == task.splits
    there = []
    for split in task.splits.values():
        labels = [[task.task.labels[tag] for tag in row] for row in split.labels] if task.task.labels else split.labels
        there += [(texts[-1], row) for texts, row in zip(split.texts, labels, strict=True)]
    assert (text, label) in there
    assert len(there) == 20
    assert says in capsys.readouterr().err


def test_a_key_that_lacks_is_null(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The columns are those of all rows."""
    rows = jsonl(text1="a *", text2="b *", label="x") + jsonl(text1="c *", text2="d *", label="y")
    pair = Columns(("text1", "text2"))
    full = data.load(str(write(tmp_path / "full.jsonl", rows)), columns=pair)
    for first in ('{"text1": "e", "text2": null, "label": null}\n', '{"text1": "e"}\n'):
        assert data.load(str(write(tmp_path / "lacks.jsonl", first + rows)), columns=pair).splits == full.splits
        assert "1 of 41 rows have no label and are left out" in capsys.readouterr().err
    rows += '{"text1": "a", "label": "x"}\n'
    assert ("a", "") in data.load(str(write(tmp_path / "half.jsonl", rows)), columns=pair).splits["train"].texts


# --- class names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("mnli", ("contradiction", "entailment", "neutral"), [1, 2, 0]),
        ("rte", ("Not Entailment", "entailment"), [1, 0]),
        ("sst2", ("1", "0"), [1, 0]),  # digits are the hub's ids
        ("qqp", ("notDuplicate", "is_duplicate"), [0, 1]),
        ("stsb", ("score",), [0]),
        ("mnli", ("LABEL_0", "LABEL_1", "LABEL_2"), None),
        ("stsb", ("label_0",), None),
        ("sst2", ("negative", "neutral", "positive"), "sst2"),
        ("sst2", ("negative", "neg"), "sst2"),
        ("sst2", ("LABEL_0", "positive"), "sst2"),
        ("sst2", ("1", "2"), "sst2"),
        ("stsb", ("negative", "positive"), "stsb"),
    ],
)
def test_label_order(name: str, outputs: tuple[str, ...], expected: list[int] | str | None) -> None:
    named = dict(enumerate(outputs))
    if isinstance(expected, str):
        refused(lambda: label_order(named, TASKS[name], "here"), name, *outputs, *TASKS[name].labels)
    else:
        assert label_order(named, TASKS[name], "here") == expected
