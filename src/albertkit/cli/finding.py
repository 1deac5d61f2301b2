"""The verbs that find places in a text: tag, answer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from albertkit.cli.options import (
    BatchSize,
    Device,
    Engine,
    File,
    Format,
    Json,
    Texts,
    TunedModel,
    change,
    read,
    twice,
)
from albertkit.cli.printing import new_console, print_json, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED


def tag(
    texts: Texts = None,
    model: TunedModel = BUNDLED,
    aggregation: Annotated[
        Literal["none", "simple", "first", "max", "average"],
        typer.Option(
            help="What is an entity: every piece (none), pieces of one kind together (simple), or words, by "
            "their first piece, their most certain one, or the average."
        ),
    ] = "first",
    words: Annotated[
        bool, typer.Option("--words", help="Texts are split into words already, by spaces.")
    ] = False,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Find the entities, chunks or parts of speech in texts of any length.

    Example: albertkit tag "Queen Anne opened the harbour of Leith." --model my-model
    """
    given = read(texts, file, format=format)
    from albertkit.pipelines import pipeline

    find = pipeline("token-classification", model, device=device, batch_size=batch_size, engine=engine)
    given, asked = twice(given)
    if words:
        # What is no text stays as it is: the pipeline names it.
        given, asked = twice(
            change(asked, lambda one: " ".join(one.split()) if isinstance(one, str) else one)
        )
        asked = change(asked, lambda one: one.split(" ") if isinstance(one, str) else one)
    console = new_console()
    for text, entities in zip(given, find(asked, aggregation_strategy=aggregation), strict=True):
        if json:
            print_json({"text": text, "entities": entities})
            continue
        print_title(console, text)
        name = "entity" if aggregation == "none" else "entity_group"
        _print_places(console, [(one[name], text[one["start"] : one["end"]], one) for one in entities])


def answer(
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions; without any, those of --file or of a pipe.",
            metavar="QUESTION",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The text that answers them.", show_default=False)
    ] = None,
    context_file: Annotated[
        Path | None, typer.Option(help="The file with that text, UTF-8.", show_default=False)
    ] = None,
    model: TunedModel = BUNDLED,
    top_k: Annotated[int, typer.Option(help="How many answers.", min=1)] = 1,
    no_answer: Annotated[
        bool | None,
        typer.Option(
            "--no-answer/--answer-always",
            help="Whether the text may have no answer.",
            show_default="if the model was tuned for that",
        ),
    ] = None,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Answer questions with a place of a text of any length; a .tsv file has questions and texts.

    Example: albertkit answer "Who opened it?" --context "Queen Anne opened the harbour." --model my-model
    """
    if context is not None and context_file is not None:
        raise DataError("the text is given twice, with --context and --context-file; give one of them")
    if context_file is not None:
        from albertkit.text_files import read_text

        context = read_text(context_file)
    if questions and context is None:
        raise DataError("there is no text to answer from: give --context or --context-file")
    given = read(
        questions,
        file,
        format=format,
        fields=("question", "context") if context is None else ("question",),
        kind="question",
    )
    if context is not None:
        given = change(given, lambda question: {"question": question, "context": context})
    from albertkit.pipelines import pipeline

    find = pipeline("question-answering", model, device=device, batch_size=batch_size, engine=engine)
    given, asked = twice(given)
    console = new_console()
    for one, found in zip(given, find(asked, top_k=top_k, handle_impossible_answer=no_answer), strict=True):
        found = found if isinstance(found, list) else [found]
        if json:
            # the text is not repeated where it is that of all questions
            print_json({**(one if context is None else {"question": one["question"]}), "answers": found})
            continue
        print_title(console, one["question"])
        _print_places(console, [(_quote(place, one["context"]), "", place) for place in found])


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


_QUOTED = 30  # characters shown on each side of an answer


def _print_places(console: Any, places: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Print one line for each place: what it is, its text, how probable, which characters."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text, place in places:
        cells = [Text(name), *([Text(text)] if text else [])]
        table.add_row(*cells, f"{100 * place['score']:.3g}%", f"{place['start']}:{place['end']}")
    console.print(table if places else "nothing found", style=None if places else "dim")
    console.print()
