"""The schemas of requests, used for validation and for the OpenAPI description.

A request has its task, its size, and the call of the pipeline. Values are not converted: a number in quotes
is an error.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np

from albertkit.checkpoints.sentence_modules import Pooling, sentence_modules
from albertkit.inspection.attention import InsideEngine, compute_attention
from albertkit.options import TEMPLATE
from albertkit.pipelines import Pipeline
from albertkit.serving import request_fields as fields
from albertkit.serving import response_schemas as responses
from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import SPECIAL_CHARACTERS, QueuedEngine
from albertkit.serving.request_fields import Field, ListField
from albertkit.tasks.entities import Aggregation
from albertkit.tasks.feature_extraction import text_vectors
from albertkit.tasks.labels import Function
from albertkit.tasks.multiple_choice import GAP

_NAMES = {"truncate": "truncation", "max_answer_tokens": "max_answer_len"}
"""Name of a field -> name of the option of the pipeline, if they differ."""
_PLACE = re.compile(r"^input (\d+) \(counted from 0\):")
_TRUNCATION = re.compile(r", or pass truncation=True\.")


class TaskRequest(fields.Strict):
    """The fields of every request: a model, and one or several inputs."""

    path: ClassVar[str]
    """Path of the route."""
    response: ClassVar[Mapping[str, Any]]
    """Names and types of the fields of the response, in addition to those of every response."""
    task: ClassVar[str | None] = None
    """Task of the pipeline that computes the response; None for any pipeline."""
    computes: ClassVar[bool] = True
    """Whether the model computes the response; False if only the tokenizer is needed."""

    counting: ClassVar[str] = "has {}"
    """How a request has so many characters, for errors."""
    to_send_less: ClassVar[str] = "Send less text in one request"
    """What to do about too many characters."""

    model: fields.Name | None = Field(
        None, description="Name of the model. Default: the first model for the task."
    )
    input: Any

    def items(self) -> list[Any]:
        """Return the inputs as a list."""
        return self.input if isinstance(self.input, list) else [self.input]

    def characters(self) -> int:
        """Return the number of characters to tokenize."""
        return sum(map(fields.characters, self.items()))

    def options(self) -> dict[str, Any]:
        """Return the options of the pipeline: the fields, by its names."""
        return {_NAMES.get(name, name): value for name, value in self if name not in ("model", "input")}

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the result of the task's pipeline for each input."""
        return pipeline(fields.plain(self.items()), **self.options())

    def content(self, results: list[Any]) -> dict[str, Any]:
        """Return the fields of the response."""
        return {"results": results}

    def field_of(self, error: Exception) -> str:
        """Return the name of the field that caused an error of the pipeline."""
        name = str(error).partition(" ")[0]  # "top_k is 100. Expected ..."
        return name if name in type(self).model_fields else "input"

    def message_for_client(self, message: str) -> str:
        """Return an error message of the pipeline with the names of the request's fields."""
        advice = ', or set "truncate" to true.' if "truncate" in type(self).model_fields else "."
        place = r"input[\1]:" if isinstance(self.input, list) else "input:"
        return _PLACE.sub(place, _TRUNCATION.sub(advice, message))


class FillMaskRequest(TaskRequest):
    """Texts with [MASK]. The results are the candidates of each mask of each text, best first."""

    path = "/v1/fill-mask"
    task = "fill-mask"
    response: ClassVar = {"results": list[list[list[responses.Candidate]]]}
    counting: ClassVar = "counts as {}, because its answer repeats a text for each candidate of each [MASK]"
    to_send_less: ClassVar = "Decrease top_k, or send fewer masks or less text in one request"
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
        answers = super().results(pipeline)
        return [masks if isinstance(masks[0], list) else [masks] for masks in answers]

    def field_of(self, error: Exception) -> str:
        """Return the name of the field that caused an error of the pipeline."""
        return "targets" if str(error).startswith("the target ") else super().field_of(error)


class ClassifyRequest(TaskRequest):
    """Texts, or pairs of texts. The results are the labels of each input, best first."""

    path = "/v1/classify"
    task = "text-classification"
    response: ClassVar = {"results": list[list[responses.Label]]}
    input: str | fields.TextPair | fields.TextsAndPairs
    top_k: fields.Count | None = Field(
        default_factory=lambda: None,  # the schema shows no default, because null and a missing field differ
        description="Number of labels, best first; null for all. Default: the best label, or for a "
        "multi-label model all labels with a probability above 0.5.",
    )
    function_to_apply: Function | None = None
    truncate: fields.Truncate = None

    def options(self) -> dict[str, Any]:
        """Omit `top_k` if the request has none."""
        has_count = "top_k" in self.model_fields_set
        return {name: value for name, value in super().options().items() if has_count or name != "top_k"}

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the labels of each input."""
        return _lists(super().results(pipeline))


class ZeroShotRequest(TaskRequest):
    """Texts and candidate labels, for a model for natural language inference.

    The results are the candidate labels of each text, best first.
    """

    path = "/v1/zero-shot"
    task = "zero-shot-classification"
    response: ClassVar = {"results": list[list[responses.Label]]}
    counting: ClassVar = "counts as {}, because the model reads each text with each candidate label"
    to_send_less: ClassVar = "Send fewer labels or less text in one request"
    input: str | fields.Texts
    candidate_labels: fields.CandidateLabels
    hypothesis_template: fields.Name = Field(
        TEMPLATE, description="Hypothesis to test for each label. The label replaces {}."
    )
    multi_label: bool = Field(
        False, description="Score each label independently. By default, the scores of all labels sum to 1."
    )
    truncate: bool | None = Field(
        None,
        description="Truncate texts that exceed the maximum length, but not the labels. Report the number of "
        "removed tokens. Default: true for a model with a maximum length of the fine-tuning, otherwise "
        "false.",
    )

    def characters(self) -> int:
        """Count a row for each text and label: the text, the hypothesis and the special tokens."""
        count = len(self.candidate_labels)
        hypotheses = count * (SPECIAL_CHARACTERS + fields.characters(self.hypothesis_template))
        hypotheses += sum(map(fields.characters, self.candidate_labels))
        return count * super().characters() + len(self.items()) * hypotheses

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the labels of each text, best first."""
        return [
            [
                {"label": label, "score": score, **({"cut": one["cut"]} if "cut" in one else {})}
                for label, score in zip(one["labels"], one["scores"], strict=True)
            ]
            for one in super().results(pipeline)
        ]


