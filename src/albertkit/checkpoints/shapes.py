"""Compute the tensors of every model class from its name and config, and match a file with them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from albertkit.checkpoints.names import REQUIRED, TABLE, parts_of, prefix_of, shared_names
from albertkit.checkpoints.report import LoadReport, match
from albertkit.config import AlbertConfig
from albertkit.early_exit import exit_count
from albertkit.errors import CheckpointError, ConfigError
from albertkit.heads import HEADS, base_prefix, head_of

_ENCODER = [spec for spec in TABLE if spec.part in REQUIRED]


def architecture_of(config: AlbertConfig, tensors: Iterable[str]) -> str:
    """Return the model class of these tensors: the class that uses the most parts of the network.

    If several classes have tensors of the same names, the config decides.
    """
    parts = parts_of(tensors)

    def used(architecture: str) -> tuple[int, bool]:
        head = HEADS[architecture]
        has_pooler = any(spec.part == "pooler" for spec in head.tensors)
        return len(head.parts & parts), has_pooler and "pooler" in parts

    best = max(HEADS, key=used)
    named = (config.architectures or [""])[0]
    return named if named in HEADS and HEADS[named].is_mistaken_for(HEADS[best]) else best


def fit(
    architecture: str, config: AlbertConfig, tensors: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], LoadReport]:
    """Return the tensors that a model class has, by its names and in its order, and a report of all tensors.

    `tensors` has the tensors of a file by their names there.

    Raises:
        CheckpointError: a tensor of the encoder is missing, or one has another shape.
        ConfigError: see `expected_shapes`.
    """
    expected = expected_shapes(architecture, config)
    matched, report = match(tensors, expected, tied=shared_names(config))
    return {name: matched[name] for name in expected if name in matched}, report


def expected_shapes(architecture: str, config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    """Return `{name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}` without a model.

    Tied tensors have both names.

    Raises:
        ConfigError: the class does not exist, or the config prunes heads that it does not have.
    """
    head = head_of(architecture)
    pruned = merged_pruned_heads(config, config.pruned_heads)
    specs = [*_ENCODER, *head.tensors]
    shapes: dict[str, tuple[int, ...]] = {}
    for _, repeated in groupby(specs, key=lambda spec: "{" in spec.ours):
        block = list(repeated)
        for index, numbers in enumerate(_repetitions(block[0].ours, config)):
            kept_heads = config.num_attention_heads - len(pruned.get(index, ()))
            width = config.hidden_size // config.num_attention_heads * kept_heads
            for spec in block:
                prefix = prefix_of(spec) and base_prefix(architecture)
                shape = tuple(
                    width if letter == "A" else head.size(letter, config) for letter in spec.shape.split()
                )
                shapes[prefix + spec.ours.format_map(numbers)] = shape
    return shapes


def merged_pruned_heads(config: AlbertConfig, heads: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """Return the heads to prune, including those that the config already prunes, for the layers of `heads`.

    Layers are those with their own weights. Layers and heads are numbered from 0, as without pruning.

    Raises:
        ConfigError: there is no such layer or head, or a layer would have no heads left.
    """
    if not isinstance(heads, Mapping):
        raise ConfigError(f"the heads to prune are {heads!r}. Expected lists of heads by layer.")
    distinct = config.num_hidden_groups * config.inner_group_num
    merged: dict[int, list[int]] = {}
    for layer, gone in heads.items():
        if not _is_index(layer, distinct):
            raise ConfigError(
                f"there is no layer {layer!r} to prune. Expected the number of a layer with its own weights, "
                f"0 to {distinct - 1}."
            )
        ids: list[Any] = list(gone) if isinstance(gone, Iterable) else [None]
        if not all(_is_index(head, config.num_attention_heads) for head in ids):
            raise ConfigError(
                f"heads to prune in layer {layer} are {gone!r}. Expected a list of ids from 0 to "
                f"{config.num_attention_heads - 1}."
            )
        merged[layer] = sorted({*config.pruned_heads.get(layer, []), *ids})
        if len(merged[layer]) == config.num_attention_heads:
            raise ConfigError(
                f"pruning heads {merged[layer]} would leave layer {layer} without heads. Keep at least one."
            )
    return merged


def _is_index(value: object, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _repetitions(name: str, config: AlbertConfig) -> Iterator[dict[str, int]]:
    """Yield the numbers to put into a name of the table, in the order of the state dict."""
    if "{layer}" in name:
        for group in range(config.num_hidden_groups):
            for layer in range(config.inner_group_num):
                yield {"group": group, "layer": layer}
    elif "{exit}" in name:
        yield from ({"exit": number} for number in range(exit_count(config)))
    else:
        yield {}


def saved_class(config: AlbertConfig) -> str:
    """Return the model class that a config names, for messages."""
    return ", ".join(config.architectures or ["a class that its config does not name"])


def check_head(config: AlbertConfig, architecture: str, *, name: str) -> None:
    """Check that the head of a saved model was trained for the task of another model class.

    Raises:
        CheckpointError: the head belongs to another task, so its scores have another meaning.
    """
    trained = (config.architectures or [""])[0]
    if trained in HEADS and HEADS[trained].is_mistaken_for(head_of(architecture)):
        raise CheckpointError(
            f"{name!r} was trained for {HEADS[trained].task} ({trained}), not for {HEADS[architecture].task} "
            f"({architecture}): its scores have a different meaning. Pass a checkpoint of that task."
        )
