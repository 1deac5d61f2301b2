"""Tests that an option is declared once: a field of a dataclass in `options.py`."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from places import ROOT

from albertkit import options
from albertkit.errors import ConfigError
from albertkit.options import SentenceOrderOptions, check_size, read_options
from albertkit.pipelines import pipeline, tasks

PAIR = ("There was once a king.", "He had three daughters.")
HELP = "Write the label in capitals."


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoudOptions(SentenceOrderOptions):
    loud: bool = False
    """Write the label in capitals."""
    surest: float = options.option(1.0, minimum=0.0, maximum=1.0)
    """The highest score that is written in capitals."""


@pytest.fixture
def _new_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an option to the task "sentence-order", which its plan uses."""

    def plan(one: Any, given: LoudOptions) -> Any:
        usual = definition.plan(one, given)

        def answer(*arguments: Any) -> list[Any]:
            answers = usual.answer(*arguments)
            return [
                answer | {"label": answer["label"].upper()}
                if given.loud and answer["score"] <= given.surest
                else answer
                for answer in answers
            ]

        return usual._replace(answer=answer)

    definition = tasks.DEFINITIONS["sentence-order"]
    monkeypatch.setitem(options.OPTIONS, "sentence-order", LoudOptions)  # type: ignore[arg-type]
    changed = dataclasses.replace(definition, plan=plan)
    monkeypatch.setitem(tasks.DEFINITIONS, "sentence-order", changed)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_new_option")
def test_a_new_option_is_a_keyword_a_flag_a_field_and_in_the_reference(run: Run) -> None:
    order = pipeline("sentence-order", device="cpu")
    assert order(PAIR)["label"] == "in order"
    assert order(PAIR, loud=True)["label"] == "IN ORDER"
    assert pipeline("sentence-order", device="cpu", loud=True)(PAIR)["label"] == "IN ORDER"

    assert order(PAIR, loud=True, surest=0.1)["label"] == "in order"
    with pytest.raises(ConfigError, match=r"surest is 2. Expected a number from 0 to 1"):
        order(PAIR, surest=2)

    (line,) = run("order", *PAIR, "--loud", "--json", "--device", "cpu").json
    assert line["predictions"][0]["label"] == "IN ORDER"
    (line,) = run("order", *PAIR, "--loud", "--surest", "0.1", "--json", "--device", "cpu").json
    assert line["predictions"][0]["label"] == "in order"
    assert HELP in run("order", "--help").output

    schemas = pytest.importorskip("albertkit.serving.schemas")
    request = schemas.request_for("sentence-order", schemas.OrderedPair)
    properties = request.model_json_schema()["properties"]
    assert (properties["loud"]["description"], properties["loud"]["default"]) == (HELP, False)
    limits = properties["surest"]["anyOf"][0]
    assert (limits["type"], limits["minimum"], limits["maximum"]) == ("number", 0.0, 1.0)

    spec = importlib.util.spec_from_file_location("page", ROOT / "scripts" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert f"* `--loud`: {HELP}" in page.page()
    assert "::: albertkit.options" in Path(ROOT / "docs/reference/pipelines.md").read_text()


def test_later_values_override_earlier_ones() -> None:
    kind = options.TextClassificationOptions
    assert read_options(kind).top_k == options.BEST
    assert read_options(kind, {"top_k": 2}, {"top_k": None}).top_k is None  # all labels
    assert read_options(kind, {"max_length": 9}, {"max_length": None}).max_length == 9
    for wrong in (0, -1, 2.5, "3", True):
        with pytest.raises(ConfigError, match=r"top_k is .*Expected a whole number of at least 1"):
            read_options(kind, {"top_k": wrong})
    assert check_size("stride", 0, minimum=0) == 0
