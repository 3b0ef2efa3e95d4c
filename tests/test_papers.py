"""The published tables: their layout and arithmetic, the commands of their rows, and results beside them."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bench import __main__ as entry
from bench import papers
from bench.papers import Paper, Ref, Row, Table
from common import data, results
from common.args import as_dict

TABLES = {
    "cka": ["2", "3", "4", "5", "6", "2-sizes", "3-sizes", "6-sizes"],
    "cmow": ["II", "III", "IV", "V", "VI", "VII", "VIII"],
    "efficient_attention": ["2", "3", "4", "5", "6", "7", "8", "11", "2-sizes"],
    "mc3kd": [str(n) for n in range(1, 10)],
    "xtc": [*(f"C.{n}" for n in range(2, 18)), "sizes"],
}
PAPERS = {method: papers.load(method) for method in TABLES}
EVERY_ROW = [(paper, table, row) for paper in PAPERS.values() for table in paper.tables for row in table.rows]


def table_of(method: str, name: str) -> Table:
    return next(table for table in PAPERS[method].tables if table.name == name)


def figures(table: Table, row: Row) -> dict[str, list[float]]:
    """Column -> its numbers; columns that the row leaves blank are left out."""
    pairs = zip(table.columns, row.cells, strict=True)
    return {column: [float(n.rstrip("%")) for n in cell.split("/")] for column, cell in pairs if cell != "-"}


# --- layout --------------------------------------------------------------------------------------------------


def test_every_paper_has_its_tables() -> None:
    assert papers.methods() == sorted(TABLES)
    for method, names in TABLES.items():
        assert PAPERS[method].names() == names


def test_every_label_and_column_means_something() -> None:
    for paper, table, row in EVERY_ROW:
        said = papers.meaning(paper, table, row)
        assert said.teacher or said.reason or said.values
        for column in table.columns:
            assert papers.filled(paper.columns[column], said.values), (paper.method, table.name, column)


def test_every_word_and_column_is_used() -> None:
    for paper in PAPERS.values():
        columns = {column for table in paper.tables for column in table.columns}
        assert columns == set(paper.columns), paper.method
        for column, words in paper.words.items():
            parts = column.split(" | ")
            rows = [(t, row) for t in paper.tables if set(parts) <= set(t.labels) for row in t.rows]
            seen = {" | ".join(row.labels[t.labels.index(part)] for part in parts) for t, row in rows}
            assert set(words) <= seen, (paper.method, column, set(words) - seen)


def test_columns_name_metrics_that_the_scripts_have() -> None:
    for paper in PAPERS.values():
        for text in paper.columns.values():
            for ref in papers.spec(text).refs if "{" not in text else ():
                if ref.task in data.TASKS and data.TASKS[ref.task].kind in ("classification", "regression"):
                    assert ref.analysis or ref.name in data.TASKS[ref.task].metrics, text


@pytest.mark.parametrize(
    ("column", "refs"),
    [
        ("mrpc:f1/accuracy", [Ref("mrpc", None, "f1"), Ref("mrpc", None, "accuracy")]),
        ("mnli:dev_matched.accuracy", [Ref("mnli", "dev_matched", "accuracy")]),
        ("wmt16/ro-en:bleu", [Ref("wmt16/ro-en", None, "bleu")]),
        ("rte:#rccc", [Ref("rte", None, "#rccc")]),
        ("! why", []),
    ],
)
def test_columns_are_read(column: str, refs: list[Ref]) -> None:
    assert list(papers.spec(column).refs) == refs


def test_what_breaks_the_layout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (papers.FOLDER / "mc3kd.toml").read_text(encoding="utf-8")
    schema = (papers.FOLDER / "schema.json").read_text(encoding="utf-8")
    (tmp_path / "schema.json").write_text(schema, encoding="utf-8")
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    for before, after, error in (
        ("65.70 | 70.60", "65.70", "1 cells"),
        ("65.70 | 70.60", "65.7O | 70.60", "'65.7O' is no figure"),
        ('name = "1"', 'name = "1"\nlines = 3', "lines"),
    ):
        assert before in text
        (tmp_path / "mc3kd.toml").write_text(text.replace(before, after, 1), encoding="utf-8")
        with pytest.raises((ValueError, jsonschema.ValidationError), match=error):
            papers.load("mc3kd")
    (tmp_path / "mc3kd.toml").write_text(text.replace("BERT12 | BERT6", "BERT13 | BERT6", 1), encoding="utf-8")
    paper = papers.load("mc3kd")
    with pytest.raises(ValueError, match="no word for teacher 'BERT13'"):
        papers.meaning(paper, paper.tables[0], paper.tables[0].rows[0])


# --- the figures agree with each other, as far as the papers' do ---------------------------------------------


def printed_means(method: str) -> list[tuple[str, Row, float, float]]:
    """(table, row, the mean printed, the mean of the printed figures) wherever a column is a mean."""
    paper, found = PAPERS[method], []
    for table in paper.tables:
        for row in table.rows:
            own = figures(table, row)
            for column in own:
                mean = papers.spec(paper.columns[column]) if "{" not in paper.columns[column] else None
                if mean is None or not mean.mean:
                    continue
                values = {}
                for other in own:
                    refs = papers.spec(paper.columns[other])
                    if not refs.mean and len(refs.refs) == len(own[other]):
                        values |= dict(zip(refs.refs, own[other], strict=True))
                if set(mean.refs) <= set(values):
                    found.append((table.name, row, own[column][0], sum(values[r] for r in mean.refs) / len(mean.refs)))
    return found


def test_xtc_averages() -> None:
    rows = [entry for entry in printed_means("xtc") if entry[1].labels[-1] not in ("difference", "std")]
    assert len(rows) > 400
    for name, row, printed, mean in rows:
        assert abs(printed - mean) < 0.055, (name, row)


def test_efficient_attention_averages() -> None:
    rows = printed_means("efficient_attention")
    off = [(str(row), round(mean, 1)) for _, row, printed, mean in rows if abs(printed - mean) > 0.06]
    assert off == [("LSG, converted", 85.8)]  # as the table's remark says
    assert len(rows) == 10  # those that print both figures of each pair, XLM-R and ALBERT among them
    table = table_of("efficient_attention", "11")
    for row in table.rows:
        *tasks, average = figures(table, row).values()
        assert abs(sum(sum(pair) / len(pair) for pair in tasks) / 8 - average[0]) < 0.06, row


def test_cmow_scores() -> None:
    off = []
    for name in ("III", "IV", "V", "VI"):
        table = table_of("cmow", name)
        for row in table.rows:
            own = figures(table, row)
            if len(own) == 10:
                score, *tasks = (value[0] for value in own.values())
                if abs(sum(tasks) / 9 - score) > 0.06:
                    off.append((name, *row.labels, round(sum(tasks) / 9, 1)))
    assert off == [  # as the tables' remarks say
        ("III", "BERT-base (DistilBERT's)", 79.7),
        ("III", "Hybrid + MLP (rand. init.)", 62.7),
        ("IV", "Hybrid", "pretrained", "MLP", 55.2),
        ("IV", "Hybrid", "pretrained", "BiLSTM", 53.8),
        ("V", "CBOW", "random", "BiLSTM", 48.8),
        ("V", "CMOW", "random", "MLP", 63.1),
        ("V", "Hybrid", "random", "MLP", 62.7),
    ]


@pytest.mark.parametrize("name", ["C.2", "C.3", "C.4", "C.11", "C.12"])
def test_xtc_best_rows_are_the_best(name: str) -> None:
    table, above = table_of("xtc", name), []
    checked = 0
    for row in table.rows:
        own = figures(table, row)
        if row.labels[-1] != "best":
            above.append(own)
            continue
        for column in ("CoLA", "QNLI", "RTE", "SST-2"):
            assert own[column][0] == max(other[column][0] for other in above), (row, column)
        above, checked = [], checked + 1
    assert checked


@pytest.mark.parametrize(("short", "long"), [("C.9", "C.11"), ("C.10", "C.12")])
def test_xtc_summaries_repeat_the_best_rows(short: str, long: str) -> None:
    best = {row.labels[:-1]: row.cells for row in table_of("xtc", long).rows if row.labels[-1] == "best"}
    assert {row.labels: row.cells for row in table_of("xtc", short).rows} == best


def test_mc3kd_tables_repeat_each_other() -> None:
    every: dict[tuple[str, ...], dict[str, list[float]]] = {}
    repeated = 0
    for table in PAPERS["mc3kd"].tables:
        for row in table.rows:
            for column, value in figures(table, row).items():
                before = every.setdefault(row.labels, {}).setdefault(column, value)
                assert before == value, (table.name, row, column)
                repeated += before is not value
    assert repeated > 90


@pytest.mark.parametrize(
    ("method", "name", "labels", "column", "cell"),
    [
        ("mc3kd", "4", ("BERT24", "BERT3", "TAKD"), "CoLA RCCC", "55.67"),
        ("mc3kd", "9", ("GPT2-large", "GPT2-small", "MC3KD"), "PPL", "23.57"),
        ("mc3kd", "8", ("BERT24", "BERT6", "MC3KD"), "QNLI RCCC", "-"),
        ("cmow", "III", ("Data augmentation",), "STS-B", "69.6"),
        ("cmow", "V", ("CBOW", "pretrained", "MLP"), "STS-B", "66.0"),
        ("xtc", "C.2", ("C", "1", "2e-5"), "CoLA", "57.3"),
        ("xtc", "C.15", ("2", "1", "difference"), "CoLA", "-0.9"),  # a typo of the paper
        ("xtc", "C.17", ("SkipBERT6", "3", "222"), "MNLI-m/-mm", "83.65/84.27"),
        ("efficient_attention", "4", ("DistilRoBERTa", "-"), "Memory change", "+163%"),  # likewise
        ("efficient_attention", "6", ("LSG", "distilled"), "GONERD MISC", "72.6"),
        ("cka", "3", ("24x640", "CKA"), "EN-FR", "42.3"),
        ("cka", "6", ("12x512", "CKA"), "MNLI-m", "88.5"),  # likewise
    ],
)
def test_cells_as_printed(method: str, name: str, labels: tuple[str, ...], column: str, cell: str) -> None:
    table = table_of(method, name)
    row = next(row for row in table.rows if row.labels == labels)
    assert row.cells[table.columns.index(column)] == cell


# --- commands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [method for method in TABLES if PAPERS[method].exists])
def test_every_command_is_one_that_the_script_takes(method: str) -> None:
    paper = PAPERS[method]
    lines = {
        tuple(line) for table in paper.tables for row in table.rows for line in papers.commands(paper, table, row)[0]
    }
    assert lines
    for line in lines:
        assert line[:3] == ("python", f"methods/{method}.py", "--task")
        args = papers.wanted_args(method, line[2:])
        assert args.budget == "paper"
        assert {f"--{name.replace('_', '-')}" for name in as_dict(args)} >= set(line[2::2])


def test_a_command_says_what_its_row_says() -> None:
    paper, table = PAPERS["mc3kd"], table_of("mc3kd", "3")
    [line], why = papers.commands(paper, table, table.rows[4])
    assert table.rows[4].labels == ("BERT24", "BERT3", "PKD")
    assert not why
    args = papers.wanted_args("mc3kd", tuple(line[2:]))
    assert args.tasks == ["cola", "rte", "mrpc", "stsb"]
    assert (args.variant, args.teacher, args.student) == ("pkd-skip", "google-bert/bert-large-uncased", "3x1024")
    assert (args.temperature, args.lr) == (20, 5e-5)


def test_tasks_of_unlike_arguments_have_commands_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Paper, "exists", True)
    paper, table = PAPERS["xtc"], table_of("xtc", "C.16")
    row = next(row for row in table.rows if row.labels == ("SkipBERT6", "3", "111"))
    lines, _ = papers.commands(paper, table, row)
    options = {line[3]: dict(zip(line[4::2], line[5::2], strict=True)) for line in lines}
    assert set(options) == {"cola", "mnli,qqp", "mrpc,rte,stsb", "qnli", "sst2"}
    assert options["cola"]["--batch-size"] == "16"
    assert "--augment" not in options["mnli,qqp"]
    assert {found["--seed"] for found in options.values()} == {"111"}  # not the paper's usual 42 besides


def test_what_cannot_be_reproduced_says_why() -> None:
    without = 0
    for paper, table, row in EVERY_ROW:
        lines, why = papers.commands(paper, table, row)
        assert lines or why, (paper.method, table.name, row)
        without += not lines
    assert without > 100
    table = table_of("cmow", "III")
    assert papers.commands(PAPERS["cmow"], table, table.rows[0]) == ([], "from the literature")


# --- results beside the figures ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_table_3() -> dict[str, Any]:
    """A result as the command of table 3's row BERT12, BERT3, MC3KD leaves it for RTE."""
    record = results.load(results.ROOT / "bench/results/rte-minilm/mc3kd/seed0/result.json")
    table = table_of("mc3kd", "3")
    said = papers.meaning(PAPERS["mc3kd"], table, table.rows[2])
    given = papers.options(PAPERS["mc3kd"], table, said.values, "rte")
    args = papers.wanted_args("mc3kd", ("--task", "rte", *(word for pair in given.items() for word in pair)))
    settings = {name: getattr(args, name) for name in record["settings"]}
    settings |= {"init": "first 3 layers of bert-base-uncased", "beta": 1.0, "teacher": "weights/bert-base-uncased"}
    record |= {
        "settings": settings,
        "metrics": {"dev": {"accuracy": 0.61}},
        "analysis": {"rccc": 0.80, "layers": [1, 2, 3]},
    }
    record["teacher"] |= {"name": "weights/bert-base-uncased", "metrics": {"dev": {"accuracy": 0.7}}}
    record["source"] = "hub"
    record["budget"] = {"name": "paper", "kind": "paper", "amount": 9960, "comparable": False}
    return record


