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
from scipy import stats

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


def million(value: float) -> str:
    return f"{value / 1e6:.2f}M"


# --- results of the scripts ----------------------------------------------------------------------------------


def runs(folder: str) -> str:
    """The `result.json` files under bench/results/FOLDER, as they were run, and the command of the first."""
    records = [results.load(path) for path in (FOLDER / folder).rglob("result.json")]
    records.sort(key=lambda record: record["finished"])
    return f"```\n{records[0]['command']}\n\n{results.table(records)}\n```"


def matrix(name: str) -> str:
    """What `python -m bench table --save` has kept."""
    return table.markdown(table.load([FOLDER / f"{name}.json"]))


def arena() -> str:
    """The arena alone, without some columns; the whole is on the page of results."""
    found = table.load([FOLDER / "arena.json"])
    scores = table.scores(found, found.arena())
    hidden = ("starts from", table.POWER, "teacher examples", "script")
    kept = [i for i, name in enumerate(scores.header) if name not in hidden]
    rows = [row if len(row) == 1 else [row[i] for i in kept] for row in scores.rows]
    return "\n\n".join(filter(None, [grid([scores.header[i] for i in kept], rows), table.footnote(found)]))


# --- tables of the pocket suite ------------------------------------------------------------------------------
# Made before `bench run` had these matrices (bench/*_pocket.toml); each file has a layout of its own.


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
    figures = report["summary"]

    def points(name: str) -> str:
        mean, low, high = figures[name]
        return f"{percent(mean)} [{percent(low)}, {percent(high)}]"

    text = (
        f"Teacher over bag of words: {percent(figures['lead_over_bag_of_words'])} points. Teacher over the undistilled"
        f" student: {points('lead_over_finetune')} points. KD over the undistilled student:"
        f" {points('kd_minus_finetune')} points, {points('share_recovered')}% of that gap (95% intervals over"
        f" {len(report['seeds'])} seeds; student {report['student']}, budget {report['budget']})."
    )
    return grid(["task", "metric", "bag of words", "teacher", "undistilled", "KD"], rows) + f"\n\n{text}"


def pocket_documents() -> str:
    report = saved("pocket_documents")
    lengths = [str(length) for length in report["lengths"]]
    rows = [
        [name, evaluate.TITLES[row["metric"]], percent(row["guess"]), *(percent(row["reader"][n]) for n in lengths)]
        for name, row in report["tasks"].items()
    ]
    return grid(["task", "metric", "guess", *(f"{n} tokens" for n in lengths)], rows)


def mc3kd_claims() -> str:
    report, parts = saved("mc3kd_claims"), []
    for task, teachers in report["tasks"].items():
        title, names = evaluate.TITLES[report["metrics"][task]], list(teachers)
        small, large = (teachers[name]["variants"] for name in names)
        rows = [["*teacher*", *(percent(teachers[n][key]) for n in names for key in ("score", "rccc"))]]
        for variant in sorted(large, key=list(large).index):
            rows.append([variant, *(cell(v[variant][key]) for v in (small, large) for key in ("score", "rccc"))])
        header = ["variant", *(f"{n}: {what}" for n in names for what in (title, "RCCC"))]
        pairs = [(f"{n}: {names[1]} against {names[0]}", large[n], small[n]) for n in ("kd", "pkd-skip", "mc3kd")]
        pairs += [(f"mc3kd against {n}, {names[1]}", large["mc3kd"], large[n]) for n in large if n != "mc3kd"]
        claims = [[label, *(difference(a[key], b[key]) for key in ("score", "rccc"))] for label, a, b in pairs]
        students = [*small.values(), *(row for name, row in large.items() if name != "finetune")]
        pairs_of = [pair for row in students for pair in zip(row["score"], row["rccc"], strict=True)]
        rho = stats.spearmanr(*zip(*pairs_of, strict=True)).statistic
        parts += [
            f"{task}, {title}, mean ± standard deviation over {len(report['seeds'])} seeds:",
            grid(header, rows),
            grid([f"claim, {task}", "score", "RCCC"], claims),
            f"Score and RCCC over all {len(pairs_of)} students: Spearman {rho:+.2f}.",
        ]
    return "\n\n".join(parts)


