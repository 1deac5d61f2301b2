"""Figures beside those of another side, from the same run, with their targets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of ours, and another's."""

    name: str
    value: float
    against: float | None
    """The other side's; None where there is none."""
    ratio: float | None
    """value / against."""
    target: str = "none"
    met: bool | None = None
    """None where there is no target."""


def compare(name: str, value: float, against: float, *, at_most: float = 0, at_least: float = 0) -> Figure:
    """Return a figure with its target, if one is given: a ratio of at most or at least so much."""
    ratio = value / against
    target, met = "none", None
    if at_most or at_least:
        target = f"<= {at_most:.3g}x" if at_most else f">= {at_least:.3g}x"
        met = ratio <= at_most if at_most else ratio >= at_least
    return Figure(name, _rounded(value), _rounded(against), round(ratio, 3), target, met)


def state(name: str, value: float, against: float | None = None) -> Figure:
    """Return a figure without a target."""
    return Figure(name, _rounded(value), None, None) if against is None else compare(name, value, against)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
