"""Evaluation: what a model predicts on the reported splits, and the tasks' official metrics.

GLUE's metrics are from scikit-learn and scipy, BLEU from sacreBLEU, ROUGE from rouge-score, entity F1 from seqeval.
Accuracy and F1 lie in 0..1, the correlations in -1..1. Where a figure has no value (constant predictions or labels in a
correlation, no positive in F1), it is 0.0: what was predicted carries no information. Perplexity is 1 or more, lower is
better, and belongs to its tokenizer: a figure per token says nothing about one whose tokens are others.

Shapes: B batch, L length, N examples.
"""

from __future__ import annotations

import re
import string
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from common import data, models, parallel
from common.errors import BadInput
from common.kinds import Encoded, Split, Task
from common.kinds.documents import SpanQA, TokenClassification, by_sentence, entity_types
from common.kinds.texts import BEAMS, token_stream
from common.results import replacing
from common.tasks import TaskData

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The names that tables print.
TITLES: dict[str, str] = {
    "accuracy": "Acc",
    "f1": "F1",
    "macro_f1": "macro F1",
    "majority": "largest class",
    "matthews": "MCC",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "perplexity": "PPL",
    "bleu": "BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "entity_f1": "entity F1",
    "answer_f1": "F1",
    "exact_match": "EM",
}


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of predictions that equal the label."""
    return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Binary F1 of class 1 (MRPC: equivalent, QQP: duplicate); 0.0 if it is neither predicted nor there."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="binary", pos_label=1, zero_division=0.0))


def macro_f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The mean of the classes' F1, over those that are there or predicted: rare classes count as much as frequent."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def majority(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of the largest class: the accuracy of who always says it."""
    return float(np.unique(np.asarray(labels), return_counts=True)[1].max() / np.asarray(labels).size)


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Matthews correlation (CoLA); 0.0 if predictions or labels are all of one class."""
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one class alone is a defined case here
        return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Pearson correlation (STS-B); 0.0 if either side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, labels)


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Spearman rank correlation (STS-B), ties with their average rank; 0.0 if either side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, labels)


def _correlation(function: Callable[..., Any], predictions: ArrayLike, labels: ArrayLike) -> float:
    x, y = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if (x == x[0]).all() or (y == y[0]).all():  # scipy answers NaN
        return 0.0
    return float(function(x, y).statistic)


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "majority": majority,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def strided_windows(count: int, max_length: int) -> list[tuple[int, int, int]]:
    """How a stream of `count` tokens is scored: windows (start, end, first) over its positions.

    A window reads tokens start..end - 1 and predicts from each its next one; it scores the tokens first + 1..end,
    those that no window before it has scored. Windows lie half of `max_length` apart and read `max_length` tokens, but
    for the last, which may be shorter.
    """
    stride = max(1, max_length // 2)
    found = []
    start = first = 0
    while first < count - 1:
        end = min(start + max_length, count - 1)
        found.append((start, end, first))
        start, first = start + stride, end
    return found


def perplexity(model: Any, stream: torch.Tensor, max_length: int) -> float:
    """Token-level perplexity of a text [n]: exp of the mean negative log-likelihood of its tokens 1..n - 1.

    The first token (end-of-text, as `token_stream` makes it) is given; every other one is scored exactly once,
    in a strided evaluation: windows of `max_length` tokens that lie half of that apart, so each token is predicted
    from more than half of `max_length` tokens before it, where there are so many.
    The mean is over tokens of this tokenizer: figures of two tokenizers, or for words, do not compare.
    Raises ValueError for a text of less than two tokens, and is infinite if the model has diverged.
    """
    if len(stream) < 2:
        raise ValueError(f"a text of {len(stream)} tokens: nothing to score")
    stream = stream.to(next(model.parameters()).device)
    parts = strided_windows(len(stream), max_length)
    batch_size = max(1, 4096 // max_length)
    # only the last window may be shorter: alone in its batch, nothing needs padding
    batches = [parts[i : min(i + batch_size, len(parts) - 1)] for i in range(0, len(parts) - 1, batch_size)]
    was_training = model.training
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch in tqdm([*batches, parts[-1:]], desc="evaluating", disable=None, leave=False):
            inputs = torch.stack([stream[start:end] for start, end, _ in batch])  # [B, L]
            logits = model(input_ids=inputs).logits.float()  # [B, L, V]
            for row, (start, end, first) in zip(logits, batch, strict=True):
                total += float(cross_entropy(row[first - start :], stream[first + 1 : end + 1], reduction="sum"))
    model.train(was_training)
    mean = total / (len(stream) - 1)
    return float(torch.tensor(mean, dtype=torch.float64).exp())


# --- written texts -------------------------------------------------------------------------------------------


def bleu(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """sacreBLEU's corpus BLEU, one reference for each sentence, as a fraction; `signature("bleu")` says which."""
    from sacrebleu.metrics import BLEU

    return {"bleu": BLEU().corpus_score(list(predictions), [list(references)]).score / 100}


