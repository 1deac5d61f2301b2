"""The JavaScript libraries of the page: exact versions from npm, verified by their hashes."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package, and the files that the page needs from it."""

    name: str
    version: str
    license: str
    files: dict[str, str]
    """Path in the package -> SHA-256."""
    exports: tuple[str, ...] = ()
    """What a CommonJS script exports: the page gets it as a module. Empty for packages of modules."""


PACKAGES = (
    # The tokenizers of transformers.js 4.3.1, and the runtime that it uses.
    Package(
        "@huggingface/tokenizers",
        "0.2.0",
        "Apache-2.0",
        {
            "dist/tokenizers.min.mjs": "258e46332101335ce8d95aed7745b19ac3b46d37f3e159a89cf894c2ea9b1d3a",
            "LICENSE": "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
        },
    ),
    Package(
        "onnxruntime-web",
        "1.31.0-dev.20260914-8d85527a0",
        "MIT",
        {
            "dist/ort.wasm.bundle.min.mjs": (
                "17b52c1ac62b421dc508b4c28b9a9675251c6e25dd512ef54b83a5e2c4242869"
            ),
            "dist/ort-wasm-simd-threaded.wasm": (
                "06ba057753da3847e4c24f02d91ab133455b0817c69a44993a9a53a2146df9e3"
            ),
        },
    ),
    Package(
        "xz-decompress",
        "0.2.3",
        "MIT",
        {
            "dist/package/xz-decompress.min.js": (
                "d83649874b6198df07340a88377613ccd2267aebb9f18b3be26c6904a81bac52"
            ),
        },
        exports=("XzReadableStream",),
    ),
)
_SECONDS = 600
_MODULE = """const module = {{ exports: {{}} }}, exports = module.exports, require = () => globalThis;
{script}
export const {{ {names} }} = module.exports;
"""


def check_npm() -> str:
    """Return the path of npm."""
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError("the page needs npm, which is not installed. Install Node.js 20 or newer.")
    return npm


def fetch_libraries() -> dict[str, bytes]:
    """Return the files of all packages, by name."""
    contents: dict[str, bytes] = {}
    notices = []
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            with tarfile.open(_download(package, Path(folder))) as archive:
                files = dict(_verified(archive, package))
            text = files.pop("LICENSE", b"").decode()
            notices.append(f"{package.name} {package.version}, {package.license}\n\n{text}".strip())
            contents |= files
    contents["LICENSES.txt"] = ("\n\n\n".join(notices) + "\n").encode()
    return contents


def _download(package: Package, folder: Path) -> Path:
    """Download the archive of a package and return its path. npm keeps a copy in its cache."""
    target = Path(tempfile.mkdtemp(dir=folder))
    name = f"{package.name}@{package.version}"
    command = [check_npm(), "pack", name, "--ignore-scripts", "--silent", "--pack-destination", target]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": _SECONDS, "check": False}
    try:
        # Not in a project, whose settings npm would read.
        result = subprocess.run(command, cwd=folder, **options)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm did not download {name} within {_SECONDS} seconds.") from error
    archives = list(target.glob("*.tgz"))
    if result.returncode or len(archives) != 1:
        message = " ".join((result.stderr or result.stdout).split())[-300:]
        raise DataError(f"npm could not download {name} (status {result.returncode}): {message}")
    return archives[0]


def _verified(archive: tarfile.TarFile, package: Package) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file that is needed, after verifying its hash."""
    present = archive.getnames()
    for path, expected in package.files.items():
        member = archive.extractfile(f"package/{path}") if f"package/{path}" in present else None
        content = b"" if member is None else member.read()
        actual = hashlib.sha256(content).hexdigest()
        if actual != expected:
            file = f"{path} of {package.name} {package.version}"
            raise DataError(f"{file} has the SHA-256 {actual}. Expected {expected}. Clear npm's cache.")
        name = Path(path).name
        if name.endswith(".js") and package.exports:
            name = f"{name.removesuffix('.js')}.mjs"
            script, names = content.decode(), ", ".join(package.exports)
            content = _MODULE.format(script=script, names=names).encode()
        yield name, content
