"""Wrong input, one table for all scripts: one line that names what is wrong and what would be right, exit code 2, and
nothing written."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, bert_config, error_line, in_process, word_tokenizer
from safetensors.torch import load_file, save_file
from transformers import BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from common import data, models

METHODS = ("mc3kd", "cmow", "xtc", "efficient_attention", "cka")
Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """Run a script's command in this process and return its one line; `tmp_path` holds afterwards what it held."""

    def call(method: str, *argv: str | Path) -> str:
        before = contents(tmp_path)
        runs = in_process(capsys, importlib.import_module(f"methods.{method}"))
        code, out, err = next(runs)("--out-dir", tmp_path / "runs", *argv)
        next(runs, None)
        line = error_line(err)
        assert code == 2, out + err
        assert line.startswith("error: "), line
        assert contents(tmp_path) == before
        return line

    return call


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but those of the cache, where a teacher may have been made before its student was found wrong."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts}


# --- arguments ---------------------------------------------------------------------------------------------

# The script, what is typed, and what the line must hold: the argument with its value, and what would be right.
ARGUMENTS = """
mc3kd | --task pocket/sst3 | --task pocket/sst3 | did you mean pocket/sst2
mc3kd | --task sts2 | --task sts2 | did you mean stsb
cka | --task sts2 | --task sts2 | did you mean
mc3kd | --task , | --task ',' | for example --task pocket/sst2
mc3kd | --task pocket/sst2,nonsense | --task nonsense | Known: pocket/
mc3kd | --task | --task | expected one argument
mc3kd | --task pocket/translate | --task pocket/translate | classification
cmow | --task pocket/lm | --task pocket/lm | classification and regression
xtc | --task pocket/squad | --task pocket/squad | classification and regression
cka | --task pocket/ner | --task pocket/ner | translation
cka | --task wikitext-2 | --task wikitext-2 | translation
mc3kd | --task gonerd | --task gonerd | --data-dir DIR
mc3kd | --teacher= | --teacher '' | pocket
mc3kd | --student 3 | --student '3' | LAYERSxWIDTH
mc3kd | --student 0x64 | --student '0x64' | LAYERSxWIDTH
mc3kd | --student 2x0 | --student '2x0' | LAYERSxWIDTH
mc3kd | --student 2x-64 | --student '2x-64' | LAYERSxWIDTH
mc3kd | --student 2X64 | --student '2X64' | LAYERSxWIDTH
mc3kd | --student 2x64.5 | --student '2x64.5' | for example 3x128
mc3kd | --student 3x130 | --student 3x130 | multiple of 8, for example 3x128
mc3kd | --student 3x4 | --student 3x4 | multiple of 8, for example 3x8
mc3kd | --student 1x64 --variant pkd-skip | --student 1x64 | 2 layers
mc3kd | $ --student 48x16384 | --student 48x16384 | memory
cka | $ --student 48x8192 | --student 48x8192 | memory
xtc | --student 2.5x128 | --student '2.5x128' | LAYERSxWIDTH
cmow | --student 3x128 | --student '3x128' | hybrid-20-400
cmow | --student cmow-0 | --student 'cmow-0' | hybrid-20-400
cmow | --student hybrid-20 | --student 'hybrid-20' | hybrid[-MATRIX-VECTOR]
cmow | --student cbow-10 --head cnn | --head cnn | cbow-784
cmow | $ --student bidirectional-9999-9999 | --student bidirectional-9999-9999 | memory
efficient_attention | --student 2x128 | --student 2x128 | must be half
mc3kd | --budget huge | --budget 'huge' | smoke
mc3kd | --budget 0 | --budget '0' | number of examples
mc3kd | --budget=-5 | --budget '-5' | number of examples
mc3kd | --budget 10.5 | --budget '10.5' | 600s
mc3kd | --budget 0s | --budget '0s' | 600s
mc3kd | --budget 600m | --budget '600m' | 600s
mc3kd | --budget 9999999999999999999999 | --budget | number of examples
mc3kd | --budget 31 | --budget 31 | --batch-size 32
cka | --budget 20 --batch-size 64 | --budget 20 | --batch-size 64
xtc | $ --budget 32 --stages 2 --variant xtc | --budget 32 | 2 stages
mc3kd | --seed -1 | --seed -1 | between 0 and
mc3kd | --seed 4294967296 | --seed 4294967296 | between 0 and
mc3kd | --seed 1.5 | --seed | invalid int
mc3kd | --seed zero | --seed | invalid int
mc3kd | --batch-size 0 | --batch-size 0 | 1 or more
mc3kd | --batch-size -3 | --batch-size -3 | 1 or more
mc3kd | --batch-size many | --batch-size | invalid int
mc3kd | --batch-size 1000000000 --budget 60s | --batch-size 1000000000 | at most
mc3kd | --lr 0 | --lr 0 | above 0
mc3kd | --lr=-1e-4 | --lr | above 0
mc3kd | --lr nan | --lr nan | above 0
mc3kd | --lr inf | --lr inf | above 0
mc3kd | --lr 1e400 | --lr inf | above 0
mc3kd | --lr 1e-4.5 | --lr | invalid
mc3kd | --lr-plan 0.5 | --lr-plan '0.5' | SHARE:FACTOR
mc3kd | --lr-plan 0.5:2,0.25:1 | --lr-plan '0.5:2,0.25:1' | rising shares
mc3kd | --lr-plan 0.5:0 | --lr-plan '0.5:0' | for example 0.5:0.8
mc3kd | --lr-plan 1:2 | --lr-plan '1:2' | between 0 and 1
mc3kd | --lr-plan= | --lr-plan '' | SHARE:FACTOR
cka | --lr-plan 0.5:2 --budget 60s | --budget 60s | examples
cka | --until 0.5 --tune --budget 60s | --budget 60s | examples
cmow | --until 1 --tune | --until 1.0 | between 0 and 1
cmow | --until 0.5 | --until 0.5 | --tune
mc3kd | --until 0.5 --tune --variant takd | --until 0.5 | --variant takd trains on the task more than once
xtc | --lr-plan 0.5:2 --stages 1,2 | --lr-plan 0.5:2 | --stages 1,2 trains on the task more than once
mc3kd | --max-length 0 | --max-length 0 | 1 or more
mc3kd | --max-length 3 | --max-length 3 | 4 or more
mc3kd | $ --max-length 1000000 | --max-length 1000000 | 64 positions
mc3kd | --limit 0 | --limit 0 | 1 or more
mc3kd | $ --limit 1 | sst2 | at least two
mc3kd | $ --limit 5 --tune | --tune | too few
mc3kd | --teacher-epochs -1 | --teacher-epochs -1 | 0 (the teacher as it is) or more
mc3kd | --teacher-epochs inf | --teacher-epochs inf | or more
mc3kd | --teacher-epochs 1e308 | --teacher-epochs 1e+308 | at most 10,000
mc3kd | $ --teacher {backbone} --teacher-epochs 0 | --teacher-epochs 0 | fine-tuned
mc3kd | --teacher-lr nan | --teacher-lr nan | above 0
mc3kd | --save-every -1 | --save-every -1 | 0
mc3kd | --save-every nan | --save-every nan | 0
mc3kd | --save-every inf | --save-every inf | 0
mc3kd | --device tpu | --device | cpu
mc3kd | --device mps | --device mps | --device cpu
mc3kd | --precision fp8 | --precision | bf16
mc3kd | --precision fp16 --device cpu | --precision fp16 | bf16
mc3kd | --resume --force | --resume | --force
mc3kd | --resume perhaps | --resume | yes/no
mc3kd | --out-dir= | --out-dir '' | folder
mc3kd | --cache-dir= | --cache-dir '' | folder
mc3kd | --data-dir= --task sst2 | --data-dir '' | folder
mc3kd | --out-dir {file} | --out-dir {file} | not a folder
mc3kd | --out-dir {file}/deeper | --out-dir {file}/deeper | not a folder
cmow | --cache-dir {file} | --cache-dir {file} | not a folder
mc3kd | --alpha 1.5 | --alpha 1.5 | between 0 and 1
mc3kd | --alpha=-0.1 | --alpha -0.1 | between 0 and 1
mc3kd | --alpha nan | --alpha nan | between 0 and 1
mc3kd | --temperature 0 | --temperature 0 | above 0
mc3kd | --temperature -2 | --temperature -2 | above 0
mc3kd | --temperature inf | --temperature inf | above 0
mc3kd | --temperature nan | --temperature nan | above 0
mc3kd | --temperature 1e200 | --temperature 1e+200 | at most
mc3kd | --beta -1 | --beta -1 | 0 or more
mc3kd | --beta nan | --beta nan | 0 or more
mc3kd | --beta inf | --beta inf | 0 or more
mc3kd | --ridge 0 | --ridge 0 | above 0
mc3kd | --ridge nan | --ridge nan | above 0
mc3kd | --selection-examples 1 | --selection-examples 1 | 2 or more
mc3kd | --variant mc4kd | --variant 'mc4kd' | mc3kd
mc3kd | --variant finetune,nonsense | --variant 'nonsense' | finetune
mc3kd | --variant , | --variant ',' | finetune
mc3kd | --variant dynakd | --variant dynakd | --pool
mc3kd | $ --variant dynakd --pool /no/such/folder | /no/such/folder | save_pretrained
mc3kd | --variant pkd-skip --task pocket/lm | --variant pkd-skip | kd or mc3kd
mc3kd | --tokens cls --task pocket/lm | --tokens cls | all
mc3kd | --assistant 3by128 | --assistant '3by128' | LAYERSxWIDTH
mc3kd | --tokens first | --tokens | cls
mc3kd | --correlation max | --correlation | frobenius
mc3kd | --analyse= | --analyse '' | pocket
mc3kd | --no-such-thing 1 | --no-such-thing | --help
mc3kd | --temp 3 | --temp | --help
mc3kd | stray | stray | --help
mc3kd | --task sst2 --data-dir /no/such/folder | --data-dir /no/such/folder | no such folder
mc3kd | --task sst2 --data-dir {file} | --data-dir {file} | not a folder
mc3kd | --task pocket/sst2 --data-dir . | --data-dir . | --task sst2
mc3kd | --task rte --data-dir {empty} | --data-dir {empty} | train.tsv
mc3kd | $ --teacher /no/such/folder | --teacher /no/such/folder | save_pretrained
mc3kd | $ --teacher pocket | --teacher pocket | a hub id or a model folder
mc3kd | $ --variant mc3kd --student 5x16 | --student: 5 layers | has 3
mc3kd | $ --variant pkd-skip --student 2x16 | --variant pkd-skip | --student 2x32
mc3kd | $ --init pretrained | --init pretrained | --init random works
mc3kd | $ --init /no/such/folder | --init /no/such/folder | save_pretrained
mc3kd | $ --init pocket | --init pocket | --init random works
cmow | $ --teacher pocket | --teacher pocket | a hub id or a model folder
cmow | --variant mc3kd | --variant 'mc3kd' | finetune, kd
cmow | --alpha 2 | --alpha 2 | between 0 and 1
cmow | --temperature 0 | --temperature 0 | above 0
cmow | --init nowhere | --init nowhere | random, general
cmow | --init , | --init ',' | random, general
cmow | --init {empty} | --init {empty} | random, general
cmow | $ --init {expert} | --init {expert} | matrix embeddings
cmow | --head svm | --head | mlp
cmow | --mlp-width 0 | --mlp-width 0 | 1 or more
cmow | $ --mlp-width 100000000000 | --mlp-width 100000000000 | memory
cmow | --embedding-dropout 1 | --embedding-dropout 1 | below 1
cmow | --hidden-dropout -0.5 | --hidden-dropout -0.5 | 0 or more
cmow | --general-share 1 | --general-share 1 | between 0 and 1
cmow | --general-lr 0 | --general-lr 0 | above 0
cmow | --general-warmup-steps -1 | --general-warmup-steps -1 | 0 or more
cmow | --augment -1 | --augment -1 | 0 or more
cmow | --corpus nowhere.txt | --corpus nowhere.txt | one passage a line
cmow | --diffcat maybe | --diffcat | auto
cmow | --loss hinge | --loss | mse
cmow | --stsb ranks | --stsb | classes
cmow | $ --budget 32 --init general | --budget 32 | need two
xtc | --bits 3 | --bits '3' | 32, 8, 4, 2, 1
xtc | --bits , | --bits ',' | 32, 8, 4, 2, 1
xtc | --stages 4 | --stages '4' | 1, 2, 3
xtc | --variant mc3kd | --variant 'mc3kd' | xtc
xtc | --layers 2,1 | --layers '2,1' | rising
xtc | --layers 0,1,2 | --layers 0,1,2 | --student 2x128
xtc | $ --layers 1,9 | --layers 1,9 | 0 to 2
xtc | --layers first | --layers 'first' | skip, top, bottom
xtc | $ --student 2x16 | --student 2x16 | --student 2x32
xtc | $ --student 5x32 | --student: 5 layers | 3
xtc | --lora-rank -1 | --lora-rank -1 | 0 (none) or more
xtc | --augment -1 | --augment -1 | 0 (none) or more
xtc | --init nowhere | --init nowhere | pretrained
xtc | --export m --bits 32 | --export m | 8 or fewer
xtc | --export m --bits 2,1 | --export m | one of --bits
xtc | --export {file} | --export {file} | --force
xtc | --export {empty} --force | --export {empty} | folder
xtc | --export {file}/m | --export {file}/m | not a folder
xtc | --analyse nowhere | --analyse nowhere | finished run
xtc | --analyse= | --analyse '' | finished run
xtc | --ste soft | --ste | clipped
xtc | --paper-budget D | --paper-budget | A
efficient_attention | --variant distill | --variant 'distill' | convert-distil
efficient_attention | --attention linformer | --attention | longformer
efficient_attention | --window 0 | --window 0 | 1 or more
efficient_attention | --window 6 --attention lsg | --window 6 | multiple of 4
efficient_attention | --global-tokens 0 | --global-tokens 0 | 1 or more
efficient_attention | --random-blocks -1 | --random-blocks -1 | 0 or more
efficient_attention | --distil-share 0.9 --convert-share 0.2 | --distil-share 0.9 | below 1
efficient_attention | --convert-share 0 | --convert-share 0 | between 0 and 1
efficient_attention | --distil-lr 0 | --distil-lr 0 | above 0
efficient_attention | --corpus nowhere | --corpus 'nowhere' | NAME=FILE
efficient_attention | --corpus a=nowhere.txt | --corpus a=nowhere.txt | no such file
efficient_attention | --corpus , | --corpus '' | pocket-short
efficient_attention | --corpus a={file} | --corpus a={file} | .jsonl or .txt
efficient_attention | --short-length 2 | --short-length 2 | 4 or more
efficient_attention | --sparsity random | --sparsity | lsh
efficient_attention | $ --student half --teacher {masked_lm} --budget 32 --variant distil | --budget 32 | give more
cka | --variant mc3kd | --variant 'mc3kd' | wopt
cka | $ --student 2x16 --variant mse | --variant mse | --student 2x32
cka | $ --variant cosine --student 2x16 | --variant cosine | --student 2x32
cka | $ --student 6x16 --variant cka --pretraining off | --student: 6 layers | has 3
cka | --minibatches 5 | --minibatches 5 | --batch-size 32
cka | --minibatches 0 | --minibatches 0 | 1 or more
cka | $ --variant cka --pretraining off --layer-map 1,2,3 | --layer-map 1,2,3 | 2 of the teacher's 3 layers
cka | --layer-map first | --layer-map first | uniform
cka | $ --variant cka --pretraining off --layer-map 1,9 | --layer-map 1,9 | 2 of the teacher's 3 layers
cka | $ --init copy --student 2x16 | --init copy | as wide as its teacher
cka | --beta 0 | --beta 0 | above 0
cka | --temperature 0 | --temperature 0 | above 0
cka | --ffn 0 | --ffn 0 | 1 or more
cka | --pretraining-share 1 | --pretraining-share 1 | between 0 and 1
cka | --pretraining-lr -1 | --pretraining-lr -1 | above 0
cka | --prompt Translate: | --prompt 'Translate:' | translation and summarisation
cka | --corpus nowhere.txt | --corpus nowhere.txt | one passage a line
cka | --pretraining off --variant wopt | --variant wopt | is cka
cka | --variant woh --task pocket/xsum | --variant woh | is kd
cka | $ --variant cka --budget 32 | --budget 32 | need two
cka | --history all | --history | exact
"""


