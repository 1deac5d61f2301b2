"""The schemas of requests, used for validation and for the OpenAPI description.

A request has its task, its size, and the call of the pipeline. Values are not converted: a number in quotes
is an error.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np

from albertkit.checkpoints.sentence_modules import Pooling
from albertkit.errors import DataError
from albertkit.inspection.attention import InsideEngine, compute_attention
from albertkit.inspection.page import page_figures
from albertkit.pipelines.interface import Pipeline
from albertkit.pipelines.masked_lm import FillMaskPipeline
from albertkit.pipelines.zero_shot_classification import TEMPLATE, as_labels
from albertkit.serving import request_fields as fields
from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import SPECIAL_CHARACTERS, QueuedEngine
from albertkit.serving.request_fields import Field, ListField
from albertkit.tasks.entities import Aggregation
from albertkit.tasks.feature_extraction import text_vectors
from albertkit.tasks.label_kinds import Function
from albertkit.tasks.multiple_choice import GAP

_LIGATURES = {"\ufdfa": 17, "\ufdfb": 7}  # Arabic ligature -> number of characters that normalization adds
_PLACE = re.compile(r"^input (\d+) \(counted from 0\):")
_TRUNCATION = re.compile(r"(, or allow truncation )\(truncation=True[^)]*\)")


class TaskRequest(fields.Strict):
    """The fields of every request: a model, and one or several inputs."""

    task: ClassVar[str | None] = None
    """Task of the pipeline that computes the response; None for any pipeline."""
    computes: ClassVar[bool] = True
    """Whether the model computes the response; False if only the tokenizer is needed."""

    model: fields.Name | None = Field(
        None, description="Name of the model. Default: the first model for the task."
    )
    input: Any

    def items(self) -> list[Any]:
        """Return the inputs as a list."""
        return self.input if isinstance(self.input, list) else [self.input]

    def characters(self) -> int:
        """Return the number of characters to tokenize."""
        return sum(map(_characters, self.items()))

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the result of the task's pipeline for each input."""
        raise NotImplementedError

    def field_of(self, error: Exception) -> str:
        """Return the name of the field that caused an error of the pipeline."""
        name = str(error).partition(" ")[0]  # "top_k is 100. Expected ..."
        return name if name in type(self).model_fields else "input"

    def message_for_client(self, message: str) -> str:
        """Return an error message of the pipeline with the names of the request's fields."""
        advice = r'\1("truncate": true)' if "truncate" in type(self).model_fields else ""
        place = r"input[\1]:" if isinstance(self.input, list) else "input:"
        return _PLACE.sub(place, _TRUNCATION.sub(advice, message))


class FillMaskRequest(TaskRequest):
    """Texts with [MASK]."""

    task = "fill-mask"
    input: str | fields.Texts
    top_k: fields.Count = 5
    targets: fields.Targets | None = Field(
        None, description="Score only these words. Each must be one piece of the vocabulary."
    )

    def characters(self) -> int:
        """Also count the characters of the results: each candidate of each mask repeats the text."""
        repeated = sum(len(text) * text.count("[MASK]") * self.top_k for text in self.items())
        return super().characters() + sum(map(len, self.targets or [])) + repeated // 20

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the candidates of each mask of each text."""
        if self.targets is not None:
            try:
                cast(FillMaskPipeline, pipeline).masked_lm.target_ids(self.targets)
            except DataError as error:
                raise ApiError(422, "invalid", str(error), param="targets") from error
        answers = pipeline(self.items(), top_k=self.top_k, targets=self.targets)
        return [masks if isinstance(masks[0], list) else [masks] for masks in answers]


class ClassifyRequest(TaskRequest):
    """Texts, or pairs of texts."""

    task = "text-classification"
    input: str | fields.TextPair | fields.TextsAndPairs
    top_k: fields.Count | None = Field(
        default_factory=lambda: None,  # the schema shows no default, because null and a missing field differ
        description="Number of labels, best first; null for all. Default: the best label, or for a "
        "multi-label model all labels with a probability above 0.5.",
    )
    function_to_apply: Function | None = None
    truncate: bool = Field(
        False,
        description="Truncate texts that exceed the maximum length, and report the number of removed tokens.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the labels of each input."""
        given = {"top_k": self.top_k} if "top_k" in self.model_fields_set else {}
        answers = pipeline(
            _plain(self.items()),
            **given,
            function_to_apply=self.function_to_apply,
            truncation=self.truncate,
        )
        return _lists(answers)


