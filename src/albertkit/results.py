"""How results of public functions are displayed: text in a console; a table and curves in a notebook."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

ROWS_SHOWN = 5


class Result:
    """Base class of the results of public functions.

    A subclass is a dataclass with `repr=False`. It overrides `summary`, and optionally `rows` and `picture`,
    to choose what is displayed.
    """

    def summary(self) -> dict[str, Any]:
        """Return the values to display, by name."""
        return dict(vars(self))

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the first rows of a table that is displayed below the values."""
        return ()

    def picture(self) -> Path | None:
        """Return the image file to display in a notebook, or None."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values for `json.dumps`."""
        values = self.summary().items()
        return {name: str(value) if isinstance(value, Path) else value for name, value in values}

    def __str__(self) -> str:
        names = {name: name.replace("_", " ") for name in self.summary()}
        width = max(map(len, names.values()), default=0)
        lines = [f"{names[name]:<{width}}  {_shown(value)}" for name, value in self.summary().items()]
        lines += [", ".join(f"{name}: {_cell(value)}" for name, value in row.items()) for row in self.rows()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        lines = str(self).splitlines()
        return "\n".join([type(self).__name__, *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<tr><th style='text-align:left'>{escape(name.replace('_', ' '))}</th>"
            f"<td style='text-align:right'>{escape(_shown(value))}</td></tr>"
            for name, value in self.summary().items()
        )
        parts = [f"<table>{figures}</table>"]
        if rows := self.rows():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            head = "".join(f"<th>{escape(name)}</th>" for name in columns)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(_cell(row.get(name, '')))}</td>" for name in columns) + "</tr>"
                for row in rows
            )
            parts.append(f"<table><tr>{head}</tr>{body}</table>")
        picture = self.picture()
        if picture is not None and picture.is_file():
            content = base64.b64encode(picture.read_bytes()).decode()
            parts.append(f"<img src='data:image/png;base64,{content}' alt='curves of the run'>")
        return "\n".join(parts)


def with_baseline(metrics: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, Any]:
    """Return metrics for display, each with its baseline if it has one."""
    return {
        name: f"{_shown(value)} (baseline {_shown(baseline[name])})" if name in baseline else value
        for name, value in metrics.items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if abs(value) >= 1e-3 else f"{value:.4g}"


def _cell(value: Any) -> str:
    return str(value) if isinstance(value, int) else _shown(value)  # whole numbers are often ids
