"""The script from end to end: the table, the files, the same numbers again, kills and resumes, refusals."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import bert_config, error_line, script, start
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

from common import data, models, results
from methods.mc3kd import VARIANTS

Inside = Callable[..., tuple[int, str, str]]
BUDGET = ("--student", "2x16", "--budget", "4800", "--lr", "5e-3", "--max-length", "16", "--selection-examples", "64")
SMALL = ("--student", "2x16", "--budget", "64", "--max-length", "16", "--selection-examples", "32")


def cell(out: Path, variant: str = "mc3kd", task: str = "sst2", seed: int = 0) -> Path:
    return out / "mc3kd" / task / variant / f"seed{seed}"


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def outcome(folder: Path) -> dict[str, Any]:
    """What two runs with one seed must share: all but clocks, places and times."""
    record = results.load(folder / "result.json")
    for name in ("command", "finished", "environment"):
        del record[name]
    for part in (record["teacher"], record["student"]):
        del part["speed"]
    for name in ("seconds", "shared_seconds", "peak_memory_bytes"):
        del record["ledger"][name]
    return record | {"weights": digest(folder)}


@pytest.fixture(scope="session")
def common_arguments(glue: Path, expert: Path) -> list[str]:
    return ["--task", "sst2", "--data-dir", str(glue), "--teacher", str(expert), *BUDGET]


@pytest.fixture(scope="session")
def reference(
    common_arguments: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run of the default variants that nothing disturbed."""
    out = tmp_path_factory.mktemp("reference")
    return out, script(*common_arguments, "--out-dir", out)


def test_the_table_has_three_rows_and_the_files_are_there(
    reference: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = reference
    assert done.returncode == 0, done.stderr
    rows = done.stdout.split("---\n")[1].splitlines()[:3]
    assert [row.split()[0] for row in rows] == ["teacher", "finetune", "mc3kd"]
    assert "Traceback" not in done.stderr
    assert "\r" not in done.stderr  # no progress bars where there is no terminal
    for variant in ("finetune", "mc3kd"):
        folder = cell(out, variant)
        assert f"saved: {folder}" in done.stdout
        names = {path.name for path in folder.iterdir()}
        assert {"result.json", "args.json", "log.jsonl", "model.safetensors", "config.json", "README.md"} <= names
        assert not [name for name in names if "checkpoint" in name or "partial" in name]
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(20, 151, 20))
        record = results.load(folder / "result.json")
        assert record["budget"] == {"name": "4800", "kind": "examples", "amount": 4800, "comparable": True}
        assert record["ledger"]["steps"] == 150
        assert record["ledger"]["student_examples"] == 4800
        assert record["student"]["bytes"] == (folder / "model.safetensors").stat().st_size
    assert results.load(cell(out, "finetune") / "result.json")["ledger"]["teacher_examples"] == 0
    assert results.load(cell(out) / "result.json")["ledger"]["teacher_examples"] == 1500 + 64  # each once


