"""Code in a process that cannot import torch, to show what works without it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REFUSE_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Refuse())
"""


def run_without_torch(
    code: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run code in which `import torch` fails; return what it prints.

    Args:
        code: Python, which finds the arguments in `sys.argv[1:]`.
        arguments: texts or paths.
        cwd: the folder to run in.
        environment: variables in place of those of this process.
    """
    command = [sys.executable, "-c", REFUSE_TORCH + code, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
