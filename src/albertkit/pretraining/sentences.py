"""Text -> sections of consecutive sentences, the documents that examples are drawn from.

Sentences are found with `sentencex` (Wikimedia: about 250 languages, rules with abbreviation lists, written
in Rust, > 10 MB/s on one core): quoted speech stays in one piece, "Mr." and "D.C." end nothing, and
Chinese, German or Russian need no other code.

A whole book as one document would put all its examples side by side in training. It is therefore cut into
sections of about `section_sentences` sentences, at paragraphs, with headings at the start of a section where
possible; shuffling sections then mixes books while sentence order stays within running text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from albertkit.errors import ConfigError
from albertkit.extras import optional

sentencex = optional("sentencex", extra="train")

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
