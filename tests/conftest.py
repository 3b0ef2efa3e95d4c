"""What several test files share: tiny models, a task that is learnt in seconds, and ways to run a script."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # forks cannot use a GPU, and numbers are compared bit by bit: docs/scale.md

import torch  # noqa: E402
import transformers  # noqa: E402
from accelerate import Accelerator, debug_launcher  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertTokenizer  # noqa: E402

from common import args, data, evaluate, models, parallel, results, train, tuning  # noqa: E402
from common.errors import BadInput  # noqa: E402
from pocket.models import SPECIAL_TOKENS  # noqa: E402

# Here as in the scripts that the tests start: the same numbers, and no contention.
THREADS = os.environ.get("TEST_THREADS", "1")
torch.set_num_threads(int(THREADS))

POSITIVE = ("good", "great", "fine", "happy", "bright", "warm")
NEGATIVE = ("bad", "poor", "sad", "dull", "cold", "grim")
NEUTRAL = ("the", "a", "film", "story", "cast", "was", "and", "plot", "scene", "music", "very", "with", "in", "it")
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": THREADS,
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}


# Small configurations of the library's encoder families, 4 layers of 32.
WIDE = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
FAMILIES = {
    "roberta": WIDE,
    "electra": WIDE | {"embedding_size": 16},
    "albert": WIDE | {"embedding_size": 16},
    "xlnet": {"d_model": 32, "n_layer": 4, "n_head": 4, "d_inner": 64},
    "deberta": WIDE | DISENTANGLED,
    "deberta-v2": WIDE | DISENTANGLED,
    "mpnet": WIDE,
    "distilbert": {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64},
}
# Those whose configurations list their layers, or whose heads share keys and values
GROUPED = WIDE | {"num_key_value_heads": 2, "pad_token_id": 0}
LISTED = {
    "modernbert": WIDE | {"pad_token_id": 0},
    "modernbert-decoder": WIDE | {"pad_token_id": 0},
    "eurobert": GROUPED | {"head_dim": 8},
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 16},
    "gemma3_text": GROUPED | {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"] * 2},
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """What needs the same run of a script stays together in random order too: the run is made once."""
    files = list(dict.fromkeys(item.path for item in items))
    cases = {item: str(item.callspec.params.get("case", "")) if hasattr(item, "callspec") else "" for item in items}
    items.sort(key=lambda item: (files.index(item.path), cases[item]))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)


# --- tiny models and data ----------------------------------------------------------------------------------


def word_tokenizer() -> BertTokenizer:
    words = [*SPECIAL_TOKENS, *NEUTRAL, *POSITIVE, *NEGATIVE]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=64)


def other_words(folder: Path) -> None:
    """Put a tokenizer of the same words in another order into a folder."""
    words = reversed(word_tokenizer().get_vocab())
    BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=64).save_pretrained(folder)


def bert_config(layers: int = 2, width: int = 16, vocab: int = 31, **changes: Any) -> BertConfig:
    settings = {"num_attention_heads": max(1, width // 16), "intermediate_size": 2 * width}
    settings |= {"max_position_embeddings": 64, "num_labels": 2}
    return BertConfig(vocab_size=vocab, hidden_size=width, num_hidden_layers=layers, **(settings | changes))


def tiny_bert(layers: int = 2, width: int = 16, seed: int = 0, **changes: Any) -> BertForSequenceClassification:
    """A random BERT whose weights are large enough that layers and logits differ visibly."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(bert_config(layers, width, initializer_range=0.3, **changes))


def tiny_bart(layers: int = 2, width: int = 16) -> Any:
    torch.manual_seed(0)
    sizes = {"layers": layers, "attention_heads": 2, "ffn_dim": 32}
    settings: dict[str, Any] = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    settings |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2, "dropout": 0.0}
    settings |= {"vocab_size": 31, "max_position_embeddings": 64, "init_std": 0.3, "forced_eos_token_id": None}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(d_model=width, **settings))


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sentence(rng: random.Random, mood: tuple[str, ...]) -> str:
    words = rng.choices(NEUTRAL, k=rng.randint(3, 8))
    words.insert(rng.randint(0, len(words)), rng.choice(mood))
    return " ".join(words)


def sentences(count: int, seed: int = 0) -> list[str]:
    """One with a bad mood, one with a good one, and so on."""
    rng = random.Random(seed)
    return [sentence(rng, (NEGATIVE, POSITIVE)[i % 2]) for i in range(count)]


def blocks(page: str) -> list[str]:
    """The examples in Python of a page of docs/."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def write_sst2(folder: Path, train_rows: int = 1500, dev_rows: int = 300) -> None:
    """The official TSV layout; the label is the one word that carries a mood."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    for split, rows in (("train", train_rows), ("dev", dev_rows)):
        lines = [f"{sentence(rng, (NEGATIVE, POSITIVE)[i % 2])}\t{i % 2}\n" for i in range(rows)]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))


@pytest.fixture(scope="session")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SST-2 as GLUE lays it out, and STS-B by named columns: its score grows with the shared moods."""
    root, rng = tmp_path_factory.mktemp("data") / "glue", random.Random(2)
    write_sst2(root / "SST-2")
    (root / "STS-B").mkdir()
    for split, rows in (("train", 96), ("dev", 32)):
        lines = [f"{sentence(rng, POSITIVE)}\t{sentence(rng, (NEGATIVE, POSITIVE)[i % 2])}\t" for i in range(rows)]
        scored = [f"{line}{4.5 if i % 2 else 0.5 + i % 3}\n" for i, line in enumerate(lines)]
        (root / "STS-B" / f"{split}.tsv").write_text("sentence1\tsentence2\tlabel\n" + "".join(scored))
    return root


@pytest.fixture(scope="session")
def sst2(glue: Path) -> data.TaskData:
    return data.load("sst2", str(glue))


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A "pre-trained" checkpoint without a task head, as the hub has them."""
    folder = tmp_path_factory.mktemp("models") / "backbone"
    model = tiny_bert(3, 32, seed=7).bert
    models.save(model, word_tokenizer(), folder, "# backbone\n")
    return folder


