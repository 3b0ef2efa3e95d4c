"""Documents that are read in windows: a tag for each word, or the span of a text that answers a question.

A document of more tokens than a model reads is cut into windows of `max_length` tokens; each is one example. Tags:
windows do not overlap. Questions: every window holds the question, and a quarter of it is what the one before it
ended with, so that hardly an answer is cut. Predictions are joined again for the whole document: a figure
is of documents and does not depend on how they were cut.

Shapes: L tokens of a window, special ones included; T tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.errors import BadInput, refused, shown, some, tell, warn, warn_of_lacking
from common.kinds import Encoded, Forward, Kind, Rows, Split, Task, Window, chunks, finite
from common.kinds.names import class_name
from common.text_metrics import entities, questions

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase as Tokenizer

IGNORED = -100  # the label of a token that is none to predict
DOCSTART = "-DOCSTART-"
BETWEEN: tuple[list[str], ...] = ([], [DOCSTART])  # the first cell of a line that is no word's
TAG = re.compile(r"O|[BIESLU]-.+")  # IOB's; BIOES and BILOU have a letter for an end and for an entity of one word, too
LISTED = re.compile(r"\s*(\[.*\]|\{.*\})\s*", re.DOTALL)  # a list or dictionary, as text
ENTITIES = "entities are tagged O, B-TYPE and I-TYPE here"
BEST, LONGEST = 20, 30  # starts and ends that are paired, and tokens of an answer, as in the common SQuAD scripts


class _Windowed(Kind):
    """What both kinds of documents do: windows of a split, and a place in its document for each of their tokens."""

    windowed = True
    context = 0  # which of the texts is cut into windows
    room = 1  # the tokens that a window needs beside the special ones

    def cell(self, value: Any) -> Any:
        if isinstance(value, str) and LISTED.fullmatch(value):
            raise ValueError(f"its label is {shown(value)}: lists and dictionaries need JSON lines or Parquet")
        return value

    def asked(self, tokenizer: Tokenizer, texts: list[list[str]], max_length: int) -> list[list[str]]:
        """The texts as the tokenizer takes them."""
        raise NotImplementedError

    def window(self, split: Split, document: int, spans: np.ndarray, cls: int) -> tuple[np.ndarray, list[int]]:
        """A window's `Window.places` and labels. `spans`: [L, 2], where its tokens' characters stand; `cls`: [CLS]."""
        raise NotImplementedError

    def tokenise(self, tokenizer: Tokenizer, split: Split, task: Task, max_length: int) -> Encoded:
        """Windows of every document of a split, in order."""
        import torch

        least = tokenizer.num_special_tokens_to_add(pair=self.context == 1) + self.room
        if max_length < least:
            raise BadInput(f"max length {max_length}: {task.name} needs at least {least} tokens")
        if not tokenizer.is_fast:
            raise BadInput(f"{type(tokenizer).__name__} does not say where its tokens stand; {task.name} needs that")
        if tokenizer.padding_side != "right":
            raise BadInput(f"{type(tokenizer).__name__} pads in front; {task.name} needs padding behind the text")
        # a window of a context shares a quarter of its tokens with the one before it
        how: dict[str, Any] = {"max_length": max_length, "stride": max_length // 4 if self.context else 0}
        how |= {"return_overflowing_tokens": True, "return_offsets_mapping": True}
        how["truncation"] = "only_second" if self.context else True
        ids: list[str] = []
        labels: list[Tensor] = []
        windows: list[Window] = []
        features: dict[str, list[list[int]]] = {}
        number = 0
        for start, texts in chunks(split, 64):
            made = tokenizer(*self.asked(tokenizer, texts, max_length), **how)
            owners, offsets = made.pop("overflow_to_sample_mapping"), made.pop("offset_mapping")
            for k, document in enumerate(start + row for row in owners):
                inside = np.array([part == self.context for part in made.sequence_ids(k)])
                spans = np.where(inside[:, None], np.array(offsets[k]).reshape(-1, 2), -1)
                tokens = made["input_ids"][k]
                # the first token where a family has no [CLS]
                cls = tokens.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in tokens else 0
                places, targets = self.window(split, document, spans, cls)
                number = number + 1 if windows and windows[-1].document == document else 0
                windows.append(Window(document, places.astype(np.int32)))
                labels.append(torch.tensor(targets, dtype=torch.long))  # [] has a type, too
                ids.append(f"{split.ids[document]}#{number}")
                for name, values in made.items():
                    features.setdefault(name, []).append(values[k])
        padded = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED)
        return Encoded(ids, features, padded, self, windows)

    def predict(self, model: Any, given: Any, tokenizer: Any, max_length: int, forward: Forward) -> tuple[Any, int]:
        """Logits of every window without its padding, [L, T] or [L, 2], as float32, in order."""
        rows: dict[int, np.ndarray] = {}
        for indices, _, output in forward(model, given, tokenizer, len(given)):
            for i, row in zip(indices, self.token_logits(output).float().cpu().numpy(), strict=True):
                rows[i] = finite(row[: given.lengths[i]], given.ids[i])
        return [rows[i] for i in range(len(given))], len(given)

    def token_logits(self, output: Any) -> Tensor:
        """(B, L, T) scores of tags, or (B, L, 2) of being an answer's first and last token."""
        return output.logits


