"""The hub table: which repository, revision, columns and splits serve a task, and how one is fetched.

One row per task; adding a dataset is adding a row. The hub's libraries are imported by `fetch` alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common.args import BadInput

# Commits that hold Parquet files, so that no loading script is run.
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
WIKITEXT_REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
SQUAD_REVISION = "7b6d24c440a36b6815f21b70d25016731768db1f"
HOTPOT_REVISION = "1908d6afbbead072334abe2965f91bd2709910ab"
TRIVIA_REVISION = "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f"
CONLL_REVISION = "1301e71165e0ddf97d086eaea193f8f4ecdd46e3"
CNN_REVISION = "96df5e686bee6baa90b8bee7c28b81fa3fa6223d"
WMT14_REVISION = "b199e406369ec1b7634206d3ded5ba45de2fe696"
WMT16_REVISION = "41d8a4013aa1489f28fea60ec0932af246086482"
# The hub's own conversion of a repository that holds a loading script; a branch, which may move.
CONVERTED = "refs/convert/parquet"
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class HubSource:
    """Where one task lives on the hub.

    `columns`: canonical column -> the repository's. `convert`: a row of these, under their canonical names, -> what
    the task reads, where a column holds more than that. `splits`: our split -> the repository's; splits without
    public labels (GLUE's test) are not listed, so they are never loaded. `labels`: the class names in the
    order of the repository's integer ids, () without classes. `rows`: our split -> official number of rows.
    """

    repo: str
    config: str | None
    revision: str
    columns: dict[str, str]
    splits: dict[str, str]
    labels: tuple[str, ...]
    rows: dict[str, int]
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    @property
    def origin(self) -> str:
        """The source in one word, as results record it: `repo@revision`."""
        return f"{self.repo}@{self.revision}"


def _glue(config: str, fields: tuple[str, ...], labels: tuple[str, ...], rows: dict[str, int]) -> HubSource:
    """A row for one configuration of GLUE: its columns have the canonical names, its dev is 'validation'."""
    columns = {name: name for name in (*fields, "label")}
    splits = {split: split.replace("dev", "validation") for split in rows}
    return HubSource("nyu-mll/glue", config, GLUE_REVISION, columns, splits, labels, rows)


def hotpot_row(row: dict[str, Any]) -> dict[str, Any]:
    """HotpotQA's paragraphs, titles first, as one context. "yes no" stands before them: two answers that no paragraph
    holds, which a model that marks spans can then give."""
    found = row["context"]
    if isinstance(found, dict):  # the hub's columns; the official file has pairs
        found = list(zip(found["title"], found["sentences"], strict=True))
    paragraphs = [f"{title}: {''.join(sentences).strip()}" for title, sentences in found]
    return row | {"context": "\n".join(["yes no", *paragraphs]), "label": {"text": [row["label"]]}}


def trivia_row(row: dict[str, Any]) -> dict[str, Any]:
    """TriviaQA's pages as one context; every alias is a true answer. Supervision is distant: no offsets."""
    pages = [text for text in row["context"]["wiki_context"] if text.strip()]
    aliases = list(dict.fromkeys([row["label"]["value"], *row["label"]["aliases"]]))
    return row | {"context": "\n".join(pages) or row["question"], "label": {"text": aliases}}


def _translation(repo: str, config: str, revision: str, languages: str, rows: dict[str, int]) -> HubSource:
    """A row for a pair of languages, "en-ro": one column holds both sides of a sentence pair."""
    ours, theirs = languages.split("-")

    def sides(row: dict[str, Any]) -> dict[str, Any]:
        return {"source": row["source"][ours], "label": row["source"][theirs]}

    splits = {split: split.replace("dev", "validation") for split in rows}
    return HubSource(repo, config, revision, {"source": "translation", "label": "translation"}, splits, (), rows, sides)


_PAIR = ("sentence1", "sentence2")
_ENTAILS = ("entailment", "not_entailment")

HUB: dict[str, HubSource] = {
    "cola": _glue("cola", ("sentence",), ("unacceptable", "acceptable"), {"train": 8551, "dev": 1043}),
    "sst2": _glue("sst2", ("sentence",), ("negative", "positive"), {"train": 67349, "dev": 872}),
    "mrpc": _glue("mrpc", _PAIR, ("not_equivalent", "equivalent"), {"train": 3668, "dev": 408}),
    "qqp": _glue("qqp", ("question1", "question2"), ("not_duplicate", "duplicate"), {"train": 363846, "dev": 40430}),
    "stsb": _glue("stsb", _PAIR, (), {"train": 5749, "dev": 1500}),
    "mnli": _glue(
        "mnli",
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        {"train": 392702, "dev_matched": 9815, "dev_mismatched": 9832},
    ),
    "qnli": _glue("qnli", ("question", "sentence"), _ENTAILS, {"train": 104743, "dev": 5463}),
    "rte": _glue("rte", _PAIR, _ENTAILS, {"train": 2490, "dev": 277}),
    # a row is a line of the text
    "wikitext-2": HubSource(
        "Salesforce/wikitext",
        "wikitext-2-raw-v1",
        WIKITEXT_REVISION,
        {"text": "text"},
        {"train": "train", "dev": "validation", "test": "test"},
        (),
        {"train": 36718, "dev": 3760, "test": 4358},
    ),
    "squad": HubSource(
        "rajpurkar/squad",
        None,
        SQUAD_REVISION,
        {"question": "question", "context": "context", "label": "answers", "id": "id"},
        {"train": "train", "dev": "validation"},
        (),
        {"train": 87599, "dev": 10570},
    ),
    "hotpot_qa": HubSource(
        "hotpotqa/hotpot_qa",
        "distractor",
        HOTPOT_REVISION,
        {"question": "question", "context": "context", "label": "answer", "id": "id"},
        {"train": "train", "dev": "validation"},
        (),
        {"train": 90447, "dev": 7405},
        hotpot_row,
    ),
    "trivia_qa": HubSource(
        "mandarjoshi/trivia_qa",
        "rc.wikipedia",
        TRIVIA_REVISION,
        {"question": "question", "context": "entity_pages", "label": "answer", "id": "question_id"},
        {"train": "train", "dev": "validation"},
        (),
        {"train": 61888, "dev": 7993},
        trivia_row,
    ),
    "cnn_dailymail": HubSource(
        "abisee/cnn_dailymail",
        "3.0.0",
        CNN_REVISION,
        {"document": "article", "label": "highlights", "id": "id"},
        {"train": "train", "dev": "validation", "test": "test"},
        (),
        {"train": 287113, "dev": 13368, "test": 11490},
    ),
    "xsum": HubSource(
        "EdinburghNLP/xsum",
        "default",
        CONVERTED,
        {"document": "document", "label": "summary", "id": "id"},
        {"train": "train", "dev": "validation", "test": "test"},
        (),
        {"train": 204045, "dev": 11332, "test": 11334},
    ),
    "wmt16/en-ro": _translation(
        "wmt/wmt16", "ro-en", WMT16_REVISION, "en-ro", {"train": 610320, "dev": 1999, "test": 1999}
    ),
    "wmt14/en-fr": _translation(
        "wmt/wmt14", "fr-en", WMT14_REVISION, "en-fr", {"train": 40836715, "dev": 3000, "test": 3003}
    ),
    "iwslt2017/en-fr": _translation(
        "IWSLT/iwslt2017", "iwslt2017-en-fr", CONVERTED, "en-fr", {"train": 232825, "dev": 890, "test": 8597}
    ),
    # a row is a sentence, its words and tags in lists
    "conll2003": HubSource(
        "lukasgarbas/conll-03",
        None,
        CONLL_REVISION,
        {"text": "tokens", "label": "ner_tags"},
        {"train": "train", "dev": "validation", "test": "test"},
        (),
        {"train": 14041, "dev": 3250, "test": 3453},
    ),
}


# The pocket suite's counterparts of tasks whose name is another.
BUILT_IN = {"wikitext-2": "lm", "hotpot_qa": "hotpot", "trivia_qa": "hotpot", "conll2003": "ner"}
BUILT_IN |= {"gonerd": "ner", "litbank": "ner", "cnn_dailymail": "xsum", "aeslc": "xsum"}
BUILT_IN |= dict.fromkeys(("wmt16/en-ro", "wmt14/en-fr", "wmt13/en-es", "iwslt2017/en-fr"), "translate")
BUILT_IN |= dict.fromkeys(("tatoeba/en-fr", "tatoeba/en-ro"), "translate")


def fetch(task: str) -> dict[str, Any]:
    """The task's splits as `datasets.Dataset`s under our split names, at the pinned revision.

    Without a connection the library's own cache is used if it holds that very revision. Raises BadInput,
    within seconds, if the data cannot be had, and names the commands that work without a hub.
    """
    source = HUB[task]
    try:
        found = _load(source)
    except Exception as error:  # every way in which a hub can fail is one message to the user
        reason = " ".join(str(error).split()).split(". ")[0] or "no reason given"
        built_in = BUILT_IN.get(task, task)
        raise BadInput(
            f"--task {task}: no --data-dir was given, and {source.origin} could not be loaded from the hub "
            f"or its cache ({type(error).__name__}: {reason[:160].rstrip('. ')}). Without a hub, use "
            f"`--task pocket/{built_in}` (built in) or `--task {task} --data-dir DIR` (your own files)"
        ) from error
    missing = [theirs for theirs in source.splits.values() if theirs not in found]
    if missing:
        raise BadInput(f"--task {task}: {source.origin} has no split {missing[0]!r}, only {', '.join(found)}")
    return {ours: found[theirs] for ours, theirs in source.splits.items()}


def _load(source: HubSource) -> Any:
    """`load_dataset`, after one quick question to the hub: the library alone retries for half a minute."""
    import datasets
    import huggingface_hub

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        huggingface_hub.HfApi().dataset_info(source.repo, revision=source.revision, timeout=TIMEOUT_SECONDS)
    except Exception as unreachable:
        return _load_cached(source, unreachable)
    return datasets.load_dataset(source.repo, source.config, revision=source.revision)


def _load_cached(source: HubSource, unreachable: Exception) -> Any:
    """`load_dataset` from the cache alone; raises `unreachable` if that does not hold the revision."""
    import datasets

    online = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        found = datasets.load_dataset(source.repo, source.config, revision=source.revision)
    except Exception as error:
        raise unreachable from error
    finally:
        datasets.config.HF_HUB_OFFLINE = online
    # The cache lookup may settle for another revision of the same configuration: the folder's name tells.
    files = [file["filename"] for split in found.values() for file in split.cache_files]
    if not files or any(source.revision not in file for file in files):
        raise unreachable
    return found
