"""The pocket suite's documents: named entities and questions whose evidence stands far from where it is needed.

    from common import pocket
    pocket.generate("ner", "test", size=10)      # {"text": [...], "label": [["O", "B-PER", ...], ...], "id": [...]}
    pocket.generate("hotpot", "test", size=10)   # {"question": [...], "context": [...], "label": [{"text": ...}, ...]}

Three tasks, made of the words and frames of the others (`common.grammar`); `common.pocket` serves them beside those.

    ner     tags for PER, LOC and ORG. A document opens with its entities, one sentence each ("paris vera is a tall
            surgeon ."), and in its first quarter mostly says again what they are ("the surgeon paris vera"); after that
            only the names stand, in sentences that fit all three types. A name has a usual type, which it keeps in
            `USUAL` of the documents: what a reader of the rest can guess
    squad   a question about one of a paragraph's sentences, among others with its roles swapped, its verb opposed,
            or its words in other company
    hotpot  a question over two facts: who did something to whom, and where that person is from. The facts stand in
            the outer thirds of a document, a thousand words apart. Evaluation questions all need both; so does a third
            of the training questions, the others ask for one of the facts (as the easy level of the real HotpotQA)

Documents of ner and hotpot for evaluation have `LONG` words. Of the training documents the share `WHOLE` is as long;
the others are `SHORT`, the shorter the more of them, as in real collections, which also makes learning cheap.
Text: words and punctuation between blanks; for ner, sentences between line ends. Every sentence belongs to the split,
by the hash of `pocket.in_split`, so no sentence or question of one split is in another.
Noise: in training, the share `NOISE` of the mentions of ner has another type, and of the questions the answer that is
true of another sentence: less than in the other tasks, since looking something up is learnt late, and from what is
there to be found. Evaluation data are clean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log
from random import Random
from typing import Any, NamedTuple, TypeVar

from common.pocket import lexicon
from common.pocket.grammar import (
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
from common.pocket.lexicon import Noun

COLUMNS = {"ner": ("text",), "squad": ("question", "context"), "hotpot": ("question", "context")}
SIZES = {
    "ner": {"train": 6000, "dev": 50, "test": 100},
    "squad": {"train": 10_000, "dev": 500, "test": 1000},
    "hotpot": {"train": 20_000, "dev": 100, "test": 200},
}
LONG = (1500, 1950)  # words of an evaluation document of ner and hotpot
SHORT = {"ner": (60, 400), "hotpot": (40, 200)}  # of the short ones among the training documents
WHOLE = {"ner": 0.15, "hotpot": 0.05}  # the share of the others, which are as long as those
NOISE = 0.05  # the share of training labels that are wrong
USUAL = 0.4  # how often a name has its usual type
CHOICES = 3  # people, and as many cities, that a question of hotpot could mean
POOL = 4000  # ready sentences and frames of a split, from which what is no evidence is drawn
TYPES = ("PER", "LOC", "ORG")

T = TypeVar("T")
Owned = Callable[[str], bool]  # whether the split owns a sentence


@dataclass(frozen=True)
class Document:
    """One example. For ner: a tag for each word, and each mention's first word and number of words. For questions:
    the spans (words, offset in characters) that could be taken for the answer; the first is it."""

    text: str
    tags: tuple[str, ...] = ()
    mentions: tuple[tuple[int, int], ...] = ()
    question: str = ""
    spans: tuple[tuple[str, int], ...] = ()


def generate(task: str, split: str, size: int, seed: int, noise: float, owned: Owned) -> dict[str, list[Any]]:
    """Columns of one split; `owned` says which sentences are the split's, `noise` how often an annotator errs."""
    name = f"{task}/{split}/{seed}"
    write = _WRITERS[task](name, owned, short=split == "train")
    rng, annotator = Dice(name), Random(f"annotator/{name}")
    columns: dict[str, list[Any]] = {column: [] for column in (*COLUMNS[task], "label", "id")}
    for number in range(size):
        row = annotate(annotator, write.document(rng), noise)
        columns["id"].append(f"{task}-{split}-{seed}-{number}")
        if task == "ner":
            columns["text"].append(row.text)
            columns["label"].append(list(row.tags))
        else:
            words, start = row.spans[0]
            columns["question"].append(row.question)
            columns["context"].append(row.text)
            columns["label"].append({"text": [words], "answer_start": [start]})
    return columns


