"""Checked-in results know a script by its name, no longer by its path: what they were asked by is hashed anew.

    python -m bench.studies.migrate        # after older code has written into bench/results/

Entries that no matrix asks for any more stay as they are. A second run changes nothing.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from bench import FOLDER, matrix, records, sweep
from common import folders, results
from common.args import BadInput, CommonArgs

FOLDERS = ("methods", "docs", "bench/baselines")  # where scripts have lain


def jobs_of(path: Path) -> Iterator[matrix.Job]:
    """All commands of a matrix: its cells, and the trials that are kept."""
    table = matrix.read_file(path)
    yield from matrix.build(table, "runs", path.name).jobs
    if isinstance(table.get("tune"), dict):
        search = sweep.Search(table, path.parent, path.name, matrix.NOTHING_TRIED)
        for name, row in matrix.trials(table)["rows"].items():
            for trial in row["trials"] if name in search.rows else ():
                yield from search.trial(search.rows[name], trial["point"]).jobs


def renamed() -> dict[str, str]:
    """What the commands of all matrices were asked by in any folder -> what they are asked by now."""
    names: dict[str, str] = {}

    def no_files(*_: object) -> dict[str, Path]:  # the data and weights of real tasks need not be here
        return {}

    with (patch.object(CommonArgs, "check"), patch.object(folders, "find_files", no_files),
          patch.object(matrix, "find_files", no_files)):  # fmt: skip
        for path in sorted(matrix.MATRICES.glob("*.toml")):
            try:
                for job in jobs_of(path):
                    script = Path(job.words[0]).name
                    names |= {job.asked_of(f"{folder}/{script}"): job.asked for folder in FOLDERS}
            except BadInput as error:
                print(f"left out: {error}")
    return names


def main(folder: Path = FOLDER) -> None:
    names = renamed()
    for path in sorted([*folder.glob("*_trials.json"), *folder.glob(f"*{records.KEPT}")]):
        packed = path.name.endswith(records.KEPT)
        text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode()
        new = re.sub(r'(?<="asked": ")\w+', lambda found: names.get(found[0], found[0]), text)
        if new != text:
            with results.replacing(path) as partial:
                partial.write_bytes(gzip.compress(new.encode(), mtime=0) if packed else new.encode())
            print(f"migrated: {path}")


if __name__ == "__main__":
    main()
