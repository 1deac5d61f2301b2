"""The layers of ALBERT for Keras 3: embeddings, attention, layer, shared layer group, encoder, heads.

This is the network of `albertkit.modeling.layers`, written with `keras.ops`, so it works with every backend.
Variables exist after construction. Their paths are their names in Hugging Face checkpoints, with slashes
instead of dots (and `albert_layers_0`, because backends do not allow dots).

Shapes: B batch, T tokens, E embedding, H hidden, I intermediate, N heads, D = H / N size of a head, L
executed layers, V vocabulary, K labels.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from albertkit.config import ACTIVATION_ALIASES, AlbertConfig
from albertkit.errors import MissingExtraError
from albertkit.tuple_outputs import make_output

try:
    import keras
except ImportError as error:  # not imported lazily, because the classes here derive from Keras classes
    raise MissingExtraError(
        f"albertkit.keras needs Keras 3 and one backend for it ({error}): pip install 'albertkit[keras]' "
        "tensorflow, or install jax and set KERAS_BACKEND=jax before Python starts"
    ) from error

ops: Any = keras.ops
Tensor = Any
"""A tensor of the backend, or a `keras.KerasTensor` while a functional model is built."""


class BaseLayer(keras.layers.Layer):
    """Base class of layers that create their sublayers and variables in the constructor.

    Args:
        owner: The model or layer that contains this layer; it has the config and the data types.
        name: The name of this layer, which is part of the paths of its variables.
        options: Arguments of `_make_parts`.
    """

    def __init__(self, owner: Any, name: str, **options: Any) -> None:
        super().__init__(name=name, dtype=owner.dtype_policy)
        self.config: AlbertConfig = owner.config
        with keras.name_scope(name):
            self._make_parts(**options)
        self.built = True

    def _make_parts(self, *args: Any, **options: Any) -> None:
        """Create the sublayers and variables."""


_draws = ContextVar("draws", default=True)


@contextmanager
def uninitialized() -> Iterator[None]:
    """Create models with matrices of zeros in this block, for a file to fill; drawing them takes seconds."""
    token = _draws.set(False)
    try:
        yield
    finally:
        _draws.reset(token)


def initializer(config: AlbertConfig) -> Any:
    """Return the initializer of matrices: a normal distribution truncated at two deviations."""
    if not _draws.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def make_dense(owner: Any, name: str, inputs: int, outputs: int) -> keras.layers.Dense:
    kernel = initializer(owner.config)
    layer = keras.layers.Dense(outputs, kernel_initializer=kernel, name=name, dtype=owner.dtype_policy)
    layer.build((None, inputs))
    return layer


def make_layer_norm(owner: Any, name: str, width: int) -> keras.layers.LayerNormalization:
    """Return a LayerNorm over the last dimension. Keras computes it in fp32 whatever the policy."""
    epsilon = owner.config.layer_norm_eps
    norm = keras.layers.LayerNormalization(epsilon=epsilon, name=name, dtype=owner.dtype_policy)
    norm.build((None, width))
    return norm


def make_table(owner: Any, name: str, rows: int) -> keras.layers.Embedding:
    table = keras.layers.Embedding(
        rows,
        owner.config.embedding_size,
        embeddings_initializer=initializer(owner.config),
        name=name,
        dtype=owner.dtype_policy,
    )
    table.build()
    return table


def make_dropout(owner: Any, rate: float) -> keras.layers.Dropout:
    return keras.layers.Dropout(rate, name="dropout", dtype=owner.dtype_policy)


def make_activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    return {
        "gelu": partial(ops.gelu, approximate=False),
        "gelu_new": ops.gelu,
        "relu": ops.relu,
        "silu": ops.silu,
        "leaky_relu": partial(ops.leaky_relu, negative_slope=0.01),
        "linear": lambda values: values,
        "mish": keras.activations.mish,
        "quick_gelu": lambda values: values * ops.sigmoid(1.702 * values),
        "tanh": ops.tanh,
    }[ACTIVATION_ALIASES.get(activation, activation)]


def look_up(table: keras.layers.Embedding, ids: Tensor) -> Tensor:
    """Return the rows of a table for ids: (...) -> (..., E). An id without a row gives NaN.

    Compiled code cannot raise errors. Without this check it would return the nearest row, or zeros.
    """
    rows = table(ids)
    known = ops.logical_and(ids >= 0, ids < table.input_dim)
    return ops.where(known[..., None], rows, ops.cast(math.nan, rows.dtype))


class AlbertEmbeddings(BaseLayer):
    """The normalized sum of word, segment and position embeddings: (B, T) -> (B, T, E)."""

    def _make_parts(self) -> None:
        config = self.config
        self.word_embeddings = make_table(self, "word_embeddings", config.vocab_size)
        self.position_embeddings = make_table(self, "position_embeddings", config.max_position_embeddings)
        self.token_type_embeddings = make_table(self, "token_type_embeddings", config.type_vocab_size)
        self.LayerNorm = make_layer_norm(self, "LayerNorm", config.embedding_size)
        self.output_dropout = make_dropout(self, config.hidden_dropout_prob)

    def call(self, inputs: dict[str, Tensor]) -> Tensor:
        """Embed `input_ids` (B, T), or use `inputs_embeds` (B, T, E), which are word embeddings.

        `token_type_ids` default to 0, and `position_ids` to 0 ... T - 1. Both may be (T,), (1, T) or (B, T).
        """
        words = inputs.get("inputs_embeds")
        if words is None:
            words = look_up(self.word_embeddings, inputs["input_ids"])
        segments, positions = inputs.get("token_type_ids"), inputs.get("position_ids")
        if segments is None:
            segments = ops.zeros((1,), dtype="int32")
        if positions is None:
            positions = ops.arange(ops.shape(words)[1], dtype="int32")
        embedded = (
            words
            + look_up(self.token_type_embeddings, segments)
            + look_up(self.position_embeddings, positions)
        )
        return self.output_dropout(self.LayerNorm(embedded))


class AlbertAttention(BaseLayer):
    """Multi-head self-attention with residual connection and LayerNorm: (B, T, H) -> (B, T, H)."""

    def _make_parts(self) -> None:
        config = self.config
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // self.num_heads
        self.query = make_dense(self, "query", config.hidden_size, config.hidden_size)
        self.key = make_dense(self, "key", config.hidden_size, config.hidden_size)
        self.value = make_dense(self, "value", config.hidden_size, config.hidden_size)
        self.attention_dropout = make_dropout(self, config.attention_probs_dropout_prob)
        self.output_dropout = make_dropout(self, config.hidden_dropout_prob)
        self.output_dense = make_dense(self, "dense", config.hidden_size, config.hidden_size)
        self.LayerNorm = make_layer_norm(self, "LayerNorm", config.hidden_size)

    def call(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, head_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the new hidden states (B, T, H), and the attention probabilities (B, N, T, T).

        `attention_mask` is bool, True where a query may attend to a key, and broadcasts to (B, N, T, T). Each
        query needs at least one key. `head_mask` has (N,) factors of the probabilities.
        """
        length = ops.shape(hidden_states)[1]
        query, key, value = (
            ops.reshape(part(hidden_states), (-1, length, self.num_heads, self.head_size))
            for part in (self.query, self.key, self.value)
        )  # (B, T, N*D) -> (B, T, N, D)
        scores = ops.einsum("bqnd,bknd->bnqk", query / math.sqrt(self.head_size), key)  # (B, N, T, T)
        # Softmax in fp32 for every data type of the weights, because it sums many exponentials.
        scores = ops.cast(scores, "float32")
        if attention_mask is not None:
            scores = ops.where(attention_mask, scores, -math.inf)
        weights = self.attention_dropout(ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype))
        if head_mask is not None:
            weights = weights * ops.cast(head_mask, self.compute_dtype)[:, None, None]  # (N,) -> (N, 1, 1)
        context = ops.einsum("bnqk,bknd->bqnd", weights, value)
        width = self.num_heads * self.head_size
        context = ops.reshape(context, (-1, length, width))  # (B, T, N, D) -> (B, T, H)
        return self.LayerNorm(hidden_states + self.output_dropout(self.output_dense(context))), weights


