"""The tables in README.md and the pages under docs/, made from the checked-in results.

    python -m bench readme            # rewrite them

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a key of TABLES. Where a result is not there
yet, the page says so, and which command makes it. `<!-- code FILE FUNCTION -->` is followed by the function's lines.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import textwrap
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from bench import claims, contrasts, matrix, report, speed, stats, table
from bench.claims import Scores
from bench.cli import FOLDER, Parser, saved
from bench.grid import Grid
from bench.records import read
from bench.rows import Row, Table, cell, short, teacher_score
from common import results

PAGES = [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]


def pending(name: str) -> str:
    """What stands in the place of a result that is not there yet."""
    return (
        f"No result yet with this version of the pocket suite. It takes `python -m bench run bench/{name}.toml`, and"
        f" `python -m bench table bench/{name}.toml --save {name}`."
    )


def of(name: str, make: Callable[[Table], str | Grid]) -> Callable[[], str]:
    """A table of a kept matrix, or what is said without it."""

    def text() -> str:
        if (found := claims.kept(name)) is None:
            return pending(name)
        made = make(found)
        return made.markdown() if isinstance(made, Grid) else made

    return text


def measured(text: Callable[[dict[str, Any]], str], file: str) -> str:
    """A table of `python -m bench speed`."""
    return text(saved(file))


def paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def runs(folder: str) -> str:
    """The `result.json` files under bench/results/FOLDER, as they were run, and the command of the first."""
    paths = (FOLDER / folder).rglob("result.json")
    records = sorted((json.loads(path.read_text(encoding="utf-8")) for path in paths), key=lambda one: one["finished"])
    return f"```\n{records[0]['command']}\n\n{results.table(records)}\n```"


def on_gpu() -> str:
    """The rows of the scripts themselves, one seed, as a CPU and a GPU have computed them."""
    ways: dict[str, dict[tuple[str, str], str]] = {}  # how it was computed -> row -> score
    for one in read(FOLDER / "gpu.jsonl.gz")[0]:
        way, script = one.place.split("/")
        ways.setdefault(way, {})[script, one.record["variant"]] = cell([one.record["primary"]["value"]])
    rows = [[*key, *(of.get(key, "-") for of in ways.values())] for key in next(iter(ways.values()))]
    return Grid(["script", "variant", *ways], rows).markdown()


# --- the arena -----------------------------------------------------------------------------------------------


def short_arena(found: Table) -> str:
    """The arena alone, without some columns; the whole is on the page of results."""
    scores = table.scores(found, [*found.arena(), *found.linear()])
    hidden = ("starts from", "teacher examples", "script")
    shown = scores.columns([i for i, name in enumerate(scores.header) if name not in hidden])
    return paragraphs(table.remarks(found), shown.markdown(), table.footnote(found))


def trials() -> str:
    """Of each row whose trials are over the scores by rate, what has won, and where in its grid."""
    lines = []
    for name, row in saved("arena_trials")["rows"].items():
        if row["winner"]:
            means, end = report.by_rate(row["trials"]), ", ".join(row["at_edge"]) or "-"
            by_rate = f"{min(means):g}: {', '.join(f'{mean:.0f}' for mean in means.values())}"
            by_rate = "-" if "C" in row["winner"] else by_rate  # a linear model has no rate
            best = f"{100 * max(trial['mean'] for trial in row['trials'] if trial['mean'] is not None):.1f}"
            lines.append([name, f"{len(row['trials'])}", by_rate, matrix.words_of(row["winner"]), end, best])
    rates = "on dev by rate, each twice the one before"
    header = ["row", "trials", rates, "won", "at an end of what was tried", "its mean"]
    return Grid(header, lines).markdown()


def ends(found: Table) -> str:
    """The rows whose weight has won at the end of what was tried, and could go on; what vanilla KD's alpha is."""
    trials = saved("arena_trials")["rows"]
    names = [row.label for row in found.arena() if "beta" in trials.get(row.name, {"at_edge": []})["at_edge"]]
    largest = f" The best weight of {', '.join(names)} is the largest that was tried." if names else ""
    alphas = {row.role or "": row.records()[0]["settings"]["alpha"] for row in found.arena()}
    own, others = alphas.get("vanilla KD"), alphas.get("")
    alpha = f" Vanilla KD's alpha is {own:g}, as it won; rows with a loss beside KD's have {others:g}."
    spent = [f" {row.label} spends {100 * share:.0f}% of its examples on texts without labels." for row in found.arena()
             if (share := row.records()[0]["settings"].get("distil_share"))]  # fmt: skip
    return largest + alpha * (own != others) + "".join(spent)


