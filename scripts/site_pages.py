"""Hooks of mkdocs.yml: add files from outside docs/ to the site.

If `scripts/browser_page.py` has built the page that runs a model in the browser, the site includes it. The
start page shows it, and the how-to page about the browser links to it.

The header of each page has the version of the package.

Pages link to files of the repository with relative paths, so that the links also work in the repository. The
hooks replace them with links of the site: to the page if the file is a page, otherwise to a copy of the file.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from albertkit import __version__

ROOT = Path(__file__).parents[1]
PAGES = {"CHANGELOG.md": "changelog.md"}
"""Files in the root of the repository that become pages -> names of the pages."""
COPIES = "files/"
"""Folder for copies of the other files that pages link to."""

BROWSER_PAGE, TRY = ROOT / "build" / "browser-page", "try/"
"""The folder of the built page, and its folder in the site."""
_MARKERS = {
    "<!-- try it here -->": (
        "[Try it here: the bundled model in your browser]({address}){{ .md-button .md-button--primary }} "
        "(a download of {megabytes:.1f} MB)"
    ),
    "<!-- show it here -->": (
        '<details class="demonstration example"><summary>Try the bundled model in your browser '
        "(a download of {megabytes:.1f} MB)</summary>"
        '<iframe data-src="{address}" title="The bundled model in your browser"></iframe>'
        '<p><a href="{address}">Open it in a separate page</a></p></details>'
    ),
}
"""Comment in a page -> its replacement if the browser page was built: a link, or a frame with that page."""
_TITLE = re.compile(
    r'(<div class="md-header__topic">\s*<span class="md-ellipsis">\s*albertkit)(?=\s*</span>)'
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
    markdown = _rewrite(markdown, page, here)
    if built := _browser_page():
        size = sum(file.stat().st_size for file in built) / 1e6
        address = posixpath.relpath(f"{TRY}index.html", here)
        for marker, replacement in _MARKERS.items():
            markdown = markdown.replace(marker, replacement.format(address=address, megabytes=size))
    return markdown


def on_post_page(output: str, **_: object) -> str:
    """Add the version to the name in the header."""
    output, count = _TITLE.subn(rf"\1 <small>{__version__}</small>", output)
    if count != 1:
        raise ValueError(f"the theme's header has the name {count} times. Adapt _TITLE to the theme.")
    return output


def _rewrite(markdown: str, page: Page, here: str) -> str:
    return _LINK.sub(lambda link: posixpath.relpath(_address(link[1], page.file.src_uri), here), markdown)


def _address(target: str, page: str) -> str:
    """Return the path in the site of the file that a page links to. `page` is a path in the site too."""
    source = page.removeprefix(COPIES) if page.startswith(COPIES) else _SOURCES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path)
