"""A fixture that writes pictures without drawing them."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Matplotlib write only a PNG header for each picture: drawing takes most of the time of a short run.

    Fixtures of a module or session run earlier than this fixture, so they still draw.
    """
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", write_blank)


def write_blank(figure: Any, file: Path, **_: Any) -> None:
    """Write a PNG header instead of a picture."""
    Path(file).write_bytes(b"\x89PNG\r\n\x1a\n")
