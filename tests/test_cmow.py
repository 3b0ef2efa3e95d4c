"""CMOW's encoders, products, heads and losses, each against a slow reference or a property of the paper."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_bert, word_tokenizer
from torch import Tensor

from common import data
from common.args import BadInput
from methods import cmow
from methods.cmow import (
    Args,
    MatrixEmbeddingConfig,
    MatrixEmbeddingForMaskedLM,
    MatrixEmbeddingForSequenceClassification,
    count_parameters,
    encoder_shape,
    ordered_product,
    prefix_loop,
    prefix_products,
    product_loop,
)

LENGTHS = [1, 2, 3, 7, 16, 33]
STUDENTS = ["cbow-9", "cmow-3", "hybrid-3-9", "bidirectional-3-9"]


def matrices(L: int, s: int = 4, B: int = 3, spread: float = 0.3, dtype: torch.dtype = torch.float64) -> Tensor:
    """(B, L, s, s) near the identity, wider than the initialisation so that order matters."""
    torch.manual_seed(L)
    return (torch.eye(s) + spread * torch.randn(B, L, s, s)).to(dtype).requires_grad_()


def gradient(value: Tensor, wrt: Tensor) -> Tensor:
    weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(1)).to(value)
    return torch.autograd.grad((value * weights).sum(), wrt)[0]


def config(student: str = "bidirectional-3-9", **changes: Any) -> MatrixEmbeddingConfig:
    shape = encoder_shape(student)
    sizes: dict[str, Any] = {"matrix_size": shape.matrix, "vector_size": shape.vector, "vocab_size": 31}
    sizes |= {"bidirectional": shape.encoder == "bidirectional", "mlp_width": 8, "diffcat": False}
    sizes |= {"cls_token_id": 2, "sep_token_id": 3, "pad_token_id": 0, "initializer_range": 0.3}
    return MatrixEmbeddingConfig(**(sizes | changes))


def model(student: str = "bidirectional-3-9", **changes: Any) -> MatrixEmbeddingForSequenceClassification:
    torch.manual_seed(0)
    return MatrixEmbeddingForSequenceClassification(config(student, **changes)).eval()


def ids(*rows: list[int]) -> tuple[Tensor, Tensor]:
    """Rows padded on the right, and their mask."""
    L = max(map(len, rows))
    padded = torch.tensor([row + [0] * (L - len(row)) for row in rows])
    return padded, torch.tensor([[True] * len(row) + [False] * (L - len(row)) for row in rows])


# --- products ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("L", LENGTHS)
def test_the_tree_is_the_loop(L: int) -> None:
    M = matrices(L)
    torch.testing.assert_close(ordered_product(M), product_loop(M))
    torch.testing.assert_close(gradient(ordered_product(M), M), gradient(product_loop(M), M))


@pytest.mark.parametrize("leaf", [None, 1, 4])
@pytest.mark.parametrize("L", LENGTHS)
def test_the_scan_is_the_loop(L: int, leaf: int | None) -> None:
    M = matrices(L)
    torch.testing.assert_close(prefix_products(M, leaf), prefix_loop(M))
    torch.testing.assert_close(gradient(prefix_products(M, leaf), M), gradient(prefix_loop(M), M))


@pytest.mark.parametrize("leaf", [1, 100])
def test_single_precision_at_the_papers_size(leaf: int) -> None:
    """L = 128, 20 x 20, the paper's initialisation: 1e-5, gradients included."""
    M = matrices(128, 20, 4, 0.01, torch.float32)
    for fast, slow in (
        (ordered_product(M), product_loop(M)),
        (prefix_products(M, leaf), prefix_loop(M)),
    ):
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    # a gradient sums 128 prefixes: the tolerance is relative to its size
    for fast, slow in (
        (gradient(ordered_product(M), M), gradient(product_loop(M), M)),
        (gradient(prefix_products(M, leaf), M), gradient(prefix_loop(M), M)),
    ):
        assert (fast - slow).norm() / slow.norm() < 1e-5


@pytest.mark.parametrize("leaf", [1, 3, 100])
def test_prefix_gradcheck(leaf: int) -> None:
    assert torch.autograd.gradcheck(lambda x: prefix_products(x, leaf), (matrices(6, 2, 2),))


