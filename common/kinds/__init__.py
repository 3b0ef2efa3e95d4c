"""What a kind of task is, and what every kind works with: tasks, the rows of a source, splits, encoded examples.

The kinds are classes in the files beside this one: `MODULES`. Nothing heavier than numpy is imported here or there
before a model is at work: `--help` needs them too.

Shapes: N examples of a split, B batch, L length (tokens, padding included), C outputs, n predictions.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from tqdm import tqdm

import pocket
from common.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

SURROGATE = re.compile("[\ud800-\udfff]")  # what JSON's \\uD800 alone becomes; no tokeniser takes it

# Kind -> the module beside this one that holds its class, which is opened when a task of the kind is asked for
MODULES = {
    "classification": "sentences",
    "regression": "sentences",
    "multi-label classification": "multilabel",
    "token classification": "documents",
    "span QA": "documents",
    "language modelling": "texts",
    "summarisation": "texts",
    "translation": "texts",
}
# What `--kind` calls the kind of a data set of one's own
OWN = {
    "classes": "classification",
    "scores": "regression",
    "tags": "token classification",
    "spans": "span QA",
    "texts": "summarisation",
    "labels": "multi-label classification",
}


class Kinds(dict[str, "Kind"]):
    """Name -> the kind. A class that has a name enters itself when its module is opened."""

    def __missing__(self, name: str) -> Kind:
        importlib.import_module(f"{__package__}.{MODULES[name]}")
        return self[name]


KINDS = Kinds()


# --- data ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A task: its text columns, its label names in the order of the hub's ids, its metrics, its files and sources."""

    name: str
    kind_or_name: Kind | str  # of KINDS; of scores of one's own the kind, which knows their scale
    fields: tuple[str, ...]
    labels: tuple[str, ...]  # of classes, or of tags; () for scores, texts and questions
    metrics: tuple[str, ...]  # the first is the primary
    score_range: tuple[float, float] | None = None  # regression only, both ends allowed
    splits: tuple[str, ...] = ()  # those with public labels; () for a task of the pocket suite alone
    folder: str = ""  # of its files, as the official release calls it
    pocket: str = ""  # the pocket suite's counterpart
    hub: bool = True  # whether a repository of the hub serves it
    whole: bool = False  # whether the parts of a document that its files hold are one example: sentences, paragraphs
    target_length: int | None = None  # tokens kept of a text to be written; None: as many as of the source

    @property
    def kind(self) -> Kind:
        """Its kind, whose module is opened now."""
        return Kind.of(self.kind_or_name)

    @property
    def columns(self) -> tuple[str, ...]:
        """What a source has to hold: the texts and, where there are labels, these."""
        return (*self.fields, "label") if self.kind.labelled else self.fields

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """Label name -> its index."""
        return {name: i for i, name in enumerate(self.labels)}


@dataclass
class Rows:
    """One split as its source gives it, before any check: all its columns, or those of them that the task takes."""

    columns: dict[str, Any]  # of equal length; once taken they are the task's, and "id" if the source has unique ones
    where: str  # the file, or "pocket/sst2 dev"
    at: Callable[[int], str] | None = None  # where row i stands, "dev.tsv line 7", if it is not its number that counts
    chosen: dict[str, str] = field(default_factory=dict)  # the taken columns as the source calls them
    names: dict[str, Sequence[str]] = field(default_factory=dict)  # what a column's integers are called
    integers: bool = True  # without names: do integers mean the hub's ids?
    official: bool = False  # of the official release, whose size is known; one side of a few of its pairs is blank
    outputs: Any = None  # of a teacher, to whose rows the column "outputs" leads: common/outputs.py

    def place(self, i: int) -> str:
        """Where row i stands, for error lines."""
        return self.at(i) if self.at else f"{self.where} row {i + 1}"

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def keep(self, order: list[int]) -> Rows:
        """These rows, in this order."""
        columns = {name: [values[i] for i in order] for name, values in self.columns.items()}
        return replace(self, columns=columns, at=lambda i: self.place(order[i]))

    @property
    def labelled(self) -> Rows:
        """Those that have a label."""
        return self.keep([i for i, label in enumerate(self.columns["label"]) if label is not None])


