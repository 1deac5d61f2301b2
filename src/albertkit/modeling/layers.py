"""The building blocks of ALBERT: embeddings, attention, layer, shared layer group, encoder.

Lan et al. 2019 (arXiv:1909.11942), section 3.1: the vocabulary matrix is factored into V x E and E x H, and
layers share their parameters. As in BERT, LayerNorm follows each residual connection ("post-norm"). The names
of modules and parameters are those of Hugging Face checkpoints.

Rows of different lengths can be computed without padding (`PackedRows`): their tokens are concatenated in a
single row, (1, M). Only attention needs to know where each row ends.

Shapes: B batch, T tokens, E embedding, H hidden, I intermediate, N heads, D = H / N size of a head, M tokens
of all packed rows, R query positions of a row.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate, groupby
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albertkit.config import ACTIVATION_ALIASES, AlbertConfig
from albertkit.modeling.outputs import BaseModelOutput

EAGER_TRAINING_LENGTH = 128  # maximum number of tokens for which training computes attention eagerly


class FunctionActivation(nn.Module):
    """A module that calls a plain function, so that `print(model)` shows the function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        return self.function(values)

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def quick_gelu(values: Tensor) -> Tensor:
    return values * torch.sigmoid(1.702 * values)


def make_activation(activation: str | Callable[[Tensor], Tensor]) -> nn.Module:
    """Return the module for a `hidden_act`: a name in `config.ACTIVATION_NAMES`, a function or a module."""
    if isinstance(activation, nn.Module):
        return activation
    if callable(activation):
        return FunctionActivation(activation)
    return {
        "gelu": nn.GELU,
        "gelu_new": partial(nn.GELU, approximate="tanh"),
        "relu": nn.ReLU,
        "silu": nn.SiLU,
        "leaky_relu": nn.LeakyReLU,
        "linear": nn.Identity,
        "mish": nn.Mish,
        "quick_gelu": partial(FunctionActivation, quick_gelu),
        "tanh": nn.Tanh,
    }[ACTIVATION_ALIASES.get(activation, activation)]()


class AlbertDecoder(nn.Module):
    """The output matrix of masked language models, usually the word embeddings: (..., E) -> (..., V).

    This is no `nn.Linear`, because tools adapt every `nn.Linear`. PEFT's "all-linear" would also change the
    word embeddings.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        linear = nn.Linear(in_features, out_features)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, states: Tensor) -> Tensor:
        return F.linear(states, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class AlbertEmbeddings(nn.Module):
    """The normalized sum of word, segment and position embeddings: (B, T) -> (B, T, E)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word_embeddings = _embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position_embeddings = _embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = _embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Embed token ids (B, T), or word embeddings (B, T, E).

        Segments default to 0, and positions to 0 ... T - 1. Both may be (T,), (1, T) or (B, T).
        """
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds  # (B, T, E)
        if token_type_ids is None:
            token_type_ids = torch.zeros((), dtype=torch.long, device=words.device)
        if position_ids is None:
            position_ids = torch.arange(words.shape[1], device=words.device)
        # Call the embedding modules instead of slicing their weights: hooks must run, and accelerate may keep
        # the weights on another device.
        segments = self.token_type_embeddings(token_type_ids)  # (E,) or (B, T, E)
        positions = self.position_embeddings(position_ids)  # (T, E) or (B, T, E)
        return self.dropout(self.LayerNorm(words + segments + positions))


def _embedding(rows: int, width: int, *, padding_idx: int | None = None) -> nn.Embedding:
    """Return an embedding table of zeros, which `post_init` initializes.

    nn.Embedding would draw random values that are not used. On the meta device it would also import PyTorch's
    compiler, which takes more than a second at every start.
    """
    return nn.Embedding.from_pretrained(torch.zeros(rows, width), freeze=False, padding_idx=padding_idx)


class PackedRows:
    """Rows of tokens that are concatenated without padding in a single row, (1, M).

    Args:
        lengths: Number of tokens of each row. Rows of equal length should be neighbors, because they are
            computed together.
        num_queries: Number of `query_positions` of each row. They must be in the order of the rows. None for
            one position of each row.
    """

    def __init__(self, lengths: Sequence[int], num_queries: Sequence[int] | None = None) -> None:
        self.lengths = lengths
        self.num_queries = [1] * len(lengths) if num_queries is None else num_queries
        self._ends: dict[Any, tuple[Tensor, Tensor, int, int]] = {}

    def position_ids(self, device: torch.device) -> Tensor:
        """Return the position of each token in its row, (1, M)."""
        return torch.cat([torch.arange(length, device=device) for length in self.lengths])[None]

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, attend: Callable[..., Tensor], *, selected: bool
    ) -> Tensor:
        """Apply attention within each row: (Q, N, D), (M, N, D) twice -> (Q, N, D).

        `attend` is a function of queries (B, N, R, D), keys and values (B, N, T, D). It gets all neighboring
        rows of equal length at once. If `selected`, there are queries only for the query positions.
        """
        counts = self.num_queries if selected else self.lengths
        if query.is_cuda and (kernel := _varlen_kernel(query.dtype, query.shape[-1])):
            parts = (part.contiguous() for part in (query, key, value))
            return kernel(*parts, *self._ends_of(counts, query.device))
        contexts = []
        query_start = key_start = 0
        for (count, length), same in groupby(zip(counts, self.lengths, strict=True)):
            rows = len(list(same))
            query_stop, key_stop = query_start + rows * count, key_start + rows * length
            if count:
                queries = query[query_start:query_stop].unflatten(0, (rows, count)).transpose(1, 2)
                keys, values = (
                    part[key_start:key_stop].unflatten(0, (rows, length)).transpose(1, 2)
                    for part in (key, value)
                )  # (B * T, N, D) -> (B, N, T, D)
                contexts.append(attend(queries, keys, values).transpose(1, 2).flatten(0, 1))
            query_start, key_start = query_stop, key_stop
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

    def _ends_of(self, counts: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, int, int]:
        """Return where the queries and the keys of each row end, and the largest number of each."""
        if id(counts) not in self._ends:  # all layers of a batch need the same
            ends = (
                torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device)
                for sizes in (counts, self.lengths)
            )
            self._ends[id(counts)] = cast(Any, (*ends, max(counts), max(self.lengths)))
        return self._ends[id(counts)]


@cache
def _varlen_kernel(dtype: torch.dtype, head_size: int) -> Callable[..., Tensor] | None:
    """Return PyTorch's kernel for rows of different lengths, or None if it cannot compute such heads."""
    if dtype not in (torch.float16, torch.bfloat16) or head_size % 8 or head_size > 256:
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return cast(Any, varlen_attn) if torch.cuda.get_device_capability() >= (8, 0) else None