# --- encoders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("student", STUDENTS)
def test_pooled_is_the_definition(student: str) -> None:
    net = model(student).embeddings
    tokens, mask = ids([5, 6, 7, 8, 9])
    parts = []
    if "vectors" in net.tables:
        parts.append(sum(net.tables["vectors"].weight[i] for i in tokens[0]))
    for name, order in (("forward_matrices", tokens[0]), ("backward_matrices", tokens[0].flip(0))):
        if name in net.tables:
            P = torch.eye(3)
            for i in order:
                P = P @ (torch.eye(3) + net.tables[name].weight[i].view(3, 3))
            parts.append(P.flatten())
    expected = torch.cat(parts)[None]  # type: ignore[arg-type]
    assert expected.shape[1] == net.width
    torch.testing.assert_close(net.pooled(tokens, mask), expected, rtol=1e-5, atol=1e-5)


def test_cbow_is_blind_to_order_and_cmow_is_not() -> None:
    tokens, mask = ids([5, 6, 7, 8], [8, 6, 5, 7])
    for student in STUDENTS:
        one, other = model(student).embeddings.pooled(tokens, mask)
        assert torch.allclose(one, other, atol=1e-6) == student.startswith("cbow"), student
    # the hybrid's first d entries are the CBOW part
    one, other = model("hybrid-3-9").embeddings.pooled(tokens, mask)
    torch.testing.assert_close(one[:9], other[:9])


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize("head", ["linear", "mlp", "cnn", "bilstm"])
@pytest.mark.parametrize("diffcat", [False, True])
def test_padding_changes_nothing(student: str, head: str, diffcat: bool) -> None:
    net = model(student, head=head, diffcat=diffcat)
    tokens, mask = ids([2, 5, 6, 7, 3, 8, 9, 3], [2, 5, 3])
    alone = net(*ids([2, 5, 3])).logits
    junk = torch.where(mask, tokens, torch.randint(4, 31, tokens.shape))  # what stands under the mask is not read
    torch.testing.assert_close(net(tokens, mask).logits[[1]], alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net(junk, mask).logits, net(tokens, mask).logits, rtol=0, atol=0)
    left = F.pad(torch.tensor([[2, 5, 3]]), (5, 0)), F.pad(torch.ones(1, 3), (5, 0))
    torch.testing.assert_close(net(*left).logits, alone, rtol=1e-5, atol=1e-6)


def test_padding_is_the_exact_identity_and_zero() -> None:
    net = model().embeddings
    tokens, mask = ids([5, 6, 7, 8, 9])
    padded, wide = ids([5, 6, 7, 8, 9], list(range(4, 24)))
    matrix = slice(9, None)  # beyond the sum: products, to the last bit
    assert torch.equal(net.pooled(padded, wide)[0, matrix][:9], net.pooled(tokens, mask)[0, matrix][:9])
    empty = net.pooled(tokens, torch.zeros_like(mask))[0]
    assert torch.equal(empty, torch.cat([torch.zeros(9), torch.eye(3).flatten(), torch.eye(3).flatten()]))


def test_padding_gets_no_gradient() -> None:
    net = model()
    net(*ids([5, 6, 7, 8, 9], [5, 6])).logits.sum().backward()
    for table in net.embeddings.tables.values():
        grad = table.weight.grad
        assert (grad[0] == 0).all()
        assert (grad[5] != 0).any()


def test_first_weights() -> None:
    torch.manual_seed(0)
    net = MatrixEmbeddingForSequenceClassification(MatrixEmbeddingConfig(vocab_size=50, num_labels=2, diffcat=False))
    for table in net.embeddings.tables.values():
        assert table.weight.std().item() == pytest.approx(0.01, rel=0.05)
        assert table.weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert net.head[0].weight.std().item() == pytest.approx(0.01, rel=0.05)  # type: ignore[index, union-attr]
    assert (net.embeddings.width, net.embeddings.sequence_width) == (1200, 1600)


def test_embedding_dropout_leaves_identities() -> None:
    """What is dropped is what a token adds to the identity: everything dropped encodes the empty text."""
    net = model(embedding_dropout=0.999999).train().embeddings
    pooled = net.pooled(*ids([5, 6, 7]))[0]
    assert torch.equal(pooled, torch.cat([torch.zeros(9), torch.eye(3).flatten(), torch.eye(3).flatten()]))


# --- the masked-LM features --------------------------------------------------------------------------------


