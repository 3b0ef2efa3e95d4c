"""Files as rows: CSV, TSV, JSON, JSON lines, Parquet, the layouts of the kinds, and folders of `save_to_disk`.

CSV, TSV and JSON lines are read here and not by `datasets`: its readers guess types (a text "1.0" or "null" becomes a
number or nothing), take quotation marks of the official TSV files for quotes, and do not say in which line a mistake
is. Parquet and `save_to_disk` folders, which carry their types, are left to it.
"""

from __future__ import annotations

import codecs
import csv
import functools
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.errors import BadInput, refused, shown, some, warn
from common.kinds import KINDS, Rows, Task
from common.tasks import plain

Pick = Callable[[Sequence[str], str], dict[str, str]]  # the columns that there are, and where -> our name: the column

OFFICIAL: dict[str, dict[str, str]] = {  # header names of the official TSV files, where they are not the hub's
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    "qqp": {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    "stsb": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    "mnli": {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
}
_COLA_HEADER = ["source", "label", "mark", "sentence"]  # the official file has none
SPELT = {"mnli", "qnli", "rte"}  # GLUE's files have these labels by name; integers are a mistake


def opened(files: dict[str, Path]) -> tuple[Mapping[str, Any], str]:
    """What `folders.find_files` found: the file or the `datasets.Dataset` of each split; and what results call it."""
    if not (folder := files.get("")):
        first, *_ = files.values()
        return files, f"{first.parent.resolve().name}: {', '.join(file.name for file in files.values())}"
    import datasets

    with refused(f"{folder}: save_to_disk folder cannot be read"):
        return datasets.load_from_disk(str(folder)), f"{folder.resolve().name} (save_to_disk)"


def read(stored: Any, where: str, pick: Pick, task: Task | None = None) -> Rows:
    """The picked columns of one split, a `datasets.Dataset` or a file, whose suffix says how it is read, and of a data
    set of one's own (no task yet) also what is in it."""
    if not isinstance(stored, Path):
        rows = _dataset(stored, where)
    elif (suffix := plain(stored).suffix.lower()) == ".parquet":
        return _read_parquet(stored, pick)
    else:
        path, text = plain(stored), _decode(stored)
        for kind in [task.kind] if task else [KINDS["token classification"], KINDS["span QA"]]:
            if (found := kind.parse(path, text, task.whole if task else None)) is not None:
                return found
        rows = _json(path, text) if suffix in (".jsonl", ".json") else _table(path, text, task)
    return take(rows, pick(list(rows.columns), rows.where))


def take(rows: Rows, chosen: dict[str, str]) -> Rows:
    """The chosen columns, our name -> the source's; labels that are integers by the names that they have."""
    if lacking := [name for name in chosen.values() if not {*parts_of(name, rows.columns)} <= {*rows.columns}]:
        needs, has = ", ".join(chosen.values()), some(list(rows.columns))
        raise BadInput(f"{rows.where}: no column {lacking[0]!r}; needs {needs}, has {has}")
    taken: dict[str, list[Any]] = {}
    for ours, theirs in chosen.items():
        cells = {part: rows.columns[part][:] for part in parts_of(theirs, rows.columns)}
        of_rows = zip(*cells.values(), strict=True)
        taken[ours] = cells[theirs] if theirs in cells else [dict(zip(cells, row, strict=True)) for row in of_rows]
    if names := rows.names.get(chosen.get("label", "")):
        taken["label"] = [_named(value, names) for value in taken["label"]]
    return replace(rows, columns=taken, chosen=chosen, names={"label": names} if names else {})


def parts_of(name: str, header: Collection[str]) -> list[str]:
    """The columns that a name means: one, or of several labels "a,b,c", whose cell holds each of them by its name."""
    return [name] if name in header or "," not in name else [part.strip() for part in name.split(",")]


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


def _dataset(data: Any, where: str) -> Rows:
    """A `datasets.Dataset`, of which only the columns that are taken are decoded."""
    titles = {name: data.column_names[i] for name, i in _titles(data.column_names, where).items()}
    lists = {name: getattr(data.features[title], "feature", data.features[title]) for name, title in titles.items()}
    names = {name: feature.names for name, feature in lists.items() if getattr(feature, "names", None)}
    return Rows({name: data[title] for name, title in titles.items()}, where, names=names)


def _titles(header: Sequence[str], where: str) -> dict[str, int]:
    """The names of columns, without blanks around them, and where they stand; of equals the first, which is said."""
    names = [name.strip() for name in header]
    if twice := [repr(name) for name, count in Counter(names).items() if name and count > 1]:
        warn(f"{where}: several columns are called {some(twice, 3)}; the first of them is read")
    return {name: names.index(name) for name in names}


def _read_parquet(path: Path, pick: Pick) -> Rows:
    """The picked columns of a Parquet file, or of those of a pattern, and no others; class names that `datasets` stored
    in their schema are used."""
    import datasets
    import pyarrow.parquet

    # names and texts are decoded late; `datasets` has no type for some of Arrow's
    with refused(f"{path}: not a readable Parquet file", OSError, pyarrow.ArrowException, ValueError):
        parts = [path] if path.is_file() else sorted(path.parent.glob(path.name))
        names = pyarrow.parquet.read_schema(parts[0]).names
        titles = _titles(names, str(path))
        chosen = pick(list(titles), str(path))
        take(Rows(dict.fromkeys(titles, ()), str(path)), chosen)  # they are there
        needed = {names[titles[part]] for name in chosen.values() for part in parts_of(name, titles)}
        table = pyarrow.parquet.read_table(parts, columns=sorted(needed))
        return read(datasets.Dataset(table), str(path), lambda *_: chosen)


def _decode(path: Path) -> str:
    """The text of a file in UTF-8, or with a byte order mark in UTF-16, as Excel's "Unicode text" is."""
    with refused(f"{path}: cannot be read", OSError, EOFError, zlib.error):
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    if raw.startswith(b"PK\3\4"):
        raise BadInput(f"{path}: a spreadsheet, or a zip archive; save it as CSV, in UTF-8")
    try:
        utf16 = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        text = raw.decode("utf-16" if utf16 else "utf-8-sig").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} line {line}: not UTF-8 (byte {error.start} of the file); save it as UTF-8") from error
    if "\0" in text[:2]:
        raise BadInput(f"{path}: binary, or UTF-16 without a mark; save it as UTF-8")
    if not text.strip():
        raise BadInput(f"{path}: the file is empty")
    return text


def _separator(path: Path, text: str) -> str:
    """What separates the columns: of comma, tab, semicolon and bar the one that makes most of the header; of equals
    the one that the suffix says."""
    header = re.split("[\r\n]", text.lstrip(" \r\n"), maxsplit=1)[0]
    usual = "," if path.suffix.lower() == ".csv" else "\t"
    found = max(usual + ",;\t|", key=lambda one: len(next(csv.reader([header], delimiter=one))))
    if found not in (usual, "\t"):
        warn(f"{path}: its columns are separated by {found!r}, and read so")
    return found


def _table(path: Path, text: str, task: Task | None) -> Rows:
    """CSV with the usual quoting; TSV of a task without any: a quotation mark is just text there, as it is
    in a TSV of one's own whose marks do not come in pairs."""
    name = task.name if task else ""
    csv.field_size_limit(max(len(text), 131_072))  # a text of any length is cut later, in tokens
    quoted = path.suffix.lower() == ".csv" or task is None
    rows = _cells(path, text, _separator(path, text) if quoted else "\t", quoted)
    header = [title.strip() for title in rows[0][1]]
    if not any(header) or header[0].startswith(("sep=", "[", "{")):
        hint = "; JSON needs a name in .json or .jsonl" if header[0][:1] in ("[", "{") else ""
        raise BadInput(f"{path}: its first line is {shown(rows[0][1][0])}; it must name the columns{hint}")
    headless = name == "cola" and not quoted and "sentence" not in header
    if headless:
        header = _COLA_HEADER
    rows = rows[not headless :]
    released = not quoted and name in OFFICIAL and set(OFFICIAL[name].values()) <= set(header)
    if released and name in ("qqp", "mnli"):  # what is known to be wrong in the official files
        label = header.index(OFFICIAL[name]["label"])
        good = [row for row in rows if len(row[1]) == len(header) and row[1][label] != "-"]
        if len(good) < len(rows):
            why = "of another number of columns, or without an agreed label"
            warn(f"{path}: {len(rows) - len(good)} rows left out, {why}")
        rows = good
    for line, row in rows:
        if len(row) != len(header):
            raise BadInput(f"{path} line {line}: {len(row)} columns where {len(header)} are needed, by the first line")
    again = next((line for line, row in rows if [title.strip() for title in row] == header), None)
    if again and len(header) > 1:
        raise BadInput(f"{path} line {again}: the columns' names once more; leave the line out")
    # SST-2's official header is the hub's; the others are known by their further columns or none
    known = headless or released or "index" in header or name == "sst2"
    return Rows(
        {title: [row[i] for _, row in rows] for title, i in _titles(header, str(path)).items()},
        str(path),
        lambda i: f"{path} line {rows[i][0]}",
        official=task is not None and task.hub and not quoted and known,
        integers=quoted or name not in SPELT,
    )


def _cells(path: Path, text: str, separator: str, quoted: bool) -> list[tuple[int, list[str]]]:
    """Every row that is not blank, with its line; of a single column also the blank ones between."""
    how: dict[str, Any] = {"strict": True} if quoted else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, **how)
    rows, wrong = [], ""
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        wrong = f"{path} line {reader.line_num}: {error}; check the quotes and separators"
    there = [i for i, (_, row) in enumerate(rows) if row == [""] or "".join(row).strip() or len(row) > 1]
    if there and all(len(rows[i][1]) == 1 for i in there):  # in a single column a blank line is an empty cell
        there = list(range(there[0], there[-1] + 1))
    rows = [(rows[i][0], rows[i][1] or [""]) for i in there]
    if separator == "\t" and quoted:
        # two marks that are no pair, and all between them
        broken = (line for line, row in rows if any("\n" in cell and "\t" in cell for cell in row))
        if line := next(broken, None):
            wrong = f"{path} line {line}: a quotation mark closes a cell that began lines before"
        if wrong:
            warn(f"{wrong}; all its quotation marks are read as text")
            return _cells(path, text, separator, quoted=False)
    if wrong:
        raise BadInput(wrong)
    if quoted:
        ends = {row[-1].strip() for _, row in rows} - {""}
        inner = ((line, part) for line, row in rows for cell in row for part in cell.split("\n")[:-1])
        if odd := [line for line, part in inner if separator in part and part.split(separator)[-1].strip() in ends]:
            warn(f"{path} line {odd[0]}: a quotation mark closes a cell that may hold whole rows ({len(odd):,} lines)")
        if rows[1:] and all(any(re.fullmatch(' +".*"', cell, re.DOTALL) for cell in row) for _, row in rows[1:]):
            raise BadInput(f"{path}: a blank before quotation marks makes both a part of the text; leave it out")
    return rows


