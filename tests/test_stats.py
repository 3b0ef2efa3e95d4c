"""Intervals over seeds and items, by themselves and beside a jackknife."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as distributions
from test_bench import RECORD, printed, row, write

from bench import claims, records, report, stats, table
from bench.stats import Estimate, Sample
from common import evaluate, metrics
from common.args import BadInput

SCORES = {"accuracy": metrics.accuracy, "f1": metrics.f1}
SCORES |= dict.fromkeys(("matthews", "pearson"), lambda x, y: float(np.corrcoef(x, y)[0, 1]))


def predicted(metric: str, items: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of a row and the labels, [N] each."""
    rng = np.random.default_rng(5)
    labels = rng.normal(size=items) if metric == "pearson" else (rng.random(items) < 0.3).astype(int)
    scores = (labels if metric == "pearson" else 2 * labels - 1) + rng.normal(size=items)
    return (scores if metric == "pearson" else (scores > 0).astype(int)), labels


@pytest.mark.parametrize("metric", stats.INFLUENCE)
def test_the_influence_of_an_item_is_what_leaving_it_out_changes(metric: str) -> None:
    (x, labels), score = predicted(metric), SCORES[metric]
    assert score(x, labels) == pytest.approx(metrics.METRICS[metric](x, labels))
    left_out = [200 * score(x, labels) - 199 * score(np.delete(x, i), np.delete(labels, i)) for i in range(200)]
    jackknife = np.array(left_out) - np.mean(left_out)
    assert stats.INFLUENCE[metric](x, labels) == pytest.approx(jackknife, rel=0.05, abs=0.05)
    assert not stats.correlated(np.ones(9), labels[:9]).any()
    assert not stats.found_and_true(np.zeros(9), np.zeros(9)).any()


def test_the_variance_of_a_mean_over_seeds_and_items_by_hand() -> None:
    """Additive effects alone: s^2 / S of the seeds, and the items' variance / N; nothing is counted twice."""
    item, seed = np.array([0.3, -0.1, -0.2, 0.0]), np.array([0.1, 0.2, 0.6])
    found = stats.estimate([Sample(seed, item + np.zeros((3, 1)))])
    assert found[:3] == pytest.approx((0.3, seed.var(ddof=1) / 3, item.var(ddof=1) / 4))
    parts = found.seeds**2 / 2 + found.items**2 / 3
    assert found.freedom == pytest.approx((found.seeds + found.items) ** 2 / parts)
    rng = np.random.default_rng(1)  # items that differ by chance within each seed: the seeds' variance holds that
    values = [stats.item_part(rng.normal(size=(5, 200))) for _ in range(50)]
    assert np.mean(values) < 0.25 / (5 * 200)
    alone = stats.estimate([Sample(seed)])
    known = distributions.ttest_1samp(seed, 0)
    assert (alone.mean, *alone.interval()) == pytest.approx((0.3, *known.confidence_interval()))
    assert alone.p == pytest.approx(known.pvalue)
    assert stats.estimate([Sample(np.array([0.0, 2])), Sample(np.array([10.0, 12]))]).interval() == pytest.approx(
        tuple(6 + sign * distributions.t.ppf(0.975, 2) * np.sqrt(2) / 2 for sign in (-1, 1))
    )
    one_seed = stats.estimate([Sample(np.array([1.0])), Sample(seed)])
    assert (one_seed.mean, one_seed.word, math.isnan(one_seed.interval()[0])) == (0.65, None, True)
    assert stats.estimate([Sample(np.array([0.5, 0.5]))]).interval() == (0.5, 0.5)


def test_equivalence_and_holm_by_hand() -> None:
    known = Estimate(0.002, 0.003**2, 0.0, 4.0)
    low, high = known.interval(0.9)
    assert (known.within(0.01) < 0.05) == (low > -0.01 and high < 0.01)
    assert known.within(0.01) == pytest.approx(distributions.t.sf((0.01 - 0.002) / 0.003, 4))
    assert Estimate(0.02, 0.003**2, 0.0, 4.0).within(0.01) > 0.5
    assert stats.holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert Estimate(0.1, 0.0, 0.0, 1.0).p == 0.0
    assert Estimate(0.0, 0.0, 0.0, 1.0).p == 1.0
    assert math.isnan(Estimate(0.1, math.nan, 1.0, 1.0).p)  # one seed


