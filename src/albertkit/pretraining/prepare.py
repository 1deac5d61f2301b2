"""Raw text -> token shards, in parallel, in bounded memory, the same bytes every time.

    OUTPUT/train/       a shard folder (see shards.py)
    OUTPUT/validation/  another, with the source documents held out
    OUTPUT/.progress/   which shards are done, while the work is unfinished

The corpus is read in order and dealt out in units of about `unit_characters` characters. A unit becomes one
shard of each split, whoever works on it, so the number of workers changes nothing in the result. A unit that
an earlier, interrupted run has finished with the same text and settings is kept.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

from albertkit.errors import ConfigError, DataError
from albertkit.files import atomic_path
from albertkit.pretraining.corpus import Corpus, SourceDocument
from albertkit.pretraining.sentences import SentenceSettings, sections
from albertkit.pretraining.shards import MANIFEST, Manifest, ShardBuilder, ShardRecord, file_sha256
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.pieces import PieceEncoder

SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """How far the work is, told after every unit."""

    characters: int
    fraction: float  # of the corpus's bytes
    units: int
    kept: int  # units taken over from an interrupted run
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """What `prepare` made."""

    output: Path
    train: Manifest
    validation: Manifest | None
    source_documents: int
    characters: int
    kept_units: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """A piece of work: source documents that become one shard of each split."""

    number: int
    documents: tuple[SourceDocument, ...]
    held_out: tuple[bool, ...]
    fingerprint: str  # of the text and of all settings that matter

    @property
    def characters(self) -> int:
        return sum(len(document.text) for document in self.documents)

    @property
    def file(self) -> str:
        return f"shard-{self.number:05d}.arrow"

    @property
    def origin(self) -> str:
        return f"{self.documents[0].origin} to {self.documents[-1].origin}"


def prepare(
    inputs: Sequence[str | Path],
    tokenizer: str | Path,
    output: str | Path,
    *,
    text_column: str = "text",
    language: str = "en",
    sentence_per_line: bool = False,
    section_sentences: int = 64,
    holdout_every: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    unit_characters: int = 8_000_000,
    progress: Callable[[PrepareProgress], None] | None = None,
) -> PrepareReport:
    """Cut a corpus into documents of sentences of ids, and write them as shards.

    Args:
        inputs: files, folders and glob patterns (see corpus.py).
        tokenizer: a tokenizer's folder, or its `spiece.model`; the normalisation is read from the
            `tokenizer_config.json` beside it.
        output: folder to write; must not hold finished shards.
        text_column: where the text is in `.jsonl` and `.parquet` files.
        language: ISO 639 code, for the sentence splitter.
        sentence_per_line: the text has one sentence per line already (and `.txt` files a blank line between
            documents).
        section_sentences: cut longer documents into sections of about this many sentences (0: never).
        holdout_every: every such source document (a book, say) goes to `validation/`; which ones depends on
            `seed`.
        workers: processes; by default one for each CPU this process may use.
        unit_characters: text per shard; also bounds the memory, at about 40 bytes a character and worker.
        progress: called after every unit.

    Raises:
        ConfigError: a setting out of range.
        DataError: no text, a file that cannot be read (named with its line), or finished shards in `output`.
    """
    start = time.monotonic()
    output = Path(output)
    if holdout_every is not None and holdout_every < 2:
        raise ConfigError(
            f"holdout_every must be 2 or more, or None to hold nothing out, not {holdout_every}"
        )
    for split in SPLITS:
        if (output / split / MANIFEST).exists():
            raise DataError(f"{output / split}: holds finished shards; delete them or choose another folder")
    corpus = Corpus.find(inputs, text_column=text_column, sentence_per_line=sentence_per_line)
    settings = SentenceSettings(
        language=language, sentence_per_line=sentence_per_line, section_sentences=section_sentences
    )
    job = _Job.start(tokenizer, output, settings)
    identity = {
        "tokenizer": job.tokenizer_sha256,
        "normalization": asdict(job.normalization),
        "sentences": asdict(settings),
        "holdout_every": holdout_every,
        "unit_characters": unit_characters,
        "text_column": text_column,
    }
    units = _units(corpus, identity, unit_characters, holdout_every, seed)

    records: dict[str, list[ShardRecord]] = {split: [] for split in SPLITS}
    characters, kept, source_documents = 0, 0, 0
    for unit, made, was_kept in _work(units, job, workers or _usable_cpus()):
        for split, record in made.items():
            records[split].append(record)
        characters += unit.characters
        kept += was_kept
        source_documents += sum(not document.continues for document in unit.documents)
        if progress:
            progress(
                PrepareProgress(
                    characters=characters,
                    fraction=unit.documents[-1].consumed,
                    units=unit.number + 1,
                    kept=kept,
                    seconds=time.monotonic() - start,
                )
            )
    _check_content(records, corpus, source_documents, holdout_every)
    manifests = {split: _manifest(job, records[split], identity, seed) for split in SPLITS if records[split]}
    for split in SPLITS:
        listed = {record.file for record in records[split]}
        for file in (output / split).glob("*.arrow"):
            if file.name not in listed:  # left by an interrupted run over other text
                file.unlink()
        if not listed:
            shutil.rmtree(output / split, ignore_errors=True)
    for split, manifest in manifests.items():
        manifest.write(output / split)
    shutil.rmtree(job.progress_folder)
    return PrepareReport(
        output=output,
        train=manifests["train"],
        validation=manifests.get("validation"),
        source_documents=source_documents,
        characters=characters,
        kept_units=kept,
        seconds=time.monotonic() - start,
    )


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What every worker needs to know."""

    vocabulary_file: Path
    tokenizer_sha256: str
    vocabulary_size: int
    normalization: Normalization
    settings: SentenceSettings
    output: Path

    @classmethod
    def start(cls, tokenizer: str | Path, output: Path, settings: SentenceSettings) -> "_Job":
        file, normalization = _find_tokenizer(Path(tokenizer))
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
        return self.output / ".progress"

    def finished(self, unit: _Unit) -> dict[str, ShardRecord] | None:
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

    def remember(self, unit: _Unit, records: dict[str, ShardRecord]) -> None:
        """Note that a unit is finished."""
        values = {
            "fingerprint": unit.fingerprint,
            "records": {split: asdict(record) for split, record in records.items()},
        }
        with atomic_path(self._note(unit)) as path:
            path.write_text(json.dumps(values), encoding="utf-8")

    def _note(self, unit: _Unit) -> Path:
        return self.progress_folder / f"{unit.number:05d}.json"


