"""A task's data: loaded from its source, tokenised, and drawn in batches.

    task = load("pocket/sst2")                 # the embedded suite: no network, no files
    task = load("sst2")                        # the hub, at a pinned revision
    task = load("sst2", data_dir="DIR")        # local files: GLUE's layout, named columns, or `save_to_disk`
    task = load("tickets.csv")                 # a data set of one's own: a file, a folder, or hub:REPO
    task = from_lists(texts, labels)           # the same, in memory
    encoded = encode(tokenizer, task.splits["train"], task.task, max_length)
    batches = Batches(encoded, tokenizer, 32, seed)        # batches[step]: a pure function of seed and step

Every source (common/sources.py) ends in the same `TaskData`; which one it was is recorded and never switched silently.

Shapes: B batch, L length (tokens, padding included), N examples of a split.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from common import windows
from common.errors import BadInput
from common.sources import (
    HUB,
    DataSet,
    Rows,
    answer_start,
    check_task,
    described,
    hub_rows,
    local_rows,
    open_data,
    pocket_rows,
    shown,
    some,
    tell,
    warn,
)
from common.tasks import (
    GENERATED,
    NO_COLUMNS,
    TASKS,
    WINDOWED,
    Columns,
    Kind,
    Source,
    Split,
    Task,
    TaskData,
    class_of,
    is_data_set,
)
from common.windows import Window

# --- loading -------------------------------------------------------------------------------------------------

READY: dict[str, TaskData] = {}  # pocket tasks that were loaded before this process was forked


def load(
    name: str, data_dir: str | None = None, seed: int = 0, limit: int | None = None, tune: bool = False,
    columns: Columns = NO_COLUMNS,
) -> TaskData:  # fmt: skip
    """Load a task from the source that `name` and `data_dir` say: pocket, hub or local.

    `limit` keeps the first N training examples (documents): of the pocket suite's own order, or of a permutation drawn
    with `seed` for real data, whose files may be sorted. `seed` does nothing else: the data of a task are the
    same for all seeds. With `tune`, figures are reported on a split that may be tuned on, never on the one that
    results are reported on: where that is a test split, on dev; otherwise on every tenth training example, which is
    held out. `columns` are those of a data set of one's own. Raises BadInput with the file and line where there is one.
    """
    task = check_task(name, data_dir, columns)
    if is_data_set(name):
        return _own(open_data(name, columns), seed, limit, tune)
    if name in READY:
        return _made(name, task, "pocket", READY[name].origin, dict(READY[name].splits), seed, limit, tune)
    source: Source
    if name.startswith("pocket/"):
        source, (rows, origin) = "pocket", pocket_rows(task)
    elif data_dir is None:
        source, (rows, origin) = "hub", hub_rows(task)
    else:
        source, (rows, origin) = "local", local_rows(task, data_dir)
    splits = {split: _to_split(task, split, found) for split, found in rows.items()}
    if any(found.official for found in rows.values()):
        for split, count in zip(task.splits, HUB[task.name].rows, strict=True):  # a subset is legitimate
            if split in rows and len(rows[split]) != count:
                warn(f"{task.name} {split} has {len(rows[split])} rows; the official split has {count}")
    return _made(name, task, source, origin, splits, seed, limit, tune)


def from_lists(texts: Sequence[Any], labels: Sequence[Any], name: str = "lists",
               columns: Columns = NO_COLUMNS, **others: tuple[Sequence[Any], Sequence[Any]]) -> TaskData:  # fmt: skip
    """The task of texts, or tuples of two texts, and their labels in memory; further splits as `dev=(texts, labels)`.

    Without one a tenth is held out. Kind, classes and checks are those of a file with the same content.
    """
    rows = {}
    for split, both in {"train": (texts, labels), **others}.items():
        inputs, answers = (list(values.tolist() if hasattr(values, "tolist") else values) for values in both)
        if not inputs or len(inputs) != len(answers):
            raise BadInput(f"{split}: {len(inputs)} texts and {len(answers)} labels; as many are needed, one or more")
        sides = zip(*inputs, strict=True) if isinstance(inputs[0], tuple) else [inputs]
        found = {name: list(side) for name, side in zip(("text1", "text2"), sides, strict=False)}
        found = found if len(found) == 2 else {"text": found["text1"]}
        rows[split] = Rows(found | {"label": answers}, functools.partial("{} row {}".format, split))
    return _own(described(name, rows, columns), 0, None, False)


def _made(name: str, task: Task, source: Source, origin: str, splits: dict[str, Split], seed: int, limit: int | None,
          tune: bool) -> TaskData:  # fmt: skip
    """What is read of the splits: `limit`, `tune` and what is reported, as `load` says."""
    if limit is not None and limit < len(splits["train"]):
        order, how = list(range(limit)), f"first {limit} training examples"
        if source != "pocket":
            order = _permutation(len(splits["train"]), seed, 0)[:limit]
            how = f"{limit} training examples drawn with seed {seed}"
        splits["train"] = splits["train"].rows(order)
        origin += f", {how}"
    classes = set(splits["train"].labels) if task.kind in ("classification", "regression") else set()
    if len(classes) == 1:
        only = task.labels[int(classes.pop())] if task.labels else classes.pop()
        raise BadInput(f"{name} ({origin}): all training labels are {only!r}; training needs at least two")
    tests = tuple(split for split in splits if split.startswith("test"))
    dev = tuple(split for split in splits if split.startswith("dev"))
    reported = tests or dev
    if tune and tests and dev:
        reported = dev
    elif tune:
        train = splits["train"]
        if len(train) < 10:
            raise BadInput(f"--tune: {len(train)} training examples are too few to hold out a tenth of them")
        kept = [i for i in range(len(train)) if i % 10 != 9]
        splits = {"train": train.rows(kept), "held_out": train.rows(range(9, len(train), 10))}
        origin += ", a tenth of train held out"
        reported = ("held_out",)
    return TaskData(name, task, source, origin, splits, _fingerprint(task, splits), reported)


# --- a data set of one's own ---------------------------------------------------------------------------------


def _own(found: DataSet, seed: int, limit: int | None, tune: bool) -> TaskData:
    """Its splits, a tenth of train among them if there is no other; what it holds is told in a line, and what is
    wrong with it in warnings. Its name ends with a digest of all splits: a name of its own for every content."""
    task, origin = found.task, found.origin
    splits = {split: _to_split(task, split, rows) for split, rows in found.rows.items()}
    if len(splits) == 1:
        splits = _hold_out(task, splits["train"])
        origin += f", a tenth of train held out as dev ({len(splits['dev']):,}, seed 0)"
    _tell(task, origin, found.rows["train"], splits)
    name = f"{task.name}-{_fingerprint(task, splits)[:8]}"
    return _made(name, task, found.source, origin, splits, seed, limit, tune)


def _hold_out(task: Task, train: Split) -> dict[str, Split]:
    """Every tenth example of a seeded permutation, of classes and scores in their order, so that both sides have them
    in like shares. A text that stands twice, and a class of one row, stays in train."""
    texts, classes = Counter(train.texts), Counter(train.labels if task.kind == "classification" else [])
    order = [i for i in _permutation(len(train), 0, 0)
             if texts[train.texts[i]] == 1 and (not classes or classes[train.labels[i]] > 1)]  # fmt: skip
    if task.kind in ("classification", "regression"):
        order.sort(key=lambda i: train.labels[i])
    held = set(order[9::10])
    if not held:
        several = " and a class of several rows" if classes else ""
        raise BadInput(f"{task.name}: no dev or test split, and {len(order)} of {len(train)} rows have a text that"
                       f" stands once{several}: too few to hold out a tenth of them")  # fmt: skip
    return {"train": train.rows([i for i in range(len(train)) if i not in held]), "dev": train.rows(sorted(held))}


def _tell(task: Task, origin: str, rows: Rows, splits: dict[str, Split]) -> None:
    """One line about what a data set holds, and warnings about what is odd in it."""
    labels = splits["train"].labels
    if task.kind == "classification":
        counts = Counter(labels)
        what = f"{len(task.labels):,} classes"
        what += f" ({some([f'{task.labels[label]} {count:,}' for label, count in counts.most_common()], 5)})"
        for name, split in splits.items():
            there = set(split.labels)
            if lacking := [label for i, label in enumerate(task.labels) if i not in there]:
                warn(f"{name}: no row of {len(lacking):,} of {len(task.labels):,} classes ({some(lacking, 5)})")
        alone = [task.labels[label] for label, count in counts.items() if count == 1]
        for label in alone[:5]:
            close = difflib.get_close_matches(label, [name for name in task.labels if name != label], 1, 0.8)
            place = rows.place(rows.columns["label"].index(label))
            warn(f"train: class {label!r} has one row, {place}{f'; is it {close[0]!r}?' if close else ''}")
        if alone[5:]:
            warn(f"train: {len(alone) - 5:,} more classes have one row")
    elif task.kind == "regression":
        what = f"scores from {min(labels):g} to {max(labels):g}"
    elif task.kind == "token classification":
        what = f"tags of {len(task.labels) // 2} types ({some([tag[2:] for tag in task.labels[1::2]], 5)})"
    else:
        what = "spans of a text" if task.kind == "span QA" else "texts to be written"
    known = set(splits["train"].texts)
    for name, split in splits.items():
        if name != "train" and (count := sum(text in known for text in split.texts)):
            warn(f"{name}: {count:,} of its {len(split):,} texts stand in train too; scores on them say little")
    columns = ", ".join(f"{ours} from {theirs!r}" for ours, theirs in rows.chosen.items() if ours != theirs)
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in splits.items())
    tell(f"{origin}: {what}; {sizes}{'; ' if columns else ''}{columns}")


def head(split: Split, count: int) -> Split:
    """Its first examples."""
    return split.rows(range(min(count, len(split))))


def prompted(data: TaskData, prompt: str) -> TaskData:
    """The task with a prompt in front of every text."""
    if not prompt:
        return data
    splits = {
        name: replace(split, texts=[tuple(f"{prompt} {text}" for text in row) for row in split.texts])
        for name, split in data.splits.items()
    }
    return replace(
        data, splits=splits, fingerprint=_fingerprint(data.task, splits), origin=f"{data.origin}, prompt {prompt!r}"
    )


def _fingerprint(task: Task, splits: dict[str, Split]) -> str:
    """16 hexadecimal digits over every split's name, ids, texts and labels, in order, and the names of the labels where
    they are seen from the data."""
    digest = hashlib.sha256(b"" if TASKS.get(task.name) == task else json.dumps(task.labels).encode())
    for name, split in splits.items():
        digest.update(f"{name} {len(split)}\n".encode())
        for row in zip(split.ids, split.texts, split.labels, strict=True):
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


# --- from any source to a split ------------------------------------------------------------------------------


def _to_split(task: Task, name: str, rows: Rows) -> Split:
    """Check every row and turn labels into indices or scores. Raises BadInput at the first bad row."""
    if rows.lines:
        rows = Rows({"text": _documents(rows.columns["text"])}, lambda i: f"{name} document {i}", files=rows.files)
    total = len(rows)
    if not total:
        raise BadInput(f"{rows.files[0] if rows.files else name}: no rows; the {name} split needs at least one")
    if task.kind == "token classification":  # words in a list, as the hub has them, become a text
        texts_of = rows.columns["text"]
        rows.columns["text"] = [
            " ".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else words
            for words in texts_of
        ]
    texts = list(zip(*(rows.columns[text] for text in task.fields), strict=True))
    for i, row in enumerate(texts):
        for text, value in zip(task.fields, row, strict=True):
            if not isinstance(value, str):
                raise BadInput(f"{rows.place(i)}: {text} is {shown(value)}; it must be text")
            if _SURROGATE.search(value):
                raise BadInput(f"{rows.place(i)}: {text} has half a character (a lone surrogate); it must be text")
            if not value.strip() and not (rows.blanks and any(other.strip() for other in row if other)):
                raise BadInput(f"{rows.place(i)}: {text} is empty; every example needs its text")
    read = _LABEL_READERS[task.kind]
    labels: Any = [read(task, rows, i) for i in range(total)]
    # The position in the source: unique over the splits, and the way back to the row.
    ids = rows.columns.get("id") or [f"{name}-{i}" for i in range(total)]
    split = Split(ids, texts, labels)
    if task.kind == "span QA" and name == "train":  # an answer that is not in the context teaches nothing
        kept = [i for i, answers in enumerate(labels) if answers[0][1] >= 0]
        if len(kept) < total:
            left = f"{total - len(kept)} of {total} questions left out"
            warn(f"{task.name} train: {left}, their answer is not in the text")
        if not kept:
            raise BadInput(f"{rows.place(0)}: no question of {task.name} has its answer in its context")
        split = split.rows(kept)
    return split


_SURROGATE = re.compile("[\ud800-\udfff]")  # what JSON's \\uD800 alone becomes; no tokeniser takes it


def _documents(lines: list[str]) -> list[str]:
    """The documents of a running text: the articles of WikiText, or else what blank lines separate.

    An article of WikiText starts at a line " = Title = " between blank lines; its text is kept as it is, line ends
    and headings included. The hub's empty rows are lines of one blank in the files: so they are here.
    """
    lines = [line if line.endswith("\n") else f"{line or ' '}\n" for line in lines]
    blank = [True, *(not line.strip() for line in lines), True]
    heading = re.compile(r" = [^=](.*[^=])? = \n")
    titled = [blank[i] and blank[i + 2] and heading.fullmatch(line) is not None for i, line in enumerate(lines)]
    starts = titled if any(titled) else blank[:-2]
    documents: list[str] = []
    for line, start in zip(lines, starts, strict=True):
        if start or not documents:
            documents.append("")
        documents[-1] += line
    return [text for text in documents if text.strip()]


def _read_class(task: Task, rows: Rows, i: int) -> int:
    """Row i's label as an index into task.labels: by name, or an integer that is the hub's id."""
    value = rows.columns["label"][i]
    whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    if whole and rows.names is not None and 0 <= value < len(rows.names):
        value = rows.names[int(value)]  # the source names its integers: trust the name, not the position
    if isinstance(value, str):
        found = class_of(value, task)
        if found is not None and (rows.integers or not value.strip().isdigit()):
            return found
    elif whole and rows.integers and 0 <= value < len(task.labels):
        return int(value)
    ids = f" or {some(range(len(task.labels)))}" if rows.integers else ""
    raise BadInput(f"{rows.place(i)}: label {shown(value)} is unknown; {task.name} has {some(task.labels)}{ids}")


def _read_score(task: Task, rows: Rows, i: int) -> float:
    """Row i's label as a finite score within task.score_range."""
    value = rows.columns["label"][i]
    low, high = task.score_range or (-math.inf, math.inf)
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not (low <= score <= high and math.isfinite(score)):  # false for NaN as well
        wants = f"{task.name} needs a number" + (f" from {low:g} to {high:g}" if task.score_range else "")
        raise BadInput(f"{rows.place(i)}: score {shown(value)} is wrong; {wants}")
    return score


