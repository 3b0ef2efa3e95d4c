"""Nothing that is loaded is run: the sources are searched, malicious files are tried, and the readers are fuzzed."""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, word_tokenizer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from test_layers import small_model

from common import corpus, data, results
from common.args import BadInput
from common.layers import packed
from methods.xtc import pack

SOURCES = [path for folder in ("common", "methods", "bench") for path in sorted((ROOT / folder).glob("*.py"))]
FUZZ = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MANY = settings(FUZZ, max_examples=100)

# --- the sources -------------------------------------------------------------------------------------------

UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "tarfile", "zipfile", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "os.system", "os.popen", "np.load"}


def called(node: ast.Call) -> str:
    """`torch.load` of `torch.load(...)`."""
    return ast.unparse(node.func)


def unsafe(tree: ast.Module) -> Iterator[str]:
    """What may run something that is loaded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"line {node.lineno}: imports {n}" for n in names if n.split(".")[0] in UNSAFE_MODULES)
        if not isinstance(node, ast.Call):
            continue
        name, given = called(node), {k.arg: ast.unparse(k.value) for k in node.keywords}
        if name in UNSAFE_CALLS or given.get("shell") == "True" or given.get("allow_pickle") == "True":
            yield f"line {node.lineno}: {name}"
        if given.get("trust_remote_code", "False") != "False":
            yield f"line {node.lineno}: {name} trusts remote code"
        owner, _, method = name.rpartition(".")
        if method == "from_pretrained" and owner != "nn.Embedding":
            light = owner.endswith(("Config", "Tokenizer"))
            if (light or owner.startswith(("Auto", "HEADS"))) and "trust_remote_code" not in given:
                yield f"line {node.lineno}: {name} does not say trust_remote_code=False"
            if not light and given.get("use_safetensors") != "True" and "state_dict" not in given:
                yield f"line {node.lineno}: {name} does not say use_safetensors=True"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_that_is_loaded_is_run(path: Path) -> None:
    assert not list(unsafe(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import tarfile",
        "torch.load(path)",
        "eval(text)",
        "exec(text)",
        "subprocess.run(text, shell=True)",
        "AutoConfig.from_pretrained(name)",
        "AutoModel.from_pretrained(name, trust_remote_code=False)",
        "AutoModel.from_pretrained(name, use_safetensors=True)",
        "AutoModel.from_pretrained(name, use_safetensors=True, trust_remote_code=True)",
        "BertModel.from_pretrained(name)",
    ],
)
def test_what_would_be_unsafe_is_seen(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


# --- packed files ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "good.packed"
    packed.save(pack(small_model()), word_tokenizer(), path)
    return path


def rewritten(
    good: Path, path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any], dict[str, str]], Any]
) -> Path:
    """A copy whose tensors, configuration and tokenizer files `change` has changed; it has no digest to betray it."""
    with safe_open(good, "pt") as file:
        config = json.loads(file.metadata()["config"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    files = json.loads(zlib.decompress(tensors["tokenizer"].numpy().tobytes()))
    change(tensors, config, files)
    blob = zlib.compress(json.dumps(files).encode())
    tensors["tokenizer"] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
    save_file(tensors, path, {"format": packed.FORMAT, "config": json.dumps(config)})
    return path


def test_a_rewritten_file_is_a_good_one(good: Path, tmp_path: Path) -> None:
    model, tokenizer = packed.load(rewritten(good, tmp_path / "same", lambda *_: None))
    assert model.num_labels == 2
    assert len(tokenizer) == len(word_tokenizer())


MALICIOUS: list[tuple[str, Callable[..., Any]]] = [
    ("code of its own", lambda t, c, f: c.update(auto_map={"AutoConfig": "own.Own"}, model_type="own")),
    ("a function for a class", lambda t, c, f: c.update(architectures=["pipeline"])),
    ("a module for a class", lambda t, c, f: c.update(architectures=["logging"])),
    ("no class", lambda t, c, f: c.update(architectures=["__builtins__"])),
    ("no architectures", lambda t, c, f: c.pop("architectures")),
    ("a billion layers", lambda t, c, f: c.update(num_hidden_layers=10**9)),
    ("ten thousand layers", lambda t, c, f: c.update(num_hidden_layers=10**4)),
    ("a billion words", lambda t, c, f: c.update(vocab_size=10**9)),
    ("a million words", lambda t, c, f: c.update(vocab_size=10**6, hidden_size=10**6, num_attention_heads=1)),
    ("a billion labels", lambda t, c, f: c.update(num_labels=10**9)),
    ("a million positions", lambda t, c, f: c.update(max_position_embeddings=10**6)),
    ("a billion adapters", lambda t, c, f: c["quantization_config"].update(lora_rank=10**9)),
    ("a million adapters", lambda t, c, f: c["quantization_config"].update(lora_rank=10**6)),
    ("three bits", lambda t, c, f: c["quantization_config"].update(bits=3)),
    ("no bits", lambda t, c, f: c["quantization_config"].update(bits=0)),
    ("modules that are not there", lambda t, c, f: c["quantization_config"].update(modules=["nowhere"])),
    ("a module of another kind", lambda t, c, f: c["quantization_config"].update(modules=["bert.encoder"])),
    ("another format", lambda t, c, f: c["quantization_config"].update(quant_method="bitsandbytes_4bit")),
    ("no list of modules", lambda t, c, f: c.pop("quantization_config")),
    ("a tensor of another shape", lambda t, c, f: t.update({"classifier.bias": torch.zeros(10**6)})),
    ("a tensor too many", lambda t, c, f: t.update(other=torch.zeros(3))),
    ("a tensor too few", lambda t, c, f: t.pop("classifier.bias")),
    ("names that are no names", lambda t, c, f: f.update({"..": "x"})),
    ("files that are no text", lambda t, c, f: f.update({"tokenizer.json": 5})),
    ("a bomb", lambda t, c, f: f.update({"more": "0" * 70_000_000})),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change"), MALICIOUS, ids=[case[0] for case in MALICIOUS])
def test_malicious_packed_files(what: str, change: Callable[..., Any], good: Path, tmp_path: Path) -> None:
    path = rewritten(good, tmp_path / "bad", change)
    with pytest.raises(BadInput, match="bad"):
        packed.load(path)


def test_a_tokenizer_of_its_own_is_not_run(good: Path, tmp_path: Path) -> None:
    """The file names a class in a file that it brings along; the library's own class is taken."""
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    code = f"open({str(tmp_path / 'executed')!r}, 'w')\nclass Own: pass\n"
    change: Any = lambda t, c, f: f.update({"tokenizer_config.json": json.dumps(own), "own.py": code})  # noqa: E731
    _, tokenizer = packed.load(rewritten(good, tmp_path / "bad", change))
    assert type(tokenizer).__module__.startswith("transformers")
    assert not (tmp_path / "executed").exists()


