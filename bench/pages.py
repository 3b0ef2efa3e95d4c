"""The tables and figures in README.md and the pages under docs/, made from the checked-in results.

    python -m bench pages            # rewrite them

Between `<!-- KIND WHAT -->` and `<!-- end -->` stands what is made: a `table` of TABLES; the lines of a function, `code
FILE FUNCTION`; or a figure in a sentence, of FIGURES. `higher arena mc3kd - kd, mnli` is a difference and its interval:
the sentence says "higher", and the command refuses where the interval says another word. docs/tables.toml names the
lines and columns of most tables.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
import tomllib
from collections.abc import Callable, Container, Iterable
from fnmatch import fnmatch
from typing import Any

import numpy as np

from bench import FOLDER, Parser, claims, matrix, saved, speed, stats, table
from bench.claims import Scores
from bench.records import KEPT
from bench.stats import Contrast
from bench.table import Grid, Row, Table, cell, short, teacher_score
from common import results
from common.args import BadInput

PAGES = [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]
LAYOUT: dict[str, Any] = tomllib.loads((results.ROOT / "docs" / "tables.toml").read_text(encoding="utf-8"))


def paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


# --- figures in sentences ------------------------------------------------------------------------------------


def kept(name: str) -> Table:
    if (found := claims.kept(name)) is None:
        raise BadInput(f"{name}: has no checked-in result; `python -m bench table {name} --save {name}` makes it")
    return found


def chosen(name: str, patterns: str) -> list[Row]:
    """The rows of a result that a word of `patterns` matches, "all-*"."""
    rows = [row for label, row in claims.rows(name).items() if any(fnmatch(label, one) for one in patterns.split())]
    if not rows:
        raise BadInput(f"{name}: has no row {patterns}")
    return rows


def parsed(words: str) -> tuple[str, str, list[str]]:
    """RESULT ROWS[, TASK]: the name of the result, the words of its rows, and the task, or all of its tasks."""
    name, _, rest = words.partition(" ")
    rows, _, task = rest.partition(", ")
    return name, rows, [one for one in kept(name).tasks if task in ("", short(one))]


def difference(words: str) -> Contrast:
    """RESULT ROWS - ROWS[, TASK]: the mean of some rows over that of others, on a task or on all."""
    name, rows, tasks = parsed(words)
    left, right = (chosen(name, side) for side in rows.split(" - "))
    weights = [*((row, 1 / len(left)) for row in left), *((row, -1 / len(right)) for row in right)]
    return kept(name).contrast(weights, tasks)


def said(word: str, words: str) -> str:
    """A difference of which a sentence says `word`."""
    one = difference(words)
    found = "the tasks disagree" if one.disagree else one.found and one.found.word
    if one.found is None or found != word:
        raise BadInput(f"a page says that {words} is {word}, but it is: {one.verdict}")
    return one.found.text()


def scored(words: str) -> list[float]:
    """RESULT ROWS[, TASK]: the mean score of each row in percent, on a task or over all, of a language model its
    perplexity; `teacher` is the teacher."""
    name, rows, tasks = parsed(words)
    if rows == "teacher":
        return [100 * float(np.mean([teacher_score(kept(name).tasks[one]) for one in tasks]))]
    found = [float(np.mean([np.mean(row.values(one)) for one in tasks])) for row in chosen(name, rows)]
    language = kept(name).tasks[tasks[0]]["primary"]["name"] == "token_probability"
    return [1 / value if language else 100 * value for value in found]


def spread(words: str) -> str:
    """The lowest and the highest of several scores."""
    return f"{min(scored(words)):.1f} to {max(scored(words)):.1f}"


def megabytes(words: str) -> str:
    (row,) = chosen(*words.split())
    return f"{row.typical('student', 'bytes') / 1e6:.2f}"


def arena_titles() -> dict[str, str]:
    """Row of the two arenas -> what it is called in words."""
    both = LAYOUT["tables"]["arena"]["lines"] | LAYOUT["tables"]["real-arena"]["lines"]
    return {row: title for title, row in both.items()}


def at_the_end(_: str) -> str:
    """The rows of the arena whose weight has won at the end of what was tried, and could go on."""
    tried = saved("arena_trials")["rows"]
    titles = arena_titles()
    named = [row.name for row in kept("arena").arena() if row.name in tried]
    return ", ".join(titles[name] for name in named if "beta" in tried[name]["at_edge"])


def transfer(words: str) -> str:
    """How the small tasks' order of rows goes with the real one: the rank correlation or its p value."""
    column = {"rank correlation": 2, "p": 4}[words]
    return str(next(row for row in saved("transfer")["rows"] if row[1] == "real tasks, mean")[column])


