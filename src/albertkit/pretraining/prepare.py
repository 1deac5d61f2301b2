"""Convert raw text to token shards: in parallel, in bounded memory, with reproducible bytes.

The corpus is read in order and split into units of about `unit_characters` characters. A unit becomes one
shard of each split, and does not depend on the worker or on earlier work. So neither the number of workers
nor the runner changes the result, and units that an interrupted run finished with the same text and settings
are kept.

Sentences are found with `sentencex` (Wikimedia: about 250 languages, rules with abbreviation lists, written
in Rust, > 10 MB/s on one core). It keeps quoted speech together, does not end sentences at "Mr." and "D.C.",
and needs no other code for Chinese, German or Russian.

A whole book as one document would put all its examples next to each other in training. So it is split into
sections of about `section_sentences` sentences, at paragraphs. If possible, a section starts with a heading.
Shuffling the sections mixes the books, and sentence order stays within running text.

    OUTPUT/train/       a shard folder (see shards.py)
    OUTPUT/validation/  another, with the source documents held out
    OUTPUT/.progress/   a note for each finished unit, while the work is unfinished

Every file under its final name is complete: a unit's note is written after its shards, and the manifests
after all notes.
"""

import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from albertkit.errors import DataError, MissingExtraError, warn_caller
from albertkit.extras import optional
from albertkit.files import (
    atomic_path,
    check_new_folder,
    file_sha256,
    full_disk_named,
    made_folder,
    read_json,
    write_json,
)
from albertkit.logs import ProgressBar, lines_shown
from albertkit.parallel import check_runner, ordered_map
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.settings import PreparationSettings
from albertkit.pretraining.shards import COUNTS, MANIFEST, Manifest, ShardBuilder, ShardRecord
from albertkit.recipe import build, settings_from, takes_settings
from albertkit.results import Result
from albertkit.text_files import file_format
from albertkit.tokenization import folder
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel
from albertkit.tokenization.vocabulary import unreachable_warning

filelock = optional("filelock", extra="train")
sentencex = optional("sentencex", extra="train")
logger = logging.getLogger(__name__)

SPLITS = ("train", "validation")
_LARGE_HOLDOUT = 0.2  # share of the tokens; above it, a warning if the share is far larger than expected
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_HEADING = re.compile(r"#{1,6}\s+(?=\S)")
Records = dict[str, ShardRecord]  # of one unit, by split


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """The progress of the work, reported after every unit."""

    text_bytes: int  # of text in UTF-8, without compression and markup of the files
    fraction: float  # of the corpus's bytes
    units: int
    reused: int  # shards reused from an interrupted run
    seconds: float


@dataclass(frozen=True, kw_only=True, repr=False)
class PrepareReport(Result):
    """The result of `prepare`."""

    output: Path
    train: Manifest
    validation: Manifest | None
    source_documents: int
    text_bytes: int
    reused_shards: int
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        held_out = self.validation
        return {
            "source_documents": self.source_documents,
            "text_bytes": self.text_bytes,
            "shards_reused": self.reused_shards,
            "documents": self.train.documents,
            "sentences": self.train.sentences,
            "tokens": self.train.tokens,
            "held_out_documents": held_out.documents if held_out else 0,
            "held_out_tokens": held_out.tokens if held_out else 0,
            "seconds": round(self.seconds, 1),
            "megabytes_per_second": round(self.text_bytes / 1e6 / self.seconds, 2),
            "output": self.output,
        }


