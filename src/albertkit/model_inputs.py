"""The inputs of a model: their names, shapes and ranges, for the networks in PyTorch and Keras.

Shapes: B batch, C choices, T tokens, E embedding.
"""

from collections.abc import Sequence
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.errors import DataError

NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask", "inputs_embeds")
"""The names of the inputs, in the documented order."""
TABLES = {
    "input_ids": ("vocab_size", "the tokenizer belongs to another model, or has added tokens"),
    "token_type_ids": ("type_vocab_size", "0 is the first text, 1 the second"),
    "position_ids": ("max_position_embeddings", "positions begin at 0"),
}
"""The inputs that are rows of a table: for each, the size of the table in the config, and advice."""


def check_shapes(inputs: Sequence[Any], config: AlbertConfig, *, choices: bool = False) -> None:
    """Check shapes that would otherwise be broadcast, or cause an unclear error.

    Args:
        inputs: Tensors or None in the order of `NAMES`. A size can be None while a function is compiled.
        config: The config of the model, whose sizes the inputs must match.
        choices: Whether each input has a dimension of choices after the batch.
    """
    shapes = {
        name: tuple(value.shape) for name, value in zip(NAMES, inputs, strict=True) if value is not None
    }
    if ("input_ids" in shapes) == ("inputs_embeds" in shapes):
        raise DataError("received both or neither of input_ids and inputs_embeds. Pass exactly one of them.")
    name = "input_ids" if "input_ids" in shapes else "inputs_embeds"
    expected = ("B", "C", "T") if choices else ("B", "T")
    rank = len(expected)
    expected += () if name == "input_ids" else (config.embedding_size,)
    given = shapes[name]
    if len(given) != len(expected) or (name == "inputs_embeds" and given[-1] not in (None, expected[-1])):
        raise DataError(f"{name} must have shape ({', '.join(map(str, expected))}), got {given}")
    *rows, length = given[:rank]
    limit = config.max_position_embeddings
    if length == 0:
        raise DataError(f"{name} must have at least one token (T > 0), got {given}")
    if "position_ids" not in shapes and length is not None and length > limit:
        raise DataError(
            f"the sequence has {length} tokens, more than max_position_embeddings ({limit}). "
            "Truncate it or split it into windows."
        )
    one_row = (*(1,) * len(rows), length)
    for_tokens = [(*rows, length), one_row, *(one_row[start:] for start in range(1, rank))]
    by_query = [(*rows, length, length), (*rows, 1, length, length)]
    for other, allowed in (
        ("attention_mask", [(*rows, length), *by_query, one_row]),
        ("token_type_ids", for_tokens),
        ("position_ids", for_tokens),
        ("head_mask", [(config.num_attention_heads,), (config.depth, config.num_attention_heads)]),
    ):
        if other in shapes and not any(_matches(shapes[other], shape) for shape in allowed):
            shapes_text = " or ".join(map(str, allowed))
            raise DataError(f"{other} must have shape {shapes_text}, got {shapes[other]}")


def _matches(given: Sequence[int | None], expected: Sequence[int | None]) -> bool:
    return len(given) == len(expected) and all(
        None in pair or pair[0] == pair[1] for pair in zip(given, expected, strict=True)
    )


def check_range(name: str, least: int, most: int, config: AlbertConfig) -> None:
    """Raise IndexError if the ids of an input, from `least` to `most`, are not rows of its table."""
    size, advice = TABLES[name]
    limit = getattr(config, size)
    if not 0 <= least <= most < limit:
        raise IndexError(
            f"{name} has values from {least} to {most}, but {size} is {limit}. Expected 0 to {limit - 1} "
            f"({advice})."
        )
