"""The tables in README.md, made from the checked-in results.

    python -m bench.readme            # rewrite them
    python -m bench.readme --check    # exit 1 if they have drifted

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a key of TABLES.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

from bench import pocket_suite
from common import results

README = results.ROOT / "README.md"
FOLDER = results.ROOT / "bench" / "results"


def pocket_table() -> str:
    return pocket_suite.text(json.loads((FOLDER / "pocket_suite.json").read_text(encoding="utf-8")))


def run_table(folder: str) -> str:
    """A table of the `result.json` files under bench/results/FOLDER, and the command of the first."""
    order = ["finetune", "kd", "pkd-skip", "pkd-last", "only-selection", "only-mc3", "mc3kd"]
    records = [results.load(path) for path in sorted((FOLDER / folder).rglob("result.json"))]
    records.sort(key=lambda record: (order.index(record["variant"]), record["seed"]))
    return f"```\n{records[0]['command']}\n\n{results.table(records)}\n```"


TABLES: dict[str, Callable[[], str]] = {
    "pocket": pocket_table,
    "rte": lambda: run_table("rte-minilm"),
}


def filled(text: str) -> str:
    """README's text with every table made anew."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def main() -> None:
    before = README.read_text(encoding="utf-8")
    after = filled(before)
    if "--check" in sys.argv[1:]:
        if after != before:
            sys.exit("README.md differs from the checked-in results; python -m bench.readme rewrites it")
    else:
        README.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
