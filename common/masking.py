"""BERT's masking of a training stream, and the head of a masked language model.

    batches = Masked(batches, tokenizer)                  # labels are what was hidden
    train_head(stage, model, tokenizer, batches.encoded)  # where the head did not come with the model

Shapes: B batch, L length (tokens), V vocabulary, M masked tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common import data, models, parallel
from common.errors import BadInput
from common.kinds import Encoded
from common.losses import label_loss
from common.train import Stage
from common.values import parse_model

if TYPE_CHECKING:
    from common.text import StreamBatches

SHARE = 0.15  # of the tokens, to be masked
HEAD_STEPS, HEAD_BATCH, HEAD_LR = 300, 32, 1e-3  # a new head is one layer: it has little to learn


class Masked:
    """The batches of another training stream with BERT's masking: "labels" (B, L), -100 where nothing was masked.

    `smoothing`: how much more readily rare tokens are masked, by count^-smoothing in `batches.encoded`. With
    `everywhere`, labels also hold the tokens that were not masked: for a loss at every token that is not padding.
    Masked tokens are drawn from torch's global generator: a batch that is asked for twice differs.
    """

    def __init__(self, batches: data.Batches | StreamBatches, tokenizer: Any, smoothing: float = 0.0,
                 everywhere: bool = False) -> None:  # fmt: skip
        self.batches, self.tokenizer, self.everywhere = batches, tokenizer, everywhere
        self.encoded, self.ids = batches.encoded, batches.ids  # as they are
        # (V,): how readily each token is chosen; special ones never are
        tokens, V = torch.from_numpy(batches.encoded.flat["input_ids"]), models.vocabulary_size(tokenizer)
        weights = torch.bincount(tokens, minlength=V).clamp(min=1).double() ** -smoothing
        weights[tokenizer.all_special_ids] = 0
        self.weights = weights.float()

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0), masked."""
        return self.mask(self.batches[step])

    def mask(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Any batch of this tokenizer, masked: SHARE of its valid tokens are chosen, by `weights`."""
        ids, mask = batch["input_ids"].clone(), batch["attention_mask"]
        if self.tokenizer.mask_token_id is None:
            raise BadInput("--teacher: its tokenizer has no token for what is masked; rows without masked LMs work")
        chances = (self.weights[ids] * mask).flatten()
        count = min(math.ceil(SHARE * int(mask.sum())), int((chances > 0).sum()))
        chosen = torch.zeros_like(chances, dtype=torch.bool)
        if count:
            chosen[torch.multinomial(chances, count)] = True
        dice = torch.rand(ids.shape)
        words = (self.weights > 0).nonzero().flatten()
        other = words[torch.randint(len(words), ids.shape)]
        labels = hide(ids, chosen.view_as(ids), dice, other, self.tokenizer.mask_token_id)
        if self.everywhere:
            labels = torch.where(mask > 0, batch["input_ids"], -100)
        return batch | {"input_ids": ids, "labels": labels}


def hide(ids: Tensor, chosen: Tensor, dice: Tensor, other: Tensor, mask_token_id: int) -> Tensor:
    """Of the chosen (B, L) ids hide 80%, replace 10% by `other` and leave 10%, as `dice` in [0, 1) decide; in place.

    Returns labels (B, L), -100 where nothing is to be predicted.
    """
    labels = torch.where(chosen, ids, -100)
    ids[chosen & (dice < 0.8)] = mask_token_id
    replaced = chosen & (dice >= 0.9)
    ids[replaced] = other[replaced]
    return labels


def logits_at(model: PreTrainedModel, inputs: Mapping[str, Tensor], chosen: Tensor) -> Tensor:
    """(M, V): a masked language model's logits at the M chosen tokens of (B, L), and at no others: with a large
    vocabulary the output layer is most of the work."""

    def keep(_body: nn.Module, _inputs: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state[chosen][None]
        return out

    handle = model.base_model.register_forward_hook(keep)
    try:
        return model(**inputs).logits[0]
    finally:
        handle.remove()


def train_head(stage: Stage, model: PreTrainedModel, tokenizer: Any, encoded: Encoded) -> None:
    """Train what lies above the body of a masked language model whose file holds no head, on `encoded` texts.

    The body, and embeddings that are tied to its own, stay as they are. Charged as the teacher's examples.
    """
    head = nn.ModuleList(part for part in model.children() if part is not model.base_model)
    model.requires_grad_().base_model.requires_grad_(False)
    model.to(parallel.device()).eval()  # type: ignore[arg-type]
    batches = Masked(data.Batches(encoded, tokenizer, HEAD_BATCH, 0), tokenizer)
    with stage.loop({"head": head}, batches, HEAD_STEPS, HEAD_LR, name="head", label="masked-LM head") as loop:
        for batch in loop:
            masked = batch.labels >= 0
            loop.minimise(parallel.mean(label_loss(logits_at(model, batch.inputs, masked), batch.labels[masked])))
        spent = loop.ledger
        spent.teacher_examples += spent.student_examples
        spent.steps = spent.student_examples = spent.student_tokens = 0
    model.requires_grad_()


def load_masked_lm(name: str) -> tuple[PreTrainedModel, bool]:
    """A masked language model, and whether its head came with it: not that of "NAME:6", which has learnt what the last
    layer says. A head that is not in the file is random, but for output embeddings, which are tied to the input's."""
    config = models.load_config(name)
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise BadInput(
            f"--teacher {name}: a {config.model_type} gives no masked language model; what needs none works:"
            " rows without a stage before the task, of cka.py --pretraining off, of cmow.py --init random"
        )
    model, absent = models.read_model(name, config, AutoModelForMaskedLM)
    for key, weights in model.named_parameters():
        if key in absent and key.endswith("bias"):  # the library leaves Longformer's as the memory was
            nn.init.zeros_(weights)
    return model, not absent and parse_model(name)[1] is None
