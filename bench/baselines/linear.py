"""A linear model of words and characters: the baseline without a network, a teacher or a GPU.

    python bench/baselines/linear.py --task pocket/rte          # as many rows as a student sees, and all of train
    python bench/baselines/linear.py --task tickets.csv --C 10  # less regularisation

The model in three lines. A text is the TF-IDF of its words, pairs of words, and characters. Two texts are |a - b|,
a * b and the sum of their cosines, by words and by characters. Logistic regression maps these features to a class, or
to each of several labels; ridge regression to a score.

`linear` sees the first `--budget` examples of the students' shuffled order, each once; `linear-all` sees all of train.
Real tasks have batches of like length, so there a student of the same seed sees as many rows, not the same ones. The
ledger's `student_examples` are the labelled rows that were seen. Texts are not cut: `--max-length` counts tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.args import BadInput, CommonArgs, arg, execute, parse, variants

VARIANTS = ("linear", "linear-all")


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, of which those of networks change nothing here, and the regularisation."""

    KINDS = ("classification", "regression")
    OUTPUTS_ALONE = VARIANTS

    variant: str = variants(",".join(VARIANTS), VARIANTS)
    student: str = "tf-idf"
    C: float = arg(3.0, "inverse strength of the regularisation; ridge regression's alpha is 1 / C", above=0)

    def check_student(self) -> None:
        """It has no layers, and no paper says for how many epochs it is trained."""
        if self.budget == "paper":
            raise BadInput("--budget paper: a linear model has no paper; give a number of examples")


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import json
import time
from contextlib import nullcontext
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from common import data, evaluate
from common.kinds import Split
from common.run import Run, task_runs
from common.tasks import TaskData
from common.teacher import Teacher

NO_TEACHER = Teacher("none", None, None, "none", stored=True)  # type: ignore[arg-type]
UNUSED: dict[str, Any] = {"init": "-", "lr": 1.0, "paper_epochs": 1.0}  # what Run asks of a network

# Shapes: N texts, F features, C classes or labels (1 for a score).


class Linear(NamedTuple):
    """TF-IDF and a linear map. Called with N texts, or pairs of texts, it gives logits, or scores, (N, C)."""

    tf_idf: list[TfidfVectorizer]
    W: np.ndarray  # (C, F)
    b: np.ndarray  # (C,)

    def __call__(self, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        return np.asarray(features(self.tf_idf, texts) @ self.W.T + self.b, np.float32)

    def save(self, folder: Path) -> int:
        """Write model.safetensors and vocabulary.json; return their bytes."""
        words, idf = [one.get_feature_names_out().tolist() for one in self.tf_idf], [one.idf_ for one in self.tf_idf]
        save_file({"W": self.W, "b": self.b, "idf": np.concatenate(idf)}, folder / "model.safetensors")
        (folder / "vocabulary.json").write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
        return sum((folder / name).stat().st_size for name in ("model.safetensors", "vocabulary.json"))


def load(folder: Path | str) -> Linear:
    """The model that `Linear.save` has written."""
    words = json.loads(Path(folder, "vocabulary.json").read_text(encoding="utf-8"))
    arrays, tf_idf = load_file(Path(folder, "model.safetensors")), vectorizers(*words)
    tf_idf[0].idf_, tf_idf[1].idf_ = np.split(arrays["idf"], [len(words[0])])
    return Linear(tf_idf, arrays["W"], arrays["b"])


def vectorizers(words: Any = None, characters: Any = None) -> list[TfidfVectorizer]:
    """Of words, marks and their pairs, and of two to five characters of a word; with a vocabulary, or to be fitted."""
    options = {"sublinear_tf": True, "dtype": np.float32}
    pairs = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", vocabulary=words, **options)
    return [pairs, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), vocabulary=characters, **options)]


