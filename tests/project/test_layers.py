"""Tests of the architecture: levels and cycles of imports, and the libraries that each module needs."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from torchless import run_without_torch

import albertkit

PACKAGE = Path(albertkit.__file__).parent

# Package or module -> level. A file imports only from its own package and from lower levels.
LEVELS = {
    "allocator": 0,
    "errors": 0,
    "extras": 0,
    "files": 0,
    "hub": 0,
    "hub_upload": 0,
    "logs": 0,
    "options": 0,
    "pictures": 0,
    "protobuf": 0,
    "published": 0,
    "recipe": 0,
    "results": 0,
    "text_files": 0,
    "tuple_outputs": 0,
    "config": 0,
    "cores": 0,
    "heads": 0,
    "assets": 0,
    "tokenization": 1,
    "checkpoints": 1,
    "metrics": 1,
    "model_inputs": 1,
    "parallel": 1,
    "devices": 2,
    "datasets": 2,
    "footprint": 2,
    "onnx": 2,
    "keras": 2,
    "reference": 2,
    "modeling": 2,
    "vocabularies": 2,
    "conversion": 3,
    "engines": 3,
    "tasks": 3,
    "pretraining": 4,
    "training": 4,
    "finetuning": 4,
    "inspection": 4,
    "bench": 4,
    "pipelines": 4,
    "export": 4,
    "serving": 5,
    "web": 5,
    "cli": 6,
    "__main__": 7,
}
# (importer, imported): the allowed imports within one level.
EDGES_WITHIN_A_LEVEL = {
    ("config", "files"),
    ("config", "hub"),
    ("config", "hub_upload"),
    ("config", "errors"),
    ("config", "published"),
    ("cores", "errors"),
    ("export", "finetuning"),
    ("extras", "errors"),
    ("files", "errors"),
    ("finetuning", "pipelines"),
    ("finetuning", "training"),
    ("inspection", "pipelines"),
    ("heads", "config"),
    ("heads", "errors"),
    ("hub", "errors"),
    ("hub", "files"),
    ("hub", "published"),
    ("hub_upload", "errors"),
    ("hub_upload", "hub"),
    ("modeling", "devices"),
    ("options", "errors"),
    ("pictures", "extras"),
    ("pictures", "files"),
    ("pretraining", "pipelines"),
    ("pretraining", "training"),
    ("published", "errors"),
    ("recipe", "errors"),
    ("tasks", "engines"),
    ("text_files", "errors"),
    ("text_files", "extras"),
}


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module, by the name of the module without `albertkit.`."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            files[name] = path
    return files


@cache
def imports(path: Path) -> set[str]:
    """Return the modules of albertkit that a file imports, including imports in functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "albertkit":
                # A file may import only the version and modules from the package itself.
                names |= {alias.name for alias in node.names if alias.name != "__version__"}
            elif node.module and node.module.startswith("albertkit."):
                module = node.module.removeprefix("albertkit.")
                known = modules()
                names |= {
                    f"{module}.{a.name}" if f"{module}.{a.name}" in known else module for a in node.names
                }
        elif isinstance(node, ast.Import):
            names |= {
                a.name.removeprefix("albertkit.") for a in node.names if a.name.startswith("albertkit.")
            }
            assert all(a.name != "albertkit" for a in node.names), f"{path}: imports the package itself"
    return names


def top(module: str) -> str:
    return module.split(".")[0]


def test_imports_go_down() -> None:
    for module, path in modules().items():
        importer = top(module)
        for imported in imports(path):
            other = top(imported)
            assert other in LEVELS, f"{module} imports {imported}, which has no level"
            if other != importer:
                levels = f"{module} (level {LEVELS[importer]}) imports {imported} (level {LEVELS[other]})"
                assert LEVELS[other] < LEVELS[importer] or (importer, other) in EDGES_WITHIN_A_LEVEL, levels


