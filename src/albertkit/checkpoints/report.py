"""Fitting the tensors of a file to the names of a model, and the report of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import EXPECTED, is_floating
from albertkit.checkpoints.names import (
    REQUIRED,
    TIED,
    in_model,
    is_keras,
    spec_of,
    why_no_weight,
)
from albertkit.errors import CheckpointError, ShapeMismatchError

_SHOWN = 4
"""How many tensors an error names."""


@dataclass(slots=True)
class LoadReport:
    """What became of each tensor of the file and of the model."""

    loaded: dict[str, str] = field(default_factory=dict)
    """Name in the model -> name in the file."""
    missing: list[str] = field(default_factory=list)
    """Names of the model that the file lacks: their tensors keep their initial values."""
    unexpected: list[str] = field(default_factory=list)
    """Names in the file that this model has no place for and ALBERT no known use."""
    reshaped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Name in the model -> (shape in the file, shape in the model): left at their initial values."""
    conflicting: dict[str, str] = field(default_factory=dict)
    """Name in the file -> the name it shares its tensor with in the model, whose different values won."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Name in the file -> why it is rightly left out (a constant, a head this model does not have)."""

    @property
    def ok(self) -> bool:
        """Whether the model is complete and nothing in the file is unexplained."""
        return not (self.missing or self.unexpected or self.reshaped or self.conflicting)

    @property
    def differences(self) -> list[str]:
        """Each reshaped tensor in words."""
        return [
            f"{name} is {_sizes(found)} in the file and {_sizes(wanted)} in the model"
            for name, (found, wanted) in self.reshaped.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dumps`."""
        return {"ok": self.ok, **asdict(self)}

    def loading_info(self) -> dict[str, Any]:
        """Return the report under the names that `transformers` gives its parts."""
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
            f"not used: {name} differs from {source}, which this model shares it with"
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
    """Give the tensors of a file the names that a model expects.

    The file may be of the encoder alone and the model have a head, or the reverse; names of older writers
    are understood. Both names of a shared tensor are filled from whichever the file holds, so a strict
    `load_state_dict` succeeds when nothing is missing.

    Args:
        tensors: name in the file -> tensor.
        expected: name in the model -> shape, as `{k: v.shape for k, v in model.state_dict().items()}`.
        tied: second name of a shared tensor -> first name; empty for a model that shares none.
        ignore_mismatched_sizes: report a tensor of another shape and leave it out, instead of raising.

    Returns:
        Name in the model -> tensor, and the account.

    Raises:
        CheckpointError: a tensor of the embeddings or the encoder is missing, two tensors of the file
            claim one name, or a tensor holds no floating-point numbers.
        ShapeMismatchError: a tensor has another shape.
    """
    matched: dict[str, np.ndarray] = {}
    report = LoadReport()
    for name, tensor in tensors.items():
        target = in_model(name, expected)
        if target is None:
            reason = _why_left_out(name)
            if reason is None:
                report.unexpected.append(name)
            else:
                report.ignored[name] = reason
        elif target in matched:
            raise CheckpointError(
                f"The file holds {target} twice, as {report.loaded[target]!r} and as {name!r}: expected one. "
                "Remove the other from the file."
            )
        elif not is_floating(tensor):
            raise CheckpointError(
                f"{name} has the type {tensor.dtype}; {EXPECTED}. Save the weights in one of these types."
            )
        else:
            matched[target] = tensor
            report.loaded[target] = name
    for second, first in tied.items():
        if second in expected and first in expected:
            # The TensorFlow classes of `transformers` store both biases of their decoder and read the second.
            if is_keras(report.loaded.get(second, "")):
                first, second = second, first
            _share(first, second, matched, report)
    _take_out_reshaped(matched, report, expected)
    report.missing = [name for name in expected if name not in matched and name not in report.reshaped]
    if report.reshaped and not ignore_mismatched_sizes:
        raise ShapeMismatchError(
            f"Weights and config do not fit each other: {_some(report.differences, '; ')}. "
            "Check that they belong together; to begin these tensors anew (a head with other labels), "
            "pass ignore_mismatched_sizes=True."
        )
    lost = [name for name in report.missing if _part(name) in REQUIRED]
    if lost:
        raise CheckpointError(
            f"The file is not a whole ALBERT: it lacks {_some(lost)}, without which the model cannot work. "
            f"It holds {_some(list(tensors)) if tensors else 'no tensors'}. "
            "Check that config.json and the weights belong together."
        )
    return matched, report


def _why_left_out(name: str) -> str | None:
    """Say why a tensor that the model has no place for is no loss; None if it may be one."""
    if reason := why_no_weight(name):
        return reason
    part = _part(name)
    # A surplus tensor of the encoder means another shape of network, not another task.
    return f"the {part}, which this model does not have" if part and part not in REQUIRED else None


def _share(first: str, second: str, matched: dict[str, np.ndarray], report: LoadReport) -> None:
    """Let two names of the model have one tensor, that of `first` where the file holds both."""
    if first not in matched and second not in matched:
        return
    if first not in matched:
        matched[first], report.loaded[first] = matched[second], report.loaded[second]
    elif second not in matched:
        report.loaded[second] = report.loaded[first]
    elif matched[first].dtype != matched[second].dtype or not np.array_equal(matched[first], matched[second]):
        report.conflicting[report.loaded[second]] = first
        report.loaded[second] = report.loaded[first]
    matched[second] = matched[first]


def _take_out_reshaped(
    matched: dict[str, np.ndarray], report: LoadReport, expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name in [name for name, tensor in matched.items() if tensor.shape != expected[name]]:
        report.reshaped[name] = (tuple(matched.pop(name).shape), tuple(expected[name]))
        del report.loaded[name]


def _part(name: str) -> str | None:
    spec = spec_of(name)
    return spec.part if spec else None


def _some(texts: list[str], separator: str = ", ") -> str:
    """Join the first few of `texts`, and say how many more there are."""
    more = f"{separator}and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more


def left_out(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each reason with the names that have it."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [f"left out ({reason}): {', '.join(some)}" for reason, some in names.items()]


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
