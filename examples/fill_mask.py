"""Fill in masked words, and find out which of a few words fits best.

python examples/fill_mask.py
"""

from albertkit import pipeline

CHOICES = [
    ("The baby began to [MASK] in its cradle.", ["cry", "crying", "cried"]),
    ("She opened the door with her own [MASK].", ["hand", "river", "hundred"]),
    ("He was so tired that he fell [MASK] at once.", ["asleep", "green", "seven"]),
]


def main() -> None:
    fill = pipeline("fill-mask")  # the bundled model; pass model="FOLDER_OR_HUB_NAME" for another one
    print("She opened the [MASK] and went into the room.")
    for answer in fill("She opened the [MASK] and went into the room.", top_k=5):
        print(f"  {answer['score']:6.1%}  {answer['token_str']}")

    # `targets` limits the answers to these words. The scores are still probabilities over the vocabulary.
    for text, words in CHOICES:
        best, *others = fill(text, targets=words)
        ratio = best["score"] / others[0]["score"]
        print(f"\n{best['sequence']}")
        print(f"  {ratio:.1f} times as probable as {others[0]['token_str']!r}")


if __name__ == "__main__":
    main()
