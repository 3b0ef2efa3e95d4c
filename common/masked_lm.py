"""Masked language models: their text, a model beside a teacher, a head if it has none, masked batches.

Two callers: pre-training distillation, whose teacher is the masked LM, and data augmentation, which asks it for
words that fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common import data, train
from common.args import BadInput, first_line

# A new head is one layer below the tied embeddings: it has little to learn.
HEAD_RECIPE = {"steps": 300, "batch_size": 32, "lr": 1e-3}
SHARE = 0.15  # of the tokens, to be predicted
DOCUMENTS = 60_000  # of the pocket suite, for pre-training distillation

TEXT = data.Task("text", "classification", ("text",), (), ())  # unlabelled passages, for `data.encode`


def passages(texts: list[str]) -> data.Split:
    """Unlabelled texts as a split, to be encoded with the task `TEXT`."""
    return data.Split([f"text-{i}" for i in range(len(texts))], [(text,) for text in texts], [0] * len(texts))


def packed(tokenizer: Any, texts: list[str], length: int, most: int | None = None) -> data.Encoded:
    """Texts end to end, cut into blocks of `length` tokens: none of it is padding. Each block opens and ends with the
    tokenizer's special tokens, and its separator stands between texts; the rest that does not fill a block is left
    out, unless there is nothing else. From `most` blocks on, no more texts are read.
    """
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BadInput(f"--teacher: {type(tokenizer).__name__} has no [CLS] and [SEP] to put around a block of text")
    stream: list[int] = []
    inside = length - 2
    for start in range(0, len(texts), 200):
        if most is not None and len(stream) >= most * inside:
            break
        for tokens in tokenizer(texts[start : start + 200], add_special_tokens=False)["input_ids"]:
            stream += [*tokens, tokenizer.sep_token_id]
    count = len(stream) // inside
    ends = [(i * inside, (i + 1) * inside) for i in range(count)] or [(0, len(stream))]
    blocks = [[tokenizer.cls_token_id, *stream[a:b], tokenizer.sep_token_id] for a, b in ends]
    features = {"input_ids": blocks, "attention_mask": [[1] * len(block) for block in blocks]}
    ids = [f"block-{i}" for i in range(len(blocks))]
    return data.Encoded(ids, features, torch.zeros(len(blocks), dtype=torch.long), [len(block) for block in blocks])


def corpus(path: str | None, task: data.TaskData, documents: int = DOCUMENTS) -> list[str]:
    """Unlabelled passages: a file's (`--corpus`), so many pocket documents, or a real task's own training texts."""
    if path is not None:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"--corpus {path}: cannot be read as UTF-8 text ({error})") from error
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise BadInput(f"--corpus {path}: holds no text; one passage a line is needed")
        return found
    if task.source == "pocket":
        from common import pocket

        if task.task.kind == "translation":
            return pocket.unlabelled_bilingual(documents, seed=1)
        return pocket.unlabelled(documents, seed=1)
    if task.task.kind == "translation":  # both languages
        sides = [text for (text,) in task.splits["train"].texts], task.splits["train"].labels
        return [text for pair in zip(*sides, strict=True) for text in pair]
    return list(dict.fromkeys(text for texts in task.splits["train"].texts for text in texts if text.strip()))


def load(source: str) -> tuple[PreTrainedModel, bool]:
    """The masked LM behind a hub id or a folder, and whether its head came with it.

    A head that is not in the file is random, but for the output embeddings, which are tied to the input's. Raises
    `BadInput` for a family without masked LM, and for a file that lacks other weights.
    """
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            source, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise BadInput(f"--teacher {source}: gives no masked language model ({first_line(error)})") from error
    body = model.base_model_prefix + "."
    lost = sorted(key for key in report["missing_keys"] if key.startswith(body))
    if lost:
        raise BadInput(f"--teacher {source}: {len(lost)} weights are not in its file, the first is {lost[0]}")
    return model, not report["missing_keys"]


def logits_at(model: PreTrainedModel, inputs: Mapping[str, Tensor], chosen: Tensor) -> Tensor:
    """(M, V): a masked LM's logits at the M chosen tokens of (B, L), and at no others: with a large vocabulary the
    output layer is most of the work."""

    def keep(_body: nn.Module, _inputs: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state[chosen][None]
        return out

    handle = model.base_model.register_forward_hook(keep)
    try:
        return model(**inputs).logits[0]
    finally:
        handle.remove()


def train_head(model: PreTrainedModel, tokenizer: Any, encoded: data.Encoded, ledger: train.Ledger) -> None:
    """Train what lies above the body, the tied embeddings left as they are. Charges `ledger`'s teacher examples."""
    body = {id(p) for p in model.base_model.parameters()}
    head = [p for p in model.parameters() if id(p) not in body]
    optimizer = torch.optim.AdamW(head, lr=HEAD_RECIPE["lr"])
    own = train.Ledger()
    schedule = train.Schedule(optimizer, own, int(HEAD_RECIPE["steps"]), None)
    batches = data.Batches(encoded, tokenizer, int(HEAD_RECIPE["batch_size"]), 0)
    weights = token_weights(encoded, tokenizer, smoothing=0.0)
    device = next(model.parameters()).device
    bar = train.progress(int(HEAD_RECIPE["steps"]), "masked-LM head")
    while schedule.running():
        batch = batches[own.steps]
        batch.pop("labels")
        labels = mask_tokens(batch["input_ids"], batch["attention_mask"], weights, tokenizer).to(device)
        inputs = {k: v.to(device) for k, v in batch.items()}
        masked = labels >= 0
        loss = F.cross_entropy(logits_at(model, inputs, masked), labels[masked])
        train.check_finite(loss, own.steps, batches.ids)
        grads = torch.autograd.grad(loss, head)
        for parameter, grad in zip(head, grads, strict=True):
            parameter.grad = grad
        clip_grad_norm_(head, train.CLIP)
        optimizer.step()
        own.count(batch)
        schedule.step()
        bar.update()
    bar.close()
    ledger.teacher_examples += own.student_examples


