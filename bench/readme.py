"""The tables in README.md and the pages under docs/, made from the checked-in results.

    python -m bench.readme            # rewrite them
    python -m bench.readme --check    # exit 1 if one has drifted

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a key of TABLES.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from bench import (
    attention_pocket,
    bench_peers,
    bench_xtc,
    cka_pocket,
    cmow_pocket,
    kernels,
    mc3kd_claims,
    pocket_documents,
    pocket_suite,
    steps,
    table,
    xtc_pocket,
)
from bench.cli import FOLDER
from common import results
from methods import efficient_attention, xtc

PAGES = [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]


def report_table(module: Any, name: str) -> str:
    """What a bench program prints of the report that it saved."""
    return module.text(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def run_table(folder: str) -> str:
    """A table of the `result.json` files under bench/results/FOLDER, as they were run, and the command of the first."""
    records = [results.load(path) for path in (FOLDER / folder).rglob("result.json")]
    records.sort(key=lambda record: record["finished"])
    return f"```\n{records[0]['command']}\n\n{results.table(records)}\n```"


def matrix_table(folder: str) -> str:
    """The tables of a matrix of runs whose results are under bench/results/FOLDER; a line where there are none yet."""
    place = FOLDER / folder
    if not any(place.rglob("result.json")):
        return f"No results yet: `python -m bench table bench/{folder}.toml --save {folder}` keeps them."
    return table.markdown(table.load([place]))


def kernels_table() -> str:
    """The ratios that `python -m bench kernels --save` has kept."""
    if not kernels.CHECKED_IN.exists():
        return "No ratios yet: `python -m bench kernels --save` keeps them."
    ratios = kernels.checked_in().items()
    lines = []
    for name, value in ratios:
        file, what = name.split("::")
        lines.append(f"| {file.removeprefix('bench_')} | {what} | {value:.2f} |")
    return "\n".join(["| kernels | measured, what is divided | ratio |", "|---|---|---|", *lines])


def profile_table() -> str:
    """Time and memory by length, as `methods/efficient_attention.py --profile` has measured them."""
    return efficient_attention.profile_text(json.loads((FOLDER / "attention_profile.json").read_text(encoding="utf-8")))


def sizes_table() -> str:
    """What `methods/xtc.py --sizes` has printed."""
    rows = json.loads((FOLDER / "xtc_sizes.json").read_text(encoding="utf-8"))["rows"]
    return f"```\n{results.columns(rows, xtc.SIZES_HEADER)}\n```"


TABLES: dict[str, Callable[[], str]] = {
    "attention-pocket": lambda: report_table(attention_pocket, "attention_pocket.json"),
    "attention-profile": profile_table,
    "litbank-short": lambda: run_table("litbank-minilm-512"),
    "litbank-long": lambda: run_table("litbank-minilm-2048"),
    "squad": lambda: run_table("squad-minilm"),
    "kernels": kernels_table,
    "matrix-real": lambda: matrix_table("real"),
    "matrix-larger": lambda: matrix_table("real_larger"),
    "peers": lambda: report_table(bench_peers, "peers.json"),
    "steps": lambda: report_table(steps, "steps.json"),
    "pocket-documents": lambda: report_table(pocket_documents, "pocket_documents.json"),
    "pocket": lambda: report_table(pocket_suite, "pocket_suite.json"),
    "mc3kd-claims": lambda: report_table(mc3kd_claims, "mc3kd_claims.json"),
    "cka-pocket": lambda: report_table(cka_pocket, "cka_pocket.json"),
    "cka-pretraining": lambda: run_table("cka-pretraining"),
    "tatoeba": lambda: run_table("tatoeba-opus-mt"),
    "rte": lambda: run_table("rte-minilm"),
    "sst2-cmow": lambda: run_table("sst2-cmow"),
    "cmow-pocket": lambda: report_table(cmow_pocket, "cmow_pocket.json"),
    "lm": lambda: run_table("lm-pocket-6"),
    "xtc-pocket": lambda: report_table(xtc_pocket, "xtc_pocket.json"),
    "xtc-sst2": lambda: run_table("sst2-minilm-xtc"),
    "xtc-inference": lambda: report_table(bench_xtc, "xtc_inference.json"),
    "xtc-sizes": sizes_table,
}


def filled(text: str) -> str:
    """A page's text with every table made anew."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table ([\w-]+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def main() -> None:
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if "--check" not in sys.argv[1:]:
            page.write_text(after, encoding="utf-8")
        elif after != before:
            sys.exit(f"{page.name} differs from the checked-in results; python -m bench.readme rewrites it")


if __name__ == "__main__":
    main()
