"""Write the tables of docs/reference/recipes.md from the dataclasses of the settings.

    python scripts/recipe_reference.py      # after a change of a settings dataclass

The dataclasses define the keys, types, defaults, units and meanings.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from pages import command_line

from albertkit.config import ALWAYS_WRITTEN, PROBABILITIES, UNITS, AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.files import atomic_path
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.pretraining.settings import PreparationSettings, PretrainingSettings, TokenizerSettings
from albertkit.recipe import field_docs, scalar_fields
from albertkit.serving.settings import ServingSettings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "recipes.md"
TABLE = re.compile(r"(<!-- table: scripts/recipe_reference\.py (\S+) -->\n).*?(<!-- end of table -->)", re.S)


class Setting(NamedTuple):
    """A row of a table."""

    name: str
    hint: Any
    default: Any
    unit: str
    meaning: str

    @classmethod
    def of(cls, field: dataclasses.Field[Any], hint: Any, meaning: str) -> "Setting":
        return cls(field.name, hint, field.default, field.metadata.get("unit", ""), meaning)

    @property
    def is_number(self) -> bool:
        return bool({int, float} & {self.hint, *typing.get_args(self.hint)})


def settings_of(settings: type, table: str = "") -> Iterator[Setting]:
    """Yield the settings of a table of a recipe. "" is the top level of the file."""
    docs = field_docs(settings)
    hints = typing.get_type_hints(typing.get_type_hints(settings)[table] if table else settings)
    for place, field in scalar_fields(settings):
        if place == table:
            yield Setting.of(field, hints[field.name], docs[field.name])


def model_settings() -> Iterator[Setting]:
    """Yield the arguments of `AlbertConfig` that every `config.json` has, except the tokenizer's."""
    docs, hints = field_docs(AlbertConfig), typing.get_type_hints(AlbertConfig)
    for field in dataclasses.fields(AlbertConfig):
        if field.name in ALWAYS_WRITTEN and field.name != "vocab_size":
            hint = str if field.name == "hidden_act" else hints[field.name]
            unit = UNITS.get(field.name, "0 to 1" if field.name in PROBABILITIES else "")
            unit = "id" if field.name.endswith("_token_id") else unit
            setting = Setting(field.name, hint, field.default, unit, docs[field.name])
            of_rows = field.name == "max_position_embeddings"
            yield setting._replace(default="max_seq_length") if of_rows else setting


TABLES = {
    "pretrain": [*settings_of(PretrainingSettings)],
    "pretrain/model": [*model_settings()],
    "pretrain/examples": [*settings_of(PretrainingSettings, "examples")],
    "pretrain/training": [*settings_of(PretrainingSettings, "training")],
    "finetune": [*settings_of(FinetuningSettings)],
    "finetune/task": [*settings_of(FinetuningSettings, "task")],
    "columns": [*settings_of(DataOptions)],
    "train-tokenizer": [*settings_of(TokenizerSettings)],
    "prepare": [*settings_of(PreparationSettings)],
    "serve": [*settings_of(ServingSettings)],
}


def table(name: str) -> str:
    """Return a table of the page."""
    with_flags = name != "pretrain/model"
    lines = [
        f"| {'key and flag' if with_flags else 'key'} | type | default | unit | meaning |",
        "|---" * 5 + "|",
    ]
    for setting in TABLES[name]:
        flag = f"<br>`--{setting.name.replace('_', '-')}`" if with_flags else ""
        meaning = " ".join(setting.meaning.split()).replace("|", r"\|")
        cells = [
            f"`{setting.name}`{flag}",
            _type(setting.hint),
            _default(setting.default),
            setting.unit,
            meaning,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page_with_tables(page: str) -> str:
    """Return the page with its tables replaced."""
    return TABLE.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", page)


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not NoneType]
    return ", ".join(_type(kind) if typing.get_args(kind) else f"`{kind.__name__}`" for kind in kinds)


def _default(default: Any) -> str:
    if default is None or default is dataclasses.MISSING:
        return "not set"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main() -> None:
    command_line(__doc__).parse_args()
    with atomic_path(PAGE) as temporary:
        temporary.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
