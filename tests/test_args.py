"""The command line of every script: ranges, names, paths as users write them; help and mistakes at once."""

from __future__ import annotations

import ast
import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from conftest import ROOT, SCRIPTS, module_of
from conftest import refused as one_line

from common import args, corpus
from common.args import BUDGETS, CommonArgs

METHODS = sorted(SCRIPTS)
ARGS: dict[str, type[CommonArgs]] = {name: module_of(name).Args for name in METHODS}
FIELDS = {(name, f.name): f for name, cls in ARGS.items() for f in dataclasses.fields(cls)}
ONCE = {(name, field): f for (name, field), f in FIELDS.items() if name == METHODS[0] or not hasattr(CommonArgs, field)}


def refused(name: str, **values: Any) -> str:
    return one_line(lambda: ARGS[name](**values).check())


# --- each argument by itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "field"), ONCE, ids="-".join)
def test_a_field_is_what_it_declares(name: str, field: str) -> None:
    """A line of help; at its bounds accepted, one step outside refused; no number that is none."""
    declared = ONCE[name, field]
    rules, kind = declared.metadata, get_type_hints(ARGS[name])[field]
    assert len(declared.metadata["help"]) > 10
    args.check_field(field, declared.default, rules)
    if {int, float} & {kind, *get_args(kind)}:
        step = 1 if int in (kind, *get_args(kind)) else 1e-9
        for end, outside in (("low", -step), ("high", step)):
            if rules[end] is not None:
                args.check_field(field, rules[end], rules)
                assert refused(name, **{field: rules[end] + outside}).startswith(f"--{field.replace('_', '-')} ")
        for end, inside in (("above", step), ("below", -step)):
            if rules[end] is not None:
                args.check_field(field, rules[end] + inside, rules)
                assert refused(name, **{field: rules[end]}).startswith(f"--{field.replace('_', '-')} ")
        for value in (math.nan, math.inf, -math.inf):
            assert refused(name, **{field: value}).startswith(f"--{field.replace('_', '-')} ")
    if rules["names"]:
        args.check_field(field, ",".join(rules["names"]), rules)
        for wrong in ("", ",", "nonsense", f"{next(iter(rules['names']))},nonsense"):
            assert refused(name, **{field: wrong}).startswith(f"--{field.replace('_', '-')} ")


def test_every_number_has_a_lower_end() -> None:
    free = {
        field for (name, field), declared in FIELDS.items()
        if {int, float} & {(kind := get_type_hints(ARGS[name])[field]), *get_args(kind)}
        and not any(declared.metadata[end] is not None for end in ("low", "above"))
    }  # fmt: skip
    assert not free


def test_one_name_has_one_meaning() -> None:
    """Whatever two scripts share is of one type; what all share may have another default and a text of its own."""
    for field in {field for _, field in FIELDS}:
        hints = [get_type_hints(cls)[field] for cls in ARGS.values() if hasattr(cls, field)]
        assert len({hint | None for hint in hints}) <= 1, field  # what may be left out is of its type too
    for name, cls in ARGS.items():
        assert (cls().alpha, cls().temperature) == (0.9, None), name


def test_values_that_are_read() -> None:
    """Budgets, shapes and layers; what is none of them is refused, whichever way it is wrong."""
    for name, count in (*BUDGETS.items(), ("2500", 2500), ("2.5k", 2500), ("25E2", 2500), ("1m", 1_000_000)):
        assert args.parse_budget(name) == ("examples", count)
    assert args.parse_budget("paper") == ("paper", 0)
    assert args.student_shape("3x128") == (3, 128)
    assert args.layer_list("2,4,12") == [2, 4, 12]
    wrong = {
        "budget": ("0", "-1", "600s", "1.5", "1e99", "huge", ""),
        "student": ("", "3", "x128", "3x", "0x128", "3x0", "3x100", "-3x128", "3x128x2", "3.5x128", "3X128"),
        "keep": ("0", "2,2", "4,2", "2,x", "-1", "evenly", "1,,2"),
    }
    for field, texts in wrong.items():
        for text in texts:
            assert f"--{field}" in refused("mc3kd", **{field: text})


def test_what_is_typed_arrives() -> None:
    typed = "--seed 0 --lr 1e-4 --task pocket/rte,pocket/sst2 --variant kd,kd --tune --batch_size 8 --beta 0"
    made = args.parse(ARGS["mc3kd"], None, typed.split())
    assert (made.seed, made.lr, made.batch_size, made.tune, made.beta) == (0, 1e-4, 8, True, 0)  # type: ignore[attr-defined]
    assert (made.tasks, made.variants) == (["pocket/rte", "pocket/sst2"], ["kd"])
    assert args.split_list(" b, a,,b ") == ["b", "a"]
    for cls in ARGS.values():
        assert args.parse(cls, None, []) == cls()


@pytest.mark.parametrize("folder", ["lr=5e-05,bs=32", "epoch=9-step=870", "v1:2", "a, b", "x,y:3/books:4=z"])
def test_what_is_there_as_a_whole_is_a_path(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever commas, colons and equals signs it has: of models, tasks, corpora, alone and among others."""
    monkeypatch.chdir(tmp_path)
    texts = f"{folder}/c.txt"
    for file in (texts, f"{folder}/t.csv", "other/t.csv"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("text,label\n" + "a film,good\nthe plot,bad\n" * 20)
    models = {folder: (folder, None), f"{folder}:2": (folder, 2), "other": ("other", None), "some/m:2": ("some/m", 2)}
    assert args.split_paths(",".join(models)) == list(models)
    assert {name: args.parse_model(name) for name in models} == models
    made = ARGS["mc3kd"](teacher=f"{folder}:2", init=folder, task=f"other/t.csv, {folder}/t.csv, pocket/rte")
    made.check()
    assert made.tasks == ["other/t.csv", f"{folder}/t.csv", "pocket/rte"]
    assert corpus.corpora(f"{texts},task") == [texts, "task"]


# --- help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_arguments_are_read_before_the_slow_imports(method: str) -> None:
    """Up to `parse` a script imports the standard library and `common.args`, which imports no torch."""
    for node in ast.parse(SCRIPTS[method].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):
            break
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert all(name == "common.args" or str(name).split(".")[0] in sys.stdlib_module_names for name in names)
    assert "parse(Args" in ast.unparse(node)


def test_help_and_mistakes_do_not_wait_for_heavy_libraries(tmp_path: Path) -> None:
    """Of which some that raise on import stand first on the path: whoever imports one fails."""
    for library in ("torch", "datasets", "pyarrow", "scipy", "sklearn"):
        (tmp_path / f"{library}.py").write_text(f"raise RuntimeError('{library} was imported')\n")
    command, environment = [sys.executable, "methods/mc3kd.py"], os.environ | {"PYTHONPATH": str(tmp_path)}

    def started(*typed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *typed], capture_output=True, text=True, env=environment, cwd=ROOT)

    done = started("--help")
    assert done.returncode == 0, done.stderr
    assert "python methods/mc3kd.py" in done.stdout
    options = {word.rstrip(",") for word in done.stdout.split() if word.startswith("--")}
    assert {f"--{field.replace('_', '-')}" for name, field in FIELDS if name == "mc3kd"} <= options
    assert not {option for option in options if "_" in option}  # one spelling is enough to read
    done = started("--task", "pocket/rte,nonsense")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "torch was imported" in started().stderr  # the trap works: with right arguments a script imports torch
