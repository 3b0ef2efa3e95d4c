"""`python -m bench run`: what it starts, how it goes on, and what it does about failures. The scripts are stood in for
by a small one, but for one test at the end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, matrix_of

from bench import matrix, run
from bench.matrix import Job, Matrix
from common import results
from methods import mc3kd

# Writes a result for each variant, its process id into it; fails at variants for which there is a file FAIL-<variant>.
STAND_IN = """
import os, signal, sys, time
from pathlib import Path
out, seed, seconds, _, variants = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with open(Path(out).parent / "starts.txt", "a") as file:
    file.write(f"{Path(out).name} {seed} {variants}\\n")
for variant in variants.split(","):
    place = Path(out) / "mc3kd" / "pocket" / "rte" / variant / f"seed{seed}" / "result.json"
    if place.exists():
        continue
    if (Path(out).parent / f"FAIL-{variant}").exists():
        sys.exit(f"error: {variant} is broken")
    time.sleep(float(seconds))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(str(os.getpid()))
"""


def stand_in(folder: Path, seeds: int = 4, seconds: float = 0.0, variants: str = "kd,mc3kd") -> Matrix:
    """A matrix of one row whose commands are the stand-in's."""
    script = folder / "stand_in.py"
    script.write_text(STAND_IN)
    out = folder / "out"
    jobs = []
    for seed in range(seeds):
        args = mc3kd.Args(task="pocket/rte", variant=variants, seed=seed)
        words = (str(script), str(out / "row"), str(seed), str(seconds), "--variant", variants)
        jobs.append(Job("row", "mc3kd", "pocket/rte", seed, words, args))
    return Matrix("test", out, jobs)


def cells(out: Path) -> dict[str, str]:
    """Result -> the id of the process that made it."""
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("result.json"))}


def starts(plan: Matrix) -> list[str]:
    return (plan.out / "starts.txt").read_text().splitlines()


@pytest.fixture
def plan(tmp_path: Path) -> Matrix:
    found = stand_in(tmp_path)
    found.out.mkdir()
    return found


def test_every_command_runs_once(plan: Matrix) -> None:
    assert run.execute(plan, 2, 1) == []
    assert len(cells(plan.out)) == 8
    before = cells(plan.out)
    assert run.execute(plan, 2, 1) == []
    assert cells(plan.out) == before
    assert len(starts(plan)) == 4


def test_a_lost_result_is_made_again_and_the_others_are_not(plan: Matrix) -> None:
    run.execute(plan, 2, 1)
    before = cells(plan.out)
    lost = "row/mc3kd/pocket/rte/kd/seed2/result.json"
    (plan.out / lost).unlink()
    run.execute(plan, 2, 1)
    after = cells(plan.out)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {lost}


def test_other_arguments_are_another_command(plan: Matrix, tmp_path: Path) -> None:
    run.execute(plan, 2, 1)
    run.execute(stand_in(tmp_path, seconds=0.01), 2, 1)
    assert len(starts(plan)) == 8