def token_weights(encoded: data.Encoded, tokenizer: Any, smoothing: float) -> Tensor:
    """(V,): how readily each token is chosen for masking, count^-smoothing; special tokens never are."""
    ids = torch.tensor([i for tokens in encoded.features["input_ids"] for i in tokens])
    weights = torch.bincount(ids, minlength=len(tokenizer)).clamp(min=1).double() ** -smoothing
    weights[tokenizer.all_special_ids] = 0
    return weights.float()


def mask_tokens(ids: Tensor, mask: Tensor, weights: Tensor, tokenizer: Any, share: float = SHARE) -> Tensor:
    """BERT's masking (`hide`) of (B, L) ids, in place: `share` of the batch's valid tokens are chosen, by `weights`.

    Returns labels (B, L). Draws from torch's global generator.
    """
    chances = (weights[ids] * mask).flatten()
    count = min(math.ceil(share * int(mask.sum())), int((chances > 0).sum()))
    chosen = torch.zeros_like(chances, dtype=torch.bool)
    if count:
        chosen[torch.multinomial(chances, count)] = True
    dice = torch.rand(ids.shape)
    words = (weights > 0).nonzero().flatten()
    other = words[torch.randint(len(words), ids.shape)]
    return hide(ids, chosen.view_as(ids), dice, other, tokenizer.mask_token_id)


def hide(ids: Tensor, chosen: Tensor, dice: Tensor, other: Tensor, mask_token_id: int) -> Tensor:
    """Of the chosen (B, L) ids hide 80%, replace 10% by `other` and leave 10%, as `dice` in [0, 1) decide; in place.

    Returns labels (B, L), -100 where nothing is to be predicted.
    """
    labels = torch.where(chosen, ids, -100)
    ids[chosen & (dice < 0.8)] = mask_token_id
    replaced = chosen & (dice >= 0.9)
    ids[replaced] = other[replaced]
    return labels
