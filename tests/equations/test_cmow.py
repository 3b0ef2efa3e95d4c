"""cmow.py's products, encodings, heads and losses against definitions, the paper's counts, and numpy in float64."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import refused, word_tokenizer
from scipy.special import log_softmax
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertTokenizer

from common.args import BadInput
from common.data import load
from common.parallel import mean
from common.tasks import TaskData
from common.train import Ledger, split_batch
from methods import cmow
from methods.cmow import encoder_sizes, ordered_product, prefix_products

STUDENTS = ("cbow-9", "cmow-3", "hybrid-3-9", "bidirectional-3-9")
close = torch.testing.assert_close  # in float64: to 1e-7


def model(student: str = "bidirectional-3-9", kind: Any = None, seed: int = 0, **changes: Any) -> Any:
    """In float64, with words far enough from the identity for order to matter; 1 is [CLS], 2 [SEP], 0 padding."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 31, "mlp_width": 8, "cls_token_id": 1, "sep_token_id": 2, "initializer_range": 0.3}
    config = cmow.MatrixEmbeddingConfig(**(encoder_sizes(student) | sizes | {"diffcat": False} | changes))
    return (kind or cmow.MatrixEmbeddingForSequenceClassification)(config).double().eval()


def rows(*texts: list[int]) -> tuple[Tensor, Tensor]:
    """Ids padded on the right, and their mask."""
    L = max(map(len, texts))
    ids = torch.tensor([text + [0] * (L - len(text)) for text in texts])
    return ids, ids > 0


def product(table: Any, words: list[int]) -> Tensor:
    """The definition: I (I + row_1) (I + row_2) ..."""
    s = round(table.embedding_dim**0.5)
    P = torch.eye(s, dtype=torch.float64)
    for word in words:
        P = P @ (torch.eye(s, dtype=torch.float64) + table.weight[word].view(s, s))
    return P.flatten()


@pytest.mark.parametrize("L", [1, 2, 3, 7, 16, 33])
def test_products_are_the_definition_and_so_are_their_gradients(L: int) -> None:
    torch.manual_seed(L)
    M = (torch.eye(4) + 0.3 * torch.randn(2, L, 4, 4)).double().requires_grad_()
    P = list(accumulate(M.unbind(1), torch.matmul))
    for found, wanted in ((prefix_products(M), torch.stack(P, 1)), (ordered_product(M), P[-1])):
        close(found, wanted)
        close(*(torch.autograd.grad(x.square().sum(), M, retain_graph=True)[0] for x in (found, wanted)))


@pytest.mark.parametrize("student", STUDENTS)
def test_encodings_are_the_definition(student: str) -> None:
    """A text's, and for the masked language model those of tokens 1..i and i..L at every i."""
    net, texts = model(student).embeddings, [[5, 6, 7, 8, 9], [8, 6, 5]]
    pooled, sides = net.pooled(*rows(*texts)), net.both_sides(*rows(*texts))
    backward = net.backward_matrices if net.bidirectional else net.forward_matrices
    for row, words in enumerate(texts):
        total, forward = net.vectors.weight[words].sum(0), product(net.forward_matrices, words)
        close(pooled[row], torch.cat([total, forward, product(net.backward_matrices, words[::-1])]))
        for i in range(len(words)):
            before, after = words[: i + 1], words[i:]
            parts = [net.vectors.weight[before].sum(0), product(net.forward_matrices, before)]
            parts += [net.vectors.weight[after].sum(0), product(backward, after[::-1] if net.bidirectional else after)]
            close(sides[row, i], torch.cat(parts))
    one, other = net.pooled(*rows([5, 6, 7], [7, 5, 6]))
    assert torch.allclose(one, other) == student.startswith("cbow")


@pytest.mark.parametrize("head", cmow.Args.GRID["head"])
@pytest.mark.parametrize("diffcat", [False, True])
@pytest.mark.parametrize("student", STUDENTS)
def test_padding_changes_nothing_and_all_weights_learn(student: str, diffcat: bool, head: str, tmp_path: Path) -> None:
    net = model(student, diffcat=diffcat, head=head, num_labels=3)
    ids, mask = rows([1, 5, 6, 7, 2, 8, 9, 2], [1, 5, 2, 4, 2])
    logits = net(ids, mask).logits
    close(net(*rows([1, 5, 2, 4, 2])).logits, logits[[1]])
    close(net(ids.where(mask, 13), mask).logits, logits, rtol=0, atol=0)  # nobody reads what stands under the mask
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters() if p.numel())
    assert not any(p.grad[0].any() for p in net.embeddings.parameters() if p.numel())  # of padding
    net.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).double().eval()
    close(again(ids, mask).logits, logits)


