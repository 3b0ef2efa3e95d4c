"""The tables in README.md and the pages under docs/, made from the checked-in results.

    python -m bench readme            # rewrite them
    python -m bench readme --check    # exit 1 if one has drifted

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a key of TABLES.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import claims, speed, table
from bench.cli import FOLDER, Parser
from bench.cli import markdown as grid
from bench.sizes import XTC_HEADER
from bench.table import cell, difference
from common import evaluate, results

PAGES = [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]


def saved(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


# --- results of the scripts ----------------------------------------------------------------------------------


def runs(folder: str) -> str:
    """The `result.json` files under bench/results/FOLDER, as they were run, and the command of the first."""
    records = [results.load(path) for path in (FOLDER / folder).rglob("result.json")]
    records.sort(key=lambda record: record["finished"])
    return f"```\n{records[0]['command']}\n\n{results.table(records)}\n```"


def matrix(name: str) -> str:
    """What `python -m bench table --save` has kept."""
    return table.markdown(table.load([FOLDER / f"{name}.json"]))


def arena(name: str = "arena") -> str:
    """The arena alone, without some columns; the whole is on the page of results."""
    found = table.load([FOLDER / f"{name}.json"])
    scores = table.scores(found, found.arena())
    hidden = ("starts from", "over undistilled", table.POWER, "teacher examples", "script")
    kept = [i for i, name in enumerate(scores.header) if name not in hidden]
    rows = [row if len(row) == 1 else [row[i] for i in kept] for row in scores.rows]
    return "\n\n".join(filter(None, [grid([scores.header[i] for i in kept], rows), table.footnote(found)]))


def arena_pairs() -> str:
    """Each row of the arena minus each below it: points over all tasks, paired by seed; bold where zero is outside."""
    found = table.load([FOLDER / "arena.json"])
    rows = found.arena()

    def cell_of(left: table.Row, right: table.Row) -> str:
        mean, low, high = table.interval(*found.paired(left, right, found.tasks))
        mark = "**" if low is not None and high is not None and low * high > 0 else ""
        return f"{mark}{100 * mean:+.1f}{mark}"

    lines = [
        [row.label, *("" if j <= i else cell_of(row, other) for j, other in enumerate(rows) if j)]
        for i, row in enumerate(rows[:-1])
    ]
    return grid(["minus", *(row.label for row in rows[1:])], lines)


# What is compared with what, in rows of bench/attention_pocket.toml
ATTENTION = (
    ("short/kd", "short/finetune"), ("full", "short/finetune"), ("long/convert-distil", "short/finetune"),
    ("long/convert-distil", "full"), ("off", "full"), ("long/convert-distil", "off"),
    ("long/convert-distil", "long/convert"), ("long/distil-convert", "long/convert-distil"),
    ("long/convert-distil-kd", "long/convert-distil"), ("alpha-half", "long/convert-distil-kd"),
    ("sentences/distil", "sentences/finetune"),
    ("sentences/convert-distil", "sentences/finetune"), ("sentences/convert-distil", "sentences/distil"),
    ("sentences/convert-distil", "sentences/convert"),
)  # fmt: skip
# And in rows of bench/attention_litbank.toml, with "windows" of bench/attention_windows.toml
LITBANK = (("off", "windows"), ("long", "windows"), ("long", "off"))


def over(found: claims.Scores, left: str, right: str, task: str) -> str:
    """One row over another on a task, paired by seed."""
    return table.verdict(table.interval(*claims.samples(found, {"more": left, "than": right, "tasks": [task]})))


def compared(found: claims.Scores, pairs: tuple[tuple[str, str], ...]) -> str:
    """The first row of each pair over the second, on every task that both have."""
    rows = [[task, f"{a} over {b}", over(found, a, b, task)]
            for a, b in pairs for task in sorted(found[a].keys() & found[b].keys())]  # fmt: skip
    return grid(["task", "", "points"], rows)


# Of bench/real.toml, and of bench/real_larger.toml: under 6 layers (MiniLM) and 12 (gte-small)
REAL = (("kd", "undistilled"), ("mc3kd", "undistilled"), ("mc3kd", "kd"), ("mse-selected", "kd"),
        ("mc3kd", "mse-selected"), ("mc3kd-ridge", "mc3kd"), ("mc3kd-ridge", "kd"),
        ("cmow-kd", "cmow-undistilled"))  # fmt: skip
LARGER = (("mc3kd-6/mc3kd", "mc3kd-6/kd"), ("mc3kd-12/mc3kd", "mc3kd-12/kd"), ("mc3kd-12/mc3kd", "mc3kd-6/mc3kd"))


def attention(found: claims.Scores, titles: dict[str, str], pairs: tuple[tuple[str, str], ...]) -> str:
    """Every row, and the differences that are of interest, paired by seed."""
    rows = [[title, row, cell(list(tasks[task].values()))] for task, title in titles.items()
            for row, tasks in sorted(found.items()) if task in tasks and row.count("/") < 2]  # fmt: skip
    return f"{grid(['task', 'row', 'score'], rows)}\n\n{compared(found, pairs)}"


def litbank() -> str:
    """`short` has the others' examples and steps, `windows` their tokens."""
    found = claims.scores("attention_litbank") | {"windows": claims.scores("attention_windows")["short"]}
    teacher = table.load([FOLDER / "attention_litbank.json"]).tasks["litbank"]["teacher"]
    found["teacher"] = {"litbank": {0: teacher["metrics"]["test"]["entity_f1"]}}
    return attention(found, {"litbank": "LitBank, entity F1"}, LITBANK)


