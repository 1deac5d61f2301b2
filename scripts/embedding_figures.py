"""Measure how well the vectors of a model find texts, compared with TF-IDF.

    python scripts/embedding_figures.py --data ../shared/data --model bundled bundled-sentences

| column | query | candidates |
|---|---|---|
| books | a passage of a held-out book | 1,000 passages of all held-out books, including the next one |
| modern | a passage of a held-out modern document | the same of these documents |
| questions | a question of XQuAD in English | all 240 paragraphs, including the one with the answer |

`--data` has books.parquet and modern.parquet (one document per row in the column `text`) and
xquad/xquad.en.json. Every 40th document is held out, as in `albertkit prepare --holdout-every 40`. A passage
consists of whole sentences with 60 to 100 words in total. Texts that exceed the maximum length of the model
are split into windows, and the most similar window counts. "centered" subtracts the mean of the candidates
from all vectors.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from pages import command_line
from sklearn.feature_extraction.text import TfidfVectorizer

from albertkit import pipeline
from albertkit.checkpoints.sentence_modules import sentence_modules

HOLDOUT_EVERY = 40
MIN_WORDS, MAX_WORDS = 60, 100
CANDIDATES = 1000
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'\u201d\u2019])\s+")
ACCURACIES = ("books@1", "modern@1", "questions@1", "questions@5")

Similarity = Callable[[list[str], list[str]], np.ndarray]
"""(Q queries, N candidates) -> (Q, N)."""


class Texts(NamedTuple):
    """The texts to compare."""

    continuations: list[tuple[list[str], list[str]]]
    """Of books and of modern documents: passages, and the passage that follows each of them."""
    questions: list[str]
    paragraphs: list[str]
    right: list[int]
    """The index of the paragraph that answers each question."""


def read_texts(data: Path) -> Texts:
    """Return the texts in the folder `--data`."""
    both = [continuations(data / f"{name}.parquet") for name in ("books", "modern")]
    return Texts(both, *questions(data / "xquad" / "xquad.en.json"))


def books(path: Path, *, held_out: bool) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the documents that are held out, or of the others."""
    batches = pq.ParquetFile(path).iter_batches(batch_size=16, columns=["text"])
    texts = (text.as_py() for batch in batches for text in batch.column("text"))
    for number, text in enumerate(texts):
        if (number % HOLDOUT_EVERY == 0) == held_out:
            yield number, text


def passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the positions and texts of the passages of a text. Neighbors have consecutive positions."""
    position, sentences, words = 0, [], 0
    lines = (line for line in text.split("\n") if not line.startswith("#"))
    for sentence in _SENTENCE_END.split(" ".join(lines)):
        sentences.append(sentence)
        words += len(sentence.split())
        if words >= MIN_WORDS:
            if words <= MAX_WORDS:
                yield position, " ".join(" ".join(sentences).split())
            else:
                position += 1  # a gap: the passages before and after it are not neighbors
            position, sentences, words = position + 1, [], 0


def continuations(path: Path) -> tuple[list[str], list[str]]:
    """Return passages of held-out books and the passages that follow them."""
    pairs = []
    for _, text in books(path, held_out=True):
        of_book = dict(passages(text))
        # Only even positions are queries, so that no passage is both a query and a candidate.
        pairs += [(of_book[at], of_book[at + 1]) for at in of_book if at % 2 == 0 and at + 1 in of_book]
    chosen = np.random.default_rng(0).choice(len(pairs), CANDIDATES, replace=False)
    first, second = zip(*(pairs[index] for index in chosen), strict=True)
    return list(first), list(second)


def questions(path: Path) -> tuple[list[str], list[str], list[int]]:
    """Return questions, paragraphs, and the index of the paragraph of each question."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [
        (entry["question"], number)
        for number, paragraph in enumerate(paragraphs)
        for entry in paragraph["qas"]
    ]
    return (
        [question for question, _ in asked],
        [paragraph["context"] for paragraph in paragraphs],
        [number for _, number in asked],
    )


def accuracy(similarity: np.ndarray, right: np.ndarray, top: int) -> float:
    """Return the share of the queries whose right candidate is among the `top` most similar candidates."""
    better = similarity > np.take_along_axis(similarity, right[:, None], axis=1)
    equal = similarity == np.take_along_axis(similarity, right[:, None], axis=1)
    ranks = better.sum(axis=1) + (equal.sum(axis=1) - 1) / 2  # ties count as half
    return float((ranks < top).mean())


def tf_idf(queries: list[str], candidates: list[str], *, sublinear: bool) -> np.ndarray:
    """Return the cosines of TF-IDF vectors, with the document frequencies of the candidates."""
    vectorizer = TfidfVectorizer(sublinear_tf=sublinear)
    vectors = vectorizer.fit_transform(candidates)
    return (vectorizer.transform(queries) @ vectors.T).toarray()


class Vectors:
    """Compares texts by the cosines of their vectors.

    Args:
        model: Folder, hub name or "bundled".
    """

    def __init__(self, model: str) -> None:
        self.embed = pipeline("feature-extraction", model=model, normalize=True)
        modules = sentence_modules(self.embed.model.config)
        self.pooling = modules.pooling if modules else "mean"
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, queries: list[str], candidates: list[str], *, center: bool = False) -> np.ndarray:
        """Return the cosines (Q, N). With `center`, subtract the mean of the candidates first."""
        query_vectors, query_starts = self._vectors(queries)
        vectors, starts = self._vectors(candidates)
        if center:
            mean = vectors.mean(axis=0)
            query_vectors, vectors = unit(query_vectors - mean), unit(vectors - mean)
        similarity = query_vectors @ vectors.T
        similarity = np.maximum.reduceat(similarity, query_starts, axis=0)
        return np.maximum.reduceat(similarity, starts, axis=1)

    def _vectors(self, texts: list[str]) -> tuple[np.ndarray, list[int]]:
        """Return the vectors (W, D) of all windows, and the index of the first window of each text."""
        windows, starts = [], []
        for text in texts:
            starts.append(len(windows))
            windows += self._windows(text)
        missing = [window for window in dict.fromkeys(windows) if window not in self._known]
        vectors = self.embed(missing, pooling=self.pooling, truncation=True) if missing else []
        self._known.update(zip(missing, np.array(vectors, dtype=np.float32), strict=True))
        return np.stack([self._known[window] for window in windows]), starts

    def _windows(self, text: str) -> list[str]:
        """Split a text into the minimum number of equal runs of words that fit into the maximum length.

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
    """Return the accuracies of a similarity."""
    following = [accuracy(similarity(*pair), np.arange(len(pair[0])), 1) for pair in texts.continuations]
    answering = similarity(texts.questions, texts.paragraphs)
    answered = [accuracy(answering, np.array(texts.right), top) for top in (1, 5)]
    return dict(zip(ACCURACIES, [*following, *answered], strict=True))


def main() -> None:
    """Print the accuracies of TF-IDF and of models."""
    parser = command_line(__doc__)
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
    results = {name: measure(similarity, texts) for name, similarity in compared.items()}
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"| | {' | '.join(ACCURACIES)} |\n|---|{'---|' * len(ACCURACIES)}")
    for name, accuracies in results.items():
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in accuracies.values())} |")


if __name__ == "__main__":
    main()