def saved(folder: Path, record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Write a changed copy of a record; `settings` are added to its own."""
    record = copy.deepcopy(record)
    record["settings"] |= changes.pop("settings", {})
    record |= changes
    number = len(list(folder.rglob("result.json")))
    results.save(folder / f"{number}", record)
    return record


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    papers.main(list(argv))
    return capsys.readouterr().out


def lines_of(text: str, row: str) -> list[list[str]]:
    """The lines of a row, each as [column, paper, ours, difference, remark]."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{row}  "))
    found = [lines[at][len(row) :]]
    for line in lines[at + 1 :]:
        if not line.startswith("  "):
            break
        found.append(line)
    return [[part.strip() for part in line.strip().split("  ") if part.strip()] for line in found]


def test_a_reproduction(tmp_path: Path, capsys: pytest.CaptureFixture[str], of_table_3: dict[str, Any]) -> None:
    saved(tmp_path, of_table_3)
    text = printed(capsys, "mc3kd", "--table", "3", "--results", str(tmp_path))
    lines = {line[0]: line[1:] for line in lines_of(text, "BERT12, BERT3, MC3KD")}
    assert lines["RTE"] == ["60.29", "61.00", "+0.71"]
    assert lines["RTE RCCC"] == ["79.71", "80.00", "+0.29"]
    assert lines["CoLA"] == ["16.97", "never run", "-"]
    for other in ("BERT12, BERT3, KD", "BERT24, BERT3, MC3KD"):
        assert all(line[2] == "never run" for line in lines_of(text, other))


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"budget": {"name": "3200", "kind": "examples", "amount": 3200, "comparable": True}}, "budget 3200"),
        ({"settings": {"limit": 500}}, "500 training examples"),
        ({"source": "local"}, "local files"),
        ({"settings": {"lr": 1e-4}}, "lr 0.0001"),
        ({"settings": {"tokens": "cls"}}, "tokens cls"),
        ({"settings": {"max_length": 96, "alpha": 0.9}}, "max-length 96; alpha 0.9"),
    ],
)
def test_what_is_no_reproduction_is_labelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of_table_3: dict[str, Any], changes: dict[str, Any], remark: str
) -> None:
    saved(tmp_path, of_table_3, **changes)
    text = printed(capsys, "mc3kd", "--table", "3", "--results", str(tmp_path))
    lines = {line[0]: line[1:] for line in lines_of(text, "BERT12, BERT3, MC3KD")}
    assert lines["RTE"][:3] == ["60.29", "61.00", "+0.71"]
    assert sorted(lines["RTE"][3].split("; ")) == sorted(remark.split("; "))
    saved(tmp_path, of_table_3, metrics={"dev": {"accuracy": 0.62}})  # a reproduction goes before it
    text = printed(capsys, "mc3kd", "--table", "3", "--results", str(tmp_path))
    assert ["RTE", "60.29", "62.00", "+1.71"] in lines_of(text, "BERT12, BERT3, MC3KD")


