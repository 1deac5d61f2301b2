"""Run the scripts and notebooks of examples/ as a user does, and check their output."""

import os
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from places import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
PAGE = (ROOT / "docs" / "tutorials" / "examples.md").read_text(encoding="utf-8")

# Example -> {pattern of its output: the minimum of each number in the group}. Results of training differ a
# little between machines, so the minimum is between the usual result and that of a random prediction.
FIGURES: dict[str, dict[str, float]] = {
    "answer_questions": {r"exact ([\d.]+)%": 50, r"F1 ([\d.]+)%": 60},
    "call_server": {r"([\d.]+)%  door": 5, r"vectors: 2 of (\d+) numbers": 64},
    "classify_tickets": {r"tickets: ([\d.]+)%": 60},
    "continue_pretraining": {r"masked_accuracy +[\d.]+% +([\d.]+)%": 60, r"after .*lit (\d+)%": 30},
    "convert_checkpoint": {r"-> \w+: (\d+) tensors": 30},
    "export_int8": {r"the same word in (\d) of 6": 4, r"float32 +([\d.]+) MB": 5},
    "fill_mask": {r"([\d.]+)%  door": 5, r"([\d.]+) times as probable": 5},
    "mlflow_callback": {r"accuracy ([\d.]+) after 6 steps": 0.2},
    "wandb_callback": {r"accuracy ([\d.]+) after 6 steps": 0.2},
    "julia_walkthrough": {r"layers of width (\d+)": 64, r"transformer +(\d+)x": 64},
    "own_task": {r"exact ([\d.]+)%": 90},
    "restore_order": {r"pairs in order: ([\d.]+)%": 52},
    "search_tickets": {r"has the same label: (\d+)%": 50},
    "tag_words": {r"new names: ([\d.]+)%": 60},
    "finetune_a_classifier": {r"accuracy   ([\d.]+)": 0.6, r"correct: (\d+) of 40": 24},
    "first_steps": {
        r"^door: ([\d.]+)%": 5,
        r"mean cosine of the three pairs ([\d.]+)": 0.2,
        r"(\d+) heads, \d+ tokens": 2,
    },
}
# Example -> parts of its output without percentages. The training is so long that the answers are clear.
TEXTS = {
    "call_server": ["order: in order", "refused: there is no [MASK] in the text"],
    "classify_tickets": ["account", "delivery", "payment", "product"],
    "convert_checkpoint": ["50 of 50 tensors are equal bit for bit", "the token ids are the same: True"],
    "julia_walkthrough": ["sentence-order head  2x3 (features first)"],
    "own_task": ["'labels': [[], ['plant']]", "[[], ['food', 'plant'], ['food']]"],
    "tag_words": [
        "from Plymouth .\n  COMPANY White Rose\n  CITY    Sydney\n  CITY    Plymouth\nDirector",
        "for the north .\n  PERSON  Henry Moss\n  CITY    Whitby\n",
    ],
    "first_steps": ["in order"],
}
TRACKERS = {
    "mlflow": ("start_run", "log_params", "log_metrics", "end_run"),
    "wandb": ("init", "log", "finish"),
}
"""Library that is not installed -> the functions that an example calls; the last but one logs the metrics."""
PICTURES = {"first_steps": 3, "finetune_a_classifier": 2}


def check(name: str, printed: str) -> None:
    assert name in FIGURES, f"add the patterns of the output of {name} to FIGURES in {Path(__file__).name}"
    for pattern, minimum in FIGURES[name].items():
        numbers = re.findall(pattern, printed, flags=re.MULTILINE)
        assert numbers, (pattern, printed)
        assert all(float(number) >= minimum for number in numbers), (pattern, printed)
    for text in TEXTS.get(name, []):
        assert text in re.sub(r" +\d+%", "", printed)


Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a function, its positional arguments, and its keyword arguments."""


def record_call(calls: list[Call], function: str, /, *arguments: Any, **options: Any) -> None:
    calls.append((function, arguments, options))


def stand_in(library: str, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Replace a library by a module whose functions record their calls, and return the list of calls.

    tests/compat/test_trackers.py runs the examples with the real libraries.
    """
    calls: list[Call] = []
    module = ModuleType(library)
    for function in TRACKERS[library]:
        setattr(module, function, partial(record_call, calls, function))
    monkeypatch.setitem(sys.modules, library, module)
    return calls


def check_tracked(calls: list[Call], *order_and_printed: str) -> None:
    """Check the calls of a run with six steps: it logs every other step, and evaluates before and after."""
    *starts, logs, ends, printed = order_and_printed
    assert [name for name, _, _ in calls] == [*starts, *[logs] * 5, ends]
    settings = next(options.get("config", *given) for name, given, options in calls if name == starts[-1])
    assert (settings["task"], settings["batch_size"], settings["epochs"]) == ("text-classification", 40, 1)
    logged = [(options["step"], *given) for name, given, options in calls if name == logs]
    assert [step for step, _ in logged] == [0, 2, 4, 6, 6]
    assert [name for _, metrics in logged for name in metrics if name in ("train/loss", "eval/accuracy")] == [
        *("eval/accuracy", "train/loss", "train/loss", "train/loss", "eval/accuracy")
    ]
    assert logged[1][1]["learning_rate"] > logged[3][1]["learning_rate"] >= 0
    # The report uses float32, but evaluations use the precision of the run.
    assert logged[-1][1]["eval/accuracy"] == pytest.approx(float(printed.split()[1]), abs=0.1)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(
    script: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    blank_pictures: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    library, _, rest = script.stem.partition("_")
    calls = stand_in(library, monkeypatch) if rest == "callback" else []
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    check(script.stem, printed)
    if calls:
        check_tracked(calls, *TRACKERS[library], printed)
    assert not list(tmp_path.iterdir())  # the script leaves no files in the current folder


def test_calling_a_server_without_its_libraries_reports_the_reason(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ImportError('no fastapi')")
    command = [sys.executable, EXAMPLES / "call_server.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the server needs libraries that are not installed (no fastapi)")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    content: Any = nbformat.read(notebook, as_version=4)
    NotebookClient(content, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in content.cells for output in cell.get("outputs", [])]
    check(notebook.stem, "".join(output.text for output in outputs if output.get("name") == "stdout"))
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == PICTURES[notebook.stem]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(notebook: Path) -> None:
    """Stored outputs would become outdated, and every run would change kilobytes of the file."""
    content: Any = nbformat.read(notebook, as_version=4)
    nbformat.validate(content)
    for cell in content.cells:
        assert not cell.get("outputs"), f"jupyter nbconvert --clear-output --inplace {notebook}"
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", [*SCRIPTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_the_page_lists_every_example(path: Path) -> None:
    assert f"(../../examples/{path.name})" in PAGE
    if path.suffix == ".py":
        assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")
