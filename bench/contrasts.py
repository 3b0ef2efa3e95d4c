"""Comparisons of the arena: those that were planned before the runs, and all pairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from bench import stats
from bench.grid import Grid
from bench.records import Cell, Splits
from bench.rows import ROLES, Contrast, Row, Table, short

WANTED = 0.02  # the difference that a table should be able to tell

# Rows of a loss on hidden states of all tokens beside KD's; the five contrasts that were planned before the runs
TOKENS = ("mse-kd", "cka-kd", "mc3kd", "cosine-kd", "lin-kd")
PLANNED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("KD over undistilled", ("kd",), "undistilled"),
    ("losses on all tokens' hidden states over KD", TOKENS, "kd"),
    ("CKA over CCC (cka-kd over mc3kd)", ("cka-kd",), "mc3kd"),
    ("CKA over squared error (cka-kd over mse-kd)", ("cka-kd",), "mse-kd"),
    ("CCC over squared error (mc3kd over mse-kd)", ("mc3kd",), "mse-kd"),
)

# The linear model from as many labelled rows: not planned
LINEAR_OVER: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("linear over undistilled", ("linear",), "undistilled"),
    ("linear over KD", ("linear",), "kd"),
    ("losses on all tokens' hidden states over linear", TOKENS, "linear"),
)


def corrected(made: list[Contrast]) -> list[Contrast]:
    """With p values corrected for the number of those that are known, by Holm's rule."""
    known = [i for i, one in enumerate(made) if not np.isnan(one.p)]
    for i, p in zip(known, stats.holm([made[i].p for i in known]), strict=True):
        made[i] = made[i]._replace(p=p)
    return made


def planned(table: Table, which: Sequence[tuple[str, tuple[str, ...], str]] = PLANNED) -> list[Contrast]:
    """The contrasts that were planned, or others, with Holm's correction for their number."""
    named, made = {row.name: row for row in (*table.arena(), *table.linear())}, []
    for what, left, right in which:
        rows = [named[name] for name in left if name in named]
        if not rows or right not in named:
            made.append(Contrast(None, {}, np.nan, what, "no result yet"))
            continue
        weights = [*((row, 1 / len(rows)) for row in rows), (named[right], -1.0)]
        marked = [f"{row.name} on {short(task)}" for row, _ in weights for task in table.tasks
                  if table.untrained(row, task)]  # fmt: skip
        why = f"decides nothing where a cell is †: {', '.join(marked)}" if marked else ""
        made.append(table.contrast(weights, table.tasks)._replace(what=what, why=why))
    return corrected(made)


def on_matched(table: Table) -> Table:
    """The table with the matched split alone of a task that reports several: mnli."""

    def alone(cell: Cell) -> Cell:
        record = cell.record
        split = next((name for name in record["metrics"] if name.endswith("_matched")), "")
        if not split:
            return cell

        def items() -> tuple[Splits, Splits]:
            found, labels = cell.items()
            return {name: values for name, values in found.items() if name == split}, labels

        value = record["metrics"][split][record["primary"]["name"]]
        return replace(cell, record=record | {"primary": record["primary"] | {"value": value}}, items=items)

    rows = [replace(row, cells={task: {seed: alone(cell) for seed, cell in cells.items()}
                                for task, cells in row.cells.items()}) for row in table.rows]  # fmt: skip
    return replace(table, rows=rows)


def has_contrasts(table: Table) -> bool:
    """Whether it has the rows of the first planned contrast."""
    return {"kd", "undistilled"} <= {row.name for row in table.arena()}


def contrasts(table: Table) -> Grid:
    lines = []
    for one in planned(table) + (planned(table, LINEAR_OVER) if table.linear() else []):
        said = f"{one.word} ({one.why})" if one.why and one.interval else one.word
        p = "-" if np.isnan(one.p) else "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
        figure = one.interval.text() if one.interval else "-"
        each = [one.tasks[task].text() if task in one.tasks else "-" for task in table.tasks]
        lines.append([one.what, figure, p, *each, said])
    return Grid(["planned", "points", "p (Holm)", *map(short, table.tasks), "said"], lines)


def pairs(table: Table, rows: Sequence[Row], wanted: Iterable[str]) -> dict[tuple[int, int], Contrast]:
    """Every row minus each that stands below it, with Holm's correction for their number: exploratory."""
    wanted, which = list(wanted), list(itertools.combinations(range(len(rows)), 2))
    return dict(zip(which, corrected([table.over(rows[a], rows[b], wanted) for a, b in which]), strict=True))


def pair_table(table: Table) -> Grid:
    """The pairs of the arena. Bold: told apart; `=`: as good as; `~`: the tasks disagree."""
    rows = table.arena()
    found = pairs(table, rows, table.tasks)

    def shown(one: Contrast) -> str:
        if one.found is None:
            return "†"
        mark = "**" * (one.p < 0.05 and not one.disagree)
        return f"{mark}{100 * one.found.mean:+.1f}{mark}" + " =" * one.alike + " ~" * bool(one.disagree)

    lines = [[row.label, *("" if j <= i else shown(found[i, j]) for j in range(1, len(rows)))]
             for i, row in enumerate(rows[:-1])]  # fmt: skip
    return Grid(["minus", *(row.label for row in rows[1:])], lines)


def spread(table: Table) -> str:
    """Seeds with which a difference of `WANTED` between two rows of the arena would be told, its variances pooled over
    all rows over vanilla KD; "" without one."""
    rows = [row for row in table.arena() if row.role is None]
    rivals = [(row, kd) for row in rows if (kd := table.baseline(row, ROLES["kd"]))]
    pooled = []
    for task in table.tasks:
        trained = [pair for pair in rivals if not any(table.untrained(row, task) for row in pair)]
        samples = [table.sample([(row, 1.0), (kd, -1.0)], task) for row, kd in trained]
        used = [sample for sample in samples if sample is not None and len(sample.values) > 1]
        if not used:
            return ""
        deviation = float(np.mean([np.var(sample.values, ddof=1) for sample in used])) ** 0.5
        items = float(np.mean([0.0 if s.influence is None else stats.item_part(s.influence) for s in used])) ** 0.5
        pooled.append((deviation, items))
    count = stats.seeds_for(WANTED, *zip(*pooled, strict=True))
    seeds = "no number of" if np.isinf(count) else f"{count:.0f}"
    return (
        f"At this table's spread, pooled over its rows, a difference of {100 * WANTED:.0f} points from vanilla KD is"
        f" told in four cases of five with {seeds} seeds."
    )
