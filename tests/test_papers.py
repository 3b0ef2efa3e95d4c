"""Every command that `python -m bench papers NAME --commands` prints builds its models; sizes that the papers print."""

from __future__ import annotations

import itertools
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
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
from common.args import BadInput, read, student_shape
from common.layers import attention
from common.run import build_student, first_weights
from common.tasks import TASKS
from common.teacher import Teacher
from methods import cka, cmow, efficient_attention, xtc

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
ROBERTA = BASE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
XLNET = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072, "vocab_size": 32000}
DEBERTA = BASE | {"relative_attention": True, "pos_att_type": "c2p|p2c", "type_vocab_size": 0, "vocab_size": 50265}
FLAN = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TINY = {"num_hidden_layers": 4, "hidden_size": 312, "intermediate_size": 1200}
# What the configurations of the published checkpoints say, as far as sizes go
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "google-bert/bert-base-uncased": ("bert", {}),
    "google-bert/bert-large-uncased": ("bert", LARGE),
    "huawei-noah/TinyBERT_General_6L_768D": ("bert", {"num_hidden_layers": 6}),
    "huawei-noah/TinyBERT_General_4L_312D": ("bert", TINY),
    "nlpaueb/legal-bert-base-uncased": ("bert", {}),
    "distilbert/distilbert-base-uncased": ("distilbert", {}),
    "distilbert/distilroberta-base": ("roberta", ROBERTA | {"num_hidden_layers": 6}),
    "FacebookAI/xlm-roberta-base": ("xlm-roberta", ROBERTA | {"vocab_size": 250002}),
    "google/mobilebert-uncased": ("mobilebert", {}),
    "nreimers/MiniLMv2-L6-H768-distilled-from-BERT-Base": ("bert", {"num_hidden_layers": 6}),
    "FacebookAI/roberta-base": ("roberta", ROBERTA),
    "allenai/longformer-base-4096": ("longformer", ROBERTA | {"max_position_embeddings": 4098}),
    "google/bigbird-roberta-base": ("big_bird", {}),
    "uw-madison/nystromformer-4096": ("nystromformer", {"max_position_embeddings": 4096}),
    "albert/albert-base-v2": ("albert", BASE | {"vocab_size": 30000}),
    "google/electra-base-discriminator": ("electra", BASE | {"embedding_size": 768}),
    "microsoft/deberta-base": ("deberta", DEBERTA),
    "xlnet/xlnet-base-cased": ("xlnet", XLNET),
    "openai-community/gpt2": ("gpt2", {}),
    "openai-community/gpt2-medium": ("gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "openai-community/gpt2-large": ("gpt2", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "facebook/bart-large-cnn": ("bart", {"vocab_size": 50264}),
    "facebook/bart-large-xsum": ("bart", {"vocab_size": 50264}),
    "facebook/mbart-large-en-ro": ("mbart", {"vocab_size": 250027}),
    "facebook/mbart-large-cc25": ("mbart", {"vocab_size": 250027}),
    "facebook/mbart-large-50": ("mbart", {"vocab_size": 250054}),
    "context-mt/iwslt17-mbart50-1toM-ctx4-cwd1-en-fr": ("mbart", {"vocab_size": 250054}),
    "google/flan-t5-base": ("t5", FLAN | {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12}),
    "google/flan-t5-large": ("t5", FLAN | {"d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16}),
    "google/flan-t5-xl": ("t5", FLAN | {"d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32}),
}


class Tokenizer(Specials):
    """What the scripts ask BERT's for."""

    sep_token_id, pad_token_id = 102, 0

    def __len__(self) -> int:
        return 30522

    def get_vocab(self) -> dict[str, int]:
        return {"the last word": 30521}


@cache
def wanted_args(script: str, words: tuple[str, ...]) -> Any:
    """The arguments that a command stands for. The folder of an earlier row, under runs/, need not be there yet."""
    given = papers.pairs(words)
    there = {name: "random" if word.startswith("runs/") else word for name, word in given.items()}
    if there.pop("--data-dir", None):  # nor are files of one's own: checked as the pocket task of their kind
        there["--task"] = f"pocket/{TASKS[there['--task']].pocket}"
    args = read(module_of(script).Args, None, list(itertools.chain(*there.items())))
    for name in ("teacher", "init"):
        if given.get(f"--{name}", "").startswith("runs/"):
            setattr(args, name, given[f"--{name}"])
    return args


def config_of(name: str, **_: Any) -> Any:
    assert name in PUBLISHED, f"{name}: what its configuration says is not written down here"
    family, sizes = PUBLISHED[name]
    return AutoConfig.for_model(family, **sizes)


def loaded(name: str, config: Any, kind: str, **_: Any) -> Any:
    """What a checkpoint's weights are read into, which has to be as wide as they are."""
    published = models.load_config(name)
    for size in ("hidden_size", "num_attention_heads", "d_kv", *models.FFN):
        assert getattr(config, size, None) == getattr(published, size, None), f"{name}: {size}"
    return models.build(deepcopy(config), kind)


@cache
def teacher_of(name: str, kind: str) -> Teacher:
    """A fine-tuned teacher, without memory; of an earlier row, runs/..., the BERT of 6 layers that table C.5 has."""
    earlier = name.startswith("runs/")
    config = AutoConfig.for_model("bert", num_hidden_layers=6) if earlier else models.load_config(name)
    with torch.device("meta"):
        return Teacher(name, models.build(config, kind), None, "", pretrained=None if earlier else name)


@cache
def built(script: str, task: str, name: str, key: tuple[Any, ...]) -> int:
    """Build a command's models without memory; how many parameters the student has."""
    args, method = wanted_args(script, ("--task", task, *key)), Path(script).stem
    with torch.device("meta"):
        if method == "cmow":
            config = cmow.student_config(args, Tokenizer(), diffcat=False)
            return models.parameters(cmow.MatrixEmbeddingForSequenceClassification(config))
        kind = TASKS[task].kind
        teacher = teacher_of(name, kind)
        args.init = "random" if args.init.startswith("runs/") else args.init
        run: Any = SimpleNamespace(args=args, teacher=teacher, task=SimpleNamespace(task=TASKS[task]))
        shape, keep, changes = args.student, args.keep, dict[str, Any]()
        if method == "efficient_attention":
            layers, keep = efficient_attention.depth(args, teacher, args.variants[0])
            args.student = shape = f"{layers}x{teacher.model.config.hidden_size}"
        init = first_weights(args, teacher) if args.init == "auto" else args.init
        if method == "cka":
            changes = cka.student_settings(args, teacher.model.config)
        student, _ = build_student(run, init, shape, keep, changes.pop("ffn", None), changes)
        if method == "xtc":
            for bits in {row.bits for row in args.rows.values()}:
                xtc.quantize(student, bits, lora_rank=args.lora_rank)
        if method == "efficient_attention" and student.config.model_type not in attention.LIBRARY:
            attention.convert(student, args.attention, args.max_length, Tokenizer())
        return models.parameters(student)


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "xtc")) for name in papers.methods()],  # of 1,000 commands
)
def test_every_command_builds_its_models(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the published configurations, without weights or memory: teacher, start, shape and bits fit each other. One
    build for all rows, tasks and seeds of like shape."""
    monkeypatch.setattr(models, "AutoConfig", SimpleNamespace(from_pretrained=config_of))
    monkeypatch.setattr(xtc.Quantizer, "forward", lambda _, W: W)  # what it gives is tested elsewhere; here it is slow
    monkeypatch.setattr(models, "load_model", loaded)
    paper, seen, first = papers.load(method), set[Any](), dict[Any, str]()
    for table in paper.tables:
        for row in papers.lines_of(paper, table):
            for line in row.commands[0]:
                words = dict(zip(line[2::2], line[3::2], strict=True))
                tasks = words.pop("--task").split(",")
                shaping = ("teacher", "student", "init", "keep", "variant", "bits", "lora-rank", "attention", "head",
                           "pool", "assistant", *["max-length"] * (method == "efficient_attention"))  # fmt: skip
                kept = {f"--{name}": words[f"--{name}"] for name in shaping if f"--{name}" in words}
                # an earlier row's folder is of another name for each task
                kept |= {name: "runs/earlier" for name, value in kept.items() if value.startswith("runs/")}
                kinds = [TASKS[task].kind.replace("regression", "classification") for task in tasks]
                heads = {kind: task for kind, task in zip(kinds, tasks, strict=True) if TASKS[task].hub}
                for head, task in heads.items():
                    known = first.setdefault(head, task)
                    seen.add((line[1], known, kept.get("--teacher", ""), *itertools.chain(*kept.items())))
    assert seen
    for script, task, name, *key in sorted(seen):
        assert built(script, task, name, tuple(key)) > 0


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
    for wrong in ("3", "1,0", "1,2,3", "a,b"):
        with pytest.raises(BadInput, match="--stage-steps"):
            read(xtc.Args, None, f"{words} {wrong}".split())


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
    assert (models.parameters(model), models.parameters(model.head)) == (whole, classifier)


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
        assert models.parameters(models.build(config, auto)) / 1e6 == pytest.approx(millions, rel=0.006)


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
        assert models.parameters(model) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("layers", "bits", "mib"), [(12, 1, 13.0), (6, 1, 8.0), (5, 32, 228.2), (5, 2, 14.2), (4, 32, 201.2), (4, 1, 6.3)]
)
def test_sizes_of_xtc(layers: int, bits: int, mib: float) -> None:
    """Tables C.2, C.8 and C.13: every matrix, the pooler too, at so many bits, nothing else."""
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model("bert", num_hidden_layers=layers))
    numbers = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    assert numbers * bits / 8 / 2**20 == pytest.approx(mib, abs=0.08)