@pytest.mark.parametrize(
    ("changes", "listed"),
    [
        ({"settings": {"student": "3x384"}}, True),
        ({"settings": {"init": "random"}}, True),
        ({"settings": {"teacher": "bert-large-uncased"}}, True),
        ({"variant": "only-mc3"}, True),  # a row of table 5, but from another teacher
        ({"settings": {"tune": True}}, False),
        ({"source": "pocket", "task": "pocket/rte"}, False),
        ({"method": "cmow"}, False),
    ],
)
def test_what_is_of_no_row_is_listed_apart(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    of_table_3: dict[str, Any],
    changes: dict[str, Any],
    listed: bool,
) -> None:
    saved(tmp_path, of_table_3, **changes)
    tables, _, others = printed(capsys, "mc3kd", "--results", str(tmp_path)).partition("Results on real data that are")
    assert "61.00" not in tables
    assert ("61.00" in others) == listed


def test_seeds_are_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str], of_table_3: dict[str, Any]) -> None:
    for seed, accuracy in enumerate((0.60, 0.61, 0.65)):
        saved(tmp_path, of_table_3, seed=seed, settings={"seed": seed}, metrics={"dev": {"accuracy": accuracy}})
    earlier = {"finished": "2020-01-01T00:00:00+00:00", "metrics": {"dev": {"accuracy": 0.1}}}
    saved(tmp_path, of_table_3, seed=2, settings={"seed": 2}, **earlier)  # made again since
    text = printed(capsys, "mc3kd", "--table", "3", "--results", str(tmp_path))
    assert ["RTE", "60.29", "62.00", "+1.71", "3 seeds"] in lines_of(text, "BERT12, BERT3, MC3KD")


