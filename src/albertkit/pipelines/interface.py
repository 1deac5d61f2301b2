"""What every pipeline does alike: one input, lists, iterables, files; batches by length; answers in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch

from albertkit.engines.choosing import make_engine
from albertkit.errors import ConfigError, DataError
from albertkit.inputs import format_of, read_inputs
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.engine import Engine
from albertkit.tokenization.interface import TokenizerInterface

_INPUTS_AHEAD = 512  # so many inputs of an iterable are sorted by length together ...
_BATCHES_AHEAD = 16  # ... or so many batches, where a batch has a number of rows


class Pipeline(ABC):
    """A task, a tokenizer and a model behind one call.

    Args:
        model: as `model_class` or another class that `accepts` holds; its mode (training or not) is kept.
        tokenizer: the one the model was trained with.
        batch_size: most rows computed at once; None for as many as `batch_tokens` allows. With 1, a
            generator's inputs are answered as they come.
        batch_tokens: most tokens computed at once; None for what suits the device.
        engine: "auto", "torch" (without padding), "plain" (the model is called), or an engine of the model.

    Raises:
        ConfigError: model and tokenizer do not fit the task or each other, or a batch would be empty.
    """

    task: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names of the task."""
    model_class: ClassVar[type[AlbertPreTrainedModel]]
    accepts: ClassVar[tuple[type[AlbertPreTrainedModel], ...]]
    fields: ClassVar[tuple[str, ...]] = ("text",)
    """What an input consists of: the keys of a mapping, the columns of a TSV file."""
    rest: ClassVar[str | None] = None
    """The field that takes all further columns."""

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        engine: str | Engine = "auto",
    ) -> None:
        if not isinstance(model, self.accepts):
            names = " or ".join(accepted.__name__ for accepted in self.accepts)
            raise ConfigError(f"{self.task} needs a model of class {names}, got {type(model).__name__}")
        if not isinstance(tokenizer, TokenizerInterface):
            raise ConfigError(f"expected a tokenizer of albertkit, got {type(tokenizer).__name__}")
        if len(tokenizer) > model.config.vocab_size:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} pieces and the model {model.config.vocab_size}: they do "
                "not belong together. (For tokens that you added: "
                "model.resize_token_embeddings(len(tokenizer)))"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = _check_size("batch_size", batch_size)
        self.batch_tokens = _check_size("batch_tokens", batch_tokens)
        self.engine = engine if isinstance(engine, Engine) else make_engine(model, engine)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def max_length(self) -> int:
        """Most tokens that the model reads."""
        return self.model.config.max_position_embeddings

    def _is_single(self, inputs: Any) -> bool:
        """Whether this is one input, and not several."""
        return isinstance(inputs, str)

    def _read(self, given: Any) -> Any:
        """Return one input as the task takes it; raise DataError for anything else."""
        if not isinstance(given, str):
            raise DataError(f"received {given!r:.80} ({type(given).__name__}) for a text; expected a string")
        return given

    def _run(self, inputs: Any, answer: Callable[..., list[Any]], batch_size: int | None) -> Any:
        """Give all inputs to `answer(inputs, batch_size=...)`, some batches of them at a time."""
        size = self.batch_size if batch_size is None else _check_size("batch_size", batch_size)
        answer = partial(answer, batch_size=size)
        if self._is_single(inputs):
            return answer([self._read(inputs)])[0]
        if isinstance(inputs, Path):
            if not inputs.exists():  # said at once, not when the first answer is asked for
                raise DataError(f"{inputs}: no such file")
            return self._stream(self._read_file(inputs), answer, size)
        # Iterating over a mapping would give its keys: no texts that anybody meant.
        if not isinstance(inputs, Iterable) or isinstance(inputs, str | Mapping):
            raise DataError(
                f"received {inputs!r:.60} ({type(inputs).__name__}); expected {self._expected()} or an "
                "iterable of these, or the path of a file"
            )
        answers = self._stream(inputs, answer, size)
        return list(answers) if isinstance(inputs, Sequence) or hasattr(inputs, "__len__") else answers

    def _expected(self) -> str:
        return "a text"

    def _read_file(self, path: Path) -> Iterator[Any]:
        with path.open("rb") as stream:
            yield from read_inputs(
                stream, str(path), format=format_of(path), fields=self.fields, rest=self.rest
            )

    def _stream(
        self, inputs: Iterable[Any], answer: Callable[[list[Any]], list[Any]], batch_size: int | None
    ) -> Iterator[Any]:
        inputs = iter(inputs)
        ahead = _INPUTS_AHEAD if batch_size is None else 1 if batch_size == 1 else batch_size * _BATCHES_AHEAD
        while some := list(islice(inputs, ahead)):
            yield from answer([self._read(one) for one in some])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__}, {self.tokenizer!r}, device={self.device})"

    @abstractmethod
    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Answer one input, a list of them, an iterable of them, or a file of them."""


def _check_size(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ConfigError(f"{name} is {value}; expected at least 1")
    return value
