"""Every error albertkit raises on purpose.

    AlbertKitError
    ├── ConfigError       (ValueError)   sizes that do not fit, unknown arguments
    ├── ModelNotFoundError (OSError)     a name or folder without a model
    ├── CheckpointError   (OSError)      weights missing or damaged
    │   └── ShapeMismatchError (RuntimeError)  weights of another shape than the model's
    ├── TokenizerError    (ValueError)   vocabulary files missing, damaged or foreign
    ├── DataError         (ValueError)   corpora, shards and labels that cannot be used
    ├── TrainingError     (RuntimeError) a run that cannot start, resume or continue
    ├── DiskFullError     (OSError)      no space left to write a file
    ├── UploadError       (OSError)      files that the hub did not take
    └── MissingExtraError (ImportError)  a library of an optional extra that is not installed

Each also derives from the built-in error that code written for `transformers` expects.
A message gives the received value, the expected value, and what to do.
"""

import difflib
import sys
import warnings
from collections.abc import Iterable


class AlbertKitError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(AlbertKitError, ValueError):
    """A configuration that describes no possible model."""


class ModelNotFoundError(AlbertKitError, OSError):
    """A model name or folder that could not be resolved to files."""


class CheckpointError(AlbertKitError, OSError):
    """Weights that are missing, damaged, or do not fit the model."""


class ShapeMismatchError(CheckpointError, RuntimeError):
    """Weights of another shape than the model's."""


class TokenizerError(AlbertKitError, ValueError):
    """A vocabulary file that is missing, empty, truncated or not what its name says."""


class DataError(AlbertKitError, ValueError):
    """Text, shards or labels that cannot be used."""


class TrainingError(AlbertKitError, RuntimeError):
    """A training run that cannot start, resume or continue."""


class DiskFullError(AlbertKitError, OSError):
    """No space is left to write a file; complete files were kept."""


class UploadError(AlbertKitError, OSError):
    """Files that could not be uploaded to the hub."""


class MissingExtraError(AlbertKitError, ImportError):
    """A library of an optional extra that is not installed."""


class UnknownTokensWarning(UserWarning):
    """Texts consist mostly of tokens that the vocabulary does not have."""


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line of the caller's code outside of albertkit."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "albertkit":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the nearest known name, or "" if no name is close."""
    nearest = _nearest(name, known)
    return f" (did you mean {nearest!r}?)" if nearest else ""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the part of a message to help with an unknown name: the nearest known name, or all of them."""
    known = list(known)
    nearest = _nearest(name, known)
    return f"did you mean {nearest!r}?" if nearest else f"known are {', '.join(known)}"


def _nearest(name: object, known: Iterable[str]) -> str | None:
    name = str(name)
    # A name with another number is another name and not a misspelling: float8 is not float32.
    digits = sorted(filter(str.isdigit, name))
    near = [one for one in known if not digits or digits == sorted(filter(str.isdigit, one))]
    other_case = [one for one in near if one.casefold() == name.casefold()]
    return next(iter(other_case or difflib.get_close_matches(name, near, n=1)), None)
