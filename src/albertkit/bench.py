"""Measure the speed of a model by engine, text length and batch size: `albertkit bench`.

Speeds count the operations of all layers for all tokens without padding (`footprint.py`), also if an engine
computes fewer. They are compared with the fastest matrix product of the same run.
"""

import copy
import itertools
import math
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from albertkit.checkpoints.formats import load_config
from albertkit.cores import compute_threads, processor, usable_cores
from albertkit.datasets.inputs import read_texts
from albertkit.devices import best_device, read_device
from albertkit.engines.choosing import ENGINES, FLOAT32_ENGINES, load_complete_model, make_engine
from albertkit.engines.engine import Row, every_token, first_token
from albertkit.engines.light_model import LightModel, Model, class_name
from albertkit.errors import ConfigError, MissingExtraError
from albertkit.extras import optional, version_of
from albertkit.footprint import measure as measure_footprint
from albertkit.heads import HEADS, Output, head_of
from albertkit.hub import BUNDLED
from albertkit.pictures import check_picture, picture
from albertkit.tasks.rows import text_rows
from albertkit.vocabularies import load_tokenizer

torch: Any = optional("torch", extra="torch")

Clock = Callable[[], float]
Product = tuple[int, int, int]
"""The sizes (M, K, N) of a product of matrices M x K and K x N, which takes 2 * M * K * N operations."""

PRODUCTS: Sequence[Product] = ((256, 768, 3072), (1024, 768, 3072), (1024, 3072, 768), (2048, 2048, 2048))
GPU_PRODUCTS: Sequence[Product] = ((4096, 768, 3072), (8192, 4096, 4096), (8192, 8192, 8192))
_RUNS = 5
_MAX_TEXTS = 2048
_PRODUCT_SHARE = 0.05  # share of the time for the matrix product, once at the start and once at the end
_TEXTS_SHARE = 0.3
_FIRST_GUESS = 4.0  # time of an engine before it is measured, as a multiple of the time of the product
_LONG = 1.0  # a call that takes more seconds needs no warm-up


@dataclass(frozen=True)
class Timing:
    """The time in which an engine computes a batch."""

    engine: str
    length: int | None
    """Number of tokens of each text; None for the texts of a file."""
    batch: int
    """Number of texts."""
    seconds: float
    """Median time of a call."""
    flops: float
    """Number of operations of a call."""
    share: float = 0.0
    """Operations per second as a share of those of the fastest matrix product."""

    @property
    def texts_per_second(self) -> float:
        """Number of texts per second."""
        return self.batch / self.seconds


