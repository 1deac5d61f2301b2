"""Pretrain a model on prepared shards: `pretrain`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from albertkit.extras import require
from albertkit.logs import lines_shown
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.recipe import settings_from, takes_settings
from albertkit.results import Result
from albertkit.training.callbacks import Callback, checked_callbacks
from albertkit.training.curves import read_metrics
from albertkit.training.model_card import check_push_options, pretraining_card, push_run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class PretrainingRun(Result):
    """The result of `pretrain`."""

    output: Path
    """Folder of the model and of its checkpoints."""
    finished: bool
    """False if time or a signal stopped the run; the same call resumes it."""
    step: int
    """Number of optimizer steps."""
    tokens: int
    """Tokens seen, without padding."""
    minutes: float
    """Time spent in training."""
    metrics: dict[str, float]
    """Metrics on the held-out text, of the last evaluation; with `early_stopping`, of the best one."""
    signal: int | None = None
    """Number of the signal that stopped the run."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the run, as tables of a recipe."""

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model and its tokenizer to the hub, with a model card written from its figures.

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
            UploadError: the hub refused the upload or cannot be reached.
        """
        chosen = check_push_options(options)
        figures = {"steps": self.step, "tokens": self.tokens, "minutes of training": round(self.minutes, 1)}
        card = pretraining_card(
            self.output,
            repo_id,
            settings=self.settings,
            figures=figures,
            metrics=self.metrics,
            options=chosen,
        )
        return push_run(self.output, repo_id, card, chosen)

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        state = "finished" if self.finished else "stopped; the same call resumes the run"
        figures = {"run": state, "step": self.step, "tokens": self.tokens, "minutes": round(self.minutes, 1)}
        return figures | self.metrics | {"output": self.output}

    @property
    def history(self) -> list[dict[str, float]]:
        """The logged metrics of the run, oldest first: the lines of `metrics.jsonl`."""
        return read_metrics(self.output)

    def picture(self) -> Path:
        """Return the image of the curves."""
        return self.output / "curves.png"

    def pipeline(self, task: str = "fill-mask", **options: Any) -> Any:
        """Return a pipeline of the model.

        Args:
            task: name of the task.
            options: further arguments of `albertkit.pipeline`.
        """
        from albertkit.pipelines import pipeline

        return pipeline(task, str(self.output), **options)


@takes_settings(PretrainingSettings)
def pretrain(
    recipe: str | Path | Mapping[str, Any] | PretrainingSettings | None = None,
    *,
    data: str | Path,
    tokenizer: str | Path,
    output: str | Path,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> PretrainingRun:
    """Pretrain on masked language modeling and sentence order, or continue the run in `output`.

    Ctrl-C stops after the current step and writes a checkpoint; the same call continues from there. On a GPU,
    a second process draws the examples. It imports your script, so call this function under
    `if __name__ == "__main__":`.

    Args:
        recipe: TOML file of settings, or its content; None for the default settings.
        data: folder of the shards that `prepare` wrote.
        tokenizer: folder or name of the tokenizer of the shards; it is copied into every checkpoint.
        output: folder of the run.
        device: "auto" (the best available device), "cpu", "cuda", "cuda:1", "mps" and so on.
        callbacks: called in the main process during the run: at its start, steps, evaluations, checkpoints
            and end.
        **settings: fields of `PretrainingSettings` and its tables, which override the recipe; `model` is a
            dict of arguments of `AlbertConfig`.

    Raises:
        MissingExtraError: the extra `train` is not installed.
        DataError: the shards are missing, damaged or were made with another tokenizer.
        ConfigError: a setting is unknown or out of range, or the shape is impossible.
        TrainingError: a run is resumed with other settings or data, losses stay bad, or outputs are constant.
    """
    require("torch", extra="train")
    from albertkit.files import full_disk_named
    from albertkit.pretraining.run import pretrain as run
    from albertkit.training.distributed import join_world

    called = checked_callbacks(callbacks)
    chosen = settings_from(PretrainingSettings, recipe, settings)
    output = Path(output)
    with lines_shown(), join_world(device) as world, full_disk_named(output):
        result = run(chosen, data, tokenizer, output, world=world, callbacks=called)
        state = result.state
        ending = "finished" if result.finished else "stopped (the same command resumes the run)"
        if world.is_main:
            logger.info(
                f"{ending} at step {state.step}, {state.tokens:,} tokens, {state.seconds / 60:.1f} minutes "
                f"of training; model in {output}"
            )
    return PretrainingRun(
        *(output, result.finished, state.step, state.tokens, state.seconds / 60, result.metrics),
        *(result.signal, asdict(chosen)),
    )
