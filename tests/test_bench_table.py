"""`python -m bench table` and `report`: means, intervals, what is refused, and one page that says it all."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bench import report, stats, table
from common import plots, results
from common.args import BadInput

RECORD = json.loads(next((results.ROOT / "bench/results/rte-minilm").rglob("result.json")).read_text())


def write(root: Path, score: float, seed: int, variant: str = "kd", task: str = "rte", method: str = "mc3kd",
          settings: dict[str, Any] | None = None, **changes: Any) -> Path:  # fmt: skip
    """A result as the scripts write it, with some fields changed."""
    record = json.loads(json.dumps(RECORD))
    amount = record["budget"]["amount"]
    record |= {"task": task, "variant": variant, "seed": seed, "method": method}
    record |= {"comparable": f"task:{task}|budget:{amount}|schema:1"}
    record["settings"] |= {"seed": seed} | (settings or {})
    name = "accuracy" if task != "cola" else "matthews"
    record["metrics"], record["primary"] = {"dev": {name: score}}, {"name": name, "value": score}
    record["teacher"]["metrics"] = {"dev": {name: 0.9}}
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
    path = root / method / task / variant / f"seed{seed}" / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rows, two tasks, three seeds: KD 10 points above the undistilled student, mc3kd within the noise of KD."""
    base = {"rte": (0.60, 0.62, 0.61), "cola": (0.30, 0.34, 0.32)}
    noise = {"rte": (0.02, -0.02, 0.01), "cola": (-0.01, 0.02, -0.02)}
    for task in base:
        for seed in range(3):
            start = base[task][seed]
            write(tmp_path, start, seed, "finetune", task)
            write(tmp_path, start + 0.10 + 0.001 * seed, seed, "kd", task)
            write(tmp_path, start + 0.10 + noise[task][seed], seed, "mc3kd", task)
    return tmp_path


def row(found: table.Table, variant: str, method: str | None = None) -> table.Row:
    return next(one for one in found.rows if one.variant == variant and method in (None, one.method))


# --- intervals -----------------------------------------------------------------------------------------------


def samples(rng: np.random.Generator, tasks: int, seeds: int, skewed: bool) -> list[list[float]]:
    """Seeds of several tasks, each with its own spread; every mean is 3."""
    spreads = np.linspace(1, 2, tasks)[:, None]
    draws = rng.gamma(4.0, 0.5, (tasks, seeds)) - 2 if skewed else rng.normal(0, 1, (tasks, seeds))
    return (3 + spreads * draws).tolist()


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("tasks", "seeds"), [(1, 3), (1, 5), (4, 3), (8, 3)])
def test_intervals_hold_the_mean_as_often_as_they_say(tasks: int, seeds: int, skewed: bool) -> None:
    """95 of 100 intervals hold the mean of a known distribution; with few seeds of several tasks somewhat more, and of
    a skewed distribution, which paired differences hardly have, somewhat less."""
    rng = np.random.default_rng(1)
    found = [stats.interval(*samples(rng, tasks, seeds, skewed)) for _ in range(3000)]
    share = np.mean([low <= 3 <= high for _, low, high in found])  # type: ignore[operator]
    assert (0.90 if skewed else 0.935) <= share <= 0.985


def test_a_bootstrap_of_three_seeds_is_too_sure() -> None:
    """Which is why there is none: its 95% interval of three values holds the mean in about three cases of four."""
    rng = np.random.default_rng(1)
    draws = rng.normal(3, 1, (400, 3))
    percentile = scipy_stats.bootstrap((draws,), np.mean, axis=1, method="percentile", n_resamples=999, rng=rng)
    low, high = percentile.confidence_interval
    assert np.mean((low <= 3) & (high >= 3)) < 0.82
    assert np.mean((draws.min(1) <= 3) & (draws.max(1) >= 3)) == pytest.approx(0.75, abs=0.06)


def test_an_interval_by_hand() -> None:
    """One task: the t interval of the textbook; two tasks alike: variances and degrees of freedom add up."""
    values = [0.1, 0.2, 0.6]
    mean, low, high = stats.interval(values)
    known = scipy_stats.ttest_1samp(values, 0).confidence_interval()
    assert (mean, low, high) == pytest.approx((0.3, known.low, known.high))
    mean, low, high = stats.interval([0.0, 2.0], [10.0, 12.0])
    half = scipy_stats.t.ppf(0.975, 2) * np.sqrt(2.0 / 2 + 2.0 / 2) / 2
    assert (mean, low, high) == pytest.approx((6.0, 6.0 - half, 6.0 + half))
    assert stats.interval([1.0, 1.0], [2.0, 2.0]) == (1.5, 1.5, 1.5)
    assert stats.interval([1.0], [2.0, 3.0]) == (1.75, None, None)


# --- tables --------------------------------------------------------------------------------------------------


def test_differences_are_paired_with_the_baselines_of_the_kind(folder: Path) -> None:
    found = table.load([folder])
    gain = found.difference(row(found, "kd"), "undistilled")
    assert gain is not None
    assert gain.mean.mean == pytest.approx(0.101)
    assert stats.word(gain.mean) == "higher"
    close = found.difference(row(found, "mc3kd"), "vanilla KD")
    assert close is not None
    assert stats.word(close.mean) == "not distinguishable"
    assert found.difference(row(found, "kd"), "vanilla KD") is None
    text = table.markdown(found)
    assert "| vanilla KD | 42.1 ± 2.1 | 71.1 ± 1.1 |" in text
    assert re.search(r"\| vanilla KD \| \+10\.1 \[\+\S+, \+\S+\], higher \| - \| mc3kd \|", text)
    assert re.search(r"\| mc3kd \| \+10\.0 \[.*\], higher \| -0\.1 \[.*\], not distinguishable \| mc3kd \|", text)
    assert table.plain(table.scores(found)).splitlines()[2].startswith("teacher")


