"""npm packages for tests of JavaScript, installed into a temporary folder."""

import shutil
import subprocess
from pathlib import Path

import pytest

_SECONDS = 600


def npm_install(folder: Path, *packages: str) -> Path:
    """Install packages (`name@version`) into a folder. Skip the test if npm or the network is missing."""
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
