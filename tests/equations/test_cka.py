"""cka.py's losses against independent references in float64: value, gradient, padding, parts of a batch, processes."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import bert_config, draw, in_two_processes, ran, stopped, tiny_bart, tiny_bert, word_tokenizer
from torch import Tensor, distributed, nn
from transformers import (
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from common import models, text
from common.teacher import Teacher
from common.train import Ledger, split_batch
from methods import cka

CPU, close = torch.device("cpu"), torch.testing.assert_close  # of float64: to 1e-7


def loss_of(S: Tensor, T: Tensor) -> Tensor:
    return cka.cka_loss(cka.covariances(S, T))


def by_kernels(S: Tensor, T: Tensor) -> float:
    """Section 2's definition of 1 - sqrt(CKA): kernels over all pairs of tokens, and the centring matrix."""
    centring = np.eye(len(S)) - 1 / len(S)
    K, L = (centring @ X.detach().numpy() @ X.detach().numpy().T @ centring for X in (S, T))
    return 1 - float(np.sqrt(np.sum(K * L) / np.sqrt(np.sum(K * K) * np.sum(L * L))))


@pytest.mark.parametrize("n", [3, 40])
def test_cka_is_the_definition(n: int) -> None:
    S, T = draw(2, n, 8).requires_grad_(), draw(2, n, 5, seed=1)
    assert loss_of(S, T).tolist() == pytest.approx([by_kernels(s, t) for s, t in zip(S, T, strict=True)], rel=1e-9)
    assert torch.autograd.gradcheck(lambda x: loss_of(x, T), (S,))
    constant = torch.ones(2, n, 8, requires_grad=True)  # in float32, as in training
    loss_of(constant, T.float()).sum().backward()
    assert loss_of(constant, T.float()).tolist() == [1, 1]
    assert torch.equal(constant.grad, torch.zeros_like(constant))  # type: ignore[arg-type]


# --- a whole step ------------------------------------------------------------------------------------------------


def bert(layers: int, seed: int) -> Any:
    return tiny_bert(layers, 16, seed, vocab=90, num_attention_heads=2).double().eval()


def rows_of(padding: int = 0) -> dict[str, Tensor]:
    mask = (torch.arange(7 + padding) < torch.tensor([3, 7, 5, 4, 6, 7, 3, 5])[:, None]).long()
    ids = F.pad(torch.arange(56).view(8, 7) * 37 % 85 + 5, (0, padding)) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])}


def step(case: Any, padding: int = 0) -> Any:
    """The loss of a batch, and the gradients of the student and of Lin's projections."""
    outputs, hidden, parts, history = case
    args, student, model = cka.Args(history=history, beta=0.7, alpha=0.3, temperature=3.0), bert(2, 0), bert(4, 1)
    objective = cka.Objective(args, outputs, hidden, student.config, model.config).double()
    teacher, value = Teacher("", model, None, ""), torch.zeros(())
    batches = split_batch(rows_of(padding), [""] * 8, parts, "classification", 0, Ledger(), CPU)
    for batch in batches:
        loss = batch.share * objective(student, teacher, batch)
        loss.backward()
        value = value + loss.detach()
    assert all(p.grad is None for p in model.parameters())
    return value, [p.grad for p in (*student.parameters(), *objective.projections.parameters())]


def reference(case: Any) -> Any:
    """The same by autograd through the whole batch at once, from the library's losses and covariances."""
    outputs, hidden, parts, history = case
    student, model, rows, terms = bert(2, 0), bert(4, 1), rows_of(), []
    lin = nn.ModuleList(nn.Linear(16, 16) for _ in range(2)).double() if hidden == "lin" else nn.ModuleList()
    labels, valid = rows.pop("labels"), rows["attention_mask"].bool()
    s, t = (m(**rows, output_hidden_states=True) for m in (student, model))
    CE = F.cross_entropy(s.logits, labels)
    KL, softened = (F.kl_div((s.logits / T).log_softmax(-1), (t.logits / T).log_softmax(-1).detach(), log_target=True,
                             reduction="batchmean") for T in (1, 3))  # fmt: skip
    loss = {"labels": CE, "teacher": KL, "both": CE + KL, "kd": 0.7 * CE + 0.3 * 9 * softened}[outputs]
    for i, l in ((1, 2), (2, 4)):
        S, T = s.hidden_states[i][valid], t.hidden_states[l][valid].detach()
        if hidden == "cka":  # eq. 4: each part has its own mean
            sizes = valid.sum(1).view(parts, -1).sum(1).tolist()
            C = [torch.cov(torch.cat(part, 1).T) for part in zip(T.split(sizes), S.split(sizes), strict=True)]
            if history == "detached":  # the last part's gradient stands for all
                C = [*(c.detach() for c in C[:-1]), C[-1].detach() + parts * (C[-1] - C[-1].detach())]
            C = sum(C)  # type: ignore[assignment]
            terms.append(1 - C[:16, 16:].norm() / (C[:16, :16].norm() * C[16:, 16:].norm()).sqrt())  # type: ignore
        elif hidden != "none":
            cosine = (1 - (F.normalize(S) * F.normalize(T)).sum(-1)).mean()
            terms.append(cosine if hidden == "cosine" else F.mse_loss(lin[i - 1](S) if hidden == "lin" else S, T))
    loss = loss + 0.7 * sum(terms) / 2
    loss.backward()
    return loss.detach(), [p.grad for p in (*student.parameters(), *lin.parameters())]


