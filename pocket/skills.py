"""Acceptability as many small skills: contrasts of grammar, and frames in which a word alone decides.

    ("the clerk near the lamps are tall .",), "unacceptable", "agree-be-pp"

Each example tests one skill. Most skills are rare: that of rank r, from 0, has the weight (r + HEAD) ** -TAIL. A model
learns them one after the other, so its score rises slowly with the examples that it sees (Michaud et al. 2023,
https://arxiv.org/abs/2303.13506; pairs as in BLiMP, https://arxiv.org/abs/1912.00582).

A contrast is a rule of this small English: a sentence is whole or broken in one place. Both have the same words, as far
as can be. It is stricter than English for some 50 of 6,000 test sentences: nobody may "lose in the park".
A frame, such as "really VERB", holds facts about words, which only examples tell: most words of a class behave alike, a
quarter of them do not (`TAKES`). Annotators err more often on some skills than on others (`NOISE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate
from random import Random
from typing import TypeVar
from zlib import crc32

from pocket import lexicon
from pocket.grammar import (
    ALL_VERBS,
    BARE_VERBS,
    GENDERED,
    GRADED_THINGS,
    HOME,
    NP,
    OPPOSED_PERSON_VERBS,
    OPPOSED_THING_VERBS,
    PERSON_VERBS,
    STRICT_VERBS,
    SUBJECTS,
    THING_VERBS,
    THINGS,
    both_people,
    draw_aspects,
    draw_clause,
    draw_thing,
    other,
    reflexive,
    say,
    say_np,
    with_article,
)
from pocket.lexicon import NOUNS, PERSON_ADJECTIVES, THING_ADJECTIVES, Noun
from pocket.splits import Split

T = TypeVar("T")
Rule = Callable[[Random, bool], str]  # a sentence without its full stop; acceptable, if that is asked for

HEAD, TAIL = 4.0, 1.0  # a skill's weight: (rank + HEAD) ** -TAIL
WORDS_TAIL = 0.8  # likewise that of a word in its frame, after a head of 2
EXCEPTIONS = 0.25  # the share of a frame's words that do not behave as their class does
NOISES = (0.02, 0.10, 0.15, 0.20, 0.28)  # the shares of wrong labels that the skills take in turn

_NEAR = ("near", "behind", "beside", "with")


def _hash(*words: str) -> int:
    """A number of words that is the same on every machine."""
    return crc32("/".join(words).encode())


def _mixed(words: Sequence[str], key: str) -> list[str]:
    """The words in an order that nothing else depends on."""
    return sorted(words, key=partial(_hash, key))


@cache
def power_law(count: int, tail: float, head: float) -> list[float]:
    """Cumulative weights of so many ranks."""
    return list(accumulate((rank + head) ** -tail for rank in range(count)))


def _subject(rng: Random, *taken: Noun, adjective: float = 0.3) -> NP:
    noun, adj = other(rng, SUBJECTS, *taken), rng.choice(PERSON_ADJECTIVES)
    return NP(noun, "the", adj if rng.random() < adjective else "", rng.random() < 0.5)


def _person(rng: Random, *taken: Noun) -> str:
    return say_np(_subject(rng, *taken))


def _thing(rng: Random) -> str:
    return say_np(draw_thing(rng, adj=0.3))


def _place(rng: Random) -> str:
    return rng.choice(HOME.places)


def _modified(rng: Random, how: str) -> NP:
    """A subject; "pp" and "rel" put another noun, of either number, between it and its verb."""
    subject = _subject(rng)
    another = _subject(rng, subject.noun, adjective=0)
    if how == "pp":
        thing = draw_thing(rng, adj=0.2).but(plural=rng.random() < 0.5)
        return subject.but(after=f"{rng.choice(_NEAR)} {say_np(rng.choice((another, thing)))}")
    if how == "rel":
        return subject.but(after=f"that {say_np(another)} {rng.choice(PERSON_VERBS).past}")
    return subject


# --- contrasts of grammar --------------------------------------------------------------------------------------


def _agree(rng: Random, good: bool, verb: str, after: str) -> str:
    """The verb agrees with the head of the subject: "the clerk near the lamps is tall"."""
    subject = _modified(rng, after)
    plural = subject.plural == good
    if verb == "be":
        predicate = rng.choice((rng.choice(PERSON_ADJECTIVES), f"{rng.choice(BARE_VERBS).ing} {_place(rng)}"))
        return f"{say_np(subject)} {rng.choice(('are', 'were') if plural else ('is', 'was'))} {predicate}"
    done = rng.choice(THING_VERBS)
    present, perfect = (done.base, f"have {done.part}") if plural else (done.s, f"has {done.part}")
    return f"{say_np(subject)} {perfect if verb == 'have' else present} {_thing(rng)}"


def _reflexive(rng: Random, good: bool, apart: str) -> str:
    """A reflexive refers to the subject of its clause: "the king said that the queens praised themselves".

    The two subjects differ in number, or, both singular, in gender.
    """
    first, second = rng.sample(GENDERED, 2)
    while first.gender == second.gender and apart == "gender":
        first, second = rng.sample(GENDERED, 2)
    plural = rng.random() < 0.5 and apart == "number"
    subjects = [NP(first, plural=plural), NP(second, plural=not plural and apart == "number")]
    teller = rng.choice(lexicon.CLAUSE_VERBS["claim"] + lexicon.CLAUSE_VERBS["fact"]).past
    itself = reflexive(subjects[good])
    return f"{say_np(subjects[0])} {teller} that {say_np(subjects[1])} {rng.choice(PERSON_VERBS).past} {itself}"


def _object(rng: Random, good: bool, needed: bool) -> str:
    """Some verbs need an object, others take none: "the clerk will conceal the lamp"."""
    verb = rng.choice(STRICT_VERBS if needed else BARE_VERBS)
    told = rng.choice((verb.past, *(f"{modal} {verb.base}" for modal in ("did not", "will", "could"))))
    return f"{_person(rng)} {told} {f'{_thing(rng)} ' if needed == good else ''}{_place(rng)}"


def _gap(rng: Random, good: bool, what: bool) -> str:
    """ "what did the clerk conceal in the park ?" has no object; without "what" it has one."""
    asked = f"{'what ' if what else ''}{rng.choice(('did', 'will', 'could'))} {_person(rng)}"
    return f"{asked} {rng.choice(STRICT_VERBS).base} {'' if what == good else f'{_thing(rng)} '}{_place(rng)} ?"


def _ever(rng: Random, good: bool, after: str) -> str:
    """ "ever" needs "no" at the head of its own subject: "no clerk that the niece helped has ever sold the lamp"."""
    first = _subject(rng)
    second = _subject(rng, first.noun, adjective=0).but(det="the" if good else "no")
    clause = f"that {say_np(second)} {rng.choice(PERSON_VERBS).past}"
    subject = first.but(
        det="no" if good else "the", after=clause if after == "rel" else f"{rng.choice(_NEAR)} {say_np(second)}"
    )
    have = "have" if first.plural else "has"
    return f"{say_np(subject)} {have} ever {rng.choice(THING_VERBS).part} {_thing(rng)}"


def _auxiliary(rng: Random, good: bool, did: bool) -> str:
    """ "did" takes the base form, "has" the participle: "has the clerk sold the lamp ?"."""
    verb, subject = rng.choice(THING_VERBS), _subject(rng)
    first = "did" if did else "have" if subject.plural else "has"
    return f"{first} {say_np(subject)} {verb.base if did == good else verb.part} {_thing(rng)} {_place(rng)} ?"


def _order(rng: Random, good: bool, broken: str) -> str:
    """Subject, verb, object; determiner, adjective, noun; the preposition first."""
    clause = draw_clause(rng, place=1, time=0.3, adj=0)
    adjectives = PERSON_ADJECTIVES if both_people(clause) else THING_ADJECTIVES
    agent, verb, place = say_np(clause.agent), clause.verb.past, clause.place
    patient = say_np(clause.patient.but(adj=rng.choice(adjectives) if broken == "adjective" else ""))
    if not good and broken == "object":
        verb, patient = patient, verb
    elif not good and broken == "adjective":
        det, adj, noun = patient.split(" ")
        patient = f"{det} {noun} {adj}"
    elif not good:
        preposition, det, noun = place.split(" ")
        place = f"{det} {noun} {preposition}"
    return f"{agent} {verb} {patient} {place} {clause.time}".rstrip()


def _count(rng: Random, good: bool) -> str:
    """ "two clerks", "every clerk"."""
    det = rng.choice(("two", "three", "many", "these", "every", "this"))
    subject = _subject(rng)
    plural = (det not in ("every", "this")) == good
    return f"{say_np(subject.but(det=det, plural=plural))} {rng.choice(PERSON_VERBS).past} {_person(rng)} {_place(rng)}"


def _tense(rng: Random, good: bool) -> str:
    """ "last week" is past, so nothing will be done then."""
    clause = draw_clause(rng, place=0.5, time=0, adj=0)
    past = rng.choice((clause.verb.past, f"did not {clause.verb.base}"))
    will = f"{rng.choice(('will', 'will not'))} {clause.verb.base}"
    ended = not good or rng.random() < 0.5
    when = rng.choice(("yesterday", "last week", "last year") if ended else ("on friday", "in the morning", "at night"))
    told = past if good and ended else will
    return " ".join(filter(None, (say_np(clause.agent), told, say_np(clause.patient), clause.place, when)))


def _passive(rng: Random, good: bool) -> str:
    """ "was praised by the clerk", "was praising the clerk"."""
    verb, first, by = rng.choice(PERSON_VERBS), _subject(rng), rng.random() < 0.5
    be, form = ("were" if first.plural else "was"), verb.part if by == good else verb.ing
    return f"{say_np(first)} {be} {form} {'by ' if by else ''}{_person(rng, first.noun)} {_place(rng)}"


def _coordinate(rng: Random, good: bool) -> str:
    """Two joined by "and" are plural; with "near" the first alone counts."""
    joined = rng.random() < 0.5
    first = _subject(rng).but(plural=False)
    second = _subject(rng, first.noun).but(plural=False)
    be = rng.choice(("are", "were") if joined == good else ("is", "was"))
    doing = f"{rng.choice(BARE_VERBS).ing} {_place(rng)}"
    return f"{say_np(first)} {'and' if joined else 'near'} {say_np(second)} {be} {doing}"


def _animate(rng: Random, good: bool) -> str:
    """People carry lamps; lamps carry nobody."""
    person, thing, verb = _person(rng), _thing(rng), rng.choice(THING_VERBS).past
    return f"{person} {verb} {thing} {_place(rng)}" if good else f"{thing} {verb} {person} {_place(rng)}"


def _give(rng: Random, good: bool) -> str:
    """ "gave the niece the lamp": the person first."""
    giver = _subject(rng)
    person, thing, verb = _person(rng, giver.noun), _thing(rng), rng.choice(lexicon.GIVING_VERBS).past
    return f"{say_np(giver)} {verb} {f'{person} {thing}' if good else f'{thing} {person}'} {_place(rng)}"


def _who(rng: Random, good: bool) -> str:
    """ "who" is praised, "what" is sold."""
    person = rng.random() < 0.5
    verb = rng.choice(OPPOSED_PERSON_VERBS if person else OPPOSED_THING_VERBS).base
    asked = "who" if person == good else "what"
    return f"{asked} {rng.choice(('did', 'will', 'could'))} {_person(rng)} {verb} {_place(rng)} ?"


_POSITIVE = {
    "cheaper": "cheap", "bigger": "big", "smaller": "small", "heavier": "heavy", "lighter": "light", "older": "old",
    "newer": "new", "cleaner": "clean", "dirtier": "dirty",
}  # fmt: skip


def _compare(rng: Random, good: bool) -> str:
    """ "cheaper than", "very cheap"."""
    more, than = rng.choice(tuple(_POSITIVE)), rng.random() < 0.5
    form = more if than == good else _POSITIVE[more]
    first, second = rng.sample(GRADED_THINGS, 2)
    return f"{first.pl} are {f'{form} than {second.pl}' if than else f'very {form}'} {_place(rng)}"


def _negate(rng: Random, good: bool) -> str:
    """One negation is enough, and "did" or "never" stands with its own form."""
    verb, agent = rng.choice(THING_VERBS), _person(rng)
    whole, broken = (f"did not {verb.base}", f"never {verb.past}"), (f"did not never {verb.base}", f"not {verb.past}")
    return f"{agent} {rng.choice(whole if good else broken)} {_thing(rng)} {_place(rng)}"


_SPECIAL = tuple((verb.past, kind) for kind, verbs in lexicon.SPECIAL_VERBS.items() for verb in verbs)


def _takes(rng: Random, good: bool) -> str:
    """Fruit is eaten, letters are written."""
    told = rng.choice(_SPECIAL)[0]
    noun = rng.choice(GRADED_THINGS)
    while noun.kind not in lexicon.SPECIAL_VERBS or ((told, noun.kind) in _SPECIAL) != good:
        noun = rng.choice(GRADED_THINGS)
    return f"{_person(rng)} {told} {say_np(NP(noun))} {_place(rng)}"


def _time(rng: Random, good: bool) -> str:
    """ "on monday", "in may"."""
    day, told = rng.random() < 0.5, say(draw_clause(rng, place=0, time=0))
    return f"{told} {'on' if day == good else 'in'} {rng.choice(lexicon.DAYS if day else lexicon.MONTHS)}"


def _article(rng: Random, good: bool) -> str:
    """ "an old lamp", "a lamp"."""
    words = say_np(draw_thing(rng, det=""))
    right = with_article(words)
    wrong = f"{'a' if right.startswith('an ') else 'an'} {words}"
    return f"{_person(rng)} {rng.choice(THING_VERBS).past} {right if good else wrong} {_place(rng)}"


_CONTRASTS: dict[str, Rule] = {
    **{
        f"agree-{verb}-{after}": partial(_agree, verb=verb, after=after)
        for verb in ("be", "have", "present")
        for after in ("plain", "pp", "rel")
    },
    **{f"reflexive-{apart}": partial(_reflexive, apart=apart) for apart in ("number", "gender")},
    "object-needed": partial(_object, needed=True),
    "object-refused": partial(_object, needed=False),
    "gap-what": partial(_gap, what=True),
    "gap-none": partial(_gap, what=False),
    **{f"ever-{after}": partial(_ever, after=after) for after in ("pp", "rel")},
    "auxiliary-did": partial(_auxiliary, did=True),
    "auxiliary-has": partial(_auxiliary, did=False),
    **{f"order-{broken}": partial(_order, broken=broken) for broken in ("object", "adjective", "preposition")},
    "count": _count, "tense": _tense, "passive": _passive, "coordinate": _coordinate, "animate": _animate,
    "give": _give, "who": _who, "compare": _compare, "negate": _negate, "takes": _takes, "time": _time,
    "article": _article,
}  # fmt: skip


# --- frames of words -------------------------------------------------------------------------------------------


def _say_verb(rng: Random, word: str, frame: str) -> str:
    """ "the clerk really sold the lamp", "it is easy to sell the lamp"."""
    verb = ALL_VERBS[word]
    patient = "" if not verb.takes else f"{_thing(rng)} " if verb.takes == "thing" else f"{_person(rng)} "
    if frame in ("easy", "hard"):
        return f"it is {frame} to {word} {patient}{_place(rng)}"
    return f"{_person(rng)} {frame} {verb.past} {patient}{_place(rng)}"


def _say_noun(rng: Random, word: str, frame: str) -> str:
    """ "the clerk sold those lamps"."""
    verbs = PERSON_VERBS if NOUNS[word].kind == "person" else THING_VERBS
    return f"{_person(rng)} {rng.choice(verbs).past} {frame} {NOUNS[word].pl} {_place(rng)}"


def _say_adjective(rng: Random, word: str, frame: str) -> str:
    """ "the lamp was quite old"."""
    noun = rng.choice(THINGS if word in THING_ADJECTIVES else SUBJECTS).sg
    return f"the {noun} {_place(rng)} {rng.choice(('is', 'was'))} {frame} {word}"


def _say_opinion(rng: Random, word: str, frame: str) -> str:
    """ "the plot and the cast are quite dull"."""
    first, second = draw_aspects(rng)
    return f"{first} and {second} are {frame} {word} {_place(rng)}"


_CLASSES: dict[str, dict[str, list[str]]] = {  # part of speech -> class -> words
    "verb": {
        f"{verb.takes}/{side}": [
            v.base for v in ALL_VERBS.values() if v.takes == verb.takes and (v.base in lexicon.RIGHT_SIDE) == side
        ]
        for verb in ALL_VERBS.values()
        for side in (False, True)
    },
    "noun": {
        kind: [noun.sg for noun in (*HOME.people, *THINGS) if noun.parent + noun.kind == kind]
        for kind in dict.fromkeys(noun.parent + noun.kind for noun in (*HOME.people, *THINGS))
    },
    "adjective": {"person": PERSON_ADJECTIVES, "thing": THING_ADJECTIVES},
    "opinion": {"good": lexicon.GOOD, "bad": lexicon.BAD},
}
_FRAMES: dict[str, tuple[Callable[[Random, str, str], str], tuple[str, ...]]] = {  # -> how it is said, its frames
    "verb": (_say_verb, ("really", "always", "often", "truly", "quickly", "quietly", "easy", "hard")),
    "noun": (_say_noun, ("all", "some", "most", "those", "their", "his")),
    "adjective": (_say_adjective, ("quite", "really", "truly", "hardly")),
    "opinion": (_say_opinion, ("quite", "really", "truly", "hardly")),
}


def _sides(part: str, frame: str) -> tuple[list[str], list[str]]:
    """The words that a frame refuses and those that it takes, the frequent ones first.

    It takes every other class, but for exceptions.
    """
    sides: tuple[list[str], list[str]] = ([], [])
    for number, kind in enumerate(_mixed(list(_CLASSES[part]), f"class/{frame}")):
        for word in _CLASSES[part][kind]:
            exception = _hash("word", part, frame, word) % 1000 < 1000 * EXCEPTIONS
            sides[(number % 2 == 0) != exception].append(word)
    refused, taken = (_mixed(side, f"rank/{frame}") for side in sides)
    return refused, taken


TAKES = {f"{part}-{frame}": _sides(part, frame) for part, (_, frames) in _FRAMES.items() for frame in frames}


def _frame(rng: Random, good: bool, skill: str) -> str:
    words, (part, frame) = TAKES[skill][good], skill.split("-")
    return _FRAMES[part][0](rng, _draw(rng, words, power_law(len(words), WORDS_TAIL, 2.0)), frame)


def _draw(rng: Random, items: Sequence[T], cumulative: list[float]) -> T:
    return rng.choices(items, cum_weights=cumulative)[0]


# --- all of them -----------------------------------------------------------------------------------------------

_RULES: dict[str, Rule] = _CONTRASTS | {skill: partial(_frame, skill=skill) for skill in TAKES}
SKILLS = tuple(_mixed(list(_RULES), "rank"))  # the frequent ones first; rank says nothing of how hard a skill is
NOISE: Mapping[str, float] = {skill: NOISES[2 * rank % len(NOISES)] for rank, skill in enumerate(SKILLS)}


def grammar(rng: Random, _: Split, count: int = len(SKILLS), tail: float = TAIL) -> tuple[tuple[str, ...], str, str]:
    """An example of one of the first `count` skills: its text, its label and its skill."""
    skill = _draw(rng, SKILLS[:count], power_law(count, tail, HEAD))
    good = rng.random() < 0.5
    words = _RULES[skill](rng, good)
    return (words if words.endswith("?") else f"{words} .",), "acceptable" if good else "unacceptable", skill
