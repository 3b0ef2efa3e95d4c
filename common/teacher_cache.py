"""A frozen teacher's outputs on the training examples, computed once: in the first epoch's place, or by an earlier run.

    OUT/cache/outputs/<key>/    outputs.safetensors, a row for each example or for each of its tokens; outputs.json

The inputs of an example are the same in every epoch, and so are the outputs of a teacher in evaluation mode. They are
computed in batches of like length, whatever the batches of the training are, so that a row does not depend on who
asked first; with float32 a loss differs by rounding from one of outputs that are computed at each step.

The key holds the teacher's weights, the examples' ids and tokens, and how the outputs were computed. A file is mapped
into memory, after a check of its digest, and a row is found by its example's id. Every run is charged what the file
has cost, in seconds and teacher examples, whether it has made the file or found it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import ModelOutput

from common import cache, data, parallel, train
from common.args import CommonArgs
from common.data import Encoded
from common.run import Run, compiled
from common.teacher import Teacher

# Shapes: B batch, L length, N examples, n tokens of all examples, D width.

BATCH = 128  # examples
MOST = 2**29  # bytes of a file that `--teacher-cache auto` makes
DTYPES = {"fp16": torch.float16}  # by `--teacher-cache`; otherwise float32
# What is kept of a task's kind: the names of the library's outputs, and whether they are one row for each token
OUTPUTS: dict[str, tuple[tuple[str, ...], bool]] = {
    "classification": (("logits",), False),
    "regression": (("logits",), False),
    "token classification": (("logits",), True),
    "span QA": (("start_logits", "end_logits"), True),
}


class Guide:
    """The teacher, asked for its outputs on a batch: they are computed, or read where they are kept.

    `charge` is what the ledger counts for each of the batch's examples: 1 if the teacher sees it.
    """

    def __init__(self, model: Any, kept: Kept | None = None) -> None:
        self.model, self.kept = model, kept
        self.charge = int(kept is None)

    def __call__(self, ids: list[str], **inputs: Any) -> Any:
        """The outputs on the examples `ids`, whose batch is `inputs`, without gradient. Of kept outputs the hidden
        states are a mapping of those layers that are kept, (B, L, D), 0 where there is padding."""
        if self.kept is not None:
            return self.kept.read(ids, inputs["attention_mask"])
        with torch.no_grad():
            return self.model(**inputs)

    def on(self, ids: list[str]) -> Callable[..., Any]:
        """The teacher as the library's model, for the one batch that holds these examples."""
        return functools.partial(self, ids)


def guide(args: CommonArgs, cell: Run, teacher: Teacher, encoded: Encoded, steps: int | None, ledger: train.Ledger,
          engine: Accelerator, layers: tuple[int, ...] = ()) -> Guide:  # fmt: skip
    """The teacher for `steps` training steps on `encoded`; `layers`: whose hidden states are read besides the outputs.

    Its outputs are kept as `--teacher-cache` says: with auto if the steps see more examples than there are, and if the
    file is not too large. To be called before a checkpoint is loaded, whose ledger has the charge already.
    """
    model, kind = compiled(teacher.model, args), cell.task.task.kind
    wanted = args.teacher_cache != "off" and kind in OUTPUTS and len(set(encoded.ids)) == len(encoded)
    if args.teacher_cache == "auto":
        pays = steps is not None and steps * args.batch_size > len(encoded)
        wanted = wanted and pays and sum(encoded.lengths) * len(layers) * teacher.model.config.hidden_size * 4 <= MOST
    if not wanted:
        return Guide(model)
    names, by_token = OUTPUTS[kind]
    dtype = DTYPES.get(args.teacher_cache, torch.float32)
    state = teacher.model.state_dict()
    weights = {name: value.detach().cpu() for name, value in state.items() if value.device.type != "meta"}  # offloaded
    recipe = {
        "teacher": teacher.signature,
        "weights": train.digest(weights),
        "examples": examples_digest(encoded),
        "outputs": [*names, *layers],
        "dtype": str(dtype),
        "attention": teacher.model.config._attn_implementation,
        "how": [args.precision, args.compile, engine.device.type, torch.__version__],
    }
    folder = Path(args.cache_dir or Path(args.out_dir) / "cache") / "outputs" / cache.key(recipe)

    def make(partial: Path) -> dict[str, Any]:
        spent = train.Ledger(teacher_examples=len(encoded))
        partial.mkdir()
        with spent.clock():
            fill(partial, model, teacher.tokenizer, encoded, names, by_token, layers, dtype, engine)
        return {"recipe": recipe, "ledger": asdict(spent)}

    note = parallel.on_main(lambda: cache.fetch(folder, "outputs.json", "teacher's outputs", make))
    ledger.add(train.Ledger.of(note))
    return Guide(model, Kept(folder / "outputs.safetensors", encoded, teacher.tokenizer.padding_side))


