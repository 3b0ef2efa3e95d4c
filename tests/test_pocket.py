"""The pocket suite: the same everywhere, splits apart, a closed vocabulary, labels that a reader of the text finds."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, tiny_bert
from transformers import AutoModelForSequenceClassification, BartForConditionalGeneration

import pocket
from common import models, run, teacher, tuning
from common.args import CommonArgs
from common.data import load
from common.evaluate import Evaluation
from common.layers import packed
from common.metrics import METRICS
from common.tasks import TASKS
from common.train import weights_digest
from pocket import documents, grammar, lexicon, make, sentences, skills, texts
from pocket import models as suite
from pocket.splits import Split

LABELLED = [task for task in pocket.SPLITS if task != pocket.CORPUS]
CLASSES = [task for task in pocket.TASKS if pocket.LABELS[task]]
SIZE = {task: 120 if task in pocket.DOCUMENTS else 600 for task in pocket.SPLITS}

DIGEST = "ec5ab083114c4b1f"  # another one means other data, which need another `pocket.VERSION`
FROZEN = """
import json
import pocket
rows = [pocket.generate(task, split, 20, seed=3) for task in pocket.SPLITS for split in pocket.SPLITS[task]]
rows += [pocket.unlabelled(100), pocket.unlabelled_bilingual(100), repr(pocket.people(3, 0))]
print(json.dumps([rows, pocket.vocabulary(), pocket.foreign_words()], sort_keys=True))
"""


@cache
def rows(task: str, split: str, seed: int = 0) -> dict[str, list[Any]]:
    return pocket.generate(task, split, SIZE[task], seed)


def true_labels(task: str, size: int) -> list[Any]:
    return pocket._generate(Split(task, "train", 0), size, noisy=False)["label"]


def examples(task: str, split: str = "test") -> list[tuple[Any, ...]]:
    return list(zip(*(rows(task, split)[name] for name in (*pocket.COLUMNS[task], "label")), strict=True))


def told(task: str, split: str, seed: int = 0) -> set[str]:
    """Every sentence and question of a split."""
    written = [text for name in pocket.COLUMNS[task] for text in rows(task, split, seed)[name]]
    return {sentence for text in written for sentence in re.split(r"(?<=[.?])\s(?=.)", text)}


def test_the_data_of_this_version_are_frozen_and_the_same_in_every_process() -> None:
    env = os.environ | {"PYTHONHASHSEED": "1"}  # this process has another
    run = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, env=env, cwd=ROOT, check=True)
    assert (pocket.VERSION, hashlib.sha256(run.stdout).hexdigest()[:16]) == ("3", DIGEST)


@pytest.mark.parametrize("task", pocket.SPLITS)
def test_columns_prefixes_seeds_and_splits(task: str) -> None:
    """A smaller size is a prefix, another seed is other data, and no sentence is in two splits."""
    names = pocket.COLUMNS[task]
    parts: dict[str, set[str]] = {"train": set(), "dev": set(), "test": set()}
    for split, seed in [*((split, 0) for split in pocket.SPLITS[task]), ("train", 1)]:
        columns = rows(task, split, seed)
        assert list(columns) == [*names, *(["label"] if task in LABELLED else []), "id"]
        assert pocket.generate(task, split, 7, seed) == {name: column[:7] for name, column in columns.items()}
        examples_ = list(zip(*(columns[name] for name in names), strict=True))
        assert len(set(columns["id"])) == len(set(examples_)) == SIZE[task]
        parts[split.partition("_")[0]] |= told(task, split, seed)
    assert rows(task, "train", 0)[names[0]] != rows(task, "train", 1)[names[0]]
    assert not any(a & b for a, b in itertools.combinations(parts.values(), 2))


def test_the_vocabularies_are_closed() -> None:
    known, foreign = set(pocket.vocabulary()), set(pocket.foreign_words())
    used = {word for task, splits in pocket.SPLITS.items() for split in splits
            for sentence in told(task, split) for word in sentence.split()}  # fmt: skip
    assert used <= known
    assert len(used) > 0.75 * len(known)
    assert {word for text in rows("translate", "train")["label"] for word in text.split()} <= foreign | {".", ","}
    assert not known & foreign
    for split in ("train", "test_mismatched"):  # another genre
        words = {word for sentence in told("mnli", split) for word in sentence.split()}
        assert bool(words & set(lexicon.ROLES_ELSEWHERE)) == (split != "train")


@pytest.mark.parametrize("task", [task for task in LABELLED if task != "grammar"])  # whose share is that of the skill
def test_annotators_err_in_the_stated_share_of_training_labels_alone(task: str) -> None:
    size = 150 if task in pocket.DOCUMENTS else 1500
    noisy, true = pocket.generate(task, "train", size)["label"], true_labels(task, size)
    share = documents.NOISE if task in pocket.DOCUMENTS else pocket.NOISE
    if task == "ner":  # in the type of a mention
        assert [[tag[0] for tag in row] for row in noisy] == [[tag[0] for tag in row] for row in true]
        noisy, true = ([tag for row in labels for tag in row if tag[0] == "B"] for labels in (noisy, true))
    wrong = [a != b for a, b in zip(noisy, true, strict=True)]
    if task == "stsb":  # every score is noisy, and in this share any score is given
        assert all(0 <= score <= 5 for score in noisy + true)
        wrong = [abs(a - b) > 3 * sentences.STSB_NOISE_SD for a, b in zip(noisy, true, strict=True)]
        share *= sum(max(0, t - 2.25) + max(0, 2.75 - t) for t in true) / 5 / size  # where any is that far off
    assert sum(wrong) / len(wrong) == pytest.approx(share, abs=4 * math.sqrt(share / len(wrong)))
    split = pocket.SPLITS[task][-1]
    assert pocket._generate(Split(task, split, 0), 20, noisy=False) == pocket.generate(task, split, 20)


@pytest.mark.parametrize("task", CLASSES)
def test_labels_are_balanced_and_a_bag_of_words_stays_below_the_teacher(task: str) -> None:
    """Order matters: a linear model over words finds fewer labels than teachers, who find 89% and more."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train, test = (pocket.generate(task, split, 1000) for split in (pocket.SPLITS[task][0], pocket.SPLITS[task][-1]))
    inputs = [[" ".join(parts) for parts in zip(*(columns[name] for name in pocket.COLUMNS[task]), strict=True)]
              for columns in (train, test)]  # fmt: skip
    model = make_pipeline(CountVectorizer(token_pattern=r"\S+"), LogisticRegression(C=0.1))
    for labels in (true_labels(task, 1000), test["label"]):
        assert sorted(set(labels)) == sorted(pocket.LABELS[task])
        assert min(Counter(labels).values()) / 1000 > 0.75 / len(set(labels))
    assert model.fit(inputs[0], train["label"]).score(inputs[1], test["label"]) < 0.75


