"""The papers' tables as printed, from bench/published/METHOD.toml; bench/published/schema.json describes the layout."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import jsonschema

from common import results

FOLDER = results.ROOT / "bench" / "published"
# A cell as printed: one or two numbers, or nothing
CELL = re.compile(r"-|[+-]?[\d,]*\.?\d+%?(/[+-]?\d*\.?\d+)?")


class PrintedRow(NamedTuple):
    labels: tuple[str, ...]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(label for label in self.labels if label != "-")


@dataclass(frozen=True)
class PrintedTable:
    name: str
    what: str
    labels: list[str]
    columns: list[str]
    rows: list[PrintedRow]
    run: str | None = None
    record: str = "{variant}"
    per_task: str | None = None
    split: str | None = None
    remarks: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    method: str
    paper: str
    columns: dict[str, str]
    words: dict[str, dict[str, str | dict[str, str]]]
    tables: list[PrintedTable]
    sizes: list[PrintedTable]
    common: str = ""
    remarks: list[str] = field(default_factory=list)
    per_task: dict[str, dict[str, str]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [table.name for table in self.tables + self.sizes]


def methods() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def load(method: str) -> Paper:
    """Read and check a paper's file. Raises ValueError where it does not keep the layout."""
    raw = tomllib.loads((FOLDER / f"{method}.toml").read_text(encoding="utf-8"))
    jsonschema.validate(raw, json.loads((FOLDER / "schema.json").read_text(encoding="utf-8")))
    for table in raw["tables"] + raw.setdefault("sizes", []):
        width, rows = len(table["labels"]), []
        for line in table["rows"].strip().splitlines():
            parts = tuple(part.strip() for part in line.split("|"))
            rows.append(row := PrintedRow(parts[:width], parts[width:]))
            if len(row.cells) != len(table["columns"]):
                raise ValueError(f"{method}, table {table['name']}, {row}: {len(row.cells)} cells")
            if wrong := [cell for cell in row.cells if not CELL.fullmatch(cell)]:
                raise ValueError(f"{method}, table {table['name']}, {row}: {wrong[0]!r} is no figure")
        table["rows"] = rows
    made = {kind: [PrintedTable(**table) for table in raw[kind]] for kind in ("tables", "sizes")}
    return Paper(method=method, **raw | made)
