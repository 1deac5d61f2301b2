"""Folders of the project that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SUPPORT = Path(__file__).parent
