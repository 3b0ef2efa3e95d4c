"""The papers' tables: each row's command is one that its script takes; stages of XTC; sizes that the papers print."""

from __future__ import annotations

import itertools
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import tiny_bert
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from bench import __main__ as entry
from bench import papers
from bench.matrix import module_of
from bench.speed import Specials
from common import models
from common.args import read, student_shape
from common.layers import attention
from common.tasks import TASKS
from methods import cka, cmow, xtc

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
ROBERTA = BASE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}


@cache
def wanted_args(script: str, words: tuple[str, ...]) -> Any:
    """The arguments that a command stands for. The folder of an earlier row, under runs/, need not be there yet."""
    given = papers.pairs(words)
    there = {name: "random" if word.startswith("runs/") else word for name, word in given.items()}
    if there.pop("--data-dir", None):  # nor are files of one's own: checked as the pocket task of their kind
        there["--task"] = f"pocket/{TASKS[there['--task']].pocket}"
    return read(module_of(script).Args, None, list(itertools.chain(*there.items())))


def test_stages_of_xtc_have_lengths_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In relation to each other; with the paper's budget in epochs of the texts and their copies."""
    words = "--variant xtc --bits 32 --stages 2 --student 2x32 --budget paper --augment 30 --stage-steps"
    args = read(xtc.Args, None, f"{words} 50,3".split())
    (row,), run, seen = args.rows.values(), SimpleNamespace(settings={"reduce_share": 0}, left=530), list[int]()

    def train(_args: Any, run: Any, *_: Any) -> None:
        seen.append(_[-1])
        run.left -= seen[-1]

    monkeypatch.setattr(xtc, "train", train)
    xtc.distil(args, run, row, tiny_bert(2, 32), [1, 2])  # type: ignore[arg-type]
    assert seen == [500, 30]
    teacher: Any = SimpleNamespace(model=tiny_bert(2, 32))
    settings = xtc.settings_of(args, row, [1, 2], SimpleNamespace(task=TASKS["cola"]), teacher)
    assert settings["paper_epochs"] == (50 + 3) * (1 + 30)


# --- the papers' tables -----------------------------------------------------------------------------------------

PAPERS = {method: papers.load(method) for method in papers.methods()}
# The starts of the reasons why a row has no command; others are of the teacher, and of tasks that no hub has
REASONS = ("from the literature", "from other rows", "counts of examples", "the teacher")


@pytest.mark.parametrize("method", PAPERS)
def test_every_row_means_something(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a command that the script takes, or a reason why it has none; and is printed."""
    paper, lines = PAPERS[method], set()
    cell = re.compile(r"-|[+-]?[\d,]*\.?\d+%?(/[+-]?\d*\.?\d+)?")  # as printed: one or two numbers, or nothing
    for one in paper.tables + paper.sizes:
        assert all(len(row.cells) == len(one.columns) and all(map(cell.fullmatch, row.cells)) for row in one.rows)
    for one in paper.tables:
        for line in papers.lines_of(paper, one):
            commands, why = line.commands
            assert line.teacher or line.reason or line.values
            local = line.reason is None  # it runs, on data that --data-dir brings
            measured = one.run is None  # times and counts of data: other commands of the bench
            assert commands or (why and (line.teacher or local or measured or why.startswith(REASONS))), (one.name, why)
            assert all(papers.filled(paper.columns[column], line.values) for column in one.columns)
            lines |= {tuple(command) for command in commands}
    assert lines
    for command in lines:
        assert (command[0], command[2]) == ("python", "--task")
        assert command[1] == f"methods/{method}.py" or command[1].startswith("bench/baselines/")
        assert wanted_args(command[1], command[2:]).budget == "paper"
    entry.main(["papers", method])
    text = capsys.readouterr().out
    assert all(f"\nTable {name}. " in text for name in paper.names())


def test_means_in_print_are_the_means_of_what_is_printed() -> None:
    """Of XTC's tables, but for rows of differences; a mistyped figure would show."""
    paper, checked = PAPERS["xtc"], 0
    for one in paper.tables:
        for line in one.rows:
            values, means = {}, {}  # "mrpc:f1" -> its figure; the figures that a mean is of -> the mean
            for column, cell in zip(one.columns, line.cells, strict=True):
                said, figures_ = paper.columns[column], [float(n.rstrip("%")) for n in cell.split("/") if n != "-"]
                if said.startswith("mean of ") and figures_:
                    means[tuple(said.split()[2:])] = figures_[0]
                elif len(names := said.partition(":")[2].split("/")) == len(figures_):
                    values |= {f"{said.partition(':')[0]}:{name}": n for name, n in zip(names, figures_, strict=True)}
            for parts, mean in means.items():
                if set(parts) <= set(values) and line.labels[-1] not in ("difference", "std"):
                    assert abs(mean - sum(map(values.get, parts)) / len(parts)) < 0.055, (one.name, line)
                    checked += 1
    assert checked > 400


# --- sizes in print ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "diffcat", "head", "classes", "whole", "classifier"),
    [  # tables VII and VIII of CMOW; "110,936,21" in print for the BiLSTM's classifier
        ("cmow", False, "linear", 2, 23_932_386, 3_138), ("cmow", False, "bilstm", 21, 35_022_869, 11_093_621),
        ("hybrid", False, "linear", 3, 24_421_603, 4_003), ("hybrid", False, "mlp", 2, 25_222_602, 805_002),
        ("bidirectional", True, "mlp", 2, 40_231_402, 3_605_002),
    ],
)  # fmt: skip
def test_sizes_of_cmow(encoder: str, diffcat: bool, head: str, classes: int, whole: int, classifier: int) -> None:
    matrix, vector = cmow.PAPER_SIZES[encoder]
    bidirectional = encoder == "bidirectional"
    config = cmow.MatrixEmbeddingConfig(matrix_size=matrix, vector_size=vector, num_labels=classes, head=head,
                                        bidirectional=bidirectional, diffcat=diffcat)  # fmt: skip
    with torch.device("meta"):
        model = cmow.MatrixEmbeddingForSequenceClassification(config)
    assert (model.num_parameters(), sum(p.numel() for p in model.head.parameters())) == (whole, classifier)