def test_results_give_the_accuracy_on_each_skill() -> None:
    """Here right on all but one: of that, wrong on all."""
    task = load("pocket/grammar")
    test = task.splits["test"]
    missed = "agree-be-pp"
    found = [label != (pocket.skill_of(name) == missed) for name, label in zip(test.ids, test.labels, strict=True)]
    scores = run.skills(task, {"test": np.eye(2)[np.array(found, int)]})["skills"]
    assert scores == {skill: float(skill != missed) for skill in skills.SKILLS}
    cola = load("pocket/cola")
    assert run.skills(cola, {"test": np.eye(2)[cola.splits["test"].labels]}) == {}


def test_bad_requests_are_named() -> None:
    bad = [("nope", "dev", 1), ("mnli", "dev", 1), ("rte", "dev", 0)]
    for (task, split, size), message in zip(bad, ("nope", "dev_matched", "size"), strict=True):
        with pytest.raises(ValueError, match=message):
            pocket.generate(task, split, size)


# --- grammar: what a reader makes of a sentence -----------------------------------------------------------------

PLURALS, NOUN_KIND = (
    {noun.pl for noun in lexicon.NOUNS.values()},
    {form: noun.kind for noun in lexicon.NOUNS.values() for form in (noun.sg, noun.pl)},
)
BASES = {form: v.base for v in grammar.ALL_VERBS.values() for form in (v.past, v.base)}
PLURAL_FORMS = {"are", "were", "have", *(verb.base for verb in grammar.THING_VERBS)}
SINGULAR_FORMS = {"is", "was", "has", *(verb.s for verb in grammar.THING_VERBS)}
COMPARATIVES = {word for pair in lexicon.COMPARATIVES for word in pair}


def nouns(words: list[str]) -> list[str]:
    return [word for word in words if word in NOUN_KIND]


def person(noun: str) -> bool:
    return NOUN_KIND[noun] == "person"


def agrees(words: list[str]) -> bool:
    verb = next(word for word in words if word in PLURAL_FORMS | SINGULAR_FORMS)
    return (nouns(words)[0] in PLURALS) == (verb in PLURAL_FORMS)


