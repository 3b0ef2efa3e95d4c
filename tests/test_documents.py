"""The pocket suite's documents: the same everywhere, splits apart, labels that are earned, evidence far away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from bench import pocket_documents as bench
from common import data, metrics, models, pocket, windows
from common.pocket import documents as pocket_documents
from common.pocket.documents import LONG, SHORT, TYPES, WHOLE

SIZE = 120
EVERY_SPLIT = [(task, split) for task in pocket.DOCUMENTS for split in pocket.SPLITS[task]]
SHORT_WINDOW = 512

DIGEST = """
import hashlib, json
from common import pocket
for task in pocket.DOCUMENTS:
    rows = [pocket.generate(task, split, 20) for split in pocket.SPLITS[task]]
    print(task, hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12])
"""
# The first 20 documents of every split. They change with the generator.
DIGESTS = {"ner": "481c201be9dd", "squad": "181f480545e1", "hotpot": "d607c06b7059"}


@cache
def rows(task: str, split: str, size: int = SIZE, seed: int = 0) -> dict[str, list[Any]]:
    return pocket.generate(task, split, size, seed)


@cache
def clean(task: str) -> dict[str, list[Any]]:
    """Training documents without the annotators' noise."""

    def owned(text: str) -> bool:
        return pocket.in_split((text,), "train")

    return pocket_documents.generate(task, "train", SIZE, 0, 0.0, owned)


def texts(task: str, split: str, seed: int = 0) -> list[str]:
    columns = rows(task, split, seed=seed)
    return columns["text" if task == "ner" else "context"]


def sentences(task: str, split: str, seed: int = 0) -> set[str]:
    """Every sentence and question of a split."""
    found = {s for text in texts(task, split, seed) for s in re.split(r"(?<=\.)\s", text)}
    return found | set(rows(task, split, seed=seed).get("question", ()))


def spans(tags: list[str]) -> list[tuple[int, int, str]]:
    """First word, end and type of every entity."""
    found = []
    for i, tag in enumerate(tags):
        if tag.startswith("B-"):
            end = next((j for j in range(i + 1, len(tags)) if not tags[j].startswith("I-")), len(tags))
            found.append((i, end, tag[2:]))
    return found


# --- what holds for all ------------------------------------------------------------------------------------


def test_the_documents_are_frozen_and_the_same_in_every_process() -> None:
    """Any other digest is other data, and results on the two cannot be compared."""
    env = os.environ | {"PYTHONHASHSEED": "1"}
    run = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, env=env, cwd=ROOT, check=True)
    assert dict(line.split() for line in run.stdout.splitlines()) == DIGESTS


@pytest.mark.parametrize(("task", "split"), EVERY_SPLIT)
def test_columns_prefixes_and_seeds(task: str, split: str) -> None:
    columns = rows(task, split)
    assert list(columns) == [*pocket.COLUMNS[task], "label", "id"]
    assert {len(column) for column in columns.values()} == {SIZE}
    assert len(set(columns["id"])) == SIZE
    assert len(set(texts(task, split))) == SIZE
    assert pocket.generate(task, split, 7) == {name: column[:7] for name, column in columns.items()}
    assert texts(task, split, seed=1) != texts(task, split)


@pytest.mark.parametrize("task", pocket.DOCUMENTS)
def test_no_sentence_is_in_two_splits(task: str) -> None:
    train, dev, test = (sentences(task, split) | sentences(task, split, 1) for split in pocket.SPLITS[task])
    assert not train & dev
    assert not train & test
    assert not dev & test


def test_the_vocabulary_is_the_suites() -> None:
    used = {word for task, split in EVERY_SPLIT for s in sentences(task, split) for word in s.split()}
    assert used <= set(pocket.vocabulary())


@pytest.mark.parametrize("task", ["ner", "hotpot"])
def test_lengths(task: str) -> None:
    for split in ("dev", "test"):
        assert all(LONG[0] <= len(text.split()) <= LONG[1] + 15 for text in texts(task, split))
    lengths = [len(text.split()) for text in texts(task, "train")]
    assert min(lengths) < 1.5 * SHORT[task][0]
    assert sum(length >= LONG[0] for length in lengths) / SIZE == pytest.approx(WHOLE[task], abs=0.08)


def test_every_document_fits_2048_tokens() -> None:
    tokenizer = models.pocket_tokenizer()
    for task, split in EVERY_SPLIT:
        columns = rows(task, split)
        pairs = [columns[name] for name in pocket.COLUMNS[task]]
        assert max(map(len, tokenizer(*pairs)["input_ids"])) <= 2048
        assert all(tokenizer.unk_token not in text for text in texts(task, split))


