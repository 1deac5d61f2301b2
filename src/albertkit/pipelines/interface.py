"""The base class of pipelines: reads inputs of all kinds, computes them in batches, answers in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from albertkit.devices import Device, read_device
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine, Row
from albertkit.engines.light_model import LightModel, Model, class_names
from albertkit.errors import AlbertKitError, ConfigError, DataError, check_arguments, short
from albertkit.hub_upload import PushToHub
from albertkit.pipelines.limits import check_size
from albertkit.pipelines.sources import Source, check_table
from albertkit.tasks.rows import UnknownTokens, failures, tokens_cut
from albertkit.tasks.settings import saved_lengths
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase

_INPUTS_AHEAD = 512  # number of inputs of an iterable that are sorted by length together
_BATCHES_AHEAD = 16  # the same as a number of batches, if `batch_size` is set

Features = Callable[[list[Any]], Sequence[Any]]
_Read = Callable[[list[Any]], tuple[list[Any], Sequence[Any]]]


class Shared(TypedDict, total=False):
    """Arguments of every pipeline's constructor besides a model and its tokenizer; see `Pipeline`."""

    task: str | None
    device: Device
    batch_size: int | None
    batch_tokens: int | None
    num_workers: int | None
    engine: str | Engine


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
    no_arguments: ClassVar[str] = ""
    """A hint for unknown arguments, which begins with a space."""
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
        **further: Any,
    ) -> None:
        self._check_arguments("__init__", further)
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
        check_size("num_workers", num_workers, least=0)
        if (place := read_device(device)) is not None:
            model.to(place)
        self._model = model
        self.tokenizer = tokenizer
        self.batch_size = check_size("batch_size", batch_size)
        self.batch_tokens = check_size("batch_tokens", batch_tokens)
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
    def trained_length(self) -> int:
        """Maximum length that the model was fine-tuned with, or `max_length` if the config lacks it."""
        return min(saved_lengths(self.model.config).get("max_length", self.max_length), self.max_length)

    @classmethod
    def _check_arguments(cls, method: str, given: Mapping[str, Any], also: Iterable[str] = ()) -> None:
        """Raise ConfigError for an argument that a method does not have; `also` are further suggestions."""
        if not given:
            return
        shared = Shared if method == "__init__" else Batching
        known = [*cls._own_arguments(method), *shared.__annotations__, *also]
        check_arguments(f"the pipeline for {cls.task}", given, dict.fromkeys(known), cls.no_arguments)

    @classmethod
    def _own_arguments(cls, method: str) -> list[str]:
        """Return the keyword arguments that a method has besides those of all pipelines."""
        classes = [one for one in cls.__mro__ if issubclass(one, Pipeline)]
        methods = [vars(one)[method] for one in classes if method in vars(one)]
        parameters = [one for each in methods for one in signature(each).parameters.values()]
        kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        positional = {"self", "inputs", "sequences", "model", "tokenizer"}
        return [one.name for one in parameters if one.kind in kinds and one.name not in positional]

    def _is_single(self, inputs: Any) -> bool:
        """Return whether `inputs` is a single input."""
        return isinstance(inputs, str)

    def _read(self, given: Any) -> Any:
        """Return one input in the task's form; raise DataError for anything else."""
        if not isinstance(given, str):
            raise DataError(
                f"received {short(given)} ({type(given).__name__}) for a text. Expected a string."
            )
        return given

    def _rows(self, features: Sequence[Any]) -> Sequence[Row]:
        """Return the rows of a task's features."""
        return features

    def _run(
        self,
        inputs: Any,
        others: tuple[Any, ...],
        *,
        features: Features,
        answer: Callable[..., list[Any]],
        batch_size: int | None = None,
        num_workers: int | None = None,
        **further: Any,
    ) -> Any:
        """Answer all inputs, a few batches at a time.

        `features` computes the features of examples. `answer` returns the answers for examples, their
        features and `batch_size`. `others` and `further` are arguments of the call that raise an error.
        """
        self._check_arguments("__call__", further)
        if others:
            raise ConfigError(f"received a positional argument too many, {short(others[0])}. {self.by_name}.")
        check_size("num_workers", num_workers, least=0)
        size = self.batch_size if batch_size is None else check_size("batch_size", batch_size)
        answer = partial(answer, batch_size=size)
        if not self.reads_lists:
            check_table(inputs, fields=self.fields, rest=self.rest, is_text=self._is_single(""))

        def read(given: list[Any]) -> tuple[list[Any], Sequence[Any]]:
            examples = [self._read(one) for one in given]
            return examples, features(examples)

        if self._is_single(inputs):
            examples, found = read([inputs])
            unknown = UnknownTokens(self.tokenizer)
            unknown.add(self._rows(found), count=1)
            unknown.warn()
            return answer(examples, found)[0]
        source = Source(
            inputs, expected=self._expected(), fields=self.fields, rest=self.rest, others=self.keeps_others
        )
        ahead = _INPUTS_AHEAD if size is None else size * _BATCHES_AHEAD
        if size == 1:  # then each input of a stream is answered immediately
            ahead = 1
        if not source.is_known:
            return self._stream(source, read, answer, ahead)
        items = list(source.items)
        source.items = iter(items)
        checked = len(items) > ahead  # a single chunk is checked when it is read, before its answers
        if checked:
            self._check(items, source, read)
        answers = self._stream(source, read, answer, ahead, checked=checked)
        return list(answers) if source.is_list else answers

    def _run_task(
        self,
        inputs: Any,
        others: tuple[Any, ...],
        task: Task,
        answer: Callable[[Any, Any, dict[str, int]], Any],
        *,
        features: Features | None = None,
        options: Mapping[str, Any] | None = None,
        **further: Any,
    ) -> Any:
        """Answer all inputs with the predictions of a task; see `_run`.

        `answer` returns the answer for an example, its prediction, and {"cut": number of removed tokens}, or
        {} if it was not truncated. `options` are further arguments of the task's `predictions`.
        """

        def answers(examples: list[Any], rows: Sequence[Row], *, batch_size: int | None) -> list[Any]:
            outputs = task.run(self.engine, rows, batch_tokens=self.batch_tokens, batch_size=batch_size)
            predictions = task.checked_predictions(examples, rows, outputs, **(options or {}))
            cuts = tokens_cut(rows, examples=len(examples))
            return [
                answer(example, prediction, {"cut": cut} if cut else {})
                for example, prediction, cut in zip(examples, predictions, cuts, strict=True)
            ]

        return self._run(inputs, others, features=features or task.features, answer=answers, **further)

    def _stream(
        self,
        source: Source,
        read: _Read,
        answer: Callable[[list[Any], Sequence[Any]], list[Any]],
        ahead: int,
        *,
        checked: bool = False,
    ) -> Iterator[Any]:
        start, unknown = 0, UnknownTokens(self.tokenizer)
        while some := list(islice(source.items, ahead)):
            try:
                examples, found = read(some)
            except AlbertKitError as error:
                problems = failures(read, some, start)
                raise source.error(problems, count=start + len(some)) if problems else error from error
            start += len(some)
            if not checked:
                unknown.add(self._rows(found), count=len(some))
                checked = unknown.warn()  # once is enough
            yield from answer(examples, found)

    def _check(self, items: list[Any], source: Source, read: _Read) -> None:
        """Raise one error for all inputs that cannot be answered, before anything is computed."""
        unknown, problems = UnknownTokens(self.tokenizer), dict[int, AlbertKitError]()
        for start in range(0, len(items), _INPUTS_AHEAD):
            some = items[start : start + _INPUTS_AHEAD]
            try:
                unknown.add(self._rows(read(some)[1]), count=len(some))
            except AlbertKitError:
                if not (found := failures(read, some, start)):
                    raise
                problems |= found
        if problems:
            raise source.error(problems, count=len(items))
        unknown.warn()

    def _expected(self) -> str:
        return "a text"

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
