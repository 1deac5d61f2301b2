"""Export a checkpoint of any format to a file for ONNX runtimes, and check it before it gets its name.

    report = export_onnx("albert-base-v2", "albert-base-v2.onnx")
    print(report)

The graph is written from the config and the tensors, not traced. So shared weights stay shared, and any batch
and length works.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import DTYPES, Arrays, check_finite
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.match import LoadReport, architecture_of, fit
from albertkit.checkpoints.onnx_file import ONNX_FILE
from albertkit.config import AlbertConfig
from albertkit.conversion import cast
from albertkit.datasets.options import DataOptions
from albertkit.datasets.rows import read_texts
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, ConfigError, DataError, suggestion
from albertkit.export.accuracy import (
    ANY_DROP,
    AccuracyDrop,
    labeled_task,
    measure_agreement,
    measure_on_labels,
)
from albertkit.export.check import TEXTS, TOLERANCES, compare
from albertkit.export.writing import (
    exported_config,
    metadata_of,
    new_file,
    vectors_note,
    vocabulary_file,
    write_beside,
    write_file,
)
from albertkit.files import check_new_folder, file_sha256
from albertkit.heads import HEADS, head_of
from albertkit.onnx.graph import OLDEST_OPSET, OPSET, onnx
from albertkit.onnx.int8 import OLDEST_OPSET as OLDEST_INT8_OPSET
from albertkit.published import contradictions
from albertkit.recipe import build
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.folder import PATTERNS
from albertkit.vocabularies import add_model_file, open_tokenizer

MAX_DROP = 0.5
"""Default maximum accuracy drop of int8, in percentage points."""
LARGEST_SHARE = 0.35
"""Size of an int8 model of a published shape, relative to float32."""


@dataclass(slots=True)
class OnnxReport:
    """The written file, and its difference from the reference."""

    source: str
    target: str
    architecture: str
    opset: int
    ir_version: int
    dtype: str
    """Data type of the stored weights; for int8 those of the matrices and of the rest."""
    compute: str
    """Data type of the computation; for int8 those of the matrices and of the rest."""
    inputs: dict[str, str]
    outputs: dict[str, str]
    file_bytes: int
    weight_bytes: int
    """Number of bytes of the same tensors in safetensors."""
    largest_difference: float | None
    """Largest difference from the NumPy reference on the texts, without padding; None for int8.

    In float16, the difference of an output is divided by its largest number if that is above 1.
    """
    tolerance: float
    batches: list[tuple[int, ...]]
    """Shapes of the input_ids that were compared."""
    metadata: dict[str, str]
    checksums: dict[str, str]
    """SHA-256 of every file written."""
    accuracy_drop: AccuracyDrop | None = None
    """Accuracy drop of int8; None without int8."""
    notes: list[str] = field(default_factory=list)

    @property
    def size_ratio(self) -> float:
        """Size of the file / size of its weights, each stored once."""
        return self.file_bytes / self.weight_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dumps`."""
        return {**asdict(self), "size_ratio": self.size_ratio}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        batches = ", ".join("x".join(map(str, shape)) for shape in self.batches)
        lines = [
            f"{self.source} -> {self.target}",
            f"{self.architecture}, opset {self.opset}, file version {self.ir_version}, weights {self.dtype}, "
            f"computed in {self.compute}",
            *(f"  in   {name}  {kind}" for name, kind in self.inputs.items()),
            *(f"  out  {name}  {kind}" for name, kind in self.outputs.items()),
            f"{self.file_bytes:,} bytes, {self.size_ratio:.3f} times the size of the weights",
            f"differs from the reference by at most {self.largest_difference:.1e} "
            f"(bound {self.tolerance:.0e}), on batches of {batches}"
            if self.accuracy_drop is None
            else f"int8 {self.accuracy_drop}",
        ]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"sha256 {checksum}  {path}" for path, checksum in self.checksums.items()]
        return "\n".join(lines)


