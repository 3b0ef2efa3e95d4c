"""The words of the pocket suite: nouns with a taxonomy, verbs, adjectives, places, times, names, opinions.

Each table is a plain string that is parsed at import. Synonyms stand beside each other (`doctor/physician`), opposites
on the two sides of a bar (`praise/commend | blame/criticize`).
"""

# ruff: noqa: SIM905 (a table of words is easier to read as one string)

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiou"


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun: its two forms, its kind ("person", "animal", "fruit", ...), hypernym and gender."""

    sg: str
    pl: str
    kind: str
    parent: str = ""  # the singular of the hypernym, "" if there is none
    gender: str = ""  # "f", "m", or "" where the word does not tell


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb: its five forms and the kind of its object ("" for none)."""

    base: str
    s: str
    past: str
    part: str
    ing: str
    takes: str = ""


# --- word forms ----------------------------------------------------------------------------------------------

_IRREGULAR_PLURALS = (
    "thief thieves,watchman watchmen,man men,woman women,child children,scarf scarves,potato potatoes,"
    "tomato tomatoes,trout trout,salmon salmon,fish fish"
)
_IRREGULAR_VERBS = (  # base, past, participle
    "buy bought bought,sell sold sold,find found found,lose lost lost,hide hid hidden,show showed shown,"
    "break broke broken,draw drew drawn,drive drove driven,eat ate eaten,read read read,write wrote written,"
    "steal stole stolen,sleep slept slept,weep wept wept,leave left left,sing sang sung,give gave given,"
    "send sent sent,lend lent lent,know knew known,think thought thought,tear tore torn,keep kept kept,"
    "bring brought brought,grow grew grown"
)
_PLURALS = {noun: plural for noun, _, plural in (e.partition(" ") for e in _IRREGULAR_PLURALS.split(","))}
_PASTS = {base: (past, part) for base, past, part in map(str.split, _IRREGULAR_VERBS.split(","))}
_DOUBLING = ("chop", "chat", "drag")  # their last letter, before -ed and -ing


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
    regular = base + "d" if base.endswith("e") else (y_stem or stem) + "ed"
    past, part = _PASTS.get(base, (regular, regular))
    ing = base[:-1] + "ing" if base.endswith("e") and not base.endswith("ee") else stem + "ing"
    return Verb(base, third, past, part, ing, takes)


# --- reading the tables --------------------------------------------------------------------------------------

SYNONYMS: dict[str, tuple[str, ...]] = {}  # word -> the others that mean the same
ANTONYMS: dict[str, tuple[str, ...]] = {}  # word -> those that mean the opposite


def _same(group: str) -> tuple[str, ...]:
    """The words of a group `a/b`, which become synonyms."""
    words = tuple(group.strip().split("/"))
    if len(words) > 1:
        SYNONYMS.update({word: tuple(other for other in words if other != word) for word in words})
    return words


def _nouns(table: dict[str, str], kind: str = "") -> dict[str, Noun]:
    """The nouns of a table hypernym -> hyponyms; without `kind`, the hypernym is their kind."""
    nouns: dict[str, Noun] = {}
    for parent, members in table.items():
        if parent:
            nouns[parent] = Noun(parent, plural(parent), kind or parent)
        for group in members.split():
            nouns |= {word: Noun(word, plural(word), kind or parent, parent) for word in _same(group)}
    return nouns


def _scale(text: str) -> tuple[list[str], set[str]]:
    """The words of `a/b | c/d, e | f`, which become synonyms and antonyms; and those on the right of a bar."""
    words: list[str] = []
    right: set[str] = set()
    for entry in text.split(","):
        sides = [_same(side) for side in entry.split("|")]
        words += [word for side in sides for word in side]
        if len(sides) == 2:
            ANTONYMS.update(dict.fromkeys(sides[0], sides[1]) | dict.fromkeys(sides[1], sides[0]))
            right |= set(sides[1])
    return words, right