# --- a tag for each word -------------------------------------------------------------------------------------


class TokenClassification(_Windowed):
    """Tags of entities: a list of indices into Task.labels. Words stand between blanks, sentences between line ends.

    Labels: [N, L], long, -100 for tokens without a tag; of a word only its first token has one.
    """

    name = "token classification"
    temperature = 1.0  # at 2 KD rows on pocket/ner score lower (attention_pocket_trials.json)
    own_metrics = ("entity_f1",)
    usual: ClassVar = {"text": "tokens", "label": "ner_tags"}
    head, architectures = "AutoModelForTokenClassification", ("ForTokenClassification",)
    pocket_body = "bert-long"
    outputs = ("logits",)

    def parse(self, path: Path, text: str, whole: bool | None) -> Rows | None:
        """CoNLL's columns, a word first and its tag last; a blank line ends a sentence, "-DOCSTART-" starts a document.

        Every sentence is an example; `whole`: every document, if the file says where they start, and in a file of one's
        own if it does so more than once.
        """
        suffix, own = path.suffix.lower(), whole is None
        head, _ = _lines(text[:4000].rpartition("\n")[0] or text)
        tagged = [len(row) > 1 and TAG.fullmatch(row[-1]) for _, row in head if row[:1] not in BETWEEN]
        if suffix in (".json", ".jsonl") or (own and suffix not in (".conll", ".bio") and not (tagged and all(tagged))):
            return None
        lines, width = _lines(text)
        starts = text.count(DOCSTART)
        whole = whole is not False and starts > (1 if own else 0)
        documents: list[list[list[list[str]]]] = []  # of sentences of rows
        places: list[int] = []
        new, ended = True, True  # whether the next word is the first of its document, of its sentence
        for number, row in lines:
            if row[:1] in BETWEEN:
                new, ended = new or not whole or bool(row), True
                continue
            if len(row) != width:
                needs = f"{width} are needed, a word first and its tag last"
                raise BadInput(f"{path} line {number}: {len(row)} columns where {needs}")
            if not TAG.fullmatch(row[-1]):
                raise BadInput(f"{path} line {number}: tag {row[-1]!r}: {ENTITIES}")
            if not row[0] or " " in row[0]:
                raise BadInput(f"{path} line {number}: word {row[0]!r}: must not be empty, nor hold blanks")
            if new:
                documents.append([])
                places.append(number)
            if new or ended:
                documents[-1].append([])
            documents[-1][-1].append(row)
            new, ended = False, False
        rows = [*chain(*chain(*documents))]
        if not rows or (own and len(documents) == 1):
            raise BadInput(f"{path}: {'one sentence alone; a blank line ends each' if rows else 'no words with tags'}")
        sentences = [{word for word, *_ in one} for one in chain(*documents) if len(one) > 2]
        alike = width > 2 and 2 * sum(len(words) == 1 for words in sentences) > len(sentences)
        if alike or 2 * sum(bool(re.fullmatch(r"[A-Z]?\d+([-_.:]\d+)*", word)) for word, *_ in rows) > len(rows):
            raise BadInput(f"{path}: its first column holds numbers or ids; a word is needed first and its tag last")
        if own and (others := [i + 1 for i in range(1, width - 1) if all(TAG.fullmatch(row[i]) for row in rows)]):
            warn(f"{path}: column {others[-1]} holds tags, too; those of the last, {width}, are read")
        if own and starts == 1:
            tell(f"{path}: {DOCSTART} stands there once; every sentence is an example")
        texts = ["\n".join(" ".join(word for word, *_ in row) for row in document) for document in documents]
        tags = [[tag for row in document for tag in _begun([tag for *_, tag in row])] for document in documents]
        return Rows({"text": texts, "label": tags}, str(path), lambda i: f"{path} line {places[i]}")

    def cell(self, value: Any) -> Any:
        found = super().cell(value)
        tags = found if isinstance(found, list) else str(found).split()
        return _begun([class_name(tag) for tag in tags])

    def label_names(self, rows: dict[str, Rows]) -> Sequence[str]:
        """The tags of all entities that there are, O first."""
        types = set()
        for found in rows.values():
            for i, tags in enumerate(found.columns["label"]):
                if wrong := [tag for tag in tags if not re.fullmatch(r"O|[BI]-.+", tag)]:
                    raise BadInput(f"{found.place(i)}: tag {wrong[0]!r}: {ENTITIES}")
                types |= {tag[2:] for tag in tags if tag != "O"}
        if not types:
            raise BadInput(f"{rows['train'].place(0)}: every tag is O; entities are tagged B-TYPE and I-TYPE")
        if all(len(tags) == 1 for tags in rows["train"].columns["label"]):
            needs = "a list of words and one of tags in each row, or CoNLL's columns without a header"
            raise BadInput(f"{rows['train'].place(0)}: every row has one tag; give {needs}; or --kind classes")
        return ["O", *(f"{part}-{name}" for name in sorted(types) for part in "BI")]

    def examples(self, rows: Rows) -> Rows:
        """Words in a list, as the hub has them, become a text."""
        texts = rows.columns["text"]
        for i, words in enumerate(texts):
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                if wrong := [word for word in words if not word or " " in word]:
                    raise BadInput(f"{rows.place(i)}: word {wrong[0]!r}: must not be empty, nor hold blanks")
                texts[i] = " ".join(words)
        return rows

    def read(self, task: Task, rows: Rows, i: int) -> list[int]:
        """Row i's tags as indices into task.labels, by name; integers only where the source names them."""
        value, text = rows.columns["label"][i], rows.columns["text"][i]
        if re.fullmatch(r"\[\s*['\"].*['\"]\s*\]", text):
            raise BadInput(f"{rows.place(i)}: its words are a list as text; lists need JSON lines or Parquet")
        count = len(words_of(text))
        if not isinstance(value, list) or len(value) != count:
            has = f"{len(value)} tags" if isinstance(value, list) else repr(value)
            raise BadInput(f"{rows.place(i)}: {has} for {count} words; every word needs one")
        for tag in value:
            if tag not in task.labels:
                raise BadInput(f"{rows.place(i)}: tag {tag!r} is unknown; {task.name} has {', '.join(task.labels)}")
        return [task.places[tag] for tag in value]

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        for name, split in splits.items():
            there = {task.labels[tag][2:] for row in split.labels for tag in row}
            warn_of_lacking(name, "types", entity_types(task), there)
        return f"tags of {len(task.labels) // 2} types ({some(entity_types(task), 5)})"

    # --- windows ---

    def asked(self, tokenizer: Tokenizer, texts: list[list[str]], max_length: int) -> list[list[str]]:
        return [[text.replace("\n", " ") for text in texts[0]]]

    def window(self, split: Split, document: int, spans: np.ndarray, cls: int) -> tuple[np.ndarray, list[int]]:
        """The word of every token that is the first of one, or -1; and these words' tags."""
        starts = np.cumsum([0, *(len(word) + 1 for word in words_of(split.texts[document][0])[:-1])])
        found = np.searchsorted(starts, spans[:, 1] - 1, side="right") - 1  # of the token's last character
        # a token may begin with the blank before its word
        first = (spans[:, 1] > 0) & (spans[:, 0] <= starts[np.maximum(found, 0)])
        found = np.where(first, found, -1)
        places = np.where(np.diff(found, prepend=-2) == 0, -1, found)
        return places, [split.labels[document][word] if word >= 0 else IGNORED for word in places]

    def align(self, labels: Tensor, longest: int) -> Tensor:
        import torch.nn.functional as F

        return F.pad(labels, (0, longest - labels.shape[1]), value=IGNORED)  # what is negative cuts

    def tags(
        self, windows: Sequence[Window], split: Split, task: Task, logits: Sequence[np.ndarray]
    ) -> list[list[str]]:
        """One tag per word of every document, from the [L, T] logits of each window. A word that no window holds (it
        has no tokens) is "O"."""
        found = [["O"] * len(words_of(text)) for (text,) in split.texts]
        for window, scores in zip(windows, logits, strict=True):
            for word, tag in zip(window.places.tolist(), scores.argmax(-1).tolist(), strict=True):
                if word >= 0:
                    found[window.document][word] = task.labels[tag]
        return found

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        return [*chain(*self.tags(given.windows, split, task, found))]

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        predicted = self.tags(given.windows, split, task, found)
        truth = [[task.labels[tag] for tag in row] for row in split.labels]
        # an entity does not reach over the end of a sentence
        texts = [text for (text,) in split.texts]
        cut, true = ([*chain(*map(by_sentence, texts, tags))] for tags in (predicted, truth))
        return entities(cut, true, entity_types(task))


