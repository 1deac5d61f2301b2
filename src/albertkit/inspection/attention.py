"""What a text looks like inside the model: attention of every layer and head, vectors from layer to layer.

In ALBERT the layers share their weights: a text goes through the same function again and again, and how far
its vectors still move tells how far they have settled.

Shapes: T tokens, N heads of a layer, L executed layers, H hidden.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from albertkit.engines.plain import evaluating, pad_batch
from albertkit.errors import DataError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.engine import Engine, Output, Read
from albertkit.tasks.rows import Row
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.interface import TokenizerInterface
from albertkit.tokenization.special_tokens import Parsing

MOST_PROBABILITIES = 6_000_000
"""L * N * T * T that a report may hold: a page of 16 MB, 204 tokens of ALBERT-base."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """The attention of one executed layer."""

    stored: int
    """Number of the stored layer whose weights it has, from 1."""
    heads: list[int]
    """Numbers of its heads, from 1; pruned ones are missing."""
    probabilities: np.ndarray
    """(N, T, T) float32: how much of the sum over all tokens (columns) each token (row) takes of each."""


@dataclass(frozen=True, eq=False)
class AttentionReport:
    """One text inside a model."""

    text: str
    text_pair: str | None
    tokens: list[str]
    segments: list[int]
    """0, or 1 for the tokens of the second text and its [SEP]."""
    special: list[bool]
    """Whether a token is [CLS] or [SEP]."""
    cut: int
    """Tokens that were left out, because the text was too long and was to be cut."""
    layers: list[AttentionLayer]
    cosine_to_previous: np.ndarray
    """(L, T): of the vector of each token after a layer with the one before it."""
    cosine_to_last: np.ndarray
    """(L + 1, T): of the vector of each token with the one after the last layer, from the embeddings on."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain numbers, rounded to five decimals."""
        return self.outline() | {
            "layers": [
                {"stored": layer.stored, "heads": layer.heads, "attention": _rounded(layer.probabilities)}
                for layer in self.layers
            ]
        }

    def outline(self) -> dict[str, Any]:
        """Return everything but the layers."""
        return {
            "text": self.text,
            "text_pair": self.text_pair,
            "tokens": self.tokens,
            "segments": self.segments,
            "special": self.special,
            "cut": self.cut,
            "cosine_to_previous": _rounded(self.cosine_to_previous),
            "cosine_to_last": _rounded(self.cosine_to_last),
        }


def inspect_attention(
    model: AlbertPreTrainedModel,
    tokenizer: TokenizerInterface,
    text: str,
    text_pair: str | None = None,
    *,
    truncation: bool = False,
    parse_special_tokens: Parsing | None = None,
    engine: Engine | None = None,
) -> AttentionReport:
    """Run one text through the model and keep what happens inside.

    Args:
        model: the encoder, or a model with any head, whose encoder is meant.
        tokenizer: the one the model was trained with.
        text: the text.
        text_pair: a second text, which makes a pair.
        truncation: cut what is too long (the longer text of a pair) instead of raising.
        parse_special_tokens: whether `[SEP]` and the like, written in a text, are special tokens, "mask" for
            `[MASK]` alone; None for the tokenizer's setting.
        engine: what computes as an `InsideEngine` of the encoder does; None for one of these.

    Raises:
        DataError: a text is empty, or has more tokens than the model reads or a report holds.
    """
    for one in (text, text_pair):
        if one is not None and not one.strip():
            raise DataError(f"the text is {one!r}; expected at least one word")
    encoder = cast(AlbertModel, model.base_model)
    readable = encoder.config.max_position_embeddings
    shown = most_tokens(encoder)
    (row,) = text_rows(
        tokenizer,
        [text if text_pair is None else (text, text_pair)],
        max_length=min(readable, shown) if truncation else readable,
        truncation="longest_first" if truncation else False,
        parse_special_tokens=parse_special_tokens,
    )
    if len(row.input_ids) > shown:
        raise DataError(
            f"the text {text!r:.60} has {len(row.input_ids)} tokens, and of the attention of this model "
            f"({encoder.config.depth} layers of {encoder.config.num_attention_heads} heads) at most "
            f"{shown} can be shown: give a shorter text, or let it be cut (truncation=True in Python, "
            "--truncate on the command line)"
        )
    (inside,) = (engine or InsideEngine(encoder)).run([row])
    executed = encoder.encoder.executed_layers()
    stored = list(dict.fromkeys(executed))
    length, depth = len(row.input_ids), len(executed)
    kept = [layer.attention.kept_heads for layer in executed]
    sizes = [len(heads) * length**2 for heads in kept]
    *attentions, to_previous, to_last = np.split(inside[0], np.cumsum([*sizes, depth * length]))
    return AttentionReport(
        text=text,
        text_pair=text_pair,
        tokens=tokenizer.convert_ids_to_tokens(row.input_ids),
        segments=row.token_type_ids,
        special=[token_id in (tokenizer.cls_token_id, tokenizer.sep_token_id) for token_id in row.input_ids],
        cut=row.cut,
        layers=[
            AttentionLayer(
                stored=stored.index(layer) + 1,
                heads=[head + 1 for head in heads],
                probabilities=probabilities.reshape(len(heads), length, length),
            )
            for layer, heads, probabilities in zip(executed, kept, attentions, strict=True)
        ],
        cosine_to_previous=to_previous.reshape(depth, length),
        cosine_to_last=to_last.reshape(depth + 1, length),
    )


class InsideEngine(Engine):
    """What happens inside an encoder: of each row all that a report shows, one after the other, (1, K).

    That is the attention of each layer, N * T * T, the cosines with the layer before, L * T, and with the
    last one, (L + 1) * T; float32. Every row is a batch of its own, and all its tokens are read.
    """

    def __init__(self, encoder: AlbertModel) -> None:
        self.encoder = encoder

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]:
        """As `Engine.batches`."""
        del output, read, batch_tokens, batch_size
        encoder = self.encoder
        for number, row in enumerate(rows):
            with evaluating(encoder):
                batch = pad_batch([row], pad_token_id=encoder.config.pad_token_id, device=encoder.device)
                found = encoder(**batch, output_attentions=True, output_hidden_states=True, return_dict=True)
                states = torch.cat(found.hidden_states).float()  # L + 1 times (1, T, H) -> (L + 1, T, H)
                cosines = (_cosine(states[1:], states[:-1]), _cosine(states, states[-1:]))
                parts = [one.float().flatten() for one in (*found.attentions, *cosines)]
                scores = torch.cat(parts)[None].cpu().numpy()
            yield [number], [scores]


def most_tokens(encoder: AlbertModel) -> int:
    """Return the length of the longest text whose attention a report may hold."""
    return isqrt(MOST_PROBABILITIES // (encoder.config.depth * encoder.config.num_attention_heads))


def _cosine(some: Tensor, others: Tensor) -> Tensor:
    """(L, T, H) and the same, or (1, T, H) -> (L, T)."""
    return torch.nn.functional.cosine_similarity(some, others, dim=-1)


def _rounded(values: np.ndarray) -> Any:
    return values.astype(np.float64).round(5).tolist()
