# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "torch==2.13.0", "transformers==5.23.0", "tokenizers==0.23.3", "datasets==5.2.0",
#     "accelerate==1.15.0", "safetensors==0.8.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1",
#     "rouge-score==0.1.2", "sacrebleu==2.6.0", "seqeval==1.2.2", "sentencepiece==0.2.3",
#     "filelock==4.2.11", "matplotlib==3.11.2", "psutil==7.2.2", "tqdm==4.70.1",
# ]
# ///
"""CMOW: general cross-architecture distillation of pretrained language models into matrix embeddings.
Galke et al. 2021: https://arxiv.org/abs/2109.08449

    python methods/cmow.py                                        # pocket task, about a minute on a laptop
    python methods/cmow.py --init random,general                  # also students that start from general distillation
    python methods/cmow.py --task pocket/mrpc --student hybrid-20-400 --head cnn --diffcat off --alpha 1
    python methods/cmow.py --task sst2 --data-dir GLUE_DIR --teacher bert-base-uncased --student bidirectional

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
    masked language model                 MatrixEmbeddings.both_sides, general_loss
    DiffCat, one-sequence encoding        MatrixEmbeddingForSequenceClassification.texts, diffcat
    classifiers (appendix A)              build_head, cnn, BiLstm
    loss (appendix B)                     distil; `baseline` is vanilla KD, the same in all scripts
    table I, search spaces                GRID
    pretrained embeddings (appendix C)    load_embeddings; those of Mai et al.: docs/tables.md
    data augmentation (appendix C)        common/layers/augment.py, `--augment`
docs/cmow.md lists what differs from the paper, and how its gaps are read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.args import CORPUS, BadInput, CommonArgs, arg, execute, parse, split_paths, variants

# Shapes: B batch, L length, s side of a token's matrix, d width of its vector, w of both, D of an encoding, C classes,
# V vocabulary, n chosen positions of a batch. torch is imported below the arguments: a wrong one is answered at once.


# --- products, and the loss of general distillation ----------------------------------------------------------


def ordered_product(M: Tensor) -> Tensor:
    """(B, L, s, s) -> (B, s, s): M_1 M_2 ... M_L, as a balanced tree: log2 L batched products of neighbours.

    A matrix without a neighbour moves up as it is, so identities on the right change no bit of the result; on the left
    they move the pairs, which changes its rounding.
    """
    while (L := M.shape[1]) > 1:
        left, right = M[:, : L - L % 2].unflatten(1, (L // 2, 2)).unbind(2)
        pairs = left @ right
        if L % 2:
            pairs = torch.cat([pairs, M[:, -1:]], 1)
        M = pairs
    return M[:, 0]


def prefix_products(M: Tensor) -> Tensor:
    """(B, L, s, s) -> (B, L, s, s), at i the product M_1 ... M_i: one after the other, L - 1 batched products."""
    # unbind's gradient is stacked once; indexing M[:, i] would fill a zero gradient as large as M for every i
    return torch.stack(list(accumulate(M.unbind(1), torch.matmul)), 1)


def add_identity(rows: Tensor) -> Tensor:
    """(..., s s) -> (..., s, s), I + every row."""
    s = math.isqrt(rows.shape[-1])
    return torch.eye(s, device=rows.device) + rows.unflatten(-1, (s, s))


def diffcat(a: Tensor, b: Tensor | None = None) -> Tensor:
    """[a, b, |a - b|]: (..., D) twice -> (..., 3 D); a text without a second one stays as it is."""
    if b is None:
        return a
    return torch.cat([a, b, (a - b).abs()], -1)


def general_loss(student: Tensor, teacher: Tensor, labels: Tensor, over_tokens: Any, soft: float = 5.0,
                 hard: float = 2.0) -> Tensor:  # fmt: skip
    """(), of (n, V) logits: soft T^2 KL(teacher || student) + hard CE, T = 2; masked tokens have labels >= 0.
    `over_tokens` is `mean_of_tokens` of a part of a batch, so that the parts' losses add up to that of the batch."""
    masked = labels >= 0
    L_soft = over_tokens(kl_loss(student, teacher, temperature=2.0))
    L_hard = mean(label_loss(student[masked], labels[masked]))  # KL over tokens, CE over masked ones
    return soft * term("KL", L_soft) + hard * term("MLM", L_hard)


