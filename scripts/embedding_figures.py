"""Measure how well the vectors of a model find texts, beside TF-IDF.

    python scripts/embedding_figures.py --data ../shared/data --model bundled bundled-sentences

| column | query | candidates |
|---|---|---|
| continuation | a passage of a held-out book | 1,000 passages of all held-out books, with the next one |
| questions | a question of XQuAD in English | its 240 paragraphs, with the one that answers it |

`--data` has books.parquet (one book a row in the column `text`) and xquad/xquad.en.json. Every 40th book is
held out, as in `albertkit prepare --holdout-every 40`. A passage is whole sentences of 60 to 100 words in
all. A text beyond the maximum length of the model is split into windows, and the most similar window counts.
"centered" subtracts the mean of the candidates from all vectors.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer

from albertkit import pipeline

HOLDOUT_EVERY = 40
MIN_WORDS, MAX_WORDS = 60, 100
CANDIDATES = 1000
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'\u201d\u2019])\s+")
ACCURACIES = ("continuation@1", "questions@1", "questions@5")

Similarity = Callable[[list[str], list[str]], np.ndarray]
"""(Q queries, N candidates) -> (Q, N)."""


class Texts(NamedTuple):
    """The texts to compare."""

    passages: list[str]
    following: list[str]
    """The passage that follows each passage."""
    questions: list[str]
    paragraphs: list[str]
    right: list[int]
    """The number of the paragraph that answers each question."""


def read_texts(data: Path) -> Texts:
    """Return the texts of the folder `--data`."""
    return Texts(*continuations(data / "books.parquet"), *questions(data / "xquad" / "xquad.en.json"))


def books(path: Path, *, held_out: bool) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the books that are held out, or of the others."""
    batches = pq.ParquetFile(path).iter_batches(batch_size=16, columns=["text"])
    texts = (text.as_py() for batch in batches for text in batch.column("text"))
    for number, text in enumerate(texts):
        if (number % HOLDOUT_EVERY == 0) == held_out:
            yield number, text


def passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the passages of a book with their places; neighbors have consecutive places."""
    place, sentences, words = 0, [], 0
    lines = (line for line in text.split("\n") if not line.startswith("#"))
    for sentence in _SENTENCE_END.split(" ".join(lines)):
        sentences.append(sentence)
        words += len(sentence.split())
        if words >= MIN_WORDS:
            if words <= MAX_WORDS:
                yield place, " ".join(" ".join(sentences).split())
            else:
                place += 1  # its neighbors are not neighbors of each other
            place, sentences, words = place + 1, [], 0


def continuations(path: Path) -> tuple[list[str], list[str]]:
    """Return passages of held-out books and the passages that follow them."""
    pairs = []
    for _, text in books(path, held_out=True):
        found = dict(passages(text))
        # Of two passages each, so that no passage is a query and a candidate.
        pairs += [(found[at], found[at + 1]) for at in found if at % 2 == 0 and at + 1 in found]
    chosen = np.random.default_rng(0).choice(len(pairs), CANDIDATES, replace=False)
    first, second = zip(*(pairs[one] for one in chosen), strict=True)
    return list(first), list(second)


def questions(path: Path) -> tuple[list[str], list[str], list[int]]:
    """Return questions, paragraphs, and the number of the paragraph of each question."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [
        (one["question"], number) for number, paragraph in enumerate(paragraphs) for one in paragraph["qas"]
    ]
    return (
        [question for question, _ in asked],
        [paragraph["context"] for paragraph in paragraphs],
        [number for _, number in asked],
    )


def accuracy(similarity: np.ndarray, right: np.ndarray, top: int) -> float:
    """Return the share of the queries whose right candidate is among the `top` most similar ones."""
    better = similarity > np.take_along_axis(similarity, right[:, None], axis=1)
    equal = similarity == np.take_along_axis(similarity, right[:, None], axis=1)
    ranks = better.sum(axis=1) + (equal.sum(axis=1) - 1) / 2  # equal ones in any order
    return float((ranks < top).mean())


