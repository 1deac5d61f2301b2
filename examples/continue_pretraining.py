r"""Continue pretraining the bundled model on other texts for a few steps, and compare it before and after.

    python examples/continue_pretraining.py

The script generates its texts: the log of a café. The same on the command line:

    albertkit prepare log.jsonl --tokenizer bundled --holdout-every 10 --output shards
    albertkit pretrain --data shards --tokenizer bundled --init-from bundled --batch-size 16 --steps 12 \
        --optimizer adamw --learning-rate 6e-4 --warmup-steps 2 --output run
"""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import albertkit

WEATHER = ["fog", "a storm from the north", "heavy rain", "a light wind", "snow", "a clear sky"]
GUESTS = ["a family", "two students", "a driver", "the neighbors", "a school class", "nobody"]
WORK = ["washed the cups", "cleaned the tables", "painted the door", "made the soup", "ordered the bread"]
TEXT = "The oven was [MASK] at eight and stayed hot until evening."


def day(rng: random.Random) -> str:
    """Return the entry of one day, with one sentence in each line."""
    weather, guests = rng.choice(WEATHER), rng.choice(GUESTS)
    first, second = rng.sample(WORK, 2)
    return "\n".join(
        [
            f"The day began with {weather}.",
            f"The cook {first}, and her assistant {second}.",
            f"At noon {guests} came for lunch.",
            f"The oven was lit at {rng.choice(['five', 'six', 'seven'])} and stayed hot until evening.",
        ]
    )


def main() -> None:
    rng = random.Random(0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        days = (json.dumps({"text": day(rng)}) for _ in range(160))
        (folder / "log.jsonl").write_text("\n".join(days), encoding="utf-8")
        albertkit.prepare(
            folder / "log.jsonl", tokenizer="bundled", output=folder / "shards", holdout_every=10, workers=1
        )
        run = albertkit.pretrain(
            data=folder / "shards",
            tokenizer="bundled",
            output=folder / "run",
            init_from="bundled",
            batch_size=16,
            steps=12,
            optimizer="adamw",
            learning_rate=6e-4,
            warmup_steps=2,
        )
        begin, *_, end = [line for line in run.history if "eval/masked_accuracy" in line]
        models = [albertkit.pipeline("fill-mask"), run.pipeline()]
    print("on held-out days:    before   after")
    for metric in ("masked_accuracy", "order_accuracy"):
        print(f"  {metric:<17} {begin[f'eval/{metric}']:8.1%} {end[f'eval/{metric}']:7.1%}")
    print(f"\n{TEXT}")
    for when, fill in zip(("before", "after"), models, strict=True):
        words = ", ".join(f"{word['token_str']} {word['score']:.0%}" for word in fill(TEXT, top_k=3))
        print(f"  {when:<6}  {words}")


if __name__ == "__main__":
    main()
