"""The commands that `python -m bench papers NAME --commands` prints, on a hub of tiny models and data.

Every published model has a stand-in of its family, as deep and with random weights, a sixteenth as wide: so is each
`--student`. All other arguments are the printed ones.
"""

from __future__ import annotations

import functools
import glob
import itertools
import random
import re
import shutil
import traceback
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import torch
import transformers
from conftest import NEGATIVE, NEUTRAL, POSITIVE, call, module_of, word_tokenizer
from test_data import ROWS, recorded
from test_papers import PUBLISHED, config_of
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from bench import papers
from common import corpus, data, models, results, run, teacher, text, train
from common.evaluate import Evaluation
from common.hub import HUB
from common.kinds import Kind
from common.tasks import TASKS
from methods import cka, cmow, efficient_attention, mc3kd

SMALLER = 16
WORDS = [*NEUTRAL, *POSITIVE, *NEGATIVE, "saw", "Vera", "slept", "Riga"]
BYTES = ("roberta", "longformer", "bart", "deberta", "gpt2")
HAS_NO_CODES = ("bert", "distilbert", "mobilebert", "electra")


def narrow(width: int) -> int:
    return width // SMALLER // 8 * 8


def commands_of(method: str) -> list[list[list[str]]]:
    """Of every row of a paper in printed order its commands, with narrow students."""

    def small(word: str) -> str:
        return re.sub(r"\b(\d+)x(\d{3,})\b", lambda found: f"{found[1]}x{narrow(int(found[2]))}", word)

    paper = papers.load(method)
    rows = [line for table in paper.tables for line in papers.lines_of(paper, table)]
    return [[[small(word) for word in words] for words in line.commands[0]] for line in rows]


def lines_of(method: str) -> list[list[str]]:
    """Every command of a paper in printed order, those that stand in several tables once."""
    return [list(line) for line in dict.fromkeys(tuple(line) for lines in commands_of(method) for line in lines)]


# --- the hub -------------------------------------------------------------------------------------------------


def tokenizer_of(name: str, family: str) -> Any:
    """Of words, of bytes, or of words and letters, as the family's is."""
    if family in HAS_NO_CODES:
        return word_tokenizer()
    if family in BYTES:
        marks = ["<|endoftext|>"] if family == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        marks = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"] if family == "deberta" else marks
        made = {piece: i for i, piece in enumerate([*marks, *sorted(ByteLevel.alphabet())])}
        kind = {"gpt2": "GPT2Tokenizer", "deberta": "DebertaTokenizer"}.get(family, "RobertaTokenizer")
        return getattr(transformers, kind)(vocab=made, merges=[])
    kind, marks = {
        "mbart": ("MBart50Tokenizer" if "50" in name else "MBartTokenizer", ["<s>", "<pad>", "</s>", "<unk>"]),
        "xlm-roberta": ("XLMRobertaTokenizer", ["<s>", "<pad>", "</s>", "<unk>"]),
        "t5": ("T5Tokenizer", ["<pad>", "</s>", "<unk>"]),
        "big_bird": ("BigBirdTokenizer", ["<pad>", "</s>", "<s>", "[CLS]", "[SEP]", "[MASK]", "<unk>"]),
    }.get(family, ("XLNetTokenizer" if family == "xlnet" else "AlbertTokenizer", ["<unk>", "<pad>", "<s>", "</s>"]))
    make, kinds = getattr(transformers, kind), dict[str, Any]()
    codes = list(make().lang_code_to_id) if family == "mbart" else []
    more = ["[CLS]", "[SEP]", "[MASK]"] if kind == "AlbertTokenizer" else ["<sep>", "<cls>"] * (family == "xlnet")
    if family in ("mbart", "xlm-roberta", "xlnet"):
        more.append("<mask>")
    letters = sorted(set("".join(WORDS)) | set(".?:0123456789"))
    pieces = [*marks, "▁", *(f"▁{word}" for word in WORDS), *letters, *codes, *more]
    if family == "t5":
        kinds["extra_ids"] = 0
    return make(vocab=[(piece, 0.0 if piece in marks else -1.0) for piece in pieces], **kinds)


