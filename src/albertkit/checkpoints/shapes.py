"""Compute the tensors of every model class from its name and config, and match a file with them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np

from albertkit.checkpoints.names import REQUIRED, TABLE, parts_of, prefix_of, shared_names
from albertkit.checkpoints.report import LoadReport, match
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError
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
        ConfigError: the class does not exist.
    """
    head = head_of(architecture)
    specs = [*_ENCODER, *head.tensors]
    shapes: dict[str, tuple[int, ...]] = {}
    for _, repeated in groupby(specs, key=lambda spec: "{" in spec.ours):
        block = list(repeated)
        for numbers in _repetitions(block[0].ours, config):
            for spec in block:
                prefix = prefix_of(spec) and base_prefix(architecture)
                shape = tuple(head.size(letter, config) for letter in spec.shape.split())
                shapes[prefix + spec.ours.format_map(numbers)] = shape
    return shapes


def _repetitions(name: str, config: AlbertConfig) -> Iterator[dict[str, int]]:
    """Yield the numbers to put into a name of the table, in the order of the state dict."""
    if "{layer}" in name:
        for group in range(config.num_hidden_groups):
            for layer in range(config.inner_group_num):
                yield {"group": group, "layer": layer}
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