def figure(one: contrasts.Contrast) -> str:
    """A contrast with its interval, and the word for it."""
    return f"{one.interval.text()}, {one.word}" if one.interval else f"- ({one.word})"


def said(found: Table) -> str:
    """What the arena says, in at most seven sentences: each follows from a figure of its results, and has it."""
    kd, hidden, *losses = contrasts.planned(found)
    rows = [row for row in found.arena() if row.role is None]
    amount = next(iter(found.tasks.values()))["budget"]["amount"]

    lines = [
        f"All {len(found.arena())} rows train one student from one start, on {amount:,} examples of each task in one"
        " order. Each is tuned by one rule, on other splits and seeds. They differ in their losses, in the tokens and"
        f" teacher layers that these read, and in their tuned values.{ends(found)}"
    ]
    for one, what in ((kd, "Vanilla KD over the undistilled student"),
                      (hidden, "Losses on all tokens' hidden states beside KD's loss, over KD alone")):  # fmt: skip
        on = f", on {', '.join(map(short, one.tasks))}" * (len(one.tasks) < len(found.tasks))  # without those of a †
        lines += [f"{what}{on}: {figure(one)}."] if one.found else []
    if known := [one for one in losses if one.found]:
        figures = "; ".join(f"{one.what.partition(' (')[0]} {figure(one)}" for one in known)
        lines.append(f"Of these losses, as planned before this edition's runs: {figures}.")
        lines += without_a_half(found, known)
    if rows := [row for row in rows if found.ladder and table.area(found, row) is not None]:  # at every budget
        far = [row.label for row in rows
               if any(table.near(found, row, task).startswith(("more", "-")) for task in found.tasks)]  # fmt: skip
        who = f"All but {', '.join(far)}" if far else "All"
        lines.append(
            f"{who} of the {len(rows)} rows beside KD and the undistilled student reach, by their means,"
            f" {100 * table.NEAR:.0f}% of the teacher's score on every task within {max(found.ladder):,} examples."
        )
    lines.append("All other differences are exploratory. Small tasks made by rule say nothing about BERT-base.")
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))


def beside_linear(found: Table) -> str:
    """What the linear model does beside the arena's rows."""
    if not found.linear():
        return ""
    named = {row.name: row for row in (*found.linear(), *found.arena())}
    means = {
        name: table.mean_cell(mean and mean.interval()) for name, row in named.items() for mean in [found.mean(row)]
    }
    over = "; ".join(f"{one.what} {figure(one)}" for one in contrasts.planned(found, contrasts.LINEAR_OVER))
    return (
        f"Mean of {', '.join(map(short, found.tasks))}: the linear model {means['linear']} from as many labelled rows"
        f" as a student sees examples, {means['linear-all']} from all of train; the undistilled student"
        f" {means['undistilled']}, vanilla KD {means['kd']}. Differences: {over}."
    )


def without_a_half(found: Table, losses: list[contrasts.Contrast]) -> list[str]:
    """Which of these words change when mnli's mismatched half is left out."""
    alone = {one.what: one for one in contrasts.planned(contrasts.on_matched(found))}
    pairs = [(one.what.partition(" (")[0], alone[one.what]) for one in losses if alone[one.what].word != one.word]
    figures = "; ".join(f"{what} {one.interval.text()}, {one.word}" for what, one in pairs if one.interval)
    where = "Without [mnli's mismatched half](docs/results.md#the-two-halves-of-mnli)"
    return [f"{where}: {figures}."] if figures else []


