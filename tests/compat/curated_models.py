"""Compare encoders with curated-transformers, and let it write an encoder in the format of the hub.

The library has no heads and no pooler. It reads `inner_group_num`, but supports one inner layer per group.
"""

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
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
from curated_transformers.layers import AttentionMask
from curated_transformers.models import ALBERTConfig, ALBERTEncoder
from safetensors.torch import save_file


def open_ours(case: Case) -> dict[str, Any]:
    """Open a folder, and return the last hidden states."""
    encoder = ALBERTEncoder.from_fsspec(fs=fsspec.filesystem("file"), model_path=str(case.folder))
    return compute(encoder, case.inputs)


def compute(encoder: ALBERTEncoder, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the last hidden states of an encoder."""
    ids, mask, segments = (
        torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    with torch.no_grad():
        output = encoder.eval()(ids, AttentionMask(mask.bool()), type_ids=segments)
    return {"last_hidden_state": output.last_hidden_layer_state.numpy()}


def write(folder: Path, inputs: dict[str, np.ndarray]) -> None:
    """Write a random encoder of curated-transformers in the format of the Hugging Face hub."""
    torch.manual_seed(1)
    config = ALBERTConfig(
        embedding_width=16, hidden_width=32, intermediate_width=48, n_attention_heads=4, n_hidden_layers=3,
        n_pieces=120, n_positions=96, model_max_length=96,
    )  # fmt: skip
    encoder = ALBERTEncoder(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(ALBERTEncoder.config_to_hf(config)))
    tensors = {
        name: values.contiguous()
        for name, values in ALBERTEncoder.state_dict_to_hf(encoder.state_dict()).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    report_written("AlbertModel", "AlbertModel", folder, inputs, compute(encoder, inputs))


def main(work: Path) -> None:
    """Check the encoder of every case, then write an encoder."""
    report_versions("curated-transformers", "torch")
    for case in read_cases(work):
        if not case.encoder:
            report_limit(case, "has no heads")
        elif json.loads((case.folder / "config.json").read_text())["inner_group_num"] > 1:
            report_limit(case, "supports only one inner layer per group")
        else:
            check_opens(case, open_ours, case.encoder)
        if case.name == "AlbertModel":
            with errors_reported("writes", case.name):
                inputs = case.inputs | {"input_ids": case.inputs["input_ids"] % 120}
                write(work / "written" / "curated-transformers" / case.name, inputs)


if __name__ == "__main__":
    main(work_folder())