@pytest.mark.parametrize("student", STUDENTS)
def test_both_sides_by_a_double_loop(student: str) -> None:
    """Position i: tokens 1..i and tokens i..L, i in both; the suffix starts at i, not at L - 1 - i."""
    net = model(student).embeddings
    tokens, mask = ids([5, 6, 7, 8, 9, 10], [11, 12, 13])
    found = net.both_sides(tokens, mask)
    assert found.shape == (2, 6, 2 * net.side_width)
    forward = net.tables["forward_matrices"].weight if "forward_matrices" in net.tables else None
    backward = net.tables["backward_matrices"].weight if "backward_matrices" in net.tables else None
    for row, length in ((0, 6), (1, 3)):
        for i in range(length):
            parts = {}
            for side, span in (("prefix", range(i + 1)), ("suffix", range(i, length))):
                words = [int(tokens[row, k]) for k in span]
                if "vectors" in net.tables:
                    parts[side, "sum"] = sum(net.tables["vectors"].weight[w] for w in words)
                if forward is not None:
                    table = forward
                    if side == "suffix" and backward is not None:  # E'_L ... E'_i
                        table, words = backward, words[::-1]
                    P = torch.eye(3)
                    for w in words:
                        P = P @ (torch.eye(3) + table[w].view(3, 3))
                    parts[side, "product"] = P.flatten()
            expected = torch.cat(list(parts.values()))  # type: ignore[arg-type]
            torch.testing.assert_close(found[row, i], expected, rtol=1e-5, atol=1e-5)


def test_masked_lm_predicts_chosen_positions() -> None:
    torch.manual_seed(0)
    net = MatrixEmbeddingForMaskedLM(config()).eval()
    tokens, mask = ids([5, 6, 7, 8], [9, 10])
    everything = net(tokens, mask, mask)
    assert everything.shape == (6, 31)
    chosen = torch.zeros_like(mask)
    chosen[0, 2] = chosen[1, 0] = True
    torch.testing.assert_close(net(tokens, mask, chosen), everything[[2, 4]])
    assert net.output.in_features == 2 * (9 + 9)
    assert MatrixEmbeddingForMaskedLM(MatrixEmbeddingConfig(vocab_size=7)).output.in_features == 1600


# --- DiffCat -----------------------------------------------------------------------------------------------


def test_diffcat_encodes_the_texts_apart() -> None:
    net = model(diffcat=True)
    tokens, mask = ids([2, 5, 6, 7, 3, 8, 9, 3], [2, 10, 3, 11, 12, 13, 14, 15, 3])
    (found,) = net.encode(tokens, mask)
    for row, (a, b) in enumerate((([5, 6, 7], [8, 9]), ([10], [11, 12, 13, 14, 15]))):
        x, y = net.embeddings.pooled(*ids(a))[0], net.embeddings.pooled(*ids(b))[0]
        torch.testing.assert_close(found[row], torch.cat([x, y, (x - y).abs()]), rtol=1e-5, atol=1e-5)


def test_diffcat_of_a_single_sentence() -> None:
    """The second text is empty: the identity and the zero vector; the width stays 3 D."""
    net = model(diffcat=True)
    (found,) = net.encode(*ids([2, 5, 6, 7, 3]))
    a, b, distance = found[0].chunk(3)
    empty = torch.cat([torch.zeros(9), torch.eye(3).flatten(), torch.eye(3).flatten()])
    assert torch.equal(b, empty)
    torch.testing.assert_close(a, net.embeddings.pooled(*ids([5, 6, 7]))[0])
    torch.testing.assert_close(distance, (a - b).abs())


def test_one_sequence_keeps_its_separators() -> None:
    net = model()
    tokens, mask = ids([2, 5, 6, 3, 7, 3])
    torch.testing.assert_close(net.encode(tokens, mask)[0], net.embeddings.pooled(tokens, mask))


def test_the_lstm_reads_the_texts_side_by_side() -> None:
    net = model(diffcat=True, head="bilstm")
    states, lengths = net.sequences(*ids([2, 5, 6, 7, 3, 8, 3], [2, 9, 3, 10, 3]))
    assert lengths.tolist() == [3, 1]
    assert states.shape == (2, 3, 3 * net.embeddings.sequence_width)
    a, b, _ = states[0, 1].chunk(3)
    first = net.embeddings.sequence(*ids([6]))[0, 0]
    empty = net.embeddings.sequence(torch.tensor([[0]]), torch.tensor([[False]]))[0, 0]
    torch.testing.assert_close(a, first)
    assert torch.equal(b, empty)


