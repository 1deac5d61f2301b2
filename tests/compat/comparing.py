"""What the scripts of this folder share: the cases that albertkit wrote, and the lines that they print.

Every script runs in the environment of its tool, where albertkit is not installed: this file needs NumPy
alone. A script gets one argument, the folder that `models.py` filled, and prints JSON lines:

    {"versions": {"transformers": "5.23.0"}}
    {"direction": "opens", "name": "AlbertModel", "difference": 2.4e-07}
    {"direction": "opens", "name": "AlbertForPreTraining", "error": "ValueError: ..."}
    {"direction": "opens", "name": "AlbertForMultipleChoice", "limit": "has no head for this task"}
    {"direction": "writes", "name": "AlbertModel", "head": "AlbertModel", "folder": "...",
     "values": "....npz"}
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CASES = "cases"
"""The folder of the cases, below the folder that a script is given."""


@dataclass(frozen=True)
class Case:
    """A model folder that albertkit wrote, inputs for it, and the outputs that albertkit computes."""

    name: str
    head: str
    """The model class."""
    folder: Path
    """In the layout of the Hugging Face hub."""
    onnx: Path
    """What `albertkit export onnx` wrote: `model.onnx` with config and tokenizer."""
    web: Path
    """What `albertkit export web` wrote, for transformers.js."""
    texts: list[str]
    ids: list[list[int]]
    """The ids of each text, with special tokens and without padding."""
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    encoder: dict[str, np.ndarray]
    """What the folder computes as an AlbertModel; empty for choices, without `pooler_output` where the
    folder has no pooler."""
    vectors: np.ndarray
    """Of each text: the mean of its last hidden states; empty for choices."""


def read_cases(work: Path) -> list[Case]:
    """Return the cases of a folder, in the order of their names."""
    cases = []
    for file in sorted((work / CASES).glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        arrays = {
            kind: {name: np.array(values, dtype) for name, values in content[kind].items()}
            for kind, dtype in (("inputs", np.int64), ("outputs", np.float32), ("encoder", np.float32))
        }
        arrays["vectors"] = np.array(content["vectors"], np.float32)
        folders = {kind: work / content[kind] for kind in ("folder", "onnx", "web")}
        cases.append(Case(**content | arrays | folders))
    return cases


def largest_difference(
    outputs: Mapping[str, Any], expected_outputs: Mapping[str, np.ndarray], attention_mask: np.ndarray
) -> float:
    """Return the largest difference of a tool's outputs from albertkit's; padding is not compared.

    A tool need not compute every output, but at least one.
    """
    assert outputs, "no outputs"
    assert outputs.keys() <= expected_outputs.keys(), f"{list(outputs)} for {list(expected_outputs)}"
    mask = attention_mask.astype(bool)
    differences = []
    for name, values in outputs.items():
        expected, values = expected_outputs[name], np.asarray(values)
        assert values.shape == expected.shape, f"{name} is {values.shape} instead of {expected.shape}"
        if expected.shape[: mask.ndim] == mask.shape:
            values, expected = values[mask], expected[mask]
        assert np.isfinite(values).all(), f"{name} is not finite"
        differences.append(float(np.abs(values.astype(np.float64) - expected).max()))
    return max(differences)


def compare_ids(case: Case, encode: Callable[[str], Any]) -> None:
    """Raise AssertionError if a tool's tokenizer gives other ids than albertkit's."""
    for text, ids in zip(case.texts, case.ids, strict=True):
        theirs = list(encode(text))
        assert theirs == ids, f"other ids for {text!r}: {theirs} instead of {ids}"


def report(**line: Any) -> None:
    """Print a line for the driver."""
    print(json.dumps(line), flush=True)


def report_versions(*packages: str) -> None:
    """Print the versions of packages, the tool's own first."""
    report(versions={package: version(package) for package in packages})


@contextmanager
def errors_reported(direction: str, name: str) -> Iterator[None]:
    """Report an exception as the result of a case, so that the next case is tried too."""
    try:
        yield
    except Exception as error:  # whatever the tool raises is its result
        report(direction=direction, name=name, error=f"{type(error).__name__}: {error}"[:600])


def check_opens(
    case: Case,
    compute: Callable[[Case], Mapping[str, Any]],
    expected: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Report how far a tool's outputs are from albertkit's.

    Args:
        case: the model folder.
        compute: opens the folder and returns outputs by their names.
        expected: albertkit's outputs; None for those of the head.
    """
    if expected is None:
        expected = case.outputs
    with errors_reported("opens", case.name):
        difference = largest_difference(compute(case), expected, case.inputs["attention_mask"])
        report(direction="opens", name=case.name, difference=difference)


def report_limit(case: Case, reason: str) -> None:
    """Report a model that the tool has no code for."""
    report(direction="opens", name=case.name, limit=reason)


def report_written(
    name: str, head: str, folder: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> None:
    """Report a folder that a tool wrote; the driver compares albertkit's outputs with the tool's."""
    file = folder.with_name(f"{folder.name}.npz")
    values = {f"inputs/{key}": np.asarray(array, np.int64) for key, array in inputs.items()}
    values |= {f"outputs/{key}": np.asarray(array) for key, array in outputs.items()}
    np.savez(file, **values)
    report(direction="writes", name=name, head=head, folder=str(folder), values=str(file))


def work_folder() -> Path:
    """Return the folder that the script was given."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {Path(sys.argv[0]).name} FOLDER; `make compat` runs this script")
    return Path(sys.argv[1])