@dataclass(frozen=True)
class Split:
    """N examples. `labels` holds what the task's kind reads: an index into Task.labels, a score, the tags of a text,
    a question's answers, a text to be written, or None where there is nothing to know. `outputs`: (N, C) logits of a
    teacher, where a file has them; NaN in a row that it has not."""

    ids: list[str]
    texts: list[tuple[str, ...]]
    labels: list[Any]
    outputs: np.ndarray | None = field(default=None, compare=False)
    encoded: dict[Any, Any] = field(init=False, repr=False, compare=False, default_factory=dict)  # data.encode's

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, order: Sequence[int]) -> Split:
        """These examples, in this order."""
        outputs = None if self.outputs is None else self.outputs[list(order)]
        texts, labels = [self.texts[i] for i in order], [self.labels[i] for i in order]
        return Split([self.ids[i] for i in order], texts, labels, outputs)

    @property
    def labelled(self) -> Split:
        """The examples that have a label."""
        known = [i for i, label in enumerate(self.labels) if label is not None]
        return self if len(known) == len(self) else self.rows(known)


class Window(NamedTuple):
    """Where a window's tokens stand in its document.

    `places`: of a tagged document, [L]: the word whose first token this is, or -1. Of a context, [L, 2]: the token's
    first character and the one after its last, or -1, -1 outside of the context.
    """

    document: int  # index into the split
    places: np.ndarray


@dataclass(frozen=True)
class Encoded:
    """A tokenised split. `features` maps the tokeniser's outputs (input_ids, ...) to N unpadded lists.

    An example is one of the split's or, of a running text, a block of L tokens, or a window of a document.
    """

    ids: list[str]
    features: dict[str, list[list[int]]]
    labels: Tensor  # [N, ...], as the kind's `tokenise` says
    kind: Kind
    windows: list[Window] | None = None  # the way back to documents
    cut: int = 0  # texts that lost their ends

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def lengths(self) -> list[int]:
        """Tokens per example, special ones included."""
        return [len(tokens) for tokens in self.features["input_ids"]]

    @functools.cached_property
    def flat(self) -> dict[str, np.ndarray]:
        """The features with the lists of all examples end to end, int32: from these batches are cut."""
        return {
            name: np.fromiter(itertools.chain.from_iterable(lists), np.int32, sum(self.lengths))
            for name, lists in self.features.items()
        }

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """[N], where each example ends in `flat`."""
        return np.cumsum(self.lengths)

    def select(self, chosen: list[int]) -> Encoded:
        """These examples."""
        features = {name: [values[i] for i in chosen] for name, values in self.features.items()}
        windows = self.windows and [self.windows[i] for i in chosen]
        ids = [self.ids[i] for i in chosen]
        return replace(self, ids=ids, features=features, labels=self.labels[chosen], windows=windows)


def finite(outputs: np.ndarray, name: str) -> np.ndarray:
    """The outputs of an example as they are; `BadInput` with its name if one of them is not finite."""
    if not np.isfinite(outputs).all():
        raise BadInput(f"outputs that are not finite, first for {name}: try a lower --lr")
    return outputs


def chunks(split: Split, size: int) -> Iterator[tuple[int, list[list[str]]]]:
    """`size` examples of a split at a time, for the tokeniser: where they start, and their texts, the first of all and
    then the second of all; with a progress bar where that takes long."""
    with tqdm(total=len(split), desc="tokenise", unit="ex", disable=None if len(split) >= 20 * size else True) as bar:
        for start in range(0, len(split), size):
            rows = split.texts[start : start + size]
            yield start, [list(column) for column in zip(*rows, strict=True)]
            bar.update(len(rows))


# --- a kind --------------------------------------------------------------------------------------------------

# What a model says of examples: their indices, the padded length and the output, a batch at a time
Forward = Callable[..., Iterator[tuple[list[int], int, Any]]]