def test_one_failed_variant_costs_one_cell(plan: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
    """The command fails at its first variant; the second has its result all the same, and so have other seeds."""
    (plan.out / "FAIL-kd").touch()
    failed = run.execute(plan, 2, 1)
    assert sorted(job.name for job in failed) == [f"row pocket/rte seed {seed} kd" for seed in range(4)]
    assert {Path(name).parts[-3] for name in cells(plan.out)} == {"mc3kd"}
    said = capsys.readouterr().out
    assert said.count("FAILED (1): error: kd is broken") == 8
    (plan.out / "FAIL-kd").unlink()  # mended, and started again
    before = cells(plan.out)
    assert run.execute(plan, 2, 1) == []
    assert len(cells(plan.out)) == 8
    assert {name: cells(plan.out)[name] for name in before} == before


RUNNER = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import test_bench_run
from bench import run
run.execute(test_bench_run.stand_in(Path({folder!r}), seconds=0.3, variants="kd"), 2, 1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_and_started_again(tmp_path: Path, how: signal.Signals) -> None:
    """Finished cells stay as they are, and a command that outlived its runner does not write beside its successor."""
    plan = stand_in(tmp_path, seconds=0.3, variants="kd")
    plan.out.mkdir()
    text = RUNNER.format(root=str(results.ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path))
    if how is not signal.SIGKILL:
        text = text.replace("run.execute", "import signal\nfrom common.args import interrupt\nfor number in (2, 15):"
                            " signal.signal(number, interrupt)\nrun.execute", 1)  # fmt: skip
    runner = subprocess.Popen([sys.executable, "-c", text], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(cells(plan.out)) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    before = cells(plan.out)
    runner.send_signal(how)
    assert runner.wait(30) != 0
    assert len(before) < 4
    assert run.execute(plan, 2, 1) == []
    after = cells(plan.out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    assert [run.read_note(plan.out, job)["status"] for job in plan.jobs] == ["done"] * 4


def test_an_orphan_is_stopped(plan: Matrix) -> None:
    """And another process that has its number by now is not."""
    job = stand_in(plan.out.parent, seconds=60, variants="kd").jobs[0]
    orphan = subprocess.Popen([sys.executable, *job.words])
    run.write_note(plan.out, job, "running", pid=orphan.pid)
    while not (plan.out / "starts.txt").exists():  # it listens to signals now
        time.sleep(0.02)
    run.stop_orphans(plan.out, [job])
    orphan.wait(10)
    assert not cells(plan.out)
    run.write_note(plan.out, job, "running", pid=os.getpid())
    run.stop_orphans(plan.out, [job])


# --- the order of commands -----------------------------------------------------------------------------------


def job(row: str, task: str, seed: int) -> Job:
    return Job(row, "mc3kd", task, seed, (row, task, str(seed)), mc3kd.Args(task=task, seed=seed))


def test_no_two_commands_make_one_teacher() -> None:
    jobs = [job(row, task, seed) for row in "ab" for task in ("pocket/rte", "pocket/cola") for seed in (0, 1)]
    waiting = run.in_order(jobs)
    assert [found.task for found in waiting[:2]] == ["pocket/rte", "pocket/cola"]
    assert [found.seed for found in waiting] == [0] * 4 + [1] * 4  # stopped early, all rows have the first seeds
    running = [run.Running(waiting[0], None, 0.0)]  # type: ignore[arg-type]
    found = run.next_job(waiting[1:], running, set())
    assert found is waiting[1]
    running.append(run.Running(found, None, 0.0))  # type: ignore[arg-type]
    assert run.next_job(waiting[2:], running, set()) is None
    ready = run.next_job(waiting[2:], running, {waiting[0].teacher})
    assert ready is not None
    assert (ready.row, ready.task) == ("b", "pocket/rte")  # another row than those that run


# --- the file ------------------------------------------------------------------------------------------------

GOOD = """
tasks = ["pocket/rte", "pocket/cola"]
seeds = [0, 1]
budget = "smoke"
[[rows]]
method = "mc3kd"
variant = "finetune,kd"
[[rows]]
method = "xtc"
student = "2x128"
seeds = [3]
bits = 2
"""


def test_the_commands_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(GOOD)
    run.main([str(path), "--dry-run", "--tasks", "pocket/rte", "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"python methods/mc3kd.py --task pocket/rte --seed {seed} --variant finetune,kd --cache-dir runs/cache"
        f" --budget smoke --out-dir {tmp_path}/out/mc3kd --resume  # budget smoke for each student"
        for seed in (0, 1)
    ] + [
        f"python methods/xtc.py --task pocket/rte --seed 3 --variant finetune,kd,xtc --cache-dir runs/cache"
        f" --budget smoke --student 2x128 --bits 2 --out-dir {tmp_path}/out/xtc --resume  # budget smoke for each"
        " student",
        f"# 3 commands in 2 rows; results under {tmp_path}/out",
    ]
    assert not (tmp_path / "out").exists()
    run.main([str(path), "--dry-run", "--json"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["name"] for record in records][-1] == "xtc pocket/cola seed 3"
    assert records[-1]["command"][:2] == ["python", "methods/xtc.py"]
    run.main(["--methods", "cka,cmow", "--tasks", "pocket/rte", "--seeds", "0", "--budget", "64", "--dry-run"])
    assert "# 2 commands in 2 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[[rows]]", "[[rows"), "not TOML"),
        (("seeds = [0, 1]", "seeds = 3"), "row mc3kd: seeds = 3: must be a list"),
        (("seeds = [0, 1]", "seeds = [0, 0]"), "row mc3kd: seeds = [0, 0]: must be a list"),
        (('"pocket/cola"', '"pocket/none"'), "pocket/none"),
        (('method = "xtc"', 'method = "distil"'), "method 'distil': must be one of cka, cmow"),
        (('method = "xtc"', 'method = "mc3kd"\nname = "a/b"'), "name 'a/b'"),
        (('method = "xtc"', 'method = "mc3kd"'), "two rows are called mc3kd"),
        (("bits = 2", "bits = 3"), "row xtc: --bits '3': must be"),
        (("bits = 2", "bit = 2"), "row xtc: bit: no argument of methods/xtc.py"),
        (("bits = 2", "seed = 2"), "row xtc: seed: no argument of methods/xtc.py that may be given here"),
        (('budget = "smoke"', 'budget = "much"'), "row mc3kd: --budget 'much'"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(SystemExit) as stopped:
        run.main([str(path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "give a file"),
        (["missing.toml"], "missing.toml: cannot be read"),
        (["bench/quick.toml", "--jobs", "0"], "--jobs 0: must be 1 or more"),
        (["bench/quick.toml", "--seeds", "a"], "--seeds a: must be numbers"),
        (["bench/quick.toml", "--methods", "cka"], "give a file"),
        (["bench/quick.toml", "--sedes", "1"], "--sedes"),
    ],
)
def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(argv)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["quick", "real"])
def test_the_files_that_ship(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five methods; the three baselines; three seeds; four tasks; one budget."""
    monkeypatch.setattr("common.corpus.check", lambda _: None)  # the texts and data of real.toml are not here
    monkeypatch.setattr("common.data.find_files", lambda task, folder: {})
    plan = matrix.load(results.ROOT / "bench" / f"{name}.toml", {})
    assert {job.method for job in plan.jobs} == set(matrix.methods())
    assert {"finetune", "kd", "pkd-skip"} <= {v for job in plan.jobs for v in job.args.variants}
    assert len({job.args.budget for job in plan.jobs}) == 1
    for row in {job.row for job in plan.jobs}:
        assert len({(job.task, job.seed) for job in plan.jobs if job.row == row}) == 4 * 3


def test_two_at_once_in_one_place_are_refused(plan: Matrix, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(GOOD)
    with run.FileLock(plan.out / ".lock"), pytest.raises(SystemExit) as stopped:
        run.main([str(path), "--out", str(plan.out)])
    assert stopped.value.code == 2


def test_with_the_scripts_themselves(glue: Path, expert: Path, tmp_path: Path) -> None:
    """One row that fails, one that does not; exit code 1; started again, nothing is repeated."""
    path = tmp_path / "tiny.toml"
    path.write_text(f"""{matrix_of(glue, expert, tmp_path / "cache")}
[[rows]]
method = "mc3kd"
student = "2x16"
variant = "kd"
selection_examples = 32
[[rows]]
method = "xtc"
student = "2x16"
variant = "kd"
""")
    command = [sys.executable, "-m", "bench", "run", str(path), "--out", str(tmp_path / "out"), "--jobs", "1"]
    first = subprocess.run(command, env=ENVIRONMENT, cwd=results.ROOT, capture_output=True, text=True)
    assert first.returncode == 1, first.stderr
    assert "mc3kd sst2 seed 0: done in" in first.stdout
    assert "xtc sst2 seed 0: FAILED (2): error: --student 2x16: layers are left out" in first.stdout
    assert "failed: xtc sst2 seed 0; log: " in first.stderr
    found = list((tmp_path / "out").rglob("result.json"))
    assert [results.load(one)["variant"] for one in found] == ["kd"]
    before = found[0].stat().st_mtime_ns
    again = subprocess.run(command, env=ENVIRONMENT, cwd=results.ROOT, capture_output=True, text=True)
    assert again.returncode == 1
    assert "2 commands, 1 of them done before" in again.stdout
    assert "mc3kd" not in again.stdout.split("\n", 1)[1]
    assert found[0].stat().st_mtime_ns == before
