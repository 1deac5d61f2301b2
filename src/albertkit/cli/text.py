"""The verbs that use a pretrained model on text: fill-mask, embed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from albertkit.cli.options import (
    BatchSize,
    Device,
    Engine,
    File,
    Format,
    Json,
    Model,
    Texts,
    Truncate,
    read,
    twice,
)
from albertkit.cli.printing import new_console, print_bars, print_json, print_title
from albertkit.hub import BUNDLED

if TYPE_CHECKING:
    import numpy as np

    from albertkit.tokenization.base import TokenizerBase


def fill_mask(
    texts: Texts = None,
    model: Model = BUNDLED,
    top_k: Annotated[int, typer.Option(help="Words for each mask.")] = 5,
    targets: Annotated[
        str | None, typer.Option(help="Score only these words, separated by commas.", show_default=False)
    ] = None,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Fill in the [MASK] of texts.

    Example: albertkit fill-mask "The captain opened the [MASK]." --top-k 3
    """
    given = read(texts, file, format=format)
    from albertkit.pipelines import pipeline

    fill = pipeline("fill-mask", model, device=device, batch_size=batch_size, engine=engine)
    words = (
        None if targets is None else [word.strip() for word in targets.strip().removesuffix(",").split(",")]
    )
    given, asked = twice(given)
    for text, answer in zip(given, fill(asked, top_k=top_k, targets=words), strict=True):
        masks = answer if isinstance(answer[0], list) else [answer]
        if json:
            print_json({"text": text, "predictions": answer})
        else:
            _print_words(text, masks, fill.tokenizer)


def embed(
    texts: Texts = None,
    model: Model = BUNDLED,
    pooling: Annotated[
        Literal["mean", "cls"] | None,
        typer.Option(
            help="One vector from those of all tokens, or that of [CLS].",
            show_default="as the model was trained, else mean",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(help="Vectors of length 1.", show_default="as the model was trained, else not"),
    ] = None,
    truncate: Truncate = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the vectors to this .npy file, a row each.", show_default=False)
    ] = None,
    file: File = None,
    format: Format = None,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Turn texts into vectors; several texts are shown by how alike they are.

    Example: albertkit embed "A dog barks." "The cat sleeps." --output vectors.npy
    """
    given = read(texts, file, format=format)
    from albertkit.files import check_new_file

    if output is not None:
        check_new_file(output)
    import numpy as np

    from albertkit.pipelines import pipeline

    encode = pipeline(
        "feature-extraction",
        model,
        device=device,
        batch_size=batch_size,
        engine=engine,
        pooling=pooling,
        normalize=normalize,
        truncation=truncate,
    )
    encode.pooling = encode.pooling or "mean"
    given, asked = twice(given)
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    count, cut = 0, list[int]()
    for text, vector in zip(given, encode(asked, on_cut=cut.append), strict=True):
        if json:
            print_json({"text": text, "embedding": vector})
        if output is not None or not json:
            kept.append(text)
            vectors.append(np.asarray(vector, dtype=np.float32))
        count += 1
    if output is not None:
        _write_vectors(output, vectors)
    if not json:
        _print_vectors(kept, vectors, output)
    if cut:
        typer.echo(
            f"{len(cut):,} of {count:,} texts are longer than the {encode.max_length:,} tokens that are "
            f"read: {sum(cut):,} tokens were left out, of one text up to {max(cut):,}",
            err=True,
        )


def _print_words(text: str, masks: list[list[dict[str, Any]]], tokenizer: "TokenizerBase") -> None:
    """The words for each mask."""
    console = new_console()
    print_title(console, text)
    for number, words in enumerate(masks, start=1):
        if len(masks) > 1:
            console.print(f"mask {number}", style="dim")
        if "window" in words[0]:
            start, end = words[0]["window"]
            console.print(f"read: characters {start:,} to {end:,} of {len(text):,}", style="dim")
        # A mark of a word's beginning alone is nothing as text: it is shown as the vocabulary writes it.
        names = [word["token_str"] or tokenizer.convert_ids_to_tokens(word["token"]) for word in words]
        print_bars(console, [(name, word["score"]) for name, word in zip(names, words, strict=True)])
    console.print()


def _print_vectors(texts: list[str], vectors: list["np.ndarray"], output: Path | None) -> None:
    """The first numbers of one vector; of several the cosines between them."""
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    matrix = np.stack(vectors)
    where = "" if output is None else f", written to {output}"
    if len(texts) == 1:
        console.print(f"{matrix.shape[1]} dimensions, norm {np.linalg.norm(matrix):.2f}{where}", markup=False)
        console.print(" ".join(f"{number:+.3f}" for number in matrix[0, :8]), "...")
        return
    console.print(f"{len(texts)} vectors of {matrix.shape[1]} dimensions{where}", markup=False)
    if len(texts) > _MOST_COMPARED:
        return
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    table = Table(title="cosine similarity", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("text", overflow="ellipsis", no_wrap=True, max_width=50)
    for number in range(1, len(texts) + 1):
        table.add_column(str(number), justify="right")
    for number, (text, row) in enumerate(zip(texts, unit @ unit.T, strict=True), start=1):
        table.add_row(str(number), Text(text), *(f"{cosine:.2f}" for cosine in row))
    console.print(table)


_MOST_COMPARED = 12  # texts whose table of similarities a terminal can show


def _write_vectors(output: Path, vectors: list["np.ndarray"]) -> None:
    import numpy as np

    from albertkit.files import atomic_path

    with atomic_path(output) as temporary, temporary.open("wb") as stream:
        np.save(stream, np.stack(vectors))
