"""The pocket suite's long documents: named entities and questions whose evidence stands far from where it is needed.

    ner     tags for PER, LOC and ORG. A document opens with its entities, one sentence each ("paris vera is a tall
            surgeon ."). Its first quarter mostly says again what they are ("the surgeon paris vera"); after that only
            the names stand, in sentences that fit all three types. A name has its usual type in the share `USUAL` of
            the documents, which is what can be guessed without the evidence
    squad   a question about one sentence of a paragraph, among others with its roles swapped, its verb opposed, or its
            words in other company
    hotpot  a question over two facts: who did something to whom, and where that person is from. The facts stand in
            the outer thirds of a document, more than 512 words apart. Evaluation questions all need both, and so does a
            third of the training questions; the others ask for one fact (as the easy level of the real HotpotQA)

Evaluation documents of ner and hotpot have `LONG` words. Of the training documents the share `WHOLE` is as long; the
others are `SHORT`, the shorter the more of them: as in real collections, and learning is cheap. Words and punctuation
stand between blanks, the sentences of ner between line ends; every sentence belongs to the split. Annotators err in
the share `NOISE` of the mentions (another type) and questions (the answer of another sentence): less than in the other
tasks, since looking something up is learnt late, and only from answers that can be found.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import exp, log
from random import Random
from typing import Any, NamedTuple, TypeVar

from pocket import lexicon
from pocket.grammar import (
    BARE_VERBS,
    HOME,
    NP,
    OPPOSED_PERSON_VERBS,
    Clause,
    Dice,
    ask,
    both_people,
    draw_clause,
    opposite,
    other,
    reword,
    same_meaning,
    say,
    say_np,
    swap_roles,
    with_article,
)
from pocket.lexicon import Noun
from pocket.splits import Split

LONG = (1500, 1950)  # words of an evaluation document of ner and hotpot
SHORT = {"ner": (60, 400), "hotpot": (40, 200)}  # words of a short training document
WHOLE = {"ner": 0.15, "hotpot": 0.05}  # the share of training documents that are as long as those of evaluation
NOISE = 0.05  # the share of training labels that are wrong
USUAL = 0.4  # how often a name has its usual type
CHOICES = 3  # people, and as many cities, that a question of hotpot could mean
POOL = 4000  # ready sentences of a split, from which the text around the evidence is drawn
TYPES = ("PER", "LOC", "ORG")

T = TypeVar("T")
Mention = tuple[int, int]  # the first word and the number of words
Span = tuple[str, int]  # the words and their offset in characters
Told = tuple[str, str]  # a sentence, and the answer that it holds ("": none)


def _length(rng: Random, split: Split) -> int:
    """How many words a document is to have."""
    if split.name != "train" or rng.random() < WHOLE[split.task]:
        return rng.randint(*LONG)
    low, high = SHORT[split.task]
    return round(exp(rng.uniform(log(low), log(high))))


def _words(sentence: str) -> int:
    return sentence.count(" ") + 1


@lru_cache(maxsize=1)
def _fillers(split: Split) -> list[str]:
    """Sentences of the split without a name or a city."""
    rng = Dice(f"{split.stream}/filler")
    return [split.sentence(lambda: f"{say(draw_clause(rng))} .") for _ in range(POOL)]


# --- named entities ------------------------------------------------------------------------------------------

_USUALLY = {
    "PER": (*lexicon.NAMES_F, *lexicon.NAMES_M, *lexicon.NAMES_ELSEWHERE),
    "LOC": (*lexicon.CITIES_NEAR, *lexicon.CITIES_FAR, *lexicon.CITIES_ELSEWHERE),
    "ORG": tuple(noun.sg for kind in ("bird", "jewel", "flower", "horse", "fish") for noun in lexicon.CHILDREN[kind]),
}
# What an entity of each type is, in words that no other sentence has, and how that may be qualified
KINDS = {
    "PER": (("pilot", "sailor", "singer", "tailor", "waiter"), lexicon.PERSON_ADJECTIVES),
    "LOC": (("airport", "forest", "harbor", "island", "lighthouse"), lexicon.THING_ADJECTIVES),
    "ORG": (("band", "hotel", "museum", "restaurant", "theater"), lexicon.THING_ADJECTIVES),
}
_HOLE = NP(Noun("{}", "{}", "person"), "")


def ner(rng: Random, split: Split) -> tuple[tuple[str], tuple[list[str], list[Mention]]]:
    """A document; a tag for each of its words, and its mentions."""
    length = _length(rng, split)
    entities = _entities(rng, rng.randint(4, 6))
    sentences: list[str] = []
    tags: list[str] = []
    mentions: list[Mention] = []

    def add(sentence: str, name: str = "", kind: str = "") -> None:
        row = ["O"] * _words(sentence)
        if name:
            first = f" {sentence}".partition(f" {name} ")[0].count(" ")
            row[first : first + _words(name)] = _tags(kind, _words(name))
            mentions.append((len(tags) + first, _words(name)))
        tags.extend(row)
        sentences.append(sentence)

    for name, kind in entities:
        add(split.sentence(partial(_introduction, rng, name, kind)), name, kind)
    while len(tags) < length:
        early = len(tags) < length / 4
        if rng.random() < (0.4 if early else 0.3):
            add(rng.choice(_fillers(split)))
            continue
        name, kind = rng.choice(entities)
        told = f"the {rng.choice(KINDS[kind][0])} {name}" if early and rng.random() < 0.8 else name
        add(split.sentence(partial(_mention, rng, split, told)), name, kind)
    return ("\n".join(sentences),), (tags, mentions)


def mistag(rng: Random, label: tuple[list[str], list[Mention]], noise: float) -> list[str]:
    """An annotator's tags: in the share `noise` of the mentions, another type."""
    tags, mentions = list(label[0]), label[1]
    for first, count in mentions:
        if rng.random() < noise:
            tags[first : first + count] = _tags(other(rng, TYPES, tags[first][2:]), count)
    return tags


