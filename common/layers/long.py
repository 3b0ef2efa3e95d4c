"""Masked language models with an efficient attention: given heads, and made of the library's own long models."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from common import masking, models, text, train
from common.errors import BadInput
from common.kinds import Task
from common.layers import attention


def with_lm_head(run: Any, source: str, texts: text.Texts, length: int) -> str:
    """`source`, or where its checkpoint has no masked-LM head the folder of one that has: trained once for all seeds,
    on pieces of so many tokens."""
    if masking.load_masked_lm(source)[1]:
        return source
    tokenizer = run.teacher.tokenizer
    recipe = {"source": models.model_name(source), "stage": "head", "texts": texts.signature, "length": length}

    def make(stage: Any) -> PreTrainedModel:
        model, _ = masking.load_masked_lm(source)
        pieces = text.pieces_of(tokenizer, texts.head, length, 10_000)
        masking.train_head(stage, model, tokenizer, text.as_examples(list(pieces)))
        return model

    return str(run.shared("efficient", recipe | {"precision": run.args.precision, "seed": 0}, make).folder)


def with_task_head(source: str, task: Task, tokenizer: Any, seed: int, tuned: Any = None) -> PreTrainedModel:
    """The body of a masked LM below a new head for the task, or below that of the model `tuned`. For questions,
    Longformer's question tokens become global."""
    config: Any = models.load_config(source)
    config.update(task.kind.settings(task))
    if task.kind == "span QA" and attention.kind_of(config) == "longformer":
        config.efficient_attention["question"] = tokenizer.sep_token_id
    torch.manual_seed(seed)
    model = models.load_model(source, config, task.kind)
    if tuned is not None:
        head = {k: v for k, v in tuned.state_dict().items() if not models.in_body(model, k)}
        model.load_state_dict(head, strict=False)
    return model


def long_teacher(args: Any, task: Task) -> str:
    """`--teacher`, of which the library's own long models are kept as converted ones: a folder."""
    source = models.source(args.teacher, task.kind)
    config = models.load_config(source)
    name = attention.kind_of(config)
    if name not in (None, args.attention):
        raise BadInput(f"--attention {args.attention}: the teacher's is {name}; give --attention {name}")
    if name and args.window:
        raise BadInput(f"--window {args.window}: the teacher {args.teacher} has one of its own; leave it out")
    if name and args.init == "random" and "convert" in args.variant:
        raise BadInput(f"--init random: the teacher {args.teacher} is long and is not converted; leave it out")
    if name is None or hasattr(config, "efficient_attention"):
        return args.teacher
    tokenizer = models.load_tokenizer(source)
    recipe = {"parent": models.model_name(source, whole=True), "stage": "as it is", "kind": task.kind, "seed": 0}

    def make(_: Any) -> PreTrainedModel:
        theirs, has_head = masking.load_masked_lm(source)
        if not has_head:
            raise BadInput(f"--teacher {args.teacher}: has no masked-LM head, from which it could be distilled")
        model = attention.from_library(theirs)
        if name == "longformer" and task.kind == "span QA":
            model.config.efficient_attention["question"] = tokenizer.sep_token_id
        return model

    return str(train.shared(args, "efficient", recipe, tokenizer, make).folder)