def refers(words: list[str]) -> bool:
    second = nouns(words[words.index("that") :])[0]
    gender = "himself" if second in lexicon._GENDERED["m"].split() else "herself"
    return words[-2] == ("themselves" if second in PLURALS else gender)


def auxiliary_fits(words: list[str]) -> bool:
    return any(words[0] != "did" if v.part in words else words[0] == "did" and v.base in words
               for v in grammar.THING_VERBS)  # fmt: skip


def taken(words: list[str]) -> bool:
    verb = next(word for word in words if any(word == v.past for vs in lexicon.SPECIAL_VERBS.values() for v in vs))
    return verb in [v.past for v in lexicon.SPECIAL_VERBS.get(NOUN_KIND[nouns(words)[1]], ())]


ENDED = ({"yesterday"}, {"last", "week"}, {"last", "year"})
READERS: dict[str, Callable[[list[str]], bool]] = {  # the start of a skill's name -> whether its sentence is whole
    "agree": agrees,
    "reflexive": refers,
    # every place and person has a "the", so a third one is the object's
    "object-needed": lambda words: words.count("the") == 3,
    "object-refused": lambda words: words.count("the") == 2,
    "gap-what": lambda words: words.count("the") == 2,
    "gap-none": lambda words: words.count("the") == 3,
    "ever": lambda words: words[0] == "no",
    "auxiliary": auxiliary_fits,
    "order-object": lambda words: words[2] in BASES,
    "order-adjective": lambda words: words[4] in lexicon.PERSON_ADJECTIVES + lexicon.THING_ADJECTIVES,
    "order-preposition": lambda words: words[5] in ("in", "at", "near", "behind", "beside"),
    "count": lambda words: (words[0] in ("every", "this")) != (nouns(words)[0] in PLURALS),
    "tense": lambda words: "will" not in words or not any(when <= set(words) for when in ENDED),
    "passive": lambda words: ("by" in words) != any(v.ing in words for v in grammar.PERSON_VERBS),
    "coordinate": lambda words: ("and" in words) == bool({"are", "were"} & set(words)),
    "animate": lambda words: person(nouns(words)[0]),
    "give": lambda words: person(nouns(words)[1]),
    "who": lambda words: (words[0] == "who") == any(v.base in words for v in grammar.PERSON_VERBS),
    "compare": lambda words: ("than" in words) == bool(COMPARATIVES & set(words)),
    "negate": lambda words: ("not" in words) == ("did" in words) and not {"not", "never"} <= set(words),
    "takes": taken,
    "time": lambda words: ("on" in words) == (words[-2] in lexicon.DAYS),
    "article": lambda words: not re.search(r"\ba [aeiou]|\ban [^aeiou]", " ".join(words)),
}


def framed(skill: str, words: list[str]) -> str:
    """The word of which a frame speaks."""
    part, frame = skill.split("-")
    word = words[words.index(frame) + (2 if frame in ("easy", "hard") else 1)]
    if part == "noun":
        return next(noun.sg for noun in lexicon.NOUNS.values() if noun.pl == word)
    return BASES[word] if part == "verb" else word


def test_a_reader_finds_the_labels_of_grammar() -> None:
    """Of contrasts by a rule of English, one for each family; of frames by the list of the words that they take."""
    columns = pocket.generate("grammar", "test", 4000)
    found: Counter[str] = Counter()
    for sentence, label, name in zip(columns["sentence"], columns["label"], columns["id"], strict=True):
        skill, words = pocket.skill_of(name), sentence.split()
        if skill in skills.TAKES:
            whole = framed(skill, words) in skills.TAKES[skill][1]
        else:
            (reader,) = (read for start, read in READERS.items() if skill.startswith(start))
            whole = reader(words)
        assert (skill, sentence, whole) == (skill, sentence, label == "acceptable")
        found[skill] += 1
    assert set(found) == set(skills.SKILLS)
    assert len(found) >= 50
    weights = [(rank + skills.HEAD) ** -skills.TAIL for rank in range(len(found))]
    for skill, weight in zip(skills.SKILLS, weights, strict=True):  # rare ones are rare, but there
        expected = 4000 * weight / sum(weights)
        assert abs(found[skill] - expected) < 5 * math.sqrt(expected)


