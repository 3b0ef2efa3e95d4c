"""General cross-architecture distillation of pretrained language models into matrix embeddings (CMOW).

    python methods/cmow.py                                        # pocket task, a few minutes on a laptop
    python methods/cmow.py --init random,general                  # also students that start from general distillation
    python methods/cmow.py --task pocket/mrpc --student hybrid-20-400 --head cnn --diffcat off --alpha 0
    python methods/cmow.py --task sst2 --data-dir GLUE_DIR --teacher bert-base-uncased --student bidirectional
    python methods/cmow.py --params                               # tables VII and VIII beside the published numbers
    python methods/cmow.py --profile                              # sentences per second of teacher and students

The paper in ten lines. The student has no attention and no layers: a token is a vector, a small matrix, or both. A
text is the sum of its vectors (CBOW), which forgets the order of the words, beside the product of its matrices
(CMOW), which keeps it, since matrix products do not commute. The hybrid joins both; the bidirectional hybrid adds a
second table of matrices that is multiplied from the last word to the first. BERT teaches it twice. General
distillation: a masked language model whose position i sees the product of all matrices up to i and of all from i on
learns from BERT's predictions on unlabelled text. Task-specific distillation: a small classifier on top of the
encoding learns from the fine-tuned BERT's logits. Two texts are encoded apart and joined as [a, b, |a - b|]
(DiffCat), or as one sequence. Such a student is many times faster than BERT; most of its parameters are embeddings.

What the paper has -> code
    sum and ordered product of a text     MatrixEmbeddings.pooled, ordered_product
    masked language model                 MatrixEmbeddings.both_sides, prefix_products, general_loss
    DiffCat, one-sequence encoding        MatrixEmbeddingForSequenceClassification.encode
    classifiers (appendix A)              linear_probe, mlp, Cnn, BiLstm
    loss (appendix B)                     distillation_loss
    table I, search spaces                GRID
    tables VII and VIII, sizes            PUBLISHED, count_parameters, `--params`
    data augmentation (appendix C)        common/augment.py, `--augment`

Differences from the paper, and how its gaps are read
    - a table of matrices holds what is added to the identity: the same function and the same N(0, 0.01), but
      padding, embedding dropout and weight decay then mean "neutral" instead of "zero".
    - padding is left out by the attention mask; in the authors' code it is a trainable embedding that drifts.
    - masked language model: position i is paired with the suffix that starts at i; the authors' code pairs it with
      the one that starts at n - 1 - i. A student without a backward table reads its suffixes in the text's order.
    - the KL divergence is averaged over the batch ('batchmean'); the authors' mean over batch and classes is
      C times weaker. No ReLU on the logits of the linear and CNN heads.
    - DiffCat encodes the words of each text without [CLS] and [SEP]. `--diffcat auto` uses it for pairs alone; with
      `on`, the second text of a single sentence is empty.
    - the paper counts an unused matrix table in every CBOW model; `--params` adds it for the comparison only.
    - STS-B is a regression, so that its rows compare with other methods'; `--stsb classes` has the paper's 21 classes.
    - the BiLSTM without DiffCat of CBOW and hybrid: its size is the paper's, its wiring is our reading (BiLstm).
    - BERT-base's masked-LM batches were 512; here a stage's batches are `--batch-size`.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import stream
from common.args import BadInput, CommonArgs, arg, first_line, parse, run, split_list

VARIANTS = ("finetune", "kd")
PAPER_EPOCHS = 20
PAPER_SIZES = {"cbow": (0, 784), "cmow": (28, 0), "hybrid": (20, 400), "bidirectional": (20, 400)}
HEADS = ("linear", "mlp", "cnn", "bilstm")

# Table I: the search spaces, by argument. `student` stands for the table's embedding type and bidirectional.
GRID: dict[str, dict[str, tuple[Any, ...]]] = {
    "general": {
        "general_lr": (1e-3, 5e-4, 1e-4, 5e-5, 1e-5),
        "general_warmup_steps": (0, 500),
        "embedding_dropout": (0.0, 0.1),
        "hidden_dropout": (0.2,),
        "batch_size": (1, 8, 32, 64, 128, 256),
    },
    "task": {
        "lr": (1e-3, 5e-4, 1e-4, 5e-5, 1e-5, 5e-6),
        "student": ("bidirectional", "hybrid", "cmow", "cbow"),
        "init": ("random", "general"),
        "diffcat": ("on", "off"),
        "head": HEADS,
    },
}


def grid(args: Args, variant: str) -> dict[str, tuple[Any, ...]]:
    """Table I's search space for the fine-tuning of a given student, for `python -m bench sweep cmow`."""
    return {name: values for name, values in GRID["task"].items() if name not in ("student", "init")}


class Shape(NamedTuple):
    """The size of a token: an s x s matrix (one per direction) and a vector."""

    encoder: str
    matrix: int  # s; 0: no matrix
    vector: int  # 0: no vector