def publish(name: str, folder: Path) -> None:
    """A stand-in for a published checkpoint, with the head that it has."""
    config, family = config_of(name), PUBLISHED[name][0]
    width, depth = narrow(config.hidden_size), sum(models.stack_depths(config))
    if family == "mobilebert":
        small = {"hidden_size": width, "embedding_size": 16, "intra_bottleneck_size": 16, "intermediate_size": 32}
        config = type(config)(**small, true_hidden_size=16, num_hidden_layers=depth)
    else:
        config = models.student_config(config, depth, width)
    for key in ("embedding_size",) if family in ("albert", "electra") else ():
        setattr(config, key, width)
    if family == "longformer":
        config.attention_window = [16] * depth
    tokenizer = tokenizer_of(name, family)
    at = getattr(config, "max_position_embeddings", None) or 4096
    beyond = 2 * (family in ("roberta", "longformer", "xlm-roberta"))
    tokenizer.model_max_length = 512 if family == "t5" else at - beyond
    config.vocab_size = len(tokenizer)
    for key in ("pad", "bos", "eos", "cls", "sep", "mask"):
        if getattr(config, f"{key}_token_id", None) is not None:
            setattr(config, f"{key}_token_id", getattr(tokenizer, f"{key}_token_id"))
    if config.is_encoder_decoder:
        config.decoder_start_token_id = tokenizer.pad_token_id if family == "t5" else tokenizer.eos_token_id
    config.forced_eos_token_id = None
    torch.manual_seed(0)
    auto: Any = AutoModelForCausalLM if family in ("gpt2", "xlnet") else AutoModelForMaskedLM
    model = (AutoModelForSeq2SeqLM if config.is_encoder_decoder else auto).from_config(config)
    models.save(model, tokenizer, folder, "")


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which published names are folders."""
    root = tmp_path_factory.mktemp("hub")
    for name in PUBLISHED:
        publish(name, root / name)
    for name in ("cbow", "cmow", "hybrid"):  # the embeddings of Mai et al.
        given = cmow.Args(student=name, head="linear")
        config = cmow.student_config(given, word_tokenizer(), diffcat=False)
        cmow.MatrixEmbeddingForSequenceClassification(config).save_pretrained(root / "word2mat" / name)
    return root


def rows_of(name: str) -> datasets.DatasetDict:
    """A few rows of a task, in the columns of the hub's repository."""
    if name in ROWS:
        row, texts = ROWS[name][0], 40 if TASKS[name].kind.causal else 4
        row = row | ({"text": " ".join(NEUTRAL) + "\n"} if "text" in row else {})
        splits = [split.replace("dev", "validation") for split in TASKS[name].splits]
        rows = [row | {key: f"{row[key]}{i}" for key in ("id", "question_id") if key in row} for i in range(texts)]
        return datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split in splits})
    words = random.Random(0)

    def said(row: dict[str, Any]) -> dict[str, Any]:
        return {field: " ".join(words.choices(WORDS, k=6)) for field in TASKS[name].fields} | {"label": row["label"]}

    return datasets.DatasetDict({split: rows.map(said) for split, rows in recorded(name).items()})