def _find_tokenizer(path: Path) -> tuple[Path, Normalization]:
    file = path / "spiece.model" if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{file}: no such vocabulary; expected a tokenizer's folder or its spiece.model")
    try:
        config = json.loads((file.parent / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return file, Normalization()
    known = Normalization.__dataclass_fields__
    return file, Normalization(**{name: config[name] for name in known if name in config})


def _usable_cpus() -> int:
    # A container or `taskset` may leave this process fewer than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _units(
    corpus: Corpus, identity: dict, unit_characters: int, holdout_every: int | None, seed: int
) -> Iterator[_Unit]:
    """Deal the corpus out in units of at least `unit_characters` characters (the last one may be smaller)."""
    number, source, characters = 0, -1, 0
    documents: list[SourceDocument] = []
    held_out: list[bool] = []

    def unit() -> _Unit:
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
        for document, out in zip(documents, held_out, strict=True):
            digest.update(f"\0{out}\0{document.continues}\0".encode())
            digest.update(document.text.encode("utf-8", "surrogatepass"))
        return _Unit(
            number=number,
            documents=tuple(documents),
            held_out=tuple(held_out),
            fingerprint=digest.hexdigest(),
        )

    for document in corpus:
        source += not document.continues
        documents.append(document)
        held_out.append(holdout_every is not None and source % holdout_every == seed % holdout_every)
        characters += len(document.text)
        if characters >= unit_characters:
            yield unit()
            number, characters, documents, held_out = number + 1, 0, [], []
    if documents:
        yield unit()


def _work(
    units: Iterator[_Unit], job: _Job, workers: int
) -> Iterator[tuple[_Unit, dict[str, ShardRecord], bool]]:
    """Yield (unit, its records, whether it was kept from an earlier run), in the order of the units."""
    if workers == 1:
        encoder = PieceEncoder(job.vocabulary_file, job.normalization)
        for unit in units:
            records = job.finished(unit)
            kept = records is not None
            if records is None:
                records = _build(unit, job, encoder)
                job.remember(unit, records)
            yield unit, records, kept
        return

    # A fresh interpreter for each worker: forking a process that has threads (Arrow's, torch's) can hang.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(job,)
    )
    waiting: deque[tuple[_Unit, Future | dict[str, ShardRecord]]] = deque()
    try:
        for unit in units:
            waiting.append((unit, job.finished(unit) or pool.submit(_build_in_worker, unit)))
            if len(waiting) > workers + 1:  # a unit ready for the next free worker, and no more in memory
                yield _result(job, *waiting.popleft())
        while waiting:
            yield _result(job, *waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _result(
    job: _Job, unit: _Unit, made: Future | dict[str, ShardRecord]
) -> tuple[_Unit, dict[str, ShardRecord], bool]:
    if isinstance(made, dict):
        return unit, made, True
    try:
        records = made.result()
    except BrokenProcessPool as error:
        raise DataError(
            f"{unit.origin}: a worker process was killed here or soon after, perhaps for lack of memory; "
            "try fewer workers or a smaller unit_characters (finished shards are kept)"
        ) from error
    job.remember(unit, records)
    return unit, records, False


_worker: tuple[_Job, PieceEncoder] | None = None  # one per worker process, set when it starts


def _start_worker(job: _Job) -> None:
    global _worker
    _worker = job, PieceEncoder(job.vocabulary_file, job.normalization)


def _build_in_worker(unit: _Unit) -> dict[str, ShardRecord]:
    assert _worker is not None
    job, encoder = _worker
    return _build(unit, job, encoder)


def _build(unit: _Unit, job: _Job, encoder: PieceEncoder) -> dict[str, ShardRecord]:
    """Make the shards of one unit."""
    builders = {split: ShardBuilder(job.vocabulary_size) for split in SPLITS}
    for document, held_out in zip(unit.documents, unit.held_out, strict=True):
        builder = builders["validation" if held_out else "train"]
        try:
            for section in sections(document.text, job.settings):
                sentences = [ids for ids in encoder.ids_batch(section, num_threads=1) if ids]
                if sentences:
                    builder.add(sentences)
        except Exception as error:
            raise DataError(f"{document.origin}: {error}") from error
    records: dict[str, ShardRecord] = {}
    for split, builder in builders.items():
        if len(builder):
            (job.output / split).mkdir(exist_ok=True)
            records[split] = builder.write(job.output / split / unit.file)
    return records


def _check_content(
    records: dict[str, list[ShardRecord]], corpus: Corpus, source_documents: int, holdout_every: int | None
) -> None:
    names = ", ".join(str(path) for path in corpus.files[:3]) + (" ..." if len(corpus.files) > 3 else "")
    if not records["train"]:
        raise DataError(f"{names}: no text to train on ({source_documents} source documents read)")
    documents = sum(record.documents for record in records["train"])
    if sum(record.sentences for record in records["train"]) == documents:
        raise DataError(
            f"{names}: none of the {documents} documents has two sentences, so there is no sentence order to "
            "learn; expected running text, or one sentence per line with blank lines between documents"
        )
    if holdout_every and not records["validation"]:
        raise DataError(
            f"{names}: holding out every {holdout_every}th of {source_documents} source documents leaves "
            "nothing to validate on; choose a smaller holdout_every"
        )


def _manifest(job: _Job, records: list[ShardRecord], identity: dict, seed: int) -> Manifest:
    return Manifest(
        tokenizer_sha256=job.tokenizer_sha256,
        vocabulary_size=job.vocabulary_size,
        documents=sum(record.documents for record in records),
        sentences=sum(record.sentences for record in records),
        tokens=sum(record.tokens for record in records),
        seed=seed,
        settings={name: value for name, value in identity.items() if name != "tokenizer"},
        shards=tuple(records),
    )