def encoder_shape(text: str) -> Shape:
    """`"cmow-28"`, `"cbow-784"`, `"hybrid-20-400"`, `"bidirectional-20-400"`; the name alone has the paper's sizes."""
    name, *sizes = text.split("-")
    wanted = {"cbow": 1, "cmow": 1}.get(name, 2)
    if (
        name not in PAPER_SIZES
        or len(sizes) not in (0, wanted)
        or not all(re.fullmatch(r"[1-9]\d{0,3}", s) for s in sizes)
    ):
        raise BadInput(
            f"--student {text!r}: must be cbow[-VECTOR], cmow[-MATRIX], hybrid[-MATRIX-VECTOR] or"
            " bidirectional[-MATRIX-VECTOR], for example hybrid-20-400"
        )
    matrix, vector = PAPER_SIZES[name]
    if sizes:
        matrix = 0 if name == "cbow" else int(sizes[0])
        vector = 0 if name == "cmow" else int(sizes[-1])
    return Shape(name, matrix, vector)


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and CMOW's."""

    task: str = arg("pocket/rte", "task, or several with commas: pocket/NAME (embedded), or NAME (hub, or --data-dir)")
    student: str = arg(
        "bidirectional-10-100", "cbow[-VECTOR], cmow[-MATRIX], hybrid[-MATRIX-VECTOR], bidirectional[-MATRIX-VECTOR]"
    )
    lr: float = arg(5e-3, "the student's peak learning rate (the paper's: up to 1e-3, over 20 epochs)")
    variant: str = arg("finetune,kd", f"one or several of {', '.join(VARIANTS)}")
    init: str = arg("random", "first embeddings: random, general (distilled here), or a folder made so; or several")
    head: Literal["linear", "mlp", "cnn", "bilstm"] = arg("mlp", "classifier on top of the embeddings")
    mlp_width: int = arg(1000, "hidden units of the MLP head")
    diffcat: Literal["auto", "on", "off"] = arg(
        "auto", "two texts as [a, b, |a-b|]; auto: for pairs; off: one sequence"
    )
    alpha: float = arg(0.5, "weight of the true labels; 1 - alpha is that of the teacher's (0: soft labels only)")
    temperature: float = arg(1.0, "softens both sides' logits")
    loss: Literal["kl", "mse"] = arg("kl", "soft loss: KL divergence, or the squared distance of the logits")
    stsb: Literal["regression", "classes"] = arg("regression", "STS-B as a regression, or as the paper's 21 classes")
    augment: int = arg(0, "kd: copies of each training text with words replaced (TinyBERT's augmentation)")
    embedding_dropout: float = arg(0.0, "share of embedding entries dropped in training")
    hidden_dropout: float = arg(0.0, "share of an encoding's entries dropped before the classifier, in training")
    general_share: float = arg(0.25, "--init general: its share of the budget")
    general_lr: float = arg(2e-3, "--init general: peak learning rate (the paper's: 5e-4, over one epoch of Wikipedia)")
    general_warmup_steps: int | None = arg(None, "--init general: warm-up (default: a twentieth of its steps)")
    corpus: str | None = arg(
        None,
        "--init general: text file, one passage a line, or stream:FILE or stream:hub:NAME, which are read as they are"
        " used (default: pocket documents, or the task's own texts)",
    )
    params: bool = arg(False, "print the paper's tables VII and VIII, counted from modules built here; train nothing")
    profile: bool = arg(False, "measure sentences per second of teacher and students; train nothing")

    def check(self) -> None:
        super().check()
        self.check_names("variant", VARIANTS)
        if not self.inits:
            raise BadInput(f"--init {self.init!r}: names none; must be random, general, or a folder")
        for init in self.inits:
            if init not in ("random", "general") and not (Path(init) / "config.json").exists():
                raise BadInput(f"--init {init}: must be random, general, or a folder made by general distillation")
        self.check_value("alpha", lambda v: 0 <= v <= 1, "be between 0 and 1")
        self.check_value("temperature", lambda v: 0 < v <= 1000, "be above 0, and at most 1000")
        for name in ("embedding_dropout", "hidden_dropout"):
            self.check_value(name, lambda v: 0 <= v < 1, "be 0 or more, and below 1")
        self.check_value("general_share", lambda v: 0 < v < 1, "be between 0 and 1, both excluded")
        self.check_value("general_lr", lambda v: 0 < v < math.inf, "be a number above 0")
        for name in ("general_warmup_steps", "augment"):
            self.check_value(name, lambda v: v >= 0, "be 0 or more")
        self.check_value("mlp_width", lambda v: v >= 1, "be 1 or more")
        from common import data

        for task in self.tasks:
            if data.task_of(task).kind not in ("classification", "regression"):
                raise BadInput(
                    f"--task {task}: matrix embeddings encode whole texts; classification and regression only"
                )
        stream.check(self.corpus)
        if self.gradient_checkpointing:
            raise BadInput("--gradient-checkpointing: the student has no layers whose activations could be left out")
        if self.head == "cnn":
            cnn_shape(encoder_shape(self.student))

    def check_student(self) -> None:
        encoder_shape(self.student)

    @property
    def inits(self) -> list[str]:
        return split_list(self.init)


def cnn_shape(shape: Shape) -> tuple[int, int]:
    """(channels, side) of an encoding seen as square images: the matrices, and the vector folded into one."""
    side = shape.matrix or math.isqrt(shape.vector)
    if side < 3 or shape.vector not in (0, side * side):
        example = f"{shape.encoder}-{side}" if not shape.vector else (
            "cbow-784" if shape.encoder == "cbow" else f"{shape.encoder}-{max(side, 3)}-{max(side, 3) ** 2}"
        )  # fmt: skip
        raise BadInput(f"--head cnn: needs matrices of 3 x 3 or more, and as many vector entries; --student {example}")
    return (shape.vector > 0) + (shape.matrix > 0) + (shape.encoder == "bidirectional"), side


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from common import cache, data, masked_lm, models, parallel, results, speed, teacher_cache, train
from common.data import TaskData
from common.layers import augment
from common.run import Loading, Run, compiled
from common.teacher import Teacher, frozen, get_teacher, large_settings

# Shapes: B batch, L length, s side of a token's matrix, d width of its vector, D width of an encoding, C classes,
# V vocabulary, n chosen positions of a batch.


# --- ordered products: the definition, and the fast way ------------------------------------------------------


def product_loop(M: Tensor) -> Tensor:
    """The definition: (B, L, s, s) -> M_1 M_2 ... M_L, (B, s, s). One product after the other."""
    P = M[:, 0]
    for i in range(1, M.shape[1]):
        P = P @ M[:, i]
    return P


def prefix_loop(M: Tensor) -> Tensor:
    """The definition: (B, L, s, s) -> (B, L, s, s), at i the product M_1 ... M_i."""
    P = [M[:, 0]]
    for i in range(1, M.shape[1]):
        P.append(P[-1] @ M[:, i])
    return torch.stack(P, 1)


