"""The papers' tables of sizes, counted again from models that are built here.

    python -m bench sizes cmow                   # tables VII and VIII: numbers of parameters
    python -m bench sizes xtc                    # tables C.8 and C.13: MiB by the paper's rule, and bytes on disk
    python -m bench sizes cka                    # tables 2, 3, 5 and 6, and the FLOPs of pre-training
    python -m bench sizes efficient_attention    # table 2

Each line: what is counted, the paper's figure, ours, and a remark. The exit code is 1 if a figure does not agree and
no typo explains it. `python -m bench papers METHOD` prints the same cells among the paper's other tables.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    BertTokenizer,
    DistilBertConfig,
    MBartConfig,
    T5Config,
)

from bench.cli import FOLDER, Parser
from common import models, results
from common.args import student_shape
from common.layers import packed
from common.layers.attention import convert
from pocket.models import SPECIAL_TOKENS


class Cell(NamedTuple):
    """One figure of a table. `found` is in the printed figure's unit; an int is exact."""

    table: str
    row: str
    column: str
    printed: str
    found: float
    remark: str


# --- cmow: tables VII and VIII -------------------------------------------------------------------------------

# Encoder, DiffCat, head: the whole model, then its classifier, each with 2, 3 and 21 classes. As printed.
CMOW = """
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


def cmow_parameters(encoder: str, diffcat: bool, head: str, classes: int) -> tuple[int, int]:
    """Parameters of (the whole model, its classifier) at the paper's sizes; the model is built without memory."""
    from methods import cmow

    matrix, vector = cmow.PAPER_SIZES[encoder]
    shape: dict[str, Any] = {"matrix_size": matrix, "vector_size": vector, "num_labels": classes}
    shape |= {"bidirectional": encoder == "bidirectional", "diffcat": diffcat, "head": head}
    config = cmow.MatrixEmbeddingConfig(**shape)
    with torch.device("meta"):
        model = cmow.MatrixEmbeddingForSequenceClassification(config)
        classifier = models.parameters(model.head)
        if (encoder, diffcat, head) == ("cmow", False, "bilstm") and classes != 21:  # these two cells hold an MLP
            D = 784
            layers = nn.Linear(D, D), nn.Linear(D, D // 2), nn.LayerNorm(D // 2), nn.Linear(D // 2, classes)
            classifier = sum(models.parameters(layer) for layer in layers)
        # the paper's CBOW holds a table of 28 x 28 matrices that it never reads
        unused = nn.Embedding(config.vocab_size, vector) if encoder == "cbow" else nn.Identity()
        return models.parameters(model.embeddings) + models.parameters(unused) + classifier, classifier


def cmow_cells() -> list[Cell]:
    cells = []
    for line in CMOW.strip().splitlines():
        encoder, diffcat, head, *printed = line.split()
        counts = [cmow_parameters(encoder, diffcat == "on", head, C) for C in CLASSES]
        columns = [(part, C, count[j]) for j, part in enumerate(("model", "classifier"))
                   for C, count in zip(CLASSES, counts, strict=True)]  # fmt: skip
        for (part, C, found), cell in zip(columns, printed, strict=True):
            if cell == "-":
                remark = "blank in the paper"
            elif int(cell.replace(",", "")) != found:
                remark = "MISMATCH"
            elif "," in cell and cell != f"{found:,}":
                remark = "ok (misplaced commas)"
            else:
                an_mlp = (encoder, diffcat, head) == ("cmow", "off", "bilstm") and C != 21
                remark = "ok (an MLP: Linear(784, 784), Linear(784, 392), LayerNorm, Linear)" if an_mlp else "ok"
            table = "VIII" if diffcat == "on" else "VII"
            cells.append(Cell(table, f"{encoder} + {head}", f"{part}, {C} classes", cell, found, remark))
    return cells


# --- cka: tables 2, 3, 5 and 6, and the arithmetic of section 3.2 ---------------------------------------------

# Table, family, layers x width (of an encoder-decoder both sides' layers), millions as printed
CKA = """
2  bart       6x640   80
2  bart       6x768   100
2  bart       12x768  140
2  bart       24x768  239
3  mbart      24x1024 610
3  mbart      12x384  122
3  mbart      12x512  173
3  mbart      24x512  217
3  mbart      24x640  300
3  mbart      2x1024  287
3  mbart      4x1024  319
5  t5         48x2048 2850
5  t5         12x768  145
5  t5         24x768  250
5  t5         24x1024 425
5  t5         48x1024 780
6  bert       12x768  110
6  bert       6x384   22.0
6  bert       12x384  33.0
6  bert       8x512   49.8
6  bert       12x512  66.5
6  bert       6x768   66.9
6  distilbert 4x768   52.2
"""
T5: dict[str, Any] = {"d_kv": 64, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 32128}
TEACHERS: dict[str, Any] = {
    "bert": BertConfig(), "distilbert": DistilBertConfig(), "bart": BartConfig(),
    "mbart": MBartConfig(vocab_size=250027),
    "t5": T5Config(d_model=2048, d_ff=5120, num_heads=32, num_layers=24, **T5),
}  # fmt: skip
PFLOPS = {"12x384": "79", "12x512": "84", "24x512": "90", "24x640": "99"}  # of pre-training an mBART, as printed
# Figures that the students of the paper's own description do not have, and why
CKA_DIFFERENT = {
    "mbart 4x1024": "no split of the layers has 319M",
    "t5 12x768": "T5's own d_ff and output layer; the paper's 145 has no such model",
    "t5 24x768": "this is Flan-T5-base, which has 247.6M",
    "t5 48x1024": "this is Flan-T5-large, which has 783.2M",
    "bert 6x384": "22.7M with BERT's pooler, 22.6M without",
    "bert 12x384": "33.4M with BERT's pooler, 33.2M without",
}


def cka_model(family: str, shape: str) -> Any:
    """A student (or the teacher), without memory; of a BERT with its pooler."""
    from methods import cka

    teacher, (layers, width) = TEACHERS[family], student_shape(shape)
    ffn = cka.PAPER_FFN.get((teacher.model_type, shape))
    config = models.student_config(teacher, layers, width, ffn=ffn)
    with torch.device("meta"):
        config._attn_implementation = "eager"
        return models.build(config, AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel)


def flops(model: Any) -> int:
    """Floating-point operations to read and write a text of 512 tokens, as the library counts them. A training step
    takes three times as many: each product of the forward pass has two of its size in the backward pass."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        ids = torch.zeros(1, 512, dtype=torch.long)
        model(input_ids=ids, decoder_input_ids=ids, use_cache=False)
    return counter.get_total_flops()


@cache  # a pass of every model: tables ask one by one
def cka_cells() -> list[Cell]:
    """The paper rounds to a million, and BERTs to a tenth."""
    cells = []
    for line in CKA.strip().splitlines():
        table, family, shape, printed = line.split()
        found = models.parameters(cka_model(family, shape)) / 1e6
        close = abs(found - float(printed)) < (0.1 if "." in printed else 1)
        remark = "ok" if close else "MISMATCH"
        if remark == "MISMATCH" and (why := CKA_DIFFERENT.get(f"{family} {shape}")):
            remark = f"differs: {why}"
        cells.append(Cell(f"{table}-sizes", f"{family} {shape}", "P(M)", printed, found, remark))
    teacher = flops(cka_model("mbart", "24x1024"))
    for shape, printed in PFLOPS.items():
        student = flops(cka_model("mbart", shape))
        epoch, run = 40_000 * 3 * (student + teacher) / 1e15, 25 * 40_000 * (3 * student + teacher) / 1e15
        remark = f"differs: one epoch of full texts, both models trained; all 25, the teacher not: {run:,.0f}"
        cells.append(Cell("3-sizes", f"mbart {shape}", "PFLOPs", printed, epoch, remark))
    return cells


# --- efficient attention: table 2 ----------------------------------------------------------------------------

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
ROBERTA = BASE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
# Row, family, configuration, attention, and the millions that are printed, also of half the layers ("-": no such row).
# Models with an attention read 4096 tokens, the others 512.
EFFICIENT_ATTENTION: tuple[tuple[str, str, dict[str, Any], str | None, str, str], ...] = (
    ("BERT-base", "bert", {}, None, "109.5", "-"),
    ("BERT-large", "bert", LARGE, None, "335.1", "-"),
    ("RoBERTa", "roberta", ROBERTA, None, "124.6", "82.1"),
    ("LegalBERT-base", "bert", {}, None, "109.5", "-"),
    ("XLM-R", "xlm-roberta", ROBERTA | {"vocab_size": 250002}, None, "278.0", "-"),
    ("DistilBERT", "distilbert", {}, None, "66.4", "-"),
    ("TinyBERT", "bert", TINY, None, "4.4", "-"),
    ("MobileBERT", "mobilebert", {"classifier_activation": False}, None, "24.6", "-"),
    ("ALBERT", "albert", BASE, None, "11.7", "-"),
    ("LSG", "roberta", ROBERTA, "lsg", "127.8", "85.3"),
    ("Nystromformer", "roberta", ROBERTA | {"vocab_size": 30000, "type_vocab_size": 2}, "nystromformer", "111.2",
     "68.7"),
    ("Longformer", "roberta", ROBERTA, "longformer", "148.7", "95.5"),
    ("Big Bird", "bert", {"vocab_size": 50358}, "bigbird", "127.5", "84.9"),
)  # fmt: skip


class Specials:
    """The ids that LSG asks a tokenizer for, where there is none."""

    cls_token_id, mask_token_id = 2, 4


def encoder(family: str, settings: dict[str, Any], attention: str | None, half: bool, length: int | None = None) -> Any:
    """A random encoder, or one of half as many layers, that reads `length` tokens (default: 4096 with an attention, 512
    without); Nystromformer has no pooler."""
    config = AutoConfig.for_model(family, **settings)
    if half:
        config.num_hidden_layers //= 2
    if length and attention is None:
        config.max_position_embeddings = length + 2
    model = AutoModel.from_config(config)
    if attention is not None:
        convert(model, attention, length or 4096, Specials)
    if attention == "nystromformer":
        model.pooler = None
    return model


def attention_cells() -> list[Cell]:
    cells = []
    for name, family, settings, attention, *printed in EFFICIENT_ATTENTION:
        for column, cell in zip(("all layers", "half the layers"), printed, strict=True):
            if cell != "-":
                with torch.device("meta"):
                    millions = models.parameters(encoder(family, settings, attention, column != "all layers")) / 1e6
                close = abs(millions - float(cell)) < 0.1
                remark = f"cut off, not rounded ({millions:.1f})" if close else "MISMATCH"
                remark = "ok" if f"{millions:.1f}" == cell else remark
                cells.append(Cell("2-sizes", name, column, cell, millions, remark))
    return cells


# --- xtc: tables C.8 and C.13 --------------------------------------------------------------------------------

MIB = 2**20
# layers, bits, LoRA rank: MiB and "x smaller", as printed
XTC = {
    (12, 2, 0): (26.8, 16.0), (12, 1, 0): (13.0, 32.0),
    (6, 32, 0): (255.2, 1.6), (6, 2, 0): (16.0, 26.2), (6, 1, 0): (8.0, 52.3), (6, 2, 1): (16.2, None),
    (6, 1, 1): (8.1, None),
    (5, 32, 0): (228.2, 1.8), (5, 2, 0): (14.2, 29.3), (5, 1, 0): (7.1, 58.5), (5, 2, 1): (14.6, 28.7),
    (5, 1, 1): (7.3, 57.4),
    (4, 32, 0): (201.2, 2.1), (4, 2, 0): (12.6, 33.2), (4, 1, 0): (6.3, 66.4), (4, 2, 1): (12.8, 32.6),
    (4, 1, 1): (6.4, 65.2),
}  # fmt: skip
XTC_HEADER = ["BERT-base, MiB", "rule", "", "published", "", "on disk", ""]


def xtc_rule(layers: int, bits: int, rank: int = 0) -> float:
    """MiB of BERT-base by the paper's rule: all matrices, position embeddings and pooler included, at `bits` bits.

    Biases, layer norms and the head are not counted. Adapters: 13,824 numbers a layer and 1,536 for the pooler at rank
    1, two bytes each, fits what is printed with 1 bit; they do not grow with the bits.
    """
    D, counted = 768, (30522 + 512 + 2) * 768 + 768**2 + layers * 7_077_888
    adapters = rank * (layers * 18 * D + 2 * D) * 2
    return (counted / 8 * bits + adapters) / MIB


def xtc_remark(layers: int, bits: int, rank: int) -> str:
    """Whether the published size and ratio of a model are what the rule gives."""
    size, ratio = XTC[layers, bits, rank]
    found, whole = xtc_rule(layers, bits, rank), xtc_rule(12, 32)
    if bits == 2 and rank and math.isclose(size, 2 * XTC[layers, 1, rank][0]):
        return f"differs by {size - found:.2f}: printed is twice the rounded 1-bit figure, adapters too"
    if ratio is None or abs(whole / found - ratio) <= 0.0501:
        if abs(found - size) <= 0.0501:
            return "ok"
        if bits == 2 and math.isclose(size, 2 * XTC[layers, 1, rank][0]):
            return "ok: twice the rounded 1-bit figure"
        if size == 26.8:
            return f"a typo: contradicts the printed x16.0, which is {whole / 16:.2f}"
    return "MISMATCH"


def xtc_cells() -> list[Cell]:
    cells = []
    for (layers, bits, rank), (size, ratio) in XTC.items():
        label = f"{layers} layers, {bits} bit{'s' * (bits > 1)}" + (f", LoRA {rank}" if rank else "")
        found = xtc_rule(layers, bits, rank)
        cells.append(Cell("sizes", label, "MiB", str(size), found, xtc_remark(layers, bits, rank)))
        if ratio is not None:
            cells.append(Cell("sizes", label, "times smaller", str(ratio), xtc_rule(12, 32) / found, ""))
    return cells


def xtc_written(layers: int, bits: int, rank: int, folder: Path) -> float:
    """MiB of a BERT-base of random weights, quantised and exported: weights, scales, float rest and tokenizer."""
    from methods import xtc

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers)
    model = AutoModelForSequenceClassification.from_config(config)
    # stands for BERT's vocabulary: as many words, of six random letters
    letters = torch.randint(97, 123, (config.vocab_size, 6), dtype=torch.uint8).numpy()
    words = dict.fromkeys([*SPECIAL_TOKENS, *(row.tobytes().decode() for row in letters)])
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(list(words)[: config.vocab_size])})
    xtc.quantize(model, bits, lora_rank=rank)
    return packed.save(packed.pack_model(model), tokenizer, folder / f"{layers}-{bits}-{rank}", half=False) / MIB


def xtc_on_disk() -> list[list[str]]:
    """The rows of `XTC_HEADER`: the rule, what is printed, and the bytes of files that are written here."""
    rows: dict[str, list[Cell]] = {}
    for cell in xtc_cells():
        rows.setdefault(cell.row, []).append(cell)
    table, whole = [], xtc_rule(12, 32)
    with tempfile.TemporaryDirectory() as folder:
        for (label, cells), shape in zip(rows.items(), XTC, strict=True):
            disk = f"{xtc_written(*shape, Path(folder)):.2f}" if shape[1] < 32 else "-"
            ratio = f"x{cells[1].printed}" if len(cells) > 1 else "-"
            table.append([label, f"{cells[0].found:.2f}", f"x{whole / cells[0].found:.1f}", cells[0].printed, ratio,
                          disk, cells[0].remark])  # fmt: skip
    return table


# --- the command ---------------------------------------------------------------------------------------------

CELLS: dict[str, Callable[[], list[Cell]]] = {
    "cka": cka_cells, "cmow": cmow_cells, "efficient_attention": attention_cells, "xtc": xtc_cells,
}  # fmt: skip


def shown(cell: Cell) -> str:
    return f"{cell.found:,}" if isinstance(cell.found, int) else f"{cell.found:.2f}"


def main(argv: list[str]) -> None:
    parser = Parser("sizes", __doc__)
    parser.add_argument("method", choices=sorted(CELLS), help="whose paper")
    parser.add_argument("--save", action="store_true", help="xtc: write bench/results/xtc_sizes.json")
    asked = parser.parse_args(argv)
    cells = CELLS[asked.method]()
    if asked.method == "xtc":
        rows = xtc_on_disk()
        print(results.columns(rows, XTC_HEADER))
        print("\nRule: every matrix at so many bits, nothing else. On disk: an exported file with its float32 position"
              "\nembeddings, pooler, norms and biases, its scales, head and tokenizer.")  # fmt: skip
        if asked.save:
            results.write_json(FOLDER / "xtc_sizes.json", {"rows": rows, "environment": results.environment()})
    else:
        table = [[c.row, c.table, c.column, c.printed, shown(c), c.remark] for c in cells]
        print(results.columns(table, ["", "table", "of", "published", "counted here", ""]))
    wrong = sum(cell.remark == "MISMATCH" for cell in cells)
    print(f"\n{len(cells)} cells, {wrong} mismatches.")
    if wrong:
        raise SystemExit(1)
