"""The pocket suite: small, real tasks in a small English, made by rule; the one door to it.

    from common import pocket
    rows = pocket.generate("mnli", "train", size=1000, seed=0)   # {"premise": [...], "hypothesis": [...], ...}
    text = pocket.unlabelled(100)                                # documents without labels
    words = pocket.vocabulary()                                  # every token that can occur

Its models stand in `common.pocket.models`, which needs torch; nothing here does.
"""

from common.pocket.sentences import (
    COLUMNS,
    CORPUS,
    DOCUMENTS,
    LABELS,
    NOISE,
    SPLITS,
    STSB_NOISE_SD,
    TASKS,
    TEXTS,
    VERSION,
    generate,
    in_split,
    people,
    unlabelled,
    vocabulary,
)
from common.pocket.texts import foreign_words
from common.pocket.texts import unlabelled as unlabelled_bilingual

__all__ = [
    "COLUMNS",
    "CORPUS",
    "DOCUMENTS",
    "LABELS",
    "NOISE",
    "SPLITS",
    "STSB_NOISE_SD",
    "TASKS",
    "TEXTS",
    "VERSION",
    "foreign_words",
    "generate",
    "in_split",
    "people",
    "unlabelled",
    "unlabelled_bilingual",
    "vocabulary",
]
