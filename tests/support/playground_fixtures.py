"""Fixtures of the tests of the playground: random models, a running server, and a page in a browser.

A test module imports a fixture as `server_fixture`, and its tests request it as `server`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Watch
from playground_pages import settle
from serving_server import Running, running, save_random_models

from albertkit.modeling.heads import (
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
)
from albertkit.serving.models import ServedModel, load_model
from albertkit.serving.settings import ServingSettings

HEADS = {
    "pretrained": AlbertForPreTraining,
    "reader": AlbertForQuestionAnswering,
    "classifier": AlbertForSequenceClassification,
    "nli": AlbertForSequenceClassification,
}
KEY = "a-secret-key"


@pytest.fixture(name="folders", scope="module")
def folders_fixture(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the folders of random models with large weights, so that heads, labels and layers differ."""
    return save_random_models(HEADS, tiny_vocabulary, tmp_path_factory.mktemp("playground"), seed=1)


@pytest.fixture(name="settings", scope="module")
def settings_fixture(folders: dict[str, str]) -> ServingSettings:
    return ServingSettings(models=folders, port=0, device="cpu", playground=True, max_characters=3000)


@pytest.fixture(name="models", scope="module")
def models_fixture(settings: ServingSettings) -> dict[str, ServedModel]:
    return {name: load_model(name, settings) for name in settings.models}


@pytest.fixture(name="server", scope="module")
def server_fixture(settings: ServingSettings, models: dict[str, ServedModel]) -> Iterator[Running]:
    with running(settings, models) as started:
        yield started


@pytest.fixture(name="watch", scope="module")
def watch_fixture() -> Watch:
    return Watch()


@pytest.fixture(name="tab", scope="module")
def tab_fixture(browser, watch: Watch) -> Any:
    """Return a page that all tests use. Opening a link resets it."""
    return watch.over(browser.new_context(reduced_motion="reduce").new_page())


@pytest.fixture(name="opened")
def opened_fixture(tab: Any, server: Running, watch: Watch):
    """Return a function that opens a link. Browser errors and requests to other hosts fail the test."""

    def open_page(fragment: str = "") -> Any:
        tab.goto("about:blank")  # otherwise the page before may still write its own address
        tab.goto(f"http://127.0.0.1:{server.port}/playground#{fragment}")
        tab.mouse.move(0, 0)
        settle(tab)
        return tab

    yield open_page
    tab.unroute_all()
    complaints, requests = watch.complaints.copy(), watch.requests.copy()
    watch.complaints.clear()
    watch.requests.clear()
    assert complaints == []
    assert requests
    address = f"http://127.0.0.1:{server.port}/"
    assert [url for url in requests if not url.startswith(address)] == []