@pytest.mark.parametrize("task", pocket.DOCUMENTS)
def test_labels_are_noisy_in_training_alone(task: str) -> None:
    noisy, true = rows(task, "train"), clean(task)
    assert noisy[pocket.COLUMNS[task][-1]] == true[pocket.COLUMNS[task][-1]]
    if task == "ner":
        pairs = [
            (tags[first], right[first])
            for tags, right in zip(noisy["label"], true["label"], strict=True)
            for first, _, _ in spans(right)
        ]
        # words and ends of names stay: an annotator errs in the type
        assert [[tag[0] for tag in row] for row in noisy["label"]] == [[tag[0] for tag in row] for row in true["label"]]
    else:
        pairs = list(zip(noisy["label"], true["label"], strict=True))
    wrong = sum(a != b for a, b in pairs) / len(pairs)
    assert wrong == pytest.approx(pocket_documents.NOISE, abs=0.02 if task == "ner" else 0.05)

    def owned(text: str) -> bool:
        return pocket.in_split((text,), "test")

    assert rows(task, "test") == pocket_documents.generate(task, "test", SIZE, 0, 0.0, owned)


# --- ner ---------------------------------------------------------------------------------------------------

KINDS = {kind: set(nouns) for kind, (nouns, _) in pocket_documents._KINDS.items()}


def evidence(sentence: str, name: str) -> set[str]:
    """The types that a sentence gives a name: "vera is a tall surgeon", "the surgeon vera"."""
    words, found = sentence.split(), set()
    start = next(i for i in range(len(words)) if words[i : i + name.count(" ") + 1] == name.split())
    for kind, nouns in KINDS.items():
        if start > 0 and words[start - 1] in nouns:
            found.add(kind)
        after = words[start + name.count(" ") + 1 :]
        if after[:1] == ["is"] and after[3] in nouns:
            found.add(kind)
    return found


def test_every_entity_is_introduced_first_and_keeps_its_type() -> None:
    for text, tags in zip(*(rows("ner", "test")[name] for name in ("text", "label")), strict=True):
        words = windows.words(text)
        assert len(words) == len(tags)
        types: dict[str, set[str]] = {}
        for first, end, kind in spans(tags):
            types.setdefault(" ".join(words[first:end]), set()).add(kind)
        assert all(len(kinds) == 1 for kinds in types.values())
        told = {name: evidence(sentence, name) for sentence, name in zip(text.split("\n"), types, strict=False)}
        assert told == types, "one sentence each, in the order of their first mention"


def test_after_the_first_quarter_only_names_stand() -> None:
    bare, late = 0, 0
    for text, tags in zip(*(rows("ner", "test")[name] for name in ("text", "label")), strict=True):
        words = windows.words(text)
        starts = [at for at, _ in enumerate(words) if at == 0 or words[at - 1] == "."]
        for first, end, _ in spans(tags):
            if first > len(words) / 4 + 20:
                sentence = max(start for start in starts if start <= first)
                late += 1
                bare += not evidence(" ".join(words[sentence : words.index(".", first)]), " ".join(words[first:end]))
    assert late > 5000
    assert bare == late


def test_types_are_balanced_and_a_name_alone_does_not_tell() -> None:
    """The best guess from a name by itself: its usual type, which is the truth in `USUAL` of the documents."""
    columns = rows("ner", "train", 1500)
    counts: dict[str, Counter] = {}
    for text, tags in zip(columns["text"], columns["label"], strict=True):
        words = windows.words(text)
        for first, _, kind in spans(tags):
            counts.setdefault(words[first], Counter())[kind] += 1
    total = sum(counts.values(), Counter())
    assert all(share / sum(total.values()) == pytest.approx(1 / 3, abs=0.03) for share in total.values())
    guessed, true = [], []
    for text, tags in zip(*(rows("ner", "test")[name] for name in ("text", "label")), strict=True):
        words, row = windows.words(text), list(tags)
        for first, end, _ in spans(tags):
            kind = counts[words[first]].most_common(1)[0][0] if words[first] in counts else "PER"
            row[first:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - first - 1)]
        guessed.append(row)
        true.append(list(tags))
    score = metrics.entities(guessed, true, TYPES)["entity_f1"]
    assert 0.3 < score < 0.5


