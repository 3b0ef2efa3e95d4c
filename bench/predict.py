"""A class, or a score, for each row of a table, by a saved student.

    python -m bench predict FOLDER tickets.csv --out answers.csv
    python -m bench predict FOLDER pairs.jsonl --text question,answer | head    # its columns have other names

    python -m bench predict FOLDER tickets.csv --against OLDER    # which one is better on rows that neither has seen

FOLDER is that of a run on classes, scores or several labels, of any script. The table is CSV, TSV, JSON, JSON lines or
Parquet. Its texts are in the columns that the student was trained with, or those of --text, and are cut as in training.
The answers are CSV, in the table's order: its `id`, where it has one, the label, and for each class a column with its
probability, as `--teacher-outputs` reads them; or the score. With --against the table has labels, and both students are
scored on the rows that a run holds out of it. Last month's student has not seen them either, if it was trained on the
same table when it had fewer rows; but it may have seen texts of a class that had no other then.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import binomtest

from bench import Parser
from common import data, evaluate, models, parallel, tables
from common.errors import BadInput, refused, shown, some, warn
from common.kinds import SURROGATE, Kind, Split, Task
from common.kinds.names import label_order
from common.results import replacing
from common.tasks import Columns
from common.values import check_place

ROWS = 1024  # that are tokenised, predicted and written at a time
Predict = Callable[[Split], tuple[np.ndarray, int]]  # N rows -> (N, C) logits, or (N, 1) scores; how many were cut


def load(folder: Path) -> tuple[Predict, list[str], bool]:
    """The student in a folder, the names of its classes, none of a score, and whether a text may have several of them.
    `BadInput` for a folder without a student, or of another kind."""
    if (folder / "vocabulary.json").exists():
        from bench.baselines import linear

        with refused(f"predict {folder}: labels.json is damaged, or older; linear.py --force writes it anew"):
            ((kind, names),) = json.loads((folder / "labels.json").read_text(encoding="utf-8")).items()
        baseline = linear.load(folder)
        return lambda split: (baseline(split.texts), 0), names, Kind.of(kind).several
    if not (folder / "config.json").is_file():
        raise BadInput(f"predict {folder}: no student is there (no config.json); a script's last lines name folders")
    import methods.cmow  # noqa: F401  # makes its models known to the library, as does the next
    from common.layers import packed  # noqa: F401

    config: Any = models.load_config(str(folder), "predict")
    kind = Kind.of("classification")
    if not any(part in name for part in kind.architectures for name in config.architectures or ()):
        raise BadInput(f"predict {folder}: {some(config.architectures or ['it'])} gives no class or score of a text")
    student: Any = models.load_model(str(folder), config, kind, head=True, argument="predict")
    student.to(parallel.device())
    tokenizer = models.load_tokenizer(str(folder), "predict")
    length = min(n for n in (tokenizer.model_max_length, models.usable_positions(config)) if n > 0)

    def predict(split: Split) -> tuple[np.ndarray, int]:
        task = Task("predict", kind, tuple(f"text{i}" for i in range(len(split.texts[0]))), (), ())
        encoded = kind.tokenise(tokenizer, split, task, length)
        return kind.predict(student, encoded, tokenizer, length, evaluate.forward)[0], encoded.cut

    names = [str(config.id2label[i]) for i in range(config.num_labels)] if config.num_labels > 1 else []
    return predict, names, config.problem_type == "multi_label_classification"


def trained_with(folder: Path) -> dict[str, Any]:
    """What a run's folder says of its arguments; {} where it says nothing."""
    file = folder / "args.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def read(table: Path, folder: Path, text: str | None) -> tuple[Split, list[Any] | None]:
    """The texts of a table, and its column `id`, if it has one; a warning names texts that are empty, or null."""
    asked, trained = Columns.of({"text": text}).text, tuple(trained_with(folder).get("text", ()))
    if trained and len(asked) not in (0, len(trained)):
        raise BadInput(f"--text {text}: {len(trained)} are needed, in training they were {', '.join(trained)}")

    def pick(header: Sequence[str], where: str) -> dict[str, str]:
        """Our name -> the table's column."""
        usual = [name for name in header if name.lower() in ("text", "sentence")]
        known = asked or trained
        if not ({*known} <= {*header} if known else len(usual) == 1):
            needs = " and ".join(known) or "text"
            raise BadInput(f"{where}: no column {needs}, it has {some(header)}; --text COLUMN names that of the texts")
        ids = [("id", name) for name in header if name.lower() == "id"][:1]
        return {f"text{i}": name for i, name in enumerate(known or usual)} | dict(ids)

    rows = tables.read(table, str(table), pick)
    ids = rows.columns.pop("id", None)
    places = [rows.place(i) for i in range(len(rows))]
    texts = [tuple("" if one is None else one for one in row) for row in zip(*rows.columns.values(), strict=True)]
    for place, row in zip(places, texts, strict=True):
        if wrong := [one for one in row if not isinstance(one, str) or SURROGATE.search(one)]:
            raise BadInput(f"{place}: {shown(wrong[0])} is no text")
    if empty := [place for place, row in zip(places, texts, strict=True) if not all(map(str.strip, row))]:
        warn(f"{len(empty):,} texts are empty, and predicted all the same: {', '.join(empty[:5])}")
    return Split(places, texts, [None] * len(texts)), ids


