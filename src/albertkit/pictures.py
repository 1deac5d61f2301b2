"""Draw pictures with Matplotlib, also with labels in Chinese, Japanese and Korean."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albertkit.extras import optional
from albertkit.files import atomic_path, check_ending, check_new_file

matplotlib = optional("matplotlib", extra="train")
# Not pyplot, whose backend belongs to the program or notebook.
matplotlib_figure = optional("matplotlib.figure", extra="train")
font_manager = optional("matplotlib.font_manager", extra="train")

logger = logging.getLogger(__name__)

_FALLBACK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "SimHei", "Yu Gothic"),
    *("Malgun Gothic", "Arial Unicode MS"),
)
"""Fonts for the characters that Matplotlib's font does not have, on Linux, macOS and Windows."""


def check_picture(target: Path) -> None:
    check_ending(target, ".png", ".svg", ".pdf", verb="draw")
    check_new_file(target)


@contextmanager
def picture(
    target: Path, width: float, height: float, *, dpi: int = 110, layout: str | None = "constrained"
) -> Iterator[Any]:
    """Yield a figure of a size in inches, which is written at the end of the block."""
    installed = {font.name for font in font_manager.fontManager.ttflist}  # a missing font causes a warning
    families = [*matplotlib.rcParams["font.family"], *(name for name in _FALLBACK_FONTS if name in installed)]
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = matplotlib_figure.Figure(figsize=(width, height), layout=layout)
        yield figure
        with atomic_path(target) as file:
            figure.savefig(file, format=target.suffix[1:].lower(), dpi=dpi)
    glyphs = [one for one in caught if "missing from" in str(one.message)]
    for other in caught:
        if other not in glyphs:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    if glyphs:
        logger.warning(
            f"{target.name}: no installed font has all of its characters. Install one, such as Noto Sans CJK."
        )
