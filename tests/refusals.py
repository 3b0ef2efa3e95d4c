"""The table of `test_refusals.py`: by module, what provokes each of its messages, and what the line says.

    ("mc3kd --keep 0", says)                  a command, as it is typed: a script's, or `bench ...`
    ("t.csv", content, "--kind tags", says)   a file of one's own, and what is said of it
    ("sst2:train.tsv", content, "", says)     a file of a task of the table; the task's others are good
    ("d", {name: content, ...}, "", says)     a folder; "sst2:" of a task
    ("x.toml", content, "bench run x.toml", says)
    (function, says)                          a call from Python, with the place where it happens
    (command or function, patches, says)      with something replaced, {"module.name": value}

`...` stands for any words. A command has the folders and models of `test_refusals.Place`, as {expert}.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from conftest import bert_config, draw, module_of, tiny_bart, tiny_bert, word_tokenizer
from content import MOODS, PAIRS, ROW, SCORES, asked, conll, jsonl, outputs, sheet, squad, third, values
from filelock import FileLock
from test_attention import encoder, of_the_library

from bench import figures, pages, predict, run, sweep
from common import data, evaluate, folders, heads, masking, models, own, teacher, text
from common.args import CommonArgs
from common.kinds import Split
from common.kinds.names import label_order
from common.kinds.texts import token_stream
from common.layers import attention, long
from common.run import Run
from common.tasks import TASKS
from common.teacher import Teacher
from methods import cmow, mc3kd, xtc
from pocket.models import pocket_gpt2

Row = tuple[Any, ...]
SST2 = "--task sst2 --data-dir {glue} --teacher {expert} --max-length 16"
STORED = "--task texts.csv --teacher-outputs o.csv --max-length 16"
IDS = "id,negative,positive"
WORDS, LEFT = word_tokenizer(), word_tokenizer()
LEFT.padding_side = "left"


def stored(content: str, says: str, file: str = "o.csv") -> Row:
    """A file of a teacher's outputs for 200 texts."""
    return (file, content, f"--task texts.csv --teacher-outputs {file}", says)


def unreachable(*_: Any, **__: Any) -> None:
    raise OSError("slow\nline")


def unsupported(**_: Any) -> None:
    raise ValueError("bf16 mixed precision requires another device")


def no(*_: Any) -> bool:
    return False


NO_HUB = {"huggingface_hub.HfApi.dataset_info": unreachable, "datasets.load_dataset": unreachable}


# --- calls ---------------------------------------------------------------------------------------------------


def without_mask(_: Any) -> None:
    tokenizer = word_tokenizer()
    tokenizer.mask_token = None
    masking.Masked(data.Batches(text.encode(tokenizer, ["the film"] * 4, 8), tokenizer, 4, 0), tokenizer)[0]


def without_padding(_: Any) -> None:
    tokenizer = word_tokenizer()
    split = Split(["a", "b"], [("the film",), ("the",)], [0, 1])
    encoded = data.encode(tokenizer, split, TASKS["sst2"], 8)
    tokenizer.pad_token = None
    data.collate(tokenizer, encoded, [0, 1])


def a_run(at: Any) -> Run:
    args = CommonArgs(out_dir=str(at.folder / "runs"), max_length=16, student="2x16", init="random")
    return Run(args, "m", "kd", at.task, Teacher("t", tiny_bert(), WORDS, "t"), 1)


def outputs_of_tags(at: Any) -> None:
    args = CommonArgs(teacher_outputs="o.csv", init=str(at["backbone"]), max_length=16)
    heads.stored_teacher(args, replace(at.task, task=TASKS["ner"]))


class Unreadable(torch.nn.Linear):
    device = "cpu"

    def forward(self, **_: Any) -> Any:
        raise IndexError("index out of range")


def sees_what_it_predicts(at: Any) -> None:
    models.load_model(str(at["backbone"]), models.load_config(str(at["backbone"])), "language modelling")


def no_step_left(at: Any) -> None:
    with a_run(at).loop({"student": tiny_bert()}, 1e-3, steps=0):
        pass


def other_result(at: Any) -> None:
    at.patch.setattr("common.results.load", lambda _: {"signature": "another"})
    place = a_run(at).folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "result.json").touch()
    assert a_run(at).finished


def tiny_esm() -> transformers.PreTrainedModel:
    config = transformers.EsmConfig(
        vocab_size=9, pad_token_id=1, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
    )
    return transformers.EsmForSequenceClassification(config)


def without_layers(_: Any) -> None:
    model = torch.nn.Linear(2, 2)
    model.config, model.base_model = bert_config(), torch.nn.Linear(2, 2)
    models.keep_layers(model, "first", 1)  # type: ignore[arg-type]


def no_checkpointing(_: Any) -> None:
    model = tiny_bert()
    model.supports_gradient_checkpointing = False
    models.checkpoint_activations(model)


def windows_of_two_sizes(_: Any) -> None:
    attention.from_library(of_the_library("longformer", transformers.AutoModel, attention_window=[8, 16]))


def other_head(_: Any) -> None:
    attention.from_library(of_the_library("big_bird", transformers.AutoModelForQuestionAnswering))


def no_lm_head(at: Any) -> None:
    args = {"attention": "longformer", "window": None, "init": "auto", "variant": "convert", "cache_dir": "cache"}
    long.long_teacher(SimpleNamespace(teacher=str(at["longbody"]), **args), TASKS["sst2"])


def no_epoch_of_a_stream(at: Any) -> None:
    texts = text.Texts(["a"], "", stream=SimpleNamespace())  # type: ignore[arg-type]
    at.patch.setattr(text, "open_texts", lambda *_: texts)
    args = cmow.Args(budget="paper", general_warmup_steps=3)
    cmow.general_distillation(args, SimpleNamespace(task=None, steps_for=lambda *_: 1))  # type: ignore[arg-type]


def no_separator(at: Any) -> None:
    guide: Any = SimpleNamespace(tokenizer=SimpleNamespace(sep_token_id=None))
    cmow.settings_of(cmow.Args(diffcat="on"), "random", "kd", at.task, guide)


def no_inverse(_: Any) -> None:
    same = 1e4 * torch.cat([x @ m for m in draw(20, 3, 3) for x in [draw(6, 3)]], 1).repeat(20, 1)
    mc3kd.ccc(same, same, 1e-30)


def at_work(at: Any) -> None:
    (at.folder / "lock").mkdir(exist_ok=True)
    options = SimpleNamespace(engine="local", jobs=1)
    with FileLock(at.folder / "lock" / ".lock"):
        run.carry_out(run.Matrix(at.folder / "lock", []), options)


def no_ray(at: Any) -> None:
    at.patch.setitem(sys.modules, "ray", None)
    run.carry_out(run.Matrix(at.folder / "x", []), SimpleNamespace(engine="ray", address="auto", cpus=1, gpus=0))


def one_name_twice(at: Any) -> None:
    at.patch.setitem(pages.LAYOUT["tables"], "mc3kd-few", {})
    pages.main([])


def no_such_line(_: Any) -> None:
    pages.laid_out({"matrix": "arena", "lines": {"Nobody": "nobody"}, "columns": {"mean": [""]}})


def no_such_task(_: Any) -> None:
    pages.laid_out({"matrix": "arena", "lines": {"KD": "kd"}, "columns": {"cola": ["pocket/cola"]}})


def labels_of_an_older_version(at: Any) -> None:
    for name in ("vocabulary.json", "labels.json"):
        (at.folder / name).write_text('["a", "b"]')
    predict.load(at.folder)


# --- the rows ------------------------------------------------------------------------------------------------