def export_onnx(
    source: str | Path,
    target: str | Path,
    *,
    architecture: str | None = None,
    dtype: str | None = None,
    compute: str = "float32",
    opset: int = OPSET,
    int8: bool = False,
    calibrate: str | Path | None = None,
    max_drop: float | None = None,
    all_inputs: bool = False,
    texts: str | Path | Sequence[str] = TEXTS,
    **columns: Any,
) -> OnnxReport:
    """Export a model to an ONNX file with standard operators.

    The function compares the outputs of the file with those of the NumPy reference. If they differ, it raises
    an error and leaves no file.

    Args:
        source: model folder, TensorFlow checkpoint (folder, prefix or .tar.gz), Julia .tfbson file, or
            Hugging Face Hub name.
        target: a file named `.onnx`; or a folder for `model.onnx`, config.json and the tokenizer's files
            (only `model.onnx` if the folder is the source).
        architecture: the model class; None for the class in the config, or else for the first class whose
            weights the source has completely.
        dtype: data type of the stored weights, one of `DTYPES`; None for the data type in the source.
        compute: data type of the computation, "float32", or "float16" for GPUs. If the weights have another
            data type, the runtime casts them once when it loads the file.
        opset: version of the operators, at least 17.
        int8: whether to quantize the layers' matrices to int8, for CPUs (`onnx/int8.py`). The function then
            measures the accuracy drop instead of comparing the outputs.
        calibrate: file to measure the accuracy drop on: labeled examples of the model's task, for its metric;
            or a `.txt` file with one text per line, for the share of equal predictions. None uses `texts`.
        max_drop: maximum accuracy drop of int8, in percentage points; None for 0.5.
        all_inputs: whether `attention_mask` and `token_type_ids` are required inputs. Otherwise they have
            ONNX's optional type, which ONNX Runtime supports, but some other runtimes do not.
        texts: texts for the comparison, or a file with one text per line.
        **columns: fields of `DataOptions` that describe the columns of the labeled examples; by default those
            of the fine-tuning.

    Returns:
        The report of the export: the files, their checksums, the inputs and outputs, and the largest
        difference or the accuracy drop.

    Raises:
        ModelNotFoundError: the source does not exist.
        CheckpointError: the source is damaged, lacks tensors of the architecture, or has weights that are
            NaN or infinite; the target cannot be written; the model is too large for one file; the outputs
            differ; or the accuracy drop is too large.
        ConfigError: an architecture, data type or opset is unknown, or arguments cannot be combined.
        DataError: there are no texts, or the target exists.
    """
    target = Path(target).expanduser()
    calibrate = None if calibrate is None else Path(calibrate)
    check_int8_options(int8, calibrate, max_drop, columns)
    if calibrate is not None and texts is not TEXTS:
        raise ConfigError(
            "texts and calibrate (--texts, --calibrate) are both set, but the accuracy drop of int8 is "
            "measured on one of them. Omit texts, or pass them in a .txt file as calibrate."
        )
    optional_inputs = not all_inputs
    if isinstance(texts, str | Path):
        texts = read_texts(Path(texts))
    _check_arguments(architecture, dtype, compute, opset, texts)
    if int8 and (compute != "float32" or opset < OLDEST_INT8_OPSET):
        raise ConfigError(
            f"int8 with compute {compute!r} and opset {opset}. Expected compute 'float32', because int8 is "
            f"for CPUs, and opset at least {OLDEST_INT8_OPSET}."
        )
    path = formats.locate(source, also=PATTERNS)
    file, beside = _places(target, path)
    checkpoint = formats.read(path)
    add_model_file(checkpoint)
    config = checkpoint.to_config()
    architecture, weights, loaded = choose_architecture(config, checkpoint.tensors, architecture)
    check_finite(source, weights)
    task = None if calibrate is None else labeled_task(calibrate, architecture, config)
    if columns and task is None:
        raise ConfigError(
            f"{calibrate} is read as texts, and {', '.join(columns)} describe the columns of labeled "
            "examples. Omit them, or pass a file of labeled examples as calibrate."
        )
    notes = [*checkpoint.notes, *(f"unexpected, left out: {name}" for name in loaded.unexpected)]
    notes += [f"left out: {name} differs from {first}" for name, first in loaded.conflicting.items()]
    if contradiction := contradictions(source, vars(config)):
        notes.append(contradiction)
    if dtype is not None:
        weights = _round(weights, DTYPES[dtype], notes)
    stored = next(iter(weights.values())).dtype.name
    config = exported_config(config, architecture, stored, int8=int8)
    tokenizer = _open_tokenizer(checkpoint, notes)
    metadata = metadata_of(config, checkpoint, tokenizer, compute=compute)
    model = LightModel(architecture, config, weights)
    with new_file(file) as new:
        written = write_file(
            new, model, metadata, compute=compute, opset=opset, int8=int8, optional_inputs=optional_inputs
        )
        drop, largest, batches = None, None, []
        if int8:
            if calibrate is not None and task is not None:
                drop = measure_on_labels(source, task, architecture, new, calibrate, columns)
            else:
                texts = texts if calibrate is None else read_texts(calibrate)
                drop = measure_agreement(new, model, tokenizer, texts, optional_inputs=optional_inputs)
            drop.refuse_beyond(MAX_DROP if max_drop is None else max_drop)
            notes += [drop.note] if drop.note else []
        else:
            largest, batches = compare(
                new,
                model,
                tokenizer,
                texts,
                optional_inputs=optional_inputs,
                compute=compute,
            )
        notes += vectors_note(architecture, config)
        notes += _size_note(new, written["weight_bytes"], DTYPES[stored]) if int8 else []
        others = write_beside(file.parent, config, checkpoint) if beside else []
    return OnnxReport(
        source=str(source),
        target=str(target),
        architecture=architecture,
        opset=opset,
        dtype=f"int8 and {stored}" if int8 else stored,
        compute=f"int8 and {compute}" if int8 else compute,
        **written,
        file_bytes=file.stat().st_size,
        largest_difference=largest,
        tolerance=TOLERANCES[compute],
        accuracy_drop=drop,
        batches=batches,
        metadata=metadata,
        checksums={str(one): file_sha256(one) for one in (file, *others)},
        notes=notes,
    )


