"""A table, and the ways to print one; bench/report.html has another."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from common import results


class Grid(NamedTuple):
    """A header and rows; a row of one cell is a heading."""

    header: list[str]
    rows: list[list[str]]

    def columns(self, chosen: Collection[int]) -> Grid:
        """Some of its columns."""
        rows = [row if len(row) == 1 else [row[i] for i in chosen] for row in self.rows]
        return Grid([self.header[i] for i in chosen], rows)

    def markdown(self) -> str:
        width = len(self.header)
        full = [row if len(row) == width else [f"**{row[0]}**", *[""] * (width - 1)] for row in self.rows]
        first, *lines = ["| " + " | ".join(row) + " |" for row in (self.header, *full)]
        return "\n".join([first, "|---" * width + "|", *lines])

    def plain(self) -> str:
        """Aligned for a terminal: scores, and below them the columns from the first difference on."""
        width = len(self.header)
        at = next((i for i, name in enumerate(self.header) if name.startswith("over ")), width)
        parts = [range(at), [0, 1, *range(at, width)]][: 1 + (at < width)]
        return "\n\n".join(self.columns(part).block() for part in parts)

    def block(self) -> str:
        """A kind's heading on a line of its own, and no line that says nothing, nor a heading of none."""
        rows = [row for row in self.rows if len(row) == 1 or {*row[2:]} != {"-"}]
        rows = [row for row, after in zip(rows, [*rows[1:], [""]], strict=True) if len(row) > 1 or len(after) > 1]
        full = [[""] * len(self.header) if len(row) == 1 else row for row in rows]
        head, line, *body = results.columns(full, self.header).splitlines()
        shown = [f"[{row[0]}]" if len(row) == 1 else text for row, text in zip(rows, body, strict=True)]
        return "\n".join([head, line, *shown])
