"""From one checkpoint format to another, with an account of every tensor.

    report = convert("albert_base/model.ckpt-best", "albert-base", to="hf", verify=True)
    print(report)

The source is read, fitted to the model that its heads belong to, and written under the target's names. What
the model does not have is left out and reported; a tensor of the encoder that is missing is an error.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from albertkit import reference
from albertkit.checkpoints import formats, google, julia
from albertkit.checkpoints.arrays import DTYPES
from albertkit.checkpoints.checkpoint import VOCABULARY_FILES, Checkpoint, Format
from albertkit.checkpoints.folder import weight_files, write_folder
from albertkit.checkpoints.names import TIED
from albertkit.checkpoints.report import left_out
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.checkpoints.shapes import architecture_of, expected_shapes, fit
from albertkit.config import AlbertConfig
from albertkit.config_base import CONFIG_FILE
from albertkit.errors import AlbertKitError, CheckpointError, ConfigError, DataError, TokenizerError
from albertkit.files import check_new_folder, complete_files
from albertkit.heads import head_of
from albertkit.published import contradictions
from albertkit.tokenization.folder import MODEL_FILE, TOKENIZER_FILE, WORD_LIST_FILE
from albertkit.tokenization.model_file import vocab_lines
from albertkit.tokenization.wordpiece import parse_word_list
from albertkit.vocabularies import add_model_file, write_vocabulary

TOLERANCES = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference of outputs that `verify` accepts, by the less precise of the two types."""

