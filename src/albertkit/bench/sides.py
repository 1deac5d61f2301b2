"""What is measured: the engines of this package, and other libraries with the same weights.

All are given the same rows and say what their heads say. An engine computes the tokens that the model's task
reads, and cuts many rows into batches that suit it; `transformers`, and its graph in ONNX Runtime, compute
one padded batch, as their pipeline does.

Shapes: B rows, T tokens of the longest, R tokens read of a row, K scores.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.bench.timing import Side
from albertkit.engines.choosing import ENGINES, FLOAT32_ENGINES, make_engine
from albertkit.engines.engine import Engine, Row, every_token, first_token
from albertkit.engines.light_model import LightModel, Model, class_name
from albertkit.errors import ConfigError, MissingExtraError, suggestion
from albertkit.extras import optional
from albertkit.heads import HEADS, Output
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase

torch = optional("torch", extra="test")
transformers = optional("transformers", extra="test")

OTHERS = ("transformers", "onnxruntime")


class OwnEngine(Side):
    """An engine of this package."""

    def __init__(self, name: str, engine: Engine, model: Model, tokenizer: TokenizerBase):
        super().__init__(name)
        head = HEADS[class_name(model)]
        output, scores = next(iter(head.scores.items()))
        self.output: Output = cast(Output, output)
        reads_all = not scores.reads_first and head.task != "fill-mask"
        self.engine, self.tokenizer = engine, tokenizer
        self.max_length = model.config.max_position_embeddings
        self.read = every_token if reads_all else first_token
        self.columns = None if len(scores.names) == 1 else 1
        self.dtype = "float32" if name in FLOAT32_ENGINES else str(model.dtype).removeprefix("torch.")

    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute rows; the engine plans its batches."""
        return self.engine.run(rows, output=self.output, read=self.read)

    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Compute texts; rows of about one length share a batch."""
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=True)
        return self.compute_rows(rows)

    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Compute the scores to compare, (B, 1) for question answering and (B, K) for others."""
        scores = np.stack([one[0] for one in self.compute_rows(rows)])  # B of (R, K) -> (B, K)
        return scores[:, : self.columns]


def own_sides(model: Model, tokenizer: TokenizerBase) -> tuple[list[OwnEngine], dict[str, str]]:
    """Return the engines that can compute a model here, `plain` first, and why others cannot.

    A light model stays one: the engines of torch share a module with its weights.
    """
    sides, left_out = [], {}
    module = copy.copy(model) if isinstance(model, LightModel) else model
    for name in sorted(set(ENGINES) - {"auto"}, key=lambda name: (name != "plain", ENGINES.index(name))):
        computed = module if name in ("torch", "plain") else model
        try:
            sides.append(OwnEngine(name, make_engine(computed, name), computed, tokenizer))
        except (ConfigError, MissingExtraError) as error:
            left_out[name] = str(error)
    return sides, left_out


def other_sides(names: Sequence[str], model: Model, tokenizer: TokenizerBase, folder: Path) -> Sequence[Side]:
    """Return other libraries with the weights of a model.

    Args:
        names: some of `OTHERS`.
        model: saved to the folder, where the other libraries read it.
        tokenizer: saved beside the model.
        folder: empty; needed as long as the sides are.

    Raises:
        ConfigError: an unknown name, or ONNX Runtime for a model that is not on the CPU.
        MissingExtraError: a library is not installed.
    """
    for name in names:
        if name not in OTHERS:
            raise ConfigError(f"there is nothing named {name!r} to compare with. {suggestion(name, OTHERS)}")
    if not names:
        return []
    _ = torch.nn, getattr(transformers, class_name(model))  # so that they are missed before the import
    from albertkit.bench.others import make_sides

    return make_sides(names, model, tokenizer, folder)
