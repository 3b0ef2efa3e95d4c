"""The tables in README.md and the pages under docs/, made from the checked-in results.

    python -m bench pages            # rewrite them

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a key of TABLES. Where a result is not there
yet, the page says so, and which command makes it. `<!-- code FILE FUNCTION -->` is followed by the function's lines.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from bench import Parser, claims, matrix, saved, speed, stats, table
from bench.claims import Scores
from bench.table import Grid, Row, Table, cell, short, teacher_score
from common import results
from common.args import BadInput

PAGES = [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]


def pending(name: str) -> str:
    """What stands in the place of a result that is not there yet."""
    return (
        f"No result yet with this version of the pocket suite. It takes `python -m bench run {name}`, and"
        f" `python -m bench table {name} --save {name}`."
    )


def of(name: str, make: Callable[[Table], str | Grid]) -> Callable[[], str]:
    """A table of a kept matrix, or what is said without it."""

    def text() -> str:
        if (found := claims.kept(name)) is None:
            return pending(name)
        made = make(found)
        return made.markdown() if isinstance(made, Grid) else made

    return text


def paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


# --- the arena -----------------------------------------------------------------------------------------------


def by_rate(trials: list[dict[str, Any]]) -> dict[float, float]:
    """A row's mean scores, in percent, by learning rate, in order: of the weight that was tried at most of them."""
    lines: dict[str, dict[float, float]] = {}  # by what else was given: a weight is tried at one rate alone
    for trial in trials:
        if trial["mean"] is not None and "lr" in trial["point"]:
            others = {key: value for key, value in trial["point"].items() if key != "lr"}
            lines.setdefault(str(others), {})[trial["point"]["lr"]] = 100 * trial["mean"]
    return dict(sorted(max(lines.values(), key=len, default={}).items()))


def trials() -> str:
    """Of each row whose trials are over the scores by rate, what has won, and where in its grid."""
    lines = []
    for name, row in saved("arena_trials")["rows"].items():
        if row["winner"]:
            means, end = by_rate(row["trials"]), ", ".join(row["at_edge"]) or "-"
            each = f"{min(means):g}: {', '.join(f'{mean:.0f}' for mean in means.values())}"
            each = "-" if "C" in row["winner"] else each  # a linear model has no rate
            best = f"{100 * max(trial['mean'] for trial in row['trials'] if trial['mean'] is not None):.1f}"
            lines.append([name, f"{len(row['trials'])}", each, matrix.words_of(row["winner"]), end, best])
    rates = "on dev by rate, each twice the one before"
    header = ["row", "trials", rates, "won", "at an end of what was tried", "its mean"]
    return Grid(header, lines).markdown()


def ends(found: Table) -> str:
    """The rows whose weight has won at the end of what was tried, and could go on."""
    trials = saved("arena_trials")["rows"]
    names = [row.label for row in found.arena() if "beta" in trials.get(row.name, {"at_edge": []})["at_edge"]]
    return ", ".join(names)


def beside_linear(found: Table) -> str:
    """What the linear model does beside the arena's rows."""
    if not found.linear():
        return ""
    means = {row.name: table.mean_cell(mean and mean.interval()) for row in (*found.linear(), *found.arena())
             for mean in [found.mean(row)]}  # fmt: skip
    over = "; ".join(f"{one.what} {one.interval.text()}, {one.word}" if one.interval else f"{one.what} - ({one.word})"
                     for one in stats.planned(found, stats.LINEAR_OVER))  # fmt: skip
    return (
        f"Mean of {', '.join(map(short, found.tasks))}: the linear model {means['linear']} from as many labelled rows"
        f" as a student sees, {means['linear-all']} from all of train; the undistilled student"
        f" {means['undistilled']}, vanilla KD {means['kd']}. Differences: {over}."
    )


