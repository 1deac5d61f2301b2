"""Measure processes from their start to a filled mask, with albertkit and transformers on the same folders.

    python benchmarks/startup.py [--runs 5] [--json]

The models are the bundled one, and random weights in the shapes base and xxlarge. Both sides run the same
lines of Python. From the time of a command, the script subtracts the time of `python -c pass`. With --runs 3,
the script took 83 s of processor time on an AMD EPYC.

Memory comes from /proc, so the script needs Linux. Resident memory includes the code of libraries and mapped
weights, which the system can reclaim. Private memory excludes pages that other processes share. Anonymous
memory excludes pages of files.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from report import alternate, command_line, compare, show, state

from albertkit import AlbertConfig, AlbertTokenizer
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import expected_shapes
from albertkit.hub import resolve

PROGRAM = """
import sys
from {library} import pipeline
fill = pipeline("fill-mask", model=sys.argv[1])
assert len(fill("The captain of the [MASK] looked at the sea.")) == 5
"""
# Not getrusage: its peak is at least the memory of the process that started this one.
MEMORY = """
for name in ("status", "smaps_rollup"):
    with open(f"/proc/self/{name}") as file:
        print(file.read())
"""


COMMANDS = {
    "albertkit --version": ["--version"],
    "albertkit fill-mask": ["fill-mask", "She opened the [MASK]."],
}


def run(program: str, folder: Path) -> list[float]:
    """Run a process; return its wall seconds, and its peak, private and anonymous memory in MB."""
    seconds, output = timed([sys.executable, "-c", program + MEMORY, str(folder)])
    memory = {name: int(kilobytes) / 1024 for name, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", output)}
    private = memory["Private_Clean"] + memory["Private_Dirty"]
    return [seconds, memory["VmHWM"], private, memory["Anonymous"]]


def timed(command: list[str]) -> tuple[float, str]:
    """Run a process; return its wall seconds and its output."""
    begin = time.perf_counter()
    process = subprocess.run(
        command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{process.stderr}")
    return seconds, process.stdout


def write_random(size: Any, folder: Path) -> int:
    """Write a tokenizer and random weights in a published shape; return the size of the weights in bytes."""
    config = AlbertConfig.preset(size).replace(architectures=["AlbertForMaskedLM"])
    random = np.random.default_rng(0)
    weights = {
        name: 0.02 * random.standard_normal(shape, np.float32)
        for name, shape in expected_shapes("AlbertForMaskedLM", config).items()
        if "decoder" not in name  # tied to the embeddings
    }
    write_folder(folder, config.to_dict(), weights)
    AlbertTokenizer.from_pretrained("bundled").save_pretrained(folder)
    return (folder / "model.safetensors").stat().st_size


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=5)
    arguments = parser.parse_args()
    programs = [PROGRAM.format(library=library) for library in ("albertkit", "transformers")]
    figures = []
    with tempfile.TemporaryDirectory() as name:
        base, largest = Path(name, "base"), Path(name, "xxlarge")
        write_random("base", base)
        bundled = resolve("bundled", patterns=("config.json",))
        for label, folder, max_seconds, max_memory in (
            ("ALBERT-base", base, 0.15, 0.42),
            ("the bundled model", bundled, 0.10, 0.25),
        ):
            sides = [partial(run, program, folder) for program in programs]
            ours, theirs = alternate(arguments.runs, *sides)
            figures += [
                compare(f"fill-mask, {label} (s)", ours[0], theirs[0], at_most=max_seconds),
                compare(f"{label}: peak memory (MB)", ours[1], theirs[1], at_most=max_memory),
                state(f"{label}: private memory (MB)", ours[2], theirs[2]),
                state(f"{label}: anonymous memory (MB)", ours[3], theirs[3]),
            ]
        size = write_random("xxlarge", largest) / 2**20
        huge = run(programs[0], largest)
    command = str(Path(sys.executable).with_name("albertkit"))
    nothing, *commands = alternate(
        arguments.runs,
        lambda: [timed([sys.executable, "-c", "pass"])[0]],
        *(partial(lambda words: [timed([command, *words])[0]], words) for words in COMMANDS.values()),
    )
    show("process start to first answer", figures, as_json=arguments.json)
    over = [
        compare(f"{label}: seconds over `python -c pass`", seconds[0] - nothing[0], limit, at_most=1)
        for label, seconds, limit in zip(COMMANDS, commands, (0.25, 0.6), strict=True)
    ]
    show("commands", over, as_json=arguments.json, against="limit")
    memory = compare("xxlarge: peak memory of loading and one answer (MB)", huge[1], size, at_most=1.4)
    show("a large model", [memory], as_json=arguments.json, against="its weights")


if __name__ == "__main__":
    main()
