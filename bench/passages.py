"""A real task on which length must pay: are the first and the last words of a text from one article, or from two?

    python -m bench passages wikipedia.txt --between 500 --to data/passages-far    # train.csv and test.csv
    python -m bench passages wikipedia.txt --between 0 --to data/passages-near     # the two passages alone

The file has a paragraph a line, and an empty line between articles. Each draw takes two articles and makes four texts,
which begin with a passage of either and end with one of either, so that one end alone, and the length, say nothing.
What stands between is of a third article, the same in all four. No article is in both splits. With the same `--seed`
the passages are the same whatever stands between them.
"""

from __future__ import annotations

import csv
import itertools
import random
from pathlib import Path

from bench.cli import Parser, at_least, reading
from common.args import BadInput


def articles_of(path: Path, least: int) -> list[list[str]]:
    """The words of the articles that have `least` or more."""
    with reading(path, "text in UTF-8") as text:
        return [words for words in map(str.split, text.split("\n\n")) if len(words) >= least]


def texts_of(articles: list[list[str]], draws: int, words: int, between: int, seed: str) -> list[tuple[str, str]]:
    """Four texts a draw, each with its label."""
    found = []
    for draw in range(draws):
        rng = random.Random(f"{seed}/{draw}")
        one, other, third = rng.sample(articles, 3)
        ends = []
        for article in (one, other):
            first = rng.randrange(len(article) - 2 * words + 1)
            last = rng.randrange(first + words, len(article) - words + 1)
            ends.append((article[first : first + words], article[last : last + words]))
        at = rng.randrange(len(third) - between + 1)
        for i, j in itertools.product(range(2), repeat=2):
            text = " ".join(ends[i][0] + third[at : at + between] + ends[j][1])
            found.append((text, "same" if i == j else "different"))
    return found


def main(argv: list[str]) -> None:
    parser = Parser("passages", __doc__)
    parser.add_argument("text", type=Path, help="articles, a paragraph a line, an empty line after each")
    parser.add_argument("--to", type=Path, required=True, help="the folder of train.csv and test.csv")
    parser.add_argument("--words", type=at_least(1), default=40, help="of each passage")
    parser.add_argument("--between", type=at_least(0), default=500, help="words between the passages")
    parser.add_argument("--train", type=at_least(1), default=400, help="draws for training, of four texts each")
    parser.add_argument("--test", type=at_least(1), default=150, help="draws for the test, from other articles")
    parser.add_argument("--least", type=at_least(1), default=2000, help="words of an article that is used")
    parser.add_argument("--seed", type=int, default=0, help="of the articles of each split, and of the draws")
    given = parser.parse_args(argv)
    # not what `--between` needs: with another value the same articles would fall to other splits
    if given.least < max(2 * given.words, given.between):
        raise BadInput(f"--least {given.least}: two passages, or what stands between, would not fit into an article")
    articles = articles_of(given.text, given.least)
    random.Random(given.seed).shuffle(articles)
    cut = len(articles) // 4
    if cut < 3:
        raise BadInput(f"{given.text}: {len(articles)} articles of {given.least:,} words or more; 12 are needed")
    given.to.mkdir(parents=True, exist_ok=True)
    for split, draws, of in (("train", given.train, articles[cut:]), ("test", given.test, articles[:cut])):
        with (given.to / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("text", "label"))
            rows.writerows(texts_of(of, draws, given.words, given.between, f"{given.seed}/{split}"))
    print(f"{len(articles)} articles; {4 * given.train:,} and {4 * given.test:,} texts in {given.to}")
