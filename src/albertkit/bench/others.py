"""Other libraries with the weights of a model: `transformers`, and its graph in ONNX Runtime.

This module imports torch.

Shapes: B rows, T tokens of the longest, K scores.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albertkit.bench.timing import Side
from albertkit.engines.engine import Row
from albertkit.engines.light_model import Model, class_name
from albertkit.engines.plain import Batch, evaluating, pad_batch
from albertkit.errors import ConfigError
from albertkit.extras import optional
from albertkit.heads import HEADS
from albertkit.tokenization.base import TokenizerBase

transformers = optional("transformers", extra="test")
onnxruntime = optional("onnxruntime")

_Call = Callable[[Mapping[str, Any]], Any]

_BATCH_SIZE = 32  # texts
_OPSET = 17


class OtherLibrary(Side):
    """A function that computes padded batches, and the tokenizer of `transformers`."""

    def __init__(self, name: str, call: _Call, tokenizer: Any, model: Model) -> None:
        super().__init__(name)
        self.call, self.tokenizer = call, tokenizer
        self.device = model.device
        self.pad_token_id = model.config.pad_token_id
        self.max_length = model.config.max_position_embeddings
        self.has_columns = len(next(iter(HEADS[class_name(model)].scores.values())).names) > 1

    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute one padded batch."""
        return self.call(pad_batch(rows, pad_token_id=self.pad_token_id, device=self.device))

    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Tokenize and compute texts, in batches in the order of the texts."""
        return [
            self.call(
                self.tokenizer(
                    texts[start : start + _BATCH_SIZE],
                    padding=True,
                    truncation=True,
                    max_length=self.max_length,
                    return_token_type_ids=True,
                    return_tensors="pt",
                ).to(self.device)
            )
            for start in range(0, len(texts), _BATCH_SIZE)
        ]

    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the scores to compare: (B, 1) for question answering, (B, K) for other heads."""
        scores = torch.as_tensor(self.compute_rows(rows)).float().cpu().numpy()
        if self.has_columns:
            return scores[:, :1]  # (B, T) -> (B, 1)
        return scores[:, 0] if scores.ndim == 3 else scores  # (B, T, K) -> (B, K)


def make_sides(
    names: Sequence[str], model: Model, tokenizer: TokenizerBase, folder: Path
) -> list[OtherLibrary]:
    """Return the libraries with these names; see `sides.other_sides`."""
    if "onnxruntime" in names:
        _ = onnxruntime.InferenceSession  # raises if it is not installed
        if model.device.type != "cpu" or model.dtype != torch.float32:
            dtype = str(model.dtype).removeprefix("torch.")
            raise ConfigError(
                f"onnxruntime is compared in float32 on the CPU, but the model is in {dtype} on "
                f"{model.device}. Set --dtype float32 and --device cpu."
            )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model_class = getattr(transformers, class_name(model))
    theirs = model_class.from_pretrained(folder, dtype=model.dtype).to(model.device).eval()
    cutter = transformers.AutoTokenizer.from_pretrained(folder)
    module = _FirstOutput(theirs)
    calls = {"transformers": lambda: _as_module(module), "onnxruntime": lambda: _as_graph(module, folder)}
    return [OtherLibrary(name, calls[name](), cutter, model) for name in names]


class _FirstOutput(nn.Module):
    """A model of `transformers` that takes positional inputs and returns only the scores."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.has_choices = HEADS[type(model).__name__].has_choices

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        inputs = (input_ids, attention_mask, token_type_ids)
        if self.has_choices:
            inputs = tuple(values[:, None] for values in inputs)  # (B, T) -> (B, 1, T)
        return self.model(*inputs, return_dict=False)[0]


def _as_module(module: _FirstOutput) -> _Call:
    def call(inputs: Mapping[str, Any]) -> Any:
        with evaluating(module):
            return module(*(inputs[name] for name in Batch.__annotations__)).cpu()

    return call


def _as_graph(module: _FirstOutput, folder: Path) -> _Call:
    """Trace the module as a graph, and return the function that runs it in ONNX Runtime."""
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
