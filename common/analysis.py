"""What a named-entity data set is made of: lengths, tags, and how far its documents reach (Brown et al., appendix A).

    analyse_ner([data.load("pocket/ner"), data.load("litbank", "data/litbank")], Path("runs/analysis"))

Tables 1 and 9 and figure 1 of "Efficient Transformer Knowledge Distillation", for any data of `common.data`: over all
splits together, as there. Lengths are in words; with a tokenizer, in its tokens too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import plots, results, windows
from common.args import BadInput
from common.data import TaskData

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LIMITS = (512, 4096)  # lengths that models read: what share of the documents is longer?
Lengths = dict[str, float]


def length_statistics(lengths: list[int]) -> Lengths:
    """Table 1: count, mean, standard deviation (n - 1), minimum, quartiles, maximum; and the share over each limit."""
    values = np.asarray(lengths, dtype=np.float64)
    found = {"count": len(values), "mean": values.mean(), "std": values.std(ddof=1) if len(values) > 1 else 0.0}
    found |= {f"{q}%": np.percentile(values, q) for q in (0, 25, 50, 75, 100)}
    found |= {f"over {limit}": (values > limit).mean() for limit in LIMITS}
    return {name: float(value) for name, value in found.items()}


def tag_proportions(task: TaskData) -> dict[str, dict[str, float | None]]:
    """Table 9: how often each tag occurs, its share p of all words, and p1 of those with another tag than O."""
    counts = Counter(tag for split in task.splits.values() for row in split.labels for tag in row)
    total, outside = sum(counts.values()), counts[task.task.labels.index("O")]
    return {
        tag: {
            "count": counts[i],
            "p": counts[i] / total,
            "p1": None if tag == "O" else counts[i] / max(1, total - outside),
        }
        for i, tag in enumerate(task.task.labels)
    }


def word_lengths(task: TaskData) -> list[int]:
    """Words of every document."""
    return [len(windows.words(text)) for split in task.splits.values() for (text,) in split.texts]


def token_lengths(task: TaskData, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens of every document, without special ones."""
    texts = [text.replace("\n", " ") for split in task.splits.values() for (text,) in split.texts]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]


def density(lengths: list[int], points: int = 200) -> plots.Line | None:
    """Figure 1: a Gaussian kernel density estimate (Scott's rule), or None where all lengths are one."""
    from scipy.stats import gaussian_kde

    if len(set(lengths)) < 2:
        return None
    x = np.linspace(0, max(lengths), points)
    return x.tolist(), gaussian_kde(lengths)(x).tolist()


def analyse_ner(
    tasks: list[TaskData], folder: Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> dict[str, dict[str, Any]]:
    """Analyse each task, print its tables, and write `ner-data.json` and `ner-lengths.png` into `folder`.

    Returns what the JSON holds: task -> "data", "lengths", "tags", "i_to_b" and, with a tokenizer, "tokens". Raises
    BadInput for a task of another kind.
    """
    records: dict[str, dict[str, Any]] = {}
    curves: dict[str, plots.Line] = {}
    for task in tasks:
        if task.task.kind != "token classification":
            raise BadInput(f"--analyse-data: {task.name} is {task.task.kind}; only tagged data has tags to analyse")
        tags = tag_proportions(task)
        begun, inside = (
            sum(row["count"] or 0 for tag, row in tags.items() if tag[:2] == part) for part in ("B-", "I-")
        )
        records[task.name] = {
            "data": f"{task.origin}#{task.fingerprint}",
            "lengths": length_statistics(word_lengths(task)),
            "tags": tags,
            "i_to_b": inside / max(1, begun),  # long names have many inner words
        }
        if tokenizer is not None:
            records[task.name]["tokens"] = length_statistics(token_lengths(task, tokenizer))
        if (curve := density(word_lengths(task))) is not None:
            curves[task.name] = curve
        print(f"\n{task.name} ({task.origin})\n{tables(records[task.name])}")
    results.write_json(folder / "ner-data.json", records)
    if curves:
        plots.lines(curves, folder / "ner-lengths.png", "Lengths of documents", "words", "density")
    print(f"\nsaved: {folder}")
    return records


def tables(record: dict[str, Any]) -> str:
    """Tables 1 and 9 of one task as text."""
    kinds = [kind for kind in ("lengths", "tokens") if kind in record]
    names = list(record["lengths"])
    cell = {name: "{:.1%}" if name.startswith("over") else "{:.1f}" for name in names}
    rows = [[name, *(cell[name].format(record[kind][name]) for kind in kinds)] for name in names]
    first = results.columns(rows, ["length", *("words" if kind == "lengths" else "tokens" for kind in kinds)])
    tags = [
        [tag, f"{row['count']:,}", f"{row['p']:.3f}", "-" if row["p1"] is None else f"{row['p1']:.3f}"]
        for tag, row in record["tags"].items()
    ]
    return f"{first}\n\n{results.columns(tags, ['tag', '#', 'p', 'p1'])}\nI- to B- tags: {record['i_to_b']:.2f}"