def test_a_short_window_holds_the_evidence_of_few_mentions() -> None:
    near = far = 0
    for text, tags in zip(*(rows("ner", "test")[name] for name in ("text", "label")), strict=True):
        words, known = windows.words(text), {}
        for first, end, _ in spans(tags):
            part, name = first // SHORT_WINDOW, " ".join(words[first:end])
            start = max((at for at in range(first + 1) if at == 0 or words[at - 1] == "."), default=0)
            if evidence(" ".join(words[start : words.index(".", first)]), name):
                known.setdefault(part, set()).add(name)
        for first, end, _ in spans(tags):
            if " ".join(words[first:end]) in known.get(first // SHORT_WINDOW, ()):
                near += 1
            else:
                far += 1
    assert far / (near + far) > 0.5


# --- questions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["squad", "hotpot"])
def test_answers_stand_where_the_label_says(task: str) -> None:
    for split in pocket.SPLITS[task]:
        for context, answers in zip(*(rows(task, split)[name] for name in ("context", "label")), strict=True):
            (text,), (start,) = answers["text"], answers["answer_start"]
            assert f" {context} "[start : start + len(text) + 2] == f" {text} "


def answer_by_two_facts(question: str, context: str) -> str:
    """Read the two facts as a person would."""
    match = re.fullmatch(r"where is the person who (the \w+ \w+) from \?", question)
    assert match
    (person,) = set(re.findall(rf"(?:^|\. ){match[1]} (\w+) ", context))
    (city,) = set(re.findall(rf"\b{person} from (\w+) ", context))
    return city


def test_two_facts_give_the_answer_and_stand_far_apart() -> None:
    columns = rows("hotpot", "test")
    for question, context, answers in zip(*(columns[n] for n in ("question", "context", "label")), strict=True):
        assert answers["text"] == [answer_by_two_facts(question, context)]
        deed = len(context[: context.index(question.split("who ")[1].split(" from")[0])].split())
        city = len(context[: answers["answer_start"][0]].split())
        # no window of 512 tokens can hold both
        assert abs(deed - city) > SHORT_WINDOW
        assert len(set(re.findall(r"\w+ from (\w+)", context))) == pocket_documents.CHOICES


def test_training_questions_are_of_one_fact_or_two() -> None:
    shares = Counter(
        "both" if "person" in question else question.split()[0]
        for question in rows("hotpot", "train", 1500)["question"]
    )
    assert all(share / 1500 == pytest.approx(1 / 3, abs=0.05) for share in shares.values())
    assert set(shares) == {"both", "where", "who"}
    for columns in (rows("hotpot", "dev"), rows("hotpot", "test")):
        assert all("person" in question for question in columns["question"])


def test_squad_has_one_right_answer_among_sentences_that_look_alike() -> None:
    """Questions in the active voice, answered by reading; synonyms and passives are left to other questions."""
    columns = rows("squad", "test", 1000)
    read = 0
    for question, context, answers in zip(*(columns[n] for n in ("question", "context", "label")), strict=True):
        told = context.split(" . ")
        if match := re.fullmatch(r"who (\w+) (.+) \?", question):
            found = [m[1] for s in told if (m := re.search(rf"(the (?:\w+ )?\w+) {match[1]} {match[2]} ", f"{s} "))]
            if found:
                read += 1
                assert set(found) == set(answers["text"])
        assert len(told) >= 6
    assert read > 60


def test_a_word_of_the_question_does_not_give_the_answer() -> None:
    """The sentence with most of the question's words is another one in a good part of the cases."""
    columns = rows("squad", "test", 1000)
    right = 0
    for question, context, answers in zip(*(columns[n] for n in ("question", "context", "label")), strict=True):
        asked = set(question.split())
        told = context.split(" . ")
        best = max(told, key=lambda s: len(asked & set(s.split())))
        right += context.index(best) <= answers["answer_start"][0] < context.index(best) + len(best)
    assert 0.3 < right / 1000 < 0.8


def test_the_bench_guesses_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, 300 if split == "train" else 40))
    assert 0.3 < bench.guess(data.load("pocket/ner")) < 0.5
    assert bench.guess(data.load("pocket/hotpot")) == pytest.approx(1 / pocket_documents.CHOICES, abs=0.02)
    row = {"metric": "entity_f1", "guess": 0.5, "reader": {"512": 0.71234, "2048": 0.9}}
    report = {"lengths": [512, 2048], "tasks": {"ner": row}}
    assert bench.text(report).splitlines()[-1] == "| ner | entity F1 | 50.0 | 71.2 | 90.0 |"


def test_the_tasks_load_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, 30))
    for name in pocket.DOCUMENTS:
        loaded = data.load(f"pocket/{name}")
        assert loaded.reported == ("test",)
        assert loaded.task.kind in data.WINDOWED
        assert Path(loaded.origin).name == f"pocket v{pocket.VERSION}"
