"""The folder of a run as a result: its curves, its metrics, and the upload of its model."""

from abc import abstractmethod
from pathlib import Path
from typing import Any

from albertkit.results import Result
from albertkit.training.curves import read_metrics
from albertkit.training.model_card import PushOptions, check_push_options, push_run


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

        Raises:
            ConfigError: an unknown argument.
            TrainingError: a fine-tuning run is not finished.
            UploadError: the hub refused the upload or cannot be reached.
        """
        chosen = check_push_options(options)
        return push_run(self.folder, repo_id, self._card(repo_id, chosen), chosen)

    @abstractmethod
    def _card(self, repo_id: str, options: PushOptions) -> str:
        """Return the model card."""
