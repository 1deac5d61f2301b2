"""Raw text -> token shards, in parallel, in bounded memory, the same bytes every time.

The corpus is read in order and dealt out in units of about `unit_characters` characters (units.py). A unit
becomes one shard of each split, whoever works on it (`albertkit.parallel`), so neither the number of workers
nor the runner changes anything in the result. A unit that an earlier, interrupted run has finished with the
same text and settings is kept (prepared_folder.py).
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError, DataError
from albertkit.parallel import check_runner, ordered_map
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.prepared_folder import PreparedFolder
from albertkit.pretraining.shards import Manifest, ShardRecord, file_sha256
from albertkit.pretraining.units import SPLITS, SentenceSettings, Units, Work
from albertkit.tokenization import folder
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel
from albertkit.tokenization.vocabulary import unreachable_warning


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """How far the work is, told after every unit."""

    text_bytes: int  # of text in UTF-8, compression and markup of the files left out
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
    text_bytes: int
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
    runner: str = "local",
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
        workers: processes; by default one for each CPU this process may use, or all that a Ray cluster has.
        runner: "local" (processes of this machine) or "ray"; the shards are the same.
        unit_characters: text per shard, which also bounds the memory: about 0.4 GB here and 0.2 GB a worker.
            Texts of over 8 million characters are read in parts for the same reason.
        progress: called after every unit.

    Raises:
        ConfigError: a setting out of range, or an unknown runner.
        ModelNotFoundError, TokenizerError: no tokenizer, or a damaged one.
        DataError: no text, a file that cannot be read (named with its line), finished shards in `output`, or
            no room for them.
        MissingExtraError: the runner is Ray and it is not installed.

    Warns:
        UserWarning: the vocabulary has pieces that its normalisation can never reach.
    """
    start = time.monotonic()
    output = Path(output)
    if holdout_every is not None and holdout_every < 2:
        raise ConfigError(
            f"holdout_every must be 2 or more, or None to hold nothing out, not {holdout_every}"
        )
    check_runner(runner)
    corpus = Corpus.find(inputs, text_column=text_column, sentence_per_line=sentence_per_line)
    settings = SentenceSettings(
        language=language, sentence_per_line=sentence_per_line, section_sentences=section_sentences
    )
    encoder, tokenizer_sha256 = _open_tokenizer(tokenizer)
    if message := unreachable_warning(encoder):
        warnings.warn(f"{tokenizer}: {message}", UserWarning, stacklevel=2)
    identity = {
        "tokenizer": tokenizer_sha256,
        "normalization": asdict(encoder.normalization),
        "sentences": asdict(settings),
        "holdout_every": holdout_every,
        "unit_characters": unit_characters,
        "text_column": text_column,
    }
    units = Units(
        corpus=corpus,
        identity=identity,
        unit_characters=unit_characters,
        holdout_every=holdout_every,
        seed=seed,
    )
    prepared = PreparedFolder(output)
    with prepared.open():
        finished = prepared.finished()
        fingerprints = {number: fingerprint for number, (fingerprint, _) in finished.items()}
        work = Work(encoder=encoder, settings=settings, finished=fingerprints)

        records: dict[str, list[ShardRecord]] = {split: [] for split in SPLITS}
        text_bytes, kept, source_documents = 0, 0, 0
        done_units = ordered_map(
            work,
            units,
            runner=runner,
            workers=workers,
            name=lambda unit: unit.documents[0].origin,
            hint="finished shards are kept; a smaller unit_characters needs less memory",
        )
        for done in done_units:
            was_kept = done.shards is None
            made = finished[done.number][1] if was_kept else prepared.keep(done)
            for split, record in made.items():
                records[split].append(record)
            text_bytes += done.text_bytes
            kept += was_kept
            source_documents += done.source_documents
            if progress:
                progress(
                    PrepareProgress(
                        text_bytes=text_bytes,
                        fraction=done.consumed,
                        units=done.number + 1,
                        kept=kept,
                        seconds=time.monotonic() - start,
                    )
                )
        _check_content(records, corpus, source_documents, holdout_every)
        manifests = {
            split: _manifest(identity, encoder.size, records[split], seed)
            for split in SPLITS
            if records[split]
        }
        prepared.close(manifests)
    return PrepareReport(
        output=output,
        train=manifests["train"],
        validation=manifests.get("validation"),
        source_documents=source_documents,
        text_bytes=text_bytes,
        kept_units=kept,
        seconds=time.monotonic() - start,
    )


def _open_tokenizer(name_or_path: str | Path) -> tuple[UnigramModel, str]:
    """Return the tokenizer's encoder, and the hash of its vocabulary."""
    path = folder.locate(name_or_path)
    file = folder.find_model_file(path)
    if file is None:
        raise folder.missing(path, folder.MODEL_FILE)
    return UnigramModel(file, Normalization.of(folder.read_settings(path))), file_sha256(file)


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


def _manifest(
    identity: dict[str, Any], vocabulary_size: int, records: list[ShardRecord], seed: int
) -> Manifest:
    return Manifest(
        tokenizer_sha256=identity["tokenizer"],
        vocabulary_size=vocabulary_size,
        documents=sum(record.documents for record in records),
        sentences=sum(record.sentences for record in records),
        tokens=sum(record.tokens for record in records),
        seed=seed,
        settings={name: value for name, value in identity.items() if name != "tokenizer"},
        shards=tuple(records),
    )