# --- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "diffcat", "head", "C", "classifier"),
    [
        ("cmow", False, "linear", 2, 3138),
        ("cmow", False, "mlp", 2, 789_002),
        ("hybrid", False, "mlp", 2, 805_002),
        ("hybrid", False, "cnn", 2, 2958),
        ("bidirectional", True, "mlp", 2, 3_605_002),
        ("bidirectional", True, "cnn", 2, 11_764),
        ("cmow", False, "bilstm", 2, 924_730),  # the mislabelled row
        ("cmow", False, "bilstm", 21, 11_093_621),
        ("hybrid", False, "bilstm", 21, 5_930_517),
        ("bidirectional", True, "bilstm", 3, 414_816_003),  # the blank cell
    ],
)
def test_heads_have_the_papers_sizes(encoder: str, diffcat: bool, head: str, C: int, classifier: int) -> None:
    assert count_parameters(encoder, diffcat, head, C)[1] == classifier


def test_tables_vii_and_viii(capsys: pytest.CaptureFixture[str]) -> None:
    assert cmow.print_parameters() == 0
    out = capsys.readouterr().out
    assert "MISMATCH" not in out
    assert "168 cells, 0 mismatches" in out
    for words in ('"110,936,21" = 11,093,621', '"4,025,0421" = 40,250,421', "Mislabelled", "blank in the paper"):
        assert words in out


def test_a_wrong_count_is_a_mismatch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cmow, "PUBLISHED", cmow.PUBLISHED.replace("789,002", "789,003", 1))
    assert cmow.print_parameters() == 1
    assert "MISMATCH" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cmow.main(Args(params=True))


@pytest.mark.parametrize("head", ["linear", "mlp", "cnn", "bilstm"])
@pytest.mark.parametrize("diffcat", [False, True])
@pytest.mark.parametrize("student", STUDENTS)
def test_every_head_learns_from_every_encoder(student: str, head: str, diffcat: bool) -> None:
    net = model(student, head=head, diffcat=diffcat, num_labels=3).train()
    tokens, mask = ids([2, 5, 6, 7, 3, 8, 9, 3], [2, 10, 3, 11, 3])
    found = net(tokens, mask, labels=torch.tensor([0, 2]))
    assert found.logits.shape == (2, 3)
    found.loss.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    if head != "cnn":  # batch norm over two values is +-1 whatever they are
        assert all((table.weight.grad != 0).any() for table in net.embeddings.tables.values())  # type: ignore[union-attr]


@pytest.mark.parametrize("student", STUDENTS)
def test_saved_and_loaded(student: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    net = model(student, head="cnn", num_labels=3)
    net.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = ids([2, 5, 6, 7, 3, 8, 9, 3])
    assert torch.equal(again(*batch).logits, net(*batch).logits)


# --- losses ------------------------------------------------------------------------------------------------


def test_kd_loss_scale() -> None:
    """KL(teacher || student) by its definition, the mean over rows, times T^2."""
    s, t = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    for T in (1.0, 2.0, 5.0):
        p, q = (t / T).softmax(-1), (s / T).softmax(-1)
        torch.testing.assert_close(cmow.kd_loss(s, t, T), T**2 * (p * (p / q).log()).sum(-1).mean())
    assert cmow.kd_loss(t, t, 2.0).item() == pytest.approx(0, abs=1e-6)
    # T^2 keeps the gradient's scale: as T grows, C x the gradient is that of half the squared distance, per row
    s0, t0 = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(4, 3, dtype=torch.float64)
    grad = torch.autograd.grad(cmow.kd_loss(s0, t0, 1e4), s0)[0]
    centred = (s0 - s0.mean(-1, keepdim=True)) - (t0 - t0.mean(-1, keepdim=True))
    torch.testing.assert_close(grad, centred.detach() / 3 / 4, rtol=1e-3, atol=1e-6)


def test_distillation_loss_weighs_hard_and_soft() -> None:
    s, t, y = torch.randn(6, 3), torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    hard, soft = F.cross_entropy(s, y), cmow.kd_loss(s, t, 2.0)
    for alpha in (0.0, 0.3, 1.0):
        found = cmow.distillation_loss(Args(alpha=alpha, temperature=2.0), s, t, y)
        torch.testing.assert_close(found, alpha * hard + (1 - alpha) * soft)
    mse = cmow.distillation_loss(Args(alpha=0.0, loss="mse"), s, t, y)
    torch.testing.assert_close(mse, ((s - t) ** 2).mean())
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 0.0])
    found = cmow.distillation_loss(Args(alpha=0.5), s[:, :1], t[:, :1], scores)
    expected = ((s[:, 0] - scores) ** 2).mean() / 2 + ((s[:, 0] - t[:, 0]) ** 2).mean() / 2
    torch.testing.assert_close(found, expected)