def test_a_packed_file_writes_nowhere_else(good: Path, tmp_path: Path) -> None:
    """Names with folders in them lose these."""
    target = tmp_path / "written"
    change: Any = lambda t, c, f: f.update({str(target): "x", f"../../../../../../..{target}": "x"})  # noqa: E731
    packed.load(rewritten(good, tmp_path / "bad", change))
    assert not target.exists()


def test_memory_stays_bounded(good: Path, tmp_path: Path) -> None:
    """All malicious files once more, in a process that may have 3 GB of addresses more than its libraries take."""
    for number, (_, change) in enumerate(MALICIOUS[:-1]):
        rewritten(good, tmp_path / f"{number}", change)
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from common import packed; from common.errors import BadInput\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 10**9,) * 2)\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    try: packed.load(path)\n"
        "    except BadInput: continue\n"
        "    raise SystemExit(f'{path} was loaded')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2_000_000  # kB


def refused_or_read(read: Callable[[], Any]) -> Any:
    """What a reader may do with any bytes: read them, or raise `BadInput` (then None)."""
    with contextlib.suppress(BadInput):
        return read()
    return None


@FUZZ
@given(st.binary(max_size=200))
@example((2**62).to_bytes(8, "little") + b"{}")
@example((99_999_999).to_bytes(8, "little") + b"{}")
def test_any_bytes_as_a_packed_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert refused_or_read(lambda: packed.load(tmp_path / "file")) is None