def ordered_product(M: Tensor) -> Tensor:
    """`product_loop` as a balanced tree: log2 L batched products of neighbours.

    A matrix without a neighbour moves up as it is, so identities on the right change no bit of the result.
    """
    while (L := M.shape[1]) > 1:
        left, right = M[:, : L - L % 2].unflatten(1, (L // 2, 2)).unbind(2)
        pairs = left @ right
        M = torch.cat([pairs, M[:, -1:]], 1) if L % 2 else pairs
    return M[:, 0]


def prefix_products(M: Tensor, leaf: int | None = None) -> Tensor:
    """`prefix_loop` with its gradient in closed form; a parallel scan down to sequences of `leaf` matrices.

    A scan of depth 2 log2 L needs 2 L products, the loop L. Where launches cost (accelerators) depth decides and
    the scan goes down to single matrices; a CPU is busy with the B products of one step, and the loop is best.
    """
    if leaf is None:
        leaf = M.shape[1] if M.device.type == "cpu" else 1
    return PrefixProducts.apply(M, leaf)


class PrefixProducts(torch.autograd.Function):
    """P_i = P_{i-1} M_i. With G_i = dloss/dP_i, H_i = G_i + H_{i+1} M_{i+1}' gives dloss/dM_i = P_{i-1}' H_i."""

    @staticmethod
    def forward(ctx: Any, M: Tensor, leaf: int) -> Tensor:
        P = scan(M, leaf)
        ctx.save_for_backward(M, P)
        ctx.leaf = leaf
        return P

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        M, P = ctx.saved_tensors
        H = reverse_scan(M, G, ctx.leaf)
        # one batch of all B L - 1 neighbours, without a copy; at the start of a text there is no P_{i-1}, dM_1 = H_1
        gradient = torch.empty_like(H)
        torch.bmm(P.flatten(0, 1)[:-1].mT, H.flatten(0, 1)[1:], out=gradient.flatten(0, 1)[1:])
        gradient[:, 0] = H[:, 0]
        return gradient, None


def scan(M: Tensor, leaf: int) -> Tensor:
    """P_1 = M_1, P_i = P_{i-1} M_i: every second prefix from the scan of the pairs, the others one product more."""
    L = M.shape[1]
    P = torch.empty_like(M)
    P[:, 0] = M[:, 0]
    if leaf >= L:
        last = P[:, 0]
        for i in range(1, L):
            P[:, i] = last = last @ M[:, i]
        return P
    P[:, 1::2] = scan(M[:, 0 : L - 1 : 2] @ M[:, 1::2], leaf)
    P[:, 2::2] = P[:, 1 : L - 1 : 2] @ M[:, 2::2]
    return P


def reverse_scan(M: Tensor, G: Tensor, leaf: int) -> Tensor:
    """H_L = G_L, H_i = G_i + H_{i+1} M_{i+1}', by the same pairs as `scan`."""
    L = M.shape[1]
    H = G.clone(memory_format=torch.contiguous_format)
    if leaf >= L:
        last = H[:, -1]
        for i in range(L - 2, -1, -1):
            H[:, i] = last = torch.baddbmm(H[:, i], last, M[:, i + 1].mT)
        return H
    odd = G[:, 1::2].clone()
    odd[:, : (L - 1) // 2] += G[:, 2::2] @ M[:, 2::2].mT
    H[:, 1::2] = reverse_scan(M[:, 0 : L - 1 : 2] @ M[:, 1::2], odd, leaf)
    H[:, 0 : L - 1 : 2] += H[:, 1::2] @ M[:, 1::2].mT
    return H


# --- the student: embeddings ---------------------------------------------------------------------------------


class MatrixEmbeddingConfig(PreTrainedConfig):
    """Sizes of a student; the paper's bidirectional hybrid unless told otherwise."""

    model_type = "cmow"
    vocab_size: int = 30522
    matrix_size: int = 20  # s; 0: no matrices (CBOW)
    vector_size: int = 400  # d; 0: no vectors (CMOW)
    bidirectional: bool = True
    diffcat: bool = True
    head: str = "mlp"
    mlp_width: int = 1000
    embedding_dropout: float = 0.0
    hidden_dropout: float = 0.0
    cls_token_id: int | None = 101
    sep_token_id: int | None = 102
    initializer_range: float = 0.01


class MatrixEmbeddings(nn.Module):
    """A vector, a matrix, or both for every token, and the encodings made of them.

    A table of matrices holds E - I: a token's matrix is I + its row. Where `mask` is 0 the row counts as zero, so
    padding is the exact identity and the zero vector.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.side = s = config.matrix_size
        tables = {
            "vectors": config.vector_size,
            "forward_matrices": s * s,
            "backward_matrices": s * s if config.bidirectional else 0,
        }
        self.tables = nn.ModuleDict({k: nn.Embedding(config.vocab_size, w) for k, w in tables.items() if w})
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.width = sum(tables.values())  # D
        self.side_width = config.vector_size + s * s  # of what one side of a position is, for the masked LM
        self.sequence_width = self.side_width * (2 if config.bidirectional else 1)

    def tokens(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """(B, L) ids and mask -> vectors (B, L, d) and matrices (B, L, s, s), neutral where the mask is 0."""
        found = {}
        for name, table in self.tables.items():
            found[name] = self.dropout(table(ids)) * mask[..., None]
            if name != "vectors":
                identity = torch.eye(self.side, device=ids.device)
                found[name] = identity + found[name].unflatten(-1, (self.side, self.side))
        return found

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, D): [sum of vectors, E_1 E_2 ... E_L, E'_L ... E'_2 E'_1], what of it the student has."""
        tokens = self.tokens(ids, mask)
        parts = []
        if "vectors" in tokens:
            parts.append(tokens["vectors"].sum(1))
        if "forward_matrices" in tokens:
            parts.append(ordered_product(tokens["forward_matrices"]).flatten(1))
        if "backward_matrices" in tokens:
            parts.append(ordered_product(tokens["backward_matrices"].flip(1)).flatten(1))
        return torch.cat(parts, -1)

    def both_sides(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, L, 2 (d + s^2)): at i the encodings of tokens 1..i and of i..L, token i in both."""
        tokens = self.tokens(ids, mask)
        prefix, suffix = [], []
        if "vectors" in tokens:
            v = tokens["vectors"]
            prefix.append(v.cumsum(1))
            suffix.append(v.flip(1).cumsum(1).flip(1))
        if "forward_matrices" in tokens:
            M = tokens["forward_matrices"]
            prefix.append(prefix_products(M).flatten(2))
            if "backward_matrices" in tokens:  # E'_L ... E'_i: prefixes of the reversed text
                S = prefix_products(tokens["backward_matrices"].flip(1)).flip(1)
            else:  # E_i ... E_L, by (E_i ... E_L)' = E_L' ... E_i'
                S = prefix_products(M.flip(1).mT).flip(1).mT
            suffix.append(S.flatten(2))
        return torch.cat([*prefix, *suffix], -1)

    def sequence(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, L, i), every token's [vector, matrix] per direction, for the BiLSTM."""
        tokens = self.tokens(ids, mask)
        vectors = [tokens["vectors"]] if "vectors" in tokens else []
        matrices = [t.flatten(2) for name, t in tokens.items() if name != "vectors"]
        return torch.cat([part for M in matrices for part in (*vectors, M)] or vectors, -1)


# --- the student: classifiers (appendix A) -------------------------------------------------------------------


def linear_probe(width: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))


def mlp(width: int, hidden: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.LayerNorm(hidden), nn.Linear(hidden, classes))


class BatchNorm(nn.BatchNorm2d):
    """The library's, with the statistics of the whole batch where several processes share it, on CPUs too."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, c, h, w) -> (B, c, h, w)."""
        if not self.training or parallel.processes() == 1:
            return super().forward(x)
        n = parallel.count(x.numel() // x.shape[1])
        mean = parallel.inner(x.sum((0, 2, 3), keepdim=True)) / n
        variance = parallel.inner((x - mean).square().sum((0, 2, 3), keepdim=True)) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean.flatten(), self.momentum)  # type: ignore[union-attr, arg-type]
            self.running_var.lerp_(variance.flatten() * n / (n - 1), self.momentum)  # type: ignore[union-attr, arg-type]
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        scale = self.weight[:, None, None] / (variance + self.eps).sqrt()
        return (x - mean) * scale + self.bias[:, None, None]


class Cnn(nn.Module):
    """2D-CNN over an encoding seen as c images of s x s: one up-sampling, three convolutions without padding."""

    def __init__(self, c: int, s: int, classes: int) -> None:
        super().__init__()
        self.image = (c, s, s)
        self.convolutions = nn.Sequential(
            nn.ConvTranspose2d(c, c, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(c, c, 4),
            nn.ReLU(),
            nn.Conv2d(c, c + 2, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(c + 2, c + 2, 3, stride=2),
            nn.ReLU(),
            BatchNorm(c + 2),
        )
        side = ((4 * s - 3 - 3) // 2 + 1 - 3) // 2 + 1  # 18 for s = 20, 26 for s = 28
        self.dropout = nn.Dropout(0.4)
        self.output = nn.Linear((c + 2) * side * side, classes)

    def forward(self, encoding: Tensor) -> Tensor:
        """(B, c s s) -> (B, C)."""
        return self.output(self.dropout(self.convolutions(encoding.unflatten(1, self.image)).flatten(1)))


class BiLstm(nn.Module):
    """One bidirectional LSTM over token embeddings of width i, then two linear layers.

    The paper's sizes are those of H = i, and Linear(2H, H) and Linear(H, C) on the two final states; and, for CBOW
    and hybrid without DiffCat, of H = 512, Linear(2H, H), a norm of 2H and Linear(2H, C). How 2 x H reach that norm
    is in no source: here the first linear layer reads the LSTM's output at both ends of the text (`ends`).
    """

    def __init__(self, i: int, H: int, classes: int, ends: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(i, H, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(2 * H, H)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(2 * H) if ends else None
        self.output = nn.Linear(2 * H if ends else H, classes)

    def forward(self, sequence: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, i) and (B,), the tokens of each text first -> (B, C)."""
        packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (final, _) = self.lstm(packed)
        if self.norm is None:
            hidden = F.relu(self.hidden(final.transpose(0, 1).flatten(1)))  # (2, B, H) -> (B, 2H)
            return self.output(self.dropout(hidden))
        states = pad_packed_sequence(states, batch_first=True)[0]  # (B, L, 2H)
        rows = torch.arange(len(states), device=states.device)
        both = torch.stack([states[:, 0], states[rows, lengths - 1]], 1)  # (B, 2, 2H)
        return self.output(self.norm(self.dropout(F.relu(self.hidden(both))).flatten(1)))


def build_head(config: Any, embeddings: MatrixEmbeddings) -> nn.Module:
    """The classifier that `config.head` names; DiffCat triples its input."""
    times = 3 if config.diffcat else 1
    C = config.num_labels
    if config.head == "linear":
        return linear_probe(times * embeddings.width, C)
    if config.head == "mlp":
        return mlp(times * embeddings.width, config.mlp_width, C)
    if config.head == "cnn":
        side = config.matrix_size or math.isqrt(config.vector_size)
        return Cnn(times * embeddings.width // side**2, side, C)
    i = times * embeddings.sequence_width
    ends = not config.diffcat and config.vector_size > 0
    return BiLstm(i, 512 if ends else i, C, ends)


# --- the student: whole models, in the library's form --------------------------------------------------------


class MatrixEmbeddingModel(PreTrainedModel):
    """What both models share: the embeddings, and N(0, 0.01) for embeddings and linear layers."""

    config_class = MatrixEmbeddingConfig
    base_model_prefix = "embeddings"

    def __init__(self, config: MatrixEmbeddingConfig) -> None:
        super().__init__(config)
        self.embeddings = MatrixEmbeddings(config)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):  # the others keep torch's own initialisation
            super()._init_weights(module)


class MatrixEmbeddingForSequenceClassification(MatrixEmbeddingModel):
    """An encoding, or the token embeddings, below a classifier; one output is a regression."""

    def __init__(self, config: MatrixEmbeddingConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.head = build_head(config, self.embeddings)
        self.post_init()

    def texts(self, ids: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(ids, mask), each (B, L'), of the sequences to encode: two with DiffCat, otherwise one with its [SEP]s."""
        parts = [mask]
        if self.config.diffcat:
            separator = ids == self.config.sep_token_id
            words = mask & ~separator & (ids != self.config.cls_token_id)
            second = separator.cumsum(1) > 0
            parts = [words & ~second, words & second]
        found = []
        for part in parts:
            # a text's own tokens first, and no longer than the longest: shorter products
            order = part.logical_not().long().argsort(dim=1, stable=True)[:, : max(1, int(part.sum(1).max()))]
            found.append((ids.gather(1, order), part.gather(1, order)))
        return found

    def encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """(B, L) -> the head's input: (B, D), or with DiffCat [a, b, |a - b|], (B, 3 D)."""
        encodings = [self.embeddings.pooled(*text) for text in self.texts(ids, mask)]
        return (self.dropout(diffcat(*encodings) if self.config.diffcat else encodings[0]),)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Logits (B, C), and with labels the loss on them. Token types are not read: [SEP] parts the texts."""
        mask = attention_mask.bool()
        # products of bf16 matrices would lose what tells words apart: entries are 1 + 0.01 at first
        with torch.autocast(input_ids.device.type, enabled=False):
            features = self.sequences if isinstance(self.head, BiLstm) else self.encode
            found = features(input_ids, mask)
        logits = self.head(*found)
        loss = None if labels is None else hard_loss(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def sequences(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Token embeddings (B, L', i) and lengths (B,); with DiffCat the k-th token of a beside the k-th of b."""
        texts = self.texts(ids, mask)
        lengths = torch.stack([part.sum(1) for _, part in texts]).amax(0).clamp(min=1)
        L = max(part.shape[1] for _, part in texts)
        states = [self.embeddings.sequence(*(F.pad(x, (0, L - x.shape[1])) for x in text)) for text in texts]
        return self.dropout(diffcat(*states) if self.config.diffcat else states[0]), lengths


class MatrixEmbeddingForMaskedLM(MatrixEmbeddingModel):
    """Every position's prefix and suffix below one linear layer, for general distillation."""

    def __init__(self, config: MatrixEmbeddingConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.output = nn.Linear(2 * self.embeddings.side_width, config.vocab_size)  # not tied: 1600 -> V
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, positions: Tensor, **_: Any) -> Tensor:
        """(B, L) ids, mask and a boolean choice of n positions -> (n, V) logits, row by row."""
        with torch.autocast(input_ids.device.type, enabled=False):
            sides = self.embeddings.both_sides(input_ids, attention_mask.bool())
        return self.output(self.dropout(sides[positions]))


AutoConfig.register("cmow", MatrixEmbeddingConfig, exist_ok=True)
AutoModelForSequenceClassification.register(
    MatrixEmbeddingConfig, MatrixEmbeddingForSequenceClassification, exist_ok=True
)


def diffcat(a: Tensor, b: Tensor) -> Tensor:
    """[a, b, |a - b|]: (..., D) twice -> (..., 3 D)."""
    return torch.cat([a, b, (a - b).abs()], -1)


def student_config(args: Args, tokenizer: Any, **changes: Any) -> MatrixEmbeddingConfig:
    """The student that the arguments describe, over the tokenizer's vocabulary."""
    shape = encoder_shape(args.student)
    changes |= {"matrix_size": shape.matrix, "vector_size": shape.vector}
    changes |= {name: getattr(args, name) for name in ("head", "mlp_width", "embedding_dropout", "hidden_dropout")}
    changes |= {name: getattr(tokenizer, name) for name in ("cls_token_id", "sep_token_id", "pad_token_id")}
    bidirectional = shape.encoder == "bidirectional"
    return MatrixEmbeddingConfig(vocab_size=len(tokenizer), bidirectional=bidirectional, **changes)


# --- losses --------------------------------------------------------------------------------------------------


def kd_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) over (n, C) logits, mean over the n rows ('batchmean')."""
    s = F.log_softmax(student / temperature, dim=-1)
    t = F.log_softmax(teacher / temperature, dim=-1)
    return temperature**2 * F.kl_div(s, t, log_target=True, reduction="batchmean")


def hard_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of (B, C) logits; with one output, a regression, the squared error."""
    return F.mse_loss(logits[:, 0], labels) if logits.shape[-1] == 1 else F.cross_entropy(logits, labels)


def distillation_loss(args: Args, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """alpha CE(student, labels) + (1 - alpha) T^2 KL(teacher || student), or MSE of the logits for the KL term.

    Logits are (B, C). A regression (C = 1) has squared errors for both terms.
    """
    if args.loss == "mse" or student.shape[-1] == 1:
        soft = F.mse_loss(student, teacher)
    else:
        soft = kd_loss(student, teacher, args.temperature)
    return args.alpha * hard_loss(student, labels) + (1 - args.alpha) * soft


# --- general distillation ------------------------------------------------------------------------------------

GENERAL_TEMPERATURE = 2.0
SOFT_WEIGHT, MLM_WEIGHT = 5.0, 2.0
SMOOTHING = 0.7  # rare tokens are masked more often: by count^-0.7
GENERAL_WARMUP = 0.05
GENERAL_SEED = 0  # one general distillation for all seeds of a task, like a published checkpoint


def general_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """5 T^2 KL(teacher || student) over n positions + 2 CE over those that are masked (labels (n,), -100 elsewhere).

    Logits are (n, V), T = 2.
    """
    masked = labels >= 0
    mlm = F.cross_entropy(student[masked], labels[masked]) if masked.any() else student.sum() * 0
    soft = parallel.mean(kd_loss(student, teacher, GENERAL_TEMPERATURE), len(student))
    return SOFT_WEIGHT * soft + MLM_WEIGHT * parallel.mean(mlm, masked.sum())


def general_distillation(
    args: Args, cell: Run, teacher: Teacher, engine: Accelerator
) -> tuple[MatrixEmbeddingForMaskedLM, str, train.Ledger]:
    """The masked LM that a student's embeddings start from, what it is called, and what it has cost.

    Trained on first use and kept under `OUT/cache/general/`, for all variants and seeds; each result is charged in
    full. Its share of a budget is `--general-share`; with `--budget paper` it is one epoch of the texts.
    """
    source = teacher.pretrained or teacher.name
    flow = stream.of(args.corpus, cell.kind)
    texts = flow.head() if flow else masked_lm.corpus(args.corpus, cell.task)
    steps = None if cell.steps is None else max(1, round(args.general_share * cell.steps))
    if cell.kind == "paper":
        steps = -(-len(texts) // args.batch_size)
    config = student_config(args, teacher.tokenizer)
    recipe = {
        "teacher": f"{Path(source).name}@{models.file_digest(Path(source))}" if Path(source).is_dir() else source,
        "texts": flow.signature() if flow else cache.key({"texts": texts}),
        "student": args.student,
        "steps": steps,
        "seconds": None if cell.seconds is None else args.general_share * cell.seconds,
        "batch_size": args.batch_size,
        "lr": args.general_lr,
        "warmup_steps": args.general_warmup_steps,
        "embedding_dropout": args.embedding_dropout,
        "hidden_dropout": args.hidden_dropout,
        "max_length": args.max_length,
        "precision": args.precision,
        "seed": GENERAL_SEED,
        **large_settings(args),
    }
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / "general" / cache.key(recipe)

    def make(partial: Path) -> dict[str, Any]:
        train.seed_everything(GENERAL_SEED)
        student = MatrixEmbeddingForMaskedLM(config).to(engine.device)
        ledger = train.Ledger()
        distil_general(args, student, teacher.tokenizer, source, texts, flow, recipe, folder, ledger, engine)
        models.save(student, teacher.tokenizer, partial, "# Matrix embeddings, made as `general.json` says\n")
        return {"recipe": recipe, "ledger": asdict(ledger)}

    note = cache.fetch(folder, "general.json", "general distillation", make)
    student = MatrixEmbeddingForMaskedLM.from_pretrained(folder, use_safetensors=True)
    return student, f"general distillation #{folder.name}", train.Ledger.of(note)


def distil_general(
    args: Args, student: MatrixEmbeddingForMaskedLM, tokenizer: Any, source: str, texts: list[str],
    flow: stream.Stream | None, recipe: dict[str, Any], folder: Path, ledger: train.Ledger, engine: Accelerator,
) -> None:  # fmt: skip
    """Train the student's masked LM on the teacher's, on `texts` or on the stream whose head they are. Killed and
    started again, it goes on from its checkpoint."""

    def encode(part: list[str]) -> data.Encoded:
        return data.encode(tokenizer, masked_lm.passages(part), masked_lm.TEXT, args.max_length)

    encoded = encode(texts)
    weights = masked_lm.token_weights(encoded, tokenizer, SMOOTHING)
    batches: Any = data.Batches(encoded, tokenizer, recipe["batch_size"], GENERAL_SEED)
    if flow:
        batches = stream.Batches(lambda: flow.drawn(GENERAL_SEED), tokenizer, encode, recipe["batch_size"])
    guide, whole = masked_lm.load(source)
    guide.to(engine.device).eval()  # type: ignore[arg-type]
    if not whole:
        with ledger.clock():
            masked_lm.train_head(guide, tokenizer, encoded, ledger)
    guide = frozen(guide, engine.device, args.teacher_precision)
    student.train()
    optimizer = torch.optim.AdamW(
        student.parameters(), lr=recipe["lr"], betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0, fused=True
    )
    steps, seconds = recipe["steps"], recipe["seconds"]
    warmup = GENERAL_WARMUP
    if recipe["warmup_steps"] is not None and steps:
        warmup = min(1.0, recipe["warmup_steps"] / steps)
    schedule = train.Schedule(optimizer, ledger, steps, seconds, warmup)
    checkpoint = train.Checkpoint(
        folder.with_suffix(".training"), {"student": student}, schedule, cache.key(recipe), args.save_every,
        engine.scaler,
    )  # fmt: skip
    if checkpoint.load(again=True):
        print(f"general distillation: continued at step {ledger.steps}")
    bar = train.progress(steps or 0, "general distillation", ledger.steps)
    with checkpoint:
        while schedule.running():
            with ledger.clock():
                batch = batches[ledger.steps]
                labels = masked_lm.mask_tokens(batch["input_ids"], batch["attention_mask"], weights, tokenizer)
                batch["labels"] = labels
                loss: Any = 0.0
                for part in parallel.parts(batch, batches.ids(ledger.steps), args.accumulate):
                    inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                    labels = inputs.pop("labels")
                    positions = inputs["attention_mask"].bool()  # soft labels everywhere, as in DistilBERT's recipe
                    with engine.autocast(), parallel.randomness(ledger.steps, part.number):
                        with torch.no_grad():
                            soft = guide(**inputs).logits[positions]
                        logits = student(inputs["input_ids"], inputs["attention_mask"], positions)
                        own = part.share * general_loss(logits, soft, labels[positions])
                    engine.backward(own)
                    loss += own.detach()
                checkpoint.watch(loss, ledger.steps, batches.ids)
                train.update(engine, optimizer, student.parameters())
                ledger.count(batch, teachers=1)
                schedule.step()
            bar.update()
            checkpoint.step()
    bar.close()


# --- task-specific distillation and fine-tuning --------------------------------------------------------------


def stsb_classes(task: TaskData) -> TaskData:
    """STS-B as in the paper: 21 classes, class i standing for the score 1 + 0.2 i; scores below 1 count as 1.

    Correlations are taken between the predicted class and the true scores, which the evaluation splits keep: a
    score is a linear map of its class.
    """
    names = tuple(f"{1 + 0.2 * i:.1f}" for i in range(21))
    scores: Any = task.splits["train"].labels
    labels = [round((min(max(score, 1.0), 5.0) - 1) / 0.2) for score in scores]
    splits = task.splits | {"train": replace(task.splits["train"], labels=labels)}
    own = replace(task.task, kind="classification", labels=names, score_range=None)
    return replace(task, name=f"{task.name}-21", task=own, splits=splits)


def pretrained_embeddings(folder: str, config: PreTrainedConfig) -> dict[str, Tensor]:
    """The embeddings in a folder that this script has written; `BadInput` if they are of other sizes."""
    if models.load_config(folder, "--init").model_type != MatrixEmbeddingConfig.model_type:
        raise BadInput(
            f"--init {folder}: holds no matrix embeddings; general distillation writes them, under OUT/cache"
        )
    try:
        loaded: Any = MatrixEmbeddingForMaskedLM.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
        saved, report = loaded
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise BadInput(f"--init {folder}: holds no matrix embeddings ({first_line(error)})") from error
    if report["missing_keys"] or report["mismatched_keys"]:
        raise BadInput(f"--init {folder}: not all of its weights are in its file; it is of a run on a task, or damaged")
    for name in ("vocab_size", "matrix_size", "vector_size", "bidirectional"):
        if getattr(saved.config, name) != getattr(config, name):
            raise BadInput(
                f"--init {folder}: its {name} is {getattr(saved.config, name)}, the student's {getattr(config, name)};"
                " give the --student and the --teacher it was made with"
            )
    return saved.embeddings.state_dict()


def distil(
    args: Args, name: str, cell: Run, steps: int | None, seconds: float | None,
    student: MatrixEmbeddingForSequenceClassification, teacher: Teacher, encoded: data.Encoded, ledger: train.Ledger,
    engine: Accelerator,
) -> None:  # fmt: skip
    """Train the student on the task, with the teacher (kd) or without (finetune). No warm-up, linear decay."""
    batches = cell.batches(encoded, engine.device)
    student.to(engine.device).train()  # type: ignore[arg-type]
    optimizer = train.adamw(student, args.lr)
    schedule = train.Schedule(optimizer, ledger, steps, seconds, warmup=0.0, args=args)
    guide = None
    if name != "finetune":
        guide = teacher_cache.guide(args, cell, teacher, encoded, steps, ledger, engine)
    checkpoint = train.Checkpoint(
        cell.folder, {"student": student}, schedule, cell.identity, args.save_every, engine.scaler
    )
    if args.resume and checkpoint.load():
        print(f"{cell.variant}: continued at step {ledger.steps}")
    cell.start(ledger.steps)
    model = compiled(student, args)
    bar = train.progress(steps or 0, f"{cell.variant} seed {args.seed}", ledger.steps)
    with checkpoint:
        while schedule.running():
            with ledger.clock():
                batch = batches[ledger.steps]
                loss: Any = 0.0
                for part in parallel.parts(batch, batches.ids(ledger.steps), args.accumulate):
                    inputs = {k: v.to(engine.device) for k, v in part.rows.items()}
                    labels = inputs.pop("labels")
                    with engine.autocast(), parallel.randomness(ledger.steps, part.number):
                        logits = model(**inputs).logits
                        if guide is None:
                            own = hard_loss(logits, labels)
                        else:
                            soft = guide(part.ids, **inputs).logits
                            own = distillation_loss(args, logits, soft, labels)
                        own = part.share * parallel.mean(own, len(labels))
                    engine.backward(own)
                    loss += own.detach()
                checkpoint.watch(loss, ledger.steps, batches.ids)
                train.update(engine, optimizer, student.parameters())
                ledger.count(batch, teachers=0 if guide is None else guide.charge)
                schedule.step()
            if ledger.steps % 20 == 0:
                cell.log(step=ledger.steps, loss=round(loss.item(), 6))
            bar.update()
            checkpoint.step()
    bar.close()


# --- the paper's tables VII and VIII: numbers of parameters --------------------------------------------------

# Encoder, DiffCat, head: the whole model, then its classifier, each with 2, 3 and 21 classes. As printed.
PUBLISHED = """
cbow          off linear  47,861,634 47,862,419 47,876,549           3,138 3,923 18,053
cbow          off mlp     48,647,498 48,648,499 48,666,517           789,002 790,003 808,021
cbow          off cnn     47,862,708 47,864,737 47,901,259           4,212 6,241 42,763
cbow          off bilstm  53,704,002 53,705,027 53,723,477           5,845,506 5,846,531 5,864,981
cmow          off linear  23,932,386 23,933,171 23,947,301           3,138 3,923 18,053
cmow          off mlp     24,718,250 24,719,251 24,737,269           789,002 790,003 808,021
cmow          off cnn     23,933,460 23,935,489 23,972,011           4,212 6,241 42,763
cmow          off bilstm  24,853,978 24,854,371 35,022,869           924,730 925,123 110,936,21
hybrid        off linear  24,420,802 24,421,603 24,436,021           3,202 4,003 18,421
hybrid        off mlp     25,222,602 25,223,603 25,241,621           805,002 806,003 824,021
hybrid        off cnn     24,420,558 24,421,855 24,445,201           2,958 4,255 27,601
hybrid        off bilstm  30,328,642 30,329,667 30,348,117           5,911,042 5,912,067 5,930,517
cbow          on  linear  47,867,906 47,870,259 47,912,613           9,410 11,763 54,117
cbow          on  mlp     50,215,498 50,216,499 50,234,517           2,357,002 2,358,003 2,376,021
cbow          on  cnn     47,865,932 47,869,313 47,930,171           7,436 10,817 71,675
cbow          on  bilstm  147,477,458 147,479,811 147,522,165        99,618,962 99,621,315 99,663,669
cmow          on  linear  23,938,658 23,941,011 23,983,365           9,410 11,763 54,117
cmow          on  mlp     26,286,250 26,287,251 26,305,269           2,357,002 2,358,003 2,376,021
cmow          on  cnn     23,936,684 23,940,065 24,000,923           7,436 10,817 71,675
cmow          on  bilstm  123,548,210 123,550,563 123,592,917        99,618,962 99,621,315 99,663,669
hybrid        on  linear  24,427,202 24,429,603 24,472,821           9,602 12,003 55,221
hybrid        on  mlp     26,822,602 26,823,603 26,841,621           2,405,002 2,406,003 2,424,021
hybrid        on  cnn     24,424,990 24,427,583 24,474,257           7,390 9,983 56,657
hybrid        on  bilstm  128,143,202 128,145,603 128,188,821        103,725,602 103,728,003 103,771,221
bidirectional on  linear  36,640,802 36,644,403 36,709,221           14402 18003 82,821
bidirectional on  mlp     40,231,402 40,232,403 4,025,0421           3,605,002 3,606,003 3,624,021
bidirectional on  cnn     36,638,164 36,641,729 36,705,899           11,764 15,329 79,499
bidirectional on  bilstm  451,437,602 - 451,528,821                  414,811,202 - 414,902,421
"""
CLASSES = (2, 3, 21)


def count_parameters(encoder: str, diffcat: bool, head: str, classes: int) -> tuple[int, int]:
    """(whole model, classifier) of the paper's sizes, counted from a model that is built without memory."""
    matrix, vector = PAPER_SIZES[encoder]
    sizes: dict[str, Any] = {"matrix_size": matrix, "vector_size": vector, "num_labels": classes}
    config = MatrixEmbeddingConfig(**sizes, bidirectional=encoder == "bidirectional", diffcat=diffcat, head=head)
    with torch.device("meta"):
        model = MatrixEmbeddingForSequenceClassification(config)
        classifier = models.parameters(model.head)
        if (encoder, diffcat, head) == ("cmow", False, "bilstm") and classes != 21:
            # what these two cells of the row "BiLSTM" really count
            D = model.embeddings.width
            layers = nn.Linear(D, D), nn.Linear(D, D // 2), nn.LayerNorm(D // 2), nn.Linear(D // 2, classes)
            classifier = sum(models.parameters(layer) for layer in layers)
        # the paper's CBOW carries a table of 28 x 28 matrices that it never reads
        unused = nn.Embedding(config.vocab_size, vector) if encoder == "cbow" else nn.Identity()
        return models.parameters(model.embeddings) + models.parameters(unused) + classifier, classifier


def published_sizes() -> list[tuple[str, str, str, str, int, str]]:
    """Every cell of tables VII and VIII: (table, row, column, as printed, counted here, remark)."""
    cells = []
    for line in PUBLISHED.strip().splitlines():
        encoder, diffcat_, head, *printed = line.split()
        counted = [count_parameters(encoder, diffcat_ == "on", head, C) for C in CLASSES]
        for k, (part, found) in enumerate((p, c[j]) for j, p in enumerate(("model", "classifier")) for c in counted):
            C = CLASSES[k % 3]
            agrees = printed[k] == "-" or int(printed[k].replace(",", "")) == found
            remark = "ok" if agrees else "MISMATCH"
            if printed[k] == "-":
                remark = "blank in the paper"
            elif agrees and "," in printed[k] and printed[k] != f"{found:,}":
                remark = "ok (misplaced commas)"
            elif (encoder, diffcat_, head) == ("cmow", "off", "bilstm"):
                remark += " (an MLP, see methods/cmow.py)" if C != 21 else ""
            table = "VIII" if diffcat_ == "on" else "VII"
            cells.append((table, f"{encoder} + {head}", f"{part}, {C} classes", printed[k], found, remark))
    return cells


def print_parameters() -> int:
    """Print every cell of tables VII and VIII beside the count; return the number of cells that disagree."""
    cells = published_sizes()
    rows = [[row, table, column, f"{found:,}", printed, remark] for table, row, column, printed, found, remark in cells]
    mismatches = sum(remark.startswith("MISMATCH") for *_, remark in cells)
    typos = [f'"{printed}" = {found:,}' for *_, printed, found, remark in cells if "commas" in remark]
    print(results.columns(rows, ["", "table", "of", "counted here", "published", ""]))
    print(
        f"\n{len(rows)} cells, {mismatches} mismatches."
        f"\nTypos: {', '.join(typos)}."
        "\nMislabelled: without DiffCat, CMOW's row BiLSTM holds for 2 and 3 classes the numbers of Linear(784, 784),"
        "\nLinear(784, 392), LayerNorm(392), Linear(392, C); with 21 classes it is the BiLSTM (11,093,621), whose"
        f"\nnumbers would be {count_bilstm(2):,} and {count_bilstm(3):,}."
        "\nCBOW's totals include a table of 28 x 28 matrices that CBOW never reads; students here do not hold it."
    )
    return mismatches


def count_bilstm(classes: int) -> int:
    """The classifier that the mislabelled cells would count: CMOW's BiLSTM without DiffCat."""
    with torch.device("meta"):
        return models.parameters(BiLstm(784, 784, classes, ends=False))


# --- inference speed -----------------------------------------------------------------------------------------


@parallel.by_main
@torch.no_grad()
def profile(args: Args, name: str, engine: Accelerator) -> None:
    """Sentences per second at batch 1 and 64: the teacher, a student of half its layers, and matrix embeddings.

    Over dev inputs of the task, from token ids to logits, medians of passes that take turns. The DistilBERT-shaped
    student has the teacher's width. All weights are random: they do not change the speed.
    """
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    source = models.source(args.teacher)
    config, tokenizer = models.load_config(source), models.load_tokenizer(source)
    half = models.student_config(config, max(1, config.num_hidden_layers // 2), config.hidden_size)
    own = student_config(args, tokenizer, diffcat=uses_diffcat(args, task))
    contenders: dict[str, nn.Module] = {
        f"teacher {args.teacher}": models.build_student(config, task.task.kind, None),
        f"DistilBERT-shaped {half.num_hidden_layers}x{half.hidden_size}": models.build_student(
            half, task.task.kind, None
        ),
        f"{args.student} + {args.head}": MatrixEmbeddingForSequenceClassification(own),
    }
    split = next(task.splits[s] for s in task.splits if s != "train")
    encoded = data.encode(tokenizer, split, task.task, args.max_length)
    for model in contenders.values():
        model.to(engine.device, torch.float32).eval()  # a checkpoint in half precision names it in its config
    table: dict[str, dict[str, Any]] = {
        label: {"parameters": models.parameters(model)} for label, model in contenders.items()
    }
    for batch_size, count in ((1, 32), (64, 256)):
        indices = list(range(min(count, len(encoded))))
        chunks = [indices[i : i + batch_size] for i in range(0, len(indices), batch_size)]
        batches = [data.collate(tokenizer, encoded, chunk) for chunk in chunks]
        inputs = [{k: v.to(engine.device) for k, v in batch.items() if k != "labels"} for batch in batches]

        def passes(model: nn.Module, inputs: list[dict[str, Tensor]] = inputs) -> float:
            return sum(model(**batch).logits.sum() for batch in inputs).item()  # waits for a GPU

        seconds = speed.medians({label: functools.partial(passes, model) for label, model in contenders.items()})
        for label in contenders:
            table[label][str(batch_size)] = len(indices) / seconds[label]
    path = Path(args.out_dir) / "cmow" / "profile" / task.name / f"{args.student}-{args.head}.json"
    results.write_json(path, {"task": task.name, "models": table, "environment": results.environment()})
    first = next(iter(table.values()))
    rows = [
        [label, f"{row['parameters'] / 1e6:.2f}M"]
        + [cell for b in ("1", "64") for cell in (f"{row[b]:.0f}", f"{row[b] / first[b]:.1f}x")]
        for label, row in table.items()
    ]
    print(results.columns(rows, ["sentences/s", "params", "batch 1", "", "batch 64", ""]))
    print(f"saved: {path}")


# --- main ----------------------------------------------------------------------------------------------------


def uses_diffcat(args: Args, task: TaskData) -> bool:
    return args.diffcat == "on" or (args.diffcat == "auto" and len(task.task.fields) == 2)


def run_variant(
    args: Args, name: str, init: str, task: TaskData, teacher: Teacher, engine: Accelerator
) -> dict[str, Any]:
    """One row of the table, from its folder if it was run before."""
    diffcat = uses_diffcat(args, task)
    if diffcat and teacher.tokenizer.sep_token_id is None:
        raise BadInput(f"--diffcat {args.diffcat}: {args.teacher}'s tokenizer has no separator between two texts")
    label = {"random": name, "general": f"general-{name}"}.get(init, f"pretrained-{name}")
    settings = {"init": init, "diffcat": diffcat}
    if init not in ("random", "general"):
        settings["init"] = f"{Path(init).name}@{models.file_digest(Path(init))}"
    cell = Run(args, "cmow", label, task, teacher, PAPER_EPOCHS, settings)
    if (record := cell.finished()) is not None:
        return record
    if init == "general" and cell.steps == 1:
        raise BadInput(f"--budget {args.budget}: pays for one step; general distillation and what follows need two")
    train.seed_everything(args.seed)
    config = student_config(args, teacher.tokenizer, diffcat=diffcat, **models.task_settings(task.task))
    build = functools.partial(MatrixEmbeddingForSequenceClassification, config)
    models.check_memory(build, f"--student {args.student} --mlp-width {args.mlp_width}")
    student = build()
    general = train.Ledger()  # what the first embeddings have cost
    started_from = init
    if init == "general":
        made, started_from, general = general_distillation(args, cell, teacher, engine)
        student.embeddings.load_state_dict(made.embeddings.state_dict())
    elif init != "random":
        student.embeddings.load_state_dict(pretrained_embeddings(init, student.config))
        started_from = f"{settings['init']}, not charged"
    steps = cell.steps if cell.steps is None or cell.kind == "paper" else cell.steps - general.steps
    seconds = None if cell.seconds is None else cell.seconds - general.seconds
    if seconds is not None and seconds <= 0:
        raise BadInput(f"--budget {args.budget}: general distillation took {general.seconds:.1f} s; give more")
    train.seed_everything(args.seed)
    ledger = train.Ledger()
    split = task.splits["train"]
    if args.augment and name == "kd":
        source = teacher.pretrained or teacher.name
        split = augment.with_copies(
            task, teacher.tokenizer, source, args.augment, args.seed, args.max_length, ledger, engine.device
        )
    encoded = data.encode(teacher.tokenizer, split, task.task, args.max_length)
    distil(args, name, cell, steps, seconds, student, teacher, encoded, ledger, engine)
    ledger.add(general)
    return cell.finish(student, started_from, ledger, loading=Loading("import methods.cmow"))


def run_task(args: Args, name: str, engine: Accelerator) -> None:
    task = data.load(name, args.data_dir, limit=args.limit, tune=args.tune)
    if task.task.kind == "regression" and args.stsb == "classes":
        task = stsb_classes(task)
    teacher = get_teacher(args, args.teacher, task, engine.device)
    rows = [run_variant(args, v, init, task, teacher, engine) for init in args.inits for v in args.variants]
    results.show(rows, args.out_dir)


def main(args: Args) -> None:
    if args.params:
        if print_parameters():
            raise SystemExit(1)
        return
    engine = train.accelerator(args)
    for name in args.tasks:
        (profile if args.profile else run_task)(args, name, engine)


if __name__ == "__main__":
    run(main, ARGS)