@takes_settings(PreparationSettings)
def prepare(
    inputs: str | Path | Sequence[str | Path] | Any,
    tokenizer: str | Path,
    output: str | Path,
    *,
    progress: Callable[[PrepareProgress], None] | None = None,
    **settings: Any,
) -> PrepareReport:
    """Tokenize a corpus into documents of sentences of token ids, and write them as shards.

    After an interruption, the same call keeps the finished shards and resumes the work. In a script, call
    this function under `if __name__ == "__main__":`, because each worker process imports the script.

    Args:
        inputs: text files, folders or glob patterns: `.txt`, `.jsonl` or `.parquet`, optionally compressed
            (`.gz`, `.zst` or `.bz2`). In Python also rows with a column of texts: a list of dicts, a
            `datasets.Dataset`, a pandas or Arrow table. A `datasets.IterableDataset` and a generator of dicts
            are streamed: about `unit_characters` characters are in memory at a time.
        tokenizer: folder or Hugging Face Hub name of the tokenizer, or its `spiece.model`. The
            `tokenizer_config.json` in the same folder determines the normalization.
        output: folder to write; must not contain finished shards.
        progress: function that is called after every unit of about `unit_characters` characters; None for a
            progress bar.
        **settings: fields of `PreparationSettings`. The shards depend on neither `workers` nor `runner`.

    Returns:
        The report, with the number of documents, sentences and tokens, and the speed.

    Raises:
        ConfigError: a setting is unknown or out of range, or the runner is unknown.
        ModelNotFoundError, TokenizerError: the tokenizer does not exist or is damaged.
        DataError: there is no text, a file cannot be read (the message gives the line), or `output` has
            finished shards.
        DiskFullError: the disk has no space left.
        MissingExtraError: the runner is Ray, which is not installed.

    Warns:
        UserWarning: the vocabulary has pieces that normalized text can never contain.
    """
    chosen = settings_from(PreparationSettings, None, settings)
    check_runner(chosen.runner, chosen.workers)
    start = time.monotonic()
    corpus = Corpus(inputs, text_column=chosen.text_column, sentence_per_line=chosen.sentence_per_line)
    vocabulary = folder.locate_model_file(tokenizer)
    encoder = UnigramModel(vocabulary, Normalization.of(folder.read_settings(vocabulary)))
    if message := unreachable_warning(encoder):
        warn_caller(f"{tokenizer}: {message}")
    identity = {
        "normalization": asdict(encoder.normalization),
        "sentences": {
            "language": chosen.language,
            "sentence_per_line": chosen.sentence_per_line,
            "section_sentences": chosen.section_sentences,
        },
        "holdout_every": chosen.holdout_every,
        "unit_characters": chosen.unit_characters,
        "text_column": chosen.text_column,
    }
    tokenizer_sha256 = file_sha256(vocabulary)
    prepared = PreparedFolder(Path(output))
    with lines_shown(), ProgressBar() as bar, prepared.open():
        finished = prepared.finished()
        fingerprints = {number: fingerprint for number, (fingerprint, _) in finished.items()}
        worked = ordered_map(
            partial(make_shards, encoder=encoder, settings=chosen, finished=fingerprints),
            units(corpus, chosen, identity | {"tokenizer": tokenizer_sha256}),
            runner=chosen.runner,
            workers=chosen.workers,
            name=lambda unit: unit.documents[0][0].origin,
            hint="finished shards are kept; a smaller unit_characters needs less memory",
        )
        records: dict[str, list[ShardRecord]] = {split: [] for split in SPLITS}
        text_bytes, reused, source_documents = 0, 0, 0
        for unit in worked:
            written = finished[unit.number][1] if unit.shards is None else prepared.keep(unit, unit.shards)
            for split, record in written.items():
                records[split].append(record)
            text_bytes += unit.text_bytes
            reused += len(written) if unit.shards is None else 0
            source_documents += unit.source_documents
            done = PrepareProgress(
                text_bytes=text_bytes,
                fraction=unit.consumed,
                units=unit.number + 1,
                reused=reused,
                seconds=time.monotonic() - start,
            )
            if progress:
                progress(done)
            else:
                speed = text_bytes / 1e6 / max(done.seconds, 1e-9)
                bar.update(f"{done.fraction:.0%} of the text, {speed:.1f} MB/s", done.fraction)
        manifests = {
            split: Manifest(
                tokenizer_sha256=tokenizer_sha256,
                vocabulary_size=encoder.size,
                seed=chosen.seed,
                settings=identity,
                shards=tuple(listed),
                **{name: sum(getattr(record, name) for record in listed) for name in COUNTS},
            )
            for split, listed in records.items()
            if listed
        }
        try:
            _check_content(manifests, corpus, source_documents, chosen.holdout_every)
        except DataError:
            prepared.close({})  # the corpus cannot be used, so nothing is kept
            raise
        prepared.close(manifests)
    return PrepareReport(
        output=prepared.path,
        train=manifests["train"],
        validation=manifests.get("validation"),
        source_documents=source_documents,
        text_bytes=text_bytes,
        reused_shards=reused,
        seconds=time.monotonic() - start,
    )