def claims_that(words: str) -> str:
    """How many claims there are, or have this answer."""
    answers = [claims.outcome(claim) for claim in claims.read()["claims"]]
    return str(len(answers) if words == "all" else answers.count(words))


FIGURES: dict[str, Callable[[str], str]] = {
    "score": lambda words: f"{scored(words)[0]:.1f}", "scores": spread, "megabytes": megabytes,
    "higher": functools.partial(said, "higher"), "lower": functools.partial(said, "lower"),
    "unclear": functools.partial(said, "not distinguishable"),
    "largest": at_the_end, "transfer": transfer, "claims": claims_that,
}  # fmt: skip


def findings() -> str:
    """README's findings, in which {FIGURE WORDS} stands for a figure."""
    text = re.sub(r"\{(\w+) ([^}]*)\}", lambda match: FIGURES[match[1]](match[2]), LAYOUT["findings"])
    items = (" ".join(item.split()) for item in re.split(r"\n(?=\d\. )", text.strip()))
    return "\n".join(textwrap.fill(item, 118, subsequent_indent="   ", break_on_hyphens=False) for item in items)


# --- tables in the field's words -----------------------------------------------------------------------------

SIGNS = {"higher": " ↑", "lower": " ↓", "not distinguishable": " ≈"}


def laid_out(layout: dict[str, Any]) -> str:
    """A matrix in words: a line for each way to train, a column for each task, and beside a score how it compares with
    the line `over`. A line names its row, "{}-kd"; a column its task, "" for the mean over all, and what stands for {}.
    `also` is a second matrix, whose rows are called NAME/ROW."""
    name, also, over = layout["matrix"], layout.get("also", ""), layout.get("over", "")
    found = kept(name)
    named = claims.rows(name) | {f"{also}/{label}": row for label, row in claims.rows(also).items()}
    tasks_of = {"": list(found.tasks), **{short(task): [task] for task in found.tasks}}
    lines, columns = [], list(layout["columns"].values())
    for wrong in [task for task, *_ in columns if task not in tasks_of] + [over] * (over not in ("", *layout["lines"])):
        raise BadInput(f"docs/tables.toml: {name} has no task or line {wrong!r}; tasks go without pocket/")

    def cell_of(title: str, task: str, *parts: str) -> str:
        tasks, row = tasks_of[task], named.get(layout["lines"][title].format(*parts))
        if row is None or not row.cells.keys() >= {*tasks}:
            return "-"
        other = named.get(layout["lines"].get(over, "").format(*parts)) if title != over else None
        score = found.scored(row, tasks[0]) if task else table.mean_cell(found.mean(row))
        return score + sign(found.over(row, other, tasks))

    for title, label in layout["lines"].items():
        lines.append([title, *(cell_of(title, *column) for column in columns)])
        if {*lines[-1][1:]} == {"-"}:
            raise BadInput(f"docs/tables.toml: {name} has no row {label}")
    teachers = []
    for task, *parts in columns:
        rows = [row for label in layout["lines"].values() if (row := named.get(label.format(*parts)))
                and row.role != table.ROLES["finetune"]]  # fmt: skip
        teachers.append(taught(found, rows, tasks_of[task]))
    lines += [["teacher", *teachers]] * ({*teachers} != {"-"})
    shown = Grid([layout.get("title", ""), *layout["columns"]], lines).markdown()
    signs = {"↑": "better", "↓": "worse", "≈": "not distinguishable", "~": "the tasks disagree"}
    marks = ", ".join(f"{sign} {word}" for sign, word in signs.items() if sign in shown)
    dagger = "†: [excluded](../bench/RULES.md#intervals-and-words-rules-8-to-11)."
    said = [f"Beside *{over}*: {marks}."] * bool(marks) + [dagger] * ("†" in shown) + [table.remarks(found)]
    return paragraphs(shown, " ".join(filter(None, said)))


def taught(found: Table, rows: list[Row], tasks: list[str]) -> str:
    """The scores of the teachers of some rows, mean over the tasks."""
    scores = set()
    for row in rows:
        records = [row.records(task)[0] for task in tasks if row.records(task)]
        if len(records) == len(tasks) and all(record["teacher"]["metrics"] for record in records):
            scores.add(f"{100 * np.mean([teacher_score(record) for record in records]):.1f}")
    return " / ".join(sorted(scores, reverse=True)) or "-"


