"""README.md and docs/: links, pictures, and commands. All commands are parsed, those that are quick are run, and of the
others it is said why they are not.

A command is a line of a block without a language, or the text between single backticks, that begins with `python`,
`./run_all.sh`, `accelerate` or `torchrun`. Generated tables are left out: their commands are those of results.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import nbformat
import pytest
from accelerate.commands.launch import launch_command_parser
from conftest import EVERY, ROOT, SCRIPTS, THREADS, call, module_of, tiny_bert, word_tokenizer
from nbclient import NotebookClient
from torch.distributed.run import get_args_parser

from bench import __main__ as bench
from bench.matrix import path_of
from common import folders
from common.args import CommonArgs, parse_model, read
from pocket.models import POCKET

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(
    r"python (-m (bench[ .]\w|pocket\.)|methods/|bench/baselines/)|\./run_all\.sh|(accelerate launch|torchrun)\b.*\.py"
)
SHEET = "text,label,body,team\n" + "".join(
    f"text number {i} is here,{'ab'[i % 2]},the body is {i},{'cd'[i % 2]}\n" for i in range(40)
)
# What a reader puts in
BERT = str(ROOT / "pocket/bert")
STAND_INS = {"pocket/bert": BERT, "MODEL": BERT, "DIR": ".", "RUN": "run", "RUNS": "run", "LAYERS": "2,4",
             "HOST": "localhost", "$m": "mc3kd", "METHOD": "mc3kd", "FILE": "tickets.csv"}  # fmt: skip

# Of each command the first pattern that it contains says what becomes of it; those that say why are parsed only.
QUICK, SLOW = "run", "run, in minutes"  # scripts with a budget of 640 examples
GROUPS = {
    r"runs/gpu|\$m": "is for a GPU",
    r"\bpredict\b|\bRUNS?\b|\bDIR\b|large.jsonl|bench table|weights/": "reads what is not there yet",
    r"figures (xtc|cka-layers)": "reads runs that are not there yet",
    r"mc3kd.py.* --teacher-outputs": QUICK,
    r"hub:|google|openai|FacebookAI|allenai|sentence-transformers|MODEL|--task (rte|squad)\b": "needs the hub",
    r"accelerate|torchrun|--engine ray": "needs several processes; see tests/test_parallel.py, tests/test_cluster.py",
    r"--dry-run|bench papers|figures (cmow|attention|cka-curve)": QUICK,
    r"run_all|bench (run|arena|sweep|report)": "takes minutes to hours; tests/test_bench.py runs small ones",
    r"bench (speed|profile)": "measures for minutes, on a machine that does nothing else; see tests/test_bench.py",
    r"bench pages": "would rewrite the pages; tests/test_bench.py checks their tables",
    r"bench\.studies": "a study; tests/test_bench.py makes it again",
    r"pocket\.make": "trains for up to an hour",
    r"pocket-12|pocket/(lm|ner|translate)": "fine-tunes a teacher first, for minutes",
    r"methods/|bench/baselines/|figures mc3kd": SLOW,
}


class Command(NamedTuple):
    page: str
    text: str

    @property
    def group(self) -> str:
        """What becomes of it; "" for one that nobody has thought of."""
        return next((what for pattern, what in GROUPS.items() if re.search(pattern, self.text)), "")

    @property
    def words(self) -> list[str]:
        """As a shell takes it, with what a reader would put in; of a|b the first."""
        words = [word.split("|")[0] for word in shlex.split(self.text)]
        words = words[: words.index(">")] if ">" in words else words
        for name, value in STAND_INS.items():
            words = [re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", value, word) for word in words]
        return [re.sub(r"^hub:.*", "tickets.csv", word) for word in words if word not in ("...", "--help")]


def commands() -> list[Command]:
    found: dict[str, str] = {}
    for page in PAGES:
        text = re.sub(r"<!-- table .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        lines = "\n".join(block for language, block in blocks if not language).replace("\\\n", " ").splitlines()
        text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for line in [*lines, *re.findall(r"`([^`]+)`", text)]:
            line = " ".join(re.sub(r"\s#.*", "", line).split())
            if COMMAND.match(line):
                found.setdefault(line, page.name)
    return [Command(page, text) for text, page in found.items()]


COMMANDS = commands()
# Of the quick ones the first of each script, and of each command of the bench
FIRST = {" ".join(command.words[1:4][: 1 + 2 * (command.words[1] == "-m")]): command
         for command in reversed(COMMANDS) if command.group == QUICK}.values()  # fmt: skip


class Parsed(Exception):
    """The command line of a part of the bench was read: what it has understood, and what is left for a script."""


def understood(declared: Any, words: list[str]) -> None:
    """By a script's arguments; and the pocket teachers read no other data. The linear model has no teacher."""
    args = read(declared, None, words)
    if args.teacher_outputs is None and not hasattr(args, "C") and parse_model(args.teacher)[0] in POCKET:
        assert all(task.startswith("pocket/") for task in args.tasks)


