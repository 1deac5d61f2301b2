"""The verb convert: checkpoints from one format to another."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from albertkit.cli.completing import models
from albertkit.cli.printing import print_json


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="Model folder, TensorFlow checkpoint (folder, prefix, .tar.gz), Julia .tfbson, or hub name.",
            autocompletion=models,
        ),
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write; for Julia a file named .tfbson or .bson.")],
    to: Annotated[
        Literal["hf", "tf1", "julia"] | None,
        typer.Option(
            help="Format: a Hugging Face folder, Google's TensorFlow 1, or Julia's BSON.",
            show_default="julia for a target named so, else hf",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        typer.Option(help="Type of the weights.", show_default="as in the source"),
    ] = None,
    max_shard_size: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face folder: split weights over this size, such as 500MB, into several files.",
            show_default="one file",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the outputs of both on random text.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Convert a checkpoint and report every tensor; no TensorFlow or Julia is needed.

    Example: albertkit convert albert_base_v2.tar.gz albert-base-v2 --verify
    """
    from albertkit.conversion import convert as run

    report: Any = run(source, target, to=to, dtype=dtype, max_shard_size=max_shard_size, verify=verify)
    if json:
        print_json(report.to_json())
    else:
        typer.echo(str(report))
