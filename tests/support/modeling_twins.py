"""Pairs of tiny random models with the same weights, of albertkit and of `transformers`."""

from typing import Any

import pytest
import torch
from torch import Tensor

from albertkit import heads
from albertkit.config import AlbertConfig
from albertkit.modeling.auto import model_class
from albertkit.modeling.pretrained import AlbertPreTrainedModel

HEADS: dict[str, type[AlbertPreTrainedModel]] = {name: model_class(name) for name in heads.HEADS}

TINY: dict[str, Any] = {
    "vocab_size": 60,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    # Larger than the usual 0.02, so that a wrong mask or activation exceeds the tolerance by far.
    "initializer_range": 0.2,
}


def tiny(**values: Any) -> AlbertConfig:
    return AlbertConfig(**{**TINY, **values})


def make(head: str, *, seed: int = 0, **values: Any) -> Any:
    """Return a model in evaluation mode with random parameters, including biases and LayerNorms."""
    torch.manual_seed(seed)
    model = HEADS[head](tiny(**values))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def make_twins(head: str, *, attn_implementation: str = "sdpa", **values: Any) -> tuple[Any, Any]:
    """Return a model of albertkit and the model of `transformers` with the same weights."""
    import transformers  # takes seconds, so only this function imports it

    if not hasattr(transformers, head):
        pytest.skip(f"transformers has no {head}")
    ours = make(head, attn_implementation=attn_implementation, **values)
    config = transformers.AlbertConfig(**{**TINY, **values}, attn_implementation=attn_implementation)
    theirs = getattr(transformers, head)(config)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs.eval()


def batch(head: str = "AlbertModel", *, length: int = 12, **which: bool) -> dict[str, Tensor]:
    """Return the inputs of three rows. `mask`, `segments`, `positions` and `embeds` each add an input."""
    generator = torch.Generator().manual_seed(1)
    shape = (3, 2, length) if heads.HEADS[head].has_choices else (3, length)
    inputs = {"input_ids": torch.randint(5, TINY["vocab_size"], shape, generator=generator)}
    if which.get("mask"):
        mask = torch.ones(shape, dtype=torch.long)
        mask[1, ..., 7:] = 0
        mask[2, ..., 1:] = 0
        inputs["attention_mask"] = mask
    if which.get("segments"):
        inputs["token_type_ids"] = (torch.arange(length) > 4).long().expand(shape).contiguous()
    if which.get("positions"):
        inputs["position_ids"] = torch.arange(length).flip(0).add(3).expand(shape).contiguous()
    if which.get("embeds"):
        del inputs["input_ids"]
        inputs["inputs_embeds"] = torch.randn(*shape, TINY["embedding_size"], generator=generator)
    return inputs


def labels_for(head: str, *, length: int = 12) -> dict[str, Tensor]:
    """Return labels for a head, including labels that the loss ignores. A new head needs an entry here."""
    words = torch.arange(3 * length).view(3, length) % TINY["vocab_size"]
    words = words.masked_fill(words % 3 == 0, -100)
    return {
        "AlbertModel": {},
        "AlbertForPreTraining": {"labels": words, "sentence_order_label": torch.tensor([0, 1, 1])},
        "AlbertForMaskedLM": {"labels": words},
        "AlbertForSequenceClassification": {"labels": torch.tensor([1, 0, 1])},
        "AlbertForTokenClassification": {"labels": (words % 2).masked_fill(words < 0, -100)},
        "AlbertForQuestionAnswering": {
            "start_positions": torch.tensor([3, 0, 40]),
            "end_positions": torch.tensor([5, 11, 41]),
        },
        "AlbertForMultipleChoice": {"labels": torch.tensor([1, 0, 1])},
    }[head]


def largest_difference(first: Tensor, second: Tensor) -> float:
    assert first.shape == second.shape
    return (first.double() - second.double()).abs().max().item()
