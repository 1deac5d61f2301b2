"""Check which tools open the files of albertkit, and whether albertkit opens their files: `make compat`.

    python tests/compat/matrix.py                         # every tool, then the test files in this folder
    python tests/compat/matrix.py --tool onnxruntime      # one tool; the other rows do not change

Each tool has a script and an environment, and opens the models of `models.py`. This program writes the
results to docs/reference/compatibility.json and, as a table, to the page of the same name. The exit code is 1
if outputs differ or a tool cannot open a file, and 0 if a tool cannot be installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from comparing import largest_difference
from environments import (
    HERE,
    ROOT,
    TEST_ENVIRONMENT,
    NotInstalledError,
    command_of,
    environment_variables,
    python_of,
)
from models import compute, write_cases
from tools import LIBRARIES, LIBRARY_TESTS, TOOLS, Tool

sys.path.insert(0, str(ROOT / "scripts"))
import compatibility_page
import torch

import albertkit
from albertkit.files import write_json

BOUND = 1e-4
"""The maximum difference between outputs that count as equal."""
SCRIPT_SECONDS = 900

Line = dict[str, Any]


def check_tool(tool: Tool, work: Path) -> list[Line]:
    """Return the rows of a tool: one for each direction that its script reports."""
    common = {"tool": tool.name, "package": tool.package, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    try:
        command = command_of(tool.environment, HERE / tool.script)
    except NotInstalledError as error:
        return [{**common, "version": None, "result": "not installed", "notes": [str(error)]}]
    lines, failure = run_script(tool, [*command, str(work)])
    versions = next((line["versions"] for line in lines if "versions" in line), {})
    common["version"] = versions.get(tool.package)
    common["beside"] = {name: number for name, number in versions.items() if name != tool.package}
    rows = []
    for direction in ("opens", "writes"):
        results = [line for line in lines if line.get("direction") == direction and "limit" not in line]
        if results:
            limits = [{"name": line["name"], "reason": line["limit"]} for line in lines if "limit" in line]
            limits = limits if direction == "opens" else []
            rows.append({**common, "direction": direction, **summarize(results), "limits": limits})
    if failure or not rows:
        reason = failure or "the script reported nothing"
        rows.append({**common, "direction": "opens", "result": "failed", "notes": [reason]})
    return rows


def run_script(tool: Tool, command: Sequence[str]) -> tuple[list[Line], str]:
    """Return the lines that the script of a tool printed, and the reason if it failed."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SCRIPT_SECONDS,
            check=False,
            env=environment_variables(),
        )
    except subprocess.TimeoutExpired:
        return [], f"{tool.script} took more than {SCRIPT_SECONDS} seconds"
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return lines, f"{tool.script} ended with {done.returncode}: {last}"[:600] if done.returncode else ""


def summarize(results: Sequence[Line]) -> Line:
    """Return the fields of a row for one direction, from the results of its models."""
    equal, differences, notes = [], [], []
    for result in results:
        if "folder" in result:
            result = open_theirs(result)
        if "error" in result:
            notes.append(f"{result['name']}: {result['error']}")
            continue
        differences.append(result["difference"])
        if result["difference"] <= BOUND:  # False for NaN, so NaN counts as different
            equal.append(result["name"])
        else:
            notes.append(f"{result['name']}: differs by {result['difference']:.1e}")
    return {
        "heads": equal,
        "largest_difference": max(differences, default=None),
        "result": "equal" if not notes else "different" if len(notes) < len(results) else "failed",
        "notes": notes,
    }


def open_theirs(result: Line) -> Line:
    """Open a folder of a tool with albertkit, and return the largest difference between their outputs."""
    with np.load(result["values"]) as values:
        parts = {"inputs": {}, "outputs": {}}
        for name in values.files:
            kind, _, key = name.partition("/")
            parts[kind][key] = values[name]
    folder = Path(result["folder"])
    try:
        inputs = {name: torch.from_numpy(array) for name, array in parts["inputs"].items()}
        ours = compute(result["head"], folder, inputs)
        difference = largest_difference(parts["outputs"], ours, parts["inputs"]["attention_mask"])
        return {"name": result["name"], "difference": difference}
    except Exception as error:  # an error is a result too
        return {"name": result["name"], "error": f"{type(error).__name__}: {error}"[:600]}


def run_test_files() -> bool:
    """Run the test files of this folder in their environments, and return whether all of them passed."""
    passed = True
    files = sorted(HERE.glob("test_*.py"))
    for environment in (TEST_ENVIRONMENT, LIBRARIES):
        chosen = [str(file) for file in files if (file.name in LIBRARY_TESTS) == (environment == LIBRARIES)]
        if not chosen:
            continue
        try:
            python = python_of(environment)
        except NotInstalledError as error:
            print(f"{environment} | not installed, so {', '.join(chosen)} did not run: {error}", flush=True)
            continue
        command = [str(python), "-m", "pytest", "-rs", *chosen]
        done = subprocess.run(command, cwd=ROOT, env=environment_variables(), check=False)
        passed &= done.returncode == 0
    return passed


def write_results(rows: Sequence[Line], checked: Sequence[Tool]) -> None:
    """Replace the rows of the checked tools, and write the page."""
    file = compatibility_page.RESULTS
    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    names = {tool.name for tool in checked}
    kept = [row for row in before if row["tool"] not in names]
    order = {tool.name: position for position, tool in enumerate(TOOLS)}
    merged = sorted([*kept, *rows], key=lambda row: order.get(row["tool"], len(order)))
    write_json(file, {"albertkit": albertkit.__version__, "bound": BOUND, "rows": merged})
    compatibility_page.write_page()


def main() -> None:
    """Check the tools, write the results and print them."""
    parser = argparse.ArgumentParser(description="Check the tools that exchange files with albertkit.")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in TOOLS], default=[])
    chosen = parser.parse_args().tool
    tools = [tool for tool in TOOLS if not chosen or tool.name in chosen]
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory(prefix="albertkit-compat-") as work:
        write_cases(Path(work))
        for tool in tools:
            for row in check_tool(tool, Path(work)):
                rows.append(row)
                print(" | ".join(compatibility_page.cells(row)), *row["notes"], sep="\n    ", flush=True)
    write_results(rows, tools)
    passed = bool(chosen) or run_test_files()
    if any(row["result"] in ("different", "failed") for row in rows) or not passed:
        raise SystemExit("Some tools do not agree with albertkit: see the lines above.")


if __name__ == "__main__":
    main()
