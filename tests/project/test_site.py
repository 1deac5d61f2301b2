"""Tests of the documentation site: a strict build, links, pages in a browser, no requests to other hosts."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from chromium import Watch, until
from places import ROOT
from static_site import Site

import albertkit

DOCS = ROOT / "docs"


def test_pages_for_users_do_not_link_to_pages_for_developers() -> None:
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"\]\([./]*(dev/|CONTRIBUTING)", page.read_text(encoding="utf-8")), page.name


def test_readers_can_download_the_tickets() -> None:
    """Check that the file has the rows of the example files, and that the pages that read it link to it."""
    train, validation, test = (
        (ROOT / "examples" / "data" / f"tickets_{split}.csv").read_text(encoding="utf-8")
        for split in ("train", "validation", "test")
    )
    tickets = (DOCS / "files" / "tickets.csv").read_text(encoding="utf-8")
    assert tickets == train + validation.partition("\n")[2] + test.partition("\n")[2]
    pages = {page.name: page.read_text(encoding="utf-8") for page in (DOCS / "how-to").glob("*.md")}
    readers = {name for name, text in pages.items() if '"tickets.csv"' in text}
    assert {"optuna.md", "pandas-and-pytorch.md", "peft.md"} <= readers
    for name in readers:
        assert "](../files/tickets.csv)" in pages[name], name


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert set(re.findall(r"([\w/-]+\.md)$", navigation, flags=re.MULTILINE)) >= pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [Path(sys.executable).parent / "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARNING" not in result.stdout + result.stderr
    return folder


def test_every_public_name_has_its_reference(site: Path) -> None:
    described = set()
    for page in (site / "reference").glob("*.html"):
        described |= set(re.findall(r'id="albertkit\.[\w.]*?(\w+)"', page.read_text(encoding="utf-8")))
    assert set(albertkit._MODULES) <= described
    for package in ("pipelines/", "keras/"):
        source = (ROOT / f"src/albertkit/{package}__init__.py").read_text(encoding="utf-8")
        names = ast.literal_eval(source.partition("\n__all__ = ")[2].partition("]")[0] + "]")
        assert set(names) <= described


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=[\"']?([^\"' >]+)", html)
        loaded += re.findall(
            r"<link[^>]+(?:stylesheet|preconnect|preload|icon)[^>]+href=[\"']?([^\"' >]+)", html
        )
        loaded += re.findall(r"<link[^>]+href=[\"']?([^\"' >]+)[^>]+(?:stylesheet|preconnect|preload)", html)
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page.name


def test_link_targets_of_the_site_exist(site: Path) -> None:
    anchors: dict[Path, set[str]] = {}

    def anchors_of(page: Path) -> set[str]:
        if page not in anchors:
            anchors[page] = set(
                re.findall(r"\s(?:id|name)=[\"']?([^\"' >]+)", page.read_text(encoding="utf-8"))
            )
        return anchors[page]

    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for address in set(re.findall(r"<a[^>]+href=[\"']?([^\"' >]+)", page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", address):
                continue
            path, _, anchor = address.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.relative_to(site)}: {address}"
            if anchor and target.suffix == ".html":
                assert anchor in anchors_of(target), f"{page.relative_to(site)}: {address}"


def test_reference_pages_list_public_members_only(site: Path) -> None:
    page = (site / "reference" / "pipelines.html").read_text(encoding="utf-8")
    headings = re.findall(r'<h[2-6] id="?albertkit\.([\w.]+)', page)
    own = [name.rpartition(".")[2] for name in headings if name.startswith("pipelines.core.Pipeline.")]
    assert own == ["__call__", "predict", "transform", "save_pretrained", "to_transformers"]
    assert {name for name in headings if name.startswith("engines.engine.")} == {
        f"engines.engine.{name}"
        for name in (
            *("Row", "Engine", "Engine.run", "Engine.compute", "Engine.batches", "Engine.token_table"),
            *("Job", "Job.positions"),
        )
    }
    # Attributes are lines without a heading: with the default of an option, and without its limits.
    lines = re.findall(r'doc-attribute-line"?><code><b>(\w+)</b>(.*?)</code>', page, flags=re.DOTALL)
    assert ("top_k", ": int = 5") in lines
    assert ("defaults", "") in lines
    assert not [line for line in lines if "option(" in line[1] or "field(" in line[1]]


def test_the_figures_of_the_picture_on_the_start_page_are_those_of_the_table() -> None:
    picture = (DOCS / "albert.svg").read_text(encoding="utf-8")
    sizes = (DOCS / "explanation" / "sizes.md").read_text(encoding="utf-8")
    stored, alone = re.search(r"\| base \| ([\d.]+ M) \| ([\d.]+ M) \|", sizes).groups()
    assert re.findall(r">([\d.]+ M) parameters<", picture) == [alone, stored]
    full, shared = (float(width) for width in re.findall(r'width="(\d+)" height="10"', picture))
    assert shared / full == pytest.approx(float(stored[:-2]) / float(alone[:-2]), abs=0.01)
    assert f"{stored} parameters instead of {alone}" in (DOCS / "index.md").read_text(encoding="utf-8")


def test_an_address_without_a_page_shows_where_to_go(site: Path) -> None:
    page = (site / "404.html").read_text(encoding="utf-8")
    assert "Page not found" in page
    content = page.partition("<h1>")[2].partition("</article>")[0]
    links = re.findall(r"href=[\"']?(/[^/\"' >][^\"' >]*)", content)
    assert len(links) == 3
    for link in links:
        assert (site / link.removeprefix("/")).is_file(), link


SHOWN = ("index.html", "how-to/classify.html", "reference/export.html")
"""The start page, a guide, and a page of the Python reference."""


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[Site]:
    server = Site(site)
    yield server
    server.stop()


@pytest.fixture
def opened(browser, server: Site):
    """Return a function that opens a page. Browser errors and requests to other hosts fail the test."""
    watch, contexts = Watch(), []

    def open_page(name: str, *, scheme: str = "light", width: int = 1280):
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce"))
        page = watch.over(contexts[-1].new_page())
        page.goto(f"{server.address}{name}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert watch.complaints == []
    assert watch.requests
    assert [url for url in watch.requests if not url.startswith(server.address)] == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("name", SHOWN)
def test_pages_are_accessible(opened, name: str, scheme: str, width: int) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe: pip install 'albertkit[test]'"
    )
    page = opened(name, scheme=scheme, width=width)
    until(page, "document.querySelector('.md-search').ariaLabel")
    results = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in results["violations"]] == []
    assert len(results["passes"]) > 25
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 300) == (scheme == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_version_copy_buttons_neighbors_and_color_scheme(opened) -> None:
    page = opened("how-to/classify.html")
    name = page.locator(".md-header__topic").first.inner_text()
    assert name.split() == ["albertkit", albertkit.__version__]
    blocks = page.locator(".md-content .highlight pre").count()
    assert page.locator(".md-code__button[data-md-type='copy']").count() == blocks > 3
    previous, following = page.locator(".md-footer__link").all()
    assert "Fill a mask" in previous.inner_text()
    assert "Classify without examples" in following.inner_text()
    for scheme in ("default", "slate"):  # from the scheme of the system to light, then to dark
        page.locator("label.md-header__button[for^='__palette']:visible").click()
        assert page.locator("body").get_attribute("data-md-color-scheme") == scheme


def test_copy_buttons_are_beside_the_code_on_phones(opened) -> None:
    page = opened("how-to/classify.html", width=375)
    until(page, "document.querySelectorAll('.md-content pre .md-code__nav').length > 3")
    edges = """[...document.querySelectorAll('.md-content pre:has(> .md-code__nav)')].map((block) => [
        block.querySelector('code').getBoundingClientRect().right,
        block.querySelector('.md-code__nav').getBoundingClientRect().left,
        block.querySelector('.md-code__nav').getBoundingClientRect().right,
    ])"""
    for code, left, right in page.evaluate(edges):
        assert code <= left < right <= 375
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_search(opened) -> None:
    page = opened("index.html")
    page.locator("input.md-search__input").fill("gradient checkpointing")
    first = page.locator(".md-search-result__item").first
    first.wait_for(timeout=60_000)
    assert "checkpointing" in first.inner_text()


def test_pages_are_small(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "try" not in page.relative_to(site).parts]
    assert len(pages) > 60
    assert {page.name: size for page in pages if (size := page.stat().st_size) > 1_000_000} == {}


def test_the_page_in_the_browser_is_shown_if_it_was_built(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = script("site_pages")
    monkeypatch.setattr(hooks, "BROWSER_PAGE", tmp_path)

    def shown(name: str) -> str:
        page = SimpleNamespace(file=SimpleNamespace(src_uri=name))
        return hooks.on_page_markdown((DOCS / name).read_text(encoding="utf-8"), page)

    assert "iframe" not in shown("index.md")
    (tmp_path / "index.html").write_bytes(bytes(1_500_000))
    assert '(a download of 1.5 MB)</summary><iframe data-src="try/index.html"' in shown("index.md")
    assert "](../try/index.html){ .md-button" in shown("how-to/browser.md")


def test_a_changed_header_of_the_theme_is_an_error(script: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ValueError, match="Adapt _TITLE"):
        script("site_pages").on_post_page("<html></html>")
