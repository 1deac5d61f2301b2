"""What one would otherwise take for the tasks of `task_figures.py`: each baseline from files to figures.

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
from albertkit.datasets.question_answering import SquadFile
from albertkit.datasets.token_classification import ConllFile
from albertkit.metrics.question_answering import score_questions
from albertkit.metrics.token_classification import span_scores


def sst2(train: Path, test: Path) -> dict[str, str]:
    """Bags of words with logistic regression; the most frequent label."""
    return _of_texts(_tsv(train), _tsv(test))


def rte(train: Path, test: Path) -> dict[str, str]:
    """The same on both texts, whose words are told apart; how many of the second's words the first has."""
    shares, labels = _overlaps(train)
    # The threshold that is right most often in training.
    threshold = max(sorted(set(shares)), key=lambda one: np.mean((shares >= one) == labels))
    shares, labels = _overlaps(test)
    overlap = f"{np.mean((shares >= threshold) == labels):.3f}"
    return _of_texts(_pairs(train), _pairs(test)) | {"word overlap": overlap}


def conll2000(train: Path, test: Path) -> dict[str, str]:
    """A linear tagger of windows of words, suffixes and shapes; the most frequent label of each word."""
    learnt, scored = list(ConllFile(train)), list(ConllFile(test))
    gold = [one.labels for one in scored]
    frequent = {word: labels.most_common(1)[0][0] for word, labels in _labels_of_words(learnt).items()}
    default = Counter(label for one in learnt for label in one.labels or ()).most_common(1)[0][0]
    majority = [[frequent.get(word, default) for word in one.words] for one in scored]

    hasher = FeatureHasher(2**20, input_type="string")
    tagger = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0)
    tagger.fit(_features(hasher, learnt), [label for one in learnt for label in one.labels or ()])
    tags = iter(tagger.predict(_features(hasher, scored)).tolist())
    linear = [[next(tags) for _ in one.words] for one in scored]
    return {
        name: f"{span_scores(gold, predicted).overall.f1:.3f}"
        for name, predicted in (("linear tagger", linear), ("majority of the word", majority))
    }


def xquad(_: Path, test: Path) -> dict[str, str]:
    """The sentence that shares most (by TF-IDF) with the question."""
    questions = list(SquadFile(test))
    weights = TfidfVectorizer().fit([one.context for one in questions])
    answers = {}
    for one in questions:
        sentences = re.split(r"(?<=[.!?])\s+", one.context)
        likeness = weights.transform(sentences) @ weights.transform([one.question]).T
        answers[one.id] = sentences[int(likeness.toarray().argmax())]
    gold = {one.id: [answer for answer, _ in one.answers] for one in questions}
    scores = score_questions(gold, answers, version="1.1").summary()
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
    most = Counter(train[1]).most_common(1)[0][0]
    return {
        "TF-IDF + logistic regression": f"{model.score(texts, labels):.3f}",
        "majority": f"{sum(label == most for label in labels) / len(labels):.3f}",
    }


def _tsv(file: Path) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [row[0] for row in rows], [row[1] for row in rows]


def _pairs(file: Path) -> tuple[list[str], list[str]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [row["text"] + " " + re.sub(r"(\w+)", r"second_\1", row["pair"]) for row in rows]
    return texts, [row["label"] for row in rows]


def _overlaps(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """The shares, and which pairs are entailments, both (N,)."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    words = [[re.findall(r"\w+", row[name].lower()) for name in ("text", "pair")] for row in rows]
    shares = [sum(word in set(first) for word in second) / max(1, len(second)) for first, second in words]
    return np.array(shares), np.array([row["label"] == "entailment" for row in rows])


def _labels_of_words(examples: Sequence[WordsExample]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for one in examples:
        for word, label in zip(one.words, one.labels or (), strict=True):
            counts.setdefault(word, Counter())[label] += 1
    return counts


def _features(hasher: FeatureHasher, examples: Sequence[WordsExample]) -> csr_matrix:
    return csr_matrix(hasher.transform(_words_in_context(examples)).astype(np.float32))


def _words_in_context(examples: Sequence[WordsExample]) -> Iterator[list[str]]:
    """Two words on each side; of the middle three also suffixes and shape."""
    for one in examples:
        words = ["<", "<", *one.words, ">", ">"]
        for place in range(2, len(words) - 2):
            features = []
            for offset in range(-2, 3):
                word = words[place + offset]
                features.append(f"{offset}={word.lower()}")
                if abs(offset) < 2:
                    features += [f"{offset}-{size}={word[-size:].lower()}" for size in (1, 2, 3, 4)]
                    features.append(f"{offset}~{_shape(word)}")
            features += [f"{words[place - 1]} {words[place]}", f"{words[place]} {words[place + 1]}"]
            yield features


def _shape(word: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "0", word)))