def test_the_teacher_is_read_from_its_students(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of_table_3: dict[str, Any]
) -> None:
    saved(tmp_path, of_table_3)
    text = printed(capsys, "mc3kd", "--table", "2", "--results", str(tmp_path))
    lines = {line[0]: line[1:] for line in lines_of(text, "BERT12")}
    assert lines["RTE"] == ["70.40", "70.00", "-0.40", "4 epochs here"]


def test_checked_in_results_of_another_teacher_are_listed_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "mc3kd", "--results", str(results.ROOT / "bench" / "results"))
    tables, others = text.split("Results on real data that are of no row above:")
    assert "rte mc3kd, student 3x384 of weights/minilm, budget 3200, seed 0: dev 52.71" in others
    assert "52.71" not in tables


def test_a_damaged_result_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of_table_3: dict[str, Any]
) -> None:
    saved(tmp_path, of_table_3)
    (tmp_path / "0" / "result.json").write_text('{"schema": 1', encoding="utf-8")
    papers.main(["mc3kd", "--table", "3", "--results", str(tmp_path)])
    out, err = capsys.readouterr()
    assert "61.00" not in out
    assert err.startswith("warning: ")
    assert "result.json: damaged" in err


@pytest.mark.parametrize(
    ("name", "wanted", "found", "agrees"),
    [
        ("teacher", "google-bert/bert-base-uncased", "weights/bert-base-uncased", True),
        ("teacher", "google-bert/bert-base-uncased", "google-bert/bert-base-uncased-mnli", False),
        ("init", "google-bert/bert-base-uncased", "first 3 layers of bert-base-uncased", True),
        ("init", "google-bert/bert-base-uncased", "random", False),
        ("init", "general", "general", True),
        ("diffcat", "on", True, True),
        ("diffcat", "off", True, False),
        ("layers", "1,3,5", [1, 3, 5], True),
        ("layers", "1,3,5", [3, 4, 5], False),
        ("bits", "1", 1, True),
        ("lr", 1e-4, 0.0001, True),
        ("lr", 1e-4, 0.0002, False),
        ("augment", 0, 30, False),
    ],
)
def test_settings_as_commands_and_results_spell_them(name: str, wanted: Any, found: Any, agrees: bool) -> None:
    assert papers.same(name, wanted, found) == agrees


