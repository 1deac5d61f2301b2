"""The unit of work of `prepare`: some source documents that become one shard of each split.

Nothing in a unit depends on who works on it or what was done before it, and the work on it touches no disk.
So units can be made in any process on any machine, and kept from an interrupted run.

Sentences are found with `sentencex` (Wikimedia: about 250 languages, rules with abbreviation lists, written
in Rust, > 10 MB/s on one core): quoted speech stays in one piece, "Mr." and "D.C." end nothing, and
Chinese, German or Russian need no other code.

A whole book as one document would put all its examples side by side in training. It is therefore cut into
sections of about `section_sentences` sentences, at paragraphs, with headings at the start of a section where
possible; shuffling sections then mixes books while sentence order stays within running text.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from albertkit.errors import ConfigError, DataError, MissingExtraError
from albertkit.extras import optional
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.shards import Shard, ShardBuilder
from albertkit.tokenization.unigram import UnigramModel

sentencex = optional("sentencex", extra="train")

SPLITS = ("train", "validation")
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]+)*")
_HEADING = re.compile(r"#{1,6}\s+(?=\S)")


@dataclass(frozen=True, kw_only=True)
class SentenceSettings:
    """How text is cut; kept in the manifest of the shards."""

    language: str = "en"  # ISO 639 code, for the sentence splitter
    sentence_per_line: bool = False  # the input already has one sentence per line
    section_sentences: int = 64  # 0: a source document stays whole

    def __post_init__(self) -> None:
        # sentencex takes any string and cuts by English rules where it knows no others.
        if not _LANGUAGE.fullmatch(self.language):
            raise ConfigError(
                f"language must be an ISO 639 code such as en, de or zh (perhaps with a region: de-at), "
                f"not {self.language!r}"
            )
        if self.section_sentences < 0:
            raise ConfigError(
                f"section_sentences must be 0 (whole documents) or more, not {self.section_sentences}"
            )


def sections(text: str, settings: SentenceSettings) -> Iterator[list[str]]:
    """Yield the sections of one text in order, each a list of sentences."""
    limit = settings.section_sentences
    section: list[str] = []
    for sentences, is_heading in _paragraphs(text, settings):
        if limit:
            # A heading starts a section unless that would leave one much too short behind.
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


def _paragraphs(text: str, settings: SentenceSettings) -> Iterator[tuple[list[str], bool]]:
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
            paragraph = paragraph[heading.end() :]  # the words of a heading are text, its '#' are markup
        # The library is compiled and has no type stubs.
        parts = sentencex.segment(settings.language, paragraph)
        sentences = [sentence for part in parts if (sentence := part.strip())]
        if sentences:
            yield sentences, heading is not None


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
