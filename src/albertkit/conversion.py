"""Convert a checkpoint to another format, with a report of every tensor.

    report = convert("albert_base/model.ckpt-best", "albert-base", to="hf", verify=True)
    print(report)

`convert` reads the source, matches its tensors with the model class of its heads, and writes them with the
names of the target format.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from albertkit import reference
from albertkit.checkpoints import formats, julia, tensorflow
from albertkit.checkpoints.arrays import DTYPES, check_finite
from albertkit.checkpoints.checkpoint import Checkpoint, Format
from albertkit.checkpoints.folder import weight_files, write_folder
from albertkit.checkpoints.match import architecture_of, expected_shapes, fit, left_out
from albertkit.checkpoints.names import TIED, to_google
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.config import CONFIG_FILE, AlbertConfig
from albertkit.errors import AlbertKitError, CheckpointError, ConfigError, DataError, TokenizerError
from albertkit.files import check_new_folder, complete_files, file_sha256
from albertkit.heads import head_of
from albertkit.published import contradictions
from albertkit.tokenization.folder import MODEL_FILE, PATTERNS, TOKENIZER_FILE, WORD_LIST_FILE
from albertkit.tokenization.model_file import vocab_lines
from albertkit.tokenization.wordpiece import parse_word_list
from albertkit.vocabularies import add_model_file, write_vocabulary

TOLERANCE = 1e-5
"""Largest difference of outputs that `verify` accepts."""

_VERIFIED_BATCH = (2, 24)


@dataclass(frozen=True, slots=True)
class Move:
    """The names of a tensor in the source and in the target, with its shape and data type."""

    source: str
    target: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True)
class ConversionReport:
    """What a conversion did with every tensor and file."""

    source: str
    """Name or path of the source."""
    source_format: Format
    target: str
    """Path of the written checkpoint."""
    target_format: Format
    architecture: str
    """The model class of the tensors."""
    tensors: list[Move] = field(default_factory=list)
    """The converted tensors."""
    missing: list[str] = field(default_factory=list)
    """Tensors of the model that the source, and therefore the target, does not contain."""
    unexpected: list[str] = field(default_factory=list)
    """Unknown tensors of the source; the target does not contain them."""
    unused: dict[str, str] = field(default_factory=dict)
    """Tensors of the source that were omitted on purpose, each with the reason."""
    notes: list[str] = field(default_factory=list)
    """Other decisions, one sentence each."""
    checksums: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file from which weights were read, and of each written file."""
    largest_difference: float | None = None
    """Largest difference between the outputs of the written checkpoint and of the converted weights on random
    text; None without `verify`."""
    cast_difference: float | None = None
    """Largest change of these outputs by the cast to another data type; None without `verify` or a cast."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dumps`."""
        return asdict(self)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, verbose: bool = False) -> str:
        """Return the report for people.

        Args:
            verbose: whether to list every tensor and the checksum of every file.
        """
        counts = Counter[str]()
        for move in self.tensors:
            counts[move.dtype] += math.prod(move.shape)
        values = ", ".join(f"{count:,} values of {dtype}" for dtype, count in counts.most_common())
        lines = [
            f"{self.source} ({self.source_format}) -> {self.target} ({self.target_format})",
            f"{self.architecture}, {len(self.tensors)} tensors, {values}",
        ]
        width = max((len(move.source) for move in self.tensors), default=0)
        lines += [
            f"  {move.source:<{width}}  ->  {move.target}  {'x'.join(map(str, move.shape))} {move.dtype}"
            for move in self.tensors
            if verbose
        ]
        lines += [f"missing: {name}" for name in self.missing]
        lines += [f"unexpected, left out: {name}" for name in self.unexpected]
        lines += left_out(self.unused)
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"sha256 {checksum}  {path}" for path, checksum in self.checksums.items() if verbose]
        if self.largest_difference is not None:
            lines.append(f"verified: outputs differ by at most {self.largest_difference:.1e}")
        if self.cast_difference is not None:
            dtype = self.tensors[0].dtype
            lines.append(f"the cast to {dtype} changes outputs by at most {self.cast_difference:.1e}")
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
    """Read a checkpoint in any format and write it in another format.

    Args:
        source: Model folder, TensorFlow checkpoint (folder, prefix or .tar.gz), Julia .tfbson file, or
            Hugging Face Hub name.
        target: Folder to write, or for Julia a `.tfbson` or `.bson` file.
        to: Format to write: hf (Hugging Face folder), tf1 (Google's TensorFlow 1) or julia (BSON). Default:
            julia for a `.tfbson` or `.bson` file, else hf.
        dtype: The data type to which floating-point tensors are converted, one of `DTYPES`. None means
            "float32" for "tf1", because the original code reads no other type; otherwise it keeps their data
            types.
        max_shard_size: For "hf" only: maximum size of a file. Larger weights are split; see `write_folder`.
        verify: Whether to load the written checkpoint and compare its outputs for random text with those of
            the source, after the cast to its data type.

    Returns:
        The report of the conversion.

    Raises:
        ModelNotFoundError: The source does not exist.
        CheckpointError: The source is damaged or lacks encoder tensors, the target cannot be written or
            cannot contain a tensor, or its outputs differ.
        ConfigError: The format or data type is unknown, or the target format cannot express the config.
        DataError: The target exists and is not an empty folder.
    """
    target = Path(target).expanduser()
    is_julia = target.name.endswith(julia.ENDINGS)
    to = to or ("julia" if is_julia else "hf")
    if to not in get_args(Format):
        raise ConfigError(f"the format {to!r} is unknown. Expected one of {', '.join(get_args(Format))}.")
    if (to == "julia") != is_julia:
        endings = f"only Julia files end in {' or '.join(julia.ENDINGS)}"
        raise ConfigError(f"the target {str(target)!r} does not match the format {to!r}: {endings}")
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}. Expected one of {', '.join(DTYPES)}.")
    if max_shard_size is not None and to != "hf":
        raise ConfigError(f"max_shard_size is for the format 'hf' only, not for {to!r}.")
    # Never replace a checkpoint, because it may contain tensors that a conversion omits.
    if to != "julia":
        check_new_folder(target)
    elif target.exists():
        raise DataError(f"{target} exists. Choose another name, or delete it first.")
    checkpoint = formats.read(formats.locate(source, also=PATTERNS))
    config = checkpoint.to_config()
    architecture = architecture_of(config, checkpoint.tensors)
    fitted, loaded = fit(architecture, config, checkpoint.tensors)
    types = list(dict.fromkeys(tensor.dtype.name for tensor in fitted.values()))
    notes = list(checkpoint.notes)
    if dtype is None and to == "tf1" and types != ["float32"]:
        dtype = "float32"
        notes.append(
            f"the weights were cast from {', '.join(types)} to float32, the only type that the original code "
            "reads. To write another type, set dtype"
        )
    matched = fitted if dtype is None else cast(fitted, DTYPES[dtype])
    tied = TIED if config.tie_word_embeddings else {}
    names = {name: name if to == "hf" else to_google(name) for name in matched if name not in tied}
    stored = next(iter(matched.values())).dtype.name
    written = replace(
        checkpoint,
        format=to,
        config=config.replace(architectures=[architecture], dtype=stored).to_dict(),
        tensors={name: matched[name] for name in names},
        files=[],
        notes=notes,
    )
    if contradiction := contradictions(source, vars(config)):
        notes.append(contradiction)
    _convert_vocabulary(written, config.vocab_size)
    if to != "hf" and checkpoint.modules is not None:
        notes.append("the modules of sentence-transformers were left out: only the format 'hf' has them")
    files = _write(target, written, max_shard_size)
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
            name: f"differs from {first}, but the model has a single tensor for both"
            for name, first in loaded.conflicting.items()
        },
        notes=notes,
        checksums={str(path): file_sha256(path) for path in (*checkpoint.files, *files)},
    )
    if verify:
        expected = _outputs(architecture, config, matched)
        again = formats.read(formats.locate(target))
        again_config = AlbertConfig.from_dict(again.config)
        tensors, _ = fit(architecture, again_config, again.tensors)
        largest = _largest_difference(_outputs(architecture, again_config, tensors), expected)
        if not largest <= TOLERANCE:  # unlike `largest > TOLERANCE`, also true for NaN
            check_finite(source, matched)
            difference = f"its outputs differ from those of {source} by up to {largest:.1e}"
            raise CheckpointError(f"{target} was written, but {difference}. Do not use it.")
        report.largest_difference = largest
        if dtype is not None and types != [dtype]:
            report.cast_difference = _largest_difference(_outputs(architecture, config, fitted), expected)
    return report


