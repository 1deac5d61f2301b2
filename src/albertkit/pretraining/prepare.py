"""Raw text -> token shards, in parallel, in bounded memory, the same bytes every time.

    OUTPUT/train/       a shard folder (see shards.py)
    OUTPUT/validation/  another, with the source documents held out
    OUTPUT/.progress/   which shards are done, while the work is unfinished

The corpus is read in order and dealt out in units of about `unit_characters` characters. A unit becomes one
shard of each split, whoever works on it, so the number of workers changes nothing in the result. A unit that
an earlier, interrupted run has finished with the same text and settings is kept.
"""

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
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.sentences import SentenceSettings
from albertkit.pretraining.shards import MANIFEST, Manifest, ShardRecord
from albertkit.pretraining.units import SPLITS, Job, Unit, build, deal_units
from albertkit.tokenization.pieces import PieceEncoder


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
        unit_characters: text per shard, which also bounds the memory: about 0.4 GB here and 0.2 GB a worker.
        progress: called after every unit.

    Raises:
        ConfigError: a setting out of range.
        ModelNotFoundError, TokenizerError: no tokenizer, or a damaged one.
        DataError: no text, a file that cannot be read (named with its line), or finished shards in `output`.
    """
    start = time.monotonic()
    output = Path(output)
    if holdout_every is not None and holdout_every < 2:
        raise ConfigError(
            f"holdout_every must be 2 or more, or None to hold nothing out, not {holdout_every}"
        )
    if (output / "train" / MANIFEST).exists():
        raise DataError(f"{output}: holds finished shards; delete them or choose another folder")
    corpus = Corpus.find(inputs, text_column=text_column, sentence_per_line=sentence_per_line)
    settings = SentenceSettings(
        language=language, sentence_per_line=sentence_per_line, section_sentences=section_sentences
    )
    job = Job.start(tokenizer, output, settings)
    identity = {
        "tokenizer": job.tokenizer_sha256,
        "normalization": asdict(job.normalization),
        "sentences": asdict(settings),
        "holdout_every": holdout_every,
        "unit_characters": unit_characters,
        "text_column": text_column,
    }
    units = deal_units(corpus, identity, unit_characters, holdout_every, seed)

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
    for split in reversed(manifests):  # train/ last: where it is finished, all is
        manifests[split].write(output / split)
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


def _usable_cpus() -> int:
    # A container or `taskset` may leave this process fewer than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(
    units: Iterator[Unit], job: Job, workers: int
) -> Iterator[tuple[Unit, dict[str, ShardRecord], bool]]:
    """Yield (unit, its records, whether it was kept from an earlier run), in the order of the units."""
    if workers == 1:
        encoder = PieceEncoder(job.vocabulary_file, job.normalization)
        for unit in units:
            records = job.finished(unit)
            kept = records is not None
            if records is None:
                records = build(unit, job, encoder)
                job.remember(unit, records)
            yield unit, records, kept
        return

    # A fresh interpreter for each worker: forking a process that has threads (Arrow's, torch's) can hang.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(job,)
    )
    waiting: deque[tuple[Unit, Future | dict[str, ShardRecord]]] = deque()
    try:
        for unit in units:
            waiting.append((unit, job.finished(unit) or pool.submit(_build_in_worker, unit)))
            if len(waiting) > workers + 1:  # a unit ready for the next free worker, and no more in memory
                yield _result(job, *waiting[0])
                waiting.popleft()
        while waiting:
            yield _result(job, *waiting[0])
            waiting.popleft()
    except BrokenProcessPool as error:
        where = f"after {waiting[0][0].documents[0].origin}" if waiting else "at its start"
        raise DataError(
            f"a worker process was killed {where}, perhaps for lack of memory; try fewer workers or a "
            "smaller unit_characters (finished shards are kept)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _result(
    job: Job, unit: Unit, made: Future | dict[str, ShardRecord]
) -> tuple[Unit, dict[str, ShardRecord], bool]:
    if isinstance(made, dict):
        return unit, made, True
    records = made.result()
    job.remember(unit, records)
    return unit, records, False


_worker: tuple[Job, PieceEncoder] | None = None  # one per worker process, set when it starts


def _start_worker(job: Job) -> None:
    global _worker
    _worker = job, PieceEncoder(job.vocabulary_file, job.normalization)


def _build_in_worker(unit: Unit) -> dict[str, ShardRecord]:
    assert _worker is not None
    job, encoder = _worker
    return build(unit, job, encoder)


def _check_content(
    records: dict[str, list[ShardRecord]], corpus: Corpus, source_documents: int, holdout_every: int | None
) -> None:
    names = ", ".join(str(path) for path in corpus.files[:3]) + (" ..." if len(corpus.files) > 3 else "")
    if not records["train"] and records["validation"]:
        raise DataError(
            f"{names}: holding out every {holdout_every}th of {source_documents} source documents, from the "
            "first on, leaves nothing to train on; give more documents or no holdout_every"
        )
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


def _manifest(job: Job, records: list[ShardRecord], identity: dict, seed: int) -> Manifest:
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
