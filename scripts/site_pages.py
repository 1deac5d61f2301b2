"""What the site has beside docs/: pages that lie elsewhere in the repository (`hooks` of mkdocs.yml).

Where `scripts/browser_page.py` has built the page that runs a model in the browser, the site has it too.

Pages link to files of the repository as files do, so that links work there too. Here they become links of the
site: to a page where the file is one, else to a copy of the file.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"CHANGELOG.md": "changelog.md"}
"""Files of the root that have a place in the navigation -> their pages."""
COPIES = "files/"
"""Where the other files are that pages link to."""

BROWSER_PAGE, TRY = ROOT / "build" / "browser-page", "try/"
"""The folder of that page, and its place in the site."""
_TRY_IT = "<!-- try it here -->"
"""Stands in a page where the link to it is to be."""
_LINK_TO_IT = (
    "[Try it here: the bundled model in your browser]({address}){{ .md-button .md-button--primary }} "
    "(a download of {megabytes:.1f} MB)"
)

_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and a copy of each file that a page links to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for page in list(files.documentation_pages()):
        for target in _LINK.findall(page.content_string):
            address = _address(target, page.src_uri)
            if address.startswith(COPIES) and files.get_file_from_path(address) is None:
                source = str(ROOT / address.removeprefix(COPIES))
                files.append(File.generated(config, address, abs_src_path=source))
    for file in _browser_page():
        address = TRY + file.relative_to(BROWSER_PAGE).as_posix()
        files.append(File.generated(config, address, abs_src_path=str(file)))
    return files


def _browser_page() -> list[Path]:
    return sorted(file for file in BROWSER_PAGE.rglob("*") if file.is_file())


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between files of the repository into links between files of the site."""
    here = posixpath.dirname(page.file.src_uri) or "."
    if _TRY_IT in markdown and (built := _browser_page()):
        size = sum(file.stat().st_size for file in built) / 1e6
        address = posixpath.relpath(f"{TRY}index.html", here)
        return _rewrite(markdown, page, here).replace(
            _TRY_IT, _LINK_TO_IT.format(address=address, megabytes=size)
        )
    return _rewrite(markdown, page, here)


def _rewrite(markdown: str, page: Page, here: str) -> str:
    return _LINK.sub(lambda link: posixpath.relpath(_address(link[1], page.file.src_uri), here), markdown)


def _address(target: str, page: str) -> str:
    """Return the place in the site of what a page, by its place in the site, links to."""
    source = page.removeprefix(COPIES) if page.startswith(COPIES) else _SOURCES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path)
