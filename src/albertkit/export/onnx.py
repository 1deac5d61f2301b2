"""Export a checkpoint of any format to a file for ONNX runtimes, and check it before it gets its name.

    report = export_onnx("albert-base-v2", "albert-base-v2.onnx")
    print(report)

The graph is written from the config and the tensors, not traced. So shared weights stay shared, and any batch
and length works.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from albertkit import __version__
from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import DTYPES, Arrays, check_finite
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.folder import ONNX_FILE
from albertkit.checkpoints.match import LoadReport, architecture_of, fit
from albertkit.checkpoints.sentence_modules import files_of, sentence_modules
from albertkit.config import CONFIG_FILE, AlbertConfig
from albertkit.conversion import cast
from albertkit.datasets.inputs import read_texts
from albertkit.datasets.options import DataOptions
from albertkit.engines.light_model import LightModel
from albertkit.errors import AlbertKitError, CheckpointError, ConfigError, DataError, suggestion
from albertkit.export.check import (
    ANY_DROP,
    TEXTS,
    TOLERANCES,
    AccuracyDrop,
    compare,
    labeled_task,
    measure_agreement,
    measure_on_labels,
)
from albertkit.files import (
    atomic_path,
    check_new_folder,
    complete_files,
    file_sha256,
    json_text,
    made_folder,
)
from albertkit.heads import HEADS, head_of
from albertkit.onnx.graph import INT8, OLDEST_INT8_OPSET, OLDEST_OPSET, OPSET, QUANTIZATION, onnx
from albertkit.onnx.network import build_padded
from albertkit.published import contradictions
from albertkit.recipe import build
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.folder import MODEL_FILE, PATTERNS, TOKENIZER_FILE, WORD_LIST_FILE
from albertkit.vocabularies import add_model_file, open_tokenizer, write_vocabulary

_MOST_BYTES = 2_000_000_000  # of one protobuf message, which must also contain the graph
MAX_DROP = 0.5
"""Default maximum accuracy drop of int8, in percentage points."""


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
        int8: whether to quantize the layers' matrices to int8, for CPUs. The function then
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
        raise ConfigError("texts and calibrate are both set. The accuracy drop is measured on one of them.")
    if isinstance(texts, str | Path):
        texts = read_texts(Path(texts))
    if architecture is not None:
        head_of(architecture)  # raises before a download
    for option, value, known in (("dtype", dtype, [*DTYPES]), ("compute", compute, ["float32", "float16"])):
        if value is not None and value not in known:
            raise ConfigError(f"{option} is {value!r}. {suggestion(value, known)}")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ConfigError(
            f"opset is {opset}. Expected {OLDEST_OPSET} to {newest}, the newest of onnx {onnx.__version__}."
        )
    if not texts:
        raise DataError("there are no texts to compare on. Pass some, or omit texts for the included ones.")
    if int8 and (compute != "float32" or opset < OLDEST_INT8_OPSET):
        raise ConfigError(
            f"int8 with compute {compute!r} and opset {opset}. Expected compute 'float32', because int8 is "
            f"for CPUs, and opset at least {OLDEST_INT8_OPSET}."
        )
    path = formats.locate(source, also=PATTERNS)
    file, beside = _target_file(target, path)
    checkpoint = formats.read(path)
    add_model_file(checkpoint)
    config = checkpoint.to_config()
    architecture, weights, loaded = choose_architecture(config, checkpoint.tensors, architecture)
    check_finite(source, weights)
    task = None if calibrate is None else labeled_task(calibrate, architecture, config)
    if columns and task is None:
        raise ConfigError(f"{calibrate} is read as texts, without the columns {', '.join(columns)}.")
    notes = [*checkpoint.notes, *(f"unexpected, left out: {name}" for name in loaded.unexpected)]
    notes += [f"left out: {name} differs from {first}" for name, first in loaded.conflicting.items()]
    if contradiction := contradictions(source, vars(config)):
        notes.append(contradiction)
    if dtype is not None:
        exact, weights = weights, cast(weights, DTYPES[dtype])
        change = max(
            float(np.abs(exact[name].astype(np.float32) - new.astype(np.float32)).max())
            for name, new in weights.items()
        )
        if change:
            notes.append(
                f"the weights were rounded to {dtype}, by at most {change:.1e}. The reference used the "
                "rounded weights"
            )
    stored = next(iter(weights.values())).dtype.name
    config = exported_config(config, architecture, stored, int8=int8)
    tokenizer = None
    if vocabulary_file(checkpoint) is None:
        notes.append("the source has no vocabulary: the outputs were compared on random ids instead of texts")
    else:
        tokenizer = open_tokenizer(checkpoint)
    metadata = _metadata_of(config, checkpoint, tokenizer, compute=compute)
    model = LightModel(architecture, config, weights)
    with _new_file(file) as new:
        options: Any = {"opset": opset, "int8": int8, "optional_inputs": not all_inputs}
        written = write_file(new, model, metadata, compute=np.dtype(compute), **options)
        drop, largest, batches = None, None, []
        if int8:
            if calibrate is not None and task is not None:
                drop = measure_on_labels(source, task, architecture, new, calibrate, columns)
            else:
                texts = texts if calibrate is None else read_texts(calibrate)
                drop = measure_agreement(new, model, tokenizer, texts, optional_inputs=not all_inputs)
            if excess := drop.excess(MAX_DROP if max_drop is None else max_drop):
                raise CheckpointError(f"{excess} Nothing was written.")
            notes += [drop.note] if drop.note else []
        else:
            largest, batches = compare(
                new, model, tokenizer, texts, optional_inputs=not all_inputs, compute=compute
            )
        notes += vectors_note(architecture, config)
        others = _write_beside(file.parent, config, checkpoint) if beside else []
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


def check_int8_options(
    int8: bool, calibrate: str | Path | None, max_drop: float | None, columns: dict[str, Any]
) -> None:
    """Raise ConfigError for options that would have no effect."""
    build(DataOptions, columns, where="columns")
    given = {"calibrate": calibrate, "max_drop": max_drop, **columns}
    if not int8 and (unused := [name for name, value in given.items() if value is not None]):
        raise ConfigError(f"{', '.join(unused)} without effect, because int8 is off.")
    if columns and calibrate is None:
        raise ConfigError(
            f"{', '.join(columns)} without effect, because there is no file of labeled examples."
        )
    if calibrate is not None and not Path(calibrate).is_file():
        raise DataError(f"{calibrate}: no such file.")
    if max_drop not in (None, ANY_DROP) and not 0 <= max_drop <= 100:  # this form also fails for NaN
        raise ConfigError(f"max_drop is {max_drop}. Expected 0 to 100 percentage points.")


def _target_file(target: Path, source: Path) -> tuple[Path, bool]:
    """Return the file to write, and whether to write the other files of a model folder; never overwrite."""
    if re.fullmatch(r"\.[A-Za-z]\w*", target.suffix) and target.suffix != ".onnx" and not target.is_dir():
        raise DataError(f"{target} ends in {target.suffix}. Expected a file named .onnx, or a folder.")
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


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """Write a file as `atomic_path` does, and create its folder, which is removed if nothing is written."""
    try:
        with made_folder(file.parent), atomic_path(file) as new:
            yield new
    except OSError as error:
        if isinstance(error, AlbertKitError):
            raise
        raise CheckpointError(f"Could not write {file}: {error}.") from error


def write_file(file: Path, model: LightModel, metadata: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """Write the file with `options` of `build_padded`; return the parts of the report about its content."""
    graph, weight_bytes = build_padded(model.architecture, model.config, model.weights, **options)
    stored_bytes = sum(len(one.raw_data) for one in graph.graph.initializer)
    if stored_bytes > _MOST_BYTES:
        raise CheckpointError(
            f"The weights take {stored_bytes:,} bytes, but an ONNX file has room for {_MOST_BYTES:,}. "
            "Choose the dtype 'float16'."
        )
    onnx.helper.set_model_props(graph, dict(metadata))
    file.write_bytes(graph.SerializeToString())
    onnx.checker.check_model(str(file), full_check=True)
    return {
        "ir_version": graph.ir_version,
        "weight_bytes": weight_bytes,
        "inputs": {value.name: _describe(value) for value in graph.graph.input},
        "outputs": {value.name: _describe(value) for value in graph.graph.output},
    }


def _describe(value: Any) -> str:
    kind = value.type
    is_optional = kind.HasField("optional_type")
    tensor = (kind.optional_type.elem_type if is_optional else kind).tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    sizes = ", ".join(size.dim_param or str(size.dim_value) for size in tensor.shape.dim)
    return f"{name} ({sizes}){', may be left out' if is_optional else ''}"


def exported_config(
    config: AlbertConfig, architecture: str, dtype: str, *, int8: bool = False
) -> AlbertConfig:
    config = config.replace(architectures=[architecture], dtype=dtype)
    if int8:
        config.extra[QUANTIZATION] = INT8
    return config


def _metadata_of(
    config: AlbertConfig, checkpoint: Checkpoint, tokenizer: TokenizerBase | None, *, compute: str
) -> dict[str, str]:
    """Return the metadata that a program needs if it has only the file."""
    shape = json_text(config.to_dict(), sort_keys=True)
    metadata = {
        "albertkit_version": __version__,
        "architecture": str((config.architectures or [""])[0]),
        "config": shape,
        "config_sha256": hashlib.sha256(shape.encode()).hexdigest(),
        "id2label": json_text(config.id2label, ensure_ascii=False),
        "max_length": str(config.max_position_embeddings),
        "dtype": str(config.dtype),
        "compute": compute,
    }
    name = vocabulary_file(checkpoint)
    if name is not None and tokenizer is not None:
        metadata |= {
            "tokenizer_file": name,
            "tokenizer_sha256": hashlib.sha256(checkpoint.vocabulary[name]).hexdigest(),
            "do_lower_case": json_text(bool(tokenizer.normalization["do_lower_case"])),
        }
    return metadata


def vocabulary_file(checkpoint: Checkpoint) -> str | None:
    return next(
        (name for name in (MODEL_FILE, WORD_LIST_FILE, TOKENIZER_FILE) if name in checkpoint.vocabulary), None
    )


def _write_beside(folder: Path, config: AlbertConfig, checkpoint: Checkpoint) -> list[Path]:
    """Write config.json and the tokenizer's files; return their paths."""
    with complete_files(folder) as files:
        config.save_pretrained(files)
        modules = files_of(config)
        for name, content in modules.items():
            (files / name).parent.mkdir(exist_ok=True)
            (files / name).write_bytes(content)
        names = (CONFIG_FILE, *write_vocabulary(files, checkpoint), *modules)
    return [folder / name for name in names]


def vectors_note(architecture: str, config: AlbertConfig) -> list[str]:
    """Return a note on the steps to the vector of a text that the file lacks; no note if there are none."""
    modules = sentence_modules(config) if head_of(architecture).task == "feature-extraction" else None
    if modules is None:
        return []
    steps = [f"the pooling {modules.pooling}", *(type(one).__name__ for one in modules.steps)]
    if modules.normalize:
        steps.append("Normalize")
    if modules.default_prompt_name is not None:
        steps.append(f"the default prompt {modules.default_prompt_name!r}")
    return [
        "the file computes the vectors of the tokens (last_hidden_state). It lacks the other steps to the "
        f"vector of a text: {', '.join(steps)}. The pipelines of albertkit compute all steps"
    ]
