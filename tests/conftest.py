"""Fixtures shared by the suite."""

import os
from pathlib import Path

import pytest

# The suite is offline: a test that wants a hub starts one on localhost.
os.environ["HF_HUB_OFFLINE"] = "1"

SHARED = Path(os.environ.get("ALBERTKIT_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference outputs and real data, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference data in {SHARED} (set ALBERTKIT_SHARED to its folder)")
    return SHARED