# --- arguments -----------------------------------------------------------------------------------------------

PAPER_EPOCHS = 20
PAPER_SIZES = {"cbow": (0, 784), "cmow": (28, 0), "hybrid": (20, 400), "bidirectional": (20, 400)}  # matrix, vector
STUDENTS = "cbow[-VECTOR], cmow[-MATRIX], hybrid[-MATRIX-VECTOR] or bidirectional[-MATRIX-VECTOR]"


@dataclass
class Args(CommonArgs):
    """The arguments of all scripts, and CMOW's; those called general_ are of general distillation."""

    # Table I; its type, direction and start of the embeddings make another row here: `--student`, `--init`
    GRID: ClassVar = {
        "general_lr": (1e-3, 5e-4, 1e-4, 5e-5, 1e-5),
        "general_warmup_steps": (0, 500),
        "general_embedding_dropout": (0.0, 0.1),
        "general_hidden_dropout": (0.2,),
        "general_batch_size": (1, 8, 32, 64, 128, 256),  # by hand in the paper
        "lr": (1e-3, 5e-4, 1e-4, 5e-5, 1e-5, 5e-6),
        "diffcat": ("on", "off"),
        "head": ("linear", "mlp", "cnn", "bilstm"),
    }
    KINDS = ("classification", "regression")
    checkpoint = None  # `--init` names matrix embeddings, never a checkpoint of the library

    variant: str = variants("finetune,kd", ("finetune", "kd"))
    task: str = "pocket/rte"
    student: str = arg("bidirectional-10-100", STUDENTS)
    init: str = arg("random", "first embeddings, one or several: random, general (is run first), or a folder of them")
    lr: float | None = arg(None, "peak learning rate (default: pocket tasks 5e-3, others 1e-3)", above=0)
    head: Literal["linear", "mlp", "cnn", "bilstm"] = arg("mlp", "classifier on top of the embeddings")
    mlp_width: int = arg(1000, "hidden units of the MLP head", low=1)
    diffcat: Literal["auto", "on", "off"] = arg("auto", "two texts as [a, b, |a-b|]; auto: of pairs; off: as one text")
    stsb: Literal["regression", "classes"] = arg("regression", "STS-B as a regression, or as the paper's 21 classes")
    augment: int = arg(0, "kd: copies of each training text with words replaced (TinyBERT's augmentation)", low=0)
    general_share: float = arg(0.25, "its share of the budget", above=0, below=1)
    general_lr: float = arg(2e-3, "its peak learning rate (the paper: 5e-4, over one epoch of Wikipedia)", above=0)
    general_warmup_steps: int | None = arg(None, "its warm-up (default: a twentieth of its steps)", low=0)
    general_batch_size: int | None = arg(None, "its texts a batch (default: --batch-size)", low=1)
    general_embedding_dropout: float = arg(0.0, "share of embedding entries dropped", low=0, below=1)
    general_hidden_dropout: float = arg(0.0, "dropout before the output layer", low=0, below=1)
    general_weights: str = arg("5,2", "weights of the teacher's soft labels and of the masked words")
    general_clip: float = arg(1.0, "largest norm of a gradient", above=0)
    corpus: str | None = arg(None, f"text of general distillation, {CORPUS} (default: pocket documents, or the task's)")

    def wrong(self) -> Iterator[str]:
        if self.gradient_checkpointing or self.keep != "first":
            yield "--gradient-checkpointing, --keep: this student has no layers; leave them out"
        for init in self.inits or [self.init]:
            if init not in ("random", "general") and not (Path(init) / "config.json").exists():
                yield f"--init {init}: must be random, general, or a folder of matrix embeddings"
        if len({*self.inits} - {"random", "general"}) > 1:
            yield f"--init {self.init}: one folder at a time; the rows of two would have one name"
        if self.head == "cnn":
            if self.batch_size < 2:
                yield f"--batch-size {self.batch_size}: --head cnn has a batch norm, which needs 2 or more"
            image_side(**encoder_sizes(self.student))
        if not re.fullmatch(r"\d+(\.\d+)?,\d+(\.\d+)?", self.general_weights):
            yield f"--general-weights {self.general_weights!r}: must be two numbers, for example 5,2"

    def grid(self, variant: str) -> dict[str, tuple[Any, ...]]:
        """Table I by argument; general distillation's half of it where `--init` names general."""
        general = "general" in self.inits
        return {name: values for name, values in self.GRID.items() if general or not name.startswith("general_")}

    def check_student(self) -> None:
        encoder_sizes(self.student)

    @property
    def inits(self) -> list[str]:
        return split_paths(self.init)

    def rows(self) -> dict[str, tuple[str, str]]:
        """Each row's label, with where its embeddings start from, and its variant."""
        prefix = {"random": "", "general": "general-"}
        return {prefix.get(init, "pretrained-") + name: (init, name) for init in self.inits for name in self.variants}