PAIRED = [("a", "b"), ("c",)]
ONE = Split(["p"], [("a", "b")], [0])
JUDGE = Split(["a"], [("the judge slept .",)], [None])
SPLIT = f"split,{sheet()}".replace("\nticket", "\ndev,ticket").replace("dev", "train", 40)
SEVERAL = "text,label\n" + "".join(f'text {i},"a,b"\n' for i in range(200))
TEXTS = [f"text {i}" for i in range(40)]
REFERENCES = jsonl(source="a text *", target=["un *", "une *"])
LIST = "\"['a', 'b*']\""
AS_TEXT = [  # as pandas writes lists and dictionaries
    ("Tokens,label\n" + conll(f'{LIST},"[1, 0]"'), ""),
    ("tokens,label\n" + conll(f'{LIST},"[1, 0]"'), "--text tokens"),
    ("tokens,ner_tags\n" + conll(f"{LIST},\"['O', 'O']\""), ""),
    ("text,label\n" + conll("a b*,['B-X' 'O']"), ""),
    ("text,label\n" + conll("a b*,['B-X' 'O']"), "--kind tags"),
    ("question,context,answers\n" + conll("q *,an ox,\"{'text': ['ox'], 'answer_start': [3]}\""), ""),
]
BY_ID = "id,text,label\n" + "".join(f"r{i},text {i},{('negative', 'positive')[i % 2]}\n" for i in range(200))

MATRIX = """
tasks = ["pocket/rte"]
seeds = [0, 1]
budget = "smoke"
[[rows]]
method = "mc3kd"
variant = "finetune,kd"
[[rows]]
method = "methods/cka.py"
name = "narrow"
student = "2x64"
seeds = [3]
"""
TUNED = """
tasks = ["pocket/rte", "pocket/cola"]
seeds = [0]
budgets = [640, 320]
[tune]
seeds = [7, 8]
lr = [5e-4, 1e-3, 2e-3]
[[rows]]
name = "plain"
method = "mc3kd"
variant = "finetune"
[[rows]]
name = "ours"
method = "mc3kd"
variant = "mc3kd"
weight = {beta = [0.5, 1, 2]}
"""


def matrix(old: str, new: str, says: str, whole: str = MATRIX, command: str = "run") -> Row:
    """A file of a matrix with something else in it."""
    how = f"bench {command} bad.toml" + " --dry-run" * (command == "run")
    return ("bad.toml", whole.replace(old, new), how, f"bad.toml ... {says}")


def tuned(old: str, new: str, says: str, command: str = "run") -> Row:
    return matrix(old, new, says, TUNED, command)