# README's findings; `findings` puts the figures in, and refuses where an interval says another word
FINDINGS = """\
1. **Match hidden states, not only outputs.** On four small tasks made by rule, vanilla KD scores {kd} of 100, a loss on
   the hidden states of all tokens {lowest} to {highest}, and the teacher {teacher}. On SST-2, STS-B and QQP under
   MiniLM such a loss adds {gain} points to vanilla KD.
2. **On the real tasks a linear model comes close to vanilla KD**: higher on STS-B, lower on SST-2. TF-IDF with logistic
   or ridge regression scores {linear} from as many labelled rows as a student sees, and {linear_all} from all of train;
   vanilla KD scores {real_kd}, the student without a teacher {undistilled}. Losses on hidden states are {over_linear}
   points above it. On the small tasks it scores {linear_small}.
3. **Which hidden loss you take matters less.** On the real tasks squared error, cosine, CKA, MC3KD's, XTC's and
   MiniLM's losses score {real_lowest} to {real_highest}, and a learned projection {projection}. But these students copy
   the teacher's layers, so dimension 5 means the same in both, which suits a squared error. On the small tasks students
   of half the width, from random weights, score {narrow_kd} by KD and {narrow_cka} by CKA. There the best weight of
   {ends} was the largest that was tried.
4. **All tokens beat [CLS].** MC3KD's loss gains {ccc_tokens}; the 32 [CLS] vectors of a batch are few for it. PKD's
   squared error gains {mse_tokens}.
5. **One bit a weight costs little where the teacher is small.** XTC's student of {megabytes} MB differs from its 32-bit
   twin by {bit} points on the small tasks; MiniLM with all six layers by {real_bits}, and with three by {half_bits}.
6. **That the small tasks predict the order on real ones is not shown**: over ten rows the orders cannot be told from
   unrelated ones (rank correlation {rank}, p = {p}). Use them to learn and to debug, and `bench arena` on your own data
   to choose.
7. **{claims} claims of the five papers were checked at this scale.** {held} held somewhere and failed nowhere, and
   {failed} failed somewhere; the others could not be decided, or were not tested."""


def findings() -> str:
    """README's findings, with figures of checked-in results."""
    arena, real, xtc, factorial = map(claims.kept, ("arena", "real_arena", "xtc_real", "mc3kd_factors"))
    rows, real_rows = claims.rows("arena"), claims.rows("real_arena")
    if not (arena and real and xtc and factorial and "linear" in real_rows):
        return pending("real_arena")

    def scored(found: Table, name: str) -> str:
        row = next(row for row in found.rows if row.name == name)
        return f"{100 * found.mean(row).mean:.1f}"  # type: ignore[union-attr]

    def told(one: stats.Contrast, word: str) -> str:
        if one.interval is None or one.interval.word != word:
            raise BadInput(f"README says that {one.what or 'a difference'} is {word}, but it is {one.verdict}")
        return one.interval.text()

    hidden = stats.PLANNED[1][1]
    small = [scored(arena, name) for name in hidden]
    alike = [scored(real, name) for name in ("mse-kd", "cosine-kd", "cka-kd", "mc3kd", "xtc-32bit", "minilm-kd")]
    over_student, _, over_linear = stats.planned(real, stats.LINEAR_OVER)
    told(over_student, "not distinguishable")
    for task, word in (("stsb", "higher"), ("sst2", "lower")):
        told(real.over(real_rows["linear"], real_rows["kd"], [task]), word)
    cells, twins = claims.rows("mc3kd_factors"), claims.rows("xtc_real")

    def tokens(names: tuple[str, ...]) -> str:
        """All tokens over [CLS], for one of the two losses, by task."""
        signs = {"all": 1, "cls": -1}
        chosen = [(cells[name], signs[name[:3]] / 4) for name in cells if name.endswith(names) and name[:3] in signs]
        each = {short(task): factorial.contrast(chosen, [task]) for task in factorial.tasks}
        return " and ".join(f"{one.interval.text()} on {task}" for task, one in each.items() if one.interval)

    def bits(size: str) -> str:
        each = {short(task): xtc.over(twins[f"{size}-1bit"], twins[f"{size}-32bit"], [task]) for task in xtc.tasks}
        return " and ".join(f"{told(one, 'lower')} on {task}" for task, one in each.items())

    transfer = next(row for row in saved("transfer")["rows"] if row[1] == "real tasks, mean")
    words = [{said for said, _ in claims.answers(claim).values()} for claim in claims.read()["claims"]]
    text = FINDINGS.format(
        kd=scored(arena, "kd"), lowest=min(small), highest=max(small), gain=told(stats.planned(real)[1], "higher"),
        teacher=f"{100 * np.mean([teacher_score(record) for record in arena.tasks.values()]):.1f}",
        linear_all=scored(real, "linear-all"), linear=scored(real, "linear"), real_kd=scored(real, "kd"),
        undistilled=scored(real, "undistilled"), over_linear=told(over_linear, "higher"),
        real_lowest=min(alike), real_highest=max(alike),
        projection=scored(real, "lin-kd"), narrow_kd=scored(arena, "narrow-kd"), narrow_cka=scored(arena, "narrow-cka"),
        ccc_tokens=tokens(("-mc3kd", "-only-mc3")), mse_tokens=tokens(("-pkd-skip", "-only-selection")),
        megabytes=f"{rows['1bit-xtc'].typical('student', 'bytes') / 1e6:.2f}",
        bit=told(arena.over(rows["1bit-xtc"], rows["xtc-32bit"], arena.tasks), "lower"),
        real_bits=bits("full"), half_bits=bits("half"), linear_small=scored(arena, "linear"),
        ends=ends(arena), rank=transfer[2], p=transfer[4], claims=len(words),
        held=sum("held" in some and "did not hold" not in some for some in words),
        failed=sum("did not hold" in some for some in words),
    )  # fmt: skip
    items = (" ".join(item.split()) for item in re.split(r"\n(?=\d\. )", text))
    return "\n".join(textwrap.fill(item, 118, subsequent_indent="   ", break_on_hyphens=False) for item in items)


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
    without = table.contrasts(table.on_matched(found))
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
    return Grid(["points", *map(short, tasks)], rows).markdown() if rows else ""


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


