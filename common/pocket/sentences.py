"""The pocket suite: small, real tasks in a small English, made by rule, with nothing to download.

    from common import pocket
    rows = pocket.generate("mnli", "train", size=1000, seed=0)   # {"premise": [...], "hypothesis": [...], ...}
    text = pocket.unlabelled(100)                                # paragraphs without labels
    words = pocket.vocabulary()                                  # every token that can occur

A sentence starts as a frame of `common.grammar` (who did what to whom, where, when, negated or not). A task draws
a label, draws a frame, changes the frame by a rule that earns the label, and says both in words. Counterparts of
the GLUE tasks:

    cola   one construction, whole or broken in one place: agreement across a phrase, reflexives, what a
           verb takes, questions with and without their gap, "ever" without "no", the form after an
           auxiliary, order
    sst2   opinions composed: negation, "fails to be", "anything but", "but", "although", reports
    mrpc   same event? synonyms, passive and order keep it; swapped roles, the opposite verb or "not" change it
    qqp    same question? other wordings keep it; swapped roles or directions, opposite verbs or scales change it
    stsb   0-5: the weight of the slots that two scenes share; synonyms count in full, kin in part
    mnli   monotonicity of "all", "some", "no", "most", "the" and "not"; opposites; swapped roles. The
           mismatched splits are of another genre: its people, places, times and names are new words
    qnli   does the sentence answer the question, or has it other roles, another verb or no such slot?
    rte    two clauses, or one that someone knew or only claimed; does a short sentence follow?

one without labels:

    lm     documents for language modelling, of the kinds of `unlabelled`

three of long documents, ner, squad and hotpot, which `common.pocket_documents` writes, and two whose answer is a text,
translate and xsum, by `common.pocket_texts`.

Splits: train, dev and test (mnli: dev and test matched and mismatched). A hash of its text gives every sentence to
one of the three, half of all to train and a quarter each to dev and test, so no sentence of one is ever seen in
another, whatever the seeds. Sizes unless asked otherwise: 20,000 (rte: 10,000), 1,000 and 2,000. A smaller size is
a prefix of a larger one. About one candidate in four (train) or sixteen (dev, test) has both sentences in the split.
Noise: the share `NOISE` of the training labels is wrong, as annotators are; stsb scores carry Gaussian noise and
that share of them is drawn at random. Dev and test labels are clean.
Unlabelled text is in no split: it has no labels, and it may hold any sentence. A document of `lm` is unlabelled text
each of whose sentences was drawn until the split owned it: 20,000, 500 and 1,000 documents, in a second or two.
Version: the data are frozen. `VERSION` is part of every result's signature, since numbers of two generators cannot
be compared. Any change of a generated example, document or the vocabulary bumps it. The pre-trained weights
(`common/pocket-bert`) need the same vocabulary, which a test checks; `python -m common.backbone` makes them again.
They were made on version 1, which differs from 2 in one thing: sst2 had half as many sentences of one clause.

Another task is one more rule under `@_task`. A rule returns None when what it has drawn cannot earn its label, and
everything else (splits, noise, columns, sizes) follows. Two things a task of another kind brings along: if its
labels are not names or scores (tags, a span, a text), how an annotator errs in them, a case of `_annotate`; and if
its texts are documents, sentences drawn one by one from the split, as `_corpus` does, since a document of n sentences
that is drawn as a whole falls in a quarter's split with probability 4^-n.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from common.pocket import documents as pocket_documents
from common.pocket import lexicon
from common.pocket import texts as pocket_texts
from common.pocket.grammar import (
    BARE_VERBS,
    ELSEWHERE,
    GRADED_THINGS,
    GRADED_TRADES,
    HOME,
    NOTHING,
    NP,
    OPPOSED_PERSON_VERBS,
    OPPOSED_THING_VERBS,
    THING_VERBS,
    Clause,
    Dice,
    Genre,
    alter,
    another_noun,
    ask,
    both_people,
    draw_aspects,
    draw_clause,
    draw_construction,
    draw_few,
    draw_opinion,
    draw_quantified,
    draw_role,
    draw_thing,
    draw_verb,
    opposite,
    other,
    reword,
    reword_np,
    same_meaning,
    say,
    say_np,
    swap_roles,
    usual,
    verb_synonym,
    with_article,
)
from common.pocket.lexicon import NOUNS, SYNONYMS, Noun, Verb

VERSION = "2"
NOISE = 0.15  # the share of training labels that are wrong
STSB_NOISE_SD = 0.75  # the spread of an stsb annotator, in points of the 0-5 scale

T = TypeVar("T")
Label = str | float
Example = tuple[tuple[str, ...], Label]  # the texts and the true label
Rule = Callable[[Random, Genre], Example | None]


@dataclass(frozen=True)
class Task:
    """A rule that draws one example, the names of its texts, its labels (none: scores) and its splits."""

    rule: Rule
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]
    train_size: int


_TASKS: dict[str, Task] = {}


def _task(
    name: str, columns: str, labels: str = "", splits: str = "train dev test", train_size: int = 20_000
) -> Callable[[Rule], Rule]:
    """Enter the rule below as the rule of a task."""

    def enter(rule: Rule) -> Rule:
        _TASKS[name] = Task(rule, tuple(columns.split()), tuple(labels.split()), tuple(splits.split()), train_size)
        return rule

    return enter


# --- single sentences ----------------------------------------------------------------------------------------


@_task("cola", "sentence", labels="unacceptable acceptable")
def _cola(rng: Random, _: Genre) -> Example:
    good = rng.random() < 0.5
    return (draw_construction(rng, good),), "acceptable" if good else "unacceptable"


@_task("sst2", "sentence", labels="negative positive")
def _sst2(rng: Random, _: Genre) -> Example:
    good = rng.random() < 0.5
    return (f"{_review_sentence(rng, good)} .",), "positive" if good else "negative"


def _review_sentence(rng: Random, good: bool) -> str:
    """One opinion, or two of which the main clause (or whatever stands against a report) decides."""
    first, second = draw_aspects(rng)
    kind = rng.random()
    if kind < 0.42:
        return draw_opinion(rng, first, good)
    if kind < 0.54:
        return f"{draw_opinion(rng, first, good)} and {draw_opinion(rng, second, good)}"
    if kind < 0.72:
        return f"{draw_opinion(rng, first, not good)} , but {draw_opinion(rng, second, good)}"
    if kind < 0.80:
        return f"although {draw_opinion(rng, first, not good)} , {draw_opinion(rng, second, good)}"
    if kind < 0.88:
        return f"{draw_opinion(rng, first, good)} , although {draw_opinion(rng, second, not good)}"
    if kind < 0.93:
        word = rng.choice(lexicon.BAD if good else lexicon.GOOD)
        return f"despite the {word} {first.removeprefix('the ')} , {draw_opinion(rng, second, good)}"
    if kind < 0.97:
        return f"critics say that {draw_opinion(rng, first, not good)} , but they are wrong"
    return f"it would be wrong to say that {draw_opinion(rng, first, not good)}"


# --- the same or not -----------------------------------------------------------------------------------------


@_task("mrpc", "sentence1 sentence2", labels="not_equivalent equivalent")
def _mrpc(rng: Random, _: Genre) -> Example:
    same = rng.random() < 0.55
    clause = draw_clause(rng, people=0.65, place=0.5, time=0.4).but(negated=rng.random() < 0.15)
    second = clause if same else alter(rng, clause)
    texts = _say_freely(rng, clause), _say_freely(rng, reword(rng, second))
    return texts, "equivalent" if same else "not_equivalent"


def _say_freely(rng: Random, clause: Clause) -> str:
    """The clause in any of its word orders, with its full stop."""
    return f"{say(clause, passive=rng.random() < 0.15, fronted=rng.random() < 0.3)} ."


@_task("qqp", "question1 question2", labels="not_duplicate duplicate")
def _qqp(rng: Random, _: Genre) -> Example:
    same = rng.random() < 0.5
    return rng.choice(_QUESTION_PAIRS)(rng, same), "duplicate" if same else "not_duplicate"


def _how(rng: Random, same: bool) -> tuple[str, str]:
    """How to do something to something."""
    verb, thing = draw_verb(rng, OPPOSED_THING_VERBS), draw_thing(rng, adj=0.4, det="a")
    second = verb if same else opposite(rng, verb)
    return _ask_how(rng, verb, thing), _ask_how(rng, verb_synonym(rng, second), reword_np(rng, thing))


def _ask_how(rng: Random, verb: Verb, thing: NP) -> str:
    frame = rng.choice(["how can i", "how do i", "what is the best way to", "is there an easy way to"])
    return f"{frame} {verb.base} {say_np(thing)} ?"


def _why(rng: Random, same: bool) -> tuple[str, str]:
    """Why someone did something to someone."""
    clause = second = draw_clause(rng, people=1, place=0, time=0, adj=0.1)
    if not same:
        second = swap_roles(clause) if rng.random() < 0.6 else clause.but(verb=opposite(rng, clause.verb))
    return _ask_why(rng, clause), _ask_why(rng, reword(rng, second))


def _ask_why(rng: Random, clause: Clause) -> str:
    agent, verb, patient = say_np(clause.agent), clause.verb, say_np(clause.patient)
    kind = rng.random()
    if kind < 0.5:
        return f"why did {agent} {verb.base} {patient} ?"
    if kind < 0.85:
        return f"what made {agent} {verb.base} {patient} ?"
    return f"why was {patient} {verb.part} by {agent} ?"


def _route(rng: Random, same: bool) -> tuple[str, str]:
    """How to get from one city to another, or back."""
    start, goal = rng.choice(lexicon.CITIES_NEAR), rng.choice(lexicon.CITIES_FAR)
    if not usual(rng):
        start, goal = goal, start
    return _ask_route(rng, start, goal), _ask_route(rng, *((start, goal) if same else (goal, start)))


def _ask_route(rng: Random, start: str, goal: str) -> str:
    frame = rng.choice(["how do i", "how can i", "what is the best way to"])
    return f"{frame} {rng.choice(_ROUTES).format(start, goal)} ?"


_ROUTES = ("get from {0} to {1}", "travel from {0} to {1}", "get to {1} from {0}")


def _compare(rng: Random, same: bool) -> tuple[str, str]:
    """Which of two things is more of something; "a is cheaper than b" is "b is costlier than a"."""
    first, second = rng.choice(_PRODUCE), rng.choice(_GEAR)
    if not usual(rng):
        first, second = second, first
    scale = rng.choice(lexicon.COMPARATIVES)
    side = 0 if usual(rng) else 1
    swapped = not usual(rng)
    things = (second, first) if swapped else (first, second)
    other_side = side if swapped != same else 1 - side
    return _ask_compare(rng, first, second, scale[side]), _ask_compare(rng, *things, scale[other_side])


def _ask_compare(rng: Random, left: Noun, right: Noun, more: str) -> str:
    if rng.choice((False, True)):
        return f"is it true that {left.pl} are {more} than {right.pl} ?"
    return f"are {left.pl} {more} than {right.pl} ?"


_PRODUCE = tuple(noun for noun in GRADED_THINGS if noun.kind in ("fruit", "vegetable", "flower"))
_GEAR = tuple(noun for noun in GRADED_THINGS if noun.kind in ("vehicle", "instrument", "tool", "jewel", "garment"))
_QUESTION_PAIRS = (_how, _how, _how, _why, _why, _why, _route, _route, _route, _compare)  # as often as they stand here


# --- how similar ---------------------------------------------------------------------------------------------


@_task("stsb", "sentence1 sentence2")
def _stsb(rng: Random, _: Genre) -> Example:
    clause = Clause(
        NP(rng.choice(GRADED_TRADES), "a"),
        draw_verb(rng, OPPOSED_THING_VERBS),
        draw_thing(rng, 1, "a", GRADED_THINGS),
        rng.choice(HOME.places),
    )
    second = reword(rng, clause)
    agent, verb, place = second.agent.noun, second.verb, second.place
    thing, adj = second.patient.noun, second.patient.adj
    score = 5.0
    for slot in draw_few(rng, _SLOTS, rng.choice(_CHANGES)):
        near = 0.0
        if slot == "agent":
            agent, near = _another(rng, clause.agent.noun)
        elif slot == "patient":
            thing, near = _another(rng, clause.patient.noun)
        elif slot == "verb":
            verb = opposite(rng, clause.verb)
        elif slot == "adj":
            adj = other(rng, lexicon.THING_ADJECTIVES, clause.patient.adj, *SYNONYMS.get(clause.patient.adj, ()))
        else:
            place = other(rng, HOME.places, clause.place)
        score -= _SLOT_WEIGHTS[slot] * (1 - near)
    second = Clause(NP(agent, "a"), verb, NP(thing, "a", adj), place)
    return (_say_scene(rng, clause), _say_scene(rng, second)), round(score, 2)


_SLOT_WEIGHTS = {"agent": 1.25, "verb": 1.5, "patient": 1.25, "adj": 0.5, "place": 0.5}  # 5 in all
_SLOTS = tuple(_SLOT_WEIGHTS)
_CHANGES = (0, 0, 1, 1, 2, 2, 3, 4, 5)  # how many slots change


def _another(rng: Random, noun: Noun) -> tuple[Noun, float]:
    """Another noun and how near it is: a hypernym or another of the same kind, or anything."""
    if rng.random() >= 0.4:
        return another_noun(rng, noun), 0.0
    if rng.random() < 0.5:
        return NOUNS[noun.parent], 0.6
    return rng.choice(_SIBLINGS[noun]), 0.6


_SIBLINGS = {
    noun: [sibling for sibling in lexicon.CHILDREN[noun.parent] if not same_meaning(noun, sibling)]
    for noun in (*GRADED_TRADES, *GRADED_THINGS)
}


def _say_scene(rng: Random, clause: Clause) -> str:
    """A caption: what is going on, in the active or the passive."""
    agent, verb, patient = say_np(clause.agent), clause.verb, say_np(clause.patient)
    if rng.random() < 0.15:
        return f"{patient} is being {verb.part} by {agent} {clause.place} ."
    return f"{agent} is {verb.ing} {patient} {clause.place} ."


# --- what follows --------------------------------------------------------------------------------------------

_MNLI_LABELS = ("entailment", "neutral", "contradiction")


@_task(
    "mnli",
    "premise hypothesis",
    labels=" ".join(_MNLI_LABELS),
    splits="train dev_matched dev_mismatched test_matched test_mismatched",
)
def _mnli(rng: Random, genre: Genre) -> Example | None:
    label = rng.choice(_MNLI_LABELS)
    pair = rng.choice(_MNLI_RULES[label])(rng, genre, label)
    if pair is None:
        return None
    premise, hypothesis = pair
    same_verb = premise.verb is hypothesis.verb
    upward = _MONOTONE.get((premise.agent.det or "the", premise.negated), ("", ""))[1] == "up"
    if label == "contradiction" and same_verb and upward and rng.random() < 0.3:
        hypothesis = hypothesis.but(place="")
    hypothesis = reword(rng, hypothesis, share=0.2)
    passive = hypothesis.agent.det in ("", "the") and both_people(hypothesis) and rng.random() < 0.3
    return (f"{say(premise, fronted=rng.random() < 0.3)} .", f"{say(hypothesis, passive=passive)} ."), label


# How a subject with this quantifier, in a clause that is negated or not, reacts when its restrictor (the noun and
# its adjective) or its body (verb, object, place, ...) is made broader: "up": it follows; "down": it follows from.
_MONOTONE = {
    ("the", False): ("up", "up"),
    ("the", True): ("up", "down"),
    ("some", False): ("up", "up"),
    ("all", False): ("down", "up"),
    ("no", False): ("down", "down"),
    ("most", False): ("", "up"),
}
_CONTEXTS = tuple(_MONOTONE)
_QUANTIFIERS = {  # what a change of quantifier does
    "entailment": (("all", "some"), ("all", "most"), ("most", "some")),
    "neutral": (("some", "all"), ("some", "most"), ("most", "all")),
    "contradiction": (("all", "no"), ("some", "no"), ("most", "no"), ("no", "all"), ("no", "some"), ("no", "most")),
}


def _monotone_pair(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause] | None:
    """Entailed: the way that the context is monotone. Neutral: the other way."""
    det, negated = rng.choice(_CONTEXTS)
    restrictor, body = _MONOTONE[det, negated]
    narrow = draw_quantified(rng, genre, det, negated)
    in_restrictor = rng.random() < 0.5
    broad = _broaden_restrictor(rng, narrow) if in_restrictor else _broaden_body(rng, narrow)
    direction = restrictor if in_restrictor else body
    if broad is None or (not direction and label == "entailment"):
        return None
    if not direction:
        direction = rng.choice(["up", "down"])
    return (narrow, broad) if (direction == "up") == (label == "entailment") else (broad, narrow)


def _broaden_restrictor(rng: Random, clause: Clause) -> Clause | None:
    """The subject with a wider noun or without its adjective."""
    agent = clause.agent
    options = [agent.but(adj="")] if agent.adj else []
    if agent.noun.parent:
        options.append(agent.but(noun=NOUNS[agent.noun.parent]))
    return clause.but(agent=rng.choice(options)) if options else None


def _broaden_body(rng: Random, clause: Clause) -> Clause:
    """The predicate with a wider object or without one of its modifiers."""
    patient = clause.patient
    options = [clause.but(place="")]
    if clause.time:
        options.append(clause.but(time=""))
    if patient.noun.parent and patient.det == "a":
        options.append(clause.but(patient=patient.but(noun=NOUNS[patient.noun.parent])))
    if patient.adj:
        options.append(clause.but(patient=patient.but(adj="")))
    return rng.choice(options)


def _quantifier_pair(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause]:
    """Another quantifier, or, for a definite subject, "not"."""
    if label == "contradiction" and rng.random() < 0.5:
        clause = draw_quantified(rng, genre, "the", rng.random() < 0.5)
        return clause, clause.but(negated=not clause.negated)
    first, second = rng.choice(_QUANTIFIERS[label])
    clause = draw_quantified(rng, genre, first, False)
    return clause, clause.but(agent=clause.agent.but(det=second))


def _verb_pair(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause] | None:
    """Synonyms (entailed), opposites (contradiction), or swapped roles (neutral)."""
    det = "the" if label == "neutral" else rng.choice(["the", "the", "all", "most"])
    clause = draw_quantified(rng, genre, det, False)
    if label == "entailment":
        return clause, reword(rng, clause, share=1.0)
    if label == "contradiction":
        return clause, clause.but(verb=opposite(rng, clause.verb))
    if not both_people(clause):
        return None
    return clause, swap_roles(clause.but(agent=clause.agent.but(adj="")))


_MNLI_RULES: dict[str, tuple[Callable[[Random, Genre, str], tuple[Clause, Clause] | None], ...]] = {
    "entailment": (*(_monotone_pair,) * 4, _quantifier_pair, _verb_pair),
    "neutral": (*(_monotone_pair,) * 4, _quantifier_pair, _verb_pair),
    "contradiction": (_quantifier_pair, _verb_pair),
}


@_task("qnli", "question sentence", labels="entailment not_entailment")
def _qnli(rng: Random, _: Genre) -> Example:
    answered = rng.random() < 0.5
    target, rest = _two_clauses(rng)
    slot = rng.choice(["agent", "agent", "patient", "patient", "place", "time"])
    if slot == "place":
        where = rng.choice(HOME.places)
        asked = target = target.but(place=where if answered else "")
        rest = rest.but(place="")
    elif slot == "time":
        when = rng.choice(HOME.times)
        asked = target = target.but(time=when if answered else "")
        rest = rest.but(place="")
    else:
        asked = target if answered else alter(rng, target).but(negated=False)
        if not answered and asked == target:
            asked = target.but(verb=opposite(rng, target.verb))
    question = ask(rng, reword(rng, asked, share=0.2), slot)
    return (question, _join(rng, target, rest)), "entailment" if answered else "not_entailment"


@_task("rte", "sentence1 sentence2", labels="entailment not_entailment", train_size=10_000)
def _rte(rng: Random, _: Genre) -> Example:
    follows = rng.random() < 0.5
    target, rest = _two_clauses(rng)
    claim = target.but(time="", place="" if rng.random() < 0.5 else target.place)
    if rng.random() < 0.3:  # "knew that" vouches for its clause, "claimed that" does not
        teller = rng.choice(lexicon.CLAUSE_VERBS["fact" if follows else "claim"])
        premise = f"{say_np(rest.agent)} {teller.past} that {say(target)} ."
    else:
        premise = _join(rng, target, rest)
        claim = claim if follows else alter(rng, claim)
    hypothesis = f"{say(reword(rng, claim, 0.2), passive=rng.random() < 0.2)} ."
    return (premise, hypothesis), "entailment" if follows else "not_entailment"


def _two_clauses(rng: Random) -> tuple[Clause, Clause]:
    """A clause to ask about, most often about two people, and another about a thing or nothing at all."""
    target = draw_clause(rng, people=0.75, place=0.5, time=0.3, adj=0.15)
    while True:
        agent = draw_role(rng, HOME.people, adj=0.15)
        if rng.random() < 0.5:
            rest = Clause(agent, rng.choice(BARE_VERBS), NOTHING, rng.choice(HOME.places))
        else:
            rest = Clause(agent, rng.choice(THING_VERBS), draw_thing(rng, adj=0.15))
        taken = (target.agent.noun, target.patient.noun)
        if rest.verb is not target.verb and rest.agent.noun not in taken:
            return target, rest


def _join(rng: Random, target: Clause, rest: Clause) -> str:
    first, second = say(target, passive=rng.random() < 0.2), say(rest)
    if rng.random() < 0.3:
        first, second = second, first
    return f"{first} {rng.choice(_CONNECTIVES)} {second} ."


_CONNECTIVES = ("and", "while", "before", "after", ", but")


# --- generation ----------------------------------------------------------------------------------------------

TASKS = tuple(_TASKS)  # those with labels; the corpus stands beside them
CORPUS = "lm"
SPLITS: dict[str, tuple[str, ...]] = {name: task.splits for name, task in _TASKS.items()}
LABELS: dict[str, tuple[str, ...]] = {name: task.labels for name, task in _TASKS.items()}
COLUMNS: dict[str, tuple[str, ...]] = {name: task.columns for name, task in _TASKS.items()}
SIZES: dict[str, dict[str, int]] = {
    name: {
        split: task.train_size if split == "train" else 1_000 if split.startswith("dev") else 2_000
        for split in task.splits
    }
    for name, task in _TASKS.items()
}
SPLITS[CORPUS], COLUMNS[CORPUS] = ("train", "dev", "test"), ("text",)
SIZES[CORPUS] = {"train": 20_000, "dev": 500, "test": 1_000}
DOCUMENTS = tuple(pocket_documents.SIZES)
TEXTS = tuple(pocket_texts.SIZES)
SPLITS |= dict.fromkeys((*DOCUMENTS, *TEXTS), ("train", "dev", "test"))
COLUMNS |= pocket_documents.COLUMNS | pocket_texts.COLUMNS
SIZES |= pocket_documents.SIZES | pocket_texts.SIZES
_OWNED = {"train": (0, 4), "dev": (4, 6), "test": (6, 8)}  # eighths of all sentences: the first, and the one after
_HASHES = {  # the same as a range of hashes
    split: (_OWNED[split.split("_")[0]][0] << 29, _OWNED[split.split("_")[0]][1] << 29)
    for splits in SPLITS.values()
    for split in splits
}


def in_split(texts: Iterable[str], split: str) -> bool:
    """Whether the split owns all these sentences, by a hash that is the same on every machine."""
    first, end = _HASHES[split]
    for text in texts:  # noqa: SIM110 (most candidates end here, and `all` takes three times as long)
        if not first <= zlib.crc32(text.encode()) < end:
            return False
    return True


def _examples(task: str, split: str, seed: int) -> Iterator[Example]:
    """Endless, distinct, correctly labelled examples all of whose sentences belong to the split."""
    rng = Dice(f"{task}/{split}/{seed}")
    genre = ELSEWHERE if split.endswith("_mismatched") else HOME
    rule, seen = _TASKS[task].rule, set()
    while True:
        example = rule(rng, genre)
        if example is None:
            continue
        texts = example[0]
        if in_split(texts, split) and len(set(texts)) == len(texts) and texts not in seen:
            seen.add(texts)
            yield example


def _annotate(rng: Random, task: str, label: Label) -> Label:
    """The label that an annotator gives, who errs in the share `NOISE` of the cases."""
    errs = rng.random() < NOISE
    if isinstance(label, str):
        return rng.choice([name for name in LABELS[task] if name != label]) if errs else label
    noisy = rng.uniform(0, 5) if errs else rng.gauss(label, STSB_NOISE_SD)
    return round(min(5.0, max(0.0, noisy)), 2)


def _check(task: str, split: str, size: int) -> None:
    if task not in SPLITS:
        raise ValueError(f"unknown pocket task {task!r}; there are: {', '.join(SPLITS)}")
    if split not in SPLITS[task]:
        raise ValueError(f"unknown split {split!r} of pocket/{task}; there are: {', '.join(SPLITS[task])}")
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")


def _generate(task: str, split: str, size: int, seed: int, noisy: bool) -> dict[str, list[Any]]:
    annotator = Random(f"annotator/{task}/{split}/{seed}")
    columns: dict[str, list[Any]] = {name: [] for name in (*COLUMNS[task], "label", "id")}
    for number, (texts, label) in zip(range(size), _examples(task, split, seed), strict=False):
        for name, text in zip(COLUMNS[task], texts, strict=True):
            columns[name].append(text)
        columns["label"].append(_annotate(annotator, task, label) if noisy else label)
        columns["id"].append(f"{task}-{split}-{seed}-{number}")
    return columns


def generate(task: str, split: str, size: int | None = None, seed: int = 0) -> dict[str, list[Any]]:
    """Columns of one split, named as on the hub, with "label" and "id".

    A label is a name; of stsb a score from 0 to 5, of ner a tag for each word, of squad and hotpot the answer's text
    and offset, as the hub has them; of translate and xsum the text to be written; lm has none.

    Raises ValueError for an unknown task or split or a size below 1.
    """
    size = SIZES.get(task, {}).get(split, 1) if size is None else size
    _check(task, split, size)
    if task == CORPUS:
        return {"text": _corpus(split, size, seed), "id": [f"{task}-{split}-{seed}-{i}" for i in range(size)]}
    if task in (*DOCUMENTS, *TEXTS):
        write = pocket_documents.generate if task in DOCUMENTS else pocket_texts.generate
        wrong = pocket_documents.NOISE if task in DOCUMENTS else NOISE
        noise = wrong if split == "train" else 0.0
        return write(task, split, size, seed, noise, lambda text: in_split((text,), split))
    return _generate(task, split, size, seed, noisy=split == "train")


def people(size: int, seed: int) -> list[list[pocket_documents.Person]]:
    """What the train split's sentences can tell of the people of so many documents of hotpot."""
    return pocket_documents.people(size, seed, lambda text: in_split((text,), "train"))


