"""What every pipeline does alike: one text, lists and iterables; batches by length; answers in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor

from albertkit.errors import ConfigError, DataError
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.rows import evaluating, run_rows
from albertkit.tokenization.interface import TokenizerInterface

_BATCHES_AHEAD = 16  # so many batches of texts are sorted by length together


class Pipeline(ABC):
    """A task, a tokenizer and a model behind one call.

    Args:
        model: as `model_class` or another class that `accepts` holds; its mode (training or not) is kept.
        tokenizer: the one the model was trained with.
        batch_size: rows computed at once. With 1, a generator's texts are answered as they come.

    Raises:
        ConfigError: model and tokenizer do not fit the task or each other, or `batch_size` is below 1.
    """

    task: ClassVar[str]
    model_class: ClassVar[type[AlbertPreTrainedModel]]
    accepts: ClassVar[tuple[type[AlbertPreTrainedModel], ...]]

    def __init__(
        self, model: AlbertPreTrainedModel, tokenizer: TokenizerInterface, *, batch_size: int = 32
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
        self.batch_size = _check_batch_size(batch_size)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def _run(
        self,
        inputs: str | Iterable[str],
        answer: Callable[..., list[Any]],
        batch_size: int | None,
    ) -> Any:
        """Give all texts to `answer(texts, batch_size=...)`, some batches of them at a time."""
        # Iterating over a mapping would give its keys: no texts that anybody meant.
        if not isinstance(inputs, Iterable) or isinstance(inputs, Mapping):
            raise DataError(
                f"received {inputs!r:.60} ({type(inputs).__name__}); expected a text or an iterable of texts"
            )
        size = self.batch_size if batch_size is None else _check_batch_size(batch_size)
        if isinstance(inputs, str):
            return answer([inputs], batch_size=size)[0]
        answers = _stream(inputs, partial(answer, batch_size=size), 1 if size == 1 else size * _BATCHES_AHEAD)
        return list(answers) if isinstance(inputs, Sequence) or hasattr(inputs, "__len__") else answers

    def _compute(
        self,
        rows: Sequence[list[int]],
        forward: Callable[[list[int], Tensor, Tensor], Iterable[Any]],
        batch_size: int,
    ) -> list[Any]:
        """Return what `forward` makes of each row, as `run_rows` does."""
        with evaluating(self.model):
            return run_rows(
                rows,
                forward,
                batch_size=batch_size,
                pad_token_id=self.tokenizer.pad_token_id,
                device=self.device,
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__}, {self.tokenizer!r}, device={self.device})"

    @abstractmethod
    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Answer one text, a list of texts, or an iterable of texts."""


def _stream(
    texts: Iterable[str], answer: Callable[[list[str]], list[Any]], texts_at_once: int
) -> Iterator[Any]:
    texts = iter(texts)
    while some := list(islice(texts, texts_at_once)):
        for text in some:
            if not isinstance(text, str):
                raise DataError(
                    f"received {text!r:.80} ({type(text).__name__}) for a text; expected a string"
                )
        yield from answer(some)


def _check_batch_size(batch_size: int) -> int:
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; expected at least 1")
    return batch_size
