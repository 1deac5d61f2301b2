"""Fine-tune a classifier on a small CSV file, then let it judge new texts.

    python examples/classify_letters.py

On the command line: albertkit finetune text-classification --train examples/data/letters_train.csv
--validation examples/data/letters_validation.csv --output run, then albertkit classify TEXT --model run.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import pipeline
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.settings import FinetuningSettings

DATA = Path(__file__).parent / "data"
NEW = [
    "The pears from your garden were delicious.",
    "The window was broken, and it was bitterly cold all night.",
    "Is there a train to the coast on Sunday?",
]


def main() -> None:
    settings = FinetuningSettings(epochs=6, batch_size=16, evaluate_every=36)
    with TemporaryDirectory() as folder:
        result = finetune(
            "text-classification",
            settings,
            model="bundled",
            train_data=DATA / "letters_train.csv",
            validation_data=DATA / "letters_validation.csv",
            output=Path(folder),  # model, report.md and pictures; give a folder of your own to keep them
        )
        classify = pipeline(model=folder)
    assert result.report is not None
    accuracy, baseline = (result.report[name]["accuracy"] for name in ("metrics", "baseline"))
    print(f"accuracy on 36 other letters: {accuracy:.1%} (always the same answer: {baseline:.1%})\n")
    for text, answer in zip(NEW, classify(NEW), strict=True):
        print(f"{answer['label']:<10} {answer['score']:4.0%}  {text}")


if __name__ == "__main__":
    main()
