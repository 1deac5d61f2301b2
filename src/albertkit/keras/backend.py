"""Keras, or what to install. The classes of this room derive from its own, so nothing works without."""

from albertkit.errors import MissingExtraError

try:
    import keras
except ImportError as error:
    raise MissingExtraError(
        f"albertkit.keras needs Keras 3 and one backend for it ({error}): pip install 'albertkit[keras]' "
        "tensorflow, or install jax and set KERAS_BACKEND=jax before Python starts"
    ) from error

__all__ = ["keras"]
