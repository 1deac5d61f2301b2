"""Write an ONNX file: its metadata, the file itself, and the other files of its model folder."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from albertkit import __version__
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.sentence_modules import files_of, sentence_modules
from albertkit.config import CONFIG_FILE, AlbertConfig
from albertkit.engines.light_model import LightModel
from albertkit.errors import AlbertKitError, CheckpointError
from albertkit.files import atomic_path, complete_files, json_text, made_folder
from albertkit.heads import head_of
from albertkit.onnx.graph import onnx
from albertkit.onnx.int8 import INT8, QUANTIZATION
from albertkit.onnx.padded import build
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.folder import MODEL_FILE, TOKENIZER_FILE, WORD_LIST_FILE
from albertkit.vocabularies import write_vocabulary

_MOST_BYTES = 2_000_000_000  # of one protobuf message, which must also contain the graph


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Write a file as `atomic_path` does, and create its folder, which is removed if nothing is written."""
    try:
        with made_folder(file.parent), atomic_path(file) as new:
            yield new
    except OSError as error:
        if isinstance(error, AlbertKitError):
            raise
        raise CheckpointError(f"Could not write {file}: {error}.") from error


def write_file(
    file: Path,
    model: LightModel,
    metadata: Mapping[str, str],
    *,
    compute: str,
    **options: Any,
) -> dict[str, Any]:
    """Write the file; return the parts of the report that describe its content.

    Args:
        file: the file.
        model: the model.
        metadata: texts by name, which the file also contains.
        compute: data type of the computation.
        options: further options of `onnx.padded.build`.
    """
    graph, weight_bytes = build(
        model.architecture, model.config, model.weights, compute=np.dtype(compute), **options
    )
    stored_bytes = sum(len(one.raw_data) for one in graph.graph.initializer)
    if stored_bytes > _MOST_BYTES:
        raise CheckpointError(
            f"The weights take {stored_bytes:,} bytes, but an ONNX file has room for {_MOST_BYTES:,}. "
            "Choose the dtype 'float16'."
        )
    onnx.helper.set_model_props(graph, dict(metadata))
    file.write_bytes(graph.SerializeToString())
    onnx.checker.check_model(str(file), full_check=True)
    return {
        "ir_version": graph.ir_version,
        "weight_bytes": weight_bytes,
        "inputs": {value.name: _describe(value) for value in graph.graph.input},
        "outputs": {value.name: _describe(value) for value in graph.graph.output},
    }


def _describe(value: Any) -> str:
    """Return the type and shape of an input or output in words."""
    kind = value.type
    is_optional = kind.HasField("optional_type")
    tensor = (kind.optional_type.elem_type if is_optional else kind).tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    sizes = ", ".join(size.dim_param or str(size.dim_value) for size in tensor.shape.dim)
    return f"{name} ({sizes}){', may be left out' if is_optional else ''}"


def exported_config(
    config: AlbertConfig, architecture: str, dtype: str, *, int8: bool = False
) -> AlbertConfig:
    config = config.replace(architectures=[architecture], dtype=dtype)
    if int8:
        config.extra[QUANTIZATION] = INT8
    return config


def metadata_of(
    config: AlbertConfig, checkpoint: Checkpoint, tokenizer: TokenizerBase | None, *, compute: str
) -> dict[str, str]:
    """Return the metadata that a program needs if it has only the file; all values are text."""
    shape = json_text(config.to_dict(), sort_keys=True)
    metadata = {
        "albertkit_version": __version__,
        "architecture": str((config.architectures or [""])[0]),
        "config": shape,
        "config_sha256": hashlib.sha256(shape.encode()).hexdigest(),
        "id2label": json_text(config.id2label, ensure_ascii=False),
        "max_length": str(config.max_position_embeddings),
        "dtype": str(config.dtype),
        "compute": compute,
    }
    name = vocabulary_file(checkpoint)
    if name is not None and tokenizer is not None:
        metadata |= {
            "tokenizer_file": name,
            "tokenizer_sha256": hashlib.sha256(checkpoint.vocabulary[name]).hexdigest(),
            "do_lower_case": json_text(bool(tokenizer.normalization["do_lower_case"])),
        }
    return metadata


def vocabulary_file(checkpoint: Checkpoint) -> str | None:
    """Return the name of the vocabulary's file, or None if there is none."""
    return next(
        (name for name in (MODEL_FILE, WORD_LIST_FILE, TOKENIZER_FILE) if name in checkpoint.vocabulary), None
    )


def write_beside(folder: Path, config: AlbertConfig, checkpoint: Checkpoint) -> list[Path]:
    """Write config.json and the tokenizer's files; return their paths."""
    with complete_files(folder) as files:
        config.save_pretrained(files)
        modules = files_of(config)
        for name, content in modules.items():
            (files / name).parent.mkdir(exist_ok=True)
            (files / name).write_bytes(content)
        names = (CONFIG_FILE, *write_vocabulary(files, checkpoint), *modules)
    return [folder / name for name in names]


def vectors_note(architecture: str, config: AlbertConfig) -> list[str]:
    """Return a note on the steps to the vector of a text that the file lacks; no note if there are none."""
    modules = sentence_modules(config) if head_of(architecture).task == "feature-extraction" else None
    if modules is None:
        return []
    steps = [f"the pooling {modules.pooling}", *(type(one).__name__ for one in modules.steps)]
    if modules.normalize:
        steps.append("Normalize")
    if modules.default_prompt_name is not None:
        steps.append(f"the default prompt {modules.default_prompt_name!r}")
    return [
        "the file computes the vectors of the tokens (last_hidden_state). It lacks the other steps to the "
        f"vector of a text: {', '.join(steps)}. The pipelines of albertkit compute all steps"
    ]
