"""Early exit: a classifier after each depth, and leaving once several depths in a row agree (PABEE).

Zhou et al. 2020, "BERT Loses Patience: Fast and Robust Inference with Early Exit", who did it with ALBERT.
The pooler is the same at all depths. Each depth has a classifier, the last one the model's own; or that one
is for all.

Shapes: L depths, B batch, H hidden, K labels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError

KEY = "early_exit"
"""Where a config says that its model has classifiers for all depths."""
Classifiers = Literal["each", "shared"]


@dataclass(frozen=True)
class Exits:
    """How a model can exit early."""

    classifiers: Classifiers = "each"
    """One for each depth, or the same for all."""
    tolerance: float = 0.1
    """Of a regression: two numbers that are nearer than this agree."""

    def __post_init__(self) -> None:
        if self.classifiers not in get_args(Classifiers):
            raise ConfigError(f"{KEY}: classifiers is {self.classifiers!r}; expected 'each' or 'shared'")
        if not isinstance(self.tolerance, int | float) or not self.tolerance > 0:
            raise ConfigError(f"{KEY}: tolerance is {self.tolerance!r}; expected a number above 0")

    def note(self, config: AlbertConfig) -> None:
        """Put this into a config."""
        config.extra[KEY] = asdict(self)


def exits_of(config: AlbertConfig) -> Exits | None:
    """Return what a config says; None for a model that has no exits.

    Raises:
        ConfigError: it says something else.
    """
    given: Any = config.extra.get(KEY)
    if given is None:
        return None
    try:
        return Exits(**given)
    except TypeError as error:
        raise ConfigError(
            f"{KEY} is {given!r:.80}; expected an object with classifiers and tolerance"
        ) from error


def new_classifiers(config: AlbertConfig) -> nn.ModuleList:
    """Return the classifiers of all depths but the last, L - 1; none where it is one for all."""
    exits = exits_of(config)
    count = config.depth - 1 if exits is not None and exits.classifiers == "each" else 0
    return nn.ModuleList(nn.Linear(config.hidden_size, config.num_labels) for _ in range(count))


def check_patience(patience: int | None, config: AlbertConfig) -> None:
    """Raise ConfigError unless a model of this config can be so patient."""
    if patience is None:
        return
    if exits_of(config) is None:
        raise ConfigError(
            f"patience is {patience}, and this model has no classifiers to exit at: "
            "albertkit finetune text-classification --early-exit makes a model that has"
        )
    most = most_patience(config)
    if not isinstance(patience, int) or not 1 <= patience <= most:
        raise ConfigError(
            f"patience is {patience!r}; expected 1 to {most}: with more, nothing leaves before the last of "
            f"{config.depth} depths"
        )


def most_patience(config: AlbertConfig) -> int:
    """Return with which patience something may still leave early: the first depth agrees with none."""
    return config.depth - 2


def agree(before: Tensor, now: Tensor, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Tell of each row whether two depths say the same: (B, K) twice -> bool (B,).

    That is the same label, the same set of labels, or for a regression numbers that are near each other.
    """
    if problem_type == "regression":
        return ((now - before).abs() < tolerance).all(dim=-1)
    if problem_type == "multi_label_classification" or now.shape[-1] == 1:
        return ((now > 0) == (before > 0)).all(dim=-1)
    return now.argmax(dim=-1) == before.argmax(dim=-1)


def exit_depths(logits: Tensor, patience: int, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Return at which depth each row leaves, from 1: (L, B, K) -> (B,).

    It is the first at which `patience` depths, one after the other, have agreed with the one before each.
    """
    depths = torch.full((logits.shape[1],), len(logits), device=logits.device)
    agreed = torch.zeros_like(depths)
    for depth in range(2, len(logits) + 1):
        same = agree(logits[depth - 2], logits[depth - 1], problem_type=problem_type, tolerance=tolerance)
        agreed = torch.where(same, agreed + 1, 0)
        depths = torch.where(agreed >= patience, depths.clamp(max=depth), depths)
    return depths


def weighted_mean(losses: Sequence[Tensor]) -> Tensor:
    """Return the mean of the losses of depths 1 to L, weighted so (the paper's equation 3)."""
    weighted = [depth * loss for depth, loss in enumerate(losses, start=1)]
    return torch.stack(weighted).sum() / sum(range(1, len(losses) + 1))