def halves(found: Table) -> str:
    """Of tasks that report several splits: the score on each, of the teacher and of the arena's rows; and what was
    planned, without mnli's mismatched half."""
    places = [(task, split) for task, record in found.tasks.items() if len(splits := record["metrics"]) > 1
              for split in splits]  # fmt: skip

    def line(title: str, records: dict[str, list[dict[str, Any]]]) -> list[str]:
        return [title, *(cell([one["metrics"][split][found.tasks[task]["primary"]["name"]] for one in records[task]])
                         for task, split in places)]  # fmt: skip

    teacher = line("teacher", {task: [record["teacher"]] for task, record in found.tasks.items()})
    lines = [line(row.label, {task: [one.record for one in row.cells[task].values()] for task in found.tasks})
             for row in found.arena()]  # fmt: skip
    titles = [f"{short(task)}, {split.partition('_')[2] or split}" for task, split in places]
    without = contrasts.contrasts(contrasts.on_matched(found))
    return paragraphs(Grid(["student", *titles], [teacher, *lines]).markdown(), without.markdown())


# --- rows, and pairs of them ---------------------------------------------------------------------------------


def compared(found: Table, named: dict[str, Row], pairs: Iterable[str]) -> str:
    """The first row of each pair, "A - B", over the second, on every task; "-" where one of them lacks it."""
    tasks, rows = sorted(found.tasks, key=short), []
    for a, b in (pair.split(" - ") for pair in pairs):
        if a in named and b in named:
            each = [found.over(named[a], named[b], [task]).verdict
                    if task in named[a].cells and task in named[b].cells else "-" for task in tasks]  # fmt: skip
            rows.append([f"{a} over {b}", *each])
    return Grid(["points", *map(short, tasks)], rows).markdown()


def listed(found: Scores, marked: Container[tuple[str, str]] = ()) -> str:
    """Every row, task by task, and what was measured beside the score, as ROW/name. `marked`: rows and tasks whose
    score decides nothing."""
    rows = [name for name in found if name.rpartition("/")[0] not in found]
    beside = dict.fromkeys(f"/{name.rpartition('/')[2]}" for name in found if name not in rows and "_test" not in name)
    columns = [(task, also) for task in sorted({task for row in rows for task in found[row]}) for also in ("", *beside)]
    lines = []
    for row in rows:
        each = [(found.get(row + also, {}).get(task, {}), not also and (row, task) in marked) for task, also in columns]
        lines.append([row, *(cell(values.values()) + " †" * mark if values else "-" for values, mark in each)])
    return Grid(["", *(task + also.replace("/", ", ") for task, also in columns)], lines).markdown()


def with_pairs(name: str, whole: bool = False) -> Callable[[], str]:
    """Every row of a kept matrix, or its `whole` table, and the differences that its file calls of interest."""

    def text(found: Table) -> str:
        file = matrix.read_file(matrix.MATRICES / f"{name}.toml")
        pairs = compared(found, claims.rows(name), file.get("pairs", ()))
        if whole:
            return paragraphs(table.markdown(found), pairs)
        marked = {(label, short(task)) for label, row in claims.rows(name).items() for task in row.cells
                  if found.untrained(row, task)}  # fmt: skip
        return paragraphs(table.remarks(found), listed(claims.scores(name), marked), table.footnote(found), pairs)

    return of(name, text)


def and_teacher(scores: Scores, row: Row) -> str:
    """All rows, and last the teacher of this one, on its tasks."""
    teacher = {short(task): {0: teacher_score(row.records(task)[0])} for task in row.cells}
    return listed(scores | {"teacher": teacher})


def litbank(found: Table) -> str:
    """`short` has the others' examples and steps, `windows` their tokens."""
    scores = claims.scores("attention_litbank") | {"windows": claims.scores("attention_windows")["short"]}
    named = claims.rows("attention_litbank") | {"windows": claims.rows("attention_windows")["short"]}
    pairs = compared(found, named, ("off - windows", "long - windows", "long - off"))
    return paragraphs(and_teacher(scores, named["long"]), pairs)


