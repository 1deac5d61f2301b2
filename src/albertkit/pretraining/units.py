"""The unit of work of `prepare`: source documents that become one shard of each split.

A unit does not depend on the worker or on earlier work, and processing it does not access the disk. So any
process on any machine can process units, and units of an interrupted run can be kept.

Sentences are found with `sentencex` (Wikimedia: about 250 languages, rules with abbreviation lists, written
in Rust, > 10 MB/s on one core). It keeps quoted speech together, does not end sentences at "Mr." and "D.C.",
and needs no other code for Chinese, German or Russian.

A whole book as one document would put all its examples next to each other in training. So it is split into
sections of about `section_sentences` sentences, at paragraphs. If possible, a section starts with a heading.
Shuffling the sections mixes the books, and sentence order stays within running text.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from albertkit.errors import DataError, MissingExtraError
from albertkit.extras import optional
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.settings import PreparationSettings
from albertkit.pretraining.shards import ShardBuilder, ShardRecord
from albertkit.tokenization.unigram import UnigramModel

sentencex = optional("sentencex", extra="train")

SPLITS = ("train", "validation")
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_HEADING = re.compile(r"#{1,6}\s+(?=\S)")


def sections(text: str, settings: PreparationSettings) -> Iterator[list[str]]:
    """Yield the sections of one text in order, each a list of sentences."""
    limit = settings.section_sentences
    section: list[str] = []
    for sentences, is_heading in _paragraphs(text, settings):
        if limit:
            # A heading starts a section unless the section before it would be much too short.
            full = len(section) + len(sentences) > limit
            if section and (full or (is_heading and len(section) >= limit // 4)):
                yield section
                section = []
            while len(sentences) > limit:
                yield sentences[:limit]
                sentences = sentences[limit:]
        section.extend(sentences)
    if section:
        yield section


def _paragraphs(text: str, settings: PreparationSettings) -> Iterator[tuple[list[str], bool]]:
    """Yield (sentences, is a heading) of each paragraph that has any sentence."""
    if settings.sentence_per_line:
        for line in text.splitlines():
            if sentence := line.strip():
                yield [sentence], False
        return
    for paragraph in _PARAGRAPH_BREAK.split(text):
        paragraph = paragraph.strip()
        heading = _HEADING.match(paragraph)
        if heading:
            paragraph = paragraph[heading.end() :]  # the words of a heading are text, its '#' is markup
        # The library is compiled and has no type stubs.
        parts = sentencex.segment(settings.language, paragraph)
        sentences = [sentence for part in parts if (sentence := part.strip())]
        if sentences:
            yield sentences, heading is not None


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of work: source documents that become one shard of each split."""

    number: int
    documents: list[SourceDocument]  # empty after the work
    held_out: list[bool]
    fingerprint: str  # of the text and of all settings that affect the shards
    text_bytes: int  # length of the text in UTF-8
    source_documents: int  # number of documents that begin in this unit
    consumed: float  # share of the corpus's bytes read so far
    shards: dict[str, tuple[ShardRecord, bytes]] | None = None
    """Record and content of each split's shard; None if an interrupted run has them on the disk."""


def units(corpus: Corpus, settings: PreparationSettings, identity: dict[str, Any]) -> Iterator[Unit]:
    """Split a corpus in order into units of at least `unit_characters` characters (the last may be smaller).

    Args:
        corpus: the text.
        settings: the size of a unit, and the held-out share.
        identity: all settings that a shard depends on.
    """
    number, source, characters = 0, -1, 0
    documents: list[SourceDocument] = []
    held_out: list[bool] = []
    every = settings.holdout_every
    for document in corpus:
        source += not document.continues
        documents.append(document)
        held_out.append(every is not None and source % every == settings.seed % every)
        characters += len(document.text)
        if characters >= settings.unit_characters:
            yield _unit(number, documents, held_out, identity)
            number, characters, documents, held_out = number + 1, 0, [], []
    if documents:
        yield _unit(number, documents, held_out, identity)


def _unit(
    number: int, documents: list[SourceDocument], held_out: list[bool], identity: dict[str, Any]
) -> Unit:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    text_bytes = 0
    for document, out in zip(documents, held_out, strict=True):
        content = document.text.encode()
        text_bytes += len(content)
        digest.update(f"\0{out}\0".encode())
        digest.update(content)
    return Unit(
        number=number,
        documents=documents,
        held_out=held_out,
        fingerprint=digest.hexdigest(),
        text_bytes=text_bytes,
        source_documents=sum(not document.continues for document in documents),
        consumed=documents[-1].consumed,
    )


@dataclass(frozen=True, kw_only=True)
class Work:
    """Processes a unit: sentences, sections, ids, shards."""

    encoder: UnigramModel
    settings: PreparationSettings
    finished: Mapping[int, str]  # fingerprints of the units that an interrupted run finished, by number

    def __call__(self, unit: Unit) -> Unit:
        """Return a unit with its shards instead of its documents."""
        kept = self.finished.get(unit.number) == unit.fingerprint
        return replace(unit, documents=[], held_out=[], shards=None if kept else self._shards(unit))

    def _shards(self, unit: Unit) -> dict[str, tuple[ShardRecord, bytes]]:
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