ROWS: dict[str, list[Row]] = {
    # --- the command line
    "common/args.py": [
        ("mc3kd --variant ,", "--variant '': must be one or several of finetune"),
        ("mc3kd --lr 1e400", "--lr inf: must be finite"),
        ("mc3kd --budget 16", "--budget 16: pays for no step of --batch-size 32"),
        ("mc3kd --teacher=", "--teacher '': names nothing"),
        ("mc3kd --teacher-outputs none.csv", "--teacher-outputs none.csv: no such file"),
        ("mc3kd --teacher a,b", "--teacher a,b: names several"),
        ("mc3kd --init runs/nowhere/made", "--init runs/nowhere/made: no such folder"),
        ("mc3kd --task ,", "--task ',': names no task"),
        ("mc3kd --task pocket/ner", "--task pocket/ner: is token classification; this method does classification"),
        (f"xtc {STORED}", "reads the teacher's layers, and has class probabilities alone here; --variant finetune,kd"),
        ("mc3kd --student 3x128 --keep 2,4", "--keep 2,4: names 2 layers, --student 3x128 has 3"),
        ("mc3kd --seed x", "--seed: invalid int value"),
        ("mc3kd --see 3", "--see: no such argument"),  # no abbreviations
        (f"mc3kd --task {'x' * 300}.csv", "File name too long"),
    ],
    "common/values.py": [
        ("mc3kd --keep 4,2", "--keep '4,2': must be first, skip, spread, top, or rising numbers from 1 on"),
        ("mc3kd --student 3X128", "--student '3X128': must be LAYERSxWIDTH"),
        ("mc3kd --student 3x100", "--student 3x100: the width must be a multiple of 8, for example 3x96"),
        ("mc3kd --budget 600s", "--budget '600s': must be smoke, quick, standard, paper, or a number of examples"),
        ("mc3kd --out-dir texts.csv/x", "--out-dir texts.csv/x: ... texts.csv is not a folder"),
        ("bench predict {student} texts.csv --out d", "--out d: is a folder; give a file"),
        ("mc3kd --out-dir a/b", {"os.access": no}, "--out-dir a/b: ... cannot be written to; give a folder that can"),
        ("mc3kd --out-dir \xfcb", {"sys.getfilesystemencoding": lambda: "ascii"}, "this locale's names are not UTF-8;"),
    ],
    "common/tasks.py": [
        ("mc3kd --task sst2 --text x", "--text, --label, --kind, --metric: are for data sets of your own"),
        ("mc3kd --task sheet.csv --data-dir d", "--data-dir d: --task sheet.csv says itself where its data are"),
        ("mc3kd --task pocket/sst22", "--task pocket/sst22: unknown task ... did you mean pocket/sst2? Known: "),
        ("mc3kd --task pocket/hotpot --data-dir .", "pocket/hotpot is built in; for your files, --task hotpot_qa"),
        ("efficient_attention --task litbank", "no repository of the hub serves it; use `--data-dir DIR`"),
        ("mc3kd --task sheet.csv --limit 5 --tune", "--tune: 5 training examples are too few to hold out a tenth"),
        ("sst2:train.tsv", third(MOODS, "a film\t1"), "", "all training labels are 'positive'; training needs at"),
        ("sst2:dev.tsv", "sentence\tlabel\n", "", "dev.tsv: no rows; the dev split needs at least one"),
        ("sst2:train.jsonl", ROW + '{"sentence": 5, "label": 0}', "", "line 2: sentence is 5; it must be text"),
        ("sst2:train.jsonl", ROW + '{"sentence": "\\ud800", "label": 0}', "", "text without a lone surrogate"),
        ("rte:train.tsv", third(PAIRS, "1\t\t\tentailment"), "", "train.tsv line 3: sentence1 is empty"),
    ],
    # --- data sets of one's own
    "common/own.py": [
        (lambda _: own.from_lists(TEXTS, [0]), "train: 40 texts and 1 labels; as many are needed"),
        (lambda _: own.from_lists(PAIRED, [0, 1]), "train: tuples must all be of two texts"),
        (lambda _: own.from_lists(TEXTS, TEXTS, kind="score"), "--kind score: must be one of classes, scores"),
        ("t.csv", "text,label\n" + "same text,a\nsame text,b\n" * 9, "",
         "t: no dev or test split, and 1 different texts of 2 classes are too few"),
        ("mc3kd --task no/such/file.csv", "--task no/such/file.csv: no such file or folder"),
        ("t.xlsx", b"PK\3\4", "", "t.xlsx: must be a .csv ... save a spreadsheet as CSV, in UTF-8"),
        ("d", {"train.csv": SPLIT, "dev.csv": sheet()}, "", "a column of train's file and a file both say what"),
        ("t.csv", "text,label,split\na,b,train\nc,d,spare\n", "", "t.csv line 3: its column 'split' must say train,"),
        ("t.csv", sheet(), "--text body", "t.csv: no column 'body' for --text; it has text, label"),
        ("t.csv", sheet(), "--label billing,login", "columns of 0 and 1 are read with --kind labels"),
        ("t.csv", "id,note,team\n1,a,b\n", "",
         "no column is known to hold the texts and the labels; it has id, note, team ... --text COLUMN"),
        ("t.csv", "text,tags,category\na,b,c\n", "", "no column is known to hold the labels; it has text, tags,"),
        ("t.csv", "text,sentence,label\na,b,c\n", "", "no column is known to hold the texts; it has text, sentence"),
        ("t.csv", "question,context,answer,answer_start\nq,a b,b,2\n",
         "--kind spans --text question,context --label answer", "its column 'answer_start' would go unread"),
        ("t.csv", sheet(), "--text label --label label", "must be one text or two, and another column"),
        ("t.csv", "text\na\nb\n", "--teacher {backbone}", "t: no row has a label, and teacher ... no head that names"),
        ("t.csv", sheet(teams=("[a]", "['a']")), "--kind labels", "t.csv line 2: no list: '[a]'"),
        ("t.csv", sheet(teams=("['a' 'b']", "['a']")), "--kind labels", "t.csv line 2: no commas in the list"),
        ("t.jsonl", jsonl(text="t *", label="('a', 'b')"), "--kind labels", "a tuple, set or dictionary as text"),
        ("t.csv", "text,a,b\nx,true,\ny,0,yes\n", "--kind labels --label a,b", "line 3: 'b' is 'yes'; must be 0 or 1"),
        ("t.csv", "text,a,b\nx,true,\ny,0,-1\n", "--kind labels --label a,b", "line 3: 'b' is '-1'; must be 0 or 1"),
        ("t.csv", sheet(teams=("",)), "--kind labels", "t: --kind labels, and no row has a label; --label COLUMN"),
        ("t.csv", sheet(), "--metric bleu", "--metric bleu: t is classification, which has accuracy, macro_f1"),
        ("t.jsonl", values(["a", "b", "c"], ["b"]), "", "its label is ['a', 'b', 'c']; --kind labels reads several"),
        ("t.csv", sheet(teams=("[0]", "[1]")), "", "line 2: its label is '[0]'; --kind labels reads several"),
        ("t.jsonl", jsonl(text="t *", label=[[0, 4, "PER"]]), "", "its label is [[0 ... spans of characters"),
        *(("t.jsonl", jsonl(text="t *", label=[part] * 2), how, f"t.jsonl line 1: ... {says}")
          for part in ([0, 4, "PER"], {"start": 0, "end": 4}, {"text": "ox", "answer_start": 1})
          for how, says in (("", "spans of characters"), ("--kind labels", "spans of characters"),
                            ("--kind tags", "entities are tagged O, B-TYPE"))),
        ("t.jsonl", REFERENCES, "--text source --label target", "['un 0', 'une 0'] ... several references are not"),
        ("t.jsonl", jsonl(text={"0": "t"}, label={"0": "*"}), "", "its label is {'0' ... takes each list as a class"),
        *(("t.csv", table, words, "line 2: its label is ... need JSON lines or Parquet") for table, words in AS_TEXT),
        ("t.csv", sheet(teams=("1.5", "2", "4")), "", "3 different numbers; --kind scores reads scores, --kind"),
        ("t.csv", sheet(60, tuple(f"id{i}" for i in range(60))), "", "line 2: 60 different labels in 60 rows; --label"),
        ("t.jsonl", jsonl(words="t *", label="a") * 2, "", "line 1: a word, or words as text; tags need CoNLL's"),
        ("t.csv", "Tokens,label\n" + conll(f"{LIST},x", "a *,y"), "", "line 2: a word, or words as text; tags"),
        ("t.csv", "text,label\n" + "".join(f"w{i},{'OB'[i % 2]}\n" for i in range(40)), "", "line 2: a word, or words"),
        ("t.csv", "text,label\n", "", "t.csv: no row has both a text and a label"),
        ("t.csv", "Vera said\nit went\n", "", "no column is known ... files of CoNLL's columns are called .conll"),
        ("t.csv", sheet(teams=("950", "1.250")), "--kind scores", "t.csv line 3: score '1.250' may mean thousands, as"),
        ("t.jsonl", jsonl(text=["t *", "u"], label="a"), "", "t.jsonl line 1: text is ['t 0', 'u']; it must be text"),
    ],
    "common/tables.py": [
        ("sst2:train.tsv", "sentence\na film\n", "", "train.tsv: no column 'label'; needs sentence, label, has"),
        ("d", {"dataset_dict.json": "{"}, "", "d: save_to_disk folder cannot be read"),
        ("sst2:train.parquet", b"PAR1 nonsense PAR1", "", "train.parquet: not a readable Parquet file"),
        ("t.csv.gz", b"no gzip", "", "t.csv.gz: cannot be read (Not a gzipped file"),
        ("sst2:train.tsv", third(MOODS, "d\xe9j\xe0\t0").encode("latin-1"), "", "train.tsv line 3: not UTF-8 (byte"),
        ("sst2:train.tsv", MOODS.encode("utf-16-le"), "", "train.tsv: binary, or UTF-16 without a mark; save it as"),
        ("sst2:train.tsv", "\ufeff\r\n", "", "train.tsv: the file is empty"),
        ("sst2:train.tsv", third(MOODS, '"a\tdull" film\t0'), "", "line 3: 3 columns where 2 are needed"),
        ("sst2:train.csv", 'sentence,label\n"a" film,1\n', "", "train.csv line 2: ... check the quotes and separators"),
        ("sst2:train.jsonl", ROW + "[" * 100_000, "", "train.jsonl line 2: not JSON ... one object a line"),
        *(("t.json", table, "", 't.json ... one object ... as pandas writes with orient="records"') for table in (
            '{"text": {"0": "a"}}', '{\n "data": [\n  {"text": "a"}\n ]\n}')),
        ("t.json", '[{"text": "a"', "", "t.json: not JSON ... one object a line, or a list"),
        ("t.json", "[1, 2]", "", "t.json row 1: int; one object a line"),
        ("t.json", "[]", "", "t.json: no rows; one object a line"),
        ("t.jsonl", '["a", "b"]\n["c", "d"]\n', "", "t.jsonl line 1: list; one object a line"),
        ("t.csv", b"PK\3\4", "", "t.csv: a spreadsheet, or a zip archive; save it as CSV"),
        ("t.csv", '""\n', "", "t.csv: its first line is ''; it must name the columns"),
        ("t.csv", "sep=;\ntext;label\na;b\n", "", "t.csv: its first line is 'sep='; it must name the columns"),
        ("t.csv", '[{"text": "a"}]' + " " * 140_000, "", "JSON needs a name in .json or .jsonl"),
        ("t.csv", sheet(more="text,label\n"), "", "t.csv line 62: the columns' names once more"),
        ("t.csv", 'label,text\na, "b"\n', "", "t.csv: a blank before quotation marks makes both a part of the text"),
    ],
    "common/folders.py": [
        (lambda _: folders.splits_of({"train": 1}, ["dev"], ["dev"], "x"), "x: no dev split; needs 'validation', has"),
        ("wmt16/en-ro:train.jsonl", '{"translation": {"en": "a"}}\n', "", "line 1: not as wmt/wmt16 has it"),
        ("mc3kd --task sst2 --data-dir none", "--data-dir none: no such folder"),
        ("mc3kd --task sst2 --data-dir texts.csv", "--data-dir texts.csv: not a folder"),
        ("sst2:state.json", "{}", "", "one split written by save_to_disk; save a DatasetDict with train and"),
        ("sst2:", {"train.tsv": MOODS}, "", "no dev split; needs dev or validation with .csv, .tsv ... has train.tsv"),
        ("sst2:", {"train-00000-of-00002.parquet": b""}, "", "1 of the 2 files train-*-of-00002*.parquet; all of them"),
        ("sst2:validation.tsv", MOODS, "", "dev.tsv and validation.tsv both hold the dev split; leave one"),
    ],
    "common/hub.py": [
        ("mc3kd --task rte", NO_HUB, "--task rte: nyu-mll/glue@ ... from the hub or its cache (OSError: slow);"),
    ],
    # --- kinds of tasks
    "common/kinds/__init__.py": [
        (lambda _: data.encode(WORDS, ONE, TASKS["rte"], 4), "max length 4: rte needs at least 5 tokens"),
    ],
    "common/kinds/sentences.py": [
        ("sst2:train.tsv", third(MOODS, "a film\tmaybe"), "", "line 3: label 'maybe' is unknown; sst2 has negative,"),
        ("stsb:train.tsv", third(SCORES, "a\tb\t5.1"), "", "score '5.1' is wrong; stsb needs a number from 0 to 5"),
        ("t.csv", sheet(60, tuple(f"{i},674" for i in range(1, 61)), ";"), "--kind scores",
         "t.csv line 2: score '1,674' is wrong; t needs a number, without a comma that may mean thousands"),
        stored(outputs(IDS, lambda i: [f"r{i}", 84.4, 15.6]), "line 2: its numbers sum to 100, as percentages do"),
        stored(outputs(IDS, lambda i: [f"r{i}", 0.5, 0.4 if i == 7 else 0.5]), "line 9: its probabilities sum to 0.9"),
    ],
    "common/kinds/own.py": [
        ("t.jsonl", jsonl(text="t *", label=[[0, 4, "PER"]]), "--kind classes",
         "t.jsonl line 1: its label is [[0 ... no class is a list of lists, such as spans of characters"),
        ("d", {"train.csv": sheet(), "test.csv": sheet(6, ("?",))}, "", "test: train has none of its labels, ?; leave"),
    ],
    "common/kinds/names.py": [
        (f"mc3kd {SST2} --teacher {{unnamed}} --label-map 0=negative",
         "--label-map 0=negative: must name each output of the teacher once, 0=NAME,1=NAME"),
        (lambda _: label_order({1: "pos", 2: "neg"}, TASKS["sst2"], "x"), "x: its outputs are numbered 1, 2;"),
        (lambda _: label_order({0: "cat", 1: "dog"}, TASKS["sst2"], "x"), "x: its outputs (cat, dog) do not fit sst2,"),
    ],
    "common/kinds/multilabel.py": [
        ("t.jsonl", values(["yes", "no", "yes"], ["no"]), "--kind labels", "yes, no, yes: a label stands there twice"),
        ("t.jsonl", values(["0.9", "b"], ["b"]), "--kind labels", "are no names of labels, which a list holds"),
        ("t.jsonl", values([0, 1, 0], [1, 1, 0]), "--kind labels", "t.jsonl line 1: 0, 1 are no names of labels"),
        *(("t.jsonl", values(*two), "--kind labels", "need a column for each label") for two in (
            ([1.0, 0.0], [0.0, 1.0]), ("[0.9, 0.1]", "[0.2, 0.8]"), ([True, False],))),
        ("t.csv", sheet(teams=("x",)), "--kind labels", "--kind labels: 'x' is the only label"),
        ("d", {"train.csv": sheet(), "test.csv": "text,label\nz,\n"}, "--kind labels", "test: no row has a label;"),
        ("o.csv", outputs("a,c", lambda _: [1, 0]), "--task several.csv --kind labels --teacher-outputs o.csv",
         "several.csv line 2: labels ['a', 'b'] are unknown; several has a, c"),
    ],
    "common/kinds/documents.py": [
        (lambda _: TASKS["ner"].kind.tokenise(SimpleNamespace(
            is_fast=False, num_special_tokens_to_add=lambda pair: 2), ONE, TASKS["ner"], 16),
         "SimpleNamespace does not say where its tokens stand; ner needs that"),
        ("t.conll", conll("Vera B-PER", "w*"), "", "t.conll line 2: 1 columns where 2 are needed, a word first and"),
        *(("t.tsv", conll("Vera\tB-PER", "w*\tO") + f"\n{row}\n", "", f"t.tsv line 61: {count} columns where 2")
          for row, count in (("Vera B-PER", 1), ("New\tYork\tB-LOC", 3))),
        ("t.conll", conll("Vera PER", "w* O"), "", "t.conll line 1: tag 'PER': entities are tagged O, B-TYPE"),
        *(("t.bio", conll(*rows), "", f"tag {tag!r}: entities are tagged O, B-TYPE") for tag, *rows in (
            ("0", "Vera B-PER", "w* 0"), ("Vera", "B-PER Vera", "O w*"))),
        ("t.tsv", conll("10 000\tB-PRICE", "w*\tO"), "", "line 1: word '10 000': must not be empty, nor hold blanks"),
        ("t.tsv", conll("\tB-PRICE", "w*\tO"), "", "t.tsv line 1: word '': must not be empty, nor hold blanks"),
        ("t.conll", "Vera B-PER\nsaw O\n" * 20, "", "t.conll: one sentence alone; a blank line ends each"),
        ("litbank:train.txt", "\n-DOCSTART- O\n", "", "train.txt: no words with tags"),
        ("t.conll", conll("1-1\tVera\tB-PER", "1-2\tw*\tO"), "", "its first column holds numbers or ids; a word"),
        ("t.jsonl", jsonl(tokens=["New *", "x"], ner_tags=["O", "B-X"]), "", "word 'New 0': must not be empty, nor"),
        ("t.tsv", "# page\n" + conll("1\tVera\tB-PER\tO", "2\tw*\tO\tO"), "", "t.tsv: its first column holds numbers"),
        ("t.csv", sheet(), "--kind tags", "t.csv line 2: tag 'billing': entities are tagged O"),
        ("t.jsonl", jsonl(tokens=["a", "b*"], ner_tags=["O", "O"]), "", "t.jsonl line 1: every tag is O"),
        ("t.jsonl", jsonl(tokens=["w*"], ner_tags=["B-X"]), "", "t.jsonl line 1: every row has one tag; give"),
        ("t.tsv", "text\tlabel\n" + conll("V*\tB-PER", "w*\tO"), "", "t.tsv line 2: every row has one tag"),
        ("t.jsonl", jsonl(tokens="['a', 'b*']", ner_tags=["O", "B-X"]), "", "its words are a list as text; lists need"),
        *(("t.jsonl", jsonl(tokens=words, ner_tags=["O", "B-X"]), "", "its words are a list as text")
          for words in ('["a" "b*"]', "[ 'a', 'b*' ]")),
        ("gonerd:train.jsonl", '{"tokens": ["a"], "ner_tags": []}', "", "train.jsonl line 1: 0 tags for 1 words"),
        ("gonerd:train.txt", "the O\nfilm B-FILM\n", "", "train.txt line 1: tag 'B-FILM' is unknown; gonerd has O,"),
        ("squad:train.json", "{", "", "train.json: not JSON ... of SQuAD's layout"),
        ("squad:train.json", '{"data": [1]}', "", "train.json: not SQuAD's layout ... paragraphs"),
        ("squad:train.json", '{"data": []}', "", "train.json: no questions"),
        ("t.csv", sheet(), "--kind spans", "t.csv line 2: spans need a question and its context ... QUESTION,CONTEXT"),
        ("squad:train.json", squad(answers=[]), "", "train.json question q: answers are ... one text or more"),
        ("t.jsonl", jsonl(question="q *", context="an ox", answers=["ox"]), "--kind spans", "t.jsonl line 1: answers"),
        ("t.jsonl", asked({}), "", "t.jsonl line 1: answer_start is [{}] ... one number for each answer is needed"),
        ("squad:train.json", squad(answers=[{"text": "dull", "answer_start": 2}]), "", "no question of squad has its"),
    ],
    "common/kinds/texts.py": [
        (lambda _: data.encode(pocket_gpt2("pocket")[1], JUDGE, TASKS["lm"], 20), "max length 20: lm has 5 tokens,"),
        (lambda _: token_stream(SimpleNamespace(eos_token_id=None), JUDGE), "its SimpleNamespace has no end-of-text"),
        ("tatoeba/en-fr:train.tsv", "source\ttarget\na film\t\n", "", "train.tsv line 2: the answer is ''; it must be"),
        ("t.jsonl", REFERENCES, "--text source --label target --kind texts", "it must be one text"),
        ("t.csv", "text,label\na,\"['b c', 'd']\"\n", "--kind texts", "line 2: the answer is a list as text, \"['b"),
    ],
    # --- the teacher, and outputs in its place
    "common/outputs.py": [
        stored(f"{IDS}\n", "--teacher-outputs o.csv: no rows"),
        stored(outputs(IDS, lambda i: [f"r{i % 199}", 0.5, 0.5]), "o.csv line 201: id 'r0' stands twice"),
        stored(outputs("label,score", lambda i: ["positive", 0.9]), "has the best class alone ('label', 'score')"),
        stored(outputs("name,model", lambda i: ["a", "b"]), "needs a column of numbers for each class, or what"),
        stored("\n".join(f'[{{"label": "{x}", "score": 1}}]' for x in "aab"), "line 1: lacks b; every", "o.jsonl"),
        stored(outputs(IDS, lambda i: [f"r{i}", 0.5, "" if i == 7 else 0.5]), "line 9: output '' of 'positive' is no"),
        stored(outputs("text,a,b", lambda i: [f"text {i}", 0, 1]), "o.csv line 2: its 'text' is not that of texts.csv"),
        stored(outputs("a,b", lambda i: [0.5, 0.5], 151), "o.csv: 151 rows, train has 200; one for each, in order"),
        ("o.csv", outputs(IDS, lambda i: [f"r{i}", 1, 0]), "--task plain.csv --teacher-outputs o.csv",
         "o.csv: has ids, train no column 'id'; give both, or neither"),
        ("d", {"train.csv": BY_ID + "r7,x,negative\n"}, "--teacher-outputs o.csv", "train.csv line 202: id 'r7'"),
        ("d", {"train.csv": BY_ID, "dev.csv": BY_ID[:33]}, "--teacher-outputs o.csv", "id 'r0' stands in train too:"),
        stored(outputs(IDS, lambda i: [f"x{i}" if i == 7 else f"r{i}", 1, 0]), "no outputs for 1 of 200 rows of train"),
        ("o.csv", outputs("a,b", lambda _: [1, 2]), "--task plain.csv --kind scores --teacher-outputs o.csv",
         "o.csv: 2 numbers a row; plain has one score"),
        ("o.csv", outputs("LABEL_0,LABEL_1", lambda _: [1, 0]), "--task labelled.csv --teacher-outputs o.csv",
         "o.csv: does not say which class is which; give a column for each of negative, positive"),
    ],
    "common/heads.py": [
        (lambda at: heads.teacher_of(tiny_bert(), WORDS, at.task), "its outputs have no"),
        (f"mc3kd {SST2} --teacher {{five}} --label-map 0=a,1=b,2=c,3=d,4=e", "its head has 5 outputs, sst2 2"),
        (f"mc3kd {STORED} --variant kd", "--teacher-outputs o.csv: has no tokenizer; --init MODEL gives the student"),
        (outputs_of_tags, "--task sst2: is token classification; only classes and scores of texts are learnt from"),
        ("mc3kd --task halves --teacher-outputs half.csv --variant kd --init {backbone} --max-length 16",
         "--teacher-outputs half.csv: dev has neither labels nor outputs here"),
    ],
    "common/teacher.py": [
        (lambda _: Teacher("t", tiny_bert(), None, "", stored=True)(None, [1]), "teacher t: is outputs alone, without"),
        (f"mc3kd {SST2} --teacher pocket", "--teacher pocket: reads only the pocket suite; sst2 needs a hub id"),
        (f"mc3kd {SST2} --teacher {{words}}", "its tokenizer has 104 words, the model 31 embeddings"),
        ("cka --task pocket/xsum --teacher {backbone} --max-length 16", "is no encoder-decoder, which pocket/xsum"),
        (f"cmow {SST2} --teacher {{matrices}}", "has no layers of one width; a transformer is needed"),
        (lambda _: teacher.pad("t", SimpleNamespace(vocab_size=0), WORDS), "--teacher t: its tokenizer has no token"),
        (f"mc3kd {SST2} --max-length 65", "--max-length 65: the teacher has 64 positions; give that or less"),
    ],
    "common/tuning.py": [
        ("mc3kd --task texts.csv --teacher {expert}:2 --variant kd --max-length 16", "which has no labels to"),
        (f"mc3kd {SST2} --teacher {{backbone}} --teacher-epochs 0", "has no head for sst2, it has to be fine-tuned"),
    ],
    "common/models.py": [
        (f"mc3kd {SST2} --teacher {{noconfig}}", "is a folder without a config.json that names a known model_type"),
        (f"mc3kd {SST2} --teacher {{lora}}", "holds an adapter of PEFT, which is not read; merge_and_unload() makes"),
        (f"mc3kd {SST2} --teacher {{expert}}:7", ":7: the model has 3 layers; give 3 or fewer"),
        (lambda _: models.student_config(transformers.GPTNeoConfig(), 2, 2048), "gpt_neo: cannot be cut to 2 layers"),
        (f"mc3kd {SST2} --teacher {{badtokens}}", "has no tokenizer that can be loaded"),
        (f"mc3kd {SST2} --teacher {{notokens}}", "has no tokenizer; its files have to be in the same folder"),
        (f"mc3kd {SST2} --teacher {{packed}}:1", "its weights are packed, none can be trained"),
        (f"mc3kd {SST2} --teacher {{packed}} --init teacher --student 2x32", "--init teacher: its weights are packed"),
        (f"mc3kd {SST2} --teacher {{nohead}}", "2 weights are not in its file, the first is classifier.bias"),
        (sees_what_it_predicts, "sees the tokens that it has to predict"),
        (f"mc3kd {SST2} --teacher {{cut}}", "damaged model.safetensors"),
        (f"mc3kd {SST2} --teacher {{noweights}}", "its weights cannot be loaded (no model.safetensors"),
        (f"mc3kd {SST2} --teacher {{nolayer}}", "weights are not in its file, the first is bert.encoder.layer.1"),
        (f"mc3kd {SST2} --teacher {{infinite}}", "its classifier.bias is not finite; another file"),
        (lambda _: models.keep_layers(tiny_bart(3), "first", 3), "an encoder-decoder has as many layers on both sides"),
        (f"xtc {SST2} --student 5x32", "--student: 5 layers cannot be kept of 3"),
        (f"xtc {SST2} --student 2x32 --keep 1,9", "--keep 1,9: names 2 layers, the student has 2 of 3"),
        (lambda _: models.keep_layers(tiny_esm(), "skip", 1), "esm: cannot be cut to 1 layers, esm.contact_head"),
        (without_layers, "--teacher: bert has no list of 2 layers to choose from"),
        (lambda _: models.no_hidden_states(tiny_bart()), "the hidden states of a bart that labels texts are not"),
        (lambda _: models.HiddenStates({1: torch.ones(1)})[2], "layer 2 were not asked for; those that were: 1"),
        (no_checkpointing, "--gradient-checkpointing: bert does not support it"),
    ],
    "common/data.py": [(without_padding, "BertTokenizer has no padding token")],
    "common/evaluate.py": [
        (lambda at: evaluate.check_padding("m", tiny_bert(3, 32), LEFT, at.task, 16), "m: padding on the left of"),
        (lambda at: evaluate.check_padding("m", Unreadable(1, 1), WORDS, at.task, 16), "m: cannot read texts of sst2"),
        (lambda at: evaluate.evaluate(tiny_bert(), WORDS, at.task, 16),
         {"common.evaluate.scored": lambda *_: {"accuracy": math.nan}}, "the accuracy on dev is nan: try a lower --lr"),
    ],
    "common/parallel.py": [
        ("mc3kd --device cuda", "--device cuda: this machine has no CUDA; --device cpu or auto would work"),
        ("mc3kd --precision bf16", {"common.parallel.Accelerator": unsupported},
         "--precision bf16 --device auto: bf16 mixed precision requires"),
        ("mc3kd --precision fp16", "--precision fp16: needs a CUDA device, this is cpu"),
    ],
    # --- a run
    "common/run.py": [
        ("mc3kd --task texts.csv --teacher {expert} --variant finetune --max-length 16", "learns from labels, and"),
        (f"dist {SST2} --variant dist --accumulate 2 --student 2x32", "--accumulate 2: the loss of dist is a"),
        (no_step_left, "--budget 6400: its stages leave no step for kd; give more"),
        (other_result, "is no result of these settings; --force replaces it"),
        (f"mc3kd {STORED} --teacher {{backbone}} --init teacher --variant kd", "is outputs alone, without weights;"),
        (f"mc3kd {SST2} --init pretrained --student 2x32", "has no pre-trained checkpoint; --init random works"),
        (f"mc3kd {SST2} --init {{roberta}} --student 2x32", "a roberta of 32 words, the teacher is a bert of 31"),
        (f"mc3kd {SST2} --init {{others}} --student 2x32", "its tokenizer has other words than the teacher's"),
        (f"mc3kd {SST2} --init teacher --student 2x16", "the student is 16 wide, the checkpoint 32"),
        (f"mc3kd {SST2} --init teacher --student 5x32", "the checkpoint has 3 layers to copy from, the student 5"),
        (f"mc3kd {SST2} --teacher {{squeeze}} --student 1x16", "--student 1x16: no squeezebert can be made so (Assert"),
        (f"cka {SST2} --init teacher --student 2x32 --variant kd --ffn 40", "copied as wide as they are, not 40"),
    ],
    # --- texts
    "common/corpus.py": [
        ("cmow --corpus ,", "--corpus ',': names no text; give a file"),
        ("cmow --corpus none.txt", "--corpus none.txt: no such file; give one or several of FILE.txt"),
        ("cmow --corpus sheet.csv", "--corpus sheet.csv: must be .txt or .jsonl"),
        (lambda at: text.open_texts("words.jsonl", at.task), "--corpus words.jsonl: a row without a text; each needs"),
        (lambda at: text.open_texts("hub:empty", at.task), "--corpus hub:empty: cannot be read"),
        (lambda at: text.open_texts("broken.jsonl", at.task), "--corpus: cannot be read"),
        (lambda at: text.open_texts("hub:x/others", at.task), NO_HUB, "--corpus hub:x/others: not to be had from the"),
    ],
    "common/text.py": [
        (lambda at: text.open_texts("blank.txt", at.task), "--corpus blank.txt: no text is left"),
        (lambda at: text.open_texts("one.txt", at.task).hold_out(1), "--corpus: one text alone is too few"),
        (lambda _: list(text.pieces_of(SimpleNamespace(cls_token_id=None), [], 12)), "has no [CLS] and [SEP] to put"),
    ],
    "common/masking.py": [
        (without_mask, "--teacher: its tokenizer has no token for what is masked"),
        (lambda at: masking.load_masked_lm(str(at["gpt2"])), "a gpt2 gives no masked language model; ... pretraining"),
    ],
    # --- attention
    "common/layers/attention.py": [
        (lambda _: attention.padding_mask(attention_mask=torch.tensor([[0, 1]])), "its tokenizer pads in front"),
        (lambda _: attention.convert(encoder(), "linformer", 64), "must be one of longformer, bigbird"),
        (lambda _: attention.convert(of_the_library("longformer"), "lsg", 64), "the model is a longformer already"),
        (lambda _: attention.convert(encoder("xlnet"), "lsg", 64), "xlnet has no exchangeable attention with learned"),
        (lambda at: attention.load(at["long"], transformers.AutoModelForTokenClassification), "weights are missing,"),
        (windows_of_two_sizes, "longformer with layers or embeddings of its own kind is not read here"),
        (other_head, "BertForQuestionAnswering does not fit this big_bird, the first weight is"),
        (lambda _: attention.convert(encoder(), "lsg", 64), "its global tokens start from [CLS] and [MASK]"),
        (lambda _: attention.attention_inputs(encoder("xlnet"), None, 1), "queries and keys of a xlnet cannot be had;"),
        (lambda _: attention.attention_inputs(encoder(), None, 5), "layer 5: the model's layers are 1 to 4"),
    ],
    "common/layers/augment.py": [
        (f"cmow {STORED} --variant kd --augment 2 --teacher {{backbone}} --student cbow-16", "is outputs alone,"),
    ],
    "common/layers/scores.py": [
        ("mc3kd --task years.csv --kind scores --teacher {gpt2} --max-length 16", "their mean is 2000 ... of a gpt2"),
    ],
    "common/layers/long.py": [
        (f"efficient_attention {SST2} --teacher {{long}} --attention lsg", "the teacher's is bigbird; give"),
        (f"efficient_attention {SST2} --teacher {{long}} --attention bigbird --window 8", "has one of its own; leave"),
        (f"efficient_attention {SST2} --teacher {{long}} --attention bigbird --init random --variant convert",
         "is long and is not converted; leave it out"),
        (no_lm_head, "has no masked-LM head, from which it could be distilled"),
    ],
    # --- methods
    "methods/mc3kd.py": [
        (no_inverse, "a ridge of 1e-30: leaves a covariance without an inverse"),
        ("mc3kd --variant pkd-skip --student 1x128", "--student 1x128: its last layer is left out, so it needs 2 or"),
        ("mc3kd --variant mc3kd --accumulate 2", "--accumulate 2: the hidden loss is of a batch's tokens"),
        ("mc3kd --task pocket/lm --variant pkd-last", "--variant pkd-last: compares [CLS] vectors, and pocket/lm has"),
        (f"mc3kd {SST2} --variant mc3kd --student 5x16", "--student: 5 layers need as many teacher layers"),
        (f"mc3kd {SST2} --variant pkd-skip --student 2x16", "--variant pkd-skip: PKD's MSE needs equal widths;"),
    ],
    "methods/xtc.py": [
        ("xtc --accumulate 4", "--accumulate 4: xtc's losses are of a batch's tokens"),
        ("xtc --variant xtc --stages 2 --stage-steps 3", "--stage-steps '3': must be equal, or one number for each of"),
        (lambda _: xtc.quantize(encoder("xlnet"), 1), "--teacher: xlnet's layers hold matrices outside linears"),
        (lambda at: xtc.load_latent(tiny_bert(), at.folder), "its weights do not fit ... its --student and"),
        (f"xtc {SST2} --teacher {{gpt2}}", "XTC compresses encoders, and a gpt2 is none"),
        (f"xtc {SST2} --student 2x16", "--student 2x16: layers are left out, not narrowed; 2x32 would do"),
    ],
    "methods/cka.py": [
        (f"cka {SST2} --variant cka --student 5x16 --pretraining off", "--student: 5 layers need as many teacher"),
        (f"cka {SST2} --variant cka --student 2x16 --layer-map 1,9 --pretraining off", "--layer-map 1,9: must name up"),
        ("cka --minibatches 5", "--minibatches 5: must divide the batch size, 32"),
        ("cka --pretraining-minibatches 5", "--pretraining-minibatches 5: must divide the batch size, 32"),
        ("cka --accumulate 2", "--accumulate 2: is --minibatches here"),
        ("cka --layer-map 0,2", "--layer-map 0,2: must be uniform, or teacher layers from 1 on"),
        ("cka --prompt x", "--prompt 'x': is for translation and summarisation"),
        ("cka --tokens cls --task pocket/translate", "--tokens cls: the encoder-decoders of pocket/translate have no"),
        ("cka --variant cka,wopt --task pocket/xsum", "--variant cka,wopt: are the same where nothing is pre-trained"),
        (f"cka {SST2} --variant mse --student 2x16", "--variant mse: compares states of one width; --student 2x32"),
        (f"cka {SST2} --variant cka --student 2x16 --pretraining-teacher {{roberta}}", "has another vocabulary than"),
    ],
    "methods/cmow.py": [
        ("cmow --keep top", "--gradient-checkpointing, --keep: this student has no layers"),
        ("cmow --init nowhere", "--init nowhere: must be random, general, or a folder of matrix embeddings"),
        ("cmow --init {expert},{backbone}", "one folder at a time; the rows of two would have one name"),
        ("cmow --student cmow-4 --head cnn --batch-size 1", "--batch-size 1: --head cnn has a batch norm"),
        ("cmow --general-weights 5", "--general-weights '5': must be two numbers"),
        ("cmow --student 2x128", "--student '2x128': must be cbow"),
        ("cmow --head cnn --student hybrid-3-10", "--head cnn: needs matrices of 3 x 3 or more, and vectors of as"),
        (no_epoch_of_a_stream, "--general-warmup-steps: how many steps an epoch of a stream has is not known"),
        (f"cmow {SST2} --init {{expert}} --student cbow-16", "holds no matrix embeddings of this --student"),
        ("mc3kd --task pocket/sst2 --stsb classes", "--stsb"),
        (no_separator, "--diffcat on: pocket's tokenizer has no separator between two texts"),
        (f"cmow {SST2} --init {{others}} --student cbow-16", "its tokenizer has other words than the teacher's"),
    ],
    "methods/efficient_attention.py": [
        ("efficient_attention --convert-share 0.5 --distil-share 0.5", "--distil-share 0.5: leaves nothing to"),
        ("efficient_attention --attention lsg --window 6", "--window 6: LSG halves a block and pairs what is left"),
        ("efficient_attention --keep 1,3", "--keep 1,3: half keeps layers 1, 3, 5, ...; give --student LAYERSxWIDTH"),
        ("efficient_attention --init teacher", "--init teacher: convert-distil goes on from the pretrained model"),
        (f"efficient_attention {SST2} --student 2x16", "--student 2x16: has to be as wide as the teacher, 32; or half"),
        (f"efficient_attention {SST2} --variant convert-distil-kd --max-length 64 --short-length 32",
         "the teacher reads 32 tokens and the student 64; give a --teacher that is long, or --max-length 32"),
    ],
    "bench/baselines/dynakd.py": [
        ("dynakd --variant dynakd --teacher pocket", "--variant dynakd: chooses among several teachers"),
        (f"dynakd {SST2} --variant dynakd --pool {{others}}", "another vocabulary than"),
        (f"dynakd {SST2} --variant dynakd --pool {{expert}}", "names no teacher besides"),
    ],
    "bench/baselines/linear.py": [
        ("linear --budget paper", "--budget paper: a linear model has no paper"),
        (lambda at: module_of("linear").fit(at.task, at.task.splits["train"].rows([0, 2]), 3.0), "the first 2 rows"),
    ],
    "bench/baselines/minilm.py": [
        (f"minilm {SST2} --variant minilm-kd --teacher-layer 9", "--teacher-layer 9: the teacher has 3 layers"),
        (f"minilm {SST2} --variant minilm-kd --relation-heads 5", "--relation-heads 5: must divide both widths"),
    ],
    # --- the bench
    "bench/__init__.py": [
        ("bench run quick --jobs 0", "--jobs 0: must be 1 or more"),
        ("bench run none.toml", "none.toml: cannot be read"),
        matrix("[[rows]]", "[[rows", "damaged, or not TOML"),
    ],
    "bench/__main__.py": [("bench paper", "python -m bench paper: no such command; there is run, arena")],
    "bench/matrix.py": [
        ("bench table bench/arena.toml", "bench/arena.toml: cannot be read (No such file"),
        ("part.toml", 'of = "{0}/half.toml"', "bench run part.toml", "half.toml is a part of another file itself"),
        ("part.toml", 'of = "{0}/whole.toml"\nrows = ["x"]', "bench run part.toml", "has no 'x'; it has mc3kd, narrow"),
        ("bench run quick --rows kd,nobody", "--rows nobody: quick has undistilled"),
        matrix("[[rows]]", "[[lines]]", "needs [[rows]], each with a method"),
        matrix('"narrow"', '"a/b"', "name 'a/b': must be letters, digits"),
        matrix('"narrow"', '"mc3kd"', "two rows are called mc3kd; give one another `name`"),
        ("mc3kd.toml", MATRIX, "bench run mc3kd.toml", "its results would go to runs/mc3kd, where scripts leave"),
        matrix("methods/cka.py", "common/args.py", "row narrow: method 'common/args.py': must be one of cka, cmow"),
        tuned("lr = [5e-4", "C = []\nlr = [5e-4", "tune: C: must be a list of values to try"),
        tuned('"finetune"', '"finetune"\nlr = 1e-3', "row plain: lr: is tuned, and cannot be given as well"),
        tuned("seeds = [0]", "seeds = [7]", "row plain: seeds: 7 is a seed of the trials"),
        tuned("{beta = [0.5, 1, 2]}", "{beta = 1}", "row ours: weight = {'beta': 1}: must be one argument with three"),
        tuned("[0.5, 1, 2]", "[0, 0, 1]", "row ours: beta = [0, 0, 1]: must be different numbers"),
        tuned("weight = {", "beta = 3\nweight = {", "beta: the row has 3, which must stand in the middle"),
        tuned("budgets = [640, 320]", 'budgets = [640]\nbudget = "64"', "budgets: there is a budget as well"),
        matrix('student = "2x64"', "studnet = 2", "row narrow: studnet: no argument of methods/cka.py"),
        matrix('student = "2x64"', "student = {a = 1}", "row narrow: student: must be one value"),
        matrix("seeds = [0, 1]", "seeds = [0, 0]", "row mc3kd: seeds = [0, 0]: must be a list of one or more"),
    ],
    "bench/run.py": [
        (at_work, "another run of the bench is at work there"),
        ("bench run quick --seeds a", "--seeds a: must be numbers with commas"),
    ],
    "bench/cluster.py": [(no_ray, "--engine ray: needs `pip install -r requirements-cluster.txt`")],
    "bench/sweep.py": [
        ("bench sweep mc3kd_claims", "mc3kd_claims: needs [tune] with seeds"),
        tuned('"finetune"', '"finetune,kd"', "row plain: variant: a row that is tuned has one", "sweep"),
        (lambda _: sweep.Search.mean(SimpleNamespace(out=None), SimpleNamespace(
            lacking=lambda: [SimpleNamespace(row="x")])), {"bench.run.made_by": lambda *_: ["first", "second"]},
         "x: trains 2 students at once; a tuned row trains one"),
        ("bench sweep linear --variants linear", "declares no grid; GRID of its Args would"),
        ("bench sweep arena --lr 1", "--lr: no such argument; what trials have stands in the file"),
        ("part.toml", 'of = "{0}/tuned.toml"\nrows = ["plain"]', "bench sweep part.toml", "its rows have the trials"),
        ("bench sweep mc3kd", "--variants: of which variants?"),
    ],
    "bench/records.py": [
        ("bench table none", "none: no such folder; `python -m bench run` makes it"),
        ("bench table damaged.jsonl.gz", "damaged.jsonl.gz: cannot be read, or not a file of"),
    ],
    "bench/table.py": [
        ("bench table empty", "empty: no result.json there"),
        ("bench table {kept}/real_few.jsonl.gz --budget 5", "--budget 5: the results have"),
    ],
    "bench/arena.py": [
        ("bench arena sheet.csv --teacher {backbone} --rows best", "--rows best: the arena has undistilled, kd"),
        ("bench arena tags.conll --teacher {backbone} --student 2x16 --rows longformer", "no row is left for token"),
        ("bench arena sheet.csv --teacher {backbone} --student 2x32 --budget paper", "--budget paper: is in epochs"),
        ("bench arena sheet.csv --text", "arguments of the scripts come as --name value"),
        ("bench profile {kept}/real_few.jsonl.gz --task cola", "--task cola: must be of sst2"),
        ("bench profile {kept}/real_few.jsonl.gz", "no student is saved there"),
        ("bench arena pocket/rte --tune true", "--tune: is the arena's own"),
        ("bench arena sheet.csv", "--teacher pocket: reads only the pocket suite; give a hub id or a model folder"),
        ("bench arena pocket/xsum", "pocket/xsum: is summarisation; the arena compares students that label texts"),
    ],
    "bench/predict.py": [
        ("bench predict empty texts.csv", "predict empty: no student is there"),
        (labels_of_an_older_version, "labels.json is damaged, or older; linear.py --force writes it anew"),
        ("bench predict {tags} texts.csv", "BertForTokenClassification gives no class or score of a text"),
        ("bench predict {trained} texts.csv --text a,b", "--text a,b: 1 are needed, in training they were body"),
        ("bench predict {student} several.csv --text label --against {trained}", "read other columns: body, not label"),
        ("bench predict {student} several.csv --text body", "no column body, it has text, label; --text COLUMN names"),
        ("bench predict {student} number.jsonl", "number.jsonl line 1: 5 is no text"),
        ("bench predict {scores} labelled.csv --against {scores}", "answers otherwise than labelled-"),
        ("bench predict {student} texts.csv --out texts.csv", "--out texts.csv: exists; give another name"),
        ("bench predict {student} a.csv --against {trained} --out c.csv", "--out c.csv: --against prints scores"),
    ],
    "bench/papers.py": [("bench papers mc3kd --table X", "--table X: mc3kd has 1, 2")],
    "bench/speed.py": [("bench speed nothing", "nothing: no case has this word; there is")],
    "bench/pages.py": [
        (lambda _: pages.kept("nowhere"), "nowhere: has no checked-in result"),
        (lambda _: pages.filled("<!-- table nowhere -->\n<!-- end -->"), "<!-- table nowhere -->: no such table"),
        (one_name_twice, "docs/tables.toml: mc3kd-few is a table of docs/tables.md already"),
        (lambda _: pages.chosen("arena", "nobody"), "arena: has no row nobody"),
        (no_such_line, "docs/tables.toml: arena has no row nobody"),
        (no_such_task, "docs/tables.toml: arena has no task or line 'pocket/cola'; tasks go without pocket/"),
        (lambda _: pages.filled("<!-- highest arena kd -->+1<!-- end -->"), "<!-- highest -->: a mark has no end"),
        (lambda _: pages.filled("<!-- score arena kd -->+1"), "<!-- score -->: a mark has no end, or is of no kind"),
        (lambda _: pages.said("lower", "arena mse-kd - kd, grammar"), "a page says that arena mse-kd - kd, grammar is"),
    ],
    "bench/figures.py": [
        (lambda at: figures.mc3kd_compared(np.ones((3, 3)), np.ones((4, 4)), at.folder, "x"), "figure 9 compares"),
        ("bench figures mc3kd-track {record}", "its log has no epochs; run methods/mc3kd.py with --budget paper"),
        ("bench figures xtc {record}", "is no run of methods/xtc.py with 1 or 2 bits"),
        ("bench figures cmow one --ot x", "--ot: no such argument; the figure cmow takes none of a script"),
        ("bench figures cmow one", "'one': must be two or three different words"),
        ("bench figures cka-curve 4", "'4': must be a width of 8 to 1,024"),
        ("bench figures xtc nowhere", "nowhere: holds no result.json"),
        ("bench figures attention none", "attention none: the figure has full, longformer"),
        ("bench figures arena {kept}/real_few.jsonl.gz", {"bench.report.draw_arena": no},
         "no row has results on every task"),
    ],
}  # fmt: skip

