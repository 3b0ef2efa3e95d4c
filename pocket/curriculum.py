"""The order of the suite's documents in training: short ones first."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from common import parallel
from common.data import Batches
from common.kinds import Encoded


class ShortFirst:
    """A training stream whose first `steps` batches hold `batch_size` examples of at most `tokens` tokens; after that
    every fourth holds longer ones, fewer of them: as many as make `batch_size` x `tokens` tokens, or one a process.

    As when BERT was pre-trained, most steps are cheap ones. For the pocket suite's documents, which are made short and
    long for it: looking something up is learnt from short texts in a fraction of the time. If all examples are short,
    or all long, they are mixed. The short examples of real documents are the ends of long ones.
    """

    EVERY = 4

    def __init__(
        self, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, seed: int, steps: int,
        tokens: int = 420,
    ) -> None:  # fmt: skip
        short = [i for i, length in enumerate(encoded.lengths) if length <= tokens]
        long = [i for i, length in enumerate(encoded.lengths) if length > tokens]
        fewer = max(parallel.processes(), batch_size * tokens // max(encoded.lengths))
        self.steps = steps
        self.first, self.rest = (
            Batches(encoded.select(chosen or either), tokenizer, size, seed, by_length=True)
            for chosen, either, size in ((short, long, batch_size), (long, short, fewer))
        )

    def _at(self, step: int) -> tuple[Batches, int]:
        later = max(0, step - self.steps)
        if later % self.EVERY == self.EVERY - 1:
            return self.rest, later // self.EVERY
        return self.first, step - later // self.EVERY

    def ids(self, step: int) -> list[str]:
        """The ids of the examples of batch `step`."""
        batches, at = self._at(step)
        return batches.ids(at)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """Batch `step` (from 0) as `collate` makes it."""
        batches, at = self._at(step)
        return batches[at]
