"""One vector for each text, whose direction is learnt from a teacher of sentence embeddings; labels teach nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from common.errors import BadInput
from common.kinds.base import KINDS, Encoded, Rows, Split, Task, Window
from common.kinds.sentences import _Sentence
from common.metrics import compute, pearson


class Vectors(_Sentence):
    """Texts, or pairs of texts with a score of how alike they are, by which dev is scored. Labels: [n], NaN.

    Each text of a pair is an example of its own. Task.labels are the numbers of the vectors' dimensions.
    """

    name = "text embedding"
    own, own_metrics = "vectors", ("spearman", "pearson")
    taught_by_labels = False
    card: ClassVar[str] = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # the folder of this file
print(model.encode(["a text"]))"""

    @property
    def auto(self) -> Any:
        from common.layers.embedding import TextEmbedder

        return TextEmbedder

    def output_names(self, config: Any) -> tuple[str, ...]:
        return tuple(map(str, range(getattr(config, "embedding_dimension", config.hidden_size))))

    def settings(self, task: Task) -> dict[str, Any]:
        return {"embedding_dimension": len(task.labels)}

    def has_head(self, config: Any, task: Task) -> bool:
        return True  # the mean of its last states

    # --- texts and scores ---

    def cell(self, value: Any) -> Any:
        return KINDS["regression"].cell(value)

    def read(self, task: Task, rows: Rows, i: int) -> float:
        if not all(rows.columns[field][i].strip() for field in task.fields):
            raise BadInput(f"{rows.place(i)}: has a score, which is of two texts, and one text")
        return KINDS["regression"].read(task, rows, i)

    def taught(self, task: Task, split: Split, rows: Rows) -> Split:
        if split.outputs is not None and any("".join(texts[1:]).strip() for texts in split.texts):
            raise BadInput(f"{rows.where}: its rows of two texts have one vector each; --teacher-outputs is for rows"
                           " of one text")  # fmt: skip
        return split

    def told(self, task: Task, splits: dict[str, Split], rows: Rows) -> str:
        return f"texts, for vectors of {len(task.labels):,} dimensions"

    def tokenise(self, tokenizer: Any, split: Split, task: Task, max_length: int) -> Encoded:
        """The texts of a pair apart; of a scored split `windows` say whose they are."""
        parts = [(i, text) for i, texts in enumerate(split.texts) for text in texts if text.strip()]
        ids = [f"{split.ids[i]}/{k}" if len(task.fields) > 1 else split.ids[i] for k, (i, _) in enumerate(parts)]
        alone = Split(ids, [(text,) for _, text in parts], [None] * len(parts))
        made = super().tokenise(tokenizer, alone, Task(task.name, self, ("text",), (), ()), max_length)
        scored = any(label is not None for label in split.labels)
        windows = [Window(i, np.empty(0)) for i, _ in parts] if scored else None
        return replace(made, windows=windows)

    def targets(self, tokenizer: Any, split: Split, max_length: int) -> Any:
        import torch

        return torch.full((len(split),), float("nan"))

    # --- vectors ---

    def predictions(self, output: Any, labels: Any, mask: Any) -> tuple[Any, Any]:
        """(B D, 1) and (B D,): of unit vectors times sqrt(D), so that the mean squared difference of these rows is
        the mean of the texts' ||s - t||^2 = 2 (1 - cos(s, t))."""
        from torch.nn.functional import normalize

        z = normalize(output.logits.float(), dim=-1) * output.logits.shape[-1] ** 0.5
        return z.reshape(-1, 1), labels.repeat_interleave(z.shape[-1])

    def predict(self, model: Any, given: Any, tokenizer: Any, max_length: int, forward: Any) -> tuple[Any, int]:
        """(N, D) unit vectors; of scored pairs (N,) cosines."""
        found, count = super().predict(model, given, tokenizer, max_length, forward)
        found = self.kept(found)
        if given.windows is not None:
            found = (found[::2] * found[1::2]).sum(1)
        return found, count

    def scores(self, task: Task, split: Split, given: Any, found: Any) -> dict[str, float]:
        if found.ndim > 1:
            raise BadInput(f"--teacher-outputs: has vectors for rows of {task.name} that hold two texts and a score")
        return compute(task.metrics, found, split.labels)

    def decided(self, task: Task, split: Split, given: Any, found: Any) -> Sequence[Any]:
        """Vectors, or of scored pairs their cosines, as far apart as rounding."""
        return ["one vector"] * len(found) if np.ptp(found, axis=0).max() <= 1e-5 else range(len(found))

    def kept(self, found: Any) -> Any:
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12) if found.ndim > 1 else found

    def agreement(self, student: Any, teacher: Any) -> float:
        """The mean cosine; of scored pairs the correlation of their cosines."""
        return float((student * teacher).sum(1).mean()) if student.ndim > 1 else pearson(student, teacher)

    def log_loss(self, kept: Any, labels: Sequence[Any]) -> float | None:
        return None

    def probabilities(self, logits: Any) -> Any:
        raise BadInput("--teacher A,B: two models' vectors have no mean; give one teacher")
