"""The papers' tables of sizes, counted again from models that are built here.

    python -m bench sizes cmow                   # tables VII and VIII: numbers of parameters
    python -m bench sizes xtc                    # tables C.8 and C.13: MiB by the paper's rule, and bytes on disk
    python -m bench sizes cka                    # tables 2, 3, 5 and 6, and the FLOPs of pre-training
    python -m bench sizes efficient_attention    # table 2

Each line: what is counted, the paper's figure, ours, and a remark. The exit code is 1 if a figure does not agree and
no typo explains it. `python -m bench papers METHOD` prints the same cells among the paper's other tables.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers as hf
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench import published
from bench.cli import FOLDER, Parser
from common import models, results
from common.args import student_shape
from common.layers import packed
from common.layers.attention import convert
from pocket.models import SPECIAL_TOKENS


class Cell(NamedTuple):
    """One figure of a table of bench/published. `found` is in the printed figure's unit; an int is exact."""

    table: str
    row: str
    column: str
    printed: str
    found: float
    remark: str

    @property
    def wrong(self) -> bool:
        return self.remark == "MISMATCH"

    @property
    def text(self) -> str:
        return f"{self.found:,}" if isinstance(self.found, int) else f"{self.found:.2f}"


@cache  # of some a pass of every model: tables ask one by one
def cells(method: str) -> list[Cell]:
    """Every figure of size that a paper has, counted."""
    found = []
    for table in published.load(method).sizes:
        for row in table.rows:
            for column, printed in zip(table.columns, row.cells, strict=True):
                if printed != "-":
                    note = table.notes.get(f"{row}, {column}", table.notes.get(str(row), ""))
                    counted = COUNTED[method](table.name, str(row), column)
                    said = remark(printed, counted, note)
                    found.append(Cell(table.name, str(row), column, printed, counted, said))
    return found


def remark(printed: str, found: float, note: str) -> str:
    """Whether a figure is as printed, up to a unit of its last digit: that may be rounded, or cut off."""
    digits = len(printed.partition(".")[2])
    off = abs(found - float(printed.replace(",", "")))
    if off >= (10**-digits if isinstance(found, float) else 1):
        return f"differs: {note}" if note else "MISMATCH"
    if isinstance(found, float) and f"{found:.{digits}f}" != printed:
        note = note or f"rounds to {found:.{digits}f}"
    elif "," in printed and printed != f"{found:,}":
        note = "misplaced commas"
    return f"ok ({note})" if note else "ok"


# --- cmow: tables VII and VIII -------------------------------------------------------------------------------


