"""Define a task of your own: any number of labels for each word. docs/how-to/own-task.md explains it.

python examples/own_task.py
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from albertkit import SEVERAL, LabelSet, Metric, Row, Task, directions, evaluate, finetune, pipeline, predict

Labels = list[list[str]]  # of the words of a sentence
IGNORED = -100.0  # the loss leaves out tokens with this label
KINDS = {"apple": ["food", "plant"], "bread": ["food"], "roses": ["plant"], "the": [], "ships": []}


@dataclass(frozen=True)
class Sentence:
    words: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...] | None = None  # of each word, in alphabetical order


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceRow(Row):
    first: dict[int, int]  # the first token of each word; a control character has no token


class SeveralTags(Task[Sentence, SentenceRow, Labels]):
    """Any number of labels for each word."""

    name = "several-tags"
    architecture = "AlbertForTokenClassification"
    objective = "binary_cross_entropy"
    metrics = directions("exact")
    answer = "labels"

    def example(self, row: Mapping[str, Any]) -> Sentence:
        labels = tuple(tuple(sorted(names)) for names in row["labels"]) if "labels" in row else None
        return Sentence(tuple(row["words"]), labels)

    def find_labels(self, examples: Sequence[Sentence], *_: Any) -> LabelSet:
        names = {name for example in examples for word in example.labels or () for name in word}
        return LabelSet(SEVERAL, tuple(sorted(names)))

    def features(self, examples: Sequence[Sentence]) -> list[SentenceRow]:
        rows: list[SentenceRow] = []
        limits = {"truncation": self.settings.truncation, "max_length": self.max_length}
        for number, example in enumerate(examples):
            read = partial(self.tokenizer, list(example.words), is_split_into_words=True, verbose=False)
            complete, tokens = read()[0], read(**limits)[0]
            first = {n: span.start for n in range(len(example.words)) if (span := tokens.word_to_tokens(n))}
            labels = np.full((len(tokens), len(self.labels.names)), IGNORED, np.float32)
            for word, position in first.items() if example.labels is not None else ():
                labels[position] = self.labels.encode(example.labels[word], f"example {number}")
            common = {"example": number, "labels": labels, "first": first, "cut": len(complete) - len(tokens)}
            rows.append(SentenceRow(input_ids=tokens.ids, token_type_ids=tokens.type_ids, **common))
        return rows

    def labels_of(self, rows: Sequence[SentenceRow]) -> dict[str, np.ndarray]:
        labels = np.full((len(rows), self.padded_length(rows), len(self.labels.names)), IGNORED, np.float32)
        for number, row in enumerate(rows):
            labels[number, : len(row.labels)] = row.labels
        return {"labels": labels}

    def read(self, row: SentenceRow) -> Sequence[int]:
        return list(row.first.values())

    def keep(self, scores: np.ndarray) -> np.ndarray:
        return scores  # (words with tokens, labels)

    def predictions(self, examples: Any, rows: Any, outputs: Sequence[np.ndarray]) -> list[Labels]:
        predictions: list[Labels] = [[[] for _ in example.words] for example in examples]
        for row, scores in zip(rows, outputs, strict=True):
            for word, logits in zip(row.first, scores, strict=True):
                predictions[row.example][word] = list(self.labels.predict(logits))
        return predictions

    def record(self, example: Sentence, prediction: Labels) -> dict[str, Any]:
        return {"words": list(example.words), "labels": prediction}

    def truth(self, example: Sentence) -> Labels | None:
        return None if example.labels is None else [list(word) for word in example.labels]

    def scores(self, examples: Sequence[Sentence], predictions: Sequence[Labels]) -> dict[str, float]:
        pairs = zip((self.truth(example) or [] for example in examples), predictions, strict=True)
        right = [true == predicted for pair in pairs for true, predicted in zip(*pair, strict=True)]
        return {"exact": sum(right) / len(right)}


def mistakes(true: list[Any], predicted: list[Any]) -> float:
    """Return a custom metric: the mean number of words with wrong labels in a sentence."""
    return float(np.mean([sum(map(list.__ne__, *pair)) for pair in zip(true, predicted, strict=True)]))


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    rows = [draw.choices(list(KINDS), k=draw.randint(3, 8)) for _ in range(count)]
    return [{"words": words, "labels": [KINDS[word] for word in words]} for words in rows]


def main() -> None:
    train, test = sentences(160, 0), sentences(20, 1)
    settings: dict[str, Any] = {"epochs": 3, "learning_rate": 5e-4, "batch_size": 8, "max_length": 32}
    settings |= {"metrics": Metric(mistakes, lower_is_better=True)}
    with TemporaryDirectory() as folder:
        run = finetune(SeveralTags(), train=train, validation=test, output=folder, **settings)
        print(f"exact {run.metrics['exact']:.1%}, mistakes {run.metrics['mistakes']:.2f} in a sentence")
        print(evaluate(folder, data=test, task=SeveralTags()).metrics)
        print(predict(folder, input=[{"words": ["the", "roses"]}], task=SeveralTags())[0])
        print(pipeline(SeveralTags(), folder)({"words": ["the", "apple", "bread"]})["labels"])


if __name__ == "__main__":
    main()