# --- writing ------------------------------------------------------------------------------------


def _write(target: Path, checkpoint: Checkpoint, max_shard_size: int | str | None) -> list[Path]:
    try:
        if checkpoint.format == "julia":
            return julia.write(target, checkpoint)
        with complete_files(target) as folder:
            if checkpoint.format == "tf1":
                written = tensorflow.write(folder, checkpoint)
            else:
                beside = files_of(checkpoint.to_config())
                config, tensors = checkpoint.config, checkpoint.tensors
                write_folder(folder, config, tensors, beside=beside, max_shard_size=max_shard_size)
                others = [folder / name for name in (*write_vocabulary(folder, checkpoint), *beside)]
                written = [folder / CONFIG_FILE, *weight_files(folder), *others]
        return [target / file.relative_to(folder) for file in written]
    except AlbertKitError:
        raise
    except OSError as error:
        raise CheckpointError(f"Could not write {target}: {error}.") from error


def _convert_vocabulary(checkpoint: Checkpoint, vocab_size: int) -> None:
    """Convert a checkpoint's vocabulary to the files of its new format, and note what the format lacks."""
    files, to, note = checkpoint.vocabulary, checkpoint.format, checkpoint.notes.append
    words: tuple[str, ...] = ()
    if MODEL_FILE in files:
        checkpoint.pieces = vocab_lines(files[MODEL_FILE])
    elif WORD_LIST_FILE in files:
        words = parse_word_list(files[WORD_LIST_FILE], source=WORD_LIST_FILE)
    count = len(checkpoint.pieces or words)
    if count > vocab_size:
        sizes = f"{count:,} pieces, but the model has {vocab_size:,} embeddings"
        raise CheckpointError(f"The vocabulary has {sizes}: they do not belong together.")
    if not count and TOKENIZER_FILE not in files:
        note("the source has no vocabulary")
    elif not count and to != "hf":
        subject = "the vocabulary was left out: it" if to == "julia" else "the vocabulary"
        note(f"{subject} is in {TOKENIZER_FILE} only, which the original code does not read")
    elif to == "julia" and words:
        note(f"{WORD_LIST_FILE} was left out: Julia's files list SentencePiece's pieces only")
    elif to == "julia" and files.keys() > {MODEL_FILE}:
        note("the settings of the tokenizer were left out: Julia's files have none")
    elif to != "julia" and not files:
        try:
            add_model_file(checkpoint)
        except TokenizerError as error:
            note(f"the vocabulary was left out: {str(error).rstrip('.')}")
    if 0 < count < vocab_size and (checkpoint.pieces if to == "julia" else files):
        note(
            f"the vocabulary has {count:,} pieces, but the model has {vocab_size:,} embeddings: "
            f"{vocab_size - count:,} embeddings have no piece"
        )


