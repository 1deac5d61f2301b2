"""Find the files of a model by its name: a bundled model, a folder, or a model on the Hugging Face hub."""

import importlib.resources
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from albertkit.errors import CheckpointError, ConfigError, ModelNotFoundError, did_you_mean, reading, short
from albertkit.files import contents, hint_of_models
from albertkit.published import REPOSITORIES

MODULES_FILE = "modules.json"
"""The file of a sentence-transformers folder that lists its modules."""
BUNDLED = "bundled"
"""The name of the model that is installed with albertkit. Write `./bundled` for a folder with that name."""
BUNDLED_SENTENCES = "bundled-sentences"
"""The name of the model for sentence embedding that is installed with albertkit."""
NAMES = (BUNDLED, BUNDLED_SENTENCES, *REPOSITORIES)
"""All names without an organization: the models in the package, and the published ones."""

# Never a hub name: a path that starts with "." , "/" or "~", has a Windows drive or separator, ends in a
# slash, or has three parts.
_PATH_LIKE = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|.*\\|.*/$|.*/.*/")


class HubOptions(TypedDict, total=False):
    """Options of every `from_pretrained` that say where to look for the files of a model."""

    revision: str | None
    """Branch, tag or commit on the hub."""
    cache_dir: str | Path | None
    """Folder for downloads, instead of the hub's own cache."""
    token: str | bool | None
    """Hub token. None uses the saved token if there is one, True requires it, False uses no token."""
    local_files_only: bool
    """Whether to use only files that were downloaded before. The environment variable HF_HUB_OFFLINE=1 does
    the same for the whole process."""
    subfolder: str
    """Subfolder of the folder or repository, such as "checkpoint-500"."""


def split_hub_options(options: Mapping[str, Any]) -> tuple[HubOptions, dict[str, Any]]:
    """Split keyword arguments into hub options and other arguments."""
    names = HubOptions.__annotations__
    hub = {name: value for name, value in options.items() if name in names}
    return cast(HubOptions, hub), {name: value for name, value in options.items() if name not in names}


def resolve(name_or_folder: str | Path, *, patterns: tuple[str, ...], **hub: Unpack[HubOptions]) -> Path:
    """Return the local folder of a model; download it to the hub's cache if necessary.

    Args:
        name_or_folder: "bundled" or "bundled-sentences"; a folder, which takes precedence over a hub name; a
            name in `published.REPOSITORIES`; or a hub name "organization/model".
        patterns: The files to download, as glob patterns ("config.json", "model*.safetensors"). The folder
            must contain at least one of them.
        hub: Options; see `HubOptions`.
    """
    subfolder = hub.pop("subfolder", "")
    name, path = str(name_or_folder), as_path(name_or_folder)
    if path is None:
        raise ModelNotFoundError(f"{short(name)} cannot be the name of a model.")
    if isinstance(name_or_folder, str) and name in (BUNDLED, BUNDLED_SENTENCES):
        folder = Path(str(importlib.resources.files("albertkit"))) / "assets" / name
    elif name and path.is_dir():
        folder = path
    elif name and path.is_file():
        raise ModelNotFoundError(f"{name!r} is a file. Expected the folder of a model.")
    elif isinstance(name_or_folder, Path) or not name or _PATH_LIKE.match(name):
        raise ModelNotFoundError(f"There is no folder {name!r} (looked for {path.absolute()}).")
    elif "/" in name or name in REPOSITORIES:
        wanted = tuple(f"{subfolder}/{pattern}" for pattern in patterns) if subfolder else patterns
        folder = _download(REPOSITORIES.get(name, name), wanted, hub)
    else:
        raise ModelNotFoundError(
            f"There is no model {name!r}: no folder of that name in {Path.cwd()}, and no known name"
            f"{did_you_mean(name, NAMES)}. Other models on the hub are named 'organization/model'."
        )
    if subfolder:
        inner = folder / subfolder
        if not inner.is_dir() or not inner.resolve().is_relative_to(folder.resolve()):
            raise ModelNotFoundError(f"{name!r} has no folder {subfolder!r}: {folder} {contents(folder)}.")
        folder = inner
    elif (folder / MODULES_FILE).is_file() and not (folder / "config.json").is_file():
        inner = next((folder / path for _, path in read_modules(folder)), folder)
        folder = inner if (inner / "config.json").is_file() else folder
    # Hidden (incomplete) files do not count.
    files = [child.name for child in folder.iterdir() if child.is_file() and not child.name.startswith(".")]
    if not any(fnmatch(file, pattern) for file in files for pattern in patterns):
        raise ModelNotFoundError(
            f"{name!r} is not the folder of one model. Expected {' or '.join(patterns[:4])} "
            f"in {folder}, which {contents(folder)}." + hint_of_models(folder)
        )
    return folder


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return (kind, subfolder) of each module in a modules.json; "" is the folder itself."""
    file = folder / MODULES_FILE
    with reading(file, CheckpointError):
        listed = [
            (str(module["type"]), str(module.get("path", ""))) for module in json.loads(file.read_bytes())
        ]
        for _, path in listed:
            if not (folder / path).resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"the path {path!r} leads out of the folder. Expected a sub-folder")
    # The module path of a class changes between versions, so only the class name counts; classes of other
    # packages keep their whole name.
    package = "sentence_transformers."
    return [(kind.rpartition(".")[2] if kind.startswith(package) else kind, path) for kind, path in listed]


def as_path(name: str | Path) -> Path | None:
    """Return the name of a model or tokenizer as a path, or None if no file can have that name."""
    if not isinstance(name, str | PathLike):
        raise ConfigError(f"received {short(name)} ({type(name).__name__}). Expected a folder or a hub name.")
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError):  # too long, home of an unknown user, a null character
        return None
    return path


def _download(repository: str, patterns: tuple[str, ...], hub: Mapping[str, Any]) -> Path:
    from huggingface_hub import snapshot_download  # takes half a second, so import it only for hub names

    try:
        folder = Path(snapshot_download(repository, allow_patterns=list(patterns), **hub))
    except Exception as error:  # errors of the hub, its HTTP library (which changed), or the file system
        revision = f" at revision {hub['revision']!r}" if hub.get("revision") else ""
        raise ModelNotFoundError(f"Could not get {repository!r}{revision}: {explain(error)}") from error
    if not folder.is_dir():  # the library returns a folder even if the repository has no such files
        raise ModelNotFoundError(f"The repository {repository!r} has no {' or '.join(patterns)}.")
    return folder


def explain(error: Exception) -> str:
    """Return the message of an error of the hub in one line, as part of our own."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


