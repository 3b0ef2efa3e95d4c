"""The bench's arithmetic, and that README.md says what the checked-in results say."""

import dataclasses
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from bench import bench_xtc, mc3kd_claims, pocket_suite, readme, stats, sweep, xtc_pocket
from common import data, results
from common.data import Split, TaskData
from methods import mc3kd


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_pages_have_not_drifted(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert readme.filled(text) == text, "python -m bench.readme rewrites the tables"


def test_every_table_stands_on_a_page_and_is_filled() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in readme.PAGES)
    for name in readme.TABLES:
        assert f"<!-- table {name} -->" in pages
        assert f"<!-- table {name} -->\n<!-- end -->" not in pages, f"table {name} is empty"


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in readme.PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_drift_is_seen() -> None:
    text = readme.PAGES[0].read_text(encoding="utf-8")
    inside = text.index("<!-- table pocket -->") + len("<!-- table pocket -->\n") + 30
    assert readme.filled(text[:inside] + "9" + text[inside:]) == text


def test_points_of_a_sweep() -> None:
    """Distinct points, the same for the same draw, all of a small grid."""
    grid = {"lr": (1.0, 2.0, 3.0), "alpha": (0.1, 0.2)}
    some, again, other = (sweep.points(grid, 4, draw) for draw in (0, 0, 1))
    assert some == again != other
    assert len({tuple(point.items()) for point in some}) == 4
    assert len(sweep.points(grid, 100, 0)) == 6


