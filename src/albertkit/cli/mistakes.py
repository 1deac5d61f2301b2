"""Wrong use of the command line, in one line."""

import difflib
import re
from typing import Any

from albertkit.errors import did_you_mean


def is_usage_error(error: Exception) -> bool:
    """Return whether an error is one of the command-line library, whichever copy of Click it uses."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage_error(error: Any) -> str:
    """Return a usage error as one line: the mistake, the nearest correct name, and where to find help."""
    if possibilities := getattr(error, "possibilities", None):  # Click lists them all
        nearest = difflib.get_close_matches(error.option_name, possibilities, n=1)
        message = error.message + (f" (did you mean {nearest[0]}?)" if nearest else "")
    else:
        message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
        if choice := re.search(r"'([^']*)' is not one of (.*)", message):
            message += did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
    if received := re.search(r"input_value=('[^']*')", str(error.__cause__ or error.__context__ or "")):
        message += "" if received[1] in message else f", but received {received[1]}"
    command = error.ctx.command_path if getattr(error, "ctx", None) else "albertkit"
    return f"{message}{'' if message.endswith('?') else '.'} See {command} --help"
