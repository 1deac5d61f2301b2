"""What predicts: a task with its model, for any list of examples, in any process."""

from dataclasses import dataclass
from typing import Any

import torch

from albertkit.config import AlbertConfig
from albertkit.engines.choosing import make_engine
from albertkit.files import json_text
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.task import Task


@dataclass(frozen=True)
class Predictor:
    """A task with its model. It can be pickled, so other processes can have it."""

    labelled: LabelledTask
    task: Task
    model: AlbertPreTrainedModel
    config: AlbertConfig
    batch_tokens: int | None = None
    """Most tokens computed at once; None for what suits the device."""
    backend: str = "auto"
    """One of `engines.choosing.ENGINES`."""

    def to(self, device: torch.device) -> "Predictor":
        """Move the model to a device."""
        self.model.to(device)
        return self

    def __call__(self, examples: list[Any]) -> str:
        """Return a line of JSON for each example; `cut` are the tokens of it that were not read.

        Raises:
            DataError: examples of another kind than those the model was fine-tuned on.
        """
        self.labelled.check_fit(examples, self.config)
        rows = self.task.features(examples)
        outputs = self.task.run(make_engine(self.model, self.backend), rows, batch_tokens=self.batch_tokens)
        predictions = self.task.predictions(examples, rows, outputs)
        records = [
            self.labelled.record(example, prediction, self.config)
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        if getattr(self.task, "truncation", False):  # a task that cuts says of each example how much
            for record in records:
                record["cut"] = 0
            for row in rows:
                records[row.example]["cut"] = max(records[row.example]["cut"], row.cut)
        return "".join(json_text(record) + "\n" for record in records)