@pytest.mark.parametrize(
    ("family", "settings", "shape", "millions"),
    [  # tables 2, 3, 5 and 6 of CKA; of a BERT with its pooler
        ("bart", {}, "6x640", 80), ("bart", {}, "24x768", 239), ("mbart", {"vocab_size": 250027}, "12x384", 122),
        ("mbart", {"vocab_size": 250027}, "24x512", 217), ("bert", {}, "8x512", 49.8), ("bert", {}, "6x768", 66.9),
        ("distilbert", {}, "4x768", 52.2),
    ],
)  # fmt: skip
def test_sizes_of_cka(family: str, settings: dict[str, Any], shape: str, millions: float) -> None:
    ffn = cka.PAPER_FFN.get((family, shape))
    config = models.student_config(AutoConfig.for_model(family, **settings), *student_shape(shape), ffn=ffn)
    auto: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel
    with torch.device("meta"):
        assert models.build(config, auto).num_parameters() / 1e6 == pytest.approx(millions, rel=0.006)


@pytest.mark.parametrize(
    ("name", "family", "settings", "whole", "half"),
    [  # table 2 of efficient attention, in millions
        ("longformer", "roberta", ROBERTA, 148.7, 95.5), ("lsg", "roberta", ROBERTA, 127.8, 85.3),
        ("nystromformer", "roberta", ROBERTA | {"vocab_size": 30000, "type_vocab_size": 2}, 111.2, 68.7),
        ("bigbird", "bert", {"vocab_size": 50358}, 127.5, 84.9),
    ],
)  # fmt: skip
def test_sizes_of_efficient_attention(
    name: str, family: str, settings: dict[str, Any], whole: float, half: float
) -> None:
    for layers, millions in ((12, whole), (6, half)):
        with torch.device("meta"):
            model = AutoModel.from_config(AutoConfig.for_model(family, **settings | {"num_hidden_layers": layers}))
            attention.convert(model, name, 4096, Specials)
        if name == "nystromformer":  # which has no pooler
            model.pooler = None
        assert model.num_parameters() / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("layers", "bits", "mib"), [(12, 1, 13.0), (6, 1, 8.0), (5, 32, 228.2), (5, 2, 14.2), (4, 32, 201.2), (4, 1, 6.3)]
)
def test_sizes_of_xtc(layers: int, bits: int, mib: float) -> None:
    """Tables C.2, C.8 and C.13: every matrix, the pooler too, at so many bits, nothing else."""
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model("bert", num_hidden_layers=layers))
    numbers = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    assert numbers * bits / 8 / 2**20 == pytest.approx(mib, abs=0.08)