def annotate(rng: Random, document: Document, noise: float) -> Document:
    """The document as an annotator labels it, who errs in the share `noise` of the mentions or questions."""
    if document.question:
        wrong = rng.random() < noise
        return replace(document, spans=(rng.choice(document.spans[1:]),)) if wrong else document
    tags = list(document.tags)
    for first, count in document.mentions:
        if rng.random() < noise:
            tags[first : first + count] = _tags(other(rng, TYPES, tags[first][2:]), count)
    return replace(document, tags=tuple(tags))


def _words(sentence: str) -> int:
    return sentence.count(" ") + 1


def _until(draw: Callable[[], str], owned: Owned) -> str:
    """A sentence, drawn until it is owned; at least every eighth is."""
    while not owned(sentence := draw()):
        pass
    return sentence


class _Writer:
    """Writes the documents of one split of a task."""

    def __init__(self, name: str, owned: Owned, short: bool) -> None:
        rng = Dice(f"{name}/filler")
        self.owned, self.short, self.task = owned, short, name.split("/")[0]
        # sentences without a name or a city
        self.filler = [_until(lambda: f"{say(draw_clause(rng))} .", owned) for _ in range(POOL)]

    def document(self, rng: Random) -> Document:
        raise NotImplementedError

    def length(self, rng: Random) -> int:
        """How many words a document is to have."""
        if not self.short or rng.random() < WHOLE[self.task]:
            return rng.randint(*LONG)
        low, high = SHORT[self.task]
        return round(exp(rng.uniform(log(low), log(high))))


# --- named entities ------------------------------------------------------------------------------------------

_USUALLY = {
    "PER": (*lexicon.NAMES_F, *lexicon.NAMES_M, *lexicon.NAMES_ELSEWHERE),
    "LOC": (*lexicon.CITIES_NEAR, *lexicon.CITIES_FAR, *lexicon.CITIES_ELSEWHERE),
    "ORG": tuple(noun.sg for kind in ("bird", "jewel", "flower", "horse", "fish") for noun in lexicon.CHILDREN[kind]),
}
# What an entity of each type is, in words that no other sentence has, and how that may be qualified
_KINDS = {
    "PER": (("pilot", "sailor", "singer", "tailor", "waiter"), lexicon.PERSON_ADJECTIVES),
    "LOC": (("airport", "forest", "harbor", "island", "lighthouse"), lexicon.THING_ADJECTIVES),
    "ORG": (("band", "hotel", "museum", "restaurant", "theater"), lexicon.THING_ADJECTIVES),
}
_HOLE = NP(Noun("{}", "{}", "person"), "")


def _tags(kind: str, count: int) -> list[str]:
    return [f"B-{kind}", *[f"I-{kind}"] * (count - 1)]


class _Entities(_Writer):
    """Writes the documents of ner."""

    def __init__(self, name: str, owned: Owned, short: bool) -> None:
        super().__init__(name, owned, short)
        rng = Dice(f"{name}/frames")
        self.frames = [self._frame(rng) for _ in range(POOL)]

    @staticmethod
    def _frame(rng: Random) -> str:
        """A sentence with a place for a name of any type."""
        clause = draw_clause(rng)
        clause = clause.but(agent=_HOLE) if rng.random() < 0.4 else clause.but(patient=_HOLE)
        return f"{say(clause, passive=rng.random() < 0.2, fronted=rng.random() < 0.3)} ."

    def document(self, rng: Random) -> Document:
        length = self.length(rng)
        entities = self._entities(rng, rng.randint(4, 6))
        sentences, tags, mentions = [], [], []  # type: ignore[var-annotated]

        def add(sentence: str, name: str = "", kind: str = "") -> None:
            if name:
                before = f" {sentence}".partition(f" {name} ")[0].count(" ")
                mentions.append((len(tags) + before, _words(name)))
                after = _words(sentence) - before - _words(name)
                tags.extend([*["O"] * before, *_tags(kind, _words(name)), *["O"] * after])
            else:
                tags.extend(["O"] * _words(sentence))
            sentences.append(sentence)

        for name, kind in entities:
            add(_until(partial(self._introduction, rng, name, kind), self.owned), name, kind)
        while len(tags) < length:
            early = len(tags) < length / 4
            if rng.random() < (0.4 if early else 0.3):
                add(rng.choice(self.filler))
                continue
            name, kind = rng.choice(entities)
            told = f"the {rng.choice(_KINDS[kind][0])} {name}" if early and rng.random() < 0.8 else name
            add(_until(lambda told=told: rng.choice(self.frames).format(told), self.owned), name, kind)  # type: ignore[misc]
        return Document("\n".join(sentences), tuple(tags), tuple(mentions))

    @staticmethod
    def _entities(rng: Random, count: int) -> list[tuple[str, str]]:
        """Names of one or two words and their types; no word is in two of them."""
        taken: list[str] = []
        found = []
        for _ in range(count):
            usual = rng.choice(TYPES)
            words = [other(rng, _USUALLY[usual], *taken)]
            if rng.random() < 0.35:
                words.append(other(rng, _USUALLY[rng.choice(TYPES)], *taken, *words))
            taken += words
            found.append((" ".join(words), usual if rng.random() < USUAL else other(rng, TYPES, usual)))
        return found

    @staticmethod
    def _introduction(rng: Random, name: str, kind: str) -> str:
        nouns, adjectives = _KINDS[kind]
        place = f" {rng.choice(HOME.places)}" if rng.random() < 0.5 else ""
        return f"{name} is {with_article(f'{rng.choice(adjectives)} {rng.choice(nouns)}')}{place} ."


