"""Run the graphs of `albertkit export onnx` with onnxruntime and NumPy, for every head."""

from typing import Any

import onnxruntime
from comparing import Case, check_opens, read_cases, report_versions, work_folder


def open_ours(case: Case) -> dict[str, Any]:
    """Run the graph on the inputs, and return its outputs by name."""
    session = onnxruntime.InferenceSession(case.onnx / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(case.inputs)), strict=True))


if __name__ == "__main__":
    report_versions("onnxruntime", "numpy")
    for case in read_cases(work_folder()):
        check_opens(case, open_ours)
