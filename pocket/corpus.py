"""Unlabelled documents of the pocket suite, for pre-training and for language modelling.

Stories, reviews, facts and remarks. Words of one polarity, topic or kind keep company through a document, and names
keep their role: text from which something can be learnt about words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

from pocket import lexicon
from pocket.grammar import (
    BARE_VERBS,
    ELSEWHERE,
    HOME,
    NOTHING,
    NP,
    OPPOSED_PERSON_VERBS,
    THING_VERBS,
    Clause,
    Dice,
    Genre,
    ask,
    draw_clause,
    draw_construction,
    draw_opinion,
    draw_quantified,
    draw_thing,
    say,
    with_article,
)
from pocket.lexicon import NOUNS, Noun, Verb
from pocket.sentences import draw_question
from pocket.splits import Split

T = TypeVar("T")
Owns = Callable[[str], bool]  # whether a document may hold a sentence


def unlabelled(size: int, seed: int = 0) -> list[str]:
    """So many documents of several sentences each, which belong to no split."""
    rng = Dice(f"unlabelled/{seed}")
    return [_document(rng, lambda _: True) for _ in range(size)]


def lm(rng: Random, split: Split) -> tuple[tuple[str], None]:
    """The language-modelling corpus: such a document, all of whose sentences belong to the split."""
    return (_document(rng, split.owns),), None


class _NoneOwned(Exception):
    """No sentence that could stand at one place of a document may stand there."""


def _sentence(draw: Callable[[], str], owns: Owns) -> str:
    """A sentence, drawn until it is owned: at most 100 times, which fails by chance once in 10^12."""
    for _ in range(100):
        if owns(sentence := draw()):
            return sentence
    raise _NoneOwned


def _at_least(size: int, options: Iterable[T]) -> list[T]:
    """The options as a list, if there are so many."""
    if len(found := list(options)) < size:
        raise _NoneOwned
    return found


def _document(rng: Random, owns: Owns) -> str:
    genre = HOME if rng.random() < 0.7 else ELSEWHERE
    kind = rng.random()
    write = _story if kind < 0.4 else _review if kind < 0.65 else _facts if kind < 0.8 else _remarks
    while True:
        with contextlib.suppress(_NoneOwned):  # then another of this kind, so that each is as frequent in every split
            return " ".join(write(rng, genre, owns))


class _Scene(NamedTuple):
    """What stays the same through a story: who plays which role, where, what they do, with what kind of thing."""

    cast: list[tuple[Noun, Noun]]  # names and roles
    place: str
    times: tuple[str, ...]
    verbs: list[Verb]
    kind: str


def _story(rng: Random, genre: Genre, owns: Owns) -> list[str]:
    """People keep their name, role and place; things and verbs of one kind keep company."""
    cast = list(zip(rng.sample(genre.names, 3), rng.sample(genre.people, 3), strict=True))
    name, role = cast[0]
    openings = [f"{name.sg} is {with_article(role.sg)} from {city} ." for city in genre.cities]
    place, opening = rng.choice(genre.places), rng.choice(_at_least(1, filter(owns, openings)))
    verbs = _FRIENDLY_VERBS if rng.random() < 0.5 else _HOSTILE_VERBS
    scene = _Scene(cast, place, genre.times, verbs, rng.choice(_TOPICS))
    sentences = [opening]
    sentences += [_sentence(lambda: _episode(rng, scene), owns) for _ in range(rng.randint(3, 5))]
    if rng.random() < 0.5:
        sentences.append(_sentence(lambda: _purchase(rng, name, scene.kind), owns))
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


def _review(rng: Random, _: Genre, owns: Owns) -> list[str]:
    """One thing, one opinion of it throughout."""
    good = rng.random() < 0.5
    thing = rng.choice(tuple(lexicon.REVIEWED))
    aspects = [thing, *lexicon.REVIEWED[thing].split()]

    def opinion() -> str:
        return f"{draw_opinion(rng, f'the {rng.choice(aspects)}', good)} ."

    return [_sentence(opinion, owns) for _ in range(rng.randint(3, 5))]


def _facts(rng: Random, genre: Genre, owns: Owns) -> list[str]:
    """What all, some and no members of a kind do, and questions about it."""
    kind = rng.choice(tuple(lexicon.CHILDREN))
    sentences = []
    for noun in rng.sample(_at_least(3, (n for n in lexicon.CHILDREN[kind] if owns(_membership(n, kind)))), 3):
        sentences += [_membership(noun, kind), _sentence(partial(_fact, rng, genre, noun), owns)]
    slots = ["agent", "patient", "place", "time"]
    sentences.append(_sentence(lambda: ask(rng, draw_clause(rng, genre), rng.choice(slots)), owns))
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


def _remarks(rng: Random, _: Genre, owns: Owns) -> list[str]:
    """Sentences of every construction, and a question."""
    remarks = [_sentence(lambda: draw_construction(rng, good=True), owns) for _ in range(3)]
    return [*remarks, _sentence(lambda: draw_question(rng), owns)]