# --- questions -----------------------------------------------------------------------------------------------


def _passage(told: list[tuple[str, str]]) -> tuple[str, dict[str, int]]:
    """Sentences with the answer that each holds ("" for none): their text, and every answer's offset in it."""
    text, found = "", {}
    for sentence, answer in told:
        if answer and answer not in found:
            found[answer] = len(text) + f" {sentence}".index(f" {answer} ")
        text += f"{sentence} "
    return text.rstrip(), found


def spread(rng: Random, facts: list[list[T]], rest: list[T]) -> tuple[list[T], list[T], list[T]]:
    """The thirds of a document: facts of one kind in the first, of the other in the last, among the rest."""
    third = len(rest) // 3
    first, last = facts[0] + rest[:third], facts[1] + rest[len(rest) - third :]
    rng.shuffle(first)
    rng.shuffle(last)
    return first, rest[third : len(rest) - third], last


class _Deed(NamedTuple):
    """What someone did to a person: the sentence, and the questions for the person and for the person's city."""

    told: str
    deed: str  # the clause without the person
    whom: str
    both: str


class Person(NamedTuple):
    """What a document of hotpot tells of a person, and what can be asked: with what the answer is."""

    name: str
    city: str
    clause: str  # the deed without the person
    deed: str
    origin: str
    whom: str  # for the name, by the deed
    where: str  # for the city, by the name
    both: str  # for the city, by the deed


def people(size: int, seed: int, owned: Owned) -> list[list[Person]]:
    """The people of so many documents of hotpot, without the rest of the document."""
    name = f"hotpot/people/{seed}"
    write, rng = _TwoFacts(name, owned, short=True), Dice(name)
    return [write.people(rng) for _ in range(size)]