def documents(found: Table) -> Grid:
    """What the teacher reaches with each length of input, task by task, and what its student of two layers does."""
    tasks = sorted(found.tasks, key=short)
    lengths = sorted({row.name for row in found.rows}, key=int)

    def line(who: str, length: str, scores: Callable[[Row, str], list[float]]) -> list[str]:
        rows = [row for row in found.rows if row.name == length]  # students of different tasks start differently
        return [f"{who}, {length} tokens", *(cell(one for row in rows for one in scores(row, task)) for task in tasks)]

    def taught(row: Row, task: str) -> list[float]:
        return [teacher_score(record) for record in row.records(task)]

    lines = [line(who, length, scores) for who, scores in (("teacher", taught), ("student", Row.values))
             for length in lengths]  # fmt: skip
    return Grid(["reads", *map(short, tasks)], lines)


# Of the matrix mc3kd_factors: columns, what the rows of each loss and choice of layers are called, the levels compared
COLUMNS = {
    "[CLS], m - 1": {"tokens": "cls", "last": "out"}, "[CLS], m": {"tokens": "cls", "last": "in"},
    "all tokens, m - 1": {"tokens": "all", "last": "out"}, "all tokens, m": {"tokens": "all", "last": "in"},
}  # fmt: skip
LINES = {("MSE", "skip"): "pkd-skip", ("MSE", "selected"): "only-selection",
         ("CCC", "skip"): "only-mc3", ("CCC", "selected"): "mc3kd"}  # fmt: skip
WHOLE = COLUMNS["all tokens, m"]
FACTORS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("all tokens over [CLS]", {"tokens": "all"}, {"tokens": "cls"}),
    ("all layers over all but the last", {"last": "in"}, {"last": "out"}),
    ("selected layers over skip's", {"layers": "selected"}, {"layers": "skip"}),
    ("CCC over MSE", {"loss": "CCC"}, {"loss": "MSE"}),
    ("of all tokens: CCC over MSE", {"tokens": "all", "loss": "CCC"}, {"tokens": "all", "loss": "MSE"}),
    ("of all tokens and layers: CCC over MSE", WHOLE | {"loss": "CCC"}, WHOLE | {"loss": "MSE"}),
    ("of all tokens and layers, CCC: selected over skip's", WHOLE | {"loss": "CCC", "layers": "selected"},
     WHOLE | {"loss": "CCC", "layers": "skip"}),
]  # fmt: skip


def factors(found: Table) -> str:
    """Every cell of MC3KD's factorial, and what each factor does: means over all other factors."""
    named = claims.rows("mc3kd_factors")
    places = {f"{place['tokens']}-{place['last']}-{name}": place | {"loss": loss, "layers": layers}
              for (loss, layers), name in LINES.items() for place in COLUMNS.values()}  # fmt: skip
    if not named.keys() >= {*places, "undistilled", "kd"}:
        return pending("mc3kd_factors")

    def half(levels: dict[str, str], sign: int) -> list[tuple[Row, float]]:
        """The rows that have these levels, as one mean."""
        chosen = [named[name] for name, place in places.items() if levels.items() <= place.items()]
        return [(row, sign / len(chosen)) for row in chosen]

    def cells(names: list[str]) -> list[str]:
        return [found.scored(named[name], task) for task in found.tasks for name in names]

    # what has no hidden loss is the same in every column
    rows = [[title, "", *cells([name] * len(COLUMNS))] for name, title in (("undistilled",) * 2, ("kd", "KD"))]
    rows += [[*line, *cells([name for name, place in places.items() if (place["loss"], place["layers"]) == line])]
             for line in LINES]  # fmt: skip
    pairs = [[title, *(found.contrast([*half(left, 1), *half(right, -1)], [task]).verdict for task in found.tasks)]
             for title, left, right in FACTORS]  # fmt: skip
    tasks = [short(task) for task in found.tasks]
    titles = [f"{task}: {column}" for task in tasks for column in COLUMNS]
    return paragraphs(Grid(["loss", "layers", *titles], rows).markdown(), table.footnote(found),
                      Grid(["", *tasks], pairs).markdown())  # fmt: skip