CASES = [("labels", "none", 4, "detached"), ("teacher", "none", 1, "detached"), ("kd", "none", 1, "detached")]
CASES += [("both", hidden, 1, "detached") for hidden in ("lin", "cosine", "mse", "cka")]
CASES += [("both", "cka", 4, history) for history in ("detached", "exact")]
CASES += [("both", "lin", 4, "detached"), ("both", "cosine", 4, "detached")]  # means over all tokens


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_is_the_sum_of_its_losses_whatever_the_padding(case: Any) -> None:
    close(step(case), reference(case))
    close(step(case, padding=4), reference(case))


@pytest.mark.parametrize("B", [2, 4, 8])
def test_a_detached_gradient_is_the_exact_one_on_average(B: int) -> None:
    """Over divisions of a batch at random, within 5%: their projection on the mean of eq. 4's exact gradients."""
    S, T, rng = draw(1, 256, 8), draw(1, 256, 8, seed=1), torch.Generator().manual_seed(0)
    T = T + S  # related
    detached, exact = torch.zeros_like(S), torch.zeros_like(S)
    for _ in range(200):
        order = torch.randperm(256, generator=rng).chunk(B)
        for history, total in (("detached", detached), ("exact", exact)):
            x = S.clone().requires_grad_()
            parts = [cka.covariances(x[:, some], T[:, some]) for some in order]
            sums = cka.Covariances()
            for part in parts:
                sums = sums.plus(cka.Covariances(*(C.detach() for C in part)))
            joined = cka.MinibatchCKA(sums if history == "exact" else None)
            rows = {"input_ids": torch.zeros(B, 1), "attention_mask": torch.ones(B, 1), "labels": torch.zeros(B)}
            batches = split_batch(rows, [""] * B, B, "classification", 0, Ledger(), CPU)
            sum(b.share * joined.add(part, b).sum() for part, b in zip(parts, batches, strict=True)).backward()
            total += x.grad
    assert float((detached * exact).sum() / exact.square().sum()) == pytest.approx(1, abs=0.05)


@pytest.mark.forks
def test_two_processes_are_one() -> None:
    def steps() -> list[Any]:
        found = [step(case) for case in CASES]
        for gradient in (g for _, gradients in found for g in gradients if g is not None):
            distributed.all_reduce(gradient)
        return found

    for found in in_two_processes(steps):
        close(found, [step(case) for case in CASES])


def test_both_sides_of_an_encoder_decoder_are_matched() -> None:
    student, model = tiny_bart(1, 8).double().eval(), tiny_bart(2, 16).double().eval()
    ids = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
    rows = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    rows["labels"] = torch.tensor([[11, 12, 13, 3], [14, 3, -100, -100]])
    s, t = (m(**rows, output_hidden_states=True) for m in (student, model))
    sides = {"encoder_hidden_states": ids > 0, "decoder_hidden_states": rows["labels"] >= 0}
    L_H = np.mean([by_kernels(s[name][1][valid], t[name][2][valid]) for name, valid in sides.items()])
    p, q = (out.logits[rows["labels"] >= 0].log_softmax(-1) for out in (s, t))
    L = (s.loss + F.kl_div(p, q, log_target=True, reduction="batchmean")).item() + L_H
    (batch,) = split_batch(rows, ["", ""], 1, "translation", 0, Ledger(), CPU)
    batch.inputs["decoder_input_ids"] = student.prepare_decoder_input_ids_from_labels(batch.labels)
    objective = cka.Objective(cka.Args(), "both", "cka", student.config, model.config)
    loss = objective(student, Teacher("", model, None, ""), batch)
    assert loss.item() == pytest.approx(L, rel=1e-9)
    objective = cka.Objective(cka.Args(), "both", "lin", student.config, model.config).double()
    sums = []
    for parts in (1, 2):  # of other shares of the source's tokens than of the target's
        batches = split_batch(rows, ["", ""], parts, "translation", 0, Ledger(), CPU)
        for batch in batches:
            batch.inputs["decoder_input_ids"] = student.prepare_decoder_input_ids_from_labels(batch.labels)
        sums.append(sum(b.share * objective(student, Teacher("", model, None, ""), b).item() for b in batches))
    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


