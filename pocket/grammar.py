"""The grammar of the pocket suite: meanings as small frames, drawn at random, changed by rule, said in words.

    event = draw_clause(Dice("seed"))                  # Clause(agent=NP(...), verb=..., patient=NP(...), ...)
    say(event)                                         # "the clerk praised the niece in the park"
    say(swap_roles(event), passive=True)               # "the clerk was praised by the niece in the park"
    ask(rng, event, "agent")                           # "who praised the niece ?"

A `Clause` says who did what to whom, where and when; an `NP` is one of its noun phrases. Both are tuples, which no rule
changes in place: `clause.but(place="")` is a new one. In this order: frames, groups of words, frames into words,
drawing frames, changing frames, and two kinds of whole sentences: constructions (grammatical, or broken in one place)
and opinions (good or bad).

Whatever draws from `rng` decides the generated data: another draw, or another order of draws, needs a new
`pocket.VERSION`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pocket import lexicon
from pocket.lexicon import ANTONYMS, NOUNS, SYNONYMS, VOWELS, Noun, Verb

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

USUAL = 0.82  # the share of events that take their usual course


class Dice(Random):
    """`Random` with the same `choice` in one call instead of three: it is half of the work of drawing frames."""

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        size = len(seq)
        bits = size.bit_length()
        pick = self.getrandbits(bits)
        while pick >= size > 0:
            pick = self.getrandbits(bits)
        return seq[pick]


# --- frames --------------------------------------------------------------------------------------------------


class NP(NamedTuple):
    """A noun phrase: determiner ("" for names), adjective, noun, number, and a phrase after the noun."""

    noun: Noun
    det: str = "the"
    adj: str = ""
    plural: bool = False
    after: str = ""

    def but(self, **changes: Any) -> NP:
        """The same phrase with other values of the named fields."""
        return self._replace(**changes)


NOTHING = NP(Noun("", "", ""), det="")  # the patient of a verb that has none


class Clause(NamedTuple):
    """Who (`agent`) did what (`verb`) to whom (`patient`), where and when; in the past."""

    agent: NP
    verb: Verb
    patient: NP = NOTHING
    place: str = ""
    time: str = ""
    negated: bool = False

    def but(self, **changes: Any) -> Clause:
        """The same clause with other values of the named fields."""
        return self._replace(**changes)


# --- groups of words -----------------------------------------------------------------------------------------


class Genre(NamedTuple):
    """What a kind of text talks about: its people, names, cities, places and times."""

    people: tuple[Noun, ...]
    names: tuple[Noun, ...]
    cities: tuple[str, ...]
    places: tuple[str, ...]
    times: tuple[str, ...]


def _names(words: list[str], gender: str = "") -> tuple[Noun, ...]:
    return tuple(Noun(word, word, "person", gender=gender) for word in words)


FAMILY = tuple(lexicon.FAMILY.values())
GENDERED = tuple(lexicon.GENDERED.values())
GRADED_PEOPLE = tuple(noun for noun in lexicon.PEOPLE.values() if noun.parent)  # "graded": with a hypernym
GRADED_TRADES = tuple(noun for noun in GRADED_PEOPLE if noun not in FAMILY)
GRADED_THINGS = tuple(noun for noun in lexicon.THINGS.values() if noun.parent)
THINGS = (*GRADED_THINGS, *lexicon.LOOSE_THINGS.values())
HOME = Genre(
    tuple(noun for noun in (*lexicon.ROLES.values(), *GRADED_TRADES) if noun not in FAMILY),
    _names(lexicon.NAMES_F, "f") + _names(lexicon.NAMES_M, "m"),
    (*lexicon.CITIES_NEAR, *lexicon.CITIES_FAR),
    tuple(lexicon.PLACES),
    tuple(lexicon.TIMES),
)
ELSEWHERE = Genre(
    tuple(lexicon.ROLES_ELSEWHERE.values()),
    _names(lexicon.NAMES_ELSEWHERE),
    tuple(lexicon.CITIES_ELSEWHERE),
    tuple(lexicon.PLACES_ELSEWHERE),
    tuple(lexicon.TIMES_ELSEWHERE),
)
PERSON_VERBS = tuple(lexicon.PERSON_VERBS.values())
THING_VERBS = tuple(lexicon.THING_VERBS.values())
BARE_VERBS = tuple(lexicon.BARE_VERBS.values())
ALL_VERBS = {**lexicon.BARE_VERBS, **lexicon.THING_VERBS, **lexicon.PERSON_VERBS}
STRICT_VERBS = tuple(lexicon.THING_VERBS[word] for word in lexicon.STRICT_VERBS)
OPPOSED_PERSON_VERBS = tuple(verb for verb in PERSON_VERBS if verb.base in ANTONYMS)
OPPOSED_THING_VERBS = tuple(verb for verb in THING_VERBS if verb.base in ANTONYMS)
OPPOSED_BARE_VERBS = tuple(verb for verb in BARE_VERBS if verb.base in ANTONYMS)


# --- frames into words ---------------------------------------------------------------------------------------


def with_article(words: str) -> str:
    """ "a plum", "an old plum"."""
    return f"an {words}" if words[0] in VOWELS else f"a {words}"


def say_np(np: NP) -> str:
    """The words of a noun phrase, such as "an old clock"."""
    words = np.noun.pl if np.plural else np.noun.sg
    if np.adj:
        words = f"{np.adj} {words}"
    if np.det:
        words = with_article(words) if np.det == "a" else f"{np.det} {words}"
    return f"{words} {np.after}" if np.after else words


def say(clause: Clause, passive: bool = False, fronted: bool = False) -> str:
    """The words of a clause without its full stop; `fronted` puts the time first."""
    agent, verb, patient = say_np(clause.agent), clause.verb, clause.patient
    if passive and patient is not NOTHING:
        be = "were" if patient.plural else "was"
        words = f"{say_np(patient)} {be} {'not ' if clause.negated else ''}{verb.part} by {agent}"
    else:
        words = f"{agent} did not {verb.base}" if clause.negated else f"{agent} {verb.past}"
        if patient is not NOTHING:
            words = f"{words} {say_np(patient)}"
    if clause.place:
        words = f"{words} {clause.place}"
    if clause.time:
        words = f"{clause.time} , {words}" if fronted else f"{words} {clause.time}"
    return words


def ask(rng: Random, clause: Clause, slot: str) -> str:
    """The question that one slot ("agent", "patient", "place" or "time") of a transitive clause answers."""
    agent, verb, patient = say_np(clause.agent), clause.verb, say_np(clause.patient)
    passive = rng.random() < 0.3
    if slot == "agent":
        return f"by whom was {patient} {verb.part} ?" if passive else f"who {verb.past} {patient} ?"
    if slot == "patient":
        word = "who" if both_people(clause) else "what"
        return f"{word} was {verb.part} by {agent} ?" if passive else f"{word} did {agent} {verb.base} ?"
    word = "where" if slot == "place" else "when"
    if passive:
        return f"{word} was {patient} {verb.part} by {agent} ?"
    return f"{word} did {agent} {verb.base} {patient} ?"


# --- drawing frames ------------------------------------------------------------------------------------------


def other(rng: Random, options: Sequence[T], *taken: T) -> T:
    """One of the options that is none of `taken`."""
    while True:
        pick = rng.choice(options)
        if pick not in taken:
            return pick


def usual(rng: Random) -> bool:
    """Events have a usual course (more praise than blame, more from near to far), as they do in real text."""
    return rng.random() < USUAL


def draw_role(rng: Random, people: tuple[Noun, ...], adj: float) -> NP:
    """ "the (adjective) role"."""
    return NP(rng.choice(people), "the", rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < adj else "")


def draw_thing(rng: Random, adj: float = 0.5, det: str = "the", nouns: tuple[Noun, ...] = THINGS) -> NP:
    """ "the (adjective) thing"."""
    return NP(rng.choice(nouns), det, rng.choice(lexicon.THING_ADJECTIVES) if rng.random() < adj else "")


def draw_verb(rng: Random, verbs: tuple[Verb, ...]) -> Verb:
    """A verb that has an opposite; the left of the two sides more often."""
    verb = rng.choice(verbs)
    return verb if (verb.base not in lexicon.RIGHT_SIDE) == usual(rng) else opposite(rng, verb)


def draw_clause(
    rng: Random, genre: Genre = HOME, people: float = 0.5, place: float = 0.7, time: float = 0.5, adj: float = 0.3
) -> Clause:
    """A transitive clause whose verb has an opposite; with probability `people` the patient is a person too.

    Of two people one has a trade and the other belongs to a family, so that who did it to whom is always plain.
    """
    doer = draw_role(rng, genre.people, adj)
    if rng.random() < people:
        verb, patient = draw_verb(rng, OPPOSED_PERSON_VERBS), draw_role(rng, FAMILY, adj)
        if not usual(rng):
            doer, patient = patient, doer
    else:
        verb, patient = draw_verb(rng, OPPOSED_THING_VERBS), draw_thing(rng, adj)
    where = rng.choice(genre.places) if rng.random() < place else ""
    when = rng.choice(genre.times) if rng.random() < time else ""
    return Clause(doer, verb, patient, where, when)


def draw_quantified(rng: Random, genre: Genre, det: str, negated: bool) -> Clause:
    """A clause with a quantified (or, for "the", sometimes named) subject and every slot that a rule may need."""
    plural = det != "the"
    if not plural and rng.random() < 0.25:
        agent = NP(rng.choice(genre.names), "")
    else:
        noun = rng.choice(GRADED_TRADES if genre is HOME and rng.random() < 0.7 else genre.people)
        agent = NP(noun, det, rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < 0.7 else "", plural)
    kind = rng.random()
    if kind < 0.3:
        verb, patient = draw_verb(rng, OPPOSED_BARE_VERBS), NOTHING
    elif kind < 0.65:
        verb, patient = draw_verb(rng, OPPOSED_THING_VERBS), draw_thing(rng, 0.6, "a", GRADED_THINGS)
    else:
        verb, patient = draw_verb(rng, OPPOSED_PERSON_VERBS), NP(rng.choice(FAMILY))
    time = rng.choice(genre.times) if rng.random() < 0.3 else ""
    return Clause(agent, verb, patient, rng.choice(genre.places), time, negated)


# --- changing frames -----------------------------------------------------------------------------------------


def synonym(rng: Random, word: str) -> str:
    """Another word for the same, where there is one."""
    same = SYNONYMS.get(word)
    return rng.choice(same) if same else word


def verb_synonym(rng: Random, verb: Verb) -> Verb:
    return ALL_VERBS.get(synonym(rng, verb.base), verb)


def reword_np(rng: Random, np: NP) -> NP:
    """The same phrase with synonyms wherever there are any."""
    noun = NOUNS.get(synonym(rng, np.noun.sg), np.noun)
    return NP(noun, np.det, synonym(rng, np.adj), np.plural, np.after)


def reword(rng: Random, clause: Clause, share: float = 0.6) -> Clause:
    """The same event in other words: each part is replaced by a synonym with probability `share`."""
    agent = reword_np(rng, clause.agent) if rng.random() < share else clause.agent
    verb = verb_synonym(rng, clause.verb) if rng.random() < share else clause.verb
    patient = clause.patient
    if patient is not NOTHING and rng.random() < share:
        patient = reword_np(rng, patient)
    rng.random()  # decides nothing; without it, every draw after it would be another
    return Clause(agent, verb, patient, clause.place, clause.time, clause.negated)


def opposite(rng: Random, verb: Verb) -> Verb:
    return ALL_VERBS[rng.choice(ANTONYMS[verb.base])]


def both_people(clause: Clause) -> bool:
    return clause.patient.noun.kind == "person"


def swap_roles(clause: Clause) -> Clause:
    return clause.but(agent=clause.patient, patient=clause.agent)


def alter(rng: Random, clause: Clause) -> Clause:
    """Another event: roles swapped, the opposite done, or the same thing not done."""
    kind = rng.random()
    if both_people(clause) and kind < 0.5:
        return swap_roles(clause)
    if kind < 0.85:
        return clause.but(verb=opposite(rng, clause.verb))
    return clause.but(negated=not clause.negated)


def same_meaning(noun: Noun, second: Noun) -> bool:
    return noun is second or second.sg in SYNONYMS.get(noun.sg, ())


def another_noun(rng: Random, noun: Noun) -> Noun:
    """A person for a person or a thing for a thing, of another meaning."""
    options = HOME.people if noun.kind == "person" else THINGS
    return other(rng, options, noun, *(NOUNS[word] for word in SYNONYMS.get(noun.sg, ())))


# --- constructions, whole or broken in one place -------------------------------------------------------------

SUBJECTS = (*GRADED_PEOPLE, *HOME.people, *GENDERED)
_REFLEXIVE = {("f", False): "herself", ("m", False): "himself"}


def reflexive(np: NP) -> str:
    """The pronoun that refers to this subject."""
    return _REFLEXIVE.get((np.noun.gender, np.plural), "themselves")


def _subject(rng: Random, *taken: Noun) -> NP:
    noun = other(rng, SUBJECTS, *taken)
    adj = rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < 0.3 else ""
    return NP(noun, "the", adj, rng.random() < 0.5)


def _modifier(rng: Random, avoid: Noun) -> str:
    """A phrase between subject and verb that holds another noun, of either number."""
    near = rng.choice(["near", "behind", "beside", "with"])
    if rng.random() < 0.5:
        return f"{near} {say_np(_subject(rng, avoid).but(adj=''))}"
    if rng.random() < 0.5:
        thing = draw_thing(rng, adj=0.2)
        return f"{near} {say_np(thing.but(plural=rng.random() < 0.5))}"
    return f"that {say_np(_subject(rng, avoid).but(adj=''))} {rng.choice(PERSON_VERBS).past}"


def _agreement(rng: Random, good: bool) -> str:
    """The verb agrees with the head of the subject, not with the nearest noun."""
    subject = _subject(rng)
    subject = subject.but(after=_modifier(rng, subject.noun))
    plural = subject.plural == good
    kind = rng.random()
    if kind < 0.45:
        be = rng.choice(("are", "were") if plural else ("is", "was"))
        adjective = rng.choice(lexicon.PERSON_ADJECTIVES)
        activity = f"{rng.choice(BARE_VERBS).ing} {rng.choice(HOME.places)}"
        return f"{say_np(subject)} {be} {rng.choice((adjective, activity))}"
    verb = rng.choice(THING_VERBS)
    perfect, present = ("have", verb.base) if plural else ("has", verb.s)
    predicate = f"{perfect} {verb.part}" if kind < 0.75 else present
    return f"{say_np(subject)} {predicate} {say_np(draw_thing(rng))}"


def _gendered(rng: Random, *taken: Noun) -> NP:
    if rng.random() < 0.3:
        return NP(other(rng, HOME.names, *taken), "")
    return NP(other(rng, GENDERED, *taken), plural=rng.random() < 0.4)


def _reflexive(rng: Random, good: bool) -> str:
    """A reflexive refers to the subject of its own clause."""
    first = _gendered(rng)
    second = _gendered(rng, first.noun)
    while reflexive(second) == reflexive(first):
        second = _gendered(rng, first.noun)
    verb = rng.choice(PERSON_VERBS).past
    if rng.random() < 0.5:
        teller = rng.choice(lexicon.CLAUSE_VERBS["claim"] + lexicon.CLAUSE_VERBS["fact"]).past
        return f"{say_np(first)} {teller} that {say_np(second)} {verb} {reflexive(second if good else first)}"
    where = rng.choice(["near", "behind", "beside"])
    return f"{say_np(first)} {where} {say_np(second)} {verb} {reflexive(first if good else second)}"


def _valence(rng: Random, good: bool) -> str:
    """Some verbs need an object, others take none."""
    subject = _subject(rng)
    transitive = rng.random() < 0.5
    verb = rng.choice(STRICT_VERBS if transitive else BARE_VERBS)
    modal = rng.choice(["", "did not", "will", "could"])
    words = f"{modal} {verb.base}" if modal else verb.past
    obj = f" {say_np(draw_thing(rng))}" if transitive == good else ""
    tail = rng.choice(HOME.places if modal in ("will", "could") or rng.random() < 0.5 else HOME.times)
    return f"{say_np(subject)} {words}{obj} {tail}"


def _question(rng: Random, good: bool) -> str:
    """A question about the object has a gap where the object was; a yes-no question has none."""
    subject = say_np(_subject(rng))
    wh = rng.random() < 0.6
    verb = rng.choice(STRICT_VERBS)
    gap = wh == good
    obj = "" if gap else f" {say_np(draw_thing(rng))}"
    start = f"{'what ' if wh else ''}{rng.choice(['did', 'will', 'could'])}"
    return f"{start} {subject} {verb.base}{obj} {rng.choice(HOME.places)} ?"


def _polarity(rng: Random, good: bool) -> str:
    """ "ever" needs a negative subject of its own clause."""
    head, inner = ("no", "the") if good else ("the", "no") if rng.random() < 0.6 else ("the", "the")
    if good and rng.random() < 0.3:
        inner = "no"
    first = _subject(rng)
    second = _subject(rng, first.noun).but(det=inner, adj="")
    after = f"that {say_np(second)} {rng.choice(PERSON_VERBS).past}"
    if rng.random() < 0.4:
        after = f"{rng.choice(['near', 'behind', 'beside'])} {say_np(second)}"
    subject = say_np(first.but(det=head, after=after))
    have = "have" if first.plural else "has"
    return f"{subject} {have} ever {rng.choice(THING_VERBS).part} {say_np(draw_thing(rng, adj=0.2))}"


def _auxiliary(rng: Random, good: bool) -> str:
    """ "did" takes the base form, "has" the participle; however far away."""
    verb = rng.choice((rng.choice(THING_VERBS), rng.choice(PERSON_VERBS)))
    subject = _subject(rng)
    obj = draw_thing(rng) if verb.takes == "thing" else _subject(rng, subject.noun)
    has = "have" if subject.plural else "has"
    aux, right, wrong = rng.choice([(has, verb.part, verb.base), ("did", verb.base, verb.part)])
    form = right if good else wrong
    after = rng.choice(["", _modifier(rng, subject.noun)])
    if rng.random() < 0.5:
        return f"{aux} {say_np(subject)} {form} {say_np(obj)} {rng.choice(HOME.places)} ?"
    adverb = rng.choice(["not", "not", "not always", "not often"])
    return f"{say_np(subject.but(after=after))} {aux} {adverb} {form} {say_np(obj)}"


def _order(rng: Random, good: bool) -> str:
    """Determiner, adjective, noun; subject, verb, object; the preposition first."""
    clause = draw_clause(rng, place=1, time=0.4, adj=0.7)
    agent, verb, patient, place = say_np(clause.agent), clause.verb.past, clause.patient, clause.place
    tail = f" {clause.time}" if clause.time else ""
    if good:
        return f"{agent} {verb} {say_np(patient)} {place}{tail}"
    kind = rng.random()
    if kind < 0.4:
        return f"{agent} {say_np(patient)} {verb} {place}{tail}"
    if kind < 0.7:
        adjectives = lexicon.PERSON_ADJECTIVES if both_people(clause) else lexicon.THING_ADJECTIVES
        return f"{agent} {verb} the {patient.noun.sg} {patient.adj or rng.choice(adjectives)} {place}{tail}"
    preposition, rest = place.split(" ", 1)
    return f"{agent} {verb} {say_np(patient)} {rest} {preposition}{tail}"


_CONSTRUCTIONS: tuple[Callable[[Random, bool], str], ...] = (  # as often as they stand here
    *(_agreement, _agreement, _agreement, _reflexive, _reflexive, _valence, _valence),
    *(_question, _question, _polarity, _auxiliary, _order),
)


def draw_construction(rng: Random, good: bool) -> str:
    """A sentence of any construction with its full stop or question mark; broken in one place unless `good`."""
    words = rng.choice(_CONSTRUCTIONS)(rng, good)
    return words if words.endswith("?") else f"{words} ."


# --- opinions ------------------------------------------------------------------------------------------------


def draw_aspects(rng: Random) -> tuple[str, str]:
    """Two things to have an opinion about, such as "the film" and "the plot"."""
    thing = rng.choice(tuple(lexicon.REVIEWED))
    first, second = rng.sample([thing, *lexicon.REVIEWED[thing].split()], 2)
    return f"the {first}", f"the {second}"


def draw_opinion(rng: Random, subject: str, good: bool) -> str:
    """A clause about `subject` whose polarity is `good`; about half say so by denying the opposite."""
    right, wrong = (lexicon.GOOD, lexicon.BAD) if good else (lexicon.BAD, lexicon.GOOD)
    kind = rng.random()
    if kind < 0.22:
        return f"{subject} is {rng.choice(['', '', 'very ', 'truly ', 'quite '])}{rng.choice(right)}"
    if kind < 0.32:
        return f"{subject} is {with_article(rng.choice(lexicon.GOOD_NOUNS if good else lexicon.BAD_NOUNS))}"
    if kind < 0.42:
        verb = rng.choice(lexicon.GOOD_VERBS if good else lexicon.BAD_VERBS)
        return f"{subject} {rng.choice(['', 'always ', 'really '])}{verb.s}"
    if kind < 0.60:
        negation = rng.choice(["is not", "is never", "is hardly", "is far from", "is anything but"])
        return f"{subject} {negation} {rng.choice(wrong)}"
    if kind < 0.68:
        return f"{subject} fails to be {rng.choice(wrong)}"
    if kind < 0.74:
        return f"{subject} manages to be {rng.choice(right)}"
    if kind < 0.84:
        verb = rng.choice(lexicon.BAD_VERBS if good else lexicon.GOOD_VERBS)
        return f"{subject} {rng.choice(['does not', 'does not', 'fails to'])} {verb.base}"
    if kind < 0.92:
        return f"nobody would call {subject} {rng.choice(wrong)}"
    return f"it is hard to call {subject} {rng.choice(wrong)}"
