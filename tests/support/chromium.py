"""A browser for the tests of pages: the Chromium of the machine, controlled by Playwright."""

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
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs Playwright: pip install 'albertkit[test]'"
    )
    with playwright.sync_playwright() as started:
        # Chromium cannot use its sandbox as root, and containers run tests as root.
        browser = started.chromium.launch(
            executable_path=chromium,
            # example.test is this machine, but the browser does not treat it as a secure context.
            args=["--no-sandbox", "--host-resolver-rules=MAP example.test 127.0.0.1"],
        )
        yield browser
        browser.close()


@dataclass
class Watch:
    """The requests of pages, and the errors and console messages of the browser."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def over(self, page):
        """Watch a page from now on, and return it."""
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        return page


def until(page, expression: str, seconds: float = 30) -> None:
    """Wait until a JavaScript expression is true.

    The content security policy of a page can block `wait_for_function` of Playwright, so this function polls.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(f"Boolean({expression})"):
        assert time.monotonic() < end, f"not true within {seconds} s: {expression}"
        page.wait_for_timeout(20)
