"""The pipeline that labels words: entities, chunks, parts of speech."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack, cast

from albertkit.datasets.examples import WordsExample
from albertkit.engines.light_model import Model
from albertkit.errors import DataError, short
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import check_size
from albertkit.tasks.entities import Aggregation, Entities
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.token_classification import TokenClassification
from albertkit.tasks.words import split_words
from albertkit.tokenization.base import TokenizerBase


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence(WordsExample):
    word_starts: list[int]  # for each word, the index of its first character in the text


class TokenClassificationPipeline(Pipeline):
    """Predicts the labels of the words in a text; `pipeline("token-classification")` creates it."""

    task = "token-classification"
    aliases = ("ner",)
    architecture = "AlbertForTokenClassification"
    without_defaults = ("is_split_into_words",)

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        TokenClassificationPipeline.__call__(self, [])  # raises now if a default is invalid

    def __call__(
        self,
        inputs: str | Sequence[str] | Iterable[Any] | Path,
        *others: Any,
        aggregation_strategy: Aggregation | None = None,
        ignore_labels: Collection[str] | None = None,
        is_split_into_words: bool = False,
        stride: int | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Label the words of texts.

        The pipeline splits a text into words like the training data of taggers: at spaces, and at the
        punctuation around words. It splits long texts into overlapping windows.

        Args:
            inputs: a text; a list or other iterable of texts; or a file with one text per line.
            others: not supported; a second positional argument raises an error.
            aggregation_strategy: "none" for every token, "simple" to group neighboring tokens of the same
                type; "first", "max" and "average" to group words (see `tasks.entities`).
            ignore_labels: labels, or entity types, to omit; default "O".
            is_split_into_words: whether the input is a list or array of words, or an iterable of lists of
                words. Offsets then refer to the words joined with spaces.
            stride: overlap of windows, in tokens; None for the pipeline's setting.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            For a text, a list of {entity, score, index, word, start, end}, or with aggregation, of
            {entity_group, score, word, start, end}. `start:end` are the characters in the text. For several
            texts, a list or generator of these lists.

        Raises:
            DataError: an input is not a text or a list of words.
            ConfigError: the strategy is unknown, `ignore_labels` is not a list of labels, `stride` is below
                0, or `batch_size` is below 1.
        """
        names = self.model.config.id2label
        entities = Entities(
            self.tokenizer,
            [names[number] for number in range(len(names))],
            aggregation=self._option("aggregation_strategy", aggregation_strategy, "none"),
            ignored_labels=self._option("ignore_labels", ignore_labels, ("O",)),
        )
        overlap = check_size("stride", self._option("stride", stride, 64), least=0)
        task = TokenClassification(stride=cast(int, overlap)).bind(
            self.tokenizer, self.model.config, TaskSettings(max_length=self.trained_length)
        )
        if is_split_into_words and isinstance(inputs, str):
            raise DataError(
                f"received {short(inputs)}. Expected a list of words, or is_split_into_words=False."
            )
        to_list = getattr(inputs, "to_pylist", getattr(inputs, "tolist", None))  # a column or an array
        if is_split_into_words and to_list is not None:
            inputs = to_list()
        one_sentence = is_split_into_words and isinstance(inputs, list | tuple) and _is_words(inputs)
        if one_sentence and not inputs:
            return []
        answers = self._run_task(
            [inputs] if one_sentence else inputs,
            others,
            task,
            lambda sentence, tagged, _: entities(tagged, sentence.word_starts),
            **batching,
        )
        return answers[0] if one_sentence else answers

    def _read(self, given: Any) -> _Sentence:
        if isinstance(given, str):
            spans = split_words(given)
            words = tuple(given[start:end] for start, end in spans)
            return _Sentence(words=words, word_starts=[start for start, _ in spans])
        if isinstance(given, list | tuple) and _is_words(given):
            lengths = [len(word) + 1 for word in given]  # with the space after the word
            return _Sentence(words=tuple(given), word_starts=[0, *accumulate(lengths)][: len(given)])
        raise DataError(
            f"received {short(given)} ({type(given).__name__}) for a text. Expected a string, or a "
            "list of words."
        )


def _is_words(given: Sequence[Any]) -> bool:
    return all(isinstance(word, str) for word in given)
