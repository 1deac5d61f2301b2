"""Read the modules of a sentence-transformers folder: modules.json and the files that it lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from albertkit.errors import CheckpointError, ConfigError, short
from albertkit.files import read_json
from albertkit.hub import MODULES_FILE, read_modules

_LONGEST = 1_000_000  # the settings of a tokenizer without a maximum length contain a far larger number
_VECTOR = "sentence_embedding"  # the input and output of the modules after the pooling


def read_sentence_modules(folder: Path) -> SentenceModules | None:
    """Return the modules of the model in a folder, whose `modules.json` is there or in the folder above.

    Returns:
        None if sentence-transformers did not write the folder, or if the model does not embed texts.

    Raises:
        CheckpointError: A file is damaged, or a module is not supported.
    """
    root = _find_root(folder)
    if root is None:
        return None
    model = _json(root / MODEL_FILE)
    if model.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return None  # for example a cross-encoder, whose head is in the weights
    (first, _), *others = read_modules(root) or [("", "")]
    if first != "Transformer":
        raise _unsupported(root / MODULES_FILE, f"the first module is {first!r}", "Transformer")
    (second, place), *after = others or [("", "")]
    if second != "Pooling":
        raise _unsupported(root / MODULES_FILE, f"the second module is {second!r}", "Pooling")
    steps = [step for name, path in after for step in _read_step(name, root, path)]
    normalizes = bool(steps) and isinstance(steps[-1], Normalize)
    prompts = _read_prompts(root / MODEL_FILE, model)
    max_length, lower_case = _read_settings(folder)
    pooling_file = root / place / CONFIG_FILE
    config = read_json(pooling_file, CheckpointError)
    flagged = [name for flag, name in POOLING_FLAGS.items() if config.get(flag)]
    try:
        pooling = check_pooling(config.get("pooling_mode", flagged or "mean"))
    except ConfigError as error:
        raise CheckpointError(f"{pooling_file}: {error}") from error
    return SentenceModules(
        pooling=pooling,
        steps=tuple(steps[:-1] if normalizes else steps),
        normalize=normalizes,
        include_prompt=bool(config.get("include_prompt", True)),
        max_length=max_length,
        lower_case=lower_case,
        prompts=prompts,
        default_prompt_name=model.get("default_prompt_name"),
        dimensions=_read_dimensions(root / MODEL_FILE, model),
        similarity=model.get("similarity_fn_name"),
    )


def _find_root(folder: Path) -> Path | None:
    """Return the folder with the `modules.json`: this one, or the one above if its transformer is here."""
    if (folder / MODULES_FILE).is_file():
        return folder
    root = folder.parent
    listed = read_modules(root) if (root / MODULES_FILE).is_file() else []
    is_inner = bool(listed) and listed[0][1] == folder.name and not (root / CONFIG_FILE).is_file()
    return root if is_inner else None


def _read_prompts(file: Path, model: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompts by name, after checking them and the name of the default prompt."""
    prompts = model.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise _unsupported(file, f"prompts is {short(prompts)}", "a dict of texts")
    default = model.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise _unsupported(file, f"default_prompt_name is {default!r}", "the name of a prompt")
    return prompts


def _read_dimensions(file: Path, model: Mapping[str, Any]) -> int | None:
    dimensions: int | None = model.get("truncate_dim")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise _unsupported(file, f"truncate_dim is {short(dimensions)}", "a whole number of at least 1")
    return dimensions


def _read_settings(folder: Path) -> tuple[int | None, bool]:
    """Return the maximum length, and whether texts are lower-cased, from the folder of the transformer."""
    files = [SETTINGS_FILE, *sorted(file.name for file in folder.glob("sentence_*_config.json"))]
    file = next((folder / name for name in files if (folder / name).is_file()), folder / SETTINGS_FILE)
    settings = _json(file)
    if (task := settings.get("transformer_task", "feature-extraction")) != "feature-extraction":
        raise _unsupported(file, f"transformer_task is {task!r}", "feature-extraction")
    length = settings.get("max_seq_length")
    if length is None:  # current versions save it in the tokenizer's file
        length = _json(folder / "tokenizer_config.json").get("model_max_length")
    if not isinstance(length, int | float) or isinstance(length, bool) or not 0 < length <= _LONGEST:
        length = None
    return None if length is None else int(length), bool(settings.get("do_lower_case", False))


def _read_step(name: str, root: Path, path: str) -> list[Step]:
    """Return the step of a module after the pooling, or no step for a module that computes nothing."""
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
    is_residual = bool(config.get("use_residual", False))
    sizes = config.get("out_features"), config.get("in_features")
    expected: dict[str, tuple[Any, ...]] = {"linear.weight": sizes}
    if config.get("bias", True):
        expected["linear.bias"] = sizes[:1]
    if is_residual and sizes[0] != sizes[1]:
        expected["residual.weight"] = sizes
    stored = {name: tensors[name].shape for name in expected if name in tensors}
    if stored != expected or ("linear.bias" in tensors) != ("linear.bias" in expected):
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items()) or "nothing"
        raise CheckpointError(
            f"{folder}: the weights are {shapes}. Expected linear.weight {sizes} and the other weights that "
            "config.json describes. Save the model again."
        )
    weights = {name: tensors[name].astype(np.float32) for name in expected}
    return Dense(
        weights["linear.weight"],
        weights.get("linear.bias"),
        ACTIVATIONS[activation],
        is_residual,
        weights.get("residual.weight"),
    )


def _check_places(file: Path, config: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a module does not read and write the vector of the text."""
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
