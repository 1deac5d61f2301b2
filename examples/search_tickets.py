"""Find the texts of a collection that are most similar to a new text, with the bundled sentence vectors.

    python examples/search_tickets.py

The collection has 240 messages to an online shop, with four labels. The model does not know these labels. The
share of messages whose nearest neighbor has the same label measures the quality of the vectors.
"""

import csv
from pathlib import Path

import numpy as np

from albertkit import pipeline

DATA = Path(__file__).parent / "data"


def read(name: str) -> tuple[list[str], list[str]]:
    """Return the messages of a file and their labels."""
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def main() -> None:
    tickets, labels = read("tickets_train.csv")
    new_tickets, new_labels = read("tickets_validation.csv")
    embed = pipeline("feature-extraction", "bundled-sentences")
    index = np.array(embed(tickets))  # (240, 384), vectors of length 1
    queries = np.array(embed(new_tickets))  # (40, 384)
    similarity = queries @ index.T  # (40, 240): cosines

    for query in (10, 13, 34, 35):
        print(new_tickets[query])
        for place in similarity[query].argsort()[::-1][:3]:
            print(f"  {similarity[query, place]:.2f}  {tickets[place]}")
        print()
    nearest = [labels[place] for place in similarity.argmax(axis=1)]
    same = np.mean([label == other for label, other in zip(nearest, new_labels, strict=True)])
    print(f"the nearest message has the same label: {same:.0%} (by chance 25%)")


if __name__ == "__main__":
    main()
