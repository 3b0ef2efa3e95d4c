"""Every command that `python -m bench papers NAME --commands` prints builds its models."""

from __future__ import annotations

import itertools
from copy import deepcopy
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import tiny_bert
from transformers import AutoConfig

from bench import papers
from bench.sizes import BASE, LARGE, ROBERTA, Specials
from common import models
from common.args import BadInput, read
from common.layers import attention
from common.run import build_student, first_weights
from common.tasks import TASKS
from common.teacher import Teacher
from methods import cka, cmow, efficient_attention, xtc

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
def built(method: str, task: str, name: str, key: tuple[Any, ...]) -> int:
    """Build a command's models without memory; how many parameters the student has."""
    args = papers.wanted_args(method, ("--task", task, *key))
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
            for bits in {row.bits for row in args.rows}:
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
                    seen.add((first.setdefault(head, task), kept.get("--teacher", ""), *itertools.chain(*kept.items())))
    assert seen
    for task, name, *key in sorted(seen):
        assert built(method, task, name, tuple(key)) > 0


def test_stages_of_xtc_have_lengths_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In relation to each other; with the paper's budget in epochs of the texts and their copies."""
    words = "--variant xtc --bits 32 --stages 2 --student 2x32 --budget paper --augment 30 --stage-steps"
    args = read(xtc.Args, None, f"{words} 50,3".split())
    (row,), run, seen = args.rows, SimpleNamespace(settings={"reduce_share": 0}, left=530), list[int]()

    def train(_args: Any, run: Any, *_: Any) -> None:
        seen.append(_[-1])
        run.left -= seen[-1]

    monkeypatch.setattr(xtc, "train", train)
    xtc.distil(args, run, row, tiny_bert(2, 32), [1, 2])  # type: ignore[arg-type]
    assert seen == [500, 30]
    settings = xtc.settings_of(args, row, [1, 2], SimpleNamespace(task=TASKS["cola"]), 2, 32)
    assert settings["paper_epochs"] == (50 + 3) * (1 + 30)
    for wrong in ("3", "1,0", "1,2,3", "a,b"):
        with pytest.raises(BadInput, match="--stage-steps"):
            read(xtc.Args, None, f"{words} {wrong}".split())