def sign(one: Contrast) -> str:
    if one.found is None:
        return ""
    return " ~" if one.disagree else SIGNS.get(one.found.word or "", "")


def signed(one: Contrast) -> str:
    return one.found.text() + sign(one) if one.found else "†"


def effects(layout: dict[str, Any]) -> str:
    """What each factor of a matrix does: the mean of some rows over that of others, by task."""
    tasks = layout["tasks"]
    lines = [[title, *(signed(difference(f"{layout['matrix']} {rows}, {task}")) for task in tasks)]
             for title, rows in layout["effects"].items()]  # fmt: skip
    return paragraphs(Grid(["points", *tasks], lines).markdown(), "↑ higher, ↓ lower, ≈ not distinguishable from zero.")


# --- tables of rows as their matrices call them: the appendix ------------------------------------------------


def trials() -> Grid:
    """Of each row whose trials are over what has won, and where in its grid."""
    lines = []
    for name, row in saved("arena_trials")["rows"].items():
        if row["winner"]:
            best = max(trial["mean"] for trial in row["trials"] if trial["mean"] is not None)
            end = ", ".join(row["at_edge"]) or "-"
            lines.append([name, f"{len(row['trials'])}", matrix.words_of(row["winner"]), end, f"{100 * best:.1f}"])
    return Grid(["row", "trials", "won", "at an end of what was tried", "its mean on dev"], lines)


def halves(found: Table) -> Grid:
    """Of tasks that report several splits: the score on each, of the teacher and of the arena's rows."""
    places = [(task, split) for task, record in found.tasks.items() if len(splits := record["metrics"]) > 1
              for split in splits]  # fmt: skip

    def line(title: str, records: dict[str, list[dict[str, Any]]]) -> list[str]:
        return [title, *(cell([one["metrics"][split][found.tasks[task]["primary"]["name"]] for one in records[task]])
                         for task, split in places)]  # fmt: skip

    lines = [line("teacher", {task: [record["teacher"]] for task, record in found.tasks.items()})]
    lines += [line(row.label, {task: [one.record for one in row.cells[task].values()] for task in found.tasks})
              for row in found.arena()]  # fmt: skip
    titles = [f"{short(task)}, {split.partition('_')[2] or split}" for task, split in places]
    return Grid(["student", *titles], lines)