def test_teacher_and_students_reach_their_floor(reference: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Chance is 0.5; whoever reads the word that carries the mood is right."""
    for variant in ("finetune", "mc3kd"):
        record = results.load(cell(reference[0], variant) / "result.json")
        assert record["teacher"]["metrics"]["dev"]["accuracy"] > 0.95
        assert record["metrics"]["dev"]["accuracy"] > 0.8


def test_a_finished_run_is_not_run_again(
    reference: tuple[Path, subprocess.CompletedProcess[str]], common_arguments: list[str], inside: Inside
) -> None:
    out, first = reference
    before = {path: path.read_bytes() for path in cell(out).parent.parent.rglob("*") if path.is_file()}
    code, text, _ = inside(*common_arguments, "--out-dir", out)
    assert code == 0
    assert text.count("finished before") == 2
    assert text[text.index("task:") :] == first.stdout[first.stdout.index("task:") :]
    assert {path: path.read_bytes() for path in cell(out).parent.parent.rglob("*") if path.is_file()} == before


def test_other_settings_at_the_same_place_are_refused(
    reference: tuple[Path, subprocess.CompletedProcess[str]], common_arguments: list[str], inside: Inside
) -> None:
    out, _ = reference
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for changes in (["--lr", "1e-3"], ["--temperature", "7", "--variant", "mc3kd"], ["--budget", "640", "--resume"]):
        code, _, err = inside(*common_arguments, *changes, "--out-dir", out)
        assert code == 2
        assert "other settings" in error_line(err)
        assert "--force" in err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_same_seed_in_another_process_and_another_seed(
    reference: tuple[Path, subprocess.CompletedProcess[str]],
    common_arguments: list[str],
    tmp_path: Path,
    inside: Inside,
) -> None:
    """Seed 0 is a seed: typed or not, in this process or another, it is the same run; seed 1 is another."""
    assert inside(*common_arguments, "--out-dir", tmp_path, "--seed", "0")[0] == 0
    for variant in ("finetune", "mc3kd"):
        assert outcome(cell(tmp_path, variant)) == outcome(cell(reference[0], variant))
    assert inside(*common_arguments, "--out-dir", tmp_path, "--seed", "1", "--variant", "mc3kd")[0] == 0
    assert digest(cell(tmp_path, seed=1)) != digest(cell(tmp_path))


# --- stopped and continued ---------------------------------------------------------------------------------


def steps_saved(checkpoint: Path) -> int:
    try:
        with safe_open(checkpoint, "pt") as file:
            return json.loads(file.metadata()["state"])["ledger"]["steps"]
    except (OSError, RuntimeError, SafetensorError):  # not there yet, or replaced while it was opened
        return 0


def stop_at(step: int, number: signal.Signals, out: Path, *argv: str, variant: str = "mc3kd") -> tuple[int, str]:
    """Start the script, send the signal once `step` steps are saved; (exit code, stderr)."""
    process = start(*argv, "--variant", variant, "--out-dir", out, "--save-every", "0")
    checkpoint = cell(out, variant) / "checkpoint.safetensors"
    while process.poll() is None and steps_saved(checkpoint) < step:
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate()
    return process.returncode, err


def test_a_killed_run_is_refused_then_continued_to_the_same_bits(
    reference: tuple[Path, subprocess.CompletedProcess[str]],
    common_arguments: list[str],
    tmp_path: Path,
    inside: Inside,
) -> None:
    argv = [*common_arguments, "--variant", "mc3kd"]
    assert stop_at(30, signal.SIGKILL, tmp_path, *common_arguments)[0] == -signal.SIGKILL
    checkpoint = cell(tmp_path) / "checkpoint.safetensors"
    assert 30 <= steps_saved(checkpoint) < 150
    before = checkpoint.read_bytes()
    settings = (cell(tmp_path) / "args.json").read_bytes()
    with (cell(tmp_path) / "log.jsonl").open("a") as log:
        log.write('{"step": 140, "loss": 1}\n{"ste')  # written after the checkpoint, and cut by the kill

    code, _, err = inside(*argv, "--out-dir", tmp_path)
    assert code == 2
    assert "unfinished" in error_line(err)
    assert "--resume" in err
    code, _, err = inside(*argv, "--out-dir", tmp_path, "--resume", "--lr", "1e-4")
    assert code == 2
    assert "other settings" in error_line(err)
    assert (cell(tmp_path) / "args.json").read_bytes() == settings
    damaged = bytearray(before)
    damaged[-100] ^= 1
    checkpoint.write_bytes(damaged)
    code, _, err = inside(*argv, "--out-dir", tmp_path, "--resume")
    assert code == 2
    assert "damaged checkpoint" in error_line(err)
    assert str(checkpoint) in err
    assert checkpoint.read_bytes() == damaged
    checkpoint.write_bytes(before)

    done = script(*argv, "--out-dir", tmp_path, "--resume")
    assert done.returncode == 0, done.stderr
    assert "continued at step" in done.stdout
    assert outcome(cell(tmp_path)) == outcome(cell(reference[0]))
    logs = [(cell(out) / "log.jsonl").read_text() for out in (tmp_path, reference[0])]
    assert logs[0] == logs[1]
    assert not checkpoint.exists()


def test_sigterm_and_sigint_save_and_the_run_goes_on(
    reference: tuple[Path, subprocess.CompletedProcess[str]],
    common_arguments: list[str],
    tmp_path: Path,
    inside: Inside,
) -> None:
    argv = [*common_arguments, "--variant", "mc3kd"]
    for step, number, extra in ((10, signal.SIGTERM, []), (60, signal.SIGINT, ["--resume"])):
        code, err = stop_at(step, number, tmp_path, *argv, *extra)
        assert code == 128 + number
        assert error_line(err) == f"stopped by {number.name}; the same command with --resume goes on"
    assert 60 <= steps_saved(cell(tmp_path) / "checkpoint.safetensors") < 150
    assert inside(*argv, "--out-dir", tmp_path, "--resume")[0] == 0
    assert outcome(cell(tmp_path)) == outcome(cell(reference[0]))
    steps = [json.loads(line)["step"] for line in (cell(tmp_path) / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(20, 151, 20))


def test_force_starts_again(common_arguments: list[str], tmp_path: Path, inside: Inside) -> None:
    argv = [*common_arguments, *SMALL, "--variant", "finetune", "--out-dir", str(tmp_path)]
    assert inside(*argv)[0] == 0
    first = digest(cell(tmp_path, "finetune"))
    (cell(tmp_path, "finetune") / "result.json").write_text("{")
    code, _, err = inside(*argv)
    assert code == 2
    assert "damaged result" in error_line(err)
    assert inside(*argv, "--force", "--lr", "1e-2")[0] == 0
    assert digest(cell(tmp_path, "finetune")) != first


# --- teachers ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tuned(glue: Path, backbone: Path) -> list[str]:
    """A pre-trained teacher that has to be fine-tuned first, briefly, and is cached."""
    argv = ["--task", "sst2", "--data-dir", str(glue), "--teacher", str(backbone), "--limit", "256"]
    return [*argv, "--teacher-epochs", "1", *SMALL, "--student", "2x32"]


def test_two_runs_at_once_share_a_cache_that_is_rebuilt_when_damaged(
    tuned: list[str], tmp_path: Path, inside: Inside
) -> None:
    processes = [start(*tuned, "--out-dir", tmp_path, "--seed", str(seed)) for seed in (0, 1)]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    first, second = (results.load(cell(tmp_path, seed=seed) / "result.json") for seed in (0, 1))
    assert first["teacher"]["signature"] == second["teacher"]["signature"]
    assert first["teacher"]["metrics"] == second["teacher"]["metrics"]
    assert first["student"]["init"] == "first 2 layers of backbone"
    folders = [path for path in (tmp_path / "cache" / "teachers").iterdir() if path.is_dir()]
    assert len(folders) == 1

    weights = folders[0] / "model.safetensors"
    whole = weights.read_bytes()
    for damage in (whole[:1000], bytes([*whole[:-1], whole[-1] ^ 1])):
        weights.write_bytes(damage)
        shutil.rmtree(tmp_path / "mc3kd")
        code, out, _ = inside(*tuned, "--out-dir", tmp_path, "--variant", "kd")
        assert code == 0
        assert f"{folders[0]}: damaged teacher" in out
        assert weights.read_bytes() == whole  # made again, to the same bits
    code, out, _ = inside(*tuned, "--out-dir", tmp_path, "--variant", "kd")
    assert "damaged" not in out


def test_a_damaged_training_of_the_teacher_is_named_and_started_again(
    tuned: list[str], tmp_path: Path, inside: Inside
) -> None:
    argv = [*tuned, "--variant", "kd"]
    assert inside(*argv, "--out-dir", tmp_path)[0] == 0
    folder = next(path for path in (tmp_path / "cache" / "teachers").iterdir() if path.is_dir())
    whole = digest(folder)
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "mc3kd")
    checkpoint = folder.with_suffix(".training") / "checkpoint.safetensors"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"nothing that could be read")
    code, out, _ = inside(*argv, "--out-dir", tmp_path)
    assert code == 0
    assert str(checkpoint) in out
    assert digest(folder) == whole


# --- other tasks and variants ------------------------------------------------------------------------------


def test_every_variant_runs(common_arguments: list[str], backbone: Path, tmp_path: Path, inside: Inside) -> None:
    argv = [*common_arguments, *SMALL, "--student", "3x32", "--variant", ",".join(VARIANTS)]
    argv += ["--pool", str(backbone), "--teacher-epochs", "0.1"]
    code, out, err = inside(*argv, "--out-dir", tmp_path)
    assert code == 0, err
    records = {name: results.load(cell(tmp_path, name) / "result.json") for name in VARIANTS}
    # three teacher layers for three student layers: however they are chosen they are the same, so PKD's three
    # variants end alike, and CCC's two
    assert len({digest(cell(tmp_path, name)) for name in VARIANTS}) == 6
    assert len({record["ledger"]["student_tokens"] for record in records.values()}) == 1
    assert len({record["comparable"] for record in records.values()}) == 1
    assert len({record["signature"] for record in records.values()}) == len(VARIANTS)
    assert out.count("teacher expert") + out.count("teacher /") == 1
    assert sum(records["dynakd"]["analysis"]["teachers"].values()) == pytest.approx(1)
    assert records["takd"]["analysis"]["teachers"] == {"assistant 3x32": 1.0}
    assert {record["ledger"]["student_examples"] for record in records.values()} == {64}


@pytest.mark.parametrize("variant", ["takd", "dynakd"])
def test_variants_with_a_state_of_their_own_go_on_after_a_kill(
    variant: str, common_arguments: list[str], backbone: Path, tmp_path: Path, inside: Inside
) -> None:
    """TAKD, killed in its second stage, takes the assistant from the first; DynaKD's choice is where it was."""
    argv = [*common_arguments, "--budget", "1280", "--pool", str(backbone), "--teacher-epochs", "0.1"]
    kept, killed = tmp_path / "kept", tmp_path / "killed"
    assert inside(*argv, "--variant", variant, "--out-dir", kept)[0] == 0
    assert stop_at(10, signal.SIGKILL, killed, *argv, variant=variant)[0] == -signal.SIGKILL
    assert inside(*argv, "--variant", variant, "--out-dir", killed)[0] == 2
    code, out, err = inside(*argv, "--variant", variant, "--out-dir", killed, "--resume")
    assert code == 0, err
    assert "continued at step" in out
    assert outcome(cell(killed, variant)) == outcome(cell(kept, variant))
    logs = [(cell(out, variant) / "log.jsonl").read_text() for out in (kept, killed)]
    assert logs[0] == logs[1]
    assert not list(killed.rglob("mc3kd/**/checkpoint.safetensors"))
    assert outcome(cell(kept, variant))["ledger"]["steps"] == 40


@pytest.mark.parametrize("changes", [["--precision", "bf16"], ["--tokens", "cls", "--correlation", "frobenius"],
                                     ["--budget", "1s"]], ids=" ".join)  # fmt: skip
def test_other_ways_to_run(changes: list[str], common_arguments: list[str], tmp_path: Path, inside: Inside) -> None:
    argv = [*common_arguments, *SMALL, "--variant", "mc3kd", "--out-dir", str(tmp_path)]
    code, _, err = inside(*argv, *changes)
    assert code == 0, err
    record = results.load(cell(tmp_path) / "result.json")
    if "1s" in changes:
        assert record["budget"]["kind"] == "seconds"
        assert record["ledger"]["seconds"] >= 1


def test_local_rte_end_to_end(glue: Path, tmp_path: Path) -> None:
    """The official TSV layout, class names spelt out, and a teacher that knows them in another order."""
    from conftest import tiny_bert, word_tokenizer

    folder = tmp_path / "teacher"
    names = {0: "not_entailment", 1: "entailment"}
    model = tiny_bert(3, 32, id2label=names, label2id={v: k for k, v in names.items()})
    models.save(model, word_tokenizer(), folder, "")
    argv = ["--task", "rte", "--data-dir", glue, "--teacher", folder, *SMALL, "--max-length", "32"]
    done = script(*argv, "--out-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    record = results.load(cell(tmp_path, task="rte") / "result.json")
    assert record["source"] == "local"
    assert record["origin"] == "RTE: train.tsv, dev.tsv"
    config = json.loads((cell(tmp_path, task="rte") / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "not_entailment"}


def test_regression_end_to_end(glue: Path, tmp_path: Path, inside: Inside) -> None:
    from conftest import tiny_bert, word_tokenizer

    folder = tmp_path / "teacher"
    models.save(tiny_bert(3, 32, num_labels=1), word_tokenizer(), folder, "")
    code, _, err = inside("--task", "stsb", "--data-dir", glue, "--teacher", folder, *SMALL, "--out-dir", tmp_path)
    assert code == 0, err
    record = results.load(cell(tmp_path, task="stsb") / "result.json")
    assert set(record["metrics"]["dev"]) == {"pearson", "spearman"}
    assert not (tmp_path / "cache").exists()  # the teacher had its head: nothing was fine-tuned


def test_the_default_task_end_to_end(tmp_path: Path) -> None:
    """The pocket task and `--budget smoke`, with a teacher that speaks the suite's vocabulary."""
    tokenizer = models.pocket_tokenizer()
    folder = tmp_path / "teacher"
    torch.manual_seed(0)
    config = bert_config(3, 32, len(tokenizer), max_position_embeddings=128, **models.task_settings(data.TASKS["sst2"]))
    models.save(BertForSequenceClassification(config), tokenizer, folder, "")
    done = script("--teacher", folder, "--budget", "smoke", "--out-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.split("---\n")[1].splitlines()[:3]] == [
        "teacher",
        "finetune",
        "mc3kd",
    ]
    record = results.load(cell(tmp_path, task="pocket/sst2") / "result.json")
    assert record["source"] == "pocket"
    assert record["ledger"]["student_examples"] == 640
    assert load_file(cell(tmp_path, task="pocket/sst2") / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [["--precision", "bf16"], ["--compile"]], ids=" ".join)
def test_the_score_moves_less_than_between_seeds(
    changes: list[str], common_arguments: list[str], tmp_path: Path, inside: Inside
) -> None:
    """The mean over five seeds, of students that are half-way: by less than the spread of the seeds."""
    scores: dict[str, list[float]] = {"plain": [], "changed": []}
    for seed in range(5):
        for how, more in (("plain", []), ("changed", changes)):
            budget = ("--budget", "960", "--lr", "2e-3", "--variant", "kd", "--seed", seed)
            out = tmp_path / how
            code, _, err = inside(*common_arguments, *budget, *more, "--out-dir", out)
            assert code == 0, err
            record = results.load(cell(out, "kd", seed=seed) / "result.json")
            scores[how].append(record["primary"]["value"])
    spread = max(scores["plain"]) - min(scores["plain"])
    moved = abs(sum(scores["plain"]) - sum(scores["changed"])) / 5
    assert 0.6 < max(scores["plain"]) < 1.0
    assert moved < spread
