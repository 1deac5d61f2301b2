"""Tests of the results of `make compat`, of the page that shows them, and of the comparison."""

import json
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from places import ROOT

COMPAT = ROOT / "tests" / "compat"


@pytest.fixture
def page(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("compatibility_page")


@pytest.fixture
def results(page: ModuleType) -> dict[str, Any]:
    return json.loads(page.RESULTS.read_text(encoding="utf-8"))


def test_the_page_shows_the_results(page, script, results):
    text = page.PAGE.read_text(encoding="utf-8")
    new = script("pages").with_table(text, page.BEGIN, page.table(results))
    assert new == text, "run python scripts/compatibility_page.py"


def test_every_row_is_consistent(results):
    assert results["bound"] == 1e-4
    for row in results["rows"]:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["date"])
        if row["result"] == "equal":
            assert row["heads"]
            assert row["version"]
            assert not row["notes"]
            assert 0 <= row["largest_difference"] <= results["bound"]
        else:
            assert row["result"] == "not installed", "a tool whose outputs differ is a defect: fix it"
            assert row["notes"], "expected the reason why the tool is not installed"


def test_every_tool_has_a_row_and_its_files(results, monkeypatch):
    monkeypatch.syspath_prepend(str(COMPAT))
    from tools import TOOLS

    assert {row["tool"] for row in results["rows"]} == {tool.name for tool in TOOLS}
    for tool in TOOLS:
        assert (COMPAT / tool.script).is_file()
        assert tool.environment == "test" or (COMPAT / f"requirements-{tool.environment}.txt").is_file()


def test_differences_are_found_and_padding_is_not_compared(monkeypatch):
    monkeypatch.syspath_prepend(str(COMPAT))
    from comparing import largest_difference

    mask = np.array([[1, 1], [1, 0]])
    ours = {"logits": np.zeros((2, 2, 3), np.float32), "pooler_output": np.zeros((2, 3), np.float32)}
    theirs = {name: values.copy() for name, values in ours.items()}
    theirs["logits"][1, 1] = 5  # padding
    assert largest_difference(theirs, ours, mask) == 0
    theirs["logits"][1, 0, 2] = -0.25
    assert largest_difference(theirs, ours, mask) == 0.25
    theirs["pooler_output"][1, 1] = 0.5
    assert largest_difference(theirs, ours, mask) == 0.5
    for wrong in (
        {},
        {"other": mask},
        {"logits": np.zeros((2, 2, 2))},
        {"logits": theirs["logits"] + np.nan},
    ):
        with pytest.raises(AssertionError):
            largest_difference(wrong, ours, mask)


def test_a_table_has_a_row_for_each_direction_and_the_reasons(page):
    row = {"tool": "a tool", "version": "1.2", "date": "2026-01-02", "notes": [], "result": "equal"}
    limits = [{"name": name, "reason": "has no such head"} for name in ("AlbertForX", "AlbertForY")]
    rows = [
        row
        | {
            "beside": {"torch": "2.0"},
            "limits": limits,
            "direction": "opens",
            "heads": ["AlbertModel", "bundled"],
            "largest_difference": 1.24e-6,
        },
        row | {"version": None, "result": "not installed", "notes": ["no wheel for a | b"]},
    ]
    lines = page.table({"rows": rows}).splitlines()
    assert (
        lines[2] == "| a tool | 1.2 | torch 2.0 | 2026-01-02 | opens albertkit's files | 2 | 1e-06 | equal |"
    )
    assert lines[3] == "| a tool |  |  | 2026-01-02 |  | 0 |  | not installed |"
    assert lines[5:] == [
        "* a tool has no such head. Not compared: AlbertForX, AlbertForY.",
        "* a tool: no wheel for a / b.",
    ]
