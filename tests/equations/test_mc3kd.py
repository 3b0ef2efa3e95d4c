"""MC3KD's equations in float64, each against a reference written from the paper; whole steps of every variant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import FAMILIES, tiny_bert
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from common import models
from common.layers.memory import Memory
from common.teacher import Teacher
from common.train import Batch, Ledger, split_batch
from methods import mc3kd
from methods.mc3kd import RIDGE, VARIANTS, Args, ccc, partners, step_loss, svcca_of_batches

SHAPES = [(30, 5, 5), (30, 4, 7), (30, 7, 4), (6, 9, 9), (6, 8, 10), (8, 5, 12), (8, 12, 5), (2, 3, 4)]  # n, D_S, D_T


def related(n: int, d_s: int, d_t: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two matrices that share a part, neither centred nor of one scale."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 3))
    s = common @ rng.standard_normal((3, d_s)) + 0.5 * rng.standard_normal((n, d_s)) + 2
    t = common @ rng.standard_normal((3, d_t)) + 0.5 * rng.standard_normal((n, d_t)) - 1
    return torch.tensor(s), torch.tensor(3 * t)


def paper_ccc(s: np.ndarray, t: np.ndarray, ridge: float, shrinkage: float | None = None) -> float:
    """Eqs. 4-6 with the paper's symmetric roots, by eigenvalues, on the full D x D side."""
    s, t, n = s - s.mean(0), t - t.mean(0), len(s)

    def inverse_root(x: np.ndarray) -> np.ndarray:
        r = ridge if shrinkage is None else shrinkage * x.shape[1] / n * x.var(0, ddof=1).mean()
        values, axes = np.linalg.eigh(x.T @ x / (n - 1) + r * np.eye(x.shape[1]))
        return (axes / np.sqrt(values)) @ axes.T

    W = inverse_root(t) @ (t.T @ s / (n - 1)) @ inverse_root(s)
    return float(np.linalg.svd(W, compute_uv=False).sum())


def reference_ccc(S: Tensor, T: Tensor, ridge: float, shrinkage: float | None = None) -> Tensor:
    """Eqs. 4-6 in float64, by inverses; its gradient is autograd's, but for directions of no variance, where W has no
    rank and the sum of its singular values no gradient: these are cut off."""
    n, (S, T) = len(S), ((x - x.mean(0)).double() for x in (S, T))
    roots = []
    for x in (S, T):
        r = ridge if shrinkage is None else shrinkage / n * torch.cov(x.T).trace()
        roots.append(torch.linalg.inv(torch.linalg.cholesky(x.T @ x / (n - 1) + r * torch.eye(x.shape[1]).to(x))))
    W = roots[1] @ (T.T @ S / (n - 1)) @ roots[0].T
    U, values, Vh = torch.linalg.svd(W.detach(), full_matrices=False)
    kept = values > 1e-9
    return ((U[:, kept].T @ W) * Vh[kept]).sum()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("ridge", "shrinkage"), [(1e-3, None), (0.1, None), (1e-3, 0.7)])
def test_the_correlation_is_the_papers(shape: tuple[int, int, int], ridge: float, shrinkage: float | None) -> None:
    """Value and gradient; no gradient reaches the teacher; in float32 with fewer tokens than dimensions as well."""
    s, t = related(*shape)
    ours, theirs = s.clone().requires_grad_(), s.clone().requires_grad_()
    value = ccc(ours, t.requires_grad_(), ridge, shrinkage)
    expected = reference_ccc(theirs, t.detach(), ridge, shrinkage)
    assert value.item() == pytest.approx(expected.item(), rel=1e-8)
    assert expected.item() == pytest.approx(paper_ccc(s.numpy(), t.detach().numpy(), ridge, shrinkage), rel=1e-8)
    (-2.5 * value).backward()
    (-2.5 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-12 + 1e-7 * float(theirs.grad.abs().max()))
    assert t.grad is None
    single = s.float().requires_grad_()
    found = ccc(single, t.detach().float(), ridge, shrinkage)
    assert found.item() == pytest.approx(value.item(), rel=1e-3)
    (-2.5 * found).backward()
    assert (single.grad - theirs.grad).norm() < 1e-2 * theirs.grad.norm() + 1e-5


