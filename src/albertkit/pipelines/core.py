"""`pipeline` and `Pipeline`: read inputs of all kinds, compute them in batches, and answer in order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from itertools import islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import numpy as np

from albertkit.checkpoints.formats import load_config
from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.config import AlbertConfig, one_of
from albertkit.datasets.inputs import (
    QUESTION_FIELDS,
    NumberedInputs,
    inputs_error,
    is_table,
    read_inputs,
    without_others,
)
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device, load_complete_model, make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import LightModel, Model, class_name, class_names
from albertkit.errors import (
    AlbertKitError,
    ConfigError,
    DataError,
    check_arguments,
    did_you_mean,
    short,
    warn_caller,
)
from albertkit.heads import HEADS
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES
from albertkit.hub_upload import PushToHub
from albertkit.logs import ProgressBar
from albertkit.options import check_size, read_options
from albertkit.pipelines.tasks import ALIASES, DEFINITIONS, Definition, Plan, definition_of
from albertkit.tasks.loading import chunks
from albertkit.tasks.registry import TASKS, needs_class, task_of, user_task_of
from albertkit.tasks.rows import UnknownTokens, failures
from albertkit.tasks.sentence_embedding import text_vectors
from albertkit.tasks.settings import saved_lengths
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase
from albertkit.vocabularies import load_tokenizer

INPUTS_AHEAD = 512  # number of inputs of an iterable that are sorted by length together
BATCHES_AHEAD = 16  # the same as a number of batches, if `batch_size` is set
INPUTS_KEPT = 32_768  # number of inputs of a list whose rows are kept after the check of all inputs
_MAX_PADDING = 1024  # vocabulary sizes are often rounded up for fast matrix products
_SHARED = ("device", "batch_size", "batch_tokens", "num_workers", "engine")


class Pipeline(PushToHub):
    """Answers inputs of one task with a model: `pipeline` creates one.

    For one input, a pipeline returns one answer, and for a list or a table, a list of answers. For any other
    iterable or a file (a `Path`), it returns a generator, which reads a few batches ahead.

    Args:
        model: a loaded model, with or without PyTorch. Its mode (training or evaluation) is restored.
        tokenizer: the tokenizer that the model was trained with.
        task: name of the task, or a task of your own; None for the task of the model's class.
        device: the device to move the model to; None does not move it.
        batch_size: maximum number of rows in a batch; None for as many as `batch_tokens` allows. With 1, each
            input of a generator is answered immediately.
        batch_tokens: maximum number of tokens in a batch; None for a default that suits the device.
        num_workers: accepted for compatibility with `transformers`; has no effect. The caller's thread reads
            and tokenizes the inputs, which takes a small part of the time.
        engine: the name of an engine, or an engine of the model.
        defaults: default options of every call, such as `top_k=3`.

    Raises:
        ConfigError: model and tokenizer do not fit the task or each other, or an option is unknown or
            invalid.
    """

    default_task: ClassVar[str | None] = None
    """The task if none is passed; None for the task of the model's class."""

    def __init__(
        self,
        model: Model,
        tokenizer: TokenizerBase,
        task: str | Task | type[Task] | None = None,
        *,
        device: Device = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        num_workers: int | None = None,
        engine: str | Engine | None = None,
        **defaults: Any,
    ) -> None:
        del num_workers
        if not class_names(model):
            expected = "Expected a model of albertkit. To load one, use pipeline(task, model=...)."
            raise ConfigError(f"received a {_name_with_package(model)}. {expected}")
        task = task or self.default_task
        self.definition = find_definition(task, model.config, [class_name(model)])
        if not class_names(model) & {*self.definition.architectures}:
            needed = " or ".join(self.definition.architectures)
            received = _name_with_package(model)
            raise ConfigError(f"{self.definition.name} needs a model of class {needed}, got {received}.")
        if not isinstance(tokenizer, TokenizerBase):
            expected = "Expected a tokenizer of albertkit."
            raise ConfigError(f"the tokenizer is a {_name_with_package(tokenizer)}. {expected}")
        sizes = f"the tokenizer has {len(tokenizer)} pieces, but the model has {model.config.vocab_size}"
        if len(tokenizer) > model.config.vocab_size:
            todo = "call model.resize_token_embeddings(len(tokenizer)) for tokens that you added"
            raise ConfigError(f"{sizes}: they do not belong together, or {todo}.")
        if len(tokenizer) < model.config.vocab_size - _MAX_PADDING:
            warn_caller(f"{sizes}. If the tokenizer belongs to another model, the answers mean nothing.")
        if (moved_to := read_device(device)) is not None:
            model.to(moved_to)
        self._model = model
        self.tokenizer = tokenizer
        self.batch_size = check_size("batch_size", batch_size)
        self.batch_tokens = check_size("batch_tokens", batch_tokens)
        self.engine = engine if isinstance(engine, Engine) else make_engine(model, engine or "auto")
        check_options(self.definition, defaults, _SHARED)
        self.defaults = defaults
        """The options of calls that do not pass their own."""
        self.definition.check(self)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.definition.name

    @property
    def model(self) -> Any:
        """The model: a light model, until it has been converted to a PyTorch model."""
        is_light = isinstance(self._model, LightModel)
        return self._model.module if is_light and self._model.module is not None else self._model

    @property
    def device(self) -> Any:
        """The model's device: a `torch.device`, or "cpu" if PyTorch is not installed."""
        return self.model.device

    @property
    def dtype(self) -> Any:
        """The data type of the weights: a PyTorch type, or a NumPy type if PyTorch is not installed."""
        return self.model.dtype

    @property
    def torch_dtype(self) -> Any:
        """Older name of `dtype`."""
        return self.dtype

    @property
    def max_length(self) -> int:
        """Maximum length of the model, in tokens."""
        return self.model.config.max_position_embeddings

    @property
    def trained_length(self) -> int | None:
        """Maximum length that the model was fine-tuned with, or None if the config lacks it."""
        saved = saved_lengths(self.model.config).get("max_length")
        return None if saved is None else min(saved, self.max_length)

    def plan(self, options: Mapping[str, Any] = {}) -> Plan:
        """Return what a call with these options computes."""
        check_options(self.definition, options)
        return self.definition.plan(self, read_options(self.definition.options, self.defaults, options))

    def __call__(
        self,
        inputs: Any = None,
        candidate_labels: Any = None,
        *,
        batch_size: int | None = None,
        num_workers: int | None = None,
        **options: Any,
    ) -> Any:
        """Answer inputs.

        Args:
            inputs: one input; a list or another iterable of inputs; a table (a DataFrame, an Arrow table, a
                dict of columns); or a file (a `Path`): one text per line, .tsv without a header, .jsonl, .csv
                or .parquet. An input is a text, or a dict with the fields of the task. For
                text-classification and sentence-order, a tuple of two texts is a pair. You can also pass the
                fields by keyword, such as `question` and `context`.
            candidate_labels: for zero-shot-classification: the labels.
            batch_size: maximum number of rows in a batch; None for the pipeline's setting.
            num_workers: has no effect.
            options: the options of the task (`albertkit.options`). None stands for the pipeline's default.

        Returns:
            The answer for one input; a list or generator of answers for several inputs.

        Raises:
            DataError: an input is invalid, or too long.
            ConfigError: an option is unknown or invalid.
        """
        del num_workers
        definition = self.definition
        size = self.batch_size if batch_size is None else check_size("batch_size", batch_size)
        if candidate_labels is not None:
            options["candidate_labels"] = candidate_labels
        is_text = isinstance(inputs, str)
        inputs = _with_fields(definition, inputs, options)
        plan = self.plan(options)
        is_sentence = False
        if options.get("is_split_into_words", self.defaults.get("is_split_into_words")):
            if isinstance(inputs, str):
                raise DataError("received a text. Expected a list of words, or is_split_into_words=False.")
            to_list = getattr(inputs, "to_pylist", getattr(inputs, "tolist", None))  # a column or an array
            inputs = inputs if to_list is None else to_list()
            is_sentence = isinstance(inputs, list | tuple) and all(isinstance(word, str) for word in inputs)

        def read(given: list[Any]) -> tuple[list[Any], Any]:
            examples = [definition.read(without_others(item, definition.fields)) for item in given]
            return examples, plan.features(examples)

        def answers(parts: Iterable[tuple[list[Any], Any]]) -> Iterator[Any]:
            for examples, rows in parts:
                outputs = plan.run(rows, batch_tokens=self.batch_tokens, batch_size=size)
                yield from plan.answer(examples, rows, outputs)

        is_many = isinstance(inputs, PathLike) or (definition.fields and is_table(inputs, definition.rest))
        if is_sentence or (definition.is_single(inputs) and not is_many):
            part = read([inputs])
            unknown = UnknownTokens(self.tokenizer)
            unknown.add(part[1], count=1)
            unknown.warn()
            (answer,) = answers([part])
            return [answer] if plan.as_list and is_text and "top_k" not in options else answer
        if isinstance(inputs, bytes | None):
            definition.read(inputs)  # raises an error that describes an input
        source = read_inputs(inputs, fields=definition.fields, rest=definition.rest)
        ahead = INPUTS_AHEAD if size is None else size * BATCHES_AHEAD
        ahead = 1 if size == 1 else ahead  # then each input of a stream is answered immediately
        is_large = isinstance(source.items, list) and len(source.items) > ahead
        parts = self._parts(source, read, ahead, warns=not is_large)
        if is_large:  # report all invalid inputs before computing any
            checked = self._parts(source, read, INPUTS_AHEAD, finds_all=True)
            kept = list(islice(checked, INPUTS_KEPT // INPUTS_AHEAD if ahead == INPUTS_AHEAD else 0))
            has_more = sum(1 for _ in checked) > 0  # checks all of them
            parts = parts if has_more or not kept else iter(kept)
        answered = answers(parts)
        return list(answered) if source.is_list and source is not inputs else answered

    def _parts(
        self,
        source: NumberedInputs,
        read: Callable[[list[Any]], tuple[list[Any], Any]],
        size: int,
        *,
        finds_all: bool = False,
        warns: bool = True,
    ) -> Iterator[tuple[list[Any], Any]]:
        """Yield the examples of `size` inputs at a time, with their rows.

        Inputs that cannot be answered raise one error: for the first part with such inputs, or if `finds_all`
        for all parts, after the last one. If `warns`, texts of unknown tokens cause one warning.
        """
        count, unknown, problems = 0, UnknownTokens(self.tokenizer), dict[int, AlbertKitError]()
        for some in chunks(source, size):
            try:
                part = read(some)
            except AlbertKitError:
                problems |= (new := failures(read, some, count))
                if not new:  # the inputs are only invalid together
                    raise
                if not finds_all:
                    raise inputs_error(source, problems, count=count + len(some)) from new[min(new)]
            else:
                unknown.add(part[1], count=len(some))
                if warns and not finds_all:
                    warns = not unknown.warn()  # once is enough
                yield part
            count += len(some)
        if problems:
            raise inputs_error(source, problems, count=count) from problems[min(problems)]
        if finds_all:
            unknown.warn()

    def encode(self, texts: Any, *, batch_size: int | None = None, **options: Any) -> np.ndarray:
        """Return the vectors of texts as an array (texts, dimensions) of float32, for `feature-extraction`.

        In a terminal, a progress bar appears after two seconds.

        Args:
            texts: a list or another iterable of texts, a table, or a file (a `Path`), as in a call. For a
                single text, the result is its vector (dimensions,).
            batch_size: maximum number of rows in a batch; None for the pipeline's setting.
            options: options of the task. If the model was not trained for sentence embedding, `pooling` is
                "mean".

        Raises:
            DataError: a text is invalid, or too long.
            ConfigError: the pipeline has another task, or an option is unknown or invalid.
        """
        if self.definition.name != "feature-extraction":
            raise ConfigError(f"the pipeline is for {self.task}. Vectors need one for feature-extraction.")
        config, options = self.model.config, options | {"return_tensors": "np"}
        pooling = options.get("pooling") or self.defaults.get("pooling")
        if pooling is None and sentence_modules(config) is None:
            options["pooling"] = "mean"
        elif pooling == "none":
            raise ConfigError('pooling is "none", which gives a vector for each token. Call the pipeline.')
        if isinstance(texts, str):
            return self(texts, batch_size=batch_size, **options)
        source = read_inputs(texts, fields=self.definition.fields)
        total = len(cast(Any, source.items)) if source.is_list else None
        vectors, count = np.empty((0, text_vectors(config).size(config.hidden_size)), np.float32), 0
        with ProgressBar(lines=False) as bar:
            for vector in self(source, batch_size=batch_size, **options):
                if count == len(vectors):
                    vectors = np.resize(vectors, (total or max(INPUTS_AHEAD, 2 * count), len(vector)))
                vectors[count] = vector
                count += 1
                bar.update_count(count, total, "texts")
        return vectors[:count]

    def predict(self, inputs: Any) -> Any:
        """Call the pipeline. scikit-learn expects a method with this name."""
        return self(inputs)

    def transform(self, inputs: Any) -> Any:
        """Call the pipeline. scikit-learn expects a method with this name."""
        return self(inputs)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> None:
        """Save the model and its tokenizer to a folder that `pipeline` can load.

        Args:
            save_directory: the folder; it is created if it does not exist.
            options: arguments of the model's `save_pretrained`.
        """
        self.model.save_pretrained(save_directory, **options)
        self.tokenizer.save_pretrained(save_directory)

    def to_transformers(self, **options: Any) -> Any:
        """Return a pipeline of `transformers` for the same task. Both pipelines share the model's parameters.

        It is for tools that accept only pipelines of `transformers`, which must be installed. Their pipeline
        has the defaults and the tokenizer of `transformers`.

        Args:
            options: arguments of `transformers.pipeline`, such as `top_k=None` for the scores of all labels.

        Raises:
            ConfigError: `transformers` has no pipeline for this task.
        """
        import transformers

        with TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, make_pipeline = self.model.to_transformers(), cast(Any, transformers.pipeline)
        try:
            return make_pipeline(self.task, model=model, tokenizer=tokenizer, device=model.device, **options)
        except KeyError as error:
            raise ConfigError(f"transformers has no pipeline for the task {self.task!r}.") from error

    def __repr__(self) -> str:
        model = self.model
        name = model.architecture if isinstance(model, LightModel) else type(model).__name__
        device = "cpu" if isinstance(model, LightModel) else model.device
        return f"{type(self).__name__}({name}, {self.tokenizer!r}, task={self.task!r}, device={device})"


def _with_fields(definition: Definition, inputs: Any, options: dict[str, Any]) -> Any:
    """Return the inputs with the fields that were passed by keyword, which leave `options`."""
    names = {*definition.fields, definition.rest, "sequences"} & options.keys()
    given = {name: value for name in names if (value := options.pop(cast(str, name))) is not None}
    if not given:
        return inputs
    if "sequences" in given and inputs is None:  # of zero-shot-classification in `transformers`
        return given["sequences"]
    if isinstance(inputs, str) and given.keys() == {*definition.fields[1:]}:
        return {definition.fields[0]: inputs, **given}
    if inputs is not None:
        raise ConfigError(f"inputs are passed twice. Pass inputs, or {', '.join(definition.fields)}.")
    question, context = (given.get(name) for name in QUESTION_FIELDS)
    if definition.rest in given or not any(isinstance(each, list | tuple) for each in (question, context)):
        return given
    questions: list[Any] = [question] if isinstance(question, str) else [*cast(Any, question)]
    contexts = [context] * len(questions) if isinstance(context, str) else [*cast(Any, context)]
    if len(questions) != len(contexts):
        counts = f"{len(questions)} questions and {len(contexts)} contexts"
        raise DataError(f"received {counts}. Expected equal numbers, or one context.")
    return [dict(zip(QUESTION_FIELDS, pair, strict=True)) for pair in zip(questions, contexts, strict=True)]


def _name_with_package(given: Any) -> str:
    """Return the class name with its package, because another package may have a class of that name."""
    return f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"


def _depends_on_model(task: Any) -> bool:
    """Return whether the pipeline of a task depends on the task that the model was fine-tuned for."""
    if isinstance(task, Task | type):
        return False
    name = ALIASES.get(task, task)
    return name not in DEFINITIONS or name in TASKS


def find_definition(
    task: str | Task | type[Task] | None,
    config: AlbertConfig | None = None,
    classes: Sequence[str] = (),
    *,
    name: str = "the model",
) -> Definition:
    """Return the definition of a task; None stands for the task of the model's class.

    Args:
        task: the task.
        config: the config of the model, to recognize models of a task of your own.
        classes: the names of the model's classes.
        name: the name of the model, for errors.
    """
    if isinstance(task, Task | type):
        return definition_of(task_of(task))
    if _depends_on_model(task) and (own := user_task_of(config)) is not None:
        raise needs_class(name, own)
    known = [*DEFINITIONS, *ALIASES]
    expected = f"Expected one of {', '.join(known)}, or a `Task` of your own."
    if task is None:
        head = next((each for each in classes if each in HEADS), None)
        if head is None or HEADS[head].task not in DEFINITIONS:
            raise ConfigError(f"the task is None, and there is no pipeline for {head or name}. {expected}")
        return DEFINITIONS[HEADS[head].task]
    if task not in known:
        meant = did_you_mean(task, known)
        raise ConfigError(f"there is no pipeline for the task {task!r}{meant}. {expected}")
    return DEFINITIONS[ALIASES.get(task, task)]


def check_options(definition: Definition, given: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise ConfigError for a name that is neither an option of a task nor one of `others`."""
    known = [field.name for field in fields(definition.options)]
    check_arguments(f"the pipeline for {definition.name}", given, [*known, *others])


def pipeline(
    task: str | Task | type[Task] | None = None,
    model: str | Path | Model | None = None,
    tokenizer: str | Path | TokenizerBase | None = None,
    *,
    config: AlbertConfig | str | Path | None = None,
    device: Device = None,
    device_map: Any = None,
    dtype: Any = None,
    torch_dtype: Any = None,
    use_fast: bool | None = None,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    trust_remote_code: bool | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    pipeline_class: type[Pipeline] | None = None,
    **defaults: Any,
) -> Pipeline:
    """Create the pipeline for a task.

    Args:
        task: name of the task, or a task of your own. For any pretrained model: "fill-mask",
            "feature-extraction" or "sentence-order". For a fine-tuned model: "text-classification"
            ("sentiment-analysis"), "token-classification" ("ner"), "question-answering", "multiple-choice" or
            "zero-shot-classification". None for the task of the model's class.
        model: a folder, a checkpoint of another library (`docs/how-to/convert.md`), a hub name, or a loaded
            model; None for the bundled model, which is not fine-tuned.
        tokenizer: a folder, a hub name, or a tokenizer; None for the tokenizer in the model's folder or file.
            Required for a model that is already loaded.
        config: a config that replaces the checkpoint's config.
        device: "cpu", "cuda:1", "mps" and so on; or the number of a GPU, or -1 for the CPU. On a machine
            without GPUs, the function warns about a GPU number and uses the CPU. None for the best single
            device (CUDA, then MPS, then CPU); a model that is already loaded then stays on its device.
        device_map: another name of `device`.
        dtype: data type of the weights, float32 by default. The engines `torch` and `plain` compute in this
            type; `onnx` and `onnx-int8` always compute in float32.
        torch_dtype: older name of `dtype`.
        use_fast: which of the two tokenizer classes to use; both return the same ids.
        revision: branch, tag or commit on the hub.
        cache_dir: folder for downloads, instead of the hub's own cache.
        token: hub token; True for the saved token, False for none, None for the saved token if there is one.
        local_files_only: whether to use only files that are already downloaded.
        trust_remote_code: has no effect: code of a checkpoint never runs.
        model_kwargs: further arguments for the model's `from_pretrained`, such as `attn_implementation`, or
            `{"disable_mmap": True}` to copy the weights into memory instead of mapping their file. It can
            also contain the arguments from `device_map` to `local_files_only` above.
        pipeline_class: your own class, derived from `Pipeline`.
        defaults: `batch_size` (maximum number of rows in a batch), `batch_tokens` (maximum number of tokens
            in a batch), `engine`, and default options of every call, such as `top_k=3`; see
            `albertkit.options`.

    Returns:
        The pipeline. Call it with inputs.

    Raises:
        ModelNotFoundError: there is no model of this name or in this folder.
        CheckpointError: the weights are damaged, or lack the head that the task needs.
        ConfigError: the task or device is unknown, or the model does not fit the task.
        TokenizerError: the tokenizer is damaged, or is not an ALBERT tokenizer.
    """
    del trust_remote_code
    if not isinstance(model_kwargs, Mapping | None):
        raise ConfigError(f"model_kwargs is {short(model_kwargs)}. Expected a dict.")
    own_options = dict(model_kwargs or {})
    task = task or getattr(pipeline_class, "default_task", None)
    options: dict[str, Any] = {
        "device_map": device_map,
        "dtype": dtype,
        "torch_dtype": torch_dtype,
        "revision": revision,
        "cache_dir": cache_dir,
        "token": token,
        "local_files_only": local_files_only,
    }
    for name in options.keys() & own_options.keys():
        options[name] = one_of(**{name: options[name] or None, "model_kwargs": own_options.pop(name)})
    device = one_of(device=device, device_map=options.pop("device_map"))
    dtype = one_of(dtype=options.pop("dtype"), torch_dtype=options.pop("torch_dtype"))
    if not isinstance(model, str | Path | None):
        if tokenizer is None:
            raise ConfigError("a loaded model does not include its tokenizer. Pass tokenizer=...")
        if config is not None or dtype is not None or own_options:
            raise ConfigError("the model is already loaded. Omit config, dtype and model_kwargs.")
        if isinstance(tokenizer, str | Path):
            tokenizer = load_tokenizer(tokenizer, use_fast=use_fast, **options)
        return (pipeline_class or Pipeline)(model, tokenizer, task, device=device, **defaults)
    loaded = None
    if model is not None and _depends_on_model(task):
        loaded = load_config(config or model, **options)
    classes = (loaded and loaded.architectures) or ()
    definition = find_definition(task, loaded, classes, name=str(model or "the model"))
    if pipeline_class is None:  # before a model is downloaded
        check_options(definition, defaults, [*_SHARED, *signature(pipeline).parameters])
    model = BUNDLED if model is None else model
    light = load_complete_model(
        model,
        definition.architectures[0],
        task=definition.name,
        device=read_device(engine_device(defaults.get("engine"), device)),
        config=config,
        dtype=dtype,
        model_kwargs=own_options,
        **options,
    )
    tokenizer = model if tokenizer is None else tokenizer
    if isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(tokenizer, use_fast=use_fast, **options)
    chosen = definition.name if definition.name in DEFINITIONS else task
    return (pipeline_class or Pipeline)(light, tokenizer, chosen, **defaults)


def cut_note(pipeline: Pipeline, cut: Sequence[int], count: int) -> str:
    """Return a sentence about the tokens that were cut from some of `count` texts."""
    limit = pipeline.trained_length or pipeline.max_length
    return (
        f"{len(cut):,} of {count:,} texts exceed the maximum length of {limit:,} tokens: "
        f"{sum(cut):,} tokens were truncated, at most {max(cut):,} in one text"
    )


def encode(texts: Any, model: str | Path | Pipeline = BUNDLED_SENTENCES, **options: Any) -> np.ndarray:
    """Return the vectors of texts as an array (texts, dimensions) of float32.

    For several calls, create a pipeline once and call its `encode`.

    Args:
        texts: a list or another iterable of texts, a table, or a file (a `Path`). For a single text, the
            result is its vector (dimensions,).
        model: a folder, a hub name, or a pipeline for `feature-extraction`.
        options: arguments of `pipeline`, such as `device`, and options of `feature-extraction`, such as
            `truncation=True`.

    Raises:
        DataError: a text is invalid, or too long.
        ConfigError: an option is unknown or invalid.
    """
    if isinstance(model, Pipeline):
        return model.encode(texts, **options)
    return pipeline("feature-extraction", model, **options).encode(texts)


# --- the names of the classes in `transformers`


class FeatureExtractionPipeline(Pipeline):
    """`Pipeline` for `feature-extraction`, unless another task is passed."""

    default_task = "feature-extraction"


class FillMaskPipeline(Pipeline):
    """`Pipeline` for `fill-mask`, unless another task is passed."""

    default_task = "fill-mask"


class QuestionAnsweringPipeline(Pipeline):
    """`Pipeline` for `question-answering`, unless another task is passed."""

    default_task = "question-answering"


class TextClassificationPipeline(Pipeline):
    """`Pipeline` for `text-classification`, unless another task is passed."""

    default_task = "text-classification"


class TokenClassificationPipeline(Pipeline):
    """`Pipeline` for `token-classification`, unless another task is passed."""

    default_task = "token-classification"


class ZeroShotClassificationPipeline(Pipeline):
    """`Pipeline` for `zero-shot-classification`, unless another task is passed."""

    default_task = "zero-shot-classification"
