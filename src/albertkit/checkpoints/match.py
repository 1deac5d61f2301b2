"""Match the tensors of a file with those of a model class, and report the result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import EXPECTED, is_equal, is_floating
from albertkit.checkpoints.names import (
    REQUIRED,
    TABLE,
    TIED,
    in_model,
    is_keras,
    prefix_of,
    shared_names,
    spec_of,
    why_no_weight,
)
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError, ShapeMismatchError
from albertkit.heads import HEADS, base_prefix, head_of

_SHOWN = 4  # maximum number of tensors that an error lists
_ENCODER = [spec for spec in TABLE if spec.part in REQUIRED]


@dataclass(slots=True)
class LoadReport:
    """The report of each tensor of the file and of the model."""

    loaded: dict[str, str] = field(default_factory=dict)
    """Name in the model -> name in the file."""
    missing: list[str] = field(default_factory=list)
    """Names in the model that the file lacks. These tensors keep their initial values."""
    unexpected: list[str] = field(default_factory=list)
    """Names in the file that neither this model nor ALBERT has a known use for."""
    reshaped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Name in the model -> (shape in the file, shape in the model). These tensors keep their initial
    values."""
    conflicting: dict[str, str] = field(default_factory=dict)
    """Name in the file -> the name that it shares its tensor with in the model, whose different values are
    used."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Name in the file -> why it is left out on purpose (a constant, a head this model does not have)."""

    @property
    def ok(self) -> bool:
        """Whether the model is complete and every tensor in the file is explained."""
        return not (self.missing or self.unexpected or self.reshaped or self.conflicting)

    @property
    def differences(self) -> list[str]:
        """A description of each tensor with another shape."""
        lines = []
        for name, shapes in self.reshaped.items():
            in_file, expected = ("x".join(map(str, shape)) or "a single number" for shape in shapes)
            lines.append(f"{name} is {in_file} in the file and {expected} in the model")
        return lines

    def loading_info(self) -> dict[str, Any]:
        """Return the report under the names of `transformers`."""
        return {
            "missing_keys": set(self.missing),
            "unexpected_keys": set(self.unexpected),
            "mismatched_keys": {(name, *shapes) for name, shapes in self.reshaped.items()},
            "error_msgs": [],
            "report": self,
        }

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} tensors loaded"]
        if self.missing:
            lines.append(f"newly initialized, not in the file: {', '.join(self.missing)} (train before use)")
        lines += [f"newly initialized, {difference}" for difference in self.differences]
        if self.unexpected:
            lines.append(f"in the file, but not in this model: {', '.join(self.unexpected)}")
        lines += [
            f"not used: {name} differs from {source}, but the model has a single tensor for both"
            for name, source in self.conflicting.items()
        ]
        return "\n  ".join([*lines, *left_out(self.ignored)])


def match(
    tensors: Mapping[str, np.ndarray],
    expected: Mapping[str, tuple[int, ...]],
    *,
    tied: Mapping[str, str] = TIED,
    ignore_mismatched_sizes: bool = False,
) -> tuple[dict[str, np.ndarray], LoadReport]:
    """Map the tensors of a file to the names that a model expects.

    The file may have only the encoder and the model a head, or the reverse; older names are understood. Both
    names of a shared tensor get the one that the file has, so a strict `load_state_dict` succeeds if nothing
    is missing.
    """
    matched: dict[str, np.ndarray] = {}
    report = LoadReport()
    for name, tensor in tensors.items():
        target = in_model(name, expected)
        if target is None:
            part, reason = _part(name), why_no_weight(name)
            # An extra tensor of the encoder means another network shape, not another task.
            if reason is None and part and part not in REQUIRED:
                reason = f"the {part}, which this model does not have"
            if reason is None:
                report.unexpected.append(name)
            else:
                report.ignored[name] = reason
            continue
        if target in matched:
            raise CheckpointError(f"The file has {target} twice: {report.loaded[target]!r}, {name!r}.")
        if not is_floating(tensor):
            raise CheckpointError(f"{name} has the type {tensor.dtype}. {EXPECTED}.")
        matched[target] = tensor
        report.loaded[target] = name
    for second, first in tied.items():
        if second in expected and first in expected:
            # The TensorFlow classes of `transformers` store both biases of their decoder and read the second.
            if is_keras(report.loaded.get(second, "")):
                first, second = second, first
            _share(first, second, matched, report)
    for name in [name for name, tensor in matched.items() if tensor.shape != expected[name]]:
        report.reshaped[name] = (tuple(matched.pop(name).shape), tuple(expected[name]))
        del report.loaded[name]
    report.missing = [name for name in expected if name not in matched and name not in report.reshaped]
    if report.reshaped and not ignore_mismatched_sizes:
        raise ShapeMismatchError(
            f"Weights and config do not match: {_some(report.differences, '; ')}. To initialize these "
            "tensors (a head with other labels), pass ignore_mismatched_sizes=True."
        )
    if absent := [name for name in report.missing if _part(name) in REQUIRED]:
        raise CheckpointError(
            f"The file is not a complete ALBERT: it lacks {_some(absent)}, which every model needs. "
            f"It has {_some(list(tensors)) if tensors else 'no tensors'}."
        )
    return matched, report


