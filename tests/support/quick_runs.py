"""A fixture for training runs that neither plot nor measure the machine: both take longer than a tiny run.

Test files import the fixture. A test that needs the plots also requests the fixture `pictures`.
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
    """Draw the plots: `quick_runs` checks for the name of this fixture."""
