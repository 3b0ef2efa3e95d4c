"""What is refused: every message that a user can meet is provoked once. One line says what is wrong, with exit code 2,
and nothing is written; `refusals.py` has the table."""

from __future__ import annotations

import ast
import gzip
import re
import shlex
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import ROOT, bert_config, call, other_words, sentences, tiny_bert, word_tokenizer
from content import GOOD, conll, outputs, sheet, write
from refusals import ELSEWHERE, IDS, MATRIX, ROWS, SEVERAL, TUNED, Row
from safetensors.torch import load_file, save_file
from test_attention import of_the_library
from transformers import (
    AutoModel,
    BertForMaskedLM,
    BertForTokenClassification,
    GPT2Config,
    RobertaConfig,
    RobertaForSequenceClassification,
    SqueezeBertConfig,
)
from transformers import GPT2ForSequenceClassification as GPT2
from transformers import SqueezeBertForSequenceClassification as SqueezeBert

import bench
import pocket
from bench import __main__ as entry
from bench import claims, run
from common import args, data, models
from common.errors import BadInput
from common.layers import attention, packed
from common.tasks import Columns
from methods import cmow, xtc

NAMES = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
TEXTS = sentences(200, 4)
ROBERTA: dict[str, Any] = {"vocab_size": 32, "hidden_size": 32, "num_attention_heads": 2}
FILES: dict[str, str | bytes] = {
    "sheet.csv": sheet(),
    "texts.csv": "id,text\n" + "".join(f"r{i},{text}\n" for i, text in enumerate(TEXTS)),
    "plain.csv": "text,label\n" + "".join(f"{text},{i % 7}\n" for i, text in enumerate(TEXTS)),
    "labelled.csv": "text,label\n" + "".join(f"{text},{NAMES['id2label'][i % 2]}\n" for i, text in enumerate(TEXTS)),
    "several.csv": SEVERAL,
    "years.csv": "text,label\n" + "".join(f"text {i},{1990 + i}.5\n" for i in range(20)),
    "tags.conll": conll("Vera B-PER", "w* O"),
    "o.csv": outputs(IDS, lambda i: [f"r{i}", 0.9, 0.1]),
    "halves/train.csv": "text\n" + "\n".join(TEXTS[:60]),
    "halves/dev.csv": "text\n" + "\n".join(TEXTS[60:80]),
    "half.csv": outputs("negative,positive", lambda _: [0.9, 0.1], 60),
    "words.jsonl": '{"words": "a"}\n', "broken.jsonl": '{"text": "a"}\n{"text"\n', "number.jsonl": '{"text": 5}\n',
    "blank.txt": "\n", "one.txt": "one\n", "empty/x": "", "d/x": "",
    "damaged.jsonl.gz": gzip.compress(b'{"missing": []}\n' * 99)[:-9],
    "whole.toml": MATRIX, "half.toml": 'of = "{0}/whole.toml"', "tuned.toml": TUNED,
}  # fmt: skip


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    change(tensors := load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def without(part: str) -> Callable[[Path], None]:
    return lambda folder: edit(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if part in name])


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


# What was done to a copy of the tests' teacher
SPOILT: dict[str, Callable[[Path], Any]] = {
    "cut": cut,
    "nolayer": without("layer.1.attention"),
    "nohead": without("classifier"),
    "infinite": lambda folder: edit(folder, lambda tensors: tensors["classifier.bias"].fill_(torch.nan)),
    "notokens": lambda folder: [path.unlink() for path in folder.glob("*token*")],
    "badtokens": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "noweights": lambda folder: (folder / "model.safetensors").unlink(),
    "words": lambda folder: type(word_tokenizer())(vocab={str(i): i for i in range(99)}).save_pretrained(folder),
    "others": other_words,
    "noconfig": lambda folder: (folder / "config.json").write_text("{"),
    "lora": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "trained": lambda folder: (folder / "args.json").write_text('{"text": ["body"]}'),
    "student": lambda folder: None,
}


def packed_one() -> Any:
    model = tiny_bert(2, 32, **NAMES).eval()
    xtc.quantize(model, 1)
    return packed.pack_model(model)


def long_one() -> Any:
    model = BertForMaskedLM(bert_config(2, 32))
    attention.convert(model, "bigbird", 64)
    return model


