"""onnxruntime alone, with NumPy: the graph of every head that `albertkit export onnx` writes."""

from typing import Any

import onnxruntime
from comparing import Case, check_opens, read_cases, report_versions, work_folder


def open_ours(case: Case) -> dict[str, Any]:
    """Run the graph on the inputs; return its outputs by their names."""
    session = onnxruntime.InferenceSession(case.onnx / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(case.inputs)), strict=True))


if __name__ == "__main__":
    report_versions("onnxruntime", "numpy")
    for one in read_cases(work_folder()):
        check_opens(one, open_ours)