@cache
def cmow_parameters(encoder: str, diffcat: bool, head: str, classes: int) -> dict[str, int]:
    """Parameters of the whole model, and of its classifier, at the paper's sizes; the model is built without memory."""
    from methods import cmow

    matrix, vector = cmow.PAPER_SIZES[encoder]
    shape: dict[str, Any] = {"matrix_size": matrix, "vector_size": vector, "num_labels": classes}
    shape |= {"bidirectional": encoder == "bidirectional", "diffcat": diffcat, "head": head}
    config = cmow.MatrixEmbeddingConfig(**shape)
    with torch.device("meta"):
        model = cmow.MatrixEmbeddingForSequenceClassification(config)
        classifier = models.parameters(model.head)
        if (encoder, diffcat, head) == ("cmow", False, "bilstm") and classes != 21:  # these cells hold an MLP
            D = 784
            layers = nn.Linear(D, D), nn.Linear(D, D // 2), nn.LayerNorm(D // 2), nn.Linear(D // 2, classes)
            classifier = sum(models.parameters(layer) for layer in layers)
        # the paper's CBOW holds a table of 28 x 28 matrices that it never reads
        unused = nn.Embedding(config.vocab_size, vector) if encoder == "cbow" else nn.Identity()
        whole = models.parameters(model.embeddings) + models.parameters(unused) + classifier
        return {"model": whole, "classifier": classifier}


def cmow_counted(table: str, row: str, column: str) -> int:
    (encoder, head), (part, classes) = row.split(" + "), column.split(", ")
    return cmow_parameters(encoder, table == "VIII", head, int(classes.split()[0]))[part]


# --- cka: tables 2, 3, 5 and 6, and the arithmetic of section 3.2 ---------------------------------------------

T5: dict[str, Any] = {"d_kv": 64, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 32128}
TEACHERS: dict[str, Any] = {
    "bert": hf.BertConfig(), "distilbert": hf.DistilBertConfig(), "bart": hf.BartConfig(),
    "mbart": hf.MBartConfig(vocab_size=250027),
    "t5": hf.T5Config(d_model=2048, d_ff=5120, num_heads=32, num_layers=24, **T5),
}  # fmt: skip


def cka_model(family: str, shape: str) -> Any:
    """A student (or the teacher), without memory; of a BERT with its pooler."""
    from methods import cka

    teacher, (layers, width) = TEACHERS[family], student_shape(shape)
    ffn = cka.PAPER_FFN.get((teacher.model_type, shape))
    config = models.student_config(teacher, layers, width, ffn=ffn)
    with torch.device("meta"):
        config._attn_implementation = "eager"
        return models.build(config, hf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else hf.AutoModel)


@cache
def flops(family: str, shape: str) -> int:
    """Floating-point operations to read and write a text of 512 tokens, as the library counts them. A training step
    takes three times as many: each product of the forward pass has two of its size in the backward pass."""
    model = cka_model(family, shape)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        ids = torch.zeros(1, 512, dtype=torch.long)
        model(input_ids=ids, decoder_input_ids=ids, use_cache=False)
    return counter.get_total_flops()


def cka_counted(_: str, row: str, column: str) -> float:
    """Millions of parameters; or the PFLOPs of one epoch of 40,000 texts, with student and teacher trained."""
    family, shape = row.split()
    if column == "PFLOPs":
        return 40_000 * 3 * (flops(family, shape) + flops(family, "24x1024")) / 1e15
    return models.parameters(cka_model(family, shape)) / 1e6


# --- efficient attention: table 2 ----------------------------------------------------------------------------

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
ROBERTA = BASE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
# Row -> family, configuration, attention. Models with an attention read 4096 tokens, the others 512.
ENCODERS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "BERT-base": ("bert", {}, None),
    "BERT-large": ("bert", LARGE, None),
    "RoBERTa": ("roberta", ROBERTA, None),
    "LegalBERT-base": ("bert", {}, None),
    "XLM-R": ("xlm-roberta", ROBERTA | {"vocab_size": 250002}, None),
    "DistilBERT": ("distilbert", {}, None),
    "TinyBERT": ("bert", TINY, None),
    "MobileBERT": ("mobilebert", {"classifier_activation": False}, None),
    "ALBERT": ("albert", BASE, None),
    "LSG": ("roberta", ROBERTA, "lsg"),
    "Nystromformer": ("roberta", ROBERTA | {"vocab_size": 30000, "type_vocab_size": 2}, "nystromformer"),
    "Longformer": ("roberta", ROBERTA, "longformer"),
    "Big Bird": ("bert", {"vocab_size": 50358}, "bigbird"),
}


class Specials:
    """The ids that LSG asks a tokenizer for, where there is none."""

    cls_token_id, mask_token_id = 2, 4


def encoder(name: str, half: bool, length: int | None = None) -> Any:
    """A random encoder of table 2, or one of half as many layers, that reads `length` tokens (default: 4096 with an
    attention, 512 without); Nystromformer has no pooler."""
    family, settings, attention = ENCODERS[name]
    config = hf.AutoConfig.for_model(family, **settings)
    if half:
        config.num_hidden_layers //= 2
    if length and attention is None:
        config.max_position_embeddings = length + 2
    model = hf.AutoModel.from_config(config)
    if attention is not None:
        convert(model, attention, length or 4096, Specials)
    if attention == "nystromformer":
        model.pooler = None
    return model


def attention_counted(_: str, row: str, column: str) -> float:
    with torch.device("meta"):
        return models.parameters(encoder(row, column == "half the layers")) / 1e6


# --- xtc: tables C.8 and C.13 --------------------------------------------------------------------------------

MIB = 2**20
XTC_HEADER = ["BERT-base, MiB", "rule", "", "published", "", "on disk", ""]


def xtc_shape(row: str) -> tuple[int, int, int]:
    """Layers, bits, and the rank of the adapters."""
    layers, bits, *rank = map(int, re.findall(r"\d+", row))
    return layers, bits, rank[0] if rank else 0