SMALL = "--task sst2 --data-dir {glue} --teacher {expert} --max-length 16 --student 2x32"


def rows(table: str) -> list[Any]:
    """The cases of a table, one a line: what is run, and what the error has to say."""
    found = []
    for line in table.strip().splitlines():
        method, typed, *says = (part.strip() for part in line.split("|"))
        found.append(pytest.param(method, typed, says, id=f"{method} {typed}"))
    return found


@pytest.fixture
def places(glue: Path, expert: Path, backbone: Path, masked_lm: Path, tmp_path: Path) -> dict[str, Path]:
    """What stands in braces in a table: folders with data and models, a file, and an empty folder."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("a file of a user's")
    found = {"glue": glue, "expert": expert, "backbone": backbone, "masked_lm": masked_lm}
    return found | {"file": tmp_path / "file", "empty": tmp_path / "empty"}


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "masked-lm"
    models.save(BertForMaskedLM(bert_config(3, 32)), word_tokenizer(), folder, "")
    return folder


@pytest.mark.parametrize(("method", "typed", "says"), rows(ARGUMENTS))
def test_arguments(method: str, typed: str, says: list[str], places: dict[str, Path], refused: Refused) -> None:
    small = SMALL if method != "cmow" else SMALL.replace(" --student 2x32", "")
    argv = [word.format(**places) for word in typed.replace("$", small).split()]
    line = refused(method, *argv)
    for part in says:
        assert part.format(**places) in line


# --- data --------------------------------------------------------------------------------------------------

MOODS = "sentence\tlabel\na fine film\t1\na dull film\t0\n"
PAIRS = "index\tsentence1\tsentence2\tlabel\n0\ta film\ta plot\tentailment\n1\ta film\ta plot\tnot_entailment\n"
SCORES = "sentence1\tsentence2\tlabel\na film\ta plot\t1.5\na cast\ta plot\t4\n"
ROW = '{"sentence": "a fine film", "label": 1}\n'
WORDS = "the O\nfilm B-PER\n\na O\nplot O\n"
QUESTION: dict[str, Any] = {"id": "q", "question": "what film", "answers": [{"text": "fine", "answer_start": 2}]}
TEXT = " = A film = \n\n the story of a film and its cast\n"
TRANSLATIONS = "source\ttarget\na film\tun film\n"
DEEP, BIG = "[" * 100_000, "1" + "0" * 400


def moods(third: str) -> str:
    """SST-2 with another third line."""
    return f"{MOODS.rpartition('a dull')[0]}{third}\n"


def pairs(third: str) -> str:
    return f"{PAIRS.rpartition('1	a film')[0]}{third}\n"


def scores(third: str) -> str:
    return f"{SCORES.rpartition('a cast')[0]}{third}\n"


def label(value: str) -> str:
    """SST-2 as JSON lines whose second label is something else."""
    return f'{ROW}{{"sentence": "a dull film", "label": {value}}}\n'


def squad(**changes: Any) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": "a fine film", "qas": [QUESTION | changes]}]}]})


# Task, the file that is wrong, what is in it, what the line must hold. The other splits are good.
FILES: list[tuple[str, str, str | bytes, tuple[str, ...]]] = [
    ("sst2", "train.tsv", "", ("train.tsv: the file is empty",)),
    ("sst2", "train.tsv", "\n \n", ("train.tsv: the file is empty",)),
    ("sst2", "train.tsv", "sentence\tlabel\n", ("train.tsv: no rows", "at least one")),
    ("sst2", "dev.tsv", "sentence\tlabel\n", ("dev.tsv: no rows", "at least one")),
    ("sst2", "train.tsv", "sentence\na film\n", ("train.tsv: no column 'label'", "sst2 needs sentence, label")),
    ("sst2", "train.tsv", "a film\t1\n", ("train.tsv: no column 'sentence'", "the file has a film, 1")),
    ("sst2", "train.tsv", "sentence,label\na film,1\n", ("train.tsv: no column", "the file has sentence,label")),
    ("sst2", "train.tsv", moods("a dull film"), ("train.tsv line 3", "1 columns where 2 are needed")),
    ("sst2", "train.tsv", moods("a\tdull film\t0"), ("train.tsv line 3", "3 columns where 2 are needed")),
    ("sst2", "train.tsv", moods('"a\tdull" film\t0'), ("train.tsv line 3", "3 columns where 2 are needed")),
    ("sst2", "train.tsv", moods("a film\tmaybe"), ("train.tsv line 3: label 'maybe'", "negative, positive or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t2"), ("train.tsv line 3: label '2'", "negative, positive or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t-1"), ("train.tsv line 3: label '-1'", "negative, positive or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t"), ("train.tsv line 3: label ''", "negative, positive or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t0.5"), ("train.tsv line 3: label '0.5'", "negative, positive or 0, 1")),
    ("sst2", "train.tsv", moods("a film\t" + "9" * 5000), ("train.tsv line 3: label '999", "or 0, 1")),
    ("sst2", "dev.tsv", moods("a film\tneutral"), ("dev.tsv line 3: label 'neutral'", "negative, positive")),
    ("sst2", "train.tsv", moods("a film\t1"), ("all training labels are 'positive'", "at least two")),
    ("sst2", "train.tsv", moods("\t0"), ("train.tsv line 3: sentence is empty", "needs its text")),
    ("sst2", "train.tsv", moods("  \t0"), ("train.tsv line 3: sentence is empty", "needs its text")),
    ("sst2", "train.tsv", moods("d\xe9j\xe0\t0").encode("latin-1"), ("train.tsv line 3: not UTF-8", "as UTF-8")),
    ("sst2", "train.tsv", MOODS.encode("utf-16"), ("train.tsv line 1: not UTF-8", "as UTF-8")),
    ("sst2", "train.tsv", bytes(range(256)), ("train.tsv line", "not UTF-8")),
    ("sst2", "train.csv", 'sentence,label\n"a film,1\na film,0\n', ("train.csv line 3", "check the quotes")),
    ("sst2", "train.csv", 'sentence,label\n"a" film,1\n', ("train.csv line 2", "check the quotes")),
    ("sst2", "train.csv", "sentence,label\na, film,1\n", ("train.csv line 2: 3 columns where 2 are needed",)),
    ("sst2", "train.jsonl", ROW + '{"sentence": ', ("train.jsonl line 2: not JSON", "one object a line")),
    ("sst2", "train.jsonl", ROW + "[1]\n", ("train.jsonl line 2: list", "one JSON object a line")),
    ("sst2", "train.jsonl", ROW + DEEP, ("train.jsonl line 2: not JSON", "one object a line")),
    ("sst2", "train.jsonl", ROW + '{"sentence": "a"}\n', ("train.jsonl line 2: no 'label'", "sst2 needs")),
    ("sst2", "train.jsonl", ROW + '{"sentence": 5, "label": 0}', ("train.jsonl line 2: sentence is 5", "text")),
    ("sst2", "train.jsonl", ROW + '{"sentence": null, "label": 0}', ("train.jsonl line 2: sentence is None", "text")),
    ("sst2", "train.jsonl", ROW + '{"sentence": "\\ud800", "label": 0}', ("train.jsonl line 2: sentence", "surrogate")),
    ("sst2", "train.jsonl", label("null"), ("train.jsonl line 2: label None", "negative, positive")),
    ("sst2", "train.jsonl", label("true"), ("train.jsonl line 2: label True", "negative, positive")),
    ("sst2", "train.jsonl", label("NaN"), ("train.jsonl line 2: label nan", "negative, positive")),
    ("sst2", "train.jsonl", label("0.5"), ("train.jsonl line 2: label 0.5", "negative, positive")),
    ("sst2", "train.jsonl", label("[0]"), ("train.jsonl line 2: label [0]", "negative, positive")),
    ("sst2", "train.jsonl", label(BIG), ("train.jsonl line 2: label 1000", "negative, positive")),
    ("sst2", "train.parquet", b"PAR1 nonsense PAR1", ("train.parquet: not a readable Parquet file",)),
    ("rte", "train.tsv", pairs("1\ta\tb\tneutral"), ("train.tsv line 3: label 'neutral'", "entailment")),
    ("rte", "train.tsv", pairs("1\ta\tb\t1"), ("train.tsv line 3: label '1'", "entailment, not_entailment")),
    ("rte", "train.tsv", PAIRS.replace("sentence1", "a"), ("train.tsv: no column 'sentence1'", "rte needs")),
    ("rte", "train.tsv", pairs("1\ta\t\tentailment").replace("index", "idx"), ("line 3: sentence2 is empty",)),
    ("stsb", "train.tsv", scores("a\tb\tnan"), ("train.tsv line 3: score 'nan'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\tinf"), ("train.tsv line 3: score 'inf'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\t5.1"), ("train.tsv line 3: score '5.1'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\t-0.1"), ("train.tsv line 3: score '-0.1'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\thigh"), ("train.tsv line 3: score 'high'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\t"), ("train.tsv line 3: score ''", "from 0 to 5")),
    ("stsb", "dev.tsv", scores("a\tb\t1,5"), ("dev.tsv line 3: score '1,5'", "from 0 to 5")),
    ("stsb", "train.tsv", scores("a\tb\t1.5"), ("all training labels are 1.5", "at least two")),
    ("stsb", "train.jsonl", f'{{"sentence1": "a", "sentence2": "b", "label": {BIG}}}', ("score 1000", "from 0 to 5")),
    ("cola", "train.tsv", "x\t1\ta film\n", ("train.tsv line 1: 3 columns where 4 are needed",)),
    ("mrpc", "train.tsv", MOODS, ("train.tsv: no column 'sentence1'", "mrpc needs sentence1, sentence2, label")),
    ("wikitext-2", "train.txt", "", ("train.txt: the file is empty",)),
    ("wikitext-2", "train.txt", "film\n", ("max length 16", "less than one block")),
    ("ner", "train.txt", "", ("train.txt: the file is empty",)),
    ("ner", "train.txt", "the O\nfilm\n", ("train.txt line 2: 'film' has no tag", "a word and its tag")),
    ("ner", "train.txt", "the O\nfilm B-FILM\n", ("train.txt line 1: tag 'B-FILM'", "B-PER")),
    ("squad", "train.json", "{", ("train.json: not JSON", "SQuAD's layout")),
    ("squad", "train.json", '{"data": [1]}', ("train.json: not SQuAD's layout", "paragraphs")),
    ("squad", "train.json", '{"data": []}', ("train.json: no questions",)),
    ("squad", "train.json", DEEP, ("train.json: not JSON", "SQuAD's layout")),
    ("squad", "train.json", squad(answers=[]), ("train.json question q: answers are", "one text or more")),
    ("squad", "train.json", squad(answers=[{"text": "dull", "answer_start": 2}]), ("train.json question q", "context")),
    ("squad", "train.json", squad(answers=[{"text": "", "answer_start": 2}]), ("train.json question q: answers are",)),
    ("squad", "train.json", squad(question=" "), ("train.json question q: question is empty",)),
    ("squad", "train.json", squad(question=None), ("train.json question q: question is None",)),
    ("translate", "train.tsv", "source\ttarget\na film\t\n", ("train.tsv line 2: the answer is ''", "text")),
    ("translate", "train.tsv", "source\ttarget\n\tun film\n", ("train.tsv line 2: source is empty",)),
    ("translate", "train.tsv", "source\na film\n", ("train.tsv: no column", "source, target")),
]
# Task as above -> its name on the command line, a script that does it, and its good files
SETTINGS: dict[str, tuple[str, str, dict[str, str]]] = {
    "sst2": ("sst2", "mc3kd", {"train.tsv": MOODS, "dev.tsv": MOODS}),
    "cola": ("cola", "cmow", {"train.tsv": "x\t1\t\ta film\n", "dev.tsv": "x\t0\t*\ta film\n"}),
    "mrpc": ("mrpc", "xtc", {"train.tsv": SCORES, "dev.tsv": SCORES}),
    "rte": ("rte", "xtc", {"train.tsv": PAIRS, "dev.tsv": PAIRS}),
    "stsb": ("stsb", "cka", {"train.tsv": SCORES, "dev.tsv": SCORES}),
    "wikitext-2": ("wikitext-2", "mc3kd", {"train.txt": TEXT, "valid.txt": TEXT, "test.txt": TEXT}),
    "ner": ("gonerd", "efficient_attention", {"train.txt": WORDS, "dev.txt": WORDS, "test.txt": WORDS}),
    "squad": ("squad", "efficient_attention", {"train.json": squad(), "dev.json": squad()}),
    "translate": ("tatoeba/en-fr", "cka", dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), TRANSLATIONS)),
}


@pytest.mark.parametrize(("task", "file", "content", "says"), FILES, ids=lambda value: str(value)[:40])
def test_files(
    task: str, file: str, content: str | bytes, says: tuple[str, ...], expert: Path, gpt2: Path, tmp_path: Path,
    refused: Refused,
) -> None:  # fmt: skip
    name, method, good = SETTINGS[task]
    folder = tmp_path / "data"
    folder.mkdir()
    for other, text in good.items():
        if other.partition(".")[0] != file.partition(".")[0]:
            (folder / other).write_text(text)
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    argv = ["--task", name, "--data-dir", folder, "--teacher", gpt2 if task == "wikitext-2" else expert]
    line = refused(method, *argv, "--max-length", "16", "--teacher-epochs", "0" if task == "wikitext-2" else "3")
    for part in says:
        assert part in line


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    tokenizer = word_tokenizer()
    tokenizer.eos_token = "[SEP]"
    config = GPT2Config(vocab_size=31, n_positions=64, n_embd=32, n_layer=3, n_head=2, eos_token_id=3, bos_token_id=3)
    models.save(GPT2LMHeadModel(config), tokenizer, folder, "")
    return folder


@pytest.mark.parametrize(
    ("file", "content", "first"),
    [
        ("train.tsv", "\ufeff" + MOODS, "a fine film"),
        ("train.tsv", MOODS.replace("\n", "\r\n"), "a fine film"),
        ("train.tsv", MOODS.rstrip("\n"), "a fine film"),
        ("train.tsv", MOODS.replace("\n", "\n\n"), "a fine film"),
        ("train.tsv", MOODS.replace("a fine", '"a fine'), '"a fine film'),
        ("train.tsv", MOODS.replace("a fine", "a\u2028fine"), "a\u2028fine film"),
        ("train.tsv", MOODS.replace("a fine", "a\0fine"), "a\0fine film"),
        ("train.tsv", MOODS.replace("a fine", "\U0001f3ac fine"), "\U0001f3ac fine film"),
        ("train.tsv", MOODS.replace("a fine", "fine " * 100_000), "fine " * 100_000 + " film"),
        ("train.csv", 'label,sentence\n1,"a ""fine"",\nfilm"\n0,b\n', 'a "fine",\nfilm'),
        ("train.csv", f'label,sentence\n1,"{"fine " * 100_000}"\n0,b\n', "fine " * 100_000),
        ("train.jsonl", ROW + '\n{"label": "NEGATIVE", "sentence": "b", "more": []}\n', "a fine film"),
        (
            "train.jsonl",
            '{"sentence": "\\ud83c\\udfac", "label": 1.0}\n{"sentence": "b", "label": "neg"}',
            "\U0001f3ac",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_files_are_read_as_meant(file: str, content: str, first: str, expert: Path, tmp_path: Path) -> None:
    """A byte order mark, Windows line ends, quotes, line separators, a line of 100,000 tokens."""
    (tmp_path / file).write_bytes(content.encode())
    (tmp_path / "dev.tsv").write_text(MOODS)
    task = data.load("sst2", str(tmp_path))
    assert (task.splits["train"].labels, task.splits["train"].texts[0]) == ([1, 0], (first,))
    encoded = data.encode(word_tokenizer(), task.splits["train"], task.task, 16)
    assert max(encoded.lengths) <= 16


# --- models ------------------------------------------------------------------------------------------------


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], Any]:
    """Change the tensors of a model folder."""

    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def config(**changes: Any) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def file(name: str, content: bytes | None) -> Callable[[Path], Any]:
    """Another content of a file, or none."""
    return lambda folder: (folder / name).unlink() if content is None else (folder / name).write_bytes(content)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def header(length: int) -> bytes:
    """A safetensors file whose header is said to be so long."""
    return length.to_bytes(8, "little") + b'{"x": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}'


def pickled(folder: Path) -> None:
    """The weights in the old format, whose loading runs code; here it would make a file."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + str(folder).encode() + b"/executed'\ntR.")