@FUZZ
@given(st.data())
def test_changed_bytes_of_a_packed_file(good: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Anywhere, as often in the header as in all that follows; what is changed is never read as a model."""
    whole = good.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    place = data.draw(st.integers(0, end - 1) | st.integers(end, len(whole) - 1))
    new = data.draw(st.binary(min_size=1, max_size=8))
    changed = whole[:place] + new + whole[place + len(new) :]
    (tmp_path / "file").write_bytes(changed)
    found = refused_or_read(lambda: packed.load(tmp_path / "file"))
    if found is not None:
        before = packed.load(good)[0].state_dict()
        assert all(torch.equal(before[name], value) for name, value in found[0].state_dict().items())


# --- data files --------------------------------------------------------------------------------------------

LETTERS = st.text(st.characters(codec="utf-8"), max_size=12)
CELL = (
    st.sampled_from(["0", "1", "negative", "positive", "", " ", "nan", "-1", "a film", '"', "\r", "\0", "\ufeff"])
    | LETTERS
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | CELL, lambda inner: st.lists(inner, max_size=3) |
    st.dictionaries(LETTERS | st.sampled_from(["sentence", "label", "text"]), inner, max_size=3), max_leaves=6,
)  # fmt: skip
OBJECT = st.fixed_dictionaries({"sentence": JSON, "label": JSON})


def load_file(
    folder: Path, name: str, content: bytes, task: str = "sst2", other: str = "sentence\tlabel\na\t0\nb\t1\n"
) -> Any:
    for path in folder.iterdir():
        path.unlink()
    (folder / name).write_bytes(content)
    (folder / f"dev.{'tsv' if task == 'sst2' else 'json' if task == 'squad' else 'txt'}").write_text(other)
    if task == "conll2003":
        (folder / "test.txt").write_text(other)
    found = refused_or_read(lambda: data.load(task, str(folder)))
    if found is not None and task == "sst2":  # what is read can be tokenised, and is what the task says
        train = found.splits["train"]
        assert set(train.labels) == {0, 1}
        assert len(train.texts) == len(train.labels) == len(train.ids)
        data.encode(word_tokenizer(), train, found.task, 16)
    return found


@MANY
@given(st.lists(st.lists(CELL, max_size=4), max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_any_table(tmp_path: Path, rows: list[list[str]], end: str, tabs: bool) -> None:
    separator = "\t" if tabs else ","
    text = end.join(separator.join(row) for row in [["sentence", "label"], ["x", "0"], ["y", "1"], *rows])
    load_file(tmp_path, "train.tsv" if tabs else "train.csv", text.encode())


@MANY
@given(st.lists(OBJECT | JSON, max_size=4))
def test_any_json_lines(tmp_path: Path, rows: list[Any]) -> None:
    known = [{"sentence": "x", "label": 0}, {"sentence": "y", "label": 1}]
    load_file(tmp_path, "train.jsonl", "\n".join(json.dumps(row) for row in known + rows).encode())


@MANY
@given(st.binary(max_size=60), st.sampled_from(["tsv", "csv", "jsonl", "json", "parquet"]))
def test_any_bytes(tmp_path: Path, content: bytes, suffix: str) -> None:
    load_file(tmp_path, f"train.{suffix}", content)
    load_file(tmp_path, f"train.{suffix}", b"sentence\tlabel\n" + content)


@FUZZ
@given(st.data())
def test_changed_bytes_of_a_parquet_file(tmp_path: Path, data: st.DataObject) -> None:
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "data").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["x", "y"], "label": [0, 1]}), tmp_path / "whole")
    whole = bytearray((tmp_path / "whole").read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] = data.draw(st.integers(0, 255))
    load_file(tmp_path / "data", "train.parquet", bytes(whole))


def fields(**names: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(names)


def few(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(one, max_size=2)


ANSWERS = few(fields(text=JSON, answer_start=JSON)) | JSON
PARAGRAPH = fields(context=JSON, qas=few(fields(id=JSON, question=JSON, answers=ANSWERS)))


@MANY
@given(JSON | st.lists(JSON, max_size=3) | fields(data=few(fields(paragraphs=few(PARAGRAPH)))))
def test_any_questions(tmp_path: Path, content: Any) -> None:
    load_file(tmp_path, "train.json", json.dumps(content).encode(), "squad", json.dumps(content))


@MANY
@given(st.lists(CELL | st.sampled_from(["film O", "film B-PER", "film I-LOC", "-DOCSTART- O", "a b c"]), max_size=8))
def test_any_tagged_words(tmp_path: Path, lines: list[str]) -> None:
    load_file(tmp_path, "train.txt", "\n".join(lines).encode(), "conll2003", "a O\n")


@MANY
@given(st.lists(JSON | CELL, max_size=4), st.binary(max_size=40))
def test_any_corpus(tmp_path: Path, rows: list[Any], content: bytes) -> None:
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    for name, written in (("a.jsonl", lines), ("a.jsonl", content), ("a.txt", content), ("a.txt.gz", content)):
        (tmp_path / name).write_bytes(written)
        refused_or_read(lambda name=name: corpus.mix(f"a={tmp_path / name}"))  # type: ignore[misc]


@MANY
@given(JSON | st.dictionaries(LETTERS | st.sampled_from(["metrics", "schema", "seed", "digest"]), JSON, max_size=4))
def test_any_json_as_a_result(tmp_path: Path, content: Any) -> None:
    (tmp_path / "result.json").write_text(json.dumps(content))
    assert refused_or_read(lambda: results.load(tmp_path / "result.json")) is None
