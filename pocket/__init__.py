"""The pocket suite: small, real tasks in a small English, made by rule, with nothing to download.

    import pocket
    rows = pocket.generate("mnli", "train", size=1000, seed=0)   # {"premise": [...], "hypothesis": [...], ...}
    text = pocket.unlabelled(100)                                # documents without labels
    words = pocket.vocabulary()                                  # every word that can occur

What each task asks stands in `sentences.py` (cola ... rte), `skills.py` (grammar), `documents.py` (ner, squad, hotpot),
`texts.py` (translate, xsum) and `corpus.py` (lm); the words in `lexicon.py`, the rules of English in `grammar.py`, the
models, which need torch, in `models.py`.

Splits: train, dev and test (mnli: dev and test, matched and mismatched). A hash gives half of all sentences to train
and a quarter each to dev and test, so no sentence of one split is in another, whatever the seeds. A smaller size is a
prefix of a larger one.
Noise: a share of the training labels is wrong, as annotators are (`Task.noise`); dev and test labels are right, but
for 3.5% of stsb's (`sentences._another`).
Skills: an example of grammar tests one skill, which its id names (`skill_of`).
Version: numbers of two generators cannot be compared. Any change of an example or of the vocabulary needs another
`VERSION`, which is part of every result's signature. The shipped BERTs were made on versions 1 (`bert`) and 2 (the
others), which have the same words and no grammar; version 1's sst2 has half as many sentences of one clause.

Another task is a rule and a row of the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from pocket import corpus, documents, sentences, skills, texts
from pocket.corpus import unlabelled as unlabelled
from pocket.documents import people as people
from pocket.grammar import Dice
from pocket.lexicon import vocabulary as vocabulary
from pocket.splits import Split
from pocket.texts import foreign_words as foreign_words
from pocket.texts import unlabelled_bilingual as unlabelled_bilingual

VERSION = "3"
NOISE = 0.15  # the share of wrong training labels, where a task has no other


class Task(NamedTuple):
    """How a task's examples are drawn, and what they are called."""

    rule: Callable[[Random, Split], tuple[Any, ...] | None]  # texts, what is true of them, and, of grammar, the skill
    columns: tuple[str, ...]
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("train", "dev", "test")
    sizes: tuple[int, int, int] = (20_000, 1_000, 2_000)  # of train, dev and test
    error: Callable[[Random, Any, float], Any] | None = None  # what an annotator gives; default: another label
    noise: float | Mapping[str, float] = NOISE  # or by skill
    documents: bool = False  # the rule draws documents of sentences of the split; else each text is a sentence

    def error_rate(self, *skill: str) -> float:
        """The share of wrong labels, of an example's skill if there is one."""
        return self.noise[skill[0]] if isinstance(self.noise, Mapping) else self.noise

    def annotate(self, rng: Random, label: Any, noise: float) -> Any:
        """The label that an annotator gives, who errs in the share `noise` of the cases."""
        if self.error:
            return self.error(rng, label, noise)
        return rng.choice([name for name in self.labels if name != label]) if rng.random() < noise else label