def test_kinds_have_baselines_of_their_own(folder: Path) -> None:
    """An undistilled student of another kind, or of another script that has one, is nobody's baseline."""
    for task in ("rte", "cola"):
        for seed in range(3):
            write(folder, 0.2, seed, "kd-1bit", task, "xtc", {"bits": 1}, student={"bytes": 10})
            write(folder, 0.5, seed, "kd", task, "efficient_attention")
            write(folder, 0.4, seed, "finetune", task, "efficient_attention")
    found = table.load([folder])
    packed, own = row(found, "kd-1bit"), row(found, "kd", "efficient_attention")
    assert found.difference(packed, "undistilled") is None
    baseline = found.baseline(own, "undistilled")
    assert baseline is not None
    assert baseline.method == "efficient_attention"
    assert list(found.kinds())[-1].endswith(", 1 bit")


def test_missing_cells_are_pairs_left_out(folder: Path) -> None:
    (folder / "mc3kd/cola/mc3kd/seed1/result.json").unlink()
    (folder / "mc3kd/rte/kd/seed0/result.json").unlink()
    found = table.load([folder])
    gain = found.difference(row(found, "mc3kd"), "vanilla KD")
    assert gain is not None
    assert gain.by_task["rte"].mean == pytest.approx((-0.02 - 0.001 + 0.01 - 0.002) / 2)
    for seed in range(3):
        (folder / f"mc3kd/cola/mc3kd/seed{seed}/result.json").unlink(missing_ok=True)
    found = table.load([folder])
    assert found.mean(row(found, "mc3kd")) is None
    assert "(1 of 2 tasks)" in table.markdown(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"comparable": "task:rte|data:other|schema:1"}, "not comparable with"),
        ({"budget": {"amount": 99}}, "budget 99 examples, but"),
        ({"settings": {"lr": 3e-3}}, "lr differs from"),
        ({"teacher": {"signature": "another"}}, "teacher differs from"),
        ({"primary": {"name": "perplexity", "value": 0.5}}, "a perplexity"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder: Path, changes: dict[str, Any], said: str) -> None:
    path = write(folder, 0.5, 2, "kd", "rte", **changes)
    with pytest.raises(BadInput, match=said) as refused:
        table.load([folder])
    assert str(path) in str(refused.value) or str(path.parent.parent) in str(refused.value)


def test_one_cell_twice_is_refused_and_tuning_is_left_out(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    write(other, 0.5, 0, "kd", "rte")
    with pytest.raises(BadInput, match="the same cell as"):
        table.load([folder, other])
    write(other, 0.5, 0, "kd", "rte", settings={"tune": True})
    assert len(table.load([folder, other]).rows) == 3


def test_failed_and_missing_cells_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command for two variants of which one failed by itself, one that is done, one that was never started."""
    notes: dict[str, dict[str, Any]] = {
        "a": {"status": "failed", "variants": ["kd", "cka"], "error": "FAILED (2): error: no"},
        "a-kd": {"status": "done", "variants": ["kd"]},
        "a-cka": {"status": "failed", "variants": ["cka"], "error": "FAILED (2): error: not so"},
        "b": {"status": "done", "variants": ["kd"]},
    }
    (folder / "jobs").mkdir()
    for key, note in notes.items():
        (folder / "jobs" / f"{key}.json").write_text(json.dumps(note))
    (folder / "matrix.json").write_text('["a", "b", "c"]')
    assert table.load([folder]).missing == ["a-cka: FAILED (2): error: not so", "c: never run"]
    with pytest.raises(SystemExit) as stopped:
        table.main([str(folder)])
    assert stopped.value.code == 1
    assert "failed or missing: c: never run" in capsys.readouterr().out


def test_bad_folders_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, said in (([str(tmp_path)], "no result.json"), (["none"], "none: no such folder"),
                       (["none.toml"], "none.toml: cannot be read")):  # fmt: skip
        for command in (table.main, report.main):
            with pytest.raises(SystemExit) as stopped:
                command(argv)
            assert stopped.value.code == 2
            error = capsys.readouterr().err
            assert said in error
            assert error.count("\n") == 1


# --- the page ------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Counts tags, and checks that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_one_page_with_everything(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "page"
    report.main([str(folder), "--to", str(to)])
    text = (to / "index.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not page.open
    assert page.seen.count("table") == 3
    assert page.seen.count("svg") == 2
    assert all(link.startswith("#") for link in page.links), "nothing comes from elsewhere"
    assert "url(http" not in text
    assert "@import" not in text
    assert "How a difference is called" in text
    assert "not distinguishable" in text
    assert 'class="higher"' in text
    assert RECORD["environment"]["versions"]["torch"] in text
    assert (to / "RESULTS.md").read_text(encoding="utf-8").count("![") == 2
    before = text
    report.main([str(folder), "--to", str(to)])
    assert (to / "index.html").read_text(encoding="utf-8") == before


def test_the_frontier_holds_what_nothing_beats() -> None:
    points = [(1.0, 50.0, "a"), (2.0, 40.0, "b"), (2.0, 60.0, "c"), (3.0, 60.0, "d"), (4.0, 61.0, "e")]
    assert [label for _, _, label in plots.frontier(points)] == ["a", "c", "e"]
