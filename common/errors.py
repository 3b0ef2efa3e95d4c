"""The two exceptions that end a script in an orderly way; `common.args.execute` turns them into exit codes."""

import os


class BadInput(Exception):
    """Wrong input from the user: the message names the argument or the file, what is wrong, and what is right."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; a training loop has written its checkpoint before this reaches `run`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def speaks() -> bool:
    """Whether this process speaks for its group, as the launcher says: the first, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