MADE: dict[str, Callable[[], Any]] = {
    "scores": lambda: tiny_bert(1, 32, num_labels=1),
    "five": lambda: tiny_bert(3, 32, num_labels=5),
    "unnamed": lambda: tiny_bert(3, 32),
    "tags": lambda: BertForTokenClassification(bert_config(1, 16)),
    "gpt2": lambda: GPT2(GPT2Config(vocab_size=31, n_embd=32, n_layer=2, n_head=2, pad_token_id=0, **NAMES)),
    "packed": packed_one,
    "long": long_one,
    "matrices": lambda: cmow.MatrixEmbeddingForSequenceClassification(
        cmow.student_config(cmow.Args(), word_tokenizer(), **NAMES)
    ),
    "squeeze": lambda: SqueezeBert(
        SqueezeBertConfig(**(ROBERTA | {"embedding_size": 32, "intermediate_size": 32} | NAMES))
    ),
    "longbody": lambda: of_the_library("longformer", AutoModel, vocab_size=31),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**ROBERTA)),
}


class Place(dict[str, Any]):
    """A folder with the files that the rows need; {names} are folders of models, made when one is asked for."""

    def __init__(self, folder: Path, shelf: Path, known: dict[str, Any], task: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(known | {"root": ROOT, "kept": ROOT / "bench" / "results"})
        self.folder, self.shelf, self.task, self.patch = folder, shelf, task, patch

    def __missing__(self, name: str) -> Path:
        folder = self.shelf / name
        if name == "record" and not folder.exists():
            write(folder / "result.json", (ROOT / "tests" / "result.json").read_bytes())
            write(folder / "log.jsonl", "{}\n")
        elif name in SPOILT and not folder.exists():
            SPOILT[name](Path(shutil.copytree(self["expert"], folder)))
        elif not folder.exists():
            torch.manual_seed(0)
            models.save(MADE[name](), word_tokenizer(), folder, "")
        return folder


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def place(tmp_path: Path, shelf: Path, glue: Path, expert: Path, backbone: Path, sst2: data.TaskData,
          monkeypatch: pytest.MonkeyPatch) -> Place:  # fmt: skip
    for name, content in FILES.items():
        write(tmp_path / name, content.replace("{0}", str(tmp_path)) if isinstance(content, str) else content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    generate = pocket.generate
    monkeypatch.setattr(pocket, "generate", lambda task, split: generate(task, split, size=40))
    monkeypatch.delattr(run, "execute")  # what is not refused would run for hours
    return Place(tmp_path, shelf, {"glue": glue, "expert": expert, "backbone": backbone}, sst2, monkeypatch)


# --- provoking a message -------------------------------------------------------------------------------------


def loaded(name: str, words: str) -> None:
    """What is said of data, as `data.load` takes it."""
    given = dict(zip(*[iter(shlex.split(words))] * 2, strict=True))
    options = {option.removeprefix("--").replace("-", "_"): value for option, value in given.items()}
    task, _, split = options.get("task", name).partition(":")
    if split or ":" in name:
        data.load(name.partition(":")[0], "given")
    else:
        data.load(task, columns=Columns.of(options))


def provoke(row: Row, place: Place, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[BaseException]]:
    """The line with which a row is refused, and what was raised."""
    how, seen = row[0], list[BaseException]()
    command = row[2] if len(row) == 4 else how
    for name, value in row[1].items() if len(row) == 3 else ():
        place.patch.setattr(name, value)
    if len(row) == 4 and ":" in how:
        task, _, file = how.partition(":")
        shutil.rmtree("given", ignore_errors=True)
        good = {} if isinstance(row[1], dict) else GOOD[task]
        contents = {name: text for name, text in good.items() if Path(name).stem != Path(file).stem}
        for name, content in (contents | (row[1] if isinstance(row[1], dict) else {file: row[1]})).items():
            write(Path("given", name), content)
    elif len(row) == 4:
        shutil.rmtree(how, ignore_errors=True) if isinstance(row[1], dict) else None
        for name, content in row[1].items() if isinstance(row[1], dict) else [("", row[1])]:
            write(Path(how, name), content.replace("{0}", str(place.folder)) if how.endswith("toml") else content)
    if isinstance(command, str):
        command = command.format_map(place)
    before = sorted(place.folder.rglob("*"))
    if not isinstance(command, str) or (len(row) == 4 and not command.startswith("bench ")):
        with pytest.raises(BadInput) as error:
            command(place) if callable(command) else loaded(how, command)
        assert "\n" not in str(error.value)
        return str(error.value), [error.value]
    with pytest.MonkeyPatch.context() as patch:
        for module in (args, bench, entry):
            patch.setattr(module, "fail", lambda error, line="": (seen.append(error), fail(error, line)))
        code, err = typed(command, capsys)
    *told, line = err.splitlines()
    assert (code, line[:7], [other for other in told if other.startswith("error")]) == (2, "error: ", []), err
    left = [path for path in sorted(place.folder.rglob("*")) if path not in before and path.is_file()]
    assert {path.relative_to(place.folder).parts[:2] for path in left} <= {("runs", "cache")}, left
    return line, seen


fail = args.fail


def typed(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    name, *words = shlex.split(command)
    if name != "bench":
        code, _, err = call(name, *words)
        return code, err
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        entry.main(words)
    return int(stop.value.code or 0), capsys.readouterr().err


# --- the places where something is refused -------------------------------------------------------------------


class Refusal(NamedTuple):
    """A call of `BadInput` or `refused`, or a line of `wrong`: where it stands, and what it says."""

    lines: range
    code: str
    says: re.Pattern[str] | None


def pattern(text: ast.expr) -> re.Pattern[str] | None:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    if not all(isinstance(part, ast.Constant | ast.FormattedValue) for part in parts):
        return None
    said = (re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in parts)
    return re.compile("".join(said), re.DOTALL)


def refusals(path: Path) -> Iterator[Refusal]:
    every = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    for node in sorted(every, key=lambda node: getattr(node, "lineno", 0)):
        inside = ast.walk(node) if isinstance(node, ast.FunctionDef) and node.name == "wrong" else ()
        found = [(one, one.value) for one in inside if isinstance(one, ast.Yield) and one.value]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("BadInput", "refused"):
            found = [(node, node.args[0])]  # type: ignore[list-item]
        for one, text in found:
            yield Refusal(range(one.lineno, (one.end_lineno or 0) + 1), ast.unparse(one), pattern(text))


def raised_at(error: BaseException | None) -> Iterator[tuple[str, int, str]]:
    """Module, line and words of every `BadInput` that has led to this error."""
    while error is not None:
        if isinstance(error, BadInput):
            frames = [(Path(frame.filename), frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
            places = [(str(path.relative_to(ROOT)), line) for path, line in frames if path.is_relative_to(ROOT)]
            known = [one for one in places if not one[0].startswith("tests") and one[0] != "common/errors.py"]
            yield *(known[-1] if known else ("", 0)), str(error)
        error = error.__cause__ or error.__context__


SOURCES = [path for part in ("common", "methods", "bench") for path in sorted((ROOT / part).rglob("*.py"))
           if path.name != "errors.py" and "studies" not in path.parts]  # fmt: skip
# a script that a user has dropped into methods/ needs no row
OURS = [path for path in SOURCES if path.parent.name != "methods" or path.stem in claims.TITLES]
MODULES = [str(path.relative_to(ROOT)) for path in OURS if any(refusals(path))]


@pytest.mark.parametrize("module", sorted({*MODULES, *ROWS}))
def test_every_message(module: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a module, with what provokes it; and each of its messages has a row, or a test that is named."""
    wrong, seen = list[str](), list[tuple[str, int, str]]()
    for row in ROWS.get(module, ()):
        try:
            with place.patch.context() as place.patch:
                line, errors = provoke(row, place, capsys)
            seen += [found for error in errors for found in raised_at(error)]
            if not all(part in line for part in row[-1].split(" ... ")):
                wrong.append(f"{row[-1]!r} is not said: {line}")
        except (Exception, pytest.fail.Exception) as error:
            wrong.append(f"{row[-1]!r}: {type(error).__name__} {str(error)[:2000]}")
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for one in refusals(ROOT / module):
        there = [words for words in ELSEWHERE.get(module, {}) if words in one.code]
        assert all(f"def {ELSEWHERE[module][words]}" in tests for words in there)
        by_line = any(name == module and line in one.lines for name, line, _ in seen)
        if not (there or by_line or any(one.says and one.says.match(words) for *_, words in seen)):
            wrong.append(f"line {one.lines[0]} has no row: {one.code}")
    assert not wrong, "\n".join(wrong)


def test_a_message_without_a_row_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('raise BadInput(f"--x {y}: no")\nwith refused("a"): pass\ndef wrong(self):\n    yield "b"\n')
    assert [one.lines[0] for one in refusals(path)] == [1, 2, 4]
    (first, *_) = refusals(path)
    assert first.says is not None
    assert first.says.match("--x 3: no")