def test_annotators_of_grammar_err_by_skill() -> None:
    size = 20_000
    noisy, true = pocket.generate("grammar", "train", size), true_labels("grammar", size)
    wrong = Counter(dict.fromkeys(skills.SKILLS, 0))
    all_ = Counter(map(pocket.skill_of, noisy["id"]))
    wrong.update(pocket.skill_of(i) for i, a, b in zip(noisy["id"], noisy["label"], true, strict=True) if a != b)
    for skill, share in skills.NOISE.items():
        assert wrong[skill] / all_[skill] == pytest.approx(share, abs=5 * math.sqrt(share / all_[skill]))


@pytest.mark.parametrize("task", ["ner", "hotpot"])
def test_evaluation_documents_are_long_and_most_training_documents_short(task: str) -> None:
    long, short = ([len(row[-2].split()) for row in examples(task, split)] for split in ("test", "train"))
    assert documents.LONG[0] <= min(long) <= max(long) <= documents.LONG[1] + 15
    assert min(short) < 1.5 * documents.SHORT[task][0]
    assert sum(n >= documents.LONG[0] for n in short) / SIZE[task] == pytest.approx(documents.WHOLE[task], abs=0.1)


def test_ner_tells_the_type_of_every_name_first_and_shows_the_name_alone_later() -> None:
    usually = {word: kind for kind, words in documents._USUALLY.items() for word in words}
    late, usual = 0, []
    for text, tags in examples("ner"):
        words, types = text.split(), dict[str, str]()
        for first in (at for at, tag in enumerate(tags) if tag[0] == "B"):
            end = next(at for at in range(first + 1, len(tags)) if tags[at][0] != "I")
            name, kind = " ".join(words[first:end]), tags[first][2:]
            # "vera is a tall surgeon", "the surgeon vera"
            near = {words[first - 1], words[end + 3] if words[end] == "is" else ""}
            evidence = {kind for kind, (nouns, _) in documents.KINDS.items() if near & set(nouns)}
            assert name in types or evidence == {kind}
            assert types.setdefault(name, kind) == kind
            usual.append(usually[words[first]] == kind)
            if first > len(words) / 4 + 20:
                late += 1
                assert not evidence
        assert len(words) == len(tags)
    assert late > 5000
    assert sum(usual) / len(usual) == pytest.approx(documents.USUAL, abs=0.08)  # what a name alone tells


def answer_of_hotpot(question: str, context: str) -> str:
    """What a person would answer, from one fact or from two."""
    names = {noun.sg for noun in grammar.HOME.names}
    if match := re.fullmatch(r"who did (the \w+) \w+ \?", question):
        (name,) = {m[1] for m in re.finditer(rf"{match[1]} \w+ (\w+) ", context) if m[1] in names}
        return name
    match = re.fullmatch(r"where is (?:the person who (the \w+ \w+)|(\w+)) from \?", question)
    assert match
    name = match[2] or next(word for word in re.findall(rf"{match[1]} (\w+) ", context) if word in names)
    (city,) = set(re.findall(rf"\b{name} from (\w+) ", context))
    return city


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_of_hotpot_follow_from_facts_that_stand_far_apart(split: str) -> None:
    true = true_labels("hotpot", SIZE["hotpot"]) if split == "train" else rows("hotpot", "test")["label"]
    kinds: Counter[str] = Counter()
    for (question, context, _), label in zip(examples("hotpot", split), true, strict=True):
        (answer,), (start,) = label["text"], label["answer_start"]
        assert context[start : start + len(answer)] == answer == answer_of_hotpot(question, context)
        kinds["both" if "person" in question else question.split()[0]] += 1
        if split == "test":  # no window of 512 words holds both facts
            deed = context.index(question.split("who ")[1].split(" from")[0])
            assert abs(len(context[:deed].split()) - len(context[:start].split())) > 512
    assert set(kinds) == ({"both", "where", "who"} if split == "train" else {"both"})
    assert all(count / SIZE["hotpot"] > 0.2 for count in kinds.values())


def test_squad_has_one_right_answer_among_sentences_that_look_alike() -> None:
    read = in_common = 0
    for question, context, label in examples("squad"):
        (answer,), (start,) = label["text"], label["answer_start"]
        assert f" {context} "[start : start + len(answer) + 2] == f" {answer} "
        if match := re.fullmatch(r"who (\w+) (.+) \?", question):  # other questions are worded otherwise than the text
            pattern = rf"(the (?:\w+ )?\w+) {match[1]} {match[2]} "
            assert set(re.findall(pattern, context)) <= {answer}
            read += bool(re.search(pattern, context))
        best = max(context.split(" . "), key=lambda sentence: len(set(question.split()) & set(sentence.split())))
        in_common += context.index(best) <= start < context.index(best) + len(best)
    assert read > 5
    assert in_common / SIZE["squad"] < 0.85  # the sentence with most words in common is often another


