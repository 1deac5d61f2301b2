"""All errors that albertkit raises on purpose.

    AlbertKitError
    ├── ConfigError       (ValueError)   invalid settings, unknown arguments
    ├── ModelNotFoundError (OSError)     a name or folder without a model
    ├── CheckpointError   (OSError)      missing or damaged weights
    │   └── ShapeMismatchError (RuntimeError)  weights with a different shape than the model's
    ├── TokenizerError    (ValueError)   missing, damaged or unsupported vocabulary files
    ├── DataError         (ValueError)   text, shards and labels that cannot be used
    │   └── TooLongError                 a text that exceeds the maximum length
    ├── TrainingError     (RuntimeError) a run that cannot start, resume or continue
    ├── DiskFullError     (OSError)      no space left to write a file
    ├── UploadError       (OSError)      files that could not be uploaded to the hub
    └── MissingExtraError (ImportError)  a library of an optional extra that is not installed

Each error also derives from the built-in error that code for `transformers` expects.
A message gives the received value, the expected value, and what to do.
"""

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

OTHER_NAMES = {
    "lr": "learning_rate",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size",
    "max_steps": "steps",
    "warmup_ratio": "warmup",
    "gradient_accumulation_steps": "accumulation",
    "early_stopping_patience": "early_stopping",
    "metric_for_best_model": "best_metric",
    "eval_steps": "evaluate_every",
    "logging_steps": "log_every",
    "save_steps": "save_every",
    "save_total_limit": "keep_checkpoints",
    "lr_scheduler_type": "schedule",
    "mlm_probability": "masked_lm_probability",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "return_all_scores": "top_k=None",
    "grouped_entities": "aggregation_strategy='simple'",
    "pad_to_max_length": "padding='max_length'",
}
"""Name in other libraries -> name in albertkit, for suggestions."""
_MAX_REPR = 80  # maximum number of characters of a value in a message
_CLOSE = 0.65  # minimum similarity of a suggestion: text-generation is not feature-extraction (0.61)


class AlbertKitError(Exception):
    """Base class of all errors that albertkit raises on purpose."""

    inputs: tuple[int, ...] = ()
    """For errors of pipelines: the indices of the inputs that cannot be answered, counted from 0."""


class ConfigError(AlbertKitError, ValueError):
    """Raised when a setting, an argument or a config is invalid, or when they do not match."""


class ModelNotFoundError(AlbertKitError, OSError):
    """Raised when a model name or folder does not lead to the files of a model."""


class CheckpointError(AlbertKitError, OSError):
    """Raised when weights are missing or damaged, or do not fit the model."""


class ShapeMismatchError(CheckpointError, RuntimeError):
    """Raised when weights have a different shape than the model expects."""


class TokenizerError(AlbertKitError, ValueError):
    """Raised when a vocabulary file is missing, empty or damaged, or has an unsupported format."""


class DataError(AlbertKitError, ValueError):
    """Raised when text, shards or labels cannot be read or used."""


class TooLongError(DataError):
    """Raised when a text has more tokens than a model can read, and must not be truncated.

    Args:
        reason: the text and its length, as a sentence.
        tokens: number of tokens of the text, including special tokens.
        limit: maximum number of tokens.
    """

    def __init__(self, reason: str, tokens: int, limit: int) -> None:
        super().__init__(reason, tokens, limit)
        self.tokens, self.limit = tokens, limit

    @property
    def reason(self) -> str:
        """The text and its length, without advice."""
        return self.args[0]

    def __str__(self) -> str:
        return f"{self.reason} Split it into shorter texts, or pass truncation=True."


class TrainingError(AlbertKitError, RuntimeError):
    """Raised when a training run cannot start, resume or continue."""


class DiskFullError(AlbertKitError, OSError):
    """Raised when the disk has no space left for a file. Complete files are kept."""


class UploadError(AlbertKitError, OSError):
    """Raised when files could not be uploaded to the hub."""


class MissingExtraError(AlbertKitError, ImportError):
    """Raised when a library of an optional extra is not installed."""


class UnknownTokensWarning(UserWarning):
    """Warning about texts that consist mostly of tokens that are not in the vocabulary."""


@contextmanager
def reading(path: str | Path, error: type[AlbertKitError]) -> Iterator[None]:
    """Convert every exception while a file is read to an error that names the file.

    This is the only boundary of a file format. The code inside raises ValueError for damage, or lets the
    libraries raise what they like. Errors of albertkit that name no file of the folder get the path in front.
    """
    try:
        yield
    except AlbertKitError as cause:
        names = {str(path), str(Path(path).parent)} - {"."}
        if isinstance(cause, error) and not any(name in str(cause) for name in names):
            cause.args = (f"{path}: {cause.args[0]}", *cause.args[1:])
        raise
    except FileNotFoundError as cause:
        raise error(f"there is no file {path}") from cause
    except Exception as cause:
        reason = str(cause) if type(cause) is ValueError else f"{type(cause).__name__}: {cause}"
        raise error(f"{path} is damaged or incomplete, or has another format ({reason[:300]})") from cause


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the position of the caller's code outside of albertkit."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "albertkit":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def short(value: object) -> str:
    """Return the `repr` of a value for a message, with "..." in place of the middle of a long one."""
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 20]}...{text[-17:]}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the closest known name, or "" if no name is close."""
    meant = nearest(name, known)
    return f" (did you mean {meant!r}?)" if meant else ""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return help for an unknown name in a message: the closest known name, or all known names."""
    known = list(known)
    meant = nearest(name, known)
    return f"Did you mean {meant!r}?" if meant else f"Expected one of {', '.join(known)}."


def check_arguments(function: str, given: Iterable[str], known: Iterable[str], hint: str = "") -> None:
    """Raise ConfigError if a name is not the name of an argument; the message suggests the closest one."""
    known = list(known)
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            question = f" Did you mean {meant!r}?" if meant else ""
            expected = f"Expected some of {', '.join(known)}.{hint}"
            raise ConfigError(f"{function}: unknown argument {name!r}.{question} {expected}")


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the closest known name, or None if no name is close."""
    name, known = str(name), list(known)
    if (other := OTHER_NAMES.get(name, "")).partition("=")[0] in known:
        return other
    # Names with different numbers are different names, not misspellings: float8 is not float32.
    digits = sorted(filter(str.isdigit, name))
    near = [other for other in known if not digits or digits == sorted(filter(str.isdigit, other))]
    other_case = [other for other in near if other.casefold() == name.casefold()]
    return next(iter(other_case or difflib.get_close_matches(name, near, n=1, cutoff=_CLOSE)), None)
