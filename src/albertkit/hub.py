"""From the name of a model to a local folder: the bundled model, a folder, or the Hugging Face hub.

Every way of failing ends in a ModelNotFoundError that says what was received, what was tried and what to do.
"""

import difflib
import importlib.resources
import re
from fnmatch import fnmatch
from pathlib import Path

from albertkit.errors import ModelNotFoundError
from albertkit.files import contents, model_folders
from albertkit.published import REPOSITORIES

BUNDLED = "bundled"
"""The name of the model that is installed with albertkit. `./bundled` is a folder of that name."""

# Never a hub name: rooted, relative to here or to home, with a Windows drive or separator, with a trailing
# slash, or of three parts.
_PATH_LIKE = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|.*\\|.*/$|.*/.*/")


def resolve(
    name_or_folder: str | Path,
    *,
    patterns: tuple[str, ...],
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    subfolder: str = "",
) -> Path:
    """The local folder of a model, downloaded into the hub's cache where that is needed.

    Args:
        name_or_folder: "bundled"; a folder (it wins over a hub name that reads the same); one of
            `published.REPOSITORIES`;
            or a hub name "organization/model".
        patterns: names of the files wanted, as globs ("config.json", "model*.safetensors"). Only these are
            downloaded, and the folder must hold at least one of them.
        revision: branch, tag or commit on the hub.
        cache_dir: where downloads are kept, instead of the hub's own cache.
        token: a hub token; True for the saved one, False for none, None for the saved one where there is one.
        local_files_only: never ask the hub, use what an earlier call downloaded. The environment variable
            HF_HUB_OFFLINE=1 does the same for the whole process.
        subfolder: folder within the folder or the repository, such as "checkpoint-500".

    Raises:
        ModelNotFoundError: nothing by that name, or nothing in it that was asked for.
    """
    if name_or_folder == BUNDLED:
        folder = Path(str(importlib.resources.files("albertkit"))) / "assets" / "bundled"
        if not folder.is_dir():
            raise ModelNotFoundError(
                f"This installation of albertkit has no bundled model: there is no folder {folder}. "
                "Reinstall the package, or give a model by folder or hub name."
            )
    else:
        folder = _local(name_or_folder)
        if folder is None:
            repository = _repository(name_or_folder)
            wanted = tuple(f"{subfolder}/{pattern}" for pattern in patterns) if subfolder else patterns
            folder = _download(repository, wanted, revision, cache_dir, token, local_files_only)
    if subfolder:
        if not (folder / subfolder).resolve().is_relative_to(folder.resolve()):
            raise ModelNotFoundError(f"subfolder {subfolder!r} leads out of {str(name_or_folder)!r}.")
        if not (folder / subfolder).is_dir():
            raise ModelNotFoundError(
                f"{str(name_or_folder)!r} has no folder {subfolder!r}: {folder} {contents(folder)}."
            )
        folder = folder / subfolder
    _require_one_of(patterns, folder, name_or_folder)
    return folder


def _local(name: str | Path) -> Path | None:
    """The local folder `name`, or None where a string may yet be the name of a hub repository."""
    try:
        path = Path(name).expanduser()
        if name and path.is_dir():
            return path
        is_file = path.is_file()
    except (OSError, RuntimeError) as error:  # too long, not readable, the home of an unknown user
        raise ModelNotFoundError(f"{str(name)!r} is no name of a model: {error}.") from error
    if name and is_file:
        raise ModelNotFoundError(f"{str(name)!r} is a file: expected the folder of a model, which holds it.")
    if isinstance(name, Path) or not name or _PATH_LIKE.match(name):
        raise ModelNotFoundError(
            f"There is no folder {str(name)!r} (looked for {path.absolute()}). "
            "Check the path, or give a hub name like 'organization/model'."
        )
    return None


def _repository(name: str | Path) -> str:
    """The hub repository meant by `name`, which is no folder."""
    name = str(name)
    if "/" in name:
        return name
    if name in REPOSITORIES:
        return REPOSITORIES[name]
    near = difflib.get_close_matches(name, [BUNDLED, *REPOSITORIES], n=1)
    raise ModelNotFoundError(
        f"There is no model {name!r}: no folder of that name in {Path.cwd()}, and it is not one of the "
        f"published names ({', '.join([BUNDLED, *REPOSITORIES])}). "
        + (f"Did you mean {near[0]!r}? " if near else "")
        + "Other models on the hub are named 'organization/model'."
    )


def _require_one_of(patterns: tuple[str, ...], folder: Path, name: str | Path) -> None:
    """Refuse a folder with none of the files asked for; hidden ones (half-written) do not count."""
    files = (child.name for child in folder.iterdir() if child.is_file() and not child.name.startswith("."))
    if any(fnmatch(file, pattern) for file in files for pattern in patterns):
        return
    models = model_folders(folder)
    raise ModelNotFoundError(
        f"{str(name)!r} is not the folder of one model: expected {' or '.join(patterns)} in {folder}, "
        f"which {contents(folder)}."
        + (f" It has models in sub-folders; give one of them: {', '.join(models)}." if models else "")
    )


def _download(
    repository: str,
    patterns: tuple[str, ...],
    revision: str | None,
    cache_dir: str | Path | None,
    token: str | bool | None,
    local_files_only: bool,
) -> Path:
    from huggingface_hub import snapshot_download  # half a second: only who names a hub model pays it

    try:
        folder = snapshot_download(
            repository,
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            allow_patterns=list(patterns),
        )
    except Exception as error:  # the hub's own errors, its HTTP library's (which changed), the file system's
        wanted = repr(repository) + (f" at revision {revision!r}" if revision else "")
        raise ModelNotFoundError(
            f"Could not get the model {wanted}: {_explain(error, revision, local_files_only)} "
            f"(Tried: a local folder in {Path.cwd()}, then the hub, for {', '.join(patterns)}. "
            f"Its answer: {_first_line(error)})"
        ) from error
    if not Path(folder).is_dir():  # the library names a folder that it had nothing to put into
        raise ModelNotFoundError(
            f"The repository {repository!r} on the hub is no model for albertkit: expected "
            f"{' or '.join(patterns)}, and it has none of them."
        )
    return Path(folder)


def _explain(error: Exception, revision: str | None, local_files_only: bool) -> str:
    """What a failed download means and what to do about it."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, HFValidationError):
        return "that is no hub name. Expected 'organization/model' of letters, digits, '-', '_' and '.'."
    if isinstance(error, GatedRepoError):
        return "its owners ask for consent. Accept their terms on the model's page, then pass token=..."
    if isinstance(error, RevisionNotFoundError):
        return f"the repository has no branch, tag or commit {revision!r}. Leave revision out for the newest."
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such repository, or it is private. Check the spelling, or pass token=..."
    if isinstance(error, HfHubHTTPError) and error.response is not None and error.response.status_code == 401:
        return "the hub refused the token. Pass a valid token=..., or token=False for a public model."
    if local_files_only or constants.HF_HUB_OFFLINE:
        switch = "local_files_only=True" if local_files_only else "HF_HUB_OFFLINE=1"
        return (
            f"{switch} forbids downloads and the cache does not hold the files asked for. "
            "Load it once while online, or give a local folder."
        )
    if isinstance(error, LocalEntryNotFoundError):
        return (
            f"the hub at {constants.ENDPOINT} cannot be used and the cache does not hold the files asked "
            "for. Check the network connection, or give a local folder."
        )
    return "the download failed. Try again; what has arrived is kept."


def _first_line(error: Exception) -> str:
    text = str(error).strip() or repr(error)
    return f"{type(error).__name__}: {text.splitlines()[0]}"
