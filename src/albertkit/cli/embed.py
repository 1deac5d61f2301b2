"""The verb embed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import Model, TextOptions, Texts, Truncate, answered
from albertkit.cli.printing import new_console, new_table, print_json, print_table
from albertkit.hub import BUNDLED_SENTENCES

if TYPE_CHECKING:
    import numpy as np

_MOST_COMPARED = 12  # maximum number of texts whose similarity table fits into a terminal
_LEAST_TEXT, _MOST_TEXT = 10, 50  # columns of the texts in this table; with less room, the texts are left out


@text_flags
def embed(
    texts: Texts = None,
    model: Model = BUNDLED_SENTENCES,
    pooling: Annotated[
        Literal["mean", "cls", "max"] | None,
        typer.Option(
            help="How to combine the vectors of the tokens into one vector.",
            show_default="the model's pooling if it was trained for sentence embedding, otherwise mean",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            help="Scale the vectors to length 1.",
            show_default="yes if the model was trained with normalization, otherwise no",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(
            help="Name of the prompt in the model's config that is prepended to every text.",
            show_default="the model's default prompt, if any",
        ),
    ] = None,
    truncate: Truncate = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the vectors to this .npy file, with one row per text.", show_default=False),
    ] = None,
    *,
    options: TextOptions,
) -> None:
    """Compute the vectors (embeddings) of texts. For several texts, show their cosine similarities.

    Example: albertkit embed "A dog barks." "The cat sleeps." --output vectors.npy
    """
    given = options.read(texts)
    from albertkit.files import atomic_path, check_ending, check_new_file

    if output is not None:
        check_ending(output, ".npy")
        check_new_file(output)
    import numpy as np

    encode = options.pipeline(
        "feature-extraction",
        model,
        pooling=pooling,
        normalize=normalize,
        prompt_name=prompt_name,
        truncation=truncate,
    )
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    count, cut = 0, list[int]()
    for text, vector in answered(encode, given, pooling=encode.pooling or "mean", on_cut=cut.append):
        if options.json:
            print_json({"text": text, "embedding": vector})
        if output is not None or not options.json:
            kept.append(text)
            vectors.append(np.asarray(vector, dtype=np.float32))
        count += 1
    if output is not None:
        with atomic_path(output) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.stack(vectors))
        if skipped := given.numbers[-1] - count:
            typer.echo(f"blank lines skipped: {skipped:,}. {output} has only rows for the others.", err=True)
    if not options.json:
        _print_vectors(kept, vectors, output)
    if cut:
        limit = encode.trained_length or encode.max_length
        typer.echo(
            f"{len(cut):,} of {count:,} texts exceed the maximum length of {limit:,} tokens: "
            f"{sum(cut):,} tokens were truncated, at most {max(cut):,} in one text",
            err=True,
        )


def _print_vectors(texts: list[str], vectors: list["np.ndarray"], output: Path | None) -> None:
    """Print the first numbers of one vector, or the cosines between several."""
    import numpy as np

    from albertkit.metrics.sentence_embedding import unit

    console = new_console()
    matrix = np.stack(vectors)
    where = "" if output is None else f", written to {output}"
    if len(texts) == 1:
        console.print(f"{matrix.shape[1]} dimensions, norm {np.linalg.norm(matrix):.2f}{where}")
        console.print(" ".join(f"{number:+.3f}" for number in matrix[0, :8]), "...")
        return
    console.print(f"{len(texts)} vectors of {matrix.shape[1]} dimensions{where}")
    if len(texts) > _MOST_COMPARED:
        return
    scaled = unit(matrix)
    cosines = [[f"{cosine:.2f}" for cosine in row] for row in scaled @ scaled.T]
    table = new_table(title="cosine similarity", title_justify="left", padding=(0, 1))
    table.add_column("", no_wrap=True)
    number_width = max(len(cosine) for row in cosines for cosine in row)
    text_width = console.width - len(str(len(texts))) - len(texts) * (number_width + 2) - 2
    has_texts = text_width >= _LEAST_TEXT
    if has_texts:
        table.add_column("text", no_wrap=True, max_width=min(text_width, _MOST_TEXT), overflow="ellipsis")
    for number in range(1, len(texts) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for number, (text, row) in enumerate(zip(texts, cosines, strict=True), start=1):
        table.add_row(str(number), *([text] if has_texts else []), *row)
    print_table(console, table)
