"""Search a collection of texts for those most like a new one, by the vectors of a pretrained model.

    python examples/search_letters.py

The collection is 90 letters to an inn, each praise, a complaint or a question. The model was not told which,
so how often the nearest letter is of the same kind shows what its vectors are worth.
"""

import csv
from pathlib import Path

import numpy as np

from albertkit import pipeline

DATA = Path(__file__).parent / "data"


def read(name: str) -> tuple[list[str], list[str]]:
    """Return the letters of a file and their kinds."""
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def main() -> None:
    letters, kinds = read("letters_train.csv")
    asked, right = read("letters_validation.csv")
    embed = pipeline("feature-extraction", pooling="mean", normalize=True)
    index = np.array(embed(letters))  # (90, 256)
    queries = np.array(embed(asked))  # (36, 256)

    # All vectors of a pretrained model share a large part; without it their differences count.
    centred = [vectors - index.mean(axis=0) for vectors in (index, queries)]
    index, queries = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in centred)
    similarity = queries @ index.T  # (36, 90): cosines

    for query in (0, 12, 24):
        print(f"{asked[query]}")
        for place in similarity[query].argsort()[::-1][:3]:
            print(f"  {similarity[query, place]:.2f}  {letters[place]}")
        print()
    nearest = [kinds[place] for place in similarity.argmax(axis=1)]
    same = np.mean([one == other for one, other in zip(nearest, right, strict=True)])
    print(f"the nearest letter is of the same kind: {same:.0%} (by chance 33%)")


if __name__ == "__main__":
    main()
