"""A minimal task that classifies texts, its data, and a tiny model. Each test changes a part of the task."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.tasks.label_kinds import CLASS
from albertkit.tasks.labels import LabelSet
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


def tiny_model(vocabulary: Path, folder: Path) -> Path:
    """Save a random model of two layers for a vocabulary, and return its folder."""
    tokenizer = AlbertTokenizer(vocabulary)
    shape = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = AlbertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, initializer_range=0.2, **shape)
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
