"""Convert raw text to token shards: in parallel, in bounded memory, with reproducible bytes.

The corpus is read in order and split into units of about `unit_characters` characters (units.py). A unit
becomes one shard of each split, whichever worker processes it (`albertkit.parallel`), so neither the number
of workers nor the runner changes the result. Units that an earlier, interrupted run finished with the same
text and settings are kept (prepared_folder.py).
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import DataError, warn_caller
from albertkit.files import file_sha256
from albertkit.logs import ProgressBar, lines_shown
from albertkit.parallel import check_runner, ordered_map
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.prepared_folder import PreparedFolder
from albertkit.pretraining.settings import PreparationSettings
from albertkit.pretraining.shards import Manifest, ShardRecord
from albertkit.pretraining.units import SPLITS, Work, units
from albertkit.recipe import settings_from, takes_settings
from albertkit.results import Result
from albertkit.tokenization import folder
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel
from albertkit.tokenization.vocabulary import unreachable_warning

logger = logging.getLogger(__name__)

_LARGE_HOLDOUT = 0.2  # share of the tokens; above it, a warning if the share is far larger than expected


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
            finished shards or cannot be written.
        DiskFullError: the disk has no space left.
        MissingExtraError: the runner is Ray, which is not installed.

    Warns:
        UserWarning: the vocabulary has pieces that normalized text can never contain.
    """
    chosen = settings_from(PreparationSettings, None, settings)
    check_runner(chosen.runner, chosen.workers)
    with lines_shown(), ProgressBar() as bar:

        def show(done: PrepareProgress) -> None:
            speed = done.text_bytes / 1e6 / max(done.seconds, 1e-9)
            bar.update(f"{done.fraction:.0%} of the text, {speed:.1f} MB/s", done.fraction)

        try:
            return _prepare(inputs, tokenizer, Path(output), chosen, progress or show)
        except KeyboardInterrupt:
            logger.info("stopped: finished shards are kept in %s, and the same call resumes the work", output)
            raise


def _prepare(
    inputs: Any,
    tokenizer: str | Path,
    output: Path,
    chosen: PreparationSettings,
    progress: Callable[[PrepareProgress], None],
) -> PrepareReport:
    start = time.monotonic()
    corpus = Corpus.find(inputs, text_column=chosen.text_column, sentence_per_line=chosen.sentence_per_line)
    vocabulary = folder.locate_model_file(tokenizer)
    encoder = UnigramModel(vocabulary, Normalization.of(folder.read_settings(vocabulary)))
    if message := unreachable_warning(encoder):
        warn_caller(f"{tokenizer}: {message}")
    identity = {
        "tokenizer": file_sha256(vocabulary),
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
    prepared = PreparedFolder(output)
    with prepared.open():
        finished = prepared.finished()
        fingerprints = {number: fingerprint for number, (fingerprint, _) in finished.items()}
        done = ordered_map(
            Work(encoder=encoder, settings=chosen, finished=fingerprints),
            units(corpus, chosen, identity),
            runner=chosen.runner,
            workers=chosen.workers,
            name=lambda unit: unit.documents[0].origin,
            hint="finished shards are kept; a smaller unit_characters needs less memory",
        )
        records: dict[str, list[ShardRecord]] = {split: [] for split in SPLITS}
        text_bytes, reused, source_documents = 0, 0, 0
        for unit in done:
            is_finished = unit.shards is None
            made = finished[unit.number][1] if is_finished else prepared.keep(unit)
            for split, record in made.items():
                records[split].append(record)
            text_bytes += unit.text_bytes
            reused += len(made) if is_finished else 0
            source_documents += unit.source_documents
            progress(
                PrepareProgress(
                    text_bytes=text_bytes,
                    fraction=unit.consumed,
                    units=unit.number + 1,
                    reused=reused,
                    seconds=time.monotonic() - start,
                )
            )
        manifests = {
            split: _manifest(identity, encoder.size, listed, chosen.seed)
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
        output=output,
        train=manifests["train"],
        validation=manifests.get("validation"),
        source_documents=source_documents,
        text_bytes=text_bytes,
        reused_shards=reused,
        seconds=time.monotonic() - start,
    )


_DOCUMENT_HINT = (
    " A .txt file is one source document. Split it into several files, or write a .jsonl file with one text "
    "per line."
)


def _check_content(
    manifests: dict[str, Manifest], corpus: Corpus, source_documents: int, holdout_every: int | None
) -> None:
    train, held_out = manifests.get("train"), manifests.get("validation")
    names = corpus.name
    read = f"(source documents read: {source_documents})"
    hint = _DOCUMENT_HINT if corpus.has_whole_files else ""
    if train is None and held_out is not None:
        raise DataError(
            f"{names}: with holdout_every={holdout_every}, no text is left to train on {read}. Add "
            f"documents, or omit holdout_every.{hint}"
        )
    if train is None:
        raise DataError(f"{names}: no text to train on {read}")
    if train.sentences == train.documents:
        raise DataError(
            f"{names}: none of the {train.documents} documents has two sentences, so there is no sentence "
            "order to learn. Expected running text, or one sentence per line with blank lines between "
            "documents."
        )
    if holdout_every is None:
        return
    if held_out is None:
        raise DataError(
            f"{names}: with holdout_every={holdout_every}, no text is held out for validation {read}. Add "
            f"documents, or choose a smaller holdout_every.{hint}"
        )
    share = held_out.tokens / (held_out.tokens + train.tokens)
    if share > max(2 / holdout_every, _LARGE_HOLDOUT):
        logger.warning(
            f"{share:.0%} of the tokens are held out for validation, instead of about "
            f"{100 / holdout_every:.2g}%, because a source document is held out entirely {read}. To hold out "
            f"less, split the text into more documents.{hint}"
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
