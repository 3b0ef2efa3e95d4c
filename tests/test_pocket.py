"""The pocket suite: the same everywhere, splits apart, a closed vocabulary, labels that the rules earn."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from common import pocket
from common.pocket import grammar, lexicon

ROOT = Path(__file__).parents[1]
SIZE = 1000
CLASSIFICATION = [task for task in pocket.TASKS if pocket.LABELS[task]]
EVERY_SPLIT = [(task, split) for task in pocket.TASKS for split in pocket.SPLITS[task]]

# The first 50 examples of every split of a task and 20 documents. They change with the generator, and then
# `pocket.VERSION` has to change too.
DIGESTS = {
    "cola": "180cbf6124fd",
    "sst2": "54dd6aa5e1ea",
    "mrpc": "3577db7c63f2",
    "qqp": "20c1c5dab8cd",
    "stsb": "488cbfb58191",
    "mnli": "3f153239a243",
    "qnli": "a3be29a3cd5a",
    "rte": "85e5253c9fa3",
    "unlabelled": "63d31e57e3a2",
}

DIGEST = """
import hashlib, json, sys
from common import pocket
digests = {
    task: [pocket.generate(task, split, 50) for split in pocket.SPLITS[task]] for task in pocket.TASKS
} | {"unlabelled": pocket.unlabelled(20)}
hashes = {name: hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12] for name, rows in digests.items()}
print(json.dumps(hashes))
"""


@cache
def rows(task: str, split: str, size: int = SIZE, seed: int = 0) -> dict[str, list]:
    return pocket.generate(task, split, size, seed)


@cache
def clean_labels(task: str, split: str, size: int = SIZE) -> list:
    return pocket._generate(task, split, size, 0, noisy=False)["label"]


def sentences(task: str, split: str, seed: int = 0) -> set[str]:
    columns = rows(task, split, seed=seed) if seed == 0 else rows(task, split, 300, seed)
    return {text for name in pocket.COLUMNS[task] for text in columns[name]}


def test_same_examples_in_every_process():
    env = os.environ | {"PYTHONHASHSEED": "1"}  # the hashes of this process are others
    run = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, env=env, cwd=ROOT, check=True)
    assert json.loads(run.stdout) == DIGESTS


def test_the_data_of_this_version_are_frozen():
    """Any other digest is other data: bump VERSION when this changes."""
    sample = [pocket.generate(task, split, 100, seed=3) for task, split in EVERY_SPLIT]
    text = json.dumps([sample, pocket.unlabelled(100, seed=3), pocket.vocabulary()])
    assert (pocket.VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == ("2", "2f944675706312b1")


@pytest.mark.parametrize(("task", "split"), EVERY_SPLIT)
def test_columns(task, split):
    columns = rows(task, split)
    assert list(columns) == [*pocket.COLUMNS[task], "label", "id"]
    assert {len(column) for column in columns.values()} == {SIZE}
    assert len(set(columns["id"])) == SIZE


@pytest.mark.parametrize(("task", "split"), EVERY_SPLIT)
def test_smaller_size_is_a_prefix(task, split):
    small = pocket.generate(task, split, 40)
    assert small == {name: column[:40] for name, column in rows(task, split).items()}


@pytest.mark.parametrize("task", pocket.TASKS)
def test_no_sentence_is_in_two_splits(task):
    parts: dict[str, set[str]] = {"train": set(), "dev": set(), "test": set()}
    for split, seed in itertools.product(pocket.SPLITS[task], (0, 1)):
        parts[split.split("_")[0]] |= sentences(task, split, seed)
    assert not parts["train"] & parts["dev"]
    assert not parts["train"] & parts["test"]
    assert not parts["dev"] & parts["test"]


@pytest.mark.parametrize("task", pocket.TASKS)
def test_another_seed_gives_other_examples(task):
    assert rows(task, "train", 300, 0) != rows(task, "train", 300, 1)


@pytest.mark.parametrize(("task", "split"), EVERY_SPLIT)
def test_examples_are_distinct_and_no_sentence_meets_itself(task, split):
    columns = rows(task, split)
    texts = list(zip(*(columns[name] for name in pocket.COLUMNS[task]), strict=True))
    assert len(set(texts)) == len(texts)
    assert all(len(set(pair)) == len(pair) for pair in texts)


def test_vocabulary_is_closed():
    known = set(pocket.vocabulary())
    used = {word for task, split in EVERY_SPLIT for text in sentences(task, split) for word in text.split()}
    used |= {word for text in pocket.unlabelled(3000) for word in text.split()}
    assert used <= known
    assert pocket.vocabulary() == sorted(known)
    assert len(used) > 0.75 * len(known), "most of the vocabulary is in use"


def test_mismatched_genres_use_words_that_training_never_shows():
    train = {word for text in sentences("mnli", "train") for word in text.split()}
    mismatched = {word for text in sentences("mnli", "test_mismatched") for word in text.split()}
    assert set(lexicon.ROLES_ELSEWHERE) & mismatched
    assert not set(lexicon.ROLES_ELSEWHERE) & train


@pytest.mark.parametrize("task", CLASSIFICATION)
def test_labels_are_about_balanced(task):
    for split in pocket.SPLITS[task]:
        shares = Counter(clean_labels(task, split) if split == "train" else rows(task, split)["label"])
        assert set(shares) == set(pocket.LABELS[task])
        assert min(shares.values()) / SIZE > 0.8 / len(shares)


@pytest.mark.parametrize("task", CLASSIFICATION)
def test_training_labels_carry_the_stated_noise_and_the_others_none(task):
    wrong = sum(a != b for a, b in zip(rows(task, "train")["label"], clean_labels(task, "train"), strict=True))
    assert wrong / SIZE == pytest.approx(pocket.NOISE, abs=0.03)
    for split in pocket.SPLITS[task][1:]:
        assert rows(task, split)["label"][:300] == clean_labels(task, split, 300)


def test_stsb_scores():
    noisy, clean = rows("stsb", "train")["label"], clean_labels("stsb", "train")
    assert all(0 <= score <= 5 for score in noisy + clean)
    assert min(clean) == 0
    assert max(clean) == 5
    far = sum(abs(a - b) > 3 * pocket.STSB_NOISE_SD for a, b in zip(noisy, clean, strict=True))
    assert 0.01 < far / SIZE < pocket.NOISE
    assert rows("stsb", "test")["label"][:300] == clean_labels("stsb", "test", 300)


def test_lengths():
    for task in pocket.TASKS:
        columns = rows(task, "train")
        texts = zip(*(columns[name] for name in pocket.COLUMNS[task]), strict=True)
        lengths = [sum(len(text.split()) for text in pair) for pair in texts]
        limit = 28 if len(pocket.COLUMNS[task]) == 1 else 48
        assert max(lengths) <= limit
        assert sum(lengths) / len(lengths) <= (16 if limit == 28 else 30)


def test_unlabelled_documents():
    documents = pocket.unlabelled(200)
    assert documents == pocket.unlabelled(200)
    assert documents[:20] == pocket.unlabelled(20)
    assert documents != pocket.unlabelled(200, seed=1)
    assert all(3 <= text.count(" .") + text.count(" ?") <= 8 for text in documents)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("nope", "train"), "nope"), (("mnli", "dev"), "dev_matched"), (("sst2", "train", 0), "size")],
)
def test_bad_requests_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pocket.generate(*arguments)


# -------------------------------------------------------------------------------------------- the grammar


def clause(agent="judge", verb="praise", patient="niece", **slots) -> grammar.Clause:
    nouns = lexicon.NOUNS
    return grammar.Clause(grammar.NP(nouns[agent]), grammar.ALL_VERBS[verb], grammar.NP(nouns[patient]), **slots)


def test_a_clause_is_said_in_every_order():
    event = clause(place="in the park", time="yesterday")
    assert grammar.say(event) == "the judge praised the niece in the park yesterday"
    assert grammar.say(event, passive=True) == "the niece was praised by the judge in the park yesterday"
    assert grammar.say(event, fronted=True) == "yesterday , the judge praised the niece in the park"
    assert grammar.say(clause(negated=True)) == "the judge did not praise the niece"
    assert grammar.say(clause(manner="loudly", negated=True), passive=True) == (
        "the niece was not praised by the judge loudly"
    )
    assert grammar.say(grammar.swap_roles(clause())) == "the niece praised the judge"


@pytest.mark.parametrize(
    ("base", "forms"),
    [
        ("carry", "carry carries carried carried carrying"),
        ("find", "find finds found found finding"),
        ("swim", "swim swims swam swum swimming"),
        ("dismiss", "dismiss dismisses dismissed dismissed dismissing"),
        ("hire", "hire hires hired hired hiring"),
        ("chop", "chop chops chopped chopped chopping"),
    ],
)
def test_verb_forms(base, forms):
    verb = lexicon.inflect(base)
    assert f"{verb.base} {verb.s} {verb.past} {verb.part} {verb.ing}" == forms


def test_synonyms_and_opposites_are_symmetric_and_apart():
    for word, same in lexicon.SYNONYMS.items():
        assert all(word in lexicon.SYNONYMS[other] for other in same)
        assert not set(same) & set(lexicon.ANTONYMS.get(word, ()))
    for word, opposite in lexicon.ANTONYMS.items():
        assert all(word in lexicon.ANTONYMS[other] for other in opposite)


def test_a_reworded_clause_keeps_its_opposites_and_an_altered_one_does_not():
    rng = Random("reword")
    event = clause()
    for _ in range(50):
        reworded = grammar.reword(rng, event)
        assert reworded.verb.base in ("praise", "commend")
        altered = grammar.alter(rng, event)
        assert (altered.agent, altered.verb, altered.negated) != (event.agent, event.verb, event.negated)


@pytest.mark.parametrize(
    ("det", "part", "label", "narrow_first"),
    [
        ("some", "body", "entailment", True),
        ("all", "body", "entailment", True),
        ("no", "body", "entailment", False),
        ("all", "body", "neutral", False),
    ],
)
def test_monotonicity(det, part, label, narrow_first):
    """ "some dogs slept at home" entails "some dogs slept"; for "no" it is the other way round."""
    restrictor, body = pocket._MONOTONE[det, False]
    direction = body if part == "body" else restrictor
    assert ((direction == "up") == (label == "entailment")) == narrow_first


def test_a_longer_premise_entails_its_shortening_except_under_no():
    columns = rows("mnli", "test_matched")
    for premise, hypothesis, label in zip(columns["premise"], columns["hypothesis"], columns["label"], strict=True):
        if premise.startswith(hypothesis[:-2]):
            assert label == ("neutral" if premise.startswith("no ") or " not " in premise else "entailment")
        if hypothesis.startswith(premise[:-2]):
            assert label == ("entailment" if premise.startswith("no ") or " not " in premise else "neutral")


def test_dice_fall_as_those_of_the_library():
    ours, theirs = grammar.Dice("dice"), Random("dice")
    for size in range(1, 22):
        options = list(range(size))
        assert ours.choice(options) == theirs.choice(options)
        assert grammar.draw_few(ours, options, size // 2) == theirs.sample(options, size // 2)
    with pytest.raises(IndexError):
        ours.choice([])


def test_swapped_roles_are_another_event():
    columns = rows("mrpc", "test")
    for first, second, label in zip(*(columns[name] for name in (*pocket.COLUMNS["mrpc"], "label")), strict=True):
        if sorted(first.split()) == sorted(second.split()) and "," not in first + second:
            assert label == "not_equivalent"


def test_contrast_decides_the_opinion():
    rng = Random("opinions")
    for good in (True, False):
        words = lexicon.GOOD + lexicon.GOOD_NOUNS if good else lexicon.BAD + lexicon.BAD_NOUNS
        said = {grammar.draw_opinion(rng, "the plot", good) for _ in range(500)}
        assert any(f"the plot is {word}" in said for word in words)
        assert not any(f"the plot is not {word}" in said for word in words)
        assert not any(f"the plot fails to be {word}" in said for word in words)