def encoder_sizes(student: str) -> dict[str, int]:
    """`"hybrid-20-400"` -> sizes of a `MatrixEmbeddingConfig`; a name alone has the paper's. `BadInput` for others."""
    name, *sizes = student.split("-")
    matrix, vector = PAPER_SIZES.get(name, (0, 0))
    tables = (matrix > 0) + (vector > 0)
    if not tables or len(sizes) not in (0, tables) or not all(re.fullmatch(r"[1-9]\d{0,3}", s) for s in sizes):
        raise BadInput(f"--student {student!r}: must be {STUDENTS}; for example hybrid-20-400")
    if sizes and matrix:
        matrix = int(sizes[0])
    if sizes and vector:
        vector = int(sizes[-1])
    return {"matrix_size": matrix, "vector_size": vector, "bidirectional": name == "bidirectional"}


def image_side(matrix_size: int, vector_size: int, **_: Any) -> int:
    """The side of the square images that the CNN sees: the matrices, and the vector folded into one. `BadInput` for a
    vector that has another number of entries, or a side below 3."""
    side = matrix_size or math.isqrt(vector_size)
    if side < 3 or vector_size not in (0, side * side):
        raise BadInput("--head cnn: needs matrices of 3 x 3 or more, and vectors of as many entries; for example"
                       " --student cbow-100, cmow-10 or hybrid-10-100")  # fmt: skip
    return side


if __name__ == "__main__":  # --help and wrong arguments are answered before the slow imports
    ARGS = parse(Args, __doc__)

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput

from common import models, text
from common.data import load
from common.errors import refused
from common.layers.augment import add_copies
from common.losses import baseline, kl_loss, label_loss, term
from common.parallel import batch_norm, mean
from common.run import Loading, Run, other_words, task_runs
from common.tasks import TaskData
from common.teacher import Teacher, get_teacher
from common.train import Batch

# --- the student ---------------------------------------------------------------------------------------------


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
    embedding_dropout: float = 0.0  # in general distillation
    hidden_dropout: float = 0.0
    cls_token_id: int | None = 101
    sep_token_id: int | None = 102
    initializer_range: float = 0.01


