"""The words of the pocket suite: nouns with a taxonomy, verbs, adjectives, places, times, names, opinions.

Each table is a plain string that is parsed once at import. Words that mean the same stand beside each other
(``doctor/physician``), opposites stand on the two sides of a bar (``praise/commend | blame/criticize``).
Everything else about a word (plural, past tense, hypernym, gender, entity type) is a field of its entry.
"""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiou"


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun: its two forms, kind ("person", "animal", "fruit", ...), hypernym, gender and entity type."""

    sg: str
    pl: str
    kind: str
    parent: str = ""  # the lemma of the hypernym, "" where the suite knows none
    gender: str = ""  # "f", "m" or "": only where the word itself tells
    entity: str = ""  # "PER" or "LOC" for names


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb: its five forms and what it takes as its object ("" for none)."""

    base: str
    s: str
    past: str
    part: str
    ing: str
    takes: str = ""


# ---------------------------------------------------------------------------------------------- word forms


def split_words(text: str, separator: str | None = None) -> list[str]:
    """The entries of a table that is written as one string."""
    return text.split(separator)


_PLURALS = {
    "thief": "thieves",
    "watchman": "watchmen",
    "man": "men",
    "woman": "women",
    "child": "children",
    "wolf": "wolves",
    "knife": "knives",
    "mouse": "mice",
    "goose": "geese",
    "scarf": "scarves",
    "loaf": "loaves",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "hero": "heroes",
    "trout": "trout",
    "salmon": "salmon",
    "sheep": "sheep",
    "fish": "fish",
}

_IRREGULAR = {  # base: past, participle
    "buy": "bought bought",
    "sell": "sold sold",
    "find": "found found",
    "lose": "lost lost",
    "hide": "hid hidden",
    "show": "showed shown",
    "break": "broke broken",
    "build": "built built",
    "draw": "drew drawn",
    "drive": "drove driven",
    "eat": "ate eaten",
    "read": "read read",
    "write": "wrote written",
    "steal": "stole stolen",
    "catch": "caught caught",
    "teach": "taught taught",
    "meet": "met met",
    "sleep": "slept slept",
    "weep": "wept wept",
    "leave": "left left",
    "run": "ran run",
    "swim": "swam swum",
    "sing": "sang sung",
    "win": "won won",
    "speak": "spoke spoken",
    "sit": "sat sat",
    "stand": "stood stood",
    "lead": "led led",
    "give": "gave given",
    "send": "sent sent",
    "lend": "lent lent",
    "tell": "told told",
    "know": "knew known",
    "say": "said said",
    "think": "thought thought",
    "tear": "tore torn",
    "throw": "threw thrown",
    "keep": "kept kept",
    "fall": "fell fallen",
    "put": "put put",
    "shut": "shut shut",
    "bring": "brought brought",
    "understand": "understood understood",
    "forget": "forgot forgotten",
    "make": "made made",
    "grow": "grew grown",
}

_DOUBLING = {
    "chop",
    "drop",
    "grab",
    "hug",
    "run",
    "swim",
    "win",
    "sit",
    "shut",
    "put",
    "chat",
    "nod",
    "forget",
    "drag",
}