def _tags(kind: str, count: int) -> list[str]:
    return [f"B-{kind}", *[f"I-{kind}"] * (count - 1)]


def _entities(rng: Random, count: int) -> list[tuple[str, str]]:
    """Names of one or two words and their types; no word is in two of them."""
    taken: list[str] = []
    entities = []
    for _ in range(count):
        usual = rng.choice(TYPES)
        words = [other(rng, _USUALLY[usual], *taken)]
        if rng.random() < 0.35:
            words.append(other(rng, _USUALLY[rng.choice(TYPES)], *taken, *words))
        taken += words
        entities.append((" ".join(words), usual if rng.random() < USUAL else other(rng, TYPES, usual)))
    return entities


def _introduction(rng: Random, name: str, kind: str) -> str:
    nouns, adjectives = KINDS[kind]
    place = f" {rng.choice(HOME.places)}" if rng.random() < 0.5 else ""
    return f"{name} is {with_article(f'{rng.choice(adjectives)} {rng.choice(nouns)}')}{place} ."


def _mention(rng: Random, split: Split, told: str) -> str:
    return rng.choice(_frames(split)).format(told)


@lru_cache(maxsize=1)
def _frames(split: Split) -> list[str]:
    """Sentences with a place for a name of any type."""
    rng = Dice(f"{split.stream}/frames")
    return [_frame(rng) for _ in range(POOL)]


def _frame(rng: Random) -> str:
    clause = draw_clause(rng)
    clause = clause.but(agent=_HOLE) if rng.random() < 0.4 else clause.but(patient=_HOLE)
    return f"{say(clause, passive=rng.random() < 0.2, fronted=rng.random() < 0.3)} ."


# --- questions -----------------------------------------------------------------------------------------------


def misanswer(rng: Random, spans: list[Span], noise: float) -> dict[str, Any]:
    """An annotator's answer, as the hub has it: the first span, or, in the share `noise`, one of the others."""
    words, start = rng.choice(spans[1:]) if rng.random() < noise else spans[0]
    return {"text": [words], "answer_start": [start]}


def _passage(told: list[Told]) -> tuple[str, dict[str, int]]:
    """The text of these sentences, and the offset of every answer in it."""
    text, offsets = "", {}
    for sentence, answer in told:
        if answer and answer not in offsets:
            offsets[answer] = len(text) + f" {sentence}".index(f" {answer} ")
        text += f"{sentence} "
    return text.rstrip(), offsets


def spread(rng: Random, facts: list[list[T]], rest: list[T]) -> tuple[list[T], list[T], list[T]]:
    """The thirds of a document: facts of one kind in the first, of the other in the last, among the rest."""
    third = len(rest) // 3
    first, last = facts[0] + rest[:third], facts[1] + rest[len(rest) - third :]
    rng.shuffle(first)
    rng.shuffle(last)
    return first, rest[third : len(rest) - third], last


class Person(NamedTuple):
    """What a document of hotpot tells of a person, and what can be asked."""

    name: str
    city: str
    clause: str  # what was done to the person, without the person
    deed: str  # the sentence that tells it
    origin: str  # the sentence that tells where the person is from
    whom: str  # asks for the name, by the deed
    where: str  # asks for the city, by the name
    both: str  # asks for the city, by the deed


def people(size: int, seed: int) -> list[list[Person]]:
    """The people of so many training documents of hotpot, without the rest of the documents."""
    rng, split = Dice(f"hotpot/people/{seed}"), Split("hotpot", "train", seed)
    return [_people(rng, split) for _ in range(size)]


def _people(rng: Random, split: Split) -> list[Person]:
    names, cities = rng.sample(HOME.names, CHOICES), rng.sample(HOME.cities, CHOICES)
    doers: list[Noun] = []
    met = [_person(rng, split, name, city, doers) for name, city in zip(names, cities, strict=True)]
    return [
        person._replace(origin=split.sentence(partial(_origin, rng, name, person.city)))
        for person, name in zip(met, names, strict=True)
    ]


