"""The options that verbs share, each defined once."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import ENGINES, FINETUNING_TASKS, models, one_of
from albertkit.errors import DataError
from albertkit.inputs import InputFormat, NumberedInputs, format_of
from albertkit.recipe import field_docs

Texts = Annotated[
    list[str] | None,
    typer.Argument(
        help="Input texts (default: read from --file or standard input).", metavar="TEXT", show_default=False
    ),
]
Model = Annotated[
    str, typer.Option(help="Model folder, Hugging Face Hub name, or 'bundled'.", autocompletion=models)
]
TunedModel = Annotated[
    str,
    typer.Option(
        help="Folder or Hugging Face Hub name of a model that was fine-tuned for this task.",
        autocompletion=models,
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        help="Model folder, TensorFlow checkpoint (folder, prefix or .tar.gz), Julia .tfbson file, or "
        "Hugging Face Hub name.",
        autocompletion=models,
    ),
]
Tokenizer = Annotated[
    str, typer.Option(help="Folder or Hugging Face Hub name of the tokenizer.", autocompletion=models)
]
Corpus = Annotated[
    list[str],
    typer.Argument(
        help="Text files, folders or glob patterns: .txt, .jsonl or .parquet, optionally compressed "
        "(.gz, .zst or .bz2).",
        metavar="FILE",
    ),
]
RunDevice = Annotated[
    str,
    typer.Option(
        help="Device: auto (the best available device), cpu, cuda, cuda:1, mps, ...",
        autocompletion=one_of(["auto", "cpu", "cuda", "mps"]),
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        help="Truncate texts that exceed the maximum length, and report the number of removed tokens.",
    ),
]
TruncateTuned = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate",
        help="Truncate texts that exceed the maximum length, and report the number of removed tokens.",
        show_default="yes, if the config has the maximum length of the fine-tuning",
    ),
]
Recipe = Annotated[Path | None, typer.Option(help="TOML file with settings. Flags override it.")]
Task = Annotated[
    str,
    typer.Argument(
        help="Task: text-classification, token-classification, question-answering, multiple-choice or "
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
JsonFigures = Annotated[bool, typer.Option("--json", help="Print the metrics as one JSON line.")]
JsonReport = Annotated[bool, typer.Option("--json", help="Print the report as one JSON line.")]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The inputs of a pipeline, and how they are computed."""

    file: Path | None = None
    """Read the inputs from this UTF-8 file, one per line: plain text, .tsv (tab-separated columns without a
    header) or .jsonl. Blank lines are skipped. For tables with a header and a fine-tuned model, use
    `albertkit predict`."""
    format: InputFormat | None = None
    """Format of the inputs, if the file extension does not determine it (default: lines)."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1, mps, ... (default: the best available device)."""
    batch_size: int | None = None
    """Maximum number of texts per batch (default: depends on the device). With 1, each line of piped input is
    answered as it arrives."""
    engine: str = "auto"
    """Inference engine: auto (depends on the model), onnx or onnx-int8 (ONNX Runtime on the CPU), torch
    (PyTorch without padding) or plain (the PyTorch model itself). ALBERTKIT_THREADS sets the number of
    threads."""
    json: bool = False
    """Print one JSON line per input."""

    def read(
        self,
        given: Sequence[Any] | None,
        *,
        fields: Sequence[str] = ("text",),
        rest: str | None = None,
        kind: str = "text",
    ) -> NumberedInputs:
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
            return NumberedInputs(list(given), "", range(1, len(given) + 1), kind)
        if self.file is not None:
            if self.file == Path("-") and not self.file.exists():
                raise DataError(
                    "--file is '-', and there is no file of that name. To read standard input, omit --file."
                )
            format = self.format or format_of(self.file)
            if self.file.is_file():
                return NumberedInputs.read_file(self.file, format=format, fields=fields, rest=rest)
            return NumberedInputs.read(
                self.file.open("rb"), str(self.file), format=format, fields=fields, rest=rest
            )
        if sys.stdin.isatty():
            raise DataError("there is no text. Pass it as an argument, with --file, or through a pipe.")
        return NumberedInputs.read(
            sys.stdin.buffer, "standard input", format=self.format or "lines", fields=fields, rest=rest
        )

    def pipeline(self, task: Any, model: str, **options: Any) -> Any:
        """Return the pipeline of a task."""
        from albertkit.pipelines import pipeline

        return pipeline(
            task, model, device=self.device, batch_size=self.batch_size, engine=self.engine, **options
        )


_DOCS = {name: " ".join(doc.split()) for name, doc in field_docs(TextOptions).items()}
Device = Annotated[
    str | None,
    typer.Option(help=_DOCS["device"], show_default=False, autocompletion=one_of(["cpu", "cuda", "mps"])),
]
Engine = Annotated[str, typer.Option(help=_DOCS["engine"], autocompletion=one_of(ENGINES))]


def answered(
    answer: Callable[..., Iterable[Any]],
    given: NumberedInputs,
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
    if not given.is_list:
        shown, items = tee(given)
        asked = replace(given, items=items)
    if change is not None:
        asked = asked.map(change)
    return zip(shown, answer(asked, **options), strict=True)
