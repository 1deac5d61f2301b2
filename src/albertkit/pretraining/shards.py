"""Token shards: documents as lists of sentences, sentences as lists of ids, in memory-mapped Arrow files.

    FOLDER/shard-00000.arrow   Arrow IPC file, one column `sentences: list<list<uint16 or uint32>>`
    FOLDER/shard-00001.arrow   ...
    FOLDER/manifest.json       what the shards are; written last, so a folder without it is unfinished

Any tool that writes these files and the manifest can provide data for pretraining. Masks and sentence order
are not stored: they are drawn anew in every epoch. A corpus takes about half a byte per character on disk.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.errors import DataError, reading
from albertkit.extras import optional
from albertkit.files import file_sha256, write_json
from albertkit.recipe import build
from albertkit.tokenization.folder import read_settings
from albertkit.tokenization.normalization import Normalization

pa = optional("pyarrow", extra="train")

MANIFEST = "manifest.json"
FORMAT = "albertkit-shards"
VERSION = 1


COUNTS = ("documents", "sentences", "tokens")
"""The numbers in the record of a shard, which the manifest sums up."""


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One file of a shard folder, as listed in its manifest."""

    file: str
    sha256: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a shard folder, and how it was made."""

    tokenizer_sha256: str
    vocabulary_size: int
    documents: int
    sentences: int
    tokens: int
    seed: int
    settings: dict[str, Any]
    shards: tuple[ShardRecord, ...]

    def write(self, folder: Path) -> None:
        values = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_json(folder / MANIFEST, values, ensure_ascii=False)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        file = folder / MANIFEST
        if not file.exists():
            raise DataError(
                f"{folder} has no {MANIFEST}, so it is not a finished shard folder. Run `albertkit prepare`."
            )
        with reading(file, DataError):
            values = json.loads(file.read_bytes())
            if (values.pop("format", None), values.pop("version", None)) != (FORMAT, VERSION):
                raise ValueError(f"expected format {FORMAT!r} version {VERSION}")
            shards = [build(ShardRecord, record, where=str(file)) for record in values["shards"]]
            return replace(build(cls, values | {"shards": ()}, where=str(file)), shards=tuple(shards))


class ShardSet:
    """The documents of a finished shard folder, with random access and without loading them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self._arrays: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        ends = np.cumsum([record.documents for record in self.manifest.shards])
        self._starts: list[int] = [0, *ends.tolist()]

    def __reduce__(self) -> tuple[type["ShardSet"], tuple[Path]]:
        # A pickle has only the path: Python hangs if a worker process ends before it has read a large pickle.
        return ShardSet, (self.folder,)

    def __len__(self) -> int:
        return self._starts[-1]

    def tokens(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids [tokens] of document `index`, and the ends [sentences] of its sentences."""
        shard = bisect_right(self._starts, index) - 1
        ids, sentence_ends, document_ends = self._open(shard)
        row = index - self._starts[shard]
        first, last = document_ends[row : row + 2]
        ends = sentence_ends[first : last + 1]
        return ids[ends[0] : ends[-1]], ends[1:] - ends[0]

    def documents(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return several documents, one after the other.

        Returns:
            The ids [tokens], the ends [sentences] of the sentences in the ids, and the ends [documents] of
            the documents in the sentences.
        """
        parts = [self.tokens(index) for index in indices.tolist()]
        begins = np.cumsum([0, *(len(ids) for ids, _ in parts)])
        counts = [len(ends) for _, ends in parts]
        ids = np.concatenate([ids for ids, _ in parts])
        sentence_ends = np.concatenate([ends for _, ends in parts]) + np.repeat(begins[:-1], counts)
        return ids, sentence_ends, np.cumsum(counts)

    def piece_frequencies(self) -> np.ndarray:
        """Return the share of each piece of the vocabulary among all tokens, [V] float64.

        Every count starts at one, so that no piece has probability 0.
        """
        counts = np.ones(self.manifest.vocabulary_size)
        for index in range(len(self.manifest.shards)):
            counts += np.bincount(self._open(index)[0], minlength=len(counts))
        return counts / counts.sum()

    def _open(self, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return views of the buffers of a memory-mapped shard.

        Returns:
            The ids [tokens], the ends [sentences + 1] of the sentences in the ids, and the ends
            [documents + 1] of the documents in the sentences. Both begin with 0.
        """
        if shard in self._arrays:
            return self._arrays[shard]
        record, vocabulary_size = self.manifest.shards[shard], self.manifest.vocabulary_size
        path = self.folder / record.file
        with reading(path, DataError):
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            column = reader.get_batch(0).column(0)
            column.validate(full=True)
            sentences = column.values if pa.types.is_list(column.type) else column
            is_ids = pa.types.is_list(sentences.type) and sentences.type.value_type in (
                pa.uint16(),
                pa.uint32(),
            )
            if not is_ids or column.null_count or sentences.null_count or sentences.values.null_count:
                raise ValueError(f"expected lists of lists of token ids, found {column.type}")
            if reader.num_record_batches != 1 or len(column) != record.documents:
                raise ValueError(f"expected one batch of the {record.documents} documents in {MANIFEST}")
            ids = sentences.values.to_numpy()
            if (largest := int(ids.max(initial=0))) >= vocabulary_size:
                raise ValueError(
                    f"the largest id is {largest}, but the vocabulary has {vocabulary_size} pieces"
                )
            self._arrays[shard] = ids, sentences.offsets.to_numpy(), column.offsets.to_numpy()
        return self._arrays[shard]

    def check_files(self) -> None:
        """Raise DataError unless each file has the checksum that the manifest lists."""
        for record in self.manifest.shards:
            file = self.folder / record.file
            with reading(file, DataError):
                if file_sha256(file) != record.sha256:
                    raise DataError(
                        f"{file} has changed since it was written. Delete the shards and prepare the corpus "
                        "again."
                    )

    def check_tokenizer(self, file: str | Path) -> None:
        """Raise DataError unless `file` is the vocabulary that these shards were made with.

        The normalization in the `tokenizer_config.json` in its folder must be the same too.
        """
        file = Path(file)
        normalization = asdict(Normalization.of(read_settings(file)))
        made_with = self.manifest.settings.get("normalization", normalization)
        different = [
            f"{name}={value}" for name, value in made_with.items() if normalization.get(name) != value
        ]
        if file_sha256(file) != self.manifest.tokenizer_sha256:
            different = ["another vocabulary"]
        if different:
            raise DataError(
                f"{self.folder}: made with {', '.join(different)}, unlike {file} and its "
                "tokenizer_config.json. Prepare the corpus again, or use the right tokenizer."
            )


class ShardBuilder:
    def __init__(self, vocabulary_size: int) -> None:
        # Takes half the disk space and memory traffic of uint32, and suffices for nearly every vocabulary.
        self._type = np.uint16 if vocabulary_size <= 1 << 16 else np.uint32
        self._ids: list[np.ndarray] = []
        self._sentence_lengths: list[int] = []
        self._document_lengths: list[int] = []

    def add(self, document: Sequence[Sequence[int]]) -> None:
        """Add a document: a list of sentences, each a non-empty list of ids."""
        self._document_lengths.append(len(document))
        for sentence in document:
            self._sentence_lengths.append(len(sentence))
        self._ids.append(np.array([id_ for sentence in document for id_ in sentence], dtype=self._type))

    def __len__(self) -> int:
        return len(self._document_lengths)

    def finish(self, file: str) -> tuple[ShardRecord, bytes]:
        """Return the record and the content of the shard `file`; the same documents give the same bytes."""
        ids = pa.array(np.concatenate(self._ids))
        sentences = pa.ListArray.from_arrays(_offsets(self._sentence_lengths), ids)
        documents = pa.ListArray.from_arrays(_offsets(self._document_lengths), sentences)
        batch = pa.record_batch([documents], names=["sentences"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue().to_pybytes()
        record = ShardRecord(
            file=file,
            sha256=hashlib.sha256(content).hexdigest(),
            documents=len(documents),
            sentences=len(sentences),
            tokens=len(ids),
        )
        return record, content


def _offsets(lengths: list[int]) -> Any:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), type=pa.int32())
