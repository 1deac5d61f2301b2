"""Fine-tune a tagger on a file of CoNLL columns, then find the names in new sentences.

    python examples/tag_words.py

The script generates its sentences from business news. The validation sentences have other names than the
training sentences, so the model has to distinguish a company from a city by the words around the name.
"""

import random
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import finetune, pipeline

NAMES = tomllib.loads((Path(__file__).parent / "data" / "names.toml").read_text(encoding="utf-8"))["tags"]
KINDS = ["bank", "airline", "bakery", "hotel", "publisher"]
NEWS = [
    "The KIND COMPANY has moved to CITY with a staff of twenty .",
    "The KIND COMPANY opened an office in CITY after a long search .",
    "Director PERSON of the KIND COMPANY was seen in CITY last night .",
    "Director PERSON has left CITY for the south .",
    "PERSON , the owner of the KIND COMPANY , has died in CITY .",
    "A report from CITY says that COMPANY was sold with all its shops .",
    "The staff of COMPANY , with Director PERSON , is now in CITY .",
    "Mr. PERSON came from CITY to visit COMPANY before it closed .",
    "Nothing has been heard of COMPANY since it left CITY in May .",
    "The people of CITY gave Director PERSON a prize .",
]
NEW = [
    "The bakery White Rose has moved to Sydney from Plymouth .",
    "Director Henry Moss has left Whitby for the north .",
]


def write(file: Path, count: int, *, known: slice, seed: int) -> None:
    """Write `count` sentences with one word and its label per line.

    Args:
        file: the file to write.
        count: number of sentences.
        known: the part of each list of names to draw from.
        seed: seed of the random choices.
    """
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        for word in rng.choice(NEWS).split():
            if word in NAMES:
                name = rng.choice(NAMES[word][known]).split()
                lines += [f"{part} {'I' if place else 'B'}-{word}" for place, part in enumerate(name)]
            elif word == "KIND":
                lines.append(f"{rng.choice(KINDS)} O")
            else:
                lines.append(f"{word} O")
        lines.append("")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    with TemporaryDirectory() as name:
        train, validation, run = (Path(name) / file for file in ("train.conll", "validation.conll", "run"))
        write(train, 144, known=slice(0, 14), seed=0)
        write(validation, 24, known=slice(14, 20), seed=1)
        result = finetune(
            "token-classification",
            model="bundled",
            train=train,
            validation=validation,
            output=run,
            epochs=4,
            batch_size=8,
            evaluate_every=72,
        )
        find = pipeline(model=run, aggregation_strategy="first")
    print(f"F1 on new names: {result.report['metrics']['f1']:.1%}\n")
    for text, entities in zip(NEW, find(NEW), strict=True):
        print(text)
        for entity in entities:
            words = text[entity["start"] : entity["end"]]
            print(f"  {entity['entity_group']:<7} {words:<14} {entity['score']:.0%}")


if __name__ == "__main__":
    main()
