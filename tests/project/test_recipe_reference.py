"""Tests that the tables in docs/reference/recipes.md agree with the settings dataclasses."""

from collections.abc import Callable
from types import ModuleType

import pytest
from places import ROOT

from albertkit.cli.verbs import COMMANDS

PAGE = ROOT / "docs" / "reference" / "recipes.md"
VERBS = ("pretrain", "finetune", "train-tokenizer", "prepare", "serve")


@pytest.fixture
def reference(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("recipe_reference")


def test_the_tables_are_those_of_the_dataclasses(reference: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _ in reference.TABLE.findall(page)} == reference.TABLES.keys()
    assert reference.page_with_tables(page) == page, "run python scripts/recipe_reference.py"


def test_a_changed_table_is_corrected(reference: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for old, new in (
        ("`steps`<br>`--steps`", "`stepz` `--stepz`"),
        ("| `inf` | minutes |", "| `60` | minutes |"),
    ):
        assert old in page
        assert reference.page_with_tables(page.replace(old, new)) == page


def test_only_numbers_have_units(reference: ModuleType) -> None:
    settings = [setting for table in reference.TABLES.values() for setting in table]
    assert all(setting.is_number for setting in settings if setting.unit)
    units = {setting.name: setting.unit for setting in settings if setting.is_number}
    assert (units["max_seq_length"], units["masked_lm_probability"]) == ("tokens", "0 to 1")
    assert (units["hidden_size"], units["order_weight"]) == ("dimensions", "")


@pytest.mark.parametrize("verb", VERBS)
def test_every_key_is_a_flag(reference: ModuleType, verb: str) -> None:
    flags = {flag.option for flag in COMMANDS[verb].flags()}
    tables = [
        name for name in reference.TABLES if name.partition("/")[0] == verb and name != "pretrain/model"
    ]
    for setting in (setting for name in tables for setting in reference.TABLES[name]):
        assert f"--{setting.name.replace('_', '-')}" in flags