@pytest.mark.parametrize(("n", "D_S", "D_T"), [(385, 128, 128), (385, 64, 128), (300, 128, 64), (60, 128, 128)])
@pytest.mark.parametrize("spread", ["even", "outlier", "rank 20"])
def test_layers_as_they_are(n: int, D_S: int, D_T: int, spread: str) -> None:
    """In float32: vectors behind a layer norm, which lie on a hyperplane; batches of low rank; and as GPT-2's inner
    layers have, without a norm, a direction with a variance of 1e6. A student's weights get float64's gradient to 1 in
    300."""
    rng = torch.Generator().manual_seed(n + D_S)
    shared = torch.randn(n, 16, generator=rng)

    def layer(D: int) -> Tensor:
        x = shared @ torch.randn(16, D, generator=rng) + 2 * torch.randn(n, D, generator=rng)
        return x if spread != "rank 20" else x[:, :20] @ torch.randn(20, D, generator=rng)

    before, teacher = layer(D_S), torch.nn.functional.layer_norm(layer(D_T), (D_T,))
    scale, shift = torch.rand(D_S, generator=rng) + 0.5, torch.randn(D_S, generator=rng)
    far = 1e3 * torch.randn(n, 1, generator=rng) * torch.nn.functional.normalize(torch.randn(D_S, generator=rng), dim=0)

    def gradients(dtype: torch.dtype, loss: Any) -> list[Tensor]:
        inputs = [x.to(dtype).detach().requires_grad_() for x in (before, scale, shift)]
        if spread == "outlier":
            S = inputs[0] * inputs[1] + inputs[2] + far.to(dtype)
        else:
            S = torch.nn.functional.layer_norm(inputs[0], (D_S,), *inputs[1:])
        loss(S, teacher.to(dtype), 1e-3).backward()
        return [x.grad for x in inputs[:2]]  # of the shift it is 0

    for ours, exact in zip(gradients(torch.float32, ccc), gradients(torch.float64, reference_ccc), strict=True):
        assert (ours - exact).norm() < exact.norm() / 300


def test_a_batch_is_judged_with_those_before() -> None:
    """Value and gradient: of eq. 5's sums, those of earlier batches count `kept` times for each batch since."""
    batches = [related(n, 6, 9, seed=n) for n in (5, 7, 4)]
    memory = Memory(0.8, 6, 9).double()
    for s, t in batches[:-1]:
        ccc(s, t, 1e-2, memory=memory)
    s, t = batches[-1]
    ours, theirs = s.clone().requires_grad_(), s.clone().requires_grad_()
    value = ccc(ours, t, 1e-2, memory=memory)
    joined = [[x - x.mean(0) for x in pair] for pair in [*batches[:-1], (theirs, t)]]
    weights = [0.64, 0.8, 1.0]
    ts, tt, ss = (
        sum(w * pair[i].T @ pair[j] for w, pair in zip(weights, joined, strict=True))
        for i, j in ((1, 0), (1, 1), (0, 0))
    )
    count = sum(w * len(pair[0]) for w, pair in zip(weights, batches, strict=True))
    L_s, L_t = (torch.linalg.cholesky(x + (count - 1) * 1e-2 * torch.eye(len(x)).to(x)) for x in (ss, tt))
    expected = torch.linalg.matrix_norm(torch.linalg.inv(L_t) @ ts @ torch.linalg.inv(L_s).T, "nuc")
    assert value.item() == pytest.approx(expected.item(), rel=1e-8)
    value.backward()
    expected.backward()
    # the batch's own vectors alone have a gradient, which stands for that of all that count
    torch.testing.assert_close(ours.grad, theirs.grad * count / len(s), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.99])
def test_a_memory_leaves_the_weight_of_the_loss(kept: float) -> None:
    """Of one stream of batches, each of which tells its covariances, the gradient with a memory is that without."""
    s, t = related(400, 5, 7)
    memory = Memory(kept, 5, 7).double()
    for _ in range(2000):  # until what is kept no longer grows
        ccc(s, t, 1e-3, memory=memory)
    alone, joined = s.clone().requires_grad_(), s.clone().requires_grad_()
    ccc(alone, t, 1e-3).backward()
    ccc(joined, t, 1e-3, memory=memory).backward()
    assert float((joined.grad * alone.grad).sum() / alone.grad.square().sum()) == pytest.approx(1, abs=0.01)


def test_of_few_vectors_a_line_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    mc3kd.warn_once.cache_clear()  # other tests were warned too
    few = related(129, 128, 128)  # centred, they span 128 dimensions
    ccc(*few, 1e-9, shrinkage=1.0)
    ccc(*related(130, 128, 128), 1e-9)
    assert not capsys.readouterr().err
    for _ in range(2):
        assert ccc(*few, 1e-9).item() == pytest.approx(128, rel=1e-4)
    assert capsys.readouterr().err.count("fewer than 130 vectors of 128 dimensions") == 1


