"""Detect the format of a model's files, and read config and tensors in any format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from albertkit.checkpoints import folder, julia, tensorflow
from albertkit.checkpoints.checkpoint import Checkpoint, vocabulary_in
from albertkit.checkpoints.sentence_modules import POOLING_KEY, attach, read_sentence_modules
from albertkit.config import CONFIG_FILE, GOOGLE_CONFIG_FILE, AlbertConfig, as_config
from albertkit.errors import ConfigError
from albertkit.hub import HubOptions, as_path, resolve, split_hub_options, take_loading_options
from albertkit.published import warn_of_contradictions


def locate(name_or_path: str | Path, *, also: tuple[str, ...] = (), **hub: Unpack[HubOptions]) -> Path:
    """Return the local path of a model: a foreign checkpoint itself, or the folder with config and weights.

    Repositories often have the same weights in several formats: this function first asks for safetensors, and
    for the older files only if there are none. `also` are further files to fetch.
    """
    if (foreign := foreign_path(name_or_path, **hub)) is not None:
        return foreign
    patterns = ("model*.safetensors", folder.INDEX_FILE, *folder.SENTENCE_FILES, *also)
    path = resolve(name_or_path, patterns=(CONFIG_FILE, *patterns), **hub)
    pickled = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
    for older in (pickled, ("tf_model.h5",), (folder.ONNX_FILE,)):
        if folder.weights_in(path) is None:
            path = resolve(name_or_path, patterns=(CONFIG_FILE, *older, *also), **hub)
    return path


def foreign_path(name_or_path: str | Path, **hub: Unpack[HubOptions]) -> Path | None:
    """Return the path of a checkpoint of Google or Julia by its name, or None for other names."""
    path = as_path(name_or_path)
    return path if path and not hub.get("subfolder") and _is_foreign(path) else None


def read(path: str | Path, *, needs_config: bool = True) -> Checkpoint:
    """Read a checkpoint of any format from a path that `locate` returned.

    For `needs_config` see `folder.read_folder`.
    """
    path = Path(path)
    if path.suffix in julia.ENDINGS and not path.is_dir():
        return julia.read(path)
    if _is_foreign(path):
        return tensorflow.read(path)
    config, tensors = folder.read_folder(path, needs_config=needs_config)
    files, vocabulary = folder.weight_files(path), vocabulary_in(path)
    return Checkpoint("hf", config, tensors, files, vocabulary, modules=read_sentence_modules(path))


def load_config(name_or_path: Any, **options: Any) -> AlbertConfig:
    hub, overrides = split_hub_options(options)
    if hasattr(name_or_path, "to_dict"):
        return as_config(name_or_path).replace(**overrides)
    path = foreign_path(name_or_path, **hub)
    if path is None:
        config = AlbertConfig.from_pretrained(name_or_path, **options)
        file = as_path(name_or_path)
        if file is None or not file.is_file():  # a config file has no modules
            files = (CONFIG_FILE, GOOGLE_CONFIG_FILE, *folder.SENTENCE_FILES)
            modules = read_sentence_modules(resolve(name_or_path, patterns=files, **hub))
            if modules is not None:
                attach(config, modules)
        return config
    config = read(path).to_config()
    warn_of_contradictions(name_or_path, vars(config), settled=overrides.keys())
    config.name_or_path = str(name_or_path)
    return config.replace(**overrides)


def load(
    name_or_folder: str | Path | None,
    config: AlbertConfig | str | Path | None = None,
    state_dict: Mapping[str, np.ndarray] | None = None,
    /,
    **options: Any,
) -> tuple[AlbertConfig, Mapping[str, np.ndarray]]:
    """Return the config with overrides, and the tensors; missing arguments are read from the checkpoint.

    `options` are those of `from_pretrained`: hub options, loading options, and arguments of the config. With
    a `variant` such as "fp16", the tensors come from `model.fp16.safetensors`. They are mapped from their
    file, or copied if `disable_mmap`: a process that reads a mapped file ends with SIGBUS if another program
    truncates the file.
    """
    hub, options = split_hub_options(options)
    overrides, safetensors_only = take_loading_options(options), options.get("use_safetensors") is True
    if config is not None:
        config = load_config(config, **hub, **overrides)
    if state_dict is not None:
        # The tensors become the parameters, and training must not change the caller's tensors.
        state_dict = {name: tensor.copy() for name, tensor in state_dict.items()}
    if config is not None and state_dict is not None:
        return config, state_dict
    if name_or_folder is None:
        raise ConfigError("there is no model name or folder. Pass one, or both config and state_dict.")
    if state_dict is not None:
        return load_config(name_or_folder, **hub, **overrides), state_dict
    path = as_path(name_or_folder)
    if variant := options.get("variant"):
        tensors = folder.read_variant(name_or_folder, variant, **hub)
        config = load_config(name_or_folder, **hub, **overrides) if config is None else config
    elif config is not None and path and path.is_file() and path.suffix in folder.READERS:
        _check_safetensors(path, safetensors_only)
        tensors = folder.READERS[path.suffix](path)
    else:
        path = locate(name_or_folder, **hub)
        _check_safetensors(path, safetensors_only)
        checkpoint = read(path, needs_config=config is None)
        tensors = checkpoint.tensors
        if config is None:
            config = checkpoint.to_config()
            warn_of_contradictions(name_or_folder, vars(config), settled=overrides.keys())
            config = config.replace(**overrides)
        elif checkpoint.modules is not None and POOLING_KEY not in config.extra:
            config = config.replace()
            attach(config, checkpoint.modules)
    if options.get("disable_mmap"):
        copies = {id(tensor): tensor.copy() for tensor in tensors.values()}  # shared tensors stay shared
        tensors = {name: copies[id(tensor)] for name, tensor in tensors.items()}
    return config, tensors


def _check_safetensors(path: Path, safetensors_only: bool) -> None:
    if safetensors_only and path.suffix != ".safetensors" and not any(path.glob("model*.safetensors*")):
        raise ConfigError(f"use_safetensors=True, but {path} has no safetensors. Omit it.")


def _is_foreign(path: Path) -> bool:
    if path.is_file() and path.name.endswith((*julia.ENDINGS, *tensorflow.ARCHIVES)):
        return True
    if path.is_dir() and folder.weights_in(path):
        return False
    return tensorflow.find(path) is not None
