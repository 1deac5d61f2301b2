"""Checkpoints of the original code (google-research/albert): read and written without TensorFlow.

    model.ckpt-best.index, model.ckpt-best.data-00000-of-00001    the tensors (tensor_bundle.py)
    albert_config.json                                            the shape; "gelu" means its tanh form
    30k-clean.model, or vocab.txt                                 the vocabulary
    tokenizer_config.json, tokenizer.json, ...                    its settings, only in albertkit's files
    checkpoint                                                    the name of the newest of several

`read` accepts a folder, a TensorFlow Hub module (`variables/variables.*`, vocabulary in `assets/`), the
released `.tar.gz` of either, or the path of one of several checkpoints. TensorFlow 2 writes the same files
with other names (object_graph.py).
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.checkpoints import archive, object_graph
from albertkit.checkpoints.checkpoint import Checkpoint, vocabulary_in
from albertkit.checkpoints.names import OLDER_FACTOR, canonical, is_turned, to_google, why_no_weight
from albertkit.checkpoints.tensor_bundle import Bundle, prefixes, write_bundle
from albertkit.config import AlbertConfig
from albertkit.config_base import CONFIG_FILE, GOOGLE_CONFIG_FILE
from albertkit.config_fields import ACTIVATION_ALIASES
from albertkit.errors import CheckpointError, ConfigError
from albertkit.files import contents, json_text, read_json
from albertkit.published import CHECKPOINTS

PREFIX = "model.ckpt-best"
VOCABULARY = "30k-clean.model"

_ALWAYS = {"tie_word_embeddings": True, "layer_norm_eps": 1e-12, "pruned_heads": {}}
_WORDS = "embeddings.word_embeddings.weight"
_MAPPING = "encoder.embedding_hidden_mapping_in"


def find(path: Path) -> Path | None:
    """Return the prefix of a checkpoint by its folder, one of its files or its prefix, or None.

    Raises:
        CheckpointError: a folder has several checkpoints, and nothing selects one.
    """
    if not path.is_dir():
        text = re.sub(r"\.index$|\.data-\d{5}-of-\d{5}$|\.meta$", "", str(path))
        return Path(text) if Path(text + ".index").is_file() else None
    checkpoints = prefixes(path) or (prefixes(path / "variables") if (path / "variables").is_dir() else [])
    if len(checkpoints) <= 1:
        return checkpoints[0] if checkpoints else None
    state = path / "checkpoint"
    text = state.read_text(encoding="utf-8", errors="replace") if state.is_file() else ""
    named = re.search(r'^model_checkpoint_path:\s*"([^"]+)"', text, re.MULTILINE)
    newest = path / Path(named[1]).name if named else path / PREFIX
    if newest in checkpoints:
        return newest
    names = ", ".join(str(prefix) for prefix in checkpoints)
    raise CheckpointError(f"{path} has {len(checkpoints)} checkpoints. Pass the path of one: {names}")


def read(path: Path) -> Checkpoint:
    """Read a checkpoint that `find` accepts, or its archive.

    Raises:
        CheckpointError: a file is missing or damaged. The message gives the position in bytes.
        ConfigError: the config describes no possible model.
    """
    if path.is_file() and path.name.endswith(archive.ENDINGS):
        # Mapped files outlive their names on POSIX; elsewhere the folder stays until the system cleans up.
        with tempfile.TemporaryDirectory(prefix="albertkit-", ignore_cleanup_errors=True) as folder:
            unpacked = archive.unpack(path, Path(folder))
            try:
                checkpoint = read(unpacked)
            except (CheckpointError, ConfigError) as error:
                # The folder is deleted at once, so messages name its files without it.
                message = str(error).replace(f"{unpacked}{os.sep}", "").replace(str(unpacked), "the folder")
                raise type(error)(f"{path}, unpacked: {message}") from error
            checkpoint.files = [path]
            return checkpoint
    prefix = find(path)
    if prefix is None:
        raise CheckpointError(
            f"{path} is not a TensorFlow checkpoint. Expected files NAME.index and NAME.data-00000-of-00001"
            + (f"; it {contents(path)}." if path.is_dir() else ".")
        )
    bundle = Bundle(prefix)
    variables = object_graph.variable_names(bundle)
    notes: list[str] = []
    tensors = _read_tensors(bundle, variables, notes)
    heads = object_graph.merge_heads(tensors) if variables else None
    tensors = {name: turned(name, tensor) for name, tensor in tensors.items()}
    folder = prefix.parent.parent if prefix.parent.name == "variables" else prefix.parent
    values, is_google = _read_config(folder, tensors, notes)
    if heads is not None and values.get("num_attention_heads") != heads:
        raise ConfigError(
            f"the config of {prefix} has num_attention_heads {values.get('num_attention_heads')!r}, but its "
            f"tensors have {heads} heads. Correct the config."
        )
    values = with_labels(_multiply_out(values, tensors, notes), tensors)
    config = AlbertConfig.from_google_dict(values) if is_google else AlbertConfig.from_dict(values)
    files = [bundle.index, *bundle.shards]
    vocabulary = vocabulary_in(folder / "assets" if (folder / "assets").is_dir() else folder)
    return Checkpoint("tf1", config.to_dict(), tensors, files, vocabulary, notes=notes)


def _read_tensors(bundle: Bundle, variables: Mapping[str, str], notes: list[str]) -> dict[str, np.ndarray]:
    """Return the tensors by name; `variables` has the names of keys of TensorFlow 2."""
    tensors: dict[str, np.ndarray] = {}
    for key, entry in bundle.entries.items():
        name = variables.get(key, key)
        if entry.dtype is not None:
            # Training state may be three times as large as the weights, so it is not read.
            check = why_no_weight(name) is None or name.endswith(OLDER_FACTOR)
            tensors[name] = bundle.read(key, check=check)
        elif key != object_graph.GRAPH:
            notes.append(f"{name} was not read: weights cannot have the type {entry.type_name}")
    return tensors


def write(folder: Path, checkpoint: Checkpoint) -> list[Path]:
    """Write a checkpoint in the original code's format into an empty folder; return the paths.

    Raises:
        CheckpointError: the format has no name for a tensor.
        ConfigError: the original code does not have the activation.
        OSError: the folder cannot be written.
    """
    config = google_config(checkpoint.config)
    paths = write_bundle(folder / PREFIX, google_tensors(checkpoint.tensors))
    state = f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n'
    small = {GOOGLE_CONFIG_FILE: (json_text(config, indent=2) + "\n").encode(), "checkpoint": state.encode()}
    # The original code reads only the vocabulary. albertkit also reads the settings of the tokenizer.
    for name, content in checkpoint.vocabulary.items():
        small[VOCABULARY if name == "spiece.model" else name] = content
    for name, content in small.items():
        (folder / name).write_bytes(content)
    return [*paths, *(folder / name for name in small)]


# --- shared with Julia's files ------------------------------------------------------------------


def turned(name: str, tensor: np.ndarray) -> np.ndarray:
    """Convert a tensor from TensorFlow's layout to PyTorch's, or back, by its name in the file."""
    return np.ascontiguousarray(tensor.T) if tensor.ndim == 2 and is_turned(name) else tensor


def google_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return our tensors with Google's names and in TensorFlow's layout.

    Raises:
        CheckpointError: Google's models do not have a tensor.
    """
    named = {to_google(name): tensor for name, tensor in tensors.items()}
    return {name: turned(name, tensor) for name, tensor in named.items()}