_PAIR = ("sentence1", "sentence2")
_MNLI_SPLITS = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
_ENTAILMENT = ("entailment", "not_entailment")
_ACCEPTABLE = ("unacceptable", "acceptable")
_SENTENCES = {
    "cola": Task(sentences.cola, ("sentence",), _ACCEPTABLE, sizes=(20_000, 2_000, 6_000)),
    "grammar": Task(skills.grammar, ("sentence",), _ACCEPTABLE, sizes=(40_000, 2_000, 6_000), noise=skills.NOISE),
    "sst2": Task(sentences.sst2, ("sentence",), ("negative", "positive")),
    "mrpc": Task(sentences.mrpc, _PAIR, ("not_equivalent", "equivalent")),
    "qqp": Task(sentences.qqp, ("question1", "question2"), ("not_duplicate", "duplicate")),
    "stsb": Task(sentences.stsb, _PAIR, error=sentences.misjudge_score, sizes=(20_000, 2_000, 6_000)),
    "mnli": Task(
        sentences.mnli, ("premise", "hypothesis"), sentences.MNLI_LABELS, _MNLI_SPLITS, sizes=(20_000, 1_000, 3_000)
    ),
    "qnli": Task(sentences.qnli, ("question", "sentence"), _ENTAILMENT),
    "rte": Task(sentences.rte, _PAIR, _ENTAILMENT, sizes=(10_000, 1_000, 2_000)),
}
_long = partial(Task, noise=documents.NOISE, documents=True)
_asked = partial(_long, columns=("question", "context"), error=documents.misanswer)
_LONG = {
    "ner": _long(documents.ner, ("text",), sizes=(6_000, 50, 100), error=documents.mistag),
    "squad": _asked(documents.squad, sizes=(10_000, 500, 1_000)),
    "hotpot": _asked(documents.hotpot, sizes=(20_000, 100, 200)),
}
_written = partial(Task, sizes=(20_000, 500, 1_000), error=texts.miswrite)
_WRITTEN = {
    "translate": _written(texts.translation, ("source",)),
    "xsum": _written(texts.summary, ("document",), documents=True),
}
CORPUS = "lm"  # the one task without labels
_CORPUS = {CORPUS: Task(corpus.lm, ("text",), sizes=(20_000, 500, 1_000), documents=True)}
_ALL = _SENTENCES | _CORPUS | _LONG | _WRITTEN

TASKS, DOCUMENTS = tuple(_SENTENCES), tuple(_LONG)
SPLITS = {name: task.splits for name, task in _ALL.items()}
COLUMNS = {name: task.columns for name, task in _ALL.items()}
LABELS = {name: task.labels for name, task in _SENTENCES.items()}


def generate(task: str, split: str, size: int | None = None, seed: int = 0) -> dict[str, list[Any]]:
    """Columns of one split, named as on the hub, with "label" and "id".

    A label is a name; of stsb a score from 0 to 5, of ner a tag for each word, of squad and hotpot the answer's text
    and offset, of translate and xsum the text to be written; lm has none. Raises `ValueError` for an unknown task or
    split or a size below 1.
    """
    if task not in _ALL:
        raise ValueError(f"unknown pocket task {task!r}; there are: {', '.join(_ALL)}")
    if split not in SPLITS[task]:
        raise ValueError(f"unknown split {split!r} of pocket/{task}; there are: {', '.join(SPLITS[task])}")
    if size is None:
        size = _ALL[task].sizes[("train", "dev", "test").index(split.partition("_")[0])]
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return _generate(Split(task, split, seed), size, noisy=split == "train")


def skill_of(example: str) -> str:
    """The skill that the example with this id tests, such as "agree-be-pp"; "" outside grammar."""
    return example.split("-", 4)[4] if example.startswith("grammar-") else ""


def _generate(split: Split, size: int, noisy: bool) -> dict[str, list[Any]]:
    task, annotator = _ALL[split.task], Random(f"annotator/{split.stream}")
    labels = [] if split.task == CORPUS else ["label"]
    columns: dict[str, list[Any]] = {name: [] for name in (*task.columns, *labels, "id")}
    for number, (texts_, label, *skill) in zip(range(size), _examples(task, split), strict=False):
        for name, text in zip(task.columns, texts_, strict=True):
            columns[name].append(text)
        for name in labels:
            columns[name].append(task.annotate(annotator, label, task.error_rate(*skill) if noisy else 0.0))
        columns["id"].append("-".join((split.task, split.name, str(split.seed), str(number), *skill)))
    return columns


def _examples(task: Task, split: Split) -> Iterator[tuple[Any, ...]]:
    """Endless, distinct examples all of whose sentences belong to the split, with what is true of them."""
    rng = Dice(split.stream)
    seen: set[tuple[str, ...]] = set()
    while True:
        if (example := task.rule(rng, split)) is None:
            continue
        parts = example[0]
        if (task.documents or split.owns(*parts)) and len(set(parts)) == len(parts) and parts not in seen:
            seen.add(parts)
            yield example
