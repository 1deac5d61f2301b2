"""Cases that albertkit wrote, and functions that report comparisons, for the scripts in this folder.

Every script runs in the environment of its tool, where albertkit is not installed. This file needs only
NumPy. A script gets one argument, the folder that `models.py` filled, and prints JSON lines:

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
"""The folder of the cases, in the folder that a script gets as its argument."""


@dataclass(frozen=True)
class Case:
    """A model folder that albertkit wrote, inputs for it, and the outputs that albertkit computes."""

    name: str
    head: str
    """The model class."""
    folder: Path
    """In the layout of the Hugging Face hub."""
    onnx: Path
    """The output of `albertkit export onnx`: `model.onnx` with config and tokenizer."""
    web: Path
    """The output of `albertkit export web`, for transformers.js."""
    texts: list[str]
    ids: list[list[int]]
    """The ids of each text, with special tokens and without padding."""
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    encoder: dict[str, np.ndarray]
    """The outputs of the folder, loaded as an AlbertModel; empty for multiple choice. If the folder has no
    pooler, there is no `pooler_output`."""
    vectors: np.ndarray
    """The mean of the last hidden states of each text; empty for multiple choice."""


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
    """Return the largest difference between the outputs of a tool and of albertkit, without padding.

    A tool must compute at least one output, but not all of them.
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
    """Raise AssertionError if the tokenizer of a tool returns other ids than albertkit."""
    for text, ids in zip(case.texts, case.ids, strict=True):
        theirs = list(encode(text))
        assert theirs == ids, f"different ids for {text!r}: {theirs} instead of {ids}"


def report(**line: Any) -> None:
    """Print a line for the driver."""
    print(json.dumps(line), flush=True)


def report_versions(*packages: str) -> None:
    """Print the versions of packages, starting with the tool."""
    report(versions={package: version(package) for package in packages})


@contextmanager
def errors_reported(direction: str, name: str) -> Iterator[None]:
    """Report an exception as the result of a case, so that the next case is tried too."""
    try:
        yield
    except Exception as error:  # any exception of the tool is a result
        report(direction=direction, name=name, error=f"{type(error).__name__}: {error}"[:600])


def check_opens(
    case: Case, compute: Callable[[Case], Mapping[str, Any]], expected: Mapping[str, np.ndarray] | None = None
) -> None:
    """Report the largest difference between the outputs of a tool and of albertkit.

    Args:
        case: The model folder.
        compute: A function that opens the folder and returns outputs by name.
        expected: The outputs of albertkit. None compares with the outputs of the head.
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
    """Report a folder that a tool wrote. The driver compares the outputs of albertkit with the given ones."""
    file = folder.with_name(f"{folder.name}.npz")
    values = {f"inputs/{key}": np.asarray(array, np.int64) for key, array in inputs.items()}
    values |= {f"outputs/{key}": np.asarray(array) for key, array in outputs.items()}
    np.savez(file, **values)
    report(direction="writes", name=name, head=head, folder=str(folder), values=str(file))


def work_folder() -> Path:
    """Return the folder in the argument of the script."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {Path(sys.argv[0]).name} FOLDER; `make compat` runs this script")
    return Path(sys.argv[1])
