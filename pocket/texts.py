"""The pocket suite's tasks whose answer is a text: translation into a small language, and one-sentence summaries.

    translate  clauses, said in a language with words of its own. The verb stands last and the object before it, marked
               by a particle; in the passive the object comes first. Time opens a clause. An adjective follows its noun
               and agrees with its class and number, as the articles do; the verb agrees with the number of its subject.
               A negation follows the verb. Of two clauses joined by "while", "before" or "after", the second comes
               first. A few plurals and past forms are irregular
    xsum       a document introduces someone by name and trade and tells what that person did, by either name, among
               what others did. The summary says in one sentence what the person of that trade did, in the order of
               the document, in the active, without adjectives, places and times

Words and punctuation stand between blanks; sentences, documents' sentences and summaries belong to the split. In the
share `noise` of the training examples the answer is that of another clause or document, in which one thing has changed.
"""

from __future__ import annotations

from functools import cache, partial
from random import Random
from zlib import crc32

from pocket import lexicon
from pocket.grammar import (
    FAMILY,
    GRADED_THINGS,
    HOME,
    NP,
    OPPOSED_PERSON_VERBS,
    OPPOSED_THING_VERBS,
    Clause,
    Dice,
    other,
    say,
    say_np,
    with_article,
)
from pocket.lexicon import Noun, Verb
from pocket.splits import Split

# These tasks use fewer words than the suite has, so that each comes up often enough to be learnt.
PEOPLE, RELATIVES, THINGS = HOME.people[:40], FAMILY, GRADED_THINGS
PERSON_VERBS, THING_VERBS = OPPOSED_PERSON_VERBS[:20], OPPOSED_THING_VERBS
PERSON_ADJECTIVES, THING_ADJECTIVES = lexicon.PERSON_ADJECTIVES[:14], lexicon.THING_ADJECTIVES[:14]
PLACES, TIMES = HOME.places, HOME.times

Answers = tuple[str, str]  # the right one, and what an annotator may write instead


def miswrite(rng: Random, answers: Answers, noise: float) -> str:
    """An annotator's answer: in the share `noise` of the examples, the wrong one."""
    return answers[rng.random() < noise]


# --- translation ---------------------------------------------------------------------------------------------

PARTICLE, NEGATION, COMMA = "ki", "nem", ","
ARTICLES = {"a": {"a": "ula", "o": "ulo"}, "the": {"a": "", "o": ""}}
JOINTS = {"and": "eta", "but": "mazu", "while": "dum", "before": "antu", "after": "postu"}
LATE = ("while", "before", "after")  # whose clause comes first
IRREGULAR_PLURALS = {"child": "umari", "girl": "osalin", "brother": "frodin", "doctor": "mezgin", "thief": "vezrin"}
IRREGULAR_PASTS = {"praise": "zogu", "help": "vadi", "buy": "kepu", "sell": "jalu", "find": "rinu"}
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


def _syllables(word: str) -> str:
    """A stem of two syllables and a consonant, drawn by the word's own hash."""
    number, letters = crc32(f"stem/{word}".encode()), ""
    for alphabet in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS):
        number, letter = divmod(number, len(alphabet))
        letters += alphabet[letter]
    return letters


@cache
def _stems() -> dict[str, str]:
    """English word -> its stem, no two alike, none an English word with any ending."""
    words = [noun.sg for noun in (*PEOPLE, *RELATIVES, *THINGS)]
    words += [verb.base for verb in (*PERSON_VERBS, *THING_VERBS)]
    words += [*PERSON_ADJECTIVES, *THING_ADJECTIVES, *PLACES, *TIMES]
    taken, stems = {word[:5] for word in lexicon.vocabulary()}, {}
    for word in dict.fromkeys(words):
        key = word
        while (stem := _syllables(key)) in taken:
            key += "'"
        taken.add(stem)
        stems[word] = stem
    return stems


