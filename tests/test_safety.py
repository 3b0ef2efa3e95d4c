"""Nothing that is loaded is run; full disks, missing files, odd clocks: the right result, or one line."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import resource
import shutil
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, bert_config, call, ran, records, save_every, stopped, word_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from transformers import BertForSequenceClassification

from common import __version__, data, models, results, train
from common.args import BadInput

# --- the sources ---------------------------------------------------------------------------------------------

FOLDERS = ("common", "methods", "bench", "docs", "pocket", "distil_papers")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "tarfile", "zipfile", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "os.system", "os.popen", "np.load"}


def unsafe(tree: ast.Module) -> Iterator[str]:
    """What may run something that is loaded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"line {node.lineno}: imports {name}" for name in names if name.split(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        name, said = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
        if name in CALLS or said.get("shell") == "True" or said.get("allow_pickle") == "True":
            yield f"line {node.lineno}: {name}"
        if said.get("trust_remote_code", "False") != "False":
            yield f"line {node.lineno}: {name} trusts remote code"
        owner, _, method = name.rpartition(".")
        if method == "from_pretrained" and owner != "nn.Embedding":
            if owner.startswith(("Auto", "Kind")) and "trust_remote_code" not in said:
                yield f"line {node.lineno}: {name} does not say trust_remote_code=False"
            if (
                not owner.endswith(("Config", "Tokenizer"))
                and said.get("use_safetensors") != "True"
                and "state_dict" not in said
            ):
                yield f"line {node.lineno}: {name} does not say use_safetensors=True"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_is_loaded_is_run(path: Path) -> None:
    assert not list(unsafe(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from pickle import loads", "torch.load(path)", "eval(text)", "subprocess.run(text, shell=True)",
     "AutoConfig.from_pretrained(name)", "AutoModel.from_pretrained(name, trust_remote_code=False)",
     "AutoModel.from_pretrained(name, use_safetensors=True, trust_remote_code=True)",
     "BertModel.from_pretrained(name)"],
)  # fmt: skip
def test_what_would_be_unsafe_is_seen(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def test_every_package_has_one_version() -> None:
    """What is installed, by us or through others, is what constraints.txt says: a year from now too."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    asked = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] not in "#-"]
    seen: set[str] = set()
    while asked:
        asked_for = asked.pop()
        package = Requirement(asked_for)
        if asked_for in seen or package.name.startswith(("cuda", "nvidia", "triton")):  # which torch itself names
            continue
        seen.add(asked_for)
        name, installed = canonicalize_name(package.name), distribution(package.name)
        assert versions[name] == installed.version.partition("+")[0], name  # 2.13.0+cpu is a build of 2.13.0
        for need in map(Requirement, installed.requires or []):
            if not need.marker or any(need.marker.evaluate({"extra": extra}) for extra in ["", *package.extras]):
                asked.append(str(need).partition(";")[0])


def test_project_and_scripts_name_the_same_packages() -> None:
    """requirements.txt without its tests, pyproject.toml, and the headers for `uv run`, in the versions of all."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    lines = (ROOT / "requirements.txt").read_text().split("# tests and checks")[0].splitlines()
    used = {line for line in lines if line and line[0] not in "#-"}
    names = [Requirement(line).name for line in used]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["dependencies"]) == used
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    for method in ("cka", "cmow", "efficient_attention", "mc3kd", "xtc"):
        header = re.match(r"# /// script\n(.*?)# ///\n", (ROOT / "methods" / f"{method}.py").read_text(), re.DOTALL)
        assert header is not None, method
        block = tomllib.loads(re.sub(r"^# ?", "", header[1], flags=re.MULTILINE))
        assert set(block["dependencies"]) == {f"{name}=={versions[name]}" for name in names}, method
        assert block["requires-python"] == project["requires-python"], method


def test_it_is_one_package() -> None:
    """Every folder of modules is installed, under one name."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    places = asked["package-dir"] | {"distil_papers": "distil_papers"}
    folders = {".".join(path.parent.relative_to(ROOT).parts)
               for top in places.values() for path in (ROOT / top).rglob("*.py")}  # fmt: skip
    assert {name.removeprefix("distil_papers.") for name in asked["packages"]} == folders


# --- models --------------------------------------------------------------------------------------------------


def test_a_pickle_is_not_read_and_a_models_own_code_is_not_run(tmp_path: Path) -> None:
    models.save(BertForSequenceClassification(bert_config()), word_tokenizer(), tmp_path, "")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\nclass Own: pass\n")
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    (tmp_path / "config.json").write_text(json.dumps(config | own))
    with pytest.raises(BadInput, match=f"--teacher {tmp_path}"):
        models.load_config(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config))

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(tmp_path / "executed"), "w")

    (tmp_path / "model.safetensors").unlink()
    torch.save({"x": Harmful()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=f"--teacher {tmp_path}"):
        models.load_model(str(tmp_path), models.load_config(str(tmp_path)), "classification")
    assert not (tmp_path / "executed").exists()


# --- any bytes -----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["sentence", "label", "0", "1", "", " ", "nan", "-1", '"', "\r", "\0", "\ufeff", "film B-PER", "O"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6,
)  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries({"sentence": JSON, "label": JSON}) | JSON, max_size=4)
TEXT = st.lists(st.lists(WORDS | st.text(max_size=8), max_size=4).map("\t".join), max_size=5).map("\n".join)
HEADED = TEXT.map("sentence\tlabel\nx\t0\ny\t1\n".__add__)
FILES: dict[str, tuple[str, str, Any]] = {
    "tsv": ("sst2", "train.tsv", HEADED | TEXT),
    "csv": ("sst2", "train.csv", HEADED.map(lambda text: text.replace("\t", ","))),
    "jsonl": ("sst2", "train.jsonl", ROWS.map(lambda rows: "\n".join(map(json.dumps, rows)))),
    "questions": ("squad", "train.json", JSON.map(lambda value: json.dumps({"data": [{"paragraphs": [value]}]}))),
    "tags": ("conll2003", "train.txt", TEXT.map(lambda text: text.replace("\t", " "))),
    "bytes": ("sst2", "train.parquet", st.binary(max_size=60)),
}


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=30, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(draws=st.data())
def test_any_content_is_read_or_refused(kind: str, draws: st.DataObject, tmp_path: Path) -> None:
    """What is read is what the task says, and can be tokenised."""
    task, name, contents = FILES[kind]
    content = draws.draw(contents)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    for split in ("dev", "test"):
        (tmp_path / f"{split}{Path(name).suffix}").write_bytes((tmp_path / name).read_bytes())
    with contextlib.suppress(BadInput):
        train_split = data.load(task, str(tmp_path)).splits["train"]
        assert len(train_split.texts) == len(train_split.labels) == len(train_split.ids) > 0
        data.encode(word_tokenizer(), train_split, data.load(task, str(tmp_path)).task, 16)


# --- disks, files that vanish, clocks ------------------------------------------------------------------------


def weights(out: Path) -> str:
    (record,) = records(out)
    return models.file_digest(results.folder_of(out, record)) + str(record["metrics"])


@pytest.mark.forks
def test_a_full_disk(small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may be larger than 40 kB: no checkpoint, and at last not the student itself."""
    save_every(0, monkeypatch)
    if (pid := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        code, _, err = call("mc3kd", *small, "--out-dir", tmp_path / "out")
        (tmp_path / "err").write_text(err.splitlines()[-1])
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert (tmp_path / "err").read_text().startswith("error: ")
    assert "the same command goes on" in (tmp_path / "err").read_text()
    assert not [path for path in (tmp_path / "out" / "mc3kd").rglob("*") if ".partial" in path.name]
    ran("mc3kd", *small, "--out-dir", tmp_path / "out")
    ran("mc3kd", *small, "--out-dir", tmp_path / "whole")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_what_vanishes_while_it_runs_and_a_clock_that_is_set_back(
    small: list[str], glue: Path, expert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends as if nothing had happened: the data, the teacher, its checkpoint, its folder; an hour each look."""
    shutil.copytree(glue / "SST-2", tmp_path / "data" / "SST-2")
    shutil.copytree(expert, tmp_path / "expert")
    save_every(0, monkeypatch)
    argv = [*small, "--budget", 320, "--data-dir", tmp_path / "data", "--teacher", tmp_path / "expert"]
    ran("mc3kd", *argv, "--out-dir", tmp_path / "whole")
    real, now, out = train.Loop.minimise, [time.time()], tmp_path / "out"

    def minimise(self: train.Loop, loss: torch.Tensor) -> None:
        real(self, loss)
        if self.step == 3:
            self.path.unlink()
        if self.step == 6:
            for folder in (tmp_path / "data", tmp_path / "expert", self.path.parent):
                shutil.rmtree(folder)

    def earlier() -> float:
        now[0] -= 3600
        return now[0]

    monkeypatch.setattr(train.Loop, "minimise", minimise)
    monkeypatch.setattr(time, "time", earlier)
    ran("mc3kd", *argv, "--out-dir", out)
    assert weights(out) == weights(tmp_path / "whole")


@pytest.mark.parametrize("place", ["mc3kd", "mc3kd/sst2/mc3kd", "mc3kd/sst2/mc3kd/*/seed0"])
def test_a_users_file_where_a_folder_is_needed(place: str, small: list[str], tmp_path: Path) -> None:
    ran("mc3kd", *small, "--out-dir", tmp_path / "out")
    path = next((tmp_path / "out").glob(place))
    shutil.rmtree(path)
    path.write_text("a user's")
    assert str(path) in stopped("mc3kd", *small, "--out-dir", tmp_path / "out")
    assert path.read_text() == "a user's"


def test_too_little_memory_is_one_line(small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 3 GiB\nmore")

    monkeypatch.setattr(train.Loop, "minimise", exhausted)
    said = stopped("mc3kd", *small, "--out-dir", tmp_path / "out")
    assert said.startswith("error: out of memory (CUDA out of memory. Tried to allocate 3 GiB); a smaller")
