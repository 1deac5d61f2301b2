"""Which of the two exact engines computes a model faster here: measured once, and kept in a file.

It depends on the processor, the threads, the shape of the layers and the versions of both libraries, so a
measurement holds for these. Its file, `engines/*.json` in the cache folder, is for people to read, and to
delete: then it is measured anew.
"""

import hashlib
import json
import logging
import os
import random
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from albertkit.cores import processor
from albertkit.engines.fitting import encoder_of
from albertkit.engines.padding_free import Kind, PaddingFreeEngine, forget_layers
from albertkit.files import write_json
from albertkit.modeling.footprint import measure as measure_footprint
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.rows import Row

VARIABLE = "ALBERTKIT_CACHE"
EXACT: tuple[Kind, ...] = ("torch", "onnx")
"""The engines to choose from; the first where nothing was measured."""

_MOST_WEIGHTS = 2**26  # of all distinct layers: both engines hold them in turn
_OPERATIONS = 10e9  # of the rows that are computed: 0.05 s of a fast core
_TOKENS = (32, 512)
_LENGTHS = (12, 20, 28, 40)  # of the rows, again and again
_SECONDS = 0.4
_ROUNDS = (2, 20)
_FASTER = 1.05  # by so much the second has to be faster: less is noise
_TOLERANCE = 1e-4  # of the largest state
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Circumstances:
    """What a measurement holds for."""

    processor: str
    threads: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    depth: int
    distinct_layers: int
    hidden_act: str
    albertkit: str
    torch: str
    onnxruntime: str


@dataclass(frozen=True)
class Measurement:
    """What was found, under which circumstances."""

    circumstances: Circumstances
    measured: str
    """When, in UTC."""
    rows: int
    tokens: int
    """Of all rows, which were computed at once."""
    seconds: dict[str, float]
    """The fastest call of each engine; of one that failed there is none."""
    difference: float
    """The largest one between states of the two, as a share of the largest state."""

    @property
    def engine(self) -> Kind:
        """The faster one; the first, where the other is not clearly faster, or says something else."""
        first, second = EXACT
        if second not in self.seconds or not self.difference <= _TOLERANCE:
            return first
        return second if self.seconds[first] > _FASTER * self.seconds[second] else first

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return _file(self.circumstances)


_MEASURED: dict[Circumstances, Measurement] = {}
"""Those of this process, whether they could be written or not."""


def cache_folder() -> Path:
    """Return what the variable ALBERTKIT_CACHE says, else `albertkit` where caches are, as the hub's is."""
    if wanted := os.environ.get(VARIABLE):
        return Path(wanted).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "albertkit"


def can_measure(model: AlbertPreTrainedModel) -> bool:
    """Tell whether a model, which fits both engines, is small enough to be held by both."""
    layers = dict.fromkeys(encoder_of(model).encoder.executed_layers())
    return sum(one.numel() for layer in layers for one in layer.parameters()) <= _MOST_WEIGHTS


def remembered(model: AlbertPreTrainedModel) -> Measurement | None:
    """Return what was measured under these circumstances; None where nothing was, or cannot be read."""
    circumstances = _circumstances(model)
    if circumstances in _MEASURED:
        return _MEASURED[circumstances]
    try:
        found = json.loads(_file(circumstances).read_text(encoding="utf-8"))
        same = found.pop("circumstances") == asdict(circumstances)
        seconds = {name: float(one) for name, one in found.pop("seconds").items()}
        measurement = Measurement(circumstances, seconds=seconds, **found)
        return measurement if same and EXACT[0] in seconds and measurement.engine else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def measure(model: AlbertPreTrainedModel) -> Measurement:
    """Compute a few rows with both engines in turn, for about a second; keep what was found."""
    rows = _rows(model)
    engines = {kind: PaddingFreeEngine(model, kind) for kind in EXACT}
    states: dict[str, torch.Tensor] = {}
    seconds: dict[str, float] = {}
    for kind, engine in list(engines.items()):
        try:
            states[kind] = torch.cat(engine.run(rows, output="hidden_states"))  # uncounted: (B, H)
        except Exception as error:  # the other library's own; what cannot compute is not the faster one
            if kind == EXACT[0]:
                raise
            logger.warning("the engine %r cannot compute this model here: %s", kind, error)
            del engines[kind]
    # Of one thread the processor's time, in which other work on the machine does not count.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    end = clock() + _SECONDS
    fewest, most = _ROUNDS
    for done in range(most):
        if done >= fewest and clock() > end:
            break
        for kind, engine in engines.items():
            begin = clock()
            engine.run(rows, output="hidden_states")
            took = clock() - begin
            seconds[kind] = min(took, seconds.get(kind, took))
    expected = states[EXACT[0]]
    differences = [float((one - expected).abs().max() / expected.abs().max()) for one in states.values()]
    found = Measurement(
        _circumstances(model),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        rows=len(rows),
        tokens=sum(len(row.input_ids) for row in rows),
        seconds=seconds,
        difference=max(differences),
    )
    for kind in set(EXACT) - {found.engine}:
        forget_layers(model, kind)
    _keep(found)
    return found


def _keep(measurement: Measurement) -> None:
    _MEASURED[measurement.circumstances] = measurement
    if len(measurement.seconds) < len(EXACT):
        return  # what failed may work the next time
    file = measurement.file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, asdict(measurement))
    except OSError as error:
        logger.debug("the measurement of the engines is not kept: %s", error)
        return
    logger.info("the engine %r is the faster one: %s, in %s", measurement.engine, measurement.seconds, file)


def _file(circumstances: Circumstances) -> Path:
    shape = f"{circumstances.hidden_size}x{circumstances.depth}-{circumstances.threads}-threads"
    digest = hashlib.sha256(json.dumps(asdict(circumstances)).encode()).hexdigest()
    return cache_folder() / "engines" / f"{shape}-{digest[:12]}.json"


def _circumstances(model: AlbertPreTrainedModel) -> Circumstances:
    layers = encoder_of(model).encoder.executed_layers()
    first = layers[0]
    return Circumstances(
        processor=processor(),
        threads=torch.get_num_threads(),
        hidden_size=first.ffn.in_features,
        intermediate_size=first.ffn.out_features,
        num_attention_heads=len(first.attention.kept_heads),
        depth=len(layers),
        distinct_layers=len(set(layers)),
        hidden_act=str(model.config.hidden_act),
        **{name: version(name) for name in ("albertkit", "torch", "onnxruntime")},
    )


def _rows(model: AlbertPreTrainedModel) -> list[Row]:
    """Return short rows, as many as make enough work."""
    fewest, most = _TOKENS
    flops = measure_footprint(model).flops(max(_LENGTHS))
    left = min(max(fewest, round(_OPERATIONS / flops)), most)
    rng, rows = random.Random(0), []
    while left > 0:
        length = min(left, _LENGTHS[len(rows) % len(_LENGTHS)], model.config.max_position_embeddings)
        ids = [rng.randrange(model.config.vocab_size) for _ in range(length)]
        rows.append(Row(input_ids=ids, token_type_ids=[0] * length, example=len(rows)))
        left -= length
    return rows
