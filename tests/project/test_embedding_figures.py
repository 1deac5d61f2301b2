"""Tests of the script that measures sentence vectors: its passages, queries, answers and accuracies."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SENTENCE = "The {} {} went home in the evening and said nothing of it to {} others."  # 16 words


@pytest.fixture
def figures(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("embedding_figures")


def book(name: str, sentences: int) -> str:
    """Return a book with numbered sentences."""
    return "# A heading.\n" + "\n".join(SENTENCE.format(name, number, name) for number in range(sentences))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    texts = [book(f"name{number}", 30) for number in range(41)]
    for name in ("books", "modern"):
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
    paragraphs = [
        {
            "context": f"The color of the {thing} is {color}.",
            "qas": [{"question": f"What is the {thing}?"}] * 2,
        }
        for thing, color in (("sea", "blue"), ("grass", "green"), ("snow", "white"))
    ]
    (tmp_path / "xquad").mkdir()
    squad = {"data": [{"paragraphs": paragraphs[:1]}, {"paragraphs": paragraphs[1:]}]}
    (tmp_path / "xquad" / "xquad.en.json").write_text(json.dumps(squad))
    return tmp_path


def test_passages_are_complete_sentences_and_a_long_sentence_separates_them(figures: ModuleType) -> None:
    short, long = SENTENCE.format("old", "man", "the"), "word " * 59 + "end."
    passages = list(figures.passages("\n".join([*[short] * 11, long, *[short] * 4])))
    assert passages == [(position, " ".join([short] * 4)) for position in (0, 1, 4)]


def test_continuations_are_from_held_out_books_and_no_query_is_a_candidate(
    figures: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "CANDIDATES", 6)
    first, second = figures.continuations(data / "books.parquet")
    assert not set(first) & set(second)
    assert len(set(first)) == len(set(second)) == 6
    for passage, following in zip(first, second, strict=True):
        name, last = passage.split()[-15:][:2]
        assert name in ("name0", "name40")  # every 40th book is held out
        assert following.split()[1:3] == [name, str(int(last) + 1)]


def test_questions_have_the_index_of_their_paragraph(figures: ModuleType, data: Path) -> None:
    asked, paragraphs, right = figures.questions(data / "xquad" / "xquad.en.json")
    assert right == [0, 0, 1, 1, 2, 2]
    for question, number in zip(asked, right, strict=True):
        assert question.removeprefix("What is the ").strip("?") in paragraphs[number]


def test_accuracy_ranks_ties_in_the_middle(figures: ModuleType) -> None:
    similarity = np.array([[0.9, 0.1, 0.2], [0.5, 0.4, 0.3], [0.0, 0.0, 0.0]])
    right = np.array([0, 2, 1])
    assert figures.accuracy(similarity, right, 1) == pytest.approx(
        1 / 3
    )  # the rank of the third is 1, the middle of 0 to 2
    assert figures.accuracy(similarity, right, 2) == pytest.approx(2 / 3)
    assert figures.accuracy(similarity, right, 3) == 1


def test_the_similarity_of_a_long_text_is_that_of_its_most_similar_window(figures: ModuleType) -> None:
    vectors = figures.Vectors("bundled")
    needle = "The captain slept in his cabin."
    hay = "It was a fine day in the town. " * 40
    similarity = vectors([needle], [needle, hay + "x " * 40 + needle * 30, hay])
    assert similarity.shape == (1, 3)
    assert similarity[0, 0] == pytest.approx(1, abs=1e-5)
    assert similarity[0, 1] > similarity[0, 2] + 0.05


def test_windows_of_long_texts_and_of_long_words(figures: ModuleType) -> None:
    vectors = figures.Vectors("bundled")
    text = "It was a fine day in the town. " * 40
    windows = vectors._windows(text)
    assert len(windows) == 2
    assert " ".join(windows) == text.strip()
    assert vectors._windows("") == [""]
    long = "xyz" * 200  # more tokens than the maximum length
    assert vectors._windows(f"a {long}") == ["a", long]
    assert vectors([long], [long, "a fine day"]).argmax() == 0


def test_the_script_prints_a_row_for_each_method(
    figures: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "CANDIDATES", 6)
    monkeypatch.setattr(sys, "argv", ["embedding_figures.py", "--data", str(data), "--json"])
    read, reads = figures.read_texts, []
    monkeypatch.setattr(figures, "read_texts", lambda folder: reads.append(folder) or read(folder))
    figures.main()
    assert reads == [data]
    accuracies = json.loads(capsys.readouterr().out)
    assert list(accuracies) == ["TF-IDF", "TF-IDF, logarithm of the counts", "bundled", "bundled, centered"]
    assert accuracies["TF-IDF"]["questions@1"] == 1
    assert all(set(row) == set(figures.ACCURACIES) for row in accuracies.values())
    monkeypatch.setattr(sys, "argv", ["embedding_figures.py", "--data", str(data)])
    figures.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| | books@1 | modern@1 | questions@1 | questions@5 |"
    assert lines[2].startswith("| TF-IDF | ")
    assert lines[2].endswith(" | 1.000 | 1.000 |")
