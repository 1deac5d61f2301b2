"""The pipeline for questions about a text, answered by a place of it."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from albertkit.datasets.examples import QuestionExample
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, DataError
from albertkit.pipelines.interface import Batching, Pipeline, Shared
from albertkit.pipelines.limits import check_size
from albertkit.tasks.question_answering import THRESHOLD_KEY, Answer, Answered, QuestionAnswering, QuestionRow
from albertkit.tasks.settings import TaskSettings, saved_lengths
from albertkit.tokenization.base import TokenizerBase


class QuestionAnsweringPipeline(Pipeline):
    """The place of a text that answers a question; `pipeline("question-answering")` makes one.

    Where the model's config has `null_score_diff_threshold` (fine-tuning on questions without answers saves
    it), the answer may be that there is none.
    """

    task = "question-answering"
    architecture = "AlbertForQuestionAnswering"
    accepts = ("AlbertForQuestionAnswering",)
    fields = ("question", "context")
    by_name = 'Give question="..." and context="..." by name'

    def __init__(
        self,
        model: Model,
        tokenizer: TokenizerBase,
        *,
        top_k: int = 1,
        doc_stride: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        max_answer_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(model, tokenizer, **shared)
        self.top_k = top_k
        self.handle_impossible_answer = handle_impossible_answer
        trained = {"doc_stride": 128, "max_length": 384, "max_answer_length": 30} | saved_lengths(
            model.config
        )
        self.doc_stride = trained["doc_stride"] if doc_stride is None else doc_stride
        self.max_seq_len = trained["max_length"] if max_seq_len is None else max_seq_len
        self.max_question_len = max_question_len
        self.max_answer_len = trained["max_answer_length"] if max_answer_len is None else max_answer_len

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
            others: not accepted: a second positional argument is an error.
            question: the question, or a list of questions, in place of `inputs`.
            context: the context of the question; or a list with one context for each question, or a single
                context for all of them.
            top_k: maximum number of answers. None overlaps another: of those that do, the best is given.
            doc_stride: tokens that a window repeats from the one before, where the context needs several.
                Default: as in the fine-tuning, else 128.
            max_seq_len: most tokens of a window, at most what the model reads. Default: as in the
                fine-tuning, else 384.
            max_question_len: maximum number of tokens of a question; a longer one is an error. Default: half
                of a window, whatever length the fine-tuning cut its questions to.
            max_answer_len: most tokens of an answer. Default: as in the fine-tuning, else 30.
            handle_impossible_answer: whether "no answer" (an empty one) is an answer; None: where the config
                has a threshold for it.
            batching: `batch_size`, the maximum number of windows in a batch; `num_workers`, without effect.

        Returns:
            {score, start, end, answer} for a question: characters `start:end` of the context; with `top_k`
            over 1 a list of that many, best first, and fewer where the context has no more. A list or
            generator of these for several questions. "No answer" is "" at 0:0; it comes first where it beats
            the best answer by the threshold.

        Raises:
            DataError: no question and context, an empty one, or a question that is too long.
            ConfigError: a size that is no whole number, or too small.
        """
        count = self._size("top_k", top_k)
        settings = TaskSettings(
            max_length=self._size("max_seq_len", max_seq_len),
            doc_stride=self._size("doc_stride", doc_stride, least=0),
            max_question_length=self._size("max_question_len", max_question_len),
            max_answer_length=self._size("max_answer_len", max_answer_len),
            truncation=False,
        )
        task = QuestionAnswering(n_best=count).bind(self.tokenizer, self.model.config, settings)
        if inputs is None and not others:
            inputs = _join(question, context)
        elif question is not None or context is not None:
            raise ConfigError("questions are given twice; give inputs, or question and context")
        threshold = self._threshold(handle_impossible_answer)
        return self._run(
            inputs,
            others,
            features=task.features,
            answer=partial(self._answer, task=task, top_k=count, threshold=threshold),
            **batching,
        )

    def _size(self, name: str, given: int | None, *, least: int = 1) -> Any:
        """Return an argument of the call, or the pipeline's where the call has none."""
        return check_size(name, getattr(self, name) if given is None else given, least=least)

    def _threshold(self, wanted: bool | None) -> float | None:
        """Return by how much "no answer" must be better, None where it is not an answer."""
        wanted = self.handle_impossible_answer if wanted is None else wanted
        saved: float | None = getattr(self.model.config, THRESHOLD_KEY, None)
        if wanted is None:
            return saved
        return (saved or 0.0) if wanted else None

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, Mapping)

    def _read(self, given: Any) -> QuestionExample:
        if isinstance(given, Mapping):
            question, context = given.get("question"), given.get("context")
            if isinstance(question, str) and isinstance(context, str):
                for name, text in (("question", question), ("context", context)):
                    if not text.strip():
                        raise DataError(f"the {name} is empty; expected a text")
                return QuestionExample(str(given.get("id", "")), question, context)
        raise DataError(
            f"received {given!r:.80} ({type(given).__name__}); expected {self._expected()}, two strings"
        )

    def _expected(self) -> str:
        return '{"question": "...", "context": "..."}'

    def _answer(
        self,
        examples: list[QuestionExample],
        rows: list[QuestionRow],
        *,
        batch_size: int | None,
        task: QuestionAnswering,
        top_k: int,
        threshold: float | None,
    ) -> list[Any]:
        answers = []
        for answered in self._predict(task, examples, rows, batch_size):
            ranked = [_describe(one) for one in _rank(answered, threshold)[:top_k]]
            answers.append(ranked[0] if top_k == 1 else ranked)
        return answers


def _rank(answered: Answered, threshold: float | None) -> list[Answer]:
    """Return the answers, best first; "no answer" among them where there is a threshold or nothing else."""
    if threshold is None:
        return answered.answers or [answered.no_answer]
    bar = answered.no_answer.logit - threshold
    better = [one for one in answered.answers if one.logit >= bar]
    return [*better, answered.no_answer, *answered.answers[len(better) :]]


def _describe(answer: Answer) -> dict[str, Any]:
    return {"score": answer.score, "start": answer.start, "end": answer.end, "answer": answer.text}


def _join(question: str | list[str] | None, context: str | list[str] | None) -> Any:
    """Return questions and contexts as inputs: one, or a list."""
    if question is None or context is None:
        raise DataError("there is no question or no context; give both, or inputs")
    for name, given in (("question", question), ("context", context)):
        if not isinstance(given, Iterable):
            raise DataError(f"the {name} is {given!r:.80}; expected a text or a list of texts")
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise DataError(
            f"received {len(questions)} questions and {len(contexts)} contexts; expected as many, "
            "or one context"
        )
    return [{"question": one, "context": text} for one, text in zip(questions, contexts, strict=True)]
