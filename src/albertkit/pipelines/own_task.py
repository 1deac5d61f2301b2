"""The pipeline of a task of your own."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

from albertkit.config import SETTINGS_KEY
from albertkit.datasets.rows import Rows, as_source
from albertkit.engines.light_model import Model
from albertkit.errors import DataError, short
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.recipe import build
from albertkit.tasks.settings import TaskSettings, saved_lengths
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase


class TaskPipeline(Pipeline):
    """Returns the records of a task of your own; `pipeline(MyTask(), model)` creates one."""

    definition: ClassVar[Task]
    reads_lists = keeps_others = True
    no_arguments = " `record` of the task determines the answers."

    @classmethod
    def of(cls, task: Task) -> "type[TaskPipeline]":
        """Return the pipeline class of a task."""
        values = {"definition": task, "task": task.name, "architecture": task.architecture}
        return type(cls.__name__, (cls,), values)

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        settings = build(TaskSettings, {**saved_lengths(model.config)}, where=f"{SETTINGS_KEY} in the config")
        self.bound = self.definition.bind(tokenizer, model.config, settings)

    def __call__(
        self,
        inputs: str | Mapping[str, Any] | Iterable[Any] | Path,
        *others: Any,
        **batching: Unpack[Batching],
    ) -> Any:
        """Predict for examples.

        Args:
            inputs: a row for the task's `example`: a dict, or a text for {"text": ...}; an example of
                the task's class; a list or other iterable of these; a table; or a file.
            others: not accepted: a second positional argument is an error.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            The record of an input; a list or generator of records for several inputs.

        Raises:
            DataError: the task cannot read an input.
            ConfigError: an option is unknown.
        """
        if not isinstance(inputs, str | Mapping | Path) and hasattr(inputs, "columns"):
            table = as_source(inputs, name="inputs")
            inputs = [row.values for row in table] if isinstance(table, Rows) else inputs
        return self._run_task(
            inputs,
            others,
            self.bound,
            lambda example, prediction, cut: self.bound.record(example, prediction) | cut,
            **batching,
        )

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping) or not isinstance(inputs, Iterable | Path)

    def _read(self, given: Any) -> Any:
        if isinstance(given, str):
            given = {"text": given}
        if not isinstance(given, Mapping):
            return given
        try:
            return self.bound.example(given)
        except DataError as error:
            raise DataError(f"the task {self.bound.name} cannot read {short(given)}: {error}") from error