# --- options of `transformers` ------------------------------------------------------------------

# Options that have no effect in this package.
# fmt: off
_UNSUPPORTED = frozenset((
    "adapter_kwargs", "adapter_name", "allow_all_kernels", "code_revision", "device_mesh",
    "distributed_config", "force_download", "from_flax", "from_tf", "fusion_config",
    "generation_config", "gguf_file", "kernel_config", "key_mapping", "load_in_4bit",
    "load_in_8bit", "max_memory", "mirror", "offload_buffers", "offload_folder",
    "offload_state_dict", "proxies", "quantization_config", "resume_download",
    "return_unused_kwargs", "tp_plan", "tp_size", "tqdm_class", "use_auth_token",
    "use_kernels",
))
# fmt: on
_REQUIRED = ("weights_only", "use_safetensors")
"""Options that must not be False: code never runs, and safetensors are read if there are any."""


def take_loading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `from_pretrained` that are not loading options of `transformers`.

    `disable_mmap` copies the weights into memory, so that their file can be overwritten in place.
    `low_cpu_mem_usage` has no effect, because memory is always used sparingly. `trust_remote_code` has no
    effect, because code of a checkpoint never runs. `weights_only` must be True. `use_safetensors` must be
    None or True. Only models use `variant`. Other loading options must be None, False or "".
    """
    refused = [name for name in _UNSUPPORTED & options.keys() if options[name] not in (None, False, "", {})]
    refused += [f"{name}=False" for name in _REQUIRED if options.get(name) is False]
    if refused:
        names = ", ".join(sorted(refused))
        raise ConfigError(f"{names}: this loading option of transformers is not supported. Omit it.")
    taken = {"disable_mmap", "low_cpu_mem_usage", "trust_remote_code", "variant", *_REQUIRED, *_UNSUPPORTED}
    return {name: value for name, value in options.items() if name not in taken}


def refuse_push_to_hub(push_to_hub: bool, save_directory: str | Path) -> None:
    if push_to_hub:
        raise ConfigError(
            "push_to_hub=True is not supported. Call push_to_hub('ORGANIZATION/NAME'), or upload the saved "
            f"folder with `hf upload ORGANIZATION/NAME {save_directory}`"
        )
