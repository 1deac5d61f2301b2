"""The static page: its files, the libraries from npm (a stand-in), errors. tests/compat/ opens the page."""

import gzip
import hashlib
import io
import json
import re
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Run
from modeling_twins import make

from albertkit.errors import ConfigError, DataError
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.web import libraries
from albertkit.web.export import INT8_FILE, export_web
from albertkit.web.libraries import Package, fetch_libraries

FILES = {
    "LICENSE": b"Anyone may use this.",
    "dist/ort.wasm.bundle.min.mjs": b"export const ort = 1;",
    "dist/ort-wasm-simd-threaded.wasm": b"\0asm" * 1000,
    "dist/tokenizers.min.mjs": b"export const tokenizers = 1;",
}


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts an npm on the PATH, the only program there, which packs the files given."""
    programs = tmp_path / "programs"
    programs.mkdir()
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
    monkeypatch.setattr(libraries, "PACKAGES", (Package("a-library", "1.2.3", "MIT", hashes),))
    monkeypatch.setenv("PATH", str(programs))

    def install(files: dict[str, bytes], *, script: str = "") -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as stream:
            for path, content in files.items():
                member = tarfile.TarInfo(f"package/{path}")
                member.size = len(content)
                stream.addfile(member, io.BytesIO(content))
        (programs / "a.tgz").write_bytes(archive.getvalue())
        copy = f'[ "$1 $2" = "pack a-library@1.2.3" ] && /bin/cp {programs}/a.tgz "$6"'
        (programs / "npm").write_text(f"#!/bin/sh\n{script or copy}\n")
        (programs / "npm").chmod(stat.S_IRWXU)

    return install


@pytest.fixture
def model(tiny_vocabulary: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a tiny model of a class with its tokenizer, and returns the folder."""

    def save(head: str) -> Path:
        make(head, vocab_size=500, max_position_embeddings=64).save_pretrained(tmp_path / "tiny-model")
        AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / "tiny-model")
        return tmp_path / "tiny-model"

    return save


def test_the_page_has_all_that_it_names(npm, model, tmp_path: Path) -> None:
    npm(FILES)
    folder = tmp_path / "web"
    report = export_web(model("AlbertForTokenClassification"), folder, page=True, max_drop=100)
    page = folder / "page"
    about = json.loads((page / "files.json").read_text())
    assert (about["name"], about["task"]) == ("tiny-model", "token-classification")
    expected = {
        "ort-wasm-simd-threaded.wasm": FILES["dist/ort-wasm-simd-threaded.wasm"],
        "model.onnx": (folder / INT8_FILE).read_bytes(),
        "config.json": (folder / "config.json").read_bytes(),
        "tokenizer.json": (folder / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": (folder / "tokenizer_config.json").read_bytes(),
    }
    assert {one["name"] for one in about["downloads"]} == set(expected)
    for one in about["downloads"]:
        packed = (page / one["path"]).read_bytes()
        assert len(packed) == one["bytes"]
        assert gzip.decompress(packed) == expected[one["name"]]
    # What the page, its styles and its scripts name is there, and nothing comes from elsewhere.
    index = (folder / "index.html").read_text()
    for name in re.findall(r'(?:src|href)="([^"]+)"', index):
        assert (folder / name).is_file(), name
    for script in page.glob("*.js"):
        text = script.read_text()
        assert "https://" not in text
        for name in re.findall(r'^(?:import|\}) .*from "\./([^"]+)"', text, flags=re.MULTILINE):
            assert (page / name).is_file(), name
    ids = set(re.findall(r'\bid="([^"]+)"', index))
    for script in ("page.js", "own_panels.js", "texts.js", "sentence.js"):
        found = set(re.findall(r'\bfind\("([^"]+)"\)', (page / script).read_text()))
        assert found - ids <= {"judgement", "swap"}  # of the playground's panel for sentence order
    assert "default-src 'none'" in index
    assert "unsafe-inline" not in index
    worker = (folder / "service-worker.js").read_text()
    assert "{{" not in worker
    kept = json.loads(re.search(r"^const FILES = (.*);$", worker, flags=re.MULTILINE)[1])
    assert kept[0] == "./"
    downloaded = {f"page/{one['path']}" for one in about["downloads"]}
    all_of_page = {name for name in report.files if name.startswith("page/") or name == "index.html"}
    assert set(kept[1:]) == all_of_page - downloaded - {"page/library/LICENSES.txt"}
    assert about["version"] in worker
    assert "a-library 1.2.3, MIT\n\nAnyone may use this." in (page / "library" / "LICENSES.txt").read_text()
    sizes = [one.stat().st_size for one in (*page.rglob("*"), folder / "index.html") if one.is_file()]
    assert report.page_bytes == sum(sizes) + len(worker)
    assert f"the page takes {report.page_bytes:,} bytes" in str(report)


def test_another_name_is_another_version_and_the_same_is_the_same(npm, model, tmp_path: Path) -> None:
    """Browsers drop what they kept of another version."""
    npm(FILES)
    folder = model("AlbertModel")
    versions = []
    for number, name in enumerate(("one", "one", "other")):
        export_web(folder, tmp_path / str(number), page=True, name=name, int8=False)
        versions.append(json.loads((tmp_path / str(number) / "page" / "files.json").read_text())["version"])
    assert versions[0] == versions[1] != versions[2]


def test_refused_before_anything_is_written(npm, model, tmp_path: Path) -> None:
    folder = model("AlbertForMultipleChoice")
    target = tmp_path / "web"
    with pytest.raises(ConfigError, match=r"npm is not installed.* Install Node\.js 20"):
        export_web(folder, target, page=True)
    with pytest.raises(ConfigError, match=r"name is 'x', which only the page shows; give page \(--page\)"):
        export_web(folder, target, name="x")
    npm(FILES)
    with pytest.raises(
        ConfigError, match="the page has no panel for multiple-choice; expected a model for fill"
    ):
        export_web(folder, target, page=True)
    npm(FILES, script="echo 'E404 not found' >&2; exit 7")
    with pytest.raises(
        DataError, match=r"could not download a-library 1\.2\.3 \(status 7\): E404 not found\."
    ):
        export_web(model("AlbertModel"), target, page=True)
    assert not target.exists()


@pytest.mark.parametrize("change", ["other", "missing"])
def test_a_library_that_is_not_the_expected_one_is_refused(npm, change: str) -> None:
    files = dict(FILES)
    content = files.pop("dist/tokenizers.min.mjs") + b"!"
    if change == "other":
        files["dist/tokenizers.min.mjs"] = content
    else:
        content = b""
    npm(files)
    actual = hashlib.sha256(content).hexdigest()
    with pytest.raises(
        DataError, match=f"dist/tokenizers.min.mjs of a-library 1.2.3 has the SHA-256 {actual}"
    ):
        fetch_libraries()


def test_the_command_writes_the_page(npm, model, run: Run, tmp_path: Path) -> None:
    npm(FILES)
    folder = model("AlbertForMaskedLM")
    result = run("export", "web", folder, tmp_path / "web", "--page", "--name", "mine", "--no-int8")
    assert "the page takes " in result.output
    assert "page/worker.js" not in result.output  # the sum is enough
    assert json.loads((tmp_path / "web" / "page" / "files.json").read_text())["name"] == "mine"
