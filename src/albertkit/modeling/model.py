"""AlbertModel: the encoder, which turns token ids into a vector per token and a vector per sequence.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, L executed layers, R selected positions.
"""

from collections.abc import Iterable, Mapping
from typing import TypedDict

import torch
from torch import Tensor, nn

from albertkit.checkpoints.shapes import merged_pruned_heads
from albertkit.config import AlbertConfig
from albertkit.errors import DataError
from albertkit.modeling.arguments import IDS, check_tensors
from albertkit.modeling.layers import (
    AlbertAttention,
    AlbertEmbeddings,
    AlbertLayer,
    AlbertLayerGroup,
    AlbertTransformer,
)
from albertkit.modeling.outputs import BaseModelOutputWithPooling
from albertkit.modeling.pretrained import AlbertPreTrainedModel


class OutputOptions(TypedDict, total=False):
    """Keyword arguments for additional outputs of a forward pass. None uses the config's setting."""

    output_attentions: bool | None
    output_hidden_states: bool | None


class HeadOptions(OutputOptions, total=False):
    """Keyword arguments of the forward pass of every model with a head."""

    # These names are no parameters of `forward`, because `torch.onnx.export(dynamo=False)` passes every
    # parameter by position.
    return_dict: bool | None


class LabelOptions(HeadOptions, total=False):
    """Keyword arguments of a head whose labels `transformers.Trainer` counts."""

    num_items_in_batch: Tensor | int | None


