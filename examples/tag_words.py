"""Fine-tune a tagger on a file of CoNLL columns, then find the names in new sentences.

    python examples/tag_words.py

The script generates its sentences from shipping news. The validation sentences have other names than the
training sentences, so the model has to distinguish a ship from a port by the words around the name.
"""

import random
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import finetune, pipeline

NAMES = tomllib.loads((Path(__file__).parent / "data" / "names.toml").read_text(encoding="utf-8"))["tags"]
KINDS = ["brig", "schooner", "barque", "steamer", "sloop"]
NEWS = [
    "The KIND SHIP sailed from PORT on Monday with a cargo of coal .",
    "The KIND SHIP put into PORT after a gale .",
    "Captain PERSON of the KIND SHIP was seen at PORT last night .",
    "Captain PERSON has left PORT for the south .",
    "PERSON , the owner of the KIND SHIP , has died in PORT .",
    "A letter from PORT says that the SHIP was lost with all hands .",
    "The SHIP , under Captain PERSON , has arrived at PORT .",
    "Mr. PERSON came from PORT to see the SHIP before she sailed .",
    "Nothing has been heard of the SHIP since she left PORT in May .",
    "The people of PORT gave Captain PERSON a silver cup .",
]
NEW = [
    "The barque White Rose has arrived at Aberdeen from Plymouth .",
    "Captain Henry Moss has left Whitby for the north .",
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
