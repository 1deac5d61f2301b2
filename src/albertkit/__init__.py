"""albertkit: ALBERT (A Lite BERT) models for inference, fine-tuning and pretraining.

Names are imported on first use, so `import albertkit` is fast and does not load PyTorch. You can import a
class whose extra is not installed, for example for annotations. Using it raises MissingExtraError.
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - `pathlib` takes time to import
    _LINES = [line.split() for line in _stub if line.startswith("from ")]
_MODULES = {name: module for _, module, _, name, *_ in _LINES}
"""The module of each public name. `__init__.pyi` lists the same names for type checkers."""

# Without the Keras classes, because `import *` would import Keras.
__all__ = [name for name in _MODULES if "keras" not in _MODULES[name]]  # pyright: ignore[reportUnsupportedDunderAll]
__all__ += ["__version__"]

_TRANSFORMERS = ["Trainer", "TrainingArguments", "TrainerCallback", "EarlyStoppingCallback", "set_seed"]
_TRANSFORMERS += [f"DataCollator{use}" for use in ("WithPadding", "ForLanguageModeling")]
"""Names of `transformers` that are often expected here."""


def __getattr__(name: str) -> Any:
    if name in _TRANSFORMERS:
        # `from albertkit import` drops the message of an AttributeError, but `hasattr` catches nothing else.
        # No class can derive from both errors. A module for each name, or an import hook, would be more code
        # than this check. If Python renames its function, only the message of `from` imports is lost.
        is_imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if is_imported else AttributeError)(
            f"albertkit has no {name}, but {name} of transformers works with albertkit's models: "
            f"from transformers import {name}. See docs/how-to/transformers-trainer.md"
        )
    if name not in _MODULES:
        raise AttributeError(f"module 'albertkit' has no attribute {name!r}")
    from albertkit.errors import MissingExtraError
    from albertkit.extras import MissingName, require

    try:
        try:
            value = getattr(importlib.import_module(_MODULES[name]), name)
        except ModuleNotFoundError:  # training modules import torch at their top
            require("torch", extra="train")
            raise
    except MissingExtraError as error:
        return MissingName(name, (), {"message": f"albertkit.{name}: {error}"})
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
