"""A fixture for training runs that neither plot nor measure the machine: both take longer than a tiny run.

Test files import the fixture. A test that needs the plots also requests the fixture `pictures`.
"""

from collections.abc import Iterator

import pytest

from albertkit.training import loop, progress

PLOT_CURVES = progress.plot_curves


@pytest.fixture(scope="module", autouse=True)
def quick_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "peak_flops", lambda *_: 1e12)
        patch.setattr(progress, "plot_curves", lambda output: None)
        yield


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the plots."""
    monkeypatch.setattr(progress, "plot_curves", PLOT_CURVES)