def test_seeds_for_a_difference_are_those_of_the_power_of_the_test() -> None:
    """As in the textbook's tables of the paired t test with 80% power: differences of 0.2, 0.5, 0.8 and 1 standard
    deviation need 199, 34, 15 and 10 pairs. Items bound from below what any number of seeds can tell."""
    assert [stats.seeds_for(d, [1.0], [0.0]) for d in (0.2, 0.5, 0.8, -1.0)] == [199, 34, 15, 10]
    assert stats.seeds_for(0.01, [1.0], [0.0]) == stats.seeds_for(0.5, [0.1], [0.4]) == float("inf")
    assert stats.seeds_for(0.5, [0.0], [0.0]) == 2
    count = int(stats.seeds_for(0.8, [1.0, 1.0], [0.1, 0.1]))  # two tasks: their mean spreads less
    rng, told = np.random.default_rng(1), 0
    for _ in range(1500):
        moves = 0.1 * 200**0.5 * rng.normal(size=(2, 1, 200))  # of the items' part as well: 200 of them on each task
        values = 0.8 + rng.normal(size=(2, count)) + moves.mean(2)
        found = stats.estimate([Sample(v, m + np.zeros((count, 1))) for v, m in zip(values, moves, strict=True)])
        told += found.interval()[0] > 0
    assert 0.74 <= told / 1500 <= 0.9


# --- tables with predictions, budgets and contrasts --------------------------------------------------------------

ITEMS = 1500
NAMES = {"undistilled": "finetune", "kd": "kd", "mse-kd": "mse", "cka-kd": "cka", "mc3kd": "mc3kd"}
SKILLS = dict(zip(NAMES, (0.4, 0.7, 1.1, 1.1, 1.12), strict=True))


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rows at two budgets, two tasks, three seeds, with logits or scores of 1,500 test items."""
    root, rng = tmp_path_factory.mktemp("arena"), np.random.default_rng(3)
    for task, (metric, labels) in LABELS.items():
        for (name, variant), budget, seed in itertools.product(NAMES.items(), (640, 1280), range(3)):
            side = labels if metric == "pearson" else 2 * labels - 1
            hard = np.random.default_rng(list(f"{task}{name}{budget}".encode())).normal(size=ITEMS)  # for all seeds
            scores = (SKILLS[name] - 0.3 * (budget == 640)) * side + 0.7 * hard + 0.7 * rng.normal(size=ITEMS)
            logits = np.stack([-scores, scores], 1) if metric != "pearson" else scores
            found = logits.argmax(1) if metric != "pearson" else scores
            path = write(root / name, SCORES[metric](found, labels), seed, variant, task,
                         budget={"name": str(budget), "amount": budget}, settings={"budget": str(budget)},
                         comparable=f"task:{task}|budget:{budget}|schema:1",
                         teacher={"metrics": {"dev": {metric: 0.6}}})  # fmt: skip
            evaluate.save_predictions(path.parent, {"dev": logits.astype(np.float32)})
    return root


LABELS = {
    "cola": ("matthews", (np.random.default_rng(0).random(ITEMS) < 0.4).astype(int)),
    "stsb": ("pearson", np.random.default_rng(1).normal(size=ITEMS)),
}


@pytest.fixture(autouse=True)
def labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "labels_of", lambda task, folder: {"dev": LABELS[task][1]})


def test_kept_predictions_give_the_intervals_of_the_runs(arena: Path, tmp_path: Path) -> None:
    """Of classes the same to the last digit; of scores, in half precision, as good as the same. They are far smaller
    than the runs' and nothing else is read. Without them an interval is over seeds alone, and the table says so."""
    whole = table.load([arena], 1280)
    records.save([arena], path := tmp_path / "kept.jsonl.gz", dict.fromkeys(LABELS, 1280))
    kept = table.load([path], 1280)
    for task, close in (("cola", 1e-4), ("stsb", 2e-2)):
        a, b = (found.over(row(found, "kd"), row(found, "mc3kd"), [task]).found for found in (whole, kept))
        assert a.items > 0
        assert tuple(b) == pytest.approx(tuple(a), rel=close)
    files = {file.name.partition(".")[0]: file.stat().st_size for file in path.with_name("kept").iterdir()}
    assert files.keys() == {*NAMES, "labels"}
    assert sum(files.values()) < 5 * 3 * (ITEMS / 4 + 2 * ITEMS) + ITEMS * 16 + 6 * 800
    text = printed(kept)
    assert "over seeds and test items" in text
    shutil.rmtree(path.with_name("kept"))
    records.arrays_of.cache_clear()
    assert "over seeds alone" in printed(table.load([path], 1280))


