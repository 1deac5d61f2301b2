"""Training runs that draw no curves and do not measure the machine: both take longer than a tiny run.

A test file imports the fixture; a test of runs that draw asks for `pictures` too.
"""

import pytest

from albertkit.training import loop, progress


@pytest.fixture(autouse=True)
def quick_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "peak_flops", lambda *_: 1e12)
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(progress, "plot_curves", lambda output: None)


@pytest.fixture
def pictures() -> None:
    """Draw the curves."""