def plural(noun: str) -> str:
    """The plural of a singular noun."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def inflect(base: str, takes: str = "") -> Verb:
    """All forms of a verb from its base."""
    stem = base + base[-1] if base in _DOUBLING else base
    y_stem = base[:-1] + "i" if base.endswith("y") and base[-2] not in VOWELS else ""
    sibilant = base.endswith(("s", "x", "ch", "sh", "z", "o"))
    third = base + "es" if sibilant else y_stem + "es" if y_stem else base + "s"
    if base in _IRREGULAR:
        past, part = _IRREGULAR[base].split()
    else:
        past = part = base + "d" if base.endswith("e") else (y_stem or stem) + "ed"
    ing = base[:-1] + "ing" if base.endswith("e") and not base.endswith("ee") else stem + "ing"
    return Verb(base, third, past, part, ing, takes)


# --------------------------------------------------------------------------------------------------- nouns

# hypernym: its hyponyms. Synonyms of a hyponym follow a slash.
_PEOPLE = {
    "musician": "pianist violinist drummer guitarist cellist",
    "athlete": "runner swimmer boxer skater cyclist",
    "scientist": "chemist biologist physicist astronomer geologist",
    "artist": "painter sculptor potter illustrator engraver",
    "official": "mayor minister senator governor ambassador",
    "worker": "plumber carpenter welder mason roofer",
    "relative": "uncle aunt cousin nephew niece",
}
_ROLES = (
    "doctor/physician lawyer/attorney teacher/instructor writer/author thief/burglar cook/chef kid/child "
    "soldier/trooper guard/watchman boss/manager clerk nurse farmer driver judge student"
)
_ROLES_ELSEWHERE = (  # the people of the mismatched genres
    "captain pilot sailor diver waiter barber tailor baker priest hunter shepherd miner dancer butler "
    "librarian tourist pirate referee surgeon detective"
)
_GENDERED = {
    "f": "queen princess mother sister daughter woman girl actress grandmother duchess",
    "m": "king prince father brother son man boy actor grandfather duke",
}
_ANIMALS = {
    "dog": "poodle beagle terrier spaniel",
    "bird": "robin sparrow eagle falcon",
    "horse": "pony stallion mare mustang",
    "fish": "trout salmon carp herring",
    "insect": "beetle moth wasp cricket",
}
_THINGS = {
    "fruit": "apple pear plum banana",
    "vegetable": "carrot onion potato tomato",
    "vehicle": "car/automobile truck/lorry van bicycle/bike",
    "instrument": "guitar violin piano flute",
    "tool": "hammer saw drill wrench",
    "flower": "rose tulip lily daisy",
    "document": "letter report contract map",
    "toy": "doll puzzle kite ball",
    "jewel": "ruby diamond emerald pearl",
    "garment": "jacket/coat hat/cap scarf shirt",
}
_LOOSE_THINGS = (
    "sofa/couch gift/present photo/picture stone/rock bag/sack cup/mug rug/carpet phone/telephone "
    "lamp mirror basket bottle clock table"
)


def _nouns(table: dict[str, str], kind: str = "") -> tuple[dict[str, Noun], list[tuple[str, ...]]]:
    """The entries of one taxonomy table and its groups of synonyms; no ``kind``: the hypernym is it."""
    entries: dict[str, Noun] = {}
    same = []
    for parent, members in table.items():
        if parent:
            entries[parent] = Noun(parent, plural(parent), kind or parent)
        for group in members.split():
            words = tuple(group.split("/"))
            same += [words] if len(words) > 1 else []
            entries |= {word: Noun(word, plural(word), kind or parent, parent) for word in words}
    return entries, same


def _groups(text: str) -> tuple[list[tuple[str, ...]], list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Parse ``a/b | c/d, e | f``: all groups of synonyms, and the pairs of opposite groups."""
    same, opposite = [], []
    for entry in text.split(","):
        sides = [tuple(side.strip().split("/")) for side in entry.split("|")]
        same += sides
        if len(sides) == 2:
            opposite.append((sides[0], sides[1]))
    return same, opposite


PEOPLE, _same_people = _nouns(_PEOPLE, "person")
ROLES, _same_roles = _nouns({"": _ROLES}, "person")
ROLES_ELSEWHERE, _ = _nouns({"": _ROLES_ELSEWHERE}, "person")
ANIMALS, _same_animals = _nouns(_ANIMALS, "animal")
THINGS, _same_things = _nouns(_THINGS)
LOOSE_THINGS, _same_loose = _nouns({"": _LOOSE_THINGS}, "thing")
GENDERED = {
    word: Noun(word, plural(word), "person", gender=gender)
    for gender, words in _GENDERED.items()
    for word in words.split()
}
NOUNS: dict[str, Noun] = {
    **LOOSE_THINGS,
    **THINGS,
    **ANIMALS,
    **GENDERED,
    **ROLES_ELSEWHERE,
    **ROLES,
    **PEOPLE,
}
FAMILY: dict[str, Noun] = {  # whoever is known by kinship or age; everybody else is known by a trade
    word: NOUNS[word]
    for word in split_words(
        "uncle aunt cousin nephew niece kid child mother father sister brother son daughter boy girl"
    )
}
CHILDREN: dict[str, tuple[Noun, ...]] = {  # hypernym: its direct hyponyms
    parent: tuple(noun for noun in NOUNS.values() if noun.parent == parent)
    for parent in [*_PEOPLE, *_ANIMALS, *_THINGS]
}

