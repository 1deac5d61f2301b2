"""Pipelines: texts in, answers out, in the shapes that users of `transformers` know.

    fill = pipeline("fill-mask")                     # the bundled model
    fill("The captain opened the [MASK].", top_k=3)  # [{score, token, token_str, sequence}, ...]

One text gives one answer, a list of texts a list of answers, and any other iterable a generator, which reads
some batches ahead. Texts of about one length share a batch, whatever order they come in; the answers keep
the order of the texts and do not depend on the batch.

Shapes: B batch, T tokens, H hidden, P masked positions, V vocabulary.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor

from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError, ConfigError, DataError
from albertkit.hub import BUNDLED
from albertkit.modeling.loading import choose_device
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.tasks.feature_extraction import FeatureExtraction, Pooling, check_pooling, pool
from albertkit.tasks.masked_lm import Candidates, MaskedLM, MaskedRow
from albertkit.tasks.rows import evaluating, run_rows
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.interface import TokenizerInterface

Device = int | str | torch.device | None

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
        if not isinstance(inputs, Iterable):
            raise DataError(
                f"received {inputs!r:.60} ({type(inputs).__name__}); expected a text or an iterable"
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


class FillMaskPipeline(Pipeline):
    """The words that fit a mask; `pipeline("fill-mask")` makes one."""

    task = "fill-mask"
    model_class = AlbertForMaskedLM
    accepts = (AlbertForMaskedLM, AlbertForPreTraining)

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int = 32,
        top_k: int = 5,
        targets: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__(model, tokenizer, batch_size=batch_size)
        self.masked_lm = MaskedLM(tokenizer, max_length=model.config.max_position_embeddings)
        self.top_k = top_k
        self.targets = targets

    def __call__(
        self,
        inputs: str | Iterable[str],
        *,
        top_k: int | None = None,
        targets: str | Sequence[str] | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Fill in every [MASK].

        Args:
            inputs: a text, a list of texts, or an iterable of texts, each with one mask or more.
            top_k: how many words for each mask.
            targets: score only these words. Each must be one piece of the vocabulary; "man" is the word, in
                the vocabulary "_man" with its word-start mark.
            batch_size: rows computed at once.

        Returns:
            For a text with one mask a list of {score, token, token_str, sequence}, best first; with several
            masks a list of such lists, each mask scored with the others in place. In a text over the model's
            length each mask is scored in a window of its tokens with the mask in the middle, and `window` in
            each answer gives the characters (start, end) that were read. A list or generator of these for
            a list or other iterable of texts.

        Raises:
            DataError: a text without a mask, or a target that is not one piece.
            ConfigError: `top_k` or `batch_size` out of range.
        """
        wanted = self.targets if targets is None else targets
        answer = partial(
            self._answer,
            top_k=self.top_k if top_k is None else top_k,
            target_ids=None if wanted is None else self.masked_lm.target_ids(wanted),
        )
        return self._run(inputs, answer, batch_size)

    def _answer(
        self, texts: list[str], *, batch_size: int, top_k: int, target_ids: list[int] | None
    ) -> list[Any]:
        features = self.masked_lm.features(texts)
        rows = [row for one in features for row in one.rows]

        def forward(numbers: list[int], input_ids: Tensor, mask: Tensor) -> Iterator[list[Candidates]]:
            logits = self._masked_logits([rows[number] for number in numbers], input_ids, mask)
            candidates = iter(self.masked_lm.candidates(logits, top_k=top_k, target_ids=target_ids))
            return (list(islice(candidates, len(rows[number].mask_positions))) for number in numbers)

        found = iter(self._compute([row.input_ids for row in rows], forward, batch_size))
        return [
            self.masked_lm.predictions(one, [word for row in islice(found, len(one.rows)) for word in row])
            for one in features
        ]

    def _masked_logits(self, rows: list[MaskedRow], input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the scores (P, V) at the masks of the rows, in their order; no other position is scored."""
        length = input_ids.shape[1]
        places = [
            number * length + position for number, row in enumerate(rows) for position in row.mask_positions
        ]
        output = self.model(
            input_ids,
            attention_mask,
            masked_positions=torch.tensor(places, device=input_ids.device),
            return_dict=True,
        )
        return output.prediction_logits if isinstance(self.model, AlbertForPreTraining) else output.logits


class FeatureExtractionPipeline(Pipeline):
    """The encoder's vectors for a text; `pipeline("feature-extraction")` makes one."""

    task = "feature-extraction"
    model_class = AlbertModel
    accepts = (AlbertPreTrainedModel,)

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int = 32,
        pooling: Pooling | None = None,
        truncation: bool = False,
        return_tensors: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, batch_size=batch_size)
        check_pooling(pooling)
        self.encoder = model.base_model
        self.feature_extraction = FeatureExtraction(
            tokenizer, max_length=model.config.max_position_embeddings
        )
        self.pooling: Pooling | None = pooling
        self.truncation = truncation
        self.return_tensors = return_tensors

    def __call__(
        self,
        inputs: str | Iterable[str],
        *,
        pooling: Pooling | None = None,
        truncation: bool | None = None,
        return_tensors: bool | None = None,
        parse_special_tokens: bool | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Encode texts.

        Args:
            inputs: a text, a list of texts, or an iterable of texts.
            pooling: "mean" (of all tokens, [CLS] and [SEP] included) or "cls" for one vector per text; None
                for one per token.
            truncation: cut a text that is longer than the model reads, instead of raising.
            return_tensors: tensors on the CPU in place of lists.
            parse_special_tokens: False reads `[SEP]` and the like, written in a text, as plain text.
            batch_size: rows computed at once.

        Returns:
            For a text [1, T, H] as nested lists, with pooling [H]; tensors of these shapes with
            `return_tensors`. A list or generator of these for a list or other iterable of texts.

        Raises:
            DataError: a text is longer than the model reads.
            ConfigError: unknown `pooling`, or `batch_size` below 1.
        """
        check_pooling(pooling)
        answer = partial(
            self._answer,
            pooling=self.pooling if pooling is None else pooling,
            truncation=self.truncation if truncation is None else truncation,
            return_tensors=self.return_tensors if return_tensors is None else return_tensors,
            parse_special_tokens=parse_special_tokens,
        )
        return self._run(inputs, answer, batch_size)

    def _answer(
        self,
        texts: list[str],
        *,
        batch_size: int,
        pooling: Pooling | None,
        truncation: bool,
        return_tensors: bool,
        parse_special_tokens: bool | None,
    ) -> list[Any]:
        rows = self.feature_extraction.features(
            texts, truncation=truncation, parse_special_tokens=parse_special_tokens
        )

        def forward(numbers: list[int], input_ids: Tensor, mask: Tensor) -> Iterable[Tensor]:
            hidden_states = self.encoder(input_ids, mask, return_dict=True).last_hidden_state  # (B, T, H)
            if pooling is not None:
                return pool(hidden_states, mask, pooling).cpu()
            return [
                hidden_states[place, : len(rows[number])][None].cpu() for place, number in enumerate(numbers)
            ]

        features = self._compute(rows, forward, batch_size)
        return features if return_tensors else [one.tolist() for one in features]


_PIPELINES: dict[str, type[Pipeline]] = {
    one.task: one for one in (FillMaskPipeline, FeatureExtractionPipeline)
}


@overload
def pipeline(task: Literal["fill-mask"], model: Any = None, **options: Any) -> FillMaskPipeline: ...
@overload
def pipeline(
    task: Literal["feature-extraction"], model: Any = None, **options: Any
) -> FeatureExtractionPipeline: ...
@overload
def pipeline(task: str | None = None, model: Any = None, **options: Any) -> Pipeline: ...
def pipeline(
    task: str | None = None,
    model: str | Path | AlbertPreTrainedModel | None = None,
    tokenizer: str | Path | TokenizerInterface | None = None,
    *,
    config: AlbertConfig | str | Path | None = None,
    device: Device = None,
    device_map: Any = None,
    dtype: torch.dtype | str | None = None,
    torch_dtype: torch.dtype | str | None = None,
    use_fast: bool | None = None,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    **defaults: Any,
) -> Pipeline:
    """Make the pipeline for a task.

    Args:
        task: "fill-mask" or "feature-extraction".
        model: a folder, a hub name, or a model; None for the bundled model.
        tokenizer: a folder, a hub name, or a tokenizer; None for the one beside the model. Must be given with
            a model that is loaded already.
        config: in place of the checkpoint's own.
        device: "cpu", "cuda:1", "mps" ...; -1 for the CPU, 0, 1 ... for a GPU by number (with a warning the
            CPU, where there is none at all). None for the best single device (CUDA, then MPS, then CPU); a
            model that is loaded already stays where it is. `device_map` is another name.
        dtype: type of the weights, default float32; `torch_dtype` is its older name.
        use_fast: which of the two tokenizer classes; their answers are the same.
        revision, cache_dir, token, local_files_only: for hub names, as in huggingface_hub.
        defaults: `batch_size` and arguments of the call, such as `top_k=3`, for every call.

    Raises:
        ModelNotFoundError: a name or folder that leads to no model.
        CheckpointError: the weights are damaged, or lack the head that the task needs.
        ConfigError: an unknown task or device, or a model that does not fit the task.
        TokenizerError: the tokenizer is damaged, or is none of ALBERT's.
    """
    chosen = _PIPELINES.get(task or "")
    if chosen is None:
        raise ConfigError(f"the task is {task!r}; expected one of {', '.join(_PIPELINES)}")
    if device is not None and device_map is not None:
        raise ConfigError("device and device_map are one argument; give device only")
    hub_options: dict[str, Any] = {
        "revision": revision,
        "cache_dir": cache_dir,
        "token": token,
        "local_files_only": local_files_only,
    }
    place = _read_device(device if device_map is None else device_map)
    dtype = dtype if torch_dtype is None else torch_dtype
    if isinstance(model, AlbertPreTrainedModel):
        if tokenizer is None:
            raise ConfigError("a model that is loaded already does not say its tokenizer; give tokenizer=...")
        if config is not None or dtype is not None:
            raise ConfigError("config and dtype are for loading a model; this one is loaded already")
        if place is not None:
            model.to(place)
    else:
        model = BUNDLED if model is None else model
        tokenizer = model if tokenizer is None else tokenizer
        model = _load(chosen, model, place or choose_device("auto"), config, dtype, hub_options)
    if isinstance(tokenizer, str | Path):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer, use_fast=use_fast, **hub_options)
    return chosen(model, tokenizer, **defaults)


def _load(
    chosen: type[Pipeline],
    name: str | Path,
    device: torch.device,
    config: AlbertConfig | str | Path | None,
    dtype: torch.dtype | str | None,
    hub_options: dict[str, Any],
) -> AlbertPreTrainedModel:
    with warnings.catch_warnings():  # the report is judged below, by what the task needs
        warnings.simplefilter("ignore", UserWarning)
        loaded: Any = chosen.model_class.from_pretrained(
            name, config=config, dtype=dtype, device_map=device, output_loading_info=True, **hub_options
        )
    model, info = loaded
    report = info["report"]
    # Features come from the encoder alone, and a checkpoint without a pooler has all of that.
    missing = [tensor for tensor in report.missing if not tensor.startswith("pooler.")]
    if missing:
        raise CheckpointError(
            f"{str(name)!r} was not trained for {chosen.task}: its weights lack {', '.join(missing)}. "
            "Give a checkpoint that has them"
        )
    if report.unexpected or report.conflicting:
        warnings.warn(f"{name}: {report}", UserWarning, stacklevel=3)
    return model


def _read_device(device: Device) -> torch.device | None:
    """Return the device meant, as `transformers` reads numbers; None where none was given."""
    if device is None:
        return None
    if isinstance(device, str) and device.lstrip("-").isdecimal():
        device = int(device)
    if isinstance(device, int):
        best = choose_device("auto" if device >= 0 else "cpu")
        if device >= 0 and best.type == "cpu":
            warnings.warn(f"device={device}, but this machine has no GPU: using the CPU", stacklevel=3)
        if best.type == "cpu":
            return best
        device = f"{best.type}:{device}"
    try:
        chosen = choose_device(device)
        torch.empty(0, device=chosen)  # a device that torch can name may still not be here
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device {str(device)!r} cannot be used ({str(error).splitlines()[0]}); expected such as 'cpu', "
            "'cuda', 'cuda:1', 'mps', or a number, of a device that this machine has"
        ) from error
    return chosen


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
