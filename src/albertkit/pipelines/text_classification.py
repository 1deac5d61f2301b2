"""The pipeline that classifies texts and pairs, or predicts numbers for them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from albertkit.datasets.examples import TextExample
from albertkit.errors import ConfigError, DataError, short, warn_caller
from albertkit.inputs import PAIR_FIELDS
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import check_size, read_limits
from albertkit.tasks.labels import Function
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.text_classification import TextClassification

_UNSET: Any = ""  # not None, because top_k=None means all labels
_CUT_UNSEEN = (
    "a text was truncated, and no label has a probability above 0.5, so its answer is an empty list without "
    "`cut`. With top_k=None, the answer has all labels, and each has `cut`."
)


class TextClassificationPipeline(Pipeline):
    """Predicts the labels of a text or a pair; `pipeline("text-classification")` creates it."""

    task = "text-classification"
    aliases = ("sentiment-analysis",)
    architecture = "AlbertForSequenceClassification"
    fields = PAIR_FIELDS
    expected = "a text, a pair {text, text_pair}"
    without_defaults = ("text_pair",)
    by_name = 'Pass several texts as a list, and the second text of a pair as text_pair="..."'

    def __call__(
        self,
        inputs: str | Mapping[str, str] | tuple[str, str] | Iterable[Any] | Path,
        *others: Any,
        text_pair: str | None = None,
        top_k: int | None = _UNSET,
        function_to_apply: Function | None = None,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        padding: bool | str | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Classify texts or pairs of texts.

        Args:
            inputs: a text; a pair as {"text": ..., "text_pair": ...} or (text, text_pair); a list or other
                iterable of these; or a file: one text per line, .tsv with one or two columns, .jsonl.
            others: not supported; a second positional argument raises an error.
            text_pair: the second text, if `inputs` is a single text.
            top_k: number of labels to return; None for all. By default, the best label; for a model with
                `problem_type="multi_label_classification"`, all labels with a probability above 0.5, as
                in `albertkit predict`.
            function_to_apply: function that converts logits to scores: "softmax", "sigmoid" or "none"; None
                for the function of the config's `problem_type` (softmax; sigmoid for multi-label or a single
                label; none for regression).
            truncation: True truncates a text that exceeds the maximum length, or the longer text of a pair;
                False raises an error. "only_first" and "only_second" truncate that text of a pair. Each label
                of the answer then has `cut`, the number of removed tokens. Default: True for a model with a
                maximum length of the fine-tuning, if you do not pass `max_length`; otherwise False.
            max_length: maximum number of tokens of an input, including [CLS] and [SEP]. Default: the maximum
                length of the fine-tuning, or the model's maximum if its config has none.
            padding: accepted as for a tokenizer, but does not change the answers.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            For a text, [{label, score}]. For a pair, and for each of several inputs, {label, score}. With
            `top_k`, a list of `top_k` labels, best first. For a multi-label model without `top_k`, a list of
            the labels that apply, which may be empty. For several inputs, a list or generator of these.

        Raises:
            DataError: an input is not a text, or is too long.
            ConfigError: `top_k`, `max_length`, `batch_size` or the function is invalid.
            TokenizerError: truncation or padding is unknown.
        """
        chosen = self.defaults.get("top_k", _UNSET) if top_k is _UNSET else top_k
        if chosen is not _UNSET:
            check_size("top_k", chosen)
        strategy, longest = read_limits(
            self._option("truncation", truncation),
            self._option("max_length", max_length),
            self._option("padding", padding),
            most=self.max_length,
            trained=self.trained_length,
        )
        function = self._option("function_to_apply", function_to_apply)
        task = TextClassification(truncation=strategy, function_to_apply=function).bind(
            self.tokenizer, self.model.config, TaskSettings(max_length=longest)
        )
        decides = chosen is _UNSET and self.model.config.problem_type == "multi_label_classification"
        is_text = isinstance(inputs, str)
        if text_pair is not None and not is_text:
            raise ConfigError(
                "text_pair is the second text of a single text. Pass several pairs as (text, text_pair)."
            )

        def answer(example: TextExample, predicted: Any, cut: dict[str, int]) -> Any:
            if other := task.other_kind([example]):
                warn_caller(other)
            scores = zip(task.labels.names, predicted.scores, strict=True)
            labels = [{"label": label, "score": score, **cut} for label, score in scores]
            ranked = sorted(labels, key=lambda one: one["score"], reverse=True)
            if decides:
                if cut and not predicted.label:
                    warn_caller(_CUT_UNSEEN)
                return [one for one in ranked if one["label"] in predicted.label]
            return ranked[0] if chosen is _UNSET else ranked[:chosen]

        pairs = inputs if text_pair is None else (inputs, text_pair)
        answers = self._run_task(pairs, others, task, answer, **batching)
        # As in `transformers`, where a single text without top_k returns a list anyway.
        return [answers] if is_text and top_k is _UNSET and not decides else answers

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping) or is_pair(inputs)

    def _read(self, given: Any) -> TextExample:
        return read_text_or_pair(given)


def is_pair(given: Any) -> bool:
    """Return whether an input is a tuple (text, second text); a list means several texts."""
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(one, str) for one in given)


def read_text_or_pair(given: Any) -> TextExample:
    """Return a text or a pair in any of its forms as an example; raise DataError for anything else."""
    if isinstance(given, str):
        return TextExample(given)
    if isinstance(given, list) and len(given) == 1:  # [["a", "b"]]: a pair in an older form of `transformers`
        (inner,) = given
        if isinstance(inner, list | tuple) and is_pair(tuple(inner)):
            return TextExample(*inner)
    if is_pair(given):
        return TextExample(*given)
    if (
        isinstance(given, Mapping)
        and given.keys() <= {"text", "text_pair"}
        and isinstance(given.get("text"), str)
        and isinstance(given.get("text_pair"), str | None)
    ):
        return TextExample(**given)
    raise DataError(
        f"received {short(given)} ({type(given).__name__}) for a text. Expected a string, or for a pair "
        '{"text": "...", "text_pair": "..."} or a tuple of two strings.'
    )