def select_tokens(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states (B, R, H) at the positions (B, R) or (1, R) of hidden states (B, T, H)."""
    # `len(hidden_states)` would be a constant in a traced graph.
    rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)[:, None]
    return hidden_states[rows, positions]


class AlbertAttention(nn.Module):
    """Multi-head self-attention with residual connection and LayerNorm: (B, T, H) -> (B, T, H)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        hidden_size = config.hidden_size
        self.attention_head_size = hidden_size // config.num_attention_heads
        # Code for `transformers` that studies attention reads these two numbers.
        self.num_attention_heads, self.all_head_size = config.num_attention_heads, hidden_size
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.output_dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        *,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        eager: bool = False,
        query_positions: Tensor | None = None,
        packed: "PackedRows | None" = None,
    ) -> tuple[Tensor, ...]:
        """Return the new hidden states and, with `eager`, the attention probabilities (B, N, T, T).

        Hooks of other libraries expect tensors, so there is no None.

        Args:
            hidden_states: (B, T, H).
            attention_mask: Bool, True where a query may attend to a key; broadcastable to (B, N, T, T). Each
                query needs at least one key.
            head_mask: (N,) factors of the attention probabilities. Needs `eager`.
            eager: Whether to compute the probabilities explicitly.
            query_positions: (B, R) or (1, R), the only positions to compute; the result is then (B, R, H).
            packed: The rows that are concatenated in `hidden_states` (1, M, H). They take no masks.
        """
        split = (self.num_attention_heads, self.attention_head_size)
        asking = hidden_states
        if query_positions is not None:
            asking = select_tokens(hidden_states, query_positions)  # (B, R, H)
            if attention_mask is not None and attention_mask.shape[-2] > 1:  # (B, 1, T, T) -> (B, 1, R, T)
                attention_mask = select_tokens(attention_mask[:, 0], query_positions)[:, None]
        query = self.query(asking).unflatten(2, split)  # (B, T, N*D) -> (B, T, N, D)
        key = self.key(hidden_states).unflatten(2, split)
        value = self.value(hidden_states).unflatten(2, split)
        weights = []
        dropout = self.attention_dropout.p if self.training else 0.0
        attend = partial(F.scaled_dot_product_attention, dropout_p=dropout)
        if packed is not None:
            selected = query_positions is not None
            context = packed.attend(query[0], key[0], value[0], attend, selected=selected)[None]
        else:
            query, key, value = (part.transpose(1, 2) for part in (query, key, value))  # (B, N, T, D)
            if eager or _trains_faster_eagerly(query):
                context, *weights = self._attend_eagerly(query, key, value, attention_mask, head_mask)
            else:
                context = attend(query, key, value, attention_mask)
            context = context.transpose(1, 2)
        context = context.flatten(2)  # (B, T, N, D) -> (B, T, N*D)
        attended = self.LayerNorm(asking + self.output_dropout(self.dense(context)))
        return (attended, *weights) if eager else (attended,)

    def _attend_eagerly(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        head_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.attention_head_size)  # (B, N, T, T)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -math.inf)
        # Softmax in fp32 for every data type of the weights, because it sums many exponentials.
        probabilities = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
        weights = self.attention_dropout(probabilities)
        if head_mask is not None:
            weights = weights * head_mask.to(weights.dtype).view(-1, 1, 1)  # (N,) -> (N, 1, 1)
        return weights @ value, weights