def test_padding_is_the_identity_and_diffcat_encodes_texts_apart() -> None:
    net = model(diffcat=True)
    pooled = net.embeddings.pooled
    empty = torch.cat([torch.zeros(9), *2 * [torch.eye(3).flatten()]]).double()
    assert torch.equal(pooled(torch.tensor([[5, 6]]), torch.zeros(1, 2, dtype=torch.bool))[0], empty)
    joined = net.encoding(net.texts(*rows([1, 5, 6, 7, 2, 8, 9, 2], [1, 5, 6, 2])))
    for found, a, b in zip(joined, ([5, 6, 7], [5, 6]), (pooled(*rows([8, 9]))[0], empty), strict=True):
        a = pooled(*rows(a))[0]
        close(found, torch.cat([a, b, (a - b).abs()]))


def test_general_distillations_loss() -> None:
    rng = np.random.default_rng(0)
    s, t, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), np.array([0, 1, 2, 3, 0, 1])

    def KL(T: float) -> Any:
        p, q = log_softmax(t / T, 1), log_softmax(s / T, 1)
        return T**2 * (np.exp(p) * (p - q)).sum(1).mean()

    S, L, Y = torch.tensor(s, requires_grad=True), torch.tensor(t), torch.tensor(y)
    CE = -log_softmax(s, 1)[np.arange(6), y]
    masked = torch.where(torch.tensor([0, 1, 0, 0, 1, 0]) > 0, Y, -100)
    assert cmow.general_loss(S, L, masked, mean).item() == pytest.approx(5 * KL(2.0) + 2 * CE[[1, 4]].mean(), rel=1e-9)
    assert torch.autograd.gradcheck(lambda x: cmow.general_loss(x, L, masked, mean), (S,))
    assert cmow.general_loss(S, L, torch.full((6,), -100), mean).item() == pytest.approx(5 * KL(2.0))  # none masked


def test_general_distillation_in_parts_of_a_batch() -> None:
    """As the loop weighs them, the parts' losses and gradients add up to those of the batch, whatever is masked."""
    student, words = model(kind=cmow.MatrixEmbeddingForMaskedLM), torch.randn(31, 31, dtype=torch.float64)
    ids, mask = rows([1, 5, 6, 7, 2], [1, 8, 2], [1, 9, 9, 2], [1, 3, 2])
    labels = torch.where((torch.arange(5) == 1) & (torch.arange(4) < 3)[:, None], ids, -100)
    batch = {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}

    def gradients(count: int) -> list[torch.Tensor]:
        student.zero_grad()
        parts = split_batch(batch, list("abcd"), count, "masked LM", 0, Ledger(), torch.device("cpu"))
        total = torch.zeros((), dtype=torch.float64)
        for part in parts:
            S, T, y = student(**part.inputs), words[part.inputs["input_ids"]][part.mask], part.labels[part.mask]
            total = total + part.share * cmow.general_loss(S, T, y, part.mean_of_tokens, 0.5, 0.25)
        total.backward()
        return [total.detach(), *(p.grad for p in student.parameters() if p.grad is not None)]

    for found, expected in zip(gradients(3), gradients(1), strict=True):
        close(found, expected)


def test_first_embeddings_are_those_of_the_folder(tmp_path: Path, sst2: TaskData) -> None:
    made, net = model(kind=cmow.MatrixEmbeddingForMaskedLM), model(num_labels=3, seed=1)
    made.save_pretrained(tmp_path)
    cmow.load_embeddings(net.embeddings, tmp_path)
    close(net.embeddings.state_dict(), made.embeddings.state_dict(), rtol=0, atol=0)
    with pytest.raises(BadInput, match="--init"):
        cmow.load_embeddings(model("hybrid-3-9").embeddings, tmp_path)
    words = word_tokenizer()  # a folder of as many words, which are others
    BertTokenizer(vocab={word.upper(): i for word, i in words.get_vocab().items()}).save_pretrained(tmp_path)
    run: Any = SimpleNamespace(teacher=SimpleNamespace(tokenizer=words), task=sst2)
    run.settings = {"diffcat": False}
    refused(lambda: cmow.build_student(cmow.Args(), run, str(tmp_path)), "has other words")


def test_stsb_has_21_classes(glue: Path) -> None:
    task = load("stsb", str(glue))
    short = replace(task.splits["train"], labels=[0.0, 1.0, 1.05, 2.5, 4.97, 5.0])  # 2.5: between classes 7 and 8
    refused(lambda: cmow.stsb_classes(replace(task, task=replace(task.task, name="films"))), "is not STS-B")
    classes = cmow.stsb_classes(replace(task, splits=task.splits | {"train": short}))
    assert classes.splits["train"].labels == [0, 0, 0, 8, 20, 20]
    assert (classes.task.labels[0], classes.task.labels[20], len(classes.task.labels)) == ("1.0", "5.0", 21)
