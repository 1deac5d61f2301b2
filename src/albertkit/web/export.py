"""Export a checkpoint of any format to a folder that transformers.js opens, in browsers and in Node.js.

    report = export_web("albert-base-v2", "albert-base-v2-web")
    print(report)

The folder has these files:

    config.json, tokenizer.json, tokenizer_config.json, special_tokens_map.json
    onnx/model.onnx              equal to the reference
    onnx/model_quantized.onnx    in int8, if its accuracy drop is small enough
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from albertkit.checkpoints import formats
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.sentence_modules import SentenceModules, sentence_modules
from albertkit.errors import AlbertKitError, ConfigError, ModelNotFoundError, short
from albertkit.export.check import ANY_DROP, TEXTS, AccuracyDrop
from albertkit.export.onnx import (
    MAX_DROP,
    check_int8_options,
    choose_architecture,
    export_onnx,
    exported_config,
    vectors_note,
    vocabulary_file,
)
from albertkit.files import check_new_folder, complete_files, file_sha256, read_json, write_json
from albertkit.heads import head_of
from albertkit.tokenization.folder import PATTERNS, SPECIAL_TOKENS_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from albertkit.vocabularies import add_model_file, open_tokenizer
from albertkit.web.libraries import check_npm, fetch_libraries
from albertkit.web.page import (
    FOLDER,
    INDEX,
    SERVICE_WORKER,
    TASKS,
    TITLE,
    is_of_page,
    read_samples,
    write_page,
)

EXACT_FILE = "onnx/model.onnx"
INT8_FILE = "onnx/model_quantized.onnx"
"""The file that transformers.js opens in a browser by default (its dtype `q8`)."""
_JS_CONFIG = "transformers.js_config"
"""The key of config.json that transformers.js reads."""
_TOKENIZER_FILES = (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE)
_JS_CLASSES = {
    "AlbertModel",
    "AlbertForMaskedLM",
    "AlbertForSequenceClassification",
    "AlbertForQuestionAnswering",
}
"""The classes that transformers.js has."""


@dataclass(slots=True, repr=False)
class WebReport:
    """The report of an export: the files, and the differences of the models from the reference."""

    source: str
    target: str
    architecture: str
    task: str
    """The task of the head, by its name in transformers.js."""
    files: dict[str, int]
    """Path in the folder -> bytes."""
    largest_difference: float
    """Largest difference of the outputs of `onnx/model.onnx` from the NumPy reference."""
    tolerance: float
    accuracy_drop: AccuracyDrop | None
    """Accuracy drop of `onnx/model_quantized.onnx`; None without int8."""
    checksums: dict[str, str]
    """SHA-256 of every file written."""
    notes: list[str] = field(default_factory=list)

    @property
    def page_bytes(self) -> int:
        """Size of all files of the page, its model included; 0 without a page."""
        return sum(size for name, size in self.files.items() if is_of_page(name))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dumps`."""
        return asdict(self) | {"page_bytes": self.page_bytes}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        shown = {name: size for name, size in self.files.items() if not is_of_page(name)}
        width = max(map(len, shown))
        lines = [
            f"{self.source} -> {self.target}",
            f"{self.architecture}, for {self.task}",
            *(f"  {name:<{width}}  {size:>12,} bytes" for name, size in shown.items()),
            f"{EXACT_FILE} differs from the reference by at most {self.largest_difference:.1e} "
            f"(bound {self.tolerance:.0e})",
        ]
        if self.accuracy_drop is not None and INT8_FILE in self.files:
            lines.append(f"{INT8_FILE} {self.accuracy_drop}")
        if INDEX in self.files:
            lines.append(f"the page takes {self.page_bytes:,} bytes: {INDEX}, {SERVICE_WORKER} and {FOLDER}/")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def export_web(
    source: str | Path,
    target: str | Path,
    *,
    architecture: str | None = None,
    dtype: str | None = None,
    int8: bool = True,
    calibrate: str | Path | None = None,
    max_drop: float | None = None,
    page: bool = False,
    name: str | None = None,
    title: str | None = None,
    samples: str | Path | Sequence[Any] = (),
    texts: str | Path | Sequence[str] = TEXTS,
    **columns: Any,
) -> WebReport:
    """Export a model as a folder for transformers.js.

    The function first checks both models as `export_onnx` does. Then it creates all files at once.

    Args:
        source: model folder, TensorFlow checkpoint (folder, prefix or .tar.gz), Julia .tfbson file, or
            Hugging Face Hub name. It must have a vocabulary.
        target: a new or empty folder.
        architecture: the model class; None for the class of the source. For a pretraining model, None stands
            for AlbertForMaskedLM, because transformers.js has no class with both heads.
        dtype: data type of the stored weights, one of `DTYPES`; None for the data type in the source.
        int8: whether to also write `onnx/model_quantized.onnx`. If the accuracy drop exceeds `max_drop`, the
            function does not write this file, adds a note to the report, and sets config.json so that
            transformers.js loads the other file.
        calibrate: file to measure the accuracy drop on: labeled examples, or a `.txt` file with one text per
            line; see `export_onnx`.
        max_drop: maximum accuracy drop of int8, in percentage points; None for 0.5.
        page: whether to also write a static page that runs the model in the visitor's browser. The page uses
            the int8 model if it was written. This option needs npm, and network access if npm has not cached
            the libraries of the page.
        name: name of the model on the page; None for the last part of `source`.
        title: title of the page; None for "ALBERT in your browser".
        samples: texts that the page offers to visitors, the first one in its input field; without, the page
            offers texts that fit the task and the labels. A file as for the pipelines (one text per line,
            .tsv, .jsonl, .csv), or a list of texts or of dicts with the fields of the task: `text`,
            `text_pair`, `question`, `context`.
        texts: texts for the comparison, or a file with one text per line.
        **columns: fields of `DataOptions` that describe the columns of the labeled examples; by default those
            of the fine-tuning.

    Returns:
        The report of the export: the files with sizes and checksums, the largest difference, and the accuracy
        drop.

    Raises:
        ModelNotFoundError: the source does not exist, or has no vocabulary.
        CheckpointError: the source is damaged or lacks tensors of the architecture; the target cannot be
            written; the model is too large for one file; or the outputs differ.
        ConfigError: the architecture or data type is unknown; arguments cannot be combined; npm is missing;
            or the page does not support the task.
        DataError: there are no texts, the target exists, or npm cannot download a library.
    """
    target = Path(target).expanduser()
    check_new_folder(target)
    if page:
        check_npm()
    for option, value in {"name": name, "title": title, "samples": samples or None}.items():
        if value is not None and not page:
            raise ConfigError(f"{option} is {short(value)}, which only the page shows. Set page too.")
    check_int8_options(int8, calibrate, max_drop, columns)
    checkpoint = formats.read(formats.locate(source, also=PATTERNS))
    add_model_file(checkpoint)
    if vocabulary_file(checkpoint) is None:
        todo = "Put the tokenizer's files into the folder of the weights."
        raise ModelNotFoundError(f"{source} has no vocabulary, but transformers.js needs one. {todo}")
    config = checkpoint.to_config()
    chosen, _, _ = choose_architecture(config, checkpoint.tensors, architecture)
    if architecture is None:
        chosen = "AlbertForMaskedLM" if chosen == "AlbertForPreTraining" else chosen
    task = head_of(chosen).task
    if page and task not in TASKS:
        raise ConfigError(f"the page has no panel for {task}. Expected a model for {', '.join(TASKS)}.")
    offered = read_samples(Path(samples) if isinstance(samples, str) else samples, task) if samples else []
    modules = sentence_modules(config)
    vectors = modules if task == "feature-extraction" else None
    if page and vectors is not None and (parts := _not_in_browsers(vectors, on_page=True)):
        raise ConfigError(f"the page does not compute vectors with {', '.join(parts)}. Omit page.")
    libraries = fetch_libraries() if page else {}
    shared = {"architecture": chosen, "dtype": dtype, "all_inputs": True, "texts": texts}
    with complete_files(target) as files:
        exact = export_onnx(source, files / EXACT_FILE, **shared)
        notes, drop = list(exact.notes), None
        if int8:
            measured = shared | columns
            if calibrate is not None:
                measured |= {"calibrate": calibrate, "texts": TEXTS}
            rounded = export_onnx(source, files / INT8_FILE, int8=True, max_drop=ANY_DROP, **measured)
            drop = rounded.accuracy_drop
            assert drop is not None
            if excess := drop.excess(MAX_DROP if max_drop is None else max_drop):
                (files / INT8_FILE).unlink()
                notes.append(f"{INT8_FILE} was not written. {excess}")
            else:
                notes += [f"{INT8_FILE}: {note}" for note in rounded.notes if note not in notes]
        # transformers.js needs other advice, which follows below.
        notes = [note for note in notes if note not in vectors_note(chosen, config)]
        has_int8 = (files / INT8_FILE).is_file()
        written_config = exported_config(config, exact.architecture, exact.dtype)
        written_config.extra.pop(_JS_CONFIG, None)  # it describes other files
        if not has_int8:
            written_config.extra[_JS_CONFIG] = {
                "dtype": "fp32"
            }  # by default, browsers look for the int8 file
        written_config.save_pretrained(files)
        longest = config.max_position_embeddings
        if modules is not None:
            longest = min(longest, modules.max_length or longest)
        _write_tokenizer(files, checkpoint, longest=longest)
        if chosen not in _JS_CLASSES:
            notes.append(
                f"transformers.js has no {chosen}. Open the folder with its AutoModel. The names of its "
                f"outputs: {', '.join(exact.outputs)}."
            )
        if vectors is not None:
            notes.append(_note_of_vectors(vectors))
        if page:
            write_page(
                files,
                name=name or Path(source).absolute().name,
                title=title or TITLE,
                samples=offered,
                task=task,
                model=INT8_FILE if has_int8 else EXACT_FILE,
                libraries=libraries,
            )
        paths = [path for path in sorted(files.rglob("*")) if path.is_file()]
        sizes = {path.relative_to(files).as_posix(): path.stat().st_size for path in paths}
        checksums = {file: file_sha256(files / file) for file in sizes}
    assert exact.largest_difference is not None
    return WebReport(
        source=str(source),
        target=str(target),
        architecture=chosen,
        task=task,
        files=sizes,
        largest_difference=exact.largest_difference,
        tolerance=exact.tolerance,
        accuracy_drop=drop,
        checksums=checksums,
        notes=notes,
    )


