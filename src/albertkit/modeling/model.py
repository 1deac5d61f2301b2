"""AlbertModel: the encoder, which turns token ids into a vector per token and a vector per sequence.

Shapes: B batch, T tokens, E embedding, H hidden, N heads, L executed layers, R selected positions.
"""

from typing import TypedDict

import torch
from torch import Tensor, nn

from albertkit.config import AlbertConfig
from albertkit.model_inputs import NAMES, TABLES, check_range, check_shapes
from albertkit.modeling.layers import AlbertEmbeddings, AlbertTransformer, PackedRows
from albertkit.modeling.outputs import BaseModelOutputWithPooling
from albertkit.modeling.pretrained import AlbertPreTrainedModel


class HeadOptions(TypedDict, total=False):
    """Keyword arguments of the forward pass of every model with a head. None uses the config's setting."""

    # These names are no parameters of `forward`, because `torch.onnx.export(dynamo=False)` passes every
    # parameter by position.
    output_attentions: bool | None
    output_hidden_states: bool | None
    return_dict: bool | None
    # The number of labels in a step; `transformers.Trainer` passes it to the heads whose labels it counts.
    num_items_in_batch: Tensor | int | None


class AlbertModel(AlbertPreTrainedModel):
    """The encoder without a head.

    Args:
        config: The config of the model.
        add_pooling_layer: Whether to compute `pooler_output`, which heads for whole texts need.
    """

    def __init__(self, config: AlbertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        config = self.config
        self.embeddings = AlbertEmbeddings(config)
        self.encoder = AlbertTransformer(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooling_layer else None
        self.pooler_activation = nn.Tanh() if add_pooling_layer else None
        self.post_init()

    def pool(self, states: Tensor) -> Tensor:
        """Return the pooled vectors of hidden states of [CLS]: (..., H) -> (..., H)."""
        assert self.pooler is not None
        assert self.pooler_activation is not None
        return self.pooler_activation(self.pooler(states))

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
        packed: PackedRows | None = None,
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
            packed: The rows whose tokens are concatenated without padding in `input_ids` (1, M). Attention
                stays within each row, and positions start at 0 in each row. There are no masks and no
                `pooler_output`; apply `pool` to the states of each [CLS].

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
        if packed is not None and not (attention_mask is head_mask is None):
            raise ValueError("packed rows are computed without attention_mask and head_mask. Omit them.")
        if packed is not None and position_ids is None:
            position_ids = packed.position_ids(self.device)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, head_mask, inputs_embeds)
        check_shapes(inputs, config)
        try:
            embeddings = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        except IndexError:  # only on the CPU; a GPU reports the error itself, and later
            for name, values in zip(NAMES, inputs, strict=True):
                if name in TABLES and values is not None:
                    check_range(name, int(values.min()), int(values.max()), config)
            raise
        encoded = self.encoder(
            embeddings,
            attention_mask=expand_attention_mask(attention_mask),
            head_mask=None if head_mask is None else head_mask.expand(config.depth, -1),
            output_attentions=config.output_attentions if output_attentions is None else output_attentions,
            output_hidden_states=(
                config.output_hidden_states if output_hidden_states is None else output_hidden_states
            ),
            eager=config.attn_implementation == "eager",
            query_positions=query_positions,
            packed=packed,
        )
        has_pooled = self.pooler is not None and packed is None
        pooled = self.pool(encoded.last_hidden_state[:, 0]) if has_pooled else None  # (B, H)
        output = BaseModelOutputWithPooling(
            encoded.last_hidden_state, pooled, encoded.hidden_states, encoded.attentions
        )
        return self.finish(output, return_dict)


def expand_attention_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Return a mask of 0 and 1 as a bool mask that broadcasts to (B, N, T, T), or None if all values are 1.

    The mask may be (B, T), (B, T, T) or (B, 1, T, T).

    A query that may not attend to any token attends to all instead. Its output is then finite, and is the
    output of the original, which adds the same -10000 to all scores of the query.
    """
    if attention_mask is None:
        return None
    mask = attention_mask != 0
    # The operations of a traced graph must not depend on values.
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    if not traced:
        strange = mask != attention_mask if attention_mask.is_floating_point() else attention_mask < 0
        if attention_mask.dtype is not torch.bool and bool(strange.any()):
            # Read as 0 and 1, a mask that is meant to be added to scores would show padding and hide text.
            raise ValueError(
                f"attention_mask contains {float(attention_mask[strange][0])}. Expected 1 for keys to attend "
                "to and 0 for others. Instead of a mask that is added to the scores, pass "
                "(attention_mask == 0)."
            )
        # The fused kernels are fastest without a mask. Pretraining passes a bool mask, because looking at the
        # values would wait for the GPU.
        if (attention_mask.dtype is not torch.bool or mask.device.type == "cpu") and bool(mask.all()):
            return None
    mask = mask | ~mask.any(dim=-1, keepdim=True)
    if mask.dim() == 2:
        return mask[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
    return mask if mask.dim() == 4 else mask[:, None]  # (B, T, T) -> (B, 1, T, T)