def precision(real: Table) -> str:
    """What bf16 does to the real arena: its runs over those of the same rows and seeds in float32."""
    kept, said = claims.kept("real_arena_fp32"), []
    before = {row.name: row for row in kept.rows} if kept else {}
    for task in real.tasks:
        both = [(row, before[row.name]) for row in real.arena() if row.name in before and task in before[row.name].cells
                and {one["settings"]["precision"] for one in row.records(task)} == {"bf16"}]  # fmt: skip
        gaps = [a["primary"]["value"] - b["primary"]["value"] for row, other in both
                for a, b in zip(row.records(task), other.records(task), strict=True)]  # fmt: skip
        if gaps:  # each run by itself: rows of one seed do not move together
            one = stats.estimate([stats.Sample(np.array(gaps))]).interval()
            said.append(f"{short(task)} {one.text()}, {one.word} ({len(gaps)} runs, students and teacher)")
    return f"The same runs in bf16 over those in float32: {'; '.join(said) or 'no result yet'}."


# --- the pages -----------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[], str]] = {
    "arena": of("arena", short_arena),
    "arena-said": of("arena", said),
    "arena-whole": of("arena", table.markdown),
    "arena-trials": trials,
    "arena-contrasts": of("arena", contrasts.contrasts),
    "arena-ladder": of("arena", table.ladder),
    "arena-fidelity": of("arena", table.fidelity),
    "arena-halves": of("arena", halves),
    "arena-pairs": of("arena", contrasts.pair_table),
    "gpu": on_gpu,
    "attention-litbank": of("attention_litbank", litbank),
    "kernels": lambda: speed.ratios_text(saved("kernels")),
    **{file.replace("_", "-"): functools.partial(measured, text, file) for _, text, file in speed.TABLES.values()
       if (FOLDER / f"{file}.json").is_file()},
    "xtc-inference-avx2": functools.partial(measured, speed.packed_text, "xtc_inference_avx2"),
    "pocket-documents": of("pocket_documents", documents),
    "mc3kd-factors": of("mc3kd_factors", factors),
    "real-arena": of("real_arena", table.markdown),
    "arena-linear": of("arena", beside_linear),
    "real-linear": of("real_arena", beside_linear),
    "real-contrasts": of("real_arena", contrasts.contrasts),
    "real-precision": of("real_arena", precision),
    "transfer": lambda: Grid(saved("transfer")["header"], saved("transfer")["rows"]).markdown(),
    "transfer-said": lambda: saved("transfer")["said"],
    "real-few": with_pairs("real_few", whole=True),
    "tatoeba": lambda: runs("tatoeba-opus-mt"),
    **{name.replace("_", "-"): with_pairs(name) for name in (
        "attention_pocket", "attention_kinds", "attention_short", "xtc_pocket", "xtc_long", "xtc_few", "xtc_again",
        "xtc_real", "cka_pocket", "cmow_cola", "cmow_pocket", "cmow_real", "mc3kd_few", "mc3kd_claims", "mc3kd_lm",
        "pocket_suite",
    )},
    "claims-count": claims.counts,
    **{f"claims-{paper}": functools.partial(claims.of_paper, paper) for paper in claims.PAPERS},
    "claims-sources": claims.sources,
}  # fmt: skip


def lines_of(file: str, name: str, paragraph: str = "") -> str:
    """The lines of a function, or of a class's method, without its docstring, or one paragraph of them, from 1, as a
    block of a page."""
    source = (results.ROOT / file).read_text(encoding="utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        node = next(inner for inner in node.body if getattr(inner, "name", "") == part)
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:
        said = node.body[0]
        at = said.lineno - node.lineno
        del lines[at : said.end_lineno - node.lineno + 1]
        del lines[at : at + (not lines[at])]  # of a class the blank line after it too
    text = "\n".join(lines)
    text = text.split("\n\n")[int(paragraph) - 1] if paragraph else text
    return "```py\n" + textwrap.dedent(text) + "\n```"


def filled(text: str) -> str:
    """A page's text with every table made anew, and the lines of scripts that it shows cut out again."""

    def replace(match: re.Match[str]) -> str:
        kind, name, rest = match.groups()
        made = TABLES[name]() if kind == "table" else lines_of(name, *rest.split())
        return f"<!-- {kind} {name}{rest} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- (table|code) ([\w./-]+)((?: [\w.]+)*) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def main(argv: list[str]) -> None:
    Parser("readme", __doc__).parse_args(argv)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
