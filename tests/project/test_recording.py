"""Tests of `scripts/recording.py`: the picture, and the splitting of data and outputs."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

MAX_BYTES = 100_000


def check(picture: str, recording: ModuleType) -> None:
    ET.fromstring(picture)
    assert len(picture.encode()) < MAX_BYTES
    for loaded in ("<script", "@import", "@font-face", "href"):
        assert loaded not in picture
    lines = {int(number) for number in re.findall(r"url\(#recording-line-(\d+)\)", picture)}
    assert 0 < len(lines) <= recording.MAX_LINES
    assert picture.count("animation-delay") == picture.count("url(#recording-line-")


def test_lines_appear_in_order_and_too_many_are_an_error(script: Callable[[str], ModuleType]) -> None:
    recording = script("recording")
    picture = recording.draw([("ls", ["a.csv", "x" * (recording.WIDTH + 1)]), ("cat <a.csv", [])])
    check(picture, recording)
    delays = [float(delay) for delay in re.findall(r"animation-delay: ([\d.]+)s", picture)]
    assert delays == sorted(delays)
    assert len(set(delays)) == 4  # the prompt, two lines (one of them wrapped), and the second prompt
    assert "cat&#160;&lt;a.csv" in picture
    with pytest.raises(SystemExit, match="has 31 lines, but the maximum is 30"):
        recording.draw([("ls", ["a"] * 30)])


def test_outputs_are_shortened(script: Callable[[str], ModuleType]) -> None:
    recording = script("recording")
    step = recording.Step("x", first=1, last=1)
    assert recording.excerpt("\ufeffa\nb  \n\n", step) == ["a", "b"]
    assert recording.excerpt("a\nb\nc\nd\n", step) == ["a", "...", "d"]
    assert recording.excerpt("a\nb\n", recording.Step("x", first=1)) == ["a", "..."]


def test_every_fifth_row_is_a_test_row(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("text,label\n" + "".join(f'"a, {number}",x\n' for number in range(6)))
    script("recording").split(data, tmp_path)
    assert (tmp_path / "test.csv").read_text() == 'text,label\n"a, 0",x\n"a, 5",x\n'
    assert (tmp_path / "tickets.csv").read_text().count("\n") == 5


def test_the_picture_in_the_readme_shows_the_session(script: Callable[[str], ModuleType]) -> None:
    recording = script("recording")
    picture = (ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")
    check(picture, recording)
    shown = " ".join("".join(ET.fromstring(picture).itertext()).replace("\xa0", " ").split())
    for step in recording.SESSION:
        assert step.command.split(" '")[0] in shown
