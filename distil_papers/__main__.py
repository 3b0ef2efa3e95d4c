"""distil-papers NAME [ARGUMENTS]: a script by its name, or a command of the bench."""

import runpy
import sys

from distil_papers.bench import __main__ as bench
from distil_papers.bench import matrix


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(f"{__doc__}\n\nscripts: {', '.join(matrix.methods())}\n")
    if name in matrix.methods():
        sys.argv = [str(matrix.file_of(matrix.script_of(name))), *sys.argv[2:]]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        bench.main(sys.argv[1:] or ["--help"])


if __name__ == "__main__":
    main()