# --- types, checksums, comparison ---------------------------------------------------------------


def cast(tensors: Mapping[str, np.ndarray], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Convert the tensors to another data type. Names that share a tensor still share it."""
    converted: dict[int, np.ndarray] = {}
    for name, tensor in tensors.items():
        if id(tensor) not in converted:
            with np.errstate(over="ignore"):
                converted[id(tensor)] = tensor.astype(dtype, copy=False)
            # Not NumPy's own check: conversions from and to bfloat16 do not set the flag that it reads.
            if np.isinf(converted[id(tensor)]).sum() > np.isinf(tensor).sum():
                largest = float(np.abs(tensor[np.isfinite(tensor)].astype(np.float64)).max())
                raise CheckpointError(f"{name} contains {largest:.4g}, too large for {dtype.name}.")
    return {name: converted[id(tensor)] for name, tensor in tensors.items()}


def _outputs(architecture: str, config: AlbertConfig, tensors: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    generator = np.random.RandomState(0)  # returns the same numbers in every version of NumPy
    batch, length = _VERIFIED_BATCH[0], min(_VERIFIED_BATCH[1], config.max_position_embeddings)
    shape = (batch, 2, length) if head_of(architecture).has_choices else (batch, length)
    ids, segments = (
        generator.randint(2**32, size=shape, dtype=np.uint32) % size
        for size in (config.vocab_size, config.type_vocab_size)
    )
    mask = np.ones(shape, np.int64)
    mask[-1, ..., length // 2 :] = 0
    # A tensor that is missing gets the same random values in every checkpoint.
    absent = {
        name: generator.normal(scale=config.initializer_range, size=sizes)
        for name, sizes in expected_shapes(architecture, config).items()
        if name not in tensors
    }
    weights = {**tensors, **absent}
    return [*reference.forward(architecture, config, weights, ids, mask, segments, all_layers=False).values()]


def _largest_difference(outputs: list[np.ndarray], expected: list[np.ndarray]) -> float:
    differences = [np.abs(actual - other).max() for actual, other in zip(outputs, expected, strict=True)]
    return float(np.max(differences))  # NaN if any is NaN, unlike Python's `max`
