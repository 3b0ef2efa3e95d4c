"""Loading from the three sources, bad files, class names, tokenising and batching."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import common
from common import data, hub
from common.args import BadInput
from common.data import TASKS, Batches, Encoded, Split

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "realdata" / "glue_data"
# the others: test_lm.py, test_windows.py
LABELLED = [name for name, task in TASKS.items() if task.kind in ("classification", "regression")]


# ------------------------------------------------------------------------------------------ helpers


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


SST2 = 'sentence\tlabel\na fine film \t1\n"dull , long\t0\n'


def sst2_folder(folder: Path, train: str | bytes = SST2, dev: str | bytes = SST2) -> str:
    write(folder / "train.tsv", train)
    write(folder / "dev.tsv", dev)
    return str(folder)


@pytest.fixture
def fake_pocket(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A suite of two tasks, in the embedded suite's form."""

    def generate(task: str, split: str, size: int | None = None, seed: int = 0) -> dict[str, list]:
        assert size is None
        assert seed == 0
        n = 8 if split == "train" else 4
        ids = [f"{split}-{i:03d}" for i in range(n)]
        if task == "stsb":
            texts = [f"{split} {i}" for i in range(n)]
            return {"id": ids, "sentence1": texts, "sentence2": texts, "label": [i / 2 for i in range(n)]}
        labels = ["neutral", "entailment", "contradiction", "neutral"]
        return {
            "id": ids,
            "premise": [f"{split} premise {i}" for i in range(n)],
            "hypothesis": [f"{split} hypothesis {i}" for i in range(n)],
            "label": [labels[i % 4] for i in range(n)],
        }

    module: Any = types.ModuleType("common.pocket")
    module.VERSION = "1"
    module.TASKS = ("mnli", "stsb")
    module.SPLITS = {
        "mnli": ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"),
        "stsb": ("train", "dev", "test"),
    }
    module.generate = generate
    monkeypatch.setitem(sys.modules, "common.pocket", module)
    monkeypatch.setattr(common, "pocket", module, raising=False)
    return module


# --------------------------------------------------------------------------------------------- tasks


