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
from test_input import GOOD
from transformers import BertForMaskedLM

from common import models

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
    for name, task in (("texts", "wikitext-2"), ("pairs", "tatoeba/en-fr")):
        (tmp_path / name).mkdir()
        for split, text in GOOD[task].items():
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