def compared(found: Table, named: dict[str, Row], pairs: Iterable[str]) -> str:
    """The first row of each pair, "A - B", over the second, on every task; "-" where one of them lacks it."""
    tasks, rows = sorted(found.tasks, key=short), []
    for a, b in (pair.split(" - ") for pair in pairs):
        if a in named and b in named:
            each = [signed(found.over(named[a], named[b], [task]))
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


def with_pairs(name: str) -> str:
    """Every row of a kept matrix, and the differences that its file calls of interest."""
    found = kept(name)
    pairs = matrix.read_file(matrix.MATRICES / f"{name}.toml").get("pairs", ())
    marked = {(label, short(task)) for label, row in claims.rows(name).items() for task in row.cells
              if found.untrained(row, task)}  # fmt: skip
    return paragraphs(
        table.remarks(found), listed(claims.scores(name), marked), compared(found, claims.rows(name), pairs)
    )


def precision(real: Table) -> str:
    """What bf16 does to the real arena: its runs over those of the same rows and seeds in float32, where their gradient
    is the same."""
    before = {row.name: row for row in kept("real_arena_fp32").rows}
    said = []
    for task in real.tasks:
        both = [(row, before[row.name]) for row in real.arena() if row.name in before and task in before[row.name].cells
                and {one["settings"]["precision"] for one in row.records(task)} == {"bf16"}
                and not any("ccc" in one["settings"] for one in row.records(task))]  # fmt: skip
        gaps = [a["primary"]["value"] - b["primary"]["value"] for row, other in both
                for a, b in zip(row.records(task), other.records(task), strict=True)]  # fmt: skip
        if gaps:  # each run by itself: rows of one seed do not move together
            one = stats.estimate([stats.Sample(np.array(gaps))])
            said.append(f"{short(task)} {one.text()}, {one.word} ({len(gaps)} runs, students and teacher)")
    return f"The same runs in bf16 over those in float32: {'; '.join(said) or 'no result yet'}."


# --- the pages -----------------------------------------------------------------------------------------------


def every_row(found: Table) -> str:
    return paragraphs(table.remarks(found), table.scores(found).markdown())


def planned(found: Table) -> Grid:
    """The planned contrasts, without each task's figures."""
    whole = table.contrasts(found)
    lines = [[line[0].partition(" (")[0], *line[1:]] for line in whole.rows[: len(stats.PLANNED)]]
    return Grid(whole.header, lines).columns([0, 1, 2, len(whole.header) - 1])


def order(which: slice) -> Grid:
    """Lines of the study of the order of rows, on small tasks and on real ones."""
    return Grid(saved("transfer")["header"], saved("transfer")["rows"][which])


# Kept results of files that have `pairs` of their own, which may be empty
KEPT_FILES = [file for file in sorted(matrix.MATRICES.glob("*.toml")) if (FOLDER / f"{file.stem}{KEPT}").exists()]
WITH_PAIRS = [file.stem for file in KEPT_FILES if "pairs" in tomllib.loads(file.read_text(encoding="utf-8"))]
TABLES: dict[str, Callable[[], str | Grid]] = {
    "findings": findings,
    "arena-whole": lambda: every_row(kept("arena")),
    "arena-trials": trials,
    "arena-planned": lambda: planned(kept("arena")),
    "arena-contrasts": lambda: table.contrasts(kept("arena")),
    "arena-halves": lambda: halves(kept("arena")),
    "arena-pairs": lambda: table.pair_table(kept("arena")),
    "real-arena-whole": lambda: every_row(kept("real_arena")),
    "real-contrasts": lambda: table.contrasts(kept("real_arena")),
    "real-precision": lambda: precision(kept("real_arena")),
    "transfer": lambda: order(slice(5)).columns([1, 2, 3, 4]),
    "transfer-rest": lambda: order(slice(5, None)),
    "kernels": lambda: speed.ratios_text(saved("kernels")),
    "peers": lambda: speed.peers_text(saved("peers")),
    "attention-profile": lambda: speed.lengths_text(saved("attention_profile")),
    "xtc-inference": lambda: speed.packed_text(saved("xtc_inference")),
    "xtc-inference-avx2": lambda: speed.packed_text(saved("xtc_inference_avx2")),
    **{name.replace("_", "-"): functools.partial(with_pairs, name) for name in WITH_PAIRS},
    **{name: functools.partial(effects if "effects" in layout else laid_out, layout)
       for name, layout in LAYOUT["tables"].items()},
    "claims-count": claims.counts,
    **{f"claims-{paper}": functools.partial(claims.of_paper, paper) for paper in claims.PAPERS},
    "claims-sources": claims.sources,
}  # fmt: skip


def lines_of(file: str, name: str) -> str:
    """The lines of a function, or of a class's method, without its docstring, as a block of a page."""
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
    return "```py\n" + textwrap.dedent("\n".join(lines)) + "\n```"


def filled(text: str) -> str:
    """A page's text with every table and figure made anew, and the lines of scripts that it shows cut out again."""

    def replace(match: re.Match[str]) -> str:
        kind, name, rest = match.groups()
        if kind == "table" and name not in TABLES:
            raise BadInput(f"<!-- table {name} -->: no such table; [tables.{name}] in docs/tables.toml makes one")
        made = TABLES[name]() if kind == "table" else lines_of(name, rest.strip())
        made = made.markdown() if isinstance(made, Grid) else made
        return f"<!-- {kind} {name}{rest} -->\n{made}\n<!-- end -->"

    def figure(match: re.Match[str]) -> str:
        kind, words = match[1], " ".join(match[2].split())  # whoever wraps a paragraph may break a line here
        return f"<!-- {kind} {words} -->{FIGURES[kind](words)}<!-- end -->"

    made = re.sub(r"<!-- (table|code) ([\w./-]+)((?: [\w.]+)?) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)
    made = re.sub(rf"<!--\s({'|'.join(FIGURES)})\s([^>]+?)\s-->[^<]*<!--\send\s-->", figure, made)
    marks = re.findall(r"(?<!`)<!--\s*(\S*)", made)  # in code it is a word of the page
    if (odd := set(marks) - {"table", "code", "end", *FIGURES}) or 2 * marks.count("end") != len(marks):
        raise BadInput(f"<!-- {min(odd, default=' -->, <!-- '.join(marks))} -->: a mark has no end, or is of no kind")
    return made


def main(argv: list[str]) -> None:
    Parser("pages", __doc__).parse_args(argv)
    if twice := [name for name in LAYOUT["tables"] if name.replace("-", "_") in WITH_PAIRS]:
        raise BadInput(f"docs/tables.toml: {twice[0]} is a table of docs/tables.md already; give another name")
    for page, text in {page: filled(page.read_text(encoding="utf-8")) for page in PAGES}.items():
        page.write_text(text, encoding="utf-8")
