"""Environments of the tools: `.compat/NAME`, created from `requirements-NAME.txt` in this folder.

The environment is created again when its requirements change. If an installation fails, the table shows
the error of pip or npm.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".compat"
TEST_ENVIRONMENT = "test"
"""The environment that `make compat` itself runs in."""
INSTALL_SECONDS = 1800


class NotInstalledError(Exception):
    """A tool cannot be installed. The message is the reason."""


def command_of(environment: str, script: Path) -> list[str]:
    """Return the command that runs a script in an environment. Create the environment if necessary.

    Raises:
        NotInstalledError: pip or npm failed, or Node.js is not installed.
    """
    if script.suffix != ".mjs":
        return [str(python_of(environment)), str(script)]
    folder = _folder_of(environment, _install_node)
    shutil.copyfile(script, folder / script.name)  # Node.js looks for packages next to the script
    return ["node", str(folder / script.name)]


def python_of(environment: str) -> Path:
    """Return the interpreter of an environment. Create the environment if necessary.

    Raises:
        NotInstalledError: pip failed.
    """
    if environment == TEST_ENVIRONMENT:
        return Path(sys.executable)
    return _folder_of(environment, _install_python) / "bin" / "python"


def _folder_of(environment: str, install: Callable[[Path, Path], None]) -> Path:
    requirements = HERE / f"requirements-{environment}.txt"
    fingerprint = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = ENVIRONMENTS / environment
    installed = folder / "installed"
    if not installed.exists() or installed.read_text() != fingerprint:
        print(f"Installing {requirements.name} into {folder.relative_to(ROOT)}.", flush=True)
        install(folder, requirements)
        installed.write_text(fingerprint)
    return folder


def environment_variables() -> dict[str, str]:
    """Return the environment variables of a tool: offline, one thread, and no packages of the user."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return variables | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONNOUSERSITE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _install_python(folder: Path, requirements: Path) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    _run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", *options, "--requirement", str(requirements)]
    )


def _install_node(folder: Path, requirements: Path) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalledError("needs Node.js 20 or newer with npm")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    packages = requirements.read_text().split()
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"]
    _run(["npm", "install", "--prefix", str(folder), *options, *packages])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(  # requirements files refer to the root as "."
            command, cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"{command[0]} took more than {INSTALL_SECONDS} seconds") from None
    if done.returncode:
        lines = [
            line.strip() for line in done.stderr.splitlines() if line.startswith(("ERROR:", "npm error"))
        ]
        raise NotInstalledError(
            (lines or done.stderr.strip().splitlines() or ["the installation failed"])[-1][:300]
        )