class ZeroShotRequest(TaskRequest):
    """Texts and candidate labels, for a model for natural language inference."""

    task = "zero-shot-classification"
    input: str | fields.Texts
    candidate_labels: fields.CandidateLabels
    hypothesis_template: fields.Name = Field(
        TEMPLATE, description="Hypothesis to test for each label. The label replaces {}."
    )
    multi_label: bool = Field(
        False, description="Score each label independently. By default, the scores of all labels sum to 1."
    )
    truncate: bool = Field(
        False,
        description="Truncate texts that exceed the maximum length, but not the labels. Report the number of "
        "removed tokens.",
    )

    def characters(self) -> int:
        """Count a row for each text and label: the text, the hypothesis and the special tokens."""
        count = len(self.candidate_labels)
        hypotheses = count * (SPECIAL_CHARACTERS + _characters(self.hypothesis_template))
        hypotheses += sum(map(_characters, self.candidate_labels))
        return count * super().characters() + len(self.items()) * hypotheses

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the labels of each text, best first."""
        answers = pipeline(
            self.items(),
            candidate_labels=self.candidate_labels,
            hypothesis_template=self.hypothesis_template,
            multi_label=self.multi_label,
            truncation=self.truncate,
        )
        return list(map(as_labels, answers))


class TagRequest(TaskRequest):
    """Texts of any length."""

    task = "token-classification"
    input: str | fields.Texts
    aggregation_strategy: Aggregation = "none"
    ignore_labels: fields.Labels = Field(["O"])
    stride: fields.Overlap | None = Field(
        None, description="Overlap of the windows of a long text, in tokens. null: 64."
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the entities of each text."""
        return pipeline(
            self.items(),
            aggregation_strategy=self.aggregation_strategy,
            ignore_labels=self.ignore_labels,
            stride=self.stride,
        )


class AnswerRequest(TaskRequest):
    """Questions, each with its context of any length."""

    task = "question-answering"
    input: fields.Question | fields.Questions
    top_k: fields.Count = 1
    max_answer_tokens: fields.Length | None = Field(
        None, description="Maximum number of tokens of an answer. null: as in the fine-tuning, or 30."
    )
    handle_impossible_answer: bool | None = Field(
        None, description="Whether 'no answer' is a possible result. null: as in the fine-tuning."
    )
    doc_stride: fields.Overlap | None = Field(
        None,
        description="Overlap of the windows of a long context, in tokens. null: as in the fine-tuning, or "
        "128.",
    )
    max_seq_len: fields.WindowLength | None = Field(
        None, description="Maximum length of a window in tokens. null: as in the fine-tuning, or 384."
    )
    max_question_len: fields.Length | None = Field(
        None,
        description="Maximum number of tokens of a question. A longer question is an error. null: half of a "
        "window.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the answers to each question, best first."""
        answers = pipeline(
            _plain(self.items()),
            top_k=self.top_k,
            max_answer_len=self.max_answer_tokens,
            handle_impossible_answer=self.handle_impossible_answer,
            doc_stride=self.doc_stride,
            max_seq_len=self.max_seq_len,
            max_question_len=self.max_question_len,
        )
        return _lists(answers)


class ChooseRequest(TaskRequest):
    """Contexts, each with its choices."""

    task = "multiple-choice"
    input: fields.Choices | Annotated[list[fields.Choices], ListField(min_length=1)]
    truncate: bool = Field(
        False,
        description="Truncate contexts that exceed the maximum length, and report the number of removed "
        "tokens.",
    )

    def characters(self) -> int:
        """Count a context once for each choice, and a choice once for each gap of the question."""
        return sum(
            (len(item.context) + len(item.question or "")) * len(item.choices)
            + sum(map(len, item.choices)) * max(1, (item.question or "").count(GAP))
            for item in self.items()
        )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the best choice for each context."""
        return pipeline(_plain(self.items()), truncation=self.truncate)


class OrderRequest(TaskRequest):
    """Pairs of texts."""

    task = "sentence-order"
    input: fields.OrderedPair | Annotated[list[fields.OrderedPair], ListField(min_length=1)]
    truncate: bool = Field(
        False,
        description="Truncate pairs that exceed the maximum length, and report the number of removed tokens.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the predicted order of each pair."""
        return pipeline(_plain(self.items()), truncation=self.truncate)


class EmbeddingsRequest(TaskRequest):
    """Texts: the request of OpenAI's embeddings, with further options."""

    task = "feature-extraction"
    input: str | fields.Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="If set, it must be the size of the model's vectors.")
    user: fields.Name | None = Field(None, description="Ignored.")
    pooling: Pooling | None = Field(
        None,
        description="How to combine the vectors of the tokens into one vector. null: the model's pooling, or "
        "mean.",
    )
    normalize: bool = Field(True, description="Scale the vectors to length 1.")
    prompt_name: fields.Name | None = Field(
        None,
        description="Name of the model's prompt to prepend to each text. null: the model's default prompt.",
    )
    truncate: bool = Field(False, description="Truncate texts that exceed the maximum length.")

    def results(self, pipeline: Any) -> list[Any]:
        """Return the vector of each text."""
        pooling = self.pooling or pipeline.pooling or "mean"
        config = pipeline.model.config
        size = text_vectors(config, pooling=pooling).size(config.hidden_size)
        if self.dimensions not in (None, size):
            raise ApiError(
                422,
                "invalid",
                f"dimensions is {self.dimensions}. Expected {size}, the size of this model's vectors.",
                param="dimensions",
            )
        vectors: Sequence[np.ndarray] = pipeline(
            self.items(),
            pooling=pooling,
            normalize=self.normalize,
            prompt_name=self.prompt_name,
            truncation=self.truncate,
            return_tensors="np",
        )
        return [
            {
                "object": "embedding",
                "index": number,
                "embedding": _base64(vector) if self.encoding_format == "base64" else vector.tolist(),
            }
            for number, vector in enumerate(vectors)
        ]


