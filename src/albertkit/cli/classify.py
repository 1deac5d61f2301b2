"""The verb classify."""

from typing import Annotated

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import Patience, TextOptions, Texts, Truncate, TunedModel, answered
from albertkit.cli.printing import as_fields, new_console, print_bars, print_cut, print_json, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED


@text_flags
def classify(
    texts: Texts = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, if pairs are classified.", show_default=False)
    ] = None,
    model: TunedModel = BUNDLED,
    top_k: Annotated[int | None, typer.Option(help="How many labels.", show_default="all")] = None,
    truncate: Truncate = False,
    patience: Patience = None,
    *,
    options: TextOptions,
) -> None:
    """Classify texts or pairs; in a .tsv file the second column is the second text.

    Example: albertkit classify "A wonderful film." --model my-model
    """
    arguments, kind = texts, "text"
    if pair is not None:
        if texts is None or len(texts) != 1:
            count = len(texts or [])
            raise DataError(f"--pair is the second text of one, and there are {count}; give one text")
        arguments, kind = [(texts[0], pair)], "pair"
    given = options.read(arguments, fields=("text", "text_pair"), kind=kind)
    answer = options.pipeline("text-classification", model, truncation=truncate)
    answer.set_patience(patience)
    is_regression = answer.model.config.problem_type == "regression"
    console = new_console()
    for asked, labels in answered(answer, given, top_k=top_k):
        if options.json:
            print_json({**as_fields(asked), "predictions": labels})
            continue
        print_title(console, asked)
        print_cut(console, labels[0])
        if is_regression:
            for label in labels:
                console.print(f"{label['label']}  {label['score']:.4g}", markup=False)
        else:
            print_bars(console, [(label["label"], label["score"]) for label in labels])
        console.print()
