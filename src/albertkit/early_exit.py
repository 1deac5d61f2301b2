"""The early-exit settings of a config: the classifiers after each layer, and when a row exits."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, short

KEY = "early_exit"
"""The config key of the early-exit settings."""
Classifiers = Literal["each", "shared"]


@dataclass(frozen=True)
class Exits:
    """The early-exit settings of a model."""

    classifiers: Classifiers = "each"
    """"each" means one classifier per layer, "shared" one classifier for all layers."""
    tolerance: float = 0.1
    """For regression: two layers agree if their predictions differ by less than this value."""

    def __post_init__(self) -> None:
        if self.classifiers not in get_args(Classifiers):
            raise ConfigError(f"{KEY}: classifiers is {self.classifiers!r}. Expected 'each' or 'shared'.")
        if not isinstance(self.tolerance, int | float) or not self.tolerance > 0:
            raise ConfigError(f"{KEY}: tolerance is {self.tolerance!r}. Expected a number above 0.")

    def note(self, config: AlbertConfig) -> None:
        """Write these settings into a config."""
        config.extra[KEY] = asdict(self)


def exits_of(config: AlbertConfig) -> Exits | None:
    """Return the early-exit settings of a config, or None if the model has no early exit.

    Raises:
        ConfigError: The settings are not valid.
    """
    given: Any = config.extra.get(KEY)
    if given is None:
        return None
    try:
        return Exits(**given)
    except TypeError as error:
        raise ConfigError(
            f"{KEY} is {short(given)}. Expected an object with classifiers and tolerance."
        ) from error


def exit_count(config: AlbertConfig) -> int:
    """Return the number of classifiers without the last layer's; 0 if all layers share one."""
    exits = exits_of(config)
    return config.depth - 1 if exits is not None and exits.classifiers == "each" else 0


def check_patience(patience: int | None, config: AlbertConfig) -> None:
    """Raise ConfigError if a model with this config cannot exit early with this patience."""
    if patience is None:
        return
    if exits_of(config) is None:
        raise ConfigError(
            f"patience is {patience}, but this model has no classifiers to exit at. To train a model that "
            "has them, use albertkit finetune text-classification --early-exit"
        )
    most = most_patience(config)
    if not isinstance(patience, int) or not 1 <= patience <= most:
        raise ConfigError(
            f"patience is {patience!r}. Expected 1 to {most}: with a larger value, no text exits before the "
            f"last of {config.depth} layers."
        )


def most_patience(config: AlbertConfig) -> int:
    """Return the largest patience with which a row can exit before the last layer."""
    return config.depth - 2
