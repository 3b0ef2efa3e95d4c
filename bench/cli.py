"""What the subcommands of `python -m bench` share: a parser whose mistakes are one line and exit code 2."""

from __future__ import annotations

import argparse
from typing import NoReturn

from common.args import fail
from common.errors import BadInput


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that shows a module's docstring as it stands."""

    def __init__(self, name: str, doc: str | None) -> None:
        super().__init__(
            f"python -m bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        fail(BadInput(message.removeprefix("argument ")))