# Of bench/mc3kd_factors.toml: columns, how the rows of each loss and choice of layers end, and the levels compared
COLUMNS = {
    "[CLS], m - 1": {"tokens": "cls", "last": "out"}, "[CLS], m": {"tokens": "cls", "last": "in"},
    "all tokens, m - 1": {"tokens": "all", "last": "out"}, "all tokens, m": {"tokens": "all", "last": "in"},
}  # fmt: skip
LINES = {("MSE", "skip"): "/pkd-skip", ("MSE", "selected"): "/only-selection",
         ("CCC", "skip"): "/only-mc3", ("CCC", "selected"): "/mc3kd",
         ("Lin", "skip"): "-skip/lin", ("Lin", "selected"): "-selected/lin",
         ("CKA", "skip"): "-skip/cka", ("CKA", "selected"): "-selected/cka"}  # fmt: skip
WHOLE = COLUMNS["all tokens, m"]
FACTORS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("all tokens over [CLS]", {"tokens": "all"}, {"tokens": "cls"}),
    ("all layers over all but the last", {"last": "in"}, {"last": "out"}),
    ("selected layers over skip's", {"layers": "selected"}, {"layers": "skip"}),
    *((f"{loss} over MSE", {"loss": loss}, {"loss": "MSE"}) for loss in ("CCC", "Lin", "CKA")),
    *((f"of all tokens and layers: {loss} over MSE", WHOLE | {"loss": loss}, WHOLE | {"loss": "MSE"})
      for loss in ("CCC", "Lin", "CKA")),
    ("of all tokens and layers, CCC: selected over skip's", WHOLE | {"loss": "CCC", "layers": "selected"},
     WHOLE | {"loss": "CCC", "layers": "skip"}),
]  # fmt: skip
# Batches of few vectors, and a ridge that grows with D/n
FEW = {
    "batch of 8, CCC over KD": ("few/mc3kd", "few/kd"),
    "batch of 8, CCC over MSE": ("few/mc3kd", "few/only-selection"),
    "batch of 8, `--shrinkage 1` over `--ridge 1e-3`": ("few-shrunk", "few/mc3kd"),
    "batch of 32, `--shrinkage 1` over `--ridge 1e-3`": ("shrunk", "all-in/mc3kd"),
}


def few() -> str:
    found = claims.scores("mc3kd_factors")
    rows = [[title, *(cell([*found[name]["cola"].values()]) for name in names), over(found, *names, "cola")]
            for title, names in FEW.items()]  # fmt: skip
    return grid(["cola", "the first", "the second", "points"], rows)