def _person(rng: Random, split: Split, name: Noun, city: str, doers: list[Noun]) -> Person:
    """What someone, who is added to `doers`, did to this person; told and asked for in sentences of the split."""
    while True:  # another doer each time: of some, all questions are another split's
        doer, verb = other(rng, HOME.people, *doers), rng.choice(OPPOSED_PERSON_VERBS)
        deed = f"{say(Clause(NP(doer), verb, NP(name, ''), rng.choice(HOME.places)))} ."
        clause = f"the {doer.sg} {verb.past}"
        whom, both = f"who did the {doer.sg} {verb.base} ?", _where(f"the person who {clause}")
        if split.owns(deed, whom, both):
            doers.append(doer)
            return Person(name.sg, city, clause, deed, "", whom, _where(name.sg), both)


def _where(person: str) -> str:
    return f"where is {person} from ?"


def _origin(rng: Random, person: Noun, city: str) -> str:
    clause = Clause(NP(person, "", after=f"from {city}"), rng.choice(BARE_VERBS), place=rng.choice(HOME.places))
    return f"{say(clause)} {rng.choice(HOME.times)} ."


def hotpot(rng: Random, split: Split) -> tuple[tuple[str, str], list[Span]]:
    """A question and its document; the spans that could be taken for the answer, of which the first is it."""
    length = _length(rng, split)
    group = _people(rng, split)
    asked = group[0]
    kind = rng.random() if split.name == "train" else 0.0
    named = kind >= 2 / 3
    question = asked.both if kind < 1 / 3 else asked.whom if named else asked.where
    deeds = [(person.deed, person.name if named else "") for person in group]
    facts = [deeds, [(person.origin, "" if named else person.city) for person in group]]
    if rng.random() < 0.5:
        facts.reverse()
    fillers, rest = _fillers(split), list[Told]()
    count = sum(_words(sentence) for kind_of_fact in facts for sentence, _ in kind_of_fact)
    while count < length:
        sentence = rng.choice(fillers)
        if asked.clause not in sentence:  # no second answer
            rest.append((sentence, ""))
            count += _words(sentence)
    text, offsets = _passage([told for third in spread(rng, facts, rest) for told in third])
    answers = [person.name if named else person.city for person in group]
    return (question, text), [(words, offsets[words]) for words in answers]


def squad(rng: Random, split: Split) -> tuple[tuple[str, str], list[Span]] | None:
    """A question and its paragraph; the spans that could be taken for the answer, of which the first is it."""
    slot = rng.choice(("agent", "agent", "patient", "patient", "place", "time"))
    clause = draw_clause(rng, people=0.75, place=1, time=1, adj=0.15)
    question = ask(rng, reword(rng, clause, share=0.2), slot)
    if not split.owns(question):
        return None
    # the same people the other way round, what else they did and had done to them, and others who did the same
    strangers = [_stranger(rng, clause) for _ in range(3)]
    others = [
        swap_roles(clause) if both_people(clause) else strangers[0],
        strangers[0].but(verb=opposite(rng, clause.verb), patient=clause.patient),
        strangers[1].but(verb=opposite(rng, clause.verb), agent=clause.agent),
        strangers[2].but(verb=clause.verb),
    ]
    answer = _part(clause, slot)
    told = [(_tell(rng, split, clause), answer)]
    if not told[0][0]:
        return None
    for event in others:
        if sentence := _tell(rng, split, event):
            part = _part(event, slot)
            told.append((sentence, "" if part == answer else part))
    known = {clause.agent.noun.sg, clause.patient.noun.sg}
    while len(told) < 8 or rng.random() < 0.7:
        sentence = rng.choice(_fillers(split))
        if known.isdisjoint(sentence.split()):
            told.append((sentence, ""))
    rng.shuffle(told)
    text, offsets = _passage(told)
    spans = [(answer, offsets.pop(answer)), *offsets.items()]
    return ((question, text), spans) if len(spans) > 1 else None


def _stranger(rng: Random, clause: Clause) -> Clause:
    """A clause of the same kind about other people and things."""
    known = (clause.agent.noun, clause.patient.noun)
    while True:
        made = draw_clause(rng, people=float(both_people(clause)), place=1, time=1, adj=0.15)
        if not any(same_meaning(a, b) for a in known for b in (made.agent.noun, made.patient.noun)):
            return made


def _tell(rng: Random, split: Split, event: Clause) -> str:
    """The event in a sentence of the split; "" if none of 20 wordings is."""
    return split.sentence(
        lambda: f"{say(event, passive=rng.random() < 0.3, fronted=rng.random() < 0.3)} .",
        tries=20,
    )


def _part(event: Clause, slot: str) -> str:
    """The words that a question for this slot asks for."""
    part = getattr(event, slot)
    return say_np(part) if isinstance(part, NP) else part