def _check_arguments(
    architecture: str | None, dtype: str | None, compute: str, opset: int, texts: Sequence[str]
) -> None:
    for name, value, known in (
        ("architecture", architecture, HEADS),
        ("dtype", dtype, tuple(DTYPES)),
        ("compute", compute, ("float32", "float16")),
    ):
        if value is not None and value not in known:
            raise ConfigError(f"{name} is {value!r}. {suggestion(value, known)}")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ConfigError(
            f"opset is {opset}. Expected {OLDEST_OPSET} to {newest}, the newest of onnx {onnx.__version__}."
        )
    if not texts:
        raise DataError("there are no texts to compare on. Pass some, or omit texts for the included ones.")


def check_int8_options(
    int8: bool, calibrate: str | Path | None, max_drop: float | None, columns: dict[str, Any]
) -> None:
    """Check that every option has an effect, and the columns of the labeled examples."""
    build(DataOptions, columns, where="columns")
    if not int8:
        given = {"calibrate": calibrate, "max_drop": max_drop, **columns}
        if unused := [name for name, value in given.items() if value is not None]:
            raise ConfigError(
                f"{', '.join(unused)} without effect, because int8 is off. Turn on int8 (--int8), or omit "
                "these options."
            )
    if columns and calibrate is None:
        raise ConfigError(
            f"{', '.join(columns)} without effect, because there is no file of labeled examples. Pass one as "
            "calibrate (--calibrate)."
        )
    if max_drop not in (None, ANY_DROP) and not 0 <= max_drop <= 100:  # this form also fails for NaN
        raise ConfigError(f"max_drop is {max_drop}. Expected 0 to 100 percentage points.")
    if calibrate is not None and not Path(calibrate).is_file():
        raise DataError(
            f"{calibrate}: no such file. Expected examples to measure the accuracy drop of int8 on."
        )


def _size_note(file: Path, weight_bytes: int, stored: np.dtype) -> list[str]:
    """Return a note if the file is larger than expected."""
    share = file.stat().st_size / (weight_bytes * 4 // stored.itemsize)
    if share <= LARGEST_SHARE:
        return []
    return [
        f"{share:.2f} of the size in float32, because most weights of such a small model are not matrices"
    ]


# Endings of files, not of folders such as albert-v2.1.
_OTHER_FILES = (
    "bin bson csv gz h5 json jsonl keras npy npz ort pb pkl pt pth safetensors tar tfbson tflite tsv txt zip"
)


def _places(target: Path, source: Path) -> tuple[Path, bool]:
    """Return the file to write, and whether to write the other files of a model folder; never overwrite."""
    ending = target.suffix.lower()
    is_misspelt = target.suffix != ".onnx" and get_close_matches(ending, [".onnx"], cutoff=0.7)
    if (is_misspelt or ending[1:] in _OTHER_FILES.split()) and not target.is_dir():
        raise DataError(
            f"{target} ends in {target.suffix}. Expected a file named .onnx, or a folder without such an "
            f"ending. Name the file {target.with_suffix('.onnx').name}."
        )
    if target.suffix == ".onnx":
        file, beside = target, False
    else:
        file, beside = target / ONNX_FILE, target.resolve() != source.resolve()
    if beside:
        check_new_folder(target)
    elif file.exists():
        raise DataError(f"{file} exists. Choose another name, or delete it first.")
    return file, beside


# --- what is written ----------------------------------------------------------------------------


def choose_architecture(
    config: AlbertConfig, tensors: Arrays, architecture: str | None
) -> tuple[str, dict[str, np.ndarray], LoadReport]:
    """Return the first model class that these tensors fill, its weights, and a report of the others.

    The encoder may lack its pooler.
    """
    if architecture is not None:
        head_of(architecture)  # raises if the name is unknown
        candidates = [architecture]
    else:
        made = architecture_of(config, tensors)
        candidates = [*(config.architectures or []), made, "AlbertForMaskedLM", "AlbertModel"]
    lacking: Iterable[str] = ()
    for name in candidates:
        if name in HEADS:
            weights, report = fit(name, config, tensors)
            needed = [one for one in report.missing if not one.startswith("pooler.")]
            if not needed:
                return name, weights, report
            lacking = lacking or needed
    raise CheckpointError(
        f"The source lacks {', '.join(lacking)}, which {candidates[0]} needs. Choose another architecture "
        f"({', '.join(HEADS)}), or fine-tune the model first."
    )


def _round(weights: Arrays, dtype: np.dtype, notes: list[str]) -> dict[str, np.ndarray]:
    """Return the weights in another data type, and add a note about the largest change."""
    rounded = cast(weights, dtype)
    change = max(
        float(np.abs(weights[name].astype(np.float32) - new.astype(np.float32)).max())
        for name, new in rounded.items()
    )
    if change:
        notes.append(
            f"the weights were rounded to {dtype.name}, by at most {change:.1e}. The reference used the "
            "rounded weights"
        )
    return rounded


def _open_tokenizer(checkpoint: Checkpoint, notes: list[str]) -> TokenizerBase | None:
    if vocabulary_file(checkpoint) is None:
        notes.append("the source has no vocabulary: the outputs were compared on random ids instead of texts")
        return None
    return open_tokenizer(checkpoint)