def words_of(text: str) -> list[str]:
    """The words of a tagged document: what stands between blanks and line ends, which are ends of sentences."""
    return text.replace("\n", " ").split(" ")


def _lines(text: str) -> tuple[list[tuple[int, list[str]]], int]:
    """Number and cells of every line of CoNLL's columns but of comments, no cells of a blank one; and how many columns
    there are. Between them are tabs, or blanks where the first row has no tab."""
    lines = [(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1)]
    first = next((line for _, line in lines if line and not line.startswith((DOCSTART, "#"))), "")
    between = re.compile("\t" if "\t" in first else " +")
    width = max(2, len(between.split(first.lstrip(" "))))
    rows = []
    for number, line in lines:
        cells = [cell.strip() for cell in between.split(line.lstrip(" "))]
        if line.startswith(DOCSTART):
            cells = [DOCSTART]
        comment = re.match(r"#(\s|$)", line) and not (len(cells) == width and TAG.fullmatch(cells[-1]))
        if not comment:
            rows.append((number, cells if line else []))
    return rows, width


def _begun(tags: list[str]) -> list[str]:
    """A sentence's tags in which every entity begins with a B- and goes on with I-."""
    begun = []
    for last, tag in zip(["O", *tags], tags, strict=False):
        inside = tag[:1] in "IEL" and last[:1] in "BI" and last[2:] == tag[2:]
        begun.append(f"{'I' if inside else 'B'}{tag[1:]}" if re.match("[BIESLU]-", tag) else tag)
    return begun


