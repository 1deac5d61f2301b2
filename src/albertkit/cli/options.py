"""What the verbs that use a model share: their options, and where their texts come from.

Texts come from the arguments, from `--file`, or from a pipe, and are answered as they are read.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import ENGINES, models, one_of
from albertkit.errors import DataError
from albertkit.inputs import InputFormat, NumberedInputs, format_of, read_inputs

Texts = Annotated[
    list[str] | None,
    typer.Argument(
        help="Texts; without any, those of --file or of a pipe.", metavar="TEXT", show_default=False
    ),
]
Model = Annotated[
    str, typer.Option(help="Folder, name on the Hugging Face hub, or 'bundled'.", autocompletion=models)
]
TunedModel = Annotated[
    str, typer.Option(help="Folder, or name on the Hugging Face hub, of a model fine-tuned for this.")
]
File = Annotated[
    Path | None,
    typer.Option(
        help="One input per line, UTF-8: a text; in .tsv columns between tabs, without a header; in .jsonl "
        "JSON. Blank lines are skipped. For tables use predict.",
        show_default=False,
    ),
]
Format = Annotated[
    InputFormat | None,
    typer.Option(
        help="Of the file or pipe, where the name of the file does not say it.",
        show_default="lines",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:1, mps ...",
        show_default="the best there is",
        autocompletion=one_of(["cpu", "cuda", "mps"]),
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Most texts computed at once; 1 answers a pipe line by line.",
        show_default="what suits the device",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="What computes the model: auto (chosen by a rule), onnx and onnx-int8 (ONNX Runtime, on the "
        "CPU), torch (without padding), plain (the PyTorch model itself). ALBERTKIT_THREADS sets the number "
        "of threads.",
        autocompletion=one_of(ENGINES),
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        help="Of a model trained with early exit: leave once so many depths in a row agree.",
        min=1,
        show_default="all depths",
    ),
]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut what is longer than the model reads, and say how much.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON line for each input.")]
JsonReport = Annotated[bool, typer.Option("--json", help="Print the report as one JSON line.")]
RunDevice = Annotated[
    str,
    typer.Option(
        help="auto (the best there is), cpu, cuda, cuda:1, mps ...",
        autocompletion=one_of(["auto", "cpu", "cuda", "mps"]),
    ),
]


def twice(given: list[Any] | Iterator[Any]) -> tuple[Iterator[Any], list[Any] | Iterator[Any]]:
    """Return the inputs two times: to print, and to answer."""
    if isinstance(given, list):
        return iter(given), given
    first, second = tee(given)
    return first, second


def change(given: list[Any] | Iterator[Any], change: Callable[[Any], Any]) -> list[Any] | Iterator[Any]:
    """Return the inputs, changed; those in memory keep their numbers."""
    return given.map(change) if isinstance(given, NumberedInputs) else map(change, given)


def read(
    given: Sequence[Any] | None,
    file: Path | None,
    *,
    format: InputFormat | None = None,
    fields: Sequence[str] = ("text",),
    rest: str | None = None,
    kind: str = "text",
) -> list[Any] | Iterator[Any]:
    """Return what is given, or the inputs of the file (lists), or those of the pipe, as they come.

    Errors number what is given from 1, and call each a `kind`.
    """
    if given and file is not None:
        raise DataError("texts are given twice, as arguments and with --file; give one of them")
    if given:
        return NumberedInputs(given, None, [*range(1, len(given) + 1)], kind=kind)
    if file is not None:
        format = format or format_of(file)
        if file.is_file():
            return NumberedInputs.read(file, format=format, fields=fields, rest=rest)
        return read_inputs(file.open("rb"), str(file), format=format, fields=fields, rest=rest)
    if sys.stdin.isatty():
        raise DataError("there is no text: give it as an argument, with --file, or through a pipe")
    return read_inputs(sys.stdin.buffer, "standard input", format=format or "lines", fields=fields, rest=rest)
