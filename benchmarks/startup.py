"""From nothing to a filled mask: a whole process, ours against transformers, on the same ALBERT-base folder.

    python benchmarks/startup.py [--runs 5] [--json]

The folder has random weights of the base shape; both sides run the same lines of Python.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import alternate, compare, show

from albertkit import AlbertConfig, AlbertForMaskedLM, AlbertTokenizer

PROGRAM = """
import sys
from {library} import pipeline
answers = pipeline("fill-mask", model=sys.argv[1])("The captain of the [MASK] looked at the sea.")
assert len(answers) == 5
"""


def run(library: str, folder: Path) -> list[float]:
    """Return the wall seconds and the peak memory in MB of one process."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(library=library), str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{library} failed:\n{errors.decode()}")
    return [seconds, usage.ru_maxrss / 1024]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side")
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        AlbertTokenizer.from_pretrained("bundled").save_pretrained(folder)
        AlbertForMaskedLM(AlbertConfig.preset("base")).save_pretrained(folder)
        ours, theirs = alternate(
            arguments.runs, lambda: run("albertkit", folder), lambda: run("transformers", folder)
        )
    figures = [
        compare("fill-mask, whole process (s)", ours[0], theirs[0], at_most=0.6),
        compare("peak memory (MB)", ours[1], theirs[1], at_most=1.0),
    ]
    show("process start to first answer, ALBERT-base", figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
