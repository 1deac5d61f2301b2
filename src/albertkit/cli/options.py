"""The options that verbs share, each defined once."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import ENGINES, FINETUNING_TASKS, models, one_of
from albertkit.errors import DataError
from albertkit.inputs import InputFormat, NumberedInputs, NumberedStream, format_of
from albertkit.recipe import field_docs

Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts (default: from --file or a pipe).", metavar="TEXT", show_default=False),
]
Model = Annotated[
    str, typer.Option(help="Folder, name on the Hugging Face hub, or 'bundled'.", autocompletion=models)
]
TunedModel = Annotated[
    str,
    typer.Option(
        help="Folder, or name on the Hugging Face hub, of a model fine-tuned for this task.",
        autocompletion=models,
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        help="Model folder, TensorFlow checkpoint (folder, prefix, .tar.gz), Julia .tfbson, or hub name.",
        autocompletion=models,
    ),
]
Tokenizer = Annotated[str, typer.Option(help="Folder or hub name of the tokenizer.", autocompletion=models)]
Corpus = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders or globs: .txt, .jsonl, .parquet, also as .gz or .zst.", metavar="FILE"
    ),
]
RunDevice = Annotated[
    str,
    typer.Option(
        help="auto (the best available device), cpu, cuda, cuda:1, mps ...",
        autocompletion=one_of(["auto", "cpu", "cuda", "mps"]),
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        help="Exit early when this many consecutive layers predict the same label; for models trained with "
        "early exit.",
        min=1,
        show_default="all layers",
    ),
]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Truncate texts that exceed the maximum length, and report it.")
]
Recipe = Annotated[Path | None, typer.Option(help="TOML file of settings; flags override it.")]
Task = Annotated[
    str,
    typer.Argument(
        help="text-classification, token-classification, question-answering, multiple-choice or "
        "sentence-embedding.",
        metavar="TASK",
        autocompletion=one_of(FINETUNING_TASKS),
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        help="Maximum number of tokens per batch, including padding.",
        min=1,
        show_default="depends on the device",
    ),
]
JsonFigures = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON line.")]
JsonReport = Annotated[bool, typer.Option("--json", help="Print the report as one JSON line.")]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The inputs of a pipeline, and how they are computed."""

    file: Path | None = None
    """Read inputs from this UTF-8 file, one per line: a text; .tsv with tab-separated columns, no header;
    .jsonl. Blank lines are skipped. For tables use predict."""
    format: InputFormat | None = None
    """Format of the file or pipe, if its ending does not show it (default: lines)."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps ... (default: the best available device)."""
    batch_size: int | None = None
    """Maximum number of texts per batch; 1 answers a pipe line by line (default: depends on the device)."""
    engine: str = "auto"
    """Engine: auto (chosen by a rule), onnx and onnx-int8 (ONNX Runtime, on the CPU), torch (padding-free),
    plain (the PyTorch model itself). ALBERTKIT_THREADS sets the number of threads."""
    json: bool = False
    """Print one JSON line per input."""

    def read(
        self,
        given: Sequence[Any] | None,
        *,
        fields: Sequence[str] = ("text",),
        rest: str | None = None,
        kind: str = "text",
    ) -> NumberedInputs | NumberedStream:
        """Return the inputs: from the arguments, from the file (a list), or from the pipe, one by one.

        Args:
            given: the arguments of the command.
            fields: names of the columns of a line.
            rest: name of the field that receives all further columns, as a list.
            kind: the name of an argument in errors, followed by its number from 1.
        """
        if given and self.file is not None:
            raise DataError("texts are passed twice, as arguments and with --file. Pass one of them.")
        if given:
            return NumberedInputs(given, None, [*range(1, len(given) + 1)], kind=kind)
        if self.file is not None:
            format = self.format or format_of(self.file)
            if self.file.is_file():
                return NumberedInputs.read(self.file, format=format, fields=fields, rest=rest)
            return NumberedStream.read(
                self.file.open("rb"), str(self.file), format=format, fields=fields, rest=rest
            )
        if sys.stdin.isatty():
            raise DataError("there is no text. Pass it as an argument, with --file, or through a pipe.")
        return NumberedStream.read(
            sys.stdin.buffer, "standard input", format=self.format or "lines", fields=fields, rest=rest
        )

    def pipeline(self, task: Any, model: str, **options: Any) -> Any:
        """Return the pipeline of a task."""
        from albertkit.pipelines import pipeline

        return pipeline(
            task, model, device=self.device, batch_size=self.batch_size, engine=self.engine, **options
        )


_DOCS = field_docs(TextOptions)
Device = Annotated[
    str | None,
    typer.Option(help=_DOCS["device"], show_default=False, autocompletion=one_of(["cpu", "cuda", "mps"])),
]
Engine = Annotated[str, typer.Option(help=_DOCS["engine"], autocompletion=one_of(ENGINES))]


def answered(
    answer: Callable[..., Iterable[Any]],
    given: NumberedInputs | NumberedStream,
    change: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Iterator[tuple[Any, Any]]:
    """Yield each input with its answer.

    Args:
        answer: a pipeline.
        given: the inputs.
        change: function that converts an input to the pipeline's form.
        options: arguments of the call.
    """
    shown, asked = given, given
    if isinstance(given, NumberedStream):
        shown, items = tee(given)
        asked = NumberedStream(items, given.name, given.numbers)
    if change is not None:
        asked = asked.map(change)
    return zip(shown, answer(asked, **options), strict=True)
