"""Shared code of the scripts: their command lines, and the tables that they write into pages."""

import argparse
from pathlib import Path

from albertkit.files import atomic_path

END = "<!-- end of table -->"


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the docstring of a script."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def with_table(text: str, begin: str, table: str) -> str:
    """Return the text of a page with a new table between the lines `begin` and `END`."""
    before, marker, rest = text.partition(begin)
    if not marker or END not in rest:
        raise SystemExit(f"the page must contain the lines {begin!r} and {END!r}. Nothing was written.")
    return f"{before}{begin}\n{table}\n{END}{rest.partition(END)[2]}"


def write_table(page: Path, begin: str, table: str) -> None:
    """Replace the table in a page."""
    text = with_table(page.read_text(encoding="utf-8"), begin, table)
    with atomic_path(page) as file:
        file.write_text(text, encoding="utf-8")


def rows_of(page: Path, begin: str) -> list[str]:
    """Return the lines of the table in a page, with its head."""
    table = page.read_text(encoding="utf-8").partition(begin)[2].partition(END)[0]
    return [line for line in table.splitlines() if line.startswith("| ")]
