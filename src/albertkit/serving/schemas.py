"""The schemas of requests and responses, for validation and for OpenAPI.

A request's options are those of its task (`albertkit.options`). Values are not converted: a number in quotes
is an error.
"""

import base64
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np

from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.inspection.attention import InsideEngine, compute_attention
from albertkit.options import BEST, OPTIONS
from albertkit.pipelines.core import Pipeline
from albertkit.recipe import field_docs
from albertkit.serving.libraries import pydantic
from albertkit.serving.limits import ApiError
from albertkit.serving.queue import SPECIAL_CHARACTERS, QueuedEngine
from albertkit.tasks.multiple_choice import GAP
from albertkit.tasks.sentence_embedding import text_vectors

Field = pydantic.Field
_LIGATURES = {"\ufdfa": 17, "\ufdfb": 7}  # Arabic ligature -> number of characters that normalization adds
_MAX_LENGTH = 512  # the largest number of tokens that an option can name
_list = partial(Field, fail_fast=True)  # the errors of all items of a long list would fill the memory
Name = Annotated[str, Field(max_length=1000)]


# --- requests


class Strict(pydantic.BaseModel):
    """A request or a part of one. Values are not converted, and unknown fields are errors."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")


class TextPair(Strict):
    """A text, optionally with a second text."""

    text: str
    text_pair: str | None = None


class OrderedPair(Strict):
    """Two texts whose order the model predicts."""

    text: str
    text_pair: str


class Question(Strict):
    """A question and its context."""

    question: str
    context: str


class Choices(Strict):
    """A context, an optional question about it, and the choices."""

    context: str
    question: str | None = None
    choices: Annotated[list[str], _list(min_length=2)]


class TaskRequest(Strict):
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
    as_lists: ClassVar[bool] = False
    """Whether each result is a list, even if the pipeline returns a single answer."""

    model: Name | None = Field(None, description="Name of the model. Default: the first model for the task.")
    input: Any

    if typing.TYPE_CHECKING:  # the options of the task

        def __getattr__(self, name: str) -> Any: ...

    def items(self) -> list[Any]:
        return self.input if isinstance(self.input, list) else [self.input]

    def characters(self) -> int:
        """Return the number of characters to tokenize."""
        return sum(map(_characters, self.items()))

    def options(self) -> dict[str, Any]:
        """Return the options of the pipeline that the request sets."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"model", "input"}}

    def results(self, pipeline: Pipeline) -> list[Any]:
        """Return the result of the task's pipeline for each input."""
        items = [item if isinstance(item, str) else item.model_dump() for item in self.items()]
        results = pipeline(items, **self.options())
        return [[each] if self.as_lists and not isinstance(each, list) else each for each in results]

    def content(self, results: list[Any]) -> dict[str, Any]:
        return {"results": results}


def _characters(item: Any) -> int:
    """Return the number of characters of an input after normalization, except for rare characters."""
    if isinstance(item, str):
        return len(item) + sum(item.count(character) * more for character, more in _LIGATURES.items())
    return sum(_characters(value) for _, value in item if isinstance(value, str))


def _schema_of(kind: Any, field: dataclasses.Field[Any]) -> Any:
    """Return the type of an option in a request: with limits, and only types that JSON has."""
    is_union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    kinds = typing.get_args(kind) if is_union else (kind,)
    members: list[Any] = [member for member in kinds if member is not type(None)]
    if any(typing.get_origin(member) not in (None, Literal, Mapping) for member in members):
        members = [Annotated[list[Name], _list(max_length=1000)]]  # instead of a text
    minimum, maximum = (field.metadata.get(name) for name in ("minimum", "request_maximum"))
    number = Annotated[int, Field(ge=minimum or 0, le=maximum or _MAX_LENGTH)]
    share = Annotated[float, Field(ge=minimum, le=field.metadata.get("maximum"))]
    shares = Annotated[dict[Name, share], Field(max_length=1000)]
    known = {int: number, float: share, str: Name, Mapping[str, float]: shares}
    in_json = [known.get(member, member) for member in members]
    return typing.Union[*in_json, None]  # type: ignore[return-value]


def request_for(task: str, item: Any) -> type[TaskRequest]:
    """Return the base class of a task's requests: one input or a list, and the options of the task."""
    kind = OPTIONS[task]
    hints, docs = typing.get_type_hints(kind), field_docs(kind)
    fields: dict[str, Any] = {"input": (item | Annotated[list[item], _list(min_length=1)], ...)}
    for field in dataclasses.fields(kind):
        if field.metadata.get("only") != "python":
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            about: dict[str, Any] = {"description": " ".join(docs[field.name].split())}
            # The schema shows no default for BEST, because null and a missing field differ.
            about |= {"default_factory": lambda: None} if default is BEST else {"default": default}
            fields[field.name] = (_schema_of(hints[field.name], field), Field(**about))
    return pydantic.create_model(f"{kind.__name__}Request", __base__=TaskRequest, **fields)


# --- responses


class Usage(pydantic.BaseModel):
    """The number of tokens, including special tokens."""

    prompt_tokens: int
    total_tokens: int