def vocabulary() -> list[str]:
    """Every token, words in lower case and punctuation, that the generator can emit; sorted."""
    return lexicon.vocabulary()


# --- unlabelled text -----------------------------------------------------------------------------------------


def unlabelled(size: int, seed: int = 0) -> list[str]:
    """Documents of several sentences each: stories, reviews, facts and remarks.

    Words of one polarity, topic or kind keep company through a document, and names keep their role.
    """
    rng = Dice(f"unlabelled/{seed}")
    return [" ".join(_document(rng, _anything)) for _ in range(size)]


def _corpus(split: str, size: int, seed: int) -> list[str]:
    """Documents as `unlabelled` has them, all of whose sentences the split owns."""

    def owned(sentence: str) -> bool:
        return in_split((sentence,), split)

    rng = Dice(f"{CORPUS}/{split}/{seed}")
    return [" ".join(_document(rng, owned)) for _ in range(size)]


class _NotOwned(Exception):
    """None of the sentences that could stand at one place of a document is the split's."""


Owned = Callable[[str], bool]  # whether a document may hold a sentence


def _anything(_: str) -> bool:
    return True


def _owned(draw: Callable[[], str], owned: Owned) -> str:
    """A sentence, drawn again until it is owned: at most 100 times, which fails by chance once in 10^12."""
    for _ in range(100):
        if owned(sentence := draw()):
            return sentence
    raise _NotOwned


