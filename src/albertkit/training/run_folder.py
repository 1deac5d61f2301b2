"""The folder of a run as a result: its curves, its metrics, and the upload of its model."""

from abc import abstractmethod
from pathlib import Path
from typing import Any

from albertkit.errors import check_arguments
from albertkit.hub import MODULES_FILE, read_modules
from albertkit.hub_upload import CARD, UploadOptions, upload
from albertkit.results import Result
from albertkit.training.model_card import CardOptions, PushOptions
from albertkit.training.progress import read_metrics

_UPLOADED = (".safetensors", ".json", ".model", ".vocab", ".txt", ".png")
_NOT_UPLOADED = {"report.json", "seeds.json"}  # they contain local paths


class RunFolder(Result):
    """Base class of the results of `pretrain` and `finetune`."""

    folder: Path
    """Folder of the run."""

    @property
    def history(self) -> list[dict[str, float]]:
        """The logged metrics of the run, oldest first: the lines of `metrics.jsonl`."""
        return read_metrics(self.folder)

    def picture(self) -> Path:
        """Return the image of the curves."""
        return self.folder / "curves.png"

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model and its tokenizer to the hub, with a model card.

        Checkpoints, logs, reports and predictions are not uploaded: they may hold texts of the data. The
        README.md of an existing repository is replaced.

        Args:
            repo_id: "organization/name", or a name of your own account; created if it does not exist.
            options: fields of `CardOptions` (`license`, `language`, `datasets`, `base_model`, `limitations`)
                and of `UploadOptions` (`commit_message`, `commit_description`, `private`, `token`,
                `revision`, `create_pr`).

        Returns:
            The URL of the commit or of the pull request.
        """
        upload_options = UploadOptions.__annotations__
        check_arguments("push_to_hub", options, [*upload_options, *CardOptions.__annotations__])
        card = self._card(repo_id, PushOptions(**options))
        folder = self.folder
        paths = [path for path in folder.glob("*") if path.suffix in _UPLOADED and path.is_file()]
        if (folder / MODULES_FILE).is_file():  # of sentence-transformers
            paths += [
                path for _, module in read_modules(folder) if module for path in (folder / module).glob("*")
            ]
        files: dict[str, Path | bytes] = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(paths)
            if path.name not in _NOT_UPLOADED
        }
        chosen: Any = {name: value for name, value in options.items() if name in upload_options}
        chosen["commit_message"] = chosen.get("commit_message") or "Upload model, tokenizer and model card"
        return upload(files | {CARD: card.encode()}, repo_id, **chosen)

    @abstractmethod
    def _card(self, repo_id: str, options: PushOptions) -> str:
        """Return the model card."""