class AlbertLayer(BaseLayer):
    """Attention and feed-forward network, each with residual and LayerNorm: (B, T, H) -> (B, T, H)."""

    def _make_parts(self) -> None:
        config = self.config
        self.attention = AlbertAttention(self, "attention")
        self.ffn = make_dense(self, "ffn", config.hidden_size, config.intermediate_size)
        self.ffn_output = make_dense(self, "ffn_output", config.intermediate_size, config.hidden_size)
        self.activation = make_activation(config.hidden_act)
        self.output_dropout = make_dropout(self, config.hidden_dropout_prob)
        self.full_layer_layer_norm = make_layer_norm(self, "full_layer_layer_norm", config.hidden_size)

    def call(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, head_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        attended, weights = self.attention(hidden_states, attention_mask=attention_mask, head_mask=head_mask)
        expanded = self.activation(self.ffn(attended))  # (B, T, I)
        output = self.output_dropout(self.ffn_output(expanded))
        return self.full_layer_layer_norm(attended + output), weights


class AlbertLayerGroup(BaseLayer):
    """The inner layers of one group. `AlbertTransformer` calls them."""

    def _make_parts(self) -> None:
        self.albert_layers = [
            AlbertLayer(self, f"albert_layers_{inner}") for inner in range(self.config.inner_group_num)
        ]


class AlbertTransformer(BaseLayer):
    """The encoder: maps embeddings to the hidden size, then applies the layer groups repeatedly.

    Group g computes the repetitions i with g = i // (num_hidden_layers / number of groups).
    """

    def _make_parts(self) -> None:
        config = self.config
        self.embedding_hidden_mapping_in = make_dense(
            self, "embedding_hidden_mapping_in", config.embedding_size, config.hidden_size
        )
        self.albert_layer_groups = [
            AlbertLayerGroup(self, f"albert_layer_groups_{group}")
            for group in range(config.num_hidden_groups)
        ]

    def call(
        self,
        embeddings: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Encode embeddings (B, T, E), with a head mask (L, N). None uses the config's setting.

        The output has the last hidden states, all hidden states (the mapped embeddings and the output of each
        executed layer, L + 1 tensors (B, T, H)) and the attentions (L tensors (B, N, T, T)).
        """
        config = self.config
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        hidden_states = self.embedding_hidden_mapping_in(embeddings)
        all_hidden_states, all_attentions = [hidden_states], []
        repetitions = config.num_hidden_layers // config.num_hidden_groups
        groups = [group for group in self.albert_layer_groups for _ in range(repetitions)]
        layers = [layer for group in groups for layer in group.albert_layers]
        for index, layer in enumerate(layers):
            hidden_states, weights = layer(
                hidden_states,
                attention_mask=attention_mask,
                head_mask=None if head_mask is None else head_mask[index],
            )
            if output_hidden_states:
                all_hidden_states.append(hidden_states)
            if output_attentions:
                all_attentions.append(weights)
        return make_output(
            "BaseModelOutput",
            last_hidden_state=hidden_states,
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=tuple(all_attentions) if output_attentions else None,
        )


class AlbertMainLayer(BaseLayer):
    """Embeddings, encoder and pooler. Every model contains this layer as `albert`."""

    def _make_parts(self, *, add_pooling_layer: bool) -> None:
        config = self.config
        self.embeddings = AlbertEmbeddings(self, "embeddings")
        self.encoder = AlbertTransformer(self, "encoder")
        self.pooler = None
        if add_pooling_layer:
            self.pooler = make_dense(self, "pooler", config.hidden_size, config.hidden_size)

    def call(self, inputs: dict[str, Tensor], **options: Any) -> Any:
        """Encode a batch of checked inputs, with options of `AlbertTransformer.call`."""
        config, head_mask = self.config, inputs.get("head_mask")
        if head_mask is not None:
            head_mask = ops.broadcast_to(head_mask, (config.depth, config.num_attention_heads))
        return self.encoder(
            self.embeddings(inputs),
            attention_mask=expand_attention_mask(inputs.get("attention_mask")),
            head_mask=head_mask,
            **options,
        )

    def pool(self, states: Tensor) -> Tensor:
        """Return the pooled vectors of hidden states of [CLS]: (..., H) -> (..., H)."""
        assert self.pooler is not None
        return ops.tanh(self.pooler(states))


class AlbertDecoder(keras.layers.Layer):
    """Maps states to logits over the vocabulary: (..., E) -> (..., V).

    It shares the matrix of `table`, the word embeddings, or has a matrix of its own.
    """

    def __init__(self, owner: Any, name: str, *, table: keras.layers.Embedding | None) -> None:
        super().__init__(name=name, dtype=owner.dtype_policy)
        config = owner.config
        self.table = table
        if table is None:
            shape = (config.embedding_size, config.vocab_size)
            self.kernel = self.add_weight(shape=shape, initializer=initializer(config), name="kernel")
        self.bias = self.add_weight(shape=(config.vocab_size,), initializer="zeros", name="bias")
        self.built = True

    def call(self, states: Tensor) -> Tensor:
        kernel = self.kernel if self.table is None else ops.transpose(self.table.embeddings)
        return ops.matmul(states, ops.cast(kernel, self.compute_dtype)) + self.bias


class AlbertMLMHead(BaseLayer):
    """Maps hidden states to logits over the vocabulary: (..., H) -> (..., V)."""

    def _make_parts(self, *, table: keras.layers.Embedding | None) -> None:
        config = self.config
        self.dense = make_dense(self, "dense", config.hidden_size, config.embedding_size)
        self.activation = make_activation(config.hidden_act)
        self.LayerNorm = make_layer_norm(self, "LayerNorm", config.embedding_size)
        self.decoder = AlbertDecoder(self, "decoder", table=table)

    def call(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class AlbertSOPHead(BaseLayer):
    """Maps (B, H) to logits (B, K): "in order" (0), "swapped" (1); without dropout as in the original."""

    def _make_parts(self) -> None:
        self.classifier = make_dense(self, "classifier", self.config.hidden_size, self.config.num_labels)

    def call(self, pooled: Tensor) -> Tensor:
        return self.classifier(pooled)


def expand_attention_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Convert a mask of 0 and 1, (B, T), (B, T, T) or (B, 1, T, T), to bool, broadcastable to (B, N, T, T).

    A query that may not attend to any token attends to all instead. Its output is then finite, and is the
    output of the original, which adds the same -10000 to all scores of the query.
    """
    if attention_mask is None:
        return None
    mask = ops.not_equal(attention_mask, 0)
    mask = ops.logical_or(mask, ops.logical_not(ops.any(mask, axis=-1, keepdims=True)))
    if len(mask.shape) == 2:
        return mask[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
    return mask if len(mask.shape) == 4 else mask[:, None]  # (B, T, T) -> (B, 1, T, T)
