"""Every script of methods/, and of docs/, found from its file: the same promises for all. A new method needs no line
here; those of bench/baselines/ have none."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, SCRIPTS, call, in_two_processes, module_of, ran, records, save_every, stopped

from common import models, results, run, train
from common.args import BadInput
from common.tasks import check_name

METHODS = list(SCRIPTS)
# What is run of a script: rows with every kind of stage that it has. Of one that is not here: its own rows.
ANY = "--student 2x32 --lr 3e-3"
CASES = {
    "mc3kd": "--variant kd,mc3kd --student 2x32 --lr 3e-3 --budget 3840",
    "takd": "--variant takd --student 2x32 --lr 3e-3 --budget 3840",
    "dynakd": "--variant dynakd --pool {other} --student 2x32 --lr 3e-3 --budget 3840",
    "cka": "--variant lin,cka --student 2x16 --lr 5e-3",
    "cmow": "--variant kd --student hybrid-3-9 --mlp-width 16 --init general --lr 5e-3",
    "xtc": "--variant kd,xtc --bits 2 --stages 2 --student 2x32 --lr 3e-3",
    "efficient_attention": "--variant convert-distil --window 4 --short-length 16 --lr 3e-3 --budget 5120",
}


class Case(NamedTuple):
    method: str
    argv: list[str]
    out: Path  # of a run that nothing disturbed
    printed: str
    logits: dict[Path, torch.Tensor]  # by a student's folder, on its card's example


def words_of(method: str, easy: list[str]) -> list[str]:
    return CASES.get(method, ANY).format(other=Path(easy[easy.index("--teacher") + 1]).with_name("other")).split()


@pytest.fixture(scope="session", params=METHODS)
def case(request: pytest.FixtureRequest, easy: list[str], tmp_path_factory: pytest.TempPathFactory) -> Case:
    method, out = request.param, tmp_path_factory.mktemp(request.param)
    argv, logits = [*easy, *words_of(method, easy)], dict[Path, torch.Tensor]()
    save = models.save

    def saved(model: Any, tokenizer: Any, folder: Path, *more: Any) -> int:
        if out in folder.parents:  # no stage in the cache
            inputs = tokenizer("sentence", truncation=True, max_length=16, return_tensors="pt")
            with torch.no_grad():
                logits[folder] = model.eval()(**inputs).logits
        return save(model, tokenizer, folder, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "save", saved)
        printed = ran(method, *argv, "--out-dir", out)
    return Case(method, argv, out, printed, logits)


def outcome(out: Path) -> dict[str, Any]:
    """What two runs with one seed must share: digests of all weights, logs, and results without clocks and places."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if "teachers" not in path.parts and "outputs" not in path.parts):
        name = str(path.relative_to(out))
        if path.name == "log.jsonl":
            found[name] = path.read_text()
        elif path.suffix == ".safetensors":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.name == "result.json":
            found[name] = record = results.load(path)
            for key in ("command", "finished", "environment"):
                del record[key]
            del record["teacher"]["speed"], record["student"]["speed"]
            for key in ("seconds", "shared_seconds", "peak_memory_bytes"):
                del record["ledger"][key]
    return found


# --- one run -------------------------------------------------------------------------------------------------


def test_it_ends_with_a_table_and_reaches_its_floor(case: Case) -> None:
    """Chance is 0.5, and whoever reads the word that carries the mood is right; valid results, and nothing left."""
    found = records(case.out)
    rows = case.printed.split("---\n")[1].splitlines()
    assert rows[0].startswith("teacher ")
    assert {row.split()[0] for row in rows[1 : 1 + len(found)]} == {record["variant"] for record in found}
    for record in found:
        folder = results.folder_of(case.out, record)
        assert folder.parent.parent == case.out / case.method / "sst2" / record["variant"]
        assert f"saved: {folder}" in case.printed
        assert record["teacher"]["metrics"]["dev"]["accuracy"] > 0.95
        assert record["primary"]["value"] == record["metrics"]["dev"]["accuracy"] > 0.75, record["variant"]
        assert record["student"]["bytes"] == sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
        assert record["budget"]["amount"] == record["ledger"]["steps"] * 32
        steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
        assert steps == sorted(steps)
        assert steps
        names = {path.name for path in folder.iterdir()}
        assert {"args.json", "config.json", "README.md", "tokenizer_config.json"} <= names
    assert len({record["comparable"] for record in found}) == 1
    assert len({record["signature"] for record in found}) == len(found)
    assert not [path for path in case.out.rglob("*") if re.search(r"checkpoint|partial|\.training|\.raw", path.name)]


