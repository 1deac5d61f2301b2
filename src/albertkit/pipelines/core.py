"""`Pipeline`: reads inputs of all kinds, computes them in batches, and answers in order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

from albertkit.datasets.rows import NumberedInputs, without_others
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import LightModel, Model, class_name, class_names
from albertkit.errors import AlbertKitError, ConfigError, DataError, check_arguments, warn_caller
from albertkit.heads import HEADS
from albertkit.hub_upload import PushToHub
from albertkit.options import check_size, read_options
from albertkit.pipelines.inputs import inputs_error, is_table, read_inputs
from albertkit.pipelines.tasks import ALIASES, DEFINITIONS, Definition, Plan, definition_of, rows_of
from albertkit.tasks.loading import chunks
from albertkit.tasks.registry import task_of
from albertkit.tasks.rows import UnknownTokens, failures
from albertkit.tasks.settings import saved_lengths
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase

INPUTS_AHEAD = 512  # number of inputs of an iterable that are sorted by length together
BATCHES_AHEAD = 16  # the same as a number of batches, if `batch_size` is set
_MAX_PADDING = 1024  # vocabulary sizes are often rounded up for fast matrix products


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
        if not class_names(model):
            raise ConfigError(
                f"Expected a model of albertkit, got {name_with_package(model)}. To load a model by its "
                "folder or name, use pipeline(task, model=...)."
            )
        task = task or self.default_task or HEADS[class_name(model)].task
        self.definition = find_definition(task)
        if not class_names(model) & {*self.definition.architectures}:
            needed = " or ".join(self.definition.architectures)
            raise ConfigError(
                f"{self.definition.name} needs a model of class {needed}, got {name_with_package(model)}."
            )
        if not isinstance(tokenizer, TokenizerBase):
            raise ConfigError(
                f"the tokenizer is a {name_with_package(tokenizer)}. Expected a tokenizer of albertkit."
            )
        if len(tokenizer) > model.config.vocab_size:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} pieces, but the model has {model.config.vocab_size}: "
                "they do not belong together. (For tokens that you added: "
                "model.resize_token_embeddings(len(tokenizer)))"
            )
        if len(tokenizer) < model.config.vocab_size - _MAX_PADDING:
            warn_caller(
                f"the tokenizer has {len(tokenizer)} pieces, but the model has {model.config.vocab_size}. If "
                "the tokenizer belongs to another model, the answers mean nothing."
            )
        check_size("num_workers", num_workers, minimum=0)
        if (place := read_device(device)) is not None:
            model.to(place)
        self._model = model
        self.tokenizer = tokenizer
        self.batch_size = check_size("batch_size", batch_size)
        self.batch_tokens = check_size("batch_tokens", batch_tokens)
        self.engine = engine if isinstance(engine, Engine) else make_engine(model, engine or "auto")
        check_options(self.definition, defaults)
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
        definition = self.definition
        check_size("num_workers", num_workers, minimum=0)
        size = self.batch_size if batch_size is None else check_size("batch_size", batch_size)
        if candidate_labels is not None:
            options["candidate_labels"] = candidate_labels
        is_text = isinstance(inputs, str)
        inputs = _with_fields(definition, inputs, options)
        splits = bool(options.get("is_split_into_words", self.defaults.get("is_split_into_words")))
        plan = self.plan(options)
        to_list = getattr(inputs, "to_pylist", getattr(inputs, "tolist", None))  # a column or an array
        if splits and to_list is not None:
            inputs = to_list()
        is_sentence = splits and isinstance(inputs, list | tuple) and all(isinstance(x, str) for x in inputs)
        if splits and isinstance(inputs, str):
            raise DataError("received a text. Expected a list of words, or is_split_into_words=False.")
        if is_sentence and not inputs:
            return []

        def read(given: list[Any]) -> tuple[list[Any], Any]:
            examples = [definition.read(without_others(one, definition.fields)) for one in given]
            return examples, plan.features(examples)

        def answers(parts: Iterable[tuple[list[Any], Any]]) -> Iterator[Any]:
            for examples, rows in parts:
                outputs = plan.run(rows, batch_tokens=self.batch_tokens, batch_size=size)
                yield from plan.answer(examples, rows, outputs)

        is_rows = bool(definition.fields) and is_table(inputs, definition.rest)
        is_single = is_sentence or (
            definition.is_single(inputs) and not is_rows and not isinstance(inputs, PathLike)
        )
        if is_single:
            part = read([inputs])
            unknown = UnknownTokens(self.tokenizer)
            unknown.add(part[1], count=1)
            unknown.warn()
            answer = next(answers([part]))
            return [answer] if plan.as_list and is_text and "top_k" not in options else answer
        if isinstance(inputs, str | bytes | None):
            definition.read(inputs)  # raises an error that describes an input
        source = read_inputs(inputs, fields=definition.fields, rest=definition.rest)
        ahead = INPUTS_AHEAD if size is None else size * BATCHES_AHEAD
        if size == 1:  # then each input of a stream is answered immediately
            ahead = 1
        is_large = isinstance(source.items, list) and len(source.items) > ahead
        if is_large:  # report all invalid inputs before computing any
            for _ in self._parts(source, read, INPUTS_AHEAD, finds_all=True):
                pass
        found = answers(self._parts(source, read, ahead, warns=not is_large))
        return list(found) if source.is_list and source is not inputs else found

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
                problems |= (found := failures(read, some, count))
                if not found:  # the inputs are only invalid together
                    raise
                if not finds_all:
                    raise inputs_error(source, problems, count=count + len(some)) from found[min(found)]
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
        model, device = self.model, self.device
        name = model.architecture if isinstance(model, LightModel) else type(model).__name__
        device = "cpu" if isinstance(model, LightModel) else device
        return f"{type(self).__name__}({name}, {self.tokenizer!r}, task={self.task!r}, device={device})"


def find_definition(task: str | Task | type[Task]) -> Definition:
    """Return the definition of a task."""
    if not isinstance(task, str):
        return definition_of(task_of(task))
    name = ALIASES.get(task, task)
    if name not in DEFINITIONS:
        known = ", ".join([*DEFINITIONS, *ALIASES])
        raise ConfigError(f"there is no pipeline for the task {task!r}. Expected one of {known}.")
    return DEFINITIONS[name]


def check_options(definition: Definition, given: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise ConfigError for a name that is neither an option of a task nor one of `others`."""
    known = [field.name for field in fields(definition.options)]
    check_arguments(f"the pipeline for {definition.name}", given, [*known, *others])


def _with_fields(definition: Definition, inputs: Any, options: dict[str, Any]) -> Any:
    """Return the inputs with the fields that were passed by keyword, which leave `options`."""
    names = {*definition.fields, definition.rest, "sequences"} & options.keys()
    given = {name: value for name in names if (value := options.pop(cast(str, name))) is not None}
    if "sequences" in given and inputs is None:  # of zero-shot-classification in `transformers`
        return given["sequences"]
    if given and isinstance(inputs, str) and given.keys() == {*definition.fields[1:]}:
        return {definition.fields[0]: inputs, **given}
    if given and inputs is not None:
        raise ConfigError(f"inputs are passed twice. Pass inputs, or {', '.join(definition.fields)}.")
    return rows_of(given) if given else inputs


def name_with_package(given: Any) -> str:
    """Return the class name with its package, because another package may have a class of that name."""
    return f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"
