"""The pipeline that answers questions with a span of a context."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from albertkit.datasets.examples import QuestionExample
from albertkit.errors import ConfigError, DataError, short
from albertkit.inputs import QUESTION_FIELDS
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import check_size
from albertkit.tasks.question_answering import THRESHOLD_KEY, Answered, QuestionAnswering
from albertkit.tasks.settings import TaskSettings, saved_lengths


class QuestionAnsweringPipeline(Pipeline):
    """Answers a question with a span of a context; `pipeline("question-answering")` creates it.

    If the model's config has `null_score_diff_threshold` (saved by fine-tuning on data with unanswerable
    questions), the result can be that there is no answer.
    """

    task = "question-answering"
    architecture = "AlbertForQuestionAnswering"
    fields = QUESTION_FIELDS
    expected = '{"question": "...", "context": "..."}'
    without_defaults = ("question", "context")
    by_name = 'Pass question="..." and context="..." by name'

    def __call__(
        self,
        inputs: Mapping[str, str] | Iterable[Any] | Path | None = None,
        *others: Any,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        top_k: int | None = None,
        doc_stride: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        max_answer_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Answer questions.

        Args:
            inputs: {"question": ..., "context": ...}; a list or other iterable of these; or a file: .tsv with
                these two columns, .jsonl.
            others: not supported; a second positional argument raises an error.
            question: the question, or a list of questions, instead of `inputs`.
            context: the context of the question; or a list with one context for each question, or a single
                context for all of them.
            top_k: maximum number of answers. The answers do not overlap: of several overlapping answers, only
                the best is returned.
            doc_stride: overlap of the windows of a long context, in tokens. Default: the value of the
                fine-tuning, or 128.
            max_seq_len: maximum number of tokens of a window, up to the model's maximum. Default: the value
                of the fine-tuning, or 384.
            max_question_len: maximum number of tokens of a question; a longer question raises an error.
                Default: half of a window. The pipeline ignores the maximum of the fine-tuning.
            max_answer_len: maximum number of tokens of an answer. Default: the value of the fine-tuning, or
                30.
            handle_impossible_answer: whether "no answer" (an empty answer) is a possible result. None: only
                if the model's config has a threshold for it.
            batching: `batch_size`, the maximum number of windows in a batch; `num_workers`, which has no
                effect.

        Returns:
            For a question, {score, start, end, answer}: the answer is characters `start:end` of the context.
            With `top_k` above 1, a list of at most `top_k` answers, best first. For several questions, a list
            or generator of these. "No answer" is "" at 0:0. It comes before the answers whose logits it
            exceeds by more than the threshold, so a list is not always in the order of `score`.

        Raises:
            DataError: question or context is missing or empty, or a question is too long.
            ConfigError: a size is not a whole number, or is too small.
        """
        trained = {"doc_stride": 128, "max_length": 384, "max_answer_length": 30} | saved_lengths(
            self.model.config
        )

        def size(name: str, given: int | None, otherwise: int | None = None, *, least: int = 1) -> Any:
            return check_size(name, self._option(name, given, otherwise), least=least)

        count = size("top_k", top_k, 1)
        settings = TaskSettings(
            max_length=size("max_seq_len", max_seq_len, trained["max_length"]),
            doc_stride=size("doc_stride", doc_stride, trained["doc_stride"], least=0),
            max_question_length=size("max_question_len", max_question_len),
            max_answer_length=size("max_answer_len", max_answer_len, trained["max_answer_length"]),
            truncation=False,
        )
        task = QuestionAnswering(n_best=count).bind(self.tokenizer, self.model.config, settings)
        if inputs is None and not others:
            inputs = _join(question, context)
        elif question is not None or context is not None:
            raise ConfigError("questions are passed twice. Pass inputs, or question and context.")
        threshold: float | None = getattr(self.model.config, THRESHOLD_KEY, None)
        may_be_empty = self._option("handle_impossible_answer", handle_impossible_answer)
        if may_be_empty is not None:
            threshold = (threshold or 0.0) if may_be_empty else None

        def answer(example: QuestionExample, answered: Answered, cut: dict[str, int]) -> Any:
            del example, cut  # a long context is not truncated, but has several windows
            ranked = [
                {"score": one.score, "start": one.start, "end": one.end, "answer": one.text}
                for one in answered.ranked(threshold)[:count]
            ]
            return ranked[0] if count == 1 else ranked

        return self._run_task(inputs, others, task, answer, **batching)

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, Mapping)

    def _read(self, given: Any) -> QuestionExample:
        if isinstance(given, Mapping):
            question, context = given.get("question"), given.get("context")
            if isinstance(question, str) and isinstance(context, str):
                for name, text in (("question", question), ("context", context)):
                    if not text.strip():
                        raise DataError(f"the {name} is empty. Expected a text.")
                return QuestionExample(str(given.get("id", "")), question, context)
        raise DataError(
            f"received {short(given)} ({type(given).__name__}). Expected {self.expected}, two strings."
        )


def _join(question: str | list[str] | None, context: str | list[str] | None) -> Any:
    """Return questions and contexts as one input, or as a list."""
    if question is None or context is None:
        raise DataError("the question or the context is missing. Pass both, or inputs.")
    for name, given in (("question", question), ("context", context)):
        if not isinstance(given, Iterable):
            raise DataError(f"the {name} is {short(given)}. Expected a text or a list of texts.")
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise DataError(
            f"received {len(questions)} questions and {len(contexts)} contexts. Expected equal numbers, "
            "or one context."
        )
    return [{"question": one, "context": text} for one, text in zip(questions, contexts, strict=True)]