# Messages that need more than a command or a call: the words of the message, and the test that has them
ELSEWHERE: dict[str, dict[str, str]] = {
    "common/args.py": {"BadInput(line)": "test_every_message"},  # of `wrong`, by every script
    "common/kinds/__init__.py": {
        "outputs that are not finite": "test_no_figure_of_a_model_that_is_not_finite",
        "leave it out": "test_a_text_of_no_tokens_is_a_line",
    },
    "common/kinds/documents.py": {"needs at least {least} tokens": "test_too_short_a_window_is_refused",
                                  "pads in front": "test_too_short_a_window_is_refused"},
    "common/layers/onnx.py": {"cannot export": "test_what_a_model_does_not_read_is_no_input"},
    "common/parallel.py": {
        "processes were started": "test_a_launcher",
        "are too few for": "test_primitives_of_two_processes",
        "needs GPUs": "test_primitives_of_two_processes",
    },
    "common/results.py": {"": "test_a_record_is_read_as_it_was_written_or_not_at_all"},
    "common/run.py": {
        "hidden states of layer": "test_layers_are_declared_once",
        "another process is at work": "test_one_process_at_a_time_works_in_a_folder",
    },
    "common/train.py": {"": "test_what_is_no_checkpoint_of_this_run_is_named"},
    "methods/cka.py": {"masked language model has no": "test_a_body_with_other_names_is_refused"},
    "methods/cmow.py": {"is not STS-B": "test_stsb_has_21_classes"},
    "bench/__init__.py": {"BadInput(message": "test_every_message"},  # what the library's parser says
    "bench/claims.py": {"have one name": "test_a_claim_needs_rows_with_names_of_their_own"},
    "bench/cluster.py": {"": "test_what_is_asked_of_a_cluster"},
    "bench/matrix.py": {
        "has the trials of": "test_what_trials_refuse",
        "its trials had another": "test_what_trials_refuse",
    },
    "bench/figures.py": {"are of several": "test_runs_in_one_figure",
                         "no run has a validation": "test_runs_in_one_figure"},
    "bench/table.py": {"comparable": "test_what_cannot_be_compared_is_refused_and_tuning_is_left_out",
                       "the same cell": "test_what_cannot_be_compared_is_refused_and_tuning_is_left_out"},
}  # fmt: skip
