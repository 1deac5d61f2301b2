"""Tests of the tables that commands print in narrow terminals."""

import io

import numpy as np
import pytest
from rich.console import Console

from albertkit.cli.printing import (
    print_bars,
    print_model,
    print_spans,
    print_vectors,
)
from albertkit.inspection.model import inspect_model

pytestmark = pytest.mark.light
WIDTHS = (40, 80)
TEXTS = [
    f"sentence {number} has about ninety characters, and the table must cut it, not the numbers"
    for number in range(13)
]


def console(width: int) -> Console:
    """Return a console that writes to a string."""
    return Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)


def lines(printed: Console) -> list[str]:
    assert isinstance(printed.file, io.StringIO)
    return printed.file.getvalue().splitlines()


class TestBars:
    SHARES = (("doors", 0.25), ("window", 0.125))

    @pytest.mark.parametrize(("width", "bar"), [(80, 30), (45, 30), (40, 25)])
    def test_the_bar_takes_the_rest_of_the_line(self, width: int, bar: int) -> None:
        printed = console(width)
        print_bars(printed, self.SHARES)
        assert [line.split()[:2] for line in lines(printed)] == [["doors", "25%"], ["window", "12.5%"]]
        assert lines(printed)[0].count("█") == bar
        assert all(len(line) <= width for line in lines(printed))

    def test_a_long_name_wraps(self) -> None:
        for name in ("the captain opened the door and went into the room " * 3, "船" * 80):
            printed = console(60)
            print_bars(printed, [(name, 1.0)])
            cells = "".join(lines(printed)).replace("█", "").replace("100%", "").replace(" ", "")
            assert cells == name.replace(" ", "")
            assert all(len(line) <= 60 for line in lines(printed))

    @pytest.mark.parametrize(("score", "bar"), [(1.0, "█" * 30), (0.125, "███▊"), (0.0001, "")])
    def test_a_single_bar_is_relative_to_100_percent(self, score: float, bar: str) -> None:
        printed = console(80)
        print_bars(printed, [("door", score)])
        assert lines(printed)[0].split()[2:] == [bar] * bool(bar)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_labels_and_numbers_of_spans_are_whole(width: int) -> None:
    printed = console(width)
    text = "the harbor of the town of Leith in the county of Edinburgh"
    print_spans(
        printed,
        [
            ("LOC", text, {"score": 0.5, "start": 100, "end": 158}),
            ("PER", "Anne", {"score": 1, "start": 0, "end": 4}),
        ],
    )
    shown = lines(printed)
    assert {"LOC", "50%", "100:158"} <= set(shown[0].split())
    assert ["PER", "Anne", "100%", "0:4"] in [line.split() for line in shown]
    assert [word for line in shown for word in line.split() if word in text.split()] == text.split()


class TestSimilarities:
    def shown(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, width: int
    ) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        vectors = list(np.eye(count, 4, dtype=np.float32) - 0.25)
        print_vectors(TEXTS[:count], np.stack(vectors), None)
        return capsys.readouterr().out.splitlines()

    @pytest.mark.parametrize(("count", "width", "text"), [(6, 80, 35), (6, 200, 50)])
    def test_the_text_is_cut_and_the_numbers_are_not(self, monkeypatch, capsys, count, width, text) -> None:
        shown = self.shown(monkeypatch, capsys, count, width)
        assert all(len(line) <= width for line in shown)
        first = shown[3]
        assert first.startswith("1  " + TEXTS[0][: text - 1].rstrip())
        assert "…" in first
        numbers = [line.split()[-count:] for line in shown[3:]]
        assert [row[number] for number, row in enumerate(numbers)] == ["1.00"] * count
        assert numbers[0][1] == numbers[1][0] == "-0.33"


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_of_reports_are_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_model(inspect_model("xxlarge-v2"))
    words = capsys.readouterr().out.split()
    assert {"maximum", "length", "222,595,584", "2,653,476,864"} & set(words)
    assert "…" not in "".join(words)
