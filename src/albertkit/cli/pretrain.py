"""The verb pretrain."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Recipe, RunDevice, Tokenizer
from albertkit.pretraining.settings import PretrainingSettings


@settings_flags(PretrainingSettings, parameter="settings")
def pretrain(
    data: Annotated[Path, typer.Option(help="Folder with the shards that `albertkit prepare` wrote.")],
    tokenizer: Tokenizer,
    output: Annotated[Path, typer.Option(help="Folder of the run. An existing run is resumed.")],
    recipe: Recipe = None,
    device: RunDevice = "auto",
    *,
    settings: dict[str, Any],
) -> None:
    """Pretrain a model on masked language modeling and sentence order, or resume a run.

    To use several processes or machines: torchrun --nproc-per-node 8 -m albertkit pretrain ...

    Example: albertkit pretrain --recipe recipes/mini.toml --data shards --tokenizer tokenizer --output run
    """
    from albertkit.pretraining.pretrain import pretrain

    run = pretrain(recipe, data=data, tokenizer=tokenizer, output=output, device=device, **settings)
    if run.signal is not None:
        raise typer.Exit(128 + run.signal)  # the shell's convention, so that scripts see the interruption
