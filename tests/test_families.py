"""No family of the library ends in a traceback, or in a file that says something else than what was trained."""

from __future__ import annotations

from pathlib import Path

import families
import pytest

from common.errors import BadInput
from common.kinds import Split
from common.tasks import TASKS


@pytest.mark.slow
@pytest.mark.parametrize("family", families.TABLE)
@pytest.mark.parametrize("method", families.SHAPES)
def test_a_cell_is_trained_or_refused(family: str, method: str, tmp_path: Path) -> None:
    found = [families.cell(family, method, shape, tmp_path) for shape in range(2)]
    assert {said.partition(":")[0] for said in found} <= {"ok", "refused"}, found


def test_a_text_of_no_tokens_is_a_line() -> None:
    """Tokenizers of decoders put no token of their own beside a text's."""
    split = Split(["row 1", "row 2"], [("good",), ("",)], [0, 1])
    with pytest.raises(BadInput, match=r"row 2: .* makes no tokens of it"):
        TASKS["sst2"].kind.tokenise(families.tokenizer_of("llama"), split, TASKS["sst2"], 16)
