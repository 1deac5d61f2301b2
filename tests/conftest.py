"""Fixtures of all tests, and the marks of slow files."""

import gc
import importlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from both_engines import engine_of_pipelines  # noqa: F401  # a fixture of tests that use both engines
from chromium import browser  # noqa: F401  # a fixture of the tests in a browser
from command_line import run  # noqa: F401  # a fixture of the tests of commands
from hub_server import hub  # noqa: F401  # a fixture
from pictures import blank_pictures  # noqa: F401  # a fixture of tests that plot
from places import ROOT
from warm_commands import warm_commands

from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.vocabulary import train_vocabulary

# The suite is offline. A test that needs a hub starts a server on localhost.
os.environ["HF_HUB_OFFLINE"] = "1"

# Hypothesis uses the same examples in each run. To search for new ones: pytest --hypothesis-profile=default
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

SHARED = Path(os.environ.get("ALBERTKIT_SHARED", ROOT.parent / "shared"))


INTEGRATION = (
    "cli/*", "compat/*", "finetuning/*", "test_bench.py", "gpu/*", "keras/*", "project/*", "serving/*",
    "training/*", "checkpoints/test_foreign_models.py", "checkpoints/test_reader_*.py",
    "checkpoints/test_tensor_bundle.py", "datasets/test_data_fuzz*.py", "export/*",
    "inspection/*", "modeling/test_modeling_outputs.py",
    "modeling/test_modeling_parity.py", "modeling/test_modeling_pretrained*.py", "modeling/test_trainer.py",
    "pipelines/test_pipeline_*.py", "pipelines/test_task_pipelines*.py",
    "pretraining/test_pretraining_batches.py", "pretraining/test_pretraining_best_model.py",
    "pretraining/test_pretraining_prepare*.py", "pretraining/test_pretraining_run.py",
    "pretraining/test_pretraining_start.py", "tasks/test_own_task*.py", "test_conversion*.py",
    "test_extras.py", "test_light*.py", "test_nothing_written_over.py", "test_parallel.py",
    "test_public_functions.py",
    "tokenization/test_tokenizer_files*.py", "tokenization/test_tokenizer_fuzz.py",
    "tokenization/test_tokenizer_processes.py",
)  # fmt: skip
"""Files whose tests start processes, servers or browsers, train, fuzz, or compare with slow libraries."""
LAYERS = "project/test_layers.py"
"""A fast file in an INTEGRATION folder that `make test-fast` runs too, because it checks the architecture."""


def is_integration(path: Path) -> bool:
    """Return whether INTEGRATION contains a file."""
    file = path.relative_to(Path(__file__).parent).as_posix()
    return file != LAYERS and any(fnmatch(file, pattern) for pattern in INTEGRATION)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of project/test_docs.py that writes the outputs of code blocks into the pages."""
    parser.addoption("--write-outputs", action="store_true", help="write the outputs of blocks into the docs")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the files that `make test-fast` skips, because importing them takes long."""
    is_fast = "not integration" in config.option.markexpr
    return True if is_fast and collection_path.suffix == ".py" and is_integration(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark `integration` to the tests of the files in INTEGRATION."""
    for item in items:
        if is_integration(item.path):
            item.add_marker("integration")


def pytest_sessionstart() -> None:
    """Import the tests without collecting garbage. The imported libraries consist of a million objects."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From now on collect garbage, but do not look at the imported libraries again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of the reference data, next to the checkout. Skip the test if there is none."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference data in {SHARED} (set ALBERTKIT_SHARED to its folder)")
    return SHARED


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Return a function that imports a file of `scripts/` by name. The test unloads it at its end."""
    folder = ROOT / "scripts"
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for file in folder.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.fixture(scope="session")
def warm_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return environment variables with which `albertkit` and `python` start in milliseconds."""
    with warm_commands(tmp_path_factory.mktemp("warm")) as environment:
        yield environment


@pytest.fixture(scope="session")
def tiny_texts() -> list[str]:
    """Return 200 different documents of several sentences each."""
    rng = random.Random(0)
    subjects = [
        "The captain",
        "My sister",
        "An old fox",
        "The doctor",
        "A traveller",
        "Queen Anne",
        "The child",
    ]
    verbs = ["opened", "followed", "remembered", "painted", "lost", "carried", "sold", "found"]
    things = [
        "a silver key",
        "the river",
        "an empty house",
        "12,000 letters",
        "the café",
        "a well-kept secret",
    ]
    places = ["in the morning", "before dinner", "near the harbour", "without a word", "in 1847,", "(again)"]

    syllables = [first + vowel for first in "bcdfghlmnprstvw" for vowel in "aeiou"]
    names = ["".join(rng.choices(syllables, k=rng.randint(1, 4))).capitalize() for _ in range(1_000)]

    def sentence() -> str:
        parts = (
            *(rng.choice(subjects), rng.choice(names), rng.choice(verbs)),
            *(rng.choice(things), rng.choice(names), rng.choice(places)),
        )
        return " ".join(parts).rstrip(",") + rng.choice([".", ".", "!", "?"])

    return ["\n".join(sentence() for _ in range(rng.randint(6, 14))) for _ in range(200)]


@pytest.fixture(scope="session")
def tiny_vocabulary(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    """Return a spiece.model with 500 pieces, trained by albertkit."""
    folder = tmp_path_factory.mktemp("vocabulary")
    train_vocabulary(tiny_texts, folder, vocab_size=500, num_threads=1)
    return folder / "spiece.model"


@pytest.fixture(scope="session")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    """Return a tokenizer with the 500 pieces."""
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="session")
def save_model(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that saves a random model of a class with a tokenizer, and returns the folder.

    Keyword arguments are values of the config, which override `SIZES` in `random_models`.
    """

    def save(model_class: type, **settings: Any) -> Path:
        from random_models import save_random_model  # imports PyTorch, which the base install lacks

        return save_random_model(model_class, tokenizer, tmp_path_factory.mktemp("model"), **settings)

    return save


@pytest.fixture
def resident() -> Callable[[], int]:
    """Return a function that returns the resident memory of this process in bytes."""
    file = Path("/proc/self/statm")
    if not file.exists():
        pytest.skip("only Linux reports resident memory in /proc")
    return lambda: int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
