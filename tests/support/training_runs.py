"""Training runs of a tiny model on random ids."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from albertkit.config import AlbertConfig
from albertkit.modeling.heads import AlbertForMaskedLM
from albertkit.training.loop import StepOutput, Training
from albertkit.training.settings import TrainingSettings


def tiny_model(dropout: float = 0.1) -> AlbertForMaskedLM:
    torch.manual_seed(1)
    config = AlbertConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
    )
    return AlbertForMaskedLM(config)


class Rows:
    """A batch of ids (B, T)."""

    def __init__(self, ids: torch.Tensor) -> None:
        self.ids = ids

    def split(self, parts: int) -> list["Rows"]:
        return [Rows(ids) for ids in self.ids.tensor_split(min(parts, len(self.ids)))]


class Objective:
    """An objective whose labels are the input ids."""

    def counts(self, batch: Rows) -> dict[str, int]:
        return {"tokens": batch.ids.numel()}

    def __call__(self, model: Any, batch: Rows, counts: dict[str, int]) -> StepOutput:
        total = model(input_ids=batch.ids, labels=batch.ids).loss * batch.ids.numel()
        return StepOutput(loss=total / counts["tokens"], sums={"loss": (total, batch.ids.numel())})


class BadOnce(Objective):
    """An objective that multiplies the loss of batch `step`, counted from 1, by `factor`."""

    def __init__(self, step: int, factor: float, always: bool = False) -> None:
        generator = torch.Generator().manual_seed(step - 1)
        self.bad = torch.randint(5, 40, (4, 8), generator=generator)
        self.factor, self.always = factor, always

    def __call__(self, model: Any, batch: Rows, counts: dict[str, int]) -> StepOutput:
        result = super().__call__(model, batch, counts)
        bad = self.always or torch.equal(batch.ids, self.bad)
        return StepOutput(loss=result.loss * self.factor, sums=result.sums) if bad else result


objective = Objective()


def batches(position: dict[str, int] | None) -> Iterator[tuple[Rows, dict[str, int]]]:
    step = position["step"] if position else 0
    while True:
        generator = torch.Generator().manual_seed(step)
        step += 1
        yield Rows(torch.randint(5, 40, (4, 8), generator=generator)), {"step": step}


def settings(**changes: Any) -> TrainingSettings:
    defaults: dict[str, Any] = {
        "steps": 12,
        "learning_rate": 0.01,
        "warmup_steps": 3,
        "save_every": 4,
        "evaluate_every": 6,
        "log_every": 2,
        "precision": "fp32",
    }
    return TrainingSettings(**defaults | changes)


def run(
    output: Path,
    changed: TrainingSettings,
    fingerprint: dict[str, Any] | None = None,
    *,
    objective: Any = objective,
    dropout: float = 0.1,
    **options: Any,
) -> Any:
    model = tiny_model(dropout)
    return Training(
        model,
        objective,
        batches,
        changed,
        output,
        save_model=model.save_pretrained,
        evaluate=lambda: {"loss": float(objective(model, next(batches(None))[0], {"tokens": 32}).loss)},
        fingerprint=fingerprint or {},
        **options,
    ).run()
