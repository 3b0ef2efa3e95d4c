"""Texts that a model writes: the next tokens of a text, its translation, its summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tqdm import tqdm

import pocket
from common.errors import BadInput, shown
from common.kinds import SURROGATE, Encoded, Forward, Kind, Rows, Split, Task
from common.text_metrics import bleu, rouge, signature

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase as Tokenizer


class LanguageModelling(Kind):
    """The next token; there are no labels in the data. Labels: [N, L], long, the blocks themselves."""

    name = "language modelling"
    head, architectures = "AutoModelForCausalLM", ("CausalLM", "LMHead")
    labelled = sized = False
    causal = True
    random_lr = 3e-3  # chosen on held-out unlabelled documents

    def parse(self, path: Path, text: str, whole: bool | None) -> Rows | None:
        """Lines of a running text, which keep their ends: LF."""
        if whole is None or path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl"):
            return None
        lines = re.findall("[^\n]*\n|[^\n]+", text.replace("\r\n", "\n"))
        return Rows({"text": lines}, str(path), official=path.name.startswith("wiki."))

    def examples(self, rows: Rows) -> Rows:
        """The documents of a running text: the articles of WikiText, or else what blank lines separate.

        An article of WikiText starts at a line " = Title = " between blank lines; its text is kept as it is, line ends
        and headings included. The hub's empty rows are lines of one blank in the files: so they are here.
        """
        lines = [line if line.endswith("\n") else f"{line or ' '}\n" for line in rows.columns["text"]]
        blank = [True, *(not line.strip() for line in lines), True]
        heading = re.compile(r" = [^=](.*[^=])? = \n")
        titled = [blank[i] and blank[i + 2] and heading.fullmatch(line) is not None for i, line in enumerate(lines)]
        starts = titled if any(titled) else blank[:-2]
        documents: list[str] = []
        for line, start in zip(lines, starts, strict=True):
            if start or not documents:
                documents.append("")
            documents[-1] += line
        found = [text for text in documents if text.strip()]
        return Rows({"text": found}, rows.where, lambda i: f"{rows.where} document {i + 1}")

    def read(self, task: Task, rows: Rows, i: int) -> None:
        return None

    def tokenise(self, tokenizer: Tokenizer, split: Split, task: Task, max_length: int) -> Encoded:
        """`token_stream` in blocks of `max_length` tokens; the remainder, which does not fill one, is left out."""
        stream = token_stream(tokenizer, split)
        count = len(stream) // max_length
        if not count:
            raise BadInput(f"max length {max_length}: {task.name} has {len(stream)} tokens, less than one block")
        blocks = stream[: count * max_length].view(count, max_length)
        return block_examples(blocks.tolist(), blocks, self)

    def predictions(self, output: Any, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Position i predicts token i + 1."""
        return output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()

    def stream(self, tokenizer: Tokenizer, split: Split) -> Tensor | None:
        return token_stream(tokenizer, split)

    def predict(self, model: Any, given: Any, tokenizer: Any, max_length: int, forward: Forward) -> tuple[Any, int]:
        """The perplexity of the stream; and its windows."""
        return perplexity(model, given, max_length), len(strided_windows(len(given), max_length))

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        return {"perplexity": found}

    def comparable(self, task: Task, tokenizer: Any, max_length: int, reported: Sequence[Split]) -> dict[str, Any]:
        """A perplexity belongs to its tokens and its windows."""
        from common.results import digest

        return {"tokens": digest(sorted(tokenizer.get_vocab().items()))[:8], "window": f"{max_length}/2"}


def token_stream(tokenizer: Tokenizer, split: Split) -> Tensor:
    """All documents of a split as one sequence of token ids [n], the end-of-text token before each: from it a first
    token is predicted, and the end of a document is one of the things to predict."""
    import torch

    if tokenizer.eos_token_id is None:
        name = type(tokenizer).__name__
        raise BadInput(f"--teacher: its {name} has no end-of-text token; give a causal model, such as GPT-2")
    texts: Any = tokenizer([text for (text,) in split.texts], add_special_tokens=False, verbose=False)["input_ids"]
    return torch.tensor([i for tokens in texts for i in (tokenizer.eos_token_id, *tokens)])


