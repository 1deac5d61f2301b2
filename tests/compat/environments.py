"""The environments of the tools: `.compat/NAME`, made from `requirements-NAME.txt` of this folder.

An environment is made again when its requirements change. What pip says when it fails is the reason that the
table shows; nothing is installed twice to find out.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".compat"
TEST_ENVIRONMENT = "test"
"""The environment that `make compat` itself runs in."""
INSTALL_SECONDS = 1800


class NotInstalledError(Exception):
    """A tool cannot be installed here; the message is the reason."""


def python_of(name: str) -> Path:
    """Return the interpreter of an environment, which is made if it is missing.

    Raises:
        NotInstalledError: pip failed.
    """
    if name == TEST_ENVIRONMENT:
        return Path(sys.executable)
    requirements = HERE / f"requirements-{name}.txt"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    installed = folder / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        print(f"Installing {requirements.name} into {folder.relative_to(ROOT)}.", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
        _run([str(python), "-m", "pip", "install", *options, "--requirement", str(requirements)])
        installed.write_text(wanted)
    return python


def environment_variables() -> dict[str, str]:
    """Return the variables of a tool's process: offline, one thread, nothing of the user's own packages."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return variables | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONNOUSERSITE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"pip took more than {INSTALL_SECONDS} seconds") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise NotInstalledError((lines or done.stderr.strip().splitlines() or ["pip failed"])[-1][:300])
