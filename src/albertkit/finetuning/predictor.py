"""What predicts: a task with its model, for any list of examples, in any process."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from albertkit.devices import CPU, Device, read_device
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine, Row
from albertkit.engines.light_model import LightModel, Model
from albertkit.errors import UnknownTokensWarning
from albertkit.files import finite, json_text
from albertkit.finetuning.prediction_files import SCORE_PREFIX
from albertkit.tasks.rows import UnknownTokens
from albertkit.tasks.task import Task


@dataclass(frozen=True)
class Asked:
    """An example with what stands beside its prediction."""

    example: Any
    row: int
    """The number of its row in the input, from 1."""
    id: str | None = None
    """The name that the input gives it."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Columns of the input."""

    def beside(self, prediction: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to the left of a prediction's; those of the same names are called input_NAME."""
        found: dict[str, Any] = {"row": self.row}
        if self.id is not None:
            found["id"] = self.id
        for name, value in self.kept.items():
            while name in found or name in prediction or name == "cut" or name.startswith(SCORE_PREFIX):
                name = f"input_{name}"
            found[name] = finite(value)
        return found


@dataclass(frozen=True)
class Predictor:
    """A task with its model. It can be pickled, so other processes can have it."""

    task: Task
    model: Model
    batch_tokens: int | None = None
    """Maximum number of tokens computed at once; None for a default that suits the device."""
    engine: str = "auto"
    """One of `engines.choosing.ENGINES`."""
    _warnings: list[str] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_computing"}

    @cached_property
    def _computing(self) -> Engine:
        return make_engine(self.model, self.engine)

    def to(self, device: Device) -> "Predictor":
        """Move the model to a device, before anything is predicted; a light model is on the CPU."""
        device = read_device(device)
        if device != CPU or not isinstance(self.model, LightModel):
            self.model.to(device)
        return self

    def __call__(self, asked: Sequence[Asked]) -> str:
        """Return a line of JSON for each example."""
        return "".join(json_text(record, default=str) + "\n" for record in self.records(asked))

    def records(self, asked: Sequence[Asked]) -> list[dict[str, Any]]:
        """Return the columns of each prediction; `cut` is the number of its tokens that were dropped.

        Raises:
            DataError: examples of another kind than those the model was fine-tuned on.
        """
        examples = [one.example for one in asked]
        self.task.check_fit(examples)
        rows = self.task.features(examples)
        self._warn_of_unknown(rows, len(examples))
        outputs = self.task.run(self._computing, rows, batch_tokens=self.batch_tokens)
        predictions = self.task.predictions(examples, rows, outputs)
        records = []
        for one, prediction in zip(asked, predictions, strict=True):
            record = self.task.record(one.example, prediction)
            records.append(one.beside(record) | record)
        if self.task.cuts:  # then it says of each example how much
            for record in records:
                record["cut"] = 0
            for row in rows:
                records[row.example]["cut"] = max(records[row.example]["cut"], row.cut)
        return records

    def _warn_of_unknown(self, rows: Sequence[Row], count: int) -> None:
        """Warn of texts that the vocabulary does not cover, once in a process."""
        if self._warnings:
            return
        unknown = UnknownTokens(self.task.tokenizer)
        unknown.add(rows, count=count)
        if note := unknown.note():
            self._warnings.append(note)
            warnings.warn(note, UnknownTokensWarning, stacklevel=3)