def features(tf_idf: list[TfidfVectorizer], texts: Sequence[tuple[str, ...]]) -> Any:
    """TF-IDF of N texts, sparse (N, F); of pairs |a - b|, a * b and their sum, which is both cosines'."""
    a, *others = [hstack([one.transform(side) for one in tf_idf]) for side in zip(*texts, strict=True)]
    if not others:
        return a.tocsr()
    product = a.multiply(others[0])
    return hstack([abs(a - others[0]), product, csr_matrix(product.sum(1))], format="csr")


def fit(task: TaskData, split: Split, C: float) -> Linear:
    """Logistic or ridge regression on the rows of a split."""
    tf_idf, classes = vectorizers(), len(task.task.labels)
    for one in tf_idf:
        one.fit([text for texts in split.texts for text in texts])
    X, labels, logistic = features(tf_idf, split.texts), np.array(split.labels), LogisticRegression(C=C, max_iter=1000)
    if not classes:
        model = Ridge(alpha=1 / C).fit(X, labels)
        return Linear(tf_idf, np.asarray(model.coef_[None], np.float32), np.asarray([model.intercept_], np.float32))
    # a class or a label that no row has stays far below
    W, b = np.zeros((classes, X.shape[1]), np.float32), np.full(classes, -20, np.float32)
    if task.task.kind.several:
        for c, has_label in enumerate(labels.T):
            if has_label.all():
                b[c] = 20
            elif has_label.any():
                model = logistic.fit(X, has_label)
                W[c], b[c] = model.coef_[0], model.intercept_[0]
        return Linear(tf_idf, W, b)
    if (labels == labels[0]).all():
        raise BadInput(f"{task.name}: the first {len(split):,} rows have one class; give more --budget")
    model = logistic.fit(X, labels)
    # of two classes scikit-learn has one line, the second's over the first's
    several = len(model.classes_) > 2
    W[model.classes_] = model.coef_ if several else np.concatenate([-model.coef_, model.coef_]) / 2
    b[model.classes_] = model.intercept_ if several else np.concatenate([-model.intercept_, model.intercept_]) / 2
    return Linear(tf_idf, W, b)


def rows_seen(run: Run) -> Split:
    """The labelled rows that a variant learns from; their order reads only how many examples there are."""
    if run.variant == "linear-all":
        return run.examples
    order = data.Batches(run.examples, None, run.args.batch_size, run.args.seed)  # type: ignore[arg-type]
    return run.examples.rows(sorted({i for step in range(run.steps) for i in order.indices(step)}))


def evaluated(model: Linear, task: TaskData, who: str) -> evaluate.Evaluation:
    """Metrics and predictions of the reported splits; texts per second, from text to logits."""
    started = time.perf_counter()
    found = {name: model(task.splits[name].texts) for name in task.reported}
    speed = sum(map(len, found.values())) / (time.perf_counter() - started)
    for name, logits in found.items():
        evaluate.warn_of_one_answer(who, task, name, None, logits)
    metrics = {name: evaluate.scored(task, name, None, logits) for name, logits in found.items()}
    kept = {name: np.asarray(task.task.kind.kept(logits)) for name, logits in found.items()}
    return evaluate.Evaluation(metrics, speed, kept)


def main(args: Args) -> None:
    for task in (data.load(name, **args.source) for name in args.tasks):
        for run in task_runs(args, "linear", task, NO_TEACHER, labels_alone=True, **UNUSED):
            run.start(0)
            split = rows_seen(run)
            with run.ledger.clock():
                model = fit(task, split, args.C)
            run.ledger.steps, run.ledger.student_examples = 1, len(split)
            run.ledger.student_tokens = sum(len(text.split()) for texts in split.texts for text in texts)
            with nullcontext(run.folder) if args.save_student else TemporaryDirectory() as place:
                size = model.save(Path(place))
                names = json.dumps({task.task.kind.name: task.task.labels})
                Path(place, "labels.json").write_text(names, encoding="utf-8")
            run.record(evaluated(model, task, run.variant), model.W.size, size)


if __name__ == "__main__":
    execute(main, ARGS)