def test_no_cycle() -> None:
    graph = {module: imports(path) & modules().keys() for module, path in modules().items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"import cycle: {' -> '.join((*trail, module))}"
        if module not in done:
            for imported in graph[module]:
                visit(imported, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


# Packages and modules that import PyTorch. All others work without it.
NEED_TORCH = {
    "engines.torch",
    "finetuning.finetune",
    "finetuning.losses",
    "finetuning.prepared",
    "modeling",
    "pretraining.loss",
    "pretraining.run",
    "pretraining.initialization",
    "training.distributed",
    "training.loop",
    "training.optimizers",
    "training.checkpoints",
    "training.throughput",
}


def needs_torch(module: str) -> bool:
    return bool({module, top(module)} & NEED_TORCH)


# Libraries that the base install does not contain.
EXTRAS = {
    "torch",
    "tokenizers",
    "pyarrow",
    "ray",
    "sentencex",
    "matplotlib",
    "sklearn",
    "scipy",
    "datasets",
    "crc32c",
    "h5py",
    "jax",
    "keras",
    "tensorflow",
    "fastapi",
    "starlette",
    "uvicorn",
    "httptools",
    "prometheus_client",
    "pydantic",
    "transformers",
    "pytest",
    "hypothesis",
}

IMPORT_ALL = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras}:
            raise ImportError(f"{{name}} is not a base dependency")
sys.meta_path.insert(0, Refuse())
for module in {modules}:
    importlib.import_module("albertkit." + module)
"""


def test_only_modules_that_are_listed_import_torch() -> None:
    """Check imports in functions too: they must use `extras.optional` or `extras.require`."""
    importers = {
        module
        for module, path in modules().items()
        if re.search(r"^ *(import|from) (torch|safetensors\.torch)\b", path.read_text(), re.MULTILINE)
    }
    assert [module for module in sorted(importers) if not needs_torch(module)] == []


def test_every_module_that_is_listed_needs_torch() -> None:
    code = """
import importlib
for name in {names}:
    try:
        importlib.import_module("albertkit." + name)
    except ImportError:
        continue
    print(name)
"""
    assert run_without_torch(code.format(names=sorted(NEED_TORCH))) == ""


NEED_EXTRAS = """
for module, message, extra in (
    ("keras", "albertkit.keras needs Keras 3", "keras"),  # its classes derive from classes of Keras
    ("serving.server", "the server needs libraries that are not installed (fastapi", "serve"),
):
    try:
        importlib.import_module("albertkit." + module)
    except ImportError as error:
        assert message in str(error), error
        assert f"pip install 'albertkit[{extra}]'" in str(error), error
    else:
        raise AssertionError(module)
"""


def test_every_module_imports_with_base_dependencies_or_names_its_extra() -> None:
    names = [name for name in modules() if top(name) not in ("keras", "serving") and not needs_torch(name)]
    code = IMPORT_ALL.format(extras=EXTRAS, modules=[*names, "serving.settings"]) + NEED_EXTRAS
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_public_name_can_be_imported() -> None:
    for name in albertkit.__all__:
        assert getattr(albertkit, name) is not None
    with pytest.raises(AttributeError, match="AlbertModle"):
        albertkit.AlbertModle  # noqa: B018
    assert "TFAlbertModel" not in albertkit.__all__  # importing everything must not need Keras


def test_the_stub_exports_every_name_from_the_module_that_defines_it() -> None:
    """Check that the stub imports each name as itself: type checkers treat only these names as public."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imported for alias in node.names} == albertkit._MODULES
    assert all(alias.asname == alias.name for node in imported for alias in node.names)


def test_importing_the_command_line_imports_no_heavy_library() -> None:
    heavy = (
        "torch",
        "transformers",
        "pyarrow",
        "huggingface_hub",
        "matplotlib",
        "sklearn",
        "scipy",
        "pydantic",
    )
    code = f"import albertkit.cli.main, sys; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
