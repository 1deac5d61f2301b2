"""The verbs from raw text to a pretrained model: train-tokenizer, prepare, pretrain."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import models
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import JsonReport, RunDevice
from albertkit.cli.printing import print_result
from albertkit.pretraining.settings import PreparationSettings, PretrainingSettings, TokenizerSettings

_Inputs = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders or globs: .txt, .jsonl, .parquet, each also .gz or .zst.", metavar="FILE"
    ),
]


@settings_flags(TokenizerSettings, parameter="settings", panel="vocabulary")
def train_tokenizer(
    inputs: _Inputs,
    output: Annotated[Path, typer.Option(help="Folder of the new tokenizer.")],
    json: JsonReport = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a SentencePiece vocabulary by ALBERT's recipe.

    Example: albertkit train-tokenizer books/*.txt --vocab-size 8192 --output tokenizer
    """
    from albertkit.pretraining.train_tokenizer import train_tokenizer

    print_result(train_tokenizer(inputs, output=output, **settings), json)


@settings_flags(PreparationSettings, parameter="settings", panel="preparation")
def prepare(
    inputs: _Inputs,
    tokenizer: Annotated[str, typer.Option(help="Folder or name of the tokenizer.", autocompletion=models)],
    output: Annotated[Path, typer.Option(help="Folder of the shards.")],
    json: JsonReport = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Cut raw text into shards of tokenized documents.

    Example: albertkit prepare books/*.txt --tokenizer tokenizer --holdout-every 40 --output shards
    """
    from albertkit.pretraining.prepare import prepare

    print_result(prepare(inputs, tokenizer, output, **settings), json)


@settings_flags(PretrainingSettings, parameter="settings")
def pretrain(
    data: Annotated[Path, typer.Option(help="Folder of shards that `prepare` wrote.")],
    tokenizer: Annotated[
        str, typer.Option(help="Folder or name of the tokenizer of the shards.", autocompletion=models)
    ],
    output: Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")],
    recipe: Annotated[
        Path | None, typer.Option(help="TOML file of settings, which flags override; it gives the shape.")
    ] = None,
    device: RunDevice = "auto",
    *,
    settings: dict[str, Any],
) -> None:
    """Pretrain on masked words and sentence order, or go on with a run.

    Several processes, on one machine or many: torchrun --nproc-per-node 8 -m albertkit pretrain ...

    Example: albertkit pretrain --recipe recipes/bundled.toml --data shards --tokenizer tokenizer --output run
    """
    from albertkit.pretraining.pretrain import pretrain

    run = pretrain(recipe, data=data, tokenizer=tokenizer, output=output, device=device, **settings)
    if run.signal is not None:
        raise typer.Exit(128 + run.signal)  # as a shell counts: a script must not take this for finished