class TagRequest(TaskRequest):
    """Texts of any length. The results are the entities of each text, in the order of the text."""

    path = "/v1/tag"
    task = "token-classification"
    response: ClassVar = {"results": list[list[responses.Entity]]}
    input: str | fields.Texts
    aggregation_strategy: Aggregation = "none"
    ignore_labels: fields.Labels = Field(["O"])
    stride: fields.Overlap | None = Field(
        None, description="Overlap of the windows of a long text, in tokens. null: 64."
    )


class AnswerRequest(TaskRequest):
    """Questions, each with its context of any length. The results are the answers, best first."""

    path = "/v1/answer"
    task = "question-answering"
    response: ClassVar = {"results": list[list[responses.Place]]}
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
        return _lists(super().results(pipeline))


class ChooseRequest(TaskRequest):
    """Contexts, each with its choices. The results are the best choices."""

    path = "/v1/choose"
    task = "multiple-choice"
    response: ClassVar = {"results": list[responses.Choice]}
    counting: ClassVar = "counts as {}, because the model reads each context with each choice"
    to_send_less: ClassVar = "Send fewer choices or less text in one request"
    input: fields.Choices | Annotated[list[fields.Choices], ListField(min_length=1)]
    truncate: fields.Truncate = None

    def characters(self) -> int:
        """Count a context once for each choice, and a choice once for each gap of the question."""
        return sum(
            (len(item.context) + len(item.question or "")) * len(item.choices)
            + sum(map(len, item.choices)) * max(1, (item.question or "").count(GAP))
            for item in self.items()
        )


class OrderRequest(TaskRequest):
    """Pairs of texts. The results are the predicted orders."""

    path = "/v1/order"
    task = "sentence-order"
    response: ClassVar = {"results": list[responses.Judgement]}
    input: fields.OrderedPair | Annotated[list[fields.OrderedPair], ListField(min_length=1)]
    truncate: fields.Truncate = None


class EmbeddingsRequest(TaskRequest):
    """Texts: the request and the response of OpenAI's embeddings, with further options."""

    path = "/v1/embeddings"
    task = "feature-extraction"
    response: ClassVar = {"object": Literal["list"], "data": list[responses.Embedding]}
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
        config = pipeline.model.config
        pooling = self.pooling or (None if sentence_modules(config) else "mean")
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

    def content(self, results: list[Any]) -> dict[str, Any]:
        """Return the fields of OpenAI's response."""
        return {"object": "list", "data": results}


class TokenizeRequest(TaskRequest):
    """Texts, or pairs of texts, to tokenize."""

    path = "/v1/tokenize"
    response: ClassVar = {"results": list[responses.Tokens]}
    computes = False
    input: str | fields.TextPair | fields.TextsAndPairs
    masks: fields.Masks = False

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the tokens of each input."""
        tokenizer = pipeline.tokenizer
        parse = "mask" if self.masks else False
        rows = [
            tokenizer(*fields.pair(item), verbose=False, parse_special_tokens=parse) for item in self.items()
        ]
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

    path = "/v1/inspect"
    response: ClassVar = {"results": list[responses.Inspection]}
    input: str | fields.TextPair
    masks: fields.Masks = False
    truncate: bool = Field(
        False,
        description="Truncate a text that exceeds the maximum length, and report the number of removed "
        "tokens.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return a list with the inspection of the text."""
        text, text_pair = fields.pair(self.input)
        report = compute_attention(
            pipeline.model,
            pipeline.tokenizer,
            text,
            text_pair,
            truncation=self.truncate,
            parse_special_tokens="mask" if self.masks else False,
            engine=replace(cast(QueuedEngine, pipeline.engine), engine=InsideEngine(pipeline.model)),
        )
        return [report.page_figures()]


ROUTES: tuple[type[TaskRequest], ...] = (
    FillMaskRequest,
    ClassifyRequest,
    ZeroShotRequest,
    TagRequest,
    AnswerRequest,
    ChooseRequest,
    OrderRequest,
    EmbeddingsRequest,
    TokenizeRequest,
)


def _lists(answers: list[Any]) -> list[list[Any]]:
    return [answer if isinstance(answer, list) else [answer] for answer in answers]


def _base64(vector: np.ndarray) -> str:
    """Return a vector in the format of OpenAI's clients: little-endian float32 in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
