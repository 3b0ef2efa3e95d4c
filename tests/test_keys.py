"""Nothing that an older version of the code has trained is used: stages, teachers, finished runs."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import ran

from bench.matrix import Job
from common import data, losses, models, parallel, results, train, tuning
from common.args import CommonArgs, read
from common.kinds import KINDS, MODULES
from common.kinds.own import OwnScores
from common.layers import scores
from pocket.curriculum import ShortFirst

# The sources that decide what comes out of a training, and a digest of their code at each version. Where it differs and
# no number does, as where a kind is added, the digest is replaced; where numbers change, results.TRAINING_VERSION goes
# up and has a new row.
SOURCES: list[Any] = [train.Loop, train.split_batch, train.Stage, parallel, losses, tuning.fine_tune, data.Batches]
SOURCES += [ShortFirst, data.collate, *dict.fromkeys(type(KINDS[name]).predictions for name in MODULES)]
SOURCES += [OwnScores.predictions, OwnScores.fit, models.scale_head, scores]
DIGESTS = {1: "7e5b4ad6f251"}


def code(source: Any) -> str:
    """What of a source runs: no docstring, no comment, no layout."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def test_the_version_belongs_to_the_sources() -> None:
    found = hashlib.sha256("".join(map(code, SOURCES)).encode()).hexdigest()[:12]
    version = results.TRAINING_VERSION
    assert DIGESTS[version] == found, f"code that trains has changed: DIGESTS[{version}], or another TRAINING_VERSION"
    assert list(DIGESTS) == list(range(1, version + 1))


def test_what_decides_a_checkpoint_s_outputs_is_in_its_name(tmp_path: Path) -> None:
    """Of a tokenizer in any family's files; a README is not."""
    names = {models.model_name(str(tmp_path), whole=True)}
    for file in ("tokenizer.json", "source.spm", "vocab-src.json", "bpe.codes", "spiece.model", "vocab.txt"):
        (tmp_path / file).write_text(file)
        names.add(models.model_name(str(tmp_path), whole=True))
    (tmp_path / "README.md").write_text("words")
    assert len(names | {models.model_name(str(tmp_path), whole=True)}) == 7


def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "TRAINING_VERSION", results.TRAINING_VERSION + 1)


def other_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an edit of the loop's options would do."""
    monkeypatch.setattr(train.Options, "warmup", 0.3)


@pytest.mark.parametrize("edit", [newer, other_schedule])
def test_after_an_edit_all_is_trained_anew(
    edit: Any, easy: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teacher, a stage before the task and two runs, each of which is otherwise found again."""

    def trained() -> tuple[str, list[str]]:
        words = "--student hybrid-3-9 --init random,general --variant kd --head linear --lr 1e-3 --budget 640"
        out = ran("cmow", *easy, *f"{words} --out-dir {tmp_path} --cache-dir {tmp_path / 'cache'}".split())
        made = [*tmp_path.rglob("result.json"), *tmp_path.glob("cache/*/*/made.json")]
        return out, sorted(str(path.relative_to(tmp_path)) for path in made)

    _, first = trained()
    out, again = trained()
    assert again == first
    assert out.count("finished before") == 2
    edit(monkeypatch)
    out, both = trained()
    assert "finished before" not in out
    for place in ("cache/teachers", "cache/general", "cmow/"):
        old, new = (sum(path.startswith(place) for path in paths) for paths in (first, both))
        assert new == 2 * old > 0, place


@pytest.mark.parametrize(
    ("method", "words", "renewed"),
    [("mc3kd", "--variant kd,mc3kd", "mc3kd"), ("mc3kd", "--variant kd,mc3kd --memory 0.9", "mc3kd"),
     ("cka", "--variant kd,wopt --minibatches 2", "wopt")],
)  # fmt: skip
def test_runs_with_an_earlier_gradient_are_not_found(
    method: str, words: str, renewed: str, easy: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the CCC and of CKA's parts alone: all others are found again, and a matrix asks for them as before."""
    Args = importlib.import_module(f"methods.{method}").Args
    argv = [*easy, *f"{words} --student 2x32 --budget 64 --out-dir {tmp_path}".split()]

    def asked() -> dict[str, str]:
        options = [word for pair in zip(argv[::2], argv[1::2], strict=True) if pair[0] != "--variant" for word in pair]
        rows = {name: read(Args, None, [*options, "--variant", name]) for name in ("kd", renewed)}
        return {name: Job(name, args.task, 3, (f"methods/{method}.py",), args).asked for name, args in rows.items()}

    with monkeypatch.context() as earlier:
        earlier.setattr(Args, "versions", CommonArgs.versions)
        ran(method, *argv)
        before = asked()
    out, after = ran(method, *argv), asked()
    assert out.count("finished before") == 1
    assert after["kd"] == before["kd"]
    assert after[renewed] != before[renewed]
    assert ran(method, *argv).count("finished before") == 2