def test_a_task_that_results_call_otherwise(of_table_3: dict[str, Any]) -> None:
    paper, table = PAPERS["cmow"], table_of("cmow", "V")
    row = next(row for row in table.rows if row.labels == ("Hybrid", "random", "MLP"))
    given = papers.options(paper, table, papers.meaning(paper, table, row).values, "stsb")
    args = papers.wanted_args("cmow", ("--task", "stsb", *(word for pair in given.items() for word in pair)))
    record = of_table_3 | {
        "method": "cmow",
        "task": "stsb-21",
        "variant": "kd",
        "settings": as_dict(args) | {"diffcat": True},
    }
    record["metrics"] = {"dev": {"pearson": 0.6, "spearman": 0.5}}
    lines = {line[1]: line[2:] for line in papers.row_lines(paper, table, row, [record], set())}
    assert lines["STS-B"] == ["58.6", "60.0", "+1.4", ""]
    lines = {line[1]: line[2:] for line in papers.row_lines(paper, table, row, [record | {"task": "stsb"}], set())}
    assert lines["STS-B"][1] == "never run"


def test_means_and_pairs() -> None:
    assert papers.compared("84.2/84.6", [84.0, 85.0]) == ("84.0/85.0", "-0.2/+0.4")
    assert papers.compared("0", [1.25]) == ("1.2", "+1.2")
    assert papers.compared("88.9", [84.0, 85.0]) == ("84.0/85.0", "-")  # which of the two is not said


