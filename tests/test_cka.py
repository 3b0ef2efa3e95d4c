"""cka.py's equations against slow, independent references, gradients included; its sizes and layer maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from conftest import bert_config
from torch import nn
from transformers import BertForMaskedLM, BertForSequenceClassification

from common import models, train
from common.args import BadInput
from methods import cka
from methods.cka import Args, Covariances, Objective

M, N, D_S, D_T = 2, 40, 5, 8


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss(S: torch.Tensor, T: torch.Tensor) -> torch.Tensor:
    return cka.cka_loss(S[None], T[None])[0]


def slow_cka(S: np.ndarray, T: np.ndarray) -> float:
    """Section 2's definition by HSIC: kernels over all pairs of tokens and the centring matrix."""
    n = len(S)
    K, L = S @ S.T, T @ T.T
    centring = np.eye(n) - np.ones((n, n)) / n

    def hsic(A: np.ndarray, B: np.ndarray) -> float:
        return float(np.trace(A @ centring @ B @ centring)) / (n - 1) ** 2

    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


# --- eqs. 1-3 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 6, 200])  # Gram side twice, covariance side
def test_the_loss_is_the_definition(n: int) -> None:
    S, T = draw(M, n, D_S), draw(M, n, D_T, seed=1)
    T[..., :D_S] += S  # something in common
    found = cka.cka_loss(S, T)
    wanted = [1 - np.sqrt(slow_cka(s, t)) for s, t in zip(S.numpy(), T.numpy(), strict=True)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-10)
    assert ((found >= 0) & (found <= 1)).all()


