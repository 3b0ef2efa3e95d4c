"""The metrics of written texts, of tags and of answers: BLEU from sacreBLEU, ROUGE from rouge-score, entity F1 from
seqeval. The libraries are imported where they are used."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import string
import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

# Scripts without blanks between words, as Unicode's names of their letters begin
NO_BLANKS = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


@functools.cache
def script(letter: str) -> str | None:
    """The script of a letter, mark or digit: one of NO_BLANKS, or "" of any other; None for what is none of these."""
    if unicodedata.category(letter)[0] not in "LMN":
        return None
    return next((name for name in NO_BLANKS if unicodedata.name(letter, "").startswith(name)), "")


def words(text: str) -> list[str]:
    """Unicode's words, in lower case; of a script without blanks the single characters."""
    spaced = ""
    for letter in unicodedata.normalize("NFC", text.lower()):
        found = script(letter)
        spaced += " " if found is None else f" {letter} " if found else letter
    return spaced.split()


def bleu(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """sacreBLEU's corpus BLEU, one reference for each sentence, as a fraction; `signature("bleu")` says which."""
    return {"bleu": bleu_scorer(references).corpus_score(list(predictions), [list(references)]).score / 100}


def bleu_scorer(references: Sequence[str]) -> Any:
    """sacreBLEU's scorer for the script of most of the references' words: its tokenizer for Chinese, characters for
    other scripts without blanks, such as Japanese, and for all others its default, 13a."""
    from sacrebleu.metrics import BLEU

    if all(map(str.isascii, references)):
        return BLEU()
    scripts = Counter(script(word[0]) or "" for text in references for word in words(text))
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if 2 * scripts[""] >= scripts.total():
        return BLEU()
    return BLEU(tokenize="zh" if scripts["CJK"] > max(10 * kana, scripts.total() / 2) else "char")


def rouge(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """rouge-score's F1 of ROUGE-2, ROUGE-1 and ROUGE-L, with Porter's stemmer, means over the examples; of `words`
    where references have other letters than its own words, a-z and 0-9.

    ROUGE-L takes a text as one sequence, line ends included.
    """
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

    own = DefaultTokenizer(use_stemmer=True)

    class Words(Tokenizer):  # type: ignore[misc]
        def tokenize(self, text: str) -> list[str]:
            return [one for word in words(text) for one in (own.tokenize(word) if word.isascii() else [word])]

    names = ("rouge2", "rouge1", "rougeL")
    scorer = RougeScorer(names, tokenizer=Words() if beyond_ascii(references) else own)
    rows = [scorer.score(true, found) for found, true in zip(predictions, references, strict=True)]
    return {name: sum(row[name].fmeasure for row in rows) / len(rows) for name in names}


def beyond_ascii(texts: Sequence[str]) -> bool:
    """Whether texts have letters or digits that rouge-score's own words leave out."""
    return any(not one.isascii() and script(one) is not None for text in texts if not text.isascii() for one in text)


def signature(metric: str, references: Sequence[str] = ()) -> str:
    """What a figure of BLEU or ROUGE depends on: the library's version and settings, and the references' script."""
    if metric == "bleu":
        scorer = bleu_scorer(references)
        scorer.corpus_score(["a"], [["a"]])  # the number of references is known after a call
        return str(scorer.get_signature()).replace("|", ",")
    said = f"rouge-score {importlib.metadata.version('rouge-score')},stemmed"
    return f"{said},Unicode words" if beyond_ascii(references) else said


# --- documents -----------------------------------------------------------------------------------------------


def entities(predictions: list[list[str]], labels: list[list[str]], types: Sequence[str]) -> dict[str, float]:
    """Micro F1 over whole entities ("entity_f1"), then the F1 of each type ("PER_f1"), from B-, I- and O tags.

    As seqeval and the conlleval script count: an entity is right if its type and both of its ends are. A type that
    is neither there nor predicted has 0.0. Both arguments: sentences of tags, of equal lengths.
    """
    from seqeval.metrics import classification_report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no entity of a type is a defined case here
        report = classification_report(labels, predictions, output_dict=True, zero_division=0)
    rows = {"entity_f1": "micro avg"} | {f"{kind}_f1": kind for kind in types}
    return {name: float(report[row]["f1-score"]) if row in report else 0.0 for name, row in rows.items()}


QUOTES = "\u2018\u2019\u00b4`"  # TriviaQA's further punctuation
YES_NO = (["yes"], ["no"], ["noanswer"])  # HotpotQA's answers that are right as a whole or not at all
OFFICIAL = ("squad", "squad-articles", "hotpot_qa", "trivia_qa")  # have a program that compares answers


def plain_answer(text: str, program: str = "squad") -> list[str]:
    """The words of an answer as an evaluation program compares them: lower case, no punctuation, no articles.

    SQuAD's and HotpotQA's programs leave punctuation out ("jeanpaul"); TriviaQA's puts a blank in its place. Of
    one's own data, an answer in a script without blanks is compared by `words`.
    """
    if program not in OFFICIAL and any(map(script, text)):
        return words(text)
    trivia = program == "trivia_qa"
    dropped = string.punctuation + (QUOTES if trivia else "")
    text = text.lower().translate({ord(letter): " " if trivia else None for letter in dropped})
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def answer_f1(prediction: list[str], truth: list[str], program: str = "squad") -> float:
    """F1 of the words that an answer shares with a true one."""
    if program == "hotpot_qa" and prediction != truth and (prediction in YES_NO or truth in YES_NO):
        return 0.0
    shared = sum((Counter(prediction) & Counter(truth)).values())
    return 2 * shared / (len(prediction) + len(truth)) if shared else 0.0


def questions(predictions: Sequence[str], truths: Sequence[Sequence[str]], program: str = "squad") -> dict[str, float]:
    """Mean "answer_f1" and "exact_match" over questions, each the best over its true answers (one or more).

    As the official program of squad, hotpot_qa or trivia_qa counts; any other name counts as SQuAD's does,
    but in scripts without blanks.
    """
    pairs = [
        (plain_answer(found, program), [plain_answer(truth, program) for truth in true])
        for found, true in zip(predictions, truths, strict=True)
    ]
    f1 = [max(answer_f1(found, truth, program) for truth in true) for found, true in pairs]
    exact = [found in true for found, true in pairs]
    return {"answer_f1": sum(f1) / len(pairs), "exact_match": sum(exact) / len(pairs)}
