"""The one exception that a user's mistake raises; `common.args.main` prints it as one line and exits with 2."""


class BadInput(Exception):
    """Wrong input from the user: the message names the argument or the file, what is wrong, and what is right."""
