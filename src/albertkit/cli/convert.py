"""The verb convert: checkpoints from one format to another."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from albertkit.cli.options import JsonReport, Source
from albertkit.cli.printing import print_result


def convert(
    source: Source,
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
    json: JsonReport = False,
) -> None:
    """Convert a checkpoint and report every tensor; no TensorFlow or Julia is needed.

    Example: albertkit convert albert_base_v2.tar.gz albert-base-v2 --verify
    """
    from albertkit.conversion import convert

    report = convert(source, target, to=to, dtype=dtype, max_shard_size=max_shard_size, verify=verify)
    print_result(report, json)
