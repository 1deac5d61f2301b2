"""What the site has beside docs/: pages that lie elsewhere in the repository (`hooks` of mkdocs.yml).

If `scripts/browser_page.py` has built the page that runs a model in the browser, the site has it too. The
start page shows it, and the page about it links to it.

The header of each page has the version of the package.

Pages link to files of the repository as files do, so that links work there too. Here they become links of the
site: to a page where the file is one, else to a copy of the file.
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
"""Files of the root that have a place in the navigation -> their pages."""
COPIES = "files/"
"""Where the other files are that pages link to."""

BROWSER_PAGE, TRY = ROOT / "build" / "browser-page", "try/"
"""The folder of that page, and its place in the site."""
_MARKERS = {
    "<!-- try it here -->": (
        "[Try it here: the bundled model in your browser]({address}){{ .md-button .md-button--primary }} "
        "(a download of {megabytes:.1f} MB)"
    ),
    "<!-- show it here -->": (
        '<details class="demonstration example"><summary>Try the bundled model in your browser '
        "(a download of {megabytes:.1f} MB)</summary>"
        '<iframe data-src="{address}" title="The bundled model in your browser"></iframe>'
        '<p><a href="{address}">Open it on a page of its own</a></p></details>'
    ),
}
"""Comment in a page -> what replaces it if that page was built: a link, or the page itself in a frame."""
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
        for marker, shown in _MARKERS.items():
            markdown = markdown.replace(marker, shown.format(address=address, megabytes=size))
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
    """Return the place in the site of what a page, by its place in the site, links to."""
    source = page.removeprefix(COPIES) if page.startswith(COPIES) else _SOURCES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path)
