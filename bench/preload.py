"""What every command of a matrix needs, made once: `bench run` forks its commands from a process that has this module.

The libraries are imported, and the pocket tasks that `BENCH_TASKS` names are drawn and tokenised. Nothing here computes
with torch: its threads would not survive a fork.
"""

import gc
import os

import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401
import torch._dynamo  # noqa: F401  # which the first optimiser would import
from transformers.models.bert import modeling_bert, tokenization_bert  # noqa: F401

from bench import run  # noqa: F401
from common import data, models
from common.layers import attention, augment, packed  # noqa: F401
from common.run import Run  # noqa: F401

for name in filter(None, os.environ.get("BENCH_TASKS", "").split(",")):
    task = data.READY[name] = data.load(name)
    if task.task.kind.causal or task.task.kind.written:  # GPT-2s and BARTs have tokenizers of their own
        continue
    tokenizer = models.load_tokenizer(models.source("pocket"))
    for split in ("train", *task.reported):
        data.encode(tokenizer, task.splits[split], task.task, 128).flat  # noqa: B018
gc.freeze()  # what is here is for all: no child looks for garbage in it
