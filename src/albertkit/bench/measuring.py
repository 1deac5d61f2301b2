"""Measure a model's speed on this machine by engine, length and batch, and compare it with a matrix product.

The speed is given in operations per second. The operations are those of all layers for all tokens without
padding (`footprint.py`), also if an engine computes fewer.
"""

import itertools
import math
import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from albertkit.bench.timing import Clock, Side, clock_of, in_turn, largest_product, library
from albertkit.cores import compute_threads, processor, usable_cores
from albertkit.engines.engine import Row
from albertkit.engines.light_model import Model, class_name
from albertkit.errors import ConfigError
from albertkit.extras import optional, version_of
from albertkit.footprint import Footprint
from albertkit.footprint import measure as measure_footprint
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase

torch: Any = optional("torch", extra="torch")

_MOST_TEXTS = 2048
_CEILING_SHARE = 0.05  # share of the time for the matrix product, once at the start and once at the end
_TEXTS_SHARE = 0.3  # share of the time for texts
_FIRST_GUESS = 4.0  # time of a side before it is measured, as a multiple of the time of the largest product
_LONG = 1.0  # a call that takes more seconds needs no warm-up


@dataclass(frozen=True)
class Timing:
    """The time in which a side computes rows of one length in one call."""

    side: str
    length: int
    """Number of tokens of a row; 0 for the texts of a file."""
    batch: int
    """Number of rows; for the texts of a file, the number of texts."""
    seconds: float
    flops: float
    """Number of operations of the call."""

    @property
    def texts_per_second(self) -> float:
        """Number of rows per second."""
        return self.batch / self.seconds


@dataclass
class Report:
    """The results of all measurements."""

    model: str
    about: dict[str, Any]
    """The machine, the versions of libraries, and the kind of the model."""
    ceiling: float = 0.0
    """Operations per second of the largest matrix product."""
    grid: list[Timing] = field(default_factory=list)
    """The timings of random rows, by length and batch."""
    texts: list[Timing] = field(default_factory=list)
    """The timings of the texts of a file."""
    tokens_per_text: float = 0.0
    """Mean number of tokens of these texts."""
    differences: dict[str, float] = field(default_factory=dict)
    """For each side, the largest difference of its scores from those of the first side."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The measurements that were skipped, each with the reason."""

    def share(self, timing: Timing) -> float:
        """Return the operations per second as a share of the ceiling."""
        return timing.flops / timing.seconds / self.ceiling