def test_importing_the_module_is_cheap() -> None:
    code = (
        "import sys; from common import data, hub, metrics\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'pandas', 'sklearn', 'scipy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "data.check_name('sst2')\n"
        "assert not {'torch', 'transformers', 'datasets', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_table_of_tasks_agrees_with_the_hub_table() -> None:
    assert LABELLED == ["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte"]
    assert TASKS["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert TASKS["rte"].labels == ("entailment", "not_entailment")
    for name, task in ((name, TASKS[name]) for name in LABELLED):
        assert hub.HUB[name].labels == task.labels
        assert tuple(hub.HUB[name].columns) == (*task.fields, "label")
        assert bool(task.labels) == (task.kind == "classification")
        assert not any(split.startswith("test") for split in hub.HUB[name].splits)


@pytest.mark.parametrize(
    ("name", "data_dir", "parts"),
    [
        ("sst3", None, ["--task sst3", "did you mean sst2"]),
        ("pocket/stbs", None, ["pocket/stbs", "did you mean pocket/stsb"]),
        ("", None, ["unknown task", "Known:", "pocket/mnli"]),
        ("wnli", None, ["unknown task"]),
        ("pocket/rte", None, ["unknown task"]),  # not in this suite
        ("pocket/mnli", ".", ["--data-dir", "built in", "--task mnli"]),
        ("sst2", "no/such/folder", ["--data-dir no/such/folder", "no such folder"]),
        ("sst2", __file__, ["--data-dir", "not a folder"]),
    ],
)
@pytest.mark.usefixtures("fake_pocket")
def test_bad_names(name: str, data_dir: str | None, parts: list[str]) -> None:
    with pytest.raises(BadInput) as error:
        data.check_name(name, data_dir)
    assert all(part in str(error.value) for part in parts), error.value
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------ pocket


@pytest.mark.usefixtures("fake_pocket")
def test_pocket() -> None:
    loaded = data.load("pocket/mnli")
    assert (loaded.name, loaded.source, loaded.origin) == ("pocket/mnli", "pocket", "pocket v1")
    assert loaded.reported == ("test_matched", "test_mismatched")
    assert loaded.splits["train"].labels[:3] == [1, 0, 2]
    assert loaded.splits["train"].texts[1] == ("train premise 1", "train hypothesis 1")
    assert loaded.splits["test_matched"].ids[0] == "test_matched-000"
    scores = data.load("pocket/stsb")
    assert scores.reported == ("test",)
    assert scores.splits["dev"].labels == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.usefixtures("fake_pocket")
def test_pocket_limit_keeps_the_order_and_is_stated() -> None:
    whole, part = data.load("pocket/mnli"), data.load("pocket/mnli", seed=5, limit=3)
    assert part.splits["train"].ids == whole.splits["train"].ids[:3]
    assert part.splits["dev_matched"] == whole.splits["dev_matched"]
    assert part.origin == "pocket v1, first 3 training examples"
    assert part.fingerprint != whole.fingerprint
    assert data.load("pocket/mnli", limit=100).origin == "pocket v1"
    with pytest.raises(BadInput, match="limit=0"):
        data.load("pocket/mnli", limit=0)
    with pytest.raises(BadInput, match="all training labels are 'neutral'"):
        data.load("pocket/mnli", limit=1)


def test_the_embedded_suite_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task of the real generator passes the checks, with unique ids and labels in range."""
    from common import pocket

    generate = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, size=60))
    assert set(pocket.TASKS) >= set(LABELLED)
    for name in (*LABELLED, "lm"):
        loaded = data.load(f"pocket/{name}")
        assert loaded.reported
        assert all(split.startswith("test") for split in loaded.reported)
        assert set(loaded.splits) == set(pocket.SPLITS[name])
        ids = [i for split in loaded.splits.values() for i in split.ids]
        assert len(set(ids)) == len(ids) == 60 * len(loaded.splits)


# --------------------------------------------------------------------------------------------- hub

# Columns and class names as the repository's card records them.
RECORDED: dict[str, tuple[list[str], list[str]]] = {
    "cola": (["sentence", "label", "idx"], ["unacceptable", "acceptable"]),
    "sst2": (["sentence", "label", "idx"], ["negative", "positive"]),
    "mrpc": (["sentence1", "sentence2", "label", "idx"], ["not_equivalent", "equivalent"]),
    "qqp": (["question1", "question2", "label", "idx"], ["not_duplicate", "duplicate"]),
    "stsb": (["sentence1", "sentence2", "label", "idx"], []),
    "mnli": (["premise", "hypothesis", "label", "idx"], ["entailment", "neutral", "contradiction"]),
    "qnli": (["question", "sentence", "label", "idx"], ["entailment", "not_entailment"]),
    "rte": (["sentence1", "sentence2", "label", "idx"], ["entailment", "not_entailment"]),
}


def recorded(config: str, names: list[str] | None = None) -> Any:
    """A DatasetDict with the columns, features and splits that the hub has, test labels -1 included."""
    import datasets

    columns, classes = RECORDED[config]
    names = names or classes
    label = datasets.ClassLabel(names=names) if names else datasets.Value("float32")
    features = datasets.Features(
        {name: datasets.Value("string") for name in columns} | {"label": label, "idx": datasets.Value("int32")}
    )

    def split(labels: list) -> Any:
        texts = {name: [f"{name} {i}" for i in range(len(labels))] for name in columns}
        return datasets.Dataset.from_dict(texts | {"label": labels, "idx": [*range(len(labels))]}, features)

    evaluations = ["validation_matched", "validation_mismatched"] if config == "mnli" else ["validation"]
    found = {"train": split([0, 1, 0]), **{name: split([1, 0]) for name in evaluations}}
    return datasets.DatasetDict(found | {"test": split([-1, -1] if names else [-1.0, -1.0])})


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """A hub that answers as recorded; the calls it got."""
    import datasets
    import huggingface_hub

    calls: list[tuple] = []

    def load_dataset(repo: str, config: str, revision: str) -> Any:
        calls.append((repo, config, revision))
        return recorded(config)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **kwargs: None)
    return calls


@pytest.mark.parametrize("name", LABELLED)
def test_hub(name: str, fake_hub: list[tuple], capsys: pytest.CaptureFixture) -> None:
    loaded = data.load(name)
    assert fake_hub == [("nyu-mll/glue", name, hub.GLUE_REVISION)]
    assert loaded.source == "hub"
    assert loaded.origin == f"nyu-mll/glue@{hub.GLUE_REVISION}"
    assert loaded.reported == (("dev_matched", "dev_mismatched") if name == "mnli" else ("dev",))
    assert set(loaded.splits) == {"train", *loaded.reported}  # the unlabelled test split is not loaded
    assert loaded.splits["train"].labels == [0, 1, 0]
    assert loaded.splits["train"].texts[2] == tuple(f"{text} 2" for text in TASKS[name].fields)
    assert f"the official split has {hub.HUB[name].rows['train']}" in capsys.readouterr().err


@pytest.mark.usefixtures("fake_hub")
def test_hub_labels_are_mapped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids in another order give the same task; other classes are refused."""
    import datasets

    other = ["contradiction", "entailment", "neutral"]
    monkeypatch.setattr(datasets, "load_dataset", lambda repo, config, revision: recorded(config, other))
    assert data.load("mnli").splits["train"].labels == [2, 0, 2]
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: recorded("mnli", ["yes", "no", "maybe"]))
    with pytest.raises(BadInput, match=r"train row 0: label 'yes' is unknown; mnli has entailment"):
        data.load("mnli")


@pytest.mark.usefixtures("fake_hub")
def test_hub_columns_and_splits_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: recorded("sst2"))
    with pytest.raises(BadInput, match=r"glue@\w+ train: no column 'question1', only sentence"):
        data.load("qqp")
    with pytest.raises(BadInput, match="no split 'validation_matched', only train"):
        data.load("mnli")


