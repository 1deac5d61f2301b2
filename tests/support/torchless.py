"""Code in a process that cannot import torch, to show what works without it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def run_without_torch(
    code: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run code as where torch is not installed; return what it prints.

    Args:
        code: Python, which finds the arguments in `sys.argv[1:]`.
        arguments: texts or paths.
        cwd: the folder to run in.
        environment: variables in place of those of this process.
    """
    command = [sys.executable, "-c", WITHOUT_TORCH + code, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