def strided_windows(count: int, max_length: int) -> list[tuple[int, int, int]]:
    """How a stream of `count` tokens is scored: windows (start, end, first) over its positions.

    A window reads tokens start..end - 1 and predicts from each its next one; it scores the tokens first + 1..end,
    those that no window before it has scored. Windows lie half of `max_length` apart and read `max_length` tokens, but
    for the last, which may be shorter.
    """
    stride = max(1, max_length // 2)
    starts = range(0, max(1, count - 1 - max_length + stride), stride)
    ends = [min(start + max_length, count - 1) for start in starts]
    return list(zip(starts, ends, [0, *ends], strict=False))


def perplexity(model: Any, stream: Tensor, max_length: int) -> float:
    """Token-level perplexity of a text [n]: exp of the mean negative log-likelihood of its tokens 1..n - 1.

    The first token (end-of-text) is given; every other one is scored exactly once, in `strided_windows`: from more than
    half of `max_length` tokens before it, where there are so many. Figures of two tokenizers, or for words, do not
    compare. Raises ValueError for a text of less than two tokens, and is infinite if the model has diverged.
    """
    import torch
    from torch.nn.functional import cross_entropy

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


# --- written by an encoder-decoder ---------------------------------------------------------------------------

BEAMS = 4  # of the beam search by which texts are written


class _Written(Kind):
    """A text to be written. Labels: [N, M], long, its tokens, -100 after its end."""

    head, architectures = "AutoModelForSeq2SeqLM", ("ForConditionalGeneration", "MTModel")
    written, sized = True, False
    random_lr = 4e-3
    use = f"tokenizer.batch_decode(model.generate(**inputs, num_beams={BEAMS}), skip_special_tokens=True)"

    def read(self, task: Task, rows: Rows, i: int) -> str:
        value = rows.columns["label"][i]
        if not isinstance(value, str) or not value.strip() or SURROGATE.search(value):
            raise BadInput(f"{rows.place(i)}: the answer is {shown(value)}; it must be one text")
        if re.fullmatch(r"\s*\[\s*['\"].*\]\s*", value, re.DOTALL):
            raise BadInput(f"{rows.place(i)}: the answer is a list as text, {shown(value)}; it must be one text")
        return value

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        return "texts to be written"

    def tokenise(self, tokenizer: Tokenizer, split: Split, task: Task, max_length: int) -> Encoded:
        made = super().tokenise(tokenizer, split, task, max_length)
        features = {name: made.features[name] for name in ("input_ids", "attention_mask")}  # no types of texts
        return replace(made, features=features)

    def targets(self, tokenizer: Tokenizer, split: Split, max_length: int) -> Tensor:
        """The answers' tokens, at most `max_length`."""
        import torch

        rows: Any = tokenizer(text_target=split.labels, truncation=True, max_length=max_length)["input_ids"]
        longest = max(map(len, rows))
        return torch.tensor([row + [-100] * (longest - len(row)) for row in rows])

    def align(self, labels: Tensor, longest: int) -> Tensor:
        return labels[:, : int((labels >= 0).sum(1).max())].contiguous()

    def predict(self, model: Any, given: Any, tokenizer: Any, max_length: int, forward: Forward) -> tuple[Any, int]:
        """What the model writes, by the library's beam search: at most `max_length` tokens, and no more than 10 beyond
        twice the longest source of the batch."""

        def beam_search(**inputs: Tensor) -> Tensor:
            # a model that does not come to an end is stopped
            limit = min(max_length, 2 * inputs["input_ids"].shape[1] + 10)
            return model.generate(
                **inputs, num_beams=BEAMS, max_new_tokens=limit, max_length=None, do_sample=False, early_stopping=True
            )

        rows: dict[int, str] = {}
        for indices, _, found in forward(model, given, tokenizer, 64, beam_search, "writing"):
            rows.update(zip(indices, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True))
        return [rows[i] for i in range(len(given))], len(given)

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        return found

    def comparable(self, task: Task, tokenizer: Any, max_length: int, reported: Sequence[Split]) -> dict[str, Any]:
        """How the texts were written and scored."""
        scored = signature(task.metrics[0], [text for split in reported for text in split.labels])
        return {"length": task.target_length or max_length, "beams": BEAMS, "score": scored}

    def more_inputs(self, models: Sequence[Any], labels: Tensor) -> dict[str, Tensor]:
        """The family's own way to shift what is written, for teachers too."""
        from transformers import PreTrainedModel

        (student,) = (model for model in models if isinstance(model, PreTrainedModel))
        return {"decoder_input_ids": student.prepare_decoder_input_ids_from_labels(labels)}  # type: ignore[operator]


class Summarisation(_Written):
    """Of a document."""

    name = "summarisation"
    own_metrics = ("rouge2", "rouge1", "rougeL")
    usual: ClassVar = {"document": "document", "label": "summary"}

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        return rouge(found, split.labels)


LANGUAGES = {"en": "en_XX", "es": "es_XX", "fr": "fr_XX", "ro": "ro_RO"}  # mBART's codes


class Translation(_Written):
    """Into another language."""

    name = "translation"
    own_metrics = ("bleu",)
    usual: ClassVar = {"source": "source", "label": "target"}

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        return bleu(found, split.labels)

    def corpus(self, split: Split) -> list[str]:
        """The texts of both languages."""
        return [text for (source,), target in zip(split.texts, split.labels, strict=True) for text in (source, target)]

    def unlabelled(self, count: int) -> list[str]:
        return pocket.unlabelled_bilingual(count, seed=1)

    def prepare(self, model: Any, tokenizer: Any, task: Task) -> None:
        """Tell an mBART between which languages it translates; the name of the task says so: wmt16/en-ro.

        mBART-25 starts to write from the code of a language, mBART-50 has it as its first word. Nothing is done to
        other families, which know one pair of languages or are told in words.
        """
        from transformers import MBartTokenizer

        languages = task.name.partition("/")[2].split("-")
        if hasattr(tokenizer, "tgt_lang") and len(languages) == 2:
            tokenizer.src_lang, tokenizer.tgt_lang = (LANGUAGES[language] for language in languages)
            first = "decoder_start_token_id" if isinstance(tokenizer, MBartTokenizer) else "forced_bos_token_id"
            setattr(model.generation_config, first, tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang))


def block_examples(blocks: list[list[int]], labels: Tensor, kind: Kind) -> Encoded:
    """Blocks of tokens without padding as examples."""
    features = {"input_ids": blocks, "attention_mask": [[1] * len(block) for block in blocks]}
    return Encoded([f"block-{i}" for i in range(len(blocks))], features, labels, kind)