NAMES_F = split_words("alice anna clara diana emma grace helen irene julia laura maria nina rosa sarah tessa vera")
NAMES_M = split_words("adam boris carl david edgar felix george henry ivan jacob leon martin oscar peter simon victor")
NAMES_ELSEWHERE = split_words("agnes bertha conrad dora ernest flora gustav hilda igor judith klaus lydia")
CITIES_NEAR = split_words("paris london berlin madrid vienna athens dublin lisbon oslo prague warsaw zurich")
CITIES_FAR = split_words("boston chicago denver dallas seattle toronto tokyo cairo delhi lima nairobi sydney")
CITIES_ELSEWHERE = split_words("bergen geneva havana kyoto naples porto quito riga salzburg tunis")

# ------------------------------------------------------------------------------- places, times, manner

PLACES = split_words(
    "in the garden,in the kitchen,in the park,in the office,in the library,at the market,at the station,"
    "at the school,near the river,near the bridge,behind the barn,beside the fountain",
    ",",
)
PLACES_ELSEWHERE = split_words(
    "on the ship,in the harbor,at the theater,in the forest,in the museum,at the airport,on the island,"
    "in the castle,near the lighthouse,behind the chapel",
    ",",
)
DAYS = split_words("monday tuesday wednesday thursday friday saturday sunday")
MONTHS = split_words("january february march april may june july august september october november december")
TIMES = [f"on {day}" for day in DAYS] + ["yesterday", "last week", "last year", "in the morning", "at night"]
TIMES_ELSEWHERE = [
    "before dawn",
    "after midnight",
    "at noon",
    "in the winter",
    "in the summer",
    "two days ago",
]
MANNERS = "quickly/rapidly | slowly, quietly/silently | loudly/noisily, carefully/cautiously | carelessly"

# --------------------------------------------------------------------------------------------------- verbs

_PERSON_VERBS = (
    "praise/commend | blame/criticize, help/assist | hinder/obstruct, hire/employ | fire/dismiss, "
    "love/adore | hate/detest, admire/respect | despise/scorn, defend/protect | attack/assault, "
    "trust | distrust, thank, call, warn/alert, chase/pursue, visit, invite, greet/welcome"
)
_THING_VERBS = (
    "buy/purchase | sell, find/discover | lose/misplace, fix/repair | break/damage, "
    "hide/conceal | show/display, "
    "keep/retain | discard, draw/sketch, steal, carry, describe, polish, examine/inspect, photograph"
)
_BARE_VERBS = (
    "laugh | cry/weep, arrive | leave/depart, smile | frown, shout/yell | whisper, rest/relax | work/labor, "
    "sleep, dance, sing, cough, sneeze, wait, chat/talk"
)
_SPECIAL_VERBS = {  # kind of object: verbs that go with that kind only
    "fruit": "eat peel wash slice",
    "vegetable": "cook fry boil chop",
    "vehicle": "drive park rent wash",
    "instrument": "play tune",
    "document": "read write sign tear",
    "flower": "water plant grow",
}
STRICT_VERBS = split_words(  # verbs that cannot do without their object
    "find discover lose misplace fix damage conceal keep retain discard carry describe examine inspect"
)
_CLAUSE_VERBS = {"fact": "know discover confirm prove", "claim": "claim think suspect guess"}
_GIVING_VERBS = split_words("give send lend sell bring")


def _verbs(text: str, takes: str) -> tuple[dict[str, Verb], list, list]:
    same, opposite = _groups(text)
    return {word: inflect(word, takes) for group in same for word in group}, same, opposite


PERSON_VERBS, _same_pv, _opp_pv = _verbs(_PERSON_VERBS, "person")
THING_VERBS, _same_tv, _opp_tv = _verbs(_THING_VERBS, "thing")
BARE_VERBS, _same_bv, _opp_bv = _verbs(_BARE_VERBS, "")
SPECIAL_VERBS = {kind: tuple(inflect(v, kind) for v in words.split()) for kind, words in _SPECIAL_VERBS.items()}
CLAUSE_VERBS = {kind: tuple(inflect(v, "clause") for v in words.split()) for kind, words in _CLAUSE_VERBS.items()}
GIVING_VERBS = tuple(inflect(v, "person thing") for v in _GIVING_VERBS)

# ---------------------------------------------------------------------------------------------- adjectives

