"""The base class of pipelines: reads inputs of all kinds, computes them in batches, answers in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypedDict, cast

from albertkit.devices import Device, read_device
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine, Row
from albertkit.engines.light_model import LightModel, Model, class_names
from albertkit.errors import AlbertKitError, ConfigError, DataError, check_arguments, short, warn_caller
from albertkit.hub_upload import PushToHub
from albertkit.inputs import NumberedInputs, without_others
from albertkit.pipelines.limits import check_size
from albertkit.pipelines.sources import check_table, inputs_error, read_inputs
from albertkit.tasks.loading import chunks
from albertkit.tasks.rows import UnknownTokens, failures, tokens_cut
from albertkit.tasks.settings import saved_lengths
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase

_INPUTS_AHEAD = 512  # number of inputs of an iterable that are sorted by length together
_BATCHES_AHEAD = 16  # the same as a number of batches, if `batch_size` is set

_Chunk = tuple[list[Any], Sequence[Any]]
"""Examples and their rows."""


_MAX_PADDING = 1024  # vocabulary sizes are often rounded up for fast matrix products
SHARED = ("task", "device", "batch_size", "batch_tokens", "num_workers", "engine")
"""The arguments of every pipeline's constructor besides a model, its tokenizer and the options of calls."""


class Batching(TypedDict, total=False):
    """Arguments of every call besides its inputs and options; see `Pipeline`."""

    batch_size: int | None
    num_workers: int | None


