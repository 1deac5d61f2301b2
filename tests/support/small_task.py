"""A minimal task that classifies texts, its data, and a tiny model. Each test changes a part of the task."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from random_models import TWO_LAYERS, save_random_model

from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.labels import CLASS, LabelSet
from albertkit.tasks.rows import text_rows
from albertkit.tasks.task import Task
from albertkit.tokenization.tokenizer import AlbertTokenizer

ROWS = [{"text": f"the {word} was {mark}", "label": label}
        for mark, label in (("lost", "bad"), ("painted", "good"))
        for word in ("river", "house", "key", "harbour", "letter")]  # fmt: skip
FAST: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "precision": "fp32"}


class Small(Task[TextExample, Row, str]):
    name = "small"
    architecture = "AlbertForSequenceClassification"
    metrics = {"error": "lower"}  # noqa: RUF012

    def example(self, row: Any) -> TextExample:
        return TextExample(row["text"], label=row.get("label"))

    def find_labels(self, examples: Sequence[TextExample], *_: Any) -> LabelSet:
        return LabelSet(CLASS, tuple(sorted({example.label for example in examples})))  # type: ignore[type-var]

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        texts = [example.text for example in examples]
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=True)
        pairs = zip(rows, examples, strict=True)
        return [replace(row, labels=self.labels.ids.get(example.label)) for row, example in pairs]

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        return {"labels": np.array([row.labels for row in rows], np.int64)}

    def predictions(self, examples: Any, rows: Any, outputs: Sequence[np.ndarray]) -> list[str]:
        return [self.labels.names[int(logits.argmax())] for logits in outputs]

    def record(self, example: TextExample, prediction: str) -> dict[str, Any]:
        return {"label": prediction}

    def truth(self, example: TextExample) -> Any:
        return example.label

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[str]) -> dict[str, Any]:
        pairs = zip(examples, predictions, strict=True)
        return {"error": sum(example.label != answer for example, answer in pairs) / len(examples)}


def changed(**attributes: Any) -> type[Small]:
    """Return a subclass of the task with other attributes."""
    return type("Changed", (Small,), attributes)


def train(task: Any, model: Path, output: Path, **changes: Any) -> FinetuningRun:
    """Fine-tune a model for two steps on the data of the task. `changes` override the settings."""
    settings = {"train": ROWS, "validation": ROWS, "steps": 2, **FAST, **changes}
    return finetune(task, model=model, output=output, **settings)


def scores_of(task: Task, *, true: Any = "good", predicted: Any = "bad") -> dict[str, float]:
    """Return the scores of a task for an example with a true and a predicted answer."""
    return task.measure([TextExample("the river", label=true)], [predicted])


def tiny_model(
    vocabulary: Path, folder: Path, model_class: type[AlbertPreTrainedModel] = AlbertForPreTraining
) -> Path:
    """Save a random model of two layers and 512 positions for a vocabulary, and return its folder."""
    sizes = TWO_LAYERS | {"max_position_embeddings": 512}
    return save_random_model(model_class, AlbertTokenizer(vocabulary), folder, **sizes)
