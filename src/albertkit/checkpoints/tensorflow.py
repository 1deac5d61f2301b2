"""Checkpoints of TensorFlow, read and written without it, such as those of google-research/albert.

    model.ckpt-best.index, model.ckpt-best.data-00000-of-00001    the tensors (tensor_bundle.py)
    albert_config.json                                            the shape; "gelu" means its tanh form
    30k-clean.model, or vocab.txt                                 the vocabulary
    tokenizer_config.json, tokenizer.json, ...                    its settings, only in albertkit's files
    checkpoint                                                    the name of the newest of several

`read` accepts a folder, a TensorFlow Hub module (`variables/variables.*`, vocabulary in `assets/`), the
released `.tar.gz` of either, or the path of one of several checkpoints.

TensorFlow 2 writes the same files with other names: keys are positions in a graph of objects, and the entry
`_CHECKPOINTABLE_OBJECT_GRAPH` has the variable of each key and its original name. TensorFlow Hub modules
(`tensorflow/albert_en_base`) use this format, and so does `save_weights` of Keras 2 for the encoder of
TensorFlow's model garden (official/nlp) and for the TensorFlow classes of `transformers`.
"""

import os
import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.checkpoints.checkpoint import VOCABULARY_FILES, Checkpoint, vocabulary_in
from albertkit.checkpoints.names import (
    OLDER_FACTOR,
    canonical,
    from_google,
    is_turned,
    spec_of,
    to_google,
    why_no_weight,
)
from albertkit.checkpoints.tensor_bundle import DTYPES, Bundle, prefixes, write_bundle
from albertkit.config import ACTIVATION_ALIASES, CONFIG_FILE, GOOGLE_CONFIG_FILE, AlbertConfig
from albertkit.errors import CheckpointError, ConfigError, reading
from albertkit.files import json_text, read_json
from albertkit.protobuf import message_class
from albertkit.published import CHECKPOINTS

PREFIX = "model.ckpt-best"
VOCABULARY = "30k-clean.model"
ARCHIVES = (".tar.gz", ".tgz", ".tar")
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_ALWAYS = {"tie_word_embeddings": True, "layer_norm_eps": 1e-12}
_WORDS = "embeddings.word_embeddings"
_MAPPING = "encoder.embedding_hidden_mapping_in"


def find(path: Path) -> Path | None:
    """Return the prefix of a checkpoint by its folder, one of its files or its prefix, or None."""
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
    names = ", ".join(map(str, checkpoints))
    raise CheckpointError(f"{path} has {len(checkpoints)} checkpoints. Pass the path of one: {names}")


def read(path: Path) -> Checkpoint:
    """Read a checkpoint that `find` accepts, or its archive."""
    if path.is_file() and path.name.endswith(ARCHIVES):
        # Mapped files outlive their names on POSIX; elsewhere the folder stays until the system cleans up.
        with tempfile.TemporaryDirectory(prefix="albertkit-", ignore_cleanup_errors=True) as folder:
            unpacked = _unpack(path, Path(folder))
            try:
                checkpoint = read(unpacked)
            except (CheckpointError, ConfigError) as error:
                # The folder is deleted at once, so messages name its files without it.
                message = str(error).replace(f"{unpacked}{os.sep}", "")
                raise type(error)(f"{path}, unpacked: {message}") from error
            checkpoint.files = [path]
            return checkpoint
    prefix = find(path)
    if prefix is None:
        raise CheckpointError(f"{path} is not a TensorFlow checkpoint. Expected NAME.index and NAME.data-...")
    bundle = Bundle(prefix)
    variables = variable_names(bundle)
    notes: list[str] = []
    tensors: dict[str, np.ndarray] = {}
    for key, entry in bundle.entries.items():
        name = variables.get(key, key)
        if entry.dtype in DTYPES:
            # Training state may be three times as large as the weights, so it is not read.
            check = why_no_weight(name) is None or name.endswith(OLDER_FACTOR)
            tensors[name] = bundle.read(key, check=check)
        elif key != GRAPH:
            notes.append(f"{name} was not read: its type cannot be that of weights")
    heads = merge_heads(tensors) if variables else None
    tensors = {name: transposed(name, tensor) for name, tensor in tensors.items()}
    folder = prefix.parent.parent if prefix.parent.name == "variables" else prefix.parent
    values, is_google = _read_config(folder, tensors, notes)
    if heads is not None and values.get("num_attention_heads") != heads:
        raise ConfigError(f"{prefix} has {heads} attention heads. Correct its config.")
    values = with_labels(_multiply_out(values, tensors, notes), tensors)
    config = AlbertConfig.from_google_dict(values) if is_google else AlbertConfig.from_dict(values)
    files = [bundle.index, *bundle.shards]
    vocabulary = vocabulary_in(folder / "assets" if (folder / "assets").is_dir() else folder)
    return Checkpoint("tf1", config.to_dict(), tensors, files, vocabulary, notes=notes)


