"""The verb prepare."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Corpus, JsonReport, Tokenizer
from albertkit.cli.printing import print_result
from albertkit.pretraining.settings import PreparationSettings


@settings_flags(PreparationSettings, parameter="settings", panel="preparation")
def prepare(
    inputs: Corpus,
    tokenizer: Tokenizer,
    output: Annotated[Path, typer.Option(help="Folder to write the shards to.")],
    json: JsonReport = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Tokenize raw text and write it as shards, for pretraining.

    Example: albertkit prepare books/*.txt --tokenizer tokenizer --holdout-every 40 --output shards
    """
    from albertkit.pretraining.prepare import prepare

    print_result(prepare(inputs, tokenizer, output, **settings), json)