class TaskResponse(pydantic.BaseModel):
    """The fields of every response."""

    model: str
    usage: Usage


class Candidate(pydantic.BaseModel):
    """A predicted word for a mask."""

    score: float
    token: int
    token_str: str
    sequence: str
    window: list[int] | None = Field(
        None,
        description="For a text that exceeds the maximum length: start and end of the window in characters.",
    )


class Label(pydantic.BaseModel):
    """A label and its score."""

    label: str
    score: float
    cut: int | None = Field(None, description="Number of tokens that truncation removed, if any.")


class PredictedLabel(pydantic.BaseModel):
    """A label and its score. With thresholds, `label` is null if no label exceeds its threshold."""

    label: str | None
    score: float
    cut: int | None = Field(None, description="Number of tokens that truncation removed, if any.")
    predicted: bool | None = Field(
        None, description="With thresholds and top_k: whether the model predicts the label."
    )


class Entity(pydantic.BaseModel):
    """The characters `start` to `end` of a text. A token has `entity`, an aggregate has `entity_group`."""

    entity: str | None = None
    entity_group: str | None = None
    score: float
    index: int | None = None
    word: str
    start: int
    end: int


class Answer(pydantic.BaseModel):
    """The characters `start` to `end` of a context. For no answer, `answer` is "" and both are 0."""

    score: float
    start: int
    end: int
    answer: str


class Choice(pydantic.BaseModel):
    """The best choice, and the probabilities of all choices."""

    choice: str
    index: int
    score: float
    scores: list[float]
    cut: int | None = None


class Embedding(pydantic.BaseModel):
    """The vector of a text: a list of numbers, or float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Tokens(pydantic.BaseModel):
    """The tokens of an input. Offsets are the characters [start, end) of its text."""

    input_ids: list[int]
    token_type_ids: list[int]
    tokens: list[str]
    offsets: list[list[int]]


class ModelEntry(pydantic.BaseModel):
    """A model, its tasks and its sizes."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: list[str]
    max_tokens: int
    embedding_size: int
    text_pairs: bool | None = Field(
        description="Whether the model was fine-tuned on pairs of texts; null: unknown."
    )
    labels: list[str] | None = Field(description="The labels of a classifier or tagger; null for others.")


class ModelList(pydantic.BaseModel):
    """The models, in the format of OpenAI's list."""

    object: Literal["list"]
    data: list[ModelEntry]


class Health(pydantic.BaseModel):
    """The state of the server."""

    status: str
    models: dict[str, bool] | None = None


class ErrorDetail(pydantic.BaseModel):
    """The description of an error."""

    message: str
    type: str
    param: str | None
    request_id: str


class Error(pydantic.BaseModel):
    """The response to a request that failed."""

    error: ErrorDetail


# --- the requests of each route


class FillMaskRequest(request_for("fill-mask", str)):
    """Texts with [MASK]. The results are the candidates of each mask of each text, best first."""

    path = "/v1/fill-mask"
    task = "fill-mask"
    response: ClassVar = {"results": list[list[list[Candidate]]]}
    counting: ClassVar = "counts as {}, because its answer repeats a text for each candidate of each [MASK]"

    def characters(self) -> int:
        """Also count the characters of the results: each candidate of each mask repeats the text."""
        repeated = sum(len(text) * text.count("[MASK]") * (self.top_k or 5) for text in self.items())
        return super().characters() + sum(map(len, self.targets or [])) + repeated // 20

    def results(self, pipeline: Pipeline) -> list[Any]:
        return [masks if isinstance(masks[0], list) else [masks] for masks in super().results(pipeline)]


class ClassifyRequest(request_for("text-classification", str | TextPair)):
    """Texts, or pairs of texts. The results are the labels of each input, best first."""

    path = "/v1/classify"
    task = "text-classification"
    response: ClassVar = {"results": list[list[PredictedLabel]]}
    as_lists = True


class ZeroShotRequest(request_for("zero-shot-classification", str)):
    """Texts and candidate labels, for a model for natural language inference.

    The results are the candidate labels of each text, best first.
    """

    path = "/v1/zero-shot"
    task = "zero-shot-classification"
    response: ClassVar = {"results": list[list[Label]]}
    counting: ClassVar = "counts as {}, because the model reads each text with each candidate label"
    candidate_labels: Annotated[
        list[Annotated[Name, Field(min_length=1)]], _list(min_length=1, max_length=1000)
    ]

    def characters(self) -> int:
        """Count a row for each text and label: the text, the hypothesis and the special tokens."""
        count = len(self.candidate_labels)
        hypotheses = count * (SPECIAL_CHARACTERS + _characters(self.hypothesis_template or ""))
        hypotheses += sum(map(_characters, self.candidate_labels))
        return count * super().characters() + len(self.items()) * hypotheses

    def results(self, pipeline: Pipeline) -> list[Any]:
        return [
            [
                {"label": label, "score": score, **({"cut": answer["cut"]} if "cut" in answer else {})}
                for label, score in zip(answer["labels"], answer["scores"], strict=True)
            ]
            for answer in super().results(pipeline)
        ]