def _few(options: Iterable[T], size: int) -> list[T]:
    """The options as a list, if they are at least so many."""
    if len(found := list(options)) < size:
        raise _NotOwned
    return found


def _document(rng: Random, owned: Owned) -> list[str]:
    genre = HOME if rng.random() < 0.7 else ELSEWHERE
    kind = rng.random()
    write = _story if kind < 0.4 else _review if kind < 0.65 else _facts if kind < 0.8 else _remarks
    while True:
        with contextlib.suppress(_NotOwned):  # another of the kind, so that each is as frequent in every split
            return write(rng, genre, owned)


@dataclass(frozen=True)
class _Scene:
    """What stays the same through a story: who plays which role, where, what they do, with what kind of thing."""

    cast: list[tuple[Noun, Noun]]  # names and roles
    place: str
    times: tuple[str, ...]
    verbs: list[Verb]
    kind: str


def _story(rng: Random, genre: Genre, owned: Owned) -> list[str]:
    """People keep their name, role and place; things and verbs of one kind keep company."""
    cast = list(zip(rng.sample(genre.names, 3), rng.sample(genre.people, 3), strict=True))
    name, role = cast[0]
    openings = [f"{name.sg} is {with_article(role.sg)} from {city} ." for city in genre.cities]
    place, opening = rng.choice(genre.places), rng.choice(_few(filter(owned, openings), 1))
    verbs = _FRIENDLY_VERBS if rng.random() < 0.5 else _HOSTILE_VERBS
    scene = _Scene(cast, place, genre.times, verbs, rng.choice(_TOPICS))
    sentences = [opening]
    sentences += [_owned(lambda: _episode(rng, scene), owned) for _ in range(rng.randint(3, 5))]
    if rng.random() < 0.5:
        sentences.append(_owned(lambda: _purchase(rng, name, scene.kind), owned))
    return sentences


