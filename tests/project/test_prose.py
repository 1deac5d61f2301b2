"""Tests of `dev/prose.py`: what it reports, what it ignores, and that the project has no findings."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("prose_check", ROOT / "dev" / "prose.py")
assert SPEC is not None
assert SPEC.loader is not None
prose = importlib.util.module_from_spec(SPEC)
sys.modules["prose_check"] = prose
SPEC.loader.exec_module(prose)

RULES = prose.Rules(((re.compile(r"\butilize\b", re.IGNORECASE), "use"),), 10, ())
LONG = "one two three four five six seven eight nine ten eleven"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.md", "Fine.\n\nYou can utilize it.\n", ["a.md:3: 'utilize': write use"]),
        ("a.md", "Run `utilize`.\n\n```bash\nutilize\n```\n", []),
        (
            "a.md",
            f"{LONG}\n",
            ["a.md:1: 11 words, more than 10: one two three four five six seven eight ..."],
        ),
        ("a.md", "one two three four five six. Seven eight nine ten eleven.\n", []),
        ("a.md", "* one two three four five six\n* seven eight nine ten eleven\n", []),
        ("a.py", 'def f():\n    """Utilize it."""\n', ["a.py:2: 'Utilize': write use"]),
        ("a.py", "utilize = 1  # we utilize this\n", ["a.py:1: 'utilize': write use"]),
        ("a.py", "# we\n# utilize this\n", ["a.py:1: 'utilize': write use"]),
        ("a.py", 'x = f"{utilize} a b c d utilize"\n', ["a.py:1: 'utilize': write use"]),
        ("a.py", 'x = ["utilize"]\n', []),
    ],
)
def test_findings(path, text, expected):
    assert list(prose.findings(path, text, RULES)) == expected


def test_the_project_has_no_findings(capsys):
    assert prose.main([]) == 0, capsys.readouterr().out