def test_a_later_clause_comes_first_in_the_translation() -> None:
    seen = set[str]()
    for source, answer in examples("translate"):
        for joint in set(texts.JOINTS) & set(source.split()):
            assert answer.startswith(f"{texts.JOINTS[joint]} ") == (joint in texts.LATE)
            seen.add(joint)
    assert seen == set(texts.JOINTS)
    for number, sentence in enumerate(pocket.unlabelled_bilingual(40)):  # the languages take turns
        assert bool(set(sentence.split()) & set(pocket.foreign_words())) == bool(number % 2)


def test_summaries_say_what_the_introduced_person_did() -> None:
    """Both of the person's deeds, in the order of the document, in the active, without details."""
    verbs = {verb.past: verb.part for verb in (*texts.PERSON_VERBS, *texts.THING_VERBS)}
    for document, summary in examples("xsum"):
        opening, *events = re.split(r"(?<= \.) ", document)
        role = opening.split(" from ")[0].split()[-1]
        deeds = summary.removeprefix(f"the {role} ").removesuffix(" .").split(" and ")
        at = [[i for i, words in enumerate(map(str.split, events)) if noun in words and {past, verbs[past]} & {*words}]
              for past, *_, noun in map(str.split, deeds)]  # fmt: skip
        assert Split("xsum", "test", 0).owns(summary)
        assert at[0][0] < at[1][-1]
        assert not set(summary.split()) & set(lexicon.PERSON_ADJECTIVES)


@pytest.mark.parametrize("name", ["bert", "bert-6", "bert-12", "bert-long", "bert-asked"])
def test_shipped_weights_belong_to_this_generator_and_predict_words(name: str) -> None:
    """The hashes of the note, and its accuracy, here at about 1,000 hidden words."""
    folder, made = suite.FOLDER / name, suite.pocket_tokenizer()
    note = json.loads((folder / "backbone.json").read_text(encoding="utf-8"))
    assert int(note["generator_version"]) <= int(pocket.VERSION)
    assert note["vocabulary_hash"] == make.vocabulary_hash()
    assert note["weights_hash"] == models.file_digest(folder)
    assert models.load_tokenizer(str(folder)).get_vocab() == made.get_vocab()
    model = make.pretrained(folder)
    long = name in ("bert-long", "bert-asked")
    found = make.long_accuracy(model, made, 1) if long else make.short_accuracy(model, made, 150)
    assert found == pytest.approx(note["held_out_masked_accuracy"], abs=0.07)


# Of the float32 weights that the codes and scales stand for, as they were when a teacher was one file
WEIGHTS = {
    "pocket-cola": "8913ea933a66", "pocket-grammar": "fd28d16144fa", "pocket-mnli": "0c155d090b24",
    "pocket-mrpc": "e5a2a2ed2807", "pocket-qqp": "edfca3da08ab", "pocket-rte": "54d5f56fc137",
    "pocket-sst2": "d947f1570479", "pocket-stsb": "49eb8d917ca9", "pocket-6-cola": "d18bef15add4",
    "pocket-6-grammar": "c23a693a014c", "pocket-6-stsb": "755cdc9f1f38",
}  # fmt: skip


