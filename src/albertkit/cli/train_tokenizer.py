"""The verb train-tokenizer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Corpus, JsonReport
from albertkit.cli.printing import print_result
from albertkit.pretraining.settings import TokenizerSettings


@settings_flags(TokenizerSettings, parameter="settings", panel="vocabulary")
def train_tokenizer(
    inputs: Corpus,
    output: Annotated[Path, typer.Option(help="Folder to write the tokenizer to.")],
    json: JsonReport = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a SentencePiece tokenizer with ALBERT's settings.

    Example: albertkit train-tokenizer books/*.txt --vocab-size 8192 --output tokenizer
    """
    from albertkit.pretraining.train_tokenizer import train_tokenizer

    print_result(train_tokenizer(inputs, output=output, **settings), json)