def test_a_mean_needs_all_its_tasks(of_table_3: dict[str, Any]) -> None:
    row = Row(("BERT12", "BERT3", "MC3KD"), ("60.29", "70.0"))
    table = dataclasses.replace(table_of("mc3kd", "3"), columns=["RTE", "Both"], rows=[row])
    both = {"Both": "mean of rte:accuracy cola:matthews"}
    paper = dataclasses.replace(PAPERS["mc3kd"], columns=PAPERS["mc3kd"].columns | both)
    [_, mean] = papers.row_lines(paper, table, table.rows[0], [of_table_3], set())
    assert mean[3] == "never run"
    cola = of_table_3 | {"task": "cola", "metrics": {"dev": {"matthews": 0.39}}}
    [_, mean] = papers.row_lines(paper, table, table.rows[0], [of_table_3, cola], set())
    assert mean[3:5] == ["50.0", "-20.0"]


# --- sizes ---------------------------------------------------------------------------------------------------


SCRIPTS = {m: results.ROOT / "methods" / f"{m}.py" for m in TABLES if PAPERS[m].sizes and PAPERS[m].exists}


@pytest.mark.parametrize(
    "method", [m for m, path in SCRIPTS.items() if "def published_sizes" in path.read_text("utf-8")]
)
def test_sizes_are_computed_now(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in PAPERS[method].sizes["tables"]:
        text = printed(capsys, method, "--table", name)
        assert len(text.splitlines()) > 5
        assert "MISMATCH" not in text
        assert papers.ABSENT not in text


def test_cmow_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "cmow", "--table", "VII")
    lines = {line[0]: line[1:] for line in lines_of(text, "cmow + bilstm")}
    assert lines["classifier, 21 classes"] == ["110,936,21", "11,093,621", "+0", "ok (misplaced commas)"]


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Paper, "exists", False)
    assert papers.ABSENT in printed(capsys, "cmow", "--table", "VII")
    assert f"methods/cmow.py: {papers.ABSENT}" in printed(capsys, "cmow", "--table", "VI")
    text = printed(capsys, "cmow", "--table", "VI", "--commands")
    assert "python" not in text.split("WNLI")[0].replace("python -m", "")


# --- the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(TABLES))
def test_every_table_is_printed(method: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = printed(capsys, method, "--results", str(tmp_path), *(("--commands",) if method == "cmow" else ()))
    for name in TABLES[method]:
        assert f"\nTable {name}. " in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["papers", "gpt"], "gpt"),
        (["papers", "mc3kd", "--table", "X"], "--table X: mc3kd has 1, 2"),
        (["papers", "mc3kd", "--results", "nowhere"], "--results 'nowhere': no such folder"),
        (["papers"], "method"),
        (["paper"], "no such command; there is run, "),
    ],
)
def test_wrong_names_are_one_line(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        entry.main(argv)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert not out
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_the_entry_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, code in (([], 2), (["--help"], 0)):
        with pytest.raises(SystemExit) as stop:
            entry.main(argv)
        assert stop.value.code == code
        assert "papers" in capsys.readouterr().out
