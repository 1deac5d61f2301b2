"""Compare every head, in both directions, and the ids of the tokenizer with transformers 5 and 4."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from comparing import (
    Case,
    check_opens,
    compare_ids,
    errors_reported,
    read_cases,
    report_versions,
    report_written,
    work_folder,
)

TINY: dict[str, Any] = {
    "vocab_size": 120,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "initializer_range": 0.2,
}


def open_ours(case: Case) -> dict[str, Any]:
    """Open a folder and its tokenizer, and return the outputs."""
    compare_ids(case, lambda text: transformers.AutoTokenizer.from_pretrained(case.folder)(text)["input_ids"])
    model, report = getattr(transformers, case.head).from_pretrained(case.folder, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], f"{key}: {report[key]}"
    return compute(model.eval(), case.inputs)


def compute(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the outputs of a model by name."""
    with torch.no_grad():
        outputs = model(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    return {name: values.numpy() for name, values in outputs.items()}


def write(head: str, folder: Path, inputs: dict[str, np.ndarray], *, safetensors: bool = True) -> None:
    """Write a random model of transformers with its outputs."""
    torch.manual_seed(1)
    model = getattr(transformers, head)(transformers.AlbertConfig(**TINY)).eval()
    options = {} if safetensors else {"safe_serialization": False}
    model.save_pretrained(folder, **options)
    name = head if safetensors else f"{head} (pytorch_model.bin)"
    report_written(name, head, folder, inputs, compute(model, inputs))


def main(work: Path) -> None:
    """Check every case, then write a model of every head."""
    report_versions("transformers", "torch", "tokenizers")
    cases = read_cases(work)
    for case in cases:
        check_opens(case, open_ours)
    major = int(transformers.__version__.split(".")[0])
    written = work / "written" / f"transformers-{major}"
    written.mkdir(parents=True)
    for case in cases:
        if case.name == case.head:
            inputs = case.inputs | {"input_ids": case.inputs["input_ids"] % TINY["vocab_size"]}
            with errors_reported("writes", case.head):
                write(case.head, written / case.head, inputs)
            if major == 4 and case.head == "AlbertForMaskedLM":
                with errors_reported("writes", f"{case.head} (pytorch_model.bin)"):
                    write(case.head, written / f"{case.head}-bin", inputs, safetensors=False)


if __name__ == "__main__":
    main(work_folder())
