"""The browser of the tests of pages: the Chromium that the machine has, through Playwright."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium on the PATH (Debian: apt install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra 'test'")
    with playwright.sync_playwright() as started:
        # Chromium refuses its sandbox to root, which is who runs tests in a container.
        browser = started.chromium.launch(
            executable_path=chromium,
            # example.test is this machine under a name that is not trusted.
            args=["--no-sandbox", "--host-resolver-rules=MAP example.test 127.0.0.1"],
        )
        yield browser
        browser.close()


@dataclass
class Watch:
    """What pages asked for, and what the browser complained of."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def over(self, page):
        """Watch a page from now on, and return it."""
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        return page


def until(page, expression: str, seconds: float = 30) -> None:
    """Wait until JavaScript is true; Playwright's own way is forbidden by a strict policy of a page."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"Boolean({expression})"):
        assert time.monotonic() < end, f"this never was: {expression}"
        page.wait_for_timeout(20)
