"""Find the texts of a collection that are most similar to a new text, with the bundled sentence vectors.

    python examples/search_letters.py

The collection has 90 letters to an inn: praise, complaints and questions. The model does not know these
labels. The share of letters whose nearest neighbor has the same label measures the quality of the vectors.
"""

import csv
from pathlib import Path

import numpy as np

from albertkit import pipeline

DATA = Path(__file__).parent / "data"


def read(name: str) -> tuple[list[str], list[str]]:
    """Return the letters of a file and their labels."""
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def main() -> None:
    letters, labels = read("letters_train.csv")
    new_letters, new_labels = read("letters_validation.csv")
    embed = pipeline("feature-extraction", "bundled-sentences")
    index = np.array(embed(letters))  # (90, 384), vectors of length 1
    queries = np.array(embed(new_letters))  # (36, 384)
    similarity = queries @ index.T  # (36, 90): cosines

    for query in (0, 12, 24):
        print(new_letters[query])
        for place in similarity[query].argsort()[::-1][:3]:
            print(f"  {similarity[query, place]:.2f}  {letters[place]}")
        print()
    nearest = [labels[place] for place in similarity.argmax(axis=1)]
    same = np.mean([label == other for label, other in zip(nearest, new_labels, strict=True)])
    print(f"the nearest letter has the same label: {same:.0%} (by chance 33%)")


if __name__ == "__main__":
    main()
