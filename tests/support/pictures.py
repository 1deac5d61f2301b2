"""Pictures that are written but not drawn, for tests of runs that show something else."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Matplotlib write a PNG header in place of each picture: drawing is most of a short run's time.

    Fixtures of a module or session, which are older than a test, still draw.
    """
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", write_blank)


def write_blank(figure: Any, file: Path, **_: Any) -> None:
    """Write a PNG header in place of a picture."""
    Path(file).write_bytes(b"\x89PNG\r\n\x1a\n")
