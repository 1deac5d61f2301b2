"""Packages of npm for tests of JavaScript, installed into a folder of the test."""

import shutil
import subprocess
from pathlib import Path

import pytest

_SECONDS = 600


def npm_install(folder: Path, *packages: str) -> Path:
    """Install packages, each `name@version`, into a folder; skip the test without npm or a network."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs Node.js 20 or newer with npm")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", *packages]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        pytest.skip(f"npm cannot install {', '.join(packages)}: {result.stderr.strip()[-300:]}")
    return folder