def examples_digest(encoded: Encoded) -> str:
    """SHA-256 of the ids and tokens of all examples, in order."""
    total = hashlib.sha256("\n".join(encoded.ids).encode())
    for name, values in (*encoded.flat.items(), ("ends", encoded.ends)):
        total.update(name.encode())
        total.update(values.tobytes())
    return total.hexdigest()


@torch.no_grad()
def fill(folder: Path, model: Any, tokenizer: Any, encoded: Encoded, names: tuple[str, ...], by_token: bool,
         layers: tuple[int, ...], dtype: torch.dtype, engine: Accelerator) -> None:  # fmt: skip
    """Write outputs.safetensors: (N, ...) or (n, ...) outputs, (n, D) hidden states. Memory does not grow with N."""
    tensors: dict[str, Tensor] = {}
    bar = train.progress(len(encoded), "teacher's outputs")
    for indices, batch in data.eval_batches(encoded, tokenizer, BATCH):
        inputs = {k: v.to(engine.device) for k, v in batch.items() if k != "labels"}
        with engine.autocast():
            found = model(**inputs, output_hidden_states=bool(layers))
        L = inputs["input_ids"].shape[1]
        places, padding = (torch.from_numpy(x) for x in data.places(encoded, indices, L, tokenizer.padding_side))
        tokens = places[~padding]
        rows = [(name, found[name], by_token) for name in names]
        rows += [(f"hidden_states.{l}", found.hidden_states[l], True) for l in layers]
        for name, value, per_token in rows:
            value = value.to("cpu", dtype)
            if per_token:
                value = value[~padding]
            if name not in tensors:  # written to disk as it comes
                shape = (int(encoded.ends[-1]) if per_token else len(encoded), *value.shape[1:])
                size = torch.Size(shape).numel()
                tensors[name] = torch.from_file(str(folder / f"{name}.raw"), True, size, dtype=dtype).view(shape)
            tensors[name][tokens if per_token else indices] = value
        bar.update(len(indices))
    bar.close()
    save_file(tensors, folder / "outputs.safetensors", metadata={"by_token": str(int(by_token))})
    for name in tensors:
        (folder / f"{name}.raw").unlink()


class Kept:
    """A file that `fill` has written for `encoded`, mapped into memory."""

    def __init__(self, path: Path, encoded: Encoded, padding_side: str) -> None:
        with safe_open(path, "pt") as file:
            self.tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.by_token = file.metadata()["by_token"] == "1"
        self.encoded, self.padding_side = encoded, padding_side
        self.rows = {example: i for i, example in enumerate(encoded.ids)}

    def read(self, ids: list[str], attention_mask: Tensor) -> Any:
        """The outputs on these examples, float32, where (B, L) `attention_mask` is; as the library names them."""
        indices = [self.rows[example] for example in ids]
        L, device = attention_mask.shape[1], attention_mask.device
        places, padding = (torch.from_numpy(x) for x in data.places(self.encoded, indices, L, self.padding_side))
        if device.type == "cpu" and not torch.equal(attention_mask == 0, padding):
            raise RuntimeError(f"a batch that does not hold the examples {', '.join(ids)}")
        found: dict[str, Any] = {"hidden_states": {}}
        for name, tensor in self.tensors.items():
            layer = name.partition(".")[2]
            if layer or self.by_token:
                value = tensor[places].masked_fill(padding.view(*padding.shape, *[1] * (tensor.ndim - 1)), 0)
            else:
                value = tensor[indices]
            value = value.to(device).float()
            if layer:
                found["hidden_states"][int(layer)] = value
            else:
                found[name] = value
        return ModelOutput(**found)
