"""The verbs that use a model on text: fill-mask, embed.

Texts come from the arguments, from `--file`, or from a pipe, and are answered as they are read.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from albertkit.errors import DataError
from albertkit.hub import BUNDLED

if TYPE_CHECKING:
    import numpy as np

_Texts = Annotated[
    list[str] | None,
    typer.Argument(
        help="Texts; without any, those of --file or of a pipe.", metavar="[TEXT]...", show_default=False
    ),
]
_Model = Annotated[str, typer.Option(help="Folder, name on the Hugging Face hub, or 'bundled'.")]
_File = Annotated[
    Path | None, typer.Option(help="One text per line, UTF-8; blank lines are skipped.", show_default=False)
]
_Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, mps ... [default: the best there is]", show_default=False),
]
_BatchSize = Annotated[int, typer.Option(help="Texts computed at once; 1 answers a pipe line by line.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON line for each text.")]


def fill_mask(
    texts: _Texts = None,
    model: _Model = BUNDLED,
    top_k: Annotated[int, typer.Option(help="Words for each mask.")] = 5,
    targets: Annotated[
        str | None, typer.Option(help="Score only these words, separated by commas.", show_default=False)
    ] = None,
    file: _File = None,
    device: _Device = None,
    batch_size: _BatchSize = 32,
    json: _Json = False,
) -> None:
    """Fill in the [MASK] of texts.

    Example: albertkit fill-mask "The captain opened the [MASK]." --top-k 3
    """
    given = _read(texts, file)
    from albertkit.pipelines import pipeline

    fill = pipeline("fill-mask", model, device=device, batch_size=batch_size)
    words = None if targets is None else [word.strip() for word in targets.split(",") if word.strip()]
    given, asked = tee(given)
    for text, answer in zip(given, fill(asked, top_k=top_k, targets=words), strict=True):
        masks = answer if isinstance(answer[0], list) else [answer]
        if json:
            _print_json({"text": text, "predictions": answer})
        else:
            _print_words(text, masks)


def embed(
    texts: _Texts = None,
    model: _Model = BUNDLED,
    pooling: Annotated[
        Literal["mean", "cls"], typer.Option(help="One vector from those of all tokens, or that of [CLS].")
    ] = "mean",
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are longer than the model reads.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the vectors to this .npy file, a row each.", show_default=False)
    ] = None,
    file: _File = None,
    device: _Device = None,
    batch_size: _BatchSize = 32,
    json: _Json = False,
) -> None:
    """Turn texts into vectors; several texts are shown by how alike they are.

    Example: albertkit embed "A dog barks." "The cat sleeps." --output vectors.npy
    """
    given = _read(texts, file)
    if output is not None and not output.parent.is_dir():  # not only after all texts are computed
        raise DataError(f"cannot write {output}: there is no folder {output.parent}; make it first")
    import numpy as np

    from albertkit.pipelines import pipeline

    encode = pipeline(
        "feature-extraction",
        model,
        device=device,
        batch_size=batch_size,
        pooling=pooling,
        truncation=truncate,
    )
    given, asked = tee(given)
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    for text, vector in zip(given, encode(asked), strict=True):
        if json:
            _print_json({"text": text, "embedding": vector})
        if output is not None or not json:
            kept.append(text)
            vectors.append(np.asarray(vector, dtype=np.float32))
    if output is not None:
        _write_vectors(output, vectors)
    if not json:
        _print_vectors(kept, vectors, output)


def _read(texts: list[str] | None, file: Path | None) -> Iterator[str]:
    """Yield the texts of the arguments, of the file or of the pipe; check at once that there are some."""
    if texts and file is not None:
        raise DataError("texts are given twice, as arguments and with --file; give one of them")
    if texts:
        return iter(texts)
    if file is not None:
        return _lines(file.open("rb"), str(file))
    if sys.stdin.isatty():
        raise DataError("there is no text: give it as an argument, with --file, or through a pipe")
    return _lines(sys.stdin.buffer, "standard input")


def _lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    found = False
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: not UTF-8 ({error.reason}); convert it first") from error
        if text:
            found = True
            yield text
    if not found:
        raise DataError(f"there is no text in {name}: expected one on each line")


def _print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, ensure_ascii=False))


def _print_words(text: str, masks: list[list[dict[str, Any]]]) -> None:
    """One line for each word, with a bar as long as the word is probable beside the best."""
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(text, style="bold", markup=False)
    for number, words in enumerate(masks, start=1):
        if len(masks) > 1:
            console.print(f"mask {number}", style="dim")
        if "window" in words[0]:
            start, end = words[0]["window"]
            console.print(f"read: characters {start:,} to {end:,} of {len(text):,}", style="dim")
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(justify="right")
        table.add_column(no_wrap=True)
        best = words[0]["score"]
        for word in words:
            bar = Bar(size=best, begin=0, end=word["score"], width=30, color="cyan")
            table.add_row(Text(word["token_str"]), f"{100 * word['score']:.3g}%", bar)
        console.print(table)
    console.print()


def _print_vectors(texts: list[str], vectors: list["np.ndarray"], output: Path | None) -> None:
    """The first numbers of one vector; of several the cosines between them."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
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