def _purchase(rng: Random, buyer: Noun, kind: str) -> str:
    first, second = rng.sample(lexicon.CHILDREN[kind], 2)
    return f"{buyer.sg} bought {first.pl} , {second.pl} and other {NOUNS[kind].pl} ."


def _episode(rng: Random, scene: _Scene) -> str:
    """Someone does something to another, uses or gives a thing of the story's kind, or just does something."""
    (first, job), (second, _) = rng.sample(scene.cast, 2)
    agent = NP(first, "") if rng.random() < 0.6 else NP(job)
    style = rng.random()
    if style < 0.4:
        clause = Clause(agent, rng.choice(scene.verbs), NP(second, ""), scene.place, rng.choice(scene.times))
    elif style < 0.8:
        thing = draw_thing(rng, det="a", nouns=lexicon.CHILDREN[scene.kind])
        clause = Clause(agent, rng.choice(lexicon.SPECIAL_VERBS.get(scene.kind, THING_VERBS)), thing, scene.place)
        if rng.random() < 0.3:
            clause = Clause(agent, rng.choice(lexicon.GIVING_VERBS), thing.but(after=f"to {second.sg}"))
    else:
        clause = Clause(agent, rng.choice(BARE_VERBS), NOTHING, scene.place, f"in {rng.choice(lexicon.MONTHS)}")
    return f"{say(clause, passive=rng.random() < 0.2, fronted=rng.random() < 0.3)} ."


