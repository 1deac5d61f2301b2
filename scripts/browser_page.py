"""Build the page "Try it here" of the site: the bundled model in the visitor's browser.

    python scripts/browser_page.py          # into build/browser-page, which `mkdocs build` adds to the site

Without npm or a network, the script prints a warning, and the site has no such page.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from pages import command_line

from albertkit.errors import AlbertKitError
from albertkit.web.export import export_web
from albertkit.web.page import FOLDER, INDEX, SERVICE_WORKER

BUILT = Path(__file__).parents[1] / "build" / "browser-page"
MAX_DROP = 1.5
"""Maximum accuracy drop of int8, in percentage points. The bundled model drops by 1.21, but processors
round differently."""
LARGEST = 6_000_000
"""Maximum size of the page in bytes. With the bundled model, it takes 5.11 million."""


def main() -> None:
    """Build the page, or print a warning."""
    parser = command_line(__doc__)
    parser.add_argument("--output", type=Path, default=BUILT, help="folder of the page")
    output = parser.parse_args().output
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = export_web("bundled", Path(folder, "web"), page=True, max_drop=MAX_DROP)
        except AlbertKitError as error:
            print(f"warning: the site will not have the page 'Try it here': {error}", file=sys.stderr)
            return
        if report.page_bytes > LARGEST:
            raise SystemExit(f"the page takes {report.page_bytes:,} bytes; expected at most {LARGEST:,}")
        output.mkdir(parents=True)
        for name in (INDEX, SERVICE_WORKER, FOLDER):
            shutil.move(Path(folder, "web", name), output / name)
    print(f"{output}: {report.page_bytes:,} bytes")


if __name__ == "__main__":
    main()
