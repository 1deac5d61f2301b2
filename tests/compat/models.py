"""The models for the tools: tiny random models of each head and of several groups, and the bundled model.

`write_cases` writes them with albertkit: in the layout of the Hugging Face hub, as ONNX and for
transformers.js, with inputs and outputs in JSON. The PyTorch classes of albertkit compute the outputs from
the folder.
"""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from comparing import CASES
from torch import Tensor

import albertkit
from albertkit.checkpoints import formats
from albertkit.config import AlbertConfig
from albertkit.export.onnx import export_onnx
from albertkit.files import write_json
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.vocabulary import train_vocabulary
from albertkit.web.export import export_web

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = [
    "The captain opened the silver key's box, in 1847: “nobody knew why”.",
    "It rained 12,000 times before dinner in Zürich, and she waited.",
    "Short.",
]
TINY: dict[str, Any] = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "initializer_range": 0.2,  # a wrong mask or activation exceeds the bound by far
}


@dataclass(frozen=True)
class Model:
    """The name, head and settings of a model."""

    name: str
    head: str
    settings: dict[str, Any] = field(default_factory=dict)


MODELS = (
    Model("AlbertModel", "AlbertModel"),
    Model("AlbertForPreTraining", "AlbertForPreTraining"),
    Model("AlbertForPreTraining with 2 groups", "AlbertForPreTraining", {"num_hidden_groups": 2}),
    Model("AlbertForPreTraining with 2 inner layers", "AlbertForPreTraining", {"inner_group_num": 2}),
    Model("AlbertForMaskedLM", "AlbertForMaskedLM"),
    Model("AlbertForSequenceClassification", "AlbertForSequenceClassification", {"num_labels": 3}),
    Model("AlbertForTokenClassification", "AlbertForTokenClassification", {"num_labels": 5}),
    Model("AlbertForQuestionAnswering", "AlbertForQuestionAnswering"),
    Model("AlbertForMultipleChoice", "AlbertForMultipleChoice"),
)
BUNDLED = Model("bundled", "AlbertForPreTraining")


def write_cases(work: Path) -> None:
    """Write every model and its case to a new folder."""
    (work / CASES).mkdir(parents=True)
    (work / "onnx").mkdir()
    (work / "web").mkdir()
    lines = [line for page in sorted(DOCS.rglob("*.md")) for line in page.read_text("utf-8").splitlines()]
    train_vocabulary(lines, work / "vocabulary", vocab_size=500, num_threads=1)
    tokenizer = AlbertTokenizer(work / "vocabulary" / "spiece.model")
    for model in MODELS:
        _save(_random_model(model, len(tokenizer)), tokenizer, work / "hf" / model.name)
        _write_case(model, tokenizer, work)
    bundled = getattr(albertkit, BUNDLED.head).from_pretrained("bundled")
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    _save(bundled, tokenizer, work / "hf" / BUNDLED.name)
    _write_case(BUNDLED, tokenizer, work)


def compute(head: str, folder: Path, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Return the outputs of albertkit's model class for a folder."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # warnings about unused heads
        model = getattr(albertkit, head).from_pretrained(folder).eval()
    with torch.no_grad():
        outputs = model(**inputs)
    return {name: outputs[name].numpy() for name in outputs.keys()}  # noqa: SIM118 - not a mapping


def _encoder_outputs(folder: Path, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Return the outputs of the encoder in a folder, whatever its head."""
    has_pooler = any(name.endswith("pooler.weight") for name in formats.read(folder).tensors)
    outputs = compute("AlbertModel", folder, inputs)
    return outputs if has_pooler else {"last_hidden_state": outputs["last_hidden_state"]}


def _random_model(model: Model, vocab_size: int) -> Any:
    """Return a model with random parameters, including biases and LayerNorms."""
    torch.manual_seed(0)
    network = getattr(albertkit, model.head)(AlbertConfig(vocab_size=vocab_size, **TINY, **model.settings))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


def _save(model: Any, tokenizer: TokenizerBase, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_case(model: Model, tokenizer: TokenizerBase, work: Path) -> None:
    folder = work / "hf" / model.name
    export_onnx(folder, work / "onnx" / model.name, architecture=model.head, all_inputs=True)
    export_web(folder, work / "web" / model.name, int8=False)
    inputs = dict(tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt"))
    if model.head == "AlbertForMultipleChoice":  # (B, T) -> (B, C, T)
        inputs = {name: torch.stack([values, values.flip(0)], dim=1) for name, values in inputs.items()}
    encoder = {} if model.head == "AlbertForMultipleChoice" else _encoder_outputs(folder, inputs)
    embed = albertkit.pipeline("feature-extraction", str(folder), pooling="mean")
    vectors = embed(TEXTS, return_tensors="np") if encoder else []
    outputs = compute(model.head, folder, inputs)
    case = {
        "name": model.name,
        "head": model.head,
        "folder": f"hf/{model.name}",
        "onnx": f"onnx/{model.name}",
        "web": f"web/{model.name}",
        "texts": TEXTS,
        "ids": [tokenizer(text)["input_ids"] for text in TEXTS],
        "inputs": {name: values.tolist() for name, values in inputs.items()},
        "outputs": {name: values.tolist() for name, values in outputs.items()},
        "vectors": [vector.tolist() for vector in vectors],
        "encoder": {name: values.tolist() for name, values in encoder.items()},
    }
    write_json(work / CASES / f"{model.name}.json", case)