def _read_tags(task: Task, rows: Rows, i: int) -> list[int]:
    """Row i's tags as indices into task.labels, by name; integers only where the source names them."""
    value, count = rows.columns["label"][i], len(rows.columns["text"][i].replace("\n", " ").split(" "))
    if not isinstance(value, list) or len(value) != count:
        has = f"{len(value)} tags" if isinstance(value, list) else repr(value)
        raise BadInput(f"{rows.place(i)}: {has} for {count} words; every word needs one")
    names = rows.names or ()
    found = [names[tag] if isinstance(tag, int) and 0 <= tag < len(names) else tag for tag in value]
    for tag in found:
        if tag not in task.labels:
            raise BadInput(f"{rows.place(i)}: tag {tag!r} is unknown; {task.name} has {', '.join(task.labels)}")
    return [task.places[tag] for tag in found]


def _read_answers(task: Task, rows: Rows, i: int) -> list[tuple[str, int]]:
    """Row i's answers: texts, and where each stands in the context.

    The offset of the source is kept where the text stands there. Otherwise (TriviaQA and HotpotQA have no offsets) it
    is that of the first place where it does, and -1 if there is none. Those that are found come first.
    """
    value, context = rows.columns["label"][i], rows.columns["context"][i]
    texts = value.get("text") if isinstance(value, dict) else None
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise BadInput(f"{rows.place(i)}: answers are {str(value)[:60]!r}; one text or more is needed")
    given = value.get("answer_start") or []
    if not isinstance(given, list) or len(given) > len(texts):
        raise BadInput(f"{rows.place(i)}: answer_start is {str(given)[:60]}; one number for each answer is needed")
    starts = [*given, *[-1] * (len(texts) - len(given))]
    found = [(text, answer_start(context, text, start)) for text, start in zip(texts, starts, strict=True)]
    return sorted(found, key=lambda answer: answer[1] < 0)