def fit(
    architecture: str, config: AlbertConfig, tensors: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], LoadReport]:
    """Return the tensors that a model class has, by its names and in its order, and a report."""
    expected = expected_shapes(architecture, config)
    matched, report = match(tensors, expected, tied=shared_names(config))
    return {name: matched[name] for name in expected if name in matched}, report


def expected_shapes(architecture: str, config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    """Return `{name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}` without a model.

    Tied tensors have both names.
    """
    head = head_of(architecture)
    groups, inner = range(config.num_hidden_groups), range(config.inner_group_num)
    layers = [{"group": group, "layer": layer} for group in groups for layer in inner]
    shapes: dict[str, tuple[int, ...]] = {}
    for is_layer, repeated in groupby([*_ENCODER, *head.tensors], key=lambda spec: "{" in spec.ours):
        block = list(repeated)
        for numbers in layers if is_layer else [{}]:
            for spec in block:
                prefix = prefix_of(spec) and base_prefix(architecture)
                shape = tuple(head.size(letter, config) for letter in spec.shape.split())
                shapes[prefix + spec.ours.format_map(numbers)] = shape
    return shapes


def architecture_of(config: AlbertConfig, tensors: Iterable[str]) -> str:
    """Return the model class of these tensors: the class that uses the most parts of the network.

    If several classes have tensors of the same names, the config decides.
    """
    parts = {_part(name) for name in tensors}
    best, most = "", (-1, False)
    for architecture, head in HEADS.items():
        has_pooler = any(spec.part == "pooler" for spec in head.tensors)
        used = len(head.parts & parts), has_pooler and "pooler" in parts
        if used > most:
            best, most = architecture, used
    named = (config.architectures or [""])[0]
    return named if named in HEADS and HEADS[named].is_mistaken_for(HEADS[best]) else best


def saved_class(config: AlbertConfig) -> str:
    """Return the model class that a config names, for messages."""
    return ", ".join(config.architectures or ["a class that its config does not name"])


def check_head(config: AlbertConfig, architecture: str, *, name: str) -> None:
    """Raise CheckpointError if the head of a saved model was trained for another task.

    Its scores would have another meaning than those of the model class.
    """
    trained = (config.architectures or [""])[0]
    if trained in HEADS and HEADS[trained].is_mistaken_for(head_of(architecture)):
        tasks = f"{HEADS[trained].task} ({trained}), not for {HEADS[architecture].task} ({architecture})"
        raise CheckpointError(f"{name!r} was trained for {tasks}. Pass a checkpoint of that task.")


def left_out(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with the names it applies to."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [f"left out ({reason}): {', '.join(listed)}" for reason, listed in names.items()]


def _share(first: str, second: str, matched: dict[str, np.ndarray], report: LoadReport) -> None:
    """Share one tensor between two names of the model; `first` takes precedence if the file has both."""
    if first not in matched and second not in matched:
        return
    if first not in matched:
        matched[first], report.loaded[first] = matched[second], report.loaded[second]
    elif second not in matched:
        report.loaded[second] = report.loaded[first]
    elif not is_equal(matched[first], matched[second]):
        report.conflicting[report.loaded[second]] = first
        report.loaded[second] = report.loaded[first]
    matched[second] = matched[first]


def _part(name: str) -> str | None:
    spec = spec_of(name)
    return spec.part if spec else None


def _some(texts: list[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more
