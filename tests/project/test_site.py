"""The site, built strictly: its links, its pages, and that it asks nobody else for anything."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import albertkit

DOCS = ROOT / "docs"


def test_every_script_that_measures_is_on_the_page_of_figures() -> None:
    page = (ROOT / "dev" / "figures.md").read_text(encoding="utf-8")
    for script in (*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")):
        measures = "argparse" in script.read_text(encoding="utf-8") or "table" in script.name
        if measures and script.name != "cli_reference.py":
            assert f"(../{script.relative_to(ROOT)})" in page, script.name


def test_pages_for_users_do_not_lead_to_pages_for_developers() -> None:
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"\]\([./]*(dev/|CONTRIBUTING)", page.read_text(encoding="utf-8")), page.name


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert set(re.findall(r"([\w/-]+\.md)$", navigation, flags=re.MULTILINE)) >= pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does it."""
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
    for room in ("pipelines/", "keras/"):
        source = (ROOT / f"src/albertkit/{room}__init__.py").read_text(encoding="utf-8")
        names = ast.literal_eval(source.partition("\n__all__ = ")[2].partition("]")[0] + "]")
        assert set(names) <= described


def test_the_site_asks_nobody_else(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=[\"']?([^\"' >]+)", html)
        loaded += re.findall(
            r"<link[^>]+(?:stylesheet|preconnect|preload|icon)[^>]+href=[\"']?([^\"' >]+)", html
        )
        loaded += re.findall(r"<link[^>]+href=[\"']?([^\"' >]+)[^>]+(?:stylesheet|preconnect|preload)", html)
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page.name


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
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