def _read_text(task: Task, rows: Rows, i: int) -> str:
    """Row i's answer, a text."""
    value = rows.columns["label"][i]
    if not isinstance(value, str) or not value.strip() or _SURROGATE.search(value):
        raise BadInput(f"{rows.place(i)}: the answer is {shown(value)}; it must be text")
    return value


_LABEL_READERS: dict[Kind, Callable[[Task, Rows, int], Any]] = {
    "classification": _read_class,
    "regression": _read_score,
    "language modelling": lambda task, rows, i: None,
    "token classification": _read_tags,
    "span QA": _read_answers,
    "translation": _read_text,
    "summarisation": _read_text,
}


# --- tokenising and batching ---------------------------------------------------------------------------------

_CHUNK = 1000  # texts per tokeniser call
_BIG = 20_000  # from here on a progress bar is worth having


@dataclass(frozen=True)
class Encoded:
    """A tokenised split. `features` maps the tokeniser's outputs (input_ids, ...) to N unpadded lists.

    Of a corpus, the examples are blocks of L tokens, which are their own labels: each token is to be predicted from
    those before it. Of documents that are read in windows, the examples are these.
    """

    ids: list[str]
    features: dict[str, list[list[int]]]
    # [N], long (classification) or float32 (regression); [N, L], long (language modelling); [N, L], long, -100 for
    # tokens without a tag (token classification); [N, 2], long, the answer's first and last token (span QA); [N, M],
    # long, the tokens of the text to be written, -100 after its end
    labels: Tensor
    lengths: list[int]  # tokens per example, special ones included
    windows: list[Window] | None = None  # the way back to documents, see common/windows.py
    answers: bool = False  # whether the labels are texts to be written

    def __len__(self) -> int:
        return len(self.ids)

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


