"""Record a terminal session in docs/recording.svg: train a classifier, list its mistakes, and query it.

    python scripts/recording.py [--data docs/files/tickets.csv] [--output docs/recording.svg]

The script runs the commands of `SESSION` in a temporary folder. Every fifth row of --data goes to test.csv,
and the other rows go to tickets.csv. The picture shows only the first and last lines of a long output. The
server listens on a free port, but the picture shows the default port. The script needs the `train` and
`serve` extras, and curl.

Rich draws the picture. It contains no scripts and loads no fonts. The lines appear one after the other,
unless the reader prefers reduced motion.
"""

import argparse
import csv
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from albertkit.files import atomic_path

ROOT = Path(__file__).resolve().parents[1]
PORT = 8080
"""Default port of the server."""
TEST_EVERY = 5
MAX_LINES = 30
WIDTH = 100
"""Characters of a line."""
STARTUP = 60.0
"""Maximum time in seconds until the server is ready."""
LINE_SECONDS, COMMAND_SECONDS = 0.12, 1.2
"""Time until a line of an output appears, and until a command appears."""


@dataclass(frozen=True)
class Step:
    """A command, and the number of lines of its output in the picture."""

    command: str
    first: int = MAX_LINES
    last: int = 0


SESSION = (
    Step("head -n 3 tickets.csv"),
    Step(
        "albertkit finetune text-classification --train tickets.csv --output support",
        first=2,
        last=4,
    ),
    Step("albertkit evaluate --model support --data test.csv --output support-test", first=3),
    Step("head -n 3 support-test/errors.csv"),
    Step("albertkit serve --model support &"),
    Step(
        f"curl -s localhost:{PORT}/v1/classify --json "
        """'{"input": "My package has not arrived yet.", "top_k": 1}'"""
    ),
)

THEME = TerminalTheme(
    background=(24, 26, 31),
    foreground=(215, 218, 224),
    normal=[
        *((24, 26, 31), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (215, 218, 224)),
    ],
)
PICTURE = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
@media (prefers-reduced-motion: no-preference) {{
  .{unique_id}-matrix text {{ animation: appear 0.01s backwards; }}
}}
@keyframes appear {{ from {{ opacity: 0; }} }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def split(data: Path, folder: Path) -> None:
    """Write the rows of a CSV file into tickets.csv and test.csv."""
    with data.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    parts = {
        "tickets.csv": [row for number, row in enumerate(rows) if number % TEST_EVERY],
        "test.csv": rows[::TEST_EVERY],
    }
    for name, part in parts.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *part])


def excerpt(output: str, step: Step) -> list[str]:
    """Return the first and last lines of an output, with "..." for the lines in between."""
    lines = [line.rstrip() for line in output.replace("\ufeff", "").splitlines() if line.strip()]
    if len(lines) <= step.first + step.last:
        return lines
    return [*lines[: step.first], "...", *lines[len(lines) - step.last :]]


def record(data: Path) -> list[tuple[str, list[str]]]:
    """Run the session; return each command with the lines of its output that the picture shows."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": str(WIDTH)}
    shown: list[tuple[str, list[str]]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split(data, folder)
        server: subprocess.Popen[bytes] | None = None
        try:
            for step in SESSION:
                command = step.command.replace(f":{PORT}", f":{port}")
                if command.endswith(" &"):
                    command = f"exec {command.removesuffix(' &')} --port {port}"
                    log = folder / "server.log"
                    with log.open("wb") as file:
                        server = subprocess.Popen(
                            ["bash", "-c", command],
                            cwd=folder,
                            env=environment,
                            stdout=file,
                            stderr=subprocess.STDOUT,
                        )
                    output = wait_for_line(log, server)
                else:
                    result = subprocess.run(
                        ["bash", "-euo", "pipefail", "-c", command],
                        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True, check=False,
                    )  # fmt: skip
                    output = result.stdout
                    if result.returncode:
                        raise SystemExit(f"{step.command} failed:\n{output}")
                shown.append((step.command, excerpt(output.replace(f":{port}", f":{PORT}"), step)))
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    return shown


def wait_for_line(log: Path, server: "subprocess.Popen[bytes]") -> str:
    """Return the first line of the server's log."""
    deadline = time.monotonic() + STARTUP
    while time.monotonic() < deadline and server.poll() is None:
        first, end, _ = log.read_text(encoding="utf-8").partition("\n")
        if end:
            return first
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text(encoding='utf-8')}")


def draw(shown: Sequence[tuple[str, list[str]]]) -> str:
    """Return the picture of a session."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False, legacy_windows=False)
    starts: list[float] = []
    clock = 0.0
    for command, lines in shown:
        prompt = Text.assemble(("$ ", "bold green"), (command, "bold"))
        for text, seconds in [(prompt, COMMAND_SECONDS), *((Text(line), LINE_SECONDS) for line in lines)]:
            clock += seconds if starts else 0
            height = len(console.render_lines(text, pad=False))
            starts += [clock] * height
            console.print(text)
    if len(starts) > MAX_LINES:
        raise SystemExit(f"the picture has {len(starts)} lines, but the maximum is {MAX_LINES}")
    picture = console.export_svg(title="albertkit", theme=THEME, code_format=PICTURE, unique_id="recording")

    def delayed(match: re.Match[str]) -> str:
        return f'{match[0]} style="animation-delay: {starts[int(match[1])]:.2f}s"'

    picture = re.sub(r'clip-path="url\(#recording-line-(\d+)\)"', delayed, picture)
    return re.sub(r"[ \t]+\n", "\n", picture)


def main() -> None:
    """Record the session and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT / "docs" / "files" / "tickets.csv",
        help="CSV file with the columns text and label",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "recording.svg")
    arguments = parser.parse_args()
    if shutil.which("curl") is None:
        raise SystemExit("the script needs curl: install it")
    picture = draw(record(arguments.data))
    with atomic_path(arguments.output) as file:
        file.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
