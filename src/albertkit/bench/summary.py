"""A report as figures, each beside that of the other libraries; with targets, where they apply."""

from collections.abc import Iterable, Sequence
from typing import Any

from albertkit.bench.figures import Figure, compare, state
from albertkit.bench.measuring import Report, Timing

_GIGA = 1e9
# For the shape of ALBERT-base in float32 on a CPU; the engine `plain` is the definition, and has none.
_BASE = {"hidden_size": 768, "depth": 12, "dtype": "float32", "device": "cpu"}
_TEXTS = {"transformers": 2.6, "onnxruntime": 1.9}
_LATENCY = {"transformers": 1 / 2.6}
_INT8 = "onnx-int8"
_TEXTS_INT8 = {"transformers": 4.5}
_LATENCY_INT8 = {"transformers": 1 / 3.0}
_LATENCY_LENGTH = 16
_SHARE = 0.85
_SHARE_OF = (8, 512)


def figures(report: Report, others: Sequence[str]) -> list[Figure]:
    """Return the figures of the engines of this package.

    Args:
        report: what was measured.
        others: names of the sides that are not ours.
    """
    has_targets = all(report.about[name] == value for name, value in _BASE.items())
    found = [state("largest matrix product (GFLOP/s)", report.ceiling / _GIGA)]
    for timing in (*report.texts, *report.grid):
        if timing.side not in others:
            beside = _beside(timing, [*report.texts, *report.grid], others)
            found += _of(report, timing, beside, has_targets and timing.side != "plain")
    return found


def _beside(timing: Timing, timings: Iterable[Timing], others: Sequence[str]) -> list[Timing]:
    same = [one for one in timings if (one.length, one.batch) == (timing.length, timing.batch)]
    return [one for one in same if one.side in others]


def _of(report: Report, timing: Timing, others: list[Timing], has_targets: bool) -> list[Figure]:
    what = f"{timing.batch} texts" if not timing.length else f"{timing.batch} x {timing.length} tokens"
    name = f"{timing.side}, {what}"
    texts, latency = (_TEXTS_INT8, _LATENCY_INT8) if timing.side == _INT8 else (_TEXTS, _LATENCY)
    found = [state(f"{name}: texts per second", timing.texts_per_second)] if not others else []
    for other in others:
        targets: dict[str, Any] = {}
        if has_targets and not timing.length and other.side in texts:
            targets = {"at_least": texts[other.side]}
        found.append(
            compare(
                f"{name}: texts per second, against {other.side}",
                timing.texts_per_second,
                other.texts_per_second,
                **targets,
            )
        )
        if timing.batch == 1 and timing.length:
            at_most = latency.get(other.side, 0) if has_targets and timing.length == _LATENCY_LENGTH else 0
            found.append(
                compare(
                    f"{name}: seconds, against {other.side}", timing.seconds, other.seconds, at_most=at_most
                )
            )
    if timing.batch == 1 and timing.length and not others:
        found.append(state(f"{name}: seconds", timing.seconds))
    wanted = not timing.length or (timing.batch, timing.length) == _SHARE_OF
    found.append(
        compare(
            f"{name}: GFLOP/s, against the largest product",
            timing.flops / timing.seconds / _GIGA,
            report.ceiling / _GIGA,
            at_least=_SHARE if has_targets and wanted else 0,
        )
    )
    return found
