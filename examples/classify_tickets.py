r"""Fine-tune a classifier on a small CSV file, then classify new texts.

    python examples/classify_tickets.py

The same on the command line:

    albertkit finetune text-classification --train examples/data/tickets_train.csv \
        --validation examples/data/tickets_validation.csv --output run
    albertkit classify "My parcel is still not here." --model run
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import finetune

DATA = Path(__file__).parent / "data"
NEW = [
    "My package was left at the wrong house.",
    "The glass is broken and a screw is missing.",
    "Please return the money to my card.",
    "I forgot my password.",
]


def main() -> None:
    with TemporaryDirectory() as folder:
        run = finetune(
            "text-classification",
            model="bundled",
            train=DATA / "tickets_train.csv",
            validation=DATA / "tickets_validation.csv",
            output=folder,  # the model, report.md and plots; choose another folder to keep them
            epochs=6,
            batch_size=16,
            evaluate_every=45,
        )
        classify = run.pipeline()
    accuracy, baseline = run.metrics["accuracy"], run.baseline["accuracy"]
    print(f"accuracy on 40 other tickets: {accuracy:.1%} (baseline: {baseline:.1%})\n")
    for text, answer in zip(NEW, classify(NEW), strict=True):
        print(f"{answer['label']:<10} {answer['score']:4.0%}  {text}")


if __name__ == "__main__":
    main()