class Kind(str):
    """A kind of task, which is equal to its name, and all that depends on it.

    A new one is a class in a file beside this one: what it does not say is as for one class a text. What has no name,
    such as masked words, is a plain `Kind`.
    """

    name: ClassVar[str]

    # Data of one's own: their metrics, the primary first; others that `--metric` may name
    own_metrics: ClassVar[tuple[str, ...]] = ()
    more_metrics: ClassVar[tuple[str, ...]] = ()
    pair: ClassVar[tuple[str, str]] = ("text1", "text2")  # the canonical names of two texts
    usual: ClassVar[dict[str, str]] = {}  # canonical column -> what files of the kind usually call it
    labelled: ClassVar[bool] = True  # whether sources hold labels
    single: ClassVar[bool] = False  # whether a label is one value, or None where nobody knows it
    several: ClassVar[bool] = False  # whether a text has several labels, of several columns, or none in a blank cell

    # Models: the library's Auto class; what a checkpoint with this head calls its architecture; the pocket suite's body
    head: ClassVar[str] = "AutoModelForSequenceClassification"
    architectures: ClassVar[tuple[str, ...]] = ("ForSequenceClassification",)
    sized: ClassVar[bool] = True  # whether it has an output for each label; others have one size for all tasks
    absent: ClassVar[float] = -100  # in tensors, the label of an example that has none; losses leave it out
    pocket_body: ClassVar[str] = ""
    windowed: ClassVar[bool] = False  # whether documents are read in windows, with outputs for each token
    written: ClassVar[bool] = False  # whether the answer is a text that an encoder-decoder writes
    causal: ClassVar[bool] = False  # whether tokens are predicted from those before them
    outputs: ClassVar[tuple[str, ...]] = ()  # the library's names of those that can be kept on disk; () for none
    use: ClassVar[str] = "model(**inputs).logits"  # in a student's card
    random_lr: ClassVar[float] = 1e-3  # peak learning rate from random weights
    temperature: ClassVar[float] = 2.0  # of soft labels
    scale: tuple[float, float] | None = None  # mean and standard deviation of scores that are learnt as z-scores
    recipe: ClassVar[dict[str, Any]] = {}  # what settings of runs and keys of teachers say of how labels are learnt

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            KINDS[cls.name] = cls(cls.name)

    @staticmethod
    def of(name: str) -> Kind:
        """The kind of this name."""
        if isinstance(name, Kind):
            return name
        return KINDS[name] if name in KINDS or name in MODULES else Kind(name)

    def among(self, names: Sequence[str] | None) -> bool:
        """Whether it is one of these kinds, or made from one of them; None: of any."""
        return names is None or any(getattr(cls, "name", None) in names for cls in type(self).__mro__)

    # --- labels, from any source to what `Split` holds ---

    def parse(self, path: Path, text: str, whole: bool | None) -> Rows | None:
        """A file in a layout of this kind's own; None: a table, or JSON lines. `whole` is the task's, or None: the file
        may be of any kind."""
        return None

    def cell(self, value: Any) -> Any:
        """A label of one's own data as `read` takes it. Raises ValueError with what is wrong."""
        return value

    def label_names(self, rows: dict[str, Rows]) -> Sequence[str]:
        """The names of the labels of one's own data; raises BadInput for what the kind cannot read."""
        return ()

    def examples(self, rows: Rows) -> Rows:
        """What files and repositories hold, as examples."""
        return rows

    def read(self, task: Task, rows: Rows, i: int) -> Any:
        """Row i's label, checked."""
        raise NotImplementedError

    def taught(self, task: Task, split: Split, rows: Rows) -> Split:
        """The training examples that teach something."""
        return split

    def of_own(self, train: Split) -> Kind:
        """The kind of a data set of one's own with these training examples."""
        return self

    def fit(self, scores: Any) -> None:
        """Take `scale` from the first scores that are known."""

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        """What a data set of one's own holds; warns of what is odd in it."""
        raise NotImplementedError

    def corpus(self, split: Split) -> list[str]:
        """The texts of a split, each once, to be learnt from without their labels."""
        return list(dict.fromkeys(text for texts in split.texts for text in texts if text.strip()))

    def unlabelled(self, count: int) -> list[str]:
        """So many texts of the pocket suite without labels."""
        return pocket.unlabelled(count, seed=1)

    # --- encoding ---

    def tokenise(self, tokenizer: Tokenizer, split: Split, task: Task, max_length: int) -> Encoded:
        """Tokenise a split, cutting the longest text of a pair first; BadInput if no room is left for text."""
        special = tokenizer.num_special_tokens_to_add(pair=len(task.fields) == 2)
        if max_length < special + len(task.fields):
            raise BadInput(f"max length {max_length}: {task.name} needs at least {special + len(task.fields)} tokens")
        features: dict[str, list[list[int]]] = {}
        cut = 0
        for _, texts in chunks(split, 1000):
            made = tokenizer(*texts, truncation="longest_first", max_length=max_length)
            cut += sum(bool(text.overflowing) for text in made.encodings or ())
            for name, values in made.items():
                features.setdefault(name, []).extend(values)
        if empty := [name for name, tokens in zip(split.ids, features["input_ids"], strict=True) if not tokens]:
            said = f"{type(tokenizer).__name__} makes no tokens of it"  # a decoder's adds none of its own
            raise BadInput(f"{task.name} {empty[0]}: {said}; leave it out")
        labels = self.targets(tokenizer, split, task.target_length or max_length)
        return Encoded(list(split.ids), features, labels, self, cut=cut)

    def targets(self, tokenizer: Tokenizer, split: Split, max_length: int) -> Tensor:
        """The labels as a tensor, [N, ...]."""
        import torch

        return torch.tensor([self.absent if label is None else label for label in split.labels])

    def align(self, labels: Tensor, longest: int) -> Tensor:
        """The labels of a batch that is padded to `longest` tokens."""
        return labels

    # --- models ---

    def default_lr(self, width: int, init: str) -> float:
        """Peak learning rate of a student: BERT-base's usual 5e-5 at width 768, larger for narrower ones."""
        return self.random_lr if init == "random" else min(2e-3, 5e-5 * (768 / width))

    @property
    def auto(self) -> Any:
        """The library's class that loads and builds models with this head."""
        import transformers

        return getattr(transformers, self.head)

    def settings(self, task: Task) -> dict[str, Any]:
        """The entries of a configuration that make the library build this task's head, labels named."""
        return {"id2label": dict(enumerate(task.labels)), "label2id": dict(task.places)} if self.sized else {}

    def has_head(self, config: PreTrainedConfig, task: Task) -> bool:
        """Whether a checkpoint has a head of this kind and size: it was fine-tuned, or is a language model."""
        named = any(part in name for part in self.architectures for name in config.architectures or [])
        several: dict[Any, bool] = {"multi_label_classification": True, "single_label_classification": False}
        fits = several.get(config.problem_type, self.several) == self.several
        return named and (not self.sized or (fits and config.num_labels == (len(task.labels) or 1)))

    def prepare(self, model: PreTrainedModel, tokenizer: Any, task: Task) -> None:
        """Tell a model what else the task's name says."""

    def predictions(self, output: Any, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What losses compare: (n, C) logits and (n,) targets, one row for each prediction.

        `mask`: (B, L), which tokens are no padding. Here: the outputs as they are, or where there are labels of tokens,
        those of the tokens that have one, 0 or more.
        """
        if labels.ndim > 1:
            return output.logits[labels >= 0], labels[labels >= 0]
        return output.logits, labels

    def more_inputs(self, models: Sequence[Any], labels: Tensor) -> dict[str, Tensor]:
        """What the models that are trained take beside a batch's inputs."""
        return {}

    # --- evaluation ---

    def stream(self, tokenizer: Tokenizer, split: Split) -> Tensor | None:
        """The split as one sequence of tokens, where it is scored as such, and not encoded."""
        return None

    def predict(self, model: Any, given: Any, tokenizer: Any, max_length: int, forward: Forward) -> tuple[Any, int]:
        """The model's answers in the split's order, here (N, C) logits as float32, and the number of examples.

        `given`: the encoded split, or what `stream` gave. `forward` is `evaluate.forward`, which calls the model.
        """
        rows: dict[int, np.ndarray] = {}
        for indices, _, output in forward(model, given, tokenizer, 128):
            for i, row in zip(indices, output.logits.float().cpu().numpy(), strict=True):
                rows[i] = finite(row, given.ids[i])
        return np.stack([rows[i] for i in range(len(given))]), len(given)

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        """The task's metrics, the primary first, of what `predict` has found."""
        raise NotImplementedError

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        """The answers of which a model that has learnt something gives several; () for kinds without."""
        return ()

    def kept(self, found: Any) -> np.ndarray | None:
        """What a result keeps of that, a row for each example; None of kinds whose answers are no such rows."""
        return None

    def agreement(self, student: np.ndarray, teacher: np.ndarray) -> float:
        """How far a student says what its teacher says, of what is kept."""
        raise NotImplementedError

    def log_loss(self, kept: np.ndarray, labels: Sequence[Any]) -> float | None:
        """The mean loss of the labels under what is kept; None where these are no labels of the kind."""
        raise NotImplementedError

    def by_class(self, task: Task, split: Split, kept: np.ndarray) -> dict[str, dict[str, Any]]:
        """Class -> what is known of it; {} of kinds without classes."""
        return {}

    # --- a teacher's outputs as data ---

    def stored(self, values: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """(N, C) probabilities or logits of a file as logits; raises BadInput for what is neither."""
        return values

    def comparable(self, task: Task, tokenizer: Any, max_length: int, reported: Sequence[Split]) -> dict[str, Any]:
        """What two figures on these splits must share to be compared, beside what those of every kind must."""
        return {}
