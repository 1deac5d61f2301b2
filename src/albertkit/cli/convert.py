"""The verb convert: checkpoints from one format to another."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from albertkit.cli.options import JsonReport, Source
from albertkit.cli.printing import print_result


def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="Folder to write, or for Julia a .tfbson or .bson file.")],
    to: Annotated[
        Literal["hf", "tf1", "julia"] | None,
        typer.Option(
            help="Format to write: hf (Hugging Face folder), tf1 (Google's TensorFlow 1) or julia (BSON).",
            show_default="julia for a .tfbson or .bson file, else hf",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        typer.Option(help="Data type of the weights.", show_default="float32 for tf1, else as in the source"),
    ] = None,
    max_shard_size: Annotated[
        str | None,
        typer.Option(
            help="For a Hugging Face folder: maximum size of each weights file, such as 500MB.",
            show_default="one file",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the outputs of both checkpoints on random text.")
    ] = False,
    json: JsonReport = False,
) -> None:
    """Convert a checkpoint to another format, and report every tensor. Needs neither TensorFlow nor Julia.

    Example: albertkit convert albert_base_v2.tar.gz albert-base-v2 --verify
    """
    from albertkit.conversion import convert

    report = convert(source, target, to=to, dtype=dtype, max_shard_size=max_shard_size, verify=verify)
    print_result(report, json)