def tf_idf(queries: list[str], candidates: list[str], *, sublinear: bool) -> np.ndarray:
    """Return the cosines of TF-IDF vectors, with the frequencies of the candidates."""
    vectorizer = TfidfVectorizer(sublinear_tf=sublinear)
    found = vectorizer.fit_transform(candidates)
    return (vectorizer.transform(queries) @ found.T).toarray()


class Vectors:
    """The cosines of a model's vectors.

    Args:
        model: folder, hub name or "bundled".
    """

    def __init__(self, model: str) -> None:
        self.embed = pipeline("feature-extraction", model=model, normalize=True)
        self.pooling = self.embed.pooling or "mean"
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, queries: list[str], candidates: list[str], *, center: bool = False) -> np.ndarray:
        """Return (Q, N); with `center` after the mean of the candidates is subtracted."""
        query_vectors, query_starts = self._vectors(queries)
        vectors, starts = self._vectors(candidates)
        if center:
            mean = vectors.mean(axis=0)
            query_vectors, vectors = unit(query_vectors - mean), unit(vectors - mean)
        similarity = query_vectors @ vectors.T
        similarity = np.maximum.reduceat(similarity, query_starts, axis=0)
        return np.maximum.reduceat(similarity, starts, axis=1)

    def _vectors(self, texts: list[str]) -> tuple[np.ndarray, list[int]]:
        """Return the vectors (W, D) of all windows, and the number of each text's first."""
        windows, starts = [], []
        for text in texts:
            starts.append(len(windows))
            windows += self._windows(text)
        missing = [one for one in dict.fromkeys(windows) if one not in self._known]
        found = self.embed(missing, pooling=self.pooling, truncation=True) if missing else []
        self._known.update(zip(missing, np.array(found, dtype=np.float32), strict=True))
        return np.stack([self._known[one] for one in windows]), starts

    def _windows(self, text: str) -> list[str]:
        """Split a text into the fewest equal runs of words that fit into the model.

        If a single word does not fit, each word is a window, and the model truncates the long word.
        """
        words, windows = text.split(), [text]
        for count in range(1, len(words) + 1):
            windows = [" ".join(run) for run in np.array_split(words, count)]
            if all(map(self._fits, windows)):
                break
        return windows

    def _fits(self, text: str) -> bool:
        ids = self.embed.tokenizer(text, verbose=False)["input_ids"]
        return len(ids) <= self.embed.max_length


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(similarity: Similarity, texts: Texts) -> dict[str, float]:
    """Return the figures of one way to compare texts."""
    following = similarity(texts.passages, texts.following)
    answering = similarity(texts.questions, texts.paragraphs)
    right = np.array(texts.right)
    found = (
        accuracy(following, np.arange(len(texts.passages)), 1),
        accuracy(answering, right, 1),
        accuracy(answering, right, 5),
    )
    return dict(zip(ACCURACIES, found, strict=True))


def main() -> None:
    """Print the figures of TF-IDF and of models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", nargs="*", default=["bundled"])
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of the table")
    arguments = parser.parse_args()
    compared: dict[str, Similarity] = {
        "TF-IDF": partial(tf_idf, sublinear=False),
        "TF-IDF, logarithm of the counts": partial(tf_idf, sublinear=True),
    }
    for model in arguments.model:
        vectors = Vectors(model)
        compared[model] = vectors
        compared[f"{model}, centered"] = partial(vectors, center=True)
    texts = read_texts(arguments.data)
    found = {name: measure(one, texts) for name, one in compared.items()}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"| | {' | '.join(ACCURACIES)} |\n|---|{'---|' * len(ACCURACIES)}")
    for name, figures in found.items():
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in figures.values())} |")


if __name__ == "__main__":
    main()