def xtc_pocket() -> str:
    report, parts = saved("xtc_pocket"), []
    columns = {"finetune": "undistilled", "kd": "KD", "xtc-1": "1S", "xtc-2": "2S", "xtc-3": "3S"}
    shapes = {"full": "4x128", "half": "2x128"}
    for task, entry in report["tasks"].items():
        teacher, students = entry["teacher"], entry["students"]
        rows = [
            [shapes[layers], bits, f"{row['bytes'] / 1e6:.2f}", *(cell(row[column]) for column in columns)]
            for layers, by_bits in students.items()
            for bits, row in by_bits.items()
        ]
        pairs = [("1S against KD", "xtc-1", "kd"), ("1S against undistilled", "xtc-1", "finetune"),
                 ("2S against 1S", "xtc-2", "xtc-1"), ("3S against 1S", "xtc-3", "xtc-1")]  # fmt: skip
        bits_of = ("32", "2", "1")
        claims = [
            [label, bits, *(difference(students[l][bits][a], students[l][bits][b]) for l in shapes)]
            for label, a, b in pairs
            for bits in bits_of
        ]
        for bits in bits_of[1:]:
            gaps = [difference(students[l][bits]["xtc-1"], students[l]["32"]["xtc-1"]) for l in shapes]
            claims.append([f"{bits} against 32 bits, 1S", bits, *gaps])
        parts += [
            f"{task}, {evaluate.TITLES[report['metrics'][task]]}, mean ± standard deviation over"
            f" {len(report['seeds'])} seeds; the teacher has {percent(teacher['score'])} and"
            f" {teacher['bytes'] / 1e6:.2f} MB:",
            grid(["layers", "bits", "MB", *columns.values()], rows),
            grid([task, "bits", *shapes.values()], claims),
        ]
    return "\n\n".join(parts)


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


def cka_pocket() -> str:
    report = saved("cka_pocket")
    titles = {"finetune": "undistilled", "kd": "none", "lin": "Lin", "cosine": "cosine", "mse": "MSE", "cka": "CKA"}
    hidden = [name for name in titles if name not in ("finetune", "kd")]
    rows, gains, times = [], [], []
    for name, entry in report["tasks"].items():
        title = f"{name}, {evaluate.TITLES[entry['metric']]}, {len(entry['seeds'])} seed(s)"
        teacher = f"*teacher: {percent(entry['teacher'])}*"
        rows.append([title, teacher, million(entry["teacher_parameters"]), *[""] * len(titles)])
        if entry["metric"] != "accuracy":
            times.append([f"{name}, teacher", f"{1000 / entry['teacher_speed']:.1f}"])
        for student, row in entry["students"].items():
            scores = {variant: figures["score"] for variant, figures in row["variants"].items()}
            cells = [cell(scores[v]) if v in scores else "" for v in titles]
            rows.append([title, student, million(row["parameters"]), *cells])
            over = [difference(scores[v], scores["kd"]) if v in scores else "" for v in hidden]
            gains.append([name, student, *over, difference(scores["cka"], scores["lin"])])
            if entry["metric"] != "accuracy":
                milliseconds = 1000 / float(np.median(row["variants"]["cka"]["speed"]))
                times.append([f"{name}, {student}", f"{milliseconds:.1f}"])
    return "\n\n".join([
        grid(["task, metric", "student", "parameters", *titles.values()], rows),
        grid(["over none, task", "student", *(titles[name] for name in hidden), "CKA over Lin"], gains),
        grid(["beam search", "milliseconds per text"], times),
    ])  # fmt: skip