def test_the_card_loads_the_same_predictions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippet of each card runs as it stands, in the folder of the card. Its tokenizer knows the length of the
    training, and nothing of its last call."""
    for record in records(case.out):
        folder = results.folder_of(case.out, record)
        state = json.loads((folder / "tokenizer.json").read_text())
        assert (state["truncation"], state["padding"]) == (None, None)
        assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 16
        card, scope = (folder / "README.md").read_text(), dict[str, Any]()
        assert record["signature"] in card
        monkeypatch.chdir(folder)
        with contextlib.redirect_stdout(None):
            exec(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], scope)
        with torch.no_grad():
            # another of the library's kernels of attention may round in another way
            torch.testing.assert_close(scope["model"](**scope["inputs"]).logits, case.logits[folder])


def test_it_is_not_run_again_and_nothing_is_overwritten(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed lies beside it, other settings in a folder of their own."""
    before = {path: path.read_bytes() for path in case.out.rglob("*") if path.is_file()}
    printed = ran(case.method, *case.argv, "--out-dir", case.out)
    assert printed.count("finished before") == len(records(case.out))
    assert printed.split("task:")[-1] == case.printed.split("task:")[-1]
    folders: list[Path] = []
    first = records(case.out)[0]
    monkeypatch.setattr(run.Run, "finished", property(lambda self: folders.append(self.folder) or first))

    def asked(*changes: str) -> set[Path]:
        folders.clear()
        ran(case.method, *case.argv, *changes, "--out-dir", case.out)
        return set(folders)

    there = {path.parent for path in case.out.rglob("result.json")}
    assert asked("--teacher-cache", "off") == there
    assert asked("--seed", "4") == {folder.with_name("seed4") for folder in there}
    for other in (asked("--lr", "1e-4"), asked("--budget", "640")):
        assert not {folder.parent for folder in other} & {folder.parent for folder in there}
    assert {path: path.read_bytes() for path in case.out.rglob("*") if path.is_file()} == before


# --- the same bits, whatever happens -------------------------------------------------------------------------

MOMENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.chmod", "os.rmdir")


def short(case: Case, easy: list[str], out: Path) -> list[str]:
    """Twenty steps in `out`, with caches of its own, in which the teacher is."""
    teachers = Path(easy[easy.index("--cache-dir") + 1]) / "teachers"
    shutil.copytree(teachers, out / "cache" / "teachers", dirs_exist_ok=True)
    words = f"--budget 640 --out-dir {out} --cache-dir {out / 'cache'}"
    return [*case.argv, *words.split()]


def forked(case: Case, argv: list[str], at: int = 0, number: int = signal.SIGKILL) -> tuple[int, str, int]:
    """The script in a fork, to which the signal is sent before it touches its output or cache for the `at`-th time:
    exit code, negative for a signal; stderr; how often it has touched them."""
    touched, (told, tells), out = [0], os.pipe(), argv[argv.index("--out-dir") + 1]

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in MOMENTS and str(given[0]).startswith(out):
            touched[0] += 1
            if touched[0] == at:
                os.kill(os.getpid(), number)

    if (pid := os.fork()) == 0:
        sys.addaudithook(hook)
        train.LOG_EVERY = 1
        save_every(0, pytest.MonkeyPatch())
        code, _, err = call(case.method, *argv)
        os.write(tells, f"{touched[0]} {err}"[:4000].encode())
        os._exit(code)
    os.close(tells)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with os.fdopen(told) as file:
        count, _, err = file.read().partition(" ")
    return code, err, int(count or 0)


class Whole(NamedTuple):
    out: Path
    moments: int
    outcome: dict[str, Any]