def encode(tokenizer: PreTrainedTokenizerBase, split: Split, task: Task, max_length: int) -> Encoded:
    """Tokenise a split, cutting the longest text of a pair first, to at most `max_length` tokens. A split that was
    tokenised before, by this tokenizer or one like it, is not tokenised again.

    For language modelling, `token_stream` is cut into blocks of `max_length` tokens; the remainder, which does not
    fill a block, is left out. Documents to be tagged or asked about are cut by `windows.encode`. Raises BadInput if
    `max_length` leaves no room for text beside the special tokens, or if the text does not fill one block.
    """
    key = _identity(tokenizer), task.kind, max_length
    if key not in split.encoded:
        split.encoded[key] = tokenise(tokenizer, split, task, max_length)
    return split.encoded[key]


def tokenise(
    tokenizer: PreTrainedTokenizerBase, split: Split, task: Task, max_length: int, tell: bool = True
) -> Encoded:
    """`encode`, for a split that is needed once. `tell`: a warning says how many texts lose their ends."""
    if task.kind in WINDOWED:
        return Encoded(*windows.encode(tokenizer, split, task, max_length))
    if task.kind == "language modelling":
        stream = token_stream(tokenizer, split)
        count = len(stream) // max_length
        if not count:
            raise BadInput(f"max length {max_length}: {task.name} has {len(stream)} tokens, less than one block")
        blocks = stream[: count * max_length].view(count, max_length)
        return block_examples(blocks.tolist(), blocks)
    special = tokenizer.num_special_tokens_to_add(pair=len(task.fields) == 2)
    if max_length < special + len(task.fields):
        raise BadInput(f"max length {max_length}: {task.name} needs at least {special + len(task.fields)} tokens")
    features: dict[str, list[list[int]]] = {}
    cut = 0
    with tqdm(total=len(split), desc="tokenise", unit="ex", disable=None if len(split) >= _BIG else True) as bar:
        for start in range(0, len(split), _CHUNK):
            texts = [list(column) for column in zip(*split.texts[start : start + _CHUNK], strict=True)]
            made = tokenizer(*texts, truncation="longest_first", max_length=max_length)
            cut += sum(bool(text.overflowing) for text in made.encodings or ())
            for name, values in made.items():
                features.setdefault(name, []).extend(values)
            bar.update(len(texts[0]))
    if cut and tell:
        warn(f"{task.name}: {cut:,} of {len(split):,} texts ({cut / len(split):.1%}) have more than"
             f" {max_length} tokens and lose their ends (see --max-length)")  # fmt: skip
    lengths = [len(tokens) for tokens in features["input_ids"]]
    if task.kind in GENERATED:
        features = {name: features[name] for name in ("input_ids", "attention_mask")}  # no types of texts
        answers = _answer_tokens(tokenizer, split.labels, max_length)
        return Encoded(list(split.ids), features, answers, lengths, answers=True)
    dtype = torch.float32 if task.kind == "regression" else torch.long
    return Encoded(list(split.ids), features, torch.tensor(split.labels, dtype=dtype), lengths)