class TagRequest(request_for("token-classification", str)):
    """Texts of any length. The results are the entities of each text, in the order of the text."""

    path = "/v1/tag"
    task = "token-classification"
    response: ClassVar = {"results": list[list[Entity]]}


class AnswerRequest(request_for("question-answering", Question)):
    """Questions, each with its context of any length. The results are the answers, best first."""

    path = "/v1/answer"
    task = "question-answering"
    response: ClassVar = {"results": list[list[Answer]]}
    as_lists = True


class ChooseRequest(request_for("multiple-choice", Choices)):
    """Contexts, each with its choices. The results are the best choices."""

    path = "/v1/choose"
    task = "multiple-choice"
    response: ClassVar = {"results": list[Choice]}
    counting: ClassVar = "counts as {}, because the model reads each context with each choice"

    def characters(self) -> int:
        """Count a context once for each choice, and a choice once for each gap of the question."""
        return sum(
            (len(item.context) + len(item.question or "")) * len(item.choices)
            + sum(map(len, item.choices)) * max(1, (item.question or "").count(GAP))
            for item in self.items()
        )


class OrderRequest(request_for("sentence-order", OrderedPair)):
    """Pairs of texts. The results are the predicted orders."""

    path = "/v1/order"
    task = "sentence-order"
    response: ClassVar = {"results": list[Label]}


class EmbeddingsRequest(request_for("feature-extraction", str)):
    """Texts: the request and the response of OpenAI's embeddings, with further options."""

    path = "/v1/embeddings"
    task = "feature-extraction"
    response: ClassVar = {"object": Literal["list"], "data": list[Embedding]}
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="If set, it must be the size of the model's vectors.")
    user: Name | None = Field(None, description="Ignored.")
    pooling: Literal["mean", "cls", "max"] | None = Field(
        None,
        description="How to combine the vectors of the tokens into one vector. null: the model's pooling, or "
        "mean.",
    )
    normalize: bool = Field(True, description="Scale the vectors to length 1.")

    def results(self, pipeline: Any) -> list[Any]:
        config = pipeline.model.config
        pooling = self.pooling or (None if sentence_modules(config) else "mean")
        size = text_vectors(config, pooling=pooling).size(config.hidden_size)
        if self.dimensions not in (None, size):
            expected = f"Expected {size}, the size of this model's vectors."
            message = f"dimensions is {self.dimensions}. {expected}"
            raise ApiError(422, "invalid", message, param="dimensions")
        own = ("encoding_format", "dimensions", "user", "pooling", "normalize")
        options = {name: value for name, value in self.options().items() if name not in own}
        options |= {"pooling": pooling, "normalize": self.normalize, "return_tensors": "np"}
        vectors: Sequence[np.ndarray] = pipeline(self.items(), **options)
        return [
            {
                "object": "embedding",
                "index": number,
                # In base64 as OpenAI's clients expect it: little-endian float32.
                "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
                if self.encoding_format == "base64"
                else vector.tolist(),
            }
            for number, vector in enumerate(vectors)
        ]

    def content(self, results: list[Any]) -> dict[str, Any]:
        return {"object": "list", "data": results}


_Masks = Annotated[bool, Field(description="Parse [MASK] in a text as the mask token, as fill-mask does.")]


class TokenizeRequest(TaskRequest):
    """Texts, or pairs of texts, to tokenize."""

    path = "/v1/tokenize"
    response: ClassVar = {"results": list[Tokens]}
    computes = False
    input: str | TextPair | Annotated[list[str | TextPair], _list(min_length=1)]
    masks: _Masks = False

    def results(self, pipeline: Pipeline) -> list[Any]:
        tokenizer = pipeline.tokenizer
        parse = "mask" if self.masks else False
        pairs = [
            (item, None) if isinstance(item, str) else (item.text, item.text_pair) for item in self.items()
        ]
        rows = [tokenizer(*pair, verbose=False, parse_special_tokens=parse) for pair in pairs]
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
    """One text, or a pair of texts, to inspect.

    The result has the tokens, and for T tokens and L layers: `layers`, the attention of each layer, as
    little-endian 16-bit integers in base64 (head, token, attended token), to be divided by `scale`;
    `cosine_to_previous` (L, T), the cosine of each token's hidden states after a layer and before it; and
    `cosine_to_last` (L + 1, T), of those after each layer, beginning with the embeddings, and after the last.
    """

    path = "/v1/inspect"
    response: ClassVar = {"results": list[dict[str, Any]]}
    input: str | TextPair
    masks: _Masks = False
    truncation: bool = Field(
        False,
        description="Truncate a text that exceeds the maximum length, and report the number of removed "
        "tokens.",
    )

    def results(self, pipeline: Pipeline) -> list[Any]:
        item = self.input
        text, text_pair = (item, None) if isinstance(item, str) else (item.text, item.text_pair)
        engine = cast(QueuedEngine, pipeline.engine)
        report = compute_attention(
            pipeline.model,
            pipeline.tokenizer,
            text,
            text_pair,
            truncation=self.truncation,
            parse_special_tokens="mask" if self.masks else False,
            engine=dataclasses.replace(engine, engine=InsideEngine(pipeline.model)),
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
