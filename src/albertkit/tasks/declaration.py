"""The attributes that the class of a task declares."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from albertkit.datasets.reader import FORMATS
from albertkit.heads import Output
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
    """The loss: "head" for the loss of the model class, "binary_cross_entropy", "embedding", or a function,
    as a `staticmethod`. The function receives two torch tensors: the logits, (B, K) or (B, T, K) in float32,
    and the `labels` of `labels_of`. It returns the mean loss, a tensor with one element."""
    answer: ClassVar[str] = "label"
    """Column of a record that is compared with `truth`."""
    probability: ClassVar[str | None] = None
    """Column of a record with the probability of the answer, for the calibration in reports, if any."""
    output: ClassVar[Output] = "logits"
    """The output of the model that the task uses."""
    saved_settings: ClassVar[tuple[str, ...]] = ("max_length",)
    """Settings that the config of a fine-tuned model records, so that it is used with the same ones."""
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