def remote_code(folder: Path) -> None:
    config(model_type="own", auto_map={"AutoConfig": "own.OwnConfig"}, architectures=["Own"])(folder)
    (folder / "own.py").write_text(f"open({str(folder / 'executed')!r}, 'w')\nclass OwnConfig: pass\n")


def without_words(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def other_words(folder: Path) -> None:
    models.pocket_tokenizer().save_pretrained(folder)


MODELS: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("no config", file("config.json", None), "", "config.json"),
    ("a config that is no JSON", file("config.json", b"{"), "", "config.json"),
    ("a config that is a list", file("config.json", b"[]"), "", "config.json"),
    ("a config that is no text", file("config.json", bytes(range(256))), "", "config.json"),
    ("an unknown family", config(model_type="own"), "", "model_type"),
    ("code of its own", remote_code, "", "model_type"),
    ("no weights", file("model.safetensors", None), "", "weights cannot be loaded"),
    ("pickled weights", pickled, "", "weights cannot be loaded"),
    ("cut weights", cut, "", "damaged model.safetensors"),
    ("empty weights", file("model.safetensors", b""), "", "damaged model.safetensors"),
    ("random weights", file("model.safetensors", bytes(range(256))), "", "damaged model.safetensors"),
    ("a header of 2^62 bytes", file("model.safetensors", header(2**62)), "", "damaged model.safetensors"),
    ("a header that promises more", file("model.safetensors", header(67)), "", "damaged model.safetensors"),
    ("a weight less", weights(lambda t: t.pop("bert.encoder.layer.1.output.dense.weight")), "", "1 weights are not in"),
    ("other widths", config(intermediate_size=128), "", "weights are not in its file"),
    ("more layers than weights", config(num_hidden_layers=4), "", "weights are not in its file"),
    ("a width that heads do not divide", config(hidden_size=33), "", "heads"),
    ("a negative width", config(hidden_size=-32), "", "weights cannot be loaded"),
    ("a width in words", config(hidden_size="wide"), "", "config.json"),
    ("an unknown activation", config(hidden_act="swish2"), "", "weights cannot be loaded"),
    ("weights that are no numbers", weights(lambda t: t["classifier.weight"].fill_(torch.nan)), "", "not finite"),
    ("a body of infinite weights", weights(lambda t: t["bert.embeddings.LayerNorm.weight"].fill_(torch.inf)), "",
     "not finite"),
    ("no tokenizer", without_words, "", "no tokenizer"),
    ("a damaged tokenizer", file("tokenizer.json", b"{"), "", "no tokenizer"),
    ("more words than embeddings", other_words, "", "31 embeddings"),
    ("other classes", config(id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1}), "", "negative, positive"),
    ("fewer layers", config(), "--student 5x32 --variant mc3kd", "teacher has 3"),
    ("no language model", config(), "--task wikitext-2 --data-dir {texts} --teacher-epochs 0", "has to be fine-tuned"),
    ("no causal model", config(architectures=["BertLMHeadModel"]), "--task wikitext-2 --data-dir {texts}", "causal"),
    ("no encoder-decoder", config(), "--task tatoeba/en-fr --data-dir {pairs} --student 2x16", "encoder-decoder"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change", "typed", "says"), MODELS, ids=[case[0] for case in MODELS])
def test_models(
    what: str, change: Callable[[Path], Any], typed: str, says: str, glue: Path, expert: Path, tmp_path: Path,
    refused: Refused,
) -> None:  # fmt: skip
    folder = tmp_path / "teacher"
    shutil.copytree(expert, folder)
    change(folder)
    for name, task in (("texts", "wikitext-2"), ("pairs", "translate")):
        (tmp_path / name).mkdir()
        for split, text in SETTINGS[task][2].items():
            (tmp_path / name / split).write_text(text)
    method = "cka" if "tatoeba" in typed else "mc3kd"
    small = "" if "--task" in typed else f"--task sst2 --data-dir {glue} --limit 64"
    argv = f"{small} --max-length 16 --budget 32 {typed}".format(texts=tmp_path / "texts", pairs=tmp_path / "pairs")
    line = refused(method, *argv.split(), "--teacher", folder)
    assert str(folder) in line or "--student" in line or "--teacher: " in line
    assert says in line
    assert not (folder / "executed").exists()


def test_code_and_pickles_of_a_checkpoint_would_have_run(expert: Path, tmp_path: Path) -> None:
    """The payloads of the cases above work: what makes them harmless is that nothing here loads them."""
    shutil.copytree(expert, tmp_path / "a")
    pickled(tmp_path / "a")
    import pickle

    pickle.loads((tmp_path / "a" / "pytorch_model.bin").read_bytes())
    assert (tmp_path / "a" / "executed").exists()
    shutil.copytree(expert, tmp_path / "b")
    remote_code(tmp_path / "b")
    exec((tmp_path / "b" / "own.py").read_text())
    assert (tmp_path / "b" / "executed").exists()


def test_a_hub_that_cannot_be_reached(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and with what would work without it."""
    import datasets  # noqa: F401  (it reads the setting when it is imported, and keeps it)
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    line = refused("mc3kd", "--task", "pocket/sst2", "--teacher", "no-such/model")
    assert "--teacher no-such/model" in line
    assert "give pocket, or a folder" in line
    line = refused("cka", "--task", "wmt16/en-ro", "--teacher", "no-such/model")
    assert "--task wmt16/en-ro" in line
    assert "`--task pocket/translate`" in line


# --- bench -------------------------------------------------------------------------------------------------

BENCH = """
bench | paper | bench paper | papers
bench | papers | method | required
bench | papers mc4kd | 'mc4kd' | mc3kd
bench | papers mc3kd --table 99 | --table 99 | mc3kd has
bench | papers mc3kd --results nowhere | --results 'nowhere' | no such folder
bench | papers mc3kd --results= | --results | no such folder
bench | papers mc3kd --results {file} | --results '{file}' | no such folder
bench | papers mc3kd --figure 2 | --figure 2 | unrecognized
bench | run nowhere.toml | nowhere.toml | No such file
bench | run {file} | {file} | not TOML
bench | run {empty} | {empty} | cannot be read
bench | run bench/quick.toml --jobs 0 | --jobs 0 | 1 or more
bench | run bench/quick.toml --jobs many | --jobs | invalid int
bench | table | results | required
bench | table nowhere | nowhere | `python -m bench run` makes it
bench | report nowhere | nowhere | `python -m bench run` makes it
sweep | | method | required
sweep | tinybert --variants kd | 'tinybert' | mc3kd
sweep | mc3kd | --variants | required
sweep | mc3kd --variants kd --trials 0 | --trials 0 | 1 or more
sweep | mc3kd --variants kd --trials many | --trials | invalid int
sweep | mc3kd --variants kd --search population | --search population | --engine ray
sweep | mc3kd --variants kd --tune --until 0.5 | --until | one run
sweep | mc3kd --variants kd --lr-plan 0.5:2 | --lr-plan | --search population
sweep | mc3kd --variants kd --search random | --search | population
sweep | mc3kd --variants kd --engine ray --search population --trials 1 | --trials 1 | 2 or more
sweep | mc3kd --variants kd --engine ray --search population --intervals 1 | --intervals 1 | 2 or more
sweep | mc3kd --variants kd --engine ray --cpus 0 | --cpus 0 | above 0
sweep | mc3kd --variants kd --engine slurm | --engine | ray
sweep | mc3kd --variants kd,mc4kd | --variants 'mc4kd' | mc3kd
sweep | mc3kd --variants , | --variants ',' | mc3kd
sweep | mc3kd --variants kd --task pocket/rte,pocket/mnli | --task pocket/rte,pocket/mnli | one task
sweep | mc3kd --variants kd --budget huge | --budget 'huge' | smoke
sweep | cmow --variants kd --task nonsense | --task nonsense | Known
"""


@pytest.mark.parametrize(("module", "typed", "says"), rows(BENCH))
def test_bench(
    module: str, typed: str, says: list[str], places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module("bench.__main__" if module == "bench" else "bench.sweep").main
    with pytest.raises(SystemExit) as stop:
        main(typed.format(**places).split())
    assert stop.value.code == 2
    line = error_line(capsys.readouterr().err)
    for part in says:
        assert part.format(**places) in line


# --- the same in processes of their own --------------------------------------------------------------------

COMMANDS = """
methods/mc3kd.py | --task pocket/sst3 | did you mean pocket/sst2
methods/mc3kd.py | --out-dir {file} | not a folder
methods/cmow.py | --student cmow-0 | hybrid-20-400
methods/cmow.py | --corpus nowhere.txt | one passage a line
methods/xtc.py | --export {file} | --force
methods/xtc.py | predict {file} text | no file of a packed model
methods/xtc.py | predict | required
methods/efficient_attention.py | --attention linformer | longformer
methods/cka.py | --minibatches 5 | --batch-size 32
methods/cka.py | --teacher {expert} --task sst2 --data-dir {empty} | train.tsv
-m bench | papers mc4kd | mc3kd
"""


@pytest.mark.parametrize(("command", "typed", "says"), rows(COMMANDS))
def test_commands(command: str, typed: str, says: list[str], places: dict[str, Path]) -> None:
    before = {path: path.stat().st_mtime_ns for path in places["file"].parent.rglob("*")}
    words = [*command.split(), *typed.format(**places).split()]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert error_line(done.stderr).startswith("error: ")
    assert says[0] in done.stderr
    assert {path: path.stat().st_mtime_ns for path in places["file"].parent.rglob("*")} == before


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback comes first, the line last."""
    from common import args
    from methods import mc3kd

    with pytest.raises(SystemExit):
        args.parse(mc3kd.Args, "doc", ["--budget", "huge", "--debug"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: --budget")