def answers(predict: Predict, names: list[str], several: bool, split: Split) -> Iterator[list[Any]]:
    """For each row the label and every class's probability, or the score."""
    cut = 0
    with parallel.progress(len(split), "predict") as bar:
        for start in range(0, len(split), ROWS):
            part = split.rows(range(start, min(start + ROWS, len(split))))
            logits, ends = predict(part)
            for z in logits.astype(np.float64):
                p = expit(z) if several else softmax(z) if names else z
                best = np.flatnonzero(p > 0.5) if several else [p.argmax()]
                label = [",".join(names[c] for c in best)] if names else []
                yield [*label, *(float(f"{one:.7g}") for one in p)]
            cut += ends
            bar.update(len(part))
    if cut:
        warn(f"{cut:,} of {len(split):,} texts are longer than in training and lose their ends")


def compare(folders: tuple[Path, Path], table: Path, text: str | None) -> None:
    """Print both students' scores on the held-out rows of a table and, of classes, McNemar's exact test."""
    known = trained_with(folders[0])
    texts = Columns.of({"text": text}).text or tuple(known.get("text", ()))
    columns = Columns(texts, label=known.get("label"), kind=known.get("kind"), metric=known.get("metric"))
    if (others := tuple(trained_with(folders[1]).get("text", ()))) not in ((), texts):
        raise BadInput(f"--against {folders[1]}: read other columns: {', '.join(others)}, not {', '.join(texts)}")
    task = data.load(str(table), columns=columns)
    split, kind, right = task.splits[task.reported[0]], task.task.kind, []
    for folder in folders:
        predict, names, several = load(folder)
        if several != kind.several or bool(names) != kind.among(("classification",)):
            raise BadInput(f"predict {folder}: answers otherwise than {task.name} has labels, which are {kind}")
        order = label_order(dict(enumerate(names)), task.task, f"predict {folder}") if names else [0]
        logits = predict(split)[0][:, order or list(range(len(names)))]
        scores = kind.scores(task.task, split, None, logits)
        print(f"{folder}: {', '.join(f'{evaluate.TITLES[name]} {100 * one:.1f}' for name, one in scores.items())}")
        same = (logits > 0 if several else logits.argmax(1)) == np.array(split.labels)
        right.append(same.reshape(len(split), -1).all(1))  # of several labels on all of them
    if task.task.labels:
        alone = [int((one & ~other).sum()) for one, other in (right, right[::-1])]
        p = binomtest(alone[0], sum(alone)).pvalue if sum(alone) else 1.0
        print(f"of {len(split):,} held-out rows the first alone is right on {alone[0]:,}, the second alone on"
              f" {alone[1]:,}: p {p:.2g} (McNemar's exact test)")  # fmt: skip


def main(argv: list[str]) -> None:
    parser = Parser("predict", __doc__)
    parser.add_argument("folder", type=Path, help="of a run, with its student")
    parser.add_argument("table", type=Path, help="of texts")
    parser.add_argument("--text", help="the column of the texts, or A,B of pairs (default: as in training)")
    parser.add_argument("--out", type=Path, help="a new file (default: printed)")
    parser.add_argument("--against", type=Path, metavar="OLDER", help="the folder of another student to compare with")
    given = parser.parse_args(argv)
    check_place("--out", given.out, file=True)
    if given.out and given.out.exists():
        raise BadInput(f"--out {given.out}: exists; give another name")
    if given.against and given.out:
        raise BadInput(f"--out {given.out}: --against prints scores and writes no answers")
    parallel.start("auto", "fp32")
    if given.against:
        return compare((given.folder, given.against), given.table, given.text)
    predict, names, several = load(given.folder)
    split, ids = read(given.table, given.folder, given.text)
    with ExitStack() as files:
        file: Any = sys.stdout
        if given.out:
            place = files.enter_context(replacing(given.out))
            file = files.enter_context(place.open("w", encoding="utf-8", newline=""))
        table = csv.writer(file, lineterminator="\n")
        before = [*(["id"] if ids else []), "label" if names else "score"]
        table.writerow([*before, *(f"P({name})" if name in before else name for name in names)])
        for i, answer in enumerate(answers(predict, names, several, split)):
            table.writerow([*([ids[i]] if ids else []), *answer])
