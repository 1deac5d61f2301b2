"""Settings, random texts and functions for short fine-tuning runs."""

import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.finetuning.settings import FinetuningSettings

CPU = torch.device("cpu")
FAST = FinetuningSettings(
    epochs=6,
    batch_size=8,
    learning_rate=3e-3,
    dropout=0.0,
    attention_dropout=0.0,
    classifier_dropout=0.0,
    precision="fp32",
    evaluate_every=24,
)


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Return random texts with a label. A word in each text determines its label."""
    draw = random.Random(seed)
    words = ["river", "house", "letters", "key", "secret", "harbour", "dinner", "morning"]
    rows = []
    for number in range(count):
        label = ["bad", "good"][number % 2]
        mark = {"good": "painted", "bad": "lost"}[label]
        rest = draw.choices(words, k=draw.randint(1, 6))
        rest.insert(draw.randrange(len(rest)), mark)
        rows.append({"text": " ".join(rest), "label": label})
    return rows


def tune(
    task: str,
    settings: FinetuningSettings,
    model: Path,
    data: Path,
    output: Path,
    *,
    seeds: int = 1,
    **options: Any,
) -> FinetuningRun:
    return finetune(
        task,
        recipe=settings,
        model=model,
        train=data / "train.jsonl",
        validation=data / "validation.jsonl",
        output=output,
        seeds=seeds,
        device="cpu",
        **options,
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