def _identity(tokenizer: Any) -> Any:
    """What decides a tokenizer's output: its words and rules, which features it gives, and in which language."""
    if not tokenizer.is_fast:
        return tokenizer
    tokenizer.backend_tokenizer.no_truncation()  # every call sets both anew
    tokenizer.backend_tokenizer.no_padding()
    said = ("model_input_names", "truncation_side", "special_tokens_map", "src_lang", "tgt_lang")
    return *(str(getattr(tokenizer, name, None)) for name in said), tokenizer.backend_tokenizer.to_str()


def block_examples(blocks: list[list[int]], labels: Tensor) -> Encoded:
    """Blocks of tokens without padding as examples."""
    features = {"input_ids": blocks, "attention_mask": [[1] * len(block) for block in blocks]}
    return Encoded([f"block-{i}" for i in range(len(blocks))], features, labels, [len(block) for block in blocks])


def _answer_tokens(tokenizer: PreTrainedTokenizerBase, answers: list[str], max_length: int) -> Tensor:
    """The answers' tokens, at most `max_length`, [N, M]; -100 after their ends."""
    rows: Any = tokenizer(text_target=answers, truncation=True, max_length=max_length)["input_ids"]
    longest = max(map(len, rows))
    return torch.tensor([row + [-100] * (longest - len(row)) for row in rows])


