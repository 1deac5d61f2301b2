"""The common form of a checkpoint, which every reader returns and every writer takes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albertkit.checkpoints.sentence_modules import SentenceModules, attach
from albertkit.config import AlbertConfig

Format = Literal["hf", "tf1", "julia"]

VOCABULARY_FILES = (
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
)
"""Tokenizer files that belong to a model."""


@dataclass(slots=True)
class Checkpoint:
    """A model from files of any format."""

    format: Format
    config: dict[str, Any]
    """The content of a config.json, with our names and our meaning of "gelu"."""
    tensors: dict[str, np.ndarray]
    """Every tensor by its name in the file, which `names.canonical` understands, in PyTorch's layout."""
    files: list[Path]
    """The files that were read, for checksums."""
    vocabulary: dict[str, bytes] = field(default_factory=dict)
    """Tokenizer files by their names in our folders."""
    pieces: list[str] = field(default_factory=list)
    """Lines of a `.vocab` file (piece, tab, score), the only tokenizer data in Julia's files."""
    notes: list[str] = field(default_factory=list)
    """Decisions of the reader, one sentence each."""
    modules: SentenceModules | None = None
    """The modules of a sentence-transformers folder, which compute the vectors of texts."""

    def to_config(self) -> AlbertConfig:
        config = AlbertConfig.from_dict(self.config)
        if self.modules is not None:
            attach(config, self.modules)
        return config


def vocabulary_in(folder: Path) -> dict[str, bytes]:
    """Return the tokenizer files of a folder; Google's `30k-clean.model` becomes `spiece.model`."""
    files = {name: path.read_bytes() for name in VOCABULARY_FILES if (path := folder / name).is_file()}
    if "spiece.model" not in files:
        models = sorted([*folder.glob("*.model"), *folder.glob("*.spm")])
        models = [path for path in models if path.name == "30k-clean.model"] or models
        if len(models) == 1:
            files["spiece.model"] = models[0].read_bytes()
    return files