def test_items_stand_in_one_order_whatever_that_of_the_splits() -> None:
    """Rows are paired by item, and a file gives its tensors in any order."""
    rng = np.random.default_rng(0)
    found, labels = ({name: rng.integers(2, size=n) for name, n in (("a", 20), ("b", 30))} for _ in range(2))
    record = RECORD | {"primary": {"name": "accuracy", "value": 0.5}}
    moves = []
    for names in (("a", "b"), ("b", "a")):
        splits = {name: found[name] for name in names}
        moves.append(records.Cell("", "", record, lambda splits=splits: (splits, labels)).influence)  # type: ignore[misc]
    assert moves[0] is not None
    np.testing.assert_array_equal(*moves)


def test_a_ladder_its_area_and_how_soon_a_row_comes_near(arena: Path) -> None:
    found = table.load([arena], 1280)
    assert [*found.ladder] == [640, 1280]
    assert table.load([arena], 640).tasks["cola"]["budget"]["amount"] == 640
    strong, weak = row(found, "mc3kd"), row(found, "finetune")
    rungs = [[np.mean(found.rungs(strong, task)[amount]) for task in found.tasks] for amount in (640, 1280)]
    assert table.area(found, strong) == pytest.approx(np.mean(rungs))  # of two budgets their mean
    assert {table.near(found, weak, task) for task in found.tasks} == {"more than 1,280"}
    assert table.near(found, strong, "cola") in ("at most 640", "640 to 1,280")
    assert found.untrained(weak, "cola") is None
    low = table.load([arena], 640)
    weak = row(low, "finetune")
    assert low.untrained(weak, "cola") == "not learnt yet"  # less than half of what 1,280 examples reach
    assert low.over(row(low, "kd"), weak, ["cola"]).found is None


def test_planned_contrasts_are_those_that_were_planned(arena: Path, tmp_path: Path) -> None:
    """By hand: the mean of the hidden rows minus KD, p values by Holm over those five, words from these."""
    found = table.load([arena], 1280)
    kd, hidden, *losses = stats.planned(found)
    means = {row.name: [np.mean(row.values(task)) for task in found.tasks] for row in found.rows}
    expected = np.mean([np.mean(means[name]) for name in ("mse-kd", "cka-kd", "mc3kd")]) - np.mean(means["kd"])
    assert hidden.found.mean == pytest.approx(expected)
    assert (kd.word, hidden.word) == ("higher", "higher")
    partly = {"cola": Estimate(0.1, 0.02**2, 0.0, 100.0), "stsb": Estimate(0.02, 0.02**2, 0.0, 100.0)}
    assert kd._replace(tasks=partly).word == "higher (by task: cola)"
    assert kd._replace(tasks={"cola": partly["stsb"], "stsb": partly["stsb"]}).word == "higher (by task: none)"
    against = Estimate(-0.02, 0.005**2, 0.0, 100.0)  # a task on the other side is not one of those that say so
    assert kd._replace(tasks={"cola": partly["stsb"], "stsb": against}).word == "higher (by task: none)"
    assert {one.word for one in losses} <= {"not distinguishable", "not distinguishable, as good as (within 1 point)"}
    raw = [one.found.p for one in (kd, hidden, *losses) if one.found]
    assert [one.p for one in (kd, hidden, *losses)] == pytest.approx(stats.holm(raw))
    assert "contrast" in table.contrasts(found).plain()
    assert report.draw_ladder(found, tmp_path / "ladder.png")
    assert min(path.stat().st_size for path in tmp_path.glob("*.png")) > 2000


