"""The unit of work of `prepare`: some source documents that become one shard of each split.

Nothing in a unit depends on who works on it or what was done before it, so units can be made in any process,
and kept from an interrupted run.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from albertkit.errors import DataError, MissingExtraError
from albertkit.files import atomic_path
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.sentences import SentenceSettings, sections
from albertkit.pretraining.shards import ShardBuilder, ShardRecord, file_sha256
from albertkit.tokenization import folder
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.pieces import PieceEncoder

SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of work: source documents that become one shard of each split."""

    number: int
    documents: tuple[SourceDocument, ...]
    held_out: tuple[bool, ...]
    fingerprint: str  # of the text and of all settings that matter

    @classmethod
    def of(
        cls, number: int, documents: list[SourceDocument], held_out: list[bool], identity: dict[str, Any]
    ) -> "Unit":
        """Make a unit with its fingerprint; `identity` are the settings."""
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
        for document, out in zip(documents, held_out, strict=True):
            digest.update(f"\0{out}\0".encode())
            digest.update(document.text.encode("utf-8", "surrogatepass"))
        return cls(
            number=number,
            documents=tuple(documents),
            held_out=tuple(held_out),
            fingerprint=digest.hexdigest(),
        )

    @property
    def characters(self) -> int:
        """Length of its text."""
        return sum(len(document.text) for document in self.documents)

    @property
    def file(self) -> str:
        """Name of its shard in each split."""
        return f"shard-{self.number:05d}.arrow"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every worker needs to know."""

    vocabulary_file: Path
    tokenizer_sha256: str
    vocabulary_size: int
    normalization: Normalization
    settings: SentenceSettings
    output: Path

    @classmethod
    def start(cls, tokenizer: str | Path, output: Path, settings: SentenceSettings) -> "Job":
        """Read the tokenizer and make the output folder.

        Raises:
            ModelNotFoundError, TokenizerError: no tokenizer is there, or its files are damaged.
        """
        file, normalization = _find_tokenizer(tokenizer)
        job = cls(
            vocabulary_file=file,
            tokenizer_sha256=file_sha256(file),
            vocabulary_size=PieceEncoder(file, normalization).size,
            normalization=normalization,
            settings=settings,
            output=output,
        )
        job.progress_folder.mkdir(parents=True, exist_ok=True)
        return job

    @property
    def progress_folder(self) -> Path:
        """Where finished units are noted until all are."""
        return self.output / ".progress"

    def finished(self, unit: Unit) -> dict[str, ShardRecord] | None:
        """Return the records of a unit that an interrupted run has finished, if its files are still right."""
        try:
            values = json.loads(self._note(unit).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        records = {split: ShardRecord(**record) for split, record in values["records"].items()}
        files = {self.output / split / record.file: record for split, record in records.items()}
        right = values["fingerprint"] == unit.fingerprint and all(
            file.is_file() and file_sha256(file) == record.sha256 for file, record in files.items()
        )
        return records if right else None

    def remember(self, unit: Unit, records: dict[str, ShardRecord]) -> None:
        """Note that a unit is finished."""
        values = {
            "fingerprint": unit.fingerprint,
            "records": {split: asdict(record) for split, record in records.items()},
        }
        with atomic_path(self._note(unit)) as path:
            path.write_text(json.dumps(values), encoding="utf-8")

    def _note(self, unit: Unit) -> Path:
        return self.progress_folder / f"{unit.number:05d}.json"


def _find_tokenizer(name_or_path: str | Path) -> tuple[Path, Normalization]:
    path = folder.locate(name_or_path)
    file = folder.find_model_file(path)
    if file is None:
        raise folder.missing(path, folder.MODEL_FILE)
    settings = folder.read_settings(path)
    known = [field.name for field in fields(Normalization)]
    return file, Normalization(**{name: settings[name] for name in known if name in settings})


def deal_units(
    corpus: Corpus, identity: dict[str, Any], unit_characters: int, holdout_every: int | None, seed: int
) -> Iterator[Unit]:
    """Deal the corpus out in units of at least `unit_characters` characters (the last one may be smaller)."""
    number, source, characters = 0, -1, 0
    documents: list[SourceDocument] = []
    held_out: list[bool] = []

    for document in corpus:
        source += not document.continues
        documents.append(document)
        held_out.append(holdout_every is not None and source % holdout_every == seed % holdout_every)
        characters += len(document.text)
        if characters >= unit_characters:
            yield Unit.of(number, documents, held_out, identity)
            number, characters, documents, held_out = number + 1, 0, [], []
    if documents:
        yield Unit.of(number, documents, held_out, identity)


def build(unit: Unit, job: Job, encoder: PieceEncoder) -> dict[str, ShardRecord]:
    """Make the shards of one unit."""
    builders = {split: ShardBuilder(job.vocabulary_size) for split in SPLITS}
    for document, held_out in zip(unit.documents, unit.held_out, strict=True):
        builder = builders["validation" if held_out else "train"]
        try:
            for section in sections(document.text, job.settings):
                sentences = [ids for ids in encoder.ids_batch(section, num_threads=1) if ids]
                if sentences:
                    builder.add(sentences)
        except MissingExtraError:
            raise  # not the document's fault
        except Exception as error:
            raise DataError(f"{document.origin}: {error}") from error
    records: dict[str, ShardRecord] = {}
    for split, builder in builders.items():
        if len(builder):
            (job.output / split).mkdir(exist_ok=True)
            records[split] = builder.write(job.output / split / unit.file)
    return records
