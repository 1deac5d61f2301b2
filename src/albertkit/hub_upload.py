"""From a model or a run to a repository on the Hugging Face hub: `push_to_hub`."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, Unpack

from albertkit.errors import UploadError

CARD = "README.md"


class UploadOptions(TypedDict, total=False):
    """Where and how `push_to_hub` uploads; the names are those of `transformers`."""

    commit_message: str | None
    """First line of the commit; None for "Upload" and what is uploaded."""
    commit_description: str | None
    """Further lines of the commit."""
    private: bool | None
    """Whether a new repository is private; None for the owner's default."""
    token: str | bool | None
    """A token of the hub; None or True for the saved token."""
    revision: str | None
    """Branch to commit to; None for "main"."""
    create_pr: bool
    """Open a pull request instead of committing to the branch."""


class PushToHub:
    """The method `push_to_hub` of what has `save_pretrained`."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        max_shard_size: int | str | None = None,
        tags: Sequence[str] = (),
        **options: Unpack[UploadOptions],
    ) -> str:
        """Upload the files that `save_pretrained` writes to a repository on the hub.

        Files of the repository that have other names stay as they are.

        Args:
            repo_id: "organization/name", or a name of your own account; created if it does not exist.
            max_shard_size: of a model, the maximum size of a file; see `save_pretrained`.
            tags: added to the model card of the repository; it gets a card if it has none.
            **options: fields of `albertkit.hub_upload.UploadOptions`.

        Returns:
            The URL of the commit or of the pull request.

        Raises:
            UploadError: the hub refused the upload or cannot be reached.
        """
        sizes = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, **sizes)  # type: ignore[attr-defined]
            files: dict[str, Path | bytes] = {
                path.relative_to(folder).as_posix(): path
                for path in sorted(Path(folder).rglob("*"))
                if path.is_file()
            }
            options["commit_message"] = options.get("commit_message") or f"Upload {type(self).__name__}"
            return upload(files, repo_id, tags=tags, **options)


def upload(
    files: Mapping[str, Path | bytes],
    repo_id: str,
    *,
    tags: Sequence[str] = (),
    **options: Unpack[UploadOptions],
) -> str:
    """Commit files to a repository on the hub, which is created if it does not exist.

    Args:
        files: name in the repository -> file or content.
        repo_id: "organization/name", or a name of your own account.
        tags: added to the model card of the repository.
        **options: fields of `UploadOptions`.

    Returns:
        The URL of the commit or of the pull request.

    Raises:
        UploadError: the hub refused the upload or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    token, revision = options.get("token"), options.get("revision")
    api = HfApi(token=token)
    try:
        repository = api.create_repo(repo_id, private=options.get("private"), exist_ok=True).repo_id
        if revision:
            api.create_branch(repository, branch=revision, exist_ok=True)
        if tags:
            files = {**files, CARD: _card_with_tags(repository, tags, token, revision)}
        commit = api.create_commit(
            repository,
            [CommitOperationAdd(name, content) for name, content in files.items()],
            commit_message=options.get("commit_message") or "Upload model",
            commit_description=options.get("commit_description"),
            revision=revision,
            create_pr=options.get("create_pr", False),
        )
    except Exception as error:  # the hub's own errors, and those of its HTTP library
        raise UploadError(f"could not upload to {repo_id!r}: {_explain(error)}") from error
    return str(commit.pr_url or commit.commit_url)


def _card_with_tags(repo_id: str, tags: Sequence[str], token: Any, revision: str | None) -> bytes:
    """Return the model card of a repository with tags added."""
    from huggingface_hub import ModelCard, ModelCardData, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    # Not `from_template`, which needs Jinja2.
    card: Any = ModelCard(f"---\n{ModelCardData(library_name='transformers')}\n---\n")
    with suppress(EntryNotFoundError):
        card = ModelCard.load(hf_hub_download(repo_id, CARD, token=token, revision=revision))
    card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags]))
    return str(card).encode()


def _explain(error: Exception) -> str:
    """Say what a failed upload means and what to do about it."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    first = (str(error).strip() or repr(error)).splitlines()[0]
    if isinstance(error, HFValidationError):
        return f"expected 'organization/name' of letters, digits, '-', '_' and '.'. ({first})"
    if constants.HF_HUB_OFFLINE or isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE=1 forbids it. Unset the variable."
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        if error.response.status_code == 401:
            return f"the hub knows no user of this token. Run `hf auth login`, or pass token=... ({first})"
        if error.response.status_code == 403:
            return f"this token may not write there. Pass one with write access. ({first})"
    return f"{type(error).__name__}: {first}"