@pytest.mark.parametrize("name", make.SHIPPED)
def test_shipped_teachers_belong_to_this_generator_and_find_labels(name: str) -> None:
    """The hashes and the recipe of the note, its weights to the bit, and its score, here on 200 examples."""
    folder, (kind, _, task_name) = suite.TEACHERS / name, name.rpartition("-")
    note, task = json.loads((folder / suite.NOTE).read_text(encoding="utf-8")), TASKS[task_name]
    assert note["hash"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]
    assert note["generator_version"] == pocket.VERSION
    assert note["backbone_hash"] == models.file_digest(suite.POCKET[kind])
    recipe = {"task": f"pocket/{task_name}", "model": kind, "precision": "fp32", "seed": 0, "max_length": 128}
    assert note["recipe"] == suite.pocket_recipe(kind, task, 128) | recipe | {"data": note["recipe"]["data"]}
    assert models.model_name(kind) == kind  # in the root too, where a folder has the same name
    for split, scores in note["scores"].items():
        assert note["packed_scores"][split] == pytest.approx(scores, abs=0.005)
    small, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), models.load_tokenizer(str(folder))
    model: Any = packed.unpacked(small).eval()
    assert weights_digest(model.state_dict())[:12] == WEIGHTS[name]
    columns = pocket.generate(task_name, split, 200)
    inputs = tokenizer(*(columns[column] for column in pocket.COLUMNS[task_name]), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits
    found, labels = logits[:, 0].tolist(), columns["label"]
    if task.labels:
        assert tuple(model.config.id2label.values()) == task.labels
        found, labels = logits.argmax(-1).tolist(), [task.labels.index(label) for label in labels]
    metric = task.metrics[0]
    assert METRICS[metric](found, labels) == pytest.approx(note["packed_scores"][split][metric], abs=0.07)


def test_each_weight_of_a_teacher_is_the_nearest_of_255() -> None:
    """Multiples of its tensor's, or of its embedding's row's, step."""
    plain = tiny_bert(2, 48)
    before = {name: value.clone() for name, value in plain.state_dict().items() if value.ndim > 1}
    found = packed.unpacked(make.in_8_bits(plain))
    assert not hasattr(found.config, "quantization_config")
    for name, value in before.items():
        largest = value.abs().amax(-1, keepdim=True) if "embeddings" in name else value.abs().max()
        assert ((found.state_dict()[name] - value).abs() <= largest / 127 * (0.5 + 1e-4)).all()


def test_the_pocket_barts_encoder_is_the_pocket_bert() -> None:
    config, tokenizer = suite.pocket_bart("pocket")
    model = BartForConditionalGeneration(config).eval()
    suite.encode_as_pocket_bert(model, "pocket")
    inputs = tokenizer(["the nurse praised the uncle .", "a boat ."], padding=True, return_tensors="pt")
    with torch.no_grad():
        ours, theirs = (encoder(**inputs).last_hidden_state
                        for encoder in (model.model.encoder, suite.pocket_bert("pocket").eval()))  # fmt: skip
    valid = inputs["attention_mask"].bool()
    torch.testing.assert_close(ours[valid], theirs[valid], atol=2e-3, rtol=1e-3)  # norms: epsilons of 1e-5 and 1e-12
    assert not any(tokenizer.unk_token_id in ids for ids in tokenizer(rows("translate", "test")["label"])["input_ids"])


@pytest.mark.parametrize("name", ["4", "6", "long", "asked"])
def test_the_weights_can_be_made(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"STEPS": 2, "STACKED_STEPS": 2, "INPUTS": 50, "DOCUMENTS": 50, "LONG_INPUTS": 5, "LONG_TOKENS": 512}
    stages = {"LONG_STAGES": ((128, 2),), "ASKED_STAGES": ((48, 1), (80, 2))}
    measures = dict.fromkeys(("short_accuracy", "long_accuracy"), lambda *_: 0.5)
    for attribute, value in (small | stages | measures).items():
        monkeypatch.setattr(make, attribute, value)
    make.make(name, tmp_path)
    note = json.loads((tmp_path / "backbone.json").read_text(encoding="utf-8"))
    assert (note["weights_hash"], note["steps"]) == (models.file_digest(tmp_path), 3 if name == "asked" else 2)
    assert models.load_config(str(tmp_path)).max_position_embeddings == (2048 if name in ("long", "asked") else 128)


def test_a_teacher_is_shipped_for_its_recipe_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes what the scripts then take instead of training one, unpacked."""
    task = load("pocket/rte", limit=20)
    monkeypatch.setattr(make.data, "load", lambda _: task)
    monkeypatch.setattr(suite, "TEACHERS", tmp_path)
    monkeypatch.setattr(teacher, "pocket_recipe", lambda *_: {"steps": 2, "batch_size": 4, "lr": 1e-3})
    for module in (make, teacher.evaluate):
        monkeypatch.setattr(module, "evaluate", lambda *_, **__: Evaluation({"test": {"accuracy": 0.5}}, 1.0, {}))
    make.make_teacher("pocket-rte", str(tmp_path / "first"))
    trained = []
    monkeypatch.setattr(tuning, "fine_tune", lambda *_: trained.append(1))
    args = CommonArgs(cache_dir=str(tmp_path / "second"))
    found = teacher.get_teacher(args, task)
    small: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "pocket-rte", dtype=torch.float32)
    expected = packed.unpacked(small)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.model.state_dict().items())
    assert not trained
    for change in ({"max_length": 64}, {"precision": "bf16"}):
        assert teacher.get_teacher(replace(args, **change), task).signature != found.signature
    assert len(trained) == 2