def _note_of_vectors(modules: SentenceModules) -> str:
    """Return how to get the vectors of Python from transformers.js, which does not read the modules."""
    if parts := _not_in_browsers(modules):
        return (
            f"the model's vectors need {', '.join(parts)}, which transformers.js does not compute: its "
            "vectors differ from those that albertkit computes"
        )
    options = f'{{ pooling: "{modules.pooling}", normalize: {str(modules.normalize).lower()} }}'
    note = (
        "transformers.js does not read the model's pooling. For the vectors that albertkit computes, pass "
        f"{options} to its feature-extraction pipeline"
    )
    if modules.default_prompt_name is None:
        return note
    return f"{note}, and prepend {modules.prompts[modules.default_prompt_name]!r} to each text"


def _not_in_browsers(modules: SentenceModules, *, on_page: bool = False) -> list[str]:
    """Return the steps to a text's vector that transformers.js, or the page, does not compute."""
    after = " and ".join(type(step).__name__ for step in modules.steps)
    has_default = modules.default_prompt_name is not None
    steps = {
        f"pooling by {modules.pooling}": modules.pooling not in ("mean", "cls"),
        f"{after} after the pooling": bool(after),
        "texts in lower case": modules.lower_case,
        f"the first {modules.dimensions} dimensions": modules.dimensions is not None,
        f"the default prompt {modules.default_prompt_name!r}": on_page and has_default,
    }
    return [name for name, is_needed in steps.items() if is_needed]


def _write_tokenizer(folder: Path, checkpoint: Checkpoint, *, longest: int) -> None:
    """Write the tokenizer's files, without those that only Python reads."""
    tokenizer = open_tokenizer(checkpoint)
    for name in tokenizer.save_pretrained(folder):
        if Path(name).name not in _TOKENIZER_FILES:
            Path(name).unlink()
    # transformers.js truncates texts to this length. Python also reads the length in the config.
    file = folder / TOKENIZER_CONFIG_FILE
    settings = read_json(file, AlbertKitError)
    settings["model_max_length"] = min(settings.get("model_max_length") or longest, longest)
    write_json(file, settings, ensure_ascii=False)