@pytest.fixture(scope="session")
def expert(tmp_path_factory: pytest.TempPathFactory, sst2: data.TaskData) -> Path:
    """A teacher that was fine-tuned on the tests' SST-2, saved as `save_pretrained` does."""
    folder = tmp_path_factory.mktemp("models") / "expert"
    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    model = BertForSequenceClassification(bert_config(3, 32, **sst2.task.kind.settings(sst2.task)))
    recipe = {"steps": 150, "batch_size": 32, "lr": 3e-3, "seed": 0, "max_length": 16}
    stage = train.Stage(args.CommonArgs(), recipe, folder.with_name("training"))
    tuning.fine_tune(stage, model, tokenizer, sst2, "teacher")
    models.save(model, tokenizer, folder, "# expert\n")
    accuracy = evaluate.evaluate(model, tokenizer, sst2, 16)[0]["dev"]["accuracy"]
    assert accuracy > 0.95, f"the tests' teacher learnt nothing: {accuracy}"
    return folder


@pytest.fixture(scope="session")
def easy(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A task that is learnt in seconds, and a teacher without dropout, which would differ between processes."""
    root = tmp_path_factory.mktemp("easy")
    write_sst2(root / "data" / "SST-2", 640, 200)
    for name, layers in (("teacher", 4), ("other", 2)):
        torch.manual_seed(layers)
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = bert_config(layers, 32, initializer_range=0.2, **off)
        models.save(BertForMaskedLM(config), word_tokenizer(), root / name, "")
    argv = f"--task sst2 --data-dir {root / 'data'} --teacher {root / 'teacher'} --teacher-epochs 8"
    return f"{argv} --max-length 16 --device cpu --budget 2560 --seed 3 --cache-dir {root / 'cache'}".split()


@pytest.fixture(scope="session")
def small(glue: Path, expert: Path) -> list[str]:
    """Four steps of one variant; its teacher has the task's head."""
    argv = f"--task sst2 --data-dir {glue} --teacher {expert} --student 2x16 --max-length 16"
    return f"{argv} --budget 128 --variant mc3kd".split()


# --- running a script --------------------------------------------------------------------------------------


def save_every(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let the loops of scripts write a checkpoint so often."""
    patch.setattr(train.Options, "of", functools.partial(train.Options.of, save_every=seconds))


def call(method: str, *argv: object) -> tuple[int, str, str]:
    """`call("mc3kd", "--seed", 1)` runs a script in this process, which saves its start-up: (code, stdout, stderr)."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    deterministic = torch.are_deterministic_algorithms_enabled()
    code, out, err = 0, io.StringIO(), io.StringIO()
    forget_engine()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            module = module_of(method)
            args.execute(module.main, args.parse(module.Args, module.__doc__, [str(a) for a in argv]))
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        forget_engine()
        torch.use_deterministic_algorithms(deterministic)
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, out.getvalue(), err.getvalue()


def outside(folder: Path, code: str) -> str:
    """What lines of Python print in a process of their own, outside the repository."""
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ran(method: str, *argv: object) -> str:
    """What a script prints that ends well."""
    code, out, err = call(method, *argv)
    assert code == 0, err
    return out


def stopped(method: str, *argv: object) -> str:
    """The one line with which a script ends that refuses its input, exit code 2."""
    code, _, err = call(method, *argv)
    *before, line = err.splitlines()
    assert (code, line[:7], [other for other in before if other.startswith("error")]) == (2, "error: ", []), err
    return line


def refused(call: Callable[[], Any], *says: str) -> str:
    """The one line with which `call` is refused; it holds all that it `says`."""
    with pytest.raises(BadInput) as error:
        call()
    line = str(error.value)
    assert "\n" not in line
    for part in says:
        assert part in line, line
    return line


def records(out: Path) -> list[dict[str, Any]]:
    """The results of all runs below a folder."""
    return [results.load(path) for path in sorted(out.rglob("result.json"))]


# Every script of methods/ and bench/baselines/; those of which a student is a network
EVERY = {path.stem: path for part in ("methods", "bench/baselines") for path in sorted((ROOT / part).glob("[a-z]*.py"))}
SCRIPTS = {name: path for name, path in EVERY.items() if name != "linear"}


def module_of(method: str) -> Any:
    return importlib.import_module(".".join(EVERY[method].relative_to(ROOT).with_suffix("").parts))


def forget_engine() -> None:
    """Another precision, or another number of processes, may be asked for next."""
    AcceleratorState._reset_state(reset_partial_state=True)
    parallel._engine = None


def in_two_processes(function: Callable[..., Any], *given: Any) -> list[Any]:
    """What `function(*given)` returns in each of two processes that form a group; an error of theirs is raised here.

    They are forks: the function may be any, and is given what it is given without a copy.
    """

    def work(folder: str) -> None:
        Accelerator(cpu=True, kwargs_handlers=[parallel.PATIENCE])
        assert parallel.processes() == 2
        torch.save(function(*given), Path(folder) / str(parallel.rank()))
        parallel.distributed.barrier()

    def late(*_: object) -> None:
        raise TimeoutError("two processes wait for each other")

    forget_engine()
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(300)
    try:
        with tempfile.TemporaryDirectory() as folder:
            debug_launcher(work, (folder,), num_processes=2)
            return [torch.load(Path(folder) / str(rank), weights_only=False) for rank in range(2)]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for child in multiprocessing.active_children():
            child.kill()