def _check_content(
    manifests: dict[str, Manifest], corpus: Corpus, source_documents: int, holdout_every: int | None
) -> None:
    train, held_out = manifests.get("train"), manifests.get("validation")
    read = f"(source documents read: {source_documents}, holdout_every: {holdout_every})"
    hint = ""
    if not corpus.sentence_per_line and any(file_format(file)[0] == ".txt" for file in corpus.files):
        hint = " A .txt file is one source document. Split it, or write a .jsonl file with one text per line."
    if train is None:
        raise DataError(f"{corpus.name}: no text to train on {read}.{hint}")
    if holdout_every and held_out is None:
        raise DataError(f"{corpus.name}: no text is held out for validation {read}.{hint}")
    if train.sentences == train.documents:
        raise DataError(
            f"{corpus.name}: none of the {train.documents} documents has two sentences, so there is no "
            "sentence order to learn."
        )
    share = held_out.tokens / (held_out.tokens + train.tokens) if held_out else 0.0
    if holdout_every and share > max(2 / holdout_every, _LARGE_HOLDOUT):
        logger.warning(
            f"{share:.0%} of the tokens are held out for validation, instead of about "
            f"{100 / holdout_every:.2g}%, because albertkit holds out entire source documents {read}.{hint}"
        )


class PreparedFolder:
    """The output folder, with the finished units of an interrupted run."""

    def __init__(self, path: Path) -> None:
        self.path, self._notes = path, path / ".progress"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Prepare and lock the folder for the work of the block; if it raises, remove empty folders."""
        if (self.path / "train" / MANIFEST).exists():
            raise DataError(f"{self.path} has finished shards. Delete them or choose another folder.")
        if not self._notes.is_dir():
            check_new_folder(self.path)
        with made_folder(self._notes), full_disk_named(self.path):
            lock = filelock.FileLock(self._notes / ".lock")
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                raise DataError(f"{self.path} is in use by another `prepare`. Wait for it.") from None
            try:
                for split in SPLITS:  # from a run that was interrupted between its manifests
                    (self.path / split / MANIFEST).unlink(missing_ok=True)
                yield
            except KeyboardInterrupt:
                kept = f"finished shards are kept in {self.path}, and the same command resumes the work"
                logger.info("stopped: %s", kept)
                raise
            finally:
                Path(lock.lock_file).unlink(missing_ok=True)
                lock.release()

    def finished(self) -> dict[int, tuple[str, Records]]:
        """Return fingerprint and records of each finished unit with valid files, by its number."""
        units: dict[int, tuple[str, Records]] = {}
        for note in self._notes.glob("*.json"):
            with suppress(Exception):  # the unit is repeated
                values = read_json(note, DataError)
                records = {
                    split: build(ShardRecord, record, where=split)
                    for split, record in values["records"].items()
                }
                files = {self.path / split / record.file: record for split, record in records.items()}
                if all(file_sha256(file) == record.sha256 for file, record in files.items()):
                    units[int(note.stem)] = values["fingerprint"], records
        return units

    def keep(self, unit: "Unit", shards: dict[str, tuple[ShardRecord, bytes]]) -> Records:
        """Write the shards of a unit, then the note that it is finished."""
        records = {split: record for split, (record, _) in shards.items()}
        try:
            for split, (record, content) in shards.items():
                file = self.path / split / record.file
                with made_folder(file.parent), atomic_path(file) as path:
                    path.write_bytes(content)
            listed = {split: asdict(record) for split, record in records.items()}
            note = {"fingerprint": unit.fingerprint, "records": listed}
            write_json(self._notes / f"{unit.number:05d}.json", note, indent=None)
        except BaseException:
            for split, record in records.items():  # without a note, the shards could not be resumed
                (self.path / split / record.file).unlink(missing_ok=True)
                with suppress(OSError):  # other shards are there
                    (self.path / split).rmdir()
            raise
        return records

    def close(self, manifests: Mapping[str, Manifest]) -> None:
        """Remove the notes and all shards that are not in the manifests, and write the manifests."""
        for split in reversed(SPLITS):  # train/ last: if it is finished, everything is
            folder, manifest = self.path / split, manifests.get(split)
            listed = {record.file for record in manifest.shards} if manifest else set()
            for file in [*folder.glob("shard-*.arrow"), *folder.glob(".shard-*.tmp")]:
                if file.name not in listed:
                    file.unlink()
            if manifest:
                manifest.write(folder)
            with suppress(OSError):  # the folder has shards, or files of others
                folder.rmdir()
        shutil.rmtree(self._notes)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of work: source documents that become one shard of each split."""

    number: int
    documents: list[tuple[SourceDocument, str]]  # each with its split; empty after the work
    fingerprint: str  # of the text and of all settings that affect the shards
    text_bytes: int  # length of the text in UTF-8
    source_documents: int  # number of documents that begin in this unit
    consumed: float  # share of the corpus's bytes read so far
    shards: dict[str, tuple[ShardRecord, bytes]] | None = None
    """Record and content of each split's shard; None if an interrupted run has them on the disk."""


