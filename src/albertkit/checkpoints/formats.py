"""Which format a path leads to, and reading it whatever it is."""

from pathlib import Path
from typing import Unpack

from albertkit.checkpoints import archive, folder, google, julia
from albertkit.checkpoints.checkpoint import Checkpoint, vocabulary_in
from albertkit.checkpoints.names import from_google
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.hub import HubOptions


def locate(name_or_path: str | Path, *, also: tuple[str, ...] = (), **hub: Unpack[HubOptions]) -> Path:
    """The local path of a model: a foreign checkpoint as it was named, else a folder as `folder.locate` says.

    Raises:
        ModelNotFoundError: nothing by that name.
        CheckpointError: a folder holds several checkpoints, and nothing says which is meant.
    """
    path = _as_path(name_or_path)
    is_foreign = path and not hub.get("subfolder") and _is_foreign(path)
    return path if path and is_foreign else folder.locate(name_or_path, also=also, **hub)


def read(path: str | Path, *, needs_config: bool = True) -> Checkpoint:
    """Read a checkpoint of any format from a path that `locate` gave.

    `needs_config` is as in `folder.read_folder`.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: the config describes no possible model.
    """
    path = Path(path)
    if path.suffix in julia.ENDINGS:
        return _read_julia(path)
    if _is_foreign(path):
        return google.read(path)
    config, tensors = folder.read_folder(path, needs_config=needs_config)
    return Checkpoint("hf", config, tensors, folder.weight_files(path), vocabulary_in(path))


def _as_path(name: str | Path) -> Path | None:
    """The path of that name; None where no file can be called so."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError):  # too long, the home of an unknown user, a null character
        return None
    return path


def _is_foreign(path: Path) -> bool:
    """Whether a path leads to a checkpoint of Google's or Julia's; one of Hugging Face's beside it wins."""
    if path.is_file() and path.name.endswith((*julia.ENDINGS, *archive.ENDINGS)):
        return True
    if path.is_dir() and folder.weight_files(path):
        return False
    return google.find(path) is not None


def _read_julia(path: Path) -> Checkpoint:
    """Read a file with the variables `config`, `weights` and `vocab`."""
    variables = julia.load(path)
    config, weights, pieces = (variables.get(name) for name in ("config", "weights", "vocab"))
    if not isinstance(config, dict) or not isinstance(weights, dict):
        raise CheckpointError(
            f"{path} has the variables {', '.join(variables) or 'none'}: expected 'config' and 'weights', "
            "each a Dict, as `BSON.@save path config weights vocab` writes them."
        )
    tensors = {}
    for name, array in weights.items():
        if not hasattr(array, "dtype") or array.dtype.kind not in "fiu":
            raise CheckpointError(f"{path}: weights[{name!r}] is no array of numbers.")
        known = from_google(name)
        tensor = julia.tensor_of(array, is_vector=known is not None and known[1].is_vector)
        tensors[name] = google.in_our_layout(name, tensor)
    values = google.with_labels({name: one for name, one in config.items() if name != "filename"}, tensors)
    lines = [line for line in pieces if isinstance(line, str)] if isinstance(pieces, list) else []
    return Checkpoint("julia", AlbertConfig.from_google_dict(values).to_dict(), tensors, [path], pieces=lines)