def parse_bench(name: str, words: list[str]) -> None:
    """By the parser of the command itself, which then stops."""

    def known(parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        raise Parsed(*whole(parser, *given))

    whole = argparse.ArgumentParser.parse_known_args
    start = importlib.import_module(name).main if name.startswith("pocket.") else bench.command(name[len("bench.") :])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", known)
        with pytest.raises(Parsed) as stopped:
            start(words)
    options, rest = stopped.value.args
    assert all(Path(str(value)).is_file() for value in vars(options).values() if str(value).endswith(".toml"))
    if name == "bench.arena":
        read(CommonArgs, None, ["--task", options.task, "--teacher", options.teacher, *rest])
    elif name == "bench.figures":
        read(module_of("mc3kd").Args if options.figure == "mc3kd" else CommonArgs, None, rest)
    elif name == "bench.sweep" and path_of(options.what) is None:
        understood(module_of(options.what).Args, [*rest, "--variant", options.variants])
    else:
        assert not rest


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder where the commands find the repository, and what a reader would have."""
    for name in ("bench", "docs", "methods"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tickets.csv").write_text(SHEET)
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.csv").write_text(SHEET.replace("text,label,body", "question,label,answer"))
    (tmp_path / "texts.csv").write_text("\n".join(line.split(",")[0] for line in SHEET.splitlines()))
    names = {0: "negative", 1: "positive"}
    labels = {name: i for i, name in names.items()}
    classifier = tiny_bert(2, 32, max_position_embeddings=128, id2label=names, label2id=labels)
    classifier.save_pretrained(tmp_path / "my-classifier")
    tokenizer = word_tokenizer()
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(tmp_path / "my-classifier")
    (tmp_path / "probabilities.csv").write_text("negative,positive\n" + "0.25,0.75\n" * 40)
    for name in ("large.jsonl", "part.jsonl.gz", "books.txt"):
        (tmp_path / name).write_bytes(gzip.compress(b"a\n") if name.endswith("gz") else b'{"text": "a"}\n')
    monkeypatch.setattr(folders, "find_files", lambda *_: {})  # of --data-dir
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_is_understood(command: Command, reader: None) -> None:
    """By its own parser, with its arguments checked as far as that needs no data; and somebody has said what it is."""
    assert command.group, f"{command.page}: {command.text}: in no group of GROUPS"
    words = command.words
    if words[0] == "./run_all.sh":
        assert words[1:2] in ([], ["smoke"], ["quick"], ["standard"], ["bench"], ["test"])
        return
    if words[0] in ("accelerate", "torchrun"):
        launcher = launch_command_parser() if words[0] == "accelerate" else get_args_parser()
        launched = launcher.parse_args(words[2 if words[0] == "accelerate" else 1 :])
        words = ["python", launched.training_script, *launched.training_script_args]
    if words[:3] == ["python", "-m", "bench"]:
        assert words[3] in bench.COMMANDS
        if len(words) > 4:  # else the text speaks of it
            parse_bench(f"bench.{words[3]}", words[4:])
    elif words[1] == "-m" and words[2].startswith("bench.studies."):
        assert Path(f"{words[2].replace('.', '/')}.py").is_file()
    elif words[1] == "-m":
        parse_bench(words[2], words[3:])
    else:
        method = Path(words[1]).stem
        assert Path(words[1]).resolve() == EVERY[method]
        understood(module_of(method).Args, words[2:])


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=[pytest.mark.slow] * (command not in FIRST))
     for command in COMMANDS if command.group in (QUICK, SLOW)],
    ids=str,
)  # fmt: skip
def test_a_command_runs(command: Command, reader: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.words
    if words[1] == "-m":
        bench.main(words[3:])
        assert capsys.readouterr().out
    else:
        code, printed, err = call(Path(words[1]).stem, *words[2:], "--budget", "640")
        assert code == 0, err
        assert "saved: " in printed


@pytest.mark.parametrize("name", ["common", "pocket"])
def test_the_package_has_every_file_that_is_read(name: str) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    globs = [*setuptools["package-data"].get(f"distil_papers.{name}", []), "**/*.py", "**/*.pyc"]
    packed = {path for glob in globs for path in (ROOT / name).glob(glob)}
    assert {path for path in (ROOT / name).rglob("*") if path.is_file()} == packed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_are_there(page: Path) -> None:
    """And headings: of another page, or of its own. A page has at most 200 lines, but claims.md and tables.md, and
    README.md 100 beside its findings."""
    text = page.read_text(encoding="utf-8")
    own = re.sub(r"<!-- table .*?<!-- end -->\n", "", text, flags=re.DOTALL)
    assert len(own.splitlines()) <= 100 or page.name != "README.md"
    assert len(text.splitlines()) <= 200 or page.stem in ("claims", "tables")
    assert not re.search(r"^\s*(- )?<!-- (?!table |code |end )", text, re.MULTILINE), "begins a block, not a figure"
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link:
            place, _, heading = link.partition("#")
            to = (page.parent / place).resolve() if place else page
            assert to.exists(), link
            if heading:
                titles = re.findall(r"^#+ (.*)", to.read_text(encoding="utf-8"), re.MULTILINE)
                assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_formulas_in_a_line_survive_markdown(page: Path) -> None:
    """Markdown reads a line before its formulas are set: a backslash before a sign goes, and underscores and stars
    beside signs become emphasis. Blocks (```math) are left alone."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    formulas = re.findall(r"(?<![\w$\\])\$([^$]+)\$(?!\w)", text)
    assert text.count("$") == 2 * len(formulas)
    assert not [formula for formula in formulas if re.search(r"\\[^a-zA-Z]|[^\w\s]_|\*|\n|^\s|\s$", formula)]


def test_every_picture_is_on_a_page() -> None:
    """And small enough for a phone."""
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for path in (ROOT / "docs" / "img").iterdir():
        assert f"img/{path.name})" in shown
        assert path.stat().st_size < 100_000


def test_the_example_of_a_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen correlations: of 64 vectors both are close to 1, and shrunk that of related layers is larger; of 2,560 it
    alone is close to 1."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/mc3kd.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(block, {})
    found = [float(value) for value in re.findall(r"tensor\((.*?)\)", capsys.readouterr().out)]
    assert len(found) == 16
    (related, shrunk, unrelated, apart), (most, _, least, _) = found[:4], found[-4:]
    assert (related, unrelated) == (pytest.approx(1, abs=0.05), pytest.approx(related, abs=0.01))
    assert shrunk > 1.1 * apart
    assert most > 0.9
    assert least < 0.3


# --- the tour ------------------------------------------------------------------------------------------------

TOUR = ROOT / "docs" / "tour.ipynb"


def test_the_tour_has_its_outputs() -> None:
    """Those of one run from top to bottom, of every script that has a page, with pictures that are small."""
    cells = [cell for cell in nbformat.read(TOUR, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells[1:])
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    sizes = [len(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]
    assert len(sizes) >= 4
    assert sum(sizes) < 300_000
    source = "\n".join(cell.source for cell in cells)
    pages = [method for method in SCRIPTS if (ROOT / "docs" / f"{method}.md").is_file()]
    assert len(pages) >= 5
    assert not [method for method in pages if f'run("methods/{method}.py ' not in source]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("methods", "common", "bench"):
            exec(ast.unparse(node), {})  # what it takes from the project is there


@pytest.mark.slow
def test_the_tour_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", THREADS)
    NotebookClient(
        nbformat.read(TOUR, as_version=4), timeout=1200, resources={"metadata": {"path": TOUR.parent}}
    ).execute()