@pytest.fixture(scope="session")
def whole(case: Case, easy: list[str], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Twenty steps that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    code, err, moments = forked(case, short(case, easy, out))
    assert code == 0, err
    return Whole(out, moments, outcome(out))


@pytest.mark.forks
@pytest.mark.parametrize("stops", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_stopped_at_random_moments_it_ends_at_the_same_bits(
    stops: int, case: Case, easy: list[str], whole: Whole, tmp_path: Path
) -> None:
    """By SIGKILL and by SIGTERM in turn, in any stage, in the middle of writing too. Stages and their cost as well."""
    rng, stopped, ends = random.Random(f"{case.method}/{stops}"), 0, 0
    while True:
        number = (signal.SIGKILL, signal.SIGTERM)[stopped % 2]
        at = rng.randrange(1, whole.moments) if stopped < stops else 0
        code, err, _ = forked(case, short(case, easy, out := tmp_path / str(ends)), at, number)
        if code == 0:  # the script had been further than this moment already
            assert outcome(out) == whole.outcome
            assert not [path for path in out.rglob("*") if re.search(r"checkpoint|partial|\.training|\.raw", path.name)]
            ends += 1
            if not at:
                break
            continue
        stopped += 1
        assert code == (-number if number == signal.SIGKILL else 128 + number), err
        if number == signal.SIGTERM:
            assert err.strip().splitlines()[-1] == "stopped by SIGTERM; the same command goes on"


def curves(out: Path) -> dict[str, list[float]]:
    return {
        str(path.parent.relative_to(out)): [json.loads(line)["loss"] for line in path.read_text().splitlines()]
        for path in sorted(out.rglob("log.jsonl"))
    }


@pytest.mark.forks
def test_two_processes_are_one(case: Case, easy: list[str], whole: Whole, tmp_path: Path) -> None:
    """The same losses until rounding has an effect, the same ledger; the main process alone writes.

    The first two losses, of which the warm-up's first has a rate of 0, are of the same weights: means of the same rows,
    each rounded to 6e-8; a few 8-bit codes may differ by one. Gradients are compared in float64 elsewhere."""
    argv = short(case, easy, tmp_path)

    def both() -> tuple[int, str, list[str]]:
        written: list[str] = []

        def hook(event: str, given: tuple[Any, ...]) -> None:
            if event == "open" and str(given[0]).startswith(str(tmp_path)) and given[2] & (os.O_WRONLY | os.O_RDWR):
                written.append(str(given[0]))

        sys.addaudithook(hook)
        train.LOG_EVERY = 1
        save_every(0, pytest.MonkeyPatch())
        code, _, err = call(case.method, *argv)
        return code, err, written

    (code, err, first), (other, more, second) = in_two_processes(both)
    assert (code, other) == (0, 0), err + more
    assert first
    assert not second
    for one, two in zip(records(whole.out), records(tmp_path), strict=True):
        assert one["signature"] == two["signature"]
        for key in ("steps", "student_examples", "student_tokens", "teacher_examples"):
            assert one["ledger"][key] == two["ledger"][key], key
        assert two["environment"]["hardware"]["processes"] == 2
    for name, losses in curves(whole.out).items():
        assert curves(tmp_path)[name][:2] == pytest.approx(losses[:2], rel=1e-3), name


@pytest.mark.forks
def test_kept_outputs_of_the_teacher_change_nothing(case: Case, easy: list[str], whole: Whole, tmp_path: Path) -> None:
    """Twenty steps see each example once, so that nothing was kept; two losses, before rounding has an effect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "LOG_EVERY", 1)
        ran(case.method, *short(case, easy, tmp_path), "--teacher-cache", "on")
    for name, losses in curves(whole.out).items():
        assert curves(tmp_path)[name][:2] == pytest.approx(losses[:2], rel=1e-4), name
    for one, two in zip(records(whole.out), records(tmp_path), strict=True):
        assert one["signature"] == two["signature"]


@pytest.mark.parametrize("method", METHODS)
def test_every_variant_runs_in_other_ways_too(method: str, easy: list[str], tmp_path: Path) -> None:
    """With less precision, batches of one length, fewer examples, on data that may be tuned on: comparable rows."""
    names = module_of(method).Args.__dataclass_fields__["variant"].metadata
    words = "--budget 320 --precision bf16 --batches by-length --limit 100 --tune --teacher-precision bf16 --seed 0"
    wide = [] if method == "cmow" else ["--student", "2x32"]  # some variants need the teacher's width
    argv = [*easy, *words_of(method, easy), *words.split(), *wide, "--variant", ",".join(names["names"])]
    ran(method, *argv, "--out-dir", tmp_path)
    found = records(tmp_path)
    assert len(found) >= len(names["names"])
    assert len({record["comparable"] for record in found}) == 1
    assert {record["seed"] for record in found} == {0}
    assert {tuple(record["metrics"]) for record in found} == {("held_out",)}


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_finite_ends_with_step_and_ids(method: str, easy: list[str], tmp_path: Path) -> None:
    argv = [*easy, *words_of(method, easy), "--budget", "640", "--variant", "kd", "--lr", "1e30", "--out-dir", tmp_path]
    assert re.search(r" at step \d+, batch train-\d+.*a lower --lr", stopped(method, *argv))
    assert not records(tmp_path)


# --- the two baselines are the same from every script --------------------------------------------------------


def levels(method: str) -> bool:
    """Whether a script's baselines are the teacher's library model, with as many layers and as wide as asked."""
    args = module_of(method).Args
    with contextlib.suppress(BadInput):
        args(student="2x32", variant="finetune,kd").check()
        return True
    return False


LEVEL = [method for method in METHODS if levels(method)]
FULL = {"xtc": "--bits 32", "efficient_attention": "--short-length 16"}  # of a script's baselines: the library's model


@pytest.mark.parametrize(
    ("task", "start"),
    [
        ("sst2", "--init pretrained --keep 2,4"),
        ("stsb", "--init random"),
        pytest.param("sst2", "--init teacher --keep top", marks=pytest.mark.slow),
    ],
)
def test_the_undistilled_student_and_kd_are_level(start: str, task: str, easy: list[str], glue: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """One start, one seed: the same losses and the same metrics, whichever script has trained them."""
    assert set(LEVEL) >= {"mc3kd", "cka", "xtc", "efficient_attention"}
    monkeypatch.setattr(train, "LOG_EVERY", 1)
    words = "--student 2x32 --lr 3e-3 --budget 160 --alpha 0.7 --temperature 3 --batch-size 16 --teacher-epochs 1"
    argv = [*easy, *words.split(), *start.split(), "--task", task, "--data-dir", glue, "--out-dir", tmp_path]
    found = {}
    for method in LEVEL:
        if check_name(task).kind not in (module_of(method).Args.KINDS or [check_name(task).kind]):
            continue
        ran(method, *argv, *FULL.get(method, "").split(), "--variant", "finetune,kd")
        for variant in ("finetune", "kd"):
            (folder,) = (tmp_path / method / task).glob(f"{variant}*/*/seed3")
            record = results.load(folder / "result.json")
            metrics = record["metrics"]["dev"]
            found[method, variant] = [*curves(folder)["."], *metrics.values(), record["student"]["parameters"]]
    for (method, variant), values in found.items():
        assert len(values) >= 12
        assert values == pytest.approx(found["mc3kd", variant], rel=1e-5, abs=2e-6), f"{method} {variant}"
    assert found["mc3kd", "kd"][0] != pytest.approx(found["mc3kd", "finetune"][0], rel=1e-3)


# --- a file that is dropped in -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_dropped_into_methods_passes_everything_unaided(tmp_path: Path) -> None:
    """In a copy of the repository in which nothing else has changed."""
    kept = shutil.ignore_patterns(".git", ".*_cache", "__pycache__", "runs")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=kept)
    source = (ROOT / "bench" / "baselines" / "minilm.py").read_text(encoding="utf-8")
    for here, there in {"bench/baselines/minilm": "methods/dropped", '"minilm"': '"dropped"', "[2]": "[1]"}.items():
        source = source.replace(here, there)
    (tmp_path / "copy" / "methods" / "dropped.py").write_text(source, encoding="utf-8")
    files = [f"tests/test_{name}.py" for name in ("scripts", "args", "own_data", "bench", "docs", "safety", "refusals")]
    which = "dropped or every_script_is_found or one_name or lower_end or matrices or importing or tour"
    which = f"({which}) and not unaided"
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-k", which, *files]
    done = subprocess.run(command, cwd=tmp_path / "copy", env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    ran = re.search(r"(\d+) passed", done.stdout)
    assert int(ran[1]) > 30


@pytest.mark.slow
def test_uv_runs_a_script_without_a_virtual_environment(tmp_path: Path) -> None:
    """Of a copy of the repository, by the header of the script; uv is PyPI's. A folder of wheels that pip knows of, uv
    is told of, too: PyPI's torch for Linux brings five gigabytes of CUDA."""
    shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "__pycache__", "runs"))
    uv = tmp_path / "uv"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", uv, "uv"], check=True)
    command = [uv / "bin" / "uv", "run", "--no-progress", "methods/mc3kd.py", "--budget", "smoke"]
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment["UV_FIND_LINKS"] = ENVIRONMENT.get("PIP_FIND_LINKS", "")
    done = subprocess.run(command, cwd=tmp_path / "copy", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"^mc3kd .* \d+\.\d", done.stdout, re.MULTILINE)