def perplexities(found: Table) -> str:
    """Language models: each row's perplexity, whose inverse is the score, RCCC, and the pairs of the matrix."""
    (task,) = found.tasks
    rows, pairs = claims.rows("mc3kd_lm"), []
    lines = []
    for name, row in rows.items():
        rccc = cell(record["analysis"]["rccc"] for record in row.records())
        lines.append([name, cell(0.01 / value for value in row.values(task)), rccc])
    for pair in matrix.read_file(matrix.MATRICES / "mc3kd_lm.toml")["pairs"]:
        a, b = (rows[name] for name in pair.split(" - "))
        word = found.over(a, b, [task]).word  # of the inverse: what is higher has a lower perplexity
        pairs.append([pair.replace(" - ", " against "), {"higher": "lower", "lower": "higher"}.get(word, word)])
    shown = Grid(["student", "perplexity", "RCCC, %"], lines), Grid(["perplexity of", ""], pairs)
    return paragraphs(*(one.markdown() for one in shown))


def litbank(found: Table) -> str:
    """`short` has the others' examples and steps, `windows` their tokens; last the teacher."""
    scores = claims.scores("attention_litbank") | {"windows": claims.scores("attention_windows")["short"]}
    named = claims.rows("attention_litbank") | {"windows": claims.rows("attention_windows")["short"]}
    pairs = compared(found, named, ("off - windows", "long - windows", "long - off"))
    (task,) = found.tasks
    teacher = {short(task): {0: teacher_score(named["long"].records(task)[0])}}
    return paragraphs(listed(scores | {"teacher": teacher}), pairs)


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
    "findings": findings,
    "arena-whole": of("arena", table.markdown),
    "arena-trials": trials,
    "arena-contrasts": of("arena", table.contrasts),
    "arena-ladder": of("arena", table.ladder),
    "arena-fidelity": of("arena", table.fidelity),
    "arena-halves": of("arena", halves),
    "arena-pairs": of("arena", table.pair_table),
    "attention-litbank": of("attention_litbank", litbank),
    "kernels": lambda: speed.ratios_text(saved("kernels")),
    "peers": lambda: speed.peers_text(saved("peers")),
    "attention-profile": lambda: speed.lengths_text(saved("attention_profile")),
    "xtc-inference": lambda: speed.packed_text(saved("xtc_inference")),
    "xtc-inference-avx2": lambda: speed.packed_text(saved("xtc_inference_avx2")),
    "mc3kd-factors": of("mc3kd_factors", factors),
    "real-arena": of("real_arena", table.markdown),
    "real-contrasts": of("real_arena", table.contrasts),
    "real-linear": of("real_arena", beside_linear),
    "arena-linear": of("arena", beside_linear),
    "real-precision": of("real_arena", precision),
    "transfer": lambda: Grid(saved("transfer")["header"], saved("transfer")["rows"]).markdown(),
    "real-few": with_pairs("real_few", whole=True),
    "mc3kd-lm": of("mc3kd_lm", perplexities),
    **{name.replace("_", "-"): with_pairs(name) for name in (
        "attention_pocket", "attention_kinds", "attention_short", "xtc_pocket", "xtc_long", "xtc_few", "xtc_again",
        "xtc_real", "cka_pocket", "cmow_cola", "cmow_pocket", "cmow_real", "mc3kd_few", "mc3kd_claims",
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
    Parser("pages", __doc__).parse_args(argv)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
