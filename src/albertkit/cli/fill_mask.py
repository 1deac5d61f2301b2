"""The verb fill-mask."""

from collections import Counter
from typing import Annotated, Any

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import Model, TextOptions, Texts, answered
from albertkit.cli.printing import new_console, print_bars, print_json, print_title
from albertkit.hub import BUNDLED


@text_flags
def fill_mask(
    texts: Texts = None,
    model: Model = BUNDLED,
    top_k: Annotated[int, typer.Option(help="Number of words to return for each [MASK].")] = 5,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Candidate words, separated by commas (default: the whole vocabulary).", show_default=False
        ),
    ] = None,
    *,
    options: TextOptions,
) -> None:
    """Predict the word at each [MASK] of a text.

    Example: albertkit fill-mask "The captain opened the [MASK]." --top-k 3
    """
    given = options.read(texts)
    fill = options.pipeline("fill-mask", model)
    words = (
        None if targets is None else [word.strip() for word in targets.strip().removesuffix(",").split(",")]
    )
    for text, answer in answered(fill, given, top_k=top_k, targets=words):
        if options.json:
            print_json({"text": text, "predictions": answer})
        else:
            _print_words(text, answer if isinstance(answer[0], list) else [answer], fill.tokenizer)


def _print_words(text: str, masks: list[list[dict[str, Any]]], tokenizer: Any) -> None:
    console = new_console()
    print_title(console, text)
    for number, words in enumerate(masks, start=1):
        if len(masks) > 1:
            console.print(f"mask {number}", style="dim")
        if "window" in words[0]:
            start, end = words[0]["window"]
            console.print(f"read: characters {start:,} to {end:,} of {len(text):,}", style="dim")
        # A word-start mark alone is empty as text, and "old" and "▁old" are the same text. The vocabulary's
        # spelling tells them apart.
        counts = Counter(word["token_str"] for word in words)
        names = [
            word["token_str"]
            if word["token_str"] and counts[word["token_str"]] == 1
            else tokenizer.convert_ids_to_tokens(word["token"])
            for word in words
        ]
        print_bars(console, [(name, word["score"]) for name, word in zip(names, words, strict=True)])
    console.print()
