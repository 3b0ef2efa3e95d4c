"""The papers' tables as printed, from bench/published/METHOD.toml; bench/published/schema.json describes the layout."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import jsonschema

from common import results

FOLDER = results.ROOT / "bench" / "published"


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
    """Read a paper's file and check its layout; tests/test_bench.py checks its cells."""
    raw = tomllib.loads((FOLDER / f"{method}.toml").read_text(encoding="utf-8"))
    jsonschema.validate(raw, json.loads((FOLDER / "schema.json").read_text(encoding="utf-8")))
    for table in raw["tables"] + raw.setdefault("sizes", []):
        width = len(table["labels"])
        lines = [tuple(map(str.strip, line.split("|"))) for line in table["rows"].strip().splitlines()]
        table["rows"] = [PrintedRow(parts[:width], parts[width:]) for parts in lines]
    made = {kind: [PrintedTable(**table) for table in raw[kind]] for kind in ("tables", "sizes")}
    return Paper(method=method, **raw | made)
