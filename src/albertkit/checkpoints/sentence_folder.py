"""Reads the folders of sentence-transformers: modules.json and its files -> how a text's vector is made."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.checkpoints.folder import read_folder
from albertkit.checkpoints.sentence_modules import (
    ACTIVATIONS,
    MODEL_FILE,
    POOLING_FLAGS,
    SETTINGS_FILE,
    Dense,
    Normalize,
    SentenceModules,
    Step,
    check_pooling,
)
from albertkit.config_base import CONFIG_FILE
from albertkit.errors import CheckpointError, ConfigError
from albertkit.files import read_json
from albertkit.hub import MODULES_FILE, read_modules

_LONGEST = 1_000_000  # tokenizers say a far larger number if they have no maximum length
_VECTOR = "sentence_embedding"  # the input and output of the modules after the pooling


def read_sentence_modules(folder: Path) -> SentenceModules | None:
    """Read what the folder of a transformer, or the one above it, says of the vectors of texts.

    Returns:
        None for a folder that is not of sentence-transformers, or not of a model that embeds texts.

    Raises:
        CheckpointError: a file is damaged, or a module is none that is supported.
    """
    root = folder
    if not (root / MODULES_FILE).is_file():
        root = folder.parent
        listed = read_modules(root) if (root / MODULES_FILE).is_file() else []
        if not listed or listed[0][1] != folder.name or (root / CONFIG_FILE).is_file():
            return None
    model = _json(root / MODEL_FILE)
    if model.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return None  # a cross-encoder, say, whose head is in the weights
    (first, _), *others = read_modules(root) or [("", "")]
    if first != "Transformer":
        raise _unsupported(root / MODULES_FILE, f"the first module is {first!r}", "Transformer")
    (second, place), *after = others or [("", "")]
    if second != "Pooling":
        raise _unsupported(root / MODULES_FILE, f"the second module is {second!r}", "Pooling")
    steps = [step for name, path in after for step in _read_step(name, root, path)]
    normalizes = bool(steps) and isinstance(steps[-1], Normalize)
    prompts = model.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise _unsupported(root / MODEL_FILE, f"prompts is {prompts!r:.80}", "a dict of texts")
    default = model.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise _unsupported(root / MODEL_FILE, f"default_prompt_name is {default!r}", "the name of a prompt")
    modules = SentenceModules(
        steps=tuple(steps[:-1] if normalizes else steps),
        normalize=normalizes,
        prompts=prompts,
        default_prompt_name=default,
        similarity=model.get("similarity_fn_name"),
    )
    return _read_pooling(_read_settings(modules, folder), root / place / CONFIG_FILE)


def _read_settings(modules: SentenceModules, folder: Path) -> SentenceModules:
    """Take the maximum length and lower case from the folder of the transformer."""
    files = [SETTINGS_FILE, *sorted(file.name for file in folder.glob("sentence_*_config.json"))]
    file = next((folder / name for name in files if (folder / name).is_file()), folder / SETTINGS_FILE)
    settings = _json(file)
    if (task := settings.get("transformer_task", "feature-extraction")) != "feature-extraction":
        raise _unsupported(file, f"transformer_task is {task!r}", "feature-extraction")
    length = settings.get("max_seq_length")
    if length is None:  # current versions keep it in the tokenizer's file
        length = _json(folder / "tokenizer_config.json").get("model_max_length")
    if not isinstance(length, int | float) or isinstance(length, bool) or not 0 < length <= _LONGEST:
        length = None
    return replace(
        modules,
        max_length=None if length is None else int(length),
        lower_case=bool(settings.get("do_lower_case", False)),
    )


def _read_pooling(modules: SentenceModules, file: Path) -> SentenceModules:
    config = read_json(file, CheckpointError)
    flagged = [name for flag, name in POOLING_FLAGS.items() if config.get(flag)]
    try:
        pooling = check_pooling(config.get("pooling_mode", flagged or "mean"))
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}") from error
    return replace(modules, pooling=pooling, include_prompt=bool(config.get("include_prompt", True)))


def _read_step(name: str, root: Path, path: str) -> list[Step]:
    """Return a module that follows the pooling; none for one that computes nothing."""
    file = root / path / CONFIG_FILE
    if name == "Normalize":
        _check_places(file, _json(file))
        return [Normalize()]
    if name == "Dropout":
        return []
    if name == "Dense":
        return [_read_dense(root / path)]
    raise _unsupported(
        root / MODULES_FILE, f"the module {name!r} follows the pooling", "Dense, Dropout or Normalize"
    )


def _read_dense(folder: Path) -> Dense:
    config, tensors = read_folder(folder)
    file = folder / CONFIG_FILE
    _check_places(file, config)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise _unsupported(file, f"activation_function is {activation!r}", ", ".join(ACTIVATIONS))
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    residual, is_residual = tensors.get("residual.weight"), bool(config.get("use_residual", False))
    sizes = config.get("out_features"), config.get("in_features")
    square = sizes[0] == sizes[1]
    if (
        weight is None
        or weight.shape != sizes
        or (bias is None) == bool(config.get("bias", True))
        or (bias is not None and bias.shape != sizes[:1])
        or (is_residual and not square and (residual is None or residual.shape != sizes))
    ):
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items()) or "nothing"
        raise CheckpointError(
            f"{folder}: the weights are {shapes}. Expected linear.weight {sizes} and the other weights that "
            "config.json describes. Save the model again."
        )

    def floats(tensor: np.ndarray | None) -> np.ndarray | None:
        return None if tensor is None else tensor.astype(np.float32)

    return Dense(
        cast(np.ndarray, floats(weight)),
        floats(bias),
        ACTIVATIONS[activation],
        is_residual,
        floats(residual) if is_residual and not square else None,
    )


def _check_places(file: Path, config: Mapping[str, Any]) -> None:
    """Refuse a module that does not read and write the vector of the text."""
    for name in ("module_input_name", "module_output_name"):
        if (value := config.get(name)) not in (None, _VECTOR):
            raise _unsupported(file, f"{name} is {value!r}", _VECTOR)


def _json(file: Path) -> dict[str, Any]:
    return read_json(file, CheckpointError) if file.is_file() else {}


def _unsupported(file: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: {received}, which albertkit does not support. Expected {expected}. Open the folder with "
        f"sentence-transformers, or remove {MODULES_FILE} to use the encoder alone."
    )
