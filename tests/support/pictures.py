"""A fixture that writes pictures without drawing them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def blank_pictures() -> Iterator[Callable[..., None]]:
    """Let Matplotlib write only a PNG header for each picture: drawing takes most of the time of a short run.

    The value is the original `savefig`. Fixtures of a session run before this fixture, so they still draw.
    """
    from matplotlib.figure import Figure

    original = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", write_blank)
        yield original


def write_blank(figure: Any, file: Path, **_: Any) -> None:
    """Write a PNG header instead of a picture."""
    Path(file).write_bytes(b"\x89PNG\r\n\x1a\n")
