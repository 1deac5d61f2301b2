"""The unit of work of `prepare`: some source documents that become one shard of each split.

Nothing in a unit depends on who works on it or what was done before it, and the work on it touches no disk.
So units can be made in any process on any machine, and kept from an interrupted run.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from albertkit.errors import DataError, MissingExtraError
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.sentences import SentenceSettings, sections
from albertkit.pretraining.shards import Shard, ShardBuilder
from albertkit.tokenization.unigram import UnigramModel

SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of work: source documents that become one shard of each split."""

    number: int
    documents: tuple[SourceDocument, ...]
    held_out: tuple[bool, ...]
    fingerprint: str  # of the text and of all settings that matter
    text_bytes: int  # length of the text in UTF-8

    @classmethod
    def of(
        cls, number: int, documents: list[SourceDocument], held_out: list[bool], identity: dict[str, Any]
    ) -> Self:
        """Make a unit with its fingerprint; `identity` are the settings."""
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
        text_bytes = 0
        for document, out in zip(documents, held_out, strict=True):
            content = document.text.encode()
            text_bytes += len(content)
            digest.update(f"\0{out}\0".encode())
            digest.update(content)
        return cls(
            number=number,
            documents=tuple(documents),
            held_out=tuple(held_out),
            fingerprint=digest.hexdigest(),
            text_bytes=text_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Units:
    """A corpus, dealt out in order in units of `unit_characters` characters or more (the last may be less).

    Each iteration reads the corpus from its beginning.
    """

    corpus: Corpus
    identity: dict[str, Any]  # all settings that a shard depends on
    unit_characters: int
    holdout_every: int | None
    seed: int

    def __iter__(self) -> Iterator[Unit]:
        """Yield the units in the order of the text."""
        number, source, characters = 0, -1, 0
        documents: list[SourceDocument] = []
        held_out: list[bool] = []
        every = self.holdout_every
        for document in self.corpus:
            source += not document.continues
            documents.append(document)
            held_out.append(every is not None and source % every == self.seed % every)
            characters += len(document.text)
            if characters >= self.unit_characters:
                yield Unit.of(number, documents, held_out, self.identity)
                number, characters, documents, held_out = number + 1, 0, [], []
        if documents:
            yield Unit.of(number, documents, held_out, self.identity)


@dataclass(frozen=True, kw_only=True)
class Done:
    """A unit after the work on it."""

    number: int
    fingerprint: str
    text_bytes: int
    source_documents: int  # that begin in this unit
    consumed: float  # share of the corpus's bytes read so far
    shards: dict[str, Shard] | None  # by split; None where an interrupted run has them on the disk already


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work on a unit: sentences, sections, ids, shards."""

    encoder: UnigramModel
    settings: SentenceSettings
    finished: Mapping[int, str]  # fingerprints of the units that an interrupted run has finished, by number

    def __call__(self, unit: Unit) -> Done:
        """Make the shards of one unit.

        Raises:
            DataError: a document that cannot be worked on, named with file and line.
        """
        kept = self.finished.get(unit.number) == unit.fingerprint
        return Done(
            number=unit.number,
            fingerprint=unit.fingerprint,
            text_bytes=unit.text_bytes,
            source_documents=sum(not document.continues for document in unit.documents),
            consumed=unit.documents[-1].consumed,
            shards=None if kept else self._shards(unit),
        )

    def _shards(self, unit: Unit) -> dict[str, Shard]:
        builders = {split: ShardBuilder(self.encoder.size) for split in SPLITS}
        for document, held_out in zip(unit.documents, unit.held_out, strict=True):
            builder = builders["validation" if held_out else "train"]
            try:
                for section in sections(document.text, self.settings):
                    sentences = [ids for ids in self.encoder.ids_batch(section, num_threads=1) if ids]
                    if sentences:
                        builder.add(sentences)
            except MissingExtraError:
                raise  # not the document's fault
            except Exception as error:
                raise DataError(f"{document.origin}: {type(error).__name__}: {error}") from error
        file = f"shard-{unit.number:05d}.arrow"
        return {split: builder.finish(file) for split, builder in builders.items() if len(builder)}
