"""Compare the processor time of vectors by lookup with that of the whole network, for `bundled-sentences`.

    python benchmarks/embedding.py [--texts 20000] [--runs 3] [--json]

Both sides embed the same sentences of Python's language reference with the same pipeline. The other side
computes the layer for each token, as albertkit does for networks that mix tokens. The script also compares
`albertkit.predict` to a file with `encode` plus writing the file, and measures a search among random vectors.
"""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from report import Figure, alternate, command_line, compare, show, state

from albertkit import Index, pipeline, predict
from albertkit.engines.choosing import make_engine
from albertkit.hub import BUNDLED_SENTENCES

AT_LEAST = 15.0
SEARCH_SECONDS = 0.3
VECTORS, SIZE = 1_000_000, 384


def sentences(count: int) -> list[str]:
    """Return sentences of 10 to 200 characters, with repetitions."""
    parts = (" ".join(part.split()) for part in " ".join(topics.values()).split(". "))
    usable = [part for part in parts if 10 < len(part) < 200]
    rng = random.Random(0)
    return [rng.choice(usable) for _ in range(count)]


def timed(
    call: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> Callable[[], list[float]]:
    def measure() -> list[float]:
        begin = clock()
        call()
        return [clock() - begin]

    return measure


def embedding_figures(texts: list[str], runs: int, folder: Path) -> list[Figure]:
    """Compare lookup with the network, and `predict` with `encode`; check that the vectors are equal."""
    embed = pipeline("feature-extraction", BUNDLED_SENTENCES)
    without_table = make_engine(embed.model, "onnx")
    without_table.token_table = lambda: None
    network = pipeline("feature-extraction", embed.model, embed.tokenizer, engine=without_table)
    difference = np.abs(embed.encode(texts[:1000]) - network.encode(texts[:1000])).max()
    ((lookup,), (layers,)) = alternate(
        runs, timed(lambda: embed.encode(texts)), timed(lambda: network.encode(texts)), warm_up=False
    )
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")

    def write_encoded() -> None:
        np.save(folder / "encoded.npy", embed.encode(texts))

    def write_predictions() -> None:
        (folder / "predicted.npy").unlink(missing_ok=True)
        predict(BUNDLED_SENTENCES, input=folder / "texts.txt", output=folder / "predicted.npy")

    ((encoded,), (predicted,)) = alternate(
        runs, timed(write_encoded), timed(write_predictions), warm_up=False
    )
    name = f"{len(texts):,} sentences"
    return [
        compare(f"{name}: texts per second", len(texts) / lookup, len(texts) / layers, at_least=AT_LEAST),
        compare("largest difference of two numbers, against 1e-6", float(difference), 1e-6, at_most=1),
        compare(f"{name}: seconds of predict to .npy, against encode", predicted, encoded, at_most=1),
    ]


def search_figures(runs: int, folder: Path) -> list[Figure]:
    """Return the wall time of a search among vectors in a file."""
    rng = np.random.default_rng(0)
    index = Index(rng.standard_normal((VECTORS, SIZE), np.float32), [""] * VECTORS)
    index.save(folder / "index")
    saved = Index.load(folder / "index")
    queries = rng.standard_normal((100, SIZE), np.float32)
    ((one,), (many,)) = alternate(
        runs,
        timed(lambda: saved.nearest(queries[0], top_k=10), time.perf_counter),
        timed(lambda: saved.nearest(queries, top_k=10), time.perf_counter),
    )
    name = f"{VECTORS:,} vectors of {SIZE}"
    return [
        compare(f"{name}: seconds of a query", one, SEARCH_SECONDS, at_most=1),
        state(f"{name}: seconds of {len(queries)} queries", many),
    ]


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=3)
    parser.add_argument("--texts", type=int, default=20_000, help="sentences to embed")
    arguments = parser.parse_args()
    texts = sentences(arguments.texts)
    with tempfile.TemporaryDirectory() as name:
        figures = embedding_figures(texts, arguments.runs, Path(name))
        figures += search_figures(arguments.runs, Path(name))
    show("Embedding and search", figures, as_json=arguments.json, against="compared with")


if __name__ == "__main__":
    main()