def google_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an `albert_config.json`: our config with Google's names of activations.

    Raises:
        ConfigError: the original code does not have the activation or another setting.
    """
    act = config["hidden_act"]
    known = {"gelu_new": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
    act = ACTIVATION_ALIASES.get(act, act)
    if act not in known:
        raise ConfigError(
            f"hidden_act is {act!r}, which the original code does not have (its 'gelu' is our 'gelu_new'). "
            f"Expected one of {', '.join(known)}. Or choose the format 'hf'."
        )
    for name, value in _ALWAYS.items():
        if config.get(name, value) != value:
            raise ConfigError(
                f"{name} is {config[name]!r}, but in the original code it is always {value!r}. "
                "Choose the format 'hf'."
            )
    # The original code keeps unknown keys, so none of ours is lost.
    kept = {name: value for name, value in config.items() if name != "model_type"}
    return kept | {"hidden_act": known[act]}


def with_labels(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a config with the number of labels of the classifier, which Google's configs do not record."""
    bias = next((tensor for name, tensor in tensors.items() if canonical(name) == "classifier.bias"), None)
    # A config that was converted from ours already has the labels.
    if bias is None or "architectures" in values:
        return dict(values)
    return {**values, "num_labels": bias.size}


# --- configs ------------------------------------------------------------------------------------


