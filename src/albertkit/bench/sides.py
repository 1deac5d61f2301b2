"""The model to measure, and what computes it: the engines of albertkit, and other libraries.

All sides compute the scores of the same rows with the same weights. An engine computes the tokens that the
model's task reads, and chooses its batches. `transformers`, and its graph in ONNX Runtime, compute one padded
batch, as their pipeline does.

Shapes: B rows, T tokens of the longest row, R read tokens of a row, K scores of a token.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.bench.timing import Side
from albertkit.checkpoints.formats import load_config
from albertkit.devices import Device, best_device, read_device
from albertkit.engines.choosing import ENGINES, FLOAT32_ENGINES, load_complete_model, make_engine
from albertkit.engines.engine import Engine, Row, every_token, first_token
from albertkit.engines.light_model import LightModel, Model, class_name
from albertkit.errors import ConfigError, MissingExtraError, suggestion
from albertkit.extras import optional
from albertkit.heads import HEADS, Output, head_of
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase
from albertkit.vocabularies import load_tokenizer

torch = optional("torch", extra="test")
transformers = optional("transformers", extra="test")

OTHERS = ("transformers", "onnxruntime")


def load(name: str, *, device: Device = None, dtype: str | None = None) -> tuple[Model, TokenizerBase]:
    """Return a model with its own head, and its tokenizer. A pretraining model is an `AlbertForMaskedLM`.

    Args:
        name: A folder, a checkpoint of another library, or a hub name.
        device: A device, as for `pipeline`; None for the best single device.
        dtype: Data type of the weights; None for float32.

    Raises:
        ConfigError: The config does not name a model class.
        AlbertKitError: As for `pipeline`.
    """
    config = load_config(name)
    classes = config.architectures or []
    if not classes:
        raise ConfigError(
            f"{name}: the config does not name a model class. Add one to `architectures` in its config.json: "
            f"{', '.join(HEADS)}."
        )
    architecture = next((each for each in classes if each in HEADS), classes[0])
    if architecture == "AlbertForPreTraining":
        architecture = "AlbertForMaskedLM"
    head_of(architecture)  # raises an error for unknown classes
    model = load_complete_model(
        name, architecture, device=read_device(device) or best_device(), config=config, dtype=dtype
    )
    return model, load_tokenizer(name)


class OwnEngine(Side):
    """An engine of albertkit."""

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
        """Compute rows. The engine chooses the batches."""
        return self.engine.run(rows, output=self.output, read=self.read)

    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Tokenize and compute texts. Texts of similar length share a batch."""
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=True)
        return self.compute_rows(rows)

    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the scores to compare: (B, 1) for question answering, (B, K) for other heads."""
        scores = np.stack([scores[0] for scores in self.compute_rows(rows)])  # B of (R, K) -> (B, K)
        return scores[:, : self.columns]


def own_sides(model: Model, tokenizer: TokenizerBase) -> tuple[list[OwnEngine], dict[str, str]]:
    """Return the engines that can compute a model, `plain` first, and for each other engine the reason.

    A light model stays light: the engines of PyTorch compute a copy with the same weights.
    """
    sides, left_out = [], {}
    module = copy.copy(model) if isinstance(model, LightModel) else model
    for name in ("plain", *(name for name in ENGINES if name not in ("auto", "plain"))):
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
        model: the model. It is saved to the folder, and the other libraries load it from there.
        tokenizer: the tokenizer of the model, which is saved too.
        folder: an empty folder. Keep it as long as you use the sides.

    Raises:
        ConfigError: a name is unknown, or ONNX Runtime is requested for a model that is not in float32 on the
            CPU.
        MissingExtraError: a library is not installed.
    """
    for name in names:
        if name not in OTHERS:
            raise ConfigError(f"there is nothing named {name!r} to compare with. {suggestion(name, OTHERS)}")
    if not names:
        return []
    _ = torch.nn, getattr(transformers, class_name(model))  # raises if one of them is not installed
    from albertkit.bench.others import make_sides

    return make_sides(names, model, tokenizer, folder)
