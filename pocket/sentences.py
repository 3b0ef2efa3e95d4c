"""The tasks of the pocket suite about single sentences and pairs of them: one rule each, which draws an example.

A rule draws a label, draws a frame (`pocket.grammar`), changes it so that it earns the label, and says both in
words. It returns None when what it has drawn cannot earn the label.

    cola   one construction, whole or broken in one place: agreement across a phrase, reflexives, what a verb takes,
           questions with and without their gap, "ever" without "no", the form after an auxiliary, order
    sst2   opinions composed: negation, "fails to be", "anything but", "but", "although", reports
    mrpc   same event? synonyms, passive and order keep it; swapped roles, the opposite verb or "not" change it
    qqp    same question? other wordings keep it; swapped roles or directions, opposite verbs or scales change it
    stsb   0-5: the weight of the slots that two scenes share; synonyms count in full, hypernyms and siblings in part
    mnli   monotonicity of "all", "some", "no", "most", "the" and "not"; opposites; swapped roles. The mismatched
           splits are of another genre: its people, places, times and names are words that its training never shows
    qnli   does the sentence answer the question, or has it other roles, another verb or no such slot?
    rte    two clauses, or one that someone knew or only claimed; does a short sentence follow?
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from pocket import lexicon
from pocket.grammar import (
    BARE_VERBS,
    GRADED_THINGS,
    GRADED_TRADES,
    HOME,
    NOTHING,
    NP,
    OPPOSED_THING_VERBS,
    THING_VERBS,
    Clause,
    Genre,
    alter,
    another_noun,
    ask,
    both_people,
    draw_aspects,
    draw_clause,
    draw_construction,
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
)
from pocket.lexicon import NOUNS, SYNONYMS, Noun, Verb
from pocket.splits import Split

STSB_NOISE_SD = 0.75  # the standard deviation of an stsb annotator, in points of the 0-5 scale

Example = tuple[tuple[str, ...], str | float]  # the texts and the true label

# --- single sentences ----------------------------------------------------------------------------------------


def cola(rng: Random, _: Split) -> Example:
    good = rng.random() < 0.5
    return (draw_construction(rng, good),), "acceptable" if good else "unacceptable"


def sst2(rng: Random, _: Split) -> Example:
    good = rng.random() < 0.5
    return (f"{_review_sentence(rng, good)} .",), "positive" if good else "negative"


def _review_sentence(rng: Random, good: bool) -> str:
    """One opinion, or two, of which the main clause decides, or what is said against a report."""
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


def mrpc(rng: Random, _: Split) -> Example:
    same = rng.random() < 0.55
    clause = draw_clause(rng, people=0.65, place=0.5, time=0.4).but(negated=rng.random() < 0.15)
    second = clause if same else alter(rng, clause)
    texts = _say_freely(rng, clause), _say_freely(rng, reword(rng, second))
    return texts, "equivalent" if same else "not_equivalent"


def _say_freely(rng: Random, clause: Clause) -> str:
    """The clause in any of its word orders, with its full stop."""
    return f"{say(clause, passive=rng.random() < 0.15, fronted=rng.random() < 0.3)} ."


def qqp(rng: Random, _: Split) -> Example:
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


def draw_question(rng: Random) -> str:
    """A question of any of these kinds."""
    return rng.choice((_how, _why, _route, _compare))(rng, True)[0]


# --- how similar ---------------------------------------------------------------------------------------------


def stsb(rng: Random, _: Split) -> Example:
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
    for slot in rng.sample(_SLOTS, rng.choice(_CHANGES)):
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


def misjudge_score(rng: Random, score: float, noise: float) -> float:
    """An annotator's score: near the true one, and in the share `noise` of the cases any."""
    if not noise:
        return score
    given = rng.uniform(0, 5) if rng.random() < noise else rng.gauss(score, STSB_NOISE_SD)
    return round(min(5.0, max(0.0, given)), 2)


_SLOT_WEIGHTS = {"agent": 1.25, "verb": 1.5, "patient": 1.25, "adj": 0.5, "place": 0.5}  # 5 in all
_SLOTS = tuple(_SLOT_WEIGHTS)
_CHANGES = (0, 0, 1, 1, 2, 2, 3, 4, 5)  # how many slots change


def _another(rng: Random, noun: Noun) -> tuple[Noun, float]:
    """Another noun and how near it is: a hypernym or another of the same kind, or anything, which counts as nothing
    even where it is of the same kind by chance: 3.5% of the labels are 0.75 too low, no Pearson can exceed 99.6."""
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

MNLI_LABELS = ("entailment", "neutral", "contradiction")


def mnli(rng: Random, split: Split) -> Example | None:
    label = rng.choice(MNLI_LABELS)
    pair = rng.choice(_MNLI_RULES[label])(rng, split.genre, label)
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


# (quantifier, negated) -> what happens when the restrictor (the noun and its adjective) or the body (verb, object,
# place, ...) is made broader: "up": the broader clause follows; "down": the narrower one does; "": neither.
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
    """A clause and a broader one: entailment the way in which the context is monotone, neutral the other way."""
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
    """Another quantifier; or, of a definite subject, "not"."""
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
    **dict.fromkeys(("entailment", "neutral"), (*(_monotone_pair,) * 4, _quantifier_pair, _verb_pair)),
    "contradiction": (_quantifier_pair, _verb_pair),
}


def qnli(rng: Random, _: Split) -> Example:
    answered = rng.random() < 0.5
    target, rest = _two_clauses(rng)
    slot = rng.choice(["agent", "agent", "patient", "patient", "place", "time"])
    if slot in ("place", "time"):
        phrase = rng.choice(HOME.places if slot == "place" else HOME.times)
        asked = target = target.but(**{slot: phrase if answered else ""})
        rest = rest.but(place="")
    else:
        asked = target if answered else alter(rng, target).but(negated=False)
        if not answered and asked == target:
            asked = target.but(verb=opposite(rng, target.verb))
    question = ask(rng, reword(rng, asked, share=0.2), slot)
    return (question, _join(rng, target, rest)), "entailment" if answered else "not_entailment"


def rte(rng: Random, _: Split) -> Example:
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