_VERIFIED_BATCH = (2, 24)


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor on its way."""

    source: str
    target: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True)
class ConversionReport:
    """What became of every tensor, and what the files are."""

    source: str
    source_format: Format
    target: str
    target_format: Format
    architecture: str
    """The class of the model that the tensors make."""
    tensors: list[Move] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Tensors of the model that the source lacks; the target lacks them too."""
    unexpected: list[str] = field(default_factory=list)
    """Tensors of the source that ALBERT has no known use for; not in the target."""
    unused: dict[str, str] = field(default_factory=dict)
    """Tensors of the source that are rightly left out, each with the reason."""
    notes: list[str] = field(default_factory=list)
    """What else was decided on the way."""
    checksums: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files the weights were read from, and of every file written."""
    largest_difference: float | None = None
    """Between the outputs of source and target on random text, where that was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dumps`."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.source} ({self.source_format}) -> {self.target} ({self.target_format})",
            f"{self.architecture}, {len(self.tensors)} tensors",
        ]
        width = max((len(move.source) for move in self.tensors), default=0)
        lines += [
            f"  {move.source:<{width}}  ->  {move.target}  {'x'.join(map(str, move.shape))} {move.dtype}"
            for move in self.tensors
        ]
        lines += [f"missing: {name}" for name in self.missing]
        lines += [f"unexpected, left out: {name}" for name in self.unexpected]
        lines += left_out(self.unused)
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"sha256 {checksum}  {path}" for path, checksum in self.checksums.items()]
        if self.largest_difference is not None:
            lines.append(f"verified: outputs differ by at most {self.largest_difference:.1e}")
        return "\n".join(lines)


def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: Format | None = None,
    dtype: str | None = None,
    max_shard_size: int | str | None = None,
    verify: bool = False,
) -> ConversionReport:
    """Read a checkpoint of any format and write it in another.

    Args:
        source: what `from_pretrained` takes: a folder, a TensorFlow checkpoint, a Julia file, a name.
        target: a folder for "hf" and "tf1", a file named `.tfbson` or `.bson` for "julia".
        to: the format to write; None for "julia" where the target is named so, else "hf".
        dtype: one of `DTYPES`, to which floating tensors are cast; None to leave them as they are.
        max_shard_size: for "hf" alone, as `write_folder` says: larger weights are split into several files.
        verify: load both and compare what they compute on random text.

    Raises:
        ModelNotFoundError: there is no such source.
        CheckpointError: the source is damaged or lacks tensors of the encoder; the target cannot be
            written or has no place for a tensor; or the outputs of the two differ.
        ConfigError: an unknown format or type, or a config that the target format cannot express.
        DataError: the target exists; a folder may be empty.
    """
    target = Path(target).expanduser()
    to = _target_format(target, to)
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; expected one of {', '.join(DTYPES)}")
    if max_shard_size is not None and to != "hf":
        raise ConfigError(f"max_shard_size is for the format 'hf'; a checkpoint of {to!r} is one file")
    # Never replace a checkpoint: it may hold what a conversion leaves out.
    if to != "julia":
        check_new_folder(target)
    elif target.exists():
        raise DataError(f"{target} exists: choose another name, or delete it first")
    checkpoint = formats.read(formats.locate(source, also=VOCABULARY_FILES))
    config = checkpoint.to_config()
    architecture = architecture_of(config, checkpoint.tensors)
    fitted, loaded = fit(architecture, config, checkpoint.tensors)
    matched = fitted if dtype is None else cast(fitted, DTYPES[dtype])
    tied = TIED if config.tie_word_embeddings else {}
    names = {name: name if to == "hf" else google.google_name(name) for name in matched if name not in tied}
    written = Checkpoint(
        to,
        config.replace(architectures=[architecture], dtype=_dtype(matched)).to_dict(),
        matched if to == "hf" else {name: matched[name] for name in names},
        [],
        checkpoint.vocabulary,
        checkpoint.pieces,
        modules=checkpoint.modules,
    )
    notes = [*checkpoint.notes, *filter(None, [contradictions(source, vars(config))])]
    _take_vocabulary(written, to, config.vocab_size, notes)
    if to != "hf" and checkpoint.modules is not None:
        notes.append("the modules of sentence-transformers were left out: only the format 'hf' has them")
    try:
        files = _write(target, written, max_shard_size)
    except OSError as error:
        if isinstance(error, AlbertKitError):
            raise
        raise CheckpointError(f"Could not write {target}: {error}.") from error
    report = ConversionReport(
        source=str(source),
        source_format=checkpoint.format,
        target=str(target),
        target_format=to,
        architecture=architecture,
        tensors=[
            Move(loaded.loaded[name], names[name], tuple(matched[name].shape), matched[name].dtype.name)
            for name in names
        ],
        missing=loaded.missing,
        unexpected=loaded.unexpected,
        unused=loaded.ignored
        | {
            name: f"differs from {first}, which the model shares it with"
            for name, first in loaded.conflicting.items()
        },
        notes=notes,
        checksums={str(path): file_sha256(path) for path in (*checkpoint.files, *files)},
    )
    if verify:
        report.largest_difference = _compare(source, target, architecture, config, fitted)
    return report


def _target_format(target: Path, to: Format | None) -> Format:
    is_julia = target.name.endswith(julia.ENDINGS)
    if to is None:
        return "julia" if is_julia else "hf"
    if to not in get_args(Format):
        raise ConfigError(f"the format {to!r} is unknown; expected one of {', '.join(get_args(Format))}")
    if (to == "julia") != is_julia:
        raise ConfigError(
            f"the target {str(target)!r} does not go with the format {to!r}: a Julia file is named "
            f"{' or '.join(julia.ENDINGS)}, the others are folders"
        )
    return to


# --- writing ------------------------------------------------------------------------------------


def _write(target: Path, checkpoint: Checkpoint, max_shard_size: int | str | None) -> list[Path]:
    """Write a checkpoint in its format, all files or none; return their paths."""
    if checkpoint.format == "julia":
        return julia.write(target, checkpoint)
    with complete_files(target) as folder:
        if checkpoint.format == "tf1":
            written = google.write(folder, checkpoint)
        else:
            beside = files_of(checkpoint.to_config())
            write_folder(
                folder,
                checkpoint.config,
                checkpoint.tensors,
                beside=beside,
                max_shard_size=max_shard_size,
            )
            written = [folder / CONFIG_FILE, *weight_files(folder)]
            written += [folder / name for name in (*write_vocabulary(folder, checkpoint), *beside)]
        written = [file.relative_to(folder) for file in written]
    return [target / file for file in written]


def _take_vocabulary(checkpoint: Checkpoint, to: Format, vocab_size: int, notes: list[str]) -> None:
    """Give a checkpoint the vocabulary in the form that its new format has.

    Raises:
        CheckpointError: it has more pieces than the model has embeddings, or is damaged.
        TokenizerError: a word list is damaged.
    """
    files = checkpoint.vocabulary
    words: tuple[str, ...] = ()
    if MODEL_FILE in files:
        checkpoint.pieces = vocab_lines(files[MODEL_FILE])
    elif WORD_LIST_FILE in files:
        words = parse_word_list(files[WORD_LIST_FILE], source=WORD_LIST_FILE)
    count = len(checkpoint.pieces or words)
    if count > vocab_size:
        raise CheckpointError(
            f"The vocabulary has {count:,} pieces and the model {vocab_size:,} embeddings: they do not "
            "belong together. Put the model's own vocabulary beside it."
        )
    if not count:
        if to != "hf" or TOKENIZER_FILE not in files:
            notes.append("the source has no vocabulary")
    elif to == "julia" and words:
        notes.append(f"{WORD_LIST_FILE} was left out: Julia's files list SentencePiece's pieces only")
    elif to != "julia" and not files:
        try:
            add_model_file(checkpoint)
            notes += checkpoint.notes
        except TokenizerError as error:
            notes.append(f"the vocabulary was left out: {str(error).rstrip('.')}")
    if 0 < count < vocab_size and (files if to != "julia" else checkpoint.pieces):
        notes.append(
            f"the vocabulary has {count:,} pieces, and {vocab_size - count:,} of the model's {vocab_size:,} "
            "embeddings have none"
        )


# --- types, checksums, comparison ---------------------------------------------------------------


def cast(tensors: Mapping[str, np.ndarray], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return the tensors in another type; two names of one tensor stay that.

    Raises:
        CheckpointError: a value is too large for the type.
    """
    cast: dict[int, np.ndarray] = {}
    for name, tensor in tensors.items():
        try:
            with np.errstate(over="raise"):
                cast.setdefault(id(tensor), tensor.astype(dtype, copy=False))
        except FloatingPointError as error:
            raise CheckpointError(
                f"{name} holds {float(np.abs(tensor).max()):.4g}, too large for {dtype.name}. "
                "Choose the dtype 'bfloat16' or 'float32'."
            ) from error
    return {name: cast[id(tensor)] for name, tensor in tensors.items()}


def _dtype(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the name of the type of the weights."""
    return next(iter(tensors.values())).dtype.name


def file_sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(
    source: str | Path,
    target: Path,
    architecture: str,
    config: AlbertConfig,
    tensors: Mapping[str, np.ndarray],
) -> float:
    """Return the largest difference of any output of source and target on random text.

    Args:
        source: the name or folder of the source, for the error message.
        target: the written checkpoint, which is read from its files.
        architecture: the name of the model class.
        config: the config of the source.
        tensors: the tensors of the source by their name in the model.

    Raises:
        CheckpointError: the difference is larger than rounding explains.
    """
    generator = np.random.RandomState(0)  # draws the same in every version of NumPy
    batch, length = _VERIFIED_BATCH[0], min(_VERIFIED_BATCH[1], config.max_position_embeddings)
    shape = (batch, 2, length) if head_of(architecture).has_choices else (batch, length)
    ids, segments = (
        generator.randint(2**32, size=shape, dtype=np.uint32) % size
        for size in (config.vocab_size, config.type_vocab_size)
    )
    mask = np.ones(shape, np.int64)
    mask[-1, ..., length // 2 :] = 0
    # A tensor that the source lacks, and so the target, is the same random one in both.
    absent = {
        name: generator.normal(scale=config.initializer_range, size=sizes)
        for name, sizes in expected_shapes(architecture, config).items()
        if name not in tensors
    }
    written = formats.read(formats.locate(target))
    written_config = AlbertConfig.from_dict(written.config)
    written_tensors, _ = fit(architecture, written_config, written.tensors)
    outputs = [
        reference.forward(architecture, one, weights | absent, ids, mask, segments, all_layers=False)
        for one, weights in ((config, dict(tensors)), (written_config, written_tensors))
    ]
    largest = max(
        float(np.abs(one - other).max()) for one, other in zip(*map(dict.values, outputs), strict=True)
    )
    types = {_dtype(tensors), _dtype(written_tensors)}
    tolerance = max(TOLERANCES.get(name, TOLERANCES["float32"]) for name in types)
    if not largest <= tolerance:  # written so that "not a number" fails
        raise CheckpointError(
            f"{target} was written, but computes other outputs than {source}: they differ by up to "
            f"{largest:.1e}, and at most {tolerance:.0e} was expected. Do not use it, and report this."
        )
    return largest
