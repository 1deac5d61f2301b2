"""AutoConfig, for code that names no architecture. ALBERT is the only one here."""

from pathlib import Path
from typing import Any, NoReturn

from albertkit.config import AlbertConfig


class AutoConfig:
    """`AutoConfig.from_pretrained` is `AlbertConfig.from_pretrained`."""

    def __init__(self) -> NoReturn:
        raise TypeError("AutoConfig is not instantiated; use AutoConfig.from_pretrained")

    @staticmethod
    def from_pretrained(pretrained_model_name_or_path: str | Path, **options: Any) -> AlbertConfig:
        """As `AlbertConfig.from_pretrained`.

        Raises:
            ConfigError: the checkpoint's model_type is not "albert".
        """
        return AlbertConfig.from_pretrained(pretrained_model_name_or_path, **options)