EXPECTED = 'one object a line, or a list of objects, is expected, as pandas writes with orient="records"'


def _json(path: Path, text: str) -> Rows:
    """One JSON object a line, or one list of objects; what one of them lacks is null. A row that is a list, as
    pipelines give them, is the column "list"."""
    listed = text.lstrip().startswith("[") and "\n[" not in text.strip()
    places, records = list[str](), list[Any]()
    for number, line in enumerate([text] if listed else text.split("\n"), 1):
        if line.strip():
            places.append(f"{path}" if listed else f"{path} line {number}")
            with refused(f"{places[-1]}: not JSON", ValueError, RecursionError, hint=f"; {EXPECTED}"):
                records.append(json.loads(line))
    if listed:
        (records,) = records
        places = [f"{path} row {i + 1}" for i in range(len(records))]
    elif len(records) == 1 and path.suffix.lower() == ".json":
        raise BadInput(f"{path}: one object; {EXPECTED}")
    if not records:
        raise BadInput(f"{path}: no rows; {EXPECTED}")
    rows: list[dict[str, Any]] = []
    titles = functools.cache(lambda names: _titles(names, str(path)))  # most rows have the same keys
    for place, record in zip(places, records, strict=True):
        if isinstance(record, list) and all(isinstance(one, dict) for one in record):
            record = {"list": record}
        if not isinstance(record, dict):
            raise BadInput(f"{place}: {type(record).__name__}; {EXPECTED}")
        values = list(record.values())
        rows.append({name: values[i] for name, i in titles(tuple(record)).items()})
    names = dict.fromkeys(name for row in rows for name in row)
    return Rows({name: [row.get(name) for row in rows] for name in names}, str(path), places.__getitem__)
