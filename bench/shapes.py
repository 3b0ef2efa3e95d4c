"""Random models of given shapes, and calls that read texts with them. Random weights change no speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from bench.measure import Inputs
from bench.sizes import Specials
from common.layers import attention
from pocket.make import rounded


def sentences(batch: int) -> Inputs:
    """A batch of drawn texts of 32 tokens."""
    ids = torch.randint(1000, 30_000, (batch, 32), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


def reader(model: Any, texts: int, length: int, device: str, short: int = 8, **masks: Tensor) -> Callable[[], None]:
    """The forward pass of an encoder over texts without padding. It has read short ones: libraries load things late."""
    model = model.eval().to(device)
    inputs = {"input_ids": torch.randint(5, 1000, (texts, length), device=device), **masks}

    @torch.no_grad()
    def read_texts(tokens: int = length) -> None:
        part = {name: values[:, :tokens] for name, values in inputs.items()}
        model(**part).last_hidden_state.sum().item()  # waits for a GPU

    read_texts(short)
    return read_texts


# Full attention: the library's fused kernel, the same over windows of 512 tokens, and the one that holds the scores
FULL, WINDOW = ("sdpa", "windows", "eager"), 512


def attention_model(name: str, length: int, library: bool = False, layers: int = 2, width: int = 256) -> Any:
    """A random model with heads of 64; `library`: its own implementation of the same shape."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64,
        "intermediate_size": 4 * width, "vocab_size": 1000, "max_position_embeddings": length + 2 * library,
    }  # fmt: skip
    if library:
        more = {"longformer": {"attention_window": 512, "pad_token_id": 1}, "bigbird": {},
                "nystromformer": {"segment_means_seq_len": length}}[name]  # fmt: skip
        return transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model({"bigbird": "big_bird"}.get(name, name), **settings, **more)
        )
    model = transformers.BertModel(BertConfig(**settings))
    if name in FULL:
        model.set_attn_implementation("eager" if name == "eager" else "sdpa")
    else:
        attention.convert(model, name, length, Specials)
    return model


def attention_reader(name: str, length: int, library: bool) -> Callable[[], None]:
    """Of one text, with the project's or the library's own implementation."""
    first = {"global_attention_mask": (torch.arange(length) == 0).long()[None]}
    masks = first if library and name == "longformer" else {}
    short = length if library else 8  # the library's Nystromformer reads no others
    return reader(attention_model(name, length, library), 1, length, "cpu", short, **masks)


def packed_model(bits: int, **shape: int) -> Any:
    """A BERT of random weights with so many bits a weight: 32, 8, 2 or 1."""
    from common.layers import packed
    from methods import xtc

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape)).eval()  # type: ignore[arg-type]
    if bits == 8:
        rounded(model)
    elif bits < 8:
        xtc.quantize(model, bits)
        packed.pack_model(model)
    return model