def _read_config(
    folder: Path, tensors: Mapping[str, np.ndarray], notes: list[str]
) -> tuple[dict[str, Any], bool]:
    """Return the config of a checkpoint, and whether it is Google's (a config.json is ours)."""
    standard = [folder / name for name in (GOOGLE_CONFIG_FILE, CONFIG_FILE) if (folder / name).is_file()][:1]
    others = sorted(
        path for place in (folder, folder / "assets") for path in place.glob("*config*.json")
        if "tokenizer" not in path.name and "generation" not in path.name
    )  # fmt: skip
    candidates = standard or others
    if len(candidates) > 1:
        names = ", ".join(path.name for path in candidates)
        raise CheckpointError(f"{folder} has several configs ({names}). Name one {GOOGLE_CONFIG_FILE}.")
    if not candidates:
        return _config_by_shapes(folder, tensors, notes), True
    return read_json(candidates[0], CheckpointError), candidates[0].name != CONFIG_FILE


def _config_by_shapes(folder: Path, tensors: Mapping[str, np.ndarray], notes: list[str]) -> dict[str, Any]:
    """Return the config of a published shape, for TensorFlow Hub modules, which have no config."""
    shapes = {
        canonical(name).removeprefix("albert."): tuple(tensor.shape) for name, tensor in tensors.items()
    }
    words, mapping = shapes.get(_WORDS, ()), shapes.get(f"{_MAPPING}.weight", ())
    sizes = (model.size for model in CHECKPOINTS.values() if (model.config["hidden_size"],) == mapping[:1])
    size = next(sizes, None)
    if size is None or len(words) != 2:
        raise CheckpointError(
            f"{folder} has no {GOOGLE_CONFIG_FILE}, and the shapes of its tensors are not those of a "
            "published model. Add the file: the tensors do not determine the number of heads and layers."
        )
    notes.append(
        f"there is no {GOOGLE_CONFIG_FILE}. The shapes are those of ALBERT {size}. The dropout probabilities "
        "are unknown and set to 0"
    )
    preset = AlbertConfig.preset(cast(Any, size), vocab_size=words[0])
    return google_config(preset.to_dict())


def _multiply_out(values: dict[str, Any], tensors: dict[str, np.ndarray], notes: list[str]) -> dict[str, Any]:
    """Convert a checkpoint of the older Chinese layout to the current form, which computes the same.

    That layout maps words to the hidden size before it adds positions and segments, and its LayerNorm has the
    hidden size. So the product of the two factors is a table of words of the hidden size, and the mapping
    after the LayerNorm is the identity. The masked language modeling head uses the same two factors.
    """
    factor = next((name for name in tensors if name.endswith(OLDER_FACTOR)), None)
    if factor is None:
        return values
    if values.get("ln_type", "postln") != "postln":
        raise ConfigError(
            f"ln_type is {values['ln_type']!r}: a network with a LayerNorm before each layer is another "
            "architecture, which albertkit does not support"
        )
    words = next((name for name in tensors if canonical(name) == f"albert.{_WORDS}"), None)
    if words is None or tensors[words].ndim != 2 or tensors[words].shape[1:] != tensors[factor].shape[:1]:
        raise CheckpointError(
            f"the shape of {factor} does not match the word embeddings, so they cannot be multiplied. Copy "
            "the checkpoint again."
        )
    hidden_size = tensors[factor].shape[-1]
    dtype = tensors[factor].dtype
    tensors[words] = (tensors[words].astype(np.float64) @ tensors[factor].astype(np.float64)).astype(dtype)
    tensors[f"albert.{_MAPPING}.weight"] = np.eye(hidden_size, dtype=dtype)
    tensors[f"albert.{_MAPPING}.bias"] = np.zeros(hidden_size, dtype=dtype)
    notes.append(
        f"older layout: {factor} was multiplied into {words}, and the mapping after it is the identity "
        f"(embedding_size {values.get('embedding_size')} became {hidden_size})"
    )
    return {**values, "embedding_size": hidden_size}
