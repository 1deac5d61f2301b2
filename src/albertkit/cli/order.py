"""The verb order."""

from albertkit.cli.flags import text_flags
from albertkit.cli.options import Model, TextOptions, Texts, Truncate, answered
from albertkit.cli.printing import as_fields, new_console, print_cut, print_json, print_title
from albertkit.errors import DataError
from albertkit.hub import BUNDLED
from albertkit.inputs import PAIR_FIELDS


@text_flags
def order(
    texts: Texts = None, model: Model = BUNDLED, truncate: Truncate = False, *, options: TextOptions
) -> None:
    """Predict whether two texts are in the right order or swapped. In a .tsv file, each line has two columns.

    Example: albertkit order "There was once a king." "He had three daughters."
    """
    if texts and len(texts) != 2:
        raise DataError(f"texts received: {len(texts)}. Expected two, or a file of pairs.")
    pairs = [tuple(texts)] if texts else None
    given = options.read(pairs, fields=PAIR_FIELDS, kind="pair")
    answer = options.pipeline("sentence-order", model, truncation=truncate)
    console = new_console()
    for asked, prediction in answered(answer, given):
        if options.json:
            print_json({**as_fields(asked), "predictions": [prediction]})
            continue
        print_title(console, asked)
        print_cut(console, prediction)
        console.print(f"{prediction['label']}  {100 * prediction['score']:.3g}%\n")