def units(corpus: Corpus, settings: PreparationSettings, identity: dict[str, Any]) -> Iterator[Unit]:
    """Split a corpus in order into units of at least `unit_characters` characters (the last may be smaller).

    `identity` has all settings that a shard depends on.
    """

    def unit() -> Unit:
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
        text_bytes = 0
        for document, split in documents:
            content = document.text.encode()
            text_bytes += len(content)
            digest.update(f"\0{split == 'validation'}\0".encode())
            digest.update(content)
        return Unit(
            number=number,
            documents=documents,
            fingerprint=digest.hexdigest(),
            text_bytes=text_bytes,
            source_documents=sum(not document.continues for document, _ in documents),
            consumed=documents[-1][0].consumed,
        )

    number, source, characters, every = 0, -1, 0, settings.holdout_every
    documents: list[tuple[SourceDocument, str]] = []
    for document in corpus:
        source += not document.continues
        held_out = every is not None and source % every == settings.seed % every
        documents.append((document, "validation" if held_out else "train"))
        characters += len(document.text)
        if characters >= settings.unit_characters:
            yield unit()
            number, characters, documents = number + 1, 0, []
    if documents:
        yield unit()


def make_shards(
    unit: Unit, *, encoder: UnigramModel, settings: PreparationSettings, finished: Mapping[int, str]
) -> Unit:
    """Return a unit with its shards; `finished` has the fingerprints of the units on the disk, by number."""
    if finished.get(unit.number) == unit.fingerprint:
        return replace(unit, documents=[])
    builders = {split: ShardBuilder(encoder.size) for split in SPLITS}
    for document, split in unit.documents:
        try:
            for section in sections(document.text, settings):
                if sentences := [ids for ids in encoder.ids_batch(section, num_threads=1) if ids]:
                    builders[split].add(sentences)
        except MissingExtraError:
            raise  # not the document's fault
        except Exception as error:
            raise DataError(f"{document.origin}: {type(error).__name__}: {error}") from error
    file = f"shard-{unit.number:05d}.arrow"
    shards = {split: builder.finish(file) for split, builder in builders.items() if len(builder)}
    return replace(unit, documents=[], shards=shards)


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