def xtc_rule(layers: int, bits: int, rank: int = 0) -> float:
    """MiB of BERT-base by the paper's rule: all matrices, position embeddings and pooler included, at `bits` bits.

    Biases, layer norms and the head are not counted. Adapters: 13,824 numbers a layer and 1,536 for the pooler at rank
    1, two bytes each, fits what is printed with 1 bit; they do not grow with the bits.
    """
    D, counted = 768, (30522 + 512 + 2) * 768 + 768**2 + layers * 7_077_888
    adapters = rank * (layers * 18 * D + 2 * D) * 2
    return (counted / 8 * bits + adapters) / MIB


def xtc_counted(_: str, row: str, column: str) -> float:
    found = xtc_rule(*xtc_shape(row))
    return found if column == "MiB" else xtc_rule(12, 32) / found


def xtc_written(layers: int, bits: int, rank: int, folder: Path) -> float:
    """MiB of a BERT-base of random weights, quantised and exported: weights, scales, float rest and tokenizer."""
    from methods import xtc

    torch.manual_seed(0)
    config = hf.BertConfig(num_hidden_layers=layers)
    model = hf.AutoModelForSequenceClassification.from_config(config)
    # stands for BERT's vocabulary: as many words, of six random letters
    letters = torch.randint(97, 123, (config.vocab_size, 6), dtype=torch.uint8).numpy()
    words = dict.fromkeys([*SPECIAL_TOKENS, *(row.tobytes().decode() for row in letters)])
    tokenizer = hf.BertTokenizer(vocab={word: i for i, word in enumerate(list(words)[: config.vocab_size])})
    xtc.quantize(model, bits, lora_rank=rank)
    return packed.save(packed.pack_model(model), tokenizer, folder / f"{layers}-{bits}-{rank}", half=False) / MIB


def xtc_on_disk() -> list[list[str]]:
    """The rows of `XTC_HEADER`: the rule, what is printed, and the bytes of files that are written here."""
    ratios = {cell.row: f"x{cell.printed}" for cell in cells("xtc") if cell.column != "MiB"}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for cell in (cell for cell in cells("xtc") if cell.column == "MiB"):
            shape = xtc_shape(cell.row)
            disk = f"{xtc_written(*shape, Path(folder)):.2f}" if shape[1] < 32 else "-"
            smaller = f"x{xtc_rule(12, 32) / cell.found:.1f}"
            published_ = [cell.printed, ratios.get(cell.row, "-")]
            rows.append([cell.row, cell.text, smaller, *published_, disk, cell.remark])
    return rows


# --- the command ---------------------------------------------------------------------------------------------

# Of a table, a row and a column: the figure
COUNTED: dict[str, Callable[[str, str, str], float]] = {
    "cka": cka_counted, "cmow": cmow_counted, "efficient_attention": attention_counted, "xtc": xtc_counted,
}  # fmt: skip


def main(argv: list[str]) -> None:
    parser = Parser("sizes", __doc__)
    parser.add_argument("method", choices=sorted(COUNTED), help="whose paper")
    parser.add_argument("--save", action="store_true", help="xtc: write bench/results/xtc_sizes.json")
    asked = parser.parse_args(argv)
    if asked.save and asked.method != "xtc":
        parser.error("--save: keeps the table of xtc alone")
    found = cells(asked.method)
    if asked.method == "xtc":
        rows = xtc_on_disk()
        print(results.columns(rows, XTC_HEADER))
        print("\nRule: every matrix at so many bits, nothing else. On disk: an exported file with its float32 position"
              "\nembeddings, pooler, norms and biases, its scales, head and tokenizer.")  # fmt: skip
        if asked.save:
            results.write_json(FOLDER / "xtc_sizes.json", {"rows": rows, "environment": results.environment()})
    else:
        table = [[cell.row, cell.table, cell.column, cell.printed, cell.text, cell.remark] for cell in found]
        print(results.columns(table, ["", "table", "of", "published", "counted here", ""]))
    wrong = sum(cell.wrong for cell in found)
    print(f"\n{len(found)} cells, {wrong} mismatches.")
    if wrong:
        raise SystemExit(1)
