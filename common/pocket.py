"""The pocket suite: small, real tasks in a small English, made by rule, with nothing to download.

    from common import pocket
    rows = pocket.generate("mnli", "train", size=1000, seed=0)   # {"premise": [...], "hypothesis": [...], ...}
    text = pocket.unlabelled(100)                                # paragraphs without labels
    words = pocket.vocabulary()                                  # every token that can occur

A sentence starts as a `Clause`, a small semantic frame (who did what to whom, where, when, how, negated or
not), and `say` turns it into words. A task draws a label, draws a frame, changes the frame by a rule that earns
the label, and says both. Counterparts of the GLUE tasks:

    cola   one construction, whole or broken in one place: agreement across a phrase, reflexives, what a
           verb takes, questions with and without their gap, "ever" without "no", the form after an
           auxiliary, order
    sst2   opinions composed: negation, "fails to be", "anything but", "but", "although", reports
    mrpc   same event? synonyms, passive and order keep it; swapped roles, another word or place change it
    qqp    same question? other wordings keep it; swapped roles or directions, other words change it
    stsb   0-5: the weight of the slots that two frames share; synonyms count in full, kin in part
    mnli   monotonicity of "all", "some", "no", "most", "the" and "not"; opposites; swapped roles. The
           mismatched splits are of other genres: their people, places, times and names are new words
    qnli   does the sentence answer the question, or is it about other roles, another verb or slot?
    rte    two clauses; does a short sentence follow? (half the training labels of the other tasks)

Noise: the share `NOISE` of the training labels is wrong, as annotators are; stsb scores carry Gaussian noise and
some are shuffled instead. Dev and test labels are clean.
Splits: every sentence belongs to one split by a hash of its text, so no sentence of train is ever seen in dev or
test, whatever the seeds. A smaller size is a prefix of a larger one.
Version: `VERSION` is part of every result's signature, since numbers of two generators cannot be compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from common import lexicon
from common.lexicon import ANTONYMS, NOUNS, SYNONYMS, VOWELS, Noun, Verb

VERSION = "1"
NOISE = 0.15
USUAL = 0.82  # the share of events that take their usual course
STSB_NOISE_SD = 0.75  # the spread of an stsb annotator, in points of the 0-5 scale

TASKS = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte")
SPLITS: dict[str, tuple[str, ...]] = dict.fromkeys(TASKS, ("train", "dev", "test")) | {
    "mnli": ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
}
SIZES: dict[str, dict[str, int]] = {
    task: {
        split: (10_000 if task == "rte" else 20_000) if split == "train" else 1_000 if "dev" in split else 2_000
        for split in splits
    }
    for task, splits in SPLITS.items()
}
LABELS: dict[str, tuple[str, ...]] = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "stsb": (),  # a score from 0 to 5
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
}
COLUMNS: dict[str, tuple[str, ...]] = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "stsb": ("sentence1", "sentence2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
}

Example = tuple[tuple[str, ...], "str | float"]  # the texts and the true label


def vocabulary() -> list[str]:
    """Every token, words in lower case and punctuation, that the generator can emit; sorted."""
    return lexicon.vocabulary()


# ------------------------------------------------------------------------------------------- the grammar


@dataclass(slots=True)
class NP:
    """A noun phrase: determiner ("" for names), adjective, noun, number, and a phrase after the noun."""

    noun: Noun
    det: str = "the"
    adj: str = ""
    plural: bool = False
    after: str = ""


@dataclass(slots=True)
class Clause:
    """Who (`agent`) did what (`verb`) to whom (`patient`), where, when, how; all in the past."""

    agent: NP
    verb: Verb
    patient: NP | None = None
    place: str = ""
    time: str = ""
    manner: str = ""
    negated: bool = False


@dataclass(frozen=True)
class Genre:
    """What a kind of text talks about: its people, names, cities, places and times."""

    people: tuple[Noun, ...]
    names: tuple[Noun, ...]
    cities: tuple[str, ...]
    places: tuple[str, ...]
    times: tuple[str, ...]


def _names(feminine: list[str], masculine: list[str], either: list[str]) -> tuple[Noun, ...]:
    names = [Noun(word, word, "person", gender="f", entity="PER") for word in feminine]
    names += [Noun(word, word, "person", gender="m", entity="PER") for word in masculine]
    return tuple(names + [Noun(word, word, "person", entity="PER") for word in either])


GRADED_PEOPLE = tuple(noun for noun in lexicon.PEOPLE.values() if noun.parent)
FAMILY = tuple(lexicon.FAMILY.values())
GRADED_TRADES = tuple(noun for noun in GRADED_PEOPLE if noun not in FAMILY)
HOME = Genre(
    tuple(noun for noun in (*lexicon.ROLES.values(), *GRADED_TRADES) if noun not in FAMILY),
    _names(lexicon.NAMES_F, lexicon.NAMES_M, []),
    (*lexicon.CITIES_NEAR, *lexicon.CITIES_FAR),
    tuple(lexicon.PLACES),
    tuple(lexicon.TIMES),
)
ELSEWHERE = Genre(
    tuple(lexicon.ROLES_ELSEWHERE.values()),
    _names([], [], lexicon.NAMES_ELSEWHERE),
    tuple(lexicon.CITIES_ELSEWHERE),
    tuple(lexicon.PLACES_ELSEWHERE),
    tuple(lexicon.TIMES_ELSEWHERE),
)
GENDERED = tuple(lexicon.GENDERED.values())
ANIMALS = tuple(noun for noun in lexicon.ANIMALS.values() if noun.parent)
GRADED_THINGS = tuple(noun for noun in lexicon.THINGS.values() if noun.parent)
THINGS = (*GRADED_THINGS, *lexicon.LOOSE_THINGS.values())
PERSON_VERBS = tuple(lexicon.PERSON_VERBS.values())
THING_VERBS = tuple(lexicon.THING_VERBS.values())
BARE_VERBS = tuple(lexicon.BARE_VERBS.values())
STRICT_VERBS = tuple(  # verbs that cannot do without their object
    lexicon.THING_VERBS[word]
    for word in lexicon.split_words(
        "find discover lose misplace fix damage conceal keep retain discard carry describe examine inspect"
    )
)
OPPOSED_PERSON_VERBS = tuple(verb for verb in PERSON_VERBS if verb.base in ANTONYMS)
OPPOSED_THING_VERBS = tuple(verb for verb in THING_VERBS if verb.base in ANTONYMS)
OPPOSED_BARE_VERBS = tuple(verb for verb in BARE_VERBS if verb.base in ANTONYMS)
ALL_VERBS = {**lexicon.BARE_VERBS, **lexicon.THING_VERBS, **lexicon.PERSON_VERBS}


def a_or_an(det: str, following: str) -> str:
    return "an" if det == "a" and following[0] in VOWELS else det


def say_np(np: NP) -> str:
    """The words of a noun phrase, such as "an old clock"."""
    noun = np.noun.pl if np.plural else np.noun.sg
    text = f"{np.adj} {noun}" if np.adj else noun
    if np.det:
        text = f"{a_or_an(np.det, text)} {text}"
    return f"{text} {np.after}" if np.after else text


def say_adjuncts(clause: Clause, fronted: bool = False) -> str:
    words = [clause.manner, clause.place, "" if fronted else clause.time]
    return "".join(f" {word}" for word in words if word)


def say(clause: Clause, passive: bool = False, fronted: bool = False) -> str:
    """The words of a clause without its full stop; `fronted` puts the time first."""
    agent = say_np(clause.agent)
    if passive and clause.patient:
        be = "were" if clause.patient.plural else "was"
        be += " not" if clause.negated else ""
        core = f"{say_np(clause.patient)} {be} {clause.verb.part} by {agent}"
    else:
        verb = f"did not {clause.verb.base}" if clause.negated else clause.verb.past
        core = f"{agent} {verb} {say_np(clause.patient)}" if clause.patient else f"{agent} {verb}"
    text = core + say_adjuncts(clause, fronted)
    return f"{clause.time} , {text}" if fronted and clause.time else text


# ------------------------------------------------------------------------------------- drawing and changing


def other(rng: Random, options: tuple, *taken: object) -> object:
    """One of the options that is none of `taken`."""
    while True:
        pick = rng.choice(options)
        if pick not in taken:
            return pick


def adjectives_for(noun: Noun) -> list[str]:
    return lexicon.PERSON_ADJECTIVES if noun.kind == "person" else lexicon.THING_ADJECTIVES


def draw_role(rng: Random, people: tuple[Noun, ...], adj: float) -> NP:
    """ "the (adjective) role"."""
    return NP(rng.choice(people), adj=rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < adj else "")


def draw_thing(rng: Random, adj: float = 0.5, det: str = "the", nouns: tuple[Noun, ...] = THINGS) -> NP:
    return NP(rng.choice(nouns), det=det, adj=rng.choice(lexicon.THING_ADJECTIVES) if rng.random() < adj else "")


def usual(rng: Random) -> bool:
    """Events have a usual course (more praise than blame, more from near to far), as they do in real text."""
    return rng.random() < USUAL


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


def synonym(rng: Random, word: str) -> str:
    return rng.choice(SYNONYMS[word]) if SYNONYMS.get(word) else word


def reword_np(rng: Random, np: NP) -> NP:
    """The same phrase with synonyms wherever there are any."""
    noun = NOUNS.get(synonym(rng, np.noun.sg), np.noun)
    return replace(np, noun=noun, adj=synonym(rng, np.adj))


def verb_synonym(rng: Random, verb: Verb) -> Verb:
    return ALL_VERBS.get(synonym(rng, verb.base), verb)


def reword(rng: Random, clause: Clause, share: float = 0.6) -> Clause:
    """The same event in other words: each part is replaced by a synonym with probability `share`."""
    return replace(
        clause,
        agent=reword_np(rng, clause.agent) if rng.random() < share else clause.agent,
        verb=verb_synonym(rng, clause.verb) if rng.random() < share else clause.verb,
        patient=reword_np(rng, clause.patient) if clause.patient and rng.random() < share else clause.patient,
        manner=synonym(rng, clause.manner) if rng.random() < share else clause.manner,
    )


def same_meaning(noun: Noun, second: Noun) -> bool:
    return noun is second or second.sg in SYNONYMS.get(noun.sg, ())


def another_noun(rng: Random, noun: Noun, genre: Genre = HOME) -> Noun:
    """A noun of the same sort that means something else."""
    if noun.entity:
        return other(rng, genre.names, noun)
    options = genre.people if noun.kind == "person" else THINGS
    pick = rng.choice(options)
    while same_meaning(noun, pick) or pick.sg == noun.parent:
        pick = rng.choice(options)
    return pick


def opposite(rng: Random, verb: Verb) -> Verb:
    return ALL_VERBS[rng.choice(ANTONYMS[verb.base])]


def swap_roles(clause: Clause) -> Clause:
    return replace(clause, agent=clause.patient, patient=clause.agent)


def both_people(clause: Clause) -> bool:
    return clause.patient is not None and clause.patient.noun.kind == "person"


# ---------------------------------------------------------------------------------------------------- cola


def _subject(rng: Random, taken: tuple[Noun, ...] = ()) -> NP:
    noun = other(rng, (*GRADED_PEOPLE, *HOME.people, *GENDERED), *taken)
    adj = rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < 0.3 else ""
    return NP(noun, adj=adj, plural=rng.random() < 0.5)


def _modifier(rng: Random, avoid: Noun) -> str:
    """A phrase between subject and verb that holds another noun, of either number."""
    near = rng.choice(["near", "behind", "beside", "with"])
    if rng.random() < 0.5:
        return f"{near} {say_np(replace(_subject(rng, (avoid,)), adj=''))}"
    if rng.random() < 0.5:
        thing = draw_thing(rng, adj=0.2)
        thing.plural = rng.random() < 0.5
        return f"{near} {say_np(thing)}"
    return f"that {say_np(replace(_subject(rng, (avoid,)), adj=''))} {rng.choice(PERSON_VERBS).past}"


def _agreement(rng: Random, good: bool) -> str:
    """The verb agrees with the head of the subject, not with the nearest noun."""
    subject = _subject(rng)
    subject.after = _modifier(rng, subject.noun)
    plural = subject.plural == good
    kind = rng.random()
    if kind < 0.45:
        predicate = f"{rng.choice(('are', 'were') if plural else ('is', 'was'))} " + rng.choice(
            [rng.choice(lexicon.PERSON_ADJECTIVES), f"{rng.choice(BARE_VERBS).ing} {rng.choice(HOME.places)}"]
        )
    elif kind < 0.75:
        verb = rng.choice(THING_VERBS)
        predicate = f"{'have' if plural else 'has'} {verb.part} {say_np(draw_thing(rng))}"
    else:
        verb = rng.choice(THING_VERBS)
        predicate = f"{verb.base if plural else verb.s} {say_np(draw_thing(rng))}"
    return f"{say_np(subject)} {predicate}"


_REFLEXIVE = {("f", False): "herself", ("m", False): "himself"}


def _reflexive(rng: Random, good: bool) -> str:
    """A reflexive refers to the subject of its own clause."""

    def gendered(*taken: Noun) -> NP:
        if rng.random() < 0.3:
            return NP(other(rng, HOME.names, *taken), det="")
        return NP(other(rng, GENDERED, *taken), plural=rng.random() < 0.4)

    def reflexive(np: NP) -> str:
        return _REFLEXIVE.get((np.noun.gender, np.plural), "themselves")

    first = gendered()
    second = gendered(first.noun)
    while reflexive(second) == reflexive(first):
        second = gendered(first.noun)
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
    start = f"what {rng.choice(['did', 'will', 'could'])}" if wh else rng.choice(["did", "will", "could"])
    return f"{start} {subject} {verb.base}{obj} {rng.choice(HOME.places)} ?"


def _polarity(rng: Random, good: bool) -> str:
    """ "ever" needs a negative subject of its own clause."""
    head, inner = ("no", "the") if good else ("the", "no") if rng.random() < 0.6 else ("the", "the")
    if good and rng.random() < 0.3:
        inner = "no"
    first = _subject(rng)
    second = _subject(rng, (first.noun,))
    first.det, second.det, second.adj = head, inner, ""
    relative = f"that {say_np(second)} {rng.choice(PERSON_VERBS).past}"
    if rng.random() < 0.4:
        relative = f"{rng.choice(['near', 'behind', 'beside'])} {say_np(second)}"
    first.after = relative
    have = "have" if first.plural else "has"
    return f"{say_np(first)} {have} ever {rng.choice(THING_VERBS).part} {say_np(draw_thing(rng, adj=0.2))}"


def _auxiliary(rng: Random, good: bool) -> str:
    """ "did" and "will" take the base form, "has" the participle; however far away."""
    verb = rng.choice([v for v in (rng.choice(THING_VERBS), rng.choice(PERSON_VERBS)) if v.base != v.part])
    subject = _subject(rng)
    obj = draw_thing(rng) if verb.takes == "thing" else _subject(rng, (subject.noun,))
    has = "have" if subject.plural else "has"
    aux, right, wrong = rng.choice([(has, verb.part, verb.base), ("did", verb.base, verb.part)])
    form = right if good else wrong
    subject.after = rng.choice(["", _modifier(rng, subject.noun)])
    if rng.random() < 0.5:
        subject.after = ""
        return f"{aux} {say_np(subject)} {form} {say_np(obj)} {rng.choice(HOME.places)} ?"
    adverb = rng.choice(["not", "not", "not always", "not often"])
    return f"{say_np(subject)} {aux} {adverb} {form} {say_np(obj)}"


def _order(rng: Random, good: bool) -> str:
    """Determiner, adjective, noun; subject, verb, object; the preposition first."""
    clause = draw_clause(rng, place=1, time=0.4, adj=0.7)
    agent, patient, place = say_np(clause.agent), say_np(clause.patient), clause.place
    tail = f" {clause.time}" if clause.time else ""
    if good:
        return f"{agent} {clause.verb.past} {patient} {place}{tail}"
    kind = rng.random()
    if kind < 0.4:
        return f"{agent} {patient} {clause.verb.past} {place}{tail}"
    if kind < 0.7:
        clause.patient.adj = clause.patient.adj or rng.choice(adjectives_for(clause.patient.noun))
        patient = f"the {clause.patient.noun.sg} {clause.patient.adj}"
        return f"{agent} {clause.verb.past} {patient} {place}{tail}"
    preposition, rest = place.split(" ", 1)
    return f"{agent} {clause.verb.past} {patient} {rest} {preposition}{tail}"


_CONSTRUCTIONS: tuple[Callable[[Random, bool], str], ...] = (
    *(_agreement, _agreement, _agreement, _reflexive, _reflexive, _valence, _valence),
    *(_question, _question, _polarity, _auxiliary, _order),
)


def _cola(rng: Random, _: Genre) -> Example:
    good = rng.random() < 0.5
    text = rng.choice(_CONSTRUCTIONS)(rng, good)
    return (text if text.endswith("?") else f"{text} .",), LABELS["cola"][good]


# ---------------------------------------------------------------------------------------------------- sst2


def _aspects(rng: Random) -> tuple[str, str]:
    """Two things to have an opinion about."""
    thing = rng.choice(tuple(lexicon.REVIEWED))
    first, second = rng.sample([thing, *lexicon.REVIEWED[thing].split()], 2)
    return f"the {first}", f"the {second}"


def _opinion(rng: Random, subject: str, good: bool) -> str:
    """A clause about `subject` whose polarity is `good`."""
    words = lexicon.GOOD if good else lexicon.BAD
    opposite = lexicon.BAD if good else lexicon.GOOD
    kind = rng.random()
    if kind < 0.22:
        return f"{subject} is {rng.choice(['', '', 'very ', 'truly ', 'quite '])}{rng.choice(words)}"
    if kind < 0.32:
        noun = rng.choice(lexicon.GOOD_NOUNS if good else lexicon.BAD_NOUNS)
        return f"{subject} is {a_or_an('a', noun)} {noun}"
    if kind < 0.42:
        verb = rng.choice(lexicon.GOOD_VERBS if good else lexicon.BAD_VERBS)
        return f"{subject} {rng.choice(['', 'always ', 'really '])}{verb.s}"
    if kind < 0.60:
        negation = rng.choice(["is not", "is never", "is hardly", "is far from", "is anything but"])
        return f"{subject} {negation} {rng.choice(opposite)}"
    if kind < 0.68:
        return f"{subject} fails to be {rng.choice(opposite)}"
    if kind < 0.74:
        return f"{subject} manages to be {rng.choice(words)}"
    if kind < 0.84:
        verb = rng.choice(lexicon.BAD_VERBS if good else lexicon.GOOD_VERBS)
        return f"{subject} {rng.choice(['does not', 'never fails to', 'fails to'])} {verb.base}".replace(
            f"never fails to {verb.base}", f"does not {verb.base}"
        )
    if kind < 0.92:
        return f"nobody would call {subject} {rng.choice(opposite)}"
    return f"it is hard to call {subject} {rng.choice(opposite)}"


def _sst2(rng: Random, _: Genre) -> Example:
    good = rng.random() < 0.5
    first, second = _aspects(rng)
    kind = rng.random()
    if kind < 0.12:
        text = _opinion(rng, first, good)
    elif kind < 0.24:
        text = f"{_opinion(rng, first, good)} and {_opinion(rng, second, good)}"
    elif kind < 0.46:
        text = f"{_opinion(rng, first, not good)} , but {_opinion(rng, second, good)}"
    elif kind < 0.62:
        text = f"although {_opinion(rng, first, not good)} , {_opinion(rng, second, good)}"
    elif kind < 0.76:
        text = f"{_opinion(rng, first, good)} , although {_opinion(rng, second, not good)}"
    elif kind < 0.84:
        word = rng.choice(lexicon.BAD if good else lexicon.GOOD)
        text = f"despite the {word} {first[4:]} , {_opinion(rng, second, good)}"
    elif kind < 0.92:
        text = f"critics say that {_opinion(rng, first, not good)} , but they are wrong"
    else:
        text = f"it would be wrong to say that {_opinion(rng, first, not good)}"
    return (f"{text} .",), LABELS["sst2"][good]


# --------------------------------------------------------------------------------------------- mrpc and qqp


def _say_freely(rng: Random, clause: Clause) -> str:
    """The clause in any of its word orders, with its full stop."""
    return f"{say(clause, passive=rng.random() < 0.15, fronted=rng.random() < 0.3)} ."


def _alter(rng: Random, clause: Clause) -> Clause:
    """Another event: roles swapped, the opposite done, or the same thing not done."""
    kind = rng.random()
    if both_people(clause) and kind < 0.5:
        return swap_roles(clause)
    if kind < 0.85:
        return replace(clause, verb=opposite(rng, clause.verb))
    return replace(clause, negated=not clause.negated)


def _mrpc(rng: Random, _: Genre) -> Example:
    same = rng.random() < 0.55
    clause = draw_clause(rng, people=0.65, place=0.5, time=0.4)
    clause.negated = rng.random() < 0.15
    second = clause if same else _alter(rng, clause)
    return (_say_freely(rng, clause), _say_freely(rng, reword(rng, second))), LABELS["mrpc"][same]


def _how(rng: Random, same: bool) -> tuple[str, str]:
    """How to do something to something."""
    verb, thing = draw_verb(rng, OPPOSED_THING_VERBS), draw_thing(rng, adj=0.4, det="a")
    second = verb if same else opposite(rng, verb)

    def ask(verb: Verb, thing: NP) -> str:
        frame = rng.choice(["how can i", "how do i", "what is the best way to", "is there an easy way to"])
        return f"{frame} {verb.base} {say_np(thing)}"

    return ask(verb, thing), ask(verb_synonym(rng, second), reword_np(rng, thing))


def _why(rng: Random, same: bool) -> tuple[str, str]:
    """Why someone did something to someone."""
    clause = draw_clause(rng, people=1, place=0, time=0, adj=0.1)
    second = clause
    if not same:
        second = swap_roles(clause) if rng.random() < 0.6 else replace(clause, verb=opposite(rng, clause.verb))

    def ask(clause: Clause) -> str:
        agent, patient = say_np(clause.agent), say_np(clause.patient)
        kind = rng.random()
        if kind < 0.5:
            return f"why did {agent} {clause.verb.base} {patient}"
        if kind < 0.85:
            return f"what made {agent} {clause.verb.base} {patient}"
        return f"why was {patient} {clause.verb.part} by {agent}"

    return ask(clause), ask(reword(rng, second))


def _route(rng: Random, same: bool) -> tuple[str, str]:
    """How to get from one city to another, or back."""
    start, goal = rng.choice(lexicon.CITIES_NEAR), rng.choice(lexicon.CITIES_FAR)
    if not usual(rng):
        start, goal = goal, start
    start2, goal2 = (start, goal) if same else (goal, start)

    def ask(start: str, goal: str) -> str:
        frame = rng.choice(["how do i {}", "how can i {}", "what is the best way to {}"])
        route = rng.choice(["get from {0} to {1}", "travel from {0} to {1}", "get to {1} from {0}"])
        return frame.format(route.format(start, goal))

    return ask(start, goal), ask(start2, goal2)


_PRODUCE = tuple(noun for noun in GRADED_THINGS if noun.kind in ("fruit", "vegetable", "flower"))
_GEAR = tuple(noun for noun in GRADED_THINGS if noun.kind in ("vehicle", "instrument", "tool", "jewel", "garment"))


def _compare(rng: Random, same: bool) -> tuple[str, str]:
    """Which of two things is more of something; "a is cheaper than b" is "b is costlier than a"."""
    first, second = rng.choice(_PRODUCE), rng.choice(_GEAR)
    if not usual(rng):
        first, second = second, first
    scale = rng.choice(lexicon.COMPARATIVES)
    side = 0 if usual(rng) else 1
    swapped = not usual(rng)
    things = (second.pl, first.pl) if swapped else (first.pl, second.pl)
    other_side = side if swapped != same else 1 - side

    def ask(left: str, right: str, word: str) -> str:
        frame = rng.choice(["are {} {} than {}", "is it true that {} are {} than {}"])
        return frame.format(left, word, right)

    return ask(first.pl, second.pl, scale[side]), ask(*things, scale[other_side])


def _qqp(rng: Random, _: Genre) -> Example:
    same = rng.random() < 0.5
    first, second = rng.choice((_how, _how, _how, _why, _why, _why, _route, _route, _route, _compare))(rng, same)
    return (f"{first} ?", f"{second} ?"), LABELS["qqp"][same]


# ---------------------------------------------------------------------------------------------------- stsb

_SLOT_WEIGHTS = {"agent": 1.25, "verb": 1.5, "patient": 1.25, "adj": 0.5, "place": 0.5}


def _say_scene(rng: Random, clause: Clause) -> str:
    """A caption: what is going on, in the active or the passive."""
    agent, patient = say_np(clause.agent), say_np(clause.patient)
    if rng.random() < 0.15:
        return f"{patient} is being {clause.verb.part} by {agent} {clause.place} ."
    return f"{agent} is {clause.verb.ing} {patient} {clause.place} ."


def _relative(rng: Random, noun: Noun) -> tuple[Noun, float]:
    """A noun near in meaning and how near it is: its hypernym, or another of the same kind."""
    if not noun.parent:
        return another_noun(rng, noun), 0.0
    if rng.random() < 0.5:
        return NOUNS[noun.parent], 0.6
    siblings = [child for child in lexicon.CHILDREN[noun.parent] if not same_meaning(noun, child)]
    return rng.choice(siblings), 0.6


def _stsb(rng: Random, _: Genre) -> Example:
    clause = Clause(
        NP(rng.choice(GRADED_TRADES), det="a"),
        draw_verb(rng, OPPOSED_THING_VERBS),
        draw_thing(rng, adj=1, det="a", nouns=GRADED_THINGS),
        rng.choice(HOME.places),
    )
    score = sum(_SLOT_WEIGHTS.values())
    second = reword(rng, clause)
    for slot in rng.sample(tuple(_SLOT_WEIGHTS), rng.choice([0, 0, 1, 1, 2, 2, 3, 4, 5])):
        near = 0.0
        if slot == "agent":
            new, near = _relative(rng, clause.agent.noun) if rng.random() < 0.4 else (None, 0.0)
            second.agent = replace(second.agent, noun=new or another_noun(rng, clause.agent.noun))
        elif slot == "patient":
            new, near = _relative(rng, clause.patient.noun) if rng.random() < 0.4 else (None, 0.0)
            second.patient = replace(second.patient, noun=new or another_noun(rng, clause.patient.noun))
        elif slot == "verb":
            second.verb = opposite(rng, clause.verb)
        elif slot == "adj":
            adj = other(rng, lexicon.THING_ADJECTIVES, clause.patient.adj, *SYNONYMS.get(clause.patient.adj, ()))
            second.patient = replace(second.patient, adj=adj)
        else:
            second.place = other(rng, HOME.places, clause.place)
        score -= _SLOT_WEIGHTS[slot] * (1 - near)
    return (_say_scene(rng, clause), _say_scene(rng, second)), round(score, 2)


# ---------------------------------------------------------------------------------------------------- mnli

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
_QUANTIFIERS = {  # what a change of quantifier does
    "entailment": (("all", "some"), ("all", "most"), ("most", "some")),
    "neutral": (("some", "all"), ("some", "most"), ("most", "all")),
    "contradiction": (*(("all", "no"), ("some", "no"), ("most", "no"), ("no", "all"), ("no", "some"), ("no", "most")),),
}


def _draw_quantified(rng: Random, genre: Genre, det: str, negated: bool) -> Clause:
    """A clause with a quantified (or, for "the", sometimes named) subject and every slot that a rule may need."""
    plural = det != "the"
    if not plural and rng.random() < 0.25:
        agent = NP(rng.choice(genre.names), det="")
    else:
        noun = rng.choice(GRADED_TRADES if genre is HOME and rng.random() < 0.7 else genre.people)
        agent = NP(noun, det, rng.choice(lexicon.PERSON_ADJECTIVES) if rng.random() < 0.7 else "", plural)
    kind = rng.random()
    if kind < 0.3:
        verb, patient = draw_verb(rng, OPPOSED_BARE_VERBS), None
    elif kind < 0.65:
        verb, patient = draw_verb(rng, OPPOSED_THING_VERBS), draw_thing(rng, 0.6, det="a", nouns=GRADED_THINGS)
    else:
        verb, patient = draw_verb(rng, OPPOSED_PERSON_VERBS), NP(rng.choice(FAMILY))
    time = rng.choice(genre.times) if rng.random() < 0.3 else ""
    return Clause(agent, verb, patient, rng.choice(genre.places), time, negated=negated)


def _broaden_restrictor(rng: Random, clause: Clause) -> Clause | None:
    """The subject with a wider noun or without its adjective."""
    agent = clause.agent
    options = [replace(agent, adj="")] if agent.adj else []
    if agent.noun.parent:
        options.append(replace(agent, noun=NOUNS[agent.noun.parent]))
    return replace(clause, agent=rng.choice(options)) if options else None


def _broaden_body(rng: Random, clause: Clause) -> Clause:
    """The predicate with a wider object or without one of its modifiers."""
    patient = clause.patient
    options = [replace(clause, place="")]
    if clause.time:
        options.append(replace(clause, time=""))
    if patient and patient.noun.parent and patient.det == "a":
        options.append(replace(clause, patient=replace(patient, noun=NOUNS[patient.noun.parent])))
    if patient and patient.adj:
        options.append(replace(clause, patient=replace(patient, adj="")))
    return rng.choice(options)


def _mnli_monotone(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause] | None:
    """Entailed: the way that the context is monotone. Neutral: the other way."""
    det, negated = rng.choice(tuple(_MONOTONE))
    restrictor, body = _MONOTONE[det, negated]
    narrow = _draw_quantified(rng, genre, det, negated)
    in_restrictor = rng.random() < 0.5
    broad = _broaden_restrictor(rng, narrow) if in_restrictor else _broaden_body(rng, narrow)
    direction = restrictor if in_restrictor else body
    if broad is None or (not direction and label == "entailment"):
        return None
    if not direction:
        direction = rng.choice(["up", "down"])
    return (narrow, broad) if (direction == "up") == (label == "entailment") else (broad, narrow)


def _mnli_quantifier(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause] | None:
    """Another quantifier, or, for a definite subject, "not"."""
    if label == "contradiction" and rng.random() < 0.5:
        clause = _draw_quantified(rng, genre, "the", rng.random() < 0.5)
        return clause, replace(clause, negated=not clause.negated)
    first, second = rng.choice(_QUANTIFIERS[label])
    clause = _draw_quantified(rng, genre, first, False)
    return clause, replace(clause, agent=replace(clause.agent, det=second))


def _mnli_verb(rng: Random, genre: Genre, label: str) -> tuple[Clause, Clause] | None:
    """Synonyms (entailed), opposites (contradiction), or swapped roles (neutral)."""
    det = "the" if label == "neutral" else rng.choice(["the", "the", "all", "most"])
    clause = _draw_quantified(rng, genre, det, False)
    if label == "neutral":
        if not both_people(clause):
            return None
        swapped = swap_roles(replace(clause, agent=replace(clause.agent, adj="")))
        return clause, swapped
    if label == "entailment":
        return clause, reword(rng, clause, share=1.0)
    return clause, replace(clause, verb=opposite(rng, clause.verb))


def _mnli(rng: Random, genre: Genre) -> Example | None:
    label = rng.choice(LABELS["mnli"])
    monotone = () if label == "contradiction" else (_mnli_monotone,) * 4
    pair = rng.choice((*monotone, _mnli_quantifier, _mnli_verb))(rng, genre, label)
    if pair is None:
        return None
    premise, hypothesis = pair
    same_verb = premise.verb is hypothesis.verb
    upward = _MONOTONE.get((premise.agent.det or "the", premise.negated), ("", ""))[1] == "up"
    if label == "contradiction" and same_verb and upward and rng.random() < 0.3:
        hypothesis = replace(hypothesis, place="")
    hypothesis = reword(rng, hypothesis, share=0.2)
    passive = hypothesis.agent.det in ("", "the") and both_people(hypothesis) and rng.random() < 0.3
    texts = f"{say(premise, fronted=rng.random() < 0.3)} .", f"{say(hypothesis, passive=passive)} ."
    return texts, label


# --------------------------------------------------------------------------------------------- qnli and rte

_CONNECTIVES = ("and", "while", "before", "after", ", but")


def _two_clauses(rng: Random, genre: Genre = HOME) -> tuple[Clause, Clause]:
    """A clause to ask about, most often about two people, and another about a thing or nothing at all."""
    target = draw_clause(rng, genre, people=0.75, place=0.5, time=0.3, adj=0.15)
    while True:
        agent = draw_role(rng, genre.people, adj=0.15)
        if rng.random() < 0.5:
            rest = Clause(agent, rng.choice(BARE_VERBS), None, rng.choice(genre.places))
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


def _ask(rng: Random, clause: Clause, slot: str) -> str:
    """The question for one slot of the clause."""
    agent, verb, patient = say_np(clause.agent), clause.verb, say_np(clause.patient)
    if slot == "agent":
        if rng.random() < 0.3:
            return f"by whom was {patient} {verb.part} ?"
        return f"who {verb.past} {patient} ?"
    if slot == "patient":
        word = "who" if both_people(clause) else "what"
        return f"{word} was {verb.part} by {agent} ?" if rng.random() < 0.3 else f"{word} did {agent} {verb.base} ?"
    word = "where" if slot == "place" else "when"
    if rng.random() < 0.3:
        return f"{word} was {patient} {verb.part} by {agent} ?"
    return f"{word} did {agent} {verb.base} {patient} ?"


def _qnli(rng: Random, _: Genre) -> Example:
    answered = rng.random() < 0.5
    target, rest = _two_clauses(rng)
    slot = rng.choice(["agent", "agent", "patient", "patient", "place", "time"])
    if slot in ("place", "time"):
        value = rng.choice(HOME.places if slot == "place" else HOME.times)
        rest.place = ""
        target = replace(target, **{slot: value if answered else ""})
        asked = target
    else:
        asked = target if answered else replace(_alter(rng, target), negated=False)
        if not answered and asked == target:
            asked = replace(target, verb=opposite(rng, target.verb))
    question = _ask(rng, reword(rng, asked, share=0.2), slot)
    return (question, _join(rng, target, rest)), LABELS["qnli"][not answered]


def _rte(rng: Random, _: Genre) -> Example:
    follows = rng.random() < 0.5
    target, rest = _two_clauses(rng)
    claim = replace(target, time="", place="" if rng.random() < 0.5 else target.place)
    if rng.random() < 0.3:  # "knew that" vouches for its clause, "claimed that" does not
        teller = rng.choice(lexicon.CLAUSE_VERBS["fact" if follows else "claim"])
        premise = f"{say_np(rest.agent)} {teller.past} that {say(target)} ."
    else:
        premise = _join(rng, target, rest)
        claim = claim if follows else _alter(rng, claim)
    return (premise, f"{say(reword(rng, claim, 0.2), passive=rng.random() < 0.2)} ."), LABELS["rte"][not follows]


# ------------------------------------------------------------------------------------------ generation

_MAKERS: dict[str, Callable[[Random, Genre], Example | None]] = {
    "cola": _cola,
    "sst2": _sst2,
    "mrpc": _mrpc,
    "qqp": _qqp,
    "stsb": _stsb,
    "mnli": _mnli,
    "qnli": _qnli,
    "rte": _rte,
}
_PARTS = {"train": (0, 1, 2, 3), "dev": (4, 5), "test": (6, 7)}  # the eighths of all sentences


def _part_of(text: str) -> int:
    """Which eighth of all sentences a sentence belongs to; the same on every machine."""
    return zlib.crc32(text.encode()) * 8 >> 32


def _examples(task: str, split: str, seed: int) -> Iterator[Example]:
    """Endless, distinct, correctly labelled examples all of whose sentences belong to the split."""
    rng = Random(f"{task}/{split}/{seed}")
    genre = ELSEWHERE if split.endswith("_mismatched") else HOME
    parts = _PARTS[split.split("_")[0]]
    make, seen = _MAKERS[task], set()
    while True:
        example = make(rng, genre)
        if example is None or example[0] in seen:
            continue
        texts = example[0]
        if all(_part_of(text) in parts for text in texts) and len(set(texts)) == len(texts):
            seen.add(texts)
            yield example


def _annotate(rng: Random, task: str, label: str | float) -> str | float:
    """The label that an annotator gives, who errs in the share `NOISE` of the cases."""
    errs = rng.random() < NOISE
    if isinstance(label, str):
        return rng.choice([name for name in LABELS[task] if name != label]) if errs else label
    noisy = rng.uniform(0, 5) if errs else rng.gauss(label, STSB_NOISE_SD)
    return round(min(5.0, max(0.0, noisy)), 2)


def _check(task: str, split: str, size: int) -> None:
    if task not in TASKS:
        raise ValueError(f"unknown pocket task {task!r}; there are: {', '.join(TASKS)}")
    if split not in SPLITS[task]:
        raise ValueError(f"unknown split {split!r} of pocket/{task}; there are: {', '.join(SPLITS[task])}")
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")


def _generate(task: str, split: str, size: int | None, seed: int, noisy: bool) -> dict[str, list]:
    size = SIZES.get(task, {}).get(split, 1) if size is None else size
    _check(task, split, size)
    annotator = Random(f"annotator/{task}/{split}/{seed}")
    columns: dict[str, list] = {name: [] for name in (*COLUMNS[task], "label", "id")}
    for number, (texts, label) in zip(range(size), _examples(task, split, seed), strict=False):
        for name, text in zip(COLUMNS[task], texts, strict=True):
            columns[name].append(text)
        columns["label"].append(_annotate(annotator, task, label) if noisy else label)
        columns["id"].append(f"{task}-{split}-{seed}-{number}")
    return columns


def generate(task: str, split: str, size: int | None = None, seed: int = 0) -> dict[str, list]:
    """Columns of one split, named as on the hub, with "label" (a name; stsb: a score from 0 to 5) and "id".

    Raises ValueError for an unknown task or split or a size below 1.
    """
    return _generate(task, split, size, seed, noisy=split == "train")


# -------------------------------------------------------------------------------------- unlabelled text


_FRIENDLY = frozenset(
    lexicon.split_words("praise commend help assist hire employ love adore admire respect defend protect trust")
)


def _cast(rng: Random, genre: Genre) -> list[tuple[Noun, Noun]]:
    """Three people of one document: their names and their roles."""
    return list(zip(rng.sample(genre.names, 3), rng.sample(genre.people, 3), strict=True))


def _story(rng: Random, genre: Genre) -> list[str]:
    """People keep their name, role and place; things and verbs of one kind keep company."""
    cast = _cast(rng, genre)
    place, city = rng.choice(genre.places), rng.choice(genre.cities)
    friendly = rng.random() < 0.5
    verbs = [verb for verb in OPPOSED_PERSON_VERBS if (verb.base in _FRIENDLY) == friendly]
    kind = rng.choice([kind for kind in lexicon.CHILDREN if lexicon.CHILDREN[kind][0].kind == kind])
    name, role = cast[0]
    sentences = [f"{name.sg} is {a_or_an('a', role.sg)} {role.sg} from {city} ."]
    for _ in range(rng.randint(3, 5)):
        (first, job), (second, _) = rng.sample(cast, 2)
        agent = NP(first, det="") if rng.random() < 0.6 else NP(job)
        style = rng.random()
        if style < 0.4:
            clause = Clause(agent, rng.choice(verbs), NP(second, det=""), place, rng.choice(genre.times))
        elif style < 0.8:
            thing = draw_thing(rng, det="a", nouns=lexicon.CHILDREN[kind])
            clause = Clause(agent, rng.choice(lexicon.SPECIAL_VERBS.get(kind, THING_VERBS)), thing, place)
            if rng.random() < 0.3:
                clause = Clause(agent, rng.choice(lexicon.GIVING_VERBS), replace(thing, after=f"to {second.sg}"))
        else:
            clause = Clause(agent, rng.choice(BARE_VERBS), None, place, f"in {rng.choice(lexicon.MONTHS)}")
        sentences.append(f"{say(clause, rng.random() < 0.2, rng.random() < 0.3)} .")
    if rng.random() < 0.5:
        first, second = rng.sample(lexicon.CHILDREN[kind], 2)
        sentences.append(f"{name.sg} bought {first.pl} , {second.pl} and other {NOUNS[kind].pl} .")
    return sentences


def _review(rng: Random) -> list[str]:
    """One thing, one opinion of it throughout."""
    good = rng.random() < 0.5
    thing = rng.choice(tuple(lexicon.REVIEWED))
    aspects = [thing, *lexicon.REVIEWED[thing].split()]
    return [f"{_opinion(rng, f'the {rng.choice(aspects)}', good)} ." for _ in range(rng.randint(3, 5))]


def _facts(rng: Random, genre: Genre) -> list[str]:
    """What all, some and no members of a kind do, and questions about it."""
    kind = rng.choice(tuple(lexicon.CHILDREN))
    sentences = []
    for noun in rng.sample(lexicon.CHILDREN[kind], 3):
        sentences.append(f"every {noun.sg} is {a_or_an('a', kind)} {kind} .")
        det = rng.choice(["all", "some", "most", "no"])
        if noun.kind == "person":
            clause = _draw_quantified(rng, genre, det, False)
            sentences.append(f"{say(replace(clause, agent=replace(clause.agent, noun=noun)))} .")
        else:
            adjectives = rng.sample(lexicon.THING_ADJECTIVES, 2)
            sentences.append(f"{det} {adjectives[0]} {noun.pl} {rng.choice(['are', 'were'])} {adjectives[1]} .")
    sentences.append(_ask(rng, draw_clause(rng, genre), rng.choice(["agent", "patient", "place", "time"])))
    return sentences


def _remarks(rng: Random) -> list[str]:
    """Sentences of every construction, and questions."""
    remarks = [rng.choice(_CONSTRUCTIONS)(rng, True) for _ in range(3)]
    remarks += [f"{rng.choice((_how, _why, _route, _compare))(rng, True)[0]} ?"]
    return [text if text.endswith("?") else f"{text} ." for text in remarks]


def unlabelled(size: int, seed: int = 0) -> list[str]:
    """Documents of several sentences each: stories, reviews, facts and remarks.

    Words of one polarity, topic or kind keep company through a document, and names keep their role.
    """
    rng = Random(f"unlabelled/{seed}")
    documents = []
    for _ in range(size):
        genre = HOME if rng.random() < 0.7 else ELSEWHERE
        kind = rng.random()
        if kind < 0.4:
            sentences = _story(rng, genre)
        elif kind < 0.65:
            sentences = _review(rng)
        else:
            sentences = _facts(rng, genre) if kind < 0.8 else _remarks(rng)
        documents.append(" ".join(sentences))
    return documents
