"""A comparison of the answers of pipelines, commands and files."""

from typing import Any

import pytest


def assert_close(ours: Any, theirs: Any, *, tolerance: float = 1e-5) -> None:
    """Assert that two answers are equal, with an absolute tolerance for floats."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert_close(ours[name], theirs[name], tolerance=tolerance)
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for our_value, their_value in zip(ours, theirs, strict=True):
            assert_close(our_value, their_value, tolerance=tolerance)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=tolerance)
    else:
        assert ours == theirs