def test_what_is_constant_has_no_correlation() -> None:
    for student in (torch.full((10, 4), 3.0), torch.randn(1, 4)):
        student.requires_grad_()
        value = ccc(student, torch.randn(len(student), 6), 1e-3)
        value.backward()
        assert value.item() == pytest.approx(0, abs=1e-5)
        assert student.grad.isfinite().all()


def test_few_vectors_teach_a_student_only_when_they_are_shrunk_or_joined() -> None:
    """A linear student reads 32 inputs, its teacher half of them. Batches of 8 vectors, of width 16: how much closer it
    comes on fresh vectors, by the paper's ridge, shrunk, and with the batches before."""

    def gain(shrinkage: float | None = None, kept: float = 0.0) -> float:
        memory = Memory(kept, 16, 16).double() if kept else None
        rng = torch.Generator().manual_seed(0)
        width = torch.randperm(32, generator=rng).double().add(1) ** -0.5
        read = torch.randn(16, 16, generator=rng).double()
        W = (torch.randn(32, 16, generator=rng).double() / 32**0.5).requires_grad_()
        optimizer, first = torch.optim.Adam([W], lr=0.01), W.detach().clone()
        for _ in range(100):
            x = torch.randn(8, 32, generator=rng).double() * width
            optimizer.zero_grad()
            (-ccc(x @ W, x[:, :16] @ read, 1e-3, shrinkage, memory)).backward()
            optimizer.step()
        x = torch.randn(4000, 32, generator=torch.Generator().manual_seed(1)).double() * width
        before, after = (ccc(x @ w, x[:, :16] @ read, 1e-9).item() / 16 for w in (first, W.detach()))
        return after - before

    assert gain() < 0.02 < gain(1.0) < gain(kept=0.9)


def test_states_that_are_not_finite() -> None:
    x, _ = related(6, 3, 3)
    assert ccc(x.index_fill(0, torch.tensor([2]), float("nan")), x, 1e-3).isnan()  # the loop says at which batch


def test_each_hidden_loss_is_searched_over_its_own_weights() -> None:
    grids = {name: Args().grid(name).get("beta") for name in VARIANTS}
    pkd, mc3kds = (10, 100, 500, 1000), (0.1, 1, 10)
    assert grids == {"finetune": None, "kd": None, "pkd-skip": pkd, "pkd-last": pkd, "only-selection": pkd,
                     "only-mc3": mc3kds, "mc3kd": mc3kds}  # fmt: skip


# --- SVCCA and the layers that are chosen --------------------------------------------------------------------


def svcca(x: Tensor, y: Tensor) -> float:
    """SVD of each centred side, 99% of the variance, CCA between the subspaces by QR."""

    def basis(a: np.ndarray) -> np.ndarray:
        u, d, _ = np.linalg.svd(a - a.mean(0), full_matrices=False)
        k = int(np.searchsorted(np.cumsum(d**2) / (d**2).sum(), 0.99)) + 1
        return np.linalg.qr(u[:, :k] * d[:k])[0]

    return float(np.linalg.svd(basis(x.numpy()).T @ basis(y.numpy()), compute_uv=False).mean())


def streamed(x: Tensor, y: Tensor, *cuts: int) -> float:
    parts = zip((0, *cuts), (*cuts, len(x)), strict=True)
    return svcca_of_batches(({0: x[first:last], 1: y[first:last]} for first, last in parts), [(0, 1)])[0]


@pytest.mark.parametrize(("d_x", "d_y"), [(6, 6), (5, 9), (9, 5)])
def test_svcca_of_a_stream_is_that_of_everything(d_x: int, d_y: int) -> None:
    x, y = related(200, d_x, d_y, seed=5)
    assert streamed(x, y) == pytest.approx(svcca(x, y), rel=1e-9)
    assert streamed(x, y, 1, 40, 41, 160) == pytest.approx(svcca(x, y), rel=1e-9)
    assert streamed(x, x, 30) == pytest.approx(1)
    assert streamed(x, torch.ones_like(y), 30) == 0
    noise = [torch.cat([x[:, :2], 1e-3 * z], 1) for z in related(200, 3, 3, 6)]  # the cut leaves it out
    assert streamed(*noise) == pytest.approx(svcca(*noise), rel=1e-9)


