"""The command line of every script: ranges, names, what two arguments may not be together; one line and exit code 2."""

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
from test_input import refused as one_line

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [*((name, ("examples", count)) for name, count in BUDGETS.items()), ("paper", ("paper", 0)),
     *((text, ("examples", 2500)) for text in ("2500", "2.5k", "2.5e3", "25E2")), ("1m", ("examples", 1_000_000)),
     ("0", None), ("-1", None), ("600s", None), ("1.5", None), ("1e99", None), ("huge", None), ("", None)],
)  # fmt: skip
def test_budgets(text: str, expected: tuple[str, int] | None) -> None:
    if expected:
        assert args.parse_budget(text) == expected
    else:
        assert "--budget" in refused("mc3kd", budget=text)


@pytest.mark.parametrize(
    "text", ["", "3", "x128", "3x", "0x128", "3x0", "3x100", "-3x128", "3x128x2", "3.5x128", "3X128"]
)
def test_shapes(text: str) -> None:
    assert "--student" in refused("mc3kd", student=text)
    assert args.student_shape("3x128") == (3, 128)


@pytest.mark.parametrize("text", ["0", "2,2", "4,2", "2,x", "-1", "evenly", "1,,2"])
def test_layers_to_keep(text: str) -> None:
    assert "--keep" in refused("mc3kd", keep=text)
    assert args.layer_list("2,4,12") == [2, 4, 12]


# --- two arguments together ----------------------------------------------------------------------------------

TOGETHER = [
    ("all", "--budget 16", "--budget 16: pays for no step of --batch-size 32"),
    ("all", "--task ,", "--task"),
    ("all", "--task pocket/sst22", "did you mean pocket/sst2"),
    ("all", "--task pocket/rte --data-dir .", "is built in; for your files, --task rte"),
    ("all", "--task tests/result.json", "tests/result.json: one object"),
    ("all", "--teacher=", "--teacher '': names nothing"),
    ("mc3kd", f"--task {'x' * 300}.csv", "File name too long"),
    ("mc3kd", "--task ~nobody-here/x.csv", "~nobody-here/x.csv: no such file"),
    ("mc3kd", "--lr 1e400", "--lr inf: must be finite"),
    ("all", "--out-dir README.md/x", "is not a folder"),
    ("all", "--cache-dir README.md", "is not a folder"),
    ("all", "--nonsense 3", "--nonsense: no such argument"),
    ("all", "--see 3", "--see: no such argument"),  # no abbreviations
    ("all", "--seed", "--seed: expected one argument"),
    ("all", "--seed x", "--seed: invalid int value"),
    ("all", "--device tpu", "--device: invalid choice"),
    ("mc3kd", "--task pocket/ner", "is token classification; this method does classification, regression"),
    ("dynakd", "--variant dynakd --teacher pocket", "--variant dynakd: chooses among several teachers"),
    ("dynakd", "--variant dynakd --teacher pocket --pool=", "--variant dynakd: chooses among several teachers"),
    ("mc3kd", "--variant pkd-skip --student 1x128", "its last layer is left out"),
    ("mc3kd", "--variant mc3kd --accumulate 2", "--accumulate 2: the hidden loss is of a batch"),
    ("takd", "--variant takd --assistant 3", "--assistant '3': must be LAYERSxWIDTH"),
    ("mc3kd", "--task pocket/lm --variant pkd-last", "compares [CLS] vectors, and pocket/lm has none"),
    ("mc3kd", "--task pocket/lm --tokens cls", "--variant mc3kd: compares [CLS] vectors"),
    ("mc3kd", "--teacher ,", "--teacher ',': names nothing"),
    ("cmow", "--student cmow-4 --head cnn --batch-size 1", "--batch-size 1: --head cnn has a batch norm"),
    ("cka", "--minibatches 5", "--minibatches 5: must divide the batch size, 32"),
    ("cka", "--accumulate 2", "--accumulate 2: is --minibatches here"),
    ("cka", "--layer-map 0,2", "--layer-map 0,2: must be uniform"),
    ("cka", "--prompt x", "--prompt 'x': is for translation and summarisation"),
    ("cka", "--variant cka,wopt --task pocket/xsum", "--variant cka,wopt: are the same where nothing is pre-trained"),
    ("cka", "--pretraining-minibatches 5", "--pretraining-minibatches 5: must divide the batch size, 32"),
    ("cka", "--tokens cls --task pocket/translate", "--tokens cls: the encoder-decoders of pocket/translate have no"),
    ("xtc", "--accumulate 4", "--accumulate 4: xtc's losses are of a batch's tokens"),
    ("cmow", "--init random,runs/nowhere/made", "--init runs/nowhere/made: no such folder"),
    ("cmow", "--init nowhere", "--init nowhere: must be random, general, or a folder"),
    ("cmow", "--student cbow-3-4", "--student 'cbow-3-4': must be cbow"),
    ("cmow", "--student 2x128", "--student '2x128': must be cbow"),
    ("cmow", "--init ,", "--init"),
    ("cmow", "--student cmow-0", "--student 'cmow-0': must be cbow"),
    ("cmow", "--head cnn --student cmow-2", "--head cnn: needs matrices"),
    ("cmow", "--task pocket/lm", "is language modelling; this method does classification"),
    ("cmow", "--corpus nowhere.txt", "--corpus"),
    ("cmow", "--head cnn --student hybrid-3-10", "--head cnn: needs matrices"),
    ("xtc", "--bits 3", "--bits '3': must be one or several of 32, 2, 1"),
    ("efficient_attention", "--convert-share 0.5 --distil-share 0.5", "leaves nothing to fine-tune with"),
    ("efficient_attention", "--attention lsg --window 6", "--window 6: LSG halves a block"),
    ("efficient_attention", "--init teacher", "--init teacher: convert-distil goes on from the pretrained model"),
    ("efficient_attention", "--corpus nowhere.txt", "--corpus"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "typed", "says"), TOGETHER, ids=[" ".join(row[:2]) for row in TOGETHER])
def test_what_cannot_be_is_one_line_and_exit_code_2(
    name: str, typed: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for method in METHODS if name == "all" else [name]:
        with pytest.raises(SystemExit) as stop:
            args.parse(ARGS[method], None, typed.split())
        err = capsys.readouterr().err
        assert stop.value.code == 2
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert says in err


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
