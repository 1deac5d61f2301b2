"""Pictures draw labels in Chinese, Japanese and Korean with an installed font, without many warnings."""

import logging
import warnings
from pathlib import Path

import pytest

font_manager = pytest.importorskip("matplotlib.font_manager")

from albertkit import pictures  # noqa: E402


def write_font(file: Path, family: str, text: str) -> None:
    """Write a font that has a filled square for each character of a text."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 900), (900, 900), (900, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", *(f"uni{ord(character):04X}" for character in text)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(character): f"uni{ord(character):04X}" for character in text})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(file)


def draw(target: Path, text: str) -> bytes:
    with pictures.picture(target, 2, 2) as figure:
        figure.text(0.1, 0.5, text)
    return target.read_bytes()


def test_a_missing_font_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(tmp_path / "labels.png", "\U0001f9ff and \U0001fab8")  # in no font here
    (record,) = caplog.records
    assert record.getMessage().startswith("labels.png: no installed font has all of its characters.")


def test_an_installed_font_draws_chinese_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "font.ttf"
    write_font(file, pictures._FALLBACK_FONTS[0], "中文")
    fonts = [font for font in font_manager.fontManager.ttflist if font.name not in pictures._FALLBACK_FONTS]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    without = draw(tmp_path / "without.png", "中文 label")
    assert "no installed font" in caplog.text
    caplog.clear()
    font_manager.fontManager.addfont(file)
    font_manager.fontManager._findfont_cached.cache_clear()
    with_font = draw(tmp_path / "with.png", "中文 label")
    assert caplog.text == ""
    assert with_font != without


def test_other_warnings_remain(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="another"), pictures.picture(tmp_path / "a.png", 2, 2):
        warnings.warn("another", UserWarning, stacklevel=1)