_PERSON_ADJECTIVES = (
    "rich/wealthy | poor, happy/glad | sad/unhappy, clever/smart | foolish/silly, brave/courageous | timid, "
    "kind | cruel, calm | nervous, tall | short, young | elderly"
)
_THING_ADJECTIVES = (
    "big/large | small/little, expensive/costly | cheap, clean | dirty/filthy, new | old, heavy | light, "
    "red, blue, green, yellow, white, black"
)
_same_pa, _opp_pa = _groups(_PERSON_ADJECTIVES)
_same_ta, _opp_ta = _groups(_THING_ADJECTIVES)
_same_mn, _opp_mn = _groups(MANNERS)
PERSON_ADJECTIVES = [word for group in _same_pa for word in group]
THING_ADJECTIVES = [word for group in _same_ta for word in group]
MANNER_ADVERBS = [word for group in _same_mn for word in group]
COMPARATIVES = [  # (more, less) of one scale, of kinds of things
    ("cheaper", "costlier"),
    ("bigger", "smaller"),
    ("heavier", "lighter"),
    ("older", "newer"),
    ("better", "worse"),
    ("cleaner", "dirtier"),
]

SYNONYMS: dict[str, tuple[str, ...]] = {}
for _group in [
    *(_same_people + _same_roles + _same_animals + _same_things + _same_loose),
    *(_same_pv + _same_tv + _same_bv + _same_pa + _same_ta + _same_mn),
]:
    for _word in _group:
        SYNONYMS[_word] = tuple(other for other in _group if other != _word)
ANTONYMS: dict[str, tuple[str, ...]] = {}
RIGHT_SIDE = {word for _, right in _opp_pv + _opp_tv + _opp_bv for word in right}  # of the bars, verbs only
for _left, _right in _opp_pv + _opp_tv + _opp_bv + _opp_pa + _opp_ta + _opp_mn:
    ANTONYMS |= dict.fromkeys(_left, _right) | dict.fromkeys(_right, _left)

# ------------------------------------------------------------------------------------------------ opinions

REVIEWED = {  # what is reviewed: its aspects
    "film": "plot acting script ending dialogue camera soundtrack cast",
    "novel": "prose plot ending dialogue opening narrator",
    "restaurant": "service menu soup dessert wine kitchen",
    "hotel": "room service breakfast view staff bed",
    "concert": "band sound stage singer crowd",
}
GOOD = split_words(
    "charming brilliant delightful funny moving clever fresh warm gripping elegant superb graceful witty "
    "honest lively touching thrilling memorable inventive splendid wonderful beautiful"
)
BAD = split_words(
    "dull tedious boring clumsy awful stale shallow lifeless bland messy annoying predictable ugly pointless "
    "dreadful sloppy hollow forgettable tiresome terrible horrible weak"
)
GOOD_NOUNS = split_words("triumph delight gem masterpiece treat joy success pleasure")
BAD_NOUNS = split_words("mess disaster failure mistake bore disgrace letdown nuisance")
GOOD_VERBS = tuple(inflect(v, "opinion") for v in split_words("shine delight impress dazzle please charm"))
BAD_VERBS = tuple(inflect(v, "opinion") for v in split_words("disappoint bore annoy stumble irritate drag"))

FUNCTION_WORDS = split_words(
    "a an the this that these those some all most no every two three many nobody is are was were be being "
    "has have do does did will would could can not never hardly ever always often anything but and while "
    "after before although despite because , . ? who whom what where when why how i he she it they one "
    "him her them his its their himself herself themselves by from to in on at near behind beside with "
    "than very truly quite really far fails manages hard easy wrong true call say think claim critics "
    "best way get travel make made there person animal other kind"
)


def vocabulary() -> list[str]:
    """Every token that the words above can produce, sorted."""
    verbs = [*PERSON_VERBS.values(), *THING_VERBS.values(), *BARE_VERBS.values(), *GIVING_VERBS]
    verbs += [*GOOD_VERBS, *BAD_VERBS]
    for table in (SPECIAL_VERBS, CLAUSE_VERBS):
        verbs += [verb for group in table.values() for verb in group]
    words = {form for verb in verbs for form in (verb.base, verb.s, verb.past, verb.part, verb.ing)}
    words |= {form for noun in NOUNS.values() for form in (noun.sg, noun.pl)}
    words.update(NAMES_F, NAMES_M, NAMES_ELSEWHERE, CITIES_NEAR, CITIES_FAR, CITIES_ELSEWHERE, MONTHS, FUNCTION_WORDS)
    words.update(PERSON_ADJECTIVES, THING_ADJECTIVES, MANNER_ADVERBS, GOOD, BAD, GOOD_NOUNS, BAD_NOUNS)
    words.update(word for pair in COMPARATIVES for word in pair)
    for phrase in [*PLACES, *PLACES_ELSEWHERE, *TIMES, *TIMES_ELSEWHERE, *REVIEWED, *REVIEWED.values()]:
        words.update(phrase.split())
    return sorted(words)
