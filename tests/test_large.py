"""Large models: activations that are computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import bert_config, word_tokenizer
from test_input import refused
from torch.nn.functional import cross_entropy
from transformers import BertForMaskedLM

from common import models, text
from common.train import Loop

TEXTS = text.Texts([f"the film was {word} and the plot was {word}" for word in ("good", "bad", "dull", "warm")] * 8, "")


def model() -> BertForMaskedLM:
    """With dropout, which has to be drawn again as it was."""
    torch.manual_seed(0)
    return BertForMaskedLM(bert_config(3, 32, initializer_range=0.2))


def test_checkpointing_changes_nothing(tmp_path: Path) -> None:
    curves = []
    for checkpointing in (False, True):
        student, tokenizer, losses = model(), word_tokenizer(), []
        batches = text.Masked(TEXTS.batches(tokenizer, 16, 8, 0), tokenizer)
        loop = Loop({"student": student}, batches, 10, 1e-3, tmp_path / str(checkpointing), "a",
                    checkpointing=checkpointing)  # fmt: skip
        with loop:
            for batch in loop:
                logits = student(**batch.inputs).logits[batch.labels >= 0]
                loop.minimise(cross_entropy(logits, batch.labels[batch.labels >= 0]))
                losses.append(loop.loss)
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=1e-6)


def test_checkpointing_keeps_less() -> None:
    """Between the passes a layer's inputs are held, not what is inside of it."""
    held = []
    for wanted in (False, True):
        student, sizes = model().train(), list[int]()
        if wanted:
            models.checkpoint_activations(student)

        def pack(x: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            student(torch.randint(5, 30, (4, 32))).logits.sum()
        held.append(sum(sizes))
    assert held[1] < held[0] / 2


def test_what_cannot_be() -> None:
    """A model whose family does not support it is named."""
    student = model()
    student.supports_gradient_checkpointing = False
    refused(lambda: models.checkpoint_activations(student), "--gradient-checkpointing: bert does not support it")