class AlbertModel(AlbertPreTrainedModel):
    """The encoder without a head.

    Args:
        config: The config of the model.
        add_pooling_layer: Whether to compute `pooler_output`, which heads for whole texts need.
    """

    def __init__(self, config: AlbertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = AlbertEmbeddings(
            vocab_size=config.vocab_size,
            embedding_size=config.embedding_size,
            max_position_embeddings=config.max_position_embeddings,
            type_vocab_size=config.type_vocab_size,
            pad_token_id=config.pad_token_id,
            layer_norm_eps=config.layer_norm_eps,
            dropout=config.hidden_dropout_prob,
        )
        self.encoder = AlbertTransformer(
            (
                AlbertLayerGroup(_make_layer(config) for _ in range(config.inner_group_num))
                for _ in range(config.num_hidden_groups)
            ),
            config,
        )
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooling_layer else None
        self.pooler_activation = nn.Tanh() if add_pooling_layer else None
        self.post_init()
        self.prune_heads(config.pruned_heads)

    def pool(self, states: Tensor) -> Tensor:
        """Return the pooled vectors of hidden states of [CLS]: (..., H) -> (..., H)."""
        assert self.pooler is not None
        assert self.pooler_activation is not None
        return self.pooler_activation(self.pooler(states))

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings, V x E."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings."""
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        query_positions: Tensor | None = None,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch.

        Args:
            input_ids: (B, T) token ids; or pass `inputs_embeds`.
            attention_mask: (B, T), 1 = token, 0 = padding; or (B, T, T) or (B, 1, T, T), with 1 where the
                query (row) may attend to the key (column).
            token_type_ids: (B, T), 0 = first segment (default), 1 = second segment.
            position_ids: (B, T), (1, T) or (T,); default 0 to T - 1.
            head_mask: (N,) for all layers or (L, N), 1 = keep the head, 0 = disable it.
            inputs_embeds: (B, T, E) instead of `input_ids`.
            output_attentions: Whether to also return the attention probabilities of each executed layer, each
                (B, N, T, T). For this argument and the next two, None uses the config's setting.
            output_hidden_states: Whether to also return `hidden_states`, each (B, T, H).
            return_dict: Whether to return a dataclass or, if False, a tuple.
            query_positions: (B, R) or (1, R), the only positions for which the last layer is computed, with
                [CLS] first. `last_hidden_state` is then (B, R, H).

        Returns:
            `BaseModelOutputWithPooling`, or the tuple of its set fields with `return_dict=False`.
            `hidden_states` contains the mapped embeddings and the output of each executed layer, including
            inner layers: `config.depth` + 1 tensors, as in `transformers` 5.

        Raises:
            ValueError: Both or neither of `input_ids` and `inputs_embeds` are passed, a sequence is empty or
                longer than `max_position_embeddings`, or an argument has the wrong type or shape.
            IndexError: A token id, segment or position has no embedding (on the CPU).
        """
        config = self.config
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "received both or neither of input_ids and inputs_embeds. Pass exactly one of them."
            )
        ids = {"input_ids": input_ids, "token_type_ids": token_type_ids, "position_ids": position_ids}
        check_tensors(ids, dtypes=IDS)
        check_tensors(
            {"attention_mask": attention_mask, "head_mask": head_mask, "inputs_embeds": inputs_embeds}
        )
        batch, length = self._check_inputs(input_ids, inputs_embeds, position_ids)
        for name in ("token_type_ids", "position_ids"):
            given = ids[name]
            if given is not None and given.shape not in ((batch, length), (1, length), (length,)):
                raise ValueError(
                    f"{name} must have shape ({batch}, {length}) or (1, {length}), got {tuple(given.shape)}"
                )
        try:
            embeddings = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        except IndexError as error:  # only on the CPU; a GPU reports the error itself, and later
            raise IndexError(self._out_of_range(ids)) from error
        encoded = self.encoder(
            embeddings,
            attention_mask=expand_attention_mask(attention_mask, batch=batch, length=length),
            head_mask=self._expand_head_mask(head_mask),
            output_attentions=config.output_attentions if output_attentions is None else output_attentions,
            output_hidden_states=(
                config.output_hidden_states if output_hidden_states is None else output_hidden_states
            ),
            eager=config.attn_implementation == "eager",
            query_positions=query_positions,
        )
        pooled = None if self.pooler is None else self.pool(encoded.last_hidden_state[:, 0])  # (B, H)
        output = BaseModelOutputWithPooling(
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=pooled,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return self.finish(output, return_dict)

    def _check_inputs(
        self, input_ids: Tensor | None, inputs_embeds: Tensor | None, position_ids: Tensor | None
    ) -> tuple[int, int]:
        if input_ids is not None:
            shape, wanted = input_ids.shape, "input_ids must have shape (B, T)"
            fits = input_ids.dim() == 2
        else:
            assert inputs_embeds is not None
            shape, wanted = (
                inputs_embeds.shape,
                f"inputs_embeds must have shape (B, T, {self.config.embedding_size})",
            )
            fits = inputs_embeds.dim() == 3 and shape[2] == self.config.embedding_size
        if not fits:
            raise ValueError(f"{wanted}, got {tuple(shape)}")
        if shape[1] == 0:
            raise DataError(f"{wanted} with at least one token (T > 0), got {tuple(shape)}")
        limit = self.config.max_position_embeddings
        if position_ids is None and shape[1] > limit:
            raise ValueError(
                f"the sequence has {shape[1]} tokens, more than max_position_embeddings ({limit}). "
                "Truncate it or split it into windows."
            )
        return shape[0], shape[1]

    def _out_of_range(self, ids: Mapping[str, Tensor | None]) -> str:
        limits = {
            "input_ids": ("vocab_size", "the tokenizer belongs to another model, or has added tokens"),
            "token_type_ids": ("type_vocab_size", "0 is the first text, 1 the second"),
            "position_ids": ("max_position_embeddings", "positions begin at 0"),
        }
        problems: list[str] = []
        for name, (size, advice) in limits.items():
            values, limit = ids[name], getattr(self.config, size)
            if values is not None and not 0 <= int(values.min()) <= int(values.max()) < limit:
                problems.append(
                    f"{name} has values from {int(values.min())} to {int(values.max())}, but {size} is "
                    f"{limit}. Expected 0 to {limit - 1} ({advice})."
                )
        return "; ".join(problems)

    def _expand_head_mask(self, head_mask: Tensor | None) -> Tensor | None:
        if head_mask is None:
            return None
        depth, heads = self.config.depth, self.config.num_attention_heads
        if head_mask.shape not in ((heads,), (depth, heads)):
            raise ValueError(
                f"head_mask must have shape ({heads},) or ({depth}, {heads}), got {tuple(head_mask.shape)}"
            )
        return head_mask.expand(depth, heads)

    def prune_heads(self, heads_to_prune: Mapping[int, Iterable[int]]) -> None:
        """Remove attention heads by layer; see `AlbertPreTrainedModel.prune_heads`."""
        layers = [layer for group in self.encoder.albert_layer_groups for layer in group.albert_layers]  # type: ignore[union-attr]
        for layer, gone in merged_pruned_heads(self.config, heads_to_prune).items():
            layers[layer].attention.prune_heads(gone)
            self.config.pruned_heads[layer] = gone


def _make_layer(config: AlbertConfig) -> AlbertLayer:
    attention = AlbertAttention(
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        attention_dropout=config.attention_probs_dropout_prob,
        output_dropout=config.hidden_dropout_prob,
        layer_norm_eps=config.layer_norm_eps,
    )
    return AlbertLayer(
        attention,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        activation=config.hidden_act,
        layer_norm_eps=config.layer_norm_eps,
        dropout=config.hidden_dropout_prob,
    )


def expand_attention_mask(attention_mask: Tensor | None, *, batch: int, length: int) -> Tensor | None:
    """Return a mask of 0 and 1 as a bool mask that broadcasts to (B, N, T, T), or None if all values are 1.

    The mask may be (B, T), (B, T, T) or (B, 1, T, T).

    A query that may not attend to any token attends to all instead. Its output is then finite, and is the
    output of the original, which adds the same -10000 to all scores of the query.

    Raises:
        ValueError: The mask has another shape, negative numbers, or floats other than 0 and 1.
    """
    if attention_mask is None:
        return None
    shapes = {2: (batch, length), 3: (batch, length, length), 4: (batch, 1, length, length)}
    if tuple(attention_mask.shape) != shapes.get(attention_mask.dim()):
        raise ValueError(
            f"attention_mask must have one of the shapes {list(shapes.values())}, "
            f"got {tuple(attention_mask.shape)}"
        )
    mask = attention_mask != 0
    # The operations of a traced graph must not depend on values.
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    if not traced:
        strange = mask != attention_mask if attention_mask.is_floating_point() else attention_mask < 0
        if bool(strange.any()):
            # Read as 0 and 1, a mask that is meant to be added to scores would show padding and hide text.
            raise ValueError(
                f"attention_mask contains {float(attention_mask[strange][0])}. Expected 1 for keys to attend "
                "to and 0 for others. Instead of a mask that is added to the scores, pass "
                "(attention_mask == 0)."
            )
        if bool(mask.all()):
            return None  # the fused kernels are fastest without a mask
    mask = mask | ~mask.any(dim=-1, keepdim=True)
    if mask.dim() == 2:
        return mask[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
    return mask if mask.dim() == 4 else mask[:, None]  # (B, T, T) -> (B, 1, T, T)
