"""The verb answer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import TextOptions, TunedModel, answered
from albertkit.cli.printing import new_console, print_json, print_places, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED
from albertkit.inputs import QUESTION_FIELDS

_QUOTED = 30  # characters shown on each side of an answer


@text_flags
def answer(
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions (default: read from --file or standard input).",
            metavar="QUESTION",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Text that contains the answers.", show_default=False)
    ] = None,
    context_file: Annotated[
        Path | None, typer.Option(help="UTF-8 file with the context.", show_default=False)
    ] = None,
    model: TunedModel = BUNDLED,
    top_k: Annotated[int, typer.Option(help="Number of answers to return.", min=1)] = 1,
    no_answer: Annotated[
        bool | None,
        typer.Option(
            "--no-answer/--answer-always",
            help="Whether to allow an empty answer, for a context without the answer.",
            show_default="yes if the model was fine-tuned on unanswerable questions, otherwise no",
        ),
    ] = None,
    *,
    options: TextOptions,
) -> None:
    """Answer questions with spans of a context of any length.

    In a .tsv file, the first column has the questions and the second the contexts.

    Example: albertkit answer "Who opened it?" --context "Queen Anne opened the harbor." --model my-model
    """
    if context is not None and context_file is not None:
        raise DataError("the context is passed twice, with --context and --context-file. Pass one of them.")
    if context_file is not None:
        from albertkit.text_files import read_text

        context = read_text(context_file)
    if questions and context is None:
        raise DataError("there is no context to answer from. Pass --context or --context-file.")
    fields = QUESTION_FIELDS if context is None else ("question",)
    given = options.read(questions, fields=fields, kind="question")
    if context is not None:
        given = given.map(lambda question: {"question": question, "context": context})
    find = options.pipeline("question-answering", model)
    console = new_console()
    for asked, answers in answered(find, given, top_k=top_k, handle_impossible_answer=no_answer):
        answers = answers if isinstance(answers, list) else [answers]
        if options.json:
            # A context that all questions share is not repeated.
            fields_shown = asked if context is None else {"question": asked["question"]}
            print_json({**fields_shown, "answers": answers})
            continue
        print_title(console, asked["question"])
        print_places(console, [(_quote(place, asked["context"]), "", place) for place in answers])


def _quote(place: dict[str, Any], context: str) -> str:
    """Return an answer with the words around it."""
    if not place["answer"]:
        return "(no answer)"
    before, after = context[: place["start"]], context[place["end"] :]
    if len(before) > _QUOTED:
        before = "... " + before[-_QUOTED:].partition(" ")[2]
    if len(after) > _QUOTED:
        after = after[:_QUOTED].rpartition(" ")[0] + " ..."
    return " ".join(f"{before}[{place['answer']}]{after}".split())