def test_a_part_of_a_matrix_says_how_much_is_there(arena: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(arena, part)
    for path in part.glob("kd/mc3kd/*/kd/*/seed2"):
        shutil.rmtree(path)
    found = table.load([part], 1280)
    found.missing += [f"kd-{i}: never run" for i in range(4)]
    assert (
        table.partial(found)
        == "Partial: 56 of 60 cells are there; at this budget every row has, of its tasks, 2 of 3 seeds."
    )
    assert "Partial: " in printed(found)


def test_with_one_budget_the_teacher_says_what_is_learnt(tmp_path: Path) -> None:
    """At least a quarter of its score, above guessing."""
    for name, value in (("kd", 0.2), ("mc3kd", 0.25)):
        for seed in range(2):
            write(tmp_path / name, value, seed, name, "cola")
    for seed in range(2):  # a teacher that is stored outputs: five points
        write(tmp_path / "own", 0.1, seed, "x", "cola", teacher={"metrics": {}})
    found = table.load([tmp_path])
    marked = {row.name: bool(found.untrained(row, "cola")) for row in found.rows}
    assert marked == {"kd": True, "mc3kd": False, "own": False}


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Claims keep nothing of the checked-in results, nor of what a test puts in their place."""

    def forget() -> None:
        claims.rows.cache_clear()
        claims.scores.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("forgetful")
def test_a_claim_that_rests_on_a_marked_cell_is_not_tested(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = table.load([arena], 640)
    monkeypatch.setattr(claims, "kept", lambda name: low)
    answer = {"results": "made", "more": "kd", "than": "undistilled"}
    said, why = claims.judged(answer)
    assert (said, "† undistilled on cola: not learnt yet" in why) == ("not tested", True)
    assert claims.judged(answer | {"more": "mc3kd", "than": "kd"})[0] == "held"
    same = {"premise": ["mc3kd", "kd"], "more": "mc3kd", "than": "kd"}  # one teacher is no larger than itself
    assert claims.judged(answer | same)[0] == "not tested"


@pytest.mark.usefixtures("forgetful")
def test_a_claim_may_compare_rows_of_two_budgets(arena: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one budget each, as of a long and of a short training: both are there, paired by seed and item."""
    shutil.copytree(arena, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("kd/**/result.json"):
        record = json.loads(path.read_text())
        name = {1280: "long", 640: "short"}[record["budget"]["amount"]]
        shutil.copytree(path.parent, tmp_path / name / path.parent.relative_to(tmp_path / "kd"))
    found = table.load([tmp_path], 640)
    assert not {row.name for row in found.rows} >= {"short", "long"}
    monkeypatch.setattr(claims, "kept", lambda name: found)
    long, short = (claims.rows("made")[name] for name in ("long", "short"))
    change = found.over(long, short, ["cola", "stsb"])
    expected = [np.mean(long.values(task)) - np.mean(short.values(task)) for task in ("cola", "stsb")]
    assert (change.word, change.found.mean) == ("higher", pytest.approx(np.mean(expected)))
    assert claims.judged({"results": "made", "more": "long", "than": "short"})[0] == "held"


@pytest.mark.usefixtures("forgetful")
def test_a_claim_needs_rows_with_names_of_their_own(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = table.load([arena], 640)
    found.rows.append(found.rows[0])
    monkeypatch.setattr(claims, "kept", lambda name: found)
    with pytest.raises(BadInput, match="made: two of its rows have one name"):
        claims.rows("made")