# --- minutes long --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_arguments(method: str, tmp_path: Path) -> None:
    """As a newcomer types it: all rows at one budget."""
    command = [sys.executable, str(SCRIPTS[method]), "--out-dir", str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    by_name = {record["variant"]: record["primary"]["value"] for record in found}
    plain = max(value for name, value in by_name.items() if "finetune" in name)
    if method in ("mc3kd", "xtc"):  # of the others no such claim is made at their default budgets
        assert max(by_name.values()) > plain
    assert len({record["ledger"]["student_examples"] for record in found}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_nothing_grows(method: str, easy: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and open files, from step 500 to step 2,000, checkpoints included."""
    import psutil

    process, seen = psutil.Process(), list[tuple[int, int]]()
    real: Callable[..., None] = train.Loop._after_step

    def after(self: train.Loop, at: int) -> None:
        real(self, at)
        seen.append((process.memory_info().rss, process.num_fds()))

    monkeypatch.setattr(train.Loop, "_after_step", after)
    save_every(1, monkeypatch)
    words = [*words_of(method, easy), *f"--batch-size 8 --budget 16000 --out-dir {tmp_path}".split()]
    first = words[1].split(",")[0] if method in CASES else "kd"
    ran(method, *easy, *words, "--variant", first)
    for early, late in zip(
        map(max, zip(*seen[500:600], strict=True)), map(max, zip(*seen[-100:], strict=True)), strict=True
    ):
        assert late <= 1.05 * early  # a batch's graph, kept at each step, is more