def run(
    model: Model,
    tokenizer: TokenizerBase,
    sides: Sequence[Side],
    *,
    name: str,
    texts: Sequence[str] = (),
    minutes: float = 1.0,
    lengths: Sequence[int] = (16, 64, 128, 512),
    batches: Sequence[int] = (1, 8, 32),
    rounds: int = 20,
    clock: Clock | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure all sides in turn on random rows of each length and batch, and on texts.

    The function skips lengths above the model's maximum, and measurements that would take longer than the
    remaining time. The report lists them.

    Args:
        model: the model that all sides compute.
        tokenizer: the tokenizer of the model.
        sides: the engines and libraries to measure (`sides.py`).
        name: the name of the model in the report.
        texts: texts of any lengths, of which a sample is measured.
        minutes: approximate maximum time in minutes.
        lengths: numbers of tokens in a row.
        batches: numbers of rows in a batch. Every length is measured with each of them.
        rounds: maximum number of timed calls of each side per measurement.
        clock: clock in seconds; None for the elapsed time.
        progress: function that is called with a description of the current measurement.

    Raises:
        ConfigError: `minutes` is NaN or infinite.
    """
    if not math.isfinite(minutes):
        raise ConfigError(f"minutes is {minutes}. Expected a number of minutes.")
    clock = clock or clock_of(model.device)
    end = clock() + 60 * minutes
    footprint = measure_footprint(class_name(model), model.config)
    report = Report(name, about(model))
    ceiling_seconds = 60 * minutes * _CEILING_SHARE
    progress("the largest matrix product")
    report.ceiling = largest_product(model.device, model.dtype, seconds=ceiling_seconds, clock=clock)
    report.differences = _differences(sides, model)
    meter = _Meter([side.name for side in sides], report.ceiling, clock, rounds)
    if texts:
        progress("texts")
        report.texts, report.tokens_per_text = _measure_texts(
            sides, texts, tokenizer, model, footprint, meter, 60 * minutes * _TEXTS_SHARE
        )
    limit = model.config.max_position_embeddings
    too_long = [length for length in lengths if length > limit]
    report.left_out |= {f"{length} tokens": f"exceed the model's maximum, {limit}" for length in too_long}
    cells = sorted(
        itertools.product([length for length in lengths if length <= limit], batches), key=math.prod
    )
    for done, (length, batch) in enumerate(cells):
        flops = batch * length * footprint.flops(length)
        left = end - ceiling_seconds - clock()
        expected = meter.expected(flops)
        if 2 * expected > left:  # a round of all sides, and its warm-up
            time = f"would take {2 * expected:.1f} s of the {max(0.0, left):.1f} s that are left"
            report.left_out[f"{batch} x {length} tokens"] = time
            continue
        progress(f"{batch} x {length} tokens")
        rows = _random_rows(batch, length, model.config.vocab_size)
        seconds = meter.measure(
            {side.name: partial(side.compute_rows, rows) for side in sides}, flops, left / (len(cells) - done)
        )
        report.grid += [Timing(side, length, batch, took, flops) for side, took in seconds.items()]
    again = largest_product(model.device, model.dtype, seconds=ceiling_seconds, clock=clock)
    report.ceiling = max(report.ceiling, again)
    return report


class _Meter:
    """Measures functions. The last measurement tells how long more operations will take."""

    def __init__(self, names: Sequence[str], ceiling: float, clock: Clock, rounds: int) -> None:
        self.clock, self.rounds = clock, rounds
        self.seconds_per_operation = _FIRST_GUESS * len(names) / ceiling  # of one call of each side

    def expected(self, flops: float) -> float:
        """Return the estimated seconds of one call of each side."""
        return self.seconds_per_operation * flops

    def measure(self, works: dict[str, Callable[[], Any]], flops: float, seconds: float) -> dict[str, float]:
        """Return the median time in seconds of each function, which takes `flops` operations."""
        warm_up = self.expected(flops) < _LONG * len(works)
        medians = in_turn(works, seconds=seconds, rounds=self.rounds, warm_up=warm_up, clock=self.clock)
        self.seconds_per_operation = sum(medians.values()) / flops
        return medians


def _measure_texts(
    sides: Sequence[Side],
    texts: Sequence[str],
    tokenizer: TokenizerBase,
    model: Model,
    footprint: Footprint,
    meter: _Meter,
    seconds: float,
) -> tuple[list[Timing], float]:
    """Return the timings of a sample of texts, and its mean number of tokens.

    The sample is so small that the sides can compute it three times in `seconds`.
    """
    sample = random.Random(0).sample(list(texts), min(_MOST_TEXTS, len(texts)))
    limit = model.config.max_position_embeddings
    rows = text_rows(tokenizer, sample, max_length=limit, truncation=True)
    flops = [len(row.input_ids) * footprint.flops(len(row.input_ids)) for row in rows]
    affordable = sum(3 * meter.expected(total) < seconds for total in itertools.accumulate(flops))
    count = max(1, affordable)
    works = {side.name: partial(side.compute_texts, sample[:count]) for side in sides}
    total = sum(flops[:count])
    medians = meter.measure(works, total, seconds)
    tokens = sum(len(row.input_ids) for row in rows[:count])
    return [Timing(side, 0, count, took, total) for side, took in medians.items()], tokens / count


def _differences(sides: Sequence[Side], model: Model) -> dict[str, float]:
    """Return the largest difference of each side's scores from those of the first, for three rows."""
    longest = min(16, model.config.max_position_embeddings)
    rows = [_random_rows(1, length, model.config.vocab_size)[0] for length in (longest, longest // 2, 4)]
    first, *others = [side.first_scores(rows) for side in sides]
    return {
        side.name: float(np.abs(scores - first).max()) for side, scores in zip(sides[1:], others, strict=True)
    }


def _random_rows(count: int, length: int, vocab_size: int) -> list[Row]:
    rng = random.Random(length)
    return [
        Row(
            input_ids=[rng.randrange(vocab_size) for _ in range(length)],
            token_type_ids=[0] * length,
            example=number,
        )
        for number in range(count)
    ]


def about(model: Model) -> dict[str, Any]:
    """Return the machine, the versions of libraries, and the kind of the model."""
    device, threads = str(model.device).partition(":")[0], compute_threads()
    if library() == "torch":
        device = torch.cuda.get_device_name(model.device) if device == "cuda" else device
        threads = torch.get_num_threads()
    return {
        "class": class_name(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "hidden_size": model.config.hidden_size,
        "depth": model.config.depth,
        "device": device,
        "processor": processor(),
        "cores": usable_cores(),
        "threads": threads,
        "ceiling_library": library(),
        "versions": {"python": platform.python_version()}
        | {
            name: version
            for name in ("albertkit", "numpy", "torch", "onnxruntime", "transformers")
            if (version := version_of(name))
        },
    }
