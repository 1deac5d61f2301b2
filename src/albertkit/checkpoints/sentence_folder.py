"""Read the modules of a sentence-transformers folder: modules.json and the files that it lists."""

from collections.abc import Iterable
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
    model_file, list_file = root / MODEL_FILE, root / MODULES_FILE
    model = _json(model_file)
    if model.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return None  # for example a cross-encoder, whose head is in the weights
    first, second, *others = [*read_modules(root), ("", ""), ("", "")]
    _expect(list_file, "the first module", first[0], ["Transformer"])
    _expect(list_file, "the second module", second[0], ["Pooling"])
    steps: list[Step] = []
    for kind, path in others:
        if kind:
            _expect(list_file, "a module after the pooling", kind, ["Dense", "Dropout", "Normalize"])
        if kind == "Dense":
            steps.append(_read_dense(root / path))
        elif kind == "Normalize":
            _check_places(root / path / CONFIG_FILE)
            steps.append(Normalize())
    normalizes = bool(steps) and isinstance(steps[-1], Normalize)
    prompts = model.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise _unsupported(model_file, f"prompts is {short(prompts)}", "a dict of texts")
    _expect(model_file, "default_prompt_name", model.get("default_prompt_name"), [None, *prompts])
    dimensions = model.get("truncate_dim")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        expected = "a whole number of at least 1"
        raise _unsupported(model_file, f"truncate_dim is {short(dimensions)}", expected)
    max_length, lower_case = _read_settings(folder)
    pooling_file = root / second[1] / CONFIG_FILE
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
        dimensions=dimensions,
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


def _read_settings(folder: Path) -> tuple[int | None, bool]:
    """Return the maximum length, and whether texts are lower-cased, from the folder of the transformer."""
    files = [folder / SETTINGS_FILE, *sorted(folder.glob("sentence_*_config.json"))]
    file = next((file for file in files if file.is_file()), files[0])
    settings = _json(file)
    task = settings.get("transformer_task", "feature-extraction")
    _expect(file, "transformer_task", task, ["feature-extraction"])
    length = settings.get("max_seq_length")
    if length is None:  # current versions save it in the tokenizer's file
        length = _json(folder / "tokenizer_config.json").get("model_max_length")
    if not isinstance(length, int | float) or isinstance(length, bool) or not 0 < length <= _LONGEST:
        length = None
    return None if length is None else int(length), bool(settings.get("do_lower_case", False))


def _read_dense(folder: Path) -> Dense:
    config, tensors = read_folder(folder)
    file = folder / CONFIG_FILE
    _check_places(file)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    _expect(file, "activation_function", activation, ACTIVATIONS)
    is_residual = bool(config.get("use_residual", False))
    sizes = config.get("out_features"), config.get("in_features")
    expected: dict[str, tuple[Any, ...]] = {"linear.weight": sizes}
    if config.get("bias", True):
        expected["linear.bias"] = sizes[:1]
    if is_residual and sizes[0] != sizes[1]:
        expected["residual.weight"] = sizes
    stored = {name: tensor.shape for name, tensor in tensors.items()}
    if stored != expected:
        raise CheckpointError(
            f"{folder}: the weights are {_shapes(stored)}. config.json describes {_shapes(expected)}. "
            "Save the model again."
        )
    weights = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    return Dense(
        weights["linear.weight"],
        weights.get("linear.bias"),
        ACTIVATIONS[activation],
        is_residual,
        weights.get("residual.weight"),
    )


def _shapes(shapes: dict[str, tuple[Any, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "nothing"


def _check_places(file: Path) -> None:
    """Raise CheckpointError if a module does not read and write the vector of the text."""
    config = _json(file)
    for name in ("module_input_name", "module_output_name"):
        _expect(file, name, config.get(name) or _VECTOR, [_VECTOR])


def _json(file: Path) -> dict[str, Any]:
    return read_json(file, CheckpointError) if file.is_file() else {}


def _expect(file: Path, name: str, value: Any, expected: Iterable[Any]) -> None:
    expected = list(expected)
    if value not in expected:
        raise _unsupported(file, f"{name} is {value!r}", ", ".join(str(one) for one in expected))


def _unsupported(file: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: {received}, which albertkit does not support. Expected {expected}. Open the folder with "
        f"sentence-transformers, or remove {MODULES_FILE} to use the encoder alone."
    )
