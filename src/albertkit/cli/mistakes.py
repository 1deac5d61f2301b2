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
    if type(error).__name__ == "NoSuchOption":
        nearest = _nearest_option(error)
        message = error.message + (f" (did you mean {nearest}?)" if nearest else "")
    else:
        message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
        if choice := re.search(r"'([^']*)' is not one of (.*)", message):
            message += did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
    if received := re.search(r"input_value=('[^']*')", str(error.__cause__ or error.__context__ or "")):
        message += "" if received[1] in message else f", but received {received[1]}"
    command = error.ctx.command_path if getattr(error, "ctx", None) else "albertkit"
    return f"{message}{'' if message.endswith('?') else '.'} See {command} --help"


def _nearest_option(error: Any) -> str | None:
    """Return the option with these initials (--lr), or else the one spelled most like it."""
    if error.ctx is None:
        return None
    # Without the dashes, which all options have in common.
    options = {
        option.lstrip("-"): option
        for parameter in error.ctx.command.get_params(error.ctx)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    wanted = error.option_name.lstrip("-")
    for name, option in options.items():
        if len(wanted) > 1 and wanted == "".join(word[:1] for word in name.split("-")):
            return option
    nearest = difflib.get_close_matches(wanted, options, n=1)
    return options[nearest[0]] if nearest else None