def _trains_faster_eagerly(query: Tensor) -> bool:
    """Return whether explicit attention is faster than the fused kernel for queries (B, N, T, D).

    The backward pass of PyTorch's fused attention (2.13) is slow in bfloat16 on CPUs
    (`benchmarks/attention.py`). For sequences of 256 or more tokens, explicit attention is not faster.
    """
    is_slow = query.device.type == "cpu" and query.dtype is torch.bfloat16 and query.requires_grad
    return is_slow and query.shape[2] <= EAGER_TRAINING_LENGTH


class AlbertLayer(nn.Module):
    """Attention and feed-forward network, each with residual and LayerNorm: (B, T, H) -> (B, T, H).

    The feed-forward output passes through dropout in training, as in the original implementation.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.full_layer_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = AlbertAttention(config)
        self.ffn = nn.Linear(config.hidden_size, config.intermediate_size)
        self.ffn_output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.activation = make_activation(config.hidden_act)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, **options: Any) -> tuple[Tensor, ...]:
        """Apply attention and feed-forward network. Arguments and results as in `AlbertAttention`."""
        attended, *probabilities = self.attention(hidden_states, **options)
        expanded = self.activation(self.ffn(attended))  # (B, T, I)
        output = self.full_layer_layer_norm(attended + self.dropout(self.ffn_output(expanded)))
        return output, *probabilities


def compile_layers(model: nn.Module) -> None:
    """Compile each layer of a model in place, which takes most of the time of a step.

    A compiled layer has no graph break. The model around it has several: for example, the positions that the
    last layer computes depend on values.
    """
    for module in model.modules():
        if isinstance(module, AlbertLayer):
            module.compile(dynamic=True)  # batches have many shapes


class AlbertLayerGroup(nn.Module):
    """The inner layers of one group, applied one after the other: (B, T, H) -> (B, T, H)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.albert_layers = nn.ModuleList(AlbertLayer(config) for _ in range(config.inner_group_num))

    def forward(
        self,
        hidden_states: Tensor,
        *,
        recompute: bool = False,
        record: Callable[..., None] | None = None,
        **options: Any,
    ) -> Tensor:
        """Apply the inner layers, with `options` of `AlbertAttention.forward`.

        `head_mask` is (layers of this group, N), and `query_positions` apply only to the last layer. With
        `recompute`, the backward pass computes each layer again from its input. `record` gets the outputs of
        each layer.
        """
        head_mask, query_positions = options.get("head_mask"), options.get("query_positions")
        for index, layer in enumerate(self.albert_layers):
            is_last = index == len(self.albert_layers) - 1
            options["head_mask"] = None if head_mask is None else head_mask[index]
            options["query_positions"] = query_positions if is_last else None
            apply = partial(checkpoint, layer, use_reentrant=False) if recompute else layer
            hidden_states, *probabilities = apply(hidden_states, **options)
            if record is not None:
                record(hidden_states, *probabilities)
        return hidden_states


class AlbertTransformer(nn.Module):
    """The encoder: maps embeddings to the hidden size, then applies the layer groups repeatedly.

    Group g computes the repetitions i with g = i // (num_hidden_layers / number of groups). As in
    `transformers`, the number of layers is that of the config at the time of the call.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding_hidden_mapping_in = nn.Linear(config.embedding_size, config.hidden_size)
        groups = [AlbertLayerGroup(config) for _ in range(config.num_hidden_groups)]
        self.albert_layer_groups = nn.ModuleList(groups)
        self.gradient_checkpointing = False

    def forward(
        self,
        embeddings: Tensor,
        *,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        eager: bool = False,
        query_positions: Tensor | None = None,
        packed: "PackedRows | None" = None,
    ) -> BaseModelOutput:
        """Encode embeddings (B, T, E) into hidden states (B, T, H), or (B, R, H) at `query_positions` (B, R).

        For `attention_mask` and `packed` see `AlbertAttention.forward`. `head_mask` is (executed layers, N).
        The returned `hidden_states` are the mapped embeddings and the output of every executed layer.
        """
        eager = eager or output_attentions or head_mask is not None
        recompute = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        hidden_states = self.embedding_hidden_mapping_in(embeddings)
        all_hidden_states, all_attentions = [hidden_states], []

        def record(states: Tensor, *probabilities: Tensor) -> None:
            all_hidden_states.append(states)
            all_attentions.extend(probabilities)

        # If hidden states or attentions are returned, the last layer also computes all positions.
        all_positions = eager or output_hidden_states
        groups, repetitions = self.albert_layer_groups, self.config.num_hidden_layers
        for index in range(repetitions):
            is_last = index == repetitions - 1
            hidden_states = groups[index * len(groups) // repetitions](
                hidden_states,
                attention_mask=attention_mask,
                head_mask=None if head_mask is None else head_mask.chunk(repetitions)[index],
                eager=eager,
                query_positions=query_positions if is_last and not all_positions else None,
                packed=packed,
                recompute=recompute,
                record=record if output_attentions or output_hidden_states else None,
            )
        if query_positions is not None and all_positions:
            hidden_states = select_tokens(hidden_states, query_positions)
        return BaseModelOutput(
            last_hidden_state=hidden_states,
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=tuple(all_attentions) if output_attentions else None,
        )