@pytest.mark.parametrize("fault", [OSError("Name or service not known"), ValueError(""), TimeoutError("slow\nline")])
def test_a_hub_that_fails_is_one_clear_line(fault: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets
    import huggingface_hub

    def fail(*args: Any, **kwargs: Any) -> None:
        raise fault

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(BadInput) as error:
        data.load("rte")
    message = str(error.value)
    for part in (
        "--task rte",
        hub.HUB["rte"].origin,
        type(fault).__name__,
        "`--task pocket/rte`",
        "--data-dir DIR",
    ):
        assert part in message
    assert "\n" not in message
    assert datasets.config.HF_HUB_OFFLINE is False


@pytest.mark.parametrize("revision", [hub.GLUE_REVISION, "0" * 40])
def test_without_a_connection_only_the_pinned_revision_is_taken_from_the_cache(
    revision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets
    import huggingface_hub
    from datasets.arrow_writer import ArrowWriter

    folder = tmp_path / "nyu-mll___glue" / "rte" / "0.0.0" / revision
    folder.mkdir(parents=True)
    saved = recorded("rte")
    info = datasets.DatasetInfo(
        features=saved["train"].features,
        builder_name="parquet",
        dataset_name="glue",
        config_name="rte",
        version="0.0.0",
        splits={name: {"name": name, "num_examples": len(split)} for name, split in saved.items()},
    )
    for name, split in saved.items():
        with ArrowWriter(features=split.features, path=str(folder / f"glue-{name}.arrow")) as writer:
            for row in split:
                writer.write(row)
            writer.finalize()
    info.write_to_directory(str(folder))

    def offline(*args: Any, **kwargs: Any) -> None:
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    if revision == hub.GLUE_REVISION:
        assert data.load("rte").splits["dev"].labels == [1, 0]
    else:
        with pytest.raises(BadInput, match="could not be loaded from the hub or its cache"):
            data.load("rte")


# ------------------------------------------------------------------------------------- local files

OFFICIAL: dict[str, tuple[str, dict[str, str], list, tuple[str, ...]]] = {
    # task: (folder, files, training labels, first training text)
    "cola": (
        "CoLA",
        {"train.tsv": "gj04\t1\t\tIt is.\ngj04\t0\t*\tIs it it.\n", "dev.tsv": "bc01\t1\t\tYes.\n"},
        [1, 0],
        ("It is.",),
    ),
    "sst2": ("SST-2", {"train.tsv": SST2, "dev.tsv": SST2}, [1, 0], ("a fine film ",)),
    "mrpc": (
        "MRPC",
        {
            f"{split}.tsv": 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA "b\t"c\n0\t9\t10\tD\tE\n'
            for split in ("train", "dev")
        },
        [1, 0],
        ('A "b', '"c'),
    ),
    "qqp": (
        "QQP",
        {
            f"{split}.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
            "1\t2\t3\tWhy?\tHow?\t0\n4\t5\t6\tcut short\n7\t8\t9\tWho?\t\t1\n"
            for split in ("train", "dev")
        },
        [0, 1],
        ("Why?", "How?"),
    ),
    "stsb": (
        "STS-B",
        {
            f"{split}.tsv": "index\tgenre\tsource1\tsentence1\tsentence2\tscore\n"
            "0\tnews\tx\tA plane.\tA jet.\t5.000\n1\tnews\tx\tA\tB\t0.25\n"
            for split in ("train", "dev")
        },
        [5.0, 0.25],
        ("A plane.", "A jet."),
    ),
    "mnli": (
        "MNLI",
        {
            f"{split}.tsv": "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
            "0\tx\tP\tH\tneutral\tneutral\n1\tx\tP\tH\tneutral\t-\n2\tx\tp\th\tneutral\tentailment\n"
            for split in ("train", "dev_matched", "dev_mismatched")
        },
        [1, 0],
        ("P", "H"),
    ),
    "qnli": (
        "QNLI",
        {
            f"{split}.tsv": "index\tquestion\tsentence\tlabel\n0\tQ?\tS\tentailment\n1\tq?\ts\tnot_entailment\n"
            for split in ("train", "dev")
        },
        [0, 1],
        ("Q?", "S"),
    ),
    "rte": (
        "RTE",
        {
            f"{split}.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tnot_entailment\n1\tC\tD\tentailment\n"
            for split in ("train", "dev")
        },
        [1, 0],
        ("A", "B"),
    ),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", LABELLED)
def test_official_layout(name: str, inside: bool, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """DIR and DIR/<FOLDER>, a byte order mark, Windows line ends, quotation marks that are only text."""
    folder, files, labels, first = OFFICIAL[name]
    for file, text in files.items():
        write(tmp_path / folder / file, "\ufeff" + text.replace("\n", "\r\n"))
    write(tmp_path / folder / "test.tsv", "index\tsentence\n0\tno label\n")  # never read
    loaded = data.load(name, str(tmp_path / folder if inside else tmp_path))
    assert loaded.splits["train"].labels == labels
    assert loaded.splits["train"].texts[0] == first
    assert loaded.source == "local"
    assert loaded.origin == f"{folder}: {', '.join(files)}"
    assert set(loaded.splits) == {file.removesuffix(".tsv") for file in files}
    assert "train" not in loaded.reported
    warned = capsys.readouterr().err
    assert f"{name} train has 2 rows; the official split has {hub.HUB[name].rows['train']}" in warned
    assert ("1 rows with too few or too many columns left out" in warned) == (name == "qqp")
    assert ("1 rows without an agreed label left out" in warned) == (name == "mnli")


MSR = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA\tB\n0\t3\t4\tC\tD\n1\t5\t6\tE\tF\n"


def test_mrpc_as_first_published(tmp_path: Path) -> None:
    write(tmp_path / "msr_paraphrase_train.txt", "\ufeff" + MSR)
    with pytest.raises(BadInput, match=r"no dev split for mrpc; needs dev_ids.tsv or msr_paraphrase_test"):
        data.check_name("mrpc", str(tmp_path))
    write(tmp_path / "msr_paraphrase_test.txt", "\ufeff" + MSR)
    loaded = data.load("mrpc", str(tmp_path))
    assert loaded.reported == ("test",)
    assert len(loaded.splits["train"]) == 3
    write(tmp_path / "dev_ids.tsv", "5\t6\r\n")
    loaded = data.load("mrpc", str(tmp_path))
    assert loaded.reported == ("dev",)
    assert loaded.splits["train"].texts == [("A", "B"), ("C", "D")]
    assert loaded.splits["dev"].texts == [("E", "F")]
    assert loaded.splits["dev"].ids == ["dev-0"]
    write(tmp_path / "dev_ids.tsv", "70\t80\n")
    with pytest.raises(BadInput, match=r"dev_ids.tsv: none of its pairs"):
        data.load("mrpc", str(tmp_path))


def as_csv(path: Path, rows: list[dict]) -> None:
    with open(path.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_jsonl(path: Path, rows: list[dict]) -> None:
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_parquet(path: Path, rows: list[dict]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path.with_suffix(".parquet"))


@pytest.mark.parametrize("dev", ["dev", "validation"])
@pytest.mark.parametrize("labels", [("not_entailment", "entailment"), (1, 0), ("Not-Entailment", "ENTAILMENT")])
@pytest.mark.parametrize("save", [as_csv, as_jsonl, as_parquet])
def test_named_columns(save: Callable, labels: tuple, dev: str, tmp_path: Path) -> None:
    """Names, spelled freely, or the hub's ids; text with quotes, commas and line ends survives."""
    rows = [
        {"label": labels[0], "sentence2": 'said "yes", then\nleft', "sentence1": "a \u2028 b"},
        {"label": labels[1], "sentence2": "c", "sentence1": "d"},
    ]
    for stem in ("train", dev):
        save(tmp_path / stem, rows)
    loaded = data.load("rte", str(tmp_path))
    assert loaded.splits["train"].labels == [1, 0]
    assert loaded.splits["train"].texts[0] == ("a \u2028 b", 'said "yes", then\nleft')
    assert loaded.splits["train"].ids == ["train-0", "train-1"]
    assert loaded.splits["dev"].ids == ["dev-0", "dev-1"]


@pytest.mark.parametrize("order", [["entailment", "not_entailment"], ["not_entailment", "entailment"], None])
def test_save_to_disk_and_parquet_with_class_names(order: list[str] | None, tmp_path: Path) -> None:
    saved = recorded("rte", order)
    expected = [1, 0, 1] if order and order[0] == "not_entailment" else [0, 1, 0]
    saved.save_to_disk(tmp_path / "disk")
    loaded = data.load("rte", str(tmp_path / "disk"))
    assert loaded.splits["train"].labels == expected
    assert set(loaded.splits) == {"train", "dev"}
    (tmp_path / "parquet").mkdir()
    for split in ("train", "validation"):
        saved[split].to_parquet(tmp_path / "parquet" / f"{split}-00000-of-00001.parquet")
    assert data.load("rte", str(tmp_path / "parquet")).splits["train"].labels == expected


def test_save_to_disk_that_lacks_a_split(tmp_path: Path) -> None:
    saved = recorded("rte")
    del saved["validation"]
    saved.save_to_disk(tmp_path / "lacks")
    with pytest.raises(BadInput, match="no dev split for rte; needs 'validation', has train, test"):
        data.load("rte", str(tmp_path / "lacks"))
    saved["train"].save_to_disk(tmp_path / "single")
    with pytest.raises(BadInput, match="one split written by save_to_disk"):
        data.check_name("rte", str(tmp_path / "single"))
    write(tmp_path / "lacks" / "train" / "state.json", "{")
    with pytest.raises(BadInput, match="save_to_disk folder cannot be read"):
        data.load("rte", str(tmp_path / "lacks"))


HEAD = "sentence\tlabel\n"
BAD_SST2 = [
    ("dev.tsv", "", ["dev.tsv", "empty"]),
    ("dev.tsv", " \n\n", ["dev.tsv", "empty"]),
    ("dev.tsv", HEAD, ["dev.tsv", "no rows"]),
    (
        "train.tsv",
        "text\tlabel\na\t1\n",
        ["train.tsv", "no column 'sentence'", "sentence, label", "text, label"],
    ),
    ("train.tsv", "a fine film\t1\ndull\t0\n", ["train.tsv", "no column 'sentence'", "a fine film"]),
    ("train.tsv", HEAD + "a\t1\nb\t2\n", ["train.tsv line 3", "label '2'", "negative, positive or 0, 1"]),
    ("train.tsv", HEAD + "a\t-1\n", ["train.tsv line 2", "label '-1'"]),
    ("train.tsv", HEAD + "a\tgood\n", ["train.tsv line 2", "label 'good'", "negative, positive"]),
    ("train.tsv", HEAD + "a\t\n", ["train.tsv line 2", "label ''"]),
    ("train.tsv", HEAD + "a\t1\n\n \t0\n", ["train.tsv line 4", "sentence is empty"]),
    ("train.tsv", HEAD + "a\t1\nb\n", ["train.tsv line 3", "1 columns where 2 are needed"]),
    ("train.tsv", HEAD + "a\t1\nb\t0\t\n", ["train.tsv line 3", "3 columns where 2 are needed"]),
    ("train.tsv", HEAD + "a\t1\nb\t1\n", ["train.tsv", "all training labels are 'positive'"]),
    ("train.tsv", HEAD.encode() + b"a\t1\ncaf\xe9\t0\n", ["train.tsv line 3", "not UTF-8", "byte 22"]),
    ("train.csv", "sentence,label\na,1\n", ["train.tsv", "train.csv", "leave one"]),
    ("validation.tsv", SST2, ["dev.tsv", "validation.tsv", "leave one"]),
]


@pytest.mark.parametrize(("file", "content", "parts"), BAD_SST2)
def test_bad_files(file: str, content: str | bytes, parts: list[str], tmp_path: Path) -> None:
    folder = sst2_folder(tmp_path)
    write(tmp_path / file, content)
    with pytest.raises(BadInput) as error:
        data.load("sst2", folder)
    assert all(part in str(error.value) for part in parts), error.value
    assert "\n" not in str(error.value)


JSON_ROW = '{"sentence1": "a", "sentence2": "b", "label": %s}\n'
BAD_OTHERS = [
    ("stsb", "csv", "sentence1,sentence2,label\na,b,5.5\n", ["line 2", "score '5.5'", "from 0 to 5"]),
    ("stsb", "csv", "sentence1,sentence2,label\na,b,nan\n", ["line 2", "score 'nan'", "from 0 to 5"]),
    ("stsb", "csv", "sentence1,sentence2,label\na,b,high\n", ["line 2", "score 'high'"]),
    ("stsb", "jsonl", JSON_ROW % "3" + JSON_ROW % "NaN", ["line 2", "score nan"]),
    ("stsb", "jsonl", JSON_ROW % "true", ["line 1", "score True"]),
    ("stsb", "jsonl", JSON_ROW % "null", ["line 1", "score None"]),
    ("stsb", "csv", "sentence1,sentence2,label\na,b,2\nc,d,2\n", ["all training labels are 2.0"]),
    ("rte", "jsonl", JSON_ROW % "2", ["line 1", "label 2 is unknown", "0, 1"]),
    ("rte", "jsonl", JSON_ROW % "0.5", ["line 1", "label 0.5"]),
    ("rte", "jsonl", JSON_ROW % "NaN", ["line 1", "label nan"]),
    ("rte", "jsonl", JSON_ROW % "true", ["line 1", "label True"]),
    ("rte", "jsonl", JSON_ROW % "null", ["line 1", "label None"]),
    ("rte", "jsonl", JSON_ROW % "[0]", ["line 1", "label [0]"]),
    ("rte", "jsonl", JSON_ROW % "1" + '{"sentence1": "a"}\n', ["line 2", "no 'sentence2'"]),
    ("rte", "jsonl", JSON_ROW % "1" + "\n{oops\n", ["line 3", "not JSON"]),
    ("rte", "jsonl", "[1]\n", ["line 1", "list", "one JSON object a line"]),
    ("rte", "jsonl", '{"sentence1": null, "sentence2": "b", "label": 1}\n', ["line 1", "sentence1 is None"]),
    ("rte", "jsonl", '{"sentence1": 3, "sentence2": "b", "label": 1}\n', ["line 1", "sentence1 is 3"]),
    ("rte", "csv", 'sentence1,sentence2,label\n"a,b,0\n', ["line 2", "quotes"]),
    ("rte", "csv", "sentence1,sentence2,label\na,,0\n", ["line 2", "sentence2 is empty"]),
    (
        "rte",
        "tsv",
        "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n",
        ["line 2", "label '1'", "not_entailment"],
    ),
    (
        "rte",
        "tsv",
        "index\tsentence1\tsentence2\tlabel\n0\t\t\tentailment\n",
        ["line 2", "sentence1 is empty"],
    ),
    ("rte", "parquet", "not parquet", ["train.parquet", "Parquet"]),
    ("cola", "tsv", "gj04\t1\tIt is.\n", ["line 1", "3 columns where 4 are needed"]),
    ("cola", "tsv", "gj04\tyes\t\tIt is.\n", ["line 1", "label 'yes'", "unacceptable, acceptable or 0, 1"]),
]


@pytest.mark.parametrize(("name", "suffix", "content", "parts"), BAD_OTHERS)
def test_bad_rows(name: str, suffix: str, content: str, parts: list[str], tmp_path: Path) -> None:
    write(tmp_path / f"train.{suffix}", content)
    write(tmp_path / f"dev.{suffix}", content)
    with pytest.raises(BadInput) as error:
        data.load(name, str(tmp_path))
    assert all(part in str(error.value) for part in ["train", *parts]), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "files", "parts"),
    [
        ("sst2", ["train.tsv"], ["no dev split for sst2", "dev.tsv or validation.tsv", "has train.tsv"]),
        ("sst2", ["dev.tsv"], ["no train split for sst2", "train.tsv"]),
        ("sst2", [], ["no train split", "no files"]),
        ("mnli", ["train.tsv", "dev_matched.tsv"], ["no dev_mismatched split", "validation_mismatched.tsv"]),
    ],
)
def test_missing_files(name: str, files: list[str], parts: list[str], tmp_path: Path) -> None:
    for file in files:
        write(tmp_path / file, SST2)
    with pytest.raises(BadInput) as error:
        data.check_name(name, str(tmp_path))
    assert all(part in str(error.value) for part in [str(tmp_path), *parts]), error.value


def test_a_limit_on_real_data_is_a_seeded_draw(tmp_path: Path) -> None:
    rows = "".join(f"sentence {i}\t{i % 2}\n" for i in range(100))
    folder = sst2_folder(tmp_path, HEAD + rows, HEAD + rows)
    first, again, other = (data.load("sst2", folder, seed=seed, limit=20) for seed in (0, 0, 1))
    assert first == again
    assert first.splits["train"].ids != other.splits["train"].ids
    assert first.splits["dev"] == other.splits["dev"]
    assert first.origin == f"{tmp_path.name}: train.tsv, dev.tsv, 20 training examples drawn with seed 0"
    assert len(set(first.splits["train"].ids)) == 20
    for i, text, label in zip(*vars(first.splits["train"]).values(), strict=True):
        number = int(i.removeprefix("train-"))  # id, text and label stay together
        assert (text, label) == ((f"sentence {number}",), number % 2)


def test_the_fingerprint_is_of_content_and_order(tmp_path: Path) -> None:
    base = data.load("sst2", sst2_folder(tmp_path / "a")).fingerprint
    assert len(base) == 16
    assert data.load("sst2", sst2_folder(tmp_path / "b", SST2.replace("\n", "\r\n"))).fingerprint == base
    assert data.load("sst2", sst2_folder(tmp_path / "a"), seed=3).fingerprint == base
    changed = [
        SST2.replace("fine", "bad"),
        SST2.replace("\t1", "\t2").replace("\t0", "\t1").replace("\t2", "\t0"),
        HEAD + "\n".join(reversed(SST2.strip().split("\n")[1:])) + "\n",
    ]
    prints = {data.load("sst2", sst2_folder(tmp_path / str(i), text)).fingerprint for i, text in enumerate(changed)}
    assert len(prints | {base}) == 4


@pytest.mark.parametrize(
    ("name", "train", "dev"),
    [("cola", 8551, 1043), ("rte", 2490, 277), ("sst2", 67349, 872), ("stsb", 5749, 1500)],
)
def test_real_files_have_the_official_sizes(name: str, train: int, dev: int, capsys: pytest.CaptureFixture) -> None:
    if not REAL.is_dir():
        pytest.skip("no real data beside the repository")
    loaded = data.load(name, str(REAL))
    assert (len(loaded.splits["train"]), len(loaded.splits["dev"])) == (train, dev)
    assert hub.HUB[name].rows == {"train": train, "dev": dev}
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------- class names


@pytest.mark.parametrize(
    ("name", "id2label", "expected"),
    [
        ("mnli", {0: "contradiction", 1: "entailment", 2: "neutral"}, [1, 2, 0]),
        ("mnli", {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}, [2, 1, 0]),
        ("rte", {0: "not-entailment", 1: "Entailment"}, [1, 0]),
        ("qnli", {0: "Not Entailment", 1: "entailment"}, [1, 0]),
        ("sst2", {0: "POSITIVE", 1: "NEGATIVE"}, [1, 0]),
        ("sst2", {0: "neg", 1: "pos"}, [0, 1]),
        ("sst2", {0: "1", 1: "0"}, [1, 0]),  # digits are the hub's ids
        ("sst2", {"0": "negative", "1": "positive"}, [0, 1]),  # JSON has no integer keys
        ("cola", {1: "acceptable", 0: "unacceptable"}, [0, 1]),
        ("mrpc", {0: "equivalent", 1: "not_equivalent"}, [1, 0]),
        ("qqp", {0: "notDuplicate", 1: "is_duplicate"}, [0, 1]),
        ("stsb", {0: "score"}, [0]),
        ("mnli", {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}, None),
        ("mnli", {0: "LABEL_0", 1: "LABEL_1"}, None),
        ("sst2", {0: "label_0", 1: "label_1"}, None),
        ("stsb", {0: "LABEL_0"}, None),
    ],
)
def test_label_order(name: str, id2label: dict, expected: list[int] | None) -> None:
    assert data.label_order(id2label, TASKS[name]) == expected


@pytest.mark.parametrize(
    ("name", "id2label"),
    [
        ("sst2", {0: "negative", 1: "neutral", 2: "positive"}),
        ("mnli", {0: "entailment", 1: "not_entailment"}),
        ("rte", {0: "entailment", 1: "neutral", 2: "contradiction"}),
        ("sst2", {0: "negative", 1: "neg"}),
        ("sst2", {0: "LABEL_0", 1: "positive"}),
        ("sst2", {0: "1", 1: "2"}),
        ("stsb", {0: "negative", 1: "positive"}),
        ("mrpc", {0: "O", 1: "B-PER"}),
    ],
)
def test_label_order_refuses_other_classes(name: str, id2label: dict) -> None:
    with pytest.raises(BadInput) as error:
        data.label_order(id2label, TASKS[name])
    assert all(part in str(error.value) for part in [name, *id2label.values(), *TASKS[name].labels])


# -------------------------------------------------------------------------- tokenising and batching


def make_tokenizer(side: str = "right", pad: str | None = "[PAD]", types: bool = True) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghij"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=pad,
        padding_side=side,
        model_input_names=names if types else [names[0], names[2]],
    )


def singles(lengths: list[int]) -> Split:
    return Split(
        [f"x-{i}" for i in range(len(lengths))],
        [(" ".join("a" * n),) for n in lengths],
        [i % 2 for i in range(len(lengths))],
    )


def encoded(n: int) -> tuple[Any, Encoded]:
    tokenizer = make_tokenizer()
    return tokenizer, data.encode(tokenizer, singles([1 + i % 7 for i in range(n)]), TASKS["sst2"], 16)


def test_encode_and_collate() -> None:
    import torch

    tokenizer = make_tokenizer()
    split = Split(["p", "q"], [("a b", "c"), ("d", "e")], [1, 0])
    made = data.encode(tokenizer, split, TASKS["rte"], 16)
    assert made.ids == ["p", "q"]
    assert made.lengths == [6, 5]
    batch = data.collate(tokenizer, made, [1, 0])
    assert batch["input_ids"].tolist() == [[1, 7, 2, 8, 2, 0], [1, 4, 5, 2, 6, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert batch["labels"].tolist() == [0, 1]
    assert batch["labels"].dtype == torch.long
    assert "token_type_ids" not in data.encode(make_tokenizer(types=False), split, TASKS["rte"], 16).features


def test_left_padding_with_its_own_token_type() -> None:
    tokenizer = make_tokenizer(side="left")
    tokenizer._pad_token_type_id = 3
    made = data.encode(tokenizer, singles([1, 3]), TASKS["sst2"], 16)
    batch = data.collate(tokenizer, made, [0, 1])
    assert batch["input_ids"].tolist() == [[0, 0, 1, 4, 2], [1, 4, 4, 4, 2]]
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1] * 5]
    assert batch["token_type_ids"].tolist() == [[3, 3, 0, 0, 0], [0] * 5]


def test_a_split_for_tuning_is_never_the_reported_one(glue: Path) -> None:
    """dev where test is reported; otherwise a tenth of train, which is then not trained on."""
    pocket = data.load("pocket/sst2")
    tuned = data.load("pocket/sst2", tune=True)
    assert (pocket.reported, tuned.reported) == (("test",), ("dev",))
    assert tuned.splits == pocket.splits
    local = data.load("sst2", str(glue))
    tuned = data.load("sst2", str(glue), tune=True)
    assert (local.reported, tuned.reported) == (("dev",), ("held_out",))
    assert set(tuned.splits) == {"train", "held_out"}
    kept, held = (set(tuned.splits[name].ids) for name in ("train", "held_out"))
    assert kept | held == set(local.splits["train"].ids)
    assert not kept & held
    assert len(held) == len(local.splits["train"]) // 10
    assert tuned.fingerprint != local.fingerprint


def test_xlnet_is_padded_on_its_side() -> None:
    from transformers import XLNetTokenizer

    tokenizer = XLNetTokenizer(vocab=[("<unk>", 0.0), ("▁a", -1.0)])
    made = data.encode(tokenizer, singles([1, 3]), TASKS["sst2"], 16)
    batch = data.collate(tokenizer, made, [0, 1])
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1] * 5]
    assert batch["input_ids"][0, :2].tolist() == [tokenizer.pad_token_id] * 2
    assert batch["input_ids"][0, 2:].tolist() == made.features["input_ids"][0]