class _TwoFacts(_Writer):
    """Writes the documents of hotpot."""

    def people(self, rng: Random) -> list[Person]:
        """Those of one document, and what is told of them."""
        names, cities = rng.sample(HOME.names, CHOICES), rng.sample(HOME.cities, CHOICES)
        doers: list[Noun] = []
        deeds = [self._deed(rng, doers, name) for name in names]
        origins = [_until(partial(self._origin, rng, n, c), self.owned) for n, c in zip(names, cities, strict=True)]
        return [
            Person(name.sg, city, deed.deed, deed.told, origin, deed.whom, self._where(name.sg), deed.both)
            for name, city, deed, origin in zip(names, cities, deeds, origins, strict=True)
        ]

    def document(self, rng: Random) -> Document:
        length = self.length(rng)
        people = self.people(rng)
        asked = people[0]
        kind = rng.random() if self.short else 0.0
        named = kind >= 2 / 3
        question = asked.both if kind < 1 / 3 else asked.whom if named else asked.where
        deeds = [(person.deed, person.name if named else "") for person in people]
        facts = [deeds, [(person.origin, "" if named else person.city) for person in people]]
        if rng.random() < 0.5:
            facts.reverse()
        rest: list[tuple[str, str]] = []
        count = sum(_words(sentence) for group in facts for sentence, _ in group)
        while count < length:
            sentence = rng.choice(self.filler)
            if asked.clause not in sentence:  # nobody else is the person of whom is asked
                rest.append((sentence, ""))
                count += _words(sentence)
        text, found = _passage([told for part in spread(rng, facts, rest) for told in part])
        answers = [person.name if named else person.city for person in people]
        return Document(text, question=question, spans=tuple((words, found[words]) for words in answers))

    @staticmethod
    def _where(person: str) -> str:
        return f"where is {person} from ?"

    def _deed(self, rng: Random, doers: list[Noun], person: Noun) -> _Deed:
        """What someone, who is added to `doers`, did to a person, told and asked for in sentences of the split."""
        while True:
            # of one doer, all questions may be another split's
            doer, verb = other(rng, HOME.people, *doers), rng.choice(OPPOSED_PERSON_VERBS)
            told = f"{say(Clause(NP(doer), verb, NP(person, ''), rng.choice(HOME.places)))} ."
            whom = f"who did the {doer.sg} {verb.base} ?"
            deed = f"the {doer.sg} {verb.past}"
            both = self._where(f"the person who {deed}")
            if self.owned(told) and self.owned(whom) and self.owned(both):
                doers.append(doer)
                return _Deed(told, deed, whom, both)

    @staticmethod
    def _origin(rng: Random, person: Noun, city: str) -> str:
        clause = Clause(NP(person, "", after=f"from {city}"), rng.choice(BARE_VERBS), place=rng.choice(HOME.places))
        return f"{say(clause)} {rng.choice(HOME.times)} ."


class _Paragraphs(_Writer):
    """Writes the documents of squad."""

    def document(self, rng: Random) -> Document:
        while (made := self._try(rng)) is None:
            pass
        return made

    def _try(self, rng: Random) -> Document | None:
        slot = rng.choice(("agent", "agent", "patient", "patient", "place", "time"))
        clause = draw_clause(rng, people=0.75, place=1, time=1, adj=0.15)
        question = ask(rng, reword(rng, clause, share=0.2), slot)
        if not self.owned(question):
            return None
        # the same people the other way round, what else they did and had done to them, and others who did the same
        strangers = [self._stranger(rng, clause) for _ in range(3)]
        others = [
            swap_roles(clause) if both_people(clause) else strangers[0],
            strangers[0].but(verb=opposite(rng, clause.verb), patient=clause.patient),
            strangers[1].but(verb=opposite(rng, clause.verb), agent=clause.agent),
            strangers[2].but(verb=clause.verb),
        ]
        answer = self._part(clause, slot)
        told = [(self._tell(rng, clause), answer)]
        if not told[0][0]:
            return None  # none of its wordings is the split's
        for event in others:
            if sentence := self._tell(rng, event):
                part = self._part(event, slot)
                told.append((sentence, "" if part == answer else part))
        known = {clause.agent.noun.sg, clause.patient.noun.sg}
        while len(told) < 8 or rng.random() < 0.7:
            sentence = rng.choice(self.filler)
            if known.isdisjoint(sentence.split()):
                told.append((sentence, ""))
        rng.shuffle(told)
        text, found = _passage(told)
        wrong = [part for part in found if part != answer]
        spans = tuple((part, found[part]) for part in (answer, *wrong))
        return Document(text, question=question, spans=spans) if wrong else None

    @staticmethod
    def _stranger(rng: Random, clause: Clause) -> Clause:
        """A clause of the same kind about none of the same."""
        known = (clause.agent.noun, clause.patient.noun)
        while True:
            made = draw_clause(rng, people=float(both_people(clause)), place=1, time=1, adj=0.15)
            if not any(same_meaning(a, b) for a in known for b in (made.agent.noun, made.patient.noun)):
                return made

    def _tell(self, rng: Random, event: Clause) -> str:
        def draw() -> str:
            return f"{say(event, passive=rng.random() < 0.3, fronted=rng.random() < 0.3)} ."

        return next((sentence for _ in range(20) if self.owned(sentence := draw())), "")

    @staticmethod
    def _part(event: Clause, slot: str) -> str:
        """The words that a question for this slot asks for."""
        part = getattr(event, slot)
        return say_np(part) if isinstance(part, NP) else part


_WRITERS: dict[str, type[_Writer]] = {"ner": _Entities, "squad": _Paragraphs, "hotpot": _TwoFacts}
