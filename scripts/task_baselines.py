"""Baselines for the tasks of `task_figures.py`. Each function reads the files and returns the metrics.

{"TF-IDF + logistic regression": "0.795", "majority": "0.509"}
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline

from albertkit.datasets.examples import WordsExample
from albertkit.datasets.official import conll, squad
from albertkit.metrics import score_questions, span_scores


def sst2(train: Path, test: Path) -> dict[str, str]:
    """Return the accuracy of logistic regression on TF-IDF, and of the most frequent label."""
    return _of_texts(_tsv(train), _tsv(test))


def rte(train: Path, test: Path) -> dict[str, str]:
    """Return the same with separate features for both texts, and the accuracy of the word overlap."""
    shares, labels = _overlaps(train)
    # The threshold with the highest accuracy on the training data.
    threshold = max(sorted(set(shares)), key=lambda value: np.mean((shares >= value) == labels))
    shares, labels = _overlaps(test)
    overlap = f"{np.mean((shares >= threshold) == labels):.3f}"
    return _of_texts(_pairs(train), _pairs(test)) | {"word overlap": overlap}


def conll2000(train: Path, test: Path) -> dict[str, str]:
    """Return the F1 of a linear tagger, and of the most frequent label of each word."""
    train_examples, test_examples = list(conll(train)), list(conll(test))
    train_labels = [label for example in train_examples for label in example.labels or ()]
    test_labels = [example.labels for example in test_examples]
    counts = _labels_of_words(train_examples)
    frequent = {word: labels.most_common(1)[0][0] for word, labels in counts.items()}
    default = Counter(train_labels).most_common(1)[0][0]
    majority = [[frequent.get(word, default) for word in example.words] for example in test_examples]

    hasher = FeatureHasher(2**20, input_type="string")
    tagger = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0)
    tagger.fit(_features(hasher, train_examples), train_labels)
    tags = iter(tagger.predict(_features(hasher, test_examples)).tolist())
    linear = [[next(tags) for _ in example.words] for example in test_examples]
    return {
        name: f"{span_scores(test_labels, predicted)['f1']:.3f}"
        for name, predicted in (("linear tagger", linear), ("most frequent tag of each word", majority))
    }


def xquad(_: Path, test: Path) -> dict[str, str]:
    """Return exact match and F1 of the sentence that is most similar to the question by TF-IDF."""
    examples = list(squad(test))
    vectorizer = TfidfVectorizer().fit([example.context for example in examples])
    predictions = []
    for example in examples:
        sentences = re.split(r"(?<=[.!?])\s+", example.context)
        similarity = vectorizer.transform(sentences) @ vectorizer.transform([example.question]).T
        predictions.append(sentences[int(similarity.toarray().argmax())])
    labels = [[answer for answer, _ in example.answers] for example in examples]
    scores = score_questions(labels, predictions, version="1.1").summary()
    return {"nearest sentence": f"{scores['exact']:.3f} / {scores['f1']:.3f}"}


BASELINES: dict[str, Callable[[Path, Path], dict[str, str]]] = {
    "sst2": sst2,
    "rte": rte,
    "conll2000": conll2000,
    "xquad": xquad,
}


def _of_texts(train: tuple[list[str], list[str]], test: tuple[list[str], list[str]]) -> dict[str, str]:
    texts, labels = test
    words = TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=3, max_iter=1000)).fit(*train)
    majority = Counter(train[1]).most_common(1)[0][0]
    return {
        "TF-IDF + logistic regression": f"{model.score(texts, labels):.3f}",
        "majority": f"{sum(label == majority for label in labels) / len(labels):.3f}",
    }


def _tsv(file: Path) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [row[0] for row in rows], [row[1] for row in rows]


def _pairs(file: Path) -> tuple[list[str], list[str]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [row["text"] + " " + re.sub(r"(\w+)", r"second_\1", row["pair"]) for row in rows]
    return texts, [row["label"] for row in rows]


def _overlaps(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the word overlap of each pair, and whether it is an entailment: both (N,).

    The overlap is the share of the words of the second text that occur in the first.
    """
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    words = [[re.findall(r"\w+", row[name].lower()) for name in ("text", "pair")] for row in rows]
    shares = [sum(word in set(first) for word in second) / max(1, len(second)) for first, second in words]
    return np.array(shares), np.array([row["label"] == "entailment" for row in rows])


def _labels_of_words(examples: Sequence[WordsExample]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for example in examples:
        for word, label in zip(example.words, example.labels or (), strict=True):
            counts.setdefault(word, Counter())[label] += 1
    return counts


def _features(hasher: FeatureHasher, examples: Sequence[WordsExample]) -> csr_matrix:
    return csr_matrix(hasher.transform(_words_in_context(examples)).astype(np.float32))


def _words_in_context(examples: Sequence[WordsExample]) -> Iterator[list[str]]:
    """Yield the features of each word: words and word pairs around it, suffixes and shapes of three words."""
    for example in examples:
        words = ["<", "<", *example.words, ">", ">"]
        for position in range(2, len(words) - 2):
            features = []
            for offset in range(-2, 3):
                word = words[position + offset]
                features.append(f"{offset}={word.lower()}")
                if abs(offset) < 2:
                    features += [f"{offset}-{size}={word[-size:].lower()}" for size in (1, 2, 3, 4)]
                    features.append(f"{offset}~{_shape(word)}")
            previous, word, following = words[position - 1 : position + 2]
            features += [f"{previous} {word}", f"{word} {following}"]
            yield features


def _shape(word: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "0", word)))
