"""Upload a model or a run to a repository on the Hugging Face hub: `push_to_hub`."""

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from albertkit.errors import UploadError, check_arguments
from albertkit.hub import explain

CARD = "README.md"


class UploadOptions(TypedDict, total=False):
    """Options of `push_to_hub`, with the names in `transformers`."""

    commit_message: str | None
    """First line of the commit message. None means "Upload" and a name for the files."""
    commit_description: str | None
    """Other lines of the commit message."""
    private: bool | None
    """Whether a new repository is private. None means the owner's default."""
    token: str | bool | None
    """Hub token. None or True means the saved token."""
    revision: str | None
    """Branch to commit to. None means "main"."""
    create_pr: bool
    """Whether to open a pull request instead of committing to the branch."""


class PushToHub:
    """Adds the method `push_to_hub` to classes that have `save_pretrained`."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        max_shard_size: int | str | None = None,
        tags: Sequence[str] = (),
        **options: Unpack[UploadOptions],
    ) -> str:
        """Upload the files that `save_pretrained` writes to a repository on the hub.

        Files of the repository with other names are not changed.

        Args:
            repo_id: "organization/name", or a name in your account. The repository is created if it does not
                exist.
            max_shard_size: Maximum size of a weights file; see `save_pretrained`. It has no effect for a
                tokenizer or a config.
            tags: Tags to add to the repository's model card, which is created if it does not exist.
            **options: Fields of `albertkit.hub_upload.UploadOptions`.

        Returns:
            The URL of the commit or of the pull request.

        Raises:
            ConfigError: An option is unknown. Nothing was uploaded.
            UploadError: The hub rejected the upload or cannot be reached.
        """
        check_arguments("push_to_hub", options, ["max_shard_size", "tags", *UploadOptions.__annotations__])
        # Tokenizers and configs have no weights.
        accepted = inspect.signature(self.save_pretrained).parameters  # type: ignore[attr-defined]
        has_weights = "max_shard_size" in accepted or "options" in accepted
        sizes = {"max_shard_size": max_shard_size} if has_weights and max_shard_size is not None else {}
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
    """Commit files to a repository on the hub, which is created if it does not exist, and return the URL.

    `files` has a file or its content for each name in the repository.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    token, revision = options.get("token"), options.get("revision")
    api = HfApi(token=token)
    try:
        repository = api.create_repo(repo_id, private=options.get("private"), exist_ok=True).repo_id
        if revision:
            api.create_branch(repository, branch=revision, exist_ok=True)
        if tags:
            tags = [tags] if isinstance(tags, str) else tags
            files = {**files, CARD: _card_with_tags(repository, tags, token, revision)}
        commit = api.create_commit(
            repository,
            [CommitOperationAdd(name, content) for name, content in files.items()],
            commit_message=options.get("commit_message") or "Upload model",
            commit_description=options.get("commit_description"),
            revision=revision,
            create_pr=options.get("create_pr", False),
        )
    except Exception as error:  # errors of the hub, and of its HTTP library
        raise UploadError(f"could not upload to {repo_id!r}: {explain(error)}") from error
    return str(commit.pr_url or commit.commit_url)


def _card_with_tags(repo_id: str, tags: Sequence[str], token: Any, revision: str | None) -> bytes:
    from huggingface_hub import ModelCard, ModelCardData, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        # Not from the cache, which may contain an older card.
        file = hf_hub_download(repo_id, CARD, token=token, revision=revision, force_download=True)
        card: Any = ModelCard.load(file)
    except LocalEntryNotFoundError:  # the hub cannot be reached, so it is unknown whether a card exists
        raise
    except EntryNotFoundError:
        # Not `from_template`, which needs Jinja2.
        card = ModelCard(f"---\n{ModelCardData(library_name='transformers')}\n---\n")
    card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags]))
    return str(card).encode()