def token_stream(tokenizer: PreTrainedTokenizerBase, split: Split) -> Tensor:
    """All documents of a split as one sequence of token ids [n], the end-of-text token before each.

    So the first token of every document has something to be predicted from, and the end of a document is one of the
    things to predict. No other special tokens are added.
    """
    if tokenizer.eos_token_id is None:
        raise BadInput(f"--teacher: its {type(tokenizer).__name__} has no end-of-text token (eos_token) to join"
                       " documents with; give a causal language model, such as GPT-2")  # fmt: skip
    texts: Any = tokenizer([text for (text,) in split.texts], add_special_tokens=False, verbose=False)["input_ids"]
    return torch.tensor([i for tokens in texts for i in (tokenizer.eos_token_id, *tokens)])


def epoch_size(tokenizer: PreTrainedTokenizerBase, data: TaskData, max_length: int) -> int:
    """The training examples of an epoch: rows, the blocks of a corpus, or the windows of documents."""
    train = data.splits["train"]
    cut = data.task.kind in (*WINDOWED, "language modelling")
    return len(encode(tokenizer, train, data.task, max_length) if cut else train)


def collate(
    tokenizer: PreTrainedTokenizerBase, encoded: Encoded, indices: Sequence[int], multiple: int = 1
) -> dict[str, Tensor]:
    """The batch of these examples: the tokeniser's outputs [B, L] (long) and "labels", [B], [B, L], [B, 2] or [B, M].

    L is the longest of the batch or, where there is padding at all, the next multiple of `multiple`; the tokeniser
    decides the side and the ids of the padding.
    """
    chosen = list(indices)
    lengths = [encoded.lengths[i] for i in chosen]
    L = max(lengths)
    if min(lengths) < L:
        if tokenizer.pad_token_id is None:
            raise BadInput(f"{type(tokenizer).__name__} has no padding token (pad_token) to fill batches with")
        L = max(L, min(-(-L // multiple) * multiple, tokenizer.model_max_length))
    positions, padding = places(encoded, chosen, L, tokenizer.padding_side)
    pads = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
    batch = {}
    for name, flat in encoded.flat.items():
        rows = flat[positions].astype(np.int64)
        rows[padding] = pads.get(name) or 0
        batch[name] = torch.from_numpy(rows)
    batch["labels"] = encoded.labels[chosen]
    if encoded.answers:
        batch["labels"] = batch["labels"][:, : int((batch["labels"] >= 0).sum(1).max())].contiguous()
    if encoded.windows is not None:
        spans = encoded.windows[0].places.ndim == 2
        _align(batch, lengths, tokenizer.padding_side, spans)
    return batch


def places(encoded: Encoded, indices: Sequence[int], L: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Where in `encoded.flat` the tokens of a batch stand, [B, L], and which of its L columns are padding, [B, L]."""
    lengths = np.array([encoded.lengths[i] for i in indices])[:, None]
    # column c of a row holds token number `at` of its example
    at = np.arange(L) - (L - lengths if side == "left" else 0)
    padding = (at < 0) | (at >= lengths)
    return np.where(padding, 0, encoded.ends[list(indices)][:, None] - lengths + at), padding


def _align(batch: dict[str, Tensor], lengths: list[int], side: str, spans: bool) -> None:
    """Bring the labels of windows, tags or `spans`, to where the batch's padding has put their tokens."""
    longest = batch["input_ids"].shape[1]
    labels = batch["labels"]
    if not spans:
        labels = F.pad(labels, (0, max(0, longest - labels.shape[1])), value=-100)[:, :longest]
    if side == "left":
        for i, length in enumerate(lengths):
            labels[i] = labels[i] + longest - length if spans else labels[i].roll(longest - length)
    batch["labels"] = labels.contiguous()


def _permutation(size: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in one epoch: a pure function of its arguments."""
    return np.random.default_rng([seed, epoch]).permutation(size).tolist()


class Batches:
    """The training stream, a pure function of (seed, step), so that resuming needs no state but the step.

    Epochs are seeded permutations laid end to end; every batch is full, so a batch may straddle two epochs.
    The stream has no end: the budget stops it. `by_length` draws the batches of an epoch from pools of 50 batches that
    are sorted by length, and then in any order, so that examples of one length meet and little is padding. `multiple`
    is `collate`'s.
    """

    POOL = 50

    def __init__(
        self, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, seed: int,
        by_length: bool = False, multiple: int = 1,
    ) -> None:  # fmt: skip
        self.encoded, self.tokenizer, self.batch_size, self.seed = encoded, tokenizer, batch_size, seed
        self.by_length, self.multiple = by_length, multiple
        self._epoch = functools.lru_cache(maxsize=2)(self._order)  # a batch seldom straddles more

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every example has been seen once (the last of them may reach into the next epoch)."""
        return math.ceil(len(self.encoded) / self.batch_size)

    def indices(self, step: int) -> list[int]:
        """The examples of batch `step` (from 0): for messages, and for caches by example."""
        size = len(self.encoded)
        first = step * self.batch_size
        return [self._epoch(at // size)[at % size] for at in range(first, first + self.batch_size)]

    def ids(self, step: int) -> list[str]:
        """The ids of the examples of batch `step`."""
        return [self.encoded.ids[i] for i in self.indices(step)]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `collate` makes it."""
        return collate(self.tokenizer, self.encoded, self.indices(step), self.multiple)

    def _order(self, epoch: int) -> list[int]:
        """The examples in the order of one epoch."""
        order = _permutation(len(self.encoded), self.seed, epoch)
        if not self.by_length:
            return order
        N, B = len(order), self.batch_size
        pools = [order[start : start + self.POOL * B] for start in range(0, N, self.POOL * B)]
        by_length = [i for pool in pools for i in sorted(pool, key=lambda i: self.encoded.lengths[i])]
        lead = min(N, -epoch * N % B)  # these fill up the batch that the epoch before has begun
        batches = [by_length[start : start + B] for start in range(lead, N, B)]
        whole = (N - lead) // B  # a short last batch stays last, or it would shift those after it
        drawn = [*_permutation(whole, self.seed + 1, epoch), *range(whole, len(batches))]
        return [*by_length[:lead], *(i for at in drawn for i in batches[at])]


class ShortFirst:
    """A training stream whose first `steps` batches hold `batch_size` examples of at most `tokens` tokens; after that
    every fourth holds longer ones, fewer of them: as many as make `batch_size` x `tokens` tokens, at least one.

    As when BERT was pre-trained, most steps are cheap ones. If all examples are short, or all long, they are mixed.
    """

    EVERY = 4

    def __init__(
        self, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, seed: int, steps: int, tokens: int
    ) -> None:
        short = [i for i, length in enumerate(encoded.lengths) if length <= tokens]
        long = [i for i, length in enumerate(encoded.lengths) if length > tokens]
        fewer = max(1, batch_size * tokens // max(encoded.lengths))
        self.steps = steps
        self.first, self.rest = (
            Batches(_select(encoded, chosen or either), tokenizer, size, seed, by_length=True)
            for chosen, either, size in ((short, long, batch_size), (long, short, fewer))
        )

    def _at(self, step: int) -> tuple[Batches, int]:
        later = max(0, step - self.steps)
        if later % self.EVERY == self.EVERY - 1:
            return self.rest, later // self.EVERY
        return self.first, step - later // self.EVERY

    def ids(self, step: int) -> list[str]:
        """The ids of the examples of batch `step`."""
        batches, at = self._at(step)
        return batches.ids(at)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `collate` makes it."""
        batches, at = self._at(step)
        return batches[at]


def _select(encoded: Encoded, chosen: list[int]) -> Encoded:
    """These examples of a split."""
    features = {name: [values[i] for i in chosen] for name, values in encoded.features.items()}
    windows = None if encoded.windows is None else [encoded.windows[i] for i in chosen]
    lengths = [encoded.lengths[i] for i in chosen]
    return Encoded([encoded.ids[i] for i in chosen], features, encoded.labels[chosen], lengths, windows)


EVAL_TOKENS = 16_384


def eval_batches(
    encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Every example exactly once, longest first (little padding, and memory runs out at once or never).

    Yields the examples' indices and their batch; the last one may be smaller. A batch has at most `EVAL_TOKENS` tokens,
    padding included, or one example.
    """
    batch_size = max(1, min(batch_size, EVAL_TOKENS // max(encoded.lengths, default=1)))
    order = sorted(range(len(encoded)), key=lambda i: -encoded.lengths[i])
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        yield indices, collate(tokenizer, encoded, indices)