def factors() -> str:
    """Every cell of MC3KD's factorial, and what each factor does: means over all other factors, paired by seed."""
    found = claims.scores("mc3kd_factors")
    tasks = sorted(found["outputs/kd"])
    cells = [(place | {"loss": loss, "layers": layers}, found[f"{place['tokens']}-{place['last']}{name}"])
             for place in COLUMNS.values() for (loss, layers), name in LINES.items()]  # fmt: skip

    def mean(wanted: dict[str, str], task: str) -> list[float]:
        """By seed, over all cells that have these levels."""
        chosen = [scores[task] for levels, scores in cells if wanted.items() <= levels.items()]
        return [float(np.mean([seeds[seed] for seeds in chosen])) for seed in sorted(chosen[0])]

    # what has no hidden loss is the same in every column
    rows = [[SHOWN[name], "", *(cell([*found[f"outputs/{name}"][task].values()]) for task in tasks for _ in COLUMNS)]
            for name in ("finetune", "kd")]  # fmt: skip
    rows += [[loss, layers, *(cell(mean(place | {"loss": loss, "layers": layers}, task))
                              for task in tasks for place in COLUMNS.values())] for loss, layers in LINES]  # fmt: skip
    pairs = [[title, *(difference(mean(left, task), mean(right, task)) for task in tasks)]
             for title, left, right in FACTORS]  # fmt: skip
    titles = [f"{task}: {column}" for task in tasks for column in COLUMNS]
    return f"{grid(['loss', 'layers', *titles], rows)}\n\n{grid(['', *tasks], pairs)}"


# --- tables of the pocket suite ------------------------------------------------------------------------------
# Made before `table --save` was there: rows of figures by task, in one layout.

SHOWN = {"finetune": "undistilled", "kd": "KD", "general-finetune": "general", "general-kd": "general + KD",
         "xtc-1": "1S", "xtc-2": "2S", "xtc-3": "3S", "rccc": "RCCC"}  # fmt: skip
# Differences of columns within every row, and of rows within every column
COMPARED: dict[str, tuple[list[str], list[str]]] = {
    "pocket_documents": ([], []),
    "mc3kd_claims": ([], []),
    "xtc_pocket": (["xtc-1 over kd", "xtc-1 over finetune", "xtc-2 over xtc-1", "xtc-3 over xtc-1"],
                   [f"{shape}, {bits} over {shape}, 32 bits" for shape in ("4x128", "2x128")
                    for bits in ("2 bits", "1 bit")]),
    "cka_pocket": (["none over finetune", *(f"{name} over none" for name in ("lin", "cosine", "mse", "cka")),
                    "cka over lin"], []),
    "cmow_pocket": (["kd over finetune", "general-finetune over finetune", "general-kd over kd"],
                    ["CMOW over CBOW", "Hybrid over CBOW", "Bidirectional over CBOW", "Bidirectional over Hybrid"]),
}  # fmt: skip


def older(name: str) -> str:
    """Every figure of every row; below it the differences that are of interest."""
    of_columns, of_rows = ([pair.split(" over ") for pair in pairs] for pairs in COMPARED[name])
    tasks = saved(name)["tasks"]
    rows = [(task, row, found) for task, entry in tasks.items() for row, found in entry["rows"].items()]
    columns = list(dict.fromkeys(column for _, _, found in rows for column in found))
    sampled = [column for column in columns if any(isinstance(found.get(column), list) for _, _, found in rows)]

    def shown(value: Any) -> str:
        return cell(value) if isinstance(value, list) else f"{value:.3g}" if isinstance(value, float) else value

    def over(left: Any, right: Any) -> str:
        return difference(left, right) if left and right else ""

    def title(task: str) -> str:
        teacher = tasks[task].get("teacher")
        said = f"{task}, {evaluate.TITLES[tasks[task]['metric']]}"
        return said if teacher is None else f"{said}; teacher {percent(teacher)}"

    named = [SHOWN.get(column, column) for column in columns]
    lines = [[title(task), row, *(shown(found.get(column, "")) for column in columns)] for task, row, found in rows]
    parts = [grid(["task", "", *named], lines)]
    if of_columns:
        lines = [[task, row, *(over(found.get(a), found.get(b)) for a, b in of_columns)] for task, row, found in rows]
        pairs = [f"{SHOWN.get(a, a)} over {SHOWN.get(b, b)}" for a, b in of_columns]
        parts.append(grid(["task", "", *pairs], [line for line in lines if any(line[2:])]))
    if of_rows:
        lines = [[task, f"{a} over {b}", *(over(entry["rows"].get(a, {}).get(c), entry["rows"].get(b, {}).get(c))
                                           for c in sampled)]
                 for task, entry in tasks.items() for a, b in of_rows]  # fmt: skip
        parts.append(grid(["task", "", *(SHOWN.get(c, c) for c in sampled)], [line for line in lines if any(line[2:])]))
    return "\n\n".join(parts)