def by_sentence(text: str, row: Sequence[str]) -> list[list[str]]:
    """The tags of a document's words, cut where its sentences end."""
    tags = iter(row)
    return [list(islice(tags, len(sentence.split(" ")))) for sentence in text.split("\n")]


def entity_types(task: Task) -> list[str]:
    """PER, LOC, ...: the types of a task's tags, in their order."""
    return list(dict.fromkeys(tag[2:] for tag in task.labels if tag != "O"))


# --- the answer to a question --------------------------------------------------------------------------------


class SpanQA(_Windowed):
    """A span of the context: texts and their offsets, -1 if unknown, those that are found first.

    Labels: [N, 2], long, the answer's first and last token; a window without it points at [CLS], as BERT's SQuAD recipe
    does.
    """

    name = "span QA"
    own_metrics = ("answer_f1", "exact_match")
    pair = ("question", "context")
    usual: ClassVar = {"question": "question", "context": "context", "label": "answers"}
    head, architectures = "AutoModelForQuestionAnswering", ("ForQuestionAnswering",)
    sized, pocket_body = False, "bert-asked"
    outputs = ("start_logits", "end_logits")
    use = "model(**inputs)"
    context, room = 1, 12

    def parse(self, path: Path, text: str, whole: bool | None) -> Rows | None:
        """One JSON document: SQuAD's (articles, paragraphs, questions; or paragraphs alone), or HotpotQA's list of
        questions.

        `whole`: a question of SQuAD is asked about its article, or a part of it, and not about its paragraph alone.
        """
        if text.lstrip()[0] not in "[{" or "\n{" in text.strip():
            return None
        if whole is None and not re.search(r'"qas"\s*:', text):
            return None
        squads = "; data, paragraphs, qas of SQuAD's layout are expected"
        with refused(f"{path}: not JSON", ValueError, RecursionError, hint=squads):
            found = json.loads(text)
        wrong = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
        with refused(f"{path}: not SQuAD's layout", *wrong, hint=squads):
            if isinstance(found, list) and found and "qas" in found[0]:
                found = {"data": [{"paragraphs": found}]}
            if isinstance(found, list):
                rows = [hotpot_row(row | {"id": row["_id"], "label": row["answer"]}) for row in found]
            else:
                rows = [
                    {"id": str(asked["id"]), "question": asked["question"], "context": paragraph["context"],
                     "label": {key: [answer.get(key) for answer in asked.get("answers", ())]
                               for key in ("text", "answer_start")}}
                    for article in found["data"]
                    for paragraph in (_joined if whole else list)(article["paragraphs"])
                    for asked in paragraph["qas"]
                ]  # fmt: skip
            columns = {name: [row[name] for row in rows] for name in ("id", "question", "context", "label")}
        if not rows:
            raise BadInput(f"{path}: no questions")
        return Rows(columns, str(path), lambda i: f"{path} question {rows[i]['id']}", official=not whole)

    def cell(self, value: Any) -> Any:
        return value if isinstance(value, dict) else {"text": [super().cell(value)]}

    def label_names(self, rows: dict[str, Rows]) -> Sequence[str]:
        if "context" not in rows["train"].columns:
            where = rows["train"].place(0)
            raise BadInput(f"{where}: spans need a question and its context; --text QUESTION,CONTEXT names them")
        return ()

    def read(self, task: Task, rows: Rows, i: int) -> list[tuple[str, int]]:
        """Row i's answers: texts, and where each stands in the context (`answer_start`); -1: nowhere. Those that are
        found come first. Without offsets (TriviaQA, HotpotQA) every place is one."""
        value, context = rows.columns["label"][i], rows.columns["context"][i]
        texts = value.get("text") if isinstance(value, dict) else None
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            needs = 'one text or more is needed, as {"text": [...], "answer_start": [...]}'
            raise BadInput(f"{rows.place(i)}: answers are {str(value)[:60]!r}; {needs}")
        given = value.get("answer_start") or []
        with refused(f"{rows.place(i)}: answer_start is {str(given)[:60]}", TypeError, ValueError, OverflowError,
                     hint="; one number for each answer is needed"):  # fmt: skip
            if not isinstance(given, list):
                raise TypeError("no list")
            starts = [said_start(said) for said in given] + [-1.0] * (len(texts) - len(given))
            found = [(text, answer_start(context, text, near)) for text, near in zip(texts, starts, strict=True)]
        if not given:
            places = {text: [match.start() for match in re.finditer(re.escape(text), context)] for text in texts}
            found = [(text, start) for text in texts for start in places[text] or [-1]]
        return sorted(found, key=lambda answer: answer[1] < 0)

    def taught(self, task: Task, split: Split, rows: Rows) -> Split:
        """An answer that is not in the context teaches nothing."""
        kept = [i for i, answers in enumerate(split.labels) if answers[0][1] >= 0]
        moved = 0
        for i in kept:
            said = {said_start(start) for start in rows.columns["label"][i].get("answer_start") or ()}
            moved += not said <= {-1, *(start for _, start in split.labels[i])}
        if moved:
            there = "their answer not at answer_start; the place nearest to it is taken"
            warn(f"{task.name} train: {moved} of {len(split)} questions have {there}")
        if len(kept) < len(split):
            left = f"{len(split) - len(kept)} of {len(split)} questions left out"
            warn(f"{task.name} train: {left}, their answer is not in the text")
        if not kept:
            raise BadInput(f"{rows.place(0)}: no question of {task.name} has its answer in its context")
        return split.rows(kept)

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        for name, split in splits.items():
            if count := sum(answers[0][1] < 0 for answers in split.labels):
                warn(f"{name}: {count:,} of {len(split):,} answers are not in their text; no student can give them")
        return "spans of a text"

    # --- windows ---

    def asked(self, tokenizer: Tokenizer, texts: list[list[str]], max_length: int) -> list[list[str]]:
        """Questions whose ends are cut off where they have more than a quarter of the tokens; and the contexts."""
        most = max_length // 4
        offsets = tokenizer(texts[0], add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        ends = [at[most - 1][1] if len(at) > most else None for at in offsets]
        return [[question[:end] for question, end in zip(texts[0], ends, strict=True)], texts[1]]

    def window(self, split: Split, document: int, spans: np.ndarray, cls: int) -> tuple[np.ndarray, list[int]]:
        """The places as they are; first and last token of the first answer that the window holds all of."""
        context = np.flatnonzero(spans[:, 0] >= 0)
        for text, start in split.labels[document] if len(context) else ():
            end = start + len(text)
            if spans[context[0], 0] <= start and end <= spans[context[-1], 1]:
                first = context[np.searchsorted(spans[context, 1], start, side="right")]
                last = context[np.searchsorted(spans[context, 0], end, side="left") - 1]
                return spans, [int(first), int(last)]
        return spans, [cls, cls]

    def settings(self, task: Task) -> dict[str, Any]:
        return {"num_labels": 2}  # start and end

    def predictions(self, output: Any, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """An answer's first token and its last, among the L positions of a window, of which those of padding have no
        probability."""
        import torch

        logits = torch.cat([output.start_logits, output.end_logits])
        return logits.masked_fill(~mask.repeat(2, 1), -1e4), torch.cat(labels.unbind(-1))

    def answers(self, windows: Sequence[Window], split: Split, logits: Sequence[np.ndarray]) -> list[str]:
        """The text of every question's answer: the span of a context with the largest sum of its start and end logits,
        [L, 2] for each window, over all windows; "" if there is none."""
        found = [""] * len(split)
        scores = np.full(len(split), -np.inf)
        for window, both in zip(windows, logits, strict=True):
            context = np.flatnonzero(window.places[:, 0] >= 0)
            starts, ends = (context[np.argsort(-both[context, side], kind="stable")[:BEST]] for side in (0, 1))
            sums = both[starts, 0][:, None] + both[ends, 1]
            long = ends - starts[:, None]
            sums[(long < 0) | (long >= LONGEST)] = -np.inf
            if sums.size and sums.max() > scores[window.document]:
                first, last = np.unravel_index(sums.argmax(), sums.shape)
                scores[window.document] = sums.max()
                start, end = window.places[starts[first], 0], window.places[ends[last], 1]
                found[window.document] = split.texts[window.document][1][start:end].strip()
        return found

    def token_logits(self, output: Any) -> Tensor:
        import torch

        return torch.stack([output.start_logits, output.end_logits], -1)

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        return self.answers(given.windows, split, found)

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        truths = [list(dict.fromkeys(text for text, _ in answers)) for answers in split.labels]
        return questions(self.answers(given.windows, split, found), truths, task.name)


def said_start(said: Any) -> float:
    """Where an answer is said to stand, 79, 79.0 or "79"; -1 for null. Raises an error for what is no number."""
    return -1.0 if said is None or said != said else float(said)


def answer_start(context: str, text: str, near: float) -> int:
    """Where an answer stands: at the place nearest to this one, at the first if that is -1; -1 if it does nowhere."""
    if near >= 0 and near.is_integer() and context.startswith(text, int(near)):
        return int(near)
    places = (match.start() for match in re.finditer(f"(?={re.escape(text)})", context))
    return min(places, key=lambda place: abs(place - near), default=-1)


def hotpot_row(row: dict[str, Any]) -> dict[str, Any]:
    """HotpotQA's paragraphs, titles first, as one context. "yes no" stands before them: two answers that no paragraph
    holds, which a model that marks spans can then give."""
    found = row["context"]
    if isinstance(found, dict):  # the hub's columns; the official file has pairs
        found = list(zip(found["title"], found["sentences"], strict=True))
    paragraphs = [f"{title}: {''.join(sentences).strip()}" for title, sentences in found]
    return row | {"context": "\n".join(["yes no", *paragraphs]), "label": {"text": [row["label"]]}}


def trivia_row(row: dict[str, Any]) -> dict[str, Any]:
    """TriviaQA's pages as one context; every alias is a true answer. Supervision is distant: no offsets."""
    pages = [text for text in row["context"]["wiki_context"] if text.strip()]
    aliases = list(dict.fromkeys([row["label"]["value"], *row["label"]["aliases"]]))
    return row | {"context": "\n".join(pages) or row["question"], "label": {"text": aliases}}


ARTICLE = 2600  # words of a part of an article


def _joined(paragraphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An article's paragraphs in parts of at most ARTICLE words, or of one that is longer. An answer is where it stands
    in the paragraph that its question is about."""
    parts: list[dict[str, Any]] = []
    for paragraph in paragraphs:
        context = paragraph["context"]
        if not parts or len(parts[-1]["context"].split()) + len(context.split()) > ARTICLE:
            parts.append({"context": context, "qas": []})
        else:
            parts[-1]["context"] += "\n" + context
        offset = len(parts[-1]["context"]) - len(context)
        for asked in paragraph["qas"]:
            answers = []
            for answer in asked["answers"]:
                start = answer_start(context, answer["text"], said_start(answer.get("answer_start")))
                answers.append(answer | {"answer_start": offset + start if start >= 0 else -1})
            parts[-1]["qas"].append(asked | {"answers": answers})
    return parts
