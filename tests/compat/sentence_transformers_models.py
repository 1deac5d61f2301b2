"""Compare the vectors of texts with sentence-transformers, and let it save a model."""

from pathlib import Path
from typing import Any

import torch
from comparing import (
    Case,
    check_opens,
    errors_reported,
    read_cases,
    report_limit,
    report_versions,
    report_written,
    work_folder,
)
from sentence_transformers import SentenceTransformer


def open_ours(case: Case) -> dict[str, Any]:
    """Open a folder, which then uses mean pooling, and return the vectors."""
    return {"vectors": SentenceTransformer(str(case.folder), device="cpu").encode(case.texts)}


def write(case: Case, folder: Path) -> None:
    """Save a model in the layout of sentence-transformers."""
    model = SentenceTransformer(str(case.folder), device="cpu")
    folder.parent.mkdir(parents=True)
    model.save(str(folder))
    with torch.no_grad():
        output = model[0].auto_model(**{name: torch.from_numpy(array) for name, array in case.inputs.items()})
    outputs = {"last_hidden_state": output.last_hidden_state.numpy()}
    report_written(case.name, case.head, folder, case.inputs, outputs)


if __name__ == "__main__":
    report_versions("sentence-transformers", "transformers", "torch")
    work = work_folder()
    for case in read_cases(work):
        if len(case.vectors):
            check_opens(case, open_ours, {"vectors": case.vectors})
        else:
            report_limit(case, "computes vectors of texts, not of choices")
        if case.name == "AlbertModel":
            with errors_reported("writes", case.name):
                write(case, work / "written" / "sentence-transformers" / case.name)
