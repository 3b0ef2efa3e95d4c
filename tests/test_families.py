"""No family of the library ends in a traceback, or in a file that says something else than what was trained."""

from __future__ import annotations

from pathlib import Path

import families
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("family", families.TABLE)
@pytest.mark.parametrize("method", families.SHAPES)
def test_a_cell_is_trained_or_refused(family: str, method: str, tmp_path: Path) -> None:
    found = [families.cell(family, method, shape, tmp_path) for shape in range(2)]
    assert {said.partition(":")[0] for said in found} <= {"ok", "refused"}, found