class TokenizeRequest(TaskRequest):
    """Texts, or pairs of texts, to tokenize."""

    computes = False
    input: str | fields.TextPair | fields.TextsAndPairs
    masks: bool = Field(False, description="Parse [MASK] in a text as the mask token, as fill-mask does.")

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the tokens of each input."""
        tokenizer = pipeline.tokenizer
        parse = "mask" if self.masks else False
        rows = [tokenizer(*_pair(item), verbose=False, parse_special_tokens=parse) for item in self.items()]
        cast(QueuedEngine, pipeline.engine).ticket.add_tokens(sum(len(row["input_ids"]) for row in rows))
        return [
            {
                "input_ids": row["input_ids"],
                "token_type_ids": row["token_type_ids"],
                "tokens": tokenizer.convert_ids_to_tokens(row["input_ids"]),
                "offsets": list(map(list, row[0].offsets)),
            }
            for row in rows
        ]


class InspectRequest(TaskRequest):
    """One text, or a pair of texts, to inspect: attention by layer and head, hidden states by layer."""

    input: str | fields.TextPair
    masks: bool = Field(False, description="Parse [MASK] in a text as the mask token, as fill-mask does.")
    truncate: bool = Field(
        False,
        description="Truncate a text that is too long to show, and report the number of removed tokens.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return a list with the inspection of the text."""
        text, text_pair = _pair(self.input)
        report = compute_attention(
            pipeline.model,
            pipeline.tokenizer,
            text,
            text_pair,
            truncation=self.truncate,
            parse_special_tokens="mask" if self.masks else False,
            engine=replace(cast(QueuedEngine, pipeline.engine), engine=InsideEngine(pipeline.model)),
        )
        return [page_figures(report)]


def _pair(item: str | fields.TextPair) -> tuple[str, str | None]:
    return (item.text, item.text_pair) if isinstance(item, fields.TextPair) else (item, None)


def _characters(item: Any) -> int:
    if isinstance(item, str):
        return len(item) + sum(item.count(character) * more for character, more in _LIGATURES.items())
    return sum(_characters(value) for _, value in item if isinstance(value, str))


def _plain(items: list[Any]) -> list[Any]:
    return [item if isinstance(item, str) else item.model_dump() for item in items]


def _lists(answers: list[Any]) -> list[list[Any]]:
    return [answer if isinstance(answer, list) else [answer] for answer in answers]


def _base64(vector: np.ndarray) -> str:
    """Return a vector in the format of OpenAI's clients: little-endian float32 in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
