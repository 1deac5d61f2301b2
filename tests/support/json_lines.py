"""Functions that write and read files of JSON lines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_json_lines(file: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write each row as a line of JSON, and return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read_json_lines(file: Path) -> list[Any]:
    """Return the value of each line."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