def rouge(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """rouge-score's F1 of ROUGE-2, ROUGE-1 and ROUGE-L, with Porter's stemmer, means over the examples.

    ROUGE-L takes a text as one sequence, line ends included.
    """
    from rouge_score.rouge_scorer import RougeScorer

    names = ("rouge2", "rouge1", "rougeL")
    scorer = RougeScorer(names, use_stemmer=True)
    rows = [scorer.score(true, found) for found, true in zip(predictions, references, strict=True)]
    return {name: sum(row[name].fmeasure for row in rows) / len(rows) for name in names}


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


def plain_answer(text: str, program: str = "squad") -> list[str]:
    """The words of an answer as an evaluation program compares them: lower case, no punctuation, no articles.

    SQuAD's and HotpotQA's programs leave punctuation out ("jeanpaul"); TriviaQA's puts a blank in its place.
    """
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

    As the official program of squad, hotpot_qa or trivia_qa counts; any other name counts as SQuAD's does.
    """
    pairs = [
        (plain_answer(found, program), [plain_answer(truth, program) for truth in true])
        for found, true in zip(predictions, truths, strict=True)
    ]
    if not pairs:
        raise ValueError("no questions to score")
    f1 = [max(answer_f1(found, truth, program) for truth in true) for found, true in pairs]
    exact = [found in true for found, true in pairs]
    return {"answer_f1": sum(f1) / len(pairs), "exact_match": sum(exact) / len(pairs)}


def primary(task: Task) -> str:
    """The metric by which the task's rows are compared."""
    return task.metrics[0]


def compute(
    task: Task, predictions: Sequence[Any] | np.ndarray, labels: Sequence[Any] | np.ndarray
) -> dict[str, float]:
    """The task's metrics on one split (MNLI: once per split), the primary first.

    `predictions`, `labels`: [N], class indices (classification) or scores (regression).
    Raises ValueError if they differ in shape, are empty, or hold a number that is not finite.
    """
    x, y = np.asarray(predictions), np.asarray(labels)
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise ValueError(f"predictions {x.shape} and labels {y.shape}: both must be [N], N > 0")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("predictions and labels must be finite")
    return {name: METRICS[name](x, y) for name in task.metrics}


# --- what a prediction says besides its metric ----------------------------------------------------------------


def agreement(task: Task, student: np.ndarray, teacher: np.ndarray) -> float:
    """How far a student says what its teacher says: of (N, C) logits the share of equal classes, of (N,) scores
    Pearson's correlation. Fidelity, beside accuracy (Stanton et al., 2021)."""
    if task.kind == "regression":
        return pearson(student, teacher)
    return accuracy(student.argmax(1), teacher.argmax(1))


def log_loss(task: Task, predictions: np.ndarray, labels: Sequence[Any]) -> float:
    """The mean negative log-likelihood of the labels under (N, C) logits, in nats; of (N,) scores the squared error."""
    x = predictions.astype(np.float64)
    if task.kind == "regression":
        return float(np.square(x - np.asarray(labels)).mean())
    from scipy.special import log_softmax

    return float(-log_softmax(x, axis=1)[np.arange(len(x)), np.asarray(labels)].mean())


def save_predictions(folder: Path, predictions: dict[str, np.ndarray]) -> None:
    """Write `predictions.safetensors`: a tensor for each split, its rows in the split's order."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "predictions.safetensors") as partial:
        save_file(predictions, partial)


# --- models on splits -----------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """What a model says of the reported splits."""

    metrics: dict[str, dict[str, float]]
    speed: float  # examples, of texts windows, per second of the forward passes
    # (N, C) logits or (N,) scores of each split, float32; {} for kinds that have more than one prediction an example
    predictions: dict[str, np.ndarray]


def score_windows(encoded: Encoded, split: Split, task: Task, logits: Sequence[np.ndarray]) -> dict[str, float]:
    """The task's metrics on a split, from the logits of its windows: [L, T], or [L, 2] for questions."""
    if task.kind == "span QA":
        truths = [[text for text, _ in given] for given in split.labels]
        return questions(SpanQA().answers(encoded.windows or [], split, logits), truths, task.name)
    predicted = TokenClassification().tags(encoded.windows or [], split, task, logits)
    truth = [[task.labels[tag] for tag in row] for row in split.labels]
    # an entity does not reach over the end of a sentence
    cut = [by_sentence(text, row) for (text,), row in zip(split.texts, predicted, strict=True)]
    true = [by_sentence(text, row) for (text,), row in zip(split.texts, truth, strict=True)]
    return entities([*chain(*cut)], [*chain(*true)], entity_types(task))


def progress(total: int, label: str) -> tqdm:
    """A progress bar with the time left; silent when the output is not a terminal."""
    hidden = None if parallel.main() else True
    return tqdm(total=total, desc=label, disable=hidden, leave=False, dynamic_ncols=True)


@torch.no_grad()
def forward(
    model: nn.Module, encoded: Encoded, tokenizer: Any, batch_size: int,
    call: Callable[..., Any] | None = None, label: str = "evaluating",
) -> Iterator[tuple[list[int], int, Any]]:  # fmt: skip
    """What the model, or `call`, says of each example in evaluation mode: indices, padded length, output of a batch."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    bar = progress(len(encoded), label)
    for indices, batch in data.eval_batches(encoded, tokenizer, batch_size):
        inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
        yield indices, inputs["input_ids"].shape[1], (call or model)(**inputs)
        bar.update(len(indices))
    bar.close()
    model.train(was_training)


def predict(model: nn.Module, encoded: Encoded, tokenizer: Any, batch_size: int = 128) -> np.ndarray:
    """Logits (examples x outputs) as float32, in the order of the examples."""
    rows: dict[int, np.ndarray] = {}
    for indices, _, output in forward(model, encoded, tokenizer, batch_size):
        logits = output.logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise BadInput(f"outputs that are not finite, first for {encoded.ids[indices[0]]}: try a lower --lr")
        rows.update(zip(indices, logits.numpy(), strict=True))
    return np.stack([rows[i] for i in range(len(encoded))])


def predict_windows(model: nn.Module, encoded: Encoded, tokenizer: Any) -> list[np.ndarray]:
    """Logits of every window (`models.token_logits`) without its padding, [L, T] or [L, 2], as float32, in order."""
    rows: dict[int, np.ndarray] = {}
    for indices, padded, output in forward(model, encoded, tokenizer, len(encoded)):
        for i, row in zip(indices, models.token_logits(output).float().cpu().numpy(), strict=True):
            first = padded - encoded.lengths[i] if tokenizer.padding_side == "left" else 0
            rows[i] = row[first : first + encoded.lengths[i]]
    return [rows[i] for i in range(len(encoded))]


def write(model: Any, encoded: Encoded, tokenizer: Any, max_length: int, batch_size: int = 64) -> list[str]:
    """What an encoder-decoder writes for every example: the library's beam search of `BEAMS` beams.

    At most `max_length` tokens, and no more than 10 beyond twice the longest source of the batch.
    """

    def beam_search(**inputs: torch.Tensor) -> torch.Tensor:
        # a model that does not come to an end is stopped
        limit = min(max_length, 2 * inputs["input_ids"].shape[1] + 10)
        return model.generate(
            **inputs, num_beams=BEAMS, max_new_tokens=limit, max_length=None, do_sample=False, early_stopping=True
        )

    rows: dict[int, str] = {}
    for indices, _, found in forward(model, encoded, tokenizer, batch_size, beam_search, "writing"):
        rows.update(zip(indices, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True))
    return [rows[i] for i in range(len(encoded))]


@parallel.by_main
def evaluate(
    model: nn.Module, tokenizer: Any, task: TaskData, max_length: int, folder: Path | None = None
) -> Evaluation:
    """Metrics and predictions of every reported split.

    Texts that were written, and those they are compared with, are kept in `folder`, one a line: what sacreBLEU's own
    command takes, `sacrebleu test.reference.txt -i A/test.written.txt B/test.written.txt --paired-bs`.
    """
    scores, predictions, examples, seconds = {}, {}, 0, 0.0
    models.check_finite(model, f"the model for {task.name}")
    kind = task.task.kind
    found: Any
    for name in task.reported:
        split = task.splits[name]
        if kind.causal:
            stream = token_stream(tokenizer, split)
            started = time.perf_counter()
            found = perplexity(model, stream, max_length)
            seconds += time.perf_counter() - started
            examples += len(strided_windows(len(stream), max_length))
            scores[name] = {"perplexity": found}
            if not np.isfinite(found):
                raise BadInput(f"the perplexity on {name} is {found}: try a lower --lr")
            continue
        encoded = data.encode(tokenizer, split, task.task, max_length)
        started = time.perf_counter()
        if kind.written:
            found = write(model, encoded, tokenizer, max_length)
        else:
            found = (predict_windows if kind.windowed else predict)(model, encoded, tokenizer)
        seconds += time.perf_counter() - started
        examples += len(encoded)
        if kind.windowed:
            scores[name] = score_windows(encoded, split, task.task, found)
        elif not kind.written:
            predictions[name] = found[:, 0].copy() if kind == "regression" else found
            classes = found.argmax(1) if kind == "classification" else predictions[name]
            scores[name] = compute(task.task, classes, split.labels)
        else:
            scores[name] = (bleu if kind == "translation" else rouge)(found, split.labels)
            if folder is None:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            for file, lines in (("written", found), ("reference", split.labels)):
                whole = "".join(f"{' '.join(text.split())}\n" for text in lines)
                (folder / f"{name}.{file}.txt").write_text(whole, encoding="utf-8")
    return Evaluation(scores, examples / seconds, predictions)
