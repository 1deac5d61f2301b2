"""A function that runs code in a process that cannot import PyTorch."""

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
    code: str, *arguments: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Run code in a process that cannot import PyTorch, and return its output.

    Args:
        code: Python code, which gets the arguments in `sys.argv[1:]`.
        arguments: Texts or paths.
        cwd: The current folder of the process.
        environment: Environment variables that replace those of this process.
    """
    command = [sys.executable, "-c", WITHOUT_TORCH + code, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
