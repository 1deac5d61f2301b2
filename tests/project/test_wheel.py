"""Test that the built wheel contains all files of the package and works."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from places import ROOT

BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
USE = """
import albertkit
print(albertkit.__file__)
print(len(albertkit.__all__), albertkit.AlbertConfig().model_type)
print(albertkit.pipeline("fill-mask")("She opened the [MASK].")[0]["token_str"])
"""


def test_a_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-c", BUILD, tmp_path]
    name = subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[-1]
    with zipfile.ZipFile(tmp_path / name) as wheel:
        files = {file for file in wheel.namelist() if file.startswith("albertkit/")}
        wheel.extractall(tmp_path / "installed")
    package = ROOT / "src" / "albertkit"
    package_files = {
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == {f"albertkit/{path.relative_to(package).as_posix()}" for path in package_files}
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    use = [sys.executable, "-c", USE]
    printed = subprocess.run(use, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    location, facts, word = printed.stdout.splitlines()
    assert Path(location).is_relative_to(tmp_path / "installed")
    assert facts.endswith(" albert")
    assert word
