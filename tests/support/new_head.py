"""A new head with one score for each token, added as CONTRIBUTING.md describes."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from albertkit.checkpoints import names
from albertkit.config import AlbertConfig
from albertkit.heads import HEADS, Head, Scores, linear_pair, norm_pair
from albertkit.modeling import heads
from albertkit.modeling.layers import make_activation
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.outputs import TokenClassifierOutput
from albertkit.modeling.pretrained import AlbertPreTrainedModel

NEW_HEAD = "AlbertForReplacedTokens"
PART = "replaced token head"


class Detector(nn.Module):
    """Maps hidden states to one score: (..., H) -> (..., 1)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = make_activation(config.hidden_act)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.scores = nn.Linear(config.hidden_size, 1)

    def forward(self, states: Tensor) -> Tensor:
        return self.scores(self.LayerNorm(self.activation(self.dense(states))))


class AlbertForReplacedTokens(AlbertPreTrainedModel):
    """ALBERT with one score for each token."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.albert = AlbertModel(config, add_pooling_layer=False)
        self.detector = Detector(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        return_dict: bool | None = None,
        **options: Any,
    ) -> Any:
        encoded = self.albert(input_ids, attention_mask, token_type_ids, return_dict=True, **options)
        return self.finish(TokenClassifierOutput(None, self.detector(encoded.last_hidden_state)), return_dict)


def _detect(network: Any, states: Any) -> Any:
    narrow = network.activate(network.linear(states, "detector.dense"), "detector.activation")
    return network.linear(network.layer_norm(narrow, "detector.LayerNorm"), "detector.scores")


def add_new_head(monkeypatch: pytest.MonkeyPatch) -> str:
    """Add the head for the duration of the test, and return the name of its class."""
    tensors = (
        *linear_pair("detector.dense", PART, "H H"),
        *norm_pair("detector.LayerNorm", PART, "H"),
        *linear_pair("detector.scores", PART, "1 H"),
    )
    head = Head("replaced-tokens", tensors, {"logits": Scores(("logits",), _detect, "1")})
    monkeypatch.setitem(HEADS, NEW_HEAD, head)
    monkeypatch.setattr(heads, NEW_HEAD, AlbertForReplacedTokens, raising=False)
    patterns = {re.compile(re.escape(spec.ours)): spec for spec in tensors}
    monkeypatch.setattr(names, "_SPECS", names._SPECS | patterns)
    return NEW_HEAD


def new_model(config: AlbertConfig, *, seed: int = 0) -> AlbertForReplacedTokens:
    """Return a model with the new head and random parameters."""
    torch.manual_seed(seed)
    model = AlbertForReplacedTokens(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()
