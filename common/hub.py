"""Tasks and data sets of the hub, at pinned revisions, from it or its cache; and what it says of models."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from common.errors import refused
from common.kinds.documents import hotpot_row, trivia_row
from common.tasks import TASKS
from common.values import TIMEOUT_SECONDS

# A commit that holds Parquet files, so that no loading script is run; likewise those in the table.
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
# The hub's own conversion of a repository that holds a loading script: a branch, which may move.
CONVERTED = "refs/convert/parquet"


@dataclass(frozen=True)
class HubSource:
    """Where a task lives on the hub: its splits are called there as here, but for "validation" in place of "dev".

    `rows`: the official number of each split, in the order of `Task.splits`. `columns`: canonical column -> the
    repository's. `convert`: a row of these columns, under their canonical names, -> what the task reads, where a column
    holds more than that.
    """

    repo: str
    config: str | None
    revision: str | None
    rows: tuple[int, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def _translation(repo: str, config: str, revision: str, languages: str, *rows: int) -> HubSource:
    """A pair of languages, "en-ro": one column holds both sides of a sentence pair."""
    ours, theirs = languages.split("-")

    def sides(row: dict[str, Any]) -> dict[str, Any]:
        return {"source": row["source"][ours], "label": row["source"][theirs]}

    return HubSource(repo, config, revision, rows, {"source": "translation", "label": "translation"}, sides)


GLUE = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "qqp": (363846, 40430),
    "stsb": (5749, 1500),
    "mnli": (392702, 9815, 9832),
    "qnli": (104743, 5463),
    "rte": (2490, 277),
    "wnli": (635, 71),
}
_QUESTION = {"question": "question", "context": "context"}
HUB: dict[str, HubSource] = {
    name: HubSource("nyu-mll/glue", name, GLUE_REVISION, rows, {column: column for column in TASKS[name].columns})
    for name, rows in GLUE.items()
} | {
    # a row is a line of the text
    "wikitext-2": HubSource("Salesforce/wikitext", "wikitext-2-raw-v1", "b08601e04326c79dfdd32d625aee71d232d685c3",
                            (36718, 3760, 4358), {"text": "text"}),
    "squad": HubSource("rajpurkar/squad", None, "7b6d24c440a36b6815f21b70d25016731768db1f",
                       (87599, 10570), _QUESTION | {"label": "answers", "id": "id"}),
    "hotpot_qa": HubSource("hotpotqa/hotpot_qa", "distractor", "1908d6afbbead072334abe2965f91bd2709910ab",
                           (90447, 7405), _QUESTION | {"label": "answer", "id": "id"}, hotpot_row),
    "trivia_qa": HubSource("mandarjoshi/trivia_qa", "rc.wikipedia", "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f",
                           (61888, 7993), {"question": "question", "context": "entity_pages", "label": "answer",
                                           "id": "question_id"}, trivia_row),
    "cnn_dailymail": HubSource("abisee/cnn_dailymail", "3.0.0", "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
                               (287113, 13368, 11490), {"document": "article", "label": "highlights", "id": "id"}),
    "xsum": HubSource("EdinburghNLP/xsum", "default", CONVERTED,
                      (204045, 11332, 11334), {"document": "document", "label": "summary", "id": "id"}),
    "wmt16/en-ro": _translation("wmt/wmt16", "ro-en", "41d8a4013aa1489f28fea60ec0932af246086482", "en-ro",
                                610320, 1999, 1999),
    "wmt14/en-fr": _translation("wmt/wmt14", "fr-en", "b199e406369ec1b7634206d3ded5ba45de2fe696", "en-fr",
                                40836715, 3000, 3003),
    "iwslt2017/en-fr": _translation("IWSLT/iwslt2017", "iwslt2017-en-fr", CONVERTED, "en-fr", 232825, 890, 8597),
    # a row is a sentence, its words and tags in lists
    "conll2003": HubSource("lukasgarbas/conll-03", None, "1301e71165e0ddf97d086eaea193f8f4ecdd46e3",
                           (14041, 3250, 3453), {"text": "tokens", "label": "ner_tags"}),
}  # fmt: skip


def load(task: str, source: HubSource, instead: str) -> tuple[Any, str]:
    """What `load_dataset` gives, and "repo@commit": without a revision the hub's newest. Without a connection the
    library's own cache is used, if it holds that very revision, or one of a branch. `instead`: what works without."""
    place = f"{source.repo}@{source.revision}" if source.revision else source.repo
    what = f"--task {task}: {place} could not be loaded from the hub or its cache"
    with refused(what, hint=f"; without a hub, use {instead}"):
        return _from_hub(source.repo, source.config, source.revision)


def _from_hub(repo: str, config: str | None, revision: str | None) -> tuple[Any, str]:
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    offline = datasets.config.HF_HUB_OFFLINE
    try:
        commit = hub_commit(repo, revision)  # one quick question: the library alone retries for half a minute
    except Exception:
        datasets.config.HF_HUB_OFFLINE = True
        with contextlib.suppress(Exception):  # what the hub said is told
            found = datasets.load_dataset(repo, config, revision=revision)
            # the cache may settle for another revision of the same configuration: the folder's name tells
            files = [file["filename"] for split in found.values() for file in split.cache_files]
            there = set(re.findall(r"\b[0-9a-f]{40}\b", " ".join(files)))
            named = re.fullmatch("[0-9a-f]{40}", revision or "")  # a branch may be at any commit
            if len(there) == 1 and (not named or revision in there):
                return found, f"{repo}@{there.pop()}"
        raise
    finally:
        datasets.config.HF_HUB_OFFLINE = offline
    return datasets.load_dataset(repo, config, revision=commit), f"{repo}@{commit}"


def hub_commit(repo: str, revision: str | None = None) -> str:
    """The commit that the hub serves as `revision` of a data set, by default the newest."""
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT_SECONDS).sha)


@functools.cache
def ask_for_model(name: str) -> None:
    """One quick question to the hub. Where it does not answer the library reads its cache alone, instead of asking for
    half a minute about every file."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        huggingface_hub.HfApi().model_info(name, timeout=TIMEOUT_SECONDS)
    except (HfHubHTTPError, HFValidationError):  # it has answered, or was not asked: the name is no repository's
        pass
    except Exception:  # as many as there are ways to have no network
        huggingface_hub.constants.HF_HUB_OFFLINE = True


def model_commit(name: str) -> str | None:
    """The commit of a model of the hub, as it is served or in the cache; None where it cannot be had."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    ask_for_model(name)
    with contextlib.suppress(Exception):  # whoever loads it says what is wrong
        return extract_commit_hash(cached_file(name, "config.json"), None)
    return None
