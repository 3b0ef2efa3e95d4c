"""What several papers take from others: block attentions, packed weights, augmentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from common.results import write_json

# A model with modules of our own is saved under a type of ours: the library alone would leave their weights out, and
# load the rest of them as a plain BERT. With this package it is the family's configuration again.
OWN = ("efficient_attention", "packed")


def mark_own(folder: Path) -> None:
    """Give the configuration in a folder a type of ours where the model has such modules."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name in OWN:
        if name in config or config.get("quantization_config", {}).get("quant_method") == name:
            write_json(folder / "config.json", config | {"model_type": name, "family": config["model_type"]})


class _Own(PreTrainedConfig):
    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        entries = dict(config_dict)
        family = entries["model_type"] = entries.pop("family")
        return CONFIG_MAPPING[family].from_dict(entries, **kwargs)


for name in OWN:
    AutoConfig.register(name, type(name, (_Own,), {"model_type": name}), exist_ok=True)
