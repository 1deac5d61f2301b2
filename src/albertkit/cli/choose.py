"""The verb choose."""

from typing import Annotated

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import TextOptions, TruncateTuned, TunedModel, answered
from albertkit.cli.printing import new_console, print_bars, print_cut, print_json, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED
from albertkit.inputs import CHOICE_FIELDS, CHOICES_FIELD


@text_flags
def choose(
    choices: Annotated[
        list[str] | None, typer.Argument(help="Choices, at least two.", metavar="CHOICE", show_default=False)
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Text that the question is about.", show_default=False)
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help="Question. If it contains '_', each choice replaces the '_'.", show_default=False),
    ] = None,
    model: TunedModel = BUNDLED,
    truncate: TruncateTuned = None,
    *,
    options: TextOptions,
) -> None:
    """Choose the best of several answers to a question.

    In a .tsv file, the first column has the context, the second the question, and each further column a
    choice.

    Example: albertkit choose fox ship --context "It left the harbor." --question "What was it?" --model M
    """
    if (choices is None or not choices) != (context is None):
        raise DataError("received only one of CHOICE and --context. Pass both, or --file.")
    if question is not None and not choices:
        raise DataError("--question is for CHOICE, but lines have their own questions. Omit --question.")
    asked_once = [{"context": context, "question": question, "choices": choices}] if choices else None
    given = options.read(asked_once, fields=CHOICE_FIELDS, rest=CHOICES_FIELD, kind="question")
    answer = options.pipeline("multiple-choice", model, truncation=truncate)
    console = new_console()
    for asked, chosen in answered(answer, given):
        if options.json:
            print_json({**asked, "predictions": [chosen]})
            continue
        print_title(console, asked)
        print_cut(console, chosen)
        print_bars(console, list(zip(asked["choices"], chosen["scores"], strict=True)))
        console.print()