@dataclass
class BenchReport:
    """The results of `bench`."""

    model: str
    about: dict[str, Any]
    """The machine, the versions of libraries, and the kind of the model."""
    product: float = 0.0
    """Operations per second of the fastest matrix product."""
    timings: list[Timing] = field(default_factory=list)
    """The texts of the file first, then random texts by length and batch size."""
    tokens_per_text: float = 0.0
    """Mean number of tokens of the texts of the file."""
    differences: dict[str, float] = field(default_factory=dict)
    """For each engine, the largest difference of its scores from those of the first engine."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The measurements that were skipped, each with the reason."""

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values for `json.dumps`: the machine and the model, then each timing."""
        head = {"model": self.model, **self.about, "product": self.product}
        head |= {name: getattr(self, name) for name in ("tokens_per_text", "differences", "left_out")}
        return [head, *(asdict(one) | {"texts_per_second": one.texts_per_second} for one in self.timings)]

    def plot(self, target: str | Path) -> None:
        """Draw the texts per second by batch size to a .png, .svg or .pdf file."""
        with picture(Path(target), 6, 4, dpi=130) as figure:
            axes = figure.subplots()
            key = lambda timing: (timing.engine, timing.length or 0)  # noqa: E731
            for (engine, length), some in itertools.groupby(sorted(self.timings, key=key), key):
                points = [(timing.batch, timing.texts_per_second) for timing in some]
                label = f"{engine}, {f'{length} tokens' if length else 'texts of the file'}"
                axes.plot(*zip(*sorted(points), strict=True), "o-", label=label)
            axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="texts per second")
            axes.grid(alpha=0.3)
            figure.legend(loc="outside right upper", fontsize="small", frameon=False)
            figure.suptitle(Path(self.model).name.replace("$", r"\$"))  # "$" alone would begin a formula


def bench(
    model: str | Path = BUNDLED,
    *,
    texts: str | Path | None = None,
    minutes: float = 1.0,
    rounds: int = 20,
    lengths: Sequence[int] = (16, 64, 128, 512),
    batches: Sequence[int] = (1, 8, 32),
    plot: str | Path | None = None,
    dtype: str = "float32",
    processor_time: bool = False,
    device: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> BenchReport:
    """Measure a model's speed by engine, text length and batch size.

    The report also gives each speed as a share of the speed of a large matrix product on this machine. The
    engines are called in turn, so that a busy machine affects all of them alike.

    Args:
        model: Model folder, Hugging Face Hub name, or "bundled".
        texts: Also measure the texts of this file: one per line, .tsv (first column) or .jsonl.
        minutes: Approximate maximum time in minutes. Measurements that would take longer are skipped.
        rounds: Maximum number of timed calls per measurement.
        lengths: Text lengths in tokens. Lengths above the model's maximum are skipped.
        batches: Batch sizes in texts. Every length is measured with each of them.
        plot: Write a plot of the results to this .png, .svg or .pdf file.
        dtype: Data type of the weights: float32, bfloat16 or float16. The engines plain and torch also
            compute in this data type.
        processor_time: Measure CPU time instead of elapsed time. Use it on a busy machine.
        device: Device: cpu, cuda, cuda:1, mps, ... (default: the best available device).
        progress: Function that is called with a description of the current measurement.

    Returns:
        The report.

    Raises:
        ConfigError: a size is below 1, or nothing could be measured in this time.
        AlbertKitError: the model or the texts cannot be loaded.
    """
    if not (0 < minutes < math.inf and rounds > 0 and min([*lengths, *batches], default=0) > 0):
        raise ConfigError("minutes, rounds, lengths and batches must be finite numbers above 0.")
    if plot is not None:
        check_picture(Path(plot))
    lines = [] if texts is None else read_texts(Path(texts))
    loaded, tokenizer = _load(model, device=device, dtype=dtype), load_tokenizer(model)
    engines, left_out = _engines(loaded)
    limit = loaded.config.max_position_embeddings
    left_out |= {f"{size} tokens": f"exceed the model's maximum, {limit}" for size in lengths if size > limit}
    report = BenchReport(str(model), _about(loaded, engines), left_out=left_out)
    clock = time.process_time if processor_time else _clock_of(loaded.device)
    product_seconds, end = 60 * minutes * _PRODUCT_SHARE, clock() + 60 * minutes
    find_product = partial(largest_product, loaded.device, loaded.dtype, seconds=product_seconds, clock=clock)
    progress("the largest matrix product")
    product = find_product()
    report.differences = _differences(engines, loaded)
    footprint = measure_footprint(class_name(loaded), loaded.config)
    seconds_per_flop = _FIRST_GUESS * len(engines) / product  # of one call of each engine

    def measure(
        works: dict[str, Callable[[], Any]], length: int | None, batch: int, flops: float, seconds: float
    ) -> None:
        nonlocal seconds_per_flop
        warm_up = seconds_per_flop * flops < _LONG * len(works)
        medians = in_turn(works, seconds=seconds, rounds=rounds, warm_up=warm_up, clock=clock)
        seconds_per_flop = sum(medians.values()) / flops
        report.timings += [Timing(name, length, batch, took, flops) for name, took in medians.items()]

    if lines:
        progress("texts")
        time_for_texts = 60 * minutes * _TEXTS_SHARE
        sample = random.Random(0).sample(lines, min(_MAX_TEXTS, len(lines)))
        rows = text_rows(tokenizer, sample, max_length=limit, truncation=True)
        flops_each = [len(row.input_ids) * footprint.flops(len(row.input_ids)) for row in rows]
        # So few texts that three calls of each engine fit into the time.
        totals = list(itertools.accumulate(flops_each))
        count = max(1, sum(3 * seconds_per_flop * total < time_for_texts for total in totals))

        def tokenize_and_run(run: Callable[[list[Row]], Any]) -> Any:
            return run(text_rows(tokenizer, sample[:count], max_length=limit, truncation=True))

        works = {name: partial(tokenize_and_run, run) for name, run in engines.items()}
        report.tokens_per_text = sum(len(row.input_ids) for row in rows[:count]) / count
        measure(works, None, count, totals[count - 1], time_for_texts)
    sizes = itertools.product([length for length in lengths if length <= limit], batches)
    cells = sorted(sizes, key=math.prod)
    for done, (length, batch) in enumerate(cells):
        flops = batch * length * footprint.flops(length)
        left = end - product_seconds - clock()
        expected = seconds_per_flop * flops
        if 2 * expected > left:  # a call of each engine, and its warm-up
            reason = f"would take {2 * expected:.1f} s of the {max(0.0, left):.1f} s that are left"
            report.left_out[f"{batch} x {length} tokens"] = reason
            continue
        progress(f"{batch} x {length} tokens")
        rows = random_rows(batch, length, loaded.config.vocab_size)
        works = {name: partial(run, rows) for name, run in engines.items()}
        measure(works, length, batch, flops, left / (len(cells) - done))
    if not report.timings:
        reasons = "; ".join(f"{name} {reason}" for name, reason in report.left_out.items())
        raise ConfigError(f"nothing could be measured in {minutes:g} minutes ({reasons}).")
    report.product = max(product, find_product())
    shares = [timing.flops / timing.seconds / report.product for timing in report.timings]
    report.timings = [
        replace(timing, share=share) for timing, share in zip(report.timings, shares, strict=True)
    ]
    if plot is not None:
        report.plot(plot)
    return report


def _load(name: str | Path, *, device: str | None, dtype: str) -> Model:
    """Return a model with its own head. A pretraining model is an `AlbertForMaskedLM`."""
    config = load_config(name)
    classes = config.architectures or []
    if not classes:
        raise ConfigError(f"{name}: config.json does not name a model class in `architectures`.")
    architecture = next((each for each in classes if each in HEADS), classes[0])
    if architecture == "AlbertForPreTraining":
        architecture = "AlbertForMaskedLM"
    head_of(architecture)  # raises an error for unknown classes
    place = read_device(device) or best_device()
    return load_complete_model(name, architecture, device=place, config=config, dtype=dtype)


def _engines(model: Model) -> tuple[dict[str, Callable[[list[Row]], Any]], dict[str, str]]:
    """Return a function for each engine that can compute a model, and for each other engine the reason.

    The engine `plain` is the first. A light model stays light: the engines of PyTorch compute a copy.
    """
    head = HEADS[class_name(model)]
    output, scores = next(iter(head.scores.items()))
    reads_all = not scores.reads_first and head.task != "fill-mask"
    read = every_token if reads_all else first_token
    engines: dict[str, Callable[[list[Row]], Any]] = {}
    left_out = {}
    module = copy.copy(model) if isinstance(model, LightModel) else model
    for name in ("plain", *(name for name in ENGINES if name not in ("auto", "plain"))):
        try:
            engine = make_engine(module if name in ("torch", "plain") else model, name)
        except (ConfigError, MissingExtraError) as error:
            left_out[name] = str(error)
        else:
            engines[name] = partial(engine.run, output=cast(Output, output), read=read)
    return engines, left_out


def _differences(engines: Mapping[str, Callable[[list[Row]], Any]], model: Model) -> dict[str, float]:
    """Return the largest difference of each engine's scores from those of the first, for three rows."""
    longest = min(16, model.config.max_position_embeddings)
    rows = [random_rows(1, length, model.config.vocab_size)[0] for length in (longest, longest // 2, 4)]
    first, *others = [run(rows) for run in engines.values()]
    return {
        name: max(float(np.abs(a - b).max()) for a, b in zip(scores, first, strict=True))
        for name, scores in zip([*engines][1:], others, strict=True)
    }


def random_rows(count: int, length: int, vocab_size: int) -> list[Row]:
    """Return rows of random tokens."""
    rng = random.Random(length)
    ids = [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(count)]
    return [Row(input_ids=one, token_type_ids=[0] * length, example=number) for number, one in enumerate(ids)]


def _about(model: Model, engines: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine, the versions of libraries, and the kind of the model."""
    device, threads = str(model.device).partition(":")[0], compute_threads()
    if find_spec("torch"):
        device = torch.cuda.get_device_name(model.device) if device == "cuda" else device
        threads = torch.get_num_threads()
    dtype = str(model.dtype).removeprefix("torch.")
    libraries = ("albertkit", "numpy", "torch", "onnxruntime")
    versions = {name: version for name in libraries if (version := version_of(name))}
    return {
        "class": class_name(model),
        "dtype": dtype,
        "device": device,
        "processor": processor(),
        "cores": usable_cores(),
        "threads": threads,
        "product_library": "torch" if find_spec("torch") else "numpy",
        "versions": {"python": platform.python_version(), **versions},
        "computed_in": {name: "float32" if name in FLOAT32_ENGINES else dtype for name in engines},
    }


def _clock_of(device: Any) -> Clock:
    """Return a clock in seconds that waits until a device has finished its work."""
    kind = str(device).partition(":")[0]
    if kind not in ("cuda", "mps"):
        return time.perf_counter
    wait = torch.cuda.synchronize if kind == "cuda" else torch.mps.synchronize

    def clock() -> float:
        wait()
        return time.perf_counter()

    return clock


def in_turn(
    works: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = math.inf,
    rounds: int = 20,
    warm_up: bool = True,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Call functions in turn (A B A B), and return the median time of each in seconds.

    No round begins after `seconds`, except the first. With `warm_up`, each function is called once before.
    """
    end = clock() + seconds
    for work in works.values() if warm_up else ():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for done in range(rounds):
        if done and clock() >= end:
            break
        for name, work in works.items():
            begin = clock()
            work()
            times[name].append(clock() - begin)
    return {name: statistics.median(some) for name, some in times.items()}


def largest_product(
    device: Any,
    dtype: Any = "float32",
    *,
    products: Sequence[Product] | None = None,
    seconds: float = math.inf,
    clock: Clock = time.perf_counter,
) -> float:
    """Return the operations per second of the fastest matrix product, computed by PyTorch or NumPy.

    NumPy computes on the CPU and in float32.

    Args:
        device: the device on which PyTorch computes; on a CPU, with all its threads.
        dtype: the data type of the matrices, as a torch.dtype or by name.
        products: the products to try, small ones first; None for products that suit the device.
        seconds: no product begins after this time, except the first.
        clock: clock in seconds. For a GPU, it must wait until the GPU has finished.
    """
    best, end = 0.0, clock() + seconds
    for product in products or (PRODUCTS if str(device).startswith("cpu") else GPU_PRODUCTS):
        if best and clock() >= end:
            break
        rows, inputs, outputs = product
        if find_spec("torch"):
            of_type = {"device": device, "dtype": getattr(torch, str(dtype).removeprefix("torch."))}
            left, right = torch.ones(rows, inputs, **of_type), torch.ones(outputs, inputs, **of_type).T
        else:
            left, right = np.ones((rows, inputs), np.float32), np.ones((outputs, inputs), np.float32).T
        for run in range(_RUNS + 1):
            begin = clock()
            _ = left @ right
            now = clock()
            if run:  # the first run is a warm-up
                best = max(best, 2 * math.prod(product) / (now - begin))
            if best and now >= end:
                break
    return best
