"""The bench: what it runs and how it goes on, its tables and their statistics, the pages, the papers' tables, sizes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT
from refusals import MATRIX, TUNED
from stand_in import cells, stand_in, starts

from bench import (
    FOLDER,
    claims,
    figures,
    matrix,
    pages,
    papers,
    records,
    report,
    run,
    saved,
    speed,
    sweep,
    table,
)
from bench import __main__ as entry
from bench import table as compared
from bench.arena import measure as profiled
from bench.matrix import Job, Matrix
from bench.report import frontier
from bench.studies import transfer
from bench.table import Grid
from common import data, folders, results, tasks
from common.args import BadInput, CommonArgs

RECORD = json.loads((ROOT / "tests/result.json").read_text())  # of a run on real data
Capture = pytest.CaptureFixture[str]


def printed(found: table.Table) -> str:
    """What `bench table` says of scores, as Markdown."""
    return "\n\n".join([table.how(found), table.scores(found).markdown(), table.footnote(found)])


def refused(capsys: Capture, *argv: str) -> str:
    """What a command says that ends with one line and exit code 2."""
    with pytest.raises(SystemExit) as stop:
        entry.main(list(argv))
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err[:7], err.count("\n")) == (2, "", "error: ", 1), err
    return err


# --- running a matrix: a small script stands in for the methods' ------------------------------------------------


def test_commands_run_once_and_what_is_lost_runs_again(tmp_path: Path) -> None:
    """What was made by hand in the folder of a matrix, another variant or seed, is no cell of its table."""
    plan = stand_in(tmp_path, 2)
    assert run.execute(plan, 2, 1) == []
    before = cells(plan.out)
    assert len(before) == 4
    assert run.execute(plan, 2, 1) == []
    assert (cells(plan.out), len(starts(plan))) == (before, 4)
    lost = "row/mc3kd/pocket/rte/kd/seed1/result.json"
    (plan.out / lost).unlink()
    run.execute(plan, 2, 1)
    assert {name for name, made in cells(plan.out).items() if made != before[name]} == {lost}
    run.execute(stand_in(tmp_path, 2, seconds=0.01), 2, 1)  # other arguments are other commands
    assert len(starts(plan)) == 9
    changed = [dataclasses.replace(job, data="0") for job in stand_in(tmp_path, 2, seconds=0.01).jobs]
    run.execute(Matrix(plan.out, changed[:1]), 2, 1)  # and so are files of one's own that have changed
    assert len(starts(plan)) == 10
    results.write_json(plan.out / "matrix.json", {job.key: "another" for job in plan.jobs})
    assert records.cells_of(plan.out)[0] == {}  # before a winner changed
    (by_hand := plan.out / "row/mc3kd/pocket/rte/pkd/seed0").mkdir(parents=True)
    (by_hand / "result.json").write_text("by hand")
    results.write_json(plan.out / "matrix.json", {job.key: job.asked for job in plan.jobs})
    assert {str(path.relative_to(plan.out)) for path in records.cells_of(plan.out)[0]} == before.keys()


def test_all_students_of_a_command_are_cells(tmp_path: Path) -> None:
    """One that is lost is missing, and its command runs again; a trial trains one."""
    plan = stand_in(tmp_path, 1, variants="kd+mc3kd")
    run.execute(plan, 1, 1)
    results.write_json(plan.out / "matrix.json", {job.key: job.asked for job in plan.jobs})
    paths, missing = records.cells_of(plan.out)
    assert ([path.parts[-3] for path in paths], missing) == (["kd", "mc3kd"], [])
    first, second = paths
    first.unlink()
    (left,), (said,) = records.cells_of(plan.out)
    assert (left, said.split(": ")[1]) == (second, f"{first.relative_to(plan.out)} is gone")
    assert not run.made_by(plan.out, plan.jobs[0])


def test_a_command_that_fails_costs_one_cell(tmp_path: Path, capsys: Capture) -> None:
    plan = stand_in(tmp_path, 2)
    (plan.out / "FAIL-kd").touch()
    failed = sorted(job.name for job in run.execute(plan, 2, 1))
    assert failed == [f"row pocket/rte seed {seed} kd" for seed in range(2)]
    assert {Path(name).parts[-3] for name in cells(plan.out)} == {"mc3kd"}
    assert capsys.readouterr().out.count("FAILED (1): error: kd is broken") == 2
    results.write_json(plan.out / "matrix.json", {job.key: job.asked for job in plan.jobs})
    paths, missing = records.cells_of(plan.out)
    assert len(paths) == 2
    assert missing[0].startswith("row-pocket-rte-seed-0-kd: FAILED (1): error: kd is broken")
    (plan.out / "FAIL-kd").unlink()  # mended, and started again
    before = cells(plan.out)
    assert run.execute(plan, 2, 1) == []
    assert len(cells(plan.out)) == 4
    assert {name: cells(plan.out)[name] for name in before} == before


RUNNER = """
import signal, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import stand_in
from bench import run
from common.args import interrupt
run.PRELOAD[:] = ["bench.run"]  # the stand-in needs no torch
for number in {handled}:
    signal.signal(number, interrupt)
