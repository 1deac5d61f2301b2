"""From nothing to a filled mask: a whole process, ours against transformers, on the same ALBERT-base folder.

    python benchmarks/startup.py [--runs 5] [--json]

The folder has random weights of the base shape; both sides run the same lines of Python.

Memory is what Linux says in /proc. Resident: all of it, also code of libraries and mapped weights, which the
system can take back. Private: without what other processes share. Anonymous: without what stands in a file.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from report import alternate, compare, show, state

from albertkit import AlbertConfig, AlbertForMaskedLM, AlbertTokenizer

PROGRAM = """
import sys
from {library} import pipeline
fill = pipeline("fill-mask", model=sys.argv[1])
assert len(fill("The captain of the [MASK] looked at the sea.")) == 5
"""
# Not getrusage: its peak of a process is at least what the one that started it held.
MEMORY = """
for name in ("status", "smaps_rollup"):
    with open(f"/proc/self/{name}") as file:
        print(file.read())
"""


def run(program: str, folder: Path) -> list[float]:
    """Return wall seconds and MB of one process: peak, private and anonymous memory."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", program + MEMORY, str(folder)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate()
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{program} failed:\n{errors}")
    held = {name: int(kilobytes) / 1024 for name, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", output)}
    return [seconds, held["VmHWM"], held["Private_Clean"] + held["Private_Dirty"], held["Anonymous"]]


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
        ours, theirs, torch = alternate(
            arguments.runs,
            *(
                partial(run, program, folder)
                for program in (
                    PROGRAM.format(library="albertkit"),
                    PROGRAM.format(library="transformers"),
                    "import torch",
                )
            ),
        )
    figures = [
        compare("fill-mask, whole process (s)", ours[0], theirs[0], at_most=0.45),
        compare("peak resident memory (MB)", ours[1], theirs[1], at_most=0.6),
        state("peak resident memory of `import torch` alone (MB)", torch[1], theirs[1]),
        state("private memory (MB)", ours[2], theirs[2]),
        state("anonymous memory (MB)", ours[3], theirs[3]),
    ]
    show("process start to first answer, ALBERT-base", figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
