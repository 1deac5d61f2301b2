"""The attributes that the class of a task declares."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from albertkit.datasets.reader import FORMATS
from albertkit.errors import ConfigError, did_you_mean, short
from albertkit.heads import HEADS, Output, scores_of
from albertkit.tasks.measuring import Direction


class TaskDeclaration:
    """The class attributes of a task. All except `name` and `architecture` have defaults."""

    name: ClassVar[str]
    """Name of the task, for reports and `config.json`."""
    architecture: ClassVar[str]
    """Name of the model class."""
    metrics: ClassVar[Mapping[str, Direction]] = {}
    """All metrics that can select the best model. Some apply only to some data."""
    objective: ClassVar[str | Callable[..., Any]] = "head"
    """The loss: "head" for the loss of the model class, "binary_cross_entropy", "embedding", or a function: a
    method of the task, or `staticmethod(function)`. The function receives two torch tensors: the logits,
    (B, K) or (B, T, K) in float32, and the `labels` of `labels_of`. It returns the mean loss, a tensor with
    one element."""
    answer: ClassVar[str] = "label"
    """Column of a record that is compared with `truth`."""
    probability: str | None = None
    """Column of a record with the probability of the answer, for the calibration in reports, if any."""
    example_class: ClassVar[type | None] = None
    """The class of the examples. If it is set, examples in memory must be objects of this class."""
    output: ClassVar[Output] = "logits"
    """The output of the model that the task uses."""
    saved_settings: ClassVar[tuple[str, ...]] = ("max_length",)
    """Lengths in `TaskSettings` that the config of a fine-tuned model records, so that it is used with the
    same ones."""
    training_multiple: ClassVar[int] = 8
    """Training batches are padded to a multiple of this number of tokens. In bfloat16, CPUs keep memory for
    each shape of a batch, so fewer shapes need less memory."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Prefixes of parameters that the task does not use. They are not trained, and may be missing."""
    for_predictions: ClassVar[tuple[str, ...]] = ()
    """Lists of a row that only predictions need. Training removes them to save memory."""
    reads_windows: ClassVar[bool] = False
    """Whether long texts are read in windows, so that none is truncated or raises an error."""
    may_lack_room: ClassVar[bool] = False
    """Whether examples may be too long even if texts are truncated."""
    skips_unlabeled: ClassVar[bool] = False
    """Whether training skips rows without labels. Otherwise they raise an error."""
    table_formats: ClassVar[tuple[str, ...]] = FORMATS
    """Extensions of files that the task reads as tables."""
    axes: ClassVar[tuple[str, str]] = ("true", "predicted")
    """Labels of the x and the y axis in plots of predicted numbers."""

    @property
    def objective_name(self) -> str:
        """The name of the objective; for a function, its qualified name."""
        if isinstance(self.objective, str):
            return self.objective
        return getattr(self.objective, "__qualname__", type(self.objective).__qualname__)

    def check_declaration(self) -> None:
        """Check the attributes that the class of the task declares.

        Raises:
            ConfigError: the class has no name or architecture, or one that cannot be; or `metrics` is not a
                mapping from names to "higher" or "lower".
        """
        title = type(self).__name__
        for attribute, example in (("name", "my-task"), ("architecture", "AlbertForSequenceClassification")):
            value = getattr(self, attribute, None)
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"{title} has no {attribute}. Expected an attribute such as {attribute} = {example!r}."
                )
        self._check_architecture()
        metrics: Any = self.metrics
        is_valid = isinstance(metrics, Mapping) and all(
            isinstance(name, str) and way in ("higher", "lower") for name, way in metrics.items()
        )
        if not metrics or not is_valid:
            raise ConfigError(
                f"the metrics of {self.name} are {short(metrics)}. Expected a mapping from the name of each "
                "metric to 'higher' or 'lower', the values that are better, and at least one metric. Set "
                'metrics = directions("accuracy", lower=["error"]).'
            )

    def _check_architecture(self) -> None:
        usable = [
            name
            for name, head in HEADS.items()
            if self.output in head.scores and head.scores[self.output].width != "V"
        ]
        if self.architecture not in HEADS:
            why = f"which is not a model class{did_you_mean(self.architecture, usable)}"
        elif (scores := scores_of(self.architecture, self.output)) is None:
            why = f"which computes no {self.output}"
        elif scores.width == "V":
            why = "whose scores are those of the words of the vocabulary"
        else:
            return
        raise ConfigError(
            f"the architecture of {self.name} is {self.architecture!r}, {why}. Expected one of "
            f"{', '.join(usable)}. Set `architecture` of the task to one of them."
        )