def test_a_sweep_scores_on_the_tuning_split_and_goes_on(
    glue: Path, expert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = f"mc3kd --variants kd,mc3kd --trials 2 --task sst2 --data-dir {glue} --teacher {expert} --student 2x16"
    argv += f" --budget 64 --max-length 16 --selection-examples 32 --out-dir {tmp_path}"
    sweep.main(argv.split())
    first = capsys.readouterr().out
    assert "mc3kd on sst2, 2 trials, Acc on the tuning split" in first
    records = [results.load(path) for path in tmp_path.rglob("result.json")]
    assert len(records) == 4
    assert {tuple(record["metrics"]) for record in records} == {("held_out",)}
    sweep.main(argv.split())
    again = capsys.readouterr().out
    assert again.count("finished before") == 4
    assert again.split("trials", 1)[1].count("--lr") == first.split("trials", 1)[1].count("--lr") == 4


@pytest.mark.parametrize("method", ["cka", "cmow", "efficient_attention", "mc3kd", "xtc"])
def test_every_method_declares_a_grid(method: str) -> None:
    """Of arguments that it has, with values that it takes."""
    module = importlib.import_module(f"methods.{method}")
    for variant in ("finetune", "kd"):
        for point in sweep.points(module.grid(module.Args(), variant), 1000, 0):
            dataclasses.replace(module.Args(variant=variant), **point).check()


def test_every_variant_has_as_many_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The undistilled student's grid has three points, MC3KD's 36: three trials each."""
    asked: list[tuple[str, int]] = []

    def record(name: str, args: object, variant: str, trials: int, draw: int) -> list[object]:
        asked.append((variant, trials))
        return []

    monkeypatch.setattr(sweep, "sweep", record)
    sweep.main(["mc3kd", "--variants", "finetune,mc3kd", "--task", "pocket/rte"])
    assert asked == [("finetune", 3), ("mc3kd", 3)]


def test_interval_covers_as_often_as_it_says() -> None:
    """Of many samples of five from a known normal distribution, 95% of the intervals hold the mean."""
    rng = np.random.default_rng(0)
    hits = 0
    for sample in rng.normal(3.0, 2.0, size=(2000, 5)):
        mean, low, high = stats.interval(list(sample))
        assert low is not None
        assert high is not None
        assert low < mean < high
        hits += low <= 3.0 <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_interval() -> None:
    assert stats.interval([0.5]) == (0.5, None, None)


def test_summary_by_hand() -> None:
    table = {
        "a": {"teacher": 0.9, "bag_of_words": 0.5, "finetune": [0.7, 0.6], "kd": [0.8, 0.8]},
        "b": {"teacher": 0.8, "bag_of_words": 0.6, "finetune": [0.5, 0.6], "kd": [0.6, 0.8]},
    }
    figures = pocket_suite.summary(table)
    assert figures["teacher"] == pytest.approx(0.85)
    assert figures["lowest_teacher"] == 0.8
    assert figures["lead_over_bag_of_words"] == pytest.approx(0.30)
    assert figures["lead_over_finetune"][0] == pytest.approx(0.25)
    assert figures["kd_minus_finetune"][0] == pytest.approx(0.15)
    assert figures["share_recovered"][0] == pytest.approx((0.1 / 0.25 + 0.2 / 0.25) / 2)


def test_bag_of_words_sees_words_and_not_their_order() -> None:
    """Single words and neighbouring pairs decide; an order further apart cannot be seen."""
    task = data.TASKS["sst2"]

    def split(texts: list[str], labels: list[int]) -> Split:
        return Split([str(i) for i in range(len(texts))], [(text,) for text in texts], labels)

    by_word = split(["good film", "bad film"] * 50, [1, 0] * 50)
    by_order = split(["good x x bad", "bad x x good"] * 50, [1, 0] * 50)
    far = split(["a x good x b x bad x a", "a x bad x b x good x a"] * 50, [1, 0] * 50)
    for found, expected in ((by_word, 1.0), (by_order, 1.0), (far, 0.5)):
        loaded = TaskData("sst2", task, "local", "here", {"train": found, "dev": found}, "0", ("dev",))
        assert pocket_suite.bag_of_words(loaded) == expected


def test_claims_are_paired_by_seed_and_named() -> None:
    """A constant lead is distinguishable however far the seeds are apart; noise around nothing is not."""
    base = [0.50, 0.70, 0.60, 0.80, 0.55]
    assert stats.difference([x + 0.02 for x in base], base).endswith("higher")
    assert stats.difference([x - 0.02 for x in base], base).startswith("-2.0 [-2.0, -2.0], lower")
    noise = [0.03, -0.02, 0.01, -0.03, 0.01]
    assert stats.difference([x + e for x, e in zip(base, noise, strict=True)], base).endswith("not distinguishable")
    assert stats.difference([0.6], [0.5]) == "+10.0 (one seed)"


def test_the_text_of_the_claims() -> None:
    """Every variant under both teachers, in points, and RCCC beside the score."""
    variants = {name: {"score": [0.5, 0.6], "rccc": [0.8, 0.7], "layers": []} for name in mc3kd.VARIANTS}
    entry = {"variants": variants, "score": 0.7, "rccc": 0.25}
    report = {
        "seeds": [0, 1],
        "metrics": {"pocket/cola": "matthews"},
        "tasks": {"pocket/cola": dict.fromkeys(mc3kd_claims.TEACHERS, entry)},
    }
    text = mc3kd_claims.text(report)
    assert "| *teacher* | 70.0 | 25.0 | 70.0 | 25.0 |" in text
    for name in mc3kd.VARIANTS:
        assert f"| {name} | 55.0 ± 7.1 | 75.0 ± 7.1 | 55.0 ± 7.1 | 75.0 ± 7.1 |" in text


def test_the_text_of_xtcs_table() -> None:
    """Every student and column in points, sizes, and differences of the right columns."""
    row = {column: [0.1 * i, 0.1 * i + 0.02] for i, column in enumerate(xtc_pocket.COLUMNS, 1)} | {"bytes": 230_000}
    table = {
        "students": {layers: dict.fromkeys(xtc_pocket.BITS, row) for layers in xtc_pocket.STUDENTS},
        "teacher": {"score": 0.9, "bytes": 4_000_000},
    }
    found = {"seeds": [0, 1], "metrics": {"pocket/cola": "matthews"}, "tasks": {"pocket/cola": table}}
    text = xtc_pocket.text(found)
    for student in xtc_pocket.STUDENTS.values():
        for bits in xtc_pocket.BITS:
            assert f"| {student} | {bits} | 0.23 | 11.0 ± 1.4 | 21.0 ± 1.4 | 31.0 ± 1.4 | 41.0 ± 1.4 |" in text
    assert "| 1S against KD | 1 | +10.0 [+10.0, +10.0], higher |" in text
    assert "| 3S against 1S | 2 | +20.0 [+20.0, +20.0], higher |" in text
    assert "| 1 against 32 bits, 1S | 1 | +0.0 [+0.0, +0.0], not distinguishable |" in text


def test_the_text_of_packed_models() -> None:
    """Milliseconds of one sentence, and ratios to float32."""
    found = {
        "length": 32,
        "environment": {"hardware": {"device": "a processor", "threads": 1}},
        "models": {
            name: {"disk": 1_000_000 * k, "batches": {"32": {"seconds": 0.32 * k, "memory": 2_000_000 * k}}}
            for name, k in (("float32", 4), ("1 bit", 1))
        },
    }
    assert "| 1 bit | 1.0 | 10.0 (0.25 x) | 2 (0.25 x) |" in bench_xtc.text(found)