def write(folder: Path, checkpoint: Checkpoint) -> list[Path]:
    """Write a checkpoint in the original code's format into an empty folder; return the paths."""
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


def transposed(name: str, tensor: np.ndarray) -> np.ndarray:
    """Convert a tensor from TensorFlow's layout to PyTorch's, or back, by its name in the file."""
    return np.ascontiguousarray(tensor.T) if tensor.ndim == 2 and is_turned(name) else tensor


def google_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {to_google(name): tensor for name, tensor in tensors.items()}
    return {name: transposed(name, tensor) for name, tensor in named.items()}


def google_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an `albert_config.json`: our config with Google's names of activations."""
    act = ACTIVATION_ALIASES.get(config["hidden_act"], config["hidden_act"])
    known = {"gelu_new": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
    if act not in known:
        raise ConfigError(
            f"hidden_act is {act!r}, which the original code does not have (its 'gelu' is our 'gelu_new')"
        )
    for name, value in _ALWAYS.items():
        if config.get(name, value) != value:
            raise ConfigError(f"{name} is {config[name]!r}, but in the original code it is always {value!r}.")
    # The original code keeps unknown keys, so none of ours is lost.
    rest = {name: value for name, value in config.items() if name != "model_type"}
    return rest | {"hidden_act": known[act]}


def with_labels(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a config with the number of labels of the classifier, which Google's configs do not record."""
    bias = next((tensor for name, tensor in tensors.items() if canonical(name) == "classifier.bias"), None)
    # A config that was converted from ours already has the labels.
    return dict(values) if bias is None or "architectures" in values else {**values, "num_labels": bias.size}


# --- configs ------------------------------------------------------------------------------------


def _read_config(
    folder: Path, tensors: Mapping[str, np.ndarray], notes: list[str]
) -> tuple[dict[str, Any], bool]:
    """Return the config of a checkpoint, and whether it is Google's (a config.json is ours)."""
    standard = [folder / name for name in (GOOGLE_CONFIG_FILE, CONFIG_FILE) if (folder / name).is_file()][:1]
    candidates = standard or sorted(
        path
        for parent in (folder, folder / "assets")
        for path in parent.glob("*config*.json")
        if "tokenizer" not in path.name and "generation" not in path.name
    )
    if len(candidates) > 1:
        names = ", ".join(path.name for path in candidates)
        raise CheckpointError(f"{folder} has several configs ({names}). Name one {GOOGLE_CONFIG_FILE}.")
    if candidates:
        return read_json(candidates[0], CheckpointError), candidates[0].name != CONFIG_FILE
    # Modules of TensorFlow Hub have no config.
    shapes = {canonical(name).removeprefix("albert."): tensor.shape for name, tensor in tensors.items()}
    words, mapping = shapes.get(f"{_WORDS}.weight", ()), shapes.get(f"{_MAPPING}.weight", ())
    sizes = (model.size for model in CHECKPOINTS.values() if (model.config["hidden_size"],) == mapping[:1])
    size = next(sizes, None)
    if size is None or len(words) != 2:
        raise CheckpointError(
            f"{folder} has no {GOOGLE_CONFIG_FILE}. Add it: no published model has its shapes."
        )
    notes.append(
        f"there is no {GOOGLE_CONFIG_FILE}. The shapes are those of ALBERT {size}. The dropout probabilities "
        "are unknown and set to 0"
    )
    return google_config(AlbertConfig.preset(cast(Any, size), vocab_size=words[0]).to_dict()), True


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
        raise ConfigError(f"ln_type is {values['ln_type']!r}, which albertkit does not support")
    words = next((name for name in tensors if canonical(name) == f"albert.{_WORDS}.weight"), None)
    if words is None or tensors[words].ndim != 2 or tensors[words].shape[1:] != tensors[factor].shape[:1]:
        raise CheckpointError(f"the shape of {factor} does not match the word embeddings")
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


# --- TensorFlow 2 -------------------------------------------------------------------------------


def variable_names(bundle: Bundle) -> dict[str, str]:
    """Map the key of each weight to a name for `names.canonical`; {} without an object graph."""
    if GRAPH not in bundle.entries:
        return {}
    with reading(bundle.prefix, CheckpointError):
        graph = message_class("ObjectGraph").FromString(bundle.read_string(GRAPH))
        variables = [
            (variable.full_name, variable.checkpoint_key)
            for node in graph.nodes
            for variable in node.attributes
        ]
    names: dict[str, str] = {}
    for full_name, key in variables:
        # An optimizer's variables have the names of their weights, but different keys.
        if not full_name or key not in bundle.entries or why_no_weight(key):
            continue
        # The graph omits the ending that identifies Keras names.
        name = full_name if from_google(full_name) else f"{full_name}:0"
        if name in names.values() and key not in names and spec_of(name):
            raise CheckpointError(f"{bundle.prefix} has {full_name} twice. Save only the encoder.")
        names[key] = name
    return names


def merge_heads(tensors: dict[str, np.ndarray]) -> int | None:
    """Reshape the garden's attention to the original's shapes in place; return its number of heads, if any.

    The garden's queries, keys and values are H x heads x size with biases heads x size, and its output is
    heads x size x H. The order of the numbers is the same as in the original.
    """
    names_by_heads: dict[int, str] = {}
    for name, tensor in tensors.items():
        known = from_google(name)
        if known is None or ".attention." not in known[0] or tensor.ndim != (2 if known[1].is_vector else 3):
            continue
        is_output = known[0].endswith(".dense.weight")
        names_by_heads.setdefault(tensor.shape[0 if is_output or known[1].is_vector else 1], name)
        if known[1].is_vector:
            tensors[name] = tensor.reshape(-1)
        else:
            tensors[name] = tensor.reshape((-1, tensor.shape[2]) if is_output else (tensor.shape[0], -1))
    if len(names_by_heads) > 1:
        raise ConfigError(f"the attention has different numbers of heads: {names_by_heads}")
    return next(iter(names_by_heads), None)


# --- archives -----------------------------------------------------------------------------------

# Maximum number of bytes that one byte of an archive can expand to: gzip ends at 1,032, sparse files have no
# limit.
_LARGEST_EXPANSION = 1_100
_LARGEST_SMALL_FILE = 64 << 20  # index, config and vocabulary are read completely; only shards are mapped
_NEEDED = re.compile(
    r".+\.index|.+\.data-\d{5}-of-\d{5}|checkpoint|.*config.*\.json|.+\.(model|spm)|"
    + "|".join(map(re.escape, VOCABULARY_FILES))
)


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack only the files of a checkpoint, with a limit on their sizes, and return their folder."""
    bytes_left = _LARGEST_EXPANSION * archive.stat().st_size
    with reading(archive, CheckpointError), tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile() or not _NEEDED.fullmatch(Path(member.name).name):
                continue
            bytes_left -= member.size
            is_small = ".data-" not in member.name
            if bytes_left < 0 or (is_small and member.size > _LARGEST_SMALL_FILE):
                raise ValueError(f"{member.name} claims {member.size:,} bytes, too many for the archive")
            tar.extract(member, folder, filter="data")
    folders = {path.parent for path in folder.rglob("*.index")}
    folders = {parent.parent if parent.name == "variables" else parent for parent in folders}
    if len(folders) != 1:
        raise CheckpointError(f"{archive} has {len(folders)} checkpoints. Unpack it, and pass a folder.")
    return folders.pop()