def test_both_sides_agree_and_the_cheaper_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same value and gradient; Gram matrices for few tokens, covariances for many."""
    for n in (4, 50):
        gradients = []
        for side in ("gram", "covariance"):
            S, T = draw(M, n, D_S).requires_grad_(), draw(M, n, D_T, seed=1)
            rho = cka.root_cka_of_grams(S, T) if side == "gram" else cka.root_cka(cka.covariances(S, T))
            rho.sum().backward()
            gradients.append((rho.detach(), S.grad))
        torch.testing.assert_close(gradients[0], gradients[1])
    used = []
    monkeypatch.setattr(cka, "root_cka_of_grams", lambda S, T: used.append(S.shape[-2]) or S.sum((-2, -1)))
    for n in (4, 50):
        cka.cka_loss(draw(M, n, D_S), draw(M, n, D_T))
    assert used == [4]


def test_the_gradient_by_finite_differences() -> None:
    for n in (4, 30):
        S, T = draw(M, n, D_S).requires_grad_(), draw(M, n, D_T, seed=1)
        assert torch.autograd.gradcheck(lambda x, T=T: cka.cka_loss(x, T), (S,))


@pytest.mark.parametrize("n", [4, 60])
def test_invariances(n: int) -> None:
    """Rotations, scales and shifts of either side change nothing; another linear map does."""
    S, T = draw(n, D_S), draw(n, D_T, seed=1)
    rotation = torch.linalg.qr(draw(D_S, D_S, seed=2)).Q
    other = torch.linalg.qr(draw(D_T, D_T, seed=3)).Q
    expected = loss(S, T)
    torch.testing.assert_close(loss(3 * S @ rotation + 7, T), expected)
    torch.testing.assert_close(loss(S, 0.01 * T @ other - 5), expected)
    assert abs(loss(S @ draw(D_S, D_S, seed=4), T) - expected) > 1e-3


def test_zero_for_states_equal_up_to_rotation_and_scale_and_one_for_unrelated_ones() -> None:
    S = draw(50, D_S)
    wide = torch.linalg.qr(draw(D_T, D_T, seed=2)).Q[:D_S]  # rows are orthonormal: another width, the same geometry
    assert float(loss(S, 2 * S @ wide + 1)) == pytest.approx(0, abs=1e-9)
    first, second = torch.eye(4, dtype=torch.float64)[:, :1], torch.eye(4, dtype=torch.float64)[:, 1:2]
    apart = torch.stack([torch.tensor([1.0, -1, 1, -1]), torch.tensor([1.0, 1, -1, -1])]).double()
    assert float(loss(apart[0][:, None], apart[1][:, None])) == pytest.approx(1, abs=1e-9)
    assert 0 < float(loss(first, second)) < 1


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_states_that_do_not_vary_give_no_nan(n: int) -> None:
    """Nothing correlates with a constant: the loss is 1 and its gradient 0."""
    S, T = torch.ones(M, n, D_S, requires_grad=True), draw(M, n, D_T).float()
    found = cka.cka_loss(S, T)
    found.sum().backward()
    assert found.tolist() == [1, 1]
    assert S.grad is not None
    assert S.grad.abs().max() == 0


def test_half_precision_is_computed_in_single() -> None:
    S, T = draw(M, 300, D_S), draw(M, 300, D_T, seed=1)
    found = cka.cka_loss((100 * S).bfloat16(), T.bfloat16())
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(cka.cka_loss(S, T).tolist(), abs=0.01)


# --- eq. 4 -----------------------------------------------------------------------------------------------------


def test_minibatches_sum_covariances_before_norms() -> None:
    """Eq. 4 against NumPy: each minibatch centred by its own mean, covariances summed, then the norms."""
    S, T = draw(3, M, 12, D_S), draw(3, M, 12, D_T, seed=1)
    sums: Covariances | None = None
    for s, t in zip(S[:-1], T[:-1], strict=True):
        sums = cka.covariances(s, t).plus(sums)
    found = cka.cka_loss(S[-1], T[-1], sums)
    for pair in range(M):
        total: dict[str, Any] = {"TS": 0, "TT": 0, "SS": 0}
        for b in range(3):
            s, t = (x[b, pair].numpy() - x[b, pair].numpy().mean(0) for x in (S, T))
            for name, (x, y) in {"TS": (t, s), "TT": (t, t), "SS": (s, s)}.items():
                total[name] = total[name] + x.T @ y / 11
        norm = {name: np.linalg.norm(value) for name, value in total.items()}
        assert float(found[pair]) == pytest.approx(1 - norm["TS"] / np.sqrt(norm["TT"] * norm["SS"]), abs=1e-10)


def test_one_minibatch_is_the_full_batch() -> None:
    S, T = draw(M, 40, D_S), draw(M, 40, D_T, seed=1)
    zero = Covariances(*(torch.zeros_like(x) for x in cka.covariances(S, T)))
    torch.testing.assert_close(cka.cka_loss(S, T, zero), cka.cka_loss(S, T))


def test_gradients_with_respect_to_the_covariances() -> None:
    """The closed form against autograd."""
    sums = Covariances(*(x.clone().requires_grad_() for x in cka.covariances(draw(M, 30, D_S), draw(M, 30, D_T))))
    (1 - cka.root_cka(sums)).sum().backward()
    TS, SS = cka.cka_gradients(Covariances(*(x.detach() for x in sums)))
    torch.testing.assert_close(TS, sums.TS.grad)
    torch.testing.assert_close(SS, sums.SS.grad)


# --- a whole step ----------------------------------------------------------------------------------------------


def bert(layers: int, width: int, seed: int, make: Any = BertForSequenceClassification, **changes: Any) -> Any:
    torch.manual_seed(seed)
    return make(bert_config(layers, width, initializer_range=0.3, **changes))


def batch_of(rows: int = 8, length: int = 7, padding: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(length) < torch.randint(3, length + 1, (rows, 1), generator=generator)).long()
    ids = torch.randint(5, 31, (rows, length), generator=generator) * mask
    inputs = {k: F.pad(v, (0, padding)) for k, v in {"input_ids": ids, "attention_mask": mask}.items()}
    return inputs | {"labels": torch.randint(0, 2, (rows,), generator=generator)}


def gradient_of(args: Args, hidden: Any, student: Any, teacher: Any, batch: dict[str, torch.Tensor]) -> Any:
    """The loss and the gradients of the student (and the projections) after `accumulate`."""
    torch.manual_seed(0)
    objective = cka.make_objective(args, hidden, True, True, student, teacher)
    student.zero_grad()
    torch.manual_seed(1)  # of dropout
    value = cka.accumulate(args, objective, student, teacher, batch, Accelerator(cpu=True))
    weights = [*student.parameters(), *objective.projections.parameters()]
    return value, [p.grad.clone() for p in weights if p.grad is not None]


def whole_loss(student: Any, teacher: Any, batch: dict[str, torch.Tensor], parts: int) -> torch.Tensor:
    """CE + KL + eq. 3's loss with eq. 4's sums, written out for the whole batch with autograd."""
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    sums = None
    logits, soft = [], []
    for chunk in zip(*(v.chunk(parts) for v in inputs.values()), strict=True):
        part = dict(zip(inputs, chunk, strict=True))
        s, t = student(**part, output_hidden_states=True), teacher(**part, output_hidden_states=True)
        mask = part["attention_mask"].bool()
        S = torch.stack([h[mask] for h in s.hidden_states[1:]])
        T = torch.stack([t.hidden_states[l][mask] for l in (2, 4)])
        sums = cka.covariances(S, T).plus(sums)
        logits.append(s.logits)
        soft.append(t.logits)
    x, y = torch.cat(logits), torch.cat(soft)
    kl = (y.softmax(-1) * (y.log_softmax(-1) - x.log_softmax(-1))).sum(-1).mean()
    norms = [torch.linalg.matrix_norm(c) for c in sums]  # type: ignore[union-attr]
    rho = norms[0] / (norms[1] * norms[2]).sqrt()
    return F.cross_entropy(x, batch["labels"]) + kl + (1 - rho).mean()


@pytest.mark.parametrize("parts", [1, 4])
def test_the_exact_gradient_is_that_of_the_whole(parts: int) -> None:
    """Two passes over minibatches against autograd through all of them at once."""
    student, teacher = bert(2, 16, 0), bert(4, 32, 1).eval()
    args = Args(minibatches=parts, history="exact")
    student.eval()  # without dropout
    batch = batch_of()
    value, found = gradient_of(args, "cka", student, teacher, batch)
    assert all(p.grad is None for p in teacher.parameters())
    student.zero_grad()
    wanted = whole_loss(student, teacher, batch, parts)
    wanted.backward()
    torch.testing.assert_close(value, wanted.detach(), atol=1e-5, rtol=1e-5)
    own = [p.grad for p in student.parameters() if p.grad is not None]
    torch.testing.assert_close(found, own, atol=1e-5, rtol=1e-5)


def test_both_passes_draw_the_same_dropout() -> None:
    """With dropout, the two passes' loss is the one that a single pass with these draws has."""
    student, teacher = bert(2, 16, 0, hidden_dropout_prob=0.3).train(), bert(4, 32, 1).eval()
    batch = batch_of()
    value, found = gradient_of(Args(minibatches=4, history="exact"), "cka", student, teacher, batch)
    student.zero_grad()
    torch.manual_seed(1)
    wanted = whole_loss(student, teacher, batch, 4)
    wanted.backward()
    torch.testing.assert_close(value, wanted.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, [p.grad for p in student.parameters() if p.grad is not None], atol=1e-5, rtol=0)