class Hub:
    """What `datasets` and `huggingface_hub` say of data sets: rows of a task, or a stream of texts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        tasks = {(source.repo, source.config): name for name, source in HUB.items()}

        def load(repo: str, config: str | None = None, **how: Any) -> Any:
            if not how.get("streaming"):
                return rows_of(tasks[repo, config])
            oscar = {"meta": {"identification": {"label": "en", "prob": 0.9}, "harmful_pp": 99.0}}
            rows = [{"text": f"{' '.join(WORDS)} {i}"} | (oscar if "oscar" in repo else {}) for i in range(80)]
            return datasets.Dataset.from_list(rows).to_iterable_dataset()

        patch.setattr(datasets, "load_dataset", load)
        info = lambda *_, **how: type("Info", (), {"sha": how.get("revision") or "5" * 40})  # noqa: E731
        patch.setattr(huggingface_hub.HfApi, "dataset_info", info)
        corpus.commit.cache_clear()
        patch.setattr(text, "HEAD", 32)
        patch.setattr(text, "BUFFER", 16)


@pytest.fixture
def hub(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.chdir(tmp_path)
    for owner in {name.partition("/")[0] for name in PUBLISHED}:
        (tmp_path / owner).symlink_to(shelf / owner)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "word2mat").symlink_to(shelf / "word2mat")
    files = {"gonerd/{}.conll": "Vera B-PER\nslept O\n\n" * 4,
             "wmt13_en_es/{}.tsv": "source\tlabel\n" + "the film\ta cast\n" * 4}  # fmt: skip
    for name, content in files.items():
        for split in ("train", "dev", "test"):
            path = tmp_path / "DIR" / name.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return Hub(monkeypatch)


def typed(line: list[str]) -> list[str]:
    """A command's arguments: patterns of earlier rows' folders are resolved."""
    found = [glob.glob(word) if word.startswith("runs/") and "*" in word else [word] for word in line[2:]]
    assert all(len(there) == 1 for there in found), found
    return [word for (word,) in found]


# --- in printed order ----------------------------------------------------------------------------------------


BUILT, build = dict[str, Any](), models.build  # most of the time goes into building


def built(config: Any, kind: str) -> Any:
    """A model, the same for all commands that have it: no row trains one."""
    if kind == "masked LM":  # whose weights a conversion moves
        return AutoModelForMaskedLM.from_config(config)
    key = f"{Kind.of(kind).auto.__name__} {config.to_json_string(use_diff=False)}"
    if key not in BUILT:
        with torch.device("meta"):
            BUILT[key] = build(config, kind)
    return BUILT[key]


def shared(given: Any, kind: str, recipe: dict[str, Any], tokenizer: Any, make: Any) -> train.Stage:
    folder = Path(given.out_dir) / "cache" / kind / train.stage_key(recipe)
    if not folder.exists():
        make(None).config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return train.Stage(given, recipe, folder)


class Claims:
    """Runs go as far as to where they look for their results, and leave there. No teacher is trained or judged, and no
    model has memory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.signatures: dict[Path, str] = {}
        self.lines: dict[Path, list[str]] = {}
        self.line: list[str] = []
        patch.setattr(run.Run, "finished", property(lambda made: self.claim(made)))
        patch.setattr(results, "show", lambda *_: None)
        patch.setattr(teacher, "fine_tune", lambda *_: None)
        patch.setattr(teacher, "evaluated", lambda *_: Evaluation({}, 0.0, {}))
        patch.setattr(models, "build", built)
        patch.setattr(models, "load_model", lambda _, config, kind, **__: built(config, kind))
        patch.setattr(teacher, "load_frozen", lambda _, __, config, task: built(config, task.task.kind))
        patch.setattr(models, "load_masked_lm", lambda name: (built(models.load_config(name), "masked LM"), True))
        patch.setattr(
            mc3kd, "layer_correlations", lambda _, __, guide: ([0.5] * guide.model.config.num_hidden_layers, None)
        )
        patch.setattr(mc3kd, "rccc_of", lambda *_: {})
        tokenizer, load = functools.cache(models.load_tokenizer), functools.cache(data.load)
        patch.setattr(models, "load_tokenizer", tokenizer)
        for module in (data, train, *map(module_of, papers.methods())):
            for name, made in (("load", lambda name, columns, **how: load(name, **how)), ("shared", shared)):
                if hasattr(module, name):
                    patch.setattr(module, name, made)

    def claim(self, made: run.Run) -> dict[str, Any]:
        assert self.signatures.setdefault(made.folder, made.signature) == made.signature, made.folder
        self.lines.setdefault(made.folder, self.line)
        if not made.folder.exists():  # a later row may start from here, or have it as its teacher
            made.folder.mkdir(parents=True)
            model = made.teacher.model
            if "x" in made.args.student:
                config = models.student_config(model.config, *map(int, made.args.student.split("x")))
                config.architectures = [type(model).__name__]
                config.save_pretrained(made.folder)
            if made.settings.get("bits") == 32:
                made.teacher.tokenizer.save_pretrained(made.folder)
            (made.folder / "latent.safetensors").write_text(made.signature)
        return {}


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "xtc")) for name in papers.methods()],  # of 1,100 commands
)
def test_in_printed_order_no_command_is_refused(method: str, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do two of different settings share a folder."""
    claims, refused = Claims(monkeypatch), list[str]()
    for claims.line in lines_of(method):
        code, _, err = call(Path(claims.line[1]).stem, *typed(claims.line))
        if code:
            refused.append(f"{papers.typed(claims.line)}: {err.strip().splitlines()[-1]}")
    assert not refused, f"{len(refused)} of {len(lines_of(method))}: " + "\n".join(refused[:20])


# --- from the first step to the last -------------------------------------------------------------------------

ROWS_RUN = 10  # of each paper, drawn at random


@pytest.mark.slow
@pytest.mark.parametrize("method", papers.methods())
def test_rows_run_to_their_end(method: str, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of ten rows, on one of its tasks, after the rows that it starts from. Stages whose length the papers
    give in texts or tokens have a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        claims = Claims(patch)
        for claims.line in lines_of(method) if method == "xtc" else ():  # whose rows start from others
            assert call(Path(claims.line[1]).stem, *typed(claims.line))[0] == 0
    for folder in claims.lines:
        shutil.rmtree(folder)
    monkeypatch.setattr(cka, "PAPER_PRETRAINING", dict.fromkeys(cka.PAPER_PRETRAINING, (1, 128)))
    monkeypatch.setattr(efficient_attention, "CONVERT_STEPS", 2)
    monkeypatch.setattr(efficient_attention, "TOKENS", 2**16)
    monkeypatch.setattr(teacher, "TOKENS", 2**12)  # 36 layers of GPT-2 would take 19 GB

    failed = []

    def ran(line: list[str], task: str) -> None:
        words = dict(zip(line[2::2], line[3::2], strict=True))
        for earlier in (word for word in line if word.startswith("runs/") and "*" in word):
            if not glob.glob(earlier):
                ran(next(made for place, made in claims.lines.items() if place.match(earlier)), task)
        try:
            code, _, err = call(
                Path(line[1]).stem, *typed([*line[:2], *itertools.chain(*(words | {"--task": task}).items())])
            )
        except Exception:
            code, err = 1, traceback.format_exc()
        if code:
            failed.append(f"{papers.typed(line)}, {task}: {err}")

    rng = random.Random(0)
    for lines in rng.sample([lines for lines in commands_of(method) if lines], ROWS_RUN):
        line = rng.choice(lines)
        ran(line, rng.choice(line[3].split(",")))
    assert not failed, "\n".join(failed)