def test_pretraining_starts_from_what_init_means(easy: list[str], tmp_path: Path) -> None:
    student = tmp_path / "student"
    models.save(BertForMaskedLM(bert_config(3, 32)), word_tokenizer(), student, "")
    argv = [*easy, "--variant", "woh", "--student", "2x32", "--budget", "128", "--out-dir", tmp_path / "runs", "--init"]
    for init in ("auto", f"{student}:2"):
        assert "saved: " in ran("cka", *argv, init)
    assert "the model has 3 layers" in stopped("cka", *argv, f"{student}:4")


def test_a_body_with_other_names_is_refused(easy: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = DistilBertForMaskedLM(DistilBertConfig(vocab_size=99, dim=16, hidden_dim=16, n_layers=1, n_heads=2))
    other.save_pretrained(tmp_path / "other")
    monkeypatch.setattr(text, "pretrain", lambda *_: SimpleNamespace(folder=tmp_path / "other"))
    monkeypatch.setattr(cka, "AutoModelForMaskedLM", DistilBertForMaskedLM)
    argv = [*easy, "--variant", "cka", "--student", "2x16", "--out-dir", tmp_path]
    assert "masked language model has no bert.embeddings" in stopped("cka", *argv)


def test_cls_alone_and_without_the_last_layer() -> None:
    args, student, model = cka.Args(tokens="cls", layer_map="3", alpha=0.0), bert(2, 0), bert(4, 1)
    (batch,) = split_batch(rows_of(), [""] * 8, 1, "classification", 0, Ledger(), CPU)
    s, t = (m(**batch.inputs, output_hidden_states=True) for m in (student, model))
    for hidden in ("mse", "cka"):
        objective = cka.Objective(args, "kd", hidden, student.config, model.config)  # type: ignore[arg-type]
        loss = objective(student, Teacher("", model, None, ""), batch)
        S, T = s.hidden_states[1][:, 0], t.hidden_states[3][:, 0]
        L_H = F.mse_loss(S, T) if hidden == "mse" else by_kernels(S, T)
        close(loss, F.cross_entropy(s.logits, batch.labels) + L_H)


def test_a_flan_t5_has_an_output_layer_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    sizes: Any = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 50}
    for own in (True, False):
        config = T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=not own, **sizes)
        student: Any = models.build(copy.deepcopy(config), "translation")
        student.save_pretrained(tmp_path)
        for model in (student, T5ForConditionalGeneration.from_pretrained(tmp_path)):
            assert torch.equal(model.lm_head.weight, model.shared.weight) != own
            assert torch.equal(model.lm_head.weight, student.lm_head.weight)
            assert torch.equal(model.encoder.embed_tokens.weight, model.decoder.embed_tokens.weight)


def test_layers_and_widths() -> None:
    assert [cka.layer_map(12, m) for m in (6, 8)] == [[2, 4, 6, 8, 10, 12], [2, 3, 5, 6, 8, 9, 11, 12]]
    assert cka.layer_map(12, 3, "1,4,12") == [1, 4, 12]
    assert cka.layer_map(12, 3, "4,8") == [4, 8]  # the last layer is left alone
    settings = cka.student_settings(cka.Args(student="12x512"), BertConfig())
    assert settings == {"ffn": 3072, "initializer_range": pytest.approx(0.02 * 1.5**0.5)}
    # of a teacher as wide as the student the width is no one's in the paper
    assert cka.student_settings(cka.Args(student="6x768"), BartConfig(d_model=768))["ffn"] is None
    started = cka.Args(student="6x768", init="facebook/bart-base")  # as wide inside as its checkpoint
    assert cka.student_settings(started, BartConfig(d_model=1024))["ffn"] is None
