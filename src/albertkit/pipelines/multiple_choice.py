"""The pipeline that chooses among answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from albertkit.datasets.examples import ChoiceExample
from albertkit.errors import ConfigError, DataError, short
from albertkit.inputs import CHOICE_FIELDS, CHOICES_FIELD
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.settings import TaskSettings


class MultipleChoicePipeline(Pipeline):
    """Chooses the best answer to a question about a context; `pipeline("multiple-choice")` creates it."""

    task = "multiple-choice"
    architecture = "AlbertForMultipleChoice"
    fields = CHOICE_FIELDS
    rest = CHOICES_FIELD
    expected = '{"context": "...", "question": "...", "choices": ["...", "..."]}'
    without_defaults = ("context", "question", "choices")
    by_name = 'Pass context="...", question="..." and choices=["...", "..."] by name'

    def __call__(
        self,
        inputs: Mapping[str, Any] | Iterable[Any] | Path | None = None,
        *others: Any,
        context: str | None = None,
        question: str | None = None,
        choices: Sequence[str] | None = None,
        truncation: bool | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Choose the best answer.

        Args:
            inputs: {"context": ..., "question": ..., "choices": [...]}, where the question is optional;
                a list or other iterable of these; or a file: .jsonl, or .tsv with the columns context,
                question (may be empty) and one column for each choice.
            others: not supported; a second positional argument raises an error.
            context: the context of a single input, instead of `inputs`.
            question: the question of that input; optional.
            choices: the choices of that input, at least two.
            truncation: True truncates a context at its end if the input exceeds the maximum length of the
                fine-tuning, or the model's maximum if the config has none; False raises an error. The answer
                for a truncated context has `cut`, the maximum number of tokens removed for a choice. Default:
                True for a model with a maximum length of the fine-tuning, otherwise False.
            batching: `batch_size`, the maximum number of rows in a batch (each choice is a row);
                `num_workers`, which has no effect.

        Returns:
            {choice, index, score, scores}: the best choice, its index from 0, its probability, and the
            probabilities of all choices. A list or generator of these for several inputs.

        Raises:
            DataError: an input is invalid, has fewer than two choices, or its context is too long.
            ConfigError: `batch_size` is below 1.
        """
        if inputs is None and not others:
            inputs = {"context": context, "question": question, "choices": choices}
        elif (context, question, choices) != (None, None, None):
            raise ConfigError("the choices are passed twice. Pass inputs, or context, question and choices.")
        trained = self.trained_length
        truncation = self._option("truncation", truncation, trained is not None)
        if not isinstance(truncation, bool):  # only the context can be truncated
            raise ConfigError(f"truncation is {truncation!r}. Expected True or False.")
        settings = TaskSettings(max_length=trained, truncation=truncation)
        task = MultipleChoice().bind(self.tokenizer, self.model.config, settings)

        def answer(example: ChoiceExample, predicted: Any, cut: dict[str, int]) -> dict[str, Any]:
            index, scores = predicted.choice, predicted.scores
            best = {"choice": example.choices[index], "index": index, "score": scores[index]}
            return best | {"scores": scores, **cut}

        return self._run_task(inputs, others, task, answer, **batching)

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, Mapping)

    def _read(self, given: Any) -> ChoiceExample:
        if isinstance(given, Mapping) and given.keys() <= {"context", "question", "choices"}:
            context, question, choices = (given.get(name) for name in ("context", "question", "choices"))
            if (
                isinstance(context, str)
                and isinstance(question, str | None)
                and isinstance(choices, list | tuple)
                and all(isinstance(choice, str) for choice in choices)
            ):
                return ChoiceExample(
                    id=context[:40], context=context, question=question, choices=tuple(choices)
                )
        raise DataError(
            f"received {short(given)} ({type(given).__name__}). Expected {self.expected}, where the "
            "question is optional."
        )
