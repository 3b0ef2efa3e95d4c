"""What `pip install .` makes: one name, a command, and students that load beside a company's `common` and `bench`."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, ROOT, models, sentences, tiny_bert, word_tokenizer

MATRIX = """
tasks = ["t.csv"]
seeds = [0, 1]
budget = "64"
teacher = "teacher"
max_length = 16
[[rows]]
method = "mc3kd"
variant = "kd"
student = "2x32"
[[rows]]
method = "my/loss.py"
variant = "kd"
student = "2x32"
"""
OWN = "import common, bench; assert common.MINE and bench.MINE; import sys; assert 'methods' not in sys.modules; "


def test_in_a_copy_of_the_repository_both_names_are_one_module() -> None:
    for name in ("common.layers.packed", "methods.cmow", "bench.matrix", "pocket"):
        module = importlib.import_module(f"distil_papers.{name}")
        assert module is importlib.import_module(name)
        assert module.__spec__ is not None
        assert module.__spec__.name == module.__name__ == name


@pytest.mark.slow
def test_it_takes_no_names(tmp_path: Path) -> None:
    here, source, python = tmp_path / "here", tmp_path / "source", tmp_path / "venv" / "bin" / "python"
    for name in ("common", "methods", "pocket", "bench", "distil_papers"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.gz", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    (here / "bench").mkdir(parents=True)
    for name in ("common.py", "bench/__init__.py"):
        (here / name).write_text("MINE = True\n")

    def run(*words: object, cwd: Path = here) -> str:
        environment = ENVIRONMENT | {"PYTHONPATH": str(here), "PATH": f"{python.parent}:{os.environ['PATH']}"}
        done = subprocess.run([str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    packages = next((tmp_path / "venv").glob("lib/*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    assert {path.name for path in packages.iterdir() if "distil" not in path.name} == {"libraries.pth"}

    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    models.save(tiny_bert(3, 32, **names), word_tokenizer(), here / "teacher", "")
    lines = [f"{text} {i},{('bad', 'good')[i % 2]}\n" for i, text in enumerate(sentences(120))]
    (here / "t.csv").write_text("text,label\n" + "".join(lines))
    assert "mc3kd" in run("distil-papers", "--help")
    usual = ["--task", "t.csv", "--teacher", "teacher", "--max-length", 16, "--budget", 128, "--student", "2x32"]
    for script, *more in (
        ("mc3kd", "--variant", "kd"),
        ("cmow", "--variant", "kd", "--student", "hybrid-4-16"),
        ("xtc", "--variant", "kd", "--bits", 1),
        ("efficient_attention", "--variant", "convert", "--attention", "lsg", "--budget", 640),
    ):
        assert "saved: runs/" in run("distil-papers", script, *usual, *more)
        folder = next((here / "runs" / script).rglob("README.md")).parent
        (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
        run(python, "-c", OWN + "\n" + code.replace('"text"', '"the film was good"'), cwd=folder)
        assert run("distil-papers", "predict", folder, "t.csv").count("\n") == 121
    words = ["arena", "t.csv", "--teacher", "teacher", "--student", "2x32", "--rows", "linear,kd", "--budget", 128]
    assert "has the highest score" in run("distil-papers", *words, "--seeds", "0", "--max-length", 16)
    (here / "my").mkdir()
    script = (packages / "distil_papers" / "methods" / "mc3kd.py").read_text(encoding="utf-8")
    (here / "my" / "loss.py").write_text(script, encoding="utf-8")
    (here / "mine.toml").write_text(MATRIX)
    assert "all done" in run("distil-papers", "run", "mine.toml", "--jobs", 2)
    run("distil-papers", "report", "runs/mine")
    assert (here / "runs" / "report" / "index.html").is_file()
    assert {path.name for path in here.iterdir()} == {
        "common.py",
        "bench",
        "teacher",
        "t.csv",
        "my",
        "mine.toml",
        "runs",
    }