# --- nouns ---------------------------------------------------------------------------------------------------

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
_ROLES_ELSEWHERE = (  # the people of the mismatched genre
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

PEOPLE = _nouns(_PEOPLE, "person")
ROLES = _nouns({"": _ROLES}, "person")
ROLES_ELSEWHERE = _nouns({"": _ROLES_ELSEWHERE}, "person")
GENDERED = {
    word: Noun(word, plural(word), "person", gender=gender)
    for gender, words in _GENDERED.items()
    for word in words.split()
}
ANIMALS = _nouns(_ANIMALS, "animal")
THINGS = _nouns(_THINGS)
LOOSE_THINGS = _nouns({"": _LOOSE_THINGS}, "thing")
NOUNS = LOOSE_THINGS | THINGS | ANIMALS | GENDERED | ROLES_ELSEWHERE | ROLES | PEOPLE
_FAMILY = "uncle aunt cousin nephew niece kid child mother father sister brother son daughter boy girl"
FAMILY = {word: NOUNS[word] for word in _FAMILY.split()}  # known by kinship or age; all others are known by a trade
CHILDREN = {  # hypernym -> its direct hyponyms
    parent: tuple(noun for noun in NOUNS.values() if noun.parent == parent)
    for parent in (*_PEOPLE, *_ANIMALS, *_THINGS)
}

NAMES_F = "alice anna clara diana emma grace helen irene julia laura maria nina rosa sarah tessa vera".split()
NAMES_M = "adam boris carl david edgar felix george henry ivan jacob leon martin oscar peter simon victor".split()
NAMES_ELSEWHERE = "agnes bertha conrad dora ernest flora gustav hilda igor judith klaus lydia".split()
CITIES_NEAR = "paris london berlin madrid vienna athens dublin lisbon oslo prague warsaw zurich".split()
CITIES_FAR = "boston chicago denver dallas seattle toronto tokyo cairo delhi lima nairobi sydney".split()
CITIES_ELSEWHERE = "bergen geneva havana kyoto naples porto quito riga salzburg tunis".split()

# --- places and times ----------------------------------------------------------------------------------------

PLACES = (
    "in the garden,in the kitchen,in the park,in the office,in the library,at the market,at the station,"
    "at the school,near the river,near the bridge,behind the barn,beside the fountain"
).split(",")
PLACES_ELSEWHERE = (
    "on the ship,in the harbor,at the theater,in the forest,in the museum,at the airport,on the island,"
    "in the castle,near the lighthouse,behind the chapel"
).split(",")
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
MONTHS = "january february march april may june july august september october november december".split()
TIMES = [*(f"on {day}" for day in DAYS), *"yesterday,last week,last year,in the morning,at night".split(",")]
TIMES_ELSEWHERE = "before dawn,after midnight,at noon,in the winter,in the summer,two days ago".split(",")

# --- verbs ---------------------------------------------------------------------------------------------------

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
RIGHT_SIDE: set[str] = set()  # the verbs on the right of a bar: what is done less often


def _verbs(text: str, takes: str) -> dict[str, Verb]:
    words, right = _scale(text)
    RIGHT_SIDE.update(right)
    return {word: inflect(word, takes) for word in words}


def _inflected(text: str, takes: str) -> tuple[Verb, ...]:
    return tuple(inflect(word, takes) for word in text.split())


PERSON_VERBS = _verbs(_PERSON_VERBS, "person")
THING_VERBS = _verbs(_THING_VERBS, "thing")
BARE_VERBS = _verbs(_BARE_VERBS, "")
SPECIAL_VERBS = {  # kind of object -> verbs that go with that kind alone
    "fruit": _inflected("eat peel wash slice", "fruit"),
    "vegetable": _inflected("cook fry boil chop", "vegetable"),
    "vehicle": _inflected("drive park rent wash", "vehicle"),
    "instrument": _inflected("play tune", "instrument"),
    "document": _inflected("read write sign tear", "document"),
    "flower": _inflected("water plant grow", "flower"),
}
CLAUSE_VERBS = {
    "fact": _inflected("know discover confirm prove", "clause"),
    "claim": _inflected("claim think suspect guess", "clause"),
}
GIVING_VERBS = _inflected("give send lend sell bring", "person thing")
STRICT_VERBS = (  # verbs that need an object
    "find discover lose misplace fix damage conceal keep retain discard carry describe examine inspect"
).split()

# --- adjectives ----------------------------------------------------------------------------------------------

PERSON_ADJECTIVES, _ = _scale(
    "rich/wealthy | poor, happy/glad | sad/unhappy, clever/smart | foolish/silly, brave/courageous | timid, "
    "kind | cruel, calm | nervous, tall | short, young | elderly"
)
THING_ADJECTIVES, _ = _scale(
    "big/large | small/little, expensive/costly | cheap, clean | dirty/filthy, new | old, heavy | light, "
    "red, blue, green, yellow, white, black"
)
COMPARATIVES = [  # (more, less) of one scale
    ("cheaper", "costlier"),
    ("bigger", "smaller"),
    ("heavier", "lighter"),
    ("older", "newer"),
    ("better", "worse"),
    ("cleaner", "dirtier"),
]

# --- opinions ------------------------------------------------------------------------------------------------

REVIEWED = {  # what is reviewed -> its aspects
    "film": "plot acting script ending dialogue camera soundtrack cast",
    "novel": "prose plot ending dialogue opening narrator",
    "restaurant": "service menu soup dessert wine kitchen",
    "hotel": "room service breakfast view staff bed",
    "concert": "band sound stage singer crowd",
}
GOOD = (
    "charming brilliant delightful funny moving clever fresh warm gripping elegant superb graceful witty "
    "honest lively touching thrilling memorable inventive splendid wonderful beautiful"
).split()
BAD = (
    "dull tedious boring clumsy awful stale shallow lifeless bland messy annoying predictable ugly pointless "
    "dreadful sloppy hollow forgettable tiresome terrible horrible weak"
).split()
GOOD_NOUNS = "triumph delight gem masterpiece treat joy success pleasure".split()
BAD_NOUNS = "mess disaster failure mistake bore disgrace letdown nuisance".split()
GOOD_VERBS = _inflected("shine delight impress dazzle please charm", "opinion")
BAD_VERBS = _inflected("disappoint bore annoy stumble irritate drag", "opinion")

# The words between those above; some stand in no sentence, but the weights that are shipped know them.
_OTHER_WORDS = (
    "a an the this that these those some all most no every two three many nobody is are was were be being "
    "has have do does did will would could can not never hardly ever always often anything but and while "
    "after before although despite because , . ? who whom what where when why how i he she it they one "
    "him her them his its their himself herself themselves by from to in on at near behind beside with "
    "than very truly quite really far fails manages hard easy wrong true call say think claim critics "
    "best way get travel make made there person animal other kind quickly rapidly slowly quietly silently "
    "loudly noisily carefully cautiously carelessly"
)


def vocabulary() -> list[str]:
    """Every word and punctuation mark that the suite can use, sorted."""
    verbs = [*PERSON_VERBS.values(), *THING_VERBS.values(), *BARE_VERBS.values(), *GIVING_VERBS]
    verbs += [*GOOD_VERBS, *BAD_VERBS]
    for table in (SPECIAL_VERBS, CLAUSE_VERBS):
        verbs += [verb for group in table.values() for verb in group]
    words = {form for verb in verbs for form in (verb.base, verb.s, verb.past, verb.part, verb.ing)}
    words |= {form for noun in NOUNS.values() for form in (noun.sg, noun.pl)}
    words.update(NAMES_F, NAMES_M, NAMES_ELSEWHERE, CITIES_NEAR, CITIES_FAR, CITIES_ELSEWHERE, MONTHS)
    words.update(PERSON_ADJECTIVES, THING_ADJECTIVES, GOOD, BAD, GOOD_NOUNS, BAD_NOUNS, *COMPARATIVES)
    for phrase in (_OTHER_WORDS, *PLACES, *PLACES_ELSEWHERE, *TIMES, *TIMES_ELSEWHERE, *REVIEWED, *REVIEWED.values()):
        words.update(phrase.split())
    return sorted(words)
