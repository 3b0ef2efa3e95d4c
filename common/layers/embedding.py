"""A body of the library below one vector for each text, in the layout of sentence-transformers.

    model = TextEmbedder.from_pretrained(folder)    # or a hub id; SentenceTransformer(folder) reads what it writes

Shapes: B batch, L length, H the body's width, D that of the vectors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import ModelOutput, cached_file

from common.errors import BadInput
from common.results import write_json

POOLING, DENSE = "1_Pooling/config.json", "2_Dense/model.safetensors"


class TextEmbedder(PreTrainedModel):
    """`config.embedding_dimension` is D (absent: H), `config.embedding_pooling` "mean" of all tokens, or "cls"."""

    base_model_prefix = "body"
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: Any, body: PreTrainedModel) -> None:
        super().__init__(config)
        self.body = body
        if getattr(body, "pooler", None) is not None:  # of [CLS], which nothing reads
            body.register_module("pooler", None)
        H, D = config.hidden_size, getattr(config, "embedding_dimension", config.hidden_size)
        self.dense: nn.Module = nn.Identity() if H == D else nn.Linear(H, D)

    def forward(self, attention_mask: Tensor, **inputs: Any) -> ModelOutput:
        """(B, L) mask, and what else the body takes -> logits (B, D), the vectors, as long as they come."""
        outputs = self.body(attention_mask=attention_mask, **inputs)
        hidden, mask = outputs.last_hidden_state, attention_mask[..., None]
        first = getattr(self.config, "embedding_pooling", "mean") == "cls"
        pooled = hidden[:, 0] if first else (hidden * mask).sum(1) / mask.sum(1)
        return ModelOutput(logits=self.dense(pooled), hidden_states=outputs.get("hidden_states"))

    @classmethod
    def from_config(cls, config: Any) -> TextEmbedder:
        return cls(config, AutoModel.from_config(config))

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name: str, config: Any = None, output_loading_info: bool = False, **options: Any
    ) -> Any:
        """As the library's; what the body lacks, and a linear layer that is not there, is in the report."""
        options = {key: value for key, value in options.items() if key not in ("use_safetensors", "trust_remote_code")}
        config = config or AutoConfig.from_pretrained(name, trust_remote_code=False)
        if type(config) not in AutoModel._model_mapping:  # a student without a body gives its vectors itself
            return AutoModelForSequenceClassification.from_pretrained(
                name, config=config, use_safetensors=True, trust_remote_code=False, **options
            )
        if (file := beside(name, POOLING)) and not hasattr(config, "embedding_pooling"):
            said = json.loads(file.read_text(encoding="utf-8"))
            old = ",".join(key.split("_")[2] for key, on in said.items() if key.startswith("pooling_mode_") and on)
            if (mode := said.get("pooling_mode", old)) not in ("mean", "cls"):
                raise BadInput(f"{name}: pools by {mode}; known here are the mean of the tokens, and [CLS]")
            config.embedding_pooling = mode
        body, report = AutoModel.from_pretrained(
            name, config=config, output_loading_info=True, use_safetensors=True, trust_remote_code=False, **options
        )
        model = cls(config, body)
        lacking = [f"body.{key}" for key in report["missing_keys"] if "pooler" not in key.split(".")]
        file = beside(name, DENSE)
        weights = load_file(file) if file else {}
        wanted = {f"linear.{key}": value.shape for key, value in model.dense.state_dict().items()}
        if wanted == {key: value.shape for key, value in weights.items()}:
            model.dense.load_state_dict({key.removeprefix("linear."): value for key, value in weights.items()})
        else:
            lacking += [key.replace("linear", "dense") for key in wanted]
        report = {"missing_keys": lacking, "mismatched_keys": report["mismatched_keys"]}
        return (model, report) if output_loading_info else model

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:  # type: ignore[override]
        """The body as the library has it; beside it pooling and linear layer as sentence-transformers has them."""
        folder, H, steps = Path(folder), self.config.hidden_size, ["Transformer", "Pooling", "Normalize"]
        first = getattr(self.config, "embedding_pooling", "mean") == "cls"
        pooling = {"pooling_mode_cls_token": first, "pooling_mode_mean_tokens": not first}
        self.body.save_pretrained(folder, **options)
        write_json(folder / POOLING, {"word_embedding_dimension": H} | pooling)
        if isinstance(self.dense, nn.Linear):
            steps.insert(2, "Dense")
            sizes = {"in_features": H, "out_features": self.dense.out_features, "bias": True,
                     "activation_function": "torch.nn.modules.linear.Identity"}  # fmt: skip
            write_json((folder / DENSE).with_name("config.json"), sizes)
            save_file({f"linear.{key}": value for key, value in self.dense.state_dict().items()}, folder / DENSE)
        home = "sentence_transformers.models"
        modules = [{"idx": i, "name": str(i), "path": f"{i}_{step}" if i else "", "type": f"{home}.{step}"}
                   for i, step in enumerate(steps)]  # fmt: skip
        write_json(folder / "modules.json", modules)


def beside(name: str, file: str) -> Path | None:
    """A file of a folder, or of a repository of the hub, if it is there."""
    found = cached_file(name, file, _raise_exceptions_for_missing_entries=False,
                        _raise_exceptions_for_connection_errors=False)  # fmt: skip
    return Path(found) if found else None
