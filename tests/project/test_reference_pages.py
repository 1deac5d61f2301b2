"""Tests that the reference lists all fields of files, exceptions, errors of the server, and public names."""

import importlib
import inspect
import re

from places import ROOT

import albertkit
from albertkit import errors
from albertkit.heads import HEADS

PAGES = ROOT / "docs" / "reference"


def read(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """Return the cells of each row in the tables of a page."""
    return [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]


def in_code(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_field_that_a_file_shows_is_explained() -> None:
    """Check that the page explains the fields. test_docs.py compares the fields with the files of a run."""
    page = read("file-formats.md")
    explained = in_code(re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    shown: dict[str, set[str]] = {}
    for block in re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL):
        for line in block.replace("[", "").splitlines():
            name, _, fields = line.rpartition(": ")
            shown.setdefault(name.rpartition("/")[2], set()).update(re.findall(r"[\w/]+", fields))
    arguments = {*albertkit.AlbertConfig().to_dict()}
    tokenizer = shown.pop("tokenizer_config.json") | shown.pop("special_tokens_map.json")
    assert {"do_lower_case", "cls_token"} <= tokenizer
    groups = ("train/", "eval/")
    for name, fields in shown.items():
        assert fields, name
        expected = {field for field in fields if not field.startswith(groups)}
        expected -= arguments if name == "config.json" else set()
        assert expected <= explained, name
    assert {"config.json", "metrics.jsonl", "report.json", "manifest.json", "answers.jsonl"} <= shown.keys()


def test_every_exception_has_its_row() -> None:
    exceptions = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    bases_on_page = {row[0].strip(" `"): in_code(row[1]) for row in rows(read("errors.md")) if len(row) == 4}
    for exception in exceptions:
        if issubclass(exception, errors.AlbertKitError) and exception is not errors.AlbertKitError:
            bases = {base.__name__ for base in exception.__bases__} - {"AlbertKitError"}
            assert bases_on_page[exception.__name__] == bases
            assert getattr(albertkit, exception.__name__) is exception


def test_every_error_of_the_server_has_its_row() -> None:
    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src/albertkit/serving").glob("*.py")
    ).replace("CLIENT_GONE", "499")
    raised = set(re.findall(r'ApiError\(\s*(\d{3}),\s*"(\w+)"', text))
    raised |= {("413", kind) for kind in re.findall(r'too_much\(\s*"(\w+)"', text)}
    raised |= set(re.findall(r'\b(\d{3}): "(\w+)"', text))
    listed = {
        (row[0].strip(" `|"), kind)
        for row in rows(read("errors.md"))
        if row[0].strip(" |").isdigit()
        for kind in in_code(row[1])
    }
    assert len(raised) > 15
    assert raised == listed


def test_every_model_class_is_on_its_page() -> None:
    """Check each class, because the pages list classes of a module, not the complete module."""
    for package in ("modeling", "keras"):
        public = {
            f"::: {module}.{name}"
            for name, module in albertkit._MODULES.items()
            if module.startswith(f"albertkit.{package}.")
        }
        assert len(public) >= len(HEADS)
        assert public <= {*read(f"{package}.md").splitlines()}


def test_every_public_name_is_on_the_index() -> None:
    assert {*albertkit._MODULES, "__version__"} <= in_code(read("index.md"))


def test_readers_and_metrics_on_the_page_of_labeled_data_exist() -> None:
    page = read("labeled-data.md")
    readers = re.findall(r"^\| [^|]+ \| `(\w+)\.(\w+)", page, flags=re.MULTILINE)
    table = rows(page.partition("\n## Metrics\n")[2])
    metrics = [name for row in table for name in re.findall(r"`(\w+)`", row[1])]
    assert min(len(readers), len(metrics)) > 8
    for module, name in readers:
        assert hasattr(importlib.import_module(f"albertkit.datasets.{module}"), name), f"{module}.{name}"
    assert all(hasattr(importlib.import_module("albertkit.metrics"), name) for name in metrics)


def test_every_public_name_has_a_docstring() -> None:
    described = {}
    for name, module in albertkit._MODULES.items():
        if module.startswith("albertkit.keras"):  # importing TensorFlow takes seconds
            source = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
            assert re.search(rf'^class {name}\(.*\):\n    """', source, re.MULTILINE), name
            continue
        described[name] = public = getattr(albertkit, name)
        if inspect.isclass(public):
            methods = {key: value for key, value in vars(public).items() if inspect.isfunction(value)}
            described |= {f"{name}.{key}": value for key, value in methods.items() if key[0] != "_"}
    assert [key for key, value in described.items() if callable(value) and not inspect.getdoc(value)] == []