def test_scores_are_floats() -> None:
    import torch

    made = data.encode(make_tokenizer(), Split(["p"], [("a", "b")], [2.5]), TASKS["stsb"], 16)
    assert made.labels.dtype == torch.float32
    assert made.labels.tolist() == [2.5]


def test_the_longest_text_is_cut_first() -> None:
    split = Split(["p"], [("a a a a a a", "b b")], [0])
    made = data.encode(make_tokenizer(), split, TASKS["rte"], 8)
    assert made.features["input_ids"][0] == [1, 4, 4, 4, 2, 5, 5, 2]
    with pytest.raises(BadInput, match="max length 4: rte needs at least 5 tokens"):
        data.encode(make_tokenizer(), split, TASKS["rte"], 4)


def test_a_tokenizer_without_padding_is_named() -> None:
    tokenizer = make_tokenizer(pad=None)
    made = data.encode(tokenizer, singles([1, 2]), TASKS["sst2"], 8)
    with pytest.raises(BadInput, match="no padding token"):
        data.collate(tokenizer, made, [0, 1])


def test_more_texts_than_one_tokeniser_call() -> None:
    _, made = encoded(2 * data._CHUNK + 3)
    assert len(made) == len(made.lengths) == len(made.labels) == 2 * data._CHUNK + 3
    assert made.lengths == [3 + i % 7 for i in range(len(made))]