def test_the_layers_that_differ_most_are_chosen_in_order() -> None:
    sequence = np.random.default_rng(0).random(12).tolist()
    for m in (1, 2, 5, 12):
        assert mc3kd.select_layers(sequence, m) == sorted(np.argsort(sequence)[:m] + 1)
    assert mc3kd.select_layers([0.9, 0.1, 0.5, 0.5, 0.1, 0.9], 3) == [2, 3, 5]  # of equals the lower one


@pytest.mark.parametrize(
    ("name", "N", "m", "published"),  # PKD counts from 0 without the embeddings, `hidden_states` from 1
    [("pkd-skip", 12, 6, [1, 3, 5, 7, 9]), ("pkd-last", 12, 6, [6, 7, 8, 9, 10]), ("pkd-skip", 12, 3, [3, 7]),
     ("pkd-skip", 24, 6, [3, 7, 11, 15, 19]), ("pkd-last", 24, 6, [18, 19, 20, 21, 22]),
     ("only-mc3", 12, 3, [3, 7, 11]), ("kd", 12, 6, [])],
)  # fmt: skip
def test_partners(name: str, N: int, m: int, published: list[int]) -> None:
    assert [l - 1 for l in partners(VARIANTS[name], [0.0] * N, m)] == published


# --- eq. 8 on models -----------------------------------------------------------------------------------------

SEQUENCE = [0.9, 0.2, 0.8, 0.1, 0.7, 0.3]
ALL = {"pkd-skip": [2, 4, 6], "pkd-last": [4, 5, 6], "only-selection": [2, 4, 6], "only-mc3": [2, 4, 6],
       "mc3kd": [2, 4, 6]}  # fmt: skip
OUT = {name: layers[:-1] for name, layers in ALL.items()}
PARTNERS = {"in": ALL, "out": OUT, None: {name: (ALL if "mc3" in name else OUT)[name] for name in ALL}}  # by --last


def batch_of(scores: bool = False, padding: int = 0, types: bool = True) -> Batch:
    """Four texts of different length, padded by `padding` more tokens than needed."""
    mask = (torch.arange(9 + padding) < torch.tensor([9, 7, 5, 4])[:, None]).long()
    ids = torch.nn.functional.pad(torch.arange(36).view(4, 9) * 11 % 26 + 5, (0, padding)) * mask
    labels = torch.tensor([0.5, 3.0, 4.5, 1.0], dtype=torch.float64) if scores else torch.tensor([0, 1, 1, 0])
    rows = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    rows |= {"token_type_ids": torch.zeros_like(ids)} if types else {}
    kind = "regression" if scores else "classification"
    return split_batch(rows, list("abcd"), 1, kind, 0, Ledger(), torch.device("cpu"))[0]


def pair(scores: bool = False) -> tuple[Any, Teacher]:
    """Both in float64; the teacher's weights are left trainable, so that only the loss keeps gradient from them."""
    outputs = {"num_labels": 1 if scores else 2}
    student, teacher = tiny_bert(3, 16, seed=1, **outputs), tiny_bert(6, 16, seed=2, **outputs)
    return student.double().eval(), Teacher("", teacher.double().eval(), None, "")


def by_hand(name: str, args: Args, student: Any, teacher: Any, batch: Batch) -> float:
    """Eq. 8 from its parts, in numpy."""
    with torch.no_grad():
        s, t = (m(**batch.inputs, output_hidden_states=True) for m in (student, teacher))
    y, T, z_s, z_t = batch.labels.numpy(), args.temperature or 2.0, s.logits.numpy(), t.logits.numpy()
    if z_s.shape[1] == 1:
        hard, soft = (z_s[:, 0] - y) ** 2, (z_s - z_t)[:, 0] ** 2
    else:
        p, q, hot = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (z_t / T, z_s / T, z_s))
        hard, soft = -np.log(hot[range(4), y]), T**2 * (p * np.log(p / q)).sum(1)
    if name == "finetune":
        return float(hard.mean())
    hidden, layers = 0.0, PARTNERS[args.last].get(name, [])
    for i, l in enumerate(layers, start=1):
        all_tokens = (args.tokens or ("all" if "mc3" in name else "cls")) == "all"
        both = [
            x[batch.mask].numpy() if all_tokens else x[:, 0].numpy() for x in (s.hidden_states[i], t.hidden_states[l])
        ]
        if "mc3" in name:
            hidden -= paper_ccc(*both, RIDGE, args.shrinkage) / 16
        else:
            u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in both)
            hidden += ((u - v) ** 2).mean() / len(layers)
    beta = args.beta if args.beta is not None else 1 if "mc3" in name else 100
    return float((args.alpha * soft + (1 - args.alpha) * hard).mean() + beta * hidden)


