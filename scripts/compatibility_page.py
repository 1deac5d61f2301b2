"""Write the table of docs/reference/compatibility.md from compatibility.json, as `make compat` does.

python scripts/compatibility_page.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import command_line, write_table

DOCS = Path(__file__).parents[1] / "docs" / "reference"
RESULTS = DOCS / "compatibility.json"
PAGE = DOCS / "compatibility.md"
BEGIN = "<!-- table: scripts/compatibility_page.py -->"
COLUMNS = ("tool", "version", "with", "checked", "direction", "models", "largest difference", "result")
DIRECTIONS = {"opens": "opens albertkit's files", "writes": "writes files that albertkit opens"}


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a row."""
    difference = row.get("largest_difference")
    return [
        row["tool"],
        row["version"] or "",
        ", ".join(f"{package} {number}" for package, number in row.get("beside", {}).items()),
        row["date"],
        DIRECTIONS.get(row.get("direction", ""), ""),
        str(len(row.get("heads", ()))),
        "" if difference is None else f"{difference:.0e}",
        row["result"],
    ]


def table(results: Mapping[str, Any]) -> str:
    """Return the table, followed by notes and by the models that were not compared."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in results["rows"]]
    details = [detail for row in results["rows"] for detail in _details(row)]
    return "\n".join([*lines, "", *details])


def write_page() -> None:
    """Replace the table on the page."""
    write_table(PAGE, BEGIN, table(json.loads(RESULTS.read_text(encoding="utf-8"))))


def _details(row: Mapping[str, Any]) -> list[str]:
    """Return the errors, and the models that the tool does not support, by reason."""
    models: dict[str, list[str]] = {}
    for limit in row.get("limits", ()):
        models.setdefault(limit["reason"], []).append(limit["name"])
    limits = [
        f"* {row['tool']} {reason}. Not compared: {', '.join(names)}." for reason, names in models.items()
    ]
    return [*(f"* {row['tool']}: {note.replace('|', '/')}." for note in row["notes"]), *limits]


if __name__ == "__main__":
    command_line(__doc__).parse_args()
    write_page()