def _noun_class(noun: Noun) -> str:
    """Class "a" or "o", which adjectives and articles agree with; nothing in English tells it."""
    return "ao"[crc32(f"class/{noun.sg}".encode()) % 2]


def _noun(noun: Noun, plural: bool) -> str:
    if plural and noun.sg in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun.sg]
    return _stems()[noun.sg] + _noun_class(noun) + ("i" if plural else "")


def _adjective(word: str, noun: Noun, plural: bool) -> str:
    return f"{_stems()[word]}en{_noun_class(noun)}{'i' if plural else ''}"


def _verb(verb: Verb, plural: bool) -> str:
    stem = IRREGULAR_PASTS.get(verb.base, f"{_stems()[verb.base]}ut")
    return stem + ("ar" if plural else "")


def _phrase(np: NP) -> list[str]:
    article = ARTICLES[np.det][_noun_class(np.noun)]
    words = [article, _noun(np.noun, np.plural)]
    return [word for word in (*words, _adjective(np.adj, np.noun, np.plural) if np.adj else "") if word]


def translate(clause: Clause, passive: bool = False) -> str:
    """A clause in the other language, without its full stop."""
    stems = _stems()
    subject, patient = _phrase(clause.agent), [PARTICLE, *_phrase(clause.patient)]
    words = [f"{stems[clause.time]}im"] if clause.time else []
    words += [*patient, *subject] if passive else [*subject, *patient]
    words += [f"{stems[clause.place]}is"] if clause.place else []
    words += [_verb(clause.verb, clause.agent.plural)]
    return " ".join(words + [NEGATION] * clause.negated)


def _person(rng: Random, people: tuple[Noun, ...]) -> NP:
    adjective = rng.choice(PERSON_ADJECTIVES) if rng.random() < 0.35 else ""
    return NP(rng.choice(people), "the", adjective, rng.random() < 0.3)


def _clause(rng: Random, place: float = 0.4, time: float = 0.4) -> Clause:
    agent = _person(rng, PEOPLE)
    where = rng.choice(PLACES) if rng.random() < place else ""
    when = rng.choice(TIMES) if rng.random() < time else ""
    negated = rng.random() < 0.2
    if rng.random() < 0.5:
        patient = _person(rng, RELATIVES)
        if rng.random() < 0.3:
            agent, patient = patient, agent
        return Clause(agent, rng.choice(PERSON_VERBS), patient, where, when, negated)
    plural, adjective = rng.random() < 0.3, rng.choice(THING_ADJECTIVES) if rng.random() < 0.35 else ""
    det = "the" if plural or rng.random() < 0.5 else "a"
    return Clause(agent, rng.choice(THING_VERBS), NP(rng.choice(THINGS), det, adjective, plural), where, when, negated)


def _changed(rng: Random, clause: Clause) -> Clause:
    """The clause with another subject or verb: what an annotator has misread."""
    if rng.random() < 0.5:
        people = PEOPLE if clause.agent.noun in PEOPLE else RELATIVES
        return clause.but(agent=clause.agent.but(noun=other(rng, people, clause.agent.noun)))
    verbs = PERSON_VERBS if clause.verb in PERSON_VERBS else THING_VERBS
    return clause.but(verb=other(rng, verbs, clause.verb))


def translation(rng: Random, _: Split | None = None) -> tuple[tuple[str], Answers]:
    """A sentence of one or two clauses; its translation, and that of a sentence a little different."""
    first, passive = _clause(rng), rng.random() < 0.2
    source = say(first, passive=passive, fronted=rng.random() < 0.3)
    answers = [translate(clause, passive) for clause in (first, _changed(rng, first))]
    if rng.random() < 0.35:
        second, joint = _clause(rng, 0.2, 0.0), rng.choice(tuple(JOINTS))
        source = f"{source} {joint} {say(second)}"
        ending = translate(second)
        answers = [
            f"{JOINTS[joint]} {ending} {COMMA} {answer}" if joint in LATE else f"{answer} {JOINTS[joint]} {ending}"
            for answer in answers
        ]
    return (f"{source} .",), (f"{answers[0]} .", f"{answers[1]} .")


