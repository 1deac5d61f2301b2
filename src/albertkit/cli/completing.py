"""Shell completion: the names offered after Tab. Without a match, the shell offers files.

Nothing here may import NumPy or PyTorch, because a Tab must not take seconds. So names from modules that
import them are repeated here, and a test compares them.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from albertkit.files import model_folders
from albertkit.hub import NAMES
from albertkit.parallel import RUNNERS as RUNNERS
from albertkit.published import SIZES, VERSIONS

Complete = Callable[[str], list[str]]
"""The typed part of a word -> the possible words."""

PIPELINE_TASKS = (
    "fill-mask",
    "feature-extraction",
    "text-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-order",
    "zero-shot-classification",
)
FINETUNING_TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-embedding",
)
ENGINES = ("auto", "onnx", "onnx-int8", "torch", "plain")
SUITES = ("glue", "squad", "race", "all")


def one_of(names: Iterable[str]) -> Complete:
    """Return a completion function for these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def models(incomplete: str) -> list[str]:
    """Offer the bundled models, the published models, and the model folders here."""
    return [*one_of(NAMES)(incomplete), *_folders(incomplete)]


def models_and_shapes(incomplete: str) -> list[str]:
    """Offer also the shapes that `inspect` knows without a checkpoint."""
    shapes = [f"{size}-{version}" for size in SIZES for version in VERSIONS]
    return [*models(incomplete), *one_of(shapes)(incomplete)]


def named(complete: Complete) -> Complete:
    """Return a completion function that offers the same after `NAME=`."""

    def complete_named(incomplete: str) -> list[str]:
        name, equals, value = incomplete.rpartition("=")
        return [f"{name}{equals}{one}" for one in complete(value)]

    return complete_named


COMPLETIONS: dict[str, Complete] = {
    "device": one_of(["cpu", "cuda", "mps"]),
    "engine": one_of(ENGINES),
    "init_from": models,
    "runner": one_of(RUNNERS),
}
"""Field of a settings dataclass -> the completion of its flag."""


def _folders(incomplete: str) -> list[str]:
    """Return the model folders that a path may be completed to, as typed."""
    parent, slash, begin = incomplete.rpartition("/")
    try:
        folders = model_folders(Path(f"{parent}{slash}" or ".").expanduser())
    except OSError:  # the folder does not exist yet
        return []
    return [f"{parent}{slash}{name}" for name in folders if name.startswith(begin)]
