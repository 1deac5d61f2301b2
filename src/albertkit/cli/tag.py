"""The verb tag."""

from typing import Annotated, Any, Literal

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import TextOptions, Texts, TunedModel, answered
from albertkit.cli.printing import new_console, print_json, print_places, print_title
from albertkit.hub import BUNDLED


@text_flags
def tag(
    texts: Texts = None,
    model: TunedModel = BUNDLED,
    aggregation: Annotated[
        Literal["none", "simple", "first", "max", "average"],
        typer.Option(
            help="How to group tokens into entities: none (every token alone), simple (neighboring tokens of "
            "the same type), or by word with the scores of its first token (first), of its most certain "
            "token (max) or of all its tokens (average)."
        ),
    ] = "first",
    words: Annotated[
        bool, typer.Option("--words", help="Treat the texts as words separated by spaces.")
    ] = False,
    *,
    options: TextOptions,
) -> None:
    """Find entities, chunks or parts of speech in texts of any length.

    Example: albertkit tag "Queen Anne opened the harbor of Leith." --model my-model
    """
    given = options.read(texts)
    find = options.pipeline("token-classification", model)
    if words:
        given = given.map(lambda text: " ".join(text.split()) if isinstance(text, str) else text)
    console = new_console()
    name = "entity" if aggregation == "none" else "entity_group"
    split = _words if words else None
    for asked, entities in answered(find, given, split, aggregation_strategy=aggregation):
        text = asked if isinstance(asked, str) else " ".join(asked)  # the characters count in this text
        if options.json:
            print_json({"text": text, "entities": entities})
            continue
        print_title(console, text)
        print_places(console, [(one[name], text[one["start"] : one["end"]], one) for one in entities])


def _words(text: Any) -> Any:
    """Return the words of a text. Inputs of other types are returned unchanged, and the pipeline raises."""
    return text.split(" ") if isinstance(text, str) else text