run.execute(stand_in.stand_in(Path({folder!r}), seconds=0.3, variants="kd"), 2, 1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_started_again(tmp_path: Path, how: signal.Signals) -> None:
    """Finished cells stay as they are; a command that outlived its runner does not write beside its successor."""
    plan = stand_in(tmp_path, seconds=0.3, variants="kd")
    (hold := plan.out / "HOLD-3").touch()  # the last one waits, however late the runner is killed
    handled = [] if how is signal.SIGKILL else [int(how)]
    text = RUNNER.format(root=str(ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path), handled=handled)
    runner = subprocess.Popen([sys.executable, "-c", text], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    while not cells(plan.out):
        assert runner.poll() is None
        time.sleep(0.02)
    before = cells(plan.out)
    runner.send_signal(how)
    assert runner.wait() != 0
    assert len(before) < 4
    hold.unlink()
    assert run.execute(plan, 2, 1) == []
    after = cells(plan.out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before


def test_the_first_commands_make_teachers_of_their_own() -> None:
    jobs = [Job(row, task, seed, (row, task, str(seed)), CommonArgs(task=task, seed=seed))
            for row in "ab" for task in ("pocket/rte", "pocket/cola") for seed in (0, 1)]  # fmt: skip
    waiting = run.in_order(jobs)
    assert [(job.task, job.seed) for job in waiting[:2]] == [("pocket/rte", 0), ("pocket/cola", 0)]
    assert [job.seed for job in waiting] == [0] * 4 + [1] * 4  # stopped early, all rows have the first seeds


# --- the file ---------------------------------------------------------------------------------------------------


def test_the_commands_of_a_file(tmp_path: Path, capsys: Capture) -> None:
    """With what a method cannot do left out, and a script that is named by its path."""
    both = MATRIX.replace('"pocket/rte"', '"pocket/rte", "pocket/translate"')
    (tmp_path / "small.toml").write_text(both)
    entry.main(["run", str(tmp_path / "small.toml"), "--dry-run", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert out.splitlines()[:4] == [
        f"python methods/mc3kd.py --task pocket/rte --seed {seed} --variant {variant} --cache-dir runs/cache"
        f" --budget smoke --out-dir {tmp_path}/out/mc3kd  # budget smoke"
        for seed, variant in itertools.product((0, 1), ("finetune", "kd"))
    ]
    assert out.splitlines()[-1] == f"# 10 commands in 2 rows; results under {tmp_path}/out"
    assert err.startswith("left out: mc3kd on pocket/translate, which is translation")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert out.splitlines()[-2].startswith("python methods/cka.py --task pocket/translate --seed 3 --variant ")
    some, _ = run.plan_of([str(tmp_path / "small.toml"), "--tasks", "pocket/translate", "--rows", "narrow,mc3kd"])
    assert {(job.row, job.task) for job in some.jobs} == {("narrow", "pocket/translate")}


def test_a_row_goes_on_from_another_file_s_runs(tmp_path: Path) -> None:
    """Each seed from its own; what lies there is part of what was asked."""
    whole = tomllib.loads(MATRIX)
    narrow = whole["rows"][1] | {"tasks": ["pocket/rte"], "seeds": [0, 1]}
    for seed in (0, 1):
        (tmp_path / "pocket" / "rte" / f"2x64-abc{seed}" / f"seed{seed}").mkdir(parents=True)
        (tmp_path / "pocket" / "rte" / f"2x64-abc{seed}" / f"seed{seed}" / "config.json").write_text(str(seed))
    narrow["init"] = f"{tmp_path}/{{task}}/*/seed{{seed}}"
    jobs = matrix.build(whole | {"rows": [narrow]}, "out", "").jobs
    assert {(job.seed, Path(job.args.init).parent.name) for job in jobs} == {(0, "2x64-abc0"), (1, "2x64-abc1")}
    assert len({job.data for job in jobs}) == 2
    with pytest.raises(BadInput, match=r"row narrow: --init .*: no such folder"):
        matrix.build(whole | {"rows": [narrow | {"seeds": [2]}]}, "out", "")


def test_files_of_ones_own_are_known_by_their_content(tmp_path: Path) -> None:
    own, kind = tmp_path / "own.csv", tasks.TASKS["sst2"]
    found = []
    for text in ("a", "b", "a"):
        own.write_text(text)
        found.append(matrix.digest(str(own), kind, {}))
    assert found[0] == found[2] != found[1]
    for split in kind.splits:
        (tmp_path / f"{split}.tsv").write_text("a")
    (tmp_path / "config.json").write_text("{}")
    outputs, place = {"teacher_outputs": str(own)}, {"data_dir": str(tmp_path)}
    for given, file in ((place, "train.tsv"), (outputs, "own.csv"), ({"teacher": f"pocket,{tmp_path}"}, "config.json")):
        before = matrix.digest("sst2", kind, given)
        (tmp_path / file).write_text("changed")
        assert before != matrix.digest("sst2", kind, given) is not None, file
    assert matrix.digest("sst2", kind, {"teacher": "pocket"}) is matrix.digest("pocket/sst2", kind, {}) is None


def test_every_script_is_found_and_a_papers_declares_a_grid() -> None:
    """Of arguments that it has, with values that it takes. A script without a grid is told so by the search."""
    paths = [path for folder in matrix.SCRIPTS for path in (ROOT / folder).glob("*.py")]
    assert {path.stem for path in paths} == set(matrix.methods()) >= set(papers.methods())
    for name in matrix.methods():
        module = matrix.module_of(matrix.script_of(name))
        if not module.Args.GRID:
            assert name not in papers.methods()
            continue
        for variant in ("finetune", "kd"):
            for point in sweep.points(module.Args().grid(variant), 1000):
                module.Args(variant=variant, **point).check()


def test_a_language_model_s_task_is_ready_before_commands_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokenizer is not the one that other tasks are read with."""
    monkeypatch.setenv("BENCH_TASKS", "pocket/lm")
    monkeypatch.setattr(data, "READY", {})
    monkeypatch.setattr("gc.freeze", lambda: None)
    runpy.run_path(str(ROOT / "bench" / "preload.py"))
    assert [*data.READY] == ["pocket/lm"]


MATRICES = [path for folder in ("bench/matrices", "bench/baselines") for path in sorted((ROOT / folder).glob("*.toml"))]


@pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.stem)
def test_the_matrices_that_ship(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their commands are ones that the scripts take, for as many cells of every row."""
    for module in (folders, matrix):  # the data of real tasks are not here
        monkeypatch.setattr(module, "find_files", lambda task, folder: {})
    monkeypatch.setattr("common.corpus.corpora", lambda *_: [])
    content = matrix.read_file(path)
    for part in (content, *content["rows"]):
        if "tasks" in part:
            part["tasks"] = ["pocket/rte" if task.startswith("data/") else task for task in part["tasks"]]
    for row in content["rows"]:  # nor are the runs that others go on from
        for name in [name for name, value in row.items() if str(value).startswith("runs/")]:
            del row[name]
    plan = matrix.build(content, "runs", str(path))
    assert plan.jobs
    for row in {job.row for job in plan.jobs}:
        mine = [job for job in plan.jobs if job.row == row]
        assert len(mine) == math.prod(len({getattr(job, key) for job in mine}) for key in ("task", "seed", "part"))
    if path.stem in ("quick", "arena"):
        assert {Path(job.words[0]).stem for job in plan.jobs} >= set(papers.methods())
        assert {"finetune", "kd", "pkd-skip"} <= {v for job in plan.jobs for v in job.args.variants}
        assert {job.args.budget for job in plan.jobs} == set(map(str, content.get("budgets", [content.get("budget")])))


def test_the_arena_is_level() -> None:
    """One shape, one start, one teacher, temperature and batch; as many trials for every row, but for the linear model,
    which has no rate; the quick rows are rows of the arena."""
    arena, quick = (matrix.read_file(matrix.MATRICES / name) for name in ("arena.toml", "quick.toml"))
    assert {row["name"] for row in quick["rows"]} < {row["name"] for row in arena["rows"]}
    assert (quick["budget"], quick["tune"]) == ("3200", arena["tune"])
    rows = [row for row in matrix.rows_of(arena, "") if row.label not in ("linear", "linear-all")]
    assert len({len(row.grid["lr"]) for row in rows}) == 1
    assert {len(values) for row in rows for values in row.weight.values()} == {3}
    search = sweep.Search(arena, Path("runs/trials"), "arena", matrix.NOTHING_TRIED)
    jobs = [job for row in rows for job in search.left(search.rows[row.label])]
    assert len(jobs) == 5 * len(arena["tasks"]) * len(rows) * 3  # seeds
    assert all(job.args.tune and job.args.budget == str(arena["budgets"][0]) for job in jobs)
    assert not {job.seed for job in jobs} & set(arena["seeds"])
    assert {job.row for job in run.in_order(jobs)[:60]} <= {"undistilled", "kd"}  # baselines first
    level = [job.args for job in jobs if not search.rows[job.row].late]
    assert {(a.student, a.keep, a.teacher, a.temperature, a.batch_size, a.max_length) for a in level} == {
        ("2x128", "first", "pocket", None, 32, 128)
    }
    assert {a.init for a in level} == {"pretrained", "auto"}  # auto: of a teacher that was pre-trained, the same
    for row in rows:  # a weight's middle is the script's own value
        (name, (low, middle, high)), own = *row.weight.items(), matrix.module_of(row.script).Args()
        default = getattr(own, name)
        assert default in (middle, None) or name in ("distil_share", "warmup"), row.label
        assert low < middle < high


FINGERPRINT = "0" * 16


class Trials:
    """A file of rows that are tuned, and in the place of its commands a score by row and point."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.out, self.run = folder / "tuned.toml", folder / "out", list[str]()
        self.best = {"plain": 1e-3, "ours": 1e-3}
        self.broken, self.stop_after = set[str](), math.inf
        self.fingerprint = FINGERPRINT
        self.path.write_text(TUNED)
        monkeypatch.setattr(matrix, "FOLDER", folder)
        monkeypatch.setattr(matrix, "out_of", lambda _: str(self.out))
        monkeypatch.setattr(matrix, "fingerprint", lambda *_: self.fingerprint)
        monkeypatch.setattr(run, "carry_out", self.carry_out)

    def score(self, job: Job) -> float:
        off = abs(math.log2(job.args.lr / self.best[job.row]))
        return 0.9 - 0.1 * off - 0.02 * (job.args.beta != 2) - 0.001 * job.seed

    def carry_out(self, plan: Matrix, _: object) -> list[Job]:
        waiting, failed = list(plan.jobs), []
        while waiting:
            if len(self.run) >= self.stop_after:
                raise SystemExit(130)
            job = waiting.pop(0)
            self.run.append(job.name)
            assert (job.args.tune, job.args.budget, job.seed in (7, 8)) == (True, "640", True)
            if well := job.part not in self.broken:
                comparable = f"task:{job.task}|data:pocket#{self.fingerprint}|schema:2"
                made = write(plan.out, self.score(job), job.seed, task=job.task, method=f"{job.row}-{job.part}",
                             comparable=comparable)  # fmt: skip
                run.write_note(plan.out, job, results=[str(made.relative_to(plan.out))])
            else:
                run.write_note(plan.out, job, error="broken")
                failed.append(job)
            waiting += plan.more(job, well)
        return failed

    def sweep(self) -> dict[str, Any]:
        with contextlib.suppress(SystemExit):
            entry.main(["sweep", str(self.path)])
        return json.loads((self.path.parent / "tuned_trials.json").read_text())

    def tried(self, row: dict[str, Any]) -> list[Any]:
        return [tuple(trial["point"].values()) for trial in row["trials"]]


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(tmp_path, monkeypatch)


def test_the_rate_and_then_the_weight(trials: Trials, capsys: Capture) -> None:
    """The weight is at its middle while rates are tried; then its others, and one beyond the end that has won, at the
    rate that has won. All scores stay."""
    kept = trials.sweep()
    assert "plain on pocket/rte, pocket/cola, 3 trials, Acc on the tuning split" in capsys.readouterr().out
    assert trials.tried(kept["rows"]["plain"]) == [(5e-4,), (1e-3,), (2e-3,)]
    assert trials.tried(kept["rows"]["ours"]) == [(5e-4, 1), (1e-3, 1), (2e-3, 1), (1e-3, 0.5), (1e-3, 2), (1e-3, 4)]
    assert kept["rows"]["ours"]["winner"] == {"lr": 1e-3, "beta": 2}
    assert [kept["rows"][name]["at_edge"] for name in ("plain", "ours")] == [[], []]
    for row in kept["rows"].values():
        for trial in row["trials"]:
            found = [value for seeds in trial["scores"].values() for value in seeds.values()]
            assert (len(found), trial["mean"]) == (4, pytest.approx(sum(found) / 4))
    assert len(trials.run) == len(set(trials.run)) == 4 * (3 + 6)
    entry.main(["run", str(trials.path), "--dry-run"])
    commands = [line.split() for line in capsys.readouterr().out.splitlines()[:-1]]
    values = {word: command[command.index(word) + 1] for command in commands[-1:] for word in ("--lr", "--beta")}
    assert (values, len(commands)) == ({"--lr": "0.001", "--beta": "2"}, 8)
    assert {command[command.index("--budget") + 1] for command in commands} == {"640", "320"}


@pytest.mark.parametrize(
    ("best", "rates"), [(4e-3, [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]), (1e-4, [1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3])]
)
def test_a_winner_at_an_edge_adds_rates_beyond_it(trials: Trials, best: float, rates: list[float]) -> None:
    """Until it is inside, or two were added; a winner that is at an edge then says so, and a run takes it."""
    trials.best["plain"] = best
    row = trials.sweep()["rows"]["plain"]
    assert sorted(rate for (rate,) in trials.tried(row)) == pytest.approx(rates)
    assert row["winner"]["lr"] == pytest.approx(max(best, 1.25e-4))
    assert row["at_edge"] == ([] if best == 4e-3 else ["lr"])
    entry.main(["run", str(trials.path), "--dry-run"])


def test_no_value_beyond_what_an_argument_takes(trials: Trials) -> None:
    trials.path.write_text(TUNED.replace("beta = [0.5, 1, 2]", "alpha = [0.7, 0.9, 1.0]").replace(
        "[[rows]]", 'keep = ["first", "skip", "top"]\n[[rows]]', 1))  # fmt: skip
    plain, ours = matrix.rows_of(matrix.read_file(trials.path), "")
    assert ours.reach("alpha") == [0.4234, 0.5444, 0.7, 0.9, 1.0]
    assert plain.reach("keep") == ["first", "skip", "top"]  # no numbers: nothing lies beyond
    assert plain.reach("lr") == ours.reach("lr") == [1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3]


def test_trials_that_were_kept_are_not_run_again(trials: Trials, tmp_path: Path) -> None:
    """On another machine, where nothing but the table of trials is; other settings or data are other trials."""

    def elsewhere() -> int:
        trials.out, before = tmp_path / f"out{len(trials.run)}", len(trials.run)
        trials.sweep()
        return len(trials.run) - before

    first = trials.sweep()
    assert elsewhere() == 0
    assert trials.sweep() == first
    trials.path.write_text(TUNED.replace('"finetune"', '"finetune"\nbatch_size = 16'))
    assert elsewhere() == 4 * 3  # of this row
    assert elsewhere() == 0
    trials.fingerprint = "1" * 16
    assert elsewhere() == 4 * (3 + 6)


def test_an_installed_package_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials are kept in runs/ of the folder where it is used; those that are shipped are read."""
    table = matrix.read_file(matrix.path_of("arena"))
    shipped = matrix.trials(table)
    monkeypatch.setattr(results, "HOME", tmp_path)
    assert matrix.trials_path(table) == tmp_path / "runs" / "arena_trials.json"
    assert matrix.trials(table) == shipped != matrix.NOTHING_TRIED


def test_a_sweep_that_is_stopped_leaves_what_it_has_found(trials: Trials, tmp_path: Path) -> None:
    """Rows that are not complete have no winner, and runs take the scripts' defaults; it goes on elsewhere."""
    trials.stop_after = 17
    rows = trials.sweep()["rows"]
    assert rows["plain"]["winner"] == {"lr": 1e-3}
    assert rows["ours"]["winner"] is None
    assert sum(v is not None for t in rows["ours"]["trials"] for s in t["scores"].values() for v in s.values()) == 5
    plan = matrix.build(matrix.read_file(trials.path), "out", "")
    assert plan.said.endswith("with their scripts' defaults: ours")
    trials.stop_after, trials.out = math.inf, tmp_path / "elsewhere"
    rows = trials.sweep()["rows"]
    assert (rows["ours"]["winner"], len(trials.run)) == ({"lr": 1e-3, "beta": 2}, 4 * (3 + 6))
    wider = matrix.read_file(trials.path) | {"tasks": ["pocket/rte", "pocket/mnli"]}  # of which one was not tried
    assert matrix.build(wider, "out", "").said.endswith("with their scripts' defaults: plain, ours")
    trials.out = tmp_path / "own"  # a row with a task of its own: the other is none of its trials
    trials.path.write_text(TUNED.replace('"plain"', '"plain"\ntasks = ["pocket/rte"]'))
    trials.sweep()
    assert "defaults" not in matrix.build(matrix.read_file(trials.path), "out", "").said


def test_a_trial_that_has_failed_anywhere_cannot_win(trials: Trials) -> None:
    trials.broken.add("--lr 0.001")
    row = trials.sweep()["rows"]["plain"]
    assert [trial["mean"] is None for trial in row["trials"]] == [False, True, False, False]
    assert row["winner"] == {"lr": 5e-4}
    trials.broken.clear()
    assert trials.sweep()["rows"]["plain"]["winner"] == {"lr": 1e-3}  # it is tried again


def test_what_trials_refuse(trials: Trials, tmp_path: Path, capsys: Capture) -> None:
    path = trials.path
    trials.sweep()
    part, own = tmp_path / "part.toml", tmp_path / "apart.toml"
    part.write_text(f'of = "{path}"\nrows = ["plain"]')
    own.write_text(f"{part.read_text()}\n[tune]\nseeds = [100]\nlr = [1e-2]")  # which has trials of its own
    assert (matrix.read_file(own)["trials"], matrix.read_file(part)["trials"]) == (str(own), str(path))
    (other := tmp_path / "other" / path.name).parent.mkdir()
    other.write_text(TUNED)  # another file of that name
    capsys.readouterr()
    assert f"tuned_trials.json: has the trials of {path}; give {other}" in refused(capsys, "run", str(other))
    path.write_text(TUNED.replace("5e-4, 1e-3, 2e-3]", "5e-3, 6e-3]"))
    assert "row plain: its trials had another lr" in refused(capsys, "run", str(path), "--dry-run")
    path.write_text(TUNED)
    for damaged in ("", "null", "{}", '{"rows": {"plain": 1}}'):
        (tmp_path / "tuned_trials.json").write_text(damaged)
        assert "tuned_trials.json: damaged" in refused(capsys, "run", str(path), "--dry-run")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (("", ""), 0),
        (('"mc3kd"\nvariant', '"mc3kd"\nbatch_size = 16\nvariant'), 4),  # of the row
        (('"mc3kd"\nvariant', '"mc3kd"\nbatch_size = 32\nvariant'), 0),  # which is the script's own
        (("seeds = [0]", "seeds = [0, 1]"), 4),  # one seed more, of two budgets and two tasks
        (("", "1" * 16), 4),  # other data
    ],
)
def test_cells_that_were_kept_are_left_out(
    change: tuple[str, str], left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `run --kept` still runs, of a row with one variant; what a folder has joins it in `table --save`."""
    text = TUNED.partition("[tune]")[0] + '[[rows]]\nname = "ours"\nmethod = "mc3kd"\nvariant = "kd"\n'
    path, kept, data = tmp_path / "a.toml", tmp_path / "kept.jsonl.gz", ["0" * 16]
    path.write_text(text)
    monkeypatch.setattr(matrix, "fingerprint", lambda *_: data[0])
    line = ["run", str(path), "--out", str(tmp_path / "out")]
    plan, _ = run.plan_of(line[1:])
    for i, job in enumerate(plan.jobs):
        made = write(plan.out / job.row, 0.1 * i, job.seed, task=job.task, variant=f"kd{job.args.budget}",
                     fingerprint=data[0])  # fmt: skip
        run.write_note(plan.out, job, results=[str(made.relative_to(plan.out))])
    results.write_json(plan.out / "matrix.json", {job.key: job.asked for job in plan.jobs})
    records.save([plan.out], kept)
    old, new = change
    data[0] = data[0] if old or not new else new
    path.write_text(text.replace(old, new) if old else text)
    assert len(run.plan_of([*line[1:], "--kept", str(kept)])[0].jobs) == left


def test_a_heading_without_lines_is_not_printed() -> None:
    rows = [["narrow"], ["a", "random", "-"], ["wide"], ["b", "random", "1.0"], ["deep"], ["c", "random", "-"]]
    lines = Grid(["student", "starts from", "log loss"], rows).plain().splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["[wide]", "b"]


# --- with the scripts themselves --------------------------------------------------------------------------------


def test_a_matrix_its_table_and_profile(
    glue: Path, expert: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script elsewhere, and a cell of ours that fails; started again, nothing is repeated."""
    path, out = tmp_path / "tiny.toml", tmp_path / "out"
    path.write_text(f"""
tasks = ["sst2"]
seeds = [0]
budget = 64
max_length = 16
teacher = "{expert}"
data_dir = "{glue}"
cache_dir = "{tmp_path / "cache"}"
student = "2x16"
[[rows]]
method = "bench/baselines/dist.py"
variant = "dist"
[[rows]]
method = "mc3kd"
name = "wrong"
variant = "kd"
init = "{tmp_path}"
""")

    def fails(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            entry.main(list(words))
        assert stop.value.code == 1
        return capsys.readouterr().out

    first = fails("run", str(path), "--out", str(out), "--jobs", "1")
    assert re.search(r"dist sst2 seed 0: Acc \d+\.\d, done in", first)
    assert "wrong sst2 seed 0: FAILED (2): error: --init" in first
    (made,) = out.rglob("result.json")
    before = made.stat().st_mtime_ns
    assert "2 commands, 1 of them done before" in fails("run", str(path), "--out", str(out), "--jobs", "1")
    shown = fails("table", str(out))
    assert re.search(r"^dist .* \d+\.\d", shown, re.MULTILINE)
    assert "failed or missing: wrong-sst2-seed-0: FAILED" in shown
    monkeypatch.setattr(speed, "in_own_process", lambda function, *arguments: function(*arguments))
    entry.main(["profile", str(out), "--data-dir", str(glue)])
    (row,) = json.loads((out / "profile.json").read_text())["rows"]
    assert row["row"] == "dist/dist/dist/student 2x16/random/expert"
    assert min(row["milliseconds"].values()) > 0
    assert row["bytes"] > 0
    assert made.stat().st_mtime_ns == before


def test_a_sweep(glue: Path, expert: Path, tmp_path: Path, capsys: Capture) -> None:
    """As many trials for every variant, scored on the tuning split; started again, nothing is repeated."""
    some, again = (sweep.points({"lr": (1.0, 2.0, 3.0), "alpha": (0.1, 0.2)}, 4) for _ in range(2))
    assert some == again
    assert len({tuple(point.items()) for point in some}) == 4
    line = f"sweep mc3kd --variants finetune,kd --trials 1 --jobs 1 --task sst2 --data-dir {glue} --teacher {expert}"
    line += f" --student 2x16 --budget 64 --max-length 16 --out-dir {tmp_path}"
    entry.main(line.split())
    first = capsys.readouterr().out.partition("\nfinetune on")[2]
    assert "kd on sst2, 1 trials, Acc on the tuning split" in first
    records = [results.load(path) for path in tmp_path.rglob("result.json")]
    assert len(records) == 2
    assert {tuple(record["metrics"]) for record in records} == {("held_out",)}
    entry.main(line.split())
    shown, _, last = capsys.readouterr().out.partition("\nfinetune on")
    assert shown.startswith("0 commands")  # all are kept
    assert last == first
    assert last.count("--lr") == 2


# --- tables -----------------------------------------------------------------------------------------------------


def write(root: Path, score: float, seed: int, variant: str = "kd", task: str = "rte", method: str = "mc3kd",
          settings: dict[str, Any] | None = None, **changes: Any) -> Path:  # fmt: skip
    """A result as the scripts write it, with some fields changed."""
    record = copy.deepcopy(RECORD) | {"task": task, "variant": variant, "seed": seed, "method": method}
    record["comparable"] = f"task:{task}|schema:1"
    record["settings"] |= {"seed": seed} | (settings or {})
    name = {"cola": "matthews", "stsb": "pearson", "lm": "perplexity"}.get(task, "accuracy")
    record["metrics"], record["primary"] = {"dev": {name: score}}, {"name": name, "value": score}
    record["teacher"]["metrics"] = {"dev": {name: 0.9}}
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
    record["signature"] = results.one_line({"method": method, **record["settings"]})
    path = results.folder_of(root, record) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rows, two tasks, three seeds: KD 10 points above the undistilled student, mc3kd within the noise of KD."""
    base = {"rte": (0.60, 0.62, 0.61), "cola": (0.30, 0.34, 0.32)}
    noise = {"rte": (0.02, -0.02, 0.01), "cola": (-0.01, 0.02, -0.02)}
    for task, scores in base.items():
        for seed, start in enumerate(scores):
            write(tmp_path, start, seed, "finetune", task)
            write(tmp_path, start + 0.10 + 0.001 * seed, seed, "kd", task)
            write(tmp_path, start + 0.10 + noise[task][seed], seed, "mc3kd", task)
    return tmp_path


def row(found: table.Table, variant: str, method: str | None = None) -> table.Row:
    return next(one for one in found.rows if one.variant == variant and method in (None, one.method))


def test_differences_are_paired_with_the_baselines_of_the_kind(folder: Path) -> None:
    for seed in range(3):  # of another kind, and of another script, which has a baseline of its own
        write(folder, 0.2, seed, "kd-1bit", "rte", "xtc", {"bits": 1}, student={"bytes": 10})
        write(folder, 0.5, seed, "kd", "rte", "efficient_attention")
        write(folder, 0.4, seed, "finetune", "rte", "efficient_attention")
    found = table.load([folder])
    kd = row(found, "kd", "mc3kd")
    gain = found.over(kd, found.baseline(kd, "undistilled"), found.tasks).found
    assert gain.mean == pytest.approx(0.101)
    assert found.baseline(kd, "vanilla KD") is found.baseline(row(found, "kd-1bit"), "undistilled") is None
    baseline = found.baseline(row(found, "kd", "efficient_attention"), "undistilled")
    assert baseline is row(found, "finetune", "efficient_attention")
    for place, settings in (("few", {"batch_size": 8}), ("hot", {"temperature": 4.0})):  # other KDs, which come first
        write(folder / place, 0.2, 0, "kd", settings=settings)
    write(folder / "all", 0.2, 0, "pkd")
    apart = table.load([folder])
    rival = apart.baseline(row(apart, "pkd"), "vanilla KD")
    assert (rival.place, rival.method) == (".", "mc3kd")
    assert list(found.kinds())[-1].endswith(", 1 bit")
    text = printed(found)
    assert re.search(r"\| vanilla KD \(mc3kd\) \| [^|]+ \| 71\.1 ± 1\.1 \| 42\.1 ± 2\.1 \|", text)
    assert re.search(r"\| vanilla KD \(mc3kd\) .* \| \+10\.1 \[\+\S+, \+\S+\], higher \(over undistilled\) \|", text)
    assert re.search(r"\| mc3kd .* \| -0\.1 \[.*\], not distinguishable \|", text)


def test_rows_compare_within_one_kind_and_one_start(folder: Path) -> None:
    """A stage before the task is no start of its own: its budget is the student's. Converted attention is a kind, whose
    baselines are those of full attention where it has none."""
    base = RECORD["student"]["init"]
    for seed in range(3):
        write(folder, 0.7, seed, "pkd", "rte", student={"init": "random"})
        write(folder, 0.7, seed, "distil", "rte", "efficient_attention", student={"init": f"{base} then distil"})
        write(folder, 0.7, seed, "convert-distil", "rte", "efficient_attention", {"attention": "bigbird"},
              student={"init": f"{base} then convert then distil"})  # fmt: skip
    found = table.load([folder])
    assert found.baseline(row(found, "pkd"), "vanilla KD") is None
    assert found.baseline(row(found, "distil"), "vanilla KD") is row(found, "kd")
    assert row(found, "convert-distil").kind == f"{row(found, 'kd').kind}, bigbird"
    assert found.baseline(row(found, "convert-distil"), "undistilled") is row(found, "finetune")
    assert " (of full attention) (mean of 1 of 2 tasks)" in printed(found)
    arena = [one.variant for one in found.arena()]
    assert arena == ["finetune", "kd", "mc3kd", "distil"]  # baselines first, then by mean, without a mean last
    assert next(iter(found.kinds())) == row(found, "kd").kind
    assert [one.variant for one in found.kinds()[row(found, "kd").kind]] == [*arena, "pkd"]


def test_a_cell_that_was_not_trained_is_marked(folder: Path) -> None:
    assert "†" not in printed(table.load([folder]))
    write(folder, 0.95, 0, "mc3kd", "rte")
    text = printed(table.load([folder]))
    assert re.search(r"\| mc3kd \|[^\n]* ± \S+ † \|", text)
    assert "† Decides nothing. The seeds differ too much (standard deviation above 8 points)" in text


def test_one_file_for_a_matrix(folder: Path, tmp_path_factory: Any, capsys: Capture) -> None:
    """The same tables, from less than a third of the bytes; a damaged one is refused."""
    write(folder / "named", 0.7, 0, "takd", "rte", settings={"seed": 0, "alpha": 1})
    path = tmp_path_factory.mktemp("kept") / "some.jsonl.gz"
    records.save([folder], path)
    assert printed(table.load([path])) == printed(table.load([folder]))
    kept, whole = (records.read(source)[0] for source in (path, folder))
    assert {(one.place, one.record["signature"]) for one in kept} == {(o.place, o.record["signature"]) for o in whole}
    assert all({one.record["settings"] == other.record["settings"] for other in whole} for one in kept)
    assert path.stat().st_size < sum(one.stat().st_size for one in folder.rglob("result.json")) / 3
    path.write_bytes(path.read_bytes()[:-9] + b"?" + path.read_bytes()[-8:])
    assert "cannot be read, or not a file of" in refused(capsys, "table", str(path))


def test_a_damaged_note_is_one_line(folder: Path, capsys: Capture) -> None:
    listed, note = folder / "matrix.json", folder / "jobs" / "a.json"
    note.parent.mkdir()
    for path, text in ((listed, ""), (listed, "3"), (note, ""), (note, "[]"), (note, '{"status": "done"}')):
        listed.write_text('{"a": ""}')
        path.write_text(text)
        assert refused(capsys, "table", str(folder)).startswith(f"error: {path}: damaged")


def test_missing_cells_are_pairs_left_out(folder: Path) -> None:
    for seed in range(3):
        next(folder.glob(f"mc3kd/cola/mc3kd/*/seed{seed}/result.json")).unlink()
    next(folder.glob("mc3kd/rte/kd/*/seed0/result.json")).unlink()
    found = table.load([folder])
    gain = found.over(row(found, "mc3kd"), row(found, "kd"), found.tasks).found
    assert gain.mean == pytest.approx((-0.02 - 0.001 + 0.01 - 0.002) / 2)
    assert found.mean(row(found, "mc3kd")) is None
    assert "(mean of 1 of 2 tasks)" in printed(found)


def test_what_cannot_be_compared_is_refused_and_tuning_is_left_out(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    write(other, 0.5, 0, "kd", "rte")
    with pytest.raises(BadInput, match="the same cell as"):
        table.load([folder, other])
    shutil.rmtree(other)
    write(other, 0.5, 0, "kd", "rte", settings={"tune": True})
    assert len(table.load([folder, other]).rows) == 3
    path = write(folder, 0.5, 2, "kd", "rte", comparable="task:rte|data:other|schema:1")
    with pytest.raises(BadInput, match="not comparable with") as error:
        table.load([folder])
    assert str(path.parent.parent) in str(error.value)


def test_a_teacher_that_was_fine_tuned_twice_is_named(folder: Path) -> None:
    """Rows of one table whose teachers differ, though none of their settings does."""
    assert "fine-tuned more than once" not in printed(table.load([folder]))
    write(folder, 0.5, 0, "pkd", "rte", teacher={"metrics": {"dev": {"accuracy": 0.91}}})
    said = "rte: its teacher was fine-tuned more than once, on unlike processors, to 90.00 and 91.00"
    assert said in printed(table.load([folder]))


def test_less_perplexity_is_more_in_a_table(tmp_path: Path) -> None:
    """The geometric mean of the tokens' probabilities, of students and teacher."""
    for variant, perplexities in {"kd": (10.0, 12.5), "mc3kd": (8.0, 8.0)}.items():
        for seed, value in enumerate(perplexities):
            write(tmp_path, value, seed, variant, "lm", teacher={"metrics": {"dev": {"perplexity": 5.0}}})
    found = table.load([tmp_path])
    assert found.over(row(found, "mc3kd"), row(found, "kd"), found.tasks).found.mean == pytest.approx(0.125 - 0.09)
    page = printed(found)
    assert all(shown in page for shown in ("| lm 1/PPL |", "| 9.0 ± 1.4 |", "| 20.0 |"))


def test_other_settings_are_another_row(folder: Path) -> None:
    """It names what it differs in."""
    for seed in range(2):
        write(folder, 0.5, seed, "kd", "rte", settings={"lr": 3e-3})
    write(folder, 0.5, 2, "kd", "rte", settings={"lr": 3e-3}, teacher={"signature": "another"})
    found = [one for one in table.load([folder]).rows if one.variant == "kd"]
    labels = [one.label for one in found]
    assert len(set(labels)) == len(labels) == 3
    assert sum("lr 0.003" in label for label in labels) == 2
    assert sorted(len(one.records("rte")) for one in found) == [1, 2, 3]
    assert len({one.path for one in found}) == 3


def test_a_row_whose_seeds_go_on_from_runs_of_theirs_is_one_row(folder: Path) -> None:
    for seed, start in enumerate(("seed0@0a", "seed1@1b", "seed0@0a")):
        student = {"init": f"the float weights of {start}"}
        write(folder, 0.5, seed, "xtc", "rte", settings={"init": start}, student=student)
    found = {one.start: len(one.records()) for one in table.load([folder]).rows if one.variant == "xtc"}
    assert found == {"the float weights of its seed's run": 2, "the float weights of seed0@0a": 1}


def test_one_page_with_everything(folder: Path, tmp_path: Path) -> None:
    """Of an arena and another kind; the frontier goes through rows of one start alone."""
    for seed, task in itertools.product(range(3), ("rte", "cola")):
        write(folder, 0.99, seed, "kd-1bit", task, "xtc", {"bits": 1}, student={"bytes": 10, "init": "random"})
    to = tmp_path / "page"
    entry.main(["report", str(folder), "--to", str(to)])
    text = (to / "index.html").read_text(encoding="utf-8")
    assert (text.count("<table"), text.count("<img")) == (3, 2)
    assert not re.findall(r"""(?:src|href|url)[=(]["'](?!data:)""", text), "nothing comes from elsewhere"
    for words in (", higher", RECORD["environment"]["versions"]["torch"], "started from something else (random)"):
        assert words in text
    report.write(table.load([folder]), [folder], to)
    assert (to / "index.html").read_text(encoding="utf-8") == text
    points = [(1.0, 50.0, "a"), (2.0, 40.0, "b"), (2.0, 60.0, "c"), (3.0, 60.0, "d"), (4.0, 61.0, "e")]
    assert [label for _, _, label in frontier(points)] == ["a", "c", "e"]
    entry.main(["figures", "arena", str(folder), "--out", str(to)])
    assert (to / "arena.png").read_bytes()[:4] == b"\x89PNG"
    assert (to / "arena.png").stat().st_size < 300_000


def test_an_order_that_holds_elsewhere_and_one_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are matched by name, and what differs is their order alone: the correlation is 1, or -1, in every draw."""
    monkeypatch.setattr(transfer, "DRAWS", 100)
    names, noise = ("undistilled", "kd", "ours", "theirs", "alone"), (0.001, -0.001, 0.0)
    for folder, step, rows in (("first", 0.05, names), ("same", 0.04, names[:4]), ("turned", -0.04, names[:4])):
        for (rank, name), task in itertools.product(enumerate(rows), ("rte", "sst2")):
            for seed, off in enumerate(noise):
                variant = {"undistilled": "finetune"}.get(name, name)
                write(tmp_path / folder / name, 0.75 + step * rank + off * rank, seed, variant, task)
    first, same, turned = (compared.load([tmp_path / name]) for name in ("first", "same", "turned"))
    said = transfer.transfer(*transfer.both(first, same), "the first", "the second").markdown()
    assert said.startswith("| 4 rows | beside |")
    assert "| the first, mean | the second, mean | +1.00 | [+1.00, +1.00] |" in said
    assert "| the second, the others' mean | the second, sst2 | +1.00 | [+1.00, +1.00] |" in said
    assert "| the first, mean | 6 pairs told apart by the second | 6 in one order | [6, 6] |" in said
    said = transfer.transfer(*transfer.both(first, turned), "the first", "the second").markdown()
    assert "| the first, mean | the second, rte | -1.00 | [-1.00, -1.00] |" in said
    assert "| 0 in one order | [0, 0] |" in said
    for row in turned.rows:
        for of_seed in row.cells.values():
            del of_seed[1], of_seed[2]
    with pytest.raises(BadInput, match="one seed: "):
        transfer.both(first, turned)
    del turned.rows[-1]
    with pytest.raises(BadInput, match="in both matrices; 4 rows or more"):
        transfer.both(first, turned)


@pytest.mark.slow
def test_the_study_of_transfer_is_made_again() -> None:
    arena, real = (compared.load([FOLDER / f"{name}{records.KEPT}"]) for name in ("arena", "real_arena"))
    assert transfer.answer(arena, real) == saved("transfer"), "python -m bench.studies.transfer makes it anew"
    rows = transfer.both(arena, real)[0].rows
    assert {row.name for row in rows} <= {*pages.arena_titles()}  # the figure names them


# --- the pages --------------------------------------------------------------------------------------------------


def test_pages_have_not_drifted() -> None:
    """What was changed by hand, in a table and in a script's lines, is made right."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages.PAGES}
    whole = "".join(texts.values())
    assert [name for name in pages.TABLES if f"<!-- table {name} -->\n" not in whole] == [], "tables without a page"
    for line in ("<!-- table peers -->\n| ", "return sorted(order[:m])"):
        assert line in whole
        whole = whole.replace(line, f"{line}9")
    made = pages.filled(whole)
    assert [name for name, text in texts.items() if text not in made] == [], "python -m bench pages rewrites the tables"


def test_a_sentence_says_what_its_interval_says() -> None:
    marker = "<!-- higher arena mse-kd - kd, grammar -->{}<!-- end -->"
    figure = r"\+\d+\.\d \[\+\d+\.\d, \+\d+\.\d\]"
    assert re.fullmatch(marker.format(figure), pages.filled(marker.format("")))


@pytest.mark.parametrize("paper", claims.PAPERS)
def test_claims_have_a_figure_in_print_and_an_answer(paper: str) -> None:
    """Figures stand in the paper's tables as transcribed; rows in a result, or in a matrix that is to make one."""
    text = (ROOT / f"bench/published/{paper}.toml").read_text(encoding="utf-8")
    printed = set(re.findall(r"\d+(?:[.,]\d+)+", text))
    places, mine = claims.read()["results"], [claim for claim in claims.read()["claims"] if claim["paper"] == paper]
    assert mine
    for claim in mine:
        assert claim.keys() in ({"paper", "claim", "published", key} for key in ("takes", "answers")), claim
        assert re.search(r"(?i)\b(tables?|section|figure|appendix|abstract)\b", claim["published"]), claim
        assert set(re.findall(r"\d+(?:[.,]\d+)+", claim["published"])) - {"4,096"} <= printed, claim
        answers = claim.get("answers", [])
        columns = [answer.get("column") or places[answer["results"]]["column"] for answer in answers]
        assert sorted(columns) == sorted(set(columns) & set(claims.COLUMNS)), claim
        for answer in answers:
            rows = [name for key in ("more", "less", "than") if key in answer for name in answer[key].split(" - ")]
            if answer.keys() & {"figure", "measured"}:
                assert claims.judged(answer)[0] in claims.WORDS[:3], answer
            else:  # in the result, or in the matrix of which it holds a part so far
                path = ROOT / f"bench/matrices/{answer['results']}.toml"
                named = {row["name"] for row in matrix.read_file(path)["rows"]} if path.is_file() else set[str]()
                found = claims.scores(answer["results"]).keys()
                assert {name for name in rows if name.split("/")[0] not in named} <= found, answer


def test_the_word_of_a_claim_follows_from_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of made-up scores: paired by the seeds that both have, against zero or the bound that the claim names."""
    rows = {"a": [0.80, 0.83, 0.82, 0.99], "b": [0.70, 0.71, 0.73], "c": [0.60, 0.75, 0.70], "one": [0.9]}
    made: claims.Scores = {name: {"x": dict(enumerate(values))} for name, values in rows.items()}
    made |= {"t/a": {"x": {0: 1.0}}, "t/b": {"x": {0: 2.0}}}
    made |= {"d": {"x": {0: 0.9, 1: 0.91}, "y": {0: 0.5, 1: 0.51}}, "e": {t: {0: 0.7, 1: 0.711} for t in "xy"}}
    for seed in range(3):  # within each seed the score falls as the analysis rises
        for i, name in enumerate(("r/1", "r/2", "r/3", "r/4")):
            made.setdefault(name, {}).setdefault("x", {})[seed] = 0.9 - 0.1 * i
            order = i if (seed, i) != (0, 3) else 1.5
            made.setdefault(f"{name}/rccc", {}).setdefault("x", {})[seed] = order
    monkeypatch.setattr(claims, "scores", lambda name: made if name == "made" else {})
    gap = compared.interval([0.10, 0.12, 0.09])
    for answer, said, figure in (
        ({"more": "a", "than": "b"}, "held", gap.text()),
        ({"less": "a", "than": "b"}, "did not hold", "+10.3"),
        ({"less": "b", "than": "a"}, "held", "-10.3"),
        ({"more": "b", "than": "a"}, "did not hold", "-10.3"),
        ({"more": "b", "than": "c"}, "not distinguishable", "+3.0 ["),
        ({"more": "a", "than": "b", "by": 5}, "held", "+10.3"),
        ({"more": "a", "than": "b", "by": 10}, "not distinguishable", "+10.3"),
        ({"more": "b", "than": "a", "by": -15}, "held", "-10.3"),
        ({"less": "a", "than": "b", "by": 1}, "did not hold", "+10.3"),
        ({"more": "b", "than": "a", "times": 0.8}, "held", "0.87 ["),
        ({"more": "b", "than": "a", "times": 0.95}, "did not hold", "0.87 ["),
        ({"more": "a - b", "than": "a - a"}, "held", "+10.3"),
        ({"more": "d", "than": "e"}, "not distinguishable", "by task: x +20.0"),
        ({"less": "t/a", "than": "t/b", "times": 1, "tasks": ["x"]}, "not tested", "0.50 times (one seed)"),
        ({"falls": "r/", "with": "rccc"}, "held", "-0.93 ["),
        ({"more": "one", "than": "a"}, "not tested", "+10.0 (one seed)"),
        ({"more": "gone", "than": "a"}, "not tested", "no result yet"),
        ({"more": "a", "than": "b", "results": "not yet"}, "not tested", "no result yet"),
    ):  # fmt: skip
        found = claims.judged({"results": "made"} | answer)
        assert (found[0], found[1][: len(figure)]) == (said, figure), answer


# --- sizes, speed, figures --------------------------------------------------------------------------------------


def test_ratios_that_are_a_fifth_worse_are_called() -> None:
    for name, before, now, called in (
        ("x, loop / bare", 1.0, 1.19, False), ("x, loop / bare", 1.0, 1.21, True),
        ("x, library / ours", 2.4, 2.01, False), ("x, library / ours", 2.4, 1.99, True),
        ("x, loop / fast", 5.0, 9.0, False),
    ):  # fmt: skip
        assert bool(speed.worse({name: before, "gone": 1.0}, {name: now, "new": 9.0})) == called


def test_runs_in_one_figure(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means over seeds, by rising size; every run has its line, and runs on two tasks or budgets are no picture."""
    for variant, size, seed, score in (("cka", 2e6, 0, 0.5), ("cka", 1e6, 0, 0.2), ("cka", 1e6, 1, 0.4),
                                       ("woh", 1e6, 0, 0.1)):  # fmt: skip
        student = {"shape": f"{size:.0f}x8", "parameters": int(size)}
        write(tmp_path / "runs", score, seed, variant, "rte", "cka", student=student)
    entry.main(["figures", "cka-size", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    assert {"cka: 1.0M 30.0, 2.0M 50.0", "woh: 1.0M 10.0"} < set(capsys.readouterr().out.splitlines())
    assert (tmp_path / "out" / "cka" / "rte" / "size-accuracy.png").stat().st_size > 5_000
    write(tmp_path / "runs", 0.1, 0, "cka", "cola", "cka")
    with pytest.raises(BadInput, match="several tasks, "):
        figures.cka_size(str(tmp_path / "runs"), tmp_path, [])
    for amount in (640, 6400):
        write(tmp_path / str(amount), 0.1, 0, budget={"amount": amount}, analysis={"validation": {"task": [1.0]}})
    runs = f"{tmp_path}/640,{tmp_path}/6400"
    with pytest.raises(BadInput, match="several budgets, 640, 6400"):
        figures.cka_size(runs, tmp_path, [])
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "lines", lambda series, *_: drawn.append(series))
    figures.cka(f"{runs},{tmp_path}/640/mc3kd", tmp_path, [])  # of one name, and one of them twice
    assert [len(series) for series in drawn] == [2]
    with pytest.raises(BadInput, match="no run has a validation loss"):
        figures.cka(str(tmp_path / "runs" / "cka" / "rte"), tmp_path, [])


def test_memory_is_of_the_device_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's, of what it is handed to; of all else a process's, whatever GPU is there."""
    for name, value in {"is_available": True, "memory_allocated": 1000, "max_memory_allocated": 1100}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(speed, "in_own_process", lambda *_: 7)
    assert [speed.memory_of(lambda device: print, device) for device in ("cuda", "cpu")] == [100, 7]
    here, on_cpu = (results.environment(on_cpu)["hardware"]["device"] for on_cpu in (False, True))
    assert here == "a GPU" != on_cpu


def test_times_are_of_texts_whatever_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows that cut 40 texts into windows of unlike length; a batch of windows takes a second here."""
    for what, value in {
        "load_student": lambda *_: None, "AutoTokenizer": SimpleNamespace(from_pretrained=lambda *_, **__: None),
        "batches": lambda task, tokenizer, max_length, size, count: [{}] * (1000 // max_length),
        "medians": lambda calls, _: {name: float(len(call.args[1])) for name, call in calls.items()},
    }.items():  # fmt: skip
        monkeypatch.setattr(f"bench.arena.{what}", value)
    monkeypatch.setattr(results, "load", lambda path: {"settings": {"max_length": int(path.parent.name)},
                                                       "student": {"parameters": 1, "bytes": 4}})  # fmt: skip
    task: Any = SimpleNamespace(task=SimpleNamespace(kind=""), splits={"dev": range(40)}, reported=["dev"])
    rows: Any = [(SimpleNamespace(path=length, method=""), Path(length)) for length in ("10", "50")]
    found = [line["milliseconds"] for line in profiled(rows, task, memory=False)]
    assert found == [{"1": 1000 * n / 16, "32": 1000 * n * 32 / 40} for n in (100, 20)]


def test_windows_are_measured_beside_attentions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 1,024 tokens in two windows of 512; a row for each attention at both sizes."""
    monkeypatch.setattr(speed, "in_own_process", lambda function, *arguments: function(*arguments))
    found = speed.read_by_length(1, 64, ("sdpa", "windows"), (512, 1024))
    assert set(found["attentions"]["windows"]["seconds"]) == {"512", "1024"}
    first = found["attentions"]["windows"]["parameters"]
    assert found["attentions"]["sdpa"]["parameters"] - first == 512 * 64  # positions
    lines = speed.lengths_text({"shapes": {"1x64": found, "again": found}}).splitlines()
    assert len(lines) == 2 + 2 * 6
    assert all(line.rstrip(" |").endswith("1.00") for line in lines if "windows" in line.split("|")[2])