class MatrixEmbeddings(nn.Module):
    """A vector, a matrix, or both for every token, and the encodings made of them.

    A table of matrices holds M - I: a token's matrix is I + its row. Where `mask` is 0 the row counts as zero, so
    padding is the exact identity and the zero vector. What a student does not have is a table of width 0.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        V, d, s = config.vocab_size, config.vector_size, config.matrix_size
        self.vectors = nn.Embedding(V, d)
        self.forward_matrices = nn.Embedding(V, s * s)
        self.backward_matrices = nn.Embedding(V, s * s * config.bidirectional)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.bidirectional = config.bidirectional
        self.width = d + s * s * (1 + config.bidirectional)  # D
        self.side_width = d + s * s  # of what is on one side of a position, for the masked language model
        self.token_width = self.side_width * (1 + config.bidirectional)  # of a token, for the BiLSTM

    def tokens(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, L) ids and mask -> vectors (B, L, d), forward and backward matrices (B, L, s, s)."""
        tables = self.vectors, self.forward_matrices, self.backward_matrices
        v, M, R = (self.dropout(table(ids)) * mask[..., None] for table in tables)
        return v, add_identity(M), add_identity(R)

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, D): [sum of vectors, M_1 M_2 ... M_L, R_L ... R_2 R_1]."""
        v, M, R = self.tokens(ids, mask)
        return torch.cat([v.sum(1), ordered_product(M).flatten(1), ordered_product(R.flip(1)).flatten(1)], -1)

    def both_sides(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, L, 2 (d + s^2)): at i the encodings of tokens 1..i and of i..L, token i in both."""
        v, M, R = self.tokens(ids, mask)
        prefix = torch.cat([v.cumsum(1), prefix_products(M).flatten(2)], -1)
        if self.bidirectional:
            products = prefix_products(R.flip(1)).flip(1)  # at i: R_L ... R_i
        else:
            products = prefix_products(M.flip(1).mT).mT.flip(1)  # M_i ... M_L = (M_L^T ... M_i^T)^T
        suffix = torch.cat([v.flip(1).cumsum(1).flip(1), products.flatten(2)], -1)
        return torch.cat([prefix, suffix], -1)

    def sequence(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, L, w), every token's [vector, matrix] per direction, for the BiLSTM."""
        v, M, R = self.tokens(ids, mask)
        parts = [v, M.flatten(2)]
        if self.bidirectional:
            parts += [v, R.flatten(2)]
        return torch.cat(parts, -1)