_FRIENDLY_VERBS = [verb for verb in OPPOSED_PERSON_VERBS if verb.base not in lexicon.RIGHT_SIDE]
_HOSTILE_VERBS = [verb for verb in OPPOSED_PERSON_VERBS if verb.base in lexicon.RIGHT_SIDE]
_TOPICS = [kind for kind, nouns in lexicon.CHILDREN.items() if nouns[0].kind == kind]


def _review(rng: Random, _: Genre, owned: Owned) -> list[str]:
    """One thing, one opinion of it throughout."""
    good = rng.random() < 0.5
    thing = rng.choice(tuple(lexicon.REVIEWED))
    aspects = [thing, *lexicon.REVIEWED[thing].split()]

    def opinion() -> str:
        return f"{draw_opinion(rng, f'the {rng.choice(aspects)}', good)} ."

    return [_owned(opinion, owned) for _ in range(rng.randint(3, 5))]


def _facts(rng: Random, genre: Genre, owned: Owned) -> list[str]:
    """What all, some and no members of a kind do, and questions about it."""
    kind = rng.choice(tuple(lexicon.CHILDREN))
    sentences = []
    for noun in rng.sample(_few((n for n in lexicon.CHILDREN[kind] if owned(_membership(n, kind))), 3), 3):
        sentences += [_membership(noun, kind), _owned(partial(_fact, rng, genre, noun), owned)]
    slots = ["agent", "patient", "place", "time"]
    sentences.append(_owned(lambda: ask(rng, draw_clause(rng, genre), rng.choice(slots)), owned))
    return sentences


def _membership(noun: Noun, kind: str) -> str:
    return f"every {noun.sg} is {with_article(kind)} ."


def _fact(rng: Random, genre: Genre, noun: Noun) -> str:
    """What all, some, most or no bearers of a noun do or are."""
    det = rng.choice(["all", "some", "most", "no"])
    if noun.kind == "person":
        clause = draw_quantified(rng, genre, det, False)
        return f"{say(clause.but(agent=clause.agent.but(noun=noun)))} ."
    adjectives = rng.sample(lexicon.THING_ADJECTIVES, 2)
    return f"{det} {adjectives[0]} {noun.pl} {rng.choice(['are', 'were'])} {adjectives[1]} ."


def _remarks(rng: Random, _: Genre, owned: Owned) -> list[str]:
    """Sentences of every construction, and a question."""
    remarks = [_owned(lambda: draw_construction(rng, good=True), owned) for _ in range(3)]
    return [*remarks, _owned(lambda: rng.choice((_how, _why, _route, _compare))(rng, True)[0], owned)]
