"""A task with its model, which predicts for lists of examples in any process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from albertkit.datasets.reader import is_missing
from albertkit.devices import CPU, Device, read_device
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import LightModel, Model
from albertkit.errors import DataError
from albertkit.files import finite, json_text
from albertkit.finetuning.prediction_files import SCORE_PREFIX, SCORES
from albertkit.tasks.rows import UnknownTokens, tokens_cut
from albertkit.tasks.task import Task
from albertkit.text_files import lone_surrogate


@dataclass(frozen=True)
class Asked:
    """An example with the input values that its prediction repeats."""

    example: Any
    row: int
    """The number of the example's row in the input, from 1."""
    id: str | None = None
    """The id in the input, if there is one."""
    kept: dict[str, Any] = field(default_factory=dict)
    """The kept columns of the input."""
    problem: str | None = None
    """The reason why the example has no prediction."""

    def beside(self, prediction: dict[str, Any]) -> dict[str, Any]:
        """Return the columns before the prediction's; columns with the same names are renamed input_NAME."""
        found: dict[str, Any] = {"row": self.row}
        if self.id is not None:
            found["id"] = self.id
        taken = {*found, *prediction, SCORES, "cut", "problem"}
        for name, value in self.kept.items():
            new = name
            while new in taken or new.startswith(SCORE_PREFIX) or (new != name and new in self.kept):
                new = f"input_{new}"
            found[new] = None if is_missing(value) and not isinstance(value, str) else finite(value)
        return found


@dataclass
class Predictor:
    """A task with its model. It can be pickled for other processes."""

    task: Task
    model: Model
    batch_tokens: int | None = None
    """Maximum number of tokens per batch; None for a default that suits the device."""
    engine: str = "auto"
    """One of `engines.choosing.ENGINES`."""
    _has_warned: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_computing"}

    @cached_property
    def _computing(self) -> Engine:
        return make_engine(self.model, self.engine)

    def to(self, device: Device) -> "Predictor":
        """Move the model to a device before predicting; a light model stays on the CPU."""
        device = read_device(device)
        if device != CPU or not isinstance(self.model, LightModel):
            self.model.to(device)
        return self

    def __call__(self, asked: Sequence[Asked]) -> str:
        """Return one line of JSON per example.

        Raises:
            DataError: a value contains a lone surrogate. See also `records`.
        """
        lines = []
        for record in self.records(asked):
            lines.append(json_text(record, default=str) + "\n")
            text = json_text(record, default=str, ensure_ascii=False) if "\\ud" in lines[-1] else ""
            if lone := lone_surrogate(text):
                raise DataError(
                    f"row {record['row']}: the prediction contains {lone}, a lone surrogate, which no file "
                    "can contain. Correct the input or the `record` of the task."
                )
        return "".join(lines)

    def records(self, asked: Sequence[Asked]) -> list[dict[str, Any]]:
        """Return the columns of each prediction; `cut` is the number of removed tokens.

        An example without text has None in the columns of the prediction, and a column `problem`.

        Raises:
            DataError: the examples are of another kind than those that the model was fine-tuned on.
        """
        examples = [one.example for one in asked]
        self.task.check_fit(examples)
        rows = self.task.checked_features(examples)
        unknown = UnknownTokens(self.task.tokenizer)
        if not self._has_warned:  # once per process
            unknown.add(rows, count=len(examples))
            self._has_warned = unknown.warn()
        with_tokens = {row.example for row in rows if unknown.has_text(row)}
        outputs = self.task.run(self._computing, rows, batch_tokens=self.batch_tokens)
        predictions = self.task.checked_predictions(examples, rows, outputs)
        records = []
        for number, (one, prediction) in enumerate(zip(asked, predictions, strict=True)):
            record = self.task.checked_record(one.example, prediction)
            problem = one.problem or (None if number in with_tokens else "no tokens")
            if problem:
                record = {
                    name: dict.fromkeys(value) if isinstance(value, dict) else None
                    for name, value in record.items()
                }
            records.append(one.beside(record) | record | ({"problem": problem} if problem else {}))
        if self.task.cuts:  # then every example has the number of removed tokens
            for record, cut in zip(records, tokens_cut(rows, examples=len(records)), strict=True):
                record["cut"] = cut
        return records