def test_general_loss() -> None:
    s, t = torch.randn(6, 11), torch.randn(6, 11)
    labels = torch.tensor([-100, 4, -100, -100, 10, -100])
    expected = 5 * cmow.kd_loss(s, t, 2.0) + 2 * F.cross_entropy(s[[1, 4]], labels[[1, 4]])
    torch.testing.assert_close(cmow.general_loss(s, t, labels), expected)
    assert torch.isfinite(cmow.general_loss(s, t, torch.full((6,), -100)))


# --- tasks and arguments -----------------------------------------------------------------------------------


def test_stsb_as_21_classes(glue: Path) -> None:
    task = data.load("stsb", str(glue))
    scores = [0.0, 0.9, 1.0, 1.05, 2.5, 3.8, 4.97, 5.0]
    split = replace(task.splits["train"], labels=scores, ids=task.splits["train"].ids[:8])
    found = cmow.stsb_classes(replace(task, splits=task.splits | {"train": split}))
    assert found.splits["train"].labels == [0, 0, 0, 0, 8, 14, 20, 20]  # 2.5 lies between classes 7 and 8
    assert found.splits["dev"].labels == task.splits["dev"].labels
    assert found.name == "stsb-21"
    assert (found.task.kind, len(found.task.labels)) == ("classification", 21)
    assert (found.task.labels[0], found.task.labels[7], found.task.labels[20]) == ("1.0", "2.4", "5.0")
    assert found.task.metrics == task.task.metrics


def test_the_grid_is_made_of_arguments() -> None:
    names = {field.name for field in fields(Args)}
    for stage in cmow.GRID.values():
        assert set(stage) <= names
        for name, values in stage.items():
            for value in values:
                Args(**{name: value}).check()
    assert len(cmow.GRID["task"]["lr"]) == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"student": "2x128"},
        {"student": "cbow-3-4"},
        {"student": "hybrid-20"},
        {"student": "cmow-0"},
        {"variant": "mc3kd"},
        {"variant": ""},
        {"init": "/no/such/folder"},
        {"init": ","},
        {"alpha": 1.5},
        {"temperature": 0.0},
        {"hidden_dropout": 1.0},
        {"embedding_dropout": -0.1},
        {"general_share": 1.0},
        {"general_lr": 0.0},
        {"general_warmup_steps": -1},
        {"augment": -1},
        {"mlp_width": 0},
        {"corpus": "/no/such/file"},
        {"head": "cnn", "student": "hybrid-10-50"},
        {"head": "cnn", "student": "cbow-50"},
        {"head": "cnn", "student": "cmow-2"},
    ],
    ids=str,
)
def test_wrong_arguments_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        Args(**changes).check()
    assert any(str(caught.value).startswith(f"--{name.replace('_', '-')}") for name in changes)


def test_the_students_shape() -> None:
    assert encoder_shape("bidirectional") == ("bidirectional", 20, 400)
    assert encoder_shape("cbow") == ("cbow", 0, 784)
    assert encoder_shape("cmow-12") == ("cmow", 12, 0)
    assert encoder_shape("hybrid-8-64") == ("hybrid", 8, 64)
    made = cmow.student_config(Args(student="cbow-10"), word_tokenizer())
    assert (made.vocab_size, made.matrix_size, made.vector_size, made.bidirectional) == (31, 0, 10, False)
    assert (made.cls_token_id, made.sep_token_id) == (2, 3)


def test_no_gradient_reaches_the_teacher() -> None:
    teacher, student = tiny_bert(), model(num_labels=2).train()
    tokens, mask = ids([2, 5, 6, 7, 3], [2, 8, 3])
    with torch.no_grad():
        soft = teacher(tokens, mask.long()).logits
    cmow.distillation_loss(Args(), student(tokens, mask).logits, soft, torch.tensor([0, 1])).backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())
