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
from albertkit.training.callbacks import Callback, checked_callbacks
from albertkit.training.model_card import PushOptions, pretraining_card
from albertkit.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class PretrainingRun(RunFolder):
    """The result of `pretrain`."""

    folder: Path
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

    def _card(self, repo_id: str, options: PushOptions) -> str:
        figures = {"steps": self.step, "tokens": self.tokens, "minutes of training": round(self.minutes, 1)}
        return pretraining_card(
            self.folder,
            repo_id,
            settings=self.settings,
            figures=figures,
            metrics=self.metrics,
            options=options,
        )

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        state = "finished" if self.finished else "stopped; the same call resumes the run"
        figures = {"run": state, "step": self.step, "tokens": self.tokens, "minutes": round(self.minutes, 1)}
        return figures | self.metrics | {"folder": self.folder}

    def pipeline(self, task: str = "fill-mask", **options: Any) -> Any:
        """Return a pipeline of the model.

        Args:
            task: name of the task.
            options: further arguments of `albertkit.pipeline`.
        """
        from albertkit.pipelines import pipeline

        return pipeline(task, str(self.folder), **options)


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
    """Pretrain a model on masked language modeling and sentence order, or resume the run in `output`.

    Ctrl-C stops the run after the current step and writes a checkpoint. The same call resumes the run. On a
    GPU, up to four other processes draw the batches. They import your script, so call this function under
    `if __name__ == "__main__":`.

    Args:
        recipe: TOML file with settings. Other arguments override it. In Python also its content as a dict;
            None for the default settings.
        data: folder with the shards that `albertkit prepare` wrote.
        tokenizer: folder or name of the tokenizer of the shards; it is copied into every checkpoint.
        output: folder of the run. An existing run is resumed.
        device: "auto" (the best available device), "cpu", "cuda", "cuda:1", "mps" and so on.
        callbacks: callbacks that the training loop calls in the main process: at the start of the run, after
            each step, evaluation and checkpoint, and at its end.
        **settings: fields of `PretrainingSettings` and its tables, which override the recipe; `model` is a
            dict of arguments of `AlbertConfig`.

    Returns:
        The run: its folder, its last step, and its metrics.

    Raises:
        MissingExtraError: the extra `train` is not installed.
        DataError: the shards are missing or damaged, or were prepared with another tokenizer.
        ConfigError: a setting is unknown or out of range, or the sizes of the model do not match.
        TrainingError: a run is resumed with other settings or data, the loss keeps diverging, or the outputs
            are constant.
        DiskFullError: the disk has no space left.
    """
    require("torch", extra="train")
    from albertkit.files import full_disk_named
    from albertkit.pretraining.run import run_pretraining
    from albertkit.training.distributed import join_world

    called = checked_callbacks(callbacks)
    chosen = settings_from(PretrainingSettings, recipe, settings)
    output = Path(output)
    with lines_shown(), join_world(device) as world, full_disk_named(output):
        result = run_pretraining(chosen, data, tokenizer, output, world=world, callbacks=called)
        ending = "finished" if result.finished else "stopped (the same command resumes the run)"
        if world.is_main:
            logger.info(
                f"{ending} at step {result.step}, {result.tokens:,} tokens, "
                f"{result.seconds / 60:.1f} minutes of training; model in {output}"
            )
    return PretrainingRun(
        folder=output,
        finished=result.finished,
        step=result.step,
        tokens=result.tokens,
        minutes=result.seconds / 60,
        metrics=result.metrics,
        signal=result.signal,
        settings=asdict(chosen),
    )