def test_detached_history_has_the_value_of_the_whole() -> None:
    student, teacher = bert(2, 16, 0).eval(), bert(4, 32, 1).eval()
    batch = batch_of()
    (detached, first), (exact, second) = (
        gradient_of(Args(minibatches=4, history=h), "cka", student, teacher, batch)
        for h in ("detached", "exact")  # type: ignore[arg-type]
    )
    torch.testing.assert_close(detached, exact)
    assert any((a - b).abs().max() > 1e-4 for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("hidden", ["none", "lin", "cosine", "mse"])
def test_other_losses_do_not_depend_on_the_number_of_parts(hidden: str) -> None:
    student, teacher = bert(2, 32, 0).eval(), bert(4, 32, 1).eval()
    one, four = (gradient_of(Args(minibatches=b), hidden, student, teacher, batch_of()) for b in (1, 4))
    torch.testing.assert_close(one, four, atol=1e-6, rtol=1e-5)
    assert len(one[1]) == len([*student.parameters()]) + (4 if hidden == "lin" else 0)


@pytest.mark.parametrize("hidden", ["lin", "cosine", "mse", "cka"])
def test_padding_is_neutral(hidden: str) -> None:
    student, teacher = bert(2, 32, 0).eval(), bert(4, 32, 1).eval()
    short, padded = (gradient_of(Args(), hidden, student, teacher, batch_of(padding=p)) for p in (0, 5))
    torch.testing.assert_close(short, padded, atol=1e-5, rtol=1e-4)


def test_baselines_by_hand() -> None:
    S, T = draw(M, N, D_T), draw(M, N, D_T, seed=1)
    mse = [[np.mean((s - t) ** 2) for s, t in zip(S[k].numpy(), T[k].numpy(), strict=True)] for k in range(M)]
    torch.testing.assert_close(cka.hidden_loss("mse", S, T, ()), torch.tensor(mse).double().mean(1))
    cos = [
        np.mean(
            [1 - s @ t / np.linalg.norm(s) / np.linalg.norm(t) for s, t in zip(S[k].numpy(), T[k].numpy(), strict=True)]
        )
        for k in range(M)
    ]
    torch.testing.assert_close(cka.hidden_loss("cosine", S, T, ()), torch.tensor(cos).double())
    narrow = draw(M, N, D_S)
    lin = [nn.Linear(D_S, D_T).double() for _ in range(M)]
    wanted = [F.mse_loss(lin[k](narrow[k]), T[k]) for k in range(M)]
    torch.testing.assert_close(cka.hidden_loss("lin", narrow, T, lin), torch.stack(wanted))


def test_kl_is_scaled_by_the_square_of_the_temperature() -> None:
    x, y = draw(6, 3), draw(6, 3, seed=1)
    p, q = (np.exp(z.numpy() / 2) / np.exp(z.numpy() / 2).sum(1, keepdims=True) for z in (y, x))
    wanted = 4 * np.mean((p * np.log(p / q)).sum(1))
    assert float(cka.kd_loss(x, y, 2.0)) == pytest.approx(wanted)


def test_a_regression_has_squared_errors() -> None:
    student, teacher = (bert(2, 16, seed, num_labels=1).eval() for seed in (0, 1))
    batch = batch_of() | {"labels": torch.rand(8) * 5}
    value, _ = gradient_of(Args(), "none", student, teacher, batch)
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    x, y = student(**inputs).logits[:, 0], teacher(**inputs).logits[:, 0]
    torch.testing.assert_close(value, ((x - batch["labels"]) ** 2).mean() + ((x - y) ** 2).mean())


def test_without_a_teacher_it_is_not_asked() -> None:
    student = bert(2, 16, 0).eval()
    objective = Objective("none", True, False, [], nn.ModuleList())
    batch = batch_of()
    value = cka.accumulate(Args(), objective, student, None, batch, Accelerator(cpu=True))
    logits = student(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    torch.testing.assert_close(value, F.cross_entropy(logits, batch["labels"]).detach())


# --- students ----------------------------------------------------------------------------------------------------


def test_layer_maps() -> None:
    assert cka.layer_map(12, 12) == list(range(1, 13))
    assert cka.layer_map(12, 6) == [2, 4, 6, 8, 10, 12]
    assert cka.layer_map(12, 8) == [2, 3, 5, 6, 8, 9, 11, 12]  # skips every third, keeps the last
    assert cka.layer_map(12, 8, "1,2,4,5,7,8,10,11") == [1, 2, 4, 5, 7, 8, 10, 11]
    for given, m in (("1,2", 3), ("1,13", 2)):
        with pytest.raises(BadInput, match="--layer-map"):
            cka.layer_map(12, m, given)
    with pytest.raises(BadInput, match="--student"):
        cka.layer_map(4, 6)


def test_widths_that_a_loss_cannot_compare() -> None:
    with pytest.raises(BadInput, match=r"--variant mse.*--student 2x32"):
        cka.make_objective(Args(student="2x16"), "mse", True, True, bert(2, 16, 0), bert(4, 32, 1))


def test_published_sizes() -> None:
    """Tables 2, 3 and 6; one printed size that no model has is known."""
    assert cka.print_parameters(Args()) == 0
    exact = {("bart", "12x768"): 139_420_416, ("mbart", "12x384"): 121_647_744, ("bert", "12x512"): 66_577_920}
    for (family, shape), wanted in exact.items():
        assert cka.count_parameters(Args(), family, shape) == wanted
    assert cka.count_parameters(Args(ffn=2048), "bert", "12x512") != exact["bert", "12x512"]


def test_copied_layers() -> None:
    """distilBART's table for 12 layers, evenly spread ones otherwise; embeddings and heads come along."""
    assert [cka.copied_layers(12, m) for m in (1, 3, 6)] == [[0], [0, 6, 11], [0, 2, 4, 7, 9, 11]]
    assert cka.copied_layers(4, 2) == [0, 3]
    teacher, student = bert(4, 32, 1, BertForMaskedLM), bert(2, 32, 0, BertForMaskedLM)
    cka.copy_layers(student, teacher)
    for i, l in enumerate((0, 3)):
        own, theirs = student.bert.encoder.layer[i].state_dict(), teacher.bert.encoder.layer[l].state_dict()
        assert all(torch.equal(own[k], theirs[k]) for k in own)
    assert torch.equal(student.bert.embeddings.word_embeddings.weight, teacher.bert.embeddings.word_embeddings.weight)
    with pytest.raises(BadInput, match="--init copy"):
        cka.copy_layers(bert(2, 16, 0, BertForMaskedLM), teacher)


def test_heads_of_students() -> None:
    """BERT-base's head size of 64 where it divides; the paper's feed-forward widths."""
    base = cka.TEACHERS["bert"][0]()
    config = cka.student_config(Args(), base, "12x512")
    assert (config.num_attention_heads, config.intermediate_size) == (8, 3072)
    config = cka.student_config(Args(), base, "6x384")
    assert (config.num_attention_heads, config.intermediate_size) == (6, 1536)
    config = cka.student_config(Args(), cka.TEACHERS["mbart"][0](), "12x384")
    assert models.stack_depths(config) == [6, 6]
    assert (config.encoder_attention_heads, config.decoder_attention_heads, config.decoder_ffn_dim) == (6, 6, 1536)


def test_a_curve_takes_each_point_once() -> None:
    ledger = train.Ledger()
    schedule = train.Schedule(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1), ledger, 25, None)
    curve, taken = cka.Curve(), []
    for step in range(1, 26):
        ledger.steps = step
        if curve.due(schedule):
            curve.values[len(curve.found())] = float(step)
            taken.append(step)
    assert taken == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    assert curve.found() == taken