def cmow_pocket() -> str:
    report = saved("cmow_pocket")
    variants = ("finetune", "kd", "general-finetune", "general-kd")
    pairs = (("kd", "finetune"), ("general-finetune", "finetune"), ("general-kd", "kd"))
    compared = (("CMOW", "CBOW"), ("Hybrid", "CBOW"), ("Bidirectional", "CBOW"), ("Bidirectional", "Hybrid"))
    rows, gains, orders = [], [], []
    for name, entry in report["tasks"].items():
        title, encoders = f"{name}, {evaluate.TITLES[entry['metric']]}", entry["encoders"]
        rows.append([title, f"*teacher: {percent(entry['teacher'])}*", *[""] * 5])
        for encoder, row in encoders.items():
            rows.append([title, encoder, million(row["parameters"]), *(cell(row[variant]) for variant in variants)])
            gains.append([name, encoder, *(difference(row[a], row[b]) for a, b in pairs)])
        for variant, start in (("kd", "KD"), ("general-kd", "general + KD")):
            orders.append([f"{name}, {start}", *(difference(encoders[a][variant], encoders[b][variant])
                                                 for a, b in compared)])  # fmt: skip
    header = ["task, metric", "encoder", "parameters", "undistilled", "KD", "general", "general + KD"]
    over = ["task", "encoder", "KD over undistilled", "general over undistilled", "general + KD over KD"]
    named = ["task", *(f"{a} over {b}" for a, b in compared)]
    return f"{grid(header, rows)}\n\n{grid(over, gains)}\n\n{grid(named, orders)}"


def attention_pocket() -> str:
    tasks = saved("attention_pocket")["tasks"]
    pairs = (("kd", "finetune"), ("distil", "finetune"), ("convert-distil", "finetune"), ("convert-distil", "distil"),
             ("distil-convert", "finetune"), ("distil-convert", "convert-distil"),
             ("convert-distil", "convert"))  # fmt: skip
    rows, gains = [], []
    for name, entry in tasks.items():
        title = f"{name}, {evaluate.TITLES[entry['metric']]}"
        rows.append([title, "*teacher*", million(entry["parameters"]), percent(entry["teacher"]), "", ""])
        scores = {variant: row["scores"] for variant, row in entry["variants"].items()}
        for variant, row in entry["variants"].items():
            kept = f"{100 * np.mean(row['scores']) / entry['teacher']:.1f}%"
            read = f"{1000 * row['read_seconds']:.3g}" if "read_seconds" in row else "-"
            label = f"{variant} {row['shape']}"
            rows.append([title, label, million(row["parameters"]), cell(row["scores"]), kept, read])
        gains.append([name, *(difference(scores[a], scores[b]) if {a, b} <= set(scores) else "-" for a, b in pairs)])
    header = ["task", "", "parameters", "score", "retention", "ms a text"]
    seeds = "; ".join(f"{name}: {entry['attention']}, {len(entry['seeds'])} seeds" for name, entry in tasks.items())
    return f"{grid(header, rows)}\n\n{grid(['task', *(f'{a} over {b}' for a, b in pairs)], gains)}\n\n{seeds}."


# --- the pages -----------------------------------------------------------------------------------------------


def xtc_sizes() -> str:
    """What `python -m bench sizes xtc --save` has counted."""
    return f"```\n{results.columns(saved('xtc_sizes')['rows'], XTC_HEADER)}\n```"


TABLES: dict[str, Callable[[], str]] = {
    **({"arena": arena, "arena-whole": lambda: matrix("arena")} if (FOLDER / "arena.json").is_file() else {}),
    "attention-pocket": attention_pocket,
    "attention-profile": lambda: speed.lengths_text(saved("attention_profile")),
    "kernels": lambda: speed.ratios_text(saved("kernels")),
    "matrix-real": lambda: matrix("real"),
    "matrix-larger": lambda: matrix("real_larger"),
    "peers": lambda: speed.peers_text(saved("peers")),
    "steps": lambda: speed.steps_text(saved("steps")),
    "pocket-documents": pocket_documents,
    "pocket": pocket_suite,
    "mc3kd-claims": mc3kd_claims,
    "cka-pocket": cka_pocket,
    "cka-pretraining": lambda: runs("cka-pretraining"),
    "tatoeba": lambda: runs("tatoeba-opus-mt"),
    "cmow-pocket": cmow_pocket,
    "xtc-pocket": xtc_pocket,
    "xtc-reduce": xtc_reduce,
    "xtc-inference": lambda: speed.packed_text(saved("xtc_inference")),
    "xtc-sizes": xtc_sizes,
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
