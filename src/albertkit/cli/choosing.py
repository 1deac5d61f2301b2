"""The verbs that choose among labels: classify, order, choose."""

from typing import Annotated

import typer

from albertkit.cli.options import (
    BatchSize,
    Device,
    Engine,
    File,
    Format,
    Json,
    Model,
    Patience,
    Texts,
    Truncate,
    TunedModel,
    read,
    twice,
)
from albertkit.cli.printing import as_fields, new_console, print_bars, print_cut, print_json, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED


def classify(
    texts: Texts = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, where pairs are classified.", show_default=False)
    ] = None,
    model: TunedModel = BUNDLED,
    top_k: Annotated[int | None, typer.Option(help="How many labels.", show_default="all")] = None,
    truncate: Truncate = False,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    patience: Patience = None,
    json: Json = False,
) -> None:
    """Classify texts or pairs; in a .tsv file the second column is the second text.

    Example: albertkit classify "A wonderful film." --model my-model
    """
    arguments, kind = texts, "text"
    if pair is not None:
        if len(texts or []) != 1:
            raise DataError(
                f"--pair is the second text of one, and there are {len(texts or [])}; give one text"
            )
        arguments, kind = [(texts[0], pair)], "pair"  # pyright: ignore[reportOptionalSubscript]  # checked above
    given = read(arguments, file, format=format, fields=("text", "text_pair"), kind=kind)
    from albertkit.pipelines import pipeline

    answer = pipeline(
        "text-classification",
        model,
        device=device,
        batch_size=batch_size,
        engine=engine,
        truncation=truncate,
    )
    answer.set_patience(patience)
    is_regression = answer.model.config.problem_type == "regression"
    given, asked = twice(given)
    console = new_console()
    for one, labels in zip(given, answer(asked, top_k=top_k), strict=True):
        if json:
            print_json({**as_fields(one), "predictions": labels})
            continue
        print_title(console, one)
        print_cut(console, labels[0])
        if is_regression:
            for label in labels:
                console.print(f"{label['label']}  {label['score']:.4g}", markup=False)
        else:
            print_bars(console, [(label["label"], label["score"]) for label in labels])
        console.print()


def order(
    texts: Texts = None,
    model: Model = BUNDLED,
    truncate: Truncate = False,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Say whether two texts follow each other or were swapped; a .tsv file has two columns.

    Example: albertkit order "The ship left the harbour." "By noon it was out of sight."
    """
    if texts and len(texts) != 2:
        raise DataError(f"texts received: {len(texts)}; expected two, or a file of pairs")
    pairs = [tuple(texts)] if texts else None
    given = read(pairs, file, format=format, fields=("text", "text_pair"), kind="pair")
    from albertkit.pipelines import pipeline

    answer = pipeline(
        "sentence-order", model, device=device, batch_size=batch_size, engine=engine, truncation=truncate
    )
    given, asked = twice(given)
    console = new_console()
    for one, found in zip(given, answer(asked), strict=True):
        if json:
            print_json({**as_fields(one), "predictions": [found]})
            continue
        print_title(console, one)
        print_cut(console, found)
        console.print(f"{found['label']}  {100 * found['score']:.3g}%\n")


def choose(
    choices: Annotated[
        list[str] | None,
        typer.Argument(help="The choices, at least two.", metavar="CHOICE", show_default=False),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The text to know it from.", show_default=False)] = None,
    question: Annotated[
        str | None,
        typer.Option(help="The question; a '_' in it is the gap for the choices.", show_default=False),
    ] = None,
    model: TunedModel = BUNDLED,
    truncate: Truncate = False,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Choose the answer that fits; a .tsv file has context, question and a column for each choice.

    Example: albertkit choose fox ship --context "It left the harbour." --question "What was it?" --model M
    """
    if (choices is None or not choices) != (context is None):
        raise DataError("choices and --context go together; give both, or a file")
    asked_once = [{"context": context, "question": question, "choices": choices}] if choices else None
    given = read(
        asked_once, file, format=format, fields=("context", "question"), rest="choices", kind="question"
    )
    from albertkit.pipelines import pipeline

    answer = pipeline(
        "multiple-choice", model, device=device, batch_size=batch_size, engine=engine, truncation=truncate
    )
    given, asked = twice(given)
    console = new_console()
    for one, chosen in zip(given, answer(asked), strict=True):
        if json:
            print_json({**one, "predictions": [chosen]})
            continue
        print_title(console, one)
        print_cut(console, chosen)
        print_bars(console, list(zip(one["choices"], chosen["scores"], strict=True)))
        console.print()