class Pipeline(PushToHub, ABC):
    """Base class of pipelines. A pipeline tokenizes inputs, runs a model, and returns predictions.

    Args:
        model: a light model or a PyTorch model of a class in `accepts`. Its mode (training or evaluation) is
            restored.
        tokenizer: the tokenizer that the model was trained with.
        task: the name of the task, for compatibility with `transformers`. A name that is not the pipeline's
            raises an error.
        device: the device to move the model to; None does not move it.
        batch_size: maximum number of rows in a batch; None for as many as `batch_tokens` allows. With 1, each
            input of a generator is answered immediately.
        batch_tokens: maximum number of tokens in a batch; None for a default that suits the device.
        num_workers: accepted for compatibility with `transformers`; has no effect. The caller's thread reads
            and tokenizes the inputs, which takes a small part of the time.
        engine: one of `engines.choosing.ENGINES`, or an engine of the model.
        defaults: default arguments of every call, such as `top_k=3`.

    Raises:
        ConfigError: model and tokenizer do not fit the task or each other, or a batch would be empty.
    """

    task: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names of the task."""
    architecture: ClassVar[str]
    """The name of the model class to load."""
    accepts: ClassVar[tuple[str, ...]] = ()
    """The names of the accepted model classes; empty for only `architecture`."""
    fields: ClassVar[tuple[str, ...]] = ("text",)
    """The fields of an input: the keys of a mapping, or the columns of a TSV file."""
    rest: ClassVar[str | None] = None
    """The field that receives all further columns."""
    keeps_others: ClassVar[bool] = False
    """Whether an input from a JSON Lines file keeps the fields that are not in `fields`."""
    reads_lists: ClassVar[bool] = False
    """Whether the values of an input may be lists, like the columns of a table."""
    without_defaults: ClassVar[tuple[str, ...]] = ()
    """The arguments of calls that constructors do not accept, because each input has its own."""
    no_arguments: ClassVar[str] = ""
    """A hint for unknown arguments, which begins with a space."""
    expected: ClassVar[str] = "a text"
    """What an input is, for error messages."""
    by_name: ClassVar[str] = "Pass several texts as a list"
    """What to do instead of passing several positional arguments."""

    def __init__(
        self,
        model: Model,
        tokenizer: TokenizerBase,
        *,
        task: str | None = None,
        device: Device = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        num_workers: int | None = None,
        engine: str | Engine | None = None,
        **defaults: Any,
    ) -> None:
        self.check_options(defaults, SHARED, without=self.without_defaults)
        if task not in (None, "", self.task, *self.aliases):
            raise ConfigError(f"the task is {task!r}. Expected {self.task!r}, or pipeline({task!r}, ...).")
        accepted = self.accepts or (self.architecture,)
        if not class_names(model) & {*accepted}:
            raise ConfigError(
                f"{self.task} needs a model of class {' or '.join(accepted)}, got "
                f"{name_with_package(model)}. "
                f'To load a model by its folder or name, use pipeline("{self.task}", model=...).'
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
        check_size("num_workers", num_workers, least=0)
        if (place := read_device(device)) is not None:
            model.to(place)
        self._model = model
        self.tokenizer = tokenizer
        self.batch_size = check_size("batch_size", batch_size)
        self.batch_tokens = check_size("batch_tokens", batch_tokens)
        self.defaults = defaults
        """The arguments of calls that do not pass their own."""
        self.engine = engine if isinstance(engine, Engine) else make_engine(model, engine or "auto")

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

    @classmethod
    def check_options(
        cls, given: Collection[str], known: Iterable[str], *, without: Iterable[str] = ()
    ) -> None:
        """Raise ConfigError for a name that is neither in `known` nor an option of a call.

        The options in `without` raise it too.
        """
        if not given:  # signatures take a tenth of the time of a short text
            return
        positional = {"self", "inputs", "sequences", *without}
        kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        calls = [vars(one)["__call__"] for one in cls.__mro__ if "__call__" in vars(one)]
        options = [one for call in calls for one in signature(call).parameters.values() if one.kind in kinds]
        names = dict.fromkeys(one.name for one in options if one.name not in positional)
        check_arguments(f"the pipeline for {cls.task}", given, [*names, *known], cls.no_arguments)

    def _option(self, name: str, given: Any, otherwise: Any = None) -> Any:
        """Return an argument of a call; if it is None, the pipeline's default for it, else `otherwise`."""
        chosen = self.defaults.get(name) if given is None else given
        return otherwise if chosen is None else chosen

    def _is_single(self, inputs: Any) -> bool:
        """Return whether `inputs` is a single input."""
        return isinstance(inputs, str | Mapping)

    def _read(self, given: Any) -> Any:
        """Return one input in the task's form; raise DataError for anything else."""
        if not isinstance(given, str):
            raise DataError(
                f"received {short(given)} ({type(given).__name__}) for a text. Expected a string."
            )
        return given

    def _run(
        self,
        inputs: Any,
        others: tuple[Any, ...],
        *,
        features: Callable[[list[Any]], Sequence[Any]],
        run: Callable[..., list[Any]],
        answer: Callable[[list[Any], Sequence[Any], list[Any]], list[Any]],
        batch_size: int | None = None,
        num_workers: int | None = None,
        **further: Any,
    ) -> Any:
        """Answer all inputs, a few batches at a time.

        `features` returns the rows of examples, `run` the output of each row, and `answer` the answers for
        examples, their rows and the outputs. `others` and `further` are arguments that raise an error.
        """
        self.check_options(further, Batching.__annotations__)
        if others:
            raise ConfigError(f"received a positional argument too many, {short(others[0])}. {self.by_name}.")
        check_size("num_workers", num_workers, least=0)
        size = self.batch_size if batch_size is None else check_size("batch_size", batch_size)
        if not self.reads_lists:
            check_table(inputs, fields=self.fields, rest=self.rest, is_text=self._is_single(""))

        def read(given: list[Any]) -> _Chunk:
            fields = () if self.keeps_others else self.fields
            examples = [self._read(without_others(one, fields)) for one in given]
            return examples, features(examples)

        def answers(chunks: Iterable[_Chunk]) -> Iterator[Any]:
            for examples, rows in chunks:
                outputs = run(rows, batch_tokens=self.batch_tokens, batch_size=size)
                yield from answer(examples, rows, outputs)

        if self._is_single(inputs):
            chunk = read([inputs])
            unknown = UnknownTokens(self.tokenizer)
            unknown.add(chunk[1], count=1)
            unknown.warn()
            return next(answers([chunk]))
        source = read_inputs(
            inputs, expected=self.expected, fields=self.fields, rest=self.rest, others=self.keeps_others
        )
        ahead = _INPUTS_AHEAD if size is None else size * _BATCHES_AHEAD
        if size == 1:  # then each input of a stream is answered immediately
            ahead = 1
        items = source.items
        is_large = isinstance(items, list) and len(items) > ahead  # a single chunk is checked when it is read
        if is_large:
            for _ in self._chunks(source, read, _INPUTS_AHEAD, finds_all=True):
                pass
        found = answers(self._chunks(source, read, ahead, warns=not is_large))
        return list(found) if source.is_list and source is not inputs else found

    def _chunks(
        self,
        source: NumberedInputs,
        read: Callable[[list[Any]], _Chunk],
        size: int,
        *,
        finds_all: bool = False,
        warns: bool = True,
    ) -> Iterator[_Chunk]:
        """Yield the examples of `size` inputs at a time, with their rows.

        Inputs that cannot be answered raise one error: for the first chunk with such inputs, or if
        `finds_all` for all chunks, after the last one. If `warns`, texts of unknown tokens cause one warning.
        """
        count, unknown, problems = 0, UnknownTokens(self.tokenizer), dict[int, AlbertKitError]()
        for some in chunks(source, size):
            try:
                chunk = read(some)
            except AlbertKitError:
                problems |= (found := failures(read, some, count))
                if not found:  # the inputs are only invalid together
                    raise
                if not finds_all:
                    raise inputs_error(source, problems, count=count + len(some)) from found[min(found)]
            else:
                unknown.add(chunk[1], count=len(some))
                if warns and not finds_all:
                    warns = not unknown.warn()  # once is enough
                yield chunk
            count += len(some)
        if problems:
            raise inputs_error(source, problems, count=count)
        if finds_all:
            unknown.warn()

    def _run_task(
        self,
        inputs: Any,
        others: tuple[Any, ...],
        task: Task,
        answer: Callable[[Any, Any, dict[str, int]], Any],
        **batching: Any,
    ) -> Any:
        """Answer all inputs with the predictions of a task; see `_run`.

        `answer` returns the answer for an example, its prediction, and {"cut": number of removed tokens}, or
        {} if it was not truncated.
        """

        def answers(examples: list[Any], rows: Sequence[Row], outputs: list[Any]) -> list[Any]:
            predictions = task.predictions(examples, rows, outputs)
            cuts = tokens_cut(rows, examples=len(examples))
            return [
                answer(example, prediction, {"cut": cut} if cut else {})
                for example, prediction, cut in zip(examples, predictions, cuts, strict=True)
            ]

        run = partial(task.run, self.engine)
        return self._run(inputs, others, features=task.features, run=run, answer=answers, **batching)

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

    def to_transformers(self) -> Any:
        """Return a pipeline of `transformers` for the same task. Both pipelines share the model's parameters.

        It is for tools that accept only pipelines of `transformers`, which must be installed. Their pipeline
        has the defaults and the tokenizer of `transformers`.

        Raises:
            ConfigError: `transformers` has no pipeline for this task.
        """
        import transformers

        with TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, make_pipeline = self.model.to_transformers(), cast(Any, transformers.pipeline)
        try:
            return make_pipeline(self.task, model=model, tokenizer=tokenizer, device=model.device)
        except KeyError as error:
            raise ConfigError(f"transformers has no pipeline for the task {self.task!r}.") from error

    def __repr__(self) -> str:
        model = self.model
        if isinstance(model, LightModel):
            return f"{type(self).__name__}({model.architecture}, {self.tokenizer!r}, device=cpu)"
        return f"{type(self).__name__}({type(model).__name__}, {self.tokenizer!r}, device={self.device})"

    @abstractmethod
    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return the predictions for one input, a list or other iterable of inputs, or a file of inputs."""


def name_with_package(given: Any) -> str:
    """Return the class name with its package, because another package may have a class of that name."""
    return f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"
