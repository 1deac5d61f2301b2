"""Small shards for tests of pretraining data, and functions that split batches into rows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pretraining_runs import write_corpus

from albertkit.pretraining.batches import ExampleStream, PretrainingBatch
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet

PLAIN = ExampleSettings(max_seq_length=64, masked_lm=False)  # the ids of the text, without masks


def make_shards(folder: Path, texts: list[str], vocabulary: Path) -> ShardSet:
    """Write shards in which each text is a document."""
    prepare([write_corpus(folder, texts)], vocabulary, folder / "out", workers=1, unit_characters=30_000)
    return ShardSet(folder / "out/train")


def document(shards: ShardSet, index: int) -> list[list[int]]:
    """Return the ids of each sentence of a document."""
    tokens, ends = shards.tokens(index)
    return [sentence.tolist() for sentence in np.split(tokens, ends[:-1])]


def one_epoch(stream: ExampleStream) -> Iterator[PretrainingBatch]:
    for batch in stream:
        yield batch
        if batch.position.epoch > stream.start.epoch:
            return


def rows_of(batch: PretrainingBatch) -> list[bytes]:
    """Return the inputs and labels of each row as bytes, without padding."""
    rows = []
    for index, length in enumerate(batch.lengths):
        parts = [batch.input_ids[index, :length], batch.masked_labels[index, :length]]
        parts += [batch.second_begins[index], batch.order_labels[index]]
        rows.append(b"|".join(part.tobytes() for part in parts))
    return rows


def segments(row: np.ndarray, types: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    real = int(mask.sum())
    second = int(np.argmax(types)) if types.any() else real
    return row[1 : second - 1], row[second : real - 1]
