"""The environments of the tools: `.compat/NAME`, made from `requirements-NAME.txt` of this folder.

An environment is made again when its requirements change. What pip or npm says when it fails is the
reason that the table shows; nothing is installed twice to find out.
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
    """A tool cannot be installed here; the message is the reason."""


def command_of(environment: str, script: Path) -> list[str]:
    """Return the command that runs a script in an environment, which is made if it is missing.

    Raises:
        NotInstalledError: pip or npm failed, or Node is not there.
    """
    if script.suffix != ".mjs":
        return [str(python_of(environment)), str(script)]
    folder = _folder_of(environment, _install_node)
    shutil.copyfile(script, folder / script.name)  # Node looks for packages beside the script
    return ["node", str(folder / script.name)]


def python_of(environment: str) -> Path:
    """Return the interpreter of an environment, which is made if it is missing.

    Raises:
        NotInstalledError: pip failed.
    """
    if environment == TEST_ENVIRONMENT:
        return Path(sys.executable)
    return _folder_of(environment, _install_python) / "bin" / "python"


def _folder_of(environment: str, install: Callable[[Path, Path], None]) -> Path:
    requirements = HERE / f"requirements-{environment}.txt"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = ENVIRONMENTS / environment
    installed = folder / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        print(f"Installing {requirements.name} into {folder.relative_to(ROOT)}.", flush=True)
        install(folder, requirements)
        installed.write_text(wanted)
    return folder


def environment_variables() -> dict[str, str]:
    """Return the variables of a tool's process: offline, one thread, nothing of the user's own packages."""
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
        done = subprocess.run(  # in the root, which a requirements file calls "."
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
