"""A teacher's outputs on the training examples, computed once and kept.

A frozen teacher says the same of an example in every epoch, so that its outputs can be computed once:

    OUT/cache/outputs/<key>/    outputs.safetensors, a row for each example or for each of its tokens; made.json

They are computed in batches of like length, whatever the batches of the training are, so that a row does not depend on
who asked first. The key holds the teacher's weights, the examples' ids and tokens, and how the outputs were computed; a
row is found by its example's id. Every run is charged what the file has cost, or the share of it that its steps read,
whether it has made it or found it.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import ModelOutput

from common import data, evaluate, models, parallel, results, train
from common.errors import first_line
from common.kinds import Encoded
from common.train import Ledger, Stage

if TYPE_CHECKING:
    from common.args import CommonArgs
    from common.teacher import Teacher

# Shapes: B batch, L length, N examples, n tokens of all examples, D width.

BATCH = 128  # examples
PIECE = 2**24  # bytes that are written at once


def keep_outputs(args: CommonArgs, teacher: Teacher, encoded: Encoded) -> KeptOutputs:
    """The teacher's outputs on all examples, and the hidden states of its `layers`."""
    kind, layers = encoded.kind, tuple(sorted(set(teacher.layers)))
    tokens = {name: torch.from_numpy(values) for name, values in (encoded.flat | {"ends": encoded.ends}).items()}
    recipe = {
        "teacher": teacher.signature.rpartition("#")[2],  # without the name of the task's file
        "weights": train.weights_digest(teacher.model.state_dict()),
        "examples": [results.digest(encoded.ids), train.weights_digest(tokens)],
        "outputs": [*kind.outputs, *layers],
        "attention": teacher.model.config._attn_implementation,
        "how": [args.precision, args.FORMER["compile"], parallel.device().type, torch.__version__],
    }

    def write(stage: Stage, folder: Path) -> None:
        stage.ledger.teacher_examples = len(encoded)
        folder.mkdir()
        try:
            with stage.ledger.clock():
                write_outputs(folder, teacher, encoded, layers)
        except (OSError, SafetensorError) as error:  # of a full disk, whose room others need
            shutil.rmtree(folder)
            raise OSError(f"{folder.parent}: {first_line(error)}") from error

    made = parallel.on_main(lambda: train.kept(args, "outputs", recipe, write))
    file = made.folder / "outputs.safetensors"
    return KeptOutputs(file, encoded, teacher.tokenizer.padding_side, spent=made.ledger)


@torch.no_grad()
def write_outputs(folder: Path, teacher: Teacher, encoded: Encoded, layers: tuple[int, ...]) -> None:
    """Write outputs.safetensors: (N, ...) or (n, ...) outputs, (n, D) hidden states. Memory does not grow with N."""
    kind = encoded.kind
    side = teacher.tokenizer.padding_side
    tensors: dict[str, Tensor] = {}

    def call(**inputs: Tensor) -> Any:
        with parallel.engine().autocast():
            return teacher.model(**inputs, output_hidden_states=bool(layers))

    called = evaluate.forward(teacher.model, encoded, teacher.tokenizer, BATCH, call, "teacher's outputs")
    for indices, L, outputs in called:
        places, padding = (torch.from_numpy(x) for x in data.places(encoded, indices, L, side))
        tokens = places[~padding]
        rows = [(name, outputs[name], kind.windowed) for name in kind.outputs]
        rows += [(f"hidden_states.{l}", outputs.hidden_states[l], True) for l in layers]
        for name, value, per_token in rows:
            value = value.to("cpu", torch.float32)
            if per_token:
                value = value[~padding]
            if name not in tensors:  # written to disk as it comes
                shape = (int(encoded.ends[-1]) if per_token else len(encoded), *value.shape[1:])
                tensors[name] = mapped(folder / f"{name}.raw", shape)
            tensors[name][tokens if per_token else indices] = value
    save_file(tensors, folder / "outputs.safetensors")
    results.apply_umask(folder / "outputs.safetensors")
    for name in tensors:
        (folder / f"{name}.raw").unlink()


def mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    """A new file's float32 numbers, 0 at first. Its room on the disk is taken now: where there is none later, a write
    into memory would end the process without a line."""
    count = math.prod(shape)
    with path.open("wb") as file:
        for start in range(0, 4 * count, PIECE):
            file.write(bytes(min(PIECE, 4 * count - start)))
    return torch.from_file(str(path), shared=True, size=count).view(shape)


class KeptOutputs:
    """A file that `write_outputs` has written for `encoded`, mapped into memory; or `tensors` with a row for each
    example. `spent` is what they have cost."""

    def __init__(self, path: Path, encoded: Encoded, padding_side: str, tensors: dict[str, Tensor] | None = None,
                 spent: Ledger | None = None) -> None:  # fmt: skip
        self.tensors = load_tensors(path) if tensors is None else tensors
        self.path, self.encoded, self.padding_side, self.spent = path, encoded, padding_side, spent or Ledger()
        self.rows = {example: i for i, example in enumerate(encoded.ids)}

    def cost(self, examples: int, before: int = 0) -> Ledger:
        """What those have cost that are read for so many examples, after others: none is paid for twice."""
        spent, whole = self.spent, len(self.encoded)
        share = (min(whole, before + examples) - min(whole, before)) / whole
        return replace(spent, teacher_examples=round(share * spent.teacher_examples), seconds=share * spent.seconds,
                       shared_seconds=share * spent.shared_seconds)  # fmt: skip

    def read(self, ids: list[str], attention_mask: Tensor) -> Any:
        """The outputs on these examples, float32, where (B, L) `attention_mask` is; as the library names them. Hidden
        states are a mapping of the layers that were kept, (B, L, D), 0 where there is padding."""
        indices = [self.rows[example] for example in ids]
        L, device = attention_mask.shape[1], attention_mask.device
        places, padding = (torch.from_numpy(x) for x in data.places(self.encoded, indices, L, self.padding_side))
        if device.type == "cpu" and not torch.equal(attention_mask == 0, padding):
            raise RuntimeError(f"a batch that does not hold the examples {', '.join(ids)}")
        outputs: dict[str, Any] = {"hidden_states": models.HiddenStates()}
        for name, tensor in self.tensors.items():
            layer = name.partition(".")[2]
            if layer or self.encoded.kind.windowed:
                value = tensor[places].masked_fill(padding.view(*padding.shape, *[1] * (tensor.ndim - 1)), 0)
            else:
                value = tensor[indices]
            if layer:
                outputs["hidden_states"][int(layer)] = value.to(device)
            else:
                outputs[name] = value.to(device)
        return ModelOutput(**outputs)
