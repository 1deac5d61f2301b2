"""Show a report as figures, compared with other libraries and with targets, and as a plot."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albertkit.bench.measuring import Report, Timing
from albertkit.extras import optional
from albertkit.files import write_picture

matplotlib_figure = optional("matplotlib.figure", extra="train")

_GIGA = 1e9
_MARKERS = "osD^vP*X"
# The targets are for ALBERT-base in float32 on a CPU, and for all engines except `plain`, the reference.
_BASE = {"hidden_size": 768, "depth": 12, "dtype": "float32", "device": "cpu"}
_TEXTS = {"transformers": 2.6, "onnxruntime": 1.9}
_LATENCY = {"transformers": 1 / 2.6}
_INT8 = "onnx-int8"
_TEXTS_INT8 = {"transformers": 4.5}
_LATENCY_INT8 = {"transformers": 1 / 3.0}
_LATENCY_LENGTH = 16
_SHARE = 0.85
_SHARE_OF = (8, 512)


@dataclass(frozen=True)
class Figure:
    """A figure, and the figure that it is compared with."""

    name: str
    value: float
    against: float | None
    """The figure of the other side; None if there is no other side."""
    ratio: float | None
    """value / against."""
    target: str = "none"
    met: bool | None = None
    """Whether the ratio reaches the target; None without a target."""


def compare(name: str, value: float, against: float, *, at_most: float = 0, at_least: float = 0) -> Figure:
    """Return a figure and its ratio to another. The target is a maximum or a minimum of the ratio."""
    ratio = value / against
    target, met = "none", None
    if at_most or at_least:
        target = f"<= {at_most:.3g}x" if at_most else f">= {at_least:.3g}x"
        met = ratio <= at_most if at_most else ratio >= at_least
    return Figure(name, _rounded(value), _rounded(against), round(ratio, 3), target, met)


def state(name: str, value: float, against: float | None = None) -> Figure:
    """Return a figure without a target, compared with another one if there is one."""
    return Figure(name, _rounded(value), None, None) if against is None else compare(name, value, against)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def figures(report: Report, others: Sequence[str]) -> list[Figure]:
    """Return the figures of the engines of albertkit.

    Args:
        report: the report.
        others: names of the sides that are other libraries.
    """
    has_targets = all(report.about[name] == value for name, value in _BASE.items())
    results = [state("largest matrix product (GFLOP/s)", report.ceiling / _GIGA)]
    timings = [*report.texts, *report.grid]
    for timing in timings:
        if timing.side not in others:
            rows = (timing.length, timing.batch)
            beside = [
                other for other in timings if other.side in others and (other.length, other.batch) == rows
            ]
            results += _figures_of(timing, report, beside, has_targets and timing.side != "plain")
    return results


def _figures_of(timing: Timing, report: Report, others: list[Timing], has_targets: bool) -> list[Figure]:
    what = f"{timing.batch} texts" if not timing.length else f"{timing.batch} x {timing.length} tokens"
    name = f"{timing.side}, {what}"
    texts, latency = (_TEXTS_INT8, _LATENCY_INT8) if timing.side == _INT8 else (_TEXTS, _LATENCY)
    is_single_row = timing.batch == 1 and timing.length
    results = []
    for other in others:
        speed = f"{name}: texts per second, against {other.side}"
        least = texts.get(other.side, 0) if has_targets and not timing.length else 0
        results.append(compare(speed, timing.texts_per_second, other.texts_per_second, at_least=least))
        if is_single_row:
            time = f"{name}: seconds, against {other.side}"
            most = latency.get(other.side, 0) if has_targets and timing.length == _LATENCY_LENGTH else 0
            results.append(compare(time, timing.seconds, other.seconds, at_most=most))
    if not others:
        results.append(state(f"{name}: texts per second", timing.texts_per_second))
        if is_single_row:
            results.append(state(f"{name}: seconds", timing.seconds))
    wanted = not timing.length or (timing.batch, timing.length) == _SHARE_OF
    results.append(
        compare(
            f"{name}: GFLOP/s, against the largest product",
            timing.flops / timing.seconds / _GIGA,
            report.ceiling / _GIGA,
            at_least=_SHARE if has_targets and wanted else 0,
        )
    )
    return results


def draw(report: Report, target: Path) -> None:
    """Draw the report to a .png, .svg or .pdf file. `files.check_picture` has checked the name.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    figure = matplotlib_figure.Figure(figsize=(11, 4.2), layout="constrained")
    roofline, speed = figure.subplots(1, 2)
    sides = list(dict.fromkeys(timing.side for timing in (*report.grid, *report.texts)))
    lengths = sorted({timing.length for timing in report.grid})
    markers = dict(zip(lengths, itertools.cycle(_MARKERS), strict=False))
    for number, side in enumerate(sides):
        color = f"C{number}"
        for length, marker in markers.items():
            timings = [timing for timing in report.grid if timing.side == side and timing.length == length]
            roofline.plot(
                [timing.flops / _GIGA for timing in timings],
                [report.share(timing) for timing in timings],
                marker,
                color=color,
            )
            speed.plot(
                [timing.batch for timing in timings],
                [timing.texts_per_second for timing in timings],
                f"{marker}-",
                color=color,
                linewidth=1,
            )
        for timing in report.texts:
            if timing.side == side:
                roofline.axhline(report.share(timing), color=color, linestyle=":", linewidth=1)
        roofline.plot([], [], "-", color=color, linewidth=4, label=side)
    for length, marker in markers.items():
        speed.plot([], [], marker, color="0.4", label=f"{length} tokens")
    if report.texts:
        roofline.plot([], [], ":", color="0.4", label=f"{report.texts[0].batch} texts")
    roofline.axhline(1, color="0.3", linewidth=1)
    roofline.annotate(
        f"largest matrix product: {report.ceiling / _GIGA:,.0f} GFLOP/s",
        (0.02, 1),
        xycoords=("axes fraction", "data"),
        va="bottom",
    )
    scale = "log" if report.grid else "linear"  # without points, there is no logarithm to show
    roofline.set(
        xscale=scale,
        ylim=(0, max(1.15, *(report.share(timing) * 1.05 for timing in (*report.grid, *report.texts)), 0)),
        xlabel="operations per call (GFLOP)",
        ylabel="share of the largest matrix product's speed",
    )
    speed.set(xscale=scale, yscale=scale, xlabel="batch size", ylabel="texts per second")
    batches = sorted({timing.batch for timing in report.grid})
    speed.set_xticks(batches, [str(batch) for batch in batches])
    speed.minorticks_off()
    for panel in (roofline, speed):
        panel.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    about = report.about
    title = f"{Path(report.model).name}: {about['dtype']}, {about['processor']}, {about['threads']} threads"
    figure.suptitle(title.replace("$", r"\$"), fontsize="medium")  # "$" alone would begin a formula
    write_picture(figure, target, dpi=130)
