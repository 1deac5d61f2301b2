r"""Fine-tune a classifier on a small CSV file, then classify new texts.

    python examples/classify_letters.py

The same on the command line:

    albertkit finetune text-classification --train examples/data/letters_train.csv \
        --validation examples/data/letters_validation.csv --output run
    albertkit classify "The pears were delicious." --model run
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import finetune

DATA = Path(__file__).parent / "data"
NEW = [
    "The pears from your garden were delicious.",
    "The window was broken, and it was bitterly cold all night.",
    "Is there a train to the coast on Sunday?",
]


def main() -> None:
    with TemporaryDirectory() as folder:
        run = finetune(
            "text-classification",
            model="bundled",
            train=DATA / "letters_train.csv",
            validation=DATA / "letters_validation.csv",
            output=folder,  # the model, report.md and plots; choose another folder to keep them
            epochs=4,
            batch_size=16,
            evaluate_every=24,
        )
        classify = run.pipeline()
    accuracy, baseline = run.metrics["accuracy"], run.baseline["accuracy"]
    print(f"accuracy on 36 other letters: {accuracy:.1%} (baseline: {baseline:.1%})\n")
    for text, answer in zip(NEW, classify(NEW), strict=True):
        print(f"{answer['label']:<10} {answer['score']:4.0%}  {text}")


if __name__ == "__main__":
    main()
