"""All errors that albertkit raises on purpose.

    AlbertKitError
    ├── ConfigError       (ValueError)   invalid settings, unknown arguments
    ├── ModelNotFoundError (OSError)     a name or folder without a model
    ├── CheckpointError   (OSError)      missing or damaged weights
    │   └── ShapeMismatchError (RuntimeError)  weights with a different shape than the model's
    ├── TokenizerError    (ValueError)   missing, damaged or unsupported vocabulary files
    ├── DataError         (ValueError)   text, shards and labels that cannot be used
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
from collections.abc import Iterable


class AlbertKitError(Exception):
    """Base class of all errors that albertkit raises on purpose."""


class ConfigError(AlbertKitError, ValueError):
    """Settings that are not valid or do not match each other."""


class ModelNotFoundError(AlbertKitError, OSError):
    """A model name or folder that could not be resolved to files."""


class CheckpointError(AlbertKitError, OSError):
    """Weights that are missing, damaged, or do not fit the model."""


class ShapeMismatchError(CheckpointError, RuntimeError):
    """Weights with a different shape than the model's."""


class TokenizerError(AlbertKitError, ValueError):
    """A vocabulary file that is missing, empty, damaged or of another format."""


class DataError(AlbertKitError, ValueError):
    """Text, shards or labels that cannot be used."""


class TrainingError(AlbertKitError, RuntimeError):
    """A training run that cannot start, resume or continue."""


class DiskFullError(AlbertKitError, OSError):
    """No space left to write a file. Files that were complete are kept."""


class UploadError(AlbertKitError, OSError):
    """Files that could not be uploaded to the hub."""


class MissingExtraError(AlbertKitError, ImportError):
    """A library of an optional extra that is not installed."""


class UnknownTokensWarning(UserWarning):
    """Texts that consist mostly of tokens that are not in the vocabulary."""


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the position of the caller's code outside of albertkit."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "albertkit":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the closest known name, or "" if no name is close."""
    nearest = _nearest(name, known)
    return f" (did you mean {nearest!r}?)" if nearest else ""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return help for an unknown name in a message: the closest known name, or all known names."""
    known = list(known)
    nearest = _nearest(name, known)
    return f"Did you mean {nearest!r}?" if nearest else f"Expected one of {', '.join(known)}."


def _nearest(name: object, known: Iterable[str]) -> str | None:
    name = str(name)
    # Names with different numbers are different names, not misspellings: float8 is not float32.
    digits = sorted(filter(str.isdigit, name))
    near = [one for one in known if not digits or digits == sorted(filter(str.isdigit, one))]
    other_case = [one for one in near if one.casefold() == name.casefold()]
    return next(iter(other_case or difflib.get_close_matches(name, near, n=1)), None)