def foreign_words() -> list[str]:
    """Every word of the other language that can occur, sorted."""
    stems = _stems()
    words = {PARTICLE, NEGATION, *JOINTS.values()} | {w for forms in ARTICLES.values() for w in forms.values() if w}
    for plural in (False, True):
        words |= {_noun(noun, plural) for noun in (*PEOPLE, *RELATIVES, *THINGS)}
        words |= {_verb(verb, plural) for verb in (*PERSON_VERBS, *THING_VERBS)}
        words |= {
            f"{stems[adjective]}en{ending}{'i' if plural else ''}"
            for adjective in (*PERSON_ADJECTIVES, *THING_ADJECTIVES)
            for ending in "ao"
        }
    words |= {f"{stems[place]}is" for place in PLACES} | {f"{stems[time]}im" for time in TIMES}
    return sorted(words)


def unlabelled_bilingual(size: int, seed: int = 0) -> list[str]:
    """So many sentences, English and the other language in turn, none a translation of another: for pre-training."""
    rng = Dice(f"both languages/{seed}")
    sentences = []
    for number in range(size):
        (source,), (answer, _) = translation(rng)
        sentences.append(answer if number % 2 else source)
    return sentences


# --- summaries -----------------------------------------------------------------------------------------------


def _event(rng: Random) -> tuple[Verb, NP]:
    if rng.random() < 0.5:
        return rng.choice(PERSON_VERBS), NP(rng.choice(RELATIVES), "the")
    return rng.choice(THING_VERBS), NP(rng.choice(THINGS), "the", plural=rng.random() < 0.3)


def _sentence(rng: Random, agent: NP, event: tuple[Verb, NP]) -> str:
    """An event with details that a summary leaves out."""
    verb, patient = event
    if rng.random() < 0.4:
        words = PERSON_ADJECTIVES if patient.noun in RELATIVES else THING_ADJECTIVES
        patient = patient.but(adj=rng.choice(words))
    place = rng.choice(PLACES) if rng.random() < 0.6 else ""
    clause = Clause(agent, verb, patient, place, rng.choice(TIMES) if rng.random() < 0.6 else "")
    return f"{say(clause, passive=rng.random() < 0.25, fronted=rng.random() < 0.3)} ."


def _opening(rng: Random, role: Noun) -> str:
    name, adjective = rng.choice(HOME.names), rng.choice(PERSON_ADJECTIVES)
    return f"{name.sg} is {with_article(f'{adjective} {role.sg}')} from {rng.choice(HOME.cities)} ."


def summary(rng: Random, split: Split) -> tuple[tuple[str], Answers] | None:
    """A document; its summary, and the summary of a document in which one event is another."""
    role = rng.choice(PEOPLE)
    bystander = other(rng, PEOPLE, role)
    opening = split.sentence(partial(_opening, rng, role))
    name = _NAMES[opening.partition(" ")[0]]
    told = [True, True, *([False] * rng.choice((1, 2, 3)))]  # of the person, or of a bystander
    rng.shuffle(told)
    events, sentences = [], [opening]
    for of_the_person in told:
        event, agent = _event(rng), NP(bystander)
        if of_the_person:
            events.append(event)
            agent = NP(name, "") if rng.random() < 0.5 else NP(role)
        sentences.append(split.sentence(partial(_sentence, rng, agent, event)))
    wrong = [events[0], _event(rng)] if rng.random() < 0.5 else [_event(rng), events[1]]
    right = _headline(role, events)
    return ((" ".join(sentences),), (right, _headline(role, wrong))) if split.owns(right) else None


_NAMES = {name.sg: name for name in HOME.names}


def _headline(role: Noun, events: list[tuple[Verb, NP]]) -> str:
    return f"the {role.sg} {' and '.join(f'{verb.past} {say_np(patient)}' for verb, patient in events)} ."