OTHERWISE = (
    {"beta": 3.0, "tokens": "cls", "last": "out"},
    {"tokens": "all", "last": "in", "shrinkage": 0.5},
)
CASES: list[Any] = [(name, {}, False) for name in VARIANTS]
CASES += [(name, {}, True) for name in ("finetune", "kd", "mc3kd")]
CASES += [(name, given, False) for name in ("pkd-skip", "pkd-last", "mc3kd") for given in OTHERWISE]


@pytest.mark.parametrize(("name", "given", "scores"), CASES, ids=str)
def test_a_step_is_equation_8(name: str, given: dict[str, Any], scores: bool) -> None:
    """Its value, with any padding; gradient to all of the student, and none to the teacher."""
    (student, teacher), args = pair(scores), Args(alpha=0.3, temperature=3.0, **given)
    layers = partners(args.row(name), SEQUENCE, 3)
    assert layers == PARTNERS[args.last].get(name, [])
    wanted = by_hand(name, args, student, teacher.model, batch_of(scores))
    given = args.row(name), student, teacher if name != "finetune" else None
    loss = step_loss(args, *given, batch_of(scores), layers)
    assert loss.item() == pytest.approx(wanted, rel=1e-7)
    padded = step_loss(args, *given, batch_of(scores, padding=11), layers)
    assert padded.item() == pytest.approx(wanted, rel=1e-7)
    loss.backward()
    for key, parameter in student.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0 or "key.bias" in key, key  # softmax ignores a bias of the keys
    assert all(p.grad is None for p in teacher.model.parameters())


@pytest.mark.parametrize("name", ALL)
def test_the_hidden_loss_reaches_up_to_its_layer_and_is_worth_lowering(name: str) -> None:
    (student, teacher), args, layers = pair(), Args(alpha=0.0, beta=50.0), partners(VARIANTS[name], SEQUENCE, 3)
    loss = step_loss(args, args.row(name), student, teacher, batch_of(), layers)
    (
        loss - step_loss(args, args.row("kd"), student, teacher, batch_of(), [])
    ).backward()  # what remains is the hidden loss
    reached = [any(p.grad.abs().max() > 1e-12 for p in layer.parameters()) for layer in student.bert.encoder.layer]
    assert reached == [i < len(layers) for i in range(3)]
    values = []
    for _ in range(2):
        whole, kd = (by_hand(one, args, student, teacher.model, batch_of()) for one in (name, "kd"))
        values.append(whole - kd)
        with torch.no_grad():
            for parameter in (p for p in student.parameters() if p.grad is not None):
                parameter -= 1e-5 * parameter.grad
    assert values[1] < values[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_guided_layer_by_layer(family: str) -> None:
    """A student half as wide by MC3KD, one of equal width by PKD."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, vocab_size=99, **FAMILIES[family])
    teacher = Teacher("", AutoModelForSequenceClassification.from_config(config).eval(), None, "")
    for name, width in (("mc3kd", 16), ("pkd-skip", 32)):
        student = models.build(models.student_config(config, 3, width), "classification").eval()
        given = student, teacher, batch_of(types=family != "distilbert")
        loss = step_loss(Args(), Args().row(name), *given, partners(VARIANTS[name], SEQUENCE[:4], 3))
        (loss - step_loss(Args(), Args().row("kd"), *given, [])).backward()  # what remains is the hidden loss
        words = student.get_input_embeddings().weight.grad
        assert words.isfinite().all()
        assert words.abs().max() > 0


def test_where_cls_stands() -> None:
    hidden, mask = torch.arange(12.0).reshape(2, 3, 2), torch.tensor([[0, 1, 1], [1, 1, 0]])
    assert models.vectors(hidden, mask).tolist() == [[2, 3], [4, 5], [6, 7], [8, 9]]
    assert models.vectors(hidden, mask, "cls").tolist() == [[2, 3], [6, 7]]  # the first valid token
    assert models.vectors(hidden, mask, "cls", "xlnet").tolist() == [[4, 5], [8, 9]]  # the last one


def test_a_teacher_may_be_the_first_layers_of_a_model() -> None:
    cut, whole = (models.source(name) for name in ("pocket-6:2", "pocket-6"))
    two, six = (models.load_model(name, models.load_config(name), "classification") for name in (cut, whole))
    assert [len(model.bert.encoder.layer) for model in (two, six)] == [2, 6]
    weights = six.bert.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in two.bert.state_dict().items() if "pooler" not in key)
    assert models.model_name(cut) == f"{models.model_name(whole)}:2"
