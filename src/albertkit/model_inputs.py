"""The inputs of a model: their names, shapes and ranges, for the networks in PyTorch and Keras.

Shapes: B batch, C choices, T tokens, E embedding, N heads, L executed layers.
"""

from collections.abc import Mapping

from albertkit.config import AlbertConfig
from albertkit.errors import DataError

NAMES: tuple[str, ...] = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "head_mask",
    "inputs_embeds",
)
"""The names of the inputs, in the documented order."""
LIMITS = {
    "input_ids": ("vocab_size", "the tokenizer belongs to another model, or has added tokens"),
    "token_type_ids": ("type_vocab_size", "0 is the first text, 1 the second"),
    "position_ids": ("max_position_embeddings", "positions begin at 0"),
}
"""The inputs that are rows of a table: for each, the size of the table in the config, and advice."""

Shape = tuple[int | None, ...]
"""The sizes of a tensor; None for a size that is not known while a function is compiled."""


def check_shapes(shapes: Mapping[str, Shape], config: AlbertConfig, *, choices: bool = False) -> None:
    """Check the shapes of the inputs that are passed.

    Args:
        shapes: The shapes by the names of the inputs.
        config: The config of the model, whose sizes the inputs must match.
        choices: Whether each input has a dimension of choices after the batch.
    """
    if ("input_ids" in shapes) == ("inputs_embeds" in shapes):
        raise DataError("received both or neither of input_ids and inputs_embeds. Pass exactly one of them.")
    letters = ("B", "C", "T") if choices else ("B", "T")
    name = "input_ids" if "input_ids" in shapes else "inputs_embeds"
    wanted = letters if name == "input_ids" else (*letters, config.embedding_size)
    given = shapes[name]
    if len(given) != len(wanted) or (name == "inputs_embeds" and given[-1] not in (None, wanted[-1])):
        raise DataError(f"{name} must have shape ({', '.join(map(str, wanted))}), got {given}")
    text = given[: len(letters)]
    length = text[-1]
    if length == 0:
        raise DataError(f"{name} must have at least one token (T > 0), got {given}")
    limit = config.max_position_embeddings
    if "position_ids" not in shapes and length is not None and length > limit:
        raise DataError(
            f"the sequence has {length} tokens, more than max_position_embeddings ({limit}). "
            "Truncate it or split it into windows."
        )
    depth, heads = config.depth, config.num_attention_heads
    for_tokens: list[Shape] = [text, *((1,) * outer + (length,) for outer in reversed(range(len(text))))]
    for_rows: list[Shape] = [(*text, length), (*text[:-1], 1, length, length)]
    one_row: Shape = (*(1,) * (len(text) - 1), length)
    allowed: dict[str, list[Shape]] = {
        "attention_mask": [text, *for_rows, one_row],
        "token_type_ids": for_tokens,
        "position_ids": for_tokens,
        "head_mask": [(heads,), (depth, heads)],
    }
    for other, possible in allowed.items():
        if other in shapes and not any(_fits(shapes[other], shape) for shape in possible):
            expected = " or ".join(map(str, possible))
            raise DataError(f"{other} must have shape {expected}, got {shapes[other]}")


def _fits(given: Shape, wanted: Shape) -> bool:
    return len(given) == len(wanted) and all(
        one is None or other is None or one == other for one, other in zip(given, wanted, strict=True)
    )


def check_range(name: str, least: int, most: int, config: AlbertConfig) -> None:
    """Raise IndexError if the ids of an input, from `least` to `most`, are not rows of its table."""
    size, advice = LIMITS[name]
    limit = getattr(config, size)
    if not 0 <= least <= most < limit:
        raise IndexError(
            f"{name} has values from {least} to {most}, but {size} is {limit}. Expected 0 to {limit - 1} "
            f"({advice})."
        )
