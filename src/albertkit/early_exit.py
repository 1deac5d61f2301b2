"""What a config says of early exit: whether a model has a classifier after each depth, and how it leaves."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

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


def exit_count(config: AlbertConfig) -> int:
    """Return how many classifiers a model has besides that of the last depth; 0 if one is shared."""
    exits = exits_of(config)
    return config.depth - 1 if exits is not None and exits.classifiers == "each" else 0


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