def moved_to_front(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L) ids and the mask of a text -> (B, L'), its tokens first, as long as the longest: for shorter products."""
    longest = max(1, int(mask.sum(1).max()))
    tokens_first = mask.long().argsort(dim=1, descending=True, stable=True)[:, :longest]  # by their places in ids
    return ids.gather(1, tokens_first), mask.gather(1, tokens_first)


def cnn(c: int, s: int, classes: int) -> nn.Sequential:
    """2D-CNN over an encoding (B, c s s) as c images of s x s: one up-sampling, three convolutions without padding."""
    side = ((4 * s - 3 - 3) // 2 + 1 - 3) // 2 + 1  # (x - kernel) // stride + 1 each
    return nn.Sequential(
        nn.Unflatten(1, (c, s, s)), nn.ConvTranspose2d(c, c, 4, stride=4), nn.ReLU(),
        nn.Conv2d(c, c, 4), nn.ReLU(),
        nn.Conv2d(c, c + 2, 3, stride=2), nn.ReLU(),
        nn.Conv2d(c + 2, c + 2, 3, stride=2), nn.ReLU(), batch_norm(c + 2),
        nn.Flatten(), nn.Dropout(0.4), nn.Linear((c + 2) * side * side, classes),
    )  # fmt: skip


class BiLstm(nn.Module):
    """One bidirectional LSTM over token embeddings of width w, then two linear layers.

    H = w, but for CBOW and hybrid without DiffCat 512, with a norm of 2H between the linear layers. How 2 x H reach
    that norm is in no source: here the first linear layer reads the LSTM's output at both ends of the text (`ends`).
    """

    def __init__(self, w: int, H: int, classes: int, ends: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(w, H, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(2 * H, H)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(2 * H) if ends else None
        self.output = nn.Linear(H * (1 + ends), classes)

    def forward(self, sequence: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, w) and (B,), the tokens of each text first -> (B, C)."""
        packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
        with torch.autocast(sequence.device.type, enabled=False):  # some processors have no LSTM of half precision
            states, (final, _) = self.lstm(packed)
        if self.norm is None:  # either direction's last state: (2, B, H) -> (B, 2H)
            return self.output(self.dropout(F.relu(self.hidden(final.transpose(0, 1).flatten(1)))))
        states, _ = pad_packed_sequence(states, batch_first=True)  # (B, L, 2H)
        last = states[torch.arange(len(states), device=states.device), lengths - 1]
        first_and_last = torch.stack([states[:, 0], last], 1)  # (B, 2, 2H) -> (B, 2, H) -> (B, 2H)
        return self.output(self.norm(self.dropout(F.relu(self.hidden(first_and_last))).flatten(1)))


def build_head(config: Any, embeddings: MatrixEmbeddings) -> nn.Module:
    """The classifier that `config.head` names, over an encoding (B, D), or over three of them with DiffCat."""
    copies = 1 + 2 * config.diffcat  # [a, b, |a - b|]
    D = copies * embeddings.width
    C = config.num_labels
    if config.head == "linear":
        return nn.Sequential(nn.LayerNorm(D), nn.Linear(D, C))
    if config.head == "mlp":
        H = config.mlp_width
        return nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.LayerNorm(H), nn.Linear(H, C))
    if config.head == "cnn":
        s = image_side(config.matrix_size, config.vector_size)
        return cnn(D // s**2, s, C)
    # the BiLSTM reads token embeddings; without DiffCat those with vectors have 512 units (the paper's CBOW and hybrid)
    w = copies * embeddings.token_width
    if config.vector_size and not config.diffcat:
        return BiLstm(w, 512, C, ends=True)
    return BiLstm(w, w, C, ends=False)


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
        self.head = build_head(config, self.embeddings)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None,
                **_: Any) -> SequenceClassifierOutput:  # fmt: skip
        """(B, L) twice -> logits (B, C), and with labels the loss. Token types are not read: [SEP] parts texts."""
        # in float32: matrices are the identity and some 0.01 at first, which bf16 products would lose
        with torch.autocast(input_ids.device.type, enabled=False):
            texts = self.texts(input_ids, attention_mask.bool())
            inputs = self.sequences(texts) if self.config.head == "bilstm" else [self.encoding(texts)]
        logits = self.head(*inputs)
        loss = None
        if labels is not None:
            loss = mean(label_loss(logits, labels))
        return SequenceClassifierOutput(loss, logits)

    def texts(self, ids: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(ids, mask), each (B, L'), of the sequences to encode: two with DiffCat, otherwise one with its [SEP]s."""
        if not self.config.diffcat:
            return [moved_to_front(ids, mask)]
        separator = ids == self.config.sep_token_id
        words = mask & ~separator & (ids != self.config.cls_token_id)
        after_first = separator.cumsum(1) > 0
        return [moved_to_front(ids, words & ~after_first), moved_to_front(ids, words & after_first)]

    def encoding(self, texts: list[tuple[Tensor, Tensor]]) -> Tensor:
        """(B, D), or with DiffCat (B, 3 D)."""
        return diffcat(*(self.embeddings.pooled(ids, mask) for ids, mask in texts))

    def sequences(self, texts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        """Token embeddings (B, L', w) and lengths (B,); with DiffCat the k-th token of a beside the k-th of b."""
        lengths = torch.stack([mask.sum(1) for _, mask in texts]).amax(0).clamp(min=1)
        L = max(mask.shape[1] for _, mask in texts)
        padded = [[F.pad(x, (0, L - x.shape[1])) for x in text] for text in texts]
        return diffcat(*(self.embeddings.sequence(*text) for text in padded)), lengths


class MatrixEmbeddingForMaskedLM(MatrixEmbeddingModel):
    """Every position's prefix and suffix below one linear layer, for general distillation."""

    def __init__(self, config: MatrixEmbeddingConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.output = nn.Linear(2 * self.embeddings.side_width, config.vocab_size)  # not tied: 1600 -> V
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> Tensor:
        """(B, L) twice -> (n, V) logits of the n tokens that are no padding, row by row."""
        mask = attention_mask.bool()
        with torch.autocast(input_ids.device.type, enabled=False):
            sides = self.embeddings.both_sides(input_ids, mask)
        return self.output(self.dropout(sides[mask]))


AutoConfig.register("cmow", MatrixEmbeddingConfig, exist_ok=True)
AutoModelForSequenceClassification.register(MatrixEmbeddingConfig, MatrixEmbeddingForSequenceClassification, True)


def student_config(args: Args, tokenizer: Any, **settings: Any) -> MatrixEmbeddingConfig:
    """The student that the arguments describe, over the tokenizer's vocabulary."""
    settings |= encoder_sizes(args.student) | {"head": args.head, "mlp_width": args.mlp_width}
    settings |= {name: getattr(tokenizer, name) for name in ("cls_token_id", "sep_token_id", "pad_token_id")}
    return MatrixEmbeddingConfig(vocab_size=models.vocabulary_size(tokenizer), **settings)


# --- general distillation, and one row of the table ----------------------------------------------------------

GENERAL_SEED = 0  # one general distillation for all variants and seeds, like a published checkpoint


def general_distillation(args: Args, run: Run) -> Path:
    """The folder of a masked LM that has learnt from the teacher's on unlabelled text. Every run is charged for
    it: `--general-share` of a budget, or with `--budget paper` an epoch of the texts."""
    texts = text.open_texts(args.corpus, run.task)
    batch_size = args.general_batch_size or args.batch_size
    steps = run.steps_for(args.general_share, batch_size)
    epochs = 0
    if args.budget == "paper" and texts.stream is None:
        steps = -(-len(texts.head) // batch_size)
    elif args.budget == "paper":
        steps = 0  # as many as the stream has
        epochs = 1
    warmup = 0.05
    if args.general_warmup_steps is not None:
        if epochs:
            raise BadInput("--general-warmup-steps: how many steps an epoch of a stream has is not known; leave it out")
        warmup = min(1.0, args.general_warmup_steps / steps)
    soft, hard = map(float, args.general_weights.split(","))
    dropout = {"embedding_dropout": args.general_embedding_dropout, "hidden_dropout": args.general_hidden_dropout}
    tokenizer = run.teacher.tokenizer
    V = models.vocabulary_size(tokenizer)  # a teacher may have embeddings to spare, which are no words

    def build(_: PreTrainedModel) -> PreTrainedModel:
        return MatrixEmbeddingForMaskedLM(student_config(args, tokenizer, **dropout))

    def loss(student: nn.Module, teacher: Teacher, batch: Batch) -> Tensor:
        # at every token, as in DistilBERT's recipe
        T = teacher(batch).logits[batch.mask][:, :V]
        return general_loss(student(**batch.inputs), T, batch.labels[batch.mask], batch.mean_of_tokens, soft, hard)

    recipe = text.Recipe(
        texts, args.general_lr, batch_size, args.max_length, GENERAL_SEED, steps, epochs,
        pieces=epochs > 0,  # of a stream
        smoothing=0.7,  # rare tokens are masked more often: by count^-0.7
        more={"student": args.student, "weights": args.general_weights} | dropout,
        optimizer={"warmup": warmup, "betas": (0.9, 0.98), "eps": 1e-6, "decay": 0.0, "clip": args.general_clip},
    )  # fmt: skip
    return text.pretrain(run, "general", recipe, build, loss).folder


def load_embeddings(embeddings: MatrixEmbeddings, folder: str | Path) -> None:
    """Take over the embeddings in a folder, as this script writes it; `BadInput` if they are of other sizes."""
    what = f"--init {folder}: holds no matrix embeddings of this --student and this --teacher's vocabulary"
    with refused(what, OSError, RuntimeError, SafetensorError):
        weights = load_file(Path(folder) / "model.safetensors")
        own = {k.removeprefix("embeddings."): v for k, v in weights.items() if k.startswith("embeddings.")}
        embeddings.load_state_dict(own)


def stsb_classes(task: TaskData) -> TaskData:
    """STS-B as in the paper: class i of 21 is the score 1 + 0.2 i; scores below 1 count as 1. Evaluation splits keep
    their scores: a score is a linear map of its class, which no correlation sees. `BadInput` for other scores."""
    if task.task.name != "stsb":
        raise BadInput(f"--stsb classes: {task.name} is not STS-B, whose scores are 0 to 5; leave it out")
    scores: Any = task.splits["train"].labels
    labels = [round((min(max(score, 1.0), 5.0) - 1) / 0.2) for score in scores]
    splits = task.splits | {"train": replace(task.splits["train"], labels=labels)}
    names = tuple(f"{1 + 0.2 * i:.1f}" for i in range(21))
    classes = replace(task.task, kind_or_name="classification", labels=names, score_range=None)
    return replace(task, name=f"{task.name}-21", task=classes, splits=splits)


def settings_of(args: Args, init: str, variant: str, task: TaskData, teacher: Teacher) -> dict[str, Any]:
    """A row's settings besides the arguments. `BadInput` for DiffCat without a separator."""
    diffcat = args.diffcat == "on" or (args.diffcat == "auto" and len(task.task.fields) == 2)
    if diffcat and teacher.tokenizer.sep_token_id is None:
        raise BadInput(f"--diffcat {args.diffcat}: {args.teacher}'s tokenizer has no separator between two texts")
    settings: dict[str, Any] = {"init": init, "diffcat": diffcat, "lr": args.lr or 1e-3, "paper_epochs": PAPER_EPOCHS}
    if init not in ("random", "general"):
        settings["init"] = models.model_name(init)
    if task.source == "pocket":
        settings["lr"] = args.lr or 5e-3
    if variant == "kd":  # Run counts epochs of the original examples; with copies one is so many times longer
        settings["paper_epochs"] *= 1 + args.augment * len(task.task.fields)
    return settings


def build_student(args: Args, run: Run, init: str) -> PreTrainedModel:
    """A row's student, with the embeddings that it starts from."""
    set_seed(args.seed)
    of_task = run.task.task.kind.settings(run.task.task)
    config = student_config(args, run.teacher.tokenizer, diffcat=run.settings["diffcat"], **of_task)
    student = MatrixEmbeddingForSequenceClassification(config)
    models.scale_head(student, run.task.task.kind)
    if init == "general":
        folder = general_distillation(args, run)
        run.started_from = f"general distillation #{folder.name}"
        load_embeddings(student.embeddings, folder)
    elif init != "random":
        if other_words(init, run.teacher.tokenizer):
            raise BadInput(f"--init {init}: its tokenizer has other words than the teacher's")
        run.started_from = f"{run.settings['init']}, not charged"
        load_embeddings(student.embeddings, init)
    return student


def distil(args: Args, run: Run, init: str, variant: str) -> None:
    """Train the student of a row on the task, by vanilla KD or on the labels alone, and write its record."""
    student = build_student(args, run, init)
    teacher = None
    if variant == "kd":
        if args.augment:
            add_copies(run, args.augment)
        teacher = run.kept_teacher()
    # no warm-up, linear decay (appendix B)
    with run.loop({"student": student}, run.lr, warmup=0.0, whole_batch=args.head == "cnn") as loop:
        for batch in loop:
            t = teacher(batch) if teacher else None
            # L = alpha T^2 KL(teacher || student) + (1 - alpha) CE, or CE alone; in appendix B alpha weighs CE
            loop.minimise(baseline(args, batch, student(**batch.inputs), t))
    run.finish(student, loading=Loading("import distil_papers.methods.cmow"))


def main(args: Args) -> None:
    rows = args.rows()
    for task in (load(name, **args.source) for name in args.tasks):
        if task.task.kind == "regression" and args.stsb == "classes":
            task = stsb_classes(task)
        teacher = get_teacher(args, task)
        settings = {label: settings_of(args, *row, task, teacher) for label, row in rows.items()}
        # with --budget paper: the best epoch is kept, and five without a better one end the training
        for run in task_runs(args, "cmow", task, teacher, settings, select=0, patience=5):
            distil(args, run, *rows[run.variant])


if __name__ == "__main__":
    execute(main, ARGS)