def test_batches_are_a_pure_function_of_seed_and_step() -> None:
    import torch

    tokenizer, made = encoded(23)
    one, two = Batches(made, tokenizer, 5, seed=0), Batches(made, tokenizer, 5, seed=0)
    forward = [one.indices(step) for step in range(40)]
    assert [two.indices(step) for step in reversed(range(40))] == forward[::-1]
    other = Batches(made, tokenizer, 5, seed=1)
    assert forward != [other.indices(step) for step in range(40)]
    for step in (0, 4, 39):
        batch = one[step]
        again = two[step]
        assert all(torch.equal(batch[name], again[name]) for name in batch)
        assert batch["labels"].tolist() == made.labels[forward[step]].tolist()
        assert batch["attention_mask"].sum(1).tolist() == [made.lengths[i] for i in forward[step]]


@pytest.mark.parametrize(("n", "size"), [(23, 5), (20, 5), (3, 7), (1, 4)])
def test_every_epoch_holds_every_example_once(n: int, size: int) -> None:
    tokenizer, made = encoded(n)
    batches = Batches(made, tokenizer, size, seed=0)
    assert batches.steps_per_epoch == -(-n // size)
    stream = [i for step in range(6 * batches.steps_per_epoch) for i in batches.indices(step)]
    assert len(stream) == 6 * batches.steps_per_epoch * size  # every batch is full
    epochs = [stream[start : start + n] for start in range(0, 6 * n, n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
    assert n == 1 or epochs[0] != epochs[1] or epochs[1] != epochs[2]


def test_bad_batches() -> None:
    tokenizer, made = encoded(3)
    for size, seed in ((0, 0), (2, -1)):
        with pytest.raises(BadInput, match="at least"):
            Batches(made, tokenizer, size, seed)
    with pytest.raises(IndexError):
        Batches(made, tokenizer, 2, 0)[-1]


def test_evaluation_sees_every_example_once_grouped_by_length() -> None:
    tokenizer, made = encoded(23)
    seen: list[int] = []
    for indices, batch in data.eval_batches(made, tokenizer, 5):
        assert batch["labels"].tolist() == made.labels[indices].tolist()
        assert batch["input_ids"].shape == (len(indices), max(made.lengths[i] for i in indices))
        seen += indices
    assert sorted(seen) == list(range(23))
    lengths = [made.lengths[i] for i in seen]
    assert lengths == sorted(lengths, reverse=True)
