"""Take the pictures of the playground and of the exported page in docs/how-to.

    python scripts/screenshots.py

The script starts the playground with the bundled model, exports the page that runs it in the browser, and
takes the pictures with Chromium. It needs the `serve` extra, Playwright, Chromium, and npm with a network for
the exported page.
"""

import functools
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from pages import command_line
from PIL import Image
from playwright import sync_api

from albertkit.web.export import export_web

OUTPUT = Path(__file__).parents[1] / "docs" / "how-to"
MAX_DROP = 2.0
"""Maximum accuracy drop of int8, in percentage points, as in the pages."""
SETTLED = "document.querySelector('main > :not([hidden])') && !document.querySelector('[aria-busy=true]')"
COLORS = 128
"""Number of colors of a picture. The files are a third as large as with all colors."""
MARGIN = 15
"""Space above and below a panel, in pixels."""


def opened(browser: sync_api.Browser, address: str, width: int, scheme: str = "light") -> sync_api.Page:
    """Open a page and wait for its answers."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    for _ in range(600):
        page.wait_for_timeout(100)
        if page.evaluate(f"Boolean({SETTLED})") and page.locator("#candidates li").count():
            return page
    raise SystemExit(f"{address} has no answers after a minute")


def picture(page: sync_api.Page, file: Path, first: str | None, last: str) -> None:
    """Save the part of a page from the top of a panel, or of the page, to the bottom of another."""
    top = page.locator(first).bounding_box()["y"] - MARGIN if first else 0  # type: ignore[index]
    box: Any = page.locator(last).bounding_box()
    width = page.viewport_size["width"]  # type: ignore[index]
    clip: Any = {"x": 0, "y": top, "width": width, "height": box["y"] + box["height"] + MARGIN - top}
    page.screenshot(path=file, clip=clip, full_page=True)
    Image.open(file).convert("RGB").quantize(COLORS).save(file, optimize=True)
    print(file)


def playground(browser: sync_api.Browser, output: Path) -> None:
    """Take the pictures of the playground."""
    command = [sys.executable, "-m", "albertkit", "playground", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = next(line for line in server.stdout if "http://" in line).split()[-1]
        try:
            picture(opened(browser, address, 1100), output / "playground.png", None, "#pieces")
            picture(opened(browser, address, 360), output / "playground-phone.png", None, "#pieces")
            dark = opened(browser, address, 1100, "dark")
            picture(dark, output / "playground-inside.png", "#attention", "#order")
        finally:
            server.terminate()


def exported(browser: sync_api.Browser, output: Path) -> None:
    """Take the picture of the page that runs the model in the browser."""
    with tempfile.TemporaryDirectory() as folder:
        export_web("bundled", Path(folder, "site"), page=True, max_drop=MAX_DROP)
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=Path(folder, "site"))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            page = opened(browser, f"http://127.0.0.1:{server.server_port}", 1000)
            picture(page, output / "browser.png", None, "#pieces")
            server.shutdown()


def main() -> None:
    """Take all pictures."""
    parser = command_line(__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pictures")
    output = parser.parse_args().output
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is not on the PATH")
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        playground(browser, output)
        exported(browser, output)
        browser.close()


if __name__ == "__main__":
    main()
