"""What is measured: the engines of this package, and other libraries with the same weights.

All are given the same rows and say what their heads say. An engine computes the tokens that the model's task
reads, and cuts many rows into batches that suit it; `transformers`, and its graph in ONNX Runtime, compute
one padded batch, as their pipeline does.

Shapes: B rows, T tokens of the longest, R tokens read of a row, K scores.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albertkit.engines.choosing import ENGINES, make_engine
from albertkit.engines.plain import Batch, evaluating, pad_batch
from albertkit.errors import ConfigError, MissingExtraError, suggestion
from albertkit.extras import optional
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.task_heads import AlbertForQuestionAnswering, AlbertForTokenClassification
from albertkit.tasks.engine import Engine, Output, every_token, first_token
from albertkit.tasks.rows import Row
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.interface import TokenizerInterface

transformers = optional("transformers", extra="test")
onnxruntime = optional("onnxruntime")

_Call = Callable[[Mapping[str, Any]], Any]

OTHERS = ("transformers", "onnxruntime")
TEXTS_AT_ONCE = 32
"""Texts of a batch of the other libraries."""
_READING_ALL = (AlbertForTokenClassification, AlbertForQuestionAnswering, AlbertModel)
_OPSET = 17


class Side(ABC):
    """Something that computes rows and texts."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute rows that are given at once."""

    @abstractmethod
    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Cut texts into tokens and compute them all."""

    @abstractmethod
    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the scores of each row's first token or of the whole row, (B, K): to compare the sides.

        Of question answering those of the start, (B, 1).
        """


class OwnEngine(Side):
    """An engine of this package."""

    def __init__(
        self, name: str, engine: Engine, model: AlbertPreTrainedModel, tokenizer: TokenizerInterface
    ):
        super().__init__(name)
        self.engine, self.tokenizer = engine, tokenizer
        self.max_length = model.config.max_position_embeddings
        self.output: Output = "hidden_states" if type(model) is AlbertModel else "logits"
        self.read = every_token if isinstance(model, _READING_ALL) else first_token
        self.is_answering = isinstance(model, AlbertForQuestionAnswering)

    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute rows; the engine plans its batches."""
        return self.engine.run(rows, output=self.output, read=self.read)

    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Compute texts; rows of about one length share a batch."""
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=True)
        return self.compute_rows(rows)

    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """As `Side.first_scores`."""
        scores = np.stack([one[0] for one in self.compute_rows(rows)])  # B of (R, K) -> (B, K)
        return scores[:, :1] if self.is_answering else scores


class OtherLibrary(Side):
    """A padded batch for a function, and the tokenizer of `transformers`."""

    def __init__(self, name: str, call: _Call, tokenizer: Any, model: AlbertPreTrainedModel) -> None:
        super().__init__(name)
        self.call, self.tokenizer = call, tokenizer
        self.device = model.device
        self.pad_token_id = model.config.pad_token_id
        self.max_length = model.config.max_position_embeddings
        self.is_answering = isinstance(model, AlbertForQuestionAnswering)

    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute one padded batch."""
        return self.call(pad_batch(rows, pad_token_id=self.pad_token_id, device=self.device))

    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Compute batches of texts in their order."""
        return [
            self.call(
                self.tokenizer(
                    texts[start : start + TEXTS_AT_ONCE],
                    padding=True,
                    truncation=True,
                    max_length=self.max_length,
                    return_token_type_ids=True,
                    return_tensors="pt",
                ).to(self.device)
            )
            for start in range(0, len(texts), TEXTS_AT_ONCE)
        ]

    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """As `Side.first_scores`."""
        scores = torch.as_tensor(self.compute_rows(rows)).float().cpu().numpy()
        if self.is_answering:
            return scores[:, :1]  # (B, T) -> (B, 1)
        return scores[:, 0] if scores.ndim == 3 else scores  # (B, T, K) -> (B, K)


def own_sides(
    model: AlbertPreTrainedModel, tokenizer: TokenizerInterface
) -> tuple[list[OwnEngine], dict[str, str]]:
    """Return the engines that can compute a model here, `plain` first, and why others cannot."""
    sides, left_out = [], {}
    for name in sorted(set(ENGINES) - {"auto"}, key=lambda name: (name != "plain", ENGINES.index(name))):
        try:
            sides.append(OwnEngine(name, make_engine(model, name), model, tokenizer))
        except (ConfigError, MissingExtraError) as error:
            left_out[name] = str(error)
    return sides, left_out


def other_sides(
    names: Sequence[str], model: AlbertPreTrainedModel, tokenizer: TokenizerInterface, folder: Path
) -> list[OtherLibrary]:
    """Return other libraries with the weights of a model.

    Args:
        names: some of `OTHERS`.
        model, tokenizer: written to the folder, and read from there by `transformers`.
        folder: empty; needed as long as the sides are.

    Raises:
        ConfigError: an unknown name, or ONNX Runtime for a model that is not on the CPU.
        MissingExtraError: a library is not installed.
    """
    for name in names:
        if name not in OTHERS:
            raise ConfigError(f"there is nothing named {name!r} to compare with; {suggestion(name, OTHERS)}")
    if not names:
        return []
    model_class = getattr(transformers, type(model).__name__)
    if "onnxruntime" in names:
        _ = onnxruntime.InferenceSession  # so that it is missed before anything is measured
        if model.device.type != "cpu":
            raise ConfigError(
                f"onnxruntime is compared on the CPU, and the model is on {model.device}: add --device cpu"
            )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    theirs = model_class.from_pretrained(folder, dtype=model.dtype).to(model.device).eval()
    cutter = transformers.AutoTokenizer.from_pretrained(folder)
    module = _FirstOutput(theirs)
    calls = {"transformers": lambda: _as_module(module), "onnxruntime": lambda: _as_graph(module, folder)}
    return [OtherLibrary(name, calls[name](), cutter, model) for name in names]


class _FirstOutput(nn.Module):
    """A model of `transformers` with positional inputs, and the scores alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.has_choices = type(model).__name__ == "AlbertForMultipleChoice"

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        inputs = (input_ids, attention_mask, token_type_ids)
        if self.has_choices:
            inputs = tuple(one[:, None] for one in inputs)  # (B, T) -> (B, 1, T)
        return self.model(*inputs, return_dict=False)[0]


def _as_module(module: _FirstOutput) -> _Call:
    def call(inputs: Mapping[str, Any]) -> Any:
        with evaluating(module):
            return module(*(inputs[name] for name in Batch.__annotations__)).cpu()

    return call


def _as_graph(module: _FirstOutput, folder: Path) -> _Call:
    """Trace the module into a graph, and return what runs it in ONNX Runtime."""
    names = list(Batch.__annotations__)
    example = tuple(torch.ones(2, 8, dtype=torch.long) for _ in names)
    file = folder / "traced.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            example,
            str(file),
            input_names=names,
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
            opset_version=_OPSET,
            dynamo=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, {name: inputs[name].numpy() for name in names})[0]