def pocket_suite() -> str:
    report = saved("pocket_suite")
    rows = [
        [name, evaluate.TITLES[row["metric"]], percent(row["bag_of_words"]), percent(row["teacher"]),
         cell(row["finetune"]), cell(row["kd"])]
        for name, row in report["tasks"].items()
    ]  # fmt: skip
    columns = ("bag_of_words", "teacher", "finetune", "kd")
    means = [np.mean([np.mean(row[k]) for row in report["tasks"].values()]) for k in columns]
    rows.append(["**mean**", "", *(f"**{percent(float(value))}**" for value in means)])
    every = report["tasks"].values()
    lead = table.interval(*([row["teacher"] - score for score in row["finetune"]] for row in every))
    gain = table.interval(*([a - b for a, b in zip(row["kd"], row["finetune"], strict=True)] for row in every))
    text = (
        f"Teacher over bag of words: {percent(float(means[1] - means[0]))} points. Teacher over the undistilled"
        f" student: {table.mean_cell(lead)} points. KD over the undistilled student: {table.mean_cell(gain)} points"
        f" (95% intervals over {len(report['seeds'])} seeds; student {report['student']}, budget {report['budget']})."
    )
    return grid(["task", "metric", "bag of words", "teacher", "undistilled", "KD"], rows) + f"\n\n{text}"


def xtc_reduce() -> str:
    found = table.load([FOLDER / "xtc_reduce.json"])
    scores = {(row.place, row.variant): row.values("pocket/cola") for row in found.rows}
    titles = {"finetune-1bit": "undistilled", "kd-1bit": "KD", "xtc-1bit-1s": "1S"}
    places = ("direct", "reduced")
    rows = [[title, *(cell(scores[place, name]) for place in places),
             difference(scores["reduced", name], scores["direct", name])]
            for name, title in titles.items()]  # fmt: skip
    over = [difference(scores[place, "xtc-1bit-1s"], scores[place, "kd-1bit"]) for place in places]
    rows.append(["1S against KD", *over, ""])
    return grid(["pocket/cola, MCC", "1 bit at once", "32 bits first", "32 bits first against at once"], rows)


# --- the pages -----------------------------------------------------------------------------------------------


def xtc_sizes() -> str:
    """What `python -m bench sizes xtc --save` has counted."""
    return f"```\n{results.columns(saved('xtc_sizes')['rows'], XTC_HEADER)}\n```"


TABLES: dict[str, Callable[[], str]] = {
    "arena": arena,
    "arena-twice": lambda: arena("arena_twice"),
    "arena-whole": lambda: matrix("arena"),
    "arena-pairs": arena_pairs,
    "attention-litbank": litbank,
    "attention-pocket": lambda: attention(
        claims.scores("attention_pocket"), {"ner": "ner, entity F1", "rte": "rte, accuracy"}, ATTENTION
    ),
    "attention-profile": lambda: speed.lengths_text(saved("attention_profile")),
    "kernels": lambda: speed.ratios_text(saved("kernels")),
    "mc3kd-factors": factors,
    "mc3kd-few": few,
    "matrix-real": lambda: f"{matrix('real')}\n\n{compared(claims.scores('real'), REAL)}",
    "matrix-larger": lambda: f"{matrix('real_larger')}\n\n{compared(claims.scores('real_larger'), LARGER)}",
    "peers": lambda: speed.peers_text(saved("peers")),
    "steps": lambda: speed.steps_text(saved("steps")),
    "attention-training": lambda: speed.training_text(saved("attention_training")),
    "step-parts": lambda: speed.profile_text(saved("step_parts")),
    "pocket": pocket_suite,
    "cka-pretraining": lambda: runs("cka-pretraining"),
    "tatoeba": lambda: runs("tatoeba-opus-mt"),
    "xtc-reduce": xtc_reduce,
    "xtc-inference": lambda: speed.packed_text(saved("xtc_inference")),
    "xtc-sizes": xtc_sizes,
    **{name.replace("_", "-"): functools.partial(older, name) for name in COMPARED},
    "claims-count": claims.counts,
    **{f"claims-{paper}": functools.partial(claims.of_paper, paper) for paper in claims.PAPERS},
    "claims-sources": claims.sources,
}


def filled(text: str) -> str:
    """A page's text with every table made anew."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table ([\w-]+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def main(argv: list[str]) -> None:
    parser = Parser("readme", __doc__)
    parser.add_argument("--check", action="store_true", help="rewrite nothing; exit 1 if a table has drifted")
    check = parser.parse_args(argv).check
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if not check:
            page.write_text(after, encoding="utf-8")
        elif after != before:
            sys.exit(f"{page.name} differs from the checked-in results; python -m bench readme rewrites it")
